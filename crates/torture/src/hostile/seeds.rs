//! Small pools, one for each kind of structure in which a hostile image can lie.

use std::sync::{Arc, Mutex, PoisonError};

use base::Result;
use geom::Provider;
use ram::Memory;
use spa::{Resilver, Settings, Spa};
use vdev::{Attach, AutoAshift, AuxSpec, Grouping, NewDevice, TopSpec, VdevKind};
use zpl::mount::{Mount, mount};
use zpl::{Create, NewFilesystem, SetXattr};

use super::image::{Image, SPARE_BYTES, SPARE_MARK};
use crate::Dice;
use crate::pool::{self, Layout};

/// The smallest device that a pool takes.
const DISK_BYTES: u64 = 64 << 20;
/// Spare blocks: enough for about a hundred edited blocks.
const SPARE_BLOCKS: usize = 24;
/// Seed of the pools' GUIDs and contents: every run makes the same images.
const SEED: u64 = 0x5eed;
/// Bytes that are moved in one txg, where that is to be left half done.
const SLICE_BYTES: u64 = 64 << 10;
/// Txgs after which it is left.
const HALF_SLICES: u64 = 8;

const CREATE: Create = Create {
    mode: 0o755,
    uid: 1000,
    gid: 100,
};

/// What a pool contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Files of all sizes, holes, links, extended attributes, a fat ZAP.
    Files,
    /// Snapshots, clones of them, bookmarks, holds; on a mirror.
    Snapshots,
    /// An intent log that was not replayed.
    Log,
    /// Two top-level vdevs.
    Vdevs,
    /// A RAID-Z with one column of parity.
    Raidz,
    /// A RAID-Z with two columns of parity, and an intent log that was not replayed.
    Raidz2,
    /// A dRAID with a distributed spare.
    Draid,
    /// A RAID-Z that was expanded.
    Expanded,
    /// A RAID-Z that is half expanded.
    Expanding,
    /// Most is on a vdev that was removed.
    Removed,
    /// A vdev that is half removed.
    Removing,
    /// A mirror whose sequential resilver is half done.
    Rebuilding,
    /// A dRAID whose distributed spare is half done.
    SpareRebuilding,
}

/// Kinds whose vdevs are devices and mirrors.
pub const KINDS: [Kind; 4] = [Kind::Files, Kind::Snapshots, Kind::Log, Kind::Vdevs];

/// Kinds of other vdevs.
pub const VDEV_KINDS: [Kind; 9] = [
    Kind::Raidz,
    Kind::Raidz2,
    Kind::Draid,
    Kind::Expanded,
    Kind::Expanding,
    Kind::Removed,
    Kind::Removing,
    Kind::Rebuilding,
    Kind::SpareRebuilding,
];

/// Makes the pool of this kind.
///
/// # Errors
/// Those of the engine; there should be none.
pub fn image(kind: Kind) -> Result<Image> {
    // In simulated time everything about the pool follows from the seed.
    let disks = rt::simulate(SEED + kind as u64, || build(kind))?;
    let mut image = Image::of(disks)?;
    image.lies_about_vdevs = VDEV_KINDS.contains(&kind);
    Ok(image)
}

/// Devices that a pool begins with, those that it gets later, and the layout.
fn shape(kind: Kind) -> (usize, usize, Layout) {
    match kind {
        Kind::Files | Kind::Log => (1, 0, Layout::Stripe),
        Kind::Snapshots => (2, 0, Layout::Mirror),
        Kind::Vdevs => (2, 0, Layout::Stripe),
        Kind::Raidz => (3, 0, Layout::Raidz(1)),
        Kind::Raidz2 => (4, 0, Layout::Raidz(2)),
        Kind::Draid | Kind::SpareRebuilding => (4, 0, Layout::Draid(1, 2, 1)),
        Kind::Expanded | Kind::Expanding => (3, 1, Layout::Raidz(1)),
        Kind::Removed | Kind::Removing | Kind::Rebuilding => (1, 1, Layout::Stripe),
    }
}

