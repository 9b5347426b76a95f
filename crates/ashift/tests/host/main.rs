//! Pools on this host: their users, their places, their faults.

#[path = "../bench/mod.rs"]
mod bench;

mod busy;
mod damage;
mod expand;
mod import;
mod obstacles;
mod suspend;
mod tree;
mod words;
