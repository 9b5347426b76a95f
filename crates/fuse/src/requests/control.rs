//! `.zfs` and `.zfs/snapshot`, which are not in the data set.
//!
//! # Source
//! OpenZFS `module/os/linux/zfs/zfs_ctldir.c`.

use super::{Answer, Errno, Outcome, VALID_SECS, attributes, names};
use crate::abi::{AttrOfFile, EntryOut};
use crate::nodes::Node;
use crate::session::Session;

/// What `.zfs` has in it.
pub(super) const SNAPSHOTS_NAME: &[u8] = b"snapshot";
/// `S_IFDIR`, and who may enter: all.
const MODE: u32 = 0o040_555;

/// Attributes of `.zfs` or `snapshot`: the times are those of the root directory.
pub(super) fn attr(session: &Session, node: &Node) -> Result<AttrOfFile, Errno> {
    let live = session.nodes.live();
    let root = live.files().getattr(live.files().root())?;
    let (ino, links, size) = match node {
        Node::Snapshots => {
            let count = session.nodes.snapshot_names()?.len() as u64;
            (Node::SNAPSHOTS_ID, count + 2, count + 2)
        }
        _ => (Node::CONTROL_ID, 3, 3),
    };
    let plain = attributes::attr_of_file(live, &root);
    Ok(AttrOfFile {
        ino,
        size,
        blocks: 0,
        mode: MODE,
        nlink: u32::try_from(links).unwrap_or(u32::MAX),
        uid: 0,
        gid: 0,
        ..plain
    })
}

fn entry(session: &Session, node: &Node) -> Outcome {
    let attr = attr(session, node)?;
    Ok(Answer::of(&EntryOut {
        nodeid: attr.ino,
        entry_valid: VALID_SECS,
        // Snapshots come and go.
        attr_valid: 0,
        attr,
        ..EntryOut::default()
    }))
}

/// Looks `.zfs` up.
pub(super) fn lookup_root(session: &Session) -> Outcome {
    entry(session, &Node::Control)
}

/// Looks a name up in `.zfs` or `snapshot`.
pub(super) fn lookup(session: &Session, directory: &Node, name: &[u8]) -> Outcome {
    match directory {
        Node::Control if name == SNAPSHOTS_NAME => entry(session, &Node::Snapshots),
        Node::Snapshots => {
            let (volume, attr) = session.nodes.enter(name)?;
            Ok(Answer::of(&EntryOut {
                // A snapshot may be renamed or destroyed.
                entry_valid: 1,
                ..attributes::entry(&volume, &attr)
            }))
        }
        _ => Err(Errno::NOENT),
    }
}

/// The name of the volume that a directory is in, for those that are not the data set.
pub(super) fn children(session: &Session, directory: &Node) -> Result<Vec<(u64, Vec<u8>)>, Errno> {
    if let Node::Snapshots = directory {
        let names = session.nodes.snapshot_names()?;
        // A snapshot has its number once it is open.
        return Ok(names
            .into_iter()
            .map(|name| (Node::SNAPSHOTS_ID, name.into_bytes()))
            .collect());
    }
    Ok(vec![(Node::SNAPSHOTS_ID, SNAPSHOTS_NAME.to_vec())])
}

/// The name of `.zfs`, if the root directory shows it.
pub(super) fn shown(session: &Session) -> Option<&'static [u8]> {
    session.shows_snapdir().then_some(names::CONTROL_NAME)
}
