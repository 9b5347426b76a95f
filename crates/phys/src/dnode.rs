//! Dnodes, in slots of 512 bytes, describe objects: type, block tree, bonus data.
//!
//! # What it is
//! An object is a dnode: a 64-byte core, then a tail that holds one to three block pointers, the
//! bonus bytes, and perhaps a spill pointer in the last 128 bytes. A large dnode takes up to 32
//! slots in a row; only the first has a core. Dnodes live in 16 KiB blocks of the meta-dnode.
//!
//! # On disk
//! ```text
//! 0      64                192                             slots * 512
//! +------+------------------+-----------+------------------+
//! | core | blkptr[nblkptr]  | bonus     | spill, if flagged|
//! +------+------------------+-----------+------------------+
//! ```
//! See docs/spec/dnode.md.
//!
//! # Invariants
//! 1. `type == 0`: the slot is free, or inside a large dnode; its other fields are meaningless.
//! 2. Core, pointers, bonus and spill pointer fit in the slots. [`DnodeView::new`] checks this once. OpenZFS makes one
//!    exception (a redaction list that grew out of its bonus, `dsl_bookmark_create_sync_impl_snap`): three pointers in
//!    one slot, and half of the last one below the spill pointer. No block may need it then, and it does not count.
//!
//! # Source
//! OpenZFS include/sys/dnode.h (`dnode_phys_t`, `DN_*`) @be7657e3.

use crate::layout::phys_struct;
use crate::{BlkPtrPhys, ChecksumType, CompressType, ObjectType, Phys};
use base::{Error, Result};
use std::mem::size_of;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// `DNODE_MIN_SIZE`: one slot.
pub const DNODE_MIN_SIZE: usize = 512;
/// `DNODE_MAX_SLOTS`: slots of the largest dnode.
pub const DNODE_MAX_SLOTS: usize = 32;
/// `DNODE_CORE_SIZE`: bytes of the core that every dnode begins with.
pub const DNODE_CORE_SIZE: usize = 64;
/// `DNODE_BLOCK_SIZE`: bytes in a block of dnodes.
pub const DNODE_BLOCK_SIZE: usize = 1 << 14;
/// `DNODES_PER_BLOCK`: slots in a block of dnodes.
pub const DNODES_PER_BLOCK: u64 = 32;
/// `DN_MIN_INDBLKSHIFT`: the smallest indirect block is 4 KiB.
pub const DN_MIN_INDBLKSHIFT: u8 = 12;
/// `DN_MAX_INDBLKSHIFT`: the largest indirect block is 128 KiB.
pub const DN_MAX_INDBLKSHIFT: u8 = 17;
/// `DN_MAX_LEVELS`: levels that reach 2^64 bytes with the smallest blocks, plus one.
pub(crate) const DN_MAX_LEVELS: u8 = 12;
/// `DN_MAX_NBLKPTR`: the most block pointers in a dnode; as many fit in one slot.
pub const DN_MAX_NBLKPTR: u8 = 3;
/// `SPA_BLKPTRSHIFT`: log2 of the bytes of a block pointer.
const BLKPTR_SHIFT: u8 = 7;
/// Sectors of the largest data block, which has `SPA_MAXBLOCKSIZE` bytes.
const DATABLKSZSEC_MAX: u16 = 1 << 15;
/// `DN_MAX_OBJECT`: object numbers are below this.
pub const DN_MAX_OBJECT: u64 = 1 << 48;

/// `DNODE_FLAG_USED_BYTES`: `used` counts bytes, not sectors.
pub const DNODE_FLAG_USED_BYTES: u8 = 1 << 0;
/// `DNODE_FLAG_USERUSED_ACCOUNTED`: the space is in the user and group accounts.
pub const DNODE_FLAG_USERUSED_ACCOUNTED: u8 = 1 << 1;
/// `DNODE_FLAG_SPILL_BLKPTR`: the last 128 bytes are the spill pointer.
pub const DNODE_FLAG_SPILL_BLKPTR: u8 = 1 << 2;
/// `DNODE_FLAG_USEROBJUSED_ACCOUNTED`: the object is in the user and group object counts.
pub const DNODE_FLAG_USEROBJUSED_ACCOUNTED: u8 = 1 << 3;

/// `DN_SLOTS_TO_BONUSLEN`: bonus bytes of a dnode of `slots` slots with one block pointer.
#[must_use]
pub const fn slots_to_bonuslen(slots: usize) -> usize {
    assert!(slots >= 1 && slots <= DNODE_MAX_SLOTS);
    slots
        .saturating_mul(DNODE_MIN_SIZE)
        .saturating_sub(DNODE_CORE_SIZE + 128)
}

