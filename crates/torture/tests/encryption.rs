//! Encrypted data sets that OpenZFS wrote: each suite and format of keys, what is read with the key and what without.

use std::sync::Arc;

use base::{ErrorKind, ObjectId};
use crypt::{KeyFormat, Suite, WrappingKey};
use dsl::{Encrypted, KeyChange, NewRoot};
use geom::Provider;
use phys::PropValue;
use spa::{CreateOptions, NewPool, Spa};
use torture::files::Files;
use torture::golden::golden;
use torture::{Dice, pool};
use vdev::{AuxSpec, Grouping, NewDevice, TopSpec, VdevKind};
use zpl::Filesystem;
use zpl::mount::mount;

const NAME: &str = "openzfs-2.3.2-encrypted";
const PASSPHRASE: &[u8] = b"correct horse";
const HEX: &[u8] = b"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const RAW: &[u8] = b"0123456789abcdef0123456789ABCDEF";

/// Encryption roots, what was given for their keys, and the number that their files are made from.
const ROOTS: [(&str, &[u8], u64); 6] = [
    ("tank/aes-128-ccm", PASSPHRASE, 2),
    ("tank/aes-192-ccm", HEX, 3),
    ("tank/aes-256-ccm", RAW, 4),
    ("tank/aes-128-gcm", HEX, 5),
    ("tank/aes-192-gcm", RAW, 6),
    ("tank/aes-256-gcm", PASSPHRASE, 7),
];

fn open() -> Spa {
    pool::open(&[golden(NAME)], true).unwrap()
}

fn load(spa: &Spa, root: &str, given: &[u8]) -> base::Result<()> {
    let dsl = spa.parts().dsl();
    let encryption = dsl.encryption(&dsl.dir(root)?)?.unwrap();
    let (salt, iterations) = (encryption.salt, encryption.iterations);
    let key = WrappingKey::new(encryption.format, given, salt, iterations)?;
    dsl.load_key(root, key, false)
}

fn load_all(spa: &Spa) {
    for (root, given, _) in ROOTS {
        load(spa, root, given).unwrap_or_else(|e| panic!("{root}: {e}"));
    }
}

fn read(fs: &Filesystem, path: &str) -> String {
    let id = fs.resolve(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut bytes = vec![0; 1 << 20];
    let length = fs
        .read(id, 0, &mut bytes)
        .unwrap_or_else(|e| panic!("{path}: {e}"));
    bytes.truncate(length);
    String::from_utf8(bytes).unwrap()
}

/// What `seq` prints.
fn seq(first: u64, last: u64) -> String {
    (first..=last).map(|n| format!("{n}\n")).collect()
}

/// Checks the files that were made from a number; `path` and contents of those that were changed since.
fn check(spa: &Spa, name: &str, n: u64, changed: &[(&str, Option<&str>)]) {
    let fs = mount(spa.parts().dsl(), name, true).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut files = vec![
        ("small".to_owned(), seq(1, n)),
        ("big".to_owned(), seq(n * 1000, n * 1000 + 40_000)),
        ("dir/below/deep".to_owned(), seq(n, n + 20)),
        ("empty".to_owned(), String::new()),
        ("own/file".to_owned(), "owned\n".to_owned()),
    ];
    files.extend((1..=60).map(|i| (format!("dir/file{i}"), format!("{n} {i}\n"))));
    for (path, contents) in files {
        match changed.iter().find(|(changed, _)| *changed == path) {
            None => assert!(read(&fs, &path) == contents, "{name}/{path}"),
            Some((_, Some(contents))) => assert_eq!(read(&fs, &path), *contents),
            Some((_, None)) => {
                let gone = fs.resolve(&path).map_err(|e| e.kind());
                assert_eq!(gone, Err(ErrorKind::NotFound), "{name}/{path}");
            }
        }
    }
    let link = fs.resolve_link("link").unwrap();
    assert_eq!(fs.readlink(link).unwrap(), b"small");
    let attrs = fs.getattr(fs.resolve("own/file").unwrap()).unwrap();
    assert_eq!((attrs.uid, attrs.gid, attrs.mode & 0o7777), (7, 8, 0o640));
}

#[test]
fn every_suite_and_format_is_read_with_its_key() {
    let spa = open();
    check(&spa, "tank/plain", 1, &[]);
    load_all(&spa);
    for (root, _, n) in ROOTS {
        let changed: &[_] = match root {
            "tank/aes-256-gcm" => &[("big", None), ("small", Some("later\n"))],
            _ => &[],
        };
        check(&spa, root, n, changed);
    }
    check(&spa, "tank/aes-256-gcm/child", 20, &[]);
    check(&spa, "tank/aes-128-gcm/large", 21, &[]);
    check(&spa, "tank/aes-256-gcm@one", 7, &[]);
    check(
        &spa,
        "tank/aes-256-gcm/clone",
        7,
        &[("small", Some("changed\n"))],
    );
    let dsl = spa.parts().dsl();
    let volume = dsl
        .dataset("tank/aes-256-gcm/vol")
        .unwrap()
        .objset()
        .unwrap();
    assert_eq!(
        zap::lookup_u64(&volume, ObjectId(2), "size").unwrap(),
        Some(4 << 20)
    );
    assert!(spa.parts().pipeline().errors().is_empty());
}

#[test]
fn without_a_key_everything_but_contents_is_there() {
    let spa = open();
    let dsl = spa.parts().dsl();
    for (root, given, _) in ROOTS {
        let refused = mount(dsl, root, true).map(|_| ()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NoKey, "{root}: {refused}");
        let wrong = match given {
            PASSPHRASE => b"correct house".to_vec(),
            _ => given.iter().rev().copied().collect(),
        };
        let refused = load(&spa, root, &wrong).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Permission, "{root}: {refused}");
    }
    let head = dsl.dataset("tank/aes-256-gcm").unwrap();
    let snapshots = dsl.snapshots(&head).unwrap();
    assert_eq!(snapshots[0].0, "one");
    assert!(dsl.stats(&head).unwrap().referenced > 100_000);
    // Every block is there and has the right checksum.
    pool::assert_clean(&spa);
    // Reading a dnode needs the key, also for what is not secret.
    let objset = head.objset().unwrap();
    let refused = objset.hold(ObjectId(1)).map(|_| ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoKey);
    assert!(
        spa.parts().pipeline().errors().is_empty(),
        "nothing is damaged"
    );
}

