//! The computed (not settable) properties shown by `zfs list` and `zfs get`.
//!
//! Source: OpenZFS module/zfs/dsl_dataset.c (`dsl_dataset_stats`,
//! `dsl_dataset_space_written`), module/zfs/dsl_dir.c (`dsl_dir_stats`) @be7657e3

use std::sync::Arc;

use base::{Error, Guid, ObjectId, ObjsetId, Result, Txg};

use crate::dataset::DslDataset;
use crate::dir::Used;
use crate::limits::Counts;
use crate::pool::DslPool;
use crate::size::Space;

/// The computed properties of a dataset. Bytes include copies and, deflated as in the pool's space,
/// parity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatasetStats {
    /// The full name.
    pub name: String,
    /// Whether it is a snapshot.
    pub is_snapshot: bool,
    /// Of a head: everything at and below it; of a snapshot: what destroying it alone would free.
    pub used: u64,
    /// Bytes that can still be written; 0 for a snapshot.
    pub available: u64,
    /// Bytes that it references, shared or not.
    pub referenced: u64,
    /// Bytes that it references before compression, without copies and metadata overhead.
    pub logicalreferenced: u64,
    /// Everything at and below it before compression; 0 for a snapshot.
    pub logicalused: u64,
    /// Bytes freed if all its snapshots were destroyed.
    pub usedbysnapshots: u64,
    /// Bytes freed if the head were destroyed after its snapshots.
    pub usedbydataset: u64,
    /// Bytes that the children use or have reserved.
    pub usedbychildren: u64,
    /// The part of the refreservation that is not used yet.
    pub usedbyrefreservation: u64,
    /// Compression ratio of `used`, times 100.
    pub compressratio: u64,
    /// Compression ratio of `referenced`, times 100.
    pub refcompressratio: u64,
    /// Referenced bytes written since the previous snapshot.
    pub written: u64,
    /// Bytes that only this dataset references.
    pub unique: u64,
    /// The txg in which it was created.
    pub createtxg: Txg,
    /// When it was created: seconds since 1970.
    pub creation: u64,
    /// ds_guid
    pub guid: Guid,
    /// The object in the MOS.
    pub objsetid: ObjsetId,
    /// How many holds a snapshot has.
    pub userrefs: u64,
    /// Whether a snapshot is destroyed with its last hold or clone.
    pub defer_destroy: bool,
    /// Whether a receive was not finished.
    pub inconsistent: bool,
    /// The snapshot that a head was cloned from.
    pub origin: Option<String>,
    /// The most recent snapshot of a head.
    pub prev_snap: Option<String>,
    /// The clones of a snapshot.
    pub clones: Vec<String>,
    /// Quota of the directory; here and below, 0 for none.
    pub quota: u64,
    /// Reservation of the directory.
    pub reservation: u64,
    /// Quota of the head alone.
    pub refquota: u64,
    /// Reservation of the head alone.
    pub refreservation: u64,
    /// When a snapshot was last created, renamed or destroyed: seconds since 1970; 0 if unknown.
    pub snapshots_changed: u64,
    /// What is below a head, if limits make the pool count it.
    pub counts: Option<Counts>,
}

fn ratio(uncompressed: u64, compressed: u64) -> u64 {
    match compressed {
        0 => 100,
        _ => (u128::from(uncompressed) * 100 / u128::from(compressed)) as u64,
    }
}

impl DslPool {
    /// The computed properties of a dataset.
    ///
    /// # Errors
    /// Any error from reading the MOS.
    #[doc(alias = "dsl_dataset_stats")]
    pub fn stats(&self, ds: &Arc<DslDataset>) -> Result<DatasetStats> {
        let _config = self.config().read();
        let fields = ds.fields();
        let limits = ds.limits();
        let userrefs = ds.state().userrefs;
        let refratio = ratio(fields.uncompressed_bytes, fields.compressed_bytes);
        let mut stats = DatasetStats {
            name: self.dataset_name(ds)?,
            is_snapshot: ds.is_snapshot(),
            used: fields.unique_bytes,
            referenced: fields.referenced_bytes,
            logicalreferenced: fields.uncompressed_bytes,
            compressratio: refratio,
            refcompressratio: refratio,
            written: self.written_since_prev(ds)?.used.cast_unsigned(),
            unique: fields.unique_bytes,
            createtxg: Txg(fields.creation_txg),
            creation: fields.creation_time,
            guid: Guid(fields.guid),
            objsetid: ds.objset_id(),
            userrefs,
            defer_destroy: ds.is_defer_destroy(),
            inconsistent: ds.is_inconsistent(),
            refquota: limits.quota,
            refreservation: limits.reserved,
            snapshots_changed: self.snapshots_changed(ds)?,
            ..DatasetStats::default()
        };
        if ds.is_snapshot() {
            stats.clones = self.clone_names(ds)?;
        } else {
            self.head_stats(ds, &mut stats)?;
        }
        Ok(stats)
    }

