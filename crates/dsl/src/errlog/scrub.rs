//! Going through the last error log, to read its blocks again.
//!
//! # Source
//! OpenZFS `module/zfs/dsl_scan.c` (`dsl_errorscrub_sync`, `scrub_filesystem`, `read_by_block_level`).

use std::collections::BTreeSet;

use base::{ErrorKind, ObjectId, Result, Txg};
use phys::BlkPtrPhys;
use phys::pool_names::ERRLOG_LAST;
use zap::Zap;
use zio::Bookmark;

use super::Entry;
use super::read::{block_in, block_of};
use crate::DslPool;

/// A position in the last log of a pool with `head_errlog`, as serialized ZAP cursors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorCursor {
    /// Among the heads.
    pub head: u64,
    /// Among the blocks of that head.
    pub within: u64,
}

/// An entry of the last log.
#[derive(Clone, Debug)]
pub struct LoggedError {
    /// The blocks that it means now; none if they are gone.
    pub blocks: Vec<LoggedBlock>,
    /// The position after it.
    pub next: ErrorCursor,
}

/// A block that is in the log.
#[derive(Clone, Debug)]
pub struct LoggedBlock {
    /// Where it is in one of the datasets that have it.
    pub at: Bookmark,
    /// When it was born; 0 if that is not known.
    pub birth: Txg,
    /// The block; `None` if what leads to it cannot be read.
    pub bp: Option<BlkPtrPhys>,
}

impl DslPool {
    /// The number of entries in the last log.
    ///
    /// # Errors
    /// Any error from reading the MOS.
    #[doc(alias = "approx_errlog_size_impl")]
    pub fn count_logged(&self) -> Result<u64> {
        let Some(log) = self.error_log(ERRLOG_LAST)? else {
            return Ok(0);
        };
        let mut count = 0;
        for (_, errors) in self.mos().zap_int_entries(log)? {
            count += zap::count(self.mos().objset(), ObjectId(errors))?;
        }
        Ok(count)
    }

    /// The next entry of the last log; `None` behind the last one. In syncing context.
    ///
    /// # Errors
    /// Any error from reading the log; not those from reading the datasets.
    pub fn next_logged(&self, at: ErrorCursor) -> Result<Option<LoggedError>> {
        let Some(log) = self.error_log(ERRLOG_LAST)? else {
            return Ok(None);
        };
        let mos = self.mos().objset();
        let mut heads = Zap::open(mos, log)?.cursor(at.head);
        while let Some(head) = heads.retrieve()? {
            // The head may be gone: then this is the next one.
            let is_same = heads.serialize() == at.head;
            let within = if is_same { at.within } else { 0 };
            let errors = Zap::open(mos, ObjectId(head.first_integer))?;
            let mut errors = errors.cursor(within);
            let Some(error) = errors.retrieve()? else {
                heads.advance();
                continue;
            };
            let head_id = ObjectId(head.int_key()?);
            let blocks = match Entry::parse(&error.name_str()) {
                Some(entry) => self.blocks_of(head_id, &entry)?,
                None => Vec::new(),
            };
            errors.advance();
            let next = ErrorCursor {
                head: heads.serialize(),
                within: errors.serialize(),
            };
            return Ok(Some(LoggedError { blocks, next }));
        }
        Ok(None)
    }

    /// The different blocks that an entry means.
    #[doc(alias = "scrub_filesystem")]
    fn blocks_of(&self, head: ObjectId, entry: &Entry) -> Result<Vec<LoggedBlock>> {
        let mut found = BTreeSet::new();
        self.affected(head, entry, &mut found)?;
        let mut blocks: Vec<LoggedBlock> = Vec::new();
        for at in found {
            let bp = match self.block_at(&at) {
                Ok(None) => continue,
                Ok(Some(bp)) => Some(bp),
                Err(error) if error.kind() == ErrorKind::Suspended => return Err(error),
                Err(_) => None,
            };
            let is_known = |known: &LoggedBlock| bp.is_some() && known.bp == bp;
            if !blocks.iter().any(is_known) {
                let birth = bp.map_or(entry.birth, |bp| bp.allocation_birth());
                blocks.push(LoggedBlock { at, birth, bp });
            }
        }
        Ok(blocks)
    }

    fn block_at(&self, at: &Bookmark) -> Result<Option<BlkPtrPhys>> {
        if at.objset.0 == 0 {
            return block_in(self.mos().objset(), at);
        }
        match self.dataset_by_object(ObjectId(at.objset.0)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            ds => block_of(&ds?, at),
        }
    }
}
