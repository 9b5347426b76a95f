//! Random operations on a file system, checked against a simple model in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{ErrorKind, ObjectId, Result};
use dmu::ObjsetProps;

use super::random::{Random, ops};
use super::{Pool, check_tree, create};
use crate::{Attr, FileType, Filesystem, NoLog, RenameKind, SetAttr, SetXattr, Settings, Time};

/// A file of the model.
#[derive(Clone, Default)]
pub(crate) struct File {
    mode: u32,
    uid: u64,
    mtime: Option<Time>,
    links: u64,
    data: Vec<u8>,
    entries: BTreeMap<Vec<u8>, ObjectId>,
    parent: ObjectId,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    holds: u64,
}

impl File {
    fn is_directory(&self) -> bool {
        self.mode >> 12 == 4
    }
}

/// The model: what every file should be.
pub(crate) struct Model {
    pub(crate) files: BTreeMap<ObjectId, File>,
    root: ObjectId,
}

type Outcome<T> = std::result::Result<T, ErrorKind>;

impl Model {
    pub(crate) fn new(root: ObjectId) -> Model {
        let file = File {
            mode: 0o040_755,
            links: 2,
            parent: root,
            ..File::default()
        };
        Model {
            files: BTreeMap::from([(root, file)]),
            root,
        }
    }

    fn directory(&mut self, id: ObjectId) -> Outcome<&mut File> {
        let file = self.files.get_mut(&id).ok_or(ErrorKind::NotFound)?;
        if !file.is_directory() {
            return Err(ErrorKind::NotDirectory);
        }
        Ok(file)
    }

    fn live_directory(&mut self, id: ObjectId) -> Outcome<&mut File> {
        let file = self.directory(id)?;
        if file.links == 0 {
            Err(ErrorKind::NotFound)
        } else {
            Ok(file)
        }
    }

    fn find(&mut self, directory: ObjectId, name: &[u8]) -> Outcome<ObjectId> {
        self.directory(directory)?
            .entries
            .get(name)
            .copied()
            .ok_or(ErrorKind::NotFound)
    }

    fn make(&mut self, parent: ObjectId, name: &[u8], attr: &Attr, data: &[u8]) {
        let file = File {
            mode: attr.mode,
            uid: attr.uid,
            links: if attr.is_directory() { 2 } else { 1 },
            parent,
            data: data.to_vec(),
            ..File::default()
        };
        let directory = self.files.get_mut(&parent).unwrap();
        directory.links += u64::from(attr.is_directory());
        assert!(directory.entries.insert(name.to_vec(), attr.id).is_none());
        assert!(
            self.files.insert(attr.id, file).is_none(),
            "{} is in use",
            attr.id
        );
    }

    fn may_make(&mut self, parent: ObjectId, name: &[u8]) -> Outcome<()> {
        let taken = self.live_directory(parent)?.entries.contains_key(name);
        if taken {
            Err(ErrorKind::Exists)
        } else {
            Ok(())
        }
    }

    fn take_entry(&mut self, parent: ObjectId, name: &[u8]) -> ObjectId {
        let id = self
            .files
            .get_mut(&parent)
            .unwrap()
            .entries
            .remove(name)
            .unwrap();
        let is_directory = self.files[&id].is_directory();
        self.files.get_mut(&parent).unwrap().links -= u64::from(is_directory);
        id
    }

    fn drop_link(&mut self, id: ObjectId) {
        let file = self.files.get_mut(&id).unwrap();
        file.links = if file.is_directory() {
            0
        } else {
            file.links - 1
        };
        self.forget_if_gone(id);
    }

    fn forget_if_gone(&mut self, id: ObjectId) {
        let file = &self.files[&id];
        if file.links == 0 && file.holds == 0 {
            self.files.remove(&id);
        }
    }

