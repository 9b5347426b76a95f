//! Allocated space according to the space maps, and what is left of it after all blocks claim
//! theirs.
//!
//! # What it is
//! For each metaslab: the segments that its space map leaves allocated, after the unflushed part of
//! the log space maps. Every segment that a block occupies is then removed (*claimed*): a segment
//! that cannot be removed was never allocated or is claimed twice; what remains at the end is
//! leaked.
//!
//! # Concurrency
//! One lock per metaslab; claims come in sorted batches.
//!
//! # Source
//! OpenZFS `cmd/zdb/zdb.c` (`zdb_leak_init`, `zdb_leak_fini`), `module/zfs/spa_log_spacemap.c`.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Context, Error, MetaslabId, ObjectId, Result, VdevId};
use dmu::Objset;
use metaslab::RangeTree;
use phys::space_map::{MapType, SpaceMapEntry, SpaceMapRange, entries};
use phys::{DvaPhys, ObjectType, Phys, SpaceMapPhys, pool_names};
use zio::Bookmark;

use crate::removed::{Mapped, Removed};
use crate::{Finding, TopVdev};

/// Bytes of a space map read at once; a multiple of every space map block size.
const READ_BYTES: u64 = 1 << 20;
/// The most mappings that lead to one block: damaged ones may lead in a circle.
const DEPTH_MAX: usize = 64;
/// Maximum bytes of entries; a longer space map is corrupt.
pub(crate) const LENGTH_MAX: u64 = 1 << 48;

/// A segment that a block occupies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) dva: DvaPhys,
    pub(crate) bookmark: Bookmark,
    /// Whether the block may be found more than once (dedup, cloning).
    pub(crate) may_be_shared: bool,
}

impl Claim {
    /// Of the copy of what is on a vdev that is being removed.
    fn copy(vdev: VdevId, offset: u64, size: u64) -> Claim {
        Claim {
            dva: DvaPhys::new(vdev, offset, size, false),
            bookmark: Bookmark::default(),
            may_be_shared: false,
        }
    }
}

struct Metaslab {
    /// Segments by start => end; not changed by claims.
    allocated: RangeTree,
    /// What no block has claimed yet.
    left: RangeTree,
}

struct Vdev {
    top: TopVdev,
    metaslabs: Vec<rt::Mutex<Metaslab>>,
}

impl Vdev {
    /// The metaslab that contains a segment, if a single one does.
    fn locate(&self, offset: u64, size: u64) -> Option<usize> {
        let end = offset.checked_add(size)?.checked_sub(1)?;
        let at = offset >> self.top.ms_shift;
        (end >> self.top.ms_shift == at && at < self.metaslabs.len() as u64).then_some(at as usize)
    }
}

/// The space of all vdevs.
pub(crate) struct Space {
    vdevs: BTreeMap<VdevId, Vdev>,
    removed: Removed,
    /// Bytes of copies of what is on a vdev that is being removed.
    pub(crate) copied: u64,
    /// Bytes that only a checkpoint refers to.
    pub(crate) checkpoint: u64,
}

/// The result of a batch of claims.
#[derive(Default)]
pub(crate) struct Claimed {
    pub(crate) findings: Vec<Finding>,
    /// Segments claimed repeatedly by blocks that may be shared.
    pub(crate) shared: u64,
    pub(crate) shared_bytes: u64,
}

impl Space {
    /// Reads all space maps.
    pub(crate) fn load(mos: &Arc<Objset>, tops: &[TopVdev], findings: &mut Vec<Finding>) -> Space {
        let mut space = Space {
            vdevs: BTreeMap::new(),
            removed: Removed::load(mos, tops, findings),
            copied: 0,
            checkpoint: 0,
        };
        for top in tops.iter().filter(|top| top.is_concrete) {
            let vdev = load_vdev(mos, top, findings);
            space.vdevs.insert(top.id, vdev);
        }
        if let Err(error) = space.load_logs(mos) {
            findings.push(Finding::NotChecked {
                what: format!("log space maps: {error}"),
            });
        }
        if let Err(error) = space.exclude_checkpoint(mos, tops) {
            findings.push(Finding::NotChecked {
                what: format!("space of the checkpoint: {error}"),
            });
        }
        for vdev in space.vdevs.values() {
            for metaslab in &vdev.metaslabs {
                let mut metaslab = metaslab.lock();
                metaslab.left = metaslab.allocated.clone();
            }
        }
        findings.extend(space.claim_copies());
        space
    }

