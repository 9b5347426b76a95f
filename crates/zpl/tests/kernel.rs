//! File systems written here, listed and changed by the real OpenZFS kernel module, and listed here
//! again. Both listings have everything that the system calls of Linux report of a file.
//!
//! The guest runs this very program: `ZPL_GUEST` selects what it does there.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::ObjectId;
use geom::Provider;
use geom::disk::{OpenMode, open};
use oracle::vm::Guest;
use oracle::{Zdb, have_zdb};
use rustix::fs::{SeekFrom, XattrFlags};
use spa::Spa;
use torture::pool::{self, Layout};
use zpl::mount::{init, mount};
use zpl::{Create, FileType, Filesystem, NewFilesystem, RenameKind, SetAttr, SetXattr, Time};

/// What a listing says of a file, beyond its path.
struct Facts {
    mode: u32,
    links: u64,
    owner: (u64, u64),
    size: u64,
    mtime: (i64, u32),
    rdev: (u32, u32),
    /// A link's target, or a sum of the content.
    content: Vec<u8>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

fn line(list: &mut String, path: &str, mut facts: Facts) {
    let is_directory = facts.mode >> 12 == 4;
    let (secs, nanos) = facts.mtime;
    let times = if is_directory {
        String::new()
    } else {
        format!("{TIME_MARK}{secs}.{nanos:09}")
    };
    facts.xattrs.sort();
    let xattrs: Vec<String> = facts
        .xattrs
        .iter()
        .map(|(name, value)| {
            let sum = zap::crc64(1, value.iter().copied());
            format!("{}={}:{sum:x}", String::from_utf8_lossy(name), value.len())
        })
        .collect();
    let (uid, gid) = facts.owner;
    writeln!(
        list,
        "{path} {:o} {} {uid}:{gid} {} {times} {:?} {} {xattrs:?}",
        facts.mode,
        facts.links,
        facts.size,
        facts.rdev,
        facts.content.escape_ascii()
    )
    .unwrap();
}

/// What a modification time begins with in a listing.
const TIME_MARK: &str = "mtime=";

/// A listing without what replaying a log does not restore: times, and extended attributes with an empty
/// value, whose records are the same as those of a removal.
fn replayable(list: &str) -> String {
    let lines = list.lines().map(|line| {
        let (facts, xattrs) = line.rsplit_once(" [").unwrap();
        let words = facts.split(' ').filter(|word| !word.starts_with(TIME_MARK));
        let facts = words.collect::<Vec<_>>().join(" ");
        let xattrs = xattrs.trim_end_matches(']').split(", ");
        let xattrs: Vec<&str> = xattrs.filter(|xattr| !xattr.contains("=0:")).collect();
        format!("{facts} {xattrs:?}\n")
    });
    lines.collect()
}

fn compare_replayed(ours: &str, theirs: &str, name: &str) {
    let [ours, theirs] = [ours, theirs].map(replayable);
    compare_lists(&ours, &theirs, name);
}

/// A checksum of all 512-byte pieces that are not zero, and of their offsets.
fn sum_extent(sum: u64, at: u64, bytes: &[u8]) -> u64 {
    assert!(at.is_multiple_of(512));
    let mut sum = sum;
    for (index, part) in bytes.chunks(512).enumerate() {
        if part.iter().any(|byte| *byte != 0) {
            let offset = at + 512 * index as u64;
            sum = zap::crc64(sum, offset.to_string().into_bytes());
            sum = zap::crc64(sum, part.iter().copied());
        }
    }
    sum
}

// In the guest.

#[test]
fn guest() {
    match (
        std::env::var("ZPL_GUEST").as_deref(),
        std::env::var("ZPL_DIR"),
    ) {
        (Ok("list"), Ok(dir)) => {
            let mut list = String::new();
            list_host(Path::new(&dir), "", &mut list);
            std::fs::write(std::env::var("ZPL_OUT").unwrap(), list).unwrap();
        }
        (Ok("change"), Ok(dir)) => change_host(Path::new(&dir)),
        _ => {}
    }
}

fn list_host(dir: &Path, prefix: &str, list: &mut String) {
    let mut entries: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap())
        .collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let name = format!("{prefix}/{}", entry.file_name().as_bytes().escape_ascii());
        line(list, &name, host_facts(&path));
        if entry.file_type().unwrap().is_dir() {
            list_host(&path, &name, list);
        }
    }
}

