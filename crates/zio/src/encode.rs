//! The stages of a write that need nothing but the processor: zero detection, compression,
//! embedding, checksum.
//!
//! # What it is
//! [`encode`] turns a request into a block pointer without DVAs and the physical bytes that the
//! DVAs will hold. It is a pure function, so a batch runs it on all cores.
//!
//! # Invariants
//! 1. psize is a multiple of 512 and at most lsize; psize < lsize only if the block is compressed.
//! 2. A compressed block's tail up to psize is zero, and is part of what is checksummed.
//! 3. An uncompressed block is never copied: its physical bytes are the request's buffer.
//!
//! # Source
//! OpenZFS `module/zfs/zio.c` (`zio_write_compress`, `zio_get_compression_max_size`),
//! `module/zfs/blkptr.c`.

use base::{BlockBuf, Buf, Result, SPA_MAXBLOCKSIZE, SPA_MINBLOCKSIZE, Txg};
use compress::Algorithm;
use phys::blkptr::EMBEDDED_TYPE_DATA;
use phys::{BlkPtrPhys, ChecksumType, CompressType, ObjectType};

use crate::{BPE_PAYLOAD_SIZE, Dedup, Keys, WriteRequest, keys};

/// What encoding needs to know about the pool.
#[derive(Clone, Copy)]
pub(crate) struct Pool<'a> {
    pub(crate) checksums: &'a checksum::Templates,
    pub(crate) keys: &'a Keys,
    /// `spa_min_alloc`
    pub(crate) min_alloc: u64,
    /// `spa_gcd_alloc`
    pub(crate) gcd_alloc: u64,
    /// Whether holes record the txg in which they were punched (feature `hole_birth`).
    pub(crate) hole_birth: bool,
}

impl Pool<'_> {
    /// `zio_roundup_alloc_size`: what a block of `size` bytes is padded to.
    pub(crate) fn round_up(&self, size: u64) -> u64 {
        if size > self.min_alloc {
            size.next_multiple_of(self.gcd_alloc)
        } else {
            self.min_alloc
        }
    }
}

/// The bytes to be stored: the first `psize` of `buf`.
#[derive(Clone, Debug)]
pub(crate) struct Physical {
    pub(crate) buf: Buf,
    pub(crate) psize: usize,
}

impl Physical {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buf[..self.psize]
    }
}

/// A block that is ready to be allocated; without `physical` it needs no space.
#[derive(Clone, Debug)]
pub(crate) struct Encoded {
    pub(crate) bp: BlkPtrPhys,
    pub(crate) physical: Option<Physical>,
}

impl Encoded {
    fn without_place(bp: BlkPtrPhys) -> Self {
        Encoded { bp, physical: None }
    }
}

/// Whether all bytes are zero.
#[doc(alias = "abd_cmp_zero")]
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let any = |chunk: &[u8]| chunk.iter().fold(0, |acc, b| acc | b) != 0;
    let (head, tail) = bytes.split_at(bytes.len().min(32));
    !any(head) && !tail.chunks(512).any(any)
}

/// How many bytes [`encode`] is going to look at.
pub(crate) fn work_bytes(request: &WriteRequest) -> usize {
    let is_ready = request.policy.sums_on_arrival() && request.data.is_summed();
    if is_ready { 0 } else { request.data.len() }
}

/// Compresses, encrypts and checksums one block.
#[doc(alias = "zio_write_compress")]
#[doc(alias = "zio_checksum_generate")]
///
/// # Errors
/// `NoKey` for a block of an encrypted data set whose key is not loaded.
pub(crate) fn encode(pool: &Pool<'_>, txg: Txg, request: &WriteRequest) -> Result<Encoded> {
    let lsize = request.data.len() as u64;
    assert!(
        lsize > 0 && lsize.is_multiple_of(SPA_MINBLOCKSIZE),
        "lsize {lsize} of {}",
        request.bookmark
    );
    assert!(
        lsize <= SPA_MAXBLOCKSIZE,
        "lsize {lsize} of {}",
        request.bookmark
    );
    let as_it_is = || {
        let physical = Physical {
            buf: request.data.clone().into(),
            psize: request.data.len(),
        };
        let known = request.data.fletcher4();
        finish(pool, txg, request, CompressType::Off, physical, known)
    };
    let is_compressed = request.policy.compress != Algorithm::Off;
    if !is_compressed && request.policy.dedup == Dedup::Off {
        return as_it_is();
    }
    if is_zero(&request.data) {
        return Ok(Encoded::without_place(hole(pool, txg, request)));
    }
    if !is_compressed || keys::stays_uncompressed(request) {
        return as_it_is();
    }
    match compress(pool, request) {
        Compressed::Small { kind, payload } => {
            let (type_, level) = (request.object_type, request.level);
            let etype = EMBEDDED_TYPE_DATA;
            let kind = kind.raw();
            let bp = BlkPtrPhys::new_embedded(etype, &payload, lsize, kind, type_, level, txg);
            Ok(Encoded::without_place(bp))
        }
        Compressed::Block { kind, physical } => finish(pool, txg, request, kind, physical, None),
        Compressed::No => as_it_is(),
    }
}

