//! The properties of vdevs: what they are, and setting them.
//!
//! # What it is
//! Most are facts of the vdev; the others are in its ZAP ([`spa::Spa::vdev_props`]). As in OpenZFS, `fragmentation`
//! and `expandsize` of a vdev are always 0 (`zpool list -v` has them), and devices that are not in the tree, hot spares
//! and cache devices, have no properties.
//!
//! # Source
//! OpenZFS module/zfs/vdev.c (`vdev_prop_get`, `vdev_prop_set`, `vdev_name`).

use std::collections::BTreeMap;
use std::sync::Arc;

use admin::listing::{Item, Prop};
use admin::pool::{PoolIo, VdevStatus};
use admin::prop::{PropDesc, Source, VDEV, lookup};
use base::{Error, ErrorKind, Guid, Result, VdevId};
use geom::Namespace;
use geom::disk::OpenMode;
use machine::Holder;
use phys::PropValue;
use spa::SweepKind;
use vdev::{Vdev, VdevKind};

use crate::kept_errors::{KeptErrors, kept_errors};
use crate::open::OpenPool;

/// Paths that a vdev may get begin with this.
const DEVICES: &str = "/dev/";
/// What OpenZFS says of a value that the engine refuses.
const INVALID: &str = "invalid argument for this pool operation";

/// One vdev of the tree, with what its properties are made of.
struct Facts<'p> {
    pool: &'p OpenPool,
    vdev: Arc<Vdev>,
    parent: Option<Arc<Vdev>>,
    /// Of a vdev that is not the root: its top-level vdev.
    top: Option<(VdevId, Arc<Vdev>)>,
    stored: BTreeMap<String, PropValue>,
    io: PoolIo,
    kept: KeptErrors,
}

impl OpenPool {
    /// All properties of some vdevs, each named as the caller wants it.
    ///
    /// # Errors
    /// `NotFound` for a vdev that is not in the tree; errors of reading the pool.
    pub fn vdev_properties(&self, vdevs: &[(String, Guid)]) -> Result<Vec<Item>> {
        let item = |(name, guid): &(String, Guid)| {
            let facts = self.facts_of(*guid)?;
            let mut props: Vec<Prop> = VDEV.iter().filter_map(|desc| facts.prop(desc)).collect();
            let is_user = |name: &str| lookup(VDEV, name).is_none();
            for (name, value) in &facts.stored {
                if is_user(name) && value.as_text().is_some() {
                    props.push(Prop::new(name, value.clone(), Source::Local));
                }
            }
            Ok(Item {
                name: name.clone(),
                types: None,
                props,
            })
        };
        vdevs.iter().map(item).collect()
    }

    /// Sets a property of a vdev, whose form has been checked.
    ///
    /// # Errors
    /// In OpenZFS's words where it refuses it, too; `NotFound` if `path` does not lead to the device; `ReadOnly`,
    /// `Suspended`.
    pub fn set_vdev_property(&self, vdev: Guid, name: &str, value: PropValue) -> Result<()> {
        let invalid = |error: Error| match error.kind() {
            ErrorKind::InvalidInput => Error::invalid(INVALID),
            _ => error,
        };
        match (name, &value) {
            ("allocating", PropValue::Number(n @ 0..=1)) => self.set_allocating(vdev, *n != 0),
            ("allocating", _) => Err(Error::invalid(INVALID)),
            ("path", PropValue::Text(path)) => {
                self.check_path(vdev, path)?;
                self.set_vdev_path(vdev, path)
            }
            _ => self.set_vdev_prop(vdev, name, value),
        }
        .map_err(invalid)
    }

    /// A path must lead to the device: OpenZFS takes any, and finds the device again by its label only if another
    /// program looks for it.
    fn check_path(&self, guid: Guid, path: &str) -> Result<()> {
        let vdev = self.parts().tree().find(guid);
        let is_device = vdev.is_some_and(|vdev| vdev.kind().is_device());
        if !is_device {
            return Err(Error::new(ErrorKind::ReadOnly, "pool is read-only"));
        }
        if !path.starts_with(DEVICES) {
            return Err(Error::invalid(INVALID));
        }
        let names = self.pools().world().names_for(Holder::Pool(self.name()));
        let found = names.open(path, OpenMode::Inspect).ok();
        let owner = found.and_then(|provider| vdev::label::owner(&*provider));
        if owner.is_some_and(|owner| owner.guid == guid && owner.pool_guid == self.guid()) {
            return Ok(());
        }
        Err(Error::not_found(format!("the device is not at {path}")))
    }

