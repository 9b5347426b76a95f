//! Every layout with every sector size, compression and record size: a file system with a history, checked by
//! our checker and the real `zdb -bcc`, and object by object against `zdb -dddd`.
//!
//! By default a sample in which every layout meets every value of every other axis; `MATRIX=all` runs all 324
//! pools.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use base::{BlkId, ObjectId};
use dmu::Objset;
use oracle::{Zdb, have_zdb};
use spa::Spa;
use torture::files::{Files, Node};
use torture::pool::{self, Layout};
use torture::{Dice, seed};
use zpl::mount::{init, mount};
use zpl::{Create, Filesystem, NewFilesystem};

const DISK_BYTES: u64 = 256 << 20;
const ASHIFTS: [u32; 3] = [9, 12, 13];
/// Names and numbers of the values of the property.
const COMPRESSIONS: [(&str, u64); 3] = [("off", 2), ("lz4", 15), ("zstd", 16)];
const RECORDSIZES: [u64; 3] = [4 << 10, 128 << 10, 1 << 20];
const DNODES_PER_BLOCK: u64 = 32;

/// One pool of the matrix.
#[derive(Debug, Clone, Copy)]
struct Case {
    layout: Layout,
    disks: usize,
    ashift: u32,
    compression: (&'static str, u64),
    recordsize: u64,
}

/// The cases of one layout. `turn` shifts the sample, so that each layout gets a different one.
fn cases(layout: Layout, disks: usize, turn: usize) -> Vec<Case> {
    let case = |a: usize, c: usize, r: usize| Case {
        layout,
        disks,
        ashift: ASHIFTS[a],
        compression: COMPRESSIONS[c],
        recordsize: RECORDSIZES[r],
    };
    if std::env::var("MATRIX").is_ok_and(|v| v == "all") {
        return (0..27).map(|i| case(i / 9, i / 3 % 3, i % 3)).collect();
    }
    (0..3)
        .map(|i| case(i, (i + turn) % 3, (2 * i + turn) % 3))
        .collect()
}

fn run(layout: Layout, disks: usize, turn: usize) {
    if !have_zdb() {
        return;
    }
    let seed = seed(turn as u64 + 1);
    for case in cases(layout, disks, turn) {
        let outcome = std::panic::catch_unwind(|| run_case(case, seed));
        if let Err(cause) = outcome {
            eprintln!("in {case:?}, SEED={seed}");
            std::panic::resume_unwind(cause);
        }
    }
}

#[test]
fn matrix_of_a_single_disk() {
    run(Layout::Stripe, 1, 0);
}

#[test]
fn matrix_of_a_stripe_of_two() {
    run(Layout::Stripe, 2, 1);
}

#[test]
fn matrix_of_a_mirror_of_two() {
    run(Layout::Mirror, 2, 2);
}

#[test]
fn matrix_of_a_mirror_of_three() {
    run(Layout::Mirror, 3, 3);
}

#[test]
fn matrix_of_a_raidz1_of_three() {
    run(Layout::Raidz(1), 3, 4);
}

#[test]
fn matrix_of_a_raidz1_of_six() {
    run(Layout::Raidz(1), 6, 5);
}

#[test]
fn matrix_of_a_raidz2_of_five() {
    run(Layout::Raidz(2), 5, 6);
}

#[test]
fn matrix_of_a_raidz3_of_seven() {
    run(Layout::Raidz(3), 7, 7);
}

#[test]
fn matrix_of_a_draid1_of_three() {
    run(Layout::Draid(1, 2, 0), 3, 9);
}

#[test]
fn matrix_of_a_draid2_of_eight() {
    run(Layout::Draid(2, 3, 0), 8, 10);
}

#[test]
fn matrix_of_a_draid3_of_twelve() {
    run(Layout::Draid(3, 7, 0), 12, 11);
}

#[test]
fn matrix_of_special_dedup_and_log_devices() {
    run(Layout::Classes, 4, 8);
}

fn run_case(case: Case, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let disks = pool::images(folder.path(), case.disks, DISK_BYTES);
    let root = init(NewFilesystem::default(), true);
    let spa = pool::create("tank", case.layout, case.ashift, &disks, root).unwrap();
    live(&spa, case, &mut Dice::new(seed));
    spa.sync().unwrap();
    pool::assert_clean(&spa);
    let names = ["tank/fs", "tank/fs@kept", "tank/clone"];
    let ours: Vec<Facts> = names.iter().map(|name| facts(&spa, name)).collect();
    spa.export().unwrap();
    drop((spa, disks));
    Zdb::verify(folder.path(), "tank").assert_clean();
    for (name, ours) in names.iter().zip(&ours) {
        let theirs = zdb_facts(folder.path(), name);
        for (id, fact) in ours {
            assert_eq!(
                theirs.get(id),
                Some(fact),
                "{name}, object {id}: zdb, then ours"
            );
        }
        assert_eq!(
            theirs.len(),
            ours.len(),
            "{name}: zdb sees objects that we do not"
        );
    }
}

/// A tree of files, with snapshots and a clone, through overwrites and deletions.
fn live(spa: &Spa, case: Case, dice: &mut Dice) {
    let props = [
        ("compression", case.compression.1),
        ("recordsize", case.recordsize),
    ];
    pool::create_fs(spa, "tank/fs", &props).unwrap();
    let mut files = Files::default();
    work(spa, "tank/fs", &mut files, dice);
    large(spa, "tank/fs", &mut files, dice);
    spa.parts()
        .dsl()
        .snapshot(&["tank/fs@kept"], Vec::new())
        .unwrap();
    let kept = files.clone();
    work(spa, "tank/fs", &mut files, dice);
    spa.parts()
        .dsl()
        .snapshot(&["tank/fs@gone"], Vec::new())
        .unwrap();
    spa.parts()
        .dsl()
        .clone_dataset("tank/clone", "tank/fs@kept", Vec::new())
        .unwrap();
    let mut cloned = kept.clone();
    work(spa, "tank/clone", &mut cloned, dice);
    work(spa, "tank/fs", &mut files, dice);
    spa.parts()
        .dsl()
        .destroy_snapshots(&["tank/fs@gone"], false)
        .unwrap();
    spa.sync().unwrap();
    for (name, files) in [
        ("tank/fs", &files),
        ("tank/fs@kept", &kept),
        ("tank/clone", &cloned),
    ] {
        let fs = mount(spa.parts().dsl(), name, true).unwrap();
        files.compare(&fs).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

fn work(spa: &Spa, name: &str, files: &mut Files, dice: &mut Dice) {
    let fs = mount(spa.parts().dsl(), name, false).unwrap();
    for step in 0..60 {
        files
            .step(&fs, dice)
            .unwrap_or_else(|e| panic!("{name}, step {step}: {e}"));
    }
}

/// Files that need indirect blocks: one without holes, and one that is a hole between two ends.
fn large(spa: &Spa, name: &str, files: &mut Files, dice: &mut Dice) {
    let fs = mount(spa.parts().dsl(), name, false).unwrap();
    let whole = dice.bytes(5_000_000);
    let id = create(&fs, "large");
    for (i, piece) in whole.chunks(700_001).enumerate() {
        fs.write(id, i as u64 * 700_001, piece).unwrap();
    }
    files.nodes.insert("large".into(), Node::File(whole));
    let end = dice.bytes(1_500_000);
    let mut sparse = end.clone();
    sparse.resize(17_000_000, 0);
    sparse.extend_from_slice(&end);
    let id = create(&fs, "sparse");
    fs.write(id, 0, &end).unwrap();
    fs.write(id, 17_000_000, &end).unwrap();
    files.nodes.insert("sparse".into(), Node::File(sparse));
}

fn create(fs: &Filesystem, name: &str) -> ObjectId {
    let create = Create {
        mode: 0o644,
        uid: 1000,
        gid: 1000,
    };
    fs.create_file(fs.root(), name.as_bytes(), &create)
        .unwrap()
        .id
}

/// The columns of each object, by its number, as `zdb -P` prints them.
type Facts = BTreeMap<u64, String>;

fn facts(spa: &Spa, name: &str) -> Facts {
    let ds = spa.parts().dsl().dataset(name).unwrap();
    let objset = ds.objset().unwrap();
    let mut facts = Facts::new();
    let mut at = Some(ObjectId(0));
    while let Some(id) = at {
        facts.insert(id.0, fact(&objset, id));
        at = objset.next_object(id).unwrap();
    }
    facts
}

fn fact(objset: &Arc<Objset>, id: ObjectId) -> String {
    let dnode = objset.hold(id).unwrap();
    let phys = dnode.phys();
    let top = phys.nlevels - 1;
    let fill = (0..u64::from(phys.nblkptr)).map(|i| {
        let bp = dnode.block_pointer(top, BlkId(i)).unwrap();
        match (bp.is_hole(), bp.is_embedded()) {
            (true, _) => 0,
            (_, true) => 1,
            _ => bp.fill(),
        }
    });
    let lsize = (dnode.maxblkid().0 + 1) * dnode.blksz();
    let per_block = if id.0 == 0 { DNODES_PER_BLOCK } else { 1 };
    let full =
        100.0 * fill.sum::<u64>() as f64 * dnode.blksz() as f64 / per_block as f64 / lsize as f64;
    format!(
        "lvl {} iblk {} dblk {} dsize {} dnsize {} lsize {lsize} full {full:.2} type {}",
        dnode.nlevels(),
        1u64 << phys.indblkshift,
        dnode.blksz(),
        (dnode.used_bytes() + 256) >> 9 << 9,
        u64::from(dnode.slots()) * 512,
        dnode.type_().name()
    )
}

/// The columns that `zdb -dddd` prints for each object. Negative numbers are the dnodes in the objset itself.
fn zdb_facts(folder: &Path, name: &str) -> Facts {
    let zdb = Zdb::run(&["-e", "-p", folder.to_str().unwrap(), "-Pdddd", name]);
    assert!(zdb.succeeded, "{name}: {}\n{}", zdb.stdout, zdb.stderr);
    let mut facts = Facts::new();
    let mut lines = zdb.stdout.lines();
    while let Some(line) = lines.next() {
        if !line.trim_start().starts_with("Object  lvl") {
            continue;
        }
        let line = lines.next().expect("a line below its heading");
        let words: Vec<&str> = line.split_whitespace().collect();
        let [
            object,
            lvl,
            iblk,
            dblk,
            dsize,
            dnsize,
            lsize,
            full,
            type_ @ ..,
        ] = &words[..]
        else {
            panic!("not the line of an object: {line}");
        };
        let Ok(object) = object.parse() else { continue };
        let type_ = type_.join(" ");
        let type_ = type_
            .split(" (K=")
            .next()
            .and_then(|t| t.split(" (Z=").next());
        let type_ = type_.expect("a first part");
        let fact = format!(
            "lvl {lvl} iblk {iblk} dblk {dblk} dsize {dsize} dnsize {dnsize} lsize {lsize} \
             full {full} type {type_}"
        );
        facts.insert(object, fact);
    }
    facts
}
