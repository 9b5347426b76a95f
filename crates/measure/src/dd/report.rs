//! The lines that `dd` ends with.

use super::{Counts, Flavour, Status};
use crate::number::human;

const NS_PER_S: f64 = 1e9;

impl Counts {
    /// The closing lines, each with a newline.
    #[must_use]
    pub fn summary(&self, flavour: Flavour, status: Status, elapsed_ns: u64) -> String {
        if status == Status::None {
            return String::new();
        }
        let mut text = format!(
            "{}+{} records in\n{}+{} records out\n",
            self.in_full, self.in_partial, self.out_full, self.out_partial
        );
        if self.odd_swabs > 0 {
            let plural = if self.odd_swabs == 1 { "" } else { "s" };
            text.push_str(&format!(
                "{} odd length swab block{plural}\n",
                self.odd_swabs
            ));
        }
        if status != Status::NoTransfer {
            text.push_str(&match flavour {
                Flavour::FreeBsd => free_bsd_line(self.bytes, elapsed_ns),
                Flavour::Gnu => gnu_line(self.bytes, elapsed_ns, &general(seconds(elapsed_ns))),
            });
            text.push('\n');
        }
        text
    }
}

/// The line that `status=progress` prints every second, without a newline.
#[must_use]
pub fn progress_line(flavour: Flavour, bytes: u64, elapsed_ns: u64) -> String {
    match flavour {
        Flavour::FreeBsd => format!(
            "  {bytes} bytes ({}, {}) transferred {:.3}s, {}/s",
            human(bytes, 1000),
            human(bytes, 1024),
            seconds(elapsed_ns),
            human(rate(bytes, elapsed_ns), 1000),
        ),
        Flavour::Gnu => {
            let whole = format!("{:.0}", seconds(elapsed_ns));
            gnu_line(bytes, elapsed_ns, &whole)
        }
    }
}

fn seconds(elapsed_ns: u64) -> f64 {
    elapsed_ns as f64 / NS_PER_S
}

fn rate(bytes: u64, elapsed_ns: u64) -> u64 {
    let wide = u128::from(bytes) * 1_000_000_000 / u128::from(elapsed_ns.max(1));
    u64::try_from(wide).unwrap_or(u64::MAX)
}

fn free_bsd_line(bytes: u64, elapsed_ns: u64) -> String {
    if elapsed_ns == 0 {
        // Only in simulated time, with a host profile whose work costs nothing.
        let rate = if bytes == 0 { "0" } else { "inf" };
        return format!("{bytes} bytes transferred in 0.000000 secs ({rate} bytes/sec)");
    }
    // At least 1 us, the resolution of its clock.
    let secs = seconds(elapsed_ns.max(1000));
    let rate = bytes as f64 / secs;
    format!("{bytes} bytes transferred in {secs:.6} secs ({rate:.0} bytes/sec)")
}

fn gnu_line(bytes: u64, elapsed_ns: u64, secs: &str) -> String {
    let (si, iec) = (human(bytes, 1000), human(bytes, 1024));
    let size = match bytes {
        1 => "1 byte".to_owned(),
        _ if bytes < 1000 => format!("{bytes} bytes"),
        _ if bytes < 1024 => format!("{bytes} bytes ({si})"),
        _ => format!("{bytes} bytes ({si}, {iec})"),
    };
    let rate = match elapsed_ns {
        0 => "Infinity B".to_owned(),
        _ => human_rate(bytes, elapsed_ns),
    };
    format!("{size} copied, {secs} s, {rate}/s")
}

/// A rate as GNU's prints it: in `kB` or larger, with one decimal below 100; but as [`human`] if the
/// time divides a second evenly or is a whole number of seconds.
fn human_rate(bytes: u64, elapsed_ns: u64) -> String {
    const NS: u64 = 1_000_000_000;
    if NS.is_multiple_of(elapsed_ns) || elapsed_ns.is_multiple_of(NS) {
        return human(rate(bytes, elapsed_ns), 1000);
    }
    let mut scaled = bytes as f64 * NS_PER_S / elapsed_ns as f64 / 1000.0;
    let mut prefixes = "kMGTPE".chars();
    let mut prefix = prefixes.next().unwrap_or_default();
    while scaled >= 1000.0
        && let Some(next) = prefixes.next()
    {
        prefix = next;
        scaled /= 1000.0;
    }
    let text = format!("{scaled:.1}");
    if text.len() <= "99.9".len() {
        return format!("{text} {prefix}B");
    }
    format!("{scaled:.0} {prefix}B")
}

/// A number as C's `%g` prints it: six significant digits, no trailing zeros.
fn general(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{number:.5e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        let decimals = usize::try_from(5 - exponent).unwrap_or(0);
        return without_zeros(&format!("{number:.decimals$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs())
}

fn without_zeros(number: &str) -> String {
    if !number.contains('.') {
        return number.to_owned();
    }
    number
        .trim_end_matches('0')
        .trim_end_matches('.')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_bsds_lines_are_as_published() {
        let counts = Counts {
            in_full: 1000,
            out_full: 1000,
            bytes: 1_048_576_000,
            ..Counts::default()
        };
        assert_eq!(
            counts.summary(Flavour::FreeBsd, Status::All, 92_314_500_000),
            "1000+0 records in\n1000+0 records out\n\
             1048576000 bytes transferred in 92.314500 secs (11358736 bytes/sec)\n"
        );
        let records = "1000+0 records in\n1000+0 records out\n";
        assert_eq!(counts.summary(Flavour::Gnu, Status::NoTransfer, 1), records);
        assert_eq!(counts.summary(Flavour::Gnu, Status::None, 1), "");
    }

    #[test]
    fn gnus_lines_are_as_it_prints_them() {
        let check = |bytes, ns, expect: &str| {
            let counts = Counts {
                bytes,
                ..Counts::default()
            };
            let text = counts.summary(Flavour::Gnu, Status::All, ns);
            assert_eq!(text.lines().last(), Some(expect));
        };
        check(0, 0, "0 bytes copied, 0 s, Infinity B/s");
        check(0, 10_001, "0 bytes copied, 1.0001e-05 s, 0.0 kB/s");
        check(1, 1000, "1 byte copied, 1e-06 s, 1.0 MB/s");
        check(
            1 << 20,
            3_000_001,
            "1048576 bytes (1.0 MB, 1.0 MiB) copied, 0.003 s, 350 MB/s",
        );
        check(512, 123_456, "512 bytes copied, 0.000123456 s, 4.1 MB/s");
        check(
            1000,
            2_000_000_000,
            "1000 bytes (1.0 kB) copied, 2 s, 500 B/s",
        );
        check(
            1_048_576_000,
            92_314_512_345,
            "1048576000 bytes (1.0 GB, 1000 MiB) copied, 92.3145 s, 11.4 MB/s",
        );
        check(
            1 << 20,
            1_234_567_000_000,
            "1048576 bytes (1.0 MB, 1.0 MiB) copied, 1234.57 s, 0.8 kB/s",
        );
    }
}
