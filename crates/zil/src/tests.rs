//! Tests with a file system of one object; each log record sets bytes of it.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use base::{Buf, Error, ErrorKind, ObjectId, ObjsetId, Result, Txg};
use dmu::{
    BlockAccounting, FreeAtOnce, NewObject, Objset, ObjsetProps, Tx, TxGroups, TxgSettings, TxgSync,
};
use phys::zil::{LrWritePhys, ZIL_CLAIM_LR_SEQ_VALID, ZIL_REPLAY_NEEDED, tx as txtype};
use phys::{BlkPtrPhys, LrPhys, ObjectType, ObjsetType, Phys};
use proptest::prelude::*;
use ram::RamStore;
use rt::Mutex;
use zio::{BlockStore, Bookmark, LogStore, NewLogBlock, WriteRequest};

use crate::{DataRequest, Itx, ReplaySink, SyncMode, WriteState, ZilHost, ZilParts, Zilog};

const FILE: ObjectId = ObjectId(1);
const OBJSET: ObjsetId = ObjsetId(54);

/// A store whose log blocks reach the disk when it is flushed, or at random.
struct CrashStore {
    ram: RamStore,
    state: Mutex<CrashState>,
}

#[derive(Default)]
struct CrashState {
    cached: Vec<(BlkPtrPhys, Buf)>,
    /// Log writes and flushes left until the power fails; `None`: it does not fail.
    left: Option<u64>,
    no_space: bool,
    claimed: BTreeSet<u64>,
}

