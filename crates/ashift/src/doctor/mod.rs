//! `ashift doctor`: what is wrong with disks, pools and files, as crate `doctor` finds it, and what to type.

mod disks;
mod pools;
mod sectors;
mod show;
mod visit;

use admin::getopt::Parsed;
use doctor::Severity;

use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use visit::Visit;

/// How many files of each file system are looked at if no number is given: about a second's work.
const FILES: u64 = 20_000;

pub(crate) const DOCTOR: Command<Entry> = Command::parsed(
    "doctor",
    "what is wrong with disks, partitions and pools, and what to do",
    include_str!("help.txt"),
    ("jqn:", 0),
    run,
)
.more(include_str!("more.txt"));

fn run(parsed: &Parsed) -> Outcome {
    let files = parsed.value('n').map(str::parse::<u64>).transpose();
    let files = files.map_err(|_| Fail::Usage("-n needs a number of files".to_owned()))?;
    let mut visit = Visit::new(files.unwrap_or(FILES));
    match parsed.operands.is_empty() {
        true => visit.everything(),
        false => parsed.operands.iter().for_each(|name| visit.named(name)),
    }
    let report = visit.end();
    match parsed.has('j') {
        true => print!("{}", show::document(&report)),
        false => show::text(&report, parsed.has('q')),
    }
    let worst = report.findings().map(|finding| finding.severity).max();
    Fail::exit(match worst {
        Some(Severity::Critical) => 4,
        Some(Severity::Warning) => 3,
        Some(Severity::Note) | None => u8::from(!report.failures.is_empty()),
    })
}
