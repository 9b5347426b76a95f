//! Gang blocks: a block in pieces, when no free segment is large enough for it.
//!
//! # What it is
//! In place of the block there is a *gang header*: block pointers to pieces, each of which
//! may be a gang block itself. The tree is invisible from above: the block pointer has its G bit set,
//! and its checksum is that of the whole data.
//!
//! # On disk
//! ```text
//! 0    384  blkptr_t[3]   the pieces in order; unused ones are holes
//! 384   88  zero
//! 472   40  zio_eck_t     SHA-256, verifier = vdev, offset, physical birth of the header
//! ```
//! While `dynamic_gang_header` is active a new header is as large as the smallest allocation of its vdev (that of
//! all its copies, if their vdevs differ) and has a pointer for each 128 bytes that fit before the zio_eck_t; older
//! headers keep their 512 bytes. Nothing but the checksum says how large one is.
//!
//! # Invariants
//! 1. The pieces' psizes add up to the block's; a piece is not compressed (lsize = psize).
//! 2. A gang DVA's asize is the header's plus that of all pieces in the same copy, while the
//!    space map holds the header and each piece as segments of their own.
//! 3. The header has at least as many copies as the pieces.
//! 4. A header is larger than 512 bytes only if the feature is active in a txg that is on disk. It
//!    becomes active when a header with three pieces was too small for a block, where a larger one has more, and
//!    stays so: what may have such headers is not counted.
//!
//! # Crash argument
//! Header and pieces are all written before the uberblock that makes the block reachable.
//!
//! # Source
//! OpenZFS 2.4 `module/zfs/zio.c` (`zio_write_gang_block`, `zio_gang_tree_*`), `include/sys/zio.h`,
//! `include/sys/vdev.h` (`vdev_gang_header_psize`), `module/zfs/zio_checksum.c` (`zio_checksum_error`).

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{BlockBuf, Buf, Context, Error, ErrorKind, Result, SPA_MAXBLOCKSIZE, Txg};
use phys::{BlkPtrPhys, ChecksumType, CompressType, DvaPhys};
use zerocopy::{FromBytes, IntoBytes};

use crate::dedup::Counted;
use crate::encode::Physical;
use crate::issue::Write;
use crate::pipeline::Pipeline;
use crate::{AllocClass, Bookmark, DvaSet, Hint, Priority, SPA_GANGBLOCKSIZE, eck};

/// Bytes of a block pointer.
const BLKPTR_BYTES: usize = size_of::<BlkPtrPhys>();
/// A piece is first looked for that is this part of what is left, as of a classic header with its three pointers.
const FIRST_SHARE: u64 = 3;
/// No valid tree is deeper: each level cuts its block in three, and 3^11 * 512 > 16 MiB.
const DEPTH_MAX: usize = 12;

/// How large new gang headers are (feature `dynamic_gang_header`).
pub(crate) struct HeaderSizes {
    /// The feature is active.
    are_dynamic: AtomicBool,
    /// A block was cut in more pieces than a small header has pointers, where a larger one has enough.
    were_small: AtomicBool,
}

impl HeaderSizes {
    pub(crate) fn new(are_dynamic: bool) -> HeaderSizes {
        HeaderSizes {
            are_dynamic: are_dynamic.into(),
            were_small: false.into(),
        }
    }
}

/// A gang header in memory, with what it leads to.
pub(crate) struct GangTree {
    /// The pointer to the header.
    pub(crate) bp: BlkPtrPhys,
    header_bytes: usize,
    /// Pieces in order, holes left out; the tree below if a piece is a gang itself.
    pub(crate) pieces: Vec<(BlkPtrPhys, Option<GangTree>)>,
}

impl GangTree {
    /// The data pieces, left to right.
    pub(crate) fn leaves(&self, out: &mut Vec<BlkPtrPhys>) {
        for (bp, below) in &self.pieces {
            match below {
                Some(tree) => tree.leaves(out),
                None => out.push(*bp),
            }
        }
    }

    /// The pointers to all headers and their bytes, outermost first.
    pub(crate) fn headers(&self, out: &mut Vec<(BlkPtrPhys, usize)>) {
        out.push((self.bp, self.header_bytes));
        for (_, below) in &self.pieces {
            if let Some(tree) = below {
                tree.headers(out);
            }
        }
    }
}

