//! Block pointers: where a block is, how it is encoded, when it was born, and its checksum.
//!
//! # What it is
//! Every block of a pool except the labels is found through a [`BlkPtrPhys`] that is stored in
//! another block. It names up to three copies ([`DvaPhys`]), sizes, encodings, birth times and
//! the checksum. Three variants share the 128 bytes: a *hole* (first DVA zero), an ordinary
//! pointer, and an *embedded* pointer whose bytes are the (compressed) data.
//!
//! # On disk
//! ```text
//! 0    48  dva[3]          hole: dva[0] is zero
//! 48    8  prop            bits, lowest first: lsize 16, psize 16, compress 7, embedded 1,
//!                          checksum 8, type 8, level 5, crypt 1, dedup 1, byte order 1
//! 56    8  prop2           bit 63: rewritten; the rest is zero
//! 64    8  pad             zero
//! 72   16  birth_word[2]   physical (0: same as logical), logical
//! 88    8  fill            allocated blocks (or dnodes) below; encrypted: low 32 bits
//! 96   32  cksum[4]
//! ```
//! An embedded pointer keeps only `prop` and the logical birth; the other 112 bytes, in order,
//! are the payload. There lsize takes 25 bits and psize 7, both in bytes less one.
//! See docs/spec/blkptr.md.
//!
//! # Invariants
//! 1. A hole has `dva[0]` zero and `embedded` clear; it may have a birth time (`hole_birth`).
//! 2. Sizes are multiples of 512, stored in units of 512 bytes less one (asize: not less one);
//!    offsets do not count the 4 MiB at the start of the vdev.
//! 3. Only little-endian pointers (byte order bit set) are written.
//!
//! # Source
//! OpenZFS include/sys/spa.h (`blkptr_t`, `BP_*`, `BPE_*`, `DVA_*`), module/zfs/blkptr.c @be7657e3.

mod crypt;

pub use crypt::{CryptParams, IV_LEN, MAC_LEN, SALT_LEN};

use crate::Phys;
use crate::bits::Field;
use crate::enums::{ChecksumType, CompressType, ObjectType};
use base::{Error, Result, Txg, VdevId};
use std::fmt;
use std::mem::{offset_of, size_of};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `BPE_PAYLOAD_SIZE`: the most bytes that an embedded pointer can hold.
pub(crate) const EMBEDDED_PAYLOAD_MAX: usize = 112;
/// `BP_EMBEDDED_TYPE_DATA`: the payload is the block.
pub const EMBEDDED_TYPE_DATA: u8 = 0;
/// `BP_EMBEDDED_TYPE_REDACTED`: the block was left out of a redacted send.
pub(crate) const EMBEDDED_TYPE_REDACTED: u8 = 2;
/// `SPA_BLKPTRSHIFT`: log2 of the size of a block pointer.
pub const SPA_BLKPTRSHIFT: u32 = 7;

const DVA_ASIZE: Field = Field::new(0, 24);
const DVA_VDEV: Field = Field::new(32, 24);
const DVA_OFFSET: Field = Field::new(0, 63);
const DVA_GANG: Field = Field::new(63, 1);

const LSIZE: Field = Field::new(0, 16);
const PSIZE: Field = Field::new(16, 16);
const EMBEDDED_LSIZE: Field = Field::new(0, 25);
const EMBEDDED_PSIZE: Field = Field::new(25, 7);
const COMPRESS: Field = Field::new(32, 7);
const EMBEDDED: Field = Field::new(39, 1);
const CHECKSUM: Field = Field::new(40, 8);
const EMBEDDED_TYPE: Field = Field::new(40, 8);
const TYPE: Field = Field::new(48, 8);
const LEVEL: Field = Field::new(56, 5);
const CRYPT: Field = Field::new(61, 1);
const DEDUP: Field = Field::new(62, 1);
const BYTE_ORDER: Field = Field::new(63, 1);
const REWRITE: Field = Field::new(63, 1);
const FILL_ENCRYPTED: Field = Field::new(0, 32);
const IV2: Field = Field::new(32, 32);

