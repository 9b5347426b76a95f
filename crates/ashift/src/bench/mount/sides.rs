//! What is measured: how each side is made, mounted, mounted again and taken away.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base::{Error, ErrorKind, Result};

use super::super::host_fs::{Mounted, image, silent};
use super::loads::seconds;
use crate::holder;

/// How long a side may take to be mounted.
const PATIENCE: Duration = Duration::from_secs(30);
const POOL: &str = "bench";

/// One that is measured.
pub(super) struct Side {
    pub(super) name: &'static str,
    make: fn(&Sides, &Files, IsNew) -> Result<Mount>,
}

pub(super) const SIDES: [Side; 4] = [
    Side {
        name: "ours",
        make: Sides::mount_ours,
    },
    Side {
        name: "btrfs",
        make: |_, files, is_new| mount_kernel("btrfs", files, is_new).map(Mount::Kernel),
    },
    Side {
        name: "ext4",
        make: |_, files, is_new| mount_kernel("ext4", files, is_new).map(Mount::Kernel),
    },
    // A folder of an ext4.
    Side {
        name: "passthrough",
        make: Sides::mount_passthrough,
    },
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum IsNew {
    Yes,
    No,
}

/// Where sides are made.
pub(super) struct Sides {
    pub(super) own: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) image_bytes: u64,
}

/// The paths of a side.
struct Files {
    image: PathBuf,
    place: PathBuf,
    /// What a passthrough shows.
    below: PathBuf,
}

/// What is mounted; unmounted on drop.
enum Mount {
    Kernel(#[expect(dead_code, reason = "it is dropped")] Mounted),
    Passthrough {
        above: Option<Mounted>,
        server: Child,
        below: Option<Mounted>,
    },
    /// The server is the holder of the pool.
    Ours {
        server: Child,
        /// What ends it, in this order.
        ends: Vec<Command>,
    },
}

impl Mount {
    /// The most memory that the process which serves it has had, in bytes; `None` of the kernel's own.
    fn peak_bytes(&self) -> Option<u64> {
        let (Mount::Ours { server, .. } | Mount::Passthrough { server, .. }) = self else {
            return None;
        };
        let status = fs::read_to_string(format!("/proc/{}/status", server.id())).ok()?;
        let peak = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kib: u64 = peak.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kib << 10)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        match self {
            Mount::Kernel(_) => {}
            Mount::Passthrough {
                above,
                server,
                below,
            } => {
                drop(above.take());
                // It has ended, or never began.
                let _ = server.wait();
                drop(below.take());
            }
            Mount::Ours { server, ends } => {
                for end in ends {
                    // What is left mounted is seen when it is mounted again.
                    let _ = silent(end);
                }
                let _ = server.wait();
            }
        }
    }
}

/// A side that is mounted; it is taken away on drop.
pub(super) struct Made<'a> {
    sides: &'a Sides,
    side: &'a Side,
    files: Files,
    mount: Option<Mount>,
    /// See [`Mount::peak_bytes`], of all its mounts.
    peak_bytes: Option<u64>,
}

impl Made<'_> {
    /// The most memory that a process which served it has had, in bytes; `None` of the kernel's own.
    pub(super) fn peak_bytes(&self) -> Option<u64> {
        let now = self.mount.as_ref().and_then(Mount::peak_bytes);
        now.max(self.peak_bytes)
    }

    pub(super) fn place(&self) -> &Path {
        &self.files.place
    }

    /// Mounts it again, so that no cache has anything of it.
    pub(super) fn again(&mut self) -> Result<()> {
        self.peak_bytes = self.peak_bytes();
        self.mount = None;
        let made = (self.side.make)(self.sides, &self.files, IsNew::No)?;
        self.mount = Some(made);
        Ok(())
    }

    /// Writes to the disk what was written so far; returns how long that takes, in s.
    pub(super) fn write_out(&self) -> Result<f64> {
        let mut sync = Command::new("sync");
        let sync = match self.mount {
            Some(Mount::Ours { .. }) => &mut self.sides.own(&["zpool", "sync", POOL]),
            Some(Mount::Passthrough { .. }) => sync.arg("-f").arg(&self.files.below),
            _ => sync.arg("-f").arg(&self.files.place),
        };
        seconds(|| silent(sync))
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        let is_ours = matches!(self.mount, Some(Mount::Ours { .. }));
        self.mount = None;
        if is_ours {
            let _ = silent(&mut self.sides.own(&["zpool", "destroy", "-f", POOL]));
        }
        let _ = fs::remove_file(&self.files.image);
    }
}

