//! Taking the devices of an open pool offline, bringing them back, and clearing their errors.
//!
//! # Source
//! OpenZFS module/zfs/vdev.c (`vdev_online`, `vdev_clear`), module/zfs/spa.c (`zfs_ioc_clear`).

use std::sync::Arc;

use base::{Error, Guid, Result};
use geom::Namespace;
use geom::disk::OpenMode;
use machine::Holder;
use vdev::{Vdev, VdevAux, VdevState};

use crate::kept_errors;
use crate::open::OpenPool;

/// Given up on request.
const GIVEN_UP: (VdevState, VdevAux) = (VdevState::Faulted, VdevAux::External);

/// Why a device did not come back.
#[derive(Debug)]
pub enum Absence {
    /// The pool does not say where it is.
    PathUnknown,
    /// There is no provider of that name that can be opened.
    NotFound,
    /// It was not taken offline, and is missing as before.
    StillMissing,
    /// It was given up on request, and only clearing its errors brings it back.
    Faulted,
    /// Its label says that it is another device.
    OtherDevice,
    /// An error of the engine.
    Error(Error),
}

impl OpenPool {
    /// Takes a device offline; `temporarily`: until the pool is exported, at most.
    ///
    /// # Errors
    /// `Busy` if the pool needs it; `NotFound`.
    pub fn offline(&self, device: Guid, temporarily: bool) -> Result<()> {
        match self.cache(device) {
            Some(_) => self.offline_cache(device, temporarily)?,
            None => self.parts().tree().offline(device, temporarily)?,
        }
        self.forget_absent(device);
        if temporarily {
            self.changing().lock().offline.push(device.0);
        }
        Ok(())
    }

    /// Gives a device up, as if it had failed; `temporarily`: until the pool is exported, at most.
    ///
    /// # Errors
    /// As [`offline`](OpenPool::offline).
    pub fn fault(&self, device: Guid, temporarily: bool) -> Result<()> {
        match self.cache(device) {
            Some(_) => self.fault_cache(device, temporarily)?,
            None => self.parts().tree().fault(device, temporarily)?,
        }
        self.forget_absent(device);
        if temporarily {
            self.changing().lock().faulted.push(device.0);
        }
        Ok(())
    }

    fn forget_absent(&self, device: Guid) {
        let mut changing = self.changing().lock();
        changing.offline.retain(|guid| *guid != device.0);
        changing.faulted.retain(|guid| *guid != device.0);
    }

    /// Brings a device online.
    ///
    /// # Errors
    /// Why it is absent.
    pub fn online(&self, device: Guid) -> std::result::Result<(), Absence> {
        let device = match self.cache(device) {
            Some(cache) => cache,
            None => {
                let found = self.parts().tree().find_device(device);
                found.map_err(Absence::Error)?.0
            }
        };
        match () {
            () if device.leaf().state() == GIVEN_UP => Err(Absence::Faulted),
            () if self.is_missing(&device) => Err(Absence::StillMissing),
            () if device.leaf().is_usable() => Ok(()),
            () => self.bring_back(&device),
        }
    }

    /// Lets the top-level vdevs of some devices use what these have grown by.
    ///
    /// # Errors
    /// `NotFound` if there is no such device; `ReadOnly`, `Suspended`.
    pub fn grow(&self, devices: &[Guid]) -> Result<()> {
        let top_of = |device: &Guid| Ok(self.parts().tree().find_device(*device)?.1.guid());
        let tops: Result<Vec<Guid>> = devices.iter().map(top_of).collect();
        let tops = tops?;
        self.expand(&|top| tops.contains(&top)).map(|_| ())
    }

    /// Whether a device is missing although it was not taken offline.
    fn is_missing(&self, device: &Vdev) -> bool {
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
    fn bring_back(&self, device: &Arc<Vdev>) -> std::result::Result<(), Absence> {
        let path = device.config().path.clone().ok_or(Absence::PathUnknown)?;
        let world = self.pools().world();
        let names = world.names_for(Holder::Pool(self.name()));
        let provider = names.open(&path, OpenMode::ReadWrite);
        let provider = provider.map_err(|_| Absence::NotFound)?;
        let owner = vdev::label::owner(&*provider);
        let is_cache = self.cache(device.guid()).is_some();
        // The label of a cache device does not say of which pool it is.
        let pool = if is_cache { Guid(0) } else { self.guid() };
        if owner.is_none_or(|o| o.guid != device.guid() || o.pool_guid != pool) {
            return Err(Absence::OtherDevice);
        }
        let online = match is_cache {
            true => self.online_cache(device.guid(), provider),
            false => self.parts().tree().online(device.guid(), provider),
        };
        online.map_err(Absence::Error)?;
        self.forget_absent(device.guid());
        self.notify("vdev_online", Some(device));
        Ok(())
    }

    /// Brings back the devices that were faulted when the pool was opened, and clears the errors of the vdev
    /// `guid` and what is below it, or of all; of a cache device only if it is meant. Returns the names of the devices
    /// that did not come back.
    ///
    /// # Errors
    /// `NotFound` if there is no such vdev; errors of writing what is kept.
    pub fn clear(&self, guid: Option<Guid>) -> Result<Vec<(String, Absence)>> {
        let cache = guid.and_then(|guid| self.cache(guid));
        let devices = match (&cache, guid.and_then(|guid| self.parts().tree().find(guid))) {
            (Some(cache), _) => vec![Arc::clone(cache)],
            (None, Some(vdev)) => vdev.devices(),
            (None, None) => self.parts().tree().devices(),
        };
        let is_bad = |device: &&Arc<Vdev>| device.leaf().state().0 < VdevState::Healthy;
        let was_bad: Vec<Guid> = devices
            .iter()
            .filter(is_bad)
            .map(|device| device.guid())
            .collect();
        let given_up = devices.iter().filter(|device| is_given_up(device));
        let absent = given_up.filter_map(|device| {
            let absence = self.bring_back(device).err()?;
            Some((device.name(), absence))
        });
        let absent = absent.collect();
        match &cache {
            Some(cache) => cache.stats().clear_errors(),
            None => self.parts().tree().clear(guid)?,
        }
        devices
            .iter()
            .filter(|device| device.leaf().is_usable())
            .for_each(|device| self.forget_absent(device.guid()));
        for device in devices
            .iter()
            .filter(|device| was_bad.contains(&device.guid()))
        {
            self.notify("vdev_clear", Some(device));
        }
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
