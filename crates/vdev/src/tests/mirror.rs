//! Mirrors: what goes wrong with a side, and the consequences.

use super::*;
use base::ErrorKind;
use faulty::{Damage, FaultInjector};
use phys::label::LABEL_START_SIZE;
use ram::Memory;
use zio::{RunBlock, ScrubReport, VdevOps};

const TOP: VdevId = VdevId(0);
const LEN: usize = 8192;

fn faulty(count: usize) -> (Vec<Arc<FaultInjector>>, Arc<VdevTree>) {
    let disks: Vec<_> = (0..count)
        .map(|n| {
            Arc::new(FaultInjector::new(Arc::new(Memory::new(
                format!("/md{n}"),
                DISK_BYTES,
            ))))
        })
        .collect();
    let providers: Vec<_> = disks
        .iter()
        .map(|disk| disk.clone() as Arc<dyn Provider>)
        .collect();
    (disks, mirror_tree(&providers))
}

fn damage_data(disk: &FaultInjector, damage: Damage) {
    disk.damage(LABEL_START_SIZE..DISK_BYTES - (1 << 20), damage);
}

fn is(fill: u8) -> impl Fn(&[u8]) -> bool {
    move |bytes| bytes.iter().all(|byte| *byte == fill)
}

fn stats(tree: &VdevTree, n: usize) -> StatsSnapshot {
    tree.devices()[n].stats().snapshot()
}

#[test]
fn writes_reach_every_side_behind_the_labels() {
    let (disks, tree) = faulty(3);
    tree.write_block(TOP, 4096, &[5; LEN]).unwrap();
    tree.write(&IO, TOP, 65536, &[&[6; 4096], &[7; 4096]])
        .unwrap();
    tree.flush(&[VdevId(0)]).unwrap();
    for disk in &disks {
        let mut bytes = [0; LEN];
        disk.read(LABEL_START_SIZE + 4096, &mut bytes).unwrap();
        assert_eq!(bytes, [5; LEN]);
        disk.read(LABEL_START_SIZE + 65536, &mut bytes).unwrap();
        assert_eq!((bytes[0], bytes[4096]), (6, 7));
    }
}

#[test]
fn a_bad_copy_is_passed_over_counted_and_rewritten() {
    for damage in [Damage::Flip(4), Damage::Noise(1), Damage::ReadError] {
        let (disks, tree) = faulty(2);
        // Within 32 MiB, each side has its turn to be read first.
        for n in 0..16u64 {
            tree.write_block(TOP, n << 21, &[9; LEN]).unwrap();
        }
        damage_data(&disks[0], damage);
        for n in 0..16u64 {
            let mut bytes = [0; LEN];
            tree.read_block(TOP, n << 21, &mut bytes, &is(9)).unwrap();
            assert_eq!(bytes, [9; LEN]);
        }
        let bad = stats(&tree, 0);
        let errors = bad.checksum_errors + bad.read_errors;
        assert!(errors > 0, "{damage:?}");
        assert_eq!(bad.self_healed_bytes, errors * LEN as u64);
        assert_eq!(stats(&tree, 1).checksum_errors, 0);
        let before = stats(&tree, 0).self_healed_bytes;
        for n in 0..16u64 {
            let mut bytes = [0; LEN];
            tree.read_block(TOP, n << 21, &mut bytes, &is(9)).unwrap();
        }
        let after = stats(&tree, 0).self_healed_bytes - before;
        assert_eq!(after, 0, "what was read once is healed");
    }
}

#[test]
fn scrub_looks_at_every_copy() {
    let (disks, tree) = faulty(3);
    tree.write_block(TOP, 0, &[9; LEN]).unwrap();
    damage_data(&disks[0], Damage::Flip(1));
    disks[2].damage(LABEL_START_SIZE..LABEL_START_SIZE + 512, Damage::ReadError);
    let mut bytes = [0; LEN];
    let report = tree.scrub_block(TOP, 0, &mut bytes, &is(9)).unwrap();
    assert_eq!(
        report,
        ScrubReport {
            bad: 2,
            repaired: 2,
            repaired_bytes: 2 * LEN as u64,
        }
    );
    assert_eq!(bytes, [9; LEN]);
    assert_eq!(
        tree.scrub_block(TOP, 0, &mut bytes, &is(9)).unwrap(),
        ScrubReport::default()
    );
    assert_eq!(stats(&tree, 2).read_errors, 1);
}

