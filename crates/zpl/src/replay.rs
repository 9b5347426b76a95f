//! Replaying the records of an intent log.
//!
//! # What it is
//! After a crash, each record of the log is applied once, in order, in its own transaction; the
//! log remembers with that transaction how far it got. New files get the object numbers, times and
//! generations that they had.
//!
//! # Source
//! OpenZFS `module/zfs/zfs_replay.c`.

use base::{Context, Error, ErrorKind, ObjectId, Result};
use phys::Phys;
use phys::zil::{
    LrAclPhys, LrAttrEndPhys, LrAttrPhys, LrCreatePhys, LrLinkPhys, LrPhys, LrRemovePhys,
    LrRenamePhys, LrRenameWhiteoutPhys, LrSetattrPhys, LrSetsaxattrPhys, LrTruncatePhys,
    LrWritePhys, XAT_PROJID, foid_object, foid_slots, tx as txtype,
};
use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use crate::attrs::{FileType, Time};
use crate::log::{XAT_CREATETIME, XAT_FLAGS, mask};
use crate::make::{Claim, Create, NewNode};
use crate::{Filesystem, RenameKind, SIZE_MAX, SetAttr};

fn time(words: &[U64; 2]) -> Time {
    Time {
        secs: words[0].get() as i64,
        nanos: words[1].get() as u32,
    }
}

/// The bytes up to the next NUL, and what follows it.
fn c_string(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0);
    let end = end.ok_or_else(|| Error::corrupt("log record with an endless name"))?;
    Ok((&bytes[..end], &bytes[end + 1..]))
}

impl Filesystem {
    /// Applies one record. The data of a write follows its record, even if the record names the block
    /// that has it: the caller has read that block and extracted the data.
    ///
    /// # Errors
    /// Those of the recorded operation; `Corrupt` for a record that makes no sense; `Unsupported` for a
    /// kind of record that is not handled here.
    pub fn replay(&self, record: &[u8]) -> Result<()> {
        let common = LrPhys::read(record)?;
        let type_ = common.tx_type();
        let result = match type_ {
            txtype::CREATE
            | txtype::MKDIR
            | txtype::MKXATTR
            | txtype::SYMLINK
            | txtype::CREATE_ATTR
            | txtype::MKDIR_ATTR => self.replay_create(type_, record),
            txtype::REMOVE | txtype::RMDIR => self.replay_remove(type_, record),
            txtype::LINK => self.replay_link(record),
            txtype::RENAME | txtype::RENAME_EXCHANGE => self.replay_rename(type_, record),
            txtype::RENAME_WHITEOUT => self.replay_rename_whiteout(record),
            txtype::WRITE => self.replay_write(record),
            txtype::TRUNCATE => self.replay_truncate(record),
            txtype::SETATTR => self.replay_setattr(record),
            txtype::SETSAXATTR => self.replay_setsaxattr(record),
            txtype::ACL => self.replay_acl(record),
            // The block is in the tree already; only the size could be missing, and is set by the
            // TX_WRITE before it.
            txtype::WRITE2 => Ok(()),
            _ => Err(Error::new(
                ErrorKind::Unsupported,
                "a log record of this kind",
            )),
        };
        result.within(|| format!("replay of TX {type_}"))
    }

    fn replay_create(&self, type_: u64, record: &[u8]) -> Result<()> {
        let (lr, mut rest) = LrCreatePhys::split(record)?;
        let mode = lr.mode.get() as u32;
        let file_type = FileType::of_mode(mode);
        let file_type = file_type.ok_or_else(|| Error::corrupt(format!("lr_mode is {mode:#o}")))?;
        let foid = lr.foid.get();
        let claim = Claim {
            id: ObjectId(foid_object(foid)),
            slots: foid_slots(foid).min(32) as u8,
            generation: lr.gen_.get(),
            crtime: time(&lr.crtime),
        };
        let create = Create {
            mode,
            uid: lr.uid.get(),
            gid: lr.gid.get(),
        };
        let parent = ObjectId(lr.doid.get());
        let mut more = None;
        if matches!(type_, txtype::CREATE_ATTR | txtype::MKDIR_ATTR) {
            let (set, after) = extended_attrs(rest)?;
            more = Some(set);
            rest = after;
        }
        if type_ == txtype::MKXATTR {
            return self.make_xattr_dir_claimed(parent, &create, claim);
        }
        let (name, rest) = c_string(rest)?;
        let mut new = NewNode {
            rdev: lr.rdev.get(),
            ..NewNode::new(file_type, create)
        };
        if type_ == txtype::SYMLINK {
            new.target = Some(c_string(rest)?.0);
        }
        let attr = self.make_claimed(parent, name, new, claim)?;
        match more {
            Some(set) => self.setattr(attr.id, &set).map(|_| ()),
            None => Ok(()),
        }
    }

    fn replay_remove(&self, type_: u64, record: &[u8]) -> Result<()> {
        let (lr, rest) = LrRemovePhys::split(record)?;
        let directory = ObjectId(lr.doid.get());
        let (name, _) = c_string(rest)?;
        if type_ == txtype::RMDIR {
            return self.rmdir(directory, name);
        }
        self.unlink(directory, name)
    }

    fn replay_link(&self, record: &[u8]) -> Result<()> {
        let (lr, rest) = LrLinkPhys::split(record)?;
        let (name, _) = c_string(rest)?;
        self.link(ObjectId(lr.link_obj.get()), ObjectId(lr.doid.get()), name)
            .map(|_| ())
    }

