//! What goes into the timing model and what comes out of it.

use serde::{Deserialize, Serialize};

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CommandKind {
    /// Bytes to the host.
    Read,
    /// Bytes from the host.
    Write,
    /// All writes that are done go to the medium.
    Flush,
    /// The host needs these bytes no more. Takes the wire only; what waits in the cache still goes to the medium.
    Trim,
}

/// A command, as it reaches the drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// By which events refer to it; unique among those that are not yet over.
    pub tag: u64,
    /// What it does.
    pub kind: CommandKind,
    /// Its first logical sector, as the host sees them.
    pub lba: u64,
    /// Its length in logical sectors; not looked at in a flush.
    pub sectors: u32,
    /// A write that is done only when its bytes are on the medium.
    pub fua: bool,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Event {
    /// The host may be told that command `tag` is done.
    Done {
        /// The command.
        tag: u64,
        /// When.
        at: u64,
    },
    /// The bytes of write `tag` are on the medium, before or after it was done. Writes to the same sector come in the
    /// order of their submission.
    Destaged {
        /// The write.
        tag: u64,
        /// When.
        at: u64,
    },
    /// These physical sectors, of which a write covers a part only, are being written: if the power fails from `from`
    /// on, before `until`, all of their bytes are ruined. Told when it begins.
    Rewriting {
        /// The first physical sector: the medium's LBA by logical sectors per physical one.
        physical_lba: u64,
        /// Physical sectors.
        sectors: u32,
        /// Beginning.
        from: u64,
        /// End.
        until: u64,
    },
}

impl Event {
    /// When it is to be told.
    #[must_use]
    pub fn at(&self) -> u64 {
        match *self {
            Event::Done { at, .. } | Event::Destaged { at, .. } => at,
            Event::Rewriting { from, .. } => from,
        }
    }
}

/// What a drive has done since it was new.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// Reads that are done.
    pub reads: u64,
    /// Writes that are done.
    pub writes: u64,
    /// Flushes that are done.
    pub flushes: u64,
    /// Trims that are done.
    pub trims: u64,
    /// Bytes that the host read.
    pub read_bytes: u64,
    /// Bytes that the host wrote.
    pub write_bytes: u64,
    /// Reads that needed nothing from the medium.
    pub read_hits: u64,
    /// Writes of which a physical sector is covered in part only.
    pub partial_writes: u64,
    /// Physical sectors that were read in order to be rewritten.
    pub partial_sectors: u64,
    /// Passes over the medium that wrote.
    pub write_passes: u64,
    /// Passes over the medium that read what a write pass then completes.
    pub rewrite_passes: u64,
    /// Movements of the arm or changes of the head.
    pub seeks: u64,
    /// Time spent in them.
    pub seek_ns: u64,
    /// Time spent waiting for a sector to come round.
    pub rotation_ns: u64,
    /// Time spent with bytes passing the head.
    pub transfer_ns: u64,
    /// Time in which the mechanics, or any die, was at work.
    pub busy_ns: u64,
    /// Most commands that were in the drive at once.
    pub queue_depth_max: u32,
    /// Sum over all commands of the time from submission until done.
    pub latency_ns: u64,
    /// Blocks of flash that were erased.
    pub erases: u64,
}
