//! `ashift gstat -b`: what the drives of a machine do, as FreeBSD's gstat prints it in batch mode.
//!
//! # Source
//! FreeBSD usr.sbin/gstat/gstat.c.

use admin::getopt::Parsed;
use regex::Regex;

use crate::caller::{self, Stream, caller};
use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use crate::iostat::rates::{Commands, Look, Rates, look};

const USAGE: &str = "usage: ashift gstat -b|-B [-adops] [-f FILTER] [-I INTERVAL]\n";

const MORE: &str = "
Shows what the drives of a machine (-m) do in an interval of its time, in the columns of FreeBSD's gstat.
  -b   one report, then the end; this is meant if stdout is not a terminal
  -B   a report for each interval, without end
  -a   only drives that were busy for 0.1 % of it
  -d   deletes (trims), too
  -f   only drives whose name has a match of this regular expression
  -I   the length of the interval in microseconds, or with a unit: 500ms, 2s; otherwise a second
  -o   other commands (flushes), too
  -p   only physical providers, as here in any case: partitions, nop and eli count nothing
  -s   the size of reads, writes and deletes, too
There is no display that fills a screen, none of consumers (-c) and no CSV (-C).
";

/// How long it looks if nothing is said: a second, in microseconds.
const INTERVAL_US: u64 = 1_000_000;
/// The longest interval, in microseconds: a day.
const INTERVAL_US_MAX: u64 = 86_400_000_000;

pub(crate) const GSTAT: Command<Entry> = Command::parsed(
    "gstat",
    "the same in the columns of FreeBSD's gstat -b",
    USAGE,
    ("abBdf:I:ops", 0),
    run,
)
.more(MORE);

/// Which columns there are.
#[derive(Clone, Copy, Debug, Default)]
struct Columns {
    has_deletes: bool,
    has_others: bool,
    has_sizes: bool,
}

fn run(args: &Parsed) -> Outcome {
    if let Some(word) = args.operands.first() {
        return Err(Fail::Usage(format!(
            "'{word}' is too much: drives are chosen by -f"
        )));
    }
    if !args.has('b') && !args.has('B') && caller().is_terminal(Stream::Out) {
        let text = "there is no display that fills a screen: -b or -B is needed";
        return Err(Fail::Usage(text.to_owned()));
    }
    let filter = args.value('f').map(|text| {
        let invalid = |_| Fail::Failed(format!("'{text}' is not a regular expression"));
        Regex::new(text).map_err(invalid)
    });
    let filter = filter.transpose()?;
    let interval_us = args.value('I').map_or(Ok(INTERVAL_US), interval_us)?;
    let columns = Columns {
        has_deletes: args.has('d'),
        has_others: args.has('o'),
        has_sizes: args.has('s'),
    };
    let mut before = look(&[])?;
    let mut began_ns = rt::now_ns();
    loop {
        caller::sleep_ns(interval_us * 1000);
        let (now, now_ns) = (look(&[])?, rt::now_ns());
        let took_s = (now_ns - began_ns) as f64 / 1e9;
        let mut text = heading(took_s, interval_us, args.value('f'), columns);
        let is_shown =
            |look: &&Look| (filter.as_ref()).is_none_or(|regex| regex.is_match(&look.name));
        for drive in now.iter().filter(is_shown) {
            let rates = drive.since(&before);
            if !args.has('a') || rates.busy_percent() >= 0.1 {
                text += &columns.line(&drive.name, &rates);
            }
        }
        print!("{text}");
        if !args.has('B') {
            return Ok(());
        }
        (before, began_ns) = (now, now_ns);
    }
}

/// A number of microseconds, or with a unit.
fn interval_us(text: &str) -> Outcome<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor = match &text[digits.len()..] {
        "" | "us" => Some(1),
        "ms" => Some(1000),
        "s" => Some(1_000_000),
        _ => None,
    };
    let number = digits.parse().ok();
    let interval = number
        .zip(factor)
        .and_then(|(number, factor): (u64, u64)| number.checked_mul(factor));
    let interval = interval.filter(|us| (1..=INTERVAL_US_MAX).contains(us));
    interval.ok_or_else(|| Fail::Failed(format!("'{text}' is not an interval")))
}

