//! The log records of operations, replayed on another file system, produce the same files.

use std::sync::Arc;

use base::{ObjectId, Result};
use dmu::Tx;
use phys::Phys;
use phys::zil::LrPhys;
use zerocopy::IntoBytes;
use zil::{Itx, WriteState};

use super::random::{Random, ops};
use super::{Pool, check_tree, create, props};
use crate::{
    FileType, Filesystem, IntentLog, RenameKind, SetAttr, SetXattr, Settings, Time, pflags,
};

/// A log that keeps all records.
#[derive(Default)]
struct Keep {
    records: rt::Mutex<Vec<Itx>>,
}

impl IntentLog for Keep {
    fn log(&self, _tx: &Tx, itx: Itx) {
        assert!(itx.record.len().is_multiple_of(8));
        self.records.lock().push(itx);
    }

    fn commit(&self, _object: ObjectId) -> Result<bool> {
        Ok(true)
    }
}

/// The log of a file system that is being replayed: nothing may be logged.
pub(super) struct Replaying;

impl IntentLog for Replaying {
    fn log(&self, _tx: &Tx, itx: Itx) {
        panic!("logged during replay: {itx:?}");
    }

    fn commit(&self, _object: ObjectId) -> Result<bool> {
        Ok(false)
    }

    fn is_replaying(&self, _tx: &Tx) -> bool {
        true
    }
}

struct Twins {
    log: Arc<Keep>,
    _pools: [Arc<Pool>; 2],
    original: Arc<Filesystem>,
    copy: Arc<Filesystem>,
}

impl Twins {
    fn new() -> Twins {
        let log = Arc::new(Keep::default());
        let settings = Settings::default();
        let pools = [
            Pool::with(props(), settings, log.clone()),
            Pool::with(props(), settings, Arc::new(Replaying)),
        ];
        let [original, copy] = [pools[0].mount(), pools[1].mount()];
        assert_eq!(original.root(), copy.root());
        Twins {
            log,
            _pools: pools,
            original,
            copy,
        }
    }

    /// Applies what was logged since the last time.
    fn catch_up(&self) {
        for itx in self.log.records.lock().drain(..) {
            let record = complete(&self.original, itx);
            if let Some(record) = record {
                self.copy.replay(&record).unwrap();
            }
        }
    }

    fn compare(&self) {
        compare_trees(&self.original, &self.copy);
    }
}

/// The record, complete with its data.
fn complete(fs: &Filesystem, itx: Itx) -> Option<Vec<u8>> {
    let mut record = itx.record;
    if let WriteState::NeedCopy(wanted) = itx.write_state {
        record.extend(fs.log_data(&wanted).unwrap()?);
        record.resize(record.len().next_multiple_of(8), 0);
        let mut common = LrPhys::read(&record).unwrap();
        common.reclen.set(record.len() as u64);
        record[..LrPhys::SIZE].copy_from_slice(common.as_bytes());
    }
    let parsed: Vec<_> = phys::zil::records(&record).collect();
    assert!(matches!(&parsed[..], [Ok(_)]), "{} records", parsed.len());
    drop(parsed);
    Some(record)
}

fn compare_trees(a: &Filesystem, b: &Filesystem) {
    check_tree(a);
    check_tree(b);
    let mut todo = vec![a.root()];
    while let Some(id) = todo.pop() {
        let [x, y] = [a.getattr(id).unwrap(), b.getattr(id).unwrap()];
        let facts = |attr: &crate::Attr| {
            (
                attr.mode,
                attr.uid,
                attr.gid,
                attr.size,
                attr.links,
                attr.generation,
                attr.rdev,
            )
        };
        assert_eq!(facts(&x), facts(&y), "file {id}");
        if id != a.root() {
            assert_eq!(x.crtime, y.crtime, "file {id}");
        }
        assert_eq!(x.pflags, y.pflags, "file {id}");
        match x.file_type().unwrap() {
            FileType::Directory => {
                let sorted = |fs: &Filesystem| {
                    let mut entries: Vec<_> = fs
                        .list(id)
                        .unwrap()
                        .into_iter()
                        .map(|e| (e.name, e.id))
                        .collect();
                    entries.sort();
                    entries
                };
                assert_eq!(sorted(a), sorted(b), "directory {id}");
                todo.extend(sorted(a).into_iter().map(|(_, id)| id));
            }
            FileType::Symlink => assert_eq!(a.readlink(id).unwrap(), b.readlink(id).unwrap()),
            FileType::Regular => {
                let mut data = [vec![0; x.size as usize], vec![0; x.size as usize]];
                a.read(id, 0, &mut data[0]).unwrap();
                b.read(id, 0, &mut data[1]).unwrap();
                assert!(data[0] == data[1], "content of file {id}");
            }
            _ => {}
        }
        let mut names = a.listxattr(id).unwrap();
        let mut other_names = b.listxattr(id).unwrap();
        names.sort();
        other_names.sort();
        assert_eq!(names, other_names, "extended attributes of file {id}");
        for name in names {
            assert_eq!(
                a.getxattr(id, &name).unwrap(),
                b.getxattr(id, &name).unwrap()
            );
        }
    }
}