impl Sides {
    /// Makes a side anew.
    pub(super) fn make<'a>(&'a self, side: &'a Side) -> Result<Made<'a>> {
        let path = |kind: &str| self.folder.join(format!("{}{kind}", side.name));
        let files = Files {
            image: path(".img"),
            place: path(""),
            below: path("-below"),
        };
        image(&files.image, self.image_bytes)?;
        fs::create_dir_all(&files.place)?;
        let mount = (side.make)(self, &files, IsNew::Yes)?;
        Ok(Made {
            sides: self,
            side,
            files,
            mount: Some(mount),
            peak_bytes: None,
        })
    }

    fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    fn own(&self, args: &[&str]) -> Command {
        let mut own = Command::new(&self.own);
        own.args(args).env("ASHIFT_STATE", self.state());
        own
    }

    fn mount_ours(&self, files: &Files, is_new: IsNew) -> Result<Mount> {
        if is_new == IsNew::Yes {
            let create = ["zpool", "create", "-O", "mountpoint=none", POOL];
            silent(self.own(&create).arg(&files.image))?;
        }
        let state = self.state();
        let is_up = || Ok(holder::process(&state)?.is_some());
        let server = serve(&mut self.own(&["serve", POOL]), is_up)?;
        let with_place = |args: &[&str]| {
            let mut command = self.own(args);
            command.arg(&files.place);
            command
        };
        let mount = Mount::Ours {
            server,
            ends: vec![with_place(&["unmount"]), self.own(&["serve", "--stop"])],
        };
        silent(&mut with_place(&["mount", "--background", POOL]))?;
        Ok(mount)
    }

    fn mount_passthrough(&self, files: &Files, is_new: IsNew) -> Result<Mount> {
        let below = mount_kernel_at("ext4", files, &files.below, is_new)?;
        let mut server = self.own(&["bench", "passthrough"]);
        let server = server.args([&files.below, &files.place]);
        let is_up = || is_mounted(&files.place);
        let server = serve(server, is_up)?;
        Ok(Mount::Passthrough {
            above: Some(Mounted::at(&files.place)),
            server,
            below: Some(below),
        })
    }
}

fn mount_kernel(kind: &str, files: &Files, is_new: IsNew) -> Result<Mounted> {
    mount_kernel_at(kind, files, &files.place, is_new)
}

fn mount_kernel_at(kind: &str, files: &Files, place: &Path, is_new: IsNew) -> Result<Mounted> {
    match is_new {
        IsNew::Yes => Mounted::new(kind, &files.image, place),
        IsNew::No => Mounted::again(&files.image, place),
    }
}

fn is_mounted(place: &Path) -> Result<bool> {
    let parent = place.parent().expect("it is in the folder");
    Ok(fs::metadata(place)?.dev() != fs::metadata(parent)?.dev())
}

/// Starts a process, and waits until it serves.
fn serve(command: &mut Command, is_up: impl Fn() -> Result<bool>) -> Result<Child> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut server = command.stderr(Stdio::piped()).spawn()?;
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end && server.try_wait()?.is_none() {
        if is_up()? {
            return Ok(server);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    server.kill()?;
    let said = server.wait_with_output()?.stderr;
    let text = format!(
        "{command:?} does not serve: {}",
        String::from_utf8_lossy(&said)
    );
    Err(Error::new(ErrorKind::Io, text))
}
