//! Draws the screen. Nothing here requests data or keeps state.

use std::env;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{self, Cell, Paragraph, Row, TableState};

use super::keys::{Choice, HELP, Page, View};
use super::tables::{self, Table};
use super::trends::{Model, Report, Running, Series};
use crate::base::{columns, escape};

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub colored: bool,
    /// Whether it can show characters beyond ASCII.
    pub unicode: bool,
}

impl Look {
    /// Reads the environment, as setlocale(3) does.
    pub fn of_terminal(colored: bool) -> Self {
        let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
        let locale = locale.to_lowercase();
        Self { colored, unicode: locale.contains("utf-8") || locale.contains("utf8") }
    }

    /// A style that stands out, in colour if there is one.
    fn alarm(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if self.colored { style.fg(Color::Red) } else { style }
    }

    fn name(self) -> Style {
        if self.colored { Style::new().fg(Color::Cyan) } else { Style::new() }
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// How wide the names of facts are.
const NAME_WIDTH: usize = 12;

/// The rows that a table keeps if there are many facts above it.
const TABLE_ROOM: u16 = 8;

/// Draws everything: state, view, keys.
pub fn draw(frame: &mut Frame<'_>, choice: &Choice, now: &Model, look: Look) {
    let model = choice.shown(now);
    let [title, views, body, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(self::title(choice, model, look), title);
    frame.render_widget(self::views(choice), views);
    match (&choice.page, choice.view) {
        (Page::Help, _) => help(frame, body, choice),
        (Page::Explain { tid, text }, _) => explain(frame, body, choice, *tid, text.as_deref()),
        (Page::None, View::Cpus) => cpus(frame, body, choice, model, look),
        (Page::None, View::Rules) => rules(frame, body, choice, model, look),
        (Page::None, View::Tasks) => tasks(frame, body, choice, model, look),
        (Page::None, View::Limits) => limits(frame, body, choice, model, look),
    }
    frame.render_widget(self::keys(choice), keys);
}

/// Which gthctl is running, and what is wrong.
fn title<'a>(choice: &Choice, model: &'a Model, look: Look) -> Line<'a> {
    let mut spans = vec![Span::styled("gthctl top  ", BOLD)];
    if choice.frozen.is_some() {
        spans.push(Span::styled("FROZEN  ", look.alarm()));
    }
    let running = model.report.as_ref().and_then(|report| report.gthctl.as_ref());
    match (running, &model.silent) {
        (_, Some(why)) => {
            let why = format!("waiting: {}", escape::line(why));
            spans.push(Span::styled(why, look.alarm()));
        }
        (Some(Running { status, .. }), None) => {
            spans
                .push(Span::raw(format!("PID {}  generation {}  ", status.pid, status.generation)));
            if status.rejected.is_some() {
                spans.push(Span::styled("FILE REJECTED  ", look.alarm()));
            }
            if !status.kernel_in_step {
                spans.push(Span::styled("KERNEL OUT OF STEP  ", look.alarm()));
            }
        }
        (None, None) => spans.push(Span::raw("looking")),
    }
    Line::from(spans)
}

fn views(choice: &Choice) -> Line<'static> {
    let one = |(view, name): (View, &str)| {
        let style = if view == choice.view { REVERSED } else { Style::new() };
        [Span::styled(format!(" {} {name} ", view as usize + 1), style), Span::raw(" ")]
    };
    Line::from(View::ALL.into_iter().flat_map(one).collect::<Vec<_>>())
}

fn keys(choice: &Choice) -> Line<'_> {
    if choice.types_filter {
        let filter = escape::line(&choice.filter);
        return Line::from(vec![Span::styled("/", BOLD), Span::raw(filter), Span::raw("_")]);
    }
    let keys = match (&choice.page, choice.view) {
        (Page::None, View::Tasks) => {
            "s sort  r reverse  / filter  Enter explain  f freeze  h help  q quit"
        }
        (Page::None, View::Rules) => "Enter its tasks  Tab next view  f freeze  h help  q quit",
        (Page::None, _) => "1-4, Tab views  up, down move  f freeze  h help  q quit",
        _ => "Esc back  up, down scroll  q quit",
    };
    Line::raw(keys)
}

