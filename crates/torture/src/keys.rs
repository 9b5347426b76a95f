//! Keys of encrypted file systems: each encryption root has one of two, found by trying, since a power cut may leave
//! the one of before a change.

use base::{Error, ErrorKind, Result};
use crypt::{KeyFormat, Suite, WrappingKey};
use dsl::{DslPool, KeyChange, NewRoot};

use crate::Dice;

const KEYS: [&[u8; 32]; 2] = [
    b"0123456789abcdef0123456789ABCDEF",
    b"fedcba98765432100123456789abcdef",
];

fn wrapping(raw: &[u8; 32]) -> Result<WrappingKey> {
    WrappingKey::new(KeyFormat::Raw, raw, 0, 0)
}

/// An encryption root with any suite and any of the keys.
pub(crate) fn any_root(dice: &mut Dice) -> Result<NewRoot> {
    Ok(NewRoot {
        suite: *dice.pick(&Suite::ALL).expect("there are some"),
        format: KeyFormat::Raw,
        salt: 0,
        iterations: 0,
        key: wrapping(dice.pick(&KEYS).expect("there are some"))?,
    })
}

/// Loads the key that a data set needs, if it needs one that is not loaded.
pub(crate) fn load(dsl: &DslPool, name: &str) -> Result<()> {
    let dir = dsl.dataset(name)?.dir();
    let Some(encryption) = dsl.encryption(&dir)?.filter(|e| !e.is_available) else {
        return Ok(());
    };
    let root = dsl.encryption_root(&encryption)?;
    for raw in KEYS {
        match dsl.load_key(&root, wrapping(raw)?, false) {
            Err(e) if e.kind() == ErrorKind::Permission => {}
            done => return done,
        }
    }
    Err(Error::new(
        ErrorKind::Permission,
        format!("{root} has none of the keys"),
    ))
}

/// Gives an encryption root any of the keys, and may unload it unless it is in use; returns whether it is one.
pub(crate) fn change(dsl: &DslPool, name: &str, dice: &mut Dice) -> Result<bool> {
    let dir = dsl.dataset(name)?.dir();
    let encryption = dsl.encryption(&dir)?;
    if encryption.is_none_or(|encryption| encryption.root != dir.object()) {
        return Ok(false);
    }
    load(dsl, name)?;
    let change = KeyChange::New {
        key: any_root(dice)?,
        location: "prompt".to_owned(),
    };
    dsl.change_key(name, change)?;
    if dice.once_in(2) {
        match dsl.unload_key(name) {
            Err(e) if e.kind() == ErrorKind::Busy => {}
            done => done?,
        }
    }
    Ok(true)
}
