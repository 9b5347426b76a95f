//! A file system that is open: what is fixed, what the layers around it provide, and its locks.
//!
//! # Concurrency
//! A transaction is always begun *before* any lock of the file system is taken: the holder of a
//! lock already has a txg and never waits for one, so a txg can always be quiesced. Locks in
//! order:
//! 1. `namespace`: for writing by `rename`, for reading by everything else that changes names;
//! 2. `names` of a directory, then of a file in it: what is in the directory, the extended
//!    attributes of the file, and whether the file exists: it is freed under this lock;
//! 3. `content` of a file: its bytes and block size; readers together or one writer;
//! 4. `attrs` of a file: its attributes.
//!
//! The locks of a file live with its dnode, so all threads share them.
//!
//! # Source
//! OpenZFS `module/os/linux/zfs/zfs_vfsops.c` (`zfsvfs_init`), `module/os/linux/zfs/zfs_znode_os.c`
//! (`zfs_create_fs`, `zfs_mknode`).

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Context, Error, ErrorKind, ObjectId, Result, Txg};
use dmu::{Dnode, Objset, Owner, Tx, TxGroups};
use phys::ObjectType;
use phys::dnode::DN_MAX_OBJECT;
use phys::znode::{MASTER_NODE_OBJ, ZPL_VERSION, ZPL_VERSION_SA, master_node};
use rt::{Mutex, RwLock};
use zap::{NewZap, Zap};
use zil::SyncMode;

use crate::attrs::{Attr, Parsed};
use crate::log::{IntentLog, NoLog};
use crate::make::NewNode;
use crate::names::{NameRules, Names};
use crate::quota::QuotaTables;
use crate::sa::SaTable;
use crate::watch::Watcher;

/// When reading a file changes its access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtimePolicy {
    /// Never.
    Off,
    /// Always.
    On,
    /// When it is older than the last change, or than a day.
    #[default]
    Relative,
}

/// Properties of a dataset that matter here; may change while it is open. Record size and dnode
/// size are among the properties of the objset.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Refuse changes (also if the file system was opened without transaction groups).
    pub read_only: bool,
    /// Access times.
    pub atime: AtimePolicy,
    /// Keep extended attributes with the other attributes (`xattr=sa`), not in a directory.
    pub xattr_sa: bool,
    /// `acltype=posix`: files have POSIX ACLs.
    pub posix_acl: bool,
    /// Whether setting extended attributes that are kept with `xattr=sa` is logged (feature `zilsaxattr`).
    pub log_sa_xattr: bool,
    /// `sync` property.
    pub sync: SyncMode,
    /// `longname` property: new names may be longer than 255 bytes.
    pub long_names: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            read_only: false,
            atime: AtimePolicy::default(),
            xattr_sa: true,
            posix_acl: false,
            log_sa_xattr: true,
            sync: SyncMode::default(),
            long_names: false,
        }
    }
}

/// Space of a file system as its dataset sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes referenced.
    pub used_bytes: u64,
    /// Bytes that may still be written.
    pub available_bytes: u64,
}

/// Limits on what may be written: those of the dataset, and its quotas. Those of owners are in the file system.
pub trait SpaceCheck: Send + Sync {
    /// Sets room for `bytes` aside for a transaction of `txg`, which is held. If there is none,
    /// [`wait_for_room`](SpaceCheck::wait_for_room) tells why.
    fn reserve(&self, txg: Txg, bytes: u64) -> bool;

    /// Waits while only writes in flight leave no room for `bytes`. The caller holds neither a transaction nor a
    /// lock.
    ///
    /// # Errors
    /// `NoSpace` or `Quota`; `Suspended`.
    fn wait_for_room(&self, bytes: u64) -> Result<()>;

    /// Whether files may share blocks.
    fn can_clone(&self) -> bool {
        false
    }

    /// Whether blocks may be written once more without being younger (feature `physical_rewrite`).
    fn can_keep_births(&self) -> bool {
        false
    }

    /// Names the pool among those that are open; 0 if there is none.
    fn pool_number(&self) -> usize {
        0
    }

    /// Whether it is a snapshot.
    fn is_snapshot(&self) -> bool {
        false
    }

    /// Whether names of files may be longer than 255 bytes: the dataset has had such names.
    fn has_long_names(&self) -> bool {
        false
    }

    /// A file gets a name of more than 255 bytes in a transaction that is open.
    fn long_name_made(&self) {}

    /// Whether the pool has special devices.
    fn has_special(&self) -> bool {
        false
    }

    /// The numbers for `statfs`.
    fn space(&self) -> Space;
}

/// No limits: for tests, and for building images.
pub struct NoLimits;

impl SpaceCheck for NoLimits {
    fn reserve(&self, _txg: Txg, _bytes: u64) -> bool {
        true
    }

