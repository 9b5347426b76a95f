//! `zfs mount` and `zfs unmount`.
//!
//! # What it is
//! The process that holds the pools mounts them. If there is none, `zfs mount` starts one in the background, and has it
//! run the command.
//!
//! # Source
//! OpenZFS cmd/zfs/zfs_main.c (`share_mount`, `share_mount_one`, `unshare_unmount`, `unshare_unmount_path`).

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use admin::getopt::Parsed;
use admin::listing::json_document;
use admin::name::pool_of;
use admin::prop::Types;
use service::{MountedDataset, Mountpoint, Session};

use super::fail::{Fail, Outcome, for_each, words};
use super::key;
use super::target::{Selection, Target, open};
use crate::mounting::{self, Change, Failed, How, Moved};
use crate::{background, holder, keys};

/// What `-o` and `-O` say.
#[derive(Default)]
struct Wanted {
    how: How,
    /// `-l`: keys that are not loaded are.
    loads_keys: bool,
}

fn wanted(parsed: &Parsed) -> Outcome<Wanted> {
    let mut wanted = Wanted::default();
    wanted.how.overlays = parsed.has('O');
    wanted.loads_keys = parsed.has('l');
    for text in parsed.values('o') {
        if text.is_empty() {
            return Err(Fail::usage("empty mount options (-o) specified"));
        }
        wanted.how.take(text);
    }
    Ok(wanted)
}

/// `zfs mount`.
pub(super) fn mount(session: &Session, parsed: &Parsed) -> Outcome {
    let wanted = wanted(parsed)?;
    let (all, recursive) = (parsed.has('a'), parsed.has('R'));
    let names = &parsed.operands[..];
    let several = all || recursive;
    if parsed.has('j') && !names.is_empty() || all && !names.is_empty() {
        return Err(Fail::usage("too many arguments"));
    }
    if recursive && names.is_empty() && !all {
        return Err(Fail::usage("no dataset provided"));
    }
    match names {
        [] if !several && parsed.values('o').next().is_some() => {
            let text = "missing filesystem argument (specify -a for all)";
            return Err(Fail::usage(text));
        }
        [] if !several => return list(session, parsed.has('j')),
        [_, _, ..] if !several => return Err(Fail::usage("too many arguments")),
        _ => {}
    }
    if session.pools().world().is_machine() {
        let dataset = names.first().map_or("POOL/DATASET", String::as_str);
        return Err(Fail::failed(format!(
            "cannot mount: nothing of a machine is mounted on this host; the files are reached with 'ashift ls \
             {dataset}:/path', 'ashift cp' and so on"
        )));
    }
    if !session.pools().stay_open() && is_imported(session, names)? {
        return by_holder(parsed);
    }
    if !several {
        return mount_one(&open(session, &names[0], Types::FILESYSTEM)?, &wanted, true);
    }
    let mut failed = Failed::default();
    for_each(gather(session, names)?, |(directory, target)| {
        let directory = directory.as_deref().filter(|it| it.starts_with('/'));
        if directory.is_some_and(|directory| failed.is_above(directory)) {
            return Ok(());
        }
        mount_one(&target, &wanted, false).inspect_err(|_| {
            failed.extend(directory);
        })
    })
}

/// Whether one of these pools, or any, is imported: then a holder is of use.
fn is_imported(session: &Session, names: &[String]) -> Outcome<bool> {
    let imported = session.pools().names()?;
    let is_one = |name: &String| imported.iter().any(|pool| pool == pool_of(name));
    Ok(match names {
        [] => !imported.is_empty(),
        names => names.iter().any(is_one),
    })
}

/// Starts a process that holds the pools, and has it run this command.
fn by_holder(parsed: &Parsed) -> Outcome {
    let mut words: Vec<String> = ["zfs", "mount"].map(str::to_owned).into();
    let flags = ['a', 'f', 'l', 'O', 'R', 'v'].into_iter();
    words.extend(flags.filter(|f| parsed.has(*f)).map(|f| format!("-{f}")));
    for options in parsed.values('o') {
        words.extend(["-o".to_owned(), options.to_owned()]);
    }
    words.push("--".to_owned());
    words.extend_from_slice(&parsed.operands);
    let started = background::start(&["serve", "--background"], "ashift serve: ");
    // Another command may have started one meanwhile.
    match (
        holder::forward(&crate::state::state_folder(), &words),
        started,
    ) {
        (Some(outcome), _) => outcome,
        (None, Err(error)) => Err(Fail::failed(format!("cannot mount: {error}"))),
        (None, Ok(())) => Err(Fail::failed(
            "cannot mount: the holder of the pools has ended",
        )),
    }
}

