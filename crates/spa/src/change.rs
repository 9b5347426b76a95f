//! Changing what a pool is set to: properties, features, its config, the outcome of a scrub.
//!
//! # What it is
//! What `zpool set`, `online`, `offline` and `scrub` need of an open pool. Each call returns when the
//! change is on disk.
//!
//! # Source
//! OpenZFS `module/zfs/spa.c` (`spa_sync_props`, `spa_config_update`), `module/zfs/dsl_scan.c`
//! (`dsl_scan_sync_state`).

use std::sync::Arc;

use base::{Error, ErrorKind, Guid, ObjectId, Result, Txg};
use dmu::Dnode;
use phys::pool_names::{ERRLOG_LAST, ERRLOG_SCRUB};
use phys::scan::{DSS_CANCELED, DSS_SCANNING};
use phys::{ObjectType, ScanPhys};
use zerocopy::IntoBytes;

use crate::directory;
use crate::feature::Feature;
use crate::props::PropValue;
use crate::spa::{FAILMODE, Spa};

/// The pool property; off unless it was set.
const MULTIHOST: &str = "multihost";
/// `DMU_POOL_SCAN`: the pool directory's entry for the last scrub.
const SCAN: &str = "scan";

impl Spa {
    /// Sets one of the pool's own properties.
    ///
    /// # Errors
    /// `ReadOnly`, `Suspended`.
    pub fn set_prop(&self, name: &str, value: PropValue) -> Result<()> {
        let (of_multihost, of_failmode) = (name == MULTIHOST, name == FAILMODE);
        let name = name.to_owned();
        self.in_sync(move |inner, tx| {
            let text = format!("{name}={value}");
            inner.core.log_internal("set", &text, tx);
            inner.props.set(&name, value, tx)
        })?;
        if of_failmode {
            self.inner.take_failmode();
        }
        if of_multihost && self.multihost() {
            self.inner.mmp.start(&self.inner);
            // Other hosts see it from now on.
            self.force_sync()?;
        } else if of_multihost {
            self.inner.mmp.stop();
            self.force_sync()?;
        }
        Ok(())
    }

    /// Whether other hosts are kept from the pool while it is open here.
    #[must_use]
    pub fn multihost(&self) -> bool {
        self.props().get(MULTIHOST) == Some(PropValue::Number(1))
    }

    /// Sets the comment, which stands in the config.
    ///
    /// # Errors
    /// `ReadOnly`, `Suspended`.
    pub fn set_comment(&self, comment: Option<String>) -> Result<()> {
        self.check_writable()?;
        self.inner.state.lock().comment = comment;
        self.config_changed()
    }

    /// Sets which set of features the pool keeps to, which stands in the config.
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

    /// The set of features that the pool keeps to.
    #[must_use]
    pub fn compatibility(&self) -> Option<String> {
        self.inner.state.lock().compatibility.clone()
    }

    /// Enables a feature with all that it depends on.
    ///
    /// # Errors
    /// `ReadOnly`, `Suspended`; `Unsupported` for `head_errlog` while there are errors in the log.
    pub fn enable_feature(&self, feature: &'static Feature) -> Result<()> {
        self.check_error_log(feature)?;
        self.in_sync(move |inner, tx| {
            let text = format!("feature@{}=enabled", feature.name);
            inner.core.log_internal("set", &text, tx);
            inner.features().enable(feature, tx)?;
            inner.mos.set_props(dsl::mos_props(&*inner.core));
            Ok(())
        })?;
        self.config_changed()
    }

    /// The entries of an error log have another form with `head_errlog`, and are not converted here.
    fn check_error_log(&self, feature: &Feature) -> Result<()> {
        let is_there = self.inner.features().count(feature.guid).is_some();
        if feature.name != "head_errlog" || is_there {
            return Ok(());
        }
        for name in [ERRLOG_SCRUB, ERRLOG_LAST] {
            let log = directory::find(&self.inner.mos, name)?.filter(|log| log.0 != 0);
            let count = log.map_or(Ok(0), |log| zap::count(&self.inner.mos, log))?;
            if count > 0 {
                let text = format!(
                    "the pool's error log has {count} entries, which are not converted for this feature yet"
                );
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
        }
        Ok(())
    }

    /// Writes config and labels anew: something about a vdev changed.
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

    /// What the last scrub came to, if there was one.
    ///
    /// # Errors
    /// What reading the MOS gives.
    pub fn scan(&self) -> Result<Option<ScanPhys>> {
        let words = zap::lookup::<u64>(&self.inner.mos, directory::OBJECT, SCAN)?;
        let Some(words) = words else { return Ok(None) };
        let mut scan = ScanPhys::default();
        let bytes = words.as_bytes();
        let length = bytes.len().min(size_of::<ScanPhys>());
        scan.as_mut_bytes()[..length].copy_from_slice(&bytes[..length]);
        Ok(Some(scan))
    }

    /// Ends a scrub or resilver that another host began and did not finish. It goes on by a list of
    /// datasets, and OpenZFS stops the host when one of these is not there any more. What a resilver has
    /// still to do is in the DTLs.
    pub(crate) fn cancel_unfinished_scan(&self) -> Result<()> {
        let Some(mut scan) = self.scan()? else {
            return Ok(());
        };
        if scan.state.get() != DSS_SCANNING {
            return Ok(());
        }
        let queue = ObjectId(scan.queue_obj.get());
        scan.state.set(DSS_CANCELED);
        scan.end_time.set(rt::wall_clock().secs);
        scan.queue_obj.set(0);
        let words = words_of(&scan);
        self.in_sync(move |inner, tx| {
            let is_queue = |dnode: Arc<Dnode>| dnode.type_() == ObjectType::SCAN_QUEUE;
            if queue.0 != 0 && inner.mos.hold(queue).is_ok_and(is_queue) {
                zap::destroy(&inner.mos, tx, queue)?;
            }
            zap::update(&inner.mos, tx, directory::OBJECT, SCAN, &words[..])
        })
    }

    /// Writes down what a scrub came to. Devices in `complete` have everything up to `txg` now.
    ///
    /// # Errors
    /// `ReadOnly`, `Suspended`.
    pub fn record_scan(&self, scan: ScanPhys, complete: &[Guid], txg: Txg) -> Result<()> {
        for guid in complete {
            if let Some(device) = self.inner.tree.find(*guid) {
                device.leaf().clear_dtl(&(0..txg.0 + 1));
            }
        }
        let words = words_of(&scan);
        let (func, errors) = (scan.func.get(), scan.errors.get());
        self.in_sync(move |inner, tx| {
            let setup = format!("func={func} mintxg=0 maxtxg={}", txg.0);
            inner.core.log_internal("scan setup", &setup, tx);
            inner
                .core
                .log_internal("scan done", &format!("errors={errors}"), tx);
            zap::update(&inner.mos, tx, directory::OBJECT, SCAN, &words[..])
        })
    }
}

/// A scan as the pool directory has it.
fn words_of(scan: &ScanPhys) -> Vec<u64> {
    let (words, _) = scan.as_bytes().as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}
