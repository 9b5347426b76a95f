//! `zpool online`, `offline`, `clear`.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_online`, `zpool_do_offline`, `zpool_do_clear`),
//! lib/libzfs/libzfs_pool.c (`zpool_find_vdev`, `zpool_vdev_offline`).

use std::sync::Arc;

use admin::getopt::Parsed;
use admin::pool::VdevStatus;
use base::{ErrorKind, Guid};
use geom::Namespace;
use geom::disk::OpenMode;
use machine::Holder;
use vdev::{Vdev, VdevState};
use zio::AllocClass;

use super::devices::short_name;
use super::gather::vdev_status;
use super::list::name_style;
use super::{Failure, Outcome, change_error, command_line, refuse_options, refuse_power};
use crate::host::{Access, Host, OpenPool};
use crate::machine::current;

/// The device that the user means: by guid, path, or the path without its folder.
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

/// The guid of a vdev that is not a leaf, by its name (`mirror-0`) or guid.
fn find_group(pool: &OpenPool, word: &str) -> Option<Guid> {
    fn find(vdev: &VdevStatus, word: &str) -> Option<Guid> {
        let is_it =
            !vdev.is_leaf() && (vdev.name(name_style()) == word || vdev.guid.to_string() == word);
        if is_it {
            return Some(Guid(vdev.guid));
        }
        vdev.children.iter().find_map(|child| find(child, word))
    }
    find(
        &vdev_status(&pool.tree().root(), 0, AllocClass::Normal),
        word,
    )
}

/// Opens a pool in order to change its devices.
fn open_for_devices(host: &Host, name: &str, what: &str) -> Result<OpenPool, Failure> {
    host.open(name, Access::Write).map_err(|error| {
        let failure = change_error(name, what, &error);
        match failure {
            Failure::Text(text) if error.kind() == ErrorKind::NotFound => {
                Failure::Text(format!("{text}\nfailed to open pool \"{name}\""))
            }
            other => other,
        }
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
    refuse_power(args, "offline")?;
    refuse_options(args, "offline", "f")?;
    if args.has('t') {
        let text = "'zpool offline -t' is not supported: a pool is opened anew by every command";
        return Err(Failure::Text(text.into()));
    }
    let (name, words) = operands(args)?;
    let host = Host::here();
    let pool = open_for_devices(&host, name, &format!("cannot offline {}", words[0]))?;
    let mut code = 0;
    for word in words {
        let failed = |text: &str| eprintln!("cannot offline {word}: {text}");
        let Some(device) = find_device(&pool, word) else {
            failed(match find_group(&pool, word) {
                Some(_) => "operation not supported on this type of pool",
                None => "no such device in pool",
            });
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
    refuse_power(args, "online")?;
    let (name, words) = operands(args)?;
    let host = Host::here();
    let pool = open_for_devices(&host, name, &format!("cannot online {}", words[0]))?;
    let mut code = 0;
    let mut growing = Vec::new();
    for word in words {
        let Some(device) = find_device(&pool, word) else {
            eprintln!("couldn't find device \"{word}\" in pool \"{name}\"");
            code = 1;
            continue;
        };
        if is_missing(&pool, &device) {
            let path = device.config().path.clone().unwrap_or_default();
            println!(
                "warning: device '{path}' onlined, but remains in faulted state\nuse 'zpool \
                 replace' to replace devices that are no longer present"
            );
            continue;
        }
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
    super::catch_up(&pool)?;
    if args.has('e') {
        pool.expand(&|guid| growing.contains(&guid))?;
    }
    finish(&host, &pool, code)
}

/// Whether a device is missing although it was not taken offline.
fn is_missing(pool: &OpenPool, device: &Vdev) -> bool {
    let config = device.config();
    let open = |path: &String| {
        let world = current().ok()?;
        let names = world.names_for(Holder::Pool(pool.name()));
        names.open(path, OpenMode::Inspect).ok()
    };
    !device.leaf().is_usable() && !config.offline && config.path.as_ref().and_then(open).is_none()
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
        let text = "its label says that it is another device, and new devices cannot take the \
                    place of old ones here yet: attach the old one, use 'zpool replace' of an \
                    OpenZFS system, or copy the data to a new pool";
        return Err(text.to_owned());
    }
    pool.tree()
        .online(device.guid(), provider)
        .map_err(|e| e.to_string())
}

/// `zpool clear`.
pub(super) fn clear(args: &Parsed) -> Outcome {
    refuse_options(args, "clear", "FnX")?;
    refuse_power(args, "clear")?;
    let (name, word) = match args.operands.as_slice() {
        [] => return Err(Failure::Usage("missing pool name".into())),
        [name] => (name, None),
        [name, word] => (name, Some(word)),
        _ => return Err(Failure::Usage("too many arguments".into())),
    };
    let host = Host::here();
    let what = format!("cannot clear errors for {}", word.unwrap_or(name));
    let pool = host
        .open(name, Access::Write)
        .map_err(|e| change_error(name, &what, &e))?;
    let guid = match word {
        None => None,
        Some(word) => {
            let device = find_device(&pool, word).map(|device| device.guid());
            let guid = device.or_else(|| find_group(&pool, word));
            Some(guid.ok_or_else(|| format!("{what}: no such device in pool"))?)
        }
    };
    let devices = match guid.and_then(|guid| pool.tree().find(guid)) {
        Some(vdev) => vdev.devices(),
        None => pool.tree().devices(),
    };
    let mut code = 0;
    for device in devices.iter().filter(|device| is_given_up(device)) {
        if let Err(text) = bring_back(&pool, device) {
            eprintln!("cannot clear errors for {}: {text}", device.name());
            code = 1;
        }
    }
    pool.tree().clear(guid)?;
    crate::kept_errors::forget_devices(host.state(), pool.guid(), |device| {
        guid.is_none() || devices.iter().any(|cleared| cleared.guid() == device)
    })?;
    super::catch_up(&pool)?;
    finish(&host, &pool, code)
}

/// Whether a device was already faulted when the pool was opened, and is therefore not open.
fn is_given_up(device: &Vdev) -> bool {
    let leaf = device.leaf();
    leaf.state().0 == VdevState::Faulted && leaf.provider().is_none()
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
