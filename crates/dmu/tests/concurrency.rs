//! Writers and readers while txgs sync.

mod rig;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{BlkId, Buf, ObjectId, ObjsetId};
use dmu::{Dnode, NewObject, OBJECT_END, ObjsetProps, TxgSettings};
use phys::ObjectType;
use rig::{Pool, behind, seeds, take_a_while};

const BLOCKS: u64 = 200;

fn stamped(writer: u64, block: u64, count: u64) -> Buf {
    let words = [writer, block, count];
    let words = words.into_iter().flat_map(u64::to_le_bytes);
    let mut bytes: Vec<u8> = words.collect();
    bytes.resize(512, 0);
    Buf::copy_of(&bytes)
}

/// Each writer has objects of its own: it increments, empties and frees their blocks.
fn write_a_lot(pool: &Pool, writer: u64, rounds: u64) -> BTreeMap<ObjectId, Vec<u64>> {
    let objset = pool.objset();
    let new = NewObject::new(ObjectType::PLAIN_FILE_CONTENTS)
        .blksz(512)
        .ibs(12);
    let new = new.bonus(ObjectType::SA, 0);
    let mut counts: BTreeMap<ObjectId, Vec<u64>> = BTreeMap::new();
    for round in 1..=rounds {
        let tx = pool.groups.hold_open(512).unwrap();
        let choice = rt::random_below(100);
        if counts.is_empty() || (choice < 5 && counts.len() < 5) {
            let dnode = objset.object_alloc(&tx, &new).unwrap();
            dnode.set_bonus(&tx, &writer.to_le_bytes()).unwrap();
            assert!(
                counts
                    .insert(dnode.id(), vec![0; BLOCKS as usize])
                    .is_none()
            );
            continue;
        }
        let index = rt::random_below(counts.len() as u64) as usize;
        let id = *counts.keys().nth(index).unwrap();
        let dnode = objset.hold(id).unwrap();
        let count = counts.get_mut(&id).unwrap();
        let block = rt::random_below(BLOCKS);
        match choice {
            5..8 => {
                dnode.free_range(&tx, block * 512, OBJECT_END).unwrap();
                count[block as usize..].fill(0);
            }
            8..9 => {
                objset.object_free(&tx, id).unwrap();
                counts.remove(&id);
                continue;
            }
            9..40 => {
                dnode
                    .modify_block(&tx, BlkId(block), |bytes| {
                        let seen = u64::from_le_bytes(bytes[16..24].try_into().unwrap());
                        assert_eq!(seen, count[block as usize], "own writes are seen");
                        bytes.copy_from_slice(&stamped(writer, block, round));
                    })
                    .unwrap();
                count[block as usize] = round;
            }
            40..70 => {
                let stamped = stamped(writer, block, round);
                dnode.write(&tx, block * 512, &stamped).unwrap();
                count[block as usize] = round;
            }
            _ => {
                dnode
                    .write_block(&tx, BlkId(block), stamped(writer, block, round))
                    .unwrap();
                count[block as usize] = round;
            }
        }
        drop(tx);
        check_block(&dnode, writer, BlkId(block), count);
        if choice == 99 {
            pool.groups.kick();
        }
    }
    counts
}

fn check_block(dnode: &Dnode, writer: u64, block: BlkId, counts: &[u64]) {
    if dnode.is_freed() {
        return;
    }
    let want = counts[block.0 as usize];
    let want = if want == 0 {
        Buf::zeroed(512)
    } else {
        stamped(writer, block.0, want)
    };
    assert_eq!(
        dnode.read_block(block).unwrap()[..],
        want[..],
        "{dnode:?} block {block}"
    );
}

