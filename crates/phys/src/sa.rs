//! System attributes: the attributes of a file, packed by a layout.
//!
//! # What it is
//! The bonus (and spill) bytes of a file begin with a header that names a *layout*: a list of
//! attribute numbers. The values follow in that order. Fixed lengths come from the registry of
//! the file system, variable lengths from the header. Numbers belong to the file system: the
//! registry (a ZAP) maps names to number, length and kind, the layouts (another ZAP) map layout
//! numbers to arrays of 16-bit attribute numbers.
//!
//! # On disk
//! ```text
//! 0  4  magic 0x2f505a
//! 4  2  bits 0..10 layout, 10..16 size of the header / 8
//! 6  2n lengths of variable attributes, padded to the header's size
//! ```
//! The header is 8 bytes for up to one variable length, then 8 more for every four. Values are
//! padded to 8 bytes. Bonus type SA with layout number 0 means layout 1; old znodes are layout 0.
//!
//! # Source
//! OpenZFS include/sys/sa_impl.h, zfs_sa.h, module/zfs/sa.c, zfs_sa.c @be7657e3.

use crate::Phys;
use crate::bits::Field;
use crate::layout::phys_struct;
use base::{Error, Result};
use std::mem::size_of;
use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32, U64};

/// `SA_MAGIC`.
pub const SA_MAGIC: u32 = 0x002f_505a;
/// `SA_LAYOUTS`: entry of the SA master node.
pub const SA_LAYOUTS: &str = "LAYOUTS";
/// `SA_REGISTRY`: entry of the SA master node.
pub const SA_REGISTRY: &str = "REGISTRY";
/// Layout numbers are below this.
pub const SA_LAYOUT_MAX: u16 = 1 << 10;

const HDR_LAYOUT: Field = Field::new(0, 10);
const HDR_SIZE: Field = Field::new(10, 6);
const ATTR_NUM: Field = Field::new(0, 16);
const ATTR_BSWAP: Field = Field::new(16, 8);
const ATTR_LENGTH: Field = Field::new(24, 16);

phys_struct! {
    /// `sa_hdr_phys_t`: with room for one variable length.
    #[doc(alias = "sa_hdr_phys_t")]
    pub struct SaHdrPhys: 8 {
        /// sa_magic: [`SA_MAGIC`]
        0 magic: U32,
        /// sa_layout_info: layout number and header size
        4 layout_info: U16,
        /// sa_lengths: the first variable length
        6 first_length: U16,
    }

    /// What every layout of a file begins with, however its attributes are registered (`SA_MODE_OFFSET` to
    /// `SA_FLAGS_OFFSET`), and the times, which follow in the layouts that are made today.
    pub struct SaFilePhys: 120 {
        /// ZPL_MODE: type and permissions
        0 mode: U64,
        /// ZPL_SIZE: bytes
        8 size: U64,
        /// ZPL_GEN: the txg in which it was made
        16 generation: U64,
        /// ZPL_UID
        24 uid: U64,
        /// ZPL_GID
        32 gid: U64,
        /// ZPL_PARENT: the directory
        40 parent: U64,
        /// ZPL_FLAGS
        48 flags: U64,
        /// ZPL_ATIME: seconds, nanoseconds
        56 atime: [U64; 2],
        /// ZPL_MTIME
        72 mtime: [U64; 2],
        /// ZPL_CTIME
        88 ctime: [U64; 2],
        /// ZPL_CRTIME
        104 crtime: [U64; 2],
    }
}

impl SaHdrPhys {
    /// A header for this layout; `size`: [`header_size`] of it.
    #[must_use]
    pub fn new(layout: u16, size: usize) -> SaHdrPhys {
        assert!(
            size >= 8 && size.is_multiple_of(8),
            "SA header of {size} bytes"
        );
        let info = HDR_SIZE.set(0, (size as u64).wrapping_shr(3));
        let info = HDR_LAYOUT.set(info, u64::from(layout));
        SaHdrPhys {
            magic: U32::new(SA_MAGIC),
            layout_info: U16::new(info as u16),
            first_length: U16::new(0),
        }
    }

    /// `SA_HDR_LAYOUT_NUM`: the layout as stored.
    #[must_use]
    pub fn layout(&self) -> u16 {
        HDR_LAYOUT.get(u64::from(self.layout_info.get())) as u16
    }

    /// `SA_HDR_SIZE`: bytes of header.
    #[must_use]
    pub fn size(&self) -> usize {
        (HDR_SIZE.get(u64::from(self.layout_info.get())) as usize).wrapping_shl(3)
    }
}

