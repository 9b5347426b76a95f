//! Shortens a failing script by delta debugging.
//!
//! # What it is
//! First all steps after the failing one are dropped, and the pools that the failure does not need. Then runs
//! of steps are left out, halves first, then ever shorter ones down to single steps; a result that still fails
//! for the same reason is kept; this goes on until no single step can be left out. Last, steps are made to do
//! less.
//!
//! # Source
//! A. Zeller, R. Hildebrandt: Simplifying and Isolating Failure-Inducing Input (2002), `ddmin`.

use super::run::{Failure, run};
use super::script::Script;
use super::verdict::run_and_verify;

/// A short script, and how it fails.
pub struct Reduction {
    /// What is left of the script.
    pub script: Script,
    /// The failure of that script.
    pub failure: Failure,
    /// The number of scripts that were tried.
    pub runs: usize,
}

/// Looks for a shorter script that fails for the same reason; tries at most `runs_max`.
#[must_use]
pub fn reduce(script: &Script, failure: &Failure, runs_max: usize) -> Reduction {
    let mut search = Search {
        best: script.clone(),
        failure: failure.clone(),
        reason: failure.reason(),
        is_by_zdb: failure.step == script.steps.len(),
        runs: 0,
        runs_max,
    };
    search.cut_tail();
    search.leave_out_pools();
    search.leave_out_steps();
    search.leave_out_pools();
    search.do_less();
    search.leave_out_steps();
    Reduction {
        script: search.best,
        failure: search.failure,
        runs: search.runs,
    }
}

struct Search {
    best: Script,
    failure: Failure,
    reason: String,
    is_by_zdb: bool,
    runs: usize,
    runs_max: usize,
}

impl Search {
    /// Keeps the candidate if it fails for the same reason; returns whether it does.
    fn try_out(&mut self, mut candidate: Script) -> bool {
        if self.runs == self.runs_max {
            return false;
        }
        self.runs += 1;
        // A failure before the end of the script needs no `zdb`.
        let outcome = match self.is_by_zdb {
            true => run_and_verify(&candidate),
            false => run(&candidate),
        };
        match outcome {
            Err(failure) if failure.reason() == self.reason => {
                candidate.steps.truncate(failure.step + 1);
                self.best = candidate;
                self.failure = failure;
                true
            }
            _ => false,
        }
    }

    fn cut_tail(&mut self) {
        let mut candidate = self.best.clone();
        candidate.steps.truncate(self.failure.step + 1);
        self.try_out(candidate);
    }

    fn leave_out_steps(&mut self) {
        let mut length = self.best.steps.len().div_ceil(2);
        while length > 0 {
            let was_shortened = self.leave_out_runs(length);
            if length == 1 && !was_shortened {
                return;
            }
            length = if was_shortened && length == 1 {
                1
            } else {
                length / 2
            };
        }
    }

    /// Leaves out runs of this many steps, from the end to the beginning; returns whether any could be.
    fn leave_out_runs(&mut self, length: usize) -> bool {
        let mut was_shortened = false;
        let mut end = self.best.steps.len();
        while end > 0 {
            let start = end.saturating_sub(length);
            let mut candidate = self.best.clone();
            candidate.steps.drain(start..end);
            was_shortened |= self.try_out(candidate);
            end = start.min(self.best.steps.len());
        }
        was_shortened
    }

    fn leave_out_pools(&mut self) {
        for pool in (0..self.best.pools.len() as u64).rev() {
            let mut candidate = self.best.clone();
            let count = candidate.pools.len() as u64;
            if count == 1 {
                return;
            }
            candidate.steps.retain(|step| step.pool % count != pool);
            for step in &mut candidate.steps {
                step.pool %= count;
                step.pool -= u64::from(step.pool > pool);
            }
            candidate.pools.remove(pool as usize);
            self.try_out(candidate);
        }
    }

    /// Halves the amount of each step (operations, idle time) as often as possible.
    fn do_less(&mut self) {
        for at in 0..self.best.steps.len() {
            loop {
                let mut candidate = self.best.clone();
                let Some(step) = candidate.steps.get_mut(at).filter(|step| step.amount > 1) else {
                    break;
                };
                step.amount /= 2;
                if !self.try_out(candidate) {
                    break;
                }
            }
        }
    }
}
