//! Every on-disk structure of OpenZFS, declared once
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
        reason = "tests"
    )
)]

mod bits;
pub mod blkptr;
pub mod enums;

pub use blkptr::{BlkPtrPhys, DvaPhys};
pub use enums::{ByteswapClass, ChecksumType, CompressType, ObjectType, ObjsetType};
