//! Checks whether the vdevs of a pool are equally redundant.

use super::{AllocClass, Grouping, TopSpec, VdevSpec};
use crate::pool::{VdevKind, VdevStatus};

/// `ZPOOL_FUZZ`: sizes that differ by at most this many bytes count as equal.
const SIZE_FUZZ: u64 = 16 << 20;

/// The redundancy of a top-level vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replication {
    /// "disk", "file", "mirror", "raidz", "draid"
    pub type_name: &'static str,
    /// How many devices
    pub children: u64,
    /// How many of them are parity
    pub parity: u64,
}

impl Replication {
    fn mirror_pair(a: Self, b: Self) -> Option<(Self, Self)> {
        let is_parity = |r: Self| ["raidz", "draid"].contains(&r.type_name);
        match () {
            () if is_parity(a) && b.type_name == "mirror" => Some((a, b)),
            () if is_parity(b) && a.type_name == "mirror" => Some((b, a)),
            () => None,
        }
    }

    /// Whether both are RAID-Z or dRAID: then the number of devices may differ.
    fn have_parity(self, other: Self) -> bool {
        let is_parity = |r: Self| ["raidz", "draid"].contains(&r.type_name);
        is_parity(self) && is_parity(other)
    }
}

/// What is known about a device before the pool opens it.
#[derive(Clone, Copy, Debug)]
pub struct LeafFacts {
    /// A regular file rather than a disk.
    pub is_file: bool,
    /// Bytes, if known.
    pub size: Option<u64>,
}

