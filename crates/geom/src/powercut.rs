//! RAM disks whose power can be cut after any command.
//!
//! # What it is
//! A [`PowerSupply`] feeds one or more disks and counts the commands that change them (writes,
//! deletes, flushes), over all disks, from 1. Each disk remembers its commands, so that it can
//! say, at any later time, what would be left of it had the power failed after the n-th.
//!
//! # Invariants
//! 1. What was acknowledged before a flush of the same disk began survives.
//! 2. Of what came after the last flush, any subset survives: a write may be lost as a whole, or
//!    be torn: any subset of its sectors, or a first part, reached the medium.
//! 3. The disk in use is never changed by asking what would be left.

use std::sync::Arc;

use base::{Buf, Error, ErrorKind, Result};
use rt::Mutex;
use rt::SeededRandom;

use crate::mem::Memory;
use crate::sparse::SparseBytes;
use crate::{Command, Provider, Shape, check_range, write_each};

/// What several disks have in common: they lose power in the same moment.
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

    /// How many commands that change a disk were acknowledged so far, over all disks.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.state.lock().commands
    }

    /// Lets every command after the n-th fail, reads as well; `None` switches the power on again.
    pub fn fail_after(&self, n_commands: Option<u64>) {
        self.state.lock().fails_after = n_commands;
    }

    /// Counts one command, or none for a read.
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

struct State {
    now: SparseBytes,
    /// What the oldest remembered command found.
    before: SparseBytes,
    /// With the supply's number of each command, ascending.
    history: Vec<(u64, Noted)>,
}

/// A RAM disk that remembers its commands.
pub struct PowerCut {
    name: String,
    mediasize: u64,
    sectorsize: u32,
    supply: Arc<PowerSupply>,
    state: Mutex<State>,
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
        assert!(
            sectorsize.is_power_of_two(),
            "a sector of {sectorsize} bytes"
        );
        let state = State {
            now: SparseBytes::default(),
            before: SparseBytes::default(),
            history: Vec::new(),
        };
        PowerCut {
            name: name.into(),
            mediasize,
            sectorsize,
            supply: Arc::clone(supply),
            state: Mutex::new(state),
        }
    }

    /// A larger disk on the same supply with what is on this one, all of it flushed: what is left of this one
    /// when it has been made longer.
    #[must_use]
    pub fn grown_to(&self, mediasize: u64) -> Self {
        assert!(mediasize >= self.mediasize, "disks do not shrink");
        let now = self.state.lock().now.clone();
        self.that_begins_with(mediasize, now)
    }

    /// The disk when the power is back after it failed as in [`image_after`](PowerCut::image_after): on the same
    /// supply, with what is left flushed.
    #[must_use]
    pub fn restarted_after(&self, n_commands: u64, seed: u64) -> Self {
        let left = self.bytes_after(n_commands, seed);
        self.that_begins_with(self.mediasize, left)
    }

    fn that_begins_with(&self, mediasize: u64, bytes: SparseBytes) -> Self {
        PowerCut {
            name: self.name.clone(),
            mediasize,
            sectorsize: self.sectorsize,
            supply: Arc::clone(&self.supply),
            state: Mutex::new(State {
                before: bytes.clone(),
                now: bytes,
                history: Vec::new(),
            }),
        }
    }

    /// The supply of this disk.
    #[must_use]
    pub fn supply(&self) -> &Arc<PowerSupply> {
        &self.supply
    }

    /// Forgets all commands so far: no cut before this moment can be asked for any more.
    pub fn forget(&self) {
        let mut state = self.state.lock();
        state.before = state.now.clone();
        state.history.clear();
    }

    /// What is left if the power fails now.
    #[must_use]
    pub fn cut(&self, seed: u64) -> Memory {
        self.image_after(u64::MAX, seed)
    }

    /// What is left if the power fails when the supply's n-th command has been acknowledged and
    /// the next one has not begun.
    #[must_use]
    pub fn image_after(&self, n_commands: u64, seed: u64) -> Memory {
        let sectors = (self.sectorsize, self.sectorsize);
        let bytes = self.bytes_after(n_commands, seed);
        Memory::with_bytes(self.name.clone(), self.mediasize, sectors, bytes)
    }

    fn bytes_after(&self, n_commands: u64, seed: u64) -> SparseBytes {
        let state = self.state.lock();
        let seen = state
            .history
            .partition_point(|(number, _)| *number <= n_commands);
        let seen = &state.history[..seen];
        let flushed = seen
            .iter()
            .rposition(|(_, c)| matches!(c, Noted::Flush))
            .unwrap_or(0);
        let mut bytes = state.before.clone();
        for (_, command) in &seen[..flushed] {
            apply(&mut bytes, command);
        }
        // So that an image depends on its seed alone.
        let mut random = SeededRandom::new(seed ^ 0x6a09_e667_f3bc_c908);
        for (_, command) in &seen[flushed..] {
            self.apply_damaged(&mut bytes, command, &mut random);
        }
        bytes
    }

    /// The bytes as they are, as if flushed.
    #[must_use]
    pub fn snapshot(&self) -> Memory {
        let bytes = self.state.lock().now.clone();
        let sectors = (self.sectorsize, self.sectorsize);
        Memory::with_bytes(self.name.clone(), self.mediasize, sectors, bytes)
    }

    /// Applies a command that may be lost or torn.
    fn apply_damaged(&self, bytes: &mut SparseBytes, command: &Noted, random: &mut SeededRandom) {
        let Noted::Write { offset, data } = command else {
            if random.next_u64().is_multiple_of(2) {
                apply(bytes, command);
            }
            return;
        };
        let sector = self.sectorsize as usize;
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
                bytes.write(offset + (n * sector) as u64, part);
            }
        }
    }

    fn note(&self, command: Noted) -> Result<()> {
        let mut state = self.state.lock();
        let number = self.supply.admit(true)?;
        apply(&mut state.now, &command);
        state.history.push((number, command));
        Ok(())
    }
}

fn apply(bytes: &mut SparseBytes, command: &Noted) {
    match command {
        Noted::Write { offset, data } => bytes.write(*offset, data),
        Noted::Delete { offset, len } => bytes.erase(*offset, *len),
        Noted::Flush => {}
    }
}

impl Provider for PowerCut {
    fn name(&self) -> &str {
        &self.name
    }
    fn shape(&self) -> Shape {
        Shape {
            keeps_unflushed: true,
            ..Shape::new(self.mediasize, self.sectorsize)
        }
    }
    fn execute(&self, offset: u64, command: Command<'_>) -> Result<()> {
        check_range(self, offset, command.cmd().1)?;
        match command {
            Command::Read(buf) => {
                let state = self.state.lock();
                self.supply.admit(false)?;
                state.now.read(offset, buf);
                Ok(())
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
