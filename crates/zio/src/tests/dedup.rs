//! The pipeline with dedup tables that are maps in memory.

use std::collections::BTreeMap;

use super::*;
use crate::{Dedup, DedupTables, Known};

/// By the number of copies: a block and its references.
type Blocks = BTreeMap<usize, (BlkPtrPhys, u64)>;

/// By checksum and sizes.
#[derive(Default)]
struct FakeTables {
    entries: rt::Mutex<BTreeMap<[u64; 6], Blocks>>,
    /// Looking for anything fails.
    is_damaged: rt::Mutex<bool>,
    /// An entry is one block, to which copies are added.
    is_flat: bool,
}

fn key(bp: &BlkPtrPhys) -> [u64; 6] {
    let [a, b, c, d] = bp.cksum_words();
    [a, b, c, d, bp.psize(), u64::from(bp.checksum())]
}

impl FakeTables {
    fn references(&self) -> Vec<u64> {
        let entries = self.entries.lock();
        let all = entries.values().flat_map(BTreeMap::values);
        all.map(|(_, count)| *count).collect()
    }
}

impl DedupTables for FakeTables {
    fn find(&self, bp: &BlkPtrPhys, copies: usize) -> base::Result<Known> {
        if *self.is_damaged.lock() {
            return Err(base::Error::corrupt("a table"));
        }
        let entries = self.entries.lock();
        let Some(blocks) = entries.get(&key(bp)) else {
            return Ok(Known {
                has_room: true,
                ..Known::default()
            });
        };
        if self.is_flat {
            let (block, _) = blocks.values().next().expect("no entry is empty");
            let has_enough = block.ndvas() >= copies;
            return Ok(Known {
                any: Some(*block),
                wanted: has_enough.then_some(*block),
                partial: (!has_enough && !block.is_gang()).then_some(*block),
                has_room: false,
            });
        }
        Ok(Known {
            any: blocks.values().map(|(bp, _)| *bp).next(),
            partial: None,
            wanted: blocks.get(&copies).map(|(bp, _)| *bp),
            has_room: !blocks.contains_key(&copies),
        })
    }

    fn refer(&self, bp: &BlkPtrPhys, copies: usize) {
        let mut entries = self.entries.lock();
        let blocks = entries.entry(key(bp)).or_default();
        let place = if self.is_flat { 0 } else { copies };
        let (block, count) = blocks.entry(place).or_insert((*bp, 0));
        assert_eq!(block.physical_birth(), bp.physical_birth());
        block.dva = bp.dva;
        *count += 1;
    }

    fn forget(&self, bp: &BlkPtrPhys, had: usize) {
        let mut entries = self.entries.lock();
        let blocks = entries.get_mut(&key(bp)).expect("it was counted");
        blocks.retain(|_, (there, count)| {
            if there.dva[0] == bp.dva[0] {
                *count -= 1;
                there.dva[had..].fill(phys::DvaPhys::default());
            }
            *count > 0
        });
        entries.retain(|_, blocks| !blocks.is_empty());
    }
}

fn deduped(dedup: Dedup, checksum: ChecksumType) -> WritePolicy {
    WritePolicy {
        checksum,
        dedup,
        ..plain()
    }
}

fn with_tables(bench: &Bench) -> Arc<FakeTables> {
    give(bench, FakeTables::default())
}

fn with_flat_tables(bench: &Bench) -> Arc<FakeTables> {
    let flat = FakeTables {
        is_flat: true,
        ..FakeTables::default()
    };
    give(bench, flat)
}

fn give(bench: &Bench, tables: FakeTables) -> Arc<FakeTables> {
    let tables = Arc::new(tables);
    bench.pipeline.set_dedup(Arc::clone(&tables) as _);
    tables
}

