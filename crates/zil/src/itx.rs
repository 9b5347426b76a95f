//! Records in memory, by txg.
//!
//! # What it is
//! Records that every commit must write (*sync*, such as changes of names) are in one list per txg.
//! Records that matter only to one file (*async*, such as its data) wait in a list of that file,
//! and move to the sync list when that file is committed. When a txg is synced, its records are
//! dropped.
//!
//! # Source
//! OpenZFS module/zfs/zil.c (`zil_itx_assign`, `zil_async_to_sync`, `zil_get_commit_list`)
//! @be7657e3.

use std::collections::BTreeMap;

use base::{ObjectId, Txg};

/// How a write record gets its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "itx_wr_state_t")]
pub enum WriteState {
    /// `WR_COPIED`, and records that are not writes: the record is complete.
    Complete,
    /// `WR_NEED_COPY`: the data is requested when the record is written, and follows it in the log;
    /// the record may be split.
    NeedCopy(DataRequest),
}

/// The data that belongs to a write record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRequest {
    /// The file.
    pub id: ObjectId,
    /// Its generation: another file may have its number by now.
    pub generation: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// A record to be written to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "itx_t")]
pub struct Itx {
    /// The record, its length a multiple of 8; txg and sequence number are filled in here.
    pub record: Vec<u8>,
    /// The file whose commit writes this record, if the record is async.
    pub object: ObjectId,
    /// Whether every commit writes this record.
    pub is_sync: bool,
    /// How the record gets its data.
    pub write_state: WriteState,
}

/// The records of one txg.
#[derive(Default)]
struct Itxg {
    sync: Vec<Itx>,
    by_object: BTreeMap<ObjectId, Vec<Itx>>,
}

/// The records of all txgs that are not synced.
#[derive(Default)]
pub(crate) struct ItxLists(BTreeMap<Txg, Itxg>);

impl ItxLists {
    /// Adds a record; returns whether it is the first one of its txg.
    #[doc(alias = "zil_itx_assign")]
    pub(crate) fn assign(&mut self, txg: Txg, itx: Itx) -> bool {
        let first = !self.0.contains_key(&txg);
        let itxg = self.0.entry(txg).or_default();
        let list = match itx.is_sync {
            true => &mut itxg.sync,
            false => itxg.by_object.entry(itx.object).or_default(),
        };
        list.push(itx);
        first
    }

    /// Makes the records of `object`, or of all objects, part of the next commit.
    #[doc(alias = "zil_async_to_sync")]
    pub(crate) fn async_to_sync(&mut self, object: Option<ObjectId>) {
        for itxg in self.0.values_mut() {
            match object {
                Some(object) => itxg
                    .sync
                    .extend(itxg.by_object.remove(&object).into_iter().flatten()),
                None => {
                    let all = std::mem::take(&mut itxg.by_object);
                    itxg.sync.extend(all.into_values().flatten());
                }
            }
        }
    }

    /// Forgets the async records of a removed file.
    #[doc(alias = "zil_remove_async")]
    pub(crate) fn forget(&mut self, object: ObjectId) {
        for itxg in self.0.values_mut() {
            itxg.by_object.remove(&object);
        }
    }

    /// Takes the records that the next commit writes, oldest first.
    #[doc(alias = "zil_get_commit_list")]
    pub(crate) fn take(&mut self) -> Vec<(Txg, Itx)> {
        let mut taken = Vec::new();
        for (txg, itxg) in &mut self.0 {
            taken.extend(
                std::mem::take(&mut itxg.sync)
                    .into_iter()
                    .map(|itx| (*txg, itx)),
            );
        }
        taken
    }

    /// Drops the records of a synced txg and those before.
    #[doc(alias = "zil_clean")]
    pub(crate) fn clean(&mut self, synced: Txg) {
        self.0 = self.0.split_off(&synced.next());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn itx(object: u64, is_sync: bool, byte: u8) -> Itx {
        let write_state = WriteState::Complete;
        Itx {
            record: vec![byte; 32],
            object: ObjectId(object),
            is_sync,
            write_state,
        }
    }

    #[test]
    fn a_commit_takes_what_is_sync_and_the_files_own() {
        let mut lists = ItxLists::default();
        assert!(lists.assign(Txg(7), itx(1, false, 1)));
        assert!(!lists.assign(Txg(7), itx(2, false, 2)));
        lists.assign(Txg(7), itx(3, true, 3));
        lists.assign(Txg(8), itx(1, false, 4));
        lists.async_to_sync(Some(ObjectId(1)));
        let bytes: Vec<u8> = lists.take().iter().map(|(_, itx)| itx.record[0]).collect();
        assert_eq!(bytes, [3, 1, 4]);
        assert!(lists.take().is_empty());
        lists.async_to_sync(None);
        assert_eq!(lists.take()[0].0, Txg(7));
        lists.assign(Txg(9), itx(1, false, 5));
        lists.clean(Txg(8));
        lists.forget(ObjectId(1));
        lists.async_to_sync(None);
        assert!(lists.take().is_empty());
        lists.clean(Txg(9));
        assert!(lists.is_empty());
    }
}
