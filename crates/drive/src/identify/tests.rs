//! The 512 bytes, and what is printed from them.
