//! The tables of a pool: adding and dropping references.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Context, Error, ObjectId, Result, VdevId};
use dmu::{NewObject, Objset, Tx};
use phys::brt::{BRT_LITTLE_ENDIAN, BRT_OBJECT_VDEV_PREFIX};
use phys::{BlkPtrPhys, BrtVdevPhys, ObjectType, Phys};
use zap::{Flags, Key, NewZap, directory};
use zerocopy::IntoBytes;

/// Ranges of a vdev, at most; a table with more (1 PiB in ranges of 16 MiB) is refused, as the counts of
/// all ranges are in memory, 2 bytes each.
const RANGES_MAX: u64 = 1 << 26;
/// Counts that are read at once.
const READ_COUNTS: u64 = 1 << 19;
/// `BRT_RANGESIZE`
const RANGE_BYTES: u64 = 16 << 20;
/// `BRT_BLOCKSIZE`
const COUNTS_BLOCK_BYTES: u64 = 32 << 10;
/// `brt_zap_default_bs`, `brt_zap_default_ibs`: log2 of the block sizes of a new table.
const ZAP_SHIFT: u32 = 12;

/// `brt_vdev_t`
struct Brt {
    object: ObjectId,
    phys: BrtVdevPhys,
    /// bv_entcount
    counts: Vec<u16>,
    is_changed: bool,
}

/// All tables of a pool.
pub struct Brts {
    mos: Arc<Objset>,
    vdevs: BTreeMap<VdevId, Brt>,
}

impl Brts {
    /// The tables that the pool directory names.
    ///
    /// # Errors
    /// What reading the MOS gives; `Corrupt`.
    #[doc(alias = "brt_load")]
    pub fn open(mos: &Arc<Objset>) -> Result<Brts> {
        let mut vdevs = BTreeMap::new();
        for entry in zap::iter(mos, directory::OBJECT)? {
            let entry = entry?;
            let name = entry.name_str();
            let Some(id) = name.strip_prefix(BRT_OBJECT_VDEV_PREFIX) else {
                continue;
            };
            let id: u64 = id
                .parse()
                .map_err(|_| Error::corrupt(format!("table of cloned blocks '{name}'")))?;
            let brt = Brt::open(mos, ObjectId(entry.first_integer)).within(|| name.clone())?;
            vdevs.insert(VdevId(id), brt);
        }
        let mos = mos.clone();
        Ok(Brts { mos, vdevs })
    }

