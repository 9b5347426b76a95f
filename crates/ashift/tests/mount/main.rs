//! Data sets as file systems of the host: what programs do through a mount, and what is in the pool then.

#[path = "../bench/mod.rs"]
mod bench;

mod beside;
mod files;
mod flight;
mod fsx;
mod held;
mod posix;
mod quotas;
mod ring;
mod tree;
mod user;
