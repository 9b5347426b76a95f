//! What the environment of the program says: the state folder, in which commands keep data for later ones,
//! and limits.

use std::path::PathBuf;

use base::{Error, Result};

use crate::caller::caller;

/// That of the holder that runs the command; otherwise `$ASHIFT_STATE`,
/// `$XDG_STATE_HOME/ashift` or `~/.local/state/ashift`.
pub(crate) fn state_folder() -> PathBuf {
    if let Some(client) = caller().as_client() {
        return client.state.clone();
    }
    let var = |name| {
        crate::caller::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    var("ASHIFT_STATE")
        .or_else(|| var("XDG_STATE_HOME").map(|d| d.join("ashift")))
        .or_else(|| var("HOME").map(|d| d.join(".local/state/ashift")))
        .unwrap_or_else(|| PathBuf::from("/var/lib/ashift"))
}

/// How long to wait for another command, in ns: `ASHIFT_WAIT`, in seconds.
pub(crate) fn wait_ns() -> Result<Option<u64>> {
    let Some(text) = crate::caller::var_os("ASHIFT_WAIT").filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let secs: Option<f64> = text.to_str().and_then(|text| text.parse().ok());
    let secs = secs.filter(|secs| *secs >= 0.0);
    let secs = secs.ok_or_else(|| Error::invalid("ASHIFT_WAIT is not a number of seconds"))?;
    Ok(Some((secs * 1e9) as u64))
}

/// Bytes of the block cache of an open pool: `ASHIFT_ARC_BYTES`.
pub(crate) fn arc_bytes() -> Result<Option<u64>> {
    let Some(text) = crate::caller::var_os("ASHIFT_ARC_BYTES") else {
        return Ok(None);
    };
    let bytes = text.to_str().and_then(|text| text.parse().ok());
    let bytes = bytes.ok_or_else(|| Error::invalid("ASHIFT_ARC_BYTES is not a number"))?;
    Ok(Some(bytes))
}
