//! What is a RAID-Z's alone: where its columns are, when writes fail, and which configs are refused.

use super::striped::{Pool, SECTOR, TOP, noise, raidz, tree_of};
use super::*;
use base::ErrorKind;
use faulty::Damage;
use phys::label::LABEL_START_SIZE;
use ram::Memory;

/// Widths and parities that are tested.
const SHAPES: [(usize, u8); 7] = [(2, 1), (3, 1), (5, 1), (3, 2), (6, 2), (4, 3), (7, 3)];

#[test]
fn blocks_of_all_lengths_come_back_from_every_shape() {
    for (children, nparity) in SHAPES {
        let mut pool = Pool::new(raidz(children, nparity));
        for offset in [0, 1 << 20, (2 << 20) + 4096 * 3, (3 << 20) + 4096] {
            pool.write(offset);
        }
        pool.check_reads("as written");
        assert_eq!(pool.scrub("as written"), (0, 0));
        let top = pool.tree.top(TOP).unwrap();
        let each = allocatable_size(2 * DISK_BYTES);
        assert_eq!(top.config().asize, each * children as u64);
        assert_eq!(top.data_disks(), (children - usize::from(nparity)) as u64);
        assert_eq!(top.min_alloc(), SECTOR as u64);
        assert_eq!(pool.tree.placement(TOP), Placement::Striped);
    }
}

#[test]
fn a_block_and_its_parity_are_where_the_format_has_them() {
    let mut pool = Pool::new(raidz(3, 1));
    let block = [vec![0x11; SECTOR], vec![0x2e; SECTOR]].concat();
    let at = |offset: u64, child: usize| {
        let mut byte = [0; 512];
        pool.disks[child]
            .read(LABEL_START_SIZE + offset, &mut byte)
            .unwrap();
        byte[0]
    };
    pool.tree.write_block(TOP, 0, &block).unwrap();
    assert_eq!([at(0, 0), at(0, 1), at(0, 2)], [0x3f, 0x11, 0x2e]);
    // Sector 4: the second row begins with the second child.
    pool.tree.write_block(TOP, 4 << 12, &block).unwrap();
    assert_eq!([at(4096, 1), at(4096, 2), at(8192, 0)], [0x3f, 0x11, 0x2e]);
    // Sector 256, in the second megabyte: parity and the first column of data are swapped.
    pool.tree.write_block(TOP, 256 << 12, &block).unwrap();
    let row = 85 << 12;
    assert_eq!(
        [at(row, 1), at(row, 2), at(row + 4096, 0)],
        [0x11, 0x3f, 0x2e]
    );
    pool.blocks.clear();
}

#[test]
fn more_than_parity_is_an_error_and_probes_count_nothing() {
    let mut pool = Pool::new(raidz(4, 1));
    pool.write(0);
    let (at, block) = pool.blocks.last_key_value().unwrap();
    let mut buf = vec![0; block.len()];
    let wrong = |_: &[u8]| false;
    let error = pool
        .tree
        .probe_block(TOP, *at, &mut buf, &wrong)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Checksum);
    assert_eq!(pool.tree.root().total_stats().checksum_errors, 0);
    let error = pool
        .tree
        .read_block(TOP, *at, &mut buf, &wrong)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Checksum);
    assert_eq!(pool.tree.root().total_stats().checksum_errors, 4);
    pool.forget_errors();
    pool.damage(&[1, 3], Damage::ReadError);
    let is_block = |bytes: &[u8]| bytes == block;
    let error = pool
        .tree
        .read_block(TOP, *at, &mut buf, &is_block)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    for (offset, len) in [(*at + 512, 4096), (*at, 512), (*at, 0)] {
        let error = pool.tree.read_block(TOP, offset, &mut buf[..len], &wrong);
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Corrupt);
    }
    let error = pool.tree.repair_block(TOP, *at + 512, block).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "another block is there");
    // Written as a repair, it is good again.
    pool.tree.repair_block(TOP, *at, block).unwrap();
    pool.tree.read_block(TOP, *at, &mut buf, &is_block).unwrap();
    assert!(gaps(&pool.tree.devices()[1]).is_empty());
}

#[test]
fn a_write_that_too_many_devices_fail_is_an_error() {
    let mut pool = Pool::new(raidz(4, 2));
    pool.write(0);
    for n in [0, 1, 2] {
        pool.disks[n].kill();
    }
    let error = pool
        .tree
        .write_block(TOP, 1 << 20, &[7; 8 * SECTOR])
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(
        pool.tree
            .devices()
            .iter()
            .all(|device| gaps(device).is_empty())
    );
    pool.disks[0].revive();
    pool.tree.clear(None).unwrap();
    pool.tree
        .write_block(TOP, 1 << 20, &[7; 8 * SECTOR])
        .unwrap();
    assert_eq!(gaps(&pool.tree.devices()[1]), gaps(&pool.tree.devices()[2]));
    assert!(!gaps(&pool.tree.devices()[1]).is_empty());
    assert!(gaps(&pool.tree.devices()[0]).is_empty());
}

