//! Which txgs the devices of a pool have missed.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_dtl`), module/zfs/vdev.c (`vdev_dtl_reassess`,
//! `vdev_dtl_required`).

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use base::Result;
use vdev::Vdev;

use super::metaslabs;
use super::pool::Pool;
use super::request::Request;
use super::text::Printer;

/// Txgs, in order.
type Txgs = Vec<Range<u64>>;

/// The txgs that a vdev and its descendants have missed (`vdev_dtl`).
#[derive(Default)]
struct Missed {
    /// `DTL_MISSING`: on none of its devices.
    missing: Txgs,
    /// `DTL_PARTIAL`: not on all of its devices.
    partial: Txgs,
    /// `DTL_OUTAGE`: cannot be read from it now.
    outage: Txgs,
}

impl Missed {
    /// For one vdev; `absent` is a device to be treated as unreadable.
    #[doc(alias = "vdev_dtl_reassess")]
    fn of(vdev: &Arc<Vdev>, absent: Option<&Arc<Vdev>>) -> Missed {
        if vdev.children().is_empty() {
            let is_absent = absent.is_some_and(|absent| Arc::ptr_eq(absent, vdev));
            let missing = vdev.leaf().dtl().ranges().to_vec();
            let outage = if vdev.leaf().is_usable() && !is_absent {
                missing.clone()
            } else {
                std::iter::once(0..u64::MAX).collect()
            };
            return Missed {
                partial: missing.clone(),
                missing,
                outage,
            };
        }
        let children = vdev.children().iter();
        let children: Vec<Missed> = children.map(|child| Missed::of(child, absent)).collect();
        let of = |part: fn(&Missed) -> &Txgs| children.iter().map(part).collect::<Vec<_>>();
        Missed {
            missing: in_at_least(children.len(), &of(|child| &child.outage)),
            partial: in_at_least(1, &of(|child| &child.partial)),
            outage: in_at_least(children.len(), &of(|child| &child.outage)),
        }
    }
}

/// The txgs that are in at least `count` of the sets.
#[doc(alias = "space_reftree_generate_map")]
fn in_at_least(count: usize, sets: &[&Txgs]) -> Txgs {
    let ranges = sets.iter().flat_map(|set| set.iter());
    let mut ends: Vec<(u64, i64)> = ranges
        .flat_map(|range| [(range.start, 1), (range.end, -1)])
        .collect();
    ends.sort_unstable();
    let mut all: Txgs = Vec::new();
    let (mut depth, mut start) = (0, None);
    for (txg, change) in ends {
        depth += change;
        match (depth >= count as i64, start) {
            (true, None) => start = Some(txg),
            (false, Some(from)) => {
                start = None;
                if from < txg {
                    all.push(from..txg);
                }
            }
            _ => {}
        }
    }
    all
}

/// Whether the pool needs the device, because other devices do not have all of its data.
#[doc(alias = "vdev_dtl_required")]
fn is_required(top: &Arc<Vdev>, vdev: &Arc<Vdev>) -> bool {
    Arc::ptr_eq(top, vdev) || !Missed::of(top, Some(vdev)).outage.is_empty()
}

/// Writes what each vdev has missed.
pub(super) fn run(request: &Request, out: &mut Printer, pool: &Pool) -> Result<()> {
    writeln!(out, "\nDirty time logs:\n")?;
    let root = pool.parts().tree().root();
    write(request, out, pool, (&root, &pool.name()), None, 0)
}

#[doc(alias = "dump_dtl")]
fn write(
    request: &Request,
    out: &mut Printer,
    pool: &Pool,
    (vdev, name): (&Arc<Vdev>, &str),
    top: Option<&Arc<Vdev>>,
    indent: usize,
) -> Result<()> {
    let needed = if top.is_none_or(|top| is_required(top, vdev)) {
        "DTL-required"
    } else {
        "DTL-expendable"
    };
    writeln!(out, "\t{:indent$}{name} [{needed}]", "")?;
    let missed = Missed::of(vdev, None);
    let types = [
        ("missing", missed.missing),
        ("partial", missed.partial),
        ("outage", missed.outage),
    ];
    for (type_, txgs) in types.iter().filter(|(_, txgs)| !txgs.is_empty()) {
        for Range { start, end } in txgs {
            let pad = indent + 2;
            let length = end - start;
            writeln!(out, "\t{:pad$}{type_} [{start},{end}) length {length}", "")?;
        }
        let map = vdev.config().dtl_object;
        if request.level('d') > 5 && vdev.children().is_empty() && map != 0 {
            metaslabs::write_space_map(request, out, pool, base::ObjectId(map), 0, 0)?;
        }
    }
    for child in vdev.children() {
        let path = child.config().path.clone();
        let name = path.unwrap_or_else(|| child.kind().word().to_owned());
        let top = top.unwrap_or(child);
        write(request, out, pool, (child, &name), Some(top), indent + 4)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn txgs_in_one_or_all_sets() {
        let span = |start, end| Range { start, end };
        let (a, b): (Txgs, Txgs) = (vec![1..5, 9..10], vec![span(3, 7)]);
        assert_eq!(in_at_least(1, &[&a, &b]), [1..7, 9..10]);
        assert_eq!(in_at_least(2, &[&a, &b]), [span(3, 5)]);
        assert_eq!(in_at_least(2, &[&a, &Vec::new()]), Txgs::new());
    }
}
