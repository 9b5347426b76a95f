//! Repeating the logged changes that a crash has undone.
//!
//! Source: OpenZFS module/zfs/zil.c (`zil_replay`, `zil_replay_log_record`) @be7657e3.

use base::{Error, ErrorKind, ObjectId, Result};
use phys::zil::{LrOooPhys, LrWritePhys, ZIL_REPLAY_NEEDED, foid_object, tx};
use phys::{LrPhys, Phys};
use zio::Bookmark;

use crate::chain::{Visitor, parse};
use crate::zilog::Zilog;

/// Replays records: a file system or a volume.
pub trait ReplaySink {
    /// Replays one record. Must pass the transaction in which it does so to
    /// [`Zilog::is_replaying`], which notes that this record is replayed.
    ///
    /// `record`: the whole record, with the data of a write. Its type may be one that the sink does
    /// not know.
    ///
    /// # Errors
    /// An error ends the replay, after one more try.
    fn replay(&mut self, common: &LrPhys, record: &[u8]) -> Result<()>;
}

/// The outcome of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Records replayed.
    pub records: u64,
    /// Records of txgs that had been synced, or of files that are gone.
    pub skipped: u64,
}

impl Zilog {
    /// Replays the log if it has anything to replay, and leaves an empty one. To be called before
    /// the objset is changed; a log that is already in use is left alone.
    ///
    /// # Errors
    /// `Suspended`; the error of a record that could not be replayed: the records before it are
    /// replayed, the rest of the log is discarded.
    #[doc(alias = "zil_replay")]
    pub fn replay(&self, sink: &mut dyn ReplaySink) -> Result<Replayed> {
        let header = self.header();
        if self.is_in_use() {
            return Ok(Replayed::default());
        }
        if header.flags.get() & ZIL_REPLAY_NEEDED == 0 {
            // A block that is in the order of another host is not begun here.
            self.destroy(header.log.is_little_endian())?;
            return Ok(Replayed::default());
        }
        self.begin_replay();
        let mut replay = Replay {
            zilog: self,
            sink,
            done: Replayed::default(),
        };
        let outcome = parse(self.store(), self.objset().id(), &header, &mut replay);
        let done = replay.done;
        let destroyed = self.destroy(false);
        // Also when the log is left as it is: what changes from now on is to be logged.
        self.end_replay();
        destroyed?;
        outcome.map(|_| done)
    }
}

struct Replay<'a> {
    zilog: &'a Zilog,
    sink: &'a mut dyn ReplaySink,
    done: Replayed,
}

impl Replay<'_> {
    /// The record with its data appended, if the data is in a block of its own.
    fn complete(&self, common: &LrPhys, record: &[u8]) -> Result<Vec<u8>> {
        let mut bytes = record.to_vec();
        if common.tx_type() != tx::WRITE || record.len() != LrWritePhys::SIZE {
            return Ok(bytes);
        }
        let write = LrWritePhys::read(record)?;
        let length = usize::try_from(write.length.get()).unwrap_or(usize::MAX);
        if length as u64 > base::SPA_MAXBLOCKSIZE {
            return Err(Error::corrupt(format!("lr_length is {length}")));
        }
        let mut data = vec![0; length];
        if !write.blkptr.is_hole() {
            let objset = self.zilog.objset().id();
            let bookmark = Bookmark::zil(objset, common.seq.get());
            let block = self.zilog.store().read(&write.blkptr, &bookmark)?;
            // The block starts where the file's block does; the write may be a part of it.
            let skip = match block.len() >= length {
                true => usize::try_from(write.offset.get() % block.len() as u64).unwrap_or(0),
                false => 0,
            };
            let from = if skip + length <= block.len() {
                skip
            } else {
                0
            };
            let len = length.min(block.len());
            data[..len].copy_from_slice(&block[from..from + len]);
        }
        bytes.extend_from_slice(&data);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        Ok(bytes)
    }
}

impl Visitor for Replay<'_> {
    fn needs_key(&self) -> bool {
        true
    }

    fn record(&mut self, common: &LrPhys, record: &[u8]) -> Result<()> {
        let header = self.zilog.header();
        self.zilog.set_replaying(common.seq.get());
        let is_done = common.seq.get() <= header.replay_seq.get();
        if is_done || common.txg.get() < header.claim_txg.get() {
            self.done.skipped += 1;
            return Ok(());
        }
        if common.tx_type() == 0 || common.tx_type() >= tx::MAX_TYPE {
            return Err(Error::corrupt(format!(
                "log record of type {}",
                common.tx_type()
            )));
        }
        if common.is_out_of_order() {
            let object = ObjectId(foid_object(LrOooPhys::read(record)?.foid.get()));
            match self.zilog.objset().hold(object) {
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Exists) => {
                    self.done.skipped += 1;
                    return Ok(());
                }
                other => drop(other?),
            }
        }
        let record = self
            .complete(common, record)
            .map_err(|error| broken(common, &error))?;
        if self.sink.replay(common, &record).is_err() {
            // An object number freed in a txg cannot be reused before that txg is synced.
            self.zilog.wait_synced()?;
            self.sink
                .replay(common, &record)
                .map_err(|error| broken(common, &error))?;
        }
        self.done.records += 1;
        Ok(())
    }
}

/// The error of a record; not `Checksum`, which would only end the log.
fn broken(common: &LrPhys, error: &Error) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("log record {}: {error}", common.seq.get()),
    )
}
