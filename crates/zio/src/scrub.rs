//! Scrubbing: every copy of a block is read and checked, and what is bad is written again from what is good.
//!
//! # Source
//! OpenZFS `module/zfs/dsl_scan.c` (`scan_exec_io`), `module/zfs/zio.c` (`ZIO_FLAG_SCRUB`).

use base::{BlockBuf, Context, Error, ErrorKind, Result};
use phys::{BlkPtrPhys, ChecksumType, DvaPhys};

use crate::copies::{check_bp, healable, worst};
use crate::pipeline::{PhysicalReport, Pipeline};
use crate::{BlockCopy, Bookmark, Io, RunBlock, blocks_of, eck};

impl Pipeline {
    /// Reads and checks every copy of a block and repairs the bad ones, as a scrub does.
    ///
    /// # Errors
    /// `Checksum`, `Io` or `Corrupt` when no copy is good.
    pub fn verify_physical(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<PhysicalReport> {
        let mut report = PhysicalReport::default();
        if bp.is_hole() || bp.is_embedded() {
            return Ok(report);
        }
        let outer = || format!("block {bookmark}");
        if bp.is_gang() {
            check_bp(bp).within(outer)?;
            let tree = self.gang_tree(bp, bookmark).within(outer)?;
            let (mut headers, mut leaves) = (Vec::new(), Vec::new());
            tree.headers(&mut headers);
            tree.leaves(&mut leaves);
            for (header, size) in headers {
                let verify =
                    |bytes: &[u8]| eck::verify(ChecksumType::GangHeader, &header, &bytes[..size]);
                self.scrub_dvas(&header, size, &verify, &mut report)
                    .within(outer)?;
            }
            for leaf in leaves {
                self.scrub_simple(&leaf, &mut report).within(outer)?;
            }
        } else {
            self.scrub_simple(bp, &mut report).within(outer)?;
        }
        Ok(report)
    }

    /// Rewrites one DVA of a block (not a gang block) from another DVA, after a scrub found no good copy
    /// below the first. Returns whether that succeeded.
    ///
    /// # Errors
    /// `Checksum`, `Io` or `Corrupt` when no other DVA is good.
    pub(crate) fn heal_from_other_dvas(
        &self,
        bp: &BlkPtrPhys,
        bad: DvaPhys,
        bookmark: &Bookmark,
    ) -> Result<bool> {
        let outer = || format!("block {bookmark}");
        let (checksum, _) = check_bp(bp).within(outer)?;
        let psize = bp.psize() as usize;
        let verify = |bytes: &[u8]| self.verify(checksum, bp, &bytes[..psize]);
        let io = Io::speculative(bp.physical_birth());
        let mut failed = Vec::new();
        for dva in bp.dvas().filter(|dva| *dva != bad) {
            let mut buf = self.sectors(&dva, psize);
            match self
                .vdevs
                .read(&io, dva.vdev(), dva.offset(), &mut buf, &verify)
            {
                Ok(()) => return Ok(self.heal(bp, &[bad], &buf[..psize]) == 1),
                Err(error) => failed.push((dva, error)),
            }
        }
        if failed.is_empty() {
            let text = "no copy has the right checksum";
            failed.push((bad, Error::new(ErrorKind::Checksum, text)));
        }
        Err(worst(failed).within(outer()))
    }

    fn scrub_simple(&self, bp: &BlkPtrPhys, report: &mut PhysicalReport) -> Result<()> {
        let (checksum, _) = check_bp(bp)?;
        let psize = bp.psize() as usize;
        let verify = |bytes: &[u8]| self.verify(checksum, bp, &bytes[..psize]);
        self.scrub_dvas(bp, psize, &verify, report)
    }

    fn scrub_dvas(
        &self,
        bp: &BlkPtrPhys,
        size: usize,
        verify: &dyn Fn(&[u8]) -> bool,
        report: &mut PhysicalReport,
    ) -> Result<()> {
        let mut good = None;
        let mut failed = Vec::new();
        for dva in bp.dvas() {
            let mut buf = self.sectors(&dva, size);
            report.bytes += buf.len() as u64;
            let block = RunBlock {
                offset: dva.offset(),
                range: 0..buf.len(),
                birth: bp.physical_birth(),
            };
            let scrubbed = self
                .vdevs
                .scrub(dva.vdev(), &mut buf, &[block], &|_, bytes: &[u8]| {
                    verify(bytes)
                });
            let scrubbed =
                scrubbed.and_then(|mut reports| reports.pop().expect("one for one block"));
            match scrubbed {
                Ok(found) => {
                    report.bad += found.bad;
                    report.repaired += found.repaired;
                    report.repaired_bytes += found.repaired_bytes;
                    good.get_or_insert(buf);
                }
                Err(error) => failed.push((dva, error)),
            }
        }
        report.bad += failed.len() as u32;
        let Some(good) = good else {
            return Err(worst(failed));
        };
        let failed = healable(&failed);
        let healed = self.heal(bp, &failed, &good[..size]);
        report.repaired += healed;
        report.repaired_bytes += u64::from(healed) * size as u64;
        Ok(())
    }

    /// Reads and verifies everything in a run, and repairs what is bad. `see` is called with the bytes
    /// of each good block that was read as part of a run. The results are in the order of the run.
    #[doc(alias = "scan_exec_io")]
    pub fn scrub_run(
        &self,
        run: &[BlockCopy],
        see: &mut dyn FnMut(&BlockCopy, &[u8]),
    ) -> Vec<Result<PhysicalReport>> {
        let alone = |copy: &BlockCopy| self.verify_physical(&copy.bp, &copy.bookmark);
        if run[0].is_whole_block() {
            return run.iter().map(alone).collect();
        }
        let blocks = blocks_of(run);
        let len = blocks.last().map_or(0, |block| block.range.end);
        let mut buf = BlockBuf::scratch(len);
        let buf = &mut buf[..];
        let verify = |n: usize, bytes: &[u8]| self.verifies(&run[n].bp, bytes);
        let (vdev, ..) = run[0].segment();
        let Ok(reports) = self.vdevs.scrub(vdev, buf, &blocks, &verify) else {
            return run.iter().map(alone).collect();
        };
        let mut results = Vec::with_capacity(run.len());
        for ((copy, report), block) in run.iter().zip(reports).zip(&blocks) {
            let bytes = block.range.len() as u64;
            results.push(match report {
                Ok(report) => {
                    see(copy, &buf[block.range.clone()]);
                    Ok(PhysicalReport {
                        bytes,
                        bad: report.bad,
                        repaired: report.repaired,
                        repaired_bytes: report.repaired_bytes,
                    })
                }
                Err(_) => self
                    .heal_from_other_dvas(&copy.bp, copy.dva, &copy.bookmark)
                    .map(|is_healed| PhysicalReport {
                        bytes,
                        bad: 1,
                        repaired: u32::from(is_healed),
                        repaired_bytes: if is_healed { bytes } else { 0 },
                    }),
            });
        }
        results
    }
}
