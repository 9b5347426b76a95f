//! One vdev: a node of the tree.
//!
//! # What it is
//! A [`Vdev`] is a kind, its children, and what its config says. The shape never changes: attaching
//! or detaching a device builds new inner nodes around the same leaves (see [`crate::VdevTree`]).
//! The state of an inner vdev is not stored but follows from its children.
//!
//! # Concurrency
//! Shared by `Arc`. The config is behind a lock of its own, which is never held during I/O.
//!
//! # Source
//! OpenZFS `include/sys/vdev_impl.h` (`struct vdev`), `module/zfs/vdev.c`.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use base::{Guid, MetaslabId, Txg, VdevId};
use rt::{RwLock, RwLockReadGuard};
use zio::AllocClass;

use crate::kinds::{KindOps, ops_of};
use crate::leaf::Leaf;
use crate::stats::{StatsSnapshot, VdevStats};
use crate::{Mapping, VdevAux, VdevKind, VdevState};

/// What the config of a vdev says, other than its kind, its guid and its children.
#[derive(Clone, Debug, Default)]
pub struct VdevConfig {
    /// vdev_path: where the device was last found.
    pub path: Option<String>,
    /// vdev_devid
    pub devid: Option<String>,
    /// vdev_physpath
    pub phys_path: Option<String>,
    /// vdev_enc_sysfs_path
    pub enc_sysfs_path: Option<String>,
    /// vdev_fru
    pub fru: Option<String>,
    /// vdev_wholedisk: whether the pool owns the whole disk; unknown for files.
    pub whole_disk: Option<bool>,
    /// !vdev_nonrot, of a leaf: as its device says when it is opened; not kept on disk.
    pub is_rotational: bool,
    /// vdev_not_present: was not there when the pool was imported.
    pub not_present: bool,
    /// vdev_isspare
    pub is_spare: bool,

    /// vdev_ms_array, of a top-level vdev: the object that lists the space maps.
    pub ms_array: u64,
    /// vdev_ms_shift, of a top-level vdev: log2 of the metaslab size.
    pub ms_shift: u32,
    /// vdev_ashift, of a top-level vdev: log2 of the sector.
    pub ashift: u32,
    /// vdev_asize: bytes that can be allocated.
    pub asize: u64,
    /// vdev_islog
    pub is_log: bool,
    /// vdev_noalloc: no new blocks go here.
    pub non_allocating: bool,
    /// ZPOOL_CONFIG_RAIDZ_EXPAND_TXGS, of a RAID-Z: from each of these txgs on, blocks are one column wider.
    pub expand_txgs: Vec<u64>,
    /// vdev_rz_expanding: the last child of this RAID-Z is new, and blocks are not all where it belongs to them.
    pub expanding: bool,
    /// vdev_removing
    pub removing: bool,
    /// vdev_alloc_bias, of a top-level vdev; kept in its ZAP, not in labels.
    pub alloc_bias: AllocClass,
    /// vdev_top_zap: object, 0 if none.
    pub top_zap: u64,
    /// vdev_leaf_zap: object, 0 if none.
    pub leaf_zap: u64,
    /// vdev_root_zap: object, 0 if none.
    pub root_zap: u64,

    /// The object of the DTL's space map, 0 if none.
    pub dtl_object: u64,
    /// vic_mapping_object, of an indirect vdev.
    pub indirect_object: u64,
    /// vic_births_object, of an indirect vdev.
    pub indirect_births: u64,
    /// vic_prev_indirect_vdev
    pub prev_indirect_vdev: Option<VdevId>,
    /// vdev_crtxg: when it was created or added.
    pub create_txg: u64,

    /// vdev_offline: taken offline by the administrator, until brought online again.
    pub offline: bool,
    /// vdev_tmpoffline: offline only until the next import.
    pub offline_temporarily: bool,
    /// vdev_resilver_txg
    pub resilver_txg: u64,
    /// vdev_rebuild_txg
    pub rebuild_txg: u64,
    /// vdev_unspare
    pub unspare: bool,
    /// vdev_resilver_deferred
    pub resilver_deferred: bool,
    /// vdev_orig_guid: of a device that is being split off.
    pub orig_guid: u64,
}

