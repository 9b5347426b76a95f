//! Changing the vdevs of an open pool: attaching, detaching, replacing and adding devices.
//!
//! # What it is
//! All changes go the same way. The labels of new devices are emptied. Then, in syncing context, the tree is
//! checked and rebuilt, and config, DTLs, ZAPs and labels of that txg describe the new tree. A device that
//! was attached is resilvered from the txg on in which nothing is in flight any more that does not know it.
//! A device that was replaced is detached in the txg after the one in which its replacement became
//! complete, or when the pool is next opened. The labels of a device that was detached are emptied as soon
//! as that is on disk.
//!
//! # Crash argument
//! Which devices a pool has, its MOS says. Until the uberblock of the txg is written, that is the former
//! MOS: devices that it does not name, and labels of later txgs, do not count (`vdev::import`). Labels 0
//! and 2 of all devices, new ones included, are written and flushed before the first uberblock, so that
//! whichever device the uberblock is found on, the devices that it needs are found. Nothing is allocated
//! on a new top-level vdev before that uberblock is on disk. A new device's DTL is in the same txg: it is
//! never taken for complete. A device that keeps its labels because the power failed before they were
//! emptied is not in the config: it is ignored.
//!
//! # Source
//! OpenZFS `module/zfs/spa.c` (`spa_vdev_attach`, `spa_vdev_detach`, `spa_vdev_resilver_done`,
//! `spa_vdev_add`), `module/zfs/vdev.c` (`vdev_dtl_sync`).

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Error, ErrorKind, Guid, ObjectId, Result, VdevId};
use dmu::Tx;
use phys::feature::{ALLOCATION_CLASSES, DRAID};
use phys::label::SPA_MINDEVSIZE;
use phys::uberblock::SPA_VERSION_FEATURES;
use vdev::{
    Attach, AutoAshift, AuxSpec, Detached, Grouping, NewDevice, PoolState, TopSpec, Vdev, VdevTree,
};
use zio::AllocClass;

use crate::FeatureState;
use crate::create::{build_device, build_tops, geometry};
use crate::rebuild::Resilver;
use crate::spa::{Inner, Spa};

/// `TXG_CONCURRENT_STATES`: a write that began with the former tree belongs to the txg of the change or to
/// one of the next two.
const TXG_CONCURRENT_STATES: u64 = 3;
/// Why a vdev cannot be added beside a removed one, in OpenZFS's words.
const NO_RAIDZ: &str = "invalid config; a pool with removing/removed vdevs does not support adding raidz or \
                        dRAID vdevs";
/// Blocks of the MOS that a change writes: config, DTL, ZAPs and their map, history.
const BLOCKS: u64 = 16;

impl Spa {
    /// Attaches a device beside another one, as a side of a mirror or as its replacement, and begins to
    /// resilver it. A hot spare of the pool takes over for the device that it replaces, and stays a spare.
    /// `sectors`: the ashift that was asked for, 0 if the device decides.
    ///
    /// # Errors
    /// As [`VdevTree::check_attach`]; `ReadOnly`, `Suspended`; errors of writing the new device.
    #[doc(alias = "spa_vdev_attach")]
    pub fn attach(
        &self,
        beside: Guid,
        new: &NewDevice,
        attach: Attach,
        sectors: (u32, AutoAshift),
    ) -> Result<()> {
        self.attach_with(beside, new, attach, sectors, Resilver::Healing)
    }

    /// As [`attach`](Spa::attach), and says how the device is resilvered.
    ///
    /// # Errors
    /// `Exists` while a resilver of the other kind goes on; `Unsupported` for a sequential one without the feature or
    /// where there is none; else as [`attach`](Spa::attach).
    pub fn attach_with(
        &self,
        beside: Guid,
        new: &NewDevice,
        attach: Attach,
        sectors: (u32, AutoAshift),
        resilver: Resilver,
    ) -> Result<()> {
        self.check_writable()?;
        self.check_no_checkpoint()?;
        resilver.check(self)?;
        if self.is_removing() {
            let text = "device removal in progress";
            return Err(Error::new(ErrorKind::Exists, text));
        }
        let spare = self.spare_on(new)?;
        let attach = match (attach, spare) {
            (Attach::Replacement, Some(_)) => Attach::Spare,
            (_, Some(_)) => {
                let text = format!("{} is reserved as a hot spare", new.path);
                return Err(Error::new(ErrorKind::Busy, text));
            }
            (attach, None) => attach,
        };
        let device = open_new(new, sectors, spare)?;
        self.attach_checked(beside, device, attach, resilver)
    }