fn host_facts(path: &Path) -> Facts {
    let meta = std::fs::symlink_metadata(path).unwrap();
    let content = if meta.is_symlink() {
        std::fs::read_link(path)
            .unwrap()
            .as_os_str()
            .as_bytes()
            .to_vec()
    } else if meta.is_file() {
        format!("{:x}", host_sum(path, meta.len())).into_bytes()
    } else {
        Vec::new()
    };
    Facts {
        mode: meta.mode(),
        links: meta.nlink(),
        owner: (meta.uid().into(), meta.gid().into()),
        size: meta.size(),
        mtime: (meta.mtime(), meta.mtime_nsec() as u32),
        rdev: (
            rustix::fs::major(meta.rdev()),
            rustix::fs::minor(meta.rdev()),
        ),
        content,
        xattrs: host_xattrs(path),
    }
}

fn host_sum(path: &Path, size: u64) -> u64 {
    let file = std::fs::File::open(path).unwrap();
    let (mut sum, mut at) = (0, 0);
    while at < size {
        let Ok(data) = rustix::fs::seek(&file, SeekFrom::Data(at)) else {
            break;
        };
        let end = rustix::fs::seek(&file, SeekFrom::Hole(data)).unwrap();
        at = data / 512 * 512;
        while at < end {
            let mut bytes = vec![0; (end - at).min(1 << 20) as usize];
            file.read_exact_at(&mut bytes, at).unwrap();
            sum = sum_extent(sum, at, &bytes);
            at += bytes.len() as u64;
        }
    }
    sum
}

fn host_xattrs(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = vec![0; 1 << 16];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let names = names[..len]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    names
        .map(|name| {
            let mut value = vec![0; 1 << 17];
            let len = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..]);
            value.truncate(len.unwrap());
            (name.to_vec(), value)
        })
        .collect()
}

fn set(path: &Path, name: &str, len: usize) {
    rustix::fs::setxattr(path, name, &vec![len as u8; len], XattrFlags::empty()).unwrap();
}

/// A little of everything, on top of what is there.
fn change_host(dir: &Path) {
    let new = dir.join("kernel");
    std::fs::create_dir(&new).unwrap();
    for i in 0..3000 {
        std::fs::write(new.join(format!("file{i}")), format!("kernel {i}")).unwrap();
    }
    for i in (0..3000).step_by(3) {
        std::fs::remove_file(new.join(format!("file{i}"))).unwrap();
    }
    for (i, len) in [2, 1, 100, 500, 3000, 20_000, 60_000]
        .into_iter()
        .enumerate()
    {
        let path = new.join(format!("file{}", 1 + 3 * i));
        set(&path, "user.kernel", len);
        set(&path, "user.second", 30);
        set(&path, "trusted.third", len / 2);
    }
    // What was written elsewhere is changed here.
    set(&dir.join("dir"), "user.kernel", 2000);
    set(&dir.join("xattrs"), "user.kernel", 50);
    set(&dir.join("xattrs"), "user.n0", 50);
    rustix::fs::removexattr(dir.join("xattrs"), "user.n300").unwrap();
    std::fs::set_permissions(dir.join("mode070"), PermissionsExt::from_mode(0o751)).unwrap();
    rustix::fs::chown(
        dir.join("mode604"),
        Some(rustix::fs::Uid::from_raw(77)),
        Some(rustix::fs::Gid::from_raw(78)),
    )
    .unwrap();
    std::fs::rename(dir.join("dir/renamed"), dir.join("moved")).unwrap();
    std::fs::hard_link(dir.join("small"), new.join("hard")).unwrap();
    symlink("x".repeat(2000), new.join("long")).unwrap();
    symlink("short", new.join("short")).unwrap();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(dir.join("sparse"))
        .unwrap();
    file.write_all_at(b"from the kernel", 3 << 40).unwrap();
    file.set_len(4 << 40).unwrap();
    let grown = std::fs::OpenOptions::new()
        .append(true)
        .open(dir.join("small"))
        .unwrap();
    grown.write_all_at(&[9; 300_000], 0).unwrap();
    for i in 0..500 {
        std::fs::remove_file(dir.join(format!("large/name{i}"))).unwrap();
    }
}

// Here.

fn list_fs(fs: &Filesystem, dir: ObjectId, prefix: &str, list: &mut String) {
    let mut entries = fs.list(dir).unwrap();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in entries {
        let name = format!("{prefix}/{}", entry.name.escape_ascii());
        line(list, &name, fs_facts(fs, entry.id));
        if entry.file_type == Some(FileType::Directory) {
            list_fs(fs, entry.id, &name, list);
        }
    }
}

