//! `diskinfo -c` and `-t`: measured read times at various places.
//!
//! # Source
//! FreeBSD `usr.sbin/diskinfo/diskinfo.c`: which sectors are read, and how often.

use std::fmt::Write;

use base::Result;
use geom::Provider;

/// Bytes of a long read.
const MEGABYTE: usize = 1 << 20;
/// The most long reads for a transfer rate.
const BULK_MAX: u64 = 100;
/// The most sectors between two seeks.
const STEP_SECTORS_MAX: u64 = 16_384;
/// The smallest provider that is measured, in sectors.
const SECTORS_MIN: u64 = 20_480;

/// Times reads of a provider.
struct Reader<'a> {
    provider: &'a dyn Provider,
    sector: Vec<u8>,
    megabyte: Vec<u8>,
    sectors: u64,
}

impl<'a> Reader<'a> {
    fn new(provider: &'a dyn Provider) -> Result<Reader<'a>> {
        let size = provider.sectorsize();
        let sectors = provider.mediasize() / u64::from(size);
        if sectors < SECTORS_MIN || provider.mediasize() < 10 * MEGABYTE as u64 {
            let text = format!("{}: too small to be measured", provider.name());
            return Err(base::Error::invalid(text));
        }
        Ok(Reader {
            provider,
            sector: vec![0; size as usize],
            megabyte: vec![0; MEGABYTE],
            sectors,
        })
    }

    fn sector(&mut self, number: u64) -> Result<()> {
        let at = number * self.sector.len() as u64;
        self.provider.read(at, &mut self.sector)
    }

    /// Reads sectors; returns the seconds.
    fn each(&mut self, mut numbers: impl Iterator<Item = u64>) -> Result<f64> {
        self.timed(|r| numbers.try_for_each(|number| r.sector(number)))
    }

    /// Reads megabytes, starting at a sector.
    fn megabytes(&mut self, from: u64, count: u64) -> Result<()> {
        let start = from * self.sector.len() as u64;
        (0..count).try_for_each(|n| {
            let at = start + n * MEGABYTE as u64;
            self.provider.read(at, &mut self.megabyte)
        })
    }

    fn timed(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<f64> {
        let start = rt::now_ns();
        work(self)?;
        Ok((rt::now_ns() - start) as f64 / 1e9)
    }
}

/// The cost of a command that transfers next to nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overhead {
    /// Seconds for ten reads of a megabyte.
    pub megabytes_s: f64,
    /// Seconds for 20,480 reads of the first sector: as many bytes, with sectors of 512 bytes.
    pub sectors_s: f64,
}

/// `diskinfo -c`.
///
/// # Errors
/// `InvalidInput` for less than ten megabytes or 20,480 sectors; any error of a read.
pub fn command_overhead(provider: &dyn Provider) -> Result<Overhead> {
    let mut reader = Reader::new(provider)?;
    reader.sector(0)?;
    let megabytes_s = reader.timed(|r| r.megabytes(0, 10))?;
    reader.sector(0)?;
    let sectors_s = reader.each((0..20_480).map(|_| 0))?;
    Ok(Overhead {
        megabytes_s,
        sectors_s,
    })
}

impl Overhead {
    /// As `diskinfo` prints it.
    #[must_use]
    pub fn text(&self) -> String {
        let each = |seconds: f64| seconds * 100.0 / 2048.0;
        let (mega, sector) = (self.megabytes_s, self.sectors_s);
        let mut out = "I/O command overhead:\n".to_owned();
        let _ = writeln!(
            out,
            "\ttime to read 10MB block    {mega:10.6} sec\t= {:8.3} msec/sector",
            each(mega)
        );
        let _ = writeln!(
            out,
            "\ttime to read 20480 sectors {sector:10.6} sec\t= {:8.3} msec/sector",
            each(sector)
        );
        let _ = writeln!(
            out,
            "\tcalculated command overhead\t\t\t= {:8.3} msec/sector",
            each(sector - mega)
        );
        out
    }
}

/// One line of `diskinfo -t`: name, number of reads or kilobytes, and seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    /// `Full stroke`
    pub what: &'static str,
    /// Reads, or kilobytes.
    pub count: u64,
    /// Seconds in total.
    pub seconds: f64,
}

