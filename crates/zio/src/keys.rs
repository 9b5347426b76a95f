//! The keys of data sets: what is under which key, and reading it.
//!
//! # What it is
//! Blocks of encrypted data sets are opened here, between the checksum and decompression: the checksum is that of the
//! stored bytes, so that blocks can be verified without a key. Which key a block is under, the objset of its bookmark
//! says; who loads and unloads keys is above.
//!
//! # Source
//! OpenZFS `module/zfs/zio.c` (`zio_decrypt`), `module/zfs/dsl_crypt.c` (`spa_keystore_lookup_key`).

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Context, Error, ErrorKind, ObjsetId, Result};
use crypt::DataKey;
use phys::BlkPtrPhys;
use rt::RwLock;

use crate::Bookmark;
use crate::pipeline::Pipeline;

/// The keys that are loaded, by objset.
#[derive(Default)]
#[doc(alias = "spa_keystore_t")]
pub struct Keys(RwLock<BTreeMap<ObjsetId, Arc<DataKey>>>);

impl Keys {
    /// The key of an objset, if it is loaded.
    #[must_use]
    pub fn get(&self, objset: ObjsetId) -> Option<Arc<DataKey>> {
        self.0.read().get(&objset).cloned()
    }

    /// Loads the key of an objset.
    pub fn insert(&self, objset: ObjsetId, key: Arc<DataKey>) {
        self.0.write().insert(objset, key);
    }

    /// Unloads the keys of these objsets.
    pub fn remove(&self, objsets: &[ObjsetId]) {
        let mut keys = self.0.write();
        for objset in objsets {
            keys.remove(objset);
        }
    }
}

impl Pipeline {
    /// The keys by which blocks are opened.
    #[must_use]
    pub fn keys(&self) -> &Arc<Keys> {
        &self.keys
    }

    /// The key that a block is to be opened with. A block that is only authenticated can be read without one.
    ///
    /// # Errors
    /// `NoKey` when it is encrypted and the key is not loaded.
    pub(crate) fn key_of(
        &self,
        bp: &BlkPtrPhys,
        bookmark: &Bookmark,
    ) -> Result<Option<Arc<DataKey>>> {
        if !bp.is_encrypted() && !bp.is_authenticated() {
            return Ok(None);
        }
        let key = self.keys.get(bookmark.objset);
        if key.is_none() && bp.is_encrypted() {
            let what = format!("block {bookmark}: encryption key not loaded");
            return Err(Error::new(ErrorKind::NoKey, what));
        }
        Ok(key)
    }
}

/// Decrypts the psize bytes of a block in place, or checks their MAC.
pub(crate) fn open(
    key: Option<&DataKey>,
    bp: &BlkPtrPhys,
    bytes: &mut [u8],
    bookmark: &Bookmark,
) -> Result<()> {
    let Some(key) = key else {
        return Ok(());
    };
    if bp.is_encrypted() {
        rt::charge(rt::Work::Cipher, bytes.len() as u64);
    } else {
        rt::charge(rt::Work::Digest, bytes.len() as u64);
    }
    key.open(bp, bytes).within(|| format!("block {bookmark}"))
}

/// Checks the sum of MACs in an indirect block, for which no key is needed.
pub(crate) fn check_indirect(bp: &BlkPtrPhys, block: &[u8], bookmark: &Bookmark) -> Result<()> {
    if !bp.uses_crypt() || bp.level() == 0 {
        return Ok(());
    }
    rt::charge(rt::Work::Digest, block.len() as u64 / 4);
    crypt::check_indirect(bp, block).within(|| format!("block {bookmark}"))
}
