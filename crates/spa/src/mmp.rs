//! Multihost: a heartbeat while a pool is open for writing, and a check for another host's
//! heartbeat before that.
//!
//! # What it is
//! With `multihost=on` a thread keeps rewriting the last uberblock with a new time or sequence
//! number: a host that sees it change knows that the pool is in use. Before opening for writing a
//! pool that another host had last and did not export, its uberblocks are watched for longer than
//! that host could go without a heartbeat before suspending the pool.
//!
//! A pool that no command has open has no heartbeat: nothing is written to it then, and another
//! host may take it with a forced import. The next command here then finds the other host's id in
//! the labels.
//!
//! # On disk
//! The last slot of each label's uberblock ring is reserved for the heartbeat. `mmp_delay` is the
//! mean time between two of them, in ns (0: multihost is off); `mmp_config` has their interval, in
//! ms, the number of missed intervals after which the pool is suspended, and a sequence number that
//! orders heartbeats of the same second.
//!
//! An expansion of a RAID-Z updates the uberblock of a txg that is on disk already. Such an update is newer than every
//! heartbeat before it, of which one with the old state may be left anywhere; and no heartbeat is older than the
//! update that it repeats, so that another host sees it change.
//!
//! # Concurrency
//! One thread for each pool with multihost, from opening the pool or setting the property until it
//! is closed or unset. The mutex of its state is a leaf lock, not held during writes to devices. Another is held while
//! a heartbeat or such an update is written; the thread leaves a heartbeat out rather than wait for it.
//!
//! # Source
//! OpenZFS `module/zfs/mmp.c`, `module/zfs/spa.c` (`spa_activity_check`).

use std::sync::Arc;

use base::{Error, ErrorKind, Result, Txg};
use phys::uberblock::{MMP_MAGIC, UberblockPhys};
use rt::{Condvar, Mutex};
use vdev::PoolState;
use vdev::import::{FoundPool, discover};

use crate::load::best_uberblock;
use crate::spa::Inner;

/// `MMP_DEFAULT_INTERVAL`: between two heartbeats on one leaf.
const INTERVAL_MS: u32 = 1000;
/// `MMP_DEFAULT_FAIL_INTERVALS`: missed intervals after which the pool is suspended.
const FAIL_INTERVALS: u16 = 10;
/// `MMP_DEFAULT_IMPORT_INTERVALS`: intervals to wait if the uberblock does not say how many may be
/// missed.
const IMPORT_INTERVALS: u64 = 20;
/// `MMP_IMPORT_SAFETY_FACTOR`: how many times to wait the period after which the other host would
/// suspend the pool.
const SAFETY_FACTOR: u64 = 2;
/// Weight of the last delay in the decaying mean `mmp_delay`: one part in this many.
const DELAY_PARTS: u64 = 128;
const NS_PER_MS: u64 = 1_000_000;
const NS_PER_SEC: u64 = 1_000_000_000;
/// No host's heartbeat stays away for longer.
const WAIT_MAX_NS: u64 = 24 * 3600 * NS_PER_SEC;
const INTERVAL_NS: u64 = INTERVAL_MS as u64 * NS_PER_MS;

/// `mmp_thread_t`
pub(crate) struct Mmp {
    state: Mutex<State>,
    changed: Condvar,
    /// Held while a heartbeat, or the update of an uberblock, is written.
    writing: Mutex<()>,
    thread: Mutex<Option<rt::JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    is_on: bool,
    is_ending: bool,
    last_write_ns: u64,
    delay_ns: u64,
    /// The last heartbeat's time and its number within that second.
    timestamp: u64,
    seq: u16,
    /// Counter that selects the next leaf.
    turn: usize,
}

