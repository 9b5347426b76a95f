//! `zfs load-key` and `zfs unload-key`.
//!
//! # What it is
//! A key stays loaded in the process that holds the pool. Without one it is tried, and gone with the command, which
//! says so; commands that need a key then ask for it themselves.
//!
//! # Source
//! OpenZFS cmd/zfs/zfs_main.c (`load_unload_keys`), lib/libzfs/libzfs_crypto.c (`zfs_crypto_load_key`,
//! `zfs_crypto_unload_key`).

use std::sync::Arc;

use admin::getopt::Parsed;
use admin::prop::{PropError, TableKind, Types, is_keylocation, parse_value};
use base::{Error, ErrorKind};
use crypt::Suite;
use dsl::{Encryption, NewRoot};
use phys::{PropValue, feature};
use service::{NewKey, OpenPool, Session};

use super::fail::{Fail, Outcome};
use super::set::Typed;
use super::target::{self, Selection, Target};
use crate::caller::caller;

/// How often a user may try to type a key.
const ATTEMPTS_MAX: usize = 3;

/// `ZIO_CRYPT_ON`
const CRYPT_ON: u64 = 1;
/// `ZIO_CRYPT_OFF`
const CRYPT_OFF: u64 = 2;

/// What is done with keys.
#[derive(Clone, Copy)]
enum Deed<'a> {
    Load {
        only_checks: bool,
        location: Option<&'a str>,
    },
    Unload,
}

impl Deed<'_> {
    fn name(self) -> &'static str {
        match self {
            Deed::Load { .. } => "Key load error",
            Deed::Unload => "Key unload error",
        }
    }

    /// What was done, in the sentence that counts keys.
    fn done(self) -> &'static str {
        match self {
            Deed::Load {
                only_checks: true, ..
            } => "verified",
            Deed::Load { .. } => "loaded",
            Deed::Unload => "unloaded",
        }
    }
}

/// `zfs load-key`.
pub(super) fn load_key(session: &Session, parsed: &Parsed) -> Outcome {
    let deed = Deed::Load {
        only_checks: parsed.has('n'),
        location: parsed.value('L'),
    };
    for_keys(session, parsed, deed)
}

/// `zfs unload-key`.
pub(super) fn unload_key(session: &Session, parsed: &Parsed) -> Outcome {
    for_keys(session, parsed, Deed::Unload)
}

#[doc(alias = "load_unload_keys")]
fn for_keys(session: &Session, parsed: &Parsed, deed: Deed<'_>) -> Outcome {
    let (all, names) = (parsed.has('a'), &parsed.operands[..]);
    let recurses = all || parsed.has('r');
    if !all && names.is_empty() {
        return Err(Fail::usage("Missing dataset argument or -a option"));
    }
    if all && !names.is_empty() {
        return Err(Fail::usage("Cannot specify dataset with -a option"));
    }
    if recurses
        && let Deed::Load {
            location: Some(location),
            ..
        } = deed
        && location != "prompt"
    {
        let text = "alternate keylocation may only be 'prompt' with -r or -a";
        return Err(Fail::usage(text));
    }
    let selection = Selection {
        types: Types::FILESYSTEM.or(Types::VOLUME),
        snapshots_as_pool_says: false,
        recurses: parsed.has('r'),
        depth: None,
    };
    let (targets, mut outcome) = selection.gather(session, names);
    let (mut tried, mut failed) = (0, 0);
    for target in &targets {
        if recurses && !is_of_interest(target, deed)? {
            continue;
        }
        tried += 1;
        if let Err(fail) = act(target, deed) {
            fail.say("");
            failed += 1;
        }
    }
    let counts = matches!(
        deed,
        Deed::Load {
            only_checks: true,
            ..
        }
    );
    if counts || recurses && tried != 0 {
        let (right, done) = (tried - failed, deed.done());
        println!("{right} / {tried} key(s) successfully {done}");
    }
    if failed != 0 {
        outcome = Err(Fail::Said(255));
    }
    outcome
}

