//! Histograms: of the size and alignment of the writes to a drive, and those that an experiment asks for.

use crate::outcome::{CaseOutcome, DriveTrace, Outcome, Tally};
use crate::table::{bytes, number};

use super::html::{escape, open_svg, svg_bar, svg_text};

/// Of one of two side by side.
const WIDTH: f64 = 310.0;
/// Of one alone.
const WIDTH_ALONE: f64 = 640.0;
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

/// The histograms that the experiment asks for, a section for each case.
pub(crate) fn sections(outcome: &Outcome) -> String {
    let several = outcome.has_several_titles();
    let section = |case: &CaseOutcome| {
        let label = escape(&case.label(several));
        let drawn: String = case.tallies.iter().map(tally).collect();
        format!("<details><summary>{label}</summary>\n{drawn}</details>\n")
    };
    let cases = outcome.cases.iter();
    let sections: String = cases
        .filter(|case| !case.tallies.is_empty())
        .map(section)
        .collect();
    match sections.is_empty() {
        true => sections,
        false => format!("<h3>Histograms</h3>\n{sections}"),
    }
}

fn tally(tally: &Tally) -> String {
    let bar = |(label, count): &(String, u64)| Bar {
        label: label.clone(),
        count: *count,
        is_partial: false,
    };
    let bars: Vec<Bar> = tally.bars.iter().map(bar).collect();
    plot(&tally.title, "", WIDTH_ALONE, &bars)
}

/// The bars of a histogram; those below `whole_bytes`, a physical sector, are coloured as partial.
fn draw(title: &str, counts: &[(u32, u64)], whole_bytes: u32) -> String {
    let mut counts: Vec<(u32, u64)> = counts.iter().copied().filter(|(_, n)| *n > 0).collect();
    counts.sort_unstable();
    let bar = |(power, count): &(u32, u64)| {
        let size = 1u64 << power.min(&63);
        Bar {
            label: bytes(size as f64),
            count: *count,
            is_partial: size < u64::from(whole_bytes),
        }
    };
    let bars: Vec<Bar> = counts.iter().map(bar).collect();
    let below = match bars.first().is_some_and(|least| least.is_partial) {
        true => "; red: less than a physical sector",
        false => "",
    };
    plot(title, below, WIDTH, &bars)
}

struct Bar {
    /// A number and its unit.
    label: String,
    count: u64,
    is_partial: bool,
}

fn plot(title: &str, note: &str, width: f64, bars: &[Bar]) -> String {
    let most = bars.iter().map(|bar| bar.count).max().unwrap_or(0);
    if most == 0 {
        return format!("<p class=\"faint\">{}: none</p>\n", escape(title));
    }
    let caption = escape(title);
    let total: u64 = bars.iter().map(|bar| bar.count).sum();
    let slot = (width / bars.len() as f64).min(48.0);
    let mut svg = open_svg(width, HEIGHT, title);
    for (at, bar) in bars.iter().enumerate().filter(|(_, bar)| bar.count > 0) {
        let x = at as f64 * slot;
        let height = (bar.count as f64 / most as f64 * (PLOT - 14.0)).max(1.0);
        let label = bar.label.replace(' ', "\u{a0}");
        let share = bar.count as f64 / total as f64 * 100.0;
        let tip = format!("{label}: {} ({share:.1} %)", bar.count);
        let y = PLOT - height;
        let class = if bar.is_partial {
            "partial"
        } else {
            "measured"
        };
        svg.push_str(&svg_bar(x + 2.0, y, slot - 4.0, height, class, &tip));
        let middle = x + slot / 2.0;
        let count = short(bar.count as f64);
        svg.push_str(&svg_text(middle, y - 4.0, "tiny", "middle", &count));
        let (value, unit) = label.split_once('\u{a0}').unwrap_or((&label, ""));
        svg.push_str(&svg_text(middle, PLOT + 14.0, "tiny", "middle", value));
        svg.push_str(&svg_text(middle, PLOT + 27.0, "tiny", "middle", unit));
    }
    svg.push_str("</svg>\n");
    format!("<figure><figcaption>{caption}{note}</figcaption>\n{svg}</figure>\n")
}

fn short(count: f64) -> String {
    match count {
        c if c >= 1e6 => format!("{}M", number((c / 1e5).round() / 10.0)),
        c if c >= 1e4 => format!("{:.0}k", c / 1e3),
        c => format!("{c:.0}"),
    }
}
