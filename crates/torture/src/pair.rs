//! A file system and its model: every operation is done on both, and both must agree.

use std::collections::BTreeMap;

use base::{ErrorKind, ObjectId, Result};
use zpl::{Attr, Create, FileType, Filesystem, RenameKind, SetAttr, SetXattr, Time};

use crate::Dice;
use crate::memfs::{MemFile, MemFs, Outcome, limits_of};

/// Above this many files the pair only removes, until half are left.
const FILES_MAX: usize = 800;
/// `XATTR_SIZE_MAX`.
const XATTR_BYTES_MAX: usize = 65_536;

/// A file system and its model.
pub struct Pair<'a> {
    /// The real one.
    pub fs: &'a Filesystem,
    /// The model.
    pub model: &'a mut MemFs,
    /// Chooses what to do next.
    pub dice: &'a mut Dice,
    /// Limits, tolerated errors, and what the last step did.
    pub terms: &'a mut Terms,
}

/// What a [`Pair`] keeps to, and what its last step did.
#[derive(Default)]
pub struct Terms {
    /// Above this many files the next steps only remove, until half are left; 0 stands for `FILES_MAX`.
    pub files_max: usize,
    /// Whether steps only remove.
    pub is_thinning: bool,
    /// Errors that any operation may return; it must then have changed nothing.
    pub tolerated: &'static [ErrorKind],
    /// The tolerated error of the last step.
    pub refused: Option<ErrorKind>,
    /// The model as if the refused operation had worked: with `sync=always` it was done, and is in the
    /// intent log, if only the answer failed.
    pub attempted: Option<MemFs>,
    /// The file that the last step made durable.
    pub fsynced: Option<ObjectId>,
}

