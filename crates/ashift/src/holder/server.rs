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
use super::request::{Request, Restart, Run, VERSION};
use super::scene::Scene;
use super::socket;
use crate::background;
use crate::caller::{self, Caller, Client, Ending, STACK_BYTES};
use crate::failure::{Fail, Outcome};
use crate::session;

/// How long a client may take for its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// What a holder is for, in messages.
pub(super) struct Whose {
    /// `the pools`, `machine 'm'`
    pub(super) what: String,
    /// The command that ends it.
    pub(super) end: String,
}

/// The holder.
pub(super) struct Holder {
    pub(super) state: PathBuf,
    whose: Whose,
    listener: UnixListener,
    stage: Mutex<Stage>,
    /// The commands that run, or what there is instead of them, has changed.
    changed: Condvar,
    _lock: FileLock,
}

/// The commands that run, and where they do.
struct Stage {
    next: u64,
    running: BTreeMap<u64, Ending>,
    scene: Option<Scene>,
    /// It ends for good.
    is_ending: bool,
}

/// Holds pools of this host until it is told to stop.
pub(super) fn serve(state: &Path, names: &[String]) -> Outcome {
    fs::create_dir_all(state)?;
    let whose = Whose {
        what: "the pools".to_owned(),
        end: "ashift serve --stop".to_owned(),
    };
    let holder = Holder::new(state, whose)?;
    if background::is_background() {
        background::leave_session()?;
    }
    let pools = session::pools_of_host(holder.state.clone())?;
    let imported = pools.names()?;
    let keeper = Keeper::new(pools);
    holder.play(Scene::Host(Arc::clone(&keeper)));
    let wanted = if names.is_empty() { &imported } else { names };
    for name in wanted {
        match keeper.keep(name) {
            Ok(()) => {}
            // One that cannot be opened does not keep the others from being held, unless it was asked for.
            Err(error) if names.is_empty() => eprintln!("ashift serve: {error}"),
            Err(error) => {
                holder.end()?;
                return Err(error.into());
            }
        }
    }
    holder.stop_at_signals("ashift serve: ")?;
    if background::is_background() {
        background::ready(Some(&holder.state.join("holder.log")))?;
    }
    holder.accept();
    Ok(())
}