/// `dva_t`: one copy of a block: its top-level vdev, offset and allocated size. 16 bytes.
#[derive(
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
)]
#[repr(C)]
#[doc(alias = "dva_t")]
pub struct DvaPhys {
    /// dva_word: asize 24 bits, 8 reserved (formerly grid), vdev 24; offset 63 bits, gang 1
    word: [U64; 2],
}

const _: () = assert!(size_of::<DvaPhys>() == 16);

impl Phys for DvaPhys {
    const NAME: &'static str = "DvaPhys";
}

impl Phys for BlkPtrPhys {
    const NAME: &'static str = "BlkPtrPhys";
}

impl DvaPhys {
    /// A DVA. `offset_bytes` and `asize_bytes` are multiples of 512; the offset does not count
    /// the 4 MiB of labels and boot area in front of the first metaslab.
    #[must_use]
    pub fn new(vdev: VdevId, offset_bytes: u64, asize_bytes: u64, gang: bool) -> DvaPhys {
        let word0 = DVA_VDEV.set(DVA_ASIZE.set_sectors(0, asize_bytes, 0), vdev.0);
        let word1 = DVA_GANG.set(DVA_OFFSET.set_sectors(0, offset_bytes, 0), u64::from(gang));
        DvaPhys::from_words([word0, word1])
    }

    /// The DVA with these words.
    #[must_use]
    pub fn from_words(words: [u64; 2]) -> DvaPhys {
        DvaPhys {
            word: words.map(U64::new),
        }
    }

    /// The two raw words, as a key that identifies the place.
    #[must_use]
    pub fn words(&self) -> [u64; 2] {
        self.word.map(U64::get)
    }

    fn word0(&self) -> u64 {
        let [word0, _] = self.words();
        word0
    }

    fn word1(&self) -> u64 {
        let [_, word1] = self.words();
        word1
    }

    /// `DVA_GET_VDEV`: the top-level vdev.
    #[must_use]
    pub fn vdev(&self) -> VdevId {
        VdevId(DVA_VDEV.get(self.word0()))
    }

    /// `DVA_GET_OFFSET`: bytes from the first allocatable byte of the vdev.
    #[must_use]
    pub fn offset(&self) -> u64 {
        DVA_OFFSET.get_sectors(self.word1(), 0)
    }

    /// `DVA_GET_ASIZE`: bytes allocated, including parity and, for a gang block, its members.
    #[must_use]
    pub fn asize(&self) -> u64 {
        DVA_ASIZE.get_sectors(self.word0(), 0)
    }

    /// `DVA_GET_GANG`: whether a gang header is stored there.
    #[must_use]
    pub fn is_gang(&self) -> bool {
        DVA_GANG.get(self.word1()) != 0
    }

    /// `DVA_IS_EMPTY`: both words zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words() == [0, 0]
    }

    /// `DVA_IS_VALID`: whether the allocated size is not 0.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.asize() != 0
    }
}

/// `<vdev:offset:asize>` in hex, as `zdb` prints it.
impl fmt::Display for DvaPhys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "<{}:{:x}:{:x}>",
            self.vdev(),
            self.offset(),
            self.asize()
        )
    }
}

impl fmt::Debug for DvaPhys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}{}", if self.is_gang() { "G" } else { "" })
    }
}

/// Identifies a stored block in its pool: the first DVA and the physical birth.
pub type BlkIdentity = ([u64; 2], Txg);

