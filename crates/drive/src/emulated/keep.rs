//! What is kept of a drive between two runs: its clock, its cache, its statistics.
//!
//! # On disk
//! Beside the media file `ada0.img`: `ada0.state`, JSON, the lifetime statistics so far, and `ada0.cache`: a
//! line of JSON with the state of the mechanics and the list of cached writes, followed by their
//! bytes. Both are replaced by renaming.
//!
//! # Crash argument
//! The cache file is removed before the first command that makes it outdated. A program that dies
//! later leaves the media file as the flushes made it, and no cache: for the drive that is a loss of
//! power.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use base::{BlockBuf, Error, Result};
use serde::{Deserialize, Serialize};

use super::volatile::{CachedWrite, Volatile};
use crate::fault::Fate;
use crate::media::Extents;
use crate::timing::{Statistics, TimingState};

/// Limit of the first line of a cache file, in bytes.
const HEADER_BYTES_MAX: usize = 256 << 20;

/// Limit of a drive's clock: 146 years, with room above for sums.
const CLOCK_MAX_NS: u64 = 1 << 62;
/// Limit of a drive's tags; no drive takes as many commands.
const TAG_MAX: u64 = 1 << 62;

/// The files of a drive.
#[derive(Debug, Clone)]
pub(super) struct Files {
    dir: PathBuf,
    name: String,
}

/// `ada0.state`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeptState {
    /// The drive's clock when it was written.
    pub(super) now_ns: u64,
    /// Times that it was switched on.
    pub(super) power_cycles: u64,
    /// The drive's clock when it was switched on.
    #[serde(default)]
    pub(super) on_at_ns: u64,
    /// Statistics up to where the mechanics in the cache file, if there is one, started counting.
    pub(super) before: Statistics,
    /// What those mechanics have counted since, in case the cache file is gone.
    pub(super) since: Statistics,
}

/// `ada0.cache`, without the bytes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeptCache {
    pub(super) now_ns: u64,
    pub(super) next_tag: u64,
    pub(super) timing: TimingState,
    writes: Vec<KeptWrite>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptWrite {
    tag: u64,
    offset: u64,
    len: u64,
    is_zero: bool,
    cuts: Vec<(u64, u64)>,
    fate: Fate,
    is_stuck: bool,
}

impl Files {
    pub(super) fn new(dir: &Path, name: &str) -> Files {
        Files {
            dir: dir.to_owned(),
            name: name.to_owned(),
        }
    }

    pub(super) fn path(&self, what: &str) -> PathBuf {
        self.dir.join(format!("{}.{what}", self.name))
    }

    pub(super) fn read_state(&self) -> Result<KeptState> {
        let path = self.path("state");
        match read_if_there(&path)? {
            None => Ok(KeptState::default()),
            Some(bytes) => serde_json::from_slice(&bytes)
                .map_err(|e| Error::corrupt(e.to_string()))
                .and_then(|state: KeptState| check_clock(state.now_ns).map(|()| state))
                .map_err(|e| e.within(path.display())),
        }
    }

    pub(super) fn write_state(&self, state: &KeptState) -> Result<()> {
        let text = serde_json::to_string_pretty(state).expect("statistics are plain numbers");
        replace_file(&self.path("state"), text.as_bytes())
    }

    pub(super) fn read_cache(&self) -> Result<Option<(KeptCache, Volatile)>> {
        let path = self.path("cache");
        let Some(bytes) = read_if_there(&path)? else {
            return Ok(None);
        };
        parse_cache(&bytes)
            .map(Some)
            .map_err(|e| e.within(path.display()))
    }

    pub(super) fn write_cache(
        &self,
        now_ns: u64,
        next_tag: u64,
        timing: TimingState,
        volatile: &Volatile,
    ) -> Result<()> {
        let kept = |(tag, write): (u64, &CachedWrite)| KeptWrite {
            tag,
            offset: write.offset,
            len: write.len,
            is_zero: write.data.is_none(),
            cuts: write.cuts.iter().map(|cut| (cut.start, cut.end)).collect(),
            fate: write.fate,
            is_stuck: write.is_stuck,
        };
        let header = KeptCache {
            now_ns,
            next_tag,
            timing,
            writes: volatile.iter().map(kept).collect(),
        };
        let mut bytes = serde_json::to_vec(&header).expect("a cache's state is plain values");
        bytes.push(b'\n');
        for data in volatile.iter().filter_map(|(_, write)| write.data.as_ref()) {
            bytes.extend_from_slice(data);
        }
        replace_file(&self.path("cache"), &bytes)
    }

    /// Removes the cache file, which is about to become outdated.
    pub(super) fn remove_cache(&self) -> Result<()> {
        let path = self.path("cache");
        match fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::from(e).within(path.display()))
            }
            _ => Ok(()),
        }
    }
}

