//! Roots of objsets, blocks of dnodes and of pointers to them, that no pointer leads to: how they are told from other
//! bytes.
//!
//! # What it is
//! [`sketch`] says of the first bytes of a sector whether such a block may begin there, and how long it is then; it
//! takes a few comparisons, since it is asked of every sector of a pool, and only where those say so the beginning is
//! decompressed. [`Sketch::objset`], [`Sketch::dnodes`] and [`Sketch::pointers`] look at the whole block. What passes
//! is still a guess: a file may have such bytes in it. It is to be believed only as far as the blocks verify that it
//! points to.
//!
//! # On disk
//! Metadata is compressed with LZ4: a length of 4 bytes, big-endian, then a sequence of literals, whose count is in
//! the upper half of the first byte. A dnode begins with its type, the sizes of its tree, and how many pointers it
//! has: four bytes that do not repeat, so they are among the first literals. A block of dnodes may also begin with a
//! free slot, 512 zeros, and an indirect block with holes.
//!
//! In pools from before LZ4 it is compressed with LZJB, which has no length: the block ends where it is full, and
//! zeros follow up to the end of the sector. Its first item is a byte as it is; so are the first four of a dnode, for
//! the same reason. Of free slots and holes the first byte of flags says one byte as it is and seven matches, the
//! longest there are.
//!
//! What does not become smaller by a whole sector is stored as it is: mostly so the root of an objset where sectors
//! have 4 KiB. One of the shorter forms has zeros behind it there, which is what its longer form would have. An
//! indirect block always becomes smaller. The tree of the dnodes of an objset has indirect blocks of the largest size
//! there was when it was made.
//!
//! A host of the other byte order writes the numbers in a block the other way round. The first four bytes of a dnode
//! are the same, and a pointer begins with zeros, as few pools have many vdevs. A whole block is taken in the order in
//! which it makes sense: what dnodes have in their bonus, and what their pointers lead to, is possible in one of them
//! only.
//!
//! # Source
//! OpenZFS include/sys/dmu_objset.h, include/sys/dnode.h, module/zfs/dmu_objset.c (`dmu_objset_create_impl_dnstats`),
//! module/zfs/lzjb.c, module/zfs/dnode.c (`dnode_byteswap`); the LZ4 block format.

use base::{Error, Result, SPA_MINBLOCKSIZE, Txg, align_up};
use compress::beginning;
use phys::byteswap::{swap_block, swap_words};
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
/// Bytes of an indirect block of dnodes: before 2017, and since.
const POINTERS_SIZES: [usize; 2] = [1 << 14, 1 << 17];
/// Bytes of a pointer.
const POINTER_SIZE: usize = size_of::<BlkPtrPhys>();
/// How much of a block is decompressed to see what it is, unless it begins with zeros: two dnodes, or eight pointers.
const GLANCE: usize = 1024;
/// What more than 460 zeros are in LZJB: a byte, and the longest matches, the first one with the byte before, the
/// others with where the one before began.
const LZJB_ZEROS: [u8; 6] = [0xfe, 0, 0xfc, 1, 0xfc, 66];
/// The upper byte of how many sectors of 512 bytes a block takes is at most this, if it is one of metadata.
const ASIZE_HIGH_MAX: u8 = 3;

/// What a block may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likeness {
    /// The root block of an objset.
    Objset,
    /// A block of dnodes.
    Dnodes,
    /// An indirect block above blocks of dnodes.
    Pointers,
}

impl Likeness {
    /// Its most bytes when it is not compressed.
    fn size_max(self) -> usize {
        match self {
            Likeness::Objset => OBJSET_PHYS_SIZE_V3,
            Likeness::Dnodes => DNODE_BLOCK_SIZE,
            Likeness::Pointers => 1 << DN_MAX_INDBLKSHIFT,
        }
    }

    /// Converts a block of the other byte order.
    fn swap(self, block: &mut [u8]) {
        match self {
            Likeness::Objset => swap_block(ObjectType::OBJSET, 0, block),
            Likeness::Dnodes => swap_block(ObjectType::DNODE, 0, block),
            Likeness::Pointers => swap_words(block),
        }
    }
}

