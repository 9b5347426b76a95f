//! A partition table in memory, as read from a disk or to be written to it.

use base::{Error, ErrorKind, Result};
use geom::Provider;

use crate::phys::{BOOT_BYTES, BootPhys};
use crate::{Kind, Uuid, gpt, mbr};

/// The format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// GUID partition table.
    Gpt,
    /// Master boot record: four partitions.
    Mbr,
}

impl Scheme {
    /// As gpart prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Gpt => "GPT",
            Scheme::Mbr => "MBR",
        }
    }

    /// Parses gpart's name.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a scheme that only FreeBSD knows, [`ErrorKind::InvalidInput`]
    /// for any other name.
    pub fn parse(text: &str) -> Result<Scheme> {
        match text.to_ascii_uppercase().as_str() {
            "GPT" => Ok(Scheme::Gpt),
            "MBR" => Ok(Scheme::Mbr),
            "APM" | "BSD" | "BSD64" | "EBR" | "LDM" | "VTOC8" => {
                let text = format!("scheme '{text}': only GPT and MBR are kept up here");
                Err(Error::new(ErrorKind::Unsupported, text))
            }
            _ => Err(Error::invalid(format!("scheme '{text}': Invalid argument"))),
        }
    }
}

/// The FreeBSD version whose default alignment is used where the caller gives none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Era {
    /// FreeBSD 8 and 9: a GPT is usable from LBA 34 on; MBR partitions are whole tracks.
    Nine,
    /// FreeBSD today: the usable range of a GPT is rounded to 4096 bytes; MBR has no tracks.
    #[default]
    Current,
}

impl Era {
    /// Parses `9` (or `8`) and `current`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for anything else.
    pub fn parse(text: &str) -> Result<Era> {
        match text {
            "8" | "9" => Ok(Era::Nine),
            "current" => Ok(Era::Current),
            _ => Err(Error::invalid(format!(
                "era '{text}': it is 9 (as FreeBSD 8 and 9) or current"
            ))),
        }
    }
}

/// Size and sector sizes of the disk that a table is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes.
    pub mediasize: u64,
    /// The unit of every LBA.
    pub sectorsize: u32,
    /// The physical sector.
    pub stripesize: u32,
    /// Where the first physical sector begins, in bytes.
    pub stripeoffset: u32,
}

impl Shape {
    /// What a provider reports.
    #[must_use]
    pub fn of(provider: &dyn Provider) -> Shape {
        Shape {
            mediasize: provider.mediasize(),
            sectorsize: provider.sectorsize(),
            stripesize: provider.stripesize(),
            stripeoffset: provider.stripeoffset(),
        }
    }

    /// How many sectors there are.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.mediasize / u64::from(self.sectorsize)
    }

    /// How far into its physical sector this sector begins, in bytes: 0 is aligned.
    #[must_use]
    pub fn misalignment(&self, sector: u64) -> u64 {
        let stripe = u128::from(self.stripesize.max(1));
        let at = u128::from(sector) * u128::from(self.sectorsize) + stripe;
        let off = (at - u128::from(self.stripeoffset) % stripe) % stripe;
        u64::try_from(off).expect("below a u32")
    }

    /// What GEOM calls the stripe offset: how far into a physical sector LBA 0 is, in sectors.
    pub(crate) fn offset_sectors(&self) -> u64 {
        self.misalignment(0) / u64::from(self.sectorsize)
    }
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, starting at 1.
    pub index: u32,
    /// Its first sector.
    pub start_sector: u64,
    /// How many sectors it has.
    pub sectors: u64,
    /// Its type.
    pub kind: Kind,
    /// Its own GUID; all zeros in an MBR.
    pub guid: Uuid,
    /// GPT: the attribute bits. MBR: 0x80 if active.
    pub attributes: u64,
    /// GPT: the name, UTF-16, zeros after its end.
    pub(crate) name: [u16; crate::phys::NAME_UNITS],
    /// The entry's bytes after the known fields, without trailing zeros; preserved when written.
    pub(crate) rest: Vec<u8>,
}

/// GPT attribute: boot from this partition (FreeBSD).
pub(crate) const BOOTME: u64 = 1 << 59;
/// GPT attribute: boot from it once only (FreeBSD).
pub(crate) const BOOTONCE: u64 = 1 << 58;
/// GPT attribute: that boot failed (FreeBSD).
pub(crate) const BOOTFAILED: u64 = 1 << 57;
/// MBR: the partition to boot from.
pub(crate) const ACTIVE: u64 = 0x80;

impl Partition {
    /// A partition without name or attributes; a GPT partition gets a random GUID.
    #[must_use]
    pub fn new(index: u32, start_sector: u64, sectors: u64, kind: Kind) -> Partition {
        let guid = match kind {
            Kind::Gpt(_) => Uuid::random(),
            Kind::Mbr(_) => Uuid::NIL,
        };
        Partition {
            index,
            start_sector,
            sectors,
            kind,
            guid,
            attributes: 0,
            name: [0; crate::phys::NAME_UNITS],
            rest: Vec::new(),
        }
    }

