//! Opening the devices of a tree, and what to do when they come, go or fail.
//!
//! # Source
//! OpenZFS `module/zfs/vdev.c` (`vdev_open`, `vdev_validate`, `vdev_offline`, `vdev_online`,
//! `vdev_fault`, `vdev_clear`).

use std::sync::Arc;

use base::{Error, ErrorKind, Guid, Result, Txg};
use geom::Provider;
use phys::label::allocatable_size;

use crate::label::Labels;
use crate::{Vdev, VdevAux, VdevState, VdevTree, logical_ashift};

impl VdevTree {
    /// Opens every device that `find` returns, except those that are offline or faulted. The outcome is
    /// in the states of the vdevs.
    #[doc(alias = "vdev_open")]
    pub fn open_devices(&self, find: &dyn Fn(&Vdev) -> Option<Arc<dyn Provider>>) {
        for top in &self.tops() {
            for device in top.devices() {
                let (state, _) = device.leaf().state();
                if matches!(state, VdevState::Offline | VdevState::Faulted) {
                    continue;
                }
                if !device.kind().has_labels() {
                    continue;
                }
                match find(&device) {
                    Some(provider) => open_device(&device, top, provider),
                    None => device
                        .leaf()
                        .close(VdevState::CantOpen, VdevAux::OpenFailed),
                }
            }
            top.open_spares();
        }
    }

    /// Marks the devices that are not there at an import: from then on they are shown by their guids,
    /// until they come back. Returns whether there are any that were not marked before.
    #[doc(alias = "vdev_set_state")]
    pub fn mark_absent(&self) -> bool {
        let mut is_new = false;
        for device in self.devices() {
            let is_absent = device.leaf().state() == (VdevState::CantOpen, VdevAux::OpenFailed);
            if is_absent && !device.config().not_present {
                device.update(|config| config.not_present = true);
                is_new = true;
            }
        }
        is_new
    }

    /// Checks the label of every open device: one that belongs to another pool, or is not the device
    /// that the tree names, is closed.
    #[doc(alias = "vdev_validate")]
    pub fn validate_devices(&self, pool: Guid, max_txg: Txg) {
        for top in self.tops() {
            for device in top.devices() {
                let Some(provider) = device.leaf().provider() else {
                    continue;
                };
                if !device.kind().has_labels() {
                    continue;
                }
                if let Err(aux) = validate(&device, &top, &*provider, pool, max_txg) {
                    device.leaf().close(VdevState::CantOpen, aux);
                }
            }
        }
    }

    /// The largest asize that a top-level vdev could have: its devices count as large as the smallest of
    /// those that are present.
    #[doc(alias = "vdev_max_asize")]
    #[must_use]
    pub fn max_asize(top: &Arc<Vdev>) -> Option<u64> {
        fn asize(vdev: &Arc<Vdev>) -> Option<u64> {
            if vdev.kind().is_device() {
                let leaf = vdev.leaf();
                return leaf.is_usable().then(|| allocatable_size(leaf.psize()));
            }
            let sizes: Vec<u64> = vdev.children().iter().filter_map(asize).collect();
            let least = sizes.iter().min().copied()?;
            // Absent ones are assumed to be as large as the smallest of the others.
            Some(vdev.ops().asize(&vec![least; vdev.children().len()]))
        }
        asize(top).map(|asize| base::align_down(asize, 1 << top.ashift()))
    }

    /// The asize to which a top-level vdev grows when it is expanded; `None` unless all its devices are
    /// healthy and have grown.
    #[must_use]
    pub fn asize_to_grow_to(top: &Arc<Vdev>) -> Option<u64> {
        let is_healthy = top.state().0 == VdevState::Healthy && !top.config().expanding;
        VdevTree::max_asize(top).filter(|asize| is_healthy && *asize > top.config().asize)
    }

    /// Takes a device offline; `temporarily` until the next import.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Busy`] if no other device has the same data.
    #[doc(alias = "vdev_offline")]
    pub fn offline(&self, guid: Guid, temporarily: bool) -> Result<()> {
        let device = self.device_to_spare(guid)?;
        // An error does not matter: the other devices have what this one has not made durable.
        let _ = device.leaf().flush();
        device.leaf().close(VdevState::Offline, VdevAux::None);
        device.update(|config| {
            config.offline = true;
            config.offline_temporarily = temporarily;
        });
        Ok(())
    }

    /// Brings a device back that was offline, missing or given up. Its DTL says what it missed.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::InvalidInput`] if the device cannot take its place.
    #[doc(alias = "vdev_online")]
    pub fn online(&self, guid: Guid, provider: Arc<dyn Provider>) -> Result<()> {
        let (device, top) = self.find_device(guid)?;
        device.leaf().clear_errors();
        device.stats().clear_errors();
        device.update(|config| {
            config.offline = false;
            config.offline_temporarily = false;
            // It lacks what a running resilver has already visited.
            config.resilver_txg = 0;
            config.rebuild_txg = 0;
        });
        let name = provider.name().to_owned();
        open_device(&device, &top, provider);
        match device.leaf().state() {
            (VdevState::Healthy, _) => Ok(()),
            (state, aux) => Err(Error::invalid(format!(
                "{name}: device is {state} ({aux:?})"
            ))),
        }
    }

