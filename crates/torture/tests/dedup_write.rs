//! What is written with `dedup`: equal blocks are stored once, and the tables count exactly the pointers that there
//! are, whatever is overwritten, cut off, snapshotted, cloned or destroyed, and whenever the power is cut.
//!
//! `CUTS=all` tries every single write, with `zdb` after each; the default takes a sample.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use base::{BlkId, Txg};
use ddt::{DdtClass, DdtEntry, DdtKey, DdtSync, DdtTable, Ddts};
use faulty::{PowerCut, PowerSupply};
use geom::Provider;
use oracle::{Zdb, have_zdb};
use phys::label::LABEL_START_SIZE;
use phys::scan::DSS_FINISHED;
use phys::{BlkPtrPhys, ChecksumType, DvaPhys, PropValue, ScanPhys, feature};
use ram::Memory;
use spa::{Prune, SharedTables, Spa};
use torture::cuts;
use torture::golden::golden;
use torture::pool::{self, Layout};
use torture::{Dice, seed};
use zio::AllocClass;
use zpl::mount::{Mount, init, mount};
use zpl::{Create, NewFilesystem};

const DISK_BYTES: u64 = 128 << 20;
const RECORD: usize = 4096;
/// Records of the largest file.
const RECORDS_MAX: u64 = 24;
/// Different contents of records.
const PALETTE: u64 = 10;
const HEADS_MAX: usize = 4;
const CUTS: u64 = 12;

/// `ZIO_CHECKSUM_VERIFY`
const VERIFY: u64 = 1 << 8;
const DEDUP_ON: u64 = 1;
const DEDUP_OFF: u64 = 2;
/// on, verify, sha256, sha512, skein with and without verify, edonr,verify, blake3; and off.
const DEDUPS: [u64; 10] = [
    DEDUP_ON,
    DEDUP_ON | VERIFY,
    8,
    8 | VERIFY,
    11,
    12,
    12 | VERIFY,
    13 | VERIFY,
    14,
    DEDUP_OFF,
];

type Files = BTreeMap<String, Vec<u8>>;

#[derive(Clone, Default, PartialEq, Eq)]
struct Head {
    files: Files,
    snapshots: BTreeMap<String, Files>,
    /// Of clones.
    origin: Option<String>,
}

/// What the pool should hold.
#[derive(Clone, Default, PartialEq, Eq)]
struct Model {
    heads: BTreeMap<String, Head>,
    next: u64,
}

/// A pool whose file systems stay mounted, so that many changes come together in a txg.
struct Bench {
    spa: Spa,
    mounts: BTreeMap<String, Mount>,
}

impl Bench {
    fn new(spa: Spa) -> Bench {
        let mounts = BTreeMap::new();
        Bench { spa, mounts }
    }

    fn mount(&mut self, name: &str) -> &Mount {
        let dsl = self.spa.parts().dsl();
        let there = self.mounts.entry(name.to_owned());
        there.or_insert_with(|| mount(dsl, name, false).unwrap())
    }
}

/// One of a few records; some compress, one is zero.
fn record(n: u64) -> Vec<u8> {
    if n == 0 {
        return vec![0; RECORD];
    }
    Dice::new(1000 + n).bytes(RECORD)
}

fn records(dice: &mut Dice, count: u64) -> Vec<u8> {
    (0..count)
        .flat_map(|_| record(dice.below(PALETTE)))
        .collect()
}

impl Model {
    fn fresh(&mut self, stem: &str) -> String {
        self.next += 1;
        format!("{stem}{}", self.next)
    }

    fn create(&mut self, at: &mut Bench, dice: &mut Dice) {
        if self.heads.len() >= HEADS_MAX {
            return;
        }
        let name = format!("tank/{}", self.fresh("fs"));
        let mut one_of = |values: &[u64]| *dice.pick(values).unwrap();
        let props = [
            ("dedup", one_of(&DEDUPS[..9])),
            ("compression", one_of(&[2, 2, 15])),
            ("copies", one_of(&[1, 1, 1, 2])),
            ("recordsize", RECORD as u64),
        ];
        pool::create_fs(&at.spa, &name, &props).unwrap();
        self.heads.insert(name, Head::default());
    }

    /// One random operation.
    fn step(&mut self, at: &mut Bench, dice: &mut Dice) {
        let names: Vec<String> = self.heads.keys().cloned().collect();
        let Some(name) = dice.pick(&names).cloned() else {
            return self.create(at, dice);
        };
        match dice.below(100) {
            0..8 => self.create(at, dice),
            8..62 => self.write(at, &name, dice),
            62..70 => self.cut(at, &name, dice),
            70..76 => self.remove(at, &name, dice),
            76..83 => {
                let snap = self.fresh("s");
                at.spa
                    .parts()
                    .dsl()
                    .snapshot(&[&format!("{name}@{snap}")], Vec::new())
                    .unwrap();
                let head = self.heads.get_mut(&name).unwrap();
                head.snapshots.insert(snap, head.files.clone());
            }
            83..87 => self.clone_snapshot(at, &name, dice),
            87..92 => self.destroy_snapshot(at, &name, dice),
            92..94 => self.destroy(at, &name),
            94..97 => {
                let dedup = PropValue::Number(*dice.pick(&DEDUPS).unwrap());
                at.spa
                    .parts()
                    .dsl()
                    .set_prop(&name, "dedup", dedup)
                    .unwrap();
            }
            _ => at.spa.sync().map(|_| ()).unwrap(),
        }
    }

