//! Where a sector is, and when it passes the head.
//!
//! # What it is
//! Tracks are numbered from the outermost, head by head within a cylinder. A zone is a run of tracks with
//! equally many sectors; the rate falls linearly from zone to zone. Angles are times: the nanoseconds of a
//! revolution before a sector begins to pass a head, counted from an index that all surfaces share. Track `t`
//! begins `t * skew` after the index, so that a head that has just read the last sector of a track finds the
//! first one of the next after the time of a head switch.
//!
//! # Invariants
//! 1. Everything is an integer, and the end of a sector is the beginning of the next one to the nanosecond: a
//!    read that continues without a pause never misses the next sector; one that pauses for a nanosecond does.
//! 2. A track is exactly one revolution.

use crate::profile::{DiskFigures, Profile};

/// Milliseconds in nanoseconds.
pub(crate) fn ns_of_ms(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

/// Microseconds in nanoseconds.
pub(crate) fn ns_of_us(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

/// A run of tracks with equally many sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Zone {
    first_sector: u64,
    first_track: u64,
    per_track: u64,
}

/// Where a physical sector is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SectorPosition {
    /// Its track.
    pub track: u64,
    /// Its index within the track.
    pub index: u64,
    /// Sectors of the track.
    pub per_track: u64,
    /// When in a revolution it begins to pass the head, in nanoseconds.
    pub angle: u64,
}

/// The layout of a disk, in integers.
#[derive(Debug, Clone)]
pub struct Geometry {
    turn_ns: u64,
    skew_ns: u64,
    surfaces: u64,
    sectors: u64,
    cylinders: u64,
    zones: Vec<Zone>,
    seek: SeekCurve,
}

impl Geometry {
    /// The layout of a profile's disk.
    ///
    /// # Panics
    /// If the profile does not pass [`Profile::check`].
    #[must_use]
    pub fn new(profile: &Profile, disk: &DiskFigures) -> Geometry {
        let sectors = profile
            .medium_sectors()
            .div_ceil(profile.sectors_per_physical());
        let turn_ns = (60e9 / disk.rpm).round() as u64;
        let bytes = f64::from(profile.medium.physical_sector_bytes);
        let count = f64::from(disk.zones);
        let per_track = |zone: u32| {
            let part = f64::from(zone) / (count - 1.0).max(1.0);
            let rate = disk.media_rate_outer_mb_s
                + part * (disk.media_rate_inner_mb_s - disk.media_rate_outer_mb_s);
            ((rate * 1e-3 * turn_ns as f64 / bytes) as u64).max(1)
        };
        let per_zone: u64 = (0..disk.zones).map(per_track).sum();
        let tracks = sectors.div_ceil(per_zone);
        let mut zones = Vec::new();
        let (mut first_sector, mut first_track) = (0, 0);
        for zone in 0..disk.zones {
            let per_track = per_track(zone);
            zones.push(Zone {
                first_sector,
                first_track,
                per_track,
            });
            first_sector += per_track * tracks;
            first_track += tracks;
        }
        assert!(first_sector >= sectors, "{first_sector} < {sectors}");
        let surfaces = u64::from(disk.surfaces);
        let cylinders = first_track.div_ceil(surfaces);
        Geometry {
            turn_ns,
            skew_ns: ns_of_ms(disk.track_skew_ms),
            surfaces,
            sectors,
            cylinders,
            zones,
            seek: SeekCurve::new(disk, cylinders),
        }
    }

    /// Duration of a revolution.
    #[must_use]
    pub fn turn_ns(&self) -> u64 {
        self.turn_ns
    }

    /// Physical sectors of the medium.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Tracks of the medium.
    #[must_use]
    pub fn tracks(&self) -> u64 {
        self.cylinders * self.surfaces
    }

    /// The cylinder of a track.
    #[must_use]
    pub fn cylinder(&self, track: u64) -> u64 {
        track / self.surfaces
    }

    /// Where a physical sector is.
    #[must_use]
    pub fn locate(&self, sector: u64) -> SectorPosition {
        let after = self.zones.partition_point(|z| z.first_sector <= sector);
        let zone = &self.zones[after - 1];
        let within = sector - zone.first_sector;
        let track = zone.first_track + within / zone.per_track;
        self.place(track, within % zone.per_track, zone.per_track)
    }

