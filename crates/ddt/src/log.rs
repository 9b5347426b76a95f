//! The logs of a table of `fast_dedup`: changed entries are appended to one, and go from the other into the ZAPs.
//!
//! # What it is
//! An entry is a small part of a leaf of a ZAP, and hashes are anywhere: a txg that changed a thousand entries would
//! read and write a thousand leaves. So the changed entries of a txg are appended to the *active* log, and are current
//! in memory. The entries of the *flushing* log go into the ZAPs a few hundred at a time, in the order of their keys;
//! once it is empty, the two change places.
//!
//! # On disk
//! The table's directory names two objects, `DDT-log-sha256-0` and `-1`. Their bonus is a header of eight words:
//! version 1 and flags (*flushing*, *checkpoint*), length in bytes, the txg in which the log became active, and a key.
//! Their blocks are filled with records from the start:
//! ```text
//! word 0    type 1 | length of the record << 8 | type of storage << 48 | class << 56
//! words 1-5 the key                            (the ZAP that has the entry; 1 and 3: none)
//! words 6-14 the flat entry
//! ```
//! The rest of a block is zeros. Each append begins a new block. The blocks belong on dedup devices, as those of the
//! ZAPs do.
//!
//! # Invariants
//! 1. What a log says of a key is newer than what the ZAPs say, and the active log is newer than the flushing one.
//! 2. Of the flushing log, keys up to the checkpoint are in the ZAPs already.
//! 3. A key is in one of the two trees in memory, at most; on disk the flushing log may still have an older record.
//! 4. The histogram counts exactly the entries of both trees.
//!
//! # Crash argument
//! The logs are objects of the MOS: they are on disk if, and only if, their txg is.
//!
//! # Source
//! OpenZFS `module/zfs/ddt_log.c`, `include/sys/ddt_impl.h`.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{BlkId, Context, Error, ErrorKind, ObjectId, Result, Txg};
use dmu::{Dnode, NewObject, OBJECT_END, Objset, Tx};
use phys::blkptr::DvaPhys;
use phys::{ChecksumType, ObjectType};

use crate::entry::{DdtEntry, DdtKey, FLAT_BYTES, Flat, KEY_WORDS, words_of};
use crate::histogram::DdtHistogram;
use crate::table::DdtClass;

const VERSION: u64 = 1;
const FLAGS_SHIFT: u32 = 8;
/// `DDL_FLAG_FLUSHING`
const FLUSHING: u64 = 1 << 0;
/// `DDL_FLAG_CHECKPOINT`
const CHECKPOINT: u64 = 1 << 1;
/// Words of a `ddt_log_header_t`.
const HEADER_WORDS: usize = 3 + KEY_WORDS;
/// `DLR_ENTRY`
const RECORD_ENTRY: u64 = 1;
const KEY_BYTES: usize = KEY_WORDS * 8;
const RECORD_BYTES: usize = 8 + KEY_BYTES + FLAT_BYTES;
const RECORD_LENGTH_SHIFT: u32 = 8;
const RECORD_STORAGE_SHIFT: u32 = 48;
const RECORD_CLASS_SHIFT: u32 = 56;
/// `DDT_TYPES` and `DDT_CLASSES`: in no ZAP.
const NOWHERE: (u64, u64) = (1, 3);
/// `SPA_OLD_MAXBLOCKSIZE`
const BLOCK_BYTES: u64 = 128 << 10;
/// More than this is not read: OpenZFS keeps its logs to a hundredth of the memory.
const MOST_BYTES: u64 = 4 << 30;
/// `zfs_dedup_log_flush_entries_min`, times five quarters
const FLUSH_LEAST: usize = 250;
/// `zfs_dedup_log_flush_txgs`
const FLUSH_TXGS: usize = 100;
/// `zfs_dedup_log_txg_max`: a log is active for so many txgs,
const ACTIVE_TXGS: u64 = 8;
/// and until it has so many entries (`zfs_dedup_log_mem_max` is in bytes).
const ACTIVE_ENTRIES: usize = 100_000;