    fn write(&mut self, at: &mut Bench, name: &str, dice: &mut Dice) {
        let head = self.heads.get_mut(name).unwrap();
        let names: Vec<String> = head.files.keys().cloned().collect();
        let fs = at.mount(name);
        let path = match dice.pick(&names) {
            Some(path) if !dice.once_in(3) => path.clone(),
            _ => {
                self.next += 1;
                let path = format!("f{}", self.next);
                fs.create_file(fs.root(), path.as_bytes(), &Create::default())
                    .unwrap();
                head.files.insert(path.clone(), Vec::new());
                path
            }
        };
        let count = 1 + dice.below(RECORDS_MAX / 2);
        let bytes = records(dice, count);
        let mut offset = dice.below(RECORDS_MAX / 2) as usize * RECORD;
        if dice.once_in(5) {
            offset += dice.below(RECORD as u64) as usize;
        }
        fs.write(fs.resolve(&path).unwrap(), offset as u64, &bytes)
            .unwrap();
        let content = head.files.get_mut(&path).unwrap();
        let end = offset + bytes.len();
        content.resize(content.len().max(end), 0);
        content[offset..end].copy_from_slice(&bytes);
    }

    fn any_file(&self, name: &str, dice: &mut Dice) -> Option<String> {
        let names: Vec<String> = self.heads[name].files.keys().cloned().collect();
        dice.pick(&names).cloned()
    }

    fn cut(&mut self, at: &mut Bench, name: &str, dice: &mut Dice) {
        let Some(path) = self.any_file(name, dice) else {
            return;
        };
        let fs = at.mount(name);
        let size = dice.below(RECORDS_MAX * RECORD as u64);
        fs.truncate(fs.resolve(&path).unwrap(), size).unwrap();
        let files = &mut self.heads.get_mut(name).unwrap().files;
        files.get_mut(&path).unwrap().resize(size as usize, 0);
    }

    fn remove(&mut self, at: &mut Bench, name: &str, dice: &mut Dice) {
        let Some(path) = self.any_file(name, dice) else {
            return;
        };
        let fs = at.mount(name);
        fs.unlink(fs.root(), path.as_bytes()).unwrap();
        self.heads.get_mut(name).unwrap().files.remove(&path);
    }

    fn any_snapshot(&self, name: &str, dice: &mut Dice) -> Option<String> {
        let names: Vec<String> = self.heads[name].snapshots.keys().cloned().collect();
        dice.pick(&names).cloned()
    }

    fn clone_snapshot(&mut self, at: &mut Bench, name: &str, dice: &mut Dice) {
        let Some(snap) = self.any_snapshot(name, dice) else {
            return;
        };
        if self.heads.len() >= HEADS_MAX {
            return;
        }
        let (origin, clone) = (
            format!("{name}@{snap}"),
            format!("tank/{}", self.fresh("clone")),
        );
        let dedup = (
            "dedup".to_owned(),
            PropValue::Number(*dice.pick(&DEDUPS).unwrap()),
        );
        at.spa
            .parts()
            .dsl()
            .clone_dataset(&clone, &origin, vec![dedup])
            .unwrap();
        let files = self.heads[name].snapshots[&snap].clone();
        let head = Head {
            files,
            origin: Some(origin),
            ..Head::default()
        };
        self.heads.insert(clone, head);
    }

    fn destroy_snapshot(&mut self, at: &mut Bench, name: &str, dice: &mut Dice) {
        let Some(snap) = self.any_snapshot(name, dice) else {
            return;
        };
        let full = format!("{name}@{snap}");
        if self
            .heads
            .values()
            .any(|head| head.origin.as_ref() == Some(&full))
        {
            return;
        }
        at.spa
            .parts()
            .dsl()
            .destroy_snapshots(&[&full], false)
            .unwrap();
        self.heads.get_mut(name).unwrap().snapshots.remove(&snap);
    }

    fn destroy(&mut self, at: &mut Bench, name: &str) {
        if self.heads[name].snapshots.is_empty() {
            at.mounts.remove(name);
            at.spa.parts().dsl().destroy_head(name).unwrap();
            self.heads.remove(name);
        }
    }

    /// What differs from what the pool holds.
    fn difference(&self, spa: &Spa) -> Option<String> {
        let heads = spa.parts().dsl().children("tank").unwrap();
        if heads.len() != self.heads.len() {
            return Some(format!("the heads are {heads:?}"));
        }
        for (name, head) in &self.heads {
            let of = |head| spa.parts().dsl().snapshots(&head).unwrap().len();
            if spa.parts().dsl().dataset(name).map(of).ok() != Some(head.snapshots.len()) {
                return Some(format!("snapshots of {name}"));
            }
            let snapshots = head.snapshots.iter();
            let snapshots = snapshots.map(|(snap, files)| (format!("{name}@{snap}"), files));
            for (full, files) in std::iter::once((name.clone(), &head.files)).chain(snapshots) {
                let Ok(fs) = mount(spa.parts().dsl(), &full, true) else {
                    return Some(format!("{full} is missing"));
                };
                if let Some(what) = difference(&fs, files) {
                    return Some(format!("{full}: {what}"));
                }
            }
        }
        None
    }

    fn compare(&self, spa: &Spa) {
        assert_eq!(self.difference(spa), None);
    }
}

