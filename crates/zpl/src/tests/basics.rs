//! What single operations do.

use base::{ErrorKind, ObjectId, Result};
use dmu::Content;

use super::{Pool, check_tree, create};
use crate::{
    AtimePolicy, FileType, Filesystem, RenameKind, SetAttr, SetXattr, Settings, Time, pflags,
};

fn kind<T>(result: Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("this should have failed"),
        Err(error) => error.kind(),
    }
}

fn names(fs: &Filesystem, directory: ObjectId) -> Vec<String> {
    let entries = fs.list(directory).unwrap();
    let mut names: Vec<String> = entries
        .into_iter()
        .map(|e| String::from_utf8(e.name).unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_new_file_system_has_a_root() {
    let pool = Pool::new();
    let fs = pool.mount();
    let root = fs.getattr(fs.root()).unwrap();
    assert_eq!((root.mode, root.links, root.size), (0o040_755, 2, 2));
    assert_eq!(root.parent, fs.root());
    // What `zdb` shows of a directory that OpenZFS made on a new pool.
    assert_eq!(root.pflags, 0x8408_0000_0144);
    assert_eq!(check_tree(&fs), 1);
}

#[test]
fn files_keep_their_bytes() {
    let pool = Pool::new();
    let mut fs = pool.mount();
    let file = fs
        .create_file(fs.root(), b"file", &create(0o644))
        .unwrap()
        .id;
    let data: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    fs.write(file, 0, &data[..700]).unwrap();
    assert_eq!(fs.getattr(file).unwrap().blksz, 1024);
    fs.write(file, 700, &data[700..]).unwrap();
    assert_eq!(fs.getattr(file).unwrap().blksz, 16_384);
    fs = pool.remount(fs);
    let mut read = vec![0; data.len() + 10];
    assert_eq!(fs.read(file, 0, &mut read).unwrap(), data.len());
    assert_eq!(read[..data.len()], data);
    assert_eq!(fs.append(file, b"end").unwrap(), data.len() as u64);
    fs.truncate(file, 10).unwrap();
    fs.truncate(file, 20).unwrap();
    assert_eq!(fs.read(file, 0, &mut read).unwrap(), 20);
    assert_eq!(read[..10], data[..10]);
    assert_eq!(read[10..20], [0; 10]);
}

#[test]
fn holes_are_found() {
    let pool = Pool::new();
    let fs = pool.mount();
    let file = fs
        .create_file(fs.root(), b"sparse", &create(0o644))
        .unwrap()
        .id;
    fs.truncate(file, 16 << 40).unwrap();
    fs.write(file, 1 << 40, b"data").unwrap();
    assert_eq!(fs.seek_data(file, 0).unwrap(), Some(1 << 40));
    assert_eq!(
        fs.seek_hole(file, 1 << 40).unwrap(),
        Some((1 << 40) + 16_384)
    );
    assert_eq!(fs.seek_data(file, (1 << 40) + 16_384).unwrap(), None);
    assert_eq!(fs.seek_hole(file, 16 << 40).unwrap(), None);
    fs.punch_hole(file, 1 << 40, 1 << 20).unwrap();
    assert_eq!(fs.seek_data(file, 0).unwrap(), None);
    assert_eq!(fs.getattr(file).unwrap().size, 16 << 40);
    assert_eq!(
        kind(fs.write(file, u64::MAX - 3, b"too far")),
        ErrorKind::TooBig
    );
}

#[test]
fn contents_are_what_a_read_would_copy() {
    let pool = Pool::new();
    let fs = pool.mount();
    let file = fs
        .create_file(fs.root(), b"file", &create(0o644))
        .unwrap()
        .id;
    fs.write(file, 0, &[1; 300_000]).unwrap();
    pool.sync();
    fs.punch_hole(file, 131_072, 131_072).unwrap();
    fs.write(file, 290_000, &[2; 20_000]).unwrap();
    fs.truncate(file, 700_001).unwrap();
    for (from, len) in [
        (0, 1 << 20),
        (5, 131_072),
        (130_000, 3000),
        (299_999, 90_000),
        (700_000, 9),
    ] {
        let mut read = vec![9; len];
        let n = fs.read(file, from, &mut read).unwrap();
        let mut seen = Vec::new();
        let mut holes = 0;
        for content in fs.contents(file, from, len as u64).unwrap() {
            match content {
                Content::Data(bytes) => seen.extend_from_slice(&bytes),
                Content::Hole(len) => {
                    seen.resize(seen.len() + len, 0);
                    holes += len;
                }
            }
        }
        assert!(seen == read[..n], "{len} bytes from {from}");
        assert!(from != 0 || holes >= 2 * 131_072, "{holes} bytes of holes");
    }
    assert!(fs.contents(file, 700_001, 100).unwrap().is_empty());
}

#[test]
fn directories_and_links_count() {
    let pool = Pool::new();
    let fs = pool.mount();
    let root = fs.root();
    let dir = fs.mkdir(root, b"dir", &create(0o755)).unwrap().id;
    let file = fs.create_file(dir, b"file", &create(0o600)).unwrap().id;
    assert_eq!(fs.link(file, root, b"other name").unwrap().links, 2);
    assert_eq!(kind(fs.link(dir, root, b"no")), ErrorKind::Permission);
    assert_eq!(
        kind(fs.create_file(dir, b"file", &create(0o600))),
        ErrorKind::Exists
    );
    assert_eq!(kind(fs.rmdir(root, b"dir")), ErrorKind::NotEmpty);
    assert_eq!(kind(fs.unlink(root, b"dir")), ErrorKind::IsDirectory);
    assert_eq!(kind(fs.rmdir(root, b"other name")), ErrorKind::NotDirectory);
    assert_eq!(kind(fs.lookup(root, &[b'n'; 256])), ErrorKind::NameTooLong);
    assert!(fs.create_file(root, &[b'n'; 255], &create(0o600)).is_ok());
    assert_eq!(
        kind(fs.create_file(root, b"a/b", &create(0o600))),
        ErrorKind::InvalidInput
    );
    assert_eq!(kind(fs.lookup(file, b"x")), ErrorKind::NotDirectory);
    assert_eq!(fs.getattr(root).unwrap().links, 3);
    fs.unlink(dir, b"file").unwrap();
    fs.rmdir(root, b"dir").unwrap();
    assert_eq!(fs.getattr(root).unwrap().links, 2);
    assert_eq!(fs.getattr(file).unwrap().links, 1);
    check_tree(&fs);
}

#[test]
fn special_files_have_their_attributes() {
    let pool = Pool::new();
    let mut fs = pool.mount();
    let root = fs.root();
    let device = fs
        .mknod(root, b"null", FileType::CharDevice, 0x0103, &create(0o666))
        .unwrap();
    assert_eq!((device.mode, device.rdev), (0o020_666, 0x0103));
    fs.mknod(root, b"pipe", FileType::Fifo, 7, &create(0o600))
        .unwrap();
    let long = vec![b'x'; 4096];
    for (name, target) in [(&b"short"[..], &b"a/b"[..]), (b"long", &long)] {
        let link = fs.symlink(root, name, target, &create(0o600)).unwrap();
        assert_eq!((link.mode, link.size), (0o120_777, target.len() as u64));
    }
    assert_eq!(
        kind(fs.symlink(root, b"too long", &[1; 4097], &create(0))),
        ErrorKind::NameTooLong
    );
    fs = pool.remount(fs);
    assert_eq!(fs.readlink(fs.resolve_link("long").unwrap()).unwrap(), long);
    assert_eq!(
        fs.readlink(fs.resolve_link("/short").unwrap()).unwrap(),
        b"a/b"
    );
    assert_eq!(fs.getattr(device.id).unwrap().rdev, 0x0103);
    assert_eq!(kind(fs.readlink(device.id)), ErrorKind::InvalidInput);
}

#[test]
fn paths_lead_through_links() {
    let pool = Pool::new();
    let fs = pool.mount();
    let root = fs.root();
    let a = fs.mkdir(root, b"a", &create(0o755)).unwrap().id;
    let file = fs.create_file(a, b"file", &create(0o644)).unwrap().id;
    fs.symlink(root, b"to-a", b"./a/../a", &create(0)).unwrap();
    fs.symlink(a, b"absolute", b"/to-a/file", &create(0))
        .unwrap();
    fs.symlink(root, b"loop", b"loop", &create(0)).unwrap();
    assert_eq!(fs.resolve("//to-a/./file").unwrap(), file);
    assert_eq!(fs.resolve("/a/absolute").unwrap(), file);
    assert_eq!(fs.resolve("/").unwrap(), root);
    assert_eq!(fs.resolve_parent(b"/a/new/").unwrap(), (a, &b"new"[..]));
    assert_eq!(kind(fs.resolve("loop")), ErrorKind::TooManyLinks);
    assert_eq!(kind(fs.resolve("a/file/x")), ErrorKind::NotDirectory);
}

#[test]
fn a_file_has_a_path_until_it_is_removed() {
    let pool = Pool::new();
    let fs = pool.mount();
    let root = fs.root();
    let a = fs.mkdir(root, b"a", &create(0o755)).unwrap().id;
    let file = fs.create_file(a, b"file", &create(0o644)).unwrap().id;
    assert_eq!(fs.path_of(root).unwrap(), b"/");
    assert_eq!(fs.path_of(a).unwrap(), b"/a");
    assert_eq!(fs.path_of(file).unwrap(), b"/a/file");
    fs.hold(file).unwrap();
    fs.unlink(a, b"file").unwrap();
    assert_eq!(kind(fs.path_of(file)), ErrorKind::NotFound);
}

#[test]
fn renames_obey_posix() {
    let pool = Pool::new();
    let fs = pool.mount();
    let root = fs.root();
    let replace = |from: ObjectId, name: &str, to: ObjectId, new: &str| {
        fs.rename(
            from,
            name.as_bytes(),
            to,
            new.as_bytes(),
            RenameKind::Replace,
        )
    };
    let a = fs.mkdir(root, b"a", &create(0o755)).unwrap().id;
    let b = fs.mkdir(a, b"b", &create(0o755)).unwrap().id;
    let file = fs.create_file(b, b"file", &create(0o644)).unwrap().id;
    assert_eq!(
        kind(replace(root, "a", b, "a")),
        ErrorKind::InvalidInput,
        "into itself"
    );
    assert_eq!(
        kind(replace(root, "a", a, "a")),
        ErrorKind::InvalidInput,
        "into itself"
    );
    assert_eq!(kind(replace(root, "none", root, "x")), ErrorKind::NotFound);
    replace(a, "b", root, "b").unwrap();
    assert_eq!(fs.getattr(b).unwrap().parent, root);
    assert_eq!(
        (
            fs.getattr(root).unwrap().links,
            fs.getattr(a).unwrap().links
        ),
        (4, 2)
    );
    assert_eq!(kind(replace(root, "a", root, "b")), ErrorKind::NotEmpty);
    assert_eq!(kind(replace(b, "file", root, "a")), ErrorKind::IsDirectory);
    let other = fs.create_file(root, b"other", &create(0o644)).unwrap().id;
    assert_eq!(
        kind(replace(root, "a", root, "other")),
        ErrorKind::NotDirectory
    );
    replace(b, "file", root, "other").unwrap();
    assert_eq!(fs.lookup(root, b"other").unwrap().id, file);
    assert_eq!(kind(fs.getattr(other)), ErrorKind::NotFound);
    fs.link(file, root, b"same").unwrap();
    replace(root, "same", root, "other").unwrap();
    assert_eq!(
        names(&fs, root),
        ["a", "b", "other", "same"],
        "two names of one file stay"
    );
    fs.rename(root, b"a", root, b"same", RenameKind::Exchange)
        .unwrap();
    assert_eq!(fs.lookup(root, b"same").unwrap().id, a);
    let taken = fs.rename(root, b"same", root, b"other", RenameKind::NoReplace);
    assert_eq!(kind(taken), ErrorKind::Exists);
    fs.rename(root, b"same", b, b"moved", RenameKind::Whiteout)
        .unwrap();
    let whiteout = fs.lookup(root, b"same").unwrap();
    assert_eq!((whiteout.mode, whiteout.rdev), (0o020_000, 0));
    check_tree(&fs);
}

#[test]
fn open_files_outlive_their_names() {
    let pool = Pool::new();
    let mut fs = pool.mount();
    let root = fs.root();
    let file = fs.create_file(root, b"file", &create(0o644)).unwrap().id;
    fs.write(file, 0, b"still there").unwrap();
    fs.hold(file).unwrap();
    fs.hold(file).unwrap();
    fs.unlink(root, b"file").unwrap();
    assert_eq!(fs.getattr(file).unwrap().links, 0);
    fs.write(file, 0, b"STILL").unwrap();
    let mut read = [0; 11];
    assert_eq!(fs.read(file, 0, &mut read).unwrap(), 11);
    assert_eq!(&read, b"STILL there");
    assert_eq!(kind(fs.link(file, root, b"back")), ErrorKind::NotFound);
    fs.rele(file, 1).unwrap();
    assert!(fs.getattr(file).is_ok());
    fs.rele(file, 1).unwrap();
    assert_eq!(kind(fs.getattr(file)), ErrorKind::NotFound);
    // Left open by a crash: removed when the file system is next opened.
    let dir = fs.mkdir(root, b"dir", &create(0o755)).unwrap().id;
    fs.hold(dir).unwrap();
    fs.rmdir(root, b"dir").unwrap();
    assert_eq!(
        kind(fs.create_file(dir, b"x", &create(0))),
        ErrorKind::NotFound
    );
    assert!(fs.list(dir).unwrap().is_empty());
    pool.sync();
    fs = pool.remount(fs);
    assert_eq!(kind(fs.getattr(dir)), ErrorKind::NotFound);
    check_tree(&fs);
}

#[test]
fn attributes_change() {
    let pool = Pool::new();
    let mut fs = pool.mount();
    let file = fs.create_file(fs.root(), b"file", &create(0o644)).unwrap();
    assert_eq!(file.pflags & pflags::NO_EXECS_DENIED, 0);
    let set = SetAttr {
        mode: Some(0o4755),
        uid: Some(1),
        gid: Some(2),
        atime: Some(Time {
            secs: -5,
            nanos: 999_999_999,
        }),
        mtime: Some(Time {
            secs: 1 << 40,
            nanos: 1,
        }),
        ..SetAttr::default()
    };
    let after = fs.setattr(file.id, &set).unwrap();
    assert_eq!(after.mode, 0o104_755);
    assert!(after.ctime >= file.ctime);
    assert_ne!(after.pflags & pflags::NO_EXECS_DENIED, 0);
    fs = pool.remount(fs);
    let read = fs.getattr(file.id).unwrap();
    assert_eq!((read.uid, read.gid), (1, 2));
    assert_eq!((Some(read.atime), Some(read.mtime)), (set.atime, set.mtime));
    assert_eq!(
        (read.crtime, read.generation),
        (file.crtime, file.generation)
    );
    let flags = SetAttr {
        pflags: Some(pflags::IMMUTABLE),
        ..SetAttr::default()
    };
    fs.setattr(file.id, &flags).unwrap();
    assert_eq!(kind(fs.write(file.id, 0, b"no")), ErrorKind::Permission);
    assert_eq!(kind(fs.setattr(file.id, &set)), ErrorKind::Permission);
}

#[test]
fn access_times_follow_the_policy() {
    for (atime, expect) in [(AtimePolicy::Off, false), (AtimePolicy::On, true)] {
        let settings = Settings {
            atime,
            ..Settings::default()
        };
        let pool = Pool::with(super::props(), settings, std::sync::Arc::new(crate::NoLog));
        let fs = pool.mount();
        let file = fs.create_file(fs.root(), b"file", &create(0o644)).unwrap();
        fs.write(file.id, 0, b"data").unwrap();
        fs.read(file.id, 0, &mut [0; 4]).unwrap();
        assert_eq!(
            fs.getattr(file.id).unwrap().atime > file.atime,
            expect,
            "{atime:?}"
        );
    }
}

#[test]
fn extended_attributes_in_both_places() {
    for xattr_sa in [true, false] {
        let settings = Settings {
            xattr_sa,
            ..Settings::default()
        };
        let pool = Pool::with(super::props(), settings, std::sync::Arc::new(crate::NoLog));
        let mut fs = pool.mount();
        let file = fs
            .create_file(fs.root(), b"file", &create(0o644))
            .unwrap()
            .id;
        let dir = fs.mkdir(fs.root(), b"dir", &create(0o755)).unwrap().id;
        let large = vec![7; 60_000];
        for id in [file, dir] {
            fs.setxattr(id, b"user.small", b"value", SetXattr::Create)
                .unwrap();
            fs.setxattr(id, b"user.medium", &[5; 300], SetXattr::Set)
                .unwrap();
            fs.setxattr(id, b"user.large", &large, SetXattr::Set)
                .unwrap();
            fs.setxattr(id, b"user.empty", b"", SetXattr::Set).unwrap();
            let again = fs.setxattr(id, b"user.small", b"", SetXattr::Create);
            assert_eq!(kind(again), ErrorKind::Exists);
            let missing = fs.setxattr(id, b"user.none", b"", SetXattr::Replace);
            assert_eq!(kind(missing), ErrorKind::NotFound);
            assert_eq!(kind(fs.removexattr(id, b"user.none")), ErrorKind::NotFound);
        }
        fs = pool.remount(fs);
        for id in [file, dir] {
            let get = |fs: &Filesystem, name: &[u8]| fs.getxattr(id, name).unwrap();
            assert_eq!(get(&fs, b"user.small").as_deref(), Some(&b"value"[..]));
            assert_eq!(get(&fs, b"user.medium"), Some(vec![5; 300]));
            assert_eq!(get(&fs, b"user.large").as_ref(), Some(&large));
            assert_eq!(get(&fs, b"user.empty"), Some(vec![]));
            assert_eq!(get(&fs, b"user.none"), None);
            let mut listed = fs.listxattr(id).unwrap();
            listed.sort();
            assert_eq!(listed.len(), 4, "{listed:?}");
            fs.removexattr(id, b"user.medium").unwrap();
            fs.setxattr(id, b"user.large", b"now small", SetXattr::Replace)
                .unwrap();
            assert_eq!(get(&fs, b"user.large").as_deref(), Some(&b"now small"[..]));
            assert_eq!(get(&fs, b"user.medium"), None);
        }
        check_tree(&fs);
        fs.unlink(fs.root(), b"file").unwrap();
        fs.rmdir(fs.root(), b"dir").unwrap();
        check_tree(&fs);
    }
}

#[test]
fn space_is_counted_by_owner() {
    let pool = Pool::new();
    let mut fs = pool.mount();
    let file = fs
        .create_file(fs.root(), b"file", &create(0o644))
        .unwrap()
        .id;
    fs.write(file, 0, &vec![0x5a; 1 << 20]).unwrap();
    fs = pool.remount(fs);
    let used = |fs: &Filesystem, object| crate::space_by_owner(fs.objset(), object).unwrap();
    let users = used(&fs, dmu::USERUSED_OBJECT);
    let ids: Vec<(u64, u64)> = users.iter().map(|used| (used.id, used.objects)).collect();
    // The root directory and one file.
    assert_eq!(ids, [(0, 1), (1000, 1)], "{users:?}");
    assert!(users[1].bytes > 1024);
    fs.unlink(fs.root(), b"file").unwrap();
    fs = pool.remount(fs);
    assert_eq!(used(&fs, dmu::USERUSED_OBJECT).len(), 1);
    assert_eq!(used(&fs, dmu::PROJECTUSED_OBJECT).len(), 1);
}

#[test]
fn listing_resumes_anywhere_while_names_change() {
    let pool = Pool::new();
    let fs = pool.mount();
    let root = fs.root();
    for i in 0..500 {
        fs.create_file(root, format!("file{i}").as_bytes(), &create(0o644))
            .unwrap();
    }
    let mut met = Vec::new();
    let mut offset = 0;
    loop {
        let mut next = None;
        fs.readdir(root, offset, |entry| {
            next = Some(entry.clone());
            false
        })
        .unwrap();
        let Some(entry) = next else { break };
        offset = entry.next_offset;
        if entry.name.starts_with(b"file") {
            fs.unlink(root, &entry.name).unwrap();
        }
        met.push(entry.name);
    }
    assert_eq!(met.len(), 502);
    assert_eq!(met[..2], [b".".to_vec(), b"..".to_vec()]);
    met.sort();
    met.dedup();
    assert_eq!(met.len(), 502);
    assert!(fs.list(root).unwrap().is_empty());
}

#[test]
fn a_file_system_without_transactions_is_read_only() {
    let pool = Pool::new();
    let fs = pool.mount();
    fs.create_file(fs.root(), b"file", &create(0o644)).unwrap();
    drop(fs);
    pool.sync();
    let fs = Filesystem::open(pool.objset(), crate::OpenOptions::default()).unwrap();
    assert!(!fs.is_writable());
    let file = fs.lookup(fs.root(), b"file").unwrap().id;
    assert_eq!(kind(fs.write(file, 0, b"no")), ErrorKind::ReadOnly);
    assert_eq!(kind(fs.unlink(fs.root(), b"file")), ErrorKind::ReadOnly);
    assert_eq!(fs.read(file, 0, &mut [0; 4]).unwrap(), 0);
}

#[test]
fn groups_pass_on_in_setgid_directories() {
    let pool = Pool::new();
    let fs = pool.mount();
    let dir = fs.mkdir(fs.root(), b"dir", &create(0o2775)).unwrap();
    fs.setattr(
        dir.id,
        &SetAttr {
            gid: Some(77),
            ..SetAttr::default()
        },
    )
    .unwrap();
    let file = fs.create_file(dir.id, b"file", &create(0o644)).unwrap();
    let sub = fs.mkdir(dir.id, b"sub", &create(0o755)).unwrap();
    assert_eq!((file.gid, sub.gid, sub.mode), (77, 77, 0o042_755));
}

#[test]
fn posix_acls_and_modes_follow_each_other() {
    use crate::posix_acl::{ACCESS, DEFAULT, tests::sample};
    let settings = Settings {
        posix_acl: true,
        ..Settings::default()
    };
    let pool = Pool::with(super::props(), settings, std::sync::Arc::new(crate::NoLog));
    let fs = pool.mount();
    let root = fs.root();
    let mode = |id| fs.getattr(id).unwrap().mode & 0o7777;
    let dir = fs.mkdir(root, b"dir", &create(0o755)).unwrap().id;
    let file = fs.create_file(root, b"file", &create(0o644)).unwrap().id;
    fs.setxattr(file, ACCESS, &sample(), SetXattr::Set).unwrap();
    assert_eq!(mode(file), 0o750);
    fs.setattr(
        file,
        &SetAttr {
            mode: Some(0o4640),
            ..SetAttr::default()
        },
    )
    .unwrap();
    let acl = fs.getxattr(file, ACCESS).unwrap().unwrap();
    // The mask, which is the group of the mode, is r--.
    assert_eq!((acl[4 + 3 * 8 + 2], mode(file)), (4, 0o4640));
    assert_eq!(
        kind(fs.setxattr(file, DEFAULT, &sample(), SetXattr::Set)),
        ErrorKind::Permission
    );
    fs.setxattr(dir, DEFAULT, &sample(), SetXattr::Set).unwrap();
    let inside = fs.create_file(dir, b"inside", &create(0o666)).unwrap();
    assert_eq!(inside.mode & 0o7777, 0o640);
    assert!(fs.getxattr(inside.id, ACCESS).unwrap().is_some());
    let sub = fs.mkdir(dir, b"sub", &create(0o777)).unwrap();
    assert_eq!(sub.mode & 0o7777, 0o750);
    assert_eq!(fs.getxattr(sub.id, DEFAULT).unwrap(), Some(sample()));
    // An ACL that says what the mode says is not kept.
    let mut plain = vec![2, 0, 0, 0];
    for (tag, permissions) in [(1, 7), (4, 5), (32, 1)] {
        plain.extend_from_slice(&[tag, 0, permissions, 0, 255, 255, 255, 255]);
    }
    fs.setxattr(file, ACCESS, &plain, SetXattr::Set).unwrap();
    assert_eq!(
        (mode(file), fs.getxattr(file, ACCESS).unwrap()),
        (0o4751, None)
    );
    assert_eq!(
        kind(fs.setxattr(file, ACCESS, b"junk", SetXattr::Set)),
        ErrorKind::InvalidInput
    );
}

/// A program that joins such a name to a path of the host would write where it must not.
#[test]
fn names_that_cannot_be_are_left_out_and_reported() {
    let pool = Pool::new();
    let fs = pool.mount();
    let root = fs.root();
    let good = fs.create_file(root, b"good", &create(0o644)).unwrap().id;
    let bad: [&[u8]; 5] = [b".", b"..", b"a/b", b"/etc/passwd", b"../up"];
    let tx = fs.begin(1 << 20).unwrap();
    let directory = zap::Zap::open(fs.objset(), root).unwrap();
    for name in bad {
        directory
            .add_u64(&tx, name, phys::znode::dirent_new(good.0, 0o100_644))
            .unwrap();
    }
    drop(tx);
    let mut names = Vec::new();
    let outcome = fs.readdir(root, 0, |entry| {
        names.push(entry.name.clone());
        true
    });
    names.sort();
    // `.` and `..` are those that every directory has.
    assert_eq!(names, [b".".to_vec(), b"..".to_vec(), b"good".to_vec()]);
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(
        error.to_string().contains("5 names that cannot be"),
        "{error}"
    );
    assert_eq!(fs.lookup(root, b"..").unwrap().id, root);
    assert_eq!(kind(fs.lookup(root, b"a/b")), ErrorKind::InvalidInput);
}
