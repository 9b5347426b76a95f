//! Partition types: names, GUIDs and MBR types.

use std::fmt;

use base::{Error, Result};

use crate::{Scheme, Uuid};

/// The type of a partition, as its table stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The type GUID of a GPT entry.
    Gpt(Uuid),
    /// The type byte of an MBR entry.
    Mbr(u8),
}

macro_rules! guids {
    ($($name:literal = $digits:literal,)*) => {
        const GUIDS: &[(&str, Uuid)] = &[$(($name, Uuid::from_digits($digits)),)*];
    };
}

guids! {
    "apple-apfs" = 0x7c3457ef_0000_11aa_aa11_00306543ecac,
    "apple-boot" = 0x426f6f74_0000_11aa_aa11_00306543ecac,
    "apple-hfs" = 0x48465300_0000_11aa_aa11_00306543ecac,
    "apple-label" = 0x4c616265_6c00_11aa_aa11_00306543ecac,
    "apple-raid" = 0x52414944_0000_11aa_aa11_00306543ecac,
    "apple-raid-offline" = 0x52414944_5f4f_11aa_aa11_00306543ecac,
    "apple-tv-recovery" = 0x5265636f_7665_11aa_aa11_00306543ecac,
    "apple-ufs" = 0x55465300_0000_11aa_aa11_00306543ecac,
    "apple-zfs" = 0x6a898cc3_1dd2_11b2_99a6_080020736631,
    "bios-boot" = 0x21686148_6449_6e6f_744e_656564454649,
    "efi" = 0xc12a7328_f81f_11d2_ba4b_00a0c93ec93b,
    "freebsd" = 0x516e7cb4_6ecf_11d6_8ff8_00022d09712b,
    "freebsd-boot" = 0x83bd6b9d_7f41_11dc_be0b_001560b84f0f,
    "freebsd-nandfs" = 0x74ba7dd9_a689_11e1_bd04_00e081286acf,
    "freebsd-swap" = 0x516e7cb5_6ecf_11d6_8ff8_00022d09712b,
    "freebsd-ufs" = 0x516e7cb6_6ecf_11d6_8ff8_00022d09712b,
    "freebsd-vinum" = 0x516e7cb8_6ecf_11d6_8ff8_00022d09712b,
    "freebsd-zfs" = 0x516e7cba_6ecf_11d6_8ff8_00022d09712b,
    "linux-data" = 0x0fc63daf_8483_4772_8e79_3d69d8477de4,
    "linux-lvm" = 0xe6d6d379_f507_44c2_a23c_238f2a3df928,
    "linux-raid" = 0xa19d880f_05fc_4d3b_a006_743f0f84911e,
    "linux-swap" = 0x0657fd6d_a4ab_43c4_84e5_0933c84b4f4f,
    "mbr" = 0x024dee41_33e7_11d3_9d69_0008c781f39f,
    "ms-basic-data" = 0xebd0a0a2_b9e5_4433_87c0_68b6b72699c7,
    "ms-ldm-data" = 0xaf9b60a0_1431_4f62_bc68_3311714a69ad,
    "ms-ldm-metadata" = 0x5808c8aa_7e8f_42e0_85d2_e1e90434cfb3,
    "ms-recovery" = 0xde94bba4_06d1_4d40_a16a_bfd50179d6ac,
    "ms-reserved" = 0xe3c9e316_0b5c_4db8_817d_f92df00215ae,
    "ms-spaces" = 0xe75caf8f_f680_4cee_afa3_b001e56efc2d,
    "netbsd-ccd" = 0x2db519c4_b10f_11dc_b99b_0019d1879648,
    "netbsd-cgd" = 0x2db519ec_b10f_11dc_b99b_0019d1879648,
    "netbsd-ffs" = 0x49f48d5a_b10e_11dc_b99b_0019d1879648,
    "netbsd-lfs" = 0x49f48d82_b10e_11dc_b99b_0019d1879648,
    "netbsd-raid" = 0x49f48daa_b10e_11dc_b99b_0019d1879648,
    "netbsd-swap" = 0x49f48d32_b10e_11dc_b99b_0019d1879648,
    "openbsd-data" = 0x824cc7a0_36a8_11e3_890a_952519ad3f61,
    "prep-boot" = 0x9e1a2d38_c612_4316_aa26_8b49521e5a8b,
    "vmware-reserved" = 0x9198effc_31c0_11db_8f78_000c2911d1b8,
    "vmware-vmfs" = 0xaa31e02a_400f_11db_9590_000c2911d1b8,
    "vmware-vmkdiag" = 0x9d275380_40ad_11db_bf97_000c2911d1b8,
    "vmware-vsanhdr" = 0x381cfccc_7288_11e0_92ee_000c2911d0b2,
}

