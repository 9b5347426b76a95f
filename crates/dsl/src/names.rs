//! Mapping names to directories and datasets, and back.
//!
//! A name is `pool/dir/dir` for a directory and its head, `pool/dir/dir@snap` for a snapshot.
//!
//! Source: OpenZFS module/zfs/dsl_dir.c (`dsl_dir_hold`, `dsl_dir_hold_obj`),
//! module/zfs/dsl_dataset.c (`dsl_dataset_hold`, `dsl_dataset_hold_obj`) @be7657e3

use phys::dsl::DS_FLAG_CI_DATASET;
use phys::pool_names;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use zap::directory;

use base::{Context, Error, ErrorKind, ObjectId, Result};
use phys::ObjectType;

use crate::dataset::{DatasetState, DslDataset};
use crate::deadlist::Deadlist;
use crate::dir::{DirState, DslDir};
use crate::fields::{DatasetFields, DirFields, check_bytes};
use crate::pool::DslPool;
use phys::feature;

/// `ZFS_MAX_DATASET_NAME_LEN` without the terminating NUL: bytes of the longest name.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// `zfs_max_dataset_nesting`: directories in the longest name.
pub(crate) const NESTING_MAX: usize = 50;

/// Maximum number of components in a directory's full name: as many as fit in the longest name.
const DEPTH_MAX: usize = NAME_BYTES_MAX.div_ceil(2);

/// A name split at its separators.
struct Name<'a> {
    dirs: Vec<&'a str>,
    snapshot: Option<&'a str>,
}

impl Name<'_> {
    fn parse(name: &str) -> Result<Name<'_>> {
        if name.len() > NAME_BYTES_MAX {
            let text = format!("name of {} bytes, at most {NAME_BYTES_MAX}", name.len());
            return Err(Error::new(ErrorKind::NameTooLong, text));
        }
        let (path, snapshot) = match name.split_once('@') {
            Some((path, snapshot)) => (path, Some(snapshot)),
            None => (name, None),
        };
        let dirs: Vec<&str> = path.split('/').collect();
        let snapshot_is_bad = snapshot.is_some_and(|s| s.is_empty() || s.contains(['@', '/']));
        if dirs.iter().any(|dir| dir.is_empty()) || snapshot_is_bad {
            return Err(Error::invalid(format!("{name:?} is not a data set's name")));
        }
        Ok(Name { dirs, snapshot })
    }
}

/// Lookup by name. The caller holds the configuration lock.
impl DslPool {
    /// The deepest existing directory on the path `dirs`, and the number of its components.
    fn walk(&self, dirs: &[&str]) -> Result<(Arc<DslDir>, usize)> {
        if dirs[0] != self.name() {
            let text = format!("{} is not in pool {}", dirs.join("/"), self.name());
            return Err(Error::new(ErrorKind::CrossDevice, text));
        }
        let mut dd = self.root_dir().clone();
        for (depth, name) in dirs.iter().enumerate().skip(1) {
            match self.child(&dd, name)? {
                Some(child) => dd = child,
                None => return Ok((dd, depth)),
            }
        }
        Ok((dd, dirs.len()))
    }

    /// A directory by name.
    pub(crate) fn find_dir(&self, name: &str) -> Result<Arc<DslDir>> {
        let parsed = Name::parse(name)?;
        match self.walk(&parsed.dirs)? {
            (dd, depth) if depth == parsed.dirs.len() && parsed.snapshot.is_none() => Ok(dd),
            _ => Err(Error::not_found(format!("there is no {name}"))),
        }
    }

    /// A head or snapshot by name.
    pub(crate) fn find_dataset(&self, name: &str) -> Result<Arc<DslDataset>> {
        let parsed = Name::parse(name)?;
        let missing = || Error::not_found(format!("there is no {name}"));
        let (dd, depth) = self.walk(&parsed.dirs)?;
        if depth < parsed.dirs.len() {
            return Err(missing());
        }
        let head = self.head_of(&dd)?.ok_or_else(missing)?;
        let Some(snapname) = parsed.snapshot else {
            return Ok(head);
        };
        let object = self.snap_lookup(&head, snapname)?.ok_or_else(missing)?;
        let snap = self.dataset_by_object(object)?;
        // Where case is ignored, its own name may be another.
        if !head.fields().has_flag(DS_FLAG_CI_DATASET) {
            let own = &mut snap.state().snapname;
            own.get_or_insert_with(|| snapname.to_string());
        }
        Ok(snap)
    }

