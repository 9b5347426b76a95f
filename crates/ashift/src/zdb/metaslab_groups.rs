//! `zdb -M`: how fragmented the free space of each vdev and of the pool is.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_metaslab_groups`), module/zfs/metaslab.c
//! (`metaslab_group_fragmentation`, `metaslab_class_fragmentation`).

use std::io::Write;

use base::{Result, VdevId};
use metaslab::{HISTOGRAM_BUCKETS, SpaceMapStore, fragmentation};
use zio::AllocClass;

use super::metaslabs::TopVdev;
use super::pool::Pool;
use super::text::Printer;

/// The free space of one vdev, or of several.
struct Group {
    histogram: [u64; HISTOGRAM_BUCKETS],
    /// Percent; `None` if too few metaslabs have a histogram.
    fragmented: Option<u64>,
}

/// `zdb -M`.
pub(super) fn run(out: &mut Printer, pool: &Pool) -> Result<()> {
    let mut all = [0; HISTOGRAM_BUCKETS];
    let (mut space, mut weighted) = (0u128, Some(0u128));
    for (i, top) in pool.parts().tree().tops().iter().enumerate() {
        let config = top.config().clone();
        let is_normal = config.class() == AllocClass::Normal;
        let vdev = TopVdev::of(pool, VdevId(i as u64), top)?;
        if !is_normal || vdev.objects.is_empty() {
            continue;
        }
        let group = group_of(pool, &vdev)?;
        write!(
            out,
            "\tvdev {i:10}\t\tmetaslabs{:5}\t\tfragmentation",
            vdev.objects.len()
        )?;
        match group.fragmented {
            Some(percent) => writeln!(out, "{percent:3}%")?,
            None => writeln!(out, "{:>3}", "-")?,
        }
        out.histogram(&group.histogram, 0)?;
        for (sum, count) in all.iter_mut().zip(group.histogram) {
            *sum += count;
        }
        let size = u128::from(pool.parts().metaslabs().vdev_stats(VdevId(i as u64))?.space);
        space += size;
        let percent = group.fragmented.map(u128::from);
        weighted = weighted
            .zip(percent)
            .map(|(sum, percent)| sum + percent * size);
    }
    write!(out, "\tpool {}\tfragmentation", pool.name())?;
    match weighted.and_then(|sum| sum.checked_div(space)) {
        Some(percent) => writeln!(out, "\t{percent:3}%")?,
        None => writeln!(out, "\t{:>3}", "-")?,
    }
    out.histogram(&all, 0)?;
    Ok(())
}

#[doc(alias = "metaslab_group_fragmentation")]
fn group_of(pool: &Pool, vdev: &TopVdev) -> Result<Group> {
    let mut group = Group {
        histogram: [0; HISTOGRAM_BUCKETS],
        fragmented: None,
    };
    let (mut known, mut sum) = (0, 0);
    for object in &vdev.objects {
        if object.0 == 0 {
            known += 1; // all of it is free
            continue;
        }
        let (map, phys) = pool.parts().space_maps().open(*object)?;
        if !map.has_histogram {
            continue;
        }
        let histogram = phys.histogram.map(u64::from);
        known += 1;
        sum += fragmentation(&histogram, vdev.ashift);
        for (at, count) in histogram.iter().enumerate() {
            if let Some(bucket) = group.histogram.get_mut(at + vdev.ashift as usize) {
                *bucket += count;
            }
        }
    }
    if known > vdev.objects.len() as u64 / 2 {
        group.fragmented = Some(sum / known);
    }
    Ok(group)
}
