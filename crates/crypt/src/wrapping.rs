//! Wrapping keys, where they come from, and master keys that are wrapped in them.
//!
//! # On disk
//! The master key and the key of the HMACs, 64 bytes, are encrypted as one text, in the mode of the suite but always
//! with the 256 bits of the wrapping key. The MAC covers the key's guid, the suite and the version, too.
//!
//! # Source
//! OpenZFS module/os/linux/zfs/zio_crypt.c (`zio_crypt_key_wrap`, `zio_crypt_key_unwrap`),
//! lib/libzfs/libzfs_crypto.c (`derive_key`, `validate_key`).

use std::cmp::Ordering;

use base::{Context, Error, ErrorKind, Result};
use phys::blkptr::{IV_LEN, MAC_LEN};
use sha1::Sha1;

use crate::secret::Secret;
use crate::{DataKey, Suite};

/// `WRAPPING_KEY_LEN`: bytes of a wrapping key, whatever the suite.
const WRAPPING_KEY_LEN: usize = 32;
/// `SHA512_HMAC_KEYLEN`: bytes of the key of the HMACs.
pub(crate) const HMAC_KEY_LEN: usize = 64;
/// `ZIO_CRYPT_KEY_CURRENT_VERSION`: the version of the format; the one before it was never in a release.
const VERSION: u64 = 1;

/// `DEFAULT_PBKDF2_ITERATIONS`
pub const PBKDF2_ITERATIONS_DEFAULT: u64 = 350_000;
/// `MIN_PBKDF2_ITERATIONS`
pub const PBKDF2_ITERATIONS_MIN: u64 = 100_000;
/// `MIN_PASSPHRASE_LEN`, in bytes.
const PASSPHRASE_LEN_MIN: usize = 8;
/// `MAX_PASSPHRASE_LEN`, in bytes.
const PASSPHRASE_LEN_MAX: usize = 512;

/// `zfs_keyformat_t`: what a user gives for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "zfs_keyformat_t")]
#[repr(u64)]
pub enum KeyFormat {
    /// 32 bytes.
    Raw = 1,
    /// 64 hexadecimal digits.
    Hex = 2,
    /// Of which the key is derived.
    Passphrase = 3,
}

impl KeyFormat {
    /// The format that is stored as this number.
    ///
    /// # Errors
    /// `Corrupt` for a number that is not one of a format.
    pub fn from_raw(raw: u64) -> Result<KeyFormat> {
        match raw {
            1 => Ok(KeyFormat::Raw),
            2 => Ok(KeyFormat::Hex),
            3 => Ok(KeyFormat::Passphrase),
            _ => Err(Error::corrupt(format!("key format {raw}"))),
        }
    }
}

/// The key that a user has, in the form that wraps other keys.
#[derive(Clone, Debug)]
#[doc(alias = "dsl_wrapping_key_t")]
pub struct WrappingKey(Secret);

impl WrappingKey {
    /// The wrapping key that `given` stands for, with the salt and the number of iterations of a passphrase.
    ///
    /// # Errors
    /// `InvalidInput`, in the words of `zfs`, when the length or a digit is wrong; `Corrupt` for a number of iterations
    /// that cannot be.
    #[doc(alias = "derive_key")]
    pub fn new(format: KeyFormat, given: &[u8], salt: u64, iterations: u64) -> Result<WrappingKey> {
        let mut key = Secret::zeroed(WRAPPING_KEY_LEN);
        match format {
            KeyFormat::Raw => {
                check_len("Raw", given.len(), WRAPPING_KEY_LEN)?;
                key.bytes_mut().copy_from_slice(given);
            }
            KeyFormat::Hex => {
                check_len("Hex", given.len(), WRAPPING_KEY_LEN * 2)?;
                for (byte, pair) in key.bytes_mut().iter_mut().zip(given.chunks(2)) {
                    let parsed = hex_byte(pair);
                    *byte =
                        parsed.ok_or_else(|| Error::invalid("Invalid hex character detected."))?;
                }
            }
            KeyFormat::Passphrase => {
                let rounds = u32::try_from(iterations).ok().filter(|rounds| *rounds > 0);
                let rounds =
                    rounds.ok_or_else(|| Error::corrupt(format!("{iterations} iterations")))?;
                let salt = salt.to_le_bytes();
                pbkdf2::pbkdf2_hmac::<Sha1>(given, &salt, rounds, key.bytes_mut());
            }
        }
        Ok(WrappingKey(key))
    }
}

/// Checks the length of a passphrase that is given for a new key.
///
/// # Errors
/// `InvalidInput` in the words of `zfs`.
#[doc(alias = "validate_key")]
pub fn check_passphrase(given: &[u8]) -> Result<()> {
    let text = match given.len() {
        len if len < PASSPHRASE_LEN_MIN => {
            format!("Passphrase too short (min {PASSPHRASE_LEN_MIN}).")
        }
        len if len > PASSPHRASE_LEN_MAX => {
            format!("Passphrase too long (max {PASSPHRASE_LEN_MAX}).")
        }
        _ => return Ok(()),
    };
    Err(Error::invalid(text))
}

fn check_len(what: &str, len: usize, expected: usize) -> Result<()> {
    let how = match len.cmp(&expected) {
        Ordering::Less => "short",
        Ordering::Equal => return Ok(()),
        Ordering::Greater => "long",
    };
    let text = format!("{what} key too {how} (expected {expected}).");
    Err(Error::invalid(text))
}

