//! What an attached provider needs to be opened again.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::metadata::MASTER_KEY_BYTES;
use crate::{AuthAlgorithm, Cipher, Flags};

/// The keys of a provider: 64 bytes that IVs come from, 64 bytes that the keys of sectors come
/// from. With them the provider can be read without a passphrase.
#[derive(Clone, PartialEq, Eq)]
pub struct MasterKey(pub(crate) [u8; MASTER_KEY_BYTES]);

impl MasterKey {
    /// A new one.
    #[must_use]
    pub fn random() -> MasterKey {
        let mut bytes = [0; MASTER_KEY_BYTES];
        rt::fill_random(&mut bytes);
        MasterKey(bytes)
    }

    pub(crate) fn iv_key(&self) -> &[u8; 64] {
        self.0.first_chunk().expect("the first half")
    }

    pub(crate) fn data_key(&self) -> &[u8; 64] {
        self.0.last_chunk().expect("the second half")
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(secret)")
    }
}

impl Serialize for MasterKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&to_hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for MasterKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        from_hex(&text)
            .map(MasterKey)
            .ok_or_else(|| D::Error::custom("a master key is 256 hexadecimal digits"))
    }
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

fn from_hex(text: &str) -> Option<[u8; MASTER_KEY_BYTES]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != MASTER_KEY_BYTES || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; MASTER_KEY_BYTES];
    for (byte, pair) in bytes.iter_mut().zip(pairs) {
        let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
        *byte = u8::try_from(high? << 4 | low?).ok()?;
    }
    Some(bytes)
}

/// An attached provider: all that is needed to open it again. It holds the master key, so what it
/// is kept in is as secret as the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attached {
    /// The version of the metadata: how keys and IVs are made.
    pub version: u32,
    /// Flags of the metadata and of the attach.
    #[serde(default)]
    pub flags: Flags,
    /// How sectors are encrypted.
    pub ealgo: Cipher,
    /// Bits of the key.
    pub keylen: u16,
    /// How sectors are authenticated, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aalgo: Option<AuthAlgorithm>,
    /// The size of the provider below when it was attached.
    pub provsize: u64,
    /// The sector size.
    pub sectorsize: u32,
    /// The slot that the key fitted; nothing for a one-time key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nkey: Option<u8>,
    /// The master key.
    pub mkey: MasterKey,
}

impl Attached {
    /// Whether the key was made up by `geli onetime`.
    #[must_use]
    pub fn is_onetime(&self) -> bool {
        self.flags.contains(Flags::ONETIME)
    }
}
