//! The commands that a script has started with `&`.

use std::collections::BTreeMap;

use rt::{JoinHandle, Mutex};

/// The jobs of a script, those of its parts included.
#[derive(Default)]
pub(super) struct Jobs(Mutex<Table>);

#[derive(Default)]
struct Table {
    last: u64,
    running: BTreeMap<u64, JoinHandle<u8>>,
}

impl Jobs {
    /// Adds one, and returns its number, which is `$!`.
    pub(super) fn add(&self, job: JoinHandle<u8>) -> u64 {
        let mut table = self.0.lock();
        table.last += 1;
        let number = table.last;
        table.running.insert(number, job);
        number
    }

    /// Waits for one, and returns its exit code; `None` if there is none of that number, or it was waited for before.
    pub(super) fn wait_for(&self, number: u64) -> Option<u8> {
        let job = self.0.lock().running.remove(&number)?;
        Some(job.join())
    }

    /// Waits for those that there are, and for those that they start.
    pub(super) fn wait_for_all(&self) {
        while let Some((_, job)) = self.take_first() {
            job.join();
        }
    }

    fn take_first(&self) -> Option<(u64, JoinHandle<u8>)> {
        self.0.lock().running.pop_first()
    }
}
