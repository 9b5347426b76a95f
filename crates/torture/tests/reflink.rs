//! Cloned files: random files and clones of them in two data sets, with snapshots, beside a model; the power fails
//! meanwhile; the real `zdb` looks at the result. In pools of OpenZFS 2.4 blocks keep their births when they are
//! rewritten, and tables of cloned blocks have numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::ErrorKind;
use faulty::{PowerCut, PowerSupply};
use geom::Provider;
use oracle::{Zdb, have_zdb};
use phys::feature::{BLOCK_CLONING, BLOCK_CLONING_ENDIAN, PHYSICAL_REWRITE, Release};
use spa::Spa;
use torture::cuts;
use torture::pool::{self, Layout};
use torture::{Dice, seed};
use zpl::mount::{Mount, init, mount};
use zpl::{Create, FileOffset, NewFilesystem};

const DISK_BYTES: u64 = 256 << 20;
const RECORD_BYTES: u64 = 4096;
const FILES: u64 = 8;
const DATASETS: [&str; 2] = ["tank/a", "tank/b"];
const CUTS: u64 = 40;

type Files = BTreeMap<(usize, u64), Vec<u8>>;

/// What the files are, and every content that each ever had.
#[derive(Default)]
struct Model {
    files: Files,
    versions: BTreeMap<(usize, u64), Vec<Vec<u8>>>,
    clones: u64,
    snapshots: u64,
    rewrites: u64,
}

fn create(disks: &[Arc<dyn Provider>]) -> Spa {
    create_for(Release::V2_3, disks)
}

fn create_for(release: Release, disks: &[Arc<dyn Provider>]) -> Spa {
    let root = init(NewFilesystem::default(), true);
    let spa = pool::create_for(release, "tank", Layout::Mirror, 9, disks, root).unwrap();
    for name in DATASETS {
        // LZ4
        let props = [("recordsize", RECORD_BYTES), ("compression", 15)];
        pool::create_fs(&spa, name, &props).unwrap();
    }
    spa
}

impl Model {
    fn note(&mut self, at: (usize, u64), content: Vec<u8>) {
        self.versions.entry(at).or_default().push(content.clone());
        self.files.insert(at, content);
    }

    fn step(&mut self, spa: &Spa, dice: &mut Dice) {
        let fs: Vec<Mount> = DATASETS
            .iter()
            .map(|name| mount(spa.parts().dsl(), name, false).unwrap())
            .collect();
        let at = (dice.below(2) as usize, dice.below(FILES));
        let name = format!("f{}", at.1);
        match dice.below(18) {
            0..4 => self.write(&fs[at.0], at, &name, dice),
            4..9 => self.clone_all(&fs, at, &name, dice),
            9..12 => self.clone_part(&fs, at, dice),
            12 if self.files.remove(&at).is_some() => {
                fs[at.0].unlink(fs[at.0].root(), name.as_bytes()).unwrap();
                self.versions.entry(at).or_default().push(Vec::new());
            }
            13 if self.files.contains_key(&at) => {
                fs[at.0].fsync(fs[at.0].resolve(&name).unwrap()).unwrap();
            }
            14 => {
                self.snapshots += 1;
                let snapshot = format!("{}@s{}", DATASETS[at.0], self.snapshots);
                spa.parts()
                    .dsl()
                    .snapshot(&[&snapshot], Vec::new())
                    .unwrap();
            }
            16..18 if self.files.contains_key(&at) => {
                let id = fs[at.0].resolve(&name).unwrap();
                let (offset, len) = (dice.below(8 * RECORD_BYTES), dice.below(8 * RECORD_BYTES));
                let is_2_4 = spa.parts().features().count(PHYSICAL_REWRITE).is_some();
                let keeps_birth = is_2_4 && !dice.once_in(3);
                fs[at.0].rewrite(id, offset, len, keeps_birth).unwrap();
                self.rewrites += 1;
            }
            15 if self.snapshots > 0 => {
                let snapshot = format!("{}@s{}", DATASETS[at.0], 1 + dice.below(self.snapshots));
                // It may be gone, or be of the other data set.
                let _ = spa.parts().dsl().destroy_snapshots(&[&snapshot], false);
            }
            _ => drop(spa.sync().unwrap()),
        }
    }

    fn write(&mut self, fs: &Mount, at: (usize, u64), name: &str, dice: &mut Dice) {
        let mut content = self.files.get(&at).cloned().unwrap_or_default();
        if !self.files.contains_key(&at) {
            fs.create_file(fs.root(), name.as_bytes(), &Create::default())
                .unwrap();
        }
        let offset = dice.below(12 * RECORD_BYTES) as usize;
        let length = 1 + dice.below(3 * RECORD_BYTES) as usize;
        let bytes = dice.bytes(length);
        content.resize(content.len().max(offset + length), 0);
        content[offset..offset + length].copy_from_slice(&bytes);
        fs.write(fs.resolve(name).unwrap(), offset as u64, &bytes)
            .unwrap();
        self.note(at, content);
    }