/// The `keylocation` of an encrypted data set, or why it cannot be that.
pub(super) fn checked_location(target: &Target, location: &str) -> Result<PropValue, String> {
    let encryption = encryption(target).map_err(|e| e.to_string())?;
    let why = match encryption {
        Some(encryption) if !is_root(target, &encryption) => {
            "keylocation may only be set on encryption roots"
        }
        _ if location == "none" => "keylocation must not be 'none' for encrypted datasets",
        _ if !is_keylocation(location) => "invalid keylocation",
        _ => return Ok(PropValue::Text(location.to_owned())),
    };
    Err(why.to_owned())
}

/// What `-o` says of the key of a new encryption root.
pub(super) struct OfKey {
    suite: u64,
    format: u64,
    pub(super) location: String,
    iterations: Option<u64>,
}

/// Whether this property is one of the key of a data set.
pub(super) fn is_of_key(name: &str) -> bool {
    ["encryption", "keyformat", "keylocation", "pbkdf2iters"].contains(&name)
}

/// What is said of a key on the command line.
pub(super) struct Said<'a>(pub(super) &'a Typed);

impl Said<'_> {
    /// What is said of a property of the key.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The same as a number.
    ///
    /// # Errors
    /// In the words of `zfs`, if it is none.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, PropError> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let desc = TableKind::Dataset
            .lookup(name)
            .expect("a property of the table");
        Ok(parse_value(desc, name, text, Types::FILESYSTEM)?.as_number())
    }
}

/// Takes what is said of a new key out of the properties of a data set that is to be created below `parent`.
#[doc(alias = "zfs_crypto_create")]
pub(super) fn split_new(
    pool: &Arc<OpenPool>,
    parent: Option<&str>,
    typed: &Typed,
    what: &str,
) -> Outcome<(Option<OfKey>, Typed)> {
    let fail = |why: &str| Fail::failed(format!("{what}: {why}"));
    let is_enabled = pool.feature(feature::ENCRYPTION) != spa::FeatureState::Disabled;
    let (ours, others): (Typed, Typed) = typed.iter().cloned().partition(|(n, _)| is_of_key(n));
    // What does nothing, and what is wrong, is for the table of properties.
    let does_nothing = ours
        .iter()
        .all(|(_, value)| value == "off" || value == "none");
    let above = match parent.map(|parent| target::find(pool, parent)) {
        Some(Ok(parent)) => encryption(&parent).map_err(|e| fail(&e.to_string()))?,
        _ => None,
    };
    if ours.is_empty() || does_nothing && above.is_none() {
        return Ok((None, typed.clone()));
    }
    if !is_enabled {
        return Err(fail("Encryption feature not enabled."));
    }
    let said = Said(&ours);
    let number = |name: &str| said.number(name).map_err(|e| fail(&e.to_string()));
    let suite = match (number("encryption")?, &above) {
        (Some(CRYPT_ON), _) => Suite::Aes256Gcm as u64,
        (Some(CRYPT_OFF), Some(_)) => {
            return Err(fail("Invalid encryption value. Dataset must be encrypted."));
        }
        (Some(suite), _) if suite != CRYPT_OFF => suite,
        (None, Some(above)) => above.suite as u64,
        _ => {
            return Err(fail(
                "Encryption must be turned on to set encryption properties.",
            ));
        }
    };
    let format = number("keyformat")?.filter(|format| *format != 0);
    let location = said
        .text("keylocation")
        .filter(|location| *location != "none");
    let Some(format) = format else {
        return Err(fail(match (location, &above) {
            (None, Some(_)) => "another suite than that above it is not supported yet",
            _ => "Keyformat required for new encryption root.",
        }));
    };
    let of_key = OfKey {
        suite,
        format,
        location: location.unwrap_or("prompt").to_owned(),
        iterations: number("pbkdf2iters")?,
    };
    Ok((Some(of_key), others))
}

impl OfKey {
    /// Asks for the key.
    pub(super) fn ask(&self, pool: &OpenPool, name: &str) -> Outcome<NewRoot> {
        let new = NewKey {
            suite: self.suite,
            format: self.format,
            location: &self.location,
            iterations: self.iterations,
        };
        let asked = pool.ask_for_new_key(name, &new);
        asked.map_err(|e| Fail::failed(format!("cannot create '{name}': {e}")))
    }
}

