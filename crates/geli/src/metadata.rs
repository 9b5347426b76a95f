//! The metadata in the last sector of the provider below.
//!
//! # On disk
//! 511 bytes, packed, little-endian (version 0 lacks `aalgo` and takes 509); docs/spec/geli.md.
//!
//! # Crash argument
//! All of it is in one sector, and every change is one write of that sector followed by a flush: a
//! crash leaves the old or the new metadata, and each opens what it opened before.
//!
//! # Source
//! FreeBSD `sys/geom/eli/g_eli.h`.

use base::{BlockBuf, Context, Error, ErrorKind, Result};
use geom::Provider;
use md5::{Digest, Md5};

use crate::SUFFIX;

mod text;

/// The length of the metadata in bytes.
pub const METADATA_BYTES: usize = 511;
/// The highest supported version.
pub const VERSION_MAX: u32 = 7;
/// The number of slots for encrypted copies of the master key.
pub const SLOTS: usize = 2;
/// IV key and data key, 64 bytes each.
pub(crate) const MASTER_KEY_BYTES: usize = 128;
/// An encrypted copy: the master key and an HMAC over it.
pub(crate) const SLOT_BYTES: usize = MASTER_KEY_BYTES + 64;
/// How many times data that must be unrecoverable is overwritten.
pub(crate) const OVERWRITES: usize = 5;
const MAGIC: &[u8; 16] = b"GEOM::ELI\0\0\0\0\0\0\0";

/// Properties of an encrypted provider, in the metadata and in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Flags(pub u32);

impl Flags {
    /// The key was generated at attach; no metadata is on disk.
    pub const ONETIME: Flags = Flags(1);
    /// Ask for the passphrase at boot.
    pub const BOOT: Flags = Flags(2);
    /// Detach on the last close after it was open for writing.
    pub(crate) const WO_DETACH: Flags = Flags(4);
    /// Detach on the last close.
    pub(crate) const RW_DETACH: Flags = Flags(8);
    /// Sectors are authenticated.
    pub const AUTH: Flags = Flags(0x10);
    /// Attached for reading.
    pub const RO: Flags = Flags(0x20);
    /// Deletes are not passed on.
    pub const NODELETE: Flags = Flags(0x40);
    /// The boot loader may open it.
    pub const GELIBOOT: Flags = Flags(0x80);
    /// The boot loader echoes the passphrase as asterisks.
    pub const GELIDISPLAYPASS: Flags = Flags(0x100);
    /// The metadata moves along when the provider below is resized.
    pub const AUTORESIZE: Flags = Flags(0x200);

    /// Whether all flags of `other` are set.
    #[must_use]
    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// With or without the flags of `other`.
    #[must_use]
    pub fn with(self, other: Flags, set: bool) -> Flags {
        Flags(if set {
            self.0 | other.0
        } else {
            self.0 & !other.0
        })
    }
}

/// The contents of the last sector of an encrypted provider. Algorithms are kept as their on-disk
/// numbers: metadata with an unknown one can still be shown, backed up and restored.
#[derive(Clone, PartialEq, Eq)]
#[doc(alias = "g_eli_metadata")]
pub struct Metadata {
    /// `md_version`
    pub version: u32,
    /// `md_flags`
    pub flags: Flags,
    /// `md_ealgo`: see [`Cipher`](crate::Cipher).
    pub ealgo: u16,
    /// `md_keylen`: bits of the key.
    pub keylen: u16,
    /// `md_aalgo`: see [`AuthAlgorithm`](crate::AuthAlgorithm); unused unless [`Flags::AUTH`] is set.
    pub aalgo: u16,
    /// `md_provsize`: the size of the provider below.
    pub provsize: u64,
    /// `md_sectorsize`: of the encrypted provider.
    pub sectorsize: u32,
    /// `md_keys`: bit n is set if slot n holds the master key.
    pub keys: u8,
    /// `md_iterations` of PBKDF2 over the passphrase; 0: a plain HMAC; -1: no passphrase.
    pub iterations: i32,
    /// `md_salt`
    pub salt: [u8; 64],
    /// `md_mkeys`: the encrypted copies of the master key.
    pub(crate) mkeys: [[u8; SLOT_BYTES]; SLOTS],
}

pub(crate) fn has_magic(bytes: &[u8]) -> bool {
    bytes.starts_with(b"GEOM::ELI\0")
}

/// Takes fields off the front of bytes.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }
}

