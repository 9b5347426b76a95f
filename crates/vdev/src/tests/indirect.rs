//! Removed vdevs: blocks in one piece and in several, copies of pieces that are wrong, mappings beside a simple model.

use std::collections::BTreeMap;

use super::*;
use base::ErrorKind;
use phys::DvaPhys;
use phys::label::LABEL_START_SIZE;
use phys::scan::IndirectMappingEntryPhys;
use ram::Memory;

const GONE: VdevId = VdevId(2);
const SECTOR: u64 = 512;

/// Two mirrors, and a removed vdev whose mapping has these ranges: offset, vdev, offset there, length.
fn removed_tree(ranges: &[(u64, u64, u64, u64)]) -> (Vec<Arc<Memory>>, Arc<VdevTree>) {
    let disks: Vec<_> = (0..4)
        .map(|n| Arc::new(Memory::new(format!("/disk{n}"), DISK_BYTES)))
        .collect();
    let mirror_of = |n: usize| {
        let sides = (0..2).map(|side| {
            let disk: Arc<dyn Provider> = disks[2 * n + side].clone();
            leaf(100 + (2 * n + side) as u64, disk)
        });
        let config = VdevConfig {
            ashift: 9,
            ms_array: 256,
            ms_shift: 24,
            asize: allocatable_size(DISK_BYTES),
            ..VdevConfig::default()
        };
        Vdev::new(
            VdevKind::Mirror,
            Guid(200 + n as u64),
            config,
            sides.collect(),
        )
    };
    let config = VdevConfig {
        ashift: 9,
        asize: allocatable_size(DISK_BYTES),
        ..VdevConfig::default()
    };
    let gone = Vdev::new(VdevKind::Indirect, Guid(300), config, Vec::new());
    gone.set_mapping(Arc::new(mapping(ranges)));
    (disks.clone(), tree(vec![mirror_of(0), mirror_of(1), gone]))
}

fn mapping(ranges: &[(u64, u64, u64, u64)]) -> Mapping {
    let entry = |(at, vdev, offset, size): &(u64, u64, u64, u64)| {
        IndirectMappingEntryPhys::new(*at, DvaPhys::new(VdevId(*vdev), *offset, *size, false))
    };
    let entries: Vec<_> = ranges.iter().map(entry).collect();
    Mapping::new(&entries, Vec::new()).unwrap()
}

const RANGES: [(u64, u64, u64, u64); 3] = [
    (0, 0, 1 << 20, 4096),
    (4096, 1, 2 << 20, 8192),
    (16384, 0, 3 << 20, 4096),
];

#[test]
fn a_block_is_read_through_the_mapping_whole_and_split() {
    let (_, tree) = removed_tree(&RANGES);
    tree.write_block(VdevId(0), 1 << 20, &[1; 4096]).unwrap();
    tree.write_block(VdevId(1), 2 << 20, &[2; 8192]).unwrap();
    let mut buf = vec![0; 2048];
    tree.read_block(GONE, 1024, &mut buf, &|b| b == [1; 2048])
        .unwrap();
    let split = [[1; 2048], [2; 2048]].concat();
    let mut buf = vec![0; 4096];
    tree.read_block(GONE, 2048, &mut buf, &|b| b == split)
        .unwrap();
    assert_eq!(buf, split);
    let unmapped = tree.read_block(GONE, 12288, &mut buf, &|_| true);
    assert_eq!(unmapped.unwrap_err().kind(), ErrorKind::Corrupt);
    let new = tree.write_block(GONE, 0, &[0; 512]);
    assert_eq!(new.unwrap_err().kind(), ErrorKind::Corrupt);
}

