//! Input and output of the timing model.

use serde::{Deserialize, Serialize};

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CommandKind {
    /// Bytes to the host.
    Read,
    /// Bytes from the host.
    Write,
    /// Puts all completed writes on the medium.
    Flush,
    /// The host no longer needs these bytes. Takes time on the wire only; cached writes still go to the medium.
    Trim,
}

/// A command, as it reaches the drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Identifies it in events; unique among the commands that are not yet finished.
    pub tag: u64,
    /// What it does.
    pub kind: CommandKind,
    /// Its first logical sector, as the host sees them.
    pub lba: u64,
    /// Its length in logical sectors; ignored for a flush.
    pub sectors: u32,
    /// A write that is done only when its bytes are on the medium.
    pub fua: bool,
}

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Event {
    /// Command `tag` is done, and may be reported to the host.
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
    /// These physical sectors, of which a write covers only a part, are being written: if the power fails at or after
    /// `from` and before `until`, all of their bytes are ruined. Reported when it begins.
    Rewriting {
        /// The first physical sector: the medium's LBA divided by the logical sectors per physical one.
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
    /// When it is reported.
    #[must_use]
    pub fn at(&self) -> u64 {
        match *self {
            Event::Done { at, .. } | Event::Destaged { at, .. } => at,
            Event::Rewriting { from, .. } => from,
        }
    }
}

/// What a drive has done since it was switched on.
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
    /// Writes that cover a physical sector only in part.
    pub partial_writes: u64,
    /// Physical sectors that were read in order to be rewritten.
    pub partial_sectors: u64,
    /// Passes over the medium that wrote.
    pub write_passes: u64,
    /// Passes over the medium that read partial sectors for a write pass to complete.
    pub rewrite_passes: u64,
    /// Arm movements and head switches.
    pub seeks: u64,
    /// Time spent in them.
    pub seek_ns: u64,
    /// Time spent waiting for a sector to come round.
    pub rotation_ns: u64,
    /// Time spent with bytes passing the head.
    pub transfer_ns: u64,
    /// Time in which the mechanics were busy; for flash, the sum over all dies.
    pub busy_ns: u64,
    /// The most commands that were in the drive at once.
    pub queue_depth_max: u32,
    /// Sum over all commands of the time from submission until done.
    pub latency_ns: u64,
    /// Blocks of flash that were erased.
    pub erases: u64,
    /// Bytes that the host does not need any more.
    #[serde(default)]
    pub trim_bytes: u64,
    /// Of `latency_ns`, that of reads.
    #[serde(default)]
    pub read_ns: u64,
    /// Of `latency_ns`, that of writes.
    #[serde(default)]
    pub write_ns: u64,
    /// Of `latency_ns`, that of flushes.
    #[serde(default)]
    pub flush_ns: u64,
    /// Of `latency_ns`, that of trims.
    #[serde(default)]
    pub trim_ns: u64,
    /// Commands that are not done yet.
    #[serde(default)]
    pub queue_length: u32,
    /// Since when there are some, if there are.
    #[serde(default)]
    pub occupied_from_ns: u64,
    /// Time in which there were some, without that since then; see [`Statistics::occupied_until`].
    #[serde(default)]
    #[doc(alias = "io_ticks")]
    pub occupied_ns: u64,
}

impl Statistics {
    /// A command has come.
    pub(super) fn came(&mut self, now: u64) {
        if self.queue_length == 0 {
            self.occupied_from_ns = now;
        }
        self.queue_length = self.queue_length.saturating_add(1);
    }

    /// A command is done.
    pub(super) fn done(&mut self, now: u64, kind: CommandKind, submitted: u64) {
        let took_ns = now.saturating_sub(submitted);
        self.latency_ns += took_ns;
        *match kind {
            CommandKind::Read => &mut self.read_ns,
            CommandKind::Write => &mut self.write_ns,
            CommandKind::Flush => &mut self.flush_ns,
            CommandKind::Trim => &mut self.trim_ns,
        } += took_ns;
        self.queue_length = self.queue_length.saturating_sub(1);
        if self.queue_length == 0 {
            self.occupied_ns += now.saturating_sub(self.occupied_from_ns);
        }
    }

    /// Time in which there were commands that were not done, up to `now`.
    #[must_use]
    pub fn occupied_until(&self, now: u64) -> u64 {
        match self.queue_length {
            0 => self.occupied_ns,
            _ => self.occupied_ns + now.saturating_sub(self.occupied_from_ns),
        }
    }
}