    fn wait_for_room(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }

    fn space(&self) -> Space {
        Space {
            used_bytes: 0,
            available_bytes: 1 << 50,
        }
    }
}

/// What is given to [`Filesystem::open`].
pub struct OpenOptions {
    /// Where transactions come from; `None` for snapshots and read-only pools.
    pub groups: Option<Arc<TxGroups>>,
    /// Properties.
    pub settings: Settings,
    /// The intent log.
    pub log: Arc<dyn IntentLog>,
    /// Quotas.
    pub space: Arc<dyn SpaceCheck>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            groups: None,
            settings: Settings::default(),
            log: Arc::new(NoLog),
            space: Arc::new(NoLimits),
        }
    }
}

/// What a new file system is to be like.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewFilesystem {
    /// Owner of the root directory.
    pub uid: u64,
    /// Group of the root directory.
    pub gid: u64,
    /// How names are told apart.
    pub names: NameRules,
}

/// `statfs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes in total.
    pub total_bytes: u64,
    /// Bytes that may still be written.
    pub available_bytes: u64,
    /// Files that exist.
    pub files: u64,
    /// Files that may still be created.
    pub available_files: u64,
    /// The longest name in bytes.
    pub name_max: u32,
}

/// A file with its locks.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) dnode: Arc<Dnode>,
    pub(crate) locks: Arc<NodeLocks>,
}

impl Node {
    pub(crate) fn id(&self) -> ObjectId {
        self.dnode.id()
    }

    /// Fails with `NotFound` if the file has been freed since it was looked up.
    pub(crate) fn require_alive(&self) -> Result<()> {
        if self.dnode.is_freed() {
            return Err(Error::not_found(format!("file {}", self.id())));
        }
        Ok(())
    }
}

/// The locks of a file, and its attributes in memory.
#[derive(Default)]
pub(crate) struct NodeLocks {
    pub(crate) names: Mutex<()>,
    pub(crate) content: RwLock<()>,
    pub(crate) attrs: Mutex<NodeAttrs>,
}

/// The attributes of a file in memory.
#[derive(Default)]
pub(crate) struct NodeAttrs {
    /// As they were parsed last.
    pub(crate) parsed: Option<Box<Parsed>>,
    /// A pending access time, written when the last reference to the file is given back.
    pub(crate) atime: Option<crate::Time>,
    /// The txg of the last change.
    pub(crate) txg: Txg,
    /// It was made without a name, and may get one.
    pub(crate) may_be_linked: bool,
}

/// A file that callers have references to.
pub(crate) struct Held {
    pub(crate) count: u64,
    /// Keeps the dnode in memory.
    _dnode: Arc<Dnode>,
}

impl Held {
    /// The first reference to a new file.
    pub(crate) fn one(node: &Node) -> Held {
        Held {
            count: 1,
            _dnode: node.dnode.clone(),
        }
    }
}

/// A file system (ZPL) over an objset.
#[doc(alias = "zfsvfs_t")]
pub struct Filesystem {
    pub(crate) objset: Arc<Objset>,
    pub(crate) groups: Option<Arc<TxGroups>>,
    pub(crate) sa: SaTable,
    pub(crate) root: ObjectId,
    pub(crate) unlinked_set: Option<ObjectId>,
    pub(crate) names: Names,
    version: u64,
    settings: RwLock<Settings>,
    pub(crate) log: Arc<dyn IntentLog>,
    pub(crate) space: Arc<dyn SpaceCheck>,
    pub(crate) namespace: RwLock<()>,
    pub(crate) holds: Mutex<BTreeMap<ObjectId, Held>>,
    pub(crate) watchers: RwLock<Vec<Arc<dyn Watcher>>>,
    pub(crate) quotas: QuotaTables,
}

