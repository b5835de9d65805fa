//! What keys do.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::tables;
use super::trends::{Model, Sort, Task, is_about};

/// What the screen shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    #[default]
    Cpus,
    Rules,
    Tasks,
    Limits,
}

impl View {
    pub const ALL: [(View, &'static str); 4] = [
        (View::Cpus, "CPUs"),
        (View::Rules, "Rules"),
        (View::Tasks, "Tasks"),
        (View::Limits, "Limits, interrupts"),
    ];
}

/// What covers the view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Page {
    #[default]
    None,
    Help,
    /// Why a task falls under its rule, as text.
    Explain {
        tid: u32,
        text: Option<String>,
    },
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Nothing,
    Quit,
    Explain(u32),
}

/// What the user has chosen.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    pub view: View,
    /// The marked row of each view.
    pub rows: [usize; View::ALL.len()],
    /// The marked task, wherever it moves.
    pub tid: Option<u32>,
    pub sort: Sort,
    pub reversed: bool,
    /// Only tasks of this rule.
    pub rule: Option<String>,
    /// Only tasks with this text.
    pub filter: String,
    /// Whether keys go into the filter.
    pub types_filter: bool,
    pub page: Page,
    /// The first line of the page.
    pub scroll: u16,
    /// What was shown when the screen was frozen.
    pub frozen: Option<Box<Model>>,
}

/// How many rows or lines the keys for a page move.
const PAGE: isize = 15;

impl Choice {
    /// What to show of `now`.
    pub fn shown<'a>(&'a self, now: &'a Model) -> &'a Model {
        self.frozen.as_deref().unwrap_or(now)
    }

    /// The tasks to show, in order.
    pub fn tasks<'a>(&self, model: &'a Model) -> Vec<&'a Task> {
        let running = model.report.as_ref().and_then(|report| report.gthctl.as_ref());
        let tasks = running.iter().flat_map(|running| &running.tasks);
        let is_of_rule =
            |task: &&Task| self.rule.as_ref().is_none_or(|rule| task.task.rule == *rule);
        let tasks = tasks.filter(is_of_rule);
        let mut tasks: Vec<&Task> =
            tasks.filter(|task| is_about(&task.task, &self.filter)).collect();
        self.sort.sort(&mut tasks, self.reversed);
        tasks
    }

    /// The marked row of the view.
    pub fn row(&self, model: &Model) -> usize {
        let row = self.rows[self.view as usize];
        let of_task = |tid| self.tasks(model).iter().position(|task| task.task.tid == tid);
        let row = match self.view {
            View::Tasks => self.tid.and_then(of_task).unwrap_or(row),
            _ => row,
        };
        row.min(self.count(model).saturating_sub(1))
    }

    /// How many rows the view has.
    fn count(&self, model: &Model) -> usize {
        let Some(report) = &model.report else { return 0 };
        let running = report.gthctl.as_ref();
        match self.view {
            View::Cpus => report.cpus.len(),
            View::Rules => running.map_or(0, |running| running.rules.len()),
            View::Tasks => self.tasks(model).len(),
            View::Limits => {
                running.map_or(0, |running| running.cgroups.len() + tables::remarks(running).len())
            }
        }
    }

    /// Acts on a key; `now` is the last model.
    pub fn press(&mut self, key: KeyEvent, now: &Model) -> Wish {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Wish::Quit;
        }
        if self.types_filter {
            self.type_filter(key.code);
            return Wish::Nothing;
        }
        match key.code {
            KeyCode::Char('q') => return Wish::Quit,
            KeyCode::Char('h' | '?') => self.show(Page::Help),
            KeyCode::Esc if self.page != Page::None => self.page = Page::None,
            KeyCode::Esc => self.narrow(None),
            KeyCode::Char(digit @ '1'..='4') => {
                self.go(View::ALL[digit as usize - '1' as usize].0);
            }
            KeyCode::Tab => self.go(View::ALL[(self.view as usize + 1) % 4].0),
            KeyCode::BackTab => self.go(View::ALL[(self.view as usize + 3) % 4].0),
            KeyCode::Char('f' | ' ') => self.freeze(now),
            KeyCode::Char('s') => self.sort = self.sort.next(1),
            KeyCode::Char('S') => self.sort = self.sort.next(Sort::ALL.len() - 1),
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Char('/') => {
                self.go(View::Tasks);
                self.types_filter = true;
            }
            KeyCode::Enter => return self.enter(now),
            code => self.walk(code, now),
        }
        Wish::Nothing
    }

    fn show(&mut self, page: Page) {
        (self.page, self.scroll) = (page, 0);
    }

    fn go(&mut self, view: View) {
        (self.view, self.page) = (view, Page::None);
    }

    /// Shows all tasks of this rule, or of every rule.
    fn narrow(&mut self, rule: Option<String>) {
        self.rule = rule;
        self.filter.clear();
    }

    fn freeze(&mut self, now: &Model) {
        self.frozen = match self.frozen {
            None => Some(Box::new(now.clone())),
            Some(_) => None,
        };
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.types_filter = false,
            KeyCode::Esc => {
                self.types_filter = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(c) => self.filter.push(c),
            _ => {}
        }
    }

    /// Goes from a rule to its tasks, or from a task to its explanation.
    fn enter(&mut self, now: &Model) -> Wish {
        let model = self.shown(now);
        let row = self.row(model);
        match self.view {
            View::Rules => {
                let running = model.report.as_ref().and_then(|report| report.gthctl.as_ref());
                let rule = running.and_then(|running| running.rules.get(row));
                let rule = rule.map(|rule| rule.rule.clone());
                self.narrow(rule);
                self.go(View::Tasks);
            }
            View::Tasks => {
                let tid = self.tasks(model).get(row).map(|task| task.task.tid);
                if let Some(tid) = tid {
                    self.tid = Some(tid);
                    self.show(Page::Explain { tid, text: None });
                    return Wish::Explain(tid);
                }
            }
            View::Cpus | View::Limits => {}
        }
        Wish::Nothing
    }

    /// Moves the mark, or the page.
    fn walk(&mut self, code: KeyCode, now: &Model) {
        let step = match code {
            KeyCode::Up | KeyCode::Char('k') => -1,
            KeyCode::Down | KeyCode::Char('j') => 1,
            KeyCode::PageUp => -PAGE,
            KeyCode::PageDown => PAGE,
            KeyCode::Home => isize::MIN / 2,
            KeyCode::End => isize::MAX / 2,
            _ => return,
        };
        if self.page != Page::None {
            let to = isize::from(self.page_lines()).saturating_sub(1);
            let at = isize::from(self.scroll as i16).saturating_add(step);
            self.scroll = at.clamp(0, to.max(0)) as u16;
            return;
        }
        let model = self.shown(now);
        let last = self.count(model).saturating_sub(1) as isize;
        let row = (self.row(model) as isize).saturating_add(step).clamp(0, last) as usize;
        let tid = self.tasks(model).get(row).map(|task| task.task.tid);
        self.rows[self.view as usize] = row;
        if self.view == View::Tasks {
            self.tid = tid;
        }
    }

    fn page_lines(&self) -> i16 {
        let lines = match &self.page {
            Page::Explain { text: Some(text), .. } => text.lines().count(),
            Page::Help => HELP.len(),
            _ => 0,
        };
        i16::try_from(lines).unwrap_or(i16::MAX)
    }
}

