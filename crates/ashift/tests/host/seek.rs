//! `rescue --scan`: pools without any uberblock, and those whose MOS is lost in every state.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use phys::ObjectType;
use phys::label::{LABEL_SIZE, LABEL_START_SIZE, UBERBLOCK_RING_OFFSET};
use rt::splitmix64;
use vdev::label::Labels;

use crate::bench::Bench;

const SECTOR: u64 = 4096;
const IMAGE_MIB: u64 = 80;
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// A kind of pool: what `zpool create` is told, and how many images each top-level vdev has.
#[derive(Clone, Copy, Debug)]
struct Layout {
    words: &'static str,
    images: usize,
    /// How many images may be gone.
    spare: usize,
    /// Whether the sectors of a block are on different images.
    is_striped: bool,
}

const LAYOUTS: [Layout; 6] = [
    layout("{a}", 1, 0, false),
    layout("{a} {b}", 2, 0, false),
    layout("mirror {a} {b}", 2, 1, false),
    layout("raidz {a} {b} {c}", 3, 1, true),
    layout("raidz2 {a} {b} {c} {d}", 4, 2, true),
    layout("draid1:2d:0s:4c {a} {b} {c} {d}", 4, 1, true),
];

const fn layout(words: &'static str, images: usize, spare: usize, is_striped: bool) -> Layout {
    Layout {
        words,
        images,
        spare,
        is_striped,
    }
}

fn noise(seed: u64, len: u64) -> Vec<u8> {
    let mut state = seed;
    let word = |_| splitmix64(&mut state).to_le_bytes();
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(word).collect();
    bytes.truncate(usize::try_from(len).unwrap());
    bytes
}

/// A pool with two file systems, exported, and what is in their files.
struct Sample {
    bench: Bench,
    layout: Layout,
    files: BTreeMap<String, Vec<u8>>,
}

impl Sample {
    fn new(layout: Layout) -> Sample {
        Sample::with(layout, "-o ashift=12")
    }

    fn with(layout: Layout, options: &str) -> Sample {
        let bench = Bench::new(&[]);
        let images = &NAMES[..layout.images];
        images.iter().for_each(|name| bench.image(name, IMAGE_MIB));
        bench.ok(&format!("zpool create {options} tank {}", layout.words));
        let mut files = BTreeMap::new();
        for (set, seed) in [("x", 0), ("x/y", 1000)] {
            bench.ok(&format!("zfs create tank/{set}"));
            let folder = format!("tree{seed}");
            fs::create_dir_all(bench.path(&folder).join("sub")).unwrap();
            for n in 0..40 {
                let bytes = noise(seed + n, 100 + n * n * 200);
                let path = format!("sub/file-{n}");
                fs::write(bench.path(&folder).join(&path), &bytes).unwrap();
                files.insert(format!("{set}/{folder}/{path}"), bytes);
            }
            bench.ok(&format!("cp -a {{dir}}/{folder} tank/{set}:/"));
        }
        bench.ok("zpool export tank");
        let sample = Sample {
            bench,
            layout,
            files,
        };
        for name in images {
            sample.bench.set_aside(name);
        }
        sample
    }

