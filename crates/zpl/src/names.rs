//! How a file system tells names apart: `utf8only`, `normalization`, `casesensitivity`.
//!
//! # What it is
//! A file keeps the name that it was given. Where a file system normalises names or ignores case, another name that is
//! alike leads to it, too, and none that is alike can be made beside it. `mixed` file systems ignore case for those who
//! ask for that (Windows, by SMB); programs of POSIX never do.
//!
//! # On disk
//! The rules are in the master node. Each directory, also those of extended attributes, is a ZAP whose names are hashed
//! in normal form and in upper case (`zap_normflags`).
//!
//! # Source
//! OpenZFS `module/os/linux/zfs/zfs_dir.c` (`zfs_dirent_lock`, `zfs_dropname`), `zfs_vnops_os.c` (`zfs_rename`).

use std::borrow::Cow;

use base::{Error, ErrorKind, Result};
use phys::znode::case;
use zap::{Case, Flags, Zap};

use crate::Filesystem;
use crate::fs::Node;

/// The rules as the master node has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameRules {
    /// Whether names must be UTF-8; they must in any case where they are normalised.
    pub utf8only: bool,
    /// `U8_TEXTPREP_NF…`, the normal form; 0 for none.
    pub normalization: u64,
    /// `ZFS_CASE_…`: 0 sensitive, 1 insensitive, 2 mixed.
    pub casesensitivity: u64,
}

/// The rules as they are used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    pub(crate) utf8only: bool,
    /// Of each directory.
    pub(crate) flags: Flags,
    /// When programs look a name up.
    case: Case,
    /// Whether programs reach a file by names that are not its own.
    folds: bool,
}

/// An entry of a directory.
pub(crate) struct Named<'n> {
    /// As the directory has it.
    pub(crate) name: Cow<'n, [u8]>,
    /// Type and object number.
    pub(crate) entry: u64,
}

impl Names {
    /// # Errors
    /// `Unsupported` for rules that OpenZFS does not have.
    pub(crate) fn of(rules: &NameRules) -> Result<Names> {
        let to_upper = match rules.casesensitivity {
            case::SENSITIVE => 0,
            case::INSENSITIVE | case::MIXED => Flags::TOUPPER.normflags(),
            value => {
                let text = format!("casesensitivity is {value}");
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
        };
        let is_insensitive = rules.casesensitivity == case::INSENSITIVE;
        Ok(Names {
            utf8only: rules.utf8only || rules.normalization != 0,
            flags: Flags::normalizing(rules.normalization | to_upper)?,
            case: if is_insensitive {
                Case::Ignored
            } else {
                Case::Kept
            },
            folds: is_insensitive || rules.normalization != 0,
        })
    }

    /// Whether these are the same name but for case, where that is ignored.
    fn differ_in_case(&self, one: &[u8], other: &[u8]) -> bool {
        self.case == Case::Ignored
            && zap::are_alike(one, other, self.flags, Case::Ignored)
            && !zap::are_alike(one, other, self.flags, Case::Kept)
    }
}

impl Filesystem {
    /// Whether names that are not the same may lead to one file: then what a name leads to is not known from another
    /// name's having come or gone.
    #[must_use]
    pub fn folds_names(&self) -> bool {
        self.names.folds
    }

    /// The entry that `name` leads to.
    pub(crate) fn entry<'n>(&self, directory: &Node, name: &'n [u8]) -> Result<Option<Named<'n>>> {
        self.entry_by(directory, name, self.names.case)
    }

    /// The entry that a file renamed from `old` in the same directory would replace: it may get its own name in other
    /// case.
    pub(crate) fn entry_beside<'n>(
        &self,
        directory: &Node,
        name: &'n [u8],
        old: &[u8],
    ) -> Result<Option<Named<'n>>> {
        let case = match self.names.differ_in_case(old, name) {
            true => Case::Kept,
            false => self.names.case,
        };
        self.entry_by(directory, name, case)
    }

    fn entry_by<'n>(
        &self,
        directory: &Node,
        name: &'n [u8],
        case: Case,
    ) -> Result<Option<Named<'n>>> {
        let zap = Zap::new(directory.dnode.clone())?;
        if !self.names.folds {
            let entry = zap.lookup_u64(name)?;
            return Ok(entry.map(|entry| Named {
                name: Cow::Borrowed(name),
                entry,
            }));
        }
        let found = zap.find_alike(name, case)?;
        Ok(found.map(|found| Named {
            name: Cow::Owned(found.name),
            entry: found.first_integer,
        }))
    }
}
