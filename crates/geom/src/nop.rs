//! GEOM NOP: passes commands through to the provider below, optionally with another size, sector
//! size or physical sector, and with random failures and delays.
//!
//! # What it is
//! A window onto another provider. It reports its own size, sector and physical sector; reads and
//! writes go to the same bytes of the provider below, shifted by `offset`. It counts everything
//! that passes.
//!
//! # On disk
//! Nothing: to recreate a nop later, the caller keeps its [`NopConfig`].
//!
//! # Invariants
//! 1. A command not aligned to the nop's sectors, or beyond its end, is refused before it is counted.
//! 2. Every other command takes these steps, in this order: `count_until_fail` goes down (once it
//!    reaches zero, every read and write fails, that command included); the counters go up; a read
//!    or write fails with its probability, without reaching the provider below; otherwise it is held
//!    for `delaymsec` with its probability; then it is sent to the provider below.
//! 3. Flushes and deletes are never failed or delayed.
//! 4. The physical sector of the provider below is not inherited: it is what the config says, or
//!    the nop's own sector if the config says nothing.
//!
//! # Concurrency
//! One lock around config and counters, held for the decision only.
//!
//! # Source
//! FreeBSD `sys/geom/nop/g_nop.c`, `lib/geom/nop/gnop.8`.

use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use rt::Mutex;
use serde::{Deserialize, Serialize};

use crate::{Bio, BioCmd, Command, Provider, Shape, check_range};

/// What is appended to the name of the provider below.
pub const SUFFIX: &str = ".nop";
/// The errno of a failing command by default (`EIO`).
pub(crate) const ERROR_DEFAULT: i32 = 5;
/// How long a delayed command is held by default, in milliseconds.
pub(crate) const DELAY_MSEC_DEFAULT: u32 = 1;
/// The largest sector in bytes: what one command of the kernel can carry (`MAXPHYS`).
const SECTOR_BYTES_MAX: u64 = 1 << 20;
/// The longest name in bytes: `char name[64]` less the terminating NUL.
const NAME_LEN_MAX: usize = 63;

/// The options of `gnop create`. Zero means "as the provider below has it" for sizes, and "never"
/// for probabilities and `count_until_fail`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NopConfig {
    /// `-o`: the offset of byte 0 in the provider below.
    #[serde(skip_serializing_if = "is_default")]
    pub offset: u64,
    /// `-s`: the size; 0 is everything after the offset.
    #[serde(skip_serializing_if = "is_default")]
    pub size: u64,
    /// `-S`: the sector size.
    #[serde(skip_serializing_if = "is_default")]
    pub secsize: u64,
    /// `-p`: the physical sector.
    #[serde(skip_serializing_if = "is_default")]
    pub stripesize: u64,
    /// `-P`: where the first physical sector begins.
    #[serde(skip_serializing_if = "is_default")]
    pub stripeoffset: u64,
    /// `-e`: the errno of a failing command.
    pub error: i32,
    /// `-r`: percentage of reads that fail.
    #[serde(skip_serializing_if = "is_default")]
    pub rfailprob: u32,
    /// `-w`: percentage of writes that fail.
    #[serde(skip_serializing_if = "is_default")]
    pub wfailprob: u32,
    /// `-d`: how long a delayed command is held, in milliseconds.
    pub delaymsec: u32,
    /// `-q`: percentage of reads that are delayed.
    #[serde(skip_serializing_if = "is_default")]
    pub rdelayprob: u32,
    /// `-x`: percentage of writes that are delayed.
    #[serde(skip_serializing_if = "is_default")]
    pub wdelayprob: u32,
    /// `-c`: number of commands after which every read and write fails.
    #[serde(skip_serializing_if = "is_default")]
    pub count_until_fail: u64,
    /// `-z`: the physical path it claims; `None`: that of the provider below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub physpath: Option<String>,
}