    fn any_other(&self, at: (usize, u64), dice: &mut Dice) -> Option<((usize, u64), Vec<u8>)> {
        let others: Vec<_> = self
            .files
            .iter()
            .filter(|(other, _)| **other != at)
            .collect();
        let (other, content) = others.get(dice.below(others.len().max(1) as u64) as usize)?;
        Some((**other, (*content).clone()))
    }

    /// A file becomes a clone of another one.
    fn clone_all(&mut self, fs: &[Mount], at: (usize, u64), name: &str, dice: &mut Dice) {
        let Some((other, content)) = self.any_other(at, dice) else {
            return;
        };
        let to = &fs[at.0];
        if self.files.remove(&at).is_some() {
            to.unlink(to.root(), name.as_bytes()).unwrap();
        }
        let id = to
            .create_file(to.root(), name.as_bytes(), &Create::default())
            .unwrap()
            .id;
        let from = FileOffset {
            fs: &fs[other.0],
            id: fs[other.0].resolve(format!("f{}", other.1)).unwrap(),
            offset: 0,
        };
        to.clone_range(id, 0, from, u64::MAX >> 1).unwrap();
        self.clones += 1;
        self.note(at, content);
    }

    /// Blocks of a file become those of another one.
    fn clone_part(&mut self, fs: &[Mount], at: (usize, u64), dice: &mut Dice) {
        let Some((other, theirs)) = self.any_other(at, dice) else {
            return;
        };
        let Some(mut ours) = self.files.get(&at).cloned() else {
            return;
        };
        let blocks = |content: &[u8]| content.len() as u64 / RECORD_BYTES;
        let from = dice.below(blocks(&theirs) + 1) * RECORD_BYTES;
        let to = dice.below(blocks(&ours) + 1) * RECORD_BYTES;
        let len = (1 + dice.below(4)) * RECORD_BYTES;
        let fitting = len.min((theirs.len() as u64).saturating_sub(from));
        let place = FileOffset {
            fs: &fs[other.0],
            id: fs[other.0].resolve(format!("f{}", other.1)).unwrap(),
            offset: from,
        };
        let id = fs[at.0].resolve(format!("f{}", at.1)).unwrap();
        match fs[at.0].clone_range(id, to, place, len) {
            Ok(()) => {
                let end = (to + fitting) as usize;
                ours.resize(ours.len().max(end), 0);
                ours[to as usize..end]
                    .copy_from_slice(&theirs[from as usize..][..fitting as usize]);
                self.clones += 1;
                self.note(at, ours);
            }
            // A file of one block has another block size; the end of the source is in the midst of a block.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
        }
    }

    fn check(&self, spa: &Spa) {
        for ((set, file), content) in &self.files {
            let fs = mount(spa.parts().dsl(), DATASETS[*set], true).unwrap();
            let found = read(&fs, *file).expect("it exists");
            assert!(found == *content, "file {file} of {}", DATASETS[*set]);
        }
        pool::assert_clean(spa);
    }
}

fn read(fs: &Mount, file: u64) -> Option<Vec<u8>> {
    let id = fs.resolve(format!("f{file}")).ok()?;
    let mut bytes = vec![0; fs.getattr(id).unwrap().size as usize];
    fs.read(id, 0, &mut bytes).unwrap();
    Some(bytes)
}

#[test]
fn clones_beside_a_model() {
    clones_beside_a_model_in(Release::V2_3);
}

#[test]
fn clones_beside_a_model_in_a_pool_of_2_4() {
    clones_beside_a_model_in(Release::V2_4);
}

fn clones_beside_a_model_in(release: Release) {
    let seed = seed(21);
    let mut dice = Dice::new(seed);
    let folder = tempfile::tempdir().unwrap();
    let disks = pool::images(folder.path(), 2, DISK_BYTES);
    let mut spa = create_for(release, &disks);
    let mut model = Model::default();
    for round in 0..6 {
        for _ in 0..60 {
            model.step(&spa, &mut dice);
        }
        spa.sync().unwrap();
        model.check(&spa);
        if round == 3 {
            spa.export().unwrap();
            drop(spa);
            spa = pool::open(&disks, false).unwrap();
            model.check(&spa);
        }
    }
    assert!(model.clones > 50, "SEED={seed}: {} clones", model.clones);
    assert!(
        model.rewrites > 10,
        "SEED={seed}: {} rewrites",
        model.rewrites
    );
    assert!(spa.cloned().0 > 0);
    let count = |guid| spa.parts().features().count(guid).unwrap_or(0);
    let is_2_4 = release == Release::V2_4;
    let tables = if is_2_4 { count(BLOCK_CLONING) } else { 0 };
    assert_eq!(count(BLOCK_CLONING_ENDIAN), tables);
    assert_eq!(count(PHYSICAL_REWRITE) > 1, is_2_4);
    if is_2_4 {
        spa.export().unwrap();
        drop(spa);
        pool::verify_with_zdb_2_4(&disks, "tank");
        let spa = pool::open(&disks, false).unwrap();
        destroy_all(&spa);
        spa.export().unwrap();
        drop(spa);
        pool::verify_with_zdb_2_4(&disks, "tank");
        return;
    }
    spa.export().unwrap();
    drop((spa, disks));
    if have_zdb() {
        Zdb::verify(folder.path(), "tank").assert_clean();
    }
}

