//! Space by user, group and project: which owners a file is charged to, and where the sums are.
//!
//! # On disk
//! Special objects of the objset, ZAPs from an id in hexadecimal to bytes, and from `obj-` and an id to
//! the number of objects. Ids are read at fixed offsets in the attributes: owner, group and project are
//! at the same place in every layout.
//!
//! # Source
//! OpenZFS `module/zfs/zfs_quota.c` (`zpl_get_file_info`), `module/zfs/dmu_objset.c`
//! (`do_userquota_cacheflush`).

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{ErrorKind, ObjectId, Result};
use dmu::{
    GROUPUSED_OBJECT, Objset, Owner, OwnerAccounting, OwnerDelta, OwnerDeltas, PROJECTUSED_OBJECT,
    Tx, USERUSED_OBJECT,
};
use phys::byteswap::{is_big_endian_sa, swap_sa_header, swap_words};
use phys::owner::OBJECTS_PREFIX;
use phys::sa::SaView;
use phys::znode::{ZnodePhys, pflags};
use phys::{ObjectType, Phys};
use zap::{NewZap, Zap};
use zerocopy::FromBytes;
use zerocopy::little_endian::{U32, U64};

// Byte offsets of the first attributes after the header, in every layout (`SA_*_OFFSET`).
const AT_UID: usize = 24;
const AT_GID: usize = 32;
const AT_FLAGS: usize = 48;
const AT_PROJID: usize = 128;

/// The accounting of file systems; stateless.
#[derive(Clone, Copy, Debug)]
pub struct FileOwners {
    /// Whether objects are counted (feature `userobj_accounting`).
    pub counts_objects: bool,
    /// Whether projects are counted (feature `project_quota`).
    pub counts_projects: bool,
}

impl OwnerAccounting for FileOwners {
    fn owner(&self, bonus_type: ObjectType, bonus: &[u8], spill: Option<&[u8]>) -> Option<Owner> {
        match bonus_type {
            ObjectType::ZNODE => {
                let znode = ZnodePhys::read(bonus).ok()?;
                Some(Owner {
                    user: znode.uid.get(),
                    group: znode.gid.get(),
                    project: 0,
                })
            }
            ObjectType::SA => sa_owner(if bonus.is_empty() { spill? } else { bonus }),
            _ => None,
        }
    }

    fn counts_objects(&self) -> bool {
        self.counts_objects
    }

    fn account(&self, objset: &Arc<Objset>, tx: &Tx, deltas: &OwnerDeltas) -> Result<()> {
        self.add(objset, tx, USERUSED_OBJECT, &deltas.users)?;
        self.add(objset, tx, GROUPUSED_OBJECT, &deltas.groups)?;
        if self.counts_projects {
            self.add(objset, tx, PROJECTUSED_OBJECT, &deltas.projects)?;
        }
        Ok(())
    }
}

/// The owner in a buffer of attributes, found by offset: the layouts are not known here.
fn sa_owner(bytes: &[u8]) -> Option<Owner> {
    let magic = U32::read_from_prefix(bytes).map_or(0, |(magic, _)| magic.get());
    if magic == 0 {
        // Allocated and not filled in yet.
        return Some(Owner::default());
    }
    let mut swapped;
    let bytes = match is_big_endian_sa(bytes) {
        true => {
            swapped = bytes.to_vec();
            swap_sa_header(&mut swapped);
            let header_bytes = SaView::new(&swapped).ok()?.header().size();
            // All that is looked at here are words.
            swap_words(&mut swapped[header_bytes..]);
            &swapped[..]
        }
        false => bytes,
    };
    let values = SaView::new(bytes).ok()?.values();
    let word = |at: usize| Some(U64::read_from_prefix(values.get(at..)?).ok()?.0.get());
    let has_project = word(AT_FLAGS)? & pflags::PROJID != 0;
    let project = if has_project { word(AT_PROJID)? } else { 0 };
    Some(Owner {
        user: word(AT_UID)?,
        group: word(AT_GID)?,
        project,
    })
}

impl FileOwners {
    fn add(
        &self,
        objset: &Arc<Objset>,
        tx: &Tx,
        object: ObjectId,
        deltas: &BTreeMap<u64, OwnerDelta>,
    ) -> Result<()> {
        if deltas.is_empty() {
            return Ok(());
        }
        let zap = open_or_create(objset, tx, object)?;
        for (id, delta) in deltas {
            zap.increment(tx, &format!("{id:x}"), delta.bytes)?;
            if self.counts_objects {
                zap.increment(tx, &format!("{OBJECTS_PREFIX}{id:x}"), delta.objects)?;
            }
        }
        Ok(())
    }
}

fn open_or_create(objset: &Arc<Objset>, tx: &Tx, object: ObjectId) -> Result<Zap> {
    match Zap::open(objset, object) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let new = NewZap::new(ObjectType::USERGROUP_USED);
            Zap::new(zap::create_claim(objset, tx, object, &new)?)
        }
        result => result,
    }
}

/// What a user, a group or a project uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// The user, group or project.
    pub id: u64,
    /// Bytes.
    pub bytes: u64,
    /// Objects; 0 if they are not counted.
    pub objects: u64,
}

/// All owners in one of the special objects, by id.
///
/// # Errors
/// I/O and corruption.
#[doc(alias = "zfs_userspace_many")]
pub fn space_by_owner(objset: &Arc<Objset>, object: ObjectId) -> Result<Vec<Used>> {
    let zap = match Zap::open(objset, object) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        result => result?,
    };
    let mut used: BTreeMap<u64, Used> = BTreeMap::new();
    for entry in &zap {
        let entry = entry?;
        let name = entry.name_str();
        let (digits, is_objects) = match name.strip_prefix(OBJECTS_PREFIX) {
            Some(digits) => (digits, true),
            None => (&*name, false),
        };
        let Ok(id) = u64::from_str_radix(digits, 16) else {
            return Err(base::Error::corrupt(format!(
                "owner \"{name}\" in object {object}"
            )));
        };
        let entry_of = used.entry(id).or_insert(Used {
            id,
            ..Used::default()
        });
        if is_objects {
            entry_of.objects = entry.first_integer;
        } else {
            entry_of.bytes = entry.first_integer;
        }
    }
    Ok(used.into_values().collect())
}
