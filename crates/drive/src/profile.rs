//! Profiles: what a drive reports about itself, and what it really is.
//!
//! # What it is
//! A TOML file with the unit in each key. `[identify]` is what the drive reports to a host, lies included;
//! `[medium]` is the truth about its sectors; `[disk]` or `[flash]` is the mechanism; `[cache]` is what hides
//! the mechanism; `[bridge]` is a USB enclosure around it. Each `[[source]]` says where a figure comes from,
//! each `[[published]]` is a measurement from a publication that the profile should reproduce.
//!
//! # Invariants
//! 1. A parsed profile is consistent: nothing divides by zero, a track holds at least one physical sector, the skew
//!    covers the head switch.
//! 2. The host's sectors are `identify.sectors - bridge.hidden_sectors`; the medium's are
//!    `identify.sectors + medium.lba_shift`.

mod bridge;
mod builtin;
mod check;

use std::sync::Arc;

use base::{Error, Result};
use serde::{Deserialize, Serialize};

pub use bridge::{Bridge, Bus, UsbBridge, bridges};
pub use builtin::profiles;

/// A drive as its profile describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name that selects it: `wd20ears`.
    pub name: String,
    /// What it is, in one line.
    pub title: String,
    /// What the drive says about itself.
    pub identify: Identify,
    /// A USB enclosure around it.
    pub bridge: Option<Bridge>,
    /// The true properties of its sectors.
    pub medium: Medium,
    /// How commands reach it.
    pub interface: Interface,
    /// Rotating platters; exactly one of this and `flash` is there.
    pub disk: Option<DiskFigures>,
    /// Flash memory.
    pub flash: Option<FlashFigures>,
    /// Caches and cache policy.
    pub cache: CacheFigures,
    /// Where the figures come from.
    #[serde(default)]
    pub source: Vec<Source>,
    /// Published measurements of such a drive.
    #[serde(default)]
    pub published: Vec<Published>,
}

/// What the drive reports about itself in IDENTIFY DEVICE (or Identify Namespace).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identify {
    /// Model, up to 40 characters.
    pub model: String,
    /// Firmware revision, up to 8 characters.
    pub firmware: String,
    /// The prefix of serial numbers of such a drive.
    pub serial_prefix: String,
    /// The wire: SATA, or NVMe.
    pub transport: Transport,
    /// Logical sectors, before any bridge takes some away.
    pub sectors: u64,
    /// The unit of an LBA (words 117-118).
    pub logical_sector_bytes: u32,
    /// The physical sector that the drive reports (word 106).
    pub physical_sector_bytes: u32,
    /// Reported offset of logical sector 0 within its physical sector (word 209).
    pub alignment_offset_bytes: u32,
    /// Nominal rotation rate (word 217): 0 if not reported, 1 for flash.
    pub rotation_rpm: u16,
    /// Commands that the drive queues (word 75).
    pub queue_depth: u32,
}

/// The wire between a host and a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Serial ATA.
    Sata,
    /// NVM Express.
    Nvme,
}

/// The true properties of the sectors, whatever the drive reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Medium {
    /// The sector that the head really writes.
    pub physical_sector_bytes: u32,
    /// Added to each LBA inside the drive: 1 with the alignment jumper set.
    pub lba_shift: u64,
}

/// How commands reach the drive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// The controller's serial work per command.
    pub command_overhead_us: f64,
    /// Rate of the wire, in 10^6 bytes per second.
    pub rate_mb_s: f64,
}

