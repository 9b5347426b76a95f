//! The outcome: figures, ratios, and the commands that the drives received.

use serde::{Deserialize, Serialize};

use crate::recommend::Recommendation;
use crate::verdict::Verdict;

/// One command as it reached a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEntry {
    /// When, in nanoseconds of the machine's clock.
    pub at_ns: u64,
    /// The first logical sector.
    pub lba: u64,
    /// The number of logical sectors.
    pub sectors: u32,
    /// A write; else a read.
    pub is_write: bool,
    /// It begins or ends inside a physical sector.
    pub is_partial: bool,
}

/// The commands that a drive received, counted and sampled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DriveTrace {
    /// `ada0`
    pub drive: String,
    /// Its profile.
    pub profile: String,
    /// Bytes of a logical sector.
    pub sector_bytes: u32,
    /// Bytes of a physical sector: the true size, not the one the drive reports.
    pub physical_bytes: u32,
    /// Logical sectors on the drive.
    pub sectors: u64,
    /// How many writes there were.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Writes that began or ended inside a physical sector.
    pub partial_writes: u64,
    /// How many reads there were.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// How long its mechanics were busy; 0 for flash.
    pub busy_ns: u64,
    /// What its profile assumes: figure, why.
    pub assumed: Vec<[String; 2]>,
    /// Writes by size: log2 of the bytes, rounded down; count.
    pub write_sizes: Vec<(u32, u64)>,
    /// Writes by alignment: log2 of the largest power of two, in bytes, that divides the write's
    /// offset on the medium (at most 12: 4 KiB); count.
    pub write_alignments: Vec<(u32, u64)>,
    /// One in this many commands is in `entries`; a power of two, 0 for an empty trace.
    pub one_in: u64,
    /// All commands, or an evenly spaced sample if there are many.
    pub entries: Vec<TraceEntry>,
}

/// A figure that was measured, beside the published one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Its name: the reading's, with its groups filled in.
    pub name: String,
    /// The heading of the reading.
    pub reading: String,
    /// Whether the report has a bar chart of it.
    pub chart: bool,
    /// The title to show.
    pub title: String,
    /// Its unit.
    pub unit: String,
    /// The value measured here.
    pub value: f64,
    /// The published value.
    pub published: Option<f64>,
    /// `value / published - 1`, in percent.
    pub deviation_percent: Option<f64>,
    /// The largest absolute deviation that is accepted, in percent.
    pub tolerance_percent: Option<f64>,
    /// Whether it is within the tolerance.
    pub verdict: Verdict,
}

/// A ratio of two figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RatioOutcome {
    /// `gnop / plain`, in the cases' titles.
    pub title: String,
    /// The heading of the reading.
    #[serde(default)]
    pub reading: String,
    /// The value measured here.
    pub value: f64,
    /// The published value.
    pub published: Option<f64>,
    /// `value / published - 1`, in percent.
    pub deviation_percent: Option<f64>,
    /// The largest absolute deviation that is accepted, in percent.
    pub tolerance_percent: Option<f64>,
    /// Whether it is within the tolerance.
    pub verdict: Verdict,
}

/// A command that was run, and how long it took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// As one would type it.
    pub command: String,
    /// Its output.
    pub output: String,
    /// Seconds on the machine's clock.
    pub seconds: f64,
    /// How much of that all cores of the host were busy, in percent.
    pub processor_percent: f64,
    /// How much of that the mechanics of the busiest disk were busy, in percent.
    pub drive_percent: f64,
}

/// What is assumed, and what depends on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assumed {
    /// What it is, and why.
    pub about: String,
    /// The parameter and its value, if it has one.
    pub value: Option<(String, String)>,
    /// What was measured with another value, if it was asked for.
    pub figures: Vec<Sensitivity>,
}

/// A figure at other values of what is assumed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sensitivity {
    /// The case.
    pub case: String,
    /// The figure's title.
    pub title: String,
    /// Its unit.
    pub unit: String,
    /// At half the value that is assumed, at that value, and at twice that.
    pub values: [f64; 3],
}

/// A histogram of one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// The title to show.
    pub title: String,
    /// Label and count of each bar.
    pub bars: Vec<(String, u64)>,
}

