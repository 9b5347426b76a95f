//! The table of `zdb -bb`: blocks by what they belong to.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_block_stats`).

use std::io::Write;

use base::Result;
use check::{BlockKind, Report, TypeStats};
use phys::ObjectType;

use super::request::Request;
use super::text::Printer;

/// `DMU_OT_NUMTYPES`: classic object types.
const TYPES: u8 = 54;
/// The rows that zdb adds after those of the types.
const ROWS_BEHIND: [(&str, Rows); 4] = [
    ("deferred free", Rows::Of(BlockKind::DeferredFree)),
    ("dedup ditto", Rows::None),
    ("other", Rows::Of(BlockKind::Other)),
    ("Total", Rows::All),
];
/// Levels that a block pointer can have.
const LEVELS: u8 = 32;

/// The blocks that a row, or the rows of one name, count.
#[derive(Clone, Copy)]
enum Rows {
    None,
    Of(BlockKind),
    All,
}

impl Rows {
    /// The sums of one level, or of all.
    fn sums(self, report: &Report, level: Option<u8>) -> TypeStats {
        let stats = &report.stats;
        let mut sums = TypeStats::default();
        for ((kind, at), of_level) in &stats.by_kind {
            let is_kind = match self {
                Rows::None => false,
                Rows::Of(wanted) => *kind == wanted,
                Rows::All => true,
            };
            if is_kind && level.is_none_or(|level| level == *at) {
                sums.add(of_level);
            }
        }
        sums
    }
}

/// `a` divided by `b`.
pub(super) fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b as f64
}

/// Writes the table, with a row for each level from `-bbb` on.
pub(super) fn run(request: &Request, out: &mut Printer, report: &Report) -> Result<()> {
    writeln!(
        out,
        "\nBlocks\tLSIZE\tPSIZE\tASIZE\t  avg\t comp\t%Total\tType"
    )?;
    for raw in 0..TYPES {
        let type_ = ObjectType::try_from(raw);
        let name = type_.as_ref().map_or("?", |t| t.name());
        write_rows(request, out, report, name, Rows::Of(BlockKind::Type(raw)))?;
    }
    for (name, rows) in ROWS_BEHIND {
        write_rows(request, out, report, name, rows)?;
    }
    let total = report.stats.total();
    write_row(out, "Metadata Total", &metadata(report), &total)
}

/// The sums of metadata: all blocks needed to find the others.
fn metadata(report: &Report) -> TypeStats {
    let mut sums = TypeStats::default();
    for ((kind, level), stats) in &report.stats.by_kind {
        let is_metadata = match kind {
            BlockKind::Type(raw) => {
                *level > 0 || ObjectType::try_from(*raw).is_ok_and(ObjectType::is_metadata)
            }
            BlockKind::DeferredFree | BlockKind::Other => false,
        };
        // As in zdb, blocks that take no space are not counted.
        if is_metadata && stats.asize > 0 {
            sums.add(stats);
        }
    }
    sums
}

fn write_rows(
    request: &Request,
    out: &mut Printer,
    report: &Report,
    name: &str,
    rows: Rows,
) -> Result<()> {
    let all = rows.sums(report, None);
    let total = report.stats.total();
    if all.asize == 0 {
        writeln!(
            out,
            "     -\t    -\t    -\t    -\t    -\t    -\t     -\t{name}"
        )?;
        return Ok(());
    }
    if request.level('b') >= 3 {
        for level in (0..LEVELS).rev() {
            let sums = rows.sums(report, Some(level));
            // A single L0 row would repeat the row of all levels.
            if sums.asize > 0 && (level > 0 || sums.asize != all.asize) {
                write_row(out, &format!("    L{level} {name}"), &sums, &total)?;
                write_details(request, out, &sums)?;
            }
        }
    }
    write_row(out, name, &all, &total)?;
    write_details(request, out, &all)
}

fn write_row(out: &mut Printer, name: &str, stats: &TypeStats, total: &TypeStats) -> Result<()> {
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
        100.0 * stats.asize as f64 / total.asize as f64
    )?;
    Ok(())
}

/// Gang blocks, and sizes in sectors.
fn write_details(request: &Request, out: &mut Printer, stats: &TypeStats) -> Result<()> {
    if request.level('b') >= 3 && stats.gangs > 0 {
        let gangs = out.nice(stats.gangs);
        writeln!(out, "\t number of ganged blocks: {gangs}")?;
    }
    if request.level('b') >= 4 {
        writeln!(out, "psize (in 512-byte sectors): number of blocks")?;
        out.histogram(&stats.psize_sectors.0, 0)?;
    }
    Ok(())
}
