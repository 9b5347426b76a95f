//! A table of damage, from seeds: blocks of every kind are lost, on disks, mirrors and RAID-Z, and `ashift rescue` says
//! what is left. What redundancy covers comes back whole; nothing wrong is called whole; and every file that is not
//! below what was lost is found. Each case is tried once more without any uberblock, by `--scan`. `DAMAGE=10000` for so
//! many cases.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use phys::label::{LABEL_SIZE, LABEL_START_SIZE, UBERBLOCK_RING_OFFSET};
use rt::splitmix64;

use crate::bench::Bench;

const CASES: u64 = 12;
const IMAGE_MIB: u64 = 80;
const SECTOR: u64 = 4096;
const DNODES_PER_BLOCK: u64 = 32;

/// Kinds of pools: how many images, and how `zpool create` names what is made of them.
const LAYOUTS: [(usize, &str); 3] = [(1, ""), (2, "mirror "), (3, "raidz ")];

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        splitmix64(&mut self.0) % bound.max(1)
    }

    fn bytes(&mut self, length: u64) -> Vec<u8> {
        let word = |_| splitmix64(&mut self.0).to_le_bytes();
        let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(word).collect();
        bytes.truncate(usize::try_from(length).unwrap());
        bytes
    }
}

/// A block as `zdb` lists it.
#[derive(Clone, Debug)]
struct Block {
    /// Of the file system; `None` for the MOS.
    object: Option<i64>,
    kind: String,
    level: u64,
    /// Where it begins in its object, in bytes; of dnodes, the first of them counts.
    offset: u64,
    /// The offset and the allocated bytes of each copy.
    copies: Vec<(u64, u64)>,
}

/// A pool, what is in it, and all its blocks.
struct Sample {
    bench: Bench,
    images: usize,
    /// The images as they were.
    whole: Vec<Vec<u8>>,
    /// What was overwritten of them since.
    damage: RefCell<Vec<(usize, Range<u64>)>>,
    files: BTreeMap<String, Vec<u8>>,
    /// Where the objects are that have a path.
    paths: BTreeMap<i64, String>,
    blocks: Vec<Block>,
}

fn name(image: usize) -> &'static str {
    ["a", "b", "c"][image]
}

impl Sample {
    fn new((images, word): (usize, &str), dice: &mut Dice) -> Sample {
        let bench = Bench::new(&[]);
        (0..images).for_each(|image| bench.image(name(image), IMAGE_MIB));
        let devices: Vec<String> = (0..images).map(|i| format!("{{{}}}", name(i))).collect();
        let devices = devices.join(" ");
        bench.ok(&format!(
            "zpool create -o ashift=12 -O compression=off tank {word}{devices}"
        ));
        bench.ok("zfs create -o recordsize=16K tank/x");
        let mut files = BTreeMap::new();
        for folder in ["one", "two", "two/deep", "many"] {
            fs::create_dir_all(bench.path("tree").join(folder)).unwrap();
            let count = if folder == "many" { 60 } else { 8 };
            for n in 0..count {
                let path = format!("{folder}/file-{n}");
                let length = match dice.below(4) {
                    0 => dice.below(100),
                    1 => dice.below(16 << 10),
                    2 => dice.below(100_000),
                    // Long enough for blocks of pointers.
                    _ => dice.below(3 << 20) / if folder == "many" { 20 } else { 1 },
                };
                // Each has contents of its own.
                let bytes = dice.bytes(length + 8);
                fs::write(bench.path("tree").join(&path), &bytes).unwrap();
                files.insert(path, bytes);
            }
        }
        bench.ok("cp -a {dir}/tree tank/x:/");
        bench.ok("zpool export tank");
        let mut sample = Sample {
            bench,
            images,
            whole: Vec::new(),
            damage: RefCell::default(),
            files,
            paths: BTreeMap::new(),
            blocks: Vec::new(),
        };
        sample.list("tank/x", true);
        sample.list("tank", false);
        sample.whole = sample.read_images();
        sample
    }

    fn read_images(&self) -> Vec<Vec<u8>> {
        let paths = (0..self.images).map(|image| self.bench.path(name(image)));
        paths.map(|path| fs::read(path).unwrap()).collect()
    }

    fn scribble(&self, image: usize, range: Range<u64>) {
        self.bench.scribble(name(image), range.clone());
        self.damage.borrow_mut().push((image, range));
    }

    /// Undoes all damage.
    fn restore(&self) {
        for (image, range) in self.damage.take() {
            let bytes = &self.whole[image][range.start as usize..range.end as usize];
            self.bench.scribble_with(name(image), range.start, bytes);
        }
    }

