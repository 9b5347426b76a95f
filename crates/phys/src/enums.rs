//! The numbered choices of the format: object types, compression, checksums, objset types.
//!
//! # What it is
//! [`ObjectType`] is a byte with structure (the "new" types carry their properties in bits), so
//! it is a checked newtype with the `DMU_OT_*` names as constants. The others are plain enums.
//! All come from raw bytes by `TryFrom<u8>`, which refuses numbers that OpenZFS does not know.
//!
//! # Source
//! OpenZFS include/sys/dmu.h, module/zfs/dmu.c (`dmu_ot`), include/sys/zio.h,
//! include/sys/zio_compress.h, include/sys/fs/zfs.h @be7657e3.

use base::{Error, Result};
use std::fmt;

/// `dmu_object_byteswap_t`: how the contents of an object are converted to the other byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum ByteswapClass {
    Uint8 = 0,
    Uint16,
    Uint32,
    Uint64,
    Zap,
    Dnode,
    Objset,
    Znode,
    OldAcl,
    Acl,
}

impl ByteswapClass {
    const ALL: [ByteswapClass; 10] = [
        ByteswapClass::Uint8,
        ByteswapClass::Uint16,
        ByteswapClass::Uint32,
        ByteswapClass::Uint64,
        ByteswapClass::Zap,
        ByteswapClass::Dnode,
        ByteswapClass::Objset,
        ByteswapClass::Znode,
        ByteswapClass::OldAcl,
        ByteswapClass::Acl,
    ];

    /// The name that `zdb` gives to "new" object types of this class.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ByteswapClass::Uint8 => "uint8",
            ByteswapClass::Uint16 => "uint16",
            ByteswapClass::Uint32 => "uint32",
            ByteswapClass::Uint64 => "uint64",
            ByteswapClass::Zap => "zap",
            ByteswapClass::Dnode => "dnode",
            ByteswapClass::Objset => "objset",
            ByteswapClass::Znode => "znode",
            ByteswapClass::OldAcl => "oldacl",
            ByteswapClass::Acl => "acl",
        }
    }
}

/// `dmu_object_type_t`: what an object, or a block, holds. Always valid (`DMU_OT_IS_VALID`).
///
/// Bytes below 0x80 number a fixed table. Bytes with bit 7 set are "new" types: bit 6 metadata,
/// bit 5 encrypted, bits 0..5 the [`ByteswapClass`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "dmu_object_type_t")]
pub struct ObjectType(u8);

struct TypeFacts {
    byteswap: ByteswapClass,
    metadata: bool,
    encrypted: bool,
    name: &'static str,
}

macro_rules! object_types {
    ($($number:literal $constant:ident $byteswap:ident $metadata:ident $encrypted:ident $name:literal;)*) => {
        impl ObjectType {
            $(
                #[doc = concat!("`DMU_OT_", stringify!($constant), "`: ", $name, ".")]
                pub const $constant: ObjectType = ObjectType($number);
            )*
        }

        /// One row per classic type, in order of number.
        const TYPE_FACTS: &[TypeFacts] = &[$(TypeFacts {
            byteswap: ByteswapClass::$byteswap,
            metadata: object_types!(@ $metadata),
            encrypted: object_types!(@ $encrypted),
            name: $name,
        }),*];

        const _: () = {
            let mut next = 0;
            $(
                assert!($number == next, "the table of object types is out of order");
                next += 1;
            )*
            assert!(next == ObjectType::NUMTYPES);
        };
    };
    (@ meta) => { true };
    (@ crypt) => { true };
    (@ data) => { false };
    (@ plain) => { false };
}

