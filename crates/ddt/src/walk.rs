//! What a scan sees of the tables: the entries one after the other, and whether a block is in those it has passed.
//!
//! # What it is
//! A scan reads the blocks of the classes with several references first, each once, and leaves them out where they are
//! referred to. Its position is a class, a table, and a position in a ZAP, which stays valid whatever is added or
//! removed.
//!
//! # Invariants
//! 1. A block that comes into the ZAP of such a class is told of by [`Ddts::sync`] (`risen`): the scan may have passed
//!    it, and would leave it out from now on.
//! 2. A block is left out only if the entry names its very place: one whose entry was pruned may be entered again,
//!    elsewhere.
//!
//! # Source
//! OpenZFS `module/zfs/ddt.c` (`ddt_walk`, `ddt_class_contains`, `ddt_sync_scan_entry`), `module/zfs/ddt_zap.c`
//! (`ddt_zap_walk`), `module/zfs/dsl_scan.c` (`dsl_scan_ddt`).

use std::sync::Arc;

use base::{Result, Txg};
use dmu::Objset;
use phys::scan::DdtBookmarkPhys;
use phys::{BlkPtrPhys, ChecksumType};
use zap::{Key, Zap};

use crate::entry::{DdtEntry, DdtKey, FLAT_PLACE};
use crate::store::Ddt;
use crate::table::{DdtClass, DdtTable, Ddts, checksum_of};

/// `DDT_TYPES`: kinds of objects that a table may be in.
const TYPES: u64 = 1;
/// More numbers than there are checksum algorithms.
const CHECKSUMS: u64 = 256;

impl Ddts {
    /// The blocks of the entry at a position, or behind it, as they are now. The position is behind that entry then, or
    /// behind the last class, if there is none.
    ///
    /// # Errors
    /// What reading the MOS gives.
    #[doc(alias = "ddt_walk")]
    pub fn next(&self, at: &mut DdtBookmarkPhys) -> Result<Option<Vec<BlkPtrPhys>>> {
        while let Some(class) = DdtClass::from_raw(at.class.get()) {
            while at.type_.get() < TYPES {
                while at.checksum.get() < CHECKSUMS {
                    if let Some(blocks) = self.next_in(class, at)? {
                        return Ok(Some(blocks));
                    }
                    at.cursor.set(0);
                    at.checksum.set(at.checksum.get() + 1);
                }
                at.checksum.set(0);
                at.type_.set(at.type_.get() + 1);
            }
            at.type_.set(0);
            at.class.set(at.class.get() + 1);
        }
        Ok(None)
    }

    #[doc(alias = "ddt_zap_walk")]
    fn next_in(
        &self,
        class: DdtClass,
        at: &mut DdtBookmarkPhys,
    ) -> Result<Option<Vec<BlkPtrPhys>>> {
        let raw = u8::try_from(at.checksum.get()).ok();
        let checksum = raw.and_then(|raw| ChecksumType::try_from(raw).ok());
        let table = checksum.and_then(|checksum| Some((checksum, self.tables.get(&checksum)?)));
        let Some((checksum, table)) = table else {
            return Ok(None);
        };
        let Some(part) = table.parts.get(&class) else {
            return Ok(None);
        };
        let mut cursor = Zap::open(self.mos(), part.object)?.cursor(at.cursor.get());
        let Some(found) = cursor.retrieve()? else {
            return Ok(None);
        };
        cursor.advance();
        at.cursor.set(cursor.serialize());
        let key = DdtKey::from_words(&found.words())?;
        let entry = self.newest(table, class, &key)?;
        let blocks = entry.iter().flat_map(|entry| entry.own_blocks(checksum));
        Ok(Some(blocks.collect()))
    }

