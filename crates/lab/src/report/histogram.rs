//! Histograms of the size and alignment of the writes to a drive.

use crate::outcome::DriveTrace;
use crate::table::{bytes, number};

use super::html::{open_svg, svg_bar, svg_text};

const WIDTH: f64 = 310.0;
const HEIGHT: f64 = 120.0;
const PLOT: f64 = 84.0;

/// Both histograms of a drive, side by side.
pub(crate) fn histograms(trace: &DriveTrace) -> String {
    let sector = trace.physical_bytes;
    let sizes = draw("size of writes", &trace.write_sizes, sector);
    let mut alignments: Vec<(u32, u64)> = Vec::new();
    for (power, count) in &trace.write_alignments {
        match alignments.iter_mut().find(|(known, _)| known == power) {
            Some((_, sum)) => *sum += count,
            None => alignments.push((*power, *count)),
        }
    }
    let alignment = draw("alignment of writes", &alignments, sector);
    format!("<div class=\"pair\">{sizes}{alignment}</div>\n")
}

/// The bars of a histogram; those below `whole_bytes`, a physical sector, are coloured as partial.
fn draw(title: &str, counts: &[(u32, u64)], whole_bytes: u32) -> String {
    let mut counts: Vec<(u32, u64)> = counts.iter().copied().filter(|(_, n)| *n > 0).collect();
    counts.sort_unstable();
    let most = counts.iter().map(|(_, n)| *n).max().unwrap_or(0);
    if most == 0 {
        return format!("<p class=\"faint\">{title}: none</p>\n");
    }
    let total: u64 = counts.iter().map(|(_, n)| n).sum();
    let slot = (WIDTH / counts.len() as f64).min(48.0);
    let mut svg = open_svg(WIDTH, HEIGHT, title);
    for (at, (power, count)) in counts.iter().enumerate() {
        let x = at as f64 * slot;
        let height = (*count as f64 / most as f64 * (PLOT - 14.0)).max(1.0);
        let size = bytes((1u64 << power.min(&63)) as f64).replace(' ', "\u{a0}");
        let share = *count as f64 / total as f64 * 100.0;
        let tip = format!("{size}: {count} ({share:.1} %)");
        let y = PLOT - height;
        let is_partial = 1u64 << power.min(&63) < u64::from(whole_bytes);
        let class = if is_partial { "partial" } else { "measured" };
        svg.push_str(&svg_bar(x + 2.0, y, slot - 4.0, height, class, &tip));
        let middle = x + slot / 2.0;
        let count = short(*count as f64);
        svg.push_str(&svg_text(middle, y - 4.0, "tiny", "middle", &count));
        let (value, unit) = size.split_once('\u{a0}').unwrap_or((&size, ""));
        svg.push_str(&svg_text(middle, PLOT + 14.0, "tiny", "middle", value));
        svg.push_str(&svg_text(middle, PLOT + 27.0, "tiny", "middle", unit));
    }
    svg.push_str("</svg>\n");
    let (least, _) = counts[0];
    let below = match 1u64 << least.min(63) < u64::from(whole_bytes) {
        true => "; red: less than a physical sector",
        false => "",
    };
    format!("<figure><figcaption>{title}{below}</figcaption>\n{svg}</figure>\n")
}

fn short(count: f64) -> String {
    match count {
        c if c >= 1e6 => format!("{}M", number((c / 1e5).round() / 10.0)),
        c if c >= 1e4 => format!("{:.0}k", c / 1e3),
        c => format!("{c:.0}"),
    }
}
