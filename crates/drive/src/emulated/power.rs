//! Power: what is left when it fails.
//!
//! # Crash argument
//! When the power fails, the drive may have written any subset of the writes in its cache, and of one
//! write any subset of its sectors: none of it was promised. What was flushed is on the medium
//! already. A physical sector that was being rewritten has lost its old bytes and does not yet have
//! the new ones in full: all of its logical sectors read as uncorrectable errors, including those
//! that were not being written. That is a fault like others: the right bytes are kept beside it.

use super::volatile::CachedWrite;
use super::*;
use rt::splitmix64;

impl Emulated {
    /// Cuts the power. `seed` decides which part of the cache had reached the medium. Commands in flight and later
    /// ones fail until [`Emulated::power_on`], or until the drive is opened again.
    ///
    /// # Errors
    /// What the host says on writing to the medium.
    pub fn power_cut(&self, seed: u64) -> Result<()> {
        let mut state = self.state.lock();
        let now = state.now();
        self.catch_up(&mut state, now);
        let result = self.lose_power(&mut state, now, seed);
        self.unlock(state);
        result.within(|| &self.name)
    }

    fn lose_power(&self, state: &mut State, now: u64, mut seed: u64) -> Result<()> {
        if !state.has_power {
            return Ok(());
        }
        let keeps_all = (self.profile.flash.as_ref()).is_some_and(|f| f.power_loss_protected);
        let mut result = Ok(());
        for tag in state.volatile.tags() {
            let write = state.volatile.remove(tag).expect("listed just now");
            let survives = write.is_stuck || (keeps_all && write.is_acknowledged);
            let written = if survives {
                state.settle(&write)
            } else {
                self.write_partly(state, &write, &mut seed)
            };
            result = result.and(written);
        }
        for rewriting in std::mem::take(&mut state.rewriting) {
            if rewriting.from <= now && now < rewriting.until {
                let end = rewriting.bytes.end.min(self.shape.medium_bytes);
                state.faults.ruin(&(rewriting.bytes.start..end));
            }
        }
        state.stuck = 0;
        state.has_power = false;
        self.end_all(state);
        state.life.now_ns = now;
        state.life.before = keep::add(&state.life.before, state.timing.statistics());
        state.life.since = Statistics::default();
        let kept = self.files.remove_cache();
        state.is_kept = true;
        result
            .and(kept)
            .and_then(|()| state.faults.save())
            .and_then(|()| self.files.write_state(&state.life))
    }

    /// Writes the part of a write that had reached the medium: all, nothing, a prefix, or any sectors.
    fn write_partly(&self, state: &mut State, write: &CachedWrite, seed: &mut u64) -> Result<()> {
        let sector = self.shape.drive_sector;
        let choice = splitmix64(seed) % 8;
        let first_part = splitmix64(seed) % (write.len / sector + 1);
        match choice {
            0..3 => return state.settle(write),
            3..6 => return Ok(()),
            _ => {}
        }
        for piece in write.pieces() {
            for at in (piece.start..piece.end).step_by(usize::try_from(sector).expect("small")) {
                let survives = match choice {
                    6 => (at - write.offset) / sector < first_part,
                    _ => splitmix64(seed).is_multiple_of(2),
                };
                if survives {
                    state.settle_part(write, &(at..at + sector))?;
                }
            }
        }
        Ok(())
    }

    /// Fails all commands in flight.
    fn end_all(&self, state: &mut State) {
        let error = || Error::new(ErrorKind::Io, format!("{}: no power", self.name));
        for flight in std::mem::take(&mut state.in_flight).into_values() {
            state.finished.push((flight.done, Err(error())));
        }
    }

    /// Restores power: the drive starts with an empty cache.
    pub fn power_on(&self) {
        let mut state = self.state.lock();
        if state.has_power {
            return;
        }
        let seed = self.seed.wrapping_add(state.life.power_cycles);
        state.timing = Timing::new(Arc::clone(&self.profile), seed);
        state.life.power_cycles = state.life.power_cycles.saturating_add(1);
        state.life.on_at_ns = state.now();
        state.has_power = true;
        state.is_kept = false;
        state.timer_at = None;
        self.unlock(state);
    }
}
