//! The MOS as the DSL uses it: objects, small ZAPs, the pool directory.

use phys::PropValue;
use phys::pool_names;
use std::sync::Arc;
use zap::directory;

use base::{ErrorKind, ObjectId, Result};
use dmu::{Dnode, NewObject, Objset, Tx};
use phys::ObjectType;
use rt::Mutex;
use zap::{Flags, NewZap, Zap};

use crate::env::PoolEnv;
use phys::feature;

/// The meta-objset, together with what every structure in it needs.
pub struct Mos {
    os: Arc<Objset>,
    env: Arc<dyn PoolEnv>,
    /// dp_empty_bpobj
    empty_bpobj: Mutex<Option<ObjectId>>,
}

impl Mos {
    /// Wraps the MOS of a pool, and finds the shared empty bpobj if there is one.
    ///
    /// # Errors
    /// Any error from reading the pool directory.
    pub fn new(os: Arc<Objset>, env: Arc<dyn PoolEnv>) -> Result<Arc<Mos>> {
        let mos = Mos {
            os,
            env,
            empty_bpobj: Mutex::new(None),
        };
        if mos.env.feature_is_active(feature::EMPTY_BPOBJ) {
            let object = directory::get(mos.objset(), pool_names::EMPTY_BPOBJ)?;
            mos.set_empty_bpobj(Some(object));
        }
        Ok(Arc::new(mos))
    }

    /// The objset.
    #[must_use]
    pub fn objset(&self) -> &Arc<Objset> {
        &self.os
    }

    /// The pool around it.
    #[must_use]
    pub fn env(&self) -> &dyn PoolEnv {
        &*self.env
    }

    /// The shared empty bpobj, if it exists now.
    #[must_use]
    pub fn empty_bpobj(&self) -> Option<ObjectId> {
        *self.empty_bpobj.lock()
    }

    pub(crate) fn set_empty_bpobj(&self, object: Option<ObjectId>) {
        *self.empty_bpobj.lock() = object;
    }

    pub(crate) fn hold(&self, object: ObjectId) -> Result<Arc<Dnode>> {
        self.os.hold(object)
    }

    /// Allocates an object. `block_bytes` 0 selects the smallest size.
    pub(crate) fn alloc(
        &self,
        type_: ObjectType,
        block_bytes: u64,
        bonus_type: ObjectType,
        bonus_len: usize,
        tx: &Tx,
    ) -> Result<ObjectId> {
        let new = NewObject::new(type_)
            .blksz(block_bytes)
            .bonus(bonus_type, bonus_len);
        Ok(self.os.object_alloc(tx, &new)?.id())
    }

    pub(crate) fn free_object(&self, object: ObjectId, tx: &Tx) -> Result<()> {
        self.os.object_free(tx, object)
    }

    /// Frees a directory's or dataset's object, zapified or not.
    #[doc(alias = "dmu_object_free_zapified")]
    pub(crate) fn free_zapified(&self, object: ObjectId, tx: &Tx) -> Result<()> {
        if self.is_zapified(object)? {
            self.env.feature_decr(feature::EXTENSIBLE_DATASET, tx)?;
        }
        self.free_object(object, tx)
    }

    /// Turns a directory's or dataset's object into a ZAP, if it is not one yet; its bonus stays.
    #[doc(alias = "dmu_object_zapify")]
    pub(crate) fn zapify(&self, object: ObjectId, tx: &Tx) -> Result<()> {
        if self.is_zapified(object)? {
            return Ok(());
        }
        zap::zapify(&self.os, tx, object)?;
        self.env.feature_incr(feature::EXTENSIBLE_DATASET, tx)
    }

    pub(crate) fn is_zapified(&self, object: ObjectId) -> Result<bool> {
        Ok(self.hold(object)?.type_() == ObjectType::N_ZAP_METADATA)
    }
}

