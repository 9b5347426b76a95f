//! `zdb -b`, `-bb`, `-bcc`: all blocks, counted, verified, and compared with the space maps.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_block_stats`, `dump_size_histograms`).

use std::io::Write;

use base::{Result, VdevId};
use check::{BlockKind, Checksums, Finding, Report, TypeStats};
use phys::ObjectType;
use serde_json::json;
use zio::AllocClass;

use super::Request;
use super::pool::Pool;
use super::text::Printer;
use crate::zpool::verify;

/// `DMU_OT_NUMTYPES`: classic object types.
const TYPES: u8 = 54;
/// `DMU_OT_DEDUP`-like rows that zdb adds behind them, of which only some can have blocks here.
const ROWS_BEHIND: [(&str, Option<BlockKind>); 3] = [
    ("deferred free", Some(BlockKind::DeferredFree)),
    ("dedup ditto", None),
    ("other", Some(BlockKind::Other)),
];

/// `zdb -b`, `-c`.
pub(super) fn run(request: &Request, out: &mut Printer, pool: &Pool) -> Result<u8> {
    let checksums = match request.count('c') {
        0 => Checksums::None,
        1 => Checksums::Metadata,
        _ => Checksums::All,
    };
    let leaks = !request.has('L');
    if !request.has('j') {
        let what = match (checksums, leaks) {
            (Checksums::None, true) => "to verify nothing leaked ",
            (Checksums::None, false) => "",
            (Checksums::Metadata, true) => {
                "to verify metadata checksums and verify nothing leaked "
            }
            (Checksums::Metadata, false) => "to verify metadata checksums ",
            (Checksums::All, true) => "to verify checksums and verify nothing leaked ",
            (Checksums::All, false) => "to verify checksums ",
        };
        writeln!(out, "\nTraversing all blocks {what}...\n\n")?;
        out.flush()?;
    }
    let options = check::Options {
        checksums,
        leaks,
        every_copy: checksums == Checksums::All,
        decompress: checksums == Checksums::All,
        ..check::Options::default()
    };
    let report = verify(pool, options)?;
    if request.has('j') {
        write_json(out, &report)?;
    } else {
        write_report(request, out, pool, &report)?;
    }
    Ok(if report.is_clean() { 0 } else { 3 })
}

fn write_report(request: &Request, out: &mut Printer, pool: &Pool, report: &Report) -> Result<()> {
    for finding in &report.findings {
        writeln!(out, "{finding}")?;
    }
    let is_compared = !request.has('L')
        && !report
            .findings
            .iter()
            .any(|f| matches!(f, Finding::NotChecked { .. }));
    let (found, allocated) = (report.found_bytes(), report.allocated_bytes());
    if is_compared && found == allocated {
        writeln!(out, "\tNo leaks (block sum matches space maps exactly)")?;
    } else if is_compared {
        let leaked = i128::from(allocated) - i128::from(found);
        writeln!(
            out,
            "block traversal size {found} != alloc {allocated} (leaked {leaked})"
        )?;
    }
    write_sums(out, pool, report)?;
    if request.verbosity('b') >= 2 {
        write_types(request, out, report)?;
        write_histograms(out, report)?;
    }
    Ok(())
}

fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}

fn write_sums(out: &mut Printer, pool: &Pool, report: &Report) -> Result<()> {
    let total = report.stats.total();
    let count = total.count.max(1);
    let shared = report.stats.shared_asize;
    let dedup = ratio(total.asize, total.asize.saturating_sub(shared));
    writeln!(out, "\n\t{:<16} {:14}", "bp count:", total.count)?;
    writeln!(out, "\t{:<16} {:14}", "ganged count:", total.gangs)?;
    writeln!(
        out,
        "\t{:<16} {:14}      avg: {:6}",
        "bp logical:",
        total.lsize,
        total.lsize / count
    )?;
    writeln!(
        out,
        "\t{:<16} {:14}      avg: {:6}     compression: {:6.2}",
        "bp physical:",
        total.psize,
        total.psize / count,
        ratio(total.lsize, total.psize)
    )?;
    writeln!(
        out,
        "\t{:<16} {:14}      avg: {:6}     compression: {:6.2}",
        "bp allocated:",
        total.asize,
        total.asize / count,
        ratio(total.lsize, total.asize)
    )?;
    writeln!(
        out,
        "\t{:<16} {:14}    ref>1: {:6}   deduplication: {dedup:6.2}",
        "bp deduped:", shared, report.stats.shared_count
    )?;
    if pool
        .features()
        .count("com.fudosecurity:block_cloning")
        .unwrap_or(0)
        == 0
    {
        writeln!(out, "\t{:<16} {:14}    count: {:6}", "bp cloned:", 0, 0)?;
    }
    let space = pool.metaslabs().class_stats(AllocClass::Normal);
    let used = 100.0 * space.alloc as f64 / space.space.max(1) as f64;
    writeln!(
        out,
        "\t{:<16} {:14}     used: {used:5.2}%",
        "Normal class:", space.alloc
    )?;
    let embedded: u64 = report.stats.embedded.iter().sum();
    writeln!(out)?;
    if embedded > 0 {
        writeln!(
            out,
            "\tadditional, non-pointer bps of type 0: {:10}",
            report.stats.embedded[0]
        )?;
    }
    if total.ditto_same_vdev > 0 {
        writeln!(
            out,
            "\tDittoed blocks on same vdev: {}",
            total.ditto_same_vdev
        )?;
    }
    if total.ditto_same_metaslab > 0 {
        writeln!(
            out,
            "\tDittoed blocks in same metaslab: {}",
            total.ditto_same_metaslab
        )?;
    }
    writeln!(out)?;
    Ok(())
}