object_types! {
    0 NONE Uint8 meta plain "unallocated";
    1 OBJECT_DIRECTORY Zap meta plain "object directory";
    2 OBJECT_ARRAY Uint64 meta plain "object array";
    3 PACKED_NVLIST Uint8 meta plain "packed nvlist";
    4 PACKED_NVLIST_SIZE Uint64 meta plain "packed nvlist size";
    5 BPOBJ Uint64 meta plain "bpobj";
    6 BPOBJ_HDR Uint64 meta plain "bpobj header";
    7 SPACE_MAP_HEADER Uint64 meta plain "SPA space map header";
    8 SPACE_MAP Uint64 meta plain "SPA space map";
    9 INTENT_LOG Uint64 meta crypt "ZIL intent log";
    10 DNODE Dnode meta crypt "DMU dnode";
    11 OBJSET Objset meta plain "DMU objset";
    12 DSL_DIR Uint64 meta plain "DSL directory";
    13 DSL_DIR_CHILD_MAP Zap meta plain "DSL directory child map";
    14 DSL_DS_SNAP_MAP Zap meta plain "DSL dataset snap map";
    15 DSL_PROPS Zap meta plain "DSL props";
    16 DSL_DATASET Uint64 meta plain "DSL dataset";
    17 ZNODE Znode meta plain "ZFS znode";
    18 OLDACL OldAcl meta crypt "ZFS V0 ACL";
    19 PLAIN_FILE_CONTENTS Uint8 data crypt "ZFS plain file";
    20 DIRECTORY_CONTENTS Zap meta crypt "ZFS directory";
    21 MASTER_NODE Zap meta plain "ZFS master node";
    22 UNLINKED_SET Zap meta crypt "ZFS delete queue";
    23 ZVOL Uint8 data crypt "zvol object";
    24 ZVOL_PROP Zap meta plain "zvol prop";
    25 PLAIN_OTHER Uint8 data crypt "other uint8[]";
    26 UINT64_OTHER Uint64 data crypt "other uint64[]";
    27 ZAP_OTHER Zap meta plain "other ZAP";
    28 ERROR_LOG Zap meta plain "persistent error log";
    29 SPA_HISTORY Uint8 meta plain "SPA history";
    30 SPA_HISTORY_OFFSETS Uint64 meta plain "SPA history offsets";
    31 POOL_PROPS Zap meta plain "Pool properties";
    32 DSL_PERMS Zap meta plain "DSL permissions";
    33 ACL Acl meta crypt "ZFS ACL";
    34 SYSACL Uint8 meta crypt "ZFS SYSACL";
    35 FUID Uint8 meta crypt "FUID table";
    36 FUID_SIZE Uint64 meta plain "FUID table size";
    37 NEXT_CLONES Zap meta plain "DSL dataset next clones";
    38 SCAN_QUEUE Zap meta plain "scan work queue";
    39 USERGROUP_USED Zap meta crypt "ZFS user/group/project used";
    40 USERGROUP_QUOTA Zap meta crypt "ZFS user/group/project quota";
    41 USERREFS Zap meta plain "snapshot refcount tags";
    42 DDT_ZAP Zap meta plain "DDT ZAP algorithm";
    43 DDT_STATS Zap meta plain "DDT statistics";
    44 SA Uint8 meta crypt "System attributes";
    45 SA_MASTER_NODE Zap meta crypt "SA master node";
    46 SA_ATTR_REGISTRATION Zap meta crypt "SA attr registration";
    47 SA_ATTR_LAYOUTS Zap meta crypt "SA attr layouts";
    48 SCAN_XLATE Zap meta plain "scan translations";
    49 DEDUP Uint8 data crypt "deduplicated block";
    50 DEADLIST Zap meta plain "DSL deadlist map";
    51 DEADLIST_HDR Uint64 meta plain "DSL deadlist map hdr";
    52 DSL_CLONES Zap meta plain "DSL dir clones";
    53 BPOBJ_SUBOBJ Uint64 meta plain "bpobj subobj";
}

impl ObjectType {
    /// `DMU_OT_NEWTYPE`: the bit that marks "new" types, whose other bits describe them.
    pub const NEWTYPE: u8 = 0x80;
    /// `DMU_OT_METADATA`, in a "new" type.
    pub(crate) const METADATA: u8 = 0x40;
    /// `DMU_OT_ENCRYPTED`, in a "new" type.
    pub(crate) const ENCRYPTED: u8 = 0x20;
    /// `DMU_OT_BYTESWAP_MASK`, in a "new" type.
    pub(crate) const BYTESWAP_MASK: u8 = 0x1f;
    /// `DMU_OT_NUMTYPES`: the number of classic types.
    pub(crate) const NUMTYPES: u8 = 54;

    /// `DMU_OTN_UINT8_DATA`.
    pub const N_UINT8_DATA: ObjectType = Self::new_type(ByteswapClass::Uint8, false, false);
    /// `DMU_OTN_UINT32_METADATA`.
    pub const N_UINT32_METADATA: ObjectType = Self::new_type(ByteswapClass::Uint32, true, false);
    /// `DMU_OTN_UINT64_METADATA`.
    pub const N_UINT64_METADATA: ObjectType = Self::new_type(ByteswapClass::Uint64, true, false);
    /// `DMU_OTN_ZAP_METADATA`.
    pub const N_ZAP_METADATA: ObjectType = Self::new_type(ByteswapClass::Zap, true, false);

