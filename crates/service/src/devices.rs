//! Bringing the devices of an open pool back, and clearing their errors.
//!
//! # Source
//! OpenZFS module/zfs/vdev.c (`vdev_online`, `vdev_clear`), module/zfs/spa.c (`zfs_ioc_clear`).

use std::sync::Arc;

use base::{Error, Guid, Result};
use geom::Namespace;
use geom::disk::OpenMode;
use machine::Holder;
use vdev::{Vdev, VdevState};

use crate::kept_errors;
use crate::open::OpenPool;

/// Why a device did not come back.
#[derive(Debug)]
pub enum Absence {
    /// The pool does not say where it is.
    PathUnknown,
    /// There is no provider of that name that can be opened.
    NotFound,
    /// Its label says that it is another device.
    OtherDevice,
    /// An error of the engine.
    Error(Error),
}

impl OpenPool {
    /// Whether a device is missing although it was not taken offline.
    #[must_use]
    pub fn is_missing(&self, device: &Vdev) -> bool {
        let config = device.config();
        let open = |path: &String| {
            let world = self.pools().world();
            let names = world.names_for(Holder::Pool(self.name()));
            names.open(path, OpenMode::Inspect).ok()
        };
        !device.leaf().is_usable()
            && !config.offline
            && config.path.as_ref().and_then(open).is_none()
    }

    /// Opens a device that is not in use, if its label says that it is the right one.
    ///
    /// # Errors
    /// Why it did not come back.
    pub fn bring_back(&self, device: &Arc<Vdev>) -> std::result::Result<(), Absence> {
        let path = device.config().path.clone().ok_or(Absence::PathUnknown)?;
        let world = self.pools().world();
        let names = world.names_for(Holder::Pool(self.name()));
        let provider = names.open(&path, OpenMode::ReadWrite);
        let provider = provider.map_err(|_| Absence::NotFound)?;
        let owner = vdev::label::owner(&*provider);
        if owner.is_none_or(|o| o.guid != device.guid() || o.pool_guid != self.guid()) {
            return Err(Absence::OtherDevice);
        }
        let online = self.tree().online(device.guid(), provider);
        online.map_err(Absence::Error)
    }

    /// Brings back the devices that were faulted when the pool was opened, and clears the errors of the vdev
    /// `guid` and what is below it, or of all. Returns the devices that did not come back.
    ///
    /// # Errors
    /// `NotFound` if there is no such vdev; errors of writing what is kept.
    pub fn clear(&self, guid: Option<Guid>) -> Result<Vec<(Arc<Vdev>, Absence)>> {
        let devices = match guid.and_then(|guid| self.tree().find(guid)) {
            Some(vdev) => vdev.devices(),
            None => self.tree().devices(),
        };
        let given_up = devices.iter().filter(|device| is_given_up(device));
        let absent = given_up.filter_map(|device| {
            let absence = self.bring_back(device).err()?;
            Some((Arc::clone(device), absence))
        });
        let absent = absent.collect();
        self.tree().clear(guid)?;
        kept_errors::forget_devices(self.pools(), self.guid(), |device| {
            guid.is_none() || devices.iter().any(|cleared| cleared.guid() == device)
        })?;
        Ok(absent)
    }
}

/// Whether a device was already faulted when the pool was opened, and is therefore not open.
fn is_given_up(device: &Vdev) -> bool {
    let leaf = device.leaf();
    leaf.state().0 == VdevState::Faulted && leaf.provider().is_none()
}
