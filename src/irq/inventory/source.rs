//! Which device an IRQ's number belongs to. After the device has gone, another one may get the
//! number.

use std::fs;

use serde::{Deserialize, Serialize};

use super::interrupts::Interrupts;
use crate::irq::host::Host;

/// Where an IRQ comes from. Names would prove nothing: a network device may be renamed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The interrupt controller, such as `IR-PCI-MSIX-0000:07:00.0` or `GICv3`.
    pub chip: String,
    /// The controller's own number for it. Xen's event channels have none.
    pub hwirq: Option<u64>,
}

impl Source {
    /// Reads it from sysfs (`Documentation/ABI/testing/sysfs-kernel-irq`). If that is missing,
    /// /proc/interrupts shows it as long as the IRQ has a handler.
    pub fn of(host: &Host, interrupts: &Interrupts, irq: u32) -> Option<Self> {
        let dir = host.sys().join(format!("kernel/irq/{irq}"));
        let read = |name: &str| fs::read_to_string(dir.join(name)).map(|s| s.trim_end().to_owned());
        if let (Ok(chip), Ok(hwirq)) = (read("chip_name"), read("hwirq")) {
            return Some(Self { chip, hwirq: hwirq.parse().ok() });
        }
        interrupts.get(irq).map(|interrupt| interrupt.source.clone())
    }

    /// Parses `CHIP HWIRQ-TRIGGER`, as /proc/interrupts shows it.
    pub(super) fn parse(text: &str) -> Self {
        let mut chip = text.trim_end();
        let mut hwirq = None;
        // From the end, since a chip's name may have spaces: `5-edge` (x86), `5 Edge` (Arm),
        // `-event` (Xen), `5`.
        while let Some((before, word)) = chip.rsplit_once(' ') {
            let number = match word {
                "Level" | "Edge" => "",
                _ => word.split_once('-').map_or(word, |(number, _trigger)| number),
            };
            if !number.bytes().all(|byte| byte.is_ascii_digit()) {
                break;
            }
            chip = before.trim_end();
            if !number.is_empty() {
                hwirq = number.parse().ok();
                break;
            }
        }
        Self { chip: chip.into(), hwirq }
    }
}