impl Mmp {
    pub(crate) fn new() -> Mmp {
        Mmp {
            state: Mutex::default(),
            changed: Condvar::new(),
            writing: Mutex::default(),
            thread: Mutex::new(None),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.state.lock().is_on
    }

    /// Sets the MMP fields of an uberblock written by a sync; zero delay and config when multihost
    /// is off.
    pub(crate) fn mark(&self, uberblock: &mut UberblockPhys) {
        let state = self.state.lock();
        if state.is_on {
            uberblock.set_mmp(INTERVAL_MS, FAIL_INTERVALS, Some(0));
            uberblock.mmp_delay.set(state.delay_ns);
        } else {
            uberblock.mmp_magic.set(MMP_MAGIC);
            uberblock.mmp_delay.set(0);
            uberblock.mmp_config.set(0);
        }
    }

    /// Records that an uberblock was written, or could not be.
    #[doc(alias = "mmp_delay_update")]
    pub(crate) fn note_write(&self, is_done: bool, leaves: u64) {
        let mut state = self.state.lock();
        let now_ns = rt::now_ns();
        let delay_ns = now_ns.saturating_sub(state.last_write_ns);
        state.delay_ns = state.delay_ns.max(delay_ns);
        if !is_done {
            return;
        }
        state.last_write_ns = now_ns;
        if delay_ns < state.delay_ns {
            let mean = (delay_ns + state.delay_ns * (DELAY_PARTS - 1)) / DELAY_PARTS;
            state.delay_ns = mean.max(INTERVAL_NS / leaves.max(1));
        }
    }

    /// Starts the heartbeat of an open pool.
    #[doc(alias = "mmp_thread_start")]
    pub(crate) fn start(&self, inner: &Arc<Inner>) {
        let mut thread = self.thread.lock();
        if thread.is_some() {
            return;
        }
        *self.state.lock() = State {
            is_on: true,
            last_write_ns: rt::now_ns(),
            delay_ns: INTERVAL_NS,
            ..State::default()
        };
        let inner = Arc::clone(inner);
        *thread = Some(rt::spawn("mmp", move || run(&inner)));
    }

    /// Stops the heartbeat: the property was set to off, or the pool is closed.
    #[doc(alias = "mmp_thread_stop")]
    pub(crate) fn stop(&self) {
        {
            let mut state = self.state.lock();
            state.is_on = false;
            state.is_ending = true;
        }
        self.changed.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            thread.join();
        }
    }

    /// The uberblock of the next heartbeat, derived from the last one on disk, and the leaf
    /// counter.
    fn next(&self, mut uberblock: UberblockPhys) -> (UberblockPhys, usize) {
        let mut state = self.state.lock();
        let now = rt::wall_clock().secs.max(uberblock.timestamp.get());
        state.seq = if state.timestamp == now {
            state.seq.wrapping_add(1)
        } else {
            1
        };
        state.timestamp = now;
        state.turn = state.turn.wrapping_add(1);
        uberblock.timestamp.set(now);
        uberblock.set_mmp(INTERVAL_MS, FAIL_INTERVALS, Some(state.seq));
        uberblock.mmp_delay.set(state.delay_ns);
        (uberblock, state.turn)
    }

    /// Makes an update of an uberblock on disk newer than it and all heartbeats that repeat it, and has `write` write
    /// it and make it the one that later heartbeats repeat.
    ///
    /// # Errors
    /// Those of `write`.
    pub(crate) fn update(
        &self,
        uberblock: &mut UberblockPhys,
        write: impl FnOnce(&UberblockPhys, bool) -> Result<()>,
    ) -> Result<()> {
        let _writing = self.writing.lock();
        let last = self.state.lock().timestamp;
        let timestamp = uberblock.timestamp.get().max(last) + 1;
        uberblock.timestamp.set(timestamp);
        self.mark(uberblock);
        write(uberblock, self.is_on())
    }

    /// Time since the last uberblock was written, in ns.
    fn silence_ns(&self) -> u64 {
        rt::now_ns().saturating_sub(self.state.lock().last_write_ns)
    }
}

#[doc(alias = "mmp_thread")]
fn run(inner: &Inner) {
    let mmp = &inner.mmp;
    loop {
        let leaves = inner.tree.heartbeat_leaves().max(1);
        // Also while the pool is suspended: if another host takes the pool, resuming here must not
        // overwrite its data.
        let has_failed = inner.groups.has_failed();
        if !has_failed && mmp.silence_ns() > u64::from(FAIL_INTERVALS) * INTERVAL_NS {
            let text = "no heartbeat could be written, so another host may take the pool";
            inner.groups.fail(&Error::new(ErrorKind::Io, text));
        } else if !has_failed && let Some(_writing) = mmp.writing.try_lock() {
            let synced = inner.state.lock().synced;
            let (uberblock, turn) = mmp.next(synced);
            let written = inner.tree.write_heartbeat(turn, &uberblock);
            mmp.note_write(written.is_ok(), leaves as u64);
        }
        let mut state = mmp.state.lock();
        if !state.is_ending {
            let wait_ns = INTERVAL_NS / leaves as u64;
            mmp.changed.wait_timeout_ns(&mut state, wait_ns);
        }
        if state.is_ending {
            return;
        }
    }
}

