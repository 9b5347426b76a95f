//! Pools whose devices are damaged, missing, stale, foreign or full: whatever can be read is read, what cannot
//! is named, and nothing else is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Error, ErrorKind, ObjectId, Result, Txg};
use faulty::{Damage, FaultInjector};
use geom::{BioCmd, Command, Provider, Shape};
use phys::label::{LABELS, NVLIST_OFFSET, UBERBLOCK_RING_OFFSET, label_offset};
use phys::uberblock::UberblockPhys;
use ram::Memory;
use spa::Spa;
use torture::Dice;
use torture::files::{Files, Node};
use torture::pool::{self, Layout};
use vdev::VdevState;
use vdev::import::discover;
use vdev::label::Labels;
use zpl::mount::{Mount, init, mount};
use zpl::{Create, Filesystem, NewFilesystem};

const DISK_BYTES: u64 = 128 << 20;
const RECORD: u64 = 128 << 10;

fn memory(i: usize) -> Arc<FaultInjector> {
    Arc::new(FaultInjector::new(Arc::new(Memory::new(
        format!("/disk{i}"),
        DISK_BYTES,
    ))))
}

fn providers(disks: &[Arc<FaultInjector>]) -> Vec<Arc<dyn Provider>> {
    disks
        .iter()
        .map(|disk| disk.clone() as Arc<dyn Provider>)
        .collect()
}

fn new_pool(name: &str, layout: Layout, disks: &[Arc<dyn Provider>]) -> Spa {
    let root = init(NewFilesystem::default(), true);
    let mut settings = pool::settings();
    // Devices that fail are not waited for.
    settings.txg.suspend.patience_ns = 0;
    let spa = pool::create_with(name, layout, 9, disks, root, settings).unwrap();
    let incompressible = [("compression", 2), ("recordsize", RECORD)];
    pool::create_fs(&spa, &format!("{name}/fs"), &incompressible).unwrap();
    spa
}

fn fs_of(spa: &Spa, readonly: bool) -> Mount {
    mount(spa.parts().dsl(), &format!("{}/fs", spa.name()), readonly).unwrap()
}

fn create(fs: &Filesystem, name: &str) -> Result<ObjectId> {
    let create = Create {
        mode: 0o644,
        uid: 0,
        gid: 0,
    };
    Ok(fs.create_file(fs.root(), name.as_bytes(), &create)?.id)
}

/// Random bytes: no two places of a pool have the same content.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut dice = Dice::new(seed);
    (0..length.div_ceil(8))
        .flat_map(|_| dice.below(u64::MAX).to_le_bytes())
        .take(length)
        .collect()
}

/// A file of noise, in the file system and in the model.
fn add(fs: &Filesystem, files: &mut Files, name: &str, length: usize) -> Result<()> {
    let bytes = noise(files.nodes.len() as u64 + 1, length);
    fs.write(create(fs, name)?, 0, &bytes)?;
    files.nodes.insert(name.into(), Node::File(bytes));
    Ok(())
}

/// Some files on a new pool, which is left as after a crash: neither exported nor closed explicitly.
fn sample(name: &str, layout: Layout, disks: &[Arc<FaultInjector>]) -> Files {
    let spa = new_pool(name, layout, &providers(disks));
    let mut files = Files::default();
    let fs = fs_of(&spa, false);
    (0..8).for_each(|i| add(&fs, &mut files, &format!("file{i}"), 300_000).unwrap());
    drop(fs);
    spa.close().unwrap();
    files
}

fn assert_has(spa: &Spa, files: &Files) {
    files
        .compare(&fs_of(spa, true))
        .unwrap_or_else(|e| panic!("{e}"));
}

/// Flips a bit in the config of each label whose bit is set in `mask`.
fn damage_labels(disk: &FaultInjector, mask: usize) {
    for index in (0..LABELS).filter(|index| mask & (1 << index) != 0) {
        let at = label_offset(DISK_BYTES, index).unwrap() + NVLIST_OFFSET + 100;
        disk.damage(at..at + 1, Damage::Flip(0x10));
    }
}

#[test]
fn any_one_good_label_will_do() {
    let disks = [memory(0)];
    let files = sample("tank", Layout::Stripe, &disks);
    for mask in 0..15 {
        damage_labels(&disks[0], mask);
        let spa = pool::open(&providers(&disks), true).unwrap_or_else(|e| panic!("{mask:#b}: {e}"));
        assert_has(&spa, &files);
        drop(spa);
        disks[0].heal();
    }
    damage_labels(&disks[0], 15);
    let refused = pool::open(&providers(&disks), true)
        .err()
        .expect("no label is left");
    assert_eq!(refused.kind(), ErrorKind::NotFound, "{refused}");
    disks[0].heal();
}

