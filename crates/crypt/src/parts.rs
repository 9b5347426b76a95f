//! Blocks of which only parts are encrypted: dnodes and log blocks.
//!
//! # On disk
//! What must be readable without a key stays as it is, and is part of what the MAC covers: cores and pointers of
//! dnodes; headers and pointers of log records. The encrypted parts are one text, in the order in which they lie in the
//! block. What the system itself changes without a key (space that an object uses, accounting flags) is not covered.
//!
//! A block of a big-endian host is still as that host wrote it here, and what the MAC covers, too; but of pointers the
//! properties are covered as little-endian words on every host.
//!
//! # Source
//! OpenZFS module/os/linux/zfs/zio_crypt.c (`zio_crypt_init_uios_dnode`, `zio_crypt_init_uios_zil`).

use std::borrow::Cow;
use std::mem::offset_of;
use std::ops::Range;

use base::{Error, Result};
use phys::byteswap::{swap_log_block, swap_words};
use phys::dnode::{DNODE_CORE_SIZE, DNODE_FLAG_SPILL_BLKPTR, DNODE_MIN_SIZE};
use phys::zil::{LrCloneRangePhys, LrWritePhys, records, tx};
use phys::{BlkPtrPhys, DnodePhys, LrPhys, ObjectType, Phys, ZilChainPhys};
use zerocopy::IntoBytes;

use crate::mac::pointer_code;

/// Bytes of a block pointer.
const BLKPTR_SIZE: usize = size_of::<BlkPtrPhys>();

/// The byte order of the host that wrote a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Little,
    Big,
}

impl Order {
    /// That of the block that a pointer points to.
    pub(crate) fn of(bp: &BlkPtrPhys) -> Order {
        match bp.is_little_endian() {
            true => Order::Little,
            false => Order::Big,
        }
    }
}

/// Which bytes of a block are encrypted, and what else its MAC covers.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) encrypted: Vec<Range<usize>>,
    pub(crate) aad: Vec<u8>,
}

impl Parts {
    /// The encrypted parts, one after the other.
    pub(crate) fn gather(&self, block: &[u8]) -> Vec<u8> {
        let parts = self.encrypted.iter().map(|range| &block[range.clone()]);
        parts.collect::<Vec<_>>().concat()
    }

    /// Writes back what [`gather`](Parts::gather) returned.
    pub(crate) fn scatter(&self, text: &[u8], block: &mut [u8]) {
        let mut rest = text;
        for range in &self.encrypted {
            let (part, after) = rest.split_at(range.len());
            block[range.clone()].copy_from_slice(part);
            rest = after;
        }
    }
}

/// The core of a dnode as MACs cover it.
pub(crate) fn portable_core(core: &DnodePhys) -> DnodePhys {
    let mut core = *core;
    core.flags &= DNODE_FLAG_SPILL_BLKPTR;
    core.used.set(0);
    core
}

/// The pointers of the dnode that `bytes` start with: those of the tree, and the spill pointer.
///
/// # Errors
/// `Corrupt` when they, or the dnode, do not fit.
pub(crate) fn dnode_pointers(bytes: &[u8]) -> Result<(Vec<&BlkPtrPhys>, Range<usize>)> {
    let core = DnodePhys::view(bytes)?;
    let (start, size) = (core.bonus_offset(), core.size());
    let spill = if core.has_spill() { BLKPTR_SIZE } else { 0 };
    let fits = size <= bytes.len() && start.saturating_add(spill) <= size;
    if !fits {
        let (count, have) = (core.nblkptr, bytes.len());
        let what = format!("dnode of {size} bytes with {count} pointers in {have} bytes");
        return Err(Error::corrupt(what));
    }
    let bonus = start..size - spill;
    let mut pointers: Vec<&BlkPtrPhys> = BlkPtrPhys::array(&bytes[DNODE_CORE_SIZE..start])
        .iter()
        .collect();
    if core.has_spill() {
        pointers.push(BlkPtrPhys::view(&bytes[bonus.end..])?);
    }
    Ok((pointers, bonus))
}

/// The parts of a block of dnodes.
///
/// # Errors
/// `Corrupt` for dnodes that do not fit.
pub(crate) fn dnodes(block: &[u8], order: Order) -> Result<Parts> {
    let mut parts = Parts::default();
    let code = |bp: &BlkPtrPhys| {
        let mut bp = *bp;
        if order == Order::Big {
            swap_words(bp.as_mut_bytes());
        }
        pointer_code(&bp)
    };
    let mut at = 0;
    while at + DNODE_MIN_SIZE <= block.len() {
        let bytes = &block[at..];
        let core = DnodePhys::view(bytes)?;
        let (pointers, bonus) = dnode_pointers(bytes)?;
        parts.aad.extend(portable_core(core).as_bytes());
        for bp in pointers {
            parts.aad.extend(code(bp));
        }
        let type_ = ObjectType::try_from(core.bonustype);
        let is_secret = type_.is_ok_and(ObjectType::is_encrypted);
        if core.is_allocated() && is_secret && core.bonuslen.get() != 0 {
            parts.encrypted.push(at + bonus.start..at + bonus.end);
        } else {
            parts.aad.extend(&bytes[bonus]);
        }
        at += core.size();
    }
    Ok(parts)
}

/// The parts of a log block.
///
/// # Errors
/// `Corrupt` for records that do not fit.
pub(crate) fn log(block: &[u8], order: Order) -> Result<Parts> {
    // Only to find the records.
    let mut readable = Cow::Borrowed(block);
    if order == Order::Big {
        swap_log_block(true, readable.to_mut());
    }
    let chain = ZilChainPhys::view(&readable)?;
    let used = usize::try_from(chain.nused.get()).ok();
    let range = used.and_then(|used| readable.get(ZilChainPhys::SIZE..used));
    let body = range.ok_or_else(|| {
        let (used, len) = (chain.nused.get(), block.len());
        Error::corrupt(format!("log block of {len} bytes uses {used}"))
    })?;
    let mut parts = Parts::default();
    parts.aad.extend(&block[..offset_of!(ZilChainPhys, eck)]);
    let mut at = ZilChainPhys::SIZE;
    for record in records(body) {
        let (common, readable) = record?;
        let record = &block[at..at + readable.len()];
        parts.aad.extend(&record[..LrPhys::SIZE]);
        let clear = clear_in_record(common.txtype.get(), record.len())?;
        parts.aad.extend(&record[clear.clone()]);
        let secret = [LrPhys::SIZE..clear.start, clear.end..record.len()];
        let secret = secret.into_iter().filter(|range| !range.is_empty());
        let absolute = secret.map(|range| at + range.start..at + range.end);
        parts.encrypted.extend(absolute);
        at += record.len();
    }
    Ok(parts)
}

/// What is readable of a record behind its common part: pointers.
fn clear_in_record(type_: u64, len: usize) -> Result<Range<usize>> {
    let clear = match type_ {
        tx::WRITE => offset_of!(LrWritePhys, blkptr)..LrWritePhys::SIZE,
        tx::CLONE_RANGE => offset_of!(LrCloneRangePhys, nbps)..len,
        _ => len..len,
    };
    if clear.start > clear.end || clear.end > len {
        return Err(Error::corrupt(format!("log record {type_} of {len} bytes")));
    }
    Ok(clear)
}