fn writers_while_syncing(rounds: u64, setup: (ObjsetProps, TxgSettings)) {
    let (props, settings) = setup;
    let is_behind = settings.write_behind_bytes == 1;
    let settings = TxgSettings {
        dirty_data_max: 1 << 20,
        ..settings
    };
    let pool = Pool::new(ObjsetId(7), props, settings);
    // Dnodes come and go all the time.
    pool.objset().set_idle_dnodes_max(2);
    let stop = Arc::new(AtomicBool::new(false));
    let reader = {
        let (pool, stop) = (Arc::clone(&pool), Arc::clone(&stop));
        rt::spawn("reader", move || {
            let mut at = ObjectId(0);
            while !stop.load(Ordering::Relaxed) {
                let objset = pool.objset();
                at = objset.next_object(at).unwrap().unwrap_or(ObjectId(0));
                let Ok(dnode) = objset.hold(at) else { continue };
                let mut bytes = vec![0; 512 * BLOCKS as usize];
                if at.0 != 0 {
                    dnode.read(0, &mut bytes).unwrap();
                    let data = dnode.next_data(512 * rt::random_below(BLOCKS)).unwrap();
                    assert!(data.is_none_or(|data| data < 512 * BLOCKS));
                }
                take_a_while();
            }
        })
    };
    let writers: Vec<_> = (1..4)
        .map(|writer| {
            let pool = Arc::clone(&pool);
            rt::spawn(&format!("writer {writer}"), move || {
                write_a_lot(&pool, writer, rounds)
            })
        })
        .collect();
    let counts: Vec<_> = writers.into_iter().map(rt::JoinHandle::join).collect();
    stop.store(true, Ordering::Relaxed);
    reader.join();
    pool.reopen();
    for (writer, counts) in (1..).zip(&counts) {
        for (id, counts) in counts {
            let dnode = pool.objset().hold(*id).unwrap();
            assert_eq!(*dnode.bonus(), u64::to_le_bytes(writer));
            (0..BLOCKS).for_each(|block| check_block(&dnode, writer, BlkId(block), counts));
        }
    }
    let objects: usize = counts.iter().map(BTreeMap::len).sum();
    assert_eq!(pool.audit().objects.len(), objects);
    assert_eq!(pool.store.stats().behind > 0, is_behind);
    pool.stop();
}

#[test]
fn writers_go_on_while_txgs_sync() {
    writers_while_syncing(3000, Default::default());
    writers_while_syncing(3000, behind());
}

#[test]
fn sim_writers_go_on_while_txgs_sync() {
    for seed in seeds(8) {
        rt::simulate(seed, || writers_while_syncing(400, Default::default()));
        rt::simulate(seed, || writers_while_syncing(400, behind()));
    }
}

/// A stream is written, and its bytes are dropped from the txg, before a sync is asked for.
fn a_stream_before_its_sync(encrypted: bool) {
    const RECORD: usize = 128 << 10;
    let (props, _) = behind();
    let props = ObjsetProps { encrypted, ..props };
    let pool = Pool::new(ObjsetId(7), props, TxgSettings::default());
    let new = NewObject::new(ObjectType::PLAIN_FILE_CONTENTS).blksz(RECORD as u64);
    let dnode = pool.objset().object_alloc(&pool.hold(), &new).unwrap();
    let record = |n: u64| vec![n as u8; RECORD];
    for n in 0..400 {
        dnode
            .write(&pool.hold(), n * RECORD as u64, &record(n))
            .unwrap();
    }
    assert_eq!(pool.store.stats().behind, 400);
    let is_written = || pool.groups.dirty_bytes() < 2 << 20;
    (0..1000).take_while(|_| !is_written()).for_each(|_| {
        rt::sleep_ns(1_000_000);
    });
    assert!(is_written(), "{} are dirty", pool.groups.dirty_bytes());
    let synced = pool.syncs.load(Ordering::Relaxed);
    assert_eq!(synced, 0, "50 MiB are no reason to sync");
    let reads = pool.store.stats().reads;
    let mut bytes = vec![0; RECORD];
    for n in 0..400 {
        dnode.read(n * RECORD as u64, &mut bytes).unwrap();
        assert_eq!(bytes, record(n), "record {n}");
    }
    assert_eq!(pool.store.stats().reads - reads, 400);
    // A record that changes now has to be written once more; the rest stays where it is.
    dnode.write(&pool.hold(), 77, &[0xab; 9]).unwrap();
    dnode
        .free_range(&pool.hold(), 399 * RECORD as u64, OBJECT_END)
        .unwrap();
    let allocs = pool.store.stats().allocs;
    pool.reopen();
    assert!(pool.store.stats().allocs - allocs < 20);
    let dnode = pool.objset().hold(dnode.id()).unwrap();
    dnode.read(0, &mut bytes).unwrap();
    assert_eq!(
        (bytes[76], bytes[77], bytes[85], bytes[86]),
        (0, 0xab, 0xab, 0)
    );
    assert_eq!(dnode.maxblkid(), BlkId(398));
    pool.audit();
    pool.stop();
}

