//! A file system in memory: what POSIX says about files and names, as simply as possible.
//!
//! It takes object numbers from the file system that it models, and returns for each operation what that file
//! system must return: success, or the kind of error. Copies are cheap, so that a copy serves as a snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{ErrorKind, ObjectId, Result};
use phys::owner::OwnerCount;
use zpl::{FileType, Filesystem, OwnerLimit, RenameKind, Time, owner_limits};

/// A file of the model.
#[derive(Clone, Default)]
pub struct MemFile {
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u64,
    /// Modification time, if one was set explicitly.
    pub mtime: Option<Time>,
    /// Links: its names, and for a directory also its subdirectories.
    pub links: u64,
    /// Content; of a symbolic link, its target.
    pub data: Vec<u8>,
    /// Entries, if it is a directory.
    pub entries: BTreeMap<Vec<u8>, ObjectId>,
    /// Of a directory: the one that contains it.
    pub parent: ObjectId,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// How many times it is open.
    pub holds: u64,
}

impl MemFile {
    /// Whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.mode >> 12 == 4
    }

    /// Whether it is a regular file.
    #[must_use]
    pub(crate) fn is_regular(&self) -> bool {
        self.mode >> 12 == 8
    }
}

/// The files of one file system.
#[derive(Clone)]
pub struct MemFs {
    files: Arc<BTreeMap<ObjectId, Arc<MemFile>>>,
    root: ObjectId,
    limits: Limits,
}

