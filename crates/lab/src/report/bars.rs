//! Bar charts: one figure of every case, measured above published.

use crate::outcome::{Measured, Outcome};
use crate::table::figure;

use super::html::{escape, open_svg, svg_bar, svg_text};

const WIDTH: f64 = 640.0;
/// Space for the figure to the right of a bar.
const FIGURE: f64 = 110.0;
const LABEL: f64 = 20.0;
const BAR: f64 = 14.0;
const GAP: f64 = 12.0;

/// A chart for every figure that has more than one bar to compare.
pub(crate) fn charts(outcome: &Outcome) -> String {
    let mut titles: Vec<(&str, &str)> = Vec::new();
    for figure in outcome.cases.iter().flat_map(|case| &case.figures) {
        let key = (&*figure.reading, &*figure.unit);
        if figure.chart && !titles.contains(&key) {
            titles.push(key);
        }
    }
    titles
        .into_iter()
        .map(|(reading, unit)| chart(outcome, reading, unit))
        .collect()
}

fn chart(outcome: &Outcome, reading: &str, unit: &str) -> String {
    let mut bars: Vec<(String, &Measured)> = Vec::new();
    let several = outcome.has_several_titles();
    for case in &outcome.cases {
        let of: Vec<&Measured> = case
            .figures
            .iter()
            .filter(|f| f.reading == reading)
            .collect();
        let alone = of.len() == 1;
        for figure in of {
            let label = match (alone, outcome.cases.len() > 1) {
                (true, _) => case.label(several),
                (false, true) => format!("{}, {}", case.label(several), figure.title),
                (false, false) => figure.title.clone(),
            };
            bars.push((label, figure));
        }
    }
    let largest = |(_, f): &(String, &Measured)| f.value.max(f.published.unwrap_or(0.0));
    let top = bars.iter().map(largest).fold(0.0, f64::max);
    if bars.len() < 2 || top <= 0.0 {
        return String::new();
    }
    let unit_shown = if unit == "bytes" { "" } else { unit };
    draw(reading, unit_shown, &bars, top)
}

fn draw(title: &str, unit: &str, bars: &[(String, &Measured)], top: f64) -> String {
    let has_published = bars.iter().any(|(_, f)| f.published.is_some());
    let height_of = |f: &Measured| {
        LABEL
            + BAR
            + if f.published.is_some() {
                BAR + 2.0
            } else {
                0.0
            }
            + GAP
    };
    let height: f64 = bars.iter().map(|(_, f)| height_of(f)).sum();
    let scale = (WIDTH - FIGURE) / top;
    let mut svg = open_svg(WIDTH, height, &format!("{title}: bars"));
    let mut y = 0.0;
    for (label, f) in bars {
        svg.push_str(&svg_text(0.0, y + 14.0, "label", "start", label));
        let mut at = y + LABEL;
        let shown = figure(f.value, &f.unit);
        let width = (f.value * scale).max(1.0);
        svg.push_str(&svg_bar(
            0.0,
            at,
            width,
            BAR,
            "measured",
            &format!("measured: {shown}"),
        ));
        svg.push_str(&svg_text(width + 6.0, at + 11.5, "figure", "start", &shown));
        if let Some(published) = f.published {
            at += BAR + 2.0;
            let shown = figure(published, &f.unit);
            let width = (published * scale).max(1.0);
            let tip = format!("published: {shown}");
            svg.push_str(&svg_bar(0.0, at, width, BAR, "published", &tip));
            svg.push_str(&svg_text(width + 6.0, at + 11.5, "faint", "start", &shown));
        }
        y += height_of(f);
    }
    svg.push_str("</svg>\n");
    let unit = if unit.is_empty() {
        String::new()
    } else {
        format!(" ({unit})")
    };
    let legend = if has_published {
        "<p class=\"legend\"><i class=\"measured\"></i>measured here \
         <i class=\"published\"></i>published</p>"
    } else {
        ""
    };
    format!(
        "<figure><figcaption>{}{}</figcaption>{legend}\n{svg}</figure>\n",
        escape(title),
        escape(&unit)
    )
}
