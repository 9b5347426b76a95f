//! The tables of a pool: references are added and dropped.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use base::{Context, Error, ObjectId, Result, Txg};
use dmu::{Objset, Tx};
use phys::blkptr::DvaPhys;
use phys::pool_names::DDT_STATS;
use phys::{BlkPtrPhys, ChecksumType, ObjectType};
use zap::{Flags, Key, NewZap, Zap};

use crate::entry::{DdtEntry, DdtKey, DdtPhys, PHYS_DITTO};
use crate::histogram::DdtHistogram;

const POOL_DIRECTORY: ObjectId = zap::directory::OBJECT;
/// `ddt_zap_default_bs` and `ddt_zap_default_ibs`
const ZAP_SHIFT: u32 = 15;

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
    const ALL: [DdtClass; 3] = [DdtClass::Ditto, DdtClass::Duplicate, DdtClass::Unique];

    fn word(self) -> &'static str {
        match self {
            DdtClass::Ditto => "ditto",
            DdtClass::Duplicate => "duplicate",
            DdtClass::Unique => "unique",
        }
    }
}

/// The ZAP of one class.
struct Part {
    object: ObjectId,
    histogram: DdtHistogram,
}

/// `ddt_t`: the table of one checksum algorithm.
#[derive(Default)]
struct Ddt {
    parts: BTreeMap<DdtClass, Part>,
    is_changed: bool,
}

/// All tables of a pool.
pub struct Ddts {
    mos: Arc<Objset>,
    stats: Option<ObjectId>,
    tables: BTreeMap<ChecksumType, Ddt>,
    changes: BTreeMap<(ChecksumType, DdtKey), Change>,
}

/// An entry that was looked at in this txg.
#[doc(alias = "ddt_entry_t")]
struct Change {
    /// As it is in the ZAP of this class.
    stored: Option<(DdtClass, DdtEntry)>,
    now: DdtEntry,
}

fn name(checksum: ChecksumType, class: DdtClass) -> String {
    format!("DDT-{}-zap-{}", checksum.name(), class.word())
}

impl Ddts {
    /// The tables that the pool directory names.
    ///
    /// # Errors
    /// What reading the MOS gives.
    #[doc(alias = "ddt_load")]
    pub fn open(mos: &Arc<Objset>) -> Result<Ddts> {
        let stats = zap::lookup_u64(mos, POOL_DIRECTORY, DDT_STATS)?.map(ObjectId);
        let mut tables: BTreeMap<ChecksumType, Ddt> = BTreeMap::new();
        for raw in 0..=u8::MAX {
            let Ok(checksum) = ChecksumType::try_from(raw) else {
                continue;
            };
            for class in DdtClass::ALL {
                let name = name(checksum, class);
                let Some(object) = zap::lookup_u64(mos, POOL_DIRECTORY, &*name)? else {
                    continue;
                };
                let words = match stats {
                    Some(stats) => zap::lookup::<u64>(mos, stats, &*name).within(|| DDT_STATS)?,
                    None => None,
                };
                let part = Part {
                    object: ObjectId(object),
                    histogram: DdtHistogram::from_words(&words.unwrap_or_default()),
                };
                tables
                    .entry(checksum)
                    .or_default()
                    .parts
                    .insert(class, part);
            }
        }
        Ok(Ddts {
            mos: mos.clone(),
            stats,
            tables,
            changes: BTreeMap::new(),
        })
    }

    /// Whether there is no table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// The histogram of each table.
    pub fn histograms(&self) -> impl Iterator<Item = (ChecksumType, DdtClass, &DdtHistogram)> {
        self.tables.iter().flat_map(|(checksum, table)| {
            let parts = table.parts.iter();
            parts.map(|(class, part)| (*checksum, *class, &part.histogram))
        })
    }

    /// The ZAP of each table, and its name in the pool directory.
    pub fn objects(&self) -> impl Iterator<Item = (ChecksumType, DdtClass, String, ObjectId)> {
        self.tables.iter().flat_map(|(checksum, table)| {
            let parts = table.parts.iter();
            parts.map(|(class, part)| (*checksum, *class, name(*checksum, *class), part.object))
        })
    }

    /// Bytes that datasets use beyond what is stored: the pool appears larger by this much.
    #[must_use]
    #[doc(alias = "ddt_get_dedup_dspace")]
    pub fn dedup_dspace(&self) -> u64 {
        let saved = self.histograms().map(|(_, _, histogram)| {
            let total = histogram.total();
            total.referenced[3].saturating_sub(total.stored[3])
        });
        saved.fold(0, u64::saturating_add)
    }

