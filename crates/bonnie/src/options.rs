//! What is measured.

use base::{Error, Result};

/// Bytes of a MiB, the unit of a file's size.
pub(crate) const MIB: u64 = 1 << 20;
/// The chunk size that no report mentions, in bytes.
pub(crate) const DEFAULT_CHUNK_BYTES: u32 = 8192;
pub(crate) const DEFAULT_SEEKS: u32 = 8192;
pub(crate) const DEFAULT_SEEKERS: u32 = 5;
/// The file's size unless another one is asked for, in MiB.
const DEFAULT_FILE_MIB: u32 = 300;
/// How much is written and read byte by byte, in MiB.
const DEFAULT_BYTE_MIB: u32 = 3;
/// Thousands of files.
const DEFAULT_THOUSANDS: u32 = 16;
/// Files of one thousand.
pub(crate) const THOUSAND: u32 = 1024;
/// More directories would not fit into names of five digits.
const DIRECTORIES_MAX: u32 = 99_999;
/// Memory for one file, in bytes: its name with 22 letters, its directory, an end mark and a pointer.
const BYTES_PER_FILE: u64 = 22 + 6 + 1 + 8;

/// The version whose reports are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Era {
    /// 1.96: rates in KiB, and the concurrency in the table.
    V1_96,
    /// 2.00a: rates with units, and the number of seeks in the line.
    #[default]
    V2_00,
}

/// What the many files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Files of a size between these, in bytes; nothing is written to them if the first is 0.
    Files {
        /// The greatest size.
        max_bytes: u32,
        /// The least size.
        min_bytes: u32,
    },
    /// One empty file and hard links to it.
    Links,
    /// One empty file and symbolic links to it.
    Symlinks,
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of the file, in MiB; 0: none.
    pub file_mib: u32,
    /// How much of it is written and read byte by byte, in MiB.
    pub byte_mib: u32,
    /// Size of a read or write in the file, in bytes.
    pub chunk_bytes: u32,
    /// How many chunks are looked for.
    pub seeks: u32,
    /// By how many threads.
    pub seekers: u32,
    /// Thousands (1024) of files; 0: none.
    pub thousands: u32,
    /// What they are.
    pub kind: Kind,
    /// In how many directories.
    pub directories: u32,
    /// Size of a read or write in them, in bytes.
    pub file_chunk_bytes: u32,
    /// Everything is written to stable storage at once.
    pub syncs: bool,
    /// The file is written past the cache.
    pub is_direct: bool,
    /// How many such tests run at a time: said in the report.
    pub concurrency: u32,
    /// Memory of the computer, in MiB; 0: not to be looked at.
    pub memory_mib: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            file_mib: DEFAULT_FILE_MIB,
            byte_mib: DEFAULT_BYTE_MIB,
            chunk_bytes: DEFAULT_CHUNK_BYTES,
            seeks: DEFAULT_SEEKS,
            seekers: DEFAULT_SEEKERS,
            thousands: DEFAULT_THOUSANDS,
            kind: Kind::Files {
                max_bytes: 0,
                min_bytes: 0,
            },
            directories: 1,
            file_chunk_bytes: DEFAULT_CHUNK_BYTES,
            syncs: false,
            is_direct: false,
            concurrency: 1,
            memory_mib: 0,
        }
    }
}

impl Options {
    /// Reads `-s`: size, chunk size, seeks and threads.
    ///
    /// # Errors
    /// `InvalidInput`
    pub fn set_file(&mut self, text: &str) -> Result<()> {
        let mut parts = text.split(':');
        self.file_mib = size(parts.next().unwrap_or_default(), "mgt")?;
        for (part, units, field) in [
            (parts.next(), "bk", &mut self.chunk_bytes),
            (parts.next(), "bk", &mut self.seeks),
            (parts.next(), "b", &mut self.seekers),
        ] {
            if let Some(part) = part.filter(|part| !part.is_empty()) {
                *field = size(part, units)?;
            }
        }
        match parts.next() {
            None => Ok(()),
            Some(_) => Err(invalid(text)),
        }
    }

    /// Reads `-n`: thousands of files, the greatest and the least size, directories, and the chunk size.
    ///
    /// # Errors
    /// `InvalidInput`
    pub fn set_files(&mut self, text: &str) -> Result<()> {
        let mut parts = text.split(':');
        self.thousands = size(parts.next().unwrap_or_default(), "bm")?;
        let max = parts.next().unwrap_or("0");
        let min = match parts.next() {
            Some(min) => size(min, "bkmg")?,
            None => 0,
        };
        self.kind = match max {
            "-1" => Kind::Links,
            "-2" => Kind::Symlinks,
            max => Kind::Files {
                max_bytes: size(max, "bkmg")?,
                min_bytes: min,
            },
        };
        if let Some(directories) = parts.next() {
            self.directories = size(directories, "bk")?;
        }
        if let Some(chunk) = parts.next() {
            self.file_chunk_bytes = size(chunk, "bkmg")?;
        }
        match parts.next() {
            None => Ok(()),
            Some(_) => Err(invalid(text)),
        }
    }

    /// The size of the file that a computer of this memory needs, if none was asked for.
    pub fn fit_memory(&mut self) {
        self.file_mib = self.file_mib.max(self.memory_mib.saturating_mul(2));
        // Nearly a GiB is made one.
        if self.file_mib % 1024 > 512 {
            self.file_mib = self.file_mib.next_multiple_of(1024);
        }
    }

