//! Splitting a pool of mirrors: one device of each becomes a pool of its own, with the same contents.
//!
//! # What it is
//! The old pool takes the devices offline and goes on without them. What they have then is a whole pool, up to the
//! txg before. It is opened with another config: another name and guid, the devices as top-level vdevs, holes where
//! the old pool has log devices, no hot spares, no cache devices. Its first txg writes this config and its labels, and
//! frees what the MOS has of devices that it lacks. Then the old pool detaches the devices.
//!
//! # On disk
//! While it splits, the config of the old pool has `splitcfg` with the guids of the devices (`guid_list`). The new
//! pool has it with the guid of the old one (`split_guid`), which is also in its labels, until it is next opened.
//!
//! # Crash argument
//! Before the first uberblock of the new pool is on disk, there is only the old one: its devices are whole up to the
//! txg in which they were taken offline, what is later is in their DTL when they are found again, and what the new pool
//! has written lies in what was free in that txg. From then on the new pool exists: which devices it has, its
//! labels say (`vdev::split`). An old pool whose config has a list, all of which is in another pool, detaches them when
//! it is opened; otherwise it takes them back.
//!
//! # Source
//! OpenZFS `module/zfs/spa.c` (`spa_vdev_split_mirror`, `spa_try_repair`).

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Error, ErrorKind, Guid, ObjectId, Result, Txg, VdevId};
use dmu::Tx;
use geom::Provider;
use nvpair::NvList;
use phys::uberblock::UberblockPhys;
use rt::Mutex;
use vdev::import::{FoundDevice, FoundPool};
use vdev::label::Labels;
use vdev::{Detached, PoolState, Vdev, VdevAux, VdevState, VdevTree};

use crate::create::nonzero_random;
use crate::load::ImportOptions;
use crate::spa::{Inner, Settings, Spa};

/// The new pool of a split, as the txg is that it begins with.
pub(crate) struct SplitOff {
    /// The guid of the old pool.
    pub(crate) from: Guid,
    from_name: String,
    /// Objects of devices that it does not get.
    dtls: Vec<u64>,
    zaps: Vec<u64>,
    /// Number, metaslab array and count of metaslabs of top-level vdevs that it does not get.
    arrays: Vec<(VdevId, u64, u64)>,
}

/// What is known when the devices have been taken offline.
struct Taken {
    tree: NvList,
    uberblock: UberblockPhys,
    split: SplitOff,
}

impl Spa {
    /// Splits these devices off, one side of each mirror, and returns the new pool, open. `prepare` is run on it before
    /// the old pool gives the devices up: if it fails, the pool is as before, and the devices are resilvered.
    ///
    /// # Errors
    /// `InvalidInput` unless the pool is made of mirrors, and `devices` has one healthy side of each; `Busy` if a side
    /// lacks something or is needed, or a vdev is being removed; `Exists` if there is a checkpoint; `ReadOnly`,
    /// `Suspended`; errors of `prepare`.
    #[doc(alias = "spa_vdev_split_mirror")]
    pub fn split(
        &self,
        name: &str,
        devices: &[Guid],
        settings: Settings,
        prepare: &dyn Fn(&Spa) -> Result<()>,
    ) -> Result<Spa> {
        self.check_writable()?;
        self.check_no_checkpoint()?;
        if self.is_removing() {
            let text = "device removal in progress";
            return Err(Error::new(ErrorKind::Busy, text));
        }
        let guid = Guid(nonzero_random());
        let (_, sides) = self.inner.tree.split_config(devices, guid)?;
        self.settle()?;
        self.dsl().drop_logs()?;
        self.settle()?;
        let provider = |side: &Arc<Vdev>| {
            let text = || Error::invalid(format!("{} is not open", side.name()));
            Ok((side.guid(), side.leaf().provider().ok_or_else(text)?))
        };
        let providers: Result<Vec<_>> = sides.iter().flatten().map(provider).collect();
        let providers = providers?;
        let taken = self.take_offline(devices, guid)?;
        let new = self.open_new(name, guid, taken, &providers, settings);
        let prepared = new.and_then(|new| prepare(&new).map(|()| new));
        match prepared {
            Ok(new) => {
                self.give_up(devices.to_vec())?;
                Ok(new)
            }
            Err(error) => {
                self.take_back(&providers)?;
                Err(error)
            }
        }
    }

