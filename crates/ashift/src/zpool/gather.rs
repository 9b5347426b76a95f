//! What is shown of a pool, gathered from the engine.
//!
//! # Source
//! OpenZFS module/zfs/vdev.c (`vdev_get_stats_ex`), module/zfs/spa_misc.c, module/zfs/spa.c
//! (`spa_prop_get_config`).

use std::collections::BTreeMap;

use admin::listing::{Item, Prop};
use admin::pool::{
    PoolStatus, ScanFunction, ScanState, ScanStatus, VdevAux, VdevKind, VdevState, VdevStatus,
};
use admin::prop::{POOL, Source};
use base::VdevId;
use nvpair::NvList;
use phys::PropValue;
use phys::feature::{FEATURES, Feature, Support};
use service::{OpenPool, objects_of};
use spa::Spa;
use vdev::import::FoundPool;
use zio::AllocClass;

/// `scn_func`, `scn_state` of a scan in the pool directory.
const SCAN_RESILVER: u64 = 2;
const SCAN_FINISHED: u64 = 2;
const SCAN_CANCELED: u64 = 3;

/// Whether a compatibility property leaves features out on purpose.
fn is_restricted(pool: &Spa) -> bool {
    pool.compatibility().is_some_and(|sets| sets != "off")
}

/// Everything `zpool status` shows of an open pool.
pub(super) fn status_of(pool: &OpenPool) -> base::Result<PoolStatus> {
    let tree = pool.tree();
    let mut root = vdev_status(&tree.root(), 0, AllocClass::Normal);
    for (i, top) in root.children.iter_mut().enumerate() {
        fill_space(pool, VdevId(i as u64), top);
    }
    let space = pool.space();
    root.alloc_bytes = space.alloc;
    root.space_bytes = space.space;
    root.deflated_bytes = space.dspace;
    let kept = pool.kept_errors();
    let damaged = pool.damaged().ok();
    let objects = damaged.as_ref().map(objects_of).unwrap_or_default();
    add_errors(&mut root, &kept.devices);
    let unsupported = pool.obstacles().iter().map(spa::Obstacle::name).collect();
    let features = pool.features();
    let has_disabled_features = FEATURES
        .iter()
        .any(|f| f.support == Support::Kept && features.count(f.guid).is_none());
    Ok(PoolStatus {
        name: pool.name(),
        guid: pool.guid().0,
        txg: pool.config().get_u64("txg").unwrap_or(0),
        version: 5000,
        root,
        unsupported_features: unsupported,
        is_readable: true,
        has_disabled_features: has_disabled_features && !is_restricted(pool),
        scan: scan_status(pool)?,
        error_count: damaged.map(|damaged| damaged.len() as u64),
        errors: pool.names_of(&objects),
        ..PoolStatus::default()
    })
}

/// The status of a pool found on devices. `tried`: its config as read by a trial open, or why that failed.
pub(super) fn status_of_found(
    found: &FoundPool,
    tried: &base::Result<NvList>,
    host_id: u64,
) -> PoolStatus {
    let mut pool = PoolStatus {
        name: found.name.clone(),
        guid: found.guid.0,
        txg: found.config.get_u64("txg").unwrap_or(0),
        version: found.config.get_u64("version").unwrap_or(0),
        is_readable: true,
        is_foreign: found.state == vdev::PoolState::Active
            && found.hostid != 0
            && found.hostid != host_id,
        ..PoolStatus::default()
    };
    let config = tried.as_ref().unwrap_or(&found.config);
    let opened = match tried {
        Err(e) if e.kind() == base::ErrorKind::Unsupported => {
            Err(base::Error::new(e.kind(), e.to_string()))
        }
        _ => found.open(config, false),
    };
    match opened {
        Ok(tree) => {
            pool.root = vdev_status(&tree.root(), 0, AllocClass::Normal);
            if tried.is_err() && pool.root.state.is_usable() {
                (pool.root.state, pool.root.aux) = (VdevState::CantOpen, VdevAux::CorruptData);
            }
            show_paths(&mut pool.root);
        }
        Err(error) => {
            let is_unsupported = error.kind() == base::ErrorKind::Unsupported;
            pool.root = VdevStatus {
                kind: VdevKind::Root,
                state: VdevState::CantOpen,
                aux: if is_unsupported {
                    VdevAux::UnsupFeat
                } else {
                    VdevAux::CorruptData
                },
                ..VdevStatus::default()
            };
            pool.unsupported_features.push(error.to_string());
            pool.is_readable = false;
        }
    }
    if found.uberblock.is_none() {
        pool.root.state = VdevState::CantOpen;
        pool.root.aux = VdevAux::CorruptData;
    }
    pool
}

/// A device that is missing before the import is shown by its path.
fn show_paths(vdev: &mut VdevStatus) {
    vdev.is_not_present = false;
    vdev.children.iter_mut().for_each(show_paths);
}