#[test]
fn an_unloaded_key_opens_nothing_more() {
    let spa = open();
    let dsl = spa.parts().dsl();
    load_all(&spa);
    let fs = mount(dsl, "tank/aes-256-gcm/child", true).unwrap();
    assert_eq!(read(&fs, "small"), seq(1, 20));
    let refused = dsl.unload_key("tank/aes-256-gcm").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy);
    drop(fs);
    let refused = dsl.unload_key("tank/aes-256-gcm/child").unwrap_err();
    assert_eq!(
        refused.kind(),
        ErrorKind::InvalidInput,
        "not an encryption root"
    );
    dsl.unload_key("tank/aes-256-gcm").unwrap();
    assert_eq!(
        dsl.unload_key("tank/aes-256-gcm").unwrap_err().kind(),
        ErrorKind::NoKey
    );
    let refused = mount(dsl, "tank/aes-256-gcm/child", true).map(|_| ());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NoKey);
    let head = dsl.dataset("tank/aes-256-gcm/child").unwrap();
    let refused = head.objset().unwrap().hold(ObjectId(1)).map(|_| ());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NoKey);
    // Others are not concerned, and it can be loaded again.
    check(&spa, "tank/aes-128-ccm", 2, &[]);
    load(&spa, "tank/aes-256-gcm", PASSPHRASE).unwrap();
    check(&spa, "tank/aes-256-gcm/child", 20, &[]);
}

/// What administration does to encrypted data sets without writing into them.
#[test]
fn encrypted_data_sets_are_administered_without_a_key() {
    let devices = [golden(NAME)];
    let spa = pool::open(&devices, false).unwrap();
    assert!(!spa.is_readonly(), "{:?}", spa.obstacles());
    let dsl = spa.parts().dsl();
    let used = spa.space().alloc;
    pool::write_file(&spa, "tank/plain", "new", &[7; 300_000]);
    let refused = |done: base::Result<()>, kind| {
        let error = done.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    };
    let created = pool::create_fs(&spa, "tank/aes-128-ccm/new", &[]);
    refused(created, ErrorKind::NoKey);
    // A clone shares the key of its origin, wherever it is.
    dsl.clone_dataset("tank/cloned", "tank/aes-256-gcm@one", Vec::new())
        .unwrap();
    dsl.destroy_head("tank/cloned").unwrap();
    let rolled_back = dsl.rollback("tank/aes-256-gcm", None, 0);
    refused(rolled_back, ErrorKind::NoKey);
    // A bookmark needs no key, and has the number of the snapshot's set of IVs.
    dsl.create_bookmark("tank/aes-256-gcm#b", "tank/aes-256-gcm@one")
        .unwrap();
    let marked = dsl.bookmarks(&dsl.dataset("tank/aes-256-gcm").unwrap());
    assert_ne!(marked.unwrap()[0].ivset_guid(), 0);
    let moved = dsl.rename("tank/aes-256-gcm/child", "tank/child");
    refused(moved, ErrorKind::Permission);
    dsl.rename("tank/aes-128-gcm", "tank/plain/moved").unwrap();
    let snapshots = ["tank/aes-256-gcm/child@two", "tank/plain@two"];
    dsl.snapshot(&snapshots, Vec::new()).unwrap();
    // The clone gives up its share of the key, the root the key itself.
    dsl.destroy_head("tank/aes-256-gcm/clone").unwrap();
    dsl.destroy_head("tank/aes-128-ccm").unwrap();
    dsl.destroy_snapshots(&["tank/aes-256-gcm@one"], false)
        .unwrap();
    for _ in 0..4 {
        spa.sync().unwrap();
    }
    assert!(spa.space().alloc < used, "what was destroyed is free");
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&devices, "tank");

    let spa = pool::open(&devices, false).unwrap();
    load(&spa, "tank/aes-256-gcm", PASSPHRASE).unwrap();
    load(&spa, "tank/plain/moved", HEX).unwrap();
    let later: &[_] = &[("big", None), ("small", Some("later\n"))];
    check(&spa, "tank/aes-256-gcm", 7, later);
    check(&spa, "tank/aes-256-gcm/child@two", 20, &[]);
    check(&spa, "tank/plain/moved/large", 21, &[]);
    assert_eq!(
        spa.feature(phys::feature::ENCRYPTION),
        spa::FeatureState::Active
    );
}

