//! Files in a data set, from the command line: `ashift cp`, `ls`, `cat` and their kin.
//!
//! # What it is
//! A path is a place on this host, or `POOL/DATASET:/path`, or `POOL/DATASET@SNAP:/path`. A
//! [`Session`] opens pools and mounts data sets when they are first named; [`tree::Tree`] makes
//! both sides look alike, so that `cp` is written once.

mod change;
mod compare;
mod cp;
mod host_tree;
mod list;
mod pool_tree;
mod session;
mod tree;

use std::process::ExitCode;

use admin::getopt::{OptSpec, Parsed};
use base::{Error, ErrorKind};
use tree::Tree;

pub(crate) use change::{chmod, chown, ln, mkdir, mv, rm, rmdir, touch, truncate};
pub(crate) use cp::cp;
pub(crate) use list::{cat, du, find, ls, sha256sum, stat};
pub(crate) use session::{Location, Session};

/// Compares a folder of this host with one of a data set, opened by the state folder `state`.
pub(crate) fn compare_with_host(
    state: &std::path::Path,
    folder: &std::path::Path,
    dataset: &str,
    path: &str,
) -> base::Result<compare::Compared> {
    let session = Session::with_state(state, crate::host::Access::Read);
    let mut found = compare::Compared::default();
    {
        let pool = pool_tree::PoolTree(session.mount(dataset)?);
        let host = host_tree::HostTree;
        let left = host.resolve(&folder.to_string_lossy())?;
        let right = pool.resolve(path)?;
        let bar = crate::say::progress(None, true);
        compare::compare((&host, &left), (&pool, &right), path, &bar, &mut found)?;
        bar.finish_and_clear();
    }
    session.close()?;
    Ok(found)
}

/// What a command is called and how it is used.
pub(crate) struct Usage {
    name: &'static str,
    text: &'static str,
    options: OptSpec,
}

/// A command that ran: its exit code is 1 when anything was complained about.
pub(crate) struct Run {
    name: &'static str,
    failed: bool,
}

impl Run {
    fn new(name: &'static str) -> Run {
        Run {
            name,
            failed: false,
        }
    }

    /// Complains in the words of the C library: `ashift ls: PATH: No such file or directory`.
    fn complain(&mut self, what: &str, error: &Error) {
        self.failed = true;
        eprintln!("ashift {}: {what}: {}", self.name, words(error));
    }

    fn note<T>(&mut self, what: &str, outcome: base::Result<T>) -> Option<T> {
        outcome.map_err(|e| self.complain(what, &e)).ok()
    }

    /// Ends the session, and says how it went.
    fn end(mut self, session: Session) -> ExitCode {
        if let Err(e) = session.close() {
            self.failed = true;
            eprintln!("ashift {}: {e}", self.name);
        }
        if self.failed {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }
    }
}

/// What went wrong: as the C library says it, where it has words for it.
fn words(error: &Error) -> String {
    let plain = match error.kind() {
        ErrorKind::Checksum
        | ErrorKind::Corrupt
        | ErrorKind::Suspended
        | ErrorKind::Unsupported
        | ErrorKind::InvalidInput
        | ErrorKind::Io => None,
        ErrorKind::Busy | ErrorKind::NotFound if error.context().contains("pool") => None,
        ErrorKind::NotFound if error.context().contains("data set") => None,
        kind => Some(std::io::Error::from_raw_os_error(kind.errno()).to_string()),
    };
    match plain {
        Some(text) => text
            .split(" (os error")
            .next()
            .unwrap_or_default()
            .to_owned(),
        None => error.to_string(),
    }
}

/// Reads the arguments; prints the usage text and gives the exit code when that is all.
fn parse(usage: &Usage, args: &[String], least: usize) -> Result<Parsed, ExitCode> {
    let asks =
        |arg: &String| arg == "--help" || (arg == "-h" && !usage.options.short.contains('h'));
    if args.iter().any(asks) {
        print!("{}", usage.text);
        return Err(ExitCode::SUCCESS);
    }
    let complain = |text: String| {
        eprint!("ashift {}: {text}\n{}", usage.name, usage.text);
        ExitCode::from(2)
    };
    let parsed = admin::getopt::parse(&usage.options, args).map_err(|e| complain(e.to_string()))?;
    if parsed.operands.len() < least {
        return Err(complain("missing operand".into()));
    }
    Ok(parsed)
}
