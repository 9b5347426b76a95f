//! An objset that, like the MOS, is changed in syncing context and synced in several passes per txg,
//! while other threads read it.

mod rig;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{BlkId, Buf, ErrorKind, ObjectId, ObjsetId, Txg};
use dmu::{NewObject, OBJECT_END, Objset, ObjsetProps, Tx};
use phys::{ObjectType, ObjsetType};
use proptest::prelude::*;
use ram::RamStore;
use rig::{Books, Slow, audit, seeds};
use zio::BlockStore;

struct Mos {
    books: Arc<Books>,
    objset: Arc<Objset>,
}

fn new_mos() -> Mos {
    let store = Arc::new(RamStore::new());
    let books = Books::new(&store);
    let tx = Tx::syncing(Txg(4));
    let slow = Arc::new(Slow(Arc::clone(&store))) as Arc<dyn BlockStore>;
    let objset = Objset::create(
        slow,
        ObjsetId(0),
        ObjsetType::Meta,
        ObjsetProps::mos(),
        Arc::clone(&books) as _,
        &tx,
    );
    Mos { books, objset }
}

impl Mos {
    fn reopen(&mut self) {
        let store = Arc::clone(self.objset.store());
        let root = self.objset.root_bp();
        let books = Arc::clone(&self.books) as _;
        self.objset = Objset::open(store, ObjsetId(0), &root, ObjsetProps::mos(), books).unwrap();
    }
}

const SIZE: usize = 40_000;

/// One change in syncing context.
#[derive(Clone, Debug)]
enum Op {
    Write {
        object: usize,
        offset: usize,
        len: usize,
        seed: u8,
    },
    Truncate {
        object: usize,
        offset: usize,
    },
    Alloc,
    Free {
        object: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let object = 0usize..6;
    prop_oneof![
        6 => (object.clone(), 0..SIZE, 1usize..3000, any::<u8>())
            .prop_map(|(object, offset, len, seed)| Op::Write { object, offset, len, seed }),
        1 => (object.clone(), 0..SIZE).prop_map(|(object, offset)| Op::Truncate { object, offset }),
        2 => Just(Op::Alloc),
        1 => object.prop_map(|object| Op::Free { object }),
    ]
}

fn apply(objset: &Objset, tx: &Tx, model: &mut BTreeMap<u64, Vec<u8>>, op: &Op) {
    let count = model.len().max(1);
    let pick = |object: usize| model.keys().nth(object % count).copied();
    match *op {
        Op::Alloc => {
            let new = NewObject::new(ObjectType::N_UINT64_METADATA)
                .blksz(1024)
                .ibs(12);
            let dnode = objset.object_alloc(tx, &new).unwrap();
            assert!(model.insert(dnode.id().0, vec![0; SIZE + 3000]).is_none());
        }
        Op::Write {
            object,
            offset,
            len,
            seed,
        } => {
            let Some(id) = pick(object) else { return };
            let data: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(seed)).collect();
            objset
                .hold(ObjectId(id))
                .unwrap()
                .write(tx, offset as u64, &data)
                .unwrap();
            model.get_mut(&id).unwrap()[offset..offset + len].copy_from_slice(&data);
        }
        Op::Truncate { object, offset } => {
            let Some(id) = pick(object) else { return };
            let dnode = objset.hold(ObjectId(id)).unwrap();
            dnode.free_range(tx, offset as u64, OBJECT_END).unwrap();
            model.get_mut(&id).unwrap()[offset..].fill(0);
        }
        Op::Free { object } => {
            let Some(id) = pick(object) else { return };
            objset.object_free(tx, ObjectId(id)).unwrap();
            model.remove(&id);
        }
    }
}

fn check(objset: &Objset, model: &BTreeMap<u64, Vec<u8>>) {
    for (id, bytes) in model {
        let mut read = vec![1; bytes.len()];
        objset
            .hold(ObjectId(*id))
            .unwrap()
            .read(0, &mut read)
            .unwrap();
        assert!(read == *bytes, "object {id}");
    }
}

/// Txgs of passes of changes.
fn run(txgs: &[Vec<Vec<Op>>]) {
    let mut mos = new_mos();
    let mut model = BTreeMap::new();
    for (txg, passes) in (4..).zip(txgs) {
        let tx = Tx::syncing(Txg(txg));
        for (pass, ops) in (1..).zip(passes) {
            for op in ops {
                apply(&mos.objset, &tx, &mut model, op);
            }
            check(&mos.objset, &model);
            mos.objset.sync(&tx, pass).unwrap();
            assert!(!mos.objset.needs_sync());
            check(&mos.objset, &model);
        }
        mos.objset.sync(&tx, 9).unwrap();
        mos.objset.sync_done(Txg(txg));
        assert!(
            audit(&mos.objset, &mos.books)
                .objects
                .keys()
                .eq(model.keys())
        );
        if txg % 2 == 0 {
            mos.reopen();
            check(&mos.objset, &model);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn prop_passes_keep_everything(
        txgs in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(op(), 0..8), 1..11), 1..5),
    ) {
        run(&txgs);
    }
}

