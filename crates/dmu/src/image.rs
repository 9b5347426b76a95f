//! A dnode as it is on disk, decoded.
//!
//! # Source
//! OpenZFS module/zfs/dnode.c (`dnode_allocate`), module/zfs/dnode_sync.c @be7657e3.

use std::sync::Arc;

use base::{Error, ErrorKind, Result, SPA_MINBLOCKSIZE, align_up};
use phys::blkptr::BlkPtrPhys;
use phys::dnode::{
    DN_MAX_INDBLKSHIFT, DN_MAX_NBLKPTR, DN_MIN_INDBLKSHIFT, DNODE_FLAG_USED_BYTES, DNODE_MAX_SLOTS,
    DnodeImage, DnodePhys, DnodeView, slots_to_bonuslen,
};
use phys::{ObjectType, Phys};

use crate::dirty::Fields;
use crate::tree::{Pending, Tree};
use crate::{Dnode, ObjsetProps};

/// What a new object is to be.
#[derive(Clone, Debug)]
pub struct NewObject {
    /// dn_type
    pub type_: ObjectType,
    /// Bytes of a data block, rounded up to 512; 0: 512
    pub blksz: u64,
    /// dn_indblkshift; 0: 17, which is 128 KiB
    pub ibs: u8,
    /// dn_bonustype
    pub bonus_type: ObjectType,
    /// dn_bonuslen: zeros for a start. 0 for a bonus of type SA that is set right afterwards.
    pub bonus_len: usize,
    /// Slots of 512 bytes that the dnode takes; 0: 1
    pub dnode_slots: u8,
}

impl NewObject {
    /// An object without a bonus, with blocks of 512 bytes, in one slot.
    #[must_use]
    pub fn new(type_: ObjectType) -> Self {
        NewObject {
            type_,
            blksz: 0,
            ibs: 0,
            bonus_type: ObjectType::NONE,
            bonus_len: 0,
            dnode_slots: 0,
        }
    }

    /// With data blocks of this size.
    #[must_use]
    pub fn blksz(mut self, bytes: u64) -> Self {
        self.blksz = bytes;
        self
    }

    /// With indirect blocks of `1 << ibs` bytes.
    #[must_use]
    pub fn ibs(mut self, ibs: u8) -> Self {
        self.ibs = ibs;
        self
    }

    /// With a bonus.
    #[must_use]
    pub fn bonus(mut self, type_: ObjectType, len: usize) -> Self {
        self.bonus_type = type_;
        self.bonus_len = len;
        self
    }

    /// With a dnode of this many slots.
    #[must_use]
    pub fn dnode_slots(mut self, slots: u8) -> Self {
        self.dnode_slots = slots;
        self
    }

    pub(crate) fn slots(&self) -> u8 {
        self.dnode_slots.max(1)
    }

    pub(crate) fn check(&self, props: &ObjsetProps) -> Result<()> {
        if self.type_ == ObjectType::NONE {
            return Err(Error::invalid("a new object needs a type"));
        }
        if usize::from(self.slots()) > DNODE_MAX_SLOTS {
            return Err(Error::invalid(format!(
                "dnode of {} slots",
                self.dnode_slots
            )));
        }
        let room = slots_to_bonuslen(self.slots().into());
        if self.bonus_len > room {
            return Err(Error::invalid(format!(
                "bonus of {} bytes, room for {room}",
                self.bonus_len
            )));
        }
        check_blksz(self.blksz, props)
    }

    /// The core of the dnode that this will be, empty.
    fn core(&self) -> DnodePhys {
        let slots = self.slots();
        let spare = slots_to_bonuslen(slots.into()) - self.bonus_len;
        let nblkptr = match self.bonus_type {
            // System attributes grow: leave them all the room.
            ObjectType::SA => 1,
            _ => (1 + spare / size_of::<BlkPtrPhys>()).min(DN_MAX_NBLKPTR.into()) as u8,
        };
        let ibs = if self.ibs == 0 {
            DN_MAX_INDBLKSHIFT
        } else {
            self.ibs
        };
        let mut core = DnodePhys {
            type_: self.type_.raw(),
            indblkshift: ibs.clamp(DN_MIN_INDBLKSHIFT, DN_MAX_INDBLKSHIFT),
            nlevels: 1,
            nblkptr,
            bonustype: self.bonus_type.raw(),
            flags: DNODE_FLAG_USED_BYTES,
            extra_slots: slots - 1,
            ..DnodePhys::default()
        };
        core.set_datablksz(round_blksz(self.blksz));
        core.bonuslen.set(self.bonus_len as u16);
        core
    }
}

