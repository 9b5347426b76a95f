//! What a pool survives: its weakest vdev, and what cannot be taken back.

use std::collections::BTreeMap;

use admin::pool::{VdevKind, VdevStatus};
use zio::AllocClass;

use crate::pool::{Pool, leaves};
use crate::{Finding, Severity};

/// How many devices of a vdev may fail.
pub(crate) fn tolerance(vdev: &VdevStatus) -> u64 {
    match vdev.kind {
        VdevKind::Mirror => (vdev.children.len() as u64).saturating_sub(1),
        VdevKind::Raidz { parity } | VdevKind::Draid { parity, .. } => parity,
        _ => 0,
    }
}

pub(crate) fn is_redundant_by_parity(vdev: &VdevStatus) -> bool {
    matches!(vdev.kind, VdevKind::Raidz { .. } | VdevKind::Draid { .. })
}

pub(crate) fn examine_redundancy(pool: &Pool) -> Vec<Finding> {
    let mut found = data(pool);
    for (class, word) in [
        (AllocClass::Special, "special"),
        (AllocClass::Dedup, "dedup"),
    ] {
        for top in pool.tops(class) {
            found.extend(metadata(pool, top, word));
            found.extend(not_removable(pool, top, word));
        }
    }
    found.extend(logs(pool));
    found.extend(shared_disks(pool));
    found.extend(small_spares(pool));
    found
}

/// Data vdevs that survive less than the others.
fn data(pool: &Pool) -> Vec<Finding> {
    let name = &pool.status.name;
    let tops: Vec<_> = pool.tops(AllocClass::Normal).collect();
    let most = tops.iter().map(|top| tolerance(top)).max().unwrap_or(0);
    if most == 0 {
        let what = format!("is a stripe of {} devices without redundancy", tops.len());
        let cost = "the first of them that fails takes the whole pool; damaged blocks are found, and not repaired";
        let note = Finding::new((Severity::Note, "no-redundancy"), name, what, cost)
            .mend(format!("zpool attach {name} DEVICE NEW   # for each"));
        return if tops.len() > 1 {
            vec![note]
        } else {
            Vec::new()
        };
    }
    let weak = tops.iter().filter(|top| tolerance(top) < most);
    let finding = |top: &&&VdevStatus| {
        let (own, vdev) = (tolerance(top), top.name(pool.style));
        if own == 0 {
            let what = format!("is a single device beside vdevs that survive the loss of {most}");
            let cost = "when it fails the whole pool is lost, whatever the others have";
            let finding = Finding::new(
                (Severity::Critical, "single-device"),
                pool.subject(top),
                what,
                cost,
            )
            .mend(format!("zpool attach {name} {vdev} NEW"));
            return match tops.iter().any(|top| is_redundant_by_parity(top)) {
                true => finding,
                false => finding.mend(format!(
                    "zpool remove {name} {vdev}   # or this, if the others have room"
                )),
            };
        }
        let what = format!("survives the loss of {own}, other vdevs that of {most}");
        let cost = "the pool is as safe as its weakest vdev";
        Finding::new(
            (Severity::Warning, "mixed-redundancy"),
            pool.subject(top),
            what,
            cost,
        )
        .mend(match top.kind {
            VdevKind::Mirror => format!(
                "zpool attach {name} {} NEW",
                leaves(top)[0].name(pool.style)
            ),
            _ => "# parity never changes: make the pool again".to_owned(),
        })
    };
    weak.map(|top| finding(&top)).collect()
}

/// A special or dedup vdev that survives less than the data: the pool is lost with it.
fn metadata(pool: &Pool, top: &VdevStatus, word: &str) -> Option<Finding> {
    let name = &pool.status.name;
    let (own, data) = (
        tolerance(top),
        pool.tops(AllocClass::Normal).map(tolerance).min()?,
    );
    if own >= data {
        return None;
    }
    let first = leaves(top)[0].name(pool.style);
    let cost = "its blocks are nowhere else: when it is lost the whole pool is";
    let finding = match own {
        0 => {
            let what = format!(
                "is a {word} device without redundancy, in a pool that survives the loss of {data}"
            );
            Finding::new(
                (Severity::Critical, "special-single"),
                pool.subject(top),
                what,
                cost,
            )
        }
        _ => {
            let what = format!(
                "is a {word} vdev that survives the loss of {own}, the data that of {data}"
            );
            Finding::new(
                (Severity::Warning, "special-weaker"),
                pool.subject(top),
                what,
                cost,
            )
        }
    };
    let new = match data - own {
        1 => "NEW".to_owned(),
        n => (1..=n)
            .map(|n| format!("NEW{n}"))
            .collect::<Vec<_>>()
            .join(" "),
    };
    let attach = |new: &str| format!("zpool attach {name} {first} {new}");
    Some(
        new.split(' ')
            .fold(finding, |finding, new| finding.mend(attach(new))),
    )
}

