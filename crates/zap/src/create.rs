//! Making and destroying ZAP objects.
//!
//! # Source
//! OpenZFS `module/zfs/zap.c` (`zap_create_impl`, `zap_create_claim_norm_dnsize`).

use std::sync::Arc;

use base::{ObjectId, Result, SPA_MINBLOCKSIZE};
use dmu::{Dnode, NewObject, Objset, Tx};
use phys::ObjectType;
use phys::zap::FZAP_DEFAULT_BLOCK_SHIFT;

use crate::handle::Zap;
use crate::key::Key;
use crate::value::Flags;

/// The properties of a new ZAP.
#[derive(Clone, Copy, Debug)]
pub struct NewZap {
    /// The object type; must be one of the ZAP types.
    pub type_: ObjectType,
    /// Flags; with any of them the ZAP is fat from the beginning.
    pub flags: Flags,
    /// log2 of the block size of a ZAP with flags; 0 for the default, 16 KiB.
    pub block_shift: u32,
    /// log2 of the size of indirect blocks; 0 for the default.
    pub indirect_shift: u8,
    /// The type of the bonus buffer.
    pub bonus_type: ObjectType,
    /// Bytes of bonus.
    pub bonus_len: usize,
    /// Slots of 512 bytes that the dnode takes; 0 for the default.
    pub dnode_slots: u8,
}

impl NewZap {
    /// A ZAP of `type_` with defaults for everything else.
    #[must_use]
    pub fn new(type_: ObjectType) -> NewZap {
        NewZap {
            type_,
            flags: Flags::NONE,
            block_shift: 0,
            indirect_shift: 0,
            bonus_type: ObjectType::NONE,
            bonus_len: 0,
            dnode_slots: 0,
        }
    }

    fn object(&self) -> NewObject {
        assert!(
            self.type_.is_zap(),
            "object type \"{}\" is not a zap",
            self.type_.name()
        );
        let blksz = match (self.flags, self.block_shift) {
            (flags, _) if flags.allow_micro() => SPA_MINBLOCKSIZE,
            (_, 0) => 1 << FZAP_DEFAULT_BLOCK_SHIFT,
            (_, shift) => 1 << shift,
        };
        NewObject {
            type_: self.type_,
            blksz,
            ibs: self.indirect_shift,
            bonus_type: self.bonus_type,
            bonus_len: self.bonus_len,
            dnode_slots: self.dnode_slots,
        }
    }
}

/// Makes an empty ZAP of `type_`.
///
/// # Errors
/// No free object number; I/O.
#[doc(alias = "zap_create")]
pub fn create(objset: &Arc<Objset>, tx: &Tx, type_: ObjectType) -> Result<ObjectId> {
    Ok(create_with(objset, tx, &NewZap::new(type_))?.id())
}

/// Makes an empty ZAP and holds it.
///
/// # Errors
/// As [`create`].
#[doc(alias = "zap_create_flags")]
pub fn create_with(objset: &Arc<Objset>, tx: &Tx, new: &NewZap) -> Result<Arc<Dnode>> {
    let dnode = objset.object_alloc(tx, &new.object())?;
    Zap::init(&dnode, tx, new.flags)?;
    Ok(dnode)
}

/// Makes an empty ZAP that is object `id`.
///
/// # Errors
/// [`Exists`](base::ErrorKind::Exists) if there is such an object; I/O.
#[doc(alias = "zap_create_claim")]
pub fn create_claim(
    objset: &Arc<Objset>,
    tx: &Tx,
    id: ObjectId,
    new: &NewZap,
) -> Result<Arc<Dnode>> {
    let dnode = objset.object_claim(tx, id, &new.object())?;
    Zap::init(&dnode, tx, new.flags)?;
    Ok(dnode)
}

/// Turns an object that so far has only a bonus and no data into a ZAP; the bonus stays.
///
/// # Errors
/// I/O; [`NotFound`](base::ErrorKind::NotFound) if there is no such object; `Corrupt` if it is a ZAP.
#[doc(alias = "dmu_object_zapify")]
pub fn zapify(objset: &Arc<Objset>, tx: &Tx, id: ObjectId) -> Result<()> {
    let dnode = objset.hold(id)?;
    if dnode.type_().is_zap() {
        let type_ = dnode.type_();
        return Err(base::Error::corrupt(format!(
            "object {id} is a {type_:?} already"
        )));
    }
    Zap::init(&dnode, tx, Flags::NONE)?;
    dnode.set_type(tx, ObjectType::N_ZAP_METADATA)
}

/// Makes an empty ZAP and enters its number in the ZAP `parent` under `key`.
///
/// # Errors
/// As [`create`] and [`Zap::add`].
#[doc(alias = "zap_create_link")]
pub fn create_link<'k>(
    objset: &Arc<Objset>,
    tx: &Tx,
    type_: ObjectType,
    parent: ObjectId,
    key: impl Into<Key<'k>>,
) -> Result<ObjectId> {
    let id = create(objset, tx, type_)?;
    Zap::open(objset, parent)?.add_u64(tx, key, id.0)?;
    Ok(id)
}

/// Frees a ZAP with everything in it.
///
/// # Errors
/// I/O.
#[doc(alias = "zap_destroy")]
pub fn destroy(objset: &Arc<Objset>, tx: &Tx, id: ObjectId) -> Result<()> {
    objset.object_free(tx, id)
}
