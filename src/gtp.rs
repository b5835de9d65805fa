//! GTP data planes: those in the kernel, as tables of their functions, and those in user space, as
//! a UDP port.
//!
//! Names, arguments and meanings for gtp5g are from v0.10.2 (src/gtpu, src/pfcp), those for gtp
//! from Linux 7.2 (drivers/net/gtp.c). Other versions may lack some functions; attaching finds out
//! which (trace/attach.rs).

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use serde::Serialize;

use crate::base::root::Root;
use crate::kernel::kallsyms::{KALLSYMS, Symbols};
use crate::kernel::modules;

/// The UDP port of GTP-U (3GPP TS 29.281, 4.4.2.3).
pub const GTPU_PORT: u16 = 2152;

/// A kernel module with a GTP data plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Module {
    /// free5GC's gtp5g module
    Gtp5g,
    /// The kernel's own gtp driver
    Gtp,
}

impl Module {
    pub const ALL: [Module; 2] = [Module::Gtp5g, Module::Gtp];

    /// The module's name in the kernel.
    pub fn name(self) -> &'static str {
        match self {
            Module::Gtp5g => "gtp5g",
            Module::Gtp => "gtp",
        }
    }

    /// What is known about the module's functions.
    pub fn functions(self) -> impl Iterator<Item = Function> {
        let rows = match self {
            Module::Gtp5g => GTP5G,
            Module::Gtp => GTP,
        };
        rows.iter().map(|&(symbol, direction, stage, packet, does)| Function {
            symbol: symbol.to_owned(),
            direction,
            stage,
            packet,
            does,
        })
    }

    /// Whether the module is in the kernel, loaded or built in. A built-in module without parameters, such as
    /// gtp, has no directory in /sys/module.
    pub fn is_there(self, root: &Root) -> bool {
        modules::life(&root.path(modules::MODULES), self.name()).is_some() || self.is_built_in(root)
    }

    pub fn is_built_in(self, root: &Root) -> bool {
        let entries = self.entries();
        let names = entries.iter().map(String::as_str);
        let symbols = Symbols::read(&root.path(KALLSYMS), names).unwrap_or_default();
        let found = entries.iter().filter_map(|entry| symbols.of(entry, Some(self.name())));
        found.into_iter().any(|symbol| symbol.module.is_none())
    }

    /// The functions by which packets enter.
    pub fn entries(self) -> Vec<String> {
        let entries = self.functions().filter(|function| function.stage == Stage::Entry);
        entries.map(|function| function.symbol).collect()
    }
}

/// A GTP data plane. Its text is the module's name, or `udp:` and the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Plane {
    Module(Module),
    /// The programs that have this local UDP port open, 1 to 65535.
    Port(u16),
}

impl Plane {
    pub fn module(self) -> Option<Module> {
        match self {
            Self::Module(module) => Some(module),
            Self::Port(_) => None,
        }
    }

    pub fn port(self) -> Option<u16> {
        match self {
            Self::Module(_) => None,
            Self::Port(port) => Some(port),
        }
    }
}

impl fmt::Display for Plane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Module(module) => f.write_str(module.name()),
            Self::Port(port) => write!(f, "udp:{port}"),
        }
    }
}

impl FromStr for Plane {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let module = Module::ALL.into_iter().find(|module| module.name() == text);
        let port = || text.strip_prefix("udp:")?.parse().ok().filter(|&port| port != 0);
        module.map(Self::Module).or_else(|| port().map(Self::Port)).ok_or(())
    }
}

/// A packet's direction, seen from the mobile network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the radio network to the data network.
    Uplink,
    /// From the data network to the radio network.
    Downlink,
    /// Either, or unknown.
    Both,
    /// From a socket to user space; `Sent` is the reverse. Only the program knows which of them is
    /// uplink.
    Received,
    Sent,
}

impl Direction {
    /// Its label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Uplink => "uplink",
            Self::Downlink => "downlink",
            Self::Both => "both",
            Self::Received => "received",
            Self::Sent => "sent",
        }
    }
}

