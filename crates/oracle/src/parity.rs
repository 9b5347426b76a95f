//! Compares the output of two programs, and checks that every difference was reviewed.
//!
//! # What it is
//! A list of command lines is run with the real tool (now, or earlier for a recording) and with its counterpart
//! here. [`difference`] returns the lines that only one of them printed. A review lists each command line that
//! differs, with the reason; [`Comparison`] complains of a difference that is not in the review, and of one in
//! the review that has vanished or changed, so that the review is always true.
//!
//! # The files
//! ```text
//! NAME CLASS WORDS…      a reason; harmless, follows, missing or wrong
//!
//! [NAME, …] COMMAND      in a review: why this command line differs
//! -1 LINE                a line that only the real tool printed; 1 is stdout, 2 stderr; `1.`: no newline
//! +exit 2                what only the tool here printed
//! ~PART                  instead: every differing line contains one of the parts, every part occurs in one
//! ```
//! A command line with nothing below it may differ in any way. `# …` is a comment.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The output of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The exit status.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Said {
    /// The lines of both streams, each after its stream number, and the exit status if it is not 0.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (number, text) in [(1, &self.out), (2, &self.err)] {
            lines.extend(text.split_inclusive('\n').map(|line| {
                let end = if line.ends_with('\n') { ' ' } else { '.' };
                format!("{number}{end}{}", line.trim_end_matches('\n'))
            }));
        }
        if self.code != 0 {
            lines.push(format!("exit {}", self.code));
        }
        lines
    }
}

/// How much a difference matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Different output with the same meaning.
    Harmless,
    /// A consequence of something missing in an earlier command.
    Follows,
    /// The command is not implemented yet, and is refused.
    Missing,
    /// The meaning differs: to be fixed.
    Wrong,
}

/// Named reasons for differences.
pub type Reasons = BTreeMap<String, Class>;

/// Marks a difference whose reason is not known yet.
const UNREVIEWED: &str = "?";

/// Reads a file of reasons.
///
/// # Panics
/// When a line of it is malformed.
#[must_use]
pub fn read_reasons(text: &str) -> Reasons {
    let reason = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let (Some(name), Some(class), Some(_)) = (words.next(), words.next(), words.next()) else {
            panic!("NAME CLASS WORDS…: {line}");
        };
        let class = match class {
            "harmless" => Class::Harmless,
            "follows" => Class::Follows,
            "missing" => Class::Missing,
            "wrong" => Class::Wrong,
            _ => panic!("harmless, follows, missing or wrong: {line}"),
        };
        (name.to_owned(), class)
    };
    said_lines(text).map(reason).collect()
}

/// Lines that are neither empty nor comments.
pub fn said_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// A difference and its reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Difference {
    reasons: Vec<String>,
    lines: Vec<String>,
}

fn read_review(text: &str) -> BTreeMap<String, Difference> {
    let mut review: BTreeMap<String, Difference> = BTreeMap::new();
    let mut last = None;
    for line in said_lines(text) {
        if let Some(rest) = line.strip_prefix('[') {
            let (reasons, command) = rest.split_once("] ").expect("[REASON] COMMAND");
            let entry = review.entry(command.to_owned()).or_default();
            entry.reasons = reasons.split(", ").map(str::to_owned).collect();
            last = Some(command);
        } else {
            let command = last.expect("a review begins with a command");
            let lines = &mut review.get_mut(command).expect("just added").lines;
            lines.push(line.to_owned());
        }
    }
    review
}

/// The number of command lines in each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// All that were compared.
    pub commands: usize,
    /// Identical, byte for byte.
    pub equal: usize,
    /// Different, but not misleading.
    pub harmless: usize,
    /// Different because of something missing earlier.
    pub follows: usize,
    /// Refused.
    pub missing: usize,
    /// Different otherwise, or not reviewed.
    pub wrong: usize,
}

impl Count {
    /// The heading of the table that `Display` prints the rows of.
    pub const HEADING: &str = "list         commands    equal harmless  follows  missing    wrong    equal of what is there";

    /// Adds another count.
    pub fn add(&mut self, other: &Count) {
        self.commands += other.commands;
        self.equal += other.equal;
        self.harmless += other.harmless;
        self.follows += other.follows;
        self.missing += other.missing;
        self.wrong += other.wrong;
    }

    /// Percentage of equal commands among those that are neither missing nor depend on something missing.
    #[must_use]
    pub fn percent_equal(&self) -> usize {
        self.equal * 100 / (self.commands - self.follows - self.missing).max(1)
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Count {
            commands,
            equal,
            harmless,
            follows,
            missing,
            wrong,
        } = self;
        for n in [commands, equal, harmless, follows, missing, wrong] {
            write!(f, "{n:>9}")?;
        }
        write!(f, " {:>8}%", self.percent_equal())
    }
}

/// The result of comparing a list with its review.
#[derive(Debug)]
pub struct Comparison<'r> {
    reasons: &'r Reasons,
    review: BTreeMap<String, Difference>,
    found: Vec<(String, Difference)>,
    /// The number of command lines in each class.
    pub count: Count,
    /// What needs to be changed in the program or in the review.
    pub complaints: Vec<String>,
}

