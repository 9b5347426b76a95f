//! The power fails while files are written and fsync'd: everything fsync'd is there, replayed from the intent
//! log if necessary.

use std::collections::BTreeMap;
use std::sync::Arc;

use faulty::{PowerCut, PowerSupply};
use geom::Provider;
use phys::PropValue;
use spa::Spa;
use torture::cuts;
use torture::pool::{self, Layout};
use torture::{Dice, seed};
use zpl::mount::{Mount, init, mount};
use zpl::{Create, NewFilesystem, SetAttr, SetXattr};

const DISK_BYTES: u64 = 128 << 20;
const FILES: u64 = 6;
const CUTS: u64 = 50;

/// The contents that each file had, each with the step that wrote it.
type Versions = BTreeMap<u64, Vec<(usize, Vec<u8>)>>;

struct Recording {
    disks: Vec<Arc<PowerCut>>,
    versions: Versions,
    /// For each fsync: the commands that the disk had acknowledged after it, the file, and the step.
    fsyncs: Vec<(u64, u64, usize)>,
    first: u64,
    last: u64,
}

fn step(fs: &Mount, versions: &mut Versions, dice: &mut Dice, at: usize) -> u64 {
    let file = dice.below(FILES);
    let name = format!("f{file}");
    let mut content = match versions.get(&file) {
        Some(known) => known.last().unwrap().1.clone(),
        None => {
            fs.create_file(fs.root(), name.as_bytes(), &Create::default())
                .unwrap();
            Vec::new()
        }
    };
    let id = fs.resolve(&name).unwrap();
    if dice.once_in(6) {
        let size = dice.below(150_000);
        fs.truncate(id, size).unwrap();
        content.resize(size as usize, 0);
    } else {
        let shift = dice.below(15);
        let length = 1 + dice.below(1 << shift) as usize;
        let bytes = dice.bytes(length);
        let offset = dice.below(100_000) as usize;
        fs.write(id, offset as u64, &bytes).unwrap();
        content.resize(content.len().max(offset + length), 0);
        content[offset..offset + length].copy_from_slice(&bytes);
    }
    versions.entry(file).or_default().push((at, content));
    file
}

fn record(seed: u64, (layout, count): (Layout, usize)) -> Recording {
    let supply = PowerSupply::new();
    let disk = |i| PowerCut::fed_by(&supply, format!("/disk{i}"), DISK_BYTES, 512);
    let disks: Vec<Arc<PowerCut>> = (0..count).map(|i| Arc::new(disk(i))).collect();
    let providers: Vec<Arc<dyn Provider>> = disks.iter().map(|d| d.clone() as _).collect();
    let mut dice = Dice::new(seed);
    let root = init(NewFilesystem::default(), true);
    let spa = pool::create("tank", layout, 9, &providers, root).unwrap();
    disks.iter().for_each(|disk| disk.forget());
    let first = supply.commands();
    let (mut versions, mut fsyncs) = (Versions::new(), Vec::new());
    let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
    for at in 0..150 {
        let file = step(&fs, &mut versions, &mut dice, at);
        if dice.once_in(3) {
            fs.fsync(fs.resolve(format!("f{file}")).unwrap()).unwrap();
            fsyncs.push((supply.commands(), file, at));
        }
        if dice.once_in(40) {
            spa.sync().unwrap();
        }
    }
    let last = supply.commands();
    drop(fs);
    spa.close().unwrap();
    Recording {
        disks,
        versions,
        fsyncs,
        first,
        last,
    }
}