/// A node of the tree.
#[doc(alias = "vdev_t")]
pub struct Vdev {
    kind: VdevKind,
    ops: Arc<dyn KindOps>,
    guid: AtomicU64,
    children: Vec<Arc<Vdev>>,
    /// All devices below.
    devices: Vec<Arc<Vdev>>,
    config: RwLock<VdevConfig>,
    /// Where the data of a removed vdev is.
    mapping: ArcSwapOption<Mapping>,
    /// Copied from the config, so that I/O does not take its lock.
    asize: AtomicU64,
    ashift: AtomicU32,
    is_rotational: AtomicBool,
    leaf: Leaf,
}

impl Vdev {
    /// A node that has not been opened.
    #[must_use]
    pub fn new(
        kind: VdevKind,
        guid: Guid,
        config: VdevConfig,
        children: Vec<Arc<Vdev>>,
    ) -> Arc<Self> {
        let ops = ops_of(kind, children.len(), &config);
        Self::with_ops(kind, ops, guid, config, children)
    }

    pub(crate) fn with_ops(
        kind: VdevKind,
        ops: Arc<dyn KindOps>,
        guid: Guid,
        config: VdevConfig,
        children: Vec<Arc<Vdev>>,
    ) -> Arc<Self> {
        assert!(
            children.is_empty() || !kind.is_leaf(),
            "a {} with children",
            kind.word()
        );
        Arc::new(Vdev {
            kind,
            ops,
            guid: AtomicU64::new(guid.0),
            devices: children.iter().flat_map(Vdev::leaves).cloned().collect(),
            children,
            asize: AtomicU64::new(config.asize),
            ashift: AtomicU32::new(config.ashift),
            is_rotational: AtomicBool::new(config.is_rotational),
            config: RwLock::new(config),
            mapping: ArcSwapOption::empty(),
            leaf: Leaf::default(),
        })
    }

    /// The operations of its kind.
    pub(crate) fn ops(&self) -> &Arc<dyn KindOps> {
        &self.ops
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> VdevKind {
        self.kind
    }

    /// Its guid, which names it on disk.
    #[must_use]
    pub fn guid(&self) -> Guid {
        Guid(self.guid.load(Ordering::Relaxed))
    }

    /// Gives it another guid: a mirror's last side takes over that of the mirror.
    pub(crate) fn set_guid(&self, guid: Guid) {
        self.guid.store(guid.0, Ordering::Relaxed);
    }

    /// The vdevs below, by their id.
    #[must_use]
    pub fn children(&self) -> &[Arc<Vdev>] {
        &self.children
    }

    /// What its config says.
    pub fn config(&self) -> RwLockReadGuard<'_, VdevConfig> {
        self.config.read()
    }

    /// Changes its config. Labels follow with the next config sync.
    pub fn update<T>(&self, change: impl FnOnce(&mut VdevConfig) -> T) -> T {
        let mut config = self.config.write();
        let value = change(&mut config);
        self.asize.store(config.asize, Ordering::Relaxed);
        self.ashift.store(config.ashift, Ordering::Relaxed);
        let rotates = config.is_rotational;
        self.is_rotational.store(rotates, Ordering::Relaxed);
        value
    }

    /// vdev_asize: bytes that can be allocated on this top-level vdev.
    pub(crate) fn asize(&self) -> u64 {
        self.asize.load(Ordering::Relaxed)
    }

    /// vdev_ashift: log2 of the sector of this top-level vdev.
    pub(crate) fn ashift(&self) -> u32 {
        self.ashift.load(Ordering::Relaxed)
    }

    /// !vdev_nonrot
    pub(crate) fn is_rotational(&self) -> bool {
        self.is_rotational.load(Ordering::Relaxed)
    }

