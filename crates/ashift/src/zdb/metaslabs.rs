//! `zdb -m`: the metaslabs of every vdev, and space maps entry by entry.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_metaslab`, `dump_metaslabs`, `dump_spacemap`).

use phys::feature;
use std::io::Write;

use base::{Error, MetaslabId, ObjectId, Result, VdevId};
use metaslab::{RangeTree, SpaceMapExtent, SpaceMapStore, fragmentation, load_free};
use phys::space_map::{MapType, SpaceMapEntry, SpaceMapPhys, entries};
use serde_json::json;
use vdev::Vdev;

use super::pool::Pool;
use super::request::{Request, leading_number};
use super::text::Printer;

/// `metaslab_by_size_min_shift`: smaller segments are not counted.
const COUNTED_BYTES_MIN: u64 = 1 << 14;
/// `SM_NO_VDEVID`
const NO_VDEV: u64 = 1 << 24;

/// The metaslabs requested: a vdev, and some of its metaslabs.
pub(super) struct Choice(Vec<u64>);

impl Choice {
    /// The operands of `-m`; with `-d` they are objects.
    pub(super) fn parse(request: &Request, operands: &[String]) -> Choice {
        if request.level('d') > 0 || request.level('m') == 0 {
            return Choice(Vec::new());
        }
        Choice(operands.iter().map(|text| leading_number(text)).collect())
    }
}

