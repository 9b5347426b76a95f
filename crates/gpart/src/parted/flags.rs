//! The flags of partitions and disks, as parted knows them.
//!
//! # What it is
//! In a GPT most flags are partition types: one is set by changing the type, and cleared by returning to the type of
//! the file system. In an MBR they are types, too, but parted keeps the flags themselves until it reads the table
//! again, also those that the type byte cannot express ([`Marks`]).

use std::collections::BTreeSet;

use base::Result;

use super::system::{gpt_kind, mbr_type};
use crate::phys::{MbrEntryPhys, PROTECTIVE};
use crate::table::ACTIVE;
use crate::{Kind, Partition, Scheme, Table, Uuid};

/// All flags of partitions, in the order in which parted lists them.
pub const FLAGS: &[&str] = &[
    "boot",
    "root",
    "swap",
    "hidden",
    "raid",
    "lvm",
    "lba",
    "hp-service",
    "palo",
    "prep",
    "msftres",
    "bios_grub",
    "atvrecv",
    "diag",
    "legacy_boot",
    "msftdata",
    "irst",
    "esp",
    "chromeos_kernel",
    "bls_boot",
    "linux-home",
];

/// The flag of a whole disk with a GPT: the protective entry is marked active.
pub const PMBR_BOOT: &str = "pmbr_boot";

/// GPT: flags that are types.
const GPT_TYPES: &[(&str, Uuid)] = &[
    (
        "atvrecv",
        Uuid::from_digits(0x5265636f_7665_11aa_aa11_00306543ecac),
    ),
    (
        "bios_grub",
        Uuid::from_digits(0x21686148_6449_6e6f_744e_656564454649),
    ),
    (
        "bls_boot",
        Uuid::from_digits(0xbc13c2ff_59e6_4262_a352_b275fd6f7172),
    ),
    (
        "boot",
        Uuid::from_digits(0xc12a7328_f81f_11d2_ba4b_00a0c93ec93b),
    ),
    (
        "chromeos_kernel",
        Uuid::from_digits(0xfe3a2a5d_4f32_41a7_b725_accc3285a309),
    ),
    (
        "diag",
        Uuid::from_digits(0xde94bba4_06d1_4d40_a16a_bfd50179d6ac),
    ),
    (
        "esp",
        Uuid::from_digits(0xc12a7328_f81f_11d2_ba4b_00a0c93ec93b),
    ),
    (
        "hp-service",
        Uuid::from_digits(0xe2a1e728_32e3_11d6_a682_7b03a0000000),
    ),
    (
        "irst",
        Uuid::from_digits(0xd3bfe2de_3daf_11df_ba40_e3a556d89593),
    ),
    (
        "linux-home",
        Uuid::from_digits(0x933ac7e1_2eb4_4f13_b844_0e14e2aef915),
    ),
    (
        "lvm",
        Uuid::from_digits(0xe6d6d379_f507_44c2_a23c_238f2a3df928),
    ),
    (
        "msftdata",
        Uuid::from_digits(0xebd0a0a2_b9e5_4433_87c0_68b6b72699c7),
    ),
    (
        "msftres",
        Uuid::from_digits(0xe3c9e316_0b5c_4db8_817d_f92df00215ae),
    ),
    (
        "prep",
        Uuid::from_digits(0x9e1a2d38_c612_4316_aa26_8b49521e5a8b),
    ),
    (
        "raid",
        Uuid::from_digits(0xa19d880f_05fc_4d3b_a006_743f0f84911e),
    ),
    (
        "swap",
        Uuid::from_digits(0x0657fd6d_a4ab_43c4_84e5_0933c84b4f4f),
    ),
];

/// GPT: flags that are attribute bits.
const GPT_BITS: &[(&str, u64)] = &[("hidden", 1), ("legacy_boot", 4)];

/// MBR: flags that are types; of several that are set the first one counts.
const MBR_TYPES: &[(&str, u8)] = &[
    ("diag", 0x12),
    ("msftres", 0x27),
    ("lvm", 0x8e),
    ("swap", 0x82),
    ("raid", 0xfd),
    ("palo", 0xf0),
    ("prep", 0x41),
    ("irst", 0x84),
    ("esp", 0xef),
    ("bls_boot", 0xea),
];

/// What parted knows of a partition until it reads the table again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The file system, as named by `mkpart` or found on the disk.
    pub system: Option<&'static str>,
    /// The flags of a partition in an MBR, without `boot`.
    set: BTreeSet<&'static str>,
}

impl Marks {
    /// Those of a partition that has just been read.
    #[must_use]
    pub fn of(one: &Partition, system: Option<&'static str>) -> Marks {
        let mut set = BTreeSet::new();
        if let Kind::Mbr(byte) = one.kind {
            let typed = MBR_TYPES.iter().filter(|(_, own)| *own == byte);
            set.extend(typed.map(|(name, _)| *name));
            set.extend(match byte {
                0xde => Some("diag"),
                0xfe => Some("lvm"),
                _ => None,
            });
            if matches!(byte, 0x11 | 0x14 | 0x16 | 0x17 | 0x1b | 0x1c | 0x1e) {
                set.insert("hidden");
            }
            if matches!(byte, 0x0c | 0x0e | 0x0f | 0x1c | 0x1e) {
                set.insert("lba");
            }
        }
        Marks { system, set }
    }