    /// Where the data of a removed vdev is; `None` until that was read.
    #[must_use]
    pub fn mapping(&self) -> Option<Arc<Mapping>> {
        self.mapping.load_full()
    }

    /// Sets where the data of a removed vdev is.
    pub fn set_mapping(&self, mapping: Arc<Mapping>) {
        self.mapping.store(Some(mapping));
    }

    /// The device, of a leaf.
    #[must_use]
    pub fn leaf(&self) -> &Leaf {
        assert!(self.kind.is_leaf(), "a {} is not a leaf", self.kind.word());
        &self.leaf
    }

    /// The counters of this node alone.
    #[must_use]
    pub fn stats(&self) -> &VdevStats {
        self.leaf.stats()
    }

    /// The name shown to users: the path, or else the kind.
    #[must_use]
    pub fn name(&self) -> String {
        let path = self.config().path.clone();
        path.unwrap_or_else(|| self.kind.word().to_owned())
    }

    /// All leaves below that may have a device, in order; itself if it is one.
    #[must_use]
    pub fn devices(self: &Arc<Self>) -> Vec<Arc<Vdev>> {
        self.leaves().to_vec()
    }

    /// Like [`devices`](Vdev::devices), but borrowed, for I/O.
    pub(crate) fn leaves(self: &Arc<Self>) -> &[Arc<Vdev>] {
        if self.kind.is_device() {
            std::slice::from_ref(self)
        } else {
            &self.devices
        }
    }

    /// Whether a usable device below missed blocks of this birth, and is not to wait for the next resilver.
    #[must_use]
    #[doc(alias = "vdev_dtl_need_resilver")]
    pub fn needs_resilver(self: &Arc<Self>, birth: base::Txg) -> bool {
        let lacks_it = |device: &Arc<Vdev>| {
            let leaf = device.leaf();
            leaf.is_usable() && leaf.missed(birth) && !device.config().resilver_deferred
        };
        self.leaves().iter().any(lacks_it)
    }

    /// Whether all data of this vdev can be read from the devices below for which `has_everything` is
    /// true.
    #[must_use]
    #[doc(alias = "vdev_dtl_reassess")]
    pub(crate) fn is_complete(&self, has_everything: &dyn Fn(&Vdev) -> bool) -> bool {
        match self.kind {
            kind if kind.is_device() => has_everything(self),
            VdevKind::Missing => false,
            VdevKind::Hole | VdevKind::Indirect => true,
            _ => {
                let is_lost = |child: &&Arc<Vdev>| !child.is_complete(has_everything);
                let lost = self.children.iter().filter(is_lost).count();
                lost <= self.ops.tolerated(self.children.len())
            }
        }
    }

    /// Whether all data of this top-level vdev can be read without that device.
    #[must_use]
    #[doc(alias = "vdev_dtl_required")]
    pub(crate) fn can_do_without(&self, device: &Vdev) -> bool {
        self.is_complete(&|other| {
            let leaf = other.leaf();
            !std::ptr::eq(other, device) && leaf.is_usable() && !leaf.has_dtl()
        })
    }

    /// This vdev and all below, parents first.
    pub fn visit(self: &Arc<Self>, see: &mut dyn FnMut(&Arc<Vdev>)) {
        see(self);
        for child in &self.children {
            child.visit(see);
        }
    }

    /// The vdev with this guid: this one or one below.
    #[must_use]
    #[doc(alias = "vdev_lookup_by_guid")]
    pub fn find(self: &Arc<Self>, guid: Guid) -> Option<Arc<Vdev>> {
        if self.guid() == guid && self.kind != VdevKind::Hole {
            return Some(Arc::clone(self));
        }
        self.children.iter().find_map(|child| child.find(guid))
    }

    /// The wrapping sum of the guids of this vdev and all below.
    #[must_use]
    #[doc(alias = "vdev_guid_sum")]
    pub fn guid_sum(&self) -> u64 {
        let below = self.children.iter().map(|child| child.guid_sum());
        below.fold(self.guid().0, u64::wrapping_add)
    }

