//! What came out: figures, ratios, and what the drives saw.

use serde::{Deserialize, Serialize};

use crate::judge::Verdict;
use crate::recommend::Recommendation;

/// One command as it reached a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEntry {
    /// When, in nanoseconds of the machine's clock.
    pub at_ns: u64,
    /// The first logical sector.
    pub lba: u64,
    /// How many.
    pub sectors: u32,
    /// A write; else a read.
    pub is_write: bool,
    /// It begins or ends inside of a physical sector.
    pub is_partial: bool,
}

/// Everything that a drive was asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DriveTrace {
    /// `ada0`
    pub drive: String,
    /// Its profile.
    pub profile: String,
    /// Bytes of a logical sector.
    pub sector_bytes: u32,
    /// Logical sectors on the drive.
    pub sectors: u64,
    /// How many writes there were.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Writes that began or ended inside of a physical sector.
    pub partial_writes: u64,
    /// How many reads there were.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes by size: power of two of bytes, count.
    pub write_sizes: Vec<(u32, u64)>,
    /// Writes by alignment: power of two of bytes that the first byte's offset on the medium is a
    /// multiple of (at most 12: 4 KiB), count.
    pub write_alignments: Vec<(u32, u64)>,
    /// Commands: all of them, or an even sample of many.
    pub entries: Vec<TraceEntry>,
}

/// A figure that was measured, beside the published one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Its name: the reading's, with its groups filled in.
    pub name: String,
    /// The heading of the reading.
    pub reading: String,
    /// Whether the report draws it.
    pub chart: bool,
    /// What people read.
    pub title: String,
    /// Its unit.
    pub unit: String,
    /// What came out here.
    pub value: f64,
    /// What was published.
    pub published: Option<f64>,
    /// `value / published - 1`, in percent.
    pub deviation_percent: Option<f64>,
    /// How far it may be from that.
    pub tolerance_percent: Option<f64>,
    /// Whether it is within.
    pub verdict: Verdict,
}

/// A ratio of two figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RatioOutcome {
    /// `gnop / plain`, in the cases' titles.
    pub title: String,
    /// What came out here.
    pub value: f64,
    /// What was published.
    pub published: Option<f64>,
    /// `value / published - 1`, in percent.
    pub deviation_percent: Option<f64>,
    /// How far it may be from that.
    pub tolerance_percent: Option<f64>,
    /// Whether it is within.
    pub verdict: Verdict,
}

/// A command that was run, and how long it took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// As one would type it.
    pub command: String,
    /// What it printed.
    pub output: String,
    /// Seconds on the machine's clock.
    pub seconds: f64,
}

/// What came out of one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseOutcome {
    /// The case's name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// The swept values, and those that were set.
    pub parameters: Vec<(String, String)>,
    /// Its commands.
    pub ran: Vec<Ran>,
    /// Its figures.
    pub figures: Vec<Measured>,
    /// What each drive saw.
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

    /// What tells this case from the others, for people.
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

/// What came out of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The experiment's name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Why one would care.
    pub about: String,
    /// Title and author of the write-up.
    pub source: Option<(String, String)>,
    /// What decided all chance.
    pub seed: u64,
    /// Whose processor time was charged, and what it costs there.
    pub host: String,
    /// How to run it again.
    pub again: String,
    /// Its cases.
    pub cases: Vec<CaseOutcome>,
    /// Its ratios.
    pub ratios: Vec<RatioOutcome>,
    /// Root mean square of the deviations by reading: title, percent, tolerance, verdict.
    pub rms: Vec<(String, f64, f64, Verdict)>,
    /// Which configuration to take.
    pub recommendation: Option<Recommendation>,
}

impl Outcome {
    /// Whether every stated tolerance was kept.
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
    pub fn has_several_titles(&self) -> bool {
        self.cases
            .windows(2)
            .any(|pair| pair[0].title != pair[1].title)
    }
}
