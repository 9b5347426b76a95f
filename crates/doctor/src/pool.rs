//! A pool: its sectors, its devices, its features.

use std::collections::BTreeMap;

use admin::pool::{NameStyle, PoolStatus, VdevKind, VdevState, VdevStatus};
use phys::feature::{self, Release};
use zio::AllocClass;

use crate::disk::Sector;
use crate::redundancy::{examine_redundancy, is_redundant_by_parity};
use crate::space::examine_space;
use crate::{Finding, Severity};

/// What is known of a pool.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Its vdevs, their space and their errors.
    pub status: PoolStatus,
    /// Why it cannot be opened, if so.
    pub unavailable: Option<String>,
    /// Guids of the features that are in use.
    pub active_features: Vec<String>,
    /// What is known of its devices, by guid.
    pub devices: BTreeMap<u64, Device>,
    /// How devices are called.
    pub style: NameStyle,
    /// It is not imported: it was found on devices, which commands name so.
    pub found_in: Option<String>,
}

/// What a device of a pool is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The disk, or the image.
    pub disk: String,
    /// Its sectors, if they are known.
    pub sector: Option<Sector>,
}

impl Pool {
    /// `tank: mirror-0`
    pub(crate) fn subject(&self, vdev: &VdevStatus) -> String {
        format!("{}: {}", self.status.name, vdev.name(self.style))
    }

    /// Top-level vdevs that hold blocks of a class.
    pub(crate) fn tops(&self, class: AllocClass) -> impl Iterator<Item = &VdevStatus> {
        let is_there = |kind: &VdevKind| {
            !matches!(
                kind,
                VdevKind::Hole | VdevKind::Indirect | VdevKind::Missing
            )
        };
        let tops = self.status.root.children.iter();
        tops.filter(move |top| top.class == class && is_there(&top.kind))
    }
}

/// The devices at and below a vdev.
pub(crate) fn leaves(vdev: &VdevStatus) -> Vec<&VdevStatus> {
    match vdev.children.is_empty() {
        true => vec![vdev],
        false => vdev.children.iter().flat_map(leaves).collect(),
    }
}

/// What is wrong with a pool.
#[must_use]
pub fn examine_pool(pool: &Pool) -> Vec<Finding> {
    if let Some(why) = &pool.unavailable {
        return vec![unavailable(pool, why)];
    }
    let mut found = devices(pool);
    found.extend(sectors(pool));
    found.extend(examine_redundancy(pool));
    found.extend(examine_space(pool));
    found.extend(features(pool));
    found
}

fn unavailable(pool: &Pool, why: &str) -> Finding {
    let name = &pool.status.name;
    let place = pool
        .found_in
        .as_ref()
        .map_or_else(String::new, |place| format!(" -d {place}"));
    let cost = "nothing in it can be read as it is";
    Finding::new(
        (Severity::Critical, "pool-unavailable"),
        name,
        format!("cannot be opened: {why}"),
        cost,
    )
    .mend(format!(
        "ashift rewind{place} {name}   # which earlier states are whole"
    ))
    .mend(format!(
        "ashift rescue{place} {name} FOLDER   # what can still be copied"
    ))
}

/// Devices that are missing, have failed or show errors, and files that are damaged.
fn devices(pool: &Pool) -> Vec<Finding> {
    let mut found = Vec::new();
    let name = &pool.status.name;
    for top in &pool.status.root.children {
        for leaf in leaves(top) {
            if matches!(leaf.kind, VdevKind::Hole | VdevKind::Indirect) {
                continue;
            }
            let device = leaf.name(pool.style);
            if leaf.state < VdevState::Degraded {
                found.push(missing(pool, top, leaf));
                continue;
            }
            let (read, write, sum) = (leaf.read_errors, leaf.write_errors, leaf.checksum_errors);
            if read + write + sum > 0 {
                let what =
                    format!("{read} read, {write} write and {sum} checksum errors were counted");
                let cost = "what redundancy repairs today is lost when another device fails; cables and power supplies \
                            are cheaper than disks";
                found.push(
                    Finding::new(
                        (Severity::Warning, "device-errors"),
                        pool.subject(leaf),
                        what,
                        cost,
                    )
                    .mend(format!("zpool scrub {name}"))
                    .mend(format!(
                        "zpool replace {name} {device} NEW   # if they come back after zpool clear"
                    )),
                );
            }
        }
    }
    let damaged = pool.status.error_count.unwrap_or(0);
    if damaged > 0 {
        let first = pool.status.errors.first().map_or("?", String::as_str);
        let what = format!("{damaged} blocks are known to be damaged, the first in {first}");
        found.push(
            Finding::new(
                (Severity::Critical, "damaged-data"),
                name,
                what,
                "these files cannot be read whole",
            )
            .mend(format!(
                "zpool status -v {name}   # which files; restore them, then:"
            ))
            .mend(format!("zpool scrub {name}")),
        );
    }
    found
}

