//! What is known about a file: its attributes in memory, and how they are read and changed.
//!
//! # What it is
//! [`Attr`] is what `stat` reports and a little more. It is read from the bonus (and spill) of the
//! file's dnode. What was parsed is kept for as long as the dnode has the very same bonus bytes in
//! memory, so code that changes them need not invalidate it. [`Change`] is one attribute to be written.
//!
//! # Source
//! OpenZFS `module/os/linux/zfs/zfs_znode_os.c` (`zfs_znode_alloc`, `zfs_tstamp_update_setup`),
//! `include/sys/zfs_sa.h`.

use std::ops::Range;
use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result};
use dmu::{BonusInfo, Dnode, Tx};
use phys::byteswap::is_big_endian_sa;
use phys::sa::ZplAttr;
use phys::znode::{ZnodePhys, pflags};
use phys::{ObjectType, Phys};
use smallvec::SmallVec;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

use crate::fs::NodeAttrs;
use crate::sa::{AttrSet, Found, Value, in_host_order, pack, parse};
use crate::{Filesystem, Seen};

/// Bits of a mode that `chmod` changes.
pub(crate) const MODE_PERMISSIONS: u32 = 0o7777;

/// What kind of file something is: bits 12 to 15 of its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileType {
    /// A named pipe.
    Fifo = 1,
    /// A character device.
    CharDevice = 2,
    /// A directory.
    Directory = 4,
    /// A block device.
    BlockDevice = 6,
    /// A regular file.
    Regular = 8,
    /// A symbolic link.
    Symlink = 10,
    /// A socket.
    Socket = 12,
}

impl FileType {
    /// The type in a mode.
    #[must_use]
    pub fn of_mode(mode: u32) -> Option<FileType> {
        FileType::of_dirent((mode >> 12 & 0xf) as u8)
    }

    /// The type in a directory entry.
    #[must_use]
    pub(crate) fn of_dirent(type_: u8) -> Option<FileType> {
        Some(match type_ {
            1 => FileType::Fifo,
            2 => FileType::CharDevice,
            4 => FileType::Directory,
            6 => FileType::BlockDevice,
            8 => FileType::Regular,
            10 => FileType::Symlink,
            12 => FileType::Socket,
            _ => return None,
        })
    }

    /// The bits of a mode.
    #[must_use]
    pub fn mode(self) -> u32 {
        (self as u32) << 12
    }

    pub(crate) fn is_device(self) -> bool {
        matches!(self, FileType::CharDevice | FileType::BlockDevice)
    }
}

/// Bits of the minor number in a device number of the Linux kernel.
const MINOR_BITS: u32 = 20;

/// The number of a device as it is stored: in the encoding of the Linux kernel, which is not that of `stat`.
#[must_use]
pub fn device_number(major: u32, minor: u32) -> u64 {
    u64::from(major) << MINOR_BITS | u64::from(minor)
}

/// Major and minor number of a stored device number, including those from illumos, which have 32 bits each.
#[must_use]
pub fn device_major_minor(rdev: u64) -> (u32, u32) {
    let bits = if rdev >> 32 == 0 { MINOR_BITS } else { 32 };
    ((rdev >> bits) as u32, (rdev & ((1 << bits) - 1)) as u32)
}

/// A time in a file's attributes: seconds since 1970, which may be negative, and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970.
    pub secs: i64,
    /// Nanoseconds of the second.
    pub nanos: u32,
}

impl Time {
    /// Now.
    #[must_use]
    pub fn now() -> Time {
        let now = rt::wall_clock();
        Time {
            secs: now.secs as i64,
            nanos: now.nanos,
        }
    }
}

