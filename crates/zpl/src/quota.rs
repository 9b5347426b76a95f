//! Limits of users, groups and projects: setting them, and refusing what would go on beyond them.
//!
//! # What it is
//! A limit is compared with what its owner used when the last txg was synced, and refuses only those who have reached
//! it: so an owner may go beyond it by what is written until the next txg. Bytes are checked before anything is written
//! or cloned; bytes and objects before a file is made, or gets another owner, group or project.
//!
//! # Invariants
//! 1. A log is replayed whatever the limits are: what it has was allowed.
//! 2. The numbers of the tables here are those in the master node.
//!
//! # Why not simpler
//! Looking into the master node at each write would be a second look-up for those who have no limits, which is most.
//!
//! # Source
//! OpenZFS `module/zfs/zfs_quota.c` (`zfs_set_userquota`, `zfs_id_overquota`, `zfs_userspace_one`),
//! `module/os/linux/zfs/zfs_acl.c` (`zfs_acl_ids_overquota`),
//! `module/os/linux/zfs/zfs_vfsops.c` (`zfs_statfs_project`).

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result};
use dmu::{Objset, Owner, Tx};
use phys::ObjectType;
use phys::dnode::DN_MAX_OBJECT;
use phys::objset::{OBJSET_FLAG_PROJECTQUOTA_COMPLETE, OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE};
use phys::owner::{Counted, OwnerCount, OwnerKind, is_project, quota_key};
use phys::znode::{MASTER_NODE_OBJ, pflags};
use rt::RwLock;
use zap::Zap;

use crate::attrs::Attr;
use crate::{Filesystem, StatFs};

/// `ZPL_VERSION_USERSPACE`: the first version that has limits.
const FIRST_VERSION: u64 = 4;
/// Bytes that setting a limit makes dirty.
const QUOTA_DIRTY_BYTES: u64 = 32 << 10;

/// A limit of one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerLimit {
    /// Of what kind of owner, and of what.
    pub of: OwnerCount,
    /// The owner.
    pub id: u64,
    /// Bytes or objects; 0: nothing is limited.
    pub limit: u64,
}

/// The tables of limits of a file system, in the order of [`OwnerCount::ALL`].
#[derive(Default)]
pub(crate) struct QuotaTables(RwLock<[Option<ObjectId>; 6]>);

impl QuotaTables {
    /// Those that the master node names.
    pub(crate) fn open(master: &Zap) -> Result<QuotaTables> {
        let mut tables = [None; 6];
        for (table, of) in tables.iter_mut().zip(OwnerCount::ALL) {
            let object = master.lookup_u64(of.quota_entry())?;
            *table = object.filter(|id| is_table(*id)).map(ObjectId);
        }
        Ok(QuotaTables(RwLock::new(tables)))
    }

    fn get(&self, of: OwnerCount) -> Option<ObjectId> {
        let index = index_of(of);
        self.0.read()[index]
    }

    fn has_any(&self) -> bool {
        self.0.read().iter().any(Option::is_some)
    }
}

fn is_table(object: u64) -> bool {
    object != 0 && object < DN_MAX_OBJECT
}

fn index_of(of: OwnerCount) -> usize {
    let index = OwnerCount::ALL.iter().position(|other| *other == of);
    index.expect("all of them are in ALL")
}

/// The table of limits of an objset that may not be mounted.
fn table_of(objset: &Arc<Objset>, of: OwnerCount) -> Result<Option<Zap>> {
    let master = ObjectId(MASTER_NODE_OBJ);
    let object = zap::lookup_u64(objset, master, of.quota_entry())?;
    let object = object.filter(|id| is_table(*id)).map(ObjectId);
    object.map(|object| Zap::open(objset, object)).transpose()
}

/// The limit of an owner, 0 if it has none; `None` in a file system where this is not counted.
///
/// # Errors
/// I/O and corruption.
#[doc(alias = "zfs_userspace_one")]
pub fn owner_limit(objset: &Arc<Objset>, of: OwnerCount, id: u64) -> Result<Option<u64>> {
    if !is_counted(objset, of) {
        return Ok(None);
    }
    let limit = match table_of(objset, of)? {
        Some(table) => table.lookup_u64(&quota_key(id))?,
        None => None,
    };
    Ok(Some(limit.unwrap_or(0)))
}