/// ZAPs whose keys are names.
impl Mos {
    pub(crate) fn zap_create(&self, type_: ObjectType, tx: &Tx) -> Result<ObjectId> {
        zap::create(&self.os, tx, type_)
    }

    pub(crate) fn zap_create_bonus(
        &self,
        type_: ObjectType,
        bonus_type: ObjectType,
        bonus_len: usize,
        tx: &Tx,
    ) -> Result<ObjectId> {
        let new = NewZap {
            bonus_type,
            bonus_len,
            ..NewZap::new(type_)
        };
        Ok(zap::create_with(&self.os, tx, &new)?.id())
    }

    /// A ZAP for names of snapshots or bookmarks, which are hashed case-insensitively.
    pub(crate) fn zap_create_names(&self, type_: ObjectType, tx: &Tx) -> Result<ObjectId> {
        let new = NewZap {
            flags: Flags::TOUPPER,
            ..NewZap::new(type_)
        };
        Ok(zap::create_with(&self.os, tx, &new)?.id())
    }

    pub(crate) fn zap_destroy(&self, object: ObjectId, tx: &Tx) -> Result<()> {
        // The number is from disk: an object of another type, which others may use, is not freed.
        zap::Zap::open(&self.os, object)?;
        zap::destroy(&self.os, tx, object)
    }

    pub(crate) fn zap_get(&self, object: ObjectId, name: &str) -> Result<Option<u64>> {
        zap::lookup_u64(&self.os, object, name)
    }

    /// The value of a name that is the same but for case.
    pub(crate) fn zap_get_alike(&self, object: ObjectId, name: &str) -> Result<Option<u64>> {
        let zap = Zap::open(&self.os, object)?;
        let found = zap.find_alike(name.as_bytes(), zap::Case::Ignored)?;
        Ok(found.map(|entry| entry.first_integer))
    }

    pub(crate) fn zap_contains(&self, object: ObjectId, name: &str) -> Result<bool> {
        zap::contains(&self.os, object, name)
    }

    pub(crate) fn zap_add(&self, object: ObjectId, name: &str, value: u64, tx: &Tx) -> Result<()> {
        zap::add_u64(&self.os, tx, object, name, value)
    }

    pub(crate) fn zap_set(&self, object: ObjectId, name: &str, value: u64, tx: &Tx) -> Result<()> {
        zap::update_u64(&self.os, tx, object, name, value)
    }

    pub(crate) fn zap_remove(&self, object: ObjectId, name: &str, tx: &Tx) -> Result<()> {
        zap::remove(&self.os, tx, object, name)
    }

    /// Removes an entry if it is there; returns whether it was.
    pub(crate) fn zap_take(&self, object: ObjectId, name: &str, tx: &Tx) -> Result<bool> {
        zap::remove_if_present(&self.os, tx, object, name)
    }

    pub(crate) fn zap_count(&self, object: ObjectId) -> Result<u64> {
        zap::count(&self.os, object)
    }

    /// A value of 64-bit words.
    pub(crate) fn zap_get_words(&self, object: ObjectId, name: &str) -> Result<Option<Vec<u64>>> {
        zap::lookup(&self.os, object, name)
    }

    pub(crate) fn zap_set_words(
        &self,
        object: ObjectId,
        name: &str,
        words: &[u64],
        tx: &Tx,
    ) -> Result<()> {
        zap::update(&self.os, tx, object, name, words)
    }

    /// A property's value: one number, or a string.
    pub(crate) fn zap_value(&self, object: ObjectId, name: &str) -> Result<Option<PropValue>> {
        let zap = Zap::open(&self.os, object)?;
        match zap.length(name)? {
            None => Ok(None),
            Some((1, _)) => Ok(zap.lookup_str(name)?.map(PropValue::Text)),
            Some(_) => Ok(zap.lookup_u64(name)?.map(PropValue::Number)),
        }
    }

