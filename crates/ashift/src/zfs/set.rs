//! `zfs set` and `zfs inherit`; what a property requires of a pool.
//!
//! Source: OpenZFS lib/libzfs/libzfs_dataset.c (`zfs_prop_set_list`, `zfs_prop_inherit`),
//! module/zfs/zfs_ioctl.c (`zfs_check_settable`).

use admin::getopt::Parsed;
use admin::prop::{
    DatasetContext, Edit, TableKind, Types, is_user_property, parse_dataset_assignment,
    parse_value, split_assignment,
};
use base::{Error, ErrorKind, SPA_OLD_MAXBLOCKSIZE};
use dsl::PropChange;
use phys::PropValue;
use phys::feature;
use service::{OpenPool, Session};
use spa::{FeatureState, Spa};
use zpl::OwnerLimit;

use super::fail::{Fail, Outcome, for_each, words};
use super::target::{Target, open};
use crate::mounting::{self, Change, Moved};
use crate::name_rules::is_of_objset;
use crate::{keys, quota};

/// Properties as typed: name and value.
pub(super) type Typed = Vec<(String, String)>;

/// Properties as they are stored.
pub(super) type Stored = Vec<(String, PropValue)>;

/// What is to be set.
#[derive(Default)]
pub(super) struct Checked {
    /// Properties of the data set.
    pub(super) stored: Stored,
    /// Limits of owners, which are in the file system.
    pub(super) limits: Vec<OwnerLimit>,
}

/// Splits `name=value` words; each property may occur once, by any of its names.
#[doc(alias = "parseprop")]
pub(super) fn split_assignments<'a>(words: impl Iterator<Item = &'a str>) -> Outcome<Typed> {
    let mut typed = Typed::new();
    for word in words {
        let (name, value) = split_assignment(word)
            .ok_or_else(|| Fail::failed("missing '=' for property=value argument"))?;
        let known = |name: &str| TableKind::Dataset.lookup(name).map(|desc| desc.name);
        let same = |other: &(String, String)| {
            other.0 == name || known(name).is_some_and(|full| known(&other.0) == Some(full))
        };
        if typed.iter().any(same) {
            return Err(Fail::failed(format!(
                "property '{name}' specified multiple times"
            )));
        }
        typed.push((name.to_owned(), value.to_owned()));
    }
    Ok(typed)
}

/// Checks the properties to be set; `what` is the operation that fails if they are invalid.
pub(super) fn check(
    typed: &Typed,
    context: &DatasetContext,
    spa: &Spa,
    what: &str,
) -> Outcome<Checked> {
    let mut checked = Checked::default();
    for (name, value) in typed {
        let cannot = |why: &dyn std::fmt::Display| Fail::failed(format!("{what}: {why}"));
        warn_of_special(name, value, context, spa);
        if !context.types.meets(Types::SNAPSHOT)
            && let Some(limit) = quota::parse_limit(name, value)
        {
            checked.limits.push(limit.map_err(|e| cannot(&e))?);
            continue;
        }
        let (name, value) =
            parse_dataset_assignment(name, value, context).map_err(|e| cannot(&e))?;
        if let Some(guid) = needed_feature(&name, &value)
            && spa.feature(guid) == FeatureState::Disabled
        {
            return Err(cannot(
                &"pool must be upgraded to set this property or value",
            ));
        }
        if !is_kept_elsewhere(&name) {
            checked.stored.push((name, value));
        }
    }
    Ok(checked)
}

/// Warns about a number that has no effect until the pool has a special vdev, even if it is then rejected.
fn warn_of_special(name: &str, value: &str, context: &DatasetContext, spa: &Spa) {
    let desc = TableKind::Dataset.lookup(name);
    let Some(desc) = desc.filter(|desc| desc.name == "special_small_blocks") else {
        return;
    };
    let is_number = parse_value(desc, name, value, context.types).is_ok();
    let has_special = spa.feature(feature::ALLOCATION_CLASSES) == FeatureState::Active;
    if desc.types.meets(context.types) && is_number && !has_special {
        eprintln!("{name}: property requires a special device in the pool");
    }
}

/// Properties that are not stored as such: the objset or the key has them.
fn is_kept_elsewhere(name: &str) -> bool {
    let key = ["encryption", "keylocation", "keyformat"];
    is_of_objset(name) || key.contains(&name)
}

/// The feature without which a value cannot be used.
fn needed_feature(name: &str, value: &PropValue) -> Option<&'static str> {
    const COMPRESS_LZ4: u64 = 15;
    const COMPRESS_ZSTD: u64 = 16;
    /// `ZIO_CHECKSUM_MASK`: without the mark to verify.
    const CHECKSUM_MASK: u64 = 0xff;
    let number = value.as_number()?;
    match (name, number) {
        ("dedup", n) => needed_feature("checksum", &PropValue::Number(n & CHECKSUM_MASK)),
        ("compression", COMPRESS_LZ4) => Some(feature::LZ4_COMPRESS),
        ("compression", n) if n & 0x7f == COMPRESS_ZSTD => Some(feature::ZSTD_COMPRESS),
        ("checksum", 11) => Some(feature::SHA512),
        ("checksum", 12) => Some(feature::SKEIN),
        ("checksum", 13) => Some(feature::EDONR),
        ("checksum", 14) => Some(feature::BLAKE3),
        ("recordsize", n) if n > SPA_OLD_MAXBLOCKSIZE => Some(feature::LARGE_BLOCKS),
        ("dnodesize", n) if n != 0 => Some(feature::LARGE_DNODE),
        ("longname", 1) => Some(feature::LONGNAME),
        ("filesystem_limit" | "snapshot_limit", n) if n != u64::MAX => Some(feature::FS_SS_LIMIT),
        _ => None,
    }
}

