//! The tables of a pool: references are added and dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{BlkId, Error, ObjectId, Result, Txg};
use dmu::{Objset, Tx};
use phys::pool_names::DDT_STATS;
use phys::{BlkPtrPhys, ChecksumType, DvaPhys, ObjectType};

use crate::entry::{DdtEntry, DdtKey, DdtPhys, PHYS_DITTO};
use crate::histogram::{DdtHistogram, DdtStat};
use crate::log::Logged;
use crate::prune::Candidate;
use crate::store::{Ddt, Dsize, name};

const POOL_DIRECTORY: ObjectId = zap::directory::OBJECT;
/// `ddt_class_t`, in the order in which an entry is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DdtClass {
    /// With extra copies, as old versions made them.
    Ditto,
    /// With more than one reference.
    Duplicate,
    /// With one reference.
    Unique,
}

impl DdtClass {
    pub(crate) const ALL: [DdtClass; 3] = [DdtClass::Ditto, DdtClass::Duplicate, DdtClass::Unique];

    pub(crate) fn raw(self) -> u64 {
        self as u64
    }

    pub(crate) fn from_raw(raw: u64) -> Option<DdtClass> {
        DdtClass::ALL.into_iter().find(|class| class.raw() == raw)
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            DdtClass::Ditto => "ditto",
            DdtClass::Duplicate => "duplicate",
            DdtClass::Unique => "unique",
        }
    }
}

/// All tables of a pool.
pub struct Ddts {
    mos: Arc<Objset>,
    stats: Option<ObjectId>,
    pub(crate) tables: BTreeMap<ChecksumType, Ddt>,
    changes: BTreeMap<(ChecksumType, DdtKey), Change>,
    /// Whether a table that is made is one of `fast_dedup`.
    is_fast: bool,
}

/// Where an entry was before it was looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Nowhere,
    /// In the ZAP of this class, and counted there.
    Zap(DdtClass),
    /// In a log; an older state may be in the ZAP of a class.
    Log(Option<DdtClass>),
}

/// An entry that was looked at in this txg.
#[doc(alias = "ddt_entry_t")]
struct Change {
    origin: Origin,
    before: DdtEntry,
    now: DdtEntry,
}

/// What [`Ddts::sync`] is told.
pub struct DdtSync<'a> {
    /// The bytes that one copy counts for.
    pub dsize: Dsize<'a>,
    /// Whether entries go from the logs into the ZAPs: in the first pass of a txg.
    pub flushes: bool,
    /// Seconds since 1970.
    pub now: u64,
}

/// What came of [`Ddts::sync`].
#[derive(Default)]
pub struct DdtSynced {
    /// Blocks whose space is free now, with the dedup bit cleared.
    pub free: Vec<BlkPtrPhys>,
    /// Blocks that have come into the ZAP of a class with several references, with the dedup bit cleared.
    pub risen: Vec<BlkPtrPhys>,
    /// Tables of `fast_dedup` that were made.
    pub made: u64,
    /// Tables of `fast_dedup` that were removed.
    pub removed: u64,
}

impl DdtSynced {
    /// An entry goes into the ZAP that its references determine.
    #[doc(alias = "ddt_sync_scan_entry")]
    fn note_risen(&mut self, checksum: ChecksumType, before: Option<DdtClass>, entry: &DdtEntry) {
        let was_below = before.is_none_or(|class| class == DdtClass::Unique);
        if was_below && entry.refcnt() > 1 {
            self.risen.extend(entry.own_blocks(checksum));
        }
    }
}

impl Ddts {
    /// The tables that the pool directory names. `is_fast`: whether the next one that is made is one of `fast_dedup`.
    ///
    /// # Errors
    /// What reading the MOS gives; `Unsupported` for tables of another version.
    #[doc(alias = "ddt_load")]
    pub fn open(mos: &Arc<Objset>, is_fast: bool, dsize: Dsize<'_>) -> Result<Ddts> {
        let stats = zap::lookup_u64(mos, POOL_DIRECTORY, DDT_STATS)?.map(ObjectId);
        let mut tables: BTreeMap<ChecksumType, Ddt> = BTreeMap::new();
        for raw in 0..=u8::MAX {
            let Ok(checksum) = ChecksumType::try_from(raw) else {
                continue;
            };
            if let Some(table) = Ddt::open(mos, checksum, stats, dsize)? {
                tables.insert(checksum, table);
            }
        }
        Ok(Ddts {
            mos: mos.clone(),
            stats,
            tables,
            changes: BTreeMap::new(),
            is_fast,
        })
    }

