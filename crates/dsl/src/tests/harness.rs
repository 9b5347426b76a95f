//! A pool in memory: the minimum of what spa does that these tests need.

use phys::PropValue;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use base::{ObjectId, ObjsetId, Result, Txg};
use dmu::{Objset, ObjsetProps, Tx, TxGroups, TxgSettings, TxgSync};
use phys::zil::LrWritePhys;
use phys::{BlkPtrPhys, LrPhys, ObjectType, ObjsetType, Phys};
use ram::RamStore;
use rt::Mutex;
use zap::NewZap;
use zerocopy::IntoBytes;
use zil::{Itx, ReplaySink, WriteState, Zilog};
use zio::BlockStore;

use crate::{DslDataset, DslPool, Mos, MosAccounting, NewDataset, ObjsetInit, PoolEnv, PoolParts};
use phys::feature;

/// Space, features, frees.
pub(crate) struct Env {
    pub(crate) store: Arc<RamStore>,
    pub(crate) features: Mutex<BTreeMap<String, u64>>,
    pub(crate) dspace: Mutex<u64>,
    /// Blocks that an asynchronous destroy frees per txg.
    pub(crate) destroy_budget: Mutex<u64>,
    /// The blocks of each snapshot that was bookmarked, by guid.
    pub(crate) bookmarked: Mutex<BTreeMap<u64, Vec<BlkPtrPhys>>>,
}

const ENABLED: &[&str] = &[
    feature::ASYNC_DESTROY,
    feature::EMPTY_BPOBJ,
    feature::EXTENSIBLE_DATASET,
    feature::BOOKMARKS,
    feature::BOOKMARK_V2,
    feature::BOOKMARK_WRITTEN,
    feature::LARGE_BLOCKS,
    feature::LARGE_DNODE,
    feature::SHA512,
    feature::ZSTD_COMPRESS,
    feature::FS_SS_LIMIT,
    feature::LIVELIST,
];

impl PoolEnv for Env {
    fn dsize(&self, bp: &BlkPtrPhys) -> u64 {
        bp.asize()
    }

    fn free(&self, txg: Txg, bp: &BlkPtrPhys) {
        self.store.free(txg, bp);
    }

    fn share(&self, bp: &BlkPtrPhys) {
        unreachable!("{bp:?} is cloned, of which these pools know nothing");
    }

    fn feature_is_enabled(&self, guid: &str) -> bool {
        ENABLED.contains(&guid)
    }

    fn feature_is_active(&self, guid: &str) -> bool {
        self.features
            .lock()
            .get(guid)
            .is_some_and(|count| *count > 0)
    }

    fn feature_incr(&self, guid: &str, _tx: &Tx) -> Result<()> {
        assert!(self.feature_is_enabled(guid), "{guid} is not enabled");
        *self.features.lock().entry(guid.to_string()).or_default() += 1;
        Ok(())
    }

    fn feature_decr(&self, guid: &str, _tx: &Tx) -> Result<()> {
        let mut features = self.features.lock();
        let count = features.get_mut(guid).expect("active");
        *count = count.checked_sub(1).expect("active");
        Ok(())
    }

    fn dspace(&self) -> u64 {
        *self.dspace.lock()
    }

    fn destroy_should_pause(&self, freed: u64) -> bool {
        freed >= *self.destroy_budget.lock()
    }
}

/// A pool with a sync thread.
pub(crate) struct TestPool {
    pub(crate) env: Arc<Env>,
    pub(crate) pool: Arc<DslPool>,
    pub(crate) root: Arc<Mutex<BlkPtrPhys>>,
    mounted: Mutex<Vec<Arc<DslDataset>>>,
}

struct Spa {
    pool: Weak<DslPool>,
    root: Arc<Mutex<BlkPtrPhys>>,
}

impl TxgSync for Spa {
    fn freeze(&self, txg: Txg) {
        let pool = self.pool.upgrade().expect("open");
        pool.freeze(txg);
        pool.mos().objset().freeze(txg);
    }

    fn sync(&self, txg: Txg) -> Result<()> {
        let pool = self.pool.upgrade().expect("open");
        let tx = Tx::syncing(txg);
        *self.root.lock() = sync_passes(&pool, &tx)?;
        Ok(())
    }
}

fn sync_passes(pool: &Arc<DslPool>, tx: &Tx) -> Result<BlkPtrPhys> {
    let mos = pool.mos().objset().clone();
    for pass in 1..20 {
        pool.sync_datasets(tx, pass)?;
        if pass == 1 {
            pool.run_tasks(tx)?;
            pool.process_async_destroys(tx)?;
        }
        pool.flush(tx)?;
        if pass > 1 && !mos.needs_sync() {
            mos.sync_done(tx.txg());
            return Ok(mos.root_bp());
        }
        // What the last passes change is charged to $MOS in the next txg.
        let last = pass > 4;
        mos.sync(tx, pass)?;
        if last {
            assert!(!mos.needs_sync());
            mos.sync_done(tx.txg());
            return Ok(mos.root_bp());
        }
    }
    panic!("the MOS does not become clean");
}

