//! What was tried so far, in a file: a run that ends early goes on from it, and those of several computers are merged.
//!
//! # Layout
//! Lines of JSON. The first is the [`Header`]; each of the others is a combination's place in the request, how it
//! was tried, and whether with all files instead of the sample.
//!
//! # Crash argument
//! A line is appended and synced when its combination is done. A line without an end was not written whole: it is cut
//! off, and its combination tried again.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use base::{Context, Error, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::figures::Tried;
use super::request::{Request, Shard};
use super::sample::Sample;
use super::survey::Found;

/// What figures are of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Program and version.
    pub made_by: String,
    /// What was asked.
    pub request: Request,
    /// Which part of it.
    pub shard: Shard,
    /// What lies in the folder.
    pub found: Found,
    /// What was tried with.
    pub sample: Sample,
}

impl Header {
    /// Why figures of another header cannot be put together with those of this one.
    fn difference(&self, other: &Header) -> Option<String> {
        if self.made_by != other.made_by {
            return Some(format!(
                "made by {}, not by {}",
                other.made_by, self.made_by
            ));
        }
        if self.request != other.request {
            return Some("another plan: other drives, values or options".to_owned());
        }
        let changed = || {
            format!(
                "{}: the files have changed since",
                self.request.data.display()
            )
        };
        (self.found != other.found || self.sample != other.sample).then(changed)
    }
}

#[derive(Serialize, Deserialize)]
struct Line {
    place: usize,
    tried: Tried,
    #[serde(default)]
    whole: bool,
}

/// A header, and combinations by their place.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// What they are of.
    pub header: Header,
    /// How each was tried.
    pub tried: BTreeMap<usize, Tried>,
    /// How some were tried with all files.
    pub confirmed: BTreeMap<usize, Tried>,
}

impl Results {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or is none of these files.
    pub fn load(path: &Path) -> Result<Results> {
        let within = || path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(Error::from)
            .within(within)?;
        let (results, _) = Results::parse(&text).within(within)?;
        results.ok_or_else(|| Error::invalid("nothing is in it yet").within(within()))
    }

    /// What the whole lines say, and their length in bytes; `None` without a whole header.
    fn parse(text: &str) -> Result<(Option<Results>, usize)> {
        let length = text.rfind('\n').map_or(0, |end| end + 1);
        let mut lines = text[..length].lines();
        let wrong = |e: serde_json::Error| Error::invalid(format!("no results of a plan: {e}"));
        let Some(first) = lines.next() else {
            return Ok((None, 0));
        };
        let header: Header = serde_json::from_str(first).map_err(wrong)?;
        let count = header.request.combinations().len();
        let (mut tried, mut confirmed) = (BTreeMap::new(), BTreeMap::new());
        for line in lines {
            let line: Line = serde_json::from_str(line).map_err(wrong)?;
            if line.place >= count {
                return Err(Error::invalid(format!(
                    "no results of a plan: no combination {}",
                    line.place
                )));
            }
            match line.whole {
                true => confirmed.insert(line.place, line.tried),
                false => tried.insert(line.place, line.tried),
            };
        }
        let results = Results {
            header,
            tried,
            confirmed,
        };
        Ok((Some(results), length))
    }

    /// All of several files.
    ///
    /// # Errors
    /// The first file that is of another plan.
    pub fn merge(paths: &[std::path::PathBuf]) -> Result<Results> {
        let (first, rest) = paths
            .split_first()
            .ok_or_else(|| Error::invalid("no files to merge"))?;
        let mut all = Results::load(first)?;
        for path in rest {
            let more = Results::load(path)?;
            if let Some(text) = all.header.difference(&more.header) {
                return Err(Error::invalid(format!("{}: {text}", path.display())));
            }
            all.tried.extend(more.tried);
            all.confirmed.extend(more.confirmed);
        }
        all.header.shard = Shard::WHOLE;
        Ok(all)
    }
}

/// A file of results that is being written.
pub struct Journal {
    file: Mutex<File>,
}

impl Journal {
    /// Opens or makes the file, and returns what is in it.
    ///
    /// # Errors
    /// When another process writes it, or it is of another plan.
    pub fn open(path: &Path, header: &Header) -> Result<(Journal, BTreeMap<usize, Tried>)> {
        let within = || path.display().to_string();
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)
                .map_err(Error::from)
                .within(within)?;
        }
        let mut open = OpenOptions::new();
        let open = open.read(true).write(true).create(true).truncate(false);
        let mut file = open.open(path).map_err(Error::from).within(within)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                let text = "another run of this plan is writing it: wait, or give another file with --results";
                return Err(Error::invalid(text).within(within()));
            }
            locked => locked
                .map_err(|e| Error::from(std::io::Error::from(e)))
                .within(within)?,
        }
        let mut text = String::new();
        file.read_to_string(&mut text)
            .map_err(Error::from)
            .within(within)?;
        let (results, length) = Results::parse(&text).within(within)?;
        let journal = Journal {
            file: Mutex::new(file),
        };
        let Some(results) = results else {
            // A header that was not written whole is begun again; anything else is somebody's file.
            if !line(header)?.starts_with(&text) {
                return Err(Error::invalid("no results of a plan").within(within()));
            }
            journal.cut(0).within(within)?;
            journal.append(header).within(within)?;
            return Ok((journal, BTreeMap::new()));
        };
        if let Some(text) = header.difference(&results.header) {
            let text = format!("{text}; remove it, or give another file with --results");
            return Err(Error::invalid(text).within(within()));
        }
        journal.cut(length as u64).within(within)?;
        Ok((journal, results.tried))
    }

    /// Adds a combination.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(&self, place: usize, tried: Tried) -> Result<()> {
        self.append(&Line {
            place,
            tried,
            whole: false,
        })
    }

    /// Adds how one was tried with all files.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn confirm(&self, place: usize, tried: Tried) -> Result<()> {
        self.append(&Line {
            place,
            tried,
            whole: true,
        })
    }

    fn cut(&self, length: u64) -> Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.set_len(length)?;
        file.seek(SeekFrom::End(0))?;
        Ok(())
    }

    fn append(&self, what: &impl Serialize) -> Result<()> {
        let text = line(what)?;
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        Ok(())
    }
}

/// A line of the file.
fn line(what: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string(what).map_err(|e| Error::invalid(e.to_string()))?;
    Ok(text + "\n")
}
