use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

impl std::fmt::Debug for Draid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of {} children", self.shape, self.children)
    }
}

const SECTOR: u64 = 4096;
const SHIFT: u32 = 12;

fn draid(nparity: u64, ndata: u64, nspares: u64, children: u64) -> Draid {
    let shape = DraidShape::new(nparity, ndata, nspares, children).expect("a possible shape");
    Draid::new(shape, children as usize)
}

fn shape(draid: &Draid) -> Shape {
    Shape {
        children: draid.children as usize,
        ashift: SHIFT,
        birth: base::Txg(5),
    }
}

/// A simple model: walks over all sectors of the dRAID from the first one on, in the order in which they are
/// given out, and notes the child and the sector of each.
fn walk(draid: &Draid, slices: u64) -> Vec<(usize, u64)> {
    let (width, used) = (draid.width(), draid.used());
    let sectors_of_row = ROW_BYTES / SECTOR;
    let mut sectors = Vec::new();
    let (mut row, mut position) = (0, 0);
    for slice in 0..slices {
        for _ in 0..draid.shape.ngroups {
            let mut columns = Vec::new();
            for _ in 0..width {
                let child = draid.permutations.get(slice).child(position as usize);
                columns.push((child, row));
                position += 1;
                if position == used {
                    (row, position) = (row + 1, 0);
                }
            }
            // Only the first and the last two sector rows: between them nothing changes.
            for at in [0, 1, sectors_of_row - 2, sectors_of_row - 1] {
                let sector = |(child, row): &(usize, u64)| (*child, row * sectors_of_row + at);
                sectors.extend(columns.iter().map(sector));
            }
        }
        assert_eq!(position, 0, "a slice ends with a row");
    }
    sectors
}

/// The sectors of a block, in the order of [`walk`].
fn sectors_of(draid: &Draid, offset: u64, sectors: usize) -> Vec<(usize, u64)> {
    let bytes = sectors << SHIFT;
    let rows = draid.rows(shape(draid), offset, bytes).unwrap();
    let mut all = Vec::new();
    for row in rows.iter() {
        let columns: Vec<Column> = row.columns().collect();
        for at in 0..columns[0].stored as u64 / SECTOR {
            let sector = |column: &Column| (column.child, column.offset / SECTOR + at);
            all.extend(columns.iter().map(sector));
        }
    }
    all
}

#[test]
fn the_picture_above_is_what_is_computed() {
    let draid = draid(1, 2, 1, 6);
    assert_eq!(draid.shape.ngroups, 5);
    let order = draid.permutations.get(0);
    let at = |group: u64| {
        let row = draid.row(SHIFT, group * draid.group_bytes(), 2);
        let position = |column: Column| {
            let position = (0..6).find(|n| order.child(*n) == column.child).unwrap();
            (position, column.offset / ROW_BYTES)
        };
        row.columns().map(position).collect::<Vec<_>>()
    };
    assert_eq!(at(0), [(0, 0), (1, 0), (2, 0)]);
    assert_eq!(at(1), [(3, 0), (4, 0), (0, 1)]);
    assert_eq!(at(2), [(1, 1), (2, 1), (3, 1)]);
    assert_eq!(at(3), [(4, 1), (0, 2), (1, 2)]);
    assert_eq!(at(4), [(2, 2), (3, 2), (4, 2)]);
}

#[test]
fn known_shapes_have_known_numbers() {
    // parity, data, spares, children -> groups
    for (nparity, ndata, nspares, children, ngroups) in [
        (1, 8, 2, 14, 4),
        (1, 2, 0, 3, 1),
        (2, 8, 2, 24, 11),
        (1, 1, 1, 3, 1),
        (3, 13, 0, 255, 255),
    ] {
        let shape = DraidShape::new(nparity, ndata, nspares, children).unwrap();
        assert_eq!(u64::from(shape.ngroups), ngroups, "{shape:?}");
    }
    // Too few children, too many, no data, too many spares, too much parity.
    for (nparity, ndata, nspares, children) in [
        (1, 2, 1, 3),
        (1, 2, 0, 256),
        (1, 0, 0, 3),
        (1, 1, 101, 200),
        (4, 1, 0, 9),
    ] {
        let shape = DraidShape::new(nparity, ndata, nspares, children);
        assert_eq!(shape, None, "{nparity}, {ndata}, {nspares}, {children}");
    }
}

#[test]
fn known_sizes_are_those_of_openzfs() {
    let draid = draid(1, 2, 0, 3);
    // 58 MiB of each child: a row and a reserve of two.
    assert_eq!(draid.asize(&[(58 << 20) + 4096; 3]), 48 << 20);
    assert_eq!(draid.asize(&[64 << 20, 80 << 20, 64 << 20]), 96 << 20);
    assert_eq!(draid.asize(&[16 << 20; 3]), 0);
    assert_eq!(draid.min_child_asize(3, 96 << 20), 64 << 20);
    assert_eq!(draid.psize_to_asize(shape(&draid), 512), 3 * SECTOR);
    assert_eq!(draid.psize_to_asize(shape(&draid), 131_072), 48 * SECTOR);
    assert_eq!(draid.psize_to_asize(shape(&draid), 3 * SECTOR), 6 * SECTOR);
    assert_eq!(draid.min_alloc(SHIFT), 2 * SECTOR);
    assert_eq!(draid.metaslab_align(SHIFT), 3 * SECTOR);
}