/// `blkptr_t`: where a block is, how it is encoded, and its checksum. 128 bytes.
///
/// The default value is a hole that was never written (all zero).
#[derive(
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
)]
#[repr(C)]
#[doc(alias = "blkptr_t")]
pub struct BlkPtrPhys {
    /// blk_dva: up to three copies
    pub dva: [DvaPhys; 3],
    /// blk_prop: sizes, encodings, type, level, flags
    prop: U64,
    /// blk_prop2: bit 63 the rewrite flag
    prop2: U64,
    /// blk_pad: zero
    pad: U64,
    /// blk_birth_word: physical (0: same as logical), logical
    birth_word: [U64; 2],
    /// blk_fill: allocated blocks or dnodes below this pointer
    fill: U64,
    /// blk_cksum: checksum of the physical bytes
    pub cksum: [U64; 4],
}

const _: () = {
    assert!(size_of::<BlkPtrPhys>() == 128);
    assert!(offset_of!(BlkPtrPhys, prop) == 48);
    assert!(offset_of!(BlkPtrPhys, prop2) == 56);
    assert!(offset_of!(BlkPtrPhys, birth_word) == 72);
    assert!(offset_of!(BlkPtrPhys, fill) == 88);
    assert!(offset_of!(BlkPtrPhys, cksum) == 96);
};

/// Kinds of pointers.
impl BlkPtrPhys {
    /// `BP_IS_HOLE`: reads as zeros, nothing is allocated.
    #[must_use]
    pub fn is_hole(&self) -> bool {
        let [dva0, _, _] = &self.dva;
        !self.is_embedded() && dva0.is_empty()
    }

    /// `BP_IS_EMBEDDED`: the data is in the pointer.
    #[must_use]
    pub fn is_embedded(&self) -> bool {
        EMBEDDED.get(self.prop.get()) != 0
    }

    /// `BP_IS_REDACTED`: the data was left out of a redacted receive.
    #[must_use]
    pub fn is_redacted(&self) -> bool {
        self.is_embedded() && self.embedded_type() == EMBEDDED_TYPE_REDACTED
    }

    /// `BP_IS_GANG`: the first copy is a gang header.
    #[must_use]
    pub fn is_gang(&self) -> bool {
        let [dva0, _, _] = &self.dva;
        !self.is_embedded() && dva0.is_gang()
    }

    /// `BP_GET_DEDUP`: the block is counted in a dedup table. An embedded pointer has no block to count,
    /// whatever the bit says.
    #[must_use]
    pub fn is_dedup(&self) -> bool {
        !self.is_embedded() && DEDUP.get(self.prop.get()) != 0
    }

    /// `BP_USES_CRYPT`: encrypted, authenticated, or an indirect block with a sum of MACs.
    #[must_use]
    pub fn uses_crypt(&self) -> bool {
        CRYPT.get(self.prop.get()) != 0
    }

    fn type_is_encrypted(&self) -> bool {
        ObjectType::try_from(self.object_type()).is_ok_and(ObjectType::is_encrypted)
    }

    /// `BP_IS_ENCRYPTED`: a level-0 block whose bytes are encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.uses_crypt() && self.level() == 0 && self.type_is_encrypted()
    }

    /// `BP_IS_AUTHENTICATED`: a level-0 block that is not encrypted but has a MAC.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.uses_crypt() && self.level() == 0 && !self.type_is_encrypted()
    }

    /// `BP_GET_BYTEORDER`: whether the block was written by a little-endian host.
    #[must_use]
    pub fn is_little_endian(&self) -> bool {
        BYTE_ORDER.get(self.prop.get()) != 0
    }

    /// `BP_GET_REWRITE`: whether the block was written again, at its physical birth, without a change of its contents.
    #[must_use]
    pub fn is_rewrite(&self) -> bool {
        !self.is_embedded() && REWRITE.get(self.prop2.get()) != 0
    }

    /// `BP_IS_METADATA`: above level 0, or of a metadata type.
    #[must_use]
    pub fn is_metadata(&self) -> bool {
        self.level() > 0
            || ObjectType::try_from(self.object_type()).is_ok_and(ObjectType::is_metadata)
    }
}

