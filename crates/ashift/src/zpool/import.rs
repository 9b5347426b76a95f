//! `zpool import`: lists importable pools, and imports them.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_import`, `do_import`), lib/libzutil/zutil_import.c.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use admin::getopt::Parsed;
use admin::name::check_pool_name;
use admin::number::date_time;
use admin::pool::{ImportCandidate, import_listing};
use admin::prop::{PoolContext, TableKind, parse_pool_assignment, split_assignment};
use base::Txg;
use geom::disk::OpenMode;
use geom::{Namespace, Provider};
use machine::{Holder, World};
use nvpair::NvList;
use spa::{ImportOptions, Spa, activity_check_ns, device_paths, try_import};
use vdev::import::{FoundPool, discover};
use vdev::{PoolState, VdevState};

use super::gather::status_of_found;
use super::{Failure, Outcome, command_line, refuse_options, zone};
use crate::host::{Access, Facts, Host};
use crate::machine::current;
use crate::say::waiting;

/// Nanoseconds per second.
const NS_PER_SEC: u64 = 1_000_000_000;

/// The parsed options.
struct Request {
    is_forced: bool,
    wants_destroyed: bool,
    max_txg: Option<Txg>,
    facts: Facts,
    props: Vec<(String, phys::PropValue)>,
    comment: Option<String>,
}

/// `zpool import`.
pub(super) fn run(args: &Parsed) -> Outcome {
    if args.value('c').is_some() && args.value('d').is_some() {
        return Err(Failure::Usage("-c is incompatible with -d".into()));
    }
    if (args.has('n') || args.has('X')) && !args.has('F') {
        let text = "-n or -X only meaningful with -F";
        return Err(Failure::Usage(text.into()));
    }
    refuse_options(args, "import", "cClmEFXVnt")?;
    if args.has_long("rewind-to-checkpoint") {
        let text = "'zpool import --rewind-to-checkpoint' is not supported yet";
        return Err(Failure::Text(text.into()));
    }
    if args.has('a') && !args.operands.is_empty() || args.operands.len() > 2 {
        return Err(Failure::Usage("too many arguments".into()));
    }
    let Some(request) = read_request(args)? else {
        return Ok(0);
    };
    let host = Host::here();
    let providers = candidates(args)?;
    let pools = find_pools(&host, &providers, request.wants_destroyed)?;
    if pools.is_empty() && args.operands.is_empty() && !args.has('j') {
        eprintln!("no pools available to import");
        if args.value('d').is_none() && std::io::stderr().is_terminal() {
            eprintln!("(pools on image files are found with 'zpool import -d FOLDER')");
        }
        return Ok(0);
    }
    if args.has('a') {
        return import_all(&host, pools, &request);
    }
    match args.operands.split_first() {
        None if args.has('j') => list_json(&host, &pools),
        None => list(&host, &pools),
        Some((wanted, rest)) => import_one(&host, pools, wanted, rest.first(), &request),
    }
}

/// Parses the options; `None` where OpenZFS does nothing because a property does not exist.
fn read_request(args: &Parsed) -> Result<Option<Request>, Failure> {
    let mut request = Request {
        is_forced: args.has('f'),
        wants_destroyed: args.has('D'),
        max_txg: None,
        facts: Facts {
            altroot: args.value('R').map(str::to_owned),
            ..Facts::default()
        },
        props: Vec::new(),
        comment: None,
    };
    let what = args.operands.first();
    let what = what.map_or_else(
        || "cannot import pools".to_owned(),
        |pool| format!("cannot import pool '{pool}'"),
    );
    if let Some(root) = args.value('R').filter(|root| !root.starts_with('/')) {
        return Err(Failure::Text(format!(
            "{what}: bad alternate root '{root}'"
        )));
    }
    if let Some(text) = args.value('T') {
        let txg = text.parse().ok().filter(|txg| *txg > 0);
        let txg = txg.ok_or_else(|| Failure::Usage("invalid txg value".to_owned()))?;
        request.max_txg = Some(Txg(txg));
        request.facts.max_txg = Some(txg);
    }
    for text in args.values('o') {
        let Some((name, value)) = split_assignment(text) else {
            return Err(Failure::Text(format!(
                "'{text}': mount options are not supported yet"
            )));
        };
        let tables = [TableKind::Pool, TableKind::Vdev];
        let is_known = tables.iter().any(|table| table.lookup(name).is_some());
        if !is_known && !name.starts_with("feature@") {
            eprintln!("property '{name}' is not a valid pool or vdev property");
            return Ok(None);
        }
        let context = PoolContext {
            is_new: false,
            is_import: true,
        };
        let (name, value) =
            parse_pool_assignment(name, value, &context).map_err(|e| format!("{what}: {e}"))?;
        match (name.as_str(), value) {
            ("readonly", value) => request.facts.readonly = value.as_number() == Some(1),
            ("altroot", value) => request.facts.altroot = value.as_text().map(str::to_owned),
            ("comment", value) => request.comment = value.as_text().map(str::to_owned),
            ("cachefile", _) => {}
            (_, value) if value.as_text().is_some() || !name.starts_with("feature@") => {
                request.props.push((name, value));
            }
            _ => {
                return Err(Failure::Text(format!(
                    "property '{name}' cannot be set at import"
                )));
            }
        }
    }
    if request.max_txg.is_some() && !request.facts.readonly {
        let text = "'zpool import -T' needs '-o readonly=on': going back for good is not \
                    supported yet";
        return Err(Failure::Text(text.into()));
    }
    Ok(Some(request))
}

