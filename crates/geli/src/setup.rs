//! Creating, opening and moving encrypted providers: what the subcommands of geli(8) do to metadata.

use base::{BlockBuf, Error, ErrorKind, Result};
use geom::Provider;

use crate::keys::Components;
use crate::metadata::{OVERWRITES, SLOT_BYTES, SLOTS, VERSION_MAX, has_magic, last_sector, trash};
use crate::{Attached, AuthAlgorithm, Cipher, Flags, MasterKey, Metadata};

/// The largest sector in bytes: what one command can carry.
const SECTOR_BYTES_MAX: u32 = 1 << 20;

/// The options of `geli init` and `geli onetime`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitOptions {
    /// `-V`
    pub version: u32,
    /// `-b`, `-d`, `-g`, `-R`, `-T`
    pub flags: Flags,
    /// `-e`; `None` is AES-XTS, or AES-CBC before version 5.
    pub cipher: Option<Cipher>,
    /// `-a`
    pub auth: Option<AuthAlgorithm>,
    /// `-l` in bits; 0 is the default length.
    pub key_bits: u16,
    /// `-s`; `None` is that of the provider below.
    pub sectorsize: Option<u32>,
}

impl Default for InitOptions {
    fn default() -> Self {
        InitOptions {
            version: VERSION_MAX,
            flags: Flags::AUTORESIZE,
            cipher: None,
            auth: None,
            key_bits: 0,
            sectorsize: None,
        }
    }
}

impl InitOptions {
    /// Checks everything that does not depend on a provider, and chooses what was left open.
    fn choose(&self) -> Result<(Cipher, u16)> {
        if self.version > VERSION_MAX {
            return Err(Error::invalid(format!(
                "Invalid version specified should be between 0 and {VERSION_MAX}."
            )));
        }
        if self.auth.is_some() && self.version < 1 {
            return Err(Error::invalid(
                "Data authentication is supported starting from version 1.",
            ));
        }
        let cipher = match self.cipher {
            Some(Cipher::AesXts) if self.version < 5 => {
                return Err(Error::invalid(
                    "AES-XTS algorithm is supported starting from version 5.",
                ));
            }
            Some(cipher) => cipher,
            None if self.version < 5 => Cipher::AesCbc,
            None => Cipher::AesXts,
        };
        Ok((cipher, cipher.key_bits(self.key_bits)?))
    }

    /// Checks that the options fit each other and a provider.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] in geli's words.
    pub fn check(&self, below: &dyn Provider) -> Result<()> {
        self.choose()?;
        self.sectorsize_on(below)?;
        last_sector(below).map(drop)
    }

    fn sectorsize_on(&self, below: &dyn Provider) -> Result<u32> {
        let parent = below.sectorsize();
        let size = self.sectorsize.unwrap_or(parent);
        let fits = size.is_multiple_of(parent) && size.is_power_of_two();
        if !fits || size > SECTOR_BYTES_MAX {
            return Err(Error::invalid("Invalid sector size."));
        }
        Ok(size)
    }
}

/// Prepares metadata for a provider, with one slot locked by `components`, and writes it.
///
/// `iterations`: of PBKDF2 over the passphrase; `None` is [`crate::calibrate_iterations`].
///
/// # Errors
/// [`ErrorKind::InvalidInput`] in geli's words; what the provider says.
pub fn init(
    below: &dyn Provider,
    options: &InitOptions,
    components: &Components,
    iterations: Option<i32>,
) -> Result<Metadata> {
    let (cipher, key_bits) = options.choose()?;
    let sectorsize = options.sectorsize_on(below)?;
    last_sector(below)?;
    components.check()?;
    if iterations.is_some() && components.passphrase.is_none() {
        return Err(Error::invalid("Options -i and -P are mutually exclusive."));
    }
    let mut metadata = Metadata {
        version: options.version,
        flags: options.flags.with(Flags::AUTH, options.auth.is_some()),
        ealgo: cipher.number(),
        keylen: key_bits,
        aalgo: options.auth.map_or(0, AuthAlgorithm::number),
        provsize: below.mediasize(),
        sectorsize,
        keys: 0,
        iterations: chosen_iterations(components, iterations)?,
        salt: [0; 64],
        mkeys: [[0; SLOT_BYTES]; SLOTS],
    };
    rt::fill_random(&mut metadata.salt);
    metadata.delete_all_slots();
    let user = components.user_key(&metadata.salt, metadata.iterations)?;
    metadata.lock(0, &MasterKey::random(), &user)?;
    crate::provider::check_fit(below, &metadata_shape(&metadata)?)?;
    metadata.write(below)?;
    Ok(metadata)
}

