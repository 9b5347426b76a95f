//! Limits of users, groups and projects: who is refused what, and what is on disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{ErrorKind, ObjectId, Result};
use phys::owner::{Counted, OwnerCount, OwnerKind, quota_key};
use phys::znode::{MASTER_NODE_OBJ, master_node};

use super::random::{Random, ops};
use super::{Pool, props};
use crate::{
    Attr, Create, FileType, Filesystem, NoLog, OwnerLimit, RenameKind, SetAttr, SetXattr, Settings,
    owner_limit, owner_limits, owner_used, pflags, space_by_owner,
};

const BYTES: OwnerCount = OwnerCount::new(OwnerKind::User, Counted::Bytes);
const OBJECTS: OwnerCount = OwnerCount::new(OwnerKind::User, Counted::Objects);
const PROJECT_BYTES: OwnerCount = OwnerCount::new(OwnerKind::Project, Counted::Bytes);

fn limit(fs: &Filesystem, of: OwnerCount, id: u64, limit: u64) {
    fs.set_owner_limit(&OwnerLimit { of, id, limit }).unwrap();
}

fn by(uid: u64, gid: u64) -> Create {
    Create {
        mode: 0o644,
        uid,
        gid,
    }
}

fn is_refused<T>(result: Result<T>) -> bool {
    match result {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Quota, "{error}");
            true
        }
    }
}

