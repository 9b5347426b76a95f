//! Pools of other hosts: versions before feature flags, and blocks in the byte order of a big-endian machine, also
//! under keys, and its intent logs. What the kernel said of each file is beside the images (path, mode, owner, group,
//! size, time, start of its SHA-256).

use std::sync::Arc;

use base::{ErrorKind, ObjectId};
use crypt::{KeyFormat, Suite, WrappingKey};
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

/// Loads the key of an encryption root in the images: the byte `a` and the number of the suite, 32 times.
fn load(spa: &Spa, root: &str, suite: Suite) {
    let key = load_of(spa, root, suite);
    key.unwrap_or_else(|e| panic!("{root}: {e}"));
}

fn load_of(spa: &Spa, root: &str, suite: Suite) -> base::Result<()> {
    let dsl = spa.parts().dsl();
    let encryption = dsl.encryption(&dsl.dir(root)?)?.unwrap();
    let byte = format!("{:02x}", b'a' + suite as u8);
    let key = WrappingKey::new(KeyFormat::Hex, byte.repeat(32).as_bytes(), 0, 0)?;
    assert_eq!(encryption.format, KeyFormat::Hex);
    dsl.load_key(root, key, false)
}

const SUITES: [(&str, Suite); 6] = [
    ("bec/aes-128-ccm", Suite::Aes128Ccm),
    ("bec/aes-192-ccm", Suite::Aes192Ccm),
    ("bec/aes-256-ccm", Suite::Aes256Ccm),
    ("bec/aes-128-gcm", Suite::Aes128Gcm),
    ("bec/aes-192-gcm", Suite::Aes192Gcm),
    ("bec/aes-256-gcm", Suite::Aes256Gcm),
];

/// Checks an objset of each suite: blocks of three levels, words that are only authenticated, a directory, and a bonus
/// that is encrypted in its block of dnodes.
fn check_suites(spa: &Spa) {
    for (name, _) in SUITES {
        let dataset = spa.parts().dsl().dataset(name).unwrap();
        let objset = dataset.objset().unwrap();
        for (object, count, more) in [(1, 8192, 0), (2, 1000, 1)] {
            let object = objset.hold(ObjectId(object)).unwrap();
            let mut bytes = vec![0; count * 8];
            object.read(0, &mut bytes).unwrap();
            for (n, word) in (0u64..).zip(bytes.as_chunks::<8>().0) {
                let have = match more {
                    0 => u64::from_be_bytes(*word),
                    _ => u64::from_le_bytes(*word),
                };
                assert_eq!(have, n * n + more, "{name}: word {n}");
            }
        }
        for n in 0..300 {
            let spaces = if n == 7 { 60 } else { 0 };
            let found = zap::lookup_u64(&objset, ObjectId(3), &format!("a name {n}{:spaces$}", ""));
            assert_eq!(found.unwrap(), Some(n), "{name}");
        }
        let bonus = objset.hold(ObjectId(4)).unwrap().bonus();
        // Attributes are converted where the registry of a file system is known; to the block they are bytes.
        for (n, word) in (0u64..20).zip(bonus.as_chunks::<8>().0) {
            assert_eq!(u64::from_be_bytes(*word), n * n * n + 1, "{name}");
        }
    }
    let gang = spa.parts().dsl().dataset("bec/gang").unwrap();
    let objset = gang.objset().unwrap();
    let object = objset.hold(ObjectId(1)).unwrap();
    let mut bytes = vec![0; 16384];
    object.read(0, &mut bytes).unwrap();
    for (n, word) in (1u64..).zip(bytes.as_chunks::<8>().0) {
        let want = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        assert_eq!(u64::from_be_bytes(*word), want);
    }
}

const CRYPT: &str = "openzfs-2.3.2-big-endian-encrypted";

fn load_all(spa: &Spa) {
    for (name, suite) in SUITES {
        load(spa, name, suite);
    }
    load(spa, "bec/gang", Suite::Aes256Gcm);
    load(spa, "bec/files", Suite::Aes256Gcm);
    load(spa, "bec/small", Suite::Aes192Ccm);
}

#[test]
fn encrypted_data_sets_of_a_big_endian_host_are_read_and_written() {
    let devices = [golden::golden(CRYPT)];
    let spa = pool::open(&devices, false).unwrap();
    assert!(!spa.is_readonly(), "{:?}", spa.obstacles());
    pool::assert_clean(&spa);
    let dsl = spa.parts().dsl();
    let locked = mount(dsl, "bec/files", true).map(|_| ()).unwrap_err();
    assert_eq!(locked.kind(), ErrorKind::NoKey);
    let other = load_of(&spa, "bec/files", Suite::Aes128Ccm).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Permission);
    load_all(&spa);
    check_suites(&spa);
    let fs = mount(dsl, "bec/files", false).unwrap();
    assert_same(&fs, BIG_ENDIAN, "bec/files");
    check_xattrs(&fs);
    assert!(spa.parts().pipeline().errors().is_empty());

    // Blocks of dnodes, of directories and of files are changed, their neighbours stay.
    let small = mount(dsl, "bec/small", false).unwrap();
    for fs in [&fs, &small] {
        let dir = fs.resolve("dir").unwrap();
        for n in 0..40 {
            let name = format!("made here {n}");
            let made = fs.create_file(dir, name.as_bytes(), &Create::default());
            fs.write(made.unwrap().id, 0, name.as_bytes()).unwrap();
        }
        let text = fs.resolve("text").unwrap();
        fs.write(text, 5000, b"changed here").unwrap();
        fs.setxattr(text, b"user.b", b"new", SetXattr::Set).unwrap();
        fs.fsync(text).unwrap();
    }
    fs.unlink(fs.root(), b"random").unwrap();
    spa.sync().unwrap();
    dsl.snapshot(&["bec/files@here"], Vec::new()).unwrap();
    drop((fs, small));
    spa.sync().unwrap();
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&devices, "bec");

    let spa = pool::open(&devices, false).unwrap();
    load_all(&spa);
    check_suites(&spa);
    for name in ["bec/files", "bec/files@here", "bec/small"] {
        let fs = mount(spa.parts().dsl(), name, true).unwrap();
        let have = manifest(&fs);
        for want in BIG_ENDIAN
            .lines()
            .filter(|line| line.contains("fifty bytes"))
        {
            assert!(
                have.iter().any(|line| line.starts_with(want)),
                "{name}: {want}"
            );
        }
        assert_eq!(read(&fs, "dir/made here 7"), b"made here 7");
        assert_eq!(&read(&fs, "text")[5000..5012], b"changed here");
        let text = fs.resolve("text").unwrap();
        assert_eq!(xattr(&fs, text, b"user.a"), b"value");
        assert_eq!(xattr(&fs, text, b"user.b"), b"new");
    }
    assert!(spa.parts().pipeline().errors().is_empty());
}