/// Checks a clock against [`CLOCK_MAX_NS`].
fn check_clock(now_ns: u64) -> Result<()> {
    match now_ns {
        0..CLOCK_MAX_NS => Ok(()),
        _ => Err(Error::corrupt(format!("now_ns is {now_ns}"))),
    }
}

fn parse_cache(bytes: &[u8]) -> Result<(KeptCache, Volatile)> {
    let end = bytes
        .iter()
        .take(HEADER_BYTES_MAX)
        .position(|byte| *byte == b'\n')
        .ok_or_else(|| Error::corrupt("no first line"))?;
    let (header, rest) = bytes.split_at(end);
    let mut rest = &rest[1..];
    let mut kept: KeptCache =
        serde_json::from_slice(header).map_err(|e| Error::corrupt(e.to_string()))?;
    check_clock(kept.now_ns)?;
    if kept.next_tag > TAG_MAX {
        return Err(Error::corrupt(format!("next_tag is {}", kept.next_tag)));
    }
    let mut volatile = Volatile::default();
    for write in std::mem::take(&mut kept.writes) {
        let wrong = |what: &str| Error::corrupt(format!("write {}: {what}", write.tag));
        let mut cuts = Extents::default();
        for (start, end) in &write.cuts {
            cuts.insert(*start..(*end).max(*start));
        }
        let data = if write.is_zero {
            None
        } else {
            let len = usize::try_from(write.len).map_err(|_| wrong("length"))?;
            let (data, after) = rest
                .split_at_checked(len)
                .ok_or_else(|| wrong("its bytes are missing"))?;
            rest = after;
            Some(BlockBuf::copy_of(data).share())
        };
        if write.offset.checked_add(write.len).is_none() || write.tag >= kept.next_tag {
            return Err(wrong("out of range"));
        }
        let cached = CachedWrite {
            offset: write.offset,
            len: write.len,
            data,
            cuts,
            fate: write.fate,
            is_acknowledged: true,
            is_stuck: write.is_stuck,
        };
        if volatile.get_mut(write.tag).is_some() {
            return Err(wrong("twice"));
        }
        volatile.insert(write.tag, cached);
    }
    Ok((kept, volatile))
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::from(e).within(path.display())),
    }
}

/// Replaces a file by renaming: a program that dies leaves the old or the new one.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let within = |e: std::io::Error| Error::from(e).within(path.display());
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let written = fs::File::create(&new).and_then(|mut file| {
        file.write_all(bytes)?;
        // Before the rename, lest a crash of the host leaves an empty file.
        file.sync_data()
    });
    if let Err(error) = written.and_then(|()| fs::rename(&new, path)) {
        let _ = fs::remove_file(&new);
        return Err(within(error));
    }
    Ok(())
}

/// The sum of two statistics.
pub(super) fn add(a: &Statistics, b: &Statistics) -> Statistics {
    let sum = u64::saturating_add;
    Statistics {
        reads: sum(a.reads, b.reads),
        writes: sum(a.writes, b.writes),
        flushes: sum(a.flushes, b.flushes),
        trims: sum(a.trims, b.trims),
        read_bytes: sum(a.read_bytes, b.read_bytes),
        write_bytes: sum(a.write_bytes, b.write_bytes),
        read_hits: sum(a.read_hits, b.read_hits),
        partial_writes: sum(a.partial_writes, b.partial_writes),
        partial_sectors: sum(a.partial_sectors, b.partial_sectors),
        write_passes: sum(a.write_passes, b.write_passes),
        rewrite_passes: sum(a.rewrite_passes, b.rewrite_passes),
        seeks: sum(a.seeks, b.seeks),
        seek_ns: sum(a.seek_ns, b.seek_ns),
        rotation_ns: sum(a.rotation_ns, b.rotation_ns),
        transfer_ns: sum(a.transfer_ns, b.transfer_ns),
        busy_ns: sum(a.busy_ns, b.busy_ns),
        queue_depth_max: a.queue_depth_max.max(b.queue_depth_max),
        latency_ns: sum(a.latency_ns, b.latency_ns),
        erases: sum(a.erases, b.erases),
        trim_bytes: sum(a.trim_bytes, b.trim_bytes),
        read_ns: sum(a.read_ns, b.read_ns),
        write_ns: sum(a.write_ns, b.write_ns),
        flush_ns: sum(a.flush_ns, b.flush_ns),
        trim_ns: sum(a.trim_ns, b.trim_ns),
        // What was not done when the power was lost is gone.
        queue_length: b.queue_length,
        occupied_from_ns: b.occupied_from_ns,
        occupied_ns: sum(a.occupied_ns, b.occupied_ns),
    }
}
