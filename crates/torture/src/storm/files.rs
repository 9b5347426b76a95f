//! Operations on the files of one file system.

use std::sync::Arc;

use base::{ErrorKind, ObjectId, Txg};
use faulty::PowerSupply;
use spa::Spa;
use zil::SyncMode;
use zpl::{FileOffset, Filesystem};

use super::bench::Bench;
use super::script::Mistake;
use super::step::{Kind, Step};
use crate::Dice;
use crate::memfs::MemFs;
use crate::pair::{Pair, Terms};

/// The most files that are kept in one file system.
const FILES_MAX: usize = 60;

/// Errors with which random operations may fail, having changed nothing.
pub(super) const TOLERATED: &[ErrorKind] = &[ErrorKind::NoSpace, ErrorKind::Quota];
/// The same in a pool that is abandoned while suspended: operations that wait for a device fail as well.
pub(super) const TOLERATED_WHEN_GIVEN_UP: &[ErrorKind] = &[
    ErrorKind::NoSpace,
    ErrorKind::Quota,
    ErrorKind::Suspended,
    ErrorKind::Io,
];

pub(super) const KINDS: &[Kind] = &[
    // Random operations on the files of one file system.
    Kind::new("files", 300, Bench::files),
    // A part of a file becomes a clone of a part of another one.
    Kind::new("reflink", 40, Bench::reflink),
];

/// Blocks of files that are cloned begin and end at multiples of this.
const RECORD_BYTES: u64 = 4096;

/// An operation that was done.
pub(super) struct Done {
    begun: u64,
    ended: u64,
    txg: Txg,
    model: MemFs,
    fsynced: Option<ObjectId>,
    refused: Option<ErrorKind>,
    /// The model as if the refused operation had worked.
    attempted: Option<MemFs>,
    /// With `sync=always`.
    is_always: bool,
}

/// A file system to run operations on, perhaps in another thread.
pub(super) struct Work {
    fs: Arc<Filesystem>,
    model: MemFs,
    spa: Arc<Spa>,
    supply: Arc<PowerSupply>,
    dice: Dice,
    tolerated: &'static [ErrorKind],
}

impl Work {
    /// Runs this many operations, or until one is refused because the pool is suspended.
    pub(super) fn run(mut self, operations: u64) -> Vec<Done> {
        let mut done = Vec::new();
        let mut terms = Terms {
            files_max: FILES_MAX,
            tolerated: self.tolerated,
            ..Terms::default()
        };
        for _ in 0..operations {
            let begun = self.supply.commands();
            let mut pair = Pair {
                fs: &self.fs,
                model: &mut self.model,
                dice: &mut self.dice,
                terms: &mut terms,
            };
            pair.step();
            let refused = terms.refused;
            done.push(Done {
                begun,
                ended: self.supply.commands(),
                txg: self.spa.parts().groups().open_txg(),
                model: self.model.clone(),
                fsynced: terms.fsynced,
                refused,
                attempted: terms.attempted.take(),
                is_always: self.fs.settings().sync == SyncMode::Always,
            });
            if refused.is_some_and(is_given_up) {
                break;
            }
        }
        done
    }
}

fn is_given_up(refused: ErrorKind) -> bool {
    !TOLERATED.contains(&refused)
}

impl Bench {
    /// Random operations on the files of one file system.
    fn files(&mut self, step: &Step) -> bool {
        let Some(head) = self.head(step.pick) else {
            return false;
        };
        let done = self.work(&head, step.seed, TOLERATED).run(step.amount);
        self.take(&head, done);
        if self.mistake == Some(Mistake::WrongByte) && step.seed.is_multiple_of(8) {
            self.tell_wrong(&head);
        }
        true
    }

