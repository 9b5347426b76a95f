//! Benchmarks: dd, phybs, diskmark.
