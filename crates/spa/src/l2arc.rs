//! The cache devices of a pool: which ones there are, and when they are written to.
//!
//! # What it is
//! The list is in the MOS, like that of hot spares. What a device holds is found out when a block is first read
//! (`arc::l2`). It is written to after a txg has been synced and when the pool is closed: with blocks that were read or
//! written meanwhile, as far as the property `secondarycache` of their datasets allows. A pool that is open for
//! reading only reads from it.
//!
//! # Source
//! OpenZFS `module/zfs/spa.c` (`spa_load_l2cache`), `module/zfs/arc.c` (`l2arc_add_vdev`, `l2arc_remove_vdev`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use arc::l2::{L2Device, L2Io, L2Shape};
use base::{Error, ErrorKind, Guid, ObjectId, ObjsetId, Result, align_down};
use dmu::Tx;
use geom::Provider;
use phys::PropValue;
use phys::label::allocatable_size;
use phys::uberblock::SPA_VERSION_FEATURES;
use vdev::label::owner;
use vdev::{AutoAshift, NewDevice, PoolState, Vdev, VdevAux, VdevState};
use zio::Priority;

use crate::spa::{Inner, Spa};
use crate::vdevs::open_new;

/// The property that selects what may be on cache devices.
const SECONDARYCACHE: &str = "secondarycache";
/// `ZFS_CACHE_METADATA`
const CACHE_METADATA: u64 = 1;
/// `ZFS_CACHE_ALL`
const CACHE_ALL: u64 = 2;

/// A leaf as a cache device.
struct Leaf(Arc<Vdev>);

impl L2Io for Leaf {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.leaf().read(Priority::SyncRead, offset, buf)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.0.leaf().write(Priority::AsyncWrite, offset, &[bytes])
    }
}

impl Spa {
    /// The cache devices, with how many bytes of each are in use.
    #[must_use]
    pub fn caches(&self) -> Vec<(Arc<Vdev>, u64)> {
        let caches = self.inner.state.lock().caches.devices().to_vec();
        let used = |cache: &Arc<Vdev>| {
            let device = self.inner.l2.device(cache.guid());
            device.map_or(0, |device| device.used().0)
        };
        caches.iter().map(|c| (Arc::clone(c), used(c))).collect()
    }

    /// Reads that cache devices answered, and those that they did not.
    #[must_use]
    pub fn cache_hits_and_misses(&self) -> (u64, u64) {
        self.inner.l2.hits_and_misses()
    }

    /// Removes a cache device.
    ///
    /// # Errors
    /// `NotFound` if it is not one; `ReadOnly`, `Suspended`.
    #[doc(alias = "spa_vdev_remove")]
    pub fn remove_cache(&self, guid: Guid) -> Result<()> {
        self.check_no_checkpoint()?;
        self.known_cache(guid)?;
        self.change_tree(
            |_| Ok(()),
            move |inner, tx| {
                inner.forget_cache(guid, tx);
                Ok(())
            },
        )
    }

    /// A cache device.
    #[must_use]
    pub fn cache(&self, guid: Guid) -> Option<Arc<Vdev>> {
        self.inner.state.lock().caches.find(guid).cloned()
    }

    /// Takes a cache device offline: it is neither read nor written to any more. `temporarily` until the next import.
    ///
    /// # Errors
    /// `NotFound` if it is not one.
    #[doc(alias = "vdev_offline")]
    pub fn offline_cache(&self, guid: Guid, temporarily: bool) -> Result<()> {
        self.leave_cache(guid, (VdevState::Offline, VdevAux::None), temporarily)
    }

    /// Gives a cache device up on request; until its errors are cleared, or only as long as the pool is open.
    ///
    /// # Errors
    /// `NotFound` if it is not one.
    #[doc(alias = "vdev_fault")]
    pub fn fault_cache(&self, guid: Guid, temporarily: bool) -> Result<()> {
        self.leave_cache(guid, (VdevState::Faulted, VdevAux::External), temporarily)
    }

    fn leave_cache(
        &self,
        guid: Guid,
        (state, aux): (VdevState, VdevAux),
        temporarily: bool,
    ) -> Result<()> {
        let cache = self.known_cache(guid)?;
        self.inner.l2.remove(guid);
        cache.leaf().close(state, aux);
        cache.update(|config| {
            config.offline |= state == VdevState::Offline;
            config.offline_temporarily = temporarily;
        });
        self.inner.state.lock().caches.changed();
        Ok(())
    }

    /// Uses a cache device again that was offline, missing or given up; what it holds is known again when it is first
    /// read.
    ///
    /// # Errors
    /// `NotFound` if it is not one; `InvalidInput` if it is too small.
    #[doc(alias = "vdev_online")]
    pub fn online_cache(&self, guid: Guid, provider: Arc<dyn Provider>) -> Result<()> {
        let cache = self.known_cache(guid)?;
        cache.leaf().clear_errors();
        cache.stats().clear_errors();
        cache.update(|config| (config.offline, config.offline_temporarily) = (false, false));
        cache.leaf().open(provider)?;
        self.inner.state.lock().caches.changed();
        self.inner.open_caches();
        Ok(())
    }

