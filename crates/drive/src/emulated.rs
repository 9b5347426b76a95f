//! An emulated drive: bytes, a cache, and the time that everything takes.
//!
//! # What it is
//! [`Emulated`] is a [`Provider`] that keeps real bytes (`media`: what is on the medium; `volatile`:
//! what is only in the cache) and asks the timing model ([`Timing`]) when each command is done. In
//! simulated time the clock jumps to that point; in real time the caller waits as long as it would
//! for the real drive.
//!
//! # Invariants
//! 1. A write is in `volatile` from its submission until [`Event::Destaged`], then on the medium.
//!    Reads see both.
//! 2. When a flush is done, every write that was done when it was submitted is on the medium.
//! 3. Writes and trims take effect on the bytes in the order of submission, so overlapping queued
//!    writes are never mixed up.
//! 4. The model is advanced lazily: with each command, when the timer fires, and before a power cut, a
//!    save or a look at the statistics. Destaging in between is caught up with then.
//!
//! # Crash argument
//! See `keep` for a program that dies, `power` for a loss of power.
//!
//! # Concurrency
//! One lock, `state`, never held while waiting. Commands are completed by one timer, which is set for the time at which
//! the next may be done; a thread that waits for one is told by its `DoneFn`. `DoneFn`s are called without the lock.

mod commands;
mod keep;
mod power;
#[cfg(test)]
mod tests;
mod volatile;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use base::{BlockBuf, Context, Error, ErrorKind, Result};
use geom::{Bio, BioData, BioOp, DoneFn, Provider};
use rt::Mutex;
use serde::Serialize;

use crate::fault::{Fault, Faults};
use crate::identify::IdentifyData;
use crate::media::{Extents, Media};
use crate::profile::Profile;
use crate::timing::{CommandKind, Event, Statistics, Timing};
pub(crate) use keep::replace_file;
use keep::{Files, KeptState};
use volatile::Volatile;

/// What distinguishes a drive from others of its profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Capacity in bytes, before a USB bridge takes some away; `None`: that of the profile.
    pub size_bytes: Option<u64>,
    /// Serial number; `None`: derived from the seed.
    pub serial: Option<String>,
    /// Whether the host knows the drives that lie about their sectors (`ADA_Q_4K`).
    pub has_quirks: bool,
}

impl Default for Identity {
    fn default() -> Self {
        Identity {
            size_bytes: None,
            serial: None,
            has_quirks: true,
        }
    }
}

/// What a drive has done since it was switched on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "devstat")]
pub struct Activity {
    /// Its clock when it was switched on.
    pub on_at_ns: u64,
    /// Its clock now.
    pub now_ns: u64,
    /// The counts.
    pub statistics: Statistics,
}

/// A command in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TraceEntry {
    /// When it was submitted, on the drive's clock.
    pub at_ns: u64,
    /// When it was done; `None` if it is not done yet, or never will be.
    pub done_ns: Option<u64>,
    /// What it does.
    #[serde(serialize_with = "kind_in_words")]
    pub kind: CommandKind,
    /// The first sector, as the drive numbers them.
    pub lba: u64,
    /// How many.
    pub sectors: u32,
    /// For a write: physical sectors that it covers only in part.
    pub partial: u32,
    /// Commands in the drive, including this one.
    pub depth: u32,
}

fn kind_in_words<S: serde::Serializer>(kind: &CommandKind, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(match kind {
        CommandKind::Read => "read",
        CommandKind::Write => "write",
        CommandKind::Flush => "flush",
        CommandKind::Trim => "trim",
    })
}

/// An emulated drive.
pub struct Emulated {
    name: String,
    profile: Arc<Profile>,
    identify: IdentifyData,
    shape: Shape,
    files: Files,
    seed: u64,
    me: Weak<Emulated>,
    state: Mutex<State>,
}

/// The shape that GEOM sees, and its place on the medium.
#[derive(Clone, Copy, Debug)]
struct Shape {
    mediasize: u64,
    sectorsize: u32,
    stripesize: u32,
    stripeoffset: u32,
    /// The drive's own sector: smaller than `sectorsize` behind some bridges.
    drive_sector: u64,
    /// Where the host's byte 0 is on the medium: nonzero with the jumper.
    shift_bytes: u64,
    medium_bytes: u64,
    physical_bytes: u64,
}

