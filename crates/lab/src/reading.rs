//! Reads figures from the output of commands.

use regex::Regex;

use crate::experiment::{Case, Combine, CommandLine, Count, Figure, Part, Reading};
use crate::outcome::{DriveTrace, Ran};

/// The pattern of a reading; `None` if it reads the time or a counter of the drives.
pub(crate) fn compile(reading: &Reading) -> Result<Option<Regex>, String> {
    let fail = |text: &str| Err(format!("reading '{}': {text}", reading.name));
    let others = u32::from(reading.seconds)
        + u32::from(reading.drives.is_some())
        + u32::from(reading.busy.is_some());
    match (&reading.pattern, others) {
        (None, 1) => Ok(None),
        (Some(pattern), 0) => match Regex::new(pattern) {
            Ok(regex) if regex.capture_names().flatten().any(|n| n == "value") => Ok(Some(regex)),
            Ok(_) => fail("its pattern has no group (?<value>…)"),
            Err(e) => fail(&e.to_string()),
        },
        _ => fail("it needs one of `pattern`, `seconds = true`, `busy` and `drives`"),
    }
}

/// The indexes of the commands of a case that begin with these words.
pub(crate) fn commands_of(words: &str, case: &Case) -> Vec<usize> {
    let wanted: Vec<&str> = words.split_whitespace().collect();
    let begins = |command: &CommandLine| {
        let words = command.words.iter().map(String::as_str);
        command.words.len() >= wanted.len() && words.zip(&wanted).all(|(a, b)| a == *b)
    };
    (0..case.commands.len())
        .filter(|at| begins(&case.commands[*at]))
        .collect()
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

/// Every figure of a command: one for each line of its output that matches; of equal names the last, all if they are
/// to be combined.
pub(crate) fn figures(reading: &Reading, ran: &Ran) -> Result<Vec<Figure>, String> {
    let Some(pattern) = compile(reading)? else {
        let value = match reading.busy {
            Some(Part::Processor) => ran.processor_percent,
            Some(Part::Drive) => ran.drive_percent,
            None => ran.seconds,
        };
        return Ok(vec![Figure {
            name: reading.name.clone(),
            value: value * reading.scale,
        }]);
    };
    let mut figures: Vec<Figure> = Vec::new();
    for found in ran.output.lines().filter_map(|line| pattern.captures(line)) {
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
        if reading.combine.is_none() {
            figures.retain(|figure| figure.name != name);
        }
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

/// One figure of all that were read.
pub(crate) fn combined(reading: &Reading, combine: Combine, figures: &[Figure]) -> Figure {
    let values = figures.iter().map(|figure| figure.value);
    Figure {
        name: reading.name.clone(),
        value: match combine {
            Combine::HarmonicMean => figures.len() as f64 / values.map(f64::recip).sum::<f64>(),
            Combine::Least => values.fold(f64::INFINITY, f64::min),
            Combine::Largest => values.fold(f64::NEG_INFINITY, f64::max),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(text: &str) -> Reading {
        toml::from_str(text).unwrap()
    }

    fn ran(output: &str) -> Ran {
        Ran {
            command: String::new(),
            output: output.into(),
            seconds: 1.5,
            processor_percent: 25.0,
            drive_percent: 75.0,
        }
    }

    #[test]
    fn rates_of_equal_parts_make_one_rate() {
        let of = |combine: &str| {
            let text = format!(
                "name = 'rate'\ncommand = 'zcav'\npattern = '^\\d+ (?<value>\\d+)'\ncombine = '{combine}'"
            );
            let reading = reading(&text);
            let all = figures(&reading, &ran("0 200\n1 100\n")).unwrap();
            combined(&reading, reading.combine.unwrap(), &all).value
        };
        assert!((of("harmonic_mean") - 400.0 / 3.0).abs() < 1e-9);
        assert_eq!((of("least"), of("largest")), (100.0, 200.0));
    }

    #[test]
    fn how_busy_something_was_is_a_figure() {
        let of = |part: &str| {
            let text = format!("name = 'busy'\ncommand = 'cp'\nbusy = '{part}'");
            figures(&reading(&text), &ran("")).unwrap()[0].value
        };
        assert_eq!((of("processor"), of("drive")), (25.0, 75.0));
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
        let figures = figures(&reading, &ran(output)).unwrap();
        let named: Vec<_> = figures.iter().map(|f| (&*f.name, f.value)).collect();
        assert_eq!(named, [("1024@0", 131771.0), ("1024@512", 136005.0)]);
    }

    #[test]
    fn a_figure_can_be_a_difference() {
        let reading = reading(
            "name = 'padding'\ncommand = 'zdb'\npattern = '(?<minus>\\d+) +(?<value>\\d+) files'",
        );
        assert_eq!(
            figures(&reading, &ran("100  164 files\n")).unwrap()[0].value,
            64.0
        );
    }

    #[test]
    fn time_is_a_figure() {
        let reading = reading("name = 'write'\ncommand = 'cp'\nseconds = true\nscale = 1000.0");
        assert_eq!(figures(&reading, &ran("")).unwrap()[0].value, 1500.0);
    }

    #[test]
    fn a_figure_that_is_missing_is_an_error() {
        let reading = reading("name = 'r'\ncommand = 'dd'\npattern = '(?<value>[0-9]+) bytes'");
        let error = figures(&reading, &ran("nothing\n")).unwrap_err();
        assert!(error.contains("no line of the output matches"), "{error}");
    }

    #[test]
    fn a_pattern_needs_a_value() {
        assert!(compile(&reading("name = 'r'\ncommand = 'dd'\npattern = 'x'")).is_err());
        assert!(compile(&reading("name = 'r'\ncommand = 'dd'\npattern = '('")).is_err());
        assert!(compile(&reading("name = 'r'\ncommand = 'dd'")).is_err());
    }
}
