//! Columns: what `zfs list`, `zfs get`, `zpool list` and `zpool get` print.
//!
//! # What it is
//! A listing is made of [`Item`]s: datasets or pools with the values of their properties. Columns
//! are two blanks apart; numbers are flush right. Columns of plain numbers have a fixed width (their
//! values take at most five characters), all others are as wide as their widest value. With `-H`,
//! there is no header, and one tab between values.
//!
//! # Source
//! OpenZFS cmd/zfs/zfs_main.c `print_header`, `print_dataset`, cmd/zfs/zfs_iter.c `zfs_sort`,
//! lib/libzfs/libzfs_util.c `zprop_print_one_property`, libzfs_dataset.c `zfs_expand_proplist`.

#[cfg(test)]
mod tests;

use phys::PropValue;
use std::cmp::Ordering;

use serde_json::{Map, Value, json};

use crate::number::{NumberStyle, Zone};
use crate::prop::{
    Kind, PropDesc, PropName, Source, TableKind, Types, all_properties, format_dataset_value,
    format_pool_value, format_unlisted_value,
};

/// The value of a property of an [`Item`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prop {
    /// What it is called; from the table, or a user property, `feature@…`, `written@…` and so on.
    pub name: String,
    /// Its value.
    pub value: PropValue,
    /// Where that comes from.
    pub source: Source,
    /// What a received stream said, if any did.
    pub received: Option<String>,
}

impl Prop {
    /// A property that nobody received.
    #[must_use]
    pub fn new(name: impl Into<String>, value: PropValue, source: Source) -> Self {
        Prop {
            name: name.into(),
            value,
            source,
            received: None,
        }
    }

    /// What is computed, or belongs to the thing itself.
    #[must_use]
    pub fn number(name: impl Into<String>, value: u64) -> Self {
        Prop::new(name, PropValue::Number(value), Source::None)
    }

    /// The same, for a text.
    #[must_use]
    pub fn text(name: impl Into<String>, value: impl Into<String>) -> Self {
        Prop::new(name, PropValue::Text(value.into()), Source::None)
    }
}

/// A dataset or a pool, with what it says about itself. Properties that it does not have are left
/// out; `name` is not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// What it is called.
    pub name: String,
    /// What kind of dataset it is; none for pools and vdevs.
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
    /// Which table the properties are from.
    pub kind: TableKind,
    /// `-H`: no header, tabs.
    pub is_scripted: bool,
    /// `-p`: all digits.
    pub numbers: NumberStyle,
    /// Where the clock on the wall is.
    pub zone: Zone,
}

impl Style {
    /// What is printed without any option.
    #[must_use]
    pub fn new(kind: TableKind) -> Self {
        Style {
            kind,
            is_scripted: false,
            numbers: NumberStyle::Nice,
            zone: Zone::UTC,
        }
    }

    /// How a value prints.
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

    /// The value of an item's property, or its name; none if it has no such property.
    fn value_of(&self, item: &Item, name: &str) -> Option<String> {
        if name == "name" {
            return Some(item.name.clone());
        }
        item.get(name).map(|prop| self.format(name, &prop.value))
    }
}

/// A column of a listing.
pub(crate) struct Column {
    name: PropName,
    pub(crate) header: String,
    pub(crate) width: usize,
    pub(crate) is_right: bool,
    is_fixed: bool,
}

impl Column {
    fn new(kind: TableKind, name: &PropName) -> Self {
        match kind.lookup(name.as_str()) {
            Some(desc) => Column {
                name: name.clone(),
                header: desc.column.to_owned(),
                width: desc.width(),
                is_right: desc.is_right_aligned(),
                is_fixed: !desc.is_flexible,
            },
            None => Column {
                name: name.clone(),
                header: name.as_str().to_ascii_uppercase(),
                width: name.as_str().len(),
                is_right: false,
                is_fixed: false,
            },
        }
    }

    /// The same with its cells flush right.
    pub(crate) fn flush_right(&self) -> Self {
        Column {
            name: self.name.clone(),
            header: self.header.clone(),
            is_right: true,
            ..*self
        }
    }

    /// Makes room for `value`, unless the column's width is fixed.
    fn fit(&mut self, value: &str, numbers: NumberStyle) {
        if !self.is_fixed || numbers == NumberStyle::Exact {
            self.width = self.width.max(value.chars().count());
        }
    }
}

/// Columns with their widths, as all of `items` need them.
pub(crate) fn columns(style: &Style, names: &[PropName], items: &[Item]) -> Vec<Column> {
    let mut columns: Vec<Column> = names.iter().map(|n| Column::new(style.kind, n)).collect();
    for column in &mut columns {
        for item in items {
            if let Some(value) = style.value_of(item, column.name.as_str()) {
                column.fit(&value, style.numbers);
            }
        }
    }
    columns
}

