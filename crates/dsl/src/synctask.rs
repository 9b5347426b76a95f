//! Sync tasks: changes to the DSL, requested in open context and made in syncing context.
//!
//! # What it is
//! Everything that changes names, datasets or properties runs on the sync thread after the txg's
//! data has been written, one task after another: nothing else changes the DSL meanwhile, and the
//! changes are atomic with the txg, so the operation is on disk either completely or not at all.
//! The caller waits for that txg.
//!
//! # Concurrency
//! The check runs twice: in open context for a quick answer, and on the sync thread under the
//! configuration lock, held for writing, right before the change.
//!
//! # Source
//! OpenZFS module/zfs/dsl_synctask.c @be7657e3

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Error, ErrorKind, Result, Txg};
use dmu::Tx;
use rt::Mutex;

use crate::pool::DslPool;
use crate::space::SpaceCheck;

/// Estimated bytes per changed MOS block (`1 << DST_AVG_BLKSHIFT`).
const BLOCK_ESTIMATE_BYTES: u64 = 1 << 14;
/// Copies of every MOS block.
const MOS_COPIES: u64 = 3;
/// How many times a task may ask to run in a later txg.
const ATTEMPTS_MAX: u32 = 8;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Run the task.
    Go,
    /// Not in this txg: try again in the next.
    Later,
}

type Job = Box<dyn FnOnce(&DslPool, &Tx) -> Result<()> + Send>;

/// A task queued for its txg.
pub(crate) struct SyncTask {
    space_bytes: u64,
    space_check: SpaceCheck,
    /// It runs before anything else in its txg.
    is_early: bool,
    job: Job,
    /// Called with the error when the job is not started at all.
    refuse: Box<dyn FnOnce(Error) + Send>,
}

/// The tasks of each txg.
#[derive(Default)]
pub(crate) struct TaskQueue(Mutex<BTreeMap<Txg, Vec<SyncTask>>>);

impl TaskQueue {
    fn push(&self, txg: Txg, task: SyncTask) {
        self.0.lock().entry(txg).or_default().push(task);
    }

    /// The tasks of a txg that are early, or all that are left.
    fn take(&self, txg: Txg, only_early: bool) -> Vec<SyncTask> {
        let mut tasks = self.0.lock();
        let all = tasks.remove(&txg).unwrap_or_default();
        if !only_early {
            return all;
        }
        let (early, others) = all.into_iter().partition(|task| task.is_early);
        if !Vec::is_empty(&others) {
            tasks.insert(txg, others);
        }
        early
    }
}

/// The outcome of a task on the sync thread.
enum Outcome<T> {
    Done(T),
    Later,
    Failed(Error),
}

