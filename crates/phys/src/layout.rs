//! The trait of on-disk structures and the macro that declares them.
//!
//! # What it is
//! [`Phys`] is "bytes on disk with a name": a fixed size, any content allowed, every byte carried
//! through unchanged, reserved or not. `phys_struct!` declares one with the offset of every
//! field; the compiler checks the offsets, so a forgotten field stops the build.

use base::{Error, Result};
use std::mem::size_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An on-disk structure: fixed size, no alignment, no invalid bit pattern.
///
/// Functions that return a `Result` refuse too few bytes with `Corrupt` and the structure's name;
/// all of them ignore bytes after the structure.
pub trait Phys: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + Copy {
    /// The Rust name, for errors.
    const NAME: &'static str;

    /// Size in bytes.
    const SIZE: usize = size_of::<Self>();

    /// A copy of the structure at the start of `bytes`.
    ///
    /// # Errors
    /// `Corrupt` if there are too few bytes.
    fn read(bytes: &[u8]) -> Result<Self> {
        Self::view(bytes).copied()
    }

    /// The structure at the start of `bytes`.
    ///
    /// # Errors
    /// `Corrupt` if there are too few bytes.
    fn view(bytes: &[u8]) -> Result<&Self> {
        Self::split(bytes).map(|(value, _)| value)
    }

    /// The structure at the start of `bytes`, and the bytes after it.
    ///
    /// # Errors
    /// `Corrupt` if there are too few bytes.
    fn split(bytes: &[u8]) -> Result<(&Self, &[u8])> {
        let have = bytes.len();
        Self::ref_from_prefix(bytes).map_err(|_| too_short::<Self>(have))
    }

    /// The structure at the start of `bytes`, to be changed in place.
    ///
    /// # Errors
    /// `Corrupt` if there are too few bytes.
    fn view_mut(bytes: &mut [u8]) -> Result<&mut Self> {
        let have = bytes.len();
        let split = Self::mut_from_prefix(bytes).map_err(|_| too_short::<Self>(have));
        split.map(|(value, _)| value)
    }

    /// `bytes` as an array; a remainder too short for another element is ignored.
    fn array(bytes: &[u8]) -> &[Self] {
        let count = bytes.len().checked_div(Self::SIZE).unwrap_or(0);
        let result = <[Self]>::ref_from_prefix_with_elems(bytes, count);
        result.map_or(&[], |(array, _)| array)
    }

    /// Writes the structure at the start of `bytes`, which must have room.
    fn write(&self, bytes: &mut [u8]) {
        let room = bytes.len();
        let result = self.write_to_prefix(bytes);
        assert!(
            result.is_ok(),
            "{} needs {} bytes, not {room}",
            Self::NAME,
            Self::SIZE
        );
    }
}

fn too_short<T: Phys>(have: usize) -> Error {
    Error::corrupt(format!("{}: {have} bytes of {}", T::NAME, T::SIZE))
}

/// Declares on-disk structures: `offset field: type` per field, the size after the name.
///
/// Each gets `Clone`, `Copy`, `Debug`, `PartialEq`, `Eq`, `Default` (all zero) and [`Phys`].
macro_rules! phys_struct {
    ($(
        $(#[$doc:meta])*
        pub struct $name:ident: $size:literal {
            $($(#[$fdoc:meta])* $offset:literal $field:ident: $type:ty,)*
        }
    )*) => {$(
        $(#[$doc])*
        #[derive(
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout,
            zerocopy::Immutable, zerocopy::Unaligned, Clone, Copy, Debug, PartialEq, Eq,
        )]
        #[repr(C)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $type,)*
        }

        const _: () = {
            assert!(size_of::<$name>() == $size, concat!("size of ", stringify!($name)));
            $(assert!(
                std::mem::offset_of!($name, $field) == $offset,
                concat!("offset of ", stringify!($name), "::", stringify!($field)),
            );)*
        };

        impl Default for $name {
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }

        impl crate::Phys for $name {
            const NAME: &'static str = stringify!($name);
        }
    )*};
}
pub(crate) use phys_struct;

#[cfg(test)]
mod tests {
    use crate::{DslDirPhys, Phys};

    #[test]
    fn array_ignores_the_rest() {
        let bytes = vec![1u8; 600];
        assert_eq!(DslDirPhys::array(&bytes).len(), 2);
        assert!(DslDirPhys::array(&bytes[..255]).is_empty());
    }

    #[test]
    fn too_few_bytes_are_named() {
        let error = DslDirPhys::view(&[0; 5]).unwrap_err();
        assert_eq!(error.context(), "DslDirPhys: 5 bytes of 256");
    }
}
