//! Space maps as objects of the MOS.
//!
//! # On disk
//! The config of each top-level vdev names a *metaslab array*: an object of u64s, indexed by
//! metaslab, with the number of its space map object, or 0 if nothing was ever allocated there.
//!
//! # Source
//! OpenZFS `module/zfs/space_map.c` (`space_map_alloc`), `module/zfs/metaslab.c` (`metaslab_sync`).

use phys::feature;
use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Error, ErrorKind, MetaslabId, ObjectId, Result, Txg, VdevId};
use dmu::{NewObject, Objset, Tx};
use metaslab::{SPACE_MAP_BLOCK_BYTES, SPACE_MAP_IBS, SpaceMapObject, SpaceMapStore};
use phys::ObjectType;
use phys::space_map::SpaceMapPhys;
use rt::{Mutex, RwLock};
use zerocopy::IntoBytes;

use crate::features::Features;

/// Bytes of a `space_map_phys_t` without its histogram (`SPACE_MAP_SIZE_V0`).
const PHYS_V0_BYTES: usize = 24;

/// The MOS, and the feature counts in it.
#[derive(Clone)]
struct Parts {
    mos: Arc<Objset>,
    features: Arc<Features>,
}

/// The space map objects of one pool.
pub struct SpaceMaps {
    /// `None` once the pool is closed, to break the cycle: the MOS refers to the allocator, which
    /// refers to this.
    parts: RwLock<Option<Parts>>,
    arrays: Mutex<BTreeMap<VdevId, ObjectId>>,
}

impl SpaceMaps {
    /// `arrays`: the metaslab array of each top-level vdev.
    #[must_use]
    pub fn new(
        mos: &Arc<Objset>,
        features: &Arc<Features>,
        arrays: BTreeMap<VdevId, ObjectId>,
    ) -> Arc<SpaceMaps> {
        Arc::new(SpaceMaps {
            parts: RwLock::new(Some(Parts {
                mos: mos.clone(),
                features: features.clone(),
            })),
            arrays: Mutex::new(arrays),
        })
    }

    /// Creates the metaslab array of a new top-level vdev.
    ///
    /// # Errors
    /// Any error from writing the MOS.
    pub(crate) fn create_array(&self, vdev: VdevId, tx: &Tx) -> Result<ObjectId> {
        let new = NewObject::new(ObjectType::OBJECT_ARRAY);
        let object = self.mos()?.object_alloc(tx, &new)?.id();
        self.arrays.lock().insert(vdev, object);
        Ok(object)
    }

    /// The space map object of each of `count` metaslabs; 0 where there is none yet.
    ///
    /// # Errors
    /// Any error from reading the MOS.
    pub fn objects(&self, vdev: VdevId, count: u64) -> Result<Vec<ObjectId>> {
        let dnode = self.mos()?.hold(self.array(vdev)?)?;
        let mut bytes = vec![0; count as usize * 8];
        dnode.read(0, &mut bytes)?;
        let number = |word: &[u8; 8]| u64::from_le_bytes(*word);
        let (words, _) = bytes.as_chunks::<8>();
        Ok(words.iter().map(|word| ObjectId(number(word))).collect())
    }

    /// Drops the reference to the MOS.
    pub(crate) fn close(&self) {
        *self.parts.write() = None;
    }

    /// Creates an empty space map.
    #[doc(alias = "space_map_alloc")]
    pub(crate) fn alloc(&self, block_bytes: u32, tx: &Tx) -> Result<SpaceMapObject> {
        let Parts { mos, features } = self.parts()?;
        let has_histogram = features.count(feature::SPACEMAP_HISTOGRAM).is_some();
        let bonus_bytes = if has_histogram {
            features.adjust(feature::SPACEMAP_HISTOGRAM, 1, tx)?;
            size_of::<SpaceMapPhys>()
        } else {
            PHYS_V0_BYTES
        };
        let new = NewObject::new(ObjectType::SPACE_MAP)
            .blksz(u64::from(block_bytes))
            .ibs(SPACE_MAP_IBS as u8)
            .bonus(ObjectType::SPACE_MAP_HEADER, bonus_bytes);
        let object = mos.object_alloc(tx, &new)?.id();
        Ok(SpaceMapObject {
            object,
            block_bytes,
            has_histogram,
        })
    }

    /// Frees a space map.
    #[doc(alias = "space_map_free_obj")]
    pub(crate) fn free(&self, object: ObjectId, tx: &Tx) -> Result<()> {
        let Parts { mos, features } = self.parts()?;
        if self.open(object)?.0.has_histogram {
            features.adjust(feature::SPACEMAP_HISTOGRAM, -1, tx)?;
        }
        mos.object_free(tx, object)
    }

