mod rig;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{ErrorKind, ObjectId, Txg, VdevId};
use compress::Algorithm;
use dmu::traverse::{Link, Order, Scope, Step, Stop, Visitor, traverse};
use phys::{BlkPtrPhys, BpobjPhys, DvaPhys, ObjectType, Phys, SpaceMapPhys, pool_names};
use proptest::prelude::*;
use rig::{Rig, TXG};
use zerocopy::IntoBytes;
use zio::{BlockStore, Bookmark};

use crate::{BlockKind, Checksums, Finding, Options, Pool, Report, Severity, verify};

fn check(pool: &Pool) -> Report {
    verify(pool, &Options::default()).expect("the MOS opens")
}

/// The findings when `before` runs before the MOS is synced.
fn found_after(before: impl FnOnce(&Rig)) -> Vec<Finding> {
    let rig = Rig::new(true);
    before(&rig);
    check(&rig.sync(|_| {})).findings
}

#[test]
fn a_good_pool_is_clean() {
    for is_linear in [false, true] {
        let rig = Rig::new(is_linear);
        let pool = rig.sync(|_| {});
        let report = check(&pool);
        assert_eq!(report.findings, []);
        assert_eq!(report.found_bytes(), report.allocated_bytes());
        let total = report.stats.total();
        assert!(total.count > 350 && total.gangs == 0, "{total:?}");
        let embedded = report.stats.embedded[0];
        assert!(embedded > 0);
        let data = report
            .stats
            .of_kind(BlockKind::Type(ObjectType::PLAIN_FILE_CONTENTS.raw()));
        let bins: u64 = report
            .stats
            .lsize_histogram
            .iter()
            .map(|bin| bin.count)
            .sum();
        assert!(data.count > 300 && bins + embedded == total.count);
        assert_eq!(report.progress.blocks, total.count);
    }
}

#[test]
fn any_number_of_threads_and_leaves_finds_the_same() {
    let rig = Rig::new(true);
    rig.stray_block();
    let pool = rig.sync(|_| {});
    let reports = [(1, 10), (2, 100), (7, 1), (8, 1 << 20)].map(|(threads, leaves_max)| {
        let options = Options {
            threads,
            leaves_max,
            ..Options::default()
        };
        verify(&pool, &options).unwrap()
    });
    for report in &reports {
        assert_eq!(report.findings, reports[0].findings);
        assert_eq!(report.stats, reports[0].stats);
        assert_eq!(
            report.progress.verified_bytes,
            reports[0].progress.verified_bytes
        );
    }
}

#[test]
fn sim_a_check_runs_in_simulated_time() {
    rt::simulate(5, || {
        let rig = Rig::new(true);
        assert_eq!(check(&rig.sync(|_| {})).findings, []);
    });
}

/// Frees a tree of blocks until it has freed `room` of them.
struct Destroy<'a> {
    pool: &'a Pool,
    room: u64,
    freed: u64,
}

impl Visitor for Destroy<'_> {
    fn read(&mut self, link: &Link<'_>) -> base::Result<base::Buf> {
        self.pool.pipeline.read_keyless(link.bp, &link.at)
    }

    fn leave(&mut self, link: &Link<'_>) -> Step {
        if link.at.level == 0 && self.freed >= self.room {
            return Step::Pause;
        }
        self.freed += 1;
        Step::Continue
    }
}

#[test]
fn of_a_destroyed_dataset_the_blocks_count_that_are_not_free_yet() {
    let rig = Rig::new(true);
    let root = rig.dataset().bp;
    let pool = rig.sync(|_| {});
    let destroy = |room, resume| {
        let scope = Scope {
            objset: Bookmark::DESTROYED_OBJSET,
            min_txg: Txg(0),
            order: Order::Post,
            resume,
            always_accounts: false,
        };
        let pool = &pool;
        let freed = 0;
        let mut destroy = Destroy { pool, room, freed };
        let end = traverse(&root, &scope, &mut destroy);
        (end, destroy.freed)
    };
    let (_, all) = destroy(u64::MAX, None);
    assert_eq!(crate::count_destroyed_for_tests(&pool, &root, None), all);
    let mut paused = 0;
    for room in 0..all {
        let (end, freed) = destroy(room, None);
        // Only blocks of level 0 end it.
        let Err(Stop { at: point, .. }) = end else {
            continue;
        };
        paused += 1;
        let (_, rest) = destroy(u64::MAX, point);
        assert_eq!(freed + rest, all, "{point:?}");
        let counted = crate::count_destroyed_for_tests(&pool, &root, point);
        assert_eq!(counted, rest, "{point:?}");
    }
    assert!(paused > 300, "{paused} of {all}");
}

