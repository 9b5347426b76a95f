//! RAID-Z: every set of columns that may be missing or wrong, and what becomes of their devices.

use std::collections::BTreeMap;

use super::*;
use base::ErrorKind;
use faulty::{Damage, FaultInjector};
use phys::label::LABEL_START_SIZE;
use ram::Memory;

const TOP: VdevId = VdevId(0);
const SECTOR: usize = 4096;
/// Lengths of blocks in sectors: less than a row, a row, rows with and without a rest.
const LENS: [usize; 7] = [1, 2, 3, 4, 7, 8, 32];

struct Pool {
    disks: Vec<Arc<FaultInjector>>,
    tree: Arc<VdevTree>,
    /// What was written, by offset.
    blocks: BTreeMap<u64, Vec<u8>>,
}

fn disk(n: usize) -> Arc<FaultInjector> {
    let memory = Memory::new(format!("/rz{n}"), DISK_BYTES);
    Arc::new(FaultInjector::new(Arc::new(memory)))
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed;
    let mut next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (x >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// A RAID-Z as the only top-level vdev; leaves have the guids 101, 102, ...
fn raidz_tree(nparity: u8, disks: impl Iterator<Item = Arc<dyn Provider>>) -> Arc<VdevTree> {
    let leaves = (101..).zip(disks).map(|(n, disk)| leaf(n, disk));
    let config = VdevConfig {
        ashift: 12,
        ms_array: 256,
        ms_shift: 24,
        ..VdevConfig::default()
    };
    let kind = VdevKind::RaidZ { nparity };
    let top = Vdev::new(kind, Guid(100), config, leaves.collect());
    let asize = VdevTree::max_asize(&top).unwrap();
    top.update(|config| config.asize = asize);
    tree(vec![top])
}

impl Pool {
    fn new(children: usize, nparity: u8) -> Pool {
        let disks: Vec<_> = (0..children).map(disk).collect();
        Pool {
            tree: raidz_tree(nparity, disks.iter().map(|disk| disk.clone() as _)),
            disks,
            blocks: BTreeMap::new(),
        }
    }

    /// Writes blocks of all lengths with one command, from an offset on.
    fn write(&mut self, offset: u64) {
        let blocks: Vec<_> = LENS.iter().map(|n| noise(*n as u64, n * SECTOR)).collect();
        let parts: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
        self.tree.write(&IO, TOP, offset, &parts).unwrap();
        let mut at = offset;
        for block in blocks {
            let asize = self.tree.psize_to_asize(TOP, block.len() as u64);
            self.blocks.insert(at, block);
            at += asize;
        }
    }

    /// Reads all blocks by `read`, which has to find what was written.
    fn check(
        &self,
        what: &str,
        mut read: impl FnMut(u64, &mut [u8], &dyn Fn(&[u8]) -> bool) -> Result<()>,
    ) {
        for (at, block) in &self.blocks {
            let mut buf = vec![0xcc; block.len()];
            read(*at, &mut buf, &|bytes| bytes == block)
                .unwrap_or_else(|e| panic!("{what}: {} bytes at {at}: {e}", block.len()));
            assert!(&buf == block, "{what}: {} bytes at {at}", block.len());
        }
    }

    fn check_reads(&self, what: &str) {
        self.check(what, |at, buf, verify| {
            self.tree.read_block(TOP, at, buf, verify)
        });
    }

    /// Scrubs all blocks; how many columns were bad, and how many of them were repaired.
    fn scrub(&self, what: &str) -> (u32, u32) {
        let (mut bad, mut repaired) = (0, 0);
        self.check(what, |at, buf, verify| {
            let report = self.tree.scrub_block(TOP, at, buf, verify)?;
            bad += report.bad;
            repaired += report.repaired;
            Ok(())
        });
        (bad, repaired)
    }

    fn damage(&self, set: &[usize], damage: Damage) {
        for n in set {
            self.disks[*n].damage(LABEL_START_SIZE..LABEL_START_SIZE + (4 << 20), damage);
        }
    }

    fn errors(&self, n: usize) -> u64 {
        let stats = self.tree.devices()[n].stats().snapshot();
        stats.checksum_errors + stats.read_errors
    }

    fn forget_errors(&self) {
        self.tree.clear(None).unwrap();
    }
}

/// All sets of at most `most` of `n` numbers.
fn sets(n: usize, most: u8) -> Vec<Vec<usize>> {
    let all = (0u32..1 << n).filter(|bits| bits.count_ones() <= most.into());
    let set = |bits: u32| (0..n).filter(|i| bits >> i & 1 == 1).collect();
    all.map(set).collect()
}

/// Widths and parities that are tested.
const SHAPES: [(usize, u8); 7] = [(2, 1), (3, 1), (5, 1), (3, 2), (6, 2), (4, 3), (7, 3)];

#[test]
fn blocks_of_all_lengths_come_back_from_every_shape() {
    for (children, nparity) in SHAPES {
        let mut pool = Pool::new(children, nparity);
        for offset in [0, 1 << 20, (2 << 20) + 4096 * 3, (3 << 20) + 4096] {
            pool.write(offset);
        }
        pool.check_reads("as written");
        assert_eq!(pool.scrub("as written"), (0, 0));
        let top = pool.tree.top(TOP).unwrap();
        let each = allocatable_size(DISK_BYTES);
        assert_eq!(top.config().asize, each * children as u64);
        assert_eq!(top.data_disks(), (children - usize::from(nparity)) as u64);
        assert_eq!(top.min_alloc(), SECTOR as u64);
        assert!(!pool.tree.is_linear(TOP));
    }
}

#[test]
fn a_block_and_its_parity_are_where_the_format_has_them() {
    let mut pool = Pool::new(3, 1);
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
fn every_set_of_devices_that_may_be_gone_is_done_without() {
    for (children, nparity) in SHAPES {
        for set in sets(children, nparity) {
            let mut pool = Pool::new(children, nparity);
            pool.write((1 << 20) - (40 << 12));
            for n in &set {
                let device = &pool.tree.devices()[*n];
                device
                    .leaf()
                    .close(VdevState::CantOpen, VdevAux::OpenFailed);
            }
            let what = format!("{children} wide, parity {nparity}, without {set:?}");
            pool.check_reads(&what);
            assert_eq!(pool.scrub(&what), (0, 0), "{what}: nothing can be repaired");
            // What is written meanwhile lacks columns, is read all the same, and is filled in later.
            pool.write(3 << 20);
            pool.check_reads(&what);
            for n in 0..children {
                let device = &pool.tree.devices()[n];
                assert_eq!(
                    device.leaf().has_dtl(),
                    set.contains(&n),
                    "{what}: DTL of {n}"
                );
                assert_eq!(pool.errors(n), 0, "{what}: errors of {n}");
            }
            for n in &set {
                let guid = pool.tree.devices()[*n].guid();
                pool.tree.online(guid, pool.disks[*n].clone()).unwrap();
            }
            pool.check_reads(&format!("{what}, back"));
            let (bad, repaired) = pool.scrub(&format!("{what}, back"));
            assert_eq!((bad, bad > 0), (repaired, !set.is_empty()), "{what}");
            for device in pool.tree.devices() {
                device.leaf().clear_dtl(&(0..100));
                assert_eq!(device.stats().snapshot().checksum_errors, 0, "{what}");
            }
            assert_eq!(pool.scrub(&what), (0, 0), "{what}: all is repaired");
        }
    }
}

#[test]
fn every_set_of_devices_that_may_be_wrong_is_found_counted_and_repaired() {
    for (children, nparity) in SHAPES {
        for damage in [Damage::Noise(3), Damage::ReadError] {
            for set in sets(children, nparity) {
                let what = format!("{children} wide, parity {nparity}, {damage:?} of {set:?}");
                let mut pool = Pool::new(children, nparity);
                pool.write(0);
                pool.damage(&set, damage);
                pool.check_reads(&what);
                for n in 0..children {
                    if !set.contains(&n) {
                        assert_eq!(pool.errors(n), 0, "{what}: errors of {n}");
                    }
                }
                // Columns that reads did not need are still bad; a scrub finds all.
                pool.disks.iter().for_each(|disk| disk.heal());
                pool.damage(&set, damage);
                pool.forget_errors();
                let (bad, repaired) = pool.scrub(&what);
                assert_eq!((bad, bad > 0), (repaired, !set.is_empty()), "{what}");
                for n in 0..children {
                    let has_errors = pool.errors(n) > 0;
                    assert_eq!(has_errors, set.contains(&n), "{what}: errors of {n}");
                }
                assert_eq!(pool.scrub(&what), (0, 0), "{what}: all is repaired");
            }
        }
    }
}

#[test]
fn a_device_may_be_gone_and_another_one_wrong() {
    for (children, nparity) in [(4, 2), (5, 3)] {
        for gone in 0..children {
            for wrong in (0..children).filter(|n| *n != gone) {
                let mut pool = Pool::new(children, nparity);
                pool.write(0);
                let guid = pool.tree.devices()[gone].guid();
                pool.tree.offline(guid, true).unwrap();
                pool.damage(&[wrong], Damage::Flip(5));
                let what = format!("{children} wide, {gone} gone, {wrong} wrong");
                pool.check_reads(&what);
                pool.scrub(&what);
                assert!(pool.errors(wrong) > 0, "{what}");
                assert_eq!(pool.scrub(&what), (0, 0), "{what}");
            }
        }
    }
}

#[test]
fn more_than_parity_is_an_error_and_probes_count_nothing() {
    let mut pool = Pool::new(4, 1);
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
    let mut pool = Pool::new(4, 2);
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
    let mut pool = Pool::new(4, 1);
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
fn a_device_of_a_raidz_is_replaced() {
    let mut pool = Pool::new(4, 1);
    pool.write(0);
    let new = leaf(201, disk(9));
    pool.tree
        .attach(Guid(102), &new, Attach::Replacement, Txg(10))
        .unwrap();
    pool.check_reads("replacing");
    pool.write(1 << 20);
    let (bad, repaired) = pool.scrub("replacing");
    assert!(bad > 0 && bad == repaired, "{bad} bad, {repaired} repaired");
    new.leaf().clear_dtl(&(0..20));
    // One side of the replacement is wrong: the other is not written over.
    pool.damage(&[1], Damage::Flip(9));
    let (bad, repaired) = pool.scrub("one side wrong");
    assert!(bad > 0 && bad == repaired, "{bad} bad, {repaired} repaired");
    assert_eq!(new.stats().snapshot().checksum_errors, 0);
    pool.tree.detach(Guid(102)).unwrap();
    assert_eq!(pool.tree.top(TOP).unwrap().children()[1].guid(), Guid(201));
    pool.check_reads("replaced");
    assert_eq!(pool.scrub("replaced"), (0, 0));
}

#[test]
fn sim_queued_devices_work_at_the_same_time() {
    const MS: u64 = 1_000_000;
    rt::simulate(1, || {
        let disks = (0..5).map(|n| Memory::new(format!("/q{n}"), DISK_BYTES));
        let tree = raidz_tree(2, disks.map(|disk| Arc::new(Queued(disk)) as _));
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
        let stats = tree.devices()[4].stats().snapshot();
        assert_eq!((stats.read_ops, stats.write_ops), (3, 1));
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
            "expanded",
        ),
    ];
    for (nv, expect) in cases {
        let error = Vdev::from_config(&root(nv)).unwrap_err();
        assert!(error.to_string().contains(expect), "{error} lacks {expect}");
    }
}
