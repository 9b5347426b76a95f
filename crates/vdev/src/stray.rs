//! Devices whose place on a disk is not known any more: the partition table is lost, or is another one.
//!
//! # What it is
//! A disk is read from its beginning to its end. Wherever a sector ends as the config of a label does, the config is
//! before it; its checksum says at which offset on its device it was written, and so where that device begins. One
//! label of four is enough.
//!
//! # Invariants
//! Nothing is guessed: a label counts only if its checksum is right for an offset at which there may be a label, and
//! with which its device does not begin before the disk.
//!
//! # What is not known
//! Where a device ends, if both labels at its end are lost: then all that is left of the disk counts as its own. Labels
//! of an older device at the same place, or of a pool inside an image file, are found as well.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_label.c` (`vdev_label_offset`); the checksum: `checksum::embedded`.

use std::collections::BTreeMap;

use base::{BlockBuf, Guid};
use checksum::embedded;
use geom::Provider;
use nvpair::NvList;
use phys::label::{
    LABEL_END_SIZE, LABEL_SIZE, NVLIST_MAX, NVLIST_OFFSET, NVLIST_SIZE, SPA_MINDEVSIZE,
};

/// Bytes that are read at once.
const CHUNK: usize = 8 << 20;
/// Bytes that are tried one after the other where a chunk cannot be read.
const PIECE: usize = 64 << 10;
/// Labels begin at a multiple of this on any disk.
const SECTOR: usize = 512;
const CONFIG: usize = NVLIST_SIZE as usize;
/// `NV_ENCODE_XDR`, the first byte of a config; then one for the byte order of its writer, and zeros.
const XDR: u8 = 1;

/// A device that was found by its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// Where it begins on the disk, in bytes.
    pub start: u64,
    /// How long it is, in bytes; to the end of the disk if that is not known.
    pub len: u64,
    /// Whether a label at its end was found, which says how long it is.
    pub has_end: bool,
    /// The name of its pool; empty for spares and cache devices.
    pub pool: String,
    /// Its guid.
    pub guid: Guid,
    /// How many labels were found.
    pub labels: usize,
    /// The newest txg that a label names.
    pub txg: u64,
}

/// Finds all devices on a disk. `see` is called with the bytes that were read so far. What cannot be read is passed
/// over.
#[must_use]
pub fn find_strays(disk: &dyn Provider, see: &mut dyn FnMut(u64)) -> Vec<Stray> {
    let size = disk.mediasize();
    let mut found = Found::default();
    // Before each chunk is the end of the last one, in which a config may begin.
    let mut buf = BlockBuf::zeroed(CONFIG + CHUNK);
    let mut at = 0;
    while at < size {
        let len = usize::try_from(size - at).map_or(CHUNK, |left| left.min(CHUNK));
        read(disk, at, &mut buf[CONFIG..CONFIG + len]);
        for end in (SECTOR..=len).step_by(SECTOR) {
            let block = &buf[end..end + CONFIG];
            if !ends_as_label(block) {
                continue;
            }
            if let Some(position) = (at + end as u64).checked_sub(NVLIST_SIZE) {
                found.look(block, position);
            }
        }
        buf.copy_within(len..len + CONFIG, 0);
        at += len as u64;
        see(at);
    }
    found.into_strays(size)
}

/// Reads what can be read; the rest is zeros.
pub(crate) fn read(disk: &dyn Provider, at: u64, buf: &mut [u8]) {
    if disk.read(at, buf).is_ok() {
        return;
    }
    for (piece, offset) in buf.chunks_mut(PIECE).zip((at..).step_by(PIECE)) {
        if disk.read(offset, piece).is_err() {
            piece.fill(0);
        }
    }
}

fn ends_as_label(block: &[u8]) -> bool {
    embedded::has_magic(block) && matches!(block[..4], [XDR, 0 | 1, 0, 0])
}

/// What was found, by the guid of the device and where it begins.
#[derive(Default)]
struct Found(BTreeMap<(Guid, u64), Device>);

struct Device {
    config: NvList,
    txg: u64,
    /// Where on the device its labels begin.
    labels: Vec<u64>,
}

impl Found {
    /// Looks at what may be the config of a label, at this position of the disk.
    fn look(&mut self, block: &[u8], position: u64) {
        let first = (0..2).map(|index| index * LABEL_SIZE);
        let last = SPA_MINDEVSIZE - LABEL_END_SIZE..=position;
        let places = first.chain(last.step_by(LABEL_SIZE as usize));
        let offsets = places.map(|place| place + NVLIST_OFFSET);
        let possible = offsets.filter(|offset| *offset <= position);
        let Some(offset) = embedded::find_label_offset(block, possible) else {
            return;
        };
        let Ok(config) = nvpair::decode(&block[..NVLIST_MAX as usize]) else {
            return;
        };
        let Some(guid) = config.get_u64("guid") else {
            return;
        };
        let txg = config.get_u64("txg").unwrap_or(0);
        let device = self.0.entry((Guid(guid), position - offset));
        let device = device.or_insert_with(|| Device {
            config: config.clone(),
            txg,
            labels: Vec::new(),
        });
        if txg > device.txg {
            (device.config, device.txg) = (config, txg);
        }
        device.labels.push(offset - NVLIST_OFFSET);
    }

    fn into_strays(self, disk_bytes: u64) -> Vec<Stray> {
        let stray = |((guid, start), device): ((Guid, u64), Device)| {
            let left = disk_bytes - start;
            let mut at_end = device.labels.iter().filter(|place| **place > LABEL_SIZE);
            let first = at_end.next();
            // A single one may be the first or the second: if it is the second, nothing is lost by what follows it.
            let end = match (first, at_end.next()) {
                (None, _) => None,
                (Some(first), None) => Some(first + LABEL_END_SIZE),
                (Some(_), Some(second)) => Some(second + LABEL_SIZE),
            };
            Stray {
                start,
                len: end.map_or(left, |end| end.min(left)),
                has_end: end.is_some(),
                pool: device.config.get_str("name").unwrap_or_default().to_owned(),
                guid,
                labels: device.labels.len(),
                txg: device.txg,
            }
        };
        self.0.into_iter().map(stray).collect()
    }
}
