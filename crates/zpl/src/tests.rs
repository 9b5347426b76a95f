//! File systems on a pool of one objset in memory.

mod alike;
mod basics;
mod concurrent;
mod format;
mod model;
mod quotas;
mod random;
mod replay;

use std::sync::Arc;

use arc::ArcSettings;
use base::{ObjectId, ObjsetId, Result, Txg};
use dmu::{FreeAtOnce, Objset, ObjsetProps, Tx, TxGroups, TxgSettings, TxgSync};
use phys::ObjsetType;
use ram::RamStore;
use zio::BlockStore;

use crate::{
    Create, FileOwners, Filesystem, IntentLog, NameRules, NewFilesystem, NoLog, OpenOptions,
    Settings,
};

const ID: ObjsetId = ObjsetId(54);

/// A pool whose only dataset is a file system.
pub(crate) struct Pool {
    store: Arc<dyn BlockStore>,
    props: ObjsetProps,
    pub(crate) groups: Arc<TxGroups>,
    objset: rt::Mutex<Arc<Objset>>,
    log: Arc<dyn IntentLog>,
    settings: Settings,
}

impl TxgSync for Pool {
    fn freeze(&self, txg: Txg) {
        self.objset().freeze(txg);
    }

    fn sync(&self, txg: Txg) -> Result<()> {
        sync_objset(&self.objset(), txg)
    }
}

fn sync_objset(objset: &Arc<Objset>, txg: Txg) -> Result<()> {
    let tx = Tx::syncing(txg);
    let mut pass = 0;
    while objset.needs_sync() {
        pass += 1;
        assert!(pass < 10, "it does not settle");
        objset.sync(&tx, pass)?;
    }
    objset.sync_done(txg);
    Ok(())
}

pub(crate) fn props() -> ObjsetProps {
    // Small records, to save CPU time in tests.
    ObjsetProps {
        recordsize: 16 << 10,
        ..ObjsetProps::default()
    }
}

impl Pool {
    pub(crate) fn new() -> Arc<Pool> {
        Pool::with(props(), Settings::default(), Arc::new(NoLog))
    }

    pub(crate) fn with(
        props: ObjsetProps,
        settings: Settings,
        log: Arc<dyn IntentLog>,
    ) -> Arc<Pool> {
        let ram = Arc::new(RamStore::new());
        let store: Arc<dyn BlockStore> = Arc::new(arc::Cache::new(ram, ArcSettings::default()));
        Pool::on(store, props, settings, log)
    }

    pub(crate) fn on(
        store: Arc<dyn BlockStore>,
        props: ObjsetProps,
        settings: Settings,
        log: Arc<dyn IntentLog>,
    ) -> Arc<Pool> {
        Pool::with_names(store, props, settings, log, NameRules::default())
    }

    pub(crate) fn with_names(
        store: Arc<dyn BlockStore>,
        props: ObjsetProps,
        settings: Settings,
        log: Arc<dyn IntentLog>,
        names: NameRules,
    ) -> Arc<Pool> {
        let tx = Tx::syncing(Txg(4));
        let accounting = Arc::new(FreeAtOnce(store.clone()));
        let objset = Objset::create(
            store.clone(),
            ID,
            ObjsetType::Zfs,
            props.clone(),
            accounting,
            &tx,
        );
        objset.set_owner_accounting(Some(Arc::new(owners())));
        let counted = phys::owner::OwnerCount::ALL.map(phys::owner::OwnerCount::needs_flags);
        objset.set_flags(&tx, counted.into_iter().fold(0, |all, flags| all | flags));
        let new = NewFilesystem {
            names,
            ..NewFilesystem::default()
        };
        Filesystem::create(&objset, &tx, &new).unwrap();
        sync_objset(&objset, Txg(4)).unwrap();
        let groups = TxGroups::new(Txg(4), TxgSettings::default());
        let objset = rt::Mutex::new(objset);
        let pool = Arc::new(Pool {
            store,
            props,
            groups: groups.clone(),
            objset,
            log,
            settings,
        });
        groups.start(pool.clone());
        pool
    }

