//! One step: what is done, to what, and the seed for everything else.

use std::fmt;
use std::str::FromStr;

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Act {
    /// Random operations on the files of one file system.
    Files,
    /// Makes a file system.
    Create,
    /// Takes a snapshot.
    Snapshot,
    /// Clones a snapshot.
    Clone,
    /// Destroys some snapshots of a file system.
    DestroySnapshots,
    /// Holds a snapshot; who destroys it later has to release it first.
    Hold,
    /// Bookmarks a snapshot, or destroys the oldest bookmark when there are many.
    Bookmark,
    /// Rolls a file system back to its last snapshot.
    Rollback,
    /// Promotes a clone: the first one at or after the pick.
    Promote,
    /// Renames a file system.
    Rename,
    /// Destroys a file system, if it has no snapshots.
    Destroy,
    /// Sets properties of a file system.
    Props,
    /// Waits until everything is on disk.
    Sync,
    /// Nothing happens for a while.
    Idle,
    /// Steps the wall clock forward or back.
    Clock,
    /// Exports and imports a pool.
    Export,
    /// Begins a scrub, or resumes a paused one.
    Scrub,
    /// Pauses a scrub, beginning one first if none runs.
    PauseScrub,
    /// Stops a scrub, beginning one first if none runs.
    StopScrub,
    /// Waits until no scan runs.
    FinishScan,
    /// Takes one side of a mirror offline.
    Offline,
    /// One side of a mirror dies in the middle of its writes.
    Lose,
    /// Bytes of one side of a mirror rot.
    Rot,
    /// Sectors of one side of a mirror cannot be read.
    Unreadable,
    /// Sectors of one side of a mirror cannot be written.
    Unwritable,
    /// Brings devices back, repairs, resilvers and scrubs.
    Cure,
    /// All devices die while files are written: the pool suspends, and `zpool clear` resumes it.
    Suspend,
    /// The pool suspends with `failmode=continue`: writes are refused.
    Refuse,
    /// The power fails while the pool is suspended.
    CutSuspended,
    /// Writes until there is no space left, and removes what was written.
    Fill,
    /// The power fails.
    Cut,
    /// Compares everything with the model, and runs the checker.
    Check,
}

/// Every act, with its word and the weight with which [`super::plan`] draws it.
const ACTS: [(Act, &str, u64); 32] = [
    (Act::Files, "files", 300),
    (Act::Create, "create", 25),
    (Act::Snapshot, "snapshot", 40),
    (Act::Clone, "clone", 20),
    (Act::DestroySnapshots, "destroy-snapshots", 25),
    (Act::Hold, "hold", 8),
    (Act::Bookmark, "bookmark", 10),
    (Act::Rollback, "rollback", 10),
    (Act::Promote, "promote", 12),
    (Act::Rename, "rename", 10),
    (Act::Destroy, "destroy", 10),
    (Act::Props, "props", 20),
    (Act::Sync, "sync", 30),
    (Act::Idle, "idle", 120),
    (Act::Clock, "clock", 10),
    (Act::Export, "export", 20),
    (Act::Scrub, "scrub", 20),
    (Act::PauseScrub, "pause-scrub", 12),
    (Act::StopScrub, "stop-scrub", 6),
    (Act::FinishScan, "finish-scan", 8),
    (Act::Offline, "offline", 10),
    (Act::Lose, "lose", 10),
    (Act::Rot, "rot", 10),
    (Act::Unreadable, "unreadable", 10),
    (Act::Unwritable, "unwritable", 8),
    (Act::Cure, "cure", 36),
    (Act::Suspend, "suspend", 14),
    (Act::Refuse, "refuse", 10),
    (Act::CutSuspended, "cut-suspended", 12),
    (Act::Fill, "fill", 5),
    (Act::Cut, "cut", 30),
    (Act::Check, "check", 12),
];

impl Act {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Act> {
        ACTS.iter().map(|(act, ..)| *act)
    }

    /// The act that a random number selects, with the frequency of its weight.
    pub(super) fn drawn(mut number: u64) -> Act {
        number %= ACTS.iter().map(|(.., weight)| weight).sum::<u64>();
        for (act, _, weight) in &ACTS {
            if number < *weight {
                return *act;
            }
            number -= weight;
        }
        unreachable!("{number} is below the sum of the weights")
    }

    /// Its word in a script.
    #[must_use]
    pub fn word(self) -> &'static str {
        let found = ACTS.iter().find(|(act, ..)| *act == self);
        found.expect("every act is listed").1
    }
}

/// One step of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// What is done.
    pub act: Act,
    /// To which pool, modulo their number.
    pub pool: u64,
    /// To which file system or device, modulo their number.
    pub pick: u64,
    /// How much of it: operations, milliseconds, days.
    pub amount: u64,
    /// Seed of all further choices.
    pub seed: u64,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step {
            act,
            pool,
            pick,
            amount,
            seed,
        } = self;
        let word = act.word();
        write!(
            f,
            "{word} pool={pool} pick={pick} amount={amount} seed={seed}"
        )
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(line: &str) -> Result<Step, String> {
        let mut words = line.split_whitespace();
        let word = words.next().unwrap_or_default();
        let act = ACTS.iter().find(|(_, name, _)| *name == word);
        let (act, ..) = act.ok_or_else(|| format!("there is no step '{word}'"))?;
        let [pool, pick, amount, seed] = numbers(words, ["pool", "pick", "amount", "seed"])?;
        Ok(Step {
            act: *act,
            pool,
            pick,
            amount,
            seed,
        })
    }
}

/// The numbers of `name=number` words; 0 for those that are missing.
pub(super) fn numbers<'a, const N: usize>(
    words: impl Iterator<Item = &'a str>,
    names: [&str; N],
) -> Result<[u64; N], String> {
    let mut found = [0; N];
    for word in words {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let at = names.iter().position(|n| *n == name);
        let at = at.ok_or_else(|| format!("'{word}' is not one of {names:?}"))?;
        let number = value.parse();
        found[at] = number.map_err(|_| format!("'{word}' has no number"))?;
    }
    Ok(found)
}
