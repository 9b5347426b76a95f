//! The holder's side: its socket, and a thread for each command.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::{Context, Error, ErrorKind, Result};
use machine::{FileLock, LockMode, Patience};
use nix::sched::{CloneFlags, unshare};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix,
    SocketType, recvmsg,
};
use service::{Keeper, Pools};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::client::check_place;
use super::request::{Request, Run, VERSION};
use super::socket;
use crate::background;
use crate::caller::{self, Caller, Client};
use crate::failure::{Fail, Outcome};
use crate::session;

/// How long a client may take for its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// Stack of a command's thread: as much as that of a program's first one.
const STACK_BYTES: usize = 8 << 20;

/// The holder.
struct Holder {
    state: PathBuf,
    keeper: Arc<Keeper>,
    commands: Mutex<Commands>,
    ended: Condvar,
}

/// The commands that run.
#[derive(Default)]
struct Commands {
    next: u64,
    running: BTreeMap<u64, Arc<Caller>>,
    is_stopping: bool,
}

/// Holds pools until it is told to stop.
pub(super) fn serve(state: &Path, names: &[String]) -> Outcome {
    fs::create_dir_all(state)?;
    check_place(
        state,
        &fs::symlink_metadata(state)?,
        fs::symlink_metadata(state)?.is_dir(),
    )?;
    // Relative to the folder in which the holder was started; commands have others.
    let state = fs::canonicalize(state)?;
    let _lock = only_one(&state)?;
    let listener = listen(&socket(&state))?;
    if background::is_background() {
        background::leave_session()?;
    }
    let pools = session::pools_of_host(state.clone())?;
    let imported = pools.names()?;
    let holder = Arc::new(Holder {
        keeper: Keeper::new(pools),
        state,
        commands: Mutex::default(),
        ended: Condvar::new(),
    });
    let wanted = if names.is_empty() { &imported } else { names };
    for name in wanted {
        match holder.keeper.keep(name) {
            Ok(()) => {}
            // One that cannot be opened does not keep the others from being held, unless it was asked for.
            Err(error) if names.is_empty() => eprintln!("ashift serve: {error}"),
            Err(error) => {
                holder.stop()?;
                return Err(error.into());
            }
        }
    }
    stop_at_signals(&holder)?;
    if background::is_background() {
        background::ready(Some(&holder.state.join("holder.log")))?;
    }
    for client in listener.incoming() {
        let holder = Arc::clone(&holder);
        let Ok(client) = client else { continue };
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        // Without threads the client finds that its stream has ended.
        let _ = thread.spawn(move || holder.answer(client));
    }
    Ok(())
}

/// The lock of the one holder of a state folder.
fn only_one(state: &Path) -> Result<FileLock> {
    let patience = Patience {
        wait_ns: 0,
        on_wait: &|_| {},
    };
    let lock = FileLock::take(
        &Pools::holder_lock(state),
        LockMode::Exclusive,
        "the pools",
        &patience,
    );
    lock.map_err(|e| match e.kind() {
        ErrorKind::Busy => Error::new(ErrorKind::Busy, format!("the pools are held already: {e}")),
        _ => e,
    })
}

/// A socket that only this user can connect to.
fn listen(path: &Path) -> Result<UnixListener> {
    let socket = || -> io::Result<OwnedFd> {
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        // Nobody can connect before it listens.
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(socket)
    };
    let socket = socket()
        .map_err(Error::from)
        .within(|| path.display().to_string())?;
    Ok(UnixListener::from(socket))
}

fn stop_at_signals(holder: &Arc<Holder>) -> Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let holder = Arc::clone(holder);
    std::thread::spawn(move || {
        let _ = signals.forever().next();
        let outcome = holder.stop().map_err(Fail::from);
        std::process::exit(crate::exit_code(outcome, "ashift serve: ").into());
    });
    Ok(())
}

impl Holder {
    fn commands(&self) -> MutexGuard<'_, Commands> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all commands and closes the pools. The socket goes first, so that commands from now on open the pools
    /// themselves, as soon as they are closed.
    fn stop(&self) -> Result<()> {
        let _ = fs::remove_file(socket(&self.state));
        let mut commands = self.commands();
        commands.is_stopping = true;
        for caller in commands.running.values() {
            caller.hang_up();
        }
        while !commands.running.is_empty() {
            let waited = self.ended.wait(commands);
            commands = waited.unwrap_or_else(PoisonError::into_inner);
        }
        drop(commands);
        self.keeper.close()
    }

