//! Numbers and names for people, and sizes read from people.

use std::{fmt::Write as _, time::Duration};

const UNITS: [(&str, u64); 5] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// Three significant digits and a binary unit: `27.3 GiB`, `512 B`; `64 KiB` when that is exact.
#[must_use]
pub fn bytes(n: u64) -> String {
    let (mut unit, mut size) = ("B", 1);
    for next in UNITS {
        (unit, size) = next;
        // What rounds to 1024 is one of the next unit.
        if (u128::from(n) + u128::from(size) / 2) / u128::from(size) < 1024 {
            break;
        }
    }
    if n.is_multiple_of(size) {
        format!("{} {unit}", n / size)
    } else {
        format!("{} {unit}", three_digits(n, size))
    }
}

/// [`bytes`], and the exact number where it says more.
#[must_use]
pub fn bytes_exact(n: u64) -> String {
    if n < 1 << 10 {
        format!("{n} B")
    } else {
        format!("{} ({} B)", bytes(n), grouped(n))
    }
}

/// `n / unit` with three significant digits, rounded half up in integers.
fn three_digits(n: u64, unit: u64) -> String {
    let scaled = |places: u128| {
        let (n, unit) = (u128::from(n), u128::from(unit));
        (n * places + unit / 2) / unit
    };
    let hundredths = scaled(100);
    if hundredths < 1_000 {
        return format!("{}.{:02}", hundredths / 100, hundredths % 100);
    }
    let tenths = scaled(10);
    if tenths < 1_000 {
        return format!("{}.{}", tenths / 10, tenths % 10);
    }
    scaled(1).to_string()
}

/// A count in short: `412`, `14.3 M`, `5.00 B`.
#[must_use]
pub fn count(n: u64) -> String {
    for (unit, size) in [
        ("T", 1_000_000_000_000),
        ("B", 1_000_000_000),
        ("M", 1_000_000),
    ] {
        if n >= size {
            return format!("{} {unit}", three_digits(n, size));
        }
    }
    grouped(n)
}

/// Digits in groups of three: `2,584,707,072`.
#[must_use]
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 tensor`, `2 tensors`.
#[must_use]
pub fn plural(n: u64, noun: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{} {noun}{s}", grouped(n))
}

/// `0.84 s`, `2 min 5 s`.
#[must_use]
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds >= 60 {
        format!("{} min {} s", seconds / 60, seconds % 60)
    } else {
        format!("{:.2} s", time.as_secs_f64())
    }
}

/// Bytes a second: `2.07 GiB/s`; nothing measurable says nothing.
#[must_use]
pub fn rate(n: u64, time: Duration) -> Option<String> {
    let nanos = time.as_nanos();
    if nanos == 0 || n == 0 {
        return None;
    }
    let rate = u128::from(n) * 1_000_000_000 / nanos;
    Some(format!(
        "{}/s",
        bytes(u64::try_from(rate).unwrap_or(u64::MAX))
    ))
}

/// A name from a file, safe for a terminal and one line: control characters and marks that turn the
/// writing direction are escaped.
#[must_use]
pub fn name(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unsafe(c) {
            let _ = write!(out, "{}", c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Whether a character could change what a terminal shows around it.
#[must_use]
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2028}' | '\u{2029}' | '\u{2066}'..='\u{2069}')
}

/// Reads `4096`, `64K`, `2M`, `2MiB`, `1G`.
///
/// # Errors
/// When the text is no size in whole bytes.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text
        .get(digits.len()..)
        .unwrap_or_default()
        .to_ascii_lowercase();
    let unit = unit
        .strip_suffix("ib")
        .or_else(|| unit.strip_suffix('b'))
        .unwrap_or(&unit);
    let factor: u64 = match unit {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return Err("expected bytes, such as 4096, 64K or 2M".to_owned()),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(factor))
        .ok_or_else(|| "expected bytes, such as 4096, 64K or 2M".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits_and_never_1024() {
        for (n, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (10_234, "9.99 KiB"),
            (10_235, "10.0 KiB"),
            ((1 << 20) - 1, "1.00 MiB"),
            (5 << 30, "5 GiB"),
            (u64::MAX, "16777216 TiB"),
        ] {
            assert_eq!(bytes(n), text, "{n}");
        }
        assert_eq!(bytes_exact(2_584_707_072), "2.41 GiB (2,584,707,072 B)");
    }

    #[test]
    fn counts_and_rates() {
        assert_eq!(count(999_999), "999,999");
        assert_eq!(count(4_999_787_712), "5.00 B");
        assert_eq!(plural(1, "tensor"), "1 tensor");
        assert_eq!(plural(1200, "tensor"), "1,200 tensors");
        assert_eq!(
            rate(1 << 30, Duration::from_millis(500)).as_deref(),
            Some("2 GiB/s")
        );
        assert_eq!(rate(1, Duration::ZERO), None);
        assert_eq!(duration(Duration::from_secs(125)), "2 min 5 s");
    }

    #[test]
    fn sizes_are_read_with_and_without_a_unit() {
        for (text, n) in [
            ("4096", 4096),
            ("64K", 65_536),
            ("2MiB", 2 << 20),
            ("1gb", 1 << 30),
        ] {
            assert_eq!(parse_bytes(text), Ok(n));
        }
        for text in ["", "K", "1.5M", "-1", "4X", "99999999999G"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_cannot_drive_a_terminal() {
        assert_eq!(name("a\u{1b}[2Jb\n\u{202e}é"), "a\\u{1b}[2Jb\\n\\u{202e}é");
    }
}
