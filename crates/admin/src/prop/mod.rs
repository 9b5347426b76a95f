//! Properties: which there are, which values they take, and how these are printed.
//!
//! # What it is
//! Three tables, for [datasets](DATASET), [pools](POOL) and [vdevs](VDEV), drive everything that is
//! done with properties: names and their short forms, types, defaults, inheritance, which kind of
//! dataset has them, help texts, column headers and widths, and whether the engine implements the
//! property ([`Honoured`]). They are the only list of properties in the program.
//!
//! # Source
//! OpenZFS module/zcommon/zfs_prop.c, zpool_prop.c, zprop_common.c; the values are those of 2.3.

mod dataset;
mod format;
mod parse;
mod pool;
mod share;
mod special;
#[cfg(test)]
mod tests;
mod vdev;

use phys::PropValue;
use std::fmt::Write as _;

pub use dataset::DATASET;
pub(crate) use format::format_unlisted_value;
pub use format::{Source, format_dataset_value, format_pool_value, vdev_state_word};
pub use parse::{
    DatasetContext, PoolContext, PropError, is_keylocation, parse_dataset_assignment,
    parse_owner_limit, parse_pool_assignment, parse_value, parse_vdev_assignment, split_assignment,
};
pub use pool::POOL;
use special::is_written_property;
pub use special::{
    OwnerProperty, is_feature_property, is_user_property, is_userspace_property, owner_property,
};
pub use vdev::VDEV;

/// Kinds of datasets that a property may belong to, as a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Types(u8);

impl Types {
    /// `ZFS_TYPE_FILESYSTEM`
    pub const FILESYSTEM: Types = Types(1);
    /// `ZFS_TYPE_SNAPSHOT`
    pub const SNAPSHOT: Types = Types(2);
    /// `ZFS_TYPE_VOLUME`
    pub const VOLUME: Types = Types(4);
    /// `ZFS_TYPE_BOOKMARK`
    pub const BOOKMARK: Types = Types(32);
    /// `ZFS_TYPE_DATASET`: file systems, volumes and snapshots
    pub const DATASET: Types = Types(7);
    /// `ZFS_TYPE_POOL`, and vdevs: not a dataset
    pub const NONE: Types = Types(0);

    /// The union of both sets.
    #[must_use]
    pub const fn or(self, other: Types) -> Types {
        Types(self.0 | other.0)
    }

    /// Whether the sets intersect.
    #[must_use]
    pub const fn meets(self, other: Types) -> bool {
        self.0 & other.0 != 0
    }
}

/// `zprop_attr_t`: whether and when it can be set, and whether children inherit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Cannot be set.
    ReadOnly,
    /// Set for one dataset.
    Default,
    /// Set for a dataset and inherited by those below it.
    Inherit,
    /// Set when the dataset is created, or inherited then.
    OneTime,
    /// Set when the dataset is created, never inherited.
    OneTimeDefault,
}

/// `zprop_type_t` with the default value.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A 64-bit number, with its default.
    Number(u64),
    /// A text, with its default, if it has one.
    Text(Option<&'static str>),
    /// One of a list of words: the number of the default, and the words, each with its number on
    /// disk. If several words have the same number, the first one is printed.
    Index(u64, &'static [(&'static str, u64)]),
}

/// Whether the engine implements a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Honoured {
    /// Yes, for every value.
    Yes,
    /// It is stored, but has no effect here: it only matters to mounting, sharing or another system.
    Kept,
    /// Only these values are implemented; others are refused.
    Only(&'static [&'static str]),
    /// Setting it is refused.
    No,
}

/// `zprop_desc_t`: everything about one property.
#[derive(Clone, Copy, Debug)]
pub struct PropDesc {
    /// pd_name: its name, on disk too
    pub name: &'static str,
    /// pd_proptype and default
    pub kind: Kind,
    /// pd_attr
    pub edit: Edit,
    /// pd_types
    pub types: Types,
    /// pd_values: its values, for the help
    pub values: &'static str,
    /// pd_colname: the header of its column, and, in lower case, its short name
    pub column: &'static str,
    /// pd_visible: listed by `get all` and in help
    pub is_visible: bool,
    /// pd_always_flex: its column is as wide as its widest value; numbers have a fixed width
    pub is_flexible: bool,
    /// Whether the engine implements it.
    pub honoured: Honoured,
}