/// A block that was decompressed.
struct Whole<'a> {
    /// Its bytes, as a little-endian host would have written them.
    block: &'a [u8],
    /// How many bytes are stored of it.
    psize: usize,
    /// Whether such a host wrote it.
    is_little_endian: bool,
}

/// A block that may begin somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sketch {
    /// What it may be.
    pub likeness: Likeness,
    /// Bytes that are stored, a multiple of 512; with LZJB as many as there may be.
    pub psize: u32,
    /// How they are compressed: not at all, with LZ4, or with LZJB.
    pub compress: CompressType,
}

/// What may begin with these bytes, a sector or more.
#[must_use]
pub fn sketch(bytes: &[u8]) -> Option<Sketch> {
    let (prefix, stream) = bytes.split_first_chunk::<PREFIX>()?;
    let len = u32::from_be_bytes(*prefix);
    if len == 0 {
        return None;
    }
    if len < 1 << DN_MAX_INDBLKSHIFT
        && let Some(likeness) = likeness_of_lz4(bytes, stream)
    {
        let psize = align_up(u64::from(len) + PREFIX as u64, SPA_MINBLOCKSIZE);
        return Sketch::new(likeness, u32::try_from(psize).ok()?, CompressType::Lz4)
            .filter(|it| (it.psize as usize) < likeness.size_max());
    }
    if begins_as_dnode(bytes) && bytes.len() >= DnodePhys::SIZE {
        let likeness = likeness_of_dnode(bytes)?;
        return Sketch::new(likeness, likeness.size_max() as u32, CompressType::Off);
    }
    let likeness = begins_as_lzjb(bytes).then(|| likeness_of(CompressType::Lzjb, bytes))??;
    // Compressing saves an eighth, or is not worth it.
    let psize = likeness.size_max() / 8 * 7;
    Sketch::new(likeness, psize as u32, CompressType::Lzjb)
}

/// What an LZ4 block may be.
fn likeness_of_lz4(bytes: &[u8], stream: &[u8]) -> Option<Likeness> {
    let (token, rest) = stream.split_first()?;
    let literals = usize::from(token >> 4);
    if literals >= PREFIX && begins_as_dnode(rest) {
        return Some(likeness_by_type(rest));
    }
    likeness_of(CompressType::Lz4, bytes)
}

/// Whether what LZJB makes of a dnode, of zeros, or of a pointer may begin like this.
fn begins_as_lzjb(bytes: &[u8]) -> bool {
    let &[flags, ref items @ ..] = bytes else {
        return false;
    };
    if flags & 0xf == 0 && begins_as_dnode(items) || bytes.starts_with(&LZJB_ZEROS) {
        return true;
    }
    // A pointer of the other order: the vdev, in four bytes, comes before how many sectors it takes. On the first vdev
    // all are zeros up to there: one as it is, and a match with the byte before.
    match (flags & 0xf, items) {
        (0, &[0, 0, 0, vdev, ..]) if vdev != 0 => return true,
        (2 | 6 | 10 | 14, &[0, 8 | 12, 1, ..]) => return true,
        _ => {}
    }
    // How many sectors it takes: two bytes as they are, and zeros.
    let &[low, high, third, fourth, ..] = items else {
        return false;
    };
    let is_asize = (low, high) != (0, 0) && high <= ASIZE_HIGH_MAX;
    let are_zeros = match flags & 4 == 0 {
        true => third == 0,
        false => fourth == 1,
    };
    flags & 3 == 0 && is_asize && are_zeros
}

/// What a block that is compressed in this way may be, by what it begins with.
fn likeness_of(kind: CompressType, bytes: &[u8]) -> Option<Likeness> {
    let mut glance = [0; GLANCE];
    let made = beginning(kind, bytes, &mut glance)?.made;
    let begin = &glance[..made];
    if made == GLANCE && begin.iter().all(|byte| *byte == 0) {
        let mut all = vec![0; 1 << DN_MAX_INDBLKSHIFT];
        let made = beginning(kind, bytes, &mut all)?.made;
        return begins_as(&all[..made]);
    }
    begins_as(begin)
}