    /// Bytes that datasets use in deduplicated blocks, in percent of what is stored of them; 100 if there are none.
    #[must_use]
    #[doc(alias = "ddt_get_pool_dedup_ratio")]
    pub fn ratio_percent(&self) -> u64 {
        let totals = self.histograms().map(|(_, _, histogram)| {
            let total = histogram.total();
            (total.referenced[3], total.stored[3])
        });
        let (referenced, stored) = totals.fold((0u64, 0u64), |(a, b), (referenced, stored)| {
            (a.saturating_add(referenced), b.saturating_add(stored))
        });
        let percent = referenced.saturating_mul(100).checked_div(stored);
        percent.unwrap_or(100)
    }

    /// Bytes that the tables themselves take.
    ///
    /// # Errors
    /// What reading the MOS gives.
    #[doc(alias = "ddt_get_ddt_dsize")]
    pub fn table_bytes(&self) -> Result<u64> {
        let parts = self.tables.values().flat_map(|table| table.parts.values());
        let mut bytes = 0u64;
        for part in parts {
            bytes = bytes.saturating_add(self.mos.hold(part.object)?.used_bytes());
        }
        Ok(bytes)
    }

    /// Every entry of every table.
    ///
    /// # Errors
    /// What reading the MOS gives, and `each`.
    #[doc(alias = "ddt_walk")]
    pub fn walk(
        &self,
        each: &mut dyn FnMut(ChecksumType, DdtClass, DdtEntry) -> Result<()>,
    ) -> Result<()> {
        for (checksum, table) in &self.tables {
            for (class, part) in &table.parts {
                for found in zap::iter(&self.mos, part.object)? {
                    let found = found?;
                    let words = found.words();
                    let key = DdtKey::from_words(&words)?;
                    let value = zap::lookup::<u8>(&self.mos, part.object, Key::Words(&words))?;
                    let entry = DdtEntry::parse(key, &value.unwrap_or_default())?;
                    each(*checksum, *class, entry)?;
                }
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
            let Some((class, entry)) = self.find(checksum, &key)? else {
                return Ok(None);
            };
            let stored = Some((class, entry.clone()));
            let change = Change { stored, now: entry };
            self.changes.insert((checksum, key), change);
        }
        let change = self.changes.get_mut(&(checksum, key));
        Ok(change.map(|change| &mut change.now))
    }

    /// Counts a pointer to a block of so many copies; a block that is in no entry is entered. Follows
    /// [`entry`](Ddts::entry).
    ///
    /// # Errors
    /// `Corrupt` for a checksum that no block has.
    #[doc(alias = "ddt_phys_addref")]
    pub fn refer(&mut self, bp: &BlkPtrPhys, copies: usize) -> Result<()> {
        let (checksum, key) = (checksum_of(bp)?, DdtKey::of(bp));
        let change = self.changes.entry((checksum, key));
        let change = change.or_insert_with(|| Change {
            stored: None,
            now: DdtEntry::new(key),
        });
        change.now.refer(bp, copies);
        Ok(())
    }

    /// Undoes a [`refer`](Ddts::refer) of the same txg, whose block was not written.
    #[doc(alias = "ddt_phys_unextend")]
    pub fn forget(&mut self, bp: &BlkPtrPhys) {
        let Ok(checksum) = checksum_of(bp) else {
            return;
        };
        let at = (checksum, DdtKey::of(bp));
        let Some(change) = self.changes.get_mut(&at) else {
            return;
        };
        if let Some(phys) = change.now.select(bp) {
            phys.refcnt = phys.refcnt.saturating_sub(1);
            if phys.refcnt == 0 && phys.birth == bp.birth() {
                *phys = DdtPhys::default();
            }
        }
        if change.stored.is_none() && change.now.is_empty() {
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

    fn find(&self, checksum: ChecksumType, key: &DdtKey) -> Result<Option<(DdtClass, DdtEntry)>> {
        let Some(table) = self.tables.get(&checksum) else {
            return Ok(None);
        };
        for (class, part) in &table.parts {
            let words = key.words();
            let value = zap::lookup::<u8>(&self.mos, part.object, Key::Words(&words))?;
            if let Some(value) = value {
                return Ok(Some((*class, DdtEntry::parse(*key, &value)?)));
            }
        }
        Ok(None)
    }

    /// Stores a changed entry in the ZAP of its class.
    #[doc(alias = "ddt_sync_flush_entry")]
    fn store(
        &mut self,
        tx: &Tx,
        checksum: ChecksumType,
        stored: Option<&(DdtClass, DdtEntry)>,
        after: &DdtEntry,
        dsize: &dyn Fn(&DvaPhys) -> u64,
    ) -> Result<()> {
        let refcnt = after.refcnt();
        let now = if refcnt > 1 {
            DdtClass::Duplicate
        } else {
            DdtClass::Unique
        };
        let words = after.key.words();
        let table = self.tables.entry(checksum).or_default();
        table.is_changed = true;
        if let Some((class, before)) = stored {
            let old = table.parts.get_mut(class).expect("it was found there");
            old.histogram.subtract(before, dsize);
            if now != *class || refcnt == 0 {
                Zap::open(&self.mos, old.object)?.remove(tx, Key::Words(&words))?;
            }
        }
        if refcnt == 0 {
            return Ok(());
        }
        let new = match table.parts.entry(now) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(place) => place.insert(Part {
                object: create(&self.mos, tx, checksum, now)?,
                histogram: DdtHistogram::default(),
            }),
        };
        new.histogram.add(after, dsize);
        zap::update(
            &self.mos,
            tx,
            new.object,
            Key::Words(&words),
            &after.value(),
        )
    }

    /// Stores the changed entries and the statistics, and removes a table without entries. Returns the blocks whose
    /// space is free now, with the dedup bit cleared. `dsize` returns the bytes that one copy counts for. Called at
    /// the end of a sync pass.
    ///
    /// # Errors
    /// What reading and writing the MOS gives.
    #[doc(alias = "ddt_sync")]
    pub fn sync(&mut self, tx: &Tx, dsize: &dyn Fn(&DvaPhys) -> u64) -> Result<Vec<BlkPtrPhys>> {
        let mut free = Vec::new();
        for ((checksum, key), Change { stored, mut now }) in std::mem::take(&mut self.changes) {
            for (n, phys) in now.phys.iter_mut().enumerate() {
                let is_obsolete = phys.refcnt == 0 || n == PHYS_DITTO;
                if phys.birth != Txg(0) && is_obsolete {
                    free.push(key.block(checksum, phys));
                    *phys = DdtPhys::default();
                }
            }
            if stored.as_ref().is_none_or(|(_, before)| *before != now) {
                self.store(tx, checksum, stored.as_ref(), &now, dsize)?;
            }
        }
        self.sync_stats(tx)?;
        Ok(free)
    }

    /// Whether entries have changed since the last sync.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    #[doc(alias = "ddt_sync_update_stats")]
    fn sync_stats(&mut self, tx: &Tx) -> Result<()> {
        for (checksum, table) in &mut self.tables {
            if !std::mem::take(&mut table.is_changed) {
                continue;
            }
            let stats = match self.stats {
                Some(stats) => stats,
                None => {
                    let type_ = ObjectType::DDT_STATS;
                    zap::create_link(&self.mos, tx, type_, POOL_DIRECTORY, DDT_STATS)?
                }
            };
            self.stats = Some(stats);
            let mut count = 0u64;
            for part in table.parts.values() {
                count = count.saturating_add(zap::count(&self.mos, part.object)?);
            }
            for (class, part) in &table.parts {
                let name = name(*checksum, *class);
                if count > 0 {
                    let words = part.histogram.words();
                    zap::update(&self.mos, tx, stats, &*name, &words)?;
                    continue;
                }
                Zap::open(&self.mos, POOL_DIRECTORY)?.remove(tx, &*name)?;
                Zap::open(&self.mos, stats)?.remove_if_present(tx, &*name)?;
                self.mos.object_free(tx, part.object)?;
            }
            if count == 0 {
                table.parts.clear();
            }
        }
        self.tables.retain(|_, table| !table.parts.is_empty());
        Ok(())
    }
}

/// Makes the ZAP of a class.
#[doc(alias = "ddt_object_create")]
fn create(mos: &Arc<Objset>, tx: &Tx, checksum: ChecksumType, class: DdtClass) -> Result<ObjectId> {
    let mut flags = Flags::HASH64 | Flags::UINT64_KEY;
    if is_even(checksum) {
        flags = flags | Flags::PRE_HASHED_KEY;
    }
    let new = NewZap {
        flags,
        block_shift: ZAP_SHIFT,
        indirect_shift: ZAP_SHIFT as u8,
        ..NewZap::new(ObjectType::DDT_ZAP)
    };
    let object = zap::create_with(mos, tx, &new)?.id();
    Zap::open(mos, POOL_DIRECTORY)?.add_u64(tx, &*name(checksum, class), object.0)?;
    Ok(object)
}

/// `ZCHECKSUM_FLAG_DEDUP`: checksums that need not be hashed again to be used as ZAP keys.
fn is_even(checksum: ChecksumType) -> bool {
    matches!(
        checksum,
        ChecksumType::Sha256 | ChecksumType::Sha512 | ChecksumType::Skein | ChecksumType::Blake3
    )
}

fn checksum_of(bp: &BlkPtrPhys) -> Result<ChecksumType> {
    let checksum = ChecksumType::try_from(bp.checksum());
    checksum.map_err(|_| Error::corrupt(format!("checksum {} of a block", bp.checksum())))
}
