//! What runs the commands.

use std::path::Path;

use base::Result;

use crate::outcome::DriveTrace;

/// What a command answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// What it printed.
    pub output: String,
    /// What it complained of.
    pub complaints: String,
    /// Its exit code.
    pub code: i32,
    /// How long it took on the machine's clock, in nanoseconds.
    pub took_ns: u64,
}

/// A machine to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct MachinePlan {
    /// Name and profile of each drive.
    pub drives: Vec<(String, String)>,
    /// Decides all chance.
    pub seed: u64,
    /// Whose processor time is charged.
    pub host: String,
}

/// Makes machines and runs commands on them. Different machines at the same time.
pub trait Shell: Sync {
    /// Makes a machine in a folder that does not exist yet.
    ///
    /// # Errors
    /// A profile that does not exist; whatever the file system says.
    fn create(&self, machine: &Path, plan: &MachinePlan) -> Result<()>;

    /// Runs one command.
    ///
    /// # Errors
    /// When it could not be run at all; its own failure is in the answer's code.
    fn run(&self, machine: &Path, words: &[String]) -> Result<Answer>;

    /// What each drive was asked so far.
    ///
    /// # Errors
    /// When the machine cannot be read.
    fn traces(&self, machine: &Path) -> Result<Vec<DriveTrace>>;
}