/// `zdb -m`.
#[doc(alias = "dump_metaslabs")]
pub(super) fn run(request: &Request, out: &mut Printer, pool: &Pool, only: &Choice) -> Result<()> {
    if request.has('j') {
        return write_json(out, pool);
    }
    if pool
        .parts()
        .features()
        .count(feature::LOG_SPACEMAP)
        .unwrap_or(0)
        > 0
    {
        eprintln!("zdb: the log of space maps is not shown");
    }
    writeln!(out, "\nMetaslabs:")?;
    let tops = pool.parts().tree().tops();
    let (first, numbers) = match &only.0[..] {
        [] => (None, &[][..]),
        [vdev, numbers @ ..] => (Some(*vdev), numbers),
    };
    if let Some(vdev) = first.filter(|vdev| *vdev >= tops.len() as u64) {
        return Err(Error::invalid(format!("bad vdev id: {vdev}")));
    }
    for (i, top) in tops.iter().enumerate() {
        if first.is_some_and(|vdev| vdev != i as u64) {
            continue;
        }
        let vdev = TopVdev::of(pool, VdevId(i as u64), top)?;
        vdev.write_header(out)?;
        if numbers.is_empty() {
            for number in 0..vdev.objects.len() {
                vdev.write_metaslab(request, out, pool, number)?;
            }
        }
        for number in numbers {
            if *number < vdev.objects.len() as u64 {
                vdev.write_metaslab(request, out, pool, *number as usize)?;
            } else {
                out.flush()?;
                eprintln!("bad metaslab number {number}");
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

/// A top-level vdev and its space maps.
pub(super) struct TopVdev {
    pub(super) id: VdevId,
    bias: &'static str,
    ms_shift: u32,
    ms_align: u64,
    pub(super) ashift: u32,
    /// The space map of each metaslab; 0 if it has none yet.
    pub(super) objects: Vec<ObjectId>,
}

impl TopVdev {
    pub(super) fn of(pool: &Pool, id: VdevId, top: &Vdev) -> Result<TopVdev> {
        let config = top.config().clone();
        let has_space = top.kind().is_concrete() && config.ms_array != 0;
        let objects = if has_space {
            pool.parts()
                .space_maps()
                .objects(id, top.metaslab_count())?
        } else {
            Vec::new()
        };
        Ok(TopVdev {
            id,
            bias: config.class().word().unwrap_or(""),
            ms_shift: config.ms_shift,
            ms_align: top.metaslab_align(),
            ashift: config.ashift,
            objects,
        })
    }

    fn write_header(&self, out: &mut Printer) -> Result<()> {
        writeln!(out, "\tvdev {:10}   {}", self.id.0, self.bias)?;
        writeln!(
            out,
            "\tmetaslabs {:5}   {:<19}   {:<15}   {:<12}",
            self.objects.len(),
            "offset",
            "spacemap",
            "free"
        )?;
        writeln!(
            out,
            "\t---------------   -------------------   ---------------   ------------"
        )?;
        Ok(())
    }

    fn extent(&self, number: usize) -> SpaceMapExtent {
        let range = MetaslabId(number as u64).range(self.ms_shift, self.ms_align);
        SpaceMapExtent {
            start: range.start,
            size: range.end - range.start,
            shift: self.ashift,
        }
    }

    #[doc(alias = "dump_metaslab")]
    fn write_metaslab(
        &self,
        request: &Request,
        out: &mut Printer,
        pool: &Pool,
        number: usize,
    ) -> Result<()> {
        let object = self.objects[number];
        let extent = self.extent(number);
        let phys = space_map(pool, object)?;
        let free = extent.size.saturating_sub(phys.alloc.get() as u64);
        writeln!(
            out,
            "\tmetaslab {number:6}   offset {:12x}   spacemap {:6}   free    {:>5}",
            extent.start,
            object.0,
            out.nice(free)
        )?;
        let level = request.level('m');
        if level > 2 && !request.has('L') {
            let free = match pool.parts().space_maps().open(object) {
                Ok((map, _)) if object.0 != 0 => load_free(
                    &**pool.parts().space_maps(),
                    &map,
                    phys.length.get(),
                    &extent,
                )?,
                _ => [(extent.start, extent.size)].into_iter().collect(),
            };
            write_stats(out, &free, extent.size)?;
        }
        let has_histograms = pool
            .parts()
            .features()
            .count(feature::SPACEMAP_HISTOGRAM)
            .unwrap_or(0)
            > 0;
        if level > 1 && object.0 != 0 && has_histograms {
            let histogram = phys.histogram.map(u64::from);
            let fragmented = fragmentation(&histogram, self.ashift);
            writeln!(out, "\tOn-disk histogram:\t\tfragmentation {fragmented}")?;
            out.histogram(&histogram, self.ashift as usize)?;
        }
        if object.0 != 0 {
            write_space_map(request, out, pool, object, extent.start, self.ashift)?;
        }
        Ok(())
    }
}

/// The header of a space map; all zero where there is none.
pub(super) fn space_map(pool: &Pool, object: ObjectId) -> Result<SpaceMapPhys> {
    if object.0 == 0 {
        return Ok(SpaceMapPhys::default());
    }
    Ok(pool.parts().space_maps().open(object)?.1)
}

/// The free space, as in a loaded metaslab.
#[doc(alias = "dump_metaslab_stats")]
fn write_stats(out: &mut Printer, free: &RangeTree, size: u64) -> Result<()> {
    let counted = free.iter().filter(|(_, size)| *size >= COUNTED_BYTES_MIN);
    let counted = match counted.count() {
        // If all segments are small, all are counted.
        0 => free.segment_count(),
        some => some,
    };
    let largest = free.iter().map(|(_, size)| size).max().unwrap_or(0);
    let percent = u128::from(free.space()) * 100 / u128::from(size);
    writeln!(
        out,
        "\t {:>25} {counted:10}   {:>7}  {:>6}   {:>4} {percent:4}%",
        "segments",
        "maxsize",
        out.nice(largest),
        "freepct"
    )?;
    writeln!(out, "\tIn-memory histogram:")?;
    out.histogram(free.histogram(), 0)?;
    Ok(())
}

/// A space map: its header, and its entries if they are requested; `start` and `shift` are those of its
/// metaslab.
#[doc(alias = "dump_spacemap")]
pub(super) fn write_space_map(
    request: &Request,
    out: &mut Printer,
    pool: &Pool,
    object: ObjectId,
    start: u64,
    shift: u32,
) -> Result<()> {
    let phys = space_map(pool, object)?;
    let length = phys.length.get();
    writeln!(out, "space map object {}:", object.0)?;
    writeln!(out, "  smp_length = {length:#x}")?;
    writeln!(out, "  smp_alloc = {:#x}", phys.alloc.get())?;
    if request.level('d') < 6 && request.level('m') < 4 {
        return Ok(());
    }
    let available = pool.parts().mos().hold(object)?.phys();
    let blocks = available.maxblkid.get().saturating_add(1);
    let available = blocks.saturating_mul(available.datablksz());
    if length > available {
        let text = format!("space map {object}: {length} bytes in an object of {available}");
        return Err(Error::corrupt(text));
    }
    let maps = pool.parts().space_maps();
    maps.check_dense(object, length)?;
    let (mut allocated, mut number) = (0i64, 0);
    // No entry spans two blocks.
    let block = pool.parts().mos().hold(object)?.blksz();
    for offset in (0..length).step_by(block as usize) {
        let mut bytes = vec![0; block.min(length - offset) as usize];
        maps.read(object, offset, &mut bytes)?;
        for entry in entries(&bytes) {
            let change = write_entry(out, number, &entry?, start, shift)?;
            allocated = allocated.wrapping_add(change);
            number += 1;
        }
    }
    if allocated != phys.alloc.get() {
        writeln!(
            out,
            "space_map_object alloc ({}) INCONSISTENT with space map summary ({allocated})",
            phys.alloc.get()
        )?;
    }
    Ok(())
}

/// Writes an entry; returns the bytes it allocates, negative for a free.
fn write_entry(
    out: &mut Printer,
    number: usize,
    entry: &SpaceMapEntry,
    start: u64,
    shift: u32,
) -> Result<i64> {
    let range = match entry {
        SpaceMapEntry::Debug { txg, .. } if txg.0 == 0 => {
            writeln!(out, "\t    [{number:6}] PADDING")?;
            return Ok(0);
        }
        SpaceMapEntry::Debug {
            action,
            sync_pass,
            txg,
        } => {
            let action = match action {
                MapType::Alloc => "ALLOC",
                MapType::Free => "FREE",
            };
            writeln!(
                out,
                "\t    [{number:6}] {action}: txg {txg} pass {sync_pass}"
            )?;
            return Ok(0);
        }
        SpaceMapEntry::Range(range) => range,
    };
    let (letter, sign) = match range.map_type {
        MapType::Alloc => ('A', 1),
        MapType::Free => ('F', -1),
    };
    let from = (range.offset << shift).wrapping_add(start);
    let size = range.run << shift;
    let (vdev, words) = range.vdev.map_or((NO_VDEV, 1), |vdev| (vdev.0, 2));
    writeln!(
        out,
        "\t    [{number:6}]    {letter}  range: {from:010x}-{:010x}  size: {size:06x} vdev: \
         {vdev:06} words: {words}",
        from.wrapping_add(size)
    )?;
    Ok((size as i64).wrapping_mul(sign))
}

fn write_json(out: &mut Printer, pool: &Pool) -> Result<()> {
    let mut vdevs = Vec::new();
    for (i, top) in pool.parts().tree().tops().iter().enumerate() {
        let vdev = TopVdev::of(pool, VdevId(i as u64), top)?;
        if vdev.objects.is_empty() {
            continue;
        }
        let mut list = Vec::new();
        for (number, object) in vdev.objects.iter().enumerate() {
            let phys = space_map(pool, *object)?;
            let extent = vdev.extent(number);
            list.push(json!({
                "offset": extent.start,
                "size": extent.size,
                "spacemap": object.0,
                "smp_length": phys.length.get(),
                "smp_alloc": phys.alloc.get(),
                "histogram": phys.histogram.map(u64::from),
            }));
        }
        vdevs.push(json!({ "vdev": i, "metaslabs": list }));
    }
    writeln!(out, "{}", json!({ "vdevs": vdevs }))?;
    Ok(())
}
