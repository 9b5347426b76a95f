//! Keys of encrypted data sets: loading and unloading them, and where a command gets one by itself.
//!
//! # What it is
//! A key that is loaded stays so as long as the pool is open: in a process that holds pools, until it is unloaded; for
//! a command without such a process, until the command ends. So where no process holds the pool, a command that needs
//! the contents of an encrypted data set gets the key where `keylocation` says ([`KeySource`]).
//!
//! # Source
//! OpenZFS lib/libzfs/libzfs_crypto.c (`zfs_crypto_load_key`, `zfs_crypto_unload_key`).

use base::{Error, ErrorKind, Result};
use crypt::{
    KeyFormat, PBKDF2_ITERATIONS_DEFAULT, PBKDF2_ITERATIONS_MIN, Suite, WrappingKey,
    check_passphrase,
};
use dsl::{DslPool, Encryption, NewRoot};
use zeroize::Zeroizing;

use crate::open::OpenPool;
use crate::pools::Pools;

/// A key that is asked for.
pub struct WantedKey<'a> {
    /// The encryption root.
    pub root: &'a str,
    /// What is asked for: `passphrase`, `hex key` or `raw key`.
    pub word: &'static str,
    /// Whether the key is bytes, not a line.
    pub is_raw: bool,
    /// `prompt`, or a URI.
    pub location: &'a str,
    /// Whether it is a new key: one that is typed is asked for twice.
    pub is_new: bool,
}

/// What a user says of the key of a new encryption root.
pub struct NewKey<'a> {
    /// The suite, as it is stored.
    pub suite: u64,
    /// The format, as it is stored.
    pub format: u64,
    /// `prompt`, or a URI.
    pub location: &'a str,
    /// `pbkdf2iters`, if given.
    pub iterations: Option<u64>,
}

/// Where keys come from.
pub trait KeySource: Send + Sync {
    /// What a user has for a key.
    ///
    /// # Errors
    /// Why there is none.
    #[doc(alias = "get_key_material")]
    fn key(&self, wanted: &WantedKey<'_>) -> Result<Zeroizing<Vec<u8>>>;
}

/// What a key of this format is called when it is asked for.
#[doc(alias = "get_format_prompt_string")]
fn word(format: KeyFormat) -> &'static str {
    match format {
        KeyFormat::Raw => "raw key",
        KeyFormat::Hex => "hex key",
        KeyFormat::Passphrase => "passphrase",
    }
}

/// The `keylocation` of an encryption root.
pub(crate) fn location_of(dsl: &DslPool, root: &str) -> Result<String> {
    let set = dsl.prop(&dsl.dataset(root)?, "keylocation")?;
    let set = set.as_ref().and_then(|prop| prop.value.as_text());
    Ok(set.unwrap_or("none").to_owned())
}

/// Asks a source for the key of an encryption root.
pub(crate) fn ask(
    source: &dyn KeySource,
    root: &str,
    encryption: &Encryption,
    location: &str,
) -> Result<WrappingKey> {
    let Encryption {
        format,
        salt,
        iterations,
        ..
    } = encryption;
    let given = source.key(&WantedKey {
        root,
        word: word(*format),
        is_raw: *format == KeyFormat::Raw,
        location,
        is_new: false,
    })?;
    WrappingKey::new(*format, &given, *salt, *iterations)
}

