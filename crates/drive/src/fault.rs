//! Faults: what is wrong with a drive, kept apart from the right bytes.
//!
//! # What it is
//! The media file always holds what a drive without faults would hold. Faults overlay it: sectors
//! that cannot be read, bits that flip, and, in a second sparse file, the bytes that a range returns
//! instead of the right ones, because a write to it was lost, or one meant for elsewhere landed there.
//! *Rules* inflict such damage on future writes.
//!
//! # Invariants
//! 1. The right bytes are never touched, so that a checker can always read them.
//! 2. Writing damaged sectors repairs them, as a real drive does by remapping.
//! 3. What a rule does to which write is determined by its seed and by the sequence of writes.

use rt::splitmix64;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use base::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::media::Media;

/// A fault. Sectors are logical ones, as the medium numbers them: with a jumper that is the host's
/// number plus one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fault {
    /// Reads fail until the sectors are written again.
    Unreadable {
        /// The first sector.
        lba: u64,
        /// How many.
        sectors: u64,
    },
    /// Writes fail, permanently.
    Unwritable {
        /// The first sector.
        lba: u64,
        /// How many.
        sectors: u64,
    },
    /// One bit of each sector, chosen by the seed, reads inverted until the sector is written again.
    Flipped {
        /// The first sector.
        lba: u64,
        /// How many.
        sectors: u64,
        /// Determines which bits.
        seed: u64,
    },
    /// Reads return wrong bytes until the sectors are written again.
    Wrong {
        /// The first sector.
        lba: u64,
        /// How many.
        sectors: u64,
        /// Why.
        cause: Cause,
    },
    /// A rule: some future writes that touch these sectors are acknowledged but never reach the medium.
    LoseWrites(Rule),
    /// A rule: some future writes that touch these sectors land elsewhere.
    MisdirectWrites(Rule),
    /// Every command fails during an interval: a drive that dies, and perhaps comes back.
    Dead {
        /// Start, on the drive's clock.
        from_ns: u64,
        /// End; `None`: for ever.
        until_ns: Option<u64>,
    },
    /// Every command takes longer during an interval: a drive that recovers from errors of its own, or hangs.
    Slow {
        /// Start, on the drive's clock.
        from_ns: u64,
        /// End; `None`: for ever.
        until_ns: Option<u64>,
        /// How much longer.
        by_ns: u64,
    },
}

/// Why a range holds wrong bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A write to it was lost.
    LostWrite,
    /// A write meant for elsewhere landed here.
    MisdirectedWrite,
}

/// Which future writes a rule hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The first sector.
    pub lba: u64,
    /// How many; writes that touch none of them are spared.
    pub sectors: u64,
    /// About one write in this many is hit; 1 is every one.
    pub one_in: u64,
    /// How many more writes to hit; then the rule is removed.
    pub count: u64,
    /// Random state that decides which ones; advances with each write.
    pub seed: u64,
}

/// What happens to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fate {
    Arrives,
    Lost,
    /// Lands at this byte of the medium.
    Lands(u64),
}

/// The faults of a drive, by number.
#[derive(Debug)]
pub(crate) struct Faults {
    path: PathBuf,
    sector_bytes: u64,
    size_bytes: u64,
    entries: BTreeMap<u64, Fault>,
    next_id: u64,
    /// The bytes that [`Fault::Wrong`] returns, at their offsets.
    wrong: Option<Media>,
    /// Changed since it was last written.
    is_dirty: bool,
}

/// The file: numbers and faults.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    next_id: u64,
    faults: BTreeMap<u64, Fault>,
}

impl Fault {
    /// The sectors it affects; `None` if it is the whole drive.
    #[must_use]
    pub fn range(&self) -> Option<Range<u64>> {
        match *self {
            Fault::Unreadable { lba, sectors }
            | Fault::Unwritable { lba, sectors }
            | Fault::Flipped { lba, sectors, .. }
            | Fault::Wrong { lba, sectors, .. }
            | Fault::LoseWrites(Rule { lba, sectors, .. })
            | Fault::MisdirectWrites(Rule { lba, sectors, .. }) => {
                Some(lba..lba.saturating_add(sectors))
            }
            Fault::Dead { .. } | Fault::Slow { .. } => None,
        }
    }

    fn with_range(&self, range: Range<u64>) -> Fault {
        let mut other = self.clone();
        match &mut other {
            Fault::Unreadable { lba, sectors }
            | Fault::Unwritable { lba, sectors }
            | Fault::Flipped { lba, sectors, .. }
            | Fault::Wrong { lba, sectors, .. }
            | Fault::LoseWrites(Rule { lba, sectors, .. })
            | Fault::MisdirectWrites(Rule { lba, sectors, .. }) => {
                (*lba, *sectors) = (range.start, range.end - range.start);
            }
            Fault::Dead { .. } | Fault::Slow { .. } => {}
        }
        other
    }