    /// The entry of a class's ZAP, or what a log has newer.
    fn newest(&self, table: &Ddt, class: DdtClass, key: &DdtKey) -> Result<Option<DdtEntry>> {
        let Some(part) = table.parts.get(&class) else {
            return Ok(None);
        };
        let words = key.words();
        let Some(value) = zap::lookup::<u8>(self.mos(), part.object, Key::Words(&words))? else {
            return Ok(None);
        };
        let logs = table.fast.as_ref().map(|fast| &fast.logs);
        match logs.and_then(|logs| logs.find(key)) {
            Some(logged) => Ok(Some(DdtEntry::of_flat(*key, &logged.flat))),
            None => DdtEntry::parse(*key, &value, table.is_flat()).map(Some),
        }
    }

    /// Whether a block is in the ZAP of a class up to `class_max`.
    ///
    /// # Errors
    /// What reading the MOS gives.
    #[doc(alias = "ddt_class_contains")]
    pub fn contains(&self, class_max: u64, bp: &BlkPtrPhys) -> Result<bool> {
        if !bp.is_dedup() {
            return Ok(false);
        }
        let Some(table) = self.tables.get(&checksum_of(bp)?) else {
            return Ok(false);
        };
        let key = DdtKey::of(bp);
        for class in table.parts.keys().filter(|class| class.raw() <= class_max) {
            let entry = self.newest(table, *class, &key)?;
            if entry.is_some_and(|mut entry| entry.select(bp).is_some()) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl DdtTable<'_> {
    /// The entries in the ZAP of a class, as they are there, even if a log has newer ones; each with the position
    /// behind it.
    ///
    /// # Errors
    /// What reading the MOS gives, and `each`.
    #[doc(alias = "ddt_object_walk")]
    pub fn each_stored(
        self,
        mos: &Arc<Objset>,
        class: DdtClass,
        each: &mut dyn FnMut(u64, &DdtEntry) -> Result<()>,
    ) -> Result<()> {
        let Some(part) = self.table.parts.get(&class) else {
            return Ok(());
        };
        let zap = Zap::open(mos, part.object)?;
        let mut cursor = zap.cursor(0);
        while let Some(found) = cursor.retrieve()? {
            cursor.advance();
            let words = found.words();
            let key = DdtKey::from_words(&words)?;
            let value = zap::lookup::<u8>(mos, part.object, Key::Words(&words))?;
            let value = value.unwrap_or_default();
            let entry = DdtEntry::parse(key, &value, self.table.is_flat())?;
            each(cursor.serialize(), &entry)?;
        }
        Ok(())
    }

    /// The entries of both logs, in the order of their keys.
    pub fn logged_entries(self) -> impl Iterator<Item = Vec<DdtEntry>> {
        let logs = self.table.fast.iter().flat_map(|fast| fast.logs.logs());
        logs.map(|log| {
            let entries = log.entries.iter();
            let entries = entries.map(|(key, logged)| DdtEntry::of_flat(*key, &logged.flat));
            entries.collect()
        })
    }
}

impl DdtEntry {
    /// Its blocks as zdb shows them: the number of the place, the references, and a pointer with the dedup bit.
    #[doc(alias = "dump_ddt_entry")]
    pub fn shown(&self, checksum: ChecksumType) -> impl Iterator<Item = (usize, u64, BlkPtrPhys)> {
        let first = if self.class_start.is_some() {
            FLAT_PLACE
        } else {
            0
        };
        let there = self.phys.iter().enumerate();
        let there = there.filter(|(_, phys)| phys.birth != Txg(0));
        there.map(move |(place, phys)| {
            let mut bp = self.key.block(checksum, phys);
            bp.set_dedup(true);
            (place - first, phys.refcnt, bp)
        })
    }

    /// Its blocks, without the dedup bit.
    pub(crate) fn own_blocks(&self, checksum: ChecksumType) -> impl Iterator<Item = BlkPtrPhys> {
        let there = self.phys.iter().filter(|phys| phys.birth != Txg(0));
        there.map(move |phys| self.key.block(checksum, phys))
    }
}
