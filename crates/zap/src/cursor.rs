//! Cursors: walking a ZAP in hash order, across changes and across restarts.
//!
//! # What it is
//! A cursor is a position (hash, collision differentiator), not a place in a block. So while it
//! walks, entries may be added and removed, leaves may split, and a micro ZAP may become fat: each
//! entry that stays is returned exactly once. The position packs into 64 bits, and is a small
//! number while few entries collide; `readdir` hands it to programs.
//!
//! # Source
//! OpenZFS `module/zfs/zap.c` (`zap_cursor_init_serialized`, `zap_cursor_serialize`).

use base::Result;

use crate::handle::{Entry, Zap};
use crate::value::Flags;

/// The serialised position after the last entry.
const END: u64 = u64::MAX;

/// A position in a ZAP; an iterator over the entries from there.
#[doc(alias = "zap_cursor_t")]
pub struct Cursor {
    zap: Zap,
    hash: u64,
    cd: u32,
    is_done: bool,
    flags: Option<Flags>,
    serialized: u64,
}

impl Zap {
    /// All entries in hash order.
    #[must_use]
    pub fn iter(&self) -> Cursor {
        self.cursor(0)
    }

    /// A cursor at a position that [`Cursor::serialize`] returned; 0 is the beginning.
    #[must_use]
    #[doc(alias = "zap_cursor_init_serialized")]
    pub fn cursor(&self, serialized: u64) -> Cursor {
        Cursor {
            zap: self.clone(),
            hash: 0,
            cd: 0,
            is_done: serialized == END,
            flags: None,
            serialized,
        }
    }
}

impl IntoIterator for &Zap {
    type Item = Result<Entry>;
    type IntoIter = Cursor;
    fn into_iter(self) -> Cursor {
        self.iter()
    }
}

impl Cursor {
    /// The entry at the position, without moving past it.
    ///
    /// # Errors
    /// I/O and corruption.
    #[doc(alias = "zap_cursor_retrieve")]
    pub fn retrieve(&mut self) -> Result<Option<Entry>> {
        if self.is_done {
            return Ok(None);
        }
        self.start()?;
        let entry = self.zap.closest(self.hash, self.cd)?;
        match &entry {
            Some(entry) => (self.hash, self.cd) = (entry.hash, entry.cd),
            None => self.is_done = true,
        }
        Ok(entry)
    }

    /// Moves past the entry that [`retrieve`](Cursor::retrieve) returned.
    #[doc(alias = "zap_cursor_advance")]
    pub fn advance(&mut self) {
        if self.is_done {
            return;
        }
        if let Some(cd) = self.cd.checked_add(1) {
            self.cd = cd;
            return;
        }
        // The next hash differs in the upper bits, the ones that are used.
        let bits = self.flags.map_or(0, Flags::hash_bits);
        match (self.hash | u64::MAX >> bits).checked_add(1) {
            Some(next) => (self.hash, self.cd) = (next, 0),
            None => self.is_done = true,
        }
    }

    /// The position as a number.
    #[must_use]
    #[doc(alias = "zap_cursor_serialize")]
    pub fn serialize(&self) -> u64 {
        if self.is_done {
            return END;
        }
        let Some(flags) = self.flags else {
            return self.serialized;
        };
        let bits = flags.hash_bits();
        self.hash >> (64 - bits) | u64::from(self.cd) << bits
    }

    /// Unpacks the position, which depends on the flags of the ZAP.
    fn start(&mut self) -> Result<()> {
        if self.flags.is_some() {
            return Ok(());
        }
        let flags = self.zap.flags()?;
        let bits = flags.hash_bits();
        self.hash = self.serialized << (64 - bits);
        let cd = self.serialized >> bits;
        self.cd = if cd < flags.cd_max().into() {
            cd as u32
        } else {
            0
        };
        self.flags = Some(flags);
        Ok(())
    }
}

impl Iterator for Cursor {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        match self.retrieve() {
            Ok(None) => None,
            Ok(Some(entry)) => {
                self.advance();
                Some(Ok(entry))
            }
            Err(error) => {
                self.is_done = true;
                Some(Err(error))
            }
        }
    }
}
