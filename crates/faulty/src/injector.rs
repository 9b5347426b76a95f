//! A provider that misbehaves on request.
//!
//! # Invariants
//! 1. Faults are an overlay: the provider below always holds the right bytes, so a test can read
//!    them there.
//! 2. Rewriting a damaged sector repairs it, as it does on a real disk (the drive remaps it), unless
//!    the damage is a write error.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Error, ErrorKind, Result};
use geom::{Command, Provider, Shape, write_each};
use rt::Mutex;

/// The fault of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Reads fail.
    ReadError,
    /// Writes fail, until [`FaultInjector::heal`].
    WriteError,
    /// Reads succeed but every byte has these bits flipped.
    Flip(u8),
    /// Reads succeed but return noise from this seed; every byte differs from the right one.
    Noise(u64),
}

/// Wraps a provider and makes it fail on request.
pub struct FaultInjector {
    inner: Arc<dyn Provider>,
    damages: Mutex<Vec<(Range<u64>, Damage)>>,
    dead: AtomicBool,
    /// Writes and flushes left until the device dies; `u64::MAX` means never.
    left: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
}

impl FaultInjector {
    /// A wrapper without faults.
    #[must_use]
    pub fn new(inner: Arc<dyn Provider>) -> Self {
        FaultInjector {
            inner,
            damages: Mutex::new(Vec::new()),
            dead: AtomicBool::new(false),
            left: AtomicU64::new(u64::MAX),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        }
    }

    /// The provider below, whose bytes are right.
    #[must_use]
    pub fn pristine(&self) -> &Arc<dyn Provider> {
        &self.inner
    }

    /// Damages a range of bytes.
    pub fn damage(&self, range: Range<u64>, damage: Damage) {
        self.damages.lock().push((range, damage));
    }

    /// Repairs all damage; a dead device stays dead.
    pub fn heal(&self) {
        self.damages.lock().clear();
    }

    /// Whether any damage is left.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        !self.damages.lock().is_empty()
    }

    /// Every command fails from now on.
    pub fn kill(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    /// The next `commands` writes and flushes are done, then every command fails.
    pub fn kill_after(&self, commands: u64) {
        self.left.store(commands, Ordering::SeqCst);
    }

    /// The device answers again.
    pub fn revive(&self) {
        self.left.store(u64::MAX, Ordering::SeqCst);
        self.dead.store(false, Ordering::SeqCst);
    }

    /// The number of reads and writes that arrived while the device was alive.
    #[must_use]
    pub fn commands(&self) -> (u64, u64) {
        (
            self.reads.load(Ordering::SeqCst),
            self.writes.load(Ordering::SeqCst),
        )
    }

    fn io_error(&self, what: &str, offset: u64) -> Error {
        Error::new(
            ErrorKind::Io,
            format!("{}: injected {what} at {offset}", self.name()),
        )
    }

    fn check_alive(&self, offset: u64) -> Result<()> {
        if self.dead.load(Ordering::SeqCst) {
            return Err(self.io_error("death", offset));
        }
        Ok(())
    }

    /// Counts a write or flush; kills the device when none is left.
    fn count_down(&self) {
        let less = |left: u64| match left {
            u64::MAX => None,
            left => Some(left.saturating_sub(1)),
        };
        let before = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        if before == Ok(0) {
            self.kill();
        }
    }

    fn check_write(&self, range: &Range<u64>) -> Result<()> {
        self.count_down();
        self.check_alive(range.start)?;
        self.writes.fetch_add(1, Ordering::SeqCst);
        let damages = self.damages.lock();
        match overlapping(&damages, range).find(|(_, damage)| *damage == Damage::WriteError) {
            Some((at, _)) => Err(self.io_error("write error", at.start)),
            None => Ok(()),
        }
    }

    /// Removes damage from a written range, except write errors.
    fn repair(&self, range: &Range<u64>) {
        let mut damages = self.damages.lock();
        let old = std::mem::take(&mut *damages);
        for (at, damage) in old {
            if damage == Damage::WriteError {
                damages.push((at, damage));
                continue;
            }
            let left = at.start..at.end.min(range.start);
            let right = at.start.max(range.end)..at.end;
            for rest in [left, right] {
                if !rest.is_empty() {
                    damages.push((rest, damage));
                }
            }
        }
    }
}