/// Without what uses them, the features of 2.4 are not active any more.
fn destroy_all(spa: &Spa) {
    let dsl = spa.parts().dsl();
    for name in DATASETS {
        let snapshots = dsl.snapshots(&dsl.dataset(name).unwrap()).unwrap();
        for (snapshot, _) in snapshots {
            let snapshot = format!("{name}@{snapshot}");
            dsl.destroy_snapshots(&[&snapshot], false).unwrap();
        }
        dsl.destroy_head(name).unwrap();
    }
    (0..4).for_each(|_| spa.force_sync().map(|_| ()).unwrap());
    for guid in [BLOCK_CLONING, BLOCK_CLONING_ENDIAN, PHYSICAL_REWRITE] {
        assert_eq!(spa.parts().features().count(guid), Some(0), "{guid}");
    }
    pool::assert_clean(spa);
}

/// More blocks than one transaction clones.
#[test]
fn a_file_of_many_blocks_is_cloned_whole() {
    let disk = |name| Arc::new(PowerCut::new(name, DISK_BYTES)) as Arc<dyn Provider>;
    let spa = create(&[disk("/disk0"), disk("/disk1")]);
    pool::create_fs(
        &spa,
        "tank/tiny",
        &[("recordsize", 512), ("compression", 2)],
    )
    .unwrap();
    let fs = mount(spa.parts().dsl(), "tank/tiny", false).unwrap();
    let bytes: Vec<u8> = (0..5000u32)
        .flat_map(|n| [n.to_le_bytes(); 128].concat())
        .collect();
    let new = |name: &[u8]| {
        fs.create_file(fs.root(), name, &Create::default())
            .unwrap()
            .id
    };
    let (one, two) = (new(b"f1"), new(b"f2"));
    fs.write(one, 0, &bytes).unwrap();
    let from = FileOffset {
        fs: &fs,
        id: one,
        offset: 0,
    };
    fs.clone_range(two, 0, from, bytes.len() as u64).unwrap();
    assert!(read(&fs, 2).unwrap() == bytes);
    spa.sync().unwrap();
    assert_eq!(spa.cloned(), (bytes.len() as u64, bytes.len() as u64));
    assert!(read(&fs, 2).unwrap() == bytes);
    let error = fs.clone_range(two, u64::MAX - 511, from, 512).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooBig);
    pool::assert_clean(&spa);
}

/// What would be written otherwise is not shared, unless it is of a snapshot.
#[test]
fn file_systems_that_write_otherwise_share_nothing() {
    const OFF: (&str, u64) = ("compression", 2);
    let small = |bytes| [OFF, ("special_small_blocks", bytes)];
    for (layout, count) in [(Layout::Stripe, 1), (Layout::Classes, 4)] {
        let disk = |n| Arc::new(PowerCut::new(format!("/disk{n}"), DISK_BYTES)) as _;
        let disks: Vec<Arc<dyn Provider>> = (0..count).map(disk).collect();
        let root = init(NewFilesystem::default(), true);
        let spa = pool::create("tank", layout, 12, &disks, root).unwrap();
        let new = |name: &str, props: &[(&str, u64)]| {
            let props = [&[("recordsize", RECORD_BYTES)], props].concat();
            pool::create_fs(&spa, &format!("tank/{name}"), &props).unwrap();
        };
        new("from", &[OFF]);
        pool::write_file(&spa, "tank/from", "f1", &Dice::new(1).bytes(5 * 4096));
        spa.sync().unwrap();
        let dsl = spa.parts().dsl();
        dsl.snapshot(&["tank/from@s"], Vec::new()).unwrap();
        let shares = |from: &str, to: &str| {
            let (from, to) = (
                mount(dsl, from, true).unwrap(),
                mount(dsl, to, false).unwrap(),
            );
            let place = FileOffset {
                fs: &from,
                id: from.resolve("f1").unwrap(),
                offset: 0,
            };
            let file = to
                .create_file(to.root(), b"f1", &Create::default())
                .unwrap();
            let cloned = to.clone_range(file.id, 0, place, 5 * 4096);
            if let Err(error) = &cloned {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            }
            cloned.is_ok()
        };
        let has_special = layout == Layout::Classes;
        for (name, props, expected) in [
            ("same", &[OFF][..], true),
            ("packed", &[("compression", 15)], false),
            ("copies", &[OFF, ("copies", 2)], false),
            ("summed", &[OFF, ("checksum", 8)], false),
            ("small", &small(4096), !has_special),
            ("tiny", &small(2048), true),
        ] {
            new(name, props);
            let to = format!("tank/{name}");
            assert_eq!(shares("tank/from", &to), expected, "{name} of {layout:?}");
        }
        new("later", &[("compression", 15)]);
        assert!(shares("tank/from@s", "tank/later"));
        pool::assert_clean(&spa);
        // It is there without its first owner.
        dsl.destroy_snapshots(&["tank/from@s"], false).unwrap();
        dsl.destroy_head("tank/from").unwrap();
        (0..3).for_each(|_| spa.force_sync().map(|_| ()).unwrap());
        let later = mount(dsl, "tank/later", true).unwrap();
        assert!(read(&later, 1).unwrap() == Dice::new(1).bytes(5 * 4096));
        pool::assert_clean(&spa);
    }
}