    /// Takes note of the metaslab array of a vdev that is not in the tree, so that it can be destroyed.
    pub(crate) fn note_array(&self, vdev: VdevId, array: ObjectId) {
        self.arrays.lock().insert(vdev, array);
    }

    /// Frees the metaslab array of a top-level vdev that leaves the pool, and all its space maps.
    #[doc(alias = "vdev_destroy_spacemaps")]
    pub(crate) fn destroy_array(&self, vdev: VdevId, count: u64, tx: &Tx) -> Result<()> {
        let array = self.array(vdev)?;
        for object in self.objects(vdev, count)? {
            if object != ObjectId(0) {
                self.free(object, tx)?;
            }
        }
        self.arrays.lock().remove(&vdev);
        self.mos()?.object_free(tx, array)
    }

    fn parts(&self) -> Result<Parts> {
        let parts = self.parts.read().clone();
        parts.ok_or_else(|| Error::new(ErrorKind::Suspended, "the pool is closed"))
    }

    fn mos(&self) -> Result<Arc<Objset>> {
        Ok(self.parts()?.mos)
    }

    fn array(&self, vdev: VdevId) -> Result<ObjectId> {
        let found = self.arrays.lock().get(&vdev).copied();
        found.ok_or_else(|| Error::corrupt(format!("vdev {vdev} has no metaslab array")))
    }

    fn record(&self, vdev: VdevId, at: MetaslabId, object: ObjectId, tx: &Tx) -> Result<()> {
        let array = self.mos()?.hold(self.array(vdev)?)?;
        array.write(tx, at.0 * 8, &object.0.to_le_bytes())
    }
}

impl SpaceMapStore for SpaceMaps {
    fn create(&self, txg: Txg, vdev: VdevId, metaslab: MetaslabId) -> Result<SpaceMapObject> {
        let tx = Tx::syncing(txg);
        let object = self.alloc(SPACE_MAP_BLOCK_BYTES, &tx)?;
        self.record(vdev, metaslab, object.object, &tx)?;
        Ok(object)
    }

    fn open(&self, object: ObjectId) -> Result<(SpaceMapObject, SpaceMapPhys)> {
        let dnode = self.mos()?.hold(object)?;
        if dnode.type_() != ObjectType::SPACE_MAP {
            let text = format!("object {object} is a {:?}, not a space map", dnode.type_());
            return Err(Error::corrupt(text));
        }
        let bonus = dnode.bonus();
        let mut phys = SpaceMapPhys::default();
        let whole = phys.as_mut_bytes();
        let length = bonus.len().min(whole.len());
        if length < PHYS_V0_BYTES {
            return Err(Error::corrupt(format!(
                "space map {object}: bonus of {length} bytes"
            )));
        }
        whole[..length].copy_from_slice(&bonus[..length]);
        let has_histogram = length == size_of::<SpaceMapPhys>();
        let block_bytes = dnode.blksz() as u32;
        Ok((
            SpaceMapObject {
                object,
                block_bytes,
                has_histogram,
            },
            phys,
        ))
    }

    fn read(&self, object: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.mos()?.hold(object)?.read(offset, buf)
    }

    fn check_dense(&self, object: ObjectId, length: u64) -> Result<()> {
        self.mos()?.hold(object)?.check_dense(0, length)
    }

    fn write(&self, txg: Txg, object: ObjectId, offset: u64, entries: &[u8]) -> Result<()> {
        self.mos()?
            .hold(object)?
            .write(&Tx::syncing(txg), offset, entries)
    }

    fn set_phys(&self, txg: Txg, object: ObjectId, phys: &SpaceMapPhys) -> Result<()> {
        let dnode = self.mos()?.hold(object)?;
        let length = dnode.bonus().len().min(size_of::<SpaceMapPhys>());
        dnode.set_bonus(&Tx::syncing(txg), &phys.as_bytes()[..length])
    }

    fn truncate(
        &self,
        txg: Txg,
        vdev: VdevId,
        metaslab: MetaslabId,
        object: ObjectId,
    ) -> Result<SpaceMapObject> {
        let (found, _) = self.open(object)?;
        let tx = Tx::syncing(txg);
        let Parts { mos, features } = self.parts()?;
        let lacks_histogram =
            !found.has_histogram && features.count(feature::SPACEMAP_HISTOGRAM).is_some();
        if lacks_histogram || found.block_bytes != SPACE_MAP_BLOCK_BYTES {
            if found.has_histogram {
                features.adjust(feature::SPACEMAP_HISTOGRAM, -1, &tx)?;
            }
            mos.object_free(&tx, object)?;
            return self.create(txg, vdev, metaslab);
        }
        mos.hold(object)?.free_range(&tx, 0, u64::MAX)?;
        Ok(found)
    }
}
