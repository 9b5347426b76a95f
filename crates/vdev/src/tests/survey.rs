//! Blocks that no pointer leads to are sighted where they begin, on every kind of vdev.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::striped::{Pool, SECTOR, TOP, draid, raidz};
use super::*;
use faulty::Damage;

/// What marks the first sector of a block.
const MARK: &[u8; 16] = b"a block begins: ";

/// The offsets at which blocks may begin, as all devices together say.
fn sighted(tree: &VdevTree) -> BTreeSet<u64> {
    let mut offsets = BTreeSet::new();
    let look = |bytes: &[u8]| {
        assert!(bytes.len() >= SECTOR);
        bytes.starts_with(MARK).then_some(())
    };
    for ground in tree.grounds() {
        let mut before = 0;
        ground.survey(0, &look, &mut |bytes, sightings| {
            assert!(bytes > before && bytes <= ground.bytes());
            before = bytes;
            offsets.extend(sightings.iter().map(|sighting| sighting.offset));
            ControlFlow::Continue(())
        });
        assert_eq!(before, ground.bytes());
    }
    offsets
}

fn block(sectors: usize) -> Vec<u8> {
    let mut block = vec![0x5e; sectors * SECTOR];
    block[..MARK.len()].copy_from_slice(MARK);
    block
}

#[test]
fn a_block_is_sighted_where_it_begins() {
    let kinds = [
        (raidz(2, 1), 1),
        (raidz(3, 1), 1),
        (raidz(5, 2), 2),
        (raidz(7, 3), 3),
        (draid(1, 2, 0, 4), 1),
        (draid(2, 3, 1, 9), 2),
    ];
    for (kind, nparity) in kinds {
        let pool = Pool::new(kind);
        let mut expected = BTreeSet::new();
        let mut at = 0;
        for n in 0..600 {
            let block = block(1 + n % 9);
            pool.tree.write_block(TOP, at, &block).unwrap();
            expected.insert(at);
            at += pool.tree.psize_to_asize(TOP, block.len() as u64, Txg(0));
        }
        let sighted = sighted(&pool.tree);
        let missed: Vec<_> = expected.difference(&sighted).collect();
        assert!(missed.is_empty(), "{kind:?}: {missed:?}");
        // What else is sighted is the same sectors, taken for those of blocks that begin before.
        let most = expected.len() * (nparity + 1) * (nparity + 1);
        assert!(sighted.len() <= most, "{kind:?}: {}", sighted.len());
    }
}

#[test]
fn a_block_of_one_sector_is_sighted_without_as_many_devices_as_there_is_parity() {
    let kinds = [
        (raidz(3, 1), 1),
        (raidz(4, 2), 2),
        (raidz(6, 3), 3),
        (draid(1, 2, 0, 4), 1),
    ];
    for (kind, nparity) in kinds {
        let pool = Pool::new(kind);
        let mut expected = BTreeSet::new();
        let asize = pool.tree.psize_to_asize(TOP, SECTOR as u64, Txg(0));
        for n in 0..100 {
            pool.tree.write_block(TOP, n * asize, &block(1)).unwrap();
            expected.insert(n * asize);
        }
        for first in 0..kind.1 {
            let gone: Vec<usize> = (0..nparity).map(|n| (first + n) % kind.1).collect();
            pool.damage(&gone, Damage::ReadError);
            let sighted = sighted(&pool.tree);
            assert!(sighted.is_superset(&expected), "{kind:?} without {gone:?}");
            gone.iter().for_each(|n| pool.disks[*n].heal());
        }
    }
}

#[test]
fn a_survey_ends_when_it_is_told_and_goes_on_where_it_was() {
    let pool = Pool::new(raidz(3, 1));
    let ground = &pool.tree.grounds()[0];
    let look = |_: &[u8]| None::<()>;
    let mut pieces = Vec::new();
    ground.survey(0, &look, &mut |bytes, _| {
        pieces.push(bytes);
        ControlFlow::Break(())
    });
    let [first] = pieces[..] else {
        panic!("{pieces:?}");
    };
    ground.survey(first, &look, &mut |bytes, _| {
        pieces.push(bytes);
        ControlFlow::Continue(())
    });
    assert!(pieces.is_sorted() && pieces.last() == Some(&ground.bytes()));
}
