//! Reading a log, block by block, up to one that was never written.
//!
//! # What it is
//! Every log block names the next one, which was allocated before this one was written. The chain
//! ends at the first block whose embedded checksum does not match the verifier in its pointer: it
//! was never written, or holds something older. In a claimed log, anything after the last block and
//! record that were claimed does not count either.
//!
//! # Source
//! OpenZFS module/zfs/zil.c (`zil_parse`, `zil_read_log_block`, `zil_claim`, `zil_destroy_sync`)
//! @be7657e3

use std::collections::BTreeSet;

use base::{Error, ErrorKind, ObjsetId, Result, Txg};
use dmu::Tx;
use phys::zil::{
    LrCloneRangePhys, LrWritePhys, ZIL_CLAIM_LR_SEQ_VALID, ZIL_ZC_SEQ, ZilChainPhys, records, tx,
};
use phys::{BlkPtrPhys, ChecksumType, LrPhys, Phys, ZilHeaderPhys};
use zio::{Bookmark, LogStore};

/// The result of a parse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// zl_parse_blk_seq: the number of the last block.
    pub blk_seq: u64,
    /// zl_parse_lr_seq: the number of the last record.
    pub lr_seq: u64,
    /// zl_parse_blk_count
    pub blocks: u64,
    /// zl_parse_lr_count
    pub records: u64,
}

/// Handles the parts of a log as [`parse`] finds them.
pub trait Visitor {
    /// Called with each block before it is read; it is allocated, but perhaps was never written.
    ///
    /// # Errors
    /// `Checksum` ends the log here; any other error ends the parse.
    fn block(&mut self, bp: &BlkPtrPhys) -> Result<()> {
        let _ = bp;
        Ok(())
    }

    /// Called with each record; `record` has all its bytes.
    ///
    /// # Errors
    /// As [`block`](Visitor::block).
    fn record(&mut self, common: &LrPhys, record: &[u8]) -> Result<()> {
        let _ = (common, record);
        Ok(())
    }

    /// Whether it looks at what is secret in the records of an encrypted objset, so that the key is needed.
    fn needs_key(&self) -> bool {
        false
    }
}

/// Passes the blocks and records of a log to `visitor` in order.
///
/// # Errors
/// Those of the visitor, except `Checksum`. The end of the log is not an error.
#[doc(alias = "zil_parse")]
pub fn parse(
    store: &dyn LogStore,
    objset: ObjsetId,
    header: &ZilHeaderPhys,
    visitor: &mut dyn Visitor,
) -> Result<Parsed> {
    let claimed = header.claim_txg.get() != 0;
    let has_lr_seq = claimed && header.flags.get() & ZIL_CLAIM_LR_SEQ_VALID != 0;
    let last_blk_seq = if claimed {
        header.claim_blk_seq.get()
    } else {
        u64::MAX
    };
    let last_lr_seq = if has_lr_seq {
        header.claim_lr_seq.get()
    } else {
        u64::MAX
    };
    let mut parsed = Parsed::default();
    let mut bp = header.log;
    while !bp.is_hole() {
        let seq = bp.cksum_words()[ZIL_ZC_SEQ];
        // Numbers must increase, so that a cyclic chain ends as well.
        if seq > last_blk_seq || seq <= parsed.blk_seq {
            break;
        }
        match visitor.block(&bp) {
            Err(error) if error.kind() == ErrorKind::Checksum => break,
            other => other?,
        }
        parsed.blk_seq = seq;
        parsed.blocks += 1;
        if parsed.lr_seq == last_lr_seq && parsed.blk_seq == last_blk_seq {
            break;
        }
        let Some(block) = read(store, objset, &bp, visitor.needs_key())? else {
            break;
        };
        for record in records(block.records()) {
            let Ok((common, bytes)) = record else {
                return Ok(parsed);
            };
            if common.seq.get() > last_lr_seq {
                return Ok(parsed);
            }
            match visitor.record(&common, bytes) {
                Err(error) if error.kind() == ErrorKind::Checksum => return Ok(parsed),
                other => other?,
            }
            parsed.lr_seq = common.seq.get();
            parsed.records += 1;
        }
        bp = block.next;
    }
    Ok(parsed)
}

