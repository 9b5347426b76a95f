//! Properties of a block device that only an ioctl or sysfs reports.

use std::os::fd::OwnedFd;

use base::Result;
use rustix::ioctl::{Getter, Setter, ioctl, opcode};

use super::from_errno;
use crate::Shape;
use crate::topology::Topology;

/// `BLKGETSIZE64`: the size in bytes.
const BLKGETSIZE64: rustix::ioctl::Opcode = opcode::read::<usize>(0x12, 114);
/// `BLKDISCARD`: offset and length in bytes.
const BLKDISCARD: rustix::ioctl::Opcode = opcode::none(0x12, 119);
/// `BLKIOMIN`: the smallest size for random access.
const BLKIOMIN: rustix::ioctl::Opcode = opcode::none(0x12, 120);
/// `BLKIOOPT`: the best size for sustained access.
const BLKIOOPT: rustix::ioctl::Opcode = opcode::none(0x12, 121);
/// `BLKALIGNOFF`: where the first physical sector begins; -1 if the device cannot be aligned.
const BLKALIGNOFF: rustix::ioctl::Opcode = opcode::none(0x12, 122);

pub(super) fn device_shape(fd: &OwnedFd, device: u64) -> Result<Shape> {
    // SAFETY: BLKGETSIZE64 stores one u64.
    let mediasize = unsafe { ioctl(fd, Getter::<BLKGETSIZE64, u64>::new()) };
    // SAFETY: BLKALIGNOFF stores one int.
    let align = unsafe { ioctl(fd, Getter::<BLKALIGNOFF, i32>::new()) };
    let sectorsize = rustix::fs::ioctl_blksszget(fd).map_err(from_errno)?;
    let physical = rustix::fs::ioctl_blkpbszget(fd).unwrap_or(sectorsize);
    Ok(Shape {
        stripesize: physical.max(sectorsize),
        stripeoffset: align
            .ok()
            .and_then(|offset| u32::try_from(offset).ok())
            .unwrap_or(0),
        is_rotational: is_rotational(device),
        can_delete: can_discard(device),
        ..Shape::new(mediasize.map_err(from_errno)?, sectorsize)
    })
}

/// Sizes and alignment, as the ioctls report them; the caller fills in the rest from sysfs.
pub(crate) fn device_topology(fd: &OwnedFd) -> Result<Topology> {
    let logical = rustix::fs::ioctl_blksszget(fd).map_err(from_errno)?;
    let physical = rustix::fs::ioctl_blkpbszget(fd).map_err(from_errno)?;
    // SAFETY: BLKGETSIZE64 stores one u64.
    let mediasize = unsafe { ioctl(fd, Getter::<BLKGETSIZE64, u64>::new()) };
    // SAFETY: BLKIOMIN stores one unsigned int.
    let minimum = unsafe { ioctl(fd, Getter::<BLKIOMIN, u32>::new()) };
    // SAFETY: BLKIOOPT stores one unsigned int.
    let optimal = unsafe { ioctl(fd, Getter::<BLKIOOPT, u32>::new()) };
    // SAFETY: BLKALIGNOFF stores one int.
    let align = unsafe { ioctl(fd, Getter::<BLKALIGNOFF, i32>::new()) };
    Ok(Topology {
        mediasize: mediasize.map_err(from_errno)?,
        logical_block_size: logical,
        physical_block_size: physical,
        minimum_io_size: minimum.map_err(from_errno)?,
        optimal_io_size: optimal.map_err(from_errno)?,
        alignment_offset: align.map_or(0, i64::from),
        is_rotational: None,
        model: None,
    })
}

pub(super) fn discard(fd: &OwnedFd, offset: u64, len: u64) -> rustix::io::Result<()> {
    // SAFETY: BLKDISCARD reads two u64.
    unsafe { ioctl(fd, Setter::<BLKDISCARD, [u64; 2]>::new([offset, len])) }
}

fn is_rotational(device: u64) -> bool {
    queue_says(device, "rotational").is_some_and(|text| text == "1")
}

#[doc(alias = "bdev_discard_supported")]
fn can_discard(device: u64) -> bool {
    queue_says(device, "discard_max_bytes").is_some_and(|text| text != "0")
}

/// Reads sysfs; the queue of a partition is that of its disk.
fn queue_says(device: u64, name: &str) -> Option<String> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let text = ["queue", "../queue"].iter().find_map(|queue| {
        std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/{queue}/{name}")).ok()
    });
    Some(text?.trim().to_owned())
}
