//! Pools of other hosts: versions before feature flags, and blocks in the byte order of a big-endian machine. What
//! the kernel said of each file is beside the images (path, mode, owner, group, size, time, start of its SHA-256).

use std::sync::Arc;

use base::{ErrorKind, ObjectId};
use geom::Provider;
use phys::ChecksumType;
use spa::{Obstacle, Spa};
use torture::golden;
use torture::pool;
use zpl::mount::mount;
use zpl::{Create, FileType, Filesystem, SetXattr};

/// What `seq` prints.
fn seq(first: u64, last: u64) -> String {
    (first..=last).map(|n| format!("{n}\n")).collect()
}

fn read(fs: &Filesystem, path: &str) -> Vec<u8> {
    let id = fs.resolve(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let size = fs.getattr(id).unwrap().size as usize;
    let mut bytes = vec![0; size];
    let length = fs.read(id, 0, &mut bytes).unwrap();
    assert_eq!(length, size, "{path}");
    bytes
}

/// The lines of a file system's manifest.
fn manifest(fs: &Filesystem) -> Vec<String> {
    let mut lines = Vec::new();
    let mut todo = vec![(".".to_owned(), fs.root())];
    while let Some((path, id)) = todo.pop() {
        let attr = fs.getattr(id).unwrap();
        let mut sum = "-".to_owned();
        match attr.file_type().unwrap() {
            FileType::Directory => {
                for entry in fs.list(id).unwrap() {
                    let name = String::from_utf8(entry.name).unwrap();
                    todo.push((format!("{path}/{name}"), entry.id));
                }
            }
            FileType::Regular => {
                let mut bytes = vec![0; attr.size as usize];
                fs.read(id, 0, &mut bytes).unwrap();
                let words = checksum::digest(ChecksumType::Sha256, &[0; 32], &bytes);
                sum = words.iter().map(|word| format!("{word:016x}")).collect();
            }
            FileType::Symlink => {
                assert_eq!(fs.readlink(id).unwrap().len() as u64, attr.size, "{path}");
            }
            _ => {}
        }
        let (mode, uid, gid) = (attr.mode, attr.uid, attr.gid);
        let (size, seconds) = (attr.size, attr.mtime.secs);
        lines.push(format!(
            "{path} {mode:x} {uid} {gid} {size} {seconds} {sum}"
        ));
    }
    lines.sort();
    lines
}

/// Checks a file system against the lines that the kernel's host printed.
fn assert_same(fs: &Filesystem, want: &str, name: &str) {
    let mut want: Vec<&str> = want.lines().collect();
    want.sort_unstable();
    let have = manifest(fs);
    assert_eq!(have.len(), want.len(), "{name}");
    for (have, want) in have.iter().zip(want) {
        // The kernel's host has the start of each sum.
        assert!(have.starts_with(want), "{name}: {have}, not {want}");
    }
}

/// The manifests in a file, by file system.
fn manifests(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = text.split("== ").filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('\n').unwrap())
}

const VERSIONS: [(u64, &str); 5] = [
    (1, include_str!("golden/openzfs-2.3.2-v1.txt")),
    (8, include_str!("golden/openzfs-2.3.2-v8.txt")),
    (14, include_str!("golden/openzfs-2.3.2-v14.txt")),
    (20, include_str!("golden/openzfs-2.3.2-v20.txt")),
    (28, include_str!("golden/openzfs-2.3.2-v28.txt")),
];

#[test]
fn pools_of_versions_1_to_28_are_read() {
    for (version, text) in VERSIONS {
        let devices = [golden::golden(&format!("openzfs-2.3.2-v{version}"))];
        let spa = pool::open(&devices, false).unwrap();
        assert_eq!(spa.obstacles(), [Obstacle::OldVersion(version)]);
        assert_eq!((spa.version(), spa.is_readonly()), (version, true));
        pool::assert_clean(&spa);
        for (fs, want) in manifests(text) {
            let name = format!("old/{fs}");
            let fs = mount(spa.parts().dsl(), &name, true).unwrap();
            assert_same(&fs, want, &format!("version {version}: {name}"));
        }
        check_snapshots(&spa);
        let error = spa.check_writable().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly);
        assert!(error.to_string().contains(&format!("version {version}")));
    }
}

fn check_snapshots(spa: &Spa) {
    let fs = |name: &str| mount(spa.parts().dsl(), name, true).unwrap();
    let one = fs("old/fs@one");
    assert!(read(&one, "gone") == seq(1, 3000).into_bytes());
    assert!(read(&one, "changed") == seq(1, 2000).into_bytes());
    let two = fs("old/fs@two");
    assert!(read(&two, "hard") == seq(1, 20_000).into_bytes());
    assert!(read(&two, "changed") == seq(1, 77).into_bytes());
    assert!(two.resolve("gone").is_err());
    let two = fs("old/clone@two");
    assert!(read(&two, "changed") == (seq(1, 2000) + &seq(5, 50)).into_bytes());
}

const BIG_ENDIAN: &str = include_str!("golden/openzfs-2.3.2-big-endian.txt");

/// Data of the objsets that have a checksum of their own.
fn check_others(spa: &Spa) {
    for name in [
        "fletcher2",
        "fletcher4",
        "sha256",
        "sha512",
        "skein",
        "blake3",
        "fletcher4-gang",
        "skein-gang",
    ] {
        let dataset = spa.parts().dsl().dataset(&format!("be/{name}")).unwrap();
        let objset = dataset.objset().unwrap();
        for (object, is_big) in [(1, true), (2, false)] {
            let object = objset.hold(ObjectId(object)).unwrap();
            let mut bytes = vec![0; 40_000];
            object.read(0, &mut bytes).unwrap();
            for (n, word) in (0u64..).zip(bytes.as_chunks::<8>().0) {
                // The first object is a string of bytes, the second one words.
                let (have, want) = match is_big {
                    true => (u64::from_be_bytes(*word), n * n),
                    false => (u64::from_le_bytes(*word), n * n + 1),
                };
                assert_eq!(have, want, "{name}: word {n}");
            }
        }
    }
}

