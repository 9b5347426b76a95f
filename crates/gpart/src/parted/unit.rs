//! Units, and locations given in them.

use crate::Shape;

/// The unit in which sizes are read and printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Unit {
    /// Printed with the decimal prefix that suits the size; read as megabytes.
    #[default]
    Compact,
    /// `s`: sectors.
    Sector,
    /// `B`
    Byte,
    /// `kB`, `MB`, `GB`, `TB`: a power of 1000.
    Decimal(u32),
    /// `KiB`, `MiB`, `GiB`, `TiB`: a power of 1024.
    Binary(u32),
    /// `%` of the disk.
    Percent,
}

const NAMES: &[(&str, Unit)] = &[
    ("s", Unit::Sector),
    ("B", Unit::Byte),
    ("kB", Unit::Decimal(1)),
    ("MB", Unit::Decimal(2)),
    ("GB", Unit::Decimal(3)),
    ("TB", Unit::Decimal(4)),
    ("kiB", Unit::Binary(1)),
    ("MiB", Unit::Binary(2)),
    ("GiB", Unit::Binary(3)),
    ("TiB", Unit::Binary(4)),
    ("%", Unit::Percent),
    ("compact", Unit::Compact),
];

impl Unit {
    /// Parses its name, in any case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Unit> {
        let found = NAMES
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(text));
        found.map(|(_, unit)| *unit)
    }

    /// The names of parted's units. `cyl` and `chs` are not supported here.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        let mut names: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
        names.extend(["cyl", "chs"]);
        names
    }

    /// As it is printed after a number.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = NAMES.iter().find(|(_, unit)| *unit == self);
        found.map_or("", |(name, _)| *name)
    }

    fn bytes(self, shape: &Shape) -> u64 {
        match self {
            Unit::Compact => 1_000_000,
            Unit::Sector => u64::from(shape.sectorsize),
            Unit::Byte => 1,
            Unit::Decimal(power) => 1000u64.pow(power),
            Unit::Binary(power) => 1u64 << (10 * power),
            Unit::Percent => (shape.mediasize / 100).max(1),
        }
    }

    /// Formats a place on the disk, or a size, given in bytes.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "three digits are printed")]
    pub fn format(self, shape: &Shape, byte: u64) -> String {
        let unit = match self {
            Unit::Compact => [4, 3, 2, 1]
                .into_iter()
                .find(|power| byte >= 10 * 1000u64.pow(*power))
                .map_or(Unit::Byte, Unit::Decimal),
            unit => unit,
        };
        match (self, unit) {
            (_, Unit::Sector) => return format!("{}s", byte / u64::from(shape.sectorsize)),
            (Unit::Byte, _) => return format!("{byte}B"),
            _ => {}
        }
        let value = byte as f64 / unit.bytes(shape) as f64 * (1.0 + f64::EPSILON);
        let rounded = value
            + match value {
                v if v < 10.0 => 0.005,
                v if v < 100.0 => 0.05,
                _ => 0.5,
            };
        let digits = match rounded {
            v if v < 10.0 => 2,
            v if v < 100.0 => 1,
            _ => 0,
        };
        format!("{value:.digits$}{}", unit.name())
    }

    /// Formats a sector number, or a number of sectors.
    #[must_use]
    pub fn format_sector(self, shape: &Shape, sector: u64) -> String {
        self.format(shape, sector.saturating_mul(u64::from(shape.sectorsize)))
    }

    /// Formats the last byte of a sector.
    pub(super) fn format_end(self, shape: &Shape, sector: u64) -> String {
        let next = sector
            .saturating_add(1)
            .saturating_mul(u64::from(shape.sectorsize));
        self.format(shape, next.saturating_sub(1))
    }
}

/// A sector, and the range around it that is acceptable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The sector; -1 for an end before the first one.
    pub sector: i64,
    /// First and last acceptable sector, inclusive.
    pub range: (u64, u64),
}

impl Location {
    /// Exactly that sector.
    #[must_use]
    pub fn exactly(sector: i64) -> Location {
        let at = u64::try_from(sector).unwrap_or(0);
        Location {
            sector,
            range: (at, at),
        }
    }