/// Equal blocks of a batch are written once, by the first one; the layout is the same on any number of cores.
#[test]
fn sim_equal_blocks_are_written_once() {
    let mut layouts = Vec::new();
    for seed in 0..4 {
        rt::simulate(seed, || {
            let bench = bench(12);
            let tables = with_tables(&bench);
            let policy = deduped(Dedup::Verify, ChecksumType::Sha256);
            let requests: Vec<_> = (0..200)
                .map(|i| request(noise(65_536, i * i % 7), policy))
                .collect();
            let bps = bench.pipeline.write_batch(TXG, requests.clone()).unwrap();
            for (request, bp) in requests.iter().zip(&bps) {
                assert_eq!(&*bench.read(bp).unwrap(), &**request.data);
                assert!(bp.is_dedup());
            }
            let stats = bench.pipeline.stats();
            let different = tables.references().len() as u64;
            assert_eq!((stats.writes, stats.shared), (different, 200 - different));
            assert_eq!(tables.references().iter().sum::<u64>(), 200);
            assert_eq!(bench.space.allocated(), different * 65_536);
            layouts.push(bps);
        });
    }
    assert!(layouts.iter().all(|layout| *layout == layouts[0]));
}

#[test]
fn a_gang_is_referred_to_like_any_block() {
    let bench = bench(9);
    let tables = with_tables(&bench);
    bench.space.fragment(4096);
    let policy = deduped(Dedup::Verify, ChecksumType::Sha256);
    let first = bench.write(request(noise(65_536, 1), policy));
    let allocated = bench.space.allocated();
    let second = bench.write(request(noise(65_536, 1), policy));
    assert!(first.is_gang() && second.is_gang() && first.dva == second.dva);
    assert_eq!(bench.space.allocated(), allocated);
    assert_eq!(tables.references(), [2]);
}

fn copies(copies: u8) -> WritePolicy {
    WritePolicy {
        copies,
        ..deduped(Dedup::Verify, ChecksumType::Sha256)
    }
}

/// More copies of a block that is stored are written beside it, and only those that there are not.
#[test]
fn copies_are_added_to_a_stored_block() {
    let bench = bench(12);
    let tables = with_flat_tables(&bench);
    let one = bench.write(request(noise(8192, 1), copies(1)));
    let two = bench.write(request(noise(8192, 1), copies(2)));
    let three = bench.write(request(noise(8192, 1), copies(3)));
    let again = bench.write(request(noise(8192, 1), copies(1)));
    assert_eq!([one, two, three].map(|bp| bp.ndvas()), [1, 2, 3]);
    assert_eq!(again.dva, three.dva);
    assert_eq!(two.dva[..1], one.dva[..1]);
    assert_eq!(three.dva[..2], two.dva[..2]);
    for bp in [one, two, three, again] {
        assert!(bp.is_dedup() && bp.physical_birth() == one.physical_birth());
        assert_eq!(&*bench.read(&bp).unwrap(), &*noise(8192, 1));
    }
    assert_eq!(tables.references(), [4]);
    assert_eq!(bench.space.allocated(), 3 * 8192);
    // Each of the copies can be read.
    for dva in &three.dva[..2] {
        bench.vdevs.damage(dva, 100);
    }
    assert_eq!(&*bench.read(&three).unwrap(), &*noise(8192, 1));
}

/// Where there is no space in one piece, a block is stored apart from the one that has too few copies.
#[test]
fn copies_in_pieces_are_another_block() {
    let bench = bench(9);
    let tables = with_flat_tables(&bench);
    let one = bench.write(request(noise(65_536, 1), copies(1)));
    bench.space.fragment(4096);
    let two = bench.write(request(noise(65_536, 1), copies(2)));
    assert!(two.is_gang() && !two.is_dedup() && two.dva[0] != one.dva[0]);
    assert_eq!(&*bench.read(&two).unwrap(), &*noise(65_536, 1));
    assert_eq!(tables.references(), [1]);
}

/// An entry that a failed batch has added copies to has as many as before.
#[test]
fn a_batch_that_fails_leaves_no_copies() {
    let bench = bench(12);
    let tables = with_flat_tables(&bench);
    bench.write(request(noise(8192, 1), copies(1)));
    bench.space.limit(Some(3));
    let batch = [(1, 2), (1, 2), (3, 1), (1, 3), (5, 1)];
    let batch = batch.map(|(seed, n)| request(noise(8192, seed), copies(n)));
    let failed = bench.pipeline.write_batch(TXG, batch.to_vec());
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(tables.references(), [1]);
    assert_eq!(bench.space.allocated(), 8192);
    bench.space.limit(None);
    let two = bench.write(request(noise(8192, 1), copies(2)));
    assert_eq!((two.ndvas(), bench.space.allocated()), (2, 2 * 8192));
}