impl TestPool {
    pub(crate) fn create() -> TestPool {
        let store = Arc::new(RamStore::new());
        let env = Arc::new(Env {
            store: store.clone(),
            features: Mutex::new(BTreeMap::new()),
            dspace: Mutex::new(64 << 30),
            destroy_budget: Mutex::new(u64::MAX),
            bookmarked: Mutex::default(),
        });
        let groups = TxGroups::new(Txg::INITIAL, settings());
        let tx = Tx::syncing(Txg::INITIAL);
        let accounting = MosAccounting::new(env.clone());
        let props = ObjsetProps::mos();
        let os = Objset::create(
            store.clone(),
            ObjsetId(0),
            ObjsetType::Meta,
            props,
            accounting.clone(),
            &tx,
        );
        let directory = NewZap::new(ObjectType::OBJECT_DIRECTORY);
        zap::create_claim(&os, &tx, zap::directory::OBJECT, &directory).unwrap();
        let mos = Mos::new(os, env.clone()).unwrap();
        let parts = PoolParts {
            name: "tank".to_string(),
            version: 5000,
            mos,
            accounting,
            store,
            keys: Arc::default(),
            groups: groups.clone(),
        };
        let pool = DslPool::create(parts, &[], None, fill_fs(), &tx).unwrap();
        let root = sync_passes(&pool, &tx).unwrap();
        TestPool::start(env, pool, root)
    }

    fn start(env: Arc<Env>, pool: Arc<DslPool>, root: BlkPtrPhys) -> TestPool {
        let root = Arc::new(Mutex::new(root));
        let spa = Spa {
            pool: Arc::downgrade(&pool),
            root: root.clone(),
        };
        pool.groups().start(Arc::new(spa));
        TestPool {
            env,
            pool,
            root,
            mounted: Mutex::new(Vec::new()),
        }
    }

    /// Exports and imports.
    pub(crate) fn reopen(self) -> TestPool {
        self.pool.groups().stop().unwrap();
        self.import()
    }

    fn import(self) -> TestPool {
        let synced = self.pool.groups().synced_txg();
        let root = *self.root.lock();
        let env = self.env.clone();
        drop(self);
        let accounting = MosAccounting::new(env.clone());
        let store = env.store.clone();
        let props = ObjsetProps::mos();
        let os =
            Objset::open(store.clone(), ObjsetId(0), &root, props, accounting.clone()).unwrap();
        let mos = Mos::new(os, env.clone()).unwrap();
        let groups = TxGroups::new(synced, settings());
        let parts = PoolParts {
            name: "tank".to_string(),
            version: 5000,
            mos,
            accounting,
            store,
            keys: Arc::default(),
            groups,
        };
        let pool = DslPool::open(parts).unwrap();
        pool.claim_logs(synced.next()).unwrap();
        forget_unsynced_logs(&env, &pool, synced.next());
        TestPool::start(env, pool, root)
    }

    /// Drops everything in memory (a crash), and imports.
    pub(crate) fn crash(self) -> TestPool {
        self.pool
            .groups()
            .fail(&base::Error::new(base::ErrorKind::Io, "crash"));
        let _ = self.pool.groups().stop();
        self.import()
    }

    /// Replays a log, and keeps the file system open.
    fn mount(&self, fs: &str) -> Arc<DslDataset> {
        let ds = self.pool.dataset(fs).unwrap();
        if !self
            .mounted
            .lock()
            .iter()
            .any(|mounted| Arc::ptr_eq(mounted, &ds))
        {
            self.replay(fs);
            self.mounted.lock().push(ds.clone());
        }
        ds
    }

    /// Writes a block, logs that, and commits.
    pub(crate) fn write_logged(&self, fs: &str, object: u64, block: u64, byte: u8) {
        let ds = self.mount(fs);
        self.write(fs, object, block, byte);
        let zil = self.pool.zil(&ds).unwrap();
        let mut phys = LrWritePhys::default();
        phys.common.txtype.set(phys::zil::tx::WRITE);
        phys.foid.set(object);
        phys.offset.set(block * BLOCK);
        phys.length.set(BLOCK);
        let mut record = phys.as_bytes().to_vec();
        record.extend_from_slice(&[byte; BLOCK as usize]);
        let write_state = WriteState::Complete;
        let itx = Itx {
            record,
            object: ObjectId(object),
            is_sync: true,
            write_state,
        };
        let tx = self.pool.groups().hold_open(0).unwrap();
        zil.log(&tx, itx);
        drop(tx);
        zil.commit(None).unwrap();
    }

