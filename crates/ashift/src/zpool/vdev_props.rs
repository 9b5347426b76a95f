//! `zpool get` and `zpool set` of the properties of vdevs.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`get_callback_vdev`, `get_callback_vdev_cb`, `zpool_do_set`),
//! lib/libzfs/libzfs_pool.c (`zpool_get_vdev_prop`, `zpool_set_vdev_prop`, `vdev_expand_proplist`).

use admin::getopt::Parsed;
use admin::listing::{GetField, GetRequest, Item, Prop, get as print_get};
use admin::pool::{VdevStatus, vdevs_json};
use admin::prop::{
    PropName, Source, TableKind, all_properties, is_user_property, parse_list,
    parse_vdev_assignment,
};
use admin::usage::{Tool, usage_with};
use base::Guid;
use phys::PropValue;
use service::{Access, OpenPool, ROOT_NAME, Session, all_vdevs};

use super::device_state::{find_device, find_group};
use super::list::{name_style, styles};
use super::props::EINVAL;
use super::{Fail, Outcome, change_error, open_error};

/// All vdevs of a pool, in the place of their names.
const ALL: &str = "all-vdevs";
/// The root vdev, if it is the only one.
const ROOT: &str = "root";

/// A vdev that the user means, by the name that is shown for it.
struct Named<'v> {
    name: String,
    /// `None` for a hot spare or a cache device, which have no properties.
    vdev: Option<&'v VdevStatus>,
}

/// The vdevs that some words mean, or else the words that mean none.
#[doc(alias = "are_vdevs_in_pool")]
fn find<'v>(
    pool: &OpenPool,
    root: &'v VdevStatus,
    words: &[String],
) -> Result<Vec<Named<'v>>, Vec<String>> {
    let aux = [pool.cache_devices(), pool.spare_devices()].concat();
    if let [word] = words
        && word == ALL
    {
        let mut all: Vec<Named<'v>> = all_vdevs(root)
            .into_iter()
            .map(|vdev| Named {
                name: match std::ptr::eq(vdev, root) {
                    true => ROOT_NAME.to_owned(),
                    false => vdev.name(name_style()),
                },
                vdev: Some(vdev),
            })
            .collect();
        all.extend(aux.iter().map(|vdev| Named {
            name: vdev.name(name_style()),
            vdev: None,
        }));
        return Ok(all);
    }
    let is_root = |word: &str| word == ROOT_NAME || words.len() == 1 && word == ROOT;
    let (mut found, mut unknown) = (Vec::new(), Vec::new());
    for word in words {
        let is_aux = || aux.iter().any(|vdev| find_device(vdev, word).is_some());
        let vdev = match is_root(word) {
            true => Some(root),
            false => find_device(root, word).or_else(|| find_group(root, word)),
        };
        let name = if is_root(word) { ROOT_NAME } else { word }.to_owned();
        if vdev.is_some() || is_aux() {
            found.push(Named { name, vdev });
        } else {
            unknown.push(word.clone());
        }
    }
    if unknown.is_empty() {
        Ok(found)
    } else {
        Err(unknown)
    }
}

