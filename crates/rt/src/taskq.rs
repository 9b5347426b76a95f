//! Task queues: a few threads that start the tasks they are given in order of arrival.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::thread::Payload;
use crate::{Condvar, JoinHandle, Mutex, spawn};

type Task = Box<dyn FnOnce() + Send>;

/// A queue of tasks and the threads that run them. Dropping it runs the queued tasks, then ends the
/// threads.
#[doc(alias = "taskq_t")]
pub struct TaskQueue {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// Notified when a task is queued or the queue closes.
    work: Condvar,
    /// Notified when a task is taken or has ended.
    progress: Condvar,
    backlog_max: usize,
}

struct State {
    tasks: VecDeque<Task>,
    running: usize,
    closed: bool,
    panic: Option<Payload>,
}

impl TaskQueue {
    /// A queue with `threads` threads that takes any number of tasks.
    #[must_use]
    #[track_caller]
    #[doc(alias = "taskq_create")]
    pub fn new(name: &str, threads: usize) -> Self {
        Self::bounded(name, threads, usize::MAX)
    }

    /// A queue in which at most `backlog_max` tasks wait: [`TaskQueue::dispatch`] waits for room.
    #[must_use]
    #[track_caller]
    pub fn bounded(name: &str, threads: usize, backlog_max: usize) -> Self {
        assert!(threads > 0, "task queue {name} has no thread");
        assert!(backlog_max > 0, "task queue {name} has no room");
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                tasks: VecDeque::new(),
                running: 0,
                closed: false,
                panic: None,
            }),
            work: Condvar::new(),
            progress: Condvar::new(),
            backlog_max,
        });
        let workers = (0..threads)
            .map(|n| {
                let shared = Arc::clone(&shared);
                spawn(&format!("{name}/{n}"), move || shared.work())
            })
            .collect();
        TaskQueue { shared, workers }
    }

    /// Queues a task.
    #[track_caller]
    #[doc(alias = "taskq_dispatch")]
    pub fn dispatch(&self, task: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.state.lock();
        while state.tasks.len() >= self.shared.backlog_max {
            self.shared.progress.wait(&mut state);
        }
        state.tasks.push_back(Box::new(task));
        drop(state);
        self.shared.work.notify_one();
    }

    /// Waits until no task is queued or running; the first panic of a task resumes here.
    #[track_caller]
    #[doc(alias = "taskq_wait")]
    pub fn wait_idle(&self) {
        let mut state = self.shared.state.lock();
        while !state.tasks.is_empty() || state.running > 0 {
            self.shared.progress.wait(&mut state);
        }
        if let Some(payload) = state.panic.take() {
            drop(state);
            resume_unwind(payload);
        }
    }

    /// The number of tasks queued or running.
    #[must_use]
    pub fn len(&self) -> usize {
        let state = self.shared.state.lock();
        state.tasks.len() + state.running
    }

    /// Whether no task is queued or running.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Shared {
    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            let Some(task) = state.tasks.pop_front() else {
                if state.closed {
                    return;
                }
                self.work.wait(&mut state);
                continue;
            };
            state.running += 1;
            drop(state);
            self.progress.notify_all();
            let result = catch_unwind(AssertUnwindSafe(task));
            state = self.state.lock();
            state.running -= 1;
            if let Err(payload) = result {
                state.panic.get_or_insert(payload);
            }
            self.progress.notify_all();
        }
    }
}

impl Drop for TaskQueue {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.work.notify_all();
        let mut failed = None;
        for worker in self.workers.drain(..) {
            if let Err(payload) = worker.try_join() {
                failed.get_or_insert(payload);
            }
        }
        let failed = failed.or_else(|| self.shared.state.lock().panic.take());
        if let Some(payload) = failed
            && !std::thread::panicking()
        {
            resume_unwind(payload);
        }
    }
}

impl std::fmt::Debug for TaskQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TaskQueue({} threads)", self.workers.len())
    }
}
