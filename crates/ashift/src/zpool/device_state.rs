//! `zpool online`, `offline`, `clear`.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_online`, `zpool_do_offline`, `zpool_do_clear`),
//! lib/libzfs/libzfs_pool.c (`zpool_find_vdev`, `zpool_vdev_offline`).

use admin::getopt::Parsed;
use admin::pool::{VdevKind, VdevStatus};
use base::{ErrorKind, Guid};
use service::{Absence, Access, OpenPool, Rewind, Session};

use super::devices::short_name;
use super::list::name_style;
use super::rewind::exclaim;
use super::{Fail, Outcome, change_error, refuse_power};

/// The device that the user means: by guid, path, or the path without its folder.
#[doc(alias = "zpool_find_vdev")]
pub(super) fn find_device<'v>(root: &'v VdevStatus, word: &str) -> Option<&'v VdevStatus> {
    let guid = word.parse::<u64>().ok();
    let absolute = std::path::absolute(word)
        .ok()
        .map(|p| p.display().to_string());
    root.find(&|vdev| {
        let path = vdev.path.as_deref().unwrap_or_default();
        let is_disk = matches!(vdev.kind, VdevKind::Disk { .. });
        let is_it = Some(vdev.guid) == guid
            || path == word
            || Some(path) == absolute.as_deref()
            || short_name(path, is_disk) == word;
        is_it && (is_disk || vdev.kind == VdevKind::File)
    })
}

/// What OpenZFS says of a hot spare that is not in use.
pub(super) const RESERVED: &str = "device is reserved as a hot spare";

/// Whether the user means a hot spare that this pool does not use.
pub(super) fn is_free_spare(pool: &OpenPool, vdevs: &VdevStatus, word: &str) -> bool {
    let spares = pool.spare_devices();
    find_device(vdevs, word).is_none()
        && spares
            .iter()
            .any(|spare| find_device(spare, word).is_some())
}

/// What OpenZFS says of a cache device.
pub(super) const CACHED: &str = "device is in use as a cache";

/// The cache device that the user means.
fn find_cache(pool: &OpenPool, word: &str) -> Option<VdevStatus> {
    let mut caches = pool.cache_devices().into_iter();
    caches.find(|cache| find_device(cache, word).is_some())
}

/// Whether the user means a cache device.
pub(super) fn is_cache(pool: &OpenPool, word: &str) -> bool {
    find_cache(pool, word).is_some()
}

/// The vdev that is not a leaf, by its name (`mirror-0`) or guid.
pub(super) fn find_group<'v>(root: &'v VdevStatus, word: &str) -> Option<&'v VdevStatus> {
    root.find(&|vdev| {
        !vdev.is_leaf() && (vdev.name(name_style()) == word || vdev.guid.to_string() == word)
    })
}

/// Opens a pool in order to change its devices.
fn open_for_devices(session: &Session, name: &str, what: &str) -> Result<OpenPool, Fail> {
    session.open(name, Access::Write).map_err(|error| {
        let failure = change_error(name, what, &error);
        match failure {
            Fail::Failed(text) if error.kind() == ErrorKind::NotFound => {
                Fail::Failed(format!("{text}\nfailed to open pool \"{name}\""))
            }
            other => other,
        }
    })
}

fn operands(args: &Parsed) -> Result<(&String, &[String]), Fail> {
    match args.operands.split_first() {
        None => Err(Fail::Usage("missing pool name".into())),
        Some((_, [])) => Err(Fail::Usage("missing device name".into())),
        Some(both) => Ok(both),
    }
}

/// `zpool offline`.
pub(super) fn offline(session: &Session, args: &Parsed) -> Outcome {
    refuse_power(args, "offline")?;
    let (name, words) = operands(args)?;
    let pool = open_for_devices(session, name, &format!("cannot offline {}", words[0]))?;
    let vdevs = pool.vdevs();
    let mut code = 0;
    for word in words {
        let verb = if args.has('f') { "fault" } else { "offline" };
        let failed = |text: &str| eprintln!("cannot {verb} {word}: {text}");
        let cache = find_cache(&pool, word);
        let Some(device) = find_device(&vdevs, word).or(cache.as_ref()) else {
            failed(match find_group(&vdevs, word) {
                _ if is_free_spare(&pool, &vdevs, word) => RESERVED,
                Some(_) => "operation not supported on this type of pool",
                // OpenZFS says nothing of this, and fails.
                None if args.has('f') => {
                    code = 1;
                    continue;
                }
                None => "no such device in pool",
            });
            code = 1;
            continue;
        };
        let guid = Guid(device.guid);
        let taken = match args.has('f') {
            true => pool.fault(guid, args.has('t')),
            false => pool.offline(guid, args.has('t')),
        };
        if let Err(error) = taken {
            match error.kind() {
                ErrorKind::Busy => failed("no valid replicas"),
                _ => failed(&error.to_string()),
            }
            code = 1;
        }
    }
    finish(session, &pool, code)
}

