//! Pools on this host: which command or host uses them, where they are, what is wrong with them.

#[path = "../bench/mod.rs"]
mod bench;

mod busy;
mod damage;
mod expand;
mod import;
mod obstacles;
mod suspend;
mod words;
