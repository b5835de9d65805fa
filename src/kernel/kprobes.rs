//! Whether the kernel can trace its functions by kprobes.

use std::path::Path;

/// Whether there are kprobes for BPF programs; `sys_root` is /sys except in tests.
///
/// The kernel has this event source with CONFIG_KPROBE_EVENTS (Documentation/ABI/testing/
/// sysfs-bus-event_source-devices).
pub fn are_there(sys_root: &Path) -> bool {
    sys_root.join("bus/event_source/devices/kprobe").exists()
}
