//! Pools on this host: their users, their places, their faults.

#[path = "../bench/mod.rs"]
mod bench;

mod allocator;
mod autotrim;
mod busy;
mod caches;
mod damage;
mod disks;
mod events;
mod expand;
mod guid;
mod holder;
mod import;
mod iostat;
mod keys;
mod obstacles;
mod remove;
mod rescue;
mod rewind;
mod salvage;
mod seek;
mod spares;
mod suspend;
mod tree;
mod vdev_props;
mod words;