/// One line; `cells` in the order of `columns`.
pub(crate) fn line(style: &Style, columns: &[Column], cells: &[String]) -> String {
    if style.is_scripted {
        return cells.join("\t") + "\n";
    }
    let mut out = String::new();
    for (at, (column, cell)) in columns.iter().zip(cells).enumerate() {
        if at > 0 {
            out += "  ";
        }
        let width = column.width;
        out += &match (column.is_right, at + 1 == columns.len()) {
            (true, _) => format!("{cell:>width$}"),
            (false, true) => cell.clone(),
            (false, false) => format!("{cell:<width$}"),
        };
    }
    out + "\n"
}

/// The header line.
pub(crate) fn header(style: &Style, columns: &[Column]) -> String {
    let cells: Vec<String> = columns.iter().map(|c| c.header.clone()).collect();
    line(style, columns, &cells)
}

/// The line of an item.
pub(crate) fn item_line(style: &Style, columns: &[Column], item: &Item) -> String {
    let cell = |column: &Column| {
        let value = style.value_of(item, column.name.as_str());
        value.unwrap_or_else(|| "-".to_owned())
    };
    let cells: Vec<String> = columns.iter().map(cell).collect();
    line(style, columns, &cells)
}

/// What `list` shows when it is not told: `zfs list` or `zpool list`.
#[must_use]
pub fn default_columns(kind: TableKind) -> Vec<PropName> {
    let names: &[&'static str] = match kind {
        TableKind::Dataset => &["name", "used", "available", "referenced", "mountpoint"],
        TableKind::Pool | TableKind::Vdev => &[
            "name",
            "size",
            "allocated",
            "free",
            "checkpoint",
            "expandsize",
            "fragmentation",
            "capacity",
            "dedupratio",
            "health",
            "altroot",
        ],
    };
    names.iter().map(|name| PropName::Native(name)).collect()
}

/// `zfs list`, or `zpool list` without `-v`. Nothing but the header when there are no items.
#[must_use]
pub fn list(style: &Style, names: &[PropName], items: &[Item]) -> String {
    let columns = columns(style, names, items);
    let mut out = String::new();
    if !style.is_scripted {
        out += &header(style, &columns);
    }
    for item in items {
        out += &item_line(style, &columns, item);
    }
    out
}

/// What to sort by: `-s name`, or `-S name` for the other way round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// The property.
    pub name: PropName,
    /// From the greatest to the least.
    pub is_reverse: bool,
}

/// Sorts datasets as `zfs list -s/-S` does; without keys, by name, snapshots below their dataset in
/// the order they were made.
#[doc(alias = "zfs_sort")]
pub fn sort_datasets(items: &mut [Item], keys: &[SortKey]) {
    items.sort_by(|a, b| {
        let by_key = keys.iter().map(|key| compare_by(key, a, b));
        by_key
            .fold(Ordering::Equal, Ordering::then)
            .then_with(|| compare_names(a, b))
    });
}

fn compare_by(key: &SortKey, a: &Item, b: &Item) -> Ordering {
    let name = key.name.as_str();
    let ordering = if name == "name" {
        a.name.cmp(&b.name)
    } else {
        let desc = TableKind::Dataset.lookup(name);
        let is_number = desc.is_some_and(|d| matches!(d.kind, Kind::Number(_)));
        let (Some(a), Some(b)) = (a.get(name), b.get(name)) else {
            // What has no such property comes last, whichever way round.
            return b.get(name).is_some().cmp(&a.get(name).is_some());
        };
        let style = Style::new(TableKind::Dataset);
        if is_number {
            a.value.as_number().cmp(&b.value.as_number())
        } else {
            style
                .format(name, &a.value)
                .cmp(&style.format(name, &b.value))
        }
    };
    if key.is_reverse {
        ordering.reverse()
    } else {
        ordering
    }
}

#[doc(alias = "zfs_compare")]
fn compare_names(a: &Item, b: &Item) -> Ordering {
    let split = |item: &Item| {
        let (dataset, snapshot) = match item.name.split_once('@') {
            Some((dataset, snapshot)) => (dataset, Some(snapshot)),
            None => (item.name.as_str(), None),
        };
        let txg = if snapshot.is_some() {
            item.number("createtxg")
        } else {
            0
        };
        (
            dataset.to_owned(),
            snapshot.is_some(),
            txg,
            snapshot.unwrap_or("").to_owned(),
        )
    };
    split(a).cmp(&split(b))
}

/// A column of `get`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetField {
    /// NAME
    Name,
    /// PROPERTY
    Property,
    /// VALUE
    Value,
    /// RECEIVED
    Received,
    /// SOURCE
    Source,
}

impl GetField {
    /// What `get` shows when it is not told.
    pub const DEFAULT: [GetField; 4] = [
        GetField::Name,
        GetField::Property,
        GetField::Value,
        GetField::Source,
    ];