    fn known_cache(&self, guid: Guid) -> Result<Arc<Vdev>> {
        let cache = self.cache(guid);
        cache.ok_or_else(|| Error::not_found(format!("no cache device with guid {guid}")))
    }

    /// Labels new cache devices.
    pub(crate) fn new_caches(
        &self,
        new: &[NewDevice],
        sectors: (u32, AutoAshift),
    ) -> Result<Vec<Arc<Vdev>>> {
        let known: Vec<Guid> = {
            let state = self.inner.state.lock();
            let caches = state.caches.devices().iter();
            caches.map(|cache| cache.guid()).collect()
        };
        let caches = label_caches(new, sectors, &known)?;
        for cache in &caches {
            self.inner.l2_device(cache).clear()?;
        }
        Ok(caches)
    }
}

/// Labels cache devices for a pool that has some already.
///
/// # Errors
/// `TooBig` for a device that is too small; `Busy` for one that is there already; errors of writing it.
#[doc(alias = "spa_validate_aux")]
pub(crate) fn label_caches(
    new: &[NewDevice],
    sectors: (u32, AutoAshift),
    known: &[Guid],
) -> Result<Vec<Arc<Vdev>>> {
    let mut caches: Vec<Arc<Vdev>> = Vec::new();
    for device in new {
        let owner = owner(&*device.provider);
        let old = owner.filter(|owner| owner.state == PoolState::L2Cache);
        if old.is_some_and(|old| known.contains(&old.guid)) {
            let text = format!("{}: it is a cache device of the pool already", device.path);
            return Err(Error::new(ErrorKind::Busy, text));
        }
        let cache = open_new(device, sectors, None)?;
        cache.write_aux_labels(SPA_VERSION_FEATURES, PoolState::L2Cache)?;
        caches.push(cache);
    }
    Ok(caches)
}

impl Inner {
    fn l2_device(&self, cache: &Arc<Vdev>) -> L2Device {
        let ashift = cache.config().ashift.max(phys::label::ASHIFT_MIN);
        let asize = allocatable_size(cache.leaf().psize());
        let shape = L2Shape {
            pool: self.tree.root().guid(),
            vdev: cache.guid(),
            ashift,
            asize: align_down(asize, 1 << ashift),
        };
        L2Device::new(Arc::new(Leaf(Arc::clone(cache))), shape)
    }

    /// Uses the cache devices in the list that can be used.
    #[doc(alias = "l2arc_add_vdev")]
    pub(crate) fn open_caches(&self) {
        let caches = self.state.lock().caches.devices().to_vec();
        if caches.is_empty() {
            return;
        }
        for cache in &caches {
            if cache.leaf().is_usable() && self.l2.device(cache.guid()).is_none() {
                self.l2.add(Arc::new(self.l2_device(cache)));
            }
        }
        self.pipeline.set_second(Arc::clone(&self.l2) as _);
    }

    /// Writes headers that say that nothing is on the cache devices.
    pub(crate) fn clear_caches(&self) {
        let caches = self.state.lock().caches.devices().to_vec();
        for cache in &caches {
            // Without a header it is as empty.
            let _ = self.l2_device(cache).clear();
        }
    }

    fn forget_cache(&self, guid: Guid, tx: &Tx) {
        self.l2.remove(guid);
        let (removed, name) = {
            let mut state = self.state.lock();
            (state.caches.remove(guid), state.name.clone())
        };
        if let Some(cache) = removed {
            let text = format!("{name} vdev (l2cache) {}", cache.name());
            self.core.notify("vdev_remove_aux", Some(&cache));
            self.core.log_internal("vdev remove", &text, tx);
        }
    }

    /// Writes what waits for the cache devices; all of it is listed there if nothing follows.
    pub(crate) fn feed_caches(&self, is_last: bool) {
        if !is_last && !self.l2.is_hungry() {
            return;
        }
        let known = RefCell::new(BTreeMap::new());
        self.l2.feed(
            &|objset, is_metadata| {
                let mut known = known.borrow_mut();
                let kept = known.entry(objset).or_insert_with(|| self.kept_of(objset));
                *kept == CACHE_ALL || *kept == CACHE_METADATA && is_metadata
            },
            is_last,
        );
        let caches = self.state.lock().caches.devices().to_vec();
        for cache in caches.iter().filter(|cache| cache.leaf().is_usable()) {
            // What is lost is read from the pool.
            let _ = cache.leaf().flush();
        }
    }

    /// Which blocks of an objset may be on cache devices; of one that is gone, none.
    fn kept_of(&self, objset: ObjsetId) -> u64 {
        if objset.0 == 0 {
            return CACHE_ALL;
        }
        let Ok(dataset) = self.dsl().dataset_of(ObjectId(objset.0)) else {
            return 0;
        };
        match self.dsl().prop(&dataset, SECONDARYCACHE) {
            Ok(Some(prop)) => match prop.value {
                PropValue::Number(kept) => kept,
                PropValue::Text(_) => CACHE_ALL,
            },
            Ok(None) => CACHE_ALL,
            Err(_) => 0,
        }
    }
}
