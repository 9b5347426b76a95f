//! gpart(8)'s operations on a table in memory, with the same refusals.
//!
//! The text of an error is what gpart prints after `gpart: `.

use base::{Error, ErrorKind, Result};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

use crate::align::{self, Wish};
use crate::mbr::{self, TRACK_SECTORS};
use crate::phys::{BOOT_BYTES, BOOTCODE_BYTES, BootPhys, ENTRY_BYTES, GPT_REVISION, PROTECTIVE};
use crate::table::{ACTIVE, BOOTFAILED, BOOTME, BOOTONCE};
use crate::{Era, Kind, Partition, Scheme, Shape, Table, Uuid, gpt};

/// The default number of entries of a GPT.
pub(crate) const GPT_ENTRIES: u32 = 128;
/// The most entries that gpart creates.
const GPT_ENTRIES_MAX: u32 = 4096;

/// A partition to be added.
#[derive(Clone, Debug, Default)]
pub struct NewPartition {
    /// Where to place it.
    pub wish: Wish,
    /// `-i`; `None`: the lowest free number.
    pub index: Option<u32>,
    /// `-l`
    pub label: Option<String>,
    /// The FreeBSD version whose rules apply.
    pub era: Era,
}

fn refuse(kind: ErrorKind, what: &str) -> Error {
    let words = match kind {
        ErrorKind::InvalidInput => "Invalid argument",
        ErrorKind::NoSpace => "No space left on device",
        ErrorKind::Exists => "File exists",
        ErrorKind::NotFound => "No such file or directory",
        ErrorKind::Busy => "Device busy",
        ErrorKind::Permission => "Operation not permitted",
        ErrorKind::TooBig => "File too large",
        _ => "Operation not supported by device",
    };
    if what.is_empty() {
        return Error::new(kind, words);
    }
    Error::new(kind, format!("{what}: {words}"))
}

fn invalid(what: impl AsRef<str>) -> Error {
    refuse(ErrorKind::InvalidInput, what.as_ref())
}

impl Table {
    /// A table without partitions for a disk of this shape.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if the disk is too small, [`ErrorKind::InvalidInput`] if the scheme cannot
    /// have that number of entries.
    pub fn create(scheme: Scheme, shape: Shape, entries: Option<u32>, era: Era) -> Result<Table> {
        let range = match scheme {
            Scheme::Gpt => GPT_ENTRIES..=GPT_ENTRIES_MAX,
            Scheme::Mbr => mbr::ENTRIES..=mbr::ENTRIES,
        };
        let entries = entries.unwrap_or(*range.start());
        if !range.contains(&entries) {
            return Err(invalid(format!("entries '{entries}'")));
        }
        let no_space = || refuse(ErrorKind::NoSpace, "provider");
        if shape.sectorsize < 512 {
            return Err(no_space());
        }
        match scheme {
            Scheme::Gpt => {
                let copy = gpt::entries_sectors(&shape, entries, ENTRY_BYTES);
                if shape.sectors() < 3 + 2 * copy + u64::from(entries) {
                    return Err(no_space());
                }
                Ok(Table::empty_gpt(shape, entries, era))
            }
            Scheme::Mbr => {
                let mut table = mbr::empty(shape);
                if era == Era::Nine {
                    let tracks = (table.last + 1) / TRACK_SECTORS;
                    table.last = (tracks * TRACK_SECTORS).saturating_sub(1);
                }
                if table.last < table.first {
                    return Err(no_space());
                }
                // Linux and Windows identify disks by it
                let mut serial = [0; 4];
                rt::fill_random(&mut serial);
                table.boot.serial = U32::from(serial);
                Ok(table)
            }
        }
    }

    fn empty_gpt(shape: Shape, entries: u32, era: Era) -> Table {
        let mut table = Table {
            scheme: Scheme::Gpt,
            shape,
            first: 0,
            last: 0,
            entries,
            partitions: Vec::new(),
            boot: BootPhys::empty(),
            gpt: gpt::Facts {
                disk_guid: Uuid::random(),
                entry_size: ENTRY_BYTES,
                revision: GPT_REVISION,
                entries_lba: gpt::PRIMARY_ENTRIES_LBA,
                backup_at: None,
            },
            is_corrupt: false,
            notes: Vec::new(),
        };
        gpt::protect(&mut table.boot, shape);
        (table.first, table.last) = table.usable_range(era);
        table
    }

