//! What a replay measured, and the tables of it.

use std::collections::BTreeMap;

use super::trace::{Kind, Traced};

/// Percentiles that are shown.
const PERCENTILES: [(&str, f64); 5] = [
    ("50%", 0.5),
    ("90%", 0.9),
    ("99%", 0.99),
    ("99.9%", 0.999),
    ("max", 1.0),
];

/// Latencies of commands of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Their bytes.
    pub bytes: u64,
    /// How long each took, in ns, in no order.
    pub each_ns: Vec<u64>,
}

impl Latencies {
    /// The latency that this part of the commands did not exceed (nearest rank).
    #[must_use]
    pub fn percentile_ns(&self, part: f64) -> u64 {
        let mut sorted = self.each_ns.clone();
        sorted.sort_unstable();
        let rank = (part * sorted.len() as f64).ceil() as usize;
        let at = rank.clamp(1, sorted.len().max(1)) - 1;
        sorted.get(at).copied().unwrap_or(0)
    }

    /// All percentiles that are shown, by their names.
    #[must_use]
    pub fn percentiles_ns(&self) -> Vec<(&'static str, u64)> {
        let one = |(name, part): (&'static str, f64)| (name, self.percentile_ns(part));
        PERCENTILES.into_iter().map(one).collect()
    }

    /// The mean.
    #[must_use]
    pub fn mean_ns(&self) -> u64 {
        let sum: u128 = self.each_ns.iter().map(|ns| u128::from(*ns)).sum();
        let mean = sum / (self.each_ns.len() as u128).max(1);
        u64::try_from(mean).expect("at most the largest of them")
    }

    /// How many took less than each power of two, in ns, and not less than the one before.
    #[must_use]
    pub fn histogram(&self) -> BTreeMap<u32, u64> {
        let mut counts = BTreeMap::new();
        for ns in &self.each_ns {
            *counts.entry(64 - ns.leading_zeros()).or_default() += 1;
        }
        counts
    }
}

/// What a replay measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Latencies by kind of command.
    pub latencies: BTreeMap<Kind, Latencies>,
    /// From the first command until the last was done.
    pub elapsed_ns: u64,
    /// How far behind its time a command was issued, at most.
    pub lag_ns: u64,
    /// Writes that begin or end within a physical sector, as the device reports it.
    pub partial_writes: u64,
}

impl Replayed {
    pub(super) fn note(&mut self, kind: Kind, bytes: u64, latency_ns: u64) {
        let latencies = self.latencies.entry(kind).or_default();
        latencies.bytes += bytes;
        latencies.each_ns.push(latency_ns);
    }

    pub(super) fn note_lag(&mut self, lag_ns: u64) {
        self.lag_ns = self.lag_ns.max(lag_ns);
    }

    pub(super) fn note_write(&mut self, write: &Traced, stripesize: u32, stripeoffset: u32) {
        let stripe = u64::from(stripesize.max(1));
        let is_off =
            |at: u64| !(at + stripe - u64::from(stripeoffset) % stripe).is_multiple_of(stripe);
        if is_off(write.offset) || is_off(write.offset + write.len) {
            self.partial_writes += 1;
        }
    }

    /// Latencies of all commands.
    #[must_use]
    pub fn all(&self) -> Latencies {
        let mut all = Latencies::default();
        for one in self.latencies.values() {
            all.bytes += one.bytes;
            all.each_ns.extend(&one.each_ns);
        }
        all
    }

    /// How many commands there were.
    #[must_use]
    pub fn count(&self) -> usize {
        self.latencies.values().map(|one| one.each_ns.len()).sum()
    }

    /// Rates and percentiles, a line for each kind of command.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = format!(
            "{:<6}{:>9}{:>10}{:>9}{:>9}{:>10}",
            "", "count", "MB", "MB/s", "IOPS", "mean"
        );
        for (name, _) in PERCENTILES {
            out += &format!("{name:>10}");
        }
        out.push('\n');
        let seconds = (self.elapsed_ns as f64 / 1e9).max(1e-9);
        for (kind, latencies) in &self.latencies {
            let (count, mb) = (latencies.each_ns.len(), latencies.bytes as f64 / 1e6);
            out += &format!("{:<6}{count:>9}{mb:>10.3}", kind.name());
            out += &format!("{:>9.3}{:>9.1}", mb / seconds, count as f64 / seconds);
            out += &format!("{:>10}", time(latencies.mean_ns()));
            for (_, ns) in latencies.percentiles_ns() {
                out += &format!("{:>10}", time(ns));
            }
            out.push('\n');
        }
        out
    }

    /// How many commands took how long, a line for each power of two of a nanosecond, a column for each kind and one
    /// for all.
    #[must_use]
    pub fn histogram(&self) -> String {
        let kinds = self.latencies.iter();
        let mut counts: Vec<(&str, BTreeMap<u32, u64>)> = kinds
            .map(|(kind, one)| (kind.name(), one.histogram()))
            .collect();
        counts.push(("all", self.all().histogram()));
        let bits = || counts.iter().flat_map(|(_, one)| one.keys().copied());
        let (Some(least), Some(most)) = (bits().min(), bits().max()) else {
            return String::new();
        };
        let mut out = format!("{:<12}", "less than");
        for (name, _) in &counts {
            out += &format!("{name:>9}");
        }
        out.push('\n');
        for bit in least..=most {
            out += &format!("{:<12}", time(1_u64.checked_shl(bit).unwrap_or(u64::MAX)));
            for (_, one) in &counts {
                out += &format!("{:>9}", one.get(&bit).copied().unwrap_or(0));
            }
            out.push('\n');
        }
        out
    }
}

/// `12.3 ms`
fn time(ns: u64) -> String {
    match ns as f64 {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}
