//! What is kept of layers from one command to the next: the layers themselves, and the counters of
//! nops.
//!
//! # On disk
//! A TOML file that only its owner may read (layers can hold keys). It is replaced by renaming, so
//! a crash leaves the old one or the new one; changes are made under an exclusive lock on
//! `geom.lock` beside it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base::{Context, Error, Result};
use geom::nop::NopCounters;
use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::layer::Layer;

/// The content of the file.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Kept {
    /// The layers, in the order in which they were made.
    #[serde(rename = "layer")]
    pub(crate) layers: Vec<Layer>,
    /// What nops counted, by name.
    pub(crate) counters: BTreeMap<String, NopCounters>,
}

/// The file.
#[derive(Debug)]
pub(crate) struct KeptFile(PathBuf);

impl KeptFile {
    /// `geom.toml` in that folder; it need not exist.
    pub(crate) fn within(folder: &Path) -> KeptFile {
        KeptFile(folder.join("geom.toml"))
    }

    /// What is in it.
    pub(crate) fn read(&self) -> Result<Kept> {
        Ok(read_toml(&self.0)?.unwrap_or_default())
    }

    /// Changes it; if `edit` fails, the file stays as it was.
    pub(crate) fn change<T>(&self, edit: impl FnOnce(&mut Kept) -> Result<T>) -> Result<T> {
        let within = |e: std::io::Error| Error::from(e).within(self.0.display());
        if let Some(folder) = self.0.parent() {
            fs::create_dir_all(folder).map_err(within)?;
        }
        let lock = File::create(self.0.with_extension("lock")).map_err(within)?;
        flock(&lock, FlockOperation::LockExclusive)
            .map_err(|errno| within(std::io::Error::from(errno)))?;
        let mut kept = self.read()?;
        let outcome = edit(&mut kept)?;
        write_toml(&self.0, &kept)?;
        Ok(outcome)
    }
}

/// Reads a TOML file; nothing if there is none.
pub(crate) fn read_toml<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::from(e).within(path.display())),
    };
    parse_toml(&text).within(|| path.display()).map(Some)
}

/// Reads TOML; an error gives line and column.
pub(crate) fn parse_toml<T: DeserializeOwned>(text: &str) -> Result<T> {
    toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        complaint(text, at, error.message().trim_end())
    })
}

/// An error at byte `at` of a text: `line 3, column 5: unknown field …`.
pub(crate) fn complaint(text: &str, at: usize, what: &str) -> Error {
    let before = text.get(..at).unwrap_or(text);
    let line = 1 + before.matches('\n').count();
    let column = 1 + before.rsplit('\n').next().unwrap_or("").chars().count();
    let what = what.replace('\n', ", ");
    Error::invalid(format!("line {line}, column {column}: {what}"))
}

/// Replaces a TOML file; only its owner may read it.
pub(crate) fn write_toml(path: &Path, value: &impl Serialize) -> Result<()> {
    let text =
        toml::to_string(value).map_err(|e| Error::invalid(format!("{}: {e}", path.display())))?;
    replace(path, text.as_bytes(), 0o600)
}

/// Replaces a file by renaming.
pub(crate) fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let within = |e: std::io::Error| Error::from(e).within(path.display());
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let options = fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(mode)
        .open(&new);
    let mut file = options.map_err(within)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if let Err(error) = written.and_then(|()| fs::rename(&new, path)) {
        let _ = fs::remove_file(&new);
        return Err(within(error));
    }
    Ok(())
}
