//! Hot spares: which ones a pool has, and taking one when a device fails.
//!
//! # What it is
//! A pool lists its hot spares; others may list the same ones. A spare in use is a leaf of the tree
//! (`vdev::spare`), and stays in the list. The labels of one that is not in use name no pool; those of one in use,
//! the pool that has taken it: the labels say which spares are free. What OpenZFS leaves to its event daemon is
//! done here when a txg syncs: a device that is gone, or was given up, gets the first spare that is free and fits.
//!
//! # Crash argument
//! The list is in the MOS, and a spare is taken and given back as any device is attached and detached
//! (`vdevs.rs`). While it is taken, its labels are those of a free spare until the txg that takes it; while it is given
//! back, they name the pool until that txg is on disk. A spare with labels of this pool that is not in its tree is
//! free: it gets the right labels when the pool is next opened for writing.
//!
//! # Source
//! OpenZFS `module/zfs/spa_misc.c` (`spa_spare_*`), `module/zfs/vdev_label.c` (`vdev_inuse`, `vdev_label_init`),
//! `module/zfs/vdev_removal.c` (`spa_vdev_remove`), `cmd/zed/agents/zfs_retire.c` (`replace_with_spare`).

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Error, ErrorKind, Guid, Result};
use dmu::Tx;
use geom::Provider;
use phys::PropValue;
use phys::feature::DEVICE_REBUILD;
use phys::uberblock::SPA_VERSION_FEATURES;
use rt::Mutex;
use vdev::label::{self, Owner};
use vdev::{Attach, AutoAshift, NewDevice, PoolState, Vdev};

use crate::create::nonzero_random;
use crate::rebuild::Resilver;
use crate::spa::{Inner, Spa};
use crate::vdevs::{open_new, prepare};

/// Opens a spare, by its path, for writing.
pub type OpenSpare = dyn Fn(&str) -> Result<Arc<dyn Provider>> + Send + Sync;

/// What uses a hot spare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpareUser {
    /// Nothing: it is free.
    None,
    /// This pool.
    This,
    /// The pool of this name.
    Other(String),
}

/// What is needed to take spares without being asked.
#[derive(Default)]
pub(crate) struct SpareWatch {
    open: Mutex<Option<Arc<OpenSpare>>>,
    /// Devices that no spare could be had for; each is tried once until it is well again.
    tried: Mutex<BTreeSet<Guid>>,
}

impl Spa {
    /// The hot spares, and what uses them.
    #[must_use]
    pub fn spares(&self) -> Vec<(Arc<Vdev>, SpareUser)> {
        let spares = self.inner.state.lock().spares.devices().to_vec();
        let user = |spare: &Arc<Vdev>| self.inner.spare_user(spare);
        spares.iter().map(|s| (Arc::clone(s), user(s))).collect()
    }

    /// Removes a hot spare that is not in use by this pool.
    ///
    /// # Errors
    /// `NotFound` if it is not one; `Busy` if it is in use; `ReadOnly`, `Suspended`.
    #[doc(alias = "spa_vdev_remove")]
    pub fn remove_spare(&self, guid: Guid) -> Result<()> {
        self.check_no_checkpoint()?;
        if self.inner.state.lock().spares.find(guid).is_none() {
            return Err(Error::not_found(format!("no hot spare with guid {guid}")));
        }
        self.change_tree(
            move |tree| match tree.find(guid) {
                Some(_) => Err(Error::new(ErrorKind::Busy, "the hot spare is in use")),
                None => Ok(()),
            },
            move |inner, tx| {
                inner.forget_spare(guid, tx);
                Ok(())
            },
        )
    }

    /// From now on a free spare is taken for each device that is gone or is given up, also for those that already
    /// are; `open` opens it.
    ///
    /// # Errors
    /// `ReadOnly`, `Suspended`.
    pub fn watch_spares(&self, open: Arc<OpenSpare>) -> Result<()> {
        self.check_writable()?;
        if self.inner.state.lock().spares.devices().is_empty() {
            return Ok(());
        }
        self.inner.mend_spares(&*open);
        *self.inner.spare_watch.open.lock() = Some(open);
        if self.parts().tree().in_need_of_spares().is_empty() {
            return Ok(());
        }
        self.sync_now()
    }

