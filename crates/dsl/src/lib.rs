//! Directories, datasets, snapshots, properties