/// A device that is not there: a mirror that is left with one side, for one.
fn missing(pool: &Pool, top: &VdevStatus, leaf: &VdevStatus) -> Finding {
    let (name, device) = (&pool.status.name, leaf.name(pool.style));
    let gone = leaves(top)
        .iter()
        .filter(|leaf| leaf.state < VdevState::Degraded)
        .count() as u64;
    let left = crate::redundancy::tolerance(top).saturating_sub(gone);
    let severity = if left == 0 {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let id = match top.kind {
        VdevKind::Mirror if left == 0 => "one-sided-mirror",
        _ => "missing-device",
    };
    let what = format!("is {} in {}", leaf.state_name(), top.name(pool.style));
    let cost = match left {
        0 => "one more failure there loses the pool".to_owned(),
        1 => "one more device may fail there".to_owned(),
        n => format!("{n} more devices may fail there"),
    };
    let finding = Finding::new((severity, id), pool.subject(leaf), what, cost);
    match leaf.state {
        VdevState::Offline | VdevState::Closed => {
            finding.mend(format!("zpool online {name} {device}"))
        }
        _ => finding
            .mend(format!(
                "zpool online {name} {device}   # when it is connected again, or"
            ))
            .mend(format!("zpool replace {name} {device} NEW")),
    }
}

/// The ashift of each top-level vdev beside the sectors of its devices, and beside the others.
fn sectors(pool: &Pool) -> Vec<Finding> {
    let mut found = Vec::new();
    let tops = pool.status.root.children.iter();
    let tops = tops.filter(|top| (9..=16).contains(&top.configured_ashift));
    for top in tops {
        let ashift = top.configured_ashift;
        let facts = leaves(top).into_iter().filter_map(|leaf| {
            let device = pool.devices.get(&leaf.guid)?;
            Some((leaf, device, device.sector?))
        });
        let worst = facts.max_by_key(|(_, _, sector)| sector.bytes);
        let Some((leaf, device, sector)) = worst.filter(|(_, _, s)| s.bytes > 1 << ashift) else {
            continue;
        };
        found.push(small_ashift(pool, top, (leaf, device, sector)));
    }
    let normal: Vec<_> = pool.tops(AllocClass::Normal).collect();
    let least = normal.iter().map(|top| top.configured_ashift).min();
    let other = normal
        .iter()
        .find(|top| Some(top.configured_ashift) != least);
    if let (Some(other), Some(least)) = (other, least)
        && !normal.iter().any(|top| is_redundant_by_parity(top))
    {
        let what = format!(
            "has ashift {}, other vdevs {least}",
            other.configured_ashift
        );
        let cost = "OpenZFS removes no vdev from a pool whose vdevs differ in that";
        found.push(
            Finding::new((Severity::Warning, "mixed-ashift"), pool.subject(other), what, cost)
                .mend(format!("# a vdev added by mistake can only go with the pool: zpool checkpoint {}, and then add", pool.status.name)),
        );
    }
    found
}

fn small_ashift(
    pool: &Pool,
    top: &VdevStatus,
    (leaf, device, sector): (&VdevStatus, &Device, Sector),
) -> Finding {
    let (name, needs) = (&pool.status.name, sector.bytes.ilog2());
    let what = format!(
        "has ashift {}, and the sectors of {} (on {}) have {}",
        top.configured_ashift,
        leaf.name(pool.style),
        device.disk,
        sector.text()
    );
    let cost = "writes that do not fill whole sectors are read, changed and written again: a mirror of two WD30EZRX wrote \
                11 MB/s so, and 63 MB/s with ashift 12 (`ashift lab run zfs-on-512e-mirror`)";
    let finding = Finding::new(
        (Severity::Warning, "small-ashift"),
        pool.subject(top),
        what,
        cost,
    );
    if matches!(top.class, AllocClass::Log) {
        let vdev = top.name(pool.style);
        return finding
            .mend(format!("zpool remove {name} {vdev}"))
            .mend(format!("zpool add -o ashift={needs} {name} log …"));
    }
    finding
        .mend("# an ashift never changes: make the pool again, and copy what is in it")
        .mend(format!("zpool create -o ashift={needs} NEW …"))
        .mend(format!("zfs snapshot -r {name}@move; zfs send -R {name}@move | zfs receive -F NEW   # with OpenZFS, or"))
        .mend(format!("ashift cp -a {name}:/. NEW:/   # each file system"))
}

/// Features in use that other systems do not know.
fn features(pool: &Pool) -> Vec<Finding> {
    let name = &pool.status.name;
    let mut by_release: BTreeMap<Release, Vec<(&str, bool)>> = BTreeMap::new();
    let mut found = Vec::new();
    for guid in &pool.active_features {
        match feature::by_guid(guid) {
            Some(known) => by_release
                .entry(known.release())
                .or_default()
                .push((known.name, known.readonly_compat)),
            None => {
                let what = format!("uses {guid}, which no release of OpenZFS knows");
                let cost = "no other system imports it";
                found.push(
                    Finding::new((Severity::Critical, "unknown-feature"), name, what, cost).mend(
                        "# copy what is in it to a pool without that, on the system that made it",
                    ),
                );
            }
        }
    }
    let Some((release, features)) = by_release.into_iter().next_back() else {
        return found;
    };
    let (severity, id) = match release {
        Release::V2_1 | Release::V2_2 => return found,
        Release::V2_3 => (Severity::Note, "new-feature"),
        Release::V2_4 => (Severity::Warning, "new-feature"),
        Release::Unreleased => (Severity::Critical, "unreleased-feature"),
    };
    let names: Vec<&str> = features.iter().map(|(name, _)| *name).collect();
    let what = format!("uses {}", names.join(", "));
    let readers = match features.iter().all(|(_, is_compatible)| *is_compatible) {
        true => "older systems import it only with -o readonly=on",
        false => "older systems do not import it",
    };
    let cost = match release.number() {
        Some(number) => format!("it needs OpenZFS {number}: {readers}"),
        None => format!("no release of OpenZFS has that yet: {readers}"),
    };
    found.push(
        Finding::new((severity, id), name, what, cost)
            .mend("# a feature in use goes with the last dataset that uses it, or with the pool; for the next one:")
            .mend("zpool create -o compatibility=openzfs-2.2 …"),
    );
    found
}
