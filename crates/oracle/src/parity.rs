//! Two programs side by side: what differs in what they say, and whether that was reviewed.
//!
//! # What it is
//! A list of command lines is run under a real tool and under its counterpart here. [`compare`]
//! gives the lines that only one of them says. A file of [`Difference`]s has, for each command line
//! that differs, why it may. A difference that is not in the file fails, and so does one in the
//! file that is not there any more: the file says what is true.

use std::fmt;

/// What a program said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The exit status.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Why two programs may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nobody is misled by it.
    Harmless,
    /// What the real one does is not there, and this one says so.
    Missing,
}

/// A difference that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The command line, as the list has it.
    pub command: String,
    /// Why it may be.
    pub verdict: Verdict,
    /// The same in words.
    pub reason: String,
    /// Every line that differs contains one of these, and every one of these is in such a line.
    /// Empty: any lines may differ.
    pub lines: Vec<String>,
}

/// How many command lines are what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// The same to the byte.
    pub equal: usize,
    /// Different, and nobody is misled.
    pub harmless: usize,
    /// Refused.
    pub missing: usize,
    /// Different otherwise.
    pub wrong: usize,
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Statistics {
            equal,
            harmless,
            missing,
            wrong,
        } = *self;
        let there = (equal + harmless + wrong).max(1);
        let all = there.max(equal + harmless + wrong) + missing;
        write!(
            f,
            "of {all} command lines {equal} are equal, {harmless} differ harmlessly, {missing} are \
             missing, {wrong} differ otherwise; of those that are there {} % are equal",
            equal * 100 / there
        )
    }
}

/// The lines that differ: `out -…` only the real one says, `out +…` only the other one, the same
/// for `err`, and `code REAL/OTHER`.
#[must_use]
pub fn compare(real: &Output, other: &Output) -> Vec<String> {
    let mut lines = Vec::new();
    if real.code != other.code {
        lines.push(format!("code {}/{}", real.code, other.code));
    }
    for (stream, a, b) in [
        ("out", &real.stdout, &other.stdout),
        ("err", &real.stderr, &other.stderr),
    ] {
        for (sign, line) in differing_lines(a, b) {
            lines.push(format!("{stream} {sign}{line}"));
        }
    }
    lines
}

/// Texts that differ in more lines than this are not aligned.
const EDITS_MAX: isize = 2000;

/// What stands between the lines that both texts have in the same order.
fn differing_lines<'t>(a: &'t str, b: &'t str) -> Vec<(char, &'t str)> {
    let a: Vec<&str> = a.split('\n').collect();
    let b: Vec<&str> = b.split('\n').collect();
    let start = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let (a, b) = (&a[start..], &b[start..]);
    let ends = a.iter().rev().zip(b.iter().rev());
    let end = ends.take_while(|(x, y)| x == y).count();
    let (a, b) = (&a[..a.len() - end], &b[..b.len() - end]);
    let Some(trace) = shortest_edits(a, b) else {
        let removed = a.iter().map(|line| ('-', *line));
        return removed.chain(b.iter().map(|line| ('+', *line))).collect();
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
            lines.push(('+', b[from_y as usize]));
        } else {
            lines.push(('-', a[from_x as usize]));
        }
        (x, y) = (from_x, from_y);
    }
    lines.reverse();
    lines
}

/// The diagonal from which diagonal `k` is reached by edit number `edits`; `reach`: how far each of
/// the diagonals from `-edits` on reached before.
fn step(reach: &[isize], edits: isize, k: isize) -> isize {
    let at = |k: isize| reach[(k + edits) as usize];
    if k == -edits || (k != edits && at(k - 1) < at(k + 1)) {
        k + 1
    } else {
        k - 1
    }
}

