//! Blocks that carry their checksum inside themselves: gang headers and log blocks.
//!
//! # On disk
//! A `zio_eck_t` is the magic word and four words of checksum. It ends a gang header and a
//! `zilog` block; in a `zilog2` block it ends the `zil_chain_t` at the front. The checksum is
//! taken over the block while its own place holds the *verifier*: something only this block can
//! have, so that an older block at the same place does not pass.
//!
//! | kind        | sum       | verifier                          | over                     |
//! |-------------|-----------|-----------------------------------|--------------------------|
//! | gang header | SHA-256   | vdev, offset, physical birth, 0   | the header               |
//! | zilog       | Fletcher-2| blk_cksum of the pointer to it    | the block                |
//! | zilog2      | Fletcher-4| blk_cksum of the pointer to it    | zc_nused rounded to 4 KiB|
//!
//! # Source
//! OpenZFS `module/zfs/zio_checksum.c`, `include/sys/zil.h`.

use base::align_up;
use phys::ChecksumType;
use phys::blkptr::BlkPtrPhys;

/// `ZEC_MAGIC`
const MAGIC: u64 = 0x0210_da7a_b10c_7a11;
/// Bytes of a `zio_eck_t`.
const ECK_BYTES: usize = 40;
/// Bytes of a `zil_chain_t`.
const CHAIN_BYTES: usize = 184;
/// Where zc_nused lies.
const NUSED_OFFSET: usize = 136;
/// `ZIL_MIN_BLKSZ`
const ZIL_MIN_BLKSZ: u64 = 4096;

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn put(bytes: &mut [u8], at: usize, words: &[u64]) {
    for (i, w) in words.iter().enumerate() {
        bytes[at + 8 * i..][..8].copy_from_slice(&w.to_le_bytes());
    }
}

/// How much of the block is summed, and where its zio_eck_t is. None if that makes no sense.
fn extent(kind: ChecksumType, block: &[u8]) -> Option<(usize, usize)> {
    if kind != ChecksumType::Zilog2 {
        return Some((block.len(), block.len().checked_sub(ECK_BYTES)?));
    }
    if block.len() < CHAIN_BYTES {
        return None;
    }
    let used = word(block, NUSED_OFFSET);
    let sum = usize::try_from(align_up(used.min(1 << 40), ZIL_MIN_BLKSZ)).ok()?;
    (CHAIN_BYTES..=block.len())
        .contains(&sum)
        .then_some((sum, CHAIN_BYTES - ECK_BYTES))
}

fn digest(kind: ChecksumType, bytes: &[u8]) -> [u64; 4] {
    match kind {
        ChecksumType::Zilog => checksum::fletcher2(bytes),
        ChecksumType::Zilog2 => checksum::fletcher4(bytes),
        _ => checksum::digest(ChecksumType::Sha256, &[0; 32], bytes),
    }
}

fn verifier(kind: ChecksumType, bp: &BlkPtrPhys) -> [u64; 4] {
    if kind == ChecksumType::GangHeader {
        let dva = bp.dva[0];
        [dva.vdev().0, dva.offset(), bp.physical_birth().0, 0]
    } else {
        bp.cksum_words()
    }
}

/// Writes the embedded checksum of `kind` into `block`.
pub(crate) fn seal(kind: ChecksumType, bp: &BlkPtrPhys, block: &mut [u8]) {
    let (sum, at) = extent(kind, block).expect("the writer knows the layout of its blocks");
    put(block, at, &[MAGIC]);
    put(block, at + 8, &verifier(kind, bp));
    let words = digest(kind, &block[..sum]);
    put(block, at + 8, &words);
}

/// Completes a log block as its pointer asks.
pub(crate) fn seal_log(bp: &BlkPtrPhys, block: &mut [u8]) {
    let kind = ChecksumType::try_from(bp.checksum()).expect("a log block's own pointer");
    seal(kind, bp, block);
}

/// Whether `block` carries the checksum that `bp` asks for.
pub(crate) fn verify(kind: ChecksumType, bp: &BlkPtrPhys, block: &[u8]) -> bool {
    let Some((sum, at)) = extent(kind, block) else {
        return false;
    };
    if word(block, at) != MAGIC {
        return false;
    }
    let mut copy = base::BlockBuf::copy_of(&block[..sum]);
    put(&mut copy, at + 8, &verifier(kind, bp));
    let words = digest(kind, &copy);
    (0..4).all(|i| word(block, at + 8 + 8 * i) == words[i])
}
