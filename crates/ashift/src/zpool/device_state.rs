//! `zpool online`, `offline`, `clear`.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_online`, `zpool_do_offline`, `zpool_do_clear`),
//! lib/libzfs/libzfs_pool.c (`zpool_find_vdev`, `zpool_vdev_offline`).

use std::sync::Arc;

use admin::getopt::Parsed;
use base::ErrorKind;
use geom::Namespace;
use geom::disk::OpenMode;
use machine::Holder;
use vdev::Vdev;

use super::devices::short_name;
use super::{Failure, Outcome, command_line, open_error, refuse_options};
use crate::host::{Access, Host, OpenPool};
use crate::machine::current;

/// The device that a person means: by guid, path, or the path without its folder.
#[doc(alias = "zpool_find_vdev")]
fn find_device(pool: &OpenPool, word: &str) -> Option<Arc<Vdev>> {
    let guid = word.parse::<u64>().ok();
    let absolute = std::path::absolute(word)
        .ok()
        .map(|p| p.display().to_string());
    pool.tree().devices().into_iter().find(|device| {
        let path = device.config().path.clone().unwrap_or_default();
        Some(device.guid().0) == guid
            || path == word
            || Some(&path) == absolute.as_ref()
            || short_name(&path, device.kind()) == word
    })
}

fn operands(args: &Parsed) -> Result<(&String, &[String]), Failure> {
    match args.operands.split_first() {
        None => Err(Failure::Usage("missing pool name".into())),
        Some((_, [])) => Err(Failure::Usage("missing device name".into())),
        Some(both) => Ok(both),
    }
}

/// `zpool offline`.
pub(super) fn offline(args: &Parsed) -> Outcome {
    if args.has_long("power") {
        return Err(Failure::Text(
            "'zpool offline --power' is not supported yet".into(),
        ));
    }
    refuse_options(args, "offline", "f")?;
    if args.has('t') {
        let text = "'zpool offline -t' is not supported: a pool is opened anew by every command";
        return Err(Failure::Text(text.into()));
    }
    let (name, words) = operands(args)?;
    let host = Host::here();
    let pool = host
        .open(name, Access::Write)
        .map_err(|e| open_error(name, &e))?;
    let mut code = 0;
    for word in words {
        let failed = |text: &str| eprintln!("cannot offline {word}: {text}");
        let Some(device) = find_device(&pool, word) else {
            failed("no such device in pool");
            code = 1;
            continue;
        };
        if let Err(error) = pool.tree().offline(device.guid(), false) {
            match error.kind() {
                ErrorKind::Busy => failed("no valid replicas"),
                _ => failed(&error.to_string()),
            }
            code = 1;
        }
    }
    finish(&host, &pool, code)
}

/// `zpool online`.
pub(super) fn online(args: &Parsed) -> Outcome {
    if args.has_long("power") {
        return Err(Failure::Text(
            "'zpool online --power' is not supported yet".into(),
        ));
    }
    let (name, words) = operands(args)?;
    let host = Host::here();
    let pool = host
        .open(name, Access::Write)
        .map_err(|e| open_error(name, &e))?;
    let mut code = 0;
    let mut growing = Vec::new();
    for word in words {
        let Some(device) = find_device(&pool, word) else {
            eprintln!("couldn't find device \"{word}\" in pool \"{name}\"");
            code = 1;
            continue;
        };
        if !device.leaf().is_usable()
            && let Err(text) = bring_back(&pool, &device)
        {
            eprintln!("cannot online {word}: {text}");
            code = 1;
            continue;
        }
        let (_, top) = pool.tree().find_device(device.guid())?;
        growing.push(top.guid());
    }
    if super::needs_resilver(&pool) {
        super::catch_up(&pool)?;
    }
    if args.has('e') {
        pool.expand(&|guid| growing.contains(&guid))?;
    }
    finish(&host, &pool, code)
}

fn bring_back(pool: &OpenPool, device: &Arc<Vdev>) -> Result<(), String> {
    let path = device
        .config()
        .path
        .clone()
        .ok_or("its path is not known")?;
    let world = current().map_err(|e| e.to_string())?;
    let provider = world
        .names_for(Holder::Pool(pool.name()))
        .open(&path, OpenMode::ReadWrite)
        .map_err(|_| "no such device in pool")?;
    let owner = vdev::label::owner(&*provider);
    let is_ours = owner.is_some_and(|o| o.guid == device.guid() && o.pool_guid == pool.guid());
    if !is_ours {
        return Err("its label says that it is another device; use 'zpool replace'".to_owned());
    }
    pool.tree()
        .online(device.guid(), provider)
        .map_err(|e| e.to_string())
}

/// `zpool clear`.
pub(super) fn clear(args: &Parsed) -> Outcome {
    refuse_options(args, "clear", "FnX")?;
    let (name, word) = match args.operands.as_slice() {
        [] => return Err(Failure::Usage("missing pool name".into())),
        [name] => (name, None),
        [name, word] => (name, Some(word)),
        _ => return Err(Failure::Usage("too many arguments".into())),
    };
    let host = Host::here();
    let pool = host
        .open(name, Access::Write)
        .map_err(|e| open_error(name, &e))?;
    let device = match word {
        None => None,
        Some(word) => Some(
            find_device(&pool, word)
                .ok_or_else(|| format!("cannot clear errors for {word}: no such device in pool"))?,
        ),
    };
    pool.tree()
        .clear(device.as_ref().map(|device| device.guid()))?;
    pool.pipeline().take_errors();
    match device {
        None => super::errors::forget_errors(&host, pool.guid()),
        Some(device) => super::errors::forget_device(&host, pool.guid(), device.guid())?,
    }
    finish(&host, &pool, 0)
}

fn finish(host: &Host, pool: &OpenPool, code: u8) -> Outcome {
    pool.config_changed()?;
    if code == 0 {
        pool.log_command(&command_line())?;
    }
    pool.sync()?;
    let facts = host.facts(&pool.name())?;
    host.remember(pool, &facts)?;
    pool.close()?;
    Ok(code)
}
