//! Checks the feature counts that the pool stores against what is counted in it.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_zpool`, `verify_device_removal_feature_counts`,
//! `verify_spacemap_refcounts`, `dump_brt`).

use phys::feature;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result, VdevId};
use dsl::DslDataset;
use metaslab::SpaceMapStore;
use phys::pool_names::{
    CONDENSING_INDIRECT, DD_FIELD_LIVELIST, LOG_SPACEMAP_ZAP, OBSOLETE_BPOBJ,
    VDEV_TOP_ZAP_COUNTS_ARE_PRECISE, VDEV_TOP_ZAP_OBSOLETE_SM, VDEV_TOP_ZAP_POOL_CHECKPOINT_SM,
};
use phys::scan::INDIRECT_MAPPING_V0_BYTES;
use zap::{Zap, directory};

use super::pool::Pool;
use super::text::Printer;

/// The exit status when counts differ.
const MISMATCH: u8 = 2;
/// Features that count datasets, bookmarks or clones, in OpenZFS's order (`spa_feature_t`).
const COUNTED: [&str; 19] = [
    "large_blocks",
    "large_dnode",
    "sha512",
    "skein",
    "edonr",
    "userobj_accounting",
    "encryption",
    "project_quota",
    "redaction_bookmarks",
    "redacted_datasets",
    "bookmark_written",
    "livelist",
    "zstd_compress",
    "zilsaxattr",
    "blake3",
    "redaction_list_spill",
    "longname",
    "large_microzap",
    "physical_rewrite",
];

/// Counts the users of features that are counted by dataset, and of some others.
pub(super) fn verify(out: &mut Printer, pool: &Pool, datasets: &[Arc<DslDataset>]) -> Result<u8> {
    let others = count_others(pool, datasets)?;
    let features = pool.parts().features();
    let mut code = 0;
    for feature in COUNTED
        .iter()
        .filter_map(|name| phys::feature::by_name(name))
    {
        let counted = if feature.per_dataset {
            let users = datasets
                .iter()
                .filter(|ds| ds.feature_is_active(feature.guid));
            users.count() as u64
        } else if let Some(count) = others.get(feature.name) {
            *count
        } else {
            continue;
        };
        let Some(recorded) = features.count(feature.guid) else {
            continue;
        };
        let name = feature.name;
        if recorded == counted {
            writeln!(
                out,
                "Verified {name} feature refcount of {recorded} is correct"
            )?;
        } else {
            writeln!(
                out,
                "{name} feature refcount mismatch: {counted} consumers != {recorded} refcount"
            )?;
            code = MISMATCH;
        }
    }
    if code == 0 {
        code = removals(out, pool)?;
    }
    Ok(code)
}

/// Features that count bookmarks and clones, by name.
fn count_others(pool: &Pool, datasets: &[Arc<DslDataset>]) -> Result<BTreeMap<&'static str, u64>> {
    let mos = pool.parts().mos();
    let (mut redacted, mut spilled, mut written, mut livelists) = (0, 0, 0, 0);
    for dataset in datasets.iter().filter(|dataset| !dataset.is_snapshot()) {
        for bookmark in pool.parts().dsl().bookmarks(dataset)? {
            written += u64::from(bookmark.referenced().is_some());
            let list = bookmark.redaction_object();
            if list.0 != 0 {
                redacted += 1;
                spilled += u64::from(mos.hold(list)?.has_spill());
            }
        }
        let dir = mos.hold(dataset.dir().object())?;
        if dir.type_().is_zap() {
            livelists += u64::from(Zap::new(dir)?.contains(DD_FIELD_LIVELIST)?);
        }
    }
    Ok(BTreeMap::from([
        ("redaction_bookmarks", redacted),
        ("redaction_list_spill", spilled),
        ("bookmark_written", written),
        ("livelist", livelists),
    ]))
}

