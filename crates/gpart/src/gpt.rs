//! Reading and writing a GPT: two headers, two copies of the entries, and the protective MBR.
//!
//! # On disk
//! LBA 0 protective MBR, 1 header, 2… entries, usable sectors, entries again, last LBA header
//! again. See docs/spec/partition-tables.md.
//!
//! # Invariants
//! 1. A copy is good only if its header's CRC is right, the header's own LBA is where it was found, and
//!    the CRC of its entries is right.
//! 2. If both are good and differ, the primary wins.
//!
//! # Crash argument
//! The primary copy is written and flushed before the secondary is touched. Until the primary is
//! complete, one of its two CRCs is wrong (or it is still the old one), and the secondary is the old
//! table. Once it is complete it wins, whatever the secondary holds.
//! Without a good secondary in the last sector (the disk has grown, or it is damaged), the primary is
//! all there is, as a torn primary does not say where else to look. Then the secondary is written
//! first: until it is flushed, the old primary wins; afterwards the new table is in the last sector.

use base::{Error, Result};
use geom::Provider;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::crc::crc32;
use crate::phys::{
    BootPhys, ENTRY_BYTES, EntryPhys, GPT_REVISION, GPT_SIGNATURE, HeaderPhys, MbrEntryPhys,
    PROTECTIVE,
};
use crate::table::{read_sectors, write_sectors};
use crate::{Kind, Partition, Scheme, Shape, Table, Uuid};

/// The LBA of the primary header.
const PRIMARY_LBA: u64 = 1;
/// The LBA of the primary entries, unless a primary header says otherwise.
pub(crate) const PRIMARY_ENTRIES_LBA: u64 = 2;
/// Limit of the entries that are read, in bytes.
const ENTRIES_BYTES_MAX: u64 = 8 << 20;
/// The smallest disk, in sectors: protective MBR, two headers, two sectors of entries, one usable sector.
const SECTORS_MIN: u64 = 6;

/// The fields that only a GPT has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    pub disk_guid: Uuid,
    pub entry_size: u32,
    pub revision: u32,
    /// The LBA of the primary entries.
    pub entries_lba: u64,
    /// The LBA at which a good secondary header was found.
    pub backup_at: Option<u64>,
}

/// A header that passed its checks.
struct Header {
    phys: HeaderPhys,
    entries: Vec<u8>,
}

/// The state of one of the two copies.
enum Copy {
    Good(Box<Header>),
    /// There is no header.
    Missing(String),
    /// There is a header, but its CRC or that of its entries is wrong, or a field is not valid.
    Bad(String),
}

impl Copy {
    fn good(&self) -> Option<&Header> {
        match self {
            Copy::Good(header) => Some(header),
            _ => None,
        }
    }

    fn complaint(&self) -> &str {
        match self {
            Copy::Good(_) => "good",
            Copy::Missing(why) | Copy::Bad(why) => why,
        }
    }
}

/// Reads the table from its copies.
pub(crate) fn read(provider: &dyn Provider, boot: BootPhys) -> Result<Option<Table>> {
    let shape = Shape::of(provider);
    let Some(last) = shape.sectors().checked_sub(1) else {
        return Ok(None);
    };
    if last + 1 < SECTORS_MIN {
        return Ok(None);
    }
    let primary = read_copy(provider, PRIMARY_LBA, last);
    let backup_lba = match &primary {
        Copy::Good(header) => header.phys.lba_alternate.get(),
        _ => last,
    };
    let secondary = if backup_lba > last {
        Copy::Missing(format!(
            "it should be in LBA {backup_lba}, but the disk ends with {last}: it was made on a larger disk"
        ))
    } else {
        read_copy(provider, backup_lba, last)
    };
    if !boot.is_signed() && secondary.good().is_none() {
        return Ok(None);
    }
    match (&primary, &secondary) {
        (Copy::Missing(_), Copy::Missing(_)) => return Ok(None),
        (Copy::Missing(_) | Copy::Bad(_), Copy::Missing(_) | Copy::Bad(_)) => {
            return Err(Error::corrupt(format!(
                "corrupt or invalid GPT detected: GPT rejected -- may not be recoverable (primary: {}; secondary: {})",
                primary.complaint(),
                secondary.complaint()
            )));
        }
        _ => {}
    }
    Ok(Some(choose(shape, boot, &primary, &secondary)))
}

