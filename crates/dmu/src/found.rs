//! Roots of objsets, and blocks of dnodes, that no pointer leads to: how they are told from other bytes.
//!
//! # What it is
//! [`sketch`] says of the first bytes of a sector whether such a block may begin there, and how long it is then; it
//! takes a few comparisons, since it is asked of every sector of a pool. [`Sketch::objset`] and [`Sketch::dnodes`]
//! look at the whole block. What passes is still a guess: a file may have such bytes in it. It is to be believed only
//! as far as the blocks verify that it points to.
//!
//! # On disk
//! Metadata is compressed with LZ4: a length of 4 bytes, big-endian, then a sequence of literals, whose count is in
//! the upper half of the first byte. A dnode begins with its type, the sizes of its tree, and how many pointers it
//! has: four bytes that do not repeat, so they are among the first literals. A block of dnodes may also begin with a
//! free slot, 512 zeros: a literal or some, then a match at distance 1 that is longer than its four bits and one more
//! byte can say.
//!
//! What does not become smaller by a whole sector is stored as it is: mostly so the root of an objset where sectors
//! have 4 KiB. One of the shorter forms has zeros behind it there, which is what its longer form would have.
//!
//! # What is not found
//! Blocks that are compressed with LZJB, which pools from before LZ4 have.
//!
//! # Source
//! OpenZFS include/sys/dmu_objset.h, include/sys/dnode.h; the LZ4 block format.

use base::{Error, Result, SPA_MINBLOCKSIZE, Txg, align_up};
use phys::dnode::{
    DN_MAX_INDBLKSHIFT, DN_MAX_NBLKPTR, DN_MIN_INDBLKSHIFT, DNODE_BLOCK_SIZE, DNODE_MIN_SIZE,
    DnodePhys, DnodeView,
};
use phys::objset::{OBJSET_PHYS_SIZE_V1, OBJSET_PHYS_SIZE_V2, OBJSET_PHYS_SIZE_V3, ObjsetPhys};
use phys::{BlkPtrPhys, CompressType, ObjectType, ObjsetType, Phys};
use zerocopy::IntoBytes;

/// Bytes of the length before an LZ4 block.
const PREFIX: usize = 4;
/// Where the padding at the end of the longest form of an objset begins.
const PAD1: usize = 2560;
/// Levels of a tree, at most.
const LEVELS_MAX: u8 = 12;

/// What a block may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likeness {
    /// The root block of an objset.
    Objset,
    /// A block of dnodes.
    Dnodes,
}

/// A block that may begin somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sketch {
    /// What it may be.
    pub likeness: Likeness,
    /// Bytes that are stored, a multiple of 512.
    pub psize: u32,
    /// Whether they are compressed.
    pub is_compressed: bool,
}

/// What may begin with these bytes, a sector or more.
#[must_use]
pub fn sketch(bytes: &[u8]) -> Option<Sketch> {
    let (prefix, stream) = bytes.split_first_chunk::<PREFIX>()?;
    let len = u32::from_be_bytes(*prefix);
    if (1..DNODE_BLOCK_SIZE as u32).contains(&len) {
        let likeness = likeness_of_stream(stream)?;
        let psize = align_up(u64::from(len) + PREFIX as u64, SPA_MINBLOCKSIZE);
        let lsize = match likeness {
            Likeness::Objset => OBJSET_PHYS_SIZE_V3,
            Likeness::Dnodes => DNODE_BLOCK_SIZE,
        };
        return (psize < lsize as u64).then_some(Sketch {
            likeness,
            psize: psize as u32,
            is_compressed: true,
        });
    }
    let core = begins_as_dnode(bytes).then(|| DnodePhys::view(bytes).ok())??;
    core.verify().ok()?;
    let (likeness, lsize) = match core.type_ == ObjectType::DNODE.raw() {
        true => (Likeness::Objset, OBJSET_PHYS_SIZE_V3),
        false => (Likeness::Dnodes, DNODE_BLOCK_SIZE),
    };
    Some(Sketch {
        likeness,
        psize: lsize as u32,
        is_compressed: false,
    })
}

