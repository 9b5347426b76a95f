//! Devices as users name them, and whether they are free to be used.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_vdev.c (`make_leaf_vdev`, `check_file_generic`), lib/libzfs/libzfs_import.c
//! (`zpool_in_use`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use admin::getopt::Parsed;
use admin::prop::split_assignment;
use base::{ErrorKind, Guid};
use geom::disk::OpenMode;
use geom::{Namespace, Provider};
use machine::World;
use phys::pool_names::{L2CACHE, SPARES};
use service::Session;
use vdev::label::Owner;
use vdev::{PoolState, VdevKind, label};

use crate::world::current;

/// A device that was named on the command line.
#[derive(Clone, Debug)]
pub(super) struct Device {
    /// Absolute.
    pub(super) path: PathBuf,
    /// Whether it is a file.
    pub(super) is_file: bool,
    /// Whether its labels are to call it a disk although it is a file.
    pub(super) is_told_disk: bool,
}

impl Device {
    /// Finds the device that the user means: a path, or the short name of a device.
    pub(super) fn find(typed: &str) -> Result<Device, String> {
        let world = current().map_err(|e| e.to_string())?;
        if world.is_machine() {
            return Device::find_in_machine(&world, typed);
        }
        let given = Path::new(typed);
        let path = if given.is_absolute() {
            given.to_path_buf()
        } else {
            let here = std::path::absolute(given).unwrap_or_else(|_| given.to_path_buf());
            if here.exists() {
                here
            } else {
                Path::new("/dev").join(typed)
            }
        };
        let Ok(metadata) = std::fs::metadata(&path) else {
            if world.open(typed, OpenMode::Inspect).is_ok() {
                let path = PathBuf::from(world.canonical(typed));
                // A partition of an image.
                return Ok(Device {
                    is_file: !path.starts_with("/dev"),
                    path,
                    is_told_disk: true,
                });
            }
            if given.is_absolute() {
                return Err(format!("cannot resolve path '{typed}'"));
            }
            return Err(format!(
                "cannot open '{typed}': no such device in /dev\nmust be a full path or shorthand \
                 device name"
            ));
        };
        let kind = metadata.file_type();
        let is_block = std::os::unix::fs::FileTypeExt::is_block_device(&kind);
        if !is_block && !kind.is_file() {
            return Err(format!(
                "cannot use '{}': must be a block device or regular file",
                path.display()
            ));
        }
        Ok(Device {
            path,
            is_file: !is_block,
            is_told_disk: false,
        })
    }

    fn find_in_machine(world: &World, typed: &str) -> Result<Device, String> {
        match world.open(typed, OpenMode::Inspect) {
            Ok(provider) => Ok(Device {
                path: Path::new("/dev").join(provider.name()),
                is_file: false,
                is_told_disk: false,
            }),
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(format!("cannot open '{typed}': {error}"))
            }
            Err(_) if typed.starts_with('/') => Err(format!("cannot resolve path '{typed}'")),
            Err(_) => Err(format!(
                "cannot open '{typed}': no such device in /dev\nmust be a full path or shorthand \
                 device name"
            )),
        }
    }

    /// The same device; `is_told_disk`: its labels are to call it a disk in any case.
    pub(super) fn told_disk(mut self, is_told_disk: bool) -> Device {
        self.is_told_disk |= is_told_disk;
        self
    }

    /// The vdev kind that goes into labels.
    pub(super) fn kind(&self) -> VdevKind {
        if self.is_file && !self.is_told_disk {
            VdevKind::File
        } else {
            VdevKind::Disk
        }
    }

    /// Its path as text.
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Opens it.
    pub(super) fn open(&self, mode: OpenMode) -> base::Result<Arc<dyn Provider>> {
        Namespace::open(&*current()?, &self.name(), mode)
    }
}

/// The option `-o type=disk`, which OpenZFS does not have.
pub(super) const TYPE: &str = "type";

/// Whether `-o type=disk` says that labels are to call files disks. What is to be copied onto a disk needs that:
/// OpenZFS opens as a file only what is one.
pub(super) fn tells_disks(args: &Parsed) -> Result<bool, String> {
    let assignments = args.values('o').filter_map(split_assignment);
    let told = assignments.filter(|(name, _)| *name == TYPE).last();
    match told {
        None => Ok(false),
        Some((_, "disk")) => Ok(true),
        Some((_, value)) => Err(format!(
            "invalid 'type={value}' property: only 'disk' is allowed, for files that are to be copied \
             onto disks."
        )),
    }
}

/// Whether a name is that of a distributed spare: `draid2-0-1`.
#[doc(alias = "zpool_is_draid_spare")]
pub(super) fn is_distributed_spare(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("draid") else {
        return false;
    };
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    let words: Vec<&str> = rest.split('-').collect();
    words.len() == 3 && words.into_iter().all(is_number)
}

/// A reason not to use a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Objection {
    /// The message.
    pub(super) text: String,
    /// Whether `-f` overrides it.
    pub(super) can_force: bool,
}

/// What a device is to be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose<'p> {
    /// A vdev, or part of one.
    Vdev,
    /// A hot spare, which pools may share.
    Spare,
    /// To replace a device of this pool, as its own hot spares may.
    Replacement(&'p str),
}

