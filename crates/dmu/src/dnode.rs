//! Dnodes in memory: an object, its two generations of changes, and its block tree on disk.
//!
//! # What it is
//! A [`Dnode`] is what is on disk (`image`) and up to three layers of changes above it:
//! - `dirty`: changed in the open txg;
//! - `frozen`: belongs to the txg that is being synced; changed by that txg's syncing Tx only;
//! - `writing`: what a pass of [`Objset::sync`](crate::Objset::sync) is writing right now.
//!
//! There are no clean block buffers: a block that is in no layer is read from the block store,
//! whose cache has it.
//!
//! # Invariants
//! 1. Layers hide what is below them, block by block (dirty blocks, then freed ranges).
//! 2. A reader that found its block on disk holds a *ticket* until it has the bytes. Blocks are killed,
//!    or overwritten in place, only after all tickets taken before the pointers to them were replaced or
//!    hidden have been returned. So a reader never sees a block change under its pointer.
//! 3. An object is changed in open context or in syncing context, not in both at a time.
//!
//! # Concurrency
//! One mutex per dnode, never held during I/O. A thread that waits for tickets holds no other ticket,
//! and a reader with a ticket waits for nothing but reads.
//!
//! # Why not simpler
//! A reader-writer lock around reads could replace tickets, if the sync thread did not itself read
//! objects while it allocates (a metaslab loads its space map): it would wait for itself.
//!
//! # Source
//! OpenZFS module/zfs/dnode.c, module/zfs/dbuf.c, include/sys/dnode.h @be7657e3.

use std::fmt;
use std::sync::{Arc, Weak};

use base::{BlkId, Error, ObjectId, ObjsetId, Result, Txg};
use phys::dnode::DnodePhys;
use phys::{ChecksumType, CompressType, ObjectType};
use rt::{Condvar, Mutex, MutexGuard};

use crate::behind::Stream;
use crate::context::Context;
use crate::dirty::{Charge, Dirty, Fields, SpillChange};
use crate::image::Image;
use crate::prefetch::Streams;
use crate::tree::{PathCache, Pending, levels_for};
use crate::user::Users;
use crate::{META_DNODE_OBJECT, Tx};

/// Bytes that a dirty dnode is charged in the txg, besides its blocks.
const DNODE_CHARGE_BYTES: u64 = 4096;

/// `dnode_t`: an object.
#[doc(alias = "dnode_t")]
pub struct Dnode {
    pub(crate) context: Arc<Context>,
    id: ObjectId,
    slots: u8,
    me: Weak<Dnode>,
    state: Mutex<State>,
    /// A ticket was returned.
    returned: Condvar,
    pub(crate) streams: Mutex<Streams>,
    pub(crate) users: Users,
    /// Only in the meta-dnode, through which every lookup of an object goes.
    pub(crate) path: Option<Arc<PathCache>>,
}

pub(crate) struct State {
    image: Arc<Image>,
    /// What `image` says.
    stored: Fields,
    pub(crate) dirty: Option<Box<Dirty>>,
    pub(crate) frozen: Option<Box<Dirty>>,
    pub(crate) writing: Option<Arc<Dirty>>,
    /// Indirect blocks that `writing` is about to overwrite in place.
    pub(crate) pending: Option<Arc<Pending>>,
    /// The current sequential write.
    pub(crate) stream: Stream,
    /// Counts changes that may outdate a block that was read from the block store without the lock.
    pub(crate) changes: u64,
    /// Counts the images that were installed.
    pub(crate) version: u64,
    tickets: [u32; 2],
    epoch: usize,
}

/// The generation in which a reader sees a dnode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// With all changes.
    Open,
    /// As the txg being synced will write it.
    Syncing,
}

impl View {
    pub(crate) fn of(tx: &Tx) -> View {
        if tx.is_syncing() {
            View::Syncing
        } else {
            View::Open
        }
    }
}

impl State {
    /// The layers, topmost first.
    pub(crate) fn layers(&self, view: View) -> impl Iterator<Item = &Dirty> {
        let dirty = self.dirty.as_deref().filter(|_| view == View::Open);
        dirty
            .into_iter()
            .chain(self.frozen.as_deref())
            .chain(self.writing.as_deref())
    }

    pub(crate) fn fields(&self, view: View) -> &Fields {
        let top = self.layers(view).next();
        top.map_or(&self.stored, |layer| &layer.fields)
    }

    /// What is on disk.
    pub(crate) fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// Something else is on disk now.
    pub(crate) fn set_image(&mut self, image: Image) {
        self.stored = image.fields();
        self.image = Arc::new(image);
    }

    pub(crate) fn is_freed(&self) -> bool {
        self.layers(View::Open).any(|layer| layer.freeing)
    }

    /// Whether any change of the object, its creation included, belongs to a txg that is not on disk yet.
    pub(crate) fn is_dirty(&self) -> bool {
        self.layers(View::Open).next().is_some()
    }

    fn layer_slot(&mut self, tx: &Tx) -> &mut Option<Box<Dirty>> {
        if tx.is_syncing() {
            &mut self.frozen
        } else {
            &mut self.dirty
        }
    }
}

