//! Columns: the output of `zfs list`, `zfs get`, `zpool list` and `zpool get`.
//!
//! # What it is
//! A listing is made of [`Item`]s: datasets or pools with the values of their properties. Columns
//! are two blanks apart; numbers are flush right. Columns of plain numbers have a fixed width (their
//! values are at most five characters), all others are as wide as their widest value. With `-H`
//! there is no header, and values are separated by one tab.
//!
//! # Source
//! OpenZFS cmd/zfs/zfs_main.c `print_header`, `print_dataset`, cmd/zfs/zfs_iter.c `zfs_sort`,
//! lib/libzfs/libzfs_util.c `zprop_print_one_property`, libzfs_dataset.c `zfs_expand_proplist`.

mod get;
mod json;
mod sort;
mod table;
#[cfg(test)]
mod tests;

use phys::PropValue;

use crate::number::{NumberStyle, Zone};
use crate::prop::{
    Source, TableKind, Types, format_dataset_value, format_pool_value, format_unlisted_value,
};

pub use get::{GetField, GetRequest, get, parse_get_fields};
pub use json::{JsonStyle, datasets_json, json_document};
pub(crate) use json::{json_numbers, json_properties};
pub use sort::{SortKey, sort_datasets};
pub(crate) use table::{Column, columns, header, item_line, line};
pub use table::{default_columns, list};

/// The value of a property of an [`Item`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prop {
    /// Its name: from the table, or a user property, `feature@…`, `written@…` and so on.
    pub name: String,
    /// Its value.
    pub value: PropValue,
    /// Where that comes from.
    pub source: Source,
    /// The value from a received stream, if any.
    pub received: Option<String>,
}

impl Prop {
    /// A property without a received value.
    #[must_use]
    pub fn new(name: impl Into<String>, value: PropValue, source: Source) -> Self {
        Prop {
            name: name.into(),
            value,
            source,
            received: None,
        }
    }

    /// A property with a number that is computed or intrinsic: it has no source.
    #[must_use]
    pub fn number(name: impl Into<String>, value: u64) -> Self {
        Prop::new(name, PropValue::Number(value), Source::None)
    }

    /// Like [`Prop::number`], for a text.
    #[must_use]
    pub fn text(name: impl Into<String>, value: impl Into<String>) -> Self {
        Prop::new(name, PropValue::Text(value.into()), Source::None)
    }
}

/// A dataset or a pool, with its properties. Properties that it does not have are left out; `name`
/// is not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// Its name.
    pub name: String,
    /// The kind of dataset; `None` for pools and vdevs.
    pub types: Option<Types>,
    /// Its properties.
    pub props: Vec<Prop>,
}

impl Item {
    /// The property of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Prop> {
        self.props.iter().find(|prop| prop.name == name)
    }

    fn number(&self, name: &str) -> u64 {
        self.get(name)
            .and_then(|prop| prop.value.as_number())
            .unwrap_or(0)
    }
}

/// How to print.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// The table of the properties.
    pub kind: TableKind,
    /// `-H`: no header, tabs.
    pub is_scripted: bool,
    /// `-p`: all digits.
    pub numbers: NumberStyle,
    /// The time zone.
    pub zone: Zone,
}

impl Style {
    /// The style without any option, in UTC.
    #[must_use]
    pub fn new(kind: TableKind) -> Self {
        Style {
            kind,
            is_scripted: false,
            numbers: NumberStyle::Nice,
            zone: Zone::UTC,
        }
    }

    /// Formats a value.
    #[must_use]
    pub fn format(&self, name: &str, value: &PropValue) -> String {
        match (self.kind.lookup(name), value) {
            (Some(desc), _) if self.kind == TableKind::Dataset => {
                format_dataset_value(desc, value, self.numbers, self.zone)
            }
            (Some(desc), _) => format_pool_value(desc, value, self.numbers),
            (None, PropValue::Number(number)) if self.kind == TableKind::Dataset => {
                format_unlisted_value(name, *number, self.numbers)
            }
            (None, PropValue::Number(number)) => self.numbers.number(*number),
            (None, PropValue::Text(text)) => text.clone(),
        }
    }

    /// The formatted value of an item's property, or its name; `None` if it has no such property.
    fn value_of(&self, item: &Item, name: &str) -> Option<String> {
        if name == "name" {
            return Some(item.name.clone());
        }
        item.get(name).map(|prop| self.format(name, &prop.value))
    }
}
