//! Checks property assignments as OpenZFS does, with its error messages.
//!
//! # Source
//! OpenZFS lib/libzfs/libzfs_dataset.c `zfs_valid_proplist`, libzfs_pool.c `zpool_valid_proplist`,
//! libzfs_util.c `zprop_parse_value`.

use phys::PropValue;
use std::fmt;

use base::{SPA_MAXBLOCKSIZE, SPA_MINBLOCKSIZE};

use super::share::{is_nfs_options, is_smb_options};
use super::special::{is_feature_property, is_user_property, is_written_property, owner_property};
use super::{Edit, Honoured, Kind, PropDesc, TableKind, Types};
use crate::name::{NameError, check_mountpoint};
use crate::number::{nice_bytes, parse_number};

/// `ZAP_MAXNAMELEN`: names of properties have fewer bytes than this.
const NAME_LEN_LIMIT: usize = 256;
/// `ZFS_MAXPROPLEN`: values of text properties have fewer bytes than this.
const TEXT_LEN_LIMIT: usize = 4096;
/// `ZAP_MAXVALUELEN`: values of user properties have fewer bytes than this.
const USER_TEXT_LEN_LIMIT: usize = 8192;
/// `ZPROP_MAX_COMMENT`, in bytes
const COMMENT_LEN_MAX: usize = 32;

/// Why a property cannot be set: the text after "cannot set property for 'tank': ".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropError(String);

impl PropError {
    fn new(text: impl Into<String>) -> Self {
        PropError(text.into())
    }
}

impl fmt::Display for PropError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PropError {}

impl From<base::Error> for PropError {
    fn from(error: base::Error) -> Self {
        PropError(error.to_string())
    }
}

/// Splits `name=value`.
#[must_use]
pub fn split_assignment(text: &str) -> Option<(&str, &str)> {
    text.split_once('=')
}

/// The dataset that a property is set for.
#[derive(Clone, Copy, Debug)]
pub struct DatasetContext {
    /// Its kind: exactly one.
    pub types: Types,
    /// Whether it is being created.
    pub is_new: bool,
    /// The largest block size of the pool, in bytes.
    pub max_blocksize: u64,
    /// `volblocksize` of an existing volume, in bytes.
    pub volblocksize: u64,
    /// `version` of an existing file system.
    pub version: u64,
}

impl DatasetContext {
    /// An existing dataset.
    #[must_use]
    pub fn existing(types: Types) -> Self {
        DatasetContext {
            types,
            is_new: false,
            max_blocksize: SPA_MAXBLOCKSIZE,
            volblocksize: SPA_MINBLOCKSIZE,
            version: 5,
        }
    }

    /// A dataset that is being created.
    #[must_use]
    pub fn creating(types: Types) -> Self {
        DatasetContext {
            is_new: true,
            ..Self::existing(types)
        }
    }
}

/// The pool that a property is set for.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolContext {
    /// It is being created.
    pub is_new: bool,
    /// It is being imported.
    pub is_import: bool,
}

/// Checks a value of a property by its type alone. `typed` is the name as it was typed.
///
/// # Errors
/// What is wrong with it.
#[doc(alias = "zprop_parse_value")]
pub fn parse_value(
    desc: &'static PropDesc,
    typed: &str,
    value: &str,
    types: Types,
) -> Result<PropValue, PropError> {
    match desc.kind {
        Kind::Text(_) if value.len() >= TEXT_LEN_LIMIT => {
            Err(PropError::new(format!("'{typed}' is too long")))
        }
        Kind::Text(_) => Ok(PropValue::Text(value.to_owned())),
        Kind::Index(..) => desc.number(value).map(PropValue::Number).ok_or_else(|| {
            PropError::new(format!("'{}' must be one of '{}'", desc.name, desc.values))
        }),
        Kind::Number(_) => parse_numeric(desc, typed, value, types).map(PropValue::Number),
    }
}