    /// The counters of this node and of all below.
    #[must_use]
    pub fn total_stats(&self) -> StatsSnapshot {
        let mut total = self.stats().snapshot();
        // What a distributed spare did was done by other children.
        let is_own = |child: &&Arc<Vdev>| !matches!(child.kind, VdevKind::DraidSpare(_));
        for child in self.children.iter().filter(is_own) {
            total += child.total_stats();
        }
        total
    }

    /// Its state and the reason for it.
    #[must_use]
    #[doc(alias = "vdev_propagate_state")]
    pub fn state(&self) -> (VdevState, VdevAux) {
        match self.kind {
            kind if kind.is_device() => self.leaf.state(),
            VdevKind::Missing => (VdevState::CantOpen, VdevAux::OpenFailed),
            VdevKind::Hole | VdevKind::Indirect => (VdevState::Healthy, VdevAux::None),
            _ => self.state_of_children(),
        }
    }

    fn state_of_children(&self) -> (VdevState, VdevAux) {
        let is_root = self.kind == VdevKind::Root;
        let (mut faulted, mut degraded, mut corrupt, mut offline) = (0, 0, false, 0);
        for child in &self.children {
            let (state, aux) = child.state();
            corrupt |= aux == VdevAux::CorruptData;
            offline += usize::from(state == VdevState::Offline);
            // A pool can do without its log.
            let is_log = is_root && child.config().is_log;
            if !(state.is_usable() || is_log) {
                faulted += 1;
            } else if state <= VdevState::Degraded {
                degraded += 1;
            }
        }
        let tolerated = self.ops.tolerated(self.children.len());
        if faulted > tolerated {
            if is_root && corrupt {
                (VdevState::CantOpen, VdevAux::CorruptData)
            } else if !is_root && offline == self.children.len() {
                (VdevState::Offline, VdevAux::ChildrenOffline)
            } else {
                (VdevState::CantOpen, VdevAux::NoReplicas)
            }
        } else if faulted + degraded > 0 {
            (VdevState::Degraded, VdevAux::None)
        } else {
            (VdevState::Healthy, VdevAux::None)
        }
    }

    /// Bytes that a block of `psize`, born in this txg, takes on this top-level vdev.
    #[must_use]
    #[doc(alias = "vdev_psize_to_asize_txg")]
    pub fn psize_to_asize(&self, psize: u64, birth: Txg) -> u64 {
        let children = self.children.len();
        self.ops
            .psize_to_asize(children, self.ashift(), psize, birth)
    }

    /// The smallest allocation on this top-level vdev, in bytes.
    #[must_use]
    #[doc(alias = "vdev_get_min_alloc")]
    pub fn min_alloc(&self) -> u64 {
        self.ops.min_alloc(self.children.len(), self.ashift())
    }

    /// How many devices of this top-level vdev hold the data of one block.
    #[must_use]
    #[doc(alias = "vdev_get_ndisks")]
    pub fn data_disks(&self) -> u64 {
        self.ops.data_disks(self.children.len())
    }

    /// Metaslabs of this top-level vdev start at multiples of this, in bytes.
    #[must_use]
    pub fn metaslab_align(&self) -> u64 {
        self.ops.metaslab_align(self.children.len(), self.ashift())
    }

    /// Where a metaslab of this top-level vdev lies, in bytes.
    #[must_use]
    #[doc(alias = "vdev_metaslab_init")]
    pub fn metaslab_range(&self, metaslab: MetaslabId) -> Range<u64> {
        metaslab.range(self.config().ms_shift, self.metaslab_align())
    }

    /// How many metaslabs there are on this top-level vdev.
    #[must_use]
    pub fn metaslab_count(&self) -> u64 {
        let config = self.config();
        if config.ms_shift == 0 {
            0
        } else {
            config.asize >> config.ms_shift
        }
    }
}

impl fmt::Debug for Vdev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Vdev({} {:#x} {})",
            self.name(),
            self.guid().0,
            self.state().0
        )
    }
}
