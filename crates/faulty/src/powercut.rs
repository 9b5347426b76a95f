//! RAM disks whose power can be cut after any command.
//!
//! # What it is
//! A [`PowerSupply`] feeds one or more disks and numbers their writes, deletes and flushes, over all
//! disks, from 1. Each disk records its commands, so that it can produce, at any later time, the
//! image that a power failure after the n-th command would have left.
//!
//! # Invariants
//! 1. Commands acknowledged before a flush of the same disk began survive.
//! 2. Of the commands after the last flush, any subset survives: a write may be lost as a whole, or
//!    torn: only a subset of its sectors, or a first part, reached the medium.
//! 3. Making an image never changes the disk in use.

use std::sync::Arc;

use base::{Buf, Error, ErrorKind, Result};
use geom::{Command, Provider, Shape, check_range, write_each};
use ram::Memory;
use rt::Mutex;
use rt::SeededRandom;

/// The power supply that disks share: they lose power at the same moment.
pub struct PowerSupply {
    state: Mutex<Supply>,
}

struct Supply {
    commands: u64,
    fails_after: Option<u64>,
}

impl PowerSupply {
    /// A supply without disks.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let state = Mutex::new(Supply {
            commands: 0,
            fails_after: None,
        });
        Arc::new(PowerSupply { state })
    }

    /// The number of writes, deletes and flushes acknowledged so far, over all disks.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.state.lock().commands
    }

    /// Makes every command after the n-th fail, reads included; `None` switches the power on again.
    pub fn fail_after(&self, n_commands: Option<u64>) {
        self.state.lock().fails_after = n_commands;
    }

    /// Fails if the power is off; otherwise counts one command if `counts`, and returns the count.
    fn admit(&self, counts: bool) -> Result<u64> {
        let mut state = self.state.lock();
        if state.fails_after.is_some_and(|last| state.commands >= last) {
            return Err(Error::new(ErrorKind::Io, "the power is off"));
        }
        state.commands += u64::from(counts);
        Ok(state.commands)
    }
}

enum Noted {
    Write { offset: u64, data: Buf },
    Delete { offset: u64, len: u64 },
    Flush,
}

const WITHIN: &str = "the range of a command was checked, and a RAM disk does not fail";

impl Noted {
    fn apply(&self, disk: &Memory) {
        match self {
            Noted::Write { offset, data } => disk.write(*offset, data).expect(WITHIN),
            Noted::Delete { offset, len } => disk.delete(*offset, *len).expect(WITHIN),
            Noted::Flush => {}
        }
    }
}

struct Past {
    /// The contents before the oldest recorded command.
    before: Memory,
    /// The commands, each with its number from the supply, ascending.
    history: Vec<(u64, Noted)>,
    /// The contents after so many of them: images of one moment after another are quickly made.
    flushed: Option<(usize, Memory)>,
}

impl Past {
    fn since(before: Memory) -> Past {
        Past {
            before,
            history: Vec::new(),
            flushed: None,
        }
    }

    /// The contents after the first `count` commands.
    fn after(&mut self, count: usize) -> Memory {
        let known = self.flushed.take().filter(|(done, _)| *done <= count);
        let (done, disk) = known.unwrap_or_else(|| (0, self.before.snapshot()));
        for (_, command) in &self.history[done..count] {
            command.apply(&disk);
        }
        let image = disk.snapshot();
        self.flushed = Some((count, disk));
        image
    }
}

/// A RAM disk that records its commands.
pub struct PowerCut {
    now: Memory,
    supply: Arc<PowerSupply>,
    past: Mutex<Past>,
}

impl PowerCut {
    /// A disk with its own supply and sectors of 512 bytes.
    #[must_use]
    pub fn new(name: impl Into<String>, mediasize: u64) -> Self {
        Self::fed_by(&PowerSupply::new(), name, mediasize, 512)
    }

