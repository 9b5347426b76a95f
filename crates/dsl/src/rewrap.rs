//! Changing the wrapping key of an encryption root, and which directories have it.
//!
//! # What it is
//! Blocks stay as they are: the keys of all directories that inherit the wrapping key are unwrapped with the old one
//! and wrapped in the new one, in one txg. A directory gets a wrapping key of its own, and becomes a root, or gives its
//! own up for that of the directory above. A clone has the key object of its origin, and follows it; what is below a
//! clone has key objects of its own under the same root.
//!
//! # Crash argument
//! All key objects change in one txg: after a crash all are wrapped in the old key, or all in the new one.
//!
//! # Source
//! OpenZFS module/zfs/dsl_crypt.c (`spa_keystore_change_key_check`, `spa_keystore_change_key_sync_impl`).

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result};
use crypt::WrappingKey;
use dmu::Tx;
use phys::PropValue;

use crate::PropChange;
use crate::crypt::{Encryption, NewRoot};
use crate::dir::DslDir;
use crate::pool::DslPool;
use crate::space::SpaceCheck;
use crate::synctask::Verdict;

/// Where the key of an encryption root is found.
const LOCATION: &str = "keylocation";

/// What becomes of a wrapping key.
pub enum KeyChange {
    /// The directory gets this one, and is an encryption root from then on.
    New {
        /// The key; its suite does not count.
        key: NewRoot,
        /// `keylocation`
        location: String,
    },
    /// The directory gives up its own for that of the one above.
    Inherit,
}

/// One change of an encryption root.
struct Rewrap {
    /// The encryption root so far.
    from: ObjectId,
    /// What the new key was made from, and the new root.
    to: Encryption,
    /// The old and the new key; `None` if it stays the same.
    keys: Option<(WrappingKey, WrappingKey)>,
    /// Directories that were looked at.
    seen: BTreeSet<ObjectId>,
}

impl DslPool {
    /// Changes the wrapping key of an encrypted directory and of all that inherit it.
    ///
    /// # Errors
    /// `NoKey` while a key is not loaded; `InvalidInput` for a directory that is not encrypted or is a clone, for one
    /// that has nothing to give up, or nothing encrypted above it.
    #[doc(alias = "spa_keystore_change_key")]
    pub fn change_key(&self, name: &str, change: KeyChange) -> Result<()> {
        let checked = name.to_owned();
        let inherits = matches!(change, KeyChange::Inherit);
        let check = move |pool: &DslPool, _: &Tx| {
            let dir = pool.find_dir(&checked)?;
            pool.check_key_change(&dir, inherits)?;
            Ok(Verdict::Go)
        };
        let name = name.to_owned();
        self.sync_task(4, SpaceCheck::Reserved, check, move |pool, tx| {
            let dir = pool.find_dir(&name)?;
            pool.change_key_sync(&dir, &change, tx)
        })
    }

    #[doc(alias = "spa_keystore_change_key_check")]
    fn check_key_change(&self, dir: &Arc<DslDir>, inherits: bool) -> Result<()> {
        let locked = |what: &str| Error::new(ErrorKind::NoKey, what);
        let encryption = self.encryption(dir)?;
        let encryption = encryption.ok_or_else(|| Error::invalid("Dataset not encrypted."))?;
        if self.is_clone(&dir.fields()) {
            return Err(Error::invalid("Keys cannot be changed on clones."));
        }
        if inherits {
            if encryption.root != dir.object() {
                let text = "Key inheritting can only be performed on encryption roots.";
                return Err(Error::invalid(text));
            }
            let parent = dir.parent();
            let parent =
                parent.ok_or_else(|| Error::invalid("Root dataset cannot inherit key."))?;
            let above = self.encryption(&parent)?;
            let above = above.ok_or_else(|| Error::invalid("Parent must be encrypted."))?;
            if !above.is_available {
                return Err(locked("Parent key must be loaded."));
            }
        }
        match encryption.is_available {
            true => Ok(()),
            false => Err(locked("Key must be loaded.")),
        }
    }