    fn facts_of(&self, guid: Guid) -> Result<Facts<'_>> {
        let root = self.parts().tree().root();
        let vdev = root.find(guid);
        let vdev = vdev.ok_or_else(|| Error::not_found(format!("no vdev {guid}")))?;
        let tops = (0..).map(VdevId).zip(self.parts().tree().tops());
        let mut tops = tops.filter(|(_, top)| top.find(guid).is_some());
        Ok(Facts {
            pool: self,
            parent: parent_of(&root, guid),
            top: tops.next(),
            stored: self.vdev_props(guid)?,
            io: self.pools().io(&self.name())?.unwrap_or_default(),
            kept: kept_errors(self.pools(), self.guid()),
            vdev,
        })
    }
}

fn parent_of(vdev: &Arc<Vdev>, guid: Guid) -> Option<Arc<Vdev>> {
    if vdev.children().iter().any(|child| child.guid() == guid) {
        return Some(Arc::clone(vdev));
    }
    let mut children = vdev.children().iter();
    children.find_map(|child| parent_of(child, guid))
}

/// The name of a vdev as the kernel says it: it knows no short names, and no parity.
#[doc(alias = "vdev_name")]
fn kernel_name(pool: &OpenPool, vdev: &Vdev, id: usize) -> String {
    match (vdev.config().path.clone(), vdev.kind()) {
        (Some(path), _) => path,
        (None, VdevKind::Root) => pool.name(),
        (None, kind) => format!("{}-{id}", kind.word()),
    }
}

