//! The pool's error log: which datasets have a damaged block, how a scrub changes it, and how it follows
//! datasets that come and go.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{BlkId, ObjectId, ObjsetId};
use geom::Provider;
use phys::ObjectType;
use phys::feature::{self, HEAD_ERRLOG};
use phys::pool_names::{ERRLOG_LAST, ERRLOG_SCRUB};
use ram::Memory;
use spa::{CreateOptions, NewPool, Spa};
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
    spa.replace_errors(Default::default()).unwrap();
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
