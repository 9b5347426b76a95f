//! `zpool destroy`, `export`, `labelclear`, `sync`.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_destroy`, `zpool_do_export`, `zpool_do_labelclear`,
//! `zpool_do_sync`).

use admin::getopt::Parsed;
use base::ErrorKind;
use geom::disk::OpenMode;
use vdev::{PoolState, label};

use super::devices::Device;
use super::{Failure, Outcome, open_error};
use crate::host::{Access, Host};

/// The exit code of `labelclear` for a device without a label: -1.
const NO_LABEL: u8 = 255;

/// `zpool destroy`.
pub(super) fn destroy(args: &Parsed) -> Outcome {
    let pool = match args.operands.as_slice() {
        [] => return Err(Failure::Usage("missing pool argument".into())),
        [pool] => pool,
        _ => return Err(Failure::Usage("too many arguments".into())),
    };
    if pool.contains('/') {
        return Err(Failure::Text(format!(
            "cannot open '{pool}': invalid character '/' in pool name\nuse 'zfs destroy' to \
             destroy a dataset"
        )));
    }
    let host = Host::here();
    let open = host
        .open(pool, Access::Write)
        .map_err(|e| open_error(pool, &e))?;
    if !open.is_readonly() {
        open.log_command(&super::command_line())?;
    }
    open.destroy()
        .map_err(|e| format!("cannot destroy '{pool}': {}", reason(&e)))?;
    host.cache().remove(pool)?;
    crate::kept_errors::forget_errors(host.state(), open.guid());
    Ok(0)
}

fn reason(error: &base::Error) -> String {
    match error.kind() {
        ErrorKind::ReadOnly => "one or more vdevs are read only".to_owned(),
        _ => error.to_string(),
    }
}

/// `zpool export`.
pub(super) fn export(args: &Parsed) -> Outcome {
    let host = Host::here();
    let pools: Vec<String> = match (args.has('a'), args.operands.is_empty()) {
        (true, true) => host.pools()?.into_iter().map(|(name, _)| name).collect(),
        (true, false) => return Err(Failure::Usage("too many arguments".into())),
        (false, true) => return Err(Failure::Usage("missing pool argument".into())),
        (false, false) => args.operands.clone(),
    };
    let mut code = 0;
    for pool in pools {
        if let Err(Failure::Text(text)) = export_one(&host, &pool, args.has('f')) {
            eprintln!("{text}");
            code = 1;
        }
    }
    Ok(code)
}

fn export_one(host: &Host, pool: &str, is_forced: bool) -> Result<(), Failure> {
    let facts = host.facts(pool)?;
    let access = if facts.readonly {
        Access::Read
    } else {
        Access::Write
    };
    let open = match host.open(pool, access) {
        Ok(open) => open,
        Err(error) if is_forced && error.kind() != ErrorKind::Busy => {
            // Its devices are gone: the only thing left is to remove it from the cachefile.
            if host.cache().find(pool)?.is_none() {
                return Err(open_error(pool, &error));
            }
            host.cache().remove(pool)?;
            return Ok(());
        }
        Err(error) => return Err(open_error(pool, &error)),
    };
    if open.is_readonly() {
        open.close()?;
    } else {
        open.log_command(&super::command_line())?;
        open.export()
            .map_err(|e| format!("cannot export '{pool}': {e}"))?;
    }
    host.cache().remove(pool)?;
    crate::kept_errors::forget_errors(host.state(), open.guid());
    Ok(())
}

/// `zpool labelclear`.
pub(super) fn labelclear(args: &Parsed) -> Outcome {
    let typed = match args.operands.as_slice() {
        [] => return Err(Failure::Usage("missing vdev name".into())),
        [typed] => typed,
        _ => return Err(Failure::Usage("too many arguments".into())),
    };
    let device = Device::find(typed).map_err(|_| {
        if typed.starts_with('/') {
            format!("failed to open {typed}: No such file or directory")
        } else {
            format!("failed to find device {typed}, try specifying absolute path instead")
        }
    })?;
    let path = device.name();
    let provider = device
        .open(OpenMode::Inspect)
        .map_err(|e| format!("failed to open {path}: {e}"))?;
    let owner = label::owner(&*provider);
    drop(provider);
    let host = Host::here();
    if let Some(owner) = owner {
        let imported = host.pools()?;
        let is_active = owner.state == PoolState::Active
            && imported
                .iter()
                .any(|(_, c)| c.get_u64("pool_guid") == Some(owner.pool_guid.0));
        let pool = &owner.pool;
        if is_active {
            return Err(Failure::Text(format!(
                "{path} is a member (ACTIVE) of pool \"{pool}\""
            )));
        }
        let state = match owner.state {
            PoolState::Active => Some("potentially active"),
            PoolState::Exported => Some("exported"),
            _ => None,
        };
        if let Some(state) = state.filter(|_| !args.has('f')) {
            return Err(Failure::Text(format!(
                "use '-f' to override the following error:\n{path} is a member of {state} pool \
                 \"{pool}\""
            )));
        }
    }
    let provider = device
        .open(OpenMode::ReadWrite)
        .map_err(|e| format!("failed to open {path}: {e}"))?;
    label::clear(&*provider).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::InvalidInput => {
            Failure::Code(NO_LABEL, format!("failed to clear label for {path}"))
        }
        _ => Failure::Text(format!("failed to clear label for {path}: {error}")),
    })?;
    Ok(0)
}

/// `zpool sync`. Every command syncs before it ends, so this only waits for other commands.
pub(super) fn sync(args: &Parsed) -> Outcome {
    let host = Host::here();
    let all = host.pools()?.into_iter().map(|(name, _)| name);
    let pools: Vec<String> = if args.operands.is_empty() {
        all.collect()
    } else {
        args.operands.clone()
    };
    let mut code = 0;
    for pool in pools {
        // A missing pool does not keep the others from being synced.
        if let Err(Failure::Text(text)) = sync_one(&host, &pool, args.has('f')) {
            eprintln!("{text}");
            code = 1;
        }
    }
    Ok(code)
}

fn sync_one(host: &Host, pool: &str, forces: bool) -> Result<(), Failure> {
    if host.facts(pool).is_ok_and(|facts| facts.readonly) {
        return Ok(());
    }
    let open = host
        .open(pool, Access::Write)
        .map_err(|e| open_error(pool, &e))?;
    let synced = if forces {
        open.force_sync()
    } else {
        open.sync().map(|_| ())
    };
    synced.map_err(|e| format!("sync of '{pool}' failed: {e}"))?;
    Ok(open.close()?)
}