    /// Clones blocks of one file to another, perhaps of another file system.
    fn reflink(&mut self, step: &Step) -> bool {
        let mut dice = Dice::new(step.seed);
        let (Some(from_head), Some(to_head)) = (self.head(dice.below(60)), self.head(step.pick))
        else {
            return false;
        };
        let (Some(from), Some(to)) = (
            self.any_file(&from_head, &mut dice),
            self.any_file(&to_head, &mut dice),
        ) else {
            return false;
        };
        let source = self.world.heads[&from_head].fs.file(from).data.clone();
        let mut model = self.world.heads[&to_head].fs.clone();
        let at =
            |len: usize, dice: &mut Dice| dice.below(len as u64 / RECORD_BYTES + 1) * RECORD_BYTES;
        let (whole, offset) = (dice.once_in(2), at(source.len(), &mut dice));
        let target = at(model.file(to).data.len(), &mut dice);
        let (offset, target) = if whole { (0, 0) } else { (offset, target) };
        let len = if whole {
            u64::MAX >> 1
        } else {
            step.amount * RECORD_BYTES
        };

        let (begun, supply) = (self.disks.commands(), self.disks.supply());
        let session = self.session();
        let theirs = Arc::clone(session.mount(&from_head));
        let fs = Arc::clone(session.mount(&to_head));
        let place = FileOffset {
            fs: &theirs,
            id: from,
            offset,
        };
        let cloned = fs.clone_range(to, target, place, len);
        let is_done = match &cloned {
            Ok(()) => true,
            // Blocks of two sizes, the same file, an end in the midst of a block, other checksums.
            Err(e) if e.kind() == ErrorKind::Unsupported || TOLERATED.contains(&e.kind()) => false,
            Err(e) => panic!("{to_head}: reflink: {e}"),
        };
        let new = &source[(offset as usize).min(source.len())..];
        let new = &new[..new.len().min(usize::try_from(len).unwrap_or(usize::MAX))];
        let data = &mut model.file_mut(to).data;
        *data = match is_done {
            true => overwritten(data, target as usize, new, new.len()),
            false => cloned_in_part(&fs, to, data, target as usize, new),
        };
        let done = Done {
            begun,
            ended: supply.commands(),
            txg: self.spa().parts().groups().open_txg(),
            model,
            fsynced: None,
            refused: None,
            attempted: None,
            is_always: fs.settings().sync == SyncMode::Always,
        };
        self.take(&to_head, vec![done]);
        is_done
    }

    fn any_file(&self, head: &str, dice: &mut Dice) -> Option<ObjectId> {
        let files = self.world.heads[head].fs.files();
        let files: Vec<ObjectId> = files
            .filter(|(_, file)| file.is_regular() && !file.data.is_empty())
            .map(|(id, _)| id)
            .collect();
        dice.pick(&files).copied()
    }

    /// What a thread needs to run operations on a file system.
    pub(super) fn work(&mut self, head: &str, seed: u64, tolerated: &'static [ErrorKind]) -> Work {
        let supply = self.disks.supply();
        let (world, session) = self.both();
        Work {
            fs: Arc::clone(session.mount(head)),
            model: world.heads[head].fs.clone(),
            spa: Arc::clone(&session.spa),
            supply,
            dice: Dice::new(seed),
            tolerated,
        }
    }

    /// Adds the operations done on a file system to the model and the past.
    pub(super) fn take(&mut self, head: &str, done: Vec<Done>) {
        for done in done {
            // Before the push: the new state is what an unfinished fsync may have begun to log.
            let is_refused = done.refused.is_some_and(is_given_up);
            if done.fsynced.is_some() || done.is_always || is_refused {
                self.past.log((done.begun, done.ended), head, done.fsynced);
            }
            if let Some(attempted) = done.attempted.filter(|_| is_refused) {
                self.head_mut(head).fs = attempted;
                self.past.push(done.begun, done.txg, self.world.clone());
            }
            self.head_mut(head).fs = done.model;
            self.past.push(done.begun, done.txg, self.world.clone());
            if done.is_always && done.refused.is_none() {
                self.past.all_is_logged(done.ended, head);
            }
        }
    }

    pub(super) fn head_mut(&mut self, head: &str) -> &mut crate::filesystems::Head {
        let head = self.world.heads.get_mut(head);
        head.expect("nobody destroyed it meanwhile")
    }

    /// The mistake [`Mistake::WrongByte`]: changes a byte in the model only.
    fn tell_wrong(&mut self, head: &str) {
        let fs = &mut self.head_mut(head).fs;
        let mut files = fs.files();
        let found = files.find(|(_, file)| file.is_regular() && !file.data.is_empty());
        if let Some(id) = found.map(|(id, _)| id) {
            drop(files);
            fs.file_mut(id).data[0] ^= 1;
        }
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
