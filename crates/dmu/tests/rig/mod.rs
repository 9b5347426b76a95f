//! What the tests share: a pool of one objset in memory, books of all blocks, and a walk over everything
//! that can be reached from the root.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Buf, ObjectId, ObjsetId, Result, Txg};
use compress::Algorithm;
use dmu::{BlockAccounting, Objset, ObjsetProps, Tx, TxGroups, TxgSettings, TxgSync};
use phys::blkptr::{BlkIdentity, BlkPtrPhys};
use phys::dnode::{DnodePhys, DnodeView};
use phys::objset::ObjsetPhys;
use phys::{ObjsetType, Phys};
use ram::RamStore;
use zerocopy::{FromBytes, IntoBytes};
use zio::{BlockStore, Bookmark, UnderWay, WriteRequest};

/// The seeds of a simulation: `SEED=` for one of them, `SEEDS=` for their number.
pub(crate) fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse().expect("a number"))
    };
    match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(usual),
    }
}

/// Settings with which each full block is stored uncompressed and begun at once.
pub(crate) fn behind() -> (ObjsetProps, TxgSettings) {
    let props = ObjsetProps {
        compress: Algorithm::Off,
        ..ObjsetProps::default()
    };
    let settings = TxgSettings {
        write_behind_bytes: 1,
        ..TxgSettings::default()
    };
    (props, settings)
}

/// Every block that is born and not killed.
pub(crate) struct Books {
    pub(crate) store: Arc<RamStore>,
    live: rt::Mutex<BTreeMap<BlkIdentity, BlkPtrPhys>>,
    pub(crate) kills: AtomicU64,
    pub(crate) dirtied: AtomicU64,
}

impl Books {
    pub(crate) fn new(store: &Arc<RamStore>) -> Arc<Books> {
        Arc::new(Books {
            store: Arc::clone(store),
            live: rt::Mutex::new(BTreeMap::new()),
            kills: AtomicU64::new(0),
            dirtied: AtomicU64::new(0),
        })
    }

    pub(crate) fn live(&self) -> BTreeMap<BlkIdentity, BlkPtrPhys> {
        self.live.lock().clone()
    }
}

impl BlockAccounting for Books {
    fn born(&self, bp: &BlkPtrPhys, tx: &Tx) {
        assert!(!bp.is_hole() && bp.birth() == tx.txg(), "born: {bp:?}");
        let before = self.live.lock().insert(bp.identity(), *bp);
        assert!(before.is_none(), "born twice: {bp:?}");
    }

    fn kill(&self, bp: &BlkPtrPhys, tx: &Tx) {
        assert!(!bp.is_hole(), "a hole is killed");
        let before = self.live.lock().remove(&bp.identity());
        assert!(before.is_some(), "killed but not alive: {bp:?}");
        self.kills.fetch_add(1, Ordering::Relaxed);
        self.store.free(tx.txg(), bp);
    }

    fn dirtied(&self, txg: Txg) {
        self.dirtied.fetch_max(txg.0, Ordering::Relaxed);
    }
}

/// The store, but every call takes a while, so that others get in between.
pub(crate) struct Slow(pub(crate) Arc<RamStore>);

pub(crate) fn take_a_while() {
    if rt::is_simulated() {
        // Now and then long enough for a whole txg of other threads.
        let most_ns = if rt::random_below(16) == 0 {
            200_000
        } else {
            1000
        };
        rt::sleep_ns(rt::random_below(most_ns));
    } else {
        rt::yield_now();
    }
}

impl BlockStore for Slow {
    fn read(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        take_a_while();
        let result = self.0.read(bp, bookmark);
        take_a_while();
        result
    }

    fn write_batch(&self, txg: Txg, requests: Vec<WriteRequest>) -> Result<Vec<BlkPtrPhys>> {
        let (first, mut second) = (requests.len() / 2, requests);
        let rest = second.split_off(first);
        take_a_while();
        let mut bps = self.0.write_batch(txg, second)?;
        take_a_while();
        bps.extend(self.0.write_batch(txg, rest)?);
        take_a_while();
        Ok(bps)
    }

    fn begin_batch(
        &self,
        txg: Txg,
        requests: Vec<WriteRequest>,
        under_way: &mut UnderWay,
    ) -> Result<Vec<BlkPtrPhys>> {
        if !under_way.is_behind() {
            return self.write_batch(txg, requests);
        }
        take_a_while();
        let bps = self.0.begin_batch(txg, requests, under_way)?;
        take_a_while();
        Ok(bps)
    }

