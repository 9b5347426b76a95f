//! How commands fail, and how errors of the engine read.

use base::{Error, ErrorKind};

/// Why a command did not do what it was asked.
pub(super) enum Fail {
    /// It was called wrongly: the text, if any, and its usage are shown; exit code 2.
    Usage(String),
    /// It did not work: the text is shown; exit code 1.
    Failed(String),
    /// The same, and everything was said.
    Said,
}

/// How a command ends.
pub(super) type Outcome<T = ()> = Result<T, Fail>;

impl Fail {
    pub(super) fn usage(text: impl Into<String>) -> Fail {
        Fail::Usage(text.into())
    }

    pub(super) fn failed(text: impl Into<String>) -> Fail {
        Fail::Failed(text.into())
    }

    /// `what`, a colon, and the error in OpenZFS's words.
    pub(super) fn of(what: impl std::fmt::Display, error: &Error) -> Fail {
        Fail::Failed(format!("{what}: {}", words(error)))
    }

    /// Says it now, for commands that go on with the next dataset.
    pub(super) fn say(self) -> Fail {
        if let Fail::Failed(text) = &self {
            eprintln!("{text}");
            return Fail::Said;
        }
        self
    }
}

/// An error in the words that OpenZFS has for its kind; its own where there are none.
#[doc(alias = "zfs_standard_error")]
pub(super) fn words(error: &Error) -> String {
    let known = match error.kind() {
        ErrorKind::NotFound => "dataset does not exist",
        ErrorKind::Exists => "dataset already exists",
        ErrorKind::Busy => "dataset is busy",
        ErrorKind::NoSpace | ErrorKind::Quota => "out of space",
        ErrorKind::ReadOnly => "pool is read-only",
        ErrorKind::NameTooLong => "dataset name is too long",
        _ => return error.to_string(),
    };
    known.to_owned()
}

/// Runs `act` for each of `things`, saying what goes wrong without stopping there.
pub(super) fn for_each<T>(
    things: impl IntoIterator<Item = T>,
    mut act: impl FnMut(T) -> Outcome,
) -> Outcome {
    let mut outcome = Ok(());
    for thing in things {
        match act(thing) {
            Ok(()) => {}
            Err(usage @ Fail::Usage(_)) => return Err(usage),
            Err(fail) => outcome = Err(fail.say()),
        }
    }
    outcome
}
