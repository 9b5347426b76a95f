//! Checksums inside the block they protect.
//!
//! # What it is
//! Labels and uberblocks are found by their place on the device, gang headers and intent log
//! blocks by pointers that are written before their contents are known. No block pointer can carry
//! the checksum of these blocks, so they contain it themselves, in a `zio_eck_t`: a magic number
//! and four words. To distinguish a block from an older one in the same place, the words first hold
//! a *verifier*, a value that only this block has; the hash of the whole block, verifier included,
//! then replaces it.
//!
//! # On disk
//! ```text
//! zio_eck_t       0   8  zec_magic   0x0210da7ab10c7a11
//!                 8  32  zec_cksum   the verifier while hashing; then the hash
//!
//! kind            where             hash       of            verifier
//! label           last 40 bytes     sha256     whole block   offset on the device, 0, 0, 0
//! gang header     last 40 bytes     sha256     whole block   vdev, offset, physical birth, 0
//! zilog           last 40 bytes     fletcher2  whole block   the words in its block pointer
//! zilog2          144..184, in      fletcher4  zc_nused, up  the words in its block pointer
//!                 zil_chain_t                  to 4096s
//! ```
//! A big-endian host writes magic, verifier, hash and `zc_nused` in its own order, and hashes that; the magic shows it.
//!
//! # Source
//! OpenZFS module/zfs/zio_checksum.c, include/sys/zio.h (`zio_eck_t`), include/sys/zil.h
//! (`zil_chain_t`) @be7657e3.

use crate::{Salt, Words, be_words, big_endian, fletcher2_append, fletcher4_append, with_mac};
use base::{Error, ErrorKind, Result, Txg, VdevId};
use phys::ChecksumType;
use sha2::Digest;
use std::ops::Range;

/// `ZEC_MAGIC`: "zio data bloc tail".
#[doc(alias = "ZEC_MAGIC")]
pub(crate) const ECK_MAGIC: u64 = 0x0210_da7a_b10c_7a11;

/// Bytes of a `zio_eck_t`.
#[doc(alias = "zio_eck_t")]
pub const ECK_BYTES: usize = 40;

const MAGIC_BYTES: usize = 8;
/// Offset of `zc_nused`, the bytes in use, in `zil_chain_t`.
const ZIL_NUSED_AT: usize = 136;
/// Offset of the `zio_eck_t` in `zil_chain_t`.
const ZIL_ECK_AT: usize = 144;
/// `ZIL_MIN_BLKSZ`: the hash covers the bytes in use, rounded up to a multiple of this.
const ZIL_ROUND_BYTES: u64 = 4096;

/// The verifier of a label block at `offset_bytes` from the start of the leaf device.
#[must_use]
#[doc(alias = "zio_checksum_label_verifier")]
pub fn label_verifier(offset_bytes: u64) -> Words {
    [offset_bytes, 0, 0, 0]
}

/// The verifier of a gang header: its first DVA (offset in bytes, as
/// [`phys::DvaPhys::offset`] returns it) and the physical birth of the pointer to it.
#[must_use]
#[doc(alias = "zio_checksum_gang_verifier")]
pub fn gang_header_verifier(vdev: VdevId, offset_bytes: u64, birth: Txg) -> Words {
    [vdev.0, offset_bytes, birth.0, 0]
}

/// The checksum that the label block at `offset_bytes` must have in its last four words.
///
/// # Panics
/// When `block` is shorter than a `zio_eck_t`.
#[must_use]
pub fn label_digest(offset_bytes: u64, block: &[u8]) -> Words {
    assert!(
        block.len() >= ECK_BYTES,
        "label block of {} bytes",
        block.len()
    );
    let eck = Eck {
        at: block.len() - ECK_BYTES,
        covered: block.len(),
        order: Order::Little,
    };
    eck.hash(ChecksumType::Label, &label_verifier(offset_bytes), block)
}

/// Whether a block ends as a label block does. It may be anything else nevertheless.
#[must_use]
pub fn has_magic(block: &[u8]) -> bool {
    block.len() >= ECK_BYTES && Order::of_magic(block, block.len() - ECK_BYTES).is_some()
}

