//! Finding pools in a set of devices.
//!
//! # What it is
//! Every device says in its labels to which pool and which top-level vdev it belongs, and describes that
//! whole top-level vdev. [`discover`] sorts devices by pool, takes the newest description of each
//! top-level vdev, and puts them together into a tree; numbers for which nothing was found become
//! `missing`. [`FoundPool::open`] gives each leaf of the tree its device.
//!
//! # Invariants
//! 1. A description that is newer than the best uberblock does not count if there is an older one: its
//!    sync was never completed.
//! 2. Devices whose labels share a pool guid are of one pool. Where a pool was given another guid, and the power
//!    failed, there are labels with either; the config that counts says which one it has.
//! 3. A device whose best uberblock is older than that of a sibling was absent in between: its DTL
//!    covers those txgs. All leaves of a top-level vdev get uberblocks together.
//!
//! # Source
//! OpenZFS `lib/libzutil/zutil_import.c` (`add_config`, `get_configs`, `fix_paths`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{Error, ErrorKind, Guid, Result, Txg};
use geom::Provider;
use nvpair::NvList;
use phys::pool_names::{L2CACHE, SPARES};
use phys::uberblock::UberblockPhys;

use crate::config;
use crate::label::{self, Labels};
use crate::split;
use crate::{PoolState, Vdev, VdevAux, VdevKind, VdevState, VdevTree};

/// Top-level vdevs beyond this number are ignored, so that a damaged config cannot ask for any number.
const TOPS_MAX: u64 = 4096;

/// A device that belongs to a pool.
pub struct FoundDevice {
    /// The device.
    pub provider: Arc<dyn Provider>,
    /// Its labels as read.
    pub labels: Labels,
    /// Its own guid.
    pub guid: Guid,
    /// The best uberblock on it.
    pub uberblock: Option<UberblockPhys>,
}

/// A pool, as far as its devices were found.
pub struct FoundPool {
    /// The pool's guid.
    pub guid: Guid,
    /// Its name.
    pub name: String,
    /// Whether it was exported, destroyed, or may be in use.
    pub state: PoolState,
    /// The host that used it last; 0 if it has none.
    pub hostid: u64,
    /// The name of that host.
    pub hostname: String,
    /// The pool's config with its whole `vdev_tree`, put together from labels.
    pub config: NvList,
    /// The best uberblock of all devices.
    pub uberblock: Option<UberblockPhys>,
    /// The uberblock to open it by, if none of the labels' is to be.
    pub root: Option<UberblockPhys>,
    /// The devices, in the order in which they were given.
    pub devices: Vec<FoundDevice>,
    /// Devices that may be hot spares or cache devices of it, by guid: only the config in the MOS says which are.
    pub aux: Vec<(Guid, Arc<dyn Provider>)>,
    /// Devices that were found in other pools: those of this pool that were split off are among them.
    pub elsewhere: BTreeSet<Guid>,
}

/// What was found in a set of devices.
#[derive(Default)]
pub struct Discovery {
    /// Pools, by name, then guid.
    pub pools: Vec<FoundPool>,
    /// Hot spares by guid.
    pub spares: Vec<(Guid, Arc<dyn Provider>)>,
    /// Cache devices by guid.
    pub caches: Vec<(Guid, Arc<dyn Provider>)>,
}

