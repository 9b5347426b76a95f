//! Operations on the files of one file system.

use std::sync::Arc;

use base::{ErrorKind, ObjectId, Txg};
use faulty::PowerSupply;
use spa::Spa;
use zil::SyncMode;
use zpl::Filesystem;

use super::bench::Bench;
use super::script::Mistake;
use super::step::{Kind, Step};
use crate::Dice;
use crate::memfs::MemFs;
use crate::pair::{Pair, Terms};

/// The most files that are kept in one file system.
pub(super) const FILES_MAX: usize = 60;

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
];

/// An operation that was done.
pub(super) struct Done {
    pub(super) begun: u64,
    pub(super) ended: u64,
    pub(super) txg: Txg,
    pub(super) model: MemFs,
    pub(super) fsynced: Option<ObjectId>,
    pub(super) refused: Option<ErrorKind>,
    /// The model as if the refused operation had worked.
    pub(super) attempted: Option<MemFs>,
    /// With `sync=always`.
    pub(super) is_always: bool,
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
