//! Lists of blocks: deadlists, livelists, blocks waiting to be freed.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_blkptr_list`, `dump_full_bpobj`, `dump_bptree`,
//! `livelist_metaslab_validate`).

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;

use base::{Error, MetaslabId, ObjectId, Result, VdevId};
use dsl::{Bpobj, Deadlist, DslDataset, DslPool, Mos};
use metaslab::{SpaceMapExtent, SpaceMapStore, for_each_entry};
use phys::dsl::{BPOBJ_SIZE_V1, BPOBJ_SIZE_V2, BptreeEntryPhys, BptreePhys};
use phys::pool_names::{
    BPTREE_OBJ, DD_FIELD_LIVELIST, DELETED_CLONES, FREE_BPOBJ, OBSOLETE_BPOBJ, ORIGIN_DIR_NAME,
    SYNC_BPOBJ,
};
use phys::space_map::MapType;
use zerocopy::FromBytes;

use super::pool::Pool;
use super::request::Request;
use super::text::Printer;
use super::viewers;

/// Lists nested deeper than this are damaged.
const DEPTH_MAX: usize = 8;

/// The blocks waiting to be freed in a pool.
pub(super) fn pool_lists(request: &Request, out: &mut Printer, pool: &Pool) -> Result<()> {
    let mos = pool.parts().dsl().mos();
    let level = request.level('d');
    for (entry, title) in [
        (SYNC_BPOBJ, "Deferred frees"),
        (FREE_BPOBJ, "Pool snapshot frees"),
        (OBSOLETE_BPOBJ, "Pool obsolete blocks"),
    ] {
        if let Some(object) = zap::directory::find(mos.objset(), entry)? {
            bpobj(out, level, mos, object, title)?;
        }
    }
    if let Some(object) = zap::directory::find(mos.objset(), BPTREE_OBJ)? {
        bptree(out, level, mos, object)?;
    }
    Ok(())
}

/// A list with its own pointers and those of the lists in it.
#[doc(alias = "dump_full_bpobj")]
fn bpobj(
    out: &mut Printer,
    level: usize,
    mos: &Arc<Mos>,
    object: ObjectId,
    title: &str,
) -> Result<()> {
    write_bpobj(out, mos, (object, title), 0, &mut BTreeSet::new())?;
    if level < 5 {
        return Ok(());
    }
    Bpobj::open(mos, object)?.iterate(&mut |bp, is_freed| {
        let line = out.compact(bp, is_freed);
        writeln!(out, "\t{line}")?;
        Ok(())
    })?;
    writeln!(out)?;
    Ok(())
}

fn write_bpobj(
    out: &mut Printer,
    mos: &Arc<Mos>,
    (object, title): (ObjectId, &str),
    depth: usize,
    seen: &mut BTreeSet<ObjectId>,
) -> Result<()> {
    if !seen.insert(object) {
        let text = format!("list {object} is in more than one list");
        return Err(Error::corrupt(text));
    }
    if depth > DEPTH_MAX {
        return Err(Error::corrupt(format!(
            "list {object} is {depth} lists deep"
        )));
    }
    let list = Bpobj::open(mos, object)?;
    let header = list.header();
    let bonus = mos.objset().hold(object)?.bonus_len();
    let freed = if bonus > BPOBJ_SIZE_V2 {
        format!(", {} freed", header.num_freed)
    } else {
        String::new()
    };
    let bytes = out.nice(header.bytes);
    let width = depth * 8;
    let has_subobjs = bonus > BPOBJ_SIZE_V1 && header.subobjs != 0;
    if !has_subobjs {
        let count = header.num_blkptrs;
        writeln!(
            out,
            "    {title:>width$}: object {object}, {count} blkptrs{freed}, {bytes}"
        )?;
        return Ok(());
    }
    writeln!(
        out,
        "    {title:>width$}: object {object}, {} local blkptrs{freed}, {} subobjs in object {}, \
         {bytes} ({}/{} comp)",
        header.num_blkptrs,
        header.num_subobjs,
        header.subobjs,
        out.nice(header.comp),
        out.nice(header.uncomp)
    )?;
    let subobjs = mos.objset().hold(ObjectId(header.subobjs))?;
    let there = viewers::length(&subobjs) / 8;
    for index in 0..header.num_subobjs.min(there) {
        let mut word = [0; 8];
        subobjs.read(index.saturating_mul(8), &mut word)?;
        let object = ObjectId(u64::from_le_bytes(word));
        write_bpobj(out, mos, (object, "subobj"), depth + 1, seen)?;
    }
    Ok(())
}

