//! Sets of CPUs as hexadecimal masks, the format of sysfs.
//!
//! `bitmap_parse()` and `%*pb` define the format (lib/bitmap-str.c,
//! `Documentation/core-api/printk-formats.rst`): groups of 32 bits, separated by commas, the
//! highest first.

use crate::base::cpulist::CpuList;

/// The set of a mask; `None` when `text` is not a mask, or has a CPU of [`CpuList::MAX`] or above.
pub fn parse(text: &str) -> Option<CpuList> {
    let mut cpus = Vec::new();
    for (group, digits) in text.trim_end().rsplit(',').enumerate() {
        let hexadecimal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if digits.is_empty() || digits.len() > 8 || !hexadecimal {
            return None;
        }
        let bits = u32::from_str_radix(digits, 16).ok()?;
        let first = u32::try_from(group).ok()?.checked_mul(32)?;
        cpus.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| first + bit));
    }
    cpus.iter().all(|&cpu| cpu < CpuList::MAX).then(|| cpus.into_iter().collect())
}

/// The mask of `cpus`; 0 for none.
pub fn format(cpus: &CpuList) -> String {
    let mut groups = vec![0_u32; cpus.iter().last().map_or(1, |last| last as usize / 32 + 1)];
    for cpu in cpus.iter() {
        groups[cpu as usize / 32] |= 1 << (cpu % 32);
    }
    let mut text = String::new();
    for group in groups.iter().rev() {
        match text.is_empty() {
            true => text = format!("{group:x}"),
            false => text += &format!(",{group:08x}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for (mask, list) in [
            ("0", ""),
            ("1", "0"),
            ("ff", "0-7"),
            ("80000000", "31"),
            ("1,00000000", "32"),
            ("8000,00000000,0000000f", "0-3,79"),
        ] {
            let cpus = parse(mask).unwrap();
            assert_eq!((cpus.to_string().as_str(), format(&cpus).as_str()), (list, mask));
        }
        assert_eq!(parse("00000000,0000000c\n").unwrap().to_string(), "2-3");
        assert_eq!(format(&"1023".parse().unwrap()).len(), 8 + 31 * 9);
    }

    #[test]
    fn what_is_no_mask() {
        for text in ["", "\n", "x", "0x1", "1,,1", "123456789", "-1", "+1", "1, 1"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert_eq!(parse(&format!("1{}", ",00000000".repeat(32))), None);
    }
}
