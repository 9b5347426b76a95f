//! Emulated drives as files, by FUSE.