    fn header(self) -> &'static str {
        match self {
            GetField::Name => "NAME",
            GetField::Property => "PROPERTY",
            GetField::Value => "VALUE",
            GetField::Received => "RECEIVED",
            GetField::Source => "SOURCE",
        }
    }
}

/// Reads `-o` of `get`: `name,property,value,received,source`, or `all`.
///
/// # Errors
/// The line to print.
pub fn parse_get_fields(text: &str) -> Result<Vec<GetField>, String> {
    let all = [
        GetField::Name,
        GetField::Property,
        GetField::Value,
        GetField::Received,
        GetField::Source,
    ];
    if text == "all" {
        return Ok(all.to_vec());
    }
    let mut fields = Vec::new();
    for word in text.split(',') {
        let field = all.iter().find(|f| f.header().eq_ignore_ascii_case(word));
        let field = *field.ok_or_else(|| format!("invalid column name '{word}'"))?;
        if fields.len() == all.len() {
            return Err("too many fields given to -o option".to_owned());
        }
        fields.push(field);
    }
    Ok(fields)
}

/// What `get` is asked for.
#[derive(Clone, Debug)]
pub struct GetRequest {
    /// The properties; `None` for all that an item has.
    pub properties: Option<Vec<PropName>>,
    /// The columns.
    pub fields: Vec<GetField>,
    /// `-s`: only values from these sources, by [`Source::word`], with "none" for "-"; empty for any.
    pub sources: Vec<String>,
}

impl GetRequest {
    /// All columns but RECEIVED, any source.
    #[must_use]
    pub fn new(properties: Option<Vec<PropName>>) -> Self {
        GetRequest {
            properties,
            fields: GetField::DEFAULT.to_vec(),
            sources: Vec::new(),
        }
    }

    fn admits(&self, source: &Source) -> bool {
        let word = if *source == Source::None {
            "none"
        } else {
            source.word()
        };
        self.sources.is_empty() || self.sources.iter().any(|s| s == word)
    }

    /// Names to show of an item, and whether those it does not have are left out.
    fn names(&self, style: &Style, items: &[Item]) -> (Vec<PropName>, bool) {
        if let Some(names) = &self.properties {
            return (names.clone(), false);
        }
        let table = all_properties(style.kind);
        let mut names: Vec<PropName> = table.iter().map(|d| PropName::Native(d.name)).collect();
        for prop in items.iter().flat_map(|item| &item.props) {
            let name = PropName::Other(prop.name.clone());
            if style.kind.lookup(&prop.name).is_none() && !names.contains(&name) {
                names.push(name);
            }
        }
        (names, true)
    }
}

struct GetRow {
    cells: [String; 5],
    source: Source,
}

fn get_rows(style: &Style, request: &GetRequest, items: &[Item]) -> Vec<GetRow> {
    let (names, skips_missing) = request.names(style, items);
    let mut rows = Vec::new();
    for item in items {
        for name in names.iter().map(PropName::as_str) {
            let prop = item.get(name);
            let value = style.value_of(item, name);
            if value.is_none() && skips_missing {
                continue;
            }
            let source = prop.map_or(Source::None, |prop| prop.source.clone());
            let received = prop.and_then(|prop| prop.received.clone());
            let dash = || "-".to_owned();
            rows.push(GetRow {
                cells: [
                    item.name.clone(),
                    name.to_owned(),
                    value.unwrap_or_else(dash),
                    received.unwrap_or_else(dash),
                    source.describe(),
                ],
                source,
            });
        }
    }
    rows
}

