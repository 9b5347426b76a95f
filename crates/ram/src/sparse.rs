//! Bytes at offsets, mostly zeros: the memory of the RAM disks.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes per piece of memory.
const CHUNK_BYTES: u64 = 64 << 10;

/// Bytes at offsets; what was never written is zero and takes no memory. Clones share chunks until one
/// of them changes them (copy-on-write).
#[derive(Clone, Debug, Default)]
pub(crate) struct SparseBytes(BTreeMap<u64, Arc<[u8]>>);

/// The pieces of a range: which chunk, the offset in it, and the offset in the range.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let within = usize::try_from(at % CHUNK_BYTES).expect("below a chunk");
        let take = (CHUNK_BYTES as usize - within).min(len - done);
        let piece = (at / CHUNK_BYTES, within, done..done + take);
        done += take;
        Some(piece)
    })
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes
        .chunks(512)
        .all(|chunk| chunk.iter().fold(0, |any, byte| any | byte) == 0)
}

impl SparseBytes {
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) {
        for (chunk, within, range) in pieces(offset, buf.len()) {
            let part = &mut buf[range];
            match self.0.get(&chunk) {
                Some(bytes) => part.copy_from_slice(&bytes[within..within + part.len()]),
                None => part.fill(0),
            }
        }
    }

    /// Zeros that are written where nothing is take no memory either.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        for (chunk, within, range) in pieces(offset, data.len()) {
            let part = &data[range];
            if !self.0.contains_key(&chunk) && is_zero(part) {
                continue;
            }
            let bytes = self
                .0
                .entry(chunk)
                .or_insert_with(|| vec![0; CHUNK_BYTES as usize].into());
            Arc::make_mut(bytes)[within..within + part.len()].copy_from_slice(part);
        }
    }

    /// Zeroes a range; chunks that it covers completely are freed.
    pub(crate) fn erase(&mut self, offset: u64, len: u64) {
        let len = usize::try_from(len).expect("a range that fits memory");
        for (chunk, within, range) in pieces(offset, len) {
            if range.len() as u64 == CHUNK_BYTES {
                self.0.remove(&chunk);
            } else if let Some(bytes) = self.0.get_mut(&chunk) {
                Arc::make_mut(bytes)[within..within + range.len()].fill(0);
            }
        }
    }

    /// The chunks that hold data, in order of offset.
    pub(crate) fn written(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.0
            .iter()
            .map(|(chunk, bytes)| (chunk * CHUNK_BYTES, &**bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prop_behaves_as_a_plain_array(
            ops in prop::collection::vec((0u8..3, 0u64..300_000, 0usize..150_000, any::<u8>()), 1..20)
        ) {
            let mut plain = vec![0u8; 500_000];
            let mut sparse = SparseBytes::default();
            for (op, offset, len, fill) in ops {
                let range = offset as usize..offset as usize + len;
                match op {
                    0 => {
                        plain[range].fill(fill);
                        sparse.write(offset, &vec![fill; len]);
                    }
                    1 => {
                        plain[range].fill(0);
                        sparse.erase(offset, len as u64);
                    }
                    _ => {
                        let mut got = vec![1; len];
                        sparse.read(offset, &mut got);
                        prop_assert!(got == plain[range]);
                    }
                }
            }
        }
    }
}