    /// Those of a partition that `mkpart` has made for a file system; its type is set.
    ///
    /// # Errors
    /// [`base::ErrorKind::NotFound`] for the partition.
    pub fn made(table: &mut Table, index: u32, system: Option<&'static str>) -> Result<Marks> {
        let mut marks = Marks {
            system,
            set: BTreeSet::new(),
        };
        if table.scheme() == Scheme::Mbr {
            marks.set.insert("lba");
        }
        marks.set_type(table, index)?;
        Ok(marks)
    }

    /// The flags that are set, in parted's order.
    #[must_use]
    pub fn flags(&self, one: &Partition) -> Vec<&'static str> {
        let is_set = |flag: &&&str| self.has(one, flag);
        FLAGS.iter().filter(is_set).copied().collect()
    }

    /// Whether a flag is set.
    #[must_use]
    pub fn has(&self, one: &Partition, flag: &str) -> bool {
        match one.kind {
            Kind::Gpt(uuid) => {
                let bit = GPT_BITS.iter().find(|(name, _)| *name == flag);
                bit.is_some_and(|(_, bit)| one.attributes & bit != 0)
                    || GPT_TYPES.contains(&(flag, uuid))
            }
            Kind::Mbr(_) if flag == "boot" => one.attributes & ACTIVE != 0,
            Kind::Mbr(_) => self.set.contains(flag),
        }
    }

    /// Sets or clears a flag that is among those of [`flags_for`].
    ///
    /// # Errors
    /// [`base::ErrorKind::NotFound`] for the partition.
    pub fn set(
        &mut self,
        table: &mut Table,
        index: u32,
        flag: &'static str,
        to: bool,
    ) -> Result<()> {
        if table.scheme() == Scheme::Gpt {
            return self.set_in_gpt(table, index, flag, to);
        }
        if flag == "boot" {
            return table.set("active", Some(index), to);
        }
        // one type at a time; these two are not types themselves
        if to && !matches!(flag, "hidden" | "lba" | "msftres") {
            self.set.retain(|other| *other == "lba");
        }
        if to {
            self.set.insert(flag);
        } else {
            self.set.remove(flag);
        }
        self.set_type(table, index)
    }

    fn set_in_gpt(&mut self, table: &mut Table, index: u32, flag: &str, to: bool) -> Result<()> {
        let at = table.position(index)?;
        let one = &mut table.partitions[at];
        if let Some((_, bit)) = GPT_BITS.iter().find(|(name, _)| *name == flag) {
            one.attributes = if to {
                one.attributes | bit
            } else {
                one.attributes & !bit
            };
            return Ok(());
        }
        if to {
            let typed = GPT_TYPES.iter().find(|(name, _)| *name == flag);
            one.kind = typed.map_or(one.kind, |(_, uuid)| Kind::Gpt(*uuid));
        } else if self.has(one, flag) {
            one.kind = gpt_kind(self.system);
        }
        Ok(())
    }

    /// Sets the type of the partition to what the flags and the file system say.
    fn set_type(&mut self, table: &mut Table, index: u32) -> Result<()> {
        let at = table.position(index)?;
        let one = &mut table.partitions[at];
        one.kind = match one.kind {
            Kind::Gpt(_) => gpt_kind(self.system),
            Kind::Mbr(old) => Kind::Mbr(self.byte(old, one.kind.is_extended())),
        };
        Ok(())
    }

    fn byte(&mut self, old: u8, is_extended: bool) -> u8 {
        let system = self.system.unwrap_or_default();
        if self.system.is_some() && !system.starts_with("fat") && system != "ntfs" {
            self.set.remove("hidden");
        }
        if self.system.is_some() && system != "ntfs" {
            self.set.remove("msftres");
        }
        let is_lba = self.set.contains("lba");
        if is_extended {
            self.set.retain(|flag| *flag == "lba");
            return if is_lba { 0x0f } else { 0x05 };
        }
        let typed = MBR_TYPES.iter().find(|(name, _)| self.set.contains(name));
        match typed {
            Some(("diag", _)) if old == 0xde => return old,
            Some((_, byte)) => return *byte,
            None => {}
        }
        if system.starts_with("linux-swap") {
            self.set.insert("swap");
        }
        mbr_type(self.system, is_lba, self.set.contains("hidden"))
    }
}

/// The flags that a partition may have.
#[must_use]
pub fn flags_for(one: &Partition) -> Vec<&'static str> {
    let is_known = |flag: &&&str| match one.kind {
        Kind::Gpt(_) => {
            GPT_TYPES.iter().any(|(name, _)| name == *flag)
                || GPT_BITS.iter().any(|(name, _)| name == *flag)
        }
        Kind::Mbr(_) if one.kind.is_extended() && matches!(**flag, "hidden" | "msftres") => false,
        Kind::Mbr(_) => {
            MBR_TYPES.iter().any(|(name, _)| name == *flag)
                || matches!(**flag, "boot" | "hidden" | "lba")
        }
    };
    FLAGS.iter().filter(is_known).copied().collect()
}

/// Whether the flag [`PMBR_BOOT`] is set.
#[must_use]
pub fn is_pmbr_boot(table: &Table) -> bool {
    let is_active = |e: &MbrEntryPhys| e.kind == PROTECTIVE && e.flag == 0x80;
    table.boot.entries.iter().any(is_active)
}
