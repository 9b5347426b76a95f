//! A minimal pool: in memory, with a MOS with space maps, and datasets without directories.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Buf, Error, ErrorKind, MetaslabId, ObjectId, ObjsetId, Result, Txg, VdevId, align_up};
use compress::Algorithm;
use dmu::{Dnode, FreeAtOnce, NewObject, Objset, ObjsetProps, Tx};
use metaslab::{
    Metaslabs, MetaslabsOptions, SPACE_MAP_BLOCK_BYTES, SPACE_MAP_IBS, SpaceMapObject,
    SpaceMapStore, VdevGeometry,
};
use phys::{
    BlkPtrPhys, DslDatasetPhys, DvaPhys, ObjectType, ObjsetType, Phys, SpaceMapPhys, pool_names,
};
use zerocopy::IntoBytes;
use zio::{
    AllocClass, BlockStore, Bookmark, Io, Pipeline, PipelineSettings, Placement, VdevOps,
    WritePolicy, WriteRequest,
};

use crate::{Pool, TopVdev};

pub(super) const TXG: Txg = Txg(10);
const ASHIFT: u32 = 12;
const MS_SHIFT: u32 = 24;
const SIZE: u64 = 128 << 20;

/// Two vdevs in memory.
pub(super) struct Memory {
    bytes: Vec<rt::Mutex<Vec<u8>>>,
    is_linear: bool,
    /// Reads return whatever is stored, verified or not, so that garbage reaches every parser.
    pub(super) is_gullible: AtomicBool,
}

impl Memory {
    /// Flips bits in some allocated sectors.
    pub(super) fn litter(&self, segments: &[(VdevId, u64, u64)], places: &[(u32, u32, u8)]) {
        for (which, at, mask) in places {
            let (vdev, offset, size) = segments[*which as usize % segments.len()];
            let at = offset + u64::from(*at) % size;
            self.bytes[vdev.0 as usize].lock()[at as usize] ^= mask;
        }
    }

    pub(super) fn damage(&self, dva: &DvaPhys) {
        self.damage_at(dva, 11);
    }

    pub(super) fn damage_at(&self, dva: &DvaPhys, at: usize) {
        self.bytes[dva.vdev().0 as usize].lock()[dva.offset() as usize + at] ^= 1;
    }
}

impl VdevOps for Memory {
    fn read(
        &self,
        _: &Io,
        vdev: VdevId,
        offset: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        let outside = || Error::corrupt(format!("no {offset:#x} on vdev {vdev}"));
        let bytes = self.bytes.get(vdev.0 as usize).ok_or_else(outside)?.lock();
        let from = bytes
            .get(offset as usize..)
            .and_then(|b| b.get(..buf.len()));
        buf.copy_from_slice(from.ok_or_else(outside)?);
        let wrong = || Error::new(ErrorKind::Checksum, format!("vdev {vdev}"));
        let is_good = verify(buf) || self.is_gullible.load(Ordering::Relaxed);
        is_good.then_some(()).ok_or_else(wrong)
    }

    fn write(&self, _: &Io, vdev: VdevId, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let data = parts.concat();
        let outside = || Error::corrupt(format!("no {offset:#x} on vdev {vdev}"));
        let mut bytes = self.bytes.get(vdev.0 as usize).ok_or_else(outside)?.lock();
        let to = bytes
            .get_mut(offset as usize..)
            .and_then(|b| b.get_mut(..data.len()));
        to.ok_or_else(outside)?.copy_from_slice(&data);
        Ok(())
    }

    fn flush(&self, _vdevs: &[VdevId]) -> Result<()> {
        Ok(())
    }

    fn placement(&self, _vdev: VdevId) -> Placement {
        match self.is_linear {
            true => Placement::Linear,
            false => Placement::Elsewhere,
        }
    }

    fn psize_to_asize(&self, _vdev: VdevId, psize: u64, _birth: Txg) -> u64 {
        align_up(psize, 1 << ASHIFT)
    }

    fn ashift(&self, _vdev: VdevId) -> u32 {
        ASHIFT
    }
}

struct Maps {
    /// `None` when the pool is done, to break the cycle of MOS, pipeline, allocator and space maps.
    mos: rt::Mutex<Option<Arc<Objset>>>,
    arrays: BTreeMap<VdevId, ObjectId>,
}

impl Maps {
    fn hold(&self, object: ObjectId) -> Result<Arc<Dnode>> {
        self.mos
            .lock()
            .as_ref()
            .expect("the pool is in use")
            .hold(object)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        *self.maps.mos.lock() = None;
    }
}

