//! `gpart backup` and `gpart restore`: a table as text.
//!
//! The first line has the scheme and the number of entries; each further one has the index, type, start,
//! size, label and attributes (in brackets) of a partition. Empty lines and comments (`#`) are
//! skipped.

use std::fmt::Write;

use base::{Error, Result};

use crate::{Era, NewPartition, Scheme, Shape, Table, Wish};

/// A parsed backup.
#[derive(Clone, Debug)]
pub struct Backup {
    scheme: Scheme,
    entries: Option<u32>,
    lines: Vec<Line>,
}

#[derive(Clone, Debug)]
struct Line {
    index: u32,
    kind: String,
    start: u64,
    size: u64,
    label: String,
    attributes: Vec<String>,
}

fn incorrect() -> Error {
    Error::invalid("Incorrect backup format.")
}

/// `gpart backup`.
#[must_use]
pub fn backup(table: &Table) -> String {
    let scheme = table.scheme.name();
    let mut text = format!("{scheme} {}\n", table.entries);
    let index = table.entries.to_string().len();
    let blocks = table.last.to_string().len();
    let kinds = table.partitions.iter().map(|p| p.kind.to_string().len());
    let kind = kinds.max().unwrap_or(0);
    for one in &table.partitions {
        let attributes = one.attribute_names();
        let attributes = if attributes.is_empty() {
            String::new()
        } else {
            format!(" [{}] ", attributes.join(","))
        };
        let _ = writeln!(
            text,
            "{:<index$} {:>kind$} {:>blocks$} {:>blocks$} {} {attributes}",
            one.index,
            one.kind.to_string(),
            one.start_sector,
            one.sectors,
            one.label()
        );
    }
    text
}

impl Backup {
    /// Parses the text of a backup.
    ///
    /// # Errors
    /// [`base::ErrorKind::InvalidInput`] if it is not a backup.
    pub fn parse(text: &str) -> Result<Backup> {
        let is_said = |line: &&str| {
            let line = line.trim_start();
            !line.is_empty() && !line.starts_with('#')
        };
        let mut lines = text.lines().filter(is_said);
        let mut head = lines.next().ok_or_else(incorrect)?.split_ascii_whitespace();
        let scheme = Scheme::parse(head.next().ok_or_else(incorrect)?)?;
        let entries = head.next().map(str::parse).transpose();
        let entries = entries.map_err(|_| incorrect())?;
        if head.next().is_some() {
            return Err(incorrect());
        }
        let lines = lines.map(Line::parse).collect::<Result<_>>()?;
        Ok(Backup {
            scheme,
            entries,
            lines,
        })
    }

    /// The table that it describes, for a disk of that shape; with labels only if `with_labels`.
    ///
    /// # Errors
    /// As [`Table::create`] and [`Table::add`].
    pub fn table(&self, shape: Shape, with_labels: bool) -> Result<Table> {
        // a backup is restored exactly: nothing is rounded
        let mut table = Table::create(self.scheme, shape, self.entries, Era::Nine)?;
        if self.scheme == Scheme::Mbr {
            table = Table::create(self.scheme, shape, self.entries, Era::Current)?;
            if let Some(lowest) = self.lines.iter().map(|l| l.start).min() {
                table.allow_from(lowest);
            }
        }
        for line in &self.lines {
            let label = Some(line.label.clone());
            let new = NewPartition {
                wish: Wish {
                    alignment: None,
                    start: Some(line.start),
                    size: Some(line.size),
                },
                index: Some(line.index),
                label: label.filter(|l| with_labels && !l.is_empty()),
                era: Era::Current,
            };
            table.add(&line.kind, &new)?;
            for attribute in &line.attributes {
                table.set(attribute, Some(line.index), true)?;
            }
        }
        Ok(table)
    }
}

impl Line {
    fn parse(line: &str) -> Result<Line> {
        let mut rest = line;
        let mut word = || {
            let text = rest.trim_start();
            let end = text.find([' ', '\t']).unwrap_or(text.len());
            let (word, after) = text.split_at(end);
            rest = after;
            (!word.is_empty()).then(|| word.to_owned())
        };
        let index = word().and_then(|w| w.parse().ok()).filter(|i| *i > 0);
        let kind = word();
        let start = word().and_then(|w| w.parse().ok());
        let size = word().and_then(|w| w.parse().ok());
        let (Some(index), Some(kind), Some(start), Some(size)) = (index, kind, start, size) else {
            return Err(incorrect());
        };
        let rest = rest.trim();
        // a label may contain blanks and brackets: the attributes are the last brackets of the line
        let split = rest
            .strip_suffix(']')
            .and_then(|inner| inner.rsplit_once('['))
            .filter(|(before, _)| before.is_empty() || before.ends_with([' ', '\t']));
        let (label, attributes) = split.unwrap_or((rest, ""));
        Ok(Line {
            index,
            kind,
            start,
            size,
            label: label.trim().to_owned(),
            attributes: attributes
                .split(',')
                .filter(|a| !a.is_empty())
                .map(str::to_owned)
                .collect(),
        })
    }
}
