//! The limits that a profile must respect.

use base::{Error, Result};

use super::{CacheFigures, DiskFigures, FlashFigures, Profile};

/// Limit of tracks: a thousand times what drives have; times a revolution of the slowest disk (in ns) still 63 bits.
const TRACKS_MAX: f64 = 4_294_967_296.0;

/// The error for a key whose value is not possible.
fn refuse<T: std::fmt::Display>(key: &str, value: T, must: &str) -> Error {
    Error::invalid(format!("{key} = {value}: must be {must}"))
}

/// Checks that a float is within bounds; NaN never is.
fn within(key: &str, value: f64, least: f64, most: f64) -> Result<()> {
    if value >= least && value <= most {
        Ok(())
    } else {
        let short = |n: f64| (n * 1e6).round() / 1e6;
        let must = format!("from {} to {}", short(least), short(most));
        Err(refuse(key, value, &must))
    }
}

/// Checks that an integer is within bounds.
fn count(key: &str, value: u64, least: u64, most: u64) -> Result<()> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(refuse(key, value, &format!("from {least} to {most}")))
    }
}

/// Checks a sector size: a power of two from 512 to 65,536.
fn sector(key: &str, bytes: u32) -> Result<()> {
    if bytes.is_power_of_two() && (512..=65536).contains(&bytes) {
        Ok(())
    } else {
        Err(refuse(key, bytes, "a power of two from 512 to 65536"))
    }
}

impl Profile {
    /// Checks that such a drive is possible.
    ///
    /// # Errors
    /// `InvalidInput` with the key, its value and what it must be.
    pub fn check(&self) -> Result<()> {
        self.check_identify()?;
        within(
            "interface.command_overhead_us",
            self.interface.command_overhead_us,
            0.0,
            1e6,
        )?;
        within("interface.rate_mb_s", self.interface.rate_mb_s, 1.0, 1e6)?;
        self.cache.check()?;
        match (&self.disk, &self.flash) {
            (Some(disk), None) => {
                disk.check(self.medium.physical_sector_bytes)?;
                self.check_tracks(disk)
            }
            (None, Some(flash)) => flash.check(),
            _ => Err(Error::invalid(
                "a drive has either a table [disk] or a table [flash]",
            )),
        }
    }

    /// Checks that there are few enough tracks for their angles to fit an integer.
    fn check_tracks(&self, disk: &DiskFigures) -> Result<()> {
        let id = &self.identify;
        let bytes = id.sectors as f64 * f64::from(id.logical_sector_bytes);
        let tracks = bytes / (disk.media_rate_inner_mb_s * 1e6 * 60.0 / disk.rpm) * 2.0;
        if tracks < TRACKS_MAX {
            Ok(())
        } else {
            let must = "as many as 2^32 tracks can hold";
            Err(refuse("identify.sectors", id.sectors, must))
        }
    }

    fn check_identify(&self) -> Result<()> {
        let id = &self.identify;
        let text = |key: &str, text: &str, most: usize| {
            let fits = text.len() <= most && text.bytes().all(|b| (0x20..0x7f).contains(&b));
            if fits {
                Ok(())
            } else {
                let must = format!("at most {most} printable ASCII characters");
                Err(refuse(key, text, &must))
            }
        };
        text("identify.model", &id.model, 40)?;
        text("identify.firmware", &id.firmware, 8)?;
        text("identify.serial_prefix", &id.serial_prefix, 12)?;
        sector("identify.logical_sector_bytes", id.logical_sector_bytes)?;
        sector("identify.physical_sector_bytes", id.physical_sector_bytes)?;
        sector(
            "medium.physical_sector_bytes",
            self.medium.physical_sector_bytes,
        )?;
        if id.physical_sector_bytes < id.logical_sector_bytes {
            let must = "at least identify.logical_sector_bytes";
            return Err(refuse(
                "identify.physical_sector_bytes",
                id.physical_sector_bytes,
                must,
            ));
        }
        if self.medium.physical_sector_bytes < id.logical_sector_bytes {
            let must = "at least identify.logical_sector_bytes";
            return Err(refuse(
                "medium.physical_sector_bytes",
                self.medium.physical_sector_bytes,
                must,
            ));
        }
        let offset = id.alignment_offset_bytes;
        if offset >= id.physical_sector_bytes || !offset.is_multiple_of(id.logical_sector_bytes) {
            let must = "whole logical sectors, less than the physical one";
            return Err(refuse("identify.alignment_offset_bytes", offset, must));
        }
        count("medium.lba_shift", self.medium.lba_shift, 0, 127)?;
        count("identify.queue_depth", u64::from(id.queue_depth), 1, 65536)?;
        if let Some(bridge) = &self.bridge {
            count(
                "bridge.queue_depth",
                u64::from(bridge.queue_depth),
                1,
                65536,
            )?;
            if let Some(bytes) = bridge.sector_bytes {
                sector("bridge.sector_bytes", bytes)?;
                if bytes < id.logical_sector_bytes {
                    let must = "at least identify.logical_sector_bytes";
                    return Err(refuse("bridge.sector_bytes", bytes, must));
                }
            }
        }
        let hidden = self.bridge.as_ref().map_or(0, |b| b.hidden_sectors);
        let most = (1 << 60) / u64::from(id.logical_sector_bytes);
        let least = hidden.saturating_add(2048);
        count("identify.sectors", id.sectors, least, most)
    }
}

