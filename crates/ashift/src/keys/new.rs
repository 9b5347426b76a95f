//! What the properties of a new data set say of its encryption.
//!
//! # Source
//! OpenZFS lib/libzfs/libzfs_crypto.c (`zfs_crypto_create`).

use admin::prop::{PropError, TableKind, Types, is_keylocation, parse_value};
use crypt::Suite;
use dsl::{Encrypted, NewRoot};
use phys::PropValue;
use service::{NewKey, Pools};

use crate::failure::{Fail, Outcome};

/// `ZIO_CRYPT_ON`
const CRYPT_ON: u64 = 1;
/// `ZIO_CRYPT_OFF`
const CRYPT_OFF: u64 = 2;

/// Properties as typed: name and value.
type Typed = [(String, String)];

/// Whether this property is one of the key of a data set.
pub(crate) fn is_of_key(name: &str) -> bool {
    ["encryption", "keyformat", "keylocation", "pbkdf2iters"].contains(&name)
}

/// What is said of a key on the command line.
pub(crate) struct Said<'a>(pub(crate) &'a Typed);

impl Said<'_> {
    /// What is said of a property of the key.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The same as a number.
    ///
    /// # Errors
    /// In the words of `zfs`, if it is none.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, PropError> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let desc = TableKind::Dataset
            .lookup(name)
            .expect("a property of the table");
        Ok(parse_value(desc, name, text, Types::FILESYSTEM)?.as_number())
    }
}

/// How a new data set is to be encrypted.
pub(crate) enum Choice {
    AsAbove,
    Off,
    /// In this suite, with the key of the one above it.
    In(Suite),
    Root(OfRoot),
}

/// What is said of the key of a new encryption root.
pub(crate) struct OfRoot {
    suite: u64,
    format: u64,
    location: String,
    iterations: Option<u64>,
}

impl Choice {
    /// What is said of a data set below one with the suite `above`, if that is encrypted; `is_enabled`: its pool
    /// has the feature.
    ///
    /// # Errors
    /// In the words of `zfs`.
    #[doc(alias = "zfs_crypto_create")]
    pub(crate) fn of(
        said: &Typed,
        above: Option<Suite>,
        is_enabled: bool,
    ) -> Result<Choice, String> {
        let said = Said(said);
        let number = |name: &str| said.number(name).map_err(|e| e.to_string());
        let suite = number("encryption")?;
        let format = number("keyformat")?;
        let iterations = number("pbkdf2iters")?;
        let location = said.text("keylocation");
        if location.is_some_and(|location| !is_keylocation(location)) {
            return Err("invalid keylocation".to_owned());
        }
        let is_off = suite == Some(CRYPT_OFF);
        let has_location = location.is_some_and(|location| location != "none");
        let says_more = has_location || format.is_some() || iterations.is_some();
        if !is_enabled {
            return match suite.is_some() && !is_off || says_more {
                true => Err("Encryption feature not enabled.".to_owned()),
                false => Ok(Choice::AsAbove),
            };
        }
        let own = match suite {
            Some(CRYPT_ON) => Some(Suite::Aes256Gcm),
            Some(CRYPT_OFF) => None,
            Some(raw) => Some(Suite::from_raw(raw).map_err(|e| e.to_string())?),
            None => above,
        };
        let Some(own) = own else {
            return match (says_more, is_off) {
                (true, _) => {
                    Err("Encryption must be turned on to set encryption properties.".to_owned())
                }
                (false, true) => Ok(Choice::Off),
                (false, false) => Ok(Choice::AsAbove),
            };
        };
        let Some(format) = format.filter(|format| *format != 0) else {
            let inherits = location.is_none() && iterations.is_none();
            return match above {
                Some(_) if inherits && suite.is_none() => Ok(Choice::AsAbove),
                Some(_) if inherits => Ok(Choice::In(own)),
                _ => Err("Keyformat required for new encryption root.".to_owned()),
            };
        };
        Ok(Choice::Root(OfRoot {
            suite: own as u64,
            format,
            location: location.unwrap_or("prompt").to_owned(),
            iterations,
        }))
    }

    /// Whether it has its wrapping key from the one above it, if that is encrypted.
    pub(crate) fn inherits(&self) -> bool {
        matches!(self, Choice::AsAbove | Choice::In(_))
    }

    /// The property that a new encryption root has.
    pub(crate) fn stored(&self) -> Option<(String, PropValue)> {
        let Choice::Root(root) = self else {
            return None;
        };
        let location = PropValue::Text(root.location.clone());
        Some(("keylocation".to_owned(), location))
    }

    /// Asks for the key of a new encryption root.
    pub(crate) fn ask(&self, pools: &Pools, name: &str) -> Outcome<Encrypted> {
        Ok(match self {
            Choice::AsAbove => Encrypted::AsAbove,
            Choice::Off => Encrypted::Off,
            Choice::In(suite) => Encrypted::In(*suite),
            Choice::Root(root) => Encrypted::Root(root.ask(pools, name)?),
        })
    }
}

impl OfRoot {
    /// Asks for the key.
    pub(crate) fn ask(&self, pools: &Pools, name: &str) -> Outcome<NewRoot> {
        let new = NewKey {
            suite: self.suite,
            format: self.format,
            location: &self.location,
            iterations: self.iterations,
        };
        let asked = pools.ask_for_new_key(name, &new);
        asked.map_err(|e| Fail::Failed(format!("cannot create '{name}': {e}")))
    }
}
