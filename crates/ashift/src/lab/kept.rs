//! The last outcome of each experiment, for `lab report`.

use std::fs;
use std::path::PathBuf;

use base::{Context, Error, Result};
use lab::Outcome;

fn folder() -> PathBuf {
    crate::state::state_folder().join("lab")
}

/// Remembers an outcome.
///
/// # Errors
/// When the state folder cannot be written.
pub(crate) fn save(outcome: &Outcome) -> Result<()> {
    let path = folder().join(format!("{}.json", outcome.name));
    let within = || path.display().to_string();
    fs::create_dir_all(folder())
        .map_err(Error::from)
        .within(within)?;
    let text = serde_json::to_string(outcome).map_err(|e| Error::invalid(e.to_string()))?;
    fs::write(&path, text).map_err(Error::from).within(within)
}

/// The remembered outcomes of these experiments, or of all, in the order in which they come along.
///
/// # Errors
/// `NotFound` when there is none.
pub(crate) fn load(names: &[String]) -> Result<Vec<Outcome>> {
    let mut wanted = names.to_vec();
    if wanted.is_empty() {
        let files = fs::read_dir(folder()).into_iter().flatten().flatten();
        let stems = files.filter_map(|entry| {
            let path = entry.path();
            let is_json = path.extension().is_some_and(|e| e == "json");
            is_json.then(|| path.file_stem()?.to_str().map(str::to_owned))?
        });
        wanted = stems.collect();
        let place = |name: &String| {
            let place = lab::builtin().iter().position(|(known, _)| known == name);
            (place.unwrap_or(usize::MAX), name.clone())
        };
        wanted.sort_by_key(place);
    }
    if wanted.is_empty() {
        let text = "nothing was run yet: try `ashift lab run zfs-on-512e-mirror`";
        return Err(Error::not_found(text));
    }
    wanted.iter().map(|name| load_one(name)).collect()
}

fn load_one(name: &str) -> Result<Outcome> {
    let path = folder().join(format!("{name}.json"));
    let text = fs::read_to_string(&path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            Error::not_found(format!("'{name}' was not run yet: `ashift lab run {name}`"))
        }
        _ => Error::from(e).within(path.display()),
    })?;
    serde_json::from_str(&text).map_err(|e| {
        let text = format!("{}: {e}; run the experiment again", path.display());
        Error::invalid(text)
    })
}