    /// Whether there is no table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.vdevs.is_empty()
    }

    /// The ZAP of each table.
    pub fn zaps(&self) -> impl Iterator<Item = ObjectId> {
        let entries = self.vdevs.values().map(|brt| brt.phys.mos_entries.get());
        entries.map(ObjectId)
    }

    /// Bytes that cloned blocks occupy.
    #[must_use]
    #[doc(alias = "brt_get_used")]
    pub fn used(&self) -> u64 {
        let used = self.vdevs.values().map(|brt| brt.phys.usedspace.get());
        used.fold(0, u64::saturating_add)
    }

    /// Bytes that they would occupy beyond that if they were copies.
    #[must_use]
    #[doc(alias = "brt_get_saved")]
    pub fn saved(&self) -> u64 {
        let saved = self.vdevs.values().map(|brt| brt.phys.savedspace.get());
        saved.fold(0, u64::saturating_add)
    }

    /// Whether a block may have been cloned.
    #[must_use]
    #[doc(alias = "brt_maybe_exists")]
    pub fn may_have(&self, bp: &BlkPtrPhys) -> bool {
        let Some(dva) = bp.dvas().next() else {
            return false;
        };
        if bp.is_metadata() || bp.is_dedup() {
            return false;
        }
        let brt = self.vdevs.get(&dva.vdev());
        brt.is_some_and(|brt| brt.count_near(dva.offset()).is_some_and(|count| *count > 0))
    }

    /// Adds `count` references to one block, each of which counts for `dsize` bytes, on a vdev of which
    /// `vdev_bytes` can be allocated. With `as_numbers` (feature `block_cloning_endian` active) a new entry is a
    /// number, otherwise 8 bytes.
    /// Returns whether the vdev had no table before.
    ///
    /// # Errors
    /// What reading and writing the MOS gives.
    #[doc(alias = "brt_entry_addref")]
    pub fn add(
        &mut self,
        tx: &Tx,
        bp: &BlkPtrPhys,
        count: u64,
        dsize: u64,
        vdev_bytes: u64,
        as_numbers: bool,
    ) -> Result<bool> {
        let [dva, ..] = bp.dva;
        let is_new = !self.vdevs.contains_key(&dva.vdev());
        if is_new {
            let brt = Brt::create(&self.mos, tx, dva.vdev())?;
            self.vdevs.insert(dva.vdev(), brt);
        }
        let brt = self.vdevs.get_mut(&dva.vdev()).expect("made just now");
        let form = match (as_numbers, is_little_endian(&brt.phys)) {
            (true, _) => Form::Number,
            (false, true) => Form::LittleEndian,
            (false, false) => Form::BigEndian,
        };
        brt.give(
            &self.mos,
            tx,
            dva.offset(),
            (count, dsize),
            vdev_bytes,
            form,
        )?;
        Ok(is_new)
    }

    /// Drops `count` references to one block, each of which counts for `dsize` bytes. Returns whether
    /// none is left.
    ///
    /// # Errors
    /// What reading and writing the MOS gives; `Corrupt` when there were fewer.
    #[doc(alias = "brt_entry_decref")]
    pub fn release(&mut self, tx: &Tx, bp: &BlkPtrPhys, count: u64, dsize: u64) -> Result<bool> {
        let dva = bp.dvas().next().expect("a block that may have been cloned");
        let brt = self.vdevs.get_mut(&dva.vdev());
        let brt = brt.expect("a block that may have been cloned");
        let key = [dva.offset()];
        let entries = ObjectId(brt.phys.mos_entries.get());
        let is_little = is_little_endian(&brt.phys);
        let shared = lookup(&self.mos, entries, &key, is_little)?.unwrap_or(0);
        let taken = shared.min(count);
        let owners = shared.saturating_add(1);
        if count > owners {
            let text = format!("{count} references to a block at {dva} go, which has {owners}");
            return Err(Error::corrupt(text));
        }
        if taken > 0 {
            brt.take(&self.mos, tx, (&key, shared - taken), taken, dsize)?;
        }
        Ok(count > shared)
    }

    /// Writes what changed and removes tables without entries. Returns how many it removed. Called at
    /// the end of a sync pass.
    ///
    /// # Errors
    /// What writing the MOS gives.
    #[doc(alias = "brt_sync")]
    pub fn sync(&mut self, tx: &Tx) -> Result<u64> {
        let mut gone = Vec::new();
        for (id, brt) in &mut self.vdevs {
            if !std::mem::take(&mut brt.is_changed) {
                continue;
            }
            if brt.phys.totalcount.get() > 0 {
                let dnode = self.mos.hold(brt.object)?;
                dnode.set_bonus(tx, brt.phys.as_bytes())?;
                continue;
            }
            zap::destroy(&self.mos, tx, ObjectId(brt.phys.mos_entries.get()))?;
            self.mos.object_free(tx, brt.object)?;
            directory::remove(&self.mos, &format!("{BRT_OBJECT_VDEV_PREFIX}{id}"), tx)?;
            gone.push(*id);
        }
        for id in &gone {
            self.vdevs.remove(id);
        }
        Ok(gone.len() as u64)
    }
}

