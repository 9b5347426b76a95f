//! A recommendation from a sweep, with its reason.
//!
//! # What it is
//! What an administrator wants before buying: configurations with many more partial writes than the
//! best (each makes the drive read before it writes) are dropped; then those that are much slower
//! than the fastest; of the rest it takes the one that needs the least space, and of those within
//! 1 % of that the fastest.

use serde::{Deserialize, Serialize};

use crate::outcome::CaseOutcome;

/// The readings that decide, and how.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Recommend {
    /// Readings in seconds, summed: less is better.
    pub time: Vec<String>,
    /// The reading of the space used, in bytes: less is better.
    pub space: String,
    /// The reading of the number of writes that began or ended inside a physical sector.
    pub partial: String,
    /// Up to this much slower than the fastest counts as equally fast.
    pub time_slack_percent: f64,
    /// The best is chosen for each value of these parameters.
    #[serde(default)]
    pub per: Vec<String>,
}

/// The recommended configurations, with reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// The choices, one for each combination of the [`Recommend::per`] parameters.
    pub choices: Vec<Choice>,
}

/// One choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// The values of the [`Recommend::per`] parameters.
    pub given: String,
    /// The recommended values of the other swept parameters.
    pub take: String,
    /// Why.
    pub reason: String,
}

struct Candidate<'a> {
    case: &'a CaseOutcome,
    seconds: f64,
    space: f64,
    partial: f64,
}

impl Recommend {
    /// The recommendation for these outcomes; none when a figure is missing.
    pub(crate) fn choose(&self, cases: &[CaseOutcome]) -> Option<Recommendation> {
        let given = |case: &CaseOutcome| {
            let values = case.parameters.iter();
            let of = values.filter(|(name, _)| self.per.contains(name));
            of.map(|(k, v)| format!("{k}={v}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let mut groups: Vec<(String, Vec<Candidate<'_>>)> = Vec::new();
        for case in cases {
            let value = |name: &String| case.figure(name).map(|figure| figure.value);
            let candidate = Candidate {
                case,
                seconds: self.time.iter().map(value).sum::<Option<f64>>()?,
                space: value(&self.space)?,
                partial: value(&self.partial)?,
            };
            let given = given(case);
            match groups.iter_mut().find(|(known, _)| *known == given) {
                Some((_, group)) => group.push(candidate),
                None => groups.push((given, vec![candidate])),
            }
        }
        let choices = groups
            .into_iter()
            .map(|(given, group)| self.best(given, &group));
        let choices: Vec<Choice> = choices.collect::<Option<_>>()?;
        (!choices.is_empty()).then_some(Recommendation { choices })
    }

    fn best(&self, given: String, group: &[Candidate<'_>]) -> Option<Choice> {
        let fewest = least(group.iter().map(|c| c.partial))?;
        // A few partial writes (of a partition table, say) are unavoidable and do not count.
        let bound = (fewest * 2.0).max(fewest + 16.0);
        let (clean, partial): (Vec<_>, Vec<_>) = group.iter().partition(|c| c.partial <= bound);
        let fastest = least(clean.iter().map(|c| c.seconds))?;
        let slack = 1.0 + self.time_slack_percent / 100.0;
        let fast: Vec<_> = clean
            .iter()
            .filter(|c| c.seconds <= fastest * slack)
            .collect();
        let smallest = least(fast.iter().map(|c| c.space))?;
        let tight = fast.iter().filter(|c| c.space <= smallest * 1.01);
        let best = tight.min_by(|a, b| a.seconds.total_cmp(&b.seconds))?;
        let values = best.case.parameters.iter();
        let take = values.filter(|(name, _)| !self.per.contains(name));
        let take: Vec<String> = take.map(|(k, v)| format!("{k}={v}")).collect();
        let slow = clean.len() - fast.len();
        let mut reason = Vec::new();
        if !partial.is_empty() {
            let worst = partial.iter().map(|c| c.partial).fold(0.0, f64::max);
            reason.push(format!(
                "{} of {} configurations write partial physical sectors (up to {worst:.0}), this one {:.0}",
                partial.len(),
                group.len(),
                best.partial
            ));
        }
        if slow > 0 {
            reason.push(format!(
                "{slow} more take over {:.0} % longer than the fastest ({fastest:.1} s)",
                self.time_slack_percent
            ));
        }
        reason.push(format!(
            "of the {} left it takes the least space ({}) in {:.1} s",
            fast.len(),
            crate::table::bytes(best.space),
            best.seconds
        ));
        Some(Choice {
            given,
            take: take.join(" "),
            reason: reason.join("; "),
        })
    }
}

fn least(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Measured;
    use crate::verdict::Verdict;

    fn case(ashift: &str, seconds: f64, space: f64, partial: f64) -> CaseOutcome {
        let figure = |name: &str, value| Measured {
            name: name.into(),
            reading: name.into(),
            chart: true,
            title: String::new(),
            unit: String::new(),
            value,
            published: None,
            deviation_percent: None,
            tolerance_percent: None,
            verdict: Verdict::Unjudged,
        };
        CaseOutcome {
            name: "c".into(),
            title: "c".into(),
            parameters: vec![("ashift".into(), ashift.into())],
            ran: Vec::new(),
            figures: vec![
                figure("t", seconds),
                figure("s", space),
                figure("p", partial),
            ],
            tallies: Vec::new(),
            drives: Vec::new(),
            seconds,
        }
    }

    fn rule() -> Recommend {
        Recommend {
            time: vec!["t".into()],
            space: "s".into(),
            partial: "p".into(),
            time_slack_percent: 10.0,
            per: Vec::new(),
        }
    }

    #[test]
    fn partial_writes_lose_even_when_smaller() {
        let cases = [case("9", 50.0, 100.0, 9000.0), case("12", 10.0, 120.0, 0.0)];
        let choice = &rule().choose(&cases).unwrap().choices[0];
        assert_eq!(choice.take, "ashift=12");
        assert!(
            choice.reason.contains("partial physical sectors"),
            "{}",
            choice.reason
        );
    }

    #[test]
    fn of_equally_fast_ones_the_smallest_wins() {
        let cases = [case("13", 9.5, 150.0, 0.0), case("12", 10.0, 120.0, 0.0)];
        assert_eq!(rule().choose(&cases).unwrap().choices[0].take, "ashift=12");
        let cases = [case("13", 5.0, 150.0, 0.0), case("12", 10.0, 120.0, 0.0)];
        assert_eq!(rule().choose(&cases).unwrap().choices[0].take, "ashift=13");
    }

    #[test]
    fn without_a_figure_there_is_no_recommendation() {
        let mut broken = case("12", 1.0, 1.0, 0.0);
        broken.figures.pop();
        assert_eq!(rule().choose(&[broken]), None);
    }
}
