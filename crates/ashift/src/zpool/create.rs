//! `zpool create`.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_create`), zpool_vdev.c, lib/libzfs/libzfs_pool.c
//! (`zpool_create`).

use std::collections::BTreeMap;

use admin::getopt::Parsed;
use admin::name::check_pool_name;
use admin::number::parse_number;
use admin::prop::{
    DatasetContext, PoolContext, TableKind, Types, is_feature_property, is_user_property,
    is_userspace_property, owner_property, parse_dataset_assignment, parse_pool_assignment,
    split_assignment,
};
use admin::vdev_spec::{
    self, LeafFacts, VdevSpec, check_has_normal, check_replication, override_message,
    parse_vdev_spec,
};
use dsl::Encrypted;
use geom::disk::OpenMode;
use phys::PropValue;
use phys::feature::{self, ALLOCATION_CLASSES, DRAID, Feature, Release, Support};
use phys::label::{ASHIFT_MAX, ASHIFT_MIN, SPA_MINDEVSIZE};
use phys::owner::{OwnerKind, is_project};
use service::{Compatibility, Facts, PoolChange, PoolDevice, RootFilesystem, Session};
use spa::NewPool;
use vdev::{AuxSpec, Grouping, TopSpec};
use zio::AllocClass;
use zpl::{NameRules, OwnerLimit};

use super::devices::{Device, Purpose, TYPE, objection, tells_disks};
use super::props::pool_change;
use super::{Fail, Outcome};
use crate::failure::SAME_DEVICE;
use crate::keys::{Choice, is_of_key};
use crate::mounting::{self, How};
use crate::name_rules::{self, is_of_objset};
use crate::quota;

/// `zpool create`. With `-n`, everything is checked, and nothing is made.
pub(super) fn run(session: &Session, args: &Parsed) -> Outcome {
    check_option_names(args)?;
    let Some((pool, words)) = args.operands.split_first() else {
        return Err(Fail::Usage("missing pool name argument".into()));
    };
    if words.is_empty() {
        return Err(Fail::Usage("missing vdev specification".into()));
    }
    // What it is called until it is exported.
    let name = args.value('t').unwrap_or(pool);
    if name != pool && name.contains('/') {
        return Err(Fail::Failed(format!(
            "cannot create '{name}': invalid character '/' in temporary name\nuse 'zfs create' to \
             create a dataset"
        )));
    }
    if pool.contains('/') {
        return Err(Fail::Failed(format!(
            "cannot create '{pool}': invalid character '/' in pool name\nuse 'zfs create' to \
             create a dataset"
        )));
    }
    let spec = parse_vdev_spec(words)?;
    check_ashift(args)?;
    let (tops, aux) = resolve(&spec, tells_disks(args)?)?;
    check_devices(session, pool, &spec, (&tops, &aux), args.has('f'))?;
    check_places(args)?;
    let (mut wanted, facts, encryption) = read_options(pool, args, &needed_features(&spec))?;
    let limits = owner_limits(pool, args, &wanted)?;
    wanted.name_on_disk = (name != pool).then(|| pool.clone());
    for each in [pool, name] {
        check_pool_name(each, true).map_err(|error| {
            format!("cannot create '{each}': {error}\npool name may have been omitted")
        })?;
    }
    if session.pools().is_imported(name)? {
        return Err(already_exists(pool));
    }
    check_sizes(pool, (&tops, &aux))?;
    check_mountpoint(session, name, facts.altroot.as_deref(), &wanted)?;
    let typed = args.values('O').filter_map(split_assignment);
    let names = name_rules::of_new(typed, NameRules::default());
    let names = names.map_err(|why| format!("cannot create '{name}': {why}"))?;
    if args.has('n') {
        print!("{}", vdev_spec::layout(pool, &spec, &shown_name));
        return Ok(());
    }
    let tops: Result<Vec<_>, Fail> = tops.iter().map(|top| top.try_map(pool_device)).collect();
    let aux = aux.try_map(pool_device)?;
    wanted.fs_props.extend(encryption.stored());
    if let Encrypted::Root(root) = encryption.ask(session.pools(), name)? {
        wanted.encryption = Some(root);
    }
    let root = RootFilesystem { names, limits };
    session.create(name, &tops?, &aux, &facts, wanted, &root)?;
    if session.pools().can_mount() {
        let open = session.open_as_imported(name)?;
        mounting::mount(&open, name, &How::default())?;
    }
    Ok(())
}