    fn images(&self) -> &'static [&'static str] {
        &NAMES[..self.layout.images]
    }

    fn restore(&self) {
        for name in self.images() {
            let _ = fs::remove_file(self.bench.path(name));
            self.bench.restore(name);
        }
        let _ = fs::remove_dir_all(self.bench.path("out"));
    }

    /// Overwrites the uberblocks in all labels.
    fn lose_rings(&self) {
        for name in self.images() {
            for label in 0..4 {
                let at = self.bench.label_offset(name, label);
                let ring = at + UBERBLOCK_RING_OFFSET..at + LABEL_SIZE;
                self.bench.scribble(name, ring);
            }
        }
    }

    /// Overwrites the roots of the MOS that uberblocks lead to.
    fn lose_roots(&self) {
        let mut roots = BTreeSet::new();
        for name in self.images() {
            let provider = geom::disk::open(&self.bench.path(name), geom::disk::OpenMode::ReadOnly);
            let labels = Labels::read(&*provider.unwrap()).unwrap();
            for uberblock in labels.uberblocks() {
                let dvas = uberblock.rootbp.dvas();
                roots.extend(dvas.map(|dva| (dva.vdev().0, dva.offset(), dva.asize())));
            }
        }
        assert!(roots.len() > 10, "{roots:?}");
        for (vdev, offset, bytes) in roots {
            // The oldest are free space by now, and may have other blocks.
            let sectors = self.sectors(vdev, offset, bytes);
            let is_root = |(name, at): &(&str, u64)| {
                let mut begin = [0; 2];
                let file = fs::File::open(self.bench.path(name)).unwrap();
                file.read_exact_at(&mut begin, *at).unwrap();
                begin[0] == ObjectType::DNODE.raw() && (12..=17).contains(&begin[1])
            };
            if sectors.iter().any(is_root) {
                self.lose(vdev, offset, bytes);
            }
        }
    }

    fn lose(&self, vdev: u64, offset: u64, bytes: u64) {
        for (name, at) in self.sectors(vdev, offset, bytes) {
            self.bench.scribble(name, at..at + SECTOR);
        }
    }

    /// Overwrites the beginning of what a search has sighted of these kinds, each of which there are more than ten of.
    fn lose_sighted(&self, kinds: &[&str]) {
        let scan = fs::read_to_string(self.bench.path("out/rescue.scan")).unwrap();
        let mut lost: BTreeMap<&str, u32> = BTreeMap::new();
        for line in scan.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            let ["block", vdev, offset, kind, _, _] = fields[..] else {
                continue;
            };
            if kinds.contains(&kind) {
                let [vdev, offset] = [vdev, offset].map(|it| it.parse().unwrap());
                for (name, at) in self.sectors(vdev, offset, SECTOR) {
                    let begin = at + offset % SECTOR;
                    self.bench.scribble(name, begin..begin + 512);
                }
                *lost.entry(kind).or_default() += 1;
            }
        }
        let is_lost = |kind: &&str| lost.get(kind).is_some_and(|count| *count > 10);
        assert!(kinds.iter().all(is_lost), "{:?}: {lost:?}", self.layout);
        fs::remove_dir_all(self.bench.path("out")).unwrap();
    }

    /// Where the sectors of a block are: images, and offsets in them.
    fn sectors(&self, vdev: u64, offset: u64, bytes: u64) -> Vec<(&'static str, u64)> {
        let count = self.layout.images as u64;
        let mut all = Vec::new();
        for sector in offset / SECTOR..(offset + bytes) / SECTOR {
            let is_mirror = self.layout.spare > 0;
            let (images, row): (Vec<u64>, u64) = match self.layout.is_striped {
                true => (vec![sector % count], sector / count),
                false if is_mirror => ((0..count).collect(), sector),
                false => (vec![vdev], sector),
            };
            let name = |image: u64| NAMES[usize::try_from(image).unwrap()];
            let at = LABEL_START_SIZE + row * SECTOR;
            all.extend(images.into_iter().map(|image| (name(image), at)));
        }
        all
    }

    /// The blocks of the MOS but for its root, by `zdb`.
    fn blocks_of_mos(&self) -> BTreeSet<(u64, u64, u64)> {
        let out = self.bench.ok("zdb -e -p {dir} -dddddd tank 0:-1");
        let lines = out.lines().filter(|line| {
            let level = line.split_whitespace().nth(1);
            level.is_some_and(|word| word.starts_with('L'))
        });
        let words = lines.flat_map(|line| line.split_whitespace().skip(2));
        let place = |word: &str| {
            let mut parts = word.split(':');
            let mut hex = || u64::from_str_radix(parts.next()?, 16).ok();
            Some((hex()?, hex()?, hex()?))
        };
        words.filter_map(place).collect()
    }

    /// Compares copies with what was there, in folders named by `place`.
    fn assert_all(&self, place: impl Fn(&str) -> String) {
        for (path, bytes) in &self.files {
            let got = fs::read(self.bench.path(&place(path)));
            assert!(
                got.is_ok_and(|got| got == *bytes),
                "{:?}: {path}",
                self.layout
            );
        }
    }

    /// What was copied as file systems whose name is not known: those that have these files.
    fn assert_unknown(&self) {
        let folders: Vec<_> = fs::read_dir(self.bench.path("out")).unwrap().collect();
        let names = folders.into_iter().map(|it| it.unwrap().file_name());
        let names: Vec<String> = names.map(|it| it.into_string().unwrap()).collect();
        let unknown = names.iter().filter(|name| name.starts_with("unknown-"));
        assert_eq!(unknown.count(), 3, "x, x/y and the root: {names:?}");
        self.assert_all(|path| {
            let (_, rest) = path.split_once("/tree").unwrap();
            let is_it = |name: &&String| {
                let place = format!("out/{name}/tree{rest}");
                self.bench.path(&place).is_file()
            };
            let name = names.iter().find(is_it);
            format!("out/{}/tree{rest}", name.map_or("none", |name| name))
        });
    }

    fn read_images(&self) -> Vec<Vec<u8>> {
        let images = self.images().iter();
        images
            .filter_map(|name| fs::read(self.bench.path(name)).ok())
            .collect()
    }
}