/// The file systems of all pools, or those named with all below them, in the order of their directories.
#[doc(alias = "get_all_datasets")]
fn gather(session: &Session, names: &[String]) -> Outcome<Vec<(Option<String>, Target)>> {
    let shows_usage = |fail: Fail| match fail {
        Fail::Failed(text) => Fail::Usage(text),
        fail => fail,
    };
    for name in names {
        open(session, name, Types::FILESYSTEM).map_err(shows_usage)?;
    }
    let selection = Selection {
        types: Types::FILESYSTEM,
        snapshots_as_pool_says: false,
        recurses: true,
        depth: None,
    };
    let (found, outcome) = selection.gather(session, names);
    outcome?;
    let mut by_directory = Vec::new();
    for target in found {
        let settings = target.pool.mount_settings(&target.name);
        let settings =
            settings.map_err(|e| Fail::of(format!("cannot open '{}'", target.name), &e))?;
        let directory = settings.map(|settings| settings.text().to_owned());
        by_directory.push((directory, target));
    }
    by_directory.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(by_directory)
}

/// Mounts one. `is_explicit`: it was named, so that it is a failure if it cannot be mounted.
#[doc(alias = "share_mount_one")]
fn mount_one(target: &Target, wanted: &Wanted, is_explicit: bool) -> Outcome {
    let name = target.name.as_str();
    let cannot = |why: &str| Fail::failed(format!("cannot mount '{name}': {why}"));
    let settings = target.pool.mount_settings(name);
    let Some(settings) = settings.map_err(|e| cannot(&words(&e)))? else {
        return Ok(());
    };
    let pools = target.pool.pools();
    let mounted = mounting::find(&target.pool, name);
    let obstacle = match settings.mountpoint {
        Mountpoint::Legacy => Some("legacy mountpoint\nuse mount(8) to mount this filesystem"),
        Mountpoint::None => Some("no mountpoint set"),
        Mountpoint::At(_) if settings.is_never => Some("'canmount' property is set to 'off'"),
        Mountpoint::At(_) if !settings.is_automatic && !is_explicit => Some(""),
        Mountpoint::At(_) if mounted.is_some() && !wanted.how.remounts => {
            Some("filesystem already mounted")
        }
        Mountpoint::At(_) => None,
    };
    match obstacle {
        Some(why) if is_explicit => return Err(cannot(why)),
        Some(_) => return Ok(()),
        None => {}
    }
    if target.is_redacted() {
        return match is_explicit {
            true => Err(cannot(
                "Dataset is not complete, was created by receiving a redacted zfs send stream.",
            )),
            false => Ok(()),
        };
    }
    if !target
        .pool
        .is_unlocked(name)
        .map_err(|e| cannot(&words(&e)))?
    {
        match (wanted.loads_keys, is_explicit) {
            (true, _) => keys::unlock(&target.pool, name)?,
            (false, true) => return Err(cannot("encryption key not loaded")),
            (false, false) => return Ok(()),
        }
    }
    match mounted {
        Some(mounted) => mounting::remount(pools, &mounted, &wanted.how),
        None => mounting::mount(&target.pool, name, &wanted.how),
    }
}

/// Prints what is mounted.
fn list(session: &Session, as_json: bool) -> Outcome {
    let mounted = session.pools().mounted();
    if !as_json {
        for it in mounted {
            println!("{:<30}  {}", it.name, it.directory.display());
        }
        return Ok(());
    }
    if mounted.is_empty() {
        return Ok(());
    }
    let mut datasets = serde_json::Map::new();
    for it in mounted {
        let directory = it.directory.display().to_string();
        let entry = serde_json::json!({ "filesystem": it.name, "mountpoint": directory });
        datasets.insert(it.name, entry);
    }
    let mut body = serde_json::Map::new();
    body.insert("datasets".to_owned(), serde_json::Value::Object(datasets));
    print!("{}", json_document("zfs mount", body));
    Ok(())
}

