//! `zdb -b`, `-bb`, `-bcc`: counts and verifies all blocks, and compares them with the space maps.
//!
//! A third `c` also decompresses every block, which OpenZFS's zdb never does: a checksum says that
//! a block is what was written, not that it was written well.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_block_stats`, `dump_size_histograms`).

use std::io::Write;

use base::{Error, ErrorKind, Result, VdevId};
use check::{BlockKind, Checksums, Finding, Report, Severity};
use metaslab::SpaceStats;
use phys::ObjectType;
use serde_json::json;
use zio::AllocClass;

use super::block_types::{self, ratio};
use super::pool::Pool;
use super::request::Request;
use super::text::Printer;

/// From this level on, zdb lists every block pointer.
const LEVEL_OF_POINTERS: usize = 5;

/// From this level of `-c` on, each block is decompressed.
const LEVEL_OF_CONTENT: usize = 3;

/// `zdb -b`, `-c`.
pub(super) fn run(request: &Request, out: &mut Printer, pool: &Pool) -> Result<u8> {
    if request.level('b') >= LEVEL_OF_POINTERS {
        let text = "-bbbbb, the list of every block pointer, is not supported yet";
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let checksums = match request.level('c') {
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
        writeln!(out, "\nTraversing all blocks {what}...\n")?;
        out.flush()?;
    }
    let options = check::Options {
        checksums,
        leaks,
        every_copy: checksums == Checksums::All,
        decompress: request.level('c') >= LEVEL_OF_CONTENT,
        ..check::Options::default()
    };
    let report = pool.verify(options)?;
    if request.has('j') {
        write_json(out, &report)?;
    } else {
        write_report(request, out, pool, &report)?;
    }
    Ok(status(&report))
}

/// The exit status: 2 if space is leaked, 3 if something cannot be read.
fn status(report: &Report) -> u8 {
    let is_leak = |f: &Finding| matches!(f, Finding::Leak { .. } | Finding::BlockSum { .. });
    let mut serious = report
        .findings
        .iter()
        .filter(|f| f.severity() > Severity::Warning);
    match report.is_clean() {
        true => 0,
        false if serious.all(is_leak) => 2,
        false => 3,
    }
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
        writeln!(out, "\n\tNo leaks (block sum matches space maps exactly)")?;
    } else if is_compared {
        let leaked = i128::from(allocated) - i128::from(found);
        writeln!(
            out,
            "block traversal size {found} != alloc {allocated} (leaked {leaked})"
        )?;
    }
    write_sums(request, out, pool, report)?;
    if request.level('b') >= 2 {
        block_types::run(request, out, report)?;
        write_histograms(out, report)?;
    }
    writeln!(out)?;
    Ok(())
}

fn write_sums(request: &Request, out: &mut Printer, pool: &Pool, report: &Report) -> Result<()> {
    let total = report.stats.total();
    let count = total.count.max(1);
    let shared = report.stats.shared_asize;
    // As zdb has it, all pointers are the base, not what is stored.
    let dedup = 1.0 + ratio(shared, total.asize.max(1));
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
        .parts()
        .features()
        .count(phys::feature::BLOCK_CLONING)
        .unwrap_or(0)
        == 0
    {
        writeln!(out, "\t{:<16} {:14}    count: {:6}", "bp cloned:", 0, 0)?;
    }
    write_classes(out, pool)?;
    write_embedded(request, out, report)?;
    if total.ditto_same_vdev > 0 {
        let count = total.ditto_same_vdev;
        writeln!(out, "\tDittoed blocks on same vdev: {count}")?;
    }
    if total.ditto_same_metaslab > 0 {
        let count = total.ditto_same_metaslab;
        writeln!(out, "\tDittoed blocks in same metaslab: {count}")?;
    }
    Ok(())
}

/// The space in use of each class. What special vdevs set aside for the intent log counts as theirs, as in OpenZFS 2.3.
fn write_classes(out: &mut Printer, pool: &Pool) -> Result<()> {
    let space = pool.parts().metaslabs();
    let normal = space.class_usage(AllocClass::Normal);
    let log = space.embedded_log(AllocClass::Normal);
    let mut classes = vec![("Normal class:", normal.alloc, normal.space)];
    for (name, class) in [
        ("Special class", AllocClass::Special),
        ("Dedup class", AllocClass::Dedup),
    ] {
        let stats = space.class_usage(class);
        let aside = match class {
            AllocClass::Special => space.embedded_log(class),
            _ => SpaceStats::default(),
        };
        if stats.space > 0 {
            classes.push((name, stats.alloc + aside.alloc, stats.space + aside.space));
        }
    }
    classes.push(("Embedded log class", log.alloc, log.space));
    for (name, alloc, space) in classes {
        let used = if space == 0 {
            " -nan".to_owned()
        } else {
            format!("{:5.2}", 100.0 * alloc as f64 / space as f64)
        };
        writeln!(out, "\t{name:<16} {alloc:14}     used: {used}%")?;
    }
    Ok(())
}

fn write_embedded(request: &Request, out: &mut Printer, report: &Report) -> Result<()> {
    for (type_, count) in report.stats.embedded.iter().enumerate() {
        if *count == 0 {
            continue;
        }
        writeln!(out)?;
        writeln!(
            out,
            "\tadditional, non-pointer bps of type {type_}: {count:10}"
        )?;
        if request.level('b') >= 3 {
            writeln!(out, "\t number of (compressed) bytes:  number of bps")?;
            out.histogram(&report.stats.embedded_payloads[type_].0, 0)?;
        }
    }
    Ok(())
}

/// The smallest and the largest block, as shifts.
const BINS: std::ops::RangeInclusive<usize> = 9..=24;

#[doc(alias = "dump_size_histograms")]
fn write_histograms(out: &mut Printer, report: &Report) -> Result<()> {
    let is_exact = out.is_exact();
    writeln!(out, "\nBlock Size Histogram\n")?;
    if is_exact {
        let columns = "Count\tSize\tCum.\t".repeat(3);
        writeln!(out, "block\tpsize\t\t\tlsize\t\t\t  asize\nsize\t{columns}")?;
    } else {
        let columns = "  Count   Size   Cum.".repeat(3);
        writeln!(
            out,
            "  block   psize                lsize                asize"
        )?;
        writeln!(out, "   size {columns}")?;
    }
    let all = [
        &report.stats.psize_histogram,
        &report.stats.lsize_histogram,
        &report.stats.asize_histogram,
    ];
    let mut cumulated = [0; 3];
    for shift in BINS {
        let size = out.nice(1 << shift);
        let mut line = if is_exact {
            size
        } else {
            format!("{size:>7}:")
        };
        for (histogram, cumulated) in all.iter().zip(&mut cumulated) {
            let bin = histogram.get(shift).copied().unwrap_or_default();
            *cumulated += bin.bytes;
            for figure in [bin.count, bin.bytes, *cumulated] {
                let figure = out.nice(figure);
                if is_exact {
                    line += &format!("\t{figure}");
                } else {
                    line += &format!("{figure:>7}");
                }
            }
        }
        writeln!(out, "{line}")?;
    }
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
