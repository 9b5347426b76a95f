//! The kinds of vdevs.

use base::{Error, ErrorKind, Result};
use nvpair::NvList;

use crate::{DraidShape, DraidSpare};

/// The kind of a vdev: its `type` in a config.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "vdev_ops_t")]
pub enum VdevKind {
    /// The whole pool: blocks go to one of the children.
    Root,
    /// Every child holds everything.
    Mirror,
    /// A mirror of a device and the one that replaces it.
    Replacing,
    /// A mirror of a failed device and the hot spare that has taken over for it.
    Spare,
    /// Blocks are spread over the children, with `nparity` columns of parity.
    RaidZ {
        /// 1, 2 or 3.
        nparity: u8,
    },
    /// Blocks are spread over groups of children, which are permuted, with room for spares on all of them.
    Draid(DraidShape),
    /// A block device.
    Disk,
    /// A file.
    File,
    /// The room for a lost child on all other children of a dRAID.
    DraidSpare(DraidSpare),
    /// A top-level vdev of which no device was found.
    Missing,
    /// An unused number among the top-level vdevs.
    Hole,
    /// A removed top-level vdev, whose blocks are found through a mapping.
    Indirect,
}

impl VdevKind {
    /// The word in a config.
    #[must_use]
    #[doc(alias = "VDEV_TYPE_ROOT")]
    pub fn word(self) -> &'static str {
        match self {
            VdevKind::Root => "root",
            VdevKind::Mirror => "mirror",
            VdevKind::Replacing => "replacing",
            VdevKind::Spare => "spare",
            VdevKind::RaidZ { .. } => "raidz",
            VdevKind::Draid(_) => "draid",
            VdevKind::Disk => "disk",
            VdevKind::File => "file",
            VdevKind::DraidSpare(_) => "dspare",
            VdevKind::Missing => "missing",
            VdevKind::Hole => "hole",
            VdevKind::Indirect => "indirect",
        }
    }

    /// From a config: its word, and what a RAID-Z or dRAID has besides.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a kind that this program does not know, [`ErrorKind::Corrupt`] for
    /// numbers that make no sense.
    #[doc(alias = "vdev_getops")]
    pub fn from_config(nv: &NvList) -> Result<Self> {
        let word = nv.get_str("type");
        let word = word.ok_or_else(|| Error::corrupt("vdev config without type"))?;
        Ok(match word {
            "root" => VdevKind::Root,
            "mirror" => VdevKind::Mirror,
            "replacing" => VdevKind::Replacing,
            "spare" => VdevKind::Spare,
            "disk" => VdevKind::Disk,
            "file" => VdevKind::File,
            "dspare" => VdevKind::DraidSpare(DraidSpare::from_config(nv)?),
            "missing" => VdevKind::Missing,
            "hole" => VdevKind::Hole,
            "indirect" => VdevKind::Indirect,
            "draid" => VdevKind::Draid(DraidShape::from_config(nv)?),
            "raidz" => match nv.get_u64("nparity").unwrap_or(1) {
                nparity @ 1..=3 => VdevKind::RaidZ {
                    nparity: nparity as u8,
                },
                nparity => return Err(Error::corrupt(format!("raidz with nparity {nparity}"))),
            },
            other => {
                let context = format!("vdev type \"{other}\"");
                return Err(Error::new(ErrorKind::Unsupported, context));
            }
        })
    }

    /// Whether it has a device of its own and no children.
    #[must_use]
    #[doc(alias = "vdev_op_leaf")]
    pub fn is_leaf(self) -> bool {
        matches!(
            self,
            VdevKind::Disk
                | VdevKind::File
                | VdevKind::DraidSpare(_)
                | VdevKind::Missing
                | VdevKind::Hole
        )
    }

    /// Whether it can have a device: a leaf that is not just a placeholder.
    #[must_use]
    pub fn is_device(self) -> bool {
        matches!(
            self,
            VdevKind::Disk | VdevKind::File | VdevKind::DraidSpare(_)
        )
    }

    /// Whether it has a device of its own, with labels.
    #[must_use]
    pub fn has_labels(self) -> bool {
        matches!(self, VdevKind::Disk | VdevKind::File)
    }

    /// Whether blocks have columns of parity.
    #[must_use]
    #[doc(alias = "vdev_get_nparity")]
    pub fn has_parity(self) -> bool {
        matches!(self, VdevKind::RaidZ { .. } | VdevKind::Draid(_))
    }

    /// Whether every child holds everything.
    #[must_use]
    pub fn is_mirror_like(self) -> bool {
        matches!(
            self,
            VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare
        )
    }

    /// Whether it holds blocks itself.
    #[must_use]
    #[doc(alias = "vdev_is_concrete")]
    pub fn is_concrete(self) -> bool {
        !matches!(
            self,
            VdevKind::Missing | VdevKind::Hole | VdevKind::Indirect
        )
    }
}