impl Filesystem {
    /// Fills a new, empty objset: the master node, the delete queue, the root directory.
    ///
    /// # Errors
    /// I/O; [`ErrorKind::Exists`] if the objset is not empty.
    #[doc(alias = "zfs_create_fs")]
    pub fn create(objset: &Arc<Objset>, tx: &Tx, new: &NewFilesystem) -> Result<()> {
        let master_id = ObjectId(MASTER_NODE_OBJ);
        zap::create_claim(objset, tx, master_id, &NewZap::new(ObjectType::MASTER_NODE))?;
        let master = Zap::open(objset, master_id)?;
        let names = Names::of(&new.names)?;
        master.update_u64(tx, master_node::NORMALIZATION, new.names.normalization)?;
        master.update_u64(tx, master_node::UTF8ONLY, names.utf8only.into())?;
        master.update_u64(tx, master_node::CASESENSITIVITY, new.names.casesensitivity)?;
        master.update_u64(tx, master_node::VERSION, ZPL_VERSION)?;
        let sa_master = zap::create(objset, tx, ObjectType::SA_MASTER_NODE)?;
        master.add_u64(tx, master_node::SA_ATTRS, sa_master.0)?;
        let unlinked = zap::create(objset, tx, ObjectType::UNLINKED_SET)?;
        master.add_u64(tx, master_node::UNLINKED_SET, unlinked.0)?;
        let fs = Filesystem {
            objset: objset.clone(),
            groups: None,
            sa: SaTable::open(objset, Some(sa_master))?,
            root: ObjectId(0),
            unlinked_set: Some(unlinked),
            names,
            version: ZPL_VERSION,
            settings: RwLock::new(Settings::default()),
            log: Arc::new(NoLog),
            space: Arc::new(NoLimits),
            namespace: RwLock::new(()),
            holds: Mutex::new(BTreeMap::new()),
            watchers: RwLock::default(),
            quotas: QuotaTables::default(),
        };
        let root = fs.make_node(tx, &Attr::default(), &NewNode::root(new.uid, new.gid))?;
        master.add_u64(tx, master_node::ROOT, root.id().0)
    }