/// Compares the redundancy of the vdevs in `spec` with each other and with `existing`, that of the
/// pool they are added to. `facts` says what each device is.
///
/// # Errors
/// All problems, a line each, for [`override_message`]; `-f` overrides them.
pub fn check_replication(
    spec: &VdevSpec,
    existing: Option<Replication>,
    facts: &dyn Fn(&str) -> LeafFacts,
) -> Result<(), Vec<String>> {
    let mut wrong = Vec::new();
    let mut last: Option<Replication> = None;
    for top in spec.tops.iter().filter(|top| top.class != AllocClass::Log) {
        let now = replication_of(top, facts, &mut wrong);
        if let Some(last) = last {
            wrong.extend(mismatch(last, now));
        }
        last = Some(now);
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    if let (Some(pool), Some(new)) = (existing, last) {
        wrong.extend(mismatch_with_pool(pool, new));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// The redundancy of a pool that vdevs are added to; `None` if its own vdevs differ. Of a device that is being
/// replaced, the first one counts.
#[must_use]
#[doc(alias = "get_replication")]
pub fn replication_of_pool(
    root: &VdevStatus,
    facts: &dyn Fn(&str) -> LeafFacts,
) -> Option<Replication> {
    let tops: Vec<_> = root.children.iter().filter_map(spec_of).collect();
    let spec = VdevSpec {
        tops,
        ..VdevSpec::default()
    };
    check_replication(&spec, None, facts).ok()?;
    let last = spec.tops.iter().rfind(|top| top.class != AllocClass::Log)?;
    Some(replication_of(last, facts, &mut Vec::new()))
}

fn spec_of(top: &VdevStatus) -> Option<TopSpec<String>> {
    let grouping = match &top.kind {
        VdevKind::Mirror => Grouping::Mirror,
        VdevKind::Raidz { parity } => Grouping::Raidz { parity: *parity },
        VdevKind::Draid {
            parity,
            data,
            spares,
        } => Grouping::Draid {
            parity: *parity,
            data: *data,
            children: top.children.len() as u64,
            spares: *spares,
        },
        VdevKind::Hole | VdevKind::Indirect | VdevKind::Missing => return None,
        _ => Grouping::Single,
    };
    let devices = match grouping {
        Grouping::Single => vec![first_device(top)],
        _ => top.children.iter().map(first_device).collect(),
    };
    Some(TopSpec {
        grouping,
        class: top.class,
        devices,
    })
}

fn first_device(vdev: &VdevStatus) -> String {
    match vdev.children.first() {
        Some(first) => first_device(first),
        None => vdev.path.clone().unwrap_or_default(),
    }
}

fn replication_of(
    top: &TopSpec<String>,
    facts: &dyn Fn(&str) -> LeafFacts,
    wrong: &mut Vec<String>,
) -> Replication {
    let kinds: Vec<LeafFacts> = top.devices.iter().map(|leaf| facts(leaf)).collect();
    if top.grouping == Grouping::Single {
        let type_name = if kinds.iter().any(|k| k.is_file) {
            "file"
        } else {
            "disk"
        };
        return Replication {
            type_name,
            children: 1,
            parity: 0,
        };
    }
    let type_name = top.grouping.type_name();
    if kinds.iter().any(|k| k.is_file) && kinds.iter().any(|k| !k.is_file) {
        wrong.push(format!(
            "mismatched replication level: {type_name} contains both files and devices"
        ));
    } else {
        let sizes: Vec<u64> = kinds.iter().filter_map(|k| k.size).collect();
        if sizes
            .windows(2)
            .any(|pair| pair[0].abs_diff(pair[1]) > SIZE_FUZZ)
        {
            wrong.push(format!("{type_name} contains devices of different sizes"));
        }
    }
    Replication {
        type_name,
        children: top.devices.len() as u64,
        parity: top.grouping.parity(),
    }
}

fn mismatch(last: Replication, now: Replication) -> Option<String> {
    let text = if let Some((raidz, mirror)) = Replication::mirror_pair(last, now) {
        let failures = mirror.children - 1;
        if raidz.parity == failures {
            return None;
        }
        format!(
            "{} and mirror vdevs with different redundancy, {} vs. {failures} ({}-way) are present",
            raidz.type_name, raidz.parity, mirror.children
        )
    } else if last.have_parity(now) {
        if last.parity == now.parity {
            return None;
        }
        parity_text(last, now)
    } else if last.type_name != now.type_name {
        format!(
            "both {} and {} vdevs are present",
            last.type_name, now.type_name
        )
    } else if last.children != now.children {
        format!(
            "both {}-way and {}-way {} vdevs are present",
            last.children, now.children, now.type_name
        )
    } else {
        return None;
    };
    Some(format!("mismatched replication level: {text}"))
}

fn parity_text(last: Replication, now: Replication) -> String {
    format!(
        "{} and {} vdevs with different redundancy, {} vs. {} are present",
        last.type_name, now.type_name, last.parity, now.parity
    )
}

fn mismatch_with_pool(pool: Replication, new: Replication) -> Option<String> {
    let text = if let Some((raidz, mirror)) = Replication::mirror_pair(pool, new) {
        let failures = mirror.children - 1;
        if raidz.parity == failures {
            return None;
        }
        format!(
            "pool and new vdev with different redundancy, {} and mirror vdevs, {} vs. {failures} \
             ({}-way)",
            raidz.type_name, raidz.parity, mirror.children
        )
    } else if pool.have_parity(new) {
        if pool.parity == new.parity {
            return None;
        }
        format!(
            "pool and new vdev with different redundancy, {} and {} vdevs, {} vs. {}",
            pool.type_name, new.type_name, pool.parity, new.parity
        )
    } else if pool.type_name != new.type_name {
        format!(
            "pool uses {} and new vdev is {}",
            pool.type_name, new.type_name
        )
    } else if pool.children != new.children {
        format!(
            "pool uses {}-way {} and new vdev uses {}-way {}",
            pool.children, pool.type_name, new.children, new.type_name
        )
    } else {
        return None;
    };
    Some(format!("mismatched replication level: {text}"))
}

/// The message for problems that `-f` overrides; if `is_forced`, for those that it does not.
#[must_use]
#[doc(alias = "vdev_error")]
pub fn override_message(wrong: &[String], is_forced: bool) -> String {
    let heading = if is_forced {
        "the following errors must be manually repaired:"
    } else {
        "use '-f' to override the following errors:"
    };
    let lines: String = wrong.iter().flat_map(|line| [line, "\n"]).collect();
    format!("invalid vdev specification\n{heading}\n{lines}")
}
