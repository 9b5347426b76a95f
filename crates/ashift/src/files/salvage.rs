//! Copying what is left of files whose pool is damaged.
//!
//! # What it is
//! [`contents`] copies a file block by block where it has to; what cannot be read becomes a hole, and is said.
//! [`Salvage`] keeps what became of each file in a journal, which is also the report: a line for each name, with its
//! state, its path and what is lost, separated by tabs. One that is there is not copied again by the next run.
//!
//! # Invariants
//! 1. A file is only called whole after all of it was read, with its checksums, and written.
//! 2. A name is in the journal after its file is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::Path;

use base::{Context, Error, ErrorKind, Result};

use super::tree::Content;
use crate::caller;

/// The word for a data set that was gone before, and is copied now.
const OPENED: &str = "opened";

/// What was saved of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Left {
    Whole,
    /// All but these bytes, in which nothing is written.
    Partly(Vec<Range<u64>>),
    /// All of its content, but not its extended attributes.
    Bare(String),
    /// All of its content, unless what says how long it is is wrong.
    Unsure(String),
    /// The names that can be read, of a directory.
    Names(String),
    /// Nothing.
    Gone(String),
}

impl Left {
    fn word(&self) -> &'static str {
        match self {
            Left::Whole => "whole",
            Left::Partly(_) | Left::Bare(_) | Left::Unsure(_) => "partly",
            Left::Names(_) => "names",
            Left::Gone(_) => "gone",
        }
    }

    fn lost(&self) -> String {
        match self {
            Left::Whole => String::new(),
            Left::Partly(lost) => {
                let range = |range: &Range<u64>| format!("{}-{}", range.start, range.end - 1);
                lost.iter().map(range).collect::<Vec<_>>().join(",")
            }
            Left::Bare(why) => format!("extended attributes: {why}"),
            Left::Unsure(why) | Left::Names(why) | Left::Gone(why) => why.clone(),
        }
    }
}

/// What became of all files so far.
pub(super) struct Salvage {
    journal: File,
    /// The words of those that are in the journal, by path as written there.
    done: BTreeMap<String, String>,
    /// Objects of the present data set that a name led to.
    pub(super) reached: BTreeSet<u64>,
    /// What of the content of the present file is lost, and why its extended attributes are.
    pub(super) lost: Vec<Range<u64>>,
    pub(super) bare: Option<String>,
    said: Vec<String>,
}

impl Salvage {
    /// Goes on with the journal in a file, or begins one.
    ///
    /// # Errors
    /// What the host says of the file.
    pub(super) fn begin(path: &Path) -> Result<Salvage> {
        let name = || path.display().to_string();
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            other => other,
        };
        let text = text.map_err(Error::from).within(name)?;
        let whole_lines = text.rfind('\n').map_or(0, |end| end + 1);
        let parse = |line: &str| {
            let (word, rest) = line.split_once('\t')?;
            let path = rest.split('\t').next()?;
            Some((path.to_owned(), word.to_owned()))
        };
        let mut done: BTreeMap<String, String> =
            text[..whole_lines].lines().filter_map(parse).collect();
        done.retain(|_, word| word != OPENED);
        let journal = File::options().create(true).append(true).open(path);
        let journal = journal.map_err(Error::from).within(name)?;
        // A line that was cut off is written again.
        let cut = journal.set_len(whole_lines as u64);
        cut.map_err(Error::from).within(name)?;
        Ok(Salvage {
            journal,
            done,
            reached: BTreeSet::new(),
            lost: Vec::new(),
            bare: None,
            said: Vec::new(),
        })
    }

    /// What is left of the present file of this size, whose copy is complete.
    pub(super) fn left(&mut self, size: u64) -> Left {
        let bare = self.bare.take();
        match std::mem::take(&mut self.lost) {
            lost if lost.is_empty() => bare.map_or(Left::Whole, Left::Bare),
            lost if matches!(&lost[..], [all] if *all == (0..size)) => {
                Left::Gone("all of its content".to_owned())
            }
            lost => Left::Partly(lost),
        }
    }

    /// Whether an earlier run, or this one, has saved what there is of a file.
    pub(super) fn is_done(&self, path: &str) -> bool {
        let word = self.done.get(&escaped(path));
        word.is_some_and(|word| word == "whole" || word == "partly")
    }

    /// Notes what became of a file.
    ///
    /// # Errors
    /// Errors of writing the journal.
    pub(super) fn note(&mut self, path: &str, left: &Left) -> Result<()> {
        let (word, path, lost) = (left.word(), escaped(path), escaped(&left.lost()));
        if *left != Left::Whole {
            self.said.push(format!("{word:<6}  {path}  {lost}"));
        }
        if self.done.get(&path).is_some_and(|before| before == word) {
            return Ok(());
        }
        let written = writeln!(self.journal, "{word}\t{path}\t{lost}");
        written.map_err(Error::from).within(|| "the journal")?;
        self.done.insert(path, word.to_owned());
        Ok(())
    }

    /// Notes that a data set which was gone in an earlier run is copied: its files are in the journal from now on.
    ///
    /// # Errors
    /// Errors of writing the journal.
    pub(super) fn opened(&mut self, name: &str) -> Result<()> {
        let name = escaped(name);
        if self.done.get(&name).is_none_or(|word| word != "gone") {
            return Ok(());
        }
        self.done.remove(&name);
        let written = writeln!(self.journal, "{OPENED}\t{name}\t");
        written.map_err(Error::from).within(|| "the journal")
    }

    /// What is to be said of files that are not whole, since the last call.
    pub(super) fn take_said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said)
    }

    /// How many names have each word, of the state that was saved or of those before it. The paths of these begin with
    /// their txg, and no name of a pool begins with a digit.
    pub(super) fn counts(&self, of_earlier: bool) -> BTreeMap<&str, u64> {
        let is_earlier = |path: &str| path.starts_with(|first: char| first.is_ascii_digit());
        let mut counts = BTreeMap::new();
        for (path, word) in &self.done {
            if is_earlier(path) == of_earlier {
                *counts.entry(word.as_str()).or_insert(0) += 1;
            }
        }
        counts
    }
}

