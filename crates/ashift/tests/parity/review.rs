//! The differences that were looked at, each with its reason.
//!
//! `reviewed/reasons.txt` has one reason a line: `NAME CLASS WORDS…`. `reviewed/LIST.txt` has each command that
//! differs as `[REASON, …] SECTION > COMMAND`, then the difference: `-` what the real tools print, `+` what this
//! program prints.

use std::collections::BTreeMap;
use std::path::Path;

use crate::lists::Command;
use crate::recording::lines;
use crate::runner::Said;

/// How much a difference matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// It reads differently and means the same.
    Harmless,
    /// It follows from something missing before.
    Follows,
    /// What was asked for is not there yet, and is refused.
    Missing,
    /// It means something else, and is to be mended.
    Wrong,
}

pub(crate) type Reasons = BTreeMap<String, Class>;

/// Stands for a reason that is still to be found.
pub(crate) const UNREVIEWED: &str = "?";

/// One difference and why it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) reasons: Vec<String>,
    pub(crate) lines: Vec<String>,
}

/// The reviewed differences of a list.
pub(crate) type Review = BTreeMap<Command, Difference>;

pub(crate) fn read_reasons(folder: &Path) -> Reasons {
    let text = std::fs::read_to_string(folder.join("reasons.txt")).expect("reasons.txt");
    let lines = text
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.splitn(3, ' ').map(str::trim);
            let mut next = || words.next().filter(|w| !w.is_empty());
            let (Some(name), Some(class), Some(_)) = (next(), next(), next()) else {
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
        })
        .collect()
}

pub(crate) fn read(text: &str) -> Review {
    let mut review = Review::new();
    let mut last: Option<&mut Difference> = None;
    for line in text
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
    {
        if let Some(rest) = line.strip_prefix('[') {
            let (reasons, command) = rest.split_once("] ").expect("[REASON] COMMAND");
            let difference = Difference {
                reasons: reasons.split(", ").map(str::to_owned).collect(),
                lines: Vec::new(),
            };
            last = Some(review.entry(Command::parse(command)).or_insert(difference));
        } else {
            let last = last.as_mut().expect("a review begins with a command");
            last.lines.push(line.to_owned());
        }
    }
    review
}

pub(crate) fn write<'a>(
    differences: impl Iterator<Item = (&'a Command, &'a Difference)>,
) -> String {
    let mut text = String::from(
        "# Written by PARITY_UPDATE=1; the reasons in brackets are kept and are those of reasons.txt.\n",
    );
    for (command, difference) in differences {
        text += &format!("\n[{}] {command}\n", difference.reasons.join(", "));
        for line in &difference.lines {
            text.extend([line, "\n"]);
        }
    }
    text
}

/// What differs, line by line; nothing if nothing does.
pub(crate) fn difference(real: &Said, here: &Said) -> Vec<String> {
    let (real, here) = (lines(real), lines(here));
    // Lengths of the longest common subsequences of the rests.
    let mut common = vec![vec![0_usize; here.len() + 1]; real.len() + 1];
    for i in (0..real.len()).rev() {
        for j in (0..here.len()).rev() {
            common[i][j] = if real[i] == here[j] {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut found = Vec::new();
    while i < real.len() || j < here.len() {
        if i < real.len() && j < here.len() && real[i] == here[j] {
            (i, j) = (i + 1, j + 1);
        } else if i < real.len() && (j == here.len() || common[i + 1][j] >= common[i][j + 1]) {
            found.push(format!("-{}", real[i]));
            i += 1;
        } else {
            found.push(format!("+{}", here[j]));
            j += 1;
        }
    }
    found
}
