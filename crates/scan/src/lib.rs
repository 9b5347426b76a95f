//! Scrub and resilver: reading every copy of the pool's blocks while it is in use.
//!
//! # What it is
//! A scan walks the dedup tables first, then all block trees: the MOS, and the datasets, each snapshot before its
//! successors, and in each only blocks younger than the previous snapshot. It does so in slices,
//! one per txg, and records its position in the MOS. The blocks that a slice finds are sorted by
//! location, read from every device, and repaired. A *scrub* reads all blocks; a *resilver* those
//! that some device missed, according to the txgs of the DTLs.
//!
//! # On disk
//! Entry `scan` of the pool directory: a `dsl_scan_phys_t`, with the bookmark to resume from.
//! `scn_queue_obj` is a ZAP of the datasets still to be visited: object => the txg after which
//! blocks are visited (0: that of the previous snapshot). Both have OpenZFS's format, so a scan
//! started there continues here, and vice versa.
//!
//! # Invariants
//! 1. Everything before the position in the MOS is done: a slice reads all blocks that it found
//!    before the txg ends.
//! 2. What the dedup tables have with several references is read once, with them; what comes into that part of them
//!    later is read in the same txg.
//! 3. No dataset is missed: if one is destroyed or snapshotted while it is queued or being visited,
//!    the dataset that now has its blocks takes its place.
//!
//! # Crash argument
//! Bookmark and queue are written to the MOS in the txg in which they change. After a power cut the
//! scan resumes from those of the last txg, and repeats at most one slice.
//!
//! # Concurrency
//! Everything runs in the sync thread, in the first pass. Space freed in that txg is not
//! reallocated before it ends, so no block changes while it is being read. Other threads access
//! only the state, which has its own mutex; it is not held during I/O.
//!
//! # Why not simpler
//! No block stays queued from one txg to the next, so freed blocks need not be removed from any
//! queue. OpenZFS collects blocks for as long as there is memory, and reads in longer runs.
//!
//! # Source
//! OpenZFS `module/zfs/dsl_scan.c`, `include/sys/dsl_scan.h`.

mod error_scrub;
mod issue;
mod slice;
mod state;
mod visit;

pub use error_scrub::ErrorScrub;
pub use issue::Tally;
pub use slice::{Outcome, Pace, Pool};
pub use state::{Kind, Range, Scan};