/// Checks the directory in which the root of a new pool would be mounted.
fn check_mountpoint(
    session: &Session,
    pool: &str,
    altroot: Option<&str>,
    wanted: &NewPool,
) -> Outcome {
    let given = wanted
        .fs_props
        .iter()
        .find(|(name, _)| name == "mountpoint");
    let directory = match given.and_then(|(_, value)| value.as_text()) {
        Some(path) if path.starts_with('/') => service::place(altroot, path, ""),
        Some(_) => return Ok(()),
        None => service::place(altroot, "/", pool),
    };
    match session.pools().can_mount() {
        true => mounting::check_directory(&directory),
        false => Ok(()),
    }
}

/// Checks that each property of `-o` and `-O` exists and is given once.
#[doc(alias = "add_prop_list")]
fn check_option_names(args: &Parsed) -> Result<(), Fail> {
    let text = |text: String| Err(Fail::Failed(text));
    for (letter, kind) in [('o', TableKind::Pool), ('O', TableKind::Dataset)] {
        let mut seen = BTreeMap::new();
        for assignment in args.values(letter) {
            let Some((name, value)) = split_assignment(assignment) else {
                return text(format!("missing '=' for -{letter} option"));
            };
            let desc = kind.lookup(name);
            let is_known = match kind {
                TableKind::Dataset => {
                    desc.is_some_and(|d| d.types.meets(Types::FILESYSTEM))
                        || is_user_property(name)
                        || is_userspace_property(name)
                }
                _ => {
                    desc.is_some()
                        || name == TYPE
                        || is_feature_property(name)
                        || TableKind::Vdev.lookup(name).is_some()
                }
            };
            if !is_known && kind == TableKind::Dataset {
                return text(format!(
                    "property '{name}' is not a valid filesystem property"
                ));
            }
            if !is_known {
                let wrong = "is not a valid pool or vdev property";
                return text(format!("property '{name}' {wrong}"));
            }
            let own = desc.map_or(name, |d| d.name);
            check_version(own, value, &seen)?;
            let is_repeatable = own == "cachefile" || own == "mountpoint";
            if seen.insert(own, value).is_some() && !is_repeatable {
                return text(format!("property '{name}' specified multiple times"));
            }
        }
    }
    Ok(())
}

/// Checks what cannot be given beside `version`; `seen`: the properties before this one.
fn check_version(name: &str, value: &str, seen: &BTreeMap<&str, &str>) -> Outcome {
    let (is_version, has_version) = (name == "version", seen.contains_key("version"));
    let has_feature = seen.keys().any(|name| is_feature_property(name));
    if is_feature_property(name) && has_version || is_version && has_feature {
        let text = "'feature@' and 'version' properties cannot be specified together";
        return Err(Fail::Failed(text.to_owned()));
    }
    let sets = match name {
        "compatibility" if has_version => Some(value),
        "version" => seen.get("compatibility").copied(),
        _ => None,
    };
    if sets.is_some_and(|sets| sets != "legacy") {
        let text =
            "when 'version' is specified, the 'compatibility' feature may only be set to 'legacy'";
        return Err(Fail::Failed(text.to_owned()));
    }
    Ok(())
}

/// Checks `-o ashift`, which OpenZFS reads with each device.
#[doc(alias = "make_leaf_vdev")]
fn check_ashift(args: &Parsed) -> Result<(), Fail> {
    let assignments = args.values('o').filter_map(split_assignment);
    for (_, value) in assignments.filter(|(name, _)| *name == "ashift") {
        let Ok(ashift) = parse_number(value) else {
            return Err(Fail::Failed("ashift must be a number.".to_owned()));
        };
        if ashift != 0 && !(ASHIFT_MIN.into()..=ASHIFT_MAX.into()).contains(&ashift) {
            return Err(Fail::Failed(format!(
                "invalid 'ashift={ashift}' property: only values between {ASHIFT_MIN} and \
                 {ASHIFT_MAX} are allowed."
            )));
        }
    }
    Ok(())
}

