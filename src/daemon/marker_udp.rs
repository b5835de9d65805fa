//! Keeps bpf/mark_udp.bpf.c attached while the live policy asks about UDP ports.

use std::collections::BTreeSet;

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, num_possible_cpus};

use super::marker::{PASSED, load_sharing};
use super::reports::GtpTraffic;
use crate::base::error::Result;
use crate::base::log;
use crate::gtp::{Direction, Plane};
use crate::kernel::btf::KernelBtf;
use crate::kernel::skeletons::MARK_UDP_OBJECT;
use crate::sched::Scheduler;
use crate::sched::passed::{self, port_key};

/// The programs for IPv6 and the functions they attach to. IPv6 may be a module or missing.
const IPV6: [(&str, &str); 2] =
    [("udpv6_received", "udpv6_recvmsg"), ("udpv6_sent", "udpv6_sendmsg")];

/// Does nothing while the policy asks about no port.
#[derive(Default)]
pub struct UdpMarker {
    ports: BTreeSet<u16>,
    attached: Option<Attached>,
    note: Option<String>,
}

struct Attached {
    /// Keep the programs attached.
    _links: Vec<Link>,
    /// What has passed each port in each direction.
    passed: MapHandle,
}

const DIRECTIONS: [Direction; 2] = [Direction::Received, Direction::Sent];

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
        let before = std::mem::replace(&mut self.ports, ports);
        if let Err(e) = self.see(scheduler, &before) {
            let note = format!("rules with a port in gtp match nothing: {e}");
            log::note(&note);
            *self = Self {
                ports: std::mem::take(&mut self.ports),
                note: Some(note),
                ..Self::default()
            };
            return;
        }
        self.note = None;
        let ports: Vec<String> = self.ports().collect();
        log::info(format_args!("packets are seen on {}", ports.join(", ")));
    }

    fn see(&mut self, scheduler: &Scheduler<'_>, before: &BTreeSet<u16>) -> libbpf_rs::Result<()> {
        let attached = match self.attached.take() {
            Some(attached) => attached,
            None => attach(scheduler)?,
        };
        attached.count_on(&self.ports, before)?;
        self.attached = Some(attached);
        Ok(())
    }

    /// What prevents seeing packets.
    pub fn note(&self) -> Option<&String> {
        self.note.as_ref()
    }

    /// The ports where packets are seen, such as `udp:2152`.
    pub fn ports(&self) -> impl Iterator<Item = String> {
        let seen = self.ports.iter().filter(|_| self.note.is_none());
        seen.map(|&port| Plane::Port(port).to_string())
    }

    /// What has passed these ports.
    pub fn passed(&self) -> Result<Vec<GtpTraffic>> {
        let Some(attached) = &self.attached else { return Ok(Vec::new()) };
        let each =
            self.ports.iter().flat_map(|port| DIRECTIONS.map(|direction| (*port, direction)));
        let read = |(port, direction)| {
            let passed = passed::read(&attached.passed, port_key(port, direction))?;
            Ok(GtpTraffic::new(Plane::Port(port), direction, passed))
        };
        each.map(read).collect()
    }
}

impl Attached {
    /// Counts what passes these ports, and stops counting others. Ports in `before` keep their
    /// counts.
    fn count_on(&self, ports: &BTreeSet<u16>, before: &BTreeSet<u16>) -> libbpf_rs::Result<()> {
        let keys = |ports: &BTreeSet<u16>| -> BTreeSet<u32> {
            let of = |port: &u16| DIRECTIONS.map(|direction| port_key(*port, direction));
            ports.iter().flat_map(of).collect()
        };
        let (keys, before) = (keys(ports), keys(before));
        for gone in before.difference(&keys) {
            // Its counter may never have been created.
            let _ = self.passed.delete(&gone.to_ne_bytes());
        }
        let zeroes = vec![vec![0; self.passed.value_size() as usize]; num_possible_cpus()?];
        for key in keys.iter().map(|key| key.to_ne_bytes()) {
            if self.passed.lookup_percpu(&key, MapFlags::ANY)?.is_none() {
                self.passed.update_percpu(&key, &zeroes, MapFlags::ANY)?;
            }
        }
        Ok(())
    }
}

fn attach(scheduler: &Scheduler<'_>) -> libbpf_rs::Result<Attached> {
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
        Ok(())
    })?;
    let map = object.maps().find(|map| map.name() == PASSED).expect("bpf/mark_udp.bpf.c has it");
    let passed = MapHandle::try_from(&map)?;
    let loaded = object.progs_mut().filter(|program| program.autoload());
    let links = loaded.map(|program| program.attach()).collect::<libbpf_rs::Result<_>>()?;
    Ok(Attached { _links: links, passed })
}
