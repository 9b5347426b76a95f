//! Reading: a good copy, decryption, decompression, byte order.
//!
//! # What it is
//! A copy counts only if it matches the checksum in the pointer, or can be opened with the key of its
//! data set; `copies.rs` finds it.
//!
//! # Source
//! OpenZFS `module/zfs/zio.c` (`zio_read_bp_init`, `zio_decompress`, `zio_decrypt`).

use base::{BlockBuf, Buf, Context, Error, Result, SPA_MAXBLOCKSIZE};
use phys::byteswap::{swap_block, swap_log_block};
use phys::{BlkPtrPhys, ChecksumType, CompressType, DvaPhys, ObjectType};

use crate::copies::{check_bp, worst};
use crate::keys::{Loaded, Opening};
use crate::pipeline::Pipeline;
use crate::{Bookmark, Io, Priority, embedded, keys};

/// Converts the logical bytes of a block that a big-endian host wrote.
#[doc(alias = "BP_SHOULD_BYTESWAP")]
pub(crate) fn to_little_endian(bp: &BlkPtrPhys, logical: &mut [u8]) {
    if bp.is_little_endian() {
        return;
    }
    match ObjectType::try_from(bp.object_type()) {
        Ok(ObjectType::INTENT_LOG) => {
            let has_chain_first = bp.checksum() == ChecksumType::Zilog2.raw();
            swap_log_block(has_chain_first, logical);
        }
        Ok(type_) => swap_block(type_, bp.level(), logical),
        Err(_) => {}
    }
}

impl Pipeline {
    /// The vdevs below.
    #[must_use]
    pub fn vdevs(&self) -> &std::sync::Arc<dyn crate::VdevOps> {
        &self.vdevs
    }

    /// The bytes as they are stored, verified: still compressed, still encrypted.
    ///
    /// # Errors
    /// As [`BlockStore::read`](crate::BlockStore::read).
    pub fn read_raw(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        assert!(
            !bp.is_hole() && !bp.is_embedded(),
            "no bytes are stored for {bookmark}"
        );
        let as_stored = Opening::new(None, bp);
        let physical = self.read_physical(bp, bookmark, Priority::SyncRead, &as_stored)?;
        Ok(exactly(physical, bp))
    }

    /// At least psize bytes, verified.
    fn read_physical(
        &self,
        bp: &BlkPtrPhys,
        bookmark: &Bookmark,
        priority: Priority,
        opening: &Opening<'_>,
    ) -> Result<BlockBuf> {
        self.stats.count_read(bp.psize());
        let physical = if bp.is_gang() {
            check_bp(bp).and_then(|_| self.read_gang(bp, bookmark, priority))
        } else {
            self.read_opening(bp, priority, opening)
        };
        physical
            .inspect_err(|e| self.note_loss(bp, bookmark, priority, e))
            .within(|| format!("block {bookmark}"))
    }

    /// Notes a lost block in the error log; not for read-ahead, since the block's reader will meet the
    /// error again and knows its bookmark.
    fn note_loss(&self, bp: &BlkPtrPhys, bookmark: &Bookmark, priority: Priority, error: &Error) {
        if priority != Priority::AsyncRead {
            self.errors.note(bookmark, bp.allocation_birth(), error);
        }
    }

    /// At least psize bytes of a block that is not a gang, verified.
    pub(crate) fn read_simple(&self, bp: &BlkPtrPhys, priority: Priority) -> Result<BlockBuf> {
        self.read_opening(bp, priority, &Opening::new(None, bp))
    }

    /// Like [`read_simple`](Pipeline::read_simple), verified by opening the copies or by their checksum.
    fn read_opening(
        &self,
        bp: &BlkPtrPhys,
        priority: Priority,
        opening: &Opening<'_>,
    ) -> Result<BlockBuf> {
        let (checksum, _) = check_bp(bp)?;
        let psize = bp.psize() as usize;
        self.read_dvas(bp, priority, psize, &|bytes: &[u8]| {
            let bytes = &bytes[..psize];
            opening.opens(bytes) || self.verify(checksum, bp, bytes)
        })
    }