    /// Interprets it as an end: given in binary units, it means the sector before. `default`: the unit of a bare
    /// number.
    #[must_use]
    pub fn as_end(self, text: &str, default: Unit, start: &Location) -> Location {
        let text = text.trim_end().to_ascii_lowercase();
        let is_bare = text.ends_with(|c: char| c.is_ascii_digit());
        let is_binary = text.ends_with("ib") || is_bare && matches!(default, Unit::Binary(_));
        if is_binary && self.range.0 == self.range.1 && self.sector != start.sector {
            return Location::exactly(self.sector - 1);
        }
        self
    }
}

/// Reads a location: a number with or without a unit; negative ones count from the end.
///
/// # Errors
/// parted's error message.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "as parted does; the result is checked against the disk"
)]
pub fn parse_location(
    text: &str,
    default: Unit,
    shape: &Shape,
    device: &str,
) -> Result<Location, String> {
    let invalid = || "Error: Invalid number.".to_owned();
    let text = text.trim();
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+');
    let split = text.find(|c| !is_number(c)).unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let number: f64 = number.parse().map_err(|_| invalid())?;
    let suffix = suffix.trim();
    let unit = match suffix {
        "" => default,
        "k" | "K" => Unit::Decimal(1),
        "m" | "M" => Unit::Decimal(2),
        "g" | "G" => Unit::Decimal(3),
        "t" | "T" => Unit::Decimal(4),
        _ => Unit::parse(suffix).ok_or_else(invalid)?,
    };
    let bytes = unit.bytes(shape);
    let sectors = shape.sectors();
    let last = sectors.saturating_sub(1);
    let radius = if matches!(unit, Unit::Sector | Unit::Byte | Unit::Binary(_)) {
        0
    } else {
        i128::from(bytes.div_ceil(u64::from(shape.sectorsize)) / 2) - 1
    };
    let radius = radius.max(0);
    let mut sector = (number * bytes as f64 / f64::from(shape.sectorsize)) as i128;
    if text.starts_with('-') {
        sector += i128::from(sectors);
    }
    let clip = |s: i128| u64::try_from(s.max(0)).unwrap_or(u64::MAX).min(last);
    let range = (clip(sector - radius), clip(sector + radius));
    let is_outside = sector - i128::from(range.1) > radius || i128::from(range.0) - sector > radius;
    if is_outside {
        return Err(format!(
            "Error: The location {text} is outside of the device {device}."
        ));
    }
    Ok(Location {
        sector: i64::try_from(clip(sector)).unwrap_or(i64::MAX),
        range,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        mediasize: 3 << 30,
        sectorsize: 512,
        stripesize: 512,
        stripeoffset: 0,
    };

    #[test]
    fn prints_as_parted_does() {
        let check = |unit: &str, byte, expect: &str| {
            let unit = Unit::parse(unit).unwrap();
            assert_eq!(unit.format(&SHAPE, byte), expect);
        };
        check("compact", 3 << 30, "3221MB");
        check("compact", 1 << 20, "1049kB");
        check("compact", 17408, "17.4kB");
        check("compact", 512, "512B");
        check("compact", 0, "0.00B");
        check("B", 17408, "17408B");
        check("B", 0, "0B");
        check("MiB", 1 << 20, "1.00MiB");
        check("MiB", (1 << 30) - 1, "1024MiB");
        check("TB", 3 << 30, "0.00TB");
        check("%", 1 << 20, "0.03%");
        check("%", 3 << 30, "100%");
        check("s", 1 << 20, "2048s");
        check("kb", 1 << 30, "1073742kB");
    }

    #[test]
    fn locations_have_ranges() {
        let parse = |text: &str| parse_location(text, Unit::Compact, &SHAPE, "x.img");
        let one = parse("1MB").unwrap();
        assert_eq!((one.sector, one.range), (1953, (977, 2929)));
        assert_eq!(parse("1").unwrap(), one);
        let one = parse("1MiB").unwrap();
        assert_eq!((one.sector, one.range), (2048, (2048, 2048)));
        assert_eq!(parse("-1s").unwrap().sector, 6_291_455);
        assert_eq!(parse("0%").unwrap().range, (0, 31456));
        assert_eq!(
            parse("5GB").unwrap_err(),
            "Error: The location 5GB is outside of the device x.img."
        );
        for text in ["", "x", "1x", "--1", "1e3"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
