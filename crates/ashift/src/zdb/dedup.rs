//! `zdb -D`: dedup tables. `zdb -S`: the histogram of the table that deduplication would have.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_all_ddts`, `dump_simulated_ddt`, `dump_dedup_ratio`), lib/libzutil/zutil_pool.c
//! (`zpool_dump_ddt`).

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use admin::dedup::{DedupRow, histogram};
use base::{ObjectId, Result};
use check::{Checksums, DedupSums};
use ddt::{DdtClass, DdtEntry, DdtHistogram, DdtLog, DdtSizes, DdtStat, Ddts};
use dmu::Objset;
use phys::ChecksumType;
use serde_json::{Value, json};

use super::pool::Pool;
use super::request::Request;
use super::text::Printer;

/// From this level on, entries are listed one by one: those with several references, and those in logs,
const ENTRIES_LEVEL: usize = 4;
/// and from this one on those with one reference, too.
const UNIQUE_LEVEL: usize = 5;

/// `zdb -D`.
#[doc(alias = "dump_all_ddts")]
pub(super) fn tables(request: &Request, out: &mut Printer, pool: &Pool) -> Result<()> {
    let mos = pool.parts().mos();
    let tables = Ddts::open(mos, false, &|dva| pool.parts().dsize_of(dva))?;
    let level = request.level('D');
    let mut rows = BTreeMap::new();
    let mut count = |own: BTreeMap<usize, DdtStat>| {
        for (shift, row) in own {
            rows.entry(shift).or_insert_with(DdtStat::default).add(&row);
        }
    };
    for table in tables.tables() {
        let (name, root, flags) = (table.checksum.name(), table.root(), table.flags());
        let version = match flags {
            0 => "version=0 [LEGACY]; flags=0x00".to_owned(),
            flags => format!("version=1 [FDT]; flags={flags:#04x} [FLAT LOG]"),
        };
        writeln!(out, "DDT-{name}: {version}; rootobj={root}")?;
        for (class, name, object, histogram) in table.parts() {
            let own = rows_of(histogram);
            let is_there = write_table(out, (mos, &name, object), &own, level)?;
            count(own);
            let shown_from = match class {
                DdtClass::Unique => UNIQUE_LEVEL,
                _ => ENTRIES_LEVEL,
            };
            if is_there && level >= shown_from {
                write!(out, "{name} contents:\n\n")?;
                let each = &mut |at, entry: &DdtEntry| write_entry(out, table.checksum, at, entry);
                table.each_stored(mos, class, each)?;
                writeln!(out)?;
            }
        }
        table.logged().map(rows_of).into_iter().for_each(&mut count);
        for (n, (log, entries)) in table.logs().zip(table.logged_entries()).enumerate() {
            write_log(out, &format!("DDT-log-{name}-{n}"), &log)?;
            for (index, entry) in (0..).zip(&entries).filter(|_| level >= ENTRIES_LEVEL) {
                write_entry(out, table.checksum, index, entry)?;
            }
        }
    }
    let mut total = DdtStat::default();
    rows.values().for_each(|row| total.add(row));
    if total.stored[0] == 0 {
        writeln!(out, "All DDTs are empty")?;
        return Ok(());
    }
    writeln!(out)?;
    if level > 1 {
        writeln!(out, "DDT histogram (aggregated over all DDTs):")?;
        write_histogram(out, &rows, Some(&total))?;
    }
    write_ratios(out, &row_of_stat(&total))
}

/// The blocks of an entry.
#[doc(alias = "dump_ddt_entry")]
fn write_entry(
    out: &mut Printer,
    checksum: ChecksumType,
    index: u64,
    entry: &DdtEntry,
) -> Result<()> {
    for (place, refcnt, bp) in entry.shown(checksum) {
        writeln!(out, "index {index:x} refcnt {refcnt} phys {place} {bp}")?;
    }
    Ok(())
}

/// One table; returns whether it has entries.
#[doc(alias = "dump_ddt_object")]
fn write_table(
    out: &mut Printer,
    (mos, name, object): (&Arc<Objset>, &str, ObjectId),
    rows: &BTreeMap<usize, DdtStat>,
    level: usize,
) -> Result<bool> {
    let sizes = DdtSizes::of(mos, object)?;
    if sizes.entries == 0 {
        return Ok(false);
    }
    let (dspace, mspace) = (sizes.disk_bytes, sizes.core_bytes);
    writeln!(
        out,
        "{name}: dspace={dspace}; mspace={mspace}; entries={}",
        sizes.entries
    )?;
    if level > 2 {
        writeln!(out, "{name}: object={object}")?;
        write_histogram(out, rows, None)?;
    }
    Ok(true)
}