/// `zfs get`, `zpool get`. Nothing at all when there is nothing to show.
#[must_use]
#[doc(alias = "zprop_print_one_property")]
pub fn get(style: &Style, request: &GetRequest, items: &[Item]) -> String {
    let (names, _) = request.names(style, items);
    let base = |name: &PropName| match style.kind.lookup(name.as_str()) {
        Some(desc) => desc.width(),
        None => name.as_str().len(),
    };
    // `zfs get -p` is as wide as `zfs get`; `zpool get -p` looks at the digits.
    let widths_style = match style.kind {
        TableKind::Dataset => Style {
            numbers: NumberStyle::Nice,
            ..*style
        },
        TableKind::Pool | TableKind::Vdev => *style,
    };
    let fits = |name: &str| {
        let desc: Option<&PropDesc> = style.kind.lookup(name);
        widths_style.numbers == NumberStyle::Exact || desc.is_none_or(|d| d.is_flexible)
    };
    let rows = get_rows(&widths_style, request, items);
    // Values that a source filter hides count as well.
    let wide = |at: usize| {
        let cells = rows
            .iter()
            .filter(|row| at != 2 || fits(&row.cells[1]))
            .map(|r| &r.cells[at]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let values = names.iter().map(base).max().unwrap_or(0).max(wide(2));
    let properties = names.iter().map(|n| n.as_str().len()).max().unwrap_or(0);
    let name = wide(0).max(4);
    let widths = [
        name,
        properties.max(8),
        values.max(5),
        wide(3).max(8),
        name + 14,
    ];
    let mut out = String::new();
    let print = |out: &mut String, cells: &dyn Fn(GetField) -> String| {
        for (at, field) in request.fields.iter().enumerate() {
            let (cell, width) = (cells(*field), widths[*field as usize]);
            *out += &match (at + 1 == request.fields.len(), style.is_scripted) {
                (true, _) => cell + "\n",
                (false, true) => cell + "\t",
                (false, false) => format!("{cell:<width$}  "),
            };
        }
    };
    let rows = get_rows(style, request, items);
    for row in rows.iter().filter(|row| request.admits(&row.source)) {
        if out.is_empty() && !style.is_scripted {
            print(&mut out, &|field| field.header().to_owned());
        }
        print(&mut out, &|field| row.cells[field as usize].clone());
    }
    out
}

/// How JSON is to look.
#[derive(Clone, Copy, Debug, Default)]
pub struct JsonStyle {
    /// `--json-int`: numbers as numbers, exactly.
    pub has_numbers: bool,
    /// `--json-pool-key-guid`: pools under their guids rather than their names.
    pub has_guid_keys: bool,
}

impl JsonStyle {
    /// A number, as text or as a number.
    pub(crate) fn number(self, value: u64) -> Value {
        if self.has_numbers {
            json!(value)
        } else {
            json!(value.to_string())
        }
    }

    /// A formatted value; all digits become a number, if numbers are wanted.
    pub(crate) fn cell(self, text: &str) -> Value {
        match text.parse::<u64>() {
            Ok(number) if self.has_numbers => json!(number),
            _ => json!(text),
        }
    }
}

/// The envelope that every JSON output comes in, on one line.
#[must_use]
pub fn json_document(command: &str, body: Map<String, Value>) -> String {
    let mut document = Map::new();
    let version = json!({ "command": command, "vers_major": 0, "vers_minor": 1 });
    document.insert("output_version".to_owned(), version);
    document.extend(body);
    Value::Object(document).to_string() + "\n"
}

fn json_source(source: &Source) -> Value {
    let data = match source {
        Source::Inherited(from) => from.as_str(),
        _ => "-",
    };
    json!({ "type": source.json_type(), "data": data })
}

/// The properties of an item, by name.
pub(crate) fn json_properties(
    style: &Style,
    json_style: JsonStyle,
    request: &GetRequest,
    item: &Item,
) -> Map<String, Value> {
    let mut out = Map::new();
    for row in get_rows(style, request, std::slice::from_ref(item)) {
        let [_, name, value, ..] = &row.cells;
        if name != "name" && request.admits(&row.source) {
            let value = json_style.cell(value);
            let entry = json!({ "value": value, "source": json_source(&row.source) });
            out.insert(name.clone(), entry);
        }
    }
    out
}

/// The style that JSON is made in: with numbers, they are exact.
pub(crate) fn json_numbers(style: &Style, json_style: JsonStyle) -> Style {
    let numbers = if json_style.has_numbers {
        NumberStyle::Exact
    } else {
        style.numbers
    };
    Style { numbers, ..*style }
}

/// `zfs list -j` and `zfs get -j`: `command` is which of them. Every item needs `createtxg` and
/// `type` among its properties, whether asked for or not.
#[must_use]
pub fn datasets_json(
    command: &str,
    style: &Style,
    json_style: JsonStyle,
    request: &GetRequest,
    items: &[Item],
) -> String {
    let style = json_numbers(style, json_style);
    let mut datasets = Map::new();
    for item in items {
        let mut entry = Map::new();
        entry.insert("name".to_owned(), json!(item.name));
        let kind = item
            .get("type")
            .and_then(|prop| prop.value.as_text())
            .unwrap_or("");
        entry.insert("type".to_owned(), json!(kind.to_ascii_uppercase()));
        entry.insert("pool".to_owned(), json!(crate::name::pool_of(&item.name)));
        entry.insert(
            "createtxg".to_owned(),
            json_style.number(item.number("createtxg")),
        );
        if let Some((dataset, snapshot)) = item.name.split_once('@') {
            entry.insert("dataset".to_owned(), json!(dataset));
            entry.insert("snapshot_name".to_owned(), json!(snapshot));
        }
        let properties = json_properties(&style, json_style, request, item);
        entry.insert("properties".to_owned(), Value::Object(properties));
        datasets.insert(item.name.clone(), Value::Object(entry));
    }
    let mut body = Map::new();
    body.insert("datasets".to_owned(), Value::Object(datasets));
    json_document(command, body)
}