#[test]
fn an_offset_within_a_row_of_sectors_is_refused() {
    let draid = draid(1, 2, 0, 3);
    let error = draid.rows(shape(&draid), SECTOR, 4096).unwrap_err();
    assert_eq!(error.kind(), base::ErrorKind::Corrupt);
    let huge = 3 * draid.group_bytes() as usize;
    draid.rows(shape(&draid), 0, huge).unwrap_err();
}

/// Any shape, with few children more often than with many.
fn shapes() -> impl Strategy<Value = Draid> {
    let numbers = (
        1u64..=3,
        1u64..=12,
        0u64..=4,
        prop_oneof![4 => 0u64..12, 1 => 0u64..=200],
    );
    numbers.prop_map(|(nparity, ndata, nspares, more)| {
        draid(nparity, ndata, nspares, nparity + ndata + nspares + more)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn prop_each_sector_lies_at_one_place_and_none_on_spares(draid in shapes()) {
        let slices = 3;
        let model = walk(&draid, slices);
        let mut used = BTreeSet::new();
        for (child, sector) in &model {
            prop_assert!(used.insert((*child, *sector)), "sector {} of {} is used twice", sector, child);
            let row = sector * SECTOR / ROW_BYTES;
            let rows_of_slice = draid.width() * u64::from(draid.shape.ngroups) / draid.used();
            let order = draid.permutations.get(row / rows_of_slice);
            let is_spare = |n: u64| order.child(n as usize) == *child;
            prop_assert!(!(draid.used()..draid.children).any(is_spare));
        }
        // Blocks of one row of sectors each, at the beginning and end of each group.
        let groups = slices * u64::from(draid.shape.ngroups);
        let row = draid.sector_row(SHIFT);
        let ndata = usize::from(draid.shape.ndata);
        let mut found = Vec::new();
        for group in 0..groups {
            let (start, end) = (group * draid.group_bytes(), (group + 1) * draid.group_bytes());
            for offset in [start, start + row, end - 2 * row, end - row] {
                found.extend(sectors_of(&draid, offset, ndata));
            }
        }
        prop_assert_eq!(found, model);
    }

    #[test]
    fn prop_a_block_has_its_bytes_once_in_columns_on_different_children(
        draid in shapes(),
        group in 0u64..2000,
        before_end in 1u64..40,
        sectors in 1usize..300,
    ) {
        let row_bytes = draid.sector_row(SHIFT);
        let offset = (group + 1) * draid.group_bytes() - before_end * row_bytes;
        let rows = draid.rows(shape(&draid), offset, sectors << SHIFT).unwrap();
        let nparity = draid.nparity();
        let (mut data, mut taken) = (0, 0);
        for row in rows.iter() {
            let columns: Vec<Column> = row.columns().collect();
            let children: BTreeSet<usize> = columns.iter().map(|c| c.child).collect();
            prop_assert_eq!(children.len(), columns.len());
            prop_assert_eq!(columns.len() as u64, draid.width());
            let longest = columns[nparity].bytes;
            prop_assert!(columns[..nparity].iter().all(|c| c.bytes == longest));
            prop_assert!(columns.iter().all(|c| c.stored == longest));
            prop_assert!(columns.is_sorted_by(|a, b| a.bytes >= b.bytes));
            let shorter = columns.iter().map(|c| c.stored - c.bytes).max().unwrap();
            prop_assert!(shorter <= SECTOR as usize);
            data += columns[nparity..].iter().map(|c| c.bytes).sum::<usize>();
            taken += columns.iter().map(|c| c.stored).sum::<usize>();
        }
        prop_assert_eq!(data, sectors << SHIFT);
        prop_assert_eq!(taken as u64, draid.psize_to_asize(shape(&draid), (sectors << SHIFT) as u64));
    }

    #[test]
    fn prop_blocks_behind_each_other_are_behind_each_other_on_each_child(
        draid in shapes(),
        group in 0u64..300,
        lens in proptest::collection::vec(1u64..600, 1..8),
    ) {
        let mut at = (group + 1) * draid.group_bytes() - 300 * draid.sector_row(SHIFT);
        let mut ends: BTreeMap<usize, u64> = BTreeMap::new();
        for len in lens {
            let rows = draid.rows(shape(&draid), at, (len * SECTOR) as usize).unwrap();
            for row in rows.iter() {
                for column in row.columns() {
                    let end = ends.entry(column.child).or_insert(column.offset);
                    prop_assert_eq!(*end, column.offset);
                    *end += column.stored as u64;
                }
            }
            at += draid.psize_to_asize(shape(&draid), len * SECTOR);
        }
    }

    #[test]
    fn prop_children_that_are_large_enough_hold_everything(draid in shapes(), mib in 64u64..5000) {
        let each = mib << 20;
        let asize = draid.asize(&vec![each; draid.children as usize]);
        prop_assert_eq!(asize % draid.group_bytes(), 0);
        prop_assert!(draid.min_child_asize(0, asize) <= each);
        if asize > 0 {
            let row = draid.sector_row(SHIFT);
            let last = draid.rows(shape(&draid), asize - row, SECTOR as usize).unwrap();
            let end = |column: Column| column.offset + column.stored as u64;
            let first = last.iter().next().expect("a row");
            let ends = first.columns().map(end);
            prop_assert!(ends.max().unwrap() <= each - RESERVE_BYTES);
        }
    }
}
