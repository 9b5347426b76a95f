//! What is remembered of an imported pool beyond its config.

use nvpair::NvList;

/// What is remembered of an imported pool beyond its config.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// `altroot`
    pub altroot: Option<String>,
    /// `cachefile`: another file that its config is in, or `none`.
    pub cachefile: Option<String>,
    /// It was imported read-only.
    pub readonly: bool,
    /// Why it is read-only, if that was not asked for.
    pub readonly_reason: Option<String>,
    /// Txg that the pool was rewound to at import (`zpool import -T`); always read-only.
    pub max_txg: Option<u64>,
    /// It was imported as it was when its checkpoint was taken; always read-only.
    pub rewinds: bool,
    /// Devices that stay offline until the pool is exported, or they are brought online, by guid.
    pub offline: Vec<u64>,
    /// Devices that stay faulted until the pool is exported, or its errors are cleared, by guid.
    pub faulted: Vec<u64>,
}

/// Keys of [`Facts`] beside the config in the cachefile.
const ALTROOT: &str = "ashift:altroot";
const CACHEFILE: &str = "ashift:cachefile";
const READONLY: &str = "ashift:readonly";
const READONLY_REASON: &str = "ashift:readonly_reason";
const MAX_TXG: &str = "ashift:max_txg";
const REWINDS: &str = "ashift:rewinds";
const OFFLINE: &str = "ashift:offline";
const FAULTED: &str = "ashift:faulted";

/// What `cachefile` says if its pool is in no other file.
const NO_FILE: &str = "none";

impl Facts {
    /// What is remembered of `cachefile`, given so, or not at all: a pool with an alternate root is in no other file.
    #[doc(alias = "spa_configfile_set")]
    #[must_use]
    pub fn cachefile_of(given: Option<&str>, altroot: Option<&str>) -> Option<String> {
        match given {
            None => altroot.map(|_| NO_FILE.to_owned()),
            Some("") => None,
            Some(given) => Some(given.to_owned()),
        }
    }

    /// The other file that the config is in. One of a pool that cannot be written to is in none.
    pub(crate) fn other_cachefile(&self) -> Option<&str> {
        let other = self.cachefile.as_deref();
        other.filter(|file| *file != NO_FILE && !self.readonly)
    }

    /// Reads them from a config in the cachefile.
    pub(crate) fn of(config: &NvList) -> Facts {
        Facts {
            altroot: config.get_str(ALTROOT).map(str::to_owned),
            cachefile: config.get_str(CACHEFILE).map(str::to_owned),
            readonly: config.get_u64(READONLY) == Some(1),
            readonly_reason: config.get_str(READONLY_REASON).map(str::to_owned),
            max_txg: config.get_u64(MAX_TXG),
            rewinds: config.get_u64(REWINDS) == Some(1),
            offline: config.get_u64s(OFFLINE).unwrap_or_default().to_vec(),
            faulted: config.get_u64s(FAULTED).unwrap_or_default().to_vec(),
        }
    }

    /// Adds them to a config for the cachefile.
    pub(crate) fn add_to(&self, config: &mut NvList) {
        if let Some(altroot) = &self.altroot {
            config.add(ALTROOT, &**altroot);
        }
        if let Some(cachefile) = &self.cachefile {
            config.add(CACHEFILE, &**cachefile);
        }
        if self.readonly {
            config.add(READONLY, 1u64);
        }
        if let Some(reason) = &self.readonly_reason {
            config.add(READONLY_REASON, &**reason);
        }
        if let Some(txg) = self.max_txg {
            config.add(MAX_TXG, txg);
        }
        if self.rewinds {
            config.add(REWINDS, 1u64);
        }
        for (key, guids) in [(OFFLINE, &self.offline), (FAULTED, &self.faulted)] {
            if !guids.is_empty() {
                config.add(key, guids.clone());
            }
        }
    }
}
