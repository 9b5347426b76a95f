//! `ashift sleep`: wait; in a machine let its time pass.

use crate::caller;
use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};

const USAGE: &str = "usage: ashift sleep NUMBER[s|m|h|d]…\n";

const MORE: &str = "
Waits for the sum of these times; without a letter they are seconds. In a machine (-m) its clock moves so far, and what
goes on in it, a scrub or a resilver, goes on; this takes no time but that of computing.
";

/// Longest sleep, in seconds: a hundred years.
const SECS_MAX: f64 = 3.2e9;

pub(crate) const SLEEP: Command<Entry> =
    Command::explained("sleep", "wait; in a machine let its time pass", USAGE, run).more(MORE);

fn run(args: &[String]) -> Outcome {
    if args.is_empty() {
        return Err(Fail::Usage("missing operand".to_owned()));
    }
    let mut secs = 0.0;
    for arg in args {
        let wrong = || Fail::Usage(format!("invalid time interval '{arg}'"));
        secs += seconds(arg).ok_or_else(wrong)?;
    }
    caller::sleep_ns((secs.min(SECS_MAX) * 1e9) as u64);
    Ok(())
}

fn seconds(text: &str) -> Option<f64> {
    let (number, unit) = match text.char_indices().next_back()? {
        (at, 's') => (&text[..at], 1.0),
        (at, 'm') => (&text[..at], 60.0),
        (at, 'h') => (&text[..at], 3600.0),
        (at, 'd') => (&text[..at], 86400.0),
        _ => (text, 1.0),
    };
    let number = number.parse::<f64>().ok();
    number
        .filter(|number| *number >= 0.0)
        .map(|number| number * unit)
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn times_are_read_as_sleep_does() {
        let cases = [
            ("30", Some(30.0)),
            ("0.5m", Some(30.0)),
            ("1h", Some(3600.0)),
            ("2d", Some(172_800.0)),
            ("-1", None),
            ("s", None),
            ("", None),
            ("1x", None),
            ("nan", None),
        ];
        for (text, expected) in cases {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }
}
