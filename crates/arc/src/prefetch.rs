//! Reading ahead: the queue of blocks, and how many threads serve it.
//!
//! # What it is
//! Blocks that a reader will ask for are in one queue; threads take them from its front, one at a time,
//! until it is empty. The number of threads depends on what a read costs. A device that keeps readers
//! waiting needs several commands at once, and each top-level vdev needs its own: a file lies on one of
//! them for some mebibytes, then on the next one. So a thread takes the first block whose vdev has too
//! few threads, and where there are several vdevs, blocks are requested further ahead of the reader. A
//! read from the host's memory costs only processor time: then there are as many threads as there are
//! processors besides the reader's own, which reads as well (`read_run` of [`Cache`]); one more would
//! only compete with it. Nor do they go far ahead of it: buffers that are reused soon are still in the
//! processors' shared cache.
//!
//! # Concurrency
//! One lock, held to put blocks in or to take one; nothing else is locked meanwhile.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base::ObjsetId;
use phys::BlkPtrPhys;
use zio::{BlockStore, PREFETCH_DISTANCE_MAX_BYTES, Run};

use crate::policy::Reader;
use crate::{Cache, Inner, Load, count, is_cacheable, is_log};

/// A read is quick, from the host's memory, if it takes at most this, plus [`QUICK_NS_PER_KIB`] for each
/// KiB.
const QUICK_NS: u64 = 100_000;
const QUICK_NS_PER_KIB: u64 = 500;
/// Cap on a single sample, in thousandths of a quick read, so that one preemption does not make the
/// device look slow.
const SLOWNESS_MAX: u64 = 4000;
/// The latest read has a weight of one part in this many in the average.
const AVERAGE_OVER: u64 = 8;

/// How far ahead of a reader to go at most, over however many vdevs (`zfetch_max_distance`).
const DISTANCE_MAX_BYTES: u64 = 64 << 20;
/// Top-level vdevs that have threads of their own.
const VDEVS_MAX: usize = 16;

/// How far ahead of a reader to go when reads are quick.
const QUICK_DISTANCE_BYTES: u64 = 2 << 20;

/// The blocks to be read ahead, and how long reads take.
#[derive(Default)]
pub(crate) struct Queue {
    state: rt::Mutex<State>,
    /// How long reads take on average, in thousandths of the longest quick read.
    slowness: AtomicU64,
    /// One more than the highest top-level vdev that blocks were seen on.
    vdevs: AtomicUsize,
}

/// A block to be read ahead.
#[derive(Clone, Copy)]
pub(crate) struct Ahead {
    pub(crate) bp: BlkPtrPhys,
    pub(crate) objset: ObjsetId,
    pub(crate) reader: Reader,
    /// See [`Policy::queue`](crate::policy::Policy::queue).
    pub(crate) queued: u64,
}

#[derive(Default)]
struct State {
    blocks: VecDeque<Ahead>,
    /// Threads that read ahead.
    running: usize,
    /// How many of them are at each top-level vdev.
    reading: [usize; VDEVS_MAX],
}

/// The vdev of a block, modulo [`VDEVS_MAX`].
fn vdev_of(bp: &BlkPtrPhys) -> usize {
    let first = bp.dvas().next();
    first.map_or(0, |dva| dva.vdev().0 as usize % VDEVS_MAX)
}

impl State {
    /// The first block of a vdev on which fewer than `per_vdev` threads are working.
    fn take(&mut self, per_vdev: usize) -> Option<Ahead> {
        let is_free = |next: &Ahead| self.reading[vdev_of(&next.bp)] < per_vdev;
        let at = self.blocks.iter().position(is_free)?;
        let next = self.blocks.remove(at)?;
        self.reading[vdev_of(&next.bp)] += 1;
        Some(next)
    }
}

/// A thread that reads ahead. Dropping it takes it off the count, also after a panic.
struct Running<'a>(&'a Queue);

/// A read at a vdev.
struct Reading<'a>(&'a Queue, usize);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.state.lock().reading[self.1] -= 1;
    }
}

impl Running<'_> {
    /// Called under the lock under which the queue was found empty: a thread that adds blocks either
    /// finds this one still running or sees that it has left.
    fn leave(self, state: &mut State) {
        state.running -= 1;
        std::mem::forget(self);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state.lock().running -= 1;
    }
}

impl Queue {
    fn note(&self, bp: &BlkPtrPhys, ns: u64) {
        let quick_ns = QUICK_NS + (bp.psize() >> 10) * QUICK_NS_PER_KIB;
        let now = (ns.saturating_mul(1000) / quick_ns).min(SLOWNESS_MAX);
        let before = self.slowness.load(Ordering::Relaxed);
        // Two threads at once may lose a sample, which does not matter for an average.
        let average = (before * (AVERAGE_OVER - 1)).saturating_add(now) / AVERAGE_OVER;
        self.slowness.store(average, Ordering::Relaxed);
    }

