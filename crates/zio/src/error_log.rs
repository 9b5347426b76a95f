//! Blocks that could not be read since the pool was opened.
//!
//! # Source
//! OpenZFS `module/zfs/spa_errlog.c` (`spa_log_error`).

use std::collections::BTreeSet;

use base::{Error, ErrorKind};
use rt::Mutex;

use crate::Bookmark;

/// Blocks that are remembered; a pool with more damage than this has more.
const BLOCKS_MAX: usize = 100_000;

/// What reading met.
#[derive(Default)]
pub(crate) struct ErrorLog(Mutex<BTreeSet<Bookmark>>);

impl ErrorLog {
    /// Remembers a block, if the error means that its data is lost.
    pub(crate) fn note(&self, bookmark: &Bookmark, error: &Error) {
        let is_loss = matches!(
            error.kind(),
            ErrorKind::Checksum | ErrorKind::Io | ErrorKind::Corrupt
        );
        let mut blocks = self.0.lock();
        if is_loss && blocks.len() < BLOCKS_MAX {
            blocks.insert(*bookmark);
        }
    }

    /// What is remembered, which is then forgotten.
    pub(crate) fn take(&self) -> BTreeSet<Bookmark> {
        std::mem::take(&mut *self.0.lock())
    }
}