/// Looks at the labels of all devices and puts pools together. Devices without labels are ignored.
#[must_use]
#[doc(alias = "zpool_find_import")]
pub fn discover(providers: &[Arc<dyn Provider>]) -> Discovery {
    let mut found = Discovery::default();
    let mut devices = Vec::new();
    let read = rt::parallel_map(providers.to_vec(), |provider| {
        let labels = Labels::read(&*provider);
        (provider, labels)
    });
    for (provider, labels) in read {
        let Ok(labels) = labels else { continue };
        let Some(config) = labels.best_config(Txg(u64::MAX)) else {
            continue;
        };
        let guid = Guid(config.get_u64("guid").unwrap_or(0));
        match config.get_u64("state").and_then(PoolState::from_raw) {
            None => {}
            Some(PoolState::Spare) => found.spares.push((guid, provider)),
            Some(PoolState::L2Cache) => found.caches.push((guid, provider)),
            Some(_) => devices.extend(found_device(provider, labels)),
        }
    }
    split::settle(&mut devices);
    found.pools = by_pool(devices).into_iter().filter_map(assemble).collect();
    for pool in &mut found.pools {
        pool.aux = [&found.spares[..], &found.caches[..]].concat();
    }
    let owners = found.pools.iter().flat_map(|pool| {
        let devices = pool.devices.iter();
        devices.map(|device| (device.guid, pool.guid))
    });
    let owners: Vec<(Guid, Guid)> = owners.collect();
    for pool in &mut found.pools {
        let elsewhere = owners.iter().filter(|(_, owner)| *owner != pool.guid);
        pool.elsewhere = elsewhere.map(|(device, _)| *device).collect();
    }
    found
        .pools
        .sort_by(|a, b| (&a.name, a.guid).cmp(&(&b.name, b.guid)));
    found
}

/// Devices whose labels name the same pool.
#[derive(Default)]
struct Group {
    /// The guids that the labels name: two if the pool was about to get another one.
    guids: BTreeSet<Guid>,
    /// Each with its place among all devices that were found.
    devices: Vec<(usize, FoundDevice)>,
}

/// The devices of each pool, in their order.
fn by_pool(devices: Vec<FoundDevice>) -> Vec<Vec<FoundDevice>> {
    let mut groups: Vec<Group> = Vec::new();
    let mut group_of: BTreeMap<Guid, usize> = BTreeMap::new();
    for (at, device) in devices.into_iter().enumerate() {
        let guids = device.labels.pools();
        let known: BTreeSet<usize> = guids
            .iter()
            .filter_map(|g| group_of.get(g))
            .copied()
            .collect();
        let to = known.first().copied().unwrap_or(groups.len());
        if to == groups.len() {
            groups.push(Group::default());
        }
        for from in known.into_iter().skip(1) {
            let more = std::mem::take(&mut groups[from]);
            groups[to].guids.extend(more.guids);
            groups[to].devices.extend(more.devices);
        }
        groups[to].guids.extend(guids);
        groups[to].devices.push((at, device));
        group_of.extend(groups[to].guids.iter().map(|guid| (*guid, to)));
    }
    let in_order = |mut group: Group| {
        group.devices.sort_by_key(|(at, _)| *at);
        group
            .devices
            .into_iter()
            .map(|(_, device)| device)
            .collect()
    };
    groups.into_iter().map(in_order).collect()
}

/// A device of a pool, if its label is complete: a label of txg 0 is of a pool that was never completely
/// created, or of a device that was detached.
fn found_device(provider: Arc<dyn Provider>, labels: Labels) -> Option<FoundDevice> {
    let config = labels.best_config(Txg(u64::MAX))?;
    config.get_u64("pool_guid")?;
    let guid = Guid(config.get_u64("guid")?);
    config.get_u64("top_guid")?;
    config.get_u64("txg").filter(|txg| *txg > 0)?;
    let uberblock = labels.best_uberblock(Txg(u64::MAX));
    Some(FoundDevice {
        provider,
        labels,
        guid,
        uberblock,
    })
}

/// The config of a device as of the best uberblock; one that is newer only if there is none else. The last
/// side of a mirror has another guid since the txg that made it the last, which may not have been completed.
fn config_of(device: &FoundDevice, max_txg: Txg) -> Option<&NvList> {
    let config = device.labels.best_config(max_txg);
    config.or_else(|| device.labels.best_config(Txg(u64::MAX)))
}

/// Puts one pool together.
#[doc(alias = "get_configs")]
fn assemble(mut devices: Vec<FoundDevice>) -> Option<FoundPool> {
    identify(&mut devices);
    let pool = describe(&devices)?;
    Some(FoundPool { devices, ..pool })
}

/// The best uberblock of all devices, and its txg.
fn best_uberblock(devices: &[FoundDevice]) -> (Option<UberblockPhys>, Txg) {
    let uberblocks = devices.iter().filter_map(|device| device.uberblock);
    let uberblock = uberblocks.max_by_key(UberblockPhys::rank);
    (uberblock, uberblock.map_or(Txg(u64::MAX), |ub| ub.txg()))
}

