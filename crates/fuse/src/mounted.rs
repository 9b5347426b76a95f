//! A mount as its caller holds it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Context, Error, ErrorKind, Result};
use rt::JoinHandle;
use rustix::mount::UnmountFlags;
use zpl::mount::Mount;

use crate::device::{self, Device};
use crate::options::{MountOptions, Snapshots};
use crate::session::Session;

/// A data set that is mounted. Dropping it unmounts: what is in use then stays usable until it is closed.
pub struct Mounted {
    directory: PathBuf,
    session: Arc<Session>,
    served: rt::Mutex<Option<JoinHandle<()>>>,
}

/// Mounts `files` on `directory`; returns once it can be used.
///
/// # Errors
/// `Unsupported` if the host has no FUSE; `NotFound`, `NotDirectory`; what the host says of mounting.
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
    let device = Device::mount(&directory, options).within(name)?;
    let session = Arc::new(Session::begin(device, files, snapshots, options).within(name)?);
    let serving = Arc::clone(&session);
    let served = rt::spawn("fuse", move || serving.serve());
    Ok(Mounted {
        directory,
        session,
        served: rt::Mutex::new(Some(served)),
    })
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
    /// `Busy` while programs use it; what the host says.
    pub fn unmount(&self, force: bool) -> Result<()> {
        if !self.is_mounted() {
            return Ok(());
        }
        let name = || self.directory.display().to_string();
        let flags = if force {
            UnmountFlags::FORCE | UnmountFlags::DETACH
        } else {
            UnmountFlags::empty()
        };
        device::unmount(&self.directory, flags).within(name)?;
        self.wait();
        Ok(())
    }

    /// Waits until it is no longer mounted.
    pub fn wait(&self) {
        self.session.wait();
        if let Some(served) = self.served.lock().take() {
            // A thread that panicked has said so.
            let _ = served.try_join();
        }
    }

    /// Changes what can be changed of a mount: whether it is read-only, `exec`, `setuid`, `devices`, `atime`. Needs root.
    ///
    /// # Errors
    /// `Busy` if files are open for writing that are to be read-only; `Permission`.
    pub fn remount(&self, options: &MountOptions) -> Result<()> {
        self.session.set_options(options);
        device::remount(&self.directory, options).within(|| self.directory.display().to_string())
    }

    /// Makes the kernel let go of a snapshot, which can be destroyed then.
    ///
    /// # Errors
    /// `Busy` while programs use it.
    pub fn close_snapshot(&self, name: &str) -> Result<()> {
        self.session.close_snapshot(name)
    }

    /// Waits until the kernel knows what was changed so far beside the mount.
    pub fn settle(&self) {
        self.session.settle();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_mounted() {
            // Those who use it go on; if the host refuses, it stays.
            let _ = device::unmount(&self.directory, UnmountFlags::DETACH);
        }
    }
}