#[test]
fn damaged_labels_are_written_anew_by_an_export() {
    let disks = [memory(0)];
    let files = sample("tank", Layout::Stripe, &disks);
    damage_labels(&disks[0], 0b0111);
    let spa = pool::open(&providers(&disks), false).unwrap();
    assert_has(&spa, &files);
    spa.export().unwrap();
    drop(spa);
    assert!(!disks[0].is_damaged());
    damage_labels(&disks[0], 0b1000);
    assert_has(&pool::open(&providers(&disks), true).unwrap(), &files);
}

fn newest(disk: &dyn Provider) -> UberblockPhys {
    Labels::read(disk)
        .unwrap()
        .best_uberblock(Txg(u64::MAX))
        .unwrap()
}

/// Tears the newest uberblock in the labels of `mask`: its second half is not the one that was written.
fn tear_newest(disk: &FaultInjector, mask: usize) {
    let newest = newest(disk).txg();
    let slot_bytes = 1 << 10; // of ashift 9
    let labels = Labels::read(disk).unwrap();
    for label in labels
        .readable()
        .filter(|label| mask & (1 << label.index) != 0)
    {
        for slot in label
            .ring
            .iter()
            .filter(|slot| slot.uberblock.txg() == newest)
        {
            let at = label.offset + UBERBLOCK_RING_OFFSET + slot.slot * slot_bytes;
            disk.damage(at + slot_bytes / 2..at + slot_bytes, Damage::Noise(7));
        }
    }
}

#[test]
fn a_torn_uberblock_gives_way_to_the_one_before() {
    let disks = [memory(0)];
    let spa = new_pool("tank", Layout::Stripe, &providers(&disks));
    let mut files = Files::default();
    let fs = fs_of(&spa, false);
    add(&fs, &mut files, "before", 1_000_000).unwrap();
    let before = spa.sync().unwrap();
    let old = files.clone();
    add(&fs, &mut files, "after", 1_000_000).unwrap();
    fs.write(fs.resolve("before").unwrap(), 0, b"overwritten")
        .unwrap();
    let Some(Node::File(bytes)) = files.nodes.get_mut("before") else {
        unreachable!()
    };
    bytes[..11].copy_from_slice(b"overwritten");
    spa.sync().unwrap();
    drop(fs);
    spa.close().unwrap();
    drop(spa);
    for mask in 0..15 {
        tear_newest(&disks[0], mask);
        assert_has(&pool::open(&providers(&disks), true).unwrap(), &files);
        disks[0].heal();
    }
    tear_newest(&disks[0], 15);
    assert_eq!(newest(&*disks[0]).txg(), before);
    let spa = pool::open(&providers(&disks), false).unwrap();
    assert_has(&spa, &old);
    add(&fs_of(&spa, false), &mut old.clone(), "later", 500_000).unwrap();
    spa.sync().unwrap();
    pool::assert_clean(&spa);
}

/// Resilvers stale devices, and returns what the checker then finds.
fn resilver(spa: &Spa) -> check::Report {
    spa.sync().unwrap();
    spa.resilver_if_needed().unwrap();
    spa.wait_scan(&mut |_| true).unwrap();
    pool::verify(spa).unwrap()
}

fn dtls(spa: &Spa) -> Vec<vdev::TxgSet> {
    spa.parts()
        .tree()
        .devices()
        .iter()
        .map(|device| device.leaf().dtl())
        .collect()
}

fn stale_count(spa: &Spa) -> usize {
    spa.parts()
        .tree()
        .devices()
        .iter()
        .filter(|device| device.leaf().has_dtl())
        .count()
}

#[test]
fn a_mirror_goes_on_without_a_side_and_brings_it_up_to_date_later() {
    let disks = [memory(0), memory(1)];
    let mut files = sample("tank", Layout::Mirror, &disks);
    let spa = pool::open(&providers(&disks[..1]), false).unwrap();
    assert_eq!(spa.parts().tree().state().0, VdevState::Degraded);
    let fs = fs_of(&spa, false);
    (0..5).for_each(|i| add(&fs, &mut files, &format!("alone{i}"), 400_000).unwrap());
    fs.unlink(fs.root(), b"file3").unwrap();
    files.nodes.remove("file3");
    drop(fs);
    pool_closes(&spa);

    let spa = pool::open(&providers(&disks), false).unwrap();
    assert_eq!(
        stale_count(&spa),
        1,
        "the side that was away is known to be stale"
    );
    assert_has(&spa, &files);
    resilver(&spa);
    assert_eq!(stale_count(&spa), 0, "{:?}", dtls(&spa));
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);

    let spa = pool::open(&providers(&disks[1..]), true).unwrap();
    assert_has(&spa, &files);
    let report = pool::verify(&spa).unwrap();
    assert!(
        report.is_clean(),
        "the other side alone: {:#?}",
        report.findings
    );
}