impl CrashStore {
    fn tick(&self) -> Result<()> {
        let mut state = self.state.lock();
        match &mut state.left {
            Some(0) => Err(Error::new(ErrorKind::Io, "power is off")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn is_off(&self) -> bool {
        self.state.lock().left == Some(0)
    }

    /// Frees what was allocated in txgs that were never synced, and was not claimed.
    fn forget_unsynced(&self, first_txg: Txg) {
        let claimed = std::mem::take(&mut self.state.lock().claimed);
        for bp in self.ram.live() {
            if bp.birth() >= first_txg && !claimed.contains(&bp.dva[0].offset()) {
                self.ram.free(first_txg, &bp);
            }
        }
    }

    /// Restores power: of the cached blocks, block `i` has survived if bit `i` is set.
    fn restore(&self, survivors: u64) {
        let mut state = self.state.lock();
        let cached = std::mem::take(&mut state.cached);
        state.left = None;
        drop(state);
        for (at, (bp, data)) in cached.into_iter().enumerate() {
            if survivors >> (at % 64) & 1 == 1 {
                self.ram.write_log(&bp, data, &Bookmark::default()).unwrap();
            }
        }
    }
}

impl BlockStore for CrashStore {
    fn read(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        self.ram.read(bp, bookmark)
    }

    fn write_batch(&self, txg: Txg, requests: Vec<WriteRequest>) -> Result<Vec<BlkPtrPhys>> {
        self.ram.write_batch(txg, requests)
    }

    fn free(&self, txg: Txg, bp: &BlkPtrPhys) {
        self.ram.free(txg, bp);
    }
}

impl LogStore for CrashStore {
    fn alloc_log(&self, new: &NewLogBlock) -> Result<BlkPtrPhys> {
        if self.state.lock().no_space {
            return Err(Error::new(ErrorKind::NoSpace, "no room for a log"));
        }
        self.ram.alloc_log(new)
    }

    fn write_log(&self, bp: &BlkPtrPhys, data: Buf, _bookmark: &Bookmark) -> Result<()> {
        self.tick()?;
        self.state.lock().cached.push((*bp, data));
        Ok(())
    }

    fn claim(&self, txg: Txg, bp: &BlkPtrPhys) -> Result<()> {
        self.state.lock().claimed.insert(bp.dva[0].offset());
        self.ram.claim(txg, bp)
    }

    fn read_log(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        self.ram.read_log(bp, bookmark)
    }

    fn flush_log(&self, _blocks: &[BlkPtrPhys]) -> Result<()> {
        self.tick()?;
        for (bp, data) in std::mem::take(&mut self.state.lock().cached) {
            self.ram.write_log(&bp, data, &Bookmark::default())?;
        }
        Ok(())
    }
}

/// What is on disk besides blocks: the root of the last txg.
#[derive(Clone, Copy)]
struct Uberblock {
    root: BlkPtrPhys,
    txg: Txg,
}

struct Pool {
    store: Arc<CrashStore>,
    objset: Arc<Objset>,
    zil: Weak<Zilog>,
    uberblock: Mutex<Uberblock>,
}

impl TxgSync for Pool {
    fn freeze(&self, txg: Txg) {
        self.objset.freeze(txg);
    }

    fn sync(&self, txg: Txg) -> Result<()> {
        if self.store.is_off() {
            return Err(Error::new(ErrorKind::Io, "power is off"));
        }
        let tx = Tx::syncing(txg);
        if let Some(zil) = self.zil.upgrade() {
            zil.sync(&tx)?;
        }
        let mut root = self.objset.sync(&tx, 1)?;
        while self.objset.needs_sync() {
            root = self.objset.sync(&tx, 2)?;
        }
        self.objset.sync_done(txg);
        *self.uberblock.lock() = Uberblock { root, txg };
        Ok(())
    }
}

struct Host;

impl ZilHost for Host {
    fn dirty(&self, _tx: &Tx) {}
}

/// A mounted file system.
struct Fs {
    pool: Arc<Pool>,
    groups: Arc<TxGroups>,
    zil: Arc<Zilog>,
}

fn settings() -> TxgSettings {
    TxgSettings {
        timeout_ns: u64::MAX / 2,
        ..TxgSettings::default()
    }
}

impl Fs {
    fn new() -> Fs {
        let ram = RamStore::new();
        let store = Arc::new(CrashStore {
            ram,
            state: Mutex::new(CrashState::default()),
        });
        let accounting: Arc<dyn BlockAccounting> = Arc::new(FreeAtOnce(store.clone()));
        let tx = Tx::syncing(Txg(4));
        let props = ObjsetProps::default();
        let objset = Objset::create(
            store.clone(),
            OBJSET,
            ObjsetType::Zfs,
            props,
            accounting,
            &tx,
        );
        let file = NewObject::new(ObjectType::PLAIN_FILE_CONTENTS).blksz(4096);
        objset.object_claim(&tx, FILE, &file).unwrap();
        let mut root = objset.sync(&tx, 1).unwrap();
        while objset.needs_sync() {
            root = objset.sync(&tx, 2).unwrap();
        }
        Fs::start(store, objset, Uberblock { root, txg: Txg(4) })
    }

    fn start(store: Arc<CrashStore>, objset: Arc<Objset>, uberblock: Uberblock) -> Fs {
        let groups = TxGroups::new(uberblock.txg, settings());
        let zil = Zilog::new(ZilParts {
            objset: objset.clone(),
            store: store.clone(),
            groups: groups.clone(),
            host: Arc::new(Host),
        });
        let weak = Arc::downgrade(&zil);
        let uberblock = Mutex::new(uberblock);
        let pool = Arc::new(Pool {
            store,
            objset,
            zil: weak,
            uberblock,
        });
        groups.start(pool.clone());
        let fs = Fs { pool, groups, zil };
        let objset = fs.pool.objset.clone();
        fs.zil
            .set_get_data(Some(Box::new(move |request: &DataRequest| {
                let mut data = vec![0; request.len as usize];
                objset.hold(request.id)?.read(request.offset, &mut data)?;
                Ok(Some(data))
            })));
        fs
    }

    /// Drops everything in memory, imports, and replays the log.
    fn crash(self, survivors: u64) -> Fs {
        let fs = self.import(survivors);
        fs.replay();
        fs
    }

    fn import(self, survivors: u64) -> Fs {
        self.groups.fail(&Error::new(ErrorKind::Io, "crash"));
        let _ = self.groups.stop();
        let store = self.pool.store.clone();
        let uberblock = *self.pool.uberblock.lock();
        drop(self);
        store.restore(survivors);
        let first_txg = uberblock.txg.next();
        let accounting: Arc<dyn BlockAccounting> = Arc::new(FreeAtOnce(store.clone()));
        let props = ObjsetProps::default();
        let objset =
            Objset::open(store.clone(), OBJSET, &uberblock.root, props, accounting).unwrap();
        let mut header = objset.zil_header();
        if !header.log.is_hole() && header.claim_txg.get() == 0 {
            let parsed = crate::claim(&*store, OBJSET, &header, first_txg).unwrap();
            header.claim_txg.set(first_txg.0);
            header.claim_blk_seq.set(parsed.blk_seq);
            header.claim_lr_seq.set(parsed.lr_seq);
            let needed = parsed.records > 0 || parsed.blocks > 1;
            let flags = if needed { ZIL_REPLAY_NEEDED } else { 0 };
            header.flags.set(flags | ZIL_CLAIM_LR_SEQ_VALID);
            objset.set_zil_header(&Tx::syncing(first_txg), header);
        }
        store.forget_unsynced(first_txg);
        Fs::start(store, objset, uberblock)
    }

    fn replay(&self) {
        let mut sink = Sink {
            fs: self,
            fail_at: None,
        };
        self.zil.replay(&mut sink).unwrap();
    }

    /// Sets one byte, and logs it.
    fn set(&self, at: u64, byte: u8, copied: bool) {
        let tx = self.groups.hold_open(0).unwrap();
        self.pool
            .objset
            .hold(FILE)
            .unwrap()
            .write(&tx, at, &[byte])
            .unwrap();
        self.zil.log(&tx, write_record(at, &[byte], copied));
    }

    fn get(&self, at: u64) -> u8 {
        let mut byte = [0];
        self.pool
            .objset
            .hold(FILE)
            .unwrap()
            .read(at, &mut byte)
            .unwrap();
        byte[0]
    }

    fn sync(&self) {
        let tx = self.groups.hold_open(0).unwrap();
        self.groups.note_dirty(0);
        let txg = tx.txg();
        drop(tx);
        self.groups.wait_synced(txg).unwrap();
    }

    /// Checks that every live block belongs to the objset's tree or to the chain.
    fn check_no_leak(&self) {
        let store = &self.pool.store;
        let mut reachable = BTreeSet::new();
        struct Blocks<'a>(&'a mut BTreeSet<u64>);
        impl crate::Visitor for Blocks<'_> {
            fn block(&mut self, bp: &BlkPtrPhys) -> Result<()> {
                self.0.insert(bp.dva[0].offset());
                Ok(())
            }
        }
        let header = self.pool.objset.zil_header();
        crate::parse(&**store, OBJSET, &header, &mut Blocks(&mut reachable)).unwrap();
        let live = store.ram.live();
        let log = |bp: &&BlkPtrPhys| bp.object_type() == ObjectType::INTENT_LOG.raw();
        let live_log: BTreeSet<u64> = live
            .iter()
            .filter(log)
            .map(|bp| bp.dva[0].offset())
            .collect();
        assert_eq!(live_log, reachable, "log blocks");
    }
}

impl Drop for Fs {
    fn drop(&mut self) {
        let _ = self.groups.stop();
    }
}

fn write_record(at: u64, data: &[u8], copied: bool) -> Itx {
    let mut phys = LrWritePhys::default();
    phys.common.txtype.set(txtype::WRITE);
    phys.foid.set(FILE.0);
    phys.offset.set(at);
    phys.length.set(data.len() as u64);
    let mut record = zerocopy::IntoBytes::as_bytes(&phys).to_vec();
    let len = data.len() as u64;
    let write_state = match copied {
        true => WriteState::Complete,
        false => WriteState::NeedCopy(DataRequest {
            id: FILE,
            generation: 0,
            offset: at,
            len,
        }),
    };
    if copied {
        record.extend_from_slice(data);
        record.resize(record.len().next_multiple_of(8), 0);
    }
    Itx {
        record,
        object: FILE,
        is_sync: copied,
        write_state,
    }
}

struct Sink<'a> {
    fs: &'a Fs,
    /// The power fails at this record.
    fail_at: Option<u64>,
}

