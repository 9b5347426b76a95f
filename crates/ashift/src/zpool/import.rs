//! `zpool import`: lists importable pools, and imports them.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_import`, `do_import`), lib/libzutil/zutil_import.c.

use std::sync::Arc;

use admin::getopt::Parsed;
use admin::name::check_pool_name;
use admin::pool::{ImportCandidate, VdevStatus, import_listing};
use admin::prop::{PoolContext, TableKind, parse_pool_assignment, split_assignment};
use base::Txg;
use geom::disk::OpenMode;
use geom::{Namespace, Provider};
use machine::World;
use nvpair::NvList;
use service::{Attempt, Facts, Import, PoolChange, Reason, Rewind, Session};
use spa::{CacheFile, device_paths};
use vdev::PoolState;
use vdev::import::FoundPool;

use super::props::pool_change;
use super::{Fail, Outcome, refuse_options, rewind};
use crate::caller::{Stream, caller};
use crate::keys;
use crate::mounting::{self, How};
use crate::search::{self, plain};

/// The parsed options.
struct Request {
    wants_destroyed: bool,
    /// `-N`: nothing of it is mounted.
    stays_unmounted: bool,
    /// `-l`: the keys of what is encrypted are loaded.
    loads_keys: bool,
    import: Import,
    /// `-o` with options of mounts.
    how: How,
}

/// `zpool import`.
pub(super) fn run(session: &Session, args: &Parsed) -> Outcome {
    if args.value('c').is_some() && args.value('d').is_some() {
        return Err(Fail::Usage("-c is incompatible with -d".into()));
    }
    if args.value('c').is_some() && args.has('s') {
        return Err(Fail::Usage("-c is incompatible with -s".into()));
    }
    if args.has('l') && args.has('N') {
        return Err(Fail::Usage("-l is incompatible with -N".into()));
    }
    if args.has('l') && !args.has('a') && args.operands.is_empty() {
        let text = "-l is only meaningful during an import";
        return Err(Fail::Usage(text.into()));
    }
    if (args.has('n') || args.has('X')) && !args.has('F') {
        let text = "-n or -X only meaningful with -F";
        return Err(Fail::Usage(text.into()));
    }
    refuse_options(args, "import", "CEV")?;
    if args.has('a') && !args.operands.is_empty() || args.operands.len() > 2 {
        return Err(Fail::Usage("too many arguments".into()));
    }
    let Some(request) = read_request(args)? else {
        return Ok(());
    };
    let world = session.pools().world();
    let places: Vec<&str> = args.values('d').collect();
    let cached = args.value('c').map(read_cachefile).transpose()?;
    let providers = match &cached {
        Some(configs) => at_cached_paths(world, configs),
        None => search::devices(world, &places)?,
    };
    let mut pools = session
        .pools()
        .importable(&providers, request.wants_destroyed)?;
    if let Some(configs) = &cached {
        let is_cached = |pool: &FoundPool| {
            let mut guids = configs.iter().map(|config| config.get_u64("pool_guid"));
            guids.any(|guid| guid == Some(pool.guid.0))
        };
        pools.retain(is_cached);
    }
    if pools.is_empty() && args.operands.is_empty() && !args.has('j') {
        eprintln!("no pools available to import");
        if args.value('d').is_none() && caller().is_terminal(Stream::Err) {
            eprintln!("(pools on image files are found with 'zpool import -d FOLDER')");
        }
        return Ok(());
    }
    if args.has('a') {
        return import_all(session, pools, &request);
    }
    match args.operands.split_first() {
        None if args.has('j') => list_json(session, &pools),
        None => list(session, &pools),
        Some((wanted, rest)) => import_one(session, pools, wanted, rest.first(), &request),
    }
}

