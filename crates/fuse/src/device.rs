//! `/dev/fuse`: mounting, with root's rights or through `fusermount3`; requests and answers.

use std::ffi::CString;
use std::fmt::Write as _;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use base::{Error, ErrorKind, Result};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use zpl::AtimePolicy;

use crate::options::MountOptions;

/// The device through which the kernel asks.
const DEVICE: &str = "/dev/fuse";
/// What the type of the file system is called in `/proc/mounts`.
const TYPE: &str = "fuse.ashift";
/// Where the kernel shows each mount, by the number of its file system.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";
/// Programs that mount for users without root's rights, best first.
const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];

/// Whether this process can mount at all: the host has FUSE, and it is root or has a program that mounts for it.
#[must_use]
pub fn is_available() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_helper = || {
        let mut folders = std::env::split_paths(&path);
        folders.any(|folder| HELPERS.iter().any(|helper| folder.join(helper).exists()))
    };
    Path::new(DEVICE).exists() && (rustix::process::geteuid().is_root() || has_helper())
}

/// What is as short is sent from one page: the kernel has to look up each page of each part.
const SHORT_BYTES: usize = 512;

/// Within one page.
#[repr(align(512))]
struct Short([u8; SHORT_BYTES]);

/// An open connection to the kernel.
pub(crate) struct Device(OwnedFd);

impl Device {
    /// Mounts on `directory`; the kernel's first request is waiting then.
    pub(crate) fn mount(directory: &Path, options: &MountOptions) -> Result<Device> {
        if !Path::new(DEVICE).exists() {
            let text = "no /dev/fuse on this host: its kernel has no FUSE, or lets nobody use it";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        match mount_directly(directory, options) {
            Err(Errno::PERM | Errno::ACCESS) if !rustix::process::geteuid().is_root() => {
                mount_by_helper(directory, options)
            }
            mounted => mounted.map_err(|errno| Error::from(std::io::Error::from(errno))),
        }
    }

    /// The number of the descriptor.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// The next request; `None` once it is unmounted.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(len) => return Ok(Some(len)),
                // `NOENT`: the request was interrupted before it was read.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
                // `CONNABORTED`: unmounted by force.
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
                Err(errno) => return Err(std::io::Error::from(errno).into()),
            }
        }
    }

    /// Whether the kernel has ended it: it is unmounted, maybe before any thread has noticed.
    pub(crate) fn is_gone(&self) -> bool {
        let mut asked = [PollFd::new(&self.0, PollFlags::empty())];
        let polled = rustix::event::poll(&mut asked, Some(&Timespec::default()));
        polled.is_ok() && asked[0].revents().contains(PollFlags::ERR)
    }

    /// Sends an answer or a notice, which is one write.
    pub(crate) fn send(&self, parts: &[IoSlice<'_>]) -> std::result::Result<(), Errno> {
        let len = parts.iter().map(|part| part.len()).sum();
        if len > SHORT_BYTES {
            return rustix::io::writev(&self.0, parts).map(|_| ());
        }
        let mut short = Short([0; SHORT_BYTES]);
        let mut rest = &mut short.0[..];
        for part in parts {
            let (now, later) = rest.split_at_mut(part.len());
            now.copy_from_slice(part);
            rest = later;
        }
        rustix::io::write(&self.0, &short.0[..len]).map(|_| ())
    }
}

/// What mount(2) takes as flags.
fn flags(options: &MountOptions) -> MountFlags {
    let mut flags = match options.atime {
        AtimePolicy::Off => MountFlags::NOATIME,
        AtimePolicy::On => MountFlags::STRICTATIME,
        AtimePolicy::Relative => MountFlags::RELATIME,
    };
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOEXEC, !options.exec);
    flags.set(MountFlags::NOSUID, !options.setuid);
    flags.set(MountFlags::NODEV, !options.devices);
    flags
}

fn mount_directly(directory: &Path, options: &MountOptions) -> std::result::Result<Device, Errno> {
    let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    let source = options.source.as_str();
    rustix::mount::mount(source, directory, TYPE, flags(options), data.as_c_str())?;
    Ok(Device(device))
}