    fn has_spare(&self) -> bool {
        self.0.has_spare()
    }

    fn free(&self, txg: Txg, bp: &BlkPtrPhys) {
        self.0.free(txg, bp);
    }
}

/// What is found below a root.
#[derive(Default)]
pub(crate) struct Reachable {
    pub(crate) blocks: BTreeMap<BlkIdentity, BlkPtrPhys>,
    pub(crate) objects: BTreeMap<u64, DnodePhys>,
}

/// Walks everything below `root`, and checks fill counts, levels, births and used bytes.
pub(crate) fn reach(store: &dyn BlockStore, id: ObjsetId, root: &BlkPtrPhys) -> Reachable {
    let mut found = Reachable::default();
    found.visit(root);
    let block = store.read(root, &Bookmark::root(id)).unwrap();
    let objset = ObjsetPhys::parse(&block).unwrap();
    let meta = DnodeView::new(objset.meta_dnode.as_bytes()).unwrap();
    let mut dnodes = Vec::new();
    let fill = found.walk(store, (id, ObjectId(0)), &meta, &mut |blkid, block| {
        let mut slot = 0;
        let mut count = 0;
        while slot < 32 {
            let core = DnodePhys::view(&block[slot * 512..]).unwrap();
            if core.is_allocated() {
                count += 1;
                dnodes.push((
                    blkid * 32 + slot as u64,
                    block[slot * 512..][..core.size()].to_vec(),
                ));
                slot += core.slots();
            } else {
                assert!(
                    block[slot * 512..][..512].iter().all(|b| *b == 0),
                    "free slot not zero"
                );
                slot += 1;
            }
        }
        count
    });
    assert_eq!(root.fill(), fill, "fill of the root");
    for special in [
        &objset.userused_dnode,
        &objset.groupused_dnode,
        &objset.projectused_dnode,
    ] {
        if special.core.is_allocated() {
            let view = DnodeView::new(special.as_bytes()).unwrap();
            found.walk(store, (id, ObjectId(u64::MAX)), &view, &mut |_, _| 1);
        }
    }
    for (number, bytes) in &dnodes {
        let view = DnodeView::new(bytes).unwrap();
        found.walk(store, (id, ObjectId(*number)), &view, &mut |_, _| 1);
        found.objects.insert(*number, *view.core());
    }
    assert_eq!(fill, found.objects.len() as u64);
    found
}

type OnLeaf<'a> = &'a mut dyn FnMut(u64, &[u8]) -> u64;

impl Reachable {
    fn visit(&mut self, bp: &BlkPtrPhys) {
        if !bp.is_hole() {
            assert!(
                self.blocks.insert(bp.identity(), *bp).is_none(),
                "reached twice: {bp:?}"
            );
        }
    }

    fn walk(
        &mut self,
        store: &dyn BlockStore,
        at: (ObjsetId, ObjectId),
        dnode: &DnodeView<'_>,
        leaf: OnLeaf<'_>,
    ) -> u64 {
        let before: u64 = self.blocks.values().map(BlkPtrPhys::asize).sum();
        let core = dnode.core();
        let mut fill = 0;
        for (index, bp) in dnode.blkptrs().iter().enumerate() {
            let place = (core.nlevels - 1, index as u64);
            fill += self.tree(store, at, core, bp, place, leaf);
        }
        if let Some(spill) = dnode.spill() {
            self.visit(spill);
        }
        let after: u64 = self.blocks.values().map(BlkPtrPhys::asize).sum();
        assert_eq!(core.used_bytes(), after - before, "dn_used of {at:?}");
        fill
    }

    fn tree(
        &mut self,
        store: &dyn BlockStore,
        at: (ObjsetId, ObjectId),
        core: &DnodePhys,
        bp: &BlkPtrPhys,
        (level, blkid): (u8, u64),
        leaf: OnLeaf<'_>,
    ) -> u64 {
        if bp.is_hole() {
            return 0;
        }
        assert_eq!(
            (bp.level(), bp.object_type()),
            (level, core.type_),
            "{at:?} {blkid}"
        );
        self.visit(bp);
        let bookmark = Bookmark::new(at.0, at.1, level, base::BlkId(blkid));
        let block = store.read(bp, &bookmark).unwrap();
        let fill = if level == 0 {
            assert_eq!(block.len() as u64, core.datablksz());
            assert!(
                blkid <= core.maxblkid.get(),
                "block {blkid} behind the end of {at:?}"
            );
            leaf(blkid, &block)
        } else {
            assert_eq!(block.len(), 1 << core.indblkshift);
            let entries = <[BlkPtrPhys]>::ref_from_bytes(&block).unwrap();
            let first = blkid * entries.len() as u64;
            let mut fill = 0;
            for (child, index) in entries.iter().zip(first..) {
                assert!(
                    child.birth() <= bp.birth(),
                    "a child is younger than its parent"
                );
                fill += self.tree(store, at, core, child, (level - 1, index), leaf);
            }
            fill
        };
        assert!(fill > 0, "an empty block: {bookmark}");
        assert_eq!(bp.fill(), fill, "fill of {bookmark}");
        fill
    }
}