    fn remove(&mut self, parent: ObjectId, name: &[u8], rmdir: bool) -> Outcome<()> {
        let id = self.find(parent, name)?;
        let file = &self.files[&id];
        match (file.is_directory(), rmdir) {
            (true, false) => return Err(ErrorKind::IsDirectory),
            (false, true) => return Err(ErrorKind::NotDirectory),
            (true, true) if !file.entries.is_empty() => return Err(ErrorKind::NotEmpty),
            _ => {}
        }
        self.take_entry(parent, name);
        self.drop_link(id);
        Ok(())
    }

    fn link(&mut self, id: ObjectId, parent: ObjectId, name: &[u8]) -> Outcome<()> {
        self.live_directory(parent)?;
        let file = self.files.get(&id).ok_or(ErrorKind::NotFound)?;
        if file.is_directory() {
            return Err(ErrorKind::Permission);
        }
        if file.links == 0 {
            return Err(ErrorKind::NotFound);
        }
        self.may_make(parent, name)?;
        self.files
            .get_mut(&parent)
            .unwrap()
            .entries
            .insert(name.to_vec(), id);
        self.files.get_mut(&id).unwrap().links += 1;
        Ok(())
    }

    fn is_inside(&self, mut at: ObjectId, directory: ObjectId) -> bool {
        while at != self.root {
            if at == directory {
                return true;
            }
            at = self.files[&at].parent;
        }
        at == directory
    }

    fn rename(
        &mut self,
        (from, name): (ObjectId, &[u8]),
        (to, new_name): (ObjectId, &[u8]),
        kind: RenameKind,
    ) -> Outcome<()> {
        self.live_directory(from)?;
        let target = {
            self.live_directory(to)?;
            self.find(to, new_name).ok()
        };
        let id = self.find(from, name)?;
        if (from, name) == (to, new_name) {
            return Ok(());
        }
        match (kind, target) {
            (RenameKind::NoReplace, Some(_)) => return Err(ErrorKind::Exists),
            (RenameKind::Exchange, None) => return Err(ErrorKind::NotFound),
            (_, Some(target)) if target == id => return Ok(()),
            _ => {}
        }
        let is_directory = self.files[&id].is_directory();
        if is_directory && self.is_inside(to, id) {
            return Err(ErrorKind::InvalidInput);
        }
        if let Some(other) = target {
            let other_is = self.files[&other].is_directory();
            if kind == RenameKind::Exchange {
                if other_is && self.is_inside(from, other) {
                    return Err(ErrorKind::InvalidInput);
                }
            } else {
                match (is_directory, other_is) {
                    (true, false) => return Err(ErrorKind::NotDirectory),
                    (false, true) => return Err(ErrorKind::IsDirectory),
                    (true, true) if !self.files[&other].entries.is_empty() => {
                        return Err(ErrorKind::NotEmpty);
                    }
                    _ => {}
                }
            }
        }
        self.take_entry(from, name);
        if let Some(other) = target {
            self.take_entry(to, new_name);
            if kind == RenameKind::Exchange {
                self.put(from, name, other);
            } else {
                self.drop_link(other);
            }
        }
        self.put(to, new_name, id);
        Ok(())
    }

    fn put(&mut self, parent: ObjectId, name: &[u8], id: ObjectId) {
        let is_directory = self.files[&id].is_directory();
        let directory = self.files.get_mut(&parent).unwrap();
        directory.entries.insert(name.to_vec(), id);
        directory.links += u64::from(is_directory);
        self.files.get_mut(&id).unwrap().parent = parent;
    }
}

/// A file system and its model.
struct Pair {
    fs: Arc<Filesystem>,
    model: Model,
    random: Random,
}

/// Both succeed, or both fail in the same way.
fn agree<T>(what: &str, real: Result<T>, model: Outcome<()>) -> Option<T> {
    match (real, model) {
        (Ok(value), Ok(())) => Some(value),
        (Err(error), Err(kind)) if error.kind() == kind => None,
        (Ok(_), Err(kind)) => panic!("{what}: worked, expected {kind:?}"),
        (Err(error), expected) => panic!("{what}: {error:?}, expected {expected:?}"),
    }
}

