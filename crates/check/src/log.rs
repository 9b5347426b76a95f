//! The intent log of a dataset: blocks that a crash left behind and that an import claimed.
//!
//! # What it is
//! A chain of log blocks, each with a pointer to the next, which may never have been written. Only
//! blocks allocated as of a txg on disk count: those of a claimed log, or those born no later than
//! that txg. Records of large writes point to a separate data block.
//!
//! # Source
//! OpenZFS `module/zfs/dmu_traverse.c` (`traverse_zil`), `module/zfs/zil.c` (`zil_parse`).

use std::collections::BTreeSet;

use base::{BlkId, ObjectId, ObjsetId, Txg};
use phys::zil::{LrWritePhys, ZIL_ZC_SEQ, ZilChainPhys, records, tx};
use phys::{BlkPtrPhys, ChecksumType, Phys, ZilHeaderPhys};
use zio::{Bookmark, LogStore, Pipeline};

/// Visits the blocks of a log; the flag is true for blocks of the chain, false for data that it
/// points to. The chain ends silently at the first unreadable block: that is how logs end.
pub(crate) fn walk(
    pipeline: &Pipeline,
    objset: ObjsetId,
    header: &ZilHeaderPhys,
    first_unclaimed: Txg,
    visit: &mut dyn FnMut(&BlkPtrPhys, Bookmark, bool),
) {
    let claim_txg = Txg(header.claim_txg.get());
    let mut seen = BTreeSet::new();
    let mut bp = header.log;
    while !bp.is_hole() && !bp.is_embedded() && seen.insert(bp.identity()) {
        if claim_txg.0 == 0 && bp.allocation_birth() >= first_unclaimed {
            return;
        }
        let bookmark = Bookmark::zil(objset, bp.cksum_words()[ZIL_ZC_SEQ]);
        visit(&bp, bookmark, true);
        let Ok(block) = pipeline.read_log(&bp, &bookmark) else {
            return;
        };
        let Some((chain, body)) = split(&bp, &block) else {
            return;
        };
        for record in records(body) {
            let Ok((common, record)) = record else {
                return;
            };
            if common.tx_type() != tx::WRITE {
                continue;
            }
            let Ok(write) = LrWritePhys::read(record) else {
                return;
            };
            let data = &write.blkptr;
            let is_claimed = claim_txg.0 != 0 && data.allocation_birth() >= claim_txg;
            if !data.is_hole() && !data.is_embedded() && is_claimed && seen.insert(data.identity())
            {
                let blkid = write.offset.get() / data.lsize();
                let bookmark = Bookmark {
                    objset,
                    object: ObjectId(write.foid.get()),
                    level: Bookmark::ZIL_LEVEL,
                    blkid: BlkId(blkid),
                };
                visit(data, bookmark, false);
            }
        }
        bp = chain.next_blk;
    }
}

/// The chain entry of a log block, and its records.
fn split<'a>(bp: &BlkPtrPhys, block: &'a [u8]) -> Option<(ZilChainPhys, &'a [u8])> {
    if bp.checksum() == ChecksumType::Zilog2.raw() {
        let chain = ZilChainPhys::read(block).ok()?;
        let used = usize::try_from(chain.nused.get()).ok()?;
        return Some((chain, block.get(ZilChainPhys::SIZE..used)?));
    }
    let at = block.len().checked_sub(ZilChainPhys::SIZE)?;
    let chain = ZilChainPhys::read(&block[at..]).ok()?;
    let used = usize::try_from(chain.nused.get()).ok()?;
    Some((chain, block[..at].get(..used)?))
}