impl ReplaySink for Sink<'_> {
    fn replay(&mut self, common: &LrPhys, record: &[u8]) -> Result<()> {
        if self.fail_at == Some(common.seq.get()) {
            return Err(Error::new(ErrorKind::Io, "power is off"));
        }
        assert_eq!(common.tx_type(), txtype::WRITE);
        let write = LrWritePhys::read(record)?;
        let data = &record[LrWritePhys::SIZE..][..write.length.get() as usize];
        let tx = self.fs.groups.hold_open(0)?;
        self.fs
            .pool
            .objset
            .hold(FILE)?
            .write(&tx, write.offset.get(), data)?;
        assert!(self.fs.zil.is_replaying(&tx));
        Ok(())
    }
}

#[test]
fn what_was_committed_survives_a_crash() {
    let fs = Fs::new();
    fs.set(0, 1, true);
    fs.set(5, 2, false);
    fs.zil.commit(Some(FILE)).unwrap();
    fs.set(9, 3, true);
    fs.zil.commit(None).unwrap();
    fs.set(5000, 4, false);
    fs.zil.commit(None).unwrap();
    fs.set(11, 9, true);
    let fs = fs.crash(0);
    assert_eq!(
        [fs.get(0), fs.get(5), fs.get(9), fs.get(5000)],
        [1, 2, 3, 4]
    );
    assert_eq!(fs.get(11), 0, "never committed");
    fs.check_no_leak();
    fs.set(12, 7, true);
    fs.zil.commit(None).unwrap();
    let fs = fs.crash(0);
    assert_eq!(fs.get(12), 7);
    fs.check_no_leak();
}

