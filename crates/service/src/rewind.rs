//! Finding an earlier state of a pool that can be opened, when the last one is damaged.
//!
//! # What it is
//! Each uberblock is a whole pool, as long as what it refers to was not overwritten. What was freed is not overwritten
//! in the next two txgs; whether an older state is still whole, only reading it says. So states are tried, newest
//! first: each is opened read-only and its metadata is read; where blocks may have been overwritten, all of it. The
//! first one without damage is the one to return to (`ImportOptions::max_txg`).
//!
//! # Invariants
//! 1. Nothing is written before a state was found to be whole.
//! 2. A state whose space maps do not agree with its blocks is not whole: what is written next could overwrite it.
//!
//! # Source
//! OpenZFS `module/zfs/spa.c` (`spa_load_best`, `spa_load_retry`, `spa_load_verify`), lib/libzfs/libzfs_pool.c
//! (`zpool_rewind_exclaim`, `zpool_explain_recover`).

use base::{Error, ErrorKind, Result, Txg};
use check::{Checksums, Finding, Options, Severity};
use machine::Holder;
use spa::{ImportOptions, Spa};

use crate::facts::Facts;
use crate::failure::Reason;
use crate::past::{PastState, states_of};
use crate::session::Session;

/// `TXG_DEFER_SIZE`: so many txgs after a block was freed, it may be overwritten.
const TXG_DEFER_SIZE: u64 = 2;

/// How an earlier state is looked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rewind {
    /// `-X`: any state, not only those in which nothing can have been overwritten.
    pub is_extreme: bool,
    /// `-n`: it is only said whether there is one.
    pub is_dry_run: bool,
}

/// An earlier state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewound {
    /// Its txg.
    pub txg: Txg,
    /// When it was synced, in seconds since 1970.
    pub as_of_secs: u64,
    /// What has been written after that is lost, in seconds.
    pub lost_secs: u64,
    /// Blocks of data that cannot be read, as far as they were looked at.
    pub data_errors: u64,
}

/// What was found.
pub(crate) enum Found {
    /// The last state is whole.
    Last,
    /// An earlier one is.
    Earlier(Rewound),
}

impl Session {
    /// Returns an imported pool that cannot be opened any more to an earlier state; `None` if its last one is whole.
    ///
    /// # Errors
    /// As [`Session::open`]; that of the last state, if there is no other one.
    #[doc(alias = "spa_open_rewind")]
    pub fn recover(&self, pool: &str, rewind: Rewind) -> Result<Option<Rewound>> {
        let _lock = match self.lock_new(pool) {
            Ok(lock) => lock,
            // It is open.
            Err(Reason::NameTaken) => return Ok(None),
            Err(Reason::InUse(error)) => return Err(error),
            Err(_) => unreachable!("locking a name fails for no other reason"),
        };
        let config = self.pools.imported(pool)?;
        let facts = Facts::of(&config);
        if facts.readonly {
            return Err(Error::new(ErrorKind::ReadOnly, "pool is read-only"));
        }
        let names = self.pools.world().names_for(Holder::Pool(pool.to_owned()));
        let options = || {
            let (host, settings) = (self.pools.host()?, self.pools.settings(pool));
            ImportOptions::from_config_in(&names, &config, false, host, settings)
        };
        let Found::Earlier(rewound) = find(&options, None, rewind)? else {
            return Ok(None);
        };
        if !rewind.is_dry_run {
            let spa = Spa::open(ImportOptions {
                max_txg: Some(rewound.txg),
                ..options()?
            })?;
            spa.sync()?;
            self.pools.remember(&spa, &facts)?;
            spa.close()?;
        }
        Ok(Some(rewound))
    }
}

/// Looks for the newest whole state up to `max_txg`. `options` makes the options of opening the pool.
///
/// # Errors
/// That of the last state, if none is whole.
#[doc(alias = "spa_load_best")]
pub(crate) fn find(
    options: &dyn Fn() -> Result<ImportOptions>,
    max_txg: Option<Txg>,
    rewind: Rewind,
) -> Result<Found> {
    let all = states_of(&options()?.found);
    let Some((last, last_secs)) = all.first().map(|state| (state.txg, state.at_secs)) else {
        return Err(Error::corrupt("the pool has no valid uberblock"));
    };
    let safe = last.0.saturating_sub(TXG_DEFER_SIZE);
    let least = if rewind.is_extreme {
        Txg::INITIAL.0
    } else {
        safe
    };
    let wanted = |state: &&PastState| max_txg.is_none_or(|max| state.txg <= max);
    let (mut before, mut failed) = (u64::MAX, None);
    for PastState { txg, at_secs, .. } in all.iter().filter(wanted) {
        // As in OpenZFS, the first one below the limit is tried, too.
        if before < least {
            break;
        }
        before = txg.0;
        match data_errors(options()?, *txg, txg.0 < safe) {
            Ok(_) if *txg == last => return Ok(Found::Last),
            Ok(data_errors) => {
                return Ok(Found::Earlier(Rewound {
                    txg: *txg,
                    as_of_secs: *at_secs,
                    lost_secs: last_secs.saturating_sub(*at_secs),
                    data_errors,
                }));
            }
            Err(error) if is_obstacle(&error) => return Err(error),
            Err(error) => {
                failed.get_or_insert(error);
            }
        }
    }
    Err(failed.unwrap_or_else(|| Error::not_found("there is no uberblock up to this txg")))
}

/// Whether this is the error of a damaged pool, so that an earlier state may be whole.
pub(crate) fn is_damage(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Io | ErrorKind::Checksum | ErrorKind::Corrupt
    )
}

/// Whether this prevents opening any state.
pub(crate) fn is_obstacle(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unsupported | ErrorKind::Busy | ErrorKind::Permission
    )
}

/// Opens the state of a txg and reads it; how many blocks of data are damaged.
///
/// # Errors
/// `Corrupt` for damaged metadata; errors of opening it.
#[doc(alias = "spa_load_verify")]
fn data_errors(options: ImportOptions, txg: Txg, reads_all: bool) -> Result<u64> {
    let spa = Spa::open(ImportOptions {
        readonly: true,
        force: true,
        max_txg: Some(txg),
        ..options
    })?;
    let pool = check::Pool::of(&spa);
    let read = |checksums| {
        let options = Options {
            checksums,
            every_copy: false,
            ..Options::default()
        };
        check::verify(&pool, &options)
    };
    let metadata = read(Checksums::Metadata)?;
    let mut findings = metadata.findings.iter();
    if let Some(finding) = findings.find(|finding| finding.severity() == Severity::Fatal) {
        return Err(Error::corrupt(format!("txg {txg}: {finding}")));
    }
    if !reads_all {
        return Ok(0);
    }
    let all = read(Checksums::All)?;
    let is_lost = |finding: &&Finding| finding.lost().is_some();
    Ok(all.findings.iter().filter(is_lost).count() as u64)
}