/// What may begin with these bytes, decompressed: whole slots or pointers that are free, then one that is not.
fn begins_as(bytes: &[u8]) -> Option<Likeness> {
    let first = bytes.iter().position(|byte| *byte != 0)?;
    if first.is_multiple_of(DNODE_MIN_SIZE) && first < DNODE_BLOCK_SIZE {
        let dnode = &bytes[first..];
        if begins_as_dnode(dnode) && dnode.len() >= DnodePhys::SIZE {
            return likeness_of_dnode(dnode)
                .filter(|likeness| first == 0 || *likeness != Likeness::Objset);
        }
    }
    let from = first / POINTER_SIZE * POINTER_SIZE;
    let mut pointer = *bytes.get(from..)?.first_chunk::<POINTER_SIZE>()?;
    let is_one = |bytes: &[u8]| BlkPtrPhys::view(bytes).is_ok_and(leads_to_dnodes);
    let is_likely = is_one(&pointer) || {
        swap_words(&mut pointer);
        is_one(&pointer)
    };
    is_likely.then_some(Likeness::Pointers)
}

/// What the block is that begins with this slot, of which only the head may be there; `None` if it is not one.
fn likeness_of_dnode(slot: &[u8]) -> Option<Likeness> {
    let mut slot = *slot.first_chunk::<{ DnodePhys::SIZE }>()?;
    let is_one = |slot: &[u8]| DnodePhys::view(slot).is_ok_and(|core| core.verify().is_ok());
    let is_dnode = is_one(&slot) || {
        swap_block(ObjectType::DNODE, 0, &mut slot);
        is_one(&slot)
    };
    is_dnode.then(|| likeness_by_type(&slot))
}

/// What the block is that begins with these bytes of a dnode.
fn likeness_by_type(dnode: &[u8]) -> Likeness {
    match dnode.first() == Some(&ObjectType::DNODE.raw()) {
        true => Likeness::Objset,
        false => Likeness::Dnodes,
    }
}

/// Whether a pointer may be one below the dnode of dnodes: to a block, or to a hole that was one.
fn leads_to_dnodes(bp: &BlkPtrPhys) -> bool {
    let is_of_size = match bp.level() {
        0 => bp.lsize() == DNODE_BLOCK_SIZE as u64,
        _ => POINTERS_SIZES.iter().any(|size| *size as u64 == bp.lsize()),
    };
    let is_of_dnodes = !bp.is_embedded()
        && bp.object_type() == ObjectType::DNODE.raw()
        && bp.level() < LEVELS_MAX - 1
        && is_of_size
        && bp.birth().0 > 0;
    let is_block = || {
        let [dva, ..] = &bp.dva;
        dva.is_valid() && bp.psize() <= bp.lsize() && bp.fill() > 0
    };
    is_of_dnodes && (bp.is_hole() || is_block())
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
    /// How many bytes are stored of it.
    pub psize: usize,
    /// Whether a little-endian host wrote it. What is here is as such a one would have written it.
    pub is_little_endian: bool,
}

/// A block of dnodes that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDnodes {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// How many bytes are stored of it.
    pub psize: usize,
    /// Whether a little-endian host wrote it. What is here is as such a one would have written it.
    pub is_little_endian: bool,
}

/// An indirect block above blocks of dnodes that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPointers {
    /// Its pointers, holes included.
    pub pointers: Vec<BlkPtrPhys>,
    /// Its size in bytes.
    pub lsize: u64,
    /// How many bytes are stored of it.
    pub psize: usize,
    /// Whether a little-endian host wrote it. What is here is as such a one would have written it.
    pub is_little_endian: bool,
}

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

impl FoundPointers {
    /// The pointers to blocks.
    pub fn blocks(&self) -> impl Iterator<Item = &BlkPtrPhys> {
        self.pointers.iter().filter(|bp| !bp.is_hole())
    }

    /// Its level in the tree: blocks of dnodes are at 0.
    #[must_use]
    pub fn level(&self) -> u8 {
        self.blocks().next().map_or(1, |bp| bp.level() + 1)
    }