/// Gives each device the guid that it has as of the best uberblock.
fn identify(devices: &mut [FoundDevice]) {
    let (_, max_txg) = best_uberblock(devices);
    for device in devices {
        let own = config_of(device, max_txg).and_then(|config| config.get_u64("guid"));
        device.guid = own.map_or(device.guid, Guid);
    }
}

/// The pool as its devices' labels describe it, without the devices.
fn describe(devices: &[FoundDevice]) -> Option<FoundPool> {
    let (uberblock, max_txg) = best_uberblock(devices);
    let tops = newest_tops(devices, max_txg);
    let newest = tops.values().max_by_key(|config| rank(config, max_txg))?;
    let text = |key| newest.get_str(key).unwrap_or_default().to_owned();
    let state = newest.get_u64("state").and_then(PoolState::from_raw)?;
    let guid = Guid(newest.get_u64("pool_guid")?);
    Some(FoundPool {
        guid,
        name: text("name"),
        state,
        hostid: newest.get_u64("hostid").unwrap_or(0),
        hostname: text("hostname"),
        config: pool_config(guid, newest, &tops),
        uberblock,
        root: None,
        devices: Vec::new(),
        aux: Vec::new(),
        elsewhere: BTreeSet::new(),
    })
}

/// Which config counts: one that is not newer than the best uberblock, then the newest.
fn rank(config: &NvList, max_txg: Txg) -> (bool, Option<u64>) {
    let txg = config.get_u64("txg");
    (txg <= Some(max_txg.0), txg)
}

/// The newest config of each top-level vdev, by its number.
fn newest_tops(devices: &[FoundDevice], max_txg: Txg) -> BTreeMap<u64, &NvList> {
    let mut tops: BTreeMap<u64, &NvList> = BTreeMap::new();
    for device in devices {
        let Some(config) = config_of(device, max_txg) else {
            continue;
        };
        let id = config
            .get_list("vdev_tree")
            .and_then(|tree| tree.get_u64("id"));
        let Some(id) = id.filter(|id| *id < TOPS_MAX) else {
            continue;
        };
        let have = tops.entry(id).or_insert(config);
        if rank(config, max_txg) > rank(have, max_txg) {
            *have = config;
        }
    }
    tops
}

/// The pool's config: facts of the newest label, and the top-level vdevs in their places.
fn pool_config(guid: Guid, newest: &NvList, tops: &BTreeMap<u64, &NvList>) -> NvList {
    let mut nv = NvList::new();
    for key in [
        "version",
        "name",
        "state",
        "txg",
        "pool_guid",
        "errata",
        "comment",
    ]
    .into_iter()
    .chain([
        "compatibility",
        "hostid",
        "hostname",
        config::SPLIT_GUID,
        "hole_array",
        "vdev_children",
    ])
    .chain(["features_for_read"])
    {
        if let Some(value) = newest.get(key) {
            nv.add(key, value.clone());
        }
    }
    let known = tops.keys().next_back().map_or(0, |last| last + 1);
    let count = newest
        .get_u64("vdev_children")
        .unwrap_or(known)
        .min(TOPS_MAX);
    let holes = newest.get_u64s("hole_array").unwrap_or_default();
    let children: Vec<NvList> = (0..count)
        .map(
            |id| match tops.get(&id).and_then(|top| top.get_list("vdev_tree")) {
                Some(tree) if !holes.contains(&id) => tree.clone(),
                _ => placeholder(
                    id,
                    if holes.contains(&id) {
                        "hole"
                    } else {
                        "missing"
                    },
                ),
            },
        )
        .collect();
    let root = NvList::new()
        .with("type", "root")
        .with("id", 0u64)
        .with("guid", guid.0)
        .with("children", children);
    nv.add("vdev_tree", root);
    nv
}

fn root_of(config: &NvList) -> Result<Arc<Vdev>> {
    let root = Vdev::from_config(config.expect_list("vdev_tree")?)?;
    if root.kind() != VdevKind::Root {
        let context = format!("the root of the vdev tree is a {}", root.kind().word());
        return Err(Error::corrupt(context));
    }
    Ok(root)
}