/// `zpool online`.
pub(super) fn online(session: &Session, args: &Parsed) -> Outcome {
    refuse_power(args, "online")?;
    let (name, words) = operands(args)?;
    let pool = open_for_devices(session, name, &format!("cannot online {}", words[0]))?;
    let vdevs = pool.vdevs();
    let mut code = 0;
    let mut online = Vec::new();
    for word in words {
        let cache = find_cache(&pool, word);
        let Some(device) = find_device(&vdevs, word).or(cache.as_ref()) else {
            if is_free_spare(&pool, &vdevs, word) {
                eprintln!(
                    "cannot online {word}: {RESERVED}\nFailed to online \"{word}\" in pool \"{name}\": -1"
                );
            } else {
                eprintln!("couldn't find device \"{word}\" in pool \"{name}\"");
            }
            code = 1;
            continue;
        };
        if cache.is_some() && (args.has('e') || pool.autoexpand()) {
            let verb = if args.has('e') { "expand" } else { "online" };
            eprintln!(
                "cannot {verb} {word}: cannot expand cache devices\nFailed to online \"{word}\" in pool \"{name}\": -1"
            );
            code = 1;
            continue;
        }
        match pool.online(Guid(device.guid)) {
            Ok(()) => online.push(Guid(device.guid)),
            Err(Absence::StillMissing) => {
                let path = device.path.as_deref().unwrap_or_default();
                println!(
                    "warning: device '{path}' onlined, but remains in faulted state\nuse 'zpool \
                     replace' to replace devices that are no longer present"
                );
            }
            Err(Absence::Faulted) => {
                let path = device.path.as_deref().unwrap_or_default();
                println!(
                    "warning: device '{path}' onlined, but remains in faulted state\nuse 'zpool \
                     clear' to restore a faulted device"
                );
            }
            Err(absence) => {
                eprintln!("cannot online {word}: {}", absence_text(&absence));
                code = 1;
            }
        }
    }
    pool.catch_up()?;
    if args.has('e') {
        pool.grow(&online)?;
    }
    finish(session, &pool, code)
}

fn absence_text(absence: &Absence) -> String {
    match absence {
        Absence::PathUnknown => "its path is not known".to_owned(),
        Absence::NotFound | Absence::StillMissing | Absence::Faulted => {
            "no such device in pool".to_owned()
        }
        Absence::OtherDevice => {
            "its label says that it is another device: 'zpool replace' takes a new one".to_owned()
        }
        Absence::Error(error) => error.to_string(),
    }
}

/// `zpool clear`.
pub(super) fn clear(session: &Session, args: &Parsed) -> Outcome {
    if (args.has('n') || args.has('X')) && !args.has('F') {
        let text = "-n or -X only meaningful with -F";
        return Err(Fail::Usage(text.into()));
    }
    refuse_power(args, "clear")?;
    let (name, word) = match args.operands.as_slice() {
        [] => return Err(Fail::Usage("missing pool name".into())),
        [name] => (name, None),
        [name, word] => (name, Some(word)),
        _ => return Err(Fail::Usage("too many arguments".into())),
    };
    let what = format!("cannot clear errors for {}", word.unwrap_or(name));
    let mut opened = session.open(name, Access::Write);
    if let (Err(error), true) = (&opened, args.has('F'))
        && !matches!(
            error.kind(),
            ErrorKind::NotFound | ErrorKind::Busy | ErrorKind::ReadOnly
        )
    {
        let rewind = Rewind {
            is_extreme: args.has('X'),
            is_dry_run: args.has('n'),
        };
        let recovered = session.recover(name, rewind);
        let recovered = recovered.map_err(|e| Fail::Failed(format!("{what}: {e}")))?;
        if let Some(rewound) = recovered {
            print!("{}", exclaim(name, rewind.is_dry_run, &rewound));
        }
        if rewind.is_dry_run {
            return Ok(());
        }
        opened = session.open(name, Access::Write);
    }
    let pool = opened.map_err(|e| change_error(name, &what, &e))?;
    let guid = match word {
        None => None,
        Some(word) => {
            let vdevs = pool.vdevs();
            let cache = find_cache(&pool, word);
            let vdev = find_device(&vdevs, word).or_else(|| find_group(&vdevs, word));
            let vdev = vdev.or(cache.as_ref());
            let why = match is_free_spare(&pool, &vdevs, word) {
                true => RESERVED,
                false => "no such device in pool",
            };
            let vdev = vdev.ok_or_else(|| format!("{what}: {why}"))?;
            Some(Guid(vdev.guid))
        }
    };
    let mut code = 0;
    for (device, absence) in pool.clear(guid)? {
        let text = absence_text(&absence);
        eprintln!("cannot clear errors for {device}: {text}");
        code = 1;
    }
    pool.catch_up()?;
    finish(session, &pool, code)
}

fn finish(session: &Session, pool: &OpenPool, code: u8) -> Outcome {
    pool.config_changed()?;
    session.finish_change(pool, code == 0)?;
    Fail::exit(code)
}
