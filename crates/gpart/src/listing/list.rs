//! `gpart list`: everything that is known about a table.

use std::fmt::Write;

use super::{human, label_or_null};
use crate::{Kind, Partition, Table};

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
        let offset = shape.misalignment(0);
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
        let (size, offset) = (shape.stripesize, shape.misalignment(one.start_sector));
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