/// Rotating platters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskFigures {
    /// Revolutions per minute.
    pub rpm: f64,
    /// Surfaces with a head each.
    pub surfaces: u32,
    /// Number of zones; each has the same number of tracks, and within a zone all tracks have equally many sectors.
    pub zones: u32,
    /// Bytes under the head on the outermost tracks, 10^6 per second: a whole track per revolution, before the loss
    /// by skew.
    pub media_rate_outer_mb_s: f64,
    /// The same on the innermost tracks; in between, linear in the track number.
    pub media_rate_inner_mb_s: f64,
    /// To the next cylinder, with settling.
    pub seek_min_ms: f64,
    /// Mean over random pairs of cylinders.
    pub seek_avg_ms: f64,
    /// From the first cylinder to the last.
    pub seek_max_ms: f64,
    /// To another head in the same cylinder.
    pub head_switch_ms: f64,
    /// Added to a seek or a switch before a write.
    pub write_settle_ms: f64,
    /// Skew: how far the first sector of a track is behind the last one of the previous track.
    pub track_skew_ms: f64,
    /// A waiting command older than this is served first.
    pub age_limit_ms: f64,
}

/// What the drive does with a write that covers only part of a physical sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RmwPolicy {
    /// A batch of the write cache is read in one pass and written in another.
    Batched,
    /// Each command is read and written separately: one revolution for each.
    Sync,
    /// Each physical sector is read and written separately.
    Unbatched,
    /// The read-modify-write costs no visible time.
    Hidden,
}

impl RmwPolicy {
    /// All of them, by name.
    const NAMES: [(&str, RmwPolicy); 4] = [
        ("batched", RmwPolicy::Batched),
        ("sync", RmwPolicy::Sync),
        ("unbatched", RmwPolicy::Unbatched),
        ("hidden", RmwPolicy::Hidden),
    ];

    /// Its name, as in profiles.
    #[must_use]
    pub fn name(self) -> &'static str {
        let own = Self::NAMES.iter().find(|(_, policy)| *policy == self);
        own.map_or("", |(name, _)| name)
    }

    /// The policy of that name.
    ///
    /// # Errors
    /// `InvalidInput`.
    pub fn parse(name: &str) -> Result<RmwPolicy> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, policy)| *policy).ok_or_else(|| {
            let names = Self::NAMES.map(|(name, _)| name).join(", ");
            Error::invalid(format!("rmw '{name}': there is {names}"))
        })
    }
}

/// Caches and cache policy. For flash, only `rmw_policy` and `write_cache_kib` matter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheFigures {
    /// How partial physical sectors are written.
    pub rmw_policy: RmwPolicy,
    /// Segments of the read cache; a range that it keeps takes as many as it is long.
    #[serde(default)]
    pub read_segments: u32,
    /// The length of a segment of the read cache, which read-ahead fills.
    #[serde(default)]
    pub read_segment_kib: u32,
    /// Write cache: at most this much waits for the medium; 0: a write is done only when it is on the medium.
    pub write_cache_kib: u32,
    /// At most this many separate ranges of writes wait.
    #[serde(default = "one")]
    pub write_segments: u32,
    /// Adjacent writes are merged into one range up to this length; a stream has room for two of them.
    #[serde(default = "one")]
    pub write_segment_kib: u32,
    /// At most this many ranges are written per pass over the medium; physical sectors, if one of them is partial.
    #[serde(default = "one")]
    pub destage_batch: u32,
    /// Lost between two passes that are not contiguous on the medium.
    #[serde(default)]
    pub destage_turnaround_ms: f64,
    /// Lost after each rewrite of partial sectors: uniform from 0 to this, drawn from the seed.
    #[serde(default)]
    pub rewrite_latency_max_ms: f64,
    /// How many waiting ranges, oldest first, are candidates for the next pass.
    #[serde(default = "one")]
    pub elevator_window: u32,
    /// How long the medium must have been idle before waiting writes are destaged, unless they are pressing.
    #[serde(default)]
    pub destage_idle_ms: f64,
    /// A waiting write older than this is pressing.
    #[serde(default)]
    pub destage_age_ms: f64,
}

fn one() -> u32 {
    1
}

/// Flash memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashFigures {
    /// Channels to the dies.
    pub channels: u32,
    /// Dies per channel, which work in parallel.
    pub dies_per_channel: u32,
    /// The unit of reads and programs.
    pub page_kib: u32,
    /// Pages per erase block.
    pub pages_per_block: u32,
    /// Reading a page from the die.
    pub read_us: f64,
    /// Programming a page.
    pub program_us: f64,
    /// Erasing a block.
    pub erase_us: f64,
    /// Rate of one channel, in 10^6 bytes per second.
    pub channel_mb_s: f64,
    /// Pages programmed per page of non-sequential writes, in the steady state.
    pub write_amplification: f64,
    /// Whether capacitors save the write cache when the power fails.
    pub power_loss_protected: bool,
}