/// What a batch counted before it failed is not counted any more.
#[test]
fn a_batch_that_fails_leaves_no_reference() {
    let bench = bench(12);
    let tables = with_tables(&bench);
    let policy = deduped(Dedup::On, ChecksumType::Sha256);
    bench.write(request(noise(8192, 1), policy));
    bench.space.limit(Some(2));
    let batch = [1, 3, 3, 5, 1, 7].map(|seed| request(noise(8192, seed), policy));
    let failed = bench.pipeline.write_batch(TXG, batch.to_vec());
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(tables.references(), [1]);
    assert_eq!(bench.space.allocated(), 8192);
    bench.space.limit(None);
    bench.vdevs.state.lock().writes_left = Some(0);
    let failed = bench.pipeline.write_batch(TXG, batch.to_vec());
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(tables.references(), [1]);
    assert_eq!(bench.space.allocated(), 8192);
}

#[test]
fn a_table_that_cannot_be_read_is_not_used() {
    let bench = bench(12);
    let tables = with_tables(&bench);
    *tables.is_damaged.lock() = true;
    let policy = deduped(Dedup::On, ChecksumType::Sha256);
    let bps = [0, 1].map(|_| bench.write(request(noise(8192, 1), policy)));
    assert!(bps.iter().all(|bp| !bp.is_dedup()) && bps[0].dva != bps[1].dva);
    assert!(tables.references().is_empty());
}

/// With `verify`, a stored block with other bytes or one that cannot be read is not referred to: where the checksum
/// is weak, SHA-256 is tried; otherwise the block is an ordinary one.
#[test]
fn bytes_are_compared() {
    let cases = [ChecksumType::Sha256, ChecksumType::EdonR];
    for checksum in cases {
        let bench = bench(12);
        let tables = with_tables(&bench);
        // Without a proof, bytes are compared even if that was not asked for.
        let is_proof = checksum == ChecksumType::Sha256;
        let dedup = if is_proof { Dedup::Verify } else { Dedup::On };
        let policy = deduped(dedup, checksum);
        let first = bench.write(request(noise(8192, 1), policy));
        let same = bench.write(request(noise(8192, 1), policy));
        assert_eq!(same.dva, first.dva);
        bench.vdevs.damage(&first.dva[0], 100);
        let other = bench.write(request(noise(8192, 1), policy));
        assert_ne!(other.dva, first.dva);
        assert_eq!(other.is_dedup(), !is_proof);
        assert_eq!(other.checksum(), ChecksumType::Sha256.raw());
        assert_eq!(&*bench.read(&other).unwrap(), &*noise(8192, 1));
        let references = if is_proof { vec![2] } else { vec![1, 2] };
        let mut counted = tables.references();
        counted.sort_unstable();
        assert_eq!(counted, references);
    }
}

/// All-zero blocks become holes even without compression; small ones are embedded as ever.
#[test]
fn what_needs_no_space_is_not_deduplicated() {
    let bench = bench(12);
    let tables = with_tables(&bench);
    let policy = deduped(Dedup::On, ChecksumType::Sha256);
    assert!(bench.write(request(Buf::zeroed(8192), policy)).is_hole());
    let lz4 = WritePolicy {
        compress: Algorithm::Lz4,
        ..policy
    };
    let mut small = Buf::zeroed(8192);
    small.make_mut()[7] = 1;
    assert!(bench.write(request(small, lz4)).is_embedded());
    assert!(tables.references().is_empty());
    // Compressed and not, a block is not the same.
    bench.write(request(mixed(65_536, 50, 1), policy));
    bench.write(request(mixed(65_536, 50, 1), lz4));
    assert_eq!(tables.references(), [1, 1]);
}
