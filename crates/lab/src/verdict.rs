//! Comparison of measured with published figures.

use serde::{Deserialize, Serialize};

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing was published, or no tolerance was stated.
    Unjudged,
    /// Within the tolerance.
    Within,
    /// Outside the tolerance, or not a number.
    Missed,
}

/// `value / published - 1` in percent.
pub(crate) fn deviation_percent(value: f64, published: f64) -> f64 {
    (value / published - 1.0) * 100.0
}

/// Deviation and verdict of a figure.
pub(crate) fn compare(
    value: f64,
    published: Option<f64>,
    tolerance_percent: Option<f64>,
) -> (Option<f64>, Verdict) {
    let deviation = published.map(|published| deviation_percent(value, published));
    let verdict = match (deviation, tolerance_percent) {
        (Some(deviation), Some(tolerance)) if deviation.abs() <= tolerance => Verdict::Within,
        (Some(_), Some(_)) => Verdict::Missed,
        _ => Verdict::Unjudged,
    };
    (deviation, verdict)
}

/// The root mean square; `None` for an empty slice.
pub(crate) fn rms(deviations: &[f64]) -> Option<f64> {
    let squares: f64 = deviations.iter().map(|d| d * d).sum();
    (!deviations.is_empty()).then(|| (squares / deviations.len() as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tolerance_holds_on_both_sides() {
        assert_eq!(compare(110.0, Some(100.0), Some(10.5)).1, Verdict::Within);
        assert_eq!(compare(89.0, Some(100.0), Some(10.5)).1, Verdict::Missed);
        assert_eq!(
            compare(50.0, Some(100.0), None),
            (Some(-50.0), Verdict::Unjudged)
        );
        assert_eq!(compare(89.0, None, Some(1.0)), (None, Verdict::Unjudged));
    }

    #[test]
    fn a_figure_that_is_no_number_misses() {
        assert_eq!(compare(f64::NAN, Some(1.0), Some(5.0)).1, Verdict::Missed);
    }

    #[test]
    fn root_mean_square() {
        assert_eq!(rms(&[3.0, -4.0, 0.0, 5.0]), Some(50f64.sqrt() / 2.0));
        assert_eq!(rms(&[]), None);
    }
}