/// The devices to look at.
fn candidates(args: &Parsed) -> Result<Vec<Arc<dyn Provider>>, Failure> {
    let world = current()?;
    if world.is_machine() {
        return candidates_in_machine(args, &world);
    }
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut layers: Vec<String> = Vec::new();
    for place in args.values('d') {
        let path = std::path::absolute(place).unwrap_or_else(|_| PathBuf::from(place));
        let failed = |e: std::io::Error| format!("cannot resolve path '{place}': {}", plain(&e));
        let metadata = match std::fs::metadata(&path) {
            Err(_) if world.open(place, OpenMode::Inspect).is_ok() => {
                layers.push(world.canonical(place));
                continue;
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            other => other.map_err(failed)?,
        };
        if !metadata.is_dir() {
            paths.push(path);
            continue;
        }
        let entries = std::fs::read_dir(&path).map_err(failed)?;
        paths.extend(entries.flatten().map(|entry| entry.path()));
        let here = |name: &String| Path::new(name).parent() == Some(&*path);
        layers.extend(world.layers().into_iter().map(|l| l.name).filter(here));
    }
    if args.value('d').is_none() {
        paths = block_devices();
    }
    paths.sort();
    paths.dedup();
    let is_candidate = |path: &&PathBuf| {
        std::fs::metadata(path).is_ok_and(|m| {
            let is_block = std::os::unix::fs::FileTypeExt::is_block_device(&m.file_type());
            is_block || m.is_file() && m.len() >= phys::label::SPA_MINDEVSIZE
        })
    };
    let names = paths.iter().filter(is_candidate);
    let names = names.map(|path| path.display().to_string()).chain(layers);
    let open_one = |name: String| Namespace::open(&*world, &name, OpenMode::Inspect).ok();
    Ok(names.filter_map(open_one).collect())
}

/// The providers of a machine; `-d` names one, or a folder below its `/dev`.
fn candidates_in_machine(args: &Parsed, world: &World) -> Result<Vec<Arc<dyn Provider>>, Failure> {
    let mut names = world.names()?;
    let places: Vec<&str> = args.values('d').collect();
    if !places.is_empty() {
        let is_below = |name: &str, place: &str| {
            let folder = place.trim_end_matches('/');
            let is_in = name
                .strip_prefix(folder)
                .is_some_and(|r| r.starts_with('/'));
            is_in || world.canonical(name) == world.canonical(place)
        };
        names.retain(|name| places.iter().any(|place| is_below(name, place)));
    }
    let open_one = |name: &String| Namespace::open(world, name, OpenMode::Inspect).ok();
    Ok(names.iter().filter_map(open_one).collect())
}

fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or("").to_owned()
}

fn block_devices() -> Vec<PathBuf> {
    let Ok(text) = std::fs::read_to_string("/proc/partitions") else {
        return Vec::new();
    };
    let names = text
        .lines()
        .skip(2)
        .filter_map(|line| line.split_whitespace().nth(3));
    names.map(|name| Path::new("/dev").join(name)).collect()
}

/// Pools on the devices that are not imported, or are imported but no longer at their remembered paths. As
/// when the kernel opens devices, those that were not given are looked for at the paths in the labels and
/// in the MOS config.
fn find_pools(
    host: &Host,
    providers: &[Arc<dyn Provider>],
    destroyed: bool,
) -> Result<Vec<FoundPool>, Failure> {
    let world = current()?;
    let imported: Vec<u64> = host
        .pools()?
        .iter()
        .filter(|(_, config)| is_where_it_was(&world, config))
        .filter_map(|(_, config)| config.get_u64("pool_guid"))
        .collect();
    let mut pools = discover(providers).pools;
    pools.retain(|pool| {
        !imported.contains(&pool.guid.0) && (pool.state == PoolState::Destroyed) == destroyed
    });
    let open = |path: &str| Namespace::open(&*world, path, OpenMode::Inspect).ok();
    let follow = |pool: FoundPool| {
        let labels = pool.config.clone();
        let pool = pool.follow_paths(&labels, &open);
        match try_import(&pool) {
            Ok(config) => pool.follow_paths(&config, &open),
            Err(_) => pool,
        }
    };
    let mut pools: Vec<FoundPool> = pools.into_iter().map(follow).collect();
    pools.sort_by_cached_key(first_device);
    Ok(pools)
}

