//! phybs: the time of small writes by size and offset, which shows the physical sector size.
//!
//! # What it is
//! For every size, doubling from the least to the greatest, there is one pass at offset 0 and one at
//! every offset that doubles from one sector up to less than the size. A pass writes `total / size`
//! blocks, each four times its size after the one before, one command at a time, so that every
//! pass sweeps the first `4 * total` bytes of the device once. Where a block ends inside a
//! physical sector, the drive has to read before it writes, and the pass takes longer.
//!
//! # Invariants
//! 1. One command at a time, nothing in between: on an emulated drive the times are the drive's.
//! 2. The rate printed is the true one; [`Row::published_tps`] is what the original prints.
//!
//! # Why not simpler
//! Running a sample of the commands and extrapolating would do for a drive without a cache. Which
//! writes a drive with a cache merges depends on all of them.
//!
//! # Source
//! Dag-Erling Smørgrav's phybs(1) of 2010 and 2011: its options, defaults, passes and columns. The
//! 2010 revision starts at two sectors, the one of 2011 at one; here the former is the default, as
//! in the published tables, and `-l` chooses. Reading as the default and `-s` are of 2011.

use base::{BlockBuf, Error, Result};
use geom::Provider;

use crate::number::{NumberError, expand_number};

/// The default sum of the blocks of one pass: 128 MiB.
const TOTAL_BYTES: u64 = 128 << 20;
/// The distance from one block to the next, in blocks.
const STEP_BLOCKS: u64 = 4;
/// By default the greatest size is this many times the least.
const SIZES_SPAN: u64 = 8;
/// Operations between two calls of the observer within a pass.
const OPERATIONS_PER_NOTE: u32 = 256;

/// The options. Sizes that are not given are derived from the sector size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `-r`
    pub read: bool,
    /// `-w`; with `-r`, every block is read before it is written.
    pub write: bool,
    /// `-s`: every write is flushed.
    pub sync: bool,
    /// `-l`
    pub min_bytes: Option<u64>,
    /// `-h`
    pub max_bytes: Option<u64>,
    /// `-t`
    pub total_bytes: Option<u64>,
}

/// One size at one offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// How many operations.
    pub count: u32,
    /// The bytes of each.
    pub size_bytes: u64,
    /// Where the first one is.
    pub offset_bytes: u64,
    /// The distance from one to the next.
    pub step_bytes: u64,
}

/// A pass and how long it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The pass.
    pub pass: Pass,
    /// How long it took.
    pub elapsed_us: u64,
}

/// What a run reports to its observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The passes of another size begin.
    Size,
    /// A pass begins.
    Begun(Pass),
    /// The number of its operations done so far.
    At(Pass, u32),
    /// A pass is done.
    Done(Row),
}

/// The line above the rows.
#[must_use]
pub fn header() -> String {
    format!(
        "{:>8}{:>8}{:>8}{:>8}{:>12}{:>8}{:>8}",
        "count", "size", "offset", "step", "msec", "tps", "kBps"
    )
}

/// Reads the argument of `-l`, `-h` or `-t`.
///
/// # Errors
/// [`base::ErrorKind::InvalidInput`] if it is not a power of two that fits in 32 bits.
pub fn parse_size(option: char, text: &str) -> Result<u64> {
    let invalid = |what: &str| Err(Error::invalid(format!("-{option}: {what}")));
    match expand_number(text) {
        Err(NumberError::Invalid) => invalid("invalid number"),
        Err(NumberError::TooLarge) => invalid("out of range"),
        Ok(bytes) if bytes & bytes.wrapping_sub(1) != 0 => invalid("not a power of two"),
        Ok(bytes) if bytes == 0 || bytes > u64::from(u32::MAX) => invalid("out of range"),
        Ok(bytes) => Ok(bytes),
    }
}

impl Options {
    /// The passes on a device with this sector.
    ///
    /// # Errors
    /// [`base::ErrorKind::InvalidInput`] if the sizes do not fit each other or the sector.
    pub fn passes(&self, sectorsize: u32) -> Result<Vec<Vec<Pass>>> {
        let sector = u64::from(sectorsize);
        let min = self.min_bytes.unwrap_or(2 * sector);
        let max = self
            .max_bytes
            .unwrap_or_else(|| min.saturating_mul(SIZES_SPAN));
        let total = self.total_bytes.unwrap_or(TOTAL_BYTES);
        check_multiple(("minsize", min), ("block size", sector))?;
        check_multiple(("maxsize", max), ("minsize", min))?;
        check_multiple(("total", total), ("maxsize", max))?;
        let sizes = std::iter::successors(Some(min), |size| size.checked_mul(2));
        sizes
            .take_while(|size| *size <= max)
            .map(|size| passes_of(size, sector, total))
            .collect()
    }
}

fn check_multiple((what, size): (&str, u64), (of, unit): (&str, u64)) -> Result<()> {
    if size > 0 && size.is_multiple_of(unit) {
        return Ok(());
    }
    let text = format!("{what} ({size}) is not a multiple of {of} ({unit})");
    Err(Error::invalid(text))
}

