//! Changing the vdevs of an open pool, with devices that are named by their paths.
//!
//! # Source
//! OpenZFS module/zfs/zfs_ioctl.c (`zfs_ioc_vdev_attach`, `zfs_ioc_vdev_add`).

use std::sync::Arc;

use base::{Guid, Result};
use geom::Namespace;
use geom::disk::OpenMode;
use machine::Holder;
use nvpair::NvList;
use spa::Resilver;
use vdev::import::aux_configs;
use vdev::{Attach, AutoAshift, AuxSpec, NewDevice, PoolState, TopSpec, Vdev, label};

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

impl Pools {
    /// From now on a free hot spare of the pool is taken for each of its devices that is gone or is given up.
    pub(crate) fn watch_spares(&self, spa: &spa::Spa) -> Result<()> {
        if spa.is_readonly() {
            return Ok(());
        }
        let (pools, name) = (self.clone(), spa.name());
        spa.watch_spares(Arc::new(move |path| {
            let names = pools.world().names_for(Holder::Pool(name.clone()));
            names.open(path, OpenMode::ReadWrite)
        }))
    }

    /// The imported pool that lists a hot spare or a cache device with this guid.
    ///
    /// # Errors
    /// Errors of reading the cachefile.
    #[doc(alias = "find_aux")]
    pub fn pool_that_lists(
        &self,
        list: &str,
        guid: Guid,
        is_wanted: &dyn Fn(&str) -> bool,
    ) -> Result<Option<String>> {
        let lists_it = |config: &NvList| {
            aux_configs(config, list).any(|spare| spare.get_u64("guid") == Some(guid.0))
        };
        let configs = self.configs()?.into_iter();
        let mut found = configs.filter(|(name, config)| is_wanted(name) && lists_it(config));
        Ok(found.next().map(|(name, _)| name))
    }

    /// Opens a device that is to be a hot spare of a pool; one in use by another pool only to read its labels.
    pub(crate) fn open_aux(&self, holder: Holder, device: &PoolDevice) -> Result<NewDevice> {
        let names = self.world().names_for(holder.clone());
        let provider = names.open(&device.path, OpenMode::Inspect)?;
        let owner = label::owner(&*provider);
        let is_in_use =
            owner.is_some_and(|owner| owner.is_spare && owner.state == PoolState::Active);
        if !is_in_use {
            return self.open_device(holder, device);
        }
        Ok(NewDevice {
            kind: device.kind,
            path: device.path.clone(),
            provider,
        })
    }
}

impl OpenPool {
    /// Attaches a device beside another one, as a side of a mirror or as its replacement. `ashift`: 0 if the
    /// device decides.
    ///
    /// # Errors
    /// As [`spa::Spa::attach_with`]; errors of opening the device.
    pub fn attach(
        &self,
        beside: Guid,
        new: &PoolDevice,
        (attach, resilver): (Attach, Resilver),
        ashift: u32,
    ) -> Result<()> {
        let new = self.open_device(new)?;
        self.attach_with(beside, &new, attach, self.sectors(ashift), resilver)
    }

    /// Begins to expand a RAID-Z by a device. `ashift`: 0 if the device decides.
    ///
    /// # Errors
    /// As [`spa::Spa::widen`]; errors of opening the device.
    pub fn widen(&self, raidz: Guid, new: &PoolDevice, ashift: u32) -> Result<()> {
        let new = self.open_device(new)?;
        spa::Spa::widen(self, raidz, &new, self.sectors(ashift))
    }

    /// The distributed spare of this name.
    #[must_use]
    pub fn distributed_spare(&self, name: &str) -> Option<Guid> {
        let is_it = |spare: &Vdev| !spare.kind().has_labels() && spare.name() == name;
        let mut spares = self.spares().into_iter();
        let (spare, _) = spares.find(|(spare, _)| is_it(spare))?;
        Some(spare.guid())
    }

    /// Adds top-level vdevs and hot spares. `ashift`: 0 if the devices decide. `is_any`: also if the others have
    /// another one.
    ///
    /// # Errors
    /// As [`spa::Spa::add`]; errors of opening the devices.
    pub fn add(
        &self,
        tops: &[TopSpec<PoolDevice>],
        aux: &AuxSpec<PoolDevice>,
        ashift: u32,
        is_any: bool,
    ) -> Result<()> {
        let open = |top: &TopSpec<PoolDevice>| top.try_map(|device| self.open_device(device));
        let tops: Result<Vec<_>> = tops.iter().map(open).collect();
        let aux = aux.try_map(|device| self.pools().open_aux(self.device_holder(), device))?;
        spa::Spa::add(self, &tops?, &aux, self.sectors(ashift), is_any)
    }

    fn open_device(&self, device: &PoolDevice) -> Result<NewDevice> {
        self.pools().open_device(self.device_holder(), device)
    }

    fn device_holder(&self) -> Holder {
        Holder::Pool(self.name())
    }

    fn sectors(&self, ashift: u32) -> (u32, AutoAshift) {
        (ashift, self.pools().settings(&self.name()).auto_ashift)
    }
}
