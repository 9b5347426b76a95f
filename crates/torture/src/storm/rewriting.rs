//! Blocks of files are written once more: nothing changes that a program could see.

use std::sync::Arc;

use base::ErrorKind;

use super::bench::Bench;
use super::files::TOLERATED;
use super::step::{Kind, Step};
use crate::Dice;

/// The longest part of a file that is rewritten alone, in bytes.
const PART_BYTES_MAX: u64 = 100_000;

pub(super) const KINDS: &[Kind] = &[
    // A file is rewritten, or a part of it; its blocks keep their births, or are new.
    Kind::new("rewrite", 20, Bench::rewrite),
];

impl Bench {
    fn rewrite(&mut self, step: &Step) -> bool {
        let mut dice = Dice::new(step.seed);
        let Some(head) = self.head(step.pick) else {
            return false;
        };
        let Some(file) = self.any_file(&head, &mut dice) else {
            return false;
        };
        let size = self.world.heads[&head].fs.file(file).data.len() as u64;
        let (offset, len) = match dice.once_in(2) {
            true => (0, 0),
            false => (dice.below(size), 1 + dice.below(PART_BYTES_MAX)),
        };
        let keeps_birth = dice.once_in(2);
        let fs = Arc::clone(self.session().mount(&head));
        match fs.rewrite(file, offset, len, keeps_birth) {
            Ok(()) => true,
            Err(e) if TOLERATED.contains(&e.kind()) => false,
            // Without the feature that births may be kept by.
            Err(e) if keeps_birth && e.kind() == ErrorKind::Unsupported => false,
            Err(e) => panic!("{head}: rewrite of file {file}: {e}"),
        }
    }
}
