//! Beginning to remove a vdev: what may be removed, and what is prepared.
//!
//! # What it is
//! First nothing is allocated on the vdev any more, and intent logs leave it. When all txgs that had begun before
//! are on disk, and what they freed is free, the removal begins in one txg.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_removal.c` (`spa_vdev_remove_top_check`, `spa_vdev_remove_top`,
//! `vdev_passivate`, `vdev_remove_initiate_sync`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{BlkId, Error, ErrorKind, Guid, ObjectId, Result, VdevId};
use dmu::{Objset, Tx};
use metaslab::RangeTree;
use phys::feature::{DEVICE_REMOVAL, OBSOLETE_COUNTS};
use phys::pool_names::VDEV_TOP_ZAP_COUNTS_ARE_PRECISE;
use phys::scan::DSS_SCANNING;
use vdev::{Mapping, Vdev};
use zap::directory;
use zio::AllocClass;

use super::{Active, is_scanning, object};
use crate::spa::{Inner, Spa};

/// `TXG_CONCURRENT_STATES + TXG_DEFER_SIZE`: txgs after which nothing is in flight on a vdev that is not allocated
/// from any more, and nothing that was freed before is deferred.
const SETTLED_TXGS: u64 = 5;
/// Blocks of the MOS that the beginning of a removal writes, besides the pool directory.
const BLOCKS: u64 = 32;

impl Spa {
    /// Removes a top-level vdev: a log device at once; what other ones hold is copied to others from now on, in
    /// txgs, also after the pool was closed and opened.
    ///
    /// # Errors
    /// `NotFound` if there is no such vdev; `Unsupported` if it is not a top-level one, or the pool lacks the feature;
    /// `InvalidInput` if vdevs have different sectors or parity; `NoSpace`; `Busy` if another one is being removed, or
    /// an intent log is to be replayed first; `Exists` if this one is being removed; `Io` if it lacks devices;
    /// `ReadOnly`, `Suspended`.
    #[doc(alias = "spa_vdev_remove")]
    pub fn remove(&self, guid: Guid) -> Result<()> {
        self.check_writable()?;
        self.check_no_checkpoint()?;
        let (id, top) = self.inner.find_top(guid)?;
        if top.config().is_log {
            return self.remove_log(id);
        }
        self.inner.check_remove(id)?;
        let was_allocatable = self.inner.space.is_allocatable(id)?;
        self.inner.passivate(id)?;
        let begun = self.begin_removal(id);
        if begun.is_err() && was_allocatable {
            self.inner.space.set_allocatable(id, true)?;
        }
        begun
    }

    fn begin_removal(&self, id: VdevId) -> Result<()> {
        self.drain()?;
        let (checked, inner) = (Arc::clone(&self.inner), Arc::clone(&self.inner));
        self.dsl().sync_task(
            BLOCKS,
            dsl::SpaceCheck::ExtraReserved,
            move |_, _| checked.check_remove(id).map(|()| dsl::Verdict::Go),
            move |_, tx| inner.initiate(id, tx),
        )?;
        self.sync_now()
    }

    /// Waits until nothing is in flight on a vdev that is not allocated from any more, and no intent log is there.
    pub(crate) fn drain(&self) -> Result<()> {
        self.settle()?;
        self.dsl().drop_logs()?;
        self.settle()
    }

    /// Waits until what began before is on disk, and what it freed is free.
    pub(crate) fn settle(&self) -> Result<()> {
        let until = self.inner.groups.open_txg().0 + SETTLED_TXGS;
        while self.inner.groups.synced_txg().0 < until {
            self.sync_now()?;
        }
        Ok(())
    }
}

fn unsupported(text: &str) -> Error {
    Error::new(ErrorKind::Unsupported, text)
}

fn no_space() -> Error {
    Error::new(
        ErrorKind::NoSpace,
        "the other vdevs have no room for what it holds",
    )
}

impl Inner {
    /// The top-level vdev with this guid.
    pub(crate) fn find_top(&self, guid: Guid) -> Result<(VdevId, Arc<Vdev>)> {
        let tops = self.tree.tops();
        let at = tops.iter().position(|top| top.guid() == guid);
        if let Some(at) = at {
            return Ok((VdevId(at as u64), Arc::clone(&tops[at])));
        }
        Err(match self.tree.find(guid) {
            Some(_) => unsupported("only top-level vdevs can be removed"),
            None => Error::not_found(format!("no vdev {guid}")),
        })
    }

    /// Whether a vdev that is not a log device can be removed.
    #[doc(alias = "spa_vdev_remove_top_check")]
    fn check_remove(&self, id: VdevId) -> Result<()> {
        let top = self.tree.top(id);
        let top = top.ok_or_else(|| Error::not_found(format!("no vdev {id}")))?;
        if !top.kind().is_concrete() {
            return Err(unsupported("it has no devices"));
        }
        if self.features().count(DEVICE_REMOVAL).is_none() {
            return Err(unsupported("the feature device_removal is not enabled"));
        }
        if top.config().removing {
            return Err(Error::new(ErrorKind::Exists, "it is being removed"));
        }
        self.check_room(id, &top)?;
        if self.removal.phys().is_some_and(|phys| is_scanning(&phys)) {
            return Err(Error::new(ErrorKind::Busy, "another vdev is being removed"));
        }
        let lacks_some = |leaf: &Arc<Vdev>| leaf.leaf().has_dtl();
        if top.devices().iter().any(lacks_some) {
            return Err(Error::new(ErrorKind::Busy, "a device lacks some data"));
        }
        if top.devices().iter().any(|leaf| leaf.config().is_spare) {
            return Err(Error::new(ErrorKind::Busy, "a hot spare is in use there"));
        }
        if !top.state().0.is_usable() {
            return Err(Error::new(
                ErrorKind::Io,
                "too many of its devices are missing",
            ));
        }
        self.check_shapes(&top)
    }

