//! Reading an archive, member by member.
//!
//! # Invariants
//! 1. Nothing is allocated by a length that the archive states: what grows is what was read, up to limits.
//! 2. After an error nothing more is read: what follows damage is not known to be a header.

use std::io::Read;

use base::{Error, Result};
use tar::{EntryType, Header};

use crate::BLOCK_BYTES;
use crate::member::{Kind, Member};
use crate::pax::{self, Records};
use crate::sparse::{self, Said};

/// What is said of an archive that is cut off.
pub const EARLY_END: &str = "Unexpected EOF in archive";
/// What is said of bytes that are not a header.
pub const NOT_TAR: &str = "This does not look like a tar archive";

/// Bytes of a long name or of a pax header, at most: attributes of a file are 64 KiB each.
const RECORDS_MAX_BYTES: u64 = 64 << 20;

/// What an archive is read from.
pub trait Input: Read {
    /// Passes over bytes; returns how many there were.
    ///
    /// # Errors
    /// Those of reading.
    fn skip(&mut self, bytes: u64) -> std::io::Result<u64> {
        std::io::copy(&mut self.take(bytes), &mut std::io::sink())
    }
}

impl Input for &[u8] {}

impl<T: Input + ?Sized> Input for Box<T> {
    fn skip(&mut self, bytes: u64) -> std::io::Result<u64> {
        (**self).skip(bytes)
    }
}

/// An archive that is being read.
pub struct Reader<R> {
    input: R,
    /// Bytes of the current member's data that were not read yet.
    left: u64,
    /// Bytes after them, up to the next header.
    padding: u64,
    globals: Records,
    /// Whether a header was read.
    has_begun: bool,
    is_done: bool,
}

/// What headers before that of a member say of it.
#[derive(Default)]
struct Before {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    records: Records,
}

impl<R: Input> Reader<R> {
    /// Reads an archive from its first byte on.
    pub fn new(input: R) -> Reader<R> {
        Reader {
            input,
            left: 0,
            padding: 0,
            globals: Records::new(),
            has_begun: false,
            is_done: false,
        }
    }

    /// The next member; `None` at the end. What was not read of the one before is passed over.
    ///
    /// # Errors
    /// `Corrupt` with GNU tar's words where the archive is damaged; then it is at its end.
    #[expect(
        clippy::should_implement_trait,
        reason = "a member's data is read in between"
    )]
    pub fn next(&mut self) -> Result<Option<Member>> {
        if self.is_done {
            return Ok(None);
        }
        let member = self.find();
        self.is_done = !matches!(member, Ok(Some(_)));
        member
    }

    /// Reads some of the current member's data, all of `out` if there is as much; holes are not in it.
    ///
    /// # Errors
    /// `Corrupt` where the archive ends before.
    pub fn data(&mut self, out: &mut [u8]) -> Result<usize> {
        let length = (out.len() as u64).min(self.left) as usize;
        let outcome = self.fill(&mut out[..length]);
        self.is_done |= outcome.is_err();
        outcome?;
        self.left -= length as u64;
        Ok(length)
    }

    /// Passes over what is behind the last member.
    ///
    /// # Errors
    /// Those of reading.
    pub fn drain(&mut self) -> Result<()> {
        self.input.skip(u64::MAX).map_err(early).map(|_| ())
    }

    fn find(&mut self) -> Result<Option<Member>> {
        let mut before = Before::default();
        let mut is_announced = false;
        loop {
            self.pass()?;
            let Some(header) = self.header()? else {
                return match is_announced {
                    true => Err(Error::corrupt(EARLY_END)),
                    false => Ok(None),
                };
            };
            let size = header.entry_size();
            let size = size.map_err(|_| Error::corrupt(NOT_TAR))?;
            self.is_to_hold(size)?;
            match header.entry_type() {
                EntryType::GNULongName => before.name = Some(self.text()?),
                EntryType::GNULongLink => before.link = Some(self.text()?),
                EntryType::XHeader => before.records = pax::parse(&self.all()?)?,
                EntryType::XGlobalHeader => {
                    let records = pax::parse(&self.all()?)?;
                    self.globals.extend(records);
                    continue;
                }
                _ => return self.member(&header, before, size).map(Some),
            }
            is_announced = true;
        }
    }

    /// So many bytes of data follow.
    fn is_to_hold(&mut self, bytes: u64) -> Result<()> {
        let padded = bytes.checked_next_multiple_of(BLOCK_BYTES);
        let padded = padded.filter(|padded| i64::try_from(*padded).is_ok());
        let padded = padded.ok_or_else(|| Error::corrupt(NOT_TAR))?;
        self.left = bytes;
        self.padding = padded - bytes;
        Ok(())
    }

    /// Passes over what is left of the member.
    fn pass(&mut self) -> Result<()> {
        let passed = self.input.skip(self.left + self.padding).map_err(early)?;
        // Padding that is missing at the end takes nothing away.
        if passed < self.left {
            return Err(Error::corrupt(EARLY_END));
        }
        (self.left, self.padding) = (0, 0);
        Ok(())
    }

    fn fill(&mut self, out: &mut [u8]) -> Result<()> {
        self.input.read_exact(out).map_err(early)
    }

    /// The next header; `None` at the end.
    fn header(&mut self) -> Result<Option<Header>> {
        let mut header = Header::new_old();
        let bytes = header.as_mut_bytes();
        let mut filled = 0;
        while filled < bytes.len() {
            match self.input.read(&mut bytes[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) if self.has_begun => return Err(Error::corrupt(EARLY_END)),
                Ok(0) => return Err(Error::corrupt(NOT_TAR)),
                Ok(read) => filled += read,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(early(e)),
            }
        }
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if !has_sum(&header) {
            let text = match self.has_begun {
                true => "Damaged header in archive",
                false => NOT_TAR,
            };
            return Err(Error::corrupt(text));
        }
        self.has_begun = true;
        Ok(Some(header))
    }

    /// All data of the current member.
    fn all(&mut self) -> Result<Vec<u8>> {
        if self.left > RECORDS_MAX_BYTES {
            return Err(Error::corrupt("Extended header is too long"));
        }
        let mut bytes = Vec::new();
        let read = (&mut self.input).take(self.left).read_to_end(&mut bytes);
        if (read.map_err(early)? as u64) < self.left {
            return Err(Error::corrupt(EARLY_END));
        }
        self.left = 0;
        Ok(bytes)
    }

    /// The name that is the data of the current member.
    fn text(&mut self) -> Result<Vec<u8>> {
        let mut bytes = self.all()?;
        bytes.truncate(before_nul(&bytes).len());
        Ok(bytes)
    }

    fn member(&mut self, header: &Header, before: Before, size: u64) -> Result<Member> {
        let mut member = plain(header);
        member.name = before.name.unwrap_or(member.name);
        member.link = before.link.unwrap_or(member.link);
        member.size = size;
        let globals = self.globals.iter().cloned();
        let records: Records = globals.chain(before.records).collect();
        for (key, value) in &records {
            apply(&mut member, key, value)?;
        }
        if member.kind == Kind::Link {
            member.size = 0;
        }
        let stored = member.size;
        self.is_to_hold(stored)?;
        member.map = match stored {
            0 => Vec::new(),
            _ => vec![(0, stored)],
        };
        self.holes(header, &records, &mut member)?;
        for name in [&mut member.name, &mut member.link] {
            name.truncate(before_nul(name).len());
        }
        // Before ustar, a slash was what told a directory.
        if member.kind == Kind::File && member.name.ends_with(b"/") {
            member.kind = Kind::Directory;
        }
        Ok(member)
    }

    /// Sets size and map of a sparse file.
    fn holes(&mut self, header: &Header, records: &Records, member: &mut Member) -> Result<()> {
        let mut block = || {
            let mut block = [0; BLOCK_BYTES as usize];
            self.input.read_exact(&mut block).map_err(early)?;
            Ok(block)
        };
        let mut said = Said::of(records)?;
        if header.entry_type() == EntryType::GNUSparse {
            let (size, map) = sparse::old(header, block)?;
            member.size = size;
            member.map = sparse::checked(map, size, self.left)?;
            return Ok(());
        }
        if said.is_in_data() {
            let (map, bytes) = sparse::in_data(&mut block)?;
            self.left = (self.left.checked_sub(bytes)).ok_or_else(sparse::malformed)?;
            said.set_map(map);
        }
        said.apply(member, self.left)
    }
}