/// The right to read blocks that the tree pointed at when the ticket was taken.
pub(crate) struct Ticket<'a> {
    dnode: &'a Dnode,
    epoch: usize,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut state = self.dnode.state.lock();
        state.tickets[self.epoch] -= 1;
        if state.tickets[self.epoch] == 0 {
            self.dnode.returned.notify_all();
        }
    }
}

impl Dnode {
    pub(crate) fn new(context: Arc<Context>, id: ObjectId, image: Image) -> Arc<Dnode> {
        Arc::new_cyclic(|me| Dnode {
            context,
            id,
            slots: image.core.extra_slots + 1,
            me: me.clone(),
            state: Mutex::new(State {
                stored: image.fields(),
                image: Arc::new(image),
                dirty: None,
                frozen: None,
                writing: None,
                pending: None,
                stream: Stream::default(),
                changes: 0,
                version: 0,
                tickets: [0; 2],
                epoch: 0,
            }),
            returned: Condvar::new(),
            streams: Mutex::new(Streams::default()),
            path: (id == META_DNODE_OBJECT).then(Arc::default),
            users: Users::default(),
        })
    }

    /// Between two txgs nothing is frozen or being written.
    ///
    /// # Panics
    /// When something is, or the layer of the open txg is not as `dirty.rs` says.
    pub(crate) fn check_invariants(&self) {
        let state = self.state();
        let is_synced = state.frozen.is_none() && state.writing.is_none();
        assert!(is_synced, "object {} was not synced", self.id());
        if let Some(dirty) = &state.dirty {
            dirty.check_invariants();
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Takes a ticket; `state` is this dnode's.
    pub(crate) fn ticket(&self, state: &mut State) -> Ticket<'_> {
        let epoch = state.epoch;
        state.tickets[epoch] += 1;
        Ticket { dnode: self, epoch }
    }

    /// Waits until all tickets taken before this call are returned. One thread at a time.
    pub(crate) fn drain_readers(&self) {
        let mut state = self.state.lock();
        let epoch = state.epoch;
        if state.tickets[epoch] == 0 {
            return;
        }
        assert_eq!(
            state.tickets[1 - epoch],
            0,
            "two threads drain object {}",
            self.id
        );
        state.epoch = 1 - epoch;
        while state.tickets[epoch] > 0 {
            self.returned.wait(&mut state);
        }
    }

    pub(crate) fn me(&self) -> Arc<Dnode> {
        self.me
            .upgrade()
            .expect("a method runs on an object that is held")
    }
}

/// What it is.
impl Dnode {
    /// dn_object
    #[must_use]
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// The objset that the object is in.
    #[must_use]
    pub fn objset_id(&self) -> ObjsetId {
        self.context.id
    }

    /// Slots of 512 bytes that the dnode takes.
    #[must_use]
    pub fn slots(&self) -> u8 {
        self.slots
    }

    fn look<R>(&self, f: impl FnOnce(&Fields) -> R) -> R {
        f(self.state.lock().fields(View::Open))
    }

    /// dn_type
    #[must_use]
    pub fn type_(&self) -> ObjectType {
        self.look(|fields| fields.type_)
    }

    /// dn_bonustype
    #[must_use]
    pub fn bonus_type(&self) -> ObjectType {
        self.look(|fields| fields.bonus_type)
    }

    /// Bytes of a data block.
    #[must_use]
    #[doc(alias = "dn_datablksz")]
    pub fn blksz(&self) -> u64 {
        self.look(|fields| fields.blksz)
    }

    /// The last block of the object; also 0 if it has none.
    #[must_use]
    pub fn maxblkid(&self) -> BlkId {
        self.look(|fields| BlkId(fields.maxblkid))
    }

    /// log2 of the size of indirect blocks.
    #[must_use]
    #[doc(alias = "dn_indblkshift")]
    pub fn ibs(&self) -> u8 {
        self.state.lock().image.core.indblkshift
    }

    /// Levels of the block tree, 1 without indirect blocks.
    #[must_use]
    pub fn nlevels(&self) -> u8 {
        let state = self.state.lock();
        let core = &state.image.core;
        let maxblkid = state.fields(View::Open).maxblkid;
        core.nlevels
            .max(levels_for(maxblkid, core.nblkptr, core.indblkshift))
    }

    /// dn_used: bytes that the object's blocks take, as of the last sync.
    #[must_use]
    #[doc(alias = "DN_USED_BYTES")]
    pub fn used_bytes(&self) -> u64 {
        self.state.lock().image.used_bytes()
    }

    /// The core of the dnode, as of the last sync.
    #[must_use]
    #[doc(alias = "dmu_object_info")]
    pub fn phys(&self) -> DnodePhys {
        self.state.lock().image.core
    }

    /// Whether the object has been freed, even if only in memory.
    #[must_use]
    pub fn is_freed(&self) -> bool {
        self.state.lock().is_freed()
    }

    /// Whether the object has changes that are not on disk.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.state.lock().is_dirty()
    }
}