/// What an owner uses; `None` in a file system where this is not counted.
///
/// # Errors
/// I/O and corruption.
#[doc(alias = "zfs_userspace_one")]
pub fn owner_used(objset: &Arc<Objset>, of: OwnerCount, id: u64) -> Result<Option<u64>> {
    if !is_counted(objset, of) {
        return Ok(None);
    }
    let object = ObjectId(of.kind.used_object());
    match zap::lookup_u64(objset, object, &of.used_key(id)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Some(0)),
        used => Ok(Some(used?.unwrap_or(0))),
    }
}

/// All limits, by owner; `None` in a file system where this is not counted.
///
/// # Errors
/// I/O and corruption.
#[doc(alias = "zfs_userspace_many")]
pub fn owner_limits(objset: &Arc<Objset>, of: OwnerCount) -> Result<Option<BTreeMap<u64, u64>>> {
    if !is_counted(objset, of) {
        return Ok(None);
    }
    let mut limits = BTreeMap::new();
    if let Some(table) = table_of(objset, of)? {
        for entry in &table {
            let entry = entry?;
            let name = entry.name_str();
            let id = u64::from_str_radix(&name, 16);
            let id = id.map_err(|_| {
                let table = of.quota_entry();
                Error::corrupt(format!("{table} has an owner \"{name}\""))
            })?;
            limits.insert(id, entry.first_integer);
        }
    }
    Ok(Some(limits))
}

fn is_counted(objset: &Objset, of: OwnerCount) -> bool {
    let needed = of.needs_flags();
    objset.flags() & needed == needed
}