/// The outcome of one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseOutcome {
    /// The case's name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// The swept values.
    pub parameters: Vec<(String, String)>,
    /// Its commands.
    pub ran: Vec<Ran>,
    /// Its figures.
    pub figures: Vec<Measured>,
    /// Its histograms.
    #[serde(default)]
    pub tallies: Vec<Tally>,
    /// The commands that each drive received.
    pub drives: Vec<DriveTrace>,
    /// Seconds on the machine's clock, all commands together.
    pub seconds: f64,
}

impl CaseOutcome {
    /// A figure by its name.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<&Measured> {
        self.figures.iter().find(|figure| figure.name == name)
    }

    /// The label that distinguishes this case from the others.
    #[must_use]
    pub fn label(&self, with_title: bool) -> String {
        let values = self.parameters.iter().map(|(k, v)| format!("{k}={v}"));
        let values = values.collect::<Vec<_>>().join(" ");
        match (with_title, values.is_empty()) {
            (_, true) => self.title.clone(),
            (true, false) => format!("{}: {values}", self.title),
            (false, false) => values,
        }
    }
}

/// The outcome of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The experiment's name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Why it matters.
    pub about: String,
    /// Title and author of the write-up.
    pub source: Option<(String, String)>,
    /// The seed of all randomness.
    pub seed: u64,
    /// The host profile whose processor time was charged, and its prices.
    pub host: String,
    /// Whether what the commands say is a result, besides figures.
    #[serde(default)]
    pub answers: bool,
    /// What is assumed about it, and what depends on that.
    pub assumed: Vec<Assumed>,
    /// What the profiles of the drives assume: profile, figure, why.
    pub assumed_of_drives: Vec<[String; 3]>,
    /// How to run it again.
    pub again: String,
    /// Its cases.
    pub cases: Vec<CaseOutcome>,
    /// Its ratios.
    pub ratios: Vec<RatioOutcome>,
    /// Root mean square of the deviations by reading: title, percent, tolerance, verdict.
    pub rms: Vec<(String, f64, f64, Verdict)>,
    /// The recommended configuration.
    pub recommendation: Option<Recommendation>,
}

impl Outcome {
    /// Whether everything is within its stated tolerance.
    #[must_use]
    pub fn is_within_tolerances(&self) -> bool {
        let missed = |verdict: &Verdict| *verdict == Verdict::Missed;
        let mut figures = self.cases.iter().flat_map(|case| &case.figures);
        !figures.any(|figure| missed(&figure.verdict))
            && !self.ratios.iter().any(|ratio| missed(&ratio.verdict))
            && !self.rms.iter().any(|(.., verdict)| missed(verdict))
    }

    /// Whether cases differ in more than swept values.
    #[must_use]
    pub(crate) fn has_several_titles(&self) -> bool {
        self.cases
            .windows(2)
            .any(|pair| pair[0].title != pair[1].title)
    }
}

/// What one or more commands did to the drives of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// The machine's clock before.
    pub start_ns: u64,
    /// The machine's clock after.
    pub end_ns: u64,
    /// How long all cores together worked.
    pub processor_ns: u64,
    /// The cores of the host; 0 where computing is free.
    pub cores: u32,
    /// The commands that each drive received.
    pub drives: Vec<DriveTrace>,
}

/// The most commands of a drive that are kept one by one; beyond that they are sampled.
const ENTRIES_MAX: usize = 40_000;

impl DriveTrace {
    /// Records a command. `alignment` is log2 of the alignment of the write's first byte on the
    /// medium, in bytes.
    pub fn note(&mut self, entry: TraceEntry, alignment: u32) {
        let bytes = u64::from(entry.sectors) * u64::from(self.sector_bytes);
        if entry.is_write {
            self.writes += 1;
            self.written_bytes += bytes;
            self.partial_writes += u64::from(entry.is_partial);
            count(&mut self.write_sizes, bytes.max(1).ilog2(), 1);
            count(&mut self.write_alignments, alignment, 1);
        } else {
            self.reads += 1;
            self.read_bytes += bytes;
        }
        self.one_in = self.one_in.max(1);
        if (self.writes + self.reads).is_multiple_of(self.one_in) {
            self.entries.push(entry);
        }
        while self.entries.len() > ENTRIES_MAX {
            self.halve();
        }
    }

