//! Content of files: opening, reading, writing, allocating, copying.

use std::sync::Arc;

use base::{ErrorKind, Result};
use dmu::Content;
use rustix::fs::OFlags;
use zpl::{FileOffset, FileType, SetAttr, pflags};

use super::attributes::drop_privileges;
use super::{Answer, Errno, File, Outcome, Request, file};
use crate::abi::{
    self, CopyFileRangeIn, FallocateIn, LseekIn, LseekOut, OpenIn, OpenOut, ReadIn, ReleaseIn,
    WriteIn, WriteOut,
};
use crate::nodes::Node;
use crate::session::Session;

/// `O_ACCMODE`; 0 is for reading alone.
const ACCESS_MODE: u32 = 3;
/// `O_TRUNC`.
const TRUNC: u32 = 0o1000;
/// `O_APPEND`.
const APPEND: u32 = 0o2000;
/// `O_DSYNC`, which is part of `O_SYNC`.
const DSYNC: u32 = 0o10000;
/// `SEEK_DATA`.
const SEEK_DATA: u32 = 3;
/// `SEEK_HOLE`.
const SEEK_HOLE: u32 = 4;
/// `FALLOC_FL_KEEP_SIZE`.
const KEEP_SIZE: u32 = 0x01;
/// `FALLOC_FL_PUNCH_HOLE`.
const PUNCH_HOLE: u32 = 0x02;
/// `FALLOC_FL_ZERO_RANGE`.
const ZERO_RANGE: u32 = 0x10;
/// The most bytes that are copied for one request; its caller asks for the rest.
const COPY_BYTES_MAX: u64 = 16 << 20;
/// The most bytes that are cloned for one request: what the answer can hold, in whole records.
const CLONE_BYTES_MAX: u64 = 1 << 30;
/// Below this copying is cheaper than cloning, which has to wait for what is not on disk yet.
const CLONE_BYTES_MIN: u64 = 128 << 10;
/// Bytes that are copied at a time.
const COPY_PIECE_BYTES: u64 = 1 << 20;

/// What an open file is answered with: the kernel keeps its pages, and has no number to remember.
pub(super) fn open_out() -> OpenOut {
    OpenOut {
        fh: 0,
        open_flags: abi::FOPEN_KEEP_CACHE | abi::FOPEN_PARALLEL_DIRECT_WRITES,
        backing_id: 0,
    }
}

pub(super) fn open(session: &Session, mut request: Request<'_>) -> Outcome {
    let OpenIn { flags, .. } = request.take()?;
    let file = file(session, request.header.nodeid)?;
    let writes = flags & ACCESS_MODE != 0;
    if writes || flags & TRUNC != 0 {
        if !file.files().is_writable() {
            return Err(Errno::ROFS);
        }
        let attr = file.files().getattr(file.id)?;
        let appends = flags & APPEND != 0 && flags & TRUNC == 0;
        if attr.pflags & pflags::IMMUTABLE != 0 || attr.pflags & pflags::APPENDONLY != 0 && !appends
        {
            return Err(Errno::PERM);
        }
    }
    Ok(Answer::of(&open_out()))
}

/// Pages that the kernel has of a file stay when it is closed. Nobody waits for this, nor for an error.
pub(super) fn release(session: &Session, mut request: Request<'_>) -> Outcome {
    let ReleaseIn { flags, .. } = request.take()?;
    let has_pages = flags & OFlags::DIRECT.bits() == 0;
    if flags & ACCESS_MODE != 0 && has_pages {
        let file = file(session, request.header.nodeid)?;
        file.files().note_kept_above(file.id)?;
    }
    Ok(Answer::Empty)
}

pub(super) fn read(session: &Session, mut request: Request<'_>) -> Outcome {
    let asked: ReadIn = request.take()?;
    let file = file(session, request.header.nodeid)?;
    let contents = file
        .files()
        .contents(file.id, asked.offset, asked.size.into())?;
    Ok(Answer::Contents(contents))
}

pub(super) fn write(session: &Session, mut request: Request<'_>) -> Outcome {
    let asked: WriteIn = request.take()?;
    let file = file(session, request.header.nodeid)?;
    let data = request
        .body
        .get(..asked.size as usize)
        .ok_or(Errno::INVAL)?;
    let is_page = asked.write_flags & abi::WRITE_CACHE != 0;
    // The pages of a mapping are written long after their file was opened, by no one in particular.
    let flags = if is_page { 0 } else { asked.flags };
    if flags & APPEND != 0 {
        let at = file.files().append(file.id, data)?;
        if flags & DSYNC != 0 {
            file.files().fsync(file.id)?;
        }
        if at != asked.offset {
            // The file has grown beside the mount, and the kernel has put the bytes elsewhere among its pages.
            session.notices.drop_pages(file.volume.node_id(file.id));
        }
    } else if flags & DSYNC != 0 {
        file.files().write_sync(file.id, asked.offset, data)?;
    } else {
        file.files().write(file.id, asked.offset, data)?;
    }
    if !is_page {
        let kills = asked.write_flags & abi::WRITE_KILL_SUIDGID != 0;
        let attr = file.files().getattr(file.id)?;
        drop_privileges(session, &file, &attr, kills)?;
    }
    Ok(Answer::of(&WriteOut {
        size: asked.size,
        padding: 0,
    }))
}