/// What an LZ4 block may be.
fn likeness_of_stream(stream: &[u8]) -> Option<Likeness> {
    let (token, rest) = stream.split_first()?;
    let literals = usize::from(token >> 4);
    if literals >= PREFIX && begins_as_dnode(rest) {
        let is_objset = rest.first() == Some(&ObjectType::DNODE.raw());
        return Some(if is_objset {
            Likeness::Objset
        } else {
            Likeness::Dnodes
        });
    }
    let long_match = token & 0xf == 0xf && (1..0xf).contains(&literals);
    let (zeros, rest) = rest.split_at_checked(literals)?;
    let is_free = long_match && zeros.iter().all(|byte| *byte == 0);
    (is_free && rest.starts_with(&[1, 0, 0xff])).then_some(Likeness::Dnodes)
}

/// Whether these may be the first four bytes of a dnode.
fn begins_as_dnode(bytes: &[u8]) -> bool {
    let Some(&[type_, indblkshift, nlevels, nblkptr]) = bytes.first_chunk() else {
        return false;
    };
    (DN_MIN_INDBLKSHIFT..=DN_MAX_INDBLKSHIFT).contains(&indblkshift)
        && (1..=LEVELS_MAX).contains(&nlevels)
        && (1..=DN_MAX_NBLKPTR).contains(&nblkptr)
        && type_ != ObjectType::NONE.raw()
        && ObjectType::try_from(type_).is_ok()
}

/// The root of an objset that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundObjset {
    /// What it is.
    pub phys: Box<ObjsetPhys>,
    /// Its size in bytes.
    pub lsize: u64,
}

/// A block of dnodes that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDnodes(pub Vec<u8>);

impl FoundObjset {
    /// Which kind of objset it is.
    #[must_use]
    pub fn objset_type(&self) -> ObjsetType {
        // `decode` has checked it.
        self.phys.objset_type().unwrap_or(ObjsetType::None)
    }

    /// The pointers of its meta-dnode, without holes.
    #[must_use]
    pub fn pointers(&self) -> Vec<BlkPtrPhys> {
        let view = DnodeView::new(self.phys.meta_dnode.as_bytes());
        let pointers = view.map(|view| view.blkptrs().to_vec());
        let pointers = pointers.unwrap_or_default().into_iter();
        pointers.filter(|bp| !bp.is_hole()).collect()
    }

    /// When it was written: in the txg of the newest block below it.
    #[must_use]
    pub fn birth(&self) -> Txg {
        let births = self.pointers().into_iter().map(|bp| bp.allocation_birth());
        births.max().unwrap_or(Txg(0))
    }
}

impl FoundDnodes {
    /// The dnodes, each with the number of its slot.
    pub fn dnodes(&self) -> impl Iterator<Item = (usize, DnodeView<'_>)> {
        let mut slot = 0;
        std::iter::from_fn(move || {
            loop {
                let bytes = self.0.get(slot * DNODE_MIN_SIZE..)?;
                let core = DnodePhys::view(bytes).ok()?;
                let at = slot;
                if core.is_allocated() {
                    slot += core.slots();
                    return Some((at, DnodeView::new(bytes).ok()?));
                }
                slot += 1;
            }
        })
    }

    fn check(self) -> Result<FoundDnodes> {
        let mut slot = 0;
        let mut count = 0;
        while let Some(bytes) = self
            .0
            .get(slot * DNODE_MIN_SIZE..)
            .filter(|b| !b.is_empty())
        {
            let core = DnodePhys::view(bytes)?;
            if core.is_allocated() {
                DnodeView::new(bytes)?;
                slot += core.slots();
                count += 1;
            } else {
                slot += 1;
            }
        }
        match count {
            0 => Err(Error::corrupt("a block of dnodes without any")),
            _ => Ok(self),
        }
    }
}

impl Sketch {
    /// One that was noted before; `None` if [`sketch`] makes no such one.
    #[must_use]
    pub fn new(likeness: Likeness, psize: u32, is_compressed: bool) -> Option<Sketch> {
        let is_whole = psize > 0 && psize.is_multiple_of(SPA_MINBLOCKSIZE as u32);
        let is_possible = is_whole && psize <= DNODE_BLOCK_SIZE as u32;
        is_possible.then_some(Sketch {
            likeness,
            psize,
            is_compressed,
        })
    }

