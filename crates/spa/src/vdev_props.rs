//! Properties of vdevs: what is set for the root vdev, a top-level vdev or a device.
//!
//! # On disk
//! In the ZAP of the vdev, beside what the pool itself keeps there, by name: a u64, or a string with its final zero. A
//! vdev has up to three ZAPs: properties are in that of the root vdev, else in that of a top-level vdev, else in that
//! of a device. A user property has a colon in its name, and is a string.
//!
//! # Invariants
//! 1. `allocating` in the ZAP of a top-level vdev and `non_allocating` in its config change in one txg.
//!
//! # Source
//! OpenZFS `module/zfs/vdev.c` (`vdev_prop_set`, `vdev_prop_get`, `vdev_props_set_sync`), `module/zfs/zfs_fm.c`
//! (`vdev_prop_get_inherited`), `module/zfs/vdev_removal.c` (`spa_vdev_noalloc`, `spa_vdev_alloc`).

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Error, ErrorKind, Guid, ObjectId, Result};
use dmu::{Objset, Tx};
use phys::PropValue;
use vdev::{ErrorLimits, Vdev, VdevTree};

use crate::spa::{Inner, Spa};

/// Whether new blocks go to a top-level vdev.
pub(crate) const ALLOCATING: &str = "allocating";
/// The properties that say how many errors are too many, with their places in [`ErrorLimits`].
const LIMITS: [&str; 6] = [
    "checksum_n",
    "checksum_t",
    "io_n",
    "io_t",
    "slow_io_n",
    "slow_io_t",
];
/// Longer values are not read: OpenZFS writes at most this (`ZAP_MAXVALUELEN`).
const VALUE_MAX_BYTES: u64 = 8192;

impl Spa {
    /// What is in the ZAP of a vdev: its properties that are set, and strings that the pool itself keeps there.
    ///
    /// # Errors
    /// `NotFound` if there is no such vdev; `InvalidInput` if it has no ZAP; errors of reading the MOS.
    #[doc(alias = "vdev_prop_get")]
    pub fn vdev_props(&self, guid: Guid) -> Result<BTreeMap<String, PropValue>> {
        let vdev = self.inner.vdev_with_props(guid)?;
        stored(&self.inner.mos, &vdev)
    }

    /// Sets a property of a vdev; an empty text removes a user property. Only [`set_allocating`](Spa::set_allocating)
    /// and [`set_vdev_path`](Spa::set_vdev_path) give those two their effects.
    ///
    /// # Errors
    /// As [`vdev_props`](Spa::vdev_props); `ReadOnly`, `Suspended`.
    #[doc(alias = "vdev_prop_set")]
    pub fn set_vdev_prop(&self, guid: Guid, name: &str, value: PropValue) -> Result<()> {
        self.inner.vdev_with_props(guid)?;
        let name = name.to_owned();
        self.in_sync(move |inner, tx| inner.write_vdev_prop(guid, &name, &value, tx))?;
        apply_limits(&self.inner.mos, &self.inner.tree)
    }

    /// Has new blocks go to a top-level vdev, or to others only.
    ///
    /// # Errors
    /// As [`vdev_props`](Spa::vdev_props); `Unsupported` if nothing is allocated on it anyway; `InvalidInput` if there
    /// is no other that new blocks could go to, or for a log device; `ReadOnly`, `Suspended`.
    #[doc(alias = "spa_vdev_noalloc")]
    #[doc(alias = "spa_vdev_alloc")]
    pub fn set_allocating(&self, guid: Guid, is_on: bool) -> Result<()> {
        self.check_writable()?;
        let vdev = self.inner.vdev_with_props(guid)?;
        let is_off = vdev.config().non_allocating;
        let value = PropValue::Number(u64::from(is_on));
        if is_on != is_off {
            return self.set_vdev_prop(guid, ALLOCATING, value);
        }
        let top = self.inner.find_top(guid).ok();
        let Some((id, top)) = top.filter(|(_, top)| top.kind().is_concrete()) else {
            let text = "operation not supported on this type of vdev";
            return Err(Error::new(ErrorKind::Unsupported, text));
        };
        if top.config().is_log {
            return Err(Error::invalid("a log device is always allocated from"));
        }
        if !is_on {
            self.inner.passivate(id)?;
            if let Err(error) = self.drain() {
                self.inner.space.set_allocatable(id, true)?;
                return Err(error);
            }
        }
        self.in_sync(move |inner, tx| {
            inner.write_vdev_prop(guid, ALLOCATING, &value, tx)?;
            // A vdev that is being removed is not allocated from, and says so until that ends.
            let is_leaving = top.config().removing;
            top.update(|config| config.non_allocating = !is_on || is_leaving);
            if is_on && !is_leaving {
                inner.space.set_allocatable(id, true)?;
            }
            inner.tree_changed();
            Ok(())
        })
    }

