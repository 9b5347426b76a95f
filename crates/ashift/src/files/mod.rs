//! Files in a dataset, from the command line: `ashift cp`, `ls`, `cat` and so on.
//!
//! # What it is
//! A path is a place on this host, or `POOL/DATASET:/path`, or `POOL/DATASET@SNAP:/path`. [`Paths`]
//! opens pools and mounts datasets when they are first named; [`tree::Tree`] gives both sides one
//! interface, so that `cp` is written once.

mod attributes;
mod cat;
mod change;
mod compare;
mod copy;
mod cp;
mod deleted;
mod df;
mod du;
mod find;
mod glob;
mod host_tree;
mod loss;
mod ls;
mod mode;
mod paths;
mod pool_tree;
mod remove;
mod rescue;
mod rewrite;
mod rsync;
mod salvage;
mod seek;
mod show;
mod stat;
mod tar;
mod tree;
mod volume;
mod walk;

use base::{Error, ErrorKind};
use indicatif::ProgressBar;
use tree::Tree;

use crate::caller::{Stream, caller};
use crate::failure::{Fail, Outcome};

pub(crate) use cat::{CAT, SHA256SUM};
pub(crate) use change::{CHMOD, CHOWN, LN, MKDIR, MV, TOUCH, TRUNCATE};
pub(crate) use cp::CP;
pub(crate) use df::DF;
pub(crate) use du::DU;
pub(crate) use find::FIND;
pub(crate) use ls::LS;
pub(crate) use paths::{Location, Paths};
pub(crate) use remove::{RM, RMDIR};
pub(crate) use rescue::RESCUE;
pub(crate) use rewrite::{REWRITE, rewrites_in_pool};
pub(crate) use rsync::RSYNC;
pub(crate) use stat::STAT;
pub(crate) use tar::TAR;

/// Compares a folder of this host with one of a dataset, opened through the state folder `state`.
pub(crate) fn compare_with_host(
    state: &std::path::Path,
    folder: &std::path::Path,
    dataset: &str,
    path: &str,
) -> base::Result<compare::Compared> {
    let paths = Paths::in_state(state)?;
    let mut found = compare::Compared::default();
    {
        let pool = pool_tree::PoolTree(paths.mount(dataset)?);
        let host = host_tree::HostTree;
        let left = host.resolve_link(&folder.to_string_lossy())?;
        let right = pool.resolve_link(path)?;
        let bar = crate::progress::progress(None, true);
        compare::compare((&host, &left), (&pool, &right), path, &bar, &mut found)?;
        bar.finish_and_clear();
    }
    paths.close()?;
    Ok(found)
}

/// A run of a command: its exit code is 1 if anything was reported.
pub(crate) struct Run {
    name: &'static str,
    /// Whether read errors name the block and device concerned.
    verbose: bool,
    failed: bool,
    /// Whether the reason for a suspended pool was reported: everything tried after that fails the same
    /// way.
    is_suspension_said: bool,
    /// The progress bar: hidden, or begun by [`Run::show_progress`].
    bar: ProgressBar,
    lines: show::Lines,
}

impl Run {
    fn new(name: &'static str) -> Run {
        Run {
            name,
            verbose: false,
            failed: false,
            is_suspension_said: false,
            bar: ProgressBar::hidden(),
            lines: show::Lines::default(),
        }
    }

    /// From now on, shows how many items or bytes are done.
    fn show_progress(&mut self, unit_bytes: bool) {
        self.bar = crate::progress::progress(None, unit_bytes);
    }

    /// Prints a line on stdout, soon.
    fn line(&mut self, text: &str) {
        let lines = &mut self.lines;
        self.bar.suspend(|| lines.line(text));
    }

    /// Complains in the words of the C library: `ashift ls: PATH: No such file or directory`.
    fn complain(&mut self, what: &str, error: &Error) {
        if self.is_more_of_suspension(error) {
            return;
        }
        self.say(&format!("{what}: {}", words(error, self.verbose)));
    }

    /// Whether an error is not to be reported, because it follows from one that was.
    fn is_more_of_suspension(&mut self, error: &Error) -> bool {
        let is_suspended = error.kind() == ErrorKind::Suspended;
        self.failed |= is_suspended;
        is_suspended && std::mem::replace(&mut self.is_suspension_said, true)
    }

    /// Reports an error with a text of its own.
    fn say(&mut self, text: &str) {
        self.failed = true;
        self.lines.flush();
        let text = show::tame(text, || caller().is_terminal(Stream::Err));
        self.bar
            .suspend(|| eprintln!("ashift {}: {text}", self.name));
    }

    fn note<T>(&mut self, what: &str, outcome: base::Result<T>) -> Option<T> {
        outcome.map_err(|e| self.complain(what, &e)).ok()
    }

    /// Closes the pools.
    fn end(self, paths: Paths) -> Outcome {
        self.end_with(paths, 1)
    }

    /// Closes the pools; `code` is the exit code if anything was reported.
    fn end_with(mut self, paths: Paths, code: u8) -> Outcome {
        self.bar.finish_and_clear();
        self.lines.flush();
        if let Err(e) = paths.close()
            && !self.is_more_of_suspension(&e)
        {
            self.failed = true;
            eprintln!("ashift {}: {e}", self.name);
        }
        Fail::exit(if self.failed { code } else { 0 })
    }
}

/// The text of an error: the C library's, if it has one. `verbose`: also which block of which device could
/// not be read.
pub(crate) fn words(error: &Error, verbose: bool) -> String {
    let context = error.context();
    let plain = match error.kind() {
        // An error of the host without an `ErrorKind` of its own.
        ErrorKind::Io if context.contains(" (os error") => return without_code(context),
        ErrorKind::Io | ErrorKind::Checksum => Some(5),
        ErrorKind::Corrupt
        | ErrorKind::Suspended
        | ErrorKind::Unsupported
        | ErrorKind::InvalidInput
        | ErrorKind::NoKey => None,
        ErrorKind::Busy | ErrorKind::NotFound | ErrorKind::ReadOnly if context.contains("pool") => {
            None
        }
        ErrorKind::NotFound if context.contains("data set") => None,
        kind if is_of_owner(error) => {
            let text = std::io::Error::from_raw_os_error(kind.errno()).to_string();
            return format!("{}: {context}", without_code(&text));
        }
        kind => Some(kind.errno()),
    };
    let Some(code) = plain else {
        return error.to_string();
    };
    let text = without_code(&std::io::Error::from_raw_os_error(code).to_string());
    let is_of_device = matches!(error.kind(), ErrorKind::Io | ErrorKind::Checksum);
    if verbose && is_of_device {
        format!("{text} ({error})")
    } else {
        text
    }
}

/// Whether a user, group or project has reached its limit: files of others can still be written.
fn is_of_owner(error: &Error) -> bool {
    error.kind() == ErrorKind::Quota && error.context().contains(", and may have ")
}

/// The C library's text, without the number that Rust appends.
fn without_code(text: &str) -> String {
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_owned()
}

/// Why the contents of a file could not be read, and up to where they could.
struct ReadError {
    offset: u64,
    error: Error,
}

impl ReadError {
    /// `read error at offset 131072: Input/output error`; only `verbose` says which device.
    fn words(&self, verbose: bool) -> String {
        let ReadError { offset, error } = self;
        let reason = match error.kind() {
            ErrorKind::Corrupt if !verbose => "Input/output error".to_owned(),
            _ => words(error, verbose),
        };
        format!("read error at offset {offset}: {reason}")
    }
}