    /// The same fault with the host's sector numbers: `lba_shift` less.
    #[must_use]
    pub fn as_host_sees(&self, lba_shift: u64) -> Fault {
        match self.range() {
            None => self.clone(),
            Some(range) => {
                let start = range.start.saturating_sub(lba_shift);
                self.with_range(start..range.end.saturating_sub(lba_shift).max(start))
            }
        }
    }

    /// Whether writing its sectors ends it.
    fn ends_when_written(&self) -> bool {
        matches!(
            self,
            Fault::Unreadable { .. } | Fault::Flipped { .. } | Fault::Wrong { .. }
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = self.range().unwrap_or_default();
        let (lba, sectors) = (range.start, range.end - range.start);
        let rule = |f: &mut fmt::Formatter<'_>, rule: &Rule, what: &str| {
            let (one_in, count) = (rule.one_in, rule.count);
            write!(
                f,
                "one in {one_in} writes to {sectors} sectors at {lba} {what}, {count} times"
            )
        };
        let times = |f: &mut fmt::Formatter<'_>, from_ns: u64, until_ns: Option<u64>| {
            write!(f, "from {:.3} s", from_ns as f64 / 1e9)?;
            match until_ns {
                Some(until) => write!(f, " until {:.3} s", until as f64 / 1e9),
                None => f.write_str(" on"),
            }
        };
        match *self {
            Fault::Unreadable { .. } => write!(f, "{sectors} sectors at {lba} cannot be read"),
            Fault::Unwritable { .. } => write!(f, "{sectors} sectors at {lba} cannot be written"),
            Fault::Flipped { .. } => write!(f, "a bit is flipped in {sectors} sectors at {lba}"),
            Fault::Wrong { cause, .. } => {
                let cause = match cause {
                    Cause::LostWrite => "a write got lost",
                    Cause::MisdirectedWrite => "a write to elsewhere landed there",
                };
                write!(f, "{sectors} sectors at {lba} are wrong: {cause}")
            }
            Fault::LoseWrites(ref r) => rule(f, r, "gets lost"),
            Fault::MisdirectWrites(ref r) => rule(f, r, "lands elsewhere"),
            Fault::Dead { from_ns, until_ns } => {
                f.write_str("dead ")?;
                times(f, from_ns, until_ns)
            }
            Fault::Slow {
                from_ns,
                until_ns,
                by_ns,
            } => {
                write!(f, "each command takes {:.3} s longer ", by_ns as f64 / 1e9)?;
                times(f, from_ns, until_ns)
            }
        }
    }
}

fn is_within(now: u64, from_ns: u64, until_ns: Option<u64>) -> bool {
    from_ns <= now && until_ns.is_none_or(|until| now < until)
}

impl Faults {
    /// The faults in that file; none if it does not exist.
    pub(crate) fn open(path: &Path, sector_bytes: u64, size_bytes: u64) -> Result<Faults> {
        let mut faults = Faults {
            path: path.to_owned(),
            sector_bytes,
            size_bytes,
            entries: BTreeMap::new(),
            next_id: 1,
            wrong: None,
            is_dirty: false,
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(faults),
            Err(e) => return Err(Error::from(e).within(path.display())),
        };
        let kept: Kept = serde_json::from_str(&text)
            .map_err(|e| Error::corrupt(format!("{}: {e}", path.display())))?;
        faults.entries = kept.faults;
        let last = faults.entries.keys().next_back().copied().unwrap_or(0);
        faults.next_id = kept.next_id.max(last.saturating_add(1));
        Ok(faults)
    }

    /// Saves them if they changed.
    pub(crate) fn save(&mut self) -> Result<()> {
        if !self.is_dirty {
            return Ok(());
        }
        let kept = Kept {
            next_id: self.next_id,
            faults: self.entries.clone(),
        };
        let text = serde_json::to_string_pretty(&kept).expect("faults are plain values");
        crate::emulated::replace_file(&self.path, text.as_bytes())?;
        self.is_dirty = false;
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn list(&self) -> Vec<(u64, Fault)> {
        let entry = |(id, fault): (&u64, &Fault)| (*id, fault.clone());
        self.entries.iter().map(entry).collect()
    }

    pub(crate) fn add(&mut self, fault: Fault) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.entries.insert(id, fault);
        self.is_dirty = true;
        id
    }

    pub(crate) fn remove(&mut self, id: u64) -> Result<Fault> {
        let fault = self.entries.remove(&id).ok_or_else(|| {
            let text = format!("there is no fault {id}");
            Error::not_found(text)
        })?;
        self.is_dirty = true;
        self.forget_wrong_bytes(&fault)?;
        Ok(fault)
    }