    /// The guid of the hot spare of this pool that the device is, if it is one.
    ///
    /// # Errors
    /// `Busy` if it is in use.
    pub(crate) fn spare_on(&self, new: &NewDevice) -> Result<Option<Guid>> {
        let Some(owner) = label::owner(&*new.provider) else {
            return Ok(None);
        };
        if self.inner.state.lock().spares.find(owner.guid).is_none() {
            return Ok(None);
        }
        if self.inner.is_free(owner.guid, &owner) {
            return Ok(Some(owner.guid));
        }
        let text = format!("{}: the hot spare is in use", new.path);
        Err(Error::new(ErrorKind::Busy, text))
    }

    /// Labels new hot spares.
    pub(crate) fn new_spares(
        &self,
        new: &[NewDevice],
        sectors: (u32, AutoAshift),
    ) -> Result<Vec<Arc<Vdev>>> {
        let known: Vec<Guid> = {
            let state = self.inner.state.lock();
            let spares = state.spares.devices().iter();
            spares.map(|spare| spare.guid()).collect()
        };
        label_spares(new, sectors, &known)
    }
}

/// Labels hot spares for a pool that has some already. One that is a spare of another pool keeps its guid and its
/// labels.
///
/// # Errors
/// `TooBig` for a device that is too small; `Busy` for one that is there already; errors of writing it.
#[doc(alias = "spa_validate_aux")]
pub(crate) fn label_spares(
    new: &[NewDevice],
    sectors: (u32, AutoAshift),
    known: &[Guid],
) -> Result<Vec<Arc<Vdev>>> {
    let mut spares: Vec<Arc<Vdev>> = Vec::new();
    for device in new {
        let owner = label::owner(&*device.provider);
        let shared = owner.filter(|owner| {
            owner.state == PoolState::Spare || owner.state == PoolState::Active && owner.is_spare
        });
        let shared = shared.map(|owner| owner.guid);
        let is_listed =
            |guid: Guid| known.contains(&guid) || spares.iter().any(|spare| spare.guid() == guid);
        if shared.is_some_and(is_listed) {
            let text = format!("{}: it is a hot spare of the pool already", device.path);
            return Err(Error::new(ErrorKind::Busy, text));
        }
        let guid = shared.unwrap_or_else(|| Guid(nonzero_random()));
        let spare = open_new(device, sectors, Some(guid))?;
        if shared.is_none() {
            prepare(&spare)?;
        }
        spares.push(spare);
    }
    Ok(spares)
}

impl Inner {
    fn spare_user(&self, spare: &Vdev) -> SpareUser {
        if self.tree.find(spare.guid()).is_some() {
            return SpareUser::This;
        }
        let provider = spare.leaf().provider();
        match provider.and_then(|provider| label::owner(&*provider)) {
            Some(owner) if !self.is_free(spare.guid(), &owner) => SpareUser::Other(owner.pool),
            _ => SpareUser::None,
        }
    }

    /// Whether the hot spare `guid`, whose labels name this owner, is free.
    fn is_free(&self, guid: Guid, owner: &Owner) -> bool {
        let is_other =
            owner.state == PoolState::Active && owner.pool_guid != self.tree.root().guid();
        owner.guid == guid && !is_other && self.tree.find(guid).is_none()
    }

    /// Takes a hot spare off the list.
    pub(crate) fn forget_spare(&self, guid: Guid, tx: &Tx) {
        let (removed, name) = {
            let mut state = self.state.lock();
            (state.spares.remove(guid), state.name.clone())
        };
        if let Some(spare) = removed {
            let text = format!("{name} vdev (spare) {}", spare.name());
            self.core.notify("vdev_remove_aux", Some(&spare));
            self.core.log_internal("vdev remove", &text, tx);
        }
    }

