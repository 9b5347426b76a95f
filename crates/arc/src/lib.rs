//! The block cache
