//! What a data plane's functions say about the packets that they refuse.
//!
//! For gtp5g from v0.10.2 (src/gtpu, src/pfcp/pdr.c), for gtp from Linux 7.2 (drivers/net/gtp.c).

use serde::Serialize;

use crate::gtp::{Direction, Function, Stage};
use crate::kernel::skeletons::tracer::types::gth_packet_refusal as Refusal;

/// Why a packet ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    // The data plane's reasons.
    UnknownTeid,
    NotAGPdu,
    BadHeader,
    UeAddress,
    NoTunnel,
    NoPdr,
    /// These cannot be told apart: a closed gate, a FAR that drops or has no action, no FAR.
    PdrActions,
    FarDrops,
    PolicerRed,
    Buffered,
    NoRoute,
    /// These cannot be told apart: a packet above the MTU, a route back into the tunnel.
    TooBigOrLoop,
    /// These cannot be told apart: not IP, no memory.
    NotIp,
    // The kernel's reasons.
    Checksum,
    Firewall,
    SourceAddress,
    SocketFull,
    NoSocket,
    BacklogFull,
    QueueFull,
    TooBig,
    NoNeighbour,
    /// No reason is known, or see the kernel's reason.
    Other,
}

impl Why {
    pub fn words(self) -> &'static str {
        match self {
            Why::UnknownTeid => "unknown TEID",
            Why::NotAGPdu => "not a G-PDU",
            Why::BadHeader => "bad header",
            Why::UeAddress => "not the tunnel's UE address",
            Why::NoTunnel => "no tunnel for the UE address",
            Why::NoPdr => "no PDR matches",
            Why::PdrActions => "its PDR: gate closed, or FAR",
            Why::FarDrops => "FAR drops",
            Why::PolicerRed => "policer red",
            Why::Buffered => "buffered",
            Why::NoRoute => "no route",
            Why::TooBigOrLoop => "too big, or routed in a loop",
            Why::NotIp => "not IP, or no memory",
            Why::Checksum => "checksum",
            Why::Firewall => "firewall",
            Why::SourceAddress => "source address (rp_filter)",
            Why::SocketFull => "socket full",
            Why::NoSocket => "no socket",
            Why::BacklogFull => "CPU's backlog full",
            Why::QueueFull => "queue full",
            Why::TooBig => "too big",
            Why::NoNeighbour => "no neighbour",
            Why::Other => "other",
        }
    }

    /// The kernel's reason, by its name in enum skb_drop_reason (include/net/dropreason-core.h)
    /// without the prefix; `None` if that says nothing.
    pub fn of_kernel(reason: &str) -> Option<Self> {
        Some(match reason {
            "NOT_SPECIFIED" | "NOT_DROPPED_YET" => return None,
            "UDP_CSUM" | "IP_CSUM" | "SKB_CSUM" | "TCP_CSUM" | "ICMP_CSUM" => Why::Checksum,
            "NETFILTER_DROP" | "SOCKET_FILTER" | "BPF_CGROUP_EGRESS" | "TC_INGRESS"
            | "TC_EGRESS" | "XDP" => Why::Firewall,
            "IP_RPFILTER" | "IP_INVALID_SOURCE" | "IP_LOCAL_SOURCE" => Why::SourceAddress,
            "SOCKET_RCVBUFF" | "SOCKET_BACKLOG" | "PROTO_MEM" => Why::SocketFull,
            "NO_SOCKET" => Why::NoSocket,
            "CPU_BACKLOG" => Why::BacklogFull,
            "FULL_RING" | "QDISC_DROP" | "QDISC_OVERLIMIT" | "QDISC_BURST_DROP" => Why::QueueFull,
            "IP_INNOROUTES" | "IP_OUTNOROUTES" => Why::NoRoute,
            "PKT_TOO_BIG" => Why::TooBig,
            "PKT_TOO_SMALL" | "HDR_TRUNC" | "IP_INHDR" => Why::BadHeader,
            "NEIGH_CREATEFAIL" | "NEIGH_FAILED" | "NEIGH_QUEUEFULL" | "NEIGH_DEAD" => {
                Why::NoNeighbour
            }
            _ => Why::Other,
        })
    }
}

/// What a function's return value says.
pub struct Verdict {
    symbol: &'static str,
    direction: Direction,
    pub refuses: Refusal,
    /// The reason by the value that it returned; the first that fits. `None`: any other value.
    why: &'static [(Option<i32>, Why)],
    /// Why a packet is dropped if this function was the last to let it pass.
    past: Why,
}