/// Limits of owners, by the prefix of their properties and the owner.
pub type Limits = BTreeMap<(&'static str, u64), u64>;

/// The result that an operation must have.
pub type Outcome<T> = std::result::Result<T, ErrorKind>;

impl MemFs {
    /// An empty one.
    #[must_use]
    pub fn new(root: ObjectId) -> MemFs {
        let file = MemFile {
            mode: 0o040_755,
            links: 2,
            parent: root,
            ..MemFile::default()
        };
        MemFs {
            files: Arc::new(BTreeMap::from([(root, Arc::new(file))])),
            root,
            limits: Limits::new(),
        }
    }

    /// Reads what a file system holds: every file that has a name. Modification times are ignored.
    ///
    /// # Errors
    /// Those of reading.
    pub fn read(fs: &Filesystem) -> Result<MemFs> {
        let mut files = BTreeMap::new();
        read_into(fs, fs.root(), fs.root(), &mut files)?;
        Ok(MemFs {
            files: Arc::new(files),
            root: fs.root(),
            limits: limits_of(fs)?,
        })
    }

    /// The limits of owners.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Limits an owner; a limit of 0 is none.
    pub fn set_limit(&mut self, limit: &OwnerLimit) {
        let key = (limit.of.quota_entry(), limit.id);
        match limit.limit {
            0 => self.limits.remove(&key),
            most => self.limits.insert(key, most),
        };
    }

    /// Every file, including those that are open but have no name.
    pub fn files(&self) -> impl Iterator<Item = (ObjectId, &MemFile)> {
        self.files.iter().map(|(id, file)| (*id, &**file))
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.files.len()
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> ObjectId {
        self.root
    }

    /// A file, if it is there.
    #[must_use]
    pub fn get(&self, id: ObjectId) -> Option<&MemFile> {
        self.files.get(&id).map(|file| &**file)
    }

    /// A file that is there.
    #[must_use]
    pub fn file(&self, id: ObjectId) -> &MemFile {
        &self.files[&id]
    }

    /// The same, to change it.
    pub(crate) fn file_mut(&mut self, id: ObjectId) -> &mut MemFile {
        let files = Arc::make_mut(&mut self.files);
        Arc::make_mut(files.get_mut(&id).expect("the file is there"))
    }

    /// The first file whose number is at least `id`, or the first file if there is none.
    #[must_use]
    pub(crate) fn at_or_after(&self, id: ObjectId) -> ObjectId {
        let next = self.files.range(id..).next();
        next.or(self.files.iter().next())
            .map(|(id, _)| *id)
            .expect("there is a root")
    }

    /// The largest file number.
    #[must_use]
    pub fn last(&self) -> ObjectId {
        *self.files.keys().next_back().expect("there is a root")
    }

    fn directory(&self, id: ObjectId) -> Outcome<&MemFile> {
        let file = self.files.get(&id).ok_or(ErrorKind::NotFound)?;
        if file.is_directory() {
            Ok(file)
        } else {
            Err(ErrorKind::NotDirectory)
        }
    }

    fn live_directory(&self, id: ObjectId) -> Outcome<&MemFile> {
        let file = self.directory(id)?;
        if file.links == 0 {
            Err(ErrorKind::NotFound)
        } else {
            Ok(file)
        }
    }

    /// The file that `name` refers to.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`.
    pub fn find(&self, directory: ObjectId, name: &[u8]) -> Outcome<ObjectId> {
        let entries = &self.directory(directory)?.entries;
        entries.get(name).copied().ok_or(ErrorKind::NotFound)
    }

    /// Whether a file may be created under that name.
    ///
    /// # Errors
    /// `Exists` and those of [`MemFs::find`].
    pub fn may_make(&self, parent: ObjectId, name: &[u8]) -> Outcome<()> {
        if self.live_directory(parent)?.entries.contains_key(name) {
            Err(ErrorKind::Exists)
        } else {
            Ok(())
        }
    }

    /// Adds a new file, under the number that the real file system gave it.
    ///
    /// # Panics
    /// When that number is in use.
    pub fn make(&mut self, parent: ObjectId, name: &[u8], id: ObjectId, mut file: MemFile) {
        file.links = if file.is_directory() { 2 } else { 1 };
        file.parent = parent;
        let directory = self.file_mut(parent);
        directory.links += u64::from(file.is_directory());
        assert!(directory.entries.insert(name.to_vec(), id).is_none());
        let before = Arc::make_mut(&mut self.files).insert(id, Arc::new(file));
        assert!(before.is_none(), "{id} is in use");
    }

    fn take_entry(&mut self, parent: ObjectId, name: &[u8]) -> ObjectId {
        let taken = self.file_mut(parent).entries.remove(name);
        let id = taken.expect("it was found");
        let is_directory = self.file(id).is_directory();
        self.file_mut(parent).links -= u64::from(is_directory);
        id
    }

    fn put_entry(&mut self, parent: ObjectId, name: &[u8], id: ObjectId) {
        let is_directory = self.file(id).is_directory();
        let directory = self.file_mut(parent);
        directory.entries.insert(name.to_vec(), id);
        directory.links += u64::from(is_directory);
        self.file_mut(id).parent = parent;
    }

    fn drop_link(&mut self, id: ObjectId) {
        let file = self.file_mut(id);
        file.links = if file.is_directory() {
            0
        } else {
            file.links - 1
        };
        self.forget_if_gone(id);
    }

    fn forget_if_gone(&mut self, id: ObjectId) {
        let file = self.file(id);
        if file.links == 0 && file.holds == 0 {
            Arc::make_mut(&mut self.files).remove(&id);
        }
    }

    /// `unlink` or `rmdir`.
    ///
    /// # Errors
    /// `IsDirectory`, `NotDirectory`, `NotEmpty` and those of [`MemFs::find`].
    pub fn remove(&mut self, parent: ObjectId, name: &[u8], rmdir: bool) -> Outcome<()> {
        let id = self.find(parent, name)?;
        let file = self.file(id);
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

    /// One more name of a file.
    ///
    /// # Errors
    /// `Permission` for a directory, `Exists` and those of [`MemFs::find`].
    pub fn link(&mut self, id: ObjectId, parent: ObjectId, name: &[u8]) -> Outcome<()> {
        self.live_directory(parent)?;
        let file = self.files.get(&id).ok_or(ErrorKind::NotFound)?;
        if file.is_directory() {
            return Err(ErrorKind::Permission);
        }
        if file.links == 0 {
            return Err(ErrorKind::NotFound);
        }
        self.may_make(parent, name)?;
        self.file_mut(parent).entries.insert(name.to_vec(), id);
        self.file_mut(id).links += 1;
        Ok(())
    }

    fn is_inside(&self, mut at: ObjectId, directory: ObjectId) -> bool {
        while at != self.root && at != directory {
            at = self.file(at).parent;
        }
        at == directory
    }

    /// `renameat2`.
    ///
    /// # Errors
    /// Those of `rename(2)`.
    pub fn rename(
        &mut self,
        (from, name): (ObjectId, &[u8]),
        (to, new_name): (ObjectId, &[u8]),
        kind: RenameKind,
    ) -> Outcome<()> {
        self.live_directory(from)?;
        self.live_directory(to)?;
        let target = self.find(to, new_name).ok();
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
        self.may_move(id, (from, to), target, kind)?;
        self.take_entry(from, name);
        if let Some(other) = target {
            self.take_entry(to, new_name);
            if kind == RenameKind::Exchange {
                self.put_entry(from, name, other);
            } else {
                self.drop_link(other);
            }
        }
        self.put_entry(to, new_name, id);
        Ok(())
    }

    fn may_move(
        &self,
        id: ObjectId,
        (from, to): (ObjectId, ObjectId),
        target: Option<ObjectId>,
        kind: RenameKind,
    ) -> Outcome<()> {
        let is_directory = self.file(id).is_directory();
        if is_directory && self.is_inside(to, id) {
            return Err(ErrorKind::InvalidInput);
        }
        let Some(other) = target else { return Ok(()) };
        let there = self.file(other);
        if kind == RenameKind::Exchange {
            return if there.is_directory() && self.is_inside(from, other) {
                Err(ErrorKind::InvalidInput)
            } else {
                Ok(())
            };
        }
        match (is_directory, there.is_directory()) {
            (true, false) => Err(ErrorKind::NotDirectory),
            (false, true) => Err(ErrorKind::IsDirectory),
            (true, true) if !there.entries.is_empty() => Err(ErrorKind::NotEmpty),
            _ => Ok(()),
        }
    }

    /// Drops one hold.
    pub fn rele(&mut self, id: ObjectId) {
        self.file_mut(id).holds -= 1;
        self.forget_if_gone(id);
    }

    /// Closes all files: those without a name are gone.
    pub fn forget_holds(&mut self) {
        let held: Vec<ObjectId> = self
            .files()
            .filter(|(_, file)| file.holds > 0)
            .map(|(id, _)| id)
            .collect();
        for id in held {
            self.file_mut(id).holds = 0;
            self.forget_if_gone(id);
        }
    }
}

/// The limits of owners that a file system has.
///
/// # Errors
/// Those of reading.
pub(crate) fn limits_of(fs: &Filesystem) -> Result<Limits> {
    let mut limits = Limits::new();
    for of in OwnerCount::ALL {
        let owners = owner_limits(fs.objset(), of)?.unwrap_or_default();
        let owners = owners.into_iter();
        limits.extend(owners.map(|(id, most)| ((of.quota_entry(), id), most)));
    }
    Ok(limits)
}

fn read_into(
    fs: &Filesystem,
    id: ObjectId,
    parent: ObjectId,
    files: &mut BTreeMap<ObjectId, Arc<MemFile>>,
) -> Result<()> {
    let attr = fs.getattr(id)?;
    let mut file = MemFile {
        mode: attr.mode,
        uid: attr.uid,
        links: attr.links,
        parent,
        ..MemFile::default()
    };
    match attr.file_type() {
        Some(FileType::Directory) => {
            for entry in fs.list(id)? {
                file.entries.insert(entry.name, entry.id);
            }
        }
        Some(FileType::Symlink) => file.data = fs.readlink(id)?,
        Some(FileType::Regular) => {
            file.data = vec![0; attr.size as usize];
            fs.read(id, 0, &mut file.data)?;
        }
        _ => {}
    }
    for name in fs.listxattr(id)? {
        let value = fs.getxattr(id, &name)?.unwrap_or_default();
        file.xattrs.insert(name, value);
    }
    let below: Vec<ObjectId> = file.entries.values().copied().collect();
    files.insert(id, Arc::new(file));
    for child in below {
        if !files.contains_key(&child) {
            read_into(fs, child, id, files)?;
        }
    }
    Ok(())
}
