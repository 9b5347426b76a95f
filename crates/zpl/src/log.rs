//! What is written to the intent log: one record for each change.
//!
//! # What it is
//! Each function makes the record of one operation, as [`replay`](crate::replay) reads it, and hands it
//! to the [`IntentLog`] with the transaction of the operation. Nothing is logged for files that have no
//! name any more, nor while a log is being replayed.
//!
//! # Source
//! OpenZFS `module/zfs/zfs_log.c`, `include/sys/zil.h`.

use base::{ObjectId, Result};
use dmu::Tx;
use phys::blkptr::BlkPtrPhys;
use phys::zil::{
    LrAttrEndPhys, LrAttrPhys, LrCreatePhys, LrLinkPhys, LrPhys, LrRemovePhys, LrRenamePhys,
    LrRenameWhiteoutPhys, LrSetattrPhys, LrSetsaxattrPhys, LrTruncatePhys, LrWritePhys, XAT_PROJID,
    foid_new, tx as txtype,
};
use phys::znode::pflags;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use zil::{DataRequest, Itx, WriteState, Zilog};

use crate::attrs::{Attr, FileType, Time};
use crate::{Filesystem, SetAttr};

/// Data up to this size is put into the record of a synchronous write (`zil_max_copied_data`).
const COPIED_MAX_BYTES: usize = 7680;

/// The intent log as file systems see it.
pub trait IntentLog: Send + Sync {
    /// Takes a record that belongs to the transaction `tx`.
    #[doc(alias = "zil_itx_assign")]
    fn log(&self, tx: &Tx, itx: Itx);

    /// Ensures that the records of `object`, and all synchronous ones, are on stable storage; returns
    /// false if there is no log: then the caller waits for the txg.
    ///
    /// # Errors
    /// I/O.
    #[doc(alias = "zil_commit")]
    fn commit(&self, object: ObjectId) -> Result<bool>;

    /// Forgets records of `object` that are not synchronous: it was removed.
    #[doc(alias = "zil_remove_async")]
    fn forget(&self, object: ObjectId) {
        let _ = object;
    }

    /// Whether a log is being replayed; `tx` then carries its next record.
    #[doc(alias = "zil_replaying")]
    fn is_replaying(&self, tx: &Tx) -> bool {
        let _ = tx;
        false
    }
}

impl IntentLog for Zilog {
    fn log(&self, tx: &Tx, itx: Itx) {
        Zilog::log(self, tx, itx);
    }

    fn commit(&self, object: ObjectId) -> Result<bool> {
        Zilog::commit(self, Some(object)).map(|()| true)
    }

    fn forget(&self, object: ObjectId) {
        Zilog::forget(self, object);
    }

    fn is_replaying(&self, tx: &Tx) -> bool {
        Zilog::is_replaying(self, tx)
    }
}

/// No log.
pub struct NoLog;

impl IntentLog for NoLog {
    fn log(&self, _tx: &Tx, _itx: Itx) {}

    fn commit(&self, _object: ObjectId) -> Result<bool> {
        Ok(false)
    }
}

fn time_words(time: Time) -> [U64; 2] {
    [U64::new(time.secs as u64), U64::new(time.nanos.into())]
}

/// A record of fixed fields `head` followed by `tails`, with type and length filled in.
fn record(txtype: u64, head: &(impl IntoBytes + zerocopy::Immutable), tails: &[&[u8]]) -> Vec<u8> {
    let head = head.as_bytes();
    let len = head.len() + tails.iter().map(|tail| tail.len()).sum::<usize>();
    let mut bytes = Vec::with_capacity(len.next_multiple_of(8));
    bytes.extend_from_slice(head);
    for tail in tails {
        bytes.extend_from_slice(tail);
    }
    bytes.resize(len.next_multiple_of(8), 0);
    let common = LrPhys {
        txtype: U64::new(txtype),
        reclen: U64::new(bytes.len() as u64),
        ..LrPhys::default()
    };
    bytes[..size_of::<LrPhys>()].copy_from_slice(common.as_bytes());
    bytes
}

fn is_quiet(fs: &Filesystem, tx: &Tx) -> bool {
    tx.is_syncing() || fs.log.is_replaying(tx)
}

/// Hands over a record that every commit commits.
fn log_sync(fs: &Filesystem, tx: &Tx, object: ObjectId, record: Vec<u8>) {
    let write_state = WriteState::Complete;
    fs.log.log(
        tx,
        Itx {
            record,
            object,
            is_sync: true,
            write_state,
        },
    );
}

