//! Many objects, huge sparse objects, large dnodes, special objects, reading ahead.

mod rig;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{BlkId, Buf, ErrorKind, ObjectId, ObjsetId, Result, Txg};
use dmu::{
    BlockAccounting, FreeAtOnce, NewObject, OBJECT_END, Objset, ObjsetProps, Tx, TxgSettings,
    USERUSED_OBJECT,
};
use phys::blkptr::BlkPtrPhys;
use phys::{ObjectType, ObjsetType};
use ram::RamStore;
use rig::Pool;
use zio::{BlockStore, Bookmark, Run, WriteRequest};

fn pool() -> Arc<Pool> {
    Pool::new(ObjsetId(54), ObjsetProps::default(), TxgSettings::default())
}

fn file(slots: u8) -> NewObject {
    NewObject::new(ObjectType::PLAIN_FILE_CONTENTS)
        .bonus(ObjectType::SA, 0)
        .dnode_slots(slots)
}

fn stamp(id: ObjectId) -> Vec<u8> {
    id.0.to_le_bytes().repeat(3)
}

#[test]
fn objects_are_counted_from_one_and_fill_their_blocks() {
    let pool = pool();
    let objset = pool.objset();
    let tx = pool.hold();
    let ids: Vec<u64> = (0..100)
        .map(|_| objset.object_alloc(&tx, &file(1)).unwrap().id().0)
        .collect();
    assert!(ids.into_iter().eq(1..=100));
    drop(tx);
    assert_eq!(pool.audit().objects.len(), 100);
    assert_eq!(
        objset.hold(ObjectId(0)).unwrap().nlevels(),
        6,
        "deep enough from the start"
    );
    pool.stop();
}

#[test]
fn tens_of_thousands_of_objects_come_and_go() {
    let pool = pool();
    let mut ids = BTreeSet::new();
    for round in 0u64..6 {
        let objset = pool.objset();
        for i in 0..5000u64 {
            let tx = pool.hold();
            let slots = [1, 2, 1, 4][(i % 4) as usize];
            let dnode = objset.object_alloc(&tx, &file(slots)).unwrap();
            dnode.set_bonus(&tx, &stamp(dnode.id())).unwrap();
            assert!(ids.insert(dnode.id()), "{} was given out twice", dnode.id());
        }
        if round % 2 == 0 {
            pool.groups.kick();
        }
        let doomed: Vec<ObjectId> = ids.iter().copied().filter(|id| id.0 % 7 == round).collect();
        for id in doomed {
            assert_eq!(*objset.hold(id).unwrap().bonus(), *stamp(id));
            objset.object_free(&pool.hold(), id).unwrap();
            ids.remove(&id);
        }
        drop(objset);
        if round % 3 == 1 {
            pool.reopen();
        }
    }
    pool.reopen();
    let objset = pool.objset();
    let mut at = ObjectId(0);
    for id in &ids {
        at = objset.next_object(at).unwrap().unwrap();
        assert_eq!(at, *id);
        assert_eq!(*objset.hold(at).unwrap().bonus(), *stamp(at));
    }
    assert_eq!(objset.next_object(at).unwrap(), None);
    assert_eq!(pool.audit().objects.len(), ids.len());
    pool.stop();
}