    pub(crate) fn zap_set_value(
        &self,
        object: ObjectId,
        name: &str,
        value: &PropValue,
        tx: &Tx,
    ) -> Result<()> {
        match value {
            PropValue::Number(number) => self.zap_set(object, name, *number, tx),
            PropValue::Text(text) => zap::update_str(&self.os, tx, object, name, text),
        }
    }

    fn zap_names(&self, object: ObjectId) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in zap::iter(&self.os, object)? {
            names.push(entry?.name_str().into_owned());
        }
        names.sort();
        Ok(names)
    }

    /// All properties, sorted by name.
    pub(crate) fn zap_values(&self, object: ObjectId) -> Result<Vec<(String, PropValue)>> {
        let mut values = Vec::new();
        for name in self.zap_names(object)? {
            if let Some(value) = self.zap_value(object, &name)? {
                values.push((name, value));
            }
        }
        Ok(values)
    }

    /// All values of 64-bit words, sorted by name.
    pub(crate) fn zap_word_entries(&self, object: ObjectId) -> Result<Vec<(String, Vec<u64>)>> {
        let mut values = Vec::new();
        for name in self.zap_names(object)? {
            if let Some(words) = self.zap_get_words(object, &name)? {
                values.push((name, words));
            }
        }
        Ok(values)
    }

    /// All entries, whose values are single numbers, sorted by name.
    pub(crate) fn zap_entries(&self, object: ObjectId) -> Result<Vec<(String, u64)>> {
        let mut entries = Vec::new();
        for entry in zap::iter(&self.os, object)? {
            let entry = entry?;
            entries.push((entry.name_str().into_owned(), entry.first_integer));
        }
        entries.sort();
        Ok(entries)
    }

    /// The first name with this value.
    #[doc(alias = "zap_value_search")]
    pub(crate) fn zap_name_of(&self, object: ObjectId, value: u64) -> Result<Option<String>> {
        let name = Zap::open(&self.os, object)?.value_search(value, u64::MAX)?;
        Ok(name.map(|name| String::from_utf8_lossy(&name).into_owned()))
    }
}

/// ZAPs keyed by numbers, which are spelled in hexadecimal.
impl Mos {
    pub(crate) fn zap_int_add(
        &self,
        object: ObjectId,
        key: u64,
        value: u64,
        tx: &Tx,
    ) -> Result<()> {
        self.zap_add(object, &format!("{key:x}"), value, tx)
    }

    pub(crate) fn zap_int_update(
        &self,
        object: ObjectId,
        key: u64,
        value: u64,
        tx: &Tx,
    ) -> Result<()> {
        self.zap_set(object, &format!("{key:x}"), value, tx)
    }

    pub(crate) fn zap_int_remove(&self, object: ObjectId, key: u64, tx: &Tx) -> Result<()> {
        self.zap_remove(object, &format!("{key:x}"), tx)
    }

    /// All entries, sorted by key.
    pub(crate) fn zap_int_entries(&self, object: ObjectId) -> Result<Vec<(u64, u64)>> {
        let mut entries = Vec::new();
        for (name, value) in self.zap_entries(object)? {
            let key = u64::from_str_radix(&name, 16).map_err(|_| {
                base::Error::corrupt(format!("object {object}: key {name:?} is not a number"))
            })?;
            entries.push((key, value));
        }
        entries.sort_unstable();
        Ok(entries)
    }

    /// The values of a set: a ZAP whose keys are its values.
    pub(crate) fn zap_set_members(&self, object: ObjectId) -> Result<Vec<u64>> {
        Ok(self
            .zap_int_entries(object)?
            .into_iter()
            .map(|(_, value)| value)
            .collect())
    }
}

/// `Ok(None)` for `NotFound`.
pub(crate) fn optional<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The little-endian word number `at` of `bytes`, if they are long enough.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at.checked_mul(8)?..)?.first_chunk::<8>()?;
    Some(zerocopy::little_endian::U64::from_bytes(*word).get())
}
