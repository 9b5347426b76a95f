//! The published experiments, run on a profile without any bytes: how well it reproduces the measurements.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base::{Error, Result};

use super::{Command, CommandKind, Event, Timing};
use crate::profile::{Profile, Published};
use rt::splitmix64;

/// Size and offset, in bytes, of the passes that `phybs` makes by default.
pub const PHYBS_PASSES: [(u32, u32); 14] = [
    (1024, 0),
    (1024, 512),
    (2048, 0),
    (2048, 512),
    (2048, 1024),
    (4096, 0),
    (4096, 512),
    (4096, 1024),
    (4096, 2048),
    (8192, 0),
    (8192, 512),
    (8192, 1024),
    (8192, 2048),
    (8192, 4096),
];

/// Bytes that each pass of `phybs` writes by default.
const PHYBS_TOTAL: u64 = 128 << 20;
/// Bytes per command into which a raw device splits a long request.
const STREAM_BYTES: u32 = 128 << 10;
/// Bytes per measured stream.
const STREAM_TOTAL: u64 = 1000 << 20;
/// Random accesses per measurement.
const RANDOM_COUNT: u64 = 20_000;
/// The same on flash, whose cache is larger.
const RANDOM_COUNT_FLASH: u64 = 200_000;

/// Something that can be measured on a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Experiment {
    /// `phybs -w SIZE@OFFSET`: milliseconds for a pass of 128 MiB.
    Phybs {
        /// Bytes of each write.
        size: u32,
        /// Bytes from the beginning of the disk.
        offset: u32,
    },
    /// `sequential read|write outer|inner|whole [depth N] [+OFFSET]`: 10^6 bytes per second, one command of 128 KiB
    /// after the other.
    Sequential {
        /// Writes, or reads.
        write: bool,
        /// Where.
        region: Region,
        /// Commands in flight.
        depth: u32,
        /// Bytes by which it is shifted.
        offset: u32,
    },
    /// `random read|write SIZE depth N [sync] [+OFFSET]`: milliseconds from one command done to the next.
    Random {
        /// Writes, or reads.
        write: bool,
        /// Bytes of each command; its place, before the shift, is a multiple of this.
        size: u32,
        /// Commands in flight.
        depth: u32,
        /// Each write is done only when it is on the medium (FUA).
        sync: bool,
        /// Bytes by which it is shifted.
        offset: u32,
    },
}

/// Where on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Region {
    /// The first sectors.
    Outer,
    /// The last sectors.
    Inner,
    /// Samples everywhere.
    Whole,
}

impl FromStr for Experiment {
    type Err = Error;

    fn from_str(text: &str) -> Result<Experiment> {
        let words: Vec<&str> = text.split_whitespace().collect();
        parse(&words).ok_or_else(|| {
            Error::invalid(format!(
                "experiment '{text}': must be phybs -w SIZE@OFFSET, sequential read|write \
                 outer|inner|whole [depth N] [+OFFSET] or random read|write SIZE depth N [sync] [+OFFSET]"
            ))
        })
    }
}

fn parse(words: &[&str]) -> Option<Experiment> {
    let size = |text: &str| text.parse().ok().filter(|n: &u32| n.is_multiple_of(512));
    let depth = |text: &str| text.parse().ok().filter(|n: &u32| (1..=1024).contains(n));
    let (words, offset) = match words.split_last()? {
        (last, rest) if last.starts_with('+') => (rest, size(&last[1..])?),
        _ => (words, 0),
    };
    let write = |word: &str| match word {
        "read" => Some(false),
        "write" => Some(true),
        _ => None,
    };
    match *words {
        ["phybs", "-w", pass] if offset == 0 => {
            let (bytes, at) = pass.split_once('@')?;
            Some(Experiment::Phybs {
                size: size(bytes).filter(|n| *n > 0)?,
                offset: size(at)?,
            })
        }
        ["sequential", kind, region, ref rest @ ..] => Some(Experiment::Sequential {
            write: write(kind)?,
            region: match region {
                "outer" => Region::Outer,
                "inner" => Region::Inner,
                "whole" => Region::Whole,
                _ => return None,
            },
            depth: match rest {
                [] => 1,
                ["depth", text] => depth(text)?,
                _ => return None,
            },
            offset,
        }),
        ["random", kind, bytes, "depth", text, ref rest @ ..] => Some(Experiment::Random {
            write: write(kind)?,
            size: size(bytes).filter(|n| *n > 0)?,
            depth: depth(text)?,
            sync: match rest {
                [] => false,
                ["sync"] => true,
                _ => return None,
            },
            offset,
        }),
        _ => None,
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = |write: bool| if write { "write" } else { "read" };
        let shift = match *self {
            Experiment::Phybs { size, offset } => return write!(f, "phybs -w {size}@{offset}"),
            Experiment::Sequential {
                write,
                region,
                depth,
                offset,
            } => {
                let region = match region {
                    Region::Outer => "outer",
                    Region::Inner => "inner",
                    Region::Whole => "whole",
                };
                write!(f, "sequential {} {region}", kind(write))?;
                if depth > 1 {
                    write!(f, " depth {depth}")?;
                }
                offset
            }
            Experiment::Random {
                write,
                size,
                depth,
                sync,
                offset,
            } => {
                let sync = if sync { " sync" } else { "" };
                write!(f, "random {} {size} depth {depth}{sync}", kind(write))?;
                offset
            }
        };
        if shift > 0 {
            write!(f, " +{shift}")?;
        }
        Ok(())
    }
}