fn layouts() -> impl Iterator<Item = Layout> {
    LAYOUTS.into_iter()
}

#[test]
fn a_pool_without_any_uberblock_is_found_on_its_disks() {
    for layout in layouts() {
        let sample = Sample::new(layout);
        let bench = &sample.bench;
        sample.restore();
        sample.lose_rings();
        let before = sample.read_images();
        let (code, out, error) = bench.run("rescue -d {dir} tank {dir}/out");
        assert_eq!(code, 1, "{layout:?}: {out}{error}");
        let expected = "tank: no uberblock is left on any label; --scan searches the disks for its metadata (reads ";
        assert!(error.contains(expected), "{layout:?}: {error}");
        assert!(!bench.path("out").exists());
        let (code, out, error) = bench.run("rescue --scan -d {dir} tank {dir}/out");
        assert_eq!(code, 0, "{layout:?}: {out}{error}");
        assert!(
            error.contains(", found on its disks"),
            "{layout:?}: {error}"
        );
        sample.assert_all(|path| format!("out/tank/{path}"));
        assert!(!is_any_unknown(&bench.path("out")), "{layout:?}");
        assert!(sample.read_images() == before, "nothing is changed");
        // With as many devices gone as there may be.
        for gone in 0..layout.images {
            if layout.spare == 0 {
                continue;
            }
            sample.restore();
            sample.lose_rings();
            for n in 0..layout.spare {
                let name = NAMES[(gone + n) % layout.images];
                fs::remove_file(bench.path(name)).unwrap();
            }
            let (code, out, error) = bench.run("rescue --scan -d {dir} tank {dir}/out");
            assert_eq!(code, 0, "{layout:?} without {gone}: {out}{error}");
            sample.assert_all(|path| format!("out/tank/{path}"));
        }
    }
}

fn is_any_unknown(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).unwrap();
    let mut names = entries.map(|it| it.unwrap().file_name());
    names.any(|name| name.to_string_lossy().starts_with("unknown"))
}

#[test]
fn file_systems_are_found_although_the_mos_is_lost_in_every_state() {
    for layout in layouts().filter(|layout| !layout.words.starts_with("draid")) {
        let sample = Sample::new(layout);
        let bench = &sample.bench;
        sample.restore();
        let blocks = sample.blocks_of_mos();
        sample.lose_roots();
        for with_blocks in [false, true] {
            if with_blocks {
                assert!(blocks.len() > 10, "{blocks:?}");
                for (vdev, offset, bytes) in &blocks {
                    sample.lose(*vdev, *offset, *bytes);
                }
            }
            let _ = fs::remove_dir_all(bench.path("out"));
            let (code, out, error) = bench.run("rescue -d {dir} tank {dir}/out");
            assert_eq!(code, 1, "{layout:?}: {out}{error}");
            assert!(error.contains("; --scan searches"), "{layout:?}: {error}");
            let (code, out, error) = bench.run("rescue --scan -d {dir} tank {dir}/out");
            assert_eq!(code, 1, "{layout:?}: {out}{error}");
            sample.assert_unknown();
            // The search is not repeated; nor is what was saved copied again.
            let journal = fs::read(bench.path("out/rescue.tsv")).unwrap();
            let scan = fs::read(bench.path("out/rescue.scan")).unwrap();
            let (_, again, _) = bench.run("rescue --scan -d {dir} tank {dir}/out");
            assert_eq!(again.lines().last(), out.lines().last(), "{layout:?}");
            assert!(fs::read(bench.path("out/rescue.tsv")).unwrap() == journal);
            assert!(fs::read(bench.path("out/rescue.scan")).unwrap() == scan);
        }
    }
}