/// Exit code of a failed `zfs set`: OpenZFS returns what its library does, which is -1.
const NOT_SET: u8 = 255;

/// Why a property could not be set, in OpenZFS's words.
#[doc(alias = "zfs_setprop_error")]
fn set_words(error: &Error, changes: &[(String, PropChange)]) -> String {
    let has = |names: &[&str]| {
        changes
            .iter()
            .any(|(name, _)| names.contains(&name.as_str()))
    };
    match error.kind() {
        ErrorKind::NoSpace if has(&["quota", "refquota"]) => {
            "size is less than current used or reserved space".to_owned()
        }
        ErrorKind::NoSpace if has(&["reservation", "refreservation"]) => {
            "size is greater than available space".to_owned()
        }
        ErrorKind::TooBig => "property value too long".to_owned(),
        ErrorKind::NameTooLong => "property name is too long".to_owned(),
        _ => words(error),
    }
}

fn change(target: &Target, changes: &[(String, PropChange)], what: &str) -> Outcome {
    let pool = &target.pool;
    let outcome =
        pool.change_datasets(|datasets| datasets.set_props(&target.name, changes.to_vec()));
    outcome.map_err(|e| Fail::failed(format!("{what}: {}", set_words(&e, changes))))
}

/// `zfs set`.
pub(super) fn set(session: &Session, parsed: &Parsed) -> Outcome {
    let at = parsed.operands.iter().position(|word| !word.contains('='));
    let (assignments, names) = parsed
        .operands
        .split_at(at.unwrap_or(parsed.operands.len()));
    match (assignments, names) {
        ([], []) => return Err(Fail::usage("missing arguments")),
        ([], [_]) => return Err(Fail::usage("missing property=value argument(s)")),
        ([], _) => {
            for name in names {
                open(session, name, Types::DATASET)?;
            }
            return Err(Fail::usage("missing property=value argument(s)"));
        }
        (_, []) => return Err(Fail::usage("missing dataset name(s)")),
        _ => {}
    }
    let typed = split_assignments(assignments.iter().map(String::as_str));
    let typed = typed.map_err(|fail| match fail {
        Fail::Failed(text) => Fail::Exits(NOT_SET, text),
        other => other,
    })?;
    for_each(names, |name| {
        let target = open(session, name, Types::DATASET)?;
        set_one(&target, &typed, parsed.has('u')).map_err(|fail| match fail {
            Fail::Failed(text) => Fail::Exits(NOT_SET, text),
            Fail::Said(_) => Fail::Said(NOT_SET),
            other => other,
        })
    })
}

fn set_one(target: &Target, typed: &Typed, stays_mounted: bool) -> Outcome {
    let what = format!("cannot set property for '{}'", target.name);
    let mut context = DatasetContext::existing(target.types);
    context.max_blocksize = base::SPA_MAXBLOCKSIZE;
    let (locations, typed): (Typed, Typed) =
        match target.is_encrypted().map_err(|e| Fail::of(&what, &e))? {
            true => typed
                .iter()
                .cloned()
                .partition(|(name, _)| name == "keylocation"),
            false => (Typed::new(), typed.clone()),
        };
    let Checked { mut stored, limits } = check(&typed, &context, &target.pool, &what)?;
    for (name, location) in locations {
        let value = super::key::checked_location(target, &location);
        let value = value.map_err(|why| Fail::failed(format!("{what}: {why}")))?;
        stored.push((name, value));
    }
    let limited = set_limits(target, &limits, &what);
    if stored.is_empty() {
        return limited;
    }
    let changes = stored
        .into_iter()
        .map(|(name, value)| (name, PropChange::Set(value)));
    let changes: Vec<_> = changes.collect();
    let changed = match stays_mounted {
        true => change(target, &changes, &what),
        false => change_mounted(target, &changes, &what),
    };
    limited.and(changed)
}

/// Limits owners; goes on after a failure.
fn set_limits(target: &Target, limits: &[OwnerLimit], what: &str) -> Outcome {
    unlock_for(target, limits)?;
    for_each(limits, |limit| {
        let upgrade = "pool and or dataset must be upgraded to set this property or value";
        let done = limit_owner(&target.pool, &target.name, limit, upgrade);
        done.map_err(|why| Fail::failed(format!("{what}: {why}")))
    })
}