/// `diskinfo -t`.
#[derive(Clone, Debug, PartialEq)]
pub struct Speed {
    /// Reads of single sectors.
    pub seeks: Vec<Timed>,
    /// Sequential transfers, in kilobytes.
    pub transfers: Vec<Timed>,
}

/// `diskinfo -t`.
///
/// # Errors
/// As [`command_overhead`].
pub fn speed(provider: &dyn Provider) -> Result<Speed> {
    let mut reader = Reader::new(provider)?;
    let r = &mut reader;
    let all = r.sectors;
    let step = (1 << (all / 800).ilog2()).min(STEP_SECTORS_MAX);
    let mut seeks = Vec::new();
    let mut seek = |what, count, seconds| {
        seeks.push(Timed {
            what,
            count,
            seconds,
        });
    };
    let ends = (0..125).flat_map(|n| [n * step, all - (n + 1) * step]);
    seek("Full stroke", 250, r.each(ends)?);
    let half = (0..125).flat_map(|n| [all / 4 + n * step, all / 4 + all / 2 + n * step]);
    seek("Half stroke", 250, r.each(half)?);
    let quarter = (0..250).flat_map(|n| [all / 4 + n * step, all / 4 * 2 + n * step]);
    seek("Quarter stroke", 500, r.each(quarter)?);
    let forward = (0..400).map(|n| all / 2 + n * step);
    seek("Short forward", 400, r.each(forward)?);
    let backward = (0..400).map(|n| all / 2 - n * step);
    seek("Short backward", 400, r.each(backward)?);
    seek("Seq outer", 2048, r.each(0..2048)?);
    seek("Seq inner", 2048, r.each(all - 2048..all)?);
    let bulk = BULK_MAX.min(provider.mediasize() / MEGABYTE as u64 - 1);
    let sectors = bulk * (MEGABYTE / r.sector.len()) as u64;
    let middle = (all / 2).saturating_sub(sectors / 2 + 1);
    let mut transfers = Vec::new();
    for (what, from) in [
        ("outside", 0),
        ("middle", middle),
        ("inside", all - sectors - 1),
    ] {
        r.sector(from)?;
        let seconds = r.timed(|r| r.megabytes(from, bulk))?;
        transfers.push(Timed {
            what,
            count: bulk * 1024,
            seconds,
        });
    }
    Ok(Speed { seeks, transfers })
}

impl Speed {
    /// As `diskinfo` prints it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = "Seek times:\n".to_owned();
        for Timed {
            what,
            count,
            seconds,
        } in &self.seeks
        {
            let name = format!("{what}:");
            let each = seconds * 1e3 / *count as f64;
            let _ = writeln!(
                out,
                "\t{name}\t{count:5} iter in {seconds:10.6} sec = {each:8.3} msec"
            );
        }
        out += "\nTransfer rates:\n";
        for Timed {
            what,
            count,
            seconds,
        } in &self.transfers
        {
            let name = format!("{what}:");
            let rate = *count as f64 / seconds.max(1e-9);
            let _ = writeln!(
                out,
                "\t{name:<13}{count:8} kbytes in {seconds:10.6} sec = {rate:8.0} kbytes/sec"
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Emulated, Identity, Profile};

    #[test]
    fn sim_a_drive_is_as_fast_as_its_profile_says() {
        let dir = tempfile::tempdir().unwrap();
        rt::simulate(1, || {
            let profile = Profile::find("wd20ears").unwrap();
            let identity = Identity::default();
            let disk = Emulated::open(dir.path(), "ada0", profile, &identity, 1).unwrap();
            let speed = speed(&*disk).unwrap();
            let each = |n: usize| speed.seeks[n].seconds * 1e3 / speed.seeks[n].count as f64;
            // From one end to the other: the longest seek and half a revolution.
            assert!((20.0..32.0).contains(&each(0)), "{}", each(0));
            assert!(each(0) > each(1) && each(1) > each(2) && each(2) > each(3));
            let rate = |n: usize| 100.0 * 1.048_576 / speed.transfers[n].seconds;
            assert!((80.0..110.0).contains(&rate(0)), "{}", rate(0));
            assert!(rate(0) > rate(1) && rate(1) > rate(2));
            assert_eq!(speed.text().lines().count(), 13);
            let overhead = command_overhead(&*disk).unwrap();
            assert!(
                overhead
                    .text()
                    .contains("calculated command overhead\t\t\t= ")
            );
            assert!(overhead.sectors_s > overhead.megabytes_s);
        });
    }
}
