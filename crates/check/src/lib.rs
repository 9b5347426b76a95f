//! Reading a whole pool and reporting what is wrong with it.
//!
//! # What it is
//! [`verify`] visits every block that a pool references, checks it against its pointer, and
//! compares the space that all blocks occupy with what the space maps say is allocated. This is
//! what `zdb -b` and `zdb -bcc` do, and covers what a scrub reads. The result is data:
//! [`BlockStats`] and a list of [`Finding`]s; front ends print them.
//!
//! A good checksum means that a block is what was written, not that what was written is valid;
//! whether it can be read is only known after decompressing it ([`Options::decompress`]).
//!
//! The checker relies as little as possible on the code that wrote the pool. It opens its own view
//! of the MOS at the last uberblock, walks the block pointers itself, and replays the space maps
//! itself; only ZAPs and objects of the MOS are read with the layers above.
//!
//! # Invariants
//! 1. The pool must not change on disk meanwhile: it is imported read-only, or does not sync.
//! 2. Nothing is written, except good bytes over bad copies, if the pipeline may heal.
//! 3. The same pool gives the same findings in the same order, whatever the number of threads.
//!
//! # Concurrency
//! Two phases alternate. *Walk*: threads share a stack of blocks that lead to others. *Verify*: the
//! blocks found are sorted by location and read by the same number of threads. All I/O is blocking,
//! so it takes more threads than cores to keep the devices busy.
//!
//! # Source
//! OpenZFS `cmd/zdb/zdb.c` (`dump_block_stats`), `module/zfs/dmu_traverse.c`,
//! `module/zfs/dsl_scan.c`.

mod accounting;
mod dedup;
mod entered;
mod findings;
mod leaves;
mod lists;
mod progress;
mod removed;
mod space;
mod stats;
#[cfg(test)]
mod tests;
mod walk;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use base::{Error, ErrorKind, ObjectId, ObjsetId, Result, SPA_MINBLOCKSHIFT, Txg, VdevId};
use dmu::traverse::Point;
use dmu::{FreeAtOnce, Objset, ObjsetProps};
use phys::{BlkPtrPhys, UberblockPhys, pool_names};
use vdev::{Vdev, VdevKind};
use zio::{AllocClass, BlockStore, Pipeline, Runs};

pub use dedup::{DedupRow, DedupSums, DedupTable};
pub use findings::{Finding, Severity};
pub use progress::{Progress, ProgressFn};
pub use removed::MappingObjects;
pub use stats::{Bin, BlockKind, BlockStats, Counts, SizeHistogram, TypeStats};

use space::Space;
use walk::{Tally, Walk};

/// What the checker needs to know about a top-level vdev.
#[derive(Clone, Copy, Debug)]
pub struct TopVdev {
    /// Its index below the root.
    pub id: VdevId,
    /// log2 of its sector
    pub ashift: u32,
    /// log2 of the size of its metaslabs
    pub ms_shift: u32,
    /// Metaslabs start and end at multiples of this.
    pub ms_align: u64,
    /// Number of metaslabs
    pub ms_count: u64,
    /// Its allocation class.
    pub class: AllocClass,
    /// The object that lists its space map objects.
    pub metaslab_array: ObjectId,
    /// `com.delphix:vdev_zap_top`
    pub top_zap: Option<ObjectId>,
    /// Whether it has space of its own: not a hole, missing, or removed.
    pub is_concrete: bool,
    /// Where its blocks are, if it was removed, or those that were copied if it is being removed.
    pub mapping: Option<MappingObjects>,
}

impl TopVdev {
    /// A vdev whose config comes from the MOS.
    #[must_use]
    pub fn of(id: VdevId, vdev: &Vdev) -> Self {
        let config = vdev.config();
        let is_placeholder = matches!(
            vdev.kind(),
            VdevKind::Hole | VdevKind::Missing | VdevKind::Indirect
        );
        TopVdev {
            id,
            ashift: config.ashift,
            ms_shift: config.ms_shift,
            ms_align: vdev.metaslab_align(),
            ms_count: if is_placeholder {
                0
            } else {
                vdev.metaslab_count()
            },
            class: config.class(),
            metaslab_array: ObjectId(config.ms_array),
            top_zap: Some(ObjectId(config.top_zap)).filter(|object| object.0 != 0),
            is_concrete: !is_placeholder && config.ms_array != 0,
            mapping: (config.indirect_object != 0).then_some(MappingObjects {
                mapping: ObjectId(config.indirect_object),
                births: ObjectId(config.indirect_births),
            }),
        }
    }
}