/// The clone of an encryption root becomes the root of all that has its key from it, with and without the key.
#[test]
fn a_promoted_clone_is_the_encryption_root() {
    let devices = [golden(NAME)];
    for has_key in [false, true] {
        let spa = pool::open(&devices, false).unwrap();
        let dsl = spa.parts().dsl();
        let (old, new) = match has_key {
            false => ("tank/aes-256-gcm", "tank/aes-256-gcm/clone"),
            true => ("tank/aes-128-gcm", "tank/promoted"),
        };
        if has_key {
            load(&spa, old, HEX).unwrap();
            pool::write_file(&spa, old, "first", b"first");
            dsl.snapshot(&["tank/aes-128-gcm@now"], Vec::new()).unwrap();
            dsl.clone_dataset(new, "tank/aes-128-gcm@now", Vec::new())
                .unwrap();
            pool::create_fs(&spa, "tank/promoted/below", &[]).unwrap();
            pool::write_file(&spa, "tank/promoted/below", "file", b"below");
        }
        let below = match has_key {
            false => "tank/aes-256-gcm/child",
            true => "tank/aes-128-gcm/large",
        };
        let location = dsl.prop(&dsl.dataset(old).unwrap(), "keylocation").unwrap();
        assert!(location.is_some());
        dsl.promote(new).unwrap();
        for name in [old, new, below] {
            let encryption = dsl.encryption(&dsl.dir(name).unwrap()).unwrap().unwrap();
            assert_eq!(dsl.encryption_root(&encryption).unwrap(), new, "{name}");
            assert_eq!(encryption.is_available, has_key, "{name}");
        }
        let moved = dsl.prop(&dsl.dataset(new).unwrap(), "keylocation").unwrap();
        assert_eq!(moved.map(|it| it.value), location.map(|it| it.value));
        assert_eq!(
            dsl.prop(&dsl.dataset(old).unwrap(), "keylocation").unwrap(),
            None
        );
        if has_key {
            check(&spa, below, 21, &[]);
            dsl.unload_key(new).unwrap();
        }
        pool::assert_clean(&spa);
        spa.export().unwrap();
        drop(spa);
        pool::verify_with_zdb(&devices, "tank");

        let spa = pool::open(&devices, false).unwrap();
        let given = if has_key { HEX } else { PASSPHRASE };
        load(&spa, old, given).unwrap_err();
        load(&spa, new, given).unwrap();
        match has_key {
            false => check(&spa, below, 20, &[]),
            true => check(&spa, below, 21, &[]),
        }
        spa.export().unwrap();
    }
}

