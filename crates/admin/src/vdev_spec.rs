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

use crate::pool::{NameStyle, VdevKind, VdevStatus, heading};

pub use parse::parse_vdev_spec;
pub use replication::{
    LeafFacts, Replication, check_replication, override_message, replication_of_pool,
};

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
    for class in CLASSES {
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
        tops.into_iter()
            .for_each(|top| show_top(&mut out, top, name_of));
    }
    show_lone(&mut out, spec, name_of);
    out
}

/// The classes of vdevs, in the order in which they are shown.
const CLASSES: [AllocClass; 4] = [
    AllocClass::Normal,
    AllocClass::Dedup,
    AllocClass::Special,
    AllocClass::Log,
];

fn show_top(out: &mut String, top: &TopSpec<String>, name_of: &dyn Fn(&str) -> String) {
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

/// Shows the hot spares and cache devices.
fn show_lone(out: &mut String, spec: &VdevSpec, name_of: &dyn Fn(&str) -> String) {
    for (heading, devices) in [("cache", &spec.cache), ("spares", &spec.spares)] {
        if !devices.is_empty() {
            let _ = writeln!(out, "\t{heading}");
        }
        for device in devices {
            let _ = writeln!(out, "\t  {}", name_of(device));
        }
    }
}

/// The output of `zpool add -n`: the pool as it would be, with the new vdevs of each class below those that
/// are there.
#[must_use]
#[doc(alias = "print_vdev_tree")]
pub fn layout_added(
    pool: &str,
    root: &VdevStatus,
    spec: &VdevSpec,
    style: NameStyle,
    name_of: &dyn Fn(&str) -> String,
) -> String {
    let mut out = format!("would update '{pool}' to the following configuration:\n\n");
    let style = NameStyle {
        has_id: true,
        ..style
    };
    for class in CLASSES {
        let is_shown = |top: &&VdevStatus| top.class == class && top.kind != VdevKind::Hole;
        let present: Vec<&VdevStatus> = root.children.iter().filter(is_shown).collect();
        let new: Vec<_> = spec.tops.iter().filter(|top| top.class == class).collect();
        if class == AllocClass::Normal {
            let _ = writeln!(out, "\t{pool}");
        } else if !(present.is_empty() && new.is_empty()) {
            let _ = writeln!(out, "\t{}", heading(class));
        }
        present
            .into_iter()
            .for_each(|top| show_vdev(&mut out, top, 2, style));
        new.into_iter()
            .for_each(|top| show_top(&mut out, top, name_of));
    }
    show_lone(&mut out, spec, name_of);
    out
}

fn show_vdev(out: &mut String, vdev: &VdevStatus, indent: usize, style: NameStyle) {
    let _ = writeln!(out, "\t{:indent$}{}", "", vdev.name(style));
    for child in &vdev.children {
        show_vdev(out, child, indent + 2, style);
    }
}