    /// The position of sector `index` of a track.
    fn place(&self, track: u64, index: u64, per_track: u64) -> SectorPosition {
        let angle = track * self.skew_ns + index * self.turn_ns / per_track;
        SectorPosition {
            track,
            index,
            per_track,
            angle: angle % self.turn_ns,
        }
    }

    /// How long `sectors` starting at `place` take to pass the head, from the beginning of the first one, over
    /// as many tracks as needed.
    #[must_use]
    pub fn pass_ns(&self, place: &SectorPosition, sectors: u64) -> u64 {
        let start = place.index * self.turn_ns / place.per_track;
        let last = place.index + sectors;
        if last <= place.per_track {
            return last * self.turn_ns / place.per_track - start;
        }
        let mut left = last - place.per_track;
        let mut ns = self.turn_ns - start;
        let mut track = place.track;
        loop {
            track += 1;
            ns += self.skew_ns;
            let per_track = self.per_track(track);
            if left <= per_track {
                return ns + left * self.turn_ns / per_track;
            }
            left -= per_track;
            ns += self.turn_ns;
        }
    }

    /// Time between the end of the previous sector and the beginning of this one: the skew, if it is the first
    /// of its track.
    #[must_use]
    pub fn gap_ns(&self, sector: u64) -> u64 {
        let first = sector > 0 && self.locate(sector.min(self.sectors - 1)).index == 0;
        if first { self.skew_ns } else { 0 }
    }

    /// Sectors of a track; tracks beyond the last are like the last.
    fn per_track(&self, track: u64) -> u64 {
        let after = self.zones.partition_point(|z| z.first_track <= track);
        self.zones[after - 1].per_track
    }

    /// How many sectors from `place` on have completely passed the head after `ns` of sequential reading; at
    /// most `most`.
    #[must_use]
    pub fn passed(&self, place: &SectorPosition, ns: u64, most: u64) -> u64 {
        let whole = |per_track: u64, ns: u64| {
            // The largest n with n * turn / per_track <= ns, division rounding down.
            (((ns + 1) * per_track - 1) / self.turn_ns).min(per_track)
        };
        let start = place.index * self.turn_ns / place.per_track;
        let end = start.saturating_add(ns);
        if end < self.turn_ns {
            return (whole(place.per_track, end) - place.index).min(most);
        }
        let mut passed = place.per_track - place.index;
        let mut left = end - self.turn_ns;
        let mut track = place.track;
        while passed < most && left >= self.skew_ns {
            track += 1;
            left -= self.skew_ns;
            let per_track = self.per_track(track);
            passed += whole(per_track, left.min(self.turn_ns));
            if left < self.turn_ns {
                break;
            }
            left -= self.turn_ns;
        }
        passed.min(most)
    }

    /// Seek time from one track to another, without the write settle time.
    #[must_use]
    pub fn seek_ns(&self, from: u64, to: u64) -> u64 {
        if from == to {
            return 0;
        }
        let distance = self.cylinder(from).abs_diff(self.cylinder(to));
        self.seek.ns(distance)
    }
}

/// Seek time over distance: `min + a sqrt(d - 1) + b (d - 1)`, with a and b such that the full stroke takes the
/// maximum, and the mean over random pairs is the average (Lee and Katz, 1993).
#[derive(Debug, Clone)]
struct SeekCurve {
    switch_ns: u64,
    min_ns: f64,
    root_ns: f64,
    linear_ns: f64,
}

impl SeekCurve {
    fn new(disk: &DiskFigures, cylinders: u64) -> SeekCurve {
        let (min, avg, max) = (disk.seek_min_ms, disk.seek_avg_ms, disk.seek_max_ms);
        let c = cylinders.max(2) as f64;
        SeekCurve {
            switch_ns: ns_of_ms(disk.head_switch_ms),
            min_ns: min * 1e6,
            root_ns: (-10.0 * min + 15.0 * avg - 5.0 * max) * 1e6 / (3.0 * c.sqrt()),
            linear_ns: (7.0 * min - 15.0 * avg + 8.0 * max) * 1e6 / (3.0 * c),
        }
    }

    /// Seek over `distance` cylinders; 0: to another head.
    fn ns(&self, distance: u64) -> u64 {
        if distance == 0 {
            return self.switch_ns;
        }
        let d = (distance - 1) as f64;
        let ns = self.min_ns + self.root_ns * d.sqrt() + self.linear_ns * d;
        ns.max(self.min_ns) as u64
    }
}
