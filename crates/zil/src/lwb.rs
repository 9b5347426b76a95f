//! Log blocks being filled.
//!
//! Source: OpenZFS module/zfs/zil.c (`zil_lwb_commit`, `zil_lwb_assign`, `zil_lwb_predict`),
//! include/sys/zil_impl.h (`lwb_t`) @be7657e3.

use std::collections::VecDeque;

use base::{BlockBuf, Buf, Error, Result, Txg, align_up};
use phys::zil::{LrWritePhys, ZIL_MIN_BLKSZ, ZilChainPhys};
use phys::{BlkPtrPhys, LrPhys, Phys};

use crate::itx::{DataRequest, Itx, WriteState};

/// The largest log block, in bytes: OpenZFS's default of `zil_maxblocksize`.
pub(crate) const BLOCK_MAX_BYTES: u64 = 128 << 10;
/// Number of past commits whose sizes predict the size of a new block.
const HISTORY: usize = 8;

/// A block of the chain.
#[derive(Clone, Debug)]
#[doc(alias = "lwb_t")]
pub(crate) struct Lwb {
    pub(crate) bp: BlkPtrPhys,
    /// lwb_alloc_txg; 0 for a block that existed when the log was opened
    pub(crate) alloc_txg: Txg,
    /// lwb_max_txg: the last txg of its records
    pub(crate) max_txg: Txg,
    /// Written and flushed. False only for the last block of the chain, and for earlier ones while
    /// a commit is writing them.
    pub(crate) is_done: bool,
}

/// Records to be put into blocks.
pub(crate) struct Pending {
    itxs: VecDeque<(Txg, Itx)>,
    /// What they take: summed up once, as each block asks for it and a commit may have millions of records.
    bytes: u64,
    /// zl_lr_seq: the number of the last record.
    pub(crate) lr_seq: u64,
}

/// A block's content.
pub(crate) struct Filled {
    data: BlockBuf,
    used: usize,
    /// The last txg of the records in it.
    pub(crate) max_txg: Txg,
}

/// Estimated bytes that a record takes.
fn bytes_of(itx: &Itx) -> u64 {
    itx.record.len() as u64 + itx.data_len()
}

impl Pending {
    pub(crate) fn new(itxs: Vec<(Txg, Itx)>, lr_seq: u64) -> Pending {
        Pending {
            bytes: itxs.iter().map(|(_, itx)| bytes_of(itx)).sum(),
            itxs: itxs.into(),
            lr_seq,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.itxs.is_empty()
    }

    /// The last txg of the remaining records; 0 if there are none.
    pub(crate) fn max_txg(&self) -> Txg {
        self.itxs
            .iter()
            .map(|(txg, _)| *txg)
            .max()
            .unwrap_or(Txg(0))
    }

    /// Estimated bytes that the remaining records take; data may turn out to be gone.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn take(&mut self) -> Option<(Txg, Itx)> {
        let (txg, itx) = self.itxs.pop_front()?;
        self.bytes -= bytes_of(&itx);
        Some((txg, itx))
    }

    fn put_back(&mut self, txg: Txg, itx: Itx) {
        self.bytes += bytes_of(&itx);
        self.itxs.push_front((txg, itx));
    }

    /// Moves as many records as fit into a block of `size` bytes.
    ///
    /// # Errors
    /// Those of `get_data`; `TooBig` for a record that fits in no block.
    pub(crate) fn fill(
        &mut self,
        size: u64,
        get_data: &dyn Fn(&DataRequest) -> Result<Option<Vec<u8>>>,
    ) -> Result<Filled> {
        let mut block = Filled {
            data: BlockBuf::zeroed(size as usize),
            used: ZilChainPhys::SIZE,
            max_txg: Txg(0),
        };
        while let Some((txg, itx)) = self.take() {
            let room = block.data.len() - block.used;
            let whole = itx.record.len() + align_up(itx.data_len(), 8) as usize;
            let (itx, rest) = match itx.write_state {
                _ if whole <= room => (itx, None),
                WriteState::NeedCopy(request) => match split(itx, request, room) {
                    (Some(first), rest) => (first, rest),
                    (None, Some(rest)) => {
                        self.put_back(txg, rest);
                        break;
                    }
                    (None, None) => unreachable!("a split keeps all data"),
                },
                WriteState::Complete
                    if whole as u64 > BLOCK_MAX_BYTES - ZilChainPhys::SIZE as u64 =>
                {
                    let text = format!("log record of {whole} bytes");
                    return Err(Error::new(base::ErrorKind::TooBig, text));
                }
                WriteState::Complete => {
                    self.put_back(txg, itx);
                    break;
                }
            };
            if let Some(rest) = rest {
                self.put_back(txg, rest);
            }
            self.put(&mut block, txg, itx, get_data)?;
        }
        Ok(block)
    }

    fn put(
        &mut self,
        block: &mut Filled,
        txg: Txg,
        itx: Itx,
        get_data: &dyn Fn(&DataRequest) -> Result<Option<Vec<u8>>>,
    ) -> Result<()> {
        let mut record = itx.record;
        if let WriteState::NeedCopy(request) = itx.write_state {
            // The file is gone, or shorter by now: that was logged, or need not be.
            let Some(mut data) = get_data(&request)? else {
                return Ok(());
            };
            data.resize(align_up(request.len, 8) as usize, 0);
            record.extend_from_slice(&data);
        }
        self.lr_seq += 1;
        let reclen = record.len() as u64;
        let common = LrPhys::view_mut(&mut record)?;
        common.reclen.set(reclen);
        common.txg.set(txg.0);
        common.seq.set(self.lr_seq);
        block.data[block.used..block.used + record.len()].copy_from_slice(&record);
        block.used += record.len();
        block.max_txg = block.max_txg.max(txg);
        Ok(())
    }
}

