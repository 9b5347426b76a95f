mod dedup;
mod encrypted;
mod fake;

use std::sync::Arc;

use base::{BlkId, BlockBuf, Buf, ErrorKind, ObjectId, ObjsetId, Txg};
use compress::{Algorithm, GzipLevel, ZstdLevel};
use fake::{FakeAllocator, FakeVdevs};
use phys::{BlkPtrPhys, ChecksumType, CompressType, DvaPhys, ObjectType};
use proptest::prelude::*;

use crate::{
    BlockStore, Bookmark, LogStore, NewLogBlock, Pipeline, PipelineSettings, UnderWay, WritePolicy,
    WriteRequest,
};

const DATA: u8 = ObjectType::PLAIN_FILE_CONTENTS.raw();
const TXG: Txg = Txg(100);

struct Bench {
    vdevs: Arc<FakeVdevs>,
    space: Arc<FakeAllocator>,
    pipeline: Pipeline,
}

fn bench(ashift: u32) -> Bench {
    bench_with(ashift, usize::MAX)
}

/// `ways`: how many writes to a vdev make progress at once.
fn bench_with(ashift: u32, ways: usize) -> Bench {
    let size = 16 << 20;
    let mut vdevs = FakeVdevs::new(3, size, ashift);
    vdevs.ways = ways;
    let vdevs = Arc::new(vdevs);
    let space = Arc::new(FakeAllocator::new(3, size as u64, ashift));
    let settings = PipelineSettings {
        salt: [7; 32],
        ..PipelineSettings::default()
    };
    let pipeline = Pipeline::new(vdevs.clone(), space.clone(), settings);
    Bench {
        vdevs,
        space,
        pipeline,
    }
}

fn bookmark() -> Bookmark {
    Bookmark::new(ObjsetId(21), ObjectId(5), 0, BlkId(3))
}

fn plain() -> WritePolicy {
    WritePolicy {
        compress: Algorithm::Off,
        ..WritePolicy::default()
    }
}

fn request(data: Buf, policy: WritePolicy) -> WriteRequest {
    WriteRequest::new(data, policy, DATA, bookmark())
}

/// Bytes that no algorithm can compress.
fn noise(len: usize, seed: u64) -> Buf {
    let mut x = seed | 1;
    let mut buf = BlockBuf::scratch(len);
    for chunk in buf.chunks_mut(8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        chunk.copy_from_slice(&x.to_le_bytes()[..chunk.len()]);
    }
    buf.share()
}

/// Bytes that compress to about `percent` of their size.
fn mixed(len: usize, percent: usize, seed: u64) -> Buf {
    let mut data = noise(len, seed);
    let quiet = len - len * percent / 100;
    data.make_mut()[..quiet].fill(0x33);
    data
}

impl Bench {
    fn write(&self, request: WriteRequest) -> BlkPtrPhys {
        self.pipeline.write(TXG, request).unwrap()
    }

    fn read(&self, bp: &BlkPtrPhys) -> base::Result<Buf> {
        self.pipeline.read(bp, &bookmark())
    }

    fn assert_all_free(&self, bps: &[BlkPtrPhys]) {
        let asizes: u64 = bps.iter().map(BlkPtrPhys::asize).sum();
        assert_eq!(self.space.allocated(), asizes, "sum of asizes");
        bps.iter().for_each(|bp| self.pipeline.free(TXG, bp));
        assert_eq!(self.space.allocated(), 0);
    }
}

#[test]
fn zeros_become_a_hole_only_when_compression_is_on() {
    let bench = bench(12);
    let hole = bench.write(request(Buf::zeroed(131_072), WritePolicy::default()));
    assert!(hole.is_hole());
    assert_eq!(
        (hole.birth(), hole.lsize(), hole.object_type()),
        (TXG, 131_072, DATA)
    );
    assert_eq!(&*bench.read(&hole).unwrap(), &*Buf::zeroed(131_072));
    let block = bench.write(request(Buf::zeroed(8192), plain()));
    assert_eq!((block.ndvas(), block.psize()), (1, 8192));
    bench.assert_all_free(&[hole, block]);
}