#[test]
fn records_of_synced_txgs_are_not_replayed() {
    let fs = Fs::new();
    fs.set(0, 1, true);
    fs.zil.commit(None).unwrap();
    fs.set(0, 2, true);
    fs.zil.commit(None).unwrap();
    fs.sync();
    // Changed without a record: a replay of what is synced would undo it.
    let tx = fs.groups.hold_open(0).unwrap();
    fs.pool
        .objset
        .hold(FILE)
        .unwrap()
        .write(&tx, 0, &[8])
        .unwrap();
    drop(tx);
    fs.sync();
    fs.set(1, 3, true);
    fs.zil.commit(None).unwrap();
    let fs = fs.crash(0);
    assert_eq!([fs.get(0), fs.get(1)], [8, 3]);
}

#[test]
fn log_blocks_are_freed_when_their_txg_is_synced() {
    let fs = Fs::new();
    for round in 0..20 {
        fs.set(round, 1, true);
        fs.zil.commit(None).unwrap();
        if round % 3 == 0 {
            fs.sync();
        }
        fs.check_no_leak();
    }
    fs.sync();
    fs.sync();
    let logs = fs.pool.store.ram.live().into_iter();
    let logs = logs.filter(|bp| bp.object_type() == ObjectType::INTENT_LOG.raw());
    assert_eq!(logs.count(), 1, "only the one that is to be written next");
    fs.zil.close().unwrap();
    fs.check_no_leak();
    let fs = fs.crash(0);
    fs.check_no_leak();
    assert_eq!(fs.get(19), 1);
}

