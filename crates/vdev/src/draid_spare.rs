//! Distributed spares in the tree: leaves without a device.
//!
//! # What it is
//! A distributed spare is room that is kept on all children of a dRAID. Its leaf takes over for one of them as any
//! hot spare does (`crate::spare`); its provider has a size, and takes labels without keeping them: I/O
//! goes to the children that have the room (`kinds::draid_spare`).
//!
//! # Invariants
//! 1. A distributed spare is in its own dRAID, and there once.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_draid.c` (`vdev_draid_spare_open`, `vdev_draid_spare_io_start`,
//! `vdev_draid_spare_create`).

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Error, ErrorKind, Guid, Result, VdevId};
use geom::{Command, Provider, Shape};

use crate::{DraidSpare, Vdev, VdevAux, VdevConfig, VdevKind, VdevState, VdevTree};

/// The unit of a provider whose sectors do not matter.
const SECTOR_BYTES: u32 = 512;

/// The provider of a distributed spare.
struct Room {
    name: String,
    bytes: u64,
}

impl Provider for Room {
    fn name(&self) -> &str {
        &self.name
    }

    fn shape(&self) -> Shape {
        Shape::new(self.bytes, SECTOR_BYTES)
    }

    fn execute(&self, _: u64, command: Command<'_>) -> Result<()> {
        match command {
            Command::Read(_) => {
                let what = "a distributed spare has no bytes of its own";
                Err(Error::new(ErrorKind::Unsupported, what))
            }
            Command::Write(_) | Command::Delete { .. } | Command::Flush => Ok(()),
        }
    }
}

impl Vdev {
    /// Opens the distributed spares that are in use in this top-level vdev.
    pub(crate) fn open_spares(self: &Arc<Self>) {
        for leaf in self.leaves() {
            if let VdevKind::DraidSpare(spare) = leaf.kind()
                && !matches!(
                    leaf.leaf().state().0,
                    VdevState::Offline | VdevState::Faulted
                )
                && leaf.leaf().open(self.room_of(&leaf.name())).is_err()
            {
                assert_eq!(spare.draid, self.guid(), "in its own dRAID");
                leaf.leaf().close(VdevState::CantOpen, VdevAux::OpenFailed);
            }
        }
    }

    /// Room on each child is as large as the smallest of them.
    fn room_of(self: &Arc<Self>, name: &str) -> Arc<dyn Provider> {
        let devices = self.leaves().iter();
        let sizes =
            devices.filter(|device| device.kind().has_labels() && device.leaf().is_usable());
        let bytes = sizes.map(|device| device.leaf().psize()).min();
        Arc::new(Room {
            name: name.to_owned(),
            bytes: bytes.unwrap_or(0),
        })
    }

    /// The distributed spares of this top-level vdev, which has this number and is open.
    #[must_use]
    #[doc(alias = "vdev_draid_spare_create")]
    pub fn new_spares(self: &Arc<Self>, id: VdevId) -> Vec<Arc<Vdev>> {
        let VdevKind::Draid(shape) = self.kind() else {
            return Vec::new();
        };
        let spare = |number: u8| {
            let spare = DraidSpare {
                draid: self.guid(),
                number,
            };
            let guid = Guid(rt::random_u64().max(1));
            let leaf = self.spare_leaf(spare, guid, &spare.name(shape, id));
            leaf.update(|config| config.whole_disk = Some(true));
            leaf
        };
        (0..shape.nspares).map(spare).collect()
    }

    /// A leaf for a distributed spare of this top-level vdev, to be attached.
    #[must_use]
    pub fn spare_leaf(self: &Arc<Self>, spare: DraidSpare, guid: Guid, name: &str) -> Arc<Vdev> {
        let config = VdevConfig {
            path: Some(name.to_owned()),
            is_spare: true,
            ashift: self.ashift(),
            ..VdevConfig::default()
        };
        let leaf = Vdev::new(VdevKind::DraidSpare(spare), guid, config, Vec::new());
        if leaf.leaf().open(self.room_of(name)).is_err() {
            let state = (VdevState::CantOpen, VdevAux::OpenFailed);
            leaf.leaf().close(state.0, state.1);
        }
        leaf
    }
}

impl VdevTree {
    /// The dRAID of a distributed spare; nothing for other devices.
    #[must_use]
    #[doc(alias = "vdev_draid_spare_get_parent")]
    pub fn draid_of(&self, spare: &Vdev) -> Option<(DraidSpare, Arc<Vdev>)> {
        let VdevKind::DraidSpare(kind) = spare.kind() else {
            return None;
        };
        let tops = self.tops().into_iter();
        let is_it = |top: &Arc<Vdev>| match top.kind() {
            VdevKind::Draid(shape) => top.guid() == kind.draid && kind.number < shape.nspares,
            _ => false,
        };
        tops.into_iter().find(is_it).map(|top| (kind, top))
    }

    /// Opens the leaf of a distributed spare in the pool's list; false for other devices.
    pub fn open_listed_spare(&self, spare: &Vdev) -> bool {
        let is_spare = matches!(spare.kind(), VdevKind::DraidSpare(_));
        let draid = self.draid_of(spare);
        let room = draid.map(|(_, top)| top.room_of(&spare.name()));
        if is_spare && room.is_none_or(|room| spare.leaf().open(room).is_err()) {
            let leaf = spare.leaf();
            leaf.close(VdevState::CantOpen, VdevAux::OpenFailed);
        }
        is_spare
    }
}

/// Checks that the distributed spares below a top-level vdev are its own, and each is there once.
pub(crate) fn check_spares((kind, guid): (VdevKind, Guid), children: &[Arc<Vdev>]) -> Result<()> {
    let mut seen = BTreeSet::new();
    for leaf in children.iter().flat_map(Vdev::leaves) {
        let VdevKind::DraidSpare(spare) = leaf.kind() else {
            continue;
        };
        let is_own = match kind {
            VdevKind::Draid(shape) => spare.number < shape.nspares && spare.draid == guid,
            _ => false,
        };
        if !is_own || !seen.insert(spare.number) {
            let what = format!("distributed spare {} in vdev {guid}", spare.number);
            return Err(Error::corrupt(what));
        }
    }
    Ok(())
}