fn difference(fs: &Mount, files: &Files) -> Option<String> {
    let there = fs.list(fs.root()).unwrap();
    if there.len() != files.len() {
        return Some(format!("{} files, not {}", there.len(), files.len()));
    }
    for (path, content) in files {
        let Ok(id) = fs.resolve(path) else {
            return Some(format!("{path} is missing"));
        };
        let mut bytes = vec![0; content.len() + 1];
        let length = fs.read(id, 0, &mut bytes).unwrap();
        if &bytes[..length] != content {
            return Some(format!("{path} differs"));
        }
    }
    None
}

/// References by checksum, key and first place.
type Counts = BTreeMap<(ChecksumType, DdtKey, (u64, u64)), u64>;

fn place(dva: &DvaPhys) -> (u64, u64) {
    (dva.vdev().0, dva.offset())
}

/// The references in the tables; classes and histograms are checked as well.
fn counted(spa: &Spa) -> Counts {
    let tables = tables_of(spa);
    let mut counts = Counts::new();
    let mut classes: BTreeMap<(ChecksumType, Option<DdtClass>), [u64; 2]> = BTreeMap::new();
    let each = &mut |checksum, class, entry: DdtEntry| {
        let is_duplicate = entry.refcnt() > 1;
        if let Some(class) = class {
            assert_eq!(class == DdtClass::Duplicate, is_duplicate, "{entry:?}");
        }
        let sums = classes.entry((checksum, class)).or_default();
        for phys in entry.phys.iter().filter(|phys| phys.birth != Txg(0)) {
            assert!(phys.refcnt > 0, "{entry:?}");
            counts.insert((checksum, entry.key, place(&phys.dva[0])), phys.refcnt);
            sums[0] += 1;
            sums[1] += phys.refcnt;
        }
        Ok(())
    };
    tables.walk(each).unwrap();
    for table in tables.tables() {
        let parts = table.parts();
        let parts = parts.map(|(class, _, _, histogram)| (Some(class), histogram));
        let logged = table.logged().map(|histogram| (None, histogram));
        for (class, histogram) in parts.chain(logged) {
            let total = histogram.total();
            let sums = classes.remove(&(table.checksum, class));
            assert_eq!(
                [total.stored[0], total.referenced[0]],
                sums.unwrap_or_default(),
                "{} {class:?}",
                table.checksum
            );
        }
    }
    assert!(classes.is_empty(), "{classes:?}");
    counts
}

/// The pointers that there are: those of each head and snapshot that are younger than the snapshot before.
fn found(spa: &Spa, model: &Model) -> Counts {
    let mut counts = Counts::new();
    for (name, head) in &model.heads {
        let snapshots = head.snapshots.keys().map(|snap| format!("{name}@{snap}"));
        for full in std::iter::once(name.clone()).chain(snapshots) {
            let since = Txg(spa
                .parts()
                .dsl()
                .dataset(&full)
                .unwrap()
                .fields()
                .prev_snap_txg);
            let fs = mount(spa.parts().dsl(), &full, true).unwrap();
            for entry in fs.list(fs.root()).unwrap() {
                let dnode = fs.objset().hold(entry.id).unwrap();
                for blkid in 0..=dnode.maxblkid().0 {
                    let bp: BlkPtrPhys = dnode.block_pointer(0, BlkId(blkid)).unwrap();
                    if !bp.is_hole() && bp.is_dedup() && bp.birth() > since {
                        let checksum = ChecksumType::try_from(bp.checksum()).unwrap();
                        let key = (checksum, DdtKey::of(&bp), place(&bp.dva[0]));
                        *counts.entry(key).or_default() += 1;
                    }
                }
            }
        }
    }
    counts
}

/// Everything synced is as it should be.
fn check(spa: &Spa, model: &Model) {
    // What was destroyed goes in the background.
    (0..3).for_each(|_| spa.force_sync().map(|_| ()).unwrap());
    model.compare(spa);
    assert_eq!(counted(spa), found(spa, model));
    pool::assert_clean(spa);
}

/// Which tables a pool gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tables {
    Classic,
    /// Those of `fast_dedup`.
    Fast,
}

fn create(tables: Tables, layout: Layout, ashift: u32, disks: &[Arc<dyn Provider>]) -> Spa {
    let root = init(NewFilesystem::default(), true);
    let created = match tables {
        Tables::Classic => pool::create_without_fast_dedup("tank", layout, ashift, disks, root),
        Tables::Fast => pool::create("tank", layout, ashift, disks, root),
    };
    created.unwrap()
}

fn tables_of(spa: &Spa) -> Ddts {
    Ddts::open(spa.parts().mos(), true, &|dva| spa.parts().dsize_of(dva)).unwrap()
}

/// Syncs until all logs are in the tables.
fn flush_logs(spa: &Spa) {
    for _ in 0..60 {
        if !tables_of(spa).has_logged() {
            let is_there = zap::directory::find(spa.parts().mos(), "tick").unwrap();
            if is_there.is_some() {
                pool::in_mos(spa, |mos, tx| zap::directory::remove(mos, "tick", tx));
            }
            return;
        }
        // Only what changes something syncs at all.
        pool::in_mos(spa, |mos, tx| {
            zap::directory::set(mos, "tick", tx.txg().0, tx)
        });
    }
    panic!("the logs do not become empty");
}