#[test]
fn large_writes_are_copied_in_parts() {
    let fs = Fs::new();
    let data: Vec<u8> = (0..400_000u32).map(|i| (i % 251) as u8).collect();
    let tx = fs.groups.hold_open(0).unwrap();
    fs.pool
        .objset
        .hold(FILE)
        .unwrap()
        .write(&tx, 100, &data)
        .unwrap();
    fs.zil.log(&tx, write_record(100, &data, false));
    drop(tx);
    fs.zil.commit(Some(FILE)).unwrap();
    fs.set(0, 1, true);
    fs.zil.commit(None).unwrap();
    let fs = fs.crash(0);
    let mut found = vec![0; data.len()];
    fs.pool
        .objset
        .hold(FILE)
        .unwrap()
        .read(100, &mut found)
        .unwrap();
    assert!(found == data);
    assert_eq!(fs.get(0), 1);
    fs.check_no_leak();
}

#[test]
fn without_room_for_a_log_the_txg_is_waited_for() {
    let fs = Fs::new();
    fs.pool.store.state.lock().no_space = true;
    fs.set(0, 1, true);
    fs.zil.commit(None).unwrap();
    fs.pool.store.state.lock().no_space = false;
    fs.set(1, 2, true);
    fs.zil.commit(None).unwrap();
    fs.set(2, 3, true);
    fs.zil.commit(None).unwrap();
    fs.pool.store.state.lock().no_space = true;
    fs.set(3, 4, true);
    fs.zil.commit(None).unwrap();
    fs.pool.store.state.lock().no_space = false;
    fs.check_no_leak();
    fs.set(4, 5, true);
    fs.zil.commit(None).unwrap();
    let fs = fs.crash(0);
    assert_eq!([0, 1, 2, 3, 4].map(|at| fs.get(at)), [1, 2, 3, 4, 5]);
    fs.check_no_leak();
}

#[test]
fn sync_disabled_commits_nothing() {
    let fs = Fs::new();
    fs.zil.set_mode(SyncMode::Disabled);
    fs.set(0, 1, true);
    fs.zil.commit(None).unwrap();
    let fs = fs.crash(0);
    assert_eq!(fs.get(0), 0);
}

#[test]
fn a_crash_during_replay_repeats_nothing() {
    let fs = Fs::new();
    for at in 0..10 {
        fs.set(at, 1, true);
        fs.zil.commit(None).unwrap();
    }
    let fs = fs.import(0);
    // The replay gets half way, and some of its changes reach the disk.
    let seq = {
        let header = fs.pool.objset.zil_header();
        header.claim_lr_seq.get() - 4
    };
    fs.zil.begin_replay();
    struct Half<'a>(Sink<'a>, u64);
    impl crate::Visitor for Half<'_> {
        fn record(&mut self, common: &LrPhys, record: &[u8]) -> Result<()> {
            if common.seq.get() > self.1 {
                return Err(Error::new(ErrorKind::Io, "power is off"));
            }
            self.0.fs.zil.set_replaying(common.seq.get());
            self.0.replay(common, record)
        }
    }
    let header = fs.pool.objset.zil_header();
    let mut half = Half(
        Sink {
            fs: &fs,
            fail_at: None,
        },
        seq,
    );
    crate::parse(&*fs.pool.store, OBJSET, &header, &mut half).unwrap_err();
    fs.sync();
    assert_eq!(fs.pool.objset.zil_header().replay_seq.get(), seq);
    let fs = fs.import(0);
    let mut sink = Sink {
        fs: &fs,
        fail_at: None,
    };
    let done = fs.zil.replay(&mut sink).unwrap();
    assert_eq!(done.records, 4);
    assert!((0..10).all(|at| fs.get(at) == 1));
    fs.check_no_leak();
}

#[test]
fn a_record_that_cannot_be_replayed_ends_the_replay() {
    let fs = Fs::new();
    for at in 0..4 {
        fs.set(at, 1, true);
        fs.zil.commit(None).unwrap();
    }
    let fs = fs.import(0);
    let last = fs.pool.objset.zil_header().claim_lr_seq.get();
    let mut sink = Sink {
        fs: &fs,
        fail_at: Some(last),
    };
    assert_eq!(
        fs.zil.replay(&mut sink).unwrap_err().kind(),
        ErrorKind::Corrupt
    );
    assert_eq!([fs.get(2), fs.get(3)], [1, 0]);
    fs.check_no_leak();
    fs.set(3, 2, true);
    fs.zil.commit(None).unwrap();
}

