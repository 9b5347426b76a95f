//! The interface to the program that runs the commands.

use std::path::Path;

use base::Result;

use crate::outcome::DriveTrace;

/// The last words of a command whose standard output nobody reads.
pub(crate) const TO_NOWHERE: [&str; 2] = [">", "/dev/null"];

/// A command without `> /dev/null` at its end, and whether its output is to be read.
#[must_use]
pub fn without_redirection(words: &[String]) -> (&[String], bool) {
    match words
        .len()
        .checked_sub(TO_NOWHERE.len())
        .map(|at| words.split_at(at))
    {
        Some((command, end)) if end == TO_NOWHERE => (command, false),
        _ => (words, true),
    }
}

/// The result of a command.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Its standard output.
    pub output: String,
    /// Its error messages.
    pub complaints: String,
    /// Its exit code.
    pub code: i32,
    /// How long it took on the machine's clock, in nanoseconds.
    pub took_ns: u64,
    /// How much of that all cores of the host were busy, in percent.
    pub processor_percent: f64,
    /// How much of that the mechanics of the busiest disk were busy, in percent.
    pub drive_percent: f64,
}

/// A machine to be created.
#[derive(Clone, Debug, PartialEq)]
pub struct MachinePlan {
    /// Name and profile of each drive.
    pub drives: Vec<(String, String)>,
    /// Seeds all randomness.
    pub seed: u64,
    /// The host profile whose processor time is charged.
    pub host: String,
    /// The memory of the machine, if that is a figure of it.
    pub memory: Option<String>,
}

/// Creates machines and runs commands on them. Different machines may be used in parallel.
pub trait Shell: Sync {
    /// Creates a machine in a folder that does not exist yet.
    ///
    /// # Errors
    /// A profile that does not exist; whatever the file system says.
    fn create(&self, machine: &Path, plan: &MachinePlan) -> Result<()>;

    /// Runs one command, which may end with `> /dev/null`.
    ///
    /// # Errors
    /// When it could not be run at all; its own failure is in the answer's code.
    fn run(&self, machine: &Path, words: &[String]) -> Result<Answer>;

    /// The commands that each drive received so far.
    ///
    /// # Errors
    /// When the machine cannot be read.
    fn traces(&self, machine: &Path) -> Result<Vec<DriveTrace>>;
}
