//! Listing directories.

use zerocopy::IntoBytes;
use zpl::{DirEntry, FIRST_ENTRY, FileType};

use super::names::told;
use super::{Answer, Errno, File, Outcome, Request, control};
use crate::abi::{Dirent, EntryOut, OpenOut, ReadIn};
use crate::nodes::Node;
use crate::session::Session;

/// The offset behind `.zfs`, which comes before all that is in the root directory.
const AFTER_CONTROL: u64 = FIRST_ENTRY + 1;
/// `DT_DIR`.
const DIRECTORY: u32 = 4;

/// An answer that is being filled.
struct Page {
    bytes: Vec<u8>,
    size: usize,
    with_attributes: bool,
}

impl Page {
    /// Whether an entry with a name of `len` bytes fits.
    fn has_room(&self, len: usize) -> bool {
        let head = if self.with_attributes {
            size_of::<EntryOut>()
        } else {
            0
        };
        let entry = head + (size_of::<Dirent>() + len).next_multiple_of(8);
        self.bytes.len() + entry <= self.size
    }

    /// `known`: what the kernel is told of the file besides.
    fn add(&mut self, known: &EntryOut, ino: u64, kind: u32, name: &[u8], off: u64) {
        if self.with_attributes {
            self.bytes.extend_from_slice(known.as_bytes());
        }
        let entry = Dirent {
            ino,
            off,
            namelen: name.len() as u32,
            kind,
        };
        self.bytes.extend_from_slice(entry.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }
}

pub(super) fn opendir(session: &Session, request: &Request<'_>) -> Outcome {
    session.nodes.find(request.header.nodeid)?;
    Ok(Answer::of(&OpenOut::default()))
}

pub(super) fn readdir(session: &Session, mut request: Request<'_>, plus: bool) -> Outcome {
    let asked: ReadIn = request.take()?;
    let mut page = Page {
        bytes: Vec::with_capacity(asked.size as usize),
        size: asked.size as usize,
        with_attributes: plus,
    };
    match session.nodes.find(request.header.nodeid)? {
        Node::File(volume, id) => {
            let directory = File { volume, id };
            list(session, &directory, asked.offset, &mut page)?;
        }
        node => list_control(session, &node, asked.offset, &mut page)?,
    }
    Ok(Answer::Bytes(page.bytes.into()))
}

fn list(session: &Session, directory: &File, offset: u64, page: &mut Page) -> Result<(), Errno> {
    let File { volume, id } = directory;
    let is_root = volume.is_live() && *id == volume.files().root();
    let shown = control::shown(session).filter(|_| is_root);
    let mut offset = offset;
    if offset < FIRST_ENTRY {
        let mut is_full = false;
        volume.files().readdir(*id, offset, |entry| {
            is_full = offset >= FIRST_ENTRY || !put(directory, entry, page);
            if !is_full {
                offset = entry.next_offset;
            }
            !is_full && offset < FIRST_ENTRY
        })?;
        if offset < FIRST_ENTRY {
            return Ok(());
        }
    }
    if let (FIRST_ENTRY, Some(name)) = (offset, shown) {
        if !page.has_room(name.len()) {
            return Ok(());
        }
        let entry = EntryOut::default();
        page.add(&entry, Node::CONTROL_ID, DIRECTORY, name, AFTER_CONTROL);
        offset = AFTER_CONTROL;
    }
    let offset = if offset == AFTER_CONTROL {
        FIRST_ENTRY
    } else {
        offset
    };
    volume
        .files()
        .readdir(*id, offset, |entry| put(directory, entry, page))?;
    Ok(())
}

/// Whether an entry had room.
fn put(directory: &File, entry: &DirEntry, page: &mut Page) -> bool {
    if !page.has_room(entry.name.len()) {
        return false;
    }
    let volume = &directory.volume;
    let is_dots = matches!(&entry.name[..], b"." | b"..");
    let mut known = EntryOut::default();
    if page.with_attributes && !is_dots {
        // An entry that is gone by now, or cannot be read, is shown by name alone: who looks it up learns why.
        let attr = volume.files().getattr(entry.id);
        known = attr
            .and_then(|attr| told(volume, &attr))
            .unwrap_or_default();
    }
    let kind = entry.file_type.map_or(0, FileType::mode) >> 12;
    let ino = volume.inode_number(entry.id);
    page.add(&known, ino, kind, &entry.name, entry.next_offset);
    true
}

fn list_control(session: &Session, node: &Node, offset: u64, page: &mut Page) -> Result<(), Errno> {
    let live = session.nodes.live();
    let (own, parent) = match node {
        Node::Snapshots => (Node::SNAPSHOTS_ID, Node::CONTROL_ID),
        _ => (Node::CONTROL_ID, live.inode_number(live.files().root())),
    };
    let dots = [(own, b".".to_vec()), (parent, b"..".to_vec())];
    let children = control::children(session, node)?;
    let all = dots.into_iter().chain(children).zip(1..);
    let from = usize::try_from(offset).unwrap_or(usize::MAX);
    for ((ino, name), next) in all.skip(from) {
        if !page.has_room(name.len()) {
            break;
        }
        page.add(&EntryOut::default(), ino, DIRECTORY, &name, next);
    }
    Ok(())
}
