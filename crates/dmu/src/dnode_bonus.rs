//! The bonus bytes in a dnode, and the spill block next to them.
//!
//! # Source
//! OpenZFS module/zfs/dnode.c (`dnode_setbonuslen`), module/zfs/dbuf.c (`dbuf_rm_spill`) @be7657e3.

use std::sync::Arc;

use base::{Buf, Error, Result};
use phys::{BlkPtrPhys, ObjectType};

use crate::dirty::{Charge, charge_of};
use crate::dnode::{State, View};
use crate::{Dnode, SpillChange, Tx};

/// The bonus of an object and what `stat` says besides, all of one moment.
#[derive(Clone, Debug)]
#[doc(alias = "dmu_object_info_t")]
pub struct BonusInfo {
    /// The bonus bytes, as [`Dnode::bonus`].
    pub bytes: Arc<[u8]>,
    /// dn_bonustype
    pub type_: ObjectType,
    /// Whether there is a spill block.
    pub has_spill: bool,
    /// Bytes of a data block.
    pub blksz: u64,
    /// Bytes that the object's blocks take, as of the last sync.
    pub used_bytes: u64,
}

impl Dnode {
    /// The bonus with what is around it, under one lock.
    #[must_use]
    pub fn bonus_info(&self) -> BonusInfo {
        let state = self.state();
        let fields = state.fields(View::Open);
        BonusInfo {
            bytes: Arc::clone(&fields.bonus),
            type_: fields.bonus_type,
            has_spill: fields.has_spill,
            blksz: fields.blksz,
            used_bytes: state.image().used_bytes(),
        }
    }

    /// The bonus bytes; all callers share them in memory until they are changed.
    #[must_use]
    pub fn bonus(&self) -> Arc<[u8]> {
        Arc::clone(&self.state().fields(View::Open).bonus)
    }

    /// dn_bonuslen
    #[must_use]
    pub fn bonus_len(&self) -> usize {
        self.state().fields(View::Open).bonus.len()
    }

    /// The most bonus bytes that fit, next to the spill pointer if there is one.
    #[must_use]
    #[doc(alias = "DN_MAX_BONUS_LEN")]
    pub fn max_bonus_len(&self) -> usize {
        let state = self.state();
        let has_spill = state.fields(View::Open).has_spill;
        self.room(&state, has_spill)
    }

    fn room(&self, state: &State, has_spill: bool) -> usize {
        let mut core = state.image().core;
        core.flags &= !phys::dnode::DNODE_FLAG_SPILL_BLKPTR;
        let spill = if has_spill {
            size_of::<BlkPtrPhys>()
        } else {
            0
        };
        core.max_bonuslen().saturating_sub(spill)
    }

    /// Replaces the bonus bytes and their length.
    ///
    /// # Errors
    /// `InvalidInput` when they do not fit; `NotFound` when the object was freed.
    #[doc(alias = "dmu_set_bonus")]
    pub fn set_bonus(&self, tx: &Tx, bonus: &[u8]) -> Result<()> {
        self.change(tx, |state, change| {
            let fields = &mut change.layer.fields;
            let room = self.room(state, fields.has_spill);
            if bonus.len() > room {
                let what = format!("bonus of {} bytes, room for {room}", bonus.len());
                return Err(Error::invalid(what));
            }
            fields.bonus = bonus.into();
            Ok(())
        })?
    }

    /// Changes the bonus bytes, but not their length.
    ///
    /// # Errors
    /// `NotFound` when the object was freed.
    pub fn modify_bonus(&self, tx: &Tx, f: impl FnOnce(&mut [u8])) -> Result<()> {
        self.change(tx, |_, change| {
            f(Arc::make_mut(&mut change.layer.fields.bonus));
        })
    }

    /// Changes the type of the bonus.
    ///
    /// # Errors
    /// `NotFound` when the object was freed.
    #[doc(alias = "dmu_set_bonustype")]
    pub fn set_bonus_type(&self, tx: &Tx, type_: ObjectType) -> Result<()> {
        self.change(tx, |_, change| change.layer.fields.bonus_type = type_)
    }

    /// Whether there is a spill block.
    #[must_use]
    pub fn has_spill(&self) -> bool {
        self.state().fields(View::Open).has_spill
    }

    /// The pointer to the spill block as it is on disk, if there is one.
    #[must_use]
    #[doc(alias = "DN_SPILL_BLKPTR")]
    pub fn spill_pointer(&self) -> Option<BlkPtrPhys> {
        self.state().image().spill.filter(|bp| !bp.is_hole())
    }

    /// Writes a spill block: a multiple of 512 bytes, at most 128 KiB.
    ///
    /// # Errors
    /// `InvalidInput` when the bonus leaves no room for its pointer.
    #[doc(alias = "dmu_spill_hold_by_bonus")]
    pub fn set_spill(&self, tx: &Tx, spill: Buf) -> Result<()> {
        let len = spill.len() as u64;
        let fits = (1..=base::SPA_OLD_MAXBLOCKSIZE).contains(&len) && len.is_multiple_of(512);
        assert!(fits, "spill block of {len} bytes");
        self.change(tx, |state, change| {
            let bonus = change.layer.fields.bonus.len();
            if bonus + size_of::<BlkPtrPhys>() > self.room(state, false) {
                return Err(Error::invalid(format!(
                    "bonus of {bonus} bytes next to a spill block"
                )));
            }
            change.layer.fields.has_spill = true;
            if let SpillChange::Set(old) = &change.layer.spill {
                *change.charge -= Charge::waiting(charge_of(old.len()));
            }
            *change.charge += Charge::waiting(charge_of(spill.len()));
            change.layer.spill = SpillChange::Set(spill);
            Ok(())
        })?
    }

    /// Frees the spill block.
    ///
    /// # Errors
    /// `NotFound` when the object was freed.
    #[doc(alias = "dmu_rm_spill")]
    pub fn remove_spill(&self, tx: &Tx) -> Result<()> {
        self.change(tx, |_, change| {
            change.layer.fields.has_spill = false;
            if let SpillChange::Set(old) = &change.layer.spill {
                *change.charge -= Charge::waiting(charge_of(old.len()));
            }
            change.layer.spill = SpillChange::Remove;
        })
    }
}
