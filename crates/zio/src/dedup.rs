//! Deduplication: a block that is stored already is referred to instead of written again.
//!
//! # What it is
//! The pool keeps tables of blocks by checksum; the pipeline asks them ([`DedupTables`]) where it would otherwise
//! allocate. That is the only place that is passed in the order of the requests by one thread, after the parallel
//! work: so which of two equal blocks is written and which one refers to it does not depend on the number of cores.
//! The checksum is over the stored bytes, so blocks are equal only if they are compressed in the same way.
//!
//! | in the table | what happens |
//! |---|---|
//! | enough copies | the pointer gets their DVAs and their physical birth, and one more reference is counted |
//! | none | the block is allocated and written, and entered with one reference |
//! | fewer copies, and room for them (`fast_dedup`) | the missing ones are written, and entered; the pointer gets all |
//! | fewer copies, and no room, or in pieces | the block is an ordinary one |
//! | other bytes (*verify*) | with a weak checksum, SHA-256 is tried; otherwise the block is an ordinary one |
//! | cannot be read | the block is an ordinary one |
//!
//! # Invariants
//! 1. A pointer with the dedup bit is counted in the tables, exactly once; one that leaves the pipeline without it
//!    owns its space.
//! 2. When a batch fails, its references are dropped, before its space is given back.
//!
//! # Crash argument
//! The tables are part of the txg: they are on disk if, and only if, the pointers are.
//!
//! # Concurrency
//! Only batches of the sync thread are deduplicated. A block of the same txg may still be in flight when it is to be
//! compared: then what the batch has begun is waited for. Earlier objsets of the txg were waited for by their sync.
//!
//! # Source
//! OpenZFS `module/zfs/zio.c` (`zio_ddt_write`, `zio_ddt_collision`).

use base::{Result, Txg};
use phys::{BlkPtrPhys, ChecksumType};

use crate::block::Dedup;
use crate::encode::{self, Encoded, Physical};
use crate::gang::Placed;
use crate::issue::Flight;
use crate::pipeline::Pipeline;
use crate::{Bookmark, Priority, WriteRequest};

/// `ZIO_DEDUPCHECKSUM`: what is tried when another checksum is that of two blocks.
const STRONG: ChecksumType = ChecksumType::Sha256;

/// What the tables know of a checksum: pointers with the DVAs and the physical birth of stored blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// Any block with it.
    pub any: Option<BlkPtrPhys>,
    /// The one that has as many copies as are wanted.
    pub wanted: Option<BlkPtrPhys>,
    /// The one that can be given more copies.
    pub partial: Option<BlkPtrPhys>,
    /// Whether a block can be entered if there is none that is wanted.
    pub has_room: bool,
}

/// The dedup tables of a pool, as of the syncing txg.
pub trait DedupTables: Send + Sync {
    /// Looks for blocks with the checksum, the sizes and the compression of `bp`.
    ///
    /// # Errors
    /// What reading a table gives.
    #[doc(alias = "ddt_lookup")]
    fn find(&self, bp: &BlkPtrPhys, copies: usize) -> Result<Known>;

    /// Counts a pointer to a block, which is entered if it is new, as are its new copies. Follows
    /// [`find`](DedupTables::find).
    #[doc(alias = "ddt_phys_addref")]
    fn refer(&self, bp: &BlkPtrPhys, copies: usize);

    /// Undoes [`refer`](DedupTables::refer) in the same txg. `had`: the copies that the entry had before; what it got
    /// was never written.
    #[doc(alias = "ddt_phys_unextend")]
    fn forget(&self, bp: &BlkPtrPhys, had: usize);
}

/// A pointer that was counted in the tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    bp: BlkPtrPhys,
    /// The copies that its entry had before.
    had: usize,
}

/// What became of a block that is to be deduplicated.
pub(crate) enum Shared {
    /// It is stored already.
    There(BlkPtrPhys),
    /// It is to be written; to be entered in the tables if it has the dedup bit.
    New(Encoded),
    /// It is stored, and more copies are to be written.
    Partial(Encoded, BlkPtrPhys),
}

