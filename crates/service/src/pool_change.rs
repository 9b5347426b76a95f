//! Changing the properties of a pool.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`set_pool_callback`), module/zfs/spa.c (`spa_prop_validate`).

use admin::name::pool_of;
use base::{Error, ErrorKind, Result};
use phys::PropValue;
use phys::feature::{FEATURES, Feature, Support};
use spa::{FeatureState, Spa};

use crate::compatibility::Compatibility;

/// A property of a pool, with its new value, whose form has been checked.
#[derive(Debug, Clone)]
pub enum PoolChange {
    /// `comment`; empty: none.
    Comment(String),
    /// `compatibility`
    Compatibility(Compatibility),
    /// `cachefile`: a path, `none`, or empty. A fact of the import, and nothing of the pool itself.
    Cachefile(String),
    /// `bootfs`: the name of a dataset; empty: none.
    Bootfs(String),
    /// `feature@…=enabled`
    Feature(&'static Feature),
    /// Any other, by its name.
    Other(String, PropValue),
}

/// See [`OpenPool::change_property`](crate::OpenPool::change_property).
pub(crate) fn change(pool: &Spa, change: &PoolChange) -> Result<Vec<&'static Feature>> {
    match change {
        PoolChange::Comment(text) => {
            pool.set_comment(Some(text.clone()).filter(|text| !text.is_empty()))?;
        }
        PoolChange::Compatibility(sets) => {
            pool.set_compatibility(Some(sets.value().to_owned()))?;
            let is_outside =
                |f: &&Feature| pool.feature(f.guid) >= FeatureState::Enabled && !sets.allows(f);
            return Ok(FEATURES.iter().filter(is_outside).collect());
        }
        PoolChange::Bootfs(name) => {
            pool.set_prop("bootfs", PropValue::Number(bootfs(pool, name)?))?;
        }
        PoolChange::Cachefile(_) => {
            return Err(Error::invalid("property 'cachefile' is not part of a pool"));
        }
        PoolChange::Feature(feature) => enable(pool, feature)?,
        PoolChange::Other(name, value) => pool.set_prop(name, value.clone())?,
    }
    Ok(Vec::new())
}

/// The number of the object of a dataset; 0 for none.
fn bootfs(pool: &Spa, name: &str) -> Result<u64> {
    if name.is_empty() {
        return Ok(0);
    }
    if pool_of(name) != pool.name() {
        return Err(Error::invalid(format!("'{name}' is an invalid name")));
    }
    let dataset = pool.parts().dsl().dataset(name);
    let dataset = dataset.map_err(|_| Error::not_found("no such pool or dataset"))?;
    Ok(dataset.object().0)
}

fn enable(pool: &Spa, feature: &'static Feature) -> Result<()> {
    if pool.feature(feature.guid) >= FeatureState::Enabled {
        return Ok(());
    }
    let name = feature.name;
    if feature.support != Support::Kept {
        let text = format!("feature '{name}' is not supported yet");
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    if let Some(sets) = pool.compatibility()
        && !Compatibility::load(&sets)?.allows(feature)
    {
        return Err(Error::invalid(format!(
            "feature '{name}' is not in the pool's compatibility sets ('{sets}')"
        )));
    }
    pool.enable_feature(feature)
}