/// Of a split block, one side of the first piece and the other side of the second one are wrong.
#[test]
fn a_split_block_is_put_together_from_good_copies_and_repaired() {
    let (disks, tree) = removed_tree(&RANGES);
    tree.write_block(VdevId(0), 1 << 20, &[1; 4096]).unwrap();
    tree.write_block(VdevId(1), 2 << 20, &[2; 8192]).unwrap();
    let at = |offset: u64| offset + LABEL_START_SIZE;
    disks[0].write(at((1 << 20) + 2048), &[9; 2048]).unwrap();
    disks[3].write(at(2 << 20), &[8; 2048]).unwrap();
    let good = [[1; 2048], [2; 2048]].concat();
    let mut buf = vec![0; 4096];
    tree.read_block(GONE, 2048, &mut buf, &|b| b == good)
        .unwrap();
    assert_eq!(buf, good);
    for (disk, offset) in [(0, (1 << 20) + 2048), (3, 2 << 20)] {
        let mut buf = vec![0; 2048];
        disks[disk].read(at(offset), &mut buf).unwrap();
        assert_eq!(
            buf,
            vec![if disk == 0 { 1 } else { 2 }; 2048],
            "disk {disk}"
        );
    }
    let errors: Vec<u64> = tree
        .devices()
        .iter()
        .map(|device| device.stats().snapshot().checksum_errors)
        .collect();
    assert_eq!(errors, [1, 0, 0, 1]);
    let wrong = tree.read_block(GONE, 2048, &mut buf, &|_| false);
    assert_eq!(wrong.unwrap_err().kind(), ErrorKind::Checksum);
}

#[test]
fn a_scrub_finds_and_repairs_each_bad_copy() {
    let (disks, tree) = removed_tree(&RANGES);
    tree.write_block(VdevId(0), 1 << 20, &[1; 4096]).unwrap();
    tree.write_block(VdevId(1), 2 << 20, &[2; 8192]).unwrap();
    disks[1]
        .write((1 << 20) + LABEL_START_SIZE + 2048, &[7; 512])
        .unwrap();
    let good = [[1; 2048], [2; 2048]].concat();
    let block = RunBlock {
        offset: 2048,
        range: 0..4096,
        birth: BIRTH,
    };
    for bad in [1, 0] {
        let mut buf = vec![0; 4096];
        let blocks = std::slice::from_ref(&block);
        let found = tree.scrub(GONE, &mut buf, blocks, &|_, b| b == good);
        let report = found.unwrap().pop().unwrap().unwrap();
        assert_eq!((report.bad, report.repaired), (bad, bad));
    }
}

/// What frees a block takes note of what it is shown: nothing of a range that is not mapped.
#[test]
fn a_range_of_which_a_part_is_not_mapped_is_not_shown() {
    let (_, tree) = removed_tree(&RANGES);
    let mut seen = Vec::new();
    let error = tree
        .remap(GONE, 4096, 16384, &mut |piece, is_removed| {
            seen.push((*piece, is_removed));
            Ok(())
        })
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(seen, []);
}

#[test]
fn mappings_that_lead_in_a_circle_are_refused() {
    let (_, tree) = removed_tree(&[(0, 2, 0, 4096)]);
    let mut buf = vec![0; 512];
    let outcome = tree.read_block(GONE, 0, &mut buf, &|_| true);
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Corrupt);
}

proptest::proptest! {
    /// Each sector is where a map of sectors says, and what is not mapped is refused.
    #[test]
    fn prop_pieces_are_those_of_a_map_of_sectors(
        lengths in proptest::collection::vec((0u64..4, 1u64..6, 0u64..2, 0u64..1000), 1..20),
        (from, count) in (0u64..120, 1u64..20),
    ) {
        let mut model = BTreeMap::new();
        let mut ranges = Vec::new();
        let mut at = 0;
        for (gap, length, vdev, there) in lengths {
            at += gap;
            for n in 0..length {
                model.insert(at + n, (vdev, there + n));
            }
            ranges.push((at * SECTOR, vdev, there * SECTOR, length * SECTOR));
            at += length;
        }
        let mapping = mapping(&ranges);
        let expected: Option<Vec<_>> = (from..from + count).map(|n| model.get(&n).copied()).collect();
        let found = mapping.pieces(from * SECTOR, count * SECTOR);
        match expected {
            None => assert!(found.is_err()),
            Some(expected) => {
                let pieces = found.unwrap();
                let mut sectors = Vec::new();
                for piece in pieces {
                    assert_eq!(piece.at, sectors.len() as u64 * SECTOR);
                    let first = piece.offset / SECTOR;
                    sectors.extend((0..piece.size / SECTOR).map(|n| (piece.vdev.0, first + n)));
                }
                assert_eq!(sectors, expected);
            }
        }
        assert_eq!(mapping.max_offset(), at * SECTOR);
        assert_eq!(mapping.bytes_mapped(), model.len() as u64 * SECTOR);
    }
}