    /// Its last sector.
    #[must_use]
    pub fn last_sector(&self) -> u64 {
        self.start_sector
            .saturating_add(self.sectors.saturating_sub(1))
    }

    /// Its name; invalid UTF-16 is replaced by U+FFFD.
    #[must_use]
    pub fn label(&self) -> String {
        let end = self.name.iter().position(|u| *u == 0);
        let units = &self.name[..end.unwrap_or(self.name.len())];
        String::from_utf16_lossy(units)
    }

    /// Sets the name; past 36 UTF-16 units it is cut off between characters.
    pub(crate) fn set_label(&mut self, label: &str) {
        self.name = [0; crate::phys::NAME_UNITS];
        let mut at = 0;
        for c in label.chars().take_while(|c| *c != '\0') {
            let len = c.len_utf16();
            let Some(place) = self.name.get_mut(at..at + len) else {
                break;
            };
            c.encode_utf16(place);
            at += len;
        }
    }

    /// The names of the attributes that gpart knows.
    #[must_use]
    pub fn attribute_names(&self) -> Vec<&'static str> {
        let known: &[(&'static str, u64)] = match self.kind {
            Kind::Gpt(_) => &[
                ("bootme", BOOTME),
                ("bootonce", BOOTONCE),
                ("bootfailed", BOOTFAILED),
            ],
            Kind::Mbr(_) => &[("active", ACTIVE)],
        };
        let is_set = |(_, bit): &&(_, u64)| self.attributes & bit != 0;
        known.iter().filter(is_set).map(|(name, _)| *name).collect()
    }

    /// The suffix that makes the disk's name the partition's: `p1`, `s1`.
    #[must_use]
    pub fn suffix(&self) -> String {
        let letter = match self.kind {
            Kind::Gpt(_) if !self.kind.is("freebsd") => 'p',
            _ => 's',
        };
        format!("{letter}{}", self.index)
    }

    pub(crate) fn overlaps(&self, start: u64, last: u64) -> bool {
        self.start_sector <= last && start <= self.last_sector()
    }
}

/// A partition as a range of bytes of its disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// `ada0p1`
    pub name: String,
    /// The name below `gpt/`, if it has one.
    pub label: Option<String>,
    /// Its beginning, in bytes.
    pub start: u64,
    /// Its length, in bytes.
    pub len: u64,
}

/// A partition table.
#[derive(Clone, Debug)]
pub struct Table {
    pub(crate) scheme: Scheme,
    pub(crate) shape: Shape,
    /// The first and the last usable sector.
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// The number of slots for partitions.
    pub(crate) entries: u32,
    /// In numeric order.
    pub(crate) partitions: Vec<Partition>,
    /// The first 512 bytes of the disk.
    pub(crate) boot: BootPhys,
    pub(crate) gpt: gpt::Facts,
    pub(crate) is_corrupt: bool,
    /// What is wrong with it, in GEOM's words.
    pub(crate) notes: Vec<String>,
}

impl Table {
    /// The table on a disk; `None` if there is none.
    ///
    /// A GPT with only one good copy is read from that copy; [`Table::is_corrupt`] and
    /// [`Table::notes`] report it.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if there is a GPT but neither copy is good; what the provider says if
    /// sector 0 cannot be read.
    pub fn read(provider: &dyn Provider) -> Result<Option<Table>> {
        let shape = Shape::of(provider);
        if shape.sectorsize < 512 || shape.sectors() == 0 {
            return Ok(None);
        }
        let sector = read_sectors(provider, 0, 1)?;
        let boot = BootPhys::from_sector(&sector).expect("a sector is at least that long");
        let table = if boot.has_protective() {
            gpt::read(provider, boot)?
        } else if let Some(table) = mbr::read(provider, &boot) {
            Some(table)
        } else {
            gpt::read(provider, boot)?
        };
        Ok(table.map(Table::checked))
    }

    fn checked(mut self) -> Table {
        let found = self.breaches();
        if !found.is_empty() {
            self.is_corrupt = true;
            self.notes.extend(found);
            self.notes
                .push(format!("integrity check failed ({})", self.scheme.name()));
        }
        self
    }

    /// Violations of integrity: partitions that overlap or leave the usable range.
    pub(crate) fn breaches(&self) -> Vec<String> {
        let mut found = Vec::new();
        let disk_last = self.shape.sectors().saturating_sub(1);
        if self.last < self.first {
            let (last, first) = (self.last, self.first);
            found.push(format!("last LBA is below first LBA: {last} < {first}"));
        }
        if self.last > disk_last {
            let last = self.last;
            found.push(format!(
                "last LBA extends beyond mediasize: {last} > {disk_last}"
            ));
        }
        for (i, one) in self.partitions.iter().enumerate() {
            let (n, start, end) = (one.index, one.start_sector, one.last_sector());
            if one.sectors == 0 {
                found.push(format!("partition {n} has end offset below start offset"));
            } else if start < self.first {
                let first = self.first;
                found.push(format!(
                    "partition {n} has start offset below first LBA: {start} < {first}"
                ));
            } else if end > self.last.min(disk_last) {
                let last = self.last.min(disk_last);
                found.push(format!(
                    "partition {n} has end offset beyond last LBA: {end} > {last}"
                ));
            }
            for other in &self.partitions[i + 1..] {
                if other.sectors > 0
                    && one.sectors > 0
                    && one.overlaps(other.start_sector, other.last_sector())
                {
                    found.push(format!("partition {n} overlaps partition {}", other.index));
                }
            }
        }
        found
    }