fn run(tables: Tables, layout: Layout, ashift: u32, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let count = if layout == Layout::Classes { 4 } else { 3 };
    let disks = pool::images(folder.path(), count, DISK_BYTES);
    let mut dice = Dice::new(seed);
    let mut model = Model::default();
    create(tables, layout, ashift, &disks).export().unwrap();
    drop(disks);
    let mut shared = 0;
    for _ in 0..4 {
        let disks = pool::images(folder.path(), count, DISK_BYTES);
        let mut at = Bench::new(pool::open(&disks, false).unwrap());
        for _ in 0..90 {
            model.step(&mut at, &mut dice);
        }
        let Bench { spa, mounts } = at;
        drop(mounts);
        check(&spa, &model);
        shared += spa.parts().pipeline().stats().shared;
        spa.export().unwrap();
        drop((spa, disks));
        if have_zdb() {
            Zdb::verify(folder.path(), "tank").assert_clean();
        }
    }
    assert!(shared > 100, "only {shared} blocks were stored already");
    // Nothing is left of what is destroyed.
    let disks = pool::images(folder.path(), count, DISK_BYTES);
    let mut at = Bench::new(pool::open(&disks, false).unwrap());
    while !model.heads.is_empty() {
        let names: Vec<String> = model.heads.keys().cloned().collect();
        for name in names {
            for _ in 0..model.heads[&name].snapshots.len() {
                model.destroy_snapshot(&mut at, &name, &mut dice);
            }
            model.destroy(&mut at, &name);
        }
    }
    check(&at.spa, &model);
    flush_logs(&at.spa);
    assert!(tables_of(&at.spa).is_empty());
    let fast = at.spa.parts().features().count(feature::FAST_DEDUP);
    assert_eq!(fast, (tables == Tables::Fast).then_some(0));
    pool::assert_clean(&at.spa);
}

#[test]
fn random_files_with_classic_tables() {
    run(Tables::Classic, Layout::Stripe, 9, seed(4));
}

#[test]
fn random_files_on_a_stripe_of_ashift_9() {
    run(Tables::Fast, Layout::Stripe, 9, seed(1));
}

#[test]
fn random_files_on_a_raidz_of_ashift_12() {
    run(Tables::Fast, Layout::Raidz(1), 12, seed(2));
}

#[test]
fn random_files_with_special_dedup_and_log_devices() {
    run(Tables::Fast, Layout::Classes, 12, seed(3));
}

fn new_pool(tables: Tables, folder: &Path, layout: Layout, props: &[(&str, u64)]) -> Spa {
    let disks = pool::images(folder, 4, DISK_BYTES);
    let disks = if layout == Layout::Classes {
        &disks[..]
    } else {
        &disks[..1]
    };
    let spa = create(tables, layout, 12, disks);
    let record = ("recordsize", RECORD as u64);
    let props: Vec<_> = props.iter().copied().chain([record]).collect();
    pool::create_fs(&spa, "tank/fs", &props).unwrap();
    spa
}

fn put(spa: &Spa, name: &str, bytes: &[u8]) {
    let fs = mount(spa.parts().dsl(), "tank/fs", false).unwrap();
    let id = match fs.resolve(name) {
        Ok(id) => id,
        Err(_) => {
            fs.create_file(fs.root(), name.as_bytes(), &Create::default())
                .unwrap()
                .id
        }
    };
    fs.write(id, 0, bytes).unwrap();
}

fn first_block(spa: &Spa, name: &str) -> BlkPtrPhys {
    let fs = mount(spa.parts().dsl(), "tank/fs", true).unwrap();
    let dnode = fs.objset().hold(fs.resolve(name).unwrap()).unwrap();
    dnode.block_pointer(0, BlkId(0)).unwrap()
}

/// Blocks that OpenZFS does not deduplicate are not; those that it does have its checksum.
fn what_is_deduplicated(tables: Tables) {
    let folder = tempfile::tempdir().unwrap();
    let spa = new_pool(
        tables,
        folder.path(),
        Layout::Stripe,
        &[("dedup", DEDUP_ON), ("compression", 2)],
    );
    put(&spa, "zeros", &[0; RECORD]);
    put(&spa, "one", &record(1));
    put(&spa, "two", &record(1));
    spa.sync().unwrap();
    assert!(
        first_block(&spa, "zeros").is_hole(),
        "without compression, too"
    );
    let (one, two) = (first_block(&spa, "one"), first_block(&spa, "two"));
    assert_eq!(one.dva, two.dva);
    assert!(one.is_dedup() && two.is_dedup());
    assert_eq!(one.checksum(), ChecksumType::Sha256.raw());
    let written = one.physical_birth();
    // Later, the block is as old as it was, and its pointer is new.
    put(&spa, "three", &record(1));
    spa.sync().unwrap();
    let three = first_block(&spa, "three");
    assert_eq!((three.dva, three.physical_birth()), (one.dva, written));
    assert!(three.birth() > written);
    // More copies are another block of a classic table, and are added to a flat entry.
    spa.parts()
        .dsl()
        .set_prop("tank/fs", "copies", PropValue::Number(2))
        .unwrap();
    put(&spa, "four", &record(1));
    spa.sync().unwrap();
    let four = first_block(&spa, "four");
    assert!(four.is_dedup() && four.ndvas() == 2);
    let counts = counted(&spa);
    let counts: Vec<u64> = counts.values().copied().collect();
    match tables {
        Tables::Classic => {
            assert_ne!(four.dva[0], one.dva[0]);
            assert_eq!(counts, [3, 1]);
        }
        Tables::Fast => {
            assert_eq!(four.dva[0], one.dva[0]);
            assert_eq!(four.physical_birth(), written);
            assert_eq!(counts, [4]);
        }
    }
    pool::assert_clean(&spa);
}