/// What the header alone says. A number that cannot be read is 0, as in archives that leave fields empty.
fn plain(header: &Header) -> Member {
    let mut member = Member::new(&header.path_bytes(), Kind::of(header.entry_type()));
    member.link = header.link_name_bytes().unwrap_or_default().into_owned();
    member.mode = header.mode().unwrap_or(0) & 0o7777;
    member.uid = header.uid().unwrap_or(0);
    member.gid = header.gid().unwrap_or(0);
    member.user = header.username_bytes().unwrap_or_default().to_vec();
    member.group = header.groupname_bytes().unwrap_or_default().to_vec();
    // In base 256 it may be negative.
    member.mtime = (header.mtime().unwrap_or(0) as i64, 0);
    let number = |number: std::io::Result<Option<u32>>| number.ok().flatten().unwrap_or(0);
    member.device = (number(header.device_major()), number(header.device_minor()));
    member
}

/// Applies a record of a pax header.
fn apply(member: &mut Member, key: &[u8], value: &[u8]) -> Result<()> {
    let wrong = || {
        let key = String::from_utf8_lossy(key);
        Error::corrupt(format!("Malformed extended header: invalid {key}"))
    };
    let number = || pax::number(value).ok_or_else(wrong);
    match key {
        b"path" => member.name = value.to_vec(),
        b"linkpath" => member.link = value.to_vec(),
        b"size" => member.size = number()?,
        b"uid" => member.uid = number()?,
        b"gid" => member.gid = number()?,
        b"uname" => member.user = value.to_vec(),
        b"gname" => member.group = value.to_vec(),
        b"mtime" => member.mtime = pax::time(value).ok_or_else(wrong)?,
        _ => {
            if let Some(name) = key.strip_prefix(pax::XATTR) {
                member.xattrs.push((pax::decoded(name), value.to_vec()));
            } else if let Some(which) = pax::ACLS.iter().position(|acl| *acl == key) {
                member.acls[which] = Some(value.to_vec());
            }
        }
    }
    Ok(())
}

/// Whether the sum in a header is right: that of unsigned bytes, or of signed ones, as some old programs have it.
fn has_sum(header: &Header) -> bool {
    let Ok(sum) = header.cksum() else {
        return false;
    };
    let bytes = header.as_bytes().iter().enumerate();
    let bytes = bytes.map(|(at, byte)| {
        if (148..156).contains(&at) {
            b' '
        } else {
            *byte
        }
    });
    let unsigned: u32 = bytes.clone().map(u32::from).sum();
    let signed: i64 = bytes.map(|byte| i64::from(byte as i8)).sum();
    sum == unsigned || i64::from(sum) == signed
}

fn before_nul(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == 0);
    &bytes[..end.unwrap_or(bytes.len())]
}

/// An error of reading; an archive that is too short is damaged.
fn early(error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Error::corrupt(EARLY_END),
        std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput => {
            Error::corrupt(error.to_string())
        }
        _ => error.downcast().unwrap_or_else(Error::from),
    }
}
