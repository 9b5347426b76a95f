//! Names: looking up, making, removing, renaming, linking.

use std::sync::Arc;

use base::{ErrorKind, Result};
use zpl::{Attr, Create, FileType, RenameKind, device_number};

use super::attributes::{decode_device, entry};
use super::{Answer, Bytes, Errno, File, Outcome, Request, attributes, content, control, file};
use crate::abi::{CreateIn, EntryOut, LinkIn, MkdirIn, MknodIn, Rename2In, RenameIn, op};
use crate::nodes::{Node, Volume};
use crate::session::Session;

/// The directory of snapshots in the root directory.
pub(super) const CONTROL_NAME: &[u8] = b".zfs";
/// `O_EXCL`.
const EXCL: u32 = 0o200;
/// `O_TRUNC`.
const TRUNC: u32 = 0o1000;
/// The extended attribute that decides about permissions instead of the umask.
const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";
/// How often a name is looked up again that leads to a file that is gone by then.
const LOOKUPS_MAX: u32 = 100;

/// A name that is not there, which the kernel keeps, too.
fn absent(volume: &Volume) -> Answer {
    Answer::of(&EntryOut {
        entry_valid: attributes::name_valid_secs(volume),
        ..EntryOut::default()
    })
}

/// Tells the kernel of a file.
pub(super) fn told(volume: &Volume, attr: &Attr) -> Result<EntryOut> {
    let attr = volume.know(attr)?;
    Ok(entry(volume, &attr))
}