    /// Gives spares the labels of free ones that were given back when the power failed.
    fn mend_spares(&self, open: &OpenSpare) {
        let spares = self.state.lock().spares.devices().to_vec();
        for spare in spares {
            let provider = spare.leaf().provider();
            let owner = provider.and_then(|provider| label::owner(&*provider));
            let is_left = owner.is_some_and(|owner| {
                owner.state == PoolState::Active && self.is_free(spare.guid(), &owner)
            });
            let path = spare.config().path.clone().filter(|_| is_left);
            if let Some(Ok(provider)) = path.map(|path| open(&path))
                && spare.leaf().open(provider).is_ok()
            {
                // If it fails, the spare is as free as before.
                let _ = spare.write_aux_labels(SPA_VERSION_FEATURES, PoolState::Spare);
            }
        }
    }

    /// A device was detached. If it is a hot spare, none is taken for what it had taken over for, as long as the pool
    /// is open: that would undo what was asked for.
    pub(crate) fn spare_given_back(&self, device: &Vdev) {
        if device.config().is_spare {
            let left = self.tree.in_need_of_spares();
            let mut tried = self.spare_watch.tried.lock();
            tried.extend(left.iter().map(|device| device.guid()));
        }
    }

    /// Takes a spare for each device that needs one. In the first pass.
    #[doc(alias = "zfs_retire_recv")]
    pub(crate) fn sync_spares(&self, tx: &Tx) -> Result<()> {
        if self.has_checkpoint_feature() {
            return Ok(());
        }
        let Some(open) = self.spare_watch.open.lock().clone() else {
            return Ok(());
        };
        let devices = self.tree.in_need_of_spares();
        let mut tried = self.spare_watch.tried.lock();
        tried.retain(|guid| devices.iter().any(|device| device.guid() == *guid));
        for device in devices {
            if !tried.insert(device.guid()) {
                continue;
            }
            // What hinders it now may be over when that has ended.
            let is_hindered = self.rebuilds.is_any_active();
            if self.replace_with_spare(&device, &*open, tx)? || is_hindered {
                tried.remove(&device.guid());
            }
        }
        Ok(())
    }

    /// Takes the first spare that fits; returns whether there was one.
    fn replace_with_spare(&self, device: &Vdev, open: &OpenSpare, tx: &Tx) -> Result<bool> {
        let spares = self.state.lock().spares.devices().to_vec();
        for spare in spares {
            let Some(resilver) = self.resilver_of(&spare) else {
                continue;
            };
            // One that cannot be opened or does not fit is as good as none.
            let Ok(taken) = self.open_free(&spare, open) else {
                continue;
            };
            let fits = self.tree.check_attach(device.guid(), &taken, Attach::Spare);
            let is_labeled = || !taken.kind().has_labels() || prepare(&taken).is_ok();
            if fits.is_ok() && is_labeled() {
                self.attach(device.guid(), &taken, (Attach::Spare, resilver), tx)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How a spare is resilvered: a distributed one sequentially, if that can be. Nothing while that of another spare
    /// hinders it.
    fn resilver_of(&self, spare: &Vdev) -> Option<Resilver> {
        let is_rebuilding = self.rebuilds.is_any_active();
        let is_enabled = self.features().count(DEVICE_REBUILD).is_some();
        if !spare.kind().has_labels() && is_enabled && !self.is_resilver_due() {
            return Some(Resilver::Sequential);
        }
        (!is_rebuilding).then_some(Resilver::Healing)
    }

    fn open_free(&self, spare: &Vdev, open: &OpenSpare) -> Result<Arc<Vdev>> {
        if !spare.kind().has_labels() {
            return self.distributed(spare);
        }
        let path = spare.config().path.clone();
        let path = path.ok_or_else(|| Error::not_found("its path is not known"))?;
        if self.tree.find(spare.guid()).is_some() {
            return Err(Error::new(ErrorKind::Busy, "in use"));
        }
        let provider = open(&path)?;
        let owner = label::owner(&*provider);
        if !owner.is_some_and(|owner| self.is_free(spare.guid(), &owner)) {
            return Err(Error::new(ErrorKind::Busy, "in use"));
        }
        let ashift = match self.props.get("ashift") {
            Some(PropValue::Number(ashift)) => u32::try_from(ashift).unwrap_or(0),
            _ => 0,
        };
        let new = NewDevice {
            kind: spare.kind(),
            path,
            provider,
        };
        open_new(&new, (ashift, AutoAshift::default()), Some(spare.guid()))
    }
}