#[test]
fn what_is_written_is_encrypted_and_read_with_the_key() {
    let devices = [golden(NAME)];
    let spa = pool::open(&devices, false).unwrap();
    load_all(&spa);
    let dsl = spa.parts().dsl();
    let mut names: Vec<&str> = ROOTS.iter().map(|(root, ..)| *root).collect();
    names.extend([
        "tank/aes-256-gcm/child",
        "tank/aes-128-gcm/large",
        "tank/aes-256-gcm/clone",
    ]);
    let secret = b"a secret that must not be found on the disk ".repeat(6000);
    for name in &names {
        pool::write_file(&spa, name, "written", &secret);
    }
    let (mut files, mut dice) = (Files::default(), Dice::new(torture::seed(1)));
    pool::create_fs(&spa, "tank/aes-192-ccm/new", &[("recordsize", 4096)]).unwrap();
    let fs = mount(dsl, "tank/aes-192-ccm/new", false).unwrap();
    for step in 0..150 {
        let done = files.step(&fs, &mut dice);
        done.unwrap_or_else(|e| panic!("step {step}: {e}"));
    }
    drop(fs);
    let now = "tank/aes-192-ccm/new@now";
    dsl.snapshot(&[now], Vec::new()).unwrap();
    dsl.clone_dataset("tank/cloned", now, Vec::new()).unwrap();
    pool::write_file(&spa, "tank/cloned", "written", &secret);
    names.push("tank/cloned");
    dsl.rollback("tank/aes-256-gcm", None, 0).unwrap();
    spa.sync().unwrap();
    // A key with changes that are not on disk is not unloaded.
    pool::write_file(&spa, "tank/aes-192-gcm", "last", b"last");
    spa.sync().unwrap();
    dsl.unload_key("tank/aes-192-gcm").unwrap();
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&devices, "tank");
    let size = devices[0].shape().mediasize;
    let mut bytes = vec![0; usize::try_from(size).unwrap()];
    devices[0].read(0, &mut bytes).unwrap();
    let found = bytes.windows(32).position(|window| window == &secret[..32]);
    assert_eq!(found, None, "the secret is in the clear");

    let spa = pool::open(&devices, false).unwrap();
    load_all(&spa);
    let dsl = spa.parts().dsl();
    for name in names.iter().filter(|name| **name != "tank/aes-256-gcm") {
        let fs = mount(dsl, name, true).unwrap();
        assert!(read(&fs, "written").as_bytes() == secret, "{name}");
    }
    check(&spa, "tank/aes-256-gcm", 7, &[]);
    let fs = mount(dsl, "tank/aes-192-ccm/new@now", true).unwrap();
    files.compare(&fs).unwrap();
    let fs = mount(dsl, "tank/aes-192-gcm", true).unwrap();
    assert_eq!(read(&fs, "last"), "last");
    assert!(spa.parts().pipeline().errors().is_empty());
}

/// Records that are not compressed are encrypted and written while their txg is open.
#[test]
fn streams_are_encrypted_and_read_as_they_were_changed_last() {
    const PIECE: usize = 1 << 20;
    const SECRET: &[u8] = b"that must not be found on the disk";
    let device: Arc<dyn Provider> = Arc::new(ram::Memory::new("/disk", 256 << 20));
    let spa = pool_of_encrypted_root(&device, b"in a file of its own");
    let dsl = spa.parts().dsl();
    let names = ["tank/stream", "tank/other/stream"];
    let mut written: Vec<u8> = Vec::new();
    for n in 0..24 {
        let text = [SECRET, format!(" in piece {n:8} ").as_bytes()].concat();
        written.extend(text.iter().cycle().take(PIECE));
    }
    let off = u64::from(phys::CompressType::Off.raw());
    let mut dice = Dice::new(torture::seed(7));
    for name in names {
        pool::create_fs(&spa, name, &[("compression", off)]).unwrap();
        pool::write_file(&spa, name, "written", b"");
        let fs = mount(dsl, name, false).unwrap();
        let file = fs.resolve("written").unwrap();
        for (n, bytes) in written.chunks(PIECE).enumerate() {
            fs.write(file, (n * PIECE) as u64, bytes).unwrap();
        }
    }
    // What was begun is abandoned.
    for _ in 0..20 {
        let at = dice.below((written.len() - PIECE) as u64) as usize;
        let len = 1 + dice.below(PIECE as u64) as usize;
        let range = at..at + len;
        written[range.clone()].fill(0xa5);
        for name in names {
            let fs = mount(dsl, name, false).unwrap();
            let file = fs.resolve("written").unwrap();
            fs.write(file, at as u64, &written[range.clone()]).unwrap();
        }
    }
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(std::slice::from_ref(&device), "tank");
    let mut bytes = vec![0; 256 << 20];
    device.read(0, &mut bytes).unwrap();
    let found = bytes
        .windows(SECRET.len())
        .position(|window| window == SECRET);
    assert_eq!(found, None, "a piece is in the clear");
    let spa = pool::open(&[device], false).unwrap();
    load(&spa, "tank", PASSPHRASE).unwrap();
    for name in names {
        let fs = mount(spa.parts().dsl(), name, true).unwrap();
        let file = fs.resolve("written").unwrap();
        let mut now = vec![0; written.len()];
        assert_eq!(fs.read(file, 0, &mut now).unwrap(), written.len());
        assert!(now == written, "{name}");
    }
}