    /// The parent of a directory to be created, and the new last component.
    pub(crate) fn find_new(&self, name: &str) -> Result<(Arc<DslDir>, String)> {
        let parsed = Name::parse(name)?;
        if parsed.snapshot.is_some() {
            return Err(Error::invalid(format!("{name:?} names a snapshot")));
        }
        if parsed.dirs.len() > NESTING_MAX {
            let text = format!("{name:?} is nested deeper than {NESTING_MAX}");
            return Err(Error::new(ErrorKind::NameTooLong, text));
        }
        let (dd, depth) = self.walk(&parsed.dirs)?;
        match parsed.dirs.len() - depth {
            0 => Err(Error::new(ErrorKind::Exists, format!("{name} exists"))),
            1 => Ok((dd, parsed.dirs[depth].to_string())),
            _ => Err(Error::not_found(format!("there is no parent for {name}"))),
        }
    }

    /// A child of a directory.
    pub(crate) fn child(&self, dd: &Arc<DslDir>, name: &str) -> Result<Option<Arc<DslDir>>> {
        let zap = ObjectId(dd.fields().child_dir_zapobj);
        match self.mos().zap_get(zap, name)? {
            Some(object) => self.named_dir(ObjectId(object), dd, name).map(Some),
            None => Ok(None),
        }
    }

    /// A directory's head, if it has one.
    pub(crate) fn head_of(&self, dd: &Arc<DslDir>) -> Result<Option<Arc<DslDataset>>> {
        match dd.fields().head_dataset_obj {
            0 => Ok(None),
            object => self.dataset_by_object(ObjectId(object)).map(Some),
        }
    }

    /// The children of a directory, by name; hidden ones (`$MOS`) too.
    pub(crate) fn child_dirs(&self, dd: &Arc<DslDir>) -> Result<Vec<Arc<DslDir>>> {
        let zap = ObjectId(dd.fields().child_dir_zapobj);
        let mut children = Vec::new();
        for (name, object) in self.mos().zap_entries(zap)? {
            children.push(self.named_dir(ObjectId(object), dd, &name)?);
        }
        Ok(children)
    }

    /// A directory and all its descendants, parents first.
    pub(crate) fn subtree(&self, dd: &Arc<DslDir>) -> Result<Vec<Arc<DslDir>>> {
        let mut seen = BTreeSet::from([dd.object()]);
        let mut found = vec![dd.clone()];
        let mut at = 0;
        while at < found.len() {
            let children = self.child_dirs(&found[at])?;
            if let Some(again) = children.iter().find(|child| !seen.insert(child.object())) {
                let (object, name) = (again.object(), again.name());
                let text = format!("directory {object} ({name}) has two names");
                return Err(Error::corrupt(text));
            }
            found.splice(at + 1..at + 1, children);
            at += 1;
        }
        Ok(found)
    }

    #[doc(alias = "dsl_dataset_snap_lookup")]
    pub(crate) fn snap_lookup(&self, head: &DslDataset, name: &str) -> Result<Option<ObjectId>> {
        let zap = ObjectId(head.fields().snapnames_zapobj);
        if head.fields().has_flag(DS_FLAG_CI_DATASET) {
            return Ok(self.mos().zap_get_alike(zap, name)?.map(ObjectId));
        }
        Ok(self.mos().zap_get(zap, name)?.map(ObjectId))
    }

    /// The names and objects of a head's snapshots, in the order of their names.
    pub(crate) fn snap_entries(&self, head: &DslDataset) -> Result<Vec<(String, ObjectId)>> {
        let zap = ObjectId(head.fields().snapnames_zapobj);
        let entries = self.mos().zap_entries(zap)?.into_iter();
        Ok(entries
            .map(|(name, object)| (name, ObjectId(object)))
            .collect())
    }

    /// A dataset's full name.
    #[doc(alias = "dsl_dataset_name")]
    pub(crate) fn dataset_name(&self, ds: &Arc<DslDataset>) -> Result<String> {
        let dir = ds.dir().name();
        if !ds.is_snapshot() {
            return Ok(dir);
        }
        Ok(format!("{dir}@{}", self.snapname(ds)?))
    }