    pub(crate) fn replay(&self, fs: &str) -> u64 {
        struct Sink<'a>(&'a TestPool, Arc<Objset>, Arc<Zilog>);
        impl ReplaySink for Sink<'_> {
            fn replay(&mut self, _common: &LrPhys, record: &[u8]) -> Result<()> {
                let write = LrWritePhys::read(record)?;
                let tx = self.0.pool.groups().hold_open(0)?;
                let dnode = self.1.hold(ObjectId(write.foid.get()))?;
                dnode.write(&tx, write.offset.get(), &record[LrWritePhys::SIZE..])?;
                assert!(self.2.is_replaying(&tx));
                Ok(())
            }
        }
        let ds = self.pool.dataset(fs).unwrap();
        let zil = self.pool.zil(&ds).unwrap();
        let mut sink = Sink(self, ds.objset().unwrap(), zil.clone());
        zil.replay(&mut sink).unwrap().records
    }

    pub(crate) fn close_zil(&self, fs: &str) {
        let ds = self.pool.dataset(fs).unwrap();
        if ds.open_zil().is_some() {
            self.pool.zil(&ds).unwrap().close().unwrap();
        }
        self.mounted
            .lock()
            .retain(|mounted| !Arc::ptr_eq(mounted, &ds));
    }

    /// Syncs until nothing is left to free.
    pub(crate) fn settle(&self) {
        self.sync();
        for _ in 0..1000 {
            if !self.pool.is_freeing() {
                return;
            }
            self.sync();
        }
        panic!("destroys do not end");
    }

    pub(crate) fn sync(&self) {
        let groups = self.pool.groups();
        groups.wait_synced(groups.open_txg()).unwrap();
    }

    pub(crate) fn create_fs(&self, name: &str) {
        self.create_fs_with(name, Vec::new()).unwrap();
    }

    pub(crate) fn create_fs_with(&self, name: &str, props: Vec<(String, PropValue)>) -> Result<()> {
        let name = name.to_string();
        let type_ = ObjsetType::Zfs;
        self.pool.create_dataset(NewDataset {
            name,
            type_,
            flags: 0,
            props,
            init: fill_fs(),
        })
    }

    /// Writes a block of `object`, which is created if it does not exist.
    pub(crate) fn write(&self, fs: &str, object: u64, block: u64, byte: u8) {
        let ds = self.pool.dataset(fs).unwrap();
        let os = ds.objset().unwrap();
        let id = ObjectId(object);
        let mut tx = self.pool.groups().hold_open(0).unwrap();
        let dnode = match os.hold(id) {
            Ok(dnode) => dnode,
            Err(_) => os.object_claim(&tx, id, &new_file()).unwrap_or_else(|_| {
                // It was removed in a txg that is not synced yet.
                drop(std::mem::replace(&mut tx, dmu::Tx::syncing(Txg(0))));
                self.sync();
                tx = self.pool.groups().hold_open(0).unwrap();
                os.object_claim(&tx, id, &new_file()).unwrap()
            }),
        };
        dnode
            .write(&tx, block * BLOCK, &[byte; BLOCK as usize])
            .unwrap();
    }

    pub(crate) fn remove(&self, fs: &str, object: u64) {
        let ds = self.pool.dataset(fs).unwrap();
        let os = ds.objset().unwrap();
        let tx = self.pool.groups().hold_open(0).unwrap();
        os.object_free(&tx, ObjectId(object)).unwrap();
    }

    pub(crate) fn read(&self, name: &str, object: u64, block: u64) -> Option<u8> {
        let ds = self.pool.dataset(name).unwrap();
        let dnode = ds.objset().unwrap().hold(ObjectId(object)).ok()?;
        let mut bytes = [0xee; BLOCK as usize];
        dnode.read(block * BLOCK, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a torn block");
        Some(bytes[0])
    }

    pub(crate) fn snapshot(&self, name: &str) {
        self.pool.snapshot(&[name], Vec::new()).unwrap();
    }

    pub(crate) fn used(&self, name: &str) -> u64 {
        self.pool.dir(name).unwrap().fields().used_bytes
    }
}

/// Log blocks that were allocated in txgs never committed, and not claimed, are free.
fn forget_unsynced_logs(env: &Env, pool: &Arc<DslPool>, first_txg: Txg) {
    let mut claimed = BTreeSet::new();
    for dd in pool.subtree(pool.root_dir()).unwrap() {
        super::check::add_log_blocks(pool, &dd, &mut claimed);
    }
    for bp in env.store.live() {
        if bp.birth() >= first_txg && !claimed.contains(&bp.dva[0].offset()) {
            env.store.free(first_txg, &bp);
        }
    }
}

impl Drop for TestPool {
    fn drop(&mut self) {
        let _ = self.pool.groups().stop();
    }
}

/// Bytes of a block of a file.
pub(crate) const BLOCK: u64 = 4096;

fn new_file() -> dmu::NewObject {
    dmu::NewObject::new(ObjectType::PLAIN_FILE_CONTENTS)
        .blksz(BLOCK)
        .ibs(12)
}

fn settings() -> TxgSettings {
    TxgSettings {
        timeout_ns: 3_600_000_000_000,
        ..TxgSettings::default()
    }
}

/// A file system with one object, so that it is not empty.
pub(crate) fn fill_fs() -> ObjsetInit {
    Box::new(|os, tx| {
        zap::create_claim(os, tx, ObjectId(1), &NewZap::new(ObjectType::MASTER_NODE))?;
        zap::add_u64(os, tx, ObjectId(1), "VERSION", 5)
    })
}