/// The least of the names of a pool's devices; pools are listed in the order of these.
fn first_device(pool: &FoundPool) -> Option<String> {
    let names = pool.devices.iter().map(|d| d.provider.name().to_owned());
    names.min()
}

/// Whether any device of an imported pool is at its remembered path.
fn is_where_it_was(world: &World, config: &NvList) -> bool {
    let guid = config.get_u64("pool_guid");
    let paths = config.get_list("vdev_tree").map(device_paths);
    let is_there = |path: &String| {
        let provider = Namespace::open(world, path, OpenMode::Inspect).ok();
        let owner = provider.and_then(|provider| vdev::label::owner(&*provider));
        owner.is_some_and(|owner| Some(owner.pool_guid.0) == guid)
    };
    paths.unwrap_or_default().iter().any(is_there)
}

fn list(host: &Host, pools: &[FoundPool]) -> Outcome {
    let id = host.id()?.id;
    for (i, found) in pools.iter().enumerate() {
        if i > 0 {
            println!();
        }
        let status = status_of_found(found, &try_import(found), id);
        let candidate = ImportCandidate {
            status: &status,
            comment: found.config.get_str("comment"),
            is_destroyed: found.state == PoolState::Destroyed,
            is_exported: found.state == PoolState::Exported,
        };
        print!("{}", import_listing(&candidate, super::list::name_style()));
    }
    Ok(0)
}

fn list_json(host: &Host, pools: &[FoundPool]) -> Outcome {
    let id = host.id()?.id;
    let mut all = serde_json::Map::new();
    for found in pools {
        let status = status_of_found(found, &try_import(found), id);
        let devices = found.devices.iter().map(|d| d.provider.name());
        let entry = serde_json::json!({
            "name": found.name,
            "pool_guid": found.guid.0.to_string(),
            "state": status.state_name(),
            "is_destroyed": found.state == PoolState::Destroyed,
            "is_foreign": status.is_foreign,
            "hostname": found.hostname,
            "txg": found.uberblock.map_or(0, |ub| ub.txg().0).to_string(),
            "devices": devices.collect::<Vec<_>>(),
            "config": found.config.to_json(),
        });
        all.insert(found.guid.0.to_string(), entry);
    }
    let mut body = serde_json::Map::new();
    body.insert("pools".to_owned(), serde_json::Value::Object(all));
    print!("{}", admin::listing::json_document("zpool import", body));
    Ok(0)
}

fn import_all(host: &Host, pools: Vec<FoundPool>, request: &Request) -> Outcome {
    let mut code = 0;
    for found in pools {
        let name = found.name.clone();
        if check_name_is_free(host, &name, Some(&found)).is_err() {
            eprintln!("cannot import '{name}': pool already exists");
            code = 1;
            continue;
        }
        if let Err(Failure::Text(text)) = import(host, found, &name, request) {
            eprintln!("{text}");
            code = 1;
        }
    }
    Ok(code)
}

fn import_one(
    host: &Host,
    pools: Vec<FoundPool>,
    wanted: &str,
    new_name: Option<&String>,
    request: &Request,
) -> Outcome {
    let guid = wanted.parse::<u64>().ok().filter(|guid| *guid != 0);
    let mut fitting: Vec<FoundPool> = pools
        .into_iter()
        .filter(|pool| Some(pool.guid.0) == guid || guid.is_none() && pool.name == wanted)
        .collect();
    if fitting.len() > 1 {
        return Err(Failure::Text(format!(
            "cannot import '{wanted}': more than one matching pool\nimport by numeric ID instead"
        )));
    }
    let name = new_name.map_or_else(
        || {
            fitting
                .first()
                .map_or_else(|| wanted.to_owned(), |pool| pool.name.clone())
        },
        String::clone,
    );
    let found = fitting.pop();
    check_name_is_free(host, &name, found.as_ref())?;
    let Some(found) = found else {
        return Err(Failure::Text(format!(
            "cannot import '{wanted}': no such pool available"
        )));
    };
    import(host, found, &name, request)?;
    Ok(0)
}

/// Refuses the name of an imported pool, unless it is this very pool at a new place.
fn check_name_is_free(host: &Host, name: &str, found: Option<&FoundPool>) -> Result<(), Failure> {
    let taken = host.cache().find(name)?;
    let taken_by = taken.and_then(|config| config.get_u64("pool_guid"));
    if taken_by.is_none() || taken_by == found.map(|pool| pool.guid.0) {
        return Ok(());
    }
    Err(Failure::Text(format!(
        "cannot import '{name}': a pool with that name already exists\nuse the form 'zpool \
         import <pool | id> <newpool>' to give it a new name"
    )))
}

