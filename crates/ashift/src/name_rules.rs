//! How a new file system is to tell names apart: `utf8only`, `normalization`, `casesensitivity`.
//!
//! Source: OpenZFS lib/libzfs/libzfs_dataset.c (`zfs_valid_proplist`), module/zfs/zfs_ioctl.c (`zfs_fill_zplprops`).

use admin::prop::{DatasetContext, Types, parse_dataset_assignment};
use base::{ErrorKind, ObjectId, Result};
use dmu::Objset;
use phys::PropValue;
use phys::znode::{MASTER_NODE_OBJ, master_node};
use zpl::NameRules;

/// Properties fixed when a file system is created, and stored in its objset.
pub(crate) fn is_of_objset(name: &str) -> bool {
    let rules = [
        master_node::UTF8ONLY,
        master_node::NORMALIZATION,
        master_node::CASESENSITIVITY,
    ];
    name == "version" || rules.contains(&name)
}

/// The rules of an existing file system; of one that was never mounted, which has no root directory either, those that
/// are usual.
pub(crate) fn of(objset: &std::sync::Arc<Objset>) -> Result<NameRules> {
    let master = match zap::Zap::open(objset, ObjectId(MASTER_NODE_OBJ)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(NameRules::default()),
        master => master?,
    };
    let entry = |name: &str| Ok::<u64, base::Error>(master.lookup_u64(name)?.unwrap_or(0));
    Ok(NameRules {
        utf8only: entry(master_node::UTF8ONLY)? != 0,
        normalization: entry(master_node::NORMALIZATION)?,
        casesensitivity: entry(master_node::CASESENSITIVITY)?,
    })
}

/// The rules of a new file system: those that are asked for, and otherwise those `above` it. What is wrong with the
/// values of other properties is left to others.
///
/// # Errors
/// Why the values do not go together, in OpenZFS's words.
pub(crate) fn of_new<'a>(
    typed: impl IntoIterator<Item = (&'a str, &'a str)>,
    above: NameRules,
) -> Result<NameRules, String> {
    let context = DatasetContext::creating(Types::FILESYSTEM);
    let mut utf8only = None;
    let [mut normalization, mut casesensitivity] = [None; 2];
    for (name, value) in typed {
        let Ok((name, PropValue::Number(value))) = parse_dataset_assignment(name, value, &context)
        else {
            continue;
        };
        match &*name {
            master_node::UTF8ONLY => utf8only = Some(value != 0),
            master_node::NORMALIZATION => normalization = Some(value),
            master_node::CASESENSITIVITY => casesensitivity = Some(value),
            _ => {}
        }
    }
    let normalization = match (normalization, utf8only) {
        (Some(form), Some(false)) if form != 0 => {
            return Err("'utf8only' must be set 'on' if normalization chosen".to_owned());
        }
        (None, Some(false)) => 0,
        (form, _) => form.unwrap_or(above.normalization),
    };
    Ok(NameRules {
        utf8only: utf8only.unwrap_or(above.utf8only) || normalization != 0,
        normalization,
        casesensitivity: casesensitivity.unwrap_or(above.casesensitivity),
    })
}
