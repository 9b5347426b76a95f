//! Emulated drives: mechanics, caches, read-modify-write, faults.