    fn head_stats(&self, ds: &Arc<DslDataset>, stats: &mut DatasetStats) -> Result<()> {
        let dir = ds.dir();
        let fields = dir.fields();
        stats.used = fields.used_bytes;
        stats.available = self.available(ds);
        stats.logicalused = fields.uncompressed_bytes;
        stats.usedbysnapshots = fields.used_by(Used::Snap);
        stats.usedbydataset = fields.used_by(Used::Head);
        stats.usedbychildren = fields.used_by(Used::Child) + fields.used_by(Used::ChildRsrv);
        stats.usedbyrefreservation = fields.used_by(Used::RefRsrv);
        stats.compressratio = ratio(fields.uncompressed_bytes, fields.compressed_bytes);
        stats.quota = fields.quota;
        stats.reservation = fields.reserved;
        stats.counts = self.counts(&dir)?;
        if self.is_clone(&fields) {
            let origin = self.dataset_by_object(ObjectId(fields.origin_obj))?;
            stats.origin = Some(self.dataset_name(&origin)?);
        }
        let is_origin = |prev: &Arc<DslDataset>| {
            self.origin()
                .is_some_and(|origin| Arc::ptr_eq(origin, prev))
        };
        if let Some(prev) = ds.prev().filter(|prev| !is_origin(prev)) {
            stats.prev_snap = Some(self.dataset_name(&prev)?);
        }
        Ok(())
    }

    /// Bytes that can still be written to a head.
    #[must_use]
    #[doc(alias = "dsl_get_available")]
    pub fn available(&self, ds: &Arc<DslDataset>) -> u64 {
        let limits = ds.limits();
        let mut available = self.space_available(&ds.dir(), None, true);
        available = available.saturating_add(limits.reserved.saturating_sub(limits.unique));
        if limits.quota != 0 {
            available = available.min(limits.quota.saturating_sub(limits.referenced));
        }
        available
    }

    /// Bytes that can still be written to the pool.
    #[must_use]
    pub fn available_in_pool(&self) -> u64 {
        self.space_available(self.root_dir(), None, true)
    }

    fn snapshots_changed(&self, ds: &Arc<DslDataset>) -> Result<u64> {
        let object = ds.dir().object();
        if !self.mos().is_zapified(object)? {
            return Ok(0);
        }
        let words = self
            .mos()
            .zap_get_words(object, crate::create::SNAPSHOTS_CHANGED)?;
        Ok(words.and_then(|words| words.first().copied()).unwrap_or(0))
    }