/// A log block in memory.
struct LogBlock {
    data: base::Buf,
    records: std::ops::Range<usize>,
    next: BlkPtrPhys,
}

impl LogBlock {
    fn records(&self) -> &[u8] {
        &self.data[self.records.clone()]
    }
}

/// Reads a log block; `None` where the log ends.
#[doc(alias = "zil_read_log_block")]
fn read(
    store: &dyn LogStore,
    objset: ObjsetId,
    bp: &BlkPtrPhys,
    with_key: bool,
) -> Result<Option<LogBlock>> {
    let verifier = bp.cksum_words();
    let bookmark = Bookmark::zil(objset, verifier[ZIL_ZC_SEQ]);
    let data = match with_key {
        true => store.read_log(bp, &bookmark),
        false => store.read_log_keyless(bp, &bookmark),
    };
    let data = match data {
        Ok(data) => data,
        Err(error) if is_end(error.kind()) => return Ok(None),
        Err(error) => return Err(error),
    };
    let size = data.len();
    let is_slim = bp.checksum() == ChecksumType::Zilog2.raw();
    let chain_at = if is_slim {
        0
    } else {
        size.saturating_sub(ZilChainPhys::SIZE)
    };
    let Ok(chain) = ZilChainPhys::read(&data[chain_at..]) else {
        return Ok(None);
    };
    let used = usize::try_from(chain.nused.get()).unwrap_or(usize::MAX);
    let records = if is_slim {
        ZilChainPhys::SIZE..used
    } else {
        0..used
    };
    let room = if is_slim { size } else { chain_at };
    let mut expected = verifier;
    expected[ZIL_ZC_SEQ] = expected[ZIL_ZC_SEQ].wrapping_add(1);
    let next = chain.next_blk;
    if records.start > records.end || records.end > room || next.cksum_words() != expected {
        return Ok(None);
    }
    Ok(Some(LogBlock {
        data,
        records,
        next,
    }))
}

/// Whether an error means that nothing was written here.
fn is_end(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Checksum | ErrorKind::Io | ErrorKind::Corrupt | ErrorKind::NotFound
    )
}

/// Adds a pointer to those already seen; returns whether it is new.
fn is_new(seen: &mut BTreeSet<(u64, u64)>, bp: &BlkPtrPhys) -> bool {
    let [dva, ..] = bp.dva;
    seen.insert((dva.vdev().0, dva.offset()))
}

/// Frees all blocks of a log whose objset is destroyed or starts a new log, and, if the log was
/// claimed, the blocks that its records point at. In syncing context.
///
/// # Errors
/// `Unsupported` for records of cloned blocks.
#[doc(alias = "zil_destroy_sync")]
pub fn destroy_sync(
    store: &dyn LogStore,
    objset: ObjsetId,
    header: &ZilHeaderPhys,
    tx: &Tx,
) -> Result<()> {
    free_before(Txg(u64::MAX), store, objset, header, tx.txg())
}

/// Frees, in `txg`, what is allocated of a log that is given up before it was claimed or replayed. Blocks born in
/// `unsynced`, the txg after the one whose state this is, or later are not.
///
/// # Errors
/// As of [`destroy_sync`].
#[doc(alias = "zil_clear_log_block")]
pub fn clear(
    store: &dyn LogStore,
    objset: ObjsetId,
    header: &ZilHeaderPhys,
    unsynced: Txg,
    txg: Txg,
) -> Result<()> {
    free_before(unsynced, store, objset, header, txg)
}

