//! The table of one checksum: a ZAP for each class, and with `fast_dedup` a directory and logs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use base::{Context, Error, ErrorKind, ObjectId, Result};
use dmu::{Objset, Tx};
use phys::blkptr::DvaPhys;
use phys::{ChecksumType, ObjectType, pool_names::DDT_STATS};
use zap::{Flags, Key, NewZap, Zap};

use crate::entry::{DdtEntry, DdtKey};
use crate::histogram::DdtHistogram;
use crate::log::Logs;
use crate::table::DdtClass;

const POOL_DIRECTORY: ObjectId = zap::directory::OBJECT;
/// `ddt_zap_default_bs` and `ddt_zap_default_ibs`
const ZAP_SHIFT: u32 = 15;
/// `DDT_VERSION_FDT`
const VERSION_FDT: u64 = 1;
/// `DDT_FLAG_FLAT | DDT_FLAG_LOG`: what tables of that version have.
pub(crate) const FLAGS_FDT: u64 = 3;
/// `DDT_DIR_VERSION` and `DDT_DIR_FLAGS`
const DIR_VERSION: &str = "version";
const DIR_FLAGS: &str = "flags";

/// The ZAP of one class.
pub(crate) struct Part {
    pub(crate) object: ObjectId,
    pub(crate) histogram: DdtHistogram,
}

/// What a table of `fast_dedup` has beside its ZAPs.
pub(crate) struct Fast {
    /// The ZAP that names everything of the table.
    pub(crate) dir: ObjectId,
    pub(crate) logs: Logs,
}

/// `ddt_t`: the table of one checksum algorithm.
pub(crate) struct Ddt {
    checksum: ChecksumType,
    pub(crate) parts: BTreeMap<DdtClass, Part>,
    pub(crate) fast: Option<Fast>,
    is_changed: bool,
}

/// Counts what one copy is charged for.
pub(crate) type Dsize<'a> = &'a dyn Fn(&DvaPhys) -> u64;

pub(crate) fn name(checksum: ChecksumType, class: DdtClass) -> String {
    format!("DDT-{}-zap-{}", checksum.name(), class.word())
}

fn dir_name(checksum: ChecksumType) -> String {
    format!("DDT-{}", checksum.name())
}

impl Ddt {
    /// An empty table without a ZAP.
    pub(crate) fn new(checksum: ChecksumType) -> Ddt {
        Ddt {
            checksum,
            parts: BTreeMap::new(),
            fast: None,
            is_changed: false,
        }
    }

    /// The table of this checksum, if there is one.
    #[doc(alias = "ddt_configure")]
    pub(crate) fn open(
        mos: &Arc<Objset>,
        checksum: ChecksumType,
        stats: Option<ObjectId>,
        dsize: Dsize<'_>,
    ) -> Result<Option<Ddt>> {
        let mut table = Ddt::new(checksum);
        let name = dir_name(checksum);
        if let Some(dir) = zap::lookup_u64(mos, POOL_DIRECTORY, &*name)? {
            let dir = ObjectId(dir);
            let version = zap::lookup_u64(mos, dir, DIR_VERSION)?.unwrap_or_default();
            let flags = zap::lookup_u64(mos, dir, DIR_FLAGS)?.unwrap_or_default();
            if (version, flags) != (VERSION_FDT, FLAGS_FDT) {
                let text = format!("{name} of version {version} with flags {flags:#x}");
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
            let logs = Logs::load(mos, dir, checksum, dsize)?;
            table.fast = Some(Fast { dir, logs });
        }
        for class in DdtClass::ALL {
            table.open_part(mos, class, stats)?;
        }
        let is_there = table.fast.is_some() || !table.parts.is_empty();
        Ok(is_there.then_some(table))
    }

    fn open_part(
        &mut self,
        mos: &Arc<Objset>,
        class: DdtClass,
        stats: Option<ObjectId>,
    ) -> Result<()> {
        let name = name(self.checksum, class);
        let Some(object) = zap::lookup_u64(mos, self.root(), &*name)? else {
            return Ok(());
        };
        let words = match stats {
            Some(stats) => zap::lookup::<u64>(mos, stats, &*name).within(|| DDT_STATS)?,
            None => None,
        };
        let part = Part {
            object: ObjectId(object),
            histogram: DdtHistogram::from_words(&words.unwrap_or_default()),
        };
        self.parts.insert(class, part);
        Ok(())
    }

    /// The ZAP that names the ZAPs of the classes.
    pub(crate) fn root(&self) -> ObjectId {
        self.fast.as_ref().map_or(POOL_DIRECTORY, |fast| fast.dir)
    }

    pub(crate) fn is_flat(&self) -> bool {
        self.fast.is_some()
    }

    /// What all entries count for, by class; those in the logs come last.
    pub(crate) fn histograms(&self) -> impl Iterator<Item = &DdtHistogram> {
        let parts = self.parts.values().map(|part| &part.histogram);
        parts.chain(self.fast.iter().map(|fast| &fast.logs.histogram))
    }

    /// Makes the directory of a table of `fast_dedup`.
    #[doc(alias = "ddt_create_dir")]
    pub(crate) fn create_dir(&mut self, mos: &Arc<Objset>, tx: &Tx) -> Result<()> {
        let type_ = ObjectType::N_ZAP_METADATA;
        let name = dir_name(self.checksum);
        let dir = zap::create_link(mos, tx, type_, POOL_DIRECTORY, &*name)?;
        zap::update_u64(mos, tx, dir, DIR_VERSION, VERSION_FDT)?;
        zap::update_u64(mos, tx, dir, DIR_FLAGS, FLAGS_FDT)?;
        let logs = Logs::new();
        self.fast = Some(Fast { dir, logs });
        Ok(())
    }

    /// An entry in the ZAPs.
    #[doc(alias = "ddt_object_lookup")]
    pub(crate) fn stored(
        &self,
        mos: &Arc<Objset>,
        key: &DdtKey,
    ) -> Result<Option<(DdtClass, DdtEntry)>> {
        for (class, part) in &self.parts {
            let words = key.words();
            let value = zap::lookup::<u8>(mos, part.object, Key::Words(&words))?;
            if let Some(value) = value {
                let entry = DdtEntry::parse(*key, &value, self.is_flat())?;
                return Ok(Some((*class, entry)));
            }
        }
        Ok(None)
    }

    /// Every entry of the ZAP of one class, but those that are newer in a log.
    pub(crate) fn walk(
        &self,
        mos: &Arc<Objset>,
        class: DdtClass,
        each: &mut dyn FnMut(DdtEntry) -> Result<()>,
    ) -> Result<()> {
        let Some(part) = self.parts.get(&class) else {
            return Ok(());
        };
        for found in zap::iter(mos, part.object)? {
            let found = found?;
            let words = found.words();
            let key = DdtKey::from_words(&words)?;
            let logs = self.fast.as_ref().map(|fast| &fast.logs);
            if logs.is_some_and(|logs| logs.find(&key).is_some()) {
                continue;
            }
            let value = zap::lookup::<u8>(mos, part.object, Key::Words(&words))?;
            each(DdtEntry::parse(
                key,
                &value.unwrap_or_default(),
                self.is_flat(),
            )?)?;
        }
        Ok(())
    }

    /// The entry of the ZAP of a class does not count any more: it changes.
    pub(crate) fn uncount(&mut self, class: DdtClass, entry: &DdtEntry, dsize: Dsize<'_>) {
        if let Some(part) = self.parts.get_mut(&class) {
            part.histogram.subtract(entry, dsize);
            self.is_changed = true;
        }
    }

    /// Puts a changed entry into the ZAP of the class that its references determine; `before` is the one it was in.
    #[doc(alias = "ddt_sync_flush_entry")]
    pub(crate) fn store(
        &mut self,
        (mos, tx): (&Arc<Objset>, &Tx),
        before: Option<DdtClass>,
        entry: &DdtEntry,
        dsize: Dsize<'_>,
    ) -> Result<()> {
        let refcnt = entry.refcnt();
        let now = if refcnt > 1 {
            DdtClass::Duplicate
        } else {
            DdtClass::Unique
        };
        let words = entry.key.words();
        self.is_changed = true;
        let old = before.filter(|class| *class != now || refcnt == 0);
        if let Some(old) = old.and_then(|class| self.parts.get(&class)) {
            Zap::open(mos, old.object)?.remove(tx, Key::Words(&words))?;
        }
        if refcnt == 0 {
            return Ok(());
        }
        let (checksum, root) = (self.checksum, self.root());
        let new = match self.parts.entry(now) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(place) => place.insert(Part {
                object: create_part(mos, tx, root, (checksum, now))?,
                histogram: DdtHistogram::default(),
            }),
        };
        new.histogram.add(entry, dsize);
        let value = entry.value();
        zap::update(mos, tx, new.object, Key::Words(&words), &value)
    }

