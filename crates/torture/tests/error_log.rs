//! The pool's error log: which datasets have a damaged block, how a scrub changes it, and how it follows
//! datasets that come and go.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{BlkId, ObjectId, ObjsetId};
use faulty::PowerCut;
use geom::Provider;
use phys::ObjectType;
use phys::feature::{self, HEAD_ERRLOG};
use phys::pool_names::{ERRLOG_LAST, ERRLOG_SCRUB, ERRORSCRUB};
use phys::scan::{DSS_CANCELED, DSS_ERRORSCRUBBING, DSS_FINISHED};
use ram::Memory;
use spa::{CreateOptions, NewPool, ScanSettings, Settings, Spa};
use torture::pool::{self, Layout};
use vdev::{Grouping, NewDevice, TopSpec, VdevKind};
use zap::directory;
use zpl::Create;
use zpl::mount::mount;

fn object(spa: &Spa, name: &str) -> u64 {
    spa.parts().dsl().dataset(name).unwrap().object().0
}

/// The names of the entries in the log of a head; `None` if it has no log.
fn logged(spa: &Spa, head: u64) -> Option<Vec<String>> {
    let log = directory::get(spa.parts().mos(), ERRLOG_LAST).unwrap();
    let errors = zap::lookup_u64(spa.parts().mos(), log, &*format!("{head:x}")).unwrap()?;
    let entries = zap::iter(spa.parts().mos(), ObjectId(errors)).unwrap();
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().name_str().into_owned())
        .collect();
    names.sort();
    Some(names)
}

#[test]
fn errors_follow_a_promotion_and_go_with_their_head() {
    let disk: Arc<dyn Provider> = Arc::new(Memory::new("/disk0", 64 << 20));
    let root = zpl::mount::init(zpl::NewFilesystem::default(), true);
    let spa = pool::create("tank", Layout::Stripe, 9, &[disk], root).unwrap();
    pool::create_fs(&spa, "tank/a", &[]).unwrap();
    spa.sync().unwrap();
    spa.parts()
        .dsl()
        .snapshot(&["tank/a@s"], Vec::new())
        .unwrap();
    let branch = spa
        .parts()
        .dsl()
        .dataset("tank/a@s")
        .unwrap()
        .fields()
        .creation_txg;
    spa.parts()
        .dsl()
        .clone_dataset("tank/b", "tank/a@s", Vec::new())
        .unwrap();
    let (a, b) = (object(&spa, "tank/a"), object(&spa, "tank/b"));
    let (old, new) = (
        format!("2:0:5:{:x}", branch - 1),
        format!("2:0:5:{branch:x}"),
    );
    let names = [old.clone(), new.clone()];
    pool::in_mos(&spa, move |mos, tx| {
        let log = directory::create_link(mos, ObjectType::ERROR_LOG, ERRLOG_LAST, tx)?;
        let errors = zap::create(mos, tx, ObjectType::ERROR_LOG)?;
        zap::update(mos, tx, log, &*format!("{a:x}"), &[errors.0])?;
        for name in names {
            zap::update(mos, tx, errors, &*name, b"\0")?;
        }
        Ok(())
    });
    spa.parts().dsl().promote("tank/b").unwrap();
    assert_eq!(logged(&spa, a), Some(vec![new]));
    assert_eq!(logged(&spa, b), Some(vec![old]));
    spa.parts().dsl().destroy_head("tank/a").unwrap();
    assert_eq!(logged(&spa, a), None);
    assert_eq!(logged(&spa, b).unwrap().len(), 1);
    pool::assert_clean(&spa);
}

fn disk() -> Arc<dyn Provider> {
    Arc::new(Memory::new("/disk0", 64 << 20))
}

fn new_pool(disk: &Arc<dyn Provider>) -> Spa {
    let root = zpl::mount::init(zpl::NewFilesystem::default(), true);
    let spa = pool::create("tank", Layout::Stripe, 9, std::slice::from_ref(disk), root).unwrap();
    pool::create_fs(&spa, "tank/a", &[("compression", 2)]).unwrap();
    spa
}

