use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{BlkId, Buf, ErrorKind, ObjectId, ObjsetId, Result, Txg};
use compress::Algorithm;
use phys::{BlkPtrPhys, ObjectType};
use proptest::prelude::*;
use ram::RamStore;
use zio::{BlockStore, Bookmark, Run, UnderWay, WritePolicy, WriteRequest};

use crate::policy::{PASSED_BLOCKS, Passing, Reader, charge};
use crate::{ArcSettings, Cache};

const DATA: u8 = ObjectType::PLAIN_FILE_CONTENTS.raw();

fn cache(limit_bytes: u64) -> Cache<RamStore> {
    let settings = ArcSettings {
        limit_bytes,
        ..ArcSettings::default()
    };
    Cache::new(Arc::new(RamStore::new()), settings)
}

const BLOCK: usize = 65_536;

/// A cache that holds `blocks` blocks of [`BLOCK`] bytes, and remembers as many evicted ones.
fn cache_of(blocks: u64) -> Cache<RamStore> {
    cache(blocks * (charge(BLOCK as u64) + charge(0)))
}

fn bookmark() -> Bookmark {
    Bookmark::new(ObjsetId(1), ObjectId(2), 0, BlkId(3))
}

fn request(len: usize, fill: u8, type_: u8) -> WriteRequest {
    let policy = WritePolicy {
        compress: Algorithm::Off,
        ..WritePolicy::default()
    };
    let mut data = Buf::zeroed(len);
    data.make_mut().fill(fill);
    WriteRequest::new(data, policy, type_, bookmark())
}

impl Cache<RamStore> {
    fn put(&self, len: usize, fill: u8) -> BlkPtrPhys {
        self.write(Txg(9), request(len, fill, DATA)).unwrap()
    }

    fn get(&self, bp: &BlkPtrPhys) -> Result<Buf> {
        self.read(bp, &bookmark())
    }

    fn reads_below(&self) -> u64 {
        self.store().stats().reads
    }
}

#[test]
fn written_blocks_are_read_from_memory_until_they_are_freed() {
    let cache = cache(1 << 20);
    let bp = cache.put(4096, 7);
    assert_eq!(cache.get(&bp).unwrap()[0], 7);
    assert_eq!(cache.reads_below(), 0);
    cache.free(Txg(9), &bp);
    assert!(!cache.is_cached(&bp));
    assert_eq!(cache.stats().bytes.cached(), 0);
}

#[test]
fn written_file_contents_may_pass_by() {
    let settings = ArcSettings {
        cache_written_data: false,
        ..ArcSettings::default()
    };
    let cache = Cache::new(Arc::new(RamStore::new()), settings);
    let data = cache.put(4096, 1);
    let dnodes = request(4096, 2, ObjectType::DNODE.raw());
    let dnodes = cache.write(Txg(9), dnodes).unwrap();
    assert!(!cache.is_cached(&data) && cache.is_cached(&dnodes));
}

#[test]
fn file_contents_that_are_kept_above_are_not_cached_twice() {
    let cache = cache(1 << 20);
    let kept = |fill, type_: ObjectType| WriteRequest {
        kept_above: true,
        ..request(4096, fill, type_.raw())
    };
    let old = cache.put(4096, 1);
    let mut again = kept(2, ObjectType::PLAIN_FILE_CONTENTS);
    again.rewrite = Some(old);
    let data = cache.write(Txg(9), again).unwrap();
    let dnodes = cache.write(Txg(9), kept(3, ObjectType::DNODE)).unwrap();
    assert!(!cache.is_cached(&old) && !cache.is_cached(&data));
    assert!(cache.is_cached(&dnodes));
    assert_eq!(cache.get(&data).unwrap()[0], 2);
    assert!(cache.is_cached(&data), "it was asked for");
}

#[test]
fn a_rewrite_replaces_what_is_cached() {
    let cache = cache(1 << 20);
    let old = cache.put(4096, 1);
    let mut again = request(4096, 2, DATA);
    again.rewrite = Some(old);
    let new = cache.write(Txg(9), again).unwrap();
    assert_eq!(new.identity(), old.identity());
    assert_eq!(cache.get(&new).unwrap()[0], 2);
    // A reader with the old pointer gets an error from the checksum below, not the new bytes.
    assert_eq!(cache.get(&old).unwrap_err().kind(), ErrorKind::Checksum);
}

