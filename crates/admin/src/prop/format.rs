//! Formatting of property values.

use super::{Kind, PropDesc};
use crate::number::{NumberStyle, Zone, creation_time, date_time};
use phys::PropValue;
use vdev::VdevState;

/// `zprop_source_t`: where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// It is computed, or is intrinsic to the object.
    None,
    /// It is not set anywhere.
    Default,
    /// It was set here.
    Local,
    /// Set by a mount option, until unmounted.
    Temporary,
    /// Inherited from this dataset above.
    Inherited(String),
    /// It came with a stream.
    Received,
}

impl Source {
    /// The SOURCE column.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Source::Inherited(from) => format!("inherited from {from}"),
            other => other.word().to_owned(),
        }
    }

    /// The word for `zfs get -s`: local, default, inherited, received, temporary, none.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Source::None => "-",
            Source::Default => "default",
            Source::Local => "local",
            Source::Temporary => "temporary",
            Source::Inherited(_) => "inherited",
            Source::Received => "received",
        }
    }

    /// The name in JSON.
    #[must_use]
    pub(crate) fn json_type(&self) -> &'static str {
        match self {
            Source::None => "NONE",
            Source::Default => "DEFAULT",
            Source::Local => "LOCAL",
            Source::Temporary => "TEMPORARY",
            Source::Inherited(_) => "INHERITED",
            Source::Received => "RECEIVED",
        }
    }
}

/// A number whose property is not in a table: `userused@…`, `userobjquota@…`, `written@…`.
#[must_use]
#[doc(alias = "zfs_prop_get_userquota")]
pub(crate) fn format_unlisted_value(name: &str, number: u64, style: NumberStyle) -> String {
    let prefix = name.split('@').next().unwrap_or(name);
    if number == 0 && style != NumberStyle::Exact && prefix.ends_with("quota") {
        "none".to_owned()
    } else if prefix.contains("obj") {
        style.number(number)
    } else {
        style.bytes(number)
    }
}

/// A dataset property's value, as `zfs list` and `zfs get` print it.
///
/// # Panics
/// When a number property has a text, or the other way round.
#[must_use]
#[doc(alias = "zfs_prop_get")]
pub fn format_dataset_value(
    desc: &PropDesc,
    value: &PropValue,
    style: NumberStyle,
    zone: Zone,
) -> String {
    let number = match (desc.kind, value) {
        (Kind::Text(_), PropValue::Text(text)) => return text.clone(),
        (Kind::Index(..), PropValue::Number(number)) => return index_word(desc, *number),
        (Kind::Number(_), PropValue::Number(number)) => *number,
        _ => panic!("property {} cannot be {value:?}", desc.name),
    };
    let exact = style == NumberStyle::Exact;
    match desc.name {
        "creation" if !exact => creation_time(number, zone),
        "snapshots_changed" if !exact => {
            let text = date_time(number, zone);
            // The hour is padded with a blank here, with a zero in ctime(3).
            if text.as_bytes().get(11) == Some(&b'0') {
                format!("{} {}", &text[..11], &text[12..])
            } else {
                text
            }
        }
        "quota" | "refquota" | "reservation" | "refreservation" if number == 0 && !exact => {
            "none".to_owned()
        }
        "filesystem_limit" | "snapshot_limit" | "filesystem_count" | "snapshot_count"
            if number == u64::MAX =>
        {
            "none".to_owned()
        }
        "compressratio" | "refcompressratio" => style.ratio(number),
        "guid" | "createtxg" | "objsetid" | "pbkdf2iters" | "keyguid" | "ivsetguid" => {
            number.to_string()
        }
        "quota"
        | "refquota"
        | "reservation"
        | "refreservation"
        | "referenced"
        | "available"
        | "used"
        | "usedbysnapshots"
        | "usedbydataset"
        | "usedbyrefreservation"
        | "usedbychildren" => style.bytes(number),
        _ => style.number(number),
    }
}

fn index_word(desc: &PropDesc, number: u64) -> String {
    match (desc.name, desc.word(number)) {
        ("mounted", Some("on")) => "yes".to_owned(),
        ("mounted", Some("off")) => "no".to_owned(),
        (_, Some(word)) => word.to_owned(),
        // Unknown: from a newer version.
        (_, None) => number.to_string(),
    }
}

/// A pool's or vdev's property's value, as `zpool list` and `zpool get` print it. Health is a text, although
/// the table calls it a number.
///
/// # Panics
/// When a number property has a text, or the other way round.
#[must_use]
#[doc(alias = "zpool_get_prop")]
pub fn format_pool_value(desc: &PropDesc, value: &PropValue, style: NumberStyle) -> String {
    let number = match (desc.kind, value) {
        (_, PropValue::Text(text)) if text.is_empty() => return "-".to_owned(),
        (Kind::Text(_), PropValue::Text(text)) => return text.clone(),
        (Kind::Number(_), PropValue::Text(text)) if desc.name == "health" => return text.clone(),
        (Kind::Index(..), PropValue::Number(number)) => return index_word(desc, *number),
        (Kind::Number(_), PropValue::Number(number)) => *number,
        _ => panic!("property {} cannot be {value:?}", desc.name),
    };
    match desc.name {
        "dedup_table_quota" if number == u64::MAX => "auto".to_owned(),
        "dedup_table_quota" if number == 0 && style == NumberStyle::Nice => "none".to_owned(),
        "state" if style == NumberStyle::Nice => vdev_state_word(number).to_owned(),
        "checksum_n" | "checksum_t" | "io_n" | "io_t" | "slow_io_n" | "slow_io_t" => match number {
            u64::MAX => "-".to_owned(),
            _ => number.to_string(),
        },
        "expandsize" | "checkpoint" if number == 0 => "-".to_owned(),
        "expandsize" | "checkpoint" => style.bytes(number),
        "fragmentation" if number == u64::MAX => "-".to_owned(),
        "capacity" | "fragmentation" => style.percent(number),
        "dedupratio" | "bcloneratio" => style.ratio(number),
        "version" if number >= 5000 => "-".to_owned(),
        "state" | "guid" | "load_guid" | "version" | "last_scrubbed_txg" => number.to_string(),
        _ => style.number(number),
    }
}

/// The word for the number of a vdev's state.
#[doc(alias = "zpool_state_to_name")]
#[must_use]
pub fn vdev_state_word(number: u64) -> &'static str {
    let states = [
        VdevState::Removed,
        VdevState::CantOpen,
        VdevState::Faulted,
        VdevState::Degraded,
        VdevState::Healthy,
    ];
    let state = states.into_iter().find(|state| state.raw() == number);
    state.unwrap_or(VdevState::Offline).word()
}