impl Recording {
    fn cut(&self, n: u64, seed: u64) -> Result<(), String> {
        let image = |disk: &Arc<PowerCut>| Arc::new(disk.image_after(n, seed)) as Arc<dyn Provider>;
        let images: Vec<Arc<dyn Provider>> = self.disks.iter().map(image).collect();
        let spa = pool::open(&images, false).map_err(|e| format!("import: {e}"))?;
        let fs = mount(spa.parts().dsl(), "tank", false).map_err(|e| format!("mount: {e}"))?;
        for (file, versions) in &self.versions {
            let known = self
                .fsyncs
                .iter()
                .rev()
                .find(|(at, f, _)| *at <= n && f == file);
            let Some((_, _, since)) = known else { continue };
            let id = fs
                .resolve(format!("f{file}"))
                .map_err(|e| format!("f{file}: {e}"))?;
            let mut found = vec![0; fs.getattr(id).unwrap().size as usize];
            fs.read(id, 0, &mut found)
                .map_err(|e| format!("f{file}: {e}"))?;
            let since_then: Vec<&Vec<u8>> = versions
                .iter()
                .filter(|(at, _)| at >= since)
                .map(|(_, c)| c)
                .collect();
            check_content(&found, &since_then)
                .map_err(|e| format!("f{file} was fsync'd at step {since}: {e}"))?;
        }
        drop(fs);
        spa.sync().map_err(|e| format!("sync: {e}"))?;
        let report = pool::verify(&spa).map_err(|e| format!("check: {e}"))?;
        if !report.is_clean() {
            return Err(format!("findings: {:#?}", report.findings));
        }
        Ok(())
    }
}

/// Checks that a file holds what it held at some step since its last fsync. A later fsync that the cut
/// interrupted may have been replayed in part, with the data that the file had by then: so each byte must be
/// that of some step since then, and the length between the shortest and the longest since then.
fn check_content(found: &[u8], since_then: &[&Vec<u8>]) -> Result<(), String> {
    let lengths = since_then.iter().map(|content| content.len());
    let (shortest, longest) = (lengths.clone().min().unwrap(), lengths.max().unwrap());
    if found.len() < shortest || found.len() > longest {
        return Err(format!(
            "{} bytes, not {shortest} to {longest}",
            found.len()
        ));
    }
    let byte = |content: &Vec<u8>, at: usize| content.get(at).copied().unwrap_or(0);
    let wrong = (0..found.len()).find(|at| {
        !since_then
            .iter()
            .any(|content| byte(content, *at) == found[*at])
    });
    match wrong {
        Some(at) => Err(format!("byte {at} is of no step since then")),
        None => Ok(()),
    }
}

#[test]
fn sim_what_was_fsynced_survives_a_power_cut() {
    cut_everywhere(seed(5), (Layout::Stripe, 1));
}

/// Only disks that hold blocks of the log are flushed.
#[test]
fn sim_what_was_fsynced_survives_a_power_cut_of_a_stripe() {
    cut_everywhere(seed(6), (Layout::Stripe, 3));
}

#[test]
fn sim_what_was_fsynced_survives_a_power_cut_with_a_log_device() {
    cut_everywhere(seed(7), (Layout::Classes, 4));
}

#[test]
fn sim_an_fsync_flushes_the_disk_with_the_log_and_no_other() {
    rt::simulate(7, || {
        let supply = PowerSupply::new();
        let disk = |i| PowerCut::fed_by(&supply, format!("/disk{i}"), DISK_BYTES, 512);
        let disks: Vec<Arc<dyn Provider>> = (0..3).map(|i| Arc::new(disk(i)) as _).collect();
        let root = init(NewFilesystem::default(), true);
        let spa = pool::create("tank", Layout::Stripe, 9, &disks, root).unwrap();
        let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
        let file = fs.create_file(fs.root(), b"f", &Create::default()).unwrap();
        // The first fsync needs a txg, to start the log chain.
        fs.fsync(file.id).unwrap();
        let before = supply.commands();
        for n in 0..20u64 {
            fs.write(file.id, n * 100, b"a few bytes").unwrap();
            fs.fsync(file.id).unwrap();
        }
        // A write of a log block and a flush for each fsync.
        assert_eq!(supply.commands() - before, 40);
        drop(fs);
        spa.close().unwrap();
    });
}

