//! Parsing and printing of numbers, sizes, ratios and times.
//!
//! # Source
//! OpenZFS lib/libzutil/zutil_nicenum.c, lib/libzfs/libzfs_util.c `zfs_nicestrtonum` @be7657e3.

use base::{Error, Result};

const SUFFIXES: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];

/// A count with a binary suffix, in at most five characters: `1023`, `1.50K`, `10.0G`.
#[must_use]
#[doc(alias = "zfs_nicenum")]
pub fn nice_number(value: u64) -> String {
    nice(value, "")
}

/// Like [`nice_number`], for bytes: with a `B` if there is no other suffix: `0B`, `512B`, `1.50K`.
#[must_use]
#[doc(alias = "zfs_nicebytes")]
pub fn nice_bytes(value: u64) -> String {
    nice(value, "B")
}

fn nice(value: u64, unit: &str) -> String {
    let index = (value.max(1).ilog2() / 10) as usize;
    let scale = 1u64 << (10 * index);
    let suffix = if index == 0 { unit } else { SUFFIXES[index] };
    if value.is_multiple_of(scale) {
        return format!("{}{suffix}", value / scale);
    }
    // As many decimals as fit into five characters.
    let scaled = value as f64 / scale as f64;
    let tries = (0..3)
        .rev()
        .map(|digits| format!("{scaled:.digits$}{suffix}"));
    let mut last = String::new();
    for text in tries {
        last = text;
        if last.len() <= 5 {
            break;
        }
    }
    last
}

/// A duration of `ns` nanoseconds: `-` for none, otherwise whole units: `999ns`, `15us`, `2s`.
#[must_use]
#[doc(alias = "zfs_nicetime")]
pub fn nice_time(ns: u64) -> String {
    if ns == 0 {
        return "-".to_owned();
    }
    let units = ["ns", "us", "ms", "s"];
    let index = (ns.ilog10() / 3).min(3) as usize;
    format!("{}{}", ns / 1000u64.pow(index as u32), units[index])
}

/// How numbers are printed: human-readable, or exactly (`-p`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NumberStyle {
    /// With suffixes.
    #[default]
    Nice,
    /// All digits.
    Exact,
}

impl NumberStyle {
    /// A count.
    #[must_use]
    pub fn number(self, value: u64) -> String {
        match self {
            NumberStyle::Nice => nice_number(value),
            NumberStyle::Exact => value.to_string(),
        }
    }

    /// Bytes.
    #[must_use]
    pub fn bytes(self, value: u64) -> String {
        match self {
            NumberStyle::Nice => nice_bytes(value),
            NumberStyle::Exact => value.to_string(),
        }
    }

    /// Hundredths: `1.50x`, or `1.50` exactly.
    #[must_use]
    pub fn ratio(self, hundredths: u64) -> String {
        let (whole, part) = (hundredths / 100, hundredths % 100);
        match self {
            NumberStyle::Nice => format!("{whole}.{part:02}x"),
            NumberStyle::Exact => format!("{whole}.{part:02}"),
        }
    }

    /// Percent: `42%`, or `42` exactly.
    #[must_use]
    pub fn percent(self, value: u64) -> String {
        match self {
            NumberStyle::Nice => format!("{value}%"),
            NumberStyle::Exact => value.to_string(),
        }
    }
}

/// `G`, `GB` and `GiB`, in any case, all mean `1 << 30`; `B` means 1.
fn suffix_shift(suffix: &str) -> Result<u32> {
    let invalid = || Error::invalid(format!("invalid numeric suffix '{suffix}'"));
    let upper = suffix.to_ascii_uppercase();
    let mut letters = upper.chars();
    let Some(first) = letters.next() else {
        return Ok(0);
    };
    let power = "BKMGTPEZ".find(first).ok_or_else(invalid)?;
    match letters.as_str() {
        "" => {}
        "B" | "IB" if power > 0 => {}
        _ => return Err(invalid()),
    }
    Ok(10 * power as u32)
}

