//! MACs that cover pointers: those of indirect blocks and of objsets.
//!
//! # On disk
//! Of a pointer, 32 bytes are covered: the properties that a raw send carries over, the MAC, and eight zeros. The MAC
//! of an indirect block is the start of a plain SHA-512 of these, so that it can be made and checked without a key.
//! At the root, an objset has two HMACs: the *portable* one of the meta-dnode, and the *local* one of the accounting
//! objects, which are not sent anywhere; it is zero while there are none.
//!
//! # Source
//! OpenZFS module/os/linux/zfs/zio_crypt.c (`zio_crypt_do_indirect_mac_checksum_impl`, `zio_crypt_do_objset_hmacs`).

use base::Result;
use hmac::{Hmac, Mac};
use phys::blkptr::MAC_LEN;
use phys::objset::{OBJSET_FLAG_USERACCOUNTING_COMPLETE, OBJSET_PHYS_SIZE_V2, OBJSET_PHYS_SIZE_V3};
use phys::{BlkPtrPhys, DnodePhys, ObjsetPhys, Phys};
use sha2::{Digest, Sha512};
use zerocopy::IntoBytes;

use crate::parts::{dnode_pointers, portable_core};

/// `ZIO_OBJSET_MAC_LEN`: bytes of a MAC of an objset.
const OBJSET_MAC_LEN: usize = 32;

/// What MACs cover of a pointer.
#[doc(alias = "blkptr_auth_buf_t")]
pub(crate) fn pointer_code(bp: &BlkPtrPhys) -> [u8; 32] {
    let mut code = [0; 32];
    code[..8].copy_from_slice(&bp.portable_prop().to_le_bytes());
    code[8..24].copy_from_slice(&bp.mac());
    code
}

/// The MAC of an indirect block, from its logical bytes.
#[must_use]
#[doc(alias = "zio_crypt_do_indirect_mac_checksum")]
pub fn indirect_mac(block: &[u8]) -> [u8; MAC_LEN] {
    let mut sum = Sha512::new();
    for bp in BlkPtrPhys::array(block) {
        sum.update(pointer_code(bp));
    }
    let mut mac = [0; MAC_LEN];
    mac.copy_from_slice(&sum.finalize()[..MAC_LEN]);
    mac
}

/// The portable and the local MAC of an objset whose block has `size` bytes. `mac` is an HMAC to which nothing was
/// added yet.
///
/// # Errors
/// `Corrupt` when a dnode makes no sense.
pub(crate) fn objset_macs(
    mac: &Hmac<Sha512>,
    objset: &ObjsetPhys,
    size: usize,
) -> Result<[[u8; OBJSET_MAC_LEN]; 2]> {
    let mut portable = mac.clone();
    // The one number that is covered as a big-endian one.
    portable.update(&objset.type_.get().to_be_bytes());
    // No flag of an objset is portable.
    portable.update(&[0; 8]);
    add_dnode(&mut portable, objset.meta_dnode.as_bytes())?;

    let flags = objset.flags.get();
    let mut accounts = vec![&objset.userused_dnode, &objset.groupused_dnode];
    let counts = accounts.iter().any(|dnode| dnode.core.is_allocated());
    let is_complete = flags & OBJSET_FLAG_USERACCOUNTING_COMPLETE != 0;
    if !is_complete || !counts || size < OBJSET_PHYS_SIZE_V2 {
        return Ok([first_half(portable), [0; OBJSET_MAC_LEN]]);
    }
    if size >= OBJSET_PHYS_SIZE_V3 {
        accounts.push(&objset.projectused_dnode);
    }
    let mut local = mac.clone();
    local.update(&flags.to_le_bytes());
    for dnode in accounts.into_iter().filter(|d| d.core.is_allocated()) {
        add_dnode(&mut local, dnode.as_bytes())?;
    }
    Ok([first_half(portable), first_half(local)])
}

#[doc(alias = "zio_crypt_do_dnode_hmac_updates")]
fn add_dnode(mac: &mut Hmac<Sha512>, bytes: &[u8]) -> Result<()> {
    let (pointers, _) = dnode_pointers(bytes)?;
    mac.update(portable_core(DnodePhys::view(bytes)?).as_bytes());
    for bp in pointers {
        mac.update(&pointer_code(bp));
    }
    Ok(())
}

fn first_half(mac: Hmac<Sha512>) -> [u8; OBJSET_MAC_LEN] {
    let mut half = [0; OBJSET_MAC_LEN];
    half.copy_from_slice(&mac.finalize().into_bytes()[..OBJSET_MAC_LEN]);
    half
}