/// OpenZFS removes nothing from a pool with RAID-Z or dRAID, or with vdevs of different ashift.
fn not_removable(pool: &Pool, top: &VdevStatus, word: &str) -> Option<Finding> {
    let all = || pool.tops(AllocClass::Normal).chain([top]);
    let why = match all().any(is_redundant_by_parity) {
        true => "with RAID-Z or dRAID",
        false if all().any(|one| one.configured_ashift != top.configured_ashift) => {
            "whose vdevs differ in ashift"
        }
        false => return None,
    };
    let what = format!("is a {word} vdev in a pool {why}");
    let cost = "OpenZFS cannot remove it: it stays as long as the pool does";
    Some(
        Finding::new(
            (Severity::Note, "special-stays"),
            pool.subject(top),
            what,
            cost,
        )
        .mend(format!(
            "# keep it redundant; without it: copy what is in {} to a new pool",
            pool.status.name
        )),
    )
}

/// Log devices without redundancy.
fn logs(pool: &Pool) -> Option<Finding> {
    let is_redundant = pool.tops(AllocClass::Normal).all(|top| tolerance(top) > 0);
    let log = pool.tops(AllocClass::Log).find(|log| tolerance(log) == 0)?;
    let (name, device) = (&pool.status.name, log.name(pool.style));
    let what = "is a log device without redundancy";
    let cost =
        "when it fails together with a crash, the last seconds of synchronous writes are lost";
    is_redundant.then(|| {
        Finding::new(
            (Severity::Note, "single-log"),
            pool.subject(log),
            what,
            cost,
        )
        .mend(format!("zpool attach {name} {device} NEW"))
    })
}

/// Devices of one redundant vdev that are on the same disk.
fn shared_disks(pool: &Pool) -> Vec<Finding> {
    let mut found = Vec::new();
    for top in pool
        .status
        .root
        .children
        .iter()
        .filter(|top| tolerance(top) > 0)
    {
        let mut on: BTreeMap<&str, &VdevStatus> = BTreeMap::new();
        for leaf in leaves(top) {
            let Some(device) = pool.devices.get(&leaf.guid) else {
                continue;
            };
            let Some(other) = on.insert(&device.disk, leaf) else {
                continue;
            };
            let (name, own) = (&pool.status.name, leaf.name(pool.style));
            let what = format!(
                "is on the same disk as {}: {}",
                other.name(pool.style),
                device.disk
            );
            let cost = format!(
                "when that disk fails {} loses both, and each write goes to it twice",
                top.name(pool.style)
            );
            found.push(
                Finding::new(
                    (Severity::Critical, "same-disk"),
                    pool.subject(leaf),
                    what,
                    cost,
                )
                .mend(format!(
                    "zpool replace {name} {own} NEW   # on another disk"
                )),
            );
        }
    }
    found
}

/// Hot spares that are smaller than each device they could replace.
fn small_spares(pool: &Pool) -> Vec<Finding> {
    let tops = pool.tops(AllocClass::Normal);
    let sizes = tops.flat_map(leaves).map(|leaf| leaf.physical_bytes);
    let Some(least) = sizes.filter(|bytes| *bytes > 0).min() else {
        return Vec::new();
    };
    // A pool uses multiples of a metaslab, so a spare may be a little smaller.
    let is_small =
        |spare: &&VdevStatus| spare.physical_bytes > 0 && spare.physical_bytes < least - least / 50;
    let finding = |spare: &VdevStatus| {
        let (name, device) = (&pool.status.name, spare.name(pool.style));
        let what = format!(
            "has {} bytes, the smallest device {least}",
            spare.physical_bytes
        );
        let cost = "it can replace none of them: when one fails the spare stays idle";
        Finding::new(
            (Severity::Warning, "small-spare"),
            pool.subject(spare),
            what,
            cost,
        )
        .mend(format!("zpool remove {name} {device}"))
        .mend(format!("zpool add {name} spare NEW"))
    };
    pool.status
        .spares
        .iter()
        .filter(is_small)
        .map(finding)
        .collect()
}
