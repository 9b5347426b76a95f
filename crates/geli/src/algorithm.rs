//! The algorithms in metadata, by number and by name.

use std::fmt;

use base::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// How sectors are encrypted. The number is that of opencrypto's `CRYPTO_…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cipher {
    /// 16: no encryption.
    #[serde(rename = "NULL")]
    Null,
    /// 11: chained blocks, the IV derived from the IV key and the offset.
    #[serde(rename = "AES-CBC")]
    AesCbc,
    /// 22: tweaked by the offset; since version 5.
    #[serde(rename = "AES-XTS")]
    AesXts,
}

/// Ciphers that geli knows but this program does not support.
const UNSUPPORTED_CIPHERS: &[(u16, &str, &[&str])] = &[
    (2, "3DES-CBC", &["3des", "3des-cbc"]),
    (3, "Blowfish-CBC", &["blowfish", "blowfish-cbc"]),
    (21, "CAMELLIA-CBC", &["camellia", "camellia-cbc"]),
];

impl Cipher {
    /// Parses the argument of `-e`, in any case.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] in geli's words; [`ErrorKind::Unsupported`] for one that geli
    /// knows but this program does not support.
    #[doc(alias = "g_eli_str2ealgo")]
    pub fn parse(name: &str) -> Result<Cipher> {
        let lower = name.to_ascii_lowercase();
        match lower.as_str() {
            "null" | "null-cbc" => return Ok(Cipher::Null),
            "aes" | "aes-xts" => return Ok(Cipher::AesXts),
            "aes-cbc" => return Ok(Cipher::AesCbc),
            _ => {}
        }
        let known = UNSUPPORTED_CIPHERS
            .iter()
            .find(|c| c.2.contains(&lower.as_str()));
        Err(match known {
            Some((2 | 3, name, _)) => {
                Error::invalid(format!("The {name} encryption algorithm is deprecated."))
            }
            Some((_, name, _)) => unsupported(name, "encryption"),
            None => Error::invalid("Invalid encryption algorithm."),
        })
    }

    /// The number in the metadata.
    #[must_use]
    pub fn number(self) -> u16 {
        match self {
            Cipher::AesCbc => 11,
            Cipher::Null => 16,
            Cipher::AesXts => 22,
        }
    }

    /// The cipher with that number.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`], naming it where geli has a name for it.
    pub fn from_number(number: u16) -> Result<Cipher> {
        match number {
            11 => Ok(Cipher::AesCbc),
            16 => Ok(Cipher::Null),
            22 => Ok(Cipher::AesXts),
            _ => Err(unsupported(cipher_name(number), "encryption")),
        }
    }

    /// The key length in bits for the argument of `-l`; 0 is the default.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] in geli's words.
    #[doc(alias = "g_eli_keylen")]
    pub fn key_bits(self, asked: u16) -> Result<u16> {
        match (self, asked) {
            (Cipher::Null, 0) => Ok(512),
            (Cipher::Null, 1..=512) => Ok(asked),
            (Cipher::AesCbc | Cipher::AesXts, 0) => Ok(128),
            (Cipher::AesCbc, 128 | 192 | 256) | (Cipher::AesXts, 128 | 256) => Ok(asked),
            _ => Err(Error::invalid("Invalid key length.")),
        }
    }
}

impl Cipher {
    /// Checks the key length in metadata, where 0 is not valid.
    pub(crate) fn stored_key_bits(self, bits: u16) -> Result<u16> {
        match bits {
            0 => Err(Error::invalid("Invalid key length.")),
            bits => self.key_bits(bits),
        }
    }
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(cipher_name(self.number()))
    }
}

/// What geli calls the cipher with that number.
#[doc(alias = "g_eli_algo2str")]
pub(crate) fn cipher_name(number: u16) -> &'static str {
    match number {
        11 => "AES-CBC",
        16 => "NULL",
        22 => "AES-XTS",
        _ => UNSUPPORTED_CIPHERS
            .iter()
            .find(|c| c.0 == number)
            .map_or("unknown", |c| c.1),
    }
}

/// How sectors are authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuthAlgorithm {
    /// 7
    #[serde(rename = "HMAC/SHA1")]
    HmacSha1,
    /// 18
    #[serde(rename = "HMAC/SHA256")]
    HmacSha256,
    /// 19
    #[serde(rename = "HMAC/SHA384")]
    HmacSha384,
    /// 20
    #[serde(rename = "HMAC/SHA512")]
    HmacSha512,
}

