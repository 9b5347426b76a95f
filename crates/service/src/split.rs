//! Splitting a pool of mirrors.
//!
//! # Crash argument
//! The labels change before the cachefile: a crash in between leaves a new pool that is not imported, and the former
//! config of the old one, which opens nevertheless (`spa::Spa::split`).
//!
//! # Source
//! OpenZFS module/zfs/zfs_ioctl.c (`zfs_ioc_vdev_split`).

use base::{Error, ErrorKind, Guid, Result};

use crate::facts::Facts;
use crate::held::Access;
use crate::io_stats;
use crate::open::OpenPool;
use crate::pool_change::{self, PoolChange};
use crate::session::Session;

/// The new pool of a split.
#[derive(Debug)]
pub struct Split<'s> {
    /// Its name.
    pub name: &'s str,
    /// One device of each mirror.
    pub devices: Vec<Guid>,
    /// Properties to be set.
    pub changes: Vec<PoolChange>,
    /// It is left imported, with these facts.
    pub import: Option<Facts>,
}

impl Session {
    /// Splits devices off into a new pool, which is left exported unless it is to be imported.
    ///
    /// # Errors
    /// As [`spa::Spa::split`]; `Exists` if a pool of this name is imported, with the text `pool already exists`.
    pub fn split(&self, pool: &OpenPool, split: &Split<'_>) -> Result<()> {
        self.check_new_name(split.name)?;
        let _lock = self.held.lock(&self.pools, split.name, Access::Write)?;
        // The session that held the lock may have imported one.
        self.check_new_name(split.name)?;
        let settings = self.pools.settings(split.name);
        let new = spa::Spa::split(pool, split.name, &split.devices, settings, &|new| {
            let mut changes = split.changes.iter();
            changes.try_for_each(|change| pool_change::change(new, change).map(drop))
        })?;
        match &split.import {
            None => new.export()?,
            Some(facts) => {
                new.sync()?;
                self.pools.remember(&new, facts)?;
                new.close()?;
                io_stats::begin_past(&self.pools, &new)?;
            }
        }
        self.finish_change(pool, true)
    }

    fn check_new_name(&self, name: &str) -> Result<()> {
        if self.pools.is_name_free(name, None)? {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Exists, "pool already exists"))
    }
}