#[test]
fn a_number_is_taken_until_its_end_is_synced() {
    let pool = pool();
    let objset = pool.objset();
    let id = ObjectId(1000);
    let claim = |id| objset.object_claim(&pool.hold(), id, &file(2)).map(|_| ());
    claim(id).unwrap();
    assert_eq!(claim(id).unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(
        claim(ObjectId(999)).unwrap_err().kind(),
        ErrorKind::Exists,
        "two slots"
    );
    assert_eq!(
        claim(ObjectId(1001)).unwrap_err().kind(),
        ErrorKind::Exists,
        "inside"
    );
    assert_eq!(
        claim(ObjectId(1023)).unwrap_err().kind(),
        ErrorKind::InvalidInput,
        "two blocks"
    );
    assert_eq!(
        objset.hold(ObjectId(1001)).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    pool.sync();
    assert_eq!(
        claim(ObjectId(1001)).unwrap_err().kind(),
        ErrorKind::Exists,
        "inside, on disk"
    );
    objset.object_free(&pool.hold(), id).unwrap();
    assert_eq!(
        claim(id).unwrap_err().kind(),
        ErrorKind::Exists,
        "freed, but not synced"
    );
    pool.sync();
    claim(id).unwrap();
    // Claimed slots are not handed out.
    for _ in 0..2000 {
        let dnode = objset.object_alloc(&pool.hold(), &file(1)).unwrap();
        assert!(![1000, 1001].contains(&dnode.id().0));
    }
    pool.audit();
    pool.stop();
}

#[test]
fn freed_regions_are_filled_again() {
    let pool = pool();
    let objset = pool.objset();
    let create = |count: usize| -> Vec<ObjectId> {
        let tx = pool.hold();
        (0..count)
            .map(|_| objset.object_alloc(&tx, &file(1)).unwrap().id())
            .collect()
    };
    let ids = create(140_000);
    assert_eq!(ids.last().unwrap().0, 140_000);
    pool.sync();
    let tx = pool.hold();
    ids.iter()
        .for_each(|id| objset.object_free(&tx, *id).unwrap());
    drop(tx);
    pool.sync();
    let again = create(40_000);
    assert!(
        again.iter().filter(|id| id.0 < 40_000).count() > 10_000,
        "{:?}",
        again.last()
    );
    pool.stop();
}

#[test]
fn a_sparse_object_of_16_tib_is_quick() {
    let pool = pool();
    let objset = pool.objset();
    let new = file(1).blksz(131_072);
    let dnode = objset.object_alloc(&pool.hold(), &new).unwrap();
    let places = [0, 5 << 30, (16u64 << 40) - 131_072];
    for place in places {
        dnode.write(&pool.hold(), place + 77, b"here").unwrap();
    }
    let seek = || {
        let mut at = 0;
        for place in places {
            assert_eq!(dnode.next_data(at).unwrap(), Some(place.max(at)));
            assert_eq!(dnode.next_hole(place + 5).unwrap(), place + 131_072);
            at = place + 131_072;
        }
        assert_eq!(dnode.next_data(at).unwrap(), None);
    };
    seek();
    pool.sync();
    seek();
    assert_eq!(dnode.nlevels(), 4);
    let found = pool.audit();
    assert_eq!(
        found.objects[&dnode.id().0].used_bytes(),
        dnode.used_bytes()
    );
    let reads = pool.store.stats().reads;
    // Everything but the last block, then that too.
    dnode
        .free_range(&pool.hold(), 0, (16 << 40) - 131_072)
        .unwrap();
    pool.sync();
    assert_eq!(dnode.next_data(1).unwrap(), Some(places[2]));
    dnode.free_range(&pool.hold(), 100, OBJECT_END).unwrap();
    pool.sync();
    assert_eq!((dnode.maxblkid(), dnode.used_bytes()), (BlkId(0), 0));
    assert!(
        pool.store.stats().reads - reads < 100,
        "only what exists is read"
    );
    pool.audit();
    pool.stop();
}

#[test]
fn holes_remember_when_they_were_made() {
    let pool = pool();
    let dnode = pool
        .objset()
        .object_alloc(&pool.hold(), &file(1).blksz(512).ibs(12))
        .unwrap();
    dnode.write(&pool.hold(), 0, &[1; 200 * 512]).unwrap();
    pool.sync();
    let bp = |level, blkid| dnode.block_pointer(level, BlkId(blkid)).unwrap();
    assert_eq!(bp(0, 300).birth().0, 0, "never written");
    // Blocks 32..64 are one indirect block.
    dnode.free_range(&pool.hold(), 20 * 512, 60 * 512).unwrap();
    pool.sync();
    let freed = pool.groups.synced_txg();
    for blkid in [20, 31, 32, 50, 64, 79] {
        assert!(bp(0, blkid).is_hole());
        assert_eq!(bp(0, blkid).birth(), freed, "block {blkid}");
    }
    assert!(bp(1, 1).is_hole());
    // A block written into the hole does not change the birth of its neighbours.
    dnode.write(&pool.hold(), 40 * 512, &[2; 512]).unwrap();
    pool.sync();
    assert!(!bp(0, 40).is_hole());
    assert_eq!((bp(0, 39).birth(), bp(0, 41).birth()), (freed, freed));
    assert_eq!((bp(0, 39).level(), bp(0, 39).lsize()), (0, 512));
    // Freed and written again within one txg: the holes were born in that txg.
    let tx = pool.hold();
    dnode.free_range(&tx, 0, OBJECT_END).unwrap();
    dnode.write(&tx, 100 * 512, &[3; 512]).unwrap();
    drop(tx);
    pool.sync();
    let now = pool.groups.synced_txg();
    assert_eq!((bp(0, 99).birth(), bp(0, 101).birth()), (now, now));
    assert!(bp(1, 0).is_hole() && bp(1, 0).birth() == now);
    pool.audit();
    pool.stop();
}

#[test]
fn special_objects_live_in_the_objset_block() {
    let pool = pool();
    let objset = pool.objset();
    assert_eq!(
        objset.hold(USERUSED_OBJECT).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let new = NewObject::new(ObjectType::USERGROUP_USED).blksz(512);
    let dnode = objset
        .object_claim(&pool.hold(), USERUSED_OBJECT, &new)
        .unwrap();
    dnode.write(&pool.hold(), 0, &[9; 5000]).unwrap();
    assert_eq!(
        objset.next_object(ObjectId(0)).unwrap(),
        None,
        "not one of the others"
    );
    drop((dnode, objset));
    pool.reopen();
    let dnode = pool.objset().hold(USERUSED_OBJECT).unwrap();
    assert_eq!(dnode.read_block(BlkId(3)).unwrap()[..], [9; 512]);
    assert_eq!(pool.objset().object_count(), 0);
    pool.audit();
    pool.stop();
}

#[test]
fn a_written_buffer_is_not_copied() {
    let pool = pool();
    let dnode = pool
        .objset()
        .object_alloc(&pool.hold(), &file(1).blksz(131_072))
        .unwrap();
    let data = Buf::copy_of(&vec![3; 131_072]);
    dnode
        .write_block(&pool.hold(), BlkId(7), data.clone())
        .unwrap();
    assert!(dnode.read_block(BlkId(7)).unwrap().is_same(&data));
    pool.sync();
    assert!(
        dnode.read_block(BlkId(7)).unwrap().is_same(&data),
        "not even on its way to the store"
    );
    dnode
        .modify_block(&pool.hold(), BlkId(7), |block| block[0] = 4)
        .unwrap();
    assert_eq!(data[0], 3, "a change makes a copy");
    pool.stop();
}

#[test]
fn damaged_dnodes_are_errors() {
    let pool = pool();
    let dnode = pool
        .objset()
        .object_alloc(&pool.hold(), &file(1).blksz(4096))
        .unwrap();
    dnode.write(&pool.hold(), 0, &[1; 10_000]).unwrap();
    let id = dnode.id();
    drop(dnode);
    pool.reopen();
    let dnode = pool.objset().hold(id).unwrap();
    let leaf = dnode.block_pointer(0, BlkId(1)).unwrap();
    pool.store.damage(&leaf);
    let mut bytes = [0; 10_000];
    assert_eq!(
        dnode.read(0, &mut bytes).unwrap_err().kind(),
        ErrorKind::Checksum
    );
    assert!(dnode.read(8192, &mut bytes[..100]).is_ok());
    let error = dnode.write(&pool.hold(), 4100, &[1]).unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::Checksum,
        "half a block needs the other half"
    );
    dnode.write(&pool.hold(), 4096, &[1; 4096]).unwrap();
    drop(dnode);
    pool.reopen();
    let meta = pool.objset().hold(ObjectId(0)).unwrap();
    pool.store.damage(&meta.block_pointer(0, BlkId(0)).unwrap());
    assert_eq!(
        pool.objset().hold(id).unwrap_err().kind(),
        ErrorKind::Checksum
    );
    pool.stop();
}

/// A store that records what it is asked to read ahead.
struct Asked {
    store: Arc<RamStore>,
    ahead: rt::Mutex<Vec<BlkPtrPhys>>,
    distance: u64,
}

impl BlockStore for Asked {
    fn read(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        self.store.read(bp, bookmark)
    }

    fn write_batch(&self, txg: Txg, requests: Vec<WriteRequest>) -> Result<Vec<BlkPtrPhys>> {
        self.store.write_batch(txg, requests)
    }

    fn free(&self, txg: Txg, bp: &BlkPtrPhys) {
        self.store.free(txg, bp);
    }

    fn prefetch_run(&self, _: ObjsetId, bps: &[BlkPtrPhys], _: Run) {
        self.ahead.lock().extend(bps);
    }

    fn prefetch_distance(&self) -> u64 {
        self.distance
    }
}

/// A store that records the bytes of its largest batch.
struct Largest {
    store: RamStore,
    bytes: AtomicU64,
}

impl BlockStore for Largest {
    fn read(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        self.store.read(bp, bookmark)
    }

    fn write_batch(&self, txg: Txg, requests: Vec<WriteRequest>) -> Result<Vec<BlkPtrPhys>> {
        let bytes = requests.iter().map(|request| request.data.len() as u64);
        self.bytes.fetch_max(bytes.sum(), Ordering::Relaxed);
        self.store.write_batch(txg, requests)
    }

    fn free(&self, txg: Txg, bp: &BlkPtrPhys) {
        self.store.free(txg, bp);
    }
}

/// A store that records of the blocks of level 0 of files whether they are kept above.
#[derive(Default)]
struct Kept {
    store: RamStore,
    seen: rt::Mutex<BTreeSet<(ObjectId, bool)>>,
}

impl BlockStore for Kept {
    fn read(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        self.store.read(bp, bookmark)
    }

    fn write_batch(&self, txg: Txg, requests: Vec<WriteRequest>) -> Result<Vec<BlkPtrPhys>> {
        for request in &requests {
            let is_contents = request.object_type == ObjectType::PLAIN_FILE_CONTENTS.raw();
            if is_contents && request.level == 0 {
                let seen = (request.bookmark.object, request.kept_above);
                self.seen.lock().insert(seen);
            } else {
                assert!(!request.kept_above, "{}", request.bookmark);
            }
        }
        self.store.write_batch(txg, requests)
    }

    fn free(&self, txg: Txg, bp: &BlkPtrPhys) {
        self.store.free(txg, bp);
    }
}

#[test]
fn files_are_kept_above_until_they_are_written_to_again() {
    const BLKSZ: u64 = 4096;
    let kept = Arc::new(Kept::default());
    let store = Arc::clone(&kept) as Arc<dyn BlockStore>;
    let tx = Tx::syncing(Txg(4));
    let objset = Objset::create(
        Arc::clone(&store),
        ObjsetId(21),
        ObjsetType::Zfs,
        ObjsetProps::default(),
        Arc::new(FreeAtOnce(store)),
        &tx,
    );
    let files: Vec<_> = (0..4)
        .map(|_| {
            let file = objset.object_alloc(&tx, &file(1).blksz(BLKSZ)).unwrap();
            file.write(&tx, 0, &[1; 20 * BLKSZ as usize]).unwrap();
            file
        })
        .collect();
    let [open, closed, whole, part] = &files[..] else {
        unreachable!("there are four")
    };
    for file in [closed, whole, part] {
        file.note_kept_above();
    }
    whole.write(&tx, BLKSZ, &[2; BLKSZ as usize]).unwrap();
    part.write(&tx, 1, &[2]).unwrap();
    objset.sync(&tx, 1).unwrap();
    let expected = files
        .iter()
        .map(|file| (file.id(), file.id() == closed.id()));
    assert_eq!(*kept.seen.lock(), expected.collect());
    // That was said of what is on disk now.
    kept.seen.lock().clear();
    for file in [open, closed] {
        file.write(&tx, 0, &[3; BLKSZ as usize]).unwrap();
    }
    objset.sync(&tx, 2).unwrap();
    let expected = [open, closed].map(|file| (file.id(), false));
    assert_eq!(*kept.seen.lock(), expected.into());
}

#[test]
fn spill_blocks_of_many_objects_are_written_in_batches() {
    const SPILL_BYTES: u64 = 128 << 10;
    let largest = Arc::new(Largest {
        store: RamStore::new(),
        bytes: AtomicU64::new(0),
    });
    let tx = Tx::syncing(Txg(4));
    let objset = Objset::create(
        Arc::clone(&largest) as Arc<dyn BlockStore>,
        ObjsetId(21),
        ObjsetType::Zfs,
        ObjsetProps::default(),
        Arc::new(FreeAtOnce(Arc::clone(&largest) as Arc<dyn BlockStore>)),
        &tx,
    );
    for _ in 0..150 {
        let dnode = objset.object_alloc(&tx, &file(1)).unwrap();
        let spill = Buf::copy_of(&[7; SPILL_BYTES as usize]);
        dnode.set_spill(&tx, spill).unwrap();
    }
    let mut pass = 1;
    while objset.needs_sync() {
        objset.sync(&tx, pass).unwrap();
        pass += 1;
    }
    let bytes = largest.bytes.load(Ordering::Relaxed);
    assert!(bytes <= (8 << 20) + SPILL_BYTES, "{bytes}");
}

#[test]
fn a_reader_in_sequence_has_each_block_asked_for_once_and_not_too_early() {
    const BLKSZ: u64 = 4096;
    const BLOCKS: u64 = 1000;
    let pool = pool();
    let tx = pool.hold();
    let new = file(1).blksz(BLKSZ);
    let file = pool.objset().object_alloc(&tx, &new).unwrap();
    for blkid in 0..BLOCKS {
        let content = blkid.to_le_bytes().repeat(BLKSZ as usize / 8);
        file.write(&tx, blkid * BLKSZ, &content).unwrap();
    }
    drop(tx);
    pool.sync();
    for (at_once, window) in [(1, 16), (8, 16), (8, 64), (100, 64), (7, 300)] {
        let asked = Arc::new(Asked {
            store: Arc::clone(&pool.store),
            ahead: rt::Mutex::default(),
            distance: window * BLKSZ,
        });
        let objset = Objset::open(
            Arc::clone(&asked) as Arc<dyn BlockStore>,
            pool.id,
            &pool.objset().root_bp(),
            pool.props.clone(),
            Arc::clone(&pool.books) as Arc<dyn BlockAccounting>,
        )
        .unwrap();
        let file = objset.hold(file.id()).unwrap();
        let mut seen = 0;
        for first in (0..BLOCKS).step_by(at_once as usize) {
            let mut out = vec![0; (at_once.min(BLOCKS - first) * BLKSZ) as usize];
            file.read(first * BLKSZ, &mut out).unwrap();
            let end = first + out.len() as u64 / BLKSZ;
            let ahead = asked.ahead.lock();
            // Not read ahead: the first block of the first read, and that of the second.
            let unasked = if first == 0 { 1 } else { 2 };
            assert!(ahead.len() as u64 + unasked >= end, "{at_once}: {end}");
            assert!(ahead.len() as u64 <= end + window, "{at_once}: {end}");
            let order = ahead[seen..].iter().map(|bp| pool.first_word(bp));
            assert!(order.is_sorted_by(|a, b| a < b));
            seen = ahead.len();
        }
        let ahead = asked.ahead.lock();
        let once: BTreeSet<u64> = ahead.iter().map(|bp| pool.first_word(bp)).collect();
        assert_eq!(once.len(), ahead.len(), "{at_once}: asked for twice");
    }
    pool.stop();
}

/// A list whose last entry is a word of zeros, alone in its block: compressed, that block is a hole.
#[test]
fn the_last_block_of_a_list_may_be_zeros() {
    let pool = pool();
    let objset = pool.objset();
    let tx = pool.hold();
    let new = NewObject::new(ObjectType::SPACE_MAP).blksz(4096);
    let list = objset.object_alloc(&tx, &new).unwrap();
    let id = list.id();
    list.write(&tx, 0, &[1; 4096]).unwrap();
    list.write(&tx, 4096, &[0; 8]).unwrap();
    let gap = objset.object_alloc(&tx, &new).unwrap();
    let gap_id = gap.id();
    gap.write(&tx, 0, &[2; 4096]).unwrap();
    gap.write(&tx, 8192, &[3; 4096]).unwrap();
    drop((list, gap, tx, objset));
    pool.reopen();
    let objset = pool.objset();
    let list = objset.hold(id).unwrap();
    assert!(list.check_dense(0, 4096).is_ok());
    assert!(list.check_dense(0, 4096 + 8).is_ok());
    // A hole followed by more blocks was never written as a list.
    let gap = objset.hold(gap_id).unwrap();
    let error = gap.check_dense(0, 3 * 4096).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    pool.stop();
}