pub(crate) fn round_blksz(blksz: u64) -> u64 {
    align_up(blksz.max(1), SPA_MINBLOCKSIZE)
}

pub(crate) fn check_blksz(blksz: u64, props: &ObjsetProps) -> Result<()> {
    if round_blksz(blksz) <= props.max_blksz {
        return Ok(());
    }
    let what = format!("block size {blksz}, at most {}", props.max_blksz);
    Err(Error::new(ErrorKind::Unsupported, what))
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    /// Whether there is such an object on disk.
    pub(crate) exists: bool,
    pub(crate) core: DnodePhys,
    pub(crate) blkptrs: Vec<BlkPtrPhys>,
    pub(crate) bonus: Arc<[u8]>,
    pub(crate) spill: Option<BlkPtrPhys>,
}

impl Image {
    /// What is on disk before a new object is written for the first time.
    pub(crate) fn new_object(new: &NewObject) -> Image {
        let core = new.core();
        Image {
            exists: false,
            blkptrs: vec![BlkPtrPhys::default(); core.nblkptr.into()],
            bonus: vec![0; new.bonus_len].into(),
            core,
            spill: None,
        }
    }

    /// The dnode at the start of `bytes`, which is allocated.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Image> {
        let view = DnodeView::new(bytes)?;
        let mut core = *view.core();
        core.nblkptr = core.whole_blkptrs();
        Ok(Image {
            exists: true,
            core,
            blkptrs: view.blkptrs().to_vec(),
            bonus: view.bonus().into(),
            spill: view.spill().copied(),
        })
    }

    /// The bytes to be written: as many as the dnode has slots.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut core = self.core;
        core.bonuslen.set(0);
        let mut image = DnodeImage::new(core);
        image.blkptrs_mut().copy_from_slice(&self.blkptrs);
        image.set_spill(self.spill.as_ref());
        image.set_bonus(&self.bonus);
        image.bytes().to_vec()
    }

    pub(crate) fn type_(&self) -> ObjectType {
        ObjectType::try_from(self.core.type_).expect("checked by decode")
    }

    pub(crate) fn bonus_type(&self) -> ObjectType {
        ObjectType::try_from(self.core.bonustype).expect("checked by decode")
    }

    pub(crate) fn fields(&self) -> Fields {
        Fields {
            type_: self.type_(),
            bonus_type: self.bonus_type(),
            bonus: Arc::clone(&self.bonus),
            blksz: self.core.datablksz(),
            maxblkid: self.core.maxblkid.get(),
            has_spill: self.spill.is_some(),
            checksum: self.core.checksum,
            compress: self.core.compress,
            storage: None,
        }
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.core.used_bytes()
    }

    pub(crate) fn set_used_bytes(&mut self, used: u64) {
        self.core.flags |= DNODE_FLAG_USED_BYTES;
        self.core.used.set(used);
    }

    pub(crate) fn tree(&self, dnode: &Dnode, pending: Option<Arc<Pending>>) -> Tree {
        Tree {
            objset: dnode.objset_id(),
            object: dnode.id(),
            type_: self.type_(),
            nlevels: self.core.nlevels,
            ibs: self.core.indblkshift,
            blksz: self.core.datablksz(),
            blkptrs: self.blkptrs.clone(),
            pending,
        }
    }

    /// Dnodes in use below the meta-dnode, or blocks below any other one; corrupt pointers may have any
    /// count.
    pub(crate) fn fill(&self) -> u64 {
        let present = self.blkptrs.iter().filter(|bp| !bp.is_hole());
        present.map(BlkPtrPhys::fill).fold(0, u64::saturating_add)
    }
}

/// The core in a slot of a block of dnodes.
pub(crate) fn slot_core(block: &[u8], slot: usize) -> &DnodePhys {
    DnodePhys::view(&block[slot * 512..]).expect("slots are 512 bytes")
}