pub(super) fn lookup(session: &Session, mut request: Request<'_>) -> Outcome {
    let name = request.name()?;
    let parent = request.header.nodeid;
    let (volume, id) = match session.nodes.find(parent)? {
        Node::File(volume, id) => (volume, id),
        node => return control::lookup(session, &node, name),
    };
    if is_control(&volume, id == attributes::root_of(&volume), name) {
        return control::lookup_root(session);
    }
    match find(&volume, id, name) {
        Ok(Some(entry)) => Ok(Answer::of(&entry)),
        Ok(None) => Ok(absent(&volume)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(absent(&volume)),
        Err(error) => Err(error.into()),
    }
}

/// Whether a name is that of `.zfs`.
fn is_control(volume: &Volume, is_root: bool, name: &[u8]) -> bool {
    volume.is_live() && is_root && name == CONTROL_NAME
}

/// Looks up a name, and tells the kernel of the file.
fn find(volume: &Arc<Volume>, directory: base::ObjectId, name: &[u8]) -> Result<Option<EntryOut>> {
    let mut lookups = 0;
    loop {
        let Some(attr) = volume.files().lookup_if_there(directory, name)? else {
            return Ok(None);
        };
        lookups += 1;
        match told(volume, &attr) {
            Err(error) if error.kind() == ErrorKind::NotFound && lookups < LOOKUPS_MAX => {}
            found => return found.map(Some),
        }
    }
}

/// The directory that a request changes.
fn directory(session: &Session, node: u64, name: &[u8]) -> std::result::Result<File, Errno> {
    let directory = file(session, node)?;
    if is_control(
        &directory.volume,
        directory.id == attributes::root_of(&directory.volume),
        name,
    ) {
        return Err(Errno::EXIST);
    }
    Ok(directory)
}

/// Owner and permissions of what a request makes.
fn create_of(request: &Request<'_>, directory: &File, mode: u32, umask: u32) -> Result<Create> {
    let files = directory.files();
    let inherits =
        files.settings().posix_acl && files.getxattr(directory.id, DEFAULT_ACL)?.is_some();
    Ok(Create {
        mode: if inherits { mode } else { mode & !umask },
        uid: request.header.uid.into(),
        gid: request.header.gid.into(),
    })
}

pub(super) fn mkdir(session: &Session, mut request: Request<'_>) -> Outcome {
    let MkdirIn { mode, umask } = request.take()?;
    let name = request.name()?;
    let parent = directory(session, request.header.nodeid, name)?;
    let create = create_of(&request, &parent, mode, umask)?;
    let attr = parent.files().mkdir(parent.id, name, &create)?;
    Ok(Answer::of(&told(&parent.volume, &attr)?))
}

pub(super) fn mknod(session: &Session, mut request: Request<'_>) -> Outcome {
    let asked: MknodIn = request.take()?;
    let name = request.name()?;
    let parent = directory(session, request.header.nodeid, name)?;
    let create = create_of(&request, &parent, asked.mode, asked.umask)?;
    let files = parent.files();
    let attr = match FileType::of_mode(asked.mode) {
        Some(FileType::Regular) => files.create_file(parent.id, name, &create)?,
        Some(file_type) => {
            let (major, minor) = decode_device(asked.rdev);
            let rdev = device_number(major, minor);
            files.mknod(parent.id, name, file_type, rdev, &create)?
        }
        None => return Err(Errno::INVAL),
    };
    Ok(Answer::of(&told(&parent.volume, &attr)?))
}

pub(super) fn symlink(session: &Session, mut request: Request<'_>) -> Outcome {
    let name = request.name()?;
    let target = request.name()?;
    let parent = directory(session, request.header.nodeid, name)?;
    let create = Create {
        mode: 0o777,
        uid: request.header.uid.into(),
        gid: request.header.gid.into(),
    };
    let attr = parent.files().symlink(parent.id, name, target, &create)?;
    Ok(Answer::of(&told(&parent.volume, &attr)?))
}

pub(super) fn readlink(session: &Session, request: &Request<'_>) -> Outcome {
    let file = file(session, request.header.nodeid)?;
    Ok(Answer::Bytes(file.files().readlink(file.id)?.into()))
}

/// An entry and an open file, as one answer.
fn opened(entry: &EntryOut) -> Answer {
    use zerocopy::IntoBytes;
    let open = content::open_out();
    let mut bytes = Bytes::from_slice(entry.as_bytes());
    bytes.extend_from_slice(open.as_bytes());
    Answer::Bytes(bytes)
}

pub(super) fn create(session: &Session, mut request: Request<'_>) -> Outcome {
    let asked: CreateIn = request.take()?;
    let name = request.name()?;
    let parent = directory(session, request.header.nodeid, name)?;
    let create = create_of(&request, &parent, asked.mode, asked.umask)?;
    match parent.files().create_file(parent.id, name, &create) {
        Ok(attr) => Ok(opened(&told(&parent.volume, &attr)?)),
        // Made beside the mount since the kernel looked.
        Err(error) if error.kind() == ErrorKind::Exists && asked.flags & EXCL == 0 => {
            let entry = find(&parent.volume, parent.id, name)?.ok_or(Errno::NOENT)?;
            if asked.flags & TRUNC != 0 {
                parent.files().truncate(base::ObjectId(entry.attr.ino), 0)?;
            }
            Ok(opened(&entry))
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) fn tmpfile(session: &Session, mut request: Request<'_>) -> Outcome {
    let asked: CreateIn = request.take()?;
    let parent = file(session, request.header.nodeid)?;
    let create = create_of(&request, &parent, asked.mode, asked.umask)?;
    // The reference that it is made with is the kernel's.
    let attr = parent.files().create_tmpfile(parent.id, &create)?;
    let entry = told(&parent.volume, &attr);
    parent.files().rele(attr.id, 1)?;
    Ok(opened(&entry?))
}

pub(super) fn unlink(session: &Session, mut request: Request<'_>) -> Outcome {
    let name = request.name()?;
    let parent = changed(session, request.header.nodeid, name)?;
    parent.files().unlink(parent.id, name)?;
    Ok(Answer::Empty)
}

pub(super) fn rmdir(session: &Session, mut request: Request<'_>) -> Outcome {
    let name = request.name()?;
    let parent = changed(session, request.header.nodeid, name)?;
    parent.files().rmdir(parent.id, name)?;
    Ok(Answer::Empty)
}

/// A directory that loses a name: `.zfs` cannot be lost.
fn changed(session: &Session, node: u64, name: &[u8]) -> std::result::Result<File, Errno> {
    match directory(session, node, name) {
        Err(Errno::EXIST) => Err(Errno::PERM),
        found => found,
    }
}

pub(super) fn rename(session: &Session, mut request: Request<'_>) -> Outcome {
    let (new_parent, flags) = match request.header.opcode {
        op::RENAME => (request.take::<RenameIn>()?.newdir, 0),
        _ => {
            let asked: Rename2In = request.take()?;
            (asked.newdir, asked.flags)
        }
    };
    let (name, new_name) = (request.name()?, request.name()?);
    let kind = match flags {
        0 => RenameKind::Replace,
        1 => RenameKind::NoReplace,
        2 => RenameKind::Exchange,
        4 => RenameKind::Whiteout,
        _ => return Err(Errno::INVAL),
    };
    let from = changed(session, request.header.nodeid, name)?;
    let to = changed(session, new_parent, new_name)?;
    if !Arc::ptr_eq(&from.volume, &to.volume) {
        return Err(Errno::ROFS);
    }
    from.files().rename(from.id, name, to.id, new_name, kind)?;
    Ok(Answer::Empty)
}

pub(super) fn link(session: &Session, mut request: Request<'_>) -> Outcome {
    let LinkIn { oldnodeid } = request.take()?;
    let name = request.name()?;
    let parent = directory(session, request.header.nodeid, name)?;
    let old = file(session, oldnodeid)?;
    if !Arc::ptr_eq(&parent.volume, &old.volume) {
        return Err(Errno::ROFS);
    }
    let attr = parent.files().link(old.id, parent.id, name)?;
    Ok(Answer::of(&told(&parent.volume, &attr)?))
}