impl Default for NopConfig {
    fn default() -> Self {
        NopConfig {
            offset: 0,
            size: 0,
            secsize: 0,
            stripesize: 0,
            stripeoffset: 0,
            error: ERROR_DEFAULT,
            rfailprob: 0,
            wfailprob: 0,
            delaymsec: DELAY_MSEC_DEFAULT,
            rdelayprob: 0,
            wdelayprob: 0,
            count_until_fail: 0,
            physpath: None,
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What `gnop configure` can change while the nop is in use; `None` leaves a setting as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NopChange {
    /// `-e`
    pub error: Option<i32>,
    /// `-r`
    pub rfailprob: Option<u32>,
    /// `-w`
    pub wfailprob: Option<u32>,
    /// `-d`
    pub delaymsec: Option<u32>,
    /// `-q`
    pub rdelayprob: Option<u32>,
    /// `-x`
    pub wdelayprob: Option<u32>,
    /// `-c`
    pub count_until_fail: Option<u64>,
}

impl NopConfig {
    /// Applies a change.
    ///
    /// # Errors
    /// As [`NopConfig::check_chances`]; nothing has changed then.
    pub fn change(&mut self, change: &NopChange) -> Result<()> {
        let mut new = self.clone();
        new.error = change.error.unwrap_or(new.error);
        new.rfailprob = change.rfailprob.unwrap_or(new.rfailprob);
        new.wfailprob = change.wfailprob.unwrap_or(new.wfailprob);
        new.delaymsec = change.delaymsec.unwrap_or(new.delaymsec);
        new.rdelayprob = change.rdelayprob.unwrap_or(new.rdelayprob);
        new.wdelayprob = change.wdelayprob.unwrap_or(new.wdelayprob);
        new.count_until_fail = change.count_until_fail.unwrap_or(new.count_until_fail);
        new.check_chances()?;
        *self = new;
        Ok(())
    }

    /// Checks that probabilities are at most 100 and the delay is at least 1 ms.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] in gnop's words.
    pub(crate) fn check_chances(&self) -> Result<()> {
        let chances = [
            ("rfailprob", self.rfailprob),
            ("wfailprob", self.wfailprob),
            ("rdelayprob", self.rdelayprob),
            ("wdelayprob", self.wdelayprob),
        ];
        let bad = chances.iter().find(|(_, percent)| *percent > 100);
        match bad {
            Some((name, _)) => Err(invalid_argument(name)),
            None if self.delaymsec < 1 => Err(invalid_argument("delaymsec")),
            None => Ok(()),
        }
    }

    /// Size, sector, physical sector and its offset of a nop on `below`.
    fn shape_on(&self, below: &dyn Provider) -> Result<Shape> {
        let parent = u64::from(below.sectorsize());
        let invalid =
            |what: &str| Error::invalid(format!("Invalid {what} for provider {}.", below.name()));
        if !self.offset.is_multiple_of(parent) || self.offset >= below.mediasize() {
            return Err(invalid("offset"));
        }
        let rest = below.mediasize() - self.offset;
        if !self.size.is_multiple_of(parent) || self.size > rest {
            return Err(invalid("size"));
        }
        let size = if self.size == 0 { rest } else { self.size };
        let secsize = if self.secsize == 0 {
            parent
        } else {
            self.secsize
        };
        // gnop accepts a sector that is not a power of two, but nothing above could use it.
        if !secsize.is_multiple_of(parent) || !secsize.is_power_of_two() {
            return Err(invalid("secsize"));
        }
        if secsize > SECTOR_BYTES_MAX {
            return Err(Error::invalid("secsize is too big."));
        }
        let stripesize = if self.stripesize == 0 {
            secsize
        } else {
            self.stripesize
        };
        if !self.stripesize.is_multiple_of(parent) || !stripesize.is_power_of_two() {
            return Err(invalid("stripesize"));
        }
        if !self.stripeoffset.is_multiple_of(parent) {
            return Err(invalid("stripeoffset"));
        }
        if self.stripesize != 0 && self.stripeoffset >= self.stripesize {
            return Err(Error::invalid("stripeoffset is too big."));
        }
        Ok(Shape {
            mediasize: size - size % secsize,
            sectorsize: u32::try_from(secsize).map_err(|_| invalid("secsize"))?,
            stripesize: u32::try_from(stripesize).map_err(|_| invalid("stripesize"))?,
            stripeoffset: u32::try_from(self.stripeoffset % stripesize)
                .map_err(|_| invalid("stripeoffset"))?,
            ..below.shape()
        })
    }
}

fn invalid_argument(name: &str) -> Error {
    Error::invalid(format!("Invalid '{name}' argument"))
}

/// What passed through a nop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NopCounters {
    /// Reads, the failed ones included.
    pub reads: u64,
    /// Writes, the failed ones included.
    pub writes: u64,
    /// Deletes.
    pub deletes: u64,
    /// Attribute queries (`BIO_GETATTR`); never sent here.
    pub getattrs: u64,
    /// Flushes.
    pub flushes: u64,
    /// Commands of the first driver-specific kind (`BIO_CMD0`); never sent here.
    pub cmd0s: u64,
    /// The second kind.
    pub cmd1s: u64,
    /// The third kind.
    pub cmd2s: u64,
    /// Bytes requested by reads.
    pub read_bytes: u64,
    /// Bytes carried by writes.
    pub wrote_bytes: u64,
}

/// A nop on a provider.
pub struct Nop {
    name: String,
    below: Arc<dyn Provider>,
    offset: u64,
    shape: Shape,
    state: Mutex<State>,
}

struct State {
    config: NopConfig,
    counters: NopCounters,
}

/// What happens to a command.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Pass,
    Delay { ns: u64 },
    Fail { errno: i32 },
}

impl Nop {
    /// A nop named `name` on `below`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] in gnop's words if the config does not fit the provider.
    pub fn new(
        below: Arc<dyn Provider>,
        name: impl Into<String>,
        config: NopConfig,
    ) -> Result<Arc<Nop>> {
        let shape = config.shape_on(&*below)?;
        config.check_chances()?;
        let name = name.into();
        if name.is_empty() {
            return Err(Error::invalid("Invalid provider name."));
        }
        Ok(Arc::new(Nop {
            name,
            below,
            offset: config.offset,
            shape,
            state: Mutex::new(State {
                config,
                counters: NopCounters::default(),
            }),
        }))
    }

