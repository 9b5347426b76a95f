//! `zfs load-key` and `zfs unload-key`.
//!
//! # Source
//! OpenZFS cmd/zfs/zfs_main.c (`load_unload_keys`), lib/libzfs/libzfs_crypto.c (`zfs_crypto_load_key`,
//! `zfs_crypto_unload_key`).

use std::sync::Arc;

use admin::getopt::Parsed;
use admin::prop::{Types, is_keylocation};
use base::Error;
use dsl::Encryption;
use phys::{PropValue, feature};
use service::{OpenPool, Session};

use super::fail::{Fail, Outcome};
use super::set::Typed;
use super::target::{self, Selection, Target};
use crate::keys::{self, Choice};

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

/// Takes what is said of encryption out of the properties of a data set that is to be created below `parent`.
pub(super) fn split_new(
    pool: &Arc<OpenPool>,
    parent: Option<&str>,
    typed: &Typed,
    what: &str,
) -> Outcome<(Choice, Typed)> {
    let fail = |why: &str| Fail::failed(format!("{what}: {why}"));
    let is_enabled = pool.feature(feature::ENCRYPTION) != spa::FeatureState::Disabled;
    let (ours, others): (Typed, Typed) = typed
        .iter()
        .cloned()
        .partition(|(name, _)| keys::is_of_key(name));
    let above = match parent.map(|parent| target::find(pool, parent)) {
        Some(Ok(parent)) => encryption(&parent).map_err(|e| fail(&e.to_string()))?,
        _ => None,
    };
    let choice = Choice::of(&ours, above.map(|above| above.suite), is_enabled);
    Ok((choice.map_err(|why| fail(&why))?, others))
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
            keys::load(&target.pool, name, &encryption, only_checks, location)?;
            if !only_checks {
                keys::say_forgotten(&target.pool);
            }
            Ok(())
        }
        Deed::Unload if !encryption.is_available => {
            Err(fail(&format!("Key already unloaded for '{name}'.")))
        }
        Deed::Unload => keys::unload(&target.pool, name),
    }
}