#[test]
fn leaked_space_is_found() {
    let mut stray = BlkPtrPhys::default();
    let findings = found_after(|rig| stray = rig.stray_block());
    let dva = stray.dva[0];
    let (vdev, offset, size) = (dva.vdev(), dva.offset(), dva.asize());
    assert!(
        findings.contains(&Finding::Leak { vdev, offset, size }),
        "{findings:?}"
    );
    assert!(matches!(
        findings[..],
        [Finding::BlockSum { .. }, Finding::Leak { .. }]
    ));
}

#[test]
fn blocks_in_free_space_are_found() {
    let findings = found_after(|rig| rig.pipeline.free(TXG, &rig.dataset().bp));
    let not_allocated = |f: &&Finding| matches!(f, Finding::NotAllocated { .. });
    assert_eq!(
        findings.iter().filter(not_allocated).count(),
        2,
        "{findings:?}"
    );
    assert_eq!(findings[0].severity(), Severity::Fatal);
}

#[test]
fn space_used_twice_is_found() {
    let findings = found_after(|rig| {
        rig.add_dataset_object(rig.dataset().as_bytes());
    });
    let twice = |f: &Finding| matches!(f, Finding::AllocatedTwice { .. });
    assert!(
        findings.iter().filter(|f| twice(f)).count() > 300,
        "{findings:?}"
    );
}

#[test]
fn blocks_outside_of_the_pool_are_found() {
    let findings = found_after(|rig| {
        let mut phys = rig.dataset();
        phys.bp.set_dva(1, DvaPhys::new(VdevId(7), 0, 4096, false));
        rig.set_dataset(&phys);
    });
    let outside = |f: &Finding| matches!(f, Finding::OutOfRange { .. });
    assert!(findings.iter().any(outside), "{findings:?}");
}

#[test]
fn a_block_without_a_good_copy_is_unreadable() {
    for is_linear in [false, true] {
        let rig = Rig::new(is_linear);
        let root = rig.dataset().bp;
        let pool = rig.sync(|_| {});
        let leaf = some_data_block(&pool, &root);
        leaf.dvas().for_each(|dva| rig.memory.damage(&dva));
        let findings = check(&pool).findings;
        let kind = ErrorKind::Checksum;
        assert!(
            matches!(&findings[..], [Finding::Unreadable { kind: k, .. }] if *k == kind),
            "{findings:?}"
        );
        // A check that does not read data does not see it.
        let options = Options {
            checksums: Checksums::Metadata,
            ..Options::default()
        };
        assert_eq!(verify(&pool, &options).unwrap().findings, []);
    }
}

/// A block whose checksum is good, but whose compressed data is invalid.
#[test]
fn a_block_that_does_not_decompress_is_found_by_those_who_try() {
    for is_linear in [false, true] {
        let rig = Rig::new(is_linear);
        let root = rig.dataset().bp;
        let pool = rig.sync(|_| {});
        let leaf = find_data_block(&pool, &root, |bp| bp.psize() < bp.lsize());
        // All bytes pass as verified, as if the block had been written like that. The first ones
        // are the length of the lz4 output.
        rig.memory.is_gullible.store(true, Ordering::Relaxed);
        leaf.dvas().for_each(|dva| rig.memory.damage_at(&dva, 0));
        assert_eq!(check(&pool).findings, []);
        for every_copy in [false, true] {
            let options = Options {
                decompress: true,
                every_copy,
                ..Options::default()
            };
            let findings = verify(&pool, &options).unwrap().findings;
            let [Finding::Unreadable { kind, what, .. }] = &findings[..] else {
                panic!("{findings:?}");
            };
            assert_eq!(*kind, ErrorKind::Corrupt);
            assert!(what.contains("lz4 block of"), "{what}");
        }
    }
}