#[test]
fn a_replay_ends_although_the_log_cannot_be_destroyed() {
    let fs = Fs::new();
    fs.set(0, 1, true);
    fs.zil.commit(None).unwrap();
    let fs = fs.import(0);
    fs.pool.store.state.lock().left = Some(0);
    let mut sink = Sink {
        fs: &fs,
        fail_at: None,
    };
    assert!(fs.zil.replay(&mut sink).is_err(), "no txg is synced");
    assert!(!fs.zil.is_replaying(&Tx::syncing(Txg(99))));
}

#[derive(Clone, Debug)]
enum Op {
    Set(u64, bool),
    Commit,
    Sync,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        5 => (0..20_000u64, any::<bool>()).prop_map(|(at, copied)| Op::Set(at, copied)),
        3 => Just(Op::Commit),
        1 => Just(Op::Sync),
    ];
    prop::collection::vec(op, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: zil_cases(), ..ProptestConfig::default() })]
    /// Power fails after any number of log writes and flushes; any part of what was not flushed
    /// survives. After every crash, all committed changes are there, and the state is that at some
    /// moment of the run.
    #[test]
    fn prop_promises_survive_power_cuts(
        rounds in prop::collection::vec((ops(), 0..30u64, any::<u64>()), 1..4)
    ) {
        let mut fs = Fs::new();
        let mut serial = 0u8;
        let mut base = std::collections::BTreeMap::<u64, u8>::new();
        for (ops, cut, survivors) in rounds {
            let mut history = vec![base.clone()];
            let mut promised = 0;
            fs.pool.store.state.lock().left = Some(cut);
            for op in &ops {
                match op {
                    Op::Set(at, copied) => {
                        let Ok(tx) = fs.groups.hold_open(0) else { break };
                        serial = serial.wrapping_add(1).max(1);
                        let dnode = fs.pool.objset.hold(FILE).unwrap();
                        dnode.write(&tx, *at, &[serial]).unwrap();
                        let mut itx = write_record(*at, &[serial], *copied);
                        // All records are in one order, so any surviving state is a prefix of it.
                        itx.is_sync = true;
                        fs.zil.log(&tx, itx);
                        let mut next = history.last().unwrap().clone();
                        next.insert(*at, serial);
                        history.push(next);
                    }
                    Op::Commit if fs.zil.commit(None).is_ok() => promised = history.len() - 1,
                    Op::Sync if fs.groups.sync_all().is_ok() => promised = history.len() - 1,
                    Op::Commit | Op::Sync => break,
                }
            }
            fs = fs.crash(survivors);
            let file = fs.pool.objset.hold(FILE).unwrap();
            let mut bytes = vec![0; 20_000];
            file.read(0, &mut bytes).unwrap();
            let is = |state: &std::collections::BTreeMap<u64, u8>| {
                (0..20_000u64).all(|at| bytes[at as usize] == state.get(&at).copied().unwrap_or(0))
            };
            let found = history.iter().rposition(&is);
            // Data is copied only when a record is written, so it may be a later byte of that place.
            let found = found.or_else(|| history.iter().position(|state| {
                state.iter().all(|(at, byte)| {
                    let now = bytes[*at as usize];
                    now == *byte || history.iter().any(|later| later.get(at) == Some(&now))
                })
            }));
            prop_assert!(found.is_some(), "no state of the past");
            prop_assert!(found.unwrap() >= promised, "{found:?} < {promised}");
            fs.check_no_leak();
            base = (0..20_000u64)
                .filter(|at| bytes[*at as usize] != 0)
                .map(|at| (at, bytes[at as usize]))
                .collect();
        }
    }
}

fn zil_cases() -> u32 {
    std::env::var("ZIL_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(40)
}
