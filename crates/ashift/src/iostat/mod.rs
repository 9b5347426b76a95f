//! `ashift iostat`: what the drives of a machine have done since it was switched on, or in each interval.
//!
//! # What it is
//! The counts are those of the drives, on the machine's clock; they are kept with what is in the drives' caches, so a
//! machine that is not up shows them, too. What runs beside it is another command of a machine that is up, or a job of
//! a script.

mod layout;
pub(crate) mod rates;

use admin::getopt::{Flag, Parsed};

use crate::caller;
use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use crate::system::system;
use layout::Layout;
use rates::{Look, look};

const USAGE: &str = "\
usage: ashift iostat -x [-dkmyz] [-w SECS] [-c COUNT] [--system freebsd|linux] [DRIVE…] [SECS [COUNT]]
";

const MORE: &str = "
Shows the drives of a machine (-m): first what they have done since the machine was switched on, then, with SECS, what
they do in each interval of its time. It does not end by itself without COUNT; COUNT alone means every second.
  -x         extended statistics; there are no others
  -w, -c     the same as SECS and COUNT
  -d         devices only, as here in any case
  -k, -m     on Linux: KiB, or MiB, in each second
  -y         without the report since the machine was switched on
  -z         without drives that did nothing
  --system   print as FreeBSD or as Linux (sysstat 12) does; if it is not given, as the machine's host would:
             FreeBSD's if that is one (`ashift machine create --host freebsd-13`), Linux's otherwise
A drive counts a command from when it gets it until it says that it is done, from or into its cache. Linux leaves a
drive out that has not done anything yet, unless it is named; nothing merges requests after ZFS: these columns are 0.
";

/// Longest interval, in seconds: a hundred years.
const SECS_MAX: f64 = 3.2e9;

pub(crate) const IOSTAT: Command<Entry> = Command::parsed(
    "iostat",
    "what the drives of a machine do, second by second",
    USAGE,
    ("c:dkmS:w:xyz", 0),
    run,
)
.long(&[("system", Flag::Short('S'))])
.more(MORE);

/// Which reports are wanted.
#[derive(Debug, Default, PartialEq)]
struct Rounds {
    drives: Vec<String>,
    interval_s: Option<f64>,
    count: Option<u64>,
}

fn run(args: &Parsed) -> Outcome {
    if !args.has('x') {
        let text = "only extended statistics are there: -x is needed";
        return Err(Fail::Usage(text.to_owned()));
    }
    if args.has('k') && args.has('m') {
        return Err(Fail::Usage("-k and -m exclude each other".to_owned()));
    }
    let rounds = Rounds::of(args)?;
    let layout = Layout {
        system: system(args.value('S'))?,
        is_in_mib: args.has('m'),
        omits_idle: args.has('z'),
        is_of_named: !rounds.drives.is_empty(),
    };
    rounds.run(layout, args.has('y'))
}

impl Rounds {
    fn of(args: &Parsed) -> Outcome<Rounds> {
        let mut rounds = Rounds::default();
        let is_number = |word: &&String| word.starts_with(|first: char| first.is_ascii_digit());
        let (numbers, drives): (Vec<_>, Vec<_>) = args.operands.iter().partition(is_number);
        rounds.drives = drives.into_iter().cloned().collect();
        let [interval, count] = match numbers[..] {
            [] => [None, None],
            [interval] => [Some(interval), None],
            [interval, count] => [Some(interval), Some(count)],
            _ => return Err(Fail::Usage("more than two numbers".to_owned())),
        };
        let interval = interval.map(String::as_str).or(args.value('w'));
        let count = count.map(String::as_str).or(args.value('c'));
        rounds.interval_s = interval.map(seconds).transpose()?;
        rounds.count = count.map(at_least_one).transpose()?;
        if rounds.count.is_some() {
            rounds.interval_s.get_or_insert(1.0);
        }
        Ok(rounds)
    }

    fn run(&self, layout: Layout, omits_first: bool) -> Outcome {
        let mut before: Vec<Look> = Vec::new();
        let mut left = match self.interval_s {
            None => Some(1),
            Some(_) => self.count,
        };
        let mut is_omitted = omits_first && self.interval_s.is_some();
        loop {
            let looks = look(&self.drives)?;
            if !std::mem::take(&mut is_omitted) {
                let drives = looks.iter().map(|now| (&*now.name, now.since(&before)));
                print!("{}", layout.report(&drives.collect::<Vec<_>>()));
                left = left.map(|left| left - 1);
            }
            if left == Some(0) {
                return Ok(());
            }
            before = looks;
            let interval_s = self.interval_s.unwrap_or(1.0);
            caller::sleep_ns((interval_s * 1e9) as u64);
        }
    }
}

fn seconds(text: &str) -> Outcome<f64> {
    let secs = text
        .parse()
        .ok()
        .filter(|secs| (1e-3..=SECS_MAX).contains(secs));
    secs.ok_or_else(|| Fail::Failed(format!("'{text}' is not an interval in seconds")))
}

fn at_least_one(text: &str) -> Outcome<u64> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| Fail::Failed(format!("'{text}' is not a number of reports")))
}

#[cfg(test)]
mod tests {
    use admin::getopt::{OptSpec, parse};

    use super::*;

    fn rounds(line: &str) -> Outcome<Rounds> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let short = "c:dkmS:w:xyz";
        let parsed = parse(&OptSpec { short, long: &[] }, &words);
        Rounds::of(&parsed.unwrap())
    }

    #[test]
    fn intervals_and_counts_are_read_as_both_systems_write_them() {
        let of = |drives: &[&str], interval_s, count| Rounds {
            drives: drives.iter().map(|&name| name.to_owned()).collect(),
            interval_s,
            count,
        };
        let cases = [
            ("", of(&[], None, None)),
            ("1 5", of(&[], Some(1.0), Some(5))),
            ("-w 2 -c 3 ada0", of(&["ada0"], Some(2.0), Some(3))),
            ("-c 3", of(&[], Some(1.0), Some(3))),
            ("ada0 ada1 0.5", of(&["ada0", "ada1"], Some(0.5), None)),
            ("10 ada1 2", of(&["ada1"], Some(10.0), Some(2))),
        ];
        for (line, expected) in cases {
            assert_eq!(rounds(line).unwrap(), expected, "{line}");
        }
        for line in ["1 2 3", "0", "-w x", "-c 0", "1 1.5", "-w -1", "1e99", "0x"] {
            assert!(rounds(line).is_err(), "{line}");
        }
    }
}