pub(super) fn vdev_status(vdev: &vdev::Vdev, id: u64, class: AllocClass) -> VdevStatus {
    let config = vdev.config();
    let (state, aux) = vdev.state();
    let stats = vdev.stats().snapshot();
    let is_device = vdev.kind().is_device();
    let class = match config.class() {
        AllocClass::Normal => class,
        own => own,
    };
    let children = vdev.children().iter().enumerate();
    let physical = if is_device { vdev.leaf().psize() } else { 0 };
    VdevStatus {
        kind: kind_of(vdev.kind(), config.whole_disk == Some(true)),
        id,
        guid: vdev.guid().0,
        path: config.path.clone().filter(|_| is_device),
        is_not_present: is_device && config.not_present && !state.is_usable(),
        class,
        state,
        aux,
        physical_bytes: physical,
        replaceable_bytes: if is_device {
            phys::label::allocatable_size(physical)
        } else {
            0
        },
        healed_bytes: stats.self_healed_bytes,
        read_errors: stats.read_errors,
        write_errors: stats.write_errors,
        checksum_errors: stats.checksum_errors,
        is_resilver_deferred: is_device && state.is_usable() && vdev.leaf().has_dtl(),
        is_removing: config.removing,
        is_noalloc: config.non_allocating,
        configured_ashift: config.ashift,
        children: children
            .map(|(i, child)| vdev_status(child, i as u64, class))
            .collect(),
        ..VdevStatus::default()
    }
}

fn fill_space(pool: &Spa, id: VdevId, top: &mut VdevStatus) {
    if let Ok(space) = pool.vdev_space(id) {
        top.alloc_bytes = space.alloc;
        top.space_bytes = space.space;
        top.deflated_bytes = space.dspace;
        top.fragmentation = space.fragmentation;
        top.replaceable_bytes = space.space;
    }
    top.expandable_bytes = pool.tree().top(id).map_or(0, |top| expandable(&top));
}

/// What a top-level vdev could grow by, in bytes, rounded down to whole metaslabs.
#[doc(alias = "vs_esize")]
fn expandable(top: &std::sync::Arc<vdev::Vdev>) -> u64 {
    let config = top.config().clone();
    let (asize, ms_shift) = (config.asize, config.ms_shift);
    let most = vdev::VdevTree::max_asize(top).unwrap_or(asize);
    base::align_down(most.saturating_sub(asize), 1 << ms_shift)
}

fn add_errors(vdev: &mut VdevStatus, kept: &BTreeMap<u64, [u64; 3]>) {
    if let Some([read, write, checksum]) = kept.get(&vdev.guid) {
        vdev.read_errors += read;
        vdev.write_errors += write;
        vdev.checksum_errors += checksum;
    }
    vdev.children
        .iter_mut()
        .for_each(|child| add_errors(child, kept));
}

fn kind_of(kind: vdev::VdevKind, is_whole: bool) -> VdevKind {
    match kind {
        vdev::VdevKind::Root => VdevKind::Root,
        vdev::VdevKind::Mirror => VdevKind::Mirror,
        vdev::VdevKind::Replacing => VdevKind::Replacing,
        vdev::VdevKind::Spare => VdevKind::Spare,
        vdev::VdevKind::RaidZ { nparity } => VdevKind::Raidz {
            parity: nparity.into(),
        },
        vdev::VdevKind::Disk => VdevKind::Disk { is_whole },
        vdev::VdevKind::File => VdevKind::File,
        vdev::VdevKind::Missing => VdevKind::Missing,
        vdev::VdevKind::Hole => VdevKind::Hole,
        vdev::VdevKind::Indirect => VdevKind::Indirect,
    }
}

fn scan_status(pool: &Spa) -> base::Result<Option<ScanStatus>> {
    let Some(scan) = pool.scan() else {
        return Ok(None);
    };
    let state = match scan.state.get() {
        0 => return Ok(None),
        SCAN_FINISHED => ScanState::Finished,
        SCAN_CANCELED => ScanState::Canceled,
        _ => ScanState::Scanning,
    };
    let is_resilver = scan.func.get() == SCAN_RESILVER;
    Ok(Some(ScanStatus {
        function: if is_resilver {
            ScanFunction::Resilver
        } else {
            ScanFunction::Scrub
        },
        state,
        start_secs: scan.start_time.get(),
        end_secs: scan.end_time.get(),
        paused_secs: None,
        total_bytes: scan.to_examine.get(),
        examined_bytes: scan.examined.get(),
        skipped_bytes: scan.skipped.get(),
        issued_bytes: scan.examined.get(),
        processed_bytes: scan.processed.get(),
        errors: scan.errors.get(),
        pass_start_secs: scan.start_time.get(),
        pass_paused_secs: 0,
        pass_examined_bytes: scan.examined.get(),
        pass_issued_bytes: scan.examined.get(),
    }))
}

