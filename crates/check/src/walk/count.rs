//! Counting blocks and claiming their space.
//!
//! # Source
//! OpenZFS `cmd/zdb/zdb.c` (`zdb_count_block`).

use std::hash::{DefaultHasher, Hasher};

use phys::BlkPtrPhys;
use zio::Bookmark;

use super::walker::Walker;
use super::{FINDINGS_MAX, Walk};
use crate::space::{Claim, Space};
use crate::stats::{BlockKind, Ditto};
use crate::{Checksums, leaves};

/// Claims per batch.
const CLAIM_BATCH: usize = 4096;
/// Blocks between two progress updates.
const PROGRESS_EVERY: u64 = 256;

impl Walker<'_> {
    /// Counts a block of a dataset.
    pub(super) fn count_born(&mut self, bp: &BlkPtrPhys, bookmark: &Bookmark) {
        self.count(bp, bookmark, BlockKind::of(bp));
        let dsize = self.walk.pool.dsize(bp);
        *self.tally.born.entry(bookmark.objset).or_default() += dsize;
        if self.walk.options.dedup {
            self.tally.dedup.count(bp, dsize);
        }
    }

    /// Whether the checksum of a block is to be verified.
    pub(super) fn is_wanted(&self, bp: &BlkPtrPhys) -> bool {
        match self.walk.options.checksums {
            Checksums::None => false,
            Checksums::Metadata => bp.is_metadata(),
            Checksums::All => bp.is_metadata() || self.is_in_sample(bp),
        }
    }

    /// The same blocks each time, wherever they are referred to.
    fn is_in_sample(&self, bp: &BlkPtrPhys) -> bool {
        self.walk.options.sample.is_none_or(|one_in| {
            let mut hash = DefaultHasher::new();
            hash.write_u64(bp.dvas().next().map_or(0, |dva| dva.offset()));
            hash.finish().is_multiple_of(u64::from(one_in.max(1)))
        })
    }

    pub(super) fn leaf(&mut self, bp: &BlkPtrPhys, bookmark: &Bookmark) {
        let options = &self.walk.options;
        let object = (bookmark.objset, bookmark.object);
        let only = options.only.as_ref();
        if only.is_some_and(|only| !only.contains(&object)) {
            return;
        }
        if !bp.is_embedded() {
            leaves::push(&self.walk.pool, options, bp, bookmark, &mut self.leaves);
        } else if options.decompress
            && let Err(error) = self.walk.pool.pipeline.read_keyless(bp, bookmark)
        {
            self.find(leaves::unreadable(bp, bookmark, &error));
        }
    }

    #[doc(alias = "zdb_count_block")]
    pub(super) fn count(&mut self, bp: &BlkPtrPhys, bookmark: &Bookmark, kind: BlockKind) {
        let walk = self.walk;
        self.tally.stats.count(kind, bp, ditto(walk, bp));
        self.unreported += 1;
        if self.unreported == PROGRESS_EVERY {
            walk.progress.advance(std::mem::take(&mut self.unreported));
        }
        if bp.is_embedded() || walk.space.is_none() {
            return;
        }
        let may_be_shared = bp.is_dedup() || walk.has_clones;
        let claim = |dva| Claim {
            dva,
            bookmark: *bookmark,
            may_be_shared,
        };
        if bp.is_gang() {
            match walk.pool.pipeline.segments(bp, bookmark) {
                Ok(segments) => self.claims.extend(segments.into_iter().map(claim)),
                Err(error) => self.find(leaves::unreadable(bp, bookmark, &error)),
            }
        } else {
            self.claims.extend(bp.dvas().map(claim));
        }
        if self.claims.len() >= CLAIM_BATCH {
            self.claim_all();
        }
    }

    pub(super) fn claim_all(&mut self) {
        let Some(space) = &self.walk.space else {
            return;
        };
        let claimed = space.claim(&mut self.claims);
        let count = claimed.findings.len();
        self.tally.findings.extend(claimed.findings);
        if count > 0 && !self.walk.bound.takes_findings(count) {
            let what = format!("gave up after {FINDINGS_MAX} findings");
            self.give_up(Bookmark::default(), what);
        }
        self.tally.stats.shared_count += claimed.shared;
        self.tally.stats.shared_asize += claimed.shared_bytes;
    }
}

fn ditto(walk: &Walk, bp: &BlkPtrPhys) -> Ditto {
    let dvas: Vec<_> = bp.dvas().collect();
    let mut ditto = Ditto::default();
    for (i, a) in dvas.iter().enumerate() {
        for b in &dvas[i + 1..] {
            ditto.same_vdev |= a.vdev() == b.vdev();
            ditto.same_metaslab |= Space::same_metaslab(&walk.pool.tops, a, b);
        }
    }
    ditto
}