    /// How the block is compressed.
    #[must_use]
    pub fn compress(&self) -> CompressType {
        if self.is_compressed {
            CompressType::Lz4
        } else {
            CompressType::Off
        }
    }

    /// The root of an objset in these bytes, of which the first `lsize` are its own if they are not compressed.
    ///
    /// # Errors
    /// `Corrupt` if they are not one.
    pub fn objset(&self, stored: &[u8]) -> Result<FoundObjset> {
        let mut block = [0; OBJSET_PHYS_SIZE_V3];
        let mut decode = |size: usize| {
            let target = &mut block[..size];
            if self.is_compressed {
                return compress::decompress(CompressType::Lz4, stored, target).is_ok();
            }
            let stored = stored.get(..size);
            stored.is_some_and(|stored| {
                target.copy_from_slice(stored);
                size < OBJSET_PHYS_SIZE_V3 || stored[PAD1..].iter().all(|byte| *byte == 0)
            })
        };
        let sizes = [
            OBJSET_PHYS_SIZE_V3,
            OBJSET_PHYS_SIZE_V2,
            OBJSET_PHYS_SIZE_V1,
        ];
        let size = sizes.into_iter().find(|size| decode(*size));
        let size = size.ok_or_else(|| Error::corrupt("not of the size of an objset"))?;
        let phys = Box::new(ObjsetPhys::parse(&block[..size])?);
        if phys.objset_type()? == ObjsetType::None {
            return Err(Error::corrupt("an objset without a type"));
        }
        let meta = DnodeView::new(phys.meta_dnode.as_bytes())?;
        let core = meta.core();
        if core.type_ != ObjectType::DNODE.raw() || core.datablksz() != DNODE_BLOCK_SIZE as u64 {
            return Err(Error::corrupt("not the dnode of dnodes"));
        }
        let level = core.nlevels.saturating_sub(1);
        let is_below = |bp: &BlkPtrPhys| {
            bp.is_hole() || bp.object_type() == ObjectType::DNODE.raw() && bp.level() == level
        };
        if !meta.blkptrs().iter().all(is_below) {
            return Err(Error::corrupt(
                "its pointers lead to other blocks than dnodes",
            ));
        }
        let found = FoundObjset {
            phys,
            lsize: size as u64,
        };
        if found.pointers().is_empty() {
            return Err(Error::corrupt("an objset without objects"));
        }
        Ok(found)
    }