/// The keys, and what they do.
pub const HELP: [(&str, &str); 11] = [
    ("1 2 3 4, Tab", "the views: CPUs, rules, tasks, limits and interrupts"),
    ("up, down, j, k", "move the mark; also Page Up, Page Down, Home, End"),
    ("Enter", "on a rule: its tasks; on a task: why it falls under its rule"),
    ("s, S", "sort tasks by the next, the previous column"),
    ("r", "reverse the order"),
    ("/", "only tasks with a text in name, rule, pod or TID; Esc ends it"),
    ("f, Space", "freeze the screen, and go on"),
    ("h, ?", "this help"),
    ("Esc", "back"),
    ("q, Ctrl-C", "quit"),
    ("", "run and wait are parts of the time; a turn is a stay on a CPU"),
];

#[cfg(test)]
mod tests {
    use super::super::test_samples::{crowded, model, sample};
    use super::*;

    fn press(choice: &mut Choice, model: &Model, keys: &str) -> Wish {
        let code = |c| match c {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\u{1b}' => KeyCode::Esc,
            '\u{8}' => KeyCode::Backspace,
            c => KeyCode::Char(c),
        };
        let mut keys = keys.chars().map(|c| choice.press(code(c).into(), model));
        let first = keys.find(|wish| *wish != Wish::Nothing);
        first.unwrap_or(Wish::Nothing)
    }

    fn names(choice: &Choice, model: &Model) -> Vec<u32> {
        choice.tasks(model).iter().map(|task| task.task.tid).collect()
    }

    #[test]
    fn views_in_turn_and_by_number() {
        let (mut choice, model) = (Choice::default(), Model::default());
        assert!(View::ALL.iter().enumerate().all(|(i, (view, _))| *view as usize == i));
        for view in [View::Rules, View::Tasks, View::Limits, View::Cpus] {
            press(&mut choice, &model, "\t");
            assert_eq!(choice.view, view);
        }
        choice.press(KeyCode::BackTab.into(), &model);
        assert_eq!(choice.view, View::Limits);
        press(&mut choice, &model, "2jk\n/");
        assert_eq!((choice.view, choice.types_filter), (View::Tasks, true));
    }

