//! Free space and its fragmentation.

use admin::number::nice_bytes;
use admin::pool::VdevStatus;
use zio::AllocClass;

use crate::pool::Pool;
use crate::{Finding, Severity};

/// Percent of the space in use from which on a pool is worth a note, and from which on a warning.
const FULL_PERCENT: (u64, u64) = (80, 90);

/// Percent of a special device in use from which on small files go elsewhere: it keeps 25 for metadata.
const SPECIAL_FULL_PERCENT: u64 = 75;

/// Fragmentation of free space, in percent, that is worth a warning: most of it is in pieces of at most 64 KiB.
const FRAGMENTED_PERCENT: u64 = 60;

pub(crate) fn examine_space(pool: &Pool) -> Vec<Finding> {
    let mut found = Vec::new();
    let name = &pool.status.name;
    let sum = |of: fn(&VdevStatus) -> u64| pool.tops(AllocClass::Normal).map(of).sum::<u64>();
    let (used, all) = (sum(|top| top.alloc_bytes), sum(|top| top.space_bytes));
    let percent = used.saturating_mul(100).checked_div(all).unwrap_or(0);
    if percent >= FULL_PERCENT.0 {
        let severity = if percent >= FULL_PERCENT.1 {
            Severity::Warning
        } else {
            Severity::Note
        };
        let what = format!(
            "is {percent}% full: {} of {}",
            nice_bytes(used),
            nice_bytes(all)
        );
        let cost = "free space is in ever smaller pieces: writes seek more, large records are split; below 4% of a \
                    metaslab each allocation looks for the best piece";
        found.push(
            Finding::new((severity, "pool-full"), name, what, cost)
                .mend(format!(
                    "zfs list -o space -r {name}   # who uses it; snapshots first"
                ))
                .mend(format!("zpool add {name} …   # the same kind of vdev")),
        );
    }
    for top in pool.tops(AllocClass::Normal) {
        let Some(percent) = top
            .fragmentation
            .filter(|percent| *percent >= FRAGMENTED_PERCENT)
        else {
            continue;
        };
        let what = format!("{percent}% fragmentation of its free space");
        let cost = "large records are written in pieces, and read with a seek for each, which a disk takes about 10 ms for";
        found.push(
            Finding::new((Severity::Warning, "fragmented"), pool.subject(top), what, cost)
                .mend("# nothing defragments in place: free space, or copy the data to a new dataset or pool"),
        );
    }
    found.extend(special(pool));
    for top in pool
        .status
        .root
        .children
        .iter()
        .filter(|top| top.expandable_bytes > 0)
    {
        let what = format!(
            "its devices are {} larger than what is used of them",
            nice_bytes(top.expandable_bytes)
        );
        let cost = "that room is idle";
        let devices: Vec<String> = crate::pool::leaves(top)
            .iter()
            .map(|leaf| leaf.name(pool.style))
            .collect();
        found.push(
            Finding::new(
                (Severity::Note, "expandable"),
                pool.subject(top),
                what,
                cost,
            )
            .mend(format!("zpool online -e {name} {}", devices.join(" "))),
        );
    }
    found
}

/// A special vdev that has no more room for small files.
fn special(pool: &Pool) -> Vec<Finding> {
    let mut found = Vec::new();
    let name = &pool.status.name;
    for top in pool.tops(AllocClass::Special) {
        let percent = top
            .alloc_bytes
            .saturating_mul(100)
            .checked_div(top.space_bytes)
            .unwrap_or(0);
        if percent >= SPECIAL_FULL_PERCENT {
            let what = format!("the special vdev is {percent}% full");
            let cost = "what is left is kept for metadata: small files go to the disks, and at 100% metadata does";
            found.push(
                Finding::new(
                    (Severity::Warning, "special-full"),
                    pool.subject(top),
                    what,
                    cost,
                )
                .mend(format!("zpool add {name} special mirror NEW1 NEW2"))
                .mend(format!(
                    "zfs set special_small_blocks=0 {name}   # for what is written from now on"
                )),
            );
        }
    }
    found
}