/// The pool to check.
#[derive(Clone)]
pub struct Pool {
    /// Reads the blocks.
    pub pipeline: Arc<Pipeline>,
    /// ub_rootbp of the last uberblock on disk
    pub root: BlkPtrPhys,
    /// ub_txg of the last uberblock on disk
    pub txg: Txg,
    /// Blocks of intent logs that were born then or later are not allocated, unless they are claimed.
    pub unclaimed: Txg,
    /// Every top-level vdev.
    pub tops: Vec<TopVdev>,
}

impl Pool {
    /// An imported pool, as the last uberblock on disk has it.
    #[must_use]
    pub fn of(spa: &spa::Spa) -> Self {
        let tops = spa.parts().tree().tops();
        let tops = tops
            .iter()
            .enumerate()
            .map(|(id, top)| TopVdev::of(VdevId(id as u64), top));
        Pool::new(
            spa.parts().pipeline().clone(),
            &spa.uberblock(),
            tops.collect(),
        )
    }

    /// The pool as `uberblock` has it.
    #[must_use]
    pub fn new(pipeline: Arc<Pipeline>, uberblock: &UberblockPhys, tops: Vec<TopVdev>) -> Self {
        Pool {
            pipeline,
            root: uberblock.rootbp,
            txg: Txg(uberblock.txg.get()),
            unclaimed: uberblock.min_claim_txg(),
            tops,
        }
    }

    /// `bp_get_dsize`: the bytes charged to datasets for a block. Parity is discounted by its share
    /// of a 128 KiB block.
    #[doc(alias = "bp_get_dsize")]
    pub(crate) fn dsize(&self, bp: &BlkPtrPhys) -> u64 {
        let vdevs = self.pipeline.vdevs();
        let deflated = |dva: phys::DvaPhys| {
            (dva.asize() >> SPA_MINBLOCKSHIFT) * vdevs.deflate_ratio(dva.vdev())
        };
        bp.dvas().map(deflated).sum()
    }

    fn open_mos(&self) -> Result<Arc<Objset>> {
        let store: Arc<dyn BlockStore> = self.pipeline.clone();
        let accounting = Arc::new(FreeAtOnce(store.clone()));
        Objset::open(
            store,
            ObjsetId(0),
            &self.root,
            ObjsetProps::mos(),
            accounting,
        )
    }
}

/// Which blocks are read to verify their checksums. Metadata that leads to other blocks is always
/// read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Checksums {
    /// No others (`zdb -b`).
    None,
    /// All metadata (`zdb -bc`).
    Metadata,
    /// Everything (`zdb -bcc`, scrub).
    #[default]
    All,
}

/// What to check, and with which resources.
#[derive(Clone)]
pub struct Options {
    /// Which blocks to read.
    pub checksums: Checksums,
    /// Of the blocks of files and volumes, only one in so many is read.
    pub sample: Option<u32>,
    /// Whether all copies are read (DVAs, sides of mirrors, parity), not only the first good one.
    pub every_copy: bool,
    /// Whether each block that is read is decompressed, too: the checksum only covers what was
    /// stored, valid or not (`zpool scrub -t`, `zdb -bccc`). Metadata that leads to other blocks
    /// always is.
    pub decompress: bool,
    /// Whether blocks are compared with the space maps (`zdb -L` does not).
    pub leaks: bool,
    /// Whether blocks of data are counted by checksum (`zdb -S`).
    pub dedup: bool,
    /// The objects whose blocks are verified; all, if `None`.
    pub only: Option<Arc<BTreeSet<(ObjsetId, ObjectId)>>>,
    /// Concurrent reads.
    pub threads: usize,
    /// How many blocks are gathered before they are sorted and read; about 200 bytes of memory
    /// each.
    pub leaves_max: usize,
    /// Called with the progress of the check.
    pub progress: Option<Arc<ProgressFn>>,
    /// Set to true to stop the check.
    pub cancel: Option<Arc<AtomicBool>>,
}

