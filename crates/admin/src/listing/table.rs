//! Tables: `zfs list` and `zpool list`.

use crate::number::NumberStyle;
use crate::prop::{PropName, TableKind};

use super::{Item, Style};

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

    /// The same column with its cells flush right.
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

/// Columns, wide enough for all of `items`.
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

/// The columns of `zfs list` or `zpool list` without `-o`.
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

/// `zfs list`, or `zpool list` without `-v`. Only the header if there are no items.
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