/// Bytes of header for a layout with `variable_lengths` of them (`SA_HDR_SIZE_MATCH_LAYOUT`).
#[must_use]
pub const fn header_size(variable_lengths: usize) -> usize {
    let beyond_first = variable_lengths.saturating_sub(1);
    beyond_first
        .saturating_mul(2)
        .next_multiple_of(8)
        .saturating_add(8)
}

/// A checked SA buffer: header, lengths and the packed values.
#[derive(Clone, Copy, Debug)]
pub struct SaView<'a> {
    header: &'a SaHdrPhys,
    /// The header with all lengths.
    header_bytes: &'a [u8],
    values: &'a [u8],
}

impl<'a> SaView<'a> {
    /// Checks magic and header size of a bonus or spill buffer.
    ///
    /// # Errors
    /// `Corrupt` with the field and its value.
    pub fn new(bytes: &'a [u8]) -> Result<SaView<'a>> {
        let header = SaHdrPhys::view(bytes)?;
        let magic = header.magic.get();
        if magic != SA_MAGIC {
            return Err(Error::corrupt(format!("sa_magic {magic:#x}")));
        }
        let size = header.size();
        let split = bytes
            .split_at_checked(size)
            .filter(|_| size >= SaHdrPhys::SIZE);
        let bad = || Error::corrupt(format!("SA header of {size} bytes in {}", bytes.len()));
        let (header_bytes, values) = split.ok_or_else(bad)?;
        Ok(SaView {
            header,
            header_bytes,
            values,
        })
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &'a SaHdrPhys {
        self.header
    }

    /// `SA_LAYOUT_NUM`: the layout, with 0 read as 1.
    #[must_use]
    pub fn layout(&self) -> u16 {
        self.header.layout().max(1)
    }

    /// `sa_lengths[index]`: the length of variable attribute `index` of the layout.
    #[must_use]
    pub fn length(&self, index: usize) -> Option<u16> {
        let offset = index.checked_mul(2)?.checked_add(6)?;
        let (length, _) = U16::read_from_prefix(self.header_bytes.get(offset..)?).ok()?;
        Some(length.get())
    }

    /// The values, in the order of the layout, each padded to 8 bytes.
    #[must_use]
    pub fn values(&self) -> &'a [u8] {
        self.values
    }
}

/// `sa_bswap_type_t`: the type of an attribute's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[doc(alias = "sa_bswap_type_t")]
pub enum SaBswap {
    /// `SA_UINT64_ARRAY`
    Uint64Array = 0,
    /// `SA_UINT32_ARRAY`
    Uint32Array = 1,
    /// `SA_UINT16_ARRAY`
    Uint16Array = 2,
    /// `SA_UINT8_ARRAY`
    Uint8Array = 3,
    /// `SA_ACL`
    Acl = 4,
}

impl TryFrom<u8> for SaBswap {
    type Error = Error;

    fn try_from(raw: u8) -> Result<SaBswap> {
        Ok(match raw {
            0 => SaBswap::Uint64Array,
            1 => SaBswap::Uint32Array,
            2 => SaBswap::Uint16Array,
            3 => SaBswap::Uint8Array,
            4 => SaBswap::Acl,
            _ => return Err(Error::corrupt(format!("SA attribute of kind {raw}"))),
        })
    }
}

/// A value of the registry: number, kind and length of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaAttrReg {
    /// `ATTR_NUM`
    pub num: u16,
    /// `ATTR_BSWAP`
    pub bswap: SaBswap,
    /// `ATTR_LENGTH`: bytes; 0: variable
    pub length: u16,
}

impl SaAttrReg {
    /// `ATTR_ENCODE`.
    #[must_use]
    pub fn encode(self) -> u64 {
        let word = ATTR_LENGTH.set(0, u64::from(self.length));
        let word = ATTR_BSWAP.set(word, u64::from(self.bswap as u8));
        ATTR_NUM.set(word, u64::from(self.num))
    }

    /// `ATTR_NUM`, `ATTR_BSWAP`, `ATTR_LENGTH`.
    ///
    /// # Errors
    /// `Corrupt` for an unknown kind.
    pub fn decode(word: u64) -> Result<SaAttrReg> {
        Ok(SaAttrReg {
            num: ATTR_NUM.get(word) as u16,
            bswap: SaBswap::try_from(ATTR_BSWAP.get(word) as u8)?,
            length: ATTR_LENGTH.get(word) as u16,
        })
    }
}

/// An attribute of files: its name in the registry, length (0: variable) and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZplAttrFacts {
    /// Name in the registry
    pub name: &'static str,
    /// Bytes; 0: variable
    pub length: u16,
    /// Kind
    pub bswap: SaBswap,
}

