//! What each request does.

mod attributes;
mod content;
mod control;
mod extended;
mod flags;
mod listing;
mod names;

use std::sync::Arc;

use base::{Error, ObjectId};
use dmu::Content;
use smallvec::SmallVec;
use zerocopy::FromBytes;
use zpl::Filesystem;

use crate::abi::{BatchForgetIn, ForgetIn, ForgetOne, InHeader, ReadIn, op};
use crate::nodes::{Node, Volume};
use crate::session::Session;

/// How long the kernel keeps names and attributes without asking, in seconds. It is told of changes; the limit is for
/// those that happen while an answer is in flight.
const VALID_SECS: u64 = 10;

/// Bytes of a request, or of its answer, from which on copying them pays a processor of its own.
pub(crate) const LARGE_BYTES: u32 = 64 << 10;

/// A number of errno(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) const PERM: Errno = Errno(1);
    pub(crate) const NOENT: Errno = Errno(2);
    pub(crate) const IO: Errno = Errno(5);
    pub(crate) const NXIO: Errno = Errno(6);
    pub(crate) const EXIST: Errno = Errno(17);
    pub(crate) const INVAL: Errno = Errno(22);
    pub(crate) const NOTTY: Errno = Errno(25);
    pub(crate) const NOSPC: Errno = Errno(28);
    pub(crate) const ROFS: Errno = Errno(30);
    pub(crate) const RANGE: Errno = Errno(34);
    pub(crate) const NOSYS: Errno = Errno(38);
    pub(crate) const NODATA: Errno = Errno(61);
    pub(crate) const OPNOTSUPP: Errno = Errno(95);
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        Errno(error.kind().errno())
    }
}

/// The bytes of an answer; those of most need no memory of their own.
pub(crate) type Bytes = SmallVec<[u8; 192]>;

/// What a request is answered with.
pub(crate) enum Answer {
    /// Nothing is sent.
    None,
    Empty,
    Bytes(Bytes),
    /// Content of a file, in place in memory.
    Contents(Vec<Content>),
}

impl Answer {
    pub(crate) fn of(value: &(impl zerocopy::IntoBytes + zerocopy::Immutable)) -> Answer {
        Answer::Bytes(Bytes::from_slice(value.as_bytes()))
    }
}

type Outcome = std::result::Result<Answer, Errno>;

/// A request, with what of its words was not taken yet.
pub(crate) struct Request<'a> {
    pub(crate) header: InHeader,
    /// The structure that it begins with, where that lies elsewhere than the rest; there may be more behind it.
    head: Option<&'a [u8]>,
    body: &'a [u8],
}

impl<'a> Request<'a> {
    pub(crate) fn new(header: InHeader, body: &'a [u8]) -> Request<'a> {
        let extra = usize::from(header.total_extlen) * 8;
        let body = &body[..body.len().saturating_sub(extra)];
        Request {
            header,
            head: None,
            body,
        }
    }

    /// A request whose first structure, if it has one, is in `head`.
    pub(crate) fn in_parts(header: InHeader, head: &'a [u8], body: &'a [u8]) -> Request<'a> {
        Request {
            head: Some(head),
            ..Request::new(header, body)
        }
    }

    /// Whether it moves many bytes, or waits for disks.
    pub(crate) fn is_long(&self) -> bool {
        let waits = [op::FSYNC, op::FSYNCDIR, op::COPY_FILE_RANGE, op::FALLOCATE];
        let read_bytes = read_bytes(&self.header, self.head.unwrap_or(self.body));
        waits.contains(&self.header.opcode) || read_bytes.max(self.header.len) > LARGE_BYTES
    }

    /// The next structure.
    fn take<T: FromBytes>(&mut self) -> Result<T, Errno> {
        let from = self.head.unwrap_or(self.body);
        let (value, rest) = T::read_from_prefix(from).map_err(|_| Errno::INVAL)?;
        if self.head.take().is_none() {
            self.body = rest;
        }
        Ok(value)
    }

