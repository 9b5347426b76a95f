//! Tables compared with a model, damaged, torn by power cuts, and in gpart's words.

mod damage;
mod operations;
mod random;

use ram::Memory;

use crate::{Era, NewPartition, Scheme, Shape, Table, Wish};

/// A disk of that many sectors.
pub(crate) fn disk(sectors: u64, sectorsize: u32, stripesize: u32) -> Memory {
    let bytes = sectors * u64::from(sectorsize);
    Memory::with_sectors("ada0", bytes, sectorsize, stripesize)
}

/// An empty table, written.
pub(crate) fn fresh(disk: &Memory, scheme: Scheme, era: Era) -> Table {
    let table = Table::create(scheme, Shape::of(disk), None, era).unwrap();
    table.write(disk).unwrap();
    table
}

/// `add` with a size in sectors.
pub(crate) fn add(table: &mut Table, kind: &str, size: Option<u64>) -> u32 {
    let new = NewPartition {
        wish: Wish {
            size,
            ..Wish::default()
        },
        ..NewPartition::default()
    };
    table.add(kind, &new).unwrap()
}
