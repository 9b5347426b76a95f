//! Objsets: a meta-dnode full of dnodes, and the block that holds it.
//!
//! # On disk
//! `objset_phys_t`: the meta-dnode, whose blocks are the dnodes of all objects by number; the
//! header of the intent log; and the dnodes of the special objects that account space by owner.
//!
//! # Concurrency
//! Locks in order: the allocation cursor, the cache of dnodes, a dnode, the lists of dirty dnodes.
//! The header has a lock of its own, under which nothing else is locked.
//!
//! # Source
//! OpenZFS module/zfs/dmu_objset.c @be7657e3.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{BlkId, Context as _, ObjectId, ObjsetId, Result, Txg};
use phys::blkptr::{BlkIdentity, BlkPtrPhys};
use phys::dnode::{DN_MAX_OBJECT, DNODE_BLOCK_SIZE, DNODES_PER_BLOCK, DnodeSlotPhys};
use phys::objset::{OBJSET_PHYS_SIZE_V2, OBJSET_PHYS_SIZE_V3, ObjsetPhys};
use phys::zil::ZilHeaderPhys;
use phys::{ObjectType, ObjsetType};
use rt::{Mutex, RwLock};
use zio::{BlockStore, Bookmark};

use crate::alloc::Cursor;
use crate::cache::Cache;
use crate::context::Context;
use crate::image::Image;
use crate::{
    BlockAccounting, Dnode, GROUPUSED_OBJECT, META_DNODE_OBJECT, NewObject, ObjsetProps,
    OwnerAccounting, PROJECTUSED_OBJECT, Tx, USERUSED_OBJECT,
};

/// `objset_t`: a set of objects.
#[doc(alias = "objset_t")]
pub struct Objset {
    pub(crate) context: Arc<Context>,
    type_: ObjsetType,
    pub(crate) meta: Arc<Dnode>,
    pub(crate) header: Mutex<Header>,
    pub(crate) cache: Mutex<Cache>,
    pub(crate) cursor: Mutex<Cursor>,
    /// Objects freed on disk since the last search for free slots from the beginning.
    pub(crate) freed_objects: AtomicU64,
    owners: RwLock<Option<Arc<dyn OwnerAccounting>>>,
    /// The header was changed in syncing context, and waits for the next pass.
    header_dirty: AtomicBool,
    /// The blocks of the MOS that the current txg has written, which later passes may overwrite in place.
    /// Their birth alone would not tell: a pointer on disk may have that of a txg still to come.
    written: Mutex<HashSet<BlkIdentity>>,
}

/// The objset block in memory. Of its dnodes only those of special objects are current.
pub(crate) struct Header {
    pub(crate) phys: Box<ObjsetPhys>,
    pub(crate) size: usize,
    pub(crate) root: BlkPtrPhys,
}

/// The meta-dnode of a new objset.
fn new_meta(id: ObjsetId) -> Image {
    let new = NewObject::new(ObjectType::DNODE).blksz(DNODE_BLOCK_SIZE as u64);
    let mut image = Image::new_object(&new);
    if id.0 != 0 {
        // As OpenZFS does, deep enough for every object number; the MOS, which is written in many
        // passes, grows with its objects instead.
        let maxblkid = DN_MAX_OBJECT / DNODES_PER_BLOCK - 1;
        let core = image.core;
        image.core.nlevels = crate::tree::levels_for(maxblkid, core.nblkptr, core.indblkshift);
    }
    image.exists = true;
    image
}

/// Where the intent log of an objset begins, by its root block alone.
///
/// # Errors
/// Any read error; `Corrupt` for a block that is not a root of an objset.
pub fn read_zil_header(
    store: &dyn BlockStore,
    id: ObjsetId,
    root: &BlkPtrPhys,
) -> Result<ZilHeaderPhys> {
    let block = store.read(root, &Bookmark::root(id))?;
    let phys = ObjsetPhys::parse(&block).within(|| format!("objset {id}"))?;
    Ok(phys.zil_header)
}

impl Objset {
    /// A new objset, without any object. It exists on disk after its first sync.
    #[must_use]
    #[doc(alias = "dmu_objset_create_impl")]
    pub fn create(
        store: Arc<dyn BlockStore>,
        id: ObjsetId,
        type_: ObjsetType,
        props: ObjsetProps,
        accounting: Arc<dyn BlockAccounting>,
        tx: &Tx,
    ) -> Arc<Objset> {
        assert!(tx.is_syncing(), "objsets are created in syncing context");
        let size = if props.project_quota {
            OBJSET_PHYS_SIZE_V3
        } else {
            OBJSET_PHYS_SIZE_V2
        };
        let mut phys = Box::<ObjsetPhys>::default();
        phys.type_.set(type_ as u64);
        let context = Context::new(id, store, props, accounting);
        let header = Header {
            phys,
            size,
            root: BlkPtrPhys::default(),
        };
        let objset = Self::assemble(context, type_, new_meta(id), header);
        objset.mark_header(tx);
        objset
    }

