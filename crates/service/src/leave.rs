//! Exporting, destroying and syncing a pool.

use base::ErrorKind;

use crate::failure::{Attempt, Failure};
use crate::held::Access;
use crate::io_stats;
use crate::kept_errors;
use crate::open::OpenPool;
use crate::session::Session;

impl Session {
    /// Exports a pool. `is_forced`: also if it cannot be opened, because its devices are gone.
    ///
    /// # Errors
    /// Errors of opening, syncing and writing the cachefile.
    pub fn export(&self, pool: &str, is_forced: bool) -> Result<(), Failure> {
        let record = Failure::of(Attempt::Record, pool);
        let access = self.access_as_imported(pool, Access::Write);
        let open = match self.open_to_leave(pool, access.map_err(&record)?) {
            Ok(open) => open,
            Err(error) if is_forced && error.kind() != ErrorKind::Busy => {
                if !self.pools.is_imported(pool).map_err(&record)? {
                    return Err(Failure::new(Attempt::Open, pool, error));
                }
                // Its devices are gone: the only thing left is to remove it from the cachefile.
                io_stats::forget_io(&self.pools, pool);
                return self.pools.forget(pool).map_err(record);
            }
            Err(error) => return Err(Failure::new(Attempt::Open, pool, error)),
        };
        if open.is_readonly() {
            open.leave().map_err(record)?;
        } else {
            self.log(&open).map_err(record)?;
            open.export().map_err(Failure::of(Attempt::Export, pool))?;
        }
        self.forget(&open, pool)
    }

    /// Destroys a pool.
    ///
    /// # Errors
    /// Errors of opening, syncing and writing the cachefile.
    pub fn destroy(&self, pool: &str) -> Result<(), Failure> {
        let open = self.open_to_leave(pool, Access::Write);
        let open = open.map_err(Failure::of(Attempt::Open, pool))?;
        if !open.is_readonly() {
            self.log(&open)
                .map_err(Failure::of(Attempt::Record, pool))?;
        }
        open.destroy()
            .map_err(Failure::of(Attempt::Destroy, pool))?;
        self.forget(&open, pool)
    }

    /// Removes all that is remembered of a pool.
    fn forget(&self, open: &OpenPool, pool: &str) -> Result<(), Failure> {
        let removed = self.pools.forget(pool);
        open.notify("config_sync", None);
        removed.map_err(Failure::of(Attempt::Record, pool))?;
        kept_errors::forget_errors(&self.pools, open.guid());
        io_stats::forget_io(&self.pools, pool);
        Ok(())
    }

    /// Waits for other sessions that have a pool open, and syncs it. `forces`: writes an uberblock even if
    /// nothing has changed.
    ///
    /// # Errors
    /// Errors of opening and syncing.
    pub fn sync(&self, pool: &str, forces: bool) -> Result<(), Failure> {
        if self.pools.facts(pool).is_ok_and(|facts| facts.readonly) {
            return Ok(());
        }
        let open = self.open(pool, Access::Write);
        let open = open.map_err(Failure::of(Attempt::Open, pool))?;
        let synced = if forces {
            open.force_sync()
        } else {
            open.sync().map(|_| ())
        };
        synced.map_err(Failure::of(Attempt::Sync, pool))?;
        open.close().map_err(Failure::of(Attempt::Record, pool))
    }
}