    /// Claims the copies of what is allocated on a vdev that is being removed, and was copied.
    #[doc(alias = "zdb_claim_removing")]
    fn claim_copies(&mut self) -> Vec<Finding> {
        let mut claimed = Claimed::default();
        let mut copied = 0;
        for (id, vdev) in &self.vdevs {
            let Some(mapped) = self.removed.get(*id) else {
                continue;
            };
            let end = mapped.mapping.max_offset();
            let mut segments = Vec::new();
            for metaslab in &vdev.metaslabs {
                segments.extend(metaslab.lock().allocated.iter());
            }
            for (offset, size) in segments.into_iter().filter(|(at, _)| *at < end) {
                let size = size.min(end - offset);
                copied += size;
                let copy = Claim::copy(*id, offset, size);
                self.claim_mapped(mapped, &copy, 0, &mut claimed);
            }
        }
        self.copied = copied;
        claimed.findings
    }

    /// Claims what a range of a vdev with a mapping is mapped to.
    fn claim_mapped(&self, mapped: &Mapped, claim: &Claim, depth: usize, claimed: &mut Claimed) {
        let (offset, size) = (claim.dva.offset(), claim.dva.asize());
        let Ok(pieces) = mapped.mapping.pieces(offset, size) else {
            let Claim { dva, bookmark, .. } = *claim;
            claimed.findings.push(Finding::OutOfRange { bookmark, dva });
            return;
        };
        for piece in pieces {
            let dva = DvaPhys::new(piece.vdev, piece.offset, piece.size, false);
            self.claim_at(&Claim { dva, ..*claim }, depth + 1, claimed);
        }
    }

    /// Obsolete bytes of removed vdevs that are not recorded right.
    pub(crate) fn wrong_obsolete_counts(&self) -> Vec<Finding> {
        self.removed.wrong_counts()
    }

    /// Bytes that the space maps leave allocated.
    pub(crate) fn allocated(&self) -> u64 {
        self.by_vdev().map(|(_, allocated)| allocated).sum()
    }

