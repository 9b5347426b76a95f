//! What a dRAID is made of.
//!
//! # Source
//! OpenZFS `include/sys/vdev_draid.h` (`vdev_draid_config_t`), `module/zfs/vdev_draid.c` (`vdev_draid_init`),
//! `cmd/zpool/zpool_vdev.c` (`draid_config_by_type`).

use base::{Error, Guid, Result};
use nvpair::NvList;

/// `VDEV_DRAID_MAX_CHILDREN`
const CHILDREN_MAX: u64 = 255;
/// The most distributed spares.
const SPARES_MAX: u8 = 100;
/// `VDEV_DRAID_MAXPARITY`
const PARITY_MAX: u8 = 3;

/// The numbers that say how a dRAID uses its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "vdev_draid_config_t")]
pub struct DraidShape {
    /// vdc_nparity: columns of parity of a group, 1 to 3.
    pub nparity: u8,
    /// vdc_ndata: columns of data of a group.
    pub ndata: u8,
    /// vdc_nspares: children of which the room is kept for distributed spares.
    pub nspares: u8,
    /// vdc_ngroups: groups of a slice.
    pub ngroups: u8,
}

impl DraidShape {
    /// The shape with the fewest groups that fill whole rows of `children` children; none if these are too few
    /// or too many.
    #[must_use]
    #[doc(alias = "draid_config_by_type")]
    pub fn new(nparity: u64, ndata: u64, nspares: u64, children: u64) -> Option<Self> {
        let with = |ngroups| {
            Some(DraidShape {
                nparity: u8::try_from(nparity).ok()?,
                ndata: u8::try_from(ndata).ok()?,
                nspares: u8::try_from(nspares).ok()?,
                ngroups,
            })
        };
        let shapes = (1..=u8::MAX).filter_map(with);
        shapes.into_iter().find(|shape| shape.fits(children))
    }

    /// vdc_groupwidth: columns of a group.
    pub(crate) fn width(self) -> u64 {
        u64::from(self.ndata) + u64::from(self.nparity)
    }

    /// Whether `children` children can be used so.
    #[doc(alias = "vdev_draid_init")]
    pub(crate) fn fits(self, children: u64) -> bool {
        let is_used = |spares: u64| {
            let used = children.checked_sub(spares);
            used.filter(|used| *used >= self.width())
        };
        (1..=PARITY_MAX).contains(&self.nparity)
            && self.ndata > 0
            && self.ngroups > 0
            && self.nspares <= SPARES_MAX
            && children <= CHILDREN_MAX
            && is_used(self.nspares.into())
                .is_some_and(|used| (self.width() * u64::from(self.ngroups)).is_multiple_of(used))
    }

    pub(crate) fn from_config(nv: &NvList) -> Result<Self> {
        let number = |key| {
            let value = nv.get_u64(key);
            let small = value.and_then(|value| u8::try_from(value).ok());
            small.ok_or_else(|| Error::corrupt(format!("draid with {key} {value:?}")))
        };
        Ok(DraidShape {
            nparity: number("nparity")?,
            ndata: number("draid_ndata")?,
            nspares: number("draid_nspares")?,
            ngroups: number("draid_ngroups")?,
        })
    }

    #[doc(alias = "vdev_draid_config_generate")]
    pub(crate) fn add_to(self, nv: &mut NvList) {
        nv.add("nparity", u64::from(self.nparity));
        nv.add("draid_ndata", u64::from(self.ndata));
        nv.add("draid_nspares", u64::from(self.nspares));
        nv.add("draid_ngroups", u64::from(self.ngroups));
    }
}

/// A distributed spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "vdev_draid_spare_t")]
pub struct DraidSpare {
    /// vds_top_guid: of its dRAID.
    pub draid: Guid,
    /// vds_spare_id: its number there.
    pub number: u8,
}

impl DraidSpare {
    #[doc(alias = "vdev_draid_spare_init")]
    pub(crate) fn from_config(nv: &NvList) -> Result<Self> {
        let number = nv.get_u64("spareid").and_then(|n| u8::try_from(n).ok());
        let draid = nv.get_u64("top_guid").map(Guid);
        let (Some(number), Some(draid)) = (number, draid) else {
            return Err(Error::corrupt("dspare without spareid and top_guid"));
        };
        Ok(DraidSpare { draid, number })
    }

    #[doc(alias = "vdev_draid_spare_config_generate")]
    pub(crate) fn add_to(self, nv: &mut NvList) {
        nv.add("top_guid", self.draid.0);
        nv.add("spareid", u64::from(self.number));
    }

    /// What users call it.
    #[must_use]
    pub fn name(self, shape: DraidShape, id: base::VdevId) -> String {
        format!("draid{}-{}-{}", shape.nparity, id.0, self.number)
    }
}