/// The options as `fusermount3` takes them.
fn words(options: &MountOptions) -> String {
    let mut words = String::from("default_permissions,subtype=ashift");
    let named = [
        (options.read_only, "ro", "rw"),
        (options.exec, "exec", "noexec"),
        (options.setuid, "suid", "nosuid"),
        (options.devices, "dev", "nodev"),
    ];
    for (is_so, yes, no) in named {
        let _ = write!(words, ",{}", if is_so { yes } else { no });
    }
    if options.allow_other {
        words.push_str(",allow_other");
    }
    if options.atime == AtimePolicy::Off {
        words.push_str(",noatime");
    }
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let _ = write!(words, ",fsname={source}");
    words
}

/// Mounts by a program that has root's rights, which sends the open device back.
fn mount_by_helper(directory: &Path, options: &MountOptions) -> Result<Device> {
    let (ours, theirs) = UnixStream::pair()?;
    // The helper inherits its end.
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty()).map_err(std::io::Error::from)?;
    for helper in HELPERS {
        let started = Command::new(helper)
            .args(["-o", &words(options), "--"])
            .arg(directory)
            .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(helper) = started else {
            continue;
        };
        drop(theirs);
        let device = receive_descriptor(&ours);
        let output = helper.wait_with_output()?;
        return match device {
            Some(device) if output.status.success() => Ok(Device(device)),
            _ => {
                let text = String::from_utf8_lossy(&output.stderr);
                let text = text
                    .trim()
                    .rsplit("fusermount3: ")
                    .next()
                    .unwrap_or_default();
                Err(Error::new(ErrorKind::Permission, text))
            }
        };
    }
    let text = "mounting needs root, or the program fusermount3 (Debian: package fuse3)";
    Err(Error::new(ErrorKind::Permission, text))
}

fn receive_descriptor(socket: &UnixStream) -> Option<OwnedFd> {
    let mut byte = [0u8];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    rustix::net::recvmsg(
        socket.as_fd(),
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )
    .ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

/// How to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmount {
    /// Unless it is in use.
    Idle,
    /// Programs that use it get errors.
    Force,
    /// Programs that use it go on with what they have open.
    Detach,
}

/// Unmounts a directory. With `force`, also while it is in use: those who use it get errors.
///
/// # Errors
/// `Busy` while programs use it; what the host says.
pub fn unmount(directory: &Path, force: bool) -> Result<()> {
    unmount_with(
        directory,
        if force { Unmount::Force } else { Unmount::Idle },
    )
}

pub(crate) fn unmount_with(directory: &Path, how: Unmount) -> Result<()> {
    let flags = match how {
        Unmount::Idle => UnmountFlags::NOFOLLOW,
        Unmount::Force => UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW,
        Unmount::Detach => UnmountFlags::DETACH | UnmountFlags::NOFOLLOW,
    };
    let Err(errno) = rustix::mount::unmount(directory, flags) else {
        return Ok(());
    };
    if errno == Errno::PERM {
        if how == Unmount::Force {
            abort(directory);
        }
        let lazy = [&[][..], &["-z"]][usize::from(how != Unmount::Idle)];
        for helper in HELPERS {
            let mut command = Command::new(helper);
            command
                .args(["-u", "-q"])
                .args(lazy)
                .arg("--")
                .arg(directory);
            match command.status() {
                Ok(status) if status.success() => return Ok(()),
                Ok(_) => return Err(Error::new(ErrorKind::Busy, "it is in use")),
                Err(_) => {}
            }
        }
    }
    Err(std::io::Error::from(errno).into())
}

/// Gives those who use a mount errors, as its owner may; where the host does not show its connections, they go on.
fn abort(directory: &Path) {
    // The kernel knows that by itself, and is to ask nothing here.
    let flags = AtFlags::STATX_DONT_SYNC;
    let Ok(seen) = rustix::fs::statx(CWD, directory, flags, StatxFlags::TYPE) else {
        return;
    };
    let connection = Path::new(CONNECTIONS).join(seen.stx_dev_minor.to_string());
    // Detaching comes next in any case.
    let _ = std::fs::write(connection.join("abort"), "1");
}

/// Changes the flags of a mount.
pub(crate) fn remount(directory: &Path, options: &MountOptions) -> Result<()> {
    rustix::mount::mount_remount(directory, flags(options), "")
        .map_err(|errno| std::io::Error::from(errno).into())
}
