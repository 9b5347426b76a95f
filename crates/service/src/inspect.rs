//! Pools opened to be looked at where they are, without their being imported.

use base::{Result, Txg};
use nvpair::NvList;
use spa::{ImportOptions, Spa};
use vdev::import::FoundPool;

use crate::pools::Pools;

impl Pools {
    /// Opens a pool found on devices, read-only, up to a txg. It is neither locked nor remembered.
    ///
    /// # Errors
    /// Errors of opening it.
    pub fn inspect_found(&self, found: FoundPool, max_txg: Option<Txg>) -> Result<Spa> {
        let name = found.name.clone();
        Spa::import(ImportOptions {
            found,
            new_name: None,
            readonly: true,
            max_txg,
            force: true,
            gives_up_logs: false,
            tolerates_missing: false,
            rewinds: false,
            host: self.host()?,
            settings: self.settings(&name),
        })
    }

    /// The same for a pool by its config.
    ///
    /// # Errors
    /// Errors of opening it.
    pub fn inspect(&self, pool: &str, config: &NvList, max_txg: Option<Txg>) -> Result<Spa> {
        let (host, settings) = (self.host()?, self.settings(pool));
        let mut options =
            ImportOptions::from_config_in(&**self.world(), config, true, host, settings)?;
        options.max_txg = max_txg;
        Spa::open(options)
    }
}