fn chosen_iterations(components: &Components, asked: Option<i32>) -> Result<i32> {
    match (components.passphrase.is_some(), asked) {
        (false, _) => Ok(-1),
        (true, None) => Ok(crate::calibrate_iterations()),
        (true, Some(asked)) if asked >= 0 => Ok(asked),
        (true, Some(_)) => Err(Error::invalid("Invalid 'iterations' argument.")),
    }
}

/// [`Attached`] without the key.
fn metadata_shape(metadata: &Metadata) -> Result<Attached> {
    let cipher = Cipher::from_number(metadata.ealgo)?;
    let auth = metadata.flags.contains(Flags::AUTH);
    Ok(Attached {
        version: metadata.version,
        flags: metadata.flags,
        ealgo: cipher,
        keylen: cipher.stored_key_bits(metadata.keylen)?,
        aalgo: if auth {
            Some(AuthAlgorithm::from_number(metadata.aalgo)?)
        } else {
            None
        },
        provsize: metadata.provsize,
        sectorsize: metadata.sectorsize,
        nkey: None,
        mkey: MasterKey([0; 128]),
    })
}

/// Opens a provider that has metadata: `geli attach`.
///
/// `slot`: the only one to try.
///
/// # Errors
/// [`ErrorKind::Permission`] for a wrong key, in geli's words; [`ErrorKind::InvalidInput`] if the
/// metadata does not fit the provider.
pub fn attach(
    below: &dyn Provider,
    metadata: &Metadata,
    components: &Components,
    slot: Option<u8>,
) -> Result<Attached> {
    let name = below.name();
    if metadata.provsize != below.mediasize() {
        return Err(Error::invalid("Provider size mismatch."));
    }
    if metadata.keys == 0 {
        return Err(Error::invalid(format!("No valid keys on {name}.")));
    }
    let shape = metadata_shape(metadata)?;
    crate::provider::check_fit(below, &shape)?;
    let (mkey, slot) = unlock_named(metadata, components, slot, name)?;
    Ok(Attached {
        nkey: Some(slot),
        mkey,
        ..shape
    })
}

/// Opens a slot, with errors in geli's words about `name`.
///
/// # Errors
/// [`ErrorKind::Permission`] for a wrong key.
pub fn unlock_named(
    metadata: &Metadata,
    components: &Components,
    slot: Option<u8>,
    name: &str,
) -> Result<(MasterKey, u8)> {
    let user = components.user_key(&metadata.salt, metadata.iterations)?;
    metadata
        .unlock(&user, slot)
        .map_err(|error| match error.kind() {
            ErrorKind::Permission => Error::new(error.kind(), format!("Wrong key for {name}.")),
            _ => error,
        })
}

/// A provider with a random key and no metadata: `geli onetime`.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] in geli's words.
pub fn onetime(below: &dyn Provider, options: &InitOptions) -> Result<Attached> {
    let (cipher, key_bits) = options.choose()?;
    let flags = options.flags.with(Flags::AUTH, options.auth.is_some());
    let attached = Attached {
        version: options.version,
        flags: flags.with(Flags::ONETIME, true),
        ealgo: cipher,
        keylen: key_bits,
        aalgo: options.auth,
        provsize: below.mediasize(),
        sectorsize: options.sectorsize_on(below)?,
        nkey: None,
        mkey: MasterKey::random(),
    };
    crate::provider::check_fit(below, &attached)?;
    Ok(attached)
}

