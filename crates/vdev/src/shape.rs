//! Changing the shape of a tree: adding, attaching, detaching, removing.
//!
//! # What it is
//! Nodes are not changed but rebuilt around their children, and the root is swapped. The caller
//! (spa, in syncing context or with all I/O stopped) then writes labels and config.
//!
//! # Source
//! OpenZFS `module/zfs/vdev.c` (`vdev_add_parent`, `vdev_remove_parent`, `vdev_compact_children`),
//! `module/zfs/spa.c` (`spa_vdev_add`, `spa_vdev_attach`, `spa_vdev_detach`).

use std::sync::Arc;

use base::{Error, ErrorKind, Guid, Result, Txg, VdevId};

use crate::open::min_asize;
use crate::{Vdev, VdevConfig, VdevKind, VdevTree};

impl VdevTree {
    /// Adds a top-level vdev, in the place of a hole if there is one.
    #[doc(alias = "spa_vdev_add")]
    pub fn add_top(&self, top: Arc<Vdev>) -> VdevId {
        let root = self.root();
        let mut tops = root.children().to_vec();
        let hole = tops.iter().position(|top| top.kind() == VdevKind::Hole);
        let id = hole.unwrap_or(tops.len());
        if hole.is_some() {
            tops[id] = top;
        } else {
            tops.push(top);
        }
        self.replace_root(rebuilt(&root, tops));
        VdevId(id as u64)
    }

    /// Removes a top-level vdev; its number becomes a hole, or is dropped if it was the last.
    pub fn remove_top(&self, id: VdevId) {
        let root = self.root();
        let mut tops = root.children().to_vec();
        let at = usize::try_from(id.0).expect("a vdev of this tree");
        tops[at] = Vdev::new(VdevKind::Hole, Guid(0), VdevConfig::default(), Vec::new());
        while tops.last().is_some_and(|top| top.kind() == VdevKind::Hole) {
            tops.pop();
        }
        self.replace_root(rebuilt(&root, tops));
    }

    /// Attaches a device beside another one: the two become a mirror, or a further side of one, or
    /// (`replaces`) a pair of which the old one goes when the new one is complete. The new device lacks
    /// everything: its DTL covers all txgs up to `txg`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::InvalidInput`] if it does not fit there.
    #[doc(alias = "spa_vdev_attach")]
    pub fn attach(&self, beside: Guid, device: &Arc<Vdev>, replaces: bool, txg: Txg) -> Result<()> {
        let (old, top) = self.find_device(beside)?;
        if matches!(top.kind(), VdevKind::RaidZ { .. }) && !replaces {
            return Err(Error::invalid("cannot attach to a device of a RAID-Z"));
        }
        let kind = if replaces {
            VdevKind::Replacing
        } else {
            VdevKind::Mirror
        };
        check_size(device, &top, &old)?;
        let new_root = self.map(&self.root(), &mut |vdev| {
            let holds_old = vdev.children().iter().any(|child| Arc::ptr_eq(child, &old));
            if !replaces && holds_old && vdev.kind() == VdevKind::Mirror {
                let mut sides = vdev.children().to_vec();
                sides.push(Arc::clone(device));
                return Some(rebuilt(vdev, sides));
            }
            Arc::ptr_eq(vdev, &old).then(|| wrapped(vdev, kind, device))
        });
        device.leaf().dirty_dtl(Txg::INITIAL.0..txg.0 + 1);
        self.replace_root(new_root);
        Ok(())
    }

    /// Detaches a device from a mirror or a replacement. A mirror left with one side is replaced by that
    /// side.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::InvalidInput`] if it is not a side of a mirror;
    /// [`ErrorKind::Busy`] if no other side has everything.
    #[doc(alias = "spa_vdev_detach")]
    pub fn detach(&self, guid: Guid) -> Result<Arc<Vdev>> {
        let (device, _) = self.find_device(guid)?;
        let root = self.root();
        let parent = parent_of(&root, &device).filter(|parent| parent.kind().is_mirror_like());
        let parent = parent.ok_or_else(|| {
            Error::invalid(format!(
                "{}: only sides of mirrors can be detached",
                device.name()
            ))
        })?;
        let rest: Vec<_> = parent
            .children()
            .iter()
            .filter(|side| !Arc::ptr_eq(side, &device))
            .cloned()
            .collect();
        let is_complete = |leaf: &Arc<Vdev>| leaf.leaf().is_usable() && !leaf.leaf().has_dtl();
        if !rest
            .iter()
            .flat_map(Vdev::devices)
            .any(|leaf| is_complete(&leaf))
        {
            let context = format!("{}: no other side has all data", device.name());
            return Err(Error::new(ErrorKind::Busy, context));
        }
        let new_root = self.map(&root, &mut |vdev| {
            Arc::ptr_eq(vdev, &parent).then(|| match &rest[..] {
                [last] => unwrapped(vdev, last, is_top(&root, vdev)),
                rest => rebuilt(vdev, rest.to_vec()),
            })
        });
        self.replace_root(new_root);
        Ok(device)
    }

