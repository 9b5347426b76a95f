//! What a pool should hold after each operation, and when which of these states were known to be on disk.
//!
//! # What it is
//! A [`Past`] begins at a moment when everything was on disk. From then on it has one [`State`] per operation.
//! Time is counted in commands that the devices acknowledged, as [`faulty::PowerCut`] counts them.
//!
//! # Invariants
//! 1. States, and what is known of them, are in order of time.
//! 2. A state whose operation began after the n-th command cannot be what a power cut after the n-th leaves.

use base::{ObjectId, Txg};

use crate::filesystems::Filesystems;

/// What the pool should hold after an operation.
pub(super) struct State {
    /// How many commands had been acknowledged when the operation began.
    begun: u64,
    /// The operation belongs to this txg or an earlier one.
    txg: Txg,
    /// The model of the whole pool.
    pub(super) model: Filesystems,
}

/// An fsync that succeeded, or an intent log that was written for another reason.
pub(super) struct Logged {
    /// Acknowledged commands when it began, and when it had ended.
    commands: std::ops::RangeInclusive<u64>,
    /// The file system.
    pub(super) head: String,
    /// The file; `None` when nothing was promised.
    pub(super) file: Option<ObjectId>,
    /// The last state before it.
    pub(super) state: usize,
}

/// States since everything was known to be on disk.
pub(super) struct Past {
    base: u64,
    states: Vec<State>,
    /// Pairs: after this many commands, this state was known to be on disk.
    known: Vec<(u64, usize)>,
    logged: Vec<Logged>,
    /// After this many commands, all of this file system up to this state was in its log or on disk.
    durable: Vec<(u64, String, usize)>,
}

impl Past {
    /// Everything in `model` is on disk now, after `commands`.
    pub(super) fn new(commands: u64, model: &Filesystems) -> Past {
        let state = State {
            begun: commands,
            txg: Txg(0),
            model: model.clone(),
        };
        Past {
            base: commands,
            states: vec![state],
            known: vec![(commands, 0)],
            logged: Vec::new(),
            durable: Vec::new(),
        }
    }

    /// The earliest moment of a power cut, in commands.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// The number of states.
    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// Adds the state after an operation that began after `begun` commands.
    pub(super) fn push(&mut self, begun: u64, txg: Txg, model: Filesystems) {
        self.states.push(State { begun, txg, model });
    }

    /// The intent log of a file system was written between these commands; `file`, if any, is durable from then
    /// on.
    pub(super) fn log(&mut self, commands: (u64, u64), head: &str, file: Option<ObjectId>) {
        self.logged.push(Logged {
            commands: commands.0..=commands.1,
            head: head.to_owned(),
            file,
            state: self.states.len() - 1,
        });
    }

    /// After `commands` the last state of a file system was in its intent log.
    pub(super) fn all_is_logged(&mut self, commands: u64, head: &str) {
        let state = self.states.len() - 1;
        self.durable.push((commands, head.to_owned(), state));
    }

    /// The last state of a file system that was in its log by the n-th command.
    pub(super) fn durable_from(&self, head: &str, n: u64) -> Option<usize> {
        let ended = self.durable.iter();
        let ended = ended.filter(|(at, name, _)| *at <= n && name == head);
        ended.map(|(.., state)| *state).max()
    }

    /// After `commands` everything was on disk.
    pub(super) fn all_is_known(&mut self, commands: u64) {
        self.known.push((commands, self.states.len() - 1));
    }

    /// After `commands` this txg was on disk.
    pub(super) fn txg_is_known(&mut self, commands: u64, txg: Txg) {
        let Some(state) = self.states.iter().rposition(|state| state.txg <= txg) else {
            return;
        };
        if self.known.last().is_none_or(|(_, last)| *last < state) {
            self.known.push((commands, state));
        }
    }

    /// The states that a power cut after the n-th command may leave.
    pub(super) fn candidates(&self, n: u64) -> std::ops::RangeInclusive<usize> {
        let known = self.known.iter().filter(|(at, _)| *at <= n);
        let first = known.map(|(_, state)| *state).max().unwrap_or(0);
        let last = self.states.iter().rposition(|state| state.begun <= n);
        first..=last.unwrap_or(first).max(first)
    }

    /// A state by its number.
    pub(super) fn model(&self, state: usize) -> &Filesystems {
        &self.states[state].model
    }

    /// The last state up to which the intent log of a file system may have been written by the n-th command.
    pub(super) fn logged_until(&self, head: &str, n: u64) -> Option<usize> {
        let logged = self.logged.iter();
        let begun = logged.filter(|l| l.head == head && *l.commands.start() <= n);
        begun.map(|l| l.state).max()
    }

    /// The fsyncs that had ended by the n-th command.
    pub(super) fn fsyncs(&self, n: u64) -> impl Iterator<Item = &Logged> {
        let ended = self.logged.iter();
        ended.filter(move |l| l.file.is_some() && *l.commands.end() <= n)
    }
}
