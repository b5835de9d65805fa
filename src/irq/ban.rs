//! Bans: telling irqbalance to leave alone the IRQs that are placed, and taking it back.

use std::collections::BTreeSet;
use std::fs;

use super::irqbalance::{self, Irqbalance};
use super::plan::{OnIrqbalance, Plan};
use super::roots::Roots;
use super::saved::{Bans, By};
use crate::error::{Error, Result};
use crate::replace::Replacement;

/// What irqbalance is to be told.
#[derive(Default)]
pub struct Ban {
    daemon: Option<Irqbalance>,
    before: BTreeSet<u32>,
    irqs: BTreeSet<u32>,
    /// Its environment file with the text before and after.
    file: Option<(std::path::PathBuf, String, String)>,
}

impl Ban {
    /// Whether irqbalance is in the way, and what to tell it; that is noted in `bans`.
    pub fn of(
        roots: &Roots,
        plan: &Plan,
        by: By,
        bans: &mut Bans,
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        let mut ban = Self::default();
        let of = |how: OnIrqbalance, daemon: &Irqbalance| -> BTreeSet<u32> {
            let irqs = plan.irqs().into_iter().filter(|irq| plan.on_irqbalance(*irq) == how);
            irqs.filter(|&irq| !daemon.spares(&[irq].into())).collect()
        };
        for daemon in Irqbalance::running(roots)? {
            let pid = daemon.pid;
            let refused = of(OnIrqbalance::Refuse, &daemon);
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
            let ignored = of(OnIrqbalance::Ignore, &daemon);
            if !ignored.is_empty() {
                notes.push(format!(
                    "irqbalance runs (PID {pid}) and may move {} at any time; `gthctl irq drift` tells",
                    list(&ignored)
                ));
            }
            let irqs = of(OnIrqbalance::Ban, &daemon);
            if irqs.is_empty() {
                continue;
            }
            let added: BTreeSet<u32> = irqs.difference(&daemon.banned).copied().collect();
            match &daemon.silent {
                None => {
                    if bans.pid != Some(pid) {
                        bans.pid = Some(pid);
                        bans.irqs.clear();
                    }
                    bans.irqs.extend(&added);
                    ban.before = daemon.banned.clone();
                    ban.irqs = daemon.banned.union(&irqs).copied().collect();
                    notes.push(format!(
                        "irqbalance (PID {pid}) leaves {} alone, until it is restarted",
                        list(&added)
                    ));
                    ban.daemon = Some(daemon);
                }
                Some(why) => {
                    let Some(path) = irqbalance::environment(roots) else {
                        let what = format!(
                            "irqbalance (PID {pid}) cannot be told to leave the IRQs alone ({why}), \
                             and its environment file is not in /etc; nothing changed"
                        );
                        return Err(Error::failure(what)
                            .help("start it with --banirq=N for each, or use --force"));
                    };
                    let text = fs::read_to_string(&path)
                        .map_err(|e| Error::failure(format!("{}: {e}", path.display())))?;
                    let added: BTreeSet<u32> = added.difference(&bans.file_irqs).copied().collect();
                    bans.file = Some(path.clone());
                    bans.file_irqs.extend(&added);
                    notes.push(format!(
                        "irqbalance (PID {pid}) does not answer ({why}); {} bans {} when it is \
                         started again: systemctl restart irqbalance",
                        path.display(),
                        list(&added)
                    ));
                    let banned = irqbalance::with_bans(&text, &added);
                    ban.file = (!added.is_empty()).then_some((path, text, banned));
                }
            }
        }
        Ok(ban)
    }

    pub fn make(&mut self, roots: &Roots) -> Result<()> {
        if let Some((path, _, text)) = &self.file {
            Replacement::prepare(path, text)?.commit()?;
        }
        match &mut self.daemon {
            Some(daemon) => daemon.ban(roots, &self.irqs),
            None => Ok(()),
        }
    }

