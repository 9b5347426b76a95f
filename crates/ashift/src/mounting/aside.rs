//! A mounted file system that is out of the way while its content is exchanged.

use std::sync::Arc;

use service::{MountedDataset, OpenPool};

use super::{How, find, mount_at, unmount_one};
use crate::failure::Outcome;

/// A file system and all that is mounted in its directory, unmounted for a while; then they are mounted as they were.
pub(crate) struct Aside {
    pool: Arc<OpenPool>,
    /// In the order in which they were unmounted.
    mounted: Vec<MountedDataset>,
}

impl Aside {
    /// Unmounts them; what is in use ends that, and what was unmounted is mounted again.
    pub(crate) fn set(pool: &Arc<OpenPool>, name: &str) -> Outcome<Aside> {
        let mut aside = Aside {
            pool: Arc::clone(pool),
            mounted: Vec::new(),
        };
        let pools = pool.pools();
        let Some(own) = find(pool, name) else {
            return Ok(aside);
        };
        // What was mounted last goes first.
        let mut all = pools.mounted();
        all.retain(|it| it.directory.starts_with(&own.directory));
        for it in all.into_iter().rev() {
            if let Err(fail) = unmount_one(pools, &it) {
                let said = fail.say("");
                aside.back();
                return Err(said);
            }
            aside.mounted.push(it);
        }
        Ok(aside)
    }

    /// Mounts them again; what cannot be mounted is said.
    pub(crate) fn back(&self) {
        for it in self.mounted.iter().rev() {
            let how = How {
                given: it.given.clone(),
                ..How::default()
            };
            if let Err(fail) = mount_at(&self.pool, &it.name, &it.directory, &how) {
                let _ = fail.say("");
            }
        }
    }
}