#[test]
fn a_cache_of_more_than_there_is_packs_what_repeats_and_evicts_the_rest() {
    let settings = ArcSettings {
        limit_bytes: 64 << 20,
        real_bytes: Some(4 << 20),
        ..ArcSettings::default()
    };
    let cache = Cache::new(Arc::new(RamStore::new()), settings);
    let repeats: Vec<BlkPtrPhys> = (0..250).map(|fill| cache.put(2 * BLOCK, fill)).collect();
    for _ in 0..2 {
        for (fill, bp) in (0..).zip(&repeats) {
            assert!(cache.get(bp).unwrap().iter().all(|byte| *byte == fill));
        }
    }
    let stats = cache.stats();
    assert_eq!((cache.reads_below(), stats.evictions), (0, 0));
    assert!(stats.bytes.cached() > 31 << 20 && stats.real_bytes < 2 << 20);
    let noise = |seed: u64| {
        let mut state = seed;
        let mut request = request(2 * BLOCK, 0, DATA);
        let data = request.data.make_mut();
        data.fill_with(|| rt::splitmix64(&mut state) as u8);
        cache.write(Txg(9), request).unwrap()
    };
    let noises: Vec<BlkPtrPhys> = (0..100).map(noise).collect();
    let stats = cache.stats();
    assert!(stats.real_bytes <= 4 << 20, "{stats:?}");
    assert!(stats.evictions_for_room >= 70, "{stats:?}");
    assert!(cache.is_cached(&noises[99]) && !cache.is_cached(&noises[0]));
    cache.check_invariants();
    // A bound for one's own memory packs nothing.
    let plain = cache_of(4);
    plain.put(BLOCK, 1);
    assert_eq!(plain.stats().real_bytes, BLOCK as u64);
}

#[test]
fn a_scan_does_not_push_out_what_is_used_frequently() {
    let cache = cache_of(64);
    let hot: Vec<BlkPtrPhys> = (0..16).map(|i| cache.put(BLOCK, i)).collect();
    for bp in &hot {
        cache.get(bp).unwrap();
    }
    let cold: Vec<BlkPtrPhys> = (0..1000).map(|_| cache.put(BLOCK, 99)).collect();
    cache.flush_cache();
    for bp in hot.iter().chain(&hot) {
        cache.get(bp).unwrap();
    }
    for bp in &cold {
        cache.get(bp).unwrap();
    }
    let before = cache.reads_below();
    for bp in &hot {
        cache.get(bp).unwrap();
    }
    assert_eq!(
        cache.reads_below(),
        before,
        "hot blocks were evicted by a scan"
    );
}

/// A block of a file that is in the store but not in the cache.
fn below(cache: &Cache<RamStore>) -> BlkPtrPhys {
    let request = request(BLOCK, 99, DATA);
    cache.store().write(Txg(9), request).unwrap()
}

/// A reader at block `at` of a file of `blocks` blocks.
fn run(at: usize, blocks: usize) -> Run {
    let bytes = |n: usize| (n * BLOCK) as u64;
    Run {
        bytes: bytes(at),
        object_bytes: bytes(blocks),
    }
}

#[test]
fn a_long_stream_that_is_read_gives_up_its_own_blocks() {
    let cache = cache_of(64);
    let kept: Vec<BlkPtrPhys> = (0..16).map(|i| cache.put(BLOCK, i)).collect();
    let stream: Vec<BlkPtrPhys> = (0..500).map(|_| below(&cache)).collect();
    for (i, bp) in stream.iter().enumerate() {
        cache.prefetch_run(base::ObjsetId(0), &[*bp], run(i, 500));
        while !cache.is_cached(bp) {
            std::thread::yield_now();
        }
        assert_eq!(cache.get(bp).unwrap()[0], 99);
    }
    // A quarter of the cache for its head, and a sixteenth for what was read last: that is often asked
    // for again, piece by piece. It takes no more than that, though there would be room.
    assert_eq!(
        cache.stats().bytes.cached(),
        (16 + 17 + 4 + 1) * charge(BLOCK as u64)
    );
    assert!(kept.iter().all(|bp| cache.is_cached(bp)));
    assert!(stream[..17].iter().all(|bp| cache.is_cached(bp)));
    assert!(stream[496..].iter().all(|bp| cache.is_cached(bp)));
    assert!(!cache.is_cached(&stream[300]));
}

