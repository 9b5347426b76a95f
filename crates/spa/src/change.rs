//! Changing the settings of a pool: properties, features, its config.
//!
//! # What it is
//! What `zpool set`, `online` and `offline` need from an open pool. Each call returns when the
//! change is on disk.
//!
//! # Source
//! OpenZFS `module/zfs/spa.c` (`spa_sync_props`, `spa_config_update`), `module/zfs/dsl_scan.c`
//! (`dsl_scan_sync_state`).

use base::Result;
use phys::PropValue;
use phys::feature::{Feature, HEAD_ERRLOG};

use crate::dedup::DEDUP_TABLE_QUOTA;
use crate::features::Features;
use crate::spa::{FAILMODE, Spa};
use crate::sweep::AUTOTRIM;

/// The pool property; off unless it was set.
pub(crate) const MULTIHOST: &str = "multihost";

impl Spa {
    /// Sets one of the pool's own properties.
    ///
    /// # Errors
    /// `ReadOnly`, `Suspended`.
    pub fn set_prop(&self, name: &str, value: PropValue) -> Result<()> {
        let (of_multihost, of_failmode) = (name == MULTIHOST, name == FAILMODE);
        let (of_quota, of_autotrim) = (name == DEDUP_TABLE_QUOTA, name == AUTOTRIM);
        let name = name.to_owned();
        self.in_sync(move |inner, tx| {
            let text = format!("{name}={value}");
            inner.core.log_internal("set", &text, tx);
            inner.props.set(&name, value, tx)
        })?;
        if of_failmode {
            self.inner.take_failmode();
        }
        if of_autotrim {
            self.inner.take_autotrim();
        }
        if of_quota {
            self.inner.take_dedup_quota()?;
        }
        if of_multihost && self.multihost() {
            self.inner.mmp.start(&self.inner);
            // Makes it visible to other hosts at once.
            self.force_sync()?;
        } else if of_multihost {
            self.inner.mmp.stop();
            self.force_sync()?;
        }
        Ok(())
    }

    /// Whether the property `multihost` is on: other hosts are kept from importing the pool while
    /// it is open here.
    #[must_use]
    pub fn multihost(&self) -> bool {
        self.inner.props.get(MULTIHOST) == Some(PropValue::Number(1))
    }

    /// Sets the comment, which is stored in the config.
    ///
    /// # Errors
    /// `ReadOnly`, `Suspended`.
    pub fn set_comment(&self, comment: Option<String>) -> Result<()> {
        self.check_writable()?;
        self.inner.state.lock().comment = comment;
        self.config_changed()
    }

    /// Sets the `compatibility` property, which is stored in the config.
    ///
    /// # Errors
    /// `ReadOnly`, `Suspended`.
    pub fn set_compatibility(&self, compatibility: Option<String>) -> Result<()> {
        self.check_writable()?;
        self.inner.state.lock().compatibility = compatibility;
        self.config_changed()
    }

    /// The comment.
    #[must_use]
    pub fn comment(&self) -> Option<String> {
        self.inner.state.lock().comment.clone()
    }

    /// The `compatibility` property: the feature sets that the pool is restricted to.
    #[must_use]
    pub fn compatibility(&self) -> Option<String> {
        self.inner.state.lock().compatibility.clone()
    }

    /// Enables a feature with all its dependencies.
    ///
    /// # Errors
    /// `ReadOnly`, `Suspended`.
    pub fn enable_feature(&self, feature: &'static Feature) -> Result<()> {
        self.in_sync(move |inner, tx| {
            let text = format!("feature@{}=enabled", feature.name);
            inner.core.log_internal("set", &text, tx);
            let features = inner.features();
            let is_active =
                |features: &Features| features.count(HEAD_ERRLOG).is_some_and(|count| count > 0);
            let logs_by_head = is_active(&features);
            features.enable(feature, tx)?;
            if !logs_by_head && is_active(&features) {
                inner.dsl().upgrade_error_logs(tx)?;
            }
            inner.mos.set_props(dsl::mos_props(&*inner.core));
            Ok(())
        })?;
        self.config_changed()
    }

    /// Rewrites config and labels, after a change that they record.
    ///
    /// # Errors
    /// `ReadOnly`, `Suspended`.
    #[doc(alias = "spa_config_update")]
    pub fn config_changed(&self) -> Result<()> {
        self.check_writable()?;
        {
            let mut state = self.inner.state.lock();
            state.config_dirty = true;
            state.labels_dirty = true;
        }
        self.sync_now()
    }
}
