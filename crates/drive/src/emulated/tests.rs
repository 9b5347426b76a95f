//! Drives against plain arrays of bytes.