    /// A disk on a supply that may feed others.
    #[must_use]
    pub fn fed_by(
        supply: &Arc<PowerSupply>,
        name: impl Into<String>,
        mediasize: u64,
        sectorsize: u32,
    ) -> Self {
        let disk = Memory::with_sectors(name, mediasize, sectorsize, sectorsize);
        Self::that_holds(disk, supply)
    }

    /// A larger disk on the same supply with this one's contents, all of it flushed: this disk after it
    /// has been grown.
    #[must_use]
    pub fn grown_to(&self, mediasize: u64) -> Self {
        let _past = self.past.lock();
        Self::that_holds(self.now.grown_to(mediasize), &self.supply)
    }

    /// The disk when the power is back after a failure as in [`image_after`](PowerCut::image_after): on the same
    /// supply, with the image as its flushed contents.
    #[must_use]
    pub fn restarted_after(&self, n_commands: u64, seed: u64) -> Self {
        Self::that_holds(self.image_after(n_commands, seed), &self.supply)
    }

    fn that_holds(disk: Memory, supply: &Arc<PowerSupply>) -> Self {
        PowerCut {
            past: Mutex::new(Past::since(disk.snapshot())),
            now: disk,
            supply: Arc::clone(supply),
        }
    }

    /// The supply of this disk.
    #[must_use]
    pub fn supply(&self) -> &Arc<PowerSupply> {
        &self.supply
    }

    /// Forgets all commands so far: images of earlier moments are no longer available.
    pub fn forget(&self) {
        *self.past.lock() = Past::since(self.now.snapshot());
    }

    /// The image that is left if the power fails now.
    #[must_use]
    pub fn cut(&self, seed: u64) -> Memory {
        self.image_after(u64::MAX, seed)
    }

    /// The image that is left if the power fails after the supply's n-th command has been
    /// acknowledged and before the next one begins.
    #[must_use]
    pub fn image_after(&self, n_commands: u64, seed: u64) -> Memory {
        let mut past = self.past.lock();
        let history = &past.history;
        let seen = history.partition_point(|(number, _)| *number <= n_commands);
        let is_flush = |(_, command): &(u64, Noted)| matches!(command, Noted::Flush);
        let flushed = history[..seen].iter().rposition(is_flush).unwrap_or(0);
        let disk = past.after(flushed);
        // Own generator: the image depends on the commands and its seed alone.
        let mut random = SeededRandom::new(seed ^ 0x6a09_e667_f3bc_c908);
        for (_, command) in &past.history[flushed..seen] {
            self.apply_damaged(&disk, command, &mut random);
        }
        disk
    }

    /// The current contents, as if flushed.
    #[must_use]
    pub fn snapshot(&self) -> Memory {
        let _past = self.past.lock();
        self.now.snapshot()
    }

    /// Applies a command that may be lost or torn.
    fn apply_damaged(&self, disk: &Memory, command: &Noted, random: &mut SeededRandom) {
        let Noted::Write { offset, data } = command else {
            if random.next_u64().is_multiple_of(2) {
                command.apply(disk);
            }
            return;
        };
        let sector = self.sectorsize() as usize;
        let sectors = data.len() / sector;
        let choice = random.next_u64() % 8;
        let first_part = random.next_u64() % (sectors as u64 + 1);
        for (n, part) in data.chunks(sector).enumerate() {
            let survives = match choice {
                0..3 => true,
                3..6 => false,
                6 => (n as u64) < first_part,
                _ => random.next_u64().is_multiple_of(2),
            };
            if survives {
                disk.write(offset + (n * sector) as u64, part)
                    .expect(WITHIN);
            }
        }
    }

    fn note(&self, command: Noted) -> Result<()> {
        let mut past = self.past.lock();
        let number = self.supply.admit(true)?;
        command.apply(&self.now);
        past.history.push((number, command));
        Ok(())
    }
}

