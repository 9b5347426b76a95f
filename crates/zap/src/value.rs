//! Keys and values as a leaf stores them: arrays of big-endian integers of 1, 2, 4 or 8 bytes.

use base::{Error, ErrorKind, Result};

use crate::hash::crc64;
use crate::key::Key;
use crate::textprep;

/// `ZAP_MAXNAMELEN`: a name with its terminating NUL, in bytes.
pub const MAX_NAME_BYTES: usize = phys::zap::ZAP_MAXNAMELEN;
/// `ZAP_MAXNAMELEN_NEW`: the same in directories with the `longname` feature.
pub(crate) const MAX_LONG_NAME_BYTES: usize = phys::zap::ZAP_MAXNAMELEN_NEW;
/// `ZAP_MAXVALUELEN`: the largest value in bytes.
pub const MAX_VALUE_BYTES: usize = phys::zap::ZAP_MAXVALUELEN;

/// Where `zap_normflags` are in [`Flags`].
const NORM_SHIFT: u32 = 32;

/// Properties of a fat ZAP that are fixed when it is created (`zap_flags_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u64);

impl Flags {
    /// No flags: such a ZAP starts as a micro ZAP.
    pub const NONE: Flags = Flags(0);
    /// `ZAP_FLAG_HASH64`: 48 bits of hash and 16 of collision differentiator in a cursor.
    pub const HASH64: Flags = Flags(phys::zap::ZAP_FLAG_HASH64);
    /// `ZAP_FLAG_UINT64_KEY`: keys are arrays of 64-bit words.
    pub const UINT64_KEY: Flags = Flags(phys::zap::ZAP_FLAG_UINT64_KEY);
    /// `ZAP_FLAG_PRE_HASHED_KEY`: the first word of the key is already uniformly distributed.
    pub const PRE_HASHED_KEY: Flags = Flags(phys::zap::ZAP_FLAG_PRE_HASHED_KEY);

    /// `zap_normflags` = `U8_TEXTPREP_TOUPPER`: names are hashed in upper case. Used for the names of snapshots and
    /// bookmarks, and where file systems ignore case. Such a ZAP starts micro.
    pub const TOUPPER: Flags = Flags(textprep::TO_UPPER << NORM_SHIFT);

    /// Names are hashed in the form that `normflags` say (`zap_normflags`: upper case, a normal form of Unicode, or
    /// both). They are compared as they are, but by [`Zap::find_alike`](crate::Zap::find_alike). Such a ZAP starts
    /// micro.
    ///
    /// # Errors
    /// `Unsupported` for flags that OpenZFS does not write.
    pub fn normalizing(normflags: u64) -> Result<Flags> {
        if !textprep::is_known(normflags) {
            let text = format!("zap with normalised names (normflags {normflags:#x})");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        Ok(Flags(normflags << NORM_SHIFT))
    }

    /// From the fields of a header.
    pub(crate) fn from_stored(flags: u64, normflags: u64) -> Result<Flags> {
        let norm = Flags::normalizing(normflags)?;
        if flags > 7 {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("zap_flags are {flags:#x}"),
            ));
        }
        Ok(Flags(flags) | norm)
    }

    /// `zap_flags` as stored on disk.
    pub(crate) fn stored(self) -> u64 {
        self.0 & ((1 << NORM_SHIFT) - 1)
    }

    /// `zap_normflags` as stored on disk.
    #[must_use]
    pub fn normflags(self) -> u64 {
        self.0 >> NORM_SHIFT
    }

    /// Whether a ZAP with these flags can be micro.
    pub(crate) fn allow_micro(self) -> bool {
        self.stored() == 0
    }

    /// Whether all of `other` is set.
    #[must_use]
    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Upper bits of the hash that are used (`zap_hashbits`).
    #[must_use]
    pub(crate) fn hash_bits(self) -> u32 {
        if self.contains(Flags::HASH64) { 48 } else { 28 }
    }

    /// The first collision differentiator that is not valid (`zap_maxcd`).
    #[must_use]
    pub(crate) fn cd_max(self) -> u32 {
        if self.contains(Flags::HASH64) {
            (1 << 16) - 1
        } else {
            u32::MAX
        }
    }
}

impl std::ops::BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u8 {}
    impl Sealed for u16 {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
}

/// The integer types that a value may consist of.
pub trait Integer: Copy + sealed::Sealed + 'static {
    /// Bytes per integer.
    const SIZE: u8;
    /// Widens to 64 bits.
    fn to_u64(self) -> u64;
    /// Keeps the low bits.
    fn from_u64(value: u64) -> Self;
}

macro_rules! integer {
    ($($t:ty),*) => { $(
        impl Integer for $t {
            const SIZE: u8 = size_of::<$t>() as u8;
            fn to_u64(self) -> u64 { u64::from(self) }
            fn from_u64(value: u64) -> Self { value as $t }
        }
    )* };
}
integer!(u8, u16, u32, u64);

/// A value to be put into a leaf: big-endian bytes and their integer size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) bytes: Vec<u8>,
    pub(crate) integer_size: u8,
}

