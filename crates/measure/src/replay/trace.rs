//! Block traces as text: fio's logs, and what blkparse prints.
//!
//! # Source
//! fio 3.33, by what it writes and its manual ("Trace file format"): version 2 has `FILE ACTION [OFFSET LENGTH]`, whose
//! `wait` gives microseconds after the `wait` before; in version 3 each line begins with microseconds since the start.
//! blkparse(1) of blktrace: device, processor, number, seconds, process, action, kind, sector `+` sectors.

use std::collections::BTreeSet;

use base::{Error, Result};

/// What a traced command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Says that a range is not needed any more.
    Trim,
    /// Asks for what was written to survive a loss of power.
    Flush,
}

impl Kind {
    /// All, in the order in which they are shown.
    pub const ALL: [Kind; 4] = [Kind::Read, Kind::Write, Kind::Trim, Kind::Flush];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Trim => "trim",
            Kind::Flush => "flush",
        }
    }
}

/// A command of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
    /// When it was issued, after the first one.
    pub at_ns: u64,
    /// What it does.
    pub kind: Kind,
    /// Its first byte.
    pub offset: u64,
    /// Its bytes; 0 for a flush.
    pub len: u64,
    /// The line of the trace.
    pub line: usize,
}

/// The unit of sectors in a block trace, whatever the disk has.
const SECTOR_BYTES: u64 = 512;

/// The largest command: what a buffer is held for.
const LEN_MAX: u64 = 64 << 20;

const NS_PER_US: u64 = 1_000;

/// A command and what the trace calls the file or device that it is for.
type Named<'t> = (&'t str, Traced);

/// Reads a trace: what is for `only`, if that is given; its time begins with its first command.
///
/// # Errors
/// `InvalidInput`, with the line, for one that is not understood, for a trace without commands, and for one of several
/// files or devices if it is not said which.
pub fn parse(text: &str, only: Option<&str>) -> Result<Vec<Traced>> {
    let mut lines = text
        .lines()
        .enumerate()
        .map(|(n, line)| (n + 1, line.trim()));
    let first = lines.next().map_or("", |(_, line)| line);
    let mut found = match first {
        "fio version 2 iolog" => version_2(lines)?,
        "fio version 3 iolog" => version_3(lines)?,
        _ if first.starts_with("fio version ") => {
            return Err(Error::invalid(format!(
                "line 1: '{first}': versions 2 and 3 are known"
            )));
        }
        _ => blkparse(text)?,
    };
    if found.is_empty() {
        return Err(Error::invalid(
            "no command in it: neither a fio log (version 2 or 3) nor blkparse's text",
        ));
    }
    let names: BTreeSet<&str> = found.iter().map(|(name, _)| *name).collect();
    let list = || names.iter().copied().collect::<Vec<_>>().join(", ");
    match only {
        Some(only) if !names.contains(only) => {
            return Err(Error::invalid(format!(
                "no command for {only}; there are some for {}",
                list()
            )));
        }
        None if names.len() > 1 => {
            return Err(Error::invalid(format!(
                "commands for {}: say for which",
                list()
            )));
        }
        _ => found.retain(|(name, _)| only.is_none_or(|only| only == *name)),
    }
    let mut found: Vec<Traced> = found.into_iter().map(|(_, one)| one).collect();
    found.sort_by_key(|one| (one.at_ns, one.line));
    let start_ns = found[0].at_ns;
    for one in &mut found {
        one.at_ns -= start_ns;
    }
    Ok(found)
}

fn wrong(line: usize, why: &str) -> Error {
    Error::invalid(format!("line {line}: {why}"))
}

fn number(line: usize, word: Option<&str>, what: &str) -> Result<u64> {
    let word = word.ok_or_else(|| wrong(line, &format!("{what} is missing")))?;
    word.parse()
        .map_err(|_| wrong(line, &format!("{what} is '{word}'")))
}

/// A command of fio's logs; `None` for what moves no data, as opening a file.
fn action<'w>(
    line: usize,
    word: &str,
    at_us: u64,
    mut rest: impl Iterator<Item = &'w str>,
) -> Result<Option<Traced>> {
    let kind = match word {
        "read" => Kind::Read,
        "write" => Kind::Write,
        "trim" => Kind::Trim,
        "sync" | "datasync" => Kind::Flush,
        "add" | "open" | "close" => return Ok(None),
        _ => return Err(wrong(line, &format!("action '{word}' is not known"))),
    };
    let (offset, len) = match kind {
        Kind::Flush => (0, 0),
        _ => (
            number(line, rest.next(), "the offset")?,
            number(line, rest.next(), "the length")?,
        ),
    };
    let at_ns = at_us
        .checked_mul(NS_PER_US)
        .ok_or_else(|| wrong(line, "the time is too large"))?;
    sized(Traced {
        at_ns,
        kind,
        offset,
        len,
        line,
    })
    .map(Some)
}