    /// Sets where a device is found. The caller has seen that it is there.
    ///
    /// # Errors
    /// As [`vdev_props`](Spa::vdev_props); `Unsupported` if the vdev is not a device; `ReadOnly`, `Suspended`.
    #[doc(alias = "spa_vdev_setpath")]
    pub fn set_vdev_path(&self, guid: Guid, path: &str) -> Result<()> {
        let vdev = self.inner.vdev_with_props(guid)?;
        if !vdev.kind().is_device() {
            let text = "only devices have a path";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let path = path.to_owned();
        self.in_sync(move |inner, tx| {
            inner.write_vdev_prop(guid, "path", &PropValue::Text(path.clone()), tx)?;
            vdev.update(|config| config.path = Some(path));
            inner.tree_changed();
            Ok(())
        })
    }
}

impl Inner {
    fn vdev_with_props(&self, guid: Guid) -> Result<Arc<Vdev>> {
        let vdev = self.tree.find(guid);
        let vdev = vdev.ok_or_else(|| Error::not_found(format!("no vdev {guid}")))?;
        match zap_of(&vdev) {
            Some(_) => Ok(vdev),
            None => Err(Error::invalid(format!("vdev {guid} has no ZAP"))),
        }
    }

    /// Writes a property, if the vdev is still there.
    #[doc(alias = "vdev_props_set_sync")]
    fn write_vdev_prop(&self, guid: Guid, name: &str, value: &PropValue, tx: &Tx) -> Result<()> {
        let Some(zap) = self.tree.find(guid).and_then(|vdev| zap_of(&vdev)) else {
            return Ok(());
        };
        let shown = match value {
            PropValue::Number(number) => {
                zap::update(&self.mos, tx, zap, name, &[*number])?;
                (*number as i64).to_string()
            }
            PropValue::Text(text) if text.is_empty() && name.contains(':') => {
                zap::remove(&self.mos, tx, zap, name)?;
                String::new()
            }
            PropValue::Text(text) => {
                zap::update_str(&self.mos, tx, zap, name, text)?;
                text.clone()
            }
        };
        let text = format!("vdev_guid={}: {name}={shown}", guid.0);
        self.core.log_internal("vdev set", &text, tx);
        Ok(())
    }
}

/// The ZAP that has the properties of a vdev.
#[doc(alias = "vdev_prop_get_objid")]
fn zap_of(vdev: &Vdev) -> Option<ObjectId> {
    let config = vdev.config();
    let zaps = [config.root_zap, config.top_zap, config.leaf_zap];
    zaps.into_iter().find(|zap| *zap != 0).map(ObjectId)
}

fn stored(mos: &Arc<Objset>, vdev: &Vdev) -> Result<BTreeMap<String, PropValue>> {
    let mut values = BTreeMap::new();
    let Some(zap) = zap_of(vdev) else {
        return Ok(values);
    };
    for entry in zap::iter(mos, zap)? {
        let entry = entry?;
        let name = entry.name_str().into_owned();
        let value = match (entry.integer_size, entry.num_integers) {
            (8, 1) => PropValue::Number(entry.first_integer),
            (1, 1..=VALUE_MAX_BYTES) => {
                let text = zap::lookup_str(mos, zap, &*name)?;
                PropValue::Text(text.unwrap_or_default())
            }
            _ => continue,
        };
        values.insert(name, value);
    }
    Ok(values)
}

/// Tells each device how many errors are too many: as its own properties say, or those of the nearest vdev above.
#[doc(alias = "vdev_prop_get_inherited")]
pub(crate) fn apply_limits(mos: &Arc<Objset>, tree: &VdevTree) -> Result<()> {
    apply_below(mos, &tree.root(), [None; LIMITS.len()])
}

fn apply_below(
    mos: &Arc<Objset>,
    vdev: &Arc<Vdev>,
    above: [Option<u64>; LIMITS.len()],
) -> Result<()> {
    let mut limits = above;
    if let Some(zap) = zap_of(vdev) {
        for (limit, name) in limits.iter_mut().zip(LIMITS) {
            // A value of another type is another program's mistake: it counts as not set.
            let set = zap::lookup_u64(mos, zap, name).unwrap_or(None);
            *limit = set.filter(|n| *n != u64::MAX).or(*limit);
        }
    }
    if vdev.kind().is_device() {
        let [checksum_n, checksum_t, io_n, io_t, slow_n, slow_t] = limits;
        vdev.leaf().set_limits(ErrorLimits {
            checksums: (checksum_n, checksum_t),
            io: (io_n, io_t),
            slow: (slow_n, slow_t),
        });
    }
    let mut children = vdev.children().iter();
    children.try_for_each(|child| apply_below(mos, child, limits))
}