fn hex_byte(pair: &[u8]) -> Option<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let [high, low] = pair else {
        return None;
    };
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

/// A master key as it lies in the pool.
#[doc(alias = "dsl_crypto_key_t")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrappedKey {
    /// DSL_CRYPTO_SUITE
    pub suite: Suite,
    /// DSL_CRYPTO_GUID
    pub guid: u64,
    /// DSL_CRYPTO_VERSION
    pub version: u64,
    /// DSL_CRYPTO_IV
    pub iv: [u8; IV_LEN],
    /// DSL_CRYPTO_MAC
    pub mac: [u8; MAC_LEN],
    /// DSL_CRYPTO_MASTER_KEY_1: as many bytes as the suite's keys have
    pub master: Vec<u8>,
    /// DSL_CRYPTO_HMAC_KEY_1
    pub hmac: [u8; HMAC_KEY_LEN],
}

/// The fields of a key object, which is a ZAP.
pub trait KeyFields {
    /// A number.
    ///
    /// # Errors
    /// Errors of reading it.
    fn number(&self, name: &str) -> Result<Option<u64>>;
    /// An array of bytes.
    ///
    /// # Errors
    /// Errors of reading it.
    fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>>;
}

impl WrappedKey {
    /// The key in a key object.
    ///
    /// # Errors
    /// `Corrupt` when a field is missing or has another length; `Unsupported` for an unknown suite.
    #[doc(alias = "dsl_crypto_key_open")]
    pub fn read(fields: &dyn KeyFields) -> Result<WrappedKey> {
        let missing = |name: &str| Error::corrupt(format!("a key object has no {name}"));
        let number = |name: &str| fields.number(name)?.ok_or_else(|| missing(name));
        let bytes = |name: &str| fields.bytes(name)?.ok_or_else(|| missing(name));
        let suite = Suite::from_raw(number("DSL_CRYPTO_SUITE")?)?;
        let mut master = bytes("DSL_CRYPTO_MASTER_KEY_1")?;
        // Always the room of the longest key.
        master.truncate(suite.key_len());
        Ok(WrappedKey {
            suite,
            guid: number("DSL_CRYPTO_GUID")?,
            version: fields.number("DSL_CRYPTO_VERSION")?.unwrap_or(0),
            iv: exactly(&bytes("DSL_CRYPTO_IV")?).within(|| "IV")?,
            mac: exactly(&bytes("DSL_CRYPTO_MAC")?).within(|| "MAC")?,
            master,
            hmac: exactly(&bytes("DSL_CRYPTO_HMAC_KEY_1")?).within(|| "HMAC key")?,
        })
    }

    /// The master key, if it is wrapped in `key`.
    ///
    /// # Errors
    /// `Permission` when the key is another one; `Unsupported` for a version of the format before the first release.
    #[doc(alias = "zio_crypt_key_unwrap")]
    pub fn unwrap(&self, key: &WrappingKey) -> Result<DataKey> {
        if self.version != VERSION {
            let text = format!("version {} of the format of keys", self.version);
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let key_len = self.suite.key_len();
        if self.master.len() != key_len {
            let (have, suite) = (self.master.len(), self.suite);
            return Err(Error::corrupt(format!(
                "master key of {have} bytes for {suite}"
            )));
        }
        let wrapped = [self.master.as_slice(), &self.hmac].concat();
        let mut keys = Secret::zeroed(wrapped.len());
        let aad = aad(self.guid, self.suite);
        let cipher = self.suite.wrapping().cipher(key.0.bytes());
        let opened = cipher.open(&self.iv, &aad, (&wrapped, &self.mac), keys.bytes_mut());
        let wrong = |_| Error::new(ErrorKind::Permission, "the key is another one");
        opened.map_err(wrong)?;
        let (master, hmac) = keys.bytes().split_at(key_len);
        Ok(DataKey::new(self.suite, self.guid, master, hmac))
    }

    /// Wraps a master key.
    ///
    /// # Panics
    /// Never: the keys are short.
    #[doc(alias = "zio_crypt_key_wrap")]
    #[must_use]
    pub fn wrap(data: &DataKey, key: &WrappingKey, iv: [u8; IV_LEN]) -> WrappedKey {
        let (suite, guid) = (data.suite(), data.guid());
        let keys = Secret::new([data.master(), data.hmac_key()].concat());
        let aad = aad(guid, suite);
        let mut wrapped = vec![0; keys.bytes().len()];
        let sealed =
            suite
                .wrapping()
                .cipher(key.0.bytes())
                .seal(&iv, &aad, keys.bytes(), &mut wrapped);
        let (master, hmac_key) = wrapped.split_at(suite.key_len());
        let mut hmac = [0; HMAC_KEY_LEN];
        hmac.copy_from_slice(hmac_key);
        WrappedKey {
            suite,
            guid,
            version: VERSION,
            iv,
            mac: sealed.expect("keys are short"),
            master: master.to_vec(),
            hmac,
        }
    }
}

fn exactly<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    let wrong = |_| Error::corrupt(format!("{} bytes instead of {N}", bytes.len()));
    bytes.try_into().map_err(wrong)
}

fn aad(guid: u64, suite: Suite) -> [u8; 24] {
    let mut aad = [0; 24];
    let words = [guid, suite as u64, VERSION];
    for (room, word) in aad.chunks_mut(8).zip(words) {
        room.copy_from_slice(&word.to_le_bytes());
    }
    aad
}
