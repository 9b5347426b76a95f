//! What differs between a file and its copy, as `-i` shows it.

use zpl::FileType;

use super::super::tree::Meta;
use super::Options;

/// What was, or would be, done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// Its contents were transferred.
    Transfer,
    /// It was made here.
    Make,
    /// It got one more name.
    Link,
    /// At most its attributes were set.
    Attributes,
}

/// What differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// It was not there.
    pub(super) is_new: bool,
    /// Where a symbolic link leads to, or which device it is.
    pub(super) value: bool,
    pub(super) size: bool,
    pub(super) time: bool,
    /// It gets the time of its transfer.
    pub(super) now: bool,
    pub(super) mode: bool,
    pub(super) owner: bool,
    pub(super) group: bool,
    pub(super) acl: bool,
    pub(super) xattrs: bool,
}

impl Changes {
    /// Of a file that is not there.
    pub(super) fn new() -> Changes {
        Changes {
            is_new: true,
            ..Changes::default()
        }
    }

    /// Between the attributes of a file and those of its copy, as far as they are transferred.
    pub(super) fn between(options: Options, meta: &Meta, old: &Meta) -> Changes {
        let is_regular = meta.file_type == FileType::Regular;
        let has_mode = meta.file_type != FileType::Symlink;
        Changes {
            size: is_regular && meta.size != old.size,
            time: options.times && meta.mtime != old.mtime,
            mode: options.perms && has_mode && meta.mode != old.mode,
            owner: options.owner && meta.uid != old.uid,
            group: options.group && meta.gid != old.gid,
            ..Changes::default()
        }
    }

    pub(super) fn is_any(self) -> bool {
        self != Changes::default()
    }

    /// The eleven letters of rsync's `%i`.
    pub(super) fn letters(self, deed: Deed, file_type: FileType) -> String {
        let mut text = String::from(match deed {
            Deed::Transfer => '>',
            Deed::Make => 'c',
            Deed::Link => 'h',
            Deed::Attributes => '.',
        });
        text.push(match file_type {
            FileType::Regular => 'f',
            FileType::Directory => 'd',
            FileType::Symlink => 'L',
            FileType::BlockDevice | FileType::CharDevice => 'D',
            FileType::Fifo | FileType::Socket => 'S',
        });
        if self.is_new {
            text.push_str("+++++++++");
            return text;
        }
        let letters = [
            (self.value, 'c'),
            (self.size, 's'),
            (self.time || self.now, if self.now { 'T' } else { 't' }),
            (self.mode, 'p'),
            (self.owner, 'o'),
            (self.group, 'g'),
            (false, 'u'),
            (self.acl, 'a'),
            (self.xattrs, 'x'),
        ];
        text.extend(letters.map(|(differs, letter)| if differs { letter } else { '.' }));
        text
    }
}
