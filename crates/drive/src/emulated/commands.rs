//! Commands: how they start, how time passes meanwhile, how they end.

use rt::{MutexGuard, OneShot};

use super::volatile::CachedWrite;
use super::*;
use crate::fault::Fate;
use crate::media::is_zero;
use crate::timing::Command;

/// The longest command of the ATA set, in logical sectors.
const SECTORS_MAX: u64 = 65_536;

/// A command as submitted, in bytes of the host.
struct Request {
    kind: CommandKind,
    offset: u64,
    len: u64,
    fua: bool,
}

const FLUSH: Request = Request {
    kind: CommandKind::Flush,
    offset: 0,
    len: 0,
    fua: false,
};

/// Wraps `done` so that it is called no earlier than the end of the bus transfer. The bus and the drive's wire
/// transfer in parallel: a command is over when both have ended. For queued commands.
fn told_after(transfer: rt::Transfer, done: DoneFn) -> DoneFn {
    if transfer.until_ns <= rt::now_ns() {
        return done;
    }
    Box::new(move |result| {
        if rt::now_ns() >= transfer.until_ns {
            done(result);
        } else {
            rt::at_ns(transfer.until_ns, move || done(result));
        }
    })
}

impl Emulated {
    pub(super) fn read_and_wait(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        geom::check_range(self, offset, buf.len() as u64)?;
        let transfer = rt::book_transfer(buf.len() as u64);
        let mut at = offset;
        for part in buf.chunks_mut(self.bytes_max()) {
            let request = Request {
                kind: CommandKind::Read,
                offset: at,
                len: part.len() as u64,
                fua: false,
            };
            self.run(&request, None)?;
            let read = self.state.lock().read(at + self.shape.shift_bytes, part);
            read.within(|| &self.name)?;
            at += part.len() as u64;
        }
        transfer.end();
        Ok(())
    }

    /// Writes and waits until the bytes are on the medium, bypassing the write cache (FUA).
    ///
    /// # Errors
    /// As [`Provider::write`].
    pub fn write_fua(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.write_and_wait(offset, &[data], true)
    }

    pub(super) fn write_and_wait(&self, offset: u64, pieces: &[&[u8]], fua: bool) -> Result<()> {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        geom::check_range(self, offset, len as u64)?;
        if len == 0 {
            return Ok(());
        }
        let transfer = rt::book_transfer(len as u64);
        transfer.begin();
        self.write_pieces(offset, pieces, len, fua)?;
        transfer.end();
        Ok(())
    }

    /// `pieces` total `len` bytes.
    fn write_pieces(&self, offset: u64, pieces: &[&[u8]], len: usize, fua: bool) -> Result<()> {
        if let [data] = pieces {
            let mut at = offset;
            for part in data.chunks(self.bytes_max()) {
                let bytes = (!is_zero(part)).then(|| BlockBuf::copy_of(part).share());
                self.write_one(at, part.len() as u64, bytes, fua)?;
                at += part.len() as u64;
            }
            return Ok(());
        }
        if len > self.bytes_max() {
            return self.write_pieces(offset, &[&pieces.concat()], len, fua);
        }
        let is_hole = pieces.iter().all(|piece| is_zero(piece));
        let bytes = (!is_hole).then(|| {
            let mut whole = BlockBuf::scratch(len);
            let mut at = 0;
            for piece in pieces {
                whole[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
            }
            whole.share()
        });
        self.write_one(offset, len as u64, bytes, fua)
    }

    /// `bytes`: `None` for zeros.
    fn write_one(&self, offset: u64, len: u64, bytes: Option<base::Buf>, fua: bool) -> Result<()> {
        let request = Request {
            kind: CommandKind::Write,
            offset,
            len,
            fua,
        };
        self.run(&request, bytes)
    }

    pub(super) fn flush_and_wait(&self) -> Result<()> {
        if self.identify.needs_no_flush() {
            return self.leave_flush_out();
        }
        self.run(&FLUSH, None)
    }

    /// A flush of which the drive hears nothing, and which takes no time: a drive that has no power or does not
    /// answer fails it all the same, as its host would.
    fn leave_flush_out(&self) -> Result<()> {
        let mut state = self.state.lock();
        let now = state.now();
        self.catch_up(&mut state, now);
        let next = state.next_tag;
        let result = self
            .admit(&mut state, &FLUSH, now)
            .and_then(|()| state.end_flush(next).within(|| &self.name));
        self.unlock(state);
        result
    }

    pub(super) fn trim_and_wait(&self, offset: u64, len: u64) -> Result<()> {
        geom::check_range(self, offset, len)?;
        self.check_trim()?;
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let len = (self.bytes_max() as u64).min(end - at);
            let request = Request {
                kind: CommandKind::Trim,
                offset: at,
                len,
                fua: false,
            };
            self.run(&request, None)?;
            at += len;
        }
        Ok(())
    }