/// Fields.
impl BlkPtrPhys {
    /// `BP_GET_LSIZE`: bytes before compression.
    #[must_use]
    pub fn lsize(&self) -> u64 {
        if !self.is_embedded() {
            LSIZE.get_sectors(self.prop.get(), 1)
        } else if self.embedded_type() == EMBEDDED_TYPE_DATA {
            self.embedded_lsize()
        } else {
            0
        }
    }

    /// `BP_GET_PSIZE`: bytes after compression; 0 if embedded (see [`Self::embedded_psize`]).
    #[must_use]
    pub fn psize(&self) -> u64 {
        if self.is_embedded() {
            0
        } else {
            PSIZE.get_sectors(self.prop.get(), 1)
        }
    }

    /// `BP_GET_ASIZE`: bytes allocated by all copies; 0 if embedded or a hole.
    #[must_use]
    pub fn asize(&self) -> u64 {
        self.dvas().map(|dva| dva.asize()).sum()
    }

    /// `BP_GET_LEVEL`: 0 for data, higher for indirect blocks.
    #[must_use]
    pub fn level(&self) -> u8 {
        byte(LEVEL.get(self.prop.get()))
    }

    /// `BP_GET_TYPE`, raw; see [`ObjectType`].
    #[must_use]
    pub fn object_type(&self) -> u8 {
        byte(TYPE.get(self.prop.get()))
    }

    /// `BP_GET_COMPRESS`, raw; see [`CompressType`].
    #[must_use]
    pub fn compress(&self) -> u8 {
        byte(COMPRESS.get(self.prop.get()))
    }

    /// `BP_GET_CHECKSUM`, raw; see [`ChecksumType`]. Embedded: off.
    #[must_use]
    pub fn checksum(&self) -> u8 {
        if self.is_embedded() {
            ChecksumType::Off.raw()
        } else {
            byte(CHECKSUM.get(self.prop.get()))
        }
    }

    /// `BP_GET_LOGICAL_BIRTH`: when the block became part of its dataset, or of what it holds a copy of
    /// ([`is_rewrite`](Self::is_rewrite)).
    #[must_use]
    pub fn birth(&self) -> Txg {
        let [_, logical] = self.birth_word;
        Txg(logical.get())
    }

    /// `BP_GET_PHYSICAL_BIRTH`: when the bytes were written; earlier for dedup and clones.
    /// 0 if embedded.
    #[must_use]
    pub fn physical_birth(&self) -> Txg {
        let [physical, logical] = self.birth_word.map(U64::get);
        match physical {
            _ if self.is_embedded() => Txg(0),
            0 => Txg(logical),
            _ => Txg(physical),
        }
    }

    /// `BP_GET_BIRTH`: when the space was allocated, for accounting.
    #[must_use]
    pub fn allocation_birth(&self) -> Txg {
        if self.is_rewrite() {
            self.physical_birth()
        } else {
            self.birth()
        }
    }

    /// `BP_GET_FILL`: allocated level-0 blocks below (dnodes, for the meta-dnode); embedded: 1.
    #[must_use]
    pub fn fill(&self) -> u64 {
        if self.is_embedded() {
            1
        } else if self.is_encrypted() {
            FILL_ENCRYPTED.get(self.fill.get())
        } else {
            self.fill.get()
        }
    }

    /// How many copies the pointer has room for.
    #[must_use]
    pub fn dva_slots(&self) -> usize {
        if self.is_embedded() {
            0
        } else if self.is_encrypted() {
            2
        } else {
            3
        }
    }

    /// The copies: slots with something allocated (`DVA_IS_VALID`), in order.
    pub fn dvas(&self) -> impl Iterator<Item = DvaPhys> + use<'_> {
        self.dva
            .iter()
            .take(self.dva_slots())
            .copied()
            .filter(DvaPhys::is_valid)
    }

    /// `BP_GET_NDVAS`: the number of copies.
    #[must_use]
    pub fn ndvas(&self) -> usize {
        self.dvas().count()
    }

    /// The checksum.
    #[must_use]
    pub fn cksum_words(&self) -> [u64; 4] {
        self.cksum.map(U64::get)
    }

    /// The first DVA and the physical birth: a key for caches. Not for holes or embedded data.
    #[must_use]
    #[doc(alias = "BP_IDENTITY")]
    pub fn identity(&self) -> BlkIdentity {
        assert!(!self.is_embedded(), "an embedded pointer names no block");
        let [dva0, _, _] = &self.dva;
        (dva0.words(), self.physical_birth())
    }
}

