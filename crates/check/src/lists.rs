//! Lists of block pointers in the MOS: blocks that were freed but not yet returned to the
//! allocator.
//!
//! # On disk
//! A `bpobj` is an object of block pointers, with counts in its bonus and possibly an object of
//! further bpobjs. The pool directory names two: `sync_bplist`, frees of the last txg's later sync
//! passes, and `free_bpobj`, blocks left by destroyed snapshots. `bptree_obj` is a queue of whole
//! datasets that are being destroyed.
//!
//! # Source
//! OpenZFS `module/zfs/bpobj.c`, `module/zfs/bptree.c`, `cmd/zdb/zdb.c` (`dump_block_stats`).

use std::collections::BTreeSet;
use std::ops::Range;

use base::{Context, Error, ObjectId, Result};
use dmu::{Dnode, Objset};
use phys::dsl::{BPOBJ_SIZE_V0, BPOBJ_SIZE_V1};
use phys::{BlkPtrPhys, BpobjPhys, BptreeEntryPhys, BptreePhys, Phys};

use crate::Finding;

/// Block pointers read at once.
const CHUNK: u64 = 1024;
/// Maximum nesting of bpobjs; real ones are two or three deep.
const DEPTH_MAX: usize = 64;

/// Whether the pool directory has an entry whose name starts with `prefix`.
pub(crate) fn directory_has_prefix(mos: &Objset, prefix: &str) -> Result<bool> {
    let directory = zap::Zap::open(mos, zap::directory::OBJECT)?;
    for entry in &directory {
        if entry?.name.starts_with(prefix.as_bytes()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The structure in a bonus; fields missing from a short bonus of an old version are zero.
pub(crate) fn bonus<T: Phys>(dnode: &Dnode, least: usize) -> Result<T> {
    let bonus = dnode.bonus();
    if bonus.len() < least {
        return Err(Error::corrupt(format!("bonus of {} bytes", bonus.len())));
    }
    let mut bytes = vec![0; T::SIZE];
    let len = bonus.len().min(bytes.len());
    bytes[..len].copy_from_slice(&bonus[..len]);
    T::read(&bytes)
}

/// Visits every block pointer of a bpobj and its subobjs.
///
/// # Errors
/// Any read error, and `Corrupt` for a bpobj that is found twice.
pub(crate) fn each_bp(
    mos: &Objset,
    object: ObjectId,
    each: &mut dyn FnMut(&BlkPtrPhys),
    findings: &mut Vec<Finding>,
    dsize: &dyn Fn(&BlkPtrPhys) -> u64,
) -> Result<()> {
    let mut seen = BTreeSet::new();
    visit(mos, object, each, findings, dsize, &mut seen, 0).map(|_| ())
}

/// Visits one bpobj and its subobjs; returns the total bytes of all entries.
fn visit(
    mos: &Objset,
    object: ObjectId,
    each: &mut dyn FnMut(&BlkPtrPhys),
    findings: &mut Vec<Finding>,
    dsize: &dyn Fn(&BlkPtrPhys) -> u64,
    seen: &mut BTreeSet<ObjectId>,
    depth: usize,
) -> Result<u64> {
    if !seen.insert(object) {
        return Err(Error::corrupt(format!("bpobj {object} is found twice")));
    }
    if depth > DEPTH_MAX {
        return Err(Error::corrupt(format!("bpobj {object} is {depth} deep")));
    }
    let dnode = mos.hold(object)?;
    let header: BpobjPhys = bonus(&dnode, BPOBJ_SIZE_V0).within(|| format!("bpobj {object}"))?;
    let has_sizes = dnode.bonus().len() >= BPOBJ_SIZE_V1;
    let count = header.num_blkptrs.get();
    check_entries(&dnode, 0..count, BlkPtrPhys::SIZE as u64)?;
    let mut counted = 0u64;
    let mut at = 0;
    while at < count {
        let n = CHUNK.min(count - at);
        let mut bytes = vec![0; n as usize * BlkPtrPhys::SIZE];
        dnode.read(at * BlkPtrPhys::SIZE as u64, &mut bytes)?;
        for bp in BlkPtrPhys::array(&bytes) {
            counted = counted.saturating_add(dsize(bp));
            each(bp);
        }
        at += n;
    }
    if has_sizes && header.subobjs.get() != 0 {
        let subobjs = mos.hold(ObjectId(header.subobjs.get()))?;
        let count = header.num_subobjs.get();
        check_entries(&subobjs, 0..count, 8)?;
        for i in 0..count {
            let mut word = [0; 8];
            subobjs.read(i * 8, &mut word)?;
            let sub = ObjectId(u64::from_le_bytes(word));
            let below = visit(mos, sub, each, findings, dsize, seen, depth + 1)?;
            counted = counted.saturating_add(below);
        }
    }
    let recorded = header.bytes.get();
    if recorded != counted {
        findings.push(Finding::ListSum {
            object,
            recorded,
            counted,
        });
    }
    Ok(counted)
}

/// Checks that the entries are within the object, and backed by blocks.
fn check_entries(dnode: &Dnode, entries: Range<u64>, each_bytes: u64) -> Result<()> {
    let room = (dnode.maxblkid().0 + 1).saturating_mul(dnode.blksz());
    let count = entries.end;
    let end = count.checked_mul(each_bytes).filter(|end| *end <= room);
    if let Some(end) = end
        && entries.start <= count
    {
        let start = entries.start * each_bytes;
        return dnode.check_dense(start, end - start);
    }
    let object = dnode.id();
    Err(Error::corrupt(format!(
        "bpobj {object} has {count} entries in {room} bytes"
    )))
}

/// Far more datasets than are destroyed at a time.
const BPTREE_ENTRIES_MAX: u64 = 1 << 20;

/// The entries of the bptree: datasets that are being destroyed.
pub(crate) fn bptree_entries(mos: &Objset, object: ObjectId) -> Result<Vec<BptreeEntryPhys>> {
    let dnode = mos.hold(object)?;
    let header: BptreePhys = bonus(&dnode, BptreePhys::SIZE)?;
    let (begin, end) = (header.begin.get(), header.end.get());
    if end.saturating_sub(begin) > BPTREE_ENTRIES_MAX {
        let what = format!("bptree {object} has entries {begin}..{end}");
        return Err(Error::corrupt(what));
    }
    check_entries(&dnode, begin..end, BptreeEntryPhys::SIZE as u64)?;
    (begin..end)
        .map(|i| {
            let mut bytes = [0; BptreeEntryPhys::SIZE];
            dnode.read(i * BptreeEntryPhys::SIZE as u64, &mut bytes)?;
            BptreeEntryPhys::read(&bytes)
        })
        .collect()
}
