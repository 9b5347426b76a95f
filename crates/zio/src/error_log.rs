//! Blocks that could not be read and are not in the pool's error log yet.
//!
//! # Source
//! OpenZFS `module/zfs/spa_errlog.c` (`spa_log_error`).

use std::collections::BTreeMap;

use base::{Error, ErrorKind, Txg};
use rt::Mutex;

use crate::Bookmark;

/// Blocks remembered at most; damaged blocks beyond that are not recorded.
const BLOCKS_MAX: usize = 100_000;

/// Blocks that could not be read, with their birth txgs.
#[derive(Default)]
pub(crate) struct ErrorLog(Mutex<BTreeMap<Bookmark, Txg>>);

impl ErrorLog {
    /// Remembers a block, if the error means that its data is lost.
    pub(crate) fn note(&self, bookmark: &Bookmark, birth: Txg, error: &Error) {
        let is_loss = matches!(
            error.kind(),
            ErrorKind::Checksum | ErrorKind::Io | ErrorKind::Corrupt
        );
        if is_loss {
            self.add([(*bookmark, birth)]);
        }
    }

    /// Remembers blocks.
    pub(crate) fn add(&self, met: impl IntoIterator<Item = (Bookmark, Txg)>) {
        let mut blocks = self.0.lock();
        let room = BLOCKS_MAX.saturating_sub(blocks.len());
        blocks.extend(met.into_iter().take(room));
    }

    /// The remembered blocks.
    pub(crate) fn blocks(&self) -> BTreeMap<Bookmark, Txg> {
        self.0.lock().clone()
    }

    /// Returns the remembered blocks and clears the list.
    pub(crate) fn take(&self) -> BTreeMap<Bookmark, Txg> {
        std::mem::take(&mut *self.0.lock())
    }
}
