//! The pools that one command has open.

use std::cell::RefCell;
use std::rc::Rc;

use base::{ErrorKind, Result};

use super::fail::{Fail, Outcome};
use crate::host::{Access, Host, OpenPool, OpenPools};

/// One run of one command.
pub(super) struct Session {
    pools: OpenPools,
    /// Pools imported read-only, in a command that may change pools.
    readonly: OpenPools,
    command_line: String,
    changed: RefCell<Vec<String>>,
}

impl Session {
    pub(super) fn new(writes: bool, command_line: String) -> Session {
        let access = if writes { Access::Write } else { Access::Read };
        Session {
            pools: OpenPools::new(Host::here(), access),
            readonly: OpenPools::new(Host::here(), Access::Read),
            command_line,
            changed: RefCell::default(),
        }
    }

    /// The names of the imported pools.
    pub(super) fn pool_names(&self) -> Outcome<Vec<String>> {
        let pools = self.pools.host.pools();
        let pools = pools.map_err(|e| Fail::failed(e.to_string()))?;
        Ok(pools.into_iter().map(|(name, _)| name).collect())
    }

    /// A pool by name; `None` if no such pool is imported.
    pub(super) fn pool(&self, name: &str) -> Result<Option<Rc<OpenPool>>> {
        if self.pools.host.cache().find(name)?.is_none() {
            return Ok(None);
        }
        if self.pools.host.facts(name)?.readonly {
            return Ok(Some(self.readonly.get(name)?));
        }
        let pool = self.pools.get(name)?;
        if self.pools.access == Access::Write {
            pool.check_writable()?;
        }
        Ok(Some(pool))
    }

    /// Records that a pool was changed, so that its history gets this command.
    pub(super) fn note_change(&self, pool: &str) {
        let mut changed = self.changed.borrow_mut();
        if !changed.iter().any(|name| name == pool) {
            changed.push(pool.to_owned());
        }
    }

    /// Writes the history and closes the pools.
    pub(super) fn finish(self) -> Outcome {
        let changed = self.changed.into_inner();
        let mut outcome = Ok(());
        for (name, pool) in self.pools.take().into_iter().chain(self.readonly.take()) {
            if changed.contains(&name) {
                let logged = pool
                    .log_command(&self.command_line)
                    .and_then(|()| pool.sync());
                if let Err(error) = logged {
                    // A full pool gets no history entry; the change itself is on disk.
                    if error.kind() != ErrorKind::NoSpace {
                        outcome = Err(Fail::failed(format!("cannot write pool '{name}': {error}")));
                    }
                }
            }
            if let Err(error) = pool.close() {
                outcome = Err(Fail::failed(format!("cannot close pool '{name}': {error}")));
            }
        }
        outcome
    }
}
