//! Bringing a pool of a version before feature flags up to version 5000.
//!
//! # What it is
//! The pool is opened, and what it lacks is made in memory before its first txg is synced, as a new pool is made
//! (`create.rs`): ZAPs for features, none of which is enabled yet, a history, a salt, and what the DSL keeps
//! (`dsl/src/old_version.rs`). Then it is open like any other. ZAPs of vdevs are made with its config.
//!
//! # Crash argument
//! Nothing but that txg is written: until its uberblock is on disk the pool is of its old version, afterwards of
//! version 5000. Labels of either version lead to either uberblock.
//!
//! # Source
//! OpenZFS `module/zfs/spa.c` (`spa_sync_version`, `spa_sync_upgrades`), `module/zfs/zfeature.c`
//! (`spa_feature_create_zap_objects`), `module/zfs/dsl_scan.c` (`dsl_scan_init`).

use std::sync::Arc;

use base::{Error, ErrorKind, Result, SPA_MINBLOCKSIZE, VdevId};
use dmu::{Objset, Tx};
use phys::pool_names;
use phys::uberblock::{SPA_VERSION_FEATURES, UberblockPhys};
use vdev::VdevTree;
use zap::directory;
use zio::{AllocClass, VdevOps};

use crate::core::Core;
use crate::features::Features;
use crate::history::History;
use crate::load::ImportOptions;
use crate::spa::Spa;

/// `SPA_VERSION_RAIDZ_DEFLATE`: space is charged without parity from here on.
const SPA_VERSION_RAIDZ_DEFLATE: u64 = 3;

/// What the pool directory has of a scrub or resilver before version 25.
const OLD_SCRUB: [&str; 7] = [
    "scrub_bookmark",
    "scrub_ddt_bookmark",
    "scrub_ddt_class_max",
    "scrub_min_txg",
    "scrub_max_txg",
    "scrub_func",
    "scrub_errors",
];
/// The ZAP with what it had not come to.
const OLD_SCRUB_QUEUE: &str = "scrub_queue";

/// An upgrade, in the txg that it is all in.
pub(crate) struct Upgrade {
    /// The version that the pool has had.
    pub(crate) from: u64,
    pub(crate) tx: Tx,
}

impl Spa {
    /// Opens a pool of a version before feature flags, and brings it up to version 5000.
    ///
    /// # Errors
    /// As [`open`](Spa::open); `InvalidInput` for a pool with feature flags; `Unsupported` for a RAID-Z from before
    /// version 3.
    #[doc(alias = "spa_upgrade")]
    pub fn upgrade(options: ImportOptions) -> Result<Spa> {
        let upgrades = true;
        Ok(Spa::open_by(options, upgrades)?.0)
    }
}

impl Upgrade {
    /// Makes what is needed to open the rest of the pool.
    pub(crate) fn begin(&self, mos: &Arc<Objset>, tree: &VdevTree) -> Result<Features> {
        if self.from < SPA_VERSION_RAIDZ_DEFLATE {
            check_no_parity(tree)?;
            directory::set(mos, pool_names::DEFLATE, 1, &self.tx)?;
        }
        Features::create(mos, &[], &self.tx)
    }

    /// Makes the rest, beside what the DSL keeps.
    pub(crate) fn finish(&self, mos: &Arc<Objset>, core: &Core, salt: [u8; 32]) -> Result<()> {
        let (tx, name) = (&self.tx, pool_names::CHECKSUM_SALT);
        if !zap::contains(mos, directory::OBJECT, name)? {
            zap::update(mos, tx, directory::OBJECT, name, &salt)?;
        }
        if core.history().is_none() {
            let dspace = core.space.class_stats(AllocClass::Normal).dspace;
            core.set_history(History::create(mos, dspace, tx)?);
        }
        forget_scrub(mos, tx)?;
        let text = format!("version={SPA_VERSION_FEATURES}");
        core.log_internal("set", &text, tx);
        Ok(())
    }
}

/// A pool is upgraded in its last state, if that is of an old version.
pub(crate) fn check_upgrade(options: &ImportOptions, uberblock: &UberblockPhys) -> Result<()> {
    let version = uberblock.version.get();
    if version >= SPA_VERSION_FEATURES {
        return Err(Error::invalid(format!("it is of version {version}")));
    }
    if options.readonly || options.max_txg.is_some() || options.rewinds {
        return Err(Error::invalid("only the last state of a pool is upgraded"));
    }
    Ok(())
}

/// Space on a RAID-Z was charged with its parity before version 3, and OpenZFS goes on so after an upgrade.
fn check_no_parity(tree: &VdevTree) -> Result<()> {
    let ids = (0..tree.tops().len() as u64).map(VdevId);
    let mut ratios = ids.map(|id| tree.deflate_ratio(id));
    if ratios.all(|ratio| ratio == SPA_MINBLOCKSIZE) {
        return Ok(());
    }
    let text = "pools with RAID-Z from before version 3 cannot be upgraded here";
    Err(Error::new(ErrorKind::Unsupported, text))
}

/// Gives up a scrub of a version before 25. What a resilver had to do devices still miss: it begins anew.
fn forget_scrub(mos: &Arc<Objset>, tx: &Tx) -> Result<()> {
    if let Some(queue) = directory::find(mos, OLD_SCRUB_QUEUE)?.filter(|queue| queue.0 != 0) {
        // The number is from disk: an object of another type, which others may use, is not freed.
        zap::Zap::open(mos, queue)?;
        zap::destroy(mos, tx, queue)?;
    }
    for name in OLD_SCRUB.into_iter().chain([OLD_SCRUB_QUEUE]) {
        zap::remove_if_present(mos, tx, directory::OBJECT, name)?;
    }
    Ok(())
}
