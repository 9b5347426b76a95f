//! Sync tasks: changes of the DSL, asked for in open context and done in syncing context.
//!
//! # What it is
//! Everything that changes names, data sets or properties runs on the sync thread after the txg's
//! data has been written, one task after the other: it sees a quiet DSL, its changes are atomic
//! with the txg, and so the whole operation either is on disk or is not. The caller waits for that
//! txg.
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

/// Bytes that one block changed in the MOS is estimated at (`1 << DST_AVG_BLKSHIFT`).
const BLOCK_ESTIMATE_BYTES: u64 = 1 << 14;
/// Copies of everything in the MOS.
const MOS_COPIES: u64 = 3;
/// How often a task may ask to run in a later txg.
const ATTEMPTS_MAX: u32 = 8;

/// What a check says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Do it.
    Go,
    /// Not in this txg: try again in the next.
    Later,
}

type Job = Box<dyn FnOnce(&DslPool, &Tx) -> Result<()> + Send>;

/// A task that waits for its txg.
pub(crate) struct SyncTask {
    space_bytes: u64,
    space_check: SpaceCheck,
    job: Job,
    /// Gets the error when the job is not even started.
    refuse: Box<dyn FnOnce(Error) + Send>,
}

/// The tasks of each txg.
#[derive(Default)]
pub(crate) struct TaskQueue(Mutex<BTreeMap<Txg, Vec<SyncTask>>>);

impl TaskQueue {
    fn push(&self, txg: Txg, task: SyncTask) {
        self.0.lock().entry(txg).or_default().push(task);
    }

    fn take(&self, txg: Txg) -> Vec<SyncTask> {
        self.0.lock().remove(&txg).unwrap_or_default()
    }
}

/// How a task ended on the sync thread.
enum Outcome<T> {
    Done(T),
    Later,
    Failed(Error),
}

impl DslPool {
    /// Runs `sync` in syncing context, if `check` agrees, and waits until it is on disk.
    ///
    /// `blocks`: about how many blocks of the MOS it will change. The closures get the syncing
    /// [`Tx`]; the first run of `check`, in open context, an open one.
    ///
    /// # Errors
    /// What `check` says; `NoSpace` when the pool is too full for it; `Suspended`. An error of
    /// `sync` itself suspends the pool.
    #[doc(alias = "dsl_sync_task")]
    pub fn sync_task<T: Send + 'static>(
        &self,
        blocks: u64,
        space: SpaceCheck,
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
                job: Box::new(locked),
                refuse: Box::new(drop),
            },
        );
        self.groups().note_dirty(0);
    }

    /// Runs the tasks of the txg being synced, in the order in which they were queued.
    ///
    /// # Errors
    /// Whatever made a task fail half way: the txg must not be finished.
    #[doc(alias = "dsl_sync_task_sync")]
    pub fn run_tasks(&self, tx: &Tx) -> Result<()> {
        assert!(tx.is_syncing(), "tasks run in syncing context");
        for task in self.tasks().take(tx.txg()) {
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