    /// Gives a device up on request; until its errors are cleared, or only as long as the pool is open.
    ///
    /// # Errors
    /// As [`VdevTree::offline`].
    #[doc(alias = "vdev_fault")]
    pub fn fault(&self, guid: Guid, temporarily: bool) -> Result<()> {
        let device = self.device_to_spare(guid)?;
        // As in `offline`.
        let _ = device.leaf().flush();
        device.update(|config| config.offline_temporarily = temporarily);
        device
            .leaf()
            .set_state(VdevState::Faulted, VdevAux::External);
        Ok(())
    }

    /// Clears the errors of one vdev and all below it, or of all vdevs, and uses devices again that were
    /// given up for them.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    #[doc(alias = "vdev_clear")]
    pub fn clear(&self, guid: Option<Guid>) -> Result<()> {
        let vdev = match guid {
            Some(guid) => self.find(guid).ok_or_else(|| no_such(guid))?,
            None => self.root(),
        };
        vdev.visit(&mut |vdev| {
            vdev.stats().clear_errors();
            if vdev.kind().is_device() {
                if !vdev.leaf().is_usable() {
                    vdev.update(|config| (config.resilver_txg, config.rebuild_txg) = (0, 0));
                }
                if vdev.leaf().state().0 == VdevState::Faulted {
                    vdev.update(|config| config.offline_temporarily = false);
                }
                vdev.leaf().clear_errors();
            }
        });
        Ok(())
    }

    /// A device and the top-level vdev that it belongs to.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub fn find_device(&self, guid: Guid) -> Result<(Arc<Vdev>, Arc<Vdev>)> {
        let device_below = |top: &Arc<Vdev>| {
            let mut devices = top.devices().into_iter();
            devices
                .find(|device| device.guid() == guid)
                .map(|device| (device, Arc::clone(top)))
        };
        self.tops()
            .iter()
            .find_map(device_below)
            .ok_or_else(|| no_such(guid))
    }

    /// A device the pool can lose: other leaves have all its data, or it belongs to a log.
    fn device_to_spare(&self, guid: Guid) -> Result<Arc<Vdev>> {
        let (device, top) = self.find_device(guid)?;
        if top.can_do_without(&device) || top.config().is_log {
            return Ok(device);
        }
        let context = format!("{}: no other device has the same data", device.name());
        Err(Error::new(ErrorKind::Busy, context))
    }
}

fn no_such(guid: Guid) -> Error {
    Error::not_found(format!("no vdev with guid {guid}"))
}

/// Opens a device for its position in the tree: it must be large enough, and its sectors small enough.
fn open_device(device: &Vdev, top: &Vdev, provider: Arc<dyn Provider>) {
    let (size, sector) = (provider.mediasize(), logical_ashift(&*provider));
    let rotational = provider.shape().is_rotational;
    if device.leaf().open(provider).is_err() {
        return;
    }
    let needed = min_asize(top, device);
    if allocatable_size(size) < needed || sector > top.config().ashift {
        device.leaf().close(VdevState::CantOpen, VdevAux::BadLabel);
        return;
    }
    device.update(|config| {
        config.not_present = false;
        config.is_rotational = rotational;
    });
}

/// The least allocatable size of a device in its position in the tree, in bytes.
#[doc(alias = "vdev_get_min_asize")]
pub(crate) fn min_asize(top: &Vdev, device: &Vdev) -> u64 {
    fn below(vdev: &Vdev, asize: u64, device: &Vdev) -> Option<u64> {
        if std::ptr::eq(vdev, device) {
            return Some(asize);
        }
        let children = vdev.children();
        let each = vdev.ops().min_child_asize(children.len(), asize);
        children.iter().find_map(|child| below(child, each, device))
    }
    below(top, top.asize(), device).unwrap_or_else(|| top.asize())
}

fn validate(
    device: &Vdev,
    top: &Vdev,
    provider: &dyn Provider,
    pool: Guid,
    max_txg: Txg,
) -> std::result::Result<(), VdevAux> {
    let labels = Labels::read(provider).map_err(|_| VdevAux::BadLabel)?;
    let config = labels.best_config(max_txg).ok_or(VdevAux::BadLabel)?;
    let is = |key, guid: Guid| config.get_u64(key) == Some(guid.0);
    if !is("pool_guid", pool) {
        return Err(VdevAux::CorruptData);
    }
    // The last side of a mirror takes over the mirror's guid, perhaps before its label says so.
    let is_itself = is("guid", device.guid());
    let is_last_side = device.guid() == top.guid() && is("top_guid", top.guid());
    if is_itself || is_last_side {
        Ok(())
    } else {
        Err(VdevAux::CorruptData)
    }
}
