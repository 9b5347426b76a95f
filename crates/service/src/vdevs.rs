//! Changing the vdevs of an open pool, with devices that are named by their paths.
//!
//! # Source
//! OpenZFS module/zfs/zfs_ioctl.c (`zfs_ioc_vdev_attach`, `zfs_ioc_vdev_add`).

use base::{Guid, Result};
use geom::Namespace;
use geom::disk::OpenMode;
use machine::Holder;
use vdev::{Attach, AutoAshift, NewDevice, TopSpec};

use crate::create::PoolDevice;
use crate::open::OpenPool;
use crate::pools::Pools;

impl Pools {
    /// Opens a device that is to be part of a pool.
    pub(crate) fn open_device(&self, holder: Holder, device: &PoolDevice) -> Result<NewDevice> {
        let names = self.world().names_for(holder);
        Ok(NewDevice {
            kind: device.kind,
            path: device.path.clone(),
            provider: names.open(&device.path, OpenMode::ReadWrite)?,
        })
    }
}

impl OpenPool {
    /// Attaches a device beside another one, as a side of a mirror or as its replacement. `ashift`: 0 if the
    /// device decides.
    ///
    /// # Errors
    /// As [`spa::Spa::attach`]; errors of opening the device.
    pub fn attach(
        &self,
        beside: Guid,
        new: &PoolDevice,
        attach: Attach,
        ashift: u32,
    ) -> Result<()> {
        let new = self.open_device(new)?;
        spa::Spa::attach(self, beside, &new, attach, self.sectors(ashift))
    }

    /// Adds top-level vdevs. `ashift`: 0 if the devices decide. `is_any`: also if the others have another one.
    ///
    /// # Errors
    /// As [`spa::Spa::add`]; errors of opening the devices.
    pub fn add(&self, tops: &[TopSpec<PoolDevice>], ashift: u32, is_any: bool) -> Result<()> {
        let open = |top: &TopSpec<PoolDevice>| top.try_map(|device| self.open_device(device));
        let tops: Result<Vec<_>> = tops.iter().map(open).collect();
        spa::Spa::add(self, &tops?, self.sectors(ashift), is_any)
    }

    fn open_device(&self, device: &PoolDevice) -> Result<NewDevice> {
        let holder = Holder::Pool(self.name());
        self.pools().open_device(holder, device)
    }

    fn sectors(&self, ashift: u32) -> (u32, AutoAshift) {
        (ashift, self.pools().settings(&self.name()).auto_ashift)
    }
}