fn choose(shape: Shape, boot: BootPhys, primary: &Copy, secondary: &Copy) -> Table {
    let last = shape.sectors() - 1;
    let mut notes = Vec::new();
    let mut is_corrupt = true;
    let chosen = match (primary.good(), secondary.good()) {
        (Some(one), Some(other)) if !agree(&one.phys, &other.phys) => {
            notes.push("the secondary GPT table is corrupt or invalid: it differs".to_owned());
            notes.push("using the primary only -- recovery suggested".to_owned());
            one
        }
        (Some(one), Some(other)) => {
            is_corrupt = other.phys.lba_self.get() != last;
            if is_corrupt {
                notes.push("the secondary GPT header is not in the last LBA".to_owned());
            }
            one
        }
        (Some(one), None) => {
            let why = secondary.complaint();
            notes.push(format!(
                "the secondary GPT table is corrupt or invalid: {why}"
            ));
            notes.push("using the primary only -- recovery suggested".to_owned());
            one
        }
        (None, Some(other)) => {
            let why = primary.complaint();
            notes.push(format!(
                "the primary GPT table is corrupt or invalid: {why}"
            ));
            notes.push("using the secondary instead -- recovery strongly advised".to_owned());
            other
        }
        (None, None) => unreachable!("the caller saw a good one"),
    };
    if !boot.has_protective() {
        is_corrupt = true;
        notes.push("there is no protective MBR".to_owned());
    }
    let mut table = table_of(shape, chosen);
    table.boot = boot;
    table.gpt.backup_at = secondary.good().map(|header| header.phys.lba_self.get());
    table.is_corrupt = is_corrupt;
    table.notes = notes;
    table
}

fn agree(one: &HeaderPhys, other: &HeaderPhys) -> bool {
    let facts = |h: &HeaderPhys| {
        (
            (h.disk_guid, h.revision, h.size),
            (h.first_usable, h.last_usable),
            (h.entries, h.entry_size, h.crc_entries),
        )
    };
    facts(one) == facts(other)
}

fn read_copy(provider: &dyn Provider, lba: u64, last: u64) -> Copy {
    let sector = match read_sectors(provider, lba, 1) {
        Ok(sector) => sector,
        Err(error) => return Copy::Bad(format!("LBA {lba} cannot be read ({error})")),
    };
    let Ok((phys, _)) = HeaderPhys::read_from_prefix(&sector) else {
        return Copy::Missing("a sector is too small".to_owned());
    };
    if phys.signature != GPT_SIGNATURE {
        return Copy::Missing(format!("no header in LBA {lba}"));
    }
    if let Err(why) = check_header(&phys, &sector, lba, last) {
        return Copy::Bad(why);
    }
    match read_entries(provider, &phys) {
        Ok(entries) => Copy::Good(Box::new(Header { phys, entries })),
        Err(why) => Copy::Bad(why),
    }
}