    /// When it was written: in the txg of the newest block or hole below it.
    #[must_use]
    pub fn birth(&self) -> Txg {
        let births = self.pointers.iter().map(BlkPtrPhys::birth);
        births.max().unwrap_or(Txg(0))
    }

    /// How many dnodes are below it.
    #[must_use]
    pub fn fill(&self) -> u64 {
        let fill = self.blocks().map(BlkPtrPhys::fill);
        fill.fold(0, u64::saturating_add)
    }

    fn new(whole: &Whole<'_>) -> Result<FoundPointers> {
        let block = whole.block;
        let mut pointers = Vec::with_capacity(block.len() / POINTER_SIZE);
        for bytes in block.chunks_exact(POINTER_SIZE) {
            let bp = *BlkPtrPhys::view(bytes)?;
            if bp != BlkPtrPhys::default() && !leads_to_dnodes(&bp) {
                return Err(Error::corrupt("pointers to other blocks than dnodes"));
            }
            pointers.push(bp);
        }
        let lsize = block.len() as u64;
        let found = FoundPointers {
            pointers,
            lsize,
            psize: whole.psize,
            is_little_endian: whole.is_little_endian,
        };
        let level = found.level();
        let is_below =
            |bp: &BlkPtrPhys| bp.level() + 1 == level && (level == 1 || bp.lsize() == lsize);
        match found.blocks().next().is_some() && found.blocks().all(is_below) {
            true => Ok(found),
            false => Err(Error::corrupt(
                "pointers to blocks that are not of one level",
            )),
        }
    }
}

impl FoundDnodes {
    /// One that was read by a pointer, and so is as a little-endian host would have written it.
    #[must_use]
    pub fn of_block(bytes: Vec<u8>) -> FoundDnodes {
        FoundDnodes {
            psize: bytes.len(),
            bytes,
            is_little_endian: true,
        }
    }