fn cut_everywhere(seed: u64, pool: (Layout, usize)) {
    rt::simulate(seed, move || {
        let recording = record(seed, pool);
        assert!(
            recording.fsyncs.len() > 20,
            "only {} fsyncs",
            recording.fsyncs.len()
        );
        for n in cuts::sample(recording.first..=recording.last, CUTS) {
            let outcome = recording.cut(n, seed ^ n);
            outcome.unwrap_or_else(|e| panic!("SEED={seed}, cut after command {n}: {e}"));
        }
    });
}

fn pool_on_one_disk() -> (Arc<PowerCut>, Spa) {
    let disk = Arc::new(PowerCut::new("/disk0", DISK_BYTES));
    let root = init(NewFilesystem::default(), true);
    let providers: [Arc<dyn Provider>; 1] = [disk.clone()];
    let spa = pool::create("tank", Layout::Stripe, 9, &providers, root).unwrap();
    (disk, spa)
}

fn keep_xattrs_in_directories(spa: &Spa) {
    const XATTR_DIR: u64 = 1;
    let number = PropValue::Number(XATTR_DIR);
    spa.parts().dsl().set_prop("tank", "xattr", number).unwrap();
}

/// An attribute moves from the hidden directory to the list and back, for its values are long or short, while
/// this or another file is fsync'd: it has a value always.
#[test]
fn sim_an_attribute_that_moves_keeps_a_value() {
    rt::simulate(10, || {
        let (disk, spa) = pool_on_one_disk();
        let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
        let create = |name: &[u8]| {
            let made = fs.create_file(fs.root(), name, &Create::default());
            made.unwrap().id
        };
        let (file, other) = (create(b"f"), create(b"other"));
        let name = b"user.name";
        let value = |at: u8| vec![at; if at.is_multiple_of(2) { 40_000 } else { 40 }];
        let set = |at| fs.setxattr(file, name, &value(at), SetXattr::Set).unwrap();
        for moves in 1..6 {
            set(0);
            // The first one of a file system waits for the txg, in which its log begins.
            fs.fsync(other).unwrap();
            spa.sync().unwrap();
            (1..=moves).for_each(set);
            for synced in [other, file] {
                fs.fsync(synced).unwrap();
                let commands = disk.supply().commands();
                let image: Arc<dyn Provider> = Arc::new(disk.image_after(commands, commands));
                let found = pool::open(&[image], false).unwrap();
                let there = mount(found.parts().dsl(), "tank", false).unwrap();
                let kept = there.getxattr(file, name).unwrap();
                let first = if synced == file { moves } else { 0 };
                let is_permitted = |kept| (first..=moves).any(|at| value(at) == kept);
                assert!(kept.is_some_and(is_permitted), "after {moves} moves");
                drop(there);
                found.close().unwrap();
            }
        }
        drop(fs);
        spa.close().unwrap();
    });
}

/// A directory's setgid bit is changed, which no fsync of another file logs, and a directory is made in it: the
/// replay gives it the mode and group that it had, not those that the parent as it is then would pass on.
#[test]
fn sim_a_replayed_directory_has_the_mode_it_had() {
    const GROUP: u64 = 7;
    rt::simulate(11, || {
        let (disk, spa) = pool_on_one_disk();
        let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
        let create = |mode, gid| Create {
            mode,
            gid,
            ..Create::default()
        };
        let root = fs.root();
        let parent = fs.mkdir(root, b"parent", &create(0o755, GROUP)).unwrap().id;
        let other = fs
            .create_file(root, b"other", &Create::default())
            .unwrap()
            .id;
        for (n, before, now) in [(0, 0o2755, 0o755), (1, 0o755, 0o2755)] {
            let chmod = |mode| {
                let mode = Some(mode);
                let set = SetAttr {
                    mode,
                    ..SetAttr::default()
                };
                fs.setattr(parent, &set).unwrap();
            };
            chmod(before);
            // The first one of a file system waits for the txg, in which its log begins.
            fs.fsync(other).unwrap();
            spa.sync().unwrap();
            chmod(now);
            let name = format!("child{n}");
            let made = fs
                .mkdir(parent, name.as_bytes(), &create(0o700, 0))
                .unwrap();
            fs.fsync(other).unwrap();
            let commands = disk.supply().commands();
            let image: Arc<dyn Provider> = Arc::new(disk.image_after(commands, commands));
            let found = pool::open(&[image], false).unwrap();
            let there = mount(found.parts().dsl(), "tank", false).unwrap();
            let child = there.lookup(parent, name.as_bytes()).unwrap();
            assert_eq!((child.mode, child.gid), (made.mode, made.gid), "{name}");
            drop(there);
            found.close().unwrap();
        }
        drop(fs);
        spa.close().unwrap();
    });
}