#[test]
fn small_blocks_move_into_their_pointer() {
    let bench = bench(12);
    let mut data = Buf::zeroed(4096);
    data.make_mut()[100..140].copy_from_slice(&noise(40, 1));
    let bp = bench.write(request(data.clone(), WritePolicy::default()));
    assert!(bp.is_embedded());
    assert_eq!((bp.lsize(), bp.birth(), bp.level()), (4096, TXG, 0));
    assert_eq!(&*bench.read(&bp).unwrap(), &*data);
    let mut dnodes = request(data.clone(), WritePolicy::default());
    dnodes.object_type = ObjectType::DNODE.raw();
    let mut indirect = request(data.clone(), WritePolicy::default());
    indirect.level = 1;
    let mut forbidden = request(data, WritePolicy::default());
    forbidden.policy.embed = false;
    for request in [dnodes, indirect, forbidden] {
        assert!(!bench.write(request).is_embedded());
    }
}

#[test]
fn compression_pads_to_sectors_and_gives_up_below_an_eighth() {
    let bench = bench(12);
    let bp = bench.write(request(mixed(131_072, 50, 1), WritePolicy::default()));
    assert_eq!(bp.compress(), CompressType::Lz4.raw());
    assert_eq!(bp.psize() % 4096, 0);
    assert!(
        (65_536..81_920).contains(&bp.psize()),
        "psize {}",
        bp.psize()
    );
    let bp = bench.write(request(mixed(131_072, 95, 1), WritePolicy::default()));
    assert_eq!(
        (bp.compress(), bp.psize()),
        (CompressType::Off.raw(), 131_072)
    );
    // A single sector cannot be compressed, except by embedding.
    let bp = bench.write(request(mixed(4096, 50, 1), WritePolicy::default()));
    assert_eq!((bp.compress(), bp.psize()), (CompressType::Off.raw(), 4096));
}

#[test]
fn half_sectors_are_padded_on_the_device_only() {
    let bench = bench(12);
    let data = noise(1536, 9);
    let bp = bench.write(request(data.clone(), plain()));
    assert_eq!((bp.psize(), bp.asize()), (1536, 4096));
    assert_eq!(&*bench.read(&bp).unwrap(), &*data);
    assert_eq!(
        bench.pipeline.read_raw(&bp, &bookmark()).unwrap().len(),
        1536
    );
}

#[test]
fn neighbours_are_written_together() {
    let bench = bench(12);
    let requests = (0..96)
        .map(|i| request(noise(32 << 10, i), plain()))
        .collect();
    let bps = bench.pipeline.write_batch(TXG, requests).unwrap();
    // 3 MiB on three vdevs in turn: at best one write of 1 MiB each.
    assert!(bench.vdevs.state.lock().writes <= 6);
    for (i, bp) in bps.iter().enumerate() {
        assert_eq!(&*bench.read(bp).unwrap(), &*noise(32 << 10, i as u64));
    }
}

#[test]
fn a_bad_copy_is_healed_from_a_good_one() {
    let bench = bench(12);
    let mut policy = plain();
    policy.copies = 3;
    let data = noise(16_384, 4);
    let bp = bench.write(request(data.clone(), policy));
    bench.vdevs.damage(&bp.dva[0], 77);
    bench
        .vdevs
        .state
        .lock()
        .unreadable
        .insert(bp.dva[1].vdev().0);
    assert_eq!(&*bench.read(&bp).unwrap(), &*data);
    assert_eq!(bench.pipeline.stats().healed, 2);
    bench.vdevs.state.lock().unreadable.clear();
    let report = bench.pipeline.verify_physical(&bp, &bookmark()).unwrap();
    assert_eq!(
        (report.bad, report.repaired, report.bytes),
        (0, 0, 3 * 16_384)
    );
}

#[test]
fn scrub_reports_and_repairs_every_copy() {
    let bench = bench(12);
    let mut policy = plain();
    policy.copies = 2;
    let bp = bench.write(request(noise(8192, 4), policy));
    bench.vdevs.damage(&bp.dva[1], 8191);
    let report = bench.pipeline.verify_physical(&bp, &bookmark()).unwrap();
    assert_eq!((report.bad, report.repaired), (1, 1));
    let report = bench.pipeline.verify_physical(&bp, &bookmark()).unwrap();
    assert_eq!((report.bad, report.repaired), (0, 0));
    for dva in bp.dvas() {
        bench.vdevs.damage(&dva, 0);
    }
    let error = bench
        .pipeline
        .verify_physical(&bp, &bookmark())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Checksum);
}