/// How many blocks of `len` bytes a cache of 64 MiB keeps behind a reader in the middle of a long
/// stream.
fn kept_behind(len: usize) -> usize {
    let cache = cache(64 << 20);
    let write = |_| cache.store().write(Txg(9), request(len, 99, DATA)).unwrap();
    let stream: Vec<BlkPtrPhys> = (0..2 * PASSED_BLOCKS).map(write).collect();
    let run = Run {
        bytes: 1 << 30,
        object_bytes: 2 << 30,
    };
    for bp in &stream {
        cache.read_run(&[(*bp, bookmark())], run);
    }
    stream.iter().filter(|bp| cache.is_cached(bp)).count()
}

#[test]
fn behind_a_reader_some_blocks_are_kept_whatever_their_size() {
    // Sixteen, and the one that comes in; all of them while they are few bytes.
    assert_eq!(kept_behind(4096), 2 * PASSED_BLOCKS);
    assert_eq!(kept_behind(128 << 10), PASSED_BLOCKS + 1);
    // No more than a sixteenth of the cache, but the last one always.
    assert_eq!(kept_behind(1 << 20), 4);
    assert_eq!(kept_behind(8 << 20), 2);
}

#[test]
fn a_stream_that_the_cache_can_hold_gives_up_its_own_blocks_when_there_is_no_room() {
    let cache = cache_of(64);
    let kept: Vec<BlkPtrPhys> = (0..24).map(|i| cache.put(BLOCK, i)).collect();
    let stream: Vec<BlkPtrPhys> = (0..64).map(|_| below(&cache)).collect();
    for (i, bp) in stream.iter().enumerate() {
        cache.read_run(&[(*bp, bookmark())], run(i, 64));
        assert!(i >= 40 || stream[..=i].iter().all(|bp| cache.is_cached(bp)));
    }
    assert!(kept.iter().all(|bp| cache.is_cached(bp)));
    assert!(!cache.is_cached(&stream[40]));
}

/// The reader of a long stream was faster than those that read ahead, and has passed blocks that wait for them.
#[test]
fn what_was_passed_meanwhile_is_not_read_ahead() {
    let cache = cache(64 << 20);
    let run = Run {
        bytes: 1 << 30,
        object_bytes: 2 << 30,
    };
    let queue = || cache.inner.policy.lock().queue();
    let read_ahead = |bp: BlkPtrPhys, queued: u64| {
        let (objset, reader) = (ObjsetId(1), Reader::default());
        let before = cache.reads_below();
        cache.inner.prefetch(&crate::prefetch::Ahead {
            bp,
            objset,
            reader,
            queued,
        });
        cache.reads_below() - before
    };
    let write = |_| {
        let request = request(128 << 10, 99, DATA);
        cache.store().write(Txg(9), request).unwrap()
    };
    let stream: Vec<BlkPtrPhys> = (0..2 * PASSED_BLOCKS).map(write).collect();
    let before = queue();
    for bp in &stream {
        cache.read_run(&[(*bp, bookmark())], run);
    }
    let passed = &stream[..PASSED_BLOCKS - 1];
    for bp in passed {
        assert!(!cache.is_cached(bp));
        assert_eq!(read_ahead(*bp, before), 0);
    }
    // One that reads it anew is kept ahead of.
    assert_eq!(read_ahead(stream[0], queue()), 1);
    assert!(cache.is_cached(&stream[0]));
}

#[test]
fn a_stream_that_nobody_reads_ahead_of_gives_up_its_own_blocks_as_well() {
    let cache = cache_of(64);
    let kept: Vec<BlkPtrPhys> = (0..16).map(|i| cache.put(BLOCK, i)).collect();
    for at in 0..500 {
        let bp = below(&cache);
        let read = cache.read_run(&[(bp, bookmark())], run(at, 500));
        assert_eq!(read[0].as_ref().unwrap()[0], 99);
    }
    assert!(cache.stats().bytes.cached() <= 64 * charge(BLOCK as u64));
    assert!(kept.iter().all(|bp| cache.is_cached(bp)));
}