    fn check_trim(&self) -> Result<()> {
        if self.identify.has_trim() {
            return Ok(());
        }
        let text = format!("{}: has no delete", self.name);
        Err(Error::new(ErrorKind::Unsupported, text))
    }

    fn bytes_max(&self) -> usize {
        let bytes = SECTORS_MAX * self.shape.drive_sector;
        usize::try_from(bytes).expect("some megabytes")
    }

    /// Hands a command to the drive and waits until it is done.
    fn run(&self, request: &Request, bytes: Option<base::Buf>) -> Result<()> {
        let end = Arc::new(OneShot::default());
        let told = Arc::clone(&end);
        let done = Box::new(move |result: Result<BioData>| told.give(result.map(|_| ())));
        let mut state = self.lock_in_time();
        self.begin(&mut state, request, bytes, false, done);
        self.unlock(state);
        end.take()
    }

    pub(super) fn submit_bio(&self, bio: Bio) {
        let (kind, len) = match &bio.op {
            BioOp::Read { len } => (CommandKind::Read, *len as u64),
            BioOp::Write(bytes) => (CommandKind::Write, bytes.len() as u64),
            BioOp::Delete { len } => (CommandKind::Trim, *len),
            BioOp::Flush => (CommandKind::Flush, 0),
        };
        let request = Request {
            kind,
            offset: bio.offset,
            len,
            fua: false,
        };
        if len == 0 && kind != CommandKind::Flush {
            let nothing = match kind {
                CommandKind::Read => BioData::Read(BlockBuf::zeroed(0)),
                _ => BioData::None,
            };
            return (bio.done)(Ok(nothing));
        }
        let checked = match kind {
            CommandKind::Flush => Ok(()),
            CommandKind::Trim => geom::check_range(self, bio.offset, len).and(self.check_trim()),
            _ => geom::check_range(self, bio.offset, len),
        };
        if let Err(error) = checked {
            return (bio.done)(Err(error));
        }
        if kind == CommandKind::Flush && self.identify.needs_no_flush() {
            return (bio.done)(self.leave_flush_out().map(|()| BioData::None));
        }
        let slow_ns = self.slow_ns();
        if slow_ns == 0 {
            return self.queue_bio(bio, &request);
        }
        let me = self.me.clone();
        rt::at_ns(rt::now_ns() + slow_ns, move || match me.upgrade() {
            Some(me) => me.queue_bio(bio, &request),
            None => (bio.done)(Err(Error::new(ErrorKind::Io, "no power"))),
        });
    }

    fn queue_bio(&self, bio: Bio, request: &Request) {
        let kind = request.kind;
        let transfer = match kind {
            CommandKind::Read | CommandKind::Write => rt::book_transfer(request.len),
            CommandKind::Flush | CommandKind::Trim => rt::Transfer::default(),
        };
        if kind == CommandKind::Write {
            transfer.begin();
        }
        let bytes = match bio.op {
            BioOp::Write(bytes) if !is_zero(&bytes) => Some(bytes),
            _ => None,
        };
        let mut state = self.state.lock();
        let done = told_after(transfer, bio.done);
        self.begin(&mut state, request, bytes, true, done);
        self.unlock(state);
    }

