//! Who we are: the host's id and name, as they stand in labels.
//!
//! # What it is
//! A pool's labels name the host that opened it last. Another host refuses to import such a pool
//! unless it was exported, or the user insists. The id is in `hostid` of the state folder, if it
//! is there; otherwise `/etc/hostid` (so a kernel on the same machine agrees); otherwise a random
//! number, kept in the state folder.
//!
//! # Source
//! OpenZFS `module/os/linux/spl/spl-generic.c` (`spl_kmem_init`, `hostid_read`).

use std::path::Path;

use base::{Error, Result};

/// A host as labels know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// `hostid`; 0 when unknown, and then not checked
    pub id: u64,
    /// `hostname`
    pub name: String,
}

impl Host {
    /// This host; `state` is where its id is kept when `/etc/hostid` does not say, or another one than it.
    ///
    /// # Errors
    /// When the id can be neither read nor kept.
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

/// Who runs commands, for the history: simulations know nobody but root.
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