const MBR_TYPES: &[(&str, u8)] = &[
    ("freebsd", 0xa5),
    ("apple-boot", 0xab),
    ("apple-ufs", 0xa8),
    ("efi", 0xef),
    ("ebr", 0x05),
    ("ebr", 0x0f),
    ("fat16", 0x06),
    ("fat32", 0x0b),
    ("fat32lba", 0x0c),
    ("apple-hfs", 0xaf),
    ("ms-ldm-data", 0x42),
    ("linux-lvm", 0x8e),
    ("linux-raid", 0xfd),
    ("linux-swap", 0x82),
    ("linux-data", 0x83),
    ("ntfs", 0x07),
    ("prep-boot", 0x41),
    ("vmware-vmfs", 0xfb),
    ("vmware-vmkdiag", 0xfc),
];

impl Kind {
    /// Parses gpart's name for it, or `!` and the raw type.
    ///
    /// # Errors
    /// [`base::ErrorKind::InvalidInput`] for a name that the scheme does not know.
    pub fn parse(scheme: Scheme, text: &str) -> Result<Kind> {
        let bad = || Error::invalid(format!("type '{text}': Invalid argument"));
        let raw = text.strip_prefix('!');
        let find_in = |name: &str| name.eq_ignore_ascii_case(text);
        match (scheme, raw) {
            (Scheme::Gpt, Some(raw)) => match raw.parse::<Uuid>() {
                Ok(uuid) if uuid != Uuid::NIL => Ok(Kind::Gpt(uuid)),
                _ => Err(bad()),
            },
            (Scheme::Gpt, None) => {
                let found = GUIDS.iter().find(|(name, _)| find_in(name));
                found.map(|(_, uuid)| Kind::Gpt(*uuid)).ok_or_else(bad)
            }
            (Scheme::Mbr, Some(raw)) => {
                let number = match raw.strip_prefix("0x").or_else(|| raw.strip_prefix("0X")) {
                    Some(digits) => u8::from_str_radix(digits, 16),
                    None => raw.parse(),
                };
                match number {
                    Ok(number) if number > 0 => Ok(Kind::Mbr(number)),
                    _ => Err(bad()),
                }
            }
            (Scheme::Mbr, None) => {
                let found = MBR_TYPES.iter().find(|(name, _)| find_in(name));
                found.map(|(_, byte)| Kind::Mbr(*byte)).ok_or_else(bad)
            }
        }
    }

    /// gpart's name for it, if there is one.
    #[must_use]
    pub fn alias(self) -> Option<&'static str> {
        match self {
            Kind::Gpt(uuid) => GUIDS
                .iter()
                .find(|(_, u)| *u == uuid)
                .map(|(name, _)| *name),
            Kind::Mbr(byte) => MBR_TYPES
                .iter()
                .find(|(_, b)| *b == byte)
                .map(|(name, _)| *name),
        }
    }

    /// The GUID or the number.
    #[must_use]
    pub fn raw(self) -> String {
        match self {
            Kind::Gpt(uuid) => uuid.to_string(),
            Kind::Mbr(byte) => byte.to_string(),
        }
    }

    /// Whether it is an extended partition, which holds further partitions that are not listed here.
    #[must_use]
    pub fn is_extended(self) -> bool {
        matches!(self, Kind::Mbr(0x05 | 0x0f | 0x85))
    }

    /// Whether `name` is gpart's name for it.
    #[must_use]
    pub fn is(self, name: &str) -> bool {
        self.alias() == Some(name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.alias() {
            Some(alias) => f.write_str(alias),
            None => write!(f, "!{}", self.raw()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_understood_as_they_are_printed() {
        for (name, uuid) in GUIDS {
            let kind = Kind::Gpt(*uuid);
            assert_eq!(kind.to_string(), *name);
            assert_eq!(Kind::parse(Scheme::Gpt, name).unwrap(), kind);
            assert_eq!(Kind::parse(Scheme::Gpt, &format!("!{uuid}")).unwrap(), kind);
        }
        for byte in 1..=255 {
            let kind = Kind::Mbr(byte);
            let back = Kind::parse(Scheme::Mbr, &kind.to_string()).unwrap();
            assert_eq!(back.to_string(), kind.to_string());
        }
        assert_eq!(
            Kind::parse(Scheme::Gpt, "FreeBSD-ZFS").unwrap().raw(),
            "516e7cba-6ecf-11d6-8ff8-00022d09712b"
        );
        assert_eq!(Kind::parse(Scheme::Mbr, "!0xa5").unwrap(), Kind::Mbr(165));
    }

    #[test]
    fn refuses_other_names() {
        for (scheme, text) in [
            (Scheme::Gpt, "fat32"),
            (Scheme::Gpt, "!165"),
            (Scheme::Gpt, "!00000000-0000-0000-0000-000000000000"),
            (Scheme::Mbr, "freebsd-zfs"),
            (Scheme::Mbr, "!0"),
            (Scheme::Mbr, "!256"),
            (Scheme::Mbr, "!"),
        ] {
            assert!(Kind::parse(scheme, text).is_err(), "{text}");
        }
    }
}
