//! `gpart show`: partitions and free space, one line each.

use std::fmt::Write;

use super::{human, label_or_null};
use crate::{Partition, Table, align};

/// What `gpart show` prints for each partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Show {
    /// Its type.
    #[default]
    Type,
    /// Its label (`-l`).
    Label,
    /// Its raw type as stored on disk (`-r`).
    Raw,
}

/// A line of `gpart show`: a partition, or free space.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// The first sector.
    pub start: u64,
    /// The number of sectors.
    pub sectors: u64,
    /// `None`: free space.
    pub partition: Option<&'a Partition>,
}

/// Partitions and free space in disk order.
#[must_use]
pub fn rows(table: &Table) -> Vec<Row<'_>> {
    let free = align::free_ranges(table)
        .into_iter()
        .map(|(first, last)| Row {
            start: first,
            sectors: last - first + 1,
            partition: None,
        });
    let taken = table.partitions().iter().map(|p| Row {
        start: p.start_sector,
        sectors: p.sectors,
        partition: Some(p),
    });
    let mut rows: Vec<_> = free.chain(taken).collect();
    rows.sort_by_key(|row| (row.start, row.partition.is_some()));
    rows
}

/// `gpart show`.
#[must_use]
pub fn show(table: &Table, disk: &str, what: Show, with_names: bool) -> String {
    let sector = u64::from(table.shape.sectorsize);
    let blocks = table.last.to_string().len();
    let names = table
        .partitions
        .iter()
        .map(|p| disk.len() + p.suffix().len());
    let width = names.filter(|_| with_names).fold(disk.len(), usize::max);
    let size = human(table.shape.mediasize);
    let state = if table.is_corrupt { " [CORRUPT]" } else { "" };
    let (first, scheme) = (table.first, table.scheme.name());
    let count = (table.last + 1).saturating_sub(first);
    let mut text = format!(
        "=>{first:>blocks$}  {count:>blocks$}  {disk:>width$}  {scheme}  ({size}){state}\n"
    );
    for row in rows(table) {
        let size = human(row.sectors.saturating_mul(sector));
        let (start, sectors) = (row.start, row.sectors);
        let (name, says) = match row.partition {
            None => (String::new(), "- free -".to_owned()),
            Some(one) => {
                let name = if with_names {
                    format!("{disk}{}", one.suffix())
                } else {
                    one.index.to_string()
                };
                let mut says = match what {
                    Show::Type => one.kind.to_string(),
                    Show::Label => label_or_null(one),
                    Show::Raw => one.kind.raw(),
                };
                let attributes = one.attribute_names();
                if !attributes.is_empty() {
                    let _ = write!(says, "  [{}]", attributes.join(","));
                }
                (name, says)
            }
        };
        let _ = writeln!(
            text,
            "  {start:>blocks$}  {sectors:>blocks$}  {name:>width$}  {says}  ({size})"
        );
    }
    text.push('\n');
    text
}
