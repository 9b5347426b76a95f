//! The devices of `zpool create` and `zpool add`: `mirror a b raidz2 c d e f log g spare h`.
//!
//! # What it is
//! Words are parsed from left to right. `mirror`, `raidz…` and `draid…` take the words that follow,
//! up to the next keyword; `log`, `special` and `dedup` set the class of the following vdevs;
//! `spare` and `cache` take devices only, not groups. Afterwards the levels of redundancy are
//! compared; a mismatch is an error, which `-f` overrides.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_vdev.c `construct_spec`, `get_replication`, `check_replication` @be7657e3.

mod parse;
mod replication;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use vdev::{Grouping, TopSpec};
use zio::AllocClass;

use crate::pool::heading;

pub use parse::parse_vdev_spec;
pub use replication::{LeafFacts, Replication, check_replication, override_message};

/// A parsed specification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VdevSpec {
    /// Top-level vdevs, in order.
    pub tops: Vec<TopSpec<String>>,
    /// Hot spares.
    pub spares: Vec<String>,
    /// Cache devices.
    pub cache: Vec<String>,
}

/// Checks that a new pool has a vdev of the normal class.
///
/// # Errors
/// As [`check_replication`].
pub fn check_has_normal(spec: &VdevSpec) -> Result<(), Vec<String>> {
    if spec.tops.iter().any(|top| top.class == AllocClass::Normal) {
        return Ok(());
    }
    Err(vec![
        "at least one general top-level vdev must be specified".to_owned(),
    ])
}

/// The output of `zpool create -n`: the pool that would be created. `name_of` shortens device names.
#[must_use]
pub fn layout(pool: &str, spec: &VdevSpec, name_of: &dyn Fn(&str) -> String) -> String {
    let mut out = format!("would create '{pool}' with the following layout:\n\n");
    let classes = [
        AllocClass::Normal,
        AllocClass::Dedup,
        AllocClass::Special,
        AllocClass::Log,
    ];
    for class in classes {
        let heading = if class == AllocClass::Normal {
            pool
        } else {
            heading(class)
        };
        let tops: Vec<&TopSpec<String>> =
            spec.tops.iter().filter(|top| top.class == class).collect();
        if tops.is_empty() && class != AllocClass::Normal {
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
            for leaf in &top.devices {
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