/// Every root of every objset is lost. What is below them has the numbers of objects, and so the names of files.
#[test]
fn names_are_found_although_every_root_is_lost() {
    for layout in layouts().filter(|layout| !layout.is_striped) {
        let sample = Sample::new(layout);
        let bench = &sample.bench;
        sample.restore();
        sample.lose_rings();
        bench.ok("rescue --scan -d {dir} tank {dir}/out");
        sample.lose_sighted(&["objset"]);
        let (code, out, error) = bench.run("rescue --scan -d {dir} tank {dir}/out");
        assert_eq!(code, 1, "{layout:?}: {out}{error}");
        assert!(error.contains("0 states found"), "{error}");
        sample.assert_unknown();
    }
}

/// Every root and every indirect block of dnodes is lost: only those are left, and what is below them.
#[test]
fn files_are_found_although_every_root_of_their_file_system_is_lost() {
    for layout in layouts().filter(|layout| !layout.is_striped) {
        let sample = Sample::new(layout);
        let bench = &sample.bench;
        sample.restore();
        sample.lose_rings();
        bench.ok("rescue --scan -d {dir} tank {dir}/out");
        sample.lose_sighted(&["objset", "pointers"]);
        let (code, out, error) = bench.run("rescue --scan -d {dir} tank {dir}/out");
        assert_eq!(code, 0, "{layout:?}: {out}{error}");
        let text = fs::read_to_string(bench.path("out/rescue.tsv")).unwrap();
        let originals: BTreeSet<&[u8]> = sample.files.values().map(Vec::as_slice).collect();
        let mut found = BTreeSet::new();
        for line in text.lines() {
            let place = line.strip_prefix("whole\tunknown-files:/").unwrap();
            let bytes = fs::read(bench.path("out/unknown-files").join(place.trim_end())).unwrap();
            assert!(originals.contains(&*bytes), "{layout:?}: {line}");
            found.insert(bytes);
        }
        assert_eq!(found.len(), originals.len(), "{layout:?}");
        assert!(error.contains("0 states found"), "{error}");
    }
}

/// A pool without LZ4: its metadata is compressed with LZJB.
#[test]
fn what_is_compressed_with_lzjb_is_found() {
    for (layout, options) in [
        (LAYOUTS[0], "-d -o ashift=9"),
        (LAYOUTS[2], "-d -o ashift=12"),
        (LAYOUTS[3], "-d -o ashift=9"),
    ] {
        let sample = Sample::with(layout, options);
        let bench = &sample.bench;
        sample.restore();
        sample.lose_rings();
        let (code, out, error) = bench.run("rescue --scan -d {dir} tank {dir}/out");
        assert_eq!(code, 0, "{layout:?} {options}: {out}{error}");
        sample.assert_all(|path| format!("out/tank/{path}"));
        let scan = fs::read_to_string(bench.path("out/rescue.scan")).unwrap();
        // The root of an objset does not become smaller than a sector of 4 KiB.
        let has_small_sectors = options.contains("ashift=9");
        for kind in ["objset", "dnodes", "pointers"] {
            if kind == "objset" && !has_small_sectors {
                continue;
            }
            let is_it = |line: &str| line.contains(kind) && line.ends_with("\tlzjb");
            assert!(scan.lines().any(is_it), "{layout:?} {options}: {kind}");
        }
        // One image, without sectors that are spread: what is sighted is where it says.
        if has_small_sectors && !layout.is_striped {
            sample.lose_sighted(&["objset"]);
            let (code, out, error) = bench.run("rescue --scan -d {dir} tank {dir}/out");
            assert_eq!(code, 1, "{layout:?} {options}: {out}{error}");
            sample.assert_unknown();
        }
    }
}