/// What is known about a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "znode_t")]
pub struct Attr {
    /// The object number, which is the inode number.
    pub id: ObjectId,
    /// Type and permissions.
    pub mode: u32,
    /// Names of the file; for a directory, 2 plus the directories in it.
    pub links: u64,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Bytes; for a directory, entries including `.` and `..`.
    pub size: u64,
    /// Bytes on disk, as of the last sync.
    pub used_bytes: u64,
    /// Bytes per block.
    pub blksz: u64,
    /// Device number as it is stored: see [`device_number`].
    pub rdev: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of content or attributes.
    pub ctime: Time,
    /// Creation.
    pub crtime: Time,
    /// The txg of creation: distinguishes files that had the same number one after the other.
    pub generation: u64,
    /// The directory that the file was last linked in.
    pub parent: ObjectId,
    /// `ZFS_*` flags: [`pflags`].
    pub pflags: u64,
    /// Project.
    pub projid: u64,
    /// The hidden directory of extended attributes, if there is one.
    pub xattr_dir: Option<ObjectId>,
    /// Whether extended attributes are kept with the other attributes.
    pub has_xattr_list: bool,
}

impl Attr {
    /// What kind of file it is.
    #[must_use]
    pub fn file_type(&self) -> Option<FileType> {
        FileType::of_mode(self.mode)
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.file_type() == Some(FileType::Directory)
    }

    /// Whether it is an extended attribute, or a directory of them.
    #[must_use]
    pub fn is_xattr(&self) -> bool {
        self.pflags & pflags::XATTR != 0
    }

    /// Whether it may have extended attributes.
    #[must_use]
    pub fn may_have_xattrs(&self) -> bool {
        self.has_xattr_list || self.xattr_dir.is_some()
    }
}

/// The most attributes that one call changes, of a new file, too. They need no memory of their own.
pub(crate) const CHANGES_MAX: usize = 16;

/// Changes that are made at once.
pub(crate) type Changes<'a> = SmallVec<[Change<'a>; CHANGES_MAX]>;

/// One attribute and its new value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'a> {
    Word(ZplAttr, u64),
    Time(ZplAttr, Time),
    Bytes(ZplAttr, &'a [u8]),
}

impl Change<'_> {
    fn attr(&self) -> ZplAttr {
        match self {
            Change::Word(attr, _) | Change::Time(attr, _) | Change::Bytes(attr, _) => *attr,
        }
    }

    /// Shows `see` the new value.
    fn with_value<R>(&self, see: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Change::Word(_, word) => see(&U64::new(*word).to_bytes()),
            Change::Time(_, time) => {
                let words = [time.secs as u64, time.nanos.into()].map(U64::new);
                see(words.as_bytes())
            }
            Change::Bytes(_, bytes) => see(bytes),
        }
    }

    fn value(&self) -> Value {
        self.with_value(Value::from_slice)
    }
}

fn word(bytes: &[u8], index: usize) -> u64 {
    let at = bytes.get(8 * index..).unwrap_or_default();
    U64::read_from_prefix(at).map_or(0, |(word, _)| word.get())
}

fn time(bytes: &[u8]) -> Time {
    Time {
        secs: word(bytes, 0) as i64,
        nanos: word(bytes, 1) as u32,
    }
}

impl Attr {
    fn set(&mut self, attr: ZplAttr, bytes: &[u8]) {
        match attr {
            ZplAttr::Atime => self.atime = time(bytes),
            ZplAttr::Mtime => self.mtime = time(bytes),
            ZplAttr::Ctime => self.ctime = time(bytes),
            ZplAttr::Crtime => self.crtime = time(bytes),
            ZplAttr::Gen => self.generation = word(bytes, 0),
            ZplAttr::Mode => self.mode = word(bytes, 0) as u32,
            ZplAttr::Size => self.size = word(bytes, 0),
            ZplAttr::Parent => self.parent = ObjectId(word(bytes, 0)),
            ZplAttr::Links => self.links = word(bytes, 0),
            ZplAttr::Xattr => {
                let id = word(bytes, 0);
                self.xattr_dir = (id != 0).then_some(ObjectId(id));
            }
            ZplAttr::Rdev => self.rdev = word(bytes, 0),
            ZplAttr::Flags => self.pflags = word(bytes, 0),
            ZplAttr::Uid => self.uid = word(bytes, 0),
            ZplAttr::Gid => self.gid = word(bytes, 0),
            ZplAttr::Projid => self.projid = word(bytes, 0),
            ZplAttr::Dxattr => self.has_xattr_list = true,
            _ => {}
        }
    }
}