impl CacheFigures {
    fn check(&self) -> Result<()> {
        let n = |key: &str, value: u32, least: u64, most: u64| {
            count(&format!("cache.{key}"), u64::from(value), least, most)
        };
        n("read_segments", self.read_segments, 0, 4096)?;
        n("read_segment_kib", self.read_segment_kib, 0, 1 << 20)?;
        n("write_cache_kib", self.write_cache_kib, 0, 1 << 24)?;
        n("write_segments", self.write_segments, 1, 65536)?;
        n("write_segment_kib", self.write_segment_kib, 1, 1 << 20)?;
        n("destage_batch", self.destage_batch, 1, 65536)?;
        n("elevator_window", self.elevator_window, 1, 65536)?;
        let ms = |key: &str, value: f64| within(&format!("cache.{key}"), value, 0.0, 1e5);
        ms("destage_turnaround_ms", self.destage_turnaround_ms)?;
        ms("rewrite_latency_max_ms", self.rewrite_latency_max_ms)?;
        ms("destage_idle_ms", self.destage_idle_ms)?;
        ms("destage_age_ms", self.destage_age_ms)
    }
}

impl DiskFigures {
    fn check(&self, physical_sector_bytes: u32) -> Result<()> {
        within("disk.rpm", self.rpm, 100.0, 100_000.0)?;
        count("disk.surfaces", u64::from(self.surfaces), 1, 64)?;
        count("disk.zones", u64::from(self.zones), 1, 1024)?;
        let outer = self.media_rate_outer_mb_s;
        within("disk.media_rate_outer_mb_s", outer, 1.0, 1e5)?;
        within(
            "disk.media_rate_inner_mb_s",
            self.media_rate_inner_mb_s,
            1.0,
            outer,
        )?;
        let track = self.media_rate_inner_mb_s * 1e6 * 60.0 / self.rpm;
        if track < f64::from(physical_sector_bytes) {
            let must = "enough for a physical sector per track";
            return Err(refuse(
                "disk.media_rate_inner_mb_s",
                self.media_rate_inner_mb_s,
                must,
            ));
        }
        let turn = 60_000.0 / self.rpm;
        within("disk.seek_min_ms", self.seek_min_ms, 0.0, 1e4)?;
        within("disk.seek_avg_ms", self.seek_avg_ms, self.seek_min_ms, 1e4)?;
        within("disk.seek_max_ms", self.seek_max_ms, self.seek_avg_ms, 1e4)?;
        within("disk.head_switch_ms", self.head_switch_ms, 0.0, turn)?;
        within("disk.write_settle_ms", self.write_settle_ms, 0.0, turn)?;
        let switch = self.head_switch_ms.max(self.seek_min_ms) + self.write_settle_ms;
        within("disk.track_skew_ms", self.track_skew_ms, switch, turn)?;
        within("disk.age_limit_ms", self.age_limit_ms, 0.0, 1e6)
    }
}

impl FlashFigures {
    fn check(&self) -> Result<()> {
        count("flash.channels", u64::from(self.channels), 1, 1024)?;
        let dies = u64::from(self.dies_per_channel);
        count("flash.dies_per_channel", dies, 1, 1024)?;
        count("flash.page_kib", u64::from(self.page_kib), 1, 1024)?;
        let pages = u64::from(self.pages_per_block);
        count("flash.pages_per_block", pages, 1, 1 << 20)?;
        within("flash.read_us", self.read_us, 0.0, 1e6)?;
        within("flash.program_us", self.program_us, 0.0, 1e6)?;
        within("flash.erase_us", self.erase_us, 0.0, 1e6)?;
        within("flash.channel_mb_s", self.channel_mb_s, 1.0, 1e6)?;
        within(
            "flash.write_amplification",
            self.write_amplification,
            1.0,
            100.0,
        )
    }
}