fn help(frame: &mut Frame<'_>, area: Rect, choice: &Choice) {
    let lines = HELP.iter().map(|(keys, what)| {
        Line::from(vec![Span::styled(format!("{keys:<16}"), BOLD), Span::raw(*what)])
    });
    let text = Paragraph::new(lines.collect::<Vec<_>>());
    frame.render_widget(text.scroll((choice.scroll, 0)), area);
}

fn explain(frame: &mut Frame<'_>, area: Rect, choice: &Choice, tid: u32, text: Option<&str>) {
    let asking = format!("asking about thread {tid}");
    let text = escape::lines(text.unwrap_or(&asking)).into_owned();
    frame.render_widget(Paragraph::new(text).scroll((choice.scroll, 0)), area);
}

/// Facts in general, and the CPUs.
fn cpus(frame: &mut Frame<'_>, area: Rect, choice: &Choice, model: &Model, look: Look) {
    let Some(report) = &model.report else { return };
    let mut lines = Vec::new();
    for known in report.gthctl.iter().flat_map(tables::facts) {
        lines.extend(fact(known, area.width, look));
    }
    if model.wakeups.last(1).next().is_some() && report.gthctl.is_some() {
        let room = usize::from(area.width.saturating_sub(NAME_WIDTH as u16));
        let line = sparkline(&model.wakeups, room, 0.0, look);
        lines.push(named("99 % under", line, Style::new(), look));
    }
    let above = (lines.len() as u16).min(area.height.saturating_sub(TABLE_ROOM));
    let [top, rest] = Layout::vertical([Constraint::Length(above), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(lines), top);
    let mut table = tables::cpus(&report.cpus);
    let busy = |cpu: &super::trends::Cpu| {
        model.cpus.get(&cpu.cpu).map_or(String::new(), |series| sparkline(series, 12, 1.0, look))
    };
    table.push("busy", report.cpus.iter().map(busy));
    self::table(frame, rest, &table, choice.row(model));
}

/// The lines of a fact of [`tables::facts`].
fn fact(
    (name, value, is_bad): (&'static str, String, bool),
    width: u16,
    look: Look,
) -> impl Iterator<Item = Line<'static>> {
    let style = if is_bad { look.alarm() } else { Style::new() };
    let parts = columns::wrapped(&value, usize::from(width).saturating_sub(NAME_WIDTH));
    let names = std::iter::once(name).chain(std::iter::repeat(""));
    names.zip(parts).map(move |(name, part)| named(name, part, style, look))
}

fn named(name: &str, value: String, style: Style, look: Look) -> Line<'static> {
    Line::from(vec![
        Span::styled(format!("{name:<NAME_WIDTH$}"), look.name()),
        Span::styled(value, style),
    ])
}

fn rules(frame: &mut Frame<'_>, area: Rect, choice: &Choice, model: &Model, look: Look) {
    let Some(running) = running(model) else { return };
    let mut table = tables::rules(&running.rules);
    let run = |rule: &super::trends::Rule| {
        model.rules.get(&rule.rule).map_or(String::new(), |run| sparkline(run, 12, 0.0, look))
    };
    table.push("run", running.rules.iter().map(run));
    rows(frame, area, &table, choice.row(model), "the policy has no rule");
}

