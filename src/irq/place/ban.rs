//! Bans: telling irqbalance to leave alone the IRQs that are placed, and taking it back.
//!
//! It is told by its socket, which counts until it ends. If it has none, or the list is
//! longer than it reads from there, the bans go into its environment file.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::plan::{OnIrqbalance, Plan};
use super::saved::{Bans, By, Saved};
use crate::base::atomic_file::Replacement;
use crate::base::error::{Error, Result};
use crate::irq::host::Host;
use crate::irq::irqbalance::Irqbalance;
use crate::irq::irqbalance::environment::Environment;

/// What irqbalance is to be told.
#[derive(Default)]
pub struct Ban {
    daemon: Option<Irqbalance>,
    before: BTreeSet<u32>,
    irqs: BTreeSet<u32>,
    /// Its environment file with the text before and after.
    file: Option<(PathBuf, String, String)>,
}

impl Ban {
    /// Whether irqbalance is in the way, and what to tell it; that is noted in `new`, which
    /// has what is placed with `plan`. Waits for an irqbalance that is busy.
    pub fn of(
        host: &Host,
        plan: &Plan,
        by: By,
        new: &mut Saved,
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        let mut ban = Self::default();
        let irqs = plan.irqs();
        let running = match irqs.iter().all(|&irq| plan.on_irqbalance(irq) == OnIrqbalance::Ignore)
        {
            true => Irqbalance::running(host)?,
            false => Irqbalance::awaited(host)?,
        };
        let pids: Vec<String> = running.iter().map(|daemon| daemon.pid.to_string()).collect();
        for daemon in running {
            let pid = daemon.pid;
            let of = |how: OnIrqbalance| -> BTreeSet<u32> {
                let irqs = irqs.iter().filter(|&&irq| plan.on_irqbalance(irq) == how);
                irqs.filter(|&&irq| !daemon.spares(&[irq].into())).copied().collect()
            };
            let [refused, ignored, banned] =
                [OnIrqbalance::Refuse, OnIrqbalance::Ignore, OnIrqbalance::Ban].map(of);
            if !ignored.is_empty() {
                notes.push(format!(
                    "irqbalance runs (PID {pid}) and may move {} at any time; `gthctl irq drift` \
                     tells",
                    list(&ignored)
                ));
            }
            if refused.is_empty() && banned.is_empty() {
                continue;
            }
            if let Some(why) = daemon.busy() {
                let what = format!("irqbalance (PID {pid}) cannot be asked: {why}");
                return Err(Error::failure(format!("{what}; nothing changed"))
                    .help("try again: it does not answer while it looks at all IRQs anew"));
            }
            if !refused.is_empty() {
                let what = format!(
                    "irqbalance runs (PID {pid}) and would move {} again within seconds; nothing \
                     changed",
                    list(&refused)
                );
                let help = match by {
                    By::Policy => "`irqbalance: ban` beside `nic` tells it to leave them alone",
                    By::Hand => {
                        "--ban tells it to leave them alone, --force places them nevertheless"
                    }
                };
                return Err(Error::failure(what).help(help));
            }
            if pids.len() > 1 {
                let what = format!(
                    "more than one irqbalance runs (PID {}), and only one can be told to leave \
                     IRQs alone; nothing changed",
                    pids.join(", ")
                );
                return Err(Error::failure(what).help("stop the others"));
            }
            ban.add(host, daemon, &banned, new, notes)?;
        }
        Ok(ban)
    }

