//! What the MOS of a pool stands on: metaslabs, pipeline and cache, and what these call back.

use std::sync::Arc;

use metaslab::{Metaslabs, MetaslabsOptions};
use vdev::VdevTree;
use zio::{LogStore, Pipeline, PipelineSettings};

use crate::checkpoint::Kept;
use crate::core::Core;
use crate::removal::Removal;
use crate::spa::Settings;

pub(crate) struct Foundation {
    pub(crate) space: Arc<Metaslabs>,
    pub(crate) removal: Arc<Removal>,
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) cache: Arc<arc::Cache>,
    pub(crate) core: Arc<Core>,
}

impl Foundation {
    /// That of the pool on these vdevs; `host`: the name of this host, for the history.
    pub(crate) fn new(
        tree: &Arc<VdevTree>,
        metaslabs: MetaslabsOptions,
        pipeline: PipelineSettings,
        settings: &Settings,
        host: &str,
    ) -> Foundation {
        let space = Arc::new(Metaslabs::new(tree.clone(), metaslabs));
        let kept = Arc::new(Kept::default());
        let removal = Removal::new(tree.clone(), space.clone(), kept.clone());
        let pipeline = Arc::new(Pipeline::new(tree.clone(), removal.clone(), pipeline));
        let below: Arc<dyn LogStore> = pipeline.clone();
        let cache = Arc::new(arc::Cache::new(below, settings.arc_settings()));
        let core = Core::new(
            cache.clone(),
            space.clone(),
            tree.clone(),
            host.to_owned(),
            kept,
        );
        Foundation {
            space,
            removal,
            pipeline,
            cache,
            core,
        }
    }
}