/// Where a figure comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The key, such as `disk.rpm`, or a table, such as `disk`.
    pub of: String,
    /// How certain it is.
    pub kind: SourceKind,
    /// Where from, or why.
    pub note: String,
}

/// How certain a figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// Stated by the manufacturer or measured.
    Published,
    /// Computed from published figures.
    Derived,
    /// Chosen so that the published measurements are reproduced.
    Fitted,
    /// Typical of drives of its kind.
    Assumed,
}

/// A published measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// What was run: `phybs -w SIZE@OFFSET`, `sequential-read outer`, …
    pub experiment: String,
    /// The result.
    pub value: f64,
    /// Its unit: `ms` or `MB/s`, 10^6 bytes.
    pub unit: String,
    /// The tolerance of the profile.
    pub within_percent: f64,
    /// Author and place of publication.
    pub by: String,
}

impl Profile {
    /// Parses a profile from TOML; `origin` (a file name) prefixes the error message.
    ///
    /// # Errors
    /// `InvalidInput`: with line and column for text that is not TOML, has an unknown key or a wrong type; with
    /// key and value for what is not possible.
    pub fn parse(origin: &str, text: &str) -> Result<Profile> {
        let profile: Profile = toml::from_str(text).map_err(|e| {
            let (line, column) = place(text, e.span().map_or(0, |s| s.start));
            let message = e.message().replace('\n', " ");
            Error::invalid(format!("{origin}: line {line}, column {column}: {message}"))
        })?;
        profile.check().map_err(|e| e.within(origin))?;
        Ok(profile)
    }

    /// The built-in profile of that name, or of a drive of that model; case-insensitive. Of several
    /// profiles of one model it returns the first: the drive as sold.
    ///
    /// # Errors
    /// `NotFound`, listing the available names.
    pub fn find(name: &str) -> Result<Arc<Profile>> {
        let all = profiles();
        let by_name = all.iter().find(|p| p.name.eq_ignore_ascii_case(name));
        if let Some(profile) = by_name.or_else(|| all.iter().find(|p| p.is_model(name))) {
            return Ok(profile.clone());
        }
        let names: Vec<&str> = all.iter().map(|p| p.name.as_str()).collect();
        Err(Error::not_found(format!(
            "no drive profile '{name}'; there are {}",
            names.join(", ")
        )))
    }

    /// The same drive on another bus. A bridge of its own is kept unless another one is named; what a bridged drive
    /// does by itself is taken from an unbridged profile of the same model.
    ///
    /// # Errors
    /// `InvalidInput` if the drive is not SATA, if no profile of the model without a bridge exists, or if the bridge
    /// leaves nothing of it.
    pub fn on_bus(&self, bus: Bus) -> Result<Profile> {
        if self.identify.transport != Transport::Sata {
            let text = format!("profile {}: only SATA drives change the bus", self.name);
            return Err(Error::invalid(text));
        }
        let mut other = match &self.bridge {
            None => self.clone(),
            Some(_) if bus.is_default() => return Ok(self.clone()),
            Some(_) => self.freed()?,
        };
        if let Bus::Usb(usb) = bus {
            let (own, theirs) = (&other.interface, &usb.interface);
            other.interface = Interface {
                command_overhead_us: own.command_overhead_us.max(theirs.command_overhead_us),
                rate_mb_s: own.rate_mb_s.min(theirs.rate_mb_s),
            };
            other.bridge = Some(usb.bridge.clone());
        }
        other.check().map_err(|e| e.within(&self.name))?;
        Ok(other)
    }