    /// `DMU_OT()`: a "new" type with its properties in its bits.
    #[must_use]
    #[doc(alias = "DMU_OT")]
    pub(crate) const fn new_type(
        byteswap: ByteswapClass,
        metadata: bool,
        encrypted: bool,
    ) -> ObjectType {
        let mut raw = Self::NEWTYPE | byteswap as u8;
        if metadata {
            raw |= Self::METADATA;
        }
        if encrypted {
            raw |= Self::ENCRYPTED;
        }
        ObjectType(raw)
    }

    /// The byte on disk.
    #[must_use]
    pub const fn raw(self) -> u8 {
        self.0
    }

    fn facts(self) -> Option<&'static TypeFacts> {
        TYPE_FACTS.get(usize::from(self.0))
    }

    /// `DMU_OT_BYTESWAP`: how contents of this type are byte-swapped.
    #[must_use]
    pub(crate) fn byteswap(self) -> ByteswapClass {
        let class = match self.facts() {
            Some(facts) => Some(facts.byteswap),
            None => ByteswapClass::ALL
                .get(usize::from(self.0 & Self::BYTESWAP_MASK))
                .copied(),
        };
        class.expect("ObjectType is always valid")
    }

    /// `DMU_OT_IS_METADATA`: such blocks get an extra copy and metadata compression.
    #[must_use]
    pub fn is_metadata(self) -> bool {
        self.facts()
            .map_or(self.0 & Self::METADATA != 0, |facts| facts.metadata)
    }

    /// `DMU_OT_IS_ENCRYPTED`: whether level-0 blocks are encrypted in an encrypted dataset.
    #[must_use]
    pub fn is_encrypted(self) -> bool {
        self.facts()
            .map_or(self.0 & Self::ENCRYPTED != 0, |facts| facts.encrypted)
    }

    /// Whether the object is a ZAP.
    #[must_use]
    pub fn is_zap(self) -> bool {
        self.byteswap() == ByteswapClass::Zap
    }

    /// `DMU_OT_HAS_FILL`: level-0 pointers have a fill count other than 1, so they are never embedded.
    #[must_use]
    pub fn has_fill(self) -> bool {
        self == Self::DNODE || self == Self::OBJSET
    }

    /// `DMU_OT_IS_FILE`: file contents.
    #[must_use]
    pub fn is_file(self) -> bool {
        self == Self::PLAIN_FILE_CONTENTS || self == Self::UINT64_OTHER
    }

    /// `DMU_OT_IS_CRITICAL`: metadata without which more than one file would be lost.
    #[must_use]
    pub fn is_critical(self, level: u8) -> bool {
        self.is_metadata()
            && (self != Self::DNODE || level > 0)
            && self != Self::DIRECTORY_CONTENTS
            && self != Self::SA
    }

    /// The name that `zdb` prints.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.facts()
            .map_or_else(|| self.byteswap().name(), |facts| facts.name)
    }
}

impl TryFrom<u8> for ObjectType {
    type Error = Error;

    fn try_from(raw: u8) -> Result<ObjectType> {
        let valid = if raw & Self::NEWTYPE != 0 {
            usize::from(raw & Self::BYTESWAP_MASK) < ByteswapClass::ALL.len()
        } else {
            raw < Self::NUMTYPES
        };
        if valid {
            Ok(ObjectType(raw))
        } else {
            Err(Error::corrupt(format!("object type {raw} is not known")))
        }
    }
}

impl From<ObjectType> for u8 {
    fn from(value: ObjectType) -> u8 {
        value.0
    }
}

impl fmt::Display for ObjectType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for ObjectType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectType({}, {})", self.0, self.name())
    }
}

const _: () = assert!(TYPE_FACTS.len() == ObjectType::NUMTYPES as usize);