/// Features of vdevs that were removed.
#[doc(alias = "verify_device_removal_feature_counts")]
fn removals(out: &mut Printer, pool: &Pool) -> Result<u8> {
    let features = pool.parts().features();
    let tops = pool.parts().tree().tops();
    let removed = tops.iter().filter(|top| top.config().indirect_object != 0);
    let (removed, recorded) = (
        removed.count() as u64,
        features.count(feature::DEVICE_REMOVAL).unwrap_or(0),
    );
    let mut code = 0;
    if removed == recorded {
        writeln!(
            out,
            "Verified device_removal feature refcount of {recorded} is correct"
        )?;
    } else {
        writeln!(
            out,
            "Number of indirect vdevs ({removed}) does not match feature count ({recorded})"
        )?;
        code = 1;
    }
    let counted = obsolete_objects(pool)?;
    let recorded = features.count(feature::OBSOLETE_COUNTS).unwrap_or(0);
    if counted == recorded {
        writeln!(
            out,
            "Verified indirect_refcount feature refcount of {recorded} is correct"
        )?;
    } else {
        writeln!(
            out,
            "Number of obsolete counts objects ({counted}) does not match feature count ({recorded})"
        )?;
        code = 1;
    }
    Ok(code)
}

/// What the feature `obsolete_counts` counts: flags, objects of counts, space maps of obsolete ranges, lists of
/// remapped blocks.
fn obsolete_objects(pool: &Pool) -> Result<u64> {
    let mos = pool.parts().mos();
    let mut counted = 0;
    for top in pool.parts().tree().tops() {
        let (mapping, zap) = {
            let config = top.config();
            (ObjectId(config.indirect_object), ObjectId(config.top_zap))
        };
        if mapping.0 != 0 {
            counted += u64::from(mos.hold(mapping)?.bonus().len() > INDIRECT_MAPPING_V0_BYTES);
        }
        if zap.0 != 0 {
            let names = [VDEV_TOP_ZAP_COUNTS_ARE_PRECISE, VDEV_TOP_ZAP_OBSOLETE_SM];
            for name in names {
                let found = zap::lookup_u64(mos, zap, name)?;
                counted += u64::from(found.is_some_and(|value| value != 0));
            }
        }
    }
    // While a mapping is condensed, the former space map and the counts of the new mapping.
    let condensing = directory::find(mos, CONDENSING_INDIRECT);
    counted += if matches!(condensing, Ok(None)) { 0 } else { 2 };
    let lists = directory::find(mos, OBSOLETE_BPOBJ)?;
    Ok(counted + u64::from(lists.is_some()))
}

/// Whether the number of space maps with a histogram is the stored feature count.
#[doc(alias = "verify_spacemap_refcounts")]
pub(super) fn space_maps(out: &mut Printer, pool: &Pool) -> Result<u8> {
    let expected = pool
        .parts()
        .features()
        .count(feature::SPACEMAP_HISTOGRAM)
        .unwrap_or(0);
    let (mos, maps) = (pool.parts().mos(), pool.parts().space_maps());
    let mut objects = Vec::new();
    let mut actual = 0;
    for (i, top) in pool.parts().tree().tops().iter().enumerate() {
        let config = top.config().clone();
        if top.kind().is_concrete() && config.ms_array != 0 {
            objects.extend(maps.objects(VdevId(i as u64), top.metaslab_count())?);
        }
        if config.top_zap != 0 {
            let zap = Zap::open(mos, ObjectId(config.top_zap))?;
            actual += u64::from(zap.contains(VDEV_TOP_ZAP_POOL_CHECKPOINT_SM)?);
            let obsolete = zap.lookup_u64(VDEV_TOP_ZAP_OBSOLETE_SM)?;
            objects.extend(obsolete.map(ObjectId));
            objects.extend(spa::condensed_obsolete_map(mos, VdevId(i as u64))?);
        }
    }
    for leaf in pool.parts().tree().devices() {
        objects.push(ObjectId(leaf.config().dtl_object));
    }
    for object in objects.iter().filter(|object| object.0 != 0) {
        let (object, _) = maps.open(*object)?;
        actual += u64::from(object.has_histogram);
    }
    if let Some(logs) = zap::directory::find(mos, LOG_SPACEMAP_ZAP)? {
        actual += zap::count(mos, logs)?;
    }
    if expected == actual {
        return Ok(0);
    }
    writeln!(
        out,
        "space map refcount mismatch: expected {expected} != actual {actual}"
    )?;
    Ok(MISMATCH)
}

/// `zdb -T`: the table of cloned blocks.
#[doc(alias = "dump_brt")]
pub(super) fn clones(out: &mut Printer, pool: &Pool) -> Result<()> {
    match pool.parts().features().count(feature::BLOCK_CLONING) {
        None => writeln!(out, "BRT: unsupported on this pool")?,
        Some(0) => writeln!(out, "BRT: empty")?,
        Some(_) => {
            let text = "-T of a pool with cloned blocks is not supported yet";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
    }
    Ok(())
}