    /// The block of dnodes in these bytes.
    ///
    /// # Errors
    /// `Corrupt` if they are not one.
    pub fn dnodes(&self, stored: &[u8]) -> Result<FoundDnodes> {
        let mut block = vec![0; DNODE_BLOCK_SIZE];
        if self.is_compressed {
            compress::decompress(CompressType::Lz4, stored, &mut block)?;
        } else if stored.len() == block.len() {
            block.copy_from_slice(stored);
        } else {
            return Err(Error::corrupt("not of the size of a block of dnodes"));
        }
        FoundDnodes(block).check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use compress::Algorithm;
    use phys::DvaPhys;
    use phys::dnode::DnodeSlotPhys;
    use zerocopy::FromBytes;

    /// A dnode of this type with a pointer to a block of dnodes or data.
    fn dnode(type_: ObjectType, birth: u64) -> DnodeSlotPhys {
        let mut bp = BlkPtrPhys::default();
        bp.set_dva(0, DvaPhys::new(base::VdevId(1), 77 << 12, 4096, false));
        bp.set_lsize(DNODE_BLOCK_SIZE as u64);
        bp.set_psize(4096);
        bp.set_type(type_.raw());
        bp.set_level(1);
        bp.set_birth(Txg(birth), Txg(birth));
        bp.set_cksum([birth, !birth, birth.rotate_left(17), birth << 9]);
        let mut slot = DnodeSlotPhys::default();
        slot.core.type_ = type_.raw();
        slot.core.indblkshift = 17;
        slot.core.nlevels = 2;
        slot.core.nblkptr = 1;
        slot.core.set_datablksz(DNODE_BLOCK_SIZE as u64);
        slot.tail[..128].copy_from_slice(bp.as_bytes());
        slot
    }

    fn stored(bytes: &[u8]) -> Vec<u8> {
        let mut target = vec![0; bytes.len()];
        let len = compress::compress(Algorithm::Lz4, bytes, &mut target).unwrap();
        target.truncate(len);
        target.resize(len.next_multiple_of(512), 0);
        target
    }

    fn root() -> ObjsetPhys {
        let mut root = ObjsetPhys {
            meta_dnode: dnode(ObjectType::DNODE, 1234),
            ..ObjsetPhys::default()
        };
        root.type_.set(ObjsetType::Zfs as u64);
        root
    }

    #[test]
    fn roots_of_all_sizes_are_told_from_other_bytes() {
        for size in [1024, 2048, 4096] {
            let root = root();
            let stored = stored(root.form(size));
            let sketch = sketch(&stored[..512]).unwrap();
            let wanted = Sketch::new(Likeness::Objset, stored.len() as u32, true);
            assert_eq!(Some(sketch), wanted);
            let found = sketch.objset(&stored).unwrap();
            assert_eq!((found.lsize, found.birth()), (size as u64, Txg(1234)));
            assert_eq!(found.objset_type(), ObjsetType::Zfs);
            assert_eq!(found.pointers().len(), 1);
        }
        // Stored as it is, with what is behind a shorter form.
        for (after, size) in [(0, 4096), (9, 2048)] {
            let mut stored = root().form(4096).to_vec();
            stored[2048..].fill(after);
            let sketch = sketch(&stored[..512]).unwrap();
            assert_eq!(Some(sketch), Sketch::new(Likeness::Objset, 4096, false));
            let found = sketch.objset(&stored).unwrap();
            assert_eq!((found.lsize, &*found.phys), (size, &root()));
        }
        // Without a type, with a tree of data, and without objects.
        let mut wrong = root();
        wrong.type_.set(0);
        let mut data = root();
        data.meta_dnode = dnode(ObjectType::PLAIN_FILE_CONTENTS, 5);
        let mut empty = root();
        empty.meta_dnode.tail = [0; 448];
        for wrong in [wrong, data, empty] {
            let stored = stored(wrong.as_bytes());
            let found = sketch(&stored).map(|sketch| sketch.objset(&stored).is_ok());
            assert_ne!(found, Some(true));
        }
    }

    #[test]
    fn blocks_of_dnodes_are_found_stored_in_any_way() {
        for (first, free) in [(0, 0), (1, 0), (3, 7)] {
            let mut block = [DnodeSlotPhys::default(); 32];
            for slot in (first..32).step_by(1 + free) {
                block[slot] = dnode(ObjectType::PLAIN_FILE_CONTENTS, slot as u64 + 9);
            }
            let count = (first..32).step_by(1 + free).count();
            let bytes = block.as_bytes();
            for stored in [stored(bytes), bytes.to_vec()] {
                let is_plain = stored.len() == bytes.len();
                let Some(sketch) = sketch(&stored[..512]) else {
                    // Such a block is always small enough to be compressed.
                    assert!(is_plain && first > 0);
                    continue;
                };
                assert_eq!(sketch.likeness, Likeness::Dnodes);
                assert_eq!(sketch.psize as usize, stored.len());
                let found = sketch.dnodes(&stored).unwrap();
                assert_eq!(found.dnodes().count(), count);
                assert_eq!(found.dnodes().next().unwrap().0, first);
            }
        }
    }

    #[test]
    fn other_bytes_are_hardly_ever_taken_for_metadata() {
        let mut state = 1;
        let mut taken = 0;
        for _ in 0..200_000 {
            let mut sector = [0u8; 512];
            for word in <[[u8; 8]]>::mut_from_bytes(&mut sector).unwrap() {
                *word = rt::splitmix64(&mut state).to_le_bytes();
            }
            taken += u32::from(sketch(&sector).is_some());
            sector[..8].fill(0);
            taken += u32::from(sketch(&sector).is_some());
        }
        assert_eq!(taken, 0);
        assert_eq!(sketch(&[0; 4096]), None);
        assert_eq!(sketch(&[]), None);
    }
}
