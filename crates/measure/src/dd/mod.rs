//! dd: copying in blocks, from and to anything that can be read and written in blocks.
//!
//! # What it is
//! [`Operands`] reads `if=`, `bs=`, `conv=` and the rest, in the suffixes and with the complaints
//! of FreeBSD's or GNU's `dd` ([`Flavour`]). [`copy()`] moves the blocks from an [`Input`] to an
//! [`Output`] and keeps [`Counts`], whose [`Counts::summary`] are the lines that either of them
//! ends with. Where bytes come from and go to: [`ends`] has zeros, random bytes, nothing and
//! providers, [`host`] the files of this host; files in a pool come from further up.
//!
//! # Invariants
//! 1. One read makes one input record, full or partial; with `bs=` it makes one output record of
//!    the same length, otherwise input is gathered into full output records and the last one may
//!    be partial.
//! 2. At any moment at most one input and one output block are held, whatever is copied.
//! 3. The counts tell what was written, also after an error.
//!
//! # Source
//! IEEE Std 1003.1 `dd` for the records; the manuals of FreeBSD's and of GNU's `dd`, and their
//! behaviour, for what goes beyond it.

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
    /// One read at the current position: how many bytes came, 0 at the end. May be short.
    ///
    /// # Errors
    /// What the device says; the position is where it was.
    fn read(&mut self, block: &mut [u8]) -> Result<usize>;

    /// Moves on by so many bytes without delivering them; returns how many it could.
    ///
    /// # Errors
    /// What the device says.
    fn skip(&mut self, bytes: u64) -> Result<u64>;
}

/// Where blocks go.
pub trait Output {
    /// One write at the current position: how many bytes went, 0 at the end of a device.
    ///
    /// # Errors
    /// What the device says.
    fn write(&mut self, block: &[u8]) -> Result<usize>;

    /// Moves on by so many bytes before anything is written.
    ///
    /// # Errors
    /// What the device says.
    fn seek(&mut self, bytes: u64) -> Result<()>;

    /// Moves on by so many bytes that are zeros, and need not be written if nothing else is there.
    ///
    /// # Errors
    /// What the device says.
    fn leave_hole(&mut self, bytes: u64) -> Result<()>;

    /// Gives the output its final size and puts it on the medium, if that was asked for.
    ///
    /// # Errors
    /// What the device says.
    fn finish(&mut self, sync: SyncAtEnd) -> Result<()>;

    /// Whether a short write is worth a word.
    fn is_character_device(&self) -> bool {
        false
    }
}