/// Checks that the devices are free, and that all vdevs have the same redundancy.
#[doc(alias = "make_root_vdev")]
fn check_devices(
    session: &Session,
    pool: &str,
    spec: &VdevSpec,
    devices: Devices<'_>,
    is_forced: bool,
) -> Result<(), Fail> {
    let mut wrong = objections(session, devices, is_forced)?;
    if wrong.is_empty() && !is_forced {
        wrong = check_has_normal(spec).err().unwrap_or_default();
    }
    if wrong.is_empty() && !is_forced {
        let facts = |leaf: &str| leaf_facts(leaf);
        wrong = check_replication(spec, None, &facts)
            .err()
            .unwrap_or_default();
    }
    if !wrong.is_empty() {
        return Err(Fail::Failed(override_message(&wrong, is_forced)));
    }
    check_twice(&format!("cannot create '{pool}'"), devices)
}

/// Checks where the file systems are to be mounted: `-R` and `-m`.
fn check_places(args: &Parsed) -> Result<(), Fail> {
    let assignments = |letter, wanted: &'static str| {
        let all = args.values(letter).filter_map(split_assignment);
        all.filter(move |(name, _)| *name == wanted)
            .map(|(_, value)| value)
            .last()
    };
    if let Some(root) = args.value('R').or_else(|| assignments('o', "altroot"))
        && !root.starts_with('/')
    {
        return Err(Fail::Failed(format!(
            "invalid alternate root '{root}': must be an absolute path"
        )));
    }
    if let Some(place) = args.value('m').or_else(|| assignments('O', "mountpoint"))
        && !(place.starts_with('/') || place == "none" || place == "legacy")
    {
        return Err(Fail::Failed(format!(
            "invalid mountpoint '{place}': must be an absolute path, 'legacy', or 'none'"
        )));
    }
    Ok(())
}

fn check_sizes(pool: &str, devices: Devices<'_>) -> Result<(), Fail> {
    for device in all(devices) {
        if device.open(OpenMode::Inspect)?.mediasize() < SPA_MINDEVSIZE {
            let text = "one or more devices is less than the minimum size (64M)";
            return Err(Fail::Failed(format!("cannot create '{pool}': {text}")));
        }
    }
    Ok(())
}

/// A device as `-n` shows it.
pub(super) fn shown_name(leaf: &str) -> String {
    Device::find(leaf).map_or_else(
        |_| leaf.to_owned(),
        |device| super::devices::short_name(&device.name(), !device.is_file).to_owned(),
    )
}

fn already_exists(pool: &str) -> Fail {
    Fail::Failed(format!("cannot create '{pool}': pool already exists"))
}

/// The devices of a specification: those of each top-level vdev, and the others.
pub(super) type Devices<'d> = (&'d [TopSpec<Device>], &'d AuxSpec<Device>);

/// All of them.
fn all<'d>((tops, aux): Devices<'d>) -> impl Iterator<Item = &'d Device> {
    let below = tops.iter().flat_map(|top| &top.devices);
    below.chain(aux.devices())
}

/// The devices that a specification names.
pub(super) fn resolve(
    spec: &VdevSpec,
    is_told_disk: bool,
) -> Result<(Vec<TopSpec<Device>>, AuxSpec<Device>), Fail> {
    let find = |name: &String| Device::find(name).map(|device| device.told_disk(is_told_disk));
    let tops: Result<_, _> = spec.tops.iter().map(|top| top.try_map(find)).collect();
    let tops = tops?;
    let aux = AuxSpec {
        spares: spec.spares.iter().map(find).collect::<Result<_, _>>()?,
        caches: spec.cache.iter().map(find).collect::<Result<_, _>>()?,
    };
    Ok((tops, aux))
}

/// A device as the pool service takes it.
pub(super) fn pool_device(device: &Device) -> Result<PoolDevice, Fail> {
    Ok(PoolDevice {
        path: device.name(),
        kind: device.kind(),
    })
}

/// The reasons not to use these devices.
pub(super) fn objections(
    session: &Session,
    (tops, aux): Devices<'_>,
    is_forced: bool,
) -> Result<Vec<String>, Fail> {
    let below = tops.iter().flat_map(|top| &top.devices);
    let below = below.chain(&aux.caches);
    let vdevs = below.map(|device| (device, Purpose::Vdev));
    let spares = aux.spares.iter().map(|device| (device, Purpose::Spare));
    let mut wrong = Vec::new();
    for (device, purpose) in vdevs.chain(spares) {
        let found = objection(session, device, purpose)?;
        wrong.extend(found.filter(|o| !o.can_force || !is_forced).map(|o| o.text));
    }
    Ok(wrong)
}