#[test]
fn a_stream_is_written_before_its_txg_is_synced() {
    [false, true].into_iter().for_each(a_stream_before_its_sync);
}

#[test]
fn sim_a_stream_is_written_before_its_txg_is_synced() {
    for seed in seeds(3) {
        rt::simulate(seed, || a_stream_before_its_sync(seed % 2 == 1));
    }
}

/// One thread appends; what it has written is never seen as a hole.
fn seeking_behind_a_writer() {
    let pool = Pool::new(ObjsetId(7), ObjsetProps::default(), TxgSettings::default());
    let new = NewObject::new(ObjectType::PLAIN_FILE_CONTENTS)
        .blksz(512)
        .ibs(12);
    let dnode = pool.objset().object_alloc(&pool.hold(), &new).unwrap();
    let written = Arc::new(AtomicU64::new(0));
    let seekers: Vec<_> = (0..2)
        .map(|n| {
            let (dnode, written) = (Arc::clone(&dnode), Arc::clone(&written));
            rt::spawn(&format!("seeker {n}"), move || {
                loop {
                    let end = written.load(Ordering::Acquire);
                    let from = rt::random_below(end + 1) * 512;
                    let hole = dnode.next_hole(from).unwrap();
                    assert!(hole >= end * 512, "hole at {hole} of {}", end * 512);
                    let data = dnode.next_data(from).unwrap();
                    assert!(from == end * 512 || data == Some(from), "data at {data:?}");
                    if end == 300 {
                        break;
                    }
                    take_a_while();
                }
            })
        })
        .collect();
    for block in 0..300 {
        dnode.write(&pool.hold(), block * 512, &[1; 512]).unwrap();
        written.store(block + 1, Ordering::Release);
        if block % 3 == 0 {
            pool.groups.kick();
        }
        if rt::is_simulated() {
            rt::sleep_ns(rt::random_below(3000));
        }
    }
    seekers.into_iter().for_each(rt::JoinHandle::join);
    pool.stop();
}

#[test]
fn what_was_written_is_no_hole() {
    seeking_behind_a_writer();
}

#[test]
fn sim_what_was_written_is_no_hole() {
    for seed in seeds(5) {
        rt::simulate(seed, seeking_behind_a_writer);
    }
}

/// Two threads change different parts of the same blocks.
fn neighbours_in_a_block() {
    let pool = Pool::new(ObjsetId(7), ObjsetProps::default(), TxgSettings::default());
    let new = NewObject::new(ObjectType::PLAIN_FILE_CONTENTS)
        .blksz(4096)
        .ibs(12);
    let id = pool.objset().object_alloc(&pool.hold(), &new).unwrap().id();
    let threads: Vec<_> = (0..4u64)
        .map(|n| {
            let pool = Arc::clone(&pool);
            rt::spawn(&format!("thread {n}"), move || {
                let dnode = pool.objset().hold(id).unwrap();
                for round in 1..60u8 {
                    for block in 0..20 {
                        let at = block * 4096 + n * 1024;
                        dnode.write(&pool.hold(), at, &[round; 1024]).unwrap();
                        let mut bytes = [0; 1024];
                        dnode.read(at, &mut bytes).unwrap();
                        assert_eq!(bytes, [round; 1024]);
                    }
                    if u64::from(round) % 4 == n {
                        pool.groups.kick();
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(rt::JoinHandle::join);
    pool.reopen();
    let mut bytes = vec![0; 20 * 4096];
    pool.objset().hold(id).unwrap().read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|b| *b == 59));
    pool.audit();
    pool.stop();
}

#[test]
fn parts_of_a_block_do_not_undo_each_other() {
    neighbours_in_a_block();
}

#[test]
fn sim_parts_of_a_block_do_not_undo_each_other() {
    for seed in seeds(5) {
        rt::simulate(seed, neighbours_in_a_block);
    }
}