    /// A snapshot's last component.
    #[doc(alias = "dsl_dataset_get_snapname")]
    pub(crate) fn snapname(&self, snap: &Arc<DslDataset>) -> Result<String> {
        if !snap.is_snapshot() {
            let text = format!("dataset {} is not a snapshot", snap.object());
            return Err(Error::corrupt(text));
        }
        if let Some(name) = &snap.state().snapname {
            return Ok(name.clone());
        }
        let nameless = || Error::corrupt(format!("snapshot {} has no name", snap.object()));
        let head = self.head_of(&snap.dir())?.ok_or_else(nameless)?;
        let zap = ObjectId(head.fields().snapnames_zapobj);
        let name = self
            .mos()
            .zap_name_of(zap, snap.object().0)?
            .ok_or_else(nameless)?;
        snap.state().snapname = Some(name.clone());
        Ok(name)
    }
}

/// Lookup by object.
impl DslPool {
    #[doc(alias = "dsl_dir_hold_obj")]
    pub(crate) fn dir_by_object(&self, object: ObjectId) -> Result<Arc<DslDir>> {
        self.dir_at_depth(object, 0)
    }

    /// `below`: the number of descendants whose parent links led here.
    fn dir_at_depth(&self, object: ObjectId, below: usize) -> Result<Arc<DslDir>> {
        if let Some(dir) = self.cached_dir(object) {
            return Ok(dir);
        }
        let fields = self.read_dir(object)?;
        if fields.parent_obj == 0 {
            let root = directory::find(self.mos().objset(), pool_names::ROOT_DATASET)?;
            if root.is_some_and(|root| root != object) {
                let text = format!("directory {object} has no parent and is not the root");
                return Err(Error::corrupt(text));
            }
            return self.open_dir(object, fields, None, self.name());
        }
        if below >= DEPTH_MAX {
            let text =
                format!("directory {object} has more than {DEPTH_MAX} below it, or is one of them");
            return Err(Error::corrupt(text));
        }
        let parent = self.dir_at_depth(ObjectId(fields.parent_obj), below + 1)?;
        let zap = ObjectId(parent.fields().child_dir_zapobj);
        let name = self.mos().zap_name_of(zap, object.0)?;
        let nameless = || Error::corrupt(format!("directory {object} has no name"));
        self.open_dir(object, fields, Some(parent), name.ok_or_else(nameless)?)
    }

    /// A directory that has an entry in its parent.
    fn named_dir(&self, object: ObjectId, parent: &Arc<DslDir>, name: &str) -> Result<Arc<DslDir>> {
        let dir = match self.cached_dir(object) {
            Some(dir) => dir,
            None => {
                let fields = self.read_dir(object)?;
                self.open_dir(object, fields, Some(parent.clone()), name.to_owned())?
            }
        };
        let own = dir.fields().parent_obj;
        if own != parent.object().0 {
            let entered = parent.object();
            return Err(Error::corrupt(format!(
                "directory {object} ({name}) is in directory {entered}, its dd_parent_obj is {own}"
            )));
        }
        Ok(dir)
    }

    fn read_dir(&self, object: ObjectId) -> Result<DirFields> {
        let dnode = self.mos().hold(object)?;
        if dnode.bonus_type() != ObjectType::DSL_DIR {
            let type_ = dnode.bonus_type();
            return Err(Error::corrupt(format!(
                "object {object} is {type_:?}, not a directory"
            )));
        }
        DirFields::read(&dnode.bonus()).within(|| format!("directory {object}"))
    }

    fn open_dir(
        &self,
        object: ObjectId,
        fields: DirFields,
        parent: Option<Arc<DslDir>>,
        name: String,
    ) -> Result<Arc<DslDir>> {
        if parent.iter().flat_map(DslDir::lineage).count() > DEPTH_MAX {
            let text = format!("directory {object} ({name}) is more than {DEPTH_MAX} deep");
            return Err(Error::corrupt(text));
        }
        let mut origin_txg = 0;
        if self.is_clone(&fields) {
            let origin = self.mos().hold(ObjectId(fields.origin_obj))?;
            origin_txg = DatasetFields::read(&origin.bonus())?.creation_txg;
        }
        let in_flight = BTreeMap::new();
        let state = DirState {
            fields,
            name,
            parent,
            origin_txg,
            in_flight,
        };
        let key_object = self.find_key_object(object)?;
        Ok(self.cache_dir(DslDir::new(object, key_object, state)))
    }