/// What a function does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The packet enters the data plane: each packet of a direction passes one of these.
    Entry,
    /// Part of the path, for every packet or some.
    Path,
    /// Look-up of the packet's rule (PDR: 3GPP TS 29.244, 5.2.1).
    Lookup,
    /// Quality of service (QER: 3GPP TS 29.244, 5.4).
    Qos,
    Route,
    /// The outer header (GTP-U: 3GPP TS 29.281, 5).
    Header,
    Transmit,
}

/// A function of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    pub symbol: String,
    pub direction: Direction,
    pub stage: Stage,
    /// Which argument is the packet (`struct sk_buff *`), from 0.
    pub packet: Option<u8>,
    pub does: &'static str,
}

type Row = (&'static str, Direction, Stage, Option<u8>, &'static str);

const GTP5G: &[Row] = {
    use Direction::{Both, Downlink, Uplink};
    use Stage::{Entry, Header, Lookup, Path, Qos, Route, Transmit};
    &[
        ("gtp5g_encap_recv", Uplink, Entry, Some(1), "a packet arrives at the GTP-U port"),
        ("gtp1u_udp_encap_recv", Uplink, Path, Some(1), "reads its GTP-U header"),
        ("pdr_find_by_gtp1u", Uplink, Lookup, Some(1), "finds its rule by the tunnel"),
        ("gtp5g_rx", Uplink, Path, Some(1), "does what the rule says"),
        ("gtp5g_fwd_skb_encap", Uplink, Path, Some(0), "forwards it"),
        ("gtp5g_buf_skb_encap", Uplink, Path, Some(0), "buffers it"),
        ("gtp5g_drop_skb_encap", Uplink, Path, Some(0), "drops it"),
        ("ip_xmit", Uplink, Transmit, Some(0), "sends it through another tunnel"),
        ("gtp5g_dev_xmit", Downlink, Entry, Some(0), "a packet is sent to the gtp5g device"),
        ("gtp5g_handle_skb_ipv4", Downlink, Path, Some(0), "does what its rule says"),
        ("pdr_find_by_ipv4", Downlink, Lookup, Some(1), "finds its rule by the address"),
        ("gtp5g_fwd_skb_ipv4", Downlink, Path, Some(0), "forwards it"),
        ("gtp5g_buf_skb_ipv4", Downlink, Path, Some(0), "buffers it"),
        ("gtp5g_drop_skb_ipv4", Downlink, Path, Some(0), "drops it"),
        ("gtp5g_push_header", Both, Header, Some(0), "puts the GTP-U header in front"),
        ("gtp5g_xmit_skb_ipv4", Downlink, Transmit, Some(0), "sends it to the gNB"),
        ("policePacket", Both, Qos, None, "polices its rate"),
        ("ip4_find_route", Both, Route, Some(0), "finds its route"),
    ]
};

const GTP: &[Row] = {
    use Direction::{Downlink, Uplink};
    use Stage::{Entry, Header, Path};
    &[
        ("gtp_encap_recv", Uplink, Entry, Some(1), "a packet arrives at the GTP-U port"),
        ("gtp1u_udp_encap_recv", Uplink, Path, Some(1), "reads its GTPv1 header"),
        ("gtp0_udp_encap_recv", Uplink, Path, Some(1), "reads its GTPv0 header"),
        ("gtp_rx", Uplink, Path, Some(1), "takes it out of its tunnel"),
        ("gtp_dev_xmit", Downlink, Entry, Some(0), "a packet is sent to the gtp device"),
        ("gtp_build_skb_ip4", Downlink, Path, Some(0), "finds its tunnel by the IPv4 address"),
        ("gtp_build_skb_ip6", Downlink, Path, Some(0), "finds its tunnel by the IPv6 address"),
        ("gtp_push_header", Downlink, Header, Some(0), "puts the GTP header in front"),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plane_by_its_text() {
        for text in ["gtp5g", "gtp", "udp:2152", "udp:1", "udp:65535"] {
            assert_eq!(text.parse::<Plane>().unwrap().to_string(), text);
        }
        for text in ["udp:0", "udp:65536", "udp:x", "udp:", "udp", "2152", "tcp:80", ""] {
            assert!(text.parse::<Plane>().is_err(), "{text}");
        }
    }
}