    /// The dnodes, each with the number of its slot.
    pub fn dnodes(&self) -> impl Iterator<Item = (usize, DnodeView<'_>)> {
        let mut slot = 0;
        std::iter::from_fn(move || {
            loop {
                let bytes = self.bytes.get(slot * DNODE_MIN_SIZE..)?;
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
        let (mut pointers, mut fitting) = (0, 0);
        while let Some(bytes) = self
            .bytes
            .get(slot * DNODE_MIN_SIZE..)
            .filter(|b| !b.is_empty())
        {
            let core = DnodePhys::view(bytes)?;
            if core.is_allocated() {
                let dnode = DnodeView::new(bytes)?;
                let fits = |bp: &&BlkPtrPhys| {
                    bp.object_type() == core.type_ && bp.level() + 1 == core.nlevels
                };
                let used = dnode.blkptrs().iter().filter(|bp| !bp.is_hole());
                pointers += used.clone().count();
                fitting += used.filter(fits).count();
                slot += core.slots();
                count += 1;
            } else {
                slot += 1;
            }
        }
        if count == 0 {
            return Err(Error::corrupt("a block of dnodes without any"));
        }
        // An object that has become one of another type may have older blocks, but not all of them are such.
        match pointers > 0 && fitting == 0 {
            true => Err(Error::corrupt("dnodes with pointers to others' blocks")),
            false => Ok(self),
        }
    }
}

impl Sketch {
    /// One that was noted before; `None` if [`sketch`] makes no such one.
    #[must_use]
    pub fn new(likeness: Likeness, psize: u32, compress: CompressType) -> Option<Sketch> {
        let is_whole = psize > 0 && psize.is_multiple_of(SPA_MINBLOCKSIZE as u32);
        let is_known = matches!(
            compress,
            CompressType::Off | CompressType::Lz4 | CompressType::Lzjb
        );
        let is_possible = is_whole && is_known && psize as usize <= likeness.size_max();
        is_possible.then_some(Sketch {
            likeness,
            psize,
            compress,
        })
    }

    /// Whether it may be shorter than `psize` says.
    #[must_use]
    pub fn may_be_shorter(&self) -> bool {
        self.compress == CompressType::Lzjb
    }

    /// The root of an objset in these bytes, which begin with its own.
    ///
    /// # Errors
    /// `Corrupt` if they are not one.
    pub fn objset(&self, stored: &[u8]) -> Result<FoundObjset> {
        let sizes = [
            OBJSET_PHYS_SIZE_V1,
            OBJSET_PHYS_SIZE_V2,
            OBJSET_PHYS_SIZE_V3,
        ];
        self.parse(stored, &sizes, &|whole| self.objset_of(whole))
    }

    fn objset_of(&self, whole: &Whole<'_>) -> Result<FoundObjset> {
        let block = whole.block;
        let is_whole = block.len() == OBJSET_PHYS_SIZE_V3;
        let is_plain = self.compress == CompressType::Off;
        if is_plain && is_whole && block[PAD1..].iter().any(|byte| *byte != 0) {
            return Err(Error::corrupt("not the longest form of an objset"));
        }
        let phys = Box::new(ObjsetPhys::parse(block)?);
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
            lsize: block.len() as u64,
            psize: whole.psize,
            is_little_endian: whole.is_little_endian,
        };
        if found.pointers().is_empty() {
            return Err(Error::corrupt("an objset without objects"));
        }
        Ok(found)
    }

    /// The block of dnodes in these bytes, which begin with its own.
    ///
    /// # Errors
    /// `Corrupt` if they are not one.
    pub fn dnodes(&self, stored: &[u8]) -> Result<FoundDnodes> {
        self.parse(stored, &[DNODE_BLOCK_SIZE], &|whole| {
            let found = FoundDnodes {
                bytes: whole.block.to_vec(),
                psize: whole.psize,
                is_little_endian: whole.is_little_endian,
            };
            found.check()
        })
    }

    /// The indirect block above blocks of dnodes in these bytes, which begin with its own.
    ///
    /// # Errors
    /// `Corrupt` if they are not one.
    pub fn pointers(&self, stored: &[u8]) -> Result<FoundPointers> {
        self.parse(stored, &POINTERS_SIZES, &FoundPointers::new)
    }

    /// What is in these bytes, decompressed to one of these sizes.
    fn parse<T>(
        &self,
        stored: &[u8],
        sizes: &[usize],
        parse: &dyn Fn(&Whole<'_>) -> Result<T>,
    ) -> Result<T> {
        let one = |size: usize| {
            let (mut block, psize) = self.decompress(stored, size)?;
            let native = parse(&Whole {
                block: &block,
                psize,
                is_little_endian: true,
            });
            native.or_else(|_| {
                self.likeness.swap(&mut block);
                parse(&Whole {
                    block: &block,
                    psize,
                    is_little_endian: false,
                })
            })
        };
        let mut last = Err(Error::corrupt("not of the size of such a block"));
        // Of LZJB the first size that ends with zeros is right; what is not compressed has them behind its shorter
        // form.
        if self.compress == CompressType::Lzjb {
            for size in sizes {
                let found = one(*size);
                if found.is_ok() {
                    return found;
                }
                last = found;
            }
        } else {
            for size in sizes.iter().rev() {
                let found = one(*size);
                if found.is_ok() {
                    return found;
                }
                last = found;
            }
        }
        last
    }

    /// A block of this size, and how many of these bytes are its own.
    fn decompress(&self, stored: &[u8], size: usize) -> Result<(Vec<u8>, usize)> {
        let mut block = vec![0; size];
        match self.compress {
            CompressType::Lzjb => {
                let begin = beginning(self.compress, stored, &mut block);
                let begin = begin.filter(|begin| begin.made == size);
                let taken = begin.map(|begin| begin.taken);
                let taken = taken.ok_or_else(|| Error::corrupt("not a block of this size"))?;
                let psize = align_up(taken as u64, SPA_MINBLOCKSIZE) as usize;
                match stored.get(taken..psize) {
                    Some(pad) if pad.iter().all(|byte| *byte == 0) => Ok((block, psize)),
                    _ => Err(Error::corrupt("it goes on after its end")),
                }
            }
            CompressType::Lz4 => {
                compress::decompress(CompressType::Lz4, stored, &mut block)?;
                Ok((block, stored.len()))
            }
            _ => {
                let own = stored.get(..size);
                let own = own.ok_or_else(|| Error::corrupt("not of the size of such a block"))?;
                block.copy_from_slice(own);
                Ok((block, size))
            }
        }
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
        stored_by(Algorithm::Lz4, bytes)
    }

    fn stored_by(algorithm: Algorithm, bytes: &[u8]) -> Vec<u8> {
        let mut target = vec![0; bytes.len()];
        let len = compress::compress(algorithm, bytes, &mut target).unwrap();
        target.truncate(len);
        target.resize(len.next_multiple_of(512), 0);
        target
    }

    /// Dnodes as a big-endian host writes them; they have no bonus.
    fn big_endian(dnodes: &[u8]) -> Vec<u8> {
        let mut bytes = dnodes.to_vec();
        for slot in bytes.chunks_mut(DNODE_MIN_SIZE) {
            for (start, len) in [(8, 2), (10, 2), (16, 8), (24, 8)] {
                slot[start..start + len].reverse();
            }
            swap_words(&mut slot[64..]);
        }
        bytes
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
            let wanted = Sketch::new(Likeness::Objset, stored.len() as u32, CompressType::Lz4);
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
            assert_eq!(
                Some(sketch),
                Sketch::new(Likeness::Objset, 4096, CompressType::Off)
            );
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
    fn what_a_big_endian_host_wrote_is_found() {
        for algorithm in [Algorithm::Lz4, Algorithm::Lzjb] {
            let mut bytes = big_endian(root().meta_dnode.as_bytes());
            bytes.resize(OBJSET_PHYS_SIZE_V2, 0);
            bytes[DNODE_MIN_SIZE + 192 + 7] = ObjsetType::Zfs as u8;
            for size in [OBJSET_PHYS_SIZE_V1, OBJSET_PHYS_SIZE_V2] {
                let stored = stored_by(algorithm, &bytes[..size]);
                let found = sketch(&stored[..512]).unwrap().objset(&stored).unwrap();
                assert_eq!((found.lsize, found.is_little_endian), (size as u64, false));
                assert_eq!(found.phys, Box::new(root()));
            }
            for first in [0, 3] {
                let mut block = [DnodeSlotPhys::default(); 32];
                for (n, slot) in block.iter_mut().enumerate().skip(first) {
                    *slot = dnode(ObjectType::DIRECTORY_CONTENTS, n as u64 + 9);
                }
                let stored = stored_by(algorithm, &big_endian(block.as_bytes()));
                let found = sketch(&stored[..512]).unwrap().dnodes(&stored).unwrap();
                assert!(!found.is_little_endian && found.bytes == block.as_bytes());
                // So little that not all of the first dnode is in it.
                let likeness = sketch(&stored[..80]).map(|sketch| sketch.likeness);
                assert_eq!(likeness, Some(Likeness::Dnodes));
            }
            for (vdev, psize, first) in [(0, 2048, 0), (0, 1 << 17, 0), (3, 2048, 0), (0, 512, 9)] {
                let mut pointers = vec![BlkPtrPhys::default(); 128];
                for (n, pointer) in pointers.iter_mut().enumerate().skip(first).take(20) {
                    *pointer = below(0, 1 << 14, n as u64 + 9);
                    let dva = DvaPhys::new(base::VdevId(vdev), 77 << 12, psize, false);
                    pointer.set_dva(0, dva);
                }
                let mut bytes = pointers.as_bytes().to_vec();
                swap_words(&mut bytes);
                let stored = stored_by(algorithm, &bytes);
                let sketch = sketch(&stored).unwrap();
                assert_eq!(sketch.likeness, Likeness::Pointers);
                let found = sketch.pointers(&stored).unwrap();
                assert!(!found.is_little_endian && found.pointers == pointers);
            }
        }
    }

    /// A pointer to a block of dnodes, or to a block of pointers to them.
    fn below(level: u8, lsize: u64, n: u64) -> BlkPtrPhys {
        let mut bp = BlkPtrPhys::default();
        let mut state = n;
        let sum = [0; 4].map(|_: u64| rt::splitmix64(&mut state));
        bp.set_dva(0, DvaPhys::new(base::VdevId(0), n << 13, 2048, false));
        bp.set_lsize(lsize);
        bp.set_psize(2048);
        bp.set_type(ObjectType::DNODE.raw());
        bp.set_level(level);
        bp.set_little_endian();
        bp.set_birth(Txg(n), Txg(n));
        bp.set_fill(32);
        bp.set_cksum(sum);
        bp
    }

    #[test]
    fn blocks_of_pointers_are_found_with_what_they_lead_to() {
        for algorithm in [Algorithm::Lz4, Algorithm::Lzjb] {
            for (level, size, first, count) in [
                (0, 1 << 14, 0, 1),
                (0, 1 << 17, 0, 1000),
                (0, 1 << 17, 5, 20),
                (0, 1 << 17, 300, 7),
                (4, 1 << 17, 0, 1),
                (1, 1 << 14, 0, 99),
            ] {
                let lsize = if level == 0 { 1 << 14 } else { size };
                let mut pointers = vec![BlkPtrPhys::default(); size as usize / 128];
                for (n, pointer) in pointers.iter_mut().enumerate().skip(first).take(count) {
                    *pointer = below(level, lsize, n as u64 + 9);
                }
                pointers[first + count / 2] =
                    BlkPtrPhys::new_hole(ObjectType::DNODE.raw(), level, lsize, Txg(2000));
                if count == 1 {
                    pointers[first] = below(level, lsize, 7);
                }
                let mut stored = stored_by(algorithm, pointers.as_bytes());
                let own = stored.len();
                // What is behind it is not its own.
                if algorithm == Algorithm::Lzjb {
                    stored.resize(own + 4096, 0x5a);
                }
                // Many holes take more than a sector.
                let sketch = sketch(&stored).unwrap();
                assert_eq!(
                    sketch.likeness,
                    Likeness::Pointers,
                    "{level} {first} {count}"
                );
                let found = sketch.pointers(&stored).unwrap();
                assert_eq!((found.lsize, found.psize), (size, own));
                assert_eq!(found.pointers, pointers);
                assert_eq!(found.level(), level + 1);
                let birth = if count == 1 { 7 } else { 2000 };
                assert_eq!(found.birth(), Txg(birth));
                // A pointer to something else among them.
                pointers[first + count] = below(level + 1, 1 << 15, 3);
                let stored = stored_by(algorithm, pointers.as_bytes());
                assert!(sketch.pointers(&stored).is_err());
            }
        }
    }

    #[test]
    fn what_lzjb_made_is_found_without_its_length() {
        let mut block = [DnodeSlotPhys::default(); 32];
        for slot in [1, 2, 9] {
            block[slot] = dnode(ObjectType::PLAIN_FILE_CONTENTS, slot as u64 + 9);
        }
        let late = block;
        block[0] = dnode(ObjectType::DIRECTORY_CONTENTS, 8);
        for block in [block, late] {
            let mut stored = stored_by(Algorithm::Lzjb, block.as_bytes());
            let own = stored.len();
            stored.resize(own + 1024, 7);
            let sketch = sketch(&stored[..512]).unwrap();
            assert_eq!(sketch.likeness, Likeness::Dnodes);
            assert!(sketch.may_be_shorter() && sketch.psize as usize >= own);
            let found = sketch.dnodes(&stored).unwrap();
            assert_eq!((&*found.bytes, found.psize), (block.as_bytes(), own));
            assert!(sketch.dnodes(&stored[..own - 512]).is_err());
        }
        for size in [1024, 2048, 4096] {
            let mut stored = stored_by(Algorithm::Lzjb, root().form(size));
            let own = stored.len();
            stored.resize(own + 4096, 7);
            let sketch = sketch(&stored[..512]).unwrap();
            let found = sketch.objset(&stored).unwrap();
            assert_eq!((found.lsize, found.psize), (size as u64, own));
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