#[doc(alias = "dump_ddt_log")]
fn write_log(out: &mut Printer, name: &str, log: &DdtLog) -> Result<()> {
    let flags = match log.flags {
        0 => "0x00".to_owned(),
        1 => "0x01 [FLUSHING]".to_owned(),
        flags => format!("{flags:#04x} [FLUSHING CHECKPOINT]"),
    };
    writeln!(
        out,
        "{name}: flags={flags}; obj={}; len={}; txg={}; entries={}",
        log.object, log.length, log.first_txg, log.entries
    )?;
    if let Some(key) = log.checkpoint {
        let words = key.map(|word| format!("{word:016x}")).join(":");
        writeln!(out, "    checkpoint: {words}")?;
    }
    Ok(())
}

fn rows_of(histogram: &DdtHistogram) -> BTreeMap<usize, DdtStat> {
    let rows = histogram.rows.iter().copied().enumerate();
    rows.filter(|(_, row)| row.stored[0] > 0).collect()
}

fn row_of_stat(stat: &DdtStat) -> DedupRow {
    DedupRow {
        stored: stat.stored,
        referenced: stat.referenced,
    }
}

fn row_of(row: &check::DedupRow) -> DedupRow {
    let sums = |sums: &DedupSums| [sums.blocks, sums.lsize, sums.psize, sums.dsize];
    DedupRow {
        stored: sums(&row.allocated),
        referenced: sums(&row.referenced),
    }
}

/// A histogram; the total comes last, if it is given. zdb 2.3.2 shows no exact numbers here, not even with `-P`.
#[doc(alias = "zpool_dump_ddt")]
fn write_histogram(
    out: &mut Printer,
    rows: &BTreeMap<usize, DdtStat>,
    total: Option<&DdtStat>,
) -> Result<()> {
    let shown = rows
        .iter()
        .map(|(shift, row)| (1 << shift, row_of_stat(row)));
    let text = histogram(shown, total.map(row_of_stat).as_ref(), false);
    write!(out, "\n{text}")?;
    Ok(())
}

/// `zdb -S`.
pub(super) fn run(request: &Request, out: &mut Printer, pool: &Pool) -> Result<u8> {
    let options = check::Options {
        checksums: Checksums::None,
        leaks: false,
        every_copy: false,
        dedup: true,
        ..check::Options::default()
    };
    let report = pool.verify(options)?;
    let rows = report.dedup.histogram();
    let rows = rows.iter().map(|(shift, row)| (1u64 << shift, row_of(row)));
    let total = row_of(&report.dedup.total());
    let is_clean = report.is_clean();
    for finding in report.findings.iter().filter(|_| !is_clean) {
        eprintln!("zdb: {finding}");
    }
    if request.has('j') {
        let rows: Vec<Value> = rows
            .map(|(refcnt, row)| row_json(&refcnt.into(), &row))
            .collect();
        let mut value = json!({ "histogram": rows, "total": row_json(&"total".into(), &total) });
        if let Some([dedup, compress, copies]) = ratios(&total) {
            value["dedup"] = dedup.into();
            value["compress"] = compress.into();
            value["copies"] = copies.into();
        }
        writeln!(out, "{value}")?;
    } else {
        let exact = request.has('P');
        let shown = Some(&total).filter(|total| total.stored[0] > 0);
        let text = histogram(rows, shown, exact);
        write!(out, "Simulated DDT histogram:\n\n{text}")?;
        write_ratios(out, &total)?;
    }
    Ok(if is_clean { 0 } else { 3 })
}

#[doc(alias = "dump_dedup_ratio")]
fn write_ratios(out: &mut Printer, total: &DedupRow) -> Result<()> {
    if let Some([dedup, compress, copies]) = ratios(total) {
        let all = dedup * compress / copies;
        writeln!(
            out,
            "dedup = {dedup:.2}, compress = {compress:.2}, copies = {copies:.2}, \
             dedup * compress / copies = {all:.2}\n"
        )?;
    }
    Ok(())
}

/// The ratios of deduplication, of compression, and of copies; `None` if there are no blocks.
fn ratios(total: &DedupRow) -> Option<[f64; 3]> {
    let ([blocks, _, _, dsize], [_, ref_lsize, ref_psize, ref_dsize]) =
        (total.stored, total.referenced);
    if blocks == 0 {
        return None;
    }
    let ratio = |a: u64, b: u64| a as f64 / b as f64;
    Some([
        ratio(ref_dsize, dsize),
        ratio(ref_lsize, ref_psize),
        ratio(ref_dsize, ref_psize),
    ])
}

fn row_json(refcnt: &Value, row: &DedupRow) -> Value {
    let sums = |[blocks, lsize, psize, dsize]: [u64; 4]| json!({ "blocks": blocks, "lsize": lsize, "psize": psize, "dsize": dsize });
    json!({
        "refcnt": refcnt,
        "allocated": sums(row.stored),
        "referenced": sums(row.referenced),
    })
}