/// Embedded data.
impl BlkPtrPhys {
    /// `BPE_GET_ETYPE`: `EMBEDDED_TYPE_*`; meaningless if not embedded.
    #[must_use]
    pub fn embedded_type(&self) -> u8 {
        byte(EMBEDDED_TYPE.get(self.prop.get()))
    }

    /// `BPE_GET_LSIZE`: bytes after decompression; meaningless if not embedded.
    #[must_use]
    pub fn embedded_lsize(&self) -> u64 {
        EMBEDDED_LSIZE.get(self.prop.get()).saturating_add(1)
    }

    /// `BPE_GET_PSIZE`: bytes of payload, `1..=128`; meaningless if not embedded.
    #[must_use]
    pub fn embedded_psize(&self) -> u64 {
        EMBEDDED_PSIZE.get(self.prop.get()).saturating_add(1)
    }

    /// The payload of an embedded data pointer: `embedded_psize` bytes, still compressed.
    ///
    /// # Errors
    /// `Corrupt` if the pointer is not embedded data or claims more than 112 bytes.
    #[doc(alias = "decode_embedded_bp_compressed")]
    pub fn embedded_payload(&self) -> Result<Vec<u8>> {
        if !self.is_embedded() {
            return Err(Error::corrupt("block pointer is not embedded"));
        }
        let etype = self.embedded_type();
        if etype != EMBEDDED_TYPE_DATA {
            return Err(Error::corrupt(format!(
                "embedded block pointer has type {etype}"
            )));
        }
        let psize = self.embedded_psize();
        let mut payload = Vec::with_capacity(EMBEDDED_PAYLOAD_MAX);
        for part in self.payload_parts() {
            payload.extend_from_slice(part);
        }
        if psize > payload.len() as u64 {
            return Err(Error::corrupt(format!(
                "embedded block pointer has psize {psize}"
            )));
        }
        payload.truncate(psize as usize);
        Ok(payload)
    }

    /// The runs of payload bytes: all but `prop` and the logical birth.
    fn payload_parts(&self) -> [&[u8]; 3] {
        let bytes = self.as_bytes();
        [0..48, 56..80, 88..128].map(|range| bytes.get(range).unwrap_or_default())
    }

    /// An embedded pointer that holds `payload`, `1..=112` bytes that decompress to `lsize` bytes.
    #[must_use]
    #[doc(alias = "encode_embedded_bp_compressed")]
    pub fn new_embedded(
        etype: u8,
        payload: &[u8],
        lsize: u64,
        compress: u8,
        type_: u8,
        level: u8,
        birth: Txg,
    ) -> BlkPtrPhys {
        let psize = payload.len();
        assert!(
            (1..=EMBEDDED_PAYLOAD_MAX).contains(&psize),
            "embedded payload of {psize} bytes"
        );
        assert!(
            lsize >= 1 && lsize <= EMBEDDED_LSIZE.max(),
            "embedded lsize {lsize}"
        );
        let mut image = [0u8; 128];
        let slots = (0..48).chain(56..80).chain(88..128);
        for (slot, &value) in slots.zip(payload) {
            if let Some(byte) = image.get_mut(slot) {
                *byte = value;
            }
        }
        let mut bp: BlkPtrPhys = zerocopy::transmute!(image);
        let mut prop = EMBEDDED.set(0, 1);
        prop = EMBEDDED_LSIZE.set(prop, lsize.saturating_sub(1));
        prop = EMBEDDED_PSIZE.set(prop, (psize as u64).saturating_sub(1));
        prop = COMPRESS.set(prop, u64::from(compress));
        prop = EMBEDDED_TYPE.set(prop, u64::from(etype));
        prop = TYPE.set(prop, u64::from(type_));
        prop = LEVEL.set(prop, u64::from(level));
        prop = BYTE_ORDER.set(prop, 1);
        bp.prop.set(prop);
        let [physical, _] = bp.birth_word;
        bp.birth_word = [physical, U64::new(birth.0)];
        bp
    }
}