    /// Looks whether it makes sense.
    ///
    /// # Errors
    /// `InvalidInput`: what is wrong, or an empty text if no more is to be said than how it is used.
    pub fn check(&self) -> Result<()> {
        let is_chunk = |bytes: u32| (256..=1 << 20).contains(&bytes) && bytes.is_power_of_two();
        let sizes_fit = match self.kind {
            Kind::Files {
                max_bytes,
                min_bytes,
            } => min_bytes <= max_bytes && max_bytes <= i32::MAX.unsigned_abs(),
            Kind::Links | Kind::Symlinks => true,
        };
        let makes_sense = (self.file_mib > 0 || self.thousands > 0)
            && is_chunk(self.chunk_bytes)
            && is_chunk(self.file_chunk_bytes)
            && sizes_fit
            && (1..=200).contains(&self.concurrency)
            && self.chunks() <= i32::MAX as u64
            && (1..=1000).contains(&self.seekers);
        if !makes_sense {
            return Err(Error::invalid(""));
        }
        if !(1..=DIRECTORIES_MAX).contains(&self.directories) {
            let text = "Can't have more than 99,999 directories, nor none.";
            return Err(Error::invalid(text));
        }
        let memory = u64::from(self.memory_mib);
        if self.file_mib > 0 && u64::from(self.file_mib) * u64::from(self.concurrency) < memory * 2
        {
            return Err(Error::invalid(format!(
                "File size should be double RAM for good results, RAM is {memory}M."
            )));
        }
        let names_kib = u64::from(self.thousands) * BYTES_PER_FILE;
        if memory > 0 && names_kib * 2 > memory << 10 {
            return Err(Error::invalid(format!(
                "{}K files are too many for {memory} MiB of RAM: their names alone take {} MiB",
                self.thousands,
                names_kib >> 10
            )));
        }
        if names_kib > 1 << 20 {
            let text = format!("Not enough ram to test with {}K files.", self.thousands);
            return Err(Error::invalid(text));
        }
        Ok(())
    }

    /// How many chunks the file has.
    pub(crate) fn chunks(&self) -> u64 {
        MIB / u64::from(self.chunk_bytes) * u64::from(self.file_mib)
    }

    /// How many of them are written and read byte by byte.
    pub(crate) fn byte_chunks(&self) -> u64 {
        MIB / u64::from(self.chunk_bytes) * u64::from(self.tested_byte_mib())
    }

    /// How much is written and read byte by byte, in MiB: no more than the file has.
    pub(crate) fn tested_byte_mib(&self) -> u32 {
        self.byte_mib.min(self.file_mib)
    }

    /// How many files there are.
    pub(crate) fn files(&self) -> u32 {
        self.thousands * THOUSAND
    }
}

fn invalid(text: &str) -> Error {
    Error::invalid(format!("invalid size '{text}'"))
}

/// A number with one of these units: the first multiplies by 1, each further one by 1024.
fn size(text: &str, units: &str) -> Result<u32> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => Some(0),
        unit => units.find(&unit.to_ascii_lowercase()).map(|n| 10 * n),
    };
    let number = digits.parse::<u32>().ok();
    let value = number.zip(shift).and_then(|(n, s)| n.checked_mul(1 << s));
    value.ok_or_else(|| invalid(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let mut options = Options::default();
        options.set_file("16g:64k:1k:7").unwrap();
        let seen = (options.file_mib, options.chunk_bytes, options.seeks);
        assert_eq!((seen, options.seekers), ((16_384, 65_536, 1024), 7));
        options.set_file("100M").unwrap();
        assert_eq!(options.file_mib, 100);
        options.set_files("1m:100k:128:8:4k").unwrap();
        let kind = Kind::Files {
            max_bytes: 102_400,
            min_bytes: 128,
        };
        assert_eq!((options.thousands, options.kind), (1024, kind));
        assert_eq!((options.directories, options.file_chunk_bytes), (8, 4096));
        for wrong in ["", "x", "16x", "1:2:3:4:5", "-1", "9999999g", "5mm", "ä"] {
            assert!(options.set_file(wrong).is_err(), "{wrong}");
        }
        for wrong in ["1:-3", "1:2:3:4:5:6", "1:9g"] {
            assert!(options.set_files(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let good = Options::default();
        assert!(good.check().is_ok());
        let with = |change: fn(&mut Options)| {
            let mut options = good.clone();
            change(&mut options);
            options.check()
        };
        for change in [
            (|o| (o.file_mib, o.thousands) = (0, 0)) as fn(&mut Options),
            |o| o.chunk_bytes = 3000,
            |o| o.file_chunk_bytes = 128,
            |o| o.concurrency = 201,
            |o| o.directories = 100_000,
            |o| o.directories = 0,
            |o| o.seekers = 0,
            |o| o.memory_mib = 151,
            |o| o.thousands = 40_000,
            |o| (o.memory_mib, o.thousands) = (1, 16),
            |o| {
                o.kind = Kind::Files {
                    max_bytes: 1,
                    min_bytes: 2,
                };
            },
        ] {
            assert!(with(change).is_err());
        }
        let mut fitted = good.clone();
        (fitted.memory_mib, fitted.file_mib) = (7900, 300);
        fitted.fit_memory();
        assert_eq!(fitted.file_mib, 15_800);
        fitted.memory_mib = 8000;
        fitted.fit_memory();
        assert_eq!(fitted.file_mib, 16_384);
    }
}