/// A pointer from before an entry got more copies may outlive those that have all of them: they are there until the
/// last one goes.
#[test]
fn copies_that_no_pointer_has_stay_as_long_as_their_entry() {
    let folder = tempfile::tempdir().unwrap();
    let spa = new_pool(
        Tables::Fast,
        folder.path(),
        Layout::Stripe,
        &[("dedup", DEDUP_ON), ("compression", 2)],
    );
    let unlink = |spa: &Spa, name: &str| {
        let fs = mount(spa.parts().dsl(), "tank/fs", false).unwrap();
        fs.unlink(fs.root(), name.as_bytes()).unwrap();
        drop(fs);
        (0..3).for_each(|_| spa.force_sync().map(|_| ()).unwrap());
    };
    spa.force_sync().unwrap();
    put(&spa, "one", &record(1));
    spa.sync().unwrap();
    let set = |n| {
        let dsl = spa.parts().dsl();
        dsl.set_prop("tank/fs", "copies", PropValue::Number(n))
            .unwrap();
    };
    set(3);
    put(&spa, "three", &record(1));
    spa.sync().unwrap();
    let three = first_block(&spa, "three");
    assert_eq!(three.ndvas(), 3);
    pool::assert_clean(&spa);
    unlink(&spa, "three");
    pool::assert_clean(&spa);
    set(2);
    put(&spa, "two", &record(1));
    spa.sync().unwrap();
    assert_eq!(first_block(&spa, "two").dva, three.dva);
    unlink(&spa, "two");
    let one = first_block(&spa, "one");
    assert_eq!(one.ndvas(), 1);
    assert_eq!(counted(&spa).into_values().collect::<Vec<_>>(), [1]);
    pool::assert_clean(&spa);
    flush_logs(&spa);
    spa.export().unwrap();
    drop(spa);
    if have_zdb() {
        Zdb::verify(folder.path(), "tank").assert_clean();
    }
    let disks = pool::images(folder.path(), 1, DISK_BYTES);
    let spa = pool::open(&disks, false).unwrap();
    unlink(&spa, "one");
    assert!(counted(&spa).is_empty());
    pool::assert_clean(&spa);
}

#[test]
fn what_classic_tables_deduplicate() {
    what_is_deduplicated(Tables::Classic);
}

#[test]
fn what_fast_tables_deduplicate() {
    what_is_deduplicated(Tables::Fast);
}

/// What is written again in the txg in which its last pointer goes stays where it is.
#[test]
fn the_last_pointer_goes_while_the_block_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let spa = new_pool(
        Tables::Fast,
        folder.path(),
        Layout::Stripe,
        &[("dedup", DEDUP_ON), ("compression", 2)],
    );
    put(&spa, "one", &record(1));
    spa.sync().unwrap();
    let before = first_block(&spa, "one");
    let fs = mount(spa.parts().dsl(), "tank/fs", false).unwrap();
    let two = fs
        .create_file(fs.root(), b"two", &Create::default())
        .unwrap()
        .id;
    fs.write(fs.resolve("one").unwrap(), 0, &record(2)).unwrap();
    fs.write(two, 0, &record(1)).unwrap();
    drop(fs);
    let after = first_block(&spa, "two");
    assert_eq!(
        (after.dva, after.physical_birth()),
        (before.dva, before.physical_birth())
    );
    assert_eq!(counted(&spa).values().copied().collect::<Vec<_>>(), [1, 1]);
    pool::assert_clean(&spa);
}

/// A block with the checksum of another, as the tables have it, is not taken for it where bytes are compared.
#[test]
fn verify_compares_the_bytes() {
    for dedup in [8 | VERIFY, 13 | VERIFY, 8] {
        let folder = tempfile::tempdir().unwrap();
        let spa = new_pool(
            Tables::Classic,
            folder.path(),
            Layout::Stripe,
            &[("dedup", dedup), ("compression", 2)],
        );
        put(&spa, "one", &record(1));
        put(&spa, "other", &record(2));
        spa.sync().unwrap();
        let (one, other) = (first_block(&spa, "one"), first_block(&spa, "other"));
        let is_weak = one.checksum() == ChecksumType::EdonR.raw();
        // From now on the table says that the record is where the other one is.
        pool::in_mos(&spa, move |mos, tx| {
            let mut tables = Ddts::open(mos, false, &|_| 0)?;
            let entry = tables.entry(&one)?.expect("it was written");
            entry.phys[1].dva = other.dva;
            let how = DdtSync {
                dsize: &|_| 0,
                flushes: false,
                now: 0,
            };
            tables.sync(tx, &how)?;
            Ok(())
        });
        put(&spa, "two", &record(1));
        put(&spa, "three", &record(1));
        spa.sync().unwrap();
        let (two, three) = (first_block(&spa, "two"), first_block(&spa, "three"));
        if dedup & VERIFY == 0 {
            assert_eq!(two.dva, other.dva, "it is taken for it");
            continue;
        }
        assert_ne!(two.dva, other.dva);
        assert_eq!(two.is_dedup(), is_weak);
        assert_eq!(two.dva == three.dva, is_weak);
        assert_eq!(two.checksum(), ChecksumType::Sha256.raw());
        let fs = mount(spa.parts().dsl(), "tank/fs", true).unwrap();
        let mut bytes = [0; RECORD];
        fs.read(fs.resolve("two").unwrap(), 0, &mut bytes).unwrap();
        assert!(bytes[..] == record(1));
    }
}