fn passes_of(size_bytes: u64, sector: u64, total: u64) -> Result<Vec<Pass>> {
    let count = u32::try_from(total / size_bytes)
        .map_err(|_| Error::invalid("more operations than 32 bits can count"))?;
    let doubled = std::iter::successors(Some(sector), |offset| offset.checked_mul(2));
    let offsets = std::iter::once(0).chain(doubled.take_while(|offset| *offset < size_bytes));
    let step_bytes = size_bytes
        .checked_mul(STEP_BLOCKS)
        .ok_or_else(|| Error::invalid("the step does not fit in 64 bits"))?;
    Ok(offsets
        .map(|offset_bytes| Pass {
            count,
            size_bytes,
            offset_bytes,
            step_bytes,
        })
        .collect())
}

impl Pass {
    /// Where the last block ends.
    fn end(&self) -> Option<u64> {
        let last = u64::from(self.count.saturating_sub(1)).checked_mul(self.step_bytes)?;
        last.checked_add(self.offset_bytes)?
            .checked_add(self.size_bytes)
    }

    /// The columns that are known before the pass has run.
    #[must_use]
    pub fn text(&self) -> String {
        format!(
            "{:8}{:8}{:8}{:8}  ",
            self.count, self.size_bytes, self.offset_bytes, self.step_bytes
        )
    }
}

impl Row {
    fn us(&self) -> u64 {
        // Avoids division by zero where no time passes; the meaningless rate is conspicuously large.
        self.elapsed_us.max(1)
    }

    /// Milliseconds, rounded down.
    #[must_use]
    pub fn msec(&self) -> u64 {
        self.elapsed_us / 1000
    }

    /// Operations per second.
    #[must_use]
    pub fn tps(&self) -> u64 {
        u64::from(self.pass.count) * 1_000_000 / self.us()
    }

    /// Operations per second as the program of 2010 prints them: its product overflows 32 bits.
    #[must_use]
    pub fn published_tps(&self) -> u64 {
        u64::from(self.pass.count.wrapping_mul(1_000_000)) / self.us()
    }

    /// KiB per second.
    #[must_use]
    pub fn kbps(&self) -> u64 {
        let bytes = u128::from(self.pass.count) * u128::from(self.pass.size_bytes);
        u64::try_from(bytes * 1_000_000 / 1024 / u128::from(self.us())).unwrap_or(u64::MAX)
    }

    /// The columns that are known when the pass has run.
    #[must_use]
    pub fn text(&self, published_tps: bool) -> String {
        let tps = if published_tps {
            self.published_tps()
        } else {
            self.tps()
        };
        format!("{:10}{:8}{:8}", self.msec(), tps, self.kbps())
    }
}

/// Runs all passes, reporting progress to `observe`.
///
/// # Errors
/// [`base::ErrorKind::InvalidInput`] if the options do not fit the device; what the device says.
pub fn run(
    provider: &dyn Provider,
    options: &Options,
    mut observe: impl FnMut(Progress),
) -> Result<Vec<Row>> {
    if !options.read && !options.write {
        return Err(Error::invalid("must specify -r and / or -w"));
    }
    let sizes = options.passes(provider.sectorsize())?;
    for pass in sizes.iter().flatten() {
        let mediasize = provider.mediasize();
        if pass.end().is_none_or(|end| end > mediasize) {
            return Err(Error::invalid(format!(
                "{}: too small: a pass sweeps {} bytes of {mediasize} (-t takes less)",
                provider.name(),
                u64::from(pass.count).saturating_mul(pass.step_bytes),
            )));
        }
    }
    let mut rows = Vec::new();
    for passes in sizes {
        observe(Progress::Size);
        for pass in passes {
            observe(Progress::Begun(pass));
            let row = scan(provider, options, pass, &mut observe)?;
            observe(Progress::Done(row));
            rows.push(row);
        }
    }
    Ok(rows)
}

fn scan(
    provider: &dyn Provider,
    options: &Options,
    pass: Pass,
    observe: &mut impl FnMut(Progress),
) -> Result<Row> {
    let mut block = BlockBuf::paged(
        usize::try_from(pass.size_bytes)
            .map_err(|_| Error::invalid(format!("a block of {} bytes", pass.size_bytes)))?,
    );
    let start = rt::now_ns();
    let mut offset = pass.offset_bytes;
    for done in 0..pass.count {
        if done.is_multiple_of(OPERATIONS_PER_NOTE) {
            observe(Progress::At(pass, done));
        }
        if options.read {
            provider.read(offset, &mut block)?;
        }
        if options.write {
            provider.write(offset, &block)?;
        }
        if options.write && options.sync {
            provider.flush()?;
        }
        offset += pass.step_bytes;
    }
    Ok(Row {
        pass,
        elapsed_us: (rt::now_ns() - start) / 1000,
    })
}

#[cfg(test)]
mod tests;