#[test]
fn every_operation_is_replayed() {
    let twins = Twins::new();
    let fs = &twins.original;
    let root = fs.root();
    let dir = fs.mkdir(root, b"dir", &create(0o755)).unwrap().id;
    let file = fs.create_file(dir, b"file", &create(0o640)).unwrap().id;
    twins.catch_up();
    fs.write_sync(file, 0, b"synchronous").unwrap();
    twins.catch_up();
    fs.write(file, 20_000, &[7; 100_000]).unwrap();
    twins.catch_up();
    fs.symlink(root, b"link", b"dir/file", &create(0)).unwrap();
    fs.mknod(root, b"null", FileType::CharDevice, 0x0103, &create(0o666))
        .unwrap();
    fs.link(file, root, b"second").unwrap();
    fs.rename(root, b"second", dir, b"third", RenameKind::Replace)
        .unwrap();
    fs.rename(root, b"link", root, b"null", RenameKind::Exchange)
        .unwrap();
    fs.rename(root, b"link", dir, b"moved", RenameKind::Whiteout)
        .unwrap();
    twins.catch_up();
    fs.truncate(file, 70_000).unwrap();
    fs.punch_hole(file, 30_000, 20_000).unwrap();
    let set = SetAttr {
        mode: Some(0o4711),
        gid: Some(9),
        mtime: Some(Time { secs: 5, nanos: 6 }),
        pflags: Some(pflags::HIDDEN | pflags::ARCHIVE),
        crtime: Some(Time { secs: 1, nanos: 2 }),
        ..SetAttr::default()
    };
    fs.setattr(file, &set).unwrap();
    fs.setxattr(file, b"user.small", b"value", SetXattr::Set)
        .unwrap();
    fs.setxattr(file, b"user.gone", b"value", SetXattr::Set)
        .unwrap();
    fs.removexattr(file, b"user.gone").unwrap();
    fs.setxattr(dir, b"user.large", &[3; 50_000], SetXattr::Set)
        .unwrap();
    twins.catch_up();
    twins.compare();
    fs.unlink(dir, b"file").unwrap();
    fs.mkdir(dir, b"empty", &create(0o755)).unwrap();
    fs.rmdir(dir, b"empty").unwrap();
    fs.removexattr(dir, b"user.large").unwrap();
    twins.catch_up();
    twins.compare();
}

#[test]
fn random_operations_are_replayed() {
    let mut random = Random::from_env();
    let twins = Twins::new();
    let fs = &twins.original;
    for _ in 0..ops(20_000) / 10 {
        let all = files(fs);
        let directories: Vec<ObjectId> = all
            .iter()
            .filter(|(_, is_dir)| *is_dir)
            .map(|(id, _)| *id)
            .collect();
        let directory = random.pick(&directories);
        let other = random.pick(&directories);
        let (id, _) = random.pick(&all);
        let name = format!("name{}", random.below(12)).into_bytes();
        let new_name = format!("name{}", random.below(12)).into_bytes();
        // Whether it works does not matter: only successful operations are logged.
        let _ = match random.below(14) {
            0..3 => fs.create_file(directory, &name, &create(0o644)).map(|_| ()),
            3 => fs.mkdir(directory, &name, &create(0o755)).map(|_| ()),
            4 => fs.unlink(directory, &name),
            5 => fs.rmdir(directory, &name),
            6 => fs.link(id, directory, &name).map(|_| ()),
            7..9 => fs.rename(directory, &name, other, &new_name, RenameKind::Replace),
            9..11 => {
                let (at, len) = (random.below(30_000), random.below(30_000));
                let data = random.bytes(len);
                fs.write(id, at as u64, &data)
            }
            11 => fs.truncate(id, random.below(40_000) as u64),
            12 => {
                let mode = Some(random.next() as u32 & 0o7777);
                fs.setattr(
                    id,
                    &SetAttr {
                        mode,
                        ..SetAttr::default()
                    },
                )
                .map(|_| ())
            }
            _ => {
                let len = random.below(40_000);
                fs.setxattr(id, &name, &random.bytes(len), SetXattr::Set)
            }
        };
        twins.catch_up();
    }
    twins.compare();
}

/// All files of a small tree, and whether each is a directory.
fn files(fs: &Filesystem) -> Vec<(ObjectId, bool)> {
    let mut found = vec![(fs.root(), true)];
    let mut at = 0;
    while at < found.len() {
        if let (id, true) = found[at] {
            for entry in fs.list(id).unwrap() {
                found.push((entry.id, entry.file_type == Some(FileType::Directory)));
            }
        }
        at += 1;
    }
    found
}