fn parse_numeric(
    desc: &PropDesc,
    typed: &str,
    value: &str,
    types: Types,
) -> Result<u64, PropError> {
    match (value, desc.name) {
        ("none", "filesystem_limit" | "snapshot_limit") => return Ok(u64::MAX),
        ("none", "checksum_n" | "checksum_t" | "io_n" | "io_t" | "slow_io_n" | "slow_io_t") => {
            return Ok(u64::MAX);
        }
        ("none", _) => return Ok(0),
        ("auto", "refreservation") if types.meets(Types::VOLUME) => return Ok(u64::MAX),
        ("auto", "refreservation") => {
            let text = format!("'{typed}=auto' only allowed on volumes");
            return Err(PropError::new(text));
        }
        ("auto", "dedup_table_quota") => return Ok(u64::MAX),
        ("auto", _) => {
            return Err(PropError::new(format!(
                "'auto' is invalid value for '{typed}'"
            )));
        }
        _ => {}
    }
    let number = parse_number(value)?;
    match (number, desc.name) {
        (0, "quota" | "refquota") => Err(PropError::new("use 'none' to disable quota/refquota")),
        (0, "dedup_table_quota") => Err(PropError::new("use 'none' to disable ddt table quota")),
        _ => Ok(number),
    }
}

/// Checks `name=value` for a dataset; returns the property's name on disk and its value.
///
/// # Errors
/// What is wrong with it.
#[doc(alias = "zfs_valid_proplist")]
pub fn parse_dataset_assignment(
    name: &str,
    value: &str,
    context: &DatasetContext,
) -> Result<(String, PropValue), PropError> {
    let desc = TableKind::Dataset.lookup(name);
    if desc.is_none() && is_user_property(name) {
        return parse_user_property(name, value, USER_TEXT_LEN_LIMIT);
    }
    if context.types.meets(Types::SNAPSHOT) {
        return Err(PropError::new(
            "this property can not be modified for snapshots",
        ));
    }
    let Some(desc) = desc else {
        return Err(match owner_property(name) {
            Some(property) if property.is_limit => no_owner(name),
            Some(_) => PropError::new(format!("'{name}' is readonly")),
            None if is_written_property(name) => PropError::new(format!("'{name}' is readonly")),
            None => PropError::new(format!("invalid property '{name}'")),
        });
    };
    if !desc.types.meets(context.types) {
        let text = format!("'{name}' does not apply to datasets of this type");
        return Err(PropError::new(text));
    }
    if desc.is_readonly() && !(desc.is_set_once() && context.is_new) {
        return Err(PropError::new(format!("'{name}' is readonly")));
    }
    let parsed = parse_value(desc, name, value, context.types)?;
    check_dataset_value(desc, name, &parsed, context)?;
    check_honoured(desc, value, &parsed)?;
    Ok((desc.name.to_owned(), parsed))
}

/// A limit of an owner: a size or a number, or `none`, which is 0. `id` is who `name` means, if that is known.
///
/// # Errors
/// What is wrong with it.
#[doc(alias = "zfs_valid_proplist")]
pub fn parse_owner_limit(
    name: &str,
    id: Option<u64>,
    value: &str,
) -> Result<(u64, u64), PropError> {
    let id = id.ok_or_else(|| no_owner(name))?;
    if !owner_property(name).is_some_and(|property| property.is_limit) {
        return Err(PropError::new(format!("'{name}' is readonly")));
    }
    match value {
        "none" => Ok((id, 0)),
        value => Ok((id, parse_number(value)?)),
    }
}

fn no_owner(name: &str) -> PropError {
    PropError::new(format!("'{name}' has an invalid user/group name"))
}

fn parse_user_property(
    name: &str,
    value: &str,
    limit: usize,
) -> Result<(String, PropValue), PropError> {
    if name.len() >= NAME_LEN_LIMIT {
        return Err(PropError::new(format!(
            "property name '{name}' is too long"
        )));
    }
    if value.len() >= limit {
        return Err(PropError::new("property value too long"));
    }
    Ok((name.to_owned(), PropValue::Text(value.to_owned())))
}