fn free_before(
    unsynced: Txg,
    store: &dyn LogStore,
    objset: ObjsetId,
    header: &ZilHeaderPhys,
    txg: Txg,
) -> Result<()> {
    let mut free = Free {
        store,
        txg,
        claim_txg: Txg(header.claim_txg.get()),
        unsynced,
        blocks: Vec::new(),
        seen: BTreeSet::new(),
    };
    parse(store, objset, header, &mut free)?;
    // Only now: a block must not be freed before it is read.
    for bp in &free.blocks {
        store.free(txg, bp);
    }
    Ok(())
}

struct Free<'a> {
    store: &'a dyn LogStore,
    txg: Txg,
    claim_txg: Txg,
    /// Blocks born then or later are not allocated.
    unsynced: Txg,
    blocks: Vec<BlkPtrPhys>,
    seen: BTreeSet<(u64, u64)>,
}

impl Visitor for Free<'_> {
    fn block(&mut self, bp: &BlkPtrPhys) -> Result<()> {
        if bp.allocation_birth() >= self.unsynced {
            return Err(Error::new(ErrorKind::Checksum, "the log ends here"));
        }
        if is_new(&mut self.seen, bp) {
            self.blocks.push(*bp);
        }
        Ok(())
    }

    fn record(&mut self, common: &LrPhys, record: &[u8]) -> Result<()> {
        if self.claim_txg == Txg(0) {
            return Ok(());
        }
        if let Some(bp) = written_block(common, record)?
            && bp.allocation_birth() >= self.claim_txg
            && is_new(&mut self.seen, &bp)
        {
            self.store.free(self.txg, &bp);
        }
        Ok(())
    }
}

/// The block that a write record points at.
fn written_block(common: &LrPhys, record: &[u8]) -> Result<Option<BlkPtrPhys>> {
    match common.tx_type() {
        tx::WRITE => {
            let bp = LrWritePhys::read(record)?.blkptr;
            Ok(Some(bp).filter(|bp| !bp.is_hole() && !bp.is_embedded()))
        }
        tx::CLONE_RANGE => {
            let blocks = LrCloneRangePhys::read(record)?.nbps.get();
            let text = format!("intent log with a clone of {blocks} blocks");
            Err(Error::new(ErrorKind::Unsupported, text))
        }
        _ => Ok(None),
    }
}

/// Marks as allocated the blocks that a log refers to and no synced txg knows of. Returns where the
/// log ends, for the header. `first_txg`: the txg after the last one that was synced.
///
/// # Errors
/// Those of the store, except the end of the log; `Unsupported` as for [`destroy_sync`].
#[doc(alias = "zil_claim")]
pub fn claim(
    store: &dyn LogStore,
    objset: ObjsetId,
    header: &ZilHeaderPhys,
    first_txg: Txg,
) -> Result<Parsed> {
    let mut claim = Claim {
        store,
        objset,
        first_txg,
        seen: BTreeSet::new(),
    };
    parse(store, objset, header, &mut claim)
}

struct Claim<'a> {
    store: &'a dyn LogStore,
    objset: ObjsetId,
    first_txg: Txg,
    seen: BTreeSet<(u64, u64)>,
}

impl Visitor for Claim<'_> {
    fn block(&mut self, bp: &BlkPtrPhys) -> Result<()> {
        if bp.allocation_birth() < self.first_txg || !is_new(&mut self.seen, bp) {
            return Ok(());
        }
        self.store.claim(self.first_txg, bp)
    }

    fn record(&mut self, common: &LrPhys, record: &[u8]) -> Result<()> {
        let Some(bp) = written_block(common, record)? else {
            return Ok(());
        };
        if bp.allocation_birth() < self.first_txg {
            return Ok(());
        }
        // If the data block was not written, the commit of this record never returned: the log ends here.
        let bookmark = Bookmark::zil(self.objset, common.seq.get());
        if self.store.read_keyless(&bp, &bookmark).is_err() {
            return Err(Error::new(
                ErrorKind::Checksum,
                "the data of a write was not written",
            ));
        }
        self.block(&bp)
    }
}