/// A pool of the kernel that was not exported: what was written since its last txg is in the intent log.
#[test]
fn an_encrypted_log_is_claimed_without_the_key_and_replayed_with_it() {
    let devices = [golden("openzfs-2.3.2-encrypted-log")];
    let spa = pool::open(&devices, false).unwrap();
    assert!(!spa.is_readonly());
    spa.sync().unwrap();
    pool::assert_clean(&spa);
    load(&spa, "logged", RAW).unwrap();
    let dsl = spa.parts().dsl();
    let fs = mount(dsl, "logged", false).unwrap();
    assert_eq!(read(&fs, "d/moved"), "before\n");
    // Nobody has waited for what is in it.
    assert_eq!(read(&fs, "after"), "");
    assert_eq!(read(&fs, "three"), "three\n");
    assert_eq!(read(&fs, "synced"), "\0".repeat(16384));
    assert_eq!(read(&fs, "copy"), seq(1, 20_000));
    // And a log of our own.
    let file = fs.resolve("three").unwrap();
    fs.write(file, 0, b"four\n").unwrap();
    fs.fsync(file).unwrap();
    drop(fs);
    spa.sync().unwrap();
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&devices, "logged");
}

/// A key of each format for a data set, as `zfs change-key` makes it.
fn new_key(format: KeyFormat, given: &[u8]) -> KeyChange {
    let (salt, iterations) = match format {
        KeyFormat::Passphrase => (99, 100_000),
        _ => (0, 0),
    };
    KeyChange::New {
        key: NewRoot {
            suite: Suite::Aes256Gcm,
            format,
            salt,
            iterations,
            key: WrappingKey::new(format, given, salt, iterations).unwrap(),
        },
        location: "prompt".to_owned(),
    }
}

#[test]
fn wrapping_keys_are_changed_and_no_block_is_written_again() {
    let devices = [golden(NAME)];
    let spa = pool::open(&devices, false).unwrap();
    let dsl = spa.parts().dsl();
    let root = "tank/aes-256-gcm";
    let change = |name: &str, change| dsl.change_key(name, change);
    let locked = change(root, new_key(KeyFormat::Hex, HEX)).unwrap_err();
    assert_eq!(locked.kind(), ErrorKind::NoKey);
    load_all(&spa);
    let above = dsl.dataset(root).unwrap().root_bp();
    pool::create_fs(&spa, "tank/aes-256-gcm/clone/below", &[]).unwrap();
    pool::write_file(&spa, "tank/aes-256-gcm/clone/below", "file", b"below");
    spa.sync().unwrap();
    change(root, new_key(KeyFormat::Hex, HEX)).unwrap();
    // What inherits becomes a root of its own, and gives that up again.
    change("tank/aes-256-gcm/child", new_key(KeyFormat::Raw, RAW)).unwrap();
    change("tank/aes-128-gcm/large", new_key(KeyFormat::Raw, RAW)).unwrap();
    change("tank/aes-128-gcm/large", KeyChange::Inherit).unwrap();
    for (name, what) in [
        ("tank/plain", new_key(KeyFormat::Raw, RAW)),
        ("tank/aes-256-gcm/clone", new_key(KeyFormat::Raw, RAW)),
        ("tank/aes-256-gcm/vol", KeyChange::Inherit),
        ("tank/aes-192-gcm", KeyChange::Inherit),
    ] {
        let refused = change(name, what).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{name}: {refused}");
    }
    assert_eq!(dsl.dataset(root).unwrap().root_bp(), above);
    check(&spa, "tank/aes-256-gcm@one", 7, &[]);
    dsl.unload_key("tank/aes-256-gcm/child").unwrap();
    dsl.unload_key(root).unwrap();
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&devices, "tank");

    let spa = pool::open(&devices, false).unwrap();
    let dsl = spa.parts().dsl();
    let refused = load(&spa, root, PASSPHRASE).unwrap_err();
    assert_eq!(
        refused.kind(),
        ErrorKind::InvalidInput,
        "a passphrase has another length"
    );
    load(&spa, root, HEX).unwrap();
    load(&spa, "tank/aes-128-gcm", HEX).unwrap();
    check(
        &spa,
        "tank/aes-256-gcm/clone",
        7,
        &[("small", Some("changed\n"))],
    );
    check(&spa, "tank/aes-128-gcm/large", 21, &[]);
    let fs = mount(dsl, "tank/aes-256-gcm/clone/below", true).unwrap();
    assert_eq!(read(&fs, "file"), "below");
    let refused = mount(dsl, "tank/aes-256-gcm/child", true).map(|_| ());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NoKey);
    load(&spa, "tank/aes-256-gcm/child", RAW).unwrap();
    check(&spa, "tank/aes-256-gcm/child", 20, &[]);
}

const KERNEL: &str = r#"
set -e
printf 'correct horse' >/tmp/pass
printf '000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f' >/tmp/hex
printf '0123456789abcdef0123456789ABCDEF' >/tmp/raw
cp /host/image /tmp/image; zpool import -d /tmp -R /mnt -N tank
echo 'correct horse' | zfs load-key tank/aes-256-gcm
echo -n 'battery staple' >/tmp/new
zfs load-key -L file:///tmp/new tank/aes-128-gcm
zfs load-key -a
zfs mount -a
for fs in aes-128-ccm aes-192-ccm aes-256-ccm aes-128-gcm aes-192-gcm aes-256-gcm aes-192-ccm/new cloned; do
  cd /mnt/mnt/tank/$fs
  [ "$(sha256sum <written)" = "$(sha256sum </host/written)" ]
  echo kernel >kernel; cp written again
