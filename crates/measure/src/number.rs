//! Numbers with suffixes, as expand_number(3) and both `dd`s read them.

use std::fmt;

/// Why a text is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberError {
    /// Not digits with a known suffix.
    Invalid,
    /// It does not fit in 64 bits.
    TooLarge,
}

impl fmt::Display for NumberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NumberError::Invalid => "Invalid argument",
            NumberError::TooLarge => "Result too large",
        })
    }
}

impl std::error::Error for NumberError {}

/// Which `dd` a number is meant for: they differ in their suffixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// FreeBSD's
    FreeBsd,
    /// GNU coreutils'
    Gnu,
}

/// Reads a number as expand_number(3): decimal, `0x` or octal digits, then perhaps one of
/// `b k m g t p e` in either case, each 1024 times the one before it.
///
/// # Errors
/// See [`NumberError`].
pub fn expand_number(text: &str) -> Result<u64, NumberError> {
    let (number, rest) = leading_number(text.trim_start())?;
    let mut suffix = rest.chars();
    let shift = match (suffix.next().map(|c| c.to_ascii_lowercase()), suffix.next()) {
        (None | Some('b'), None) => 0,
        (Some('k'), None) => 10,
        (Some('m'), None) => 20,
        (Some('g'), None) => 30,
        (Some('t'), None) => 40,
        (Some('p'), None) => 50,
        (Some('e'), None) => 60,
        _ => return Err(NumberError::Invalid),
    };
    scaled(number, 1 << shift)
}

/// What an amount in `dd` counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// The number of bytes or blocks.
    pub number: u64,
    /// Bytes; blocks otherwise. GNU's suffix `B`.
    pub is_bytes: bool,
}

/// Reads a number as `dd` does, with products (`2x512`).
///
/// Suffixes of both: `b` is 512; K, M, G, T, P, E are powers of 1024, in either case; `kB`, `MB`, …
/// are powers of 1000 and `KiB`, `MiB`, … of 1024; `c` is 1. `w` is 2 for GNU's and 4 (an int) for
/// FreeBSD's.
///
/// # Errors
/// See [`NumberError`].
pub fn dd_number(text: &str, flavour: Flavour) -> Result<u64, NumberError> {
    let mut product: u64 = 1;
    for factor in text.split(['x', '*']) {
        product = scaled(dd_factor(factor, flavour)?, product)?;
    }
    Ok(product)
}

/// Reads a count, skip or seek like [`dd_number`]; for GNU's, one with a `B` counts bytes.
///
/// # Errors
/// See [`NumberError`].
pub fn dd_amount(text: &str, flavour: Flavour) -> Result<Amount, NumberError> {
    let number = dd_number(text, flavour)?;
    Ok(Amount {
        number,
        is_bytes: flavour == Flavour::Gnu && text.contains('B'),
    })
}

fn dd_factor(text: &str, flavour: Flavour) -> Result<u64, NumberError> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, suffix) = text.split_at(digits);
    if number.is_empty() {
        return Err(NumberError::Invalid);
    }
    let number = number.parse().map_err(|_| NumberError::TooLarge)?;
    scaled(number, suffix_factor(suffix, flavour)?)
}

fn suffix_factor(suffix: &str, flavour: Flavour) -> Result<u64, NumberError> {
    match suffix {
        "" | "c" | "B" => return Ok(1),
        "b" => return Ok(512),
        "w" if flavour == Flavour::Gnu => return Ok(2),
        "w" => return Ok(4),
        _ => {}
    }
    let mut letters = suffix.chars();
    let prefix = letters.next().ok_or(NumberError::Invalid)?;
    let power = match prefix.to_ascii_lowercase() {
        'k' => 1,
        'm' => 2,
        'g' => 3,
        't' => 4,
        'p' => 5,
        'e' => 6,
        'z' | 'y' => u32::MAX,
        _ => return Err(NumberError::Invalid),
    };
    let base: u64 = match letters.as_str() {
        "" | "iB" => 1024,
        "B" => 1000,
        _ => return Err(NumberError::Invalid),
    };
    base.checked_pow(power).ok_or(NumberError::TooLarge)
}