/// The block stays when its first owner goes in the very txg in which it was cloned.
#[test]
fn the_first_owner_goes_in_the_txg_of_the_clone() {
    let disk: Arc<dyn Provider> = Arc::new(PowerCut::new("/disk", DISK_BYTES));
    let spa = create(&[disk.clone(), Arc::new(PowerCut::new("/other", DISK_BYTES))]);
    let fs = mount(spa.parts().dsl(), DATASETS[0], false).unwrap();
    let bytes = Dice::new(1).bytes(5 * RECORD_BYTES as usize);
    let one = fs
        .create_file(fs.root(), b"f1", &Create::default())
        .unwrap()
        .id;
    fs.write(one, 0, &bytes).unwrap();
    spa.sync().unwrap();
    let before = spa.parts().dsl().groups().open_txg();
    let two = fs
        .create_file(fs.root(), b"f2", &Create::default())
        .unwrap()
        .id;
    let from = FileOffset {
        fs: &fs,
        id: one,
        offset: 0,
    };
    fs.clone_range(two, 0, from, bytes.len() as u64).unwrap();
    fs.unlink(fs.root(), b"f1").unwrap();
    assert_eq!(
        spa.parts().dsl().groups().open_txg(),
        before,
        "both are in one txg"
    );
    spa.sync().unwrap();
    assert_eq!(spa.parts().features().count(BLOCK_CLONING), Some(0));
    assert!(read(&fs, 2).unwrap() == bytes);
    pool::assert_clean(&spa);
}

#[test]
fn sim_power_cuts_while_files_are_cloned() {
    let seed = seed(22);
    rt::simulate(seed, move || {
        let supply = PowerSupply::new();
        let disk = |i| {
            Arc::new(PowerCut::fed_by(
                &supply,
                format!("/disk{i}"),
                DISK_BYTES,
                512,
            ))
        };
        let disks: Vec<Arc<PowerCut>> = (0..2).map(disk).collect();
        let providers: Vec<Arc<dyn Provider>> = disks.iter().map(|d| d.clone() as _).collect();
        let spa = create_for(Release::V2_4, &providers);
        disks.iter().for_each(|disk| disk.forget());
        let first = supply.commands();
        let (mut model, mut dice) = (Model::default(), Dice::new(seed));
        for _ in 0..120 {
            model.step(&spa, &mut dice);
        }
        let last = supply.commands();
        spa.close().unwrap();
        assert!(model.clones > 10, "{} clones", model.clones);
        for n in cuts::sample(first..=last, CUTS) {
            let image =
                |disk: &Arc<PowerCut>| Arc::new(disk.image_after(n, seed)) as Arc<dyn Provider>;
            let images: Vec<Arc<dyn Provider>> = disks.iter().map(image).collect();
            let spa = pool::open(&images, false).unwrap_or_else(|e| panic!("cut after {n}: {e}"));
            for ((set, file), versions) in &model.versions {
                let fs = mount(spa.parts().dsl(), DATASETS[*set], false).unwrap();
                let Some(found) = read(&fs, *file) else {
                    continue;
                };
                let is_one = found.is_empty() || versions.contains(&found);
                assert!(
                    is_one,
                    "SEED={seed}, cut after {n}: f{file} of {}",
                    DATASETS[*set]
                );
            }
            spa.sync().unwrap();
            let report = pool::verify(&spa).unwrap();
            assert!(
                report.is_clean(),
                "SEED={seed}, cut after {n}: {:#?}",
                report.findings
            );
        }
    });
}
