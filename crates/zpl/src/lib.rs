//! POSIX files in a dataset
