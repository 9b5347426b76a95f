//! What the pipeline asks of the vdev tree.

use std::ops::Range;

use base::{Result, VdevId};

/// What reading every copy below one DVA found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Copies (mirror sides, RAID-Z columns) that could not be read or did not verify.
    pub bad: u32,
    /// How many of those were written anew with good bytes.
    pub repaired: u32,
}

/// Top-level vdevs, addressed as DVAs do: offsets exclude the front labels and boot block.
///
/// Lengths and offsets are multiples of `1 << ashift(vdev)`: the pipeline pads with zeros.
pub trait VdevOps: Send + Sync {
    /// Fills `buf` with bytes that `verify` accepts. Tries every copy, or every combination of
    /// columns, until one is accepted; then repairs the bad ones and counts the errors.
    ///
    /// # Errors
    /// `Checksum` when bytes could be read but none of them verified; `Io` when none could be
    /// read; `Corrupt` when there is no such vdev or the range is outside of it.
    fn read(
        &self,
        vdev: VdevId,
        offset: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()>;

    /// As [`read`](VdevOps::read), for bytes that may well not verify (the block after the last
    /// one of an intent log): nothing is counted as an error and nothing repaired.
    ///
    /// # Errors
    /// As `read`.
    fn probe(
        &self,
        vdev: VdevId,
        offset: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        self.read(vdev, offset, buf, verify)
    }

    /// Writes to all copies.
    ///
    /// # Errors
    /// `Io` when the bytes cannot be read back from any copy; a mirror that lost one side
    /// succeeds.
    fn write(&self, vdev: VdevId, offset: u64, data: &[u8]) -> Result<()>;

    /// Writes `parts`, one after the other, to consecutive places from `offset` on; each part is
    /// a block of its own (which matters to RAID-Z).
    ///
    /// # Errors
    /// As [`write`](VdevOps::write).
    fn write_gather(&self, vdev: VdevId, mut offset: u64, parts: &[&[u8]]) -> Result<()> {
        for part in parts {
            self.write(vdev, offset, part)?;
            offset += self.psize_to_asize(vdev, part.len() as u64);
        }
        Ok(())
    }

    /// Makes everything durable that was written to these vdevs so far.
    ///
    /// # Errors
    /// `Io`.
    fn flush(&self, vdevs: &[VdevId]) -> Result<()>;

    /// Reads every copy, verifies each of them and repairs the bad ones; `buf` ends up with good
    /// bytes. The default only does what a read does.
    ///
    /// # Errors
    /// As [`read`](VdevOps::read), when there is no good copy.
    fn scrub(
        &self,
        vdev: VdevId,
        offset: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<ScrubReport> {
        self.read(vdev, offset, buf, verify)?;
        Ok(ScrubReport::default())
    }

    /// Scrubs several blocks that lie close to each other with one read of every copy: `buf` is the
    /// whole range from `offset` on, `blocks` are the parts of it that hold a block each, and
    /// `verify` is told which of them it looks at. The results are in the order of `blocks`, each
    /// as of [`scrub`](VdevOps::scrub).
    ///
    /// # Errors
    /// When there is no such vdev or the range is outside of it.
    fn scrub_run(
        &self,
        vdev: VdevId,
        offset: u64,
        buf: &mut [u8],
        blocks: &[Range<usize>],
        verify: &dyn Fn(usize, &[u8]) -> bool,
    ) -> Result<Vec<Result<ScrubReport>>> {
        let scrub = |(n, block): (usize, &Range<usize>)| {
            let verify = |bytes: &[u8]| verify(n, bytes);
            let at = offset + block.start as u64;
            self.scrub(vdev, at, &mut buf[block.clone()], &verify)
        };
        Ok(blocks.iter().enumerate().map(scrub).collect())
    }

    /// Writes good bytes over a block of which no copy on this vdev was good. As
    /// [`write`](VdevOps::write), but counted as repaired.
    ///
    /// # Errors
    /// As `write`.
    fn repair(&self, vdev: VdevId, offset: u64, data: &[u8]) -> Result<()> {
        self.write(vdev, offset, data)
    }

    /// Whether any device of this vdev still answers, or none is there that could: asked after a read
    /// that failed, to tell a damaged place from a device that is gone.
    fn answers(&self, vdev: VdevId) -> bool {
        let _ = vdev;
        true
    }

    /// Whether the sectors of a block follow each other as its bytes do, so that neighbouring
    /// blocks can be read in one go: everything but RAID-Z, dRAID and removed vdevs.
    fn is_linear(&self, vdev: VdevId) -> bool {
        let _ = vdev;
        false
    }

    /// How many writes to this vdev make progress at the same time; further ones only wait.
    fn writes_at_once(&self, vdev: VdevId) -> usize {
        let _ = vdev;
        usize::MAX
    }

    /// Bytes that a block of `psize` bytes takes on this vdev, parity and padding included.
    fn psize_to_asize(&self, vdev: VdevId, psize: u64) -> u64;

    /// log2 of the vdev's sector; 9 when there is no such vdev (a read of it will say so).
    fn ashift(&self, vdev: VdevId) -> u32;
}
