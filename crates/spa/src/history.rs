//! The pool's history: every command that changed it, and internal events.
//!
//! # On disk
//! One object, whose bonus (`spa_history_phys_t`) has the ends of the ring. A record is its length
//! (u64, little endian) and a packed nvlist (native encoding). Offsets are logical and never wrap;
//! the record of the pool's creation stays at the front permanently, followed by a ring:
//!
//! ```text
//! 0            pool_create_len                        phys_max_off
//! | create     | ring: logical [bof, eof) modulo its length          |
//! ```
//!
//! # Source
//! OpenZFS `module/zfs/spa_history.c`, `include/sys/spa_impl.h` (`spa_history_phys_t`).

use phys::pool_names;
use std::sync::Arc;

use base::{Error, ObjectId, Result};
use dmu::{Dnode, NewObject, Objset, Tx};
use nvpair::NvList;
use phys::{HistoryPhys, ObjectType};
use rt::Mutex;
use zerocopy::{FromBytes, IntoBytes};

use zap::directory;

/// Keys of the records (`ZPOOL_HIST_*`).
pub mod key {
    /// When, in seconds since 1970.
    pub const TIME: &str = "history time";
    /// A command line.
    pub const COMMAND: &str = "history command";
    /// The user id of a command.
    pub const WHO: &str = "history who";
    /// The zone of a command.
    pub const ZONE: &str = "history zone";
    /// The host.
    pub const HOST: &str = "history hostname";
    /// The txg of an internal event.
    pub const TXG: &str = "history txg";
    /// The details of an internal event.
    pub const INTERNAL_TEXT: &str = "history internal str";
    /// The kind of an internal event.
    pub const INTERNAL_NAME: &str = "internal_name";
    /// An ioctl that changed something.
    pub const IOCTL: &str = "ioctl";
    /// The dataset of an internal event.
    pub const DATASET: &str = "dsname";
    /// Its object.
    pub const DATASET_ID: &str = "dsid";
}

const BLOCK_BYTES: u64 = 128 << 10;
const MIN_BYTES: u64 = 128 << 10;
const MAX_BYTES: u64 = 1 << 30;
/// Longer records are treated as corrupt.
const RECORD_MAX_BYTES: u64 = 1 << 20;

/// The history object of an open pool.
pub struct History {
    dnode: Arc<Dnode>,
    lock: Mutex<()>,
}

/// One record.
#[derive(Debug, Clone)]
pub struct Record(pub NvList);

/// The record of a command, without the host.
pub(crate) fn command_record(command: &str) -> NvList {
    NvList::new()
        .with(key::TIME, rt::wall_clock().secs)
        .with(key::COMMAND, command)
        .with(key::WHO, crate::host::user())
        .with(key::ZONE, "linux")
}

/// The record of an internal event, without the host.
#[doc(alias = "log_internal")]
pub(crate) fn internal_record(operation: &str, text: &str, tx: &Tx) -> NvList {
    NvList::new()
        .with(key::INTERNAL_TEXT, text)
        .with(key::INTERNAL_NAME, operation)
        .with(key::TXG, tx.txg().0)
        .with(key::TIME, rt::wall_clock().secs)
}

impl History {
    /// Creates the history of a new pool of `dspace` bytes; its size is 1/1000 of that, between 128
    /// KiB and 1 GiB.
    ///
    /// # Errors
    /// Any error from writing the MOS.
    pub fn create(mos: &Arc<Objset>, dspace: u64, tx: &Tx) -> Result<History> {
        let dnode = mos.object_alloc(
            tx,
            &NewObject::new(ObjectType::SPA_HISTORY)
                .blksz(BLOCK_BYTES)
                .bonus(ObjectType::SPA_HISTORY_OFFSETS, size_of::<HistoryPhys>()),
        )?;
        let mut phys = HistoryPhys::default();
        phys.phys_max_off
            .set((dspace / 1000).clamp(MIN_BYTES, MAX_BYTES));
        dnode.set_bonus(tx, phys.as_bytes())?;
        directory::set(mos, pool_names::HISTORY, dnode.id().0, tx)?;
        Ok(History {
            dnode,
            lock: Mutex::new(()),
        })
    }

    /// Opens the history of an existing pool, if it has one.
    ///
    /// # Errors
    /// Any error from reading the MOS.
    pub fn open(mos: &Arc<Objset>) -> Result<Option<History>> {
        let Some(object) = directory::find(mos, pool_names::HISTORY)? else {
            return Ok(None);
        };
        Ok(Some(History {
            dnode: mos.hold(object)?,
            lock: Mutex::new(()),
        }))
    }

