//! Writing labels and uberblocks: the moment at which a txg becomes the state of the pool.
//!
//! # Crash argument
//! The order is: flush all data; labels 0 and 2; flush; uberblocks; flush; labels 1 and 3; flush.
//! - Stopped before the first uberblock: the old uberblock is the best. Labels 0 and 2 may be of
//!   the new txg, or torn: they are newer than the uberblock and do not count. Labels 1 and 3 are
//!   untouched.
//! - Stopped after the first uberblock reached the medium: it is the best, and labels 0 and 2,
//!   which were flushed before, agree with it, as does all data.
//! - The uberblock itself goes into a slot of its own; a torn one fails its checksum and the one
//!   before it, in the neighbouring slot, is the best.
//!
//! Doing all of it again after a failure is harmless.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_label.c` (`vdev_config_sync`, `vdev_label_sync`,
//! `vdev_uberblock_sync`, `vdev_label_init`).

use std::sync::Arc;

use base::{Context, Error, ErrorKind, Result, Txg, VdevId};
use phys::label::LABELS;
use phys::uberblock::UberblockPhys;

use crate::stats::VdevStats;
use crate::{PoolConfig, PoolState, Vdev, VdevTree, label};

/// `SPA_SYNC_MIN_VDEVS`: uberblocks go to at most this many top-level vdevs; others are spared the seek.
const SPA_SYNC_MIN_VDEVS: usize = 3;

/// What a config sync writes.
#[derive(Clone, Copy, Debug)]
pub struct LabelSync<'a> {
    /// The pool's part of the labels' config.
    pub pool: &'a PoolConfig,
    /// The txg that labels are marked with: that of the uberblock.
    pub txg: Txg,
    /// The new root of the pool.
    pub uberblock: &'a UberblockPhys,
    /// Top-level vdevs whose config changed: their labels are written.
    pub dirty: &'a [VdevId],
    /// Whether the last slot of the ring is reserved for multihost.
    pub multihost: bool,
}

impl VdevTree {
    /// Flushes all data, then writes labels and uberblocks in the order of the module's
    /// crash argument. Tries twice.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if no uberblock, or no label of some vdev that holds data, could be written:
    /// then it is not known which uberblock on disk is the best.
    #[doc(alias = "vdev_config_sync")]
    pub fn sync_labels(&self, sync: &LabelSync<'_>) -> Result<()> {
        assert!(
            self.is_writable(),
            "labels of a pool that was opened for reading"
        );
        assert!(
            sync.uberblock.txg() <= sync.txg,
            "an uberblock of a later txg than its labels"
        );
        self.flush_tops(&self.tops())?;
        self.try_sync_labels(sync)
            .or_else(|_| self.try_sync_labels(sync))
    }

    fn try_sync_labels(&self, sync: &LabelSync<'_>) -> Result<()> {
        self.write_labels(sync, [0, 2])
            .within(|| "labels 0 and 2")?;
        self.write_uberblocks(sync).within(|| "uberblocks")?;
        self.write_labels(sync, [1, 3]).within(|| "labels 1 and 3")
    }

    /// The number of leaves that a heartbeat can be written to.
    #[must_use]
    pub fn heartbeat_leaves(&self) -> usize {
        let tops = self.tops_for_uberblocks();
        tops.iter().map(|top| usable_leaves(top).len()).sum()
    }

    /// Writes an uberblock into the heartbeat slot of one label, chosen at random, of the leaf whose
    /// `turn` it is.
    ///
    /// # Errors
    /// `Io` when that leaf does not take it, or there is none.
    pub fn write_heartbeat(&self, turn: usize, uberblock: &UberblockPhys) -> Result<()> {
        let tops = self.tops_for_uberblocks();
        let mut leaves = Vec::new();
        for top in &tops {
            let ashift = top.config().ashift;
            leaves.extend(usable_leaves(top).into_iter().map(|leaf| (leaf, ashift)));
        }
        if leaves.is_empty() {
            return Err(Error::new(ErrorKind::Io, "no device can be written to"));
        }
        let (vdev, ashift) = &leaves[turn % leaves.len()];
        let index = rt::random_below(LABELS as u64) as usize;
        label::write_heartbeat(vdev.leaf(), index, *ashift, uberblock)
    }

    fn write_labels(&self, sync: &LabelSync<'_>, indexes: [usize; 2]) -> Result<()> {
        let mut tops = Vec::new();
        for id in sync.dirty {
            let top = self.top(*id).filter(|top| top.kind().is_concrete());
            let Some(top) = top else { continue };
            let leaves = usable_leaves(&top);
            let mut packed = Vec::new();
            for leaf in &leaves {
                let config = self.label_config(sync.pool, sync.txg.0, *id, leaf);
                packed.push((Arc::clone(leaf), label::pack_config(&config)?));
            }
            let packed = Arc::new(rt::Mutex::new(packed));
            let results = self.on_leaves(leaves, move |vdev| {
                let mut list = packed.lock();
                let at = list.iter().position(|(leaf, _)| Arc::ptr_eq(leaf, vdev));
                let mut block = list.swap_remove(at.expect("one for each leaf")).1;
                drop(list);
                write_all(vdev, indexes, |index| {
                    label::write_config(vdev.leaf(), index, &mut block)
                })
            });
            check_any(&top, results)?;
            tops.push(top);
        }
        self.flush_tops(&tops)
    }