#[test]
fn a_good_pool_decompresses() {
    for is_linear in [false, true] {
        let rig = Rig::new(is_linear);
        let pool = rig.sync(|_| {});
        let options = Options {
            decompress: true,
            ..Options::default()
        };
        assert_eq!(verify(&pool, &options).unwrap().findings, []);
    }
}

#[test]
fn one_bad_copy_is_found_and_repaired() {
    for is_linear in [false, true] {
        let rig = Rig::new(is_linear);
        let root = rig.dataset().bp;
        let pool = rig.sync(|_| {});
        rig.memory.damage(&root.dva[1]);
        let once = Options {
            every_copy: false,
            ..Options::default()
        };
        assert_eq!(verify(&pool, &once).unwrap().findings, []);
        let findings = check(&pool).findings;
        assert!(
            matches!(
                findings[..],
                [Finding::DamagedCopies {
                    bad: 1,
                    repaired: 1,
                    ..
                }]
            ),
            "{findings:?}"
        );
        assert_eq!(findings[0].severity(), Severity::Warning);
        assert_eq!(check(&pool).findings, []);
    }
}

#[test]
fn pointers_that_contradict_their_place_are_found() {
    let findings = found_after(|rig| {
        let mut phys = rig.dataset();
        phys.bp.set_type(ObjectType::DNODE.raw());
        rig.set_dataset(&phys);
    });
    let bad = |f: &Finding| matches!(f, Finding::BadPointer { .. });
    assert!(findings.iter().any(bad), "{findings:?}");
}

#[test]
fn wrong_fill_counts_and_births_are_found() {
    let findings = found_after(|rig| {
        let mut phys = rig.dataset();
        phys.bp.set_fill(phys.bp.fill() + 1);
        phys.bp.set_birth(TXG.next(), TXG);
        rig.set_dataset(&phys);
    });
    assert!(
        matches!(
            findings[..],
            [
                Finding::Birth {
                    birth: Txg(11),
                    latest: Txg(10),
                    ..
                },
                Finding::Fill { .. },
            ]
        ),
        "{findings:?}"
    );
}

#[test]
fn datasets_cut_short_are_found() {
    let findings = found_after(|rig| {
        rig.add_dataset_object(&[0; 16]);
    });
    assert!(
        matches!(&findings[..], [Finding::BadObject { .. }]),
        "{findings:?}"
    );
}

#[test]
fn wrong_referenced_bytes_are_found() {
    let findings = found_after(|rig| {
        let mut phys = rig.dataset();
        phys.referenced_bytes.set(phys.referenced_bytes.get() + 512);
        rig.set_dataset(&phys);
    });
    assert!(
        matches!(findings[..], [Finding::Referenced { recorded, counted, .. }]
            if recorded == counted + 512),
        "{findings:?}"
    );
}

#[test]
fn wrong_sums_of_space_maps_are_found() {
    let rig = Rig::new(true);
    let pool = rig.sync(|rig| {
        let (_, _, map) = rig.space_map();
        let mut phys = SpaceMapPhys::read(&map.bonus()).unwrap();
        phys.alloc.set(phys.alloc.get() - 4096);
        map.set_bonus(&rig.tx, phys.as_bytes()).unwrap();
    });
    let findings = check(&pool).findings;
    assert!(
        matches!(findings[..], [Finding::SpaceMapSum { recorded, counted, .. }]
            if recorded + 4096 == counted as i64),
        "{findings:?}"
    );
}

#[test]
fn space_maps_that_contradict_themselves_are_found() {
    let rig = Rig::new(true);
    let mut broken = None;
    let pool = rig.sync(|rig| {
        let (vdev, metaslab, map) = rig.space_map();
        broken = Some((vdev, metaslab));
        // Overwrites the debug entry with a copy of the first entry after it.
        let mut entry = [0; 8];
        map.read(8, &mut entry).unwrap();
        map.write(&rig.tx, 0, &entry).unwrap();
    });
    let findings = check(&pool).findings;
    let is_it = |f: &Finding| match f {
        Finding::BadSpaceMap { vdev, metaslab, .. } => broken == Some((*vdev, *metaslab)),
        _ => false,
    };
    assert!(findings.iter().any(is_it), "{findings:?}");
}