fn overlapping<'a>(
    damages: &'a [(Range<u64>, Damage)],
    range: &'a Range<u64>,
) -> impl Iterator<Item = (Range<u64>, Damage)> + 'a {
    damages.iter().filter_map(|(at, damage)| {
        let part = at.start.max(range.start)..at.end.min(range.end);
        (!part.is_empty()).then_some((part, *damage))
    })
}

/// Never zero, so that the byte that it is combined with changes.
fn noise(seed: u64, at: u64) -> u8 {
    let mixed = (at ^ seed.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8 | 1
}

impl FaultInjector {
    fn read_damaged(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check_alive(offset)?;
        self.reads.fetch_add(1, Ordering::SeqCst);
        let range = offset..offset + buf.len() as u64;
        self.inner.read(offset, buf)?;
        let damages = self.damages.lock();
        for (at, damage) in overlapping(&damages, &range) {
            let start = usize::try_from(at.start - offset).expect("within the buffer");
            let end = usize::try_from(at.end - offset).expect("within the buffer");
            let bytes = buf[start..end].iter_mut().zip(at.start..);
            match damage {
                Damage::ReadError => return Err(self.io_error("read error", at.start)),
                Damage::WriteError => {}
                Damage::Flip(mask) => bytes.for_each(|(byte, _)| *byte ^= mask),
                Damage::Noise(seed) => bytes.for_each(|(byte, at)| *byte ^= noise(seed, at)),
            }
        }
        Ok(())
    }

    fn write_piece(&self, offset: u64, data: &[u8]) -> Result<()> {
        let range = offset..offset + data.len() as u64;
        self.check_write(&range)?;
        self.inner.write(offset, data)?;
        self.repair(&range);
        Ok(())
    }
}

impl Provider for FaultInjector {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn shape(&self) -> Shape {
        Shape {
            is_queued: false,
            ..self.inner.shape()
        }
    }
    fn execute(&self, offset: u64, command: Command<'_>) -> Result<()> {
        match command {
            Command::Read(buf) => self.read_damaged(offset, buf),
            Command::Write(pieces) => {
                write_each(offset, pieces, |at, piece| self.write_piece(at, piece))
            }
            Command::Flush => {
                self.count_down();
                self.check_alive(0)?;
                self.inner.flush()
            }
            Command::Delete { len } => {
                self.check_alive(offset)?;
                self.inner.delete(offset, len)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ram::Memory;

    fn setup() -> FaultInjector {
        let disk = FaultInjector::new(Arc::new(Memory::new("md0", 1 << 20)));
        disk.write(0, &[8; 8192]).unwrap();
        disk
    }

    #[test]
    fn damage_stays_until_rewritten_and_spares_the_pristine_bytes() {
        let disk = setup();
        disk.damage(1024..2048, Damage::Flip(1));
        disk.damage(4096..5120, Damage::Noise(3));
        let mut bytes = [0; 8192];
        disk.read(0, &mut bytes).unwrap();
        assert_eq!(
            (bytes[1023], bytes[1024], bytes[2047], bytes[2048]),
            (8, 9, 9, 8)
        );
        assert!(bytes[4096..5120].iter().all(|byte| *byte != 8));
        disk.pristine().read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [8; 8192]);
        disk.write(1536, &[8; 512]).unwrap();
        disk.write(4096, &[8; 1024]).unwrap();
        disk.read(0, &mut bytes).unwrap();
        assert_eq!((bytes[1535], bytes[1536], bytes[4096]), (9, 8, 8));
        disk.heal();
        assert!(!disk.is_damaged());
    }

    #[test]
    fn errors_hit_only_their_range() {
        let disk = setup();
        disk.damage(512..1024, Damage::ReadError);
        disk.damage(2048..2560, Damage::WriteError);
        let mut sector = [0; 512];
        assert_eq!(
            disk.read(512, &mut sector).unwrap_err().kind(),
            ErrorKind::Io
        );
        disk.read(1024, &mut sector).unwrap();
        assert!(disk.write(2048, &sector).is_err());
        disk.write(512, &sector).unwrap();
        disk.read(512, &mut sector).unwrap();
        disk.kill();
        assert!(disk.flush().is_err());
        assert!(disk.write(0, &sector).is_err());
        disk.revive();
        disk.flush().unwrap();
    }
}