impl Default for Options {
    /// Everything, every copy, by its checksum.
    fn default() -> Self {
        Options {
            checksums: Checksums::All,
            sample: None,
            every_copy: true,
            decompress: false,
            leaks: true,
            dedup: false,
            only: None,
            threads: 8,
            leaves_max: 256 << 10,
            progress: None,
            cancel: None,
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Statistics of all blocks.
    pub stats: BlockStats,
    /// What is wrong, worst first; empty for a sound pool.
    pub findings: Vec<Finding>,
    /// Bytes allocated by vdev, as the space maps have it; empty without `leaks`.
    pub allocated: Vec<(VdevId, u64)>,
    /// Bytes of `allocated` that no pointer leads to: copies of what is on a vdev that is being removed, and those that
    /// only entries of dedup tables have.
    pub copied_bytes: u64,
    /// Bytes that only a checkpoint refers to, not in `allocated`.
    pub checkpoint_bytes: u64,
    /// Blocks of data by checksum; empty unless asked for.
    pub dedup: DedupTable,
    /// The progress at the end.
    pub progress: Progress,
}

impl Report {
    /// Whether nothing is wrong; warnings do not count.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings
            .iter()
            .all(|f| f.severity() == Severity::Warning)
    }

    /// Bytes allocated on all vdevs.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Bytes of all blocks, shared ones once, and of copies: equal to `allocated_bytes` if nothing leaked.
    #[must_use]
    pub fn found_bytes(&self) -> u64 {
        let blocks = self.stats.total().asize;
        blocks.saturating_sub(self.stats.shared_asize) + self.copied_bytes
    }
}

/// Checks a pool.
///
/// # Errors
/// Only when the MOS cannot be opened, or the check was cancelled (`Busy`): problems of the pool
/// are in the report.
#[doc(alias = "dump_block_stats")]
pub fn verify(pool: &Pool, options: &Options) -> Result<Report> {
    let mos = pool.open_mos()?;
    let mut tally = Tally::default();
    let mut space = None;
    let unchecked = uncheckable_space(pool, &mos);
    if let (true, Some(what)) = (options.leaks, &unchecked) {
        let what = format!("space: {what}");
        tally.findings.push(Finding::NotChecked { what });
    } else if options.leaks {
        space = Some(Space::load(&mos, &pool.tops, &mut tally.findings));
    }
    let has_clones =
        lists::directory_has_prefix(&mos, phys::brt::BRT_OBJECT_VDEV_PREFIX).unwrap_or(true);
    let walk = Walk::new(pool.clone(), options.clone(), space, has_clones);
    count_lists(&walk, &mos, &mut tally);
    walk.push_root(&pool.root, &mut tally);
    while !walk.progress.is_cancelled() {
        let shared = walk.clone();
        run_threads(options.threads, &mut tally, move || shared.run());
        let leaves = std::mem::take(&mut *walk.leaves.lock());
        let is_last = walk.is_done();
        let (runs, shared) = (Runs::new(leaves), walk.clone());
        run_threads(options.threads, &mut tally, move || {
            leaves::verify(&runs, &shared.pool, &shared.options, &shared.progress)
        });
        if is_last {
            break;
        }
    }
    if walk.progress.is_cancelled() {
        return Err(Error::new(ErrorKind::Busy, "the check was cancelled"));
    }
    accounting::check(pool, &mos, &mut tally);
    let space = walk.space.as_ref();
    let entered = space.map_or(0, |space| entered::claim(&mos, space, &mut tally));
    let mut report = report(&walk, tally);
    report.copied_bytes += entered;
    let (found, allocated) = (report.found_bytes(), report.allocated_bytes());
    if walk.space.is_some() && found != allocated {
        report.findings.push(Finding::BlockSum { found, allocated });
    }
    report.findings.sort_by_cached_key(Finding::sort_key);
    // A block with two bad copies is reported once for each of them.
    report.findings.dedup();
    Ok(report)
}

/// Why the space maps cannot be compared with the blocks, if they cannot.
fn uncheckable_space(pool: &Pool, mos: &Objset) -> Option<&'static str> {
    let has = |name| matches!(zap::directory::find(mos, name), Ok(Some(_)));
    if has(pool_names::OBSOLETE_BPOBJ) {
        return Some("blocks were remapped");
    }
    let used = pool
        .tops
        .iter()
        .find(|top| !top.is_concrete && top.ms_count > 0);
    used.map(|_| "a vdev is missing")
}

/// How many pointers of a list are collected before they are counted.
const COUNTED_TOGETHER: usize = 4096;