fn pool_closes(spa: &Spa) {
    spa.sync().unwrap();
    spa.close().unwrap();
}

#[test]
fn a_side_that_dies_at_work_is_missed_and_brought_up_to_date() {
    let disks = [memory(0), memory(1)];
    let spa = new_pool("tank", Layout::Mirror, &providers(&disks));
    let mut files = Files::default();
    let fs = fs_of(&spa, false);
    add(&fs, &mut files, "both", 500_000).unwrap();
    spa.sync().unwrap();
    disks[1].kill();
    add(&fs, &mut files, "one", 500_000).unwrap();
    spa.sync().unwrap();
    files.compare(&fs).unwrap();
    drop(fs);
    pool_closes(&spa);
    disks[1].revive();
    let spa = pool::open(&providers(&disks), false).unwrap();
    assert_eq!(stale_count(&spa), 1);
    resilver(&spa);
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    assert_has(&pool::open(&providers(&disks[1..]), true).unwrap(), &files);
}

#[test]
fn a_device_of_another_pool_is_not_taken_for_a_missing_side() {
    let disks = [memory(0), memory(1)];
    let files = sample("tank", Layout::Mirror, &disks);
    let foreign = [memory(1)]; // under the name of the missing side
    let others = sample("other", Layout::Stripe, &foreign);
    let given = providers(&[disks[0].clone(), foreign[0].clone()]);
    let names: Vec<String> = discover(&given)
        .pools
        .into_iter()
        .map(|pool| pool.name)
        .collect();
    assert_eq!(names, ["other", "tank"]);
    let spa = pool::open(&providers(&[disks[0].clone()]), false).unwrap();
    assert_has(&spa, &files);
    spa.export().unwrap();
    let pools = discover(&given).pools.into_iter();
    for (found, files) in pools.zip([&others, &files]) {
        let spa = Spa::import(spa::ImportOptions {
            found,
            new_name: None,
            readonly: true,
            max_txg: None,
            force: false,
            gives_up_logs: false,
            tolerates_missing: false,
            rewinds: false,
            host: pool::host(),
            settings: spa::Settings::default(),
        });
        assert_has(&spa.unwrap(), files);
    }
}

#[test]
fn blocks_bad_on_one_side_are_read_from_the_other_repaired_and_counted() {
    let disks = [memory(0), memory(1)];
    let files = sample("tank", Layout::Mirror, &disks);
    let spa = pool::open(&providers(&disks), false).unwrap();
    let fs = fs_of(&spa, false);
    let mut at = Vec::new();
    (0..8).for_each(|i| at.extend(pool::places(&fs, &format!("file{i}"))));
    for (i, place) in at.into_iter().enumerate() {
        let kind = if i % 3 == 0 {
            Damage::ReadError
        } else {
            Damage::Noise(i as u64)
        };
        disks[i % 2].damage(place, kind);
    }
    files.compare(&fs).unwrap();
    let stats = spa.parts().tree().root().total_stats();
    assert!(stats.checksum_errors > 0, "{stats:?}");
    assert!(stats.read_errors > 0, "{stats:?}");
    assert!(stats.self_healed_bytes >= RECORD, "{stats:?}");
    pool::verify(&spa).unwrap();
    assert!(!disks[0].is_damaged(), "repaired");
    assert!(!disks[1].is_damaged(), "repaired");
    pool::assert_clean(&spa);
}