    /// From now on a table that is made is, or is not, one of `fast_dedup`. Not between changes and their sync.
    pub fn set_fast(&mut self, is_fast: bool) {
        assert!(
            self.changes.is_empty(),
            "entries of tables that are to be made"
        );
        self.is_fast = is_fast;
    }

    pub(crate) fn mos(&self) -> &Arc<Objset> {
        &self.mos
    }

    /// Forgets entries that are still in the ZAP as they were, and in no log; returns how many. Their blocks are not
    /// freed. In syncing context.
    ///
    /// # Errors
    /// What reading the MOS gives.
    #[doc(alias = "prune_candidates_sync")]
    pub fn prune(&mut self, candidates: Vec<Candidate>) -> Result<u64> {
        let mut pruned = 0;
        for (checksum, before) in candidates {
            let at = (checksum, before.key);
            if self.changes.contains_key(&at) {
                continue;
            }
            let found = self.find(checksum, &before.key)?;
            let origin = Origin::Zap(DdtClass::Unique);
            if found.is_none_or(|(there, entry)| there != origin || entry != before) {
                continue;
            }
            let now = DdtEntry::new(before.key, true);
            let change = Change {
                origin,
                before,
                now,
            };
            self.changes.insert(at, change);
            pruned += 1;
        }
        Ok(pruned)
    }