fn tasks(frame: &mut Frame<'_>, area: Rect, choice: &Choice, model: &Model, look: Look) {
    if running(model).is_none() {
        return;
    }
    let [head, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let tasks = choice.tasks(model);
    let order = if choice.reversed { ", reversed" } else { "" };
    let mut text = format!("{} by {}{order}", tasks.len(), choice.sort.name());
    if let Some(rule) = &choice.rule {
        text += &format!(", of rule {}", escape::line(rule));
    }
    if !choice.filter.is_empty() {
        text += &format!(", with \"{}\"", escape::line(&choice.filter));
    }
    frame.render_widget(named("tasks", text, Style::new(), look), head);
    let none = "no task falls under a rule, or none that the filter lets through";
    rows(frame, rest, &tables::tasks(&tasks), choice.row(model), none);
}

/// The table of cgroups, and under it what is known about interrupts.
fn limits(frame: &mut Frame<'_>, area: Rect, choice: &Choice, model: &Model, look: Look) {
    let Some(running) = running(model) else { return };
    let cgroups = &running.cgroups;
    let irqs = tables::facts(running).into_iter().filter(|(name, ..)| *name == "interrupts");
    let mut lines: Vec<Line<'_>> = irqs.flat_map(|irqs| fact(irqs, area.width, look)).collect();
    // Where each remark begins.
    let mut begins = Vec::new();
    for remark in tables::remarks(running) {
        begins.push(lines.len());
        lines.extend(columns::wrapped(&remark, usize::from(area.width)).into_iter().map(Line::raw));
    }
    let rows_wanted = if cgroups.is_empty() { 1 } else { cgroups.len() as u16 + 1 };
    let least = area.height.saturating_sub(lines.len() as u16 + 1).max(area.height / 2);
    let height = rows_wanted.min(least);
    let [upper, _, lower] =
        Layout::vertical([Constraint::Length(height), Constraint::Length(1), Constraint::Min(0)])
            .areas(area);
    let row = choice.row(model);
    let none = "no cgroup has used up its limit";
    rows(frame, upper, &tables::cgroups(cgroups), row.min(cgroups.len().saturating_sub(1)), none);
    // The mark goes on through the remarks, which then scroll. At the last one, all lines have been
    // shown.
    let most = lines.len().saturating_sub(usize::from(lower.height));
    let scroll = match row.checked_sub(cgroups.len()).filter(|_| row > 0) {
        Some(marked) if marked + 1 < begins.len() => begins[marked].min(most),
        Some(_) => most,
        None => 0,
    };
    frame.render_widget(Paragraph::new(lines.split_off(scroll)), lower);
}

fn running(model: &Model) -> Option<&Running> {
    model.report.as_ref().and_then(|report: &Report| report.gthctl.as_ref())
}

/// A table, or why it is empty.
fn rows(frame: &mut Frame<'_>, area: Rect, table: &Table, row: usize, none: &'static str) {
    match table.rows.is_empty() {
        true => frame.render_widget(Paragraph::new(none), area),
        false => self::table(frame, area, table, row),
    }
}

/// A table whose row `row` is marked and in sight. Numbers are right-aligned in their columns.
fn table(frame: &mut Frame<'_>, area: Rect, table: &Table, row: usize) {
    let widths = widths(table, usize::from(area.width));
    let cell = |(column, text): (usize, &str)| match table.numbers[column] {
        true => Cell::from(format!("{text:>width$}", width = widths[column])),
        false => Cell::from(text.to_owned()),
    };
    let line = |cells: Vec<&str>| {
        Row::new(cells.into_iter().take(widths.len()).enumerate().map(cell).collect::<Vec<_>>())
    };
    let head = line(table.head.clone()).style(BOLD);
    let body = table.rows.iter().map(|row| line(row.iter().map(String::as_str).collect()));
    let fitted = widths.iter().map(|&width| Constraint::Length(width as u16));
    let widget = widgets::Table::new(body.collect::<Vec<_>>(), fitted)
        .header(head)
        .row_highlight_style(REVERSED);
    let mut state = TableState::new().with_selected(row);
    frame.render_stateful_widget(widget, area, &mut state);
}

/// The widths of the columns that fit. Text columns shrink first, then the last columns are
/// dropped.
fn widths(table: &Table, room: usize) -> Vec<usize> {
    /// The least width that a text column shrinks to.
    const LEAST: usize = 8;
    let widest = |column: usize| {
        let cells = table.rows.iter().map(|row| columns::width(&row[column]));
        cells.chain([table.head[column].len()]).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..table.head.len()).map(widest).collect();
    let all = |widths: &[usize]| widths.iter().map(|width| width + 1).sum::<usize>();
    while all(&widths) > room + 1 {
        let texts = (0..widths.len()).filter(|&column| !table.numbers[column]);
        match texts.max_by_key(|&column| widths[column]).filter(|&column| widths[column] > LEAST) {
            Some(column) => widths[column] -= 1,
            None if widths.len() > 1 => drop(widths.pop()),
            None => break,
        }
    }
    widths
}

/// The last parts of a series, as heights up to `most`, or up to the highest part if `most` is 0.
pub fn sparkline(series: &Series, width: usize, most: f64, look: Look) -> String {
    const BARS: [[char; 8]; 2] =
        [['_', '.', ',', '-', '=', '+', '*', '#'], ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█']];
    let highest = series.last(width).fold(0.0, f64::max);
    let most = if most > 0.0 { most } else { highest };
    let bar = |value: f64| {
        let height = if most > 0.0 { (value / most * 7.0).round() } else { 0.0 };
        BARS[usize::from(look.unicode)][height.clamp(0.0, 7.0) as usize]
    };
    series.last(width).map(bar).collect()
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::test_samples::{alone, crowded, model, sample};
    use super::*;
    use crate::base::escape::NASTY;

    const PLAIN: Look = Look { colored: false, unicode: false };

    /// The lines on a terminal of this size.
    fn lines(choice: &Choice, model: &Model, (width, height): (u16, u16)) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, choice, model, PLAIN)).unwrap();
        drawn(&terminal)
    }

    fn drawn(terminal: &Terminal<TestBackend>) -> Vec<String> {
        let buffer = terminal.backend().buffer();
        let line = |cells: &[ratatui::buffer::Cell]| {
            cells.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()
        };
        buffer.content.chunks(usize::from(buffer.area.width)).map(line).collect()
    }

    fn words(line: &str) -> Vec<&str> {
        line.split_whitespace().collect()
    }

    #[track_caller]
    fn assert_row(lines: &[String], row: &str) {
        let found = lines.iter().any(|line| words(line) == words(row));
        assert!(found, "{row}\n{}", lines.join("\n"));
    }

    fn on(view: View) -> Choice {
        Choice { view, ..Choice::default() }
    }

    #[test]
    fn the_cpus_on_80_columns() {
        let lines = lines(&on(View::Cpus), &model([sample(1), sample(2)]), (80, 24));
        assert_eq!(lines.len(), 24);
        assert_eq!(lines[0], "gthctl top  PID 42  generation 3");
        assert_row(&lines, "interrupts 4 in place, 1 AWAY; 7 placed again; 1 waiting");
        assert_row(&lines, "wake-ups 1000/s, half under 2us, 99 % under 16us");
        assert_row(&lines, "CPU use prio normal rt softirq irq idle last ran tasks of busy");
        assert_row(&lines, "0 shared 0.0% 15.0% 5.0% 5.0% 0.0% 75.0% ,");
        assert_row(&lines, "1 exclusive 50.0% 25.0% 0.0% 25.0% 0.0% 0.0% 1 fast, 1 slow #");
        assert_eq!(lines[23], "1-4, Tab views  up, down move  f freeze  h help  q quit");
    }

    #[test]
    fn each_view_has_its_rows() {
        let model = model([sample(1), sample(2)]);
        let rules = lines(&on(View::Rules), &model, (80, 24));
        assert_row(&rules, "fast 1 50.0% 0.1% 1010 10 <2us <16us <32us #");
        let tasks = lines(&on(View::Tasks), &model, (80, 24));
        assert_row(&tasks, "tasks 2 by run time");
        assert_row(&tasks, "TID name rule CPU run wait wait/turn switch/s preempt/s");
        assert_row(&tasks, "11 upf-rx fast 1 50.0% 0.1% 1us 1010 10");
        let limits = lines(&on(View::Limits), &model, (80, 24));
        assert_row(&limits, "/batch 0.50 CPUs 25.0% 20 8 waits");
        assert_row(&limits, "waiting: eth9: gone");
    }

    #[test]
    fn long_notes_scroll_to_their_end() {
        let mut model = model([sample(1), sample(2)]);
        let mut shown = |notes: Vec<String>, row| {
            let running = model.report.as_mut().unwrap().gthctl.as_mut().unwrap();
            running.status.notes = notes;
            let mut choice = on(View::Limits);
            choice.rows[View::Limits as usize] = row;
            lines(&choice, &model, (80, 24)).join("\n")
        };
        let notes = |count| (0..count).map(|i| format!("{} end{i}", "word ".repeat(30))).collect();
        let top = shown(notes(30), 0);
        assert!(top.contains("interrupts  4 in place") && top.contains("end0\n"), "{top}");
        let bottom = shown(notes(30), usize::MAX);
        assert!(bottom.contains("end29\n") && !bottom.contains("end0\n"), "{bottom}");
        // A single note that has more lines than there is room for.
        let last = shown(vec![format!("{} end", "word ".repeat(400))], usize::MAX);
        assert!(last.contains(" end\n"), "{last}");
        // Notes that fit do not scroll.
        let few = shown(notes(1), usize::MAX);
        assert!(few.contains("waiting: eth9: gone\n") && few.contains("end0\n"), "{few}");
    }

    #[test]
    fn the_marked_task_is_in_sight_after_a_resize() {
        let model = model([crowded(1, 100), crowded(2, 100)]);
        let mut choice = on(View::Tasks);
        choice.tid = Some(1099);
        let mut terminal = Terminal::new(TestBackend::new(120, 60)).unwrap();
        for (width, height) in [(120, 60), (80, 24), (40, 10), (100, 30)] {
            terminal.backend_mut().resize(width, height);
            terminal.draw(|frame| draw(frame, &choice, &model, PLAIN)).unwrap();
            let lines = drawn(&terminal);
            assert_eq!(lines.len(), usize::from(height));
            assert!(lines[0].starts_with("gthctl top  PID 42"), "{lines:?}");
            assert!(lines.iter().any(|line| line.contains("1099")), "{}", lines.join("\n"));
        }
    }

    #[test]
    fn no_size_is_too_small() {
        let model = model([crowded(1, 9), crowded(2, 9)]);
        for (view, _) in View::ALL {
            for size in [(1, 1), (3, 2), (10, 5), (79, 3), (300, 4)] {
                assert_eq!(lines(&on(view), &model, size).len(), usize::from(size.1));
            }
        }
        lines(&on(View::Limits), &Model::default(), (80, 24));
    }

    #[test]
    fn a_gthctl_that_is_away_is_waited_for() {
        let model = model([sample(1), alone(2)]);
        let cpus = lines(&on(View::Cpus), &model, (80, 24));
        assert!(cpus[0].starts_with("gthctl top  waiting: no gthctl run is active;"), "{cpus:?}");
        assert_row(&cpus, "1 shared 75.0% 0.0% 25.0% 0.0% 0.0% #");
        let tasks = lines(&on(View::Tasks), &model, (80, 24));
        assert!(tasks[2..23].iter().all(String::is_empty), "{tasks:?}");
    }

    #[test]
    fn pages_and_prompts() {
        let model = model([sample(1), sample(2)]);
        let mut choice = on(View::Tasks);
        choice.page = Page::Help;
        assert_row(&lines(&choice, &model, (80, 24)), "q, Ctrl-C quit");
        choice.page = Page::Explain { tid: 11, text: None };
        assert_row(&lines(&choice, &model, (80, 24)), "asking about thread 11");
        choice.page = Page::Explain { tid: 11, text: Some("one\ntwo".into()) };
        choice.scroll = 1;
        assert_eq!(lines(&choice, &model, (80, 24))[2], "two");
        choice.page = Page::None;
        (choice.types_filter, choice.filter) = (true, "zz".into());
        let shown = lines(&choice, &model, (80, 24));
        assert_eq!(shown[23], "/zz_");
        assert_row(&shown, "no task falls under a rule, or none that the filter lets through");
        choice.frozen = Some(Box::new(model.clone()));
        assert!(lines(&choice, &model, (80, 24))[0].contains("FROZEN"));
    }

    #[test]
    fn the_heading_says_which_tasks() {
        let model = model([sample(1), sample(2)]);
        let mut choice = Choice { rule: Some("fast".into()), ..on(View::Tasks) };
        assert_row(&lines(&choice, &model, (80, 24)), "tasks 1 by run time, of rule fast");
        choice.filter = "up".into();
        let both = "tasks 1 by run time, of rule fast, with \"up\"";
        assert_row(&lines(&choice, &model, (80, 24)), both);
        choice.rule = Some(NASTY.into());
        let text = lines(&choice, &model, (200, 24)).join("");
        assert!(!text.contains(escape::is_unfit_in_lines), "{text:?}");
        assert!(text.contains("of rule a\\u{1b}[2J"), "{text}");
    }

    #[test]
    fn no_name_moves_the_cursor() {
        let mut model = model([sample(1), sample(2)]);
        let running = model.report.as_mut().unwrap().gthctl.as_mut().unwrap();
        running.tasks[0].task.comm = NASTY.into();
        running.status.kubernetes = Some(NASTY.into());
        running.status.notes = vec![NASTY.into()];
        let mut choice = Choice { filter: NASTY.into(), ..Choice::default() };
        for (view, _) in View::ALL {
            choice.view = view;
            let text = lines(&choice, &model, (200, 24)).join("");
            assert!(!text.contains(escape::is_unfit_in_lines), "{text:?}");
            assert!(view == View::Rules || text.contains("a\\u{1b}[2J"), "{view:?} {text}");
        }
    }

    #[test]
    fn colour_only_where_it_is_wanted() {
        let model = model([sample(1), sample(2)]);
        for colored in [false, true] {
            let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
            let look = Look { colored, unicode: true };
            terminal.draw(|frame| draw(frame, &Choice::default(), &model, look)).unwrap();
            let cells = &terminal.backend().buffer().content;
            assert_eq!(cells.iter().any(|cell| cell.fg != Color::Reset), colored);
            assert!(cells.iter().any(|cell| cell.symbol() == "█"));
        }
    }

    #[test]
    fn texts_give_way_then_the_last_columns() {
        let table = Table {
            head: vec!["TID", "name", "run"],
            rows: vec![vec!["1234567".into(), "n".repeat(12), "100.0%".into()]],
            numbers: vec![true, false, true],
        };
        let of = |room| widths(&table, room);
        assert_eq!([of(99), of(27), of(24)], [[7, 12, 6], [7, 12, 6], [7, 9, 6]]);
        assert_eq!((of(22), of(9)), (vec![7, 8], vec![7]));
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let rows = vec![vec!["中文字符号".into(), "1".into()]];
        let table = Table { head: vec!["name", "CPU"], rows, numbers: vec![false, true] };
        assert_eq!(widths(&table, 80), [10, 3]);
        let mut model = model([sample(1), sample(2)]);
        let running = model.report.as_mut().unwrap().gthctl.as_mut().unwrap();
        running.tasks[0].task.comm = "中文字符号".into();
        let lines = lines(&on(View::Tasks), &model, (80, 24));
        // The second cell of a wide character is blank.
        assert!(lines.iter().any(|line| line.contains("号  fast ")), "{}", lines.join("\n"));
    }

    #[test]
    fn heights_of_a_sparkline() {
        let mut series = Series::default();
        for (i, value) in [0.0, 0.5, 1.0, 2.0].into_iter().enumerate() {
            series.add(Series::PART * i as u32, value);
        }
        assert_eq!(sparkline(&series, 9, 0.0, PLAIN), "_,=#");
        assert_eq!(sparkline(&series, 2, 1.0, Look { unicode: true, ..PLAIN }), "██");
        assert_eq!(sparkline(&Series::default(), 9, 0.0, PLAIN), "");
    }
}
