//! Extended attributes and POSIX ACLs.

use base::{Error, ErrorKind};
use zpl::{SetAttr, SetXattr};

use super::{Answer, Errno, File, Outcome, Request, file};
use crate::abi::{GetxattrIn, SETXATTR_ACL_KILL_SGID, SetxattrIn};
use crate::nodes::Node;
use crate::session::Session;

/// What names begin with that are attributes of files here; the rest of `system.` is other file systems'.
const PREFIXES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
/// POSIX ACLs.
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
/// Names that only root is shown.
const HIDDEN_PREFIX: &[u8] = b"trusted.";
/// `XATTR_CREATE`.
const CREATE: u32 = 1;
/// `XATTR_REPLACE`.
const REPLACE: u32 = 2;
/// `S_ISGID`.
const SETGID: u32 = 0o2000;

/// Refuses names that are not attributes of files.
fn check(file: &File, name: &[u8]) -> Result<(), Errno> {
    let has_acls = || file.files().settings().posix_acl;
    match ACLS.contains(&name) && has_acls()
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    {
        true => Ok(()),
        false => Err(Errno::OPNOTSUPP),
    }
}

/// An attribute that is not there has a number of its own.
fn errno(error: Error) -> Errno {
    match error.kind() {
        ErrorKind::NotFound => Errno::NODATA,
        _ => error.into(),
    }
}

/// Bytes for a caller who has room for `size`; 0 asks how many there are.
fn sized(bytes: Vec<u8>, size: u32) -> Outcome {
    let len = u32::try_from(bytes.len()).map_err(|_| Errno::RANGE)?;
    match size {
        0 => Ok(Answer::of(&GetxattrIn {
            size: len,
            padding: 0,
        })),
        _ if len > size => Err(Errno::RANGE),
        _ => Ok(Answer::Bytes(bytes.into())),
    }
}

pub(super) fn get(session: &Session, mut request: Request<'_>) -> Outcome {
    let GetxattrIn { size, .. } = request.take()?;
    let name = request.name()?;
    let Node::File(volume, id) = session.nodes.find(request.header.nodeid)? else {
        return Err(Errno::NODATA);
    };
    let file = File { volume, id };
    check(&file, name)?;
    let value = file.files().getxattr(file.id, name).map_err(errno)?;
    sized(value.ok_or(Errno::NODATA)?, size)
}

pub(super) fn list(session: &Session, mut request: Request<'_>) -> Outcome {
    let GetxattrIn { size, .. } = request.take()?;
    let Node::File(volume, id) = session.nodes.find(request.header.nodeid)? else {
        return sized(Vec::new(), size);
    };
    let file = File { volume, id };
    let is_root = request.header.uid == 0;
    let mut all = Vec::new();
    for name in file.files().listxattr(file.id)? {
        let is_hidden = name.starts_with(HIDDEN_PREFIX) && !is_root;
        if !is_hidden && check(&file, &name).is_ok() {
            all.extend_from_slice(&name);
            all.push(0);
        }
    }
    sized(all, size)
}

pub(super) fn set(session: &Session, mut request: Request<'_>) -> Outcome {
    let asked: SetxattrIn = request.take()?;
    let name = request.name()?;
    let value = request
        .body
        .get(..asked.size as usize)
        .ok_or(Errno::INVAL)?;
    let file = file(session, request.header.nodeid)?;
    check(&file, name)?;
    let expect = match asked.flags & (CREATE | REPLACE) {
        CREATE => SetXattr::Create,
        REPLACE => SetXattr::Replace,
        _ => SetXattr::Set,
    };
    file.files()
        .setxattr(file.id, name, value, expect)
        .map_err(errno)?;
    if asked.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0 {
        let mode = file.files().getattr(file.id)?.mode;
        if mode & SETGID != 0 {
            let set = SetAttr {
                mode: Some(mode & !SETGID),
                ..SetAttr::default()
            };
            file.files().setattr(file.id, &set)?;
        }
    }
    Ok(Answer::Empty)
}

pub(super) fn remove(session: &Session, mut request: Request<'_>) -> Outcome {
    let name = request.name()?;
    let file = file(session, request.header.nodeid)?;
    check(&file, name)?;
    match file.files().removexattr(file.id, name) {
        // Removing an ACL that is not there succeeds: the mode is all there is.
        Err(error) if error.kind() == ErrorKind::NotFound && ACLS.contains(&name) => {
            Ok(Answer::Empty)
        }
        done => done.map(|()| Answer::Empty).map_err(errno),
    }
}
