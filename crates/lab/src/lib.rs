//! The lab: published experiments, replayed command by command, their figures beside ours.
//!
//! # What it is
//! An [`Experiment`] is a file: a machine, the commands as one would type them, what to read off,
//! and what was published. [`run::run`] makes a fresh machine for each case, runs its commands
//! through a [`Shell`], reads the figures off their output and judges them. [`report`] draws the
//! outcome as one page of HTML without a network.
//!
//! # Invariants
//! 1. Nothing is run before the whole file was understood: every command is known, every
//!    parameter has a value, every published figure has a reading.
//! 2. The same file, parameters and seed give the same figures: every machine starts anew, and its
//!    time is simulated.
//! 3. A command that fails ends its experiment with file, line and command; its machine is kept.
//!
//! # Concurrency
//! Cases share nothing and run side by side, one machine each.
//!
//! # Why not simpler
//! A shell script could call the commands, but neither check them before an hour of work nor know
//! which figure was published where.

mod experiment;
mod outcome;
mod parameters;
mod place;
mod reading;
mod recommend;
pub mod report;
pub mod run;
mod shell;
mod table;
mod verdict;

pub use experiment::{
    Case, CommandLine, Count, Experiment, Figure, Ratio, Reading, Source, builtin,
};
pub use outcome::{
    CaseOutcome, DriveTrace, Measured, Outcome, Ran, RatioOutcome, Seen, TraceEntry,
};
pub use parameters::{Parameters, Sweep};
pub use recommend::{Recommend, Recommendation};
pub use shell::{Answer, MachinePlan, Shell};
pub use verdict::Verdict;