impl Pair {
    fn any(&mut self) -> ObjectId {
        let ids: Vec<ObjectId> = self.model.files.keys().copied().collect();
        self.random.pick(&ids)
    }

    fn any_directory(&mut self) -> ObjectId {
        let files = self
            .model
            .files
            .iter()
            .filter(|(_, file)| file.is_directory());
        let ids: Vec<ObjectId> = files.map(|(id, _)| *id).collect();
        if self.random.one_in(50) {
            self.any()
        } else {
            self.random.pick(&ids)
        }
    }

    fn any_regular(&mut self) -> Option<ObjectId> {
        let files = self
            .model
            .files
            .iter()
            .filter(|(_, file)| file.mode >> 12 == 8);
        let ids: Vec<ObjectId> = files.map(|(id, _)| *id).collect();
        (!ids.is_empty()).then(|| self.random.pick(&ids))
    }

    fn any_name(&mut self, directory: ObjectId) -> Vec<u8> {
        let file = &self.model.files[&directory];
        let names: Vec<&Vec<u8>> = file.entries.keys().collect();
        if !names.is_empty() && !self.random.one_in(5) {
            return self.random.pick(&names).clone();
        }
        let number = self.random.below(40);
        match self.random.below(20) {
            0 => format!("{number}{}", "long".repeat(62)).into_bytes(),
            1 => vec![0x80 + number as u8; 5],
            _ => format!("name{number}").into_bytes(),
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..25 => self.make(),
            25..45 => self.remove(),
            45..50 => self.link(),
            50..60 => self.rename(),
            60..80 => self.change_data(),
            80..86 => self.set_attributes(),
            86..92 => self.change_xattr(),
            92..96 => self.hold_or_rele(),
            _ => self.look(),
        }
    }

    fn make(&mut self) {
        let parent = self.any_directory();
        let mut name = self.any_name(parent);
        if self.model.files[&parent].entries.contains_key(&name) && !self.random.one_in(4) {
            name = format!("new{}", self.random.below(1000)).into_bytes();
        }
        let mode = self
            .random
            .pick(&[0o644, 0o600, 0o755, 0o070, 0o004, 0o7777]);
        let new = create(mode);
        let expect = self.model.may_make(parent, &name);
        let mut data = Vec::new();
        let real = match self.random.below(10) {
            0..3 => self.fs.mkdir(parent, &name, &new),
            3 => {
                let len = 1 + self.random.below(300);
                data = vec![b'/'; len];
                self.fs.symlink(parent, &name, &data, &new)
            }
            4 => {
                let kinds = [FileType::Fifo, FileType::Socket, FileType::BlockDevice];
                let kind = self.random.pick(&kinds);
                self.fs.mknod(parent, &name, kind, 0x1234, &new)
            }
            _ => self.fs.create_file(parent, &name, &new),
        };
        if let Some(attr) = agree("make", real, expect) {
            self.model.make(parent, &name, &attr, &data);
        }
    }

    fn remove(&mut self) {
        let parent = self.any_directory();
        let name = self.any_name(parent);
        let id = self.model.find(parent, &name).ok();
        let is_directory = id.is_some_and(|id| self.model.files[&id].is_directory());
        let rmdir = is_directory != self.random.one_in(10);
        let expect = self.model.remove(parent, &name, rmdir);
        let real = match rmdir {
            true => self.fs.rmdir(parent, &name),
            false => self.fs.unlink(parent, &name),
        };
        agree("remove", real, expect);
    }

    fn link(&mut self) {
        let (id, parent) = (self.any(), self.any_directory());
        let name = self.any_name(parent);
        let expect = self.model.link(id, parent, &name);
        agree("link", self.fs.link(id, parent, &name), expect);
    }

    fn rename(&mut self) {
        let (from, to) = (self.any_directory(), self.any_directory());
        let (name, new_name) = (self.any_name(from), self.any_name(to));
        let kinds = [
            RenameKind::Replace,
            RenameKind::NoReplace,
            RenameKind::Exchange,
        ];
        let kind = self.random.pick(&kinds);
        let expect = self.model.rename((from, &name), (to, &new_name), kind);
        let real = self.fs.rename(from, &name, to, &new_name, kind);
        agree("rename", real, expect);
    }