/// Every property of an open pool.
pub(super) fn properties_of(pool: &OpenPool) -> base::Result<Item> {
    let mut props = Vec::new();
    let facts = pool.facts();
    let space = pool.space();
    let percent = |part: u64, whole: u64| (part * 100).checked_div(whole).unwrap_or(0);
    let (health, _) = pool.tree().state();
    for desc in POOL {
        let number = |n: u64| Prop::number(desc.name, n);
        let text = |t: &str| Prop::text(desc.name, t);
        let local = |t: Option<String>| match t {
            Some(t) => Prop::new(desc.name, PropValue::Text(t), Source::Local),
            None => Prop::new(desc.name, desc.default_value(), Source::Default),
        };
        props.push(match desc.name {
            "name" => continue,
            "size" => number(space.space),
            "expandsize" => number(pool.tree().tops().iter().map(expandable).sum()),
            "capacity" => number(percent(space.alloc, space.space)),
            "altroot" => local(facts.altroot.clone()),
            // A pool with an alternate root is never in OpenZFS's own cachefile.
            "cachefile" => local(facts.altroot.as_ref().map(|_| "none".to_owned())),
            "health" => text(&health.to_string()),
            "guid" => number(pool.guid().0),
            "version" => Prop::new(desc.name, PropValue::Number(5000), Source::Default),
            "free" => number(space.space.saturating_sub(space.alloc)),
            "allocated" => number(space.alloc),
            "dedupratio" => number(100),
            "bcloneused" => number(pool.cloned().0),
            "bclonesaved" => number(pool.cloned().1),
            "bcloneratio" => number(match pool.cloned() {
                (0, _) => 100,
                (used, saved) => used.saturating_add(saved).saturating_mul(100) / used,
            }),
            "readonly" => number(u64::from(facts.readonly || !pool.obstacles().is_empty())),
            "comment" => local(pool.comment()),
            "compatibility" => local(pool.compatibility()),
            "fragmentation" => number(space.fragmentation.unwrap_or(u64::MAX)),
            "maxblocksize" => number(base::SPA_MAXBLOCKSIZE),
            "maxdnodesize" => number(16 << 10),
            "load_guid" => number(pool.guid().0),
            "freeing" => number(freeing(pool)?),
            _ if desc.edit == admin::prop::Edit::ReadOnly => number(0),
            _ => stored(pool, desc),
        });
    }
    props.extend(feature_props(pool));
    props.extend(user_props(pool));
    Ok(Item {
        name: pool.name(),
        types: None,
        props,
    })
}

fn freeing(pool: &Spa) -> base::Result<u64> {
    let dir = pool.dsl().dir(&format!("{}/$FREE", pool.name()));
    Ok(dir.map(|dir| dir.fields().used_bytes).unwrap_or(0))
}

fn stored(pool: &Spa, desc: &'static admin::prop::PropDesc) -> Prop {
    match pool.props().get(desc.name) {
        Some(PropValue::Number(n)) if desc.name == "bootfs" && n != 0 => {
            let name = pool.dsl().dataset_of(base::ObjectId(n));
            let name = name
                .and_then(|ds| pool.dsl().name_of(&ds))
                .unwrap_or_default();
            Prop::new(desc.name, PropValue::Text(name), Source::Local)
        }
        // A number that is the default counts as not set.
        Some(PropValue::Number(n))
            if desc.default_value() == PropValue::Number(n) || desc.name == "bootfs" =>
        {
            Prop::new(desc.name, desc.default_value(), Source::Default)
        }
        Some(value) => Prop::new(desc.name, value, Source::Local),
        None => Prop::new(desc.name, desc.default_value(), Source::Default),
    }
}

fn feature_props(pool: &Spa) -> Vec<Prop> {
    let features = pool.features();
    let is_shown =
        |feature: &&Feature| feature.is_in_2_3() || features.count(feature.guid).is_some();
    let mut props: Vec<Prop> = FEATURES
        .iter()
        .filter(is_shown)
        .map(|feature| {
            let word = match features.count(feature.guid) {
                None => "disabled",
                Some(0) => "enabled",
                Some(_) => "active",
            };
            let name = format!("feature@{}", feature.name);
            Prop::new(name, PropValue::Text(word.to_owned()), Source::Local)
        })
        .collect();
    for (guid, count) in features.counts() {
        if phys::feature::by_guid(&guid).is_none() {
            let word = if count == 0 { "inactive" } else { "readonly" };
            let name = format!("unsupported@{guid}");
            props.push(Prop::new(
                name,
                PropValue::Text(word.to_owned()),
                Source::Local,
            ));
        }
    }
    props
}

fn user_props(pool: &Spa) -> Vec<Prop> {
    let names = pool.props().names().into_iter();
    names
        .filter(|name| admin::prop::is_user_property(name))
        .filter_map(|name| match pool.props().get(&name) {
            Some(text @ PropValue::Text(_)) => Some(Prop::new(name, text, Source::Local)),
            _ => None,
        })
        .collect()
}
