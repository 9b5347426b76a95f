//! Encryption of directories: how each is encrypted, and which keys are loaded.
//!
//! # What it is
//! An encrypted directory has a key object with its master key, wrapped. The directory whose user gave the wrapping
//! key is the *encryption root* of all below that inherit it: one wrapping key, loaded by name of the root, opens them
//! all. A clone has the key object of its origin. While a wrapping key is loaded, the key of a data set is unwrapped
//! when its objset is first asked for, and given to the pipeline.
//!
//! # On disk
//! `com.datto:crypto_key_obj` in the ZAP of a directory names its key object, a ZAP: suite, guid, version, IV, MAC,
//! both wrapped keys, the object of the root's directory, the number of directories that have it, and what the wrapping
//! key was made from: `keyformat`, `pbkdf2salt`, `pbkdf2iters`.
//!
//! # Invariants
//! 1. A key is in the pipeline only while the wrapping key of its root is loaded.
//! 2. What was read without a key, or with one that is unloaded, is not used again: the cache is emptied.
//!
//! # Source
//! OpenZFS module/zfs/dsl_crypt.c, include/sys/dsl_crypt.h.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{Context, Error, ErrorKind, ObjectId, ObjsetId, Result};
use crypt::{DataKey, KeyFields, KeyFormat, Suite, WrappedKey, WrappingKey};
use dmu::{Objset, Tx};
use phys::blkptr::IV_LEN;
use phys::{ObjectType, feature};
use rt::Mutex;
use zio::Keys;

use crate::dataset::DslDataset;
use crate::dir::DslDir;
use crate::pool::DslPool;

/// `DD_FIELD_CRYPTO_KEY_OBJ`
const KEY_OBJECT: &str = "com.datto:crypto_key_obj";
/// `DSL_CRYPTO_KEY_ROOT_DDOBJ`
const ROOT: &str = "DSL_CRYPTO_ROOT_DDOBJ";
/// `DSL_CRYPTO_KEY_REFCOUNT`
const REFCOUNT: &str = "DSL_CRYPTO_REFCOUNT";
/// `MASTER_KEY_MAX_LEN`: bytes in which a master key is stored, whatever its suite.
const MASTER_KEY_ROOM: usize = 32;
/// `DS_FIELD_IVSET_GUID`
const IVSET_GUID: &str = "com.datto:ivset_guid";

/// How a directory is encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encryption {
    /// How blocks are encrypted.
    pub suite: Suite,
    /// DSL_CRYPTO_GUID
    pub key_guid: u64,
    /// What the wrapping key was made from.
    pub format: KeyFormat,
    /// pbkdf2salt: of a passphrase
    pub salt: u64,
    /// pbkdf2iters: of a passphrase
    pub iterations: u64,
    /// The directory of the encryption root.
    pub root: ObjectId,
    /// Whether the key is loaded.
    pub is_available: bool,
}

/// The key of a new encryption root.
pub struct NewRoot {
    /// How blocks are encrypted.
    pub suite: Suite,
    /// What the wrapping key was made from.
    pub format: KeyFormat,
    /// Of a passphrase; otherwise 0.
    pub salt: u64,
    /// Of a passphrase; otherwise 0.
    pub iterations: u64,
    /// The wrapping key.
    pub key: WrappingKey,
}

/// How a new head is encrypted.
pub enum Encrypted {
    /// As the directory above it.
    AsAbove,
    /// Not at all.
    Off,
    /// In this suite, with the wrapping key of the directory above it.
    In(Suite),
    /// As an encryption root.
    Root(NewRoot),
}

/// The keys that are loaded.
pub(crate) struct Keystore {
    /// By the directory of the encryption root.
    wrapping: Mutex<BTreeMap<ObjectId, WrappingKey>>,
    /// Objsets whose keys the pipeline has, and their encryption roots.
    opened: Mutex<BTreeMap<ObjsetId, ObjectId>>,
    keys: Arc<Keys>,
}

impl Keystore {
    pub(crate) fn new(keys: Arc<Keys>) -> Keystore {
        Keystore {
            wrapping: Mutex::default(),
            opened: Mutex::default(),
            keys,
        }
    }