/// Hands over a record that a commit of `object` commits.
fn log_async(fs: &Filesystem, tx: &Tx, object: ObjectId, record: Vec<u8>) {
    let write_state = WriteState::Complete;
    fs.log.log(
        tx,
        Itx {
            record,
            object,
            is_sync: false,
            write_state,
        },
    );
}

fn create_phys(directory: ObjectId, attr: &Attr, slots: u8) -> LrCreatePhys {
    LrCreatePhys {
        doid: U64::new(directory.0),
        foid: U64::new(foid_new(attr.id.0, slots.into())),
        mode: U64::new(attr.mode.into()),
        uid: U64::new(attr.uid),
        gid: U64::new(attr.gid),
        gen_: U64::new(attr.generation),
        crtime: time_words(attr.crtime),
        rdev: U64::new(attr.rdev),
        ..LrCreatePhys::default()
    }
}

/// `TX_CREATE`, `TX_MKDIR`, `TX_SYMLINK`.
pub(crate) fn create(
    fs: &Filesystem,
    tx: &Tx,
    directory: ObjectId,
    attr: &Attr,
    slots: u8,
    name: &[u8],
    target: Option<&[u8]>,
) {
    if is_quiet(fs, tx) {
        return;
    }
    let type_ = match attr.file_type() {
        Some(FileType::Directory) => txtype::MKDIR,
        Some(FileType::Symlink) => txtype::SYMLINK,
        _ => txtype::CREATE,
    };
    let head = create_phys(directory, attr, slots);
    let record = match target {
        Some(target) => record(type_, &head, &[name, &[0], target, &[0]]),
        None => record(type_, &head, &[name, &[0]]),
    };
    log_sync(fs, tx, attr.id, record);
}

/// `TX_MKXATTR`: file `owner` gets a directory of extended attributes.
pub(crate) fn make_xattr_dir(fs: &Filesystem, tx: &Tx, owner: ObjectId, attr: &Attr, slots: u8) {
    if !is_quiet(fs, tx) {
        let head = create_phys(owner, attr, slots);
        log_sync(fs, tx, attr.id, record(txtype::MKXATTR, &head, &[&[0]]));
    }
}

/// `TX_REMOVE`; `TX_RMDIR` if no `file` is given.
pub(crate) fn remove(
    fs: &Filesystem,
    tx: &Tx,
    directory: ObjectId,
    name: &[u8],
    file: Option<ObjectId>,
) {
    if is_quiet(fs, tx) {
        return;
    }
    let head = LrRemovePhys {
        doid: U64::new(directory.0),
        ..LrRemovePhys::default()
    };
    let type_ = if file.is_some() {
        txtype::REMOVE
    } else {
        txtype::RMDIR
    };
    log_sync(
        fs,
        tx,
        file.unwrap_or_default(),
        record(type_, &head, &[name, &[0]]),
    );
}

/// `TX_LINK`.
pub(crate) fn link(fs: &Filesystem, tx: &Tx, directory: ObjectId, file: ObjectId, name: &[u8]) {
    if is_quiet(fs, tx) {
        return;
    }
    let head = LrLinkPhys {
        doid: U64::new(directory.0),
        link_obj: U64::new(file.0),
        ..LrLinkPhys::default()
    };
    log_sync(fs, tx, file, record(txtype::LINK, &head, &[name, &[0]]));
}

fn rename_phys(from: ObjectId, to: ObjectId) -> LrRenamePhys {
    LrRenamePhys {
        sdoid: U64::new(from.0),
        tdoid: U64::new(to.0),
        ..LrRenamePhys::default()
    }
}

type Name<'a> = (ObjectId, &'a [u8]);

/// `TX_RENAME`.
pub(crate) fn rename(fs: &Filesystem, tx: &Tx, from: Name<'_>, to: Name<'_>, file: ObjectId) {
    rename_as(fs, tx, txtype::RENAME, from, to, file);
}

/// `TX_RENAME_EXCHANGE`.
pub(crate) fn rename_exchange(
    fs: &Filesystem,
    tx: &Tx,
    from: Name<'_>,
    to: Name<'_>,
    file: ObjectId,
) {
    rename_as(fs, tx, txtype::RENAME_EXCHANGE, from, to, file);
}

fn rename_as(fs: &Filesystem, tx: &Tx, type_: u64, from: Name<'_>, to: Name<'_>, file: ObjectId) {
    if !is_quiet(fs, tx) {
        let head = rename_phys(from.0, to.0);
        log_sync(
            fs,
            tx,
            file,
            record(type_, &head, &[from.1, &[0], to.1, &[0]]),
        );
    }
}

