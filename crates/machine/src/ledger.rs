//! Counters and config changes of nops, from when a nop is closed until they are saved.

use std::collections::BTreeMap;
use std::sync::Arc;

use geom::Provider;
use geom::nop::{Nop, NopConfig, NopCounters};
use rt::Mutex;

/// What is not yet saved of one nop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    /// Requests and bytes that passed through it.
    pub(crate) counters: NopCounters,
    /// Its config when it was opened and when it was dropped, if it changed by itself.
    pub(crate) config: Option<(NopConfig, NopConfig)>,
}

/// By the names of nops.
pub(crate) type Ledger = Mutex<BTreeMap<String, Counted>>;

/// Adds the counters of an open nop to the ledger when the nop is closed.
pub(crate) struct Entry {
    pub(crate) nop: Arc<Nop>,
    pub(crate) opened: NopConfig,
    pub(crate) ledger: Arc<Ledger>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut ledger = self.ledger.lock();
        let counted = ledger.entry(self.nop.name().to_owned()).or_default();
        counted.counters = sum(counted.counters, self.nop.counters());
        let config = self.nop.config();
        if config != self.opened {
            counted.config = Some((self.opened.clone(), config));
        }
    }
}

/// The sum of both, field by field.
pub(crate) fn sum(a: NopCounters, b: NopCounters) -> NopCounters {
    NopCounters {
        reads: a.reads + b.reads,
        writes: a.writes + b.writes,
        deletes: a.deletes + b.deletes,
        getattrs: a.getattrs + b.getattrs,
        flushes: a.flushes + b.flushes,
        cmd0s: a.cmd0s + b.cmd0s,
        cmd1s: a.cmd1s + b.cmd1s,
        cmd2s: a.cmd2s + b.cmd2s,
        read_bytes: a.read_bytes + b.read_bytes,
        wrote_bytes: a.wrote_bytes + b.wrote_bytes,
    }
}