/// Parses the options; `None` where OpenZFS does nothing because a property does not exist.
fn read_request(args: &Parsed) -> Result<Option<Request>, Fail> {
    let mut import = Import {
        is_forced: args.has('f'),
        gives_up_logs: args.has('m'),
        rewinds: args.has_long("rewind-to-checkpoint"),
        is_name_temporary: args.has('t'),
        rewind: args.has('F').then(|| Rewind {
            is_extreme: args.has('X'),
            is_dry_run: args.has('n'),
        }),
        facts: Facts {
            altroot: args.value('R').map(str::to_owned),
            ..Facts::default()
        },
        ..Import::default()
    };
    let what = args.operands.first();
    let what = what.map_or_else(
        || "cannot import pools".to_owned(),
        |pool| format!("cannot import pool '{pool}'"),
    );
    if let Some(root) = args.value('R').filter(|root| !root.starts_with('/')) {
        return Err(Fail::Failed(format!("{what}: bad alternate root '{root}'")));
    }
    if let Some(text) = args.value('T') {
        let txg = text.parse().ok().filter(|txg| *txg > 0);
        let txg = txg.ok_or_else(|| Fail::Usage("invalid txg value".to_owned()))?;
        import.max_txg = Some(Txg(txg));
    }
    // A temporary name is in no file that outlives it.
    let mut cachefile = args.has('t').then(|| "none".to_owned());
    let mut how = How::default();
    for text in args.values('o') {
        let Some((name, value)) = split_assignment(text) else {
            // Of several mount options the last ones count.
            how = How::default();
            how.take(text);
            continue;
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
            ("readonly", value) => import.facts.readonly = value.as_number() == Some(1),
            ("altroot", value) => import.facts.altroot = value.as_text().map(str::to_owned),
            (_, value) => match pool_change((name, value), &what)? {
                PoolChange::Cachefile(path) => cachefile = Some(path),
                change => import.changes.push(change),
            },
        }
    }
    let altroot = import.facts.altroot.as_deref();
    import.facts.cachefile = Facts::cachefile_of(cachefile.as_deref(), altroot);
    if import.facts.readonly {
        import.facts.max_txg = import.max_txg.map(|txg| txg.0);
    }
    Ok(Some(Request {
        wants_destroyed: args.has('D'),
        stays_unmounted: args.has('N'),
        loads_keys: args.has('l'),
        import,
        how,
    }))
}

/// The configs of the pools in a cachefile.
#[doc(alias = "zpool_find_import_cached")]
fn read_cachefile(path: &str) -> Result<Vec<NvList>, Fail> {
    if let Err(error) = std::fs::File::open(path) {
        let text = format!("failed to open cache file: {}", plain(&error));
        return Err(Fail::Failed(text));
    }
    let pools = CacheFile::new(path).pools();
    let pools = pools.map_err(|_| "invalid or corrupt cache file contents to import".to_owned())?;
    Ok(pools.into_iter().map(|(_, config)| config).collect())
}

/// The devices that are where these configs say.
fn at_cached_paths(world: &World, configs: &[NvList]) -> Vec<Arc<dyn Provider>> {
    let trees = configs
        .iter()
        .filter_map(|config| config.get_list("vdev_tree"));
    let paths = trees.flat_map(device_paths);
    let open_one = |path: String| Namespace::open(world, &path, OpenMode::Inspect).ok();
    paths.filter_map(open_one).collect()
}

fn list(session: &Session, pools: &[FoundPool]) -> Outcome {
    for (i, found) in pools.iter().enumerate() {
        if i > 0 {
            println!();
        }
        let status = session.pools().status_of_found(found)?;
        let candidate = ImportCandidate {
            status: &status,
            comment: found.config.get_str("comment"),
            is_destroyed: found.state == PoolState::Destroyed,
            is_exported: found.state == PoolState::Exported,
        };
        print!("{}", import_listing(&candidate, super::list::name_style()));
    }
    Ok(())
}