fn fs_facts(fs: &Filesystem, id: ObjectId) -> Facts {
    let attr = fs.getattr(id).unwrap();
    let content = match attr.file_type().unwrap() {
        FileType::Symlink => fs.readlink(id).unwrap(),
        FileType::Regular => format!("{:x}", fs_sum(fs, id, attr.size)).into_bytes(),
        _ => Vec::new(),
    };
    let xattrs = fs.listxattr(id).unwrap().into_iter();
    Facts {
        mode: attr.mode,
        links: attr.links,
        owner: (attr.uid, attr.gid),
        size: attr.size,
        mtime: (attr.mtime.secs, attr.mtime.nanos),
        rdev: zpl::device_major_minor(attr.rdev),
        content,
        xattrs: xattrs
            .map(|name| {
                let value = fs.getxattr(id, &name).unwrap().unwrap();
                (name, value)
            })
            .collect(),
    }
}

fn fs_sum(fs: &Filesystem, id: ObjectId, size: u64) -> u64 {
    let (mut sum, mut at) = (0, 0);
    while let Some(data) = fs.seek_data(id, at).unwrap() {
        let end = fs.seek_hole(id, data).unwrap().unwrap();
        at = data / 512 * 512;
        while at < end {
            let mut bytes = vec![0; (end - at).min(1 << 20) as usize];
            assert_eq!(fs.read(id, at, &mut bytes).unwrap(), bytes.len());
            sum = sum_extent(sum, at, &bytes);
            at += bytes.len() as u64;
        }
        if at >= size {
            break;
        }
    }
    sum
}

fn create(mode: u32) -> Create {
    Create {
        mode,
        uid: 1000,
        gid: 100,
    }
}

/// A little of everything.
fn fill(fs: &Filesystem) {
    let root = fs.root();
    let dir = fs.mkdir(root, b"dir", &create(0o755)).unwrap().id;
    let large = fs.mkdir(root, b"large", &create(0o2775)).unwrap().id;
    for i in 0..5000 {
        fs.create_file(large, format!("name{i}").as_bytes(), &create(0o644))
            .unwrap();
    }
    for i in 0..100 {
        let name = format!("{i:03}{}", "long".repeat(63));
        fs.create_file(dir, name.as_bytes(), &create(0o600))
            .unwrap();
    }
    for mode in [0o070, 0o604, 0o000, 0o4711, 0o1777, 0o555] {
        let name = format!("mode{mode:03o}");
        fs.create_file(root, name.as_bytes(), &create(mode))
            .unwrap();
    }
    for (i, len) in [1, 100, 130, 137, 200, 1000, 4095].into_iter().enumerate() {
        let name = format!("link{i}");
        fs.symlink(root, name.as_bytes(), &vec![b'l'; len], &create(0))
            .unwrap();
    }
    let null = zpl::device_number(1, 3);
    fs.mknod(root, b"null", FileType::CharDevice, null, &create(0o666))
        .unwrap();
    fs.mknod(root, b"pipe", FileType::Fifo, 0, &create(0o600))
        .unwrap();
    fs.mknod(root, b"socket", FileType::Socket, 0, &create(0o600))
        .unwrap();
    let small = fs.create_file(root, b"small", &create(0o644)).unwrap().id;
    fs.write(small, 0, b"small file").unwrap();
    fs.link(small, dir, b"other name").unwrap();
    let sparse = fs.create_file(root, b"sparse", &create(0o644)).unwrap().id;
    for at in [0, 1 << 30, 1 << 40] {
        fs.write(sparse, at, &[at as u8 | 1; 5000]).unwrap();
    }
    fs.truncate(sparse, 2 << 40).unwrap();
    for size in [511, 512, 513, 4096, 100_000, 131_072, 131_073, 3_000_000] {
        let name = format!("size{size}");
        let file = fs
            .create_file(root, name.as_bytes(), &create(0o644))
            .unwrap()
            .id;
        let data: Vec<u8> = (0..size as u32)
            .map(|i| (i.wrapping_mul(i) >> 7) as u8)
            .collect();
        fs.write(file, 0, &data).unwrap();
    }
    let times = fs.create_file(root, b"times", &create(0o644)).unwrap().id;
    let mtime = Some(Time {
        secs: -1_000_000_000,
        nanos: 123_456_789,
    });
    fs.setattr(
        times,
        &SetAttr {
            mtime,
            ..SetAttr::default()
        },
    )
    .unwrap();
    let xattrs = fs.create_file(root, b"xattrs", &create(0o644)).unwrap().id;
    for len in [0, 1, 20, 300, 5000, 40_000] {
        let name = format!("user.n{len}");
        fs.setxattr(xattrs, name.as_bytes(), &vec![7; len], SetXattr::Set)
            .unwrap();
    }
    fs.setxattr(dir, b"user.of a directory", b"value", SetXattr::Set)
        .unwrap();
    fs.rename(dir, b"other name", dir, b"renamed", RenameKind::Replace)
        .unwrap();
    fs.symlink(root, b"gone", b"x", &create(0)).unwrap();
    fs.unlink(root, b"gone").unwrap();
}

