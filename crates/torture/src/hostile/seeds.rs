//! Small pools, one for each kind of structure in which a hostile image can lie.

use std::sync::{Arc, Mutex};

use base::Result;
use geom::Provider;
use ram::Memory;
use spa::Spa;
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
}

/// All kinds.
pub const KINDS: [Kind; 4] = [Kind::Files, Kind::Snapshots, Kind::Log, Kind::Vdevs];

/// Makes the pool of this kind.
///
/// # Errors
/// Those of the engine; there should be none.
pub fn image(kind: Kind) -> Result<Image> {
    // In simulated time everything about the pool follows from the seed.
    let disks = rt::simulate(SEED + kind as u64, || build(kind))?;
    Image::of(disks)
}

fn build(kind: Kind) -> Result<Vec<Memory>> {
    let (count, layout) = match kind {
        Kind::Vdevs => (2, Layout::Stripe),
        Kind::Snapshots => (2, Layout::Mirror),
        Kind::Files | Kind::Log => (1, Layout::Stripe),
    };
    let disks: Vec<Arc<Memory>> = (0..count)
        .map(|i| Arc::new(Memory::new(format!("/disk{i}"), DISK_BYTES)))
        .collect();
    let providers: Vec<Arc<dyn Provider>> = disks.iter().map(|disk| disk.clone() as _).collect();
    let root = zpl::mount::init(NewFilesystem::default(), true);
    let spa = pool::create("tank", layout, 9, &providers, root)?;
    spare(&spa)?;
    pool::create_fs(&spa, "tank/fs", &[("recordsize", 512), ("compression", 15)])?;
    let open = match kind {
        Kind::Files | Kind::Vdevs => files(&spa).map(|()| None),
        Kind::Snapshots => snapshots(&spa).map(|()| None),
        Kind::Log => log(&spa).map(Some),
    }?;
    if open.is_none() {
        spa.export()?;
    }
    // With the log still open, as after a crash.
    let copies = disks.iter().map(|disk| disk.snapshot()).collect();
    drop(open);
    Ok(copies)
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

/// The images of all kinds, made once.
///
/// # Panics
/// When they cannot be made.
#[must_use]
pub fn all() -> Arc<Vec<Image>> {
    static MADE: Mutex<Option<Arc<Vec<Image>>>> = Mutex::new(None);
    let mut made = MADE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let make = || {
        let images = KINDS.map(|kind| image(kind).unwrap_or_else(|e| panic!("{kind:?}: {e}")));
        Arc::new(images.into_iter().collect())
    };
    made.get_or_insert_with(make).clone()
}