    /// The object in the MOS.
    #[must_use]
    pub fn object(&self) -> ObjectId {
        self.dnode.id()
    }

    /// Appends a record; when the ring is full, the oldest ones are dropped. In syncing context.
    ///
    /// # Errors
    /// Any error from writing the MOS.
    #[doc(alias = "spa_history_log_sync")]
    pub fn append(&self, record: &NvList, is_command: bool, tx: &Tx) -> Result<()> {
        let _lock = self.lock.lock();
        let mut phys = self.phys()?;
        let packed = nvpair::encode_native(record);
        let mut bytes = (packed.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(&packed);
        let ring = phys.phys_max_off.get() - phys.pool_create_len.get();
        while ring - (phys.eof.get() - phys.bof.get()) <= bytes.len() as u64 {
            if phys.bof.get() >= phys.eof.get() {
                return Ok(()); // larger than the whole ring
            }
            let next = phys.bof.get() + 8 + self.length_at(&phys, phys.bof.get())?;
            if next > phys.eof.get() {
                return Err(Error::corrupt(format!(
                    "history: record up to {next}, beyond the end {}",
                    phys.eof.get()
                )));
            }
            phys.bof.set(next);
            let lost = phys.records_lost.get();
            phys.records_lost.set(lost.saturating_add(1));
        }
        for (offset, range) in pieces(&phys, phys.eof.get(), bytes.len() as u64) {
            self.dnode.write(tx, offset, &bytes[range])?;
        }
        phys.eof.set(phys.eof.get() + bytes.len() as u64);
        if phys.pool_create_len.get() == 0 && is_command {
            phys.pool_create_len.set(phys.eof.get());
            phys.bof.set(phys.eof.get());
        }
        self.dnode.set_bonus(tx, phys.as_bytes())
    }

    /// Calls `show` on all records, oldest first, one at a time: a list of a gigabyte of small
    /// records would take many times that memory.
    ///
    /// # Errors
    /// `Corrupt` when the ring's bounds are invalid; any error from reading the MOS or from `show`.
    pub fn for_each(&self, show: &mut dyn FnMut(Record) -> Result<()>) -> Result<()> {
        let phys = self.phys()?;
        let first = (0, phys.pool_create_len.get());
        for (mut at, end) in [first, (phys.bof.get(), phys.eof.get())] {
            for (offset, range) in pieces(&phys, at, end - at) {
                self.dnode.check_dense(offset, range.len() as u64)?;
            }
            while at < end {
                let length = self.length_at(&phys, at)?;
                let bytes = self.read_at(&phys, at + 8, length)?;
                show(Record(nvpair::decode(&bytes)?))?;
                at += 8 + length;
            }
        }
        Ok(())
    }

    fn phys(&self) -> Result<HistoryPhys> {
        let bonus = self.dnode.bonus();
        let (phys, _) = HistoryPhys::read_from_prefix(&bonus)
            .map_err(|_| Error::corrupt(format!("history: bonus of {} bytes", bonus.len())))?;
        let (create, max) = (phys.pool_create_len.get(), phys.phys_max_off.get());
        let (bof, eof) = (phys.bof.get(), phys.eof.get());
        let is_ring = create < max && max <= MAX_BYTES && eof < u64::MAX / 2;
        if !is_ring || bof > eof || eof - bof > max - create {
            return Err(Error::corrupt(format!(
                "history: create {create}, max {max}, ring from {bof} to {eof}"
            )));
        }
        Ok(phys)
    }

    fn length_at(&self, phys: &HistoryPhys, at: u64) -> Result<u64> {
        let bytes = self.read_at(phys, at, 8)?;
        let length = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        if length == 0 || length > RECORD_MAX_BYTES {
            return Err(Error::corrupt(format!(
                "history: record of {length} bytes at {at}"
            )));
        }
        Ok(length)
    }

    fn read_at(&self, phys: &HistoryPhys, at: u64, length: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length as usize];
        for (offset, range) in pieces(phys, at, length) {
            self.dnode.read(offset, &mut bytes[range])?;
        }
        Ok(bytes)
    }
}

/// Where `length` bytes from logical offset `at` are in the object: one piece, or two across the
/// end of the ring; for each the offset in the object and the range of the bytes.
fn pieces(
    phys: &HistoryPhys,
    at: u64,
    length: u64,
) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> + use<> {
    let (create, max) = (phys.pool_create_len.get(), phys.phys_max_off.get());
    let start = if at < create {
        at
    } else {
        create + (at - create) % (max - create)
    };
    let first = length.min(max - start);
    [
        (start, 0..first as usize),
        (create, first as usize..length as usize),
    ]
    .into_iter()
    .filter(|(_, range)| !range.is_empty())
}