impl Pair<'_> {
    /// One random operation.
    ///
    /// # Panics
    /// When the two do not agree.
    pub fn step(&mut self) {
        self.terms.refused = None;
        self.terms.attempted = None;
        self.terms.fsynced = None;
        let before = self.model.clone();
        if self.is_to_thin_out() {
            self.remove();
        } else {
            self.operate();
        }
        if self.terms.refused.is_some() {
            self.terms.attempted = Some(std::mem::replace(self.model, before));
        }
    }

    fn is_to_thin_out(&mut self) -> bool {
        let files_max = match self.terms.files_max {
            0 => FILES_MAX,
            files_max => files_max,
        };
        let limit = match self.terms.is_thinning {
            true => files_max / 2,
            false => files_max,
        };
        self.terms.is_thinning = self.model.count() > limit;
        self.terms.is_thinning
    }

    /// Both succeed, or both fail in the same way.
    fn agree<T>(&mut self, what: &str, real: Result<T>, model: Outcome<()>) -> Option<T> {
        match (real, model) {
            (Ok(value), Ok(())) => Some(value),
            (Err(error), Err(kind)) if error.kind() == kind => None,
            (Err(error), _) if self.terms.tolerated.contains(&error.kind()) => {
                self.terms.refused = Some(error.kind());
                None
            }
            (Ok(_), Err(kind)) => panic!("{what}: worked, expected {kind:?}"),
            (Err(error), expected) => panic!("{what}: {error:?}, expected {expected:?}"),
        }
    }

    /// Whether the model is to do the operation, too: it worked, or it was refused, and is taken back at the end
    /// of the step.
    fn works<T>(&mut self, what: &str, real: Result<T>) -> bool {
        self.agree(what, real, Ok(())).is_some() || self.terms.refused.is_some()
    }

    fn operate(&mut self) {
        match self.dice.below(100) {
            0..25 => self.make(),
            25..43 => self.remove(),
            43..48 => self.link(),
            48..58 => self.rename(),
            58..78 => self.change_data(),
            78..84 => self.set_attributes(),
            84..90 => self.change_xattr(),
            90..94 => self.hold_or_rele(),
            94 => self.fsync(),
            _ => self.look(),
        }
    }

    fn any(&mut self) -> ObjectId {
        let from = self.dice.below(self.model.last().0 + 1);
        self.model.at_or_after(ObjectId(from))
    }

    fn any_that(&mut self, fits: impl Fn(&MemFile) -> bool) -> Option<ObjectId> {
        (0..30).find_map(|_| {
            let id = self.any();
            fits(self.model.file(id)).then_some(id)
        })
    }

    fn any_directory(&mut self) -> ObjectId {
        if self.dice.once_in(50) {
            return self.any();
        }
        self.any_that(MemFile::is_directory)
            .unwrap_or(self.model.root())
    }

    fn any_name(&mut self, directory: ObjectId) -> Vec<u8> {
        let names: Vec<&Vec<u8>> = self.model.file(directory).entries.keys().collect();
        if !names.is_empty() && !self.dice.once_in(5) {
            return (*self.dice.pick(&names).expect("there are some")).clone();
        }
        let number = self.dice.below(40);
        match self.dice.below(20) {
            0 => format!("{number:03}{}", "long".repeat(63)).into_bytes(),
            1 => vec![0x80 + number as u8; 5],
            _ => format!("name{number}").into_bytes(),
        }
    }

    fn make(&mut self) {
        let parent = self.any_directory();
        let mut name = self.any_name(parent);
        if self.model.file(parent).entries.contains_key(&name) && !self.dice.once_in(4) {
            name = format!("new{}", self.dice.below(1000)).into_bytes();
        }
        let modes = [0o644, 0o600, 0o755, 0o070, 0o004, 0o7777];
        let new = Create {
            mode: *self.dice.pick(&modes).expect("there are some"),
            uid: self.dice.below(3) * 1000,
            gid: 100,
        };
        let expect = self.model.may_make(parent, &name);
        let mut data = Vec::new();
        let real = match self.dice.below(10) {
            0..3 => self.fs.mkdir(parent, &name, &new),
            3 => {
                data = vec![b'/'; 1 + self.dice.below(300) as usize];
                self.fs.symlink(parent, &name, &data, &new)
            }
            4 => {
                let kinds = [FileType::Fifo, FileType::Socket, FileType::BlockDevice];
                let kind = *self.dice.pick(&kinds).expect("there are some");
                self.fs.mknod(parent, &name, kind, 0x1234, &new)
            }
            _ => self.fs.create_file(parent, &name, &new),
        };
        let made = self.agree("make", real, expect);
        if let Some(attr) = made.or_else(|| self.made_all_the_same(parent, &name)) {
            let file = MemFile {
                mode: attr.mode,
                uid: new.uid,
                data,
                ..MemFile::default()
            };
            self.model.make(parent, &name, attr.id, file);
        }
    }

    /// The new file, if making it was refused after it had been made.
    fn made_all_the_same(&self, parent: ObjectId, name: &[u8]) -> Option<Attr> {
        self.terms.refused?;
        self.model.may_make(parent, name).ok()?;
        self.fs.lookup(parent, name).ok()
    }

    fn remove(&mut self) {
        let parent = self.any_directory();
        let name = self.any_name(parent);
        let found = self.model.find(parent, &name);
        let is_directory = found.is_ok_and(|id| self.model.file(id).is_directory());
        let rmdir = is_directory != self.dice.once_in(10);
        let expect = self.model.remove(parent, &name, rmdir);
        let real = if rmdir {
            self.fs.rmdir(parent, &name)
        } else {
            self.fs.unlink(parent, &name)
        };
        self.agree("remove", real, expect);
    }

    fn link(&mut self) {
        let (id, parent) = (self.any(), self.any_directory());
        let name = self.any_name(parent);
        let expect = self.model.link(id, parent, &name);
        let real = self.fs.link(id, parent, &name);
        self.agree("link", real, expect);
    }

    fn rename(&mut self) {
        let (from, to) = (self.any_directory(), self.any_directory());
        let (name, new_name) = (self.any_name(from), self.any_name(to));
        let kinds = [
            RenameKind::Replace,
            RenameKind::NoReplace,
            RenameKind::Exchange,
        ];
        let kind = *self.dice.pick(&kinds).expect("there are some");
        let expect = self.model.rename((from, &name), (to, &new_name), kind);
        let real = self.fs.rename(from, &name, to, &new_name, kind);
        self.agree("rename", real, expect);
    }

    fn change_data(&mut self) {
        let Some(id) = self.any_that(MemFile::is_regular) else {
            return;
        };
        let size = self.model.file(id).data.len();
        let near_end = self.dice.below(size as u64 + 2000) as usize;
        let places = [0, size, near_end, size / 2];
        let at = *self.dice.pick(&places).expect("there are some");
        if self.dice.once_in(5) {
            let sizes = [at, 0, 16 << 10, 20_000];
            let size = *self.dice.pick(&sizes).expect("there are some");
            let real = self.fs.truncate(id, size as u64);
            if self.works("truncate", real) {
                let file = self.model.file_mut(id);
                file.data.resize(size, 0);
                file.mtime = None;
            }
            return;
        }
        if self.dice.once_in(8) && size > 0 {
            let (at, len) = (self.dice.below(size as u64), 1 + self.dice.below(40_000));
            let real = self.fs.punch_hole(id, at, len);
            if self.works("punch_hole", real) {
                let file = self.model.file_mut(id);
                file.data[at as usize..size.min((at + len) as usize)].fill(0);
                file.mtime = None;
            }
            return;
        }
        let small = self.dice.below(600);
        let large = self.dice.below(50_000);
        let huge = if self.dice.once_in(50) {
            300_000
        } else {
            small
        };
        let lengths = [1, small, small, small, large, 16 << 10, huge];
        let len = *self.dice.pick(&lengths).expect("there are some") as usize;
        let data = self.dice.bytes(len);
        let real = self.fs.write(id, at as u64, &data);
        if self.works("write", real) && len > 0 {
            // a write of length 0 does nothing, and does not grow the file
            let file = self.model.file_mut(id);
            file.data.resize(size.max(at + len), 0);
            file.data[at..at + len].copy_from_slice(&data);
            file.mtime = None;
        }
    }

    fn set_attributes(&mut self) {
        let id = self.any();
        let mut set = SetAttr::default();
        match self.dice.below(3) {
            0 => set.mode = Some(self.dice.below(0o10000) as u32),
            1 => set.uid = Some(self.dice.below(5)),
            _ => {
                set.mtime = Some(Time {
                    secs: self.dice.below(1 << 40) as i64,
                    nanos: 7,
                });
            }
        }
        let real = self.fs.setattr(id, &set);
        if !self.works("setattr", real) {
            return;
        }
        let file = self.model.file_mut(id);
        file.mode = set
            .mode
            .map_or(file.mode, |mode| file.mode & !0o7777 | mode);
        file.uid = set.uid.unwrap_or(file.uid);
        file.mtime = set.mtime.or(file.mtime);
    }

    fn change_xattr(&mut self) {
        let id = self.any();
        let name = format!("user.{}", self.dice.below(6)).into_bytes();
        let shift = if self.dice.once_in(5) { 66_000 } else { 100 };
        let value_len = self.dice.below(shift) as usize;
        let value = self.dice.bytes(value_len);
        let is_there = self.model.file(id).xattrs.contains_key(&name);
        if self.dice.once_in(3) {
            let expect = if is_there {
                Ok(())
            } else {
                Err(ErrorKind::NotFound)
            };
            let real = self.fs.removexattr(id, &name);
            self.agree("removexattr", real, expect);
            self.model.file_mut(id).xattrs.remove(&name);
            return;
        }
        if value.len() > XATTR_BYTES_MAX {
            let real = self.fs.setxattr(id, &name, &value, SetXattr::Set);
            self.agree("setxattr", real, Err(ErrorKind::TooBig));
            return;
        }
        let (how, expect) = match self.dice.once_in(4) {
            true if is_there => (SetXattr::Create, Err(ErrorKind::Exists)),
            true => (SetXattr::Create, Ok(())),
            false => (SetXattr::Set, Ok(())),
        };
        let real = self.fs.setxattr(id, &name, &value, how);
        let is_new = self.agree("setxattr", real, expect).is_some();
        if is_new || self.terms.refused.is_some() {
            self.model.file_mut(id).xattrs.insert(name, value);
        }
    }

    fn hold_or_rele(&mut self) {
        let id = self.any();
        if self.model.file(id).holds > 0 && self.dice.once_in(2) {
            let real = self.fs.rele(id, 1);
            self.works("rele", real);
            // Also if a file without a name could not be removed yet: the next mount removes it.
            self.terms.refused = None;
            self.model.rele(id);
        } else {
            self.fs.hold(id).expect("hold");
            self.model.file_mut(id).holds += 1;
        }
    }

    fn fsync(&mut self) {
        let id = self.any();
        let real = self.fs.fsync(id);
        if self.agree("fsync", real, Ok(())).is_some() {
            self.terms.fsynced = Some(id);
        }
    }

    fn look(&mut self) {
        let id = self.any();
        let compared = compare_file(self.fs, id, self.model.file(id));
        self.works("look", compared);
    }
}

