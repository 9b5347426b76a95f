//! Changing the shape of a tree: adding, attaching, detaching, removing.
//!
//! # What it is
//! Nodes are not changed but rebuilt around their children, and the root is swapped. The caller (spa, in
//! syncing context) then writes labels and config.
//!
//! # Concurrency
//! I/O that began before the swap goes on with the former nodes: a device that was just attached misses
//! what is written so, which its DTL covers; one that was detached is written to until that I/O has ended.
//!
//! # Source
//! OpenZFS `module/zfs/vdev.c` (`vdev_add_parent`, `vdev_remove_parent`, `vdev_compact_children`),
//! `module/zfs/spa.c` (`spa_vdev_add`, `spa_vdev_attach`, `spa_vdev_detach`).

use std::sync::Arc;

use base::{Error, ErrorKind, Guid, Result, Txg, VdevId};

use crate::dtl::TXG_CONCURRENT_STATES;
use crate::open::min_asize;
use crate::{Vdev, VdevConfig, VdevKind, VdevTree, spare};

/// What is appended to the path of a device that is replaced by one at the same path.
const REPLACED: &str = "/old";

/// What a device that is attached is to the one beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// One more side of a mirror.
    Side,
    /// Its replacement: the old device goes when the new one is complete.
    Replacement,
    /// A hot spare that takes over for it: both stay until one of them is detached, or the old device replaced.
    Spare,
}

/// What detaching a device has changed.
pub struct Detached {
    /// The device.
    pub device: Arc<Vdev>,
    /// The guid that a hot spare had which has taken the place of the device for good.
    pub promoted: Option<Guid>,
}

impl Attach {
    fn kind(self) -> VdevKind {
        match self {
            Attach::Side => VdevKind::Mirror,
            Attach::Replacement => VdevKind::Replacing,
            Attach::Spare => VdevKind::Spare,
        }
    }
}

