//! Formatting of numbers, times, pointers and histograms.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`zdb_nicenum`, `snprintf_blkptr_compact`, `dump_histogram`,
//! `dump_uberblock`).

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};

use admin::number::{date_time, nice_number};
use phys::{BlkPtrPhys, UberblockPhys};

use super::request::Request;
use crate::caller::{Stdout, stdout};

/// `histo_stars`: the length of the longest bar of a histogram.
const BAR_WIDTH: u64 = 40;
/// `MMP_MAGIC`: the uberblock has the fields of multihost protection.
const MMP_MAGIC: u64 = 0xa11c_ea11;

/// Standard output, and the formatting of numbers and block pointers.
pub(super) struct Printer {
    out: BufWriter<Stdout>,
    is_exact: bool,
    /// Lists of block pointers name every copy (`-dddddd`).
    has_all_dvas: bool,
    /// Lists have block pointers in their long form (`-bbbbbb`).
    has_long_pointers: bool,
}

impl Printer {
    pub(super) fn new(request: &Request) -> Printer {
        Printer {
            out: BufWriter::new(stdout()),
            is_exact: request.has('P'),
            has_all_dvas: request.level('d') > 5,
            has_long_pointers: request.level('b') >= 6,
        }
    }

    /// Whether numbers are printed as they are (`-P`).
    pub(super) fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// A number in short form, unless exact numbers are requested.
    #[doc(alias = "zdb_nicenum")]
    pub(super) fn nice(&self, number: u64) -> String {
        if self.is_exact {
            number.to_string()
        } else {
            nice_number(number)
        }
    }

    /// A block pointer on one line of a list of them.
    #[doc(alias = "snprintf_blkptr_compact")]
    pub(super) fn compact(&self, bp: &BlkPtrPhys, is_freed: bool) -> String {
        let freed = if is_freed { " FREE" } else { "" };
        if self.has_long_pointers {
            return format!("{bp}{freed}");
        }
        if bp.is_embedded() {
            return format!(
                "EMBEDDED et={} {:x}L/{:x}P B={}",
                bp.embedded_type(),
                bp.embedded_lsize(),
                bp.embedded_psize(),
                bp.birth()
            );
        }
        let mut out = String::new();
        let copies = if self.has_all_dvas { bp.ndvas() } else { 1 };
        for dva in bp.dva.iter().take(copies) {
            let _ = write!(out, "{}:{:x}:{:x} ", dva.vdev(), dva.offset(), dva.asize());
        }
        let (lsize, psize, fill) = (bp.lsize(), bp.psize(), bp.fill());
        let (birth, physical) = (bp.birth(), bp.physical_birth());
        if bp.is_hole() {
            let _ = write!(out, "{lsize:x}L B={birth}");
            return out;
        }
        let _ = write!(
            out,
            "{lsize:x}L/{psize:x}P F={fill} B={birth}/{physical}{freed}"
        );
        let [a, b, c, d] = bp.cksum_words();
        let _ = write!(out, " cksum={a:016x}:{b:016x}:{c:016x}:{d:016x}");
        out
    }

    /// Counts as bars, from the first to the last non-zero one; `first` is the number of the first count.
    #[doc(alias = "dump_histogram")]
    pub(super) fn histogram(&mut self, counts: &[u64], first: usize) -> io::Result<()> {
        let last = counts.len().saturating_sub(1);
        let from = counts.iter().position(|count| *count > 0).unwrap_or(last);
        let to = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
        let largest = counts.iter().copied().max().unwrap_or(0).max(BAR_WIDTH);
        for (at, count) in counts.iter().enumerate().take(to + 1).skip(from) {
            let missing = u128::from(largest - count) * u128::from(BAR_WIDTH);
            let stars = BAR_WIDTH as usize - (missing / u128::from(largest)) as usize;
            writeln!(
                self.out,
                "\t\t\t{:3}: {count:6} {}",
                at + first,
                "*".repeat(stars)
            )?;
        }
        Ok(())
    }
}

impl Write for Printer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A time in the format of `ctime(3)`.
pub(super) fn time(secs: u64) -> String {
    date_time(secs, crate::zone::local())
}

/// An uberblock, a field per line; `level` is the level of detail.
#[doc(alias = "dump_uberblock")]
pub(super) fn uberblock(ub: &UberblockPhys, level: usize) -> String {
    let mut out = String::new();
    let secs = ub.timestamp.get();
    let _ = writeln!(out, "\tmagic = {:016x}", ub.magic.get());
    let _ = writeln!(out, "\tversion = {}", ub.version.get());
    let _ = writeln!(out, "\ttxg = {}", ub.txg.get());
    let _ = writeln!(out, "\tguid_sum = {}", ub.guid_sum.get());
    let _ = writeln!(out, "\ttimestamp = {secs} UTC = {}", time(secs));
    let _ = writeln!(out, "\tbp = {}", ub.rootbp);
    let _ = writeln!(out, "\tmmp_magic = {:016x}", ub.mmp_magic.get());
    if ub.mmp_magic.get() == MMP_MAGIC {
        let _ = writeln!(out, "\tmmp_delay = {}", ub.mmp_delay.get());
        if let Some(seq) = ub.mmp_seq() {
            let _ = writeln!(out, "\tmmp_seq = {seq}");
        }
        if let Some(fail) = ub.mmp_fail_intervals() {
            let _ = writeln!(out, "\tmmp_fail = {fail}");
        }
        if let Some(interval) = ub.mmp_interval_ms() {
            let _ = writeln!(out, "\tmmp_write = {interval}");
        }
        let _ = writeln!(out, "\tmmp_valid = {:x}", ub.mmp_config.get() & 0xff);
    }
    if level >= 4 {
        let _ = writeln!(out, "\trootbp = {}", ub.rootbp);
    }
    let _ = writeln!(out, "\tcheckpoint_txg = {}", ub.checkpoint_txg.get());
    let _ = writeln!(
        out,
        "\traidz_reflow state={} off={}",
        ub.reflow_state(),
        ub.reflow_offset()
    );
    out
}

/// An uberblock as JSON.
pub(super) fn uberblock_json(ub: &UberblockPhys) -> serde_json::Value {
    serde_json::json!({
        "version": ub.version.get(),
        "txg": ub.txg.get(),
        "guid_sum": ub.guid_sum.get(),
        "timestamp": ub.timestamp.get(),
        "rootbp": ub.rootbp.to_string(),
        "checkpoint_txg": ub.checkpoint_txg.get(),
    })
}
