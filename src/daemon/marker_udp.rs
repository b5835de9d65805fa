//! Keeps bpf/mark_udp.bpf.c attached while the live policy asks about UDP ports.

use std::collections::BTreeSet;

use libbpf_rs::Link;

use super::marker::load_sharing;
use crate::base::{escape, log};
use crate::kernel::btf::KernelBtf;
use crate::kernel::skeletons::MARK_UDP_OBJECT;
use crate::sched::Scheduler;

/// The functions of IPv6, which may be a module or missing.
const IPV6: [(&str, &str); 2] =
    [("udpv6_received", "udpv6_recvmsg"), ("udpv6_is_sent", "udpv6_sendmsg")];

/// Does nothing while the policy asks about no port.
#[derive(Default)]
pub struct UdpMarker {
    ports: BTreeSet<u16>,
    /// Of the attached programs.
    links: Vec<Link>,
    note: Option<String>,
}

impl UdpMarker {
    /// Attaches and detaches as the policy requires.
    pub fn follow(&mut self, scheduler: &Scheduler<'_>) {
        let ports = scheduler.ports();
        if ports == self.ports {
            return;
        }
        if ports.is_empty() {
            *self = Self::default();
            return;
        }
        self.ports = ports;
        if self.links.is_empty() {
            match attach(scheduler) {
                Ok(links) => self.links = links,
                Err(e) => {
                    let note = format!("rules with a port in gtp match nothing: {e}");
                    log::err(format_args!("gthctl: note: {}", escape::line(&note)));
                    self.note = Some(note);
                    return;
                }
            }
        }
        let ports: Vec<String> = self.ports().collect();
        log::err(format_args!("gthctl: packets are seen on {}", ports.join(", ")));
    }

    /// What prevents seeing packets.
    pub fn note(&self) -> Option<&String> {
        self.note.as_ref()
    }

    /// The ports where packets are seen, such as `udp:2152`.
    pub fn ports(&self) -> impl Iterator<Item = String> {
        let seen = self.ports.iter().filter(|_| self.note.is_none());
        seen.map(|port| format!("udp:{port}"))
    }
}

fn attach(scheduler: &Scheduler<'_>) -> libbpf_rs::Result<Vec<Link>> {
    let mut btf = KernelBtf::load();
    let mut has = |symbol: &str| {
        let mut of = |module| btf.as_mut().and_then(|btf| btf.function(symbol, module)).is_some();
        of(None) || of(Some("ipv6"))
    };
    let object = load_sharing(MARK_UDP_OBJECT, scheduler, |open| {
        for mut program in open.progs_mut() {
            let ipv6 = IPV6.iter().find(|(name, _)| program.name() == *name);
            program.set_autoload(ipv6.is_none_or(|(_, symbol)| has(symbol)));
        }
    })?;
    let loaded = object.progs_mut().filter(|program| program.autoload());
    loaded.map(|program| program.attach()).collect()
}