/// The bytes of a block, and what is needed to allocate it in pieces.
pub(crate) struct GangWrite<'a> {
    pub(crate) txg: Txg,
    pub(crate) class: AllocClass,
    pub(crate) hint: Hint,
    pub(crate) checksum: ChecksumType,
    pub(crate) copies: usize,
    /// Copies that its pointer has room for.
    pub(crate) copies_max: usize,
    pub(crate) physical: &'a Physical,
}

/// What placing blocks has produced so far: device writes, and what to give back if it fails.
#[derive(Default)]
pub(crate) struct Placed {
    pub(crate) writes: Vec<Write>,
    pub(crate) allocated: Vec<DvaPhys>,
    /// Pointers that were counted in dedup tables.
    pub(crate) shared: Vec<Counted>,
}

impl Placed {
    /// Records what was allocated, so that it can be given back.
    pub(crate) fn take(&mut self, dvas: &DvaSet) {
        self.allocated.extend(dvas.iter());
    }
}

impl Pipeline {
    /// Reads the headers of a gang block.
    #[doc(alias = "zio_gang_tree_assemble")]
    pub(crate) fn gang_tree(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<GangTree> {
        self.gang_subtree(bp, 0)
            .within(|| format!("gang block {bookmark}"))
    }

    fn gang_subtree(&self, bp: &BlkPtrPhys, depth: usize) -> Result<GangTree> {
        if depth > DEPTH_MAX {
            return Err(Error::corrupt(format!("{depth} gang headers deep")));
        }
        let (header, header_bytes) = self.read_gang_header(bp)?;
        let mut pieces = Vec::new();
        let mut total = 0;
        for at in (0..=header_bytes - eck::ECK_BYTES - BLKPTR_BYTES).step_by(BLKPTR_BYTES) {
            let piece = BlkPtrPhys::read_from_bytes(&header[at..at + BLKPTR_BYTES])
                .expect("128 bytes are a block pointer");
            if piece.is_hole() {
                continue;
            }
            if piece.is_embedded() {
                return Err(Error::corrupt(format!(
                    "embedded gang piece {}",
                    pieces.len()
                )));
            }
            total += piece.psize();
            let below = if piece.is_gang() {
                Some(self.gang_subtree(&piece, depth + 1)?)
            } else {
                None
            };
            pieces.push((piece, below));
        }
        if total != bp.psize() || bp.psize() > SPA_MAXBLOCKSIZE {
            let what = format!("gang pieces add up to {total}, psize is {}", bp.psize());
            return Err(Error::corrupt(what));
        }
        Ok(GangTree {
            bp: *bp,
            header_bytes,
            pieces,
        })
    }

    fn read_gang_header(&self, bp: &BlkPtrPhys) -> Result<(BlockBuf, usize)> {
        let classic = SPA_GANGBLOCKSIZE as usize;
        let size = self.header_bytes(bp.dvas());
        let seal = |size: usize, bytes: &[u8]| {
            bytes.len() >= size && eck::verify(ChecksumType::GangHeader, bp, &bytes[..size])
        };
        let verify = |bytes: &[u8]| seal(size, bytes) || seal(classic, bytes);
        let mut header = self.read_dvas(bp, Priority::SyncRead, size, &verify)?;
        let size = if seal(size, &header) { size } else { classic };
        if !bp.is_little_endian() {
            phys::byteswap::swap_words(&mut header[..size]);
        }
        Ok((header, size))
    }

    /// How large a new header is whose copies are on these vdevs.
    #[doc(alias = "vdev_gang_header_psize")]
    fn header_bytes(&self, dvas: impl Iterator<Item = DvaPhys>) -> usize {
        let classic = SPA_GANGBLOCKSIZE as usize;
        if !self.headers.are_dynamic.load(Ordering::Acquire) {
            return classic;
        }
        let least = dvas.map(|dva| self.vdevs.min_alloc(dva.vdev()) as usize);
        least.min().unwrap_or(classic).max(classic)
    }

    /// From now on headers are as large as their vdev allows: `dynamic_gang_header` is active.
    pub fn use_dynamic_gang_headers(&self) {
        self.headers.are_dynamic.store(true, Ordering::Release);
    }

    /// Whether a block needed more headers than it would with [larger ones](Pipeline::use_dynamic_gang_headers).
    #[must_use]
    pub fn wants_dynamic_gang_headers(&self) -> bool {
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        is_set(&self.headers.were_small) && !is_set(&self.headers.are_dynamic)
    }

    fn note_small_header(&self, dvas: &DvaSet) {
        let has_room = |dva: DvaPhys| self.vdevs.min_alloc(dva.vdev()) > SPA_GANGBLOCKSIZE;
        if dvas.iter().all(has_room) {
            self.headers.were_small.store(true, Ordering::Release);
        }
    }

    /// The physical bytes of a gang block.
    pub(crate) fn read_gang(
        &self,
        bp: &BlkPtrPhys,
        bookmark: &Bookmark,
        priority: Priority,
    ) -> Result<BlockBuf> {
        let tree = self.gang_tree(bp, bookmark)?;
        let mut leaves = Vec::new();
        tree.leaves(&mut leaves);
        let mut data = BlockBuf::scratch(bp.psize() as usize);
        let mut at = 0;
        for leaf in leaves {
            let piece = self
                .read_simple(&leaf, priority)
                .within(|| format!("gang piece at {at}"))?;
            let len = leaf.psize() as usize;
            data[at..at + len].copy_from_slice(&piece[..len]);
            at += len;
        }
        assert_eq!(at, data.len(), "the tree was checked to add up");
        Ok(data)
    }

    /// Places a block in pieces: sets the DVAs of `bp`, whose other fields are complete.
    #[doc(alias = "zio_write_gang_block")]
    pub(crate) fn place_gang(
        &self,
        write: &GangWrite<'_>,
        bp: &mut BlkPtrPhys,
        placed: &mut Placed,
    ) -> Result<()> {
        let (start, len) = (0, write.physical.psize as u64);
        self.place_gang_part(write, bp, start, len, placed)
    }

    fn place_gang_part(
        &self,
        write: &GangWrite<'_>,
        bp: &mut BlkPtrPhys,
        start: u64,
        len: u64,
        placed: &mut Placed,
    ) -> Result<()> {
        let dvas = self.allocate_header(write)?;
        placed.take(&dvas);
        let mut asizes = dvas.iter().map(|dva| dva.asize()).collect::<Vec<_>>();
        let header_bytes = self.header_bytes(dvas.iter());
        let mut header = BlockBuf::zeroed(header_bytes);
        let pointers = phys::gang::gang_nblkptrs(header_bytes) as u64;
        let mut done = 0;
        for index in 0..pointers {
            if done == len {
                break;
            }
            let left = len - done;
            let round = |share: u64| self.pool().round_up(share).min(left);
            let least = round(left / (pointers - index));
            // Few large pieces are better than one for each pointer.
            let first = round(left / FIRST_SHARE.min(pointers - index)).max(least);
            let piece = self.place_piece(write, start + done, least..=first, placed)?;
            let size = piece.psize();
            if piece.is_gang() {
                self.note_small_header(&dvas);
            }
            for (asize, dva) in asizes.iter_mut().zip(piece.dvas()) {
                *asize += dva.asize();
            }
            let at = index as usize * BLKPTR_BYTES;
            header[at..at + BLKPTR_BYTES].copy_from_slice(piece.as_bytes());
            done += size;
        }
        assert_eq!(done, len, "the shares cover the block");
        for (i, (dva, asize)) in dvas.iter().zip(asizes).enumerate() {
            bp.set_dva(i, DvaPhys::new(dva.vdev(), dva.offset(), asize, true));
        }
        self.seal_header(bp, header, placed);
        Ok(())
    }

    fn seal_header(&self, bp: &BlkPtrPhys, mut header: BlockBuf, placed: &mut Placed) {
        eck::seal(ChecksumType::GangHeader, bp, &mut header);
        let header: Buf = header.share();
        let writes = bp
            .dvas()
            .map(|dva| Write::new(bp.physical_birth(), &dva, &header, 0, header.len()));
        placed.writes.extend(writes);
    }

    /// Allocates the header in one copy more than the data has, if there is space, so that a damaged
    /// header does not lose all of its pieces.
    fn allocate_header(&self, write: &GangWrite<'_>) -> Result<DvaSet> {
        let allocate = |copies| {
            let (txg, class) = (write.txg, write.class);
            self.alloc
                .allocate(txg, class, SPA_GANGBLOCKSIZE, copies, &write.hint)
        };
        let more = (write.copies + 1).min(write.copies_max);
        match allocate(more) {
            Err(e) if e.kind() == ErrorKind::NoSpace && more > write.copies => {
                allocate(write.copies)
            }
            result => result,
        }
    }

    /// Places a piece of one of these lengths: the longest that there is room for, halved until it fits; the shortest
    /// may be a gang itself.
    fn place_piece(
        &self,
        write: &GangWrite<'_>,
        start: u64,
        lens: RangeInclusive<u64>,
        placed: &mut Placed,
    ) -> Result<BlkPtrPhys> {
        let allocate = |len| {
            let (txg, class) = (write.txg, write.class);
            self.alloc
                .allocate(txg, class, len, write.copies, &write.hint)
        };
        let (least, mut len) = lens.into_inner();
        let mut allocated = allocate(len);
        while len > least && matches!(&allocated, Err(e) if e.kind() == ErrorKind::NoSpace) {
            len = self.pool().round_up(len / 2).clamp(least, len - 1);
            allocated = allocate(len);
        }
        let bytes = &write.physical.buf[start as usize..][..len as usize];
        let mut bp = BlkPtrPhys::default();
        bp.set_lsize(len);
        bp.set_psize(len);
        bp.set_compress(CompressType::Off.raw());
        bp.set_checksum(write.checksum.raw());
        bp.set_little_endian();
        bp.set_birth(write.txg, write.txg);
        bp.set_cksum(self.checksums.digest(write.checksum, bytes));
        match allocated {
            Ok(dvas) => {
                placed.take(&dvas);
                for (i, dva) in dvas.iter().enumerate() {
                    bp.set_dva(i, dva);
                    let (buf, start) = (&write.physical.buf, start as usize);
                    placed
                        .writes
                        .push(Write::new(write.txg, &dva, buf, start, len as usize));
                }
            }
            Err(e) if e.kind() == ErrorKind::NoSpace && len > self.pool().min_alloc => {
                self.place_gang_part(write, &mut bp, start, len, placed)?;
            }
            Err(e) => return Err(e),
        }
        Ok(bp)
    }

    /// Overwrites a gang block in place with the same number of bytes.
    #[doc(alias = "zio_rewrite_gang")]
    pub(crate) fn rewrite_gang(
        &self,
        tree: &GangTree,
        write: &GangWrite<'_>,
        start: usize,
        placed: &mut Placed,
    ) {
        let mut header = BlockBuf::zeroed(tree.header_bytes);
        let mut at = start;
        for (index, (piece, below)) in tree.pieces.iter().enumerate() {
            let mut piece = *piece;
            let len = piece.psize() as usize;
            let bytes = &write.physical.buf[at..at + len];
            piece.set_checksum(write.checksum.raw());
            piece.set_cksum(self.checksums.digest(write.checksum, bytes));
            match below {
                Some(tree) => self.rewrite_gang(tree, write, at, placed),
                None => placed.writes.extend(
                    piece
                        .dvas()
                        .map(|dva| Write::new(write.txg, &dva, &write.physical.buf, at, len)),
                ),
            }
            header[index * BLKPTR_BYTES..][..BLKPTR_BYTES].copy_from_slice(piece.as_bytes());
            at += len;
        }
        self.seal_header(&tree.bp, header, placed);
    }

    /// Every segment of a gang block, headers first, as the allocator knows them.
    pub(crate) fn gang_segments(&self, tree: &GangTree) -> Vec<DvaPhys> {
        let (mut headers, mut leaves) = (Vec::new(), Vec::new());
        tree.headers(&mut headers);
        tree.leaves(&mut leaves);
        let headers = headers
            .iter()
            .flat_map(|(bp, _)| bp.dvas().collect::<Vec<_>>());
        let headers = headers.map(|dva| self.header_segment(&dva));
        let leaves = leaves.iter().flat_map(|bp| bp.dvas().collect::<Vec<_>>());
        headers.chain(leaves).collect()
    }

    /// The space of the header alone.
    #[doc(alias = "vdev_gang_header_asize")]
    fn header_segment(&self, dva: &DvaPhys) -> DvaPhys {
        // A single sector of data takes as much on every width of a RAID-Z.
        let birth = Txg(0);
        let asize = self
            .vdevs
            .psize_to_asize(dva.vdev(), SPA_GANGBLOCKSIZE, birth);
        DvaPhys::new(dva.vdev(), dva.offset(), asize, false)
    }
}
