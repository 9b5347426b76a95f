//! The copies of a block: which are good, and repairing those that are not.
//!
//! # What it is
//! Below a DVA the vdev tries its own copies (mirror sides, parity); above, the DVAs are tried one after
//! the other, and those that failed are written again from the one that did not.
//!
//! # Source
//! OpenZFS `module/zfs/zio.c` (`zio_checksum_verify`, `zfs_blkptr_verify`), `module/zfs/zio_checksum.c`
//! (`zio_checksum_error`), `module/zfs/vdev_mirror.c` (ditto blocks).

use base::{BlockBuf, Error, ErrorKind, Result, SPA_MAXBLOCKSIZE, align_up};
use phys::{BlkPtrPhys, ChecksumType, CompressType, DvaPhys};

use crate::encode::charge_checksum;
use crate::pipeline::Pipeline;
use crate::suspend::{FailedIo, reissue};
use crate::{Io, Priority, eck, keys};

/// Refuses pointers that no correct writer writes.
#[doc(alias = "zfs_blkptr_verify")]
pub(crate) fn check_bp(bp: &BlkPtrPhys) -> Result<(ChecksumType, CompressType)> {
    let checksum = ChecksumType::try_from(bp.checksum())?;
    let compress = CompressType::try_from(bp.compress())?;
    if matches!(
        checksum,
        ChecksumType::Inherit
            | ChecksumType::On
            | ChecksumType::Label
            | ChecksumType::GangHeader
            | ChecksumType::NoParity
    ) {
        return Err(Error::corrupt(format!(
            "block pointer has checksum {checksum}"
        )));
    }
    if compress != CompressType::Off && !compress.is_compressed() {
        return Err(Error::corrupt(format!(
            "block pointer has compression {compress}"
        )));
    }
    let (lsize, psize) = (bp.lsize(), bp.psize());
    if lsize > SPA_MAXBLOCKSIZE || psize > lsize {
        return Err(Error::corrupt(format!(
            "block pointer has lsize {lsize}, psize {psize}"
        )));
    }
    if compress == CompressType::Off && psize != lsize {
        let what = format!("uncompressed block pointer has lsize {lsize}, psize {psize}");
        return Err(Error::corrupt(what));
    }
    if bp.ndvas() == 0 {
        return Err(Error::corrupt("block pointer has no valid dva"));
    }
    Ok((checksum, compress))
}

impl Pipeline {
    /// Whether the physical `bytes` match the checksum in `bp`.
    #[doc(alias = "zio_checksum_error")]
    pub(crate) fn verify(&self, kind: ChecksumType, bp: &BlkPtrPhys, bytes: &[u8]) -> bool {
        match kind {
            ChecksumType::Off => true,
            ChecksumType::Zilog | ChecksumType::Zilog2 => eck::verify(kind, bp, bytes),
            _ => {
                charge_checksum(kind, bytes.len());
                let have = match bp.is_little_endian() {
                    true => self.checksums.digest(kind, bytes),
                    false => self.checksums.digest_big_endian(kind, bytes),
                };
                let want = bp.cksum_words();
                if keys::has_mac(bp) {
                    checksum::with_mac(kind, &have, [want[2], want[3]]) == want
                } else {
                    have == want
                }
            }
        }
    }

    /// Whether the first psize bytes of `physical` match the checksum in `bp`; false for a gang block
    /// and for an invalid pointer.
    #[must_use]
    pub fn verifies(&self, bp: &BlkPtrPhys, physical: &[u8]) -> bool {
        let bytes = physical.get(..bp.psize() as usize);
        match (check_bp(bp), bytes) {
            (Ok((kind, _)), Some(bytes)) if !bp.is_gang() => self.verify(kind, bp, bytes),
            _ => false,
        }
    }

    /// Reads `size` bytes, rounded up to sectors, from the first DVA that verifies; repairs the
    /// ones before it. While none of its devices answers the pool is suspended.
    #[doc(alias = "vdev_mirror_io_start")]
    pub(crate) fn read_dvas(
        &self,
        bp: &BlkPtrPhys,
        priority: Priority,
        size: usize,
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<BlockBuf> {
        let answers = |birth| bp.dvas().any(|dva| self.vdevs.answers(dva.vdev(), birth));
        let kind = |error: &Error| match error.kind() {
            ErrorKind::Io if answers(Some(bp.physical_birth())) => None,
            ErrorKind::Io if answers(None) => Some(FailedIo::MissedRead),
            ErrorKind::Io => Some(FailedIo::Read),
            _ => None,
        };
        reissue(self.suspend(), kind, || {
            self.try_read_dvas(bp, priority, size, verify)
        })
    }

    fn try_read_dvas(
        &self,
        bp: &BlkPtrPhys,
        priority: Priority,
        size: usize,
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<BlockBuf> {
        let mut bad: Vec<(DvaPhys, Error)> = Vec::new();
        let io = Io {
            priority,
            ..Io::read(bp.physical_birth())
        };
        for dva in bp.dvas() {
            let mut buf = self.sectors(&dva, size);
            match self
                .vdevs
                .read(&io, dva.vdev(), dva.offset(), &mut buf, verify)
            {
                Ok(()) => {
                    let failed = healable(&bad);
                    self.heal(bp, &failed, &buf[..size]);
                    return Ok(buf);
                }
                Err(error) => bad.push((dva, error)),
            }
        }
        Err(worst(bad))
    }

    pub(crate) fn sectors(&self, dva: &DvaPhys, size: usize) -> BlockBuf {
        let sector = 1u64 << self.vdevs.ashift(dva.vdev());
        BlockBuf::scratch(align_up(size as u64, sector) as usize)
    }

    /// Writes good bytes over bad copies. A failed repair is ignored.
    pub(crate) fn heal(&self, bp: &BlkPtrPhys, bad: &[DvaPhys], good: &[u8]) -> u32 {
        if !self.settings.heal {
            return 0;
        }
        let io = Io::repair(bp.physical_birth());
        let mut healed = 0;
        for dva in bad {
            let mut data = self.sectors(dva, good.len());
            data[..good.len()].copy_from_slice(good);
            data[good.len()..].fill(0);
            let (vdev, offset) = (dva.vdev(), dva.offset());
            if self.vdevs.write(&io, vdev, offset, &[&data]).is_ok() {
                healed += 1;
                self.stats.count_heal();
            }
        }
        healed
    }
}

/// The DVAs worth repairing: not those that lie outside every vdev.
pub(crate) fn healable(failed: &[(DvaPhys, Error)]) -> Vec<DvaPhys> {
    let is_there = |e: &Error| matches!(e.kind(), ErrorKind::Checksum | ErrorKind::Io);
    failed
        .iter()
        .filter(|(_, e)| is_there(e))
        .map(|(dva, _)| *dva)
        .collect()
}

/// The most informative error: wrong bytes rank above no bytes.
pub(crate) fn worst(errors: Vec<(DvaPhys, Error)>) -> Error {
    let rank = |kind| match kind {
        ErrorKind::Checksum => 2,
        ErrorKind::Io => 1,
        _ => 0,
    };
    let best = errors.into_iter().max_by_key(|(_, e)| rank(e.kind()));
    let Some((dva, error)) = best else {
        return Error::corrupt("block pointer has no valid dva");
    };
    error.within(format!("dva {dva}"))
}
