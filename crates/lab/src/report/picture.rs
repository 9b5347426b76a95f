//! Where commands went on a drive: time to the right, LBA upwards.
//!
//! # What it is
//! A pool uses a few regions of a large drive: labels at both ends, metadata, data. Drawn to
//! scale, all of it would be three lines. So the address range is cut into *bands* at the largest
//! gaps, and each band gets its own part of the axis. Within a band the commands are binned into
//! cells, so that the size of the picture does not depend on their number.

use std::collections::BTreeMap;

use crate::outcome::{DriveTrace, TraceEntry};
use crate::table::bytes;

use super::html::{open_svg, svg_text};

const WIDTH: f64 = 640.0;
const LEFT: f64 = 4.0;
const BAND_GAP: f64 = 18.0;
const PLOT: f64 = 220.0;
const CELL: f64 = 2.0;
const BANDS_MAX: usize = 8;

/// A range of the drive: logical sectors, half open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Band {
    start: u64,
    end: u64,
    /// Sectors of it that were touched.
    touched: u64,
}

/// Cuts the touched sectors into at most [`BANDS_MAX`] bands.
fn bands(entries: &[TraceEntry]) -> Vec<Band> {
    let span = |e: &TraceEntry| (e.lba, e.lba + u64::from(e.sectors.max(1)));
    let mut spans: Vec<(u64, u64)> = entries.iter().map(span).collect();
    spans.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in spans {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    let gap = |(at, pair): (usize, &[(u64, u64)])| (pair[1].0 - pair[0].1, at);
    let mut gaps: Vec<(u64, usize)> = merged.windows(2).enumerate().map(gap).collect();
    gaps.sort_unstable_by(|a, b| b.cmp(a));
    // Only gaps larger than a quarter of the touched sectors are cut out; they would squeeze the rest.
    let touched: u64 = merged.iter().map(|(start, end)| end - start).sum();
    let worth = gaps.iter().filter(|(gap, _)| *gap > touched / 4).count();
    let cuts = gaps.iter().take(worth.min(BANDS_MAX - 1));
    let mut cuts: Vec<usize> = cuts.map(|(_, at)| *at).collect();
    cuts.sort_unstable();
    let mut bands = Vec::new();
    let mut from = 0;
    for cut in cuts.into_iter().chain(merged.len().checked_sub(1)) {
        let inside = &merged[from..=cut];
        bands.push(Band {
            start: inside[0].0,
            end: merged[cut].1,
            touched: inside.iter().map(|(start, end)| end - start).sum(),
        });
        from = cut + 1;
    }
    bands
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Read,
    Whole,
    Partial,
}

impl Kind {
    fn of(entry: &TraceEntry) -> Kind {
        match (entry.is_write, entry.is_partial) {
            (false, _) => Kind::Read,
            (true, false) => Kind::Whole,
            (true, true) => Kind::Partial,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Whole => "whole",
            Kind::Partial => "partial",
        }
    }
}

/// When the first and the last command of any of these drives came.
pub(crate) fn period(drives: &[DriveTrace]) -> Option<(u64, u64)> {
    let times = || drives.iter().flat_map(|d| &d.entries).map(|e| e.at_ns);
    Some((times().min()?, times().max()?))
}

/// The picture of one drive. `period`: what its width stands for, the same for all drives of a machine.
pub(crate) fn picture(trace: &DriveTrace, period: (u64, u64)) -> String {
    if trace.entries.is_empty() {
        return String::new();
    }
    let bands = bands(&trace.entries);
    let (first, last) = period;
    let span_ns = (last - first).max(1);
    // Every band gets a minimum height; larger ones get more.
    let weight = |band: &Band| (band.touched as f64).sqrt();
    let total: f64 = bands.iter().map(weight).sum();
    let least = 16.0;
    let spare = PLOT - least * bands.len() as f64;
    let heights: Vec<f64> = bands
        .iter()
        .map(|b| least + spare * weight(b) / total)
        .collect();
    let height = heights.iter().sum::<f64>() + BAND_GAP * bands.len() as f64 + 16.0;
    let mut svg = open_svg(
        WIDTH,
        height,
        &format!("where commands went on {}", trace.drive),
    );
    let sector = f64::from(trace.sector_bytes);
    let mut y = 0.0;
    for (band, band_height) in bands.iter().zip(&heights).rev() {
        let (low, high) = (band.start as f64 * sector, band.end as f64 * sector);
        let label = format!("{} from {}", bytes(high - low), bytes(low));
        svg.push_str(&svg_text(LEFT, y + 12.0, "tiny", "start", &label));
        y += BAND_GAP;
        svg.push_str(&format!(
            "<rect x=\"0\" y=\"{y:.1}\" width=\"{WIDTH}\" height=\"{band_height:.1}\" class=\"ground\"/>\n"
        ));
        svg.push_str(&cells(trace, *band, first, span_ns, y, *band_height));
        y += band_height;
    }
    let seconds = span_ns as f64 / 1e9;
    svg.push_str(&svg_text(0.0, height - 3.0, "tiny", "start", "0 s"));
    let end = format!("{seconds:.1} s");
    svg.push_str(&svg_text(WIDTH, height - 3.0, "tiny", "end", &end));
    svg.push_str("</svg>\n");
    svg
}

/// The commands of one band, binned into cells; equal neighbours in a row become one rectangle.
fn cells(
    trace: &DriveTrace,
    band: Band,
    first: u64,
    span_ns: u64,
    top: f64,
    height: f64,
) -> String {
    let columns = (WIDTH / CELL) as u64;
    let rows = ((height / CELL) as u64).max(1);
    let mut grid: BTreeMap<(u64, u64), Kind> = BTreeMap::new();
    let inside = |e: &&TraceEntry| (band.start..band.end).contains(&e.lba);
    for entry in trace.entries.iter().filter(inside) {
        let column = scale(entry.at_ns - first, span_ns + 1, columns);
        let of = |lba: u64| scale(lba - band.start, band.end - band.start, rows);
        let last = (entry.lba + u64::from(entry.sectors.max(1)) - 1).min(band.end - 1);
        for row in of(entry.lba)..=of(last) {
            let cell = grid.entry((row, column)).or_insert(Kind::Read);
            *cell = (*cell).max(Kind::of(entry));
        }
    }
    let mut runs: Vec<(u64, u64, u64, Kind)> = Vec::new();
    for ((row, column), kind) in grid {
        match runs.last_mut() {
            Some((r, start, len, k)) if *r == row && *start + *len == column && *k == kind => {
                *len += 1;
            }
            _ => runs.push((row, column, 1, kind)),
        }
    }
    let mut paths: BTreeMap<Kind, String> = BTreeMap::new();
    for (row, column, len, kind) in runs {
        let x = column as f64 * CELL;
        let y = top + height - (row + 1) as f64 * CELL;
        let run = len as f64 * CELL;
        paths
            .entry(kind)
            .or_default()
            .push_str(&format!("M{x} {y:.1}h{run}v{CELL}h-{run}z"));
    }
    let draw =
        |(kind, path): (Kind, String)| format!("<path class=\"{}\" d=\"{path}\"/>\n", kind.class());
    paths.into_iter().map(draw).collect()
}

fn scale(value: u64, of: u64, onto: u64) -> u64 {
    (u128::from(value) * u128::from(onto) / u128::from(of.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(lba: u64, sectors: u32) -> TraceEntry {
        TraceEntry {
            at_ns: 0,
            lba,
            sectors,
            is_write: true,
            is_partial: false,
        }
    }

    #[test]
    fn gaps_become_cuts() {
        let entries = [
            write(0, 8),
            write(8, 8),
            write(1000, 8),
            write(1_000_000, 16),
        ];
        let found = bands(&entries);
        let shown: Vec<_> = found.iter().map(|b| (b.start, b.end, b.touched)).collect();
        assert_eq!(
            shown,
            [(0, 16, 16), (1000, 1008, 8), (1_000_000, 1_000_016, 16)]
        );
    }

    #[test]
    fn no_more_bands_than_can_be_read() {
        let entries: Vec<_> = (0..50).map(|at| write(at * 100_000, 8)).collect();
        let found = bands(&entries);
        assert_eq!(found.len(), BANDS_MAX);
        assert_eq!((found[0].start, found[BANDS_MAX - 1].end), (0, 4_900_008));
    }

    #[test]
    fn every_command_is_drawn() {
        let trace = DriveTrace {
            drive: "ada0".into(),
            sector_bytes: 512,
            entries: vec![write(0, 1), write(u64::from(u32::MAX) * 4, 1)],
            ..DriveTrace::default()
        };
        let whole = |picture: String| picture.matches("class=\"whole\"").count();
        assert_eq!(whole(picture(&trace, (0, 0))), 2);
        assert_eq!(picture(&DriveTrace::default(), (0, 0)), "");
    }

    #[test]
    fn drives_of_a_machine_share_their_time() {
        let drive = |at: &[u64]| DriveTrace {
            entries: at
                .iter()
                .map(|at_ns| TraceEntry {
                    at_ns: *at_ns,
                    ..write(0, 8)
                })
                .collect(),
            sector_bytes: 512,
            ..DriveTrace::default()
        };
        let drives = [
            drive(&[3_000_000_000, 4_000_000_000]),
            drive(&[]),
            drive(&[9_000_000_000]),
        ];
        let period = period(&drives).unwrap();
        assert_eq!(period, (3_000_000_000, 9_000_000_000));
        assert!(picture(&drives[0], period).contains(">6.0 s<"));
        assert_eq!(super::period(&drives[1..2]), None);
    }
}