struct State {
    timing: Timing,
    /// How far the drive's clock is ahead of the program's; set when the drive is opened.
    ahead_ns: u64,
    media: Media,
    faults: Faults,
    volatile: Volatile,
    in_flight: BTreeMap<u64, InFlight>,
    next_tag: u64,
    /// Commands that are done and whose callbacks are due, without the lock.
    finished: Vec<(DoneFn, Result<BioData>)>,
    /// When the next timer is due.
    timer_at: Option<u64>,
    rewriting: Vec<Rewriting>,
    /// Writes that the media file had no room for.
    stuck: usize,
    has_power: bool,
    /// The cache file is up to date.
    is_kept: bool,
    /// Nothing is to be saved on drop.
    is_closed: bool,
    life: KeptState,
    trace: Option<Vec<TraceEntry>>,
    events: Vec<Event>,
}

/// A read-modify-write in progress, in bytes of the medium.
#[derive(Clone, Debug)]
struct Rewriting {
    bytes: std::ops::Range<u64>,
    from: u64,
    until: u64,
}

struct InFlight {
    kind: CommandKind,
    /// Byte offset on the medium.
    offset: u64,
    len: u64,
    /// Whether `done` is given the bytes of a read.
    gives_bytes: bool,
    done: DoneFn,
    /// Its index in the trace.
    traced: Option<usize>,
}

impl Emulated {
    /// Opens the drive whose files are in `dir`, creating it if there is none. `name` is its GEOM name
    /// and the stem of its files; `seed` determines everything random.
    ///
    /// # Errors
    /// `InvalidInput` for a size that is not possible; `Corrupt` for malformed files; what the host says
    /// otherwise.
    pub fn open(
        dir: &Path,
        name: &str,
        profile: Arc<Profile>,
        identity: &Identity,
        seed: u64,
    ) -> Result<Arc<Emulated>> {
        Self::open_drive(dir, name, profile, identity, seed).within(|| name)
    }

    fn open_drive(
        dir: &Path,
        name: &str,
        profile: Arc<Profile>,
        identity: &Identity,
        seed: u64,
    ) -> Result<Arc<Emulated>> {
        let profile = sized(profile, identity)?;
        let identify = IdentifyData::of(&profile, identity.serial.as_deref(), seed)?;
        let shape = Shape::of(&profile, &identify, identity.has_quirks);
        let files = Files::new(dir, name);
        let media = Media::open(&files.path("img"), shape.medium_bytes)?;
        let faults = Faults::open(
            &files.path("faults"),
            shape.drive_sector,
            shape.medium_bytes,
        )?;
        let life = files.read_state()?;
        let state = State::new(&files, &profile, media, faults, life, seed)?;
        Ok(Arc::new_cyclic(|me| Emulated {
            name: name.to_owned(),
            profile,
            identify,
            shape,
            files,
            seed,
            me: me.clone(),
            state: Mutex::new(state),
        }))
    }

    /// The profile, with this drive's own capacity.
    #[must_use]
    pub fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    /// What the drive reports about itself.
    #[must_use]
    pub fn identify(&self) -> IdentifyData {
        self.identify.clone()
    }

    /// What Linux would show below `/sys/block/sdX/queue`: of the drive, or of the bridge before it.
    #[must_use]
    pub fn linux_topology(&self) -> geom::topology::Topology {
        let says = self.identify.linux_topology();
        let logical = self.shape.sectorsize;
        let physical = says.physical_block_size.max(logical);
        geom::topology::Topology {
            mediasize: self.shape.mediasize,
            logical_block_size: logical,
            physical_block_size: physical,
            minimum_io_size: physical,
            ..says
        }
    }

