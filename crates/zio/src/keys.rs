//! The keys of data sets: what is under which key, and reading it.
//!
//! # What it is
//! Blocks of encrypted data sets are opened here, before they are decompressed. Their checksum is that of the stored
//! bytes, so that they can be verified without a key. With the key of a block whose MAC covers all of it, no checksum
//! is computed: a copy that can be opened is the right one ([`Opening`]). One that cannot is bad if its checksum is
//! wrong, too, or if another copy can be opened; otherwise the key, or the pointer, is. What is opened goes to another
//! buffer, since the bytes as they are stored may have to be written over bad copies.
//!
//! Which key a block is under, the objset of its bookmark says; who loads and unloads keys is above.
//!
//! # Source
//! OpenZFS `module/zfs/zio.c` (`zio_decrypt`), `module/zfs/dsl_crypt.c` (`spa_keystore_lookup_key`).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{BlockBuf, Context, Error, ErrorKind, ObjsetId, Result};
use crypt::{BlockKey, DataKey};
use phys::blkptr::{CryptParams, MAC_LEN, SALT_LEN};
use phys::{BlkPtrPhys, ObjectType};
use rt::{Mutex, RwLock};

use crate::encode::Physical;
use crate::pipeline::Pipeline;
use crate::{Bookmark, WriteRequest};

/// `ZFS_KEY_MAX_SALT_USES_DEFAULT`: blocks that are written under one salt: among so many, two equal IVs are as good as
/// impossible.
const SALT_USES_MAX: u64 = 400_000_000;

/// Salts whose keys are kept.
const SALTS_KEPT: usize = 8;

/// The keys that are loaded, by objset.
#[derive(Default)]
#[doc(alias = "spa_keystore_t")]
pub struct Keys {
    loaded: RwLock<BTreeMap<ObjsetId, Arc<Loaded>>>,
    /// Whether there ever was one: most pools have none, and need no lock.
    is_used: AtomicBool,
}

/// A key that is loaded, and the salt under which blocks are written.
pub(crate) struct Loaded {
    key: DataKey,
    /// And how many blocks were written under it.
    salt: Mutex<([u8; SALT_LEN], u64)>,
    /// The keys of blocks with the salts met last, the newest first: the current one, and those of earlier times whose
    /// blocks are read.
    #[doc(alias = "zk_current_tmpl")]
    recent: RwLock<Vec<Recent>>,
}

type Recent = ([u8; SALT_LEN], Arc<BlockKey>);

impl Keys {
    pub(crate) fn get(&self, objset: ObjsetId) -> Option<Arc<Loaded>> {
        let is_used = self.is_used.load(Ordering::Acquire);
        let found = is_used.then(|| self.loaded.read().get(&objset).cloned());
        found.flatten()
    }

    /// Loads the key of an objset.
    pub fn insert(&self, objset: ObjsetId, key: DataKey) {
        let loaded = Arc::new(Loaded {
            key,
            salt: Mutex::new((new_salt(), 0)),
            recent: RwLock::default(),
        });
        self.loaded.write().insert(objset, loaded);
        self.is_used.store(true, Ordering::Release);
    }

    /// Unloads the keys of these objsets.
    pub fn remove(&self, objsets: &[ObjsetId]) {
        let mut keys = self.loaded.write();
        for objset in objsets {
            keys.remove(objset);
        }
    }
}

fn new_salt() -> [u8; SALT_LEN] {
    let mut salt = [0; SALT_LEN];
    rt::fill_random(&mut salt);
    salt
}

impl Loaded {
    /// A salt and an IV for one more block.
    #[doc(alias = "zio_crypt_key_get_salt")]
    fn next_params(&self) -> CryptParams {
        let mut params = CryptParams::default();
        rt::fill_random(&mut params.iv);
        let mut salt = self.salt.lock();
        if salt.1 >= SALT_USES_MAX {
            *salt = (new_salt(), 0);
        }
        salt.1 += 1;
        params.salt = salt.0;
        params
    }

    /// The key of blocks with this salt.
    fn block_key(&self, salt: &[u8; SALT_LEN]) -> Arc<BlockKey> {
        let find = |recent: &[Recent]| {
            let mut found = recent.iter().filter(|(known, _)| known == salt);
            found.next().map(|(_, key)| key.clone())
        };
        if let Some(key) = find(&self.recent.read()) {
            return key;
        }
        let key = Arc::new(self.key.block_key(salt));
        let mut recent = self.recent.write();
        if find(&recent).is_none() {
            recent.truncate(SALTS_KEPT - 1);
            recent.insert(0, (*salt, key.clone()));
        }
        key
    }