/// An entry in a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logged {
    /// The ZAP in which an older state of it is.
    pub(crate) class: Option<DdtClass>,
    pub(crate) flat: Flat,
}

/// `ddt_log_t`
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) object: Option<ObjectId>,
    pub(crate) entries: BTreeMap<DdtKey, Logged>,
    pub(crate) is_flushing: bool,
    /// Bytes on disk.
    pub(crate) length: u64,
    /// The txg in which it became active.
    pub(crate) first_txg: Txg,
    pub(crate) checkpoint: Option<DdtKey>,
}

/// Both logs of a table.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    /// By the number in their names.
    logs: [Log; 2],
    pub(crate) histogram: DdtHistogram,
}

fn name(checksum: ChecksumType, n: usize) -> String {
    format!("DDT-log-{}-{n}", checksum.name())
}

impl Log {
    /// dlh_info without the version.
    pub(crate) fn flags(&self) -> u64 {
        let flushing = if self.is_flushing { FLUSHING } else { 0 };
        flushing | self.checkpoint.map_or(0, |_| CHECKPOINT)
    }

    fn header(&self) -> [u64; HEADER_WORDS] {
        let mut words = [0; HEADER_WORDS];
        words[0] = VERSION | self.flags() << FLAGS_SHIFT;
        words[1] = self.length;
        words[2] = self.first_txg.0;
        if let Some(key) = self.checkpoint {
            words[3..].copy_from_slice(&key.words());
        }
        words
    }

    fn parse(header: &[u8]) -> Result<Log> {
        let words = words_of(header);
        let Some(words) = words.get(..HEADER_WORDS) else {
            return Err(Error::corrupt("the header of a dedup log is too short"));
        };
        if words[0] & 0xff != VERSION {
            let text = format!("dedup log of version {}", words[0] & 0xff);
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let flags = words[0] >> FLAGS_SHIFT & 0xff;
        let key = DdtKey::from_words(&words[3..])?;
        Ok(Log {
            is_flushing: flags & FLUSHING != 0,
            length: words[1],
            first_txg: Txg(words[2]),
            checkpoint: (flags & CHECKPOINT != 0).then_some(key),
            ..Log::default()
        })
    }

    #[doc(alias = "ddt_log_load_one")]
    fn load(mos: &Objset, object: ObjectId) -> Result<Log> {
        let dnode = mos.hold(object)?;
        let mut log = Log::parse(&dnode.bonus())?;
        log.object = Some(object);
        let blksz = dnode.blksz();
        let blocks = log.length.div_ceil(blksz);
        if log.length > MOST_BYTES || blocks > dnode.maxblkid().0 + 1 {
            let text = format!("dedup log of {} bytes", log.length);
            return Err(Error::corrupt(text));
        }
        for blkid in 0..blocks {
            log.load_block(&dnode, BlkId(blkid))?;
        }
        Ok(log)
    }

    fn load_block(&mut self, dnode: &Dnode, blkid: BlkId) -> Result<()> {
        let corrupt = || Error::corrupt(format!("record in block {blkid} of a dedup log"));
        let block = dnode.read_block(blkid)?;
        let (records, _) = block.as_chunks::<RECORD_BYTES>();
        for (n, record) in records.iter().enumerate() {
            let words = words_of(&record[..8 + KEY_BYTES]);
            let info = words[0];
            if info & 0xff == 0 && n > 0 {
                return Ok(());
            }
            let length = info >> RECORD_LENGTH_SHIFT & 0xffff;
            if info & 0xff != RECORD_ENTRY || length != RECORD_BYTES as u64 {
                return Err(corrupt());
            }
            let key = DdtKey::from_words(&words[1..])?;
            if self.checkpoint.is_some_and(|flushed| key <= flushed) {
                continue;
            }
            let storage = info >> RECORD_STORAGE_SHIFT & 0xff;
            let class = match (storage, info >> RECORD_CLASS_SHIFT) {
                NOWHERE => None,
                (0, class) => Some(DdtClass::from_raw(class).ok_or_else(corrupt)?),
                _ => return Err(corrupt()),
            };
            let (flat, _) = record[8 + KEY_BYTES..].as_chunks::<FLAT_BYTES>();
            let flat = Flat::parse(&flat[0]);
            self.entries.insert(key, Logged { class, flat });
        }
        Ok(())
    }

    #[doc(alias = "ddt_log_update_header")]
    fn write_header(&self, mos: &Objset, tx: &Tx) -> Result<()> {
        let Some(object) = self.object else {
            return Ok(());
        };
        let bytes: Vec<u8> = self
            .header()
            .into_iter()
            .flat_map(u64::to_le_bytes)
            .collect();
        mos.hold(object)?.set_bonus(tx, &bytes)
    }

    /// Drops what is on disk.
    #[doc(alias = "ddt_log_truncate")]
    fn truncate(&mut self, mos: &Objset, tx: &Tx) -> Result<()> {
        assert!(self.entries.is_empty(), "entries that no ZAP has");
        if let Some(object) = self.object {
            mos.hold(object)?.free_range(tx, 0, OBJECT_END)?;
        }
        self.length = 0;
        self.checkpoint = None;
        self.write_header(mos, tx)
    }
}

impl Logs {
    /// Those that the table's directory names.
    #[doc(alias = "ddt_log_load")]
    pub(crate) fn load(
        mos: &Arc<Objset>,
        dir: ObjectId,
        checksum: ChecksumType,
        dsize: &dyn Fn(&DvaPhys) -> u64,
    ) -> Result<Logs> {
        let mut logs = Logs::new();
        for (n, log) in logs.logs.iter_mut().enumerate() {
            let name = name(checksum, n);
            if let Some(object) = zap::lookup_u64(mos, dir, &*name)? {
                *log = Log::load(mos, ObjectId(object)).within(|| name)?;
            }
        }
        if logs.logs[0].is_flushing == logs.logs[1].is_flushing {
            return Err(Error::corrupt("not one of the two dedup logs is active"));
        }
        let [active, flushing] = logs.both_mut();
        if active.checkpoint.is_some() {
            return Err(Error::corrupt("an active dedup log has a checkpoint"));
        }
        flushing
            .entries
            .retain(|key, _| !active.entries.contains_key(key));
        let both = active.entries.iter().chain(&flushing.entries);
        let entries = both.map(|(key, logged)| DdtEntry::of_flat(*key, &logged.flat));
        let mut histogram = DdtHistogram::default();
        entries.for_each(|entry| histogram.add(&entry, dsize));
        logs.histogram = histogram;
        Ok(logs)
    }

