//! Failures of commands, and those of the pool service in the words of libzfs.
//!
//! # Source
//! OpenZFS lib/libzfs/libzfs_util.c (`zfs_standard_error`, `zpool_standard_error`), cmd/zpool/zpool_main.c
//! (`do_import`).

use admin::number::date_time;
use base::{Error, ErrorKind};
use service::{Attempt, Failure, Reason};

use crate::zone;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Fail {
    /// The usage was asked for: it is shown, and nothing failed.
    Help,
    /// A usage error: the text, if any, and the usage are shown; mostly exit code 2.
    Usage(String),
    /// A failure: the text is shown; exit code 1.
    Failed(String),
    /// The same, with the exit code of its own that OpenZFS has for it.
    Exits(u8, String),
    /// A failure that has been reported already; the exit code.
    Said(u8),
}

/// How a command ends.
pub(crate) type Outcome<T = ()> = Result<T, Fail>;

impl Fail {
    /// The outcome with this exit code, of which everything has been reported.
    pub(crate) fn exit(code: u8) -> Outcome {
        match code {
            0 => Ok(()),
            code => Err(Fail::Said(code)),
        }
    }

    /// Reports it, unless it asks for the usage; the text begins with `lead`.
    pub(crate) fn say(self, lead: &str) -> Fail {
        let (code, text) = match self {
            Fail::Failed(text) => (1, text),
            Fail::Exits(code, text) => (code, text),
            Fail::Help | Fail::Usage(_) | Fail::Said(_) => return self,
        };
        eprintln!("{lead}{}", text.strip_suffix('\n').unwrap_or(&text));
        Fail::Said(code)
    }
}

impl From<Error> for Fail {
    fn from(error: Error) -> Fail {
        Fail::Failed(error.to_string())
    }
}

impl From<std::io::Error> for Fail {
    fn from(error: std::io::Error) -> Fail {
        Fail::from(Error::from(error))
    }
}

impl From<String> for Fail {
    fn from(text: String) -> Fail {
        Fail::Failed(text)
    }
}

impl From<Failure> for Fail {
    fn from(failure: Failure) -> Fail {
        Fail::Failed(text(&failure))
    }
}

/// The text of a failure of the pool service.
pub(crate) fn text(failure: &Failure) -> String {
    let pool = &failure.pool;
    let why = reason(failure);
    match (failure.attempt, &failure.reason) {
        (Attempt::Open, Reason::Error(error)) => opening(pool, error),
        (Attempt::Open, _) => format!("cannot open '{pool}': {why}"),
        (Attempt::Write, _) => format!("cannot write pool '{pool}': {why}"),
        (Attempt::Close, _) => format!("cannot close pool '{pool}': {why}"),
        (Attempt::Create, _) => format!("cannot create '{pool}': {why}"),
        (Attempt::Import, _) => format!("cannot import '{pool}': {why}"),
        (Attempt::Export, _) => format!("cannot export '{pool}': {why}"),
        (Attempt::Destroy, _) => format!("cannot destroy '{pool}': {why}"),
        (Attempt::Sync, _) => format!("sync of '{pool}' failed: {why}"),
        (Attempt::Scrub, _) => format!("cannot scrub {pool}: {why}"),
        (Attempt::CancelScrub, _) => format!("cannot cancel scrubbing {pool}: {why}"),
        (Attempt::PauseScrub, _) => format!("cannot pause scrubbing {pool}: {why}"),
        (Attempt::Look | Attempt::Record, _) => why,
    }
}

/// `cannot open 'tank': no such pool`, and other reasons.
pub(crate) fn opening(pool: &str, error: &Error) -> String {
    let text = error.to_string();
    let prefix = format!("cannot open '{pool}': ");
    match error.kind() {
        ErrorKind::NotFound if text.contains("no such pool") => format!("{prefix}no such pool"),
        _ if text.starts_with(&prefix) => text,
        _ => format!("{prefix}{text}"),
    }
}

fn reason(failure: &Failure) -> String {
    let attempt = failure.attempt;
    match &failure.reason {
        Reason::Error(error) | Reason::Damaged { error, .. } => error_text(attempt, error),
        Reason::InUse(error) => error.to_string(),
        Reason::ReadOnly => "pool is read-only".to_owned(),
        Reason::NameTaken if attempt == Attempt::Create => "pool already exists".to_owned(),
        Reason::NameTaken => "a pool with that name already exists\nuse the form 'zpool import \
                              <pool | id> <newpool>' to give it a new name"
            .to_owned(),
        Reason::Foreign {
            hostname,
            hostid,
            accessed_secs,
        } => foreign(hostname, *hostid, *accessed_secs),
        Reason::DevicesUnavailable | Reason::LogsMissing(_) => {
            "one or more devices is currently unavailable".to_owned()
        }
        Reason::ConfigInvalid => "invalid vdev configuration".to_owned(),
        Reason::LabelsChanged => "its labels changed meanwhile".to_owned(),
    }
}

fn error_text(attempt: Attempt, error: &Error) -> String {
    match (attempt, error.kind()) {
        (Attempt::Create, ErrorKind::Busy) => SAME_DEVICE.to_owned(),
        (Attempt::Destroy, ErrorKind::ReadOnly) => "one or more vdevs are read only".to_owned(),
        _ => error.to_string(),
    }
}

/// Why a pool is not created when a device is given twice or is in use.
pub(crate) const SAME_DEVICE: &str = "one or more vdevs refer to the same device, or one of\nthe \
                                      devices is part of an active md or lvm device";

fn foreign(hostname: &str, hostid: u64, accessed_secs: u64) -> String {
    let host = if hostname.is_empty() {
        "<unknown>"
    } else {
        hostname
    };
    let when = date_time(accessed_secs, zone::local());
    format!(
        "pool was previously in use from another system.\nLast accessed by {host} \
         (hostid={hostid:x}) at {when}\nThe pool can be imported, use 'zpool import -f' to import \
         the pool."
    )
}