    fn change_data(&mut self) {
        let Some(id) = self.any_regular() else { return };
        let size = self.model.files[&id].data.len();
        let near_end = self.random.below(size + 2000);
        let at = self.random.pick(&[0, size, near_end, size / 2]);
        if self.random.one_in(5) {
            let size = self.random.pick(&[at, 0, 16 << 10, 20_000]);
            self.fs.truncate(id, size as u64).unwrap();
            self.model.files.get_mut(&id).unwrap().data.resize(size, 0);
            self.model.files.get_mut(&id).unwrap().mtime = None;
            return;
        }
        if self.random.one_in(8) && size > 0 {
            let (at, len) = (self.random.below(size), 1 + self.random.below(40_000));
            self.fs.punch_hole(id, at as u64, len as u64).unwrap();
            let end = size.min(at + len);
            self.model.files.get_mut(&id).unwrap().data[at..end].fill(0);
            self.model.files.get_mut(&id).unwrap().mtime = None;
            return;
        }
        let small = self.random.below(600);
        let large = self.random.below(50_000);
        let len = self.random.pick(&[1, small, small, small, large, 16 << 10]);
        let data = self.random.bytes(len);
        let file = self.model.files.get_mut(&id).unwrap();
        file.data.resize(size.max(at + len), 0);
        file.data[at..at + len].copy_from_slice(&data);
        if len == 0 {
            // Nothing is written, and the file does not grow.
            file.data.truncate(size);
        } else {
            file.mtime = None;
        }
        self.fs.write(id, at as u64, &data).unwrap();
    }

    fn set_attributes(&mut self) {
        let id = self.any();
        let mode = self.random.next() as u32 & 0o7777;
        let uid = self.random.below(5) as u64;
        let mtime = Time {
            secs: self.random.below(1 << 40) as i64,
            nanos: 7,
        };
        let set = match self.random.below(3) {
            0 => SetAttr {
                mode: Some(mode),
                ..SetAttr::default()
            },
            1 => SetAttr {
                uid: Some(uid),
                ..SetAttr::default()
            },
            _ => SetAttr {
                mtime: Some(mtime),
                ..SetAttr::default()
            },
        };
        self.fs.setattr(id, &set).unwrap();
        let file = self.model.files.get_mut(&id).unwrap();
        file.mode = set
            .mode
            .map_or(file.mode, |mode| file.mode & !0o7777 | mode);
        file.uid = set.uid.unwrap_or(file.uid);
        file.mtime = set.mtime.or(file.mtime);
    }

    fn change_xattr(&mut self) {
        let id = self.any();
        let name = format!("user.{}", self.random.below(6)).into_bytes();
        let small = self.random.below(100);
        let large = self.random.below(66_000);
        let len = self.random.pick(&[small, small, small, small, large]);
        let value = self.random.bytes(len);
        let is_there = self.model.files[&id].xattrs.contains_key(&name);
        if self.random.one_in(3) {
            let real = self.fs.removexattr(id, &name);
            let expect = if is_there {
                Ok(())
            } else {
                Err(ErrorKind::NotFound)
            };
            agree("removexattr", real, expect);
            self.model.files.get_mut(&id).unwrap().xattrs.remove(&name);
            return;
        }
        if len > 65_536 {
            assert!(self.fs.setxattr(id, &name, &value, SetXattr::Set).is_err());
            return;
        }
        let create_only = self.random.one_in(4);
        let expect = match create_only && is_there {
            true => Err(ErrorKind::Exists),
            false => Ok(()),
        };
        let how = if create_only {
            SetXattr::Create
        } else {
            SetXattr::Set
        };
        let real = self.fs.setxattr(id, &name, &value, how);
        if agree("setxattr", real, expect).is_some() {
            self.model
                .files
                .get_mut(&id)
                .unwrap()
                .xattrs
                .insert(name, value);
        }
    }

