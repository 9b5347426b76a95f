//! The feature counts of one pool.
//!
//! # Invariants
//! 1. The counts in memory are those of the ZAPs in the pool directory as of the syncing txg.
//! 2. A count changes only in syncing context.
//!
//! # Source
//! OpenZFS `module/zfs/zfeature.c`.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result};
use dmu::{Objset, Tx};
use nvpair::NvList;
use phys::ObjectType;
use rt::Mutex;

use crate::obstacle::Obstacle;
use phys::feature::{self, Feature, Support};
use phys::pool_names;
use phys::uberblock::SPA_VERSION_FEATURES;
use zap::directory;

/// What a pool says of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FeatureState {
    /// It must not be used.
    Disabled,
    /// It may be used.
    Enabled,
    /// It is in use.
    Active,
}

impl From<Option<u64>> for FeatureState {
    /// The state of a feature with this count.
    fn from(count: Option<u64>) -> FeatureState {
        match count {
            None => FeatureState::Disabled,
            Some(0) => FeatureState::Enabled,
            Some(_) => FeatureState::Active,
        }
    }
}

/// The features of an open pool.
pub struct Features {
    mos: Arc<Objset>,
    /// `None` before version 5000: no feature can be enabled.
    zaps: Option<Zaps>,
    counts: Mutex<Counts>,
}

/// Where the counts are in the MOS.
#[derive(Clone, Copy)]
struct Zaps {
    for_read: ObjectId,
    for_write: ObjectId,
    descriptions: ObjectId,
}

#[derive(Default)]
struct Counts {
    /// By guid; the flag says whether it is in `features_for_write`.
    refs: BTreeMap<String, (u64, bool)>,
    enabled_txg: Option<ObjectId>,
}