/// What each owner was charged in the last txg.
type Used = BTreeMap<(&'static str, u64), (u64, u64)>;

fn used(fs: &Filesystem) -> Used {
    let mut all = Used::new();
    for kind in [OwnerKind::User, OwnerKind::Group, OwnerKind::Project] {
        let owners = space_by_owner(fs.objset(), ObjectId(kind.used_object())).unwrap();
        all.extend(
            owners
                .into_iter()
                .map(|it| ((kind.word(), it.id), (it.bytes, it.objects))),
        );
    }
    all
}

/// The same, by looking at every file.
fn used_by_files(fs: &Filesystem, files: &[ObjectId]) -> Used {
    let mut all = Used::new();
    for id in files {
        let attr = fs.getattr(*id).unwrap();
        let owners = [
            ("user", attr.uid),
            ("group", attr.gid),
            ("project", attr.projid),
        ];
        for owner in owners {
            let entry = all.entry(owner).or_default();
            entry.0 += attr.used_bytes + 512;
            entry.1 += 1;
        }
    }
    all
}

/// The limits that were set, and what they forbid.
#[derive(Default)]
struct Limits(BTreeMap<(&'static str, u64), u64>);

impl Limits {
    fn forbid(&self, used: &Used, kind: OwnerKind, id: u64, counted: &[Counted]) -> bool {
        counted.iter().any(|counted| {
            let of = OwnerCount::new(kind, *counted);
            let limit = self.0.get(&(of.quota_entry(), id));
            let (bytes, objects) = used.get(&(kind.word(), id)).copied().unwrap_or_default();
            let has = match counted {
                Counted::Bytes => bytes,
                Counted::Objects => objects,
            };
            limit.is_some_and(|limit| has > 0 && has >= *limit)
        })
    }

    fn forbid_any(&self, used: &Used, (uid, gid, projid): (u64, u64, u64), all: bool) -> bool {
        let both = [Counted::Bytes, Counted::Objects];
        let counted = if all { &both[..] } else { &both[..1] };
        self.forbid(used, OwnerKind::User, uid, counted)
            || self.forbid(used, OwnerKind::Group, gid, counted)
            || projid != 0 && self.forbid(used, OwnerKind::Project, projid, counted)
    }
}

struct Run {
    fs: Arc<Filesystem>,
    random: Random,
    limits: Limits,
    /// The root, and what is in it.
    files: Vec<ObjectId>,
    refused: usize,
    done: usize,
}

impl Run {
    fn file(&mut self) -> Attr {
        let at = self.random.below(self.files.len());
        self.fs.getattr(self.files[at]).unwrap()
    }

    fn set_limit(&mut self) {
        let of = self.random.pick(&OwnerCount::ALL);
        let id = self.random.below(3) as u64;
        let most = match of.counted {
            Counted::Bytes => self.random.next() % (60 << 10),
            Counted::Objects => self.random.next() % 12,
        };
        limit(&self.fs, of, id, most);
        let key = (of.quota_entry(), id);
        match most {
            0 => self.limits.0.remove(&key),
            most => self.limits.0.insert(key, most),
        };
    }

    /// One operation: whether a limit forbids it, and whether it was refused.
    fn operation(&mut self, used: &Used) -> Option<(bool, bool)> {
        let (uid, gid) = (self.random.below(3) as u64, self.random.below(3) as u64);
        let name = self.random.next().to_string().into_bytes();
        let fs = Arc::clone(&self.fs);
        let root = fs.getattr(fs.root()).unwrap();
        let inherits = root.pflags & pflags::PROJINHERIT != 0;
        let inherited = if inherits { root.projid } else { 0 };
        let (made, project) = match self.random.below(8) {
            0 => (fs.create_file(root.id, &name, &by(uid, gid)), inherited),
            1 => (fs.mkdir(root.id, &name, &by(uid, gid)), inherited),
            2 => (fs.symlink(root.id, &name, b"to", &by(uid, gid)), 0),
            3 => (
                fs.mknod(root.id, &name, FileType::Fifo, 0, &by(uid, gid)),
                0,
            ),
            4 => {
                let file = self.file();
                if file.file_type() != Some(FileType::Regular) {
                    return None;
                }
                let owner = (file.uid, file.gid, file.projid);
                let data = self.random.bytes(9 << 10);
                let forbidden = self.limits.forbid_any(used, owner, false);
                return Some((forbidden, is_refused(fs.append(file.id, &data))));
            }
            5 => return self.give_away(used, uid, gid),
            6 => {
                self.set_limit();
                return None;
            }
            _ => {
                let directory = SetAttr {
                    pflags: Some(root.pflags ^ pflags::PROJINHERIT),
                    ..SetAttr::default()
                };
                fs.setattr(root.id, &directory).unwrap();
                return None;
            }
        };
        let forbidden = self.limits.forbid_any(used, (uid, gid, project), true);
        if let Ok(attr) = &made {
            self.files.push(attr.id);
        }
        Some((forbidden, is_refused(made)))
    }

    fn give_away(&mut self, used: &Used, uid: u64, gid: u64) -> Option<(bool, bool)> {
        let file = self.file();
        let both = [Counted::Bytes, Counted::Objects];
        let (kind, id, old, set) = match self.random.below(3) {
            0 => {
                let uid = Some(uid);
                let set = SetAttr {
                    uid,
                    ..SetAttr::default()
                };
                (OwnerKind::User, uid?, file.uid, set)
            }
            1 => {
                let gid = Some(gid);
                let set = SetAttr {
                    gid,
                    ..SetAttr::default()
                };
                (OwnerKind::Group, gid?, file.gid, set)
            }
            _ => {
                let may = [FileType::Regular, FileType::Directory];
                if !may.contains(&file.file_type()?) {
                    return None;
                }
                let projid = Some(self.random.below(3) as u64);
                let set = SetAttr {
                    projid,
                    ..SetAttr::default()
                };
                (OwnerKind::Project, projid?, file.projid, set)
            }
        };
        let forbidden = id != old && self.limits.forbid(used, kind, id, &both);
        Some((forbidden, is_refused(self.fs.setattr(file.id, &set))))
    }
}

#[test]
fn prop_owners_are_refused_what_a_model_forbids() {
    let pool = Pool::new();
    let fs = pool.mount();
    let mut run = Run {
        files: vec![fs.root()],
        fs,
        random: Random::from_env(),
        limits: Limits::default(),
        refused: 0,
        done: 0,
    };
    for step in 0..ops(600) {
        let before = used(&run.fs);
        let outcome = run.operation(&before);
        // A txg may have been synced meanwhile; then nothing can be said.
        if before == used(&run.fs)
            && let Some((forbidden, refused)) = outcome
        {
            assert_eq!(forbidden, refused, "step {step}: {before:?}");
            run.refused += usize::from(refused);
            run.done += usize::from(!refused);
        }
        if run.random.one_in(5) {
            pool.sync();
            assert_eq!(
                used(&run.fs),
                used_by_files(&run.fs, &run.files),
                "step {step}"
            );
        }
        if run.random.one_in(60) {
            let old = run.fs;
            run.fs = pool.mount();
            drop(old);
        }
    }
    for of in OwnerCount::ALL {
        let set = owner_limits(run.fs.objset(), of).unwrap().unwrap();
        for id in 0..3 {
            let wanted = run.limits.0.get(&(of.quota_entry(), id)).copied();
            assert_eq!(set.get(&id).copied(), wanted, "{of:?} {id}");
        }
    }
    println!("{} refused, {} done", run.refused, run.done);
}

#[test]
fn a_table_is_made_with_the_first_limit_and_stays() {
    let pool = Pool::new();
    let mut fs = pool.mount();
    let entry = |fs: &Filesystem, of: OwnerCount| {
        let master = ObjectId(MASTER_NODE_OBJ);
        zap::lookup_u64(fs.objset(), master, of.quota_entry()).unwrap()
    };
    assert!(OwnerCount::ALL.iter().all(|of| entry(&fs, *of).is_none()));
    limit(&fs, OBJECTS, 0xabc, 77);
    let table = entry(&fs, OBJECTS).expect("it was made");
    assert_eq!(entry(&fs, BYTES), None);
    let stored = zap::lookup_u64(fs.objset(), ObjectId(table), "abc").unwrap();
    assert_eq!(stored, Some(77));
    let type_ = fs.objset().hold(ObjectId(table)).unwrap().type_();
    assert_eq!(type_, phys::ObjectType::USERGROUP_QUOTA);
    fs = pool.remount(fs);
    assert_eq!(owner_limit(fs.objset(), OBJECTS, 0xabc).unwrap(), Some(77));
    limit(&fs, OBJECTS, 0xabc, 0);
    limit(&fs, OBJECTS, 1, 0);
    assert_eq!(owner_limit(fs.objset(), OBJECTS, 0xabc).unwrap(), Some(0));
    assert_eq!(entry(&fs, OBJECTS), Some(table));
    assert_eq!(zap::count(fs.objset(), ObjectId(table)).unwrap(), 0);
    // None is made for nothing, but OpenZFS does so, too.
    limit(&fs, BYTES, 1, 0);
    assert!(entry(&fs, BYTES).is_some());
}

#[test]
fn what_is_written_until_the_next_txg_may_be_more() {
    let pool = Pool::new();
    let fs = pool.mount();
    let file = fs.create_file(fs.root(), b"a", &by(7, 7)).unwrap().id;
    limit(&fs, BYTES, 7, 4096);
    fs.write(file, 0, &[1; 100_000]).unwrap();
    fs.append(file, &[1; 100_000]).unwrap();
    pool.sync();
    let error = fs.append(file, b"x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Quota);
    assert!(
        error.to_string().contains("user 7 has"),
        "{error}: it names the owner"
    );
    assert!(is_refused(fs.create_file(fs.root(), b"b", &by(7, 0))));
    // What needs no space goes on, and others do.
    fs.truncate(file, 300_000).unwrap();
    fs.link(file, fs.root(), b"c").unwrap();
    fs.rename(fs.root(), b"c", fs.root(), b"d", RenameKind::NoReplace)
        .unwrap();
    fs.create_file(fs.root(), b"b", &by(8, 7)).unwrap();
    assert!(is_refused(fs.rename(
        fs.root(),
        b"d",
        fs.root(),
        b"e",
        RenameKind::Whiteout
    )));
    assert!(fs.lookup(fs.root(), b"d").is_ok());
    assert!(is_refused(fs.create_tmpfile(fs.root(), &by(7, 0))));
    fs.truncate(file, 0).unwrap();
    pool.sync();
    fs.append(file, b"x").unwrap();
}

#[test]
fn attributes_that_are_files_are_limited() {
    let settings = Settings {
        xattr_sa: false,
        ..Settings::default()
    };
    let pool = Pool::with(props(), settings, Arc::new(NoLog));
    let fs = pool.mount();
    let file = fs.create_file(fs.root(), b"a", &by(7, 7)).unwrap().id;
    fs.setxattr(file, b"user.a", b"1234", SetXattr::Set)
        .unwrap();
    limit(&fs, OBJECTS, 7, 2);
    pool.sync();
    assert_eq!(owner_used(fs.objset(), OBJECTS, 7).unwrap(), Some(3));
    let again = fs.setxattr(file, b"user.b", b"1", SetXattr::Set);
    assert!(is_refused(again));
    // Bytes are not limited.
    fs.setxattr(file, b"user.a", b"12", SetXattr::Set).unwrap();
    limit(&fs, BYTES, 7, 1);
    let again = fs.setxattr(file, b"user.a", b"1", SetXattr::Set);
    assert!(is_refused(again));
    assert_eq!(
        fs.getxattr(file, b"user.a").unwrap().as_deref(),
        Some(&b"12"[..])
    );
}

#[test]
fn a_log_is_replayed_whatever_the_limits_are() {
    let pool = Pool::with(
        props(),
        Settings::default(),
        Arc::new(super::replay::Replaying),
    );
    let fs = pool.mount();
    limit(&fs, BYTES, 7, 1);
    limit(&fs, OBJECTS, 7, 1);
    let file = fs.create_file(fs.root(), b"a", &by(7, 7)).unwrap().id;
    pool.sync();
    fs.write(file, 0, &[1; 10_000]).unwrap();
    let other = fs.create_file(fs.root(), b"b", &by(8, 7)).unwrap().id;
    let given = SetAttr {
        uid: Some(7),
        ..SetAttr::default()
    };
    fs.setattr(other, &given).unwrap();
    fs.mkdir(fs.root(), b"c", &by(7, 7)).unwrap();
}

#[test]
fn a_file_from_before_the_feature_gets_a_project() {
    let without = dmu::ObjsetProps {
        project_quota: false,
        ..props()
    };
    let pool = Pool::new();
    let fs = pool.mount();
    fs.objset().set_props(without);
    let file = fs.create_file(fs.root(), b"a", &by(7, 7)).unwrap();
    let link = fs.symlink(fs.root(), b"l", b"to", &by(7, 7)).unwrap();
    fs.setxattr(file.id, b"user.a", &[1; 300], SetXattr::Set)
        .unwrap();
    assert_eq!(file.pflags & pflags::PROJID, 0);
    let error = fs.set_owner_limit(&OwnerLimit {
        of: PROJECT_BYTES,
        id: 5,
        limit: 1,
    });
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unsupported);
    fs.objset().set_props(props());
    let set = SetAttr {
        projid: Some(5),
        ..SetAttr::default()
    };
    let attr = fs.setattr(file.id, &set).unwrap();
    assert_ne!(attr.pflags & pflags::PROJID, 0);
    pool.sync();
    let used = used(&fs);
    assert_eq!(used[&("project", 5)].1, 1, "{used:?}");
    assert_eq!(fs.getattr(file.id).unwrap().projid, 5);
    assert_eq!(fs.readlink(link.id).unwrap(), b"to");
    assert_eq!(
        fs.getxattr(file.id, b"user.a").unwrap().map(|it| it.len()),
        Some(300)
    );
}

#[test]
fn a_directory_whose_project_is_inherited_is_as_large_as_its_limit() {
    let pool = Pool::new();
    let fs = pool.mount();
    let directory = fs.mkdir(fs.root(), b"d", &by(7, 7)).unwrap();
    let set = SetAttr {
        pflags: Some(directory.pflags | pflags::PROJINHERIT),
        projid: Some(5),
        ..SetAttr::default()
    };
    fs.setattr(directory.id, &set).unwrap();
    let all = fs.statfs();
    assert_eq!(fs.statfs_at(directory.id).unwrap(), all);
    limit(&fs, PROJECT_BYTES, 5, 1 << 20);
    limit(
        &fs,
        OwnerCount::new(OwnerKind::Project, Counted::Objects),
        5,
        3,
    );
    let file = fs.create_file(directory.id, b"a", &by(7, 7)).unwrap();
    assert_eq!((file.projid, file.gid), (5, 7));
    fs.symlink(directory.id, b"l", b"to", &by(7, 7)).unwrap();
    fs.write(file.id, 0, &Random::new(1).bytes(100_000))
        .unwrap();
    pool.sync();
    let stat = fs.statfs_at(directory.id).unwrap();
    assert_eq!((stat.total_bytes, stat.files), (1 << 20, 2));
    assert_eq!(stat.available_files, 1);
    let used = owner_used(fs.objset(), PROJECT_BYTES, 5).unwrap().unwrap();
    assert_eq!(stat.available_bytes, (1 << 20) - used);
    assert_eq!(fs.statfs_at(fs.root()).unwrap(), fs.statfs());
    limit(&fs, PROJECT_BYTES, 5, 1000);
    assert_eq!(fs.statfs_at(directory.id).unwrap().available_bytes, 0);
    assert!(is_refused(fs.append(file.id, b"x")));
    // Project 0 is that of files without one: it may be limited, and limits what is given back to it alone.
    limit(&fs, PROJECT_BYTES, 0, 1);
    pool.sync();
    fs.create_file(fs.root(), b"free", &by(7, 7)).unwrap();
    let back = SetAttr {
        projid: Some(0),
        ..SetAttr::default()
    };
    assert!(is_refused(fs.setattr(file.id, &back)));
}

#[test]
fn numbers_that_no_project_has_and_old_versions_are_refused() {
    let pool = Pool::new();
    let mut fs = pool.mount();
    let wrong = OwnerLimit {
        of: PROJECT_BYTES,
        id: u64::from(u32::MAX),
        limit: 1,
    };
    let error = fs.set_owner_limit(&wrong).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(quota_key(wrong.id), "ffffffff");
    let tx = pool.groups.hold_open(1 << 10).unwrap();
    let master = ObjectId(MASTER_NODE_OBJ);
    zap::update_u64(fs.objset(), &tx, master, master_node::VERSION, 3).unwrap();
    drop(tx);
    fs = pool.remount(fs);
    let error = fs.set_owner_limit(&OwnerLimit { of: BYTES, ..wrong });
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unsupported);
}