phys_struct! {
    /// The core of `dnode_phys_t`: the 64 bytes before the block pointers.
    #[doc(alias = "dnode_phys_t")]
    pub struct DnodePhys: 64 {
        /// dn_type: [`ObjectType`]; 0: a free slot
        0 type_: u8,
        /// dn_indblkshift: log2 of the size of indirect blocks
        1 indblkshift: u8,
        /// dn_nlevels: levels of the block tree; 1: the pointers name data blocks
        2 nlevels: u8,
        /// dn_nblkptr: block pointers in the dnode, 1 to 3
        3 nblkptr: u8,
        /// dn_bonustype: [`ObjectType`] of the bonus bytes
        4 bonustype: u8,
        /// dn_checksum: [`ChecksumType`], 0: inherit
        5 checksum: u8,
        /// dn_compress: [`CompressType`], 0: inherit
        6 compress: u8,
        /// dn_flags: `DNODE_FLAG_*`
        7 flags: u8,
        /// dn_datablkszsec: size of data blocks in sectors of 512 bytes
        8 datablkszsec: U16,
        /// dn_bonuslen: bytes of bonus
        10 bonuslen: U16,
        /// dn_extra_slots: further slots that this dnode takes
        12 extra_slots: u8,
        /// dn_pad2: zero
        13 pad2: [u8; 3],
        /// dn_maxblkid: the largest block id ever written
        16 maxblkid: U64,
        /// dn_used: space in use, in bytes or (old) sectors
        24 used: U64,
        /// dn_pad3: zero
        32 pad3: [U64; 4],
    }

    /// `dnode_phys_t` of one slot: core and tail.
    pub struct DnodeSlotPhys: 512 {
        /// The core
        0 core: DnodePhys,
        /// Pointers, bonus, spill; see [`DnodeView`]
        64 tail: [u8; 448],
    }
}

impl DnodePhys {
    /// Whether an object starts in this slot.
    #[must_use]
    pub fn is_allocated(&self) -> bool {
        self.type_ != ObjectType::NONE.raw()
    }

    /// Slots of the dnode, `1..=256`.
    #[must_use]
    pub fn slots(&self) -> usize {
        usize::from(self.extra_slots).saturating_add(1)
    }

    /// Bytes of the dnode.
    #[must_use]
    pub fn size(&self) -> usize {
        self.slots().saturating_mul(DNODE_MIN_SIZE)
    }

    /// Size of data blocks in bytes.
    #[must_use]
    pub fn datablksz(&self) -> u64 {
        u64::from(self.datablkszsec.get()).saturating_mul(512)
    }

    /// Sets the size of data blocks: a multiple of 512, at most `SPA_MAXBLOCKSIZE`.
    pub fn set_datablksz(&mut self, bytes: u64) {
        let sectors = bytes.is_multiple_of(512).then(|| bytes.wrapping_shr(9));
        let sectors = sectors.and_then(|sectors| u16::try_from(sectors).ok());
        let fits = |sectors: &u16| (1..=DATABLKSZSEC_MAX).contains(sectors);
        let sectors = sectors.filter(fits);
        self.datablkszsec
            .set(sectors.unwrap_or_else(|| panic!("block size {bytes}")));
    }

