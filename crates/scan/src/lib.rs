//! Scrub and resilver: reading every copy of the pool's blocks while it is in use.
//!
//! # What it is
//! A scan walks all trees of blocks: the MOS first, then the datasets, each snapshot before what came after
//! it, and of each only what is younger than the snapshot before. It does so in slices, one in each txg, and
//! remembers in the MOS how far it came. What a slice finds is sorted by place, read from every device, and
//! repaired. A *scrub* takes all blocks; a *resilver* those that some device missed, by the txgs of the DTLs.
//!
//! # On disk
//! Entry `scan` of the pool directory: a `dsl_scan_phys_t`, with the bookmark to go on from. `scn_queue_obj` is
//! a ZAP of the datasets that are still to be visited: object => the txg from which on, 0: of the snapshot
//! before. Both are OpenZFS's, so that a scan that was begun there goes on here, and the other way round.
//!
//! # Invariants
//! 1. What the MOS says to be done is done: a slice reads all that it found before the txg ends.
//! 2. No dataset is missed: one that is destroyed, or of which a snapshot is made, while it waits or is being
//!    visited, hands over to the one that now has its blocks.
//!
//! # Crash argument
//! Bookmark and queue change in the MOS with the txg in which they came to be. After a power cut the scan goes
//! on from those of the last txg, and reads at most a slice again.
//!
//! # Concurrency
//! Everything runs in the thread that syncs, in the first pass. What is freed in that txg is not allocated
//! again before it ends, so no block changes while it is looked at. Others ask only for the state, which has
//! a mutex of its own; it is not held during I/O.
//!
//! # Why not simpler
//! Nothing stays queued from one txg to the next, so that blocks that are freed need not be taken out of any
//! queue. OpenZFS collects for as long as there is memory, and reads in longer runs.
//!
//! # Source
//! OpenZFS `module/zfs/dsl_scan.c`, `include/sys/dsl_scan.h`.

mod issue;
mod slice;
mod state;
mod visit;

pub use issue::Tally;
pub use slice::{Outcome, Pace, Pool};
pub use state::{Kind, Range, Scan};
