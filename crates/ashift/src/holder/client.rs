//! A command that is run by the holder: the side of the one who called it.

use std::fs::{File, Metadata};
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use base::{Context, Error, ErrorKind, Result};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::request::{Request, Restart, Run, VERSION};
use super::socket;
use crate::caller::caller;
use crate::failure::{Fail, Outcome};

/// Has the holder of the state folder run a command. `None` if there is none.
pub(crate) fn forward(state: &Path, words: &[String]) -> Option<Outcome> {
    let holder = match connect(state) {
        Ok(holder) => holder?,
        Err(error) => return Some(Err(Fail::Failed(error.to_string()))),
    };
    let run = Run {
        version: VERSION.to_owned(),
        is_quiet: caller().is_quiet(),
        umask: umask(),
        words: words.to_vec(),
        environment: std::env::vars_os().collect(),
    };
    Some(ask(holder, &Request::Run(run)))
}

/// Ends the holder of the state folder. `None` if there is none.
pub(crate) fn stop(state: &Path) -> Option<Outcome> {
    asked(state, &Request::Stop)
}

/// Has the machine of the state folder begin anew. `None` if it is not up.
pub(crate) fn restart(state: &Path, how: Restart) -> Option<Outcome> {
    asked(state, &Request::Restart(how))
}

fn asked(state: &Path, request: &Request) -> Option<Outcome> {
    match connect(state) {
        Ok(holder) => holder.map(|holder| ask(holder, request)),
        Err(error) => Some(Err(Fail::Failed(error.to_string()))),
    }
}

/// The process that is the holder of the state folder, if there is one.
///
/// # Errors
/// When something else is in its place, or another user's.
pub(crate) fn process(state: &Path) -> Result<Option<i32>> {
    let Some(holder) = connect(state)? else {
        return Ok(None);
    };
    let peer = rustix::net::sockopt::socket_peercred(&holder).map_err(io::Error::from)?;
    Ok(Some(peer.pid.as_raw_nonzero().get()))
}

/// The holder's end of its socket; `None` if there is no holder.
///
/// # Errors
/// When something else is in its place, or another user's.
fn connect(state: &Path) -> Result<Option<UnixStream>> {
    let path = socket(state);
    let Ok(found) = std::fs::symlink_metadata(&path) else {
        return Ok(None);
    };
    let folder = std::fs::symlink_metadata(state)?;
    check_place(state, &folder, folder.is_dir())?;
    check_place(&path, &found, found.file_type().is_socket())?;
    match UnixStream::connect(&path) {
        Ok(holder) => {
            let peer = rustix::net::sockopt::socket_peercred(&holder).map_err(io::Error::from)?;
            check_user(peer.uid.as_raw(), &path)?;
            Ok(Some(holder))
        }
        // It was killed: there is none.
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => Ok(None),
        Err(e) => Err(Error::from(e)).within(|| path.display().to_string()),
    }
}

/// Refuses what others may have put in the place of a socket or state folder.
pub(super) fn check_place(path: &Path, found: &Metadata, is_right: bool) -> Result<()> {
    if !is_right {
        let what = match found.is_symlink() {
            true => "a symbolic link, which is not followed",
            false => "not what a holder makes",
        };
        let text = format!(
            "{}: {what}; remove it, or use another folder",
            path.display()
        );
        return Err(Error::new(ErrorKind::InvalidInput, text));
    }
    check_user(found.uid(), path)
}

fn check_user(uid: u32, path: &Path) -> Result<()> {
    let own = rustix::process::geteuid().as_raw();
    if uid == own || uid == 0 {
        return Ok(());
    }
    let text = format!(
        "{}: belongs to user {uid}, and you are {own}",
        path.display()
    );
    Err(Error::invalid(text))
}

/// Sends a request and waits for its end.
fn ask(mut holder: UnixStream, request: &Request) -> Outcome {
    // A holder that refuses a client may do so before it has read everything.
    let sent = hand_over_streams(&holder).and_then(|()| request.send(&mut holder));
    let mut answer = Vec::new();
    let read = holder.read_to_end(&mut answer);
    if answer.is_empty() {
        sent.map_err(lost)?;
        read.map_err(lost)?;
    }
    match answer.split_first() {
        Some((b'c', [code])) => Fail::exit(*code),
        Some((b'r', why)) => Err(Fail::Failed(String::from_utf8_lossy(why).into_owned())),
        _ => Err(Fail::Failed(
            "the holder of the pools ended before the command did".to_owned(),
        )),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn lost(error: io::Error) -> Fail {
    Fail::Failed(format!("the holder of the pools does not answer: {error}"))
}

fn hand_over_streams(holder: &UnixStream) -> io::Result<()> {
    let folder = File::open(".")?;
    let (input, out, err) = (io::stdin(), io::stdout(), io::stderr());
    let streams = [input.as_fd(), out.as_fd(), err.as_fd(), folder.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(
        control.push(SendAncillaryMessage::ScmRights(&streams)),
        "four fit"
    );
    sendmsg(
        holder,
        &[IoSlice::new(b"s")],
        &mut control,
        SendFlags::empty(),
    )?;
    Ok(())
}

/// The file creation mask of this process.
fn umask() -> u32 {
    // It can only be read by setting it.
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}
