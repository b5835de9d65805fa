//! The kernel's names for its functions (/proc/kallsyms).

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::base::error::{Error, Result};

/// Where the kernel lists its symbols (proc(5)).
pub const KALLSYMS: &str = "/proc/kallsyms";

/// What [`are_hidden`] means when packets are traced (bpf/marks/bh_enable.bpf.h).
pub const HIDDEN: &str = "the kernel hides its addresses from gthctl, which sees no task process \
    packets in its own softirqs then; give gthctl CAP_SYSLOG, and set the sysctl \
    kernel.kptr_restrict to 0 or 1";

/// Whether the kernel hides its addresses from this process, BPF programs included
/// (kallsyms_show_value(), kernel/ksyms_common.c). False if unknown.
pub fn are_hidden(kallsyms: &Path) -> bool {
    let mut first = [0; 4096];
    let read = File::open(kallsyms).and_then(|mut file| file.read(&mut first));
    read.is_ok_and(|read| are_zero(&String::from_utf8_lossy(&first[..read])))
}

/// Whether all addresses are 0. Some may be 0 anyway: those of the per-CPU area.
fn are_zero(kallsyms: &str) -> bool {
    let mut addresses = kallsyms.lines().filter_map(|line| line.split_once(' '));
    !kallsyms.is_empty() && addresses.all(|(address, _)| address.bytes().all(|digit| digit == b'0'))
}

/// A function's name for kprobes, with its module, because several modules may have a function of
/// that name.
pub fn place(name: &str, module: Option<&str>) -> String {
    module.map_or(name.to_owned(), |module| format!("{module}:{name}"))
}

/// The functions found for the requested names.
#[derive(Debug, Default)]
pub struct Symbols(HashMap<String, Vec<Symbol>>);

/// One function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// As requested, or with the compiler's suffix for a variant (`.isra.0`), whose
    /// arguments may differ.
    pub name: String,
    /// `None`: the kernel itself.
    pub module: Option<String>,
}

impl Symbols {
    /// Looks in `kallsyms` for the functions of these names.
    pub fn read<'a>(kallsyms: &Path, names: impl Iterator<Item = &'a str>) -> Result<Self> {
        let failed = |e| Error::failure(format!("{}: {e}", kallsyms.display()));
        Ok(Self::parse(&fs::read_to_string(kallsyms).map_err(failed)?, names))
    }

    fn parse<'a>(kallsyms: &str, names: impl Iterator<Item = &'a str>) -> Self {
        let mut found: HashMap<String, Vec<Symbol>> =
            names.map(|name| (name.to_owned(), Vec::new())).collect();
        for line in kallsyms.lines() {
            // Address, type, name and, in a module, its name in brackets.
            let mut fields = line.split_ascii_whitespace().skip(1);
            let (Some("t" | "T"), Some(name)) = (fields.next(), fields.next()) else { continue };
            let mut parts = name.split('.');
            let base = parts.next().unwrap_or(name);
            // .cold and .part are pieces of a function, not all of it.
            if parts.any(|part| part == "cold" || part == "part") {
                continue;
            }
            let Some(symbols) = found.get_mut(base) else { continue };
            let module = fields.next().map(|module| module.trim_matches(['[', ']']).to_owned());
            symbols.push(Symbol { name: name.to_owned(), module });
        }
        Self(found)
    }

    /// The function `name`: that of `module` if given, or of the kernel itself, into which
    /// the module may be built. The plain name takes precedence over one with a suffix.
    pub fn of(&self, name: &str, module: Option<&str>) -> Option<&Symbol> {
        let all = self.0.get(name)?;
        let is_meant = |symbol: &&Symbol| {
            module.is_none() || symbol.module.is_none() || symbol.module.as_deref() == module
        };
        let rank = |symbol: &&Symbol| (symbol.name != name, symbol.module.as_deref() != module);
        all.iter().filter(is_meant).min_by_key(rank)
    }
}

/// An address in a function's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The function, with the compiler's suffix.
    pub symbol: String,
    pub offset: u64,
    /// `None`: the kernel itself.
    pub module: Option<String>,
}

impl Place {
    /// Whether it is in this function, in whichever part or variant.
    pub fn is_in(&self, function: &str) -> bool {
        self.symbol.split('.').next() == Some(function)
    }

    /// Whether it is in this module.
    pub fn is_of(&self, module: Option<&str>) -> bool {
        module.is_some() && self.module.as_deref() == module
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:#x}", self.symbol, self.offset)?;
        self.module.as_ref().map_or(Ok(()), |module| write!(f, " [{module}]"))
    }
}

/// The places of return addresses; `None` if the kernel hides its addresses (kptr_restrict) or has
/// no function there.
pub fn places(kallsyms: &Path, addresses: &[u64]) -> Result<Vec<Option<Place>>> {
    let failed = |e| Error::failure(format!("{}: {e}", kallsyms.display()));
    Ok(places_in(&fs::read_to_string(kallsyms).map_err(failed)?, addresses))
}

