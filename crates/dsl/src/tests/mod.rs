//! Tests on a pool in memory.

mod basic;
mod check;
mod harness;
mod model;