    /// Encrypts a block into `sealed`, and returns its MAC.
    fn encrypt(
        &self,
        type_: u8,
        params: &CryptParams,
        plain: &[u8],
        sealed: &mut [u8],
    ) -> Result<[u8; MAC_LEN]> {
        rt::charge(rt::Work::Cipher, plain.len() as u64);
        self.block_key(&params.salt)
            .encrypt(type_, &params.iv, plain, sealed)
    }

    /// The bytes of an encrypted block, whose MAC is right.
    fn decrypt(&self, bp: &BlkPtrPhys, sealed: &[u8]) -> Result<BlockBuf> {
        rt::charge(rt::Work::Cipher, sealed.len() as u64);
        let mut plain = BlockBuf::scratch(sealed.len());
        self.block_key(&bp.crypt_params().salt)
            .open(bp, sealed, &mut plain)?;
        Ok(plain)
    }

    /// Enters in the pointer of a new log block what it will be encrypted with.
    #[doc(alias = "zio_alloc_zil")]
    pub(crate) fn begin_log_block(&self, bp: &mut BlkPtrPhys) {
        bp.set_crypt(true);
        // The words where other blocks have a MAC are the verifier's: a log block has its MAC in itself.
        let verifier = bp.mac();
        bp.set_sealed(&self.next_params(), &verifier);
    }

    /// Encrypts a log block, and enters the MAC in it.
    pub(crate) fn seal_log_block(&self, bp: &BlkPtrPhys, bytes: &mut [u8]) -> Result<()> {
        let plain = bytes.to_vec();
        let mac = self.encrypt(bp.object_type(), &bp.crypt_params(), &plain, bytes)?;
        crypt::set_log_mac(bytes, &mac)
    }
}

/// Whether the block's own type stays as it is, so that it can be changed without a key.
#[doc(alias = "ZIO_COMPRESS_EMPTY")]
pub(crate) fn stays_uncompressed(request: &WriteRequest) -> bool {
    let type_ = ObjectType::try_from(request.object_type);
    let is_such = matches!(type_, Ok(ObjectType::DNODE | ObjectType::OBJSET));
    request.policy.encrypt && request.level == 0 && is_such
}

/// Whether the second half of the checksum is a MAC.
pub(crate) fn has_mac(bp: &BlkPtrPhys) -> bool {
    bp.uses_crypt() && bp.object_type() != ObjectType::OBJSET.raw()
}

/// Encrypts a block, or authenticates it; enters in its pointer how.
///
/// # Errors
/// `NoKey` when the key is not loaded.
#[doc(alias = "zio_encrypt")]
pub(crate) fn seal(
    keys: &Keys,
    request: &WriteRequest,
    bp: &mut BlkPtrPhys,
    physical: Physical,
) -> Result<Physical> {
    bp.set_crypt(true);
    if request.level > 0 {
        rt::charge(rt::Work::Digest, request.data.len() as u64 / 4);
        bp.set_mac(&crypt::indirect_mac(&request.data));
        return Ok(physical);
    }
    let type_ = ObjectType::try_from(request.object_type)?;
    let loaded = keys.get(request.bookmark.objset);
    if type_ == ObjectType::OBJSET && loaded.is_none() {
        // What is changed in it without a key, its MACs do not cover.
        return Ok(physical);
    }
    let what = || format!("block {}: encryption key not loaded", request.bookmark);
    let loaded = loaded.ok_or_else(|| Error::new(ErrorKind::NoKey, what()))?;
    let psize = physical.psize;
    let mut sealed = BlockBuf::scratch(psize);
    match type_ {
        ObjectType::OBJSET => {
            sealed.copy_from_slice(physical.bytes());
            loaded.key.seal_objset(&mut sealed)?;
        }
        type_ if type_.is_encrypted() => {
            let params = loaded.next_params();
            let plain = physical.bytes();
            let mac = loaded.encrypt(request.object_type, &params, plain, &mut sealed);
            let mac = mac.within(|| format!("block {}", request.bookmark))?;
            bp.set_sealed(&params, &mac);
        }
        _ => {
            rt::charge(rt::Work::Digest, psize as u64);
            bp.set_mac(&loaded.key.mac(physical.bytes()));
            return Ok(physical);
        }
    }
    let buf = sealed.share();
    Ok(Physical { buf, psize })
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
    ) -> Result<Option<Arc<Loaded>>> {
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

/// Verifies the copies of a block by opening them.
pub(crate) struct Opening<'a> {
    bp: &'a BlkPtrPhys,
    /// Until a copy could not be opened: each other one is verified by its checksum alone, since an attempt costs more.
    key: Cell<Option<&'a Loaded>>,
    plain: Cell<Option<BlockBuf>>,
}

