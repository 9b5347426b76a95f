//! Space: range trees, space maps, metaslabs and allocation classes.
//!
//! # What it is
//! Every top-level vdev is cut into some 16 to a few hundred *metaslabs* of equal size. The free space
//! of a metaslab is kept as a log on disk (its *space map*) and, once it was needed, as a tree in
//! memory. [`Metaslabs`] is all of that for a pool: it implements the pipeline's [`Allocator`], and the
//! pool's txg sync drives [`Metaslabs::sync`] and [`Metaslabs::sync_done`].
//!
//! # On disk
//! Per vdev, an object of 64-bit object numbers (the metaslab array), one per metaslab, 0 until the
//! first allocation in it. Each names a space map: a log of entries, with length, allocated bytes
//! and a histogram in its bonus. docs/spec/space_map.md.
//!
//! # Invariants
//! 1. A byte is either allocatable, or allocated, or in between: freed but not yet allocatable (picture
//!    in `metaslab.rs`).
//! 2. After the last sync pass of a txg, the space maps of that txg's MOS describe exactly the
//!    blocks reachable from that txg's uberblock (plus what the deadlists and the pool's list of
//!    late frees hold): this is what `zdb -b` counts.
//! 3. What txg T frees is allocated again in T + 3 at the earliest, unless space is short.
//! 4. Same calls in the same order, same DVAs.
//!
//! # Crash argument
//! The uberblock of T - 1 stays valid until that of T is on all disks. So nothing that T - 1 can reach
//! may be overwritten while T is being written: a block that T frees must not be reused in T, nor in T +
//! 1, whose blocks may be written (log blocks are) before T is complete. So deferring for one txg would
//! do. The second one is for rewinding: when the newest uberblock turns out to be bad, the one before it
//! still finds every block of its tree. When a pool is nearly full (less free than the slop space),
//! freed space is given back at once: completing the deletion that makes room then matters more.
//!
//! After a crash nothing is deferred: the log says "free" since the txg that freed it, and the
//! uberblock found is the one that must survive from now on.
//!
//! Allocations of a txg that never got its uberblock are forgotten, since their space map entries
//! are as unreachable as the blocks themselves. Log blocks are the exception: they are reachable
//! from the previous uberblock without being in its space maps; import *claims* them, before
//! anything else is allocated.
//!
//! # Sync passes
//! Writing space maps dirties the MOS, writing the MOS allocates, and that has to be written to
//! space maps. It converges because only the first pass condenses or leaves worn metaslabs, and
//! because the pipeline overwrites blocks of the same txg in place in later passes.
//!
//! # Concurrency
//! Lock order: topology (read), a class's rotor or a group's state; never two groups at once. Any
//! thread allocates; only the syncing thread syncs. No lock is held while a space map is written.
//!
//! # Source
//! OpenZFS module/zfs/metaslab.c, space_map.c, range_tree.c, vdev.c @be7657e3.

mod class;
mod counts;
mod group;
mod hold;
mod metaslab;
mod pool;
mod range_tree;
mod space_map;
#[cfg(test)]
mod tests;
mod weight;

pub use group::{SpaceStats, VdevGeometry};
pub use hold::Held;
pub use pool::{Metaslabs, MetaslabsOptions};
pub use range_tree::{HISTOGRAM_BUCKETS, RangeTree};
pub use space_map::{
    SPACE_MAP_BLOCK_BYTES, SPACE_MAP_IBS, SpaceMapExtent, SpaceMapObject, SpaceMapStore,
    append_tree, for_each_entry, for_each_range, length_max_bytes, load_free,
};
pub use weight::fragmentation;
pub use zio::Allocator;
