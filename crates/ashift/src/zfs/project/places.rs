//! Files that have projects, in pools and on this host.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use base::{Error, Result};
use rustix::fs::OFlags;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};
use service::Access;
use zpl::mount::Mount;
use zpl::{FIRST_ENTRY, FileType, SetAttr, pflags};

use crate::files::{Location, Paths};

/// What a file is, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Regular,
    Directory,
    Other,
}

/// What was found where a path leads to.
pub(super) struct Found {
    pub(super) kind: Kind,
    pub(super) project: u32,
    /// What is made in it gets its project.
    pub(super) inherits: bool,
}

/// Where paths lead to; links are followed.
pub(super) struct Places(Paths);

impl Places {
    pub(super) fn new(access: Access) -> Places {
        Places(Paths::new(access))
    }

    pub(super) fn close(self) -> Result<()> {
        self.0.close()
    }

    /// Where a path leads to; from a machine none leads to this host.
    fn locate(&self, path: &str) -> Result<Location> {
        match self.0.locate(path)? {
            Location::Host(_) if crate::world::is_machine() => {
                Err(Error::not_found("no data set is mounted there"))
            }
            location => Ok(location),
        }
    }

    pub(super) fn find(&self, path: &str) -> Result<Found> {
        match self.locate(path)? {
            Location::Host(path) => on_host::find(&open(&path)?),
            Location::Pool(dataset, path) => {
                let mount = self.0.mount(&dataset)?;
                let attr = mount.getattr(mount.resolve(&path)?)?;
                Ok(Found {
                    kind: match attr.file_type() {
                        Some(FileType::Regular) => Kind::Regular,
                        Some(FileType::Directory) => Kind::Directory,
                        _ => Kind::Other,
                    },
                    project: attr.projid as u32,
                    inherits: attr.pflags & pflags::PROJINHERIT != 0,
                })
            }
        }
    }

    pub(super) fn set(&self, path: &str, project: u32, inherits: bool) -> Result<()> {
        match self.locate(path)? {
            Location::Host(path) => on_host::set(&open(&path)?, project, inherits),
            Location::Pool(dataset, path) => {
                let mount = self.0.mount(&dataset)?;
                let id = mount.resolve(&path)?;
                let flags = mount.getattr(id)?.pflags & !pflags::PROJINHERIT;
                let inherit = if inherits { pflags::PROJINHERIT } else { 0 };
                let set = SetAttr {
                    pflags: Some(flags | inherit),
                    projid: Some(project.into()),
                    ..SetAttr::default()
                };
                mount.setattr(id, &set).map(drop)
            }
        }
    }

    /// The names in a directory, and which of them are directories.
    pub(super) fn entries(&self, path: &str) -> Result<Vec<(String, bool)>> {
        match self.locate(path)? {
            Location::Host(path) => {
                let mut entries = Vec::new();
                for entry in std::fs::read_dir(path)? {
                    let entry = entry?;
                    let name = entry.file_name().into_encoded_bytes();
                    entries.push((text(name)?, entry.file_type()?.is_dir()));
                }
                Ok(entries)
            }
            Location::Pool(dataset, path) => in_pool(&*self.0.mount(&dataset)?, &path),
        }
    }
}

fn in_pool(mount: &Mount, path: &str) -> Result<Vec<(String, bool)>> {
    let mut found = Vec::new();
    mount.readdir(mount.resolve(path)?, FIRST_ENTRY, |entry| {
        found.push((
            entry.name.clone(),
            entry.file_type == Some(FileType::Directory),
        ));
        true
    })?;
    let named = |(name, is_directory)| Ok((text(name)?, is_directory));
    found.into_iter().map(named).collect()
}

fn text(name: Vec<u8>) -> Result<String> {
    let wrong = |_| Error::invalid("a name in it is not UTF-8");
    String::from_utf8(name).map_err(wrong)
}

/// Opens a file to look at it; a pipe does not keep us waiting.
fn open(path: &std::path::Path) -> Result<File> {
    let flags = OFlags::NOCTTY | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits() as i32);
    Ok(options.open(path)?)
}

/// ioctl_fs(2): what Linux keeps of a file beyond its mode.
mod on_host {
    use super::*;

    /// `struct fsxattr` of linux/fs.h.
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct FsXattr {
        flags: u32,
        extent_bytes: u32,
        extents: u32,
        project: u32,
        cow_extent_bytes: u32,
        padding: [u8; 8],
    }

    /// `FS_XFLAG_PROJINHERIT`
    const PROJINHERIT: u32 = 0x200;
    /// `FS_IOC_FSGETXATTR`
    const GET: Opcode = opcode::read::<FsXattr>(b'X', 31);
    /// `FS_IOC_FSSETXATTR`
    const SET: Opcode = opcode::write::<FsXattr>(b'X', 32);

    fn get(file: &File) -> Result<FsXattr> {
        // SAFETY: the kernel fills in one struct of this layout.
        let got = unsafe { ioctl(file, Getter::<GET, FsXattr>::new()) };
        Ok(got.map_err(std::io::Error::from)?)
    }

    pub(super) fn find(file: &File) -> Result<Found> {
        let (metadata, got) = (file.metadata()?, get(file)?);
        let kind = match () {
            () if metadata.is_file() => Kind::Regular,
            () if metadata.is_dir() => Kind::Directory,
            () => Kind::Other,
        };
        Ok(Found {
            kind,
            project: got.project,
            inherits: got.flags & PROJINHERIT != 0,
        })
    }

    pub(super) fn set(file: &File, project: u32, inherits: bool) -> Result<()> {
        let got = get(file)?;
        let inherit = if inherits { PROJINHERIT } else { 0 };
        let wanted = FsXattr {
            flags: got.flags & !PROJINHERIT | inherit,
            project,
            ..got
        };
        // SAFETY: the kernel reads one struct of this layout.
        let set = unsafe { ioctl(file, Setter::<SET, FsXattr>::new(wanted)) };
        Ok(set.map_err(std::io::Error::from)?)
    }
}