/// Pools as OpenZFS left them, in all of whose labels the uberblocks are overwritten: the same is saved as before.
#[test]
fn pools_of_openzfs_are_found_as_they_were() {
    let images = [
        ("v1", "old", 1),
        ("v8", "old", 1),
        ("v14", "old", 1),
        ("v20", "old", 1),
        ("v28", "old", 1),
        ("default", "tank", 1),
        ("features", "tank", 1),
        ("clones", "tank", 1),
        ("removed-twice", "tank", 1),
        ("checkpoint", "tank", 1),
        ("fast-dedup", "tank", 1),
        ("encrypted", "tank", 1),
        ("big-endian", "be", 1),
        ("big-endian-v28", "be28", 1),
        ("raidz1-expanding", "e3", 4),
        ("raidz2-expanded-twice", "e2", 6),
        ("draid1-2d-5c-1s", "d3", 5),
    ];
    for (name, pool, count) in images {
        let bench = Bench::new(&[]);
        fs::create_dir(bench.path("disks")).unwrap();
        let bytes = torture::golden::bytes(&format!("openzfs-2.3.2-{name}"));
        let disks = bytes.chunks(bytes.len() / count).enumerate();
        for (n, disk) in disks.clone() {
            fs::write(bench.path(&format!("disks/{n}")), disk).unwrap();
        }
        let command = format!("-s -d {{dir}}/disks {pool} {{dir}}");
        let (before, ..) = bench.run(&format!("rescue {command}/before"));
        for (n, _) in disks {
            for label in 0..4 {
                let name = format!("disks/{n}");
                let at = bench.label_offset(&name, label);
                bench.scribble(&name, at + UBERBLOCK_RING_OFFSET..at + LABEL_SIZE);
            }
        }
        let (after, out, error) = bench.run(&format!("rescue --scan {command}/after"));
        assert_eq!(after, before, "{name}: {out}{error}");
        let journal = |folder: &str| fs::read_to_string(bench.path(folder).join("rescue.tsv"));
        let [before, after] = ["before", "after"].map(|folder| journal(folder).unwrap());
        assert!(before.contains("whole\t"), "{name}: {before}");
        assert_eq!(after, before, "{name}");
        assert!(error.contains(", found on its disks"), "{name}: {error}");
    }
}

/// The contents of all files below a folder that are not empty, but for what `rescue` notes of itself.
fn contents(folder: &Path) -> BTreeSet<Vec<u8>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        let name = path.file_name().unwrap().to_string_lossy();
        if kind.is_dir() {
            found.extend(contents(&path));
        } else if kind.is_file() && !name.starts_with("rescue.") {
            found.insert(fs::read(&path).unwrap());
        }
    }
    found.remove(&Vec::new());
    found
}

/// What a big-endian host wrote is found by the indirect blocks above its dnodes, and by these alone.
#[test]
fn files_of_a_big_endian_host_are_found_although_every_root_is_lost() {
    for (name, pool) in [("big-endian", "be"), ("big-endian-v28", "be28")] {
        let bench = Bench::new(&[]);
        fs::create_dir(bench.path("disks")).unwrap();
        let bytes = torture::golden::bytes(&format!("openzfs-2.3.2-{name}"));
        fs::write(bench.path("disks/0"), bytes).unwrap();
        for label in 0..4 {
            let at = bench.label_offset("disks/0", label);
            bench.scribble("disks/0", at + UBERBLOCK_RING_OFFSET..at + LABEL_SIZE);
        }
        let rescue = |folder: &str| {
            bench.run(&format!(
                "rescue --scan -s -d {{dir}}/disks {pool} {{dir}}/{folder}"
            ))
        };
        rescue("whole");
        let wanted = contents(&bench.path("whole"));
        assert!(wanted.len() > 20, "{name}: {}", wanted.len());
        let scan = fs::read_to_string(bench.path("whole/rescue.scan")).unwrap();
        for kind in ["objset", "pointers"] {
            let mut lost = 0;
            for line in scan.lines() {
                let fields: Vec<&str> = line.split('\t').collect();
                if let ["block", "0", offset, is, ..] = fields[..]
                    && is == kind
                {
                    let at = LABEL_START_SIZE + offset.parse::<u64>().unwrap();
                    bench.scribble("disks/0", at..at + 512);
                    lost += 1;
                }
            }
            assert!(lost > 3, "{name}: {lost} of {kind}");
            let folder = format!("without-{kind}");
            let (_, out, error) = rescue(&folder);
            assert!(error.contains("0 states found"), "{name} {kind}: {error}");
            let found = contents(&bench.path(&folder));
            let missing = wanted.difference(&found).count();
            assert_eq!(missing, 0, "{name} {kind}: {out}{error}");
        }
    }
}