    /// What a drive that is slow takes longer for each command now, in ns.
    fn slow_ns(&self) -> u64 {
        let state = self.state.lock();
        state.faults.slow_ns(state.now())
    }

    /// Locks the state for a command, later if the drive is slow.
    fn lock_in_time(&self) -> MutexGuard<'_, State> {
        let state = self.state.lock();
        let slow_ns = state.faults.slow_ns(state.now());
        if slow_ns == 0 {
            return state;
        }
        drop(state);
        rt::sleep_ns(slow_ns);
        self.state.lock()
    }

    /// Hands a command to the drive and applies its effect on the bytes. A refusal goes to `done`, too;
    /// `gives_bytes` if that wants what is read.
    fn begin(
        &self,
        state: &mut MutexGuard<'_, State>,
        request: &Request,
        bytes: Option<base::Buf>,
        gives_bytes: bool,
        done: DoneFn,
    ) {
        let state = &mut **state;
        let now = state.now();
        let tag = state.next_tag;
        let offset = request.offset + self.shape.shift_bytes;
        let range = offset..offset + request.len;
        let admitted = self.admit(state, request, now).and_then(|()| {
            state
                .change(tag, request.kind, range, bytes, &self.shape)
                .within(|| &self.name)
        });
        if let Err(error) = admitted {
            return state.finished.push((done, Err(error)));
        }
        state.next_tag += 1;
        let sector = self.shape.drive_sector;
        let command = Command {
            tag,
            kind: request.kind,
            lba: request.offset / sector,
            sectors: u32::try_from(request.len / sector).unwrap_or(u32::MAX),
            fua: request.fua,
        };
        state.timing.submit(now, command);
        let traced = self.note(state, &command, now);
        let flight = InFlight {
            kind: request.kind,
            offset,
            len: request.len,
            gives_bytes,
            done,
            traced,
        };
        state.in_flight.insert(tag, flight);
    }

    /// Whether the drive accepts a command at all.
    fn admit(&self, state: &mut State, request: &Request, now: u64) -> Result<()> {
        let refuse = |what: &str| {
            let text = format!("{}: {what}", self.name);
            Err(Error::new(ErrorKind::Io, text))
        };
        if !state.has_power {
            return refuse("no power");
        }
        if !state.faults.is_empty() {
            if state.faults.is_dead(now) {
                return refuse("does not answer");
            }
            let start = request.offset + self.shape.shift_bytes;
            if request.kind == CommandKind::Write
                && let Some(lba) = state.faults.refuses_write(&(start..start + request.len))
            {
                return refuse(&format!("write fault at sector {lba} of the medium"));
            }
        }
        if state.is_kept {
            self.files.remove_cache()?;
            state.is_kept = false;
        }
        if state.stuck > 0 && request.kind != CommandKind::Read {
            state.retry_stuck().within(|| &self.name)?;
        }
        Ok(())
    }

    /// Traces a command, if tracing is on.
    fn note(&self, state: &mut State, command: &Command, at_ns: u64) -> Option<usize> {
        let depth = u32::try_from(state.in_flight.len() + 1).unwrap_or(u32::MAX);
        let trace = state.trace.as_mut()?;
        trace.push(TraceEntry {
            at_ns,
            done_ns: None,
            kind: command.kind,
            lba: command.lba,
            sectors: command.sectors,
            partial: match command.kind {
                CommandKind::Write => self.partial_sectors(command),
                _ => 0,
            },
            depth,
        });
        Some(trace.len() - 1)
    }

    /// Physical sectors that a write covers only in part.
    fn partial_sectors(&self, command: &Command) -> u32 {
        let per = self.profile.sectors_per_physical();
        let start = self.profile.medium_lba(command.lba);
        let end = start + u64::from(command.sectors);
        let (head, tail) = (!start.is_multiple_of(per), !end.is_multiple_of(per));
        let is_same = start / per == (end - 1) / per;
        match (head, tail) {
            (false, false) => 0,
            (true, true) if !is_same => 2,
            _ => 1,
        }
    }

    /// Advances the model to `now` and applies its events.
    pub(super) fn catch_up(&self, state: &mut MutexGuard<'_, State>, now: u64) {
        let state = &mut **state;
        if !state.has_power {
            return;
        }
        let mut events = std::mem::take(&mut state.events);
        state.timing.advance(now, &mut events);
        for event in events.drain(..) {
            match event {
                Event::Done { tag, at } => state.end(tag, at, &self.shape, &self.name),
                Event::Destaged { tag, .. } => state.destage(tag),
                Event::Rewriting {
                    physical_lba,
                    sectors,
                    from,
                    until,
                } => {
                    let start = physical_lba * self.shape.physical_bytes;
                    let len = u64::from(sectors) * self.shape.physical_bytes;
                    state.rewriting.retain(|other| other.until > from);
                    state.rewriting.push(Rewriting {
                        bytes: start..start + len,
                        from,
                        until,
                    });
                }
            }
        }
        state.events = events;
    }

    /// Releases the lock, calls the callbacks that are due, and sets the timer for the commands still in flight.
    pub(super) fn unlock(&self, mut state: MutexGuard<'_, State>) {
        if state.has_power && !state.in_flight.is_empty() {
            let next = state.timing.next_done_at();
            let next = next.unwrap_or_else(|| panic!("{}: a command never ends", self.name));
            if state.timer_at.is_none_or(|at| next < at) {
                state.timer_at = Some(next);
                let me = self.me.clone();
                let when = next.saturating_sub(state.ahead_ns);
                rt::at_ns(when, move || {
                    if let Some(me) = me.upgrade() {
                        me.timer(next);
                    }
                });
            }
        }
        if state.finished.is_empty() {
            return;
        }
        let finished = std::mem::take(&mut state.finished);
        drop(state);
        for (done, result) in finished {
            done(result);
        }
    }

    fn timer(&self, at: u64) {
        let mut state = self.state.lock();
        if state.timer_at == Some(at) {
            state.timer_at = None;
        }
        let now = state.now();
        self.catch_up(&mut state, now);
        self.unlock(state);
    }
}