    /// `DN_USED_BYTES`: space in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let used = self.used.get();
        if self.flags & DNODE_FLAG_USED_BYTES != 0 {
            used
        } else {
            used.saturating_mul(512)
        }
    }

    /// Whether the last 128 bytes are a spill pointer.
    #[must_use]
    pub fn has_spill(&self) -> bool {
        self.flags & DNODE_FLAG_SPILL_BLKPTR != 0
    }

    /// Block pointers, without one that is partly below the spill pointer.
    #[must_use]
    pub fn whole_blkptrs(&self) -> u8 {
        let room = self
            .size()
            .saturating_sub(DNODE_CORE_SIZE)
            .saturating_sub(self.spill_size());
        let fit = room.checked_div(size_of::<BlkPtrPhys>()).unwrap_or(0);
        self.nblkptr.min(u8::try_from(fit).unwrap_or(u8::MAX))
    }

    fn spill_size(&self) -> usize {
        if self.has_spill() {
            size_of::<BlkPtrPhys>()
        } else {
            0
        }
    }

    /// Where the bonus bytes begin, from the start of the dnode.
    #[must_use]
    pub fn bonus_offset(&self) -> usize {
        DNODE_CORE_SIZE.saturating_add(blkptrs_size(self.nblkptr))
    }

    /// `DN_MAX_BONUS_LEN`: the most bonus bytes that fit as the dnode is now.
    #[must_use]
    pub fn max_bonuslen(&self) -> usize {
        self.size()
            .saturating_sub(self.bonus_offset())
            .saturating_sub(self.spill_size())
    }

    /// Checks an allocated core: types known, levels and shifts in range, parts fit in the slots.
    ///
    /// # Errors
    /// `Corrupt` with the field and its value. A free slot is corrupt here.
    pub fn verify(&self) -> Result<()> {
        if !self.is_allocated() {
            return Err(Error::corrupt("dn_type 0: the slot is free"));
        }
        ObjectType::try_from(self.type_).map_err(|e| e.within("dn_type"))?;
        ObjectType::try_from(self.bonustype).map_err(|e| e.within("dn_bonustype"))?;
        ChecksumType::try_from(self.checksum).map_err(|e| e.within("dn_checksum"))?;
        CompressType::try_from(self.compress).map_err(|e| e.within("dn_compress"))?;
        in_range("dn_nlevels", self.nlevels, 1, DN_MAX_LEVELS)?;
        in_range("dn_nblkptr", self.nblkptr, 1, DN_MAX_NBLKPTR)?;
        in_range(
            "dn_indblkshift",
            self.indblkshift,
            DN_MIN_INDBLKSHIFT,
            DN_MAX_INDBLKSHIFT,
        )?;
        let bits_per_level = self.indblkshift.saturating_sub(BLKPTR_SHIFT);
        let bits =
            u32::from(bits_per_level).saturating_mul(u32::from(self.nlevels.saturating_sub(1)));
        if bits >= u64::BITS {
            let (levels, shift) = (self.nlevels, self.indblkshift);
            let what = format!("dn_nlevels {levels} with dn_indblkshift {shift}");
            return Err(Error::corrupt(what));
        }
        in_range("dn_extra_slots", self.extra_slots, 0, 31)?;
        // The block pointer that the last block is below.
        let last = self.maxblkid.get().checked_shr(bits).unwrap_or(0);
        if self.whole_blkptrs() < self.nblkptr && last >= u64::from(self.whole_blkptrs()) {
            let (count, size) = (self.nblkptr, self.size());
            let what = format!("dn_nblkptr {count} and a spill pointer in {size} bytes");
            return Err(Error::corrupt(what));
        }
        let sectors = self.datablkszsec.get();
        if !(1..=DATABLKSZSEC_MAX).contains(&sectors) {
            let what = format!("dn_datablkszsec {sectors} is not in 1..={DATABLKSZSEC_MAX}");
            return Err(Error::corrupt(what));
        }
        let bonuslen = self.bonuslen.get();
        if usize::from(bonuslen) > self.max_bonuslen() {
            let max = self.max_bonuslen();
            return Err(Error::corrupt(format!(
                "dn_bonuslen {bonuslen} is more than {max}"
            )));
        }
        let maxblkid = self.maxblkid.get();
        let blocks_max = u64::MAX.checked_div(self.datablksz());
        if blocks_max.is_none_or(|max| maxblkid >= max) {
            let what = format!("dn_maxblkid {maxblkid} is behind the end of all objects");
            return Err(Error::corrupt(what));
        }
        Ok(())
    }
}

fn blkptrs_size(nblkptr: u8) -> usize {
    usize::from(nblkptr).saturating_mul(size_of::<BlkPtrPhys>())
}

fn in_range(field: &str, value: u8, min: u8, max: u8) -> Result<()> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "{field} {value} is not in {min}..={max}"
    )))
}

/// A checked, allocated dnode in `slots * 512` bytes; access to its parts cannot fail.
#[derive(Clone, Copy)]
pub struct DnodeView<'a> {
    core: &'a DnodePhys,
    bytes: &'a [u8],
}

impl<'a> DnodeView<'a> {
    /// Checks the dnode at the start of `bytes`.
    ///
    /// # Errors
    /// `Corrupt` if [`DnodePhys::verify`] fails or `bytes` does not have all the slots.
    pub fn new(bytes: &'a [u8]) -> Result<DnodeView<'a>> {
        let core = DnodePhys::view(bytes)?;
        core.verify()?;
        let size = core.size();
        let have = bytes.len();
        let bytes = bytes.get(..size);
        let bytes =
            bytes.ok_or_else(|| Error::corrupt(format!("dnode: {have} bytes of {size}")))?;
        Ok(DnodeView { core, bytes })
    }

    /// The core.
    #[must_use]
    pub fn core(&self) -> &'a DnodePhys {
        self.core
    }

