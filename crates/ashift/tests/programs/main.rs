//! Real programs on a mounted data set.
//!
//! `PROGRAMS=all` does more rounds; `--ignored` runs what takes minutes: this repository is built and tested there,
//! dbench, bonnie++.

#[path = "../bench/mod.rs"]
mod bench;
mod database;
mod kills;
mod mounted;
mod tools;