macro_rules! numbered_enum {
    (
        $(#[$doc:meta])*
        $name:ident, $what:literal { $($(#[$vdoc:meta])* $variant:ident = $number:literal, $text:literal;)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$vdoc])* $variant = $number,)*
        }

        impl $name {
            /// Every value, in order of number.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// The number on disk.
            #[must_use]
            pub const fn raw(self) -> u8 {
                self as u8
            }

            /// The name as OpenZFS prints it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }

            /// The value with this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<$name> {
                Self::ALL.iter().copied().find(|value| value.name() == name)
            }
        }

        impl TryFrom<u8> for $name {
            type Error = Error;

            fn try_from(raw: u8) -> Result<$name> {
                match raw {
                    $($number => Ok($name::$variant),)*
                    _ => Err(Error::corrupt(format!(concat!($what, " {} is not known"), raw))),
                }
            }
        }

        impl From<$name> for u8 {
            fn from(value: $name) -> u8 {
                value.raw()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

numbered_enum! {
    /// `enum zio_compress`: how the bytes of a block are compressed.
    #[doc(alias = "zio_compress")]
    CompressType, "compression" {
        /// Property only: that of the parent.
        Inherit = 0, "inherit";
        /// Property only: [`CompressType::ON_VALUE`].
        On = 1, "on";
        /// Stored as is.
        Off = 2, "uncompressed";
        /// LZJB, the oldest algorithm.
        Lzjb = 3, "lzjb";
        /// All zeros: never on disk, such blocks are holes.
        Empty = 4, "empty";
        /// zlib level 1.
        Gzip1 = 5, "gzip-1";
        /// zlib level 2.
        Gzip2 = 6, "gzip-2";
        /// zlib level 3.
        Gzip3 = 7, "gzip-3";
        /// zlib level 4.
        Gzip4 = 8, "gzip-4";
        /// zlib level 5.
        Gzip5 = 9, "gzip-5";
        /// zlib level 6.
        Gzip6 = 10, "gzip-6";
        /// zlib level 7.
        Gzip7 = 11, "gzip-7";
        /// zlib level 8.
        Gzip8 = 12, "gzip-8";
        /// zlib level 9.
        Gzip9 = 13, "gzip-9";
        /// Runs of zeros only.
        Zle = 14, "zle";
        /// LZ4 with a 4-byte big-endian length in front (feature `lz4_compress`).
        Lz4 = 15, "lz4";
        /// Zstandard, magicless, with an 8-byte header (feature `zstd_compress`).
        Zstd = 16, "zstd";
    }
}

impl CompressType {
    /// The meaning of `compression=on` with `lz4_compress` enabled (`ZIO_COMPRESS_LZ4_ON_VALUE`).
    pub const ON_VALUE: CompressType = CompressType::Lz4;

    /// Whether blocks with this value need decompressing; false for values that no block has.
    #[must_use]
    pub fn is_compressed(self) -> bool {
        self.raw() > CompressType::Off.raw() && self != CompressType::Empty
    }
}

numbered_enum! {
    /// `enum zio_checksum`: the checksum algorithm of a block.
    #[doc(alias = "zio_checksum")]
    ChecksumType, "checksum" {
        /// Property only: that of the parent.
        Inherit = 0, "inherit";
        /// Property only: [`ChecksumType::ON_VALUE`].
        On = 1, "on";
        /// No checksum.
        Off = 2, "off";
        /// SHA-256 embedded in the block, seeded by its offset: labels.
        Label = 3, "label";
        /// SHA-256 embedded in the block, seeded by its DVA: gang headers.
        GangHeader = 4, "gang_header";
        /// Fletcher-2 embedded at the end: old intent log blocks.
        Zilog = 5, "zilog";
        /// Two 64-bit Fletcher sums.
        Fletcher2 = 6, "fletcher2";
        /// Four 32-bit Fletcher sums: the default.
        Fletcher4 = 7, "fletcher4";
        /// SHA-256: the default for dedup.
        Sha256 = 8, "sha256";
        /// Fletcher-4 embedded at the start: intent log blocks.
        Zilog2 = 9, "zilog2";
        /// Property only: test flag of RAID-Z.
        NoParity = 10, "noparity";
        /// SHA-512/256 (feature `sha512`).
        Sha512 = 11, "sha512";
        /// Skein-512-256 keyed by the pool's salt (feature `skein`).
        Skein = 12, "skein";
        /// Edon-R-512 keyed by the pool's salt (feature `edonr`).
        EdonR = 13, "edonr";
        /// BLAKE3 keyed by the pool's salt (feature `blake3`).
        Blake3 = 14, "blake3";
    }
}

impl ChecksumType {
    /// The meaning of `checksum=on` (`ZIO_CHECKSUM_ON_VALUE`).
    pub const ON_VALUE: ChecksumType = ChecksumType::Fletcher4;

    /// The checksum of data blocks that a dnode or property selects; `None` for "inherit" and for what
    /// no data block has: a checksum inside the block, OpenZFS's test flag `noparity`, an unknown number.
    #[must_use]
    #[doc(alias = "zio_checksum_select")]
    pub fn of_blocks(number: u64) -> Option<ChecksumType> {
        let raw = u8::try_from(number).ok()?;
        match ChecksumType::try_from(raw).ok()? {
            ChecksumType::Inherit | ChecksumType::NoParity => None,
            ChecksumType::On => Some(ChecksumType::ON_VALUE),
            kind => Some(kind).filter(|kind| !kind.is_embedded()),
        }
    }

    /// Whether the checksum is inside the block (`ZCHECKSUM_FLAG_EMBEDDED`).
    #[must_use]
    pub fn is_embedded(self) -> bool {
        matches!(
            self,
            ChecksumType::Label
                | ChecksumType::GangHeader
                | ChecksumType::Zilog
                | ChecksumType::Zilog2
        )
    }

    /// Whether the hash depends on the pool's salt (`ZCHECKSUM_FLAG_SALTED`).
    #[must_use]
    pub fn is_salted(self) -> bool {
        matches!(
            self,
            ChecksumType::Skein | ChecksumType::EdonR | ChecksumType::Blake3
        )
    }
}

numbered_enum! {
    /// `dmu_objset_type_t`: the kind of an objset.
    #[doc(alias = "dmu_objset_type_t")]
    ObjsetType, "objset type" {
        /// None.
        None = 0, "NONE";
        /// The meta-objset.
        Meta = 1, "META";
        /// A file system.
        Zfs = 2, "ZPL";
        /// A volume.
        Zvol = 3, "ZVOL";
        /// Only in tests of OpenZFS (`ztest`).
        Other = 4, "OTHER";
        /// A wildcard in calls; never on disk.
        Any = 5, "ANY";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_checksums_beside_them() {
        let of = ChecksumType::of_blocks;
        assert_eq!(of(0), None);
        assert_eq!(
            of(u64::from(ChecksumType::On.raw())),
            Some(ChecksumType::Fletcher4)
        );
        assert_eq!(
            of(u64::from(ChecksumType::Sha256.raw())),
            Some(ChecksumType::Sha256)
        );
        for none in [
            ChecksumType::Label,
            ChecksumType::Zilog2,
            ChecksumType::NoParity,
        ] {
            assert_eq!(of(u64::from(none.raw())), None);
        }
        assert_eq!(of(200), None);
        assert_eq!(of(u64::MAX), None);
    }

    #[test]
    fn new_types_carry_their_properties() {
        assert_eq!(ObjectType::N_ZAP_METADATA.raw(), 0xc4);
        assert_eq!(ObjectType::N_UINT64_METADATA.raw(), 0xc3);
        assert!(ObjectType::N_ZAP_METADATA.is_zap());
        assert!(ObjectType::N_ZAP_METADATA.is_metadata());
        assert!(!ObjectType::N_UINT8_DATA.is_metadata());
        assert_eq!(ObjectType::N_ZAP_METADATA.name(), "zap");
    }

    #[test]
    fn every_byte_is_refused_or_has_properties() {
        let mut valid = 0;
        for raw in 0..=255 {
            if let Ok(kind) = ObjectType::try_from(raw) {
                assert_eq!(kind.raw(), raw);
                assert!(!kind.name().is_empty());
                valid += 1;
            }
        }
        assert_eq!(valid, 54 + 4 * 10);
    }

    #[test]
    fn enums_round_trip_by_number_and_name() {
        for &kind in CompressType::ALL {
            assert_eq!(CompressType::try_from(kind.raw()).unwrap(), kind);
            assert_eq!(CompressType::from_name(kind.name()), Some(kind));
        }
        for &kind in ChecksumType::ALL {
            assert_eq!(ChecksumType::try_from(kind.raw()).unwrap(), kind);
        }
        let error = ChecksumType::try_from(15).unwrap_err();
        assert_eq!(error.context(), "checksum 15 is not known");
    }
}