/// Refuses lengths that no block layer has.
fn sized(one: Traced) -> Result<Traced> {
    if one.kind != Kind::Flush && one.len == 0 {
        return Err(wrong(one.line, "the length is 0"));
    }
    if one.len > LEN_MAX && one.kind != Kind::Trim {
        return Err(wrong(
            one.line,
            &format!("the length is {}, more than {LEN_MAX}", one.len),
        ));
    }
    match one.offset.checked_add(one.len) {
        Some(_) => Ok(one),
        None => Err(wrong(one.line, "it ends after the largest offset")),
    }
}

fn version_2<'t>(lines: impl Iterator<Item = (usize, &'t str)>) -> Result<Vec<Named<'t>>> {
    let (mut found, mut at_us) = (Vec::new(), 0_u64);
    for (line, text) in lines.filter(|(_, text)| !text.is_empty()) {
        let mut words = text.split_ascii_whitespace();
        let (name, word) = (words.next().unwrap_or_default(), words.next());
        let word = word.ok_or_else(|| wrong(line, "an action is missing"))?;
        if word == "wait" {
            let us = number(line, words.next(), "the time")?;
            at_us = at_us
                .checked_add(us)
                .ok_or_else(|| wrong(line, "the time is too large"))?;
            continue;
        }
        found.extend(action(line, word, at_us, words)?.map(|one| (name, one)));
    }
    Ok(found)
}

fn version_3<'t>(lines: impl Iterator<Item = (usize, &'t str)>) -> Result<Vec<Named<'t>>> {
    let mut found = Vec::new();
    for (line, text) in lines.filter(|(_, text)| !text.is_empty()) {
        let mut words = text.split_ascii_whitespace();
        let at_us = number(line, words.next(), "the time")?;
        let (name, word) = (words.next().unwrap_or_default(), words.next());
        let word = word.ok_or_else(|| wrong(line, "an action is missing"))?;
        found.extend(action(line, word, at_us, words)?.map(|one| (name, one)));
    }
    Ok(found)
}

/// What blkparse prints: commands as they were issued to the driver (`D`), or, if there are none, as they were queued
/// (`Q`). Its summary, and messages, are left out.
fn blkparse(text: &str) -> Result<Vec<Named<'_>>> {
    let (mut issued, mut queued) = (Vec::new(), Vec::new());
    for (n, text) in text.lines().enumerate() {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let is_event = words.len() >= 7
            && words[0]
                .split_once(',')
                .is_some_and(|(a, b)| is_number(a) && is_number(b));
        if !is_event {
            continue;
        }
        let into = match words[5] {
            "D" => &mut issued,
            "Q" => &mut queued,
            _ => continue,
        };
        into.extend(event(n + 1, &words)?.into_iter().map(|one| (words[0], one)));
    }
    Ok(if issued.is_empty() { queued } else { issued })
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// The commands of an event: a flush, if the kind begins with `F`, and what is read, written or trimmed.
fn event(line: usize, words: &[&str]) -> Result<Vec<Traced>> {
    let at_ns =
        seconds(words[3]).ok_or_else(|| wrong(line, &format!("the time is '{}'", words[3])))?;
    let mut found = Vec::new();
    let kinds = words[6];
    if kinds.starts_with('F') {
        found.push(Traced {
            at_ns,
            kind: Kind::Flush,
            offset: 0,
            len: 0,
            line,
        });
    }
    let kinds = kinds.strip_prefix('F').unwrap_or(kinds);
    let kind = match kinds.chars().next() {
        Some('R') => Kind::Read,
        Some('W') => Kind::Write,
        Some('D') => Kind::Trim,
        _ => return Ok(found),
    };
    if words.get(8) != Some(&"+") {
        // A flush that is sent as an empty write.
        return Ok(found);
    }
    let offset = number(line, words.get(7).copied(), "the sector")?.checked_mul(SECTOR_BYTES);
    let len =
        number(line, words.get(9).copied(), "the number of sectors")?.checked_mul(SECTOR_BYTES);
    let (Some(offset), Some(len)) = (offset, len) else {
        return Err(wrong(line, "it ends after the largest offset"));
    };
    if len > 0 {
        found.push(sized(Traced {
            at_ns,
            kind,
            offset,
            len,
            line,
        })?);
    }
    Ok(found)
}

/// `12.000345678` in ns.
fn seconds(word: &str) -> Option<u64> {
    let (whole, part) = word.split_once('.')?;
    let digits = part.get(..9.min(part.len()))?;
    let scale = 10_u64.pow(u32::try_from(9 - digits.len()).ok()?);
    let part = digits.parse::<u64>().ok()?.checked_mul(scale)?;
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(part)
}
