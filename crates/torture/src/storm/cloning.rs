//! Files become clones of others, in whole or in part.

use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId};
use zil::SyncMode;
use zpl::{Create, FileOffset, Filesystem};

use super::bench::Bench;
use super::files::{Done, FILES_MAX, TOLERATED};
use super::step::{Kind, Step};
use crate::Dice;
use crate::memfs::{MemFile, MemFs};

/// Blocks of files that are cloned begin and end at multiples of this.
const RECORD_BYTES: u64 = 4096;

pub(super) const KINDS: &[Kind] = &[
    // A part of a file becomes a clone of a part of another one, perhaps of another file system.
    Kind::new("reflink", 40, Bench::reflink),
];

/// What is cloned to where.
struct Plan {
    from: ObjectId,
    offset: u64,
    to: ObjectId,
    target: u64,
    len: u64,
}

impl Bench {
    fn reflink(&mut self, step: &Step) -> bool {
        let mut dice = Dice::new(step.seed);
        let (Some(from_head), Some(to_head)) = (self.head(dice.below(60)), self.head(step.pick))
        else {
            return false;
        };
        let Some(from) = self.any_file(&from_head, &mut dice) else {
            return false;
        };
        let to = match dice.once_in(4) {
            true => self.any_file(&to_head, &mut dice),
            false => self.empty_file(&to_head, &mut dice),
        };
        let Some(to) = to else { return false };
        let source = self.world.heads[&from_head].fs.file(from).data.clone();
        let there = self.world.heads[&to_head].fs.file(to).data.len();
        let at =
            |len: usize, dice: &mut Dice| dice.below(len as u64 / RECORD_BYTES + 1) * RECORD_BYTES;
        let plan = match there == 0 || dice.once_in(2) {
            true => Plan {
                from,
                offset: 0,
                to,
                target: 0,
                len: u64::MAX >> 1,
            },
            false => Plan {
                from,
                offset: at(source.len(), &mut dice),
                to,
                target: at(there, &mut dice),
                len: step.amount * RECORD_BYTES,
            },
        };
        self.clone_blocks((&from_head, &source), &to_head, &plan)
    }

    /// Clones, and notes in the model what has become of the file; returns whether all was cloned.
    fn clone_blocks(&mut self, source: (&str, &[u8]), to_head: &str, plan: &Plan) -> bool {
        let (begun, supply) = (self.disks.commands(), self.disks.supply());
        let session = self.session();
        let theirs = Arc::clone(session.mount(source.0));
        let fs = Arc::clone(session.mount(to_head));
        let place = FileOffset {
            fs: &theirs,
            id: plan.from,
            offset: plan.offset,
        };
        let cloned = fs.clone_range(plan.to, plan.target, place, plan.len);
        // Blocks of two sizes, the same file, an end in the midst of a block, other checksums.
        let is_refused =
            |e: &Error| e.kind() == ErrorKind::Unsupported || TOLERATED.contains(&e.kind());
        if let Err(e) = &cloned {
            assert!(is_refused(e), "{to_head}: reflink: {e}");
        }
        let new = &source.1[(plan.offset as usize).min(source.1.len())..];
        let new = &new[..new
            .len()
            .min(usize::try_from(plan.len).unwrap_or(usize::MAX))];
        let mut model = self.world.heads[to_head].fs.clone();
        let file = model.file_mut(plan.to);
        let at = plan.target as usize;
        file.data = match cloned.is_ok() {
            true => overwritten(&file.data, at, new, new.len()),
            false => cloned_in_part(&fs, plan.to, &file.data, at, new),
        };
        file.mtime = None;
        self.take(
            to_head,
            vec![self.done((begun, supply.commands()), &fs, model)],
        );
        cloned.is_ok()
    }

    /// An operation between these commands that was not refused.
    fn done(&self, (begun, ended): (u64, u64), fs: &Filesystem, model: MemFs) -> Done {
        Done {
            begun,
            ended,
            txg: self.spa().parts().groups().open_txg(),
            model,
            fsynced: None,
            refused: None,
            attempted: None,
            is_always: fs.settings().sync == SyncMode::Always,
        }
    }

    /// A file with something in it.
    pub(super) fn any_file(&self, head: &str, dice: &mut Dice) -> Option<ObjectId> {
        let files = self.world.heads[head].fs.files();
        let files = files.filter(|(_, file)| file.is_regular() && !file.data.is_empty());
        let files: Vec<ObjectId> = files.map(|(id, _)| id).collect();
        dice.pick(&files).copied()
    }

    /// A new file in the root; `None` if there are too many, or there is no space.
    fn empty_file(&mut self, head: &str, dice: &mut Dice) -> Option<ObjectId> {
        let name = format!("clone{}", dice.below(1 << 32));
        let (begun, supply) = (self.disks.commands(), self.disks.supply());
        let mut model = self.world.heads[head].fs.clone();
        if model.files().count() >= FILES_MAX {
            return None;
        }
        let fs = Arc::clone(self.session().mount(head));
        let create = Create {
            mode: 0o600,
            ..Create::default()
        };
        let attr = match fs.create_file(fs.root(), name.as_bytes(), &create) {
            Ok(attr) => attr,
            Err(e) if TOLERATED.contains(&e.kind()) => return None,
            Err(e) => panic!("{head}/{name}: {e}"),
        };
        let file = MemFile {
            mode: attr.mode,
            ..MemFile::default()
        };
        model.make(model.root(), name.as_bytes(), attr.id, file);
        self.take(
            head,
            vec![self.done((begun, supply.commands()), &fs, model)],
        );
        Some(attr.id)
    }
}

/// The bytes with the first `len` of `new` at an offset.
fn overwritten(old: &[u8], at: usize, new: &[u8], len: usize) -> Vec<u8> {
    let mut bytes = old.to_vec();
    if len > 0 {
        bytes.resize(bytes.len().max(at + len), 0);
        bytes[at..at + len].copy_from_slice(&new[..len]);
    }
    bytes
}

/// What a file holds after a cloning that failed: some of the first blocks may be new.
///
/// # Panics
/// When it holds something else.
fn cloned_in_part(fs: &Filesystem, id: ObjectId, old: &[u8], at: usize, new: &[u8]) -> Vec<u8> {
    let mut found = vec![0; old.len().max(at + new.len()) + 1];
    let read = fs.read(id, 0, &mut found);
    found.truncate(read.expect("it can be read"));
    let blocks = (0..=new.len()).step_by(512).chain([new.len()]);
    let mut parts = blocks.map(|len| overwritten(old, at, new, len));
    parts
        .find(|part| *part == found)
        .expect("a cloning that failed changed something else")
}