fn places_in(kallsyms: &str, addresses: &[u64]) -> Vec<Option<Place>> {
    // The nearest symbol below each address.
    let mut nearest: Vec<Option<(u64, &str)>> = vec![None; addresses.len()];
    for line in kallsyms.lines() {
        let mut fields = line.splitn(3, ' ');
        let (Some(at), Some("t" | "T" | "w" | "W"), Some(names)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let Ok(at) = u64::from_str_radix(at, 16) else { continue };
        for (address, nearest) in addresses.iter().zip(&mut nearest) {
            // A call may be a function's last instruction; its return address is then in the next
            // function.
            let is_below = at > 0 && at < *address;
            if is_below && nearest.is_none_or(|(known, _)| known < at) {
                *nearest = Some((at, names));
            }
        }
    }
    let place = |(address, nearest): (&u64, Option<(u64, &str)>)| {
        let (at, names) = nearest?;
        let mut names = names.split_ascii_whitespace();
        let symbol = names.next()?.to_owned();
        let module = names.next().map(|module| module.trim_matches(['[', ']']).to_owned());
        Some(Place { symbol, offset: address - at, module })
    };
    addresses.iter().zip(nearest).map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &str = "\
ffffffff81001000 T schedule
ffffffff81002000 t ip_xmit
ffffffff81003000 t twice
ffffffffc0001000 t gtp_encap_recv\t[gtp]
ffffffffc0001100 t gtp_rx.isra.0.cold\t[gtp]
ffffffffc0001100 t gtp_rx.isra.0\t[gtp]
ffffffffc0001200 t gtp_dev_xmit.cold\t[gtp]
ffffffffc0001300 d gtp_push_header\t[gtp]
ffffffffc0001400 t ip_xmit\t[gtp5g]
ffffffffc0001500 t twice.constprop.0\t[gtp5g]
ffffffffc0001600 t twice\t[gtp5g]
ffffffffc0001700 t other\t[other]
";

    #[test]
    fn functions_are_found_under_the_names_of_the_compiler() {
        let names = "gtp_encap_recv gtp_rx gtp_dev_xmit gtp_push_header ip_xmit twice other";
        let symbols = Symbols::parse(KALLSYMS, names.split(' '));
        let of = |name: &str, module: Option<&str>| {
            let symbol = symbols.of(name, module)?;
            Some(format!("{}@{}", symbol.name, symbol.module.as_deref().unwrap_or("kernel")))
        };
        for (name, module, found) in [
            ("gtp_encap_recv", Some("gtp"), Some("gtp_encap_recv@gtp")),
            ("gtp_encap_recv", None, Some("gtp_encap_recv@gtp")),
            ("gtp_rx", Some("gtp"), Some("gtp_rx.isra.0@gtp")),
            ("gtp_dev_xmit", Some("gtp"), None),
            ("gtp_push_header", Some("gtp"), None),
            // Not requested.
            ("schedule", None, None),
            ("ip_xmit", Some("gtp5g"), Some("ip_xmit@gtp5g")),
            ("ip_xmit", None, Some("ip_xmit@kernel")),
            ("ip_xmit", Some("gtp"), Some("ip_xmit@kernel")),
            ("twice", Some("gtp5g"), Some("twice@gtp5g")),
            ("other", Some("gtp"), None),
        ] {
            assert_eq!(of(name, module).as_deref(), found, "{name} {module:?}");
        }
    }

    #[test]
    fn a_place_is_in_the_nearest_function_below() {
        let addresses = [0xffff_ffff_c000_1010, 0xffff_ffff_c000_1100, 0xffff_ffff_8100_2fff, 0x10];
        let places = places_in(KALLSYMS, &addresses);
        let text = |place: &Option<Place>| place.as_ref().map(Place::to_string);
        assert_eq!(text(&places[0]).as_deref(), Some("gtp_encap_recv+0x10 [gtp]"));
        // Not gtp_rx, which begins there.
        assert_eq!(text(&places[1]).as_deref(), Some("gtp_encap_recv+0x100 [gtp]"));
        assert_eq!(text(&places[2]).as_deref(), Some("ip_xmit+0xfff"));
        assert_eq!(text(&places[3]), None);
        let first = places[0].as_ref().unwrap();
        assert!(first.is_in("gtp_encap_recv") && first.is_of(Some("gtp")));
        assert!(!first.is_of(None) && !places[2].as_ref().unwrap().is_of(Some("gtp")));
        let hidden = KALLSYMS.lines().map(|line| format!("{:016}{}\n", 0, &line[16..]));
        let hidden: String = hidden.collect();
        assert!(are_zero(&hidden) && !are_zero(KALLSYMS) && !are_zero(""));
        assert!(!are_zero(&format!("{:016} A fixed_percpu_data\n{KALLSYMS}", 0)));
        assert_eq!(places_in(&hidden, &[0xffff_ffff_8100_2fff]), [None]);
    }
}