/// The two lines above the drives.
fn heading(took_s: f64, interval_us: u64, filter: Option<&str>, columns: Columns) -> String {
    let filter = filter.map_or_else(String::new, |text| format!("  filter: {text}"));
    let interval_s = interval_us as f64 / 1e6;
    format!(
        "dT: {took_s:5.3}s  w: {interval_s:.3}s{filter}\n{}",
        columns.header()
    )
}

impl Columns {
    fn header(self) -> String {
        let size = if self.has_sizes { "     kB" } else { "" };
        let kind = |letter: char| format!(" {letter}/s{size}   kBps   ms/{letter}   ");
        let mut text = format!(" L(q)  ops/s   {}{}", kind('r'), kind('w'));
        if self.has_deletes {
            text += &kind('d');
        }
        if self.has_others {
            text += " o/s   ms/o   ";
        }
        text + "%busy Name\n"
    }

    fn line(self, name: &str, rates: &Rates) -> String {
        let ops = |commands: Commands| format!(" {:6.0}", rates.per_sec(commands.count));
        let ms = |commands: Commands| match commands.ms_each() {
            ms if ms > 1e3 => format!(" {ms:6.0}"),
            ms => format!(" {ms:6.1}"),
        };
        let kind = |commands: Commands| {
            let size = match self.has_sizes {
                true => format!(" {:6.0}", commands.kib_each()),
                false => String::new(),
            };
            let kbps = rates.kib_per_sec(commands);
            format!("{}{size} {kbps:6.0}{}", ops(commands), ms(commands))
        };
        let mut text = format!(" {:4}{}", rates.queue_length, ops(rates.all()));
        text += &(kind(rates.reads) + &kind(rates.writes));
        if self.has_deletes {
            text += &kind(rates.trims);
        }
        if self.has_others {
            text += &(ops(rates.flushes) + &ms(rates.flushes));
        }
        format!("{text} {:6.1}  {name}\n", rates.busy_percent())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iostat::rates::tests::example;

    #[test]
    fn reports_have_the_columns_of_gstat() {
        let columns = Columns::default();
        assert_eq!(
            heading(1.001, 1_000_000, Some("ada"), columns),
            "dT: 1.001s  w: 1.000s  filter: ada\n \
             L(q)  ops/s    r/s   kBps   ms/r    w/s   kBps   ms/w   %busy Name\n"
        );
        assert_eq!(
            columns.line("ada0", &Rates::default()),
            "    0      0      0      0    0.0      0      0    0.0    0.0  ada0\n"
        );
        assert_eq!(
            columns.line("ada0", &example()),
            "    3    174    150   2400    4.2     20   2624   12.2   61.7  ada0\n"
        );
        let all = Columns {
            has_deletes: true,
            has_others: true,
            has_sizes: true,
        };
        assert_eq!(
            all.header() + &all.line("ada0", &example()),
            " L(q)  ops/s    r/s     kB   kBps   ms/r    w/s     kB   kBps   ms/w    d/s     kB   kBps   ms/d    \
             o/s   ms/o   %busy Name\n    3    174    150     16   2400    4.2     20    128   2624   12.2      1   \
             1024   1024    1.5      2   12.5   61.7  ada0\n"
        );
    }

    #[test]
    fn intervals_have_the_units_of_gstat() {
        let cases = [
            ("500000", 500_000),
            ("500ms", 500_000),
            ("2s", 2_000_000),
            ("7us", 7),
        ];
        for (text, expected) in cases {
            assert_eq!(interval_us(text).unwrap(), expected, "{text}");
        }
        for text in [
            "",
            "s",
            "0",
            "-1s",
            "1m",
            "1.5s",
            "99999999999999999999s",
            "18446744073709551615s",
        ] {
            assert!(interval_us(text).is_err(), "{text}");
        }
    }
}
