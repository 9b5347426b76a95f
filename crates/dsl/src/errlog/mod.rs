//! The pool's error log: blocks without a good copy.
//!
//! # What it is
//! There are two logs. Errors are added to the "last" log or, while a scrub or resilver runs, to
//! that scan's. When a scan ends, its log replaces the last one, which drops errors that have been
//! repaired meanwhile.
//!
//! # On disk
//! The pool directory has both, as `errlog_last` and `errlog_scrub`, 0 if there is none. A log is a ZAP:
//! ```text
//! without head_errlog   "objset:object:level:blkid" -> ""
//! with it               "HEAD" -> ZAP of "object:level:blkid:birth" -> ""
//! ```
//! Numbers are hexadecimal, a level of -1 is 2^64 - 1. HEAD is the head of the directory whose
//! dataset had the error, so that a block shared by snapshots and clones is logged once. Which
//! other datasets have it is worked out from its birth when the log is read ([`read`]). Blocks that
//! are not in a dataset are below HEAD 0. A birth of 0 means unknown.
//!
//! # Crash argument
//! Everything here changes the MOS in syncing context: a log is as of the txg that is loaded.
//!
//! # Source
//! OpenZFS `module/zfs/spa_errlog.c` (`spa_errlog_sync`, `sync_error_list`, `spa_get_errlog`,
//! `sync_upgrade_errlog`, `spa_delete_dataset_errlog`, `spa_swap_errlog`).

mod read;
mod scrub;

use std::collections::BTreeMap;

use base::{BlkId, Error, ErrorKind, ObjectId, ObjsetId, Result, Txg};
use dmu::Tx;
use phys::ObjectType;
use phys::feature::HEAD_ERRLOG;
use phys::pool_names::{ERRLOG_LAST, ERRLOG_SCRUB};
use zap::directory;
use zio::Bookmark;

use crate::DslPool;
use read::birth_of;
pub use scrub::{ErrorCursor, LoggedBlock, LoggedError};

/// The phase of a scan, as far as the error log needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanPhase {
    /// No scan runs.
    None,
    /// A scan runs.
    Running,
    /// A scan ended in this txg.
    Ended,
}

/// A block in a log with `head_errlog`; the objset of its bookmark is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: Bookmark,
    birth: Txg,
}

/// Writing.
impl DslPool {
    /// Logs damaged blocks, each with its birth txg; when a scan has ended, first makes its log the
    /// last one.
    ///
    /// # Errors
    /// Any error from reading and writing the MOS.
    #[doc(alias = "spa_errlog_sync")]
    pub fn log_errors(
        &self,
        met: &BTreeMap<Bookmark, Txg>,
        scan: ScanPhase,
        tx: &Tx,
    ) -> Result<()> {
        if scan == ScanPhase::Ended {
            self.rotate_error_logs(tx)?;
        }
        if met.is_empty() {
            return Ok(());
        }
        let name = match scan {
            ScanPhase::Running => ERRLOG_SCRUB,
            ScanPhase::None | ScanPhase::Ended => ERRLOG_LAST,
        };
        let log = match self.error_log(name)? {
            Some(log) => log,
            None => self.new_error_log(name, tx)?,
        };
        for (at, birth) in met {
            if self.logs_by_head() {
                self.add_error(log, at, *birth, tx)?;
            } else {
                self.add_entry(log, &name_of(at), tx)?;
            }
        }
        Ok(())
    }

    /// Makes the log of the scan that has ended the last log.
    #[doc(alias = "spa_errlog_rotate")]
    fn rotate_error_logs(&self, tx: &Tx) -> Result<()> {
        let (last, scrub) = (self.error_log(ERRLOG_LAST)?, self.error_log(ERRLOG_SCRUB)?);
        if last.is_none() && scrub.is_none() {
            return Ok(());
        }
        let mos = self.mos().objset();
        directory::set(mos, ERRLOG_LAST, scrub.map_or(0, |log| log.0), tx)?;
        directory::set(mos, ERRLOG_SCRUB, 0, tx)?;
        match last.map_or(Ok(()), |last| self.destroy_error_log(last, tx)) {
            Err(error) if error.kind() == ErrorKind::Suspended => Err(error),
            // Parts of it that cannot be read are leaked.
            _ => Ok(()),
        }
    }