/// Construction and change. The setters assert that the pointer is not embedded.
impl BlkPtrPhys {
    /// A hole that records when it was punched (feature `hole_birth`).
    #[must_use]
    pub fn new_hole(type_: u8, level: u8, lsize: u64, birth: Txg) -> BlkPtrPhys {
        let mut bp = BlkPtrPhys::default();
        bp.set_lsize(lsize);
        bp.set_type(type_);
        bp.set_level(level);
        bp.set_birth(birth, birth);
        bp
    }

    #[track_caller]
    fn assert_not_embedded(&self) {
        assert!(!self.is_embedded(), "field of an embedded pointer");
    }

    fn set_prop(&mut self, field: Field, value: u64) {
        self.prop.set(field.set(self.prop.get(), value));
    }

    /// `BP_SET_LSIZE`: bytes, a multiple of 512, at most 32 MiB.
    pub fn set_lsize(&mut self, bytes: u64) {
        self.assert_not_embedded();
        self.prop.set(LSIZE.set_sectors(self.prop.get(), bytes, 1));
    }

    /// `BP_SET_PSIZE`: bytes, a multiple of 512, at most 32 MiB.
    pub fn set_psize(&mut self, bytes: u64) {
        self.assert_not_embedded();
        self.prop.set(PSIZE.set_sectors(self.prop.get(), bytes, 1));
    }

    /// `BP_SET_LEVEL`.
    pub fn set_level(&mut self, level: u8) {
        self.set_prop(LEVEL, u64::from(level));
    }

    /// `BP_SET_TYPE`.
    pub fn set_type(&mut self, type_: u8) {
        self.set_prop(TYPE, u64::from(type_));
    }

    /// `BP_SET_COMPRESS`.
    pub fn set_compress(&mut self, compress: u8) {
        self.set_prop(COMPRESS, u64::from(compress));
    }

    /// `BP_SET_CHECKSUM`.
    pub fn set_checksum(&mut self, checksum: u8) {
        self.assert_not_embedded();
        self.set_prop(CHECKSUM, u64::from(checksum));
    }

    /// `BP_SET_DEDUP`.
    pub fn set_dedup(&mut self, dedup: bool) {
        self.set_prop(DEDUP, u64::from(dedup));
    }

    /// `BP_SET_CRYPT`.
    pub fn set_crypt(&mut self, crypt: bool) {
        self.set_prop(CRYPT, u64::from(crypt));
    }

    /// `BP_SET_BYTEORDER`: marks the block as written by a little-endian host.
    pub fn set_little_endian(&mut self) {
        self.set_prop(BYTE_ORDER, 1);
    }

    /// `BP_SET_BIRTH`: an equal physical birth is stored as zero.
    pub fn set_birth(&mut self, logical: Txg, physical: Txg) {
        self.assert_not_embedded();
        let stored = if physical == logical { 0 } else { physical.0 };
        self.birth_word = [U64::new(stored), U64::new(logical.0)];
    }

    /// Marks the block as one whose contents are as old as `logical`, while its space is as old as it was until now.
    #[doc(alias = "BP_SET_REWRITE")]
    pub fn set_rewrite(&mut self, logical: Txg) {
        let physical = self.physical_birth();
        assert!(
            logical <= physical,
            "contents of {logical} in a block of {physical}"
        );
        self.set_birth(logical, physical);
        self.prop2.set(REWRITE.set(self.prop2.get(), 1));
    }