    /// The next name, up to its NUL.
    fn name(&mut self) -> Result<&'a [u8], Errno> {
        let len = self.body.iter().position(|byte| *byte == 0);
        let len = len.ok_or(Errno::INVAL)?;
        let (name, rest) = self.body.split_at(len);
        self.body = &rest[1..];
        Ok(name)
    }
}

/// How many bytes a request asks for at once, if it reads.
pub(crate) fn read_bytes(header: &InHeader, body: &[u8]) -> u32 {
    match header.opcode {
        op::READ => ReadIn::read_from_prefix(body).map_or(0, |(asked, _)| asked.size),
        _ => 0,
    }
}

/// Does what a request asks for.
pub(crate) fn dispatch(session: &Session, request: Request<'_>) -> Outcome {
    match request.header.opcode {
        op::FORGET | op::BATCH_FORGET => forget(session, request),
        op::DESTROY => Ok(Answer::Empty),
        op::LOOKUP => names::lookup(session, request),
        op::GETATTR => attributes::getattr(session, &request),
        op::STATX => attributes::statx(session, &request),
        op::SETATTR => attributes::setattr(session, request),
        op::STATFS => attributes::statfs(session, &request),
        op::READLINK => names::readlink(session, &request),
        op::SYMLINK => names::symlink(session, request),
        op::MKNOD => names::mknod(session, request),
        op::MKDIR => names::mkdir(session, request),
        op::CREATE => names::create(session, request),
        op::TMPFILE => names::tmpfile(session, request),
        op::UNLINK => names::unlink(session, request),
        op::RMDIR => names::rmdir(session, request),
        op::RENAME | op::RENAME2 => names::rename(session, request),
        op::LINK => names::link(session, request),
        op::OPEN => content::open(session, request),
        op::READ => content::read(session, request),
        op::WRITE => content::write(session, request),
        op::FSYNC | op::FSYNCDIR => content::fsync(session, &request),
        op::FALLOCATE => content::fallocate(session, request),
        op::LSEEK => content::lseek(session, request),
        op::COPY_FILE_RANGE => content::copy_file_range(session, request),
        op::OPENDIR => listing::opendir(session, &request),
        op::READDIR => listing::readdir(session, request, false),
        op::READDIRPLUS => listing::readdir(session, request, true),
        op::RELEASE => content::release(session, request),
        op::RELEASEDIR => Ok(Answer::Empty),
        op::GETXATTR => extended::get(session, request),
        op::LISTXATTR => extended::list(session, request),
        op::SETXATTR => extended::set(session, request),
        op::REMOVEXATTR => extended::remove(session, request),
        op::IOCTL => flags::ioctl(session, request),
        // The kernel does not ask again, and does it itself (locks, interrupts) or leaves it.
        _ => Err(Errno::NOSYS),
    }
}

fn forget(session: &Session, mut request: Request<'_>) -> Outcome {
    if request.header.opcode == op::FORGET {
        let count = request.take::<ForgetIn>()?.nlookup;
        session.nodes.forget(request.header.nodeid, count);
        return Ok(Answer::None);
    }
    for _ in 0..request.take::<BatchForgetIn>()?.count {
        let one: ForgetOne = request.take()?;
        session.nodes.forget(one.nodeid, one.nlookup);
    }
    Ok(Answer::None)
}

/// A file that a request is about.
struct File {
    volume: Arc<Volume>,
    id: ObjectId,
}

impl File {
    fn files(&self) -> &Filesystem {
        self.volume.files()
    }
}

/// The file with a number of the kernel; `.zfs` is none.
fn file(session: &Session, node: u64) -> Result<File, Errno> {
    match session.nodes.find(node)? {
        Node::File(volume, id) => Ok(File { volume, id }),
        Node::Control | Node::Snapshots => Err(Errno::PERM),
    }
}