impl Provider for PowerCut {
    fn name(&self) -> &str {
        self.now.name()
    }
    fn shape(&self) -> Shape {
        Shape {
            keeps_unflushed: true,
            ..self.now.shape()
        }
    }
    fn execute(&self, offset: u64, command: Command<'_>) -> Result<()> {
        check_range(self, offset, command.cmd().1)?;
        match command {
            Command::Read(buf) => {
                let _past = self.past.lock();
                self.supply.admit(false)?;
                self.now.read(offset, buf)
            }
            Command::Write(pieces) => write_each(offset, pieces, |offset, piece| {
                let data = Buf::copy_of(piece);
                self.note(Noted::Write { offset, data })
            }),
            Command::Flush => self.note(Noted::Flush),
            Command::Delete { len } => self.note(Noted::Delete { offset, len }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sectors(image: &Memory, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count * 512];
        image.read(0, &mut bytes).unwrap();
        bytes.iter().step_by(512).copied().collect()
    }

    #[test]
    fn flushed_writes_survive_and_later_ones_may_not() {
        let disk = PowerCut::new("pc0", 1 << 20);
        disk.write(0, &[1; 512]).unwrap();
        disk.flush().unwrap();
        disk.write(512, &[2; 512]).unwrap();
        disk.write(1024, &[3; 1024]).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let image = sectors(&disk.cut(seed), 4);
            assert_eq!(image[0], 1, "seed {seed}");
            assert_eq!(image, sectors(&disk.cut(seed), 4));
            seen.insert(image[1..].to_vec());
        }
        assert_eq!(seen.len(), 8, "every subset of three sectors: {seen:?}");
        assert_eq!(sectors(&disk.snapshot(), 4), [1, 2, 3, 3]);
        assert_eq!(disk.supply().commands(), 4);
    }

    #[test]
    fn images_of_the_past_know_nothing_of_the_future() {
        let disk = PowerCut::new("pc0", 1 << 20);
        for n in 0..10u8 {
            disk.write(0, &[n + 1; 512]).unwrap();
            disk.flush().unwrap();
        }
        for n in 1..=10u8 {
            assert_eq!(sectors(&disk.image_after(u64::from(n) * 2, 7), 1), [n]);
            let unflushed = sectors(&disk.image_after(u64::from(n) * 2 - 1, 7), 1)[0];
            assert!(unflushed == n || unflushed == n - 1);
        }
        disk.forget();
        assert_eq!(sectors(&disk.image_after(0, 1), 1), [10]);
        let restarted = disk.restarted_after(u64::MAX, 7);
        assert_eq!(sectors(&restarted.cut(1), 1), [10]);
        assert!(Arc::ptr_eq(restarted.supply(), disk.supply()));
    }

    #[test]
    fn images_are_the_same_in_whatever_order_they_are_made() {
        let disk = PowerCut::new("pc0", 1 << 20);
        let mut random = SeededRandom::new(5);
        for n in 0..60u8 {
            match random.next_u64() % 4 {
                0 => disk.flush().unwrap(),
                1 => disk.delete(random.next_u64() % 4 * 512, 1024).unwrap(),
                _ => disk.write(random.next_u64() % 7 * 512, &[n; 1024]).unwrap(),
            }
        }
        let image = |n: u64| sectors(&disk.image_after(n, n), 8);
        let ascending: Vec<_> = (0..=60).map(image).collect();
        let mut descending: Vec<_> = (0..=60).rev().map(image).collect();
        descending.reverse();
        assert_eq!(ascending, descending);
    }

    #[test]
    fn one_supply_fails_for_all_its_disks() {
        let supply = PowerSupply::new();
        let a = PowerCut::fed_by(&supply, "a", 1 << 20, 512);
        let b = PowerCut::fed_by(&supply, "b", 1 << 20, 512);
        supply.fail_after(Some(2));
        a.write(0, &[1; 512]).unwrap();
        b.write(0, &[1; 512]).unwrap();
        assert_eq!(a.write(0, &[2; 512]).unwrap_err().kind(), ErrorKind::Io);
        assert!(b.read(0, &mut [0; 512]).is_err());
        assert!(a.flush().is_err());
        supply.fail_after(None);
        b.flush().unwrap();
        assert_eq!(supply.commands(), 3);
    }
}