impl VdevTree {
    /// Adds a top-level vdev, behind all others.
    #[doc(alias = "spa_vdev_add")]
    pub fn add_top(&self, top: Arc<Vdev>) -> VdevId {
        let root = self.root();
        let mut tops = root.children().to_vec();
        tops.push(top);
        let id = VdevId(tops.len() as u64 - 1);
        self.replace_root(rebuilt(&root, tops));
        id
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

    /// Puts another top-level vdev in the place of one.
    pub fn replace_top(&self, id: VdevId, top: Arc<Vdev>) {
        let root = self.root();
        let mut tops = root.children().to_vec();
        tops[usize::try_from(id.0).expect("a vdev of this tree")] = top;
        self.replace_root(rebuilt(&root, tops));
    }

    /// Whether a device can be attached beside another one.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the other one is not there; [`ErrorKind::Unsupported`] if it is part of
    /// something that takes no further device; [`ErrorKind::TooBig`] if the new one is too small;
    /// [`ErrorKind::InvalidInput`] if its sectors are too large.
    pub fn check_attach(&self, beside: Guid, device: &Vdev, attach: Attach) -> Result<()> {
        let (old, top) = self.find_device(beside)?;
        let parent = parent_of(&self.root(), &old)
            .expect("below the root")
            .kind();
        let is_fit = match attach {
            Attach::Side => matches!(parent, VdevKind::Mirror | VdevKind::Root),
            Attach::Replacement | Attach::Spare => {
                spare::may_replace(parent, &old, &top, attach == Attach::Spare)
            }
        };
        let is_at_home = match device.kind() {
            VdevKind::DraidSpare(spare) => {
                spare.draid == top.guid()
                    && attach == Attach::Spare
                    && self.find(device.guid()).is_none()
            }
            _ => true,
        };
        if !is_fit || !is_at_home {
            let what = format!("a device beside one of a {}", parent.word());
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        if device.ashift() > top.ashift() {
            let what = format!(
                "{}: its sectors are larger than those of the vdev",
                device.name()
            );
            return Err(Error::invalid(what));
        }
        check_size(device, &top, &old)
    }

    /// Attaches a device beside another one, as [`check_attach`](Self::check_attach) allows: the two become
    /// a mirror, or a pair of which the old one goes; or the device becomes one more side of what is there.
    /// It lacks everything: its DTL covers all txgs up to those that may be written to at `txg`. A device
    /// at the path of the one that it replaces takes the path over.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    #[doc(alias = "spa_vdev_attach")]
    pub fn attach(&self, beside: Guid, device: &Arc<Vdev>, attach: Attach, txg: Txg) -> Result<()> {
        let (old, _) = self.find_device(beside)?;
        let kind = attach.kind();
        let create_txg = old.config().create_txg;
        device.update(|config| config.create_txg = create_txg);
        if old.config().path == device.config().path {
            old.update(|config| {
                config.path = config.path.as_ref().map(|path| format!("{path}{REPLACED}"));
                config.devid = None;
            });
        }
        device
            .leaf()
            .dirty_dtl(Txg::INITIAL.0..txg.0 + TXG_CONCURRENT_STATES);
        let new_root = self.map(&self.root(), &mut |vdev| {
            let holds_old = vdev.children().iter().any(|child| Arc::ptr_eq(child, &old));
            if holds_old && vdev.kind() == kind {
                let mut sides = vdev.children().to_vec();
                sides.push(Arc::clone(device));
                return Some(rebuilt(vdev, sides));
            }
            Arc::ptr_eq(vdev, &old).then(|| wrapped(vdev, kind, device))
        });
        self.replace_root(new_root);
        Ok(())
    }

    /// Whether a device can be detached.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Unsupported`] if it is not a side of a mirror;
    /// [`ErrorKind::Busy`] if the others do not have everything.
    pub fn check_detach(&self, guid: Guid) -> Result<()> {
        let (device, top) = self.find_device(guid)?;
        let parent = parent_of(&self.root(), &device).expect("below the root");
        if !parent.kind().is_mirror_like() {
            let what = format!("{}: only sides of mirrors can be detached", device.name());
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        if !top.can_do_without(&device) {
            let what = format!("{}: the other devices lack some data", device.name());
            return Err(Error::new(ErrorKind::Busy, what));
        }
        Ok(())
    }

    /// Detaches a device from a mirror or a replacement, as [`check_detach`](Self::check_detach) allows, and
    /// returns it. A mirror that is left with one side is replaced by that side. If the device is one that a
    /// hot spare has taken over for, that is a spare no longer.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    #[doc(alias = "spa_vdev_detach")]
    pub fn detach(&self, guid: Guid) -> Result<Detached> {
        let (device, _) = self.find_device(guid)?;
        let root = self.root();
        let parent = parent_of(&root, &device).expect("below the root");
        let mut rest = parent.children().to_vec();
        rest.retain(|side| !Arc::ptr_eq(side, &device));
        give_path_back(&device, &rest);
        let promoted = spare::settle(&parent, &device, &rest);
        let new_root = self.map(&root, &mut |vdev| {
            Arc::ptr_eq(vdev, &parent).then(|| match &rest[..] {
                [last] => unwrapped(vdev, last, is_top(&root, vdev)),
                rest => rebuilt(vdev, rest.to_vec()),
            })
        });
        self.replace_root(new_root);
        Ok(Detached { device, promoted })
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

pub(crate) fn parent_of(vdev: &Arc<Vdev>, child: &Arc<Vdev>) -> Option<Arc<Vdev>> {
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
        return Err(Error::new(ErrorKind::TooBig, context));
    }
    Ok(())
}

/// If a device took over the path of the one that it replaces, and is detached before it is complete, the
/// old one gets its path back.
fn give_path_back(device: &Vdev, rest: &[Arc<Vdev>]) {
    let path = device.config().path.clone();
    let Some(path) = path else { return };
    let taken = format!("{path}{REPLACED}");
    let is_it = |side: &&Arc<Vdev>| side.config().path.as_ref() == Some(&taken);
    if let Some(old) = rest.iter().find(is_it) {
        old.update(|config| config.path = Some(path));
    }
}

/// The same inner vdev with other children.
fn rebuilt(vdev: &Vdev, children: Vec<Arc<Vdev>>) -> Arc<Vdev> {
    let ops = Arc::clone(vdev.ops());
    let config = vdev.config().clone();
    Vdev::with_ops(vdev.kind(), ops, vdev.guid(), config, children)
}

/// The part of a config that only top-level vdevs have.
pub(crate) fn top_facts(config: &VdevConfig) -> VdevConfig {
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
        indirect_object: config.indirect_object,
        indirect_births: config.indirect_births,
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
            config.indirect_object = facts.indirect_object;
            config.indirect_births = facts.indirect_births;
            config.alloc_bias = facts.alloc_bias;
            config.top_zap = facts.top_zap;
        });
    }
    Arc::clone(last)
}