/// Checks what the log of each file system of the image is about; `text` is what that file was before.
fn check_replayed(fs: &Filesystem, name: &str, text: &[u8]) {
    let attr = |path: &str| fs.getattr(fs.resolve_link(path).unwrap()).unwrap();
    let gone = |path: &str| fs.resolve(path).unwrap_err().kind() == ErrorKind::NotFound;
    let made = attr("made/moved");
    assert_eq!(made.id, ObjectId(2001), "{name}");
    assert_eq!((made.uid, made.gid, made.mode), (70, 80, 0o100_604));
    assert_eq!(read(fs, "made/moved"), b"written \0\0\0\0\0\0\0\0the log");
    assert_eq!(xattr(fs, made.id, b"user.apart"), b"a value in a file");
    let dir = attr("made");
    assert_eq!((dir.uid, dir.gid, dir.mode), (7, 8, 0o40_750));
    assert_eq!((dir.crtime.secs, dir.crtime.nanos), (1_700_002_002, 5));
    assert_eq!(dir.generation, 99);
    let link = fs.resolve_link("made/link in a log").unwrap();
    assert_eq!(fs.readlink(link).unwrap(), b"../created");
    let node = attr("made/node");
    assert_eq!((node.mode, node.rdev), (0o60_600, 0x0803));
    assert!(
        gone("created") && gone("made/gone") && gone("hard"),
        "{name}"
    );
    assert_eq!(attr("made/again").id, attr("text").id);
    assert_eq!(attr("text").links, 2);
    for path in ["hidden", "folder", "made/moved"] {
        let attr = attr(path);
        assert_eq!(attr.projid, 77, "{name}: {path}");
        assert_eq!((attr.crtime.secs, attr.crtime.nanos), (1_234_567, 89));
        assert_ne!(attr.pflags & phys::znode::pflags::HIDDEN, 0);
    }
    let id = attr("text").id;
    assert_eq!(xattr(fs, id, b"user.log"), b"from the log");
    assert_eq!(xattr(fs, id, b"user.a"), b"value");
    assert_eq!(read(fs, "first"), b"2nd");
    assert_eq!(read(fs, "second"), b"1st");
    let whiteout = attr("third");
    assert_eq!(
        (whiteout.id, whiteout.mode, whiteout.rdev),
        (ObjectId(2013), 0o20_000, 0)
    );
    let large = [vec![b'A'; 30_000], vec![b'B'; 30_000], vec![b'C'; 30_000]].concat();
    assert!(read(fs, "made/fourth") == large, "{name}");
    let mut want = text.to_vec();
    want[..28_000].fill(b'i');
    want[100..111].copy_from_slice(b"copied late");
    assert!(read(fs, "text") == want, "{name}");
}

#[test]
fn intent_logs_of_a_big_endian_host_are_claimed_and_replayed() {
    let source = pool::open(&[golden::golden("openzfs-2.3.2-big-endian")], true).unwrap();
    let source = mount(source.parts().dsl(), "be/be@late", true).unwrap();
    let text = read(&source, "text");
    let devices = [golden::golden("openzfs-2.3.2-big-endian-log")];
    let spa = pool::open(&devices, false).unwrap();
    assert!(!spa.is_readonly(), "{:?}", spa.obstacles());
    // Claimed, without any key.
    spa.sync().unwrap();
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&devices, "bel");

    let spa = pool::open(&devices, false).unwrap();
    load(&spa, "bel/gcm", Suite::Aes256Gcm);
    load(&spa, "bel/ccm", Suite::Aes128Ccm);
    for name in ["bel/plain", "bel/gcm", "bel/ccm"] {
        let fs = mount(spa.parts().dsl(), name, false).unwrap_or_else(|e| panic!("{name}: {e}"));
        check_replayed(&fs, name, &text);
        // And a log of our own.
        let second = fs.resolve("second").unwrap();
        fs.write(second, 0, b"now").unwrap();
        fs.fsync(second).unwrap();
        fs.write(second, 0, b"1st").unwrap();
        fs.fsync(second).unwrap();
    }
    spa.sync().unwrap();
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&devices, "bel");

    let spa = pool::open(&devices, true).unwrap();
    load(&spa, "bel/gcm", Suite::Aes256Gcm);
    load(&spa, "bel/ccm", Suite::Aes128Ccm);
    for name in ["bel/plain", "bel/gcm", "bel/ccm"] {
        let fs = mount(spa.parts().dsl(), name, true).unwrap();
        check_replayed(&fs, name, &text);
    }
    assert!(spa.parts().pipeline().errors().is_empty());
}