impl Value {
    pub(crate) fn of<T: Integer>(integers: &[T]) -> Result<Value> {
        let size = usize::from(T::SIZE);
        let len = integers.len().saturating_mul(size);
        if len > MAX_VALUE_BYTES {
            return Err(Error::new(
                ErrorKind::TooBig,
                format!("a zap value of {len} bytes exceeds {MAX_VALUE_BYTES}"),
            ));
        }
        let mut bytes = Vec::with_capacity(len);
        for integer in integers {
            bytes.extend_from_slice(&big_endian(integer.to_u64())[8 - size..]);
        }
        Ok(Value {
            bytes,
            integer_size: T::SIZE,
        })
    }

    pub(crate) fn numints(&self) -> u16 {
        (self.bytes.len() / usize::from(self.integer_size)) as u16
    }

    /// The value if it is a single 64-bit integer, which a micro ZAP can hold.
    pub(crate) fn single(&self) -> Option<u64> {
        (self.integer_size == 8 && self.bytes.len() == 8).then(|| from_big_endian(&self.bytes))
    }
}

/// The bytes of `value`, most significant first.
pub(crate) fn big_endian(value: u64) -> [u8; 8] {
    std::array::from_fn(|i| (value >> (56 - 8 * i)) as u8)
}

/// The number whose at most 8 `bytes` are given most significant first.
pub(crate) fn from_big_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Big-endian `bytes` of integers of `stored_size` as integers of type `T`.
pub(crate) fn integers<T: Integer>(bytes: &[u8], stored_size: u8) -> Result<Vec<T>> {
    if stored_size > T::SIZE {
        return Err(Error::invalid(format!(
            "zap value has integers of {stored_size} bytes, asked for {}",
            T::SIZE
        )));
    }
    let size = usize::from(stored_size);
    Ok(bytes
        .chunks_exact(size)
        .map(|int| T::from_u64(from_big_endian(int)))
        .collect())
}

/// A key as it is stored, with its hash in a given ZAP.
#[derive(Clone, Debug)]
pub(crate) struct StoredKey {
    /// A name with its NUL, or words with their most significant byte first.
    pub(crate) bytes: Vec<u8>,
    pub(crate) integer_size: u8,
    pub(crate) hash: u64,
}

impl StoredKey {
    pub(crate) fn new(key: &Key<'_>, salt: u64, flags: Flags) -> Result<StoredKey> {
        match key {
            Key::Name(name) => StoredKey::of_name(name, salt, flags),
            Key::Int(_) => StoredKey::new(&key.by_name(), salt, flags),
            Key::Words(words) => StoredKey::of_words(words, salt, flags),
        }
    }

    fn of_name(name: &[u8], salt: u64, flags: Flags) -> Result<StoredKey> {
        if flags.contains(Flags::UINT64_KEY) {
            return Err(Error::invalid(
                "a name was given to a zap whose keys are words",
            ));
        }
        check_name(name)?;
        check_normal_length(name, flags)?;
        let mut bytes = Vec::with_capacity(name.len() + 1);
        bytes.extend_from_slice(name);
        bytes.push(0);
        Ok(StoredKey {
            bytes,
            integer_size: 1,
            hash: hash_name(name, salt, flags),
        })
    }

    fn of_words(words: &[u64], salt: u64, flags: Flags) -> Result<StoredKey> {
        if !flags.contains(Flags::UINT64_KEY) {
            return Err(Error::invalid(
                "words were given to a zap whose keys are names",
            ));
        }
        if words.is_empty() || words.len() * 8 > MAX_NAME_BYTES {
            return Err(Error::invalid(format!(
                "a zap key of {} words",
                words.len()
            )));
        }
        let hash = if flags.contains(Flags::PRE_HASHED_KEY) {
            words[0]
        } else {
            // Least significant byte first: the order of a little-endian machine's memory.
            let bytes = words.iter().flat_map(|w| big_endian(*w).into_iter().rev());
            crc64(salt, bytes)
        };
        Ok(StoredKey {
            bytes: words.iter().flat_map(|w| big_endian(*w)).collect(),
            integer_size: 8,
            hash: keep_hash_bits(hash, flags),
        })
    }

    pub(crate) fn numints(&self) -> u16 {
        (self.bytes.len() / usize::from(self.integer_size)) as u16
    }
}

/// The hash of a name; its NUL is stored but not hashed.
pub(crate) fn hash_name(name: &[u8], salt: u64, flags: Flags) -> u64 {
    let crc = match flags.normflags() {
        0 => crc64(salt, name.iter().copied()),
        norm => crc64(salt, textprep::prepare(name, norm)),
    };
    keep_hash_bits(crc, flags)
}

/// Refuses a name whose form to be hashed is longer than the longest name, as OpenZFS does.
fn check_normal_length(name: &[u8], flags: Flags) -> Result<()> {
    let limit = match name.len() < MAX_NAME_BYTES {
        true => MAX_NAME_BYTES,
        false => MAX_LONG_NAME_BYTES,
    };
    if flags.normflags() != 0 && textprep::prepare(name, flags.normflags()).len() >= limit {
        let text = "a name whose normal form is too long";
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    Ok(())
}

/// Clears the bits of a hash that do not fit in a cursor.
fn keep_hash_bits(hash: u64, flags: Flags) -> u64 {
    hash & !((1 << (64 - flags.hash_bits())) - 1)
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.len() >= MAX_LONG_NAME_BYTES {
        return Err(Error::new(
            ErrorKind::NameTooLong,
            format!("a zap name of {} bytes", name.len()),
        ));
    }
    if name.is_empty() || name.contains(&0) {
        return Err(Error::invalid("a zap name is empty or has a NUL"));
    }
    Ok(())
}
