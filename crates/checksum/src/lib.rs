//! Block checksums: pure functions of bytes.
//!
//! # What it is
//! A block pointer names one of a dozen checksums and carries four 64-bit words that the block's
//! physical bytes must hash to. [`digest`] computes those words; [`verify`] compares them. Some
//! blocks have no block pointer that could carry their checksum (labels, gang headers, intent log
//! blocks): they contain it themselves, see [`embedded`].
//!
//! # On disk
//! The byte order within the words differs from function to function and is part of the format.
//! All words below are those that a little-endian host has in `zio_cksum_t`:
//! ```text
//! fletcher2, fletcher4   the four sums
//! sha256                 the hash, each 8 bytes read as a big-endian word
//! sha512                 SHA-512/256, each 8 bytes read as a little-endian word
//! skein                  Skein-512-256 as a MAC, key = the pool's salt; little-endian words
//! edonr                  Edon-R 512, first 4 of 8 words; little-endian; the salt, hashed to a
//!                        whole block, goes before the data
//! blake3                 BLAKE3 in keyed mode, key = the pool's salt; little-endian words
//! off, noparity          zeros
//! ```
//!
//! # Invariants
//! 1. Every function here depends only on its arguments: the CPU's features affect how a sum is
//!    computed, never its value.
//! 2. No contents of a block make a function here panic; impossible lengths, and kinds where they
//!    do not belong, are programming errors.
//!
//! # Source
//! OpenZFS module/zfs/zio_checksum.c, sha2_zfs.c, skein_zfs.c, edonr_zfs.c, blake3_zfs.c,
//! include/sys/zio_checksum.h @be7657e3.

mod big_endian;
mod edonr;
pub mod embedded;
mod fletcher;
mod skein;

pub use big_endian::fletcher4_big_endian;
pub use embedded::label_digest;
pub use fletcher::{copy_fletcher4, fletcher2, fletcher2_append, fletcher4, fletcher4_append};

use edonr::EdonR;
use phys::ChecksumType;
use sha2::Digest;
use skein::Skein;

/// Four words as a block pointer stores them (`zio_cksum_t`).
#[doc(alias = "zio_cksum_t")]
pub type Words = [u64; 4];

/// The key of the salted checksums: random, made once for each pool (`zio_cksum_salt_t`).
#[doc(alias = "zio_cksum_salt_t")]
pub type Salt = [u8; 32];

/// What [`digest`] returns for a kind that is not a checksum; no writer stores it.
const NOT_A_CHECKSUM: Words = [u64::MAX; 4];

/// Hashes `bytes` with `kind`; only the salted kinds use `salt`.
///
/// The embedded kinds hash `bytes` as they are; [`embedded`] knows where they put the result.
/// `inherit` and `on` are only values of properties and hash to all ones, which never matches.
#[must_use]
#[doc(alias = "zio_checksum_compute")]
pub fn digest(kind: ChecksumType, salt: &Salt, bytes: &[u8]) -> Words {
    match kind {
        ChecksumType::Skein => Skein::new(salt).digest(bytes),
        ChecksumType::EdonR => EdonR::new(salt).digest(bytes),
        ChecksumType::Blake3 => blake3(salt, bytes),
        _ => unsalted(kind, bytes),
    }
}

/// Whether `bytes` hash to `expected`; always false for `inherit` and `on`.
#[must_use]
#[doc(alias = "zio_checksum_error")]
pub fn verify(kind: ChecksumType, salt: &Salt, bytes: &[u8], expected: &Words) -> bool {
    is_computable(kind) && digest(kind, salt, bytes) == *expected
}

/// The salted checksums with the work that depends only on the salt already done.
///
/// For callers that hash many blocks of one pool; returns the same words as [`digest`].
#[derive(Clone)]
#[doc(alias = "spa_cksum_tmpls")]
pub struct Templates {
    salt: Salt,
    skein: Skein,
    edonr: EdonR,
}

impl Templates {
    /// The templates of the pool with this `salt`.
    #[must_use]
    pub fn new(salt: &Salt) -> Templates {
        Templates {
            salt: *salt,
            skein: Skein::new(salt),
            edonr: EdonR::new(salt),
        }
    }