impl Filesystem {
    /// Limits what an owner may have from now on.
    ///
    /// # Errors
    /// `Unsupported` in a file system of a version or in a pool without the feature for that; `InvalidInput` for a
    /// number that no project has; `ReadOnly`; I/O.
    #[doc(alias = "zfs_set_userquota")]
    pub fn set_owner_limit(&self, limit: &OwnerLimit) -> Result<()> {
        let OwnerLimit { of, id, limit } = *limit;
        if self.version() < FIRST_VERSION {
            let text = format!("a file system of version {} has no limits", self.version());
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        if of.kind == OwnerKind::Project {
            if !self.objset.props().project_quota {
                let text = "the feature project_quota is not enabled";
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
            if !is_project(id) {
                return Err(Error::invalid(format!("no file can have project {id}")));
            }
        }
        // Also while the property readonly forbids changes of files.
        let Some(groups) = &self.groups else {
            return Err(Error::new(ErrorKind::ReadOnly, "pool is read-only"));
        };
        let tx = groups.hold_open(QUOTA_DIRTY_BYTES)?;
        let table = self.table_for(&tx, of)?;
        let key = quota_key(id);
        match limit {
            0 => zap::remove_if_present(&self.objset, &tx, table, &key).map(drop),
            limit => zap::update_u64(&self.objset, &tx, table, &key, limit),
        }
    }

    /// The table of such limits, made if there was none.
    fn table_for(&self, tx: &Tx, of: OwnerCount) -> Result<ObjectId> {
        let mut tables = self.quotas.0.write();
        let table = &mut tables[index_of(of)];
        if let Some(table) = table {
            return Ok(*table);
        }
        let object = zap::create(&self.objset, tx, ObjectType::USERGROUP_QUOTA)?;
        let master = ObjectId(MASTER_NODE_OBJ);
        zap::update_u64(&self.objset, tx, master, of.quota_entry(), object.0)?;
        *table = Some(object);
        Ok(object)
    }

    /// Whether an owner has reached its limit. A limit that cannot be read is none, as in OpenZFS.
    #[doc(alias = "zfs_id_overblockquota")]
    #[doc(alias = "zfs_id_overobjquota")]
    fn reached(&self, of: OwnerCount, id: u64) -> Option<(u64, u64)> {
        let table = self.quotas.get(of)?;
        // Bytes of users and groups have been counted for as long as there are such limits.
        let needed = match of {
            OwnerCount {
                kind: OwnerKind::Project,
                ..
            } => OBJSET_FLAG_PROJECTQUOTA_COMPLETE,
            OwnerCount {
                counted: Counted::Objects,
                ..
            } => OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE,
            _ => 0,
        };
        if self.objset.flags() & needed != needed {
            return None;
        }
        let limit = zap::lookup_u64(&self.objset, table, &quota_key(id));
        let limit = limit.ok().flatten()?;
        let object = ObjectId(of.kind.used_object());
        let used = zap::lookup_u64(&self.objset, object, &of.used_key(id));
        let used = used.ok().flatten()?;
        (used >= limit).then_some((used, limit))
    }

    fn check_owner(&self, kind: OwnerKind, id: u64, counted: &[Counted]) -> Result<()> {
        for counted in counted {
            let Some((used, limit)) = self.reached(OwnerCount::new(kind, *counted), id) else {
                continue;
            };
            let what = match counted {
                Counted::Bytes => "bytes",
                Counted::Objects => "files",
            };
            let text = format!(
                "{} {id} has {used} {what}, and may have {limit}",
                kind.word()
            );
            return Err(Error::new(ErrorKind::Quota, text));
        }
        Ok(())
    }

    fn check_owners(&self, tx: &Tx, owner: &Owner, counted: &[Counted]) -> Result<()> {
        if !self.quotas.has_any() || self.log.is_replaying(tx) {
            return Ok(());
        }
        self.check_owner(OwnerKind::User, owner.user, counted)?;
        self.check_owner(OwnerKind::Group, owner.group, counted)?;
        match owner.project {
            // Files without a project.
            0 => Ok(()),
            project => self.check_owner(OwnerKind::Project, project, counted),
        }
    }

    /// Whether its owners may write more into a file.
    pub(crate) fn check_owner_bytes(&self, tx: &Tx, attr: &Attr) -> Result<()> {
        self.check_owners(tx, &Self::owner_of(attr), &[Counted::Bytes])
    }

    /// Whether the owners may have one more file.
    #[doc(alias = "zfs_acl_ids_overquota")]
    pub(crate) fn check_new_owner(&self, tx: &Tx, owner: &Owner) -> Result<()> {
        self.check_owners(tx, owner, &[Counted::Bytes, Counted::Objects])
    }

    /// Whether a file may be given to another owner.
    pub(crate) fn check_given(&self, tx: &Tx, to: &[(OwnerKind, u64)]) -> Result<()> {
        if !self.quotas.has_any() || self.log.is_replaying(tx) {
            return Ok(());
        }
        to.iter().try_for_each(|(kind, id)| {
            self.check_owner(*kind, *id, &[Counted::Bytes, Counted::Objects])
        })
    }

    /// `statfs` at a file: below a directory whose project is inherited, the limits of that project are the size.
    ///
    /// # Errors
    /// `NotFound`; I/O.
    #[doc(alias = "zfs_statvfs")]
    pub fn statfs_at(&self, id: ObjectId) -> Result<StatFs> {
        let mut stat = self.statfs();
        let is_counted = self.objset.flags() & OBJSET_FLAG_PROJECTQUOTA_COMPLETE != 0;
        if !is_counted || !self.quotas.has_any() {
            return Ok(stat);
        }
        let attr = self.getattr(id)?;
        let inherits = attr.pflags & pflags::PROJINHERIT != 0;
        if !inherits || attr.projid == 0 || !is_project(attr.projid) {
            return Ok(stat);
        }
        let limit_and_used = |counted| -> Result<Option<(u64, Option<u64>)>> {
            let of = OwnerCount::new(OwnerKind::Project, counted);
            let Some(table) = self.quotas.get(of) else {
                return Ok(None);
            };
            let limit = zap::lookup_u64(&self.objset, table, &quota_key(attr.projid))?;
            let object = ObjectId(of.kind.used_object());
            let used = zap::lookup_u64(&self.objset, object, &of.used_key(attr.projid));
            Ok(limit.map(|limit| (limit, used.ok().flatten())))
        };
        if let Some((limit, used)) = limit_and_used(Counted::Bytes)? {
            // Not counted yet: there is at least this directory.
            let used = used.unwrap_or(attr.used_bytes);
            stat.total_bytes = limit;
            stat.available_bytes = limit.saturating_sub(used);
        }
        if let Some((limit, used)) = limit_and_used(Counted::Objects)? {
            stat.files = limit.min(used.unwrap_or(1));
            stat.available_files = limit - stat.files;
        }
        Ok(stat)
    }
}