#[test]
fn a_run_is_answered_in_its_order_and_block_by_block() {
    let cache = cache(1 << 20);
    let bps: Vec<BlkPtrPhys> = (0..8).map(|i| cache.put(4096, i)).collect();
    cache.flush_cache();
    cache.get(&bps[6]).unwrap();
    cache.store().damage(&bps[3]);
    let wanted: Vec<_> = bps.iter().map(|bp| (*bp, bookmark())).collect();
    for (i, result) in cache
        .read_run(&wanted, Run::default())
        .into_iter()
        .enumerate()
    {
        match result {
            Ok(buf) => assert_eq!(usize::from(buf[0]), i),
            Err(error) => assert_eq!((i, error.kind()), (3, ErrorKind::Checksum)),
        }
    }
}

/// Blocks of one file, written in sequence.
fn contents(blocks: impl Iterator<Item = u64>) -> Vec<WriteRequest> {
    let at = |blkid| Bookmark::new(ObjsetId(1), ObjectId(2), 0, BlkId(blkid));
    let data = |blkid| WriteRequest {
        bookmark: at(blkid),
        run: Run {
            bytes: (blkid + 1) * BLOCK as u64,
            object_bytes: u64::MAX,
        },
        ..request(BLOCK, 1, DATA)
    };
    blocks.map(data).collect()
}

#[test]
fn a_stream_that_is_written_by_the_sync_and_behind_it_is_one_for_both() {
    let cache = cache_of(64);
    let (mut synced, mut behind) = (Vec::new(), Vec::new());
    for first in (0..400).step_by(8) {
        // Of eight blocks, the sync writes the fourth and the last two, while others are written ahead.
        let later = contents([0, 1, 2, 4, 5].map(|n| first + 80 + n).into_iter());
        let mut under_way = UnderWay::behind();
        behind.extend(cache.begin_batch(Txg(10), later, &mut under_way).unwrap());
        under_way.wait().unwrap();
        let now = contents([3, 6, 7].map(|n| first + n).into_iter());
        synced.extend(cache.write_batch(Txg(9), now).unwrap());
    }
    let kept = |bps: &[BlkPtrPhys]| bps.iter().filter(|bp| cache.is_cached(bp)).count();
    // A quarter of the cache for its head, a sixteenth for its end.
    assert!(synced[..6].iter().all(|bp| cache.is_cached(bp)));
    assert!(kept(&behind) + kept(&synced) <= 16 + 4);
    assert_eq!(cache.store().stats().behind, behind.len() as u64);
}

#[test]
fn of_a_long_stream_that_is_written_head_and_end_are_kept() {
    let cache = cache_of(64);
    let write = |blocks| cache.write_batch(Txg(9), contents(blocks)).unwrap();
    // A quarter of the cache is 16 blocks of the head, a sixteenth 4 of the end.
    let first = write(0..64);
    assert!(first[..16].iter().all(|bp| cache.is_cached(bp)));
    assert!(first[16..59].iter().all(|bp| !cache.is_cached(bp)));
    assert!(first[60..].iter().all(|bp| cache.is_cached(bp)));
    let rest = write(64..192);
    assert!(first[..16].iter().all(|bp| cache.is_cached(bp)));
    assert!(first[16..].iter().all(|bp| !cache.is_cached(bp)));
    assert!(rest[..123].iter().all(|bp| !cache.is_cached(bp)));
    // Other writes are cached as before.
    let other = cache.put(4096, 1);
    assert!(cache.is_cached(&other));
}

#[test]
fn the_boundary_follows_ghost_hits() {
    let cache = cache_of(8);
    let bps: Vec<BlkPtrPhys> = (0..24).map(|i| cache.put(BLOCK, i)).collect();
    cache.flush_cache();
    let target = cache.stats().bytes.mru_target;
    // Two blocks are frequent, so that MRU is not all there is.
    for bp in bps[..2].iter().chain(&bps[..2]) {
        cache.get(bp).unwrap();
    }
    for bp in &bps[2..12] {
        cache.get(bp).unwrap();
    }
    // Just evicted from MRU: MRU should have been larger.
    cache.get(&bps[5]).unwrap();
    let stats = cache.stats();
    assert_eq!(stats.ghost_hits, 1);
    assert!(stats.bytes.mru_target > target);
    assert!(stats.bytes.cached() <= 8 * charge(BLOCK as u64));
}

