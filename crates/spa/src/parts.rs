//! The parts of an open pool, for what looks inside: `zdb`, the checker, tests; the vdevs, for the service.
//!
//! # What it is
//! Commands need none of them: what they may do with a pool is a method of [`Spa`] or of the service. What
//! changes a part through this door keeps the invariants of that part itself.

use std::sync::Arc;

use dmu::{Objset, TxGroups};
use dsl::DslPool;
use metaslab::Metaslabs;
use phys::blkptr::DvaPhys;
use vdev::VdevTree;
use zio::Pipeline;

use crate::features::Features;
use crate::spa::{Inner, Spa};
use crate::space_maps::SpaceMaps;

/// The parts of an open pool.
#[derive(Clone, Copy)]
pub struct Parts<'a>(&'a Inner);

impl Spa {
    /// The parts, for what looks inside.
    #[must_use]
    pub fn parts(&self) -> Parts<'_> {
        Parts(&self.inner)
    }
}

impl<'a> Parts<'a> {
    /// The vdev tree.
    #[must_use]
    pub fn tree(self) -> &'a Arc<VdevTree> {
        &self.0.tree
    }

    /// The datasets.
    #[must_use]
    pub fn dsl(self) -> &'a Arc<DslPool> {
        self.0.dsl()
    }

    /// The feature counts.
    #[must_use]
    pub fn features(self) -> Arc<Features> {
        self.0.features()
    }

    /// The meta-objset.
    #[must_use]
    pub fn mos(self) -> &'a Arc<Objset> {
        &self.0.mos
    }

    /// The bytes that one copy of a block is charged for.
    #[must_use]
    #[doc(alias = "dva_get_dsize_sync")]
    pub fn dsize_of(self, dva: &DvaPhys) -> u64 {
        self.0.core.dsize_of(dva)
    }

    /// The pipeline, which bypasses the cache; it also writes log blocks.
    #[must_use]
    pub fn pipeline(self) -> &'a Arc<Pipeline> {
        &self.0.pipeline
    }

    /// The allocator.
    #[must_use]
    pub fn metaslabs(self) -> &'a Arc<Metaslabs> {
        &self.0.space
    }

    /// The space maps in the MOS.
    #[must_use]
    pub fn space_maps(self) -> &'a Arc<SpaceMaps> {
        &self.0.maps
    }

    /// The txg state machine.
    #[must_use]
    pub fn groups(self) -> &'a Arc<TxGroups> {
        &self.0.groups
    }
}