    pub(crate) fn new() -> Logs {
        let mut logs = Logs::default();
        logs.logs[1].is_flushing = true;
        logs
    }

    /// The active log, and the one that is flushed.
    fn both_mut(&mut self) -> [&mut Log; 2] {
        let [a, b] = &mut self.logs;
        if a.is_flushing { [b, a] } else { [a, b] }
    }

    /// In the order of their names.
    pub(crate) fn logs(&self) -> &[Log; 2] {
        &self.logs
    }

    #[doc(alias = "ddt_log_find_key")]
    pub(crate) fn find(&self, key: &DdtKey) -> Option<&Logged> {
        self.logs.iter().find_map(|log| log.entries.get(key))
    }

    pub(crate) fn len(&self) -> usize {
        self.logs.iter().map(|log| log.entries.len()).sum()
    }

    /// Appends changed entries to the active log. Their older states are not counted any more.
    #[doc(alias = "ddt_log_begin")]
    #[doc(alias = "ddt_log_commit")]
    pub(crate) fn append(
        &mut self,
        (mos, tx): (&Arc<Objset>, &Tx),
        (dir, checksum): (ObjectId, ChecksumType),
        changed: &[(DdtKey, Logged)],
    ) -> Result<()> {
        if self.logs[0].object.is_none() {
            self.create(mos, tx, dir, checksum)?;
        }
        let [active, flushing] = self.both_mut();
        let object = active.object.expect("both were made together");
        let dnode = mos.hold(object)?;
        dnode.set_storage_type(tx, ObjectType::DDT_ZAP)?;
        let blksz = dnode.blksz();
        let per_block = blksz as usize / RECORD_BYTES;
        for some in changed.chunks(per_block) {
            let mut block = Vec::with_capacity(blksz as usize);
            for (key, logged) in some {
                flushing.entries.remove(key);
                active.entries.insert(*key, *logged);
                write_record(key, logged, &mut block);
            }
            block.resize(blksz as usize, 0);
            dnode.write(tx, active.length, &block)?;
            active.length += blksz;
        }
        active.write_header(mos, tx)
    }

