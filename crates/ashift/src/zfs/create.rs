//! `zfs create` and `zfs clone`.
//!
//! Source: OpenZFS lib/libzfs/libzfs_dataset.c (`zfs_create`, `zfs_clone`, `check_parents`).

use std::sync::Arc;

use admin::getopt::Parsed;
use admin::name::{NameKind, check_name, check_nesting, parent_of, pool_of};
use admin::number::parse_number;
use admin::prop::{DatasetContext, Types};
use base::ErrorKind;
use dsl::{Encrypted, NewDataset, ObjsetInit, PropChange};
use phys::ObjsetType;
use phys::dsl::DS_FLAG_CI_DATASET;
use phys::feature;
use phys::znode::case;
use service::{DatasetsWriter, OpenPool, Session};
use spa::FeatureState;
use zpl::{NameRules, OwnerLimit};

use super::fail::{Fail, Outcome, words};
use super::key;
use super::set::{Checked, Stored, Typed, check, limit_owner, split_assignments};
use super::target::{exists, find, open};
use crate::keys::{self, Choice};
use crate::mounting::{self, How};
use crate::name_rules;

/// Fills the objset of a new file system; its root directory belongs to the current user.
fn init_filesystem(pool: &OpenPool, names: NameRules) -> ObjsetInit {
    let new = zpl::NewFilesystem {
        uid: u64::from(rustix::process::getuid().as_raw()),
        gid: u64::from(rustix::process::getgid().as_raw()),
        names,
    };
    let counts_objects = pool.feature(feature::USEROBJ_ACCOUNTING) >= FeatureState::Enabled;
    zpl::mount::init(new, counts_objects)
}

/// Checks the name and parent of a head to be created; returns its pool. The parent may be missing if
/// `makes_ancestors`.
#[doc(alias = "check_parents")]
pub(super) fn place(
    session: &Session,
    name: &str,
    makes_ancestors: bool,
) -> Outcome<Arc<OpenPool>> {
    let cannot = |why: &str| Fail::failed(format!("cannot create '{name}': {why}"));
    check_name(name, NameKind::Dataset, true).map_err(|e| cannot(&e.to_string()))?;
    check_nesting(name).map_err(|_| cannot("maximum name nesting depth exceeded"))?;
    let parent = parent_of(name).ok_or_else(|| cannot("missing dataset name"))?;
    let pool = session
        .find_pool(pool_of(name))
        .map_err(|e| cannot(&e.to_string()))?;
    let pool = pool.ok_or_else(|| cannot(&format!("no such pool '{}'", pool_of(name))))?;
    let mut above = Some(parent);
    while let Some(parent) = above {
        match find(&pool, parent) {
            Ok(found) if found.types == Types::FILESYSTEM => break,
            Ok(_) => return Err(cannot("parent is not a filesystem")),
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(cannot(&words(&e))),
            Err(_) if !makes_ancestors => return Err(cannot("parent does not exist")),
            Err(_) => above = parent_of(parent),
        }
    }
    Ok(pool)
}

/// Creates the missing file systems above `name`.
#[doc(alias = "zfs_create_ancestors")]
pub(super) fn make_ancestors(pool: &OpenPool, name: &str) -> Outcome {
    let slashes: Vec<usize> = name.match_indices('/').map(|(at, _)| at).collect();
    for end in slashes.into_iter().skip(1) {
        let ancestor = &name[..end];
        match pool.datasets().find(ancestor) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let names = names_above(pool, ancestor)?;
                make(
                    pool,
                    ancestor,
                    Checked::default(),
                    Encrypted::AsAbove,
                    names,
                )?;
                if pool.pools().can_mount() {
                    mounting::mount(pool, ancestor, &How::default())?;
                }
            }
            Err(e) => return Err(Fail::of(format!("cannot create '{ancestor}'"), &e)),
        }
    }
    Ok(())
}

/// Properties that are checked against the space in use, and so are set after the dataset exists.
fn is_limit(name: &str) -> bool {
    ["quota", "refquota", "reservation", "refreservation"].contains(&name)
}

