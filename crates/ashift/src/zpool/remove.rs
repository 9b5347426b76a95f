//! `zpool remove`: taking vdevs, hot spares and cache devices out of a pool.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_remove`), lib/libzfs/libzfs_pool.c (`zpool_vdev_remove`,
//! `zpool_vdev_remove_cancel`, `zpool_vdev_indirect_size`).

use admin::getopt::Parsed;
use admin::number::nice_number;
use admin::pool::VdevStatus;
use base::{Error, ErrorKind, Guid};
use service::{Access, Activity, OpenPool, Session};
use zio::AllocClass;

use super::device_state::{find_device, find_group};
use super::devices::is_distributed_spare;
use super::{Fail, Outcome, change_error};

/// `zpool remove`.
pub(super) fn run(session: &Session, args: &Parsed) -> Outcome {
    let Some((name, devices)) = args.operands.split_first() else {
        return Err(Fail::Usage("missing pool name argument".into()));
    };
    let (stops, estimates) = (args.has('s'), args.has('n'));
    if stops && estimates {
        eprintln!("stop request ignored");
        return Ok(());
    }
    if stops {
        return stop(session, args, name, devices);
    }
    if devices.is_empty() {
        return Err(Fail::Usage("missing device".into()));
    }
    if estimates {
        return estimate(session, args.has('p'), name, devices);
    }
    let pool = open(session, name, &format!("cannot remove {}", devices[0]))?;
    let (mut is_changed, mut code) = (false, 0);
    for device in devices {
        match remove(&pool, device) {
            Ok(()) => is_changed = true,
            Err(why) => {
                eprintln!("cannot remove {device}: {why}");
                code = 1;
            }
        }
    }
    if args.has('w') && code == 0 {
        pool.wait_for(&[Activity::Remove], None)?;
    }
    session.finish_change(&pool, is_changed)?;
    Fail::exit(code)
}

fn open(session: &Session, name: &str, what: &str) -> Result<OpenPool, Fail> {
    let pool = session.open(name, Access::Write);
    pool.map_err(|error| change_error(name, what, &error))
}

fn find<'v>(vdevs: &'v VdevStatus, word: &str) -> Option<&'v VdevStatus> {
    find_device(vdevs, word).or_else(|| find_group(vdevs, word))
}

fn remove(pool: &OpenPool, word: &str) -> Result<(), String> {
    let check = || {
        pool.check_no_checkpoint()
            .map_err(|error| error.to_string())
    };
    if is_distributed_spare(word) {
        return Err("dRAID spares cannot be removed".to_owned());
    }
    let spares = pool.spare_devices();
    if let Some(spare) = spares.iter().find_map(|spare| find_device(spare, word)) {
        check()?;
        let removed = pool.remove_spare(Guid(spare.guid));
        return removed.map_err(|error| reason(&error, false));
    }
    let caches = pool.cache_devices();
    if let Some(cache) = caches.iter().find_map(|cache| find_device(cache, word)) {
        check()?;
        let removed = pool.remove_cache(Guid(cache.guid));
        return removed.map_err(|error| reason(&error, false));
    }
    let vdevs = pool.vdevs();
    let vdev = find(&vdevs, word).ok_or("no such device in pool")?;
    check()?;
    let removed = pool.remove(Guid(vdev.guid));
    removed.map_err(|error| reason(&error, vdev.class == AllocClass::Log))
}

fn reason(error: &Error, is_log: bool) -> String {
    let text = match error.kind() {
        ErrorKind::NotFound => "no such device in pool",
        ErrorKind::Exists => "removal for this vdev is already in progress.",
        ErrorKind::InvalidInput => {
            "invalid config; all top-level vdevs must have the same sector size and not be raidz."
        }
        ErrorKind::Busy if is_log => "Mount encrypted datasets to replay logs.",
        ErrorKind::Busy => "Pool busy; removal may already be in progress",
        ErrorKind::NoSpace => "out of space",
        ErrorKind::Unsupported => "operation not supported on this type of pool",
        ErrorKind::Io => "I/O error",
        _ => return error.to_string(),
    };
    text.to_owned()
}

/// `-s`: the removal that goes on is given up.
fn stop(session: &Session, args: &Parsed, name: &str, devices: &[String]) -> Outcome {
    if !devices.is_empty() {
        return Err(Fail::Usage("too many arguments".into()));
    }
    let what = "cannot cancel removal";
    let pool = open(session, name, what)?;
    let stopped = pool.cancel_remove();
    let outcome = match &stopped {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("{what}: operation is not in progress");
            Fail::exit(1)
        }
        Err(error) => Err(Fail::Failed(format!("{what}: {error}"))),
    };
    session.finish_change(&pool, stopped.is_ok())?;
    if args.has('w') {
        let text = "invalid option combination: -w cannot be used with -s";
        return Err(Fail::Usage(text.into()));
    }
    outcome
}

/// `-n`: how much memory the mapping of each vdev would take.
fn estimate(session: &Session, is_exact: bool, name: &str, devices: &[String]) -> Outcome {
    let what = format!("cannot determine indirect size of {}", devices[0]);
    let pool = session.open(name, Access::Read);
    let pool = pool.map_err(|error| change_error(name, &what, &error))?;
    let vdevs = pool.vdevs();
    for device in devices {
        let what = format!("cannot determine indirect size of {device}");
        let vdev = find(&vdevs, device);
        let vdev = vdev.ok_or_else(|| Fail::Failed(format!("{what}: no such device in pool")))?;
        let bytes = if vdev.class == AllocClass::Log {
            Some(0)
        } else {
            pool.mapping_estimate(Guid(vdev.guid)).ok().flatten()
        };
        let no_size = || Fail::Failed(format!("{what}: indirect size not available"));
        let bytes = bytes.ok_or_else(no_size)?;
        if is_exact {
            println!("{device} {bytes}");
        } else {
            let size = nice_number(bytes);
            println!("Memory that will be used after removing {device}: {size}");
        }
    }
    pool.close()?;
    Ok(())
}