    /// The range of sectors that a GPT on this disk can use: everything but headers and entries; in the
    /// current era rounded to 4096 bytes unless a partition is in the way.
    fn usable_range(&self, era: Era) -> (u64, u64) {
        let copy = gpt::entries_sectors(&self.shape, self.entries, self.gpt.entry_size);
        let mut first = 2 + copy;
        let mut last = (self.shape.sectors() - 1).saturating_sub(copy + 1);
        let unit = 4096 / u64::from(self.shape.sectorsize);
        if era == Era::Nine || unit < 2 {
            return (first, last);
        }
        let lowest = self.partitions.iter().map(|p| p.start_sector).min();
        let highest = self.partitions.iter().map(Partition::last_sector).max();
        let rounded = first.next_multiple_of(unit);
        if rounded <= lowest.unwrap_or(last) {
            first = rounded;
        }
        let rounded = last - (last + 1) % unit;
        if highest.unwrap_or(first) <= rounded {
            last = rounded;
        }
        (first, last)
    }

    /// Checks that it may be changed.
    ///
    /// # Errors
    /// [`ErrorKind::Permission`] if it needs `recover` first.
    pub fn check_writable(&self, disk: &str) -> Result<()> {
        if self.is_corrupt {
            let what = format!("table '{disk}' is corrupt");
            return Err(refuse(ErrorKind::Permission, &what));
        }
        Ok(())
    }

    /// Lets partitions of an MBR begin at `start`, even in the first track, which is kept free by default.
    pub fn allow_from(&mut self, start: u64) {
        if self.scheme == Scheme::Mbr {
            self.first = self.first.min(start.max(1));
        }
    }

    fn kind(&self, text: &str) -> Result<Kind> {
        let kind = Kind::parse(self.scheme, text)?;
        if kind.is_extended() {
            let text = format!("type '{text}': extended partitions are not kept up here");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        Ok(kind)
    }

    /// Adds a partition; returns its number.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if there is no room there, [`ErrorKind::Exists`] if the number is
    /// taken, [`ErrorKind::InvalidInput`] otherwise.
    pub fn add(&mut self, kind: &str, new: &NewPartition) -> Result<u32> {
        let (start, size) = align::place(self, &new.wish)?;
        if start < self.first || start > self.last {
            return Err(invalid(format!("start '{start}'")));
        }
        let end = size.checked_sub(1).and_then(|n| start.checked_add(n));
        let Some(end) = end.filter(|end| *end <= self.last) else {
            return Err(invalid(format!("size '{size}'")));
        };
        let index = self.index_for(new.index)?;
        for one in &self.partitions {
            one.check_clear(start, end, size)?;
        }
        let kind = self.kind(kind)?;
        let (mut start, mut size) = (start, size);
        if self.scheme == Scheme::Mbr {
            if new.label.is_some() {
                return Err(invalid(""));
            }
            if new.era == Era::Nine {
                (start, size) = whole_tracks(start, size).ok_or_else(|| invalid(""))?;
            }
        }
        let mut one = Partition::new(index, start, size, kind);
        if let Some(label) = &new.label {
            one.set_label(label);
        }
        let at = self.partitions.partition_point(|p| p.index < index);
        self.partitions.insert(at, one);
        Ok(index)
    }

    /// Chooses a number for a new partition, or checks the given one.
    fn index_for(&self, wished: Option<u32>) -> Result<u32> {
        if let Some(index) = wished.filter(|i| *i > self.entries) {
            return Err(invalid(format!("index '{index}'")));
        }
        match wished.filter(|i| *i > 0) {
            Some(index) if self.partition(index).is_some() => {
                Err(refuse(ErrorKind::Exists, &format!("index '{index}'")))
            }
            Some(index) => Ok(index),
            None => {
                let free = (1..=self.entries).find(|i| self.partition(*i).is_none());
                let full = || refuse(ErrorKind::NoSpace, &format!("index '{}'", self.entries + 1));
                free.ok_or_else(full)
            }
        }
    }

    pub(crate) fn position(&self, index: u32) -> Result<usize> {
        let at = self.partitions.iter().position(|p| p.index == index);
        at.ok_or_else(|| refuse(ErrorKind::NotFound, &format!("index '{index}'")))
    }

    /// Removes a partition; returns it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub fn delete(&mut self, index: u32) -> Result<Partition> {
        let at = self.position(index)?;
        Ok(self.partitions.remove(at))
    }