/// The rules for names of the file system above a new one.
fn names_above(pool: &OpenPool, name: &str) -> Outcome<NameRules> {
    let parent = parent_of(name).unwrap_or_default();
    let found = pool
        .datasets()
        .find(parent)
        .and_then(|above| above.objset());
    let rules = found.and_then(|objset| name_rules::of(&objset));
    rules.map_err(|e| Fail::of(format!("cannot create '{name}'"), &e))
}

fn make(
    pool: &OpenPool,
    name: &str,
    checked: Checked,
    how: Encrypted,
    names: NameRules,
) -> Outcome {
    let (limits, props): (Stored, Stored) =
        checked.stored.into_iter().partition(|(n, _)| is_limit(n));
    let new = NewDataset {
        name: name.to_owned(),
        type_: ObjsetType::Zfs,
        flags: match names.casesensitivity {
            case::INSENSITIVE => DS_FLAG_CI_DATASET,
            _ => 0,
        },
        props,
        init: init_filesystem(pool, names),
    };
    let made = pool.change_datasets(|datasets| {
        match how {
            Encrypted::AsAbove => datasets.create(new)?,
            how => datasets.create_encrypted(new, how)?,
        }
        set_limits(datasets, name, limits)
    });
    made.map_err(|e| Fail::of(format!("cannot create '{name}'"), &e))?;
    limit_owners(pool, name, &checked.limits)
}

/// Limits owners in a new file system; destroys it again if that fails.
fn limit_owners(pool: &OpenPool, name: &str, limits: &[OwnerLimit]) -> Outcome {
    let upgrade = "pool must be upgraded to set this property or value";
    for limit in limits {
        if let Err(why) = limit_owner(pool, name, limit, upgrade) {
            // Like OpenZFS, reports the first error, even if the dataset cannot be destroyed.
            let _ = pool.change_datasets(|datasets| datasets.destroy(name));
            return Err(Fail::failed(format!("cannot create '{name}': {why}")));
        }
    }
    Ok(())
}

/// Sets quotas and reservations of a new dataset; destroys it again if that fails.
fn set_limits(datasets: DatasetsWriter<'_>, name: &str, limits: Stored) -> base::Result<()> {
    if limits.is_empty() {
        return Ok(());
    }
    let changes = limits
        .into_iter()
        .map(|(name, value)| (name, PropChange::Set(value)));
    datasets
        .set_props(name, changes.collect())
        .inspect_err(|_| {
            // Like OpenZFS, reports the first error, even if the dataset cannot be destroyed.
            let _ = datasets.destroy(name);
        })
}

fn refuse_volume(parsed: &Parsed, name: &str) -> Outcome {
    let size = parsed.value('V').unwrap_or_default();
    parse_number(size).map_err(|e| Fail::failed(format!("bad volume size '{size}': {e}")))?;
    Err(Fail::failed(format!(
        "cannot create '{name}': volumes are not supported yet"
    )))
}

/// `zfs create`.
pub(super) fn create(session: &Session, parsed: &Parsed) -> Outcome {
    let typed = split_assignments(parsed.values('o'))?;
    let is_volume = parsed.value('V').is_some();
    if !is_volume && (parsed.has('s') || parsed.value('b').is_some()) {
        return Err(Fail::usage(
            "'-s' and '-b' can only be used when creating a volume",
        ));
    }
    let name = match &parsed.operands[..] {
        [] if is_volume => return Err(Fail::usage("missing volume argument")),
        [] => return Err(Fail::usage("missing filesystem argument")),
        [name] => name,
        _ => return Err(Fail::usage("too many arguments")),
    };
    if is_volume {
        return refuse_volume(parsed, name);
    }
    let (ancestors, dry, parseable) = (parsed.has('p'), parsed.has('n'), parsed.has('P'));
    let pool = place(session, name, ancestors)?;
    let what = format!("cannot create '{name}'");
    if exists(&pool, name).map_err(|e| Fail::of(&what, &e))? {
        // With -p it only has to exist.
        return match ancestors {
            true => Ok(()),
            false => Err(Fail::failed(format!("{what}: dataset already exists"))),
        };
    }
    let verb = if dry {
        format!("cannot verify '{name}'")
    } else {
        what
    };
    let context = DatasetContext::creating(Types::FILESYSTEM);
    let (choice, others) = key::split_new(&pool, parent_of(name), &typed, &verb)?;
    let mut checked = check(&others, &context, &pool, &verb)?;
    let words: Vec<_> = others
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect();
    let rules = name_rules::of_new(words.iter().copied(), NameRules::default());
    rules.map_err(|why| Fail::failed(format!("{verb}: {why}")))?;
    if parsed.has('v') || parseable {
        announce(name, &typed, ancestors, dry, parseable);
    }
    if dry {
        return Ok(());
    }
    unlock_above(&pool, name, &choice)?;
    if ancestors {
        make_ancestors(&pool, name)?;
    }
    checked.stored.extend(choice.stored());
    let names = name_rules::of_new(words, names_above(&pool, name)?);
    let names = names.map_err(|why| Fail::failed(format!("cannot create '{name}': {why}")))?;
    make(&pool, name, checked, choice.ask(pool.pools(), name)?, names)?;
    if !parsed.has('u') {
        mounting::mount_new(&pool, name);
    }
    Ok(())
}