    fn write_uberblocks(&self, sync: &LabelSync<'_>) -> Result<()> {
        let tops = self.tops_for_uberblocks();
        let mut leaves = Vec::new();
        for top in &tops {
            // An uberblock on a vdev that is not part of the pool yet does not count: no import would
            // find it.
            let is_known = top.config().ms_array != 0;
            let ashift = top.config().ashift;
            leaves.extend(
                usable_leaves(top)
                    .into_iter()
                    .map(|leaf| (leaf, ashift, is_known)),
            );
        }
        let facts: Vec<_> = leaves
            .iter()
            .map(|(leaf, ashift, _)| (leaf.guid(), *ashift))
            .collect();
        let uberblock = *sync.uberblock;
        // What is in the scratch area of an expansion: also later uberblocks are where OpenZFS writes them.
        let slot = (uberblock.has_reflow_in_scratch(), sync.multihost);
        let vdevs = leaves.iter().map(|(leaf, ..)| Arc::clone(leaf)).collect();
        let results = self.on_leaves(vdevs, move |vdev| {
            let fact = facts.iter().find(|(guid, _)| *guid == vdev.guid());
            let ashift = fact.expect("one for each leaf").1;
            write_all(vdev, 0..LABELS, |index| {
                label::write_uberblock(vdev.leaf(), index, ashift, &uberblock, slot)
            })
        });
        let mut failed = None;
        let mut good_writes = 0;
        for ((_, _, is_known), result) in leaves.iter().zip(results) {
            match result {
                Ok(written) if *is_known => good_writes += written,
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
        }
        if good_writes == 0 {
            let none = || Error::new(ErrorKind::Io, "no device left for uberblocks");
            return Err(failed.unwrap_or_else(none));
        }
        self.flush_tops(&tops)
    }

    /// A few top-level vdevs, not always the same, all of whose leaves get the uberblock. Logs, and
    /// vdevs that hold no data, are used only if there is nothing else.
    fn tops_for_uberblocks(&self) -> Vec<Arc<Vdev>> {
        let mut tops: Vec<_> = self.tops();
        tops.retain(|top| {
            top.kind().is_concrete() && top.config().ms_array != 0 && !top.config().is_log
        });
        if tops.is_empty() {
            tops = self.tops();
            tops.retain(|top| top.kind().is_concrete());
        }
        if tops.len() > SPA_SYNC_MIN_VDEVS {
            let first = usize::try_from(rt::random_below(tops.len() as u64)).expect("an index");
            tops.rotate_left(first);
            // Unusable vdevs go last: the uberblock must not depend on them alone.
            tops.sort_by_key(|top| !top.state().0.is_usable());
            tops.truncate(SPA_SYNC_MIN_VDEVS);
        }
        tops
    }

    /// Empties the labels of every device, so that nothing of a former pool is left that could be taken
    /// for newer than what is written next.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if any device cannot be written.
    #[doc(alias = "vdev_label_init")]
    pub fn prepare_devices(&self) -> Result<()> {
        self.devices()
            .iter()
            .try_for_each(|vdev| vdev.empty_labels())
    }
}

impl Vdev {
    /// Empties the labels of this device, before it becomes part of a pool, or when it no longer is.
    ///
    /// # Errors
    /// [`ErrorKind::Io`].
    #[doc(alias = "vdev_label_init")]
    pub fn empty_labels(&self) -> Result<()> {
        let write = |index| label::write_blank(self.leaf(), index);
        (0..LABELS)
            .try_for_each(write)
            .and_then(|()| self.leaf().flush())
            .within(|| self.name())
    }
}

impl Vdev {
    /// Writes the labels of a hot spare or a cache device, which belong to no one pool. At any moment two of
    /// them are whole.
    ///
    /// # Errors
    /// [`ErrorKind::Io`].
    #[doc(alias = "vdev_aux_label_generate")]
    pub fn write_aux_labels(&self, version: u64, state: PoolState) -> Result<()> {
        let mut packed = label::pack_config(&self.aux_config(version, state))?;
        let mut write = |indexes: [usize; 2]| {
            let mut write = |index| label::write_aux(self.leaf(), index, &mut packed);
            indexes.into_iter().try_for_each(&mut write)?;
            self.leaf().flush()
        };
        write([0, 2])
            .and_then(|()| write([1, 3]))
            .within(|| self.name())
    }
}

fn usable_leaves(top: &Arc<Vdev>) -> Vec<Arc<Vdev>> {
    let mut leaves = top.devices();
    leaves.retain(|leaf| leaf.kind().has_labels() && leaf.leaf().is_usable());
    leaves
}

/// Writes several labels of one leaf; how many succeeded, or the error if none did.
fn write_all(
    vdev: &Vdev,
    indexes: impl IntoIterator<Item = usize>,
    mut write: impl FnMut(usize) -> Result<()>,
) -> Result<usize> {
    let mut failed = None;
    let mut written = 0;
    for index in indexes {
        match write(index) {
            Ok(()) => written += 1,
            Err(error) => {
                VdevStats::add(&vdev.stats().write_errors, 1);
                failed = Some(error.within(format_args!("{}: label {index}", vdev.name())));
            }
        }
    }
    failed.filter(|_| written == 0).map_or(Ok(written), Err)
}

/// One label on any leaf of a top-level vdev is enough; a log may even have none.
fn check_any(top: &Vdev, results: Vec<Result<usize>>) -> Result<()> {
    if results.iter().any(Result::is_ok) || top.config().is_log {
        return Ok(());
    }
    let none = || {
        Error::new(
            ErrorKind::Io,
            format!("{}: no device left for labels", top.name()),
        )
    };
    Err(results
        .into_iter()
        .find_map(Result::err)
        .unwrap_or_else(none))
}
