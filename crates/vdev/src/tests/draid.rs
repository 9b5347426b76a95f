//! What is a dRAID's alone: blocks in two groups, the zeros that fill up columns, spares, configs.

use super::striped::{Pool, SECTOR, TOP, draid, noise};
use super::*;
use base::ErrorKind;
use faulty::Damage;
use phys::label::LABEL_START_SIZE;

/// Bytes of a row on each child.
const ROW_BYTES: u64 = 16 << 20;

#[test]
fn a_block_in_two_groups_comes_back_without_any_device() {
    // Columns of data, children: one wider than the group, and one of which no child is left over.
    for (ndata, children) in [(2, 3), (2, 5), (3, 6)] {
        let group = (ndata + 1) * ROW_BYTES;
        for rows in 1..5 {
            for gone in 0..children as usize {
                let mut pool = Pool::new(draid(1, ndata, 0, children));
                let at = group - rows * (ndata + 1) * SECTOR as u64;
                pool.write_at(at);
                pool.check_reads("whole");
                assert_eq!(pool.scrub("whole"), (0, 0));
                pool.damage(&[gone], Damage::Noise(5));
                let what = format!("{ndata} of {children}, {rows} rows, {gone} wrong");
                pool.check_reads(&what);
                let (bad, repaired) = pool.scrub(&what);
                assert_eq!(bad, repaired, "{what}");
                assert_eq!(pool.scrub(&what), (0, 0), "{what}");
            }
        }
    }
}

#[test]
fn a_scrub_repairs_zeros_that_reads_do_not_look_at() {
    let pool = Pool::new(draid(1, 3, 0, 4));
    let block = noise(1, SECTOR);
    pool.tree.write_block(TOP, 0, &block).unwrap();
    let is_block = |bytes: &[u8]| bytes == block;
    // One column is parity, one has the block, two are only zeros.
    let sector = |n: usize| {
        let mut bytes = vec![1; SECTOR];
        pool.disks[n].read(LABEL_START_SIZE, &mut bytes).unwrap();
        bytes
    };
    let zeros: Vec<usize> = (0..4).filter(|n| sector(*n) == vec![0; SECTOR]).collect();
    assert_eq!(zeros.len(), 2);
    assert_eq!((0..4).filter(|n| sector(*n) == block).count(), 2);
    for n in zeros {
        pool.disks[n].damage(LABEL_START_SIZE..LABEL_START_SIZE + 1, Damage::Flip(3));
        let mut buf = vec![0; SECTOR];
        pool.tree.read_block(TOP, 0, &mut buf, &is_block).unwrap();
        assert_eq!(pool.errors(n), 0);
        let report = pool.tree.scrub_block(TOP, 0, &mut buf, &is_block).unwrap();
        assert_eq!((report.bad, report.repaired), (1, 1));
        assert_eq!(pool.errors(n), 1);
        assert_eq!(sector(n), vec![0; SECTOR]);
    }
}

#[test]
fn what_is_written_leaves_the_place_of_spares_alone() {
    let (kind, children) = draid(1, 1, 1, 3);
    let mut pool = Pool::new((kind, children));
    // One group fills the two children that are used of a row.
    for row in 0..5 {
        let written = |pool: &Pool| -> Vec<u64> {
            let devices = pool.tree.devices();
            let written = |device: &Arc<Vdev>| device.io_counts().write_bytes();
            devices.iter().map(written).collect()
        };
        let before = written(&pool);
        pool.write_at(row * 2 * ROW_BYTES);
        let idle = written(&pool)
            .iter()
            .zip(before)
            .filter(|(now, before)| *now == before)
            .count();
        assert_eq!(idle, 1, "row {row}");
    }
    // One command for a block at the end of a row, one that is a whole row, and one at the start of the next.
    let small = noise(1, 2 * SECTOR);
    let large = noise(2, ROW_BYTES as usize);
    let parts: [&[u8]; 3] = [&small, &large, &small];
    let at = 2 * ROW_BYTES - 4 * SECTOR as u64;
    pool.tree.write(&IO, TOP, at, &parts).unwrap();
    pool.blocks.clear();
    pool.blocks.insert(at, small.clone());
    pool.blocks.insert(2 * ROW_BYTES, large);
    pool.blocks.insert(4 * ROW_BYTES, small);
    pool.check_reads("a whole row");
    assert_eq!(pool.scrub("a whole row"), (0, 0));
}

#[test]
fn senseless_offsets_are_corrupt() {
    let pool = Pool::new(draid(1, 2, 0, 3));
    let mut buf = vec![0; SECTOR];
    for (offset, len) in [(SECTOR as u64, SECTOR), (0, 512), (0, 0)] {
        let read = pool
            .tree
            .read_block(TOP, offset, &mut buf[..len], &|_| true);
        assert_eq!(read.unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn configs_come_back_and_senseless_ones_are_refused() {
    let disk = |id: u64| {
        NvList::new()
            .with("type", "disk")
            .with("id", id)
            .with("guid", id + 5)
    };
    let draid = |children: u64, [nparity, ndata, nspares, ngroups]: [u64; 4]| {
        NvList::new()
            .with("type", "draid")
            .with("id", 0u64)
            .with("guid", 1u64)
            .with("nparity", nparity)
            .with("draid_ndata", ndata)
            .with("draid_nspares", nspares)
            .with("draid_ngroups", ngroups)
            .with("metaslab_array", 0u64)
            .with("metaslab_shift", 0u64)
            .with("ashift", 12u64)
            .with("asize", 1u64 << 30)
            .with("is_log", 0u64)
            .with("children", (0..children).map(disk).collect::<Vec<_>>())
    };
    let root = |top: NvList| {
        NvList::new()
            .with("type", "root")
            .with("guid", 2u64)
            .with("children", vec![top])
    };
    let parse = |top: NvList| Vdev::from_config(&root(top));
    let top = draid(14, [1, 8, 2, 4]);
    let vdev = parse(top.clone()).unwrap().children()[0].clone();
    let again = vdev.generate_config(0, 1, Target::Label);
    assert_eq!(again.to_string(), top.to_string());
    for (children, numbers) in [
        (14, [0, 8, 2, 4]),
        (14, [4, 8, 2, 4]),
        (14, [1, 0, 2, 4]),
        (14, [1, 8, 6, 4]),
        (14, [1, 8, 2, 0]),
        (14, [1, 8, 2, 3]),
        (14, [1, 8, 300, 4]),
        (256, [1, 8, 0, 256]),
        (1, [1, 1, 0, 2]),
        (0, [1, 1, 0, 2]),
    ] {
        let error = parse(draid(children, numbers)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{children}, {numbers:?}");
    }
}