    /// The objset whose block `root` points at.
    ///
    /// # Errors
    /// The block store's error for that block; `Corrupt` when it makes no sense.
    #[doc(alias = "dmu_objset_open_impl")]
    pub fn open(
        store: Arc<dyn BlockStore>,
        id: ObjsetId,
        root: &BlkPtrPhys,
        props: ObjsetProps,
        accounting: Arc<dyn BlockAccounting>,
    ) -> Result<Arc<Objset>> {
        let bookmark = Bookmark::root(id);
        let block = store.read(root, &bookmark)?;
        let phys = Box::new(ObjsetPhys::parse(&block).within(|| format!("objset {id}"))?);
        let type_ = phys.objset_type()?;
        let wanted = if props.project_quota {
            OBJSET_PHYS_SIZE_V3
        } else {
            OBJSET_PHYS_SIZE_V2
        };
        let size = block.len().max(wanted);
        let meta = Image::decode(zerocopy::IntoBytes::as_bytes(&phys.meta_dnode));
        let meta = meta.within(|| format!("meta-dnode of objset {id}"))?;
        if meta.type_() != ObjectType::DNODE || meta.core.datablksz() != DNODE_BLOCK_SIZE as u64 {
            let (type_, blksz) = (meta.type_(), meta.core.datablksz());
            let what = format!("meta-dnode of objset {id}: type {type_}, blocks of {blksz}");
            return Err(base::Error::corrupt(what));
        }
        let context = Context::new(id, store, props, accounting);
        Ok(Self::assemble(
            context,
            type_,
            meta,
            Header {
                phys,
                size,
                root: *root,
            },
        ))
    }

    /// The dnodes at and below one block, which was found without what leads to it, and is the one of this number at
    /// its level. A single block of dnodes whose number is not known is best taken for the second one: in the first,
    /// number 0 would be the meta-dnode.
    #[must_use]
    pub fn adrift(
        store: Arc<dyn BlockStore>,
        id: ObjsetId,
        (type_, block, number): (ObjsetType, &BlkPtrPhys, usize),
        accounting: Arc<dyn BlockAccounting>,
    ) -> Arc<Objset> {
        let level = block.level();
        let shift = match level {
            0 => phys::dnode::DN_MAX_INDBLKSHIFT,
            _ => block.lsize().trailing_zeros() as u8,
        };
        let new = NewObject::new(ObjectType::DNODE).blksz(DNODE_BLOCK_SIZE as u64);
        let mut meta = Image::new_object(&new.ibs(shift));
        meta.exists = true;
        meta.blkptrs[number] = *block;
        meta.core.nlevels = level + 1;
        let fanout = size_of::<BlkPtrPhys>().trailing_zeros();
        let below = u32::from(level) * u32::from(shift).saturating_sub(fanout);
        let blocks = (1u64 << below.min(60)).saturating_mul(number as u64 + 1);
        meta.core.maxblkid.set(blocks - 1);
        let context = Context::new(id, store, ObjsetProps::default(), accounting);
        let header = Header {
            phys: Box::default(),
            size: OBJSET_PHYS_SIZE_V3,
            root: BlkPtrPhys::default(),
        };
        Self::assemble(context, type_, meta, header)
    }

    fn assemble(
        context: Arc<Context>,
        type_: ObjsetType,
        meta: Image,
        header: Header,
    ) -> Arc<Objset> {
        Arc::new(Objset {
            meta: Dnode::new(Arc::clone(&context), META_DNODE_OBJECT, meta),
            context,
            type_,
            header: Mutex::new(header),
            cache: Mutex::new(Cache::default()),
            cursor: Mutex::new(Cursor::default()),
            freed_objects: AtomicU64::new(0),
            owners: RwLock::new(None),
            header_dirty: AtomicBool::new(false),
            written: Mutex::default(),
        })
    }

    /// Its number: that of its dataset in the MOS; 0 for the MOS.
    #[must_use]
    #[doc(alias = "dmu_objset_id")]
    pub fn id(&self) -> ObjsetId {
        self.context.id
    }

    /// os_type
    #[must_use]
    pub fn type_(&self) -> ObjsetType {
        self.type_
    }

    /// Whether this is the meta-objset.
    #[must_use]
    pub fn is_mos(&self) -> bool {
        self.id().0 == 0
    }