    /// Reads what `zdb` says of the blocks of a file system, or of the MOS.
    fn list(&mut self, of: &str, is_files: bool) {
        let out = match is_files {
            true => self.bench.ok(&format!("zdb -e -p {{dir}} -dddddd {of}")),
            false => self
                .bench
                .ok(&format!("zdb -e -p {{dir}} -dddddd {of} 0:-1")),
        };
        let mut lines = out.lines();
        let (mut object, mut kind) = (0, String::new());
        while let Some(line) = lines.next() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.first() == Some(&"Object") {
                let line = lines.next().unwrap_or_default();
                let words: Vec<&str> = line.split_whitespace().collect();
                object = words[0].parse().unwrap();
                kind = words[8..].join(" ");
            } else if let ["path", path] = words[..]
                && is_files
            {
                self.paths.insert(object, path.to_owned());
            } else if let [offset, level, ..] = words[..]
                && let Some(level) = level.strip_prefix('L')
                && let (Ok(offset), Ok(level)) = (u64::from_str_radix(offset, 16), level.parse())
            {
                let copies = words[2..].iter().map_while(|word| copy(word)).collect();
                self.blocks.push(Block {
                    object: is_files.then_some(object),
                    kind: kind.clone(),
                    level,
                    offset,
                    copies,
                });
            }
        }
        self.blocks.retain(|block| !block.copies.is_empty());
    }

    /// Overwrites the sectors of a copy on devices for which `on` says so.
    fn lose(&self, (offset, bytes): (u64, u64), on: impl Fn(usize) -> bool) {
        for sector in offset / SECTOR..(offset + bytes) / SECTOR {
            let images = self.images as u64;
            let (devices, row) = match self.images {
                3 => (vec![(sector % images) as usize], sector / images),
                count => ((0..count).collect(), sector),
            };
            let at = LABEL_START_SIZE + row * SECTOR;
            for device in devices.into_iter().filter(|device| on(*device)) {
                self.scribble(device, at..at + SECTOR);
            }
        }
    }

    /// Overwrites all uberblocks.
    fn lose_rings(&self) {
        for image in 0..self.images {
            for label in 0..4 {
                let at = self.bench.label_offset(name(image), label);
                self.scribble(image, at + UBERBLOCK_RING_OFFSET..at + LABEL_SIZE);
            }
        }
    }

    /// What is lost with a block: its objects; `None` if it may be everything.
    fn below(&self, block: &Block) -> Option<BTreeSet<i64>> {
        let object = block.object?;
        if object == 0 {
            // Without the first block of dnodes there is no root, and not what says what attributes mean.
            let first = i64::try_from(block.offset / 512).unwrap();
            let is_some = block.level == 0 && first >= DNODES_PER_BLOCK as i64;
            return is_some.then(|| (first..first + DNODES_PER_BLOCK as i64).collect());
        }
        let is_tree = matches!(&*block.kind, kind if kind.starts_with("ZFS plain file") || kind.starts_with("ZFS directory"));
        is_tree.then(|| [object].into())
    }
}

/// `0:4000:2000`
fn copy(word: &str) -> Option<(u64, u64)> {
    let mut parts = word.strip_prefix("0:")?.split(':');
    let mut hex = || u64::from_str_radix(parts.next()?, 16).ok();
    Some((hex()?, hex()?))
}

/// What the journal says of each path.
fn journal(bench: &Bench) -> BTreeMap<String, (String, String)> {
    let text = fs::read_to_string(bench.path("out/rescue.tsv")).unwrap_or_default();
    let fields = |line: &str| {
        let mut fields = line.split('\t').map(str::to_owned);
        let (word, path) = (fields.next()?, fields.next()?);
        Some((path, (word, fields.next()?)))
    };
    text.lines().filter_map(fields).collect()
}

fn case(sample: &Sample, dice: &mut Dice, has_rings: bool) -> String {
    let bench = &sample.bench;
    sample.restore();
    let is_covered = dice.below(3) == 0;
    let mut what = Vec::new();
    let mut lost: Option<BTreeSet<i64>> = Some(BTreeSet::new());
    for _ in 0..=dice.below(3) {
        let among: Vec<&Block> = match dice.below(5) {
            // Blocks of data are most of all, but not most of what matters.
            0 => sample.blocks.iter().collect(),
            1 => of_kind(sample, "ZFS plain file"),
            2 => of_kind(sample, "ZFS directory"),
            3 => of_kind(sample, "DMU dnode"),
            _ => sample
                .blocks
                .iter()
                .filter(|block| block.object.is_none())
                .collect(),
        };
        let block = among[dice.below(among.len() as u64) as usize];
        if is_covered {
            let device = match sample.images {
                1 if block.copies.len() == 1 => continue,
                1 => 0,
                images => what
                    .first()
                    .map_or_else(|| dice.below(images as u64), |(_, device)| *device),
            };
            let only = |on: usize| on == usize::try_from(device).unwrap();
            let some = &block.copies[usize::from(sample.images == 1)..];
            some.iter().for_each(|copy| sample.lose(*copy, only));
            what.push((block, device));
        } else {
            block
                .copies
                .iter()
                .for_each(|copy| sample.lose(*copy, |_| true));
            lost = lost.zip(sample.below(block)).map(|(a, b)| &a | &b);
            what.push((block, 0));
        }
    }
    let _ = fs::remove_dir_all(bench.path("out"));
    let scan = if has_rings {
        ""
    } else {
        sample.lose_rings();
        "--scan "
    };
    let (code, out, error) = bench.run(&format!("rescue {scan}-d {{dir}} tank {{dir}}/out"));
    let what = format!("{scan}covered: {is_covered}, {what:?}\n{out}{error}");
    assert!(matches!(code, 0 | 1), "{code} {what}");
    if is_covered {
        assert_eq!(code, 0, "{what}");
    }
    check(sample, lost.as_ref(), &what);
    what
}