impl Experiment {
    /// The unit of its result.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        match self {
            Experiment::Sequential { .. } => "MB/s",
            _ => "ms",
        }
    }

    /// Runs it on a new drive.
    #[must_use]
    pub fn run(&self, profile: &Arc<Profile>, seed: u64) -> f64 {
        self.run_on(&mut Timing::new(profile.clone(), seed), seed)
    }

    /// Runs it on an idle drive.
    pub(super) fn run_on(&self, timing: &mut Timing, seed: u64) -> f64 {
        match *self {
            Experiment::Phybs { size, offset } => {
                let count = PHYBS_TOTAL / u64::from(size);
                let writes = (0..count).map(|n| Ask {
                    write: true,
                    at: u64::from(offset) + n * 4 * u64::from(size),
                    bytes: size,
                    fua: false,
                });
                elapsed(timing, 0, 1, writes) as f64 / 1e6
            }
            Experiment::Sequential {
                write,
                region,
                depth,
                offset,
            } => sequential(timing, write, region, depth, u64::from(offset)),
            Experiment::Random {
                write,
                size,
                depth,
                sync,
                offset,
            } => {
                let step = u64::from(size);
                let count = if timing.profile().flash.is_some() {
                    RANDOM_COUNT_FLASH
                } else {
                    RANDOM_COUNT
                };
                let places = bytes_of(timing) / step - 1;
                let mut random = seed ^ 0x5eed;
                let asks = (0..count).map(|_| Ask {
                    write,
                    at: splitmix64(&mut random) % places * step + u64::from(offset),
                    bytes: size,
                    fua: sync,
                });
                elapsed(timing, 0, depth, asks) as f64 / 1e6 / count as f64
            }
        }
    }
}

/// A request of the host, in bytes.
struct Ask {
    write: bool,
    at: u64,
    bytes: u32,
    fua: bool,
}

fn bytes_of(timing: &Timing) -> u64 {
    let profile = timing.profile();
    profile.host_sectors() * u64::from(profile.identify.logical_sector_bytes)
}

fn sequential(timing: &mut Timing, write: bool, region: Region, depth: u32, offset: u64) -> f64 {
    let bytes = bytes_of(timing);
    let (starts, total) = match region {
        Region::Outer => (vec![0], STREAM_TOTAL),
        Region::Inner => (
            vec![bytes.saturating_sub(STREAM_TOTAL + (1 << 20))],
            STREAM_TOTAL,
        ),
        Region::Whole => (
            (0..16).map(|n| bytes / 16 * n + bytes / 32).collect(),
            256 << 20,
        ),
    };
    let (mut now, mut moved) = (0, 0);
    for start in &starts {
        let start = start >> 20 << 20;
        let count = total.min(bytes - start - offset) / u64::from(STREAM_BYTES);
        let asks = (0..count).map(|n| Ask {
            write,
            at: start + offset + n * u64::from(STREAM_BYTES),
            bytes: STREAM_BYTES,
            fua: false,
        });
        now = elapsed(timing, now, depth, asks);
        moved += count * u64::from(STREAM_BYTES);
    }
    moved as f64 * 1e3 / now as f64
}

/// Runs requests with `depth` in flight, each next one as soon as one is done; returns when the last one is done.
fn elapsed(timing: &mut Timing, mut now: u64, depth: u32, asks: impl Iterator<Item = Ask>) -> u64 {
    let sector = u64::from(timing.profile().identify.logical_sector_bytes);
    let mut events = Vec::new();
    let mut waiting = 0;
    let mut asks = asks.enumerate().peekable();
    while waiting > 0 || asks.peek().is_some() {
        while waiting < depth
            && let Some((tag, ask)) = asks.next()
        {
            let kind = if ask.write {
                CommandKind::Write
            } else {
                CommandKind::Read
            };
            let command = Command {
                tag: tag as u64,
                kind,
                lba: ask.at / sector,
                sectors: u32::try_from(u64::from(ask.bytes) / sector).unwrap_or(u32::MAX),
                fua: ask.fua,
            };
            timing.submit(now, command);
            waiting += 1;
        }
        now = timing.next_done_at().expect("a command waits");
        events.clear();
        timing.advance(now, &mut events);
        let done = events.iter().filter(|e| matches!(e, Event::Done { .. }));
        waiting -= done.count() as u32;
    }
    now
}

/// A published measurement and the profile's result.
#[derive(Debug, Clone, PartialEq)]
pub struct Reproduced {
    /// What was published.
    pub published: Published,
    /// What the model gives, in the same unit.
    pub value: f64,
}

impl Reproduced {
    /// How far the model is off, in percent of what was published.
    #[must_use]
    pub fn error_percent(&self) -> f64 {
        (self.value / self.published.value - 1.0) * 100.0
    }
}

/// Runs each published measurement of a profile. A whole `phybs` table takes about a second.
#[must_use]
pub fn reproduce(profile: &Arc<Profile>) -> Vec<Reproduced> {
    let run = |published: &Published| {
        let experiment: Experiment = published.experiment.parse().ok()?;
        Some(Reproduced {
            published: published.clone(),
            value: experiment.run(profile, 1),
        })
    };
    profile.published.iter().filter_map(run).collect()
}