    /// Whether reading costs a processor's time and nothing else.
    fn is_quick(&self) -> bool {
        self.slowness.load(Ordering::Relaxed) < 1000 && !rt::is_simulated()
    }

    /// How far ahead of a sequential reader to go, in bytes.
    pub(crate) fn distance(&self) -> u64 {
        if self.is_quick() {
            QUICK_DISTANCE_BYTES
        } else {
            (PREFETCH_DISTANCE_MAX_BYTES * self.vdevs() as u64).min(DISTANCE_MAX_BYTES)
        }
    }

    fn vdevs(&self) -> usize {
        self.vdevs.load(Ordering::Relaxed).clamp(1, VDEVS_MAX)
    }

    /// How many threads should run, if `per_vdev` are enough for one vdev.
    fn useful(&self, per_vdev: usize) -> usize {
        let threads = per_vdev * self.vdevs();
        if self.is_quick() {
            threads.min(rt::parallelism().saturating_sub(1)).max(1)
        } else {
            threads
        }
    }
}

impl<S: BlockStore + ?Sized> Inner<S> {
    /// The loop of one thread.
    fn read_queued(&self) {
        let running = Running(&self.ahead);
        loop {
            let useful = self.ahead.useful(self.settings.prefetch_threads);
            let mut state = self.ahead.state.lock();
            let next = if state.running > useful {
                None
            } else {
                state.take(self.settings.prefetch_threads)
            };
            let Some(next) = next else {
                return running.leave(&mut state);
            };
            drop(state);
            let _reading = Reading(&self.ahead, vdev_of(&next.bp));
            self.prefetch(&next);
        }
    }

    /// For a thread that waits for a block that another thread is reading: it would sleep no longer than
    /// it takes to read the next block of the queue, so it does that instead.
    pub(crate) fn read_meanwhile(&self) {
        if self.ahead.is_quick() {
            let next = self.ahead.state.lock().blocks.pop_front();
            if let Some(next) = next {
                self.prefetch(&next);
            }
        }
    }

    pub(crate) fn prefetch(&self, next: &Ahead) {
        let Ahead {
            bp,
            objset,
            reader,
            queued,
        } = next;
        let Some(pending) = self.policy.lock().start_prefetch(bp, *queued) else {
            return;
        };
        count(&self.counters.prefetches);
        let load = Load::new(self, bp, pending, *reader);
        let start_ns = rt::now_ns();
        // The reader of the block gets the error again, and can handle it.
        let _ = load.run(|store| store.read_ahead(*objset, bp));
        self.ahead.note(bp, rt::now_ns().saturating_sub(start_ns));
    }
}