    /// Opens the file system in `objset`. If it is writable, files that lost their last name while they
    /// were open are removed.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for future versions, and for rules for names that OpenZFS does not have; I/O and
    /// corruption.
    #[doc(alias = "zfsvfs_create")]
    pub fn open(objset: Arc<Objset>, options: OpenOptions) -> Result<Arc<Filesystem>> {
        let master = Zap::open(&objset, ObjectId(MASTER_NODE_OBJ)).within(|| "master node")?;
        let entry = |name: &str| {
            master
                .lookup_u64(name)
                .within(|| format!("master node {name}"))
        };
        let version = entry(master_node::VERSION)?.unwrap_or(0);
        if version == 0 || version > ZPL_VERSION {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("file system version {version}"),
            ));
        }
        let rules = NameRules {
            utf8only: entry(master_node::UTF8ONLY)?.unwrap_or(0) != 0,
            normalization: entry(master_node::NORMALIZATION)?.unwrap_or(0),
            casesensitivity: entry(master_node::CASESENSITIVITY)?.unwrap_or(0),
        };
        let root = entry(master_node::ROOT)?;
        let root = root.ok_or_else(|| Error::corrupt("master node has no ROOT"))?;
        let sa_master = match entry(master_node::SA_ATTRS)? {
            Some(id) if version >= ZPL_VERSION_SA => Some(ObjectId(id)),
            _ => None,
        };
        let fs = Filesystem {
            sa: SaTable::open(&objset, sa_master)?,
            root: ObjectId(root),
            unlinked_set: entry(master_node::UNLINKED_SET)?
                .map(ObjectId)
                .filter(|id| id.0 < DN_MAX_OBJECT),
            names: Names::of(&rules)?,
            version,
            objset,
            groups: options.groups,
            settings: RwLock::new(options.settings),
            log: options.log,
            space: options.space,
            namespace: RwLock::new(()),
            holds: Mutex::new(BTreeMap::new()),
            watchers: RwLock::default(),
            quotas: QuotaTables::open(&master)?,
        };
        if fs.is_writable() {
            fs.drain_unlinked()?;
        }
        Ok(Arc::new(fs))
    }

    /// The objset that it is in.
    #[must_use]
    pub fn objset(&self) -> &Arc<Objset> {
        &self.objset
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> ObjectId {
        self.root
    }

    /// The ZPL version.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Properties.
    #[must_use]
    pub fn settings(&self) -> Settings {
        *self.settings.read()
    }

    /// Changes properties.
    pub(crate) fn set_settings(&self, settings: Settings) {
        *self.settings.write() = settings;
    }

    /// Whether changes are possible.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.groups.is_some() && self.version == ZPL_VERSION && !self.settings().read_only
    }

    /// Whether it is of a version that is only read: attributes are not system attributes.
    #[must_use]
    pub fn is_old(&self) -> bool {
        self.version != ZPL_VERSION
    }

    fn why_readonly(&self) -> String {
        match self.is_old() {
            true => format!("the file system is of version {}", self.version),
            false => "the file system is read-only".to_owned(),
        }
    }

    /// `statfs`.
    #[must_use]
    pub fn statfs(&self) -> StatFs {
        let space = self.space.space();
        let files = self.objset.object_count();
        // A file needs at least a dnode.
        let available_files = space.available_bytes / 512;
        StatFs {
            total_bytes: space.used_bytes.saturating_add(space.available_bytes),
            available_bytes: space.available_bytes,
            files,
            available_files,
            name_max: self.name_max_bytes() as u32,
        }
    }

    /// Begins a transaction; before any lock of the file system is taken.
    pub(crate) fn begin(&self, dirty_bytes: u64) -> Result<Tx> {
        let Some(groups) = self.groups.as_ref().filter(|_| self.is_writable()) else {
            return Err(Error::new(ErrorKind::ReadOnly, self.why_readonly()));
        };
        groups.hold_open(dirty_bytes)
    }

    /// Begins a transaction that adds up to `bytes` of content, with room for them; before any lock of the file
    /// system is taken. What is replayed from a log had room when it was logged.
    pub(crate) fn begin_adding(&self, dirty_bytes: u64, bytes: u64) -> Result<Tx> {
        loop {
            let tx = self.begin(dirty_bytes)?;
            if self.space.reserve(tx.txg(), bytes) || self.log.is_replaying(&tx) {
                return Ok(tx);
            }
            drop(tx);
            self.space.wait_for_room(bytes)?;
        }
    }

    /// Refuses a change of a file or directory that one of these flags of it forbids; a log has only changes that
    /// were allowed.
    pub(crate) fn check_flags(&self, tx: &Tx, attr: &Attr, forbidden: u64) -> Result<()> {
        if attr.pflags & forbidden == 0 || self.log.is_replaying(tx) {
            return Ok(());
        }
        let text = format!("file {} must not be changed (chattr)", attr.id);
        Err(Error::new(ErrorKind::Permission, text))
    }

    /// The file `id` with its locks.
    pub(crate) fn node(&self, id: ObjectId) -> Result<Node> {
        if id.0 == 0 || id.0 >= DN_MAX_OBJECT {
            return Err(Error::not_found(format!("object {id} is not a file")));
        }
        let dnode = self.objset.hold(id).within(|| format!("file {id}"))?;
        if let Some(locks) = dnode.user_if_made() {
            // Only a file has them.
            return Ok(Node { dnode, locks });
        }
        let is_file = [ObjectType::SA, ObjectType::ZNODE].contains(&dnode.bonus_type());
        if !is_file {
            return Err(Error::not_found(format!("object {id} is not a file")));
        }
        let locks = dnode.user(NodeLocks::default);
        Ok(Node { dnode, locks })
    }

    /// The directory `id`.
    pub(crate) fn directory(&self, id: ObjectId) -> Result<Node> {
        let node = self.node(id)?;
        if node.dnode.type_() != ObjectType::DIRECTORY_CONTENTS {
            return Err(Error::new(
                ErrorKind::NotDirectory,
                format!("file {id} is not a directory"),
            ));
        }
        Ok(node)
    }

    /// The attributes of a file, with an access time that is not written yet.
    pub(crate) fn attr_of(&self, node: &Node) -> Result<Attr> {
        let mut attrs = node.locks.attrs.lock();
        let mut attr = self.read_attr(&node.dnode, &mut attrs)?;
        if let Some(atime) = attrs.atime {
            attr.atime = atime;
        }
        Ok(attr)
    }

    pub(crate) fn owner_of(attr: &Attr) -> Owner {
        Owner {
            user: attr.uid,
            group: attr.gid,
            project: attr.projid,
        }
    }

    /// Implements `sync=always`: to be called after the transaction has ended.
    pub(crate) fn finish(&self, id: ObjectId) -> Result<()> {
        if self.settings().sync == SyncMode::Always {
            return self.fsync(id);
        }
        Ok(())
    }

    /// Takes a reference to a file: it is not freed, even without names, until as many references are
    /// given back by [`rele`](Filesystem::rele). Returns its attributes.
    ///
    /// # Errors
    /// `NotFound`; I/O.
    pub fn hold(&self, id: ObjectId) -> Result<Attr> {
        let node = self.node(id)?;
        let attr = self.attr_of(&node)?;
        let mut holds = self.holds.lock();
        if node.dnode.is_freed() {
            return Err(Error::not_found(format!("file {id}")));
        }
        let held = holds.entry(id).or_insert_with(|| Held {
            count: 0,
            _dnode: node.dnode.clone(),
        });
        held.count += 1;
        Ok(attr)
    }

    /// Gives back `count` references; a file without names and references is removed.
    ///
    /// # Errors
    /// I/O while removing the file; it is then removed when the file system is next opened.
    pub fn rele(&self, id: ObjectId, count: u64) -> Result<()> {
        {
            let mut holds = self.holds.lock();
            let held = holds.get_mut(&id);
            let held = held.unwrap_or_else(|| panic!("file {id} is released but not held"));
            assert!(
                held.count >= count,
                "file {id}: {count} of {} references",
                held.count
            );
            held.count -= count;
            if held.count > 0 {
                return Ok(());
            }
            holds.remove(&id);
        }
        if !self.is_writable() {
            return Ok(());
        }
        self.inactivate(id)
    }

    pub(crate) fn is_held(&self, id: ObjectId) -> bool {
        self.holds.lock().contains_key(&id)
    }
}