impl State {
    /// Applies a command to the bytes, in the order of submission: a write goes into the cache.
    fn change(
        &mut self,
        tag: u64,
        kind: CommandKind,
        range: std::ops::Range<u64>,
        data: Option<base::Buf>,
        shape: &Shape,
    ) -> Result<()> {
        match kind {
            CommandKind::Write => {}
            CommandKind::Trim => {
                self.volatile.cut(&range);
                self.media.erase(range.clone())?;
                return self.faults.repair(&range);
            }
            CommandKind::Read | CommandKind::Flush => return Ok(()),
        }
        let fate = if self.faults.is_empty() {
            Fate::Arrives
        } else {
            let used = self.media.allocated();
            self.faults
                .fate(&range, |random| random_place(used, random, shape))
        };
        let write = CachedWrite {
            offset: range.start,
            len: range.end - range.start,
            data,
            cuts: Extents::default(),
            fate,
            is_acknowledged: false,
            is_stuck: false,
        };
        self.volatile.insert(tag, write);
        Ok(())
    }

    /// Reads bytes as the drive returns them.
    pub(super) fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.media.read(offset, buf)?;
        if !self.faults.is_empty() {
            let volatile = &self.volatile;
            let covers = |range: &std::ops::Range<u64>| volatile.covers(range);
            self.faults.damage(offset, buf, covers)?;
        }
        self.volatile.overlay(offset, buf);
        Ok(())
    }

    /// A write has reached the medium.
    fn destage(&mut self, tag: u64) {
        let Some(mut write) = self.volatile.remove(tag) else {
            return;
        };
        if self.settle(&write).is_err() {
            // It stays in the cache; the next command other than a read retries it and reports the error.
            self.stuck += usize::from(!write.is_stuck);
            write.is_stuck = true;
            self.volatile.insert(tag, write);
        }
    }

    /// Writes the still valid parts of a write to the media file.
    pub(super) fn settle(&mut self, write: &CachedWrite) -> Result<()> {
        if write.cuts.is_empty() {
            return self.settle_part(write, &write.range());
        }
        let pieces = write.pieces();
        pieces
            .iter()
            .try_for_each(|piece| self.settle_part(write, piece))
    }

    pub(super) fn settle_part(
        &mut self,
        write: &CachedWrite,
        part: &std::ops::Range<u64>,
    ) -> Result<()> {
        if write.fate != Fate::Arrives {
            let fate = match write.fate {
                Fate::Lands(place) => Fate::Lands(place + (part.start - write.offset)),
                fate => fate,
            };
            let zeros = vec![0; usize::try_from(part.end - part.start).expect("a command")];
            let bytes = write.bytes(part).unwrap_or(&zeros);
            return self
                .faults
                .misplace(&mut self.media, part.start, bytes, fate);
        }
        match write.bytes(part) {
            None => self.media.erase(part.clone())?,
            Some(bytes) => self.media.write(part.start, bytes)?,
        }
        self.faults.repair(part)
    }

    /// Retries the writes that the media file had no room for.
    pub(super) fn retry_stuck(&mut self) -> Result<()> {
        let is_stuck = |(tag, write): (u64, &CachedWrite)| write.is_stuck.then_some(tag);
        let tags: Vec<u64> = self.volatile.iter().filter_map(is_stuck).collect();
        for tag in tags {
            let write = self.volatile.remove(tag).expect("found just now");
            if let Err(error) = self.settle(&write) {
                self.volatile.insert(tag, write);
                return Err(error);
            }
            self.stuck -= 1;
        }
        Ok(())
    }

    /// Completes a command.
    fn end(&mut self, tag: u64, at: u64, shape: &Shape, name: &str) {
        let Some(flight) = self.in_flight.remove(&tag) else {
            return;
        };
        if let (Some(trace), Some(nth)) = (&mut self.trace, flight.traced)
            && let Some(entry) = trace.get_mut(nth)
        {
            entry.done_ns = Some(at);
        }
        let mut result = Ok(());
        match flight.kind {
            CommandKind::Write => match self.volatile.get_mut(tag) {
                Some(write) => write.is_acknowledged = true,
                // It went past the cache: what it has repaired stays so.
                None => result = self.faults.save().within(|| name),
            },
            CommandKind::Flush => result = self.end_flush(tag).within(|| name),
            CommandKind::Read | CommandKind::Trim => {}
        }
        let result = result.and_then(|()| match flight.kind {
            CommandKind::Read if flight.gives_bytes => {
                let len = usize::try_from(flight.len).expect("a command");
                let mut bytes = BlockBuf::scratch(len);
                self.read(flight.offset, &mut bytes).within(|| name)?;
                Ok(BioData::Read(bytes))
            }
            _ => Ok(BioData::None),
        });
        debug_assert!(flight.offset + flight.len <= shape.medium_bytes);
        self.finished.push((flight.done, result));
    }

    /// Makes the promise of a flush true. The mechanics have done so already, except that the media file
    /// may have had no room, that a drive with capacitors does not destage on a flush, and that the repair of a
    /// sector is known to this program alone.
    fn end_flush(&mut self, tag: u64) -> Result<()> {
        self.retry_stuck()?;
        let is_promised = |(earlier, write): (u64, &CachedWrite)| {
            (earlier < tag && write.is_acknowledged).then_some(earlier)
        };
        let promised: Vec<u64> = self.volatile.iter().filter_map(is_promised).collect();
        let flash = self.timing.profile().flash.as_ref();
        debug_assert!(
            promised.is_empty() || flash.is_some_and(|f| f.power_loss_protected),
            "flush {tag} is done, but {promised:?} are not on the medium"
        );
        for earlier in promised {
            self.destage(earlier);
        }
        if self.stuck > 0 {
            self.retry_stuck()?;
        }
        self.faults.save()
    }
}