    #[test]
    fn a_filter_takes_all_keys_until_it_ends() {
        let (mut choice, model) = (Choice::default(), model([sample(1), sample(2)]));
        assert_eq!(press(&mut choice, &model, "/uqx\u{8}\u{8}p"), Wish::Nothing);
        assert_eq!((&*choice.filter, names(&choice, &model)), ("up", vec![11]));
        press(&mut choice, &model, "\n");
        assert!(!choice.types_filter && choice.filter == "up");
        press(&mut choice, &model, "\u{1b}");
        assert_eq!(names(&choice, &model), [11, 12]);
        let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        press(&mut choice, &model, "/");
        assert_eq!(choice.press(ctrl_c, &model), Wish::Quit);
        assert_eq!(press(&mut choice, &model, "\nq"), Wish::Quit);
    }

    #[test]
    fn the_mark_stays_on_its_task() {
        let (mut choice, model) = (Choice::default(), model([crowded(1, 30), crowded(2, 30)]));
        press(&mut choice, &model, "3jj");
        let tid = names(&choice, &model)[2];
        assert_eq!((choice.row(&model), choice.tid), (2, Some(tid)));
        press(&mut choice, &model, "r");
        assert_eq!(names(&choice, &model)[choice.row(&model)], tid);
        assert_ne!(choice.row(&model), 2);
        assert_eq!(press(&mut choice, &model, "\n"), Wish::Explain(tid));
        assert_eq!(choice.page, Page::Explain { tid, text: None });
        press(&mut choice, &model, "\u{1b}");
        choice.press(KeyCode::End.into(), &model);
        assert_eq!(choice.row(&model), 31);
        choice.press(KeyCode::PageUp.into(), &model);
        assert_eq!(choice.row(&model), 16);
        choice.press(KeyCode::Home.into(), &model);
        assert_eq!(choice.row(&model), 0);
    }

    #[test]
    fn a_rule_leads_to_its_tasks() {
        let (mut choice, model) = (Choice::default(), model([sample(1), sample(2)]));
        press(&mut choice, &model, "2j\n");
        assert_eq!((choice.view, names(&choice, &model)), (View::Tasks, vec![12]));
        assert_eq!(press(&mut choice, &model, "\n"), Wish::Explain(12));
    }

    #[test]
    fn a_rule_leads_to_no_tasks_of_rules_with_its_name_in_theirs() {
        let (mut choice, mut model) = (Choice::default(), model([sample(1), sample(2)]));
        let running = model.report.as_mut().unwrap().gthctl.as_mut().unwrap();
        running.rules[1].rule = "breakfast".into();
        let others = running.tasks.iter_mut().filter(|task| task.task.rule == "slow");
        others.for_each(|task| task.task.rule = "breakfast".into());
        press(&mut choice, &model, "/shell\n2\n");
        assert_eq!((choice.filter.as_str(), names(&choice, &model)), ("", vec![11]));
        // A filter applies within the rule. While it is being typed, Esc ends only the filter.
        press(&mut choice, &model, "/shell\n");
        assert!(names(&choice, &model).is_empty());
        press(&mut choice, &model, "/\u{1b}");
        assert_eq!((choice.rule.as_deref(), names(&choice, &model)), (Some("fast"), vec![11]));
        press(&mut choice, &model, "/up\n\u{1b}");
        assert_eq!((choice.rule.as_deref(), choice.filter.as_str()), (None, ""));
        assert_eq!(names(&choice, &model), [11, 12]);
    }

    #[test]
    fn a_frozen_screen_keeps_what_it_showed() {
        let mut choice = Choice::default();
        let (old, new) = (model([sample(1)]), model([sample(1), sample(2)]));
        press(&mut choice, &old, "f");
        assert_eq!(choice.shown(&new).report, old.report);
        press(&mut choice, &new, "f");
        assert_eq!(choice.shown(&new).report, new.report);
    }

    #[test]
    fn a_page_scrolls_within_its_text() {
        let (mut choice, model) = (Choice::default(), Model::default());
        press(&mut choice, &model, "hj");
        assert_eq!((&choice.page, choice.scroll), (&Page::Help, 1));
        choice.press(KeyCode::End.into(), &model);
        assert_eq!(usize::from(choice.scroll), HELP.len() - 1);
        choice.press(KeyCode::Home.into(), &model);
        press(&mut choice, &model, "k\u{1b}");
        assert_eq!((choice.page, choice.scroll), (Page::None, 0));
    }
}