    #[doc(alias = "get_clones_stat")]
    fn clone_names(&self, snap: &Arc<DslDataset>) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for object in self.clones_of(snap)? {
            names.push(self.dataset_by_object(object)?.dir().name());
        }
        names.sort();
        Ok(names)
    }

    /// The datasets that branch off at a snapshot: for each clone its first snapshot, or its head.
    ///
    /// # Errors
    /// Any error from reading the MOS.
    pub fn clones_of(&self, snap: &Arc<DslDataset>) -> Result<Vec<ObjectId>> {
        let zap = snap.fields().next_clones_obj;
        if zap == 0 {
            return Ok(Vec::new());
        }
        let members = self.mos().zap_set_members(ObjectId(zap))?;
        Ok(members.into_iter().map(ObjectId).collect())
    }

    fn written_since_prev(&self, ds: &Arc<DslDataset>) -> Result<Space> {
        match self.predecessor(ds.object(), &ds.fields())? {
            None => Ok(ds.fields().referenced()),
            Some(prev) => self.written_since(&prev, ds),
        }
    }

    /// Whether `earlier`, a snapshot or a head that has a bookmark of `earlier_txg`, is an ancestor of `later` in the
    /// chain of snapshots and origins.
    #[doc(alias = "dsl_dataset_is_before")]
    pub(crate) fn is_before(
        &self,
        later: &Arc<DslDataset>,
        earlier: &DslDataset,
        earlier_txg: Txg,
    ) -> Result<bool> {
        let earlier_dir = earlier.dir();
        let mut later = later.clone();
        loop {
            if later.is_snapshot() && earlier_txg >= later.creation_txg() {
                return Ok(
                    Arc::ptr_eq(&later.dir(), &earlier_dir) && later.object() == earlier.object()
                );
            }
            let dir = later.dir();
            if Arc::ptr_eq(&dir, &earlier_dir) {
                return Ok(true);
            }
            match dir.fields().origin_obj {
                0 => return Ok(false),
                origin => later = self.older_origin(&later, ObjectId(origin))?,
            }
        }
    }

    /// The origin of the directory of `later`, checked to be older than `later`.
    fn older_origin(&self, later: &DslDataset, origin: ObjectId) -> Result<Arc<DslDataset>> {
        let found = self.dataset_by_object(origin)?;
        let (own, older) = (later.fields().creation_txg, found.fields().creation_txg);
        if found.is_snapshot() && (!later.is_snapshot() || older < own) {
            return Ok(found);
        }
        let object = later.object();
        Err(Error::corrupt(format!(
            "dataset {object} of txg {own} branched off at {origin} of txg {older}"
        )))
    }

    /// What `new` references and `old`, an earlier snapshot, does not: the difference in referenced
    /// bytes plus everything freed in between.
    fn written_since(&self, old: &Arc<DslDataset>, new: &Arc<DslDataset>) -> Result<Space> {
        if !self.is_before(new, old, old.creation_txg())? {
            return Err(Error::invalid("not an earlier snapshot of the same line"));
        }
        let old_fields = old.fields();
        let (later, next) = self.freed_later(old_fields.creation_txg, new)?;
        let mut written = new.fields().referenced() - old_fields.referenced() + later;
        if next.object() != old.object() {
            written += next.with_deadlist(|dl| dl.space())?;
        }
        Ok(written)
    }

    /// What was born until `txg` and freed between the first snapshot after that, which is returned, and `new`.
    pub(crate) fn freed_later(
        &self,
        txg: u64,
        new: &Arc<DslDataset>,
    ) -> Result<(Space, Arc<DslDataset>)> {
        let mut freed = Space::ZERO;
        let mut at = new.clone();
        while at.fields().prev_snap_txg > txg {
            freed += at.with_deadlist(|dl| dl.space_range(0, txg))?;
            at = self.snapshot_before(&at)?;
        }
        Ok((freed, at))
    }

    /// What was written to `new` since `old`, an earlier snapshot.
    ///
    /// # Errors
    /// `InvalidInput` when `old` does not come before `new`.
    #[doc(alias = "dsl_dataset_space_written")]
    pub fn space_written(&self, old: &Arc<DslDataset>, new: &Arc<DslDataset>) -> Result<Space> {
        let _config = self.config().read();
        self.written_since(old, new)
    }

    /// The space freed if `first`, `last` and all snapshots in between were destroyed.
    ///
    /// # Errors
    /// `InvalidInput` when they are not snapshots of the same directory, in this order.
    #[doc(alias = "dsl_dataset_space_wouldfree")]
    pub fn space_would_free(
        &self,
        first: &Arc<DslDataset>,
        last: &Arc<DslDataset>,
    ) -> Result<Space> {
        let _config = self.config().read();
        let (from, to) = (first.fields(), last.fields());
        let same = Arc::ptr_eq(&first.dir(), &last.dir());
        let snaps = first.is_snapshot() && last.is_snapshot();
        if !same || !snaps || from.creation_txg > to.creation_txg {
            return Err(Error::invalid(
                "not two snapshots of one data set in this order",
            ));
        }
        let mut space = Space::ZERO;
        let mut at = self.dataset_by_object(ObjectId(to.next_snap_obj))?;
        while at.object() != first.object() {
            space += at.with_deadlist(|dl| dl.space_range(from.prev_snap_txg, u64::MAX))?;
            at = self.snapshot_before(&at)?;
        }
        Ok(space)
    }
}
