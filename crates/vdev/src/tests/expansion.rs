//! RAID-Zs that are wider than their blocks, against a model: it moves the sectors one by one, as an expansion does.

use super::striped::{Pool, SECTOR, TOP, noise, raidz};
use super::*;
use base::ErrorKind;
use faulty::Damage;
use phys::label::{BOOT_SIZE, LABEL_START_SIZE};
use phys::uberblock::UberblockPhys;

/// Sectors that the model moves: more than the scratch area has, and all that the test writes.
const SECTORS: u64 = 5000;
/// The first txg of blocks that are as wide as the vdev.
const WIDER: u64 = BIRTH.0 + 10;
/// `RRSS_SCRATCH_VALID`, `RRSS_SCRATCH_INVALID_SYNCED_REFLOW`
const IN_SCRATCH: u64 = 1;
const MOVED: u64 = 4;
/// Where the test writes blocks: in the first sectors, at an odd megabyte, and beyond the scratch area.
const OFFSETS: [u64; 4] = [0, 1 << 20, (5 << 20) + 3 * 4096, (17 << 20) + 4096];

/// Parity, and the number of children before.
const SHAPES: [(u8, usize); 5] = [(1, 2), (1, 3), (2, 3), (2, 5), (3, 5)];

fn place(sector: u64, children: u64) -> (usize, u64) {
    let at = LABEL_START_SIZE + (sector / children) * SECTOR as u64;
    ((sector % children) as usize, at)
}

/// Moves the first sectors to where they belong with one more child, or to the scratch area.
fn move_sectors(pool: &Pool, old: u64, count: u64, to_scratch: bool) {
    let read = |sector| {
        let (child, at) = place(sector, old);
        let mut bytes = vec![0; SECTOR];
        pool.disks[child].read(at, &mut bytes).unwrap();
        bytes
    };
    let sectors: Vec<Vec<u8>> = (0..count).map(read).collect();
    for (sector, bytes) in (0..).zip(sectors) {
        let (child, at) = place(sector, old + 1);
        let scratch = at - BOOT_SIZE;
        if to_scratch {
            // What may be there of another attempt does not count.
            pool.disks[child].write(at, &noise(sector, SECTOR)).unwrap();
        }
        let at = if to_scratch { scratch } else { at };
        pool.disks[child].write(at, &bytes).unwrap();
    }
}

/// The vdev on all its disks: `moved` sectors of an expansion, or how many ended.
fn widened(mut pool: Pool, nparity: u8, moved: Option<(u64, u64)>, old: usize) -> Pool {
    let disks: Vec<_> = pool.disks.clone();
    let leaves = (101..).zip(disks).map(|(n, disk)| leaf(n, disk));
    let config = VdevConfig {
        ashift: 12,
        ms_array: 256,
        ms_shift: 24,
        expanding: moved.is_some(),
        expand_txgs: if moved.is_some() {
            Vec::new()
        } else {
            (old..pool.disks.len())
                .map(|n| WIDER + n as u64 - old as u64)
                .collect()
        },
        ..VdevConfig::default()
    };
    let kind = VdevKind::RaidZ { nparity };
    let top = Vdev::new(kind, Guid(100), config, leaves.collect());
    let asize = VdevTree::max_asize(&top).unwrap();
    let each = allocatable_size(2 * DISK_BYTES);
    let full = pool.disks.len() as u64 - u64::from(moved.is_some());
    assert_eq!(asize, each * full);
    top.update(|config| config.asize = asize);
    pool.tree = tree(vec![top]);
    if let Some((sectors, state)) = moved {
        let mut uberblock = UberblockPhys::default();
        uberblock
            .raidz_reflow_info
            .set((sectors * 8) | (state << 55));
        pool.tree.note_uberblock(&uberblock);
    }
    pool
}

/// A pool that was written to before children were added.
fn written(nparity: u8, old: usize, added: usize) -> Pool {
    let mut pool = Pool::new(raidz(old, nparity));
    for offset in OFFSETS {
        pool.write(offset);
    }
    pool.disks
        .extend((old..old + added).map(super::striped::disk));
    pool
}

