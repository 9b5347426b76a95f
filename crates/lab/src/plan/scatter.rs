//! Space to the right, time upwards: a point for each combination.

use super::front::Goal;
use super::{Plan, Tried};
use crate::report::html::{escape, open_svg, svg_text};
use crate::table::{bytes, number};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
/// Room for the axes' labels.
const LEFT: f64 = 64.0;
const BELOW: f64 = 34.0;
const MARGIN: f64 = 12.0;
/// At most so many lines of the grid cross an axis.
const LINES_MAX: f64 = 6.0;

/// A range of values that an axis shows, somewhat wider than they are.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn over(values: &[f64]) -> Axis {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let room = ((high - low) * 0.08)
            .max(high.abs() * 0.02)
            .max(f64::MIN_POSITIVE);
        Axis {
            low: (low - room).max(0.0),
            high: high + room,
        }
    }

    /// From 0 to 1.
    fn place(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }

    /// The lines of the grid, at multiples of a round number: the least of `round`, times a power of `base`, that is
    /// large enough.
    fn lines(&self, base: f64, round: &[f64]) -> Vec<f64> {
        let least = ((self.high - self.low) / LINES_MAX).max(f64::MIN_POSITIVE);
        let power = base.powf(least.log(base).floor());
        let steps = round.iter().map(|round| round * power);
        let step = steps
            .clone()
            .find(|step| *step >= least)
            .unwrap_or(power * base);
        let first = (self.low / step).ceil() as u64;
        let last = (self.high / step).floor() as u64;
        (first..=last).map(|at| at as f64 * step).collect()
    }
}

/// The picture of a goal in seconds against the space; empty if there are fewer than two points.
pub(super) fn scatter(plan: &Plan, title: &str, goal: &Goal) -> String {
    let point = |(place, row): (usize, &super::Row)| match &row.tried {
        Some(Tried::Measured(figures)) => Some((place, figures.used(), (goal.of)(figures))),
        _ => None,
    };
    let points: Vec<(usize, f64, f64)> = plan.rows.iter().enumerate().filter_map(point).collect();
    if points.len() < 2 {
        return String::new();
    }
    let across = Axis::over(&points.iter().map(|point| point.1).collect::<Vec<_>>());
    let up = Axis::over(&points.iter().map(|point| point.2).collect::<Vec<_>>());
    let x = |value| LEFT + across.place(value) * (WIDTH - LEFT - MARGIN);
    let y = |value| HEIGHT - BELOW - up.place(value) * (HEIGHT - BELOW - MARGIN);
    let mut svg = open_svg(WIDTH, HEIGHT, &format!("{title}: space and time"));
    for value in up.lines(10.0, &[1.0, 2.0, 5.0]) {
        let at = y(value);
        svg.push_str(&line(LEFT, at, WIDTH - MARGIN, at));
        svg.push_str(&svg_text(
            LEFT - 6.0,
            at + 4.0,
            "tiny",
            "end",
            &format!("{} s", number(value)),
        ));
    }
    for value in across.lines(2.0, &[1.0]) {
        let at = x(value);
        svg.push_str(&line(at, MARGIN, at, HEIGHT - BELOW));
        svg.push_str(&svg_text(
            at,
            HEIGHT - BELOW + 18.0,
            "tiny",
            "middle",
            &bytes(value),
        ));
    }
    // The best are drawn last, above the others.
    let rank = |place: usize| {
        let taken = plan.advice.iter().any(|advice| advice.take == place);
        usize::from(plan.is_on_front(place)) + usize::from(taken)
    };
    let mut points = points;
    points.sort_by_key(|(place, ..)| rank(*place));
    for (place, space, seconds) in points {
        let (class, radius) = [("rest", 3.5), ("front", 4.5), ("take", 7.0)][rank(place)];
        let what = format!(
            "{}: {}, {} s",
            plan.rows[place].combination,
            bytes(space),
            number(seconds)
        );
        svg.push_str(&format!(
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\" class=\"{class}\"><title>{}</title></circle>\n",
            x(space),
            y(seconds),
            escape(&what)
        ));
    }
    svg.push_str("</svg>\n");
    format!(
        "<figure><figcaption>{}</figcaption>\n{svg}</figure>\n",
        escape(title)
    )
}

fn line(x1: f64, y1: f64, x2: f64, y2: f64) -> String {
    format!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"axis\"/>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_at_round_numbers() {
        let axis = Axis {
            low: 0.0,
            high: 10.9,
        };
        let lines = axis.lines(10.0, &[1.0, 2.0, 5.0]);
        assert_eq!(lines, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        let axis = Axis {
            low: 74.5 * 1048576.0,
            high: 340.8 * 1048576.0,
        };
        let lines = axis
            .lines(2.0, &[1.0])
            .into_iter()
            .map(|line| line / 1048576.0);
        assert_eq!(lines.collect::<Vec<_>>(), [128.0, 192.0, 256.0, 320.0]);
        for (low, high) in [(0.0, 1e-9), (5.0, 5.1), (1e12, 9e12)] {
            let lines = Axis { low, high }.lines(10.0, &[1.0, 2.0, 5.0]);
            assert!((1..=8).contains(&lines.len()), "{low} {high}: {lines:?}");
        }
    }
}
