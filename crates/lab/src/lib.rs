//! The lab: published experiments, replayed command by command, with their figures beside ours.
//!
//! # What it is
//! An [`Experiment`] is a file: a machine, the commands as one would type them, the figures to
//! read from their output, and the published figures. [`run::run`] makes a fresh machine for each
//! case, runs its commands through a [`Shell`], reads the figures and judges them. [`report`] draws
//! the outcome as one self-contained page of HTML. A [`plan`] tries all pools that a user may make of some drives.
//!
//! # Invariants
//! 1. Nothing is run before the whole file has been checked: every command is known, every
//!    parameter has a value, every reading's command is in its cases. That every published figure
//!    was read is checked when its case has run.
//! 2. The same file, parameters and seed give the same figures: every machine is new, and its
//!    time is simulated.
//! 3. A command that fails ends its experiment with file, line and command; its machine is kept.
//!
//! # Concurrency
//! Cases share nothing and run in parallel, one machine each, as many at a time as [`AtOnce`] has places; experiments
//! that run at the same time share those.
//!
//! # Why not simpler
//! A shell script could run the commands, but neither check them before an hour of work nor compare
//! the figures with the published ones.

mod at_once;
mod excerpt;
mod experiment;
mod files;
mod outcome;
mod parameters;
mod place;
pub mod plan;
mod reading;
mod recommend;
pub mod report;
pub mod run;
mod sensitivity;
mod shell;
mod table;
mod tally;
mod traces;
mod verdict;

pub use at_once::AtOnce;
pub use excerpt::excerpt;
pub use experiment::{
    Assumption, Case, Combine, CommandLine, Count, Experiment, Figure, FileKind, Files, Histogram,
    Part, Ratio, Reading, Source, builtin,
};
pub use outcome::{
    Assumed, CaseOutcome, DriveTrace, Measured, Outcome, Ran, RatioOutcome, Seen, Sensitivity,
    Tally, TraceEntry,
};
pub use parameters::{Parameters, Sweep};
pub use recommend::{Recommend, Recommendation};
pub use shell::{Answer, MachinePlan, Shell, without_redirection};
pub use verdict::Verdict;