    /// Whether the head was cloned from a snapshot other than `$ORIGIN@$ORIGIN`.
    #[doc(alias = "dsl_dir_is_clone")]
    pub(crate) fn is_clone(&self, fields: &DirFields) -> bool {
        let empty = self.origin().map_or(0, |origin| origin.object().0);
        fields.origin_obj != 0 && fields.origin_obj != empty
    }

    #[doc(alias = "dsl_dataset_hold_obj")]
    pub(crate) fn dataset_by_object(&self, object: ObjectId) -> Result<Arc<DslDataset>> {
        if let Some(ds) = self.cached_dataset(object) {
            return Ok(ds);
        }
        let fields = self.read_dataset(object)?;
        let prev = match fields.num_children {
            0 => self.predecessor(object, &fields)?,
            _ => None,
        };
        self.open_dataset(object, fields, prev)
    }

    /// The snapshot before a dataset.
    ///
    /// Its creation txg is checked against ds_prev_snap_txg, and if the dataset is a snapshot, that
    /// is older than the dataset itself: so a walk along the predecessors terminates.
    pub(crate) fn predecessor(
        &self,
        object: ObjectId,
        fields: &DatasetFields,
    ) -> Result<Option<Arc<DslDataset>>> {
        if fields.prev_snap_obj == 0 {
            return Ok(None);
        }
        let prev = ObjectId(fields.prev_snap_obj);
        let ds = match self.cached_dataset(prev) {
            Some(ds) => ds,
            None => {
                let fields = self.read_dataset(prev)?;
                if fields.num_children == 0 {
                    let text =
                        format!("dataset {object}: ds_prev_snap_obj {prev} is not a snapshot");
                    return Err(Error::corrupt(text));
                }
                self.open_dataset(prev, fields, None)?
            }
        };
        let (said, taken) = (fields.prev_snap_txg, ds.fields().creation_txg);
        if !ds.is_snapshot() || said != taken {
            return Err(Error::corrupt(format!(
                "dataset {object}: ds_prev_snap_txg is {said}, but {prev} was taken in txg {taken}"
            )));
        }
        Ok(Some(ds))
    }

    /// The snapshot before `ds`, which has one.
    pub(crate) fn snapshot_before(&self, ds: &DslDataset) -> Result<Arc<DslDataset>> {
        let object = ds.object();
        let prev = self.predecessor(object, &ds.fields())?;
        prev.ok_or_else(|| Error::corrupt(format!("no snapshot comes before dataset {object}")))
    }

    fn read_dataset(&self, object: ObjectId) -> Result<DatasetFields> {
        let dnode = self.mos().hold(object)?;
        if dnode.bonus_type() != ObjectType::DSL_DATASET {
            let type_ = dnode.bonus_type();
            return Err(Error::corrupt(format!(
                "object {object} is {type_:?}, not a dataset"
            )));
        }
        let fields = DatasetFields::read(&dnode.bonus());
        let fields = fields.within(|| format!("dataset {object}"))?;
        let (open, newest) = (
            self.groups().open_txg(),
            fields.creation_txg.max(fields.prev_snap_txg),
        );
        if newest > open.0 {
            let text = format!("dataset {object} is of txg {newest}, the pool is at {open}");
            return Err(Error::corrupt(text));
        }
        Ok(fields)
    }

    fn open_dataset(
        &self,
        object: ObjectId,
        fields: DatasetFields,
        prev: Option<Arc<DslDataset>>,
    ) -> Result<Arc<DslDataset>> {
        let dir = self.dir_by_object(ObjectId(fields.dir_obj))?;
        let is_head = fields.num_children == 0;
        let userrefs = match fields.userrefs_obj {
            0 => 0,
            holds => self.mos().zap_count(ObjectId(holds))?,
        };
        let props = ObjectId(dir.fields().props_zapobj);
        let limit = |name| {
            if is_head {
                self.own_number(props, name)
            } else {
                Ok(0)
            }
        };
        let reserved = limit("refreservation")?;
        check_bytes("refreservation", reserved)?;
        let deadlist = Deadlist::open(self.mos(), ObjectId(fields.deadlist_obj))?;
        let state = DatasetState {
            reserved,
            quota: limit("refquota")?,
            features: self.load_features(object)?,
            activating: BTreeSet::new(),
            deactivating: BTreeSet::new(),
            snapname: None,
            long_holds: 0,
            owned: false,
            is_destroyed: false,
            fields,
            dir,
            prev,
            userrefs,
        };
        Ok(self.cache_dataset(DslDataset::new(self.weak(), object, state, deadlist)))
    }