    /// Puts what a scrub of the log has found, before it was cancelled, back into the last log: what it has not come to
    /// is as damaged as before.
    ///
    /// # Errors
    /// Any error from reading and writing the MOS.
    pub fn rejoin_error_logs(&self, tx: &Tx) -> Result<()> {
        let Some(scrub) = self.error_log(ERRLOG_SCRUB)? else {
            return Ok(());
        };
        let last = match self.error_log(ERRLOG_LAST)? {
            Some(last) => last,
            None => self.new_error_log(ERRLOG_LAST, tx)?,
        };
        for (head, errors) in self.mos().zap_int_entries(scrub)? {
            let below = self.errors_below(last, ObjectId(head), tx)?;
            for name in self.names_in(ObjectId(errors))? {
                self.add_entry(below, &name, tx)?;
            }
        }
        directory::set(self.mos().objset(), ERRLOG_SCRUB, 0, tx)?;
        self.destroy_error_log(scrub, tx)
    }

    #[doc(alias = "delete_errlog")]
    fn destroy_error_log(&self, log: ObjectId, tx: &Tx) -> Result<()> {
        if self.logs_by_head() {
            for (_, errors) in self.mos().zap_entries(log)? {
                self.free_error_zap(ObjectId(errors), tx)?;
            }
        }
        self.free_error_zap(log, tx)
    }

    /// Frees a ZAP of the error log, after checking that it is one: a damaged pool may name any
    /// object.
    fn free_error_zap(&self, object: ObjectId, tx: &Tx) -> Result<()> {
        if self.mos().hold(object)?.type_() != ObjectType::ERROR_LOG {
            let text = format!("object {object} is not part of an error log");
            return Err(Error::corrupt(text));
        }
        self.mos().zap_destroy(object, tx)
    }

    fn new_error_log(&self, name: &str, tx: &Tx) -> Result<ObjectId> {
        let log = self.mos().zap_create(ObjectType::ERROR_LOG, tx)?;
        directory::set(self.mos().objset(), name, log.0, tx)?;
        Ok(log)
    }

    /// Logs a block below its head. A dataset that no longer exists is used as its own head.
    fn add_error(&self, log: ObjectId, at: &Bookmark, birth: Txg, tx: &Tx) -> Result<()> {
        let dataset = ObjectId(at.objset.0);
        let head = self.head_of_dataset(dataset).unwrap_or(dataset);
        let errors = self.errors_below(log, head, tx)?;
        self.add_entry(errors, &Entry { at: *at, birth }.name(), tx)
    }

    fn add_entry(&self, log: ObjectId, name: &str, tx: &Tx) -> Result<()> {
        zap::update(self.mos().objset(), tx, log, name, b"\0")
    }

    /// The ZAP of a head's damaged blocks, created when first needed.
    fn errors_below(&self, log: ObjectId, head: ObjectId, tx: &Tx) -> Result<ObjectId> {
        let mos = self.mos();
        if let Some(errors) = mos.zap_get(log, &key(head))? {
            return Ok(ObjectId(errors));
        }
        let errors = mos.zap_create(ObjectType::ERROR_LOG, tx)?;
        mos.zap_add(log, &key(head), errors.0, tx)?;
        Ok(errors)
    }

    /// `get_head_ds`
    fn head_of_dataset(&self, dataset: ObjectId) -> Result<ObjectId> {
        let ds = self.dataset_by_object(dataset)?;
        Ok(ObjectId(ds.dir().fields().head_dataset_obj))
    }

    /// Rewrites the logs of a pool in the format of `head_errlog`. Entries whose blocks no longer
    /// exist are dropped.
    ///
    /// # Errors
    /// Any error from reading and writing the MOS.
    #[doc(alias = "spa_upgrade_errlog")]
    pub fn upgrade_error_logs(&self, tx: &Tx) -> Result<()> {
        for name in [ERRLOG_LAST, ERRLOG_SCRUB] {
            let Some(old) = self.error_log(name)? else {
                continue;
            };
            let new = self.new_error_log(name, tx)?;
            for entry in zap::iter(self.mos().objset(), old)? {
                let Some(at) = parse(&entry?.name_str()) else {
                    continue;
                };
                if let Some(birth) = self.birth_now(&at) {
                    self.add_error(new, &at, birth, tx)?;
                }
            }
            self.free_error_zap(old, tx)?;
        }
        Ok(())
    }

    /// The birth txg of a block from a log without births; `None` if it is gone, 0 if unknown.
    fn birth_now(&self, at: &Bookmark) -> Option<Txg> {
        if at.objset.0 == 0 {
            return Some(Txg(0));
        }
        let ds = self.dataset_by_object(ObjectId(at.objset.0)).ok()?;
        // If it cannot be determined, the block stays in the log.
        birth_of(&ds, at).unwrap_or(Some(Txg(0)))
    }

