//! `zpool get`, `zpool set`.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_get`, `zpool_do_set`), lib/libzfs/libzfs_pool.c
//! (`zpool_set_prop`).

use std::fmt::Display;

use admin::getopt::Parsed;
use admin::listing::{GetField, GetRequest, Item, Prop, get as print_get, parse_get_fields};
use admin::pool::{PoolStatus, pools_json};
use admin::prop::{
    PoolContext, PropName, Source, TableKind, is_user_property, parse_list, parse_pool_assignment,
    split_assignment,
};
use phys::PropValue;
use phys::feature;
use service::{Access, Compatibility, PoolChange, Session};

use super::list::{pool_names, repeated_code, styles};
use super::{Fail, Outcome, change_error, check_json_options, vdev_props};

/// Exit code when the pool to set a property of does not exist: the number of the error.
pub(super) const EINVAL: u8 = 22;

/// `zpool get`.
pub(super) fn get(session: &Session, args: &Parsed) -> Outcome {
    let Some((names, given)) = args.operands.split_first() else {
        return Err(Fail::Usage("missing property argument".into()));
    };
    let fields = args
        .value('o')
        .map(pool_fields)
        .transpose()
        .map_err(Fail::Usage)?;
    check_json_options(args)?;
    let (style, _, json) = styles(args);
    if let Some((pool, vdevs)) = check_pools(session, given)? {
        return vdev_props::get(session, args, names, pool, vdevs, fields);
    }
    let mut properties = parse_list(TableKind::Pool, names).map_err(Fail::Usage)?;
    let mut pools: Vec<(Item, PoolStatus)> = Vec::new();
    for name in pool_names(session, given)? {
        pools.push(session.listed(&name)?);
    }
    if let Some(names) = &mut properties {
        complete(names, &mut pools);
    }
    let mut request = GetRequest::new(properties);
    if let Some(fields) = fields {
        request.fields = fields;
    }
    if args.has('j') {
        let refs: Vec<(Item, &PoolStatus)> = pools.iter().map(|(i, s)| (i.clone(), s)).collect();
        let text = pools_json("zpool get", &style, json, &request, &refs, None);
        print!("{text}");
        return Fail::exit(repeated_code(given));
    }
    let items: Vec<Item> = pools.into_iter().map(|(item, _)| item).collect();
    print!("{}", print_get(&style, &request, &items));
    Fail::exit(repeated_code(given))
}

/// User properties that a pool does not have get their default; unsupported features that no pool has are
/// left out.
#[doc(alias = "get_callback")]
fn complete(names: &mut Vec<PropName>, pools: &mut [(Item, PoolStatus)]) {
    let has = |name: &str| pools.iter().any(|(item, _)| item.get(name).is_some());
    names.retain(|name| !name.as_str().starts_with("unsupported@") || has(name.as_str()));
    for (item, _) in pools {
        for name in names.iter().map(PropName::as_str) {
            if is_user_property(name) && item.get(name).is_none() {
                let none = PropValue::Text("-".to_owned());
                item.props.push(Prop::new(name, none, Source::Default));
            }
        }
    }
}

/// The columns of `-o`: those of `zfs get`, without RECEIVED.
fn pool_fields(text: &str) -> Result<Vec<GetField>, String> {
    let fields = parse_get_fields(text)?;
    if text == "all" {
        return Ok(GetField::DEFAULT.to_vec());
    }
    if fields.contains(&GetField::Received) {
        return Err("invalid column name 'received'".to_owned());
    }
    Ok(fields)
}

/// Checks that all operands are pools, or else the first one is: the others are its vdevs then.
fn check_pools<'g>(
    session: &Session,
    given: &'g [String],
) -> Result<Option<(&'g str, &'g [String])>, Fail> {
    let is_pool = |name: &String| session.pools().is_imported(name);
    let Some((first, rest)) = given.split_first() else {
        return Ok(None);
    };
    if !is_pool(first)? {
        let text = format!("Cannot get properties of {first}: no such pool available.");
        return Err(Fail::Failed(text));
    }
    for name in rest {
        if !is_pool(name)? {
            return Ok(Some((first, rest)));
        }
    }
    Ok(None)
}

/// `zpool set`.
pub(super) fn set(session: &Session, args: &Parsed) -> Outcome {
    let (assignment, pool, vdev) = match args.operands.as_slice() {
        [] => return Err(Fail::Usage("missing property=value argument".into())),
        [_] => return Err(Fail::Usage("missing pool name".into())),
        [assignment, pool] => (assignment, pool, None),
        [assignment, pool, vdev] => (assignment, pool, Some(vdev)),
        _ => return Err(Fail::Usage("too many pool names".into())),
    };
    let Some((name, value)) = split_assignment(assignment) else {
        return Err(Fail::Usage(
            "missing value in property=value argument".into(),
        ));
    };
    let what = format!("cannot set property for '{pool}'");
    if !session.pools().is_imported(pool)? {
        let text = format!("cannot open '{pool}': is not a pool");
        return Err(Fail::Exits(EINVAL, text));
    }
    if let Some(vdev) = vdev {
        return vdev_props::set(session, (name, value), pool, vdev);
    }
    let open = session
        .open(pool, Access::Write)
        .map_err(|e| change_error(pool, &what, &e))?;
    let failed = |e: &dyn Display| Fail::Failed(format!("{what}: {e}"));
    let assignment = parse_pool_assignment(name, value, &PoolContext::default());
    let change = pool_change(assignment.map_err(|e| failed(&e))?, &what)?;
    let disallowed = open.change_property(&change).map_err(|e| failed(&e))?;
    if !disallowed.is_empty() {
        eprintln!(
            "Warning: one or more features already enabled on pool '{pool}'\nare not present in this \
             compatibility set."
        );
    }
    session.finish_change(&open, true)?;
    Ok(())
}

/// What a checked assignment changes; `what` is the operation that fails if that cannot be changed.
pub(super) fn pool_change(
    (name, value): (String, PropValue),
    what: &str,
) -> Result<PoolChange, Fail> {
    let failed = |text: String| Fail::Failed(format!("{what}: {text}"));
    if let Some(short) = name.strip_prefix("feature@") {
        let feature = feature::by_name(short);
        return feature
            .map(PoolChange::Feature)
            .ok_or_else(|| failed(format!("feature '{short}' unsupported by kernel")));
    }
    Ok(match (name.as_str(), value) {
        ("comment", PropValue::Text(text)) => PoolChange::Comment(text),
        ("compatibility", PropValue::Text(sets)) => {
            let sets = Compatibility::load(&sets);
            PoolChange::Compatibility(sets.map_err(|e| format!("Error: {e}"))?)
        }
        ("bootfs", PropValue::Text(dataset)) => PoolChange::Bootfs(dataset),
        ("cachefile", PropValue::Text(path)) => {
            check_cachefile(&path).map_err(failed)?;
            PoolChange::Cachefile(path)
        }
        // A pool of feature flags has no other version.
        ("version", _) => {
            let text = "invalid argument for this pool operation";
            return Err(failed(text.to_owned()));
        }
        (_, value) => PoolChange::Other(name, value),
    })
}

/// Checks that the folder of a cachefile is there.
#[doc(alias = "zpool_valid_proplist")]
fn check_cachefile(path: &str) -> Result<(), String> {
    match path.rsplit_once('/') {
        Some((folder, _)) if !folder.is_empty() && !std::path::Path::new(folder).is_dir() => {
            Err(format!("'{folder}' is not a valid directory"))
        }
        _ => Ok(()),
    }
}