/// Checks everything about a header except its entries.
fn check_header(phys: &HeaderPhys, sector: &[u8], lba: u64, last: u64) -> Result<(), String> {
    let size = phys.size.get() as usize;
    if size < size_of::<HeaderPhys>() || size > sector.len() {
        return Err(format!("header size is {size}"));
    }
    let mut covered = sector[..size].to_vec();
    covered[16..20].fill(0);
    let (is, says) = (crc32(&covered), phys.crc_self.get());
    if is != says {
        return Err(format!("header CRC is {is:#010x}, not {says:#010x}"));
    }
    let bad = |field: &str, value: u64| Err(format!("{field} is {value}"));
    if phys.revision.get() < GPT_REVISION {
        return bad("revision", u64::from(phys.revision.get()));
    }
    if phys.lba_self.get() != lba {
        return bad("its own LBA", phys.lba_self.get());
    }
    if phys.lba_alternate.get() == lba {
        return bad("the LBA of the other header", lba);
    }
    let (first, end) = (phys.first_usable.get(), phys.last_usable.get());
    if first < 2 || first > last {
        return bad("the first usable LBA", first);
    }
    // A last usable LBA past the end of the disk is found later, and can be recovered from.
    if end < first || end == u64::MAX {
        return bad("the last usable LBA", end);
    }
    let (entries, size) = (phys.entries.get(), phys.entry_size.get());
    if entries == 0 {
        return bad("the number of entries", 0);
    }
    if size < ENTRY_BYTES || size % 8 != 0 || size > 4096 {
        return bad("the size of an entry", u64::from(size));
    }
    let bytes = u64::from(entries) * u64::from(size);
    if bytes > ENTRIES_BYTES_MAX {
        return bad("the number of entries", u64::from(entries));
    }
    let at = phys.lba_entries.get();
    let count = bytes.div_ceil(sector.len() as u64);
    let is_inside = at >= 2 && at <= last && count <= last - at + 1;
    let is_over = at <= end && first < at.saturating_add(count);
    if !is_inside || is_over {
        return bad("the LBA of the entries", at);
    }
    Ok(())
}

fn read_entries(provider: &dyn Provider, phys: &HeaderPhys) -> Result<Vec<u8>, String> {
    let bytes = u64::from(phys.entries.get()) * u64::from(phys.entry_size.get());
    let count = bytes.div_ceil(u64::from(provider.sectorsize()));
    let at = phys.lba_entries.get();
    let mut entries = read_sectors(provider, at, count)
        .map_err(|error| format!("the entries at LBA {at} cannot be read ({error})"))?;
    entries.truncate(usize::try_from(bytes).expect("bounded"));
    let (is, says) = (crc32(&entries), phys.crc_entries.get());
    if is == says {
        Ok(entries)
    } else {
        Err(format!(
            "CRC of the entries is {is:#010x}, not {says:#010x}"
        ))
    }
}

fn table_of(shape: Shape, header: &Header) -> Table {
    let phys = &header.phys;
    let size = phys.entry_size.get() as usize;
    let entries = header.entries.chunks_exact(size).zip(1..);
    let partitions = entries.filter_map(|(bytes, index)| {
        let (entry, rest) = EntryPhys::read_from_prefix(bytes).ok()?;
        let is_used = entry.kind != [0; 16];
        is_used.then(|| partition_of(index, &entry, rest))
    });
    Table {
        scheme: Scheme::Gpt,
        shape,
        first: phys.first_usable.get(),
        last: phys.last_usable.get(),
        entries: phys.entries.get(),
        partitions: partitions.collect(),
        boot: BootPhys::empty(),
        gpt: Facts {
            disk_guid: Uuid::from_disk(phys.disk_guid),
            entry_size: phys.entry_size.get(),
            revision: phys.revision.get(),
            entries_lba: match phys.lba_self.get() {
                PRIMARY_LBA => phys.lba_entries.get(),
                _ => PRIMARY_ENTRIES_LBA,
            },
            backup_at: None,
        },
        is_corrupt: false,
        notes: Vec::new(),
    }
}

fn partition_of(index: u32, entry: &EntryPhys, rest: &[u8]) -> Partition {
    let (first, last) = (entry.first.get(), entry.last.get());
    let sectors = last.checked_sub(first).and_then(|n| n.checked_add(1));
    let zeros = rest.iter().rev().take_while(|byte| **byte == 0).count();
    let rest = &rest[..rest.len() - zeros];
    Partition {
        index,
        start_sector: first,
        sectors: sectors.unwrap_or(0),
        kind: Kind::Gpt(Uuid::from_disk(entry.kind)),
        guid: Uuid::from_disk(entry.guid),
        attributes: entry.attributes.get(),
        name: entry.name.map(U16::get),
        rest: rest.to_vec(),
    }
}