/// The names of the lists of hot spares and cache devices in a pool's tree.
pub const AUX_LISTS: [&str; 2] = [SPARES, L2CACHE];

/// The devices in one of these lists in a pool's config.
pub fn aux_configs<'c>(config: &'c NvList, list: &str) -> impl Iterator<Item = &'c NvList> {
    let tree = config.get_list("vdev_tree");
    let listed = tree.and_then(|tree| tree.get_lists(list));
    listed.unwrap_or_default().iter()
}

fn placeholder(id: u64, kind: &str) -> NvList {
    NvList::new()
        .with("type", kind)
        .with("id", id)
        .with("guid", 0u64)
}

impl FoundPool {
    /// Adds devices that were not found, but are at the paths in `config`, from a label or the MOS. The
    /// kernel opens devices by these paths, wherever the search looked.
    #[must_use]
    pub fn follow_paths(
        mut self,
        config: &NvList,
        open: &dyn Fn(&str) -> Option<Arc<dyn Provider>>,
    ) -> FoundPool {
        for list in AUX_LISTS {
            self.follow_aux_paths(config, list, open);
        }
        let Some(root) = config
            .get_list("vdev_tree")
            .and_then(|t| Vdev::from_config(t).ok())
        else {
            return self;
        };
        let mut more = Vec::new();
        for leaf in root.devices() {
            let path = leaf.config().path.clone();
            let Some(path) = path.filter(|_| self.device(leaf.guid(), None).is_none()) else {
                continue;
            };
            let read = |provider: Arc<dyn Provider>| {
                let labels = Labels::read(&*provider).ok()?;
                found_device(provider, labels)
            };
            let found = open(&path).and_then(read);
            let is_ours = |device: &FoundDevice| {
                device.guid == leaf.guid() && device.labels.pools().contains(&self.guid)
            };
            more.extend(found.filter(is_ours));
        }
        split::settle(&mut more);
        more.retain(|device| device.labels.pools().contains(&self.guid));
        if more.is_empty() {
            return self;
        }
        let known = self.devices.len();
        let mut pool = self;
        pool.devices.extend(more);
        identify(&mut pool.devices);
        match describe(&pool.devices) {
            Some(whole) => FoundPool {
                devices: pool.devices,
                root: pool.root,
                aux: pool.aux,
                elsewhere: pool.elsewhere,
                ..whole
            },
            None => {
                pool.devices.truncate(known);
                identify(&mut pool.devices);
                pool
            }
        }
    }

    /// Adds the devices in one of the lists of `config`, from the MOS or a cachefile, that are at their paths.
    pub fn follow_aux_paths(
        &mut self,
        config: &NvList,
        list: &str,
        open: &dyn Fn(&str) -> Option<Arc<dyn Provider>>,
    ) {
        for device in aux_configs(config, list) {
            let guid = Guid(device.get_u64("guid").unwrap_or(0));
            let path = device.get_str("path");
            let Some(path) = path.filter(|_| self.aux_device(guid, None).is_none()) else {
                continue;
            };
            let is_it = |provider: &Arc<dyn Provider>| label::guid(&**provider) == Some(guid);
            let found = open(path).filter(is_it);
            self.aux.extend(found.map(|provider| (guid, provider)));
        }
    }

    /// The hot spare or cache device with this guid. Of several, the one at `path`, then the first.
    #[must_use]
    pub fn aux_device(&self, guid: Guid, path: Option<&str>) -> Option<&Arc<dyn Provider>> {
        let is_it = |(have, _): &&(Guid, Arc<dyn Provider>)| *have == guid;
        let found = self.aux.iter().rev().filter(is_it);
        found
            .map(|(_, provider)| provider)
            .max_by_key(|provider| path == Some(provider.name()))
    }