    fn attach_checked(
        &self,
        beside: Guid,
        device: Arc<Vdev>,
        attach: Attach,
        resilver: Resilver,
    ) -> Result<()> {
        let checked = Arc::clone(&device);
        let check = move |tree: &VdevTree| {
            resilver.check_beside(&tree.find_device(beside)?.1)?;
            tree.check_attach(beside, &checked, attach)
        };
        check(self.parts().tree())?;
        if device.kind().has_labels() {
            prepare(&device)?;
        }
        self.change_tree(check, move |inner, tx| {
            inner.attach(beside, &device, (attach, resilver), tx)
        })
    }

    /// Has a distributed spare take over for a device of its dRAID.
    ///
    /// # Errors
    /// `NotFound` if it is not one; `Busy` if it is in use; `Unsupported` if the device is not of its dRAID; else as
    /// [`attach`](Spa::attach).
    pub fn attach_distributed(&self, beside: Guid, spare: Guid) -> Result<()> {
        self.attach_distributed_with(beside, spare, Resilver::Healing)
    }

    /// As [`attach_distributed`](Spa::attach_distributed), and says how the spare is resilvered.
    ///
    /// # Errors
    /// As [`attach_with`](Spa::attach_with).
    pub fn attach_distributed_with(
        &self,
        beside: Guid,
        spare: Guid,
        resilver: Resilver,
    ) -> Result<()> {
        self.check_writable()?;
        self.check_no_checkpoint()?;
        resilver.check(self)?;
        let found = self.inner.state.lock().spares.find(spare).cloned();
        let listed = found.ok_or_else(|| Error::not_found("no such spare"))?;
        let device = self.inner.distributed(&listed)?;
        self.attach_checked(beside, device, Attach::Spare, resilver)
    }

    /// Detaches a device from a mirror or a replacement.
    ///
    /// # Errors
    /// As [`VdevTree::check_detach`]; `ReadOnly`, `Suspended`.
    #[doc(alias = "spa_vdev_detach")]
    pub fn detach(&self, guid: Guid) -> Result<()> {
        self.check_no_checkpoint()?;
        self.change_tree(
            move |tree| tree.check_detach(guid),
            move |inner, tx| inner.detach(guid, tx),
        )
    }

