//! dd: copying in blocks, from and to anything that can be read and written in blocks.
//!
//! # What it is
//! [`Operands`] parses `if=`, `bs=`, `conv=` and the rest, with the suffixes and error messages of
//! FreeBSD's or GNU's `dd` ([`Flavour`]). [`copy()`] moves the blocks from an [`Input`] to an
//! [`Output`] and keeps [`Counts`]; [`Counts::summary`] returns the closing lines of either `dd`.
//! Inputs and outputs: [`ends`] has `/dev/zero`, `/dev/random`, `/dev/null` and providers, [`host`]
//! the files of this host; files in a pool are implemented in a crate above.
//!
//! # Invariants
//! 1. One read makes one input record, full or partial; with `bs=` it makes one output record of
//!    the same length, otherwise input is gathered into full output records and the last one may
//!    be partial.
//! 2. At most one input and one output block are in memory at any time.
//! 3. The counts are correct also after an error.
//!
//! # Source
//! IEEE Std 1003.1 `dd` for the records; the manuals and the behaviour of FreeBSD's and of GNU's
//! `dd` for their extensions.

mod copy;
pub mod ends;
pub mod host;
mod operands;
mod report;

#[cfg(test)]
mod tests;

pub use crate::number::Flavour;
pub use copy::{Counts, Observer, copy};
pub use operands::{Conversions, Flags, HELP, Operands, Status, SyncAtEnd};
pub use report::progress_line;

use base::Result;

/// Where blocks come from.
pub trait Input {
    /// One read at the current position; returns the number of bytes, 0 at the end. May be short.
    ///
    /// # Errors
    /// What the device says; the position is unchanged.
    fn read(&mut self, block: &mut [u8]) -> Result<usize>;

    /// Skips `bytes` bytes; returns how many there were to skip.
    ///
    /// # Errors
    /// What the device says.
    fn skip(&mut self, bytes: u64) -> Result<u64>;
}

/// Where blocks go.
pub trait Output {
    /// One write at the current position; returns the bytes written, 0 at the end of a device.
    ///
    /// # Errors
    /// What the device says.
    fn write(&mut self, block: &[u8]) -> Result<usize>;

    /// Advances by `bytes` bytes, before anything is written.
    ///
    /// # Errors
    /// What the device says.
    fn seek(&mut self, bytes: u64) -> Result<()>;

    /// Advances over `bytes` bytes of zeros, which need not be written if nothing is stored there.
    ///
    /// # Errors
    /// What the device says.
    fn leave_hole(&mut self, bytes: u64) -> Result<()>;

    /// Gives the output its final size and, if `sync` asks for it, flushes it to the medium.
    ///
    /// # Errors
    /// What the device says.
    fn finish(&mut self, sync: SyncAtEnd) -> Result<()>;

    /// Whether a short write deserves a warning.
    fn is_character_device(&self) -> bool {
        false
    }
}