done
cd /mnt/mnt/tank/aes-192-ccm/new; sha256sum -c /host/sums >/host/check.log || { grep -v OK /host/check.log; exit 1; }
cd /; zfs snapshot -r tank@kernel; zfs destroy -r tank/cloned
zpool scrub -w tank; zpool status -v tank; zfs get keystatus,encryptionroot tank/aes-192-ccm/new
zpool status tank | grep -q 'with 0 errors'
zpool status tank | grep -q 'No known data errors'
zpool export tank; cp /tmp/image /host/image
"#;

/// `ENCRYPTION=all`: a minute.
#[test]
fn the_kernel_takes_what_was_written_here() {
    if std::env::var_os("ENCRYPTION").is_none() {
        return;
    }
    let Some(guest) = oracle::vm::Guest::find() else {
        return;
    };
    let host = tempfile::tempdir().unwrap();
    let image = host.path().join("image");
    std::fs::write(&image, torture::golden::bytes(NAME)).unwrap();
    let open = || {
        let device = geom::disk::open(&image, geom::disk::OpenMode::ReadWrite).unwrap();
        let spa = pool::open(&[device], false).unwrap();
        load_all(&spa);
        spa
    };
    let spa = open();
    let dsl = spa.parts().dsl();
    let written = b"written here ".repeat(20_000);
    std::fs::write(host.path().join("written"), &written).unwrap();
    pool::create_fs(&spa, "tank/aes-192-ccm/new", &[("recordsize", 4096)]).unwrap();
    let (mut files, mut dice) = (Files::default(), Dice::new(torture::seed(1)));
    let fs = mount(dsl, "tank/aes-192-ccm/new", false).unwrap();
    for _ in 0..150 {
        files.step(&fs, &mut dice).unwrap();
    }
    std::fs::write(host.path().join("sums"), files.sha256sums()).unwrap();
    drop(fs);
    spa.sync().unwrap();
    dsl.snapshot(&["tank/aes-256-gcm/child@two"], Vec::new())
        .unwrap();
    dsl.clone_dataset("tank/cloned", "tank/aes-256-gcm@one", Vec::new())
        .unwrap();
    let changed = new_key(KeyFormat::Passphrase, b"battery staple");
    dsl.change_key("tank/aes-128-gcm", changed).unwrap();
    let names = ROOTS.iter().map(|(root, ..)| *root);
    for name in names.chain(["tank/aes-192-ccm/new", "tank/cloned"]) {
        pool::write_file(&spa, name, "written", &written);
    }
    spa.export().unwrap();
    drop(spa);
    let outcome = guest.run(KERNEL, host.path(), &[]);
    outcome.assert_success();
    let device = geom::disk::open(&image, geom::disk::OpenMode::ReadWrite).unwrap();
    let spa = pool::open(&[device], false).unwrap();
    load(&spa, "tank/aes-192-ccm", HEX).unwrap();
    load(&spa, "tank/aes-128-ccm", PASSPHRASE).unwrap();
    load(&spa, "tank/aes-256-gcm", PASSPHRASE).unwrap();
    for name in [
        "tank/aes-192-ccm/new",
        "tank/aes-128-ccm",
        "tank/aes-256-gcm@kernel",
    ] {
        let fs = mount(spa.parts().dsl(), name, true).unwrap();
        assert_eq!(read(&fs, "kernel"), "kernel\n");
        assert!(read(&fs, "again").as_bytes() == written);
    }
    pool::assert_clean(&spa);
}

/// The key of an encryption root.
fn root_key(suite: Suite, format: KeyFormat, given: &[u8]) -> NewRoot {
    let KeyChange::New { key, .. } = new_key(format, given) else {
        unreachable!("a new key");
    };
    NewRoot { suite, ..key }
}

fn at_prompt() -> Vec<(String, PropValue)> {
    vec![(
        "keylocation".to_owned(),
        PropValue::Text("prompt".to_owned()),
    )]
}

fn create(spa: &Spa, name: &str, how: Encrypted) {
    let props = match how {
        Encrypted::Root(_) => at_prompt(),
        _ => Vec::new(),
    };
    let new = dsl::NewDataset {
        name: name.to_owned(),
        type_: phys::ObjsetType::Zfs,
        flags: 0,
        props,
        init: zpl::mount::init(zpl::NewFilesystem::default(), true),
    };
    spa.parts().dsl().create_encrypted(new, how).unwrap();
}