pub(super) fn fsync(session: &Session, request: &Request<'_>) -> Outcome {
    if let Node::File(volume, id) = session.nodes.find(request.header.nodeid)? {
        volume.files().fsync(id)?;
    }
    Ok(Answer::Empty)
}

pub(super) fn lseek(session: &Session, mut request: Request<'_>) -> Outcome {
    let asked: LseekIn = request.take()?;
    let file = file(session, request.header.nodeid)?;
    let found = match asked.whence {
        SEEK_DATA => file.files().seek_data(file.id, asked.offset)?,
        SEEK_HOLE => file.files().seek_hole(file.id, asked.offset)?,
        _ => return Err(Errno::INVAL),
    };
    let offset = found.ok_or(Errno::NXIO)?;
    Ok(Answer::of(&LseekOut { offset }))
}

/// Nothing is set aside, as in OpenZFS: what is written goes elsewhere in any case. The space must be there now.
pub(super) fn fallocate(session: &Session, mut request: Request<'_>) -> Outcome {
    let asked: FallocateIn = request.take()?;
    let file = file(session, request.header.nodeid)?;
    let files = file.files();
    let end = asked.offset.checked_add(asked.length).ok_or(Errno::INVAL)?;
    let frees = asked.mode & (PUNCH_HOLE | ZERO_RANGE) != 0;
    match asked.mode & !KEEP_SIZE {
        0 => {
            if !files.is_writable() {
                return Err(Errno::ROFS);
            }
            if asked.length > files.statfs().available_bytes {
                return Err(Errno::NOSPC);
            }
        }
        PUNCH_HOLE if asked.mode & KEEP_SIZE != 0 => {}
        ZERO_RANGE => {}
        _ => return Err(Errno::OPNOTSUPP),
    }
    if frees {
        files.punch_hole(file.id, asked.offset, asked.length)?;
    }
    if asked.mode & KEEP_SIZE == 0 && files.getattr(file.id)?.size < end {
        let set = SetAttr {
            size: Some(end),
            ..SetAttr::default()
        };
        files.setattr(file.id, &set)?;
    }
    let attr = files.getattr(file.id)?;
    drop_privileges(session, &file, &attr, request.header.uid != 0)?;
    Ok(Answer::Empty)
}

pub(super) fn copy_file_range(session: &Session, mut request: Request<'_>) -> Outcome {
    let asked: CopyFileRangeIn = request.take()?;
    let from = file(session, request.header.nodeid)?;
    let to = file(session, asked.nodeid_out)?;
    if asked.flags != 0 {
        return Err(Errno::INVAL);
    }
    let source = from.files().getattr(from.id)?;
    if source.file_type() != Some(FileType::Regular) {
        return Err(Errno::INVAL);
    }
    let len = asked.len.min(source.size.saturating_sub(asked.off_in));
    let mut done = 0;
    if len >= CLONE_BYTES_MIN {
        let part = len.min(CLONE_BYTES_MAX);
        match clone(&from, &to, &asked, part) {
            Ok(()) => done = part,
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            Err(error) => return Err(error.into()),
        }
    }
    if done == 0 {
        done = copy(&from, &to, &asked, len.min(COPY_BYTES_MAX))?;
    }
    if done > 0 {
        let attr = to.files().getattr(to.id)?;
        drop_privileges(session, &to, &attr, request.header.uid != 0)?;
    }
    Ok(Answer::of(&WriteOut {
        size: u32::try_from(done).expect("at most a gigabyte at a time"),
        padding: 0,
    }))
}

fn clone(from: &File, to: &File, asked: &CopyFileRangeIn, len: u64) -> Result<()> {
    if Arc::ptr_eq(&from.volume, &to.volume) && from.id == to.id {
        return Err(base::Error::new(ErrorKind::Unsupported, "one file"));
    }
    let source = FileOffset {
        fs: from.files(),
        id: from.id,
        offset: asked.off_in,
    };
    to.files().clone_range(to.id, asked.off_out, source, len)
}

/// Returns how many bytes it copied: fewer than asked for where writing fails after some.
fn copy(from: &File, to: &File, asked: &CopyFileRangeIn, len: u64) -> Result<u64> {
    let mut done = 0;
    while done < len {
        let bytes = COPY_PIECE_BYTES.min(len - done);
        let contents = from.files().contents(from.id, asked.off_in + done, bytes)?;
        let mut piece = Vec::with_capacity(bytes as usize);
        for content in &contents {
            match content {
                Content::Data(data) => piece.extend_from_slice(data),
                Content::Hole(len) => piece.resize(piece.len() + len, 0),
            }
        }
        if piece.is_empty() {
            break;
        }
        match to.files().write(to.id, asked.off_out + done, &piece) {
            Ok(()) => done += piece.len() as u64,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
