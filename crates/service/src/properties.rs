//! The properties of an open pool.
//!
//! # Source
//! OpenZFS module/zfs/spa.c (`spa_prop_get_config`), module/zfs/spa_misc.c.

use std::collections::BTreeMap;

use admin::listing::{Item, Prop};
use admin::prop::{Edit, POOL, PropDesc, Source, is_user_property};
use base::{ObjectId, Result};
use phys::PropValue;
use phys::feature::{FEATURES, Feature, by_guid};
use phys::uberblock::SPA_VERSION_FEATURES;
use spa::{FeatureState, Spa};

use crate::open::OpenPool;
use crate::status::expandable;

/// Every property of an open pool.
pub(crate) fn properties_of(pool: &OpenPool) -> Result<Item> {
    let mut props = Vec::new();
    let facts = pool.facts();
    let space = pool.space();
    let percent = |part: u64, whole: u64| (part * 100).checked_div(whole).unwrap_or(0);
    let set = pool.props();
    let (health, _) = pool.parts().tree().state();
    for desc in POOL {
        let number = |n: u64| Prop::number(desc.name, n);
        let text = |t: &str| Prop::text(desc.name, t);
        let local = |t: Option<String>| match t {
            Some(t) => Prop::new(desc.name, PropValue::Text(t), Source::Local),
            None => Prop::new(desc.name, desc.default_value(), Source::Default),
        };
        props.push(match desc.name {
            "name" => continue,
            "size" => number(space.space),
            "expandsize" => number(pool.parts().tree().tops().iter().map(expandable).sum()),
            "capacity" => number(percent(space.alloc, space.space)),
            "altroot" => local(facts.altroot.clone()),
            "cachefile" => local(pool.changing().lock().cachefile.clone()),
            "health" => text(&health.to_string()),
            "guid" => number(pool.guid().0),
            "version" => {
                let source = match pool.version() {
                    SPA_VERSION_FEATURES => Source::Default,
                    _ => Source::Local,
                };
                Prop::new(desc.name, PropValue::Number(pool.version()), source)
            }
            "free" => number(space.space.saturating_sub(space.alloc)),
            "allocated" => number(space.alloc),
            "dedupratio" => number(pool.deduped()?.ratio_percent),
            "dedup_table_size" => number(pool.deduped()?.sizes.disk_bytes),
            "bcloneused" => number(pool.cloned().0),
            "bclonesaved" => number(pool.cloned().1),
            "bcloneratio" => number(match pool.cloned() {
                (0, _) => 100,
                (used, saved) => used.saturating_add(saved).saturating_mul(100) / used,
            }),
            "readonly" => number(u64::from(facts.readonly || !pool.obstacles().is_empty())),
            "comment" => local(pool.comment()),
            "compatibility" => local(pool.compatibility()),
            "fragmentation" => number(space.fragmentation.unwrap_or(u64::MAX)),
            "maxblocksize" => number(base::SPA_MAXBLOCKSIZE),
            "maxdnodesize" => number(16 << 10),
            "load_guid" => number(pool.guid().0),
            "checkpoint" => number(pool.checkpoint()?.map_or(0, |checkpoint| checkpoint.bytes)),
            "freeing" => number(freeing(pool)?),
            _ if desc.edit == Edit::ReadOnly => number(0),
            _ => stored(pool, &set, desc),
        });
    }
    props.extend(feature_props(pool));
    props.extend(user_props(set));
    Ok(Item {
        name: pool.name(),
        types: None,
        props,
    })
}

pub(crate) fn freeing(pool: &Spa) -> Result<u64> {
    let dir = pool.parts().dsl().dir(&format!("{}/$FREE", pool.name()));
    Ok(dir.map(|dir| dir.fields().used_bytes).unwrap_or(0))
}

fn stored(pool: &Spa, set: &BTreeMap<String, PropValue>, desc: &'static PropDesc) -> Prop {
    match set.get(desc.name).cloned() {
        Some(PropValue::Number(n)) if desc.name == "bootfs" && n != 0 => {
            let name = pool.parts().dsl().dataset_of(ObjectId(n));
            let name = name
                .and_then(|ds| pool.parts().dsl().name_of(&ds))
                .unwrap_or_default();
            Prop::new(desc.name, PropValue::Text(name), Source::Local)
        }
        // A number that is the default counts as not set.
        Some(PropValue::Number(n))
            if desc.default_value() == PropValue::Number(n) || desc.name == "bootfs" =>
        {
            Prop::new(desc.name, desc.default_value(), Source::Default)
        }
        Some(value) => Prop::new(desc.name, value, Source::Local),
        None => Prop::new(desc.name, desc.default_value(), Source::Default),
    }
}

fn feature_props(pool: &Spa) -> Vec<Prop> {
    let is_shown = |feature: &&Feature| {
        feature.is_in_2_3() || pool.feature(feature.guid) >= FeatureState::Enabled
    };
    let mut props: Vec<Prop> = FEATURES
        .iter()
        .filter(is_shown)
        .map(|feature| {
            let word = match pool.feature(feature.guid) {
                FeatureState::Disabled => "disabled",
                FeatureState::Enabled => "enabled",
                FeatureState::Active => "active",
            };
            let name = format!("feature@{}", feature.name);
            Prop::new(name, PropValue::Text(word.to_owned()), Source::Local)
        })
        .collect();
    for (guid, state) in pool.features() {
        if by_guid(&guid).is_none() {
            let is_active = state == FeatureState::Active;
            let word = if is_active { "readonly" } else { "inactive" };
            let name = format!("unsupported@{guid}");
            props.push(Prop::new(
                name,
                PropValue::Text(word.to_owned()),
                Source::Local,
            ));
        }
    }
    props
}

fn user_props(set: BTreeMap<String, PropValue>) -> impl Iterator<Item = Prop> {
    let is_users =
        |name: &str, value: &PropValue| is_user_property(name) && value.as_text().is_some();
    set.into_iter()
        .filter(move |(name, value)| is_users(name, value))
        .map(|(name, value)| Prop::new(name, value, Source::Local))
}