impl Brt {
    #[doc(alias = "brt_vdev_load")]
    fn open(mos: &Arc<Objset>, object: ObjectId) -> Result<Brt> {
        let dnode = mos.hold(object)?;
        let bonus = dnode.bonus();
        let phys = *BrtVdevPhys::view(&bonus)?;
        let ranges = phys.size.get();
        if ranges > RANGES_MAX || phys.rangesize.get() == 0 {
            let range = phys.rangesize.get();
            return Err(Error::corrupt(format!("{ranges} ranges of {range} bytes")));
        }
        let is_little = is_little_endian(&phys);
        let count = |pair: &[u8; 2]| match is_little {
            true => u16::from_le_bytes(*pair),
            false => u16::from_be_bytes(*pair),
        };
        let (mut counts, mut bytes) = (Vec::new(), Vec::new());
        for first in (0..ranges).step_by(READ_COUNTS as usize) {
            bytes.resize(READ_COUNTS.min(ranges - first) as usize * 2, 0);
            dnode.read(first * 2, &mut bytes)?;
            let (pairs, _) = bytes.as_chunks::<2>();
            counts.extend(pairs.iter().map(count));
        }
        Ok(Brt {
            object,
            phys,
            counts,
            is_changed: false,
        })
    }

    #[doc(alias = "brt_vdev_create")]
    fn create(mos: &Arc<Objset>, tx: &Tx, vdev: VdevId) -> Result<Brt> {
        let entries = zap::create_with(
            mos,
            tx,
            &NewZap {
                flags: Flags::HASH64 | Flags::UINT64_KEY,
                block_shift: ZAP_SHIFT,
                indirect_shift: ZAP_SHIFT as u8,
                ..NewZap::new(ObjectType::N_ZAP_METADATA)
            },
        )?;
        let mut phys = BrtVdevPhys::default();
        phys.mos_entries.set(entries.id().0);
        phys.byteorder.set(BRT_LITTLE_ENDIAN);
        phys.rangesize.set(RANGE_BYTES);
        let type_ = ObjectType::N_UINT64_METADATA;
        let new = NewObject::new(type_).blksz(COUNTS_BLOCK_BYTES);
        let dnode = mos.object_alloc(tx, &new.bonus(type_, size_of::<BrtVdevPhys>()))?;
        dnode.set_bonus(tx, phys.as_bytes())?;
        let name = format!("{BRT_OBJECT_VDEV_PREFIX}{vdev}");
        directory::set(mos, &name, dnode.id().0, tx)?;
        Ok(Brt {
            object: dnode.id(),
            phys,
            counts: Vec::new(),
            is_changed: true,
        })
    }

    /// Adds to the count of an entry, which is made if there is none.
    #[doc(alias = "brt_vdev_addref")]
    fn give(
        &mut self,
        mos: &Arc<Objset>,
        tx: &Tx,
        offset: u64,
        (count, dsize): (u64, u64),
        vdev_bytes: u64,
        form: Form,
    ) -> Result<()> {
        let (key, is_little) = ([offset], is_little_endian(&self.phys));
        let entries = ObjectId(self.phys.mos_entries.get());
        let before = match self.count_near(offset).is_some_and(|count| *count > 0) {
            true => lookup(mos, entries, &key, is_little)?.unwrap_or(0),
            false => 0,
        };
        let after = before.saturating_add(count);
        update(mos, tx, (entries, form), &key, after)?;
        let more = |field: u64, n: u64| field.saturating_add(n);
        let saved = more(self.phys.savedspace.get(), dsize.saturating_mul(count));
        self.phys.savedspace.set(saved);
        self.is_changed = true;
        if before > 0 {
            return Ok(());
        }
        self.phys
            .usedspace
            .set(more(self.phys.usedspace.get(), dsize));
        self.phys
            .totalcount
            .set(more(self.phys.totalcount.get(), 1));
        let range = offset / self.phys.rangesize.get();
        if range >= self.counts.len() as u64 {
            // There were no ranges yet, or the vdev has grown.
            let ranges = vdev_bytes
                .div_ceil(self.phys.rangesize.get())
                .max(range + 1);
            self.counts.resize(ranges as usize, 0);
            self.phys.size.set(ranges);
        }
        let count = &mut self.counts[range as usize];
        *count = count.saturating_add(1);
        self.write_count(mos, tx, range)
    }

    fn write_count(&self, mos: &Arc<Objset>, tx: &Tx, range: u64) -> Result<()> {
        let count = self.counts[range as usize];
        let bytes = match is_little_endian(&self.phys) {
            true => count.to_le_bytes(),
            false => count.to_be_bytes(),
        };
        mos.hold(self.object)?.write(tx, range * 2, &bytes)
    }