    /// A copy of the tree in which `change` replaced some nodes.
    fn map(
        &self,
        vdev: &Arc<Vdev>,
        change: &mut dyn FnMut(&Arc<Vdev>) -> Option<Arc<Vdev>>,
    ) -> Arc<Vdev> {
        if let Some(changed) = change(vdev) {
            return changed;
        }
        let children: Vec<_> = vdev
            .children()
            .iter()
            .map(|child| self.map(child, change))
            .collect();
        let same = children
            .iter()
            .zip(vdev.children())
            .all(|(new, old)| Arc::ptr_eq(new, old));
        if same {
            Arc::clone(vdev)
        } else {
            rebuilt(vdev, children)
        }
    }
}

fn is_top(root: &Arc<Vdev>, vdev: &Arc<Vdev>) -> bool {
    root.children().iter().any(|top| Arc::ptr_eq(top, vdev))
}

fn parent_of(vdev: &Arc<Vdev>, child: &Arc<Vdev>) -> Option<Arc<Vdev>> {
    if vdev.children().iter().any(|have| Arc::ptr_eq(have, child)) {
        return Some(Arc::clone(vdev));
    }
    vdev.children()
        .iter()
        .find_map(|inner| parent_of(inner, child))
}

/// Whether a device is large enough to take the place of `old`.
fn check_size(device: &Vdev, top: &Vdev, old: &Vdev) -> Result<()> {
    let asize = phys::label::allocatable_size(device.leaf().psize());
    let needed = min_asize(top, old);
    if asize < needed {
        let context = format!(
            "{}: device is too small, {needed} bytes needed",
            device.name()
        );
        return Err(Error::invalid(context));
    }
    Ok(())
}

/// The same inner vdev with other children.
fn rebuilt(vdev: &Vdev, children: Vec<Arc<Vdev>>) -> Arc<Vdev> {
    let ops = Arc::clone(vdev.ops());
    let config = vdev.config().clone();
    Vdev::with_ops(vdev.kind(), ops, vdev.guid(), config, children)
}

/// The part of a config that only top-level vdevs have.
fn top_facts(config: &VdevConfig) -> VdevConfig {
    VdevConfig {
        ms_array: config.ms_array,
        ms_shift: config.ms_shift,
        ashift: config.ashift,
        asize: config.asize,
        is_log: config.is_log,
        non_allocating: config.non_allocating,
        removing: config.removing,
        alloc_bias: config.alloc_bias,
        top_zap: config.top_zap,
        create_txg: config.create_txg,
        ..VdevConfig::default()
    }
}

/// A new inner vdev in the place of a device, with the device and another one below.
#[doc(alias = "vdev_add_parent")]
fn wrapped(old: &Arc<Vdev>, kind: VdevKind, device: &Arc<Vdev>) -> Arc<Vdev> {
    let facts = top_facts(&old.config());
    let guid = Guid(rt::random_u64().max(1));
    old.update(|config| config.top_zap = 0);
    Vdev::new(kind, guid, facts, vec![Arc::clone(old), Arc::clone(device)])
}

/// The last side takes the place of its parent; at the top it takes over what a top-level vdev has,
/// guid included.
#[doc(alias = "vdev_remove_parent")]
fn unwrapped(parent: &Vdev, last: &Arc<Vdev>, is_top: bool) -> Arc<Vdev> {
    if is_top {
        let facts = top_facts(&parent.config());
        last.set_guid(parent.guid());
        last.update(|config| {
            config.ms_array = facts.ms_array;
            config.ms_shift = facts.ms_shift;
            config.ashift = facts.ashift;
            config.asize = facts.asize;
            config.is_log = facts.is_log;
            config.non_allocating = facts.non_allocating;
            config.removing = facts.removing;
            config.alloc_bias = facts.alloc_bias;
            config.top_zap = facts.top_zap;
        });
    }
    Arc::clone(last)
}