/// Parses a number with an optional binary suffix: `128K`, `1.5G`; there is no `0x`.
///
/// # Errors
/// `InvalidInput`, with OpenZFS's message.
#[doc(alias = "zfs_nicestrtonum")]
pub fn parse_number(text: &str) -> Result<u64> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Err(Error::invalid(format!("bad numeric value '{text}'")));
    }
    let too_large = || Error::invalid("numeric value is too large");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = text.split_at(digits);
    let value = match whole {
        "" => 0,
        whole => whole.parse::<u64>().map_err(|_| too_large())?,
    };
    let Some(after_point) = rest.strip_prefix('.') else {
        let shift = suffix_shift(rest)?;
        let shifted = value.checked_shl(shift).filter(|v| v >> shift == value);
        return shifted.ok_or_else(too_large);
    };
    let decimals = after_point.bytes().take_while(u8::is_ascii_digit).count();
    let fraction = &after_point[..decimals];
    let shift = suffix_shift(&after_point[decimals..])?;
    let scaled =
        format!("{value}.{fraction}0").parse::<f64>().unwrap_or(0.0) * (shift as f64).exp2();
    if scaled >= u64::MAX as f64 {
        return Err(too_large());
    }
    Ok(scaled as u64)
}

/// Days, hours, minutes, seconds: `00:01:05`, `3 days 02:00:00`.
#[must_use]
#[doc(alias = "secs_to_dhms")]
pub fn duration(secs: u64) -> String {
    let (days, hours) = (secs / 86_400, secs / 3600 % 24);
    let clock = format!("{hours:02}:{:02}:{:02}", secs / 60 % 60, secs % 60);
    if days > 0 {
        format!("{days} days {clock}")
    } else {
        clock
    }
}

/// A time zone, supplied by the front end: seconds east of UTC for a time in seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Zone(pub fn(u64) -> i64);

impl Zone {
    /// Coordinated universal time.
    pub const UTC: Zone = Zone(|_| 0);

    fn local(self, secs: i64) -> Civil {
        Civil::from_secs(secs.saturating_add((self.0)(secs.max(0) as u64)))
    }
}

struct Civil {
    year: i64,
    month: usize,
    day: i64,
    weekday: usize,
    hour: i64,
    minute: i64,
    second: i64,
}

impl Civil {
    /// Gregorian calendar; the year is counted from March, so that leap days come last.
    fn from_secs(secs: i64) -> Self {
        let (days, second_of_day) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = if from_march < 10 {
            from_march + 3
        } else {
            from_march - 9
        };
        Civil {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month: month as usize,
            day: day_of_year - (153 * from_march + 2) / 5 + 1,
            weekday: (days + 4).rem_euclid(7) as usize,
            hour: second_of_day / 3600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
        }
    }

    fn weekday(&self) -> &'static str {
        ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"][self.weekday]
    }

    fn month(&self) -> &'static str {
        const MONTHS: [&str; 12] = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ];
        MONTHS[self.month - 1]
    }
}

/// As ctime(3), without the line feed: `Sat Nov  7 08:01:21 2026`.
#[must_use]
#[doc(alias = "ctime")]
pub fn date_time(secs: u64, zone: Zone) -> String {
    let t = zone.local(secs as i64);
    format!(
        "{} {} {:2} {:02}:{:02}:{:02} {}",
        t.weekday(),
        t.month(),
        t.day,
        t.hour,
        t.minute,
        t.second,
        t.year
    )
}

/// As the `creation` property shows it: `Sat Nov  7  8:01 2026`.
#[must_use]
pub fn creation_time(secs: u64, zone: Zone) -> String {
    let t = zone.local(secs as i64);
    format!(
        "{} {} {:2} {:2}:{:02} {}",
        t.weekday(),
        t.month(),
        t.day,
        t.hour,
        t.minute,
        t.year
    )
}

/// As `zpool history` opens a line: `2026-11-07.08:01:21`.
#[must_use]
pub fn history_time(secs: u64, zone: Zone) -> String {
    let t = zone.local(secs as i64);
    format!(
        "{}-{:02}-{:02}.{:02}:{:02}:{:02}",
        t.year, t.month, t.day, t.hour, t.minute, t.second
    )
}

/// As `ls -l --time-style=long-iso` does, with the seconds: `2026-11-07 08:01:21`. Before 1970, `secs` is negative.
#[must_use]
pub fn iso_time(secs: i64, zone: Zone) -> String {
    let t = zone.local(secs);
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
        t.year, t.month, t.day, t.hour, t.minute, t.second
    )
}

