//! The report of a benchmark, in the original's format.

use super::{Options, Score, Test};

const RULE: &str =
    "------------------------------------------------------------------------------\n";
const MIB: u64 = 1 << 20;
const NS_PER_S: u64 = 1_000_000_000;

/// The data of a report.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    /// The heading, one line.
    pub program: &'a str,
    /// The profile's name.
    pub profile: &'a str,
    /// The device that was measured, and its size.
    pub target: &'a str,
    /// How it was opened.
    pub mode: &'a str,
    /// The date of the run.
    pub date: &'a str,
    /// The system it ran on.
    pub system: &'a str,
    /// The options of the run.
    pub options: &'a Options,
    /// The outcome.
    pub scores: &'a [Score],
}

impl Test {
    /// The test's name in the report: `SEQ    1MiB (Q=  8, T= 1)`.
    #[must_use]
    pub fn name(&self) -> String {
        let order = if self.is_random { "RND" } else { "SEQ" };
        let size = if self.block_bytes >= MIB && self.block_bytes.is_multiple_of(MIB) {
            format!("{:4}MiB", self.block_bytes / MIB)
        } else {
            format!("{:4}KiB", self.block_bytes / 1024)
        };
        format!("{order} {size} (Q={:3}, T={:2})", self.queues, self.threads)
    }
}

impl Score {
    /// The line of the report.
    #[must_use]
    pub fn text(&self) -> String {
        format!(
            "  {}: {:9.3} MB/s [{:9.1} IOPS] <{:9.2} us>\n",
            self.test.name(),
            self.mb_per_s(),
            self.iops(),
            self.latency_us()
        )
    }
}

impl Report<'_> {
    /// The whole report.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{RULE}{}\n{RULE}", self.program);
        text.push_str("* MB/s = 1,000,000 bytes/s [SATA/600 = 600,000,000 bytes/s]\n");
        text.push_str("* KB = 1000 bytes, KiB = 1024 bytes\n");
        for (is_write, title) in [(false, "Read"), (true, "Write")] {
            let mut scores = self
                .scores
                .iter()
                .filter(|s| s.is_write == is_write)
                .peekable();
            if scores.peek().is_some() {
                text.push_str(&format!("\n[{title}]\n"));
                scores.for_each(|score| text.push_str(&score.text()));
            }
        }
        let options = self.options;
        let size = match options.size_bytes >> 30 {
            gib if gib << 30 == options.size_bytes => format!("{gib} GiB"),
            _ => format!("{} MiB", options.size_bytes >> 20),
        };
        let data = if options.zeros { " <0Fill>" } else { "" };
        text.push_str(&format!(
            "\nProfile: {}\n   Test: {size} (x{}) [{}]{data}\n   Mode: {}\n   Time: Measure {} sec / \
             Interval {} sec\n   Date: {}\n     OS: {}\n",
            self.profile,
            options.runs,
            self.target,
            self.mode,
            seconds(options.measure_ns),
            seconds(options.interval_ns),
            self.date,
            self.system,
        ));
        text
    }
}

fn seconds(ns: u64) -> String {
    if ns.is_multiple_of(NS_PER_S) {
        return (ns / NS_PER_S).to_string();
    }
    format!("{:.3}", ns as f64 / NS_PER_S as f64)
}