/// Checks that no device is named twice; `what` is what cannot be done then.
pub(super) fn check_twice(what: &str, devices: Devices<'_>) -> Result<(), Fail> {
    let mut seen = std::collections::BTreeSet::new();
    for device in all(devices) {
        let real = std::fs::canonicalize(&device.path).unwrap_or_else(|_| device.path.clone());
        if !seen.insert(real) {
            return Err(Fail::Failed(format!("{what}: {SAME_DEVICE}")));
        }
    }
    Ok(())
}

pub(super) fn leaf_facts(leaf: &str) -> LeafFacts {
    let Ok(device) = Device::find(leaf) else {
        return LeafFacts {
            is_file: false,
            size: None,
        };
    };
    let size = device.open(OpenMode::Inspect).ok().map(|p| p.mediasize());
    LeafFacts {
        is_file: device.is_file,
        size,
    }
}

/// The features without which these vdevs cannot be made.
fn needed_features(spec: &VdevSpec) -> Vec<&'static str> {
    let is_special =
        |top: &TopSpec<_>| matches!(top.class, AllocClass::Special | AllocClass::Dedup);
    let is_draid = |top: &TopSpec<_>| matches!(top.grouping, Grouping::Draid { .. });
    let special = spec.tops.iter().any(is_special);
    let draid = spec.tops.iter().any(is_draid);
    let special = special.then_some(ALLOCATION_CLASSES);
    special.into_iter().chain(draid.then_some(DRAID)).collect()
}

/// The properties of the new pool, what is to be remembered of it, and how its root is encrypted; it has to have the
/// features `needed`.
fn read_options(
    pool: &str,
    args: &Parsed,
    needed: &[&str],
) -> Result<(NewPool, Facts, Choice), Fail> {
    let what = format!("cannot create '{pool}'");
    let context = PoolContext {
        is_new: true,
        is_import: false,
    };
    let mut wanted = NewPool::default();
    let mut altroot = args.value('R').map(str::to_owned);
    // A temporary name is in no file that outlives it.
    let mut cachefile = args.value('t').map(|_| "none".to_owned());
    let mut compatibility = None;
    let (mut enabled, mut disabled) = (Vec::new(), Vec::new());
    let assignments = args.values('o').filter_map(split_assignment);
    for (name, value) in assignments.filter(|(name, _)| *name != TYPE) {
        let assignment = parse_pool_assignment(name, value, &context);
        let assignment = assignment.map_err(|e| format!("{what}: {e}"))?;
        let is_off = assignment.1.as_number() == Some(0);
        match (assignment.0.as_str(), &assignment.1) {
            ("altroot", PropValue::Text(root)) => altroot = Some(root.clone()),
            ("version", PropValue::Number(5000)) => {}
            ("version", PropValue::Number(version)) => {
                let text = format!("{what}: pools of version {version} are not supported yet");
                return Err(Fail::Failed(text));
            }
            _ => match pool_change(assignment, &what)? {
                PoolChange::Feature(feature) if is_off => disabled.push(feature),
                PoolChange::Feature(feature) if feature.support == Support::Kept => {
                    enabled.push(feature);
                }
                PoolChange::Feature(feature) => {
                    let name = feature.name;
                    let text = format!("{what}: feature '{name}' is not supported yet");
                    return Err(Fail::Failed(text));
                }
                PoolChange::Cachefile(path) => cachefile = Some(path),
                PoolChange::Comment(comment) => wanted.comment = Some(comment),
                PoolChange::Compatibility(sets) => compatibility = Some(sets),
                PoolChange::Bootfs(_) => unreachable!("refused at creation"),
                PoolChange::Other(name, value) => wanted.props.push((name, value)),
            },
        }
    }
    let ashift = wanted.props.iter().find(|(name, _)| name == "ashift");
    wanted.ashift = ashift.and_then(|(_, n)| n.as_number()).unwrap_or(0) as u32;
    wanted.features = features(args.has('d'), compatibility.as_ref(), &enabled, &disabled);
    wanted.compatibility = compatibility.map(|sets| sets.value().to_owned());
    let has = |guid: &&str| wanted.features.iter().any(|feature| feature.guid == *guid);
    if !needed.iter().all(has) {
        let text = "operation not supported on this type of pool";
        return Err(Fail::Failed(format!("{what}: {text}")));
    }
    let has_special = needed.contains(&ALLOCATION_CLASSES);
    let encryption = read_fs_props(pool, args, has_special, &mut wanted)?;
    let facts = Facts {
        cachefile: Facts::cachefile_of(cachefile.as_deref(), altroot.as_deref()),
        altroot,
        ..Facts::default()
    };
    Ok((wanted, facts, encryption))
}