/// How long to watch for another host's heartbeat before writing to a pool, in ns; `None` if no
/// check is needed.
#[must_use]
#[doc(alias = "spa_activity_check_duration")]
pub fn activity_check_ns(found: &FoundPool, hostid: u64) -> Option<u64> {
    let uberblock = best_uberblock(found, Txg(u64::MAX)).ok()?;
    let is_off = uberblock.mmp_magic.get() == MMP_MAGIC && uberblock.mmp_delay.get() == 0;
    if is_off || found.hostid == hostid || found.state != PoolState::Active {
        return None;
    }
    let least_ns = IMPORT_INTERVALS * INTERVAL_NS;
    let delay_ns = uberblock.mmp_delay.get();
    let interval_ns = uberblock
        .mmp_interval_ms()
        .map(|ms| u64::from(ms) * NS_PER_MS);
    let fails = uberblock.mmp_fail_intervals().map(u64::from);
    Some(match (interval_ns, fails) {
        (Some(interval_ns), Some(fails)) if fails > 0 => fails
            .saturating_mul(interval_ns)
            .saturating_mul(SAFETY_FACTOR),
        (Some(interval_ns), Some(_)) => {
            let each_ns = interval_ns.saturating_add(delay_ns);
            least_ns.max(each_ns.saturating_mul(IMPORT_INTERVALS))
        }
        _ if uberblock.mmp_magic.get() == MMP_MAGIC => {
            let each_ns = INTERVAL_NS.saturating_add(delay_ns);
            least_ns.max(each_ns.saturating_mul(IMPORT_INTERVALS))
        }
        _ => least_ns,
    })
}

/// Watches the uberblocks of a pool that another host had last. If they do not change for long
/// enough, the pool is not in use.
///
/// # Errors
/// `Permission` when it is in use; any error from reading the labels.
#[doc(alias = "spa_activity_check")]
pub(crate) fn check_activity(found: &FoundPool, hostid: u64) -> Result<()> {
    let Some(wait_ns) = activity_check_ns(found, hostid) else {
        return Ok(());
    };
    if wait_ns > WAIT_MAX_NS {
        let secs = wait_ns / NS_PER_SEC;
        let what = format!("mmp_delay or mmp_config: the pool is to be watched for {secs} s");
        return Err(Error::corrupt(what));
    }
    let facts = |found: &FoundPool| {
        let uberblock = best_uberblock(found, Txg(u64::MAX))?;
        let facts = (
            uberblock.txg(),
            uberblock.timestamp.get(),
            uberblock.mmp_seq(),
        );
        Ok::<_, Error>((facts, uberblock.mmp_delay.get() != 0))
    };
    let (before, has_heartbeat) = facts(found)?;
    if has_heartbeat && hostid == 0 {
        let text = "pool has the multihost property on and the system's hostid is not set. Set a unique \
                    system hostid with the zgenhostid(8) command.";
        return Err(Error::new(ErrorKind::Permission, text));
    }
    // A random extra, so that two hosts that begin to watch at the same time do not finish at the
    // same time.
    let end_ns = rt::now_ns()
        .saturating_add(wait_ns)
        .saturating_add(rt::random_below(wait_ns / 4 + 1));
    let providers: Vec<_> = found
        .devices
        .iter()
        .map(|device| device.provider.clone())
        .collect();
    while rt::now_ns() < end_ns {
        rt::sleep_ns(NS_PER_SEC.min(end_ns - rt::now_ns().min(end_ns)));
        let pools = discover(&providers).pools;
        let Some(again) = pools.into_iter().find(|pool| pool.guid == found.guid) else {
            return Err(Error::corrupt(
                "its labels went away while they were watched",
            ));
        };
        if facts(&again)?.0 != before {
            let text = format!(
                "pool is imported on host '{}' (hostid={:x}).\nExport the pool on the other system, then \
                 run 'zpool import'.",
                again.hostname, again.hostid
            );
            return Err(Error::new(ErrorKind::Permission, text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An update is newer than every heartbeat before it, and no heartbeat is older than the update that it repeats,
    /// also when updates are more than the seconds that have passed.
    #[test]
    fn sim_uberblocks_of_a_txg_grow_newer() {
        rt::simulate(1, || {
            let mmp = Mmp::new();
            mmp.state.lock().is_on = true;
            let mut synced = UberblockPhys::default();
            synced.timestamp.set(rt::wall_clock().secs);
            let age = |uberblock: &UberblockPhys| (uberblock.timestamp.get(), uberblock.mmp_seq());
            let mut last = age(&synced);
            for n in 0..200 {
                // The clock is ahead of the updates at first, then they are ahead of it.
                let pause_ns = if n < 50 { 3_000_000_000 } else { 0 };
                rt::sleep_ns(pause_ns);
                let newer = if n % 5 == 0 {
                    mmp.next(synced).0
                } else {
                    mmp.update(&mut synced, |_, _| Ok(())).unwrap();
                    synced
                };
                assert!(age(&newer) > last, "{n}: {:?} {last:?}", age(&newer));
                last = age(&newer);
            }
            assert!(last.0 > rt::wall_clock().secs, "ahead of the clock");
        });
    }
}
