//! Block traces that come along: what real programs did to a disk, recorded once.

use std::fs;
use std::path::Path;

use base::{Context, Error, Result};

/// Their names and their texts, packed by gzip. Beside each is the script that records it.
const TRACES: &[(&str, &[u8])] = &[(
    "bonnie-on-ext4",
    include_bytes!("../traces/bonnie-on-ext4.log.gz"),
)];

/// The trace of this name.
///
/// # Errors
/// `NotFound`, with the names that exist.
pub(crate) fn find(name: &str) -> Result<&'static [u8]> {
    let found = TRACES.iter().find(|(known, _)| *known == name);
    found.map(|(_, packed)| *packed).ok_or_else(|| {
        let names: Vec<&str> = TRACES.iter().map(|(name, _)| *name).collect();
        let text = format!("no trace '{name}'; there are {}", names.join(", "));
        Error::not_found(text)
    })
}

/// Puts a trace into a folder, as `NAME.log.gz`.
///
/// # Errors
/// As [`find`]; whatever the file system says.
pub(crate) fn put(folder: &Path, name: &str) -> Result<()> {
    let path = folder.join(format!("{name}.log.gz"));
    fs::write(&path, find(name)?)
        .map_err(Error::from)
        .within(|| path.display().to_string())
}