/// Tables and their logs are where they belong.
#[test]
fn tables_are_on_the_dedup_device() {
    let folder = tempfile::tempdir().unwrap();
    let spa = new_pool(
        Tables::Fast,
        folder.path(),
        Layout::Classes,
        &[("dedup", DEDUP_ON)],
    );
    let class_of = |object| {
        let object = spa.parts().mos().hold(object).unwrap();
        let block = object.block_pointer(0, BlkId(0)).unwrap();
        let tree = spa.parts().tree();
        let top = &tree.tops()[block.dva[0].vdev().0 as usize];
        top.config().alloc_bias
    };
    put(&spa, "one", &record(1));
    spa.sync().unwrap();
    let tables = tables_of(&spa);
    let logs = tables.tables().next().unwrap().logs();
    let log = logs.into_iter().find(|log| log.length > 0).unwrap();
    assert_eq!(class_of(log.object), AllocClass::Dedup);
    flush_logs(&spa);
    let tables = tables_of(&spa);
    let table = tables.tables().next().unwrap();
    let (class, _, object, _) = table.parts().next().unwrap();
    assert_eq!(class, DdtClass::Unique);
    assert_eq!(class_of(object), AllocClass::Dedup);
    assert_eq!(first_block(&spa, "one").dva[0].vdev().0, 0);
}

/// The states that the pool went through, and how many commands its disk had got by then.
fn history(disk: &Arc<PowerCut>, seed: u64) -> Vec<(u64, Model)> {
    let mut dice = Dice::new(seed);
    let mut model = Model::default();
    let root = init(NewFilesystem::default(), true);
    let devices = [disk.clone() as Arc<dyn Provider>];
    let mut at = Bench::new(pool::create("tank", Layout::Stripe, 12, &devices, root).unwrap());
    let supply: &Arc<PowerSupply> = disk.supply();
    let mut states = vec![(supply.commands(), model.clone())];
    for _ in 0..40 {
        model.step(&mut at, &mut dice);
        at.spa.sync().unwrap();
        states.push((supply.commands(), model.clone()));
    }
    drop(at.mounts);
    at.spa.close().unwrap();
    states
}

fn zdb_is_clean(image: &dyn Provider, what: u64) {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = vec![0; DISK_BYTES as usize];
    image.read(0, &mut bytes).unwrap();
    std::fs::write(folder.path().join("disk0"), &bytes).unwrap();
    let zdb = Zdb::verify(folder.path(), "tank");
    assert!(zdb.is_clean(), "cut after {what}: {zdb:?}");
}

#[test]
fn sim_power_cuts_while_blocks_are_deduplicated() {
    let seed = seed(5);
    rt::simulate(seed, move || {
        let disk = Arc::new(PowerCut::new("/disk0", DISK_BYTES));
        let states = history(&disk, seed);
        let (first, last) = (states[0].0, disk.supply().commands());
        let looks_at_each = std::env::var_os("CUTS").is_some();
        for n in cuts::sample(first..=last, CUTS) {
            let image: Arc<dyn Provider> = Arc::new(disk.image_after(n, n));
            if have_zdb() && (looks_at_each || n % 3 == 0) {
                zdb_is_clean(&*image, n);
            }
            let spa = pool::open(&[image], false).unwrap_or_else(|e| panic!("cut after {n}: {e}"));
            let at = states.partition_point(|(done, _)| *done <= n) - 1;
            let may_be = &states[at..states.len().min(at + 2)];
            let is = may_be
                .iter()
                .find(|(_, model)| model.difference(&spa).is_none());
            let (_, model) = is.unwrap_or_else(|| panic!("cut after {n}: another state than {at}"));
            check(&spa, model);
        }
    });
}

/// The reference counts of all entries: how many there are with each.
fn by_count(spa: &Spa) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    let each = &mut |_, _, entry: DdtEntry| {
        *counts.entry(entry.refcnt()).or_default() += 1;
        Ok(())
    };
    tables_of(spa).walk(each).unwrap();
    counts
}

/// Tables of OpenZFS, whose logs are half flushed: read, kept up, and flushed to the end.
#[test]
fn logs_of_openzfs_are_flushed() {
    const LINE: usize = 512;
    let devices = [golden("openzfs-2.3.2-fast-dedup")];
    let spa = pool::open(&devices, true).unwrap();
    let tables = tables_of(&spa);
    let logs = tables.tables().flat_map(DdtTable::logs);
    let logs: Vec<_> = logs.map(|log| (log.flags, log.entries)).collect();
    assert!(
        logs.iter()
            .any(|(flags, entries)| *flags == 3 && *entries > 0),
        "{logs:?}"
    );
    // Blocks without references wait in the log for their end.
    let mut there = by_count(&spa);
    assert!(there.remove(&0).is_some_and(|dead| dead > 0), "{there:?}");
    assert_eq!(there, BTreeMap::from([(1, 201), (2, 200), (3, 100)]));
    drop((tables, spa));
    let spa = pool::open(&devices, false).unwrap();
    let line = |n: usize| format!("{n:<LINE$}").into_bytes();
    let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
    let mut bytes = vec![0; LINE];
    for (name, at, n) in [
        ("one", 7, 8),
        ("two", 299, 300),
        ("three", 0, 1),
        ("alone", 0, 301),
    ] {
        let id = fs.resolve(name).unwrap();
        fs.read(id, at * LINE as u64, &mut bytes).unwrap();
        assert!(
            bytes == line(n),
            "{name}: {}",
            String::from_utf8_lossy(&bytes)
        );
    }
    // One more pointer to 50 of them, one less to 100, and 50 that are new.
    let four = fs
        .create_file(fs.root(), b"four", &Create::default())
        .unwrap();
    for (at, n) in (0..).zip((151..=200).chain(9001..=9050)) {
        fs.write(four.id, at * LINE as u64, &line(n)).unwrap();
    }
    fs.unlink(fs.root(), b"three").unwrap();
    drop(fs);
    spa.sync().unwrap();
    flush_logs(&spa);
    let expected = BTreeMap::from([(1, 251), (2, 250), (3, 50)]);
    assert_eq!(by_count(&spa), expected);
    counted(&spa);
    pool::assert_clean(&spa);
    spa.export().unwrap();
    pool::verify_with_zdb(&devices, "tank");
}