    /// The current config: `count_until_fail` has counted down, and what it triggered is applied.
    #[must_use]
    pub fn config(&self) -> NopConfig {
        self.state.lock().config.clone()
    }

    /// Changes what can be changed while in use.
    ///
    /// # Errors
    /// As [`NopConfig::change`].
    pub fn configure(&self, change: &NopChange) -> Result<()> {
        self.state.lock().config.change(change)
    }

    /// What passed so far.
    #[must_use]
    pub fn counters(&self) -> NopCounters {
        self.state.lock().counters
    }

    /// Sets the counters; `gnop reset` sets them to zero.
    pub fn set_counters(&self, counters: NopCounters) {
        self.state.lock().counters = counters;
    }

    /// The provider below.
    #[must_use]
    pub fn below(&self) -> &Arc<dyn Provider> {
        &self.below
    }

    fn start(&self, cmd: BioCmd, len: u64) -> Fate {
        let mut state = self.state.lock();
        let State { config, counters } = &mut *state;
        if config.count_until_fail > 0 {
            config.count_until_fail -= 1;
            if config.count_until_fail == 0 {
                (config.rfailprob, config.wfailprob) = (100, 100);
            }
        }
        let (fail, delay) = match cmd {
            BioCmd::Read => {
                counters.reads += 1;
                counters.read_bytes += len;
                (config.rfailprob, config.rdelayprob)
            }
            BioCmd::Write => {
                counters.writes += 1;
                counters.wrote_bytes += len;
                (config.wfailprob, config.wdelayprob)
            }
            BioCmd::Delete => {
                counters.deletes += 1;
                (0, 0)
            }
            BioCmd::Flush => {
                counters.flushes += 1;
                (0, 0)
            }
        };
        if happens(fail) {
            return Fate::Fail {
                errno: config.error,
            };
        }
        if happens(delay) {
            return Fate::Delay {
                ns: u64::from(config.delaymsec) * 1_000_000,
            };
        }
        Fate::Pass
    }

    fn failure(&self, errno: i32) -> Error {
        let text = format!("{}: returning error={errno}", self.name);
        Error::new(kind_of(errno), text)
    }
}

fn happens(percent: u32) -> bool {
    percent > 0 && rt::random_below(100) < u64::from(percent)
}

/// Maps a FreeBSD errno to the error kind that callers act on.
fn kind_of(errno: i32) -> ErrorKind {
    match errno {
        1 | 13 => ErrorKind::Permission,
        2 | 6 => ErrorKind::NotFound,
        16 => ErrorKind::Busy,
        22 => ErrorKind::InvalidInput,
        28 => ErrorKind::NoSpace,
        30 => ErrorKind::ReadOnly,
        45 => ErrorKind::Unsupported,
        _ => ErrorKind::Io,
    }
}

/// The name of a nop: that of the provider below, or the one asked for by `-Z`, with the suffix.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] in gnop's words.
pub fn name_for(below: &str, gnopname: Option<&str>) -> Result<String> {
    if let Some(name) = gnopname
        && (name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric()))
    {
        return Err(Error::invalid(format!("Name {name} is invalid.")));
    }
    let name = format!("{}{SUFFIX}", gnopname.unwrap_or(below));
    // A path of the host is not a name of FreeBSD.
    if name.len() > NAME_LEN_MAX && !name.starts_with('/') {
        return Err(Error::invalid("Invalid provider name."));
    }
    Ok(name)
}

impl Provider for Nop {
    fn name(&self) -> &str {
        &self.name
    }
    fn shape(&self) -> Shape {
        self.shape
    }

    fn execute(&self, offset: u64, command: Command<'_>) -> Result<()> {
        let (cmd, len) = command.cmd();
        check_range(self, offset, len)?;
        match self.start(cmd, len) {
            Fate::Pass => {}
            Fate::Delay { ns } => rt::sleep_ns(ns),
            Fate::Fail { errno } => return Err(self.failure(errno)),
        }
        self.below.execute(self.offset + offset, command)
    }

    fn submit(&self, bio: Bio) {
        let (cmd, len) = bio.op.cmd();
        if let Err(error) = check_range(self, bio.offset, len) {
            return (bio.done)(Err(error));
        }
        let bio_below = |bio: Bio| Bio {
            offset: self.offset + bio.offset,
            ..bio
        };
        match self.start(cmd, len) {
            Fate::Fail { errno } => (bio.done)(Err(self.failure(errno))),
            Fate::Pass => self.below.submit(bio_below(bio)),
            Fate::Delay { ns } if self.shape.is_queued => {
                let (below, bio) = (Arc::clone(&self.below), bio_below(bio));
                rt::at_ns(rt::now_ns() + ns, move || below.submit(bio));
            }
            Fate::Delay { ns } => {
                rt::sleep_ns(ns);
                self.below.submit(bio_below(bio));
            }
        }
    }
}
