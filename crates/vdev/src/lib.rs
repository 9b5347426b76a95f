//! The vdev tree, its kinds and its labels