/// `zpool get PROPERTIES POOL VDEV...`
pub(super) fn get(
    session: &Session,
    args: &Parsed,
    names: &str,
    pool: &str,
    words: &[String],
    fields: Option<Vec<GetField>>,
) -> Outcome {
    let open = session
        .open(pool, Access::Read)
        .map_err(|e| open_error(pool, &e))?;
    let status = open.status()?;
    let vdevs = find(&open, &status.root, words).map_err(|unknown| {
        let lines: String = unknown
            .iter()
            .map(|word| format!("\t{word} (unknown)\n"))
            .collect();
        Fail::Usage(format!(
            "Expected a list of vdevs in \"{pool}\", but got:\n{lines}"
        ))
    })?;
    let properties = parse_list(TableKind::Vdev, names).map_err(|text| {
        let usage = usage_with(Tool::Zpool, "get", TableKind::Vdev);
        Fail::Exits(2, format!("{text}\n{usage}"))
    })?;
    for named in vdevs.iter().filter(|named| named.vdev.is_none()) {
        say_without(pool, &named.name, properties.as_deref());
    }
    let known: Vec<(&Named<'_>, &VdevStatus)> = vdevs
        .iter()
        .filter_map(|named| Some((named, named.vdev?)))
        .collect();
    let asked: Vec<(String, Guid)> = known
        .iter()
        .map(|(named, vdev)| (named.name.clone(), Guid(vdev.guid)))
        .collect();
    let mut items = open.vdev_properties(&asked)?;
    complete(properties.as_deref().unwrap_or(&[]), &mut items);
    let mut request = GetRequest::new(properties);
    request.measures_first = words == [ALL];
    if let Some(fields) = fields {
        request.fields = fields;
    }
    let (mut style, _, json) = styles(args);
    style.kind = TableKind::Vdev;
    if args.has('j') {
        let all: Vec<(Item, &VdevStatus)> = items
            .into_iter()
            .zip(known.into_iter().map(|(_, vdev)| vdev))
            .collect();
        print!("{}", vdevs_json(&style, json, &request, &status, &all));
    } else {
        print!("{}", print_get(&style, &request, &items));
    }
    Ok(())
}

/// User properties that a vdev does not have get their default.
fn complete(names: &[PropName], items: &mut [Item]) {
    for item in items {
        for name in names.iter().map(PropName::as_str) {
            if is_user_property(name) && item.get(name).is_none() {
                let none = PropValue::Text("-".to_owned());
                item.props.push(Prop::new(name, none, Source::Default));
            }
        }
    }
}

/// What OpenZFS says of a device without properties: once for each property when it looks how wide the columns are,
/// unless their widths are fixed, and once more when it shows them.
fn say_without(pool: &str, device: &str, properties: Option<&[PropName]>) {
    let all: Vec<PropName> = all_properties(TableKind::Vdev)
        .iter()
        .map(|desc| PropName::Native(desc.name))
        .collect();
    let shown = properties.unwrap_or(&all).iter().map(PropName::as_str);
    let is_measured = |name: &&str| {
        let desc = TableKind::Vdev.lookup(name);
        desc.is_none_or(|desc| desc.is_flexible)
    };
    let measured = shown.clone().filter(is_measured);
    for name in std::iter::once("name").chain(measured).chain(shown) {
        eprintln!(
            "cannot get vdev property {name} from {device} in {pool}: invalid argument for this pool \
             operation"
        );
    }
}

/// `zpool set NAME=VALUE POOL VDEV`
pub(super) fn set(
    session: &Session,
    (name, value): (&str, &str),
    pool: &str,
    word: &str,
) -> Outcome {
    let shown = if word == ROOT { ROOT_NAME } else { word };
    let what = format!("cannot set property {name} for {shown} on {pool}");
    let open = session
        .open(pool, Access::Write)
        .map_err(|e| change_error(pool, &what, &e))?;
    let root = open.vdevs();
    let words = [shown.to_owned()];
    let found = find(&open, &root, &words).ok().filter(|_| word != ALL);
    let Some(named) = found.and_then(|found| found.into_iter().next()) else {
        let text = format!("cannot find '{shown}' in '{pool}': device not in pool");
        return Err(Fail::Exits(EINVAL, text));
    };
    let (name, value) = parse_vdev_assignment(name, value).map_err(|e| format!("{what}: {e}"))?;
    let Some(vdev) = named.vdev else {
        let text = format!("{what}: invalid argument for this pool operation");
        return Err(Fail::Failed(text));
    };
    open.set_vdev_property(Guid(vdev.guid), &name, value)
        .map_err(|e| format!("{what}: {e}"))?;
    session.finish_change(&open, true)?;
    Ok(())
}
