//! Opens the pool to look at, and shows its configuration and uberblock.

use phys::feature;
use service::{Access, OpenPool, Pools, Session};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Context, Error, Result};
use geom::disk::OpenMode;
use geom::{Namespace, Provider};
use nvpair::NvList;
use phys::UberblockPhys;
use phys::pool_names::ZPOOL_CHECKPOINT;
use spa::{CacheFile, Spa};
use vdev::import::{FoundPool, discover};
use zerocopy::FromBytes;

use super::FAILED;
use super::request::Request;
use super::targets::{Target, words};
use super::text::{self, Printer};
use crate::session::session;
use crate::world::current;

/// `ZPOOL_NEVER_REWIND`
const NEVER_REWIND: u32 = 2;
/// `ZPOOL_DO_REWIND`
const DO_REWIND: u32 = 8;
/// `ZPOOL_EXTREME_REWIND`
const EXTREME_REWIND: u32 = 16;
/// The keys of a label's config that an import is given, in this order.
const IMPORT_KEYS: [&str; 8] = [
    "vdev_children",
    "version",
    "pool_guid",
    "name",
    "comment",
    "state",
    "hostid",
    "hostname",
];

/// An open pool, and the pools that it may be one of.
pub(super) struct Pool {
    source: Source,
    pools: Pools,
}

enum Source {
    Imported(Box<OpenPool>),
    Found(Box<Spa>),
}

impl std::ops::Deref for Pool {
    type Target = Spa;
    fn deref(&self) -> &Spa {
        match &self.source {
            Source::Imported(pool) => pool,
            Source::Found(spa) => spa,
        }
    }
}

impl Pool {
    /// Verifies every copy of every block.
    pub(super) fn verify(&self, options: check::Options) -> Result<check::Report> {
        self.pools.verify(self, options)
    }
}

/// Opens the pool of a target, read-only.
pub(super) fn open(request: &Request, out: &mut Printer, target: &Target) -> Result<Pool> {
    let session = session(Access::Read, "");
    let source = open_source(request, out, target, &session)?;
    let pools = session.pools().clone();
    Ok(Pool { source, pools })
}

fn open_source(
    request: &Request,
    out: &mut Printer,
    target: &Target,
    session: &Session,
) -> Result<Source> {
    let (name, pools) = (&*target.pool, session.pools());
    let missing = || {
        let text = format!("can't open '{}': No such file or directory", target.text);
        Error::not_found(text)
    };
    let within = || format!("can't open '{}'", target.text);
    if request.has('e') {
        let found = find(request, name)?.ok_or_else(missing)?;
        if request.level('C') > 1 && !request.has('j') {
            let config = import_config(request, &found);
            write!(out, "\nConfiguration for import:\n{}", config.dump(8))?;
        }
        let spa = pools.inspect_found(found, request.max_txg);
        return Ok(Source::Found(Box::new(spa.within(within)?)));
    }
    if request.value('U').is_some() || request.max_txg.is_some() {
        let config = cachefile(request).find(name)?.ok_or_else(missing)?;
        let spa = pools.inspect(name, &config, request.max_txg);
        return Ok(Source::Found(Box::new(spa.within(within)?)));
    }
    if !pools.is_imported(name)? {
        return Err(missing());
    }
    let pool = session.open(name, Access::Read)?;
    Ok(Source::Imported(Box::new(pool)))
}

fn cachefile(request: &Request) -> CacheFile {
    match request.value('U') {
        Some(path) => CacheFile::new(path),
        None => session(Access::Read, "").pools().cachefile().clone(),
    }
}

/// The config that an import would be given: that of the labels, and how far it may rewind.
#[doc(alias = "zpool_find_config")]
fn import_config(request: &Request, found: &FoundPool) -> NvList {
    let mut config = NvList::new();
    for key in IMPORT_KEYS {
        if let Some(value) = found.config.get(key) {
            config.add(key, value.clone());
        }
    }
    let mut tree = found
        .config
        .get_list("vdev_tree")
        .cloned()
        .unwrap_or_default();
    put_paths_last(&mut tree);
    config.add("vdev_tree", tree);
    let rewind = match (request.has('X'), request.has('F')) {
        (true, _) => DO_REWIND | EXTREME_REWIND,
        (false, true) => DO_REWIND,
        (false, false) => NEVER_REWIND,
    };
    let mut policy = NvList::new();
    policy.add(
        "load-request-txg",
        request.max_txg.map_or(u64::MAX, |t| t.0),
    );
    policy.add("load-rewind-policy", rewind);
    config.add("load-policy", policy);
    config
}

/// The paths are those where the devices were found; OpenZFS adds these last.
#[doc(alias = "fix_paths")]
fn put_paths_last(vdev: &mut NvList) {
    if let Some(path) = vdev.get("path").cloned() {
        vdev.remove("path");
        vdev.add("path", path);
    }
    for child in vdev.get_lists_mut("children").into_iter().flatten() {
        put_paths_last(child);
    }
}