    /// Drops the entries of a head that is being destroyed.
    #[doc(alias = "spa_delete_dataset_errlog")]
    pub(crate) fn forget_errors(&self, head: ObjectId, tx: &Tx) -> Result<()> {
        let mos = self.mos();
        for log in self.logs_of_heads()? {
            let key = key(head);
            if let Some(errors) = mos.zap_get(log, &key)? {
                mos.zap_remove(log, &key, tx)?;
                self.free_error_zap(ObjectId(errors), tx)?;
            }
        }
        Ok(())
    }

    /// Moves the entries of blocks older than the branch point to the promoted clone, which now
    /// owns them.
    #[doc(alias = "spa_swap_errlog")]
    pub(crate) fn move_errors(
        &self,
        from: ObjectId,
        to: ObjectId,
        branch_txg: Txg,
        tx: &Tx,
    ) -> Result<()> {
        let mos = self.mos();
        for log in self.logs_of_heads()? {
            let Some(old) = mos.zap_get(log, &key(from))?.map(ObjectId) else {
                continue;
            };
            let new = self.errors_below(log, to, tx)?;
            let mut moving = Vec::new();
            for entry in zap::iter(mos.objset(), old)? {
                let name = entry?.name_str().into_owned();
                if Entry::parse(&name).is_some_and(|entry| entry.birth < branch_txg) {
                    moving.push(name);
                }
            }
            for name in moving {
                self.add_entry(new, &name, tx)?;
                mos.zap_remove(old, &name, tx)?;
            }
        }
        Ok(())
    }

    fn logs_of_heads(&self) -> Result<Vec<ObjectId>> {
        let mut logs = Vec::new();
        if self.logs_by_head() {
            for name in [ERRLOG_SCRUB, ERRLOG_LAST] {
                logs.extend(self.error_log(name)?);
            }
        }
        Ok(logs)
    }

    fn error_log(&self, name: &str) -> Result<Option<ObjectId>> {
        Ok(directory::find(self.mos().objset(), name)?.filter(|log| log.0 != 0))
    }

    fn logs_by_head(&self) -> bool {
        self.mos().env().feature_is_active(HEAD_ERRLOG)
    }
}

impl Entry {
    #[doc(alias = "errphys_to_name")]
    fn name(&self) -> String {
        let Bookmark {
            object,
            level,
            blkid,
            ..
        } = self.at;
        format!("{:x}:{level:x}:{:x}:{:x}", object.0, blkid.0, self.birth.0)
    }

    #[doc(alias = "name_to_errphys")]
    fn parse(name: &str) -> Option<Entry> {
        let [object, level, blkid, birth] = numbers(name)?;
        Some(Entry {
            at: bookmark(0, object, level, blkid),
            birth: Txg(birth),
        })
    }
}

fn key(head: ObjectId) -> String {
    format!("{:x}", head.0)
}

/// `bookmark_to_name`
fn name_of(at: &Bookmark) -> String {
    let Bookmark {
        objset,
        object,
        level,
        blkid,
    } = at;
    format!("{:x}:{:x}:{level:x}:{:x}", objset.0, object.0, blkid.0)
}

/// `name_to_bookmark`
fn parse(name: &str) -> Option<Bookmark> {
    let [objset, object, level, blkid] = numbers(name)?;
    Some(bookmark(objset, object, level, blkid))
}

fn bookmark(objset: u64, object: u64, level: u64, blkid: u64) -> Bookmark {
    Bookmark {
        objset: ObjsetId(objset),
        object: ObjectId(object),
        // A signed int in OpenZFS: values too large for it are negative.
        level: level.cast_signed(),
        blkid: BlkId(blkid),
    }
}

fn numbers(name: &str) -> Option<[u64; 4]> {
    let parts: Option<Vec<u64>> = name
        .split(':')
        .map(|part| u64::from_str_radix(part, 16).ok())
        .collect();
    parts?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_openzfs() {
        let at = bookmark(0x36, 2, 1, 0x1f);
        assert_eq!(name_of(&at), "36:2:1:1f");
        assert_eq!(parse("36:2:1:1f"), Some(at));
        let root = Bookmark::root(ObjsetId(0x36));
        assert_eq!(name_of(&root), "36:0:ffffffffffffffff:0");
        assert_eq!(parse(&name_of(&root)), Some(root));
        let entry = Entry {
            at: bookmark(0, 2, 0, 5),
            birth: Txg(0xab),
        };
        assert_eq!(entry.name(), "2:0:5:ab");
        assert_eq!(Entry::parse("2:0:5:ab"), Some(entry));
        for bad in ["", "1:2:3", "1:2:3:4:5", "1:2:x:4", "1:2:3:"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
