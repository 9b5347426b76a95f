//! `/dev/zero`, `/dev/random`, `/dev/null` and providers as input or output of `dd`.

use std::sync::Arc;

use base::Result;
use geom::Provider;

use super::{Flags, Input, Output, SyncAtEnd};

/// `/dev/zero`, without an end.
pub struct Zeros;

impl Input for Zeros {
    fn read(&mut self, block: &mut [u8]) -> Result<usize> {
        block.fill(0);
        Ok(block.len())
    }

    fn skip(&mut self, bytes: u64) -> Result<u64> {
        Ok(bytes)
    }
}

/// `/dev/random`, without an end: a generator seeded by [`rt::random_u64`].
pub struct Random(rt::SeededRandom);

impl Random {
    /// Draws the seed.
    #[must_use]
    pub fn new() -> Random {
        Random(rt::SeededRandom::new(rt::random_u64()))
    }
}

impl Default for Random {
    fn default() -> Random {
        Random::new()
    }
}

impl Input for Random {
    fn read(&mut self, block: &mut [u8]) -> Result<usize> {
        for chunk in block.chunks_mut(8) {
            let bytes = self.0.next_u64().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
        Ok(block.len())
    }

    fn skip(&mut self, bytes: u64) -> Result<u64> {
        Ok(bytes)
    }
}

/// `/dev/null`: empty as input, discards all output.
pub struct Null;

impl Input for Null {
    fn read(&mut self, _block: &mut [u8]) -> Result<usize> {
        Ok(0)
    }

    fn skip(&mut self, bytes: u64) -> Result<u64> {
        Ok(bytes)
    }
}

impl Output for Null {
    fn write(&mut self, block: &[u8]) -> Result<usize> {
        Ok(block.len())
    }

    fn seek(&mut self, _bytes: u64) -> Result<()> {
        Ok(())
    }

    fn leave_hole(&mut self, _bytes: u64) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, _sync: SyncAtEnd) -> Result<()> {
        Ok(())
    }
}

/// A provider, as a raw device: one command per block, and only whole sectors.
pub struct Device {
    provider: Arc<dyn Provider>,
    offset: u64,
    flushes: bool,
}

impl Device {
    /// From the start of `provider`.
    #[must_use]
    pub fn new(provider: Arc<dyn Provider>, flags: Flags) -> Device {
        Device {
            provider,
            offset: 0,
            flushes: flags.sync || flags.dsync,
        }
    }

    /// How much of `len` bytes is before the end.
    fn clipped(&self, len: usize) -> usize {
        let left = self.provider.mediasize().saturating_sub(self.offset);
        usize::try_from(left).unwrap_or(usize::MAX).min(len)
    }
}

impl Input for Device {
    fn read(&mut self, block: &mut [u8]) -> Result<usize> {
        let len = self.clipped(block.len());
        if len == 0 {
            return Ok(0);
        }
        self.provider.read(self.offset, &mut block[..len])?;
        self.offset += len as u64;
        Ok(len)
    }

    fn skip(&mut self, bytes: u64) -> Result<u64> {
        let left = self.provider.mediasize().saturating_sub(self.offset);
        let skipped = bytes.min(left);
        self.offset += skipped;
        Ok(skipped)
    }
}

impl Output for Device {
    fn write(&mut self, block: &[u8]) -> Result<usize> {
        let len = self.clipped(block.len());
        if len == 0 {
            return Ok(0);
        }
        self.provider.write(self.offset, &block[..len])?;
        if self.flushes {
            self.provider.flush()?;
        }
        self.offset += len as u64;
        Ok(len)
    }

    fn seek(&mut self, bytes: u64) -> Result<()> {
        self.offset = self.offset.saturating_add(bytes);
        Ok(())
    }

    fn leave_hole(&mut self, bytes: u64) -> Result<()> {
        self.seek(bytes)
    }

    fn finish(&mut self, sync: SyncAtEnd) -> Result<()> {
        if sync == SyncAtEnd::No {
            Ok(())
        } else {
            self.provider.flush()
        }
    }

    fn is_character_device(&self) -> bool {
        true
    }
}