impl Pools {
    /// Asks for the key of a new encryption root.
    ///
    /// # Errors
    /// `InvalidInput`, in the words of `zfs`, for what cannot be such a key; those of the source.
    #[doc(alias = "populate_create_encryption_params_nvlists")]
    pub fn ask_for_new_key(&self, name: &str, new: &NewKey<'_>) -> Result<NewRoot> {
        let format = KeyFormat::from_raw(new.format)?;
        let is_passphrase = format == KeyFormat::Passphrase;
        let wrong = match new.iterations {
            Some(_) if !is_passphrase => {
                Some("Cannot specify pbkdf2iters with a non-passphrase keyformat.".to_owned())
            }
            Some(iterations) if iterations < PBKDF2_ITERATIONS_MIN => Some(format!(
                "minimum pbkdf2 iterations is {PBKDF2_ITERATIONS_MIN}"
            )),
            _ => None,
        };
        if let Some(text) = wrong {
            return Err(Error::invalid(text));
        }
        let given = self.key_source().key(&WantedKey {
            root: name,
            word: word(format),
            is_raw: format == KeyFormat::Raw,
            location: new.location,
            is_new: true,
        })?;
        let (mut salt, mut iterations) = (0, 0);
        if is_passphrase {
            check_passphrase(&given)?;
            salt = rt::random_u64().max(1);
            iterations = new.iterations.unwrap_or(PBKDF2_ITERATIONS_DEFAULT);
        }
        Ok(NewRoot {
            suite: Suite::from_raw(new.suite)?,
            format,
            salt,
            iterations,
            key: WrappingKey::new(format, &given, salt, iterations)?,
        })
    }
}

impl OpenPool {
    /// Where the key of an encryption root is to be found: its `keylocation`.
    ///
    /// # Errors
    /// `NotFound`; any error from reading the pool.
    pub fn key_location(&self, root: &str) -> Result<String> {
        location_of(self.parts().dsl(), root)
    }

    /// Asks for the key of an encryption root.
    ///
    /// # Errors
    /// Those of the source; `InvalidInput` for what is not such a key.
    pub fn ask_for_key(
        &self,
        root: &str,
        encryption: &Encryption,
        location: &str,
    ) -> Result<WrappingKey> {
        ask(self.pools().key_source(), root, encryption, location)
    }

    /// Whether the contents of a data set can be read: it is not encrypted, or its key is loaded.
    ///
    /// # Errors
    /// `NotFound`; any error from reading the pool.
    pub fn is_unlocked(&self, name: &str) -> Result<bool> {
        let dataset = self.datasets().find(name)?;
        let encryption = self.datasets().encryption(&dataset)?;
        Ok(encryption.is_none_or(|it| it.is_available))
    }

    /// Loads the key of an encryption root; with `only_checks`, only tries it.
    ///
    /// # Errors
    /// `Permission` when it is another key; `Exists` when one is loaded already.
    pub fn load_key(&self, root: &str, key: WrappingKey, only_checks: bool) -> Result<()> {
        self.parts().dsl().load_key(root, key, only_checks)
    }

    /// Unloads the key of an encryption root.
    ///
    /// # Errors
    /// `Busy` while a data set under it is in use; `NoKey` when it is not loaded.
    pub fn unload_key(&self, root: &str) -> Result<()> {
        if !self.is_readonly() {
            // What was written under it is on disk before it is gone.
            self.sync()?;
        }
        self.parts().dsl().unload_key(root)
    }

    /// Loads the key that the contents of a data set are under, if it is not loaded and the pool is not kept open: then
    /// nothing else could have loaded it.
    pub(crate) fn unlock(&self, name: &str) -> Result<()> {
        let dataset = self.datasets().find(name)?;
        let found = self.datasets().encryption(&dataset)?;
        let Some(encryption) = found.filter(|it| !it.is_available && !self.is_kept()) else {
            return Ok(());
        };
        let root = self.datasets().encryption_root(&encryption)?;
        let no_key = |e: Error| {
            let text = format!("encryption key of '{root}' not loaded: {e}");
            Error::new(ErrorKind::NoKey, text)
        };
        let location = self.key_location(&root)?;
        let key = self.ask_for_key(&root, &encryption, &location);
        let key = key.map_err(no_key)?;
        self.load_key(&root, key, false)
            .map_err(|e| match e.kind() {
                ErrorKind::Permission => {
                    let text = format!("Incorrect key provided for '{root}'.");
                    Error::new(ErrorKind::NoKey, text)
                }
                _ => e,
            })
    }
}
