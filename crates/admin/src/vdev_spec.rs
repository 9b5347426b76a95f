//! The devices of `zpool create` and `zpool add`: `mirror a b raidz2 c d e f log g spare h`.
//!
//! # What it is
//! Words are read from left to right. `mirror`, `raidz…` and `draid…` take the words that follow, up
//! to the next keyword; `log`, `special` and `dedup` say what the following vdevs are for; `spare`
//! and `cache` take devices alone. Afterwards the levels of redundancy are compared, which `-f`
//! overrides.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_vdev.c `construct_spec`, `get_replication`, `check_replication` @be7657e3.

mod parse;
mod replication;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

pub use parse::parse_vdev_spec;
pub use replication::{LeafFacts, Replication, check_replication, override_message};

/// How the devices of a top-level vdev belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// One device.
    Single,
    /// All the same.
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
    pub fn type_name(&self) -> &'static str {
        match self {
            Grouping::Single => "disk",
            Grouping::Mirror => "mirror",
            Grouping::Raidz { .. } => "raidz",
            Grouping::Draid { .. } => "draid",
        }
    }

    /// What a vdev of this grouping is called, without the number.
    #[must_use]
    pub fn display_name(&self) -> String {
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

    /// How many devices may fail.
    #[must_use]
    pub fn parity(&self) -> u64 {
        match self {
            Grouping::Raidz { parity } | Grouping::Draid { parity, .. } => *parity,
            Grouping::Single | Grouping::Mirror => 0,
        }
    }
}

/// What a top-level vdev is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum VdevClass {
    /// Everything.
    #[default]
    Normal,
    /// `log`
    Log,
    /// `special`
    Special,
    /// `dedup`
    Dedup,
}

impl VdevClass {
    /// `vdev_alloc_bias` on disk: log, special, dedup; none for normal vdevs.
    #[must_use]
    pub fn alloc_bias(self) -> Option<&'static str> {
        match self {
            VdevClass::Normal => None,
            VdevClass::Log => Some("log"),
            VdevClass::Special => Some("special"),
            VdevClass::Dedup => Some("dedup"),
        }
    }

    /// The heading in listings.
    #[must_use]
    pub fn heading(self) -> &'static str {
        match self {
            VdevClass::Normal => "normal",
            VdevClass::Log => "logs",
            VdevClass::Special => "special",
            VdevClass::Dedup => "dedup",
        }
    }
}

/// A top-level vdev to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopSpec {
    /// How its devices belong together.
    pub grouping: Grouping,
    /// What it is for.
    pub class: VdevClass,
    /// Its devices, as they were given.
    pub leaves: Vec<String>,
}

/// All that was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VdevSpec {
    /// Top-level vdevs, in order.
    pub tops: Vec<TopSpec>,
    /// Hot spares.
    pub spares: Vec<String>,
    /// Cache devices.
    pub cache: Vec<String>,
}

impl VdevSpec {
    /// Every device.
    pub fn leaves(&self) -> impl Iterator<Item = &str> {
        let tops = self.tops.iter().flat_map(|top| &top.leaves);
        tops.chain(&self.spares)
            .chain(&self.cache)
            .map(String::as_str)
    }
}

/// Checks that a new pool has something to put data on.
///
/// # Errors
/// As [`check_replication`].
pub fn check_has_normal(spec: &VdevSpec) -> Result<(), Vec<String>> {
    if spec.tops.iter().any(|top| top.class == VdevClass::Normal) {
        return Ok(());
    }
    Err(vec![
        "at least one general top-level vdev must be specified".to_owned(),
    ])
}

/// What `zpool create -n` prints: the pool that would be made. `name_of` shortens device names.
#[must_use]
pub fn layout(pool: &str, spec: &VdevSpec, name_of: &dyn Fn(&str) -> String) -> String {
    let mut out = format!("would create '{pool}' with the following layout:\n\n");
    let classes = [
        VdevClass::Normal,
        VdevClass::Dedup,
        VdevClass::Special,
        VdevClass::Log,
    ];
    for class in classes {
        let heading = if class == VdevClass::Normal {
            pool
        } else {
            class.heading()
        };
        let tops: Vec<&TopSpec> = spec.tops.iter().filter(|top| top.class == class).collect();
        if tops.is_empty() && class != VdevClass::Normal {
            continue;
        }
        let _ = writeln!(out, "\t{heading}");
        for top in tops {
            let indent = if top.grouping == Grouping::Single {
                "  "
            } else {
                let _ = writeln!(out, "\t  {}", top.grouping.display_name());
                "    "
            };
            for leaf in &top.leaves {
                let _ = writeln!(out, "\t{indent}{}", name_of(leaf));
            }
        }
    }
    for (heading, devices) in [("cache", &spec.cache), ("spares", &spec.spares)] {
        if !devices.is_empty() {
            let _ = writeln!(out, "\t{heading}");
        }
        for device in devices {
            let _ = writeln!(out, "\t  {}", name_of(device));
        }
    }
    out
}