#[test]
fn deferred_frees_are_counted_and_their_sum_compared() {
    let mut stray = BlkPtrPhys::default();
    let findings = found_after(|rig| {
        stray = rig.stray_block();
        let new =
            dmu::NewObject::new(ObjectType::BPOBJ).bonus(ObjectType::BPOBJ_HDR, BpobjPhys::SIZE);
        let bpobj = rig.mos.object_alloc(&rig.tx, &new).unwrap();
        let mut header = BpobjPhys::default();
        header.num_blkptrs.set(1);
        header.bytes.set(stray.asize() + 1);
        bpobj.set_bonus(&rig.tx, header.as_bytes()).unwrap();
        bpobj.write(&rig.tx, 0, stray.as_bytes()).unwrap();
        rig.enter(pool_names::SYNC_BPOBJ, bpobj.id().0);
    });
    let asize = stray.asize();
    assert!(
        matches!(findings[..], [Finding::ListSum { recorded, counted, .. }]
            if recorded == asize + 1 && counted == asize),
        "{findings:?}"
    );
}

#[test]
fn what_cannot_be_checked_is_said() {
    let findings = found_after(|rig| rig.enter(pool_names::OBSOLETE_BPOBJ, 5));
    assert!(
        matches!(&findings[..], [Finding::NotChecked { .. }]),
        "{findings:?}"
    );
    assert_eq!(findings[0].severity(), Severity::Warning);
}

#[test]
fn a_check_can_be_cancelled_and_reports_progress() {
    let rig = Rig::new(true);
    let pool = rig.sync(|_| {});
    let cancel = Arc::new(AtomicBool::new(false));
    let options = Options {
        cancel: Some(cancel.clone()),
        progress: Some(Arc::new(|_: &crate::Progress| {})),
        ..Options::default()
    };
    assert!(verify(&pool, &options).unwrap().is_clean());
    cancel.store(true, Ordering::Relaxed);
    assert_eq!(verify(&pool, &options).unwrap_err().kind(), ErrorKind::Busy);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn prop_garbage_is_survived(places in prop::collection::vec(any::<(u32, u32, u8)>(), 1..400)) {
        let rig = Rig::with_compression(true, Algorithm::Empty);
        let pool = rig.sync(|_| {});
        let segments = crate::metadata_for_tests(&pool);
        rig.memory.is_gullible.store(true, Ordering::Relaxed);
        rig.memory.litter(&segments, &places);
        let _ = verify(&pool, &Options::default());
    }
}

#[test]
fn every_finding_reads_as_a_sentence() {
    let finding = Finding::Leak {
        vdev: VdevId(1),
        offset: 0x2000,
        size: 4096,
    };
    assert_eq!(
        finding.to_string(),
        "leaked space: vdev 1, offset 0x2000, size 4096"
    );
}

/// A level-0 block of file contents that has a DVA.
fn some_data_block(pool: &Pool, root: &BlkPtrPhys) -> BlkPtrPhys {
    find_data_block(pool, root, |_| true)
}

/// The same, found the hard way.
fn find_data_block(
    pool: &Pool,
    root: &BlkPtrPhys,
    is_wanted: impl Fn(&BlkPtrPhys) -> bool,
) -> BlkPtrPhys {
    let store: Arc<dyn BlockStore> = pool.pipeline.clone();
    let accounting = Arc::new(dmu::FreeAtOnce(store.clone()));
    let props = dmu::ObjsetProps::default();
    let id = base::ObjsetId(99);
    let objset = dmu::Objset::open(store, id, root, props, accounting).unwrap();
    let mut object = ObjectId(0);
    while let Some(next) = objset.next_object(object).unwrap() {
        object = next;
        let dnode = objset.hold(object).unwrap();
        for blkid in 0..4 {
            let bp = dnode.block_pointer(0, base::BlkId(blkid)).unwrap();
            if !bp.is_hole() && !bp.is_embedded() && is_wanted(&bp) {
                return bp;
            }
        }
    }
    panic!("no data block");
}