    /// Stores the histograms, and removes what is empty. Returns whether a directory was removed.
    #[doc(alias = "ddt_sync_update_stats")]
    pub(crate) fn sync_stats(
        &mut self,
        mos: &Arc<Objset>,
        tx: &Tx,
        stats: ObjectId,
    ) -> Result<bool> {
        if !std::mem::take(&mut self.is_changed) {
            return Ok(false);
        }
        let mut count = 0u64;
        for part in self.parts.values() {
            count = count.saturating_add(zap::count(mos, part.object)?);
        }
        let root = self.root();
        for (class, part) in &self.parts {
            let name = name(self.checksum, *class);
            if count > 0 {
                let words = part.histogram.words();
                zap::update(mos, tx, stats, &*name, &words)?;
                continue;
            }
            Zap::open(mos, root)?.remove(tx, &*name)?;
            Zap::open(mos, stats)?.remove_if_present(tx, &*name)?;
            mos.object_free(tx, part.object)?;
        }
        if count > 0 {
            return Ok(false);
        }
        self.parts.clear();
        self.fast
            .take_if(|fast| fast.logs.len() == 0)
            .map_or(Ok(false), |fast| {
                self.destroy_dir(mos, tx, fast)?;
                Ok(true)
            })
    }

    #[doc(alias = "ddt_destroy_dir")]
    fn destroy_dir(&self, mos: &Arc<Objset>, tx: &Tx, mut fast: Fast) -> Result<()> {
        fast.logs.destroy(mos, tx, fast.dir, self.checksum)?;
        zap::directory::remove(mos, &dir_name(self.checksum), tx)?;
        zap::destroy(mos, tx, fast.dir)
    }

    /// Whether nothing is left of it.
    pub(crate) fn is_gone(&self) -> bool {
        self.parts.is_empty() && self.fast.is_none()
    }
}

/// Makes the ZAP of a class.
#[doc(alias = "ddt_object_create")]
fn create_part(
    mos: &Arc<Objset>,
    tx: &Tx,
    root: ObjectId,
    (checksum, class): (ChecksumType, DdtClass),
) -> Result<ObjectId> {
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
    Zap::open(mos, root)?.add_u64(tx, &*name(checksum, class), object.0)?;
    Ok(object)
}

/// `ZCHECKSUM_FLAG_DEDUP`: checksums that need not be hashed again to be used as ZAP keys.
fn is_even(checksum: ChecksumType) -> bool {
    matches!(
        checksum,
        ChecksumType::Sha256 | ChecksumType::Sha512 | ChecksumType::Skein | ChecksumType::Blake3
    )
}