/// Counts the blocks that were freed but not yet returned to the allocator.
fn count_lists(walk: &Walk, mos: &Objset, tally: &mut Tally) {
    let unread = |what: &str, error: &Error| Finding::NotChecked {
        what: format!("{what}: {error}"),
    };
    for name in [pool_names::SYNC_BPOBJ, pool_names::FREE_BPOBJ] {
        let mut bps = Vec::new();
        let mut findings = Vec::new();
        let mut take = |bp: &BlkPtrPhys| {
            bps.push(*bp);
            if bps.len() == COUNTED_TOGETHER {
                walk.count_deferred(&std::mem::take(&mut bps), tally);
            }
        };
        let result = zap::directory::find(mos, name).and_then(|object| match object {
            Some(object) => {
                let dsize = |bp: &BlkPtrPhys| walk.pool.dsize(bp);
                lists::each_bp(mos, object, &mut take, &mut findings, &dsize)
            }
            None => Ok(()),
        });
        tally.findings.append(&mut findings);
        walk.count_deferred(&bps, tally);
        if let Err(error) = result {
            tally.findings.push(unread(name, &error));
        }
    }
    let destroyed = zap::directory::find(mos, pool_names::BPTREE_OBJ)
        .and_then(|object| object.map_or(Ok(Vec::new()), |o| lists::bptree_entries(mos, o)));
    match destroyed {
        Ok(entries) => {
            for entry in entries {
                let (min_txg, resume) = (entry.birth_txg.get(), Point::from_phys(&entry.bookmark));
                walk.push_destroyed(&entry.bp, Txg(min_txg), resume, tally);
            }
        }
        Err(error) => tally.findings.push(unread(pool_names::BPTREE_OBJ, &error)),
    }
    let livelists = zap::directory::find(mos, pool_names::DELETED_CLONES);
    let count = livelists.and_then(|zap| zap.map_or(Ok(0), |z| zap::Zap::open(mos, z)?.count()));
    if !matches!(count, Ok(0)) {
        let what = "livelists of deleted clones".to_owned();
        tally.findings.push(Finding::NotChecked { what });
    }
}

fn run_threads(count: usize, tally: &mut Tally, work: impl Fn() -> Tally + Send + Sync + 'static) {
    let work = Arc::new(work);
    let threads: Vec<_> = (0..count.max(1))
        .map(|i| {
            let work = work.clone();
            rt::spawn(&format!("check/{i}"), move || work())
        })
        .collect();
    for thread in threads {
        tally.add(thread.join());
    }
}

fn report(walk: &Walk, tally: Tally) -> Report {
    let mut report = Report {
        stats: tally.stats,
        findings: tally.findings,
        dedup: tally.dedup,
        progress: walk.progress.now(),
        ..Report::default()
    };
    if let Some(space) = &walk.space {
        report.allocated = space.by_vdev().collect();
        report.checkpoint_bytes = space.checkpoint;
        report.copied_bytes = space.copied;
        report.findings.extend(space.leaks());
        report.findings.extend(space.wrong_obsolete_counts());
    }
    report
}

/// The dsize of everything below the block of an objset.
#[cfg(test)]
fn walk_for_tests(pool: &Pool, root: &BlkPtrPhys) -> u64 {
    let options = Options {
        checksums: Checksums::None,
        ..Options::default()
    };
    let walk = Walk::new(pool.clone(), options, None, false);
    let mut tally = Tally::default();
    walk.push_root(root, &mut tally);
    tally.add(walk.run());
    tally.born.values().sum()
}

/// How many blocks below an objset block a destroy resumed at `resume` has still to free.
#[cfg(test)]
fn count_destroyed_for_tests(pool: &Pool, root: &BlkPtrPhys, resume: Option<Point>) -> u64 {
    let walk = Walk::new(pool.clone(), Options::default(), None, false);
    let mut tally = Tally::default();
    walk.push_destroyed(root, Txg(0), resume, &mut tally);
    tally.add(walk.run());
    assert!(tally.findings.is_empty(), "{:?}", tally.findings);
    tally.stats.total().count
}

/// The location of all metadata.
#[cfg(test)]
fn metadata_for_tests(pool: &Pool) -> Vec<(VdevId, u64, u64)> {
    let options = Options {
        checksums: Checksums::Metadata,
        ..Options::default()
    };
    let walk = Walk::new(pool.clone(), options, None, false);
    walk.push_root(&pool.root, &mut Tally::default());
    walk.run();
    let leaves = walk.leaves.lock();
    leaves.iter().map(zio::BlockCopy::segment).collect()
}
