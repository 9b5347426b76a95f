//! The vdevs to make a pool of.

use std::sync::Arc;

use geom::Provider;
use zio::AllocClass;

use crate::VdevKind;

/// How the devices of a top-level vdev are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// One device.
    Single,
    /// Every device holds everything.
    Mirror,
    /// Single, double or triple parity.
    Raidz {
        /// 1 to 3
        parity: u64,
    },
    /// The same, spread over more devices.
    Draid {
        /// 1 to 3
        parity: u64,
        /// Data devices per group
        data: u64,
        /// All devices
        children: u64,
        /// Distributed spares
        spares: u64,
    },
}

impl Grouping {
    /// `ZPOOL_CONFIG_TYPE`, for a grouping; single devices are "disk" or "file".
    #[must_use]
    pub fn type_name(self) -> &'static str {
        match self {
            Grouping::Single => "disk",
            Grouping::Mirror => "mirror",
            Grouping::Raidz { .. } => "raidz",
            Grouping::Draid { .. } => "draid",
        }
    }

    /// What a vdev of this grouping is called, without the number.
    #[must_use]
    pub fn display_name(self) -> String {
        match self {
            Grouping::Single | Grouping::Mirror => self.type_name().to_owned(),
            Grouping::Raidz { parity } => format!("raidz{parity}"),
            Grouping::Draid {
                parity,
                data,
                children,
                spares,
            } => {
                format!("draid{parity}:{data}d:{children}c:{spares}s")
            }
        }
    }

    /// The number of parity columns; 0 for a mirror.
    #[must_use]
    pub fn parity(self) -> u64 {
        match self {
            Grouping::Raidz { parity } | Grouping::Draid { parity, .. } => parity,
            Grouping::Single | Grouping::Mirror => 0,
        }
    }
}

/// A top-level vdev to be created, of devices that are named by the user, or found, or open
/// ([`NewDevice`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopSpec<D> {
    /// How its devices are combined.
    pub grouping: Grouping,
    /// What it is for.
    pub class: AllocClass,
    /// Its devices.
    pub devices: Vec<D>,
}

impl<D> TopSpec<D> {
    /// A vdev for blocks of any class.
    #[must_use]
    pub fn new(grouping: Grouping, devices: Vec<D>) -> Self {
        TopSpec {
            grouping,
            class: AllocClass::Normal,
            devices,
        }
    }

    /// The same vdev with each device replaced by what `f` returns for it.
    ///
    /// # Errors
    /// The first error of `f`.
    pub fn try_map<T, E>(&self, f: impl FnMut(&D) -> Result<T, E>) -> Result<TopSpec<T>, E> {
        Ok(TopSpec {
            grouping: self.grouping,
            class: self.class,
            devices: self.devices.iter().map(f).collect::<Result<_, E>>()?,
        })
    }
}

/// Devices that are not part of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuxSpec<D> {
    /// Hot spares.
    pub spares: Vec<D>,
    /// Cache devices.
    pub caches: Vec<D>,
}

impl<D> Default for AuxSpec<D> {
    fn default() -> Self {
        AuxSpec {
            spares: Vec::new(),
            caches: Vec::new(),
        }
    }
}

impl<D> AuxSpec<D> {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spares.is_empty() && self.caches.is_empty()
    }

    /// All of them.
    pub fn devices(&self) -> impl Iterator<Item = &D> {
        self.spares.iter().chain(&self.caches)
    }

    /// The same with each device replaced by what `f` returns for it.
    ///
    /// # Errors
    /// The first error of `f`.
    pub fn try_map<T, E>(&self, mut f: impl FnMut(&D) -> Result<T, E>) -> Result<AuxSpec<T>, E> {
        Ok(AuxSpec {
            spares: self.spares.iter().map(&mut f).collect::<Result<_, E>>()?,
            caches: self.caches.iter().map(f).collect::<Result<_, E>>()?,
        })
    }
}

/// An open device that is to be part of a pool.
#[derive(Clone)]
pub struct NewDevice {
    /// [`VdevKind::Disk`] or [`VdevKind::File`].
    pub kind: VdevKind,
    /// Its path as it is to be recorded in labels.
    pub path: String,
    /// The device.
    pub provider: Arc<dyn Provider>,
}