impl<'r> Comparison<'r> {
    /// Begins a comparison with this review.
    #[must_use]
    pub fn new(reasons: &'r Reasons, review: &str) -> Self {
        Comparison {
            reasons,
            review: read_review(review),
            found: Vec::new(),
            count: Count::default(),
            complaints: Vec::new(),
        }
    }

    /// Compares the differing lines ([`difference`]) of a command line with the review.
    pub fn compare(&mut self, command: &str, lines: &[String]) {
        self.count.commands += 1;
        let known = self.review.get(command).cloned();
        if lines.is_empty() {
            self.count.equal += 1;
            if known.is_some() {
                self.complaints
                    .push(format!("no longer differs: {command}"));
            }
            return;
        }
        let mut known = known.unwrap_or_else(|| Difference {
            reasons: vec![UNREVIEWED.to_owned()],
            lines: lines.to_vec(),
        });
        if let Some(text) = unlike(&known.lines, lines) {
            self.complaints.push(format!(
                "differs otherwise than reviewed: {command}\n{text}"
            ));
            known.lines = lines.to_vec();
        }
        for reason in known
            .reasons
            .iter()
            .filter(|r| !self.reasons.contains_key(*r))
        {
            let text = lines.join("\n");
            self.complaints
                .push(format!("no such reason as '{reason}': {command}\n{text}"));
        }
        match known
            .reasons
            .iter()
            .filter_map(|r| self.reasons.get(r))
            .max()
        {
            Some(Class::Harmless) => self.count.harmless += 1,
            Some(Class::Follows) => self.count.follows += 1,
            Some(Class::Missing) => self.count.missing += 1,
            Some(Class::Wrong) | None => self.count.wrong += 1,
        }
        self.found.push((command.to_owned(), known));
    }

    /// Complains of command lines in the review that are not in the list.
    pub fn check_list<'c>(&mut self, commands: impl Iterator<Item = &'c str>) {
        let commands: BTreeSet<&str> = commands.collect();
        let gone = self
            .review
            .keys()
            .filter(|c| !commands.contains(c.as_str()));
        self.complaints
            .extend(gone.map(|c| format!("no longer in the list: {c}")));
    }

    /// The reasons of all differences found.
    pub fn used_reasons(&self) -> impl Iterator<Item = &str> {
        self.found
            .iter()
            .flat_map(|(_, d)| &d.reasons)
            .map(String::as_str)
    }

    /// The review as it should be: known reasons are kept, new ones are `?`.
    #[must_use]
    pub fn review(&self) -> String {
        let mut text = String::from(
            "# Written by PARITY_UPDATE=1; the reasons in brackets are kept and are those of reasons.txt.\n",
        );
        for (command, difference) in &self.found {
            text += &format!("\n[{}] {command}\n", difference.reasons.join(", "));
            for line in &difference.lines {
                text.extend([line, "\n"]);
            }
        }
        text
    }
}

/// Returns what differs from the reviewed lines, if anything.
fn unlike(reviewed: &[String], lines: &[String]) -> Option<String> {
    let parts: Option<Vec<&str>> = reviewed.iter().map(|r| r.strip_prefix('~')).collect();
    let Some(parts) = parts else {
        return (reviewed != lines).then(|| lines.join("\n"));
    };
    if parts.is_empty() {
        return None;
    }
    let has_any = |line: &&String| parts.iter().any(|part| line.contains(part));
    let is_gone = |part: &&&str| !lines.iter().any(|line| line.contains(**part));
    let strange = lines.iter().find(|line| !has_any(line)).cloned();
    strange.or_else(|| {
        parts
            .iter()
            .find(is_gone)
            .map(|part| format!("nothing has '{part}' any more"))
    })
}

/// The differing lines: `-…` only in `real`, `+…` only in `here`; empty if there are none.
#[must_use]
pub fn difference(real: &Said, here: &Said) -> Vec<String> {
    let (real, here) = (real.lines(), here.lines());
    let start = real.iter().zip(&here).take_while(|(x, y)| x == y).count();
    let (a, b) = (&real[start..], &here[start..]);
    let ends = a.iter().rev().zip(b.iter().rev());
    let end = ends.take_while(|(x, y)| x == y).count();
    let (a, b) = (&a[..a.len() - end], &b[..b.len() - end]);
    let only_real = |line: &String| format!("-{line}");
    let only_here = |line: &String| format!("+{line}");
    let Some(trace) = shortest_edits(a, b) else {
        return a
            .iter()
            .map(only_real)
            .chain(b.iter().map(only_here))
            .collect();
    };
    let mut lines = Vec::new();
    let (mut x, mut y) = (a.len() as isize, b.len() as isize);
    for (edits, reach) in trace.iter().enumerate().skip(1).rev() {
        let edits = edits as isize;
        let k = x - y;
        let from = step(reach, edits, k);
        let from_x = reach[(from + edits) as usize];
        let from_y = from_x - from;
        if from > k {
            lines.push(only_here(&b[from_y as usize]));
        } else {
            lines.push(only_real(&a[from_x as usize]));
        }
        (x, y) = (from_x, from_y);
    }
    lines.reverse();
    lines
}