    /// The logical bytes; with `keyless`, encrypted blocks are returned as stored.
    pub(crate) fn read_logical(
        &self,
        bp: &BlkPtrPhys,
        bookmark: &Bookmark,
        keyless: bool,
        priority: Priority,
    ) -> Result<Buf> {
        if bp.is_hole() {
            let lsize = bp.lsize();
            if lsize > SPA_MAXBLOCKSIZE {
                return Err(Error::corrupt(format!("hole {bookmark} has lsize {lsize}")));
            }
            return Ok(Buf::zeroed(lsize as usize));
        }
        if bp.is_embedded() {
            return embedded::read_embedded(bp, bookmark);
        }
        let key = match keyless {
            true => None,
            false => self.key_of(bp, bookmark)?,
        };
        let opening = Opening::new(key.as_deref(), bp);
        let mut physical = match self.read_second(bp) {
            Some(found) => found,
            None => self.read_first(bp, bookmark, priority, &opening)?,
        };
        let psize = bp.psize() as usize;
        let lost = |e: &Error| self.note_loss(bp, bookmark, priority, e);
        physical = match opening.plain() {
            Some(plain) => plain,
            None => self
                .open(key.as_deref(), bp, physical, bookmark)
                .inspect_err(lost)?,
        };
        let mut data = decompress(bp, &physical[..psize])
            .inspect_err(lost)
            .within(|| format!("block {bookmark}"))?;
        let logical = data.as_deref_mut().unwrap_or(&mut physical[..psize]);
        to_little_endian(bp, logical);
        if !keyless {
            keys::check_indirect(bp, logical, bookmark).inspect_err(lost)?;
        }
        Ok(match data {
            Some(data) => data.share(),
            None => exactly(physical, bp),
        })
    }

    /// Opens a block whose checksum is right, if it has a MAC.
    fn open(
        &self,
        key: Option<&Loaded>,
        bp: &BlkPtrPhys,
        physical: BlockBuf,
        bookmark: &Bookmark,
    ) -> Result<BlockBuf> {
        let psize = bp.psize() as usize;
        let open = |bytes: &[u8]| keys::open(key, bp, &bytes[..psize], bookmark);
        let error = match open(&physical) {
            Ok(plain) => return Ok(plain.unwrap_or(physical)),
            Err(error) => error,
        };
        let other = self.read_openable(bp, &|bytes| open(bytes).is_ok());
        let other = other.ok_or(error)?;
        Ok(open(&other)?.unwrap_or(other))
    }

    /// The bytes of a copy whose checksum is right and which can be opened, if there is one. Beside a MAC a
    /// fletcher4 is folded, which misses many a change of the last word: so another copy may have had the
    /// right checksum, too. Only if one can be opened is that an error of those which cannot.
    fn read_openable(&self, bp: &BlkPtrPhys, opens: &dyn Fn(&[u8]) -> bool) -> Option<BlockBuf> {
        let (checksum, _) = check_bp(bp).ok()?;
        if bp.is_gang() {
            return None;
        }
        let psize = bp.psize() as usize;
        let verify = |bytes: &[u8]| self.verify(checksum, bp, &bytes[..psize]) && opens(bytes);
        let io = Io::speculative(bp.physical_birth());
        let opens = |dva: DvaPhys| {
            let mut buf = self.sectors(&dva, psize);
            let read = self
                .vdevs
                .read(&io, dva.vdev(), dva.offset(), &mut buf, &verify);
            read.is_ok()
        };
        if !bp.dvas().any(opens) {
            return None;
        }
        self.read_dvas(bp, Priority::SyncRead, psize, &verify).ok()
    }

    /// Reads from the pool, and offers what was read to the second-level cache.
    fn read_first(
        &self,
        bp: &BlkPtrPhys,
        bookmark: &Bookmark,
        priority: Priority,
        opening: &Opening<'_>,
    ) -> Result<BlockBuf> {
        let physical = self.read_physical(bp, bookmark, priority, opening)?;
        let type_ = ObjectType::try_from(bp.object_type());
        let is_metadata = bp.level() > 0 || type_.is_ok_and(ObjectType::is_metadata);
        let bytes = &physical[..bp.psize() as usize];
        // What is read ahead may never be asked for.
        if priority != Priority::AsyncRead {
            self.offer_second(bp, bookmark.objset, is_metadata, bytes);
        }
        Ok(physical)
    }