    #[doc(alias = "ddt_log_create")]
    fn create(
        &mut self,
        mos: &Arc<Objset>,
        tx: &Tx,
        dir: ObjectId,
        checksum: ChecksumType,
    ) -> Result<()> {
        for (n, log) in self.logs.iter_mut().enumerate() {
            let type_ = ObjectType::N_UINT64_METADATA;
            let new = NewObject::new(type_).blksz(BLOCK_BYTES);
            let dnode = mos.object_alloc(tx, &new.bonus(type_, HEADER_WORDS * 8))?;
            zap::update_u64(mos, tx, dir, &*name(checksum, n), dnode.id().0)?;
            log.object = Some(dnode.id());
            log.first_txg = tx.txg();
            log.write_header(mos, tx)?;
        }
        Ok(())
    }

    #[doc(alias = "ddt_log_destroy")]
    pub(crate) fn destroy(
        &mut self,
        mos: &Arc<Objset>,
        tx: &Tx,
        dir: ObjectId,
        checksum: ChecksumType,
    ) -> Result<()> {
        for (n, log) in self.logs.iter_mut().enumerate() {
            let Some(object) = log.object.take() else {
                continue;
            };
            zap::remove(mos, tx, dir, &*name(checksum, n))?;
            mos.object_free(tx, object)?;
        }
        Ok(())
    }

    /// The entries of the flushing log that are to go into the ZAPs in this txg.
    #[doc(alias = "ddt_log_take_first")]
    pub(crate) fn take_some(&mut self) -> Vec<(DdtKey, Logged)> {
        let wanted = (self.len() / FLUSH_TXGS * 5 / 4).max(FLUSH_LEAST);
        let [_, flushing] = self.both_mut();
        let taken = std::iter::from_fn(|| flushing.entries.pop_first());
        taken.take(wanted).collect()
    }

    /// Notes that entries are in the ZAPs now, up to `last`; lets the logs change places when it is time.
    #[doc(alias = "ddt_log_checkpoint")]
    #[doc(alias = "ddt_log_swap")]
    pub(crate) fn flushed(&mut self, mos: &Objset, tx: &Tx, last: Option<DdtKey>) -> Result<()> {
        let [active, flushing] = self.both_mut();
        if !flushing.entries.is_empty() {
            flushing.checkpoint = last.or(flushing.checkpoint);
            return flushing.write_header(mos, tx);
        }
        if flushing.length > 0 {
            flushing.truncate(mos, tx)?;
        }
        let is_old = tx.txg().0 >= active.first_txg.0.saturating_add(ACTIVE_TXGS);
        let is_long = active.entries.len() >= ACTIVE_ENTRIES;
        if active.entries.is_empty() || !is_old && !is_long {
            return Ok(());
        }
        active.is_flushing = true;
        flushing.is_flushing = false;
        flushing.first_txg = tx.txg();
        active.write_header(mos, tx)?;
        flushing.write_header(mos, tx)
    }
}

fn write_record(key: &DdtKey, logged: &Logged, out: &mut Vec<u8>) {
    let (storage, class) = logged.class.map_or(NOWHERE, |class| (0, class.raw()));
    let info = RECORD_ENTRY
        | (RECORD_BYTES as u64) << RECORD_LENGTH_SHIFT
        | storage << RECORD_STORAGE_SHIFT
        | class << RECORD_CLASS_SHIFT;
    out.extend(info.to_le_bytes());
    out.extend(key.words().into_iter().flat_map(u64::to_le_bytes));
    out.extend(logged.flat.bytes());
}