/// The lock of the one holder of a state folder.
fn only_one(state: &Path, whose: &Whose) -> Result<FileLock> {
    let patience = Patience {
        wait_ns: 0,
        on_wait: &|_| {},
    };
    let lock = FileLock::take(
        &Pools::holder_lock(state),
        LockMode::Exclusive,
        &whose.what,
        &patience,
    );
    lock.map_err(|e| match e.kind() {
        ErrorKind::Busy => {
            let text = format!("{} held already: {e}", whose.is());
            Error::new(ErrorKind::Busy, text)
        }
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

impl Whose {
    /// `the pools are`, `machine 'm' is`
    fn is(&self) -> String {
        let is = if self.what.ends_with('s') {
            "are"
        } else {
            "is"
        };
        format!("{} {is}", self.what)
    }
}

impl Holder {
    /// The holder of a state folder, with its socket; nothing is run yet.
    ///
    /// # Errors
    /// `Busy` if there is one already; when something else is in the place of the folder or its socket.
    pub(super) fn new(state: &Path, whose: Whose) -> Result<Arc<Holder>> {
        let found = fs::symlink_metadata(state)?;
        check_place(state, &found, found.is_dir())?;
        // Relative to the folder in which the holder was started; commands have others.
        let state = fs::canonicalize(state)?;
        let lock = only_one(&state, &whose)?;
        let listener = listen(&socket(&state))?;
        Ok(Arc::new(Holder {
            state,
            whose,
            listener,
            stage: Mutex::new(Stage {
                next: 0,
                running: BTreeMap::new(),
                scene: None,
                is_ending: false,
            }),
            changed: Condvar::new(),
            _lock: lock,
        }))
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on commands run there.
    pub(super) fn play(&self, scene: Scene) {
        self.stage().scene = Some(scene);
        self.changed.notify_all();
    }

    /// Serves clients, each in a thread of its own, until the process ends.
    pub(super) fn accept(self: &Arc<Holder>) {
        for client in self.listener.incoming() {
            let holder = Arc::clone(self);
            let Ok(client) = client else { continue };
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            // Without threads the client finds that its stream has ended.
            let _ = thread.spawn(move || holder.answer(client));
        }
    }

    pub(super) fn stop_at_signals(self: &Arc<Holder>, lead: &'static str) -> Result<()> {
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        let holder = Arc::clone(self);
        std::thread::spawn(move || {
            let _ = signals.forever().next();
            let outcome = holder.end().map_err(Fail::from);
            std::process::exit(crate::exit_code(outcome, lead).into());
        });
        Ok(())
    }

    /// Ends all commands and closes the pools. The socket goes first, so that commands from now on open the pools
    /// themselves, as soon as they are closed.
    pub(super) fn end(&self) -> Result<()> {
        let _ = fs::remove_file(socket(&self.state));
        self.stage().is_ending = true;
        self.changed.notify_all();
        self.clear(None)
    }

    /// Ends all commands, then the scene; those that come meanwhile wait for the next one.
    fn clear(&self, how: Option<Restart>) -> Result<()> {
        let mut stage = self.stage();
        if how.is_some() && matches!(stage.scene, Some(Scene::Host(_))) {
            return Err(Error::invalid("only a machine begins anew"));
        }
        // Waits for one that is being made, too.
        let scene = loop {
            match stage.scene.take() {
                Some(scene) => break scene,
                None => stage = self.wait(stage),
            }
        };
        drop(stage);
        if let Some(Restart::PowerCut(seed)) = how {
            scene.cut_power(seed)?;
        }
        let mut stage = self.stage();
        stage.running.values().for_each(Ending::hang_up);
        while !stage.running.is_empty() {
            stage = self.wait(stage);
        }
        drop(stage);
        scene.end(how)
    }

    fn wait<'a>(&self, stage: MutexGuard<'a, Stage>) -> MutexGuard<'a, Stage> {
        let waited = self.changed.wait(stage);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what one client asks.
    fn answer(&self, mut client: UnixStream) {
        let request = self.receive(&client);
        let is_stop = matches!(request, Ok((Request::Stop, _)));
        let done = |outcome: Result<()>| match outcome {
            Ok(()) => vec![b'c', 0],
            Err(error) => refusal(&error.to_string()),
        };
        let answer = match request {
            Ok((Request::Run(run), streams)) => self.run(&client, run, streams),
            Ok((Request::Stop, _)) => done(self.end()),
            Ok((Request::Restart(how), _)) => done(self.clear(Some(how))),
            Err(error) => refusal(&error.to_string()),
        };
        // A client that is gone needs no answer.
        let _ = client.write_all(&answer);
        let _ = client.shutdown(std::net::Shutdown::Both);
        if is_stop {
            std::process::exit((answer != [b'c', 0]).into());
        }
    }

    fn receive(&self, client: &UnixStream) -> Result<(Request, [OwnedFd; 4])> {
        let peer = rustix::net::sockopt::socket_peercred(client).map_err(io::Error::from)?;
        let (uid, own) = (peer.uid, rustix::process::geteuid());
        if uid != own && !uid.is_root() {
            let text = format!("{} held by user {}", self.whose.is(), own.as_raw());
            return Err(Error::invalid(text));
        }
        client.set_read_timeout(Some(REQUEST_TIMEOUT))?;
        let streams = take_streams(client)?;
        let request = Request::receive(&mut &*client)?;
        client.set_read_timeout(None)?;
        Ok((request, streams))
    }

    /// Runs a command for a client, and returns the answer.
    fn run(&self, client: &UnixStream, run: Run, streams: [OwnedFd; 4]) -> Vec<u8> {
        if run.version != VERSION {
            return refusal(&format!(
                "{} held by ashift {VERSION} (process {}), and this is {}: end it with '{}', and start it again",
                self.whose.is(),
                std::process::id(),
                run.version,
                self.whose.end,
            ));
        }
        let Some((number, scene, ending)) = self.admit() else {
            return refusal("the holder of the pools is being stopped");
        };
        let answer = run_in(&scene, &self.state, ending, (client, run, streams));
        // What is in the scene is closed when no command uses it.
        drop(scene);
        self.stage().running.remove(&number);
        self.changed.notify_all();
        answer
    }

    /// Counts a command among those that run, as soon as there is a scene.
    fn admit(&self) -> Option<(u64, Scene, Ending)> {
        let mut stage = self.stage();
        loop {
            if stage.is_ending {
                return None;
            }
            let Some(scene) = stage.scene.clone() else {
                stage = self.wait(stage);
                continue;
            };
            stage.next += 1;
            let (number, ending) = (stage.next, Ending::default());
            stage.running.insert(number, ending.clone());
            return Some((number, scene, ending));
        }
    }
}

/// Runs a client's command, and returns the answer.
fn run_in(
    scene: &Scene,
    state: &Path,
    ending: Ending,
    (client, run, streams): (&UnixStream, Run, [OwnedFd; 4]),
) -> Vec<u8> {
    let [input, out, err, folder] = streams;
    let caller = Caller::client(
        Client {
            streams: [input, out, err],
            environment: run.environment,
            state: state.to_owned(),
            machine: scene.machine(),
            keeper: Some(Arc::clone(scene.keeper())),
        },
        ending.clone(),
    );
    let watched = caller.and_then(|caller| watch(client, ending).map(|()| caller));
    let caller = match watched {
        Ok(caller) => caller,
        Err(error) => return refusal(&error.to_string()),
    };
    let (words, umask, is_quiet) = (run.words, run.umask, run.is_quiet);
    let act = move || {
        if let Err(error) = stand_in(&folder, umask) {
            return crate::exit_code(Err(Fail::from(error)), "ashift: ");
        }
        if is_quiet {
            caller::caller().be_quiet();
        }
        let code = crate::run_for_client(&words);
        // This thread lives on for a moment; a folder in which it is could not be unmounted by the next command.
        let _ = std::env::set_current_dir("/");
        code
    };
    match scene.run(&caller, act) {
        Some(code) => vec![b'c', code],
        None => refusal("the machine is being switched off"),
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

/// Gives this thread the client's current folder and file creation mask.
fn stand_in(folder: &OwnedFd, umask: u32) -> io::Result<()> {
    unshare(CloneFlags::CLONE_FS)?;
    rustix::process::fchdir(folder)?;
    rustix::process::umask(rustix::fs::Mode::from_bits_truncate(umask));
    Ok(())
}

/// From now on the command is told when its client ends.
fn watch(client: &UnixStream, ending: Ending) -> io::Result<()> {
    let mut client = client.try_clone()?;
    std::thread::Builder::new().spawn(move || {
        // Nothing else comes from the client: what can be read is the end of its stream, or that the command has
        // ended.
        let _ = client.read(&mut [0]);
        ending.hang_up();
    })?;
    Ok(())
}