    /// Whether there is no table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Each table.
    pub fn tables(&self) -> impl Iterator<Item = DdtTable<'_>> {
        self.tables.iter().map(|(checksum, table)| DdtTable {
            checksum: *checksum,
            table,
        })
    }

    /// What all entries count for.
    #[must_use]
    #[doc(alias = "ddt_get_dedup_stats")]
    pub fn total(&self) -> DdtStat {
        let mut all = DdtStat::default();
        let histograms = self.tables.values().flat_map(Ddt::histograms);
        histograms.for_each(|histogram| all.add(&histogram.total()));
        all
    }

    /// Bytes that datasets use beyond what is stored: the pool appears larger by this much.
    #[must_use]
    #[doc(alias = "ddt_get_dedup_dspace")]
    pub fn dedup_dspace(&self) -> u64 {
        let all = self.total();
        all.referenced[3].saturating_sub(all.stored[3])
    }

    /// Bytes that datasets use in deduplicated blocks, in percent of what is stored of them; 100 if there are none.
    #[must_use]
    #[doc(alias = "ddt_get_pool_dedup_ratio")]
    pub fn ratio_percent(&self) -> u64 {
        let all = self.total();
        let percent = all.referenced[3]
            .saturating_mul(100)
            .checked_div(all.stored[3]);
        percent.unwrap_or(100)
    }

    /// What the tables themselves take.
    ///
    /// # Errors
    /// What reading the MOS gives.
    #[doc(alias = "ddt_get_dedup_object_stats")]
    pub fn sizes(&self) -> Result<DdtSizes> {
        let mut all = DdtSizes::default();
        for table in self.tables() {
            for (.., object, _) in table.parts() {
                all.add(&DdtSizes::of(&self.mos, object)?);
            }
            for log in table.logs() {
                all.add(&log.sizes(&self.mos)?);
            }
        }
        Ok(all)
    }

    /// What all tables hold, by number of references.
    #[must_use]
    #[doc(alias = "ddt_get_dedup_histogram")]
    pub fn histogram(&self) -> DdtHistogram {
        let mut all = DdtHistogram::default();
        let histograms = self.tables.values().flat_map(Ddt::histograms);
        histograms.for_each(|histogram| all.merge(histogram));
        all
    }

    /// Every entry of every table, with its class; those in logs have none.
    ///
    /// # Errors
    /// What reading the MOS gives, and `each`.
    #[doc(alias = "ddt_walk")]
    pub fn walk(
        &self,
        each: &mut dyn FnMut(ChecksumType, Option<DdtClass>, DdtEntry) -> Result<()>,
    ) -> Result<()> {
        for (checksum, table) in &self.tables {
            for class in table.parts.keys() {
                let each = &mut |entry| each(*checksum, Some(*class), entry);
                table.walk(&self.mos, *class, each)?;
            }
            let logs = table.fast.iter().flat_map(|fast| fast.logs.logs());
            for (key, logged) in logs.flat_map(|log| &log.entries) {
                let entry = DdtEntry::of_flat(*key, &logged.flat);
                each(*checksum, None, entry)?;
            }
        }
        Ok(())
    }

    /// The entry of a block as of now, with all changes of the txg.
    ///
    /// # Errors
    /// What reading the MOS gives.
    #[doc(alias = "ddt_lookup")]
    pub fn entry(&mut self, bp: &BlkPtrPhys) -> Result<Option<&mut DdtEntry>> {
        let (checksum, key) = (checksum_of(bp)?, DdtKey::of(bp));
        if !self.changes.contains_key(&(checksum, key)) {
            let Some((origin, entry)) = self.find(checksum, &key)? else {
                return Ok(None);
            };
            let change = Change {
                origin,
                before: entry.clone(),
                now: entry,
            };
            self.changes.insert((checksum, key), change);
        }
        let change = self.changes.get_mut(&(checksum, key));
        Ok(change.map(|change| &mut change.now))
    }

    fn find(&self, checksum: ChecksumType, key: &DdtKey) -> Result<Option<(Origin, DdtEntry)>> {
        let Some(table) = self.tables.get(&checksum) else {
            return Ok(None);
        };
        let logs = table.fast.as_ref().map(|fast| &fast.logs);
        if let Some(logged) = logs.and_then(|logs| logs.find(key)) {
            let entry = DdtEntry::of_flat(*key, &logged.flat);
            return Ok(Some((Origin::Log(logged.class), entry)));
        }
        let stored = table.stored(&self.mos, key)?;
        Ok(stored.map(|(class, entry)| (Origin::Zap(class), entry)))
    }

    /// Counts a pointer to a block of so many copies; a block that is in no entry is entered. Follows
    /// [`entry`](Ddts::entry).
    ///
    /// # Errors
    /// `Corrupt` for a checksum that no block has.
    #[doc(alias = "ddt_phys_addref")]
    pub fn refer(&mut self, bp: &BlkPtrPhys, copies: usize) -> Result<()> {
        let (checksum, key) = (checksum_of(bp)?, DdtKey::of(bp));
        let table = self.tables.get(&checksum);
        let is_flat = table.map_or(self.is_fast, Ddt::is_flat);
        let change = self.changes.entry((checksum, key));
        let change = change.or_insert_with(|| Change {
            origin: Origin::Nowhere,
            before: DdtEntry::new(key, is_flat),
            now: DdtEntry::new(key, is_flat),
        });
        change.now.refer(bp, copies);
        Ok(())
    }

    /// Undoes a [`refer`](Ddts::refer) of the same txg, whose block was not written. `had`: the copies that the entry
    /// had before.
    #[doc(alias = "ddt_phys_unextend")]
    pub fn forget(&mut self, bp: &BlkPtrPhys, had: usize) {
        let Ok(checksum) = checksum_of(bp) else {
            return;
        };
        let at = (checksum, DdtKey::of(bp));
        let Some(change) = self.changes.get_mut(&at) else {
            return;
        };
        if let Some(phys) = change.now.select(bp) {
            phys.refcnt = phys.refcnt.saturating_sub(1);
            phys.dva[had..].fill(DvaPhys::default());
            if had == 0 {
                *phys = DdtPhys::default();
            }
        }
        if change.origin == Origin::Nowhere && change.now.is_empty() {
            self.changes.remove(&at);
        }
    }

    /// Drops the reference of a block pointer. Returns the block, with the dedup bit cleared, if no entry has it: it
    /// was pruned, and the pointer owns it.
    ///
    /// # Errors
    /// What reading the MOS gives; `Corrupt` when more is freed than was referred to.
    #[doc(alias = "zio_ddt_free")]
    pub fn release(&mut self, bp: &BlkPtrPhys) -> Result<Option<BlkPtrPhys>> {
        let entry = match checksum_of(bp) {
            Ok(_) => self.entry(bp)?,
            Err(_) => None,
        };
        match entry.and_then(|entry| entry.select(bp)) {
            Some(phys) if phys.refcnt > 0 => phys.refcnt -= 1,
            Some(_) => {
                let text = format!("dedup entry of {bp:?} has no reference left");
                return Err(Error::corrupt(text));
            }
            None => {
                let mut block = *bp;
                block.set_dedup(false);
                block.set_birth(bp.physical_birth(), bp.physical_birth());
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// Stores the changed entries and the statistics, and removes a table without entries. Called at the end of a
    /// sync pass.
    ///
    /// # Errors
    /// What reading and writing the MOS gives.
    #[doc(alias = "ddt_sync")]
    pub fn sync(&mut self, tx: &Tx, how: &DdtSync<'_>) -> Result<DdtSynced> {
        let mut synced = DdtSynced::default();
        let mut by_table: BTreeMap<ChecksumType, Vec<Change>> = BTreeMap::new();
        for ((checksum, key), mut change) in std::mem::take(&mut self.changes) {
            for (n, phys) in change.now.phys.iter_mut().enumerate() {
                let is_obsolete = phys.refcnt == 0 || n == PHYS_DITTO;
                if phys.birth != Txg(0) && is_obsolete {
                    synced.free.push(key.block(checksum, phys));
                    *phys = DdtPhys::default();
                }
            }
            if change.before != change.now {
                by_table.entry(checksum).or_default().push(change);
            }
        }
        for (checksum, changes) in by_table {
            self.sync_table(tx, checksum, changes, how, &mut synced)?;
        }
        if how.flushes {
            self.flush(tx, how, &mut synced)?;
        }
        if let Some(stats) = self.stats {
            for table in self.tables.values_mut() {
                synced.removed += u64::from(table.sync_stats(&self.mos, tx, stats)?);
            }
        }
        self.tables.retain(|_, table| !table.is_gone());
        Ok(synced)
    }

    #[doc(alias = "ddt_sync_table")]
    fn sync_table(
        &mut self,
        tx: &Tx,
        checksum: ChecksumType,
        changes: Vec<Change>,
        how: &DdtSync<'_>,
        synced: &mut DdtSynced,
    ) -> Result<()> {
        let mos = &self.mos;
        if self.stats.is_none() {
            let type_ = ObjectType::DDT_STATS;
            let stats = zap::create_link(mos, tx, type_, POOL_DIRECTORY, DDT_STATS)?;
            self.stats = Some(stats);
        }
        let table = self
            .tables
            .entry(checksum)
            .or_insert_with(|| Ddt::new(checksum));
        let is_new = table.is_gone();
        if is_new && self.is_fast {
            table.create_dir(mos, tx)?;
            synced.made += 1;
        }
        let mut logged = Vec::new();
        for Change {
            origin,
            before,
            now,
        } in changes
        {
            let class = match origin {
                Origin::Nowhere => None,
                Origin::Zap(class) => {
                    table.uncount(class, &before, how.dsize);
                    Some(class)
                }
                Origin::Log(class) => class,
            };
            let Some(fast) = &mut table.fast else {
                synced.note_risen(checksum, class, &now);
                table.store((mos, tx), class, &now, how.dsize)?;
                continue;
            };
            if matches!(origin, Origin::Log(_)) {
                fast.logs.histogram.subtract(&before, how.dsize);
            }
            let mut flat = now.flat();
            flat.class_start = how.now;
            fast.logs.histogram.add(&now, how.dsize);
            logged.push((now.key, Logged { class, flat }));
        }
        match &mut table.fast {
            Some(fast) if !logged.is_empty() => {
                fast.logs.append((mos, tx), (fast.dir, checksum), &logged)
            }
            _ => Ok(()),
        }
    }

    /// Moves entries from the logs into the ZAPs.
    #[doc(alias = "ddt_sync_flush_log")]
    fn flush(&mut self, tx: &Tx, how: &DdtSync<'_>, synced: &mut DdtSynced) -> Result<()> {
        for (checksum, table) in &mut self.tables {
            let Some(fast) = &mut table.fast else {
                continue;
            };
            let taken = fast.logs.take_some();
            let last = taken.last().map(|(key, _)| *key);
            for (key, logged) in taken {
                let mut entry = DdtEntry::of_flat(key, &logged.flat);
                if let Some(fast) = &mut table.fast {
                    fast.logs.histogram.subtract(&entry, how.dsize);
                }
                // OpenZFS frees them only now.
                for phys in &mut entry.phys {
                    if phys.birth != Txg(0) && phys.refcnt == 0 {
                        synced.free.push(key.block(*checksum, phys));
                        *phys = DdtPhys::default();
                    }
                }
                synced.note_risen(*checksum, logged.class, &entry);
                table.store((&self.mos, tx), logged.class, &entry, how.dsize)?;
            }
            if let Some(fast) = &mut table.fast {
                fast.logs.flushed(&self.mos, tx, last)?;
            }
        }
        Ok(())
    }

    /// Whether entries wait in logs.
    #[must_use]
    pub fn has_logged(&self) -> bool {
        let mut fast = self.tables.values().filter_map(|table| table.fast.as_ref());
        fast.any(|fast| fast.logs.len() > 0)
    }

    /// Whether entries have changed since the last sync.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }
}

/// One table, to be shown.
#[derive(Clone, Copy)]
pub struct DdtTable<'a> {
    /// The algorithm whose blocks it has.
    pub checksum: ChecksumType,
    pub(crate) table: &'a Ddt,
}

/// A log of a table of `fast_dedup`, to be shown.
pub struct DdtLog {
    /// `ddl_flags`
    pub flags: u64,
    /// The object that it is in; 0: there is none.
    pub object: ObjectId,
    /// Bytes on disk.
    pub length: u64,
    /// The txg in which it became active.
    pub first_txg: Txg,
    /// Entries in memory.
    pub entries: u64,
    /// The last key that is in the ZAPs.
    pub checkpoint: Option<[u64; 5]>,
}

/// `ddt_object_t`: what tables take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DdtSizes {
    /// ddo_count
    pub entries: u64,
    /// ddo_dspace: bytes on disk.
    pub disk_bytes: u64,
    /// ddo_mspace: bytes in memory, if all of them were there.
    pub core_bytes: u64,
}