    fn replay_rename(&self, type_: u64, record: &[u8]) -> Result<()> {
        let (lr, rest) = LrRenamePhys::split(record)?;
        let (from, rest) = c_string(rest)?;
        let (to, _) = c_string(rest)?;
        let kind = match type_ {
            txtype::RENAME_EXCHANGE => RenameKind::Exchange,
            _ => RenameKind::Replace,
        };
        self.rename(
            ObjectId(lr.sdoid.get()),
            from,
            ObjectId(lr.tdoid.get()),
            to,
            kind,
        )
    }

    fn replay_rename_whiteout(&self, record: &[u8]) -> Result<()> {
        let (lr, rest) = LrRenameWhiteoutPhys::split(record)?;
        let (from, rest) = c_string(rest)?;
        let (to, _) = c_string(rest)?;
        let claim = Claim {
            id: ObjectId(foid_object(lr.wfoid.get())),
            slots: foid_slots(lr.wfoid.get()).min(32) as u8,
            generation: lr.wgen.get(),
            crtime: time(&lr.wcrtime),
        };
        let source = (ObjectId(lr.rename.sdoid.get()), from);
        let target = (ObjectId(lr.rename.tdoid.get()), to);
        self.rename_claiming(source, target, RenameKind::Whiteout, Some(claim))
    }

    fn replay_write(&self, record: &[u8]) -> Result<()> {
        let (lr, data) = LrWritePhys::split(record)?;
        let id = ObjectId(lr.foid.get());
        let (offset, len) = (lr.offset.get(), lr.length.get());
        let end = offset.checked_add(len).filter(|end| *end <= SIZE_MAX);
        if end.is_none() {
            return Err(Error::corrupt(format!("lr_offset is {offset}")));
        }
        let data = usize::try_from(len).ok().and_then(|len| data.get(..len));
        let data = data.ok_or_else(|| Error::corrupt(format!("lr_length is {len}")))?;
        match self.replay_data(id, offset, data) {
            // Records of data may be out of order with those of names: the file may be gone.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    fn replay_data(&self, id: ObjectId, offset: u64, data: &[u8]) -> Result<()> {
        let node = self.node(id)?;
        let tx = self.begin(data.len() as u64)?;
        let _content = node.locks.content.write();
        let attr = self.attr_of(&node)?;
        self.write_chunk(&tx, &node, &attr, offset, data)?;
        // Lets the log note its progress with this transaction.
        self.log.is_replaying(&tx);
        Ok(())
    }

    fn replay_truncate(&self, record: &[u8]) -> Result<()> {
        let lr = LrTruncatePhys::read(record)?;
        self.free_space(ObjectId(lr.foid.get()), lr.offset.get(), lr.length.get())
    }

    fn replay_setattr(&self, record: &[u8]) -> Result<()> {
        let (lr, rest) = LrSetattrPhys::split(record)?;
        let bits = lr.mask.get();
        let has = |bit: u64| bits & bit != 0;
        let mut set = SetAttr::default();
        if has(mask::XVATTR) {
            set = extended_attrs(rest)?.0;
        }
        set.mode = has(mask::MODE).then(|| lr.mode.get() as u32);
        set.uid = has(mask::UID).then(|| lr.uid.get());
        set.gid = has(mask::GID).then(|| lr.gid.get());
        set.size = has(mask::SIZE).then(|| lr.size.get());
        set.atime = has(mask::ATIME).then(|| time(&lr.atime));
        set.mtime = has(mask::MTIME).then(|| time(&lr.mtime));
        set.ctime = Some(Time::now());
        self.setattr(ObjectId(lr.foid.get()), &set).map(|_| ())
    }

    fn replay_setsaxattr(&self, record: &[u8]) -> Result<()> {
        let (lr, rest) = LrSetsaxattrPhys::split(record)?;
        let id = ObjectId(lr.foid.get());
        let (name, rest) = c_string(rest)?;
        let size = lr.size.get();
        let value = usize::try_from(size).ok().and_then(|size| rest.get(..size));
        let value = value.ok_or_else(|| Error::corrupt(format!("lr_size is {size}")))?;
        self.replay_sa_xattr(id, name, Some(value).filter(|value| !value.is_empty()))
    }

    /// An ACL: only its mode is kept here, and that is in a record of its own.
    fn replay_acl(&self, record: &[u8]) -> Result<()> {
        let lr = LrAclPhys::read(record)?;
        self.getattr(ObjectId(lr.foid.get())).map(|_| ())
    }
}

/// What `lr_attr_t` asks for, and what follows it.
fn extended_attrs(bytes: &[u8]) -> Result<(SetAttr, &[u8])> {
    let (start, rest) = LrAttrPhys::split(bytes)?;
    let words = start.masksize.get() as usize;
    let skip = words.checked_sub(1).and_then(|words| words.checked_mul(4));
    let rest = skip.and_then(|skip| rest.get(skip..));
    let rest = rest.ok_or_else(|| Error::corrupt(format!("lr_attr_masksize is {words}")))?;
    let (end, rest) = LrAttrEndPhys::split(rest)?;
    let bitmap = start.bitmap.get();
    let mut set = SetAttr::default();
    if XAT_FLAGS.iter().any(|(bit, _)| bitmap & bit != 0) {
        let attrs = end.attrs.get();
        let flags = XAT_FLAGS
            .iter()
            .filter(|(bit, _)| attrs & u64::from(*bit) != 0);
        set.pflags = Some(flags.fold(0, |all, (_, flag)| all | flag));
    }
    if bitmap & XAT_CREATETIME != 0 {
        set.crtime = Some(time(&end.crtime));
    }
    if bitmap & XAT_PROJID != 0 {
        let number = U64::read_from_prefix(&end.scanstamp);
        set.projid = number.ok().map(|(number, _)| number.get());
    }
    Ok((set, rest))
}