/// Data sets of the pool whose root is encrypted: the suite of each, and its encryption root.
const BELOW: [(&str, Option<Suite>, &str); 7] = [
    ("tank", Some(Suite::Aes192Ccm), "tank"),
    ("tank/same", Some(Suite::Aes192Ccm), "tank"),
    ("tank/other", Some(Suite::Aes256Gcm), "tank"),
    ("tank/clear", None, ""),
    ("tank/origin", Some(Suite::Aes128Gcm), "tank/promoted"),
    ("tank/promoted", Some(Suite::Aes128Gcm), "tank/promoted"),
    (
        "tank/promoted/below",
        Some(Suite::Aes256Ccm),
        "tank/promoted",
    ),
];

/// A new pool whose root is encrypted, with other suites below it, and a promoted clone of an encryption root; each has
/// a file `written`.
fn pool_of_encrypted_root(device: &Arc<dyn Provider>, written: &[u8]) -> Spa {
    let disk = NewDevice {
        kind: VdevKind::Disk,
        path: device.name().to_owned(),
        provider: device.clone(),
    };
    let spa = Spa::create(CreateOptions {
        name: "tank".to_owned(),
        aux: AuxSpec::default(),
        vdevs: vec![TopSpec::new(Grouping::Single, vec![disk])],
        new: NewPool {
            ashift: 12,
            features: phys::feature::kept().collect(),
            fs_props: at_prompt(),
            encryption: Some(root_key(
                Suite::Aes192Ccm,
                KeyFormat::Passphrase,
                PASSPHRASE,
            )),
            ..NewPool::default()
        },
        init_root: zpl::mount::init(zpl::NewFilesystem::default(), true),
        command: "zpool create -O encryption=aes-192-ccm tank".to_owned(),
        host: pool::host(),
        settings: pool::settings(),
    })
    .unwrap();
    let dsl = spa.parts().dsl();
    create(&spa, "tank/same", Encrypted::AsAbove);
    create(&spa, "tank/other", Encrypted::In(Suite::Aes256Gcm));
    create(&spa, "tank/clear", Encrypted::Off);
    let key = root_key(Suite::Aes128Gcm, KeyFormat::Hex, HEX);
    create(&spa, "tank/origin", Encrypted::Root(key));
    pool::write_file(&spa, "tank/origin", "written", written);
    dsl.snapshot(&["tank/origin@then"], Vec::new()).unwrap();
    dsl.clone_dataset("tank/promoted", "tank/origin@then", Vec::new())
        .unwrap();
    create(&spa, "tank/promoted/below", Encrypted::In(Suite::Aes256Ccm));
    dsl.promote("tank/promoted").unwrap();
    // The clone has the file from its origin.
    let has_it = ["tank/origin", "tank/promoted"];
    for (name, ..) in BELOW.iter().filter(|(name, ..)| !has_it.contains(name)) {
        pool::write_file(&spa, name, "written", written);
    }
    spa
}

/// Loads both keys of that pool, and checks what is in it.
fn check_encrypted_root(spa: &Spa, written: &[u8]) {
    let dsl = spa.parts().dsl();
    for (name, suite, _) in BELOW {
        let opened = mount(dsl, name, true).map(|_| ()).map_err(|e| e.kind());
        let expected = suite.map_or(Ok(()), |_| Err(ErrorKind::NoKey));
        assert_eq!(opened, expected, "{name}");
    }
    load(spa, "tank", PASSPHRASE).unwrap();
    load(spa, "tank/promoted", HEX).unwrap();
    for (name, suite, root) in BELOW {
        let encryption = dsl.encryption(&dsl.dir(name).unwrap()).unwrap();
        assert_eq!(encryption.as_ref().map(|it| it.suite), suite, "{name}");
        if let Some(encryption) = encryption {
            assert_eq!(dsl.encryption_root(&encryption).unwrap(), root, "{name}");
        }
        let fs = mount(dsl, name, true).unwrap();
        assert!(read(&fs, "written").as_bytes() == written, "{name}");
    }
    pool::assert_clean(spa);
}

#[test]
fn the_root_of_a_pool_is_encrypted_and_another_suite_is_below_it() {
    let device: Arc<dyn Provider> = Arc::new(ram::Memory::new("/disk", 128 << 20));
    let written = b"what must not be found on the disk ".repeat(6000);
    let spa = pool_of_encrypted_root(&device, &written);
    let dsl = spa.parts().dsl();
    dsl.unload_key("tank/promoted").unwrap();
    // A suite needs a key to be under, which is loaded.
    for (name, kind) in [
        ("tank/promoted/new", ErrorKind::NoKey),
        ("tank/clear/new", ErrorKind::InvalidInput),
    ] {
        let new = dsl::NewDataset {
            name: name.to_owned(),
            type_: phys::ObjsetType::Zfs,
            flags: 0,
            props: Vec::new(),
            init: zpl::mount::init(zpl::NewFilesystem::default(), true),
        };
        let refused = dsl.create_encrypted(new, Encrypted::In(Suite::Aes128Ccm));
        assert_eq!(refused.unwrap_err().kind(), kind, "{name}");
    }
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(std::slice::from_ref(&device), "tank");
    let spa = pool::open(&[device], false).unwrap();
    check_encrypted_root(&spa, &written);
}