/// Loads the key that what is to be created inherits, if no other command could have loaded it.
fn unlock_above(pool: &OpenPool, name: &str, choice: &Choice) -> Outcome {
    let mut above = parent_of(name);
    let mut inherits = choice.inherits();
    while let Some(parent) = above {
        match pool.is_unlocked(parent) {
            Ok(is_unlocked) if is_unlocked || !inherits || pool.is_kept() => return Ok(()),
            Ok(_) => return keys::unlock(pool, parent),
            // It will be created, too, and inherits.
            Err(_) => (above, inherits) = (parent_of(parent), true),
        }
    }
    Ok(())
}

fn announce(name: &str, props: &Typed, ancestors: bool, dry: bool, parseable: bool) {
    let would = if dry { "would " } else { "" };
    if parseable {
        if ancestors {
            println!("create_ancestors\t{name}");
        }
        println!("create\t{name}");
    } else {
        if ancestors {
            println!("{would}create ancestors of {name}");
        }
        println!("{would}create {name}");
    }
    for (property, value) in props {
        if parseable {
            println!("property\t{property}\t{value}");
        } else {
            println!("\t{property}={value}");
        }
    }
}

/// `zfs clone`.
pub(super) fn clone(session: &Session, parsed: &Parsed) -> Outcome {
    let typed = split_assignments(parsed.values('o'))?;
    let (origin, name) = match &parsed.operands[..] {
        [] => return Err(Fail::usage("missing source dataset argument")),
        [_] => return Err(Fail::usage("missing target dataset argument")),
        [origin, name] => (origin, name),
        _ => return Err(Fail::usage("too many arguments")),
    };
    let source = open(session, origin, Types::SNAPSHOT)?;
    let ancestors = parsed.has('p');
    let pool = place(session, name, ancestors)?;
    let what = format!("cannot create '{name}'");
    if exists(&pool, name).map_err(|e| Fail::of(&what, &e))? {
        return match ancestors {
            true => Ok(()),
            false => Err(Fail::failed(format!("{what}: dataset already exists"))),
        };
    }
    if pool_of(origin) != pool_of(name) {
        let text = format!("{what}: source and target pools differ");
        return Err(Fail::failed(text));
    }
    if typed.iter().any(|(name, _)| keys::is_of_key(name)) {
        let why = "Encryption properties must inherit from origin dataset.";
        return Err(Fail::failed(format!("{what}: {why}")));
    }
    let checked = check(
        &typed,
        &DatasetContext::creating(Types::FILESYSTEM),
        &source.pool,
        &what,
    )?;
    let (limits, props): (Stored, Stored) =
        checked.stored.into_iter().partition(|(n, _)| is_limit(n));
    if ancestors {
        make_ancestors(&pool, name)?;
    }
    let made = pool.change_datasets(|datasets| {
        datasets.clone_snapshot(name, origin, props)?;
        set_limits(datasets, name, limits)
    });
    made.map_err(|e| Fail::of(&what, &e))?;
    limit_owners(&pool, name, &checked.limits)?;
    mounting::mount_new(&pool, name);
    Ok(())
}