    pub(crate) fn objset(&self) -> Arc<Objset> {
        self.objset.lock().clone()
    }

    pub(crate) fn mount(&self) -> Arc<Filesystem> {
        let options = OpenOptions {
            groups: Some(self.groups.clone()),
            settings: self.settings,
            log: self.log.clone(),
            ..OpenOptions::default()
        };
        Filesystem::open(self.objset(), options).unwrap()
    }

    pub(crate) fn sync(&self) {
        self.groups.sync_all().unwrap();
    }

    /// Syncs, forgets everything in memory, and mounts again.
    pub(crate) fn remount(&self, old: Arc<Filesystem>) -> Arc<Filesystem> {
        drop(old);
        self.sync();
        {
            let mut objset = self.objset.lock();
            let root = objset.root_bp();
            let accounting = Arc::new(FreeAtOnce(self.store.clone()));
            let opened = Objset::open(
                self.store.clone(),
                ID,
                &root,
                self.props.clone(),
                accounting,
            );
            *objset = opened.unwrap();
            objset.set_owner_accounting(Some(Arc::new(owners())));
        }
        self.mount()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = self.groups.stop();
    }
}

fn owners() -> FileOwners {
    FileOwners {
        counts_objects: true,
        counts_projects: true,
    }
}

pub(crate) fn create(mode: u32) -> Create {
    Create {
        mode,
        uid: 1000,
        gid: 100,
    }
}

/// Checks everything that holds for any file system, whatever is in it: link counts, sizes of
/// directories, parents, that every object is reached and that none is reached twice. Returns the number of files.
pub(crate) fn check_tree(fs: &Filesystem) -> usize {
    use phys::ObjectType;
    use std::collections::{BTreeMap, BTreeSet};

    let mut links: BTreeMap<ObjectId, u64> = BTreeMap::new();
    let mut seen = BTreeSet::from([fs.root()]);
    let mut todo = vec![fs.root()];
    let mut attached = BTreeSet::new();
    let attach = |attached: &mut BTreeSet<ObjectId>, id: ObjectId| {
        let Some(xattr_dir) = fs.getattr(id).unwrap().xattr_dir else {
            return;
        };
        attached.insert(xattr_dir);
        for entry in zap::iter(fs.objset(), xattr_dir).unwrap() {
            let value = entry.unwrap().first_integer;
            attached.insert(ObjectId(phys::znode::dirent_object(value)));
        }
    };
    attach(&mut attached, fs.root());
    while let Some(directory) = todo.pop() {
        let attr = fs.getattr(directory).unwrap();
        let entries = fs.list(directory).unwrap();
        assert_eq!(
            attr.size,
            entries.len() as u64 + 2,
            "size of directory {directory}"
        );
        let mut subdirectories = 0;
        for entry in entries {
            let child = fs.getattr(entry.id).unwrap();
            assert_eq!(
                child.file_type(),
                entry.file_type,
                "type in directory {directory}"
            );
            if child.is_directory() {
                subdirectories += 1;
                assert_eq!(child.parent, directory, "parent of {}", child.id);
                assert!(
                    seen.insert(entry.id),
                    "directory {} has two names",
                    entry.id
                );
                todo.push(entry.id);
            } else {
                seen.insert(entry.id);
                *links.entry(entry.id).or_default() += 1;
            }
            attach(&mut attached, entry.id);
        }
        assert_eq!(
            attr.links,
            subdirectories + 2,
            "links of directory {directory}"
        );
    }
    for (id, links) in links {
        assert_eq!(fs.getattr(id).unwrap().links, links, "links of file {id}");
    }
    let mut files = Vec::new();
    let mut at = ObjectId(0);
    while let Some(next) = fs.objset().next_object(at).unwrap() {
        at = next;
        if fs.objset().hold(at).unwrap().bonus_type() == ObjectType::SA {
            files.push(at);
            if fs.getattr(at).unwrap().links == 0 {
                seen.insert(at);
                attach(&mut attached, at);
            }
        }
    }
    for id in files {
        assert!(
            seen.contains(&id) || attached.contains(&id),
            "file {id} is leaked"
        );
    }
    seen.len()
}