#[test]
fn no_good_copy_is_a_checksum_error_and_probes_count_nothing() {
    let (disks, tree) = faulty(2);
    tree.write_block(TOP, 0, &[9; LEN]).unwrap();
    let mut bytes = [0; LEN];
    let error = tree.probe_block(TOP, 0, &mut bytes, &is(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Checksum);
    assert_eq!(tree.root().total_stats().checksum_errors, 0);
    let error = tree.read_block(TOP, 0, &mut bytes, &is(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Checksum);
    assert_eq!(tree.root().total_stats().checksum_errors, 2);
    damage_data(&disks[0], Damage::ReadError);
    damage_data(&disks[1], Damage::ReadError);
    assert_eq!(
        tree.read_block(TOP, 0, &mut bytes, &is(9))
            .unwrap_err()
            .kind(),
        ErrorKind::Io
    );
}

#[test]
fn a_dead_side_is_given_up_and_its_gap_is_remembered() {
    let (disks, tree) = faulty(2);
    tree.write_block(TOP, 0, &[1; LEN]).unwrap();
    disks[0].kill();
    tree.write_block(TOP, 0, &[2; LEN]).unwrap();
    let device = &tree.devices()[0];
    assert_eq!(device.state(), (VdevState::Faulted, VdevAux::ErrExceeded));
    assert_eq!(tree.state().0, VdevState::Degraded);
    assert_eq!(gaps(device), [(10, 13)]);
    tree.set_syncing_txg(Txg(20));
    tree.write_block(TOP, 65536, &[2; LEN]).unwrap();
    tree.flush(&[VdevId(0)]).unwrap();
    assert_eq!(gaps(device), [(10, 13), (20, 23)]);

    // The last side is never given up, and its errors are returned.
    disks[1].kill();
    let error = tree.write_block(TOP, 0, &[3; LEN]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert_eq!(tree.devices()[1].state().0, VdevState::Healthy);
    disks[1].revive();
    disks[0].revive();

    // Back again, it is not asked for what it missed, and no errors are counted for that.
    tree.online(Guid(101), disks[0].clone()).unwrap();
    for _ in 0..4 {
        let mut bytes = [0; LEN];
        tree.read_block(TOP, 0, &mut bytes, &is(2)).unwrap();
    }
    let mut bytes = [0; LEN];
    let report = tree.scrub_block(TOP, 0, &mut bytes, &is(2)).unwrap();
    assert_eq!(
        report,
        ScrubReport {
            bad: 1,
            repaired: 1,
            repaired_bytes: LEN as u64,
        }
    );
    assert_eq!(stats(&tree, 0).checksum_errors, 0);
    device.leaf().clear_dtl(&(0..100));
    assert_eq!(tree.state().0, VdevState::Healthy);
}

#[test]
fn ranges_with_the_same_end_are_all_missed() {
    let (_, tree) = faulty(2);
    let leaf = &tree.devices()[0];
    // One from the labels, one from the MOS, one of a write that fails.
    for range in [101..102, 100..102, 99..102, 98..102] {
        leaf.leaf().dirty_dtl(range.clone());
        assert_eq!(leaf.leaf().dtl().ranges(), [range]);
    }
}

#[test]
fn a_side_that_fails_too_often_is_given_up() {
    let (disks, tree) = faulty(2);
    for n in 0..20u64 {
        tree.write_block(TOP, n * LEN as u64, &[9; LEN]).unwrap();
    }
    damage_data(&disks[0], Damage::Flip(1));
    let mut bytes = [0; LEN];
    for n in 0..10u64 {
        tree.scrub_block(TOP, n * LEN as u64, &mut bytes, &is(9))
            .unwrap();
    }
    assert_eq!(
        tree.devices()[0].state(),
        (VdevState::Degraded, VdevAux::ErrExceeded)
    );
    assert_eq!(tree.state().0, VdevState::Degraded);
    tree.clear(None).unwrap();
    assert_eq!(tree.state().0, VdevState::Healthy);
    disks[0].heal();
    damage_data(&disks[0], Damage::ReadError);
    for n in 0..10u64 {
        tree.scrub_block(TOP, n * LEN as u64, &mut bytes, &is(9))
            .unwrap();
    }
    assert_eq!(
        tree.devices()[0].state(),
        (VdevState::Faulted, VdevAux::ErrExceeded)
    );
}

#[test]
fn a_failed_flush_of_one_side_is_a_gap() {
    let (disks, tree) = faulty(2);
    tree.write_block(TOP, 0, &[1; LEN]).unwrap();
    disks[1].kill();
    tree.flush(&[VdevId(0)]).unwrap();
    assert!(tree.devices()[1].leaf().has_dtl());
    assert!(!tree.devices()[0].leaf().has_dtl());
    tree.write_block(TOP, 0, &[1; LEN]).unwrap();
    disks[0].kill();
    assert_eq!(tree.flush(&[VdevId(0)]).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn offline_needs_another_complete_side() {
    let (disks, tree) = faulty(2);
    tree.offline(Guid(101), false).unwrap();
    assert_eq!(tree.devices()[0].state().0, VdevState::Offline);
    assert_eq!(
        tree.offline(Guid(102), false).unwrap_err().kind(),
        ErrorKind::Busy
    );
    tree.write_block(TOP, 0, &[1; LEN]).unwrap();
    tree.online(Guid(101), disks[0].clone()).unwrap();
    // The other side is the only one that has everything.
    assert_eq!(
        tree.offline(Guid(102), false).unwrap_err().kind(),
        ErrorKind::Busy
    );
    assert_eq!(
        tree.offline(Guid(999), false).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn a_pool_opened_for_reading_is_never_written() {
    let (disks, tree) = faulty(2);
    tree.write_block(TOP, 0, &[9; LEN]).unwrap();
    damage_data(&disks[0], Damage::Flip(1));
    damage_data(&disks[1], Damage::Flip(0));
    let reader = VdevTree::read_only(tree.root());
    let writes = [disks[0].commands().1, disks[1].commands().1];
    let mut bytes = [0; LEN];
    for _ in 0..20 {
        reader.scrub_block(TOP, 0, &mut bytes, &is(9)).unwrap();
    }
    assert_eq!(
        reader.write_block(TOP, 0, &bytes).unwrap_err().kind(),
        ErrorKind::ReadOnly
    );
    assert_eq!([disks[0].commands().1, disks[1].commands().1], writes);
}

#[test]
fn ranges_outside_of_the_vdev_are_corrupt() {
    let (_, tree) = faulty(1);
    let asize = tree.tops()[0].config().asize;
    let mut bytes = [0; LEN];
    for (vdev, offset) in [
        (0, asize),
        (0, asize - 4096),
        (0, u64::MAX - 10),
        (1, 0),
        (1 << 40, 0),
    ] {
        let error = tree
            .read_block(VdevId(vdev), offset, &mut bytes, &is(0))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
    tree.read_block(TOP, asize - LEN as u64, &mut bytes, &is(0))
        .unwrap();
}

#[test]
fn reads_take_turns_and_prefer_the_idle_side() {
    let (disks, tree) = faulty(2);
    for n in 0..64u64 {
        let mut bytes = [0; 4096];
        tree.read_block(TOP, (n * 0x37_1000) % (48 << 20), &mut bytes, &is(0))
            .unwrap();
    }
    let (first, second) = (disks[0].commands().0, disks[1].commands().0);
    assert_eq!(first + second, 64);
    assert!(first > 15 && second > 15, "{first} {second}");
}

#[test]
fn sim_queued_sides_are_written_at_the_same_time() {
    rt::simulate(1, || {
        let disks: Vec<Arc<dyn Provider>> = (0..3)
            .map(|n| {
                Arc::new(Queued(Memory::new(format!("/q{n}"), DISK_BYTES))) as Arc<dyn Provider>
            })
            .collect();
        let tree = mirror_tree(&disks);
        tree.write(&IO, TOP, 0, &[&[4; 4096], &[4; 4096]]).unwrap();
        assert_eq!(rt::now_ns(), 1_000_000);
        tree.flush(&[VdevId(0)]).unwrap();
        assert_eq!(rt::now_ns(), 2_000_000, "flushes overlap as well");
        let mut bytes = [0; LEN];
        tree.read_block(TOP, 0, &mut bytes, &is(4)).unwrap();
        for device in tree.devices() {
            assert_eq!(device.io_counts().write_bytes(), LEN as u64);
        }
    });
}

#[test]
fn sim_labels_of_several_devices_are_written_at_the_same_time() {
    let run = |seed| {
        rt::simulate(seed, move || {
            let disks: Vec<Arc<dyn Provider>> = (0..4)
                .map(|n| {
                    let disk = Arc::new(Memory::new(format!("/d{n}"), DISK_BYTES));
                    Arc::new(faulty::Delay::new(disk, 1000..2000, seed + n)) as _
                })
                .collect();
            let tree = mirror_tree(&disks);
            let start = rt::now_ns();
            sync(&tree, 10).unwrap();
            rt::now_ns() - start
        })
    };
    // 8 label and uberblock writes and 3 flushes per device, one after another.
    assert!(run(1) < 11 * 2000, "{}", run(1));
    assert_eq!(run(7), run(7));
}

/// Each block of a run is verified and repaired on its own.
#[test]
fn a_run_is_scrubbed_block_by_block() {
    let (disks, tree) = faulty(2);
    for n in 0..4 {
        tree.write_block(TOP, n * LEN as u64, &[9; LEN]).unwrap();
    }
    let block = |n: u64| {
        let start = LABEL_START_SIZE + n * LEN as u64;
        start..start + LEN as u64
    };
    disks[0].damage(block(1), Damage::Flip(1));
    disks[1].damage(block(3).start..block(3).start + 512, Damage::ReadError);
    let mut bytes = vec![0; 4 * LEN];
    let run_block = |n| RunBlock {
        offset: (n * LEN) as u64,
        range: n * LEN..(n + 1) * LEN,
        birth: BIRTH,
    };
    let blocks: Vec<_> = (0..4).map(run_block).collect();
    let good = |_: usize, bytes: &[u8]| is(9)(bytes);
    let mut scrub = || {
        let reports = tree.scrub(TOP, &mut bytes, &blocks, &good).unwrap();
        let reports = reports.into_iter().map(Result::unwrap);
        reports.map(|r| (r.bad, r.repaired)).collect::<Vec<_>>()
    };
    assert_eq!(scrub(), [(0, 0), (1, 1), (0, 0), (1, 1)]);
    assert_eq!(scrub(), [(0, 0); 4]);
    assert_eq!(bytes, [9; 4 * LEN]);
    assert_eq!(
        (stats(&tree, 0).checksum_errors, stats(&tree, 1).read_errors),
        (1, 1)
    );
    let healed = [0, 1].map(|n| stats(&tree, n).self_healed_bytes);
    assert_eq!(healed, [LEN as u64; 2]);
    // One block that is bad on both sides leaves the others as they are.
    damage_data(&disks[0], Damage::Flip(1));
    disks[1].damage(block(2), Damage::Flip(2));
    let reports = tree.scrub(TOP, &mut bytes, &blocks, &good).unwrap();
    let bad: Vec<_> = reports.iter().map(Result::is_err).collect();
    assert_eq!(bad, [false, false, true, false]);
}

/// A block that is rewritten from another place counts as repaired on each side.
#[test]
fn a_repair_counts_what_it_wrote() {
    let (_, tree) = faulty(2);
    tree.repair_block(TOP, 0, &[9; LEN]).unwrap();
    assert_eq!(tree.root().total_stats().self_healed_bytes, 2 * LEN as u64);
}

/// A DTL names whole txgs: each side may lack what the other one has of the same txg.
#[test]
fn a_block_of_a_txg_that_both_sides_missed_is_read_wherever_it_is() {
    let (_, tree) = faulty(2);
    tree.write_block(TOP, 0, &[9; LEN]).unwrap();
    for device in tree.devices() {
        device.leaf().dirty_dtl(BIRTH.0..BIRTH.0 + 1);
    }
    let mut bytes = [0; LEN];
    tree.scrub_block(TOP, 0, &mut bytes, &is(9)).unwrap();
    assert_eq!(bytes, [9; LEN]);
    tree.read_block(TOP, 0, &mut bytes, &is(9)).unwrap();
}

/// What a side has that missed the block says nothing: the error is that of the side that should have it.
#[test]
fn while_the_side_with_a_block_is_away_its_error_counts() {
    let (disks, tree) = faulty(2);
    tree.write_block(TOP, 0, &[9; LEN]).unwrap();
    damage_data(&disks[1], Damage::Noise(1));
    let devices = tree.devices();
    let kinds = |expect| {
        let mut bytes = [0; LEN];
        let read = tree.read_block(TOP, 0, &mut bytes, &is(9));
        assert_eq!(read.unwrap_err().kind(), expect);
        let scrubbed = tree.scrub_block(TOP, 0, &mut bytes, &is(9));
        assert_eq!(scrubbed.unwrap_err().kind(), expect);
    };
    disks[0].kill();
    kinds(ErrorKind::Checksum);
    devices[1].leaf().dirty_dtl(BIRTH.0..BIRTH.0 + 1);
    kinds(ErrorKind::Io);
    // If nobody is known to have it, what is there is wrong.
    devices[0].leaf().dirty_dtl(BIRTH.0..BIRTH.0 + 1);
    kinds(ErrorKind::Checksum);
}
