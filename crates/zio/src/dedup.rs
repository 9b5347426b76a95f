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
//! | fewer copies, and no room for another block | the block is an ordinary one |
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

    /// Counts a pointer to a block, which is entered if it is new. Follows [`find`](DedupTables::find).
    #[doc(alias = "ddt_phys_addref")]
    fn refer(&self, bp: &BlkPtrPhys, copies: usize);

    /// Undoes [`refer`](DedupTables::refer) in the same txg; a block without references was never written.
    #[doc(alias = "ddt_phys_unextend")]
    fn forget(&self, bp: &BlkPtrPhys);
}

/// What became of a block that is to be deduplicated.
pub(crate) enum Shared {
    /// It is stored already.
    There(BlkPtrPhys),
    /// It is to be written; to be entered in the tables if it has the dedup bit.
    New(Encoded),
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
                return match known.has_room {
                    true => Shared::New(encoded),
                    false => ordinary(encoded),
                };
            };
            let mut there = *bp;
            there.dva = wanted.dva;
            there.set_birth(txg, wanted.physical_birth());
            self.note_shared(&there, copies, placed);
            return Shared::There(there);
        }
    }

    /// Counts a pointer to a block in the tables.
    pub(crate) fn note_shared(&self, bp: &BlkPtrPhys, copies: usize, placed: &mut Placed) {
        if let Some(tables) = self.dedup.get() {
            tables.refer(bp, copies);
            placed.shared.push(*bp);
        }
    }

    /// Undoes what a batch that failed has counted.
    pub(crate) fn forget_shared(&self, shared: &[BlkPtrPhys]) {
        if let Some(tables) = self.dedup.get() {
            shared.iter().rev().for_each(|bp| tables.forget(bp));
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
