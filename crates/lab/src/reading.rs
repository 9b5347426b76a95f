//! Reads figures from the output of commands.

use regex::Regex;

use crate::experiment::{Case, Count, Figure, Reading};
use crate::outcome::DriveTrace;

/// The pattern of a reading; `None` if it reads the time or a counter of the drives.
pub(crate) fn compile(reading: &Reading) -> Result<Option<Regex>, String> {
    let fail = |text: &str| Err(format!("reading '{}': {text}", reading.name));
    match (&reading.pattern, reading.seconds, reading.drives) {
        (None, true, None) | (None, false, Some(_)) => Ok(None),
        (Some(pattern), false, None) => match Regex::new(pattern) {
            Ok(regex) if regex.capture_names().flatten().any(|n| n == "value") => Ok(Some(regex)),
            Ok(_) => fail("its pattern has no group (?<value>…)"),
            Err(e) => fail(&e.to_string()),
        },
        _ => fail("it needs one of `pattern`, `seconds = true` and `drives`"),
    }
}

/// The index of the command of a case that a reading is read from: the last that matches.
pub(crate) fn command_of(reading: &Reading, case: &Case) -> Option<usize> {
    let wanted: Vec<&str> = reading.command.split_whitespace().collect();
    case.commands.iter().rposition(|command| {
        let words = command.words.iter().map(String::as_str);
        command.words.len() >= wanted.len() && words.zip(&wanted).all(|(a, b)| a == *b)
    })
}

/// The sum of a counter over all drives.
pub(crate) fn counted(count: Count, drives: &[DriveTrace]) -> f64 {
    let of = |trace: &DriveTrace| match count {
        Count::Writes => trace.writes,
        Count::WrittenBytes => trace.written_bytes,
        Count::PartialWrites => trace.partial_writes,
        Count::Reads => trace.reads,
        Count::ReadBytes => trace.read_bytes,
    };
    drives.iter().map(of).sum::<u64>() as f64
}

/// Every figure in a command's output: one for each line that matches; of equal names the last.
pub(crate) fn figures(
    reading: &Reading,
    output: &str,
    seconds: f64,
) -> Result<Vec<Figure>, String> {
    let Some(pattern) = compile(reading)? else {
        return Ok(vec![Figure {
            name: reading.name.clone(),
            value: seconds * reading.scale,
        }]);
    };
    let mut figures: Vec<Figure> = Vec::new();
    for found in output.lines().filter_map(|line| pattern.captures(line)) {
        let number = |text: &str| -> Result<f64, String> {
            let bad = |_| format!("reading '{}': '{text}' is not a number", reading.name);
            text.parse().map_err(bad)
        };
        let mut value = number(&found["value"])?;
        if let Some(minus) = found.name("minus") {
            value -= number(minus.as_str())?;
        }
        let mut name = reading.name.clone();
        for group in pattern.capture_names().flatten() {
            let text = found.name(group).map_or("", |m| m.as_str());
            name = name.replace(&format!("{{{group}}}"), text);
        }
        figures.retain(|figure| figure.name != name);
        figures.push(Figure {
            name,
            value: value * reading.scale,
        });
    }
    if figures.is_empty() {
        return Err(format!(
            "reading '{}': no line of the output matches {pattern}",
            reading.name
        ));
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(text: &str) -> Reading {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_pattern_with_groups_reads_a_table() {
        let reading = reading(
            r#"name = "{size}@{offset}"
               command = "phybs"
               pattern = '^\s*\d+\s+(?<size>\d+)\s+(?<offset>\d+)\s+\d+\s+(?<value>\d+)'"#,
        );
        let output = "   count    size  offset    step        msec     tps    kBps\n\n  \
            131072    1024       0    4096      131771       994     994\n  \
            131072    1024     512    4096      136005       963     963\n";
        let figures = figures(&reading, output, 0.0).unwrap();
        let named: Vec<_> = figures.iter().map(|f| (&*f.name, f.value)).collect();
        assert_eq!(named, [("1024@0", 131771.0), ("1024@512", 136005.0)]);
    }

    #[test]
    fn a_figure_can_be_a_difference() {
        let reading = reading(
            "name = 'padding'\ncommand = 'zdb'\npattern = '(?<minus>\\d+) +(?<value>\\d+) files'",
        );
        assert_eq!(
            figures(&reading, "100  164 files\n", 0.0).unwrap()[0].value,
            64.0
        );
    }

    #[test]
    fn time_is_a_figure() {
        let reading = reading("name = 'write'\ncommand = 'cp'\nseconds = true\nscale = 1000.0");
        assert_eq!(figures(&reading, "", 1.5).unwrap()[0].value, 1500.0);
    }

    #[test]
    fn a_figure_that_is_missing_is_an_error() {
        let reading = reading("name = 'r'\ncommand = 'dd'\npattern = '(?<value>[0-9]+) bytes'");
        let error = figures(&reading, "nothing\n", 0.0).unwrap_err();
        assert!(error.contains("no line of the output matches"), "{error}");
    }

    #[test]
    fn a_pattern_needs_a_value() {
        assert!(compile(&reading("name = 'r'\ncommand = 'dd'\npattern = 'x'")).is_err());
        assert!(compile(&reading("name = 'r'\ncommand = 'dd'\npattern = '('")).is_err());
        assert!(compile(&reading("name = 'r'\ncommand = 'dd'")).is_err());
    }
}
