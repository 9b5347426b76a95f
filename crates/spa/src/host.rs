//! The identity of this host: its id and name, as stored in labels.
//!
//! # What it is
//! A pool's labels name the host that last opened it. Another host refuses to import such a pool
//! unless it was exported, or the user insists. The id is read from `hostid` in the state folder if
//! that exists; otherwise from `/etc/hostid` (so a kernel on the same machine agrees); otherwise it
//! is a random number, stored in the state folder.
//!
//! # Source
//! OpenZFS `module/os/linux/spl/spl-generic.c` (`spl_kmem_init`, `hostid_read`).

use std::path::Path;

use base::{Error, Result};

/// A host as identified in labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// `hostid`; 0 when unknown, and then not checked
    pub id: u64,
    /// `hostname`
    pub name: String,
}

impl Host {
    /// This host. `state`: the folder that stores its id if `/etc/hostid` has none, or is to be
    /// overridden.
    ///
    /// # Errors
    /// When the id can be neither read nor stored.
    pub fn find(state: &Path) -> Result<Host> {
        let name = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let kept = state.join("hostid");
        for known in [&kept, Path::new("/etc/hostid")] {
            if let Some(id) = read_id(known) {
                return Ok(Host { id, name });
            }
        }
        let id = 1 + rt::random_below(u64::from(u32::MAX) - 1);
        let within = |e: std::io::Error| Error::from(e).within(kept.display());
        std::fs::create_dir_all(state).map_err(within)?;
        std::fs::write(&kept, (id as u32).to_le_bytes()).map_err(within)?;
        Ok(Host { id, name })
    }
}

/// The user id that runs commands, for the history; in simulations always root.
pub(crate) fn user() -> u64 {
    if rt::is_simulated() {
        return 0;
    }
    u64::from(rustix::process::getuid().as_raw())
}

/// Four bytes, little endian, not zero.
fn read_id(path: &Path) -> Option<u64> {
    let bytes = std::fs::read(path).ok()?;
    let id = u32::from_le_bytes(*bytes.first_chunk::<4>()?);
    (id != 0).then_some(u64::from(id))
}
