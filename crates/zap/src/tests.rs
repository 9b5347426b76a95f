//! ZAPs against a model, reopened, damaged, and large.

mod damage;
mod large;
mod model;

use std::collections::BTreeSet;
use std::sync::Arc;

use arc::ArcSettings;
use base::{BlkId, ErrorKind, ObjsetId, Result, Txg};
use dmu::{FreeAtOnce, Objset, ObjsetProps, Tx};
use phys::{ObjectType, ObjsetType};
use ram::RamStore;
use zio::BlockStore;

use crate::fat::Header;
use crate::leaf::Leaf;
use crate::{Flags, Key, NewZap, Zap, create, create_with, destroy};

/// An objset in memory and its next txg.
pub(crate) struct Bench {
    pub(crate) objset: Arc<Objset>,
    store: Arc<dyn BlockStore>,
    txg: u64,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        let ram = Arc::new(RamStore::new());
        let store: Arc<dyn BlockStore> = Arc::new(arc::Cache::new(ram, ArcSettings::default()));
        let objset = Objset::create(
            store.clone(),
            ObjsetId(21),
            ObjsetType::Meta,
            ObjsetProps::default(),
            Arc::new(FreeAtOnce(store.clone())),
            &Tx::syncing(Txg(4)),
        );
        Bench {
            objset,
            store,
            txg: 4,
        }
    }

    pub(crate) fn tx(&self) -> Tx {
        Tx::syncing(Txg(self.txg))
    }

    /// Syncs everything and opens the objset anew.
    pub(crate) fn reopen(&mut self) {
        let tx = self.tx();
        let mut root = self.objset.root_bp();
        let mut pass = 1;
        while self.objset.needs_sync() {
            root = self.objset.sync(&tx, pass).expect("memory does not fail");
            pass += 1;
        }
        self.objset.sync_done(Txg(self.txg));
        self.txg += 1;
        let accounting = Arc::new(FreeAtOnce(self.store.clone()));
        let props = ObjsetProps::default();
        let opened = Objset::open(self.store.clone(), ObjsetId(21), &root, props, accounting);
        self.objset = opened.expect("what was just synced");
    }
}

/// Checks every invariant of the format.
pub(crate) fn check_structure(zap: &Zap) -> Result<()> {
    let stats = zap.stats()?;
    if stats.is_micro {
        return Ok(());
    }
    let dnode = zap.dnode();
    let header = Header::parse(&dnode.read_block(BlkId(0))?)?;
    let pointers: Vec<u64> = pointers(zap, &header)?;
    let mut leafs = BTreeSet::new();
    let mut entries = 0;
    let mut index = 0;
    while index < pointers.len() {
        let blk = pointers[index];
        let block = dnode.read_block(BlkId(blk))?;
        let leaf = Leaf::open(&block[..])?;
        leaf.verify()?;
        let span = 1 << (header.table.shift - u64::from(leaf.prefix_len()));
        assert_eq!(
            index as u64,
            leaf.prefix() * span as u64,
            "leaf {blk} is where it belongs"
        );
        assert!(
            pointers[index..index + span].iter().all(|p| *p == blk),
            "all its pointers"
        );
        assert!(leafs.insert(blk), "leaf {blk} has one range of pointers");
        assert!(
            blk < header.freeblk,
            "leaf {blk} is below zap_freeblk {}",
            header.freeblk
        );
        entries += u64::from(leaf.nentries());
        index += span;
    }
    assert_eq!(entries, header.num_entries, "zap_num_entries");
    assert_eq!(leafs.len() as u64, header.num_leafs, "zap_num_leafs");
    Ok(())
}