#[test]
fn a_pool_opened_for_reading_is_not_repaired() {
    let mut pool = Pool::new(raidz(4, 1));
    pool.write(0);
    pool.damage(&[2], Damage::Noise(1));
    pool.tree = VdevTree::read_only(pool.tree.root());
    pool.check_reads("read only");
    let (bad, repaired) = pool.scrub("read only");
    assert!(bad > 0);
    assert_eq!(repaired, 0);
    assert!(pool.disks[2].is_damaged());
}

#[test]
fn sim_queued_devices_work_at_the_same_time() {
    const MS: u64 = 1_000_000;
    rt::simulate(1, || {
        let disks = (0..5).map(|n| Memory::new(format!("/q{n}"), DISK_BYTES));
        let tree = tree_of(
            VdevKind::RaidZ { nparity: 2 },
            disks.map(|disk| Arc::new(Queued(disk)) as _),
        );
        let block = noise(1, 9 * SECTOR);
        let is_block = |bytes: &[u8]| bytes == block;
        let mut buf = vec![0; block.len()];
        tree.write(&IO, TOP, 0, &[&block, &block]).unwrap();
        assert_eq!(rt::now_ns(), MS);
        tree.read_block(TOP, 0, &mut buf, &is_block).unwrap();
        assert_eq!(rt::now_ns(), 2 * MS);
        tree.scrub_block(TOP, 0, &mut buf, &is_block).unwrap();
        assert_eq!(rt::now_ns(), 3 * MS);
        // Data first, then the parity.
        tree.offline(Guid(104), true).unwrap();
        let start = rt::now_ns();
        tree.read_block(TOP, 0, &mut buf, &is_block).unwrap();
        assert_eq!(rt::now_ns(), start + 2 * MS);
        let stats = tree.devices()[4].io_counts();
        assert_eq!((stats.read_ops(), stats.write_ops()), (3, 1));
    });
}

#[test]
fn senseless_raidz_configs_are_refused() {
    let child = |id: u64, kind: &str| {
        NvList::new()
            .with("type", kind)
            .with("id", id)
            .with("guid", id + 5)
    };
    let raidz = |children: Vec<NvList>| {
        NvList::new()
            .with("type", "raidz")
            .with("id", 0u64)
            .with("guid", 1u64)
            .with("nparity", 2u64)
            .with("ashift", 12u64)
            .with("children", children)
    };
    let root = |top: NvList| {
        NvList::new()
            .with("type", "root")
            .with("guid", 2u64)
            .with("children", vec![top])
    };
    let disks = |n: u64| (0..n).map(|id| child(id, "disk")).collect::<Vec<_>>();
    Vdev::from_config(&root(raidz(disks(3)))).unwrap();
    let inner = NvList::new()
        .with("type", "raidz")
        .with("id", 2u64)
        .with("guid", 9u64)
        .with("nparity", 1u64)
        .with("children", disks(2));
    let nested = [disks(2), vec![inner]].concat();
    let cases = [
        (raidz(disks(2)), "2 children and nparity 2"),
        (raidz(disks(258)), "258 children"),
        (raidz(nested), "raidz of a raidz"),
        (
            raidz(disks(3)).with("raidz_expand_txgs", vec![9u64]),
            "3 children and nparity 2",
        ),
        (
            raidz(disks(5)).with("raidz_expand_txgs", vec![9u64, 9]),
            "5 children and nparity 2",
        ),
    ];
    for (nv, expect) in cases {
        let error = Vdev::from_config(&root(nv)).unwrap_err();
        assert!(error.to_string().contains(expect), "{error} lacks {expect}");
    }
}

/// Only a RAID-Z can be in the midst of an expansion.
#[test]
fn a_mirror_that_says_that_it_is_expanded_is_not() {
    let disk = NvList::new().with("type", "disk").with("id", 0u64);
    let mirror = NvList::new()
        .with("type", "mirror")
        .with("id", 0u64)
        .with("guid", 1u64)
        .with("ashift", 12u64)
        .with("raidz_expanding", 1u64)
        .with("raidz_expand_txgs", vec![9u64])
        .with("children", vec![disk.with("guid", 10u64)]);
    let root = NvList::new()
        .with("type", "root")
        .with("guid", 2u64)
        .with("children", vec![mirror]);
    let root = Vdev::from_config(&root).unwrap();
    let config = root.children()[0].config();
    assert!(!config.expanding && config.expand_txgs.is_empty());
}

/// Neighbouring blocks are read with one command of each device.
#[test]
fn a_run_is_read_with_one_command_of_each_device() {
    let mut pool = Pool::new(raidz(5, 2));
    pool.write(0);
    let reads = |n: usize| pool.tree.devices()[n].io_counts().read_ops();
    let before: Vec<u64> = (0..5).map(reads).collect();
    assert_eq!(pool.scrub("as written"), (0, 0));
    let reads: Vec<u64> = (0..5).map(|n| reads(n) - before[n]).collect();
    assert_eq!(reads, [1; 5], "{} blocks", pool.blocks.len());
}
