//! Bringing a pool of a version before feature flags up to version 5000.

use base::{Context, Error, ErrorKind, Result};
use spa::Spa;

use crate::facts::Facts;
use crate::held::Access;
use crate::open::{check_access, import_options, take_away, wait_for_devices};
use crate::session::Session;

impl Session {
    /// Upgrades an imported pool, which is open for nothing else meanwhile. Afterwards it is imported for writing.
    ///
    /// # Errors
    /// `NotFound` if it is not imported, `Busy` while it is in use, `ReadOnly` if it was imported so on purpose; as
    /// [`Spa::upgrade`].
    pub fn upgrade_version(&self, pool: &str) -> Result<()> {
        let pools = self.pools();
        let _slot = match pools.keeper() {
            None => None,
            Some(keeper) => {
                keeper.open_alone(pools, pool)?.leave()?;
                let busy = || Error::new(ErrorKind::Busy, "pool is busy");
                Some(keeper.reserve(pools, pool)?.ok_or_else(busy)?)
            }
        };
        let within = || format!("cannot open '{pool}'");
        let _lock = self.held.lock(pools, pool, Access::Write).within(within)?;
        let config = pools.imported(pool)?;
        let facts = Facts::of(&config);
        let is_by_version = facts.readonly_reason.is_some();
        if !is_by_version {
            check_access(pool, &facts, Access::Write)?;
        }
        let spa = wait_for_devices(pools, &self.held, pool, || {
            Spa::upgrade(import_options(pools, pool, &config, &facts, false)?)
        })?;
        take_away(&spa, &facts);
        let facts = Facts {
            readonly: false,
            readonly_reason: None,
            ..facts
        };
        pools.remember(&spa, &facts)?;
        spa.close()
    }
}