    /// The wrapping key of an encryption root, if it is loaded.
    pub(crate) fn wrapping_key(&self, root: ObjectId) -> Option<WrappingKey> {
        self.wrapping.lock().get(&root).cloned()
    }
}

impl DslPool {
    /// dd_crypto_obj: the key object of a directory.
    pub(crate) fn find_key_object(&self, dir: ObjectId) -> Result<Option<ObjectId>> {
        let mos = self.mos();
        if !mos.env().feature_is_enabled(feature::ENCRYPTION) || !mos.is_zapified(dir)? {
            return Ok(None);
        }
        Ok(mos.zap_get(dir, KEY_OBJECT)?.map(ObjectId))
    }

    /// How a directory is encrypted; `None` if it is not.
    ///
    /// # Errors
    /// Any error from reading the MOS; `Unsupported` for an unknown suite.
    #[doc(alias = "dsl_dataset_crypt_stats")]
    pub fn encryption(&self, dir: &Arc<DslDir>) -> Result<Option<Encryption>> {
        let Some(object) = dir.key_object() else {
            return Ok(None);
        };
        let number = |object, name| self.key_number(object, name);
        let root = self.key_root(object)?;
        // Only the key object of the root has what its wrapping key was made from.
        let root_object = self.dir_by_object(root)?.key_object();
        let root_object = root_object
            .ok_or_else(|| Error::corrupt(format!("encryption root {root} has no key object")))?;
        Ok(Some(Encryption {
            suite: Suite::from_raw(number(object, "DSL_CRYPTO_SUITE")?)?,
            key_guid: number(object, "DSL_CRYPTO_GUID")?,
            format: KeyFormat::from_raw(number(root_object, "keyformat")?)?,
            salt: number(root_object, "pbkdf2salt")?,
            iterations: number(root_object, "pbkdf2iters")?,
            root,
            is_available: self.keystore().wrapping.lock().contains_key(&root),
        }))
    }

    /// The name of the encryption root of a directory.
    ///
    /// # Errors
    /// Any error from reading the MOS.
    pub fn encryption_root(&self, encryption: &Encryption) -> Result<String> {
        Ok(self.dir_by_object(encryption.root)?.name())
    }

    /// Loads the wrapping key of an encryption root; with `only_checks`, only tries it.
    ///
    /// # Errors
    /// `Permission` when it is another key; `Exists` when it is loaded already; `InvalidInput` for what is not an
    /// encryption root.
    #[doc(alias = "spa_keystore_load_wkey")]
    pub fn load_key(&self, name: &str, key: WrappingKey, only_checks: bool) -> Result<()> {
        let dir = self.dir(name)?;
        let root = self.checked_root(&dir)?;
        self.wrapped_key(root)?.unwrap(&key)?;
        if only_checks {
            return Ok(());
        }
        let mut loaded = self.keystore().wrapping.lock();
        if loaded.contains_key(&dir.object()) {
            let text = format!("Key already loaded for '{name}'.");
            return Err(Error::new(ErrorKind::Exists, text));
        }
        // Blocks that were read without a key have not been authenticated.
        self.store().forget();
        loaded.insert(dir.object(), key);
        Ok(())
    }

    /// Unloads the wrapping key of an encryption root, and all that it opened.
    ///
    /// # Errors
    /// `Busy` while a data set under it is in use; `NoKey` when it is not loaded; `InvalidInput` for what is not an
    /// encryption root.
    #[doc(alias = "spa_keystore_unload_wkey")]
    pub fn unload_key(&self, name: &str) -> Result<()> {
        let dir = self.dir(name)?;
        self.checked_root(&dir)?;
        let mut loaded = self.keystore().wrapping.lock();
        if !loaded.contains_key(&dir.object()) {
            let text = format!("Key already unloaded for '{name}'.");
            return Err(Error::new(ErrorKind::NoKey, text));
        }
        let mut opened = self.keystore().opened.lock();
        let below =
            |(objset, root): (&ObjsetId, &ObjectId)| (*root == dir.object()).then_some(*objset);
        let below: Vec<ObjsetId> = opened.iter().filter_map(below).collect();
        let cached = |objset: &ObjsetId| self.cached_dataset(ObjectId(objset.0));
        let datasets: Vec<Arc<DslDataset>> = below.iter().filter_map(cached).collect();
        for ds in &datasets {
            ds.check_not_held(0)?;
            let is_dirty = |objset: &Arc<Objset>| objset.is_dirty() || objset.needs_sync();
            if ds.open_objset().as_ref().is_some_and(is_dirty) {
                let text = format!("data set {} has changes that are not on disk", ds.object());
                return Err(Error::new(ErrorKind::Busy, text));
            }
        }
        loaded.remove(&dir.object());
        for ds in &datasets {
            ds.set_objset(None);
        }
        opened.retain(|_, root| *root != dir.object());
        self.keystore().keys.remove(&below);
        self.store().forget();
        Ok(())
    }

