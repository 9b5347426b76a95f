//! What the host knows about a disk's sectors: what Linux reports, and which drives are known to lie.
//!
//! # What it is
//! [`Topology`] is what Linux reports below `/sys/block/sdX/queue` and by ioctl. The values come
//! from the device itself, so a drive that reports its 4096-byte sectors as 512 bytes is believed.
//! Systems therefore keep lists of such drives: [`freebsd_quirk_4k`], [`openzfs_sector_size`].
//!
//! # Source
//! Linux `Documentation/ABI/stable/sysfs-block`, `include/uapi/linux/fs.h`.

mod liars;

use std::path::Path;

use base::{Context, Error, Result};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

pub use liars::{freebsd_quirk_4k, openzfs_sector_size};

use crate::disk;

/// Sizes and alignment of a device's sectors, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// The size.
    pub mediasize: u64,
    /// `BLKSSZGET`: the smallest unit that can be addressed.
    pub logical_block_size: u32,
    /// `BLKPBSZGET`: the smallest unit that is written without a read-modify-write.
    pub physical_block_size: u32,
    /// `BLKIOMIN`: the preferred minimum for random access.
    pub minimum_io_size: u32,
    /// `BLKIOOPT`: best for sustained access; 0 if not reported.
    pub optimal_io_size: u32,
    /// `BLKALIGNOFF`: where the first physical sector begins; -1 if it cannot be aligned.
    pub alignment_offset: i64,
    /// Whether it is rotational; `None` if unknown.
    pub is_rotational: Option<bool>,
    /// The model, as in sysfs.
    pub model: Option<String>,
}

impl Topology {
    /// What a file reports: sectors of 512 bytes, and no preference.
    #[must_use]
    pub fn of_file(mediasize: u64) -> Topology {
        Topology {
            mediasize,
            logical_block_size: 512,
            physical_block_size: 512,
            minimum_io_size: 0,
            optimal_io_size: 0,
            alignment_offset: 0,
            is_rotational: None,
            model: None,
        }
    }

    /// Asks Linux about a block device; a file is [`Topology::of_file`].
    ///
    /// # Errors
    /// `InvalidInput` for what is neither; what the host says otherwise.
    pub fn of(path: &Path) -> Result<Topology> {
        ask(path).within(|| path.display())
    }

    /// If a list of known liars says a larger sector than the device reports: that size, and which list.
    #[must_use]
    pub fn known_lie(&self) -> Option<(u32, &'static str)> {
        let model = self.model.as_deref()?;
        let openzfs = openzfs_sector_size("ATA", model).map(|size| (size, "OpenZFS"));
        let freebsd = freebsd_quirk_4k(model).map(|_| (4096, "FreeBSD"));
        let (size, list) = freebsd.or(openzfs)?;
        (size > self.physical_block_size).then_some((size, list))
    }
}

fn ask(path: &Path) -> Result<Topology> {
    let host = |errno: Errno| Error::from(std::io::Error::from(errno));
    let stat = rustix::fs::stat(path).map_err(host)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => {}
        FileType::RegularFile => {
            return Ok(Topology::of_file(u64::try_from(stat.st_size).unwrap_or(0)));
        }
        _ => return Err(Error::invalid("neither a file nor a block device")),
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut topology = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => disk::device_topology(&fd)?,
        // A device that may not be opened is still described in sysfs, which everyone can read.
        Err(errno @ (Errno::ACCESS | Errno::PERM)) => {
            from_sysfs(stat.st_rdev).ok_or_else(|| host(errno))?
        }
        Err(errno) => return Err(host(errno)),
    };
    topology.is_rotational = sysfs(stat.st_rdev, "queue/rotational").map(|text| text == "1");
    topology.model = sysfs(stat.st_rdev, "device/model");
    Ok(topology)
}

fn from_sysfs(device: u64) -> Option<Topology> {
    let number = |file: &str| sysfs(device, file)?.parse::<u32>().ok();
    let sectors: u64 = sysfs(device, "size")?.parse().ok()?;
    let alignment = sysfs(device, "alignment_offset").and_then(|text| text.parse().ok());
    Some(Topology {
        mediasize: sectors.checked_mul(512)?,
        logical_block_size: number("queue/logical_block_size")?,
        physical_block_size: number("queue/physical_block_size")?,
        minimum_io_size: number("queue/minimum_io_size")?,
        optimal_io_size: number("queue/optimal_io_size")?,
        alignment_offset: alignment.unwrap_or(0),
        is_rotational: None,
        model: None,
    })
}

/// A sysfs attribute of a device, or for a partition that of its disk.
fn sysfs(device: u64, file: &str) -> Option<String> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    ["", "../"].iter().find_map(|up| {
        let path = format!("/sys/dev/block/{major}:{minor}/{up}{file}");
        Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_small_sectors_and_a_folder_none() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        assert_eq!(
            Topology::of(file.path()).unwrap(),
            Topology::of_file(1 << 20)
        );
        let error = Topology::of(&std::env::temp_dir()).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("neither a file nor a block device")
        );
    }

    #[test]
    fn ioctls_and_sysfs_say_the_same() {
        let Ok(names) = std::fs::read_dir("/sys/block") else {
            eprintln!("SKIPPED: no /sys/block here");
            return;
        };
        let mut seen = 0;
        for name in names.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
            let Ok(topology) = Topology::of(Path::new(&format!("/dev/{name}"))) else {
                continue;
            };
            let queue = |file: &str| {
                let path = format!("/sys/block/{name}/queue/{file}");
                std::fs::read_to_string(path)
                    .unwrap()
                    .trim()
                    .parse::<u32>()
                    .unwrap()
            };
            assert_eq!(topology.logical_block_size, queue("logical_block_size"));
            assert_eq!(topology.physical_block_size, queue("physical_block_size"));
            assert_eq!(topology.minimum_io_size, queue("minimum_io_size"));
            assert_eq!(topology.optimal_io_size, queue("optimal_io_size"));
            seen += 1;
        }
        if seen == 0 {
            eprintln!("SKIPPED: there is no block device here (run it where there is a disk)");
        }
    }

    #[test]
    fn a_liar_is_told_from_an_honest_drive() {
        let mut topology = Topology::of_file(1 << 40);
        topology.model = Some("WDC WD20EARS-00MVWB0".to_owned());
        assert_eq!(topology.known_lie(), Some((4096, "FreeBSD")));
        topology.physical_block_size = 4096;
        assert_eq!(topology.known_lie(), None);
    }
}