    /// Punches out wrong bytes that are no longer referenced.
    fn forget_wrong_bytes(&mut self, fault: &Fault) -> Result<()> {
        if let (Fault::Wrong { .. }, Some(range)) = (fault, fault.range()) {
            let bytes = self.bytes(&range);
            self.wrong()?.erase(bytes)?;
        }
        Ok(())
    }

    pub(crate) fn is_dead(&self, now: u64) -> bool {
        self.entries.values().any(|fault| match fault {
            Fault::Dead { from_ns, until_ns } => is_within(now, *from_ns, *until_ns),
            _ => false,
        })
    }

    /// What each command takes longer now, in ns.
    pub(crate) fn slow_ns(&self, now: u64) -> u64 {
        let by_ns = |fault: &Fault| match fault {
            Fault::Slow {
                from_ns,
                until_ns,
                by_ns,
            } if is_within(now, *from_ns, *until_ns) => *by_ns,
            _ => 0,
        };
        self.entries.values().map(by_ns).sum()
    }

    /// If a write to these bytes fails, the sector at which it does.
    pub(crate) fn refuses_write(&self, bytes: &Range<u64>) -> Option<u64> {
        self.hits(bytes)
            .find(|(fault, _)| matches!(fault, Fault::Unwritable { .. }))
            .map(|(_, hit)| hit.start / self.sector_bytes)
    }

    fn bytes(&self, sectors: &Range<u64>) -> Range<u64> {
        let end = sectors.end.saturating_mul(self.sector_bytes);
        let end = end.min(self.size_bytes);
        sectors.start.saturating_mul(self.sector_bytes).min(end)..end
    }