    /// Its format.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The disk that it was read from or made for.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The partitions, in numeric order.
    #[must_use]
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// The partitions in disk order.
    #[must_use]
    pub fn in_place(&self) -> Vec<&Partition> {
        let mut partitions: Vec<_> = self.partitions.iter().collect();
        partitions.sort_by_key(|p| (p.start_sector, p.index));
        partitions
    }

    /// The partition of that number.
    #[must_use]
    pub fn partition(&self, index: u32) -> Option<&Partition> {
        self.partitions.iter().find(|p| p.index == index)
    }

    /// The partitions that can be used: within the disk and not overlapping another one.
    #[must_use]
    pub fn places(&self, disk: &str) -> Vec<Extent> {
        let bytes = u64::from(self.shape.sectorsize);
        let is_alone = |one: &Partition| {
            let others = self.partitions.iter().filter(|o| o.index != one.index);
            let mut others = others.filter(|o| o.sectors > 0);
            !others.any(|o| o.overlaps(one.start_sector, one.last_sector()))
        };
        let usable = self
            .partitions
            .iter()
            .filter(|p| p.sectors > 0 && p.last_sector() < self.shape.sectors() && is_alone(p));
        let place = |p: &Partition| Extent {
            name: format!("{disk}{}", p.suffix()),
            label: Some(p.label()).filter(|label| !label.is_empty()),
            start: p.start_sector * bytes,
            len: p.sectors * bytes,
        };
        usable.map(place).collect()
    }

    /// The first usable sector.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The last usable sector.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The number of slots for partitions.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Whether it needs `recover` before it may be changed.
    #[must_use]
    pub fn is_corrupt(&self) -> bool {
        self.is_corrupt
    }

    /// What is wrong or unusual, for the user.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// How many more sectors a GPT could use at the end of this disk: it grew, or they were rounded off.
    #[must_use]
    pub fn unused_sectors(&self) -> u64 {
        if self.scheme == Scheme::Mbr {
            return 0;
        }
        let copy = gpt::entries_sectors(&self.shape, self.entries, self.gpt.entry_size);
        let last = self.shape.sectors().saturating_sub(copy.saturating_add(2));
        last.saturating_sub(self.last)
    }

    /// The GUID of the disk; `None` for an MBR.
    #[must_use]
    pub fn disk_guid(&self) -> Option<Uuid> {
        (self.scheme == Scheme::Gpt).then_some(self.gpt.disk_guid)
    }

    /// The serial number of the disk in the boot sector (MBR).
    #[must_use]
    pub fn serial(&self) -> u32 {
        self.boot.serial.get()
    }

    /// Writes it, in an order such that a loss of power leaves the old table or the new one.
    ///
    /// # Errors
    /// What the provider says; then the disk has the old table, the new one, or one that `recover` can repair.
    pub fn write(&self, provider: &dyn Provider) -> Result<()> {
        assert_eq!(
            (self.shape.sectorsize, self.shape.mediasize),
            (provider.sectorsize(), provider.mediasize()),
            "a table for another disk"
        );
        match self.scheme {
            Scheme::Gpt => gpt::write(self, provider),
            Scheme::Mbr => mbr::write(self, provider),
        }
    }

    /// Erases it from the disk.
    ///
    /// # Errors
    /// What the provider says.
    pub fn destroy(&self, provider: &dyn Provider) -> Result<()> {
        let zeros = vec![0; self.shape.sectorsize as usize];
        let mut sectors = vec![0];
        if self.scheme == Scheme::Gpt {
            sectors.push(1);
            sectors.extend(self.gpt.backup_at);
        }
        for sector in sectors {
            provider.write(sector * u64::from(self.shape.sectorsize), &zeros)?;
        }
        provider.flush()
    }
}

/// Reads whole sectors.
pub(crate) fn read_sectors(provider: &dyn Provider, start: u64, count: u64) -> Result<Vec<u8>> {
    let sector = u64::from(provider.sectorsize());
    let (at, len) = (start.checked_mul(sector), count.checked_mul(sector));
    let (Some(at), Some(len)) = (at, len) else {
        return Err(Error::corrupt(format!("sector {start} is past any disk")));
    };
    let mut bytes = vec![0; usize::try_from(len).map_err(|_| Error::corrupt("too long"))?];
    provider.read(at, &mut bytes)?;
    Ok(bytes)
}

/// Writes bytes starting at a sector, padding the last sector with zeros.
pub(crate) fn write_sectors(provider: &dyn Provider, start: u64, bytes: &[u8]) -> Result<()> {
    let sector = provider.sectorsize() as usize;
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(sector).max(sector), 0);
    provider.write(start * sector as u64, &padded)
}

const _: () = assert!(BOOT_BYTES == 512);
