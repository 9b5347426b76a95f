//! What gpart(8) prints of a table.

use std::fmt::Write;

use crate::{Kind, Partition, Shape, Table, align};

/// Bytes as gpart prints them: at most three digits and a letter, one decimal below ten.
#[must_use]
pub fn human(bytes: u64) -> String {
    const LETTERS: [char; 7] = ['B', 'K', 'M', 'G', 'T', 'P', 'E'];
    let (mut quotient, mut remainder, mut step) = (bytes, 0, 0);
    while (quotient >= 1000 || (quotient == 999 && remainder >= 512)) && step + 1 < LETTERS.len() {
        remainder = quotient % 1024;
        quotient /= 1024;
        step += 1;
    }
    let letter = LETTERS[step];
    let tenths = (remainder * 10 + 512) / 1024;
    if step > 0 && (quotient < 9 || (quotient == 9 && tenths < 10)) {
        let (whole, tenth) = (quotient + tenths / 10, tenths % 10);
        return format!("{whole}.{tenth}{letter}");
    }
    let rounded = quotient + (remainder + 512) / 1024;
    format!("{rounded}{letter}")
}

/// What `gpart show` says of each partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Show {
    /// Its type.
    #[default]
    Type,
    /// Its label (`-l`).
    Label,
    /// Its type as it lies on disk (`-r`).
    Raw,
}

/// A line of `gpart show`: a partition, or free space.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// The first sector.
    pub start: u64,
    /// How many.
    pub sectors: u64,
    /// Nothing: free.
    pub partition: Option<&'a Partition>,
}

/// Partitions and free space in the order in which they lie on the disk.
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

fn label_or_null(one: &Partition) -> String {
    let label = one.label();
    if label.is_empty() {
        "(null)".to_owned()
    } else {
        label
    }
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

/// What GEOM calls the stripe offset: where a sector lies inside of its physical sector, in bytes.
#[must_use]
pub(crate) fn stripe_offset(shape: &Shape, sector: u64) -> u64 {
    shape.misalignment(sector)
}

/// `gpart list`: everything.
#[must_use]
pub fn list(table: &Table, disk: &str) -> String {
    let shape = &table.shape;
    let state = if table.is_corrupt { "CORRUPT" } else { "OK" };
    let mut text = format!(
        "Geom name: {disk}\nmodified: false\nstate: {state}\nfwheads: 255\nfwsectors: 63\n\
         last: {}\nfirst: {}\nentries: {}\nscheme: {}\nProviders:\n",
        table.last,
        table.first,
        table.entries,
        table.scheme.name()
    );
    for (n, one) in (1..).zip(&table.partitions) {
        list_partition(&mut text, table, disk, n, one);
    }
    let _ = write!(
        text,
        "Consumers:\n1. Name: {disk}\n   Mediasize: {} ({})\n   Sectorsize: {}\n",
        shape.mediasize,
        human(shape.mediasize),
        shape.sectorsize
    );
    if shape.stripesize > shape.sectorsize {
        let offset = stripe_offset(shape, 0);
        let size = shape.stripesize;
        let _ = writeln!(text, "   Stripesize: {size}\n   Stripeoffset: {offset}");
    }
    text.push_str("   Mode: r0w0e0\n\n");
    text
}

fn list_partition(text: &mut String, table: &Table, disk: &str, n: u32, one: &Partition) {
    let shape = &table.shape;
    let sector = u64::from(shape.sectorsize);
    let bytes = one.sectors.saturating_mul(sector);
    let _ = write!(
        text,
        "{n}. Name: {disk}{}\n   Mediasize: {bytes} ({})\n   Sectorsize: {sector}\n",
        one.suffix(),
        human(bytes)
    );
    if shape.stripesize > shape.sectorsize {
        let (size, offset) = (shape.stripesize, stripe_offset(shape, one.start_sector));
        let _ = writeln!(text, "   Stripesize: {size}\n   Stripeoffset: {offset}");
    }
    text.push_str("   Mode: r0w0e0\n");
    let (start, sectors) = (one.start_sector, one.sectors);
    let place = format!("{start:#x},{sectors:#x}");
    let index = one.index;
    for attribute in one.attribute_names() {
        let _ = writeln!(text, "   attrib: {attribute}");
    }
    match one.kind {
        Kind::Gpt(_) => {
            let _ = write!(
                text,
                "   efimedia: HD({index},GPT,{},{place})\n   rawuuid: {}\n   rawtype: {}\n   label: {}\n",
                one.guid,
                one.guid,
                one.kind.raw(),
                label_or_null(one)
            );
        }
        Kind::Mbr(byte) => {
            let serial = table.serial();
            let _ = write!(
                text,
                "   efimedia: HD({index},MBR,{serial:#010x},{place})\n   rawtype: {byte}\n"
            );
        }
    }
    let offset = start.saturating_mul(sector);
    let (kind, end) = (one.kind, one.last_sector());
    let _ = write!(
        text,
        "   length: {bytes}\n   offset: {offset}\n   type: {kind}\n   index: {index}\n   end: {end}\n   start: {start}\n"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_printed_as_by_humanize_number() {
        let check = |bytes: u64, expect: &str| assert_eq!(human(bytes), expect, "{bytes}");
        check(0, "0B");
        check(512, "512B");
        check(999, "999B");
        check(1000, "1.0K");
        check(1023, "1.0K");
        check(118 * 512, "59K");
        check(66584 * 512, "33M");
        check(2_097_152 * 512, "1.0G");
        check(10_486_633 * 512, "5.0G");
        check(29_292_544 * 512, "14G");
        check(3_000_592_982_016, "2.7T");
        check(1_000_204_886_016, "932G");
        check(524_288, "512K");
        check(10 << 20, "10M");
        check((10 << 20) - 1, "10M");
        check(1023 << 10, "1.0M");
        check(u64::MAX, "16E");
    }
}
