//! `zdb -m`: the metaslabs of every vdev.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_metaslab`, `dump_metaslabs`, `dump_spacemap`).

use std::io::Write;

use base::{ObjectId, Result, VdevId};
use metaslab::SpaceMapStore;
use serde_json::json;
use vdev::Vdev;

use super::Request;
use super::pool::Pool;
use super::text::Printer;

/// `zdb -m`.
pub(super) fn run(request: &Request, out: &mut Printer, pool: &Pool) -> Result<()> {
    if request.has('j') {
        return write_json(out, pool);
    }
    writeln!(out, "\nMetaslabs:")?;
    for (i, top) in pool.tree().tops().iter().enumerate() {
        if top.kind().is_concrete() && top.config().ms_array != 0 {
            write_vdev(request, out, pool, VdevId(i as u64), top)?;
        }
    }
    writeln!(out, "\n")?;
    Ok(())
}

fn write_vdev(
    request: &Request,
    out: &mut Printer,
    pool: &Pool,
    id: VdevId,
    top: &Vdev,
) -> Result<()> {
    let bias = top.config().alloc_bias.word().unwrap_or("");
    let shift = top.config().ms_shift;
    writeln!(out, "\tvdev {:10}   {bias}", id.0)?;
    writeln!(
        out,
        "\tmetaslabs{:6}   {:<19}   {:<15}   {:<12}",
        top.metaslab_count(),
        "offset",
        "spacemap",
        "free"
    )?;
    writeln!(
        out,
        "\t---------------   -------------------   ---------------   ------------"
    )?;
    let objects = pool.space_maps().objects(id, top.metaslab_count())?;
    for (number, object) in objects.iter().enumerate() {
        let offset = (number as u64) << shift;
        let (length, alloc, histogram) = space_map(pool, *object)?;
        let free = out.nice((1u64 << shift).saturating_sub(alloc as u64));
        writeln!(
            out,
            "\tmetaslab {number:6}   offset {offset:12x}   spacemap {:6}   free {free:>8}",
            object.0
        )?;
        if request.verbosity('m') > 1 && object.0 != 0 {
            write_histogram(out, &histogram, top.config().ashift)?;
        }
        if object.0 != 0 {
            writeln!(out, "space map object {}:", object.0)?;
            writeln!(out, "  smp_length = {length:#x}")?;
            writeln!(out, "  smp_alloc = {alloc:#x}")?;
        }
    }
    Ok(())
}

fn space_map(pool: &Pool, object: ObjectId) -> Result<(u64, i64, Vec<u64>)> {
    if object.0 == 0 {
        return Ok((0, 0, Vec::new()));
    }
    let (_, phys) = pool.space_maps().open(object)?;
    let histogram = phys.histogram.iter().map(|bin| bin.get()).collect();
    Ok((phys.length.get(), phys.alloc.get(), histogram))
}

/// Free segments by size: from the first to the last size that there is.
#[doc(alias = "dump_histogram")]
fn write_histogram(out: &mut Printer, bins: &[u64], shift: u32) -> Result<()> {
    const WIDTH: u64 = 40;
    writeln!(out, "\tOn-disk histogram:")?;
    let used = |(_, count): &(usize, &u64)| **count > 0;
    let Some((first, _)) = bins.iter().enumerate().find(used) else {
        return Ok(());
    };
    let last = bins.iter().rposition(|count| *count > 0).unwrap_or(first);
    let largest = bins.iter().copied().max().unwrap_or(0).max(WIDTH);
    for (i, count) in bins.iter().enumerate().take(last + 1).skip(first) {
        let stars = (count * WIDTH).div_ceil(largest) as usize;
        writeln!(
            out,
            "\t\t\t{:3}: {count:6} {}",
            i + shift as usize,
            "*".repeat(stars)
        )?;
    }
    Ok(())
}

fn write_json(out: &mut Printer, pool: &Pool) -> Result<()> {
    let mut vdevs = Vec::new();
    for (i, top) in pool.tree().tops().iter().enumerate() {
        if !top.kind().is_concrete() || top.config().ms_array == 0 {
            continue;
        }
        let shift = top.config().ms_shift;
        let mut list = Vec::new();
        let objects = pool
            .space_maps()
            .objects(VdevId(i as u64), top.metaslab_count())?;
        for (number, object) in objects.iter().enumerate() {
            let (length, alloc, histogram) = space_map(pool, *object)?;
            list.push(json!({
                "offset": (number as u64) << shift,
                "size": 1u64 << shift,
                "spacemap": object.0,
                "smp_length": length,
                "smp_alloc": alloc,
                "histogram": histogram,
            }));
        }
        vdevs.push(json!({ "vdev": i, "metaslabs": list }));
    }
    writeln!(out, "{}", json!({ "vdevs": vdevs }))?;
    Ok(())
}
