//! Mounts that commands make, move and end where a process holds the pools; with the words of OpenZFS.
//!
//! # What it is
//! In a process that holds the pools of a host, data sets are mounted where their properties say, and commands that
//! change data sets move what is mounted ([`Moved`]). In any other process nothing is mounted, and all of this does
//! nothing.
//!
//! # Source
//! OpenZFS lib/libzfs/libzfs_mount.c (`zfs_mount_at`, `unmount_one`, `zpool_enable_datasets`,
//! `zpool_disable_datasets`), cmd/zfs/zfs_main.c (`zfs_mount_and_share`).

mod aside;
mod moved;
mod options;

use std::fmt::Display;
use std::path::{Path, PathBuf};

use base::{Error, ErrorKind};
use service::{MountSettings, MountedDataset, OpenPool, Pools};

use crate::failure::{Fail, Outcome};

pub(crate) use aside::Aside;
pub(crate) use moved::{Change, Moved};
pub(crate) use options::How;

/// Properties that take effect in a mount only when it is told.
const OF_MOUNTS: [&str; 7] = [
    "atime", "devices", "exec", "readonly", "relatime", "setuid", "snapdir",
];

fn cannot(verb: &str, what: impl Display, why: impl Display) -> Fail {
    Fail::Failed(format!("cannot {verb} '{what}': {why}"))
}

/// The text of an error of the host, without its number.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or("").to_owned()
}

/// Mounts a file system where its properties say; nothing is done if they say nowhere.
#[doc(alias = "zfs_mount")]
pub(crate) fn mount(pool: &OpenPool, name: &str, how: &How) -> Outcome {
    let settings = pool.mount_settings(name);
    let settings = settings.map_err(|e| cannot("mount", name, e))?;
    let Some(directory) = settings.as_ref().and_then(MountSettings::directory) else {
        return Ok(());
    };
    check(how, name)?;
    let path = Path::new(directory);
    // Those of a process that was killed are there, but cannot be used.
    fuse::clear_stale(path).map_err(|e| cannot("mount", name, e))?;
    if std::fs::symlink_metadata(path).is_err() {
        std::fs::create_dir_all(path).map_err(|e| {
            let why = format!("failed to create mountpoint: {}", plain(&e));
            cannot("mount", directory, why)
        })?;
    }
    let overlays = how.overlays || settings.as_ref().is_some_and(|settings| settings.overlays);
    if !overlays && std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(cannot("mount", directory, "directory is not empty"));
    }
    mount_at(pool, name, path, how)
}

fn check(how: &How, name: &str) -> Outcome {
    match how.is_invalid {
        true => Err(cannot("mount", name, "Invalid argument")),
        false => Ok(()),
    }
}

/// Mounts a file system at a directory.
fn mount_at(pool: &OpenPool, name: &str, directory: &Path, how: &How) -> Outcome {
    let pools = pool.pools();
    let mounted = pools.mount_dataset(name, directory, &how.given, how.allows_others);
    mounted.map_err(|error| {
        let why = match error.kind() {
            ErrorKind::Busy => "mountpoint or dataset is busy".to_owned(),
            ErrorKind::NotDirectory => "Not a directory".to_owned(),
            ErrorKind::Permission if rustix::process::geteuid().is_root() => {
                "Insufficient privileges".to_owned()
            }
            _ => error.to_string(),
        };
        cannot("mount", name, why)
    })
}

/// Mounts a new file system, if it is to be mounted by itself. It is there in any case, so that is not a failure.
#[doc(alias = "zfs_mount_and_share")]
pub(crate) fn mount_new(pool: &OpenPool, name: &str) {
    if !pool.pools().can_mount() || !is_automatic(pool, name) {
        return;
    }
    if let Err(fail) = mount(pool, name, &How::default()) {
        let _ = fail.say("");
        eprintln!("filesystem successfully created, but not mounted");
    }
}

/// Refuses a directory for a new pool that has something in it.
pub(crate) fn check_directory(directory: &str) -> Outcome {
    let first = std::fs::read_dir(directory).map(|mut entries| entries.next());
    let why = match first {
        Ok(None) => return Ok(()),
        Ok(Some(_)) => "exists and is not empty".to_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => format!(": {}", plain(&error)),
    };
    Err(Fail::Failed(format!(
        "mountpoint '{directory}' {why}\nuse '-m' option to provide a different default"
    )))
}

/// Whether a file system is mounted along with its pool.
fn is_automatic(pool: &OpenPool, name: &str) -> bool {
    let settings = pool.mount_settings(name).ok().flatten();
    settings.is_some_and(|settings| settings.is_automatic)
}