/// The file systems, and the properties that make them different, by number.
const KINDS: &[(&str, &[(&str, u64)])] = &[
    ("usual", &[]),
    ("xdir", &[("xattr", 1)]),
    (
        "dnodes",
        &[
            ("dnodesize", 2048),
            ("recordsize", 4096),
            ("compression", 2),
        ],
    ),
];

fn make(spa: &Spa) {
    for (name, props) in KINDS {
        let numbers = props
            .iter()
            .map(|(name, value)| ((*name).to_owned(), phys::PropValue::Number(*value)));
        let new = dsl::NewDataset {
            name: format!("tank/{name}"),
            type_: phys::ObjsetType::Zfs,
            flags: 0,
            props: numbers.collect(),
            init: init(NewFilesystem::default(), true),
        };
        spa.parts().dsl().create_dataset(new).unwrap();
        fill(&mount(spa.parts().dsl(), &format!("tank/{name}"), false).unwrap());
    }
}

fn listing(spa: &Spa, name: &str) -> String {
    let fs = mount(spa.parts().dsl(), &format!("tank/{name}"), true).unwrap();
    let mut list = String::new();
    list_fs(&fs, fs.root(), "", &mut list);
    list
}

fn compare(ours: &str, host: &Path, file: &str) {
    let theirs = std::fs::read_to_string(host.join(file)).unwrap();
    compare_lists(ours, &theirs, file);
}

fn compare_lists(ours: &str, theirs: &str, file: &str) {
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        assert_eq!(ours, theirs, "{file}");
    }
    assert_eq!(ours.lines().count(), theirs.lines().count(), "{file}");
}

fn remove_all(fs: &Filesystem, dir: ObjectId) {
    for entry in fs.list(dir).unwrap() {
        if entry.file_type == Some(FileType::Directory) {
            remove_all(fs, entry.id);
            fs.rmdir(dir, &entry.name).unwrap();
        } else {
            fs.unlink(dir, &entry.name).unwrap();
        }
    }
}

/// What `change_host` does, roughly, each file made durable by the intent log.
fn change_fs(fs: &Filesystem) {
    let root = fs.root();
    let new = fs.mkdir(root, b"ours", &create(0o755)).unwrap().id;
    for i in 0..400 {
        let name = format!("file{i}");
        let file = fs
            .create_file(new, name.as_bytes(), &create(0o640))
            .unwrap()
            .id;
        fs.write(file, 0, name.repeat(1 + i * 10).as_bytes())
            .unwrap();
        if i % 3 == 0 {
            fs.unlink(new, name.as_bytes()).unwrap();
        } else {
            fs.fsync(file).unwrap();
        }
    }
    let at = |path: &str| fs.resolve_link(path).unwrap();
    for (i, len) in [2, 100, 500, 3000, 20_000].into_iter().enumerate() {
        let file = at(&format!("ours/file{}", 1 + 3 * i));
        fs.setxattr(file, b"user.ours", &vec![len as u8; len], SetXattr::Set)
            .unwrap();
        fs.setxattr(file, b"user.gone", b"value", SetXattr::Set)
            .unwrap();
        fs.removexattr(file, b"user.gone").unwrap();
        fs.fsync(file).unwrap();
    }
    fs.symlink(new, b"link", &[b'x'; 700], &create(0)).unwrap();
    fs.mknod(
        new,
        b"device",
        FileType::BlockDevice,
        zpl::device_number(8, 17),
        &create(0o600),
    )
    .unwrap();
    fs.link(at("small"), new, b"hard").unwrap();
    fs.rename(at("dir"), b"renamed", new, b"moved", RenameKind::Replace)
        .unwrap();
    fs.rename(root, b"mode070", root, b"mode604", RenameKind::Replace)
        .unwrap();
    let (small, sparse) = (at("small"), at("sparse"));
    fs.append(small, &[9; 300_000]).unwrap();
    fs.truncate(sparse, 1 << 41).unwrap();
    fs.punch_hole(sparse, 1 << 30, 3000).unwrap();
    let set = SetAttr {
        mode: Some(0o4711),
        uid: Some(3),
        gid: Some(4),
        ..SetAttr::default()
    };
    fs.setattr(small, &set).unwrap();
    fs.fsync(small).unwrap();
    fs.fsync(sparse).unwrap();
}

