//! Experiments: published measurements, replayed.