/// Old entries with one reference are forgotten; their blocks stay, are freed like others, and are not found again.
#[test]
fn what_is_pruned_is_owned() {
    let page = |n: u64| format!("{n:<RECORD$}").into_bytes();
    let folder = tempfile::tempdir().unwrap();
    let props = [("dedup", DEDUP_ON), ("compression", 2)];
    let spa = new_pool(Tables::Fast, folder.path(), Layout::Stripe, &props);
    for n in 1..=40 {
        put(&spa, &format!("file{n}"), &page(n));
    }
    for n in 1..=10 {
        put(&spa, &format!("twin{n}"), &page(n));
    }
    spa.sync().unwrap();
    flush_logs(&spa);
    let now = rt::wall_clock().secs;
    assert_eq!(spa.prune_dedup(Prune::Age(60), now).unwrap(), 0);
    let month = now + 30 * 86400;
    assert_eq!(spa.prune_dedup(Prune::Age(40 * 86400), month).unwrap(), 0);
    assert_eq!(by_count(&spa), BTreeMap::from([(1, 30), (2, 10)]));
    assert_eq!(spa.prune_dedup(Prune::Percent(50), month).unwrap(), 30);
    // They are in the log, without a block, until they leave the table.
    flush_logs(&spa);
    assert_eq!(by_count(&spa), BTreeMap::from([(2, 10)]));
    pool::assert_clean(&spa);
    let before = first_block(&spa, "file20");
    put(&spa, "again", &page(20));
    spa.sync().unwrap();
    let again = first_block(&spa, "again");
    assert!(again.is_dedup() && again.dva != before.dva);
    let fs = mount(spa.parts().dsl(), "tank/fs", false).unwrap();
    for n in 20..30 {
        let name = format!("file{n}");
        fs.unlink(fs.root(), name.as_bytes()).unwrap();
    }
    drop(fs);
    spa.sync().unwrap();
    flush_logs(&spa);
    assert_eq!(by_count(&spa), BTreeMap::from([(1, 1), (2, 10)]));
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    if have_zdb() {
        Zdb::verify(folder.path(), "tank").assert_clean();
    }
}

/// What was prefetched is not read again.
#[test]
fn tables_are_prefetched() {
    let folder = tempfile::tempdir().unwrap();
    let props = [("dedup", DEDUP_ON), ("compression", 2)];
    let spa = new_pool(Tables::Fast, folder.path(), Layout::Stripe, &props);
    let pages: String = (0..1000).map(|n| format!("{n:<RECORD$}")).collect();
    put(&spa, "file", pages.as_bytes());
    spa.sync().unwrap();
    flush_logs(&spa);
    spa.export().unwrap();
    drop(spa);
    let disks = pool::images(folder.path(), 1, DISK_BYTES);
    let spa = pool::open(&disks, false).unwrap();
    let reads = || {
        let devices = spa.parts().tree().devices();
        let counts = devices.iter().map(|device| device.io_counts().read_ops());
        counts.sum::<u64>()
    };
    let before = reads();
    spa.prefetch(SharedTables::Cloned).unwrap();
    assert_eq!(reads(), before, "nothing is cloned");
    spa.prefetch(SharedTables::Dedup).unwrap();
    let prefetched = reads();
    assert!(prefetched > before);
    assert_eq!(by_count(&spa), BTreeMap::from([(1, 1000)]));
    assert_eq!(reads(), prefetched, "the table was read");
}

/// Above their quota, tables get no new entries; those that there are go on.
#[test]
fn tables_keep_to_their_quota() {
    let folder = tempfile::tempdir().unwrap();
    let props = [("dedup", DEDUP_ON), ("compression", 2)];
    let spa = new_pool(Tables::Fast, folder.path(), Layout::Stripe, &props);
    put(&spa, "one", &record(1));
    spa.sync().unwrap();
    let set = |bytes| spa.set_prop("dedup_table_quota", PropValue::Number(bytes));
    set(512).unwrap();
    put(&spa, "two", &record(2));
    put(&spa, "twin", &record(1));
    spa.sync().unwrap();
    assert!(!first_block(&spa, "two").is_dedup());
    assert_eq!(first_block(&spa, "twin").dva, first_block(&spa, "one").dva);
    for (quota, name) in [(0, "none"), (u64::MAX, "auto"), (1 << 30, "large")] {
        set(quota).unwrap();
        put(&spa, name, &record(quota % 1000 + 10));
        spa.sync().unwrap();
        assert!(first_block(&spa, name).is_dedup(), "{name}");
    }
    pool::assert_clean(&spa);
}

