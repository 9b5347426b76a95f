//! Opening an existing pool.
//!
//! # What it is
//! Labels give an approximate config and the best uberblock. The MOS below that uberblock has the
//! exact config: it is newer and complete. So the pool is opened twice: first read-only by the
//! labels, to read config, features and salt, then for real.
//!
//! # Invariants
//! 1. A pool with an active feature that this program does not maintain (see `obstacle.rs`) is
//!    opened read-only, or not at all, and the reason is reported.
//! 2. Nothing is written before every reason not to write has been checked.
//!
//! # Crash argument
//! The uberblock with the highest txg and a valid checksum describes a complete pool: everything it
//! references was flushed before it was written, and is not reused for two txgs.
//!
//! # Source
//! OpenZFS `module/zfs/spa.c` (`spa_load_impl`, `spa_ld_*`).

mod build;
mod look;
mod options;
mod space;

use base::{Context, Error, ErrorKind, Result, Txg};
use phys::uberblock::UberblockPhys;
use vdev::PoolState;

use crate::checkpoint;
use crate::mmp;
use crate::obstacle::Obstacle;
use crate::old_version::check_upgrade;
use crate::spa::Spa;
use crate::split::{SplitOff, mark_split};

use build::{Begin, load};
pub(crate) use look::best_uberblock;
pub use look::try_import;
use look::{FirstLook, check_readable, check_tree, first_look};
pub use options::{ImportOptions, NewName, device_paths};

impl Spa {
    /// Imports a discovered pool. Devices that are missing now are expected to stay missing: they
    /// are shown by their guids.
    ///
    /// # Errors
    /// As [`open`](Spa::open).
    #[doc(alias = "spa_import")]
    pub fn import(options: ImportOptions) -> Result<Spa> {
        let rewinds = options.rewinds;
        let (spa, uberblock) = Spa::open_by(options, false)?;
        let rewound_to = rewinds.then(|| uberblock.checkpoint_txg.get());
        if spa.inner.tree.mark_absent() && !spa.is_readonly() {
            spa.config_changed()?;
        }
        if !spa.is_readonly() {
            let core = spa.inner.core.clone();
            let tx = spa.inner.groups.hold_open(0)?;
            spa.dsl().queue_task(&tx, move |_, tx| {
                if let Some(taken) = rewound_to {
                    let text = format!("rewound state to txg={taken}");
                    core.log_internal("checkpoint rewind", &text, tx);
                }
                core.log_version("import", tx);
                Ok(())
            });
        }
        spa.notify("pool_import", None);
        Ok(spa)
    }

    /// Opens a pool that was imported before, for one command.
    ///
    /// # Errors
    /// `Permission` when another host seems to use it; `NotFound` when it is destroyed;
    /// `Unsupported`, naming the feature in the way; `Io` when too many devices are missing;
    /// `Corrupt`.
    #[doc(alias = "spa_open")]
    pub fn open(options: ImportOptions) -> Result<Spa> {
        Ok(Spa::open_by(options, false)?.0)
    }

    /// Also returns the uberblock by which it was opened. With `upgrades` it is of an old version, and is upgraded.
    pub(crate) fn open_by(options: ImportOptions, upgrades: bool) -> Result<(Spa, UberblockPhys)> {
        check_owner(&options)?;
        if !options.readonly {
            mmp::check_activity(&options.found, options.host.id)?;
        }
        let max_txg = options.max_txg.unwrap_or(Txg(u64::MAX));
        let last = best_uberblock(&options.found, Txg(u64::MAX))?.txg();
        let mut uberblock = best_uberblock(&options.found, max_txg)?;
        let is_rewound = uberblock.txg() < last;
        let mut look = first_look(&options.found, &uberblock)?;
        let multihost = look.multihost;
        if options.rewinds {
            uberblock = look.checkpoint.after(&uberblock)?;
            look = first_look(&options.found, &uberblock).within(|| "checkpointed state")?;
            check_rewind(&options, &look)?;
        }
        if upgrades {
            check_upgrade(&options, &uberblock)?;
            let is_other = |obstacle: &Obstacle| !matches!(obstacle, Obstacle::OldVersion(_));
            look.obstacles.retain(is_other);
        }
        let readonly = options.readonly || !look.obstacles.is_empty();
        check_readable(&look.obstacles)?;
        let tree = options.found.open(&look.config, !readonly)?;
        tree.note_uberblock(&uberblock);
        if !(options.tolerates_missing && options.readonly) {
            check_tree(&tree)?;
        }
        if options.rewinds && !readonly {
            let (found, host) = (&options.found, &options.host);
            checkpoint::write_rewound(found, &tree, &uberblock, host, multihost)?;
        }
        mark_split(&look.config, &tree, &options.found.elsewhere);
        let elsewhere = options.found.elsewhere.clone();
        let begin = match is_rewound && !readonly {
            true => Begin::Rewound { last },
            false if upgrades => Begin::Upgraded,
            false => Begin::Usual,
        };
        let spa = load(options, &uberblock, look, tree, readonly, begin)?;
        spa.end_split(&elsewhere)?;
        // How the devices came to be as they are is not news.
        for device in spa.inner.tree.devices() {
            device.leaf().forget_changes();
        }
        Ok((spa, uberblock))
    }

    /// Opens the new pool of a split: the state at `uberblock` of the old one, on the devices that were found, with a
    /// tree of its own.
    pub(crate) fn open_split(
        options: ImportOptions,
        uberblock: &UberblockPhys,
        split: SplitOff,
    ) -> Result<Spa> {
        let mut look = first_look(&options.found, uberblock)?;
        check_readable(&look.obstacles)?;
        let tops = options.found.config.get_list("vdev_tree");
        let tops = tops
            .and_then(|tree| tree.get_lists("children"))
            .map_or(0, <[_]>::len);
        look.classes.truncate(tops);
        look.config = options.found.config.clone();
        let tree = options.found.open(&look.config, true)?;
        tree.note_uberblock(uberblock);
        check_tree(&tree)?;
        load(options, uberblock, look, tree, false, Begin::Split(split))
    }
}

/// A pool is not rewound for good to a state that could only be read.
fn check_rewind(options: &ImportOptions, look: &FirstLook) -> Result<()> {
    match look.obstacles.first().filter(|_| !options.readonly) {
        None => Ok(()),
        Some(obstacle) => {
            let text = format!("the checkpointed state can only be read: {obstacle}");
            Err(Error::new(ErrorKind::Unsupported, text))
        }
    }
}

/// Fails if another host may be using the pool.
fn check_owner(options: &ImportOptions) -> Result<()> {
    let found = &options.found;
    if options.force || found.state == PoolState::Exported {
        return Ok(());
    }
    if found.state == PoolState::Destroyed {
        let text = format!("pool '{}' is destroyed", found.name);
        return Err(Error::not_found(text));
    }
    let is_foreign = found.hostid != 0 && found.hostid != options.host.id;
    if is_foreign && !options.readonly {
        let (name, id, host) = (&found.name, found.hostid, &found.hostname);
        let text = format!(
            "pool '{name}' was last used by another system ({host}, hostid {id:x}) and not exported \
             there; '-f' imports it anyway"
        );
        return Err(Error::new(ErrorKind::Permission, text));
    }
    Ok(())
}
