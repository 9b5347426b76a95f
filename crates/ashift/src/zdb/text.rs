//! How numbers, times and pointers look.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`zdb_nicenum`, `snprintf_blkptr_compact`, `dump_uberblock`).

use std::fmt::Write as _;
use std::io::{self, BufWriter, Stdout, Write};

use admin::number::{Zone, date_time, nice_number};
use phys::{BlkPtrPhys, UberblockPhys};

/// Standard output.
pub(super) struct Printer {
    out: BufWriter<Stdout>,
    is_exact: bool,
}

impl Printer {
    pub(super) fn new(is_exact: bool) -> Printer {
        Printer {
            out: BufWriter::new(io::stdout()),
            is_exact,
        }
    }

    /// A number in few characters, unless they are wanted exactly.
    #[doc(alias = "zdb_nicenum")]
    pub(super) fn nice(&self, number: u64) -> String {
        if self.is_exact {
            number.to_string()
        } else {
            nice_number(number)
        }
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

/// A time as `ctime(3)` has it.
pub(super) fn time(secs: u64) -> String {
    date_time(secs, Zone::UTC)
}

/// A block pointer on one line of a list of them, with the first of its copies.
#[doc(alias = "snprintf_blkptr_compact")]
pub(super) fn compact(bp: &BlkPtrPhys) -> String {
    if bp.is_hole() {
        return format!("HOLE B={}", bp.birth());
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
    if let Some(dva) = bp.dvas().next() {
        let _ = write!(out, "{}:{:x}:{:x} ", dva.vdev(), dva.offset(), dva.asize());
    }
    let (lsize, psize, fill) = (bp.lsize(), bp.psize(), bp.fill());
    let (birth, physical) = (bp.birth(), bp.physical_birth());
    let _ = write!(out, "{lsize:x}L/{psize:x}P F={fill} B={birth}/{physical}");
    let [a, b, c, d] = bp.cksum_words();
    let _ = write!(out, " cksum={a:016x}:{b:016x}:{c:016x}:{d:016x}");
    out
}

/// An uberblock, a field per line.
#[doc(alias = "dump_uberblock")]
pub(super) fn uberblock(ub: &UberblockPhys) -> String {
    let mut out = String::new();
    let secs = ub.timestamp.get();
    let _ = writeln!(out, "\tmagic = {:016x}", ub.magic.get());
    let _ = writeln!(out, "\tversion = {}", ub.version.get());
    let _ = writeln!(out, "\ttxg = {}", ub.txg.get());
    let _ = writeln!(out, "\tguid_sum = {}", ub.guid_sum.get());
    let _ = writeln!(out, "\ttimestamp = {secs} UTC = {}", time(secs));
    let _ = writeln!(out, "\tbp = {}", ub.rootbp);
    let _ = writeln!(out, "\tmmp_magic = {:016x}", ub.mmp_magic.get());
    let _ = writeln!(out, "\tmmp_delay = {}", ub.mmp_delay.get());
    let _ = writeln!(
        out,
        "\tmmp_valid = {}",
        u8::from(ub.mmp_config.get() & 0x07 != 0)
    );
    if let Some(interval) = ub.mmp_interval_ms() {
        let _ = writeln!(out, "\tmmp_write_interval = {interval}");
    }
    if let Some(seq) = ub.mmp_seq() {
        let _ = writeln!(out, "\tmmp_seq = {seq}");
    }
    if let Some(fail) = ub.mmp_fail_intervals() {
        let _ = writeln!(out, "\tmmp_fail = {fail}");
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
