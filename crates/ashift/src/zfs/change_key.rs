//! `zfs change-key`.
//!
//! # Source
//! OpenZFS cmd/zfs/zfs_main.c (`zfs_do_change_key`), lib/libzfs/libzfs_crypto.c (`zfs_crypto_rewrap`).

use admin::getopt::Parsed;
use admin::prop::{Types, is_keylocation};
use base::Error;
use dsl::{Encryption, KeyChange};
use phys::feature;
use service::{NewKey, Session};

use super::fail::{Fail, Outcome};
use super::key::{encryption, is_root};
use super::set::{Typed, split_assignments};
use super::target::{Target, open};
use crate::keys::{self, Said};

/// Exit code of a failed change: OpenZFS returns what its library does, which is -1.
const NOT_CHANGED: u8 = 255;

fn fail(why: &str) -> Fail {
    Fail::Exits(NOT_CHANGED, format!("Key change error: {why}"))
}

fn failed(error: &Error) -> Fail {
    fail(&error.to_string())
}

/// `zfs change-key`.
pub(super) fn change_key(session: &Session, parsed: &Parsed) -> Outcome {
    let typed = split_assignments(parsed.values('o'))?;
    let name = match &parsed.operands[..] {
        [] => return Err(Fail::usage("Missing dataset argument")),
        [name] => name,
        _ => return Err(Fail::usage("Too many arguments")),
    };
    let target = open(session, name, Types::FILESYSTEM.or(Types::VOLUME))?;
    let is_locked = !target.pool.is_unlocked(name).map_err(|e| failed(&e))?;
    // Where no process holds the pool, no other command could have loaded the key.
    if is_locked && (parsed.has('l') || !target.pool.is_kept()) {
        keys::unlock(&target.pool, name).map_err(|fail| {
            fail.say("");
            Fail::Said(NOT_CHANGED)
        })?;
    }
    let change = wanted(&target, parsed.has('i'), &typed)?;
    let changed = target
        .pool
        .change_datasets(|datasets| datasets.change_key(name, change));
    changed.map_err(|e| failed(&e))
}

/// What the options ask for.
#[doc(alias = "zfs_crypto_rewrap")]
fn wanted(target: &Target, inherits: bool, typed: &Typed) -> Outcome<KeyChange> {
    if target.pool.feature(feature::ENCRYPTION) == spa::FeatureState::Disabled {
        return Err(fail("Encryption feature not enabled."));
    }
    let found = encryption(target).map_err(|e| failed(&e))?;
    let encryption = found.ok_or_else(|| fail("Dataset not encrypted."))?;
    let known = ["keyformat", "keylocation", "pbkdf2iters"];
    if inherits && !typed.is_empty() {
        return Err(fail(
            "Only user properties may be set with 'zfs change-key -i'.",
        ));
    }
    if typed
        .iter()
        .any(|(name, _)| !known.contains(&name.as_str()))
    {
        return Err(fail(
            "Only keyformat, keylocation and pbkdf2iters may be set with this command.",
        ));
    }
    if inherits {
        return Ok(KeyChange::Inherit);
    }
    if !encryption.is_available {
        return Err(fail("Key must be loaded."));
    }
    new_key(target, &encryption, typed)
}

/// Asks for the new key; an encryption root keeps what is not given.
fn new_key(target: &Target, encryption: &Encryption, typed: &Typed) -> Outcome<KeyChange> {
    let said = Said(typed);
    let number = |name: &str| said.number(name).map_err(|e| fail(&e.to_string()));
    let name = &target.name;
    let is_root = is_root(target, encryption);
    let given = number("keyformat")?.filter(|format| *format != 0);
    let format = given.or(is_root.then_some(encryption.format as u64));
    let format = format.ok_or_else(|| fail("Keyformat required for new encryption root."))?;
    let set = target.pool.key_location(name).map_err(|e| failed(&e))?;
    let location = match said.text("keylocation") {
        Some(location) if location == "none" || !is_keylocation(location) => {
            return Err(fail("invalid keylocation"));
        }
        Some(location) => location.to_owned(),
        None if is_root => set,
        None => "prompt".to_owned(),
    };
    let new = NewKey {
        suite: encryption.suite as u64,
        format,
        location: &location,
        iterations: number("pbkdf2iters")?,
    };
    let key = target.pool.pools().ask_for_new_key(name, &new);
    Ok(KeyChange::New {
        key: key.map_err(|e| failed(&e))?,
        location,
    })
}
