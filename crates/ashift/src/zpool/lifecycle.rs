//! `zpool destroy`, `export`, `labelclear`, `reguid`, `reopen`, `sync`.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_destroy`, `zpool_do_export`, `zpool_do_labelclear`,
//! `zpool_do_reguid`, `zpool_do_reopen`, `zpool_do_sync`).

use admin::getopt::Parsed;
use base::{ErrorKind, Guid};
use geom::disk::OpenMode;
use service::{Access, Session};
use vdev::{PoolState, label};

use super::devices::Device;
use super::list::{pool_names, repeated_code};
use super::{Fail, Outcome, change_error};
use crate::{failure, mounting};

/// The exit code of `labelclear` for a device without a label: -1.
const NO_LABEL: u8 = 255;
/// The exit code of `reguid` for a pool whose guid stays: -1.
const NOT_CHANGED: u8 = 255;

/// `zpool destroy`.
pub(super) fn destroy(session: &Session, args: &Parsed) -> Outcome {
    let pool = match args.operands.as_slice() {
        [] => return Err(Fail::Usage("missing pool argument".into())),
        [pool] => pool,
        _ => return Err(Fail::Usage("too many arguments".into())),
    };
    if pool.contains('/') {
        return Err(Fail::Failed(format!(
            "cannot open '{pool}': invalid character '/' in pool name\nuse 'zfs destroy' to \
             destroy a dataset"
        )));
    }
    if let Err(fail) = mounting::unmount_pool(session.pools(), pool) {
        let said = fail.say("");
        eprintln!("could not destroy '{pool}': could not unmount datasets");
        return Err(said);
    }
    session.destroy(pool)?;
    Ok(())
}

/// `zpool export`.
pub(super) fn export(session: &Session, args: &Parsed) -> Outcome {
    let pools: Vec<String> = match (args.has('a'), args.operands.is_empty()) {
        (true, true) => session.pools().names()?,
        (true, false) => return Err(Fail::Usage("too many arguments".into())),
        (false, true) => return Err(Fail::Usage("missing pool argument".into())),
        (false, false) => args.operands.clone(),
    };
    let mut code = 0;
    for pool in pools {
        if let Err(fail) = mounting::unmount_pool(session.pools(), &pool) {
            let _ = fail.say("");
            code = 1;
            continue;
        }
        if let Err(failure) = session.export(&pool, args.has('f')) {
            eprintln!("{}", failure::text(&failure));
            code = 1;
        }
    }
    Fail::exit(code)
}

/// `zpool labelclear`.
pub(super) fn labelclear(session: &Session, args: &Parsed) -> Outcome {
    let typed = match args.operands.as_slice() {
        [] => return Err(Fail::Usage("missing vdev name".into())),
        [typed] => typed,
        _ => return Err(Fail::Usage("too many arguments".into())),
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
    if let Some(owner) = owner {
        let is_active = owner.state == PoolState::Active
            && session.pools().is_guid_imported(owner.pool_guid)?;
        let pool = &owner.pool;
        if is_active {
            return Err(Fail::Failed(format!(
                "{path} is a member (ACTIVE) of pool \"{pool}\""
            )));
        }
        let state = match owner.state {
            PoolState::Active => Some("potentially active"),
            PoolState::Exported => Some("exported"),
            _ => None,
        };
        if let Some(state) = state.filter(|_| !args.has('f')) {
            return Err(Fail::Failed(format!(
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
            Fail::Exits(NO_LABEL, format!("failed to clear label for {path}"))
        }
        _ => Fail::Failed(format!("failed to clear label for {path}: {error}")),
    })?;
    Ok(())
}

/// `zpool reguid`.
pub(super) fn reguid(session: &Session, args: &Parsed) -> Outcome {
    let wrong = |text| Fail::Usage(format!("invalid GUID: {text}"));
    let guid = args
        .value('g')
        .map(|text| text.parse().map(Guid).map_err(|_| wrong(text)));
    let guid = guid.transpose()?;
    let name = match args.operands.as_slice() {
        [] => return Err(Fail::Usage("missing pool name".into())),
        [name] => name,
        _ => return Err(Fail::Usage("too many arguments".into())),
    };
    let what = format!("cannot reguid '{name}'");
    let pool = session
        .open(name, Access::Write)
        .map_err(|e| change_error(name, &what, &e))?;
    if let Some(guid) = guid
        && session.pools().is_guid_imported(guid)?
    {
        return Err(Fail::Exits(
            NOT_CHANGED,
            format!("{what}: pool already exists"),
        ));
    }
    pool.change_guid(guid).map_err(|e| {
        let text = match e.kind() {
            ErrorKind::InvalidInput => "invalid argument for this pool operation".to_owned(),
            _ => e.to_string(),
        };
        Fail::Exits(NOT_CHANGED, format!("{what}: {text}"))
    })?;
    session.finish_change(&pool, true)?;
    Ok(())
}

/// `zpool reopen`. Every command opens the devices anew; this one waits until those that are back have what
/// they missed. A scrub never begins again because of that, as with `-n`.
pub(super) fn reopen(session: &Session, args: &Parsed) -> Outcome {
    let mut code = repeated_code(&args.operands);
    for name in &pool_names(session, &args.operands)? {
        let what = format!("cannot reopen '{name}'");
        let reopened = session
            .open(name, Access::Write)
            .map_err(|e| change_error(name, &what, &e))
            .and_then(|pool| {
                pool.catch_up()?;
                Ok(session.finish_change(&pool, true)?)
            });
        match reopened {
            Err(Fail::Failed(text)) => {
                eprintln!("{text}");
                code = 1;
            }
            outcome => outcome?,
        }
    }
    Fail::exit(code)
}

/// `zpool sync`. Every command syncs before it ends, so this only waits for other commands.
pub(super) fn sync(session: &Session, args: &Parsed) -> Outcome {
    let pools: Vec<String> = if args.operands.is_empty() {
        session.pools().names()?
    } else {
        args.operands.clone()
    };
    let mut code = 0;
    for pool in pools {
        // A missing pool does not keep the others from being synced.
        if let Err(failure) = session.sync(&pool, args.has('f')) {
            eprintln!("{}", failure::text(&failure));
            code = 1;
        }
    }
    Fail::exit(code)
}
