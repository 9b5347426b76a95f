//! Histograms of dedup tables, as `zpool status -D` and `zdb -D` show them.
//!
//! # Source
//! OpenZFS lib/libzutil/zutil_pool.c (`zpool_dump_ddt`), cmd/zpool/zpool_main.c (`print_dedup_stats`,
//! `dedup_stats_nvlist`).

use std::fmt::Write;

use crate::number::{nice_bytes, nice_number};

/// `ddt_stat_t`: blocks and bytes, logical, physical and deflated; as they are stored, and as they are referred to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DedupRow {
    /// dds_blocks, lsize, psize, dsize
    pub stored: [u64; 4],
    /// dds_ref_blocks, lsize, psize, dsize
    pub referenced: [u64; 4],
}

/// What `zpool status -D` shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DedupStatus {
    /// Entries of all tables.
    pub entries: u64,
    /// Bytes that the tables take on disk.
    pub disk_bytes: u64,
    /// Bytes that they would take in memory.
    pub core_bytes: u64,
    /// Rows of the histogram that are not empty: the smallest number of references, and the sums.
    pub rows: Vec<(u64, DedupRow)>,
    /// All rows together.
    pub total: DedupRow,
}

const HEAD: &str = "\
bucket              allocated                       referenced          \n\
______   ______________________________   ______________________________\n\
refcnt   blocks   LSIZE   PSIZE   DSIZE   blocks   LSIZE   PSIZE   DSIZE\n\
------   ------   -----   -----   -----   ------   -----   -----   -----\n";

/// The table of a histogram, with its total if it is given.
#[must_use]
#[doc(alias = "zpool_dump_ddt")]
pub fn histogram(
    rows: impl IntoIterator<Item = (u64, DedupRow)>,
    total: Option<&DedupRow>,
    is_exact: bool,
) -> String {
    let mut out = HEAD.to_owned();
    for (refcnt, row) in rows {
        push_row(&mut out, &count(refcnt, is_exact), &row, is_exact);
    }
    if let Some(total) = total {
        push_row(&mut out, "Total", total, is_exact);
    }
    out.push('\n');
    out
}

fn count(number: u64, is_exact: bool) -> String {
    if is_exact {
        number.to_string()
    } else {
        nice_number(number)
    }
}

fn push_row(out: &mut String, name: &str, row: &DedupRow, is_exact: bool) {
    let bytes = |number: u64| {
        if is_exact {
            number.to_string()
        } else {
            nice_bytes(number)
        }
    };
    let half = |[blocks, lsize, psize, dsize]: [u64; 4]| {
        format!(
            "{:>6}   {:>5}   {:>5}   {:>5}",
            count(blocks, is_exact),
            bytes(lsize),
            bytes(psize),
            bytes(dsize)
        )
    };
    let (stored, referenced) = (half(row.stored), half(row.referenced));
    let _ = writeln!(out, "{name:>6}   {stored}   {referenced}");
}

/// What `zpool status -D` adds to the paragraph of a pool.
#[must_use]
#[doc(alias = "print_dedup_stats")]
pub(crate) fn status(dedup: &DedupStatus, is_exact: bool) -> String {
    if dedup.entries == 0 {
        return "\n dedup: no DDT entries\n".to_owned();
    }
    let (disk, core) = (dedup.disk_bytes, dedup.core_bytes);
    let (disk, core) = (count(disk, is_exact), count(core, is_exact));
    // The table has no exact numbers in OpenZFS 2.3 either.
    let table = histogram(dedup.rows.iter().copied(), Some(&dedup.total), false);
    format!(
        "\n dedup: DDT entries {}, size {disk} on disk, {core} in core\n\n{table}",
        dedup.entries
    )
}
