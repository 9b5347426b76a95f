//! The key of a data set: decrypts, encrypts and authenticates blocks.
//!
//! # What it is
//! The key of a block ([`BlockKey`]) is derived from the master key and the salt in its pointer. A data set is written
//! under one salt as long as its key stays loaded, so that few of them are needed at a time.
//!
//! # Source
//! OpenZFS module/os/linux/zfs/zio_crypt.c (`zio_do_crypt_data`), module/zfs/zio.c (`zio_decrypt`),
//! module/zfs/dsl_crypt.c (`spa_do_crypt_objset_mac_abd`, `spa_do_crypt_mac_abd`).

use std::borrow::Cow;
use std::fmt;

use base::Result;
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use phys::blkptr::{IV_LEN, MAC_LEN, SALT_LEN};
use phys::byteswap::swap_block;
use phys::zil::ZilChainPhys;
use phys::{BlkPtrPhys, ObjectType, ObjsetPhys, Phys};
use sha2::Sha512;
use zerocopy::IntoBytes;

use crate::Suite;
use crate::mac::{indirect_mac, objset_macs};
use crate::parts::{self, Order, Parts};
use crate::secret::Secret;
use crate::suite::{Cipher, wrong_mac};
use crate::wrapping::HMAC_KEY_LEN;

/// The unwrapped keys of a data set.
#[doc(alias = "zio_crypt_key_t")]
pub struct DataKey {
    suite: Suite,
    guid: u64,
    master: Secret,
    hmac_key: Secret,
    /// Derives the keys of blocks.
    hkdf: Hkdf<Sha512>,
    /// To which nothing was added yet.
    hmac: Hmac<Sha512>,
}

impl DataKey {
    pub(crate) fn new(suite: Suite, guid: u64, master: &[u8], hmac_key: &[u8]) -> DataKey {
        DataKey {
            suite,
            guid,
            master: Secret::new(master.to_vec()),
            hmac_key: Secret::new(hmac_key.to_vec()),
            hkdf: Hkdf::new(None, master),
            hmac: Hmac::new_from_slice(hmac_key).expect("a key of any length"),
        }
    }

    /// A new key, of random bytes from `fill`.
    #[must_use]
    #[doc(alias = "zio_crypt_key_init")]
    pub fn generate(suite: Suite, fill: &mut dyn FnMut(&mut [u8])) -> DataKey {
        let mut guid = [0; 8];
        fill(&mut guid);
        let mut master = Secret::zeroed(suite.key_len());
        fill(master.bytes_mut());
        let mut hmac_key = Secret::zeroed(HMAC_KEY_LEN);
        fill(hmac_key.bytes_mut());
        let guid = u64::from_le_bytes(guid);
        DataKey::new(suite, guid, master.bytes(), hmac_key.bytes())
    }

    /// How blocks are encrypted.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// Which key this is: those of a data set and its clones are the same.
    #[must_use]
    pub fn guid(&self) -> u64 {
        self.guid
    }

    pub(crate) fn master(&self) -> &[u8] {
        self.master.bytes()
    }

    pub(crate) fn hmac_key(&self) -> &[u8] {
        self.hmac_key.bytes()
    }

    /// `hkdf_sha512`: the key of blocks with this salt.
    #[must_use]
    pub fn block_key(&self, salt: &[u8; SALT_LEN]) -> BlockKey {
        let mut key = Secret::zeroed(self.suite.key_len());
        let derived = self.hkdf.expand(salt, key.bytes_mut());
        derived.expect("a key is shorter than 255 hashes");
        BlockKey(self.suite.cipher(key.bytes()))
    }

    /// Checks the MAC of a block that is only authenticated; any other passes. `bytes` are those of the block and no
    /// others.
    ///
    /// # Errors
    /// `Checksum` when it was not written under this key; `Corrupt` when its parts do not fit.
    pub fn check(&self, bp: &BlkPtrPhys, bytes: &[u8]) -> Result<()> {
        if !bp.is_authenticated() {
            return Ok(());
        }
        if bp.object_type() == ObjectType::OBJSET.raw() {
            return self.check_objset(bytes, Order::of(bp));
        }
        same(&self.mac(bytes), &bp.mac())
    }

    /// `zio_crypt_do_hmac`: the MAC of a block that is not encrypted.
    #[must_use]
    pub fn mac(&self, bytes: &[u8]) -> [u8; MAC_LEN] {
        let mut hmac = self.hmac.clone();
        hmac.update(bytes);
        let mut mac = [0; MAC_LEN];
        mac.copy_from_slice(&hmac.finalize().into_bytes()[..MAC_LEN]);
        mac
    }

    /// Enters both MACs in the block of an objset.
    ///
    /// # Errors
    /// `Corrupt` when it makes no sense.
    pub fn seal_objset(&self, bytes: &mut [u8]) -> Result<()> {
        let size = bytes.len();
        let mut objset = ObjsetPhys::parse(bytes)?;
        let [portable, local] = objset_macs(&self.hmac, &objset, size)?;
        (objset.portable_mac, objset.local_mac) = (portable, local);
        bytes.copy_from_slice(objset.form(size));
        Ok(())
    }