#[test]
fn blocks_larger_than_the_cache_pass_by() {
    let cache = cache(8192);
    let small = cache.put(4096, 1);
    let large = cache.put(16_384, 2);
    assert_eq!(cache.get(&large).unwrap()[9], 2);
    assert!(cache.is_cached(&small) && !cache.is_cached(&large));
}

#[test]
fn small_blocks_are_counted_as_what_they_take_from_memory() {
    let cache = cache(1 << 20);
    let bps: Vec<BlkPtrPhys> = (0..10_000).map(|_| cache.put(512, 1)).collect();
    let cached = bps.iter().filter(|bp| cache.is_cached(bp)).count() as u64;
    let stats = cache.stats();
    assert_eq!(stats.bytes.cached(), cached * charge(512));
    assert_eq!(cached, (1 << 20) / charge(512));
}

#[test]
fn errors_are_not_cached() {
    let cache = cache(1 << 20);
    let bp = cache.put(4096, 1);
    cache.flush_cache();
    cache.store().damage(&bp);
    for _ in 0..2 {
        assert_eq!(cache.get(&bp).unwrap_err().kind(), ErrorKind::Checksum);
    }
    cache.store().damage(&bp);
    assert_eq!(cache.get(&bp).unwrap()[0], 1);
}

/// A store whose reads take time, and which counts how many are in flight for one block.
struct Slow(RamStore);

impl BlockStore for Slow {
    fn read(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        rt::sleep_ns(5_000_000);
        self.0.read(bp, bookmark)
    }
    fn write_batch(&self, txg: Txg, requests: Vec<WriteRequest>) -> Result<Vec<BlkPtrPhys>> {
        self.0.write_batch(txg, requests)
    }
    fn free(&self, txg: Txg, bp: &BlkPtrPhys) {
        self.0.free(txg, bp);
    }
}

#[test]
fn sim_concurrent_misses_read_once() {
    rt::simulate(3, || {
        let slow = Arc::new(Slow(RamStore::new()));
        let cache = Arc::new(Cache::new(slow.clone(), ArcSettings::default()));
        let bp = cache.write(Txg(9), request(4096, 5, DATA)).unwrap();
        cache.flush_cache();
        let readers: Vec<_> = (0..8)
            .map(|i| {
                let cache = cache.clone();
                rt::spawn(&format!("reader {i}"), move || {
                    cache.read(&bp, &bookmark()).unwrap()[17]
                })
            })
            .collect();
        assert!(readers.into_iter().all(|r| r.join() == 5));
        let stats = cache.stats();
        assert_eq!((slow.0.stats().reads, stats.misses, stats.joins), (1, 1, 7));
    });
}

#[test]
fn sim_prefetch_overlaps_reads() {
    rt::simulate(3, || {
        let slow = Arc::new(Slow(RamStore::new()));
        let cache = Cache::new(slow.clone(), ArcSettings::default());
        let bps: Vec<BlkPtrPhys> = (0..64)
            .map(|i| cache.write(Txg(9), request(4096, i, DATA)).unwrap())
            .collect();
        cache.flush_cache();
        let start = rt::now_ns();
        cache.prefetch(base::ObjsetId(0), &bps);
        for (i, bp) in bps.iter().enumerate() {
            assert_eq!(usize::from(cache.read(bp, &bookmark()).unwrap()[0]), i);
        }
        let elapsed = rt::now_ns() - start;
        assert_eq!(slow.0.stats().reads, 64, "nothing was read twice");
        assert!(elapsed < 64 * 5_000_000 / 3, "{elapsed} ns");
        assert!(cache.stats().prefetches > 40);
    });
}