impl DdtSizes {
    /// Of the ZAP of a class.
    ///
    /// # Errors
    /// What reading the MOS gives.
    #[doc(alias = "ddt_object_info")]
    pub fn of(mos: &Arc<Objset>, object: ObjectId) -> Result<DdtSizes> {
        let dnode = mos.hold(object)?;
        let phys = dnode.phys();
        let mut fill = 0u64;
        for blkid in 0..u64::from(phys.nblkptr) {
            let bp = dnode.block_pointer(phys.nlevels.saturating_sub(1), BlkId(blkid))?;
            fill = fill.saturating_add(bp.fill());
        }
        Ok(DdtSizes {
            entries: zap::count(mos, object)?,
            disk_bytes: whole_sectors(dnode.used_bytes()),
            core_bytes: fill.saturating_mul(dnode.blksz()),
        })
    }

    fn add(&mut self, other: &DdtSizes) {
        self.entries = self.entries.saturating_add(other.entries);
        self.disk_bytes = self.disk_bytes.saturating_add(other.disk_bytes);
        self.core_bytes = self.core_bytes.saturating_add(other.core_bytes);
    }
}

/// `doi_physical_blocks_512`, in bytes.
fn whole_sectors(bytes: u64) -> u64 {
    (bytes.saturating_add(256)) >> 9 << 9
}

