//! Failures of commands, and the texts of engine errors.

use base::{Error, ErrorKind};

pub(super) use crate::failure::{Fail, Outcome};

impl Fail {
    pub(super) fn usage(text: impl Into<String>) -> Fail {
        Fail::Usage(text.into())
    }

    pub(super) fn failed(text: impl Into<String>) -> Fail {
        Fail::Failed(text.into())
    }

    /// `what`, a colon, and OpenZFS's text for the error.
    pub(super) fn of(what: impl std::fmt::Display, error: &Error) -> Fail {
        Fail::Failed(format!("{what}: {}", words(error)))
    }

    /// Combines two failures: like OpenZFS, ORs their exit codes.
    fn and(self, earlier: Outcome) -> Fail {
        match (self, earlier) {
            (Fail::Said(code), Err(Fail::Said(before))) => Fail::Said(code | before),
            (fail, _) => fail,
        }
    }
}

/// OpenZFS's text for the kind of an error; the error's own text if there is none.
#[doc(alias = "zfs_standard_error")]
pub(super) fn words(error: &Error) -> String {
    let known = match error.kind() {
        ErrorKind::NotFound => "dataset does not exist",
        ErrorKind::Exists => "dataset already exists",
        ErrorKind::Busy => "dataset is busy",
        ErrorKind::NoSpace | ErrorKind::Quota => "out of space",
        ErrorKind::ReadOnly => return read_only(error),
        ErrorKind::NoKey => "encryption key not loaded",
        ErrorKind::NameTooLong => "dataset name is too long",
        _ => return error.to_string(),
    };
    known.to_owned()
}

/// "pool is read-only", and the reason unless that was requested.
fn read_only(error: &Error) -> String {
    const WORDS: &str = "pool is read-only";
    let text = error.to_string();
    let said = text.find(WORDS).map(|at| &text[at..]);
    said.unwrap_or(WORDS).to_owned()
}

/// Runs `act` for each of `things`, reporting errors without stopping.
pub(super) fn for_each<T>(
    things: impl IntoIterator<Item = T>,
    mut act: impl FnMut(T) -> Outcome,
) -> Outcome {
    let mut outcome = Ok(());
    for thing in things {
        match act(thing) {
            Ok(()) => {}
            Err(usage @ Fail::Usage(_)) => return Err(usage),
            Err(fail) => outcome = Err(fail.say("").and(outcome)),
        }
    }
    outcome
}