fn pool_without_feature(disk: &Arc<dyn Provider>) -> Spa {
    let device = NewDevice {
        kind: VdevKind::Disk,
        path: disk.name().to_owned(),
        provider: disk.clone(),
    };
    let features = feature::kept().filter(|feature| feature.guid != HEAD_ERRLOG);
    let options = CreateOptions {
        name: "tank".into(),
        aux: vdev::AuxSpec::default(),
        vdevs: vec![TopSpec::new(Grouping::Single, vec![device])],
        new: NewPool {
            ashift: 9,
            features: features.collect(),
            ..NewPool::default()
        },
        init_root: zpl::mount::init(zpl::NewFilesystem::default(), true),
        command: "zpool create -o feature@head_errlog=disabled tank".into(),
        host: pool::host(),
        settings: pool::settings(),
    };
    Spa::create(options).unwrap()
}

/// Writes a file of one block.
fn write(spa: &Spa, dataset: &str, name: &str, byte: u8) {
    let fs = mount(spa.parts().dsl(), dataset, false).unwrap();
    let id = fs.resolve(name).or_else(|_| {
        let made = fs.create_file(fs.root(), name.as_bytes(), &Create::default());
        made.map(|attr| attr.id)
    });
    fs.write(id.unwrap(), 0, &[byte; 4096]).unwrap();
    spa.sync().unwrap();
}

/// Damages the only block of a file; a second call repairs it.
fn toggle_damage(spa: &Spa, disk: &Arc<dyn Provider>, dataset: &str, name: &str) -> ObjectId {
    let fs = mount(spa.parts().dsl(), dataset, true).unwrap();
    let id = fs.resolve(name).unwrap();
    let at = pool::places(&fs, name)[0].start;
    let mut bytes = vec![0; 512];
    disk.read(at, &mut bytes).unwrap();
    bytes.iter_mut().for_each(|byte| *byte ^= 0xa5);
    disk.write(at, &bytes).unwrap();
    id
}

fn scrub(spa: &Spa) {
    spa.scrub().unwrap();
    spa.wait_scan(&mut |_| true).unwrap();
}

/// Asserts in which datasets the object is damaged.
#[track_caller]
fn assert_damaged(spa: &Spa, id: ObjectId, datasets: &[&str]) {
    let damaged: BTreeSet<_> = spa.damaged().unwrap().into_iter().collect();
    let wanted: BTreeSet<_> = datasets
        .iter()
        .map(|name| zio::Bookmark::new(ObjsetId(object(spa, name)), id, 0, BlkId(0)))
        .collect();
    assert_eq!(damaged, wanted, "{datasets:?}");
}

fn open(disk: &Arc<dyn Provider>, readonly: bool) -> Spa {
    pool::open(std::slice::from_ref(disk), readonly).unwrap()
}

#[test]
fn all_that_share_a_damaged_block_are_named_until_it_is_good_again() {
    let disk = disk();
    let spa = new_pool(&disk);
    write(&spa, "tank/a", "file", 1);
    spa.parts()
        .dsl()
        .snapshot(&["tank/a@s"], Vec::new())
        .unwrap();
    spa.parts()
        .dsl()
        .clone_dataset("tank/b", "tank/a@s", Vec::new())
        .unwrap();
    spa.parts()
        .dsl()
        .snapshot(&["tank/b@t"], Vec::new())
        .unwrap();
    let id = toggle_damage(&spa, &disk, "tank/a", "file");
    scrub(&spa);
    let all = ["tank/a", "tank/a@s", "tank/b", "tank/b@t"];
    assert_damaged(&spa, id, &all);
    write(&spa, "tank/a", "file", 2);
    assert_damaged(&spa, id, &all[1..]);
    // A younger snapshot has the good block.
    spa.parts()
        .dsl()
        .snapshot(&["tank/a@u"], Vec::new())
        .unwrap();
    spa.export().unwrap();
    drop(spa);
    let spa = open(&disk, false);
    assert_damaged(&spa, id, &all[1..]);
    spa.parts().dsl().promote("tank/b").unwrap();
    assert_damaged(&spa, id, &["tank/b@s", "tank/b", "tank/b@t"]);
    toggle_damage(&spa, &disk, "tank/b", "file");
    scrub(&spa);
    assert_damaged(&spa, id, &[]);
    for name in [ERRLOG_LAST, ERRLOG_SCRUB] {
        assert_eq!(
            directory::get(spa.parts().mos(), name).unwrap(),
            ObjectId(0)
        );
    }
    pool::assert_clean(&spa);
}

