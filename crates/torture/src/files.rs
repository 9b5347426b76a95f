//! A file system checked against a model: paths and their bytes.

use std::collections::BTreeMap;

use base::{ObjectId, Result};
use zpl::{Create, Filesystem, RenameKind, SetXattr};

use crate::Dice;

/// One name in the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Dir,
    /// A file with its content.
    File(Vec<u8>),
    /// A symbolic link with its target.
    Link(Vec<u8>),
}

/// What a file system should hold, by path without a leading slash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// Every name except the root.
    pub nodes: BTreeMap<String, Node>,
    next: u64,
}

/// The largest offset or size, in bytes, that [`Files::step`] chooses; a write may end above it.
const FILE_BYTES_MAX: u64 = 400_000;

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl Files {
    fn dirs(&self) -> Vec<String> {
        let dirs = self.nodes.iter().filter(|(_, node)| **node == Node::Dir);
        std::iter::once(String::new())
            .chain(dirs.map(|(path, _)| path.clone()))
            .collect()
    }

    fn regular(&self) -> Vec<String> {
        let files = self
            .nodes
            .iter()
            .filter(|(_, node)| matches!(node, Node::File(_)));
        files.map(|(path, _)| path.clone()).collect()
    }

    fn fresh(&mut self, dice: &mut Dice, stem: &str) -> String {
        self.next += 1;
        let dir = dice.pick(&self.dirs()).cloned().unwrap_or_default();
        let long = if dice.once_in(10) {
            "a-name-that-is-rather-long-".repeat(5)
        } else {
            String::new()
        };
        let name = format!("{stem}{long}{}", self.next);
        if dir.is_empty() {
            name
        } else {
            format!("{dir}/{name}")
        }
    }

    /// One random operation, in the file system and in the model.
    ///
    /// # Errors
    /// What the file system returns.
    pub fn step(&mut self, fs: &Filesystem, dice: &mut Dice) -> Result<()> {
        match dice.below(100) {
            0..35 => self.create(fs, dice),
            35..42 => self.mkdir(fs, dice),
            42..46 => self.symlink(fs, dice),
            46..70 => self.write(fs, dice),
            70..78 => self.truncate(fs, dice),
            78..86 => self.unlink(fs, dice),
            86..92 => self.rename(fs, dice),
            _ => self.xattr(fs, dice),
        }
    }

    fn parent(fs: &Filesystem, path: &str) -> Result<ObjectId> {
        fs.resolve(split(path).0)
    }

    fn create(&mut self, fs: &Filesystem, dice: &mut Dice) -> Result<()> {
        let path = self.fresh(dice, "f");
        let create = Create {
            mode: 0o644,
            uid: dice.below(3) * 1000,
            gid: 100,
        };
        let attr = fs.create_file(Self::parent(fs, &path)?, split(&path).1.as_bytes(), &create)?;
        let shift = dice.below(17);
        let length = dice.below(1 << shift) as usize;
        let bytes = dice.bytes(length);
        fs.write(attr.id, 0, &bytes)?;
        self.nodes.insert(path, Node::File(bytes));
        Ok(())
    }

    fn mkdir(&mut self, fs: &Filesystem, dice: &mut Dice) -> Result<()> {
        let path = self.fresh(dice, "d");
        let create = Create {
            mode: 0o755,
            uid: 0,
            gid: 0,
        };
        fs.mkdir(Self::parent(fs, &path)?, split(&path).1.as_bytes(), &create)?;
        self.nodes.insert(path, Node::Dir);
        Ok(())
    }

    fn symlink(&mut self, fs: &Filesystem, dice: &mut Dice) -> Result<()> {
        let path = self.fresh(dice, "l");
        let target = "t".repeat(1 + dice.below(200) as usize).into_bytes();
        let create = Create::default();
        let name = split(&path).1.as_bytes();
        fs.symlink(Self::parent(fs, &path)?, name, &target, &create)?;
        self.nodes.insert(path, Node::Link(target));
        Ok(())
    }

    fn write(&mut self, fs: &Filesystem, dice: &mut Dice) -> Result<()> {
        let Some(path) = dice.pick(&self.regular()).cloned() else {
            return Ok(());
        };
        let shift = dice.below(18);
        let length = 1 + dice.below(1 << shift) as usize;
        let bytes = dice.bytes(length);
        let offset = dice.below(FILE_BYTES_MAX) as usize;
        fs.write(fs.resolve(&path)?, offset as u64, &bytes)?;
        let Some(Node::File(content)) = self.nodes.get_mut(&path) else {
            unreachable!("a file")
        };
        if content.len() < offset + length {
            content.resize(offset + length, 0);
        }
        content[offset..offset + length].copy_from_slice(&bytes);
        Ok(())
    }

    fn truncate(&mut self, fs: &Filesystem, dice: &mut Dice) -> Result<()> {
        let Some(path) = dice.pick(&self.regular()).cloned() else {
            return Ok(());
        };
        let size = dice.below(FILE_BYTES_MAX);
        fs.truncate(fs.resolve(&path)?, size)?;
        let Some(Node::File(content)) = self.nodes.get_mut(&path) else {
            unreachable!("a file")
        };
        content.resize(size as usize, 0);
        Ok(())
    }

    fn unlink(&mut self, fs: &Filesystem, dice: &mut Dice) -> Result<()> {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        let Some(path) = dice.pick(&names).cloned() else {
            return Ok(());
        };
        let (parent, name) = (Self::parent(fs, &path)?, split(&path).1.as_bytes());
        if self.nodes[&path] == Node::Dir {
            let prefix = format!("{path}/");
            let is_empty = !self.nodes.keys().any(|name| name.starts_with(&prefix));
            let outcome = fs.rmdir(parent, name);
            if !is_empty {
                assert!(outcome.is_err(), "{path} is not empty");
                return Ok(());
            }
            outcome?;
        } else {
            fs.unlink(parent, name)?;
        }
        self.nodes.remove(&path);
        Ok(())
    }

    fn rename(&mut self, fs: &Filesystem, dice: &mut Dice) -> Result<()> {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        let Some(old) = dice.pick(&names).cloned() else {
            return Ok(());
        };
        let new = self.fresh(dice, "r");
        if new.starts_with(&format!("{old}/")) {
            return Ok(());
        }
        let (from, to) = (Self::parent(fs, &old)?, Self::parent(fs, &new)?);
        let (name, new_name) = (split(&old).1.as_bytes(), split(&new).1.as_bytes());
        fs.rename(from, name, to, new_name, RenameKind::default())?;
        let prefix = format!("{old}/");
        let moved: Vec<String> = self
            .nodes
            .keys()
            .filter(|n| **n == old || n.starts_with(&prefix))
            .cloned()
            .collect();
        for name in moved {
            let node = self.nodes.remove(&name).expect("it was listed");
            self.nodes
                .insert(format!("{new}{}", &name[old.len()..]), node);
        }
        Ok(())
    }

    fn xattr(&mut self, fs: &Filesystem, dice: &mut Dice) -> Result<()> {
        let Some(path) = dice.pick(&self.regular()).cloned() else {
            return Ok(());
        };
        let length = dice.below(600) as usize;
        let value = dice.bytes(length);
        fs.setxattr(
            fs.resolve(&path)?,
            b"user.note",
            &value,
            SetXattr::default(),
        )
    }

    /// Reads everything back.
    ///
    /// # Errors
    /// What differs, or the error of a read.
    pub fn compare(&self, fs: &Filesystem) -> Result<(), String> {
        let mut found = BTreeMap::new();
        walk(fs, fs.root(), "", &mut found).map_err(|e| e.to_string())?;
        for (path, node) in &self.nodes {
            match found.remove(path) {
                None => return Err(format!("{path} is missing")),
                Some(there) if there != *node => return Err(format!("{path} differs")),
                Some(_) => {}
            }
        }
        match found.keys().next() {
            Some(extra) => Err(format!("{extra} should not be there")),
            None => Ok(()),
        }
    }

    /// Lines for `sha256sum -c`, relative to the root.
    #[must_use]
    pub fn sha256sums(&self) -> String {
        let mut text = String::new();
        for (path, node) in &self.nodes {
            if let Node::File(bytes) = node {
                let words = checksum::digest(phys::ChecksumType::Sha256, &[0; 32], bytes);
                let hex: String = words.iter().map(|word| format!("{word:016x}")).collect();
                text.push_str(&format!("{hex}  {path}\n"));
            }
        }
        text
    }
}

fn walk(
    fs: &Filesystem,
    dir: ObjectId,
    prefix: &str,
    found: &mut BTreeMap<String, Node>,
) -> Result<()> {
    for entry in fs.list(dir)? {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        let path = if prefix.is_empty() {
            name
        } else {
            format!("{prefix}/{name}")
        };
        let attr = fs.getattr(entry.id)?;
        let node = match attr.file_type() {
            Some(zpl::FileType::Directory) => {
                walk(fs, entry.id, &path, found)?;
                Node::Dir
            }
            Some(zpl::FileType::Symlink) => Node::Link(fs.readlink(entry.id)?),
            _ => {
                let mut bytes = vec![0; attr.size as usize];
                fs.read(entry.id, 0, &mut bytes)?;
                Node::File(bytes)
            }
        };
        found.insert(path, node);
    }
    Ok(())
}