    /// Like the function [`digest`], with this pool's salt.
    #[must_use]
    pub fn digest(&self, kind: ChecksumType, bytes: &[u8]) -> Words {
        match kind {
            ChecksumType::Skein => self.skein.digest(bytes),
            ChecksumType::EdonR => self.edonr.digest(bytes),
            ChecksumType::Blake3 => blake3(&self.salt, bytes),
            _ => unsalted(kind, bytes),
        }
    }

    /// The words that a big-endian host computes, in the order of this host.
    #[must_use]
    #[doc(alias = "ci_func")]
    pub fn digest_big_endian(&self, kind: ChecksumType, bytes: &[u8]) -> Words {
        big_endian::digest(kind, bytes, |bytes| self.digest(kind, bytes))
    }

    /// Like the function [`verify`], with this pool's salt.
    #[must_use]
    pub fn verify(&self, kind: ChecksumType, bytes: &[u8], expected: &Words) -> bool {
        is_computable(kind) && self.digest(kind, bytes) == *expected
    }
}

impl std::fmt::Debug for Templates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Templates(salt is secret)")
    }
}

/// Whether a block can be hashed with `kind` at all; `inherit` and `on` are only values of properties.
#[must_use]
pub fn is_computable(kind: ChecksumType) -> bool {
    !matches!(kind, ChecksumType::Inherit | ChecksumType::On)
}

/// Whether two blocks with equal checksums are taken to be equal (`ZCHECKSUM_FLAG_DEDUP`).
#[must_use]
#[doc(alias = "ZCHECKSUM_FLAG_DEDUP")]
pub fn is_dedup(kind: ChecksumType) -> bool {
    matches!(
        kind,
        ChecksumType::Sha256 | ChecksumType::Sha512 | ChecksumType::Skein | ChecksumType::Blake3
    )
}

/// Whether a write may be skipped when the checksum is unchanged (`ZCHECKSUM_FLAG_NOPWRITE`).
#[must_use]
#[doc(alias = "ZCHECKSUM_FLAG_NOPWRITE")]
pub(crate) fn is_nopwrite(kind: ChecksumType) -> bool {
    is_dedup(kind) || kind == ChecksumType::EdonR
}

/// Whether metadata may be protected by `kind` (`ZCHECKSUM_FLAG_METADATA`).
#[must_use]
#[doc(alias = "ZCHECKSUM_FLAG_METADATA")]
pub fn is_metadata(kind: ChecksumType) -> bool {
    is_nopwrite(kind)
        || matches!(
            kind,
            ChecksumType::Label | ChecksumType::GangHeader | ChecksumType::Fletcher4
        )
}

/// The words of an encrypted block: half the checksum, and its MAC in the last two words.
///
/// Checksums that do not spread their entropy over all words are folded to half, the others truncated.
#[must_use]
#[doc(alias = "zio_checksum_handle_crypt")]
pub fn with_mac(kind: ChecksumType, words: &Words, mac: [u64; 2]) -> Words {
    let [a, b, c, d] = *words;
    if is_dedup(kind) {
        [a, b, mac[0], mac[1]]
    } else {
        [a ^ c, b ^ d, mac[0], mac[1]]
    }
}

fn unsalted(kind: ChecksumType, bytes: &[u8]) -> Words {
    match kind {
        ChecksumType::Off | ChecksumType::NoParity => [0; 4],
        ChecksumType::Fletcher2 | ChecksumType::Zilog => fletcher2(bytes),
        ChecksumType::Fletcher4 | ChecksumType::Zilog2 => fletcher4(bytes),
        ChecksumType::Sha256 | ChecksumType::Label | ChecksumType::GangHeader => {
            be_words(&sha2::Sha256::digest(bytes).into())
        }
        ChecksumType::Sha512 => le_words(&sha2::Sha512_256::digest(bytes).into()),
        ChecksumType::Inherit
        | ChecksumType::On
        | ChecksumType::Skein
        | ChecksumType::EdonR
        | ChecksumType::Blake3 => NOT_A_CHECKSUM,
    }
}

fn blake3(salt: &Salt, bytes: &[u8]) -> Words {
    le_words(blake3::keyed_hash(salt, bytes).as_bytes())
}

fn le_words(bytes: &[u8; 32]) -> Words {
    let (words, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|i| u64::from_le_bytes(words[i]))
}

fn be_words(bytes: &[u8; 32]) -> Words {
    le_words(bytes).map(u64::swap_bytes)
}

#[cfg(test)]
mod tests;