#[test]
fn what_is_met_without_a_scan_is_logged() {
    let disk = disk();
    let spa = new_pool(&disk);
    write(&spa, "tank/a", "file", 1);
    let id = toggle_damage(&spa, &disk, "tank/a", "file");
    spa.export().unwrap();
    drop(spa);
    let read = |spa: &Spa| {
        let fs = mount(spa.parts().dsl(), "tank/a", true).unwrap();
        fs.read(id, 0, &mut [0; 4096]).unwrap_err();
    };
    // A read-only pool reports the errors it met, but stores none.
    let spa = open(&disk, true);
    read(&spa);
    assert_damaged(&spa, id, &["tank/a"]);
    assert_eq!(spa.take_errors().len(), 1);
    assert_damaged(&spa, id, &[]);
    drop(spa);
    let spa = open(&disk, false);
    assert_damaged(&spa, id, &[]);
    read(&spa);
    spa.close().unwrap();
    drop(spa);
    let spa = open(&disk, false);
    assert!(spa.take_errors().is_empty());
    assert_damaged(&spa, id, &["tank/a"]);
    toggle_damage(&spa, &disk, "tank/a", "file");
    spa.scrub_errors().unwrap();
    spa.wait_error_scrub(&mut |_| true).unwrap();
    assert_damaged(&spa, id, &[]);
}

#[test]
fn a_log_without_births_is_converted_when_the_feature_is_enabled() {
    let disk = disk();
    let spa = pool_without_feature(&disk);
    pool::create_fs(&spa, "tank/a", &[("compression", 2)]).unwrap();
    write(&spa, "tank/a", "file", 1);
    write(&spa, "tank/a", "gone", 2);
    let id = toggle_damage(&spa, &disk, "tank/a", "file");
    toggle_damage(&spa, &disk, "tank/a", "gone");
    scrub(&spa);
    assert_eq!(spa.damaged().unwrap().len(), 2);
    let log = directory::get(spa.parts().mos(), ERRLOG_LAST).unwrap();
    let name = format!("{:x}:{:x}:0:0", object(&spa, "tank/a"), id.0);
    assert!(
        zap::lookup::<u8>(spa.parts().mos(), log, &*name)
            .unwrap()
            .is_some()
    );
    let fs = mount(spa.parts().dsl(), "tank/a", false).unwrap();
    fs.unlink(fs.root(), b"gone").unwrap();
    drop(fs);
    spa.sync().unwrap();
    let feature = feature::kept().find(|f| f.guid == HEAD_ERRLOG).unwrap();
    spa.enable_feature(feature).unwrap();
    assert_damaged(&spa, id, &["tank/a"]);
    assert_eq!(logged(&spa, object(&spa, "tank/a")).unwrap().len(), 1);
    toggle_damage(&spa, &disk, "tank/a", "file");
    pool::assert_clean(&spa);
}

#[test]
fn a_log_that_names_what_is_no_data_set_is_shown_as_it_is() {
    let disk = disk();
    let spa = new_pool(&disk);
    write(&spa, "tank/a", "file", 1);
    let id = toggle_damage(&spa, &disk, "tank/a", "file");
    scrub(&spa);
    pool::in_mos(&spa, move |mos, tx| {
        let log = directory::get(mos, ERRLOG_LAST)?;
        let errors = zap::create(mos, tx, ObjectType::ERROR_LOG)?;
        zap::update(mos, tx, log, "1", &[errors.0])?;
        zap::update(mos, tx, log, "2", &[directory::OBJECT.0])?;
        zap::update(mos, tx, errors, "7:0:3:5", b"\0")?;
        zap::update(mos, tx, errors, "rubbish", b"\0")
    });
    let block =
        |objset: u64, object, blkid| zio::Bookmark::new(ObjsetId(objset), object, 0, BlkId(blkid));
    let head = object(&spa, "tank/a");
    let wanted = [block(1, ObjectId(7), 3), block(head, id, 0)];
    assert_eq!(spa.damaged().unwrap(), BTreeSet::from(wanted));
    // The next scrub drops the log, and nothing else that it refers to.
    toggle_damage(&spa, &disk, "tank/a", "file");
    scrub(&spa);
    assert_damaged(&spa, id, &[]);
    pool::assert_clean(&spa);
}

/// Files in each of two datasets, of one block each.
const FILES: usize = 12;

fn in_steps_of_one() -> Settings {
    Settings {
        scan: ScanSettings {
            blocks_max: 1,
            ..ScanSettings::default()
        },
        ..pool::settings()
    }
}

fn open_slow(disk: &Arc<dyn Provider>) -> Spa {
    pool::open_with(std::slice::from_ref(disk), false, in_steps_of_one()).unwrap()
}

