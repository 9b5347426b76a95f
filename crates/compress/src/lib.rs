//! Block compression: pure functions of bytes