fn check_dataset_value(
    desc: &PropDesc,
    typed: &str,
    value: &PropValue,
    context: &DatasetContext,
) -> Result<(), PropError> {
    let number = value.as_number().unwrap_or(0);
    let text = value.as_text().unwrap_or("");
    let wrong = match desc.name {
        "version" if !context.is_new && number < context.version => {
            format!("Can not downgrade; already at version {}", context.version)
        }
        "volblocksize" | "recordsize" if !is_blocksize(number, context.max_blocksize) => {
            let largest = nice_bytes(context.max_blocksize);
            format!("'{typed}' must be power of 2 from 512B to {largest}")
        }
        // Any size, as OpenZFS 2.4 has it; 2.3 wants zero or a power of two from 512 on.
        "special_small_blocks" if number > SPA_MAXBLOCKSIZE => {
            let largest = nice_bytes(SPA_MAXBLOCKSIZE);
            format!("invalid '{typed}' property: must be between zero and {largest}")
        }
        "mlslabel" => "mlslabels are unsupported".to_owned(),
        "mountpoint" if text != "none" && text != "legacy" => match check_mountpoint(text) {
            Ok(()) => return Ok(()),
            Err(NameError::TooLong) => format!("component of '{typed}' is too long"),
            Err(_) => format!("'{typed}' must be an absolute path, 'none', or 'legacy'"),
        },
        "sharenfs" if !is_nfs_options(text) => {
            format!("'{typed}' cannot be set to invalid options")
        }
        "sharesmb" if !is_smb_options(text) => {
            format!("'{typed}' cannot be set to invalid options")
        }
        "keylocation" if !is_keylocation(text) => "invalid keylocation".to_owned(),
        "keylocation" if !context.is_new && text != "none" => {
            "keylocation must be 'none' for unencrypted datasets".to_owned()
        }
        "volsize" if !context.is_new && !number.is_multiple_of(context.volblocksize) => {
            let block = nice_bytes(context.volblocksize);
            format!("'{typed}' must be a multiple of volume block size ({block})")
        }
        "volsize" if !context.is_new && number == 0 => format!("'{typed}' cannot be zero"),
        _ => return Ok(()),
    };
    Err(PropError(wrong))
}

fn is_blocksize(size: u64, largest: u64) -> bool {
    size.is_power_of_two() && (SPA_MINBLOCKSIZE..=largest).contains(&size)
}

/// Whether a key may be kept there, or nowhere.
#[doc(alias = "zfs_prop_valid_keylocation")]
#[must_use]
pub fn is_keylocation(text: &str) -> bool {
    let prefixes = ["file:///", "https://", "http://"];
    ["none", "prompt"].contains(&text)
        || prefixes
            .iter()
            .any(|p| text.len() > p.len() && text.starts_with(p))
}

/// Refuses values that would be stored but not implemented.
fn check_honoured(desc: &PropDesc, typed: &str, value: &PropValue) -> Result<(), PropError> {
    match desc.honoured {
        Honoured::Yes | Honoured::Kept => Ok(()),
        Honoured::No => {
            let text = format!("'{}' is not kept up by this program yet", desc.name);
            Err(PropError(text))
        }
        Honoured::Only(words) => {
            let same = |word: &&&str| match desc.kind {
                Kind::Index(..) => desc.number(word) == value.as_number(),
                Kind::Number(default) => value.as_number() == Some(default),
                Kind::Text(_) => **word == typed,
            };
            if words.iter().any(|word| same(&word)) {
                return Ok(());
            }
            Err(PropError(format!(
                "'{}={typed}' is not kept up by this program yet, only '{}'",
                desc.name, words[0]
            )))
        }
    }
}

