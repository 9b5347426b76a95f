//! `ashift machine mount`: the providers of a machine as files of this host.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

use base::{Error, Result};

/// What the background process prints when it is ready.
const READY: &str = "ready";
/// Environment variable set for the background process.
const BACKGROUND: &str = "ASHIFT_MOUNT_BACKGROUND";

/// Runs `ashift machine mount DIR MNT`; unless in the foreground, returns once `folder` can be used.
pub(crate) fn run(machine: &Path, folder: &Path, foreground: bool) -> Result<()> {
    let is_background = std::env::var_os(BACKGROUND).is_some();
    if foreground || is_background {
        serve(machine, folder, is_background)
    } else {
        start(machine, folder)
    }
}

/// Mounts in this process, until unmounted.
fn serve(machine: &Path, folder: &Path, is_background: bool) -> Result<()> {
    if is_background {
        // A session of its own, so that the terminal's hangup does not end this process. It is not a group
        // leader yet.
        rustix::process::setsid().map_err(std::io::Error::from)?;
    }
    let machine = super::open(machine)?;
    let ready = || {
        if is_background {
            println!("{READY}");
            let _ = std::io::stdout().flush();
            leave_terminal();
        } else {
            eprintln!(
                "mounted on {}; unmount it, or press Ctrl-C, to end",
                folder.display()
            );
        }
    };
    super::in_machine(machine, |world| drivefs::mount(world, folder, ready))?
}

/// Redirects stdin, stdout and stderr to /dev/null: nothing reads the output from here on.
fn leave_terminal() {
    if let Ok(null) = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
    {
        let _ = rustix::stdio::dup2_stdin(null.as_fd());
        let _ = rustix::stdio::dup2_stdout(null.as_fd());
        let _ = rustix::stdio::dup2_stderr(null.as_fd());
    }
}

/// Starts the same command in the background and waits until it is ready.
fn start(machine: &Path, folder: &Path) -> Result<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["machine", "mount"])
        .args([machine, folder])
        .env(BACKGROUND, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    if line.trim() == READY {
        return Ok(());
    }
    let mut text = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut text)?;
    }
    child.wait()?;
    // Messages about waiting precede the error.
    let text = text
        .trim()
        .lines()
        .last()
        .unwrap_or("it ended without a word");
    let text = text.trim_start_matches("ashift machine: ");
    Err(Error::invalid(text))
}