/// Whether a data set is an encryption root whose key is not yet as it is to be.
fn is_of_interest(target: &Target, deed: Deed<'_>) -> Outcome<bool> {
    let Some(encryption) = encryption(target).map_err(|e| Fail::of(deed.name(), &e))? else {
        return Ok(false);
    };
    let is_done = encryption.is_available == matches!(deed, Deed::Load { .. });
    Ok(is_root(target, &encryption) && !is_done)
}

pub(super) fn encryption(target: &Target) -> base::Result<Option<Encryption>> {
    let dataset = target.dataset().expect("no bookmark was selected");
    target.datasets().encryption(dataset)
}

pub(super) fn is_root(target: &Target, encryption: &Encryption) -> bool {
    let dataset = target.dataset().expect("no bookmark was selected");
    dataset.dir().object() == encryption.root
}

fn act(target: &Target, deed: Deed<'_>) -> Outcome {
    let name = &target.name;
    let fail = |why: &str| Fail::failed(format!("{}: {why}", deed.name()));
    let failed = |error: Error| fail(&error.to_string());
    if target.pool.feature(feature::ENCRYPTION) == spa::FeatureState::Disabled {
        return Err(fail("Encryption feature not enabled."));
    }
    let Some(encryption) = encryption(target).map_err(failed)? else {
        return Err(fail(&format!("'{name}' is not encrypted.")));
    };
    if !is_root(target, &encryption) {
        let root = target.datasets().encryption_root(&encryption);
        let root = root.map_err(failed)?;
        let verb = match deed {
            Deed::Load { .. } => "loaded",
            Deed::Unload => "unloaded",
        };
        return Err(fail(&format!(
            "Keys must be {verb} for encryption root of '{name}' ({root})."
        )));
    }
    match deed {
        Deed::Load {
            only_checks,
            location,
        } => {
            load(target, &encryption, only_checks, location)?;
            if !only_checks && !target.pool.is_kept() {
                eprintln!(
                    "the key is right, and forgotten when this command ends: it stays loaded while a process holds the \
                     pool ('ashift serve')"
                );
            }
            Ok(())
        }
        Deed::Unload if !encryption.is_available => {
            Err(fail(&format!("Key already unloaded for '{name}'.")))
        }
        Deed::Unload => target.pool.unload_key(name).map_err(|e| match e.kind() {
            ErrorKind::Busy => fail(&format!("'{name}' is busy.")),
            _ => failed(e),
        }),
    }
}

/// `zfs mount -l`: loads the key that the contents of a data set are under.
pub(super) fn unlock(target: &Target) -> Outcome {
    let failed = |e: Error| Fail::failed(format!("Key load error: {e}"));
    let Some(encryption) = encryption(target).map_err(failed)? else {
        return Ok(());
    };
    let root = target.datasets().encryption_root(&encryption);
    let root = target::find(&target.pool, &root.map_err(failed)?).map_err(failed)?;
    load(&root, &encryption, false, None)
}

/// Loads the key of an encryption root; typed ones are asked for again when they are wrong.
fn load(
    target: &Target,
    encryption: &Encryption,
    only_checks: bool,
    location: Option<&str>,
) -> Outcome {
    let name = &target.name;
    let fail = |why: &str| Fail::failed(format!("Key load error: {why}"));
    if !only_checks && encryption.is_available {
        return Err(fail(&format!("Key already loaded for '{name}'.")));
    }
    let set = target.pool.key_location(name);
    let set = set.map_err(|e| fail(&e.to_string()))?;
    let location = location.unwrap_or(&set);
    let is_typed = location == "prompt" && caller().reads_terminal();
    let mut attempts = 1;
    loop {
        let key = target.pool.ask_for_key(name, encryption, location);
        let loaded = key.and_then(|key| target.pool.load_key(name, key, only_checks));
        let Err(error) = loaded else {
            break;
        };
        let why = match error.kind() {
            ErrorKind::Permission => format!("Incorrect key provided for '{name}'."),
            _ => error.to_string(),
        };
        if !is_typed || attempts == ATTEMPTS_MAX {
            return Err(fail(&why));
        }
        fail(&why).say("");
        attempts += 1;
    }
    Ok(())
}