    /// Where its blocks are.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn BlockStore> {
        &self.context.store
    }

    /// The pointer to its block, as of the last sync.
    #[must_use]
    #[doc(alias = "os_rootbp")]
    pub fn root_bp(&self) -> BlkPtrPhys {
        self.header.lock().root
    }

    /// How blocks are written from now on.
    #[must_use]
    pub fn props(&self) -> Arc<ObjsetProps> {
        self.context.props()
    }

    /// Changes how blocks are written.
    pub fn set_props(&self, props: ObjsetProps) {
        self.context.set_props(props);
    }

    /// Starts counting space by owner, or stops (`None`).
    pub fn set_owner_accounting(&self, owners: Option<Arc<dyn OwnerAccounting>>) {
        *self.owners.write() = owners;
    }

    /// Sets how many dnodes may stay in memory without being held (8192 by default).
    pub fn set_idle_dnodes_max(&self, count: usize) {
        self.cache.lock().idle_max = count.max(1);
    }

    pub(crate) fn owners(&self) -> Option<Arc<dyn OwnerAccounting>> {
        self.owners.read().clone()
    }

    /// Objects in use, special ones not counted, as of the last sync.
    #[must_use]
    pub fn object_count(&self) -> u64 {
        self.meta.state().image().fill()
    }

    /// os_flags: `OBJSET_FLAG_*`
    #[must_use]
    pub fn flags(&self) -> u64 {
        self.header.lock().phys.flags.get()
    }

    /// Changes os_flags, in syncing context.
    pub fn set_flags(&self, tx: &Tx, flags: u64) {
        self.mark_header(tx);
        self.header.lock().phys.flags.set(flags);
    }

    /// os_zil_header
    #[must_use]
    pub fn zil_header(&self) -> ZilHeaderPhys {
        self.header.lock().phys.zil_header
    }

    /// Changes os_zil_header, in syncing context: it becomes part of what is being synced.
    pub fn set_zil_header(&self, tx: &Tx, header: ZilHeaderPhys) {
        self.mark_header(tx);
        self.header.lock().phys.zil_header = header;
    }

    fn mark_header(&self, tx: &Tx) {
        assert!(
            tx.is_syncing(),
            "the objset block is changed in syncing context"
        );
        self.context.announce(tx);
        self.header_dirty.store(true, Ordering::Release);
    }

    pub(crate) fn take_header_dirty(&self) -> bool {
        self.header_dirty.swap(false, Ordering::AcqRel)
    }

    /// Whether the open txg has changes.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.context.is_dirty()
    }

    /// Whether something is frozen, or was changed in syncing context, and is not written yet.
    #[must_use]
    #[doc(alias = "dmu_objset_is_dirty")]
    pub fn needs_sync(&self) -> bool {
        self.context.is_frozen() || self.header_dirty.load(Ordering::Acquire)
    }

    /// Moves the changes of the open txg aside, for [`sync`](Objset::sync). Called while no Tx holds
    /// that txg; copies nothing.
    pub fn freeze(&self, txg: Txg) {
        self.context.freeze(txg);
    }

    /// Ends the sync of `txg`.
    pub fn sync_done(&self, txg: Txg) {
        assert!(
            !self.needs_sync(),
            "objset {} was changed after its sync of txg {txg}",
            self.id()
        );
        self.cache.lock().trim();
    }

    /// Notes that the current txg has written this block.
    pub(crate) fn note_written(&self, bp: &BlkPtrPhys) {
        if self.is_mos() && !bp.is_hole() && !bp.is_embedded() {
            self.written.lock().insert(bp.identity());
        }
    }

    /// Whether the current txg has written this block; always false outside of the MOS.
    pub(crate) fn has_written(&self, bp: &BlkPtrPhys) -> bool {
        self.is_mos() && self.written.lock().contains(&bp.identity())
    }

    pub(crate) fn forget_written(&self) {
        self.written.lock().clear();
    }

    /// Checks what this crate promises of the dnodes in memory, while no txg is being synced.
    ///
    /// # Panics
    /// When it does not hold.
    pub fn check_invariants(&self) {
        let dnodes = self.cache.lock().dnodes();
        dnodes.iter().for_each(|dnode| dnode.check_invariants());
    }

    /// The slot of a special object in the objset block; `None` if the block has none for it.
    pub(crate) fn special_slot(header: &mut Header, id: ObjectId) -> Option<&mut DnodeSlotPhys> {
        let phys = &mut *header.phys;
        let (slot, end) = match id {
            USERUSED_OBJECT => (&mut phys.userused_dnode, OBJSET_PHYS_SIZE_V2),
            GROUPUSED_OBJECT => (&mut phys.groupused_dnode, OBJSET_PHYS_SIZE_V2),
            PROJECTUSED_OBJECT => (&mut phys.projectused_dnode, OBJSET_PHYS_SIZE_V3),
            _ => return None,
        };
        (header.size >= end).then_some(slot)
    }

    /// The block of the meta-dnode that object `id` is in, and its slot there.
    pub(crate) fn place_of(id: ObjectId) -> (BlkId, usize) {
        (
            BlkId(id.0 / DNODES_PER_BLOCK),
            (id.0 % DNODES_PER_BLOCK) as usize,
        )
    }
}

/// Whether an object is in the objset block instead of the meta-dnode.
pub(crate) fn is_special(id: ObjectId) -> bool {
    id.0 >= PROJECTUSED_OBJECT.0
}

impl Drop for Objset {
    fn drop(&mut self) {
        self.context.abandon();
    }
}

impl fmt::Debug for Objset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Objset({}, {})", self.id(), self.type_)
    }
}