/// A pool whose only dataset is synced by the txg state machine.
pub(crate) struct Pool {
    pub(crate) store: Arc<RamStore>,
    pub(crate) books: Arc<Books>,
    pub(crate) id: ObjsetId,
    pub(crate) props: ObjsetProps,
    pub(crate) groups: Arc<TxGroups>,
    pub(crate) objset: rt::Mutex<Arc<Objset>>,
    pub(crate) syncs: AtomicU64,
}

impl Pool {
    pub(crate) fn new(id: ObjsetId, props: ObjsetProps, settings: TxgSettings) -> Arc<Pool> {
        let store = Arc::new(RamStore::new());
        let books = Books::new(&store);
        let tx = Tx::syncing(Txg(4));
        let objset = Objset::create(
            Arc::new(Slow(Arc::clone(&store))) as Arc<dyn BlockStore>,
            id,
            ObjsetType::Zfs,
            props.clone(),
            Arc::clone(&books) as Arc<dyn BlockAccounting>,
            &tx,
        );
        objset.sync(&tx, 1).unwrap();
        objset.sync_done(Txg(4));
        let groups = TxGroups::new(Txg(4), settings);
        let pool = Arc::new(Pool {
            store,
            books,
            id,
            props,
            groups: Arc::clone(&groups),
            objset: rt::Mutex::new(objset),
            syncs: AtomicU64::new(0),
        });
        groups.start(Arc::clone(&pool) as Arc<dyn TxgSync>);
        pool
    }

    pub(crate) fn objset(&self) -> Arc<Objset> {
        Arc::clone(&self.objset.lock())
    }

    pub(crate) fn hold(&self) -> Tx {
        self.groups.hold_open(0).unwrap()
    }

    pub(crate) fn sync(&self) {
        self.groups.sync_all().unwrap();
    }

    /// Syncs, and opens the objset again from its root.
    pub(crate) fn reopen(&self) {
        self.sync();
        let mut objset = self.objset.lock();
        let root = objset.root_bp();
        *objset = Objset::open(
            Arc::new(Slow(Arc::clone(&self.store))) as Arc<dyn BlockStore>,
            self.id,
            &root,
            self.props.clone(),
            Arc::clone(&self.books) as Arc<dyn BlockAccounting>,
        )
        .unwrap();
    }

    /// Syncs, and compares what is reachable with what the books and the store say.
    pub(crate) fn audit(&self) -> Reachable {
        self.sync();
        audit(&self.objset(), &self.books)
    }

    /// The first word of a stored block.
    pub(crate) fn first_word(&self, bp: &BlkPtrPhys) -> u64 {
        let block = self.store.read(bp, &Bookmark::default()).unwrap();
        u64::from_le_bytes(block[..8].try_into().unwrap())
    }

    pub(crate) fn stop(&self) {
        self.groups.stop().unwrap();
    }
}

/// Nothing leaked, nothing lost.
pub(crate) fn audit(objset: &Objset, books: &Books) -> Reachable {
    let found = reach(&*books.store, objset.id(), &objset.root_bp());
    let live = books.live();
    assert_eq!(
        found.blocks.len(),
        live.len(),
        "blocks reachable and blocks in the books"
    );
    assert!(found.blocks.keys().eq(live.keys()));
    assert_eq!(books.store.stats().live_blocks, live.len() as u64);
    assert_eq!(objset.object_count(), found.objects.len() as u64);
    found
}

impl TxgSync for Pool {
    fn freeze(&self, txg: Txg) {
        self.objset().freeze(txg);
    }

    fn sync(&self, txg: Txg) -> Result<()> {
        let objset = self.objset();
        let tx = Tx::syncing(txg);
        let mut pass = 0;
        while objset.needs_sync() {
            pass += 1;
            objset.sync(&tx, pass)?;
        }
        objset.sync_done(txg);
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