/// Reads every file of the model, and the limits of owners.
///
/// # Panics
/// When one is not as it should be.
pub fn compare(fs: &Filesystem, model: &MemFs) {
    let limits = limits_of(fs).unwrap_or_else(|e| panic!("limits: {e}"));
    assert_eq!(&limits, model.limits());
    for (id, file) in model.files() {
        let compared = compare_file(fs, id, file);
        compared.unwrap_or_else(|e| panic!("file {id}: {e}"));
    }
}

/// An error only if the file could not be read.
fn compare_file(fs: &Filesystem, id: ObjectId, file: &MemFile) -> Result<()> {
    let attr = fs.getattr(id)?;
    let have = (attr.mode, attr.uid, attr.links);
    assert_eq!(have, (file.mode, file.uid, file.links), "file {id}");
    if let Some(mtime) = file.mtime.filter(|_| !file.is_directory()) {
        assert_eq!(attr.mtime, mtime, "file {id}");
    }
    match attr.file_type() {
        Some(FileType::Directory) => {
            assert_eq!(attr.size, file.entries.len() as u64 + 2, "directory {id}");
            let entries = fs.list(id)?;
            let listed: BTreeMap<Vec<u8>, ObjectId> =
                entries.into_iter().map(|e| (e.name, e.id)).collect();
            if file.links > 0 {
                assert_eq!(listed, file.entries, "directory {id}");
            }
        }
        Some(FileType::Symlink) => {
            assert_eq!(fs.readlink(id)?, file.data);
        }
        Some(FileType::Regular) => {
            assert_eq!(attr.size, file.data.len() as u64, "file {id}");
            let mut data = vec![1; file.data.len() + 1];
            let count = fs.read(id, 0, &mut data)?;
            assert_eq!(count, file.data.len(), "file {id}");
            let differs = data.iter().zip(&file.data).position(|(a, b)| a != b);
            assert_eq!(differs, None, "content of file {id}");
        }
        _ => {}
    }
    let mut names = fs.listxattr(id)?;
    names.sort();
    let expected: Vec<Vec<u8>> = file.xattrs.keys().cloned().collect();
    assert_eq!(names, expected, "file {id}");
    for (name, value) in &file.xattrs {
        let found = fs.getxattr(id, name)?;
        assert_eq!(found.as_ref(), Some(value), "file {id}");
    }
    Ok(())
}