    #[doc(alias = "load_zfeature")]
    fn load_features(&self, object: ObjectId) -> Result<BTreeMap<String, Vec<u64>>> {
        let mut features = BTreeMap::new();
        if self.mos().is_zapified(object)? {
            for guid in feature::per_dataset() {
                if let Some(value) = self.mos().zap_get_words(object, guid)? {
                    features.insert(guid.to_string(), value);
                }
            }
        }
        Ok(features)
    }
}

/// Queries for front ends.
impl DslPool {
    /// A head (`pool/a/b`) or snapshot (`pool/a/b@c`) by name.
    ///
    /// # Errors
    /// `NotFound`, `InvalidInput`, `NameTooLong`; `CrossDevice` for another pool's name.
    #[doc(alias = "dsl_dataset_hold")]
    pub fn dataset(&self, name: &str) -> Result<Arc<DslDataset>> {
        let _config = self.config().read();
        self.find_dataset(name)
    }

    /// A dataset by its object's number.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` when the object is not a dataset.
    pub fn dataset_of(&self, object: ObjectId) -> Result<Arc<DslDataset>> {
        let _config = self.config().read();
        self.dataset_by_object(object)
    }

    /// A directory by name.
    ///
    /// # Errors
    /// As [`dataset`](DslPool::dataset).
    #[doc(alias = "dsl_dir_hold")]
    pub fn dir(&self, name: &str) -> Result<Arc<DslDir>> {
        let _config = self.config().read();
        self.find_dir(name)
    }

    /// A dataset's full name.
    ///
    /// # Errors
    /// Any error from reading the MOS.
    pub fn name_of(&self, ds: &Arc<DslDataset>) -> Result<String> {
        let _config = self.config().read();
        self.dataset_name(ds)
    }

    /// The names of a directory's children, sorted, without hidden ones.
    ///
    /// # Errors
    /// As [`dataset`](DslPool::dataset).
    pub fn children(&self, name: &str) -> Result<Vec<String>> {
        let _config = self.config().read();
        let zap = ObjectId(self.find_dir(name)?.fields().child_dir_zapobj);
        let entries = self.mos().zap_entries(zap)?.into_iter();
        let visible = entries.filter(|(child, _)| !child.starts_with(['$', '%']));
        Ok(visible
            .map(|(child, _)| format!("{name}/{child}"))
            .collect())
    }

    /// The snapshots of a head, oldest first, with the last components of their names.
    ///
    /// # Errors
    /// As [`dataset`](DslPool::dataset).
    pub fn snapshots(&self, head: &Arc<DslDataset>) -> Result<Vec<(String, Arc<DslDataset>)>> {
        let _config = self.config().read();
        let mut snaps = Vec::new();
        for (name, object) in self.snap_entries(head)? {
            let snap = self.dataset_by_object(object)?;
            snap.state().snapname.get_or_insert_with(|| name.clone());
            snaps.push((snap.fields().creation_txg, name, snap));
        }
        snaps.sort_by_key(|(txg, ..)| *txg);
        Ok(snaps
            .into_iter()
            .map(|(_, name, snap)| (name, snap))
            .collect())
    }

    /// The names of a directory and its descendants that have a head: parents first, then by name.
    ///
    /// # Errors
    /// As [`dataset`](DslPool::dataset).
    pub fn descendants(&self, name: &str) -> Result<Vec<String>> {
        let _config = self.config().read();
        let dirs = self.subtree(&self.find_dir(name)?)?.into_iter();
        let visible = dirs
            .filter(|dd| dd.fields().head_dataset_obj != 0)
            .map(|dd| dd.name());
        Ok(visible.filter(|name| !name.contains(['$', '%'])).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_at_slashes_and_at_one_at_sign() {
        let name = Name::parse("tank/a/b@c").unwrap();
        assert_eq!(
            (name.dirs, name.snapshot),
            (vec!["tank", "a", "b"], Some("c"))
        );
        for bad in [
            "", "/", "tank/", "tank//a", "tank@", "@c", "tank@c@d", "tank@c/d",
        ] {
            assert_eq!(
                Name::parse(bad).err().map(|e| e.kind()),
                Some(ErrorKind::InvalidInput)
            );
        }
        let long = "x".repeat(256);
        assert_eq!(
            Name::parse(&long).err().map(|e| e.kind()),
            Some(ErrorKind::NameTooLong)
        );
    }
}
