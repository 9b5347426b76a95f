//! Which pool, and what it says of itself: configuration and uberblock.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Context, Error, Result};
use geom::disk::OpenMode;
use geom::{Namespace, Provider};
use spa::{CacheFile, ImportOptions, Spa};
use vdev::import::discover;

use super::Request;
use super::text::{self, Printer};
use crate::host::{Access, Host, OpenPool};
use crate::machine::current;

/// An open pool, from wherever it came.
pub(super) enum Pool {
    Imported(OpenPool),
    Found(Box<Spa>),
}

impl std::ops::Deref for Pool {
    type Target = Spa;
    fn deref(&self) -> &Spa {
        match self {
            Pool::Imported(pool) => pool,
            Pool::Found(spa) => spa,
        }
    }
}

/// The part of a target behind the pool's name.
pub(super) fn dataset_part(target: &str) -> Option<&str> {
    target.find(['/', '@']).map(|at| &target[at..])
}

fn pool_part(target: &str) -> &str {
    admin::name::pool_of(target)
}

/// Opens the pool of a target, read-only.
pub(super) fn open(request: &Request, target: &str) -> Result<Pool> {
    let host = Host::here();
    let name = pool_part(target);
    if request.has('e') {
        return find(request, &host, name);
    }
    if let Some(path) = request.args.value('U') {
        let config = CacheFile::new(path).find(name)?;
        let config = config.ok_or_else(|| {
            Error::not_found(format!("can't open '{name}': No such file or directory"))
        })?;
        let world = current()?;
        let (id, settings) = (host.id()?, host.settings()?);
        let options = ImportOptions::from_config_in(&*world, &config, true, id, settings)?;
        return Ok(Pool::Found(Box::new(Spa::open(options)?)));
    }
    let open = host.open(name, Access::Read);
    open.map(Pool::Imported).map_err(|error| {
        if error.kind() == base::ErrorKind::NotFound && error.to_string().contains("no such pool") {
            let text = format!("can't open '{name}': No such file or directory");
            return Error::not_found(text);
        }
        error
    })
}

/// The devices to look at for `-e`.
fn candidates(request: &Request) -> Result<Vec<String>> {
    let world = current()?;
    if world.is_machine() {
        return world.names();
    }
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut layers: Vec<String> = Vec::new();
    for place in request.args.values('p') {
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
    if request.args.value('p').is_none() {
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

fn find(request: &Request, host: &Host, name: &str) -> Result<Pool> {
    let world = current()?;
    let open_one = |name: &String| Namespace::open(&*world, name, OpenMode::ReadOnly).ok();
    let names = candidates(request)?;
    let providers: Vec<Arc<dyn Provider>> = names.iter().filter_map(open_one).collect();
    let guid = name.parse::<u64>().ok();
    let pools = discover(&providers).pools;
    let found = pools
        .into_iter()
        .find(|pool| pool.name == name || Some(pool.guid.0) == guid);
    let found = found.ok_or_else(|| {
        Error::not_found(format!("can't open '{name}': No such file or directory"))
    })?;
    let spa = Spa::import(ImportOptions {
        found,
        new_name: None,
        readonly: true,
        max_txg: None,
        force: true,
        host: host.id()?,
        settings: host.settings()?,
    });
    Ok(Pool::Found(Box::new(
        spa.within(|| format!("can't open '{name}'"))?,
    )))
}

/// `zdb -u`.
pub(super) fn uberblock(request: &Request, out: &mut Printer, pool: &Pool) -> Result<()> {
    if request.has('j') {
        writeln!(out, "{}", text::uberblock_json(&pool.uberblock()))?;
        return Ok(());
    }
    writeln!(out, "\nUberblock:\n{}", text::uberblock(&pool.uberblock()))?;
    Ok(())
}

/// `zdb -C POOL`.
pub(super) fn config(request: &Request, out: &mut Printer, pool: &Pool) -> Result<()> {
    let config = pool.config();
    if request.has('j') {
        writeln!(out, "{}", config.to_json())?;
        return Ok(());
    }
    writeln!(
        out,
        "\nMOS Configuration:\n{}",
        config.dump(8).trim_end_matches('\n')
    )?;
    Ok(())
}

/// `zdb -C`: everything in the cachefile.
pub(super) fn cachefile_config(request: &Request, out: &mut Printer) -> Result<u8> {
    let cache = match request.args.value('U') {
        Some(path) => {
            std::fs::metadata(path)
                .map_err(|e| Error::from(e).within(Path::new(path).display()))?;
            CacheFile::new(path)
        }
        None => Host::here().cache().clone(),
    };
    let pools = cache.pools()?;
    if request.has('j') {
        let all = pools
            .iter()
            .map(|(name, config)| (name.clone(), config.to_json()));
        let all: serde_json::Map<_, _> = all.collect();
        writeln!(out, "{}", serde_json::Value::Object(all))?;
        return Ok(0);
    }
    for (name, config) in pools {
        write!(out, "{name}:\n{}", config.dump(4))?;
    }
    Ok(0)
}
