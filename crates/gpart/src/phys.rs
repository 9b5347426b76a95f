//! On-disk structures: headers and entries of a GPT, and the boot sector.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first bytes of a GPT header.
pub(crate) const GPT_SIGNATURE: [u8; 8] = *b"EFI PART";
/// The GPT revision that is written: 1.0.
pub(crate) const GPT_REVISION: u32 = 0x0001_0000;
/// The last two bytes of a boot sector.
pub(crate) const BOOT_SIGNATURE: u16 = 0xaa55;
/// The MBR type of the entry that protects a GPT.
pub(crate) const PROTECTIVE: u8 = 0xee;
/// Bytes of a boot sector; the rest of a larger sector is zero.
pub(crate) const BOOT_BYTES: usize = 512;
/// Bytes of boot code before the MBR's entries, the disk's serial number included.
pub(crate) const BOOTCODE_BYTES: usize = 446;
/// The smallest size of a GPT entry in bytes, and the one of a new table.
pub(crate) const ENTRY_BYTES: u32 = 128;
/// UTF-16 units in the name of a GPT partition.
pub(crate) const NAME_UNITS: usize = 36;

/// The header of a GPT: one at LBA 1, one in the last LBA.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct HeaderPhys {
    pub signature: [u8; 8],
    pub revision: U32,
    /// Bytes that `crc_self` covers.
    pub size: U32,
    /// Of this header with this field zero.
    pub crc_self: U32,
    pub reserved: U32,
    pub lba_self: U64,
    /// LBA of the other header.
    pub lba_alternate: U64,
    pub first_usable: U64,
    pub last_usable: U64,
    pub disk_guid: [u8; 16],
    pub lba_entries: U64,
    pub entries: U32,
    pub entry_size: U32,
    pub crc_entries: U32,
}

/// One partition of a GPT.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct EntryPhys {
    /// Zero: not in use.
    pub kind: [u8; 16],
    pub guid: [u8; 16],
    pub first: U64,
    /// The last LBA, inclusive.
    pub last: U64,
    pub attributes: U64,
    pub name: [U16; NAME_UNITS],
}

/// One partition of an MBR.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct MbrEntryPhys {
    /// 0x80: active; 0: not active.
    pub flag: u8,
    pub chs_first: [u8; 3],
    pub kind: u8,
    pub chs_last: [u8; 3],
    pub start: U32,
    pub sectors: U32,
}

/// The first 512 bytes of a disk.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct BootPhys {
    pub code: [u8; 440],
    pub serial: U32,
    pub pad: U16,
    pub entries: [MbrEntryPhys; 4],
    pub signature: U16,
}

const _: () = {
    assert!(size_of::<HeaderPhys>() == 92);
    assert!(offset_of!(HeaderPhys, crc_self) == 16);
    assert!(offset_of!(HeaderPhys, disk_guid) == 56);
    assert!(offset_of!(HeaderPhys, crc_entries) == 88);
    assert!(size_of::<EntryPhys>() == ENTRY_BYTES as usize);
    assert!(offset_of!(EntryPhys, name) == 56);
    assert!(size_of::<MbrEntryPhys>() == 16);
    assert!(size_of::<BootPhys>() == BOOT_BYTES);
    assert!(offset_of!(BootPhys, entries) == BOOTCODE_BYTES);
};

impl BootPhys {
    /// Reads it from the start of sector 0.
    pub(crate) fn from_sector(sector: &[u8]) -> Option<BootPhys> {
        BootPhys::read_from_prefix(sector)
            .ok()
            .map(|(boot, _)| boot)
    }

    /// All zeros except for the signature.
    pub(crate) fn empty() -> BootPhys {
        let mut boot = BootPhys::read_from_bytes(&[0; BOOT_BYTES]).expect("the size is right");
        boot.signature = U16::new(BOOT_SIGNATURE);
        boot
    }

    pub(crate) fn is_signed(&self) -> bool {
        self.signature.get() == BOOT_SIGNATURE
    }

    pub(crate) fn has_protective(&self) -> bool {
        self.is_signed() && self.entries.iter().any(|e| e.kind == PROTECTIVE)
    }
}