/// At which of these offsets from the start of its device a label block was written: the one with which its checksum is
/// right. What is before the checksum is hashed once.
pub fn find_label_offset(
    block: &[u8],
    mut offsets_bytes: impl Iterator<Item = u64>,
) -> Option<u64> {
    let eck = Eck::locate(ChecksumType::Label, block).ok()?;
    if !has_magic(block) {
        return None;
    }
    let mut before = sha2::Sha256::new();
    before.update(&block[..eck.words().start]);
    let stored = eck.stored(block);
    offsets_bytes.find(|offset| {
        let mut sha256 = before.clone();
        sha256.update(eck.order.to_bytes(&label_verifier(*offset)));
        be_words(&sha256.finalize().into()) == stored
    })
}

/// Writes magic and checksum into `block`, whose other contents are final.
///
/// For `zilog2`, `zc_nused` must be in place.
///
/// # Panics
/// When `kind` is not embedded, or the block is too short for it: programmer errors.
#[doc(alias = "zio_checksum_compute")]
pub fn set(kind: ChecksumType, verifier: &Words, block: &mut [u8]) {
    seal(kind, verifier, false, block);
}

/// As [`set`], for an encrypted log block: the last two words are its MAC, and stay.
///
/// # Panics
/// As [`set`].
#[doc(alias = "zio_checksum_handle_crypt")]
pub fn set_beside_mac(kind: ChecksumType, verifier: &Words, block: &mut [u8]) {
    seal(kind, verifier, true, block);
}

fn seal(kind: ChecksumType, verifier: &Words, has_mac: bool, block: &mut [u8]) {
    let eck = Eck::in_order(kind, block, Order::Little);
    let eck = eck.unwrap_or_else(|e| panic!("sealing a block: {e}"));
    block[eck.at..eck.at + MAGIC_BYTES].copy_from_slice(&ECK_MAGIC.to_le_bytes());
    let words = eck.expected(kind, verifier, has_mac, block);
    let range = eck.words();
    block[range].copy_from_slice(&eck.order.to_bytes(&words));
}

/// Checks the block against its own checksum.
///
/// # Errors
/// [`ErrorKind::Checksum`] when the block is not what was written there, also if it is too short or
/// lacks the magic.
///
/// # Panics
/// When `kind` is not embedded.
#[doc(alias = "zio_checksum_error_impl")]
pub fn verify(kind: ChecksumType, verifier: &Words, block: &[u8]) -> Result<()> {
    check(kind, verifier, false, block)
}

/// As [`verify`], for an encrypted log block, whose last two words are its MAC, or for the gang header of an encrypted
/// block, where they mean nothing.
///
/// # Errors
/// As [`verify`].
///
/// # Panics
/// As [`verify`].
pub fn verify_beside_mac(kind: ChecksumType, verifier: &Words, block: &[u8]) -> Result<()> {
    check(kind, verifier, true, block)
}

fn check(kind: ChecksumType, verifier: &Words, has_mac: bool, block: &[u8]) -> Result<()> {
    let eck = Eck::locate(kind, block)?;
    let magic = eck.order.read(block, eck.at);
    if magic != ECK_MAGIC {
        return Err(mismatch(format!("zec_magic is {magic:#x}")));
    }
    let expected = eck.stored(block);
    let actual = eck.expected(kind, verifier, has_mac, block);
    if actual != expected {
        return Err(mismatch(format!(
            "{kind} block hashes to {actual:x?}, zec_cksum is {expected:x?}"
        )));
    }
    Ok(())
}

/// The byte order of the host that wrote a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

impl Order {
    /// The order of the block whose magic is at `at`, if that is one.
    fn of_magic(block: &[u8], at: usize) -> Option<Order> {
        [Order::Little, Order::Big]
            .into_iter()
            .find(|order| order.read(block, at) == ECK_MAGIC)
    }

