//! Device writes that wait for a thread to issue them, and what is known of each flight.
//!
//! # What it is
//! A list for each top-level vdev. A device's own queue, below, decides what the device does next; these
//! lists decide what the threads do next. No thread is given a write that the devices of a vdev have no
//! free slot for: it would only wait there while another vdev is idle. What a thread waits for goes
//! first ([`Priority`]); vdevs take turns.
//!
//! # Source
//! OpenZFS `module/zfs/spa.c` (`zio_taskqs`), `include/sys/zio_priority.h`.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use base::{Error, Result, VdevId};

use crate::issue::Write;
use crate::{Io, Priority, VdevOps};

const PRIORITIES: usize = Priority::Trim as usize + 1;

/// Adjacent writes that are issued as one.
pub(crate) struct Group {
    pub(crate) flight: u64,
    pub(crate) io: Io,
    pub(crate) writes: Vec<Write>,
    /// Whether its txg is lost if it cannot be written. Not so for the intent log, which can do without
    /// a block.
    pub(crate) must_succeed: bool,
}

impl Group {
    pub(crate) fn vdev(&self) -> VdevId {
        self.writes[0].vdev
    }

    /// Blocks are padded to whole sectors only now: many small ones that wait would take as much memory as
    /// they take on disk.
    pub(crate) fn issue(&self, vdevs: &dyn VdevOps) -> Result<()> {
        let first = &self.writes[0];
        let ashift = vdevs.ashift(first.vdev);
        let padded: Vec<_> = self.writes.iter().map(|w| w.padded(ashift)).collect();
        let parts = self.writes.iter().zip(&padded);
        let parts: Vec<&[u8]> = parts
            .map(|(write, padded)| padded.as_deref().unwrap_or_else(|| write.bytes()))
            .collect();
        vdevs.write(&self.io, first.vdev, first.offset, &parts)
    }
}

/// What waits to be issued to one vdev.
#[derive(Default)]
pub(crate) struct IssueList {
    /// How many writes the vdev can work on at once.
    pub(crate) limit: usize,
    pub(crate) running: usize,
    /// By priority.
    waiting: [VecDeque<Group>; PRIORITIES],
}

impl IssueList {
    pub(crate) fn next(&mut self) -> Option<Group> {
        if self.running >= self.limit {
            return None;
        }
        let next = self.waiting.iter_mut().find_map(VecDeque::pop_front);
        self.running += usize::from(next.is_some());
        next
    }

    /// How many writes could be issued now.
    pub(crate) fn ready(&self) -> usize {
        let waiting = self.waiting.iter().map(VecDeque::len).sum();
        self.limit.saturating_sub(self.running).min(waiting)
    }
}

/// What is known of a flight.
#[derive(Default)]
pub(crate) struct Landing {
    /// Groups that wait or are being issued.
    pub(crate) left: usize,
    pub(crate) error: Option<Error>,
    /// To be called when nothing is left.
    pub(crate) then: Option<Then>,
}

pub(crate) type Then = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) vdevs: BTreeMap<VdevId, IssueList>,
    /// The vdev that was served last.
    last: VdevId,
    pub(crate) flights: BTreeMap<u64, Landing>,
    pub(crate) next_flight: u64,
    /// Helpers that were dispatched and have not returned.
    pub(crate) helpers: usize,
    /// Helpers that are issuing something.
    pub(crate) busy: usize,
    /// No more helpers are dispatched.
    pub(crate) is_closed: bool,
}

impl State {
    /// The next group to issue, taking the vdevs in turn.
    pub(crate) fn next(&mut self) -> Option<Group> {
        let after = (Bound::Excluded(self.last), Bound::Unbounded);
        let next = self.vdevs.range_mut(after).find_map(|(_, q)| q.next());
        let next = next.or_else(|| self.vdevs.values_mut().find_map(IssueList::next))?;
        self.last = next.vdev();
        Some(next)
    }

    pub(crate) fn ready(&self) -> usize {
        self.vdevs.values().map(IssueList::ready).sum()
    }

    pub(crate) fn push(&mut self, group: Group) {
        let landing = self.flights.get_mut(&group.flight);
        landing.expect("a flight is open while it is added to").left += 1;
        let queue = self.vdevs.entry(group.vdev()).or_default();
        queue.waiting[group.io.priority as usize].push_back(group);
    }

    /// A group has been issued, or never will be.
    pub(crate) fn forget(&mut self, flight: u64, groups: usize) {
        let landing = self.flights.get_mut(&flight);
        landing.expect("a flight is open until it has landed").left -= groups;
    }

    /// Drops the groups of a flight that still wait.
    pub(crate) fn purge(&mut self, flight: u64) {
        let mut purged = 0;
        let queues = self.vdevs.values_mut();
        for waiting in queues.flat_map(|queue| &mut queue.waiting) {
            let before = waiting.len();
            waiting.retain(|group| group.flight != flight);
            purged += before - waiting.len();
        }
        self.forget(flight, purged);
    }

    pub(crate) fn has_landed(&self, flight: u64) -> bool {
        self.flights[&flight].left == 0
    }
}