/// The numbers of the attributes that are changed, in the same order.
type Numbers = SmallVec<[u16; CHANGES_MAX]>;

/// Attributes by number, and where each is in a bonus, which is at most 16 KiB.
type Places = Box<[(u16, Range<u16>)]>;

fn places(found: Found) -> Places {
    let place =
        |(number, range): (u16, Range<usize>)| (number, range.start as u16..range.end as u16);
    found.into_iter().map(place).collect()
}

/// The attributes of a file without a spill block as they were parsed.
pub(crate) struct Parsed {
    /// The bonus that they are from.
    bonus: Arc<[u8]>,
    /// Where each attribute is in it.
    places: Places,
    /// Without what the dnode itself knows: its block size, and the space it uses.
    attr: Attr,
}

impl Parsed {
    /// Whether `bonus` is still the one that was parsed: the dnode has not been changed since.
    fn is_of(&self, bonus: &Arc<[u8]>) -> bool {
        Arc::ptr_eq(&self.bonus, bonus)
    }

    /// The value of the attribute with this number.
    fn value(&self, number: u16) -> Option<&[u8]> {
        let (_, place) = self.places.iter().find(|(have, _)| *have == number)?;
        Some(&self.bonus[place.start.into()..place.end.into()])
    }
}

/// The attributes that every file has; they distinguish files from other objects.
const REQUIRED: [ZplAttr; 2] = [ZplAttr::Mode, ZplAttr::Links];

impl Filesystem {
    /// The attributes of `dnode`.
    pub(crate) fn read_attr(&self, dnode: &Dnode, attrs: &mut NodeAttrs) -> Result<Attr> {
        let bonus = dnode.bonus_info();
        let mut parsed = attrs.parsed.take();
        let parsed = match parsed.take_if(|parsed| parsed.is_of(&bonus.bytes)) {
            Some(parsed) => parsed,
            None => Box::new(self.parse_attr(dnode, &bonus)?),
        };
        let attr = Attr {
            used_bytes: bonus.used_bytes,
            blksz: bonus.blksz,
            ..parsed.attr
        };
        let is_as_stored = !bonus.has_spill && !is_big_endian_sa(&bonus.bytes);
        attrs.parsed = Some(parsed).filter(|_| is_as_stored);
        Ok(attr)
    }

    fn parse_attr(&self, dnode: &Dnode, bonus: &BonusInfo) -> Result<Parsed> {
        let spill = dnode.spill()?;
        let mut attr = Attr {
            id: dnode.id(),
            ..Attr::default()
        };
        let tables = self.sa.read();
        let mut known = REQUIRED.map(|_| false);
        let mut take = |bytes: &[u8]| -> Result<Found> {
            let bytes = in_host_order(&tables, bytes, bonus.type_)?;
            let found = parse(&tables, &bytes, bonus.type_)?;
            for zpl in ZplAttr::ALL {
                let number = tables.number(*zpl);
                let place = found.iter().find(|(have, _)| Some(*have) == number);
                if let Some((_, range)) = place {
                    attr.set(*zpl, &bytes[range.clone()]);
                    for (is_known, required) in known.iter_mut().zip(REQUIRED) {
                        *is_known |= *zpl == required;
                    }
                }
            }
            Ok(found)
        };
        let name = || format!("file {}", dnode.id());
        let found = take(&bonus.bytes).map_err(|e| e.within(name()))?;
        if let Some(spill) = spill {
            take(&spill).map_err(|e| e.within(name()))?;
        }
        let mut missing = REQUIRED.iter().zip(known);
        if let Some((missing, _)) = missing.find(|(_, is_known)| !is_known) {
            return Err(Error::corrupt(format!(
                "file {} has no {missing:?}",
                dnode.id()
            )));
        }
        Ok(Parsed {
            places: places(found),
            bonus: Arc::clone(&bonus.bytes),
            attr,
        })
    }

