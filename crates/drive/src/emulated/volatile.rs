//! Writes that the drive has accepted but that are not yet on the medium.
//!
//! # Invariants
//! 1. Tags grow with each submission; of two writes to a byte, the later one wins.
//! 2. What was trimmed, or has already reached the medium, is *cut* out of a write.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use base::{Buf, Error, Result};

use crate::fault::Fate;
use crate::media::Extents;
use crate::profile::Profile;

/// One write.
#[derive(Clone, Debug)]
pub(crate) struct CachedWrite {
    /// Where on the medium, in bytes.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// `None` for zeros.
    pub(crate) data: Option<Buf>,
    /// Parts that are not valid any more.
    pub(crate) cuts: Extents,
    pub(crate) fate: Fate,
    /// Its completion was reported to the host.
    pub(crate) is_acknowledged: bool,
    /// The mechanics wrote it, but the host had no room in the media file.
    pub(crate) is_stuck: bool,
}

impl CachedWrite {
    pub(crate) fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.len
    }

    /// Its parts that are still valid.
    pub(crate) fn pieces(&self) -> Vec<Range<u64>> {
        let mut rest = Extents::default();
        rest.insert(self.range());
        for cut in self.cuts.iter() {
            rest.remove(&cut);
        }
        rest.iter().collect()
    }

    /// The bytes of a part; `None` for zeros.
    pub(crate) fn bytes(&self, part: &Range<u64>) -> Option<&[u8]> {
        let index = |at: u64| usize::try_from(at - self.offset).expect("within a write");
        let data = self.data.as_ref()?;
        Some(&data[index(part.start)..index(part.end)])
    }
}

/// The writes, by tag.
#[derive(Debug, Default)]
pub(crate) struct Volatile {
    by_tag: BTreeMap<u64, CachedWrite>,
    by_start: BTreeSet<(u64, u64)>,
    /// Upper bound on the length of a write, in bytes.
    longest: u64,
}

impl Volatile {
    pub(crate) fn insert(&mut self, tag: u64, write: CachedWrite) {
        self.longest = self.longest.max(write.len);
        self.by_start.insert((write.offset, tag));
        let old = self.by_tag.insert(tag, write);
        assert!(old.is_none(), "write {tag} is there already");
    }

    pub(crate) fn remove(&mut self, tag: u64) -> Option<CachedWrite> {
        let write = self.by_tag.remove(&tag)?;
        self.by_start.remove(&(write.offset, tag));
        if self.by_tag.is_empty() {
            self.longest = 0;
        }
        Some(write)
    }

    pub(crate) fn get_mut(&mut self, tag: u64) -> Option<&mut CachedWrite> {
        self.by_tag.get_mut(&tag)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &CachedWrite)> {
        self.by_tag.iter().map(|(tag, write)| (*tag, write))
    }

    pub(crate) fn tags(&self) -> Vec<u64> {
        self.by_tag.keys().copied().collect()
    }

    /// Checks that a drive of that profile can have these writes.
    pub(crate) fn check(&self, profile: &Profile) -> Result<()> {
        let sector = u64::from(profile.identify.logical_sector_bytes);
        let end = profile.medium_sectors() * sector;
        for (tag, write) in self.iter() {
            let range = write.range();
            let fits = range.end <= end && range.start % sector == 0 && range.end % sector == 0;
            let cuts_fit =
                (write.cuts.iter()).all(|c| c.start % sector == 0 && c.end % sector == 0);
            if !fits || !cuts_fit || range.is_empty() {
                return Err(Error::corrupt(format!("write {tag}: {range:?}")));
            }
        }
        Ok(())
    }

    /// The writes that touch a range, oldest first.
    pub(crate) fn touching(&self, range: &Range<u64>) -> Vec<u64> {
        if self.by_tag.is_empty() {
            return Vec::new();
        }
        let first = range.start.saturating_sub(self.longest);
        let mut tags: Vec<u64> = self
            .by_start
            .range((first, 0)..(range.end, 0))
            .filter(|(start, tag)| start + self.by_tag[tag].len > range.start)
            .map(|(_, tag)| *tag)
            .collect();
        tags.sort_unstable();
        tags
    }

    /// Overlays cached bytes on bytes that were read from the medium.
    pub(crate) fn overlay(&self, offset: u64, buf: &mut [u8]) {
        let range = offset..offset + buf.len() as u64;
        for tag in self.touching(&range) {
            let write = &self.by_tag[&tag];
            for piece in write.pieces() {
                let part = piece.start.max(range.start)..piece.end.min(range.end);
                if part.start >= part.end {
                    continue;
                }
                let index = |at: u64| usize::try_from(at - offset).expect("within the buffer");
                let target = &mut buf[index(part.start)..index(part.end)];
                match write.bytes(&part) {
                    Some(bytes) => target.copy_from_slice(bytes),
                    None => target.fill(0),
                }
            }
        }
    }

    /// Whether all of a range is cached.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        let mut missing = Extents::default();
        missing.insert(range.clone());
        for tag in self.touching(range) {
            for piece in self.by_tag[&tag].pieces() {
                missing.remove(&piece);
            }
        }
        missing.is_empty()
    }

    /// Cuts a range out of every write.
    pub(crate) fn cut(&mut self, range: &Range<u64>) {
        for tag in self.touching(range) {
            let write = self.by_tag.get_mut(&tag).expect("it touches the range");
            let whole = write.range();
            let part = range.start.max(whole.start)..range.end.min(whole.end);
            write.cuts.insert(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn prop_the_latest_write_wins(
            ops in prop::collection::vec((0u8..5, 0u64..200, 1u64..60, any::<u8>()), 1..40)
        ) {
            let mut volatile = Volatile::default();
            // For each byte: the tag of its last write, and the value.
            let mut writes: Vec<(u64, std::ops::Range<u64>, u8)> = Vec::new();
            let mut cut: Vec<(u64, std::ops::Range<u64>)> = Vec::new();
            for (tag, (op, start, len, fill)) in (1u64..).zip(ops) {
                let range = start..start + len;
                match op {
                    0..=2 => {
                        let data = (fill > 0).then(|| Buf::copy_of(&vec![fill; len as usize]));
                        let write = CachedWrite {
                            offset: start, len, data, cuts: Extents::default(),
                            fate: Fate::Arrives, is_acknowledged: true, is_stuck: false,
                        };
                        volatile.insert(tag, write);
                        writes.push((tag, range, fill));
                    }
                    3 => {
                        volatile.cut(&range);
                        cut.push((tag, range));
                    }
                    _ if !writes.is_empty() => {
                        let (gone, ..) = writes.remove(start as usize % writes.len());
                        prop_assert!(volatile.remove(gone).is_some());
                    }
                    _ => {}
                }
                let mut buf = vec![255; 300];
                volatile.overlay(0, &mut buf);
                for (at, got) in (0u64..).zip(&buf) {
                    let valid = |tag: u64| !cut.iter().any(|(when, r)| *when > tag && r.contains(&at));
                    let last = writes.iter().rev().find(|(tag, r, _)| r.contains(&at) && valid(*tag));
                    prop_assert_eq!(*got, last.map_or(255, |(_, _, fill)| *fill), "at {}", at);
                    prop_assert_eq!(volatile.covers(&(at..at + 1)), last.is_some());
                }
            }
        }
    }
}