/// A path as it is in the journal: one field of one line.
fn escaped(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for c in path.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            c if c.is_control() => text.extend(c.escape_default()),
            c => text.push(c),
        }
    }
    text
}

/// Whether this says that something is damaged, and not that it cannot be written.
pub(super) fn is_damage(error: &Error) -> bool {
    use ErrorKind::{Checksum, Corrupt, Io, NotFound};
    matches!(error.kind(), Checksum | Corrupt | Io | NotFound)
}

/// Copies what can be read of a file of `size` bytes in blocks of `blksz`. Returns the ranges that cannot.
///
/// # Errors
/// Those of writing.
pub(super) fn contents(
    (from, to): (&mut dyn Content, &mut dyn Content),
    (size, blksz): (u64, u64),
    piece: &mut [u8],
    done: impl Fn(u64),
) -> Result<Vec<Range<u64>>> {
    let block = blksz.clamp(512, piece.len() as u64);
    let mut lost: Vec<Range<u64>> = Vec::new();
    let mut at = 0;
    while at < size {
        // Where it is not known what is a hole, all may be data.
        let (start, end) = match from.next_data(at, size) {
            Ok(None) => break,
            Ok(Some(data)) => data,
            Err(_) => (at, (at - at % block + block).min(size)),
        };
        at = start;
        let mut most = piece.len() as u64 / block * block;
        while at < end {
            caller::check();
            let length = (most - at % most).min(end - at);
            match from.read_at(at, &mut piece[..length as usize]) {
                Ok(read) if read as u64 == length => {
                    to.write_at(at, &piece[..read])?;
                    done(length);
                }
                // Once more, block by block: those around the damaged one are good.
                _ if length > block => {
                    most = block;
                    continue;
                }
                _ => match lost.last_mut() {
                    Some(last) if last.end == at => last.end = at + length,
                    _ => lost.push(at..at + length),
                },
            }
            at += length;
        }
    }
    to.set_size(size)?;
    Ok(lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut salvage = Salvage::begin(&path).unwrap();
        salvage.note("tank:/a\tb\n", &Left::Whole).unwrap();
        salvage
            .note("tank:/c", &Left::Partly(vec![0..512, 1024..2048]))
            .unwrap();
        salvage
            .note("tank:/d", &Left::Gone("checksum".to_owned()))
            .unwrap();
        assert_eq!(salvage.take_said().len(), 2);
        drop(salvage);
        let text = std::fs::read_to_string(&path).unwrap();
        let expected =
            "whole\ttank:/a\\tb\\n\t\npartly\ttank:/c\t0-511,1024-2047\ngone\ttank:/d\tchecksum\n";
        assert_eq!(text, expected);
        std::fs::write(&path, format!("{expected}whole\ttank:/e")).unwrap();
        let salvage = Salvage::begin(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
        assert!(salvage.is_done("tank:/a\tb\n") && salvage.is_done("tank:/c"));
        assert!(!salvage.is_done("tank:/d") && !salvage.is_done("tank:/e"));
        assert_eq!(salvage.counts(false).into_values().sum::<u64>(), 3);
        let mut salvage = salvage;
        salvage.opened("tank:/d").unwrap();
        salvage.opened("tank").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("{expected}opened\ttank:/d\t\n"));
        for salvage in [salvage, Salvage::begin(&path).unwrap()] {
            assert_eq!(salvage.counts(false).get("gone"), None);
        }
    }
    #[test]
    fn what_is_lost_of_a_file_is_said_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut salvage = Salvage::begin(&folder.path().join("journal")).unwrap();
        assert_eq!(salvage.left(0), Left::Whole);
        salvage.bare = Some("checksum".to_owned());
        let bare = salvage.left(10);
        assert_eq!(bare, Left::Bare("checksum".to_owned()));
        assert_eq!(
            (bare.word(), &*bare.lost()),
            ("partly", "extended attributes: checksum")
        );
        assert_eq!(salvage.left(10), Left::Whole, "the next file");
        salvage.lost = vec![0..4, 6..10];
        assert_eq!(salvage.left(10).lost(), "0-3,6-9");
        salvage.lost.push(0..10);
        assert_eq!(salvage.left(10).word(), "gone");
    }
}