fn xattr(fs: &Filesystem, id: ObjectId, name: &[u8]) -> Vec<u8> {
    fs.getxattr(id, name).unwrap().unwrap()
}

fn check_xattrs(fs: &Filesystem) {
    let text = fs.resolve("text").unwrap();
    assert_eq!(xattr(fs, text, b"user.a"), b"value");
    let random = fs.resolve("random").unwrap();
    assert_eq!(xattr(fs, random, b"user.big").len(), 2000);
    let dir = fs.resolve("dir").unwrap();
    assert_eq!(xattr(fs, dir, b"user.dir"), b"indir");
}

#[test]
fn pools_of_a_big_endian_host_are_read_and_written() {
    let devices = [golden::golden("openzfs-2.3.2-big-endian")];
    let spa = pool::open(&devices, false).unwrap();
    assert!(!spa.is_readonly(), "{:?}", spa.obstacles());
    pool::assert_clean(&spa);
    let fs = mount(spa.parts().dsl(), "be/be", false).unwrap();
    assert_same(&fs, BIG_ENDIAN, "be/be");
    check_xattrs(&fs);
    check_others(&spa);

    // Each kind of block is changed: attributes, directories, files, what the MOS has of data sets.
    let dir = fs.resolve("dir").unwrap();
    for n in 0..40 {
        let name = format!("made here {n}");
        let made = fs.create_file(dir, name.as_bytes(), &Create::default());
        fs.write(made.unwrap().id, 0, name.as_bytes()).unwrap();
    }
    let text = fs.resolve("text").unwrap();
    fs.write(text, 5000, b"changed here").unwrap();
    fs.setxattr(text, b"user.b", b"new", SetXattr::Set).unwrap();
    fs.unlink(fs.root(), b"random").unwrap();
    spa.sync().unwrap();
    let dsl = spa.parts().dsl();
    dsl.snapshot(&["be/be@here"], Vec::new()).unwrap();
    dsl.destroy_snapshots(&["be/be@s2"], false).unwrap();
    dsl.clone_dataset("be/clone", "be/be@late", Vec::new())
        .unwrap();
    drop(fs);
    spa.sync().unwrap();
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&devices, "be");

    let spa = pool::open(&devices, false).unwrap();
    pool::assert_clean(&spa);
    check_others(&spa);
    let clone = mount(spa.parts().dsl(), "be/clone", true).unwrap();
    assert_same(&clone, BIG_ENDIAN, "be/clone");
    check_xattrs(&clone);
    let fs = mount(spa.parts().dsl(), "be/be", true).unwrap();
    assert_eq!(read(&fs, "dir/made here 7"), b"made here 7");
    assert_eq!(&read(&fs, "text")[5000..5012], b"changed here");
    let text = fs.resolve("text").unwrap();
    assert_eq!(xattr(&fs, text, b"user.a"), b"value");
    assert_eq!(xattr(&fs, text, b"user.b"), b"new");
}

#[test]
fn old_and_edonr_pools_of_a_big_endian_host_are_read() {
    let devices = [golden::golden("openzfs-2.3.2-big-endian-v28")];
    let spa = pool::open(&devices, false).unwrap();
    assert_eq!(spa.obstacles(), [Obstacle::OldVersion(28)]);
    pool::assert_clean(&spa);
    let fs = mount(spa.parts().dsl(), "be28/be", true).unwrap();
    assert_same(&fs, BIG_ENDIAN, "be28/be");
    // zdb of a little-endian host fails here: its abd_checksum_edonr_byteswap returns what was in the words before.
    let devices: [Arc<dyn Provider>; 1] = [golden::golden("openzfs-2.3.2-big-endian-edonr")];
    pool::assert_clean(&pool::open(&devices, false).unwrap());
}

#[test]
fn dedup_tables_of_a_big_endian_host_are_kept_up() {
    let devices = [golden::golden("openzfs-2.3.2-big-endian-dedup")];
    let spa = pool::open(&devices, false).unwrap();
    pool::assert_clean(&spa);
    let dsl = spa.parts().dsl();
    let objset = dsl.dataset("bed2/dedup").unwrap().objset().unwrap();
    let last = objset.hold(ObjectId(3)).unwrap();
    let mut word = [0; 8];
    last.read(8 * 2559, &mut word).unwrap();
    assert_eq!(u64::from_be_bytes(word), 2559 * 2559);
    last.read(8 * 2560, &mut word).unwrap();
    assert_eq!(u64::from_be_bytes(word), 2560 * 2560 + 1);
    drop((last, objset));
    dsl.snapshot(&["bed2/dedup@kept"], Vec::new()).unwrap();
    dsl.clone_dataset("bed2/clone", "bed2/dedup@kept", Vec::new())
        .unwrap();
    spa.sync().unwrap();
    pool::assert_clean(&spa);
    dsl.destroy_head("bed2/clone").unwrap();
    dsl.destroy_snapshots(&["bed2/dedup@kept"], false).unwrap();
    dsl.destroy_head("bed2/dedup").unwrap();
    spa.sync().unwrap();
    while dsl.is_freeing() {
        spa.sync().unwrap();
    }
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&devices, "bed2");
}