impl Features {
    /// Creates the ZAPs of a new pool and enables `wanted` with all their dependencies.
    ///
    /// # Errors
    /// Any error from writing the MOS.
    pub fn create(mos: &Arc<Objset>, wanted: &[&'static Feature], tx: &Tx) -> Result<Features> {
        let make = |name: &str| directory::create_link(mos, ObjectType::N_ZAP_METADATA, name, tx);
        let features = Features {
            mos: mos.clone(),
            zaps: Some(Zaps {
                for_read: make(pool_names::FEATURES_FOR_READ)?,
                for_write: make(pool_names::FEATURES_FOR_WRITE)?,
                descriptions: make(pool_names::FEATURE_DESCRIPTIONS)?,
            }),
            counts: Mutex::default(),
        };
        for feature in wanted {
            features.enable(feature, tx)?;
        }
        Ok(features)
    }

    /// Reads the counts of an existing pool of this version.
    ///
    /// # Errors
    /// Any error from reading the MOS.
    pub fn open(mos: &Arc<Objset>, version: u64) -> Result<Features> {
        if version < SPA_VERSION_FEATURES {
            return Ok(Features {
                mos: mos.clone(),
                zaps: None,
                counts: Mutex::default(),
            });
        }
        let zaps = Zaps {
            for_read: directory::get(mos, pool_names::FEATURES_FOR_READ)?,
            for_write: directory::get(mos, pool_names::FEATURES_FOR_WRITE)?,
            descriptions: directory::get(mos, pool_names::FEATURE_DESCRIPTIONS)?,
        };
        let features = Features {
            mos: mos.clone(),
            zaps: Some(zaps),
            counts: Mutex::default(),
        };
        {
            let mut counts = features.counts.lock();
            for (zap, for_write) in [(zaps.for_read, false), (zaps.for_write, true)] {
                for entry in zap::iter(mos, zap)? {
                    let entry = entry?;
                    let name = entry.name_str().into_owned();
                    let count = zap::lookup_u64(mos, zap, &*name)?;
                    let count = count.ok_or_else(|| Error::corrupt(format!("feature {name}")))?;
                    counts.refs.insert(name, (count, for_write));
                }
            }
            counts.enabled_txg = directory::find(mos, pool_names::FEATURE_ENABLED_TXG)?;
        }
        Ok(features)
    }

    fn zaps(&self) -> Result<Zaps> {
        let missing = || Error::new(ErrorKind::Unsupported, "a pool without feature flags");
        self.zaps.ok_or_else(missing)
    }

    /// The active features that this program does not maintain, in the order of their guids.
    ///
    /// # Errors
    /// Any error from reading the descriptions.
    pub fn obstacles(&self) -> Result<Vec<Obstacle>> {
        let active: Vec<(String, bool)> = {
            let counts = self.counts.lock();
            let active = counts.refs.iter().filter(|(_, (count, _))| *count > 0);
            active
                .map(|(guid, (_, for_write))| (guid.clone(), *for_write))
                .collect()
        };
        let mut obstacles = Vec::new();
        for (guid, for_write) in active {
            let support = feature::by_guid(&guid).map_or(Support::None, |f| f.support);
            if support == Support::Kept {
                continue;
            }
            let description = zap::lookup_str(&self.mos, self.zaps()?.descriptions, &*guid)?;
            let description = description.unwrap_or_default();
            let is_readable = for_write || support == Support::Read;
            obstacles.push(Obstacle::Feature {
                guid,
                description,
                is_readable,
            });
        }
        Ok(obstacles)
    }

    /// The count of a feature; `None` when it is disabled.
    #[must_use]
    pub fn count(&self, guid: &str) -> Option<u64> {
        self.counts.lock().refs.get(guid).map(|(count, _)| *count)
    }

    /// Every feature listed in the pool, with its count.
    #[must_use]
    pub fn counts(&self) -> Vec<(String, u64)> {
        self.counts
            .lock()
            .refs
            .iter()
            .map(|(guid, (n, _))| (guid.clone(), *n))
            .collect()
    }

    /// Enables a feature with all its dependencies. In syncing context.
    ///
    /// # Errors
    /// Any error from writing the MOS.
    #[doc(alias = "feature_enable_sync")]
    pub fn enable(&self, feature: &'static Feature, tx: &Tx) -> Result<()> {
        if self.count(feature.guid).is_some() {
            return Ok(());
        }
        for name in feature.depends {
            let needed = feature::by_name(name).expect("the table is complete");
            self.enable(needed, tx)?;
        }
        let mut text = feature.description.as_bytes().to_vec();
        text.push(0);
        zap::update(
            &self.mos,
            tx,
            self.zaps()?.descriptions,
            feature.guid,
            &text,
        )?;
        self.set(
            feature.guid,
            u64::from(feature.activate_on_enable),
            feature.readonly_compat,
            tx,
        )?;
        self.note_enabled(feature.guid, tx)
    }

    /// Adds `delta` to the count of an enabled feature. In syncing context.
    ///
    /// # Errors
    /// `Unsupported` when it is not enabled; any error from writing the MOS.
    pub(crate) fn adjust(&self, guid: &str, delta: i64, tx: &Tx) -> Result<()> {
        let found = self.counts.lock().refs.get(guid).copied();
        let Some((count, for_write)) = found else {
            let text = format!("feature {guid} is not enabled on this pool");
            return Err(Error::new(ErrorKind::Unsupported, text));
        };
        let count = count.checked_add_signed(delta);
        let count =
            count.ok_or_else(|| Error::corrupt(format!("feature {guid}: count below 0")))?;
        self.set(guid, count, for_write, tx)
    }

    /// The features listed in labels: those without which the MOS cannot be read.
    #[must_use]
    pub(crate) fn label_list(&self) -> NvList {
        let mut list = NvList::new();
        for f in feature::FEATURES.iter().filter(|f| f.mos) {
            if self.count(f.guid).is_some_and(|count| count > 0) {
                list.add_flag(f.guid);
            }
        }
        list
    }

    fn note_enabled(&self, guid: &str, tx: &Tx) -> Result<()> {
        if self.count(feature::ENABLED_TXG).is_none() {
            return Ok(());
        }
        let object = self.counts.lock().enabled_txg;
        let object = match object {
            Some(object) => object,
            None => {
                let type_ = ObjectType::N_ZAP_METADATA;
                let object =
                    directory::create_link(&self.mos, type_, pool_names::FEATURE_ENABLED_TXG, tx)?;
                self.counts.lock().enabled_txg = Some(object);
                object
            }
        };
        self.adjust(feature::ENABLED_TXG, 1, tx)?;
        zap::update(&self.mos, tx, object, guid, &[tx.txg().0])
    }

    fn set(&self, guid: &str, count: u64, for_write: bool, tx: &Tx) -> Result<()> {
        let zaps = self.zaps()?;
        let zap = if for_write {
            zaps.for_write
        } else {
            zaps.for_read
        };
        zap::update(&self.mos, tx, zap, guid, &[count])?;
        self.counts
            .lock()
            .refs
            .insert(guid.to_owned(), (count, for_write));
        Ok(())
    }
}

/// These features with all their dependencies; may contain duplicates.
pub(crate) fn with_depends(wanted: &[&'static Feature]) -> Vec<&'static Feature> {
    let mut all = wanted.to_vec();
    let mut seen = 0;
    while let Some(feature) = all.get(seen) {
        let needed = feature
            .depends
            .iter()
            .filter_map(|name| feature::by_name(name));
        all.extend(needed);
        seen += 1;
    }
    all
}