impl<S: BlockStore + ?Sized + 'static> Cache<S> {
    pub(crate) fn queue_reads(&self, objset: ObjsetId, bps: &[BlkPtrPhys], run: Run) {
        let settings = &self.inner.settings;
        let threads = settings.prefetch_threads.max(1);
        let mut policy = self.inner.policy.lock();
        let reader = Reader {
            is_ahead: true,
            passing: policy.passing(run),
        };
        let useful = |bp: &&BlkPtrPhys| is_cacheable(bp) && !is_log(bp) && policy.wants(bp);
        let wanted: Vec<BlkPtrPhys> = bps.iter().filter(useful).copied().collect();
        let queued = policy.queue();
        drop(policy);
        let vdevs = wanted.iter().map(|bp| vdev_of(bp) + 1).max();
        let ahead = &self.inner.ahead;
        ahead.vdevs.fetch_max(vdevs.unwrap_or(1), Ordering::Relaxed);
        let mut state = ahead.state.lock();
        let room = settings.prefetch_backlog.saturating_sub(state.blocks.len());
        let wanted = wanted.into_iter().take(room);
        let wanted = wanted.map(|bp| Ahead {
            bp,
            objset,
            reader,
            queued,
        });
        state.blocks.extend(wanted);
        let useful = self.inner.ahead.useful(threads).min(state.blocks.len());
        let more = useful.saturating_sub(state.running);
        state.running += more;
        drop(state);
        for _ in 0..more {
            let inner = self.inner.clone();
            self.dispatch(threads, move || inner.read_queued());
        }
    }

    /// Dispatches a task to the shortest queue; each vdev adds a queue with `threads` threads.
    fn dispatch(&self, threads: usize, task: impl FnOnce() + Send + 'static) {
        let mut queues = self.queues.lock();
        let wanted = self.inner.ahead.vdevs();
        while queues.len() < wanted {
            queues.push(rt::TaskQueue::new("arc_prefetch", threads));
        }
        let idlest = queues.iter().min_by_key(|queue| queue.len());
        idlest.expect("one for each vdev").dispatch(task);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{Buf, Txg};
    use ram::RamStore;
    use zio::{Bookmark, WritePolicy, WriteRequest};

    use super::*;
    use crate::ArcSettings;

    fn ahead(bp: BlkPtrPhys) -> Ahead {
        Ahead {
            bp,
            objset: ObjsetId(0),
            reader: Reader::default(),
            queued: 1,
        }
    }

    #[test]
    fn slow_devices_have_all_threads_and_quick_ones_the_processors_to_spare() {
        let mut bp = BlkPtrPhys::default();
        bp.set_psize(128 << 10);
        let queue = Queue::default();
        let spare = rt::parallelism().saturating_sub(1).max(1);
        assert_eq!(queue.useful(64), spare.min(64));
        assert_eq!(queue.distance(), QUICK_DISTANCE_BYTES);
        (0..10).for_each(|_| queue.note(&bp, 5_000_000));
        assert_eq!(queue.useful(64), 64);
        assert_eq!(queue.distance(), PREFETCH_DISTANCE_MAX_BYTES);
        (0..40).for_each(|_| queue.note(&bp, 50_000));
        assert_eq!(queue.useful(64), spare.min(64));
        // A thread that was preempted once.
        queue.note(&bp, 20_000_000);
        assert_eq!(queue.useful(64), spare.min(64));
        rt::simulate(1, || assert_eq!(queue.useful(4), 4));
    }

    #[test]
    fn each_vdev_has_threads_of_its_own() {
        let on = |vdev: u64| {
            let mut bp = BlkPtrPhys::default();
            let dva = phys::DvaPhys::new(base::VdevId(vdev), 1 << 20, 4096, false);
            bp.set_dva(0, dva);
            ahead(bp)
        };
        let mut state = State::default();
        state.blocks.extend([0, 0, 0, 1, 0, 2].map(on));
        let mut take = || state.take(2).map(|next| vdev_of(&next.bp));
        assert_eq!(
            [(); 5].map(|()| take()),
            [Some(0), Some(0), Some(1), Some(2), None]
        );
        state.reading[0] -= 1;
        assert_eq!(state.take(2).map(|next| vdev_of(&next.bp)), Some(0));
        assert_eq!(state.blocks.len(), 1);
        let queue = Queue::default();
        queue.vdevs.store(4, Ordering::Relaxed);
        rt::simulate(1, || {
            assert_eq!(queue.useful(4), 16);
            assert_eq!(queue.distance(), 4 * PREFETCH_DISTANCE_MAX_BYTES);
        });
    }

    #[test]
    fn while_a_quick_device_reads_for_another_the_next_block_is_read() {
        let cache = Cache::new(Arc::new(RamStore::new()), ArcSettings::default());
        let new = |fill| {
            let data = Buf::copy_of(&[fill; 4096]);
            let request = WriteRequest::new(data, WritePolicy::default(), 19, Bookmark::default());
            cache.store().write(Txg(9), request).unwrap()
        };
        let (first, next) = (new(1), new(2));
        let queued = || cache.inner.ahead.state.lock().blocks.len();
        let pending = cache
            .inner
            .policy
            .lock()
            .start_prefetch(&first, u64::MAX)
            .unwrap();
        let entry = ahead(next);
        cache.inner.ahead.state.lock().blocks.push_back(entry);
        let wanted = [(first, Bookmark::default())];
        let start_ns = rt::now_ns();
        std::thread::scope(|threads| {
            let load = Load::new(&cache.inner, &first, pending, Reader::default());
            let run = || cache.read_run(&wanted, Run::default()).remove(0).unwrap()[0];
            let reader = threads.spawn(run);
            while queued() > 0 || !cache.is_cached(&next) {
                assert!(rt::now_ns() - start_ns < 30_000_000_000, "it was not read");
                std::thread::yield_now();
            }
            assert_eq!(
                load.run(|store| store.read_ahead(ObjsetId(0), &first))
                    .unwrap()[0],
                1
            );
            assert_eq!(reader.join().unwrap(), 1);
        });
        // Reads from a slow device are left to the prefetch threads.
        (0..10).for_each(|_| cache.inner.ahead.note(&next, 5_000_000));
        cache.inner.ahead.state.lock().blocks.push_back(entry);
        cache.inner.read_meanwhile();
        assert_eq!(queued(), 1);
    }
}