const KERNEL_ROOT: &str = r#"
set -e
printf '000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f' >/tmp/hex
zpool import -d /dev -R /mnt -N tank
echo 'correct horse' | zfs load-key tank
zfs load-key -L file:///tmp/hex tank/promoted
zfs mount -a
[ "$(zfs get -H -o value encryption tank/other)" = aes-256-gcm ]
[ "$(zfs get -H -o value encryptionroot tank/other)" = tank ]
[ "$(zfs get -H -o value encryption tank/clear)" = off ]
[ "$(zfs get -H -o value encryptionroot tank/origin)" = tank/promoted ]
for fs in tank tank/same tank/other tank/clear tank/origin tank/promoted tank/promoted/below; do
  cd /mnt/$fs
  [ "$(sha256sum <written)" = "$(sha256sum </host/written)" ]
  echo kernel >kernel; cp written again
done
cd /; zfs create -o encryption=aes-128-ccm tank/other/kernels; cp /host/written /mnt/tank/other/kernels/
zfs snapshot -r tank@kernel
zfs unmount -a; zfs unload-key -r tank
echo 'correct horse' | zfs load-key tank
echo 'battery staple' >/tmp/new
zfs load-key -L file:///tmp/hex tank/promoted
zfs change-key -o keyformat=passphrase -o keylocation=file:///tmp/new -o pbkdf2iters=100000 tank/promoted
zfs mount -a
[ "$(sha256sum </mnt/tank/origin/again)" = "$(sha256sum </host/written)" ]
zpool scrub -w tank; zpool status -v tank
zpool status tank | grep -q 'with 0 errors'
zpool status tank | grep -q 'No known data errors'
zpool export tank
"#;

/// `ENCRYPTION=all`: a minute.
#[test]
fn the_kernel_takes_an_encrypted_root_and_a_promoted_clone() {
    if std::env::var_os("ENCRYPTION").is_none() {
        return;
    }
    let Some(guest) = oracle::vm::Guest::find() else {
        return;
    };
    let host = tempfile::tempdir().unwrap();
    let written = b"written here ".repeat(20_000);
    std::fs::write(host.path().join("written"), &written).unwrap();
    let device = || pool::images(host.path(), 1, 128 << 20);
    let spa = pool_of_encrypted_root(&device()[0], &written);
    spa.export().unwrap();
    drop(spa);
    let disk = host.path().join("disk0");
    guest
        .run(KERNEL_ROOT, host.path(), &[&disk])
        .assert_success();
    let spa = pool::open(&device(), false).unwrap();
    load(&spa, "tank", PASSPHRASE).unwrap();
    load(&spa, "tank/promoted", b"battery staple").unwrap();
    let dsl = spa.parts().dsl();
    for (name, ..) in BELOW {
        for name in [name.to_owned(), format!("{name}@kernel")] {
            let fs = mount(dsl, &name, true).unwrap();
            assert_eq!(read(&fs, "kernel"), "kernel\n", "{name}");
            assert!(read(&fs, "again").as_bytes() == written, "{name}");
        }
    }
    let kernels = dsl.encryption(&dsl.dir("tank/other/kernels").unwrap());
    assert_eq!(kernels.unwrap().unwrap().suite, Suite::Aes128Ccm);
    let fs = mount(dsl, "tank/other/kernels", true).unwrap();
    assert!(read(&fs, "written").as_bytes() == written);
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&device(), "tank");
}

#[test]
fn a_key_has_the_format_that_its_root_says() {
    let spa = open();
    let dsl = spa.parts().dsl();
    let of = |name: &str| dsl.encryption(&dsl.dir(name).unwrap()).unwrap();
    assert_eq!(of("tank/plain"), None);
    for (root, given, _) in ROOTS {
        let encryption = of(root).unwrap();
        assert_eq!(format!("tank/{}", encryption.suite), root);
        let format = match given {
            PASSPHRASE => KeyFormat::Passphrase,
            HEX => KeyFormat::Hex,
            _ => KeyFormat::Raw,
        };
        assert_eq!(encryption.format, format);
        assert_eq!(dsl.encryption_root(&encryption).unwrap(), root);
    }
    let (head, clone) = (of("tank/aes-256-gcm"), of("tank/aes-256-gcm/clone"));
    assert_eq!(head, clone, "a clone has the key of its origin");
    let child = of("tank/aes-256-gcm/child").unwrap();
    assert_ne!(head.unwrap().key_guid, child.key_guid);
}