/// `TX_RENAME_WHITEOUT`.
pub(crate) fn rename_whiteout(
    fs: &Filesystem,
    tx: &Tx,
    from: Name<'_>,
    to: Name<'_>,
    file: ObjectId,
    whiteout: &Attr,
    slots: u8,
) {
    if is_quiet(fs, tx) {
        return;
    }
    let head = LrRenameWhiteoutPhys {
        rename: rename_phys(from.0, to.0),
        wfoid: U64::new(foid_new(whiteout.id.0, slots.into())),
        wmode: U64::new(whiteout.mode.into()),
        wuid: U64::new(whiteout.uid),
        wgid: U64::new(whiteout.gid),
        wgen: U64::new(whiteout.generation),
        wcrtime: time_words(whiteout.crtime),
        wrdev: U64::new(whiteout.rdev),
    };
    let tails = [from.1, &[0], to.1, &[0]];
    log_sync(fs, tx, file, record(txtype::RENAME_WHITEOUT, &head, &tails));
}

/// Whether the records of a file's content belong to every commit: those of extended attributes do, as
/// no commit asks for their object number. All records of one file must go the same way, or their order
/// would be lost.
fn is_always_committed(attr: &Attr) -> bool {
    attr.is_xattr()
}

/// `TX_WRITE` of `len` bytes; `urgent`: the bytes, if a commit follows at once.
pub(crate) fn write(
    fs: &Filesystem,
    tx: &Tx,
    attr: &Attr,
    offset: u64,
    len: u64,
    urgent: Option<&[u8]>,
) {
    if is_quiet(fs, tx) || attr.links == 0 {
        return;
    }
    let head = LrWritePhys {
        foid: U64::new(attr.id.0),
        offset: U64::new(offset),
        length: U64::new(len),
        blkptr: BlkPtrPhys::default(),
        ..LrWritePhys::default()
    };
    let copied = urgent.filter(|data| data.len() <= COPIED_MAX_BYTES);
    let (record, write_state) = if let Some(data) = copied {
        (record(txtype::WRITE, &head, &[data]), WriteState::Complete)
    } else {
        let wanted = WriteState::NeedCopy(DataRequest {
            id: attr.id,
            generation: attr.generation,
            offset,
            len,
        });
        (record(txtype::WRITE, &head, &[]), wanted)
    };
    let is_sync = is_always_committed(attr);
    fs.log.log(
        tx,
        Itx {
            record,
            object: attr.id,
            is_sync,
            write_state,
        },
    );
}

/// `TX_TRUNCATE`.
pub(crate) fn truncate(fs: &Filesystem, tx: &Tx, attr: &Attr, offset: u64, len: u64) {
    if is_quiet(fs, tx) || attr.links == 0 {
        return;
    }
    let head = LrTruncatePhys {
        foid: U64::new(attr.id.0),
        offset: U64::new(offset),
        length: U64::new(len),
        ..LrTruncatePhys::default()
    };
    let record = record(txtype::TRUNCATE, &head, &[]);
    if is_always_committed(attr) {
        log_sync(fs, tx, attr.id, record);
    } else {
        log_async(fs, tx, attr.id, record);
    }
}

/// `TX_SETSAXATTR`; no value: the attribute is removed. Every commit commits it, as all that happens in the
/// hidden directory: a commit between the two records of a move would lose the attribute.
pub(crate) fn set_sa_xattr(
    fs: &Filesystem,
    tx: &Tx,
    attr: &Attr,
    name: &[u8],
    value: Option<&[u8]>,
) {
    if is_quiet(fs, tx) || attr.links == 0 || !fs.settings().log_sa_xattr {
        return;
    }
    let value = value.unwrap_or_default();
    let head = LrSetsaxattrPhys {
        foid: U64::new(attr.id.0),
        size: U64::new(value.len() as u64),
        ..LrSetsaxattrPhys::default()
    };
    let record = record(txtype::SETSAXATTR, &head, &[name, &[0], value]);
    log_sync(fs, tx, attr.id, record);
}

/// Bits of `lr_mask`, which are those of Linux.
pub(crate) mod mask {
    pub(crate) const MODE: u64 = 1;
    pub(crate) const UID: u64 = 1 << 1;
    pub(crate) const GID: u64 = 1 << 2;
    pub(crate) const SIZE: u64 = 1 << 3;
    pub(crate) const ATIME: u64 = 1 << 4;
    pub(crate) const MTIME: u64 = 1 << 5;
    pub(crate) const CTIME: u64 = 1 << 6;
    pub(crate) const XVATTR: u64 = phys::zil::ATTR_XVATTR;
}