    pub fn undo(&mut self, roots: &Roots) -> Result<()> {
        if let Some((path, text, _)) = &self.file {
            Replacement::prepare(path, text)?.commit()?;
        }
        match &mut self.daemon {
            // It may be what has failed.
            Some(daemon) if daemon.banned != self.before => daemon.ban(roots, &self.before),
            _ => Ok(()),
        }
    }
}

/// Tells irqbalance that it may move these IRQs again, of those that gthctl banned.
pub fn free(roots: &Roots, bans: &mut Bans, irqs: &BTreeSet<u32>) -> Result<()> {
    let freed: BTreeSet<u32> = bans.irqs.intersection(irqs).copied().collect();
    bans.irqs.retain(|irq| !freed.contains(irq));
    let pid = bans.pid;
    if bans.irqs.is_empty() {
        bans.pid = None;
    }
    let in_file: BTreeSet<u32> = bans.file_irqs.intersection(irqs).copied().collect();
    bans.file_irqs.retain(|irq| !in_file.contains(irq));
    let file = bans.file.clone().filter(|_| !in_file.is_empty());
    if bans.file_irqs.is_empty() {
        bans.file = None;
    }
    if let Some(path) = file {
        let text = fs::read_to_string(&path)
            .map_err(|e| Error::failure(format!("{}: {e}", path.display())))?;
        let text = irqbalance::without_bans(&text, &in_file);
        Replacement::prepare(&path, &text)?.commit()?;
    }
    // Another process was told nothing.
    let daemon = pid.filter(|_| !freed.is_empty()).and_then(|pid| Irqbalance::with_pid(roots, pid));
    if let Some(mut daemon) = daemon {
        let left = daemon.banned.difference(&freed).copied().collect();
        daemon.ban(roots, &left)?;
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
    use crate::irq::pin::apply;
    use crate::irq::plan::Placement;
    use crate::irq::saved::Saved;
    use crate::irq::tree::{Machine, Tree};

    fn affinity(tree: &Tree, irq: u32) -> String {
        let path = tree.path(&format!("proc/irq/{irq}/smp_affinity_list"));
        fs::read_to_string(path).unwrap().trim_end().into()
    }

    #[test]
    fn irqbalance_is_in_the_way() {
        let tree = Tree::machine(&Machine::VIRTIO);
        let roots = tree.roots();
        tree.write("proc/42/comm", "irqbalance\n");
        tree.write("proc/42/cmdline", "irqbalance\0--foreground\0");
        let apply = |how| {
            let cpus = "2".parse().unwrap();
            let placement =
                Placement { nic: "eth0".into(), cpus, irqbalance: how, ..Placement::default() };
            apply(&roots, &Plan::of(&roots, &[placement]).unwrap(), By::Hand)
        };
        let e = apply(OnIrqbalance::Refuse).unwrap_err();
        assert!(e.what.starts_with("irqbalance runs (PID 42) and would move IRQ 37, 38"), "{e}");
        let e = apply(OnIrqbalance::Ban).unwrap_err();
        assert!(e.what.contains("its environment file is not in /etc; nothing changed"), "{e}");
        assert_eq!((affinity(&tree, 37), Saved::load(&roots).unwrap()), ("0-3".into(), None));
        let placed = apply(OnIrqbalance::Ignore).unwrap();
        assert!(placed.notes[0].contains("at any time"), "{placed:?}");
        tree.write("etc/default/irqbalance", "#IRQBALANCE_ARGS=\n");
        let placed = apply(OnIrqbalance::Ban).unwrap();
        assert!(placed.notes[0].contains("systemctl restart irqbalance"), "{placed:?}");
        let text = fs::read_to_string(tree.path("etc/default/irqbalance")).unwrap();
        let bans = "--banirq=37 --banirq=38 --banirq=39 --banirq=40 --banirq=41";
        assert_eq!(text, format!("#IRQBALANCE_ARGS=\nIRQBALANCE_ARGS=\"{bans}\"\n"));
        // Once it runs with that, it is not in the way.
        let line = format!("irqbalance\0{}\0", bans.replace(' ', "\0"));
        tree.write("proc/42/cmdline", &line);
        apply(OnIrqbalance::Refuse).unwrap();
    }
}
