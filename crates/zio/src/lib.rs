//! The I/O pipeline and the traits that cut the cycles above it
