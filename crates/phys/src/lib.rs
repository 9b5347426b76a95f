//! Every on-disk structure of OpenZFS, declared once.
//!
//! # What it is
//! Plain structs of little-endian fields, cast from and to bytes without copying ([`Phys`]). Any
//! bytes are a valid `...Phys`; types without `Phys` in the name ([`DnodeView`], [`sa::SaView`])
//! are checked. Reserved fields have names, are zero in new structures, and are carried through
//! unchanged.
//!
//! # Invariants
//! 1. Sizes and offsets of all fields are checked by the compiler against the declaration.
//! 2. No function panics on any input bytes. Setters assert that values fit.
//!
//! # Source
//! OpenZFS include/sys @be7657e3; each module names its headers.
#![forbid(unsafe_code)]
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::arithmetic_side_effects
)]
#![cfg_attr(
    test,
    allow(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::arithmetic_side_effects,
        reason = "tests may panic"
    )
)]

mod bits;
pub mod blkptr;
pub mod brt;
pub mod byteswap;
pub mod dnode;
pub mod dsl;
pub mod enums;
pub mod feature;
#[doc(hidden)]
pub mod fuzzing;
pub mod gang;
pub mod l2arc;
pub mod label;
mod layout;
pub mod objset;
pub mod owner;
pub mod pool_names;
mod prop;
pub mod sa;
pub mod scan;
pub mod space_map;
#[cfg(test)]
mod tests;
pub mod uberblock;
pub mod zap;
pub mod zil;
pub mod znode;

pub use blkptr::{BlkIdentity, BlkPtrPhys, DvaPhys};
pub use brt::BrtVdevPhys;
pub use dnode::{DnodeImage, DnodePhys, DnodeSlotPhys, DnodeView};
pub use dsl::{
    BpobjPhys, BptreeEntryPhys, BptreePhys, DeadlistPhys, DslBookmarkPhys, DslDatasetPhys,
    DslDirPhys,
};
pub use enums::{ByteswapClass, ChecksumType, CompressType, ObjectType, ObjsetType};
pub use gang::GangHeaderPhys;
pub use label::{BootEnvPhys, EckPhys};
pub use layout::Phys;
pub use objset::ObjsetPhys;
pub use prop::PropValue;
pub use sa::{SaFilePhys, SaHdrPhys};
pub use scan::{BookmarkErrPhys, BookmarkPhys, ErrorScrubPhys, HistoryPhys, ScanPhys};
pub use space_map::SpaceMapPhys;
pub use uberblock::UberblockPhys;
pub use zap::{MzapEntPhys, MzapPhys, ZapLeafPhys, ZapPhys};
pub use zil::{LrPhys, ZilChainPhys, ZilHeaderPhys};
pub use znode::{ZfsAclPhys, ZnodePhys};
