//! The file systems that parted has names for, and the partition types that stand for them.

use crate::{Kind, Scheme};

/// Names that `mkpart` takes, in the order in which parted lists them.
pub const SYSTEMS: &[&str] = &[
    "zfs",
    "udf",
    "btrfs",
    "nilfs2",
    "ext4",
    "ext3",
    "ext2",
    "f2fs",
    "fat32",
    "fat16",
    "hfsx",
    "hfs+",
    "hfs",
    "jfs",
    "swsusp",
    "linux-swap(v1)",
    "linux-swap(v0)",
    "ntfs",
    "reiserfs",
    "freebsd-ufs",
    "hp-ufs",
    "sun-ufs",
    "xfs",
    "apfs2",
    "apfs1",
    "asfs",
    "amufs5",
    "amufs4",
    "amufs3",
    "amufs2",
    "amufs1",
    "amufs0",
    "amufs",
    "affs7",
    "affs6",
    "affs5",
    "affs4",
    "affs3",
    "affs2",
    "affs1",
    "affs0",
    "linux-swap",
    "linux-swap(new)",
    "linux-swap(old)",
];

/// The file system of that name; aliases become the name that parted prints.
#[must_use]
pub fn system_named(text: &str) -> Option<&'static str> {
    let name = match text {
        "linux-swap" | "linux-swap(new)" => "linux-swap(v1)",
        "linux-swap(old)" => "linux-swap(v0)",
        name => name,
    };
    SYSTEMS.iter().find(|known| **known == name).copied()
}

/// The type in a GPT of a partition for that file system.
pub(super) fn gpt_kind(system: Option<&str>) -> Kind {
    let alias = match system.unwrap_or_default() {
        "fat16" | "fat32" | "udf" | "ntfs" => "ms-basic-data",
        "hfs" | "hfs+" | "hfsx" => "apple-hfs",
        name if name.contains("swap") => "linux-swap",
        _ => "linux-data",
    };
    Kind::parse(Scheme::Gpt, alias).expect("a type of the table of types")
}

/// The type byte in an MBR; the flag `lba` asks for the other variant of FAT.
pub(super) fn mbr_type(system: Option<&str>, is_lba: bool, is_hidden: bool) -> u8 {
    const HIDDEN: u8 = 0x10;
    let hidden = if is_hidden { HIDDEN } else { 0 };
    match system.unwrap_or_default() {
        "fat16" if is_lba => 0x0e | hidden,
        "fat16" => 0x06 | hidden,
        "fat32" if is_lba => 0x0c | hidden,
        "fat32" => 0x0b | hidden,
        "ntfs" => 0x07 | hidden,
        "udf" => 0x07,
        "hfs" | "hfs+" => 0xaf,
        "sun-ufs" => 0xbf,
        name if name.starts_with("linux-swap") => 0x82,
        _ => 0x83,
    }
}