    /// Takes the devices offline in syncing context: the last txg is the last one that they have all of.
    fn take_offline(&self, devices: &[Guid], guid: Guid) -> Result<Taken> {
        let devices = devices.to_vec();
        let list = devices.clone();
        let slot = Arc::new(Mutex::new(None));
        let taken = Arc::clone(&slot);
        self.change_tree(
            move |tree| tree.split_config(&list, guid).map(drop),
            move |inner, _| {
                let (tree, sides) = inner.tree.split_config(&devices, guid)?;
                let of_side =
                    |side: &Option<Arc<Vdev>>| side.as_ref().map_or(0, |side| side.guid().0);
                let uberblock = inner.state.lock().synced;
                *taken.lock() = Some(Taken {
                    tree,
                    uberblock,
                    split: inner.left_behind(&devices),
                });
                for device in &devices {
                    inner.tree.offline(*device, true)?;
                }
                inner.state.lock().split_list = sides.iter().map(of_side).collect();
                inner.tree_changed();
                Ok(())
            },
        )?;
        let taken = slot.lock().take();
        Ok(taken.expect("the task has run"))
    }

    fn open_new(
        &self,
        name: &str,
        guid: Guid,
        taken: Taken,
        providers: &[(Guid, Arc<dyn Provider>)],
        settings: Settings,
    ) -> Result<Spa> {
        let found = |(guid, provider): &(Guid, Arc<dyn Provider>)| {
            let labels = Labels::read(&**provider)?;
            Ok(FoundDevice {
                uberblock: labels.best_uberblock(Txg(u64::MAX)),
                provider: Arc::clone(provider),
                labels,
                guid: *guid,
            })
        };
        let devices: Result<Vec<_>> = providers.iter().map(found).collect();
        let host = self.inner.host.clone();
        let mut config = NvList::new()
            .with("name", name)
            .with("pool_guid", guid.0)
            .with("vdev_tree", taken.tree);
        for (key, value) in [
            ("comment", self.comment()),
            ("compatibility", self.compatibility()),
        ] {
            if let Some(value) = value {
                config.add(key, value);
            }
        }
        let found = FoundPool {
            guid,
            name: name.to_owned(),
            state: PoolState::Active,
            hostid: host.id,
            hostname: host.name.clone(),
            config,
            uberblock: Some(taken.uberblock),
            root: None,
            devices: devices?,
            aux: Vec::new(),
            elsewhere: BTreeSet::new(),
        };
        let options = ImportOptions {
            found,
            new_name: None,
            readonly: false,
            max_txg: None,
            force: true,
            gives_up_logs: true,
            tolerates_missing: false,
            rewinds: false,
            host,
            settings,
        };
        Spa::open_split(options, &taken.uberblock, taken.split)
    }

