//! The master boot record: reading and writing four entries.

use base::Result;
use geom::Provider;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use crate::phys::{BootPhys, GPT_SIGNATURE, MbrEntryPhys, PROTECTIVE};
use crate::table::{ACTIVE, read_sectors, write_sectors};
use crate::{Kind, Partition, Scheme, Shape, Table, gpt};

/// Entries in an MBR.
pub(crate) const ENTRIES: u32 = 4;
/// Sectors per track, as every BIOS since 1994 reports.
pub(crate) const TRACK_SECTORS: u64 = 63;
/// Heads, likewise.
const HEADS: u64 = 255;

/// The table in a boot sector; `None` if it is not an MBR, or is the boot sector of a file system.
pub(crate) fn read(provider: &dyn Provider, boot: &BootPhys) -> Option<Table> {
    let flags_are_right = boot.entries.iter().all(|e| e.flag & 0x7f == 0);
    let is_empty = boot.entries.as_bytes().iter().all(|b| *b == 0);
    if !boot.is_signed() || !flags_are_right || provider.sectorsize() > 4096 {
        return None;
    }
    if is_empty && has_bios_parameters(boot) {
        return None;
    }
    let mut table = empty(Shape::of(provider));
    table.boot = *boot;
    for (index, entry) in (1..).zip(&boot.entries) {
        let (start, sectors) = (entry.start.get(), entry.sectors.get());
        if entry.kind == 0 || entry.kind == PROTECTIVE || start == 0 || sectors == 0 {
            continue;
        }
        let kind = Kind::Mbr(entry.kind);
        let mut one = Partition::new(index, u64::from(start), u64::from(sectors), kind);
        one.attributes = u64::from(entry.flag) & ACTIVE;
        if one.start_sector < table.first {
            table.first = 1;
        }
        if kind.is_extended() {
            table.notes.push(format!(
                "partition {index} is an extended one; what is in it is not shown"
            ));
        }
        table.partitions.push(one);
    }
    let second = read_sectors(provider, 1, 1);
    if second.is_ok_and(|bytes| bytes.starts_with(&GPT_SIGNATURE)) {
        table
            .notes
            .push("an MBR without a protective partition hides a GPT; the MBR counts".to_owned());
    }
    Some(table)
}

/// Whether a boot sector could be that of a FAT or NTFS volume.
fn has_bios_parameters(boot: &BootPhys) -> bool {
    let sector = u16::from(boot.code[0x0b]) | u16::from(boot.code[0x0c]) << 8;
    let cluster = boot.code[0x0d];
    (512..=4096).contains(&sector)
        && sector.is_power_of_two()
        && (1..=128).contains(&cluster)
        && cluster.is_power_of_two()
}

/// A table without partitions.
pub(crate) fn empty(shape: Shape) -> Table {
    Table {
        scheme: Scheme::Mbr,
        shape,
        first: TRACK_SECTORS,
        last: shape.sectors().min(u64::from(u32::MAX)).saturating_sub(1),
        entries: ENTRIES,
        partitions: Vec::new(),
        boot: BootPhys::empty(),
        gpt: gpt::Facts::default(),
        is_corrupt: false,
        notes: Vec::new(),
    }
}

/// Cylinder, head and sector in the three bytes of an entry; all ones beyond cylinder 1023.
pub(crate) fn chs(lba: u64) -> [u8; 3] {
    let (track, sector) = (lba / TRACK_SECTORS, lba % TRACK_SECTORS + 1);
    let (cylinder, head) = (track / HEADS, track % HEADS);
    if cylinder > 1023 {
        return [0xff; 3];
    }
    let byte = |value: u64| value.to_le_bytes()[0];
    [
        byte(head),
        byte(sector) | byte(cylinder >> 2) & 0xc0,
        byte(cylinder),
    ]
}

/// Writes the one sector: a disk writes it whole or not at all.
pub(crate) fn write(table: &Table, provider: &dyn Provider) -> Result<()> {
    let mut boot = table.boot;
    for (index, entry) in (1..).zip(&mut boot.entries) {
        *entry = entry_of(table, index);
    }
    write_sectors(provider, 0, boot.as_bytes())?;
    provider.flush()
}

fn entry_of(table: &Table, index: u32) -> MbrEntryPhys {
    let sectors = |n: u64| U32::new(u32::try_from(n).expect("an MBR partition is checked"));
    let mut entry = MbrEntryPhys {
        flag: 0,
        chs_first: [0; 3],
        kind: 0,
        chs_last: [0; 3],
        start: U32::ZERO,
        sectors: U32::ZERO,
    };
    let Some(one) = table.partition(index) else {
        return entry;
    };
    let Kind::Mbr(kind) = one.kind else {
        panic!("partition {index} of an MBR has the type {}", one.kind);
    };
    let old = table.boot.entries[index as usize - 1];
    entry.flag = if one.attributes & ACTIVE == 0 {
        0
    } else {
        0x80
    };
    entry.kind = kind;
    entry.start = sectors(one.start_sector);
    entry.sectors = sectors(one.sectors);
    // Other systems may assume other heads: a partition that did not move keeps its CHS values.
    if (old.start, old.sectors) == (entry.start, entry.sectors) && old.kind != 0 {
        (entry.chs_first, entry.chs_last) = (old.chs_first, old.chs_last);
    } else {
        (entry.chs_first, entry.chs_last) = (chs(one.start_sector), chs(one.last_sector()));
    }
    entry
}