    /// Lifetime statistics.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let mut state = self.state.lock();
        let now = state.now();
        self.catch_up(&mut state, now);
        let sum = keep::add(&state.life.before, state.timing.statistics());
        self.unlock(state);
        sum
    }

    /// What it has done since it was switched on.
    #[must_use]
    pub fn activity(&self) -> Activity {
        let mut state = self.state.lock();
        let now_ns = state.now();
        self.catch_up(&mut state, now_ns);
        let activity = Activity {
            on_at_ns: state.life.on_at_ns,
            now_ns,
            statistics: state.timing.statistics().clone(),
        };
        self.unlock(state);
        activity
    }

    /// How many times it was switched on.
    #[must_use]
    pub fn power_cycles(&self) -> u64 {
        self.state.lock().life.power_cycles
    }

    /// Starts tracing commands, or stops and discards the trace.
    pub fn trace(&self, on: bool) {
        let mut state = self.state.lock();
        state.trace = on.then(Vec::new);
        state.forget_traced();
    }

    /// The entries traced since the start or since the last call.
    #[must_use]
    pub fn take_trace(&self) -> Vec<TraceEntry> {
        let mut state = self.state.lock();
        state.forget_traced();
        state.trace.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Bytes that the medium takes on the host's disk, and bytes that are only in the cache.
    #[must_use]
    pub fn stored_bytes(&self) -> (u64, u64) {
        let state = self.state.lock();
        let cached = state.volatile.iter().map(|(_, write)| write.len).sum();
        (state.media.stored_bytes(), cached)
    }

    /// The media file: the medium byte for byte, with holes where it is packed.
    #[must_use]
    pub fn media_path(&self) -> PathBuf {
        self.files.path("img")
    }

    /// The drive's clock: [`rt::now_ns`], or more if the drive was kept at a later time.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.state.lock().now()
    }

    /// Adds a fault and returns its number.
    ///
    /// # Errors
    /// `InvalidInput` for sectors that the medium does not have; what the host says.
    pub fn add_fault(&self, fault: Fault) -> Result<u64> {
        let sectors = self.shape.medium_bytes / self.shape.drive_sector;
        if let Some(range) = fault.range()
            && (range.is_empty() || range.end > sectors)
        {
            let text = format!("{range:?}: the medium has {sectors} sectors");
            return Err(Error::invalid(text).within(&self.name));
        }
        let mut state = self.state.lock();
        let id = state.faults.add(fault);
        let saved = state.faults.save();
        self.unlock(state);
        saved.map(|()| id)
    }

    /// Adds `count` faults of one sector each, made by `make` from a sector and a seed. Places are determined by
    /// `seed`, among the sectors that hold bytes if there are any.
    ///
    /// # Errors
    /// What the host says.
    pub fn scatter_faults(
        &self,
        count: u64,
        mut seed: u64,
        make: impl Fn(u64, u64) -> Fault,
    ) -> Result<Vec<u64>> {
        let sector = self.shape.drive_sector;
        let mut state = self.state.lock();
        let mut used = state.media.allocated().clone();
        let cached = state.volatile.iter().filter(|(_, w)| w.data.is_some());
        cached.for_each(|(_, write)| used.insert(write.range()));
        let ids = (0..count)
            .map(|_| {
                let random = rt::splitmix64(&mut seed);
                let place = random_place(&used, random, &self.shape);
                let fault = make(place / sector, rt::splitmix64(&mut seed));
                state.faults.add(fault)
            })
            .collect();
        let saved = state.faults.save();
        self.unlock(state);
        saved.map(|()| ids)
    }

    /// The faults, by number.
    #[must_use]
    pub fn faults(&self) -> Vec<(u64, Fault)> {
        self.state.lock().faults.list()
    }

    /// Removes a fault: the right bytes are back.
    ///
    /// # Errors
    /// `NotFound` if there is none of that number; what the host says.
    pub fn remove_fault(&self, id: u64) -> Result<Fault> {
        let mut state = self.state.lock();
        let fault = state.faults.remove(id);
        let saved = state.faults.save();
        self.unlock(state);
        let fault = fault.within(|| &self.name)?;
        saved.map(|()| fault)
    }

    /// Reads what a drive without faults would return, without taking time.
    ///
    /// # Errors
    /// `InvalidInput` for a range that is unaligned or past the end; what the host says.
    pub fn read_pristine(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        geom::check_range(self, offset, buf.len() as u64)?;
        let mut state = self.state.lock();
        let at = offset + self.shape.shift_bytes;
        let result = state.media.read(at, buf);
        state.volatile.overlay(at, buf);
        self.unlock(state);
        result
    }

    /// Saves the drive as it is: cached writes stay in the cache, and are lost if the power is cut.
    ///
    /// # Errors
    /// What the host says.
    pub fn save(&self) -> Result<()> {
        let mut state = self.state.lock();
        let now = state.now();
        self.catch_up(&mut state, now);
        let saved = state.save(&self.files);
        self.unlock(state);
        saved.within(|| &self.name)
    }

    /// Saves the drive and closes it. It must not be used afterwards.
    ///
    /// # Errors
    /// What the host says.
    pub fn close(&self) -> Result<()> {
        self.save()?;
        self.state.lock().is_closed = true;
        Ok(())
    }

    /// Drops the drive as a program that dies would: nothing is saved beyond what is in the files.
    pub fn abandon(&self) {
        self.state.lock().is_closed = true;
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.state.get_mut().is_closed {
            // There is no caller to report to; losing the cache is a power cut, which is allowed.
            let _ = self.save();
        }
    }
}

fn sized(profile: Arc<Profile>, identity: &Identity) -> Result<Arc<Profile>> {
    let sector = u64::from(profile.identify.logical_sector_bytes);
    match identity.size_bytes {
        None => Ok(profile),
        Some(size) if size % sector != 0 || size == 0 => {
            let text = format!("a size of {size} bytes with sectors of {sector}");
            Err(Error::invalid(text))
        }
        Some(size) if size / sector == profile.identify.sectors => Ok(profile),
        Some(size) => profile.with_sectors(size / sector).map(Arc::new),
    }
}