/// The reason not to use the device: it is in use, or has data on it that may be wanted.
#[doc(alias = "check_file_generic")]
pub(super) fn objection(
    session: &Session,
    device: &Device,
    purpose: Purpose<'_>,
) -> base::Result<Option<Objection>> {
    let path = device.name();
    let provider = match device.open(OpenMode::Inspect) {
        Ok(provider) => provider,
        Err(error) if error.kind() == ErrorKind::Busy => {
            let text = format!("{path} is in use and contains a unknown filesystem.");
            return Ok(Some(Objection {
                text,
                can_force: false,
            }));
        }
        Err(error) => return Err(error),
    };
    if let Some(owner) = label::owner(&*provider) {
        if let Some(pool) = spare_of(session, &owner)? {
            return reserved(session, &path, (&pool, owner.guid), purpose);
        }
        let is_active = owner.state == PoolState::Active
            && session.pools().is_guid_imported(owner.pool_guid)?;
        let what = match owner.state {
            PoolState::Active if is_active => "active",
            PoolState::Active => "potentially active",
            PoolState::Exported => "exported",
            PoolState::L2Cache => {
                let pools = session.pools();
                let pool = pools.pool_that_lists(L2CACHE, owner.guid, &|_| true)?;
                return Ok(pool.map(|pool| Objection {
                    text: format!("{path} is part of unknown pool '{pool}'"),
                    can_force: true,
                }));
            }
            PoolState::Destroyed | PoolState::Spare => return Ok(None),
        };
        let text = format!("{path} is part of {what} pool '{}'", owner.pool);
        return Ok(Some(Objection {
            text,
            can_force: !is_active,
        }));
    }
    Ok(signature(&*provider).map(|what| Objection {
        text: format!("{path} contains a {what}"),
        can_force: true,
    }))
}

/// The imported pool that the device is a hot spare of, or that uses it as one.
#[doc(alias = "zpool_in_use")]
fn spare_of(session: &Session, owner: &Owner) -> base::Result<Option<String>> {
    let pools = session.pools();
    match owner.state {
        PoolState::Spare => pools.pool_that_lists(SPARES, owner.guid, &|_| true),
        PoolState::Active if owner.is_spare => {
            let is_imported = pools.is_guid_imported(owner.pool_guid)?;
            Ok(is_imported.then(|| owner.pool.clone()))
        }
        _ => Ok(None),
    }
}

/// The reason not to use a hot spare of `pool`.
#[doc(alias = "is_spare")]
fn reserved(
    session: &Session,
    path: &str,
    (pool, guid): (&str, Guid),
    purpose: Purpose<'_>,
) -> base::Result<Option<Objection>> {
    let is_free = match purpose {
        Purpose::Vdev => false,
        Purpose::Spare => true,
        Purpose::Replacement(own) => {
            let listed = session
                .pools()
                .pool_that_lists(SPARES, guid, &|name| name == own);
            listed?.is_some()
        }
    };
    Ok((!is_free).then(|| Objection {
        text: format!("{path} is reserved as a hot spare for pool {pool}"),
        can_force: false,
    }))
}

/// File systems and the like by the bytes that they begin with: offset, bytes, name.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0x438, &[0x53, 0xef], "filesystem of type 'ext4'"),
    (0, b"XFSB", "filesystem of type 'xfs'"),
    (0x1_0040, b"_BHRfS_M", "filesystem of type 'btrfs'"),
    (3, b"NTFS    ", "filesystem of type 'ntfs'"),
    (3, b"EXFAT   ", "filesystem of type 'exfat'"),
    (0x36, b"FAT", "filesystem of type 'vfat'"),
    (0x52, b"FAT32", "filesystem of type 'vfat'"),
    (0, b"hsqs", "filesystem of type 'squashfs'"),
    (0x8001, b"CD001", "filesystem of type 'iso9660'"),
    (
        0x400,
        &[0x10, 0x20, 0xf5, 0xf2],
        "filesystem of type 'f2fs'",
    ),
    (4086, b"SWAPSPACE2", "filesystem of type 'swap'"),
    (0, b"LUKS\xba\xbe", "filesystem of type 'crypto_LUKS'"),
    (0x218, b"LVM2 001", "filesystem of type 'LVM2_member'"),
    (0x200, b"EFI PART", "partition table of type 'gpt'"),
    (0x1000, b"EFI PART", "partition table of type 'gpt'"),
];

/// What a device seems to contain, other than a pool.
fn signature(provider: &dyn Provider) -> Option<String> {
    let mut head = vec![0; 0x1_0000 + 0x200];
    if provider.mediasize() < head.len() as u64 || provider.read(0, &mut head).is_err() {
        return None;
    }
    let found = SIGNATURES
        .iter()
        .find(|(at, bytes, _)| head.get(*at..*at + bytes.len()) == Some(*bytes));
    if let Some((_, _, what)) = found {
        return Some((*what).to_owned());
    }
    let has_partition = (0..4).any(|i| head[446 + 16 * i + 4] != 0);
    (head[510..512] == [0x55, 0xaa] && has_partition)
        .then(|| "partition table of type 'dos'".to_owned())
}

/// A device's path as `zpool status` shows it: disks without the folder they are in.
#[doc(alias = "zfs_strip_path")]
pub(super) fn short_name(path: &str, is_disk: bool) -> &str {
    const FOLDERS: [&str; 9] = [
        "/dev/disk/by-vdev/",
        "/dev/mapper/",
        "/dev/disk/by-partlabel/",
        "/dev/disk/by-partuuid/",
        "/dev/disk/by-label/",
        "/dev/disk/by-uuid/",
        "/dev/disk/by-id/",
        "/dev/disk/by-path/",
        "/dev/",
    ];
    if !is_disk {
        return path;
    }
    FOLDERS
        .iter()
        .find_map(|folder| path.strip_prefix(folder))
        .unwrap_or(path)
}