impl Metadata {
    /// Reads metadata from the front of a sector.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none, [`ErrorKind::Unsupported`] for a version that is
    /// too new, [`ErrorKind::Corrupt`] if the checksum does not match.
    #[doc(alias = "eli_metadata_decode")]
    pub fn decode(bytes: &[u8]) -> Result<Metadata> {
        if !has_magic(bytes) {
            return Err(Error::not_found("Invalid argument"));
        }
        let corrupt = || Error::corrupt("inconsistent metadata");
        let mut reader = Reader(bytes);
        let fields = Self::decode_fields(&mut reader).ok_or_else(corrupt)?;
        if fields.version > VERSION_MAX {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("version {} is too new", fields.version),
            ));
        }
        let covered = bytes.len() - reader.0.len();
        let hash: [u8; 16] = reader.take().ok_or_else(corrupt)?;
        if Md5::digest(&bytes[..covered])[..] != hash {
            return Err(corrupt());
        }
        Ok(fields)
    }

    fn decode_fields(reader: &mut Reader<'_>) -> Option<Metadata> {
        reader.take::<16>()?;
        let version = u32::from_le_bytes(reader.take()?);
        Some(Metadata {
            version,
            flags: Flags(u32::from_le_bytes(reader.take()?)),
            ealgo: u16::from_le_bytes(reader.take()?),
            keylen: u16::from_le_bytes(reader.take()?),
            aalgo: if version == 0 {
                0
            } else {
                u16::from_le_bytes(reader.take()?)
            },
            provsize: u64::from_le_bytes(reader.take()?),
            sectorsize: u32::from_le_bytes(reader.take()?),
            keys: u8::from_le_bytes(reader.take()?),
            iterations: i32::from_le_bytes(reader.take()?),
            salt: reader.take()?,
            mkeys: [reader.take()?, reader.take()?],
        })
    }

    /// The bytes on disk; those of version 0 end two bytes earlier.
    #[must_use]
    #[doc(alias = "eli_metadata_encode")]
    pub fn encode(&self) -> [u8; METADATA_BYTES] {
        assert!(self.version <= VERSION_MAX, "version {}", self.version);
        let mut bytes = Vec::with_capacity(METADATA_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&self.flags.0.to_le_bytes());
        bytes.extend_from_slice(&self.ealgo.to_le_bytes());
        bytes.extend_from_slice(&self.keylen.to_le_bytes());
        if self.version > 0 {
            bytes.extend_from_slice(&self.aalgo.to_le_bytes());
        }
        bytes.extend_from_slice(&self.provsize.to_le_bytes());
        bytes.extend_from_slice(&self.sectorsize.to_le_bytes());
        bytes.push(self.keys);
        bytes.extend_from_slice(&self.iterations.to_le_bytes());
        bytes.extend_from_slice(&self.salt);
        bytes.extend_from_slice(self.mkeys.as_flattened());
        let hash = Md5::digest(&bytes);
        bytes.extend_from_slice(&hash);
        let mut fixed = [0; METADATA_BYTES];
        fixed[..bytes.len()].copy_from_slice(&bytes);
        fixed
    }

    /// Reads the metadata of a provider.
    ///
    /// # Errors
    /// As [`Metadata::decode`], in geli's words.
    pub fn read(provider: &dyn Provider) -> Result<Metadata> {
        let at = last_sector(provider)?;
        Self::read_at(provider, at)
    }

    /// Reads metadata from the sector at `offset`.
    ///
    /// # Errors
    /// As [`Metadata::read`].
    pub fn read_at(provider: &dyn Provider, offset: u64) -> Result<Metadata> {
        let name = provider.name();
        let mut sector = BlockBuf::zeroed(provider.sectorsize() as usize);
        provider
            .read(offset, &mut sector)
            .within(|| format!("Cannot read metadata from {name}"))?;
        Self::decode_named(&sector, name)
    }

    /// As [`Metadata::decode`], with errors in geli's words about `name`.
    ///
    /// # Errors
    /// As [`Metadata::decode`].
    pub fn decode_named(bytes: &[u8], name: &str) -> Result<Metadata> {
        Self::decode(bytes).map_err(|error| {
            let text = match error.kind() {
                ErrorKind::NotFound => {
                    format!("Cannot read metadata from {name}: Invalid argument.")
                }
                ErrorKind::Unsupported => format!(
                    "Provider's {name} metadata {error}.\n\
                     geli: The highest supported version is {VERSION_MAX}."
                ),
                _ => format!("Inconsistent provider's {name} metadata."),
            };
            Error::new(error.kind(), text)
        })
    }

    /// Writes the metadata into the last sector of a provider and flushes.
    ///
    /// # Errors
    /// What the provider says.
    pub fn write(&self, provider: &dyn Provider) -> Result<()> {
        let mut sector = BlockBuf::zeroed(provider.sectorsize() as usize);
        sector[..METADATA_BYTES].copy_from_slice(&self.encode());
        write_sector(provider, last_sector(provider)?, &sector)
            .within(|| format!("Cannot store metadata on {}", provider.name()))
    }
}

/// The offset of the metadata on a provider.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if the provider has no room for it.
pub fn last_sector(provider: &dyn Provider) -> Result<u64> {
    let sector = u64::from(provider.sectorsize());
    let size = provider.mediasize();
    if sector < METADATA_BYTES as u64 || size < 2 * sector {
        let text = format!(
            "{} is too small for an encrypted provider.",
            provider.name()
        );
        return Err(Error::invalid(text));
    }
    Ok((size / sector - 1) * sector)
}

fn write_sector(provider: &dyn Provider, at: u64, sector: &[u8]) -> Result<()> {
    provider.write(at, sector)?;
    provider.flush()
}

/// Overwrites a sector that held metadata, several times.
///
/// # Errors
/// What the provider says.
#[doc(alias = "eli_trash_metadata")]
pub fn trash(provider: &dyn Provider, at: u64) -> Result<()> {
    let mut sector = BlockBuf::zeroed(provider.sectorsize() as usize);
    for _ in 0..OVERWRITES {
        rt::fill_random(&mut sector);
        write_sector(provider, at, &sector)
            .within(|| format!("Cannot trash metadata on provider {}", provider.name()))?;
    }
    Ok(())
}

/// Replaces the metadata of a provider by zeros: `geli clear`.
///
/// # Errors
/// As [`Metadata::decode`] if there is none; what the provider says.
pub fn clear(provider: &dyn Provider) -> Result<()> {
    let at = last_sector(provider)?;
    let mut sector = BlockBuf::zeroed(provider.sectorsize() as usize);
    provider.read(at, &mut sector)?;
    if !has_magic(&sector) {
        return Err(Error::not_found("Invalid argument"));
    }
    sector.fill(0);
    write_sector(provider, at, &sector)
}

/// The name of the encrypted provider on a provider.
#[must_use]
pub fn name_on(below: &str) -> String {
    format!("{below}{SUFFIX}")
}

#[cfg(test)]
mod tests;
