//! Loading and unloading the keys of encryption roots, with the words of OpenZFS.
//!
//! # What it is
//! A key stays loaded in the process that holds the pool. Without one it is tried, and gone with the command, which
//! says so; commands that need a key then ask for it themselves.
//!
//! # Source
//! OpenZFS lib/libzfs/libzfs_crypto.c (`zfs_crypto_load_key`, `zfs_crypto_attempt_load_keys`,
//! `zfs_crypto_unload_key`).

use base::{Error, ErrorKind, Result};
use dsl::Encryption;
use service::{Access, OpenPool, Session};

use crate::caller::caller;
use crate::failure::{Fail, Outcome};

/// How often a user may try to type a key.
const ATTEMPTS_MAX: usize = 3;

fn cannot_load(why: &str) -> Fail {
    Fail::Failed(format!("Key load error: {why}"))
}

fn failed_to_load(error: &Error) -> Fail {
    cannot_load(&error.to_string())
}

/// Loads the key of an encryption root; typed ones are asked for again when they are wrong. With `only_checks`, it is
/// only tried. `location`: where it is, if not where `keylocation` says.
#[doc(alias = "zfs_crypto_load_key")]
pub(crate) fn load(
    pool: &OpenPool,
    root: &str,
    encryption: &Encryption,
    only_checks: bool,
    location: Option<&str>,
) -> Outcome {
    if !only_checks && encryption.is_available {
        return Err(cannot_load(&format!("Key already loaded for '{root}'.")));
    }
    let set = pool.key_location(root).map_err(|e| failed_to_load(&e))?;
    let location = location.unwrap_or(&set);
    let is_typed = location == "prompt" && caller().reads_terminal();
    let mut attempts = 1;
    loop {
        let key = pool.ask_for_key(root, encryption, location);
        let loaded = key.and_then(|key| pool.load_key(root, key, only_checks));
        let Err(error) = loaded else {
            return Ok(());
        };
        let why = match error.kind() {
            ErrorKind::Permission => format!("Incorrect key provided for '{root}'."),
            _ => error.to_string(),
        };
        if !is_typed || attempts == ATTEMPTS_MAX {
            return Err(cannot_load(&why));
        }
        let _ = cannot_load(&why).say("");
        attempts += 1;
    }
}

/// Loads the key that the contents of a data set are under.
pub(crate) fn unlock(pool: &OpenPool, name: &str) -> Outcome {
    let found = encryption(pool, name).map_err(|e| failed_to_load(&e))?;
    let Some(encryption) = found else {
        return Ok(());
    };
    let root = pool.datasets().encryption_root(&encryption);
    let root = root.map_err(|e| failed_to_load(&e))?;
    load(pool, &root, &encryption, false, None)
}

/// Loads the keys of all encryption roots of an imported pool that are not loaded, and says how many. Returns whether
/// all are loaded now.
///
/// # Errors
/// Any error from reading the pool.
#[doc(alias = "zfs_crypto_attempt_load_keys")]
pub(crate) fn load_all(session: &Session, pool: &str) -> Result<bool> {
    let pool = session.open(pool, Access::Read)?;
    let (mut tried, mut failed) = (0, 0);
    let mut names = vec![pool.name()];
    while let Some(name) = names.pop() {
        let mut below = pool.datasets().children(&name)?;
        below.sort_by(|a, b| b.cmp(a));
        names.extend(below);
        let Some(encryption) = encryption(&pool, &name)?.filter(|it| !it.is_available) else {
            continue;
        };
        if pool.datasets().encryption_root(&encryption)? != name {
            continue;
        }
        tried += 1;
        if let Err(fail) = load(&pool, &name, &encryption, false, None) {
            let _ = fail.say("");
            failed += 1;
        }
    }
    println!("{} / {tried} keys successfully loaded", tried - failed);
    if tried > failed {
        say_forgotten(&pool);
    }
    pool.close()?;
    Ok(failed == 0)
}

/// Says that a key which was loaded does not stay so, unless a process holds the pool.
pub(crate) fn say_forgotten(pool: &OpenPool) {
    if !pool.is_kept() {
        eprintln!(
            "the key is right, and forgotten when this command ends: it stays loaded while a process holds the pool \
             ('ashift serve')"
        );
    }
}

/// Unloads the key of an encryption root.
#[doc(alias = "zfs_crypto_unload_key")]
pub(crate) fn unload(pool: &OpenPool, root: &str) -> Outcome {
    pool.unload_key(root).map_err(|error| {
        let why = match error.kind() {
            ErrorKind::Busy => format!("'{root}' is busy."),
            _ => error.to_string(),
        };
        Fail::Failed(format!("Key unload error: {why}"))
    })
}

fn encryption(pool: &OpenPool, name: &str) -> Result<Option<Encryption>> {
    let dataset = pool.datasets().find(name)?;
    pool.datasets().encryption(&dataset)
}