    /// Adds the trace of a later command.
    pub fn absorb(&mut self, later: DriveTrace) {
        self.writes += later.writes;
        self.written_bytes += later.written_bytes;
        self.partial_writes += later.partial_writes;
        self.reads += later.reads;
        self.read_bytes += later.read_bytes;
        self.busy_ns += later.busy_ns;
        for &(power, n) in &later.write_sizes {
            count(&mut self.write_sizes, power, n);
        }
        for &(power, n) in &later.write_alignments {
            count(&mut self.write_alignments, power, n);
        }
        let mut later_entries = DriveTrace {
            one_in: later.one_in.max(1),
            entries: later.entries,
            ..DriveTrace::default()
        };
        self.one_in = self.one_in.max(1);
        while self.one_in < later_entries.one_in {
            self.halve();
        }
        while later_entries.one_in < self.one_in {
            later_entries.halve();
        }
        self.entries.append(&mut later_entries.entries);
        while self.entries.len() > ENTRIES_MAX {
            self.halve();
        }
    }

    /// Keeps every other command.
    fn halve(&mut self) {
        let mut keep = false;
        self.entries.retain(|_| {
            keep = !keep;
            keep
        });
        self.one_in *= 2;
    }
}

impl Seen {
    /// How busy all cores were, in percent.
    #[must_use]
    pub fn processor_percent(&self) -> f64 {
        self.percent(self.processor_ns, self.cores)
    }

    /// How busy the mechanics of the busiest disk were, in percent.
    #[must_use]
    pub fn drive_percent(&self) -> f64 {
        let busiest = self.drives.iter().map(|drive| drive.busy_ns).max();
        self.percent(busiest.unwrap_or(0), 1)
    }

    fn percent(&self, busy_ns: u64, of: u32) -> f64 {
        let time_ns = self.end_ns.saturating_sub(self.start_ns) * u64::from(of);
        match time_ns {
            0 => 0.0,
            time_ns => (busy_ns as f64 / time_ns as f64 * 100.0).min(100.0),
        }
    }

    /// Adds the trace of a later command.
    pub fn absorb(&mut self, later: Seen) {
        self.end_ns = later.end_ns;
        for trace in later.drives {
            match self.drives.iter_mut().find(|d| d.drive == trace.drive) {
                Some(known) => known.absorb(trace),
                None => self.drives.push(trace),
            }
        }
    }
}

fn count(counts: &mut Vec<(u32, u64)>, power: u32, n: u64) {
    match counts.iter_mut().find(|(known, _)| *known == power) {
        Some((_, sum)) => *sum += n,
        None => {
            counts.push((power, n));
            counts.sort_unstable();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_stay_exact_when_commands_are_thinned_out() {
        let mut trace = DriveTrace {
            sector_bytes: 512,
            ..DriveTrace::default()
        };
        for at in 0..100_000u64 {
            let entry = TraceEntry {
                at_ns: at,
                lba: at * 8,
                sectors: 8,
                is_write: at % 2 == 0,
                is_partial: at % 4 == 0,
            };
            trace.note(entry, 12);
        }
        assert_eq!(
            (trace.writes, trace.reads, trace.partial_writes),
            (50_000, 50_000, 25_000)
        );
        assert_eq!(trace.write_sizes, [(12, 50_000)]);
        assert!(trace.entries.len() <= ENTRIES_MAX && trace.entries.len() > ENTRIES_MAX / 4);
        let early = trace.entries.iter().filter(|e| e.at_ns < 50_000).count();
        assert!(
            early.abs_diff(trace.entries.len() / 2) < 2,
            "the sample is even"
        );
        let mut sum = Seen {
            drives: vec![trace.clone()],
            ..Seen::default()
        };
        sum.absorb(Seen {
            drives: vec![trace],
            end_ns: 9,
            ..Seen::default()
        });
        assert_eq!((sum.drives[0].writes, sum.end_ns), (100_000, 9));
    }
}