fn pointers(zap: &Zap, header: &Header) -> Result<Vec<u64>> {
    let words = |block: &[u8]| {
        let words = block.chunks_exact(8).map(|w| {
            let rev: Vec<u8> = w.iter().rev().copied().collect();
            crate::value::from_big_endian(&rev)
        });
        words.collect::<Vec<u64>>()
    };
    let dnode = zap.dnode();
    if header.table.numblks == 0 {
        let block = dnode.read_block(BlkId(0))?;
        return Ok(words(&block[block.len() / 2..]));
    }
    let mut all = Vec::new();
    for blk in 0..header.table.numblks {
        all.extend(words(&dnode.read_block(BlkId(header.table.blk + blk))?));
    }
    for copied in 0..header.table.blks_copied * 2 {
        let copy = words(&dnode.read_block(BlkId(header.table.nextblk + copied))?);
        let at = copied as usize * copy.len();
        assert!(
            copy.iter()
                .zip(at..)
                .all(|(pointer, at)| *pointer == all[at / 2]),
            "the larger table agrees with the smaller"
        );
    }
    Ok(all)
}

#[test]
fn micro_grows_and_becomes_fat_when_full() {
    let mut bench = Bench::new();
    let id = create(&bench.objset, &bench.tx(), ObjectType::DIRECTORY_CONTENTS).unwrap();
    let zap = Zap::open(&bench.objset, id).unwrap();
    let tx = bench.tx();
    // 128 KiB hold 2047 entries; one more does not fit.
    for i in 0..2047u64 {
        zap.add_u64(&tx, &format!("file{i}"), i).unwrap();
    }
    let stats = zap.stats().unwrap();
    assert_eq!(
        (stats.is_micro, stats.block_bytes, stats.entries),
        (true, 131_072, 2047)
    );
    zap.add_u64(&tx, "one more", 1).unwrap();
    let after = zap.stats().unwrap();
    assert_eq!(
        (after.is_micro, after.block_bytes, after.entries),
        (false, 16_384, 2048)
    );
    assert_eq!(after.salt, stats.salt);
    check_structure(&zap).unwrap();
    drop((zap, tx));
    bench.reopen();
    let zap = Zap::open(&bench.objset, id).unwrap();
    for i in 0..2047u64 {
        assert_eq!(zap.lookup_u64(&format!("file{i}")).unwrap(), Some(i));
    }
    assert_eq!(zap.lookup_u64("file2047").unwrap(), None);
}

#[test]
fn long_names_and_arrays_make_a_zap_fat() {
    let bench = Bench::new();
    let tx = bench.tx();
    let new = || {
        let id = create(&bench.objset, &tx, ObjectType::ZAP_OTHER).unwrap();
        Zap::open(&bench.objset, id).unwrap()
    };
    let zap = new();
    zap.add_u64(&tx, &"n".repeat(49), 1).unwrap();
    assert!(zap.stats().unwrap().is_micro);
    zap.add_u64(&tx, &"n".repeat(50), 2).unwrap();
    assert!(!zap.stats().unwrap().is_micro);
    assert_eq!(zap.lookup_u64(&"n".repeat(49)).unwrap(), Some(1));
    let zap = new();
    zap.update(&tx, "layout", &[5u16, 6, 4]).unwrap();
    assert!(!zap.stats().unwrap().is_micro);
    assert_eq!(zap.lookup::<u16>("layout").unwrap(), Some(vec![5, 6, 4]));
    assert_eq!(zap.lookup::<u64>("layout").unwrap(), Some(vec![5, 6, 4]));
    assert!(zap.lookup::<u8>("layout").is_err(), "too narrow");
    assert!(zap.lookup_u64("layout").is_err(), "an array");
    zap.update_str(&tx, "comment", "hello").unwrap();
    assert_eq!(zap.lookup_str("comment").unwrap().as_deref(), Some("hello"));
    assert!(
        zap.add_u64(&tx, &"n".repeat(256), 2).is_err(),
        "too long outside of directories"
    );
}

#[test]
fn counters_go_and_come() {
    let bench = Bench::new();
    let tx = bench.tx();
    let id = create(&bench.objset, &tx, ObjectType::USERGROUP_USED).unwrap();
    let zap = Zap::open(&bench.objset, id).unwrap();
    zap.increment(&tx, Key::Int(0x3e8), 7).unwrap();
    zap.increment(&tx, Key::Int(0x3e8), -2).unwrap();
    assert_eq!(zap.lookup_u64("3e8").unwrap(), Some(5));
    assert_eq!(zap.iter().next().unwrap().unwrap().int_key().unwrap(), 1000);
    zap.increment(&tx, "3e8", -5).unwrap();
    assert!(!zap.contains("3e8").unwrap());
    assert_eq!(zap.count().unwrap(), 0);
}

