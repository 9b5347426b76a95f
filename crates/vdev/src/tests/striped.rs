//! RAID-Z and dRAID: every set of columns that may be missing or wrong, and what becomes of their devices.

use std::collections::BTreeMap;

use super::*;
use faulty::{Damage, FaultInjector};
use phys::label::LABEL_START_SIZE;
use ram::Memory;

pub(super) const TOP: VdevId = VdevId(0);
pub(super) const SECTOR: usize = 4096;
/// Enough for five rows of a dRAID.
const STRIPED_DISK_BYTES: u64 = 2 * DISK_BYTES;
/// Lengths of blocks in sectors: less than a row, a row, rows with and without a rest.
const LENS: [usize; 7] = [1, 2, 3, 4, 7, 8, 32];

pub(super) struct Pool {
    pub(super) disks: Vec<Arc<FaultInjector>>,
    pub(super) tree: Arc<VdevTree>,
    /// What was written, by offset.
    pub(super) blocks: BTreeMap<u64, Vec<u8>>,
}

pub(super) fn disk(n: usize) -> Arc<FaultInjector> {
    let memory = Memory::new(format!("/rz{n}"), STRIPED_DISK_BYTES);
    Arc::new(FaultInjector::new(Arc::new(memory)))
}

pub(super) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed;
    let mut next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (x >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// A vdev of this kind as the only top-level one; leaves have the guids 101, 102, ...
pub(super) fn tree_of(
    kind: VdevKind,
    disks: impl Iterator<Item = Arc<dyn Provider>>,
) -> Arc<VdevTree> {
    let leaves = (101..).zip(disks).map(|(n, disk)| leaf(n, disk));
    let config = VdevConfig {
        ashift: 12,
        ms_array: 256,
        ms_shift: 24,
        ..VdevConfig::default()
    };
    let top = Vdev::new(kind, Guid(100), config, leaves.collect());
    let asize = VdevTree::max_asize(&top).unwrap();
    top.update(|config| config.asize = asize);
    tree(vec![top])
}

impl Pool {
    pub(super) fn new((kind, children): (VdevKind, usize)) -> Pool {
        let disks: Vec<_> = (0..children).map(disk).collect();
        Pool {
            tree: tree_of(kind, disks.iter().map(|disk| disk.clone() as _)),
            disks,
            blocks: BTreeMap::new(),
        }
    }

    pub(super) fn top(&self) -> Arc<Vdev> {
        self.tree.top(TOP).unwrap()
    }

    /// Where the groups of a dRAID begin; a RAID-Z is one.
    fn groups(&self) -> Vec<u64> {
        let VdevKind::Draid(shape) = self.top().kind() else {
            return vec![0];
        };
        let group = shape.width() << 24;
        (0..self.top().config().asize / group)
            .map(|n| n * group)
            .collect()
    }

    /// Writes blocks of all lengths with one command, from an offset of each group on, or the next that is
    /// possible.
    pub(super) fn write(&mut self, offset: u64) {
        for group in self.groups() {
            let offset = group + offset.next_multiple_of(self.top().metaslab_align());
            self.write_at(offset);
        }
    }

    pub(super) fn write_at(&mut self, offset: u64) {
        let blocks: Vec<_> = LENS.iter().map(|n| noise(*n as u64, n * SECTOR)).collect();
        let parts: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
        self.tree.write(&IO, TOP, offset, &parts).unwrap();
        let mut at = offset;
        for block in blocks {
            let asize = self.tree.psize_to_asize(TOP, block.len() as u64, Txg(0));
            self.blocks.insert(at, block);
            at += asize;
        }
    }

    /// The devices that have columns of what was written.
    fn touched(&self) -> Vec<bool> {
        let reads = |n: usize| self.tree.devices()[n].io_counts().read_ops();
        let before: Vec<u64> = (0..self.disks.len()).map(reads).collect();
        assert_eq!(self.scrub("as written"), (0, 0));
        let is_read = |(n, before): (usize, u64)| reads(n) > before;
        before.into_iter().enumerate().map(is_read).collect()
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

    pub(super) fn check_reads(&self, what: &str) {
        self.check(what, |at, buf, verify| {
            self.tree.read_block(TOP, at, buf, verify)
        });
    }

    /// Scrubs all blocks as one run; how many columns were bad, and how many of them were repaired.
    pub(super) fn scrub(&self, what: &str) -> (u32, u32) {
        let mut end = 0;
        let run_block = |(at, block): (&u64, &Vec<u8>)| {
            let start = end;
            end += block.len();
            RunBlock {
                offset: *at,
                range: start..end,
                birth: BIRTH,
            }
        };
        let run: Vec<RunBlock> = self.blocks.iter().map(run_block).collect();
        let written: Vec<&Vec<u8>> = self.blocks.values().collect();
        let mut buf = vec![0xcc; end];
        let verify = |n: usize, bytes: &[u8]| bytes == written[n];
        let reports = self.tree.scrub(TOP, &mut buf, &run, &verify).unwrap();
        let mut sum = ScrubReport::default();
        for (n, report) in reports.into_iter().enumerate() {
            let (range, at) = (run[n].range.clone(), run[n].offset);
            let report = report.unwrap_or_else(|e| panic!("{what}: block at {at}: {e}"));
            assert!(
                buf[range.clone()] == written[n][..],
                "{what}: block at {at}"
            );
            // Each column is a part of the block, and has at least a sector.
            let sector = 1 << self.tree.ashift(TOP);
            let per_column = report.repaired_bytes / u64::from(report.repaired.max(1));
            assert_eq!(report.repaired_bytes % sector, 0, "{what}");
            assert!(per_column <= range.len() as u64, "{what}: {report:?}");
            assert_eq!(
                per_column < sector,
                report.repaired == 0,
                "{what}: {report:?}"
            );
            sum += report;
        }
        (sum.bad, sum.repaired)
    }

    pub(super) fn damage(&self, set: &[usize], damage: Damage) {
        for n in set {
            self.disks[*n].damage(
                LABEL_START_SIZE..STRIPED_DISK_BYTES - LABEL_START_SIZE,
                damage,
            );
        }
    }

    pub(super) fn errors(&self, n: usize) -> u64 {
        let stats = self.tree.devices()[n].stats().snapshot();
        stats.checksum_errors + stats.read_errors
    }

    pub(super) fn forget_errors(&self) {
        self.tree.clear(None).unwrap();
    }
}

/// All sets of at most `most` of `n` numbers.
fn sets(n: usize, most: u8) -> Vec<Vec<usize>> {
    let all = (0u32..1 << n).filter(|bits| bits.count_ones() <= most.into());
    let set = |bits: u32| (0..n).filter(|i| bits >> i & 1 == 1).collect();
    all.map(set).collect()
}

pub(super) fn raidz(children: usize, nparity: u8) -> (VdevKind, usize) {
    (VdevKind::RaidZ { nparity }, children)
}

/// Columns of parity and of data, spares, children.
pub(super) fn draid(nparity: u64, ndata: u64, nspares: u64, children: u64) -> (VdevKind, usize) {
    let shape = DraidShape::new(nparity, ndata, nspares, children).unwrap();
    (VdevKind::Draid(shape), children as usize)
}

/// What is tested: a kind, its children, how many of them may be lost.
fn shapes() -> impl Iterator<Item = (VdevKind, usize, u8)> {
    let raidz = [(2, 1), (3, 1), (5, 1), (3, 2), (6, 2), (4, 3), (7, 3)];
    let raidz = raidz.map(|(children, nparity)| (VdevKind::RaidZ { nparity }, children));
    let draid = [
        draid(1, 1, 0, 2),
        draid(1, 2, 0, 3),
        draid(1, 2, 0, 5),
        draid(1, 3, 2, 7),
        draid(2, 1, 1, 5),
        draid(2, 2, 0, 5),
        draid(3, 2, 0, 7),
        draid(3, 1, 2, 6),
    ];
    raidz.into_iter().chain(draid).map(|(kind, children)| {
        let nparity = match kind {
            VdevKind::RaidZ { nparity } => nparity,
            VdevKind::Draid(shape) => shape.nparity,
            _ => unreachable!("no other kind is tested"),
        };
        (kind, children, nparity)
    })
}

#[test]
fn every_set_of_devices_that_may_be_gone_is_done_without() {
    for (kind, children, nparity) in shapes() {
        for set in sets(children, nparity) {
            let mut pool = Pool::new((kind, children));
            pool.write((1 << 20) - (40 << 12));
            let touched = pool.touched();
            let is_lost = |n: usize| set.contains(&n) && touched[n];
            let is_hit = (0..children).any(is_lost);
            for n in &set {
                let device = &pool.tree.devices()[*n];
                device
                    .leaf()
                    .close(VdevState::CantOpen, VdevAux::OpenFailed);
            }
            let what = format!("{children} wide, {kind:?}, without {set:?}");
            pool.check_reads(&what);
            assert_eq!(pool.scrub(&what), (0, 0), "{what}: nothing can be repaired");
            // What is written meanwhile lacks columns, is read all the same, and is filled in later.
            pool.write(3 << 20);
            pool.check_reads(&what);
            for n in 0..children {
                let device = &pool.tree.devices()[n];
                assert_eq!(device.leaf().has_dtl(), is_lost(n), "{what}: DTL of {n}");
                assert_eq!(pool.errors(n), 0, "{what}: errors of {n}");
            }
            for n in &set {
                let guid = pool.tree.devices()[*n].guid();
                pool.tree.online(guid, pool.disks[*n].clone()).unwrap();
            }
            pool.check_reads(&format!("{what}, back"));
            let (bad, repaired) = pool.scrub(&format!("{what}, back"));
            assert_eq!((bad, bad > 0), (repaired, is_hit), "{what}");
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
    for (kind, children, nparity) in shapes() {
        for damage in [Damage::Noise(3), Damage::ReadError] {
            for set in sets(children, nparity) {
                let what = format!("{children} wide, {kind:?}, {damage:?} of {set:?}");
                let mut pool = Pool::new((kind, children));
                match damage {
                    // A device with many errors would be given up.
                    Damage::ReadError => pool.write_at(0),
                    _ => pool.write(0),
                }
                let touched = pool.touched();
                let is_lost = |n: usize| set.contains(&n) && touched[n];
                let is_hit = (0..children).any(is_lost);
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
                assert_eq!((bad, bad > 0), (repaired, is_hit), "{what}");
                for n in 0..children {
                    let has_errors = pool.errors(n) > 0;
                    assert_eq!(has_errors, is_lost(n), "{what}: errors of {n}");
                }
                assert_eq!(pool.scrub(&what), (0, 0), "{what}: all is repaired");
            }
        }
    }
}

#[test]
fn a_device_may_be_gone_and_another_one_wrong() {
    for (kind, children) in [
        raidz(4, 2),
        raidz(5, 3),
        draid(2, 2, 0, 4),
        draid(2, 3, 0, 6),
    ] {
        for gone in 0..children {
            for wrong in (0..children).filter(|n| *n != gone) {
                let mut pool = Pool::new((kind, children));
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
fn a_device_is_replaced() {
    for kind in [raidz(4, 1), draid(1, 2, 0, 4)] {
        replace_a_device(kind);
    }
}

fn replace_a_device(kind: (VdevKind, usize)) {
    let mut pool = Pool::new(kind);
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

/// Each of two devices being replaced has some blocks of a txg, and its replacement the others.
#[test]
fn sides_that_each_missed_some_blocks_of_a_txg_have_them_all() {
    for kind in [raidz(4, 1), raidz(5, 2), draid(1, 2, 0, 4)] {
        let mut pool = Pool::new(kind);
        pool.write(0);
        pool.write(1 << 20);
        let olds = [1, 2];
        let news = olds.map(|n| {
            let (disk, old) = (disk(20 + n), Guid(101 + n as u64));
            let new = leaf(old.0 + 100, disk.clone());
            let attached = pool.tree.attach(old, &new, Attach::Replacement, Txg(10));
            attached.unwrap();
            (disk, new)
        });
        assert!(pool.scrub("resilvered").1 > 0);
        for (n, (disk, new)) in olds.iter().zip(&news) {
            let middle = LABEL_START_SIZE + (128 << 10);
            pool.disks[*n].damage(LABEL_START_SIZE..middle, Damage::Flip(3));
            disk.damage(middle..STRIPED_DISK_BYTES, Damage::Flip(5));
            let (old, _) = pool.tree.find_device(Guid(101 + *n as u64)).unwrap();
            for side in [&old, new] {
                side.leaf().dirty_dtl(0..20);
            }
        }
        pool.check_reads("both sides");
        let (bad, repaired) = pool.scrub("both sides");
        assert!(bad > 0 && bad == repaired, "{bad} bad, {repaired} repaired");
        for (_, new) in &news {
            new.leaf().clear_dtl(&(0..20));
        }
        for old in olds {
            pool.tree.detach(Guid(101 + old as u64)).unwrap();
        }
        pool.check_reads("replaced");
        assert_eq!(pool.scrub("replaced"), (0, 0));
    }
}

#[test]
fn a_vdev_answers_while_enough_of_its_devices_do() {
    for (kind, children, nparity) in shapes() {
        let pool = Pool::new((kind, children));
        for (dead, disk) in pool.disks.iter().enumerate() {
            let is_enough = dead <= usize::from(nparity);
            let what = format!("{children} wide, {kind:?}, {dead} dead");
            assert_eq!(pool.tree.answers(TOP, None), is_enough, "{what}");
            disk.kill();
        }
        assert!(!pool.tree.answers(TOP, None));
    }
}

#[test]
fn a_device_that_missed_a_block_does_not_answer_for_it() {
    for (kind, children, nparity) in shapes() {
        let pool = Pool::new((kind, children));
        let devices = pool.tree.devices();
        for device in devices.iter().take(usize::from(nparity)) {
            device.leaf().dirty_dtl(10..20);
        }
        assert!(pool.tree.answers(TOP, Some(Txg(15))));
        pool.disks[children - 1].kill();
        let what = format!("{children} wide, {kind:?}");
        assert!(!pool.tree.answers(TOP, Some(Txg(15))), "{what}");
        assert!(pool.tree.answers(TOP, Some(Txg(25))), "{what}");
        assert!(pool.tree.answers(TOP, None), "{what}");
    }
}
