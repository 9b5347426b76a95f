//! Objsets: the root block of a file system, volume or the MOS.
//!
//! # On disk
//! ```text
//! 0     512  meta dnode           in all forms
//! 512   192  intent log header    zero in the MOS and in snapshots
//! 704     8  type
//! 712     8  flags                OBJSET_FLAG_*
//! 720    32  portable MAC         encrypted datasets
//! 752    32  local MAC            encrypted datasets
//! 784   240  padding              here ends the form of 1024 bytes
//! 1024  512  user space dnode     form of 2048 bytes (pool version 15)
//! 1536  512  group space dnode
//! 2048  512  project space dnode  form of 4096 bytes (project_quota)
//! 2560 1536  padding
//! ```
//! See docs/spec/objset.md.
//!
//! # Source
//! OpenZFS include/sys/dmu_objset.h (`objset_phys_t`) @be7657e3.

use crate::layout::phys_struct;
use crate::zil::ZilHeaderPhys;
use crate::{DnodeSlotPhys, ObjsetType, Phys};
use base::{Error, Result};
use std::mem::size_of;
use zerocopy::little_endian::U64;
use zerocopy::{FromZeros, IntoBytes};

/// `OBJSET_PHYS_SIZE_V1`: without accounting dnodes.
pub const OBJSET_PHYS_SIZE_V1: usize = 1024;
/// `OBJSET_PHYS_SIZE_V2`: with user and group accounting.
pub const OBJSET_PHYS_SIZE_V2: usize = 2048;
/// `OBJSET_PHYS_SIZE_V3`: with project accounting.
pub const OBJSET_PHYS_SIZE_V3: usize = 4096;

/// `OBJSET_FLAG_USERACCOUNTING_COMPLETE`: user and group space is counted.
pub const OBJSET_FLAG_USERACCOUNTING_COMPLETE: u64 = 1 << 0;
/// `OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE`: user and group objects are counted.
pub const OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE: u64 = 1 << 1;
/// `OBJSET_FLAG_PROJECTQUOTA_COMPLETE`: projects are counted.
pub const OBJSET_FLAG_PROJECTQUOTA_COMPLETE: u64 = 1 << 2;

/// `DMU_USERUSED_OBJECT`: the object number of the user space dnode.
pub const USERUSED_OBJECT: u64 = u64::MAX;
/// `DMU_GROUPUSED_OBJECT`.
pub const GROUPUSED_OBJECT: u64 = u64::MAX - 1;
/// `DMU_PROJECTUSED_OBJECT`.
pub const PROJECTUSED_OBJECT: u64 = u64::MAX - 2;

phys_struct! {
    /// `objset_phys_t`, the full form of 4096 bytes; [`ObjsetPhys::parse`] reads all forms.
    #[doc(alias = "objset_phys_t")]
    pub struct ObjsetPhys: 4096 {
        /// os_meta_dnode: object 0, an array of dnodes
        0 meta_dnode: DnodeSlotPhys,
        /// os_zil_header
        512 zil_header: ZilHeaderPhys,
        /// os_type: [`ObjsetType`]
        704 type_: U64,
        /// os_flags: `OBJSET_FLAG_*`
        712 flags: U64,
        /// os_portable_mac
        720 portable_mac: [u8; 32],
        /// os_local_mac
        752 local_mac: [u8; 32],
        /// os_pad0: zero
        784 pad0: [u8; 240],
        /// os_userused_dnode
        1024 userused_dnode: DnodeSlotPhys,
        /// os_groupused_dnode
        1536 groupused_dnode: DnodeSlotPhys,
        /// os_projectused_dnode
        2048 projectused_dnode: DnodeSlotPhys,
        /// os_pad1: zero
        2560 pad1: [u8; 1536],
    }
}

impl ObjsetPhys {
    /// Reads any of the three forms; fields that a short form lacks are zero.
    ///
    /// # Errors
    /// `Corrupt` if `bytes` has none of the three sizes or the type is unknown.
    pub fn parse(bytes: &[u8]) -> Result<ObjsetPhys> {
        let size = bytes.len();
        if ![
            OBJSET_PHYS_SIZE_V1,
            OBJSET_PHYS_SIZE_V2,
            OBJSET_PHYS_SIZE_V3,
        ]
        .contains(&size)
        {
            return Err(Error::corrupt(format!("objset_phys of {size} bytes")));
        }
        let mut objset = ObjsetPhys::new_zeroed();
        let target = objset.as_mut_bytes().get_mut(..size);
        target.unwrap_or_default().copy_from_slice(bytes);
        objset.objset_type()?;
        Ok(objset)
    }

    /// The type.
    ///
    /// # Errors
    /// `Corrupt` if it is unknown.
    pub fn objset_type(&self) -> Result<ObjsetType> {
        let raw = self.type_.get();
        let small = u8::try_from(raw).unwrap_or(u8::MAX);
        ObjsetType::try_from(small)
            .map_err(|_| Error::corrupt(format!("os_type {raw} is not known")))
    }

    /// The bytes of the form of `size` bytes; `size` must be that of one of the three forms.
    #[must_use]
    pub fn form(&self, size: usize) -> &[u8] {
        let known = [
            OBJSET_PHYS_SIZE_V1,
            OBJSET_PHYS_SIZE_V2,
            OBJSET_PHYS_SIZE_V3,
        ];
        assert!(known.contains(&size), "objset_phys of {size} bytes");
        self.as_bytes().get(..size).unwrap_or_default()
    }
}

const _: () = assert!(ObjsetPhys::SIZE == OBJSET_PHYS_SIZE_V3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_forms_are_read() {
        let mut objset = ObjsetPhys::default();
        objset.type_.set(2);
        objset.projectused_dnode.tail[3] = 7;
        for size in [1024, 2048, 4096] {
            let read = ObjsetPhys::parse(objset.form(size)).unwrap();
            assert_eq!(read.form(size), objset.form(size));
            assert_eq!(read == objset, size == 4096);
        }
        assert!(ObjsetPhys::parse(&[0; 512]).is_err());
        objset.type_.set(6);
        let error = ObjsetPhys::parse(objset.form(1024)).unwrap_err();
        assert_eq!(error.context(), "os_type 6 is not known");
    }
}
