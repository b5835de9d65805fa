//! The module that stands in for free5GC's gtp5g (tests/vm/modules/gtp5g.c).

use std::path::Path;

use crate::support::kernel;
use crate::support::plane::{GTP5G_FUNCTIONS, Plane};
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::PACKETS;

#[test]
fn the_stand_in_carries_packets_with_and_without_btf() {
    for (variant, has_btf) in [("btf", true), ("no-btf", false)] {
        let Some(plane) = Plane::on_gtp5g(variant) else { return };
        assert_eq!(Path::new("/sys/kernel/btf/gtp5g").exists(), has_btf);
        let traceable = kernel::read("/sys/kernel/tracing/available_filter_functions");
        for function in GTP5G_FUNCTIONS {
            let line = format!("{function} [gtp5g]");
            assert!(traceable.lines().any(|l| l == line), "{variant}: no {function}");
        }
        plane.ping(5);
        drop(plane);
        assert!(!Path::new("/sys/module/gtp5g").exists());
    }
}