/// The devices to look at for `-e`.
fn candidates(request: &Request) -> Result<Vec<String>> {
    let world = current()?;
    if world.is_machine() {
        return world.names();
    }
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut layers: Vec<String> = Vec::new();
    for place in request.values('p') {
        if !Path::new(place).exists() && world.open(place, OpenMode::Inspect).is_ok() {
            layers.push(world.canonical(place));
            continue;
        }
        let place = std::path::absolute(place).unwrap_or_else(|_| PathBuf::from(place));
        if !place.is_dir() {
            paths.push(place);
            continue;
        }
        let within = |e: std::io::Error| Error::from(e).within(place.display());
        let entries = std::fs::read_dir(&place).map_err(within)?;
        paths.extend(entries.flatten().map(|entry| entry.path()));
    }
    if request.value('p').is_none() {
        paths.push(PathBuf::from("/dev"));
    }
    paths.sort();
    let is_device = |path: &&PathBuf| {
        let metadata = std::fs::metadata(path);
        metadata.is_ok_and(|m| {
            m.is_file() && m.len() >= phys::label::SPA_MINDEVSIZE
                || std::os::unix::fs::FileTypeExt::is_block_device(&m.file_type())
        })
    };
    let names = paths.iter().filter(is_device);
    let names = names.map(|path| path.display().to_string()).chain(layers);
    Ok(names.collect())
}

fn find(request: &Request, name: &str) -> Result<Option<FoundPool>> {
    let world = current()?;
    let open_one = |name: &String| Namespace::open(&*world, name, OpenMode::ReadOnly).ok();
    let names = candidates(request)?;
    let providers: Vec<Arc<dyn Provider>> = names.iter().filter_map(open_one).collect();
    let guid = name.parse::<u64>().ok();
    let is_it = |pool: &FoundPool| pool.name == name || Some(pool.guid.0) == guid;
    Ok(discover(&providers).pools.into_iter().find(is_it))
}

/// `zdb -u`.
pub(super) fn uberblock(request: &Request, out: &mut Printer, pool: &Pool) -> Result<()> {
    let uberblock = pool.uberblock();
    if request.has('j') {
        writeln!(out, "{}", text::uberblock_json(&uberblock))?;
        return Ok(());
    }
    let text = text::uberblock(&uberblock, request.level('u'));
    writeln!(out, "\nUberblock:\n{text}")?;
    Ok(())
}

/// `zdb -C POOL`: the configuration in the pool, and the one in the cachefile.
pub(super) fn configs(request: &Request, out: &mut Printer, pool: &Pool) -> Result<()> {
    let config = pool.config();
    if request.has('j') {
        writeln!(out, "{}", config.to_json())?;
        return Ok(());
    }
    if request.level('C') > 1 && !request.has('e') {
        let cached = cachefile(request).find(&pool.name())?;
        let cached = cached.unwrap_or_else(|| config.clone());
        write!(out, "\nCached configuration:\n{}", cached.dump(8))?;
    }
    write!(out, "\nMOS Configuration:\n{}", config.dump(8))?;
    Ok(())
}

/// The uberblock that a checkpoint keeps.
#[doc(alias = "verify_checkpoint")]
pub(super) fn checkpoint(out: &mut Printer, pool: &Pool) -> Result<()> {
    if pool
        .parts()
        .features()
        .count(feature::ZPOOL_CHECKPOINT)
        .unwrap_or(0)
        == 0
    {
        return Ok(());
    }
    let words = zap::lookup::<u64>(pool.parts().mos(), zap::directory::OBJECT, ZPOOL_CHECKPOINT)?;
    let Some(words) = words else {
        writeln!(out, "\nPartially discarded checkpoint state found:")?;
        return Ok(());
    };
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let (uberblock, _) = UberblockPhys::read_from_prefix(&bytes)
        .map_err(|_| Error::corrupt("the checkpoint's uberblock is cut off"))?;
    let text = text::uberblock(&uberblock, 0);
    writeln!(out, "\nCheckpointed uberblock found:\n{text}")?;
    eprintln!("zdb: what the checkpoint keeps is not compared with the space maps");
    Ok(())
}

/// `zdb -C`: everything in the cachefile.
#[doc(alias = "dump_cachefile")]
pub(super) fn cachefile_config(request: &Request, out: &mut Printer) -> Result<u8> {
    let cache = cachefile(request);
    if let Err(error) = std::fs::metadata(cache.path()) {
        let path = cache.path().display();
        let reason = words(&Error::from(error));
        writeln!(out, "cannot open '{path}': {reason}")?;
        return Ok(FAILED);
    }
    let pools = cache.pools()?;
    if request.has('j') {
        let all = pools
            .iter()
            .map(|(name, config)| (name.clone(), config.to_json()));
        let all: serde_json::Map<_, _> = all.collect();
        writeln!(out, "{}", serde_json::Value::Object(all))?;
        return Ok(0);
    }
    // Decoded anew, to keep the order of the file.
    let bytes = std::fs::read(cache.path()).map_err(Error::from)?;
    write!(out, "{}", nvpair::decode(&bytes)?.dump(0))?;
    Ok(0)
}