/// Changes of the dnode itself.
impl Dnode {
    /// Runs `f` on the layer that `tx` changes, which is created first if necessary.
    pub(crate) fn change<R>(
        &self,
        tx: &Tx,
        f: impl FnOnce(&mut State, Change<'_>) -> R,
    ) -> Result<R> {
        self.context.announce(tx);
        let mut state = self.state.lock();
        self.change_locked(&mut state, tx, f)
    }

    /// An object is changed in open context or in syncing context, never in both: otherwise a number that
    /// leads here from disk is wrong.
    fn check_context(&self, state: &State, tx: &Tx) -> Result<()> {
        if tx.is_syncing() && state.dirty.is_some() {
            let what = format!(
                "object {} is changed in open and in syncing context",
                self.id
            );
            return Err(Error::corrupt(what));
        }
        if self.id == META_DNODE_OBJECT {
            return Err(Error::corrupt("object 0 is to be changed"));
        }
        Ok(())
    }

    /// Like [`change`](Dnode::change), after [`Context::announce`] and with the lock held.
    pub(crate) fn change_locked<R>(
        &self,
        state: &mut State,
        tx: &Tx,
        f: impl FnOnce(&mut State, Change<'_>) -> R,
    ) -> Result<R> {
        if state.is_freed() {
            return Err(self.gone());
        }
        self.check_context(state, tx)?;
        let mut charge = Charge::default();
        if state.layer_slot(tx).is_none() {
            let fields = state.fields(View::of(tx)).clone();
            *state.layer_slot(tx) = Some(Box::new(Dirty::new(fields)));
            self.context.enlist(tx, self.me());
            charge = Charge::waiting(DNODE_CHARGE_BYTES);
        }
        let mut layer = state.layer_slot(tx).take().expect("created above");
        let result = f(
            state,
            Change {
                layer: &mut layer,
                charge: &mut charge,
            },
        );
        layer.charge(charge);
        *state.layer_slot(tx) = Some(layer);
        self.context.charge(tx, charge);
        Ok(result)
    }

    pub(crate) fn gone(&self) -> Error {
        Error::not_found(format!(
            "object {} of objset {} is gone",
            self.id,
            self.objset_id()
        ))
    }

    /// Marks the object as allocated in this txg; it existed only in memory so far.
    pub(crate) fn begin(&self, tx: &Tx) -> Result<()> {
        self.change(tx, |_, change| change.layer.allocated = true)
    }

    /// Frees the object with all its blocks.
    pub(crate) fn free(&self, tx: &Tx) -> Result<()> {
        self.change(tx, |state, change| {
            *change.charge += change.layer.discard_blocks(0, u64::MAX);
            change.layer.freed.insert(0, u64::MAX);
            change.layer.spill = SpillChange::Remove;
            change.layer.freeing = true;
            state.changes += 1;
        })
    }

    /// Changes dn_type, as when an object of an old type becomes a ZAP.
    ///
    /// # Errors
    /// `NotFound` when the object was freed.
    pub fn set_type(&self, tx: &Tx, type_: ObjectType) -> Result<()> {
        self.change(tx, |_, change| change.layer.fields.type_ = type_)
    }

    /// Gives the object a checksum of its own; `Inherit`: that of the objset.
    ///
    /// # Errors
    /// `NotFound` when the object was freed.
    #[doc(alias = "dmu_object_set_checksum")]
    pub fn set_checksum(&self, tx: &Tx, checksum: ChecksumType) -> Result<()> {
        self.change(tx, |_, change| {
            change.layer.fields.checksum = checksum.raw();
        })
    }

    /// Gives the object a compression of its own; `Inherit`: that of the objset.
    ///
    /// # Errors
    /// `NotFound` when the object was freed.
    #[doc(alias = "dmu_object_set_compress")]
    pub fn set_compress(&self, tx: &Tx, compress: CompressType) -> Result<()> {
        self.change(tx, |_, change| {
            change.layer.fields.compress = compress.raw();
        })
    }

    /// Lets the blocks that are written from now on belong where those of an object of another type do. This is not
    /// on disk: each txg that writes to the object says it again.
    ///
    /// # Errors
    /// `NotFound` when the object was freed.
    #[doc(alias = "dnode_set_storage_type")]
    pub fn set_storage_type(&self, tx: &Tx, type_: ObjectType) -> Result<()> {
        self.change(tx, |_, change| {
            change.layer.fields.storage = Some(type_);
        })
    }

    /// Moves the changes of the open txg aside. No Tx holds that txg.
    pub(crate) fn freeze(&self, txg: Txg) {
        let mut state = self.state.lock();
        assert!(
            state.frozen.is_none(),
            "object {} is frozen already in txg {txg}",
            self.id
        );
        state.frozen = state.dirty.take();
        state.changes += 1;
        let layer = state.frozen.as_ref();
        for bp in layer.iter().flat_map(|layer| layer.clones()) {
            self.context.accounting.cloned(bp);
        }
    }
}

/// A layer under change.
pub(crate) struct Change<'a> {
    pub(crate) layer: &'a mut Dirty,
    /// By how much the layer grows.
    pub(crate) charge: &'a mut Charge,
}

impl fmt::Debug for Dnode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dnode(<{}, {}>)", self.objset_id(), self.id)
    }
}