    /// The value of one attribute.
    pub(crate) fn read_attr_bytes(
        &self,
        dnode: &Dnode,
        attrs: &NodeAttrs,
        attr: ZplAttr,
    ) -> Result<Option<Vec<u8>>> {
        let tables = self.sa.read();
        let Some(number) = tables.number(attr) else {
            return Ok(None);
        };
        let bonus = dnode.bonus_info();
        let parsed = attrs.parsed.as_deref();
        if let Some(parsed) = parsed.filter(|parsed| parsed.is_of(&bonus.bytes)) {
            return Ok(parsed.value(number).map(<[u8]>::to_vec));
        }
        let look = |bytes: &[u8]| -> Result<Option<Vec<u8>>> {
            let bytes = in_host_order(&tables, bytes, bonus.type_)?;
            let found = parse(&tables, &bytes, bonus.type_)?;
            let place = found.into_iter().find(|(have, _)| *have == number);
            Ok(place.map(|(_, range)| bytes[range].to_vec()))
        };
        if let Some(value) = look(&bonus.bytes)? {
            return Ok(Some(value));
        }
        match dnode.spill()? {
            Some(spill) => look(&spill),
            None => Ok(None),
        }
    }

    /// Writes attributes.
    #[doc(alias = "sa_bulk_update")]
    pub(crate) fn write_attrs(
        &self,
        tx: &Tx,
        dnode: &Dnode,
        attrs: &mut NodeAttrs,
        changes: &[Change<'_>],
    ) -> Result<()> {
        if dnode.bonus_type() == ObjectType::ZNODE {
            self.convert_znode(tx, dnode, attrs)?;
        }
        let numbers = self.numbers(tx, changes)?;
        let parsed = attrs.parsed.take();
        let mut parsed = parsed.filter(|parsed| parsed.is_of(&dnode.bonus()));
        if let Some(parsed) = &mut parsed {
            // A second owner would force a copy of the bonus.
            parsed.bonus = Arc::default();
        }
        let changed = changes.iter().zip(&numbers);
        if self.overwrite_in_bonus(tx, dnode, parsed.as_deref(), changed.clone())? {
            if let Some(parsed) = &mut parsed {
                parsed.bonus = dnode.bonus();
                for change in changes {
                    change.with_value(|value| parsed.attr.set(change.attr(), value));
                }
            }
            attrs.parsed = parsed;
            self.see(Seen::Attributes(dnode.id()));
            return Ok(());
        }
        let mut attrs = self.all_attrs(dnode)?;
        let links = self.sa.read().number(ZplAttr::Links);
        for (change, &number) in changed {
            let value = change.value();
            match (change.attr(), links) {
                // A file from before the feature project_quota gets its project where every file has it: the
                // accounting looks there.
                (ZplAttr::Projid, Some(links)) => attrs.set_behind(links, number, value),
                _ => attrs.set(number, value),
            }
        }
        self.replace_attrs(tx, dnode, &attrs)?;
        self.see(Seen::Attributes(dnode.id()));
        Ok(())
    }

    /// Writes the attributes of a new file.
    #[doc(alias = "sa_replace_all_by_template")]
    pub(crate) fn write_new_attrs(
        &self,
        tx: &Tx,
        dnode: &Dnode,
        changes: &[Change<'_>],
    ) -> Result<()> {
        let mut attrs = AttrSet::with_capacity(changes.len());
        for (change, number) in changes.iter().zip(self.numbers(tx, changes)?) {
            attrs.set(number, change.value());
        }
        self.replace_attrs(tx, dnode, &attrs)
    }

    /// The numbers of attributes that change, after they were registered.
    fn numbers(&self, tx: &Tx, changes: &[Change<'_>]) -> Result<Numbers> {
        self.sa.register(&self.objset, tx)?;
        let tables = self.sa.read();
        let number = |change: &Change<'_>| {
            tables.number(change.attr()).ok_or_else(|| {
                let name = change.attr().facts().name;
                let what = format!("attribute {name} in this file system");
                Error::new(ErrorKind::Unsupported, what)
            })
        };
        changes.iter().map(number).collect()
    }

    /// Overwrites values where they are, if all of them are in the bonus and keep their length.
    fn overwrite_in_bonus<'a>(
        &self,
        tx: &Tx,
        dnode: &Dnode,
        parsed: Option<&Parsed>,
        changes: impl Iterator<Item = (&'a Change<'a>, &'a u16)> + Clone,
    ) -> Result<bool> {
        let found = match parsed {
            Some(parsed) => &parsed.places,
            None => {
                let bonus = dnode.bonus();
                if is_big_endian_sa(&bonus) {
                    return Ok(false);
                }
                &places(parse(&self.sa.read(), &bonus, dnode.bonus_type())?)
            }
        };
        let mut ranges: SmallVec<[Range<usize>; CHANGES_MAX]> = SmallVec::new();
        for (change, number) in changes.clone() {
            let place = found.iter().find(|(have, _)| have == number);
            match place {
                Some((_, range)) if range.len() == change.with_value(<[u8]>::len) => {
                    ranges.push(usize::from(range.start)..usize::from(range.end));
                }
                _ => return Ok(false),
            }
        }
        dnode.modify_bonus(tx, |bonus| {
            for ((change, _), range) in changes.zip(ranges) {
                change.with_value(|value| bonus[range].copy_from_slice(value));
            }
        })?;
        Ok(true)
    }

    fn all_attrs(&self, dnode: &Dnode) -> Result<AttrSet> {
        let type_ = dnode.bonus_type();
        let tables = self.sa.read();
        let mut attrs = AttrSet::default();
        attrs.extend_from(&tables, &dnode.bonus(), type_)?;
        if let Some(spill) = dnode.spill()? {
            attrs.extend_from(&tables, &spill, type_)?;
        }
        Ok(attrs)
    }

    fn replace_attrs(&self, tx: &Tx, dnode: &Dnode, attrs: &AttrSet) -> Result<()> {
        if dnode.bonus_type() != ObjectType::SA {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("file {} has attributes of an old format", dnode.id()),
            ));
        }
        let bonus_space = usize::from(dnode.slots()) * 512 - 64 - 128;
        let old_spill_len = dnode.spill()?.map_or(0, |spill| spill.len());
        let fixed_lens = self.sa.read().fixed_lens(attrs);
        let layout_of = |attrs: &[u16]| self.sa.layout_for(&self.objset, tx, attrs);
        let packed = pack(attrs, bonus_space, old_spill_len, &fixed_lens, layout_of)?;
        match packed.spill {
            Some(spill) => {
                // The bonus shrinks first, which makes room for the pointer.
                dnode.set_bonus(tx, &packed.bonus)?;
                dnode.set_spill(tx, spill)
            }
            None => {
                if dnode.has_spill() {
                    dnode.remove_spill(tx)?;
                }
                dnode.set_bonus(tx, &packed.bonus)
            }
        }
    }

    /// The target of a symbolic link made before ZPL version 5: after the attributes in the bonus, or in the file.
    pub(crate) fn read_old_symlink(&self, dnode: &Dnode, size: u64) -> Result<Vec<u8>> {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let bonus = dnode.bonus();
        if let Some(target) = bonus
            .get(ZnodePhys::SIZE..)
            .and_then(|rest| rest.get(..size))
        {
            return Ok(target.to_vec());
        }
        if size > crate::SYMLINK_MAX_BYTES {
            return Err(Error::corrupt(format!("symbolic link of {size} bytes")));
        }
        let mut target = vec![0; size];
        dnode.read(0, &mut target)?;
        Ok(target)
    }
}