    /// Adds top-level vdevs, hot spares and cache devices. `sectors`: as in [`attach`](Spa::attach). `is_any`: also
    /// with another ashift than all others have.
    ///
    /// # Errors
    /// As [`Spa::create`]; `Exists` for another ashift; `Unsupported` for a special or dedup vdev in a pool without
    /// allocation classes, or a dRAID in one without this feature; `ReadOnly`, `Suspended`.
    #[doc(alias = "spa_vdev_add")]
    pub fn add(
        &self,
        specs: &[TopSpec<NewDevice>],
        aux: &AuxSpec<NewDevice>,
        sectors: (u32, AutoAshift),
        is_any: bool,
    ) -> Result<()> {
        self.check_writable()?;
        let needs_classes =
            |top: &TopSpec<_>| matches!(top.class, AllocClass::Special | AllocClass::Dedup);
        let has_classes = self.feature(ALLOCATION_CLASSES) != FeatureState::Disabled;
        if specs.iter().any(needs_classes) && !has_classes {
            let text = "pool must be upgraded to add these vdevs";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let is_draid = |top: &TopSpec<_>| matches!(top.grouping, Grouping::Draid { .. });
        if specs.iter().any(is_draid) && self.feature(DRAID) == FeatureState::Disabled {
            let text = "pool must be upgraded to add these vdevs";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let txg = self.inner.groups.open_txg();
        let tops = build_tops(specs, sectors, txg)?;
        self.check_beside_removed(&tops)?;
        if !is_any && !tops.is_empty() {
            self.check_ashift(&tops)?;
        }
        for device in tops.iter().flat_map(Vdev::devices) {
            device.empty_labels()?;
        }
        let spares = self.new_spares(&aux.spares, sectors)?;
        let caches = self.new_caches(&aux.caches, sectors)?;
        let add = move |inner: &Inner, tx: &Tx| {
            let first = inner.tree.tops().len() as u64;
            let distributed = (first..).map(VdevId).zip(&tops);
            let distributed = distributed.flat_map(|(id, top)| top.new_spares(id));
            let spares = spares.into_iter().chain(distributed).collect();
            inner.state.lock().spares.extend(spares);
            inner.state.lock().caches.extend(caches);
            inner.open_caches();
            tops.iter().try_for_each(|top| inner.add(top, tx))?;
            inner.core.notify("vdev_add", None);
            Ok(())
        };
        self.change_tree(|_| Ok(()), add)
    }

    /// Checks that new vdevs can take what is on removed ones: while one is being removed, they must have the same
    /// sectors, and as long as there are any, no parity.
    fn check_beside_removed(&self, tops: &[Arc<Vdev>]) -> Result<()> {
        if !self.inner.removal.is_used() {
            return Ok(());
        }
        if self.is_removing() {
            let all = self.parts().tree().tops();
            let present = all.iter().filter(|top| top.kind().is_concrete());
            let present: BTreeSet<u32> = present.map(|top| top.config().ashift).collect();
            if tops
                .iter()
                .any(|top| !present.contains(&top.config().ashift))
            {
                return Err(Error::invalid(NO_RAIDZ));
            }
        }
        if tops.iter().any(|top| top.kind().has_parity()) {
            return Err(Error::invalid(NO_RAIDZ));
        }
        Ok(())
    }

    /// Checks that new vdevs have the ashift of all normal ones, if these have the same one.
    fn check_ashift(&self, tops: &[Arc<Vdev>]) -> Result<()> {
        let ashift = |top: &Arc<Vdev>| top.config().ashift;
        let is_normal = |top: &&Arc<Vdev>| {
            top.kind().is_concrete() && top.config().class() == AllocClass::Normal
        };
        let present = self.parts().tree().tops();
        let present: BTreeSet<u32> = present.iter().filter(is_normal).map(ashift).collect();
        let new: BTreeSet<u32> = tops.iter().map(ashift).collect();
        if present.len() == 1 && present != new {
            let text = format!("the ashift of the pool is {present:?}, that of new vdevs {new:?}");
            return Err(Error::new(ErrorKind::Exists, text));
        }
        Ok(())
    }

    /// Changes the tree in syncing context if `check` allows it, and waits until that is on disk and what
    /// began with the former tree has ended.
    #[doc(alias = "spa_vdev_exit")]
    pub(crate) fn change_tree(
        &self,
        check: impl Fn(&VdevTree) -> Result<()> + Send + Sync + 'static,
        change: impl FnOnce(&Inner, &Tx) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        self.check_writable()?;
        let (tree, inner) = (Arc::clone(&self.inner.tree), Arc::clone(&self.inner));
        let changed = self.dsl().sync_task(
            BLOCKS,
            dsl::SpaceCheck::ExtraReserved,
            move |_, _| check(&tree).map(|()| dsl::Verdict::Go),
            move |_, tx| {
                change(&inner, tx)?;
                Ok(tx.txg())
            },
        )?;
        while self.inner.groups.synced_txg().0 < changed.0 + TXG_CONCURRENT_STATES {
            self.sync_now()?;
        }
        Ok(())
    }

    /// Detaches the devices whose replacements are complete.
    ///
    /// # Errors
    /// `Suspended`.
    #[doc(alias = "spa_vdev_resilver_done")]
    pub(crate) fn finish_replacements(&self) -> Result<()> {
        let inner = &self.inner;
        while !self.is_readonly()
            && !inner.has_checkpoint_feature()
            && !inner.tree.replaced().is_empty()
        {
            self.sync_now()?;
        }
        Ok(())
    }
}

impl Inner {
    /// A leaf for a distributed spare in the list, to be attached.
    pub(crate) fn distributed(&self, listed: &Vdev) -> Result<Arc<Vdev>> {
        let draid = self.tree.draid_of(listed);
        let (spare, draid) = draid.ok_or_else(|| Error::not_found("its dRAID is not there"))?;
        if self.tree.find(listed.guid()).is_some() {
            let text = format!("{}: the hot spare is in use", listed.name());
            return Err(Error::new(ErrorKind::Busy, text));
        }
        Ok(draid.spare_leaf(spare, listed.guid(), &listed.name()))
    }

    pub(crate) fn attach(
        &self,
        beside: Guid,
        device: &Arc<Vdev>,
        (attach, resilver): (Attach, Resilver),
        tx: &Tx,
    ) -> Result<()> {
        self.tree.attach(beside, device, attach, tx.txg())?;
        let (old, _) = self.tree.find_device(beside)?;
        let (verb, to) = match attach {
            Attach::Side => ("attach", "to"),
            Attach::Replacement => ("replace", "for"),
            Attach::Spare => ("spare in", "for"),
        };
        if attach == Attach::Spare {
            self.core.notify("vdev_spare", Some(device));
        }
        self.core.notify("vdev_attach", Some(device));
        let text = format!("{verb} vdev={} {to} vdev={}", device.name(), old.name());
        self.core.log_internal("vdev attach", &text, tx);
        self.tree_changed();
        match resilver {
            Resilver::Healing => self.resilver_from(tx.txg().0 + TXG_CONCURRENT_STATES),
            Resilver::Sequential => {
                let (_, top) = self.tree.find_device(beside)?;
                let tops = self.tree.tops();
                let at = tops.iter().position(|other| Arc::ptr_eq(other, &top));
                let vdev = VdevId(at.expect("it is in the tree") as u64);
                self.begin_rebuild(vdev, device, tx)?;
            }
        }
        Ok(())
    }

    fn detach(&self, guid: Guid, tx: &Tx) -> Result<()> {
        let Detached { device, promoted } = self.tree.detach(guid)?;
        if let Some(spare) = promoted {
            self.forget_spare(spare, tx);
        }
        let path = device.config().path.clone();
        self.core.notify("vdev_remove", Some(&device));
        let text = format!("vdev={}", path.as_deref().unwrap_or("none"));
        self.core.log_internal("detach", &text, tx);
        self.spare_given_back(&device);
        self.forget_device(&device, tx)?;
        self.tree_changed();
        Ok(())
    }

    /// Frees what the MOS has of a device that has left the tree; its labels are emptied when that is on disk.
    pub(crate) fn forget_device(&self, device: &Arc<Vdev>, tx: &Tx) -> Result<()> {
        self.forget_objects(device, tx)?;
        self.state.lock().detached.push(Arc::clone(device));
        Ok(())
    }

    /// Frees what the MOS has of a device.
    pub(crate) fn forget_objects(&self, device: &Vdev, tx: &Tx) -> Result<()> {
        let (dtl, zap) = {
            let config = device.config();
            (config.dtl_object, config.leaf_zap)
        };
        if dtl != 0 {
            self.maps.free(ObjectId(dtl), tx)?;
            self.state.lock().dtls.remove(&dtl);
        }
        if zap != 0 {
            self.destroy_vdev_zap(ObjectId(zap), tx)?;
        }
        Ok(())
    }

    fn add(&self, top: &Arc<Vdev>, tx: &Tx) -> Result<()> {
        let id = VdevId(self.tree.tops().len() as u64);
        let array = self.maps.create_array(id, tx)?;
        top.visit(&mut |vdev| vdev.update(|config| config.create_txg = tx.txg().0));
        top.update(|config| config.ms_array = array.0);
        self.tree.add_top(Arc::clone(top));
        self.space.add_vdev(geometry(id, top), &[], true)?;
        self.tree_changed();
        Ok(())
    }

    pub(crate) fn tree_changed(&self) {
        let mut state = self.state.lock();
        (state.config_dirty, state.labels_dirty) = (true, true);
    }

    /// Detaches the devices whose replacements are complete. In the first pass.
    pub(crate) fn sync_replacements(&self, tx: &Tx) -> Result<()> {
        while !self.has_checkpoint_feature() {
            let done = self.tree.replaced();
            if done.is_empty() {
                return Ok(());
            }
            for device in done {
                self.detach(device.guid(), tx)?;
            }
        }
        Ok(())
    }

    /// Empties the labels of the devices that were detached in the txg that is now on disk; a hot spare gets
    /// those of one that is not in use. If that is not possible, a bad device may be why it was detached.
    pub(crate) fn let_detached_go(&self) {
        let detached = std::mem::take(&mut self.state.lock().detached);
        for device in detached {
            // One that was given up may still take them.
            device.leaf().clear_errors();
            let _ = prepare(&device);
            device
                .leaf()
                .close(vdev::VdevState::Closed, vdev::VdevAux::None);
        }
    }
}

/// Writes the labels of a device that is to become part of the pool, or no longer is: there is nothing in them that
/// could be taken for newer than what is written next.
pub(crate) fn prepare(device: &Vdev) -> Result<()> {
    if device.config().is_spare {
        device.write_aux_labels(SPA_VERSION_FEATURES, PoolState::Spare)
    } else {
        device.empty_labels()
    }
}

/// A new device, or, with its guid, a hot spare.
pub(crate) fn open_new(
    new: &NewDevice,
    (ashift, auto): (u32, AutoAshift),
    spare: Option<Guid>,
) -> Result<Arc<Vdev>> {
    if new.provider.mediasize() < SPA_MINDEVSIZE {
        let text = format!("{}: device is too small", new.path);
        return Err(Error::new(ErrorKind::TooBig, text));
    }
    let device = build_device(new, spare)?;
    let logical = vdev::logical_ashift(&*new.provider);
    let physical = vdev::physical_ashift(&*new.provider);
    let ashift = vdev::choose_ashift(ashift, logical, physical, auto);
    device.update(|config| config.ashift = ashift);
    Ok(device)
}
