//! The providers of a machine as files of this host, by FUSE.
//!
//! # What it is
//! [`mount()`] shows a machine's drives, partitions, labels and layers as regular files below a
//! folder of this host, so that the host's own fio, dd, sgdisk and blkid can be used on them. A file
//! behaves like a block device, as far as a file can: it has the provider's size, which cannot be
//! changed (truncation succeeds and does nothing); writes past the end fail with `ENOSPC`; writes
//! that are not whole sectors are read-modify-write; `fsync` is a flush of the drive, punching a
//! hole is a delete. Nothing is cached by the kernel: every read and write reaches the drive.
//!
//! # Invariants
//! 1. One command at a time, in the order of the kernel's requests, all from the thread that called
//!    [`mount()`]: that of the machine's simulation. The simulated clock advances by the time of each
//!    command; between requests it stands still.
//! 2. The machine stays locked until the folder is unmounted.
//!
//! # Concurrency
//! FUSE requests are received by a thread of this host and handed over through a channel together
//! with the handle to answer them. Waiting for the next request takes real, not simulated, time. A
//! second thread waits for signals and unmounts. Neither touches anything of the simulation.
//!
//! # Why not simpler
//! Running the requests where they are received would need a simulation in that thread; a new one
//! per request would lose the state of the drives between two commands.

mod files;
mod sectors;
mod server;
mod tree;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use base::{Context, Error, ErrorKind, Result};
use fuser::{Config, MountOption, Session};
use geom::BioCmd;
use machine::World;
use rustix::mount::UnmountFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use files::{Files, Job};
use server::Server;

/// A command of a program of the host.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'n> {
    /// The provider that it is for.
    pub name: &'n str,
    /// What it does.
    pub cmd: BioCmd,
    /// Its first byte, in whole sectors.
    pub offset: u64,
    /// Its bytes; 0 for a flush.
    pub len: u64,
}

/// Is told of each command before it runs.
pub type Recorder = Box<dyn FnMut(&Recorded<'_>) + Send>;

/// Shows the providers of `world` below `folder` until that is unmounted, or this process receives
/// `SIGHUP`, `SIGINT` or `SIGTERM`. `ready` is called once it is mounted, `recorder` for each command.
///
/// # Errors
/// [`ErrorKind::Unsupported`] without FUSE on this host; what the host says when mounting; what the
/// machine says when its providers are listed.
pub fn mount(
    world: &Arc<World>,
    folder: &Path,
    recorder: Option<Recorder>,
    ready: impl FnOnce(),
) -> Result<()> {
    let name = || folder.display().to_string();
    if !Path::new("/dev/fuse").exists() {
        let text = "no /dev/fuse on this host: its kernel has no FUSE, or lets nobody use it";
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    if !folder.is_dir() {
        return Err(Error::new(ErrorKind::NotDirectory, "not a folder")).within(name);
    }
    let mut server = Server::new(Arc::clone(world), recorder)?;
    let (sender, jobs) = std::sync::mpsc::channel::<Job>();
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("ashift".to_owned()),
        MountOption::Subtype("ashift".to_owned()),
        MountOption::NoSuid,
        MountOption::NoDev,
    ];
    let session = Session::new(Files::new(sender), folder, &config);
    let session = session.map_err(Error::from).within(name)?;
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let handle = signals.handle();
    let mounted = folder.to_owned();
    let waiting = std::thread::Builder::new().name("signals".to_owned());
    let waiting = waiting.spawn(move || {
        for _signal in signals.forever() {
            unmount(&mounted);
        }
    })?;
    let background = session.spawn().map_err(Error::from).within(name)?;
    ready();
    // Ends when the session has dropped its end of the channel.
    for job in jobs {
        job(&mut server);
    }
    let ended = background.join().map_err(Error::from).within(name);
    handle.close();
    // A panic there would only mean that the process is out of threads or memory.
    let _ = waiting.join();
    ended
}

/// Lazy unmount (`MNT_DETACH`): a process that still has a file open can finish.
fn unmount(folder: &Path) {
    if rustix::mount::unmount(folder, UnmountFlags::DETACH).is_ok() {
        return;
    }
    for program in ["fusermount3", "fusermount"] {
        let status = Command::new(program)
            .args(["-u", "-z", "--"])
            .arg(folder)
            .status();
        if status.is_ok_and(|status| status.success()) {
            return;
        }
    }
}