    fn change_key_sync(&self, dir: &Arc<DslDir>, change: &KeyChange, tx: &Tx) -> Result<()> {
        let gone = || Error::new(ErrorKind::NoKey, "Key must be loaded.");
        let own = self.encryption(dir)?.ok_or_else(gone)?;
        let (to, new) = match change {
            KeyChange::New { key, .. } => {
                let to = Encryption {
                    format: key.format,
                    salt: key.salt,
                    iterations: key.iterations,
                    root: dir.object(),
                    ..own.clone()
                };
                (to, key.key.clone())
            }
            KeyChange::Inherit => {
                let parent = dir.parent().ok_or_else(gone)?;
                let above = self.encryption(&parent)?.ok_or_else(gone)?;
                let key = self.keystore().wrapping_key(above.root);
                (above, key.ok_or_else(gone)?)
            }
        };
        let old = self.keystore().wrapping_key(own.root);
        let mut rewrap = Rewrap {
            from: own.root,
            to,
            keys: Some((old.ok_or_else(gone)?, new.clone())),
            seen: BTreeSet::new(),
        };
        self.rewrap(dir, false, &mut rewrap, tx)?;
        self.keystore_changed(dir.object(), &rewrap.to, new, &rewrap.seen);
        let Some(head) = self.head_of(dir)? else {
            return Ok(());
        };
        let location = match change {
            KeyChange::New { location, .. } => PropChange::Set(PropValue::Text(location.clone())),
            KeyChange::Inherit => PropChange::Inherit,
        };
        self.change_prop(&head, LOCATION, &location, tx)
    }

    /// Wraps the keys of a directory, of those below it and of what is below its clones, as far as they are under the
    /// same root. `is_clone`: the directory itself was changed with its origin.
    #[doc(alias = "spa_keystore_change_key_sync_impl")]
    fn rewrap(
        &self,
        dir: &Arc<DslDir>,
        is_clone: bool,
        change: &mut Rewrap,
        tx: &Tx,
    ) -> Result<()> {
        let Some(object) = dir.key_object() else {
            return Ok(());
        };
        let is_under =
            is_clone || self.key_root(object)? == change.from && !self.is_clone(&dir.fields());
        if !is_under || !change.seen.insert(dir.object()) {
            return Ok(());
        }
        match &change.keys {
            _ if is_clone => {}
            Some((old, new)) => self.wrap_again(object, old, &change.to, new, tx)?,
            None => self.set_key_root(object, change.to.root, tx)?,
        }
        for child in self.child_dirs(dir)? {
            self.rewrap(&child, false, change, tx)?;
        }
        let clones = dir.fields().clones;
        if clones != 0 {
            for (clone, _) in self.mos().zap_int_entries(ObjectId(clones))? {
                let clone = self.dataset_by_object(ObjectId(clone))?;
                self.rewrap(&clone.dir(), true, change, tx)?;
            }
        }
        Ok(())
    }

    /// Refuses to promote a clone if another encryption root would be above what its origin was taken of.
    #[doc(alias = "dsl_dataset_promote_crypt_check")]
    pub(crate) fn check_roots_stay(
        &self,
        target: &Arc<DslDir>,
        origin: &Arc<DslDir>,
    ) -> Result<()> {
        let root = self.encryption(origin)?.map(|it| it.root);
        let is_moved = root == Some(origin.object());
        if root.is_none() || is_moved || self.is_clone(&origin.fields()) {
            return Ok(());
        }
        let above = |dir: &Arc<DslDir>| -> Result<_> {
            let parent = dir.parent().map(|parent| self.encryption(&parent));
            Ok(parent.transpose()?.flatten().map(|it| it.root))
        };
        let (of_origin, of_target) = (above(origin)?, above(target)?);
        if of_origin.is_none() || of_origin != of_target {
            let text = format!(
                "'{}' would have another encryption root: change its key first",
                origin.name()
            );
            return Err(Error::new(ErrorKind::Permission, text));
        }
        Ok(())
    }

    /// Makes a clone that is being promoted the encryption root, if its origin is of one.
    #[doc(alias = "dsl_dataset_promote_crypt_sync")]
    pub(crate) fn promote_root(
        &self,
        target: &Arc<DslDir>,
        origin: &Arc<DslDir>,
        tx: &Tx,
    ) -> Result<()> {
        let encryption = self.encryption(origin)?;
        let is_root = |it: &Encryption| it.root == origin.object();
        let Some(encryption) = encryption.filter(is_root) else {
            return Ok(());
        };
        if self.is_clone(&origin.fields()) {
            return Ok(());
        }
        let to = Encryption {
            root: target.object(),
            ..encryption
        };
        let mut change = Rewrap {
            from: origin.object(),
            to,
            keys: None,
            seen: BTreeSet::new(),
        };
        self.rewrap(origin, false, &mut change, tx)?;
        if let Some(key) = self.keystore().wrapping_key(origin.object()) {
            self.keystore_changed(origin.object(), &change.to, key, &change.seen);
        }
        let (Some(head), Some(other)) = (self.head_of(target)?, self.head_of(origin)?) else {
            return Ok(());
        };
        if let Some(location) = self.find_prop(&other, LOCATION)? {
            self.change_prop(&head, LOCATION, &PropChange::Set(location.value), tx)?;
        }
        self.change_prop(&other, LOCATION, &PropChange::Inherit, tx)
    }
}