    /// The pointer of a clone that is made in `txg`: born then, though its bytes are older.
    #[must_use]
    #[doc(alias = "BP_SET_LOGICAL_BIRTH")]
    pub fn cloned_in(&self, txg: Txg) -> BlkPtrPhys {
        let mut clone = *self;
        if self.is_embedded() {
            let [_, logical] = &mut clone.birth_word;
            logical.set(txg.0);
        } else {
            clone.set_birth(txg, self.physical_birth());
            clone.prop2.set(REWRITE.set(self.prop2.get(), 0));
        }
        clone
    }

    /// `BP_SET_FILL`.
    pub fn set_fill(&mut self, fill: u64) {
        self.assert_not_embedded();
        assert!(!self.is_encrypted(), "encrypted pointers are not written");
        self.fill.set(fill);
    }

    /// Sets the checksum.
    pub fn set_cksum(&mut self, words: [u64; 4]) {
        self.assert_not_embedded();
        self.cksum = words.map(U64::new);
    }

    /// Sets copy `index`, `0..3`.
    pub fn set_dva(&mut self, index: usize, dva: DvaPhys) {
        self.assert_not_embedded();
        let slot = self.dva.get_mut(index);
        *slot.unwrap_or_else(|| panic!("dva {index} of 3")) = dva;
    }
}

/// The value of a field of at most 8 bits.
fn byte(value: u64) -> u8 {
    (value & 0xff) as u8
}

/// The one-line form of `zdb`.
impl fmt::Display for BlkPtrPhys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = self.level();
        let type_ = name_of::<ObjectType>(self.object_type());
        let lsize = self.lsize();
        let birth = self.birth();
        if self.is_hole() {
            return write!(f, "HOLE [L{level} {type_}] size={lsize:x}L birth={birth}L");
        }
        let compress = name_of::<CompressType>(self.compress());
        if self.is_embedded() {
            return write!(
                f,
                "EMBEDDED [L{level} {type_}] et={} {compress} size={:x}L/{:x}P birth={birth}L",
                self.embedded_type(),
                self.embedded_lsize(),
                self.embedded_psize(),
            );
        }
        for (i, dva) in self.dva.iter().enumerate().take(self.ndvas()) {
            write!(f, "DVA[{i}]={dva} ")?;
        }
        self.fmt_crypt(f)?;
        write!(
            f,
            "[L{level} {type_}] {} {compress} {} {} {} {} {} size={lsize:x}L/{:x}P \
             birth={birth}L/{}P fill={} cksum=",
            name_of::<ChecksumType>(self.checksum()),
            self.crypt_name(),
            if self.is_little_endian() { "LE" } else { "BE" },
            if self.is_gang() { "gang" } else { "contiguous" },
            if self.is_dedup() { "dedup" } else { "unique" },
            ["zero", "single", "double", "triple"]
                .get(self.ndvas())
                .unwrap_or(&"?"),
            self.psize(),
            self.physical_birth(),
            self.fill(),
        )?;
        let [a, b, c, d] = self.cksum_words();
        write!(f, "{a:016x}:{b:016x}:{c:016x}:{d:016x}")
    }
}

impl BlkPtrPhys {
    fn crypt_name(&self) -> &'static str {
        if self.is_encrypted() {
            "encrypted"
        } else if self.is_authenticated() {
            "authenticated"
        } else if self.uses_crypt() {
            "indirect-MAC"
        } else {
            "unencrypted"
        }
    }

    fn fmt_crypt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_encrypted() {
            return Ok(());
        }
        let [_, _, dva2] = &self.dva;
        let [salt, iv1] = dva2.words();
        write!(f, "salt={salt:x} iv={iv1:x}:{:x} ", self.iv2())
    }
}

/// The name of a raw number, or the number.
fn name_of<T: TryFrom<u8> + fmt::Display>(raw: u8) -> String {
    T::try_from(raw).map_or_else(|_| raw.to_string(), |value| value.to_string())
}

impl fmt::Debug for BlkPtrPhys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