impl Facts<'_> {
    /// `None` for one that this vdev does not have.
    fn prop(&self, desc: &'static PropDesc) -> Option<Prop> {
        let (vdev, name) = (&self.vdev, desc.name);
        let number = |n: u64| Some(Prop::number(name, n));
        let config = vdev.config();
        let text = |text: Option<&str>| match text {
            Some(text) => Some(Prop::text(name, text)),
            None => Some(Prop::new(name, desc.default_value(), Source::Default)),
        };
        let is_device = vdev.kind().is_device();
        match name {
            "name" => None,
            "state" => number(vdev.state().0.raw()),
            "guid" => number(vdev.guid().0),
            "capacity" | "size" | "free" | "allocated" => number(self.space(name)),
            "asize" if self.top.is_none() => number(0),
            "asize" if is_device => number(phys::label::allocatable_size(vdev.leaf().psize())),
            "asize" => number(config.asize),
            "psize" => number(if is_device { vdev.leaf().psize() } else { 0 }),
            "ashift" => number(
                self.top
                    .as_ref()
                    .map_or(0, |(_, top)| top.config().ashift.into()),
            ),
            "parity" => number(match vdev.kind() {
                VdevKind::RaidZ { nparity } => nparity.into(),
                VdevKind::Draid(shape) => shape.nparity.into(),
                _ => 0,
            }),
            "path" => text(config.path.as_deref()),
            "devid" => text(config.devid.as_deref()),
            "physpath" => text(config.phys_path.as_deref()),
            "encpath" => text(config.enc_sysfs_path.as_deref()),
            "fru" => text(config.fru.as_deref()),
            "parent" => text(self.parent_name().as_deref()),
            "children" if vdev.children().is_empty() => text(None),
            "children" => text(Some(&self.child_names())),
            "numchildren" => number(vdev.children().len() as u64),
            "bootsize" => Some(Prop::new(name, PropValue::Number(0), Source::Default)),
            "removing" => number(config.removing.into()),
            "raidz_expanding" => match vdev.kind() {
                VdevKind::RaidZ { .. } => number(config.expanding.into()),
                _ => None,
            },
            "trim_support" if is_device => number(vdev.leaf().can_delete().into()),
            "trim_support" => text(Some("")),
            // Below a top-level vdev nothing is allocated.
            "allocating"
                if self
                    .top
                    .as_ref()
                    .is_some_and(|(_, top)| !Arc::ptr_eq(top, vdev)) =>
            {
                text(Some(""))
            }
            _ if desc.is_readonly() => number(self.counter(name)),
            _ => Some(self.stored(desc)),
        }
    }

    /// A property that is in the ZAP, or its default.
    fn stored(&self, desc: &'static PropDesc) -> Prop {
        let set = self.stored.get(desc.name).filter(|value| {
            std::mem::discriminant(*value) == std::mem::discriminant(&desc.default_value())
        });
        match set {
            Some(value) if *value != desc.default_value() => {
                Prop::new(desc.name, value.clone(), Source::Local)
            }
            _ => Prop::new(desc.name, desc.default_value(), Source::Default),
        }
    }

    /// Numbers of the space of a top-level vdev, or of the pool.
    fn space(&self, name: &str) -> u64 {
        let space = match &self.top {
            None => Some(self.pool.space()),
            Some((id, top)) if Arc::ptr_eq(top, &self.vdev) => self.pool.vdev_space(*id).ok(),
            Some(_) => None,
        };
        let (all, used) = space.map_or((0, 0), |space| (space.dspace, space.alloc));
        match name {
            "capacity" => used.saturating_mul(100).checked_div(all).unwrap_or(0),
            "size" => all,
            "free" => all.saturating_sub(used),
            _ => used,
        }
    }

    /// What was counted of this vdev: of all devices below, unless it is the root.
    fn counter(&self, name: &str) -> u64 {
        if self.vdev.kind() == VdevKind::Root {
            return 0;
        }
        let devices = self.vdev.devices();
        let of_device = |device: &Arc<Vdev>| {
            let guid = device.guid();
            let counts = self.io.vdevs.get(&guid.0).map(|io| &io.counts);
            let counts = counts.cloned().unwrap_or_default();
            let kept = self.kept.devices.get(&guid.0).copied();
            let [read, write, checksum, slow] = kept.unwrap_or_default();
            let swept = |kind| {
                let progress = self.pool.sweep_progress(guid, kind).ok().flatten();
                progress.map_or(0, |progress| progress.errors)
            };
            match name {
                "read_errors" => read,
                "write_errors" => write,
                "checksum_errors" => checksum,
                "slow_ios" => slow,
                "initialize_errors" => swept(SweepKind::Initialize),
                "trim_errors" => swept(SweepKind::Trim),
                "read_ops" => counts.read_ops(),
                "write_ops" => counts.write_ops(),
                "read_bytes" => counts.read_bytes(),
                "write_bytes" => counts.write_bytes(),
                _ => 0,
            }
        };
        devices.iter().map(of_device).sum()
    }

    fn parent_name(&self) -> Option<String> {
        let parent = self.parent.as_ref()?;
        let tops = self.pool.parts().tree().tops();
        let id = tops.iter().position(|top| top.guid() == parent.guid());
        let among = parent_of(&self.pool.parts().tree().root(), parent.guid());
        let among = among.map_or(0, |above| {
            let mut siblings = above.children().iter();
            siblings
                .position(|sibling| sibling.guid() == parent.guid())
                .unwrap_or(0)
        });
        Some(kernel_name(self.pool, parent, id.unwrap_or(among)))
    }

    fn child_names(&self) -> String {
        let children = self.vdev.children().iter().enumerate();
        let names: Vec<String> = children
            .map(|(id, child)| kernel_name(self.pool, child, id))
            .collect();
        names.join(",")
    }
}

/// The name that a command shows for the root vdev among others.
pub const ROOT_NAME: &str = "root-0";

/// All vdevs of the tree below and with `root`, parents first, without the places of removed log devices.
#[must_use]
#[doc(alias = "for_each_vdev")]
pub fn all_vdevs(root: &VdevStatus) -> Vec<&VdevStatus> {
    let mut all = vec![root];
    for child in &root.children {
        if !matches!(child.kind, admin::pool::VdevKind::Hole) {
            all.extend(all_vdevs(child));
        }
    }
    all
}
