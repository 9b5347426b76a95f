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
        for (bookmark, birth) in met {
            if blocks.len() < BLOCKS_MAX || blocks.contains_key(&bookmark) {
                blocks.insert(bookmark, birth);
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use base::BlkId;

    #[test]
    fn a_full_list_still_takes_news_of_its_blocks() {
        let log = ErrorLog::default();
        let at = |blkid: usize| Bookmark {
            blkid: BlkId(blkid as u64),
            ..Bookmark::default()
        };
        log.add((0..BLOCKS_MAX).map(|blkid| (at(blkid), Txg(1))));
        log.add([(at(BLOCKS_MAX), Txg(1)), (at(7), Txg(2))]);
        let blocks = log.blocks();
        assert_eq!(blocks.len(), BLOCKS_MAX);
        assert_eq!(blocks.get(&at(7)), Some(&Txg(2)));
    }
}