fn build(kind: Kind) -> Result<Vec<Memory>> {
    let (count, added, layout) = shape(kind);
    let disks: Vec<Arc<Memory>> = (0..count + added)
        .map(|i| {
            // What is on the first device has to find room on the later one.
            let bytes = if i < count {
                DISK_BYTES
            } else {
                2 * DISK_BYTES
            };
            Arc::new(Memory::new(format!("/disk{i}"), bytes))
        })
        .collect();
    let providers: Vec<Arc<dyn Provider>> = disks.iter().map(|disk| disk.clone() as _).collect();
    let (first, later) = providers.split_at(count);
    let root = zpl::mount::init(NewFilesystem::default(), true);
    let settings = settings(kind);
    let spa = pool::create_with("tank", layout, 9, first, root, settings)?;
    let is_removed = matches!(kind, Kind::Removed | Kind::Removing);
    if !is_removed {
        spare(&spa)?;
    }
    pool::create_fs(&spa, "tank/fs", &[("recordsize", 512), ("compression", 15)])?;
    let open = match kind {
        Kind::Snapshots | Kind::Rebuilding | Kind::SpareRebuilding => {
            snapshots(&spa).map(|()| None)
        }
        Kind::Log | Kind::Raidz2 => log(&spa).map(Some),
        _ => files(&spa).map(|()| None),
    }?;
    if let [new] = later {
        reshape(&spa, kind, new)?;
    }
    if kind == Kind::SpareRebuilding {
        use_spare(&spa)?;
    }
    if open.is_none() {
        spa.export()?;
    }
    // With the log still open, as after a crash.
    let is_gone = |n: &usize| kind == Kind::Removed && *n == 0;
    let left = (0..disks.len()).filter(|n| !is_gone(n));
    let copies = left.map(|n| disks[n].snapshot()).collect();
    drop(open);
    Ok(copies)
}

/// What takes several txgs is done slowly, so that it can be left half done.
pub(super) fn settings(kind: Kind) -> Settings {
    let mut settings = pool::settings();
    match kind {
        Kind::Expanding => settings.reflow_max_bytes = SLICE_BYTES,
        Kind::Removing => settings.removal.segment_max_bytes = SLICE_BYTES,
        Kind::Rebuilding | Kind::SpareRebuilding => settings.rebuild_max_bytes = SLICE_BYTES,
        _ => return settings,
    }
    settings.scan.blocks_max = 1;
    settings
}

/// Makes use of a new device.
fn reshape(spa: &Spa, kind: Kind, device: &Arc<dyn Provider>) -> Result<()> {
    let new = NewDevice {
        kind: VdevKind::Disk,
        path: device.name().to_owned(),
        provider: Arc::clone(device),
    };
    let sectors = (9, AutoAshift::default());
    let guid = spa.parts().tree().tops()[0].guid();
    let mut slices = 0;
    let mut is_half = || {
        slices += 1;
        slices > HALF_SLICES
    };
    match kind {
        Kind::Expanded | Kind::Expanding => {
            spa.widen(guid, &new, sectors)?;
            spa.wait_expansion(&mut |_, _| kind == Kind::Expanded || !is_half())?;
        }
        Kind::Removed | Kind::Removing => {
            let top = TopSpec::new(Grouping::Single, vec![new]);
            spa.add(&[top], &AuxSpec::default(), sectors, true)?;
            spare(spa)?;
            spa.sync()?;
            spa.remove(guid)?;
            spa.wait_removal(&mut |_| kind == Kind::Removed || !is_half())?;
        }
        _ => {
            spa.attach_with(guid, &new, Attach::Side, sectors, Resilver::Sequential)?;
            spa.wait_rebuild(&mut |_, _| !is_half())?;
        }
    }
    spa.sync().map(|_| ())
}

/// Has the distributed spare take over for a device.
fn use_spare(spa: &Spa) -> Result<()> {
    let device = spa.parts().tree().devices()[0].guid();
    let spare = spa.spares()[0].0.guid();
    spa.attach_distributed_with(device, spare, Resilver::Sequential)?;
    let mut slices = 0;
    spa.wait_rebuild(&mut |_, _| {
        slices += 1;
        slices <= HALF_SLICES
    })
}

/// Writes the file whose blocks edits use as spare space.
fn spare(spa: &Spa) -> Result<()> {
    pool::create_fs(
        spa,
        "tank/spare",
        &[("compression", 2), ("recordsize", SPARE_BYTES)],
    )?;
    let fs = mount(spa.parts().dsl(), "tank/spare", false)?;
    let file = fs.create_file(fs.root(), b"spare", &CREATE)?.id;
    let mut block = vec![0x5a; SPARE_BYTES as usize];
    block[..SPARE_MARK.len()].copy_from_slice(SPARE_MARK);
    fs.write(file, 0, &block.repeat(SPARE_BLOCKS))
}

fn files(spa: &Spa) -> Result<()> {
    let mut dice = Dice::new(SEED);
    let fs = mount(spa.parts().dsl(), "tank/fs", false)?;
    let dir = fs.mkdir(fs.root(), b"dir", &CREATE)?.id;
    let deep = fs.mkdir(dir, b"deep", &CREATE)?.id;
    for i in 0..3 {
        let name = format!("file{i}");
        let file = fs.create_file(deep, name.as_bytes(), &CREATE)?.id;
        fs.write(file, 0, &dice.bytes(300 << (3 * i)))?;
    }
    // Three levels of blocks, mostly holes.
    let sparse = fs.create_file(fs.root(), b"sparse", &CREATE)?.id;
    for offset in [0, 300 << 10, 900 << 10, 700 << 20] {
        fs.write(sparse, offset, &dice.bytes(700))?;
    }
    fs.symlink(dir, b"link", b"deep/file1", &CREATE)?;
    fs.symlink(dir, b"long", &b"x".repeat(300), &CREATE)?;
    fs.link(sparse, dir, b"second name")?;
    fs.setxattr(sparse, b"user.small", b"value", SetXattr::Set)?;
    fs.setxattr(sparse, b"user.large", &[7; 3000], SetXattr::Set)?;
    let many = fs.mkdir(fs.root(), b"many", &CREATE)?.id;
    for i in 0..150 {
        let name = format!("{i}-{}", "a long name ".repeat(8));
        fs.create_file(many, name.as_bytes(), &CREATE)?;
    }
    drop(fs);
    spa.sync().map(|_| ())
}