fn write_types(request: &Request, out: &mut Printer, report: &Report) -> Result<()> {
    writeln!(
        out,
        "Blocks\tLSIZE\tPSIZE\tASIZE\t  avg\t comp\t%Total\tType"
    )?;
    let total = report.stats.total();
    let mut metadata = TypeStats::default();
    for raw in 0..TYPES {
        let type_ = ObjectType::try_from(raw);
        let name = type_.as_ref().map_or("?", |t| t.name());
        let kind = BlockKind::Type(raw);
        write_row(out, name, &report.stats.of_kind(kind), &total)?;
        if request.verbosity('b') >= 3 {
            for level in (0..8u8).rev() {
                if let Some(stats) = report.stats.by_kind.get(&(kind, level)) {
                    write_row(out, &format!("    L{level} {name}"), stats, &total)?;
                }
            }
        }
    }
    for (name, kind) in ROWS_BEHIND {
        let stats = kind
            .map(|kind| report.stats.of_kind(kind))
            .unwrap_or_default();
        write_row(out, name, &stats, &total)?;
    }
    write_row(out, "Total", &total, &total)?;
    for ((kind, level), stats) in &report.stats.by_kind {
        let is_metadata = match kind {
            BlockKind::Type(raw) => {
                *level > 0 || ObjectType::try_from(*raw).is_ok_and(ObjectType::is_metadata)
            }
            BlockKind::DeferredFree | BlockKind::Other => false,
        };
        // What takes no space is not counted, as in zdb.
        if is_metadata && stats.asize > 0 {
            metadata.count += stats.count;
            metadata.lsize += stats.lsize;
            metadata.psize += stats.psize;
            metadata.asize += stats.asize;
        }
    }
    write_row(out, "Metadata Total", &metadata, &total)
}

fn write_row(out: &mut Printer, name: &str, stats: &TypeStats, total: &TypeStats) -> Result<()> {
    if stats.asize == 0 {
        writeln!(
            out,
            "     -\t    -\t    -\t    -\t    -\t    -\t     -\t{name}"
        )?;
        return Ok(());
    }
    let average = stats.asize / stats.count.max(1);
    writeln!(
        out,
        "{:>6}\t{:>5}\t{:>5}\t{:>5}\t{:>5}\t{:5.2}\t{:6.2}\t{name}",
        out.nice(stats.count),
        out.nice(stats.lsize),
        out.nice(stats.psize),
        out.nice(stats.asize),
        out.nice(average),
        ratio(stats.lsize, stats.psize),
        100.0 * stats.asize as f64 / total.asize.max(1) as f64
    )?;
    Ok(())
}

/// The smallest and the largest block, as shifts.
const BINS: std::ops::RangeInclusive<usize> = 9..=24;

fn write_histograms(out: &mut Printer, report: &Report) -> Result<()> {
    writeln!(out, "\nBlock Size Histogram\n")?;
    writeln!(
        out,
        "  block   psize                lsize                asize"
    )?;
    writeln!(
        out,
        "   size   Count   Size   Cum.  Count   Size   Cum.  Count   Size   Cum."
    )?;
    let all = [
        &report.stats.psize_histogram,
        &report.stats.lsize_histogram,
        &report.stats.asize_histogram,
    ];
    let mut cumulated = [0; 3];
    for shift in BINS {
        let mut line = format!("{:>7}:", out.nice(1 << shift));
        for (histogram, cumulated) in all.iter().zip(&mut cumulated) {
            let bin = histogram.get(shift).copied().unwrap_or_default();
            *cumulated += bin.bytes;
            let cells = [
                out.nice(bin.count),
                out.nice(bin.bytes),
                out.nice(*cumulated),
            ];
            let [count, bytes, sum] = cells;
            line += &format!(" {count:>6} {bytes:>6} {sum:>6}");
        }
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    Ok(())
}

fn write_json(out: &mut Printer, report: &Report) -> Result<()> {
    let total = report.stats.total();
    let allocated = report
        .allocated
        .iter()
        .map(|(VdevId(id), bytes)| json!([id, bytes]));
    let findings = report.findings.iter().map(|f| {
        json!({ "severity": format!("{:?}", f.severity()).to_lowercase(), "text": f.to_string() })
    });
    let types = report.stats.by_kind.iter().map(|((kind, level), stats)| {
        let name = match kind {
            BlockKind::Type(raw) => {
                ObjectType::try_from(*raw).map_or_else(|_| raw.to_string(), |t| t.name().to_owned())
            }
            BlockKind::DeferredFree => "deferred free".to_owned(),
            BlockKind::Other => "other".to_owned(),
        };
        json!({
            "type": name, "level": level, "count": stats.count, "lsize": stats.lsize,
            "psize": stats.psize, "asize": stats.asize,
        })
    });
    let value = json!({
        "is_clean": report.is_clean(),
        "count": total.count,
        "lsize": total.lsize,
        "psize": total.psize,
        "asize": total.asize,
        "gangs": total.gangs,
        "found_bytes": report.found_bytes(),
        "allocated_bytes": report.allocated_bytes(),
        "allocated": allocated.collect::<Vec<_>>(),
        "embedded": report.stats.embedded,
        "types": types.collect::<Vec<_>>(),
        "findings": findings.collect::<Vec<_>>(),
    });
    writeln!(out, "{value}")?;
    Ok(())
}
