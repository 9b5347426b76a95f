//! `zfs get` and `zpool get`: a line for each property.

use crate::number::NumberStyle;
use crate::prop::{PropDesc, PropName, Source, TableKind, all_properties};

use super::{Item, Style};

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
    /// The columns of `get` without `-o`.
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

/// Parses `-o` of `get`: `name,property,value,received,source`, or `all`.
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

/// The options of `get`.
#[derive(Clone, Debug)]
pub struct GetRequest {
    /// The properties; `None` for all that an item has.
    pub properties: Option<Vec<PropName>>,
    /// The columns.
    pub fields: Vec<GetField>,
    /// `-s`: only values from these sources, by [`Source::word`], with "none" for "-"; empty for any.
    pub sources: Vec<String>,
    /// The first item alone decides how wide the columns are: `zpool get … all-vdevs`.
    pub measures_first: bool,
}

impl GetRequest {
    /// All columns but RECEIVED, any source.
    #[must_use]
    pub fn new(properties: Option<Vec<PropName>>) -> Self {
        GetRequest {
            properties,
            fields: GetField::DEFAULT.to_vec(),
            sources: Vec::new(),
            measures_first: false,
        }
    }

    pub(super) fn admits(&self, source: &Source) -> bool {
        let word = if *source == Source::None {
            "none"
        } else {
            source.word()
        };
        self.sources.is_empty() || self.sources.iter().any(|s| s == word)
    }

    /// The properties to show, and whether those that an item does not have are left out.
    fn names(&self, style: &Style, items: &[Item]) -> (Vec<PropName>, bool) {
        if let Some(names) = &self.properties {
            // A vdev has no line for what it does not have.
            return (names.clone(), style.kind == TableKind::Vdev);
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

pub(super) struct GetRow {
    pub(super) cells: [String; 5],
    pub(super) source: Source,
}

pub(super) fn get_rows(style: &Style, request: &GetRequest, items: &[Item]) -> Vec<GetRow> {
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

/// `zfs get`, `zpool get`. Empty, without a header, if there is nothing to show.
#[must_use]
#[doc(alias = "zprop_print_one_property")]
pub fn get(style: &Style, request: &GetRequest, items: &[Item]) -> String {
    let (names, _) = request.names(style, items);
    let base = |name: &PropName| match style.kind.lookup(name.as_str()) {
        Some(desc) => desc.width(),
        None => name.as_str().len(),
    };
    // `zfs get -p` has the column widths of `zfs get`; those of `zpool get -p` of pools fit the exact numbers.
    let widths_style = match style.kind {
        TableKind::Dataset | TableKind::Vdev => Style {
            numbers: NumberStyle::Nice,
            ..*style
        },
        TableKind::Pool => *style,
    };
    let fits = |name: &str| {
        let desc: Option<&PropDesc> = style.kind.lookup(name);
        widths_style.numbers == NumberStyle::Exact || desc.is_none_or(|d| d.is_flexible)
    };
    let measured = if request.measures_first {
        items.len().min(1)
    } else {
        items.len()
    };
    let rows = get_rows(&widths_style, request, &items[..measured]);
    // Values that a source filter hides count for the widths as well.
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
