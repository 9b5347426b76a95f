//! A batch of blocks to be written: as many as fit into memory.

use zio::WriteRequest;

/// Bytes after which a batch is written.
const BATCH_BYTES: u64 = 8 << 20;
/// Blocks after which a batch is written.
const BATCH_BLOCKS: usize = 16_384;
/// `BlockOwner::level` of a spill block.
const SPILL: u8 = u8::MAX;

/// Where a block belongs.
pub(super) struct BlockOwner {
    /// Index of the dnode's work.
    pub(super) work: usize,
    pub(super) level: u8,
    pub(super) blkid: u64,
}

impl BlockOwner {
    pub(super) fn spill(work: usize) -> BlockOwner {
        BlockOwner {
            work,
            level: SPILL,
            blkid: 0,
        }
    }

    pub(super) fn is_spill(&self) -> bool {
        self.level == SPILL
    }
}

#[derive(Default)]
pub(super) struct Batch {
    places: Vec<BlockOwner>,
    requests: Vec<WriteRequest>,
    bytes: u64,
}

impl Batch {
    pub(super) fn push(&mut self, place: BlockOwner, request: WriteRequest) {
        self.bytes += request.data.len() as u64;
        self.places.push(place);
        self.requests.push(request);
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES || self.requests.len() >= BATCH_BLOCKS
    }

    pub(super) fn take(&mut self) -> (Vec<BlockOwner>, Vec<WriteRequest>) {
        let Batch {
            places, requests, ..
        } = std::mem::take(self);
        (places, requests)
    }
}
