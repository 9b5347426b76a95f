//! Hot spares: which device one may take over for, and when it is given back.
//!
//! # What it is
//! A hot spare that takes over for a device becomes its sibling below a vdev of kind `spare`, which is as good as a
//! mirror. That ends in one of three ways. The spare is detached, and free again. The first device is detached:
//! then the spare is one no longer. The first device is replaced: when the new one is complete, the spare is
//! detached. A spare that fails may be replaced by another spare.
//!
//! # Invariants
//! 1. The first child of a vdev of kind `spare` is what the others have taken over for.
//!
//! # Source
//! OpenZFS `module/zfs/spa.c` (`spa_vdev_attach`, `spa_vdev_detach`, `spa_vdev_resilver_done`,
//! `spa_vdev_resilver_done_hunt`), `cmd/zed/agents/zfs_retire.c` (`zfs_retire_recv`).

use std::sync::Arc;

use base::Guid;
use zio::AllocClass;

use crate::shape::parent_of;
use crate::{Vdev, VdevAux, VdevKind, VdevState, VdevTree};

impl VdevTree {
    /// Devices that can be detached, since what has taken their place is complete; nothing if there are none.
    #[must_use]
    #[doc(alias = "spa_vdev_resilver_done_hunt")]
    pub fn replaced(&self) -> Vec<Arc<Vdev>> {
        let tops = self.tops();
        tops.iter()
            .map(|top| replaced_below(top, None, top))
            .find(|found| !found.is_empty())
            .unwrap_or_default()
    }

    /// Devices that a hot spare should take over for: they are gone, or were given up, and nothing has taken
    /// over for them. One that was taken offline is not.
    #[must_use]
    pub fn in_need_of_spares(&self) -> Vec<Arc<Vdev>> {
        let root = self.root();
        let mut devices = self.devices();
        devices.retain(|device| {
            let parent = parent_of(&root, device).expect("below the root");
            has_failed(device) && !is_covered(&parent, device)
        });
        devices
    }
}

/// Whether the device is in a state for which OpenZFS's event daemon takes a spare.
fn has_failed(device: &Vdev) -> bool {
    match device.leaf().state() {
        (VdevState::Removed | VdevState::CantOpen | VdevState::Faulted, _) => true,
        (VdevState::Degraded, aux) => aux == VdevAux::ErrExceeded,
        _ => false,
    }
}

/// Whether a sibling has taken over for the device, or is about to.
fn is_covered(parent: &Vdev, device: &Arc<Vdev>) -> bool {
    let is_other = |side: &&Arc<Vdev>| !Arc::ptr_eq(side, device);
    let mut others = parent.children().iter().filter(is_other);
    match parent.kind() {
        VdevKind::Spare if !device.config().is_spare => true,
        VdevKind::Spare => others.any(|side| is_spare(side) && side.state().0.is_usable()),
        VdevKind::Replacing => others.any(|side| side.state().0.is_usable()),
        _ => false,
    }
}

fn is_spare(vdev: &Vdev) -> bool {
    vdev.kind().is_leaf() && vdev.config().is_spare
}

/// Whether `old`, below a vdev of kind `parent`, may be replaced by a hot spare, or by another device. A spare in
/// use is replaced only by a spare, and what it has taken over for only by another device. Log, special and
/// dedup devices are not replaced by spares.
pub(crate) fn may_replace(parent: VdevKind, old: &Vdev, top: &Vdev, by_spare: bool) -> bool {
    let is_reserved = top.config().class() != AllocClass::Normal;
    let is_alike = old.config().is_spare == by_spare;
    !(by_spare && is_reserved) && (parent != VdevKind::Spare || is_alike)
}

/// Settles what the siblings of a device are to each other when it is detached: a hot spare that has taken over
/// for it is a spare no longer, and its guid is returned.
pub(crate) fn settle(parent: &Vdev, device: &Arc<Vdev>, rest: &[Arc<Vdev>]) -> Option<Guid> {
    if parent.kind() != VdevKind::Spare {
        return None;
    }
    let is_first = Arc::ptr_eq(&parent.children()[0], device);
    // A distributed spare stays one, wherever it is.
    let may_stay = |last: &&Arc<Vdev>| is_spare(last) && last.kind().has_labels();
    let last = rest.last().filter(|last| is_first && may_stay(last));
    if let Some(last) = last {
        last.update(|config| (config.is_spare, config.unspare) = (false, true));
    }
    if let [only] = rest {
        only.update(|config| config.unspare = false);
    }
    last.map(|last| last.guid())
}

fn is_whole(leaf: &Vdev) -> bool {
    leaf.leaf().is_usable() && !leaf.leaf().has_dtl()
}

fn replaced_below(vdev: &Arc<Vdev>, parent: Option<&Arc<Vdev>>, top: &Arc<Vdev>) -> Vec<Arc<Vdev>> {
    let below = vdev.children().iter();
    let mut below = below.map(|child| replaced_below(child, Some(vdev), top));
    if let Some(found) = below.find(|found| !found.is_empty()) {
        return found;
    }
    let Some((old, new)) = finished(vdev) else {
        return Vec::new();
    };
    let is_fit = old.kind().is_leaf() && new.is_complete(&is_whole) && top.can_do_without(old);
    if !is_fit {
        return Vec::new();
    }
    let mut found = vec![Arc::clone(old)];
    if vdev.kind() == VdevKind::Replacing {
        found.extend(parent.and_then(|parent| no_longer_needed(parent, vdev)));
    }
    found
}

/// The sibling that goes when another one of this vdev is complete, and that other one.
fn finished(vdev: &Vdev) -> Option<(&Arc<Vdev>, &Arc<Vdev>)> {
    let (first, last) = (vdev.children().first()?, vdev.children().last()?);
    match (vdev.kind(), vdev.children()) {
        (VdevKind::Replacing, [_, .., _]) => Some((first, last)),
        (VdevKind::Spare, _) if last.config().unspare => Some((first, last)),
        (VdevKind::Spare, _) if first.config().unspare => Some((last, first)),
        // Of several spares, the last one is enough.
        (VdevKind::Spare, [_, second, .., _]) if is_spare(second) && is_spare(last) => {
            Some((second, last))
        }
        _ => None,
    }
}

/// The hot spare that had taken over for what `replacing` has now replaced.
fn no_longer_needed(parent: &Vdev, replacing: &Arc<Vdev>) -> Option<Arc<Vdev>> {
    match parent.children() {
        [first, spare] if parent.kind() == VdevKind::Spare && Arc::ptr_eq(first, replacing) => {
            Some(Arc::clone(spare))
        }
        _ => None,
    }
}
