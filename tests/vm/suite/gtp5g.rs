//! The testbed's data plane on the module that stands in for free5GC's gtp5g
//! (tests/vm/gtp5g).

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::kernel;

/// The module, and the data plane on it, until dropped.
pub struct Plane {
    testbed: PathBuf,
}

impl Plane {
    /// Inserts the variant `btf` or `no-btf` of the module. `None`, and a line that says
    /// why, where the module could not be built.
    pub fn up(variant: &str) -> Option<Self> {
        if let Ok(why) = std::env::var("GTP5G_SKIPPED") {
            println!("skipped: {why}");
            return None;
        }
        let path = |variable| -> PathBuf {
            std::env::var_os(variable).expect("set by tests/vm/test").into()
        };
        let module = path("GTP5G_MODULES").join(variant).join("gtp5g.ko");
        let plane = Self { testbed: path("TESTBED_DIR").join("testbed") };
        succeeds(Command::new("insmod").arg(module));
        succeeds(Command::new(&plane.testbed).args(["up", "--driver", "gtp5g"]));
        Some(plane)
    }

    /// Sends probes from the UE to the data network; each is answered.
    pub fn ping(&self, count: usize) {
        let ping = "netns exec ran ping -n -I uesimtun0 -i 0.05 -W 5 10.200.0.2 -c";
        let output = succeeds(Command::new("ip").args(ping.split(' ')).arg(count.to_string()));
        let output = String::from_utf8(output.stdout).unwrap();
        assert!(output.contains(&format!(" {count} received")), "{output}");
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        // The device goes with the module, even while it is in use.
        let _ = Command::new("rmmod").arg("gtp5g").status();
        let _ = Command::new(&self.testbed).arg("down").status();
    }
}

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// Those that every packet of the UE passes.
const FUNCTIONS: [&str; 13] = [
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
        let Some(plane) = Plane::up(variant) else { return };
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