#[test]
fn a_block_bad_on_both_sides_is_lost_alone() {
    for kind in [Damage::Noise(1), Damage::ReadError] {
        let disks = [memory(0), memory(1)];
        let spa = new_pool("tank", Layout::Mirror, &providers(&disks));
        let fs = fs_of(&spa, false);
        let mut files = Files::default();
        add(&fs, &mut files, "file", 10 * RECORD as usize).unwrap();
        spa.sync().unwrap();
        let bad = pool::places(&fs, "file")[4].clone();
        drop(fs);
        pool_closes(&spa);
        disks.iter().for_each(|disk| disk.damage(bad.clone(), kind));

        let spa = pool::open(&providers(&disks), false).unwrap();
        let fs = fs_of(&spa, false);
        let id = fs.resolve("file").unwrap();
        let Node::File(bytes) = &files.nodes["file"] else {
            unreachable!()
        };
        for (blkid, block) in bytes.chunks(RECORD as usize).enumerate() {
            let mut found = vec![0; block.len()];
            let outcome = fs.read(id, blkid as u64 * RECORD, &mut found);
            if blkid == 4 {
                let error = outcome.expect_err("both copies are bad");
                assert!(
                    matches!(error.kind(), ErrorKind::Checksum | ErrorKind::Io),
                    "{error}"
                );
            } else {
                outcome.unwrap_or_else(|e| panic!("block {blkid}: {e}"));
                assert!(found == block, "block {blkid}");
            }
        }
        let report = pool::verify(&spa).unwrap();
        assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
        // Everything else works, and writing the whole block replaces the bad one.
        fs.write(
            id,
            4 * RECORD,
            &bytes[4 * RECORD as usize..5 * RECORD as usize],
        )
        .unwrap();
        spa.sync().unwrap();
        files.compare(&fs).unwrap();
        pool::assert_clean(&spa);
    }
}

/// Writes files until there is no space; returns the error. `files` has what was written, perhaps only part of
/// the last file.
fn fill(fs: &Filesystem, files: &mut Files, stem: &str, length: usize) -> Error {
    for i in 0..100_000 {
        let name = format!("{stem}{i}");
        let id = match create(fs, &name) {
            Ok(id) => id,
            Err(error) => return error,
        };
        let bytes = noise(i + 77, length);
        let mut written = 0;
        for piece in bytes.chunks(RECORD as usize) {
            if let Err(error) = fs.write(id, written, piece) {
                // A write may be cut short: the file size says where.
                let size = fs.getattr(id).unwrap().size as usize;
                files.nodes.insert(name, Node::File(bytes[..size].to_vec()));
                return error;
            }
            written += piece.len() as u64;
        }
        files.nodes.insert(name, Node::File(bytes));
    }
    panic!("the pool never got full");
}

fn full_pool(layout: Layout, length: usize) {
    let disks = [memory(0), memory(1)];
    let spa = new_pool("tank", layout, &providers(&disks));
    let mut files = Files::default();
    for round in 0..3 {
        let fs = fs_of(&spa, false);
        let error = fill(&fs, &mut files, &format!("round{round}-"), length);
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        files.compare(&fs).unwrap();
        spa.sync().unwrap();
        pool::assert_clean(&spa);
        // Removes every other file.
        let names: Vec<String> = files.nodes.keys().step_by(2).cloned().collect();
        for name in names {
            fs.unlink(fs.root(), name.as_bytes())
                .unwrap_or_else(|e| panic!("{name}: {e}"));
            files.nodes.remove(&name);
        }
        spa.sync().unwrap();
        files.compare(&fs).unwrap();
    }
    assert_eq!(spa.suspended(), None);
    spa.export().unwrap();
    drop(spa);
    let spa = pool::open(&providers(&disks), false).unwrap();
    assert_has(&spa, &files);
    let fs = fs_of(&spa, false);
    add(&fs, &mut files, "room-again", 3_000_000).unwrap();
    spa.sync().unwrap();
    files.compare(&fs).unwrap();
    pool::assert_clean(&spa);
}

#[test]
fn a_pool_full_of_large_files_loses_nothing_and_can_be_emptied() {
    full_pool(Layout::Stripe, 5_000_000);
}

#[test]
fn a_pool_full_of_small_files_loses_nothing_and_can_be_emptied() {
    full_pool(Layout::Mirror, 40_000);
}

#[test]
fn a_pool_full_of_snapshots_can_be_emptied() {
    let disks = [memory(0)];
    let spa = new_pool("tank", Layout::Stripe, &providers(&disks));
    let fs = fs_of(&spa, false);
    let mut files = Files::default();
    add(&fs, &mut files, "file", 8_000_000).unwrap();
    let id = fs.resolve("file").unwrap();
    let mut snapshots: Vec<String> = Vec::new();
    let error = (0..1000).find_map(|i| {
        let name = format!("tank/fs@s{i}");
        let outcome = spa
            .parts()
            .dsl()
            .snapshot(&[&name], Vec::new())
            .and_then(|_| {
                snapshots.push(name);
                fs.write(id, 0, &noise(i + 1000, 4_000_000))
            });
        outcome.err()
    });
    let error = error.expect("the pool gets full");
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    let names: Vec<&str> = snapshots.iter().map(String::as_str).collect();
    spa.parts().dsl().destroy_snapshots(&names, false).unwrap();
    spa.sync().unwrap();
    spa.sync().unwrap();
    add(&fs, &mut files, "room-again", 20_000_000).unwrap();
    spa.sync().unwrap();
    pool::assert_clean(&spa);
}