    /// The number of entries in the range of an offset.
    fn count_near(&self, offset: u64) -> Option<&u16> {
        let range = offset / self.phys.rangesize.get();
        self.counts.get(usize::try_from(range).ok()?)
    }

    /// Sets the count of an entry to `left`, `taken` fewer than it had; at 0 the entry is removed.
    #[doc(alias = "brt_vdev_decref")]
    fn take(
        &mut self,
        mos: &Arc<Objset>,
        tx: &Tx,
        (key, left): (&[u64; 1], u64),
        taken: u64,
        dsize: u64,
    ) -> Result<()> {
        let entries = ObjectId(self.phys.mos_entries.get());
        let less = |field: u64, n: u64| field.saturating_sub(n);
        let saved = less(self.phys.savedspace.get(), dsize.saturating_mul(taken));
        self.phys.savedspace.set(saved);
        self.is_changed = true;
        if left > 0 {
            let form = match is_little_endian(&self.phys) {
                true => Form::LittleEndian,
                false => Form::BigEndian,
            };
            return update(mos, tx, (entries, form), key, left);
        }
        zap::remove(mos, tx, entries, Key::Words(key))?;
        self.phys
            .usedspace
            .set(less(self.phys.usedspace.get(), dsize));
        self.phys
            .totalcount
            .set(less(self.phys.totalcount.get(), 1));
        let range = (key[0] / self.phys.rangesize.get()) as usize;
        let count = &mut self.counts[range];
        *count = count.saturating_sub(1);
        self.write_count(mos, tx, range as u64)
    }
}

/// Whether the host that made the table was little-endian.
fn is_little_endian(phys: &BrtVdevPhys) -> bool {
    phys.byteorder.get() == BRT_LITTLE_ENDIAN
}

/// The count of an entry. It is 8 bytes in the order of the host that made the table, or one number.
fn lookup(
    mos: &Arc<Objset>,
    entries: ObjectId,
    key: &[u64; 1],
    is_little: bool,
) -> Result<Option<u64>> {
    let zap = zap::Zap::open(mos, entries)?;
    match zap.length(Key::Words(key))? {
        None => Ok(None),
        Some((1, 8)) => {
            let bytes = zap.lookup::<u8>(Key::Words(key))?.unwrap_or_default();
            Ok(bytes.first_chunk().map(|bytes| match is_little {
                true => u64::from_le_bytes(*bytes),
                false => u64::from_be_bytes(*bytes),
            }))
        }
        Some((8, 1)) => zap.lookup_u64(Key::Words(key)),
        Some((size, count)) => {
            let text = format!("entry of a cloned block has {count} integers of {size} bytes");
            Err(Error::corrupt(text))
        }
    }
}

/// How a count is stored.
#[derive(Clone, Copy)]
enum Form {
    /// One integer, which a ZAP keeps in its own byte order (feature `block_cloning_endian`).
    Number,
    /// 8 bytes in the order of the host that made the table.
    LittleEndian,
    BigEndian,
}

/// Writes a count in the form in which it is stored; `form` is that of a new entry.
fn update(
    mos: &Arc<Objset>,
    tx: &Tx,
    (entries, form): (ObjectId, Form),
    key: &[u64; 1],
    count: u64,
) -> Result<()> {
    let zap = zap::Zap::open(mos, entries)?;
    let form = match zap.length(Key::Words(key))? {
        Some((8, 1)) => Form::Number,
        Some((1, 8)) if matches!(form, Form::Number) => {
            return Err(Error::corrupt(
                "the count of a cloned block is not a number",
            ));
        }
        _ => form,
    };
    match form {
        Form::Number => zap.update_u64(tx, Key::Words(key), count),
        Form::LittleEndian => zap.update(tx, Key::Words(key), &count.to_le_bytes()),
        Form::BigEndian => zap.update(tx, Key::Words(key), &count.to_be_bytes()),
    }
}