/// Mounts the file systems of a pool that are mounted along with it. Returns whether all of them are.
#[doc(alias = "zpool_enable_datasets")]
pub(crate) fn mount_pool(pool: &OpenPool, how: &How) -> base::Result<bool> {
    if !pool.pools().can_mount() {
        return Ok(true);
    }
    let mut failed = Failed::default();
    for (directory, name) in pool.mountpoints()? {
        if failed.is_above(&directory) || find(pool, &name).is_some() || !pool.is_unlocked(&name)? {
            continue;
        }
        if let Err(fail) = mount(pool, &name, how) {
            let _ = fail.say("");
            failed.extend([directory]);
        }
    }
    Ok(failed.is_empty())
}

/// Directories at which a file system could not be mounted: what belongs below them is not mounted, either, since it
/// would lie in the file system that is there instead.
#[derive(Debug, Default)]
#[doc(alias = "zfs_foreach_mountpoint")]
pub(crate) struct Failed(Vec<PathBuf>);

impl Failed {
    pub(crate) fn extend<T: Into<PathBuf>>(&mut self, directories: impl IntoIterator<Item = T>) {
        self.0.extend(directories.into_iter().map(Into::into));
    }

    pub(crate) fn is_above(&self, directory: impl AsRef<Path>) -> bool {
        let directory = directory.as_ref();
        self.0.iter().any(|failed| directory.starts_with(failed))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// How a file system is mounted, if it is.
pub(crate) fn find(pool: &OpenPool, name: &str) -> Option<MountedDataset> {
    let dataset = pool.datasets().find(name).ok()?;
    pool.mount_of(&dataset)
}

/// Unmounts a file system, if it is mounted.
#[doc(alias = "zfs_unmount")]
pub(crate) fn unmount(pool: &OpenPool, name: &str) -> Outcome {
    find(pool, name).map_or(Ok(()), |mounted| unmount_one(pool.pools(), &mounted))
}

fn unmount_one(pools: &Pools, mounted: &MountedDataset) -> Outcome {
    let directory = mounted.directory.display();
    let done = pools.unmount_dataset(mounted);
    done.map_err(|error| cannot("unmount", directory, why_not_unmounted(&error)))
}

fn why_not_unmounted(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::Busy => "pool or dataset is busy",
        ErrorKind::Io => "I/O error",
        ErrorKind::NotFound => "no such pool or dataset",
        ErrorKind::Permission => "permission denied",
        _ => "unmount failed",
    }
}

/// Unmounts all file systems of a pool, and removes directories that were made for them. The first that is in use ends
/// that; the others stay unmounted.
#[doc(alias = "zpool_disable_datasets")]
pub(crate) fn unmount_pool(pools: &Pools, pool: &str) -> Outcome {
    let mut mounted = pools.mounted();
    mounted.retain(|it| it.name == pool || is_below(&it.name, pool));
    mounted.sort_by(|a, b| b.directory.cmp(&a.directory));
    let made = made_directories(pools, pool, &mounted);
    for it in &mounted {
        unmount_one(pools, it)?;
    }
    for directory in made {
        // It may have been there before, or have something in it.
        let _ = std::fs::remove_dir(directory);
    }
    Ok(())
}

/// The directories of mounts that nobody has chosen for them.
fn made_directories(pools: &Pools, pool: &str, mounted: &[MountedDataset]) -> Vec<String> {
    let session = pools.session(service::Access::Read, "");
    let made = |it: &MountedDataset| {
        let open = session.find_pool(pool).ok().flatten()?;
        made_directory(&open, &it.name)
    };
    let made = mounted.iter().filter_map(made).collect();
    // It was only read.
    let _ = session.close();
    made
}

/// The directory of a file system, if that was not chosen for it by itself.
pub(crate) fn made_directory(pool: &OpenPool, name: &str) -> Option<String> {
    let settings = pool.mount_settings(name).ok().flatten()?;
    let directory = settings.directory().filter(|_| !settings.is_own);
    directory.map(str::to_owned)
}

/// Lets the mounts of a file system, and of those below it, have what its properties say by now.
pub(crate) fn refresh(pools: &Pools, name: &str, property: &str) -> Outcome {
    if !OF_MOUNTS.contains(&property) {
        return Ok(());
    }
    for it in pools.mounted() {
        if it.name == name || is_below(&it.name, name) {
            remount(pools, &it, &How::default())?;
        }
    }
    Ok(())
}

/// Lets a mounted file system have these options, and otherwise what its properties say.
pub(crate) fn remount(pools: &Pools, mounted: &MountedDataset, how: &How) -> Outcome {
    let name = &mounted.name;
    check(how, name)?;
    let done = pools.remount_dataset(mounted, &how.given);
    done.map_err(|error| match error.kind() {
        ErrorKind::Busy => cannot("mount", name, "mountpoint or dataset is busy"),
        _ => cannot("mount", name, error),
    })
}

fn is_below(name: &str, above: &str) -> bool {
    name.strip_prefix(above)
        .is_some_and(|rest| rest.starts_with('/'))
}