impl Verdict {
    /// Why it refused the packet.
    pub fn why(&self, returned: i32) -> Why {
        let fits = |(value, _): &&(Option<i32>, Why)| value.is_none_or(|value| value == returned);
        self.why.iter().find(fits).map_or(Why::Other, |(_, why)| *why)
    }

    pub fn past(&self) -> Why {
        self.past
    }
}

/// The verdict of a function of a module, if it gives one.
pub fn verdict(module: Option<&str>, symbol: &str) -> Option<&'static Verdict> {
    verdicts(module).iter().find(|verdict| verdict.symbol == symbol)
}

/// The functions of a module that give a verdict.
pub fn functions(module: Option<&str>) -> impl Iterator<Item = Function> {
    verdicts(module).iter().map(|verdict| Function {
        symbol: verdict.symbol.into(),
        direction: verdict.direction,
        stage: Stage::Path,
        packet: None,
        does: "says whether it refuses the packet",
    })
}

fn verdicts(module: Option<&str>) -> &'static [Verdict] {
    match module {
        Some("gtp5g") => GTP5G,
        Some("gtp") => GTP,
        _ => &[],
    }
}

const fn row(
    symbol: &'static str,
    direction: Direction,
    refuses: Refusal,
    why: &'static [(Option<i32>, Why)],
    past: Why,
) -> Verdict {
    Verdict { symbol, direction, refuses, why, past }
}

/// Errors as the kernel returns them (include/uapi/asm-generic/errno.h).
const ENOENT: i32 = -2;
const EBADMSG: i32 = -74;

/// What gtp5g's functions return besides errors (include/pktinfo.h).
const PKT_DROPPED: i32 = -1;

const GTP5G: &[Verdict] = {
    use Direction::{Both, Downlink, Uplink};
    use Refusal as R;
    const ROUTE: &[(Option<i32>, Why)] = &[(None, Why::NoRoute)];
    &[
        row("gtp5g_encap_recv", Uplink, R::GTH_REFUSES_POSITIVE, &[], Why::Other),
        row(
            "gtp1u_udp_encap_recv",
            Uplink,
            R::GTH_REFUSES_NONZERO,
            &[(Some(PKT_DROPPED), Why::BadHeader), (Some(1), Why::NotAGPdu)],
            Why::Other,
        ),
        row(
            "pdr_find_by_gtp1u",
            Uplink,
            R::GTH_REFUSES_NULL,
            &[(None, Why::NoPdr)],
            Why::PdrActions,
        ),
        row(
            "gtp5g_rx",
            Uplink,
            R::GTH_REFUSES_NONZERO,
            &[(Some(PKT_DROPPED), Why::PdrActions)],
            Why::Other,
        ),
        row(
            "gtp5g_drop_skb_encap",
            Uplink,
            R::GTH_REFUSES_ALWAYS,
            &[(None, Why::FarDrops)],
            Why::Other,
        ),
        row("gtp5g_fwd_skb_encap", Uplink, R::GTH_REFUSES_NONZERO, &[], Why::Other),
        row("ip_xmit", Uplink, R::GTH_REFUSES_NEGATIVE, ROUTE, Why::Other),
        row(
            "pdr_find_by_ipv4",
            Downlink,
            R::GTH_REFUSES_NULL,
            &[(None, Why::NoPdr)],
            Why::PdrActions,
        ),
        row(
            "pdr_find_by_framed_route",
            Downlink,
            R::GTH_REFUSES_NULL,
            &[(None, Why::NoPdr)],
            Why::PdrActions,
        ),
        row(
            "gtp5g_drop_skb_ipv4",
            Downlink,
            R::GTH_REFUSES_ALWAYS,
            &[(None, Why::FarDrops)],
            Why::Other,
        ),
        row(
            "gtp5g_fwd_skb_ipv4",
            Downlink,
            R::GTH_REFUSES_NEGATIVE,
            &[(Some(EBADMSG), Why::NoRoute)],
            Why::Other,
        ),
        row(
            "gtp5g_handle_skb_ipv4",
            Downlink,
            R::GTH_REFUSES_NEGATIVE,
            &[
                (Some(EBADMSG), Why::NoRoute),
                (Some(ENOENT), Why::PdrActions),
                (Some(PKT_DROPPED), Why::PdrActions),
            ],
            Why::Other,
        ),
        row("policePacket", Both, R::GTH_REFUSES_RED, &[(None, Why::PolicerRed)], Why::Other),
        row("ip4_find_route", Both, R::GTH_REFUSES_ERROR, ROUTE, Why::Other),
        row("ip4_find_route_simple", Both, R::GTH_REFUSES_ERROR, ROUTE, Why::Other),
    ]
};