/// A sparse image on a host that has `room` bytes left to write.
struct FullHost {
    image: Arc<dyn Provider>,
    room: AtomicU64,
}

impl Provider for FullHost {
    fn name(&self) -> &str {
        self.image.name()
    }
    fn shape(&self) -> Shape {
        self.image.shape()
    }
    fn execute(&self, offset: u64, command: Command<'_>) -> Result<()> {
        if let (BioCmd::Write, len) = command.cmd() {
            let take = |room: u64| room.checked_sub(len);
            let taken = self
                .room
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
            if taken.is_err() {
                let text = format!("{}: no space left on the host", self.name());
                return Err(Error::new(ErrorKind::NoSpace, text));
            }
        }
        self.image.execute(offset, command)
    }
}

/// Writes and syncs until the pool gives up; returns the synced files, and the error.
fn write_until_error(spa: &Spa) -> (Files, Error) {
    let fs = fs_of(spa, false);
    let mut files = Files::default();
    let mut synced = files.clone();
    for i in 0..1000 {
        let outcome = add(&fs, &mut files, &format!("file{i}"), 700_000)
            .and_then(|()| spa.sync().map(|_| ()));
        match outcome {
            Ok(()) => synced = files.clone(),
            Err(error) => return (synced, error),
        }
    }
    panic!("the host never got full");
}

#[test]
fn a_full_host_suspends_the_pool_and_what_was_synced_is_there_afterwards() {
    for room in [3_000_000, 9_123_456, 20_000_000] {
        let disk: Arc<dyn Provider> = memory(0);
        let host = Arc::new(FullHost {
            image: disk.clone(),
            room: AtomicU64::new(u64::MAX / 2),
        });
        let device: Arc<dyn Provider> = host.clone();
        let spa = new_pool("tank", Layout::Stripe, std::slice::from_ref(&device));
        spa.sync().unwrap();
        host.room.store(room, Ordering::SeqCst);
        let (synced, error) = write_until_error(&spa);
        assert_eq!(error.kind(), ErrorKind::Suspended, "{error}");
        assert!(
            error.to_string().contains("no space left on the host"),
            "{error}"
        );
        let refused = create(&fs_of(&spa, false), "more").expect_err("suspended");
        assert_eq!(refused.kind(), ErrorKind::Suspended, "{refused}");
        let closed = spa.close().expect_err("the last txg was not written");
        assert_eq!(closed.kind(), ErrorKind::Suspended, "{closed}");
        drop(spa);

        let spa = pool::open(&[disk], false).unwrap();
        assert_has(&spa, &synced);
        pool::assert_clean(&spa);
        let mut files = synced.clone();
        add(&fs_of(&spa, false), &mut files, "room-again", 700_000).unwrap();
        spa.export().unwrap();
    }
}

/// The same on a real host: a small tmpfs, if one can be mounted.
#[test]
fn an_image_on_a_full_tmpfs_keeps_what_was_synced() {
    let folder = tempfile::tempdir().unwrap();
    let mount = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"])
        .arg(folder.path())
        .output();
    if !mount.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: mounting a tmpfs needs root");
        return;
    }
    let outcome = std::panic::catch_unwind(|| {
        let disks = pool::images(folder.path(), 1, DISK_BYTES);
        let spa = new_pool("tank", Layout::Stripe, &disks);
        let (synced, error) = write_until_error(&spa);
        assert_eq!(error.kind(), ErrorKind::Suspended, "{error}");
        eprintln!("{error}");
        drop((spa, disks));
        let disks = pool::images(folder.path(), 1, DISK_BYTES);
        let spa = pool::open(&disks, true).unwrap();
        assert_has(&spa, &synced);
        assert!(!synced.nodes.is_empty());
    });
    let status = std::process::Command::new("umount")
        .arg("-l")
        .arg(folder.path())
        .status();
    assert!(status.unwrap().success());
    outcome.unwrap_or_else(|cause| std::panic::resume_unwind(cause));
}
