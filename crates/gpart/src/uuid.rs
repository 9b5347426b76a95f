//! UUIDs as GPT stores them: the first three groups are little-endian.

use std::fmt;
use std::str::FromStr;

use base::{Error, Result};

/// A UUID, its bytes in text order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

/// Lengths of the groups of digits, in bytes.
const GROUPS: [usize; 5] = [4, 2, 2, 2, 6];

impl Uuid {
    /// All zeros: an entry that is not in use.
    pub const NIL: Uuid = Uuid([0; 16]);

    /// A random one (version 4).
    #[must_use]
    pub fn random() -> Uuid {
        let mut bytes = [0; 16];
        rt::fill_random(&mut bytes);
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Uuid(bytes)
    }

    /// From the 32 digits of its text.
    pub(crate) const fn from_digits(digits: u128) -> Uuid {
        Uuid(digits.to_be_bytes())
    }

    /// Converts to the on-disk order, or back: the first three groups are byte-swapped.
    #[must_use]
    pub fn swapped(self) -> [u8; 16] {
        let mut bytes = self.0;
        bytes[0..4].reverse();
        bytes[4..6].reverse();
        bytes[6..8].reverse();
        bytes
    }

    /// From the bytes on disk.
    #[must_use]
    pub fn from_disk(bytes: [u8; 16]) -> Uuid {
        Uuid(Uuid(bytes).swapped())
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.0.iter();
        for (i, len) in GROUPS.into_iter().enumerate() {
            if i > 0 {
                f.write_str("-")?;
            }
            for byte in bytes.by_ref().take(len) {
                write!(f, "{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Uuid {
    type Err = Error;

    fn from_str(text: &str) -> Result<Uuid> {
        let bad = || Error::invalid(format!("'{text}' is not a UUID"));
        let groups: Vec<&str> = text.split('-').collect();
        if groups.len() != GROUPS.len() {
            return Err(bad());
        }
        let mut digits = String::with_capacity(32);
        for (group, len) in groups.iter().zip(GROUPS) {
            if group.len() != 2 * len || !group.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(bad());
            }
            digits.push_str(group);
        }
        let digits = u128::from_str_radix(&digits, 16).map_err(|_| bad())?;
        Ok(Uuid::from_digits(digits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_disk_order_differ_as_uefi_says() {
        let efi: Uuid = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B".parse().unwrap();
        let disk = [
            0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11, 0xba, 0x4b, 0x00, 0xa0, 0xc9, 0x3e,
            0xc9, 0x3b,
        ];
        assert_eq!(efi.swapped(), disk);
        assert_eq!(Uuid::from_disk(disk), efi);
        assert_eq!(efi.to_string(), "c12a7328-f81f-11d2-ba4b-00a0c93ec93b");
    }

    #[test]
    fn refuses_what_is_no_uuid() {
        for text in [
            "",
            "516e7cba",
            "516e7cba-6ecf-11d6-8ff8-00022d09712",
            "516e7cba-6ecf-11d6-8ff8-00022d09712g",
            "+16e7cba-6ecf-11d6-8ff8-00022d09712b",
            "516e7cba6ecf-11d6-8ff8-00022d09712b-",
        ] {
            assert!(text.parse::<Uuid>().is_err(), "{text}");
        }
    }

    #[test]
    fn random_ones_are_of_version_4() {
        let (a, b) = (Uuid::random(), Uuid::random());
        assert_ne!(a, b);
        assert_eq!(&a.to_string()[14..15], "4");
        assert!("89ab".contains(&a.to_string()[19..20]));
    }
}