fn import(host: &Host, found: FoundPool, name: &str, request: &Request) -> Result<(), Failure> {
    let failed =
        |text: &dyn std::fmt::Display| Failure::Text(format!("cannot import '{name}': {text}"));
    check_pool_name(name, name != found.name).map_err(|e| failed(&e))?;
    let id = host.id()?;
    let is_foreign = found.hostid != 0 && found.hostid != id.id;
    if found.state != PoolState::Exported && is_foreign && !request.is_forced {
        return Err(foreign(&found));
    }
    let (state, _) = found.health();
    if state < VdevState::Degraded {
        let text = if found.open(&found.config, false).is_err() {
            "invalid vdev configuration"
        } else {
            "one or more devices is currently unavailable"
        };
        return Err(failed(&text));
    }
    let _lock = host.lock(name, Access::Write).map_err(|e| failed(&e))?;
    // Meanwhile another command may have imported this pool, or another one with its name.
    check_name_is_free(host, name, Some(&found))?;
    let readonly = request.facts.readonly;
    let mode = if readonly {
        OpenMode::ReadOnly
    } else {
        OpenMode::ReadWrite
    };
    let world = current()?;
    let names = world.names_for(Holder::Pool(name.to_owned()));
    // Labels may have changed since they were read: lock the devices and read them again.
    let mut providers = Vec::new();
    for device in &found.devices {
        let provider = names.open(device.provider.name(), mode);
        providers.push(provider.map_err(|e| failed(&e))?);
    }
    let guid = found.guid;
    drop(found);
    let again = discover(&providers)
        .pools
        .into_iter()
        .find(|pool| pool.guid == guid);
    let found = again.ok_or_else(|| failed(&"its labels changed meanwhile"))?;
    let new_name = (name != found.name).then(|| name.to_owned());
    let watched_ns = activity_check_ns(&found, id.id).filter(|_| !readonly);
    if let Some(ns) = watched_ns.filter(|_| !world.is_machine()) {
        let secs = ns.div_ceil(NS_PER_SEC);
        waiting(&format!(
            "{secs} seconds, in case another host has pool '{name}' open"
        ));
    }
    let spa = Spa::import(ImportOptions {
        found,
        new_name,
        readonly,
        max_txg: request.max_txg,
        force: true,
        host: id,
        settings: host.settings_of(name)?,
    })
    .map_err(|e| failed(&e))?;
    finish(host, &spa, request).map_err(|e| failed(&e))?;
    forget_moved(host, name, guid)?;
    Ok(())
}

/// Removes the cachefile entry that a moved pool has under its previous name.
fn forget_moved(host: &Host, name: &str, guid: base::Guid) -> base::Result<()> {
    for (other, config) in host.pools()? {
        if other != name && config.get_u64("pool_guid") == Some(guid.0) {
            host.cache().remove(&other)?;
        }
    }
    Ok(())
}

fn finish(host: &Host, spa: &Spa, request: &Request) -> base::Result<()> {
    crate::kept_errors::keep_met(host.state(), spa)?;
    let mut facts = request.facts.clone();
    if spa.is_readonly() {
        if !facts.readonly {
            let why: Vec<String> = spa.obstacles().iter().map(ToString::to_string).collect();
            let why = why.join("; ");
            eprintln!("pool '{}' is imported read-only: {why}", spa.name());
            facts.readonly = true;
            facts.readonly_reason = Some(why);
        }
        return host.remember(spa, &facts);
    }
    for (name, value) in &request.props {
        spa.set_prop(name, value.clone())?;
    }
    if let Some(comment) = &request.comment {
        spa.set_comment(Some(comment.clone()).filter(|c| !c.is_empty()))?;
    }
    super::catch_up(spa)?;
    if spa.autoexpand() {
        spa.expand(&|_| true)?;
    }
    spa.log_command(&command_line())?;
    spa.sync()?;
    host.remember(spa, &facts)?;
    spa.close()
}

fn foreign(found: &FoundPool) -> Failure {
    let when = found.uberblock.map_or(0, |ub| ub.timestamp.get());
    let host = if found.hostname.is_empty() {
        "<unknown>"
    } else {
        &found.hostname
    };
    Failure::Text(format!(
        "cannot import '{}': pool was previously in use from another system.\nLast accessed by \
         {host} (hostid={:x}) at {}\nThe pool can be imported, use 'zpool import -f' to import the \
         pool.",
        found.name,
        found.hostid,
        date_time(when, zone())
    ))
}