/// Checks `name=value` for a pool; returns the property's name on disk and its value.
/// `feature@…=enabled` returns 1, `=disabled` 0.
///
/// # Errors
/// What is wrong with it.
#[doc(alias = "zpool_valid_proplist")]
pub fn parse_pool_assignment(
    name: &str,
    value: &str,
    context: &PoolContext,
) -> Result<(String, PropValue), PropError> {
    let desc = TableKind::Pool.lookup(name);
    if desc.is_none() && is_feature_property(name) {
        return parse_feature(name, value, context);
    }
    if desc.is_none() && is_user_property(name) {
        return parse_user_property(name, value, TEXT_LEN_LIMIT);
    }
    let desc = desc.ok_or_else(|| PropError(format!("invalid property '{name}'")))?;
    if desc.edit == Edit::ReadOnly {
        return Err(PropError(format!("'{name}' is readonly")));
    }
    if desc.is_set_once() && !context.is_new {
        let text = format!("property '{name}' can only be set at creation time");
        return Err(PropError(text));
    }
    let parsed = parse_value(desc, name, value, Types::NONE)?;
    check_pool_value(desc, name, &parsed, context)?;
    check_honoured(desc, value, &parsed)?;
    Ok((desc.name.to_owned(), parsed))
}

/// Checks `name=value` for a vdev; returns the property's name on disk and its value.
///
/// # Errors
/// What is wrong with it.
#[doc(alias = "zpool_prop_vdev")]
pub fn parse_vdev_assignment(name: &str, value: &str) -> Result<(String, PropValue), PropError> {
    let Some(desc) = TableKind::Vdev.lookup(name) else {
        if is_user_property(name) {
            return parse_user_property(name, value, USER_TEXT_LEN_LIMIT);
        }
        return Err(PropError(format!("invalid property: '{name}'")));
    };
    if desc.is_readonly() {
        return Err(PropError(format!("'{name}' is readonly")));
    }
    let parsed = parse_value(desc, name, value, Types::NONE)?;
    check_honoured(desc, value, &parsed)?;
    Ok((desc.name.to_owned(), parsed))
}

fn parse_feature(
    name: &str,
    value: &str,
    context: &PoolContext,
) -> Result<(String, PropValue), PropError> {
    let enabled = match value {
        "enabled" => 1,
        "disabled" if context.is_new => 0,
        "disabled" => {
            let text = format!("property '{name}' can only be set to 'disabled' at creation time");
            return Err(PropError(text));
        }
        _ => {
            let text = format!("property '{name}' can only be set to 'enabled' or 'disabled'");
            return Err(PropError(text));
        }
    };
    Ok((name.to_owned(), PropValue::Number(enabled)))
}

fn check_pool_value(
    desc: &PropDesc,
    typed: &str,
    value: &PropValue,
    context: &PoolContext,
) -> Result<(), PropError> {
    let number = value.as_number().unwrap_or(0);
    let text = value.as_text().unwrap_or("");
    let wrong = match desc.name {
        "version" if number != 5000 && !((1..=28).contains(&number) && context.is_new) => {
            format!("property '{typed}' number {number} is invalid.")
        }
        "ashift" if number != 0 && !(9..=16).contains(&number) => format!(
            "property '{typed}' number {number} is invalid, only values between 9 and 16 are \
             allowed."
        ),
        "bootfs" if context.is_new || context.is_import => {
            format!("property '{typed}' cannot be set at creation or import time")
        }
        "altroot" if !context.is_new && !context.is_import => {
            format!("property '{typed}' can only be set during pool creation or import")
        }
        "altroot" if !text.starts_with('/') => format!("bad alternate root '{text}'"),
        "cachefile" if text.is_empty() || text == "none" => return Ok(()),
        "cachefile" if !text.starts_with('/') => {
            format!("property '{typed}' must be empty, an absolute path, or 'none'")
        }
        "cachefile" if ["/", "/.", "/.."].iter().any(|end| text.ends_with(end)) => {
            format!("'{text}' is not a valid file")
        }
        "comment" if !text.chars().all(|c| c == ' ' || c.is_ascii_graphic()) => {
            "comment may only have printable characters".to_owned()
        }
        "comment" if text.len() > COMMENT_LEN_MAX => {
            format!("comment must not exceed {COMMENT_LEN_MAX} characters")
        }
        "readonly" if !context.is_import => {
            format!("property '{typed}' can only be set at import time")
        }
        _ => return Ok(()),
    };
    Err(PropError(wrong))
}