/// For each edit, how far the diagonals reached before it: E. Myers, "An O(ND) difference
/// algorithm and its variations". None when there are too many edits.
fn shortest_edits(a: &[&str], b: &[&str]) -> Option<Vec<Vec<isize>>> {
    let (n, m) = (a.len() as isize, b.len() as isize);
    let slide = |mut x: isize, k: isize| {
        while x < n && x - k < m && a[x as usize] == b[(x - k) as usize] {
            x += 1;
        }
        x
    };
    // Diagonals from -edits to edits; those that cannot be reached are far behind.
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

/// Judges what differs by what was reviewed; complaints for what was not, or is not so any more.
///
/// # Errors
/// What is to be changed in the program or in the file.
pub fn judge(
    command: &str,
    lines: &[String],
    reviewed: &[Difference],
) -> Result<Option<Verdict>, String> {
    let found = reviewed
        .iter()
        .find(|difference| difference.command == command);
    let Some(difference) = found else {
        if lines.is_empty() {
            return Ok(None);
        }
        let some: Vec<&str> = lines.iter().take(12).map(String::as_str).collect();
        let more = lines.len().saturating_sub(some.len());
        return Err(format!(
            "{command}: differs\n    {}\n    ({more} more)",
            some.join("\n    ")
        ));
    };
    if lines.is_empty() {
        return Err(format!("{command}: is equal now, the review has to go"));
    }
    if difference.lines.is_empty() {
        return Ok(Some(difference.verdict));
    }
    let is_known = |line: &&String| difference.lines.iter().any(|part| line.contains(part));
    if let Some(line) = lines.iter().find(|line| !is_known(line)) {
        return Err(format!(
            "{command}: differs in a way not reviewed\n    {line}"
        ));
    }
    let is_there = |part: &&String| lines.iter().any(|line| line.contains(&**part));
    if let Some(part) = difference.lines.iter().find(|part| !is_there(part)) {
        return Err(format!("{command}: nothing differs in '{part}' any more"));
    }
    Ok(Some(difference.verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(stdout: &str) -> Output {
        Output {
            stdout: stdout.to_owned(),
            ..Output::default()
        }
    }

    #[test]
    fn lines_that_only_one_says_are_found() {
        let (a, b) = (output("1\n2\n3\n4\n"), output("1\n3\nx\n4\n"));
        assert_eq!(compare(&a, &b), ["out -2", "out +x"]);
        assert!(compare(&a, &a).is_empty());
        assert_eq!(compare(&output("a"), &output("b")), ["out -a", "out +b"]);
        let failed = Output {
            code: 2,
            ..a.clone()
        };
        assert_eq!(compare(&a, &failed), ["code 0/2"]);
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
                || -> Vec<String> { (0..next(12)).map(|_| next(4).to_string()).collect() };
            let (a, b) = (text(), text());
            let (x, y) = (a.join("\n"), b.join("\n"));
            let lines = differing_lines(&x, &y);
            let count = |sign| lines.iter().filter(|(s, _)| *s == sign).count();
            let lengths = (x.split('\n').count(), y.split('\n').count());
            assert_eq!(
                lengths.0 - count('-'),
                lengths.1 - count('+'),
                "{a:?} {b:?} {lines:?}"
            );
            assert_eq!(lines.is_empty(), x == y, "{a:?} {b:?}");
        }
    }

    #[test]
    fn reviews_have_to_be_true() {
        let review = |lines: &[&str]| {
            vec![Difference {
                command: "x".to_owned(),
                verdict: Verdict::Harmless,
                reason: "a test".to_owned(),
                lines: lines.iter().map(|line| (*line).to_owned()).collect(),
            }]
        };
        let lines = ["out -old".to_owned()];
        assert!(judge("x", &lines, &[]).is_err());
        assert_eq!(judge("y", &[], &[]), Ok(None));
        assert_eq!(
            judge("x", &lines, &review(&["old"])),
            Ok(Some(Verdict::Harmless))
        );
        assert!(judge("x", &lines, &review(&["new"])).is_err());
        assert!(judge("x", &lines, &review(&["old", "new"])).is_err());
        assert!(judge("x", &[], &review(&[])).is_err());
    }
}
