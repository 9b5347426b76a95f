//! The cachefile: which pools are imported here, with their configs.
//!
//! # On disk
//! One packed nvlist (XDR): pool name -> config, like OpenZFS's `zpool.cache`. It is replaced by
//! rename, so a crash leaves either the old or the new one. Without pools there is no file.
//!
//! # Concurrency
//! Changes are made under an exclusive lock on another file.
//!
//! # Source
//! OpenZFS `module/zfs/spa_config.c` (`spa_write_cachefile`).

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use base::{Context, Error, ErrorKind, Result};
use nvpair::NvList;

/// The cachefile in a state folder.
#[derive(Debug, Clone)]
pub struct CacheFile {
    path: PathBuf,
    lock: PathBuf,
}

impl CacheFile {
    /// The cachefile at `path`; it need not exist.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> CacheFile {
        let path = path.into();
        let lock = path.with_extension("cache.lock");
        CacheFile { path, lock }
    }

    /// The same, with the lock elsewhere: beside a file whose folder is not our own there is nothing else.
    #[must_use]
    pub fn locked_by(path: impl Into<PathBuf>, lock: impl Into<PathBuf>) -> CacheFile {
        CacheFile {
            path: path.into(),
            lock: lock.into(),
        }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The pools in it with their configs, sorted by name; empty when there is no file.
    ///
    /// # Errors
    /// `Corrupt` when the file is not a cachefile; any error from reading it.
    pub fn pools(&self) -> Result<Vec<(String, NvList)>> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::from(e).within(self.path.display())),
        };
        let list = nvpair::decode(&bytes).within(|| self.path.display())?;
        let mut pools: Vec<_> = list
            .iter()
            .filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value.as_list()?.clone())))
            .collect();
        pools.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(pools)
    }

    /// The config of one pool.
    ///
    /// # Errors
    /// As [`pools`](CacheFile::pools).
    pub fn find(&self, name: &str) -> Result<Option<NvList>> {
        Ok(self
            .pools()?
            .into_iter()
            .find(|(n, _)| n == name)
            .map(|(_, config)| config))
    }

    /// Adds a pool, replacing any entry of the same name.
    ///
    /// # Errors
    /// Any error from reading and writing the file.
    pub fn put(&self, name: &str, config: &NvList) -> Result<()> {
        self.change(|pools| {
            pools.retain(|(n, _)| n != name);
            pools.push((name.to_owned(), config.clone()));
        })
    }

    /// Removes a pool; does nothing when it is not in the file.
    ///
    /// # Errors
    /// Any error from reading and writing the file.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.change(|pools| pools.retain(|(n, _)| n != name))
    }

    fn change(&self, edit: impl FnOnce(&mut Vec<(String, NvList)>)) -> Result<()> {
        let within = |e: std::io::Error| Error::from(e).within(self.path.display());
        let folder = self.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(within)?;
        let lock = File::create(&self.lock).map_err(within)?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)
            .map_err(|e| Error::new(ErrorKind::Io, format!("{}: {e}", self.path.display())))?;
        let mut pools = self.pools()?;
        edit(&mut pools);
        if pools.is_empty() {
            return match fs::remove_file(&self.path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(within(e)),
                _ => Ok(()),
            };
        }
        let mut list = NvList::new();
        for (name, config) in pools {
            list.add(&*name, config);
        }
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        let mut file = File::create(&new).map_err(within)?;
        file.write_all(&nvpair::encode_xdr(&list)).map_err(within)?;
        file.sync_all().map_err(within)?;
        fs::rename(&new, &self.path).map_err(within)
    }
}