    /// Bytes allocated of each vdev.
    pub(crate) fn by_vdev(&self) -> impl Iterator<Item = (VdevId, u64)> + '_ {
        self.vdevs.iter().map(|(id, vdev)| {
            let spaces = vdev.metaslabs.iter().map(|m| m.lock().allocated.space());
            (*id, spaces.sum())
        })
    }

    fn load_logs(&mut self, mos: &Objset) -> Result<()> {
        let Some(zap) = zap::directory::find(mos, pool_names::LOG_SPACEMAP_ZAP)? else {
            return Ok(());
        };
        let mut logs = BTreeMap::new();
        for entry in &zap::Zap::open(mos, zap)? {
            let entry = entry?;
            logs.insert(entry.int_key()?, ObjectId(entry.first_integer));
        }
        if logs.is_empty() {
            return Ok(());
        }
        let mut unflushed = BTreeMap::new();
        for (id, vdev) in &self.vdevs {
            unflushed.insert(*id, unflushed_txgs(mos, &vdev.top)?);
        }
        for (txg, object) in logs {
            for_each_entry(mos, object, LENGTH_MAX, &mut |range| {
                let id = range.vdev.unwrap_or_default();
                let Some(vdev) = self.vdevs.get(&id) else {
                    // The vdev was removed, and its data moved.
                    return Ok(());
                };
                // Sectors of 512 bytes, whatever the vdev's are.
                let shift = base::SPA_MINBLOCKSHIFT;
                let (offset, size) = (scale(range.offset, shift)?, scale(range.run, shift)?);
                let at = vdev
                    .locate(offset, size)
                    .ok_or_else(|| outside(offset, size))?;
                let flushed = unflushed[&id].get(at).copied().unwrap_or_default();
                if txg < flushed {
                    return Ok(());
                }
                let mut metaslab = vdev.metaslabs[at].lock();
                metaslab.apply(range.map_type, offset, size)
            })
            .within(|| format!("log space map {object} of txg {txg}"))?;
        }
        Ok(())
    }

    /// Removes the space freed since the checkpoint, which the space maps keep allocated for its
    /// sake.
    #[doc(alias = "zdb_leak_init_exclude_checkpoint")]
    fn exclude_checkpoint(&mut self, mos: &Objset, tops: &[TopVdev]) -> Result<()> {
        for top in tops {
            let name = pool_names::VDEV_TOP_ZAP_POOL_CHECKPOINT_SM;
            let Some(object) = top_zap_object(mos, top, name)? else {
                continue;
            };
            let Some(vdev) = self.vdevs.get(&top.id) else {
                continue;
            };
            let mut bytes = 0;
            for_each_entry(mos, object, LENGTH_MAX, &mut |range| {
                let offset = scale(range.offset, top.ashift)?;
                let size = scale(range.run, top.ashift)?;
                let at = vdev
                    .locate(offset, size)
                    .ok_or_else(|| outside(offset, size))?;
                bytes += size;
                vdev.metaslabs[at].lock().apply(MapType::Free, offset, size)
            })?;
            self.checkpoint += bytes;
        }
        Ok(())
    }

    /// Removes the segments of blocks from the unclaimed space.
    pub(crate) fn claim(&self, claims: &mut Vec<Claim>) -> Claimed {
        claims.sort_unstable_by_key(|c| (c.dva.vdev(), c.dva.offset()));
        let mut claimed = Claimed::default();
        for claim in claims.drain(..) {
            self.claim_one(&claim, &mut claimed);
        }
        claimed
    }

    /// Claims the further copies of a block, if a pointer led to its first one. Returns the bytes of those that no
    /// pointer led to.
    pub(crate) fn claim_further(&self, copies: &[DvaPhys], findings: &mut Vec<Finding>) -> u64 {
        let [first, further @ ..] = copies else {
            return 0;
        };
        if first.is_gang() || further.is_empty() || !self.is_claimed(first) {
            return 0;
        }
        let mut bytes = 0;
        for dva in further {
            let mut claimed = Claimed::default();
            let claim = Claim {
                dva: *dva,
                bookmark: Bookmark::default(),
                may_be_shared: true,
            };
            self.claim_one(&claim, &mut claimed);
            if claimed.findings.is_empty() {
                bytes += dva.asize().saturating_sub(claimed.shared_bytes);
            }
            findings.append(&mut claimed.findings);
        }
        bytes
    }

    /// Whether a block was found in a segment. What lies on a removed vdev counts as found.
    fn is_claimed(&self, dva: &DvaPhys) -> bool {
        let Some(vdev) = self.vdevs.get(&dva.vdev()) else {
            return true;
        };
        vdev.locate(dva.offset(), dva.asize()).is_some_and(|at| {
            let metaslab = vdev.metaslabs[at].lock();
            let (offset, size) = (dva.offset(), dva.asize());
            metaslab.allocated.contains(offset, size) && !metaslab.left.overlaps(offset, size)
        })
    }

    fn claim_one(&self, claim: &Claim, claimed: &mut Claimed) {
        self.claim_at(claim, 0, claimed);
    }

    /// Claims a segment that so many mappings led to.
    fn claim_at(&self, claim: &Claim, depth: usize, claimed: &mut Claimed) {
        let Claim { dva, bookmark, .. } = *claim;
        let (offset, size) = (dva.offset(), dva.asize());
        let Some(vdev) = self.vdevs.get(&dva.vdev()) else {
            if let Some(mapped) = self.removed.get(dva.vdev()).filter(|_| depth < DEPTH_MAX) {
                mapped.claim(offset, size);
                self.claim_mapped(mapped, claim, depth, claimed);
                return;
            }
            claimed.findings.push(Finding::OutOfRange { bookmark, dva });
            return;
        };
        let Some(at) = vdev.locate(offset, size) else {
            claimed.findings.push(Finding::OutOfRange { bookmark, dva });
            return;
        };
        let mut metaslab = vdev.metaslabs[at].lock();
        if metaslab.left.try_remove(offset, size) {
            return;
        }
        if !metaslab.allocated.contains(offset, size) {
            claimed
                .findings
                .push(Finding::NotAllocated { bookmark, dva });
        } else if claim.may_be_shared && !metaslab.left.overlaps(offset, size) {
            claimed.shared += 1;
            claimed.shared_bytes += size;
        } else {
            claimed
                .findings
                .push(Finding::AllocatedTwice { bookmark, dva });
        }
        metaslab.left.clear_range(offset, size);
    }

    /// Whether two segments are in one metaslab of one vdev.
    pub(crate) fn same_metaslab(tops: &[TopVdev], a: &DvaPhys, b: &DvaPhys) -> bool {
        let shift = tops.iter().find(|t| t.id == a.vdev()).map(|t| t.ms_shift);
        let shift = shift.unwrap_or(63);
        a.vdev() == b.vdev() && a.offset() >> shift == b.offset() >> shift
    }

    /// The segments that no block claimed.
    #[doc(alias = "zdb_leak_fini")]
    pub(crate) fn leaks(&self) -> Vec<Finding> {
        let mut leaks = Vec::new();
        for (id, vdev) in &self.vdevs {
            for metaslab in &vdev.metaslabs {
                let metaslab = metaslab.lock();
                leaks.extend(metaslab.left.iter().map(|(offset, size)| Finding::Leak {
                    vdev: *id,
                    offset,
                    size,
                }));
            }
        }
        leaks
    }
}

