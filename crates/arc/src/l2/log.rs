//! Log blocks of a cache device, and its header, as bytes.
//!
//! # Source
//! OpenZFS `module/zfs/arc.c` (`l2arc_log_blk_commit`, `l2arc_log_blk_read`, `l2arc_dev_hdr_read`).

use base::{Error, Result, align_up};
use checksum::fletcher4;
use compress::{Algorithm, decompress};
use phys::l2arc::{
    L2ARC_LOG_BYTES, L2ARC_LOG_MAGIC, L2EntryPhys, L2LogHeadPhys, L2LogPtrPhys, L2Prop,
};
use phys::{ChecksumType, CompressType, Phys};

/// A log block with these entries, in whole sectors, and the `prop` and checksum of the pointer to it.
pub(crate) fn encode(
    previous: L2LogPtrPhys,
    entries: &[L2EntryPhys],
    ashift: u32,
) -> (Vec<u8>, u64, [u64; 4]) {
    let mut whole = vec![0; L2ARC_LOG_BYTES];
    let mut head = L2LogHeadPhys::default();
    head.magic.set(L2ARC_LOG_MAGIC);
    head.prev_lbp = previous;
    head.write(&mut whole);
    let room = whole[L2LogHeadPhys::SIZE..].chunks_exact_mut(L2EntryPhys::SIZE);
    entries
        .iter()
        .zip(room)
        .for_each(|(entry, bytes)| entry.write(bytes));
    // At least one sector is to be saved.
    let mut packed = vec![0; L2ARC_LOG_BYTES - (1 << ashift)];
    let length = compress::compress(Algorithm::Lz4, &whole, &mut packed);
    let (bytes, kind) = match length {
        Some(length) => {
            packed.resize(align_up(length as u64, 1 << ashift) as usize, 0);
            packed[length..].fill(0);
            (packed, CompressType::Lz4)
        }
        None => (whole, CompressType::Off),
    };
    let prop = L2Prop {
        lsize: L2ARC_LOG_BYTES as u64,
        psize: bytes.len() as u64,
        compress: kind.raw(),
        checksum: ChecksumType::Fletcher4.raw(),
        // Zero on disk.
        contents: u8::MAX,
        is_protected: false,
        state: 0,
    };
    let words = fletcher4(&bytes);
    (bytes, prop.raw(), words)
}

/// The entries of a log block, and the pointer in it.
///
/// # Errors
/// `Corrupt` if it is not the one that the pointer means.
pub(crate) fn decode(
    pointer: &L2LogPtrPhys,
    bytes: &[u8],
) -> Result<(L2LogPtrPhys, Vec<L2EntryPhys>)> {
    let wrong = |what: &str| Error::corrupt(format!("log block of a cache device: {what}"));
    let mut found = *pointer;
    found.cksum = fletcher4(bytes).map(Into::into);
    if found != *pointer {
        return Err(wrong("checksum"));
    }
    let prop = L2Prop::from_raw(pointer.prop.get());
    let mut whole = vec![0; L2ARC_LOG_BYTES];
    match CompressType::try_from(prop.compress) {
        Ok(CompressType::Off) if bytes.len() == whole.len() => whole.copy_from_slice(bytes),
        Ok(CompressType::Lz4) => decompress(CompressType::Lz4, bytes, &mut whole)?,
        _ => return Err(wrong("compression")),
    }
    let head = L2LogHeadPhys::read(&whole)?;
    if head.magic.get() != L2ARC_LOG_MAGIC {
        return Err(wrong("magic number"));
    }
    let entries = L2EntryPhys::array(&whole[L2LogHeadPhys::SIZE..]);
    Ok((head.prev_lbp, entries.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_blocks_come_back() {
        for (count, noise) in [(3_u64, 0), (1022, 0), (1022, 0x9e37_79b9_7f4a_7c15_u64)] {
            let entry = |n: u64| {
                let mut entry = L2EntryPhys::default();
                entry.birth.set(n.wrapping_mul(noise | 1));
                entry.daddr.set(n.wrapping_mul(noise).rotate_left(21));
                entry.dva[0].set(n.wrapping_mul(noise).rotate_left(7));
                entry.dva[1].set(n.wrapping_mul(noise).rotate_left(47));
                entry
            };
            let entries: Vec<L2EntryPhys> = (1..=count).map(entry).collect();
            let mut previous = L2LogPtrPhys::default();
            previous.daddr.set(77);
            let (bytes, prop, words) = encode(previous, &entries, 12);
            assert_eq!(bytes.len() % 4096, 0);
            let mut pointer = L2LogPtrPhys::default();
            pointer.prop.set(prop);
            pointer.cksum = words.map(Into::into);
            let (before, found) = decode(&pointer, &bytes).unwrap();
            assert_eq!(before, previous);
            assert_eq!(found[..entries.len()], entries);
            let mut damaged = bytes.clone();
            damaged[200] ^= 1;
            assert!(decode(&pointer, &damaged).is_err());
        }
    }
}