    /// Checks that the contents of a data set can be read.
    ///
    /// # Errors
    /// `NoKey` when it is encrypted and the key is not loaded.
    pub fn check_key(&self, ds: &Arc<DslDataset>) -> Result<()> {
        match self.encryption(&ds.dir())? {
            Some(encryption) if !encryption.is_available => {
                Err(Error::new(ErrorKind::NoKey, "encryption key not loaded"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses to move a directory away from the root whose key it inherits.
    #[doc(alias = "dsl_dir_rename_crypt_check")]
    pub(crate) fn check_root_stays(&self, dir: &Arc<DslDir>, parent: &Arc<DslDir>) -> Result<()> {
        let above = self.encryption(parent)?.map(|it| it.root);
        match self.encryption(dir)?.map(|it| it.root) {
            // What is below it has its key from it, or a key of its own.
            Some(root) if root != dir.object() && above != Some(root) => {
                let text = format!("'{}' inherits its key: change that first", dir.name());
                Err(Error::new(ErrorKind::Permission, text))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a head below `parent` can be encrypted this way: one that inherits a wrapping key needs it.
    #[doc(alias = "dmu_objset_create_crypt_check")]
    pub(crate) fn check_encrypted(&self, parent: &Arc<DslDir>, how: &Encrypted) -> Result<()> {
        if matches!(how, Encrypted::Off | Encrypted::Root(_)) {
            return Ok(());
        }
        match self.encryption(parent)? {
            Some(above) if !above.is_available => {
                Err(Error::new(ErrorKind::NoKey, "encryption key not loaded"))
            }
            None if matches!(how, Encrypted::In(_)) => {
                let text = format!("'{}' has no key to inherit", parent.name());
                Err(Error::invalid(text))
            }
            _ => Ok(()),
        }
    }

    /// Gives a new head, unless it is in the clear, a key of its own, wrapped in that of its encryption root.
    #[doc(alias = "dsl_dataset_create_crypt_sync")]
    #[doc(alias = "dsl_crypto_key_create_sync")]
    pub(crate) fn encrypt_new(
        &self,
        parent: &Arc<DslDir>,
        ds: &Arc<DslDataset>,
        how: &Encrypted,
        tx: &Tx,
    ) -> Result<()> {
        let suite = match how {
            Encrypted::Off => return Ok(()),
            Encrypted::Root(root) => return self.make_root(ds, root, tx),
            Encrypted::AsAbove => None,
            Encrypted::In(suite) => Some(*suite),
        };
        let Some(mut above) = self.encryption(parent)? else {
            return Ok(());
        };
        above.suite = suite.unwrap_or(above.suite);
        let wrapping = self.keystore().wrapping_key(above.root);
        let wrapping =
            wrapping.ok_or_else(|| Error::new(ErrorKind::NoKey, "encryption key not loaded"))?;
        self.make_key(ds, &above, &wrapping, tx)
    }

    /// Makes a new head an encryption root, whose key is loaded from then on.
    pub(crate) fn make_root(&self, ds: &Arc<DslDataset>, new: &NewRoot, tx: &Tx) -> Result<()> {
        let root = ds.dir().object();
        let encryption = Encryption {
            suite: new.suite,
            key_guid: 0,
            format: new.format,
            salt: new.salt,
            iterations: new.iterations,
            root,
            is_available: true,
        };
        let keys = &self.keystore().wrapping;
        keys.lock().insert(root, new.key.clone());
        self.make_key(ds, &encryption, &new.key, tx)
    }

    /// Makes a key for a new head, wrapped in that of its root.
    fn make_key(
        &self,
        ds: &Arc<DslDataset>,
        above: &Encryption,
        wrapping: &WrappingKey,
        tx: &Tx,
    ) -> Result<()> {
        let mut iv = [0; IV_LEN];
        rt::fill_random(&mut iv);
        let key = DataKey::generate(above.suite, &mut |bytes| rt::fill_random(bytes));
        let wrapped = WrappedKey::wrap(&key, wrapping, iv);
        let object = self.mos().zap_create(ObjectType::N_ZAP_METADATA, tx)?;
        self.write_key(object, &wrapped, above, tx)?;
        self.mos().zap_set(object, REFCOUNT, 1, tx)?;
        self.give_key(&ds.dir(), object, tx)?;
        ds.activate_feature(feature::ENCRYPTION);
        self.open_key(ds)?;
        Ok(())
    }

    /// Wraps the key in a key object in another wrapping key.
    pub(crate) fn wrap_again(
        &self,
        object: ObjectId,
        old: &WrappingKey,
        to: &Encryption,
        new: &WrappingKey,
        tx: &Tx,
    ) -> Result<()> {
        let key = self.wrapped_key(object)?.unwrap(old)?;
        let mut iv = [0; IV_LEN];
        rt::fill_random(&mut iv);
        self.write_key(object, &WrappedKey::wrap(&key, new, iv), to, tx)
    }

    /// The keys that are loaded are those after a change: `changed` are the directories under the new root.
    pub(crate) fn keystore_changed(
        &self,
        dir: ObjectId,
        to: &Encryption,
        new: WrappingKey,
        changed: &BTreeSet<ObjectId>,
    ) {
        let keystore = self.keystore();
        let mut wrapping = keystore.wrapping.lock();
        wrapping.remove(&dir);
        wrapping.insert(to.root, new);
        let mut opened = keystore.opened.lock();
        let mut gone = Vec::new();
        opened.retain(|objset, root| {
            let Some(ds) = self.cached_dataset(ObjectId(objset.0)) else {
                gone.push(*objset);
                return false;
            };
            if changed.contains(&ds.dir().object()) {
                *root = to.root;
            }
            true
        });
        keystore.keys.remove(&gone);
    }

    /// DSL_CRYPTO_ROOT_DDOBJ
    pub(crate) fn key_root(&self, object: ObjectId) -> Result<ObjectId> {
        Ok(ObjectId(self.key_number(object, ROOT)?))
    }

    pub(crate) fn set_key_root(&self, object: ObjectId, root: ObjectId, tx: &Tx) -> Result<()> {
        self.mos().zap_set(object, ROOT, root.0, tx)
    }

    /// A clone has the key of its origin.
    #[doc(alias = "dsl_crypto_key_clone_sync")]
    pub(crate) fn share_key(&self, origin: &Arc<DslDir>, dir: &Arc<DslDir>, tx: &Tx) -> Result<()> {
        let Some(object) = origin.key_object() else {
            return Ok(());
        };
        let count = self.key_number(object, REFCOUNT)?;
        self.mos().zap_set(object, REFCOUNT, count + 1, tx)?;
        self.give_key(dir, object, tx)
    }

    fn give_key(&self, dir: &Arc<DslDir>, object: ObjectId, tx: &Tx) -> Result<()> {
        self.zapify_dir(dir, tx)?;
        self.mos().zap_add(dir.object(), KEY_OBJECT, object.0, tx)?;
        dir.set_key_object(object);
        Ok(())
    }

    #[doc(alias = "dsl_crypto_key_sync_impl")]
    fn write_key(
        &self,
        object: ObjectId,
        key: &WrappedKey,
        of_root: &Encryption,
        tx: &Tx,
    ) -> Result<()> {
        let numbers = [
            ("DSL_CRYPTO_SUITE", key.suite as u64),
            ("DSL_CRYPTO_GUID", key.guid),
            ("DSL_CRYPTO_VERSION", key.version),
            (ROOT, of_root.root.0),
            ("keyformat", of_root.format as u64),
            ("pbkdf2salt", of_root.salt),
            ("pbkdf2iters", of_root.iterations),
        ];
        for (name, number) in numbers {
            self.mos().zap_set(object, name, number, tx)?;
        }
        let mut master = key.master.clone();
        master.resize(MASTER_KEY_ROOM, 0);
        let parts: [(&str, &[u8]); 4] = [
            ("DSL_CRYPTO_IV", &key.iv),
            ("DSL_CRYPTO_MAC", &key.mac),
            ("DSL_CRYPTO_MASTER_KEY_1", &master),
            ("DSL_CRYPTO_HMAC_KEY_1", &key.hmac),
        ];
        for (name, bytes) in parts {
            zap::update(self.mos().objset(), tx, object, name, bytes)?;
        }
        Ok(())
    }

    /// The set of IVs of a new snapshot gets a number, by which streams of it can be told apart.
    #[doc(alias = "DS_FIELD_IVSET_GUID")]
    pub(crate) fn number_ivset(
        &self,
        dir: &Arc<DslDir>,
        snapshot: ObjectId,
        tx: &Tx,
    ) -> Result<()> {
        if dir.key_object().is_none() {
            return Ok(());
        }
        self.mos().zapify(snapshot, tx)?;
        self.mos()
            .zap_add(snapshot, IVSET_GUID, rt::random_u64(), tx)
    }

    /// The number of a snapshot's set of IVs; it has none if it is not encrypted, or from before they were numbered.
    pub(crate) fn ivset_guid(&self, snapshot: &DslDataset) -> Result<Option<u64>> {
        let is_encrypted = snapshot.dir().key_object().is_some();
        if !is_encrypted || !self.mos().is_zapified(snapshot.object())? {
            return Ok(None);
        }
        self.mos().zap_get(snapshot.object(), IVSET_GUID)
    }

    /// A directory that is destroyed gives up its key object, which clones may share.
    #[doc(alias = "dsl_crypto_key_destroy_sync")]
    pub(crate) fn release_key(&self, dir: &Arc<DslDir>, tx: &Tx) -> Result<()> {
        let Some(object) = dir.key_object() else {
            return Ok(());
        };
        match self.key_number(object, REFCOUNT)? {
            0 | 1 => self.mos().zap_destroy(object, tx),
            count => self.mos().zap_set(object, REFCOUNT, count - 1, tx),
        }
    }

    /// Gives the pipeline the key of a data set, if its wrapping key is loaded. Returns whether it did now.
    #[doc(alias = "spa_keystore_create_mapping")]
    pub(crate) fn open_key(&self, ds: &DslDataset) -> Result<bool> {
        let Some(object) = ds.dir().key_object() else {
            return Ok(false);
        };
        let keystore = self.keystore();
        let objset = ds.objset_id();
        if keystore.opened.lock().contains_key(&objset) {
            return Ok(false);
        }
        let root = self.key_root(object)?;
        let loaded = keystore.wrapping.lock();
        let Some(wrapping) = loaded.get(&root) else {
            return Ok(false);
        };
        let key = self.wrapped_key(object)?.unwrap(wrapping)?;
        keystore.keys.insert(objset, key);
        keystore.opened.lock().insert(objset, root);
        Ok(true)
    }

    /// The key object of a directory that is its own encryption root.
    fn checked_root(&self, dir: &Arc<DslDir>) -> Result<ObjectId> {
        let object = dir.key_object();
        let encryption = self.encryption(dir)?.filter(|it| it.root == dir.object());
        let object = object.filter(|_| encryption.is_some());
        object.ok_or_else(|| Error::invalid(format!("'{}' is not an encryption root", dir.name())))
    }

    fn key_number(&self, object: ObjectId, name: &str) -> Result<u64> {
        let found = self.mos().zap_get(object, name)?;
        found.ok_or_else(|| Error::corrupt(format!("key object {object} has no {name}")))
    }

    fn wrapped_key(&self, object: ObjectId) -> Result<WrappedKey> {
        WrappedKey::read(&KeyObject { pool: self, object }).within(|| format!("object {object}"))
    }
}

/// A key object in the MOS.
struct KeyObject<'a> {
    pool: &'a DslPool,
    object: ObjectId,
}

impl KeyFields for KeyObject<'_> {
    fn number(&self, name: &str) -> Result<Option<u64>> {
        self.pool.mos().zap_get(self.object, name)
    }

    fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>> {
        zap::lookup::<u8>(self.pool.mos().objset(), self.object, name)
    }
}