/// An attribute moves from the list in the file's system attributes to the hidden directory, and the power
/// fails between the log records of the move: then it is in both, but must be listed once.
#[test]
fn sim_an_attribute_that_moves_is_listed_once_after_a_replay() {
    rt::simulate(8, || {
        let (disk, spa) = pool_on_one_disk();
        let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
        let file = fs.create_file(fs.root(), b"f", &Create::default()).unwrap();
        let set = |value: &[u8]| {
            let set = fs.setxattr(file.id, b"user.name", value, SetXattr::Set);
            set.unwrap();
        };
        set(b"in the list");
        keep_xattrs_in_directories(&spa);
        let first = disk.supply().commands();
        set(&Dice::new(1).bytes(60_000));
        fs.fsync(file.id).unwrap();
        for n in first..=disk.supply().commands() {
            let image: Arc<dyn Provider> = Arc::new(disk.image_after(n, n));
            let found = pool::open(&[image], false).unwrap();
            let there = mount(found.parts().dsl(), "tank", false).unwrap();
            assert_eq!(there.listxattr(file.id).unwrap(), [b"user.name"], "{n}");
            there.removexattr(file.id, b"user.name").unwrap();
            assert!(there.listxattr(file.id).unwrap().is_empty());
            drop(there);
            found.sync().unwrap();
            pool::assert_clean(&found);
        }
        drop(fs);
        spa.close().unwrap();
    });
}

/// A file that is open without a name gets an attribute, which is lost with it: the replay of what was synced
/// later does not miss it.
#[test]
fn sim_attributes_of_a_file_without_a_name_are_not_replayed() {
    rt::simulate(9, || {
        let (disk, spa) = pool_on_one_disk();
        keep_xattrs_in_directories(&spa);
        let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
        let create = |name: &[u8]| {
            fs.create_file(fs.root(), name, &Create::default())
                .unwrap()
                .id
        };
        let set = |file, name: &[u8]| fs.setxattr(file, name, b"value", SetXattr::Set).unwrap();
        let (with_directory, without) = (create(b"a"), create(b"b"));
        set(with_directory, b"user.first");
        // The first one of a file system waits for the txg, in which its log begins.
        fs.fsync(with_directory).unwrap();
        spa.sync().unwrap();
        for (file, name) in [(with_directory, b"a"), (without, b"b")] {
            fs.hold(file).unwrap();
            fs.unlink(fs.root(), name).unwrap();
            set(file, b"user.second");
            set(file, b"user.second");
        }
        fs.removexattr(with_directory, b"user.first").unwrap();
        let last = create(b"last");
        fs.fsync(last).unwrap();
        let commands = disk.supply().commands();
        let image: Arc<dyn Provider> = Arc::new(disk.image_after(commands, commands));
        let found = pool::open(&[image], false).unwrap();
        let there = mount(found.parts().dsl(), "tank", false).unwrap();
        assert_eq!(there.lookup(there.root(), b"last").unwrap().id, last);
        assert!(there.lookup(there.root(), b"a").is_err());
        drop(there);
        found.sync().unwrap();
        pool::assert_clean(&found);
        fs.rele(with_directory, 1).unwrap();
        fs.rele(without, 1).unwrap();
        drop(fs);
        spa.close().unwrap();
    });
}