impl PropDesc {
    const fn new(name: &'static str, kind: Kind, edit: Edit, types: Types) -> Self {
        PropDesc {
            name,
            kind,
            edit,
            types,
            values: "",
            column: "",
            is_visible: true,
            is_flexible: !matches!(kind, Kind::Number(_)),
            honoured: Honoured::Yes,
        }
    }

    const fn shown(mut self, column: &'static str, values: &'static str) -> Self {
        self.column = column;
        self.values = values;
        self
    }

    const fn flexible(mut self) -> Self {
        self.is_flexible = true;
        self
    }

    const fn hidden(mut self, column: &'static str) -> Self {
        self.column = column;
        self.is_visible = false;
        self
    }

    const fn honoured(mut self, honoured: Honoured) -> Self {
        self.honoured = honoured;
        self
    }

    /// Whether it can be changed after creation.
    #[must_use]
    pub fn is_readonly(&self) -> bool {
        !matches!(self.edit, Edit::Default | Edit::Inherit)
    }

    /// Whether it is set at creation and never again.
    #[must_use]
    pub(crate) fn is_set_once(&self) -> bool {
        matches!(self.edit, Edit::OneTime | Edit::OneTimeDefault)
    }

    /// Whether children inherit it.
    #[must_use]
    pub fn is_inheritable(&self) -> bool {
        matches!(self.edit, Edit::Inherit | Edit::OneTime)
    }

    /// Whether its column is flush right.
    #[must_use]
    pub(crate) fn is_right_aligned(&self) -> bool {
        matches!(self.kind, Kind::Number(_))
            && !matches!(self.name, "creation" | "snapshots_changed")
            || self.name == "health"
    }

    /// `zprop_width`: the minimum width of its column.
    #[must_use]
    pub fn width(&self) -> usize {
        let header = self.column.len();
        match self.kind {
            _ if self.name == "health" => 8,
            Kind::Number(_) => header.max(5),
            Kind::Text(_) => header,
            Kind::Index(_, words) => words.iter().map(|w| w.0.len()).fold(header, usize::max),
        }
    }

    /// The word for a number on disk, of an index property.
    #[must_use]
    #[doc(alias = "zprop_index_to_string")]
    pub fn word(&self, number: u64) -> Option<&'static str> {
        match self.kind {
            Kind::Index(_, words) => words.iter().find(|w| w.1 == number).map(|w| w.0),
            _ => None,
        }
    }

    /// The number on disk for a word, of an index property.
    #[must_use]
    #[doc(alias = "zprop_string_to_index")]
    pub fn number(&self, word: &str) -> Option<u64> {
        match self.kind {
            Kind::Index(_, words) => words.iter().find(|w| w.0 == word).map(|w| w.1),
            _ => None,
        }
    }

    /// The value of a dataset where neither it nor any parent sets one.
    #[must_use]
    pub fn default_value(&self) -> PropValue {
        match self.kind {
            Kind::Number(number) | Kind::Index(number, _) => PropValue::Number(number),
            Kind::Text(text) => PropValue::Text(text.unwrap_or("").to_owned()),
        }
    }
}

/// The property of `table` whose name is `name`, or whose column header is, in lower case.
#[must_use]
#[doc(alias = "zprop_name_to_prop")]
pub fn lookup(table: &'static [PropDesc], name: &str) -> Option<&'static PropDesc> {
    let short = |desc: &PropDesc| {
        desc.column.eq_ignore_ascii_case(name) && !name.contains(|c: char| c.is_ascii_uppercase())
    };
    table.iter().find(|desc| desc.name == name || short(desc))
}

/// One column of a listing, or one line of `get`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropName {
    /// A property of the table.
    Native(&'static str),
    /// A user property, `userused@…`, `written@…`, `feature@…`.
    Other(String),
}

impl PropName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            PropName::Native(name) => name,
            PropName::Other(name) => name,
        }
    }
}