#[test]
fn a_later_pass_overwrites_in_place() {
    let mos = new_mos();
    let tx = Tx::syncing(Txg(4));
    let new = NewObject::new(ObjectType::N_UINT64_METADATA)
        .blksz(4096)
        .ibs(12);
    let dnode = mos.objset.object_alloc(&tx, &new).unwrap();
    for block in 0..100 {
        dnode
            .write_block(&tx, BlkId(block), Buf::copy_of(&[7; 4096]))
            .unwrap();
    }
    mos.objset.sync(&tx, 1).unwrap();
    let before = mos.books.store.stats();
    for pass in 2..12 {
        dnode
            .modify_block(&tx, BlkId(50), |block| block[9] = pass)
            .unwrap();
        mos.objset.sync(&tx, pass.into()).unwrap();
    }
    let after = mos.books.store.stats();
    assert_eq!(before.allocs, after.allocs, "nothing is allocated any more");
    assert_eq!(
        after.rewrites - before.rewrites,
        10 * 5,
        "L0, L1, L2, dnodes, root"
    );
    let found = audit(&mos.objset, &mos.books);
    let copies: Vec<usize> = found.blocks.values().map(phys::BlkPtrPhys::ndvas).collect();
    assert!(
        copies.iter().all(|n| *n == 3),
        "metadata of the MOS has three copies"
    );
}

/// Objects hold a counter in every block; a reader must never see a counter go back, nor blocks of
/// different objects.
fn readers_during_passes() {
    let mos = new_mos();
    let tx = Tx::syncing(Txg(4));
    let new = NewObject::new(ObjectType::N_UINT64_METADATA)
        .blksz(512)
        .ibs(12);
    let blocks = 120u64;
    let dnodes: Vec<_> = (0..4)
        .map(|_| mos.objset.object_alloc(&tx, &new).unwrap())
        .collect();
    let ids: Vec<ObjectId> = dnodes.iter().map(|dnode| dnode.id()).collect();
    for dnode in &dnodes {
        for block in 0..blocks {
            dnode
                .write_block(&tx, BlkId(block), Buf::copy_of(&stamp(dnode.id(), 1)))
                .unwrap();
        }
    }
    drop(dnodes);
    // Dnodes come and go all the time.
    mos.objset.set_idle_dnodes_max(1);
    mos.objset.sync(&tx, 1).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let reads = Arc::new(AtomicU64::new(0));
    let readers: Vec<_> = (0..3)
        .map(|n| {
            let (objset, stop, reads) = (
                Arc::clone(&mos.objset),
                Arc::clone(&stop),
                Arc::clone(&reads),
            );
            let ids = ids.clone();
            rt::spawn(&format!("reader {n}"), move || {
                let mut last = BTreeMap::new();
                while !stop.load(Ordering::Relaxed) {
                    let id = ids[rt::random_below(4) as usize];
                    let block = rt::random_below(blocks);
                    let buf = objset.hold(id).unwrap().read_block(BlkId(block)).unwrap();
                    let count = u64::from_le_bytes(buf[8..16].try_into().unwrap());
                    assert_eq!(buf[..8], id.0.to_le_bytes());
                    let seen = last.insert((id, block), count).unwrap_or(0);
                    assert!(seen <= count, "{id} {block}: {count} after {seen}");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let mut count = 1;
    for txg in 5..25 {
        let tx = Tx::syncing(Txg(txg));
        for pass in 1..6 {
            count += 1;
            for _ in 0..rt::random_below(4) {
                let id = ids[rt::random_below(4) as usize];
                let block = BlkId(rt::random_below(blocks));
                let dnode = mos.objset.hold(id).unwrap();
                dnode
                    .write_block(&tx, block, Buf::copy_of(&stamp(id, count)))
                    .unwrap();
            }
            mos.objset.sync(&tx, pass).unwrap();
        }
        mos.objset.sync_done(Txg(txg));
    }
    stop.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(rt::JoinHandle::join);
    assert!(reads.load(Ordering::Relaxed) > 100);
    audit(&mos.objset, &mos.books);
}

fn stamp(id: ObjectId, count: u64) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..8].copy_from_slice(&id.0.to_le_bytes());
    block[8..16].copy_from_slice(&count.to_le_bytes());
    block
}

#[test]
fn readers_see_no_block_change_under_their_pointer() {
    readers_during_passes();
}

#[test]
fn sim_readers_see_no_block_change_under_their_pointer() {
    for seed in seeds(10) {
        rt::simulate(seed, readers_during_passes);
    }
}

#[test]
fn a_failed_write_ends_the_sync_with_its_error() {
    let mos = new_mos();
    let tx = Tx::syncing(Txg(4));
    let new = NewObject::new(ObjectType::N_UINT64_METADATA).blksz(4096);
    let dnode = mos.objset.object_alloc(&tx, &new).unwrap();
    dnode.write(&tx, 0, &[5; 50_000]).unwrap();
    mos.books.store.fail_after(Some(5));
    let error = mos.objset.sync(&tx, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    // What could not be written can still be read.
    assert_eq!(dnode.read_block(BlkId(3)).unwrap()[..], [5; 4096]);
}