/// The trees of datasets that are being freed.
#[doc(alias = "dump_bptree")]
fn bptree(out: &mut Printer, level: usize, mos: &Arc<Mos>, object: ObjectId) -> Result<()> {
    let dnode = mos.objset().hold(object)?;
    let (phys, _) = BptreePhys::read_from_prefix(&dnode.bonus())
        .map_err(|_| Error::corrupt(format!("object {object} is not a list of trees")))?;
    let (begin, end) = (phys.begin.get(), phys.end.get());
    let bytes = out.nice(phys.bytes.get());
    let count = end.wrapping_sub(begin);
    writeln!(out, "\n    Pool dataset frees: {count} datasets, {bytes}")?;
    if level < 5 {
        return Ok(());
    }
    writeln!(out)?;
    let size = size_of::<BptreeEntryPhys>();
    // The header may claim more entries than exist.
    let there = viewers::length(&dnode) / size as u64;
    let end = end.min(there).max(begin);
    let (first, length) = (
        begin.saturating_mul(size as u64),
        (end - begin).saturating_mul(size as u64),
    );
    dnode.check_dense(first, length)?;
    for index in begin..end {
        let mut bytes = vec![0; size];
        dnode.read(index.saturating_mul(size as u64), &mut bytes)?;
        let entry = BptreeEntryPhys::read_from_bytes(&bytes)
            .map_err(|_| Error::corrupt(format!("tree {index} of object {object}")))?;
        if entry.bp.birth().0 != 0 {
            writeln!(out, "\t{}", entry.bp)?;
        }
    }
    Ok(())
}

/// The deadlist of a dataset, and a clone's livelist.
pub(super) fn deadlists(
    request: &Request,
    out: &mut Printer,
    dsl: &Arc<DslPool>,
    dataset: &Arc<DslDataset>,
) -> Result<()> {
    let mos = dsl.mos();
    let level = request.level('d');
    let deadlist = ObjectId(dataset.fields().deadlist_obj);
    list(out, level, mos, deadlist, "Deadlist")?;
    if dataset.is_snapshot() {
        return Ok(());
    }
    let dir = mos.objset().hold(dataset.dir().object())?;
    if !dir.type_().is_zap() {
        return Ok(());
    }
    if let Some(object) = zap::Zap::new(dir)?.lookup_u64(DD_FIELD_LIVELIST)? {
        list(out, level, mos, ObjectId(object), "Livelist")?;
    }
    Ok(())
}

/// The deadlists of `$ORIGIN` and of its snapshot, from which every dataset descends.
pub(super) fn origin_deadlists(request: &Request, out: &mut Printer, pool: &Pool) -> Result<()> {
    let dsl = pool.parts().dsl();
    let mos = dsl.mos();
    let level = request.level('d');
    let Ok(dir) = dsl.dir(&format!("{}/{ORIGIN_DIR_NAME}", pool.name())) else {
        return Ok(());
    };
    let head = dsl
        .dataset_of(ObjectId(dir.fields().head_dataset_obj))?
        .fields();
    list(out, level, mos, ObjectId(head.deadlist_obj), "Deadlist")?;
    let snapshot = dsl.dataset_of(ObjectId(head.prev_snap_obj))?.fields();
    list(out, level, mos, ObjectId(snapshot.deadlist_obj), "Deadlist")
}

/// A deadlist: its sums, the list of each key, and the blocks in them.
#[doc(alias = "dump_blkptr_list")]
fn list(
    out: &mut Printer,
    level: usize,
    mos: &Arc<Mos>,
    object: ObjectId,
    title: &str,
) -> Result<()> {
    let mut list = Deadlist::open(mos, object)?;
    let (space, entries) = (list.space()?, list.entries()?);
    writeln!(
        out,
        "\n    {title}: {} ({}/{} comp), {} entries",
        out.nice(space.used as u64),
        out.nice(space.comp as u64),
        out.nice(space.uncomp as u64),
        out.nice(entries.len() as u64)
    )?;
    if level < 4 {
        return Ok(());
    }
    writeln!(out)?;
    for (key, object) in entries {
        let title = format!("mintxg {key} -> obj {object}");
        if level >= 5 {
            bpobj(out, level, mos, object, &title)?;
        } else {
            writeln!(out, "{title}")?;
        }
    }
    Ok(())
}