    /// The faults that touch a range of bytes, with the bytes that they touch.
    fn hits<'a>(
        &'a self,
        range: &'a Range<u64>,
    ) -> impl Iterator<Item = (&'a Fault, Range<u64>)> + 'a {
        self.entries.values().filter_map(|fault| {
            let bytes = self.bytes(&fault.range()?);
            let hit = bytes.start.max(range.start)..bytes.end.min(range.end);
            (hit.start < hit.end).then_some((fault, hit))
        })
    }

    /// Decides the fate of a write to these bytes. `elsewhere` returns where a misdirected one lands.
    pub(crate) fn fate(&mut self, bytes: &Range<u64>, elsewhere: impl Fn(u64) -> u64) -> Fate {
        let size = bytes.end - bytes.start;
        let limits = (self.sector_bytes, self.size_bytes);
        for (id, fault) in &mut self.entries {
            let (rule, misdirects) = match fault {
                Fault::LoseWrites(rule) => (rule, false),
                Fault::MisdirectWrites(rule) => (rule, true),
                _ => continue,
            };
            let start = rule.lba.saturating_mul(limits.0);
            let end = start.saturating_add(rule.sectors.saturating_mul(limits.0));
            if start >= bytes.end || end <= bytes.start || rule.count == 0 {
                continue;
            }
            self.is_dirty = true;
            if !splitmix64(&mut rule.seed).is_multiple_of(rule.one_in.max(1)) {
                continue;
            }
            rule.count -= 1;
            let (id, is_over) = (*id, rule.count == 0);
            let place = elsewhere(splitmix64(&mut rule.seed));
            if is_over {
                self.entries.remove(&id);
            }
            let place = place.min(limits.1.saturating_sub(size)) / limits.0 * limits.0;
            let is_elsewhere = place >= bytes.end || place + size <= bytes.start;
            return match misdirects && is_elsewhere {
                true => Fate::Lands(place),
                false => Fate::Lost,
            };
        }
        Fate::Arrives
    }

    fn wrong(&mut self) -> Result<&mut Media> {
        if self.wrong.is_none() {
            let path = self.path.with_extension("wrong");
            self.wrong = Some(Media::open(&path, self.size_bytes)?);
        }
        Ok(self.wrong.as_mut().expect("opened just now"))
    }

    /// Turns right bytes, just read, into what the drive returns. Fails on a sector that cannot be
    /// read; `covers` says whether a range is entirely in the cache, and so readable after all.
    pub(crate) fn damage(
        &mut self,
        offset: u64,
        buf: &mut [u8],
        covers: impl Fn(&Range<u64>) -> bool,
    ) -> Result<()> {
        let range = offset..offset + buf.len() as u64;
        self.replace_wrong(offset, buf)?;
        let index = |at: u64| usize::try_from(at - offset).expect("within the buffer");
        let hits: Vec<_> = self.hits(&range).map(|(f, hit)| (f.clone(), hit)).collect();
        for (fault, hit) in hits {
            match fault {
                Fault::Flipped { seed, .. } => {
                    for at in hit.step_by(usize::try_from(self.sector_bytes).expect("small")) {
                        let mut seed = seed ^ at;
                        let bit = splitmix64(&mut seed) % (self.sector_bytes * 8);
                        let byte = index(at) + usize::try_from(bit / 8).expect("small");
                        buf[byte] ^= 1 << (bit % 8);
                    }
                }
                Fault::Unreadable { .. } if !covers(&hit) => {
                    let lba = hit.start / self.sector_bytes;
                    return Err(Error::new(
                        base::ErrorKind::Io,
                        format!("uncorrectable error reading sector {lba} of the medium"),
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn replace_wrong(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let range = offset..offset + buf.len() as u64;
        let wrong: Vec<_> = self
            .hits(&range)
            .filter(|(fault, _)| matches!(fault, Fault::Wrong { .. }))
            .map(|(_, hit)| hit)
            .collect();
        for hit in wrong {
            let index = |at: u64| usize::try_from(at - offset).expect("within the buffer");
            let part = &mut buf[index(hit.start)..index(hit.end)];
            self.wrong()?.read(hit.start, part)?;
        }
        Ok(())
    }

    /// Ends the faults in a range that was written.
    pub(crate) fn repair(&mut self, bytes: &Range<u64>) -> Result<()> {
        if self.entries.is_empty() {
            return Ok(());
        }
        let written = bytes.start / self.sector_bytes..bytes.end / self.sector_bytes;
        let hit: Vec<u64> = self
            .entries
            .iter()
            .filter(|(_, fault)| fault.ends_when_written())
            .filter(|(_, fault)| {
                let range = fault.range().unwrap_or_default();
                range.start < written.end && written.start < range.end
            })
            .map(|(id, _)| *id)
            .collect();
        for id in hit {
            let fault = self.entries.remove(&id).expect("found just now");
            let range = fault.range().unwrap_or_default();
            let left = range.start..written.start.max(range.start);
            let right = written.end.min(range.end)..range.end;
            let over = left.end..right.start;
            self.forget_wrong_bytes(&fault.with_range(over))?;
            if !left.is_empty() {
                self.entries.insert(id, fault.with_range(left.clone()));
            }
            if !right.is_empty() {
                let rest = fault.with_range(right);
                if left.is_empty() {
                    self.entries.insert(id, rest);
                } else {
                    self.add(rest);
                }
            }
            self.is_dirty = true;
        }
        Ok(())
    }

    /// Carries out a lost or misdirected write; `media` gets it at its intended place, as the right bytes.
    pub(crate) fn misplace(
        &mut self,
        media: &mut Media,
        offset: u64,
        data: &[u8],
        fate: Fate,
    ) -> Result<()> {
        let sectors =
            |at: u64| at / self.sector_bytes..(at + data.len() as u64) / self.sector_bytes;
        let (here, there) = (
            sectors(offset),
            match fate {
                Fate::Lands(place) => Some((place, sectors(place))),
                _ => None,
            },
        );
        let mut seen = vec![0; data.len()];
        media.read(offset, &mut seen)?;
        self.replace_wrong(offset, &mut seen)?;
        self.wrong()?.write(offset, &seen)?;
        self.mark_wrong(here, Cause::LostWrite);
        if let Some((place, sectors)) = there {
            self.repair(&(place..place + data.len() as u64))?;
            self.wrong()?.write(place, data)?;
            self.mark_wrong(sectors, Cause::MisdirectedWrite);
        }
        media.write(offset, data)
    }

    /// Marks sectors as wrong; their wrong bytes are stored already. Marks do not overlap.
    fn mark_wrong(&mut self, sectors: Range<u64>, cause: Cause) {
        let old: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, fault)| matches!(fault, Fault::Wrong { .. }))
            .filter_map(|(id, fault)| Some((*id, fault.range()?, fault.clone())))
            .filter(|(_, range, _)| range.start < sectors.end && sectors.start < range.end)
            .collect();
        for (id, range, fault) in old {
            self.entries.remove(&id);
            for rest in [
                range.start..sectors.start.max(range.start),
                sectors.end.min(range.end)..range.end,
            ] {
                if !rest.is_empty() {
                    self.add(fault.with_range(rest));
                }
            }
        }
        self.add(Fault::Wrong {
            lba: sectors.start,
            sectors: sectors.end - sectors.start,
            cause,
        });
    }

    /// Makes sectors unreadable that were being rewritten when the power was cut.
    pub(crate) fn ruin(&mut self, bytes: &Range<u64>) {
        let lba = bytes.start / self.sector_bytes;
        let sectors = bytes.end / self.sector_bytes - lba;
        self.add(Fault::Unreadable { lba, sectors });
    }
}
