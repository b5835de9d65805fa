//! Times as people write them: `2ms`, `500us`, `1.5ms`, `1s`.

use std::fmt;

/// The units from long to short, with their length in nanoseconds.
const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// A time in nanoseconds; `Display` writes it exactly, in the largest unit not above it:
/// `2ms`, `1.5ms`, `500us`, `0ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanoseconds(pub u64);

/// Reads a time as nanoseconds: a decimal number and `ns`, `us` (or `µs`), `ms` or `s`,
/// or just a whole number of nanoseconds.
///
/// `None` if `text` is not a time, is not a whole number of nanoseconds, or exceeds `u64`.
pub fn parse_nanoseconds(text: &str) -> Option<u64> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let length = match unit.trim_start_matches(' ') {
        "" => 1,
        "µs" | "μs" => 1_000,
        unit => UNITS.iter().find(|(name, _)| *name == unit)?.1,
    };
    let (whole, fraction) = match number.split_once('.') {
        None => (number, ""),
        Some((_, "")) => return None,
        Some(parts) => parts,
    };
    let mut total = whole.parse::<u64>().ok()?.checked_mul(length)?;
    let mut place = length;
    for digit in fraction.chars() {
        let digit = u64::from(digit.to_digit(10)?);
        if (place == 0 || place % 10 != 0) && digit != 0 {
            return None;
        }
        place /= 10;
        total = total.checked_add(digit * place)?;
    }
    Some(total)
}

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, length) = UNITS.into_iter().find(|(_, ns)| self.0 >= *ns).unwrap_or(UNITS[3]);
        let (whole, rest) = (self.0 / length, self.0 % length);
        write!(f, "{whole}")?;
        if rest > 0 {
            let digits = length.ilog10() as usize;
            let fraction = format!("{rest:0digits$}");
            write!(f, ".{}", fraction.trim_end_matches('0'))?;
        }
        f.write_str(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_with_and_without_unit() {
        for (text, ns) in [
            ("2000000", 2_000_000),
            ("2ms", 2_000_000),
            ("2 ms", 2_000_000),
            ("500us", 500_000),
            ("500µs", 500_000),
            ("1s", 1_000_000_000),
            ("1.5ms", 1_500_000),
            ("0.000000001s", 1),
            ("1.0000000000s", 1_000_000_000),
            ("7ns", 7),
            ("0", 0),
        ] {
            assert_eq!(parse_nanoseconds(text), Some(ns), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest() {
        for text in [
            "",
            "ms",
            "-1ms",
            "+1ms",
            "1.",
            ".5ms",
            "1.5",
            "1.5ns",
            "1.2.3ms",
            "1m",
            "1MS",
            "1 h",
            "1ms ",
            "0.0000000001s",
            "0.00000000001s",
            "1.00000001ms",
            "5.01",
            "20000000000s",
            "99999999999999999999",
            "0x10",
            "1e3",
        ] {
            assert_eq!(parse_nanoseconds(text), None, "{text}");
        }
    }

    #[test]
    fn writes_exactly_and_reads_back() {
        for (ns, text) in [
            (0, "0ns"),
            (999, "999ns"),
            (1_500, "1.5us"),
            (2_000_000, "2ms"),
            (1_234_567, "1.234567ms"),
            (1_000_000_001, "1.000000001s"),
        ] {
            assert_eq!(Nanoseconds(ns).to_string(), text);
            assert_eq!(parse_nanoseconds(text), Some(ns));
        }
        assert_eq!(parse_nanoseconds(&Nanoseconds(u64::MAX).to_string()), Some(u64::MAX));
    }
}