/// The digits that a text begins with, as strtoumax(3) with base 0 reads them.
fn leading_number(text: &str) -> Result<(u64, &str), NumberError> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = match hexadecimal {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_hexdigit()) => (rest, 16),
        _ if text.starts_with('0') => (text, 8),
        _ => (text, 10),
    };
    let len = digits.len() - digits.trim_start_matches(|c: char| c.is_digit(radix)).len();
    let (number, rest) = digits.split_at(len);
    if number.is_empty() {
        return Err(NumberError::Invalid);
    }
    let number = u64::from_str_radix(number, radix).map_err(|_| NumberError::TooLarge)?;
    Ok((number, rest))
}

fn scaled(number: u64, factor: u64) -> Result<u64, NumberError> {
    number.checked_mul(factor).ok_or(NumberError::TooLarge)
}

/// A human-readable rate or size, as GNU `dd` prints it: one decimal below ten, none above.
#[must_use]
pub fn human(number: u64, base: u64) -> String {
    assert!(base == 1000 || base == 1024, "a base of {base}");
    let prefixes = if base == 1000 {
        ["", "k", "M", "G", "T", "P", "E"]
    } else {
        ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
    };
    let mut unit: u128 = 1;
    let mut at = 0;
    while at + 1 < prefixes.len() && u128::from(number) >= unit * u128::from(base) {
        unit *= u128::from(base);
        at += 1;
    }
    if at == 0 {
        return format!("{number} B");
    }
    let number = u128::from(number);
    let tenths = divide_to_even(number * 10, unit);
    if tenths < 100 {
        return format!("{}.{} {}B", tenths / 10, tenths % 10, prefixes[at]);
    }
    let whole = divide_to_even(number, unit);
    if whole == u128::from(base) && at + 1 < prefixes.len() {
        return format!("1.0 {}B", prefixes[at + 1]);
    }
    format!("{whole} {}B", prefixes[at])
}

/// Rounds to the nearest; a half goes to the even neighbour.
fn divide_to_even(number: u128, by: u128) -> u128 {
    let (whole, rest) = (number / by, number % by);
    let up = rest * 2 > by || rest * 2 == by && whole % 2 == 1;
    whole + u128::from(up)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expand_number_knows_its_suffixes() {
        let check = |text: &str, expect| assert_eq!(expand_number(text), expect, "{text}");
        check("512", Ok(512));
        check("4k", Ok(4096));
        check("4K", Ok(4096));
        check("128m", Ok(128 << 20));
        check("1g", Ok(1 << 30));
        check("0x200", Ok(512));
        check("010", Ok(8));
        check("0", Ok(0));
        check("7b", Ok(7));
        check("16e", Err(NumberError::TooLarge));
        for text in ["", "k", "4kb", "-1", "1.5m", "4 k", "99x"] {
            check(text, Err(NumberError::Invalid));
        }
    }

    #[test]
    fn dd_numbers_have_the_suffixes_of_both() {
        let check = |text: &str, expect| {
            assert_eq!(dd_number(text, Flavour::Gnu), expect, "{text}");
        };
        check("1m", Ok(1 << 20));
        check("1M", Ok(1 << 20));
        check("1MB", Ok(1_000_000));
        check("1kB", Ok(1000));
        check("1KiB", Ok(1024));
        check("2b", Ok(1024));
        check("2x512", Ok(1024));
        check("2x3xk", Err(NumberError::Invalid));
        check("3w", Ok(6));
        check("7c", Ok(7));
        check("20Z", Err(NumberError::TooLarge));
        check("99999999999999999999", Err(NumberError::TooLarge));
        for text in ["", "x", "1x", "m", "1q1", "-1", "1mm", "1.5k"] {
            check(text, Err(NumberError::Invalid));
        }
        assert_eq!(dd_number("3w", Flavour::FreeBsd), Ok(12));
        let bytes = dd_amount("5B", Flavour::Gnu).unwrap();
        assert_eq!((bytes.number, bytes.is_bytes), (5, true));
    }

    #[test]
    fn sizes_for_people_round_as_gnu_does() {
        let check = |number, base, expect: &str| assert_eq!(human(number, base), expect);
        check(999, 1000, "999 B");
        check(1000, 1000, "1.0 kB");
        check(1024, 1024, "1.0 KiB");
        check(9_949_999, 1000, "9.9 MB");
        check(9_960_000, 1000, "10 MB");
        check(999_999, 1000, "1.0 MB");
        check(1_048_576_000, 1024, "1000 MiB");
        check(1_048_576_000, 1000, "1.0 GB");
        check(u64::MAX, 1000, "18 EB");
    }
}
