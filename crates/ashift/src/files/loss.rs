//! Attributes that a copy could not keep: reported once for each kind, and counted.

use std::collections::BTreeMap;

use base::Error;

use super::{Run, words};

/// Number of files whose attributes were not kept, by kind and reason.
#[derive(Default)]
pub(super) struct Losses(BTreeMap<(String, String), u64>);

impl Losses {
    /// Records that an attribute of a file was not kept; reports the first of each kind.
    pub(super) fn note(&mut self, run: &mut Run, path: &str, attribute: &str, error: &Error) {
        let reason = words(error, run.verbose);
        let count = self.0.entry((kind(attribute), reason.clone())).or_default();
        *count += 1;
        if *count == 1 {
            run.say(&format!("{path}: {attribute} not kept: {reason}"));
        }
    }

    /// Like `note`, for losses that are not failures: the exit code does not change.
    pub(super) fn mention(&mut self, run: &mut Run, path: &str, attribute: &str, error: &Error) {
        let failed = run.failed;
        self.note(run, path, attribute, error);
        run.failed = failed;
    }

    /// Reports, for each kind, the number of files after the first.
    pub(super) fn sum_up(&self, run: &Run) {
        for ((kind, reason), count) in self.0.iter().filter(|(_, count)| **count > 1) {
            let more = count - 1;
            let files = if more == 1 { "file" } else { "files" };
            eprintln!(
                "ashift {}: {more} more {files}: {kind} not kept: {reason}",
                run.name
            );
        }
    }
}

/// Groups extended attributes by namespace, since each may have a different name.
fn kind(attribute: &str) -> String {
    match attribute.strip_prefix("extended attribute ") {
        Some(name) => {
            let space = name.split('.').next().unwrap_or(name);
            format!("extended attributes {space}.*")
        }
        None => attribute.to_owned(),
    }
}