/// Damages files so that all are in the log, and makes every other one good again.
fn damage(spa: &Spa, disk: &Arc<dyn Provider>) {
    pool::create_fs(spa, "tank/b", &[("compression", 2)]).unwrap();
    let files: Vec<String> = (0..FILES).map(|n| format!("f{n}")).collect();
    for dataset in ["tank/a", "tank/b"] {
        for name in &files {
            write(spa, dataset, name, 1);
        }
        for name in &files {
            toggle_damage(spa, disk, dataset, name);
        }
    }
    scrub(spa);
    assert_eq!(spa.damaged().unwrap().len(), 2 * FILES);
    for dataset in ["tank/a", "tank/b"] {
        for name in files.iter().step_by(2) {
            toggle_damage(spa, disk, dataset, name);
        }
    }
}

/// A pool with [`damage`] in its log, of which an error scrub has read some, and is paused.
fn paused_error_scrub(disk: &Arc<dyn Provider>) -> Spa {
    let spa = new_pool(disk);
    damage(&spa, disk);
    spa.export().unwrap();
    drop(spa);
    let spa = open_slow(disk);
    spa.scrub_errors().unwrap();
    spa.pause_scrub().unwrap();
    assert!(spa.is_error_scrub_paused());
    let paused = spa.error_scrub().unwrap();
    let (done, left) = (paused.examined.get(), paused.to_examine.get());
    assert!(done > 0 && left > 0, "{paused:?}");
    assert_eq!(done + left, 2 * FILES as u64);
    spa
}

fn finish_error_scrub(spa: &Spa) {
    spa.wait_error_scrub(&mut |_| true).unwrap();
    let ended = spa.error_scrub().unwrap();
    assert_eq!(ended.state.get(), DSS_FINISHED);
    assert_eq!(ended.examined.get(), 2 * FILES as u64, "{ended:?}");
    assert_eq!(ended.to_examine.get(), 0);
    assert_eq!(ended.errors.get(), FILES as u64, "{ended:?}");
    assert_eq!(spa.damaged().unwrap().len(), FILES);
}

/// Asserts that nothing is wrong but blocks that cannot be read, of files.
#[track_caller]
fn assert_only_files_lost(spa: &Spa) {
    let report = check::verify(&check::Pool::of(spa), &check::Options::default()).unwrap();
    let is_lost =
        |finding: &&check::Finding| finding.lost().is_some_and(|(at, _)| at.objset.0 != 0);
    let others: Vec<_> = report
        .findings
        .iter()
        .filter(|finding| !is_lost(finding))
        .collect();
    assert!(others.is_empty(), "{others:#?}");
    assert_eq!(report.allocated_bytes(), report.found_bytes());
}

/// What the pool directory has.
fn error_scrub_words(spa: &Spa) -> Option<Vec<u64>> {
    zap::lookup::<u64>(spa.parts().mos(), directory::OBJECT, ERRORSCRUB).unwrap()
}

#[track_caller]
fn assert_busy(outcome: base::Result<()>, text: &str) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), base::ErrorKind::Busy, "{error}");
    assert!(error.to_string().contains(text), "{error}");
}

#[test]
fn sim_an_error_scrub_waits_and_goes_on_after_an_import() {
    rt::simulate(5, || {
        let disk = disk();
        let spa = paused_error_scrub(&disk);
        assert_busy(spa.pause_scrub(), "'zpool scrub -e' to resume");
        assert_busy(spa.scrub(), "error scrub is paused");
        let before = spa.error_scrub().unwrap();
        spa.export().unwrap();
        drop(spa);

        let spa = open_slow(&disk);
        assert!(spa.is_error_scrub_paused());
        let now = spa.error_scrub().unwrap();
        // The head in which it was is begun anew.
        assert!(now.examined <= before.examined, "{now:?}");
        let words = error_scrub_words(&spa).unwrap();
        assert_eq!((words.len(), words[0], words[1], words[8]), (9, 3, 4, 1));
        assert_eq!(words[3], before.start_time.get());
        for _ in 0..3 {
            spa.force_sync().unwrap();
        }
        assert_eq!(spa.error_scrub().unwrap(), now, "it waits");
        assert_eq!(spa.damaged().unwrap().len(), 2 * FILES);
        spa.scrub_errors().unwrap();
        assert_busy(spa.scrub(), "currently error scrubbing");
        assert_busy(spa.scrub_errors(), "currently error scrubbing");
        finish_error_scrub(&spa);
        assert_only_files_lost(&spa);
        spa.export().unwrap();
        drop(spa);

        let spa = open(&disk, false);
        finish_error_scrub(&spa);
        // A scrub is all that is told of then.
        scrub(&spa);
        assert_eq!(spa.error_scrub(), None);
        assert_eq!(error_scrub_words(&spa), Some(vec![0; 9]));
        assert_eq!(spa.damaged().unwrap().len(), FILES);
        assert_only_files_lost(&spa);
    });
}