fn check_all(pool: &Pool, nparity: u8, what: &str) {
    pool.check_reads(what);
    assert_eq!(pool.scrub(what), (0, 0), "{what}");
    for first in 0..pool.disks.len() {
        let lost: Vec<usize> = (first..first + usize::from(nparity))
            .map(|n| n % pool.disks.len())
            .collect();
        pool.damage(&lost, Damage::ReadError);
        pool.check_reads(&format!("{what}, without {lost:?}"));
        for n in &lost {
            pool.disks[*n].heal();
        }
        pool.forget_errors();
    }
}

#[test]
fn blocks_are_read_wherever_an_expansion_has_got_to() {
    for (nparity, old) in SHAPES {
        let scratch = (BOOT_SIZE >> 12) * (old as u64 + 1);
        for moved in [0, 3, scratch, scratch + 1, scratch + 77, SECTORS] {
            let pool = written(nparity, old, 1);
            move_sectors(&pool, old as u64, moved, false);
            let pool = widened(pool, nparity, Some((moved, MOVED)), old);
            check_all(&pool, nparity, &format!("{nparity}, {old}: {moved}"));
        }
        let pool = written(nparity, old, 1);
        move_sectors(&pool, old as u64, scratch, true);
        let pool = widened(pool, nparity, Some((scratch, IN_SCRATCH)), old);
        check_all(&pool, nparity, &format!("{nparity}, {old}: in scratch"));
    }
}

#[test]
fn blocks_written_during_an_expansion_are_as_wide_as_before() {
    for (nparity, old) in SHAPES {
        let moved = 700;
        let pool = written(nparity, old, 1);
        move_sectors(&pool, old as u64, moved, false);
        let mut pool = widened(pool, nparity, Some((moved, MOVED)), old);
        // Before the sector that is moved next, over it, and behind it: nothing else is there.
        for sector in [480, moved - 10, 1000] {
            pool.write_at(sector << 12);
        }
        check_all(&pool, nparity, &format!("{nparity}, {old}"));
    }
}

#[test]
fn blocks_of_all_widths_are_read_after_two_expansions() {
    for (nparity, old) in SHAPES {
        let pool = written(nparity, old, 2);
        move_sectors(&pool, old as u64, SECTORS, false);
        move_sectors(&pool, old as u64 + 1, SECTORS, false);
        let pool = widened(pool, nparity, None, old);
        check_all(&pool, nparity, &format!("{nparity}, {old}"));
        for (n, birth) in [BIRTH.0, WIDER, WIDER + 1].into_iter().enumerate() {
            let (at, block) = (25 + n as u64, noise(birth, 33 * SECTOR));
            let io = Io::write(Txg(birth), zio::Priority::AsyncWrite);
            pool.tree.write(&io, TOP, at << 20, &[&block]).unwrap();
            let mut buf = vec![0; block.len()];
            let is_block = |bytes: &[u8]| bytes == block;
            let read = Io::read(Txg(birth));
            pool.tree
                .read(&read, TOP, at << 20, &mut buf, &is_block)
                .unwrap();
            let data = (old + n) as u64 - u64::from(nparity);
            let sectors = 33 + u64::from(nparity) * 33u64.div_ceil(data);
            let asize = sectors.next_multiple_of(u64::from(nparity) + 1) << 12;
            let psize = block.len() as u64;
            assert_eq!(pool.tree.psize_to_asize(TOP, psize, Txg(birth)), asize);
        }
    }
}

#[test]
fn what_a_child_had_wrong_before_an_expansion_is_repaired_after_it() {
    for (nparity, old) in SHAPES {
        let pool = written(nparity, old, 1);
        for sector in (0..SECTORS).filter(|sector| sector % old as u64 == 1) {
            let (child, at) = place(sector, old as u64);
            pool.disks[child].write(at, &noise(sector, SECTOR)).unwrap();
        }
        move_sectors(&pool, old as u64, SECTORS, false);
        let pool = widened(pool, nparity, None, old);
        pool.check_reads("wrong before");
        let (bad, repaired) = pool.scrub("wrong before");
        assert_eq!(bad, repaired);
        pool.forget_errors();
        check_all(&pool, nparity, &format!("{nparity}, {old}: repaired"));
    }
}

