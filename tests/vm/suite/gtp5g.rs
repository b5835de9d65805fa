//! The module that stands in for free5GC's gtp5g (tests/vm/gtp5g).

use std::path::Path;

use crate::kernel;
use crate::plane::Plane;

/// Those that every packet of the UE passes.
pub const FUNCTIONS: [&str; 13] = [
    "gtp5g_encap_recv",
    "gtp1u_udp_encap_recv",
    "pdr_find_by_gtp1u",
    "gtp5g_rx",
    "gtp5g_fwd_skb_encap",
    "gtp5g_dev_xmit",
    "gtp5g_handle_skb_ipv4",
    "pdr_find_by_ipv4",
    "gtp5g_fwd_skb_ipv4",
    "policePacket",
    "ip4_find_route",
    "gtp5g_push_header",
    "gtp5g_xmit_skb_ipv4",
];

#[test]
fn the_stand_in_carries_packets_with_and_without_btf() {
    for (variant, has_btf) in [("btf", true), ("no-btf", false)] {
        let Some(plane) = Plane::on_gtp5g(variant) else { return };
        assert_eq!(Path::new("/sys/kernel/btf/gtp5g").exists(), has_btf);
        let traceable = kernel::read("/sys/kernel/tracing/available_filter_functions");
        for function in FUNCTIONS {
            let line = format!("{function} [gtp5g]");
            assert!(traceable.lines().any(|l| l == line), "{variant}: no {function}");
        }
        plane.ping(5);
        drop(plane);
        assert!(!Path::new("/sys/module/gtp5g").exists());
    }
}
