//! What gpart(8) prints about a table.

mod human;
mod list;
mod show;

use std::fmt::Write;

use crate::{Partition, Table};

pub use human::human;
pub use list::list;
pub use show::{Row, Show, rows, show};

/// `gpart status`: name, state, disk of each partition.
#[must_use]
pub fn status(tables: &[(String, Table)]) -> String {
    let mut rows = Vec::new();
    for (disk, table) in tables {
        let state = if table.is_corrupt { "CORRUPT" } else { "OK" };
        for one in table.partitions() {
            rows.push((format!("{disk}{}", one.suffix()), state, disk));
        }
    }
    let name = rows.iter().map(|r| r.0.len()).fold(4, usize::max);
    let state = rows.iter().map(|r| r.1.len()).fold(6, usize::max);
    let mut text = format!("{:>name$}  {:>state$}  Components\n", "Name", "Status");
    for (one, is, disk) in rows {
        let _ = writeln!(text, "{one:>name$}  {is:>state$}  {disk}");
    }
    text
}

fn label_or_null(one: &Partition) -> String {
    let label = one.label();
    if label.is_empty() {
        "(null)".to_owned()
    } else {
        label
    }
}