/// Bits of `lr_attr_bitmap` and `lr_attr_attrs` (`XAT0_*`), and the flag that each stands for.
pub(crate) const XAT_FLAGS: [(u32, u64); 13] = [
    (0x2, pflags::ARCHIVE),
    (0x4, pflags::SYSTEM),
    (0x8, pflags::READONLY),
    (0x10, pflags::HIDDEN),
    (0x20, pflags::NOUNLINK),
    (0x40, pflags::IMMUTABLE),
    (0x80, pflags::APPENDONLY),
    (0x100, pflags::NODUMP),
    (0x200, pflags::OPAQUE),
    (0x2000, pflags::REPARSE),
    (0x8000, pflags::OFFLINE),
    (0x1_0000, pflags::SPARSE),
    (0x2_0000, pflags::PROJINHERIT),
];
/// `XAT0_CREATETIME`.
pub(crate) const XAT_CREATETIME: u32 = 0x1;
/// `XVA_MAPSIZE`: words of bitmap.
pub(crate) const XVA_MAPSIZE: u32 = 3;

/// `TX_SETATTR`; `attr` is as it was before.
pub(crate) fn setattr(fs: &Filesystem, tx: &Tx, attr: &Attr, set: &SetAttr) {
    if is_quiet(fs, tx) || attr.links == 0 {
        return;
    }
    let has_more = set.pflags.is_some() || set.crtime.is_some() || set.projid.is_some();
    let bits = [
        (set.mode.is_some(), mask::MODE),
        (set.uid.is_some(), mask::UID),
        (set.gid.is_some(), mask::GID),
        (set.atime.is_some(), mask::ATIME),
        (set.mtime.is_some(), mask::MTIME),
        (true, mask::CTIME),
        (has_more, mask::XVATTR),
    ];
    let mask = bits
        .iter()
        .filter(|(is_set, _)| *is_set)
        .fold(0, |all, (_, bit)| all | bit);
    let head = LrSetattrPhys {
        foid: U64::new(attr.id.0),
        mask: U64::new(mask),
        mode: U64::new(set.mode.unwrap_or(attr.mode).into()),
        uid: U64::new(set.uid.unwrap_or(attr.uid)),
        gid: U64::new(set.gid.unwrap_or(attr.gid)),
        size: U64::new(attr.size),
        atime: time_words(set.atime.unwrap_or(attr.atime)),
        mtime: time_words(set.mtime.unwrap_or(attr.mtime)),
        ..LrSetattrPhys::default()
    };
    let more = if has_more {
        extended_attrs(set)
    } else {
        Vec::new()
    };
    log_async(fs, tx, attr.id, record(txtype::SETATTR, &head, &[&more]));
}

/// `lr_attr_t` with everything that follows it.
fn extended_attrs(set: &SetAttr) -> Vec<u8> {
    let mut bitmap = 0;
    let mut end = LrAttrEndPhys::default();
    if let Some(flags) = set.pflags {
        let mut attrs = 0;
        for (bit, flag) in XAT_FLAGS {
            bitmap |= bit;
            attrs |= if flags & flag != 0 { u64::from(bit) } else { 0 };
        }
        end.attrs = U64::new(attrs);
    }
    if let Some(crtime) = set.crtime {
        bitmap |= XAT_CREATETIME;
        end.crtime = time_words(crtime);
    }
    if let Some(projid) = set.projid {
        bitmap |= XAT_PROJID;
        end.scanstamp[..8].copy_from_slice(&U64::new(projid).to_bytes());
    }
    let start = LrAttrPhys {
        masksize: U32::new(XVA_MAPSIZE),
        bitmap: U32::new(bitmap),
    };
    [start.as_bytes(), &[0; 8], end.as_bytes()].concat()
}

impl Filesystem {
    /// The data for a record that was made without data: what the file now has in that range. `None` if
    /// the file is gone, or ends before the range: then the record is void.
    ///
    /// # Errors
    /// I/O.
    #[doc(alias = "zfs_get_data")]
    pub fn log_data(&self, wanted: &DataRequest) -> Result<Option<Vec<u8>>> {
        let Ok(node) = self.node(wanted.id) else {
            return Ok(None);
        };
        let _content = node.locks.content.read();
        let attr = self.attr_of(&node)?;
        if attr.generation != wanted.generation || attr.links == 0 || wanted.offset >= attr.size {
            return Ok(None);
        }
        let mut data = vec![0; wanted.len as usize];
        node.dnode.read(wanted.offset, &mut data)?;
        Ok(Some(data))
    }
}