impl Itx {
    fn data_len(&self) -> u64 {
        match self.write_state {
            WriteState::Complete => 0,
            WriteState::NeedCopy(request) => request.len,
        }
    }
}

/// Splits a write record in two, so that the first part with its data takes at most `room` bytes.
fn split(itx: Itx, request: DataRequest, room: usize) -> (Option<Itx>, Option<Itx>) {
    // In bytes; less data than this is not worth a record of its own.
    const LEAST_BYTES: usize = 512;
    let fits = room.saturating_sub(itx.record.len()) & !7;
    if fits < LEAST_BYTES {
        return (None, Some(itx));
    }
    let first = DataRequest {
        len: fits as u64,
        ..request
    };
    let rest = DataRequest {
        offset: request.offset + first.len,
        len: request.len - first.len,
        ..request
    };
    let part = |request: DataRequest| {
        let mut record = itx.record.clone();
        let write = LrWritePhys::view_mut(&mut record).expect("a write record is one");
        write.offset.set(request.offset);
        write.length.set(request.len);
        Itx {
            record,
            write_state: WriteState::NeedCopy(request),
            ..itx.clone()
        }
    };
    (Some(part(first)), Some(part(rest)))
}

impl Filled {
    /// Whether it has no records.
    pub(crate) fn is_empty(&self) -> bool {
        self.used == ZilChainPhys::SIZE
    }

    /// The finished block, which names its successor `next`.
    pub(crate) fn seal(mut self, next: BlkPtrPhys) -> Buf {
        let nused = (self.used as u64).into();
        let chain = ZilChainPhys {
            next_blk: next,
            nused,
            ..ZilChainPhys::default()
        };
        chain.write(&mut self.data);
        self.data.share()
    }
}

/// Predicts how large the next block should be.
#[derive(Default)]
pub(crate) struct Predictor {
    bursts: VecDeque<u64>,
}

impl Predictor {
    /// Notes that a commit wrote `bytes` bytes of records.
    pub(crate) fn note(&mut self, bytes: u64) {
        self.bursts.push_back(bytes);
        if self.bursts.len() > HISTORY {
            self.bursts.pop_front();
        }
    }

    /// The size of the block after this one, when `left` bytes of records are known to follow.
    pub(crate) fn block_bytes(&self, left: u64) -> u64 {
        let expected = if left > 0 {
            left
        } else {
            self.bursts.iter().copied().max().unwrap_or(0)
        };
        align_up(expected + ZilChainPhys::SIZE as u64, ZIL_MIN_BLKSZ).min(BLOCK_MAX_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ObjectId;
    use phys::zil::records;

    fn write(offset: u64, len: u64) -> Itx {
        let mut record = vec![0; LrWritePhys::SIZE];
        let phys = LrWritePhys::view_mut(&mut record).unwrap();
        phys.offset.set(offset);
        phys.length.set(len);
        let request = DataRequest {
            id: ObjectId(1),
            generation: 0,
            offset,
            len,
        };
        let write_state = WriteState::NeedCopy(request);
        Itx {
            record,
            object: ObjectId(1),
            is_sync: true,
            write_state,
        }
    }

    #[test]
    fn a_large_write_is_cut_at_the_ends_of_blocks() {
        let itxs = vec![(Txg(4), write(0, 300_000)), (Txg(5), write(1 << 20, 100))];
        let mut pending = Pending::new(itxs, 10);
        let data = |request: &DataRequest| Ok(Some(vec![7; request.len as usize]));
        let mut covered = 0;
        let mut seqs = Vec::new();
        while !pending.is_empty() {
            let block = pending.fill(BLOCK_MAX_BYTES, &data).unwrap();
            assert!(!block.is_empty());
            let left: u64 = pending.itxs.iter().map(|(_, itx)| bytes_of(itx)).sum();
            assert_eq!(pending.bytes(), left);
            let used = block.used;
            let bytes = block.seal(BlkPtrPhys::default());
            for record in records(&bytes[ZilChainPhys::SIZE..used]) {
                let (common, record) = record.unwrap();
                let write = LrWritePhys::read(record).unwrap();
                seqs.push(common.seq.get());
                if write.offset.get() < 1 << 20 {
                    assert_eq!(write.offset.get(), covered);
                    covered += write.length.get();
                }
                assert!(record.len() >= LrWritePhys::SIZE + write.length.get() as usize);
            }
        }
        assert_eq!(covered, 300_000);
        assert_eq!(seqs, [11, 12, 13, 14]);
    }

    #[test]
    fn data_that_is_gone_leaves_no_record() {
        let mut pending = Pending::new(vec![(Txg(4), write(0, 1000))], 0);
        let block = pending.fill(4096, &|_| Ok(None)).unwrap();
        assert!(block.is_empty() && pending.is_empty());
    }

    #[test]
    fn the_next_block_is_as_large_as_recent_commits() {
        let mut predictor = Predictor::default();
        assert_eq!(predictor.block_bytes(0), 4096);
        predictor.note(20_000);
        assert_eq!(predictor.block_bytes(0), 20_480);
        assert_eq!(predictor.block_bytes(1 << 20), BLOCK_MAX_BYTES);
        (0..HISTORY).for_each(|_| predictor.note(100));
        assert_eq!(predictor.block_bytes(0), 4096);
    }
}