macro_rules! zpl_attrs {
    ($($variant:ident $name:literal $length:literal $bswap:ident $doc:literal;)*) => {
        /// `zpl_attr_t`: the attributes of files. Their numbers on disk come from the registry;
        /// a file system made here numbers them in this order, as OpenZFS does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[doc(alias = "zpl_attr_t")]
        pub enum ZplAttr {
            $(#[doc = concat!("`", $name, "`: ", $doc)] $variant,)*
        }

        impl ZplAttr {
            /// Every attribute, in the order of `zfs_attr_table`.
            pub const ALL: &[ZplAttr] = &[$(ZplAttr::$variant),*];

            /// Name, length and kind.
            #[must_use]
            pub const fn facts(self) -> ZplAttrFacts {
                match self {
                    $(ZplAttr::$variant => ZplAttrFacts {
                        name: $name, length: $length, bswap: SaBswap::$bswap,
                    },)*
                }
            }
        }
    };
}

zpl_attrs! {
    Atime "ZPL_ATIME" 16 Uint64Array "last access: seconds, nanoseconds";
    Mtime "ZPL_MTIME" 16 Uint64Array "last modification";
    Ctime "ZPL_CTIME" 16 Uint64Array "last change of attributes";
    Crtime "ZPL_CRTIME" 16 Uint64Array "creation";
    Gen "ZPL_GEN" 8 Uint64Array "txg of creation";
    Mode "ZPL_MODE" 8 Uint64Array "type and permissions";
    Size "ZPL_SIZE" 8 Uint64Array "bytes, or entries of a directory";
    Parent "ZPL_PARENT" 8 Uint64Array "object of the directory";
    Links "ZPL_LINKS" 8 Uint64Array "link count";
    Xattr "ZPL_XATTR" 8 Uint64Array "object of the directory of extended attributes";
    Rdev "ZPL_RDEV" 8 Uint64Array "device number";
    Flags "ZPL_FLAGS" 8 Uint64Array "`ZFS_*` flags";
    Uid "ZPL_UID" 8 Uint64Array "owner, FUID";
    Gid "ZPL_GID" 8 Uint64Array "group, FUID";
    Pad "ZPL_PAD" 32 Uint64Array "unused";
    ZnodeAcl "ZPL_ZNODE_ACL" 88 Uint8Array "ACL of old znodes";
    DaclCount "ZPL_DACL_COUNT" 8 Uint64Array "entries of the ACL";
    Symlink "ZPL_SYMLINK" 0 Uint8Array "target of a symbolic link";
    Scanstamp "ZPL_SCANSTAMP" 32 Uint8Array "mark of a virus scanner";
    DaclAces "ZPL_DACL_ACES" 0 Acl "the ACL";
    Dxattr "ZPL_DXATTR" 0 Uint8Array "extended attributes, XDR nvlist";
    Projid "ZPL_PROJID" 8 Uint64Array "project";
    Seq "ZPL_SEQ" 8 Uint64Array "modification count";
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn header_grows_by_eight_for_every_four_lengths() {
        let sizes = [0, 1, 2, 5, 6, 9, 10].map(header_size);
        assert_eq!(sizes, [8, 8, 16, 16, 24, 24, 32]);
    }

    #[test]
    fn header_names_layout_and_lengths() {
        let mut bytes = vec![0; 40];
        let mut header = SaHdrPhys::new(3, 16);
        header.first_length.set(100);
        header.write(&mut bytes);
        bytes[8] = 7;
        let view = SaView::new(&bytes).unwrap();
        assert_eq!((view.layout(), view.header().size()), (3, 16));
        assert_eq!(
            [0, 1, 4, 5].map(|i| view.length(i)),
            [Some(100), Some(7), Some(0), None]
        );
        assert_eq!(view.values().len(), 24);
        assert_eq!(header.layout_info.get(), 2 << 10 | 3);
    }

    #[test]
    fn bad_headers_are_named() {
        let check = |magic: u32, size: u16, expect: &str| {
            let mut header = SaHdrPhys::new(2, 8);
            header.magic.set(magic);
            header.layout_info.set(size << 10);
            let mut bytes = [0; 16];
            header.write(&mut bytes);
            assert_eq!(SaView::new(&bytes).unwrap_err().context(), expect);
        };
        check(1, 1, "sa_magic 0x1");
        check(SA_MAGIC, 0, "SA header of 0 bytes in 16");
        check(SA_MAGIC, 3, "SA header of 24 bytes in 16");
    }

    proptest! {
        #[test]
        fn prop_registration_round_trips(num: u16, kind in 0u8..5, length: u16) {
            let reg = SaAttrReg { num, bswap: SaBswap::try_from(kind).unwrap(), length };
            prop_assert_eq!(SaAttrReg::decode(reg.encode()).unwrap(), reg);
        }
    }
}
