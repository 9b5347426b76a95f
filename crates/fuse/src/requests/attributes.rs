//! Attributes: of files and of the file system.

use base::ObjectId;
use zpl::{Attr, SetAttr, Time, device_major_minor, pflags};

use super::{Answer, Errno, File, Outcome, Request, VALID_SECS, control, file};
use crate::abi::{
    AttrOfFile, AttrOut, EntryOut, SetattrIn, StatfsOut, Statx, StatxOut, StatxTime, fattr,
};
use crate::nodes::{Node, Volume};
use crate::session::Session;

/// `S_ISUID`.
const SETUID: u32 = 0o4000;
/// `S_ISGID`.
const SETGID: u32 = 0o2000;
/// `S_IXGRP`.
const GROUP_EXECUTES: u32 = 0o010;
/// `STATX_BASIC_STATS | STATX_BTIME`.
const STATX_ALL: u32 = 0xfff;
/// The smallest block that programs are told to write, in bytes.
const BLOCK_MIN_BYTES: u64 = 4096;

/// A device number as the kernel passes it on (`new_encode_dev`).
pub(super) fn encode_device(rdev: u64) -> u32 {
    let (major, minor) = device_major_minor(rdev);
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

/// Major and minor number of what [`encode_device`] returns.
pub(super) fn decode_device(device: u32) -> (u32, u32) {
    (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00)
}

pub(super) fn attr_of_file(volume: &Volume, attr: &Attr) -> AttrOfFile {
    AttrOfFile {
        ino: volume.inode_number(attr.id),
        size: attr.size,
        blocks: attr.used_bytes.div_ceil(512),
        atime: attr.atime.secs.cast_unsigned(),
        mtime: attr.mtime.secs.cast_unsigned(),
        ctime: attr.ctime.secs.cast_unsigned(),
        atimensec: attr.atime.nanos,
        mtimensec: attr.mtime.nanos,
        ctimensec: attr.ctime.nanos,
        mode: attr.mode,
        nlink: u32::try_from(attr.links).unwrap_or(u32::MAX),
        uid: attr.uid as u32,
        gid: attr.gid as u32,
        rdev: encode_device(attr.rdev),
        blksize: attr.blksz.next_power_of_two().max(BLOCK_MIN_BYTES) as u32,
        flags: 0,
    }
}

/// How long the kernel may believe that a name leads where it did, in seconds. It does not know which names are alike:
/// one that is made or removed changes what others lead to.
pub(super) fn name_valid_secs(volume: &Volume) -> u64 {
    match volume.files().folds_names() {
        true => 0,
        false => VALID_SECS,
    }
}

/// A file that the kernel is told of.
pub(super) fn entry(volume: &Volume, attr: &Attr) -> EntryOut {
    EntryOut {
        nodeid: volume.node_id(attr.id),
        generation: attr.generation,
        entry_valid: name_valid_secs(volume),
        attr_valid: VALID_SECS,
        attr: attr_of_file(volume, attr),
        ..EntryOut::default()
    }
}

fn attr_out(attr: AttrOfFile) -> Answer {
    Answer::of(&AttrOut {
        attr_valid: VALID_SECS,
        attr,
        ..AttrOut::default()
    })
}

pub(super) fn getattr(session: &Session, request: &Request<'_>) -> Outcome {
    let node = session.nodes.find(request.header.nodeid)?;
    let Node::File(volume, id) = node else {
        return Ok(attr_out(control::attr(session, &node)?));
    };
    let attr = volume.files().getattr(id)?;
    Ok(attr_out(attr_of_file(&volume, &attr)))
}

fn statx_time(time: Time) -> StatxTime {
    StatxTime {
        secs: time.secs,
        nanos: time.nanos,
        reserved: 0,
    }
}

pub(super) fn statx(session: &Session, request: &Request<'_>) -> Outcome {
    let node = session.nodes.find(request.header.nodeid)?;
    let Node::File(volume, id) = node else {
        return Ok(statx_of(&control::attr(session, &node)?, None));
    };
    let attr = volume.files().getattr(id)?;
    Ok(statx_of(&attr_of_file(&volume, &attr), Some(&attr)))
}

fn statx_of(plain: &AttrOfFile, attr: Option<&Attr>) -> Answer {
    let time = |secs: u64, nanos| StatxTime {
        secs: secs.cast_signed(),
        nanos,
        reserved: 0,
    };
    let flagged = |flag: u64| attr.is_some_and(|attr| attr.pflags & flag != 0);
    let attributes = [
        (pflags::IMMUTABLE, 0x10),
        (pflags::APPENDONLY, 0x20),
        (pflags::NODUMP, 0x40),
    ];
    let (major, minor) = decode_device(plain.rdev);
    let ctime = time(plain.ctime, plain.ctimensec);
    let stat = Statx {
        mask: STATX_ALL,
        blksize: plain.blksize,
        attributes: attributes
            .iter()
            .filter(|(flag, _)| flagged(*flag))
            .fold(0, |all, (_, bit)| all | bit),
        attributes_mask: 0x70,
        nlink: plain.nlink,
        uid: plain.uid,
        gid: plain.gid,
        mode: plain.mode as u16,
        ino: plain.ino,
        size: plain.size,
        blocks: plain.blocks,
        atime: time(plain.atime, plain.atimensec),
        btime: attr.map_or(ctime, |attr| statx_time(attr.crtime)),
        ctime,
        mtime: time(plain.mtime, plain.mtimensec),
        rdev_major: major,
        rdev_minor: minor,
        ..Statx::default()
    };
    Answer::of(&StatxOut {
        attr_valid: VALID_SECS,
        stat,
        ..StatxOut::default()
    })
}

/// The mode without the bits that a change of content or owner takes away.
fn without_setid(mode: u32) -> u32 {
    let setgid = if mode & GROUP_EXECUTES != 0 {
        SETGID
    } else {
        0
    };
    mode & !SETUID & !setgid
}

/// What a file with these attributes loses when its content or its owner changes: setuid, setgid, capabilities.
/// Returns whether it had any of them.
pub(super) fn drop_privileges(
    session: &Session,
    file: &File,
    attr: &Attr,
    with_setid: bool,
) -> Result<bool, Errno> {
    let mode = without_setid(attr.mode);
    let has_setid = with_setid && mode != attr.mode;
    if has_setid {
        let set = SetAttr {
            mode: Some(mode),
            ..SetAttr::default()
        };
        file.files().setattr(file.id, &set)?;
        session
            .notices
            .attributes_changed(file.volume.node_id(file.id));
    }
    let capability = b"security.capability";
    let has_capability =
        attr.may_have_xattrs() && file.files().getxattr(file.id, capability)?.is_some();
    if has_capability {
        file.files().removexattr(file.id, capability)?;
    }
    Ok(has_setid || has_capability)
}

pub(super) fn setattr(session: &Session, mut request: Request<'_>) -> Outcome {
    let file = file(session, request.header.nodeid)?;
    let asked: SetattrIn = request.take()?;
    let has = |field: u32| asked.valid & field != 0;
    let time = |field: u32, now: u32, secs: u64, nanos: u32| {
        if has(now) {
            return Some(Time::now());
        }
        let secs = secs.cast_signed();
        has(field).then_some(Time { secs, nanos })
    };
    let mut set = SetAttr {
        mode: has(fattr::MODE).then_some(asked.mode),
        uid: has(fattr::UID).then_some(asked.uid.into()),
        gid: has(fattr::GID).then_some(asked.gid.into()),
        size: has(fattr::SIZE).then_some(asked.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, asked.atime, asked.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, asked.mtime, asked.mtimensec),
        ctime: time(fattr::CTIME, 0, asked.ctime, asked.ctimensec),
        ..SetAttr::default()
    };
    let is_touch = asked.valid & (fattr::ATIME | fattr::MTIME) == 0
        || has(fattr::ATIME_NOW) && has(fattr::MTIME_NOW);
    let attr = file.files().getattr(file.id)?;
    let is_fixed = set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || !is_touch;
    if attr.pflags & pflags::APPENDONLY != 0 && is_fixed {
        return Err(Errno::PERM);
    }
    if attr.pflags & pflags::IMMUTABLE != 0 {
        return Err(Errno::PERM);
    }
    let kills = has(fattr::KILL_SUIDGID) && !attr.is_directory();
    if kills {
        let mode = set.mode.unwrap_or(attr.mode);
        set.mode = Some(without_setid(mode)).filter(|new| set.mode.is_some() || *new != attr.mode);
    }
    let mut attr = file.files().setattr(file.id, &set)?;
    let changes = kills || set.size.is_some();
    if changes && drop_privileges(session, &file, &attr, kills)? {
        attr = file.files().getattr(file.id)?;
    }
    Ok(attr_out(attr_of_file(&file.volume, &attr)))
}

pub(super) fn statfs(session: &Session, request: &Request<'_>) -> Outcome {
    let stat = match session.nodes.find(request.header.nodeid)? {
        Node::File(volume, id) => volume.files().statfs_at(id)?,
        Node::Control | Node::Snapshots => session.nodes.live().files().statfs(),
    };
    let sector = 512;
    Ok(Answer::of(&StatfsOut {
        blocks: stat.total_bytes / sector,
        bfree: stat.available_bytes / sector,
        bavail: stat.available_bytes / sector,
        files: stat.files.saturating_add(stat.available_files),
        ffree: stat.available_files,
        bsize: 128 << 10,
        frsize: sector as u32,
        namelen: stat.name_max,
        ..StatfsOut::default()
    }))
}

/// The number of the root directory of a volume.
pub(super) fn root_of(volume: &Volume) -> ObjectId {
    volume.files().root()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zpl::device_number;

    #[test]
    fn device_numbers_survive_the_way_through_the_kernel() {
        for (major, minor) in [(8, 1), (1, 3), (4095, 1_048_575), (259, 300)] {
            let device = encode_device(device_number(major, minor));
            assert_eq!(decode_device(device), (major, minor));
        }
    }

    #[test]
    fn setgid_without_group_execution_stays() {
        assert_eq!(without_setid(0o6755), 0o755);
        assert_eq!(without_setid(0o6745), 0o2745);
        assert_eq!(without_setid(0o1644), 0o1644);
    }
}