    /// Changes the label or the type of a partition.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::InvalidInput`] for a label in an MBR or an unknown type.
    pub fn modify(&mut self, index: u32, label: Option<&str>, kind: Option<&str>) -> Result<()> {
        let at = self.position(index)?;
        if label.is_some() && self.scheme == Scheme::Mbr {
            return Err(invalid(""));
        }
        let kind = kind.map(|text| self.kind(text)).transpose()?;
        let one = &mut self.partitions[at];
        one.kind = kind.unwrap_or(one.kind);
        if let Some(label) = label {
            one.set_label(label);
        }
        Ok(())
    }

    /// Moves the end of a partition; without a size, as far as possible.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::NoSpace`] if the next partition is in the way,
    /// [`ErrorKind::InvalidInput`] for a size past the usable sectors.
    pub fn resize(&mut self, index: u32, wish: &Wish, era: Era) -> Result<()> {
        let at = self.position(index)?;
        let one = &self.partitions[at];
        let mut size = align::resized(self, one, wish)?;
        let start = one.start_sector;
        let end = size.checked_sub(1).and_then(|n| start.checked_add(n));
        let Some(end) = end.filter(|end| *end <= self.last) else {
            return Err(invalid(format!("size '{size}'")));
        };
        for other in self.partitions.iter().filter(|p| p.index != index) {
            if other.start_sector > start {
                other.check_clear(start, end, size)?;
            }
        }
        if self.scheme == Scheme::Mbr && era == Era::Nine {
            size -= size % TRACK_SECTORS;
            if size == 0 {
                return Err(invalid(""));
            }
        }
        self.partitions[at].sectors = size;
        Ok(())
    }

    /// Sets or unsets an attribute of a partition, or of the table if `index` is `None`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for the partition, [`ErrorKind::InvalidInput`] for the attribute.
    pub fn set(&mut self, attribute: &str, index: Option<u32>, is_set: bool) -> Result<()> {
        let at = index.map(|index| self.position(index)).transpose()?;
        let name = attribute.to_ascii_lowercase();
        let what = format!("attrib '{attribute}'");
        let not_there = || refuse(ErrorKind::Unsupported, &what);
        match (self.scheme, name.as_str(), at) {
            (Scheme::Mbr, _, None) => Err(not_there()),
            (Scheme::Mbr, "active", Some(at)) => {
                for one in &mut self.partitions {
                    one.attributes &= !ACTIVE;
                }
                self.partitions[at].attributes |= if is_set { ACTIVE } else { 0 };
                Ok(())
            }
            (Scheme::Gpt, "active", None) => {
                for entry in &mut self.boot.entries {
                    let is_it = is_set && entry.kind == PROTECTIVE;
                    entry.flag = if is_it { 0x80 } else { 0 };
                }
                Ok(())
            }
            (Scheme::Gpt, "lenovofix", None) => {
                gpt::protect(&mut self.boot, self.shape);
                if is_set {
                    self.boot.entries.swap(0, 1);
                }
                Ok(())
            }
            (Scheme::Gpt, "active" | "lenovofix", Some(_)) => {
                let what = format!("{what}: Device not configured");
                Err(Error::new(ErrorKind::InvalidInput, what))
            }
            (Scheme::Gpt, name, at) => {
                let bits = match name {
                    "bootme" => BOOTME,
                    "bootonce" if is_set => BOOTONCE | BOOTME,
                    "bootonce" => BOOTONCE,
                    "bootfailed" => BOOTFAILED,
                    _ => return Err(invalid(what)),
                };
                let one = &mut self.partitions[at.ok_or_else(not_there)?];
                one.attributes &= !bits;
                one.attributes |= if is_set { bits } else { 0 };
                Ok(())
            }
            (Scheme::Mbr, _, Some(_)) => Err(invalid(what)),
        }
    }