    /// Checks that `physical`, verified bytes of a block (psize or a little more), also decompress: the
    /// checksum is right even if the writer's compression was not. An encrypted block cannot be checked
    /// without its key, and passes.
    ///
    /// # Errors
    /// `Corrupt` if they do not decompress to lsize bytes.
    #[doc(alias = "DSS_THOROUGH")]
    pub fn check_decompresses(
        &self,
        bp: &BlkPtrPhys,
        physical: &[u8],
        bookmark: &Bookmark,
    ) -> Result<()> {
        if bp.is_encrypted() {
            return Ok(());
        }
        let psize = (bp.psize() as usize).min(physical.len());
        decompress(bp, &physical[..psize])
            .map(|_| ())
            .within(|| format!("block {bookmark}"))
    }

    /// Like [`BlockStore::read`](crate::BlockStore::read), but returns encrypted blocks as stored
    /// instead of refusing them: the pointers in dnodes and indirect blocks are in the clear.
    ///
    /// # Errors
    /// As `BlockStore::read`, without `NoKey`.
    #[doc(alias = "ZIO_FLAG_RAW_ENCRYPT")]
    pub fn read_keyless(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        let is_block = !bp.is_hole() && !bp.is_embedded();
        if is_block && bp.is_encrypted() && bp.compress() != CompressType::Off.raw() {
            return self.read_raw(bp, bookmark);
        }
        self.read_logical(bp, bookmark, true, Priority::SyncRead)
    }

    /// Reads a log block; if it was never written, no device error is counted.
    pub(crate) fn read_log_block(
        &self,
        bp: &BlkPtrPhys,
        bookmark: &Bookmark,
        keyless: bool,
    ) -> Result<Buf> {
        let outer = || format!("log block {bookmark}");
        if bp.is_hole() || bp.is_embedded() || bp.is_gang() {
            return self.read_logical(bp, bookmark, keyless, Priority::SyncRead);
        }
        let key = match keyless {
            true => None,
            false => self.key_of(bp, bookmark)?,
        };
        let (checksum, compress) = check_bp(bp).within(outer)?;
        if compress != CompressType::Off {
            return Err(Error::corrupt(format!("compression is {compress}")).within(outer()));
        }
        let psize = bp.psize() as usize;
        let io = Io::speculative(bp.physical_birth());
        let mut bad = Vec::new();
        for dva in bp.dvas() {
            let mut buf = self.sectors(&dva, psize);
            let verify = |bytes: &[u8]| self.verify(checksum, bp, &bytes[..psize]);
            match self
                .vdevs
                .read(&io, dva.vdev(), dva.offset(), &mut buf, &verify)
            {
                Ok(()) => {
                    let plain = keys::open(key.as_deref(), bp, &buf[..psize], bookmark)?;
                    buf = plain.unwrap_or(buf);
                    to_little_endian(bp, &mut buf[..psize]);
                    return Ok(exactly(buf, bp));
                }
                Err(error) => bad.push((dva, error)),
            }
        }
        Err(worst(bad).within(outer()))
    }
}

/// The psize bytes of a block, without what fills its last sector.
fn exactly(bytes: BlockBuf, bp: &BlkPtrPhys) -> Buf {
    let psize = bp.psize() as usize;
    if bytes.len() == psize {
        return bytes.share();
    }
    Buf::copy_of(&bytes[..psize])
}

/// Decompresses all physical bytes of a block; `None` if it is not compressed.
fn decompress(bp: &BlkPtrPhys, physical: &[u8]) -> Result<Option<BlockBuf>> {
    let (_, compress) = check_bp(bp)?;
    if compress == CompressType::Off {
        return Ok(None);
    }
    let mut data = BlockBuf::scratch(bp.lsize() as usize);
    let cost = compress::Cost::of_kind(compress);
    rt::charge(rt::Work::Cycle, cost.decompress_cycles(data.len()));
    compress::decompress(compress, physical, &mut data)?;
    Ok(Some(data))
}