fn hole(pool: &Pool<'_>, txg: Txg, request: &WriteRequest) -> BlkPtrPhys {
    if !pool.hole_birth {
        return BlkPtrPhys::default();
    }
    let lsize = request.data.len() as u64;
    BlkPtrPhys::new_hole(request.object_type, request.level, lsize, txg)
}

enum Compressed {
    No,
    Small {
        kind: CompressType,
        payload: Vec<u8>,
    },
    Block {
        kind: CompressType,
        physical: Physical,
    },
}

fn compress(pool: &Pool<'_>, request: &WriteRequest) -> Compressed {
    let (algorithm, data) = (request.policy.compress, &request.data);
    let (min_alloc, gcd_alloc) = (pool.min_alloc as usize, pool.gcd_alloc as usize);
    let max = compress::max_compressed_len_in_pool(algorithm, data.len(), min_alloc, gcd_alloc);
    let mut buf = BlockBuf::scratch(data.len());
    let size = compress::compress(algorithm, data, &mut buf[..max]);
    let cost = compress::Cost::of(algorithm);
    rt::charge(
        rt::Work::Cycle,
        cost.compress_cycles(data.len(), size.is_some()),
    );
    let Some(size) = size else {
        return Compressed::No;
    };
    if size >= data.len() {
        return Compressed::No;
    }
    let kind = algorithm.kind();
    if size <= BPE_PAYLOAD_SIZE && may_embed(request) {
        let payload = buf[..size].to_vec();
        return Compressed::Small { kind, payload };
    }
    let psize = pool.round_up(size as u64) as usize;
    if psize >= data.len() {
        return Compressed::No;
    }
    buf[size..psize].fill(0);
    let buf = buf.share();
    let physical = Physical { buf, psize };
    Compressed::Block { kind, physical }
}

/// Dnodes and objsets keep a fill count in their pointer, for which an embedded payload leaves no room;
/// indirect blocks are never embedded.
fn may_embed(request: &WriteRequest) -> bool {
    let has_fill = ObjectType::try_from(request.object_type).is_ok_and(ObjectType::has_fill);
    request.policy.embed && request.level == 0 && !has_fill && !request.policy.encrypt
}

fn finish(
    pool: &Pool<'_>,
    txg: Txg,
    request: &WriteRequest,
    kind: CompressType,
    mut physical: Physical,
    fletcher4: Option<[u64; 4]>,
) -> Result<Encoded> {
    let checksum = request.policy.checksum;
    assert!(
        !checksum.is_embedded() && checksum.raw() >= ChecksumType::Off.raw(),
        "checksum {checksum} of {}",
        request.bookmark
    );
    let mut bp = BlkPtrPhys::default();
    bp.set_lsize(request.data.len() as u64);
    bp.set_psize(physical.psize as u64);
    bp.set_type(request.object_type);
    bp.set_level(request.level);
    bp.set_compress(kind.raw());
    bp.set_checksum(checksum.raw());
    bp.set_dedup(request.policy.dedup != Dedup::Off);
    bp.set_little_endian();
    bp.set_birth(txg, txg);
    bp.set_fill(request.fill);
    if request.policy.encrypt {
        physical = keys::seal(pool.keys, request, &mut bp, physical)?;
    }
    charge_checksum(checksum, physical.bytes().len());
    let is_as_it_was = checksum == ChecksumType::Fletcher4 && !request.policy.encrypt;
    let known = fletcher4.filter(|_| is_as_it_was);
    let digest = || pool.checksums.digest(checksum, physical.bytes());
    let digest = known.unwrap_or_else(digest);
    let [_, _, mac @ ..] = bp.cksum_words();
    bp.set_cksum(match keys::has_mac(&bp) {
        true => checksum::with_mac(checksum, &digest, mac),
        false => digest,
    });
    Ok(Encoded {
        bp,
        physical: Some(physical),
    })
}

/// Charges a simulated processor for computing a checksum.
pub(crate) fn charge_checksum(kind: ChecksumType, bytes: usize) {
    let work = match kind {
        ChecksumType::Off => return,
        ChecksumType::Fletcher2 | ChecksumType::Fletcher4 => rt::Work::Fletcher,
        _ => rt::Work::Digest,
    };
    rt::charge(work, bytes as u64);
}