    /// All bytes of the dnode.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The block pointers, one to three.
    #[must_use]
    pub fn blkptrs(&self) -> &'a [BlkPtrPhys] {
        let tail = self.bytes.get(DNODE_CORE_SIZE..).unwrap_or_default();
        let count = usize::from(self.core.whole_blkptrs());
        let split = <[BlkPtrPhys]>::ref_from_prefix_with_elems(tail, count);
        split.map(|(blkptrs, _)| blkptrs).expect("checked by new")
    }

    /// The bonus bytes.
    #[must_use]
    pub fn bonus(&self) -> &'a [u8] {
        let tail = self
            .bytes
            .get(self.core.bonus_offset()..)
            .unwrap_or_default();
        tail.get(..usize::from(self.core.bonuslen.get()))
            .expect("checked by new")
    }

    /// The spill pointer, if there is one.
    #[must_use]
    pub fn spill(&self) -> Option<&'a BlkPtrPhys> {
        let split = BlkPtrPhys::ref_from_suffix(self.bytes);
        let (_, spill) = split.expect("a dnode is larger than a block pointer");
        self.core.has_spill().then_some(spill)
    }
}

impl std::fmt::Debug for DnodeView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DnodeView")
            .field("core", self.core)
            .field("blkptrs", &self.blkptrs())
            .field("bonus", &self.bonus())
            .field("spill", &self.spill())
            .finish()
    }
}

/// An owned, allocated dnode whose parts (core, pointers, bonus, spill) can be changed.
///
/// Bytes between the end of the bonus and the spill pointer are kept as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnodeImage {
    bytes: Vec<u8>,
}

impl DnodeImage {
    /// A dnode of `core.slots()` slots with zero pointers and bonus.
    #[must_use]
    pub fn new(core: DnodePhys) -> DnodeImage {
        let mut bytes = vec![0; core.size()];
        core.write(&mut bytes);
        let image = DnodeImage { bytes };
        let checked = image.core().verify();
        assert!(checked.is_ok(), "new dnode: {checked:?}");
        image
    }

    /// A copy of a dnode on disk.
    #[must_use]
    pub fn from_view(view: &DnodeView<'_>) -> DnodeImage {
        DnodeImage {
            bytes: view.bytes.to_vec(),
        }
    }