    /// Has `daemon` leave alone `added` too.
    fn add(
        &mut self,
        host: &Host,
        daemon: Irqbalance,
        added: &BTreeSet<u32>,
        new: &mut Saved,
        notes: &mut Vec<String>,
    ) -> Result<()> {
        let (pid, needed) = (daemon.pid, new.irqs());
        if new.bans.pid != Some(pid) {
            // Another process was told nothing.
            new.bans = Bans { pid: None, irqs: BTreeSet::new() };
        }
        let file = Environment::read(host)?;
        // What else it has may be of an earlier boot.
        let ours = file.as_ref().map(|file| &file.ours & &needed);
        let mut in_file = ours.unwrap_or_default();
        let all = &daemon.banned | added;
        let why = match &daemon.silent {
            None if Irqbalance::reads(&all) => None,
            None => Some(format!("{} IRQs are more than it reads from its socket", all.len())),
            Some(why) => Some(why.clone()),
        };
        match (why, &file) {
            (None, _) => {
                new.bans.pid = Some(pid);
                new.bans.irqs.extend(added);
                notes.push(format!(
                    "irqbalance (PID {pid}) leaves {} alone, until it is restarted",
                    list(added)
                ));
                (self.before, self.irqs) = (daemon.banned.clone(), all);
                self.daemon = Some(daemon);
            }
            (Some(why), None) => {
                let what = format!(
                    "irqbalance (PID {pid}) cannot be told to leave the IRQs alone ({why}), and \
                     its environment file is not in /etc; nothing changed"
                );
                return Err(
                    Error::failure(what).help("start it with --banirq=N for each, or use --force")
                );
            }
            (Some(why), Some(file)) => {
                // When it is started again, it has forgotten what its socket was told.
                in_file.extend(&(added | &new.bans.irqs) - &file.others()?);
                notes.push(format!(
                    "irqbalance (PID {pid}) cannot be told ({why}); {} bans {} when it is started \
                     again: systemctl restart irqbalance; `gthctl irq restore` takes that back, \
                     which is to be done before the next boot: IRQs have other numbers then",
                    file.path.display(),
                    list(added)
                ));
            }
        }
        if let Some(file) = file.filter(|file| file.ours != in_file) {
            let text = file.with(&in_file)?;
            self.file = Some((file.path, file.text, text));
        }
        Ok(())
    }

    /// Tells it.
    pub fn make(&mut self, host: &Host) -> Result<()> {
        if let Some((path, _, text)) = &self.file {
            Replacement::prepare(path, text)?.commit()?;
        }
        match &mut self.daemon {
            Some(daemon) => daemon.ban(host, &self.irqs),
            None => Ok(()),
        }
    }

    /// Takes back what [`Ban::make`] has told it, which may have failed.
    pub fn undo(&mut self, host: &Host) -> Result<()> {
        if let Some((path, before, text)) = &self.file {
            if fs::read_to_string(path).is_ok_and(|now| now == *text) {
                Replacement::prepare(path, before)?.commit()?;
            }
        }
        match &mut self.daemon {
            Some(daemon) if daemon.told => daemon.ban(host, &self.before),
            _ => Ok(()),
        }
    }
}

/// Takes back the bans of IRQs of which nothing is in `saved` any more. What was taken back
/// is no longer in there either; returns why the others were not. Waits for an irqbalance
/// that is busy.
pub fn free(host: &Host, saved: &mut Saved, notes: &mut Vec<String>) -> Vec<Error> {
    let needed = saved.irqs();
    let in_file = free_in_file(host, &needed, notes);
    let told = free_told(host, &mut saved.bans, &needed);
    in_file.err().into_iter().chain(told.err()).collect()
}

fn free_in_file(host: &Host, needed: &BTreeSet<u32>, notes: &mut Vec<String>) -> Result<()> {
    let Some(file) = Environment::read(host)? else { return Ok(()) };
    let freed = &file.ours - needed;
    if freed.is_empty() {
        return Ok(());
    }
    let text = file.with(&(&file.ours & needed))?;
    Replacement::prepare(&file.path, &text)?.commit()?;
    notes.push(format!(
        "{} bans {} no longer; an irqbalance that was started with it leaves them alone until \
         it is restarted",
        file.path.display(),
        list(&freed)
    ));
    Ok(())
}

fn free_told(host: &Host, bans: &mut Bans, needed: &BTreeSet<u32>) -> Result<()> {
    let freed = &bans.irqs - needed;
    if freed.is_empty() {
        return Ok(());
    }
    // If it has ended, nothing is left of them.
    if let Some(mut daemon) = bans.pid.and_then(|pid| Irqbalance::with_pid(host, pid)) {
        let left = &daemon.banned - &freed;
        // Somebody else may have told it.
        if daemon.silent.is_some() || left != daemon.banned {
            let failed = |e: Error| {
                let what = format!("{}; it may still leave {} alone", e.what, list(&freed));
                Error::failure(what).help("`gthctl irq restore` tells it again")
            };
            daemon.ban(host, &left).map_err(failed)?;
        }
    }
    bans.irqs = &bans.irqs & needed;
    if bans.irqs.is_empty() {
        bans.pid = None;
    }
    Ok(())
}