#[test]
fn sim_who_waits_for_a_block_reads_others_meanwhile() {
    rt::simulate(5, || {
        let slow = Arc::new(Slow(RamStore::new()));
        let settings = ArcSettings {
            prefetch_threads: 1,
            ..ArcSettings::default()
        };
        let cache = Cache::new(slow.clone(), settings);
        let write = |i| {
            (
                cache.write(Txg(9), request(4096, i, DATA)).unwrap(),
                bookmark(),
            )
        };
        let wanted: Vec<_> = (0..16).map(write).collect();
        cache.flush_cache();
        let start_ns = rt::now_ns();
        let bps: Vec<BlkPtrPhys> = wanted.iter().map(|(bp, _)| *bp).collect();
        cache.prefetch(base::ObjsetId(0), &bps);
        rt::sleep_ns(1_000_000);
        let bufs = cache.read_run(&wanted, Run::default());
        let elapsed_ns = rt::now_ns() - start_ns;
        assert!(
            bufs.iter()
                .enumerate()
                .all(|(i, buf)| usize::from(buf.as_ref().unwrap()[0]) == i)
        );
        assert_eq!(slow.0.stats().reads, 16, "nothing was read twice");
        assert!(
            elapsed_ns <= 9 * 5_000_000,
            "two at a time took {elapsed_ns} ns"
        );
    });
}

#[derive(Clone, Debug)]
enum Step {
    Write { sectors: usize, fill: u8 },
    Read(usize),
    Prefetch(usize),
    Free(usize),
    Dirty(u64),
    Flush,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..40usize, any::<u8>()).prop_map(|(sectors, fill)| Step::Write { sectors, fill }),
        8 => any::<usize>().prop_map(Step::Read),
        2 => any::<usize>().prop_map(Step::Prefetch),
        2 => any::<usize>().prop_map(Step::Free),
        1 => (0..200_000u64).prop_map(Step::Dirty),
        1 => Just(Step::Flush),
    ]
}

/// Four of the longest blocks, and what is noted of them, would fit.
const LIMIT_BYTES: u64 = 100_000;

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn prop_right_bytes_within_the_bound(
        steps in prop::collection::vec(any_step(), 1..200),
        real_bytes in prop::option::of(0..60_000u64),
    ) {
        let settings = ArcSettings { limit_bytes: LIMIT_BYTES, real_bytes, ..ArcSettings::default() };
        let cache = Cache::new(Arc::new(RamStore::new()), settings);
        // Number of the write => what it wrote, while it is in use.
        let mut live: BTreeMap<usize, (BlkPtrPhys, u8)> = BTreeMap::new();
        for (number, step) in steps.into_iter().enumerate() {
            let pick = |n: usize| live.iter().nth(n % live.len().max(1)).map(|(k, v)| (*k, *v));
            match step {
                Step::Write { sectors, fill } => {
                    let bp = cache.put(sectors * 512, fill);
                    live.insert(number, (bp, fill));
                    let dirty = cache.dirty_bytes().load(Ordering::Relaxed);
                    let most = LIMIT_BYTES.saturating_sub(dirty).max(LIMIT_BYTES / 4);
                    prop_assert!(cache.stats().bytes.cached() <= most);
                }
                Step::Read(n) => if let Some((_, (bp, fill))) = pick(n) {
                    let buf = cache.get(&bp).unwrap();
                    prop_assert_eq!(buf.len() as u64, bp.lsize());
                    prop_assert!(buf.iter().all(|b| *b == fill));
                },
                Step::Prefetch(n) => if let Some((_, (bp, _))) = pick(n) {
                    let passing = [Passing::No, Passing::WhenFull, Passing::Always][n % 3];
                    let reader = Reader { is_ahead: true, passing };
                    let objset = base::ObjsetId(0);
                    let queued = cache.inner.policy.lock().queue();
                    cache.inner.prefetch(&crate::prefetch::Ahead { bp, objset, reader, queued });
                },
                Step::Free(n) => if let Some((key, (bp, _))) = pick(n) {
                    cache.free(Txg(9), &bp);
                    prop_assert!(!cache.is_cached(&bp));
                    live.remove(&key);
                },
                Step::Dirty(bytes) => cache.dirty_bytes().store(bytes, Ordering::Relaxed),
                Step::Flush => cache.flush_cache(),
            }
            cache.inner.policy.lock().check_room();
            let bytes = cache.stats().bytes;
            prop_assert!(bytes.cached() <= bytes.limit);
            prop_assert!(bytes.mru + bytes.mru_ghost <= bytes.limit);
            let all = bytes.cached() + bytes.mru_ghost + bytes.mfu_ghost;
            prop_assert!(all <= 2 * bytes.limit);
            prop_assert!(bytes.mru_target <= bytes.limit);
        }
    }
}
