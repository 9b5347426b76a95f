//! The six suites: AES in CCM or GCM mode, with keys of 128, 192 or 256 bits.
//!
//! GCM is that of AWS-LC, which has it for the vectors of each processor: three to four times as fast as one in Rust,
//! which goes through the bytes twice. It has no CCM.
//!
//! # Source
//! OpenZFS include/sys/zio.h (`enum zio_encrypt`), module/os/linux/zfs/zio_crypt.c (`zio_do_crypt_uio`).

use aes::{Aes128, Aes192, Aes256};
use aws_lc_rs::aead::{self as gcm, Aad, Algorithm, LessSafeKey, UnboundKey};
use base::{Error, ErrorKind, Result};
use ccm::Ccm;
use ccm::aead::inout::InOutBuf;
use ccm::aead::{AeadInOut, Key, KeyInit, Nonce, Tag};
use ccm::consts::{U12, U16};
use phys::blkptr::{IV_LEN, MAC_LEN};

/// How blocks of a data set are encrypted.
#[doc(alias = "zio_encrypt")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum Suite {
    /// aes-128-ccm
    Aes128Ccm = 3,
    /// aes-192-ccm
    Aes192Ccm = 4,
    /// aes-256-ccm
    Aes256Ccm = 5,
    /// aes-128-gcm
    Aes128Gcm = 6,
    /// aes-192-gcm
    Aes192Gcm = 7,
    /// aes-256-gcm
    Aes256Gcm = 8,
}

impl Suite {
    /// All of them.
    pub const ALL: [Suite; 6] = [
        Suite::Aes128Ccm,
        Suite::Aes192Ccm,
        Suite::Aes256Ccm,
        Suite::Aes128Gcm,
        Suite::Aes192Gcm,
        Suite::Aes256Gcm,
    ];

    /// The suite that is stored as this number.
    ///
    /// # Errors
    /// `Unsupported` for a number that is not one of a suite.
    pub fn from_raw(raw: u64) -> Result<Suite> {
        let found = Suite::ALL.into_iter().find(|suite| *suite as u64 == raw);
        let what = || format!("encryption suite {raw}");
        found.ok_or_else(|| Error::new(ErrorKind::Unsupported, what()))
    }

    /// Bytes of its keys.
    #[must_use]
    pub fn key_len(self) -> usize {
        match self {
            Suite::Aes128Ccm | Suite::Aes128Gcm => 16,
            Suite::Aes192Ccm | Suite::Aes192Gcm => 24,
            Suite::Aes256Ccm | Suite::Aes256Gcm => 32,
        }
    }

    /// The suite of the same mode with keys of 256 bits, which wraps the keys of this one.
    pub(crate) fn wrapping(self) -> Suite {
        match self {
            Suite::Aes128Ccm | Suite::Aes192Ccm | Suite::Aes256Ccm => Suite::Aes256Ccm,
            Suite::Aes128Gcm | Suite::Aes192Gcm | Suite::Aes256Gcm => Suite::Aes256Gcm,
        }
    }

    /// What encrypts under this key, which has the suite's length.
    pub(crate) fn cipher(self, key: &[u8]) -> Box<dyn Cipher> {
        match self {
            Suite::Aes128Ccm => cipher::<Ccm<Aes128, U16, U12>>(key),
            Suite::Aes192Ccm => cipher::<Ccm<Aes192, U16, U12>>(key),
            Suite::Aes256Ccm => cipher::<Ccm<Aes256, U16, U12>>(key),
            Suite::Aes128Gcm => in_gcm(&gcm::AES_128_GCM, key),
            Suite::Aes192Gcm => in_gcm(&gcm::AES_192_GCM, key),
            Suite::Aes256Gcm => in_gcm(&gcm::AES_256_GCM, key),
        }
    }
}

impl std::fmt::Display for Suite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Suite::Aes128Ccm => "aes-128-ccm",
            Suite::Aes192Ccm => "aes-192-ccm",
            Suite::Aes256Ccm => "aes-256-ccm",
            Suite::Aes128Gcm => "aes-128-gcm",
            Suite::Aes192Gcm => "aes-192-gcm",
            Suite::Aes256Gcm => "aes-256-gcm",
        })
    }
}

fn cipher<C: Cipher + KeyInit + 'static>(key: &[u8]) -> Box<dyn Cipher> {
    let key: &Key<C> = key.try_into().expect("a key of the suite's length");
    Box::new(C::new(key))
}