fn list_json(session: &Session, pools: &[FoundPool]) -> Outcome {
    let mut all = serde_json::Map::new();
    for found in pools {
        let status = session.pools().status_of_found(found)?;
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
    Ok(())
}

fn import_all(session: &Session, pools: Vec<FoundPool>, request: &Request) -> Outcome {
    let mut code = 0;
    for found in pools {
        let name = found.name.clone();
        if check_name_is_free(session, &name, Some(&found)).is_err() {
            eprintln!("cannot import '{name}': pool already exists");
            code = 1;
            continue;
        }
        match import(session, found, &name, request) {
            Err(Fail::Failed(text)) => {
                eprintln!("{text}");
                code = 1;
            }
            Err(Fail::Said(said)) => code = said,
            _ => {}
        }
    }
    Fail::exit(code)
}

fn import_one(
    session: &Session,
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
        return Err(Fail::Failed(format!(
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
    check_name_is_free(session, &name, found.as_ref())?;
    let Some(found) = found else {
        return Err(Fail::Failed(format!(
            "cannot import '{wanted}': no such pool available"
        )));
    };
    import(session, found, &name, request)?;
    Ok(())
}

/// Refuses the name of an imported pool, unless it is this very pool at a new place.
fn check_name_is_free(
    session: &Session,
    name: &str,
    found: Option<&FoundPool>,
) -> Result<(), Fail> {
    if session
        .pools()
        .is_name_free(name, found.map(|pool| pool.guid))?
    {
        return Ok(());
    }
    let reason = Reason::NameTaken;
    Err(service::Failure {
        attempt: Attempt::Import,
        pool: name.to_owned(),
        reason,
    }
    .into())
}

fn import(session: &Session, found: FoundPool, name: &str, request: &Request) -> Result<(), Fail> {
    check_pool_name(name, name != found.name)
        .map_err(|e| format!("cannot import '{name}': {e}"))?;
    let is_dry_run = request
        .import
        .rewind
        .is_some_and(|rewind| rewind.is_dry_run);
    match session.import(found, name, &request.import) {
        Ok(None) => enter(session, name, request),
        Ok(Some(rewound)) => {
            print!("{}", rewind::exclaim(name, is_dry_run, &rewound));
            match is_dry_run {
                true => Fail::exit(1),
                false => enter(session, name, request),
            }
        }
        // A dry run says what success would be like, or nothing.
        Err(failure) if is_dry_run && matches!(failure.reason, Reason::Error(_)) => Fail::exit(1),
        Err(failure) => {
            match &failure.reason {
                Reason::LogsMissing(logs) => {
                    println!(
                        "The devices below are missing or corrupted, use '-m' to import the pool anyway:"
                    );
                    logs.iter().for_each(|log| print_missing(log, 4, " [log]"));
                    println!();
                }
                Reason::Damaged { recovery, .. } => {
                    print!("\t{}", rewind::explain("import", name, recovery.as_ref()));
                }
                _ => {}
            }
            Err(failure.into())
        }
    }
}

/// Loads the keys of a pool that was imported, and mounts what is mounted along with it. If that fails, the pool is
/// imported nevertheless; only keys that are not loaded are a failure.
fn enter(session: &Session, pool: &str, request: &Request) -> Outcome {
    let has_keys = !request.loads_keys || keys::load_all(session, pool)?;
    if !request.stays_unmounted && session.pools().can_mount() {
        let open = session.open_as_imported(pool)?;
        if !mounting::mount_pool(&open, &request.how)? {
            eprintln!("Import was successful, but unable to mount some datasets");
        }
    }
    Fail::exit(u8::from(!has_keys))
}

#[doc(alias = "print_vdev_tree")]
fn print_missing(vdev: &VdevStatus, indent: usize, suffix: &str) {
    let name = vdev.name(super::list::name_style());
    println!("\t{:indent$}{name}{suffix}", "");
    for child in &vdev.children {
        print_missing(child, indent + 2, "");
    }
}