/// `zdb -y`: whether blocks still in the livelists of deleted clones have been freed, and whether any space
/// map allocates or frees the same range twice in a row.
#[doc(alias = "livelist_metaslab_validate")]
pub(super) fn verify_livelists(out: &mut Printer, pool: &Pool) -> Result<()> {
    writeln!(out, "Verifying deleted livelist entries")?;
    let leftover = deleted_livelists(out, pool)?;
    writeln!(out, "Verifying metaslab entries")?;
    for (i, top) in pool.parts().tree().tops().iter().enumerate() {
        let config = top.config().clone();
        if !top.kind().is_concrete() || config.ms_array == 0 {
            continue;
        }
        let id = VdevId(i as u64);
        let maps = pool.parts().space_maps();
        let objects = maps.objects(id, top.metaslab_count())?;
        for (number, object) in objects.iter().enumerate().filter(|(_, o)| o.0 != 0) {
            let range = top.metaslab_range(MetaslabId(number as u64));
            let extent = SpaceMapExtent {
                start: range.start,
                size: range.end - range.start,
                shift: config.ashift,
            };
            let (object, phys) = maps.open(*object)?;
            let mut allocated = metaslab::RangeTree::new();
            let mut lines = Vec::new();
            for_each_entry(
                &**maps,
                &object,
                phys.length.get(),
                &extent,
                &mut |kind, at, size| {
                    let (done, what) = match kind {
                        MapType::Alloc => (allocated.try_add(at, size), "ALLOC"),
                        MapType::Free => (allocated.try_remove(at, size), "FREE"),
                    };
                    if !done {
                        lines.push(format!(
                            "ERROR: DOUBLE {what}: [{at:x}:{size:x}] {i}:{number}"
                        ));
                    }
                    Ok(())
                },
            )?;
            for (vdev, offset, size) in leftover.iter().filter(|(vdev, ..)| *vdev == id.0) {
                let is_here = extent.start <= *offset && *offset < extent.start + extent.size;
                if is_here && !allocated.contains(*offset, *size) {
                    lines.push(format!(
                        "ERROR: Livelist ALLOC [{offset:x}:{size:x}] of vdev {vdev} FREED"
                    ));
                }
            }
            for line in lines {
                writeln!(out, "{line}")?;
            }
        }
    }
    Ok(())
}

/// The blocks that the livelists of deleted clones still contain: vdev, offset, size.
fn deleted_livelists(out: &mut Printer, pool: &Pool) -> Result<BTreeSet<(u64, u64, u64)>> {
    let mos = pool.parts().dsl().mos();
    let mut leftover = BTreeSet::new();
    let Some(clones) = zap::directory::find(mos.objset(), DELETED_CLONES)? else {
        return Ok(leftover);
    };
    for entry in zap::iter(mos.objset(), clones)? {
        let mut livelist = Deadlist::open(mos, ObjectId(entry?.first_integer))?;
        for (_, object) in livelist.entries()? {
            let mut freed: BTreeMap<(u64, u64), u64> = BTreeMap::new();
            Bpobj::open(mos, object)?.iterate(&mut |bp, is_freed| {
                for dva in bp.dvas() {
                    let place = (dva.vdev().0, dva.offset());
                    if is_freed {
                        *freed.entry(place).or_default() += 1;
                    } else if let Some(count) = freed.get_mut(&place).filter(|n| **n > 0) {
                        *count -= 1;
                    } else {
                        leftover.insert((place.0, place.1, dva.asize()));
                    }
                }
                Ok(())
            })?;
            for ((vdev, offset), _) in freed.iter().filter(|(_, count)| **count > 0) {
                writeln!(out, "ERROR: 1 unmatched FREE(s): <{vdev}:{offset:x}>")?;
            }
        }
    }
    Ok(leftover)
}
