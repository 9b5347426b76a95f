//! What lies in a folder: counted, and remembered so that a sample can be drawn.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base::{Context, Error, Result};
use serde::{Deserialize, Serialize};

/// What lies in the folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Regular files; one with several names counts once.
    pub files: u64,
    /// Folders, that one included.
    pub folders: u64,
    /// Symbolic links.
    pub links: u64,
    /// The sizes of all files together.
    pub bytes: u64,
    /// What is left out: devices, sockets, pipes, other file systems, more names of a file, and what cannot be read.
    pub left_out: u64,
    /// Names, sizes and times, as one number.
    pub fingerprint: u64,
}

/// A folder.
pub(super) struct Folder {
    /// Its parent's place in [`Survey::folders`], which is before its own.
    pub(super) parent: usize,
    pub(super) name: OsString,
}

/// A file or symbolic link.
pub(super) struct Leaf {
    /// The place of its folder.
    pub(super) folder: usize,
    pub(super) name: OsString,
    /// 0 for a link.
    pub(super) bytes: u64,
}

/// Everything below a folder. All lists are in the order of a walk that goes by name, depth first.
pub struct Survey {
    /// What it comes to.
    pub found: Found,
    pub(super) root: PathBuf,
    /// The first is the root.
    pub(super) folders: Vec<Folder>,
    pub(super) files: Vec<Leaf>,
    pub(super) links: Vec<Leaf>,
    seen: HashSet<(u64, u64)>,
    hasher: DefaultHasher,
}

impl Survey {
    /// Looks at everything below a folder, on its file system; `progress` gets the number of entries so far.
    ///
    /// # Errors
    /// When the folder cannot be read, or nothing that can be copied is in it.
    pub fn of(root: &Path, progress: &dyn Fn(u64)) -> Result<Survey> {
        let within = || root.display().to_string();
        let metadata = fs::metadata(root).map_err(Error::from).within(within)?;
        if !metadata.is_dir() {
            return Err(Error::invalid(format!("{}: not a folder", root.display())));
        }
        // What is below may be left out, but not all of it.
        drop(fs::read_dir(root).map_err(Error::from).within(within)?);
        let mut survey = Survey {
            found: Found::default(),
            root: root.to_owned(),
            folders: Vec::new(),
            files: Vec::new(),
            links: Vec::new(),
            seen: HashSet::new(),
            hasher: DefaultHasher::new(),
        };
        survey.walk(metadata.dev(), progress);
        if survey.files.is_empty() {
            return Err(Error::invalid(format!(
                "{}: no files are in it",
                root.display()
            )));
        }
        survey.found.fingerprint = survey.hasher.finish();
        survey.seen = HashSet::new();
        Ok(survey)
    }

    fn walk(&mut self, device: u64, progress: &dyn Fn(u64)) {
        // Folders to visit: those that come first are at the end.
        let mut rest = vec![Folder {
            parent: 0,
            name: OsString::new(),
        }];
        let mut entries = 0;
        while let Some(folder) = rest.pop() {
            let place = self.folders.len();
            self.folders.push(folder);
            self.found.folders += 1;
            let Ok(listed) = fs::read_dir(self.folder_path(place)) else {
                self.found.left_out += 1;
                continue;
            };
            let mut listed: Vec<_> = listed.flatten().collect();
            listed.sort_by_key(fs::DirEntry::file_name);
            let below = rest.len();
            for entry in listed {
                entries += 1;
                progress(entries);
                match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() && metadata.dev() == device => {
                        rest.push(Folder {
                            parent: place,
                            name: entry.file_name(),
                        });
                    }
                    Ok(metadata) => self.take(place, entry.file_name(), &metadata),
                    Err(_) => self.found.left_out += 1,
                }
            }
            rest[below..].reverse();
        }
    }

    /// Takes anything but a folder.
    fn take(&mut self, folder: usize, name: OsString, metadata: &Metadata) {
        let again = metadata.nlink() > 1 && !self.seen.insert((metadata.dev(), metadata.ino()));
        let bytes = if metadata.is_file() {
            metadata.len()
        } else {
            0
        };
        (folder, &name, bytes, metadata.mtime()).hash(&mut self.hasher);
        let leaf = Leaf {
            folder,
            name,
            bytes,
        };
        if metadata.is_symlink() {
            self.found.links += 1;
            self.links.push(leaf);
        } else if metadata.is_file() && !again && fs::File::open(self.leaf_path(&leaf)).is_ok() {
            self.found.files += 1;
            self.found.bytes += bytes;
            self.files.push(leaf);
        } else {
            self.found.left_out += 1;
        }
    }

    /// The path of a folder.
    pub(super) fn folder_path(&self, place: usize) -> PathBuf {
        let mut names = Vec::new();
        let mut at = place;
        while at != 0 {
            names.push(&self.folders[at].name);
            at = self.folders[at].parent;
        }
        let mut path = self.root.clone();
        path.extend(names.into_iter().rev());
        path
    }

    /// The path of a file or link.
    pub(super) fn leaf_path(&self, leaf: &Leaf) -> PathBuf {
        self.folder_path(leaf.folder).join(&leaf.name)
    }
}