    /// The same drive with another firmware, as far as writes to part of a physical sector go. What was published of
    /// the drive is not of that one.
    #[must_use]
    pub fn with_rmw_policy(&self, policy: RmwPolicy) -> Profile {
        const KEY: &str = "cache.rmw_policy";
        let mut other = self.clone();
        other.cache.rmw_policy = policy;
        other.published.clear();
        other.source.retain(|source| source.of != KEY);
        other.source.push(Source {
            of: KEY.to_owned(),
            kind: SourceKind::Assumed,
            note: format!("'{}' is given to this drive (rmw=…)", policy.name()),
        });
        other
    }

    /// The drive without its bridge.
    fn freed(&self) -> Result<Profile> {
        let model = &self.identify.model;
        let is_bare = |p: &&Arc<Profile>| p.bridge.is_none() && p.identify.model == *model;
        let bare = profiles().iter().find(is_bare).ok_or_else(|| {
            Error::invalid(format!(
                "no profile says how a {model} does without its bridge"
            ))
        })?;
        Ok(Profile {
            bridge: None,
            interface: bare.interface.clone(),
            ..self.clone()
        })
    }

    /// Whether a drive of this profile is sold by that name: with or without the manufacturer before it and the
    /// variant after it.
    fn is_model(&self, name: &str) -> bool {
        let model = self.identify.model.as_str();
        let number = model.rsplit(' ').next().unwrap_or(model);
        let family = number.split('-').next().unwrap_or(number);
        let with_maker = &model[..model.len() - (number.len() - family.len())];
        [model, with_maker, number, family]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(name.trim()))
    }

    /// The same drive with another capacity, in sectors as `identify.sectors` counts them: rates and seek times keep
    /// their range, over fewer or more tracks.
    ///
    /// # Errors
    /// `InvalidInput` if the result is not possible.
    pub fn with_sectors(&self, sectors: u64) -> Result<Profile> {
        let mut other = self.clone();
        other.identify.sectors = sectors;
        other.check().map_err(|e| e.within(&self.name))?;
        Ok(other)
    }

    /// Logical sectors of the drive that the host can reach.
    #[must_use]
    pub fn host_sectors(&self) -> u64 {
        let hidden = self.bridge.as_ref().map_or(0, |b| b.hidden_sectors);
        self.identify.sectors - hidden
    }

    /// The sector that the host sees: the drive's, or that of the bridge.
    #[must_use]
    pub fn host_sector_bytes(&self) -> u32 {
        let bridge = self.bridge.as_ref().and_then(|b| b.sector_bytes);
        bridge.unwrap_or(self.identify.logical_sector_bytes)
    }

    /// Bytes that the host sees: whole sectors of its own.
    #[must_use]
    pub fn host_bytes(&self) -> u64 {
        let bytes = self.host_sectors() * u64::from(self.identify.logical_sector_bytes);
        bytes - bytes % u64::from(self.host_sector_bytes())
    }

    /// Logical sectors as the medium numbers them: the host's, shifted by the jumper.
    #[must_use]
    pub fn medium_sectors(&self) -> u64 {
        self.identify.sectors + self.medium.lba_shift
    }

    /// The medium's number of the host's `lba`.
    #[must_use]
    pub fn medium_lba(&self, lba: u64) -> u64 {
        lba + self.medium.lba_shift
    }

    /// Logical sectors per true physical sector.
    #[must_use]
    pub fn sectors_per_physical(&self) -> u64 {
        u64::from(self.medium.physical_sector_bytes / self.identify.logical_sector_bytes)
    }

    /// Commands that reach the drive at the same time.
    #[must_use]
    pub fn queue_depth(&self) -> u32 {
        let bridge = self.bridge.as_ref().map_or(u32::MAX, |b| b.queue_depth);
        self.identify.queue_depth.min(bridge)
    }

    /// The profile as TOML, in the form that [`Profile::parse`] reads.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a profile is tables of plain values")
    }
}

/// Line and column, from 1, of a byte of `text`.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line = before.iter().filter(|b| **b == b'\n').count() + 1;
    let start = before
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |n| n + 1);
    let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
    (line, column)
}

#[cfg(test)]
mod tests;