#[test]
fn a_value_that_fits_into_no_leaf_is_refused_for_new_and_for_known_names() {
    let bench = Bench::new();
    let tx = bench.tx();
    let new = NewZap {
        flags: Flags::HASH64,
        block_shift: 12,
        ..NewZap::new(ObjectType::ZAP_OTHER)
    };
    let id = create_with(&bench.objset, &tx, &new).unwrap().id();
    let zap = Zap::open(&bench.objset, id).unwrap();
    zap.update(&tx, "known", &[1u8; 100]).unwrap();
    for name in ["known", "new"] {
        let error = zap.update(&tx, name, &[2u8; 8000]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooBig, "{name}: {error}");
    }
    assert_eq!(zap.lookup::<u8>("known").unwrap(), Some(vec![1; 100]));
    check_structure(&zap).unwrap();
}

#[test]
fn keys_of_words_with_their_own_hash() {
    let mut bench = Bench::new();
    let tx = bench.tx();
    let new = NewZap {
        flags: Flags::HASH64 | Flags::UINT64_KEY | Flags::PRE_HASHED_KEY,
        block_shift: 15,
        ..NewZap::new(ObjectType::DDT_ZAP)
    };
    let id = create_with(&bench.objset, &tx, &new).unwrap().id();
    let zap = Zap::open(&bench.objset, id).unwrap();
    let key = |i: u64| [i.wrapping_mul(0x9e37_79b9_7f4a_7c15), i, 3, 4, 5];
    for i in 0..5000 {
        zap.add(&tx, &key(i), &[i as u8; 30]).unwrap();
    }
    assert!(zap.add_u64(&tx, "a name", 1).is_err());
    check_structure(&zap).unwrap();
    drop(zap);
    bench.reopen();
    let zap = Zap::open(&bench.objset, id).unwrap();
    for i in 0..5000 {
        assert_eq!(zap.lookup::<u8>(&key(i)).unwrap(), Some(vec![i as u8; 30]));
    }
    assert_eq!(zap.lookup::<u8>(&key(5000)).unwrap(), None);
    let met: BTreeSet<u64> = zap.iter().map(|e| e.unwrap().words()[1]).collect();
    assert_eq!(met.len(), 5000);
}

#[test]
fn a_cursor_survives_removals_and_growth() {
    let bench = Bench::new();
    let tx = bench.tx();
    for (count, fat) in [(300u64, false), (5000, true)] {
        let id = create(&bench.objset, &tx, ObjectType::UNLINKED_SET).unwrap();
        let zap = Zap::open(&bench.objset, id).unwrap();
        for i in 0..count {
            zap.add_u64(&tx, Key::Int(i), i).unwrap();
        }
        assert_eq!(!zap.stats().unwrap().is_micro, fat);
        let mut met = BTreeSet::new();
        let mut position = 0;
        let mut extra = 0u64;
        loop {
            // Each step resumes from the number alone.
            let mut cursor = zap.cursor(position);
            let Some(entry) = cursor.next() else { break };
            let entry = entry.unwrap();
            position = cursor.serialize();
            if entry.name.starts_with(b"later") {
                continue;
            }
            assert!(
                met.insert(entry.first_integer),
                "{} twice",
                entry.name_str()
            );
            zap.remove(&tx, &entry.name).unwrap();
            extra += 1;
            zap.add_u64(&tx, &format!("later{extra}{}", "x".repeat(60)), extra)
                .unwrap();
        }
        assert_eq!(met.len() as u64, count, "every entry that was there is met");
        check_structure(&zap).unwrap();
        drop(zap);
        destroy(&bench.objset, &tx, id).unwrap();
    }
}