    /// A local MAC of zeros passes, as in OpenZFS: accounting was not complete.
    fn check_objset(&self, bytes: &[u8], order: Order) -> Result<()> {
        // What these MACs cover is always little-endian, so that the block can be written again without a key.
        let mut bytes = Cow::Borrowed(bytes);
        if order == Order::Big {
            swap_block(ObjectType::OBJSET, 0, bytes.to_mut());
        }
        let objset = ObjsetPhys::parse(&bytes)?;
        let [portable, local] = objset_macs(&self.hmac, &objset, bytes.len())?;
        same(&portable, &objset.portable_mac)?;
        if local == [0; 32] {
            return Ok(());
        }
        same(&local, &objset.local_mac)
    }
}

/// The key of all blocks with one salt.
pub struct BlockKey(Box<dyn Cipher>);

impl BlockKey {
    /// Decrypts the stored bytes of an encrypted block into `plain`, which is as long. `sealed` are those of the block
    /// and no others.
    ///
    /// # Errors
    /// `Checksum` when it was not written under this key; `Corrupt` when its parts do not fit.
    #[doc(alias = "zio_decrypt")]
    pub fn open(&self, bp: &BlkPtrPhys, sealed: &[u8], plain: &mut [u8]) -> Result<()> {
        let mac = match ObjectType::try_from(bp.object_type())? {
            ObjectType::INTENT_LOG => log_mac(sealed)?,
            _ => bp.mac(),
        };
        let iv = bp.crypt_params().iv;
        let Some(parts) = parts_of(bp.object_type(), sealed, Order::of(bp))? else {
            return self.0.open(&iv, &[], (sealed, &mac), plain);
        };
        let encrypted = parts.gather(sealed);
        let mut text = Secret::zeroed(encrypted.len());
        self.0
            .open(&iv, &parts.aad, (&encrypted, &mac), text.bytes_mut())?;
        plain.copy_from_slice(sealed);
        parts.scatter(text.bytes(), plain);
        Ok(())
    }

    /// Encrypts a block, which is this host's, into `sealed`, which is as long, and returns the MAC.
    ///
    /// # Errors
    /// `TooBig` for more bytes than the suite can take; `Corrupt` when the parts of the block do not fit.
    #[doc(alias = "zio_encrypt")]
    pub fn encrypt(
        &self,
        object_type: u8,
        iv: &[u8; IV_LEN],
        plain: &[u8],
        sealed: &mut [u8],
    ) -> Result<[u8; MAC_LEN]> {
        let Some(parts) = parts_of(object_type, plain, Order::Little)? else {
            return self.0.seal(iv, &[], plain, sealed);
        };
        let text = Secret::new(parts.gather(plain));
        let mut encrypted = vec![0; text.bytes().len()];
        let mac = self.0.seal(iv, &parts.aad, text.bytes(), &mut encrypted)?;
        sealed.copy_from_slice(plain);
        parts.scatter(&encrypted, sealed);
        Ok(mac)
    }
}

/// Checks the sum of MACs in the pointer of an indirect block against its logical bytes; needs no key.
///
/// # Errors
/// `Checksum` when it is another one.
pub fn check_indirect(bp: &BlkPtrPhys, block: &[u8]) -> Result<()> {
    same(&indirect_mac(block), &bp.mac())
}

/// Whether the MAC of an encrypted block covers every byte of it as it is stored.
#[must_use]
pub fn covers_all(bp: &BlkPtrPhys) -> bool {
    let in_parts = [ObjectType::DNODE, ObjectType::INTENT_LOG].map(ObjectType::raw);
    bp.is_encrypted() && !in_parts.contains(&bp.object_type())
}

fn parts_of(object_type: u8, bytes: &[u8], order: Order) -> Result<Option<Parts>> {
    match ObjectType::try_from(object_type)? {
        ObjectType::DNODE => parts::dnodes(bytes, order).map(Some),
        ObjectType::INTENT_LOG => parts::log(bytes, order).map(Some),
        _ => Ok(None),
    }
}

/// `zio_crypt_decode_mac_zil`: a log block holds its MAC itself.
fn log_mac(bytes: &[u8]) -> Result<[u8; MAC_LEN]> {
    let chain = ZilChainPhys::view(bytes)?;
    let mut mac = [0; MAC_LEN];
    mac.copy_from_slice(&chain.eck.cksum.as_bytes()[MAC_LEN..]);
    Ok(mac)
}

/// `zio_crypt_encode_mac_zil`: enters the MAC of a log block in it.
///
/// # Errors
/// `Corrupt` when the block is too short.
pub fn set_log_mac(bytes: &mut [u8], mac: &[u8; MAC_LEN]) -> Result<()> {
    let chain = ZilChainPhys::view_mut(bytes)?;
    chain.eck.cksum.as_mut_bytes()[MAC_LEN..].copy_from_slice(mac);
    Ok(())
}

fn same(have: &[u8], want: &[u8]) -> Result<()> {
    let differs = have.iter().zip(want).fold(0, |acc, (a, b)| acc | (a ^ b));
    if differs == 0 && have.len() == want.len() {
        return Ok(());
    }
    Err(wrong_mac())
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DataKey {} {:x}", self.suite, self.guid)
    }
}