/// Limits an owner; the error is why not, in OpenZFS's words. `upgrade`: those where the file system or the pool is too
/// old for that.
#[doc(alias = "zfs_setprop_error")]
pub(super) fn limit_owner(
    pool: &OpenPool,
    name: &str,
    limit: &OwnerLimit,
    upgrade: &str,
) -> Result<(), String> {
    let mut is_open = false;
    let done = pool.change_datasets(|datasets| {
        let files = datasets.files(name)?;
        is_open = true;
        files.set_owner_limit(limit)
    });
    done.map_err(|error| match error.kind() {
        ErrorKind::Unsupported if is_open => upgrade.to_owned(),
        ErrorKind::InvalidInput => "invalid property value".to_owned(),
        ErrorKind::NoKey => "permission denied".to_owned(),
        _ => words(&error),
    })
}

/// Limits are encrypted with what they limit; a process that holds the pool has keys that were loaded.
fn unlock_for(target: &Target, limits: &[OwnerLimit]) -> Outcome {
    let (pool, name) = (&target.pool, &target.name);
    if limits.is_empty() || pool.is_kept() {
        return Ok(());
    }
    match pool.is_unlocked(name) {
        Ok(true) => Ok(()),
        Ok(false) => keys::unlock(pool, name),
        Err(e) => Err(Fail::of(format!("cannot open '{name}'"), &e)),
    }
}

/// Changes properties, and moves mounts along.
fn change_mounted(target: &Target, changes: &[(String, PropChange)], what: &str) -> Outcome {
    if target.types != Types::FILESYSTEM {
        return change(target, changes, what);
    }
    let (pool, name) = (&target.pool, target.name.as_str());
    let mut all = Vec::new();
    for (property, value) in changes {
        let moves = match (property.as_str(), value) {
            ("mountpoint", _) => Change::Mountpoint,
            ("canmount", PropChange::Set(PropValue::Number(0)))
                if mounting::find(pool, name).is_some() =>
            {
                Change::Canmount
            }
            _ => continue,
        };
        let moved = Moved::of(pool, name, moves);
        let mut moved = moved.map_err(|e| Fail::of(what, &e))?;
        moved.take_down()?;
        all.push(moved);
    }
    let outcome = change(target, changes, what);
    all.iter_mut().for_each(Moved::put_back);
    outcome?;
    for (property, _) in changes {
        mounting::refresh(pool.pools(), name, property)?;
    }
    Ok(())
}

/// `zfs inherit`.
pub(super) fn inherit(session: &Session, parsed: &Parsed) -> Outcome {
    let (property, names) = match &parsed.operands[..] {
        [] => return Err(Fail::usage("missing property argument")),
        [_] => return Err(Fail::usage("missing dataset argument")),
        [property, names @ ..] => (property.as_str(), names),
    };
    let (recursive, reverts) = (parsed.has('r'), parsed.has('S'));
    let property = inheritable(property, reverts)?;
    let action = if reverts {
        PropChange::Revert
    } else {
        PropChange::Inherit
    };
    for_each(names, |name| {
        let target = open(session, name, Types::DATASET)?;
        let targets = if recursive && target.is_head() {
            target
                .with_descendants()
                .map_err(|e| Fail::of(format!("cannot open '{name}'"), &e))?
        } else {
            vec![target]
        };
        for_each(&targets, |target| {
            if TableKind::Dataset
                .lookup(&property)
                .is_some_and(|d| !d.types.meets(target.types))
            {
                return if recursive {
                    Ok(())
                } else {
                    Err(does_not_apply(target, &property))
                };
            }
            let what = format!("cannot inherit {property} for '{}'", target.name);
            if property == "mlslabel" {
                // Only systems with security labels may change it.
                return Err(Fail::failed(format!("{what}: permission denied")));
            }
            change_mounted(target, &[(property.clone(), action.clone())], &what)
        })
    })
}

fn does_not_apply(target: &Target, property: &str) -> Fail {
    let name = &target.name;
    let text = format!(
        "cannot inherit {property} for '{name}': property does not apply to datasets of this type"
    );
    Fail::failed(text)
}

/// Checks that a property can be inherited, or reverted to its received value; returns its full name.
fn inheritable(property: &str, reverts: bool) -> Outcome<String> {
    let Some(desc) = TableKind::Dataset.lookup(property) else {
        if is_user_property(property) {
            return Ok(property.to_owned());
        }
        return Err(Fail::usage(format!("invalid property '{property}'")));
    };
    let name = desc.name;
    if desc.is_readonly() {
        return Err(Fail::failed(format!("{property} property is read-only")));
    }
    if desc.edit == Edit::Default && !reverts {
        let mut text = format!("'{property}' property cannot be inherited");
        if ["quota", "reservation", "refquota", "refreservation"].contains(&name) {
            text += &format!(
                "\nuse 'zfs set {property}=none' to clear\nuse 'zfs inherit -S {property}' to \
                 revert to received value"
            );
        }
        return Err(Fail::failed(text));
    }
    if reverts && ["volsize", "version"].contains(&name) {
        let text = format!("'{property}' property cannot be reverted to a received value");
        return Err(Fail::failed(text));
    }
    Ok(name.to_owned())
}