fn list(irqs: &BTreeSet<u32>) -> String {
    let numbers: Vec<String> = irqs.iter().map(u32::to_string).collect();
    format!("IRQ {}", numbers.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::irq::place::pin::{Placed, apply};
    use crate::irq::place::plan::Placement;
    use crate::irq::place::restore::restore;
    use crate::irq::tree::{Daemon, Machine, Tree, affinity};

    const FILE: &str = "etc/default/irqbalance";

    /// Places these IRQs of eth0, or all of them, on CPU 2.
    fn place(tree: &Tree, irqs: &[u32], irqbalance: OnIrqbalance) -> Result<Placed> {
        let (cpus, irqs) = ("2".parse().unwrap(), irqs.iter().copied().collect());
        let placement =
            Placement { nic: "eth0".into(), cpus, irqs, irqbalance, ..Placement::default() };
        apply(&tree.host(), &Plan::of(&tree.host(), &[placement]).unwrap(), By::Hand)
    }

    fn ban(tree: &Tree, irqs: &[u32]) -> Result<Placed> {
        place(tree, irqs, OnIrqbalance::Ban)
    }

    fn told(tree: &Tree) -> Option<Vec<u32>> {
        let saved = Saved::load(&tree.host()).unwrap()?;
        Some(saved.bans.irqs.into_iter().collect())
    }

    fn file(tree: &Tree) -> String {
        fs::read_to_string(tree.path(FILE)).unwrap()
    }

    /// A machine with an irqbalance that has no socket, and its environment file.
    fn without_socket(text: &str) -> Tree {
        let tree = Tree::machine(&Machine::VIRTIO);
        tree.irqbalance(42);
        tree.write("proc/42/cmdline", "irqbalance\0--foreground\0");
        tree.write(FILE, text);
        tree
    }

    /// What is in the file after `text`, which sets no arguments.
    fn lines(irqs: &[u32]) -> String {
        let numbers: Vec<String> = irqs.iter().map(u32::to_string).collect();
        let bans: Vec<String> = irqs.iter().map(|irq| format!("--banirq={irq}")).collect();
        format!(
            "# gthctl: the next line bans IRQ {}; `gthctl irq restore` removes both\n\
             IRQBALANCE_ARGS=\"{}\"\n",
            numbers.join(", "),
            bans.join(" ")
        )
    }

    #[test]
    fn irqbalance_is_in_the_way() {
        let tree = without_socket("");
        let host = tree.host();
        fs::remove_file(tree.path(FILE)).unwrap();
        let e = place(&tree, &[], OnIrqbalance::Refuse).unwrap_err();
        assert!(e.what.starts_with("irqbalance runs (PID 42) and would move IRQ 37, 38"), "{e}");
        let e = ban(&tree, &[]).unwrap_err();
        assert!(e.what.contains("its environment file is not in /etc; nothing changed"), "{e}");
        assert_eq!((affinity(&tree, 37), Saved::load(&host).unwrap()), ("0-3".into(), None));
        let placed = place(&tree, &[], OnIrqbalance::Ignore).unwrap();
        assert!(placed.notes[0].contains("at any time"), "{placed:?}");
        tree.write(FILE, "#IRQBALANCE_ARGS=\n");
        let placed = ban(&tree, &[]).unwrap();
        assert!(placed.notes[0].contains("systemctl restart irqbalance; "), "{placed:?}");
        assert_eq!(file(&tree), format!("#IRQBALANCE_ARGS=\n{}", lines(&[37, 38, 39, 40, 41])));
        // Once it runs with that, it is not in the way.
        let bans: String = (37..=41).map(|irq| format!("--banirq={irq}\0")).collect();
        tree.write("proc/42/cmdline", &format!("irqbalance\0{bans}"));
        place(&tree, &[], OnIrqbalance::Refuse).unwrap();
        let done = restore(&host, None).unwrap();
        assert_eq!((file(&tree).as_str(), done.failed()), ("#IRQBALANCE_ARGS=\n", 0));
        assert!(done.notes[0].contains("bans IRQ 37, 38, 39, 40, 41 no longer"), "{done:?}");
    }

    #[test]
    fn a_busy_one_is_waited_for() {
        let tree = Tree::machine(&Machine::VIRTIO);
        tree.write(FILE, "");
        let daemon = Daemon::new(&tree, &[0, 0, 0, 500, 0, 0, 500, 0, 0]);
        ban(&tree, &[38]).unwrap();
        ban(&tree, &[39]).unwrap();
        assert_eq!((told(&tree), file(&tree)), (Some(vec![38, 39]), String::new()));
        assert_eq!(restore(&tree.host(), None).unwrap().failed(), 0);
        let settings = daemon.asked().into_iter().filter(|request| request != "setup");
        let lists = ["7 38", "7 38 39", "7"];
        assert!(settings.eq(lists.map(|list| format!("settings ban irqs {list}\0"))));
        assert_eq!(told(&tree), None);
    }

    #[test]
    fn one_that_never_answers_is_not_told() {
        let tree = Tree::machine(&Machine::VIRTIO);
        tree.write(FILE, "");
        let daemon = Daemon::new(&tree, &[]);
        let e = ban(&tree, &[]).unwrap_err();
        assert!(e.what.ends_with("no answer in 1.5 s; nothing changed"), "{e}");
        assert_eq!(
            (affinity(&tree, 37), told(&tree), file(&tree)),
            ("0-3".into(), None, "".into())
        );
        assert_eq!(daemon.asked().len(), 0);
    }

    #[test]
    fn what_it_is_told_later_is_taken_back_too() {
        let tree = Tree::machine(&Machine::VIRTIO);
        // It hears both lists only when nobody waits for that any more.
        let daemon = Daemon::new(&tree, &[0, 2500, 0]);
        let e = ban(&tree, &[38]).unwrap_err();
        assert!(e.what.contains("cannot be told: its socket: no answer in 1.5 s; not all"), "{e}");
        assert_eq!((affinity(&tree, 38), told(&tree)), ("0-3".into(), Some(vec![38])));
        let asked = daemon.asked();
        assert_eq!(asked, ["setup", "settings ban irqs 7 38\0", "settings ban irqs 7\0"]);
    }

    #[test]
    fn what_cannot_be_freed_stays_saved() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let daemon = Daemon::new(&tree, &[0; 3]);
        ban(&tree, &[38]).unwrap();
        let done = restore(&tree.host(), None).unwrap();
        assert_eq!((done.failed(), affinity(&tree, 38)), (1, "0-3".into()));
        assert!(done.notes[0].contains("it may still leave IRQ 38 alone; "), "{done:?}");
        assert_eq!(told(&tree), Some(vec![38]));
        let asked = daemon.asked();
        assert_eq!(asked.len(), 3);
        // It ends, and with it what it was told.
        fs::remove_dir_all(tree.path(&format!("proc/{}", std::process::id()))).unwrap();
        assert_eq!((restore(&tree.host(), None).unwrap().failed(), told(&tree)), (0, None));
    }

    #[test]
    fn bans_of_what_is_no_longer_saved_are_freed() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let daemon = Daemon::new(&tree, &[0; 7]);
        ban(&tree, &[38, 40]).unwrap();
        let text = fs::read_to_string(tree.path("proc/interrupts")).unwrap();
        tree.write("proc/interrupts", &text.replace("   3-edge", "   9-edge"));
        place(&tree, &[38], OnIrqbalance::Refuse).unwrap();
        let saved = Saved::load(&tree.host()).unwrap().unwrap();
        assert_eq!((saved.entries.len(), told(&tree)), (1, Some(vec![38, 40])));
        assert_eq!(restore(&tree.host(), None).unwrap().failed(), 0);
        assert_eq!(daemon.asked()[5], "settings ban irqs 7\0");
    }

    #[test]
    fn a_list_that_is_too_long_goes_into_the_file() {
        let tree = Tree::machine(&Machine::VIRTIO);
        tree.write(FILE, "");
        let path = tree.path(&format!("run/irqbalance/irqbalance{}.sock", std::process::id()));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
        let daemon = Daemon::at(&tree, listener, (1000..1100).collect(), &[0]);
        let placed = ban(&tree, &[38]).unwrap();
        assert!(placed.notes[0].contains("(101 IRQs are more than it reads"), "{placed:?}");
        assert_eq!((daemon.asked().len(), file(&tree)), (1, lines(&[38])));
    }

    #[test]
    fn two_of_them() {
        let tree = without_socket("");
        tree.irqbalance(43);
        let e = ban(&tree, &[]).unwrap_err();
        assert!(e.what.starts_with("more than one irqbalance runs (PID 42, 43)"), "{e}");
        assert_eq!((told(&tree), file(&tree).as_str()), (None, ""));
    }

    #[test]
    fn the_file_is_put_right_in_the_next_boot() {
        let tree = without_socket("A=1\n");
        let boot = |n: u32| tree.write("proc/sys/kernel/random/boot_id", &format!("{n}\n"));
        ban(&tree, &[38]).unwrap();
        ban(&tree, &[39]).unwrap();
        assert_eq!(file(&tree), format!("A=1\n{}", lines(&[38, 39])));
        boot(2);
        ban(&tree, &[40]).unwrap();
        assert_eq!(file(&tree), format!("A=1\n{}", lines(&[40])));
        boot(3);
        assert_eq!(restore(&tree.host(), None).unwrap().failed(), 0);
        assert_eq!(file(&tree), "A=1\n");
    }

    #[test]
    fn what_the_file_bans_already_stays() {
        let text = "IRQBALANCE_ARGS=--banirq=38\n";
        let tree = without_socket(text);
        ban(&tree, &[38]).unwrap();
        assert_eq!(file(&tree), text);
        ban(&tree, &[38, 39]).unwrap();
        let ours = Environment::read(&tree.host()).unwrap().unwrap().ours;
        assert_eq!(ours, [39].into());
        restore(&tree.host(), None).unwrap();
        assert_eq!(file(&tree), text);
    }

    #[test]
    fn a_file_that_is_not_plain_is_refused() {
        let text = "IRQBALANCE_ARGS=\"-l 'a'\"\n";
        let tree = without_socket(text);
        let e = ban(&tree, &[]).unwrap_err().to_string();
        assert!(e.contains(":1:1: not just words"), "{e}");
        assert_eq!((file(&tree).as_str(), told(&tree)), (text, None));
        assert_eq!(affinity(&tree, 37), "0-3");
        // Of one that somebody has changed, the rest is put back.
        tree.write(FILE, "");
        ban(&tree, &[38]).unwrap();
        let changed = lines(&[38]).replace("--banirq", "-t 5 --banirq");
        tree.write(FILE, &changed);
        let done = restore(&tree.host(), None).unwrap();
        assert_eq!((done.failed(), affinity(&tree, 38)), (1, "0-3".into()));
        assert!(done.notes[0].ends_with("remove these two by hand"), "{done:?}");
        assert_eq!(file(&tree), changed);
    }

    #[test]
    fn a_change_that_fails_takes_the_bans_back() {
        let text = "A=1\n";
        let tree = without_socket(text);
        tree.write("proc/irq/39/smp_affinity_list", "0-3\n");
        let placement = Placement {
            nic: "eth0".into(),
            cpus: "2".parse().unwrap(),
            irqbalance: OnIrqbalance::Ban,
            ..Placement::default()
        };
        let plan = Plan::of(&tree.host(), &[placement]).unwrap();
        let file_39 = tree.path("proc/irq/39/smp_affinity_list");
        fs::remove_file(&file_39).unwrap();
        // A file that nobody may write, and which reads as a list of CPUs.
        std::os::unix::fs::symlink("/proc/sys/kernel/cap_last_cap", file_39).unwrap();
        apply(&tree.host(), &plan, By::Hand).unwrap_err();
        assert_eq!((file(&tree).as_str(), told(&tree)), (text, None));
    }
}