    /// The device with this guid. Of several, the one at `path`, then the one with the most good labels,
    /// then the first.
    #[must_use]
    pub fn device(&self, guid: Guid, path: Option<&str>) -> Option<&FoundDevice> {
        let devices = self
            .devices
            .iter()
            .rev()
            .filter(|device| device.guid == guid);
        devices.max_by_key(|device| {
            let config = device.labels.best_config(Txg(u64::MAX));
            let good = config.map_or(0, |config| device.labels.agreeing(config));
            (path == Some(device.provider.name()), good)
        })
    }

    /// The tree of this pool with all devices that were found. Take the `vdev_tree` of
    /// `config`, or a newer one from the MOS.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] or [`ErrorKind::Unsupported`] if the config is invalid.
    pub fn open(&self, config: &NvList, writable: bool) -> Result<Arc<VdevTree>> {
        self.open_with(config, writable, &|device| Ok(Arc::clone(&device.provider)))
    }

    /// Like [`open`](FoundPool::open), but with devices that `reopen` opens again, since they were only
    /// opened to read their labels. A device that cannot be opened is missing in the tree.
    ///
    /// # Errors
    /// As [`FoundPool::open`]; and [`ErrorKind::Busy`] if a device is in use, since a pool that
    /// another host may be writing to must not be opened without it.
    pub fn open_with(
        &self,
        config: &NvList,
        writable: bool,
        reopen: &dyn Fn(&FoundDevice) -> Result<Arc<dyn Provider>>,
    ) -> Result<Arc<VdevTree>> {
        let root = root_of(config)?;
        let tree = if writable {
            VdevTree::new(root)
        } else {
            VdevTree::read_only(root)
        };
        let busy = rt::Mutex::new(None);
        tree.open_devices(&|vdev| {
            let path = vdev.config().path.clone();
            let device = self.device(vdev.guid(), path.as_deref())?;
            match reopen(device) {
                Ok(provider) => {
                    let name = provider.name().to_owned();
                    vdev.update(|config| config.path = Some(name));
                    Some(provider)
                }
                Err(error) => {
                    if error.kind() == ErrorKind::Busy {
                        busy.lock().get_or_insert(error);
                    }
                    None
                }
            }
        });
        if let Some(error) = busy.into_inner() {
            return Err(error);
        }
        self.mark_stale(&tree);
        Ok(tree)
    }

    /// Writes labels 2 and 3 of devices that have grown at their new end, where labels of another pool
    /// may be; returns whether there were any. They get configs with the next config sync.
    ///
    /// # Errors
    /// What writing them gives.
    pub fn renew_end_labels(&self, tree: &VdevTree) -> Result<bool> {
        let mut has_any = false;
        for top in tree.tops() {
            for leaf in top.devices() {
                let device = self.device(leaf.guid(), leaf.config().path.as_deref());
                let grown = device.filter(|device| device.labels.lacks_end(leaf.guid()));
                if let Some(device) = grown.filter(|_| leaf.leaf().is_usable()) {
                    label::renew_end(leaf.leaf(), &device.labels, top.config().ashift)?;
                    has_any = true;
                }
            }
        }
        Ok(has_any)
    }

    /// Devices that lag behind their siblings get a DTL.
    fn mark_stale(&self, tree: &VdevTree) {
        for top in tree.tops() {
            let leaves = top.devices();
            let synced = |leaf: &Arc<Vdev>| {
                let device = self.device(leaf.guid(), leaf.config().path.as_deref())?;
                leaf.leaf()
                    .is_usable()
                    .then(|| device.uberblock.map_or(0, |ub| ub.txg().0))
            };
            let Some(newest) = leaves.iter().filter_map(synced).max() else {
                continue;
            };
            for leaf in &leaves {
                if let Some(synced) = synced(leaf).filter(|synced| *synced < newest) {
                    leaf.leaf().dirty_dtl(synced + 1..newest + 1);
                }
            }
        }
    }

    /// The state that the pool would be in if it were imported now.
    #[must_use]
    pub fn health(&self) -> (VdevState, VdevAux) {
        match self.open(&self.config, false) {
            Ok(tree) => tree.state(),
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                (VdevState::CantOpen, VdevAux::UnsupFeat)
            }
            Err(_) => (VdevState::CantOpen, VdevAux::CorruptData),
        }
    }
}