/// The number that a text starts with, as `strtoull` with base 0 reads it, and the rest.
#[must_use]
pub fn number_prefix(text: &str) -> (u64, &str) {
    let trimmed = text.trim_start();
    let (is_negative, digits) = match trimmed.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, trimmed.strip_prefix('+').unwrap_or(trimmed)),
    };
    let hex = digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = match hex {
        Some(hex) if hex.starts_with(|c: char| c.is_ascii_hexdigit()) => (hex, 16),
        _ if digits.starts_with('0') => (digits, 8),
        _ => (digits, 10),
    };
    let end = digits
        .find(|c: char| !c.is_digit(radix))
        .unwrap_or(digits.len());
    let (number, rest) = digits.split_at(end);
    if number.is_empty() {
        return (0, text);
    }
    let value = u64::from_str_radix(number, radix).unwrap_or(u64::MAX);
    let value = if is_negative {
        value.wrapping_neg()
    } else {
        value
    };
    (value, rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_take_five_characters() {
        let cases: [(u64, &str); 14] = [
            (0, "0"),
            (1023, "1023"),
            (1024, "1K"),
            (1536, "1.50K"),
            (10_239, "10.0K"),
            (10_240, "10K"),
            (102_399, "100K"),
            (1_047_552, "1023K"),
            (1_048_575, "1024K"),
            (301_989_888, "288M"),
            (872_448, "852K"),
            (99_900_000_000, "93.0G"),
            (1 << 60, "1E"),
            (u64::MAX, "16.0E"),
        ];
        for (value, text) in cases {
            assert_eq!(nice_number(value), text, "{value}");
        }
        assert_eq!(nice_bytes(0), "0B");
        assert_eq!(nice_bytes(512), "512B");
        assert_eq!(nice_bytes(1025), "1.00K");
    }

    #[test]
    fn days_are_dates() {
        let date = |days: i64| iso_time(days * 86_400, Zone::UTC);
        assert_eq!(date(0), "1970-01-01 00:00:00");
        assert_eq!(date(20_778), "2026-11-21 00:00:00");
        assert_eq!(date(-1), "1969-12-31 00:00:00");
    }

    #[test]
    fn times_are_whole_units() {
        let cases = [
            (0, "-"),
            (999, "999ns"),
            (999_999, "999us"),
            (2_500_000_000, "2s"),
        ];
        for (ns, text) in cases {
            assert_eq!(nice_time(ns), text);
        }
        assert_eq!(nice_time(999_999_000_000_000), "999999s");
    }

    #[test]
    fn sizes_are_read_with_suffixes() {
        let ok = [
            ("1.5G", 3 << 29),
            ("128k", 128 << 10),
            ("1MiB", 1 << 20),
            ("1mb", 1 << 20),
            ("12B", 12),
            (".5K", 512),
            ("007", 7),
            ("1.", 1),
        ];
        for (text, value) in ok {
            assert_eq!(parse_number(text).unwrap(), value, "{text}");
        }
        let bad = [
            ("foo", "bad numeric value 'foo'"),
            ("", "bad numeric value ''"),
            ("-1", "bad numeric value '-1'"),
            ("1x", "invalid numeric suffix 'x'"),
            ("1BB", "invalid numeric suffix 'BB'"),
            ("1K2", "invalid numeric suffix 'K2'"),
            ("16384P", "numeric value is too large"),
            ("99999999999999999999", "numeric value is too large"),
            ("1Z", "numeric value is too large"),
            ("20.5E", "numeric value is too large"),
        ];
        for (text, error) in bad {
            assert_eq!(parse_number(text).unwrap_err().to_string(), error, "{text}");
        }
    }

    #[test]
    fn dates_follow_the_calendar() {
        assert_eq!(
            date_time(1_795_248_081, Zone::UTC),
            "Sat Nov 21 08:01:21 2026"
        );
        assert_eq!(
            creation_time(1_795_248_081, Zone::UTC),
            "Sat Nov 21  8:01 2026"
        );
        assert_eq!(history_time(951_827_696, Zone::UTC), "2000-02-29.12:34:56");
        assert_eq!(date_time(0, Zone(|_| -3600)), "Wed Dec 31 23:00:00 1969");
        assert_eq!(duration(3 * 86_400 + 7265), "3 days 02:01:05");
        assert_eq!(duration(65), "00:01:05");
    }

    proptest! {
        #[test]
        fn prop_nice_numbers_are_short_and_close(value in any::<u64>()) {
            let text = nice_number(value);
            prop_assert!(text.len() <= 5, "{value}: {text}");
            // Reading the largest "16.0E" back would overflow.
            if let Ok(back) = parse_number(&text) {
                prop_assert!(back.abs_diff(value) <= value / 18 + 1, "{value}: {text}");
            }
        }

        #[test]
        fn prop_any_text_is_a_number_or_an_error(text in ".{0,12}") {
            let _ = parse_number(&text);
        }
    }
}