/// The options of `geli setkey`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetKey {
    /// `-n`; `None` is the slot that was opened.
    pub slot: Option<u8>,
    /// `-i`
    pub iterations: Option<i32>,
}

/// Stores an unlocked master key in a slot, encrypted with new components: `geli setkey`. `opened` is
/// the slot it came from. Changes `metadata` only; the caller writes it.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] in geli's words.
pub fn set_key(
    metadata: &mut Metadata,
    (master, opened): (&MasterKey, u8),
    new: &Components,
    what: SetKey,
) -> Result<u8> {
    let slot = what.slot.unwrap_or(opened);
    if usize::from(slot) >= SLOTS {
        return Err(Error::invalid("Invalid 'keyno' argument."));
    }
    new.check()?;
    let has_passphrase = new.passphrase.is_some();
    if what.iterations.is_some_and(|iterations| iterations < 0) {
        return Err(Error::invalid("Invalid 'iterations' argument."));
    }
    match what.iterations {
        Some(iterations) if metadata.iterations == -1 => metadata.iterations = iterations,
        Some(iterations) if iterations != metadata.iterations => {
            if metadata.keys.count_ones() != 1 {
                return Err(Error::invalid(
                    "To be able to use '-i' option, only one key can be defined.",
                ));
            }
            if metadata.keys != 1 << slot {
                return Err(Error::invalid(
                    "Only already defined key can be changed when '-i' option is used.",
                ));
            }
            metadata.iterations = iterations;
        }
        None if metadata.iterations == -1 && has_passphrase => {
            metadata.iterations = crate::calibrate_iterations();
        }
        _ => {}
    }
    let user = new.user_key(&metadata.salt, metadata.iterations)?;
    metadata.lock(slot, master, &user)?;
    Ok(slot)
}

/// Overwrites one slot, or all of them, with random bytes several times, on disk each time: `geli delkey`.
///
/// # Errors
/// As [`Metadata::delete_slot`]; what the provider says.
pub fn destroy_keys(
    below: &dyn Provider,
    metadata: &mut Metadata,
    slot: Option<u8>,
    is_forced: bool,
) -> Result<()> {
    for round in 0..OVERWRITES {
        match slot {
            Some(slot) => metadata.delete_slot(slot, is_forced || round > 0)?,
            None => metadata.delete_all_slots(),
        }
        metadata.write(below)?;
    }
    Ok(())
}

/// The sector that holds the metadata, as it is: `geli backup`.
///
/// # Errors
/// [`ErrorKind::NotFound`] if there is no metadata in it; what the provider says.
pub fn metadata_sector(below: &dyn Provider) -> Result<Vec<u8>> {
    let mut sector = BlockBuf::zeroed(below.sectorsize() as usize);
    below.read(last_sector(below)?, &mut sector)?;
    if !has_magic(&sector) {
        return Err(Error::not_found("Invalid argument"));
    }
    Ok(sector.to_vec())
}

/// Moves the metadata of a provider that had `old_size` bytes to its current end: `geli resize`.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] in geli's words; what the provider says.
pub fn resize(below: &dyn Provider, old_size: u64) -> Result<()> {
    let size = below.mediasize();
    let sector = u64::from(below.sectorsize());
    if old_size > size || old_size < sector || !old_size.is_multiple_of(sector) {
        return Err(Error::invalid("Invalid oldsize: Out of range."));
    }
    let old_at = old_size - sector;
    if old_at == last_sector(below)? {
        return Err(Error::invalid("Size hasn't changed."));
    }
    let mut metadata = Metadata::read_at(below, old_at)?;
    if metadata.provsize != old_size {
        return Err(Error::invalid("Provider size mismatch at oldsize."));
    }
    metadata.provsize = size;
    metadata.write(below)?;
    trash(below, old_at)
}

#[cfg(test)]
mod tests;