/// Found by these cases: the names in a directory are lost, and those in one of its directories.
fn nested(sample: &Sample) {
    sample.restore();
    let is_one = |path: &str| matches!(path, "/tree/two" | "/tree/two/deep");
    let objects = sample.paths.iter().filter(|(_, path)| is_one(path));
    let lost: BTreeSet<i64> = objects.map(|(object, _)| *object).collect();
    assert_eq!(lost.len(), 2);
    let is_lost = |block: &&Block| block.object.is_some_and(|object| lost.contains(&object));
    for block in sample.blocks.iter().filter(is_lost) {
        block
            .copies
            .iter()
            .for_each(|copy| sample.lose(*copy, |_| true));
    }
    let _ = fs::remove_dir_all(sample.bench.path("out"));
    let (code, out, error) = sample.bench.run("rescue -d {dir} tank {dir}/out");
    assert_eq!(code, 1, "{out}{error}");
    check(sample, Some(&lost), &out);
}

fn of_kind<'a>(sample: &'a Sample, kind: &str) -> Vec<&'a Block> {
    let blocks = sample.blocks.iter();
    blocks
        .filter(|block| block.object.is_some() && block.kind.starts_with(kind))
        .collect()
}

/// Compares what was saved with what was there.
fn check(sample: &Sample, lost: Option<&BTreeSet<i64>>, what: &str) {
    let (journal, root) = (journal(&sample.bench), sample.bench.path("out"));
    let mut whole: BTreeSet<Vec<u8>> = BTreeSet::new();
    let originals: BTreeSet<&[u8]> = sample.files.values().map(Vec::as_slice).collect();
    for (path, (word, _)) in &journal {
        let place = root.join(path.replacen(":/", "/", 1));
        if word == "whole" && place.is_file() {
            let bytes = fs::read(&place).unwrap();
            assert!(
                originals.contains(&*bytes),
                "{path} is called whole: {what}"
            );
            whole.insert(bytes);
        }
    }
    for (path, bytes) in &sample.files {
        let entry = journal.get(&format!("tank/x:/tree/{path}"));
        if let Some((word, ranges)) = entry
            && word == "partly"
        {
            assert_partly(&root.join("tank/x/tree").join(path), bytes, ranges, what);
        }
    }
    let Some(lost) = lost else {
        return;
    };
    for (object, path) in &sample.paths {
        let Some(bytes) = path
            .strip_prefix("/tree/")
            .and_then(|path| sample.files.get(path))
        else {
            continue;
        };
        assert!(
            lost.contains(object) || whole.contains(bytes),
            "{path} is not found: {what}"
        );
    }
}

fn assert_partly(copy: &Path, bytes: &[u8], ranges: &str, what: &str) {
    let mut expected = bytes.to_vec();
    for range in ranges.split(',') {
        let (first, last) = range
            .split_once('-')
            .unwrap_or_else(|| panic!("{ranges}: {what}"));
        let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
        expected[first..=last].fill(0);
    }
    assert!(
        fs::read(copy).unwrap() == expected,
        "{copy:?} {ranges}: {what}"
    );
}

#[test]
fn what_is_left_of_damaged_pools_is_found_and_nothing_wrong_is_called_whole() {
    let cases = std::env::var("DAMAGE")
        .ok()
        .and_then(|text| text.parse().ok());
    let first = std::env::var("SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let (cases, first): (u64, u64) = (cases.unwrap_or(CASES), first.unwrap_or(1));
    std::thread::scope(|scope| {
        for at in 0..LAYOUTS.len() {
            let cases = cases.div_ceil(LAYOUTS.len() as u64);
            scope.spawn(move || damage_often(at, first, cases));
        }
    });
}

/// Cases of one kind of pool.
fn damage_often(at: usize, first: u64, cases: u64) {
    let (layout, own) = (LAYOUTS[at], first.wrapping_add(at as u64));
    let sample = Sample::new(layout, &mut Dice(own));
    assert!(sample.blocks.len() > 200, "{}", sample.blocks.len());
    assert_eq!(sample.paths.len(), sample.files.len() + 6);
    nested(&sample);
    for n in 1..=cases {
        let seed = own.wrapping_add(1000 * n);
        for has_rings in [true, false] {
            eprintln!("SEED={first}, case {n} of {layout:?}, uberblocks: {has_rings}");
            case(&sample, &mut Dice(seed), has_rings);
        }
    }
    sample.restore();
    assert!(sample.read_images() == sample.whole, "{layout:?}");
}
