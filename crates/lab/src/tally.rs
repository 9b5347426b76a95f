//! Histograms, read from the output of commands.

use regex::Regex;

use crate::experiment::{Case, Histogram};
use crate::outcome::{Ran, Tally};
use crate::reading::commands_of;

fn compile(histogram: &Histogram) -> Result<Regex, String> {
    let title = &histogram.title;
    let pattern =
        Regex::new(&histogram.pattern).map_err(|e| format!("histogram '{title}': {e}"))?;
    let has = |group| pattern.capture_names().flatten().any(|name| name == group);
    match has("label") && has("value") {
        true => Ok(pattern),
        false => Err(format!(
            "histogram '{title}': its pattern has no groups (?<label>…) and (?<value>…)"
        )),
    }
}

/// Refuses a pattern that cannot be one, and commands that no case has.
pub(crate) fn check(histogram: &Histogram, cases: &[Case]) -> Result<(), String> {
    compile(histogram)?;
    let (title, command) = (&histogram.title, &histogram.command);
    match cases
        .iter()
        .all(|case| commands_of(command, case).is_empty())
    {
        true => Err(format!(
            "histogram '{title}': no case has a command '{command}'"
        )),
        false => Ok(()),
    }
}

/// The histogram of a case; `None` if the case has no such command.
pub(crate) fn tally(
    histogram: &Histogram,
    case: &Case,
    ran: &[Ran],
) -> Result<Option<Tally>, String> {
    let pattern = compile(histogram)?;
    let Some(at) = commands_of(&histogram.command, case).pop() else {
        return Ok(None);
    };
    let lines = ran[at].output.lines();
    let bar = |found: regex::Captures<'_>| {
        let value = &found["value"];
        let count = value.parse().map_err(|_| {
            let title = &histogram.title;
            format!("histogram '{title}': '{value}' is not a whole number")
        })?;
        Ok((found["label"].to_owned(), count))
    };
    let bars = lines.filter_map(|line| pattern.captures(line)).map(bar);
    Ok(Some(Tally {
        title: histogram.title.clone(),
        bars: bars.collect::<Result<_, String>>()?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::CommandLine;

    fn histogram(pattern: &str) -> Histogram {
        Histogram {
            title: "t".into(),
            command: "replay -o x".into(),
            pattern: pattern.into(),
        }
    }

    fn case(command: &str) -> Case {
        Case {
            name: "c".into(),
            title: "c".into(),
            commands: vec![CommandLine {
                words: command.split(' ').map(str::to_owned).collect(),
                line: 1,
                may_fail: false,
            }],
            published: [].into(),
        }
    }

    #[test]
    fn each_line_that_matches_is_a_bar() {
        let histogram = histogram(r"^(?<label>[\d.]+ ms) .*?(?<value>\d+)$");
        let ran = Ran {
            command: String::new(),
            output: "less than     all\n16.8 ms   2  3\n33.6 ms   0  0\n\n5 of 9\n".into(),
            seconds: 1.0,
            processor_percent: 0.0,
            drive_percent: 0.0,
        };
        let found = tally(
            &histogram,
            &case("replay -o x y"),
            std::slice::from_ref(&ran),
        );
        let bars = [("16.8 ms".to_owned(), 3), ("33.6 ms".to_owned(), 0)];
        assert_eq!(found.unwrap().unwrap().bars, bars);
        let other = tally(&histogram, &case("replay -o z y"), &[ran]);
        assert_eq!(other.unwrap(), None);
    }

    #[test]
    fn a_pattern_needs_both_groups_and_a_command() {
        let case = [case("replay -o x y")];
        assert!(check(&histogram("(?<label>a)(?<value>b)"), &case).is_ok());
        assert!(check(&histogram("(?<label>a)(?<value>b)"), &[]).is_err());
        assert!(check(&histogram("(?<value>b)"), &case).is_err());
        assert!(check(&histogram("("), &case).is_err());
    }
}