fn snapshots(spa: &Spa) -> Result<()> {
    let dsl = spa.parts().dsl();
    change(spa, "tank/fs", 1)?;
    for (seed, at) in (10..).step_by(2).zip(["a", "b", "c"]) {
        let names = [format!("tank@{at}"), format!("tank/fs@{at}")];
        dsl.snapshot(&names.each_ref().map(String::as_str), Vec::new())?;
        change(spa, "tank/fs", seed)?;
        change(spa, "tank", seed + 1)?;
    }
    dsl.clone_dataset("tank/clone", "tank/fs@b", Vec::new())?;
    change(spa, "tank/clone", 4)?;
    dsl.snapshot(&["tank/clone@d"], Vec::new())?;
    dsl.clone_dataset("tank/clone/of", "tank/clone@d", Vec::new())?;
    change(spa, "tank/clone/of", 5)?;
    dsl.create_bookmark("tank/fs#mark", "tank/fs@a")?;
    dsl.hold(&["tank/fs@a"], "held")?;
    dsl.set_prop("tank/fs", "quota", phys::PropValue::Number(40 << 20))?;
    dsl.set_prop(
        "tank/fs",
        "user:text",
        phys::PropValue::Text("some text".into()),
    )?;
    dsl.destroy_snapshots(&["tank@b"], false)
}

fn log(spa: &Spa) -> Result<Mount> {
    change(spa, "tank/fs", 1)?;
    spa.sync()?;
    let fs = mount(spa.parts().dsl(), "tank/fs", false)?;
    let mut dice = Dice::new(SEED);
    for i in 0..12 {
        let name = format!("logged{i}");
        let file = fs.create_file(fs.root(), name.as_bytes(), &CREATE)?.id;
        fs.write_sync(file, 0, &dice.bytes(200 << (i % 5)))?;
        fs.setxattr(file, b"user.x", b"logged", SetXattr::Set)?;
        fs.fsync(file)?;
    }
    fs.unlink(fs.root(), b"logged3")?;
    fs.mkdir(fs.root(), b"logged dir", &CREATE)?;
    let last = fs.create_file(fs.root(), b"last", &CREATE)?.id;
    fs.write_sync(last, 0, b"the end")?;
    Ok(fs)
}

/// Makes and changes some files, so that blocks are allocated and freed.
fn change(spa: &Spa, name: &str, seed: u64) -> Result<()> {
    let mut dice = Dice::new(seed);
    let fs = mount(spa.parts().dsl(), name, false)?;
    let file = fs.create_file(fs.root(), format!("file{seed}").as_bytes(), &CREATE)?;
    fs.write(file.id, 0, &dice.bytes(9000))?;
    if let Some(first) = fs.list(fs.root())?.first() {
        fs.write(first.id, 512, &dice.bytes(4000))?;
    }
    drop(fs);
    spa.sync().map(|_| ())
}

/// The images of [`KINDS`], made once.
///
/// # Panics
/// When they cannot be made.
#[must_use]
pub fn all() -> Arc<Vec<Image>> {
    static MADE: Mutex<Option<Arc<Vec<Image>>>> = Mutex::new(None);
    once(&MADE, &KINDS)
}

/// The images of [`VDEV_KINDS`], made once.
///
/// # Panics
/// When they cannot be made.
#[must_use]
pub fn all_vdevs() -> Arc<Vec<Image>> {
    static MADE: Mutex<Option<Arc<Vec<Image>>>> = Mutex::new(None);
    once(&MADE, &VDEV_KINDS)
}

/// Those of [`all_vdevs`] that are being resilvered sequentially.
#[must_use]
pub fn rebuilding(images: &[Image]) -> Vec<&Image> {
    let is_rebuilding = |kind: &Kind| matches!(kind, Kind::Rebuilding | Kind::SpareRebuilding);
    let kinds = VDEV_KINDS.iter().zip(images);
    kinds
        .filter_map(|(kind, image)| is_rebuilding(kind).then_some(image))
        .collect()
}

fn once(made: &Mutex<Option<Arc<Vec<Image>>>>, kinds: &[Kind]) -> Arc<Vec<Image>> {
    let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
    let make = || {
        let image = |kind: &Kind| image(*kind).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
        Arc::new(kinds.iter().map(image).collect())
    };
    made.get_or_insert_with(make).clone()
}