#[test]
fn errors_name_the_bookmark() {
    let bench = bench(12);
    let bp = bench.write(request(noise(8192, 4), plain()));
    bench.vdevs.damage(&bp.dva[0], 5);
    let error = bench.read(&bp).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Checksum);
    assert!(error.context().contains("<21, 5, 0, 3>"), "{error}");
    bench.vdevs.state.lock().unreadable.insert(0);
    assert_eq!(bench.read(&bp).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn gangs_nest_when_space_is_in_crumbs() {
    for (ashift, segment) in [(9, 1536), (12, 4096), (12, 16_384), (9, 65_536)] {
        let bench = bench(ashift);
        bench.space.fragment(segment);
        let mut policy = plain();
        policy.copies = 2;
        let data = noise(131_072, 6);
        let bp = bench.write(request(data.clone(), policy));
        assert!(bp.is_gang());
        assert_eq!((bp.ndvas(), bp.psize()), (3, 131_072));
        assert_eq!(bp.cksum_words(), checksum::fletcher4(&data));
        assert_eq!(&*bench.read(&bp).unwrap(), &*data);
        assert_eq!(&*bench.pipeline.read_raw(&bp, &bookmark()).unwrap(), &*data);
        let report = bench.pipeline.verify_physical(&bp, &bookmark()).unwrap();
        assert!(report.bytes > 2 * 131_072 && report.bad == 0);
        let segments = bench.pipeline.segments(&bp, &bookmark()).unwrap();
        let sum: u64 = segments.iter().map(phys::DvaPhys::asize).sum();
        assert_eq!(sum, bench.space.allocated());
        bench.assert_all_free(&[bp]);
    }
}

#[test]
fn a_gang_survives_damage_to_a_header_copy() {
    let bench = bench(12);
    bench.space.fragment(32 << 10);
    let data = noise(131_072, 6);
    let bp = bench.write(request(data.clone(), plain()));
    assert!(bp.is_gang());
    bench.vdevs.damage(&bp.dva[0], 20);
    assert_eq!(&*bench.read(&bp).unwrap(), &*data);
    assert_eq!(
        bench.pipeline.stats().healed,
        1 + u64::from(bp.ndvas() == 3)
    );
}

#[test]
fn a_header_as_large_as_a_sector_leads_to_many_pieces() {
    for (ashift, segment, headers) in [
        (12, 4096, 2),
        (12, 16_384, 1),
        (9, 16_384, 4),
        (13, 8192, 1),
    ] {
        let bench = bench(ashift);
        bench.space.fragment(segment);
        let data = noise(131_072, 6);
        let small = bench.write(request(data.clone(), plain()));
        assert_eq!(bench.pipeline.wants_dynamic_gang_headers(), ashift > 9);
        bench.pipeline.use_dynamic_gang_headers();
        assert!(!bench.pipeline.wants_dynamic_gang_headers());
        let large = bench.write(request(data.clone(), plain()));
        let tree = bench.pipeline.gang_tree(&large, &bookmark()).unwrap();
        let mut found = Vec::new();
        tree.headers(&mut found);
        assert_eq!(
            found.len(),
            headers,
            "ashift {ashift}, segments of {segment}"
        );
        assert!(found.iter().all(|(_, bytes)| *bytes == 1 << ashift));
        for bp in [&small, &large] {
            assert_eq!(&*bench.read(bp).unwrap(), &*data);
            let report = bench.pipeline.verify_physical(bp, &bookmark()).unwrap();
            assert_eq!((report.bad, report.repaired), (0, 0));
        }
        bench.assert_all_free(&[small, large]);
    }
}

#[test]
fn every_copy_of_a_large_header_is_repaired_whole() {
    for ashift in [9, 12] {
        let bench = bench(ashift);
        bench.space.fragment(4096);
        bench.pipeline.use_dynamic_gang_headers();
        let data = noise(131_072, 6);
        let bp = bench.write(request(data.clone(), plain()));
        let stored = |dva: &DvaPhys| bench.vdevs.bytes_at(dva, 1 << ashift);
        let (first, second) = (bp.dva[0], bp.dva[1]);
        let whole = stored(&first);
        assert_eq!(whole, stored(&second));
        // By a read, then by a scrub, which reads all copies.
        for damaged in [first, second] {
            for at in [20, (1 << ashift) - 100] {
                bench.vdevs.damage(&damaged, at);
                assert_ne!(whole, stored(&damaged));
                if damaged == first {
                    assert_eq!(&*bench.read(&bp).unwrap(), &*data);
                } else {
                    let report = bench.pipeline.verify_physical(&bp, &bookmark()).unwrap();
                    assert_eq!((report.bad, report.repaired), (1, 1));
                }
                assert_eq!(whole, stored(&damaged));
            }
        }
    }
}

#[test]
fn blocks_of_this_txg_are_rewritten_in_place() {
    let bench = bench(12);
    for segment in [u64::MAX, 16_384] {
        bench.space.fragment(segment);
        let old = bench.write(request(noise(131_072, 1), plain()));
        let before = bench.space.allocated();
        let data = noise(131_072, 2);
        let mut again = request(data.clone(), plain());
        again.rewrite = Some(old);
        let new = bench.write(again.clone());
        assert_eq!((new.dva, new.birth()), (old.dva, TXG));
        assert_eq!(bench.space.allocated(), before);
        assert_eq!(&*bench.read(&new).unwrap(), &*data);
        assert!(bench.read(&old).is_err() || old.is_gang());
        // In a later txg, or with another size, it is allocated anew.
        let moved = bench.pipeline.write(Txg(101), again.clone()).unwrap();
        assert_ne!(moved.dva[0], old.dva[0]);
        again.data = noise(65_536, 3).into();
        let moved = bench.write(again);
        assert_ne!(moved.dva[0], old.dva[0]);
    }
    assert_eq!(bench.pipeline.stats().rewrites, 2);
}

#[test]
fn a_failed_batch_gives_everything_back() {
    let bench = bench(12);
    let kept = bench.write(request(noise(131_072, 1), plain()));
    let batch = || {
        (0..100)
            .map(|i| request(noise(131_072, i), plain()))
            .collect()
    };
    bench.space.limit(Some(60));
    let error = bench.pipeline.write_batch(TXG, batch()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert_eq!(bench.space.allocated(), kept.asize());
    bench.space.limit(None);
    bench.vdevs.state.lock().writes_left = Some(5);
    let error = bench.pipeline.write_batch(TXG, batch()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert_eq!(bench.space.allocated(), kept.asize());
    bench.space.fragment(8192);
    bench.space.limit(Some(20));
    bench.vdevs.state.lock().writes_left = None;
    let error = bench.pipeline.write_batch(TXG, batch()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert_eq!(bench.space.allocated(), kept.asize());
}

fn new_log_block(size: u64, checksum: ChecksumType, verifier: [u64; 4]) -> NewLogBlock {
    NewLogBlock {
        txg: TXG,
        size,
        checksum,
        verifier,
        keeps_to_logs: false,
    }
}

#[test]
fn the_log_ends_where_nothing_was_written() {
    let bench = bench(12);
    let verifier = [1, 2, 21, 1];
    let kind = ChecksumType::Zilog2;
    let log = &bench.pipeline;
    let bp = log.alloc_log(&new_log_block(8192, kind, verifier)).unwrap();
    assert_eq!(bp.object_type(), ObjectType::INTENT_LOG.raw());
    let error = log.read_log(&bp, &bookmark()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Checksum);
    assert_eq!(bench.vdevs.state.lock().checksum_errors, 0);
    let mut data = noise(8192, 3);
    data.make_mut()[136..144].copy_from_slice(&5000u64.to_le_bytes());
    log.write_log(&bp, data.clone(), &bookmark()).unwrap();
    let read = log.read_log(&bp, &bookmark()).unwrap();
    assert_eq!((&read[..144], &read[184..]), (&data[..144], &data[184..]));
    let mut other = bp;
    other.set_cksum([1, 2, 21, 2]);
    assert!(log.read_log(&other, &bookmark()).is_err());
    log.free(TXG, &bp);
    log.claim(TXG, &bp).unwrap();
    assert!(log.claim(TXG, &bp).is_err());
}

#[test]
fn encrypted_blocks_are_refused_without_a_key() {
    let bench = bench(12);
    let bp = bench.write(request(noise(8192, 3), plain()));
    let mut bytes: [u8; 128] = zerocopy::transmute!(bp);
    bytes[55] |= 0x20;
    let bp: BlkPtrPhys = zerocopy::transmute!(bytes);
    assert_eq!(bench.read(&bp).unwrap_err().kind(), ErrorKind::NoKey);
}

#[test]
fn sim_writes_the_same_bytes_on_the_same_seed() {
    let run = || {
        rt::simulate(7, || {
            let bench = bench(12);
            let requests = (0..64).map(|i| request(mixed(65_536, 40, i), WritePolicy::default()));
            bench.pipeline.write_batch(TXG, requests.collect()).unwrap()
        })
    };
    assert_eq!(run(), run());
}

#[test]
fn sim_no_more_threads_write_than_devices_have_use_for() {
    for (ways, most) in [(1, 3), (2, 6), (usize::MAX, 9)] {
        for seed in 0..10 {
            let (now, at_once) = rt::simulate(seed, || {
                let bench = bench_with(12, ways);
                let requests =
                    |n: u64| (0..100).map(move |i| request(noise(131_072, n + i), plain()));
                let mut behind = UnderWay::behind();
                let begun = requests(0).collect();
                let mut bps = bench.pipeline.begin_batch(TXG, begun, &mut behind).unwrap();
                // Another flight at the same time counts as well.
                let more = requests(100).collect();
                bps.extend(bench.pipeline.write_batch(TXG, more).unwrap());
                behind.wait().unwrap();
                bench.assert_all_free(&bps);
                bench.vdevs.state.lock().writing
            });
            assert!(
                now == 0 && at_once <= most,
                "{ways} ways, seed {seed}: {at_once}"
            );
            assert!(
                at_once >= ways.min(2),
                "{ways} ways, seed {seed}: {at_once}"
            );
        }
    }
}

#[test]
fn sim_what_somebody_waits_for_goes_first() {
    const BEHIND: usize = 131_072;
    const TXG_RECORD: usize = 20_480;
    const LOG: usize = 4096;
    let mut left = 0;
    for seed in 0..20 {
        rt::simulate(seed, || {
            let bench = bench_with(12, 1);
            let begin = |count: u64, len: usize, under_way: &mut UnderWay| {
                let requests = (0..count).map(|i| request(noise(len, i), plain()));
                let begun = bench
                    .pipeline
                    .begin_batch(TXG, requests.collect(), under_way);
                begun.unwrap();
            };
            let mut behind = UnderWay::behind();
            begin(240, BEHIND, &mut behind);
            let mut txg = UnderWay::default();
            begin(150, TXG_RECORD, &mut txg);
            let kind = ChecksumType::Zilog2;
            let log = bench
                .pipeline
                .alloc_log(&new_log_block(LOG as u64, kind, [1; 4]));
            let mut block = Buf::zeroed(LOG);
            block.make_mut()[136..144].copy_from_slice(&4096u64.to_le_bytes());
            let log_begun = bench.vdevs.state.lock().order.len();
            let written = bench.pipeline.write_log(&log.unwrap(), block, &bookmark());
            written.unwrap();
            txg.wait().unwrap();
            behind.wait().unwrap();
            let order = bench.vdevs.state.lock().order.clone();
            // A vdev takes one write at a time; the one in progress is finished first.
            let of = |vdev, from: usize| {
                let later = order[from..].iter().filter(move |write| write.0 == vdev);
                later.map(|write| write.1)
            };
            let with_log = order.iter().find(|write| write.1 == LOG).unwrap().0;
            let waited = of(with_log, log_begun).take_while(|len| *len != LOG);
            assert!(waited.count() <= 1, "seed {seed}: the log waited");
            for vdev in 0..3 {
                let lens: Vec<usize> = of(vdev, 0).filter(|len| *len != LOG).collect();
                let txg = |len: &usize| !len.is_multiple_of(BEHIND);
                let first = lens.iter().position(txg).expect("50 records");
                let last = lens.iter().rposition(txg).expect("50 records");
                assert!(
                    lens[first..last].iter().all(txg),
                    "seed {seed}: the txg waited"
                );
                left += lens.len() - last - 1;
            }
        });
    }
    assert!(left > 100, "{left} writes let others go first");
}

#[test]
fn sim_who_asked_is_told_when_all_is_written() {
    for seed in 0..20 {
        rt::simulate(seed, || {
            let bench = bench_with(12, 1);
            let fails = seed % 4 == 0;
            bench.vdevs.state.lock().writes_left = fails.then_some(3);
            let mut behind = UnderWay::behind();
            assert!(behind.is_written() && !behind.then(|| unreachable!("nothing was begun")));
            let requests = (0..100).map(|i| request(noise(131_072, i), plain()));
            let begun = bench
                .pipeline
                .begin_batch(TXG, requests.collect(), &mut behind);
            begun.unwrap();
            let told = Arc::new(rt::Mutex::new(0));
            let theirs = Arc::clone(&told);
            let vdevs = Arc::clone(&bench.vdevs);
            let is_told = behind.then(move || {
                assert_eq!(vdevs.state.lock().writing.0, 0, "seed {seed}");
                *theirs.lock() += 1;
            });
            assert!(is_told || fails, "100 records take their time");
            rt::sleep_ns(1_000_000_000);
            assert_eq!(*told.lock(), usize::from(!fails), "seed {seed}");
            assert_eq!(behind.is_written(), !fails);
            assert!(!behind.then(|| unreachable!("it is too late")));
            assert_eq!(behind.wait().is_ok(), !fails);
        });
    }
}

#[test]
fn sim_a_batch_that_finds_no_place_leaves_nothing() {
    for seed in 0..20 {
        rt::simulate(seed, || {
            let bench = bench_with(12, 1);
            let requests = |count| (0..count).map(|i| request(noise(131_072, i), plain()));
            let mut under_way = UnderWay::behind();
            let begun = bench
                .pipeline
                .begin_batch(TXG, requests(20).collect(), &mut under_way);
            let bps = begun.unwrap();
            let held = bench.space.allocated();
            // Two waves are allocated, the third is not, nor are the pieces of a gang.
            bench.space.limit(Some(70));
            let error = bench
                .pipeline
                .begin_batch(TXG, requests(100).collect(), &mut under_way);
            assert_eq!(error.unwrap_err().kind(), ErrorKind::NoSpace);
            assert_eq!(bench.space.allocated(), held);
            assert_eq!(bench.vdevs.state.lock().writing.0, 0);
            bench.space.limit(None);
            under_way.wait().unwrap();
            for (bp, request) in bps.iter().zip(requests(20)) {
                assert_eq!(*bench.read(bp).unwrap(), **request.data, "seed {seed}");
            }
            bench.assert_all_free(&bps);
        });
    }
}

#[test]
fn sim_batches_that_were_begun_are_there_when_they_were_waited_for() {
    for seed in 0..20 {
        rt::simulate(seed, || {
            let bench = bench_with(12, 1);
            let mut under_way = UnderWay::default();
            let mut all = Vec::new();
            for batch in 0..5 {
                let requests = (0..30).map(|i| request(noise(65_536, batch * 100 + i), plain()));
                let requests: Vec<_> = requests.collect();
                let begun = bench
                    .pipeline
                    .begin_batch(TXG, requests.clone(), &mut under_way);
                all.extend(begun.unwrap().into_iter().zip(requests));
            }
            under_way.wait().unwrap();
            assert_eq!(bench.vdevs.state.lock().writing.0, 0);
            for (bp, request) in &all {
                assert_eq!(*bench.read(bp).unwrap(), **request.data, "seed {seed}");
            }
            let bps: Vec<BlkPtrPhys> = all.into_iter().map(|(bp, _)| bp).collect();
            bench.assert_all_free(&bps);
        });
    }
}

#[test]
fn sim_who_waits_for_batches_is_told_of_a_failed_write() {
    for seed in 0..20 {
        rt::simulate(seed, || {
            let bench = bench_with(12, 1);
            bench.vdevs.state.lock().writes_left = Some(seed % 4);
            let mut under_way = UnderWay::default();
            let batch = || {
                (0..100)
                    .map(|i| request(noise(131_072, i), plain()))
                    .collect()
            };
            for _ in 0..2 {
                let begun = bench.pipeline.begin_batch(TXG, batch(), &mut under_way);
                assert_eq!(begun.unwrap().len(), 100);
            }
            assert_eq!(under_way.wait().unwrap_err().kind(), ErrorKind::Io);
            assert_eq!(bench.vdevs.state.lock().writing.0, 0);
        });
    }
}

#[test]
fn sim_batches_that_are_given_up_leave_no_write_behind() {
    let mut given_up = 0;
    for seed in 0..20 {
        rt::simulate(seed, || {
            let bench = bench_with(12, 1);
            let mut under_way = UnderWay::default();
            let requests = (0..200).map(|i| request(noise(131_072, i), plain()));
            let begun = bench
                .pipeline
                .begin_batch(TXG, requests.collect(), &mut under_way);
            begun.unwrap();
            drop(under_way);
            let state = bench.vdevs.state.lock();
            assert_eq!(state.writing.0, 0, "seed {seed}");
            given_up += u64::from(state.writes < 200 / 8);
        });
    }
    assert!(given_up > 0, "everything had been written each time");
}

fn any_policy() -> impl Strategy<Value = WritePolicy> {
    let algorithm = prop_oneof![
        Just(Algorithm::Off),
        Just(Algorithm::Lz4),
        Just(Algorithm::Lzjb),
        Just(Algorithm::Zle),
        Just(Algorithm::Gzip(GzipLevel::DEFAULT)),
        Just(Algorithm::Zstd(ZstdLevel::DEFAULT)),
    ];
    let checksum = prop_oneof![
        Just(ChecksumType::Off),
        Just(ChecksumType::Fletcher2),
        Just(ChecksumType::Fletcher4),
        Just(ChecksumType::Sha256),
        Just(ChecksumType::Skein),
        Just(ChecksumType::Blake3),
    ];
    (algorithm, checksum, 1..=3u8, any::<bool>()).prop_map(|(compress, checksum, copies, embed)| {
        WritePolicy {
            checksum,
            compress,
            copies,
            embed,
            ..WritePolicy::default()
        }
    })
}

fn any_request() -> impl Strategy<Value = WriteRequest> {
    let sectors = prop_oneof![1..40usize, 250..300usize];
    (sectors, 0..=100usize, any::<u64>(), any_policy()).prop_map(
        |(sectors, percent, seed, policy)| {
            let data = if percent == 0 {
                Buf::zeroed(sectors * 512)
            } else {
                mixed(sectors * 512, percent, seed)
            };
            request(data, policy)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn prop_what_was_written_is_read_and_freed(
        requests in prop::collection::vec(any_request(), 1..30),
        ashift in prop_oneof![Just(9u32), Just(12u32), Just(13u32)],
        segment in prop_oneof![Just(u64::MAX), Just(16_384u64)],
    ) {
        let bench = bench(ashift);
        bench.space.fragment(segment);
        let bps = bench.pipeline.write_batch(TXG, requests.clone()).unwrap();
        for (request, bp) in requests.iter().zip(&bps) {
            prop_assert_eq!(&*bench.read(bp).unwrap(), &**request.data);
            prop_assert_eq!(bp.lsize(), request.data.len() as u64);
            prop_assert_eq!(bp.birth(), TXG);
            if !bp.is_hole() && !bp.is_embedded() {
                prop_assert_eq!(bp.fill(), 1);
                prop_assert!(bp.ndvas() >= usize::from(request.policy.copies));
                prop_assert!(bp.psize() <= bp.lsize());
            }
        }
        bench.assert_all_free(&bps);
    }

    #[test]
    fn prop_nonsense_pointers_are_refused(words in any::<[u64; 16]>(), tame in any::<bool>()) {
        let mut words = words;
        if tame {
            // Within the vdevs, a valid type and checksum: gets as far as the devices.
            words[0] &= 0x3_0000_00ff;
            words[1] = (words[1] & (1 << 63)) | (words[1] & 0x7fff);
            words[6] = (words[6] & 0x9f13_0000_003f_ffff) | (7 << 40) | (1 << 63);
        }
        let bp: BlkPtrPhys = zerocopy::transmute!(words);
        let bench = bench(9);
        let _ = bench.read(&bp);
        let _ = bench.pipeline.verify_physical(&bp, &bookmark());
        let _ = bench.pipeline.segments(&bp, &bookmark());
        let _ = bench.pipeline.read_log(&bp, &bookmark());
    }
}