impl Shape {
    fn of(profile: &Profile, identify: &IdentifyData, has_quirks: bool) -> Shape {
        let sector = u64::from(profile.identify.logical_sector_bytes);
        let (stripesize, stripeoffset) = identify.stripe(has_quirks);
        Shape {
            mediasize: profile.host_bytes(),
            sectorsize: profile.host_sector_bytes(),
            stripesize: stripesize.max(profile.host_sector_bytes()),
            stripeoffset,
            drive_sector: sector,
            shift_bytes: profile.medium.lba_shift * sector,
            medium_bytes: profile.medium_sectors() * sector,
            physical_bytes: u64::from(profile.medium.physical_sector_bytes),
        }
    }
}

impl State {
    /// Commands in flight are in no trace from now on.
    fn forget_traced(&mut self) {
        for flight in self.in_flight.values_mut() {
            flight.traced = None;
        }
    }

    fn new(
        files: &Files,
        profile: &Arc<Profile>,
        media: Media,
        faults: Faults,
        mut life: KeptState,
        seed: u64,
    ) -> Result<State> {
        let kept = files.read_cache()?;
        let is_kept = kept.is_some();
        let (timing, next_tag, volatile, stopped_ns) = match kept {
            Some((kept, volatile)) => {
                volatile
                    .check(profile)
                    .within(|| files.path("cache").display().to_string())?;
                let timing = Timing::restore(Arc::clone(profile), kept.timing)?;
                (timing, kept.next_tag, volatile, kept.now_ns)
            }
            None => {
                // New, or the first start after a loss of power.
                life.before = keep::add(&life.before, &std::mem::take(&mut life.since));
                life.power_cycles = life.power_cycles.saturating_add(1);
                let timing = Timing::new(Arc::clone(profile), seed);
                (timing, 1, Volatile::default(), life.now_ns)
            }
        };
        let stuck = volatile.iter().filter(|(_, write)| write.is_stuck).count();
        let ahead_ns = stopped_ns.saturating_sub(rt::now_ns());
        if !is_kept {
            life.on_at_ns = rt::now_ns() + ahead_ns;
        }
        Ok(State {
            timing,
            ahead_ns,
            media,
            faults,
            volatile,
            in_flight: BTreeMap::new(),
            next_tag,
            finished: Vec::new(),
            timer_at: None,
            rewriting: Vec::new(),
            stuck,
            has_power: true,
            is_kept,
            is_closed: false,
            life,
            trace: None,
            events: Vec::new(),
        })
    }

    fn now(&self) -> u64 {
        rt::now_ns() + self.ahead_ns
    }

    fn save(&mut self, files: &Files) -> Result<()> {
        self.faults.save()?;
        if self.is_kept {
            return Ok(());
        }
        let now = self.now();
        self.life.now_ns = now;
        self.life.since = self.timing.statistics().clone();
        files.write_state(&self.life)?;
        files.write_cache(now, self.next_tag, self.timing.state(), &self.volatile)?;
        self.is_kept = true;
        Ok(())
    }
}

/// The start of a random sector of the medium: one that holds bytes, if there is any.
fn random_place(used: &Extents, random: u64, shape: &Shape) -> u64 {
    let sector = shape.drive_sector;
    let total = used.total();
    if total < sector {
        return random % (shape.medium_bytes / sector) * sector;
    }
    let mut nth = random % total;
    for extent in used.iter() {
        let len = extent.end - extent.start;
        if nth < len {
            return (extent.start + nth) / sector * sector;
        }
        nth -= len;
    }
    0
}

impl Provider for Emulated {
    fn name(&self) -> &str {
        &self.name
    }
    fn shape(&self) -> geom::Shape {
        geom::Shape {
            stripesize: self.shape.stripesize,
            stripeoffset: self.shape.stripeoffset,
            is_rotational: self.profile.disk.is_some(),
            is_queued: true,
            can_delete: self.identify.has_trim(),
            // A drive that stopped answering for a while still has its cache.
            keeps_unflushed: true,
            ..geom::Shape::new(self.shape.mediasize, self.shape.sectorsize)
        }
    }
    fn submit(&self, bio: Bio) {
        self.submit_bio(bio);
    }
    fn execute(&self, offset: u64, command: geom::Command<'_>) -> Result<()> {
        match command {
            geom::Command::Read(buf) => self.read_and_wait(offset, buf),
            geom::Command::Write(pieces) => self.write_and_wait(offset, pieces, false),
            geom::Command::Flush => self.flush_and_wait(),
            geom::Command::Delete { len } => self.trim_and_wait(offset, len),
        }
    }
}