#[test]
fn sim_an_error_scrub_that_is_cancelled_forgets_nothing() {
    rt::simulate(6, || {
        let disk = disk();
        let spa = paused_error_scrub(&disk);
        spa.stop_scrub().unwrap();
        let stopped = spa.error_scrub().unwrap();
        assert_eq!(stopped.state.get(), DSS_CANCELED);
        assert_eq!(stopped.paused_flags.get(), 0);
        assert_eq!(spa.damaged().unwrap().len(), 2 * FILES);
        assert!(spa.stop_scrub().is_err());
        let scrub_log = directory::find(spa.parts().mos(), ERRLOG_SCRUB).unwrap();
        assert_eq!(scrub_log, Some(ObjectId(0)));
        assert_only_files_lost(&spa);
        spa.export().unwrap();
        drop(spa);
        let spa = open(&disk, false);
        assert_eq!(spa.error_scrub(), Some(stopped));
        spa.scrub_errors().unwrap();
        finish_error_scrub(&spa);
    });
}

#[test]
fn sim_an_error_scrub_does_not_begin_beside_a_scan_or_without_a_log() {
    rt::simulate(7, || {
        let disk = disk();
        let spa = new_pool(&disk);
        spa.scrub_errors().unwrap();
        assert_eq!(spa.error_scrub(), None, "nothing is damaged");
        damage(&spa, &disk);
        spa.export().unwrap();
        drop(spa);
        let spa = open_slow(&disk);
        spa.scrub().unwrap();
        assert_busy(spa.scrub_errors(), "currently scrubbing");
        spa.pause_scrub().unwrap();
        assert_busy(spa.scrub_errors(), "'zpool scrub' to resume");
        spa.stop_scrub().unwrap();
        drop(spa);
        let spa = pool_without_feature(&self::disk());
        let error = spa.scrub_errors().unwrap_err();
        assert_eq!(error.kind(), base::ErrorKind::Unsupported);
    });
}

#[test]
fn sim_a_resilver_ends_an_error_scrub() {
    rt::simulate(8, || {
        let disk = disk();
        let spa = paused_error_scrub(&disk);
        let other: Arc<dyn Provider> = Arc::new(Memory::new("/disk1", 64 << 20));
        let device = NewDevice {
            kind: VdevKind::Disk,
            path: other.name().to_owned(),
            provider: other,
        };
        let guid = spa.parts().tree().devices()[0].guid();
        let sectors = (0, vdev::AutoAshift::default());
        spa.attach(guid, &device, vdev::Attach::Side, sectors)
            .unwrap();
        spa.wait_scan(&mut |_| true).unwrap();
        assert_eq!(spa.error_scrub(), None);
        assert_eq!(spa.damaged().unwrap().len(), FILES);
    });
}

#[test]
fn sim_after_a_power_cut_an_error_scrub_goes_on() {
    rt::simulate(9, || {
        let cut = Arc::new(PowerCut::new("/disk0", 64 << 20));
        let disk: Arc<dyn Provider> = cut.clone();
        let spa = new_pool(&disk);
        damage(&spa, &disk);
        spa.export().unwrap();
        drop(spa);
        let spa = open_slow(&disk);
        let first = cut.supply().commands();
        spa.scrub_errors().unwrap();
        finish_error_scrub(&spa);
        spa.close().unwrap();
        drop(spa);
        let last = cut.supply().commands();
        let every = (last - first) / 25 + 1;
        let mut count_resumed = 0;
        for n in (first..=last).step_by(every as usize) {
            let image: Arc<dyn Provider> = Arc::new(cut.image_after(n, n));
            let spa = open_slow(&image);
            let Some(begun) = spa.error_scrub() else {
                assert_eq!(spa.damaged().unwrap().len(), 2 * FILES);
                continue;
            };
            count_resumed += usize::from(begun.state.get() == DSS_ERRORSCRUBBING);
            finish_error_scrub(&spa);
            assert_only_files_lost(&spa);
        }
        assert!(count_resumed > 3, "{count_resumed}");
    });
}