/// The most edits that are searched for; texts that differ in more lines are not aligned.
const EDITS_MAX: isize = 2000;

/// The diagonal from which edit number `edits` reaches diagonal `k`; `reach`: the furthest x reached so far on
/// each of the diagonals from `-edits` on.
fn step(reach: &[isize], edits: isize, k: isize) -> isize {
    let at = |k: isize| reach[(k + edits) as usize];
    if k == -edits || (k != edits && at(k - 1) < at(k + 1)) {
        k + 1
    } else {
        k - 1
    }
}

/// For each edit, how far the diagonals had reached before it: E. Myers, "An O(ND) difference algorithm and its
/// variations". `None` when there are too many edits.
fn shortest_edits(a: &[String], b: &[String]) -> Option<Vec<Vec<isize>>> {
    let (n, m) = (a.len() as isize, b.len() as isize);
    let slide = |mut x: isize, k: isize| {
        while x < n && x - k < m && a[x as usize] == b[(x - k) as usize] {
            x += 1;
        }
        x
    };
    // Diagonals from -edits to edits; those that cannot be reached have -1.
    let mut reach = vec![slide(0, 0)];
    let mut trace = vec![Vec::new()];
    if reach[0] >= n && reach[0] >= m {
        return Some(trace);
    }
    for edits in 1..=EDITS_MAX {
        let mut before = vec![-1; 2 * edits as usize + 1];
        before[1..2 * edits as usize].copy_from_slice(&reach);
        reach = (-edits..=edits)
            .map(|k| {
                let from = step(&before, edits, k);
                let x = before[(from + edits) as usize];
                let x = if from > k { x } else { x + 1 };
                if x < 0 || x > n || x - k > m || x < k {
                    return -1;
                }
                slide(x, k)
            })
            .collect();
        trace.push(before);
        let goal = n - m;
        if goal.abs() <= edits && reach[(goal + edits) as usize] >= n {
            return Some(trace);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(out: &str) -> Said {
        Said {
            out: out.to_owned(),
            ..Said::default()
        }
    }

    #[test]
    fn lines_that_only_one_says_are_found() {
        let (a, b) = (said("1\n2\n3\n4\n"), said("1\n3\nx\n4\n"));
        assert_eq!(difference(&a, &b), ["-1 2", "+1 x"]);
        assert!(difference(&a, &a).is_empty());
        assert_eq!(difference(&said("a"), &said("a\n")), ["-1.a", "+1 a"]);
        let failed = Said {
            code: 2,
            ..a.clone()
        };
        assert_eq!(difference(&a, &failed), ["+exit 2"]);
    }

    #[test]
    fn prop_differences_turn_one_text_into_the_other() {
        let mut state = 7u64;
        let mut next = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..300 {
            let mut text =
                || -> String { (0..next(12)).map(|_| format!("{}\n", next(4))).collect() };
            let (a, b) = (said(&text()), said(&text()));
            let lines = difference(&a, &b);
            let count = |sign| lines.iter().filter(|line| line.starts_with(sign)).count();
            assert_eq!(
                a.lines().len() - count('-'),
                b.lines().len() - count('+'),
                "{a:?} {b:?} {lines:?}"
            );
            assert_eq!(lines.is_empty(), a == b, "{a:?} {b:?}");
        }
    }

    #[test]
    fn reviews_have_to_be_true() {
        let reasons = read_reasons("# why\nsame harmless It means the same.\n");
        let complaints = |review: &str, lines: &[&str]| {
            let mut comparison = Comparison::new(&reasons, review);
            let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            comparison.compare("x", &lines);
            comparison.check_list(["x"].into_iter());
            comparison.complaints.len()
        };
        assert_eq!(complaints("", &[]), 0);
        assert_eq!(complaints("", &["-1 old"]), 1);
        assert_eq!(complaints("[same] x\n-1 old\n", &["-1 old"]), 0);
        assert_eq!(complaints("[same] x\n-1 older\n", &["-1 old"]), 1);
        assert_eq!(complaints("[same] x\n~old\n", &["-1 old"]), 0);
        assert_eq!(complaints("[same] x\n~new\n", &["-1 old"]), 1);
        assert_eq!(complaints("[same] x\n~old\n~new\n", &["-1 old"]), 1);
        assert_eq!(complaints("[same] x\n", &["-1 old"]), 0);
        assert_eq!(complaints("[same] x\n", &[]), 1);
        assert_eq!(complaints("[other] x\n", &["-1 old"]), 1);
        assert_eq!(complaints("[same] y\n", &[]), 1);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let reasons = read_reasons("same harmless It means the same.\n");
        let review = "[same] x\n-1 a\n+1 b\n";
        let mut comparison = Comparison::new(&reasons, review);
        comparison.compare("x", &["-1 a".to_owned(), "+1 b".to_owned()]);
        assert!(comparison.review().ends_with(review));
        assert_eq!(comparison.count.harmless, 1);
        assert_eq!(comparison.used_reasons().collect::<Vec<_>>(), ["same"]);
    }
}