impl SpaceMapStore for Maps {
    fn create(&self, txg: Txg, vdev: VdevId, metaslab: MetaslabId) -> Result<SpaceMapObject> {
        let tx = Tx::syncing(txg);
        let new = NewObject::new(ObjectType::SPACE_MAP)
            .blksz(SPACE_MAP_BLOCK_BYTES.into())
            .ibs(SPACE_MAP_IBS as u8)
            .bonus(ObjectType::SPACE_MAP_HEADER, SpaceMapPhys::SIZE);
        let mos = self.mos.lock().clone().expect("the pool is in use");
        let object = mos.object_alloc(&tx, &new)?.id();
        let array = self.hold(self.arrays[&vdev])?;
        array.write(&tx, metaslab.0 * 8, &object.0.to_le_bytes())?;
        Ok(SpaceMapObject {
            object,
            block_bytes: SPACE_MAP_BLOCK_BYTES,
            has_histogram: true,
        })
    }

    fn open(&self, _: ObjectId) -> Result<(SpaceMapObject, SpaceMapPhys)> {
        unreachable!("nothing is reopened")
    }

    fn read(&self, object: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.hold(object)?.read(offset, buf)
    }

    fn write(&self, txg: Txg, object: ObjectId, offset: u64, entries: &[u8]) -> Result<()> {
        self.hold(object)?.write(&Tx::syncing(txg), offset, entries)
    }

    fn set_phys(&self, txg: Txg, object: ObjectId, phys: &SpaceMapPhys) -> Result<()> {
        self.hold(object)?
            .set_bonus(&Tx::syncing(txg), phys.as_bytes())
    }

    fn truncate(&self, _: Txg, _: VdevId, _: MetaslabId, _: ObjectId) -> Result<SpaceMapObject> {
        unreachable!("nothing is condensed in one txg")
    }
}

/// The pool while it is being built.
pub(super) struct Rig {
    pub(super) memory: Arc<Memory>,
    pub(super) space: Arc<Metaslabs>,
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) mos: Arc<Objset>,
    pub(super) tx: Tx,
    maps: Arc<Maps>,
    pub(super) data: ObjsetId,
}

impl Rig {
    /// A pool with one dataset of some files, which still has to be synced.
    pub(super) fn new(is_linear: bool) -> Rig {
        Rig::with_compression(is_linear, Algorithm::Lz4)
    }

    /// The same with another metadata compression.
    pub(super) fn with_compression(is_linear: bool, metadata: Algorithm) -> Rig {
        let mos_props = ObjsetProps {
            metadata_compress: metadata,
            ..ObjsetProps::mos()
        };
        let zeros = || rt::Mutex::new(vec![0; SIZE as usize]);
        let memory = Arc::new(Memory {
            bytes: vec![zeros(), zeros()],
            is_linear,
            is_gullible: AtomicBool::new(false),
        });
        let options = MetaslabsOptions { spacemap_v2: true };
        let space = Arc::new(Metaslabs::new(memory.clone(), options));
        let settings = PipelineSettings::default();
        let pipeline = Arc::new(Pipeline::new(memory.clone(), space.clone(), settings));
        let tx = Tx::syncing(TXG);
        for id in 0..2 {
            let geometry =
                VdevGeometry::new(VdevId(id), SIZE, ASHIFT, MS_SHIFT, AllocClass::Normal);
            space.add_vdev(geometry, &[], false).unwrap();
        }
        let mos = new_objset(&pipeline, ObjsetId(0), ObjsetType::Meta, mos_props, &tx);
        let directory = zap::NewZap::new(ObjectType::OBJECT_DIRECTORY);
        zap::create_claim(&mos, &tx, ObjectId(1), &directory).unwrap();
        let array = |_| mos.object_alloc(&tx, &NewObject::new(ObjectType::OBJECT_ARRAY));
        let arrays: BTreeMap<VdevId, ObjectId> = (0..2)
            .map(|id| (VdevId(id), array(id).unwrap().id()))
            .collect();
        let maps = Arc::new(Maps {
            mos: rt::Mutex::new(Some(mos.clone())),
            arrays,
        });
        space.set_store(maps.clone());
        let mut rig = Rig {
            memory,
            space,
            pipeline,
            mos,
            tx,
            maps,
            data: ObjsetId(0),
        };
        rig.data = rig.add_dataset(metadata);
        rig
    }

    /// A dataset with three files: one embedded, one of a single block, one of many blocks.
    fn add_dataset(&self, metadata: Algorithm) -> ObjsetId {
        let new = NewObject::new(ObjectType::DSL_DATASET)
            .bonus(ObjectType::DSL_DATASET, DslDatasetPhys::SIZE);
        let dnode = self.mos.object_alloc(&self.tx, &new).unwrap();
        let id = ObjsetId(dnode.id().0);
        let props = ObjsetProps {
            metadata_compress: metadata,
            ..ObjsetProps::default()
        };
        let objset = new_objset(&self.pipeline, id, ObjsetType::Other, props, &self.tx);
        let file = || {
            let new = NewObject::new(ObjectType::PLAIN_FILE_CONTENTS).blksz(16 << 10);
            objset.object_alloc(&self.tx, &new).unwrap()
        };
        file().write(&self.tx, 0, &[1; 5000]).unwrap();
        file().write(&self.tx, 0, &noise(16 << 10, 1)).unwrap();
        let large = file();
        for i in 0..300 {
            large
                .write(&self.tx, i * (20 << 10), &noise(9000, i))
                .unwrap();
        }
        objset.freeze(TXG);
        let mut pass = 1;
        let mut root = BlkPtrPhys::default();
        while pass == 1 || objset.needs_sync() {
            root = objset.sync(&self.tx, pass).unwrap();
            pass += 1;
        }
        objset.sync_done(TXG);
        let mut phys = DslDatasetPhys {
            bp: root,
            ..DslDatasetPhys::default()
        };
        let pool = self.pool(root);
        let referenced = crate::walk_for_tests(&pool, &root);
        phys.referenced_bytes.set(referenced);
        dnode.set_bonus(&self.tx, phys.as_bytes()).unwrap();
        id
    }