fn in_gcm(algorithm: &'static Algorithm, key: &[u8]) -> Box<dyn Cipher> {
    let key = UnboundKey::new(algorithm, key).expect("a key of the suite's length");
    Box::new(Gcm(LessSafeKey::new(key)))
}

/// The error of bytes that were not written under this key.
pub(crate) fn wrong_mac() -> Error {
    Error::new(ErrorKind::Checksum, "the MAC is wrong")
}

/// A suite under one key, with what it computes from that key once; wiped when it is dropped.
pub(crate) trait Cipher: Send + Sync {
    /// Encrypts `text` into `sealed`, which is as long, and returns the MAC of it and of `aad`.
    ///
    /// # Errors
    /// `TooBig` for more bytes than the mode can take.
    fn seal(
        &self,
        iv: &[u8; IV_LEN],
        aad: &[u8],
        text: &[u8],
        sealed: &mut [u8],
    ) -> Result<[u8; MAC_LEN]>;

    /// Decrypts `sealed`, which comes with its MAC, into `text`, which is as long, if the MAC is that of it and of
    /// `aad`; otherwise what is in `text` is of no use.
    ///
    /// # Errors
    /// `Checksum` when the MAC is another one.
    fn open(
        &self,
        iv: &[u8; IV_LEN],
        aad: &[u8],
        sealed: (&[u8], &[u8; MAC_LEN]),
        text: &mut [u8],
    ) -> Result<()>;
}

/// The error of more bytes than a mode can take.
fn too_big(len: usize) -> Error {
    Error::new(ErrorKind::TooBig, format!("{len} bytes to be encrypted"))
}

/// AES in GCM mode. The library wipes what it has of the key when it frees it.
struct Gcm(LessSafeKey);

impl Cipher for Gcm {
    fn seal(
        &self,
        iv: &[u8; IV_LEN],
        aad: &[u8],
        text: &[u8],
        sealed: &mut [u8],
    ) -> Result<[u8; MAC_LEN]> {
        assert_eq!(text.len(), sealed.len(), "room for what is encrypted");
        let nonce = gcm::Nonce::assume_unique_for_key(*iv);
        let mut mac = [0; MAC_LEN];
        self.0
            .seal_out_of_place_scatter(nonce, Aad::from(aad), text, sealed, &[], &mut mac)
            .map_err(|_| too_big(text.len()))?;
        Ok(mac)
    }

    fn open(
        &self,
        iv: &[u8; IV_LEN],
        aad: &[u8],
        (sealed, mac): (&[u8], &[u8; MAC_LEN]),
        text: &mut [u8],
    ) -> Result<()> {
        assert_eq!(text.len(), sealed.len(), "room for what is decrypted");
        let nonce = gcm::Nonce::assume_unique_for_key(*iv);
        self.0
            .open_separate_gather(nonce, Aad::from(aad), sealed, mac, text)
            .map_err(|_| wrong_mac())
    }
}

impl<C: AeadInOut + Send + Sync> Cipher for C {
    fn seal(
        &self,
        iv: &[u8; IV_LEN],
        aad: &[u8],
        text: &[u8],
        sealed: &mut [u8],
    ) -> Result<[u8; MAC_LEN]> {
        let nonce: &Nonce<C> = iv.as_slice().try_into().expect("an IV of 12 bytes");
        let both = InOutBuf::new(text, sealed).expect("room for what is encrypted");
        let tag = self
            .encrypt_inout_detached(nonce, aad, both)
            .map_err(|_| too_big(text.len()))?;
        let mut mac = [0; MAC_LEN];
        mac.copy_from_slice(&tag);
        Ok(mac)
    }

    fn open(
        &self,
        iv: &[u8; IV_LEN],
        aad: &[u8],
        (sealed, mac): (&[u8], &[u8; MAC_LEN]),
        text: &mut [u8],
    ) -> Result<()> {
        let nonce: &Nonce<C> = iv.as_slice().try_into().expect("an IV of 12 bytes");
        let tag: &Tag<C> = mac.as_slice().try_into().expect("a MAC of 16 bytes");
        let both = InOutBuf::new(sealed, text).expect("room for what is decrypted");
        let opened = self.decrypt_inout_detached(nonce, aad, both, tag);
        opened.map_err(|_| wrong_mac())
    }
}