    /// All bytes, `slots * 512`.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The parts.
    ///
    /// # Errors
    /// `Corrupt` if the core was changed into nonsense.
    pub fn view(&self) -> Result<DnodeView<'_>> {
        DnodeView::new(&self.bytes)
    }

    /// The core.
    #[must_use]
    pub fn core(&self) -> &DnodePhys {
        DnodePhys::view(&self.bytes).expect("an image has at least one slot")
    }

    /// The core, to be changed, except for the number of slots.
    pub(crate) fn core_mut(&mut self) -> &mut DnodePhys {
        DnodePhys::view_mut(&mut self.bytes).expect("an image has at least one slot")
    }

    /// The block pointers, to be changed.
    pub fn blkptrs_mut(&mut self) -> &mut [BlkPtrPhys] {
        let count = usize::from(self.core().whole_blkptrs());
        let tail = self.bytes.get_mut(DNODE_CORE_SIZE..).unwrap_or_default();
        let split = <[BlkPtrPhys]>::mut_from_prefix_with_elems(tail, count);
        split
            .map(|(blkptrs, _)| blkptrs)
            .expect("nblkptr fits the dnode")
    }

    /// Replaces the bonus bytes and their length; old bytes beyond the new end become zero.
    pub fn set_bonus(&mut self, bonus: &[u8]) {
        let max = self.core().max_bonuslen();
        assert!(
            bonus.len() <= max,
            "bonus of {} bytes, room for {max}",
            bonus.len()
        );
        let offset = self.core().bonus_offset();
        let room = self
            .bytes
            .get_mut(offset..)
            .and_then(|tail| tail.get_mut(..max));
        let (used, rest) = room.unwrap_or_default().split_at_mut(bonus.len());
        used.copy_from_slice(bonus);
        rest.zero();
        self.core_mut().bonuslen.set(bonus.len() as u16);
    }

    /// Sets the spill pointer and its flag, or clears both.
    pub fn set_spill(&mut self, spill: Option<&BlkPtrPhys>) {
        let flags = self.core().flags;
        self.core_mut().flags = match spill {
            Some(_) => flags | DNODE_FLAG_SPILL_BLKPTR,
            None => flags & !DNODE_FLAG_SPILL_BLKPTR,
        };
        if spill.is_none() && flags & DNODE_FLAG_SPILL_BLKPTR == 0 {
            return;
        }
        let fits = usize::from(self.core().bonuslen.get()) <= self.core().max_bonuslen();
        assert!(fits, "the spill pointer would overlap the bonus");
        let blkptr = spill.copied().unwrap_or_default();
        let written = blkptr.write_to_suffix(&mut self.bytes);
        assert!(written.is_ok(), "a dnode is larger than a block pointer");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn core(slots: usize) -> DnodePhys {
        let mut core = DnodePhys {
            type_: 19,
            bonustype: 44,
            indblkshift: 17,
            ..Default::default()
        };
        core.nlevels = 1;
        core.nblkptr = 1;
        core.extra_slots = slots as u8 - 1;
        core.set_datablksz(131_072);
        core
    }

    #[test]
    fn parts_go_in_and_come_out() {
        for slots in [1, 2, 32] {
            let mut image = DnodeImage::new(core(slots));
            let mut bp = BlkPtrPhys::default();
            bp.set_fill(7);
            image.blkptrs_mut()[0] = bp;
            image.set_bonus(&vec![9; slots_to_bonuslen(slots) - 128]);
            bp.set_fill(8);
            image.set_spill(Some(&bp));
            let view = image.view().unwrap();
            assert_eq!(view.blkptrs()[0].fill(), 7);
            assert_eq!(view.spill().unwrap().fill(), 8);
            assert_eq!(view.bonus().len(), slots * 512 - 320);
            assert_eq!(view.core().max_bonuslen(), view.bonus().len());
            image.set_spill(None);
            assert!(image.view().unwrap().spill().is_none());
            assert!(image.bytes()[slots * 512 - 128..].iter().all(|&b| b == 0));
        }
    }

    #[test]
    fn a_pointer_below_the_spill_pointer_does_not_count() {
        let mut core = core(1);
        (core.nblkptr, core.nlevels) = (3, 2);
        core.maxblkid.set(2047);
        let mut image = DnodeImage::new(core);
        let mut bp = BlkPtrPhys::default();
        bp.set_fill(8);
        image.set_spill(Some(&bp));
        assert_eq!(image.blkptrs_mut().len(), 2);
        let view = image.view().unwrap();
        assert_eq!((view.blkptrs().len(), view.core().nblkptr), (2, 3));
        assert_eq!(view.spill().unwrap().fill(), 8);
        assert!(view.bonus().is_empty());
        image.core_mut().maxblkid.set(2048);
        assert!(image.view().is_err());
    }

    #[test]
    fn bad_cores_name_the_field() {
        let check = |change: fn(&mut DnodePhys), expect: &str| {
            let mut bad = core(1);
            change(&mut bad);
            assert_eq!(bad.verify().unwrap_err().context(), expect);
        };
        check(|d| d.type_ = 0, "dn_type 0: the slot is free");
        check(|d| d.type_ = 60, "dn_type: object type 60 is not known");
        check(|d| d.nlevels = 13, "dn_nlevels 13 is not in 1..=12");
        check(|d| d.nlevels = 12, "dn_nlevels 12 with dn_indblkshift 17");
        check(|d| d.nblkptr = 4, "dn_nblkptr 4 is not in 1..=3");
        check(
            |d| {
                (d.nblkptr, d.flags) = (3, DNODE_FLAG_SPILL_BLKPTR);
                d.maxblkid.set(2);
            },
            "dn_nblkptr 3 and a spill pointer in 512 bytes",
        );
        check(|d| d.bonuslen.set(321), "dn_bonuslen 321 is more than 320");
        let range = "is not in 1..=32768";
        check(
            |d| d.datablkszsec.set(0),
            &format!("dn_datablkszsec 0 {range}"),
        );
        check(
            |d| d.datablkszsec.set(32769),
            &format!("dn_datablkszsec 32769 {range}"),
        );
    }

    proptest! {
        #[test]
        fn prop_any_bytes_are_a_dnode_or_an_error(mut bytes in prop::collection::vec(any::<u8>(), 0..2048), sane: bool) {
            if sane && bytes.len() >= 64 {
                core(1 + bytes.len() % 4).write(&mut bytes);
            }
            if let Ok(view) = DnodeView::new(&bytes) {
                let _ = (view.blkptrs(), view.bonus(), view.spill());
                let image = DnodeImage::from_view(&view);
                prop_assert_eq!(image.bytes(), view.bytes());
            }
        }
    }
}