impl<'a> Opening<'a> {
    /// For a block that is read to be opened with this key.
    pub(crate) fn new(key: Option<&'a Loaded>, bp: &'a BlkPtrPhys) -> Opening<'a> {
        Opening {
            bp,
            key: Cell::new(key.filter(|_| crypt::covers_all(bp))),
            plain: Cell::new(None),
        }
    }

    /// Whether the psize bytes of a copy can be opened.
    pub(crate) fn opens(&self, sealed: &[u8]) -> bool {
        let plain = self.key.get().map(|key| key.decrypt(self.bp, sealed));
        let Some(Ok(plain)) = plain else {
            self.key.set(None);
            return false;
        };
        self.plain.set(Some(plain));
        true
    }

    /// The bytes of the copy that was opened.
    pub(crate) fn plain(self) -> Option<BlockBuf> {
        self.plain.into_inner()
    }
}

/// Decrypts the psize bytes of a block; `None` if they are not encrypted, of which the MAC is checked if they have one.
pub(crate) fn open(
    key: Option<&Loaded>,
    bp: &BlkPtrPhys,
    sealed: &[u8],
    bookmark: &Bookmark,
) -> Result<Option<BlockBuf>> {
    let Some(key) = key else {
        return Ok(None);
    };
    let opened = if bp.is_encrypted() {
        key.decrypt(bp, sealed).map(Some)
    } else {
        rt::charge(rt::Work::Digest, sealed.len() as u64);
        key.key.check(bp, sealed).map(|()| None)
    };
    opened.within(|| format!("block {bookmark}"))
}

/// Checks the sum of MACs in an indirect block, for which no key is needed.
pub(crate) fn check_indirect(bp: &BlkPtrPhys, block: &[u8], bookmark: &Bookmark) -> Result<()> {
    if !bp.uses_crypt() || bp.level() == 0 {
        return Ok(());
    }
    rt::charge(rt::Work::Digest, block.len() as u64 / 4);
    crypt::check_indirect(bp, block).within(|| format!("block {bookmark}"))
}

#[cfg(test)]
mod tests {
    use crypt::Suite;

    use super::*;

    #[test]
    fn blocks_of_more_salts_than_are_kept_are_opened() {
        let keys = Keys::default();
        let mut next = 0;
        let mut count_up = |bytes: &mut [u8]| {
            bytes.fill_with(|| {
                next += 1;
                next
            });
        };
        keys.insert(
            ObjsetId(1),
            DataKey::generate(Suite::Aes192Gcm, &mut count_up),
        );
        let loaded = keys.get(ObjsetId(1)).unwrap();
        let type_ = ObjectType::PLAIN_FILE_CONTENTS.raw();
        let blocks: Vec<_> = (0..3 * SALTS_KEPT as u8)
            .map(|n| {
                let (mut bytes, mut bp) = (vec![0; 512], BlkPtrPhys::default());
                let params = CryptParams {
                    salt: [n; SALT_LEN],
                    ..CryptParams::default()
                };
                let mac = loaded
                    .encrypt(type_, &params, &[n; 512], &mut bytes)
                    .unwrap();
                bp.set_type(type_);
                bp.set_crypt(true);
                bp.set_sealed(&params, &mac);
                (n, bp, bytes)
            })
            .collect();
        for (n, bp, bytes) in blocks.iter().chain(blocks.iter().rev()) {
            let opened = open(Some(&loaded), bp, bytes, &Bookmark::default()).unwrap();
            assert_eq!(opened.unwrap()[..], [*n; 512]);
            assert!(loaded.recent.read().len() <= SALTS_KEPT);
        }
    }
}
