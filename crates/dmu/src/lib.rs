//! Objsets, dnodes, transactions

mod account;
mod alloc;
mod cache;
mod context;
mod dirty;
mod dnode;
mod dnode_bonus;
mod dnode_read;
mod dnode_seek;
mod dnode_write;
mod image;
mod objset;
mod prefetch;
mod props;
mod range_set;
mod sync;
mod tree;
mod tx;
mod txg;
mod user;

use base::ObjectId;

pub use account::{BlockAccounting, FreeAtOnce, Owner, OwnerAccounting, OwnerDelta, OwnerDeltas};
pub use dnode::Dnode;
pub use image::NewObject;
pub use objset::Objset;
pub use props::{ObjsetProps, RedundantMetadata};
pub use tx::Tx;
pub use txg::{TxGroups, TxgSettings, TxgSync};

pub(crate) use dirty::SpillChange;

/// `DMU_META_DNODE_OBJECT`
pub const META_DNODE_OBJECT: ObjectId = ObjectId(0);
/// `DMU_USERUSED_OBJECT`: a ZAP of bytes and objects by user id.
pub const USERUSED_OBJECT: ObjectId = ObjectId(phys::objset::USERUSED_OBJECT);
/// `DMU_GROUPUSED_OBJECT`: the same by group id.
pub const GROUPUSED_OBJECT: ObjectId = ObjectId(phys::objset::GROUPUSED_OBJECT);
/// `DMU_PROJECTUSED_OBJECT`: the same by project id.
pub const PROJECTUSED_OBJECT: ObjectId = ObjectId(phys::objset::PROJECTUSED_OBJECT);
/// `DMU_OBJECT_END`: a length that reaches to the end of every object.
pub const OBJECT_END: u64 = u64::MAX;
