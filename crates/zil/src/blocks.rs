//! The blocks that belong to a log: for code that counts, verifies or copies all blocks of a pool.
//!
//! # Source
//! OpenZFS `module/zfs/dmu_traverse.c` (`traverse_zil_block`, `traverse_zil_record`),
//! `module/zfs/dsl_scan.c` (`dsl_scan_zil_block`, `dsl_scan_zil_record`).

use std::collections::BTreeSet;

use base::{BlkId, Error, ErrorKind, ObjectId, ObjsetId, Result, Txg};
use phys::zil::{LrWritePhys, ZIL_ZC_SEQ, tx};
use phys::{BlkPtrPhys, LrPhys, Phys, ZilHeaderPhys};
use zio::{Bookmark, LogStore};

use crate::chain::{Visitor, parse};

/// Shows `see` each block of a log's chain and, with `false`, each block of data that the records of a
/// claimed log point to. A log that is not claimed ends before its first block that was born in txg
/// `unclaimed` or later; the last block of such a log may never have been written.
///
/// # Errors
/// `Corrupt` for a record that is cut off. The end of the log is not an error.
pub fn each_block(
    store: &dyn LogStore,
    objset: ObjsetId,
    header: &ZilHeaderPhys,
    unclaimed: Txg,
    see: &mut dyn FnMut(&BlkPtrPhys, &Bookmark, bool),
) -> Result<()> {
    let mut blocks = Blocks {
        objset,
        claim_txg: Txg(header.claim_txg.get()),
        unclaimed,
        seen: BTreeSet::new(),
        see,
    };
    parse(store, objset, header, &mut blocks).map(|_| ())
}

struct Blocks<'a> {
    objset: ObjsetId,
    claim_txg: Txg,
    unclaimed: Txg,
    seen: BTreeSet<phys::BlkIdentity>,
    see: &'a mut dyn FnMut(&BlkPtrPhys, &Bookmark, bool),
}

impl Visitor for Blocks<'_> {
    fn block(&mut self, bp: &BlkPtrPhys) -> Result<()> {
        let is_claimed = self.claim_txg.0 != 0 || bp.allocation_birth() < self.unclaimed;
        if bp.is_embedded() || !is_claimed || !self.seen.insert(bp.identity()) {
            return Err(Error::new(ErrorKind::Checksum, "the log ends here"));
        }
        let at = Bookmark::zil(self.objset, bp.cksum_words()[ZIL_ZC_SEQ]);
        (self.see)(bp, &at, true);
        Ok(())
    }

    fn record(&mut self, common: &LrPhys, record: &[u8]) -> Result<()> {
        if common.tx_type() != tx::WRITE {
            return Ok(());
        }
        let write = LrWritePhys::read(record)?;
        let data = &write.blkptr;
        let is_claimed = self.claim_txg.0 != 0 && data.allocation_birth() >= self.claim_txg;
        let is_block = !data.is_hole() && !data.is_embedded();
        if is_block && is_claimed && self.seen.insert(data.identity()) {
            let at = Bookmark {
                objset: self.objset,
                object: ObjectId(write.foid.get()),
                level: Bookmark::ZIL_LEVEL,
                blkid: BlkId(write.offset.get() / data.lsize()),
            };
            (self.see)(data, &at, false);
        }
        Ok(())
    }
}
