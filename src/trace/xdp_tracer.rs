//! The BPF programs that count an XDP program's runs (bpf/trace_xdp.bpf.c).

use std::fs;
use std::iter;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, ObjectBuilder};

use super::xdp_runs::Counts;
use crate::base::error::{Error, Result};
use crate::kernel::libbpf_log;
use crate::kernel::skeletons::xdp_tracer::OBJECT;
use crate::kernel::skeletons::xdp_tracer::types::{gth_xdp_runs, gth_xdp_what};
use crate::kernel::xdp::{self, XdpProgram};

/// Attached to one XDP program; dropping it ends the tracing.
pub struct Tracer {
    id: u32,
    devices: Vec<String>,
    /// What the BPF programs were told about the devices.
    what: Vec<u8>,
    counts: MapHandle,
    _links: [Link; 2],
}

impl Tracer {
    /// Counts the program's runs for these devices of this network namespace. `open` is a
    /// descriptor of the program.
    pub fn attach(program: &XdpProgram, open: &OwnedFd, devices: Vec<String>) -> Result<Self> {
        let XdpProgram { id, name, entry } = program;
        let Some(entry) = entry else {
            let what = format!(
                "the XDP program {name} (id {id}) of {} has no BTF, so it cannot be traced",
                devices[0]
            );
            return Err(Error::failure(what).help("compile it with -g"));
        };
        libbpf_log::capture(false);
        let failed = |e: libbpf_rs::Error| libbpf_log::refused("trace program", &e);
        let mut object = ObjectBuilder::default().open_memory(OBJECT).map_err(failed)?;
        for mut part in object.progs_mut() {
            part.set_attach_target(open.as_raw_fd(), Some(entry.clone())).map_err(failed)?;
        }
        let what = bytes_of(&devices);
        for mut map in object.maps_mut().filter(|map| map.name() == ".rodata.what") {
            map.set_initial_value(&what).map_err(failed)?;
        }
        let object = object.load().map_err(failed)?;
        let counts = object.maps().find(|map| map.name() == "runs").expect("the program has it");
        let counts = MapHandle::try_from(&counts).map_err(failed)?;
        let attach = |name: &str| {
            let part = object.progs_mut().find(|part| part.name() == name);
            part.expect("bpf/trace_xdp.bpf.c has it").attach().map_err(failed)
        };
        // The end first, so that no run has only a beginning.
        let _links = [attach("run_ends")?, attach("run_begins")?];
        Ok(Self { id: *id, devices, what, counts, _links })
    }

    /// The XDP program's id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Whether it counts this program's runs for these devices. A device that was removed and added
    /// again has another index.
    pub fn is_of(&self, id: u32, devices: &[String]) -> bool {
        self.id == id && self.what == bytes_of(devices)
    }

    pub fn devices(&self) -> &[String] {
        &self.devices
    }

    /// Each CPU's counts since it was attached.
    pub fn counts(&self) -> Result<Vec<Counts>> {
        let failed = |e| Error::failure(format!("reading the counts: {e}"));
        let zero = 0_u32.to_ne_bytes();
        let values = self.counts.lookup_percpu(&zero, MapFlags::ANY).map_err(failed)?;
        let counts = values.unwrap_or_default().into_iter().map(|value| {
            // SAFETY: the map's values are of this type, all integers.
            let runs = unsafe { value.as_ptr().cast::<gth_xdp_runs>().read_unaligned() };
            let gth_xdp_runs { time_ns, longest_ns, verdicts, .. } = runs;
            Counts { time_ns, longest_ns, verdicts }
        });
        Ok(counts.collect())
    }
}

/// A `struct gth_xdp_what` with those of the devices that exist, as bytes.
fn bytes_of(devices: &[String]) -> Vec<u8> {
    let mut what = gth_xdp_what::default();
    let indices = devices.iter().filter_map(|device| xdp::device_index(device));
    what.devices.iter_mut().zip(indices).for_each(|(slot, index)| *slot = index);
    what.netns = fs::metadata("/proc/self/ns/net").map_or(0, |namespace| namespace.ino() as u32);
    let words = iter::once(&what.netns).chain(&what.devices);
    words.flat_map(|word| word.to_ne_bytes()).collect()
}