    /// Does what one client asks.
    fn answer(&self, mut client: UnixStream) {
        let request = self.receive(&client);
        let is_stop = matches!(request, Ok((Request::Stop, _)));
        let answer = match request {
            Ok((Request::Run(run), streams)) => self.run(&client, &run, streams),
            Ok((Request::Stop, _)) => match self.stop() {
                Ok(()) => vec![b'c', 0],
                Err(error) => refusal(&error.to_string()),
            },
            Err(error) => refusal(&error.to_string()),
        };
        // A client that is gone needs no answer.
        let _ = client.write_all(&answer);
        let _ = client.shutdown(std::net::Shutdown::Both);
        if is_stop {
            std::process::exit(0);
        }
    }

    fn receive(&self, client: &UnixStream) -> Result<(Request, [OwnedFd; 4])> {
        let peer = rustix::net::sockopt::socket_peercred(client).map_err(io::Error::from)?;
        let (uid, own) = (peer.uid, rustix::process::geteuid());
        if uid != own && !uid.is_root() {
            let text = format!("these pools are held by user {}", own.as_raw());
            return Err(Error::invalid(text));
        }
        client.set_read_timeout(Some(REQUEST_TIMEOUT))?;
        let streams = take_streams(client)?;
        let request = Request::receive(&mut &*client)?;
        client.set_read_timeout(None)?;
        Ok((request, streams))
    }

    /// Runs a command for a client, and returns the answer.
    fn run(&self, client: &UnixStream, run: &Run, streams: [OwnedFd; 4]) -> Vec<u8> {
        if run.version != VERSION {
            return refusal(&format!(
                "the pools are held by ashift {VERSION} (process {}), and this is {}: end it with 'ashift serve \
                 --stop', and start it again",
                std::process::id(),
                run.version
            ));
        }
        let [input, out, err, folder] = streams;
        let caller = Caller::client(Client {
            streams: [input, out, err],
            environment: run.environment.clone(),
            state: self.state.clone(),
            keeper: Arc::clone(&self.keeper),
        });
        let caller = match caller {
            Ok(caller) => caller,
            Err(error) => return refusal(&error.to_string()),
        };
        let Some(number) = self.admit(&caller) else {
            return refusal("the holder of the pools is being stopped");
        };
        let answer = match watch(client, &caller) {
            Ok(()) => vec![b'c', act(&caller, run, &folder)],
            Err(error) => refusal(&error.to_string()),
        };
        self.dismiss(number);
        answer
    }

    fn admit(&self, caller: &Arc<Caller>) -> Option<u64> {
        let mut commands = self.commands();
        if commands.is_stopping {
            return None;
        }
        commands.next += 1;
        let number = commands.next;
        commands.running.insert(number, Arc::clone(caller));
        Some(number)
    }

    fn dismiss(&self, number: u64) {
        self.commands().running.remove(&number);
        self.ended.notify_all();
    }
}

fn refusal(why: &str) -> Vec<u8> {
    [b"r", why.as_bytes()].concat()
}

/// Receives the descriptors that a client gives: its streams and its current folder.
fn take_streams(client: &UnixStream) -> Result<[OwnedFd; 4]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    recvmsg(
        client,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        flags,
    )
    .map_err(io::Error::from)?;
    let mut streams = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(given) = message {
            streams.extend(given);
        }
    }
    let streams = <[OwnedFd; 4]>::try_from(streams);
    streams.map_err(|_| Error::invalid("a client gives four descriptors"))
}

/// Runs the command in the thread that is there for it, and returns its exit code.
fn act(caller: &Arc<Caller>, run: &Run, folder: &OwnedFd) -> u8 {
    caller::run(caller, || {
        if let Err(error) = stand_in(folder, run.umask) {
            return crate::exit_code(Err(Fail::from(error)), "ashift: ");
        }
        if run.is_quiet {
            caller.be_quiet();
        }
        crate::run_for_client(&run.words)
    })
}

/// Gives this thread the client's current folder and file creation mask.
fn stand_in(folder: &OwnedFd, umask: u32) -> io::Result<()> {
    unshare(CloneFlags::CLONE_FS)?;
    rustix::process::fchdir(folder)?;
    rustix::process::umask(rustix::fs::Mode::from_bits_truncate(umask));
    Ok(())
}

/// From now on the command is told when its client ends.
fn watch(client: &UnixStream, caller: &Arc<Caller>) -> io::Result<()> {
    let (mut client, caller) = (client.try_clone()?, Arc::clone(caller));
    std::thread::Builder::new().spawn(move || {
        // Nothing else comes from the client: what can be read is the end of its stream, or that the command has
        // ended.
        let _ = client.read(&mut [0]);
        caller.hang_up();
    })?;
    Ok(())
}