impl Metaslab {
    fn new() -> Self {
        Metaslab {
            allocated: RangeTree::new(),
            left: RangeTree::new(),
        }
    }

    fn apply(&mut self, kind: MapType, offset: u64, size: u64) -> Result<()> {
        let done = match kind {
            MapType::Alloc => self.allocated.try_add(offset, size),
            MapType::Free => self.allocated.try_remove(offset, size),
        };
        if done {
            return Ok(());
        }
        Err(Error::corrupt(format!(
            "{kind:?} of {offset:#x}+{size:#x} twice"
        )))
    }
}

fn outside(offset: u64, size: u64) -> Error {
    Error::corrupt(format!("segment {offset:#x}+{size:#x} is in no metaslab"))
}

fn scale(units: u64, shift: u32) -> Result<u64> {
    let scaled = units.checked_mul(1 << shift);
    scaled.ok_or_else(|| Error::corrupt(format!("{units} units of {} bytes", 1u64 << shift)))
}

fn load_vdev(mos: &Objset, top: &TopVdev, findings: &mut Vec<Finding>) -> Vdev {
    let mut vdev = Vdev {
        top: *top,
        metaslabs: Vec::new(),
    };
    vdev.metaslabs = (0..top.ms_count)
        .map(|_| rt::Mutex::new(Metaslab::new()))
        .collect();
    let objects = match metaslab_array(mos, top) {
        Ok(objects) => objects,
        Err(error) => {
            findings.push(Finding::BadSpaceMap {
                vdev: top.id,
                metaslab: MetaslabId(0),
                what: format!("metaslab array: {error}"),
            });
            return vdev;
        }
    };
    for (at, object) in objects
        .iter()
        .enumerate()
        .filter(|(_, object)| object.0 != 0)
    {
        let metaslab = MetaslabId(at as u64);
        let mut loaded = Metaslab::new();
        match load_map(mos, *object, &vdev, at, &mut loaded) {
            Ok(recorded) => {
                let counted = loaded.allocated.space();
                if i64::try_from(counted) != Ok(recorded) {
                    findings.push(Finding::SpaceMapSum {
                        vdev: top.id,
                        metaslab,
                        recorded,
                        counted,
                    });
                }
            }
            Err(error) => {
                findings.push(Finding::BadSpaceMap {
                    vdev: top.id,
                    metaslab,
                    what: error.to_string(),
                });
            }
        }
        vdev.metaslabs[at] = rt::Mutex::new(loaded);
    }
    vdev
}