#[test]
fn nothing_is_read_before_an_uberblock_says_how_far_an_expansion_is() {
    let pool = written(1, 3, 1);
    let mut pool = widened(pool, 1, Some((0, MOVED)), 3);
    let top = pool.top();
    let config = top.config().clone();
    let kind = top.kind();
    let leaves = top.children().to_vec();
    pool.tree = tree(vec![Vdev::new(kind, Guid(100), config, leaves)]);
    let mut buf = vec![0; SECTOR];
    let error = pool.tree.read_block(TOP, 0, &mut buf, &|_| true);
    assert!(error.unwrap_err().to_string().contains("no uberblock"));
}

/// Writes blocks over and around an offset, unless others are there.
fn write_around(pool: &mut Pool, sector: u64) {
    let at = (sector - 40) << 12;
    if pool
        .blocks
        .keys()
        .all(|other| other.abs_diff(at) > 300 << 12)
    {
        pool.write_at(at);
    }
}

#[test]
fn what_is_written_while_sectors_are_moved_is_moved_with_the_rest() {
    for (nparity, old) in SHAPES {
        let what = |at: &str| format!("{nparity}, {old}: {at}");
        let pool = written(nparity, old, 1);
        let mut pool = widened(pool, nparity, Some((0, 0)), old);
        let tree = Arc::clone(&pool.tree);
        let (mut uberblock, note) = (UberblockPhys::default(), |ub: &UberblockPhys| {
            tree.begin_reflow(TOP).note(ub);
        });
        pool.check_reads(&what("not begun"));
        let scratch = tree.begin_reflow(TOP).scratch_bytes();
        tree.begin_reflow(TOP).fill_scratch().unwrap();
        uberblock.set_reflow(IN_SCRATCH, scratch);
        note(&uberblock);
        // As if writing what is in the scratch area had failed for a while.
        write_around(&mut pool, 2200);
        write_around(&mut pool, scratch >> 12);
        check_all(&pool, nparity, &what("in scratch"));
        tree.begin_reflow(TOP).empty_scratch().unwrap();
        uberblock.set_reflow(MOVED, scratch);
        note(&uberblock);
        check_all(&pool, nparity, &what("the first sectors"));
        let (mut offset, mut steps) = (scratch, 0);
        while offset < 9000 << 12 {
            let reflow = tree.begin_reflow(TOP);
            let end = reflow.limit(offset).min(offset + (700 << 12));
            assert!(end > offset);
            reflow.copy(&(offset..end)).unwrap();
            reflow.flush().unwrap();
            drop(reflow);
            offset = end;
            uberblock.set_reflow(MOVED, offset);
            note(&uberblock);
            pool.check_reads(&what("moved"));
            write_around(&mut pool, offset >> 12);
            steps += 1;
        }
        assert!(steps > 4 && pool.blocks.len() > 50, "{steps}");
        check_all(&pool, nparity, &what("all"));
    }
}

#[test]
fn an_expansion_that_would_get_no_further_is_refused() {
    let (nparity, old) = SHAPES[0];
    let pool = widened(written(nparity, old, 1), nparity, Some((0, 0)), old);
    let scratch = pool.tree.begin_reflow(TOP).scratch_bytes();
    let check = |offset| {
        let mut uberblock = UberblockPhys::default();
        uberblock.set_reflow(MOVED, offset);
        pool.tree.check_reflow(&uberblock)
    };
    for offset in [0, scratch, scratch + 4096, 9000 << 12] {
        check(offset).unwrap();
    }
    for offset in [0x600, 4096, scratch - 4096] {
        let error = check(offset).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}
