//! A mount as its caller holds it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Context, Error, ErrorKind, Result};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use zpl::mount::Mount;

use crate::device::{self, Device, Unmount};
use crate::options::{MountOptions, Snapshots};
use crate::session::Session;

/// How far the kernel reads ahead of a program that reads a file from its start on, in KiB: as far as btrfs has it,
/// which is four of the largest requests. What FUSE begins with is 128 KiB, read in one request after another.
const READ_AHEAD_KIB: u32 = 4096;

/// Pieces of address space that the host gives a thread: two stacks, and what guards them.
const MAPS_PER_THREAD: u64 = 4;

/// A data set that is mounted. Dropping it unmounts: what is in use then stays usable until it is closed.
pub struct Mounted {
    directory: PathBuf,
    session: Arc<Session>,
    /// The number of the file system, as the host knows it.
    device: Option<(u32, u32)>,
}

/// Mounts `files` on `directory`; returns once it can be used.
///
/// # Errors
/// `Unsupported` if the host has no FUSE, or no room for the threads of one more mount; `NotFound`, `NotDirectory`;
/// what the host says of mounting.
pub fn mount(
    files: Arc<Mount>,
    snapshots: Arc<dyn Snapshots>,
    directory: &Path,
    options: &MountOptions,
) -> Result<Mounted> {
    let name = || directory.display().to_string();
    let directory = directory.canonicalize().map_err(Error::from).within(name)?;
    if !directory.is_dir() {
        return Err(Error::new(ErrorKind::NotDirectory, "not a directory")).within(name);
    }
    check_room().within(name)?;
    let device = Device::mount(&directory, options).within(name)?;
    let session = Arc::new(Session::begin(device, files, snapshots, options).within(name)?);
    session.serve();
    let mut mounted = Mounted {
        directory,
        session,
        device: None,
    };
    mounted.device = mounted.seen();
    mounted.read_further_ahead();
    Ok(mounted)
}

/// Refuses a mount for whose threads there may be no address space left: a thread that has none ends the process, and
/// all that is mounted with it.
fn check_room() -> Result<()> {
    let number = |path: &str, name: &str| {
        let text = fs::read_to_string(path).ok()?;
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
        lines.next()?.trim().parse().ok()
    };
    let threads = number("/proc/self/status", "Threads:");
    let maps_max = number("/proc/sys/vm/max_map_count", "");
    match threads.zip(maps_max) {
        Some((threads, maps_max)) if !has_room(threads, maps_max) => {
            let what = format!(
                "{threads} threads are as many as this host allows one process (raise vm.max_map_count by sysctl)"
            );
            Err(Error::new(ErrorKind::Unsupported, what))
        }
        _ => Ok(()),
    }
}

/// Whether `threads` leave a quarter of the pieces of address space for all else: a mount that many use at once starts
/// more threads, and buffers need some.
fn has_room(threads: u64, maps_max: u64) -> bool {
    threads.saturating_mul(MAPS_PER_THREAD) < maps_max / 4 * 3
}

impl Mounted {
    /// Where it is mounted.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether it is still mounted: it can be unmounted from outside.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        !self.session.has_ended()
    }

    /// Unmounts it. With `force`, also while it is in use: those who use it get errors.
    ///
    /// # Errors
    /// `Busy` while programs use it; `InvalidInput` if it is hidden by another mount; what the host says.
    pub fn unmount(&self, force: bool) -> Result<()> {
        if !self.is_mounted() {
            return Ok(());
        }
        let name = || self.directory.display().to_string();
        if !self.is_uppermost() {
            let hidden = "another file system is mounted over it";
            return Err(Error::invalid(hidden)).within(name);
        }
        device::unmount(&self.directory, force).within(name)?;
        self.wait();
        Ok(())
    }

    /// The file system that programs see there.
    fn seen(&self) -> Option<(u32, u32)> {
        // The kernel knows that by itself, and is to ask nothing here.
        let flags = AtFlags::STATX_DONT_SYNC;
        let seen = rustix::fs::statx(CWD, &self.directory, flags, StatxFlags::TYPE).ok()?;
        Some((seen.stx_dev_major, seen.stx_dev_minor))
    }

    /// Has the kernel read further ahead. The answer to INIT can only lower what the host begins with, and only root
    /// may raise it: mounts of others are read as before.
    fn read_further_ahead(&self) {
        if let Some((major, minor)) = self.device {
            let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
            // Without it files are read more slowly, and that is all.
            let _ = fs::write(setting, READ_AHEAD_KIB.to_string());
        }
    }

    /// Whether unmounting the directory would end this mount, and not one that is over it.
    fn is_uppermost(&self) -> bool {
        self.seen() == self.device
    }

    /// Waits until it is no longer mounted, and nothing here uses the data set any more.
    pub fn wait(&self) {
        self.session.wait();
    }

    /// Closes a snapshot that programs have looked at below `.zfs/snapshot`, so that it can be destroyed. One in which
    /// a program still is stays open.
    pub fn let_go(&self, snapshot: &str) {
        self.session.let_go(snapshot);
    }

    /// Changes what can be changed of a mount: whether it is read-only, `exec`, `setuid`, `devices`, `atime`.
    /// Needs root.
    ///
    /// # Errors
    /// `Busy` if files are open for writing that are to be read-only; `Permission`.
    pub fn remount(&self, options: &MountOptions) -> Result<()> {
        self.session.set_options(options);
        device::remount(&self.directory, options).within(|| self.directory.display().to_string())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_mounted() && self.is_uppermost() {
            // Those who use it go on; if the host refuses, it stays.
            let _ = device::unmount_with(&self.directory, Unmount::Detach);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_leaves_room_for_others() {
        assert!(check_room().is_ok());
        assert!(has_room(12_000, 65_530));
        assert!(!has_room(12_300, 65_530));
        assert!(!has_room(u64::MAX, 65_530));
    }
}