/// `zfs unmount`. `-f` changes nothing, as in OpenZFS on Linux: what is in use stays mounted.
pub(super) fn unmount(session: &Session, parsed: &Parsed) -> Outcome {
    let unloads = parsed.has('u');
    match (parsed.has('a'), &parsed.operands[..]) {
        (true, []) => unmount_all(session, unloads),
        (false, []) => Err(Fail::usage("missing filesystem argument")),
        (true, _) | (_, [_, _, ..]) => Err(Fail::usage("too many arguments")),
        (false, [path]) if path.starts_with('/') => unmount_path(session, path, unloads),
        (false, [name]) => {
            let target = open(session, name, Types::FILESYSTEM)?;
            if is_legacy(&target)? {
                return Err(legacy(name));
            }
            if mounting::find(&target.pool, name).is_none() {
                let text = format!("cannot unmount '{name}': not currently mounted");
                return Err(Fail::failed(text));
            }
            with_those_below(&target, unloads)
        }
    }
}

fn is_legacy(target: &Target) -> Outcome<bool> {
    let settings = target.pool.mount_settings(&target.name);
    let settings = settings.map_err(|e| Fail::of(format!("cannot open '{}'", target.name), &e))?;
    Ok(settings.is_some_and(|settings| settings.mountpoint == Mountpoint::Legacy))
}

fn legacy(name: &str) -> Fail {
    Fail::failed(format!(
        "cannot unmount '{name}': legacy mountpoint\nuse umount(8) to unmount this filesystem"
    ))
}

/// Unmounts a file system and those below it; with `unloads`, also unloads the keys of those that are encryption roots.
#[doc(alias = "zfs_unmountall")]
fn with_those_below(target: &Target, unloads: bool) -> Outcome {
    let moved = Moved::of(&target.pool, &target.name, Change::Nothing);
    let what = || format!("cannot unmount '{}'", target.name);
    moved.map_err(|e| Fail::of(what(), &e))?.take_down()?;
    if !unloads {
        return Ok(());
    }
    let all = target.with_descendants();
    let all = all.map_err(|e| Fail::of(what(), &e))?;
    for_each(all.iter().rev(), unload)
}

/// Unloads the key of a file system that was unmounted, if it is an encryption root; mounts it again if that fails.
fn unload(target: &Target) -> Outcome {
    let failed = |e| Fail::of("Key unload error", &e);
    let encryption = key::encryption(target).map_err(failed)?;
    let is_loaded = |it: &dsl::Encryption| it.is_available && key::is_root(target, it);
    if !encryption.is_some_and(|it| is_loaded(&it)) {
        return Ok(());
    }
    keys::unload(&target.pool, &target.name).inspect_err(|_| {
        let _ = mounting::mount(&target.pool, &target.name, &How::default());
    })
}

fn unmount_all(session: &Session, unloads: bool) -> Outcome {
    let mut mounted: Vec<MountedDataset> = session.pools().mounted();
    mounted.sort_by(|a, b| b.directory.cmp(&a.directory));
    for_each(mounted, |it| {
        let target = open(session, &it.name, Types::FILESYSTEM)?;
        let settings = target.pool.mount_settings(&it.name);
        let settings = settings.map_err(|e| Fail::of(format!("cannot open '{}'", it.name), &e))?;
        let stays = settings.is_some_and(|settings| {
            let is_noauto = !settings.is_automatic && !settings.is_never;
            is_noauto || settings.mountpoint == Mountpoint::Legacy
        });
        match stays {
            true => Ok(()),
            false => mounting::unmount(&target.pool, &it.name),
        }?;
        match unloads && !stays {
            true => unload(&target),
            false => Ok(()),
        }
    })
}

fn unmount_path(session: &Session, path: &str, unloads: bool) -> Outcome {
    let cannot = |why: &str| Fail::failed(format!("cannot unmount '{path}': {why}"));
    if fuse::is_stale(Path::new(path)) {
        return fuse::clear_stale(Path::new(path)).map_err(|e| cannot(&e.to_string()));
    }
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        Err(error) => {
            let text = error.to_string();
            let why = text.split(" (os error").next().unwrap_or_default();
            return Err(Fail::failed(format!(
                "cannot open '{path}': {why}\nwarning: {path} not in/proc/self/mounts\n{path}: {why}"
            )));
        }
    };
    let mut mounted = session.pools().mounted().into_iter();
    let is_it = |it: &MountedDataset| {
        std::fs::metadata(&it.directory).is_ok_and(|own| own.dev() == found.dev())
    };
    let it = mounted.find(is_it);
    let it = it.ok_or_else(|| cannot("not a ZFS filesystem"))?;
    if std::fs::canonicalize(path)? != it.directory {
        return Err(cannot("not a mountpoint"));
    }
    let target = open(session, &it.name, Types::FILESYSTEM)?;
    match is_legacy(&target)? {
        true => Err(legacy(&it.name)),
        false => with_those_below(&target, unloads),
    }
}
