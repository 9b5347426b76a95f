//! Checkpoints are taken, discarded, and gone back to.

use std::sync::Arc;

use base::{ErrorKind, Result};

use super::bench::Bench;
use super::step::{Kind, Step};
use crate::filesystems::{Filesystems, Session};

pub(super) const KINDS: &[Kind] = &[
    Kind::new("checkpoint", 14, |bench, _| {
        bench.ailing.is_none() && bench.change_checkpoint("checkpoint", take)
    }),
    Kind::new("discard-checkpoint", 12, |bench, _| {
        bench.change_checkpoint("discard-checkpoint", discard)
    }),
    // The pool returns to what it was when the checkpoint was taken.
    Kind::new("rewind", 8, Bench::rewind),
];

fn take(world: &mut Filesystems, session: &mut Session) -> Result<()> {
    match session.spa.take_checkpoint() {
        Ok(()) => {
            assert!(world.kept.is_none(), "there are two checkpoints");
            let mut now = world.clone();
            now.forget_holds();
            world.kept = Some(Arc::new(now));
            Ok(())
        }
        // There is one, or one is being discarded; blocks are moved.
        Err(e) if [ErrorKind::Exists, ErrorKind::Busy].contains(&e.kind()) => Ok(()),
        Err(e) => Err(e),
    }
}

fn discard(world: &mut Filesystems, session: &mut Session) -> Result<()> {
    match (session.spa.discard_checkpoint(), world.kept.take()) {
        (Ok(()), Some(_)) => Ok(()),
        (Err(e), None) if [ErrorKind::Exists, ErrorKind::NotFound].contains(&e.kind()) => Ok(()),
        (Ok(()), None) => panic!("a checkpoint was discarded that nobody took"),
        (Err(e), kept) => {
            world.kept = kept;
            Err(e)
        }
    }
}

impl Bench {
    fn change_checkpoint(
        &mut self,
        what: &str,
        change: fn(&mut Filesystems, &mut Session) -> Result<()>,
    ) -> bool {
        let was_there = self.world.kept.is_some();
        self.administer(what, change) && self.world.kept.is_some() != was_there
    }

    fn rewind(&mut self, _: &Step) -> bool {
        if self.ailing.is_some() {
            return false;
        }
        let Some(kept) = self.world.kept.clone() else {
            return false;
        };
        self.export();
        self.open_rewound();
        self.world.return_to(&kept);
        let (world, session) = self.both();
        world.compare(session);
        self.catch_up();
        self.assert_clean();
        true
    }
}
