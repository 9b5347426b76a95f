//! For tests and fuzz targets: tables with random content, and every operation on one.

use geom::Provider;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use crate::crc::crc32;
use crate::listing::{Show, list, show};
use crate::parted::{Disk, Format, TableView, Topology, Unit, parse_location, place, print};
use crate::phys::{BootPhys, GPT_REVISION, GPT_SIGNATURE, HeaderPhys, PROTECTIVE};
use crate::{Era, NewPartition, Shape, Table, Wish, backup};

/// Writes two headers with these values in their fields and valid CRCs, over the same entries.
pub fn nonsense(disk: &dyn Provider, fields: &[u64], entries: &[u8]) {
    let field = |n: usize| fields.get(n).copied().unwrap_or_default();
    let half = |n: usize| u32::try_from(field(n) & 0xffff_ffff).expect("32 bits");
    let sector = u64::from(disk.sectorsize());
    let last = disk.mediasize() / sector - 1;
    let mut boot = BootPhys::empty();
    boot.entries[0].kind = PROTECTIVE;
    let write = |lba: u64, bytes: &[u8]| {
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(disk.sectorsize() as usize), 0);
        let _ = disk.write(lba.saturating_mul(sector), &padded);
    };
    write(0, boot.as_bytes());
    let (count, size) = (half(0), half(1));
    let at = field(2);
    write(at, entries);
    let len = u64::from(count) * u64::from(size);
    let crc = usize::try_from(len)
        .ok()
        .filter(|len| *len <= 1 << 20)
        .map(|len| {
            let mut bytes = vec![0; len.next_multiple_of(disk.sectorsize() as usize)];
            let _ = disk.read(at.saturating_mul(sector), &mut bytes);
            crc32(&bytes[..len])
        });
    for (lba, other) in [(1, field(3)), (last, 1)] {
        let mut header = HeaderPhys {
            signature: GPT_SIGNATURE,
            revision: U32::new(GPT_REVISION),
            size: U32::new(92),
            crc_self: U32::ZERO,
            reserved: U32::ZERO,
            lba_self: U64::new(lba),
            lba_alternate: U64::new(other),
            first_usable: U64::new(field(4)),
            last_usable: U64::new(field(5)),
            disk_guid: [7; 16],
            lba_entries: U64::new(at),
            entries: U32::new(count),
            entry_size: U32::new(size),
            crc_entries: U32::new(crc.unwrap_or_default()),
        };
        header.crc_self = U32::new(crc32(header.as_bytes()));
        write(lba, header.as_bytes());
    }
}

/// Reads the table, lists it in every way, changes it, recovers it, writes it; none of that may panic.
pub fn survive(disk: &dyn Provider) {
    let Ok(Some(mut table)) = Table::read(disk) else {
        return;
    };
    exercise(&table);
    let _ = table.recover("ada0", Era::Current);
    exercise(&table);
    let new = NewPartition {
        wish: Wish {
            alignment: Some(8),
            ..Wish::default()
        },
        ..NewPartition::default()
    };
    let _ = table.add("efi", &new);
    if let Some(index) = table.partitions().first().map(|p| p.index) {
        let _ = table.resize(index, &Wish::default(), Era::Nine);
        let _ = table.modify(index, Some("x"), None);
        let _ = table.set("active", Some(index), true);
    }
    if !table.is_corrupt() && table.write(disk).is_ok() {
        let back = Table::read(disk).expect("it was just written");
        let back = back.expect("it was just written");
        assert_eq!(back.partitions(), table.partitions());
    }
}

fn exercise(table: &Table) {
    for what in [Show::Type, Show::Label, Show::Raw] {
        let _ = show(table, "ada0", what, true);
    }
    let _ = (list(table, "ada0"), backup(table));
    for place in table.places("ada0") {
        let end = place.start.checked_add(place.len).expect("within the disk");
        assert!(end <= table.shape().mediasize, "{place:?}");
    }
    let view = TableView {
        table: Some(table),
        shape: table.shape(),
        file_system: &(),
    };
    for format in [Format::Human, Format::Machine, Format::Json] {
        let _ = print(&view, &Disk::default(), Unit::Compact, true, format);
    }
    let shape: Shape = table.shape();
    let location = |text: &str| parse_location(text, Unit::Compact, &shape, "ada0");
    if let (Ok(start), Ok(end)) = (location("10%"), location("60%")) {
        let alignment = Some(Topology::of(&shape).optimal);
        let _ = place(table, &start, &end, alignment, (Unit::Compact, 63));
    }
}
