//! Benchmarks: dd, phybs, diskmark.
//!
//! # What it is
//! The measuring tools without their command lines. Each works on a [`geom::Provider`], so that
//! the same code measures a drive of this host and an emulated one; [`dd`] also copies between
//! other things through two small traits. Time is [`rt::now_ns`]: real on a host, simulated
//! in a machine, where it advances only while a command runs.
//! - [`phybs`]: one pass of small writes (or reads) per size and offset; the times show the physical
//!   sector size;
//! - [`dd`]: copying in blocks, with the operands and messages of FreeBSD's and of GNU's `dd`;
//! - [`diskmark`]: sequential and random speed at given queue depths, best of five;
//! - [`replay`]: the commands of a block trace, and how long each takes;
//! - [`direct`]: files and devices of this host, bypassing its cache.

pub mod dd;
pub mod direct;
pub mod diskmark;
mod ends;
pub mod number;
pub mod phybs;
pub mod replay;