impl DdtLog {
    #[doc(alias = "ddt_log_update_stats")]
    fn sizes(&self, mos: &Objset) -> Result<DdtSizes> {
        /// `DDT_LOG_ENTRY_FLAT_SIZE`
        const ENTRY_BYTES: u64 = 144;
        let disk_bytes = match self.object {
            ObjectId(0) => 0,
            object => whole_sectors(mos.hold(object)?.used_bytes()),
        };
        Ok(DdtSizes {
            entries: self.entries,
            disk_bytes,
            core_bytes: self.entries * ENTRY_BYTES,
        })
    }
}

impl<'a> DdtTable<'a> {
    /// The ZAP of each class: its name, its object and its histogram.
    pub fn parts(self) -> impl Iterator<Item = (DdtClass, String, ObjectId, &'a DdtHistogram)> {
        self.table.parts.iter().map(move |(class, part)| {
            let name = name(self.checksum, *class);
            (*class, name, part.object, &part.histogram)
        })
    }

    /// The histogram of the entries in logs.
    #[must_use]
    pub fn logged(self) -> Option<&'a DdtHistogram> {
        self.table.fast.as_ref().map(|fast| &fast.logs.histogram)
    }

    /// `ddt_flags`: not 0 for a table of `fast_dedup`.
    #[must_use]
    pub fn flags(self) -> u64 {
        self.table
            .fast
            .as_ref()
            .map_or(0, |_| crate::store::FLAGS_FDT)
    }

    /// The ZAP that names everything of the table.
    #[must_use]
    pub fn root(self) -> ObjectId {
        self.table.root()
    }

    /// Both logs.
    pub fn logs(self) -> impl Iterator<Item = DdtLog> + 'a {
        let logs = self.table.fast.iter().flat_map(|fast| fast.logs.logs());
        logs.map(|log| DdtLog {
            flags: log.flags(),
            object: log.object.unwrap_or(ObjectId(0)),
            length: log.length,
            first_txg: log.first_txg,
            entries: log.entries.len() as u64,
            checkpoint: log.checkpoint.map(|key| key.words()),
        })
    }
}

pub(crate) fn checksum_of(bp: &BlkPtrPhys) -> Result<ChecksumType> {
    let checksum = ChecksumType::try_from(bp.checksum());
    checksum.map_err(|_| Error::corrupt(format!("checksum {} of a block", bp.checksum())))
}