const AUTH_ALGORITHMS: [AuthAlgorithm; 4] = [
    AuthAlgorithm::HmacSha1,
    AuthAlgorithm::HmacSha256,
    AuthAlgorithm::HmacSha384,
    AuthAlgorithm::HmacSha512,
];

impl AuthAlgorithm {
    /// Parses the argument of `-a`, in any case.
    ///
    /// # Errors
    /// As [`Cipher::parse`].
    #[doc(alias = "g_eli_str2aalgo")]
    pub fn parse(name: &str) -> Result<AuthAlgorithm> {
        let upper = name.to_ascii_uppercase();
        let found = AUTH_ALGORITHMS.into_iter().find(|a| a.to_string() == upper);
        match (found, upper.as_str()) {
            (Some(algorithm), _) => Ok(algorithm),
            (None, "HMAC/MD5") => Err(Error::invalid(
                "The HMAC/MD5 authentication algorithm is deprecated.",
            )),
            (None, "HMAC/RIPEMD160") => Err(unsupported("HMAC/RIPEMD160", "authentication")),
            (None, _) => Err(Error::invalid("Invalid authentication algorithm.")),
        }
    }

    /// The number in the metadata.
    #[must_use]
    pub fn number(self) -> u16 {
        match self {
            AuthAlgorithm::HmacSha1 => 7,
            AuthAlgorithm::HmacSha256 => 18,
            AuthAlgorithm::HmacSha384 => 19,
            AuthAlgorithm::HmacSha512 => 20,
        }
    }

    /// The algorithm with that number.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`], naming it where geli has a name for it.
    pub fn from_number(number: u16) -> Result<AuthAlgorithm> {
        let found = AUTH_ALGORITHMS.into_iter().find(|a| a.number() == number);
        found.ok_or_else(|| unsupported(auth_name(number), "authentication"))
    }

    /// The length of a code in bytes.
    #[must_use]
    #[doc(alias = "g_eli_hashlen")]
    pub(crate) fn code_bytes(self) -> usize {
        match self {
            AuthAlgorithm::HmacSha1 => 20,
            AuthAlgorithm::HmacSha256 => 32,
            AuthAlgorithm::HmacSha384 => 48,
            AuthAlgorithm::HmacSha512 => 64,
        }
    }
}

impl fmt::Display for AuthAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(auth_name(self.number()))
    }
}

/// What geli calls the authentication algorithm with that number.
pub(crate) fn auth_name(number: u16) -> &'static str {
    match number {
        6 => "HMAC/MD5",
        7 => "HMAC/SHA1",
        8 => "HMAC/RIPEMD160",
        18 => "HMAC/SHA256",
        19 => "HMAC/SHA384",
        20 => "HMAC/SHA512",
        _ => "unknown",
    }
}

fn unsupported(name: &str, what: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("The {name} {what} algorithm is not supported."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_go_there_and_back() {
        for cipher in [Cipher::Null, Cipher::AesCbc, Cipher::AesXts] {
            assert_eq!(Cipher::from_number(cipher.number()).unwrap(), cipher);
            assert_eq!(Cipher::parse(&cipher.to_string()).unwrap(), cipher);
        }
        for algorithm in AUTH_ALGORITHMS {
            assert_eq!(
                AuthAlgorithm::from_number(algorithm.number()).unwrap(),
                algorithm
            );
            assert_eq!(
                AuthAlgorithm::parse(&algorithm.to_string()).unwrap(),
                algorithm
            );
        }
        assert_eq!(Cipher::parse("AES").unwrap(), Cipher::AesXts);
    }

    #[test]
    fn others_are_named() {
        let error = Cipher::from_number(21).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("CAMELLIA-CBC"));
        let error = Cipher::parse("blowfish").unwrap_err().to_string();
        assert_eq!(
            error,
            "The Blowfish-CBC encryption algorithm is deprecated."
        );
        assert!(AuthAlgorithm::parse("hmac/ripemd160").is_err());
        assert!(AuthAlgorithm::from_number(99).is_err());
    }

    #[test]
    fn key_lengths_are_those_of_geli() {
        assert_eq!(Cipher::AesXts.key_bits(0).unwrap(), 128);
        assert_eq!(Cipher::AesXts.key_bits(256).unwrap(), 256);
        assert!(Cipher::AesXts.key_bits(192).is_err());
        assert_eq!(Cipher::AesCbc.key_bits(192).unwrap(), 192);
        assert_eq!(Cipher::Null.key_bits(0).unwrap(), 512);
        assert!(Cipher::Null.key_bits(513).is_err());
    }
}