    /// Installs boot code in the boot sector. An MBR keeps its serial number unless `renumber`.
    ///
    /// # Errors
    /// [`ErrorKind::TooBig`]; for an MBR [`ErrorKind::Unsupported`] if the code is not exactly 512 bytes.
    pub fn set_bootcode(&mut self, code: &[u8], renumber: bool) -> Result<()> {
        if code.len() > BOOT_BYTES {
            return Err(refuse(ErrorKind::TooBig, ""));
        }
        if self.scheme == Scheme::Mbr && code.len() != BOOT_BYTES {
            return Err(refuse(ErrorKind::Unsupported, ""));
        }
        let serial = self.boot.serial;
        let len = code.len().min(BOOTCODE_BYTES);
        let place = &mut self.boot.as_mut_bytes()[..BOOTCODE_BYTES];
        place.fill(0);
        place[..len].copy_from_slice(&code[..len]);
        if self.scheme == Scheme::Mbr && serial.get() != 0 && !renumber {
            self.boot.serial = serial;
            self.boot.pad = U16::ZERO;
        }
        Ok(())
    }

    /// Repairs a GPT and makes all of the disk usable, whether or not that is needed.
    ///
    /// # Errors
    /// As [`Table::recover`].
    pub fn use_all(&mut self, disk: &str) -> Result<()> {
        self.is_corrupt = true;
        self.recover(disk, Era::Nine).map(drop)
    }

    /// Repairs a damaged GPT for the present size of the disk; returns whether there was anything to do.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if a partition would not fit: then the disk is smaller than the one
    /// that the table was made for, and recovering would overwrite part of that partition.
    pub fn recover(&mut self, disk: &str, era: Era) -> Result<bool> {
        if !self.is_corrupt {
            return Ok(false);
        }
        let failed = |why: String| {
            let text = format!("recovering '{disk}' failed: {why}");
            Error::new(ErrorKind::NoSpace, text)
        };
        if self.scheme == Scheme::Mbr {
            let text = format!("recovering '{disk}' failed: Function not implemented");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let copy = gpt::entries_sectors(&self.shape, self.entries, self.gpt.entry_size);
        if self.shape.sectors() < 4 + 2 * copy {
            return Err(failed("the disk is too small for a table".to_owned()));
        }
        let mut mended = self.clone();
        gpt::protect(&mut mended.boot, self.shape);
        let entries_end = self.gpt.entries_lba + copy;
        (mended.first, mended.last) = mended.usable_range(era);
        mended.first = mended.first.max(entries_end);
        for one in &self.partitions {
            let (index, end, last) = (one.index, one.last_sector(), mended.last);
            if end > last {
                return Err(failed(format!(
                    "partition {index} ends in sector {end}, but on this disk {last} is the last that is \
                     usable; what is there now would be overwritten"
                )));
            }
            if one.start_sector < mended.first && one.sectors > 0 {
                mended.first = one.start_sector.max(entries_end);
            }
        }
        mended.is_corrupt = false;
        mended.notes.clear();
        if let Some(breach) = mended.breaches().first() {
            return Err(failed(breach.clone()));
        }
        *self = mended;
        Ok(true)
    }
}

/// Shrinks a range to whole tracks.
fn whole_tracks(start: u64, size: u64) -> Option<(u64, u64)> {
    let end = start.checked_add(size)?;
    let start = start.next_multiple_of(TRACK_SECTORS);
    let size = end.checked_sub(start)?;
    let size = size - size % TRACK_SECTORS;
    (size > 0).then_some((start, size))
}

impl Partition {
    fn check_clear(&self, start: u64, end: u64, size: u64) -> Result<()> {
        let inside =
            |sector| self.sectors > 0 && (self.start_sector..=self.last_sector()).contains(&sector);
        let taken = |what: String| Err(refuse(ErrorKind::NoSpace, &what));
        if inside(start) {
            taken(format!("start '{start}'"))
        } else if inside(end) {
            taken(format!("end '{end}'"))
        } else if self.sectors > 0 && start < self.start_sector && end > self.last_sector() {
            taken(format!("size '{size}'"))
        } else {
            Ok(())
        }
    }
}