impl DslPool {
    /// Runs `sync` in syncing context, if `check` allows it, and waits until its txg is on disk.
    ///
    /// `blocks`: estimated number of MOS blocks that it will change. The closures get the syncing
    /// [`Tx`], except that the first run of `check`, in open context, gets an open one.
    ///
    /// # Errors
    /// Any error from `check`; `NoSpace` when the pool is too full for it; `Suspended`. An error of
    /// `sync` itself suspends the pool.
    #[doc(alias = "dsl_sync_task")]
    pub fn sync_task<T: Send + 'static>(
        &self,
        blocks: u64,
        space: SpaceCheck,
        check: impl Fn(&DslPool, &Tx) -> Result<Verdict> + Send + Sync + 'static,
        sync: impl FnOnce(&DslPool, &Tx) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.task(blocks, (space, false), check, sync)
    }

    /// Like [`sync_task`](DslPool::sync_task), but before anything of the txg is written or freed.
    ///
    /// # Errors
    /// As [`sync_task`](DslPool::sync_task).
    #[doc(alias = "dsl_early_sync_task")]
    pub fn early_sync_task<T: Send + 'static>(
        &self,
        blocks: u64,
        space: SpaceCheck,
        check: impl Fn(&DslPool, &Tx) -> Result<Verdict> + Send + Sync + 'static,
        sync: impl FnOnce(&DslPool, &Tx) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.task(blocks, (space, true), check, sync)
    }

    fn task<T: Send + 'static>(
        &self,
        blocks: u64,
        (space, is_early): (SpaceCheck, bool),
        check: impl Fn(&DslPool, &Tx) -> Result<Verdict> + Send + Sync + 'static,
        sync: impl FnOnce(&DslPool, &Tx) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let check = Arc::new(check);
        let sync = Arc::new(Mutex::new(Some(sync)));
        for _ in 0..ATTEMPTS_MAX {
            let slot = Arc::new(Mutex::new(None::<Outcome<T>>));
            let tx = self.groups().hold_open(blocks * BLOCK_ESTIMATE_BYTES)?;
            {
                let _config = self.config().read();
                check(self, &tx)?;
            }
            let (checks, syncs, result) = (check.clone(), sync.clone(), slot.clone());
            let job = move |pool: &DslPool, tx: &Tx| {
                let _config = pool.config().write();
                let outcome = match checks(pool, tx) {
                    Err(error) => Outcome::Failed(error),
                    Ok(Verdict::Later) => Outcome::Later,
                    Ok(Verdict::Go) => {
                        let sync = syncs.lock().take().expect("a task runs once");
                        Outcome::Done(sync(pool, tx)?)
                    }
                };
                *result.lock() = Some(outcome);
                Ok(())
            };
            let refused = slot.clone();
            self.tasks().push(
                tx.txg(),
                SyncTask {
                    space_bytes: blocks * BLOCK_ESTIMATE_BYTES,
                    space_check: space,
                    is_early,
                    job: Box::new(job),
                    refuse: Box::new(move |e| *refused.lock() = Some(Outcome::Failed(e))),
                },
            );
            let txg = tx.txg();
            self.groups().note_dirty(0);
            drop(tx);
            self.groups().wait_synced(txg)?;
            let outcome = slot.lock().take();
            match outcome.expect("a synced txg has run its tasks") {
                Outcome::Done(value) => return Ok(value),
                Outcome::Failed(error) => return Err(error),
                Outcome::Later => {}
            }
        }
        Err(Error::new(
            ErrorKind::Busy,
            "the operation found no txg to run in",
        ))
    }

    /// Queues `job` to run in syncing context of the Tx's txg, without a check and without
    /// waiting. Open context.
    #[doc(alias = "dsl_sync_task_nowait")]
    pub fn queue_task(
        &self,
        tx: &Tx,
        job: impl FnOnce(&DslPool, &Tx) -> Result<()> + Send + 'static,
    ) {
        let locked = move |pool: &DslPool, tx: &Tx| {
            let _config = pool.config().write();
            job(pool, tx)
        };
        self.tasks().push(
            tx.txg(),
            SyncTask {
                space_bytes: 0,
                space_check: SpaceCheck::None,
                is_early: false,
                job: Box::new(locked),
                refuse: Box::new(drop),
            },
        );
        self.groups().note_dirty(0);
    }

    /// Runs the tasks of the txg being synced, in the order in which they were queued.
    ///
    /// # Errors
    /// The error of a task that failed half way; the txg must then not be completed.
    #[doc(alias = "dsl_sync_task_sync")]
    pub fn run_tasks(&self, tx: &Tx) -> Result<()> {
        self.run(self.tasks().take(tx.txg(), false), tx)
    }

    /// Runs the early tasks of the txg being synced; before anything else in it.
    ///
    /// # Errors
    /// As [`run_tasks`](DslPool::run_tasks).
    pub fn run_early_tasks(&self, tx: &Tx) -> Result<()> {
        self.run(self.tasks().take(tx.txg(), true), tx)
    }

    fn run(&self, tasks: Vec<SyncTask>, tx: &Tx) -> Result<()> {
        assert!(tx.is_syncing(), "tasks run in syncing context");
        for task in tasks {
            if task.space_check != SpaceCheck::None {
                let quota = self.unreserved_space(task.space_check);
                let used = self.root_dir().fields().used_bytes;
                if used + task.space_bytes * MOS_COPIES > quota {
                    let text = format!("pool {} is full", self.name());
                    (task.refuse)(Error::new(ErrorKind::NoSpace, text));
                    continue;
                }
            }
            (task.job)(self, tx)?;
        }
        Ok(())
    }
}