/// Adds the properties of the root; returns how it is encrypted.
fn read_fs_props(
    pool: &str,
    args: &Parsed,
    has_special: bool,
    wanted: &mut NewPool,
) -> Result<Choice, Fail> {
    let is_enabled = wanted
        .features
        .iter()
        .any(|f| f.guid == feature::ENCRYPTION);
    let context = DatasetContext::creating(Types::FILESYSTEM);
    let mut add = |name: &str, value: &str| {
        if name == "special_small_blocks" && !has_special {
            let text = "special_small_blocks property requires a special vdev";
            return Err(Fail::Failed(format!("cannot create '{pool}': {text}")));
        }
        let parsed = parse_dataset_assignment(name, value, &context)
            .map_err(|e| format!("cannot create '{pool}': {e}"))?;
        wanted.fs_props.retain(|(known, _)| *known != parsed.0);
        if !is_of_objset(&parsed.0) {
            wanted.fs_props.push(parsed);
        }
        Ok::<(), Fail>(())
    };
    let mut of_key = Vec::new();
    for (name, value) in args.values('O').filter_map(split_assignment) {
        match is_of_key(name) {
            true => of_key.push((name.to_owned(), value.to_owned())),
            false if owner_property(name).is_some() => {}
            false => add(name, value)?,
        }
    }
    if let Some(mountpoint) = args.value('m') {
        add("mountpoint", mountpoint)?;
    }
    let choice = Choice::of(&of_key, None, is_enabled);
    choice.map_err(|why| Fail::Failed(format!("cannot create '{pool}': {why}")))
}

/// The limits of owners in the file system of the new pool.
fn owner_limits(pool: &str, args: &Parsed, wanted: &NewPool) -> Result<Vec<OwnerLimit>, Fail> {
    let cannot =
        |why: &dyn std::fmt::Display| Fail::Failed(format!("cannot create '{pool}': {why}"));
    let assignments = args.values('O').filter_map(split_assignment);
    let limits = assignments.filter_map(|(name, value)| quota::parse_limit(name, value));
    let limits: Result<Vec<OwnerLimit>, _> = limits.collect();
    let limits = limits.map_err(|e| cannot(&e))?;
    let has_projects = wanted
        .features
        .iter()
        .any(|f| f.guid == feature::PROJECT_QUOTA);
    for limit in limits
        .iter()
        .filter(|limit| limit.of.kind == OwnerKind::Project)
    {
        if !has_projects {
            return Err(cannot(&"operation not supported on this type of pool"));
        }
        if !is_project(limit.id) {
            return Err(cannot(&"invalid property value"));
        }
    }
    Ok(limits)
}

/// The features of the new pool.
fn features(
    none: bool,
    compatibility: Option<&Compatibility>,
    enabled: &[&'static Feature],
    disabled: &[&'static Feature],
) -> Vec<&'static Feature> {
    let is_allowed = |f: &Feature| compatibility.is_none_or(|sets| sets.allows(f));
    let is_off = |f: &Feature| disabled.iter().any(|d| d.guid == f.guid);
    // Features newer than 2.3 are those that the user names, one by one or by sets.
    let by_default = match compatibility {
        Some(sets) if !sets.value().is_empty() && sets.value() != "off" => Release::V2_4,
        _ => Release::V2_3,
    };
    let mut list: Vec<&'static Feature> = feature::kept_of(by_default)
        .filter(|f| !none && is_allowed(f) && !is_off(f))
        .collect();
    for feature in enabled {
        if !list.iter().any(|f| f.guid == feature.guid) {
            list.push(feature);
        }
    }
    list.retain(|f| {
        !f.depends
            .iter()
            .any(|name| disabled.iter().any(|d| d.name == *name))
    });
    list
}