/// Loads one space map into `metaslab`, and returns its smp_alloc.
fn load_map(
    mos: &Objset,
    object: ObjectId,
    vdev: &Vdev,
    at: usize,
    metaslab: &mut Metaslab,
) -> Result<i64> {
    let top = &vdev.top;
    let (range, shift) = (
        MetaslabId(at as u64).range(top.ms_shift, top.ms_align),
        top.ashift,
    );
    let (start, ms_size) = (range.start, range.end - range.start);
    let max = metaslab::length_max_bytes(ms_size, shift);
    let phys = for_each_entry(mos, object, max, &mut |range| {
        let (offset, size) = (scale(range.offset, shift)?, scale(range.run, shift)?);
        if size > ms_size || offset > ms_size - size {
            return Err(outside(offset, size));
        }
        metaslab.apply(range.map_type, start + offset, size)
    })?;
    Ok(phys.alloc.get())
}

fn metaslab_array(mos: &Objset, top: &TopVdev) -> Result<Vec<ObjectId>> {
    let words = read_words(mos, top.metaslab_array, top.ms_count)?;
    Ok(words.into_iter().map(ObjectId).collect())
}

fn read_words(mos: &Objset, object: ObjectId, count: u64) -> Result<Vec<u64>> {
    let dnode = mos.hold(object)?;
    let mut bytes = vec![0; usize::try_from(count * 8).unwrap_or_default()];
    dnode.read(0, &mut bytes)?;
    let (words, _) = bytes.as_chunks::<8>();
    Ok(words.iter().map(|w| u64::from_le_bytes(*w)).collect())
}

pub(crate) fn top_zap_object(mos: &Objset, top: &TopVdev, name: &str) -> Result<Option<ObjectId>> {
    let Some(zap) = top.top_zap else {
        return Ok(None);
    };
    Ok(zap::Zap::open(mos, zap)?.lookup_u64(name)?.map(ObjectId))
}

/// For each metaslab, the first txg whose log has changes that its own space map lacks.
fn unflushed_txgs(mos: &Objset, top: &TopVdev) -> Result<Vec<u64>> {
    let name = pool_names::VDEV_TOP_ZAP_MS_UNFLUSHED_PHYS_TXGS;
    match top_zap_object(mos, top, name)? {
        Some(object) => read_words(mos, object, top.ms_count),
        None => Ok(Vec::new()),
    }
}

/// Reads the entries of a space map object, which has at most `max_bytes` of them, in order; returns its
/// header.
pub(crate) fn for_each_entry(
    mos: &Objset,
    object: ObjectId,
    max_bytes: u64,
    each: &mut dyn FnMut(&SpaceMapRange) -> Result<()>,
) -> Result<SpaceMapPhys> {
    let dnode = mos.hold(object)?;
    if dnode.type_() != ObjectType::SPACE_MAP {
        let what = format!("object {object} is of type {}", dnode.type_());
        return Err(Error::corrupt(what));
    }
    let mut header = [0; SpaceMapPhys::SIZE];
    let bonus = dnode.bonus();
    let len = bonus.len().min(header.len());
    header[..len].copy_from_slice(&bonus[..len]);
    let phys = SpaceMapPhys::read(&header)?;
    let length = phys.length.get();
    if !length.is_multiple_of(8) || length > max_bytes {
        return Err(Error::corrupt(format!("smp_length is {length}")));
    }
    let covered = (dnode.maxblkid().0 + 1).saturating_mul(dnode.blksz());
    if length > covered {
        return Err(Error::corrupt(format!(
            "smp_length is {length} of {covered}"
        )));
    }
    dnode.check_dense(0, length)?;
    let mut offset = 0;
    while offset < length {
        let mut bytes = vec![0; READ_BYTES.min(length - offset) as usize];
        dnode.read(offset, &mut bytes)?;
        dnode.prefetch(offset + READ_BYTES, READ_BYTES);
        for entry in entries(&bytes) {
            if let SpaceMapEntry::Range(range) = entry? {
                each(&range)?;
            }
        }
        offset += bytes.len() as u64;
    }
    Ok(phys)
}