    fn check_room(&self, id: VdevId, top: &Vdev) -> Result<()> {
        let own = self.space.vdev_stats(id)?;
        let is_normal = top.config().class() == AllocClass::Normal;
        if !is_normal {
            let normal = self.space.class_usage(AllocClass::Normal);
            let room = normal.space.saturating_sub(normal.alloc);
            return if room < own.alloc {
                Err(no_space())
            } else {
                Ok(())
            };
        }
        if self.space.is_allocatable(id)? && self.dsl().available_in_pool() < own.dspace {
            return Err(no_space());
        }
        Ok(())
    }

    /// All vdevs for data must have the same sectors and no parity, and mirrors must be of devices.
    fn check_shapes(&self, top: &Vdev) -> Result<()> {
        let tops = self.tree.tops();
        let concrete = || tops.iter().filter(|top| top.kind().is_concrete());
        let ashifts = concrete().filter(|top| top.config().class() == AllocClass::Normal);
        let mut ashifts: BTreeSet<u32> = ashifts.map(|top| top.config().ashift).collect();
        let class = top.config().class();
        let peers = concrete().filter(|peer| peer.config().class() == class);
        ashifts.extend(peers.map(|peer| peer.config().ashift));
        let is_nested = |top: &&Arc<Vdev>| {
            top.kind().is_mirror_like() && !top.children().iter().all(|side| side.kind().is_leaf())
        };
        let is_bad = concrete().any(|top| top.kind().has_parity() || is_nested(&top));
        if ashifts.len() != 1 || is_bad {
            let what = "all top-level vdevs must have the same sector size and not be raidz";
            return Err(Error::invalid(what));
        }
        Ok(())
    }

    /// Nothing is allocated on this vdev from now on.
    #[doc(alias = "vdev_passivate")]
    pub(crate) fn passivate(&self, id: VdevId) -> Result<()> {
        let top = self.tree.top(id).expect("it was found");
        let is_normal = top.config().class() == AllocClass::Normal;
        if is_normal && !self.space.has_others(AllocClass::Normal, id) {
            return Err(Error::invalid("it is the only vdev"));
        }
        self.space.set_allocatable(id, false)
    }

    /// The txg in which the removal begins.
    #[doc(alias = "vdev_remove_initiate_sync")]
    fn initiate(&self, id: VdevId, tx: &Tx) -> Result<()> {
        let top = self.tree.top(id).expect("it was checked");
        let features = self.features();
        features.adjust(DEVICE_REMOVAL, 1, tx)?;
        let top_zap = ObjectId(top.config().top_zap);
        if features.count(OBSOLETE_COUNTS).is_some() {
            features.adjust(OBSOLETE_COUNTS, 1, tx)?;
            let name = VDEV_TOP_ZAP_COUNTS_ARE_PRECISE;
            zap::update(&self.mos, tx, top_zap, name, &[1u64])?;
        }
        let mapping_object = object::create(&self.mos, &features, tx)?;
        let births_object = object::create_births(&self.mos, tx)?;
        top.update(|config| {
            config.indirect_object = mapping_object.0;
            config.indirect_births = births_object.0;
            (config.removing, config.non_allocating) = (true, true);
        });
        let to_copy = self.allocated_bytes(id)?;
        self.removal.state.lock().active = Some(Active {
            vdev: id,
            mapping: Mapping::default(),
            mapping_object,
            births_object,
            since: tx.txg().0,
            metaslab: 0,
            pending: RangeTree::new(),
            done: 0,
        });
        self.removal.is_used.store(true, Ordering::Relaxed);
        self.removal.change_phys(&self.mos, tx, |phys| {
            phys.removing_vdev.set(id.0);
            phys.state.set(DSS_SCANNING);
            phys.start_time.set(rt::wall_clock().secs);
            phys.end_time.set(0);
            phys.to_copy.set(to_copy);
            phys.copied.set(0);
        })?;
        rewrite(&self.mos, directory::OBJECT, tx)?;
        let path = top.config().path.clone();
        let path = path.as_deref().unwrap_or("-");
        let text = format!("{} vdev {id} {path}", self.state.lock().name);
        self.core.log_internal("vdev remove started", &text, tx);
        self.tree_changed();
        Ok(())
    }

    /// What is allocated on a vdev that nothing is allocated from.
    fn allocated_bytes(&self, id: VdevId) -> Result<u64> {
        let mut bytes = 0;
        let mut metaslab = 0;
        while let Some(allocated) = self.space.allocated_segments(id, metaslab)? {
            bytes += allocated.space();
            metaslab += 1;
        }
        Ok(bytes)
    }
}

/// Writes all blocks of an object again: what is read before the mappings are must not need them.
fn rewrite(mos: &Arc<Objset>, object: ObjectId, tx: &Tx) -> Result<()> {
    let dnode = mos.hold(object)?;
    let blksz = dnode.blksz();
    for blkid in 0..=dnode.maxblkid().0 {
        let block = dnode.read_block(BlkId(blkid))?;
        dnode.write(tx, blkid * blksz, &block)?;
    }
    Ok(())
}
