//! Running this program again in the background, and telling when it is ready.
//!
//! # What it is
//! [`start`] runs the same program with other words, and returns when that says it is [`ready`], or with the error that
//! it reports. The other one finds that it [`is_background`], and leaves the terminal.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

use base::{Error, Result};

use crate::caller::{Stream, caller};

/// What the background process prints when it is ready.
const READY: &str = "ready";
/// Environment variable set for the background process.
const BACKGROUND: &str = "ASHIFT_BACKGROUND";

/// Whether this process was started by [`start`].
pub(crate) fn is_background() -> bool {
    std::env::var_os(BACKGROUND).is_some()
}

/// Makes this process independent of the terminal it was started from, whose hangup would end it.
pub(crate) fn leave_session() -> Result<()> {
    rustix::process::setsid().map_err(std::io::Error::from)?;
    Ok(())
}

/// Tells that this process is ready. From then on nobody reads what it prints: messages go to `log`, if any.
pub(crate) fn ready(log: Option<&Path>) -> Result<()> {
    println!("{READY}");
    caller().flush(Stream::Out);
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    let errors = match log {
        Some(log) => OpenOptions::new().append(true).create(true).open(log)?,
        None => null.try_clone()?,
    };
    let done = rustix::stdio::dup2_stdin(null.as_fd())
        .and_then(|()| rustix::stdio::dup2_stdout(null.as_fd()))
        .and_then(|()| rustix::stdio::dup2_stderr(errors.as_fd()));
    Ok(done.map_err(std::io::Error::from)?)
}

/// Starts this program in the background and waits until it is ready; what it has said by then is said here.
/// `lead`: what its errors begin with.
pub(crate) fn start(words: &[impl AsRef<OsStr>], lead: &str) -> Result<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(words)
        .env(BACKGROUND, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    let mut text = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut text)?;
    }
    if line.trim() == READY {
        eprint!("{text}");
        return Ok(());
    }
    child.wait()?;
    // Messages about waiting precede the error.
    let text = text
        .trim()
        .lines()
        .last()
        .unwrap_or("it ended without a word");
    Err(Error::invalid(text.trim_start_matches(lead)))
}
