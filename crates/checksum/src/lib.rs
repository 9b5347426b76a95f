//! Block checksums: pure functions of bytes