const GTP: &[Verdict] = {
    use Direction::{Downlink, Uplink};
    use Refusal as R;
    const TEID: &[(Option<i32>, Why)] = &[(None, Why::UnknownTeid)];
    const HEADER: &[(Option<i32>, Why)] = &[(Some(-1), Why::BadHeader)];
    const TUNNEL: &[(Option<i32>, Why)] = &[(None, Why::NoTunnel)];
    const ROUTE: &[(Option<i32>, Why)] = &[(None, Why::NoRoute)];
    const OUTER: &[(Option<i32>, Why)] = &[(None, Why::TooBigOrLoop)];
    const BUILD: &[(Option<i32>, Why)] = &[(Some(ENOENT), Why::NoTunnel), (None, Why::Other)];
    &[
        row("gtp_encap_recv", Uplink, R::GTH_REFUSES_POSITIVE, &[], Why::Other),
        row("gtp0_pdp_find", Uplink, R::GTH_REFUSES_NULL, TEID, Why::BadHeader),
        row("gtp1_pdp_find", Uplink, R::GTH_REFUSES_NULL, TEID, Why::BadHeader),
        row("gtp_inner_proto", Uplink, R::GTH_REFUSES_NEGATIVE, HEADER, Why::BadHeader),
        row(
            "gtp_rx",
            Uplink,
            R::GTH_REFUSES_NONZERO,
            &[(Some(1), Why::UeAddress), (Some(-1), Why::BadHeader)],
            Why::Other,
        ),
        row("gtp0_udp_encap_recv", Uplink, R::GTH_REFUSES_NEGATIVE, HEADER, Why::Other),
        row("gtp1u_udp_encap_recv", Uplink, R::GTH_REFUSES_NEGATIVE, HEADER, Why::Other),
        row("ipv4_pdp_find", Downlink, R::GTH_REFUSES_NULL, TUNNEL, Why::Other),
        row("ipv6_pdp_find", Downlink, R::GTH_REFUSES_NULL, TUNNEL, Why::Other),
        row("ip4_route_output_gtp", Downlink, R::GTH_REFUSES_ERROR, ROUTE, Why::Other),
        row("ip6_route_output_gtp", Downlink, R::GTH_REFUSES_ERROR, ROUTE, Why::Other),
        row("gtp_build_skb_outer_ip4", Downlink, R::GTH_REFUSES_ERROR, OUTER, Why::Other),
        row("gtp_build_skb_outer_ip6", Downlink, R::GTH_REFUSES_ERROR, OUTER, Why::Other),
        row("gtp_build_skb_ip4", Downlink, R::GTH_REFUSES_NEGATIVE, BUILD, Why::Other),
        row("gtp_build_skb_ip6", Downlink, R::GTH_REFUSES_NEGATIVE, BUILD, Why::Other),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_return_value_says_why() {
        let why = |module, symbol, returned| verdict(Some(module), symbol).unwrap().why(returned);
        assert_eq!(why("gtp", "gtp1_pdp_find", 0), Why::UnknownTeid);
        assert_eq!(why("gtp", "gtp_rx", 1), Why::UeAddress);
        assert_eq!(why("gtp", "gtp_rx", -1), Why::BadHeader);
        assert_eq!(why("gtp5g", "policePacket", 2), Why::PolicerRed);
        assert_eq!(why("gtp5g", "gtp5g_handle_skb_ipv4", -74), Why::NoRoute);
        assert_eq!(why("gtp5g", "gtp5g_handle_skb_ipv4", -1), Why::PdrActions);
        assert_eq!(why("gtp5g", "gtp5g_handle_skb_ipv4", -95), Why::Other);
        assert!(verdict(None, "gtp_rx").is_none());
    }

    #[test]
    fn the_kernel_says_why() {
        assert_eq!(Why::of_kernel("NOT_SPECIFIED"), None);
        assert_eq!(Why::of_kernel("UDP_CSUM"), Some(Why::Checksum));
        assert_eq!(Why::of_kernel("ARP_PVLAN_DISABLE"), Some(Why::Other));
    }
}