/// The tables of properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// `zfs`
    Dataset,
    /// `zpool`
    Pool,
    /// `zpool get … pool vdev`
    Vdev,
}

impl TableKind {
    /// The table.
    #[must_use]
    pub fn table(self) -> &'static [PropDesc] {
        match self {
            TableKind::Dataset => DATASET,
            TableKind::Pool => POOL,
            TableKind::Vdev => VDEV,
        }
    }

    /// The property called `name`.
    #[must_use]
    pub fn lookup(self, name: &str) -> Option<&'static PropDesc> {
        lookup(self.table(), name)
    }

    fn admits(self, name: &str) -> bool {
        is_user_property(name)
            || match self {
                TableKind::Dataset => is_userspace_property(name) || is_written_property(name),
                TableKind::Pool => is_feature_property(name),
                TableKind::Vdev => false,
            }
    }
}

/// Parses a list of properties, as `-o` and `get` take it: names separated by commas; `space`
/// expands to the columns of `zfs list -o space`. `all` alone returns `None`.
///
/// # Errors
/// The line to print: `bad property list: …`.
#[doc(alias = "zprop_get_list")]
pub fn parse_list(kind: TableKind, text: &str) -> Result<Option<Vec<PropName>>, String> {
    const SPACE: [&str; 7] = [
        "name",
        "available",
        "used",
        "usedbysnapshots",
        "usedbydataset",
        "usedbyrefreservation",
        "usedbychildren",
    ];
    if text == "all" {
        return Ok(None);
    }
    if text.is_empty() {
        return Err("bad property list: no properties specified".to_owned());
    }
    let mut list = Vec::new();
    for name in text.split(',') {
        if name == "space" && kind == TableKind::Dataset {
            list.extend(SPACE.map(PropName::Native));
        } else if let Some(desc) = kind.lookup(name) {
            list.push(PropName::Native(desc.name));
        } else if kind.admits(name) {
            list.push(PropName::Other(name.to_owned()));
        } else {
            return Err(format!("bad property list: invalid property '{name}'"));
        }
    }
    Ok(Some(list))
}

/// The expansion of `all`: every visible property but the name, in the order of the table.
#[must_use]
#[doc(alias = "zprop_expand_list")]
pub fn all_properties(kind: TableKind) -> Vec<&'static PropDesc> {
    kind.table()
        .iter()
        .filter(|desc| desc.is_visible && desc.name != "name")
        .collect()
}

/// The table of properties at the end of the help of `get`, `set`, and `inherit`.
#[must_use]
pub fn help(kind: TableKind) -> String {
    let mut out = String::new();
    let mut rows: Vec<&PropDesc> = kind.table().iter().filter(|desc| desc.is_visible).collect();
    rows.sort_by_key(|desc| (desc.edit != Edit::ReadOnly, desc.name));
    match kind {
        TableKind::Dataset => {
            out += "
	PROPERTY              EDIT  INHERIT   VALUES

";
        }
        TableKind::Pool | TableKind::Vdev => {
            out += "
	PROPERTY             EDIT   VALUES

";
        }
    }
    for desc in rows {
        let edit = if desc.is_readonly() { "NO" } else { "YES" };
        let inherit = if desc.is_inheritable() { "YES" } else { "NO" };
        help_row(&mut out, kind, (desc.name, edit, inherit), desc.values);
    }
    for (name, edit, values) in special::help_rows(kind) {
        help_row(&mut out, kind, (name, edit, "NO"), values);
    }
    out
}

fn help_row(out: &mut String, kind: TableKind, row: (&str, &str, &str), values: &str) {
    let (name, edit, inherit) = row;
    let values = if values.is_empty() { "-" } else { values };
    let _ = match kind {
        TableKind::Dataset => writeln!(out, "\t{name:<21} {edit:>4}  {inherit:>7}   {values}"),
        TableKind::Pool | TableKind::Vdev => writeln!(out, "\t{name:<19}  {edit:>4}   {values}"),
    };
}
