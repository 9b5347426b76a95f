//! The data management unit: objsets full of objects, changed in transactions, synced by txg.
//!
//! # What it is
//! An [`Objset`] is a set of numbered objects; a [`Dnode`] is one of them: an array of blocks, a
//! few bonus bytes, perhaps a spill block. Changes are made under a [`Tx`] and stay in memory
//! until their txg is synced, when the [`TxGroups`] thread has everything frozen and written
//! through a [`BlockStore`](zio::BlockStore). What blocks cost, and whether a block that is
//! replaced is freed or kept for a snapshot, is decided above, behind [`BlockAccounting`].
//!
//! # How a change travels
//! ```text
//! open txg      Dnode::write            dirty layer: blocks, freed ranges, bonus
//!    |  Objset::freeze                  the layer moves aside, nothing is copied
//! syncing txg   Tx::syncing             the same layer, for changes made in syncing context
//!    |  Objset::sync, pass 1, 2, ..     level 0, level 1, .., dnodes, meta-dnode, objset block
//! on disk       Objset::root_bp         goes into the dataset, and that into the MOS
//! ```
//! A file system is synced once per txg, and a second time if space by owner was accounted. The MOS,
//! which is changed by syncing itself, is synced until nothing is dirty any more.
//!
//! # Invariants
//! 1. A dnode has at most two generations of changes, one of the open txg, one of the txg being
//!    synced (plus what a pass is writing right now). Buffers are copy-on-write.
//! 2. There are no clean buffers here: what is on disk is in the cache of the block store.
//! 3. Readers never wait for a sync, and never see a block change under their pointer.
//! 4. A freed object number is not reused before the free is on disk.
//!
//! # Where to look
//! `txg`, `tx`: the state machine and the throttle. `objset`, `alloc`, `cache`: objects by number.
//! `dnode`, `dirty`, `image`: one object. `dnode_read`, `dnode_write`, `dnode_seek`, `dnode_bonus`:
//! what can be done with it. `tree`: block pointers. `sync`: everything about writing. [`traverse`]: all blocks
//! of an objset that is not open.
//!
//! # Why not simpler
//! OpenZFS keeps a dbuf per block, clean or dirty, with four generations. Its dbufs are a second
//! cache above the ARC, and most of the complexity of its DMU is keeping the states of dbufs,
//! dnodes and txgs in step. With one cache and two generations nearly all of that is gone.
//!
//! # Source
//! OpenZFS module/zfs/dmu.c, dmu_objset.c, dmu_object.c, dmu_tx.c, dnode.c, dnode_sync.c, dbuf.c,
//! txg.c; include/sys/dmu.h, dnode.h, dmu_objset.h @be7657e3.

#![forbid(unsafe_code)]

mod account;
mod alloc;
mod behind;
mod cache;
mod cloning;
mod context;
mod dirty;
mod dnode;
mod dnode_bonus;
mod dnode_read;
mod dnode_seek;
mod dnode_write;
mod followed;
mod found;
mod image;
mod objset;
mod prefetch;
mod props;
mod range_set;
mod sync;
pub mod traverse;
mod tree;
mod tx;
mod txg;
mod user;

use base::ObjectId;

pub use account::{BlockAccounting, FreeAtOnce, Owner, OwnerAccounting, OwnerDelta, OwnerDeltas};
pub use alloc::ObjectWalk;
pub use dnode::Dnode;
pub use dnode_bonus::BonusInfo;
pub use dnode_read::Content;
pub use followed::Followed;
pub use found::{FoundDnodes, FoundObjset, FoundPointers, Likeness, Sketch, sketch};
pub use image::NewObject;
pub use objset::{Objset, read_zil_header};
pub use props::{ObjsetProps, RedundantMetadata};
pub use tx::Tx;
pub use txg::{FailMode, OnSuspend, SuspendEvent, SuspendSettings, TxGroups, TxgSettings, TxgSync};

pub(crate) use dirty::SpillChange;

/// `DMU_META_DNODE_OBJECT`
pub(crate) const META_DNODE_OBJECT: ObjectId = ObjectId(0);
/// `DMU_USERUSED_OBJECT`: a ZAP of bytes and objects by user id.
pub const USERUSED_OBJECT: ObjectId = ObjectId(phys::objset::USERUSED_OBJECT);
/// `DMU_GROUPUSED_OBJECT`: the same by group id.
pub const GROUPUSED_OBJECT: ObjectId = ObjectId(phys::objset::GROUPUSED_OBJECT);
/// `DMU_PROJECTUSED_OBJECT`: the same by project id.
pub const PROJECTUSED_OBJECT: ObjectId = ObjectId(phys::objset::PROJECTUSED_OBJECT);
/// `DMU_OBJECT_END`: a length that reaches to the end of every object.
pub const OBJECT_END: u64 = u64::MAX;
