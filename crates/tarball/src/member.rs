//! What an archive says of a file.

use tar::EntryType;

/// What a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file
    File,
    /// One more name of a file that is earlier in the archive
    Link,
    /// A symbolic link
    Symlink,
    /// A character device
    CharDevice,
    /// A block device
    BlockDevice,
    /// A directory
    Directory,
    /// A named pipe
    Fifo,
    /// What this program does not know: the letter of its type
    Other(u8),
}

impl Kind {
    pub(crate) fn of(entry_type: EntryType) -> Kind {
        match entry_type {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => Kind::File,
            EntryType::Link => Kind::Link,
            EntryType::Symlink => Kind::Symlink,
            EntryType::Char => Kind::CharDevice,
            EntryType::Block => Kind::BlockDevice,
            EntryType::Directory => Kind::Directory,
            EntryType::Fifo => Kind::Fifo,
            // A directory of an incremental archive, with the names that are in it.
            other if other.as_byte() == b'D' => Kind::Directory,
            other => Kind::Other(other.as_byte()),
        }
    }

    pub(crate) fn entry_type(self) -> EntryType {
        match self {
            Kind::File => EntryType::Regular,
            Kind::Link => EntryType::Link,
            Kind::Symlink => EntryType::Symlink,
            Kind::CharDevice => EntryType::Char,
            Kind::BlockDevice => EntryType::Block,
            Kind::Directory => EntryType::Directory,
            Kind::Fifo => EntryType::Fifo,
            Kind::Other(letter) => EntryType::new(letter),
        }
    }
}

/// A member of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its path, as the archive has it: of any bytes but NUL, also `..` and the like.
    pub name: Vec<u8>,
    /// What it is
    pub kind: Kind,
    /// Permissions, without the type
    pub mode: u32,
    /// Number of its owner
    pub uid: u64,
    /// Number of its group
    pub gid: u64,
    /// Name of its owner; empty if it has none.
    pub user: Vec<u8>,
    /// Name of its group; empty if it has none.
    pub group: Vec<u8>,
    /// Bytes of its contents, holes included
    pub size: u64,
    /// When it was modified: seconds since 1970, and nanoseconds of the second
    pub mtime: (i64, u32),
    /// Target of a symbolic link, or name of the member that a link is one more name of
    pub link: Vec<u8>,
    /// Major and minor number of a device
    pub device: (u32, u32),
    /// Extended attributes
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The access ACL and the default ACL, as text
    pub acls: [Option<Vec<u8>>; 2],
    /// Offset and length of what the archive has of the contents, in order; the rest is holes.
    pub map: Vec<(u64, u64)>,
}

impl Member {
    /// A member without anything but a name.
    #[must_use]
    pub fn new(name: &[u8], kind: Kind) -> Member {
        Member {
            name: name.to_vec(),
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            user: Vec::new(),
            group: Vec::new(),
            size: 0,
            mtime: (0, 0),
            link: Vec::new(),
            device: (0, 0),
            xattrs: Vec::new(),
            acls: [None, None],
            map: Vec::new(),
        }
    }

    /// Bytes of the contents that the archive has.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.map.iter().map(|(_, length)| length).sum()
    }

    /// Whether there are holes.
    #[must_use]
    pub fn is_sparse(&self) -> bool {
        self.stored_bytes() < self.size
    }
}