    fn hold_or_rele(&mut self) {
        let id = self.any();
        let file = self.model.files.get_mut(&id).unwrap();
        if file.holds > 0 && self.random.one_in(2) {
            file.holds -= 1;
            self.fs.rele(id, 1).unwrap();
            self.model.forget_if_gone(id);
        } else {
            file.holds += 1;
            self.fs.hold(id).unwrap();
        }
    }

    fn look(&mut self) {
        let id = self.any();
        self.compare(id);
    }

    fn compare(&self, id: ObjectId) {
        let file = &self.model.files[&id];
        let attr = self.fs.getattr(id).unwrap();
        let have = (attr.mode, attr.uid, attr.links);
        assert_eq!(have, (file.mode, file.uid, file.links), "file {id}");
        if let Some(mtime) = file.mtime.filter(|_| !file.is_directory()) {
            assert_eq!(attr.mtime, mtime, "file {id}");
        }
        match attr.file_type().unwrap() {
            FileType::Directory => {
                assert_eq!(attr.size, file.entries.len() as u64 + 2);
                let entries = self.fs.list(id).unwrap();
                let listed: BTreeMap<Vec<u8>, ObjectId> = entries
                    .into_iter()
                    .map(|entry| (entry.name, entry.id))
                    .collect();
                if file.links > 0 {
                    assert_eq!(listed, file.entries, "directory {id}");
                }
            }
            FileType::Symlink => assert_eq!(self.fs.readlink(id).unwrap(), file.data),
            FileType::Regular => {
                assert_eq!(attr.size, file.data.len() as u64, "file {id}");
                let mut data = vec![1; file.data.len() + 1];
                assert_eq!(self.fs.read(id, 0, &mut data).unwrap(), file.data.len());
                let differs = data.iter().zip(&file.data).position(|(a, b)| a != b);
                assert_eq!(differs, None, "content of file {id}");
            }
            _ => {}
        }
        let mut names = self.fs.listxattr(id).unwrap();
        names.sort();
        assert_eq!(
            names,
            file.xattrs.keys().cloned().collect::<Vec<_>>(),
            "file {id}"
        );
        for (name, value) in &file.xattrs {
            assert_eq!(self.fs.getxattr(id, name).unwrap().as_ref(), Some(value));
        }
    }

    fn compare_all(&self) {
        for id in self.model.files.keys() {
            self.compare(*id);
        }
        check_tree(&self.fs);
    }

    /// A crash closes all files.
    fn forget_holds(&mut self) {
        let ids: Vec<ObjectId> = self.model.files.keys().copied().collect();
        for id in ids {
            self.model.files.get_mut(&id).unwrap().holds = 0;
            self.model.forget_if_gone(id);
        }
    }
}

#[test]
fn random_operations_agree_with_a_model() {
    let mut random = Random::from_env();
    let ops = ops(20_000);
    let props = ObjsetProps {
        recordsize: random.pick(&[4 << 10, 16 << 10, 128 << 10]),
        dnodesize: random.pick(&[512, 1024, 2048]),
        ..ObjsetProps::default()
    };
    let xattr_sa = random.one_in(2);
    let settings = Settings {
        xattr_sa,
        ..Settings::default()
    };
    let pool = Pool::with(props, settings, Arc::new(NoLog));
    let fs = pool.mount();
    let mut pair = Pair {
        model: Model::new(fs.root()),
        fs,
        random,
    };
    for op in 1..=ops {
        pair.step();
        if pair.model.files.len() > 800 {
            // Make room: remove what can be removed.
            for _ in 0..300 {
                pair.remove();
            }
        }
        if op % (ops / 5).max(1) == 0 {
            pair.compare_all();
            let Pair { fs, model, random } = pair;
            let fs = pool.remount(fs);
            pair = Pair { fs, model, random };
            pair.forget_holds();
            pair.compare_all();
        }
    }
    pair.compare_all();
}