impl Pipeline {
    /// Looks for an encoded block in the tables.
    #[doc(alias = "zio_ddt_write")]
    pub(crate) fn share(
        &self,
        txg: Txg,
        request: &WriteRequest,
        mut encoded: Encoded,
        placed: &mut Placed,
        flight: &Flight,
    ) -> Shared {
        let ordinary = |mut encoded: Encoded| {
            encoded.bp.set_dedup(false);
            Shared::New(encoded)
        };
        let Some(tables) = self.dedup.get() else {
            return ordinary(encoded);
        };
        loop {
            let Encoded { bp, physical } = &encoded;
            let Some(physical) = physical else {
                return Shared::New(encoded);
            };
            let copies = usize::from(request.policy.copies);
            let Ok(known) = tables.find(bp, copies) else {
                return ordinary(encoded);
            };
            let Ok(checksum) = ChecksumType::try_from(bp.checksum()) else {
                return ordinary(encoded);
            };
            let verifies = request.policy.dedup == Dedup::Verify || !checksum::is_dedup(checksum);
            let other = known.any.filter(|_| verifies);
            if other.is_some_and(|other| self.differs(txg, &other, physical, placed, flight)) {
                if checksum::is_dedup(checksum) {
                    return ordinary(encoded);
                }
                let mut again = request.clone();
                again.policy.checksum = STRONG;
                let plain = encode::encode(&self.pool(), txg, &again);
                encoded = plain.expect("what is deduplicated is not encrypted");
                continue;
            }
            let Some(wanted) = known.wanted else {
                return match (known.partial, known.has_room) {
                    (Some(partial), _) => Shared::Partial(encoded, partial),
                    (None, true) => Shared::New(encoded),
                    (None, false) => ordinary(encoded),
                };
            };
            let mut there = *bp;
            there.dva = wanted.dva;
            there.set_birth(txg, wanted.physical_birth());
            self.note_shared(&there, copies, there.ndvas(), placed);
            return Shared::There(there);
        }
    }

    /// Counts a pointer to a block in the tables, whose entry had so many copies.
    pub(crate) fn note_shared(
        &self,
        bp: &BlkPtrPhys,
        copies: usize,
        had: usize,
        placed: &mut Placed,
    ) {
        if let Some(tables) = self.dedup.get() {
            tables.refer(bp, copies);
            placed.shared.push(Counted { bp: *bp, had });
        }
    }

    /// Undoes what a batch that failed has counted.
    pub(crate) fn forget_shared(&self, shared: &[Counted]) {
        if let Some(tables) = self.dedup.get() {
            let latest_first = shared.iter().rev();
            latest_first.for_each(|it| tables.forget(&it.bp, it.had));
        }
    }

    /// Whether a stored block has other bytes, or cannot be read.
    #[doc(alias = "zio_ddt_collision")]
    fn differs(
        &self,
        txg: Txg,
        stored: &BlkPtrPhys,
        physical: &Physical,
        placed: &mut Placed,
        flight: &Flight,
    ) -> bool {
        if stored.physical_birth() == txg {
            self.issue_and_wait(placed, flight);
        }
        let read = if stored.is_gang() {
            self.read_gang(stored, &Bookmark::default(), Priority::SyncRead)
        } else {
            self.read_simple(stored, Priority::SyncRead)
        };
        let bytes = physical.bytes();
        read.map_or(true, |read| read.get(..bytes.len()) != Some(bytes))
    }
}

/// A pointer to a stored block and to the copies of it that `more` points to. It is as old as the stored block.
#[doc(alias = "ddt_phys_extend")]
pub(crate) fn joined(stored: &BlkPtrPhys, more: &BlkPtrPhys) -> BlkPtrPhys {
    let mut all = *more;
    all.dva = stored.dva;
    for (i, dva) in more.dvas().enumerate() {
        all.set_dva(stored.ndvas() + i, dva);
    }
    all.set_birth(more.birth(), stored.physical_birth());
    all
}