/// Writes a protective entry covering the disk, so that tools that do not know GPT leave it alone.
pub(crate) fn protect(boot: &mut BootPhys, shape: Shape) {
    let unused = MbrEntryPhys {
        flag: 0,
        chs_first: [0; 3],
        kind: 0,
        chs_last: [0; 3],
        start: U32::ZERO,
        sectors: U32::ZERO,
    };
    let sectors = u32::try_from(shape.sectors() - 1).unwrap_or(u32::MAX);
    boot.entries = [unused; 4];
    boot.entries[0] = MbrEntryPhys {
        chs_first: [0, 2, 0],
        kind: PROTECTIVE,
        chs_last: [0xff; 3],
        start: U32::new(1),
        sectors: U32::new(sectors),
        ..unused
    };
    boot.signature = BootPhys::empty().signature;
}

/// Sectors per copy of the entries.
pub(crate) fn entries_sectors(shape: &Shape, entries: u32, entry_size: u32) -> u64 {
    (u64::from(entries) * u64::from(entry_size)).div_ceil(u64::from(shape.sectorsize))
}

/// Writes both copies; see the crash argument.
pub(crate) fn write(table: &Table, provider: &dyn Provider) -> Result<()> {
    let entries = entries_bytes(table);
    let count = entries_sectors(&table.shape, table.entries, table.gpt.entry_size);
    let last = table.shape.sectors() - 1;
    let at = table.gpt.entries_lba;
    let is_clear = |from: u64| from > table.last || from + count <= table.first;
    if last < 3 + 2 * count || !is_clear(at) || !is_clear(last - count) || at + count >= last {
        let (first, end) = (table.first, table.last);
        return Err(Error::corrupt(format!(
            "usable sectors {first} to {end} leave no room for the entries"
        )));
    }
    let header = |lba, other, entries_at| header_bytes(table, &entries, (lba, other, entries_at));
    let write_primary = || {
        write_sectors(provider, 0, table.boot.as_bytes())?;
        write_sectors(provider, at, &entries)?;
        write_sectors(provider, PRIMARY_LBA, &header(PRIMARY_LBA, last, at))?;
        provider.flush()
    };
    let write_secondary = || {
        let entries_at = last - count;
        write_sectors(provider, entries_at, &entries)?;
        write_sectors(provider, last, &header(last, PRIMARY_LBA, entries_at))?;
        provider.flush()
    };
    if table.gpt.backup_at == Some(last) {
        write_primary()?;
        write_secondary()
    } else {
        write_secondary()?;
        write_primary()
    }
}

fn entries_bytes(table: &Table) -> Vec<u8> {
    let size = table.gpt.entry_size as usize;
    let mut bytes = vec![0; size * table.entries as usize];
    for one in &table.partitions {
        let Kind::Gpt(kind) = one.kind else {
            panic!("partition {} of a GPT has the type {}", one.index, one.kind);
        };
        let entry = EntryPhys {
            kind: kind.swapped(),
            guid: one.guid.swapped(),
            first: U64::new(one.start_sector),
            last: U64::new(one.last_sector()),
            attributes: U64::new(one.attributes),
            name: one.name.map(U16::new),
        };
        let at = size * (one.index as usize - 1);
        let (known, rest) = bytes[at..at + size].split_at_mut(size_of::<EntryPhys>());
        known.copy_from_slice(entry.as_bytes());
        let len = rest.len().min(one.rest.len());
        rest[..len].copy_from_slice(&one.rest[..len]);
    }
    bytes
}

fn header_bytes(table: &Table, entries: &[u8], (lba, other, at): (u64, u64, u64)) -> Vec<u8> {
    let mut header = HeaderPhys {
        signature: GPT_SIGNATURE,
        revision: U32::new(table.gpt.revision),
        size: U32::new(u32::try_from(size_of::<HeaderPhys>()).expect("92")),
        crc_self: U32::ZERO,
        reserved: U32::ZERO,
        lba_self: U64::new(lba),
        lba_alternate: U64::new(other),
        first_usable: U64::new(table.first),
        last_usable: U64::new(table.last),
        disk_guid: table.gpt.disk_guid.swapped(),
        lba_entries: U64::new(at),
        entries: U32::new(table.entries),
        entry_size: U32::new(table.gpt.entry_size),
        crc_entries: U32::new(crc32(entries)),
    };
    header.crc_self = U32::new(crc32(header.as_bytes()));
    header.as_bytes().to_vec()
}