const SCRIPT: &str = r#"set -e
zpool import -d /dev -R /mnt tank
for fs in usual xdir dnodes; do
  ZPL_GUEST=list ZPL_DIR=/mnt/tank/$fs ZPL_OUT=/host/$fs.before /host/program --exact guest
  ZPL_GUEST=change ZPL_DIR=/mnt/tank/$fs /host/program --exact guest
  ZPL_GUEST=list ZPL_DIR=/mnt/tank/$fs ZPL_OUT=/host/$fs.after /host/program --exact guest
done
zpool scrub -w tank
zpool status tank | grep -q "errors: No known data errors"
zpool export tank
"#;

fn open_disk(path: &Path) -> Vec<Arc<dyn Provider>> {
    vec![open(path, OpenMode::ReadWrite).unwrap()]
}

#[test]
fn slow_kernel_and_we_see_the_same_files() {
    let Some(guest) = Guest::find() else { return };
    if !have_zdb() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let host = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("disk");
    std::fs::File::create(&path)
        .unwrap()
        .set_len(512 << 20)
        .unwrap();
    let disks = open_disk(&path);
    let root = init(NewFilesystem::default(), true);
    let spa = pool::create("tank", Layout::Stripe, 12, &disks, root).unwrap();
    make(&spa);
    spa.sync().unwrap();
    let mut ours = Vec::new();
    for (name, _) in KINDS {
        ours.push(listing(&spa, name));
    }
    spa.export().unwrap();
    drop((spa, disks));
    Zdb::verify(folder.path(), "tank").assert_clean();

    std::fs::copy(
        std::env::current_exe().unwrap(),
        host.path().join("program"),
    )
    .unwrap();
    guest.run(SCRIPT, host.path(), &[&path]).assert_success();

    for ((name, _), ours) in KINDS.iter().zip(&ours) {
        compare(ours, host.path(), &format!("{name}.before"));
    }
    let disks = open_disk(&path);
    let spa = pool::open(&disks, false).unwrap();
    assert!(
        !spa.is_readonly(),
        "kept read-only by {:?}",
        spa.obstacles()
    );
    for (name, _) in KINDS {
        compare(&listing(&spa, name), host.path(), &format!("{name}.after"));
        let fs = mount(spa.parts().dsl(), &format!("tank/{name}"), false).unwrap();
        remove_all(&fs, fs.root());
        let root = fs.getattr(fs.root()).unwrap();
        assert_eq!((root.size, root.links), (2, 2));
    }
    spa.sync().unwrap();
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop((spa, disks));
    Zdb::verify(folder.path(), "tank").assert_clean();
}

/// Changes in a frozen pool, which syncs no txg any more, so that they are only in the intent log.
const FROZEN: &str = r#"set -e
zpool import -d /dev -R /mnt tank
for fs in usual xdir; do
  dd if=/dev/urandom of=/mnt/tank/$fs/first bs=10000 count=1 conv=fsync
done
zpool sync tank
zpool freeze tank
for fs in usual xdir; do
  ZPL_GUEST=change ZPL_DIR=/mnt/tank/$fs /host/program --exact guest
  ZPL_GUEST=list ZPL_DIR=/mnt/tank/$fs ZPL_OUT=/host/$fs.frozen /host/program --exact guest
done
sync
"#;

/// A crash of this implementation, seen by the kernel.
const CRASHED: &str = r#"set -e
zpool import -f -d /dev -R /mnt tank
for fs in usual xdir; do
  ZPL_GUEST=list ZPL_DIR=/mnt/tank/$fs ZPL_OUT=/host/$fs.replayed /host/program --exact guest
done
zpool export tank
"#;

