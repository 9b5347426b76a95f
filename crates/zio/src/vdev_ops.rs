//! What the pipeline asks of the vdev tree.

use std::ops::{AddAssign, Range};

use base::{Result, SPA_MINBLOCKSHIFT, SPA_OLD_MAXBLOCKSIZE, Txg, VdevId};

use crate::Io;

/// What reading every copy below one DVA found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Copies (mirror sides, RAID-Z columns) that could not be read or did not verify.
    pub bad: u32,
    /// How many of those were rewritten with good bytes.
    pub repaired: u32,
    /// Bytes written to devices for that.
    pub repaired_bytes: u64,
}

impl AddAssign for ScrubReport {
    fn add_assign(&mut self, other: ScrubReport) {
        self.bad += other.bad;
        self.repaired += other.repaired;
        self.repaired_bytes += other.repaired_bytes;
    }
}

/// One block of a run that is scrubbed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunBlock {
    /// Where it is on the vdev, in bytes.
    pub offset: u64,
    /// Where it is in the buffer of the run, in bytes; for a linear vdev, the buffer is one piece of that.
    pub range: Range<usize>,
    /// When it was written.
    pub birth: Txg,
}

impl RunBlock {
    /// Where the buffer of a run begins on a linear vdev.
    #[must_use]
    pub fn start_of(run: &[RunBlock]) -> u64 {
        let start = |block: &RunBlock| block.offset - block.range.start as u64;
        run.first().map_or(0, start)
    }
}

/// How the blocks of a vdev lie on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The sectors of a block follow each other as its bytes do: neighbours can be read in one go.
    Linear,
    /// Blocks are spread over devices (RAID-Z, dRAID): neighbours are neighbours on each of them.
    Striped,
    /// Anywhere: each block is read on its own (removed vdevs).
    Elsewhere,
}

/// Top-level vdevs, addressed as in DVAs: offsets exclude the front labels and boot block.
///
/// Lengths and offsets are multiples of `1 << ashift(vdev)`: the pipeline pads with zeros.
pub trait VdevOps: Send + Sync {
    /// Fills `buf` with bytes that `verify` accepts. Tries every copy, or every combination of
    /// columns, until one is accepted; then repairs the bad ones and counts the errors, unless the
    /// purpose says otherwise.
    ///
    /// # Errors
    /// `Checksum` when bytes could be read but none of them verified; `Io` when none could be
    /// read; `Corrupt` when there is no such vdev or the range is outside of it.
    fn read(
        &self,
        io: &Io,
        vdev: VdevId,
        offset: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()>;

    /// Writes `parts`, one after the other, to consecutive places from `offset` on, and to all copies;
    /// each part is a block of its own (which matters to RAID-Z).
    ///
    /// # Errors
    /// `Io` when the bytes cannot be read back from any copy; a mirror that lost one side
    /// succeeds.
    fn write(&self, io: &Io, vdev: VdevId, offset: u64, parts: &[&[u8]]) -> Result<()>;

    /// Makes everything durable that was written to these vdevs so far.
    ///
    /// # Errors
    /// `Io`.
    fn flush(&self, vdevs: &[VdevId]) -> Result<()>;

    /// Reads every copy of blocks that lie close to each other, verifies each of them and repairs the
    /// bad ones: `blocks` are in the order of their places, and `verify` is passed the index of the block.
    /// Good blocks end up in `buf`. The results are in the order of `blocks`. The default just reads each block.
    ///
    /// # Errors
    /// When there is no such vdev or the range is outside of it; for each block as of
    /// [`read`](VdevOps::read), when there is no good copy.
    fn scrub(
        &self,
        vdev: VdevId,
        buf: &mut [u8],
        blocks: &[RunBlock],
        verify: &dyn Fn(usize, &[u8]) -> bool,
    ) -> Result<Vec<Result<ScrubReport>>> {
        let read = |(n, block): (usize, &RunBlock)| {
            let verify = |bytes: &[u8]| verify(n, bytes);
            let io = Io::scrub(block.birth);
            let buf = &mut buf[block.range.clone()];
            self.read(&io, vdev, block.offset, buf, &verify)?;
            Ok(ScrubReport::default())
        };
        Ok(blocks.iter().enumerate().map(read).collect())
    }

    /// Whether enough devices of this vdev still answer for it to be read; true if it has no devices. With a txg
    /// only devices count that have what was born in it. Called after a failed read, to tell a damaged sector from
    /// devices that are gone.
    fn answers(&self, vdev: VdevId, birth: Option<Txg>) -> bool {
        let _ = (vdev, birth);
        true
    }

    /// How blocks lie on this vdev.
    fn placement(&self, vdev: VdevId) -> Placement {
        let _ = vdev;
        Placement::Elsewhere
    }

    /// How many writes to this vdev make progress at the same time; further ones only wait.
    fn writes_at_once(&self, vdev: VdevId) -> usize {
        let _ = vdev;
        usize::MAX
    }

    /// Bytes that a block of `psize` bytes, born in this txg, takes on this vdev, parity and padding included.
    #[doc(alias = "vdev_psize_to_asize_txg")]
    fn psize_to_asize(&self, vdev: VdevId, psize: u64, birth: Txg) -> u64;

    /// `vdev_deflate_ratio`: bytes of data per 512 allocated bytes, parity excluded, as blocks of 128
    /// KiB have it that were born before any expansion of a RAID-Z: it never changes.
    #[doc(alias = "vdev_set_deflate_ratio")]
    fn deflate_ratio(&self, vdev: VdevId) -> u64 {
        let asize = self.psize_to_asize(vdev, SPA_OLD_MAXBLOCKSIZE, Txg(0));
        SPA_OLD_MAXBLOCKSIZE / (asize >> SPA_MINBLOCKSHIFT).max(1)
    }

    /// log2 of the vdev's sector; 9 when there is no such vdev (a read of it returns the error).
    fn ashift(&self, vdev: VdevId) -> u32;

    /// The smallest allocation on this vdev, in bytes.
    #[doc(alias = "vdev_get_min_alloc")]
    fn min_alloc(&self, vdev: VdevId) -> u64 {
        1 << self.ashift(vdev)
    }
}
