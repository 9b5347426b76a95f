//! `zdb -S`: the histogram of the table that deduplication would have.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_simulated_ddt`, `dump_dedup_ratio`), lib/libzutil/zutil_pool.c
//! (`zpool_dump_ddt`).

use std::io::Write;

use admin::number::{nice_bytes, nice_number};
use base::{Error, ErrorKind, Result};
use check::{Checksums, DedupRow, DedupSums};
use phys::pool_names::DDT_STATS;
use serde_json::{Value, json};

use super::pool::Pool;
use super::request::Request;
use super::text::Printer;

/// What the names of dedup tables in the pool directory begin with.
const TABLE_PREFIX: &[u8] = b"DDT-";

/// `zdb -D`.
#[doc(alias = "dump_all_ddts")]
pub(super) fn tables(out: &mut Printer, pool: &Pool) -> Result<()> {
    for entry in zap::iter(pool.parts().mos(), zap::directory::OBJECT)? {
        let entry = entry?;
        if entry.name.starts_with(TABLE_PREFIX) && entry.name != DDT_STATS.as_bytes() {
            let text = "-D of a pool with dedup tables is not supported yet";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
    }
    writeln!(out, "All DDTs are empty")?;
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
    let (rows, total) = (report.dedup.histogram(), report.dedup.total());
    let is_clean = report.is_clean();
    for finding in report.findings.iter().filter(|_| !is_clean) {
        eprintln!("zdb: {finding}");
    }
    if request.has('j') {
        let rows: Vec<Value> = rows
            .iter()
            .map(|(shift, row)| row_json(&(1u64 << shift).into(), row))
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
        write!(out, "Simulated DDT histogram:\n\n{HEAD}")?;
        for (shift, row) in &rows {
            let refcnt = 1u64 << shift;
            write_row(out, &count(refcnt, exact), row, exact)?;
        }
        if total.allocated.blocks > 0 {
            write_row(out, "Total", &total, exact)?;
        }
        writeln!(out)?;
        if let Some([dedup, compress, copies]) = ratios(&total) {
            let all = dedup * compress / copies;
            writeln!(
                out,
                "dedup = {dedup:.2}, compress = {compress:.2}, copies = {copies:.2}, \
                 dedup * compress / copies = {all:.2}\n"
            )?;
        }
    }
    Ok(if is_clean { 0 } else { 3 })
}

const HEAD: &str = "\
bucket              allocated                       referenced          \n\
______   ______________________________   ______________________________\n\
refcnt   blocks   LSIZE   PSIZE   DSIZE   blocks   LSIZE   PSIZE   DSIZE\n\
------   ------   -----   -----   -----   ------   -----   -----   -----\n";

fn count(number: u64, exact: bool) -> String {
    if exact {
        number.to_string()
    } else {
        nice_number(number)
    }
}

fn write_row(out: &mut Printer, name: &str, row: &DedupRow, exact: bool) -> Result<()> {
    let bytes = |number: u64| {
        if exact {
            number.to_string()
        } else {
            nice_bytes(number)
        }
    };
    let half = |sums: &DedupSums| {
        format!(
            "{:>6}   {:>5}   {:>5}   {:>5}",
            count(sums.blocks, exact),
            bytes(sums.lsize),
            bytes(sums.psize),
            bytes(sums.dsize)
        )
    };
    writeln!(
        out,
        "{name:>6}   {}   {}",
        half(&row.allocated),
        half(&row.referenced)
    )?;
    Ok(())
}

/// The ratios of deduplication, of compression, and of copies; `None` if there are no blocks.
#[doc(alias = "dump_dedup_ratio")]
fn ratios(total: &DedupRow) -> Option<[f64; 3]> {
    let (allocated, referenced) = (&total.allocated, &total.referenced);
    if allocated.blocks == 0 {
        return None;
    }
    let ratio = |a: u64, b: u64| a as f64 / b as f64;
    Some([
        ratio(referenced.dsize, allocated.dsize),
        ratio(referenced.lsize, referenced.psize),
        ratio(referenced.dsize, referenced.psize),
    ])
}

fn row_json(refcnt: &Value, row: &DedupRow) -> Value {
    let sums = |sums: &DedupSums| {
        json!({
            "blocks": sums.blocks, "lsize": sums.lsize, "psize": sums.psize, "dsize": sums.dsize,
        })
    };
    json!({
        "refcnt": refcnt,
        "allocated": sums(&row.allocated),
        "referenced": sums(&row.referenced),
    })
}