    pub(super) fn dataset(&self) -> DslDatasetPhys {
        let dnode = self.mos.hold(ObjectId(self.data.0)).unwrap();
        DslDatasetPhys::read(&dnode.bonus()).unwrap()
    }

    pub(super) fn set_dataset(&self, phys: &DslDatasetPhys) {
        let dnode = self.mos.hold(ObjectId(self.data.0)).unwrap();
        dnode.set_bonus(&self.tx, phys.as_bytes()).unwrap();
    }

    /// Another object with a dataset in its bonus.
    pub(super) fn add_dataset_object(&self, bonus: &[u8]) -> Arc<Dnode> {
        let new =
            NewObject::new(ObjectType::DSL_DATASET).bonus(ObjectType::DSL_DATASET, bonus.len());
        let dnode = self.mos.object_alloc(&self.tx, &new).unwrap();
        dnode.set_bonus(&self.tx, bonus).unwrap();
        dnode
    }

    /// Adds a number to the pool directory.
    pub(super) fn enter(&self, name: &str, value: u64) {
        let directory = ObjectId(pool_names::POOL_DIRECTORY_OBJECT);
        zap::update_u64(&self.mos, &self.tx, directory, name, value).unwrap();
    }

    /// Allocates a block that nothing references.
    pub(super) fn stray_block(&self) -> BlkPtrPhys {
        let policy = WritePolicy::default();
        let type_ = ObjectType::PLAIN_FILE_CONTENTS.raw();
        let data = Buf::copy_of(&noise(4096, 77));
        let request = WriteRequest::new(data, policy, type_, Bookmark::default());
        self.pipeline.write(TXG, request).unwrap()
    }

    /// The space map object of a metaslab that has one.
    pub(super) fn space_map(&self) -> (VdevId, MetaslabId, Arc<Dnode>) {
        let array = self.mos.hold(self.maps.arrays[&VdevId(0)]).unwrap();
        let mut words = vec![0; (SIZE >> MS_SHIFT) as usize * 8];
        array.read(0, &mut words).unwrap();
        let (words, _) = words.as_chunks::<8>();
        let at = words.iter().position(|w| *w != [0; 8]).unwrap();
        let object = ObjectId(u64::from_le_bytes(words[at]));
        (
            VdevId(0),
            MetaslabId(at as u64),
            self.mos.hold(object).unwrap(),
        )
    }

    /// Writes MOS and space maps until nothing changes; `last` runs when all but the MOS is done.
    pub(super) fn sync(&self, last: impl FnOnce(&Rig)) -> Pool {
        self.mos.freeze(TXG);
        let mut pass = 1;
        loop {
            self.mos.sync(&self.tx, pass).unwrap();
            let wrote = self.space.sync(TXG, pass).unwrap();
            if !wrote && !self.mos.needs_sync() {
                break;
            }
            pass += 1;
            assert!(pass < 30, "the txg does not converge");
        }
        // Overwrites only blocks of this txg in place.
        last(self);
        if self.mos.needs_sync() {
            self.mos.sync(&self.tx, pass + 1).unwrap();
        }
        self.mos.sync_done(TXG);
        self.pool(self.mos.root_bp())
    }

    fn pool(&self, root: BlkPtrPhys) -> Pool {
        let top = |id| TopVdev {
            mapping: None,
            id: VdevId(id),
            ashift: ASHIFT,
            ms_shift: MS_SHIFT,
            ms_align: 1,
            ms_count: SIZE >> MS_SHIFT,
            class: AllocClass::Normal,
            metaslab_array: self.maps.arrays[&VdevId(id)],
            top_zap: None,
            is_concrete: true,
        };
        Pool {
            pipeline: self.pipeline.clone(),
            root,
            txg: TXG,
            unclaimed: TXG.next(),
            tops: vec![top(0), top(1)],
        }
    }
}

fn new_objset(
    pipeline: &Arc<Pipeline>,
    id: ObjsetId,
    type_: ObjsetType,
    props: ObjsetProps,
    tx: &Tx,
) -> Arc<Objset> {
    let store: Arc<dyn BlockStore> = pipeline.clone();
    let accounting = Arc::new(FreeAtOnce(store.clone()));
    Objset::create(store, id, type_, props, accounting, tx)
}

/// Bytes that do not compress.
pub(super) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..len).map(|_| next()).collect()
}