/// Nothing is synced unless asked for: what is only in the log stays there.
fn made_pool(path: &Path) -> Spa {
    std::fs::File::create(path)
        .unwrap()
        .set_len(512 << 20)
        .unwrap();
    let root = init(NewFilesystem::default(), true);
    let mut settings = spa::Settings::default();
    settings.txg.timeout_ns = 3_600_000_000_000;
    let disk = open_disk(path);
    let spa = pool::create_with("tank", Layout::Stripe, 12, &disk, root, settings).unwrap();
    make(&spa);
    spa.sync().unwrap();
    spa
}

fn host_folder() -> tempfile::TempDir {
    let host = tempfile::tempdir().unwrap();
    std::fs::copy(
        std::env::current_exe().unwrap(),
        host.path().join("program"),
    )
    .unwrap();
    host
}

#[test]
fn slow_the_log_of_the_kernel_is_replayed_here() {
    let Some(guest) = Guest::find() else { return };
    if !have_zdb() {
        return;
    }
    let (folder, host) = (tempfile::tempdir().unwrap(), host_folder());
    let path = folder.path().join("disk");
    made_pool(&path).export().unwrap();
    guest.run(FROZEN, host.path(), &[&path]).assert_success();
    let spa = open_forced(&path);
    for name in ["usual", "xdir"] {
        let before = std::fs::read_to_string(host.path().join(format!("{name}.frozen"))).unwrap();
        drop(mount(spa.parts().dsl(), &format!("tank/{name}"), false).unwrap());
        compare_replayed(&listing(&spa, name), &before, name);
    }
    spa.sync().unwrap();
    pool::assert_clean(&spa);
    spa.export().unwrap();
    Zdb::verify(folder.path(), "tank").assert_clean();
}

fn open_forced(path: &Path) -> Spa {
    let found = vdev::import::discover(&open_disk(path))
        .pools
        .into_iter()
        .next();
    Spa::import(spa::ImportOptions {
        found: found.unwrap(),
        new_name: None,
        readonly: false,
        max_txg: None,
        force: true,
        gives_up_logs: false,
        tolerates_missing: false,
        rewinds: false,
        host: pool::host(),
        settings: spa::Settings::default(),
    })
    .unwrap()
}

#[test]
fn slow_our_log_is_replayed_by_the_kernel() {
    let Some(guest) = Guest::find() else { return };
    if !have_zdb() {
        return;
    }
    let (folder, host) = (tempfile::tempdir().unwrap(), host_folder());
    let path = folder.path().join("disk");
    let spa = made_pool(&path);
    let mounts = ["usual", "xdir"].map(|name| {
        let fs = mount(spa.parts().dsl(), &format!("tank/{name}"), false).unwrap();
        // The first commit waits for a txg that has the beginning of the log.
        let file = fs
            .create_file(fs.root(), b"first", &create(0o644))
            .unwrap()
            .id;
        fs.fsync(file).unwrap();
        (name, fs)
    });
    spa.sync().unwrap();
    let mut ours = Vec::new();
    for (name, fs) in mounts {
        change_fs(&fs);
        let mut list = String::new();
        list_fs(&fs, fs.root(), "", &mut list);
        ours.push((name, list));
        // Leaked, because dropping it would sync.
        std::mem::forget(fs);
    }
    let crashed = folder.path().join("crashed");
    let copied = std::process::Command::new("cp")
        .arg("--sparse=always")
        .args([&path, &crashed])
        .status();
    assert!(copied.unwrap().success());
    // The log is there: names of both file systems, and data.
    let alone = tempfile::tempdir().unwrap();
    std::fs::hard_link(&crashed, alone.path().join("disk"))
        .or_else(|_| std::fs::copy(&crashed, alone.path().join("disk")).map(|_| ()))
        .unwrap();
    for name in ["usual", "xdir"] {
        let log = std::process::Command::new("zdb")
            .args(["-e", "-p"])
            .arg(alone.path())
            .args(["-iiiiii", &format!("tank/{name}")])
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&log.stdout);
        let of_xattrs = (name == "usual").then_some("TX_SETSAXATTR");
        for type_ in ["TX_CREATE", "TX_REMOVE", "TX_WRITE"]
            .into_iter()
            .chain(of_xattrs)
        {
            assert!(
                log.contains(type_),
                "no {type_} in the log of {name}:\n{log}"
            );
        }
    }
    guest
        .run(CRASHED, host.path(), &[&crashed])
        .assert_success();
    for (name, list) in ours {
        let file = host.path().join(format!("{name}.replayed"));
        let theirs = std::fs::read_to_string(file).unwrap();
        compare_replayed(&list, &theirs, name);
    }
}
