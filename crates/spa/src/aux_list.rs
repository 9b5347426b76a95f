//! Lists of devices that are not in the vdev tree: hot spares and cache devices.
//!
//! # On disk
//! An object of the MOS, named in the pool directory as the list in it: a packed nvlist whose one entry is an array of
//! the configs of the devices, without `id`. The object stays when the list becomes empty. Here the config in memory,
//! which goes into the cachefile, has the list in its tree, too.
//!
//! # Source
//! OpenZFS `module/zfs/spa.c` (`spa_ld_open_aux_vdevs`, `spa_load_spares`, `spa_sync_aux_dev`).

use std::sync::Arc;

use base::{Context, Guid, ObjectId, Result};
use dmu::{NewObject, Objset, Tx};
use nvpair::NvList;
use phys::ObjectType;
use phys::pool_names::{L2CACHE, SPARES};
use vdev::import::{AUX_LISTS, FoundPool, aux_configs};
use vdev::{Target, Vdev, VdevAux, VdevState, VdevTree};
use zap::directory;

use crate::config::{BLOCK_BYTES, read_packed, write_packed};
use crate::spa::{Inner, State};

/// The tree's part of a pool's config.
const TREE: &str = "vdev_tree";

/// One list.
#[doc(alias = "spa_aux_vdev_t")]
pub(crate) struct AuxList {
    name: &'static str,
    /// sav_object
    object: Option<ObjectId>,
    /// sav_vdevs
    devices: Vec<Arc<Vdev>>,
    /// sav_sync
    is_dirty: bool,
}

impl AuxList {
    /// The list of a new pool.
    pub(crate) fn created(name: &'static str, devices: Vec<Arc<Vdev>>) -> AuxList {
        AuxList {
            name,
            object: None,
            is_dirty: !devices.is_empty(),
            devices,
        }
    }

    /// The list of a pool with this config, which has it from the MOS; devices that were found are open.
    #[doc(alias = "spa_load_spares")]
    pub(crate) fn open(
        mos: &Arc<Objset>,
        config: &NvList,
        name: &'static str,
        found: &FoundPool,
        tree: &VdevTree,
    ) -> Result<AuxList> {
        let mut list = AuxList {
            name,
            object: directory::find(mos, name)?,
            devices: Vec::new(),
            is_dirty: false,
        };
        for config in aux_configs(config, name) {
            let device = Vdev::from_aux_config(config).within(|| name)?;
            if !tree.open_listed_spare(&device) {
                list.is_dirty |= open_device(&device, found);
            }
            list.devices.push(device);
        }
        Ok(list)
    }

    /// Without its devices: a pool that is split off takes none of them along.
    pub(crate) fn emptied(mut self) -> AuxList {
        self.is_dirty |= self.object.is_some();
        self.devices.clear();
        self
    }

    pub(crate) fn devices(&self) -> &[Arc<Vdev>] {
        &self.devices
    }

    pub(crate) fn find(&self, guid: Guid) -> Option<&Arc<Vdev>> {
        self.devices.iter().find(|device| device.guid() == guid)
    }

    pub(crate) fn extend(&mut self, devices: Vec<Arc<Vdev>>) {
        self.is_dirty |= !devices.is_empty();
        self.devices.extend(devices);
    }

    #[doc(alias = "spa_vdev_remove_aux")]
    pub(crate) fn remove(&mut self, guid: Guid) -> Option<Arc<Vdev>> {
        let mut devices = self.devices.iter();
        let at = devices.position(|device| device.guid() == guid)?;
        self.is_dirty = true;
        Some(self.devices.remove(at))
    }

    /// A device in it is other than the list on disk says.
    pub(crate) fn changed(&mut self) {
        self.is_dirty = true;
    }

    fn configs(&self) -> Vec<NvList> {
        let devices = self.devices.iter();
        devices
            .map(|device| device.generate_config(0, 0, Target::Aux))
            .collect()
    }
}

/// Gives the device its provider if it was found, is not offline and was not given up on request; returns whether its
/// path is another than the list says.
fn open_device(device: &Vdev, found: &FoundPool) -> bool {
    if device.config().offline {
        device.leaf().close(VdevState::Offline, VdevAux::None);
        return false;
    }
    if device.leaf().state().0 == VdevState::Faulted {
        return false;
    }
    let path = device.config().path.clone();
    let guid = device.guid();
    let in_use = || Some(&found.device(guid, path.as_deref())?.provider);
    let provider = found.aux_device(guid, path.as_deref()).or_else(in_use);
    let Some(provider) = provider else {
        let leaf = device.leaf();
        leaf.close(VdevState::CantOpen, VdevAux::OpenFailed);
        return false;
    };
    // If it is too small its state says so.
    let _ = device.leaf().open(Arc::clone(provider));
    let name = provider.name();
    device.update(|config| config.path = Some(name.to_owned()));
    path.as_deref() != Some(name)
}

/// Adds the lists in the MOS to the config of a pool.
#[doc(alias = "spa_ld_open_aux_vdevs")]
pub(crate) fn add_lists(mos: &Arc<Objset>, config: &mut NvList) -> Result<()> {
    for name in AUX_LISTS {
        let Some(object) = directory::find(mos, name)? else {
            continue;
        };
        let packed = read_packed(mos, object).within(|| name)?;
        let list = packed.get_lists(name).unwrap_or_default().to_vec();
        set_list(config, name, list);
    }
    Ok(())
}

fn set_list(config: &mut NvList, name: &str, list: Vec<NvList>) {
    if let Some(tree) = config.get_list_mut(TREE)
        && (!list.is_empty() || tree.contains(name))
    {
        tree.set(name, list);
    }
}

impl State {
    /// Adds the lists to the config that goes into the cachefile.
    pub(crate) fn list_aux(&mut self) {
        set_list(&mut self.config, SPARES, self.spares.configs());
        set_list(&mut self.config, L2CACHE, self.caches.configs());
    }

    fn aux_lists(&mut self) -> [&mut AuxList; 2] {
        [&mut self.spares, &mut self.caches]
    }
}

impl Inner {
    /// Writes the lists that changed.
    #[doc(alias = "spa_sync_aux_dev")]
    pub(crate) fn sync_aux(&self, tx: &Tx) -> Result<()> {
        for at in 0..AUX_LISTS.len() {
            let (name, object, configs) = {
                let mut state = self.state.lock();
                let list = &mut *state.aux_lists()[at];
                if !std::mem::take(&mut list.is_dirty) {
                    continue;
                }
                let changed = (list.name, list.object, list.configs());
                state.list_aux();
                changed
            };
            let object = match object {
                Some(object) => object,
                None => self.create_list(at, name, tx)?,
            };
            let list = NvList::new().with(name, configs);
            write_packed(&self.mos, object, &list, tx)?;
        }
        Ok(())
    }

    fn create_list(&self, at: usize, name: &str, tx: &Tx) -> Result<ObjectId> {
        let new = NewObject::new(ObjectType::PACKED_NVLIST)
            .blksz(BLOCK_BYTES)
            .bonus(ObjectType::PACKED_NVLIST_SIZE, 8);
        let object = self.mos.object_alloc(tx, &new)?.id();
        directory::set(&self.mos, name, object.0, tx)?;
        self.state.lock().aux_lists()[at].object = Some(object);
        Ok(object)
    }
}
