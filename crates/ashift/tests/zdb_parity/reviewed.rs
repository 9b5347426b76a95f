//! The file of differences that were looked at.
//!
//! ```text
//! reason NAME harmless|missing WORDS…
//! [NAME] COMMAND LINE
//!   part of a line that differs
//! ```
//! Without such parts, any line of that command's output may differ.

use std::collections::BTreeMap;

use oracle::parity::{Difference, Verdict};

/// Reads the file; what it does not understand fails.
pub(crate) fn read(text: &str) -> Vec<Difference> {
    let mut reasons: BTreeMap<&str, (Verdict, &str)> = BTreeMap::new();
    let mut differences: Vec<Difference> = Vec::new();
    for line in text.lines() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(part) = line.strip_prefix("  ") {
            let last = differences.last_mut().expect("a command before its lines");
            last.lines.push(part.to_owned());
        } else if let Some(rest) = line.strip_prefix("reason ") {
            let mut words = rest.splitn(3, ' ');
            let (Some(name), Some(verdict), Some(why)) = (words.next(), words.next(), words.next())
            else {
                panic!("reason NAME VERDICT WORDS: {line}");
            };
            let verdict = match verdict {
                "harmless" => Verdict::Harmless,
                "missing" => Verdict::Missing,
                _ => panic!("harmless or missing: {line}"),
            };
            reasons.insert(name, (verdict, why));
        } else {
            let (name, command) = line
                .strip_prefix('[')
                .and_then(|rest| rest.split_once("] "))
                .unwrap_or_else(|| panic!("[REASON] COMMAND: {line}"));
            let (verdict, reason) = reasons
                .get(name)
                .unwrap_or_else(|| panic!("no reason {name}"));
            differences.push(Difference {
                command: command.to_owned(),
                verdict: *verdict,
                reason: (*reason).to_owned(),
                lines: Vec::new(),
            });
        }
    }
    differences
}