    /// Queues what belongs into the first txg of the new pool.
    pub(crate) fn begin_split(&self, split: SplitOff) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        let tx = self.inner.groups.hold_open(0)?;
        self.dsl()
            .queue_task(&tx, move |_, tx| inner.forget_left_behind(&split, tx));
        Ok(())
    }

    /// The new pool is on disk: the devices are no longer part of this one.
    fn give_up(&self, devices: Vec<Guid>) -> Result<()> {
        self.change_tree(
            |_| Ok(()),
            move |inner, tx| {
                devices
                    .iter()
                    .try_for_each(|device| inner.split_away(*device, tx))?;
                inner.state.lock().split_list.clear();
                inner.tree_changed();
                Ok(())
            },
        )
    }

    /// There is no new pool: the devices are resilvered.
    fn take_back(&self, providers: &[(Guid, Arc<dyn Provider>)]) -> Result<()> {
        for (device, provider) in providers {
            self.inner.tree.online(*device, Arc::clone(provider))?;
        }
        self.inner.state.lock().split_list.clear();
        self.config_changed()?;
        self.resilver_if_needed()
    }

    /// Ends a split that the power failed in: if all devices are in the new pool, they are detached; otherwise they
    /// are devices of this one.
    #[doc(alias = "spa_try_repair")]
    pub(crate) fn end_split(&self, elsewhere: &BTreeSet<Guid>) -> Result<()> {
        let list = self.inner.state.lock().split_list.clone();
        let list: Vec<Guid> = list.into_iter().filter(|g| *g != 0).map(Guid).collect();
        if list.is_empty() || self.is_readonly() {
            return Ok(());
        }
        let tree = &self.inner.tree;
        let is_gone =
            |device: &Guid| elsewhere.contains(device) && tree.check_detach(*device).is_ok();
        if list.iter().all(is_gone) {
            return self.give_up(list);
        }
        self.inner.state.lock().split_list.clear();
        self.config_changed()
    }
}

/// Notes of devices that the pool `config` was split from, and that are found in another pool, why they are missing.
pub(crate) fn mark_split(config: &NvList, tree: &VdevTree, elsewhere: &BTreeSet<Guid>) {
    let list = vdev::split_list(config);
    for device in list.iter().filter(|device| elsewhere.contains(device)) {
        if let Ok((device, _)) = tree.find_device(*device) {
            let leaf = device.leaf();
            leaf.close(VdevState::CantOpen, VdevAux::SplitPool);
        }
    }
}

impl Inner {
    /// The objects of all devices but these.
    fn left_behind(&self, devices: &[Guid]) -> SplitOff {
        let (mut dtls, mut zaps, mut arrays) = (Vec::new(), Vec::new(), Vec::new());
        for (id, top) in (0..).map(VdevId).zip(self.tree.tops()) {
            for leaf in top.devices() {
                if !devices.contains(&leaf.guid()) {
                    dtls.push(leaf.config().dtl_object);
                    zaps.push(leaf.config().leaf_zap);
                }
            }
            let config = top.config();
            if config.is_log {
                zaps.push(config.top_zap);
                arrays.push((id, config.ms_array, top.metaslab_count()));
            }
        }
        for objects in [&mut dtls, &mut zaps] {
            objects.retain(|object| *object != 0);
        }
        arrays.retain(|(_, array, _)| *array != 0);
        SplitOff {
            from: self.tree.root().guid(),
            from_name: self.state.lock().name.clone(),
            dtls,
            zaps,
            arrays,
        }
    }

    /// Frees what the MOS of a new pool has of devices that it did not get.
    fn forget_left_behind(&self, split: &SplitOff, tx: &Tx) -> Result<()> {
        for dtl in &split.dtls {
            self.maps.free(ObjectId(*dtl), tx)?;
        }
        for (id, array, count) in &split.arrays {
            self.maps.note_array(*id, ObjectId(*array));
            self.maps.destroy_array(*id, *count, tx)?;
        }
        for zap in &split.zaps {
            self.destroy_vdev_zap(ObjectId(*zap), tx)?;
        }
        let text = format!("from pool {}", split.from_name);
        self.core.log_internal("split", &text, tx);
        Ok(())
    }

    /// Takes a device out of the tree; its labels are those of another pool.
    #[doc(alias = "vdev_split")]
    fn split_away(&self, guid: Guid, tx: &Tx) -> Result<()> {
        let Detached { device, .. } = self.tree.detach(guid)?;
        let path = device.config().path.clone();
        let text = format!("vdev={}", path.as_deref().unwrap_or("none"));
        self.core.log_internal("detach", &text, tx);
        self.forget_objects(&device, tx)
    }
}