    fn read(self, block: &[u8], at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&block[at..at + 8]);
        match self {
            Order::Little => u64::from_le_bytes(bytes),
            Order::Big => u64::from_be_bytes(bytes),
        }
    }

    fn to_bytes(self, words: &Words) -> Salt {
        let mut bytes = [0; 32];
        for (out, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *out = match self {
                Order::Little => word.to_le_bytes(),
                Order::Big => word.to_be_bytes(),
            };
        }
        bytes
    }
}

/// The offset of a block's `zio_eck_t`, how many bytes of the block are hashed, and who wrote it.
struct Eck {
    at: usize,
    covered: usize,
    order: Order,
}

impl Eck {
    /// That of a block that was written, in the order that its magic shows.
    fn locate(kind: ChecksumType, block: &[u8]) -> Result<Eck> {
        let at = Eck::at(kind, block)?;
        let order = Order::of_magic(block, at).unwrap_or(Order::Little);
        Eck::in_order(kind, block, order)
    }

    fn at(kind: ChecksumType, block: &[u8]) -> Result<usize> {
        assert!(kind.is_embedded(), "{kind} is not an embedded checksum");
        let size = block.len();
        let at = match kind {
            ChecksumType::Zilog2 => Some(ZIL_ECK_AT).filter(|at| at + ECK_BYTES <= size),
            _ => size.checked_sub(ECK_BYTES),
        };
        at.ok_or_else(|| mismatch(format!("{kind} block of {size} bytes")))
    }

    fn in_order(kind: ChecksumType, block: &[u8], order: Order) -> Result<Eck> {
        let at = Eck::at(kind, block)?;
        let size = block.len();
        let covered = match kind {
            ChecksumType::Zilog2 => {
                let nused = order.read(block, ZIL_NUSED_AT);
                nused
                    .checked_next_multiple_of(ZIL_ROUND_BYTES)
                    .and_then(|bytes| usize::try_from(bytes).ok())
                    .filter(|bytes| (ZIL_ECK_AT + ECK_BYTES..=size).contains(bytes))
                    .ok_or_else(|| {
                        mismatch(format!("zc_nused is {nused} in a block of {size} bytes"))
                    })?
            }
            _ => size,
        };
        Ok(Eck { at, covered, order })
    }

    /// The range of the four words.
    fn words(&self) -> Range<usize> {
        self.at + MAGIC_BYTES..self.at + ECK_BYTES
    }

    /// The four words as they are.
    fn stored(&self, block: &[u8]) -> Words {
        std::array::from_fn(|i| self.order.read(block, self.words().start + i * 8))
    }

    /// The four words as they should be.
    fn expected(&self, kind: ChecksumType, verifier: &Words, has_mac: bool, block: &[u8]) -> Words {
        let hash = self.hash(kind, verifier, block);
        if !has_mac {
            return hash;
        }
        let [_, _, mac @ ..] = self.stored(block);
        with_mac(kind, &hash, mac)
    }

    /// The hash of the block with the verifier in place of the words.
    fn hash(&self, kind: ChecksumType, verifier: &Words, block: &[u8]) -> Words {
        let words = self.words();
        let parts = [
            &block[..words.start],
            &self.order.to_bytes(verifier)[..],
            &block[words.end..self.covered],
        ];
        match kind {
            ChecksumType::Zilog | ChecksumType::Zilog2 if self.order == Order::Big => {
                let append = |sums, part: &&[u8]| big_endian::append(kind, sums, part);
                parts.iter().fold([0; 4], append)
            }
            ChecksumType::Zilog => parts.iter().fold([0; 4], |w, p| fletcher2_append(w, p)),
            ChecksumType::Zilog2 => parts.iter().fold([0; 4], |w, p| fletcher4_append(w, p)),
            _ => {
                let mut sha256 = sha2::Sha256::new();
                parts.iter().for_each(|part| sha256.update(part));
                be_words(&sha256.finalize().into())
            }
        }
    }
}

fn mismatch(context: String) -> Error {
    Error::new(ErrorKind::Checksum, context)
}