/// A mirror of disks in memory, whose scans visit so few blocks in a txg.
fn scanned(tables: Tables, blocks_max: u64) -> (Vec<Arc<Memory>>, Spa) {
    let disk = |n| Arc::new(Memory::new(format!("/disk{n}"), DISK_BYTES));
    let disks: Vec<Arc<Memory>> = (0..2).map(disk).collect();
    let devices: Vec<Arc<dyn Provider>> = disks.iter().map(|disk| disk.clone() as _).collect();
    let spa = create(tables, Layout::Mirror, 12, &devices);
    spa.export().unwrap();
    drop(spa);
    let mut settings = pool::settings();
    settings.scan.blocks_max = blocks_max;
    (disks, pool::open_with(&devices, false, settings).unwrap())
}

fn scrub(spa: &Spa) -> ScanPhys {
    spa.scrub().unwrap();
    spa.wait_scan(&mut |_| true).unwrap();
    spa.scan().unwrap()
}

#[test]
fn sim_a_scrub_reads_a_block_with_several_references_once() {
    for tables in [Tables::Classic, Tables::Fast] {
        rt::simulate(1, move || {
            let (disks, spa) = scanned(tables, u64::MAX);
            let props = [("dedup", DEDUP_ON), ("recordsize", RECORD as u64)];
            pool::create_fs(&spa, "tank/fs", &props).unwrap();
            let bytes = Dice::new(1).bytes(256 * RECORD);
            ["a", "b", "c"]
                .iter()
                .for_each(|name| put(&spa, name, &bytes));
            spa.sync().unwrap();
            flush_logs(&spa);
            (0..3).for_each(|_| spa.force_sync().map(|_| ()).unwrap());
            let scan = scrub(&spa);
            // Each place once, but for what is deferred or not part of any block.
            let (all, seen) = (
                scan.to_examine.get(),
                scan.examined.get() + scan.skipped.get(),
            );
            assert!(seen <= all && seen > all / 5 * 4, "{scan:?}");
            // What is lost is named where it is referred to, and, as OpenZFS has it, as part of the tables.
            let at = first_block(&spa, "b").dva[0].offset() + LABEL_START_SIZE;
            for disk in &disks {
                disk.write(at, &[0x5a; RECORD]).unwrap();
            }
            let scan = scrub(&spa);
            assert_eq!(scan.errors.get(), 4, "{scan:?} {:?}", spa.damaged());
            let objects = spa
                .damaged()
                .unwrap()
                .into_iter()
                .map(|block| block.object.0);
            assert_eq!(objects.collect::<Vec<_>>().len(), 4);
        });
    }
}

/// Overwrites all data of a disk.
fn scribble(disk: &Memory) {
    let junk = vec![0x5a; 1 << 20];
    for mib in 4..(DISK_BYTES >> 20) - 1 {
        disk.write(mib << 20, &junk).unwrap();
    }
}

/// Blocks that get their second reference after a scrub has passed the tables, and before it gets to their file.
#[test]
fn sim_a_scrub_reads_blocks_that_are_referred_to_once_more_meanwhile() {
    for tables in [Tables::Classic, Tables::Fast] {
        rt::simulate(1, move || {
            let (disks, spa) = scanned(tables, 8);
            let props = [("dedup", DEDUP_ON), ("recordsize", RECORD as u64)];
            pool::create_fs(&spa, "tank/fs", &props).unwrap();
            let bytes = Dice::new(1).bytes(64 * RECORD);
            put(&spa, "first", &bytes);
            spa.sync().unwrap();
            flush_logs(&spa);
            scribble(&disks[1]);
            spa.scrub().unwrap();
            while spa.scan().unwrap().ddt_bookmark.class.get() <= 1 {
                spa.force_sync().unwrap();
            }
            put(&spa, "second", &bytes);
            spa.sync().unwrap();
            flush_logs(&spa);
            assert!(spa.scan_running().is_some(), "it has not come to the file");
            spa.wait_scan(&mut |_| true).unwrap();
            spa.export().unwrap();
            drop(spa);
            let spa = pool::open(&[disks[1].clone() as Arc<dyn Provider>], true).unwrap();
            pool::assert_clean(&spa);
        });
    }
}

/// A scrub in small steps mends a whole side of a mirror, whatever becomes of the references meanwhile.
#[test]
fn sim_a_scrub_mends_shared_blocks_while_references_come_and_go() {
    for (n, tables) in [Tables::Classic, Tables::Fast, Tables::Fast]
        .into_iter()
        .enumerate()
    {
        let seed = seed(60 + n as u64);
        rt::simulate(seed, move || {
            let mut dice = Dice::new(seed);
            let mut model = Model::default();
            let (disks, spa) = scanned(tables, 8);
            let mut at = Bench::new(spa);
            (0..120).for_each(|_| model.step(&mut at, &mut dice));
            at.spa.sync().unwrap();
            scribble(&disks[1]);
            at.spa.scrub().unwrap();
            let mut beside = 0;
            while at.spa.scan_running().is_some() {
                model.step(&mut at, &mut dice);
                at.spa.sync().unwrap();
                beside += 1;
            }
            assert!(beside > 10, "{beside} txgs");
            let scan = at.spa.scan().unwrap();
            assert_eq!((scan.state.get(), scan.errors.get()), (DSS_FINISHED, 0));
            let Bench { spa, mounts } = at;
            drop(mounts);
            check(&spa, &model);
            spa.export().unwrap();
            drop(spa);
            let spa = pool::open(&[disks[1].clone() as Arc<dyn Provider>], true).unwrap();
            model.compare(&spa);
            pool::assert_clean(&spa);
        });
    }
}
