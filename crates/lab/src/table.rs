//! The outcome as a text table.

use crate::outcome::{Assumed, CaseOutcome, Measured, Outcome, Sensitivity};
use crate::verdict::Verdict;

/// A number for display: about four digits.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 || v == 0.0 || (v.fract() == 0.0 && v >= 1.0) => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Bytes with a binary unit.
pub(crate) fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut at = 0;
    let mut rest = value;
    while rest >= 1024.0 && at + 1 < units.len() {
        rest /= 1024.0;
        at += 1;
    }
    format!("{} {}", number(rest), units[at])
}

/// A figure with its unit, `bytes` made readable.
pub(crate) fn figure(value: f64, unit: &str) -> String {
    match unit {
        "bytes" => bytes(value),
        "" => number(value),
        unit => format!("{} {unit}", number(value)),
    }
}

/// A deviation with its sign.
pub(crate) fn percent(value: f64) -> String {
    format!("{value:+.1} %")
}

/// The text for a verdict.
pub(crate) fn mark(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Unjudged => "",
        Verdict::Within => "ok",
        Verdict::Missed => "MISSED",
    }
}

/// Rows of cells below a heading; the first column is text, the others figures.
pub(crate) struct Grid {
    pub heading: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Grid {
    pub(crate) fn draw(&self) -> String {
        let columns = self.heading.len();
        let width = |at: usize| {
            let cells = self.rows.iter().map(|row| row[at].chars().count());
            cells
                .max()
                .unwrap_or(0)
                .max(self.heading[at].chars().count())
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in std::iter::once(&self.heading).chain(&self.rows) {
            let mut line = String::new();
            for (at, cell) in row.iter().enumerate() {
                let width = widths[at];
                if at == 0 {
                    line.push_str(&format!("{cell:<width$}"));
                } else {
                    line.push_str(&format!("  {cell:>width$}"));
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Measured beside published, a row for each figure.
pub(crate) fn comparison(outcome: &Outcome) -> Grid {
    let several = outcome.has_several_titles();
    let heading = [
        "configuration",
        "figure",
        "measured",
        "published",
        "deviation",
        "",
    ];
    let mut rows = Vec::new();
    for case in &outcome.cases {
        for measured in &case.figures {
            rows.push(vec![
                case.label(several),
                measured.title.clone(),
                figure(measured.value, &measured.unit),
                measured
                    .published
                    .map_or("-".into(), |v| figure(v, &measured.unit)),
                measured.deviation_percent.map_or("-".into(), percent),
                mark(measured.verdict).into(),
            ]);
        }
    }
    for ratio in &outcome.ratios {
        rows.push(vec![
            ratio.title.clone(),
            "ratio".into(),
            number(ratio.value),
            ratio.published.map_or("-".into(), number),
            ratio.deviation_percent.map_or("-".into(), percent),
            mark(ratio.verdict).into(),
        ]);
    }
    for (title, value, tolerance, verdict) in &outcome.rms {
        rows.push(vec![
            format!("{title}: root mean square of the deviations"),
            String::new(),
            format!("{value:.1} %"),
            format!("≤ {tolerance} %"),
            String::new(),
            mark(*verdict).into(),
        ]);
    }
    Grid {
        heading: heading.map(str::to_owned).to_vec(),
        rows,
    }
}

/// A row for each case, a column for each figure; used when nothing was published.
pub(crate) fn pivot(outcome: &Outcome) -> Grid {
    let several = outcome.has_several_titles();
    let mut columns: Vec<&Measured> = Vec::new();
    for figure in outcome.cases.iter().flat_map(|case| &case.figures) {
        if !columns.iter().any(|known| known.name == figure.name) {
            columns.push(figure);
        }
    }
    let mut heading = vec!["configuration".to_owned()];
    heading.extend(columns.iter().map(|column| column.title.clone()));
    let row = |case: &CaseOutcome| {
        let cell = |column: &&Measured| {
            let found = case.figure(&column.name);
            found.map_or("-".into(), |f| figure(f.value, &f.unit))
        };
        let mut row = vec![case.label(several)];
        row.extend(columns.iter().map(cell));
        row
    };
    Grid {
        rows: outcome.cases.iter().map(row).collect(),
        heading,
    }
}

/// The ratios, a column for each reading, where nothing was published that they would stand beside; `None` if there
/// are none, or they are in the other table.
pub(crate) fn ratios(outcome: &Outcome) -> Option<Grid> {
    if outcome.is_compared() || outcome.ratios.is_empty() {
        return None;
    }
    let (titles, readings) = (
        distinct(outcome.ratios.iter().map(|ratio| &ratio.title)),
        distinct(outcome.ratios.iter().map(|ratio| &ratio.reading)),
    );
    let cell = |title: &str, reading: &str| {
        let mut ratios = outcome.ratios.iter();
        let found = ratios.find(|ratio| ratio.title == title && ratio.reading == reading);
        found.map_or("-".into(), |ratio| number(ratio.value))
    };
    let row = |title: &&str| {
        let mut row = vec![(*title).to_owned()];
        row.extend(readings.iter().map(|reading| cell(title, reading)));
        row
    };
    let mut heading = vec!["compared".to_owned()];
    match &readings[..] {
        [_] => heading.push("ratio".to_owned()),
        several => heading.extend(several.iter().map(|reading| format!("ratio: {reading}"))),
    }
    Some(Grid {
        rows: titles.iter().map(row).collect(),
        heading,
    })
}

/// Each of these once, in their order.
fn distinct<'t>(texts: impl Iterator<Item = &'t String>) -> Vec<&'t str> {
    let mut all: Vec<&str> = Vec::new();
    for text in texts {
        if !all.contains(&&**text) {
            all.push(text);
        }
    }
    all
}

/// What was measured at other values of one assumption; `None` if nothing was.
pub(crate) fn sensitivity(assumed: &Assumed) -> Option<Grid> {
    let (name, value) = assumed
        .value
        .as_ref()
        .filter(|_| !assumed.figures.is_empty())?;
    let value: f64 = value.parse().ok()?;
    let mut heading = vec!["configuration".to_owned(), "figure".to_owned()];
    heading.extend([0.5, 1.0, 2.0].map(|factor| format!("{name} {}", number(value * factor))));
    let row = |row: &Sensitivity| {
        let mut cells = vec![row.case.clone(), row.title.clone()];
        cells.extend(row.values.map(|value| figure(value, &row.unit)));
        cells
    };
    Some(Grid {
        rows: assumed.figures.iter().map(row).collect(),
        heading,
    })
}

impl Outcome {
    /// Whether there is a published value for any figure or ratio.
    pub(crate) fn has_published(&self) -> bool {
        let mut figures = self.cases.iter().flat_map(|case| &case.figures);
        figures.any(|figure| figure.published.is_some())
            || self.ratios.iter().any(|ratio| ratio.published.is_some())
    }

    /// Whether each figure has a row of its own, with what was published.
    fn is_compared(&self) -> bool {
        self.has_published() || self.cases.len() == 1
    }

    pub(crate) fn grid(&self) -> Grid {
        if self.is_compared() {
            comparison(self)
        } else {
            pivot(self)
        }
    }

    /// The outcome as a table, with the recommendation below it.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = self.grid().draw();
        if let Some(ratios) = ratios(self) {
            text.push_str(&format!("\n{}", ratios.draw()));
        }
        for assumed in &self.assumed {
            if let Some(grid) = sensitivity(assumed) {
                text.push_str(&format!("\nassumed: {}\n{}", assumed.about, grid.draw()));
            }
        }
        for choice in self.recommendation.iter().flat_map(|r| &r.choices) {
            text.push('\n');
            if choice.given.is_empty() {
                text.push_str(&format!("take {}: {}\n", choice.take, choice.reason));
            } else {
                text.push_str(&format!(
                    "{}: take {}: {}\n",
                    choice.given, choice.take, choice.reason
                ));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_about_four_digits() {
        let shown: Vec<String> = [131771.0, 62.609, 5.512, 0.0634, 0.0, 12.0, 250.25]
            .map(number)
            .to_vec();
        assert_eq!(
            shown,
            ["131771", "62.61", "5.51", "0.063", "0", "12", "250.2"]
        );
        assert_eq!(bytes(3.5 * 1048576.0), "3.50 MiB");
    }

    #[test]
    fn columns_line_up() {
        let grid = Grid {
            heading: vec!["a".into(), "b".into()],
            rows: vec![
                vec!["longer".into(), "1".into()],
                vec!["x".into(), "22".into()],
            ],
        };
        assert_eq!(grid.draw(), "a        b\nlonger   1\nx       22\n");
    }
}
