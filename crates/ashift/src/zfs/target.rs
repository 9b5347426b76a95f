//! Resolves names to datasets, and selects those a command applies to.
//!
//! Source: OpenZFS cmd/zfs/zfs_iter.c.

use std::collections::BTreeSet;
use std::sync::Arc;

use admin::name::{NameKind, check_name, dataset_of, pool_of};
use admin::prop::Types;
use base::{ErrorKind, Result};
use dsl::{DslBookmark, DslDataset};
use phys::ObjsetType;
use service::{Datasets, OpenPool, Session};

use super::fail::{Fail, Outcome, words};

/// A file system, volume, snapshot or bookmark that exists.
#[derive(Clone)]
pub(super) struct Target {
    /// Its full name.
    pub(super) name: String,
    /// Exactly one kind.
    pub(super) types: Types,
    pub(super) pool: Arc<OpenPool>,
    pub(super) what: What,
}

#[derive(Clone)]
pub(super) enum What {
    Dataset(Arc<DslDataset>),
    Bookmark(DslBookmark),
}

/// The word for a kind of dataset.
pub(super) fn type_word(types: Types) -> &'static str {
    match types {
        Types::SNAPSHOT => "snapshot",
        Types::VOLUME => "volume",
        Types::BOOKMARK => "bookmark",
        _ => "filesystem",
    }
}

impl Target {
    pub(super) fn datasets(&self) -> Datasets<'_> {
        self.pool.datasets()
    }

    /// The dataset; `None` for a bookmark.
    pub(super) fn dataset(&self) -> Option<&Arc<DslDataset>> {
        match &self.what {
            What::Dataset(ds) => Some(ds),
            What::Bookmark(_) => None,
        }
    }

    pub(super) fn is_head(&self) -> bool {
        self.types.meets(Types::FILESYSTEM.or(Types::VOLUME))
    }

    /// Whether it is encrypted.
    pub(super) fn is_encrypted(&self) -> Result<bool> {
        let found = self.dataset().map(|ds| self.datasets().encryption(ds));
        Ok(found.transpose()?.flatten().is_some())
    }

    /// Whether it lacks blocks that were redacted when it was sent.
    pub(super) fn is_redacted(&self) -> bool {
        let found = self.dataset();
        found.is_some_and(|ds| ds.feature_is_active(phys::feature::REDACTED_DATASETS))
    }

    pub(super) fn type_word(&self) -> &'static str {
        type_word(self.types)
    }

    /// The snapshots of a head, oldest first.
    pub(super) fn snapshots(&self) -> Result<Vec<Target>> {
        let Some(ds) = self.dataset().filter(|_| self.is_head()) else {
            return Ok(Vec::new());
        };
        let snapshots = self.datasets().snapshots(ds)?.into_iter();
        Ok(snapshots
            .map(|(snap, ds)| Target {
                name: format!("{}@{snap}", self.name),
                types: Types::SNAPSHOT,
                pool: self.pool.clone(),
                what: What::Dataset(ds),
            })
            .collect())
    }

    /// The bookmarks of a head, oldest first.
    pub(super) fn bookmarks(&self) -> Result<Vec<Target>> {
        let Some(ds) = self.dataset().filter(|_| self.is_head()) else {
            return Ok(Vec::new());
        };
        let bookmarks = self.datasets().bookmarks(ds)?.into_iter();
        Ok(bookmarks
            .map(|bookmark| Target {
                name: format!("{}#{}", self.name, bookmark.name),
                types: Types::BOOKMARK,
                pool: self.pool.clone(),
                what: What::Bookmark(bookmark),
            })
            .collect())
    }

    /// The file systems and volumes directly below a file system, by name.
    pub(super) fn children(&self) -> Result<Vec<Target>> {
        if self.types != Types::FILESYSTEM {
            return Ok(Vec::new());
        }
        let mut names = self.datasets().children(&self.name)?;
        names.sort();
        names.iter().map(|name| find(&self.pool, name)).collect()
    }

    /// It and all heads below it, parents first.
    pub(super) fn with_descendants(&self) -> Result<Vec<Target>> {
        let mut all = vec![self.clone()];
        for child in self.children()? {
            all.extend(child.with_descendants()?);
        }
        Ok(all)
    }
}

/// A dataset of an open pool by its name.
pub(super) fn find(pool: &Arc<OpenPool>, name: &str) -> Result<Target> {
    let target = |types, what| Target {
        name: name.to_owned(),
        types,
        pool: pool.clone(),
        what,
    };
    if let Some((head, mark)) = name.split_once('#') {
        let bookmarks = pool.datasets().bookmarks(&*pool.datasets().find(head)?)?;
        let found = bookmarks.into_iter().find(|bookmark| bookmark.name == mark);
        let found = found.ok_or_else(|| base::Error::not_found("no such bookmark"))?;
        return Ok(target(Types::BOOKMARK, What::Bookmark(found)));
    }
    let ds = pool.datasets().find(name)?;
    let types = match () {
        () if ds.is_snapshot() => Types::SNAPSHOT,
        () if ds.objset()?.type_() == ObjsetType::Zvol => Types::VOLUME,
        () => Types::FILESYSTEM,
    };
    Ok(target(types, What::Dataset(ds)))
}

/// Opens a dataset that must exist and be of one of these types.
#[doc(alias = "zfs_open")]
pub(super) fn open(session: &Session, name: &str, types: Types) -> Outcome<Target> {
    let missing = || Fail::failed(format!("cannot open '{name}': dataset does not exist"));
    open_if_there(session, name, types)?.ok_or_else(missing)
}

/// Opens a dataset that must be of one of these types; `None` if it does not exist.
pub(super) fn open_if_there(
    session: &Session,
    name: &str,
    types: Types,
) -> Outcome<Option<Target>> {
    let cannot = |why: &str| Fail::failed(format!("cannot open '{name}': {why}"));
    check_name(name, name_kind(types), false).map_err(|e| cannot(&e.to_string()))?;
    let pool = session.find_pool(pool_of(name)).map_err(|e| unopened(&e))?;
    let Some(pool) = pool else { return Ok(None) };
    let target = match find(&pool, name) {
        Ok(target) => target,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(cannot(&words(&e))),
    };
    if !target.types.meets(types) {
        return Err(cannot("operation not applicable to datasets of this type"));
    }
    Ok(Some(target))
}

/// The failure for an imported pool that could not be opened; the error names it. No command treats this as
/// a usage error.
fn unopened(error: &base::Error) -> Fail {
    Fail::Exits(1, error.to_string())
}

/// The names of the imported pools.
fn pool_names(session: &Session) -> Outcome<Vec<String>> {
    let names = session.pools().names();
    names.map_err(|e| Fail::failed(e.to_string()))
}

fn is_path(name: &str) -> bool {
    name.starts_with('/') || name.starts_with("./")
}

/// Opens what a name or a path leads to, which must be of one of these types.
#[doc(alias = "zfs_path_to_zhandle")]
pub(super) fn open_any(session: &Session, name: &str, types: Types) -> Outcome<Target> {
    match is_path(name) {
        true => open_path(session, name),
        false => open(session, name, types),
    }
}

/// The file system that `path` would be in, if all were mounted at their mountpoints.
#[doc(alias = "zfs_path_to_zhandle")]
fn open_path(session: &Session, path: &str) -> Outcome<Target> {
    let cannot = |why: &dyn std::fmt::Display| Fail::failed(format!("cannot open '{path}': {why}"));
    let wanted = std::path::absolute(path).map_err(|e| cannot(&e))?;
    let mut best: Option<(usize, Arc<OpenPool>, String)> = None;
    let mut closed = None;
    for name in pool_names(session)? {
        let pool = match session.find_pool(&name) {
            Ok(Some(pool)) => pool,
            Ok(None) => continue,
            Err(error) => {
                closed.get_or_insert(unopened(&error));
                continue;
            }
        };
        for (place, dataset) in pool.mountpoints().map_err(|e| cannot(&words(&e)))? {
            let is_within = wanted.starts_with(&place);
            if is_within && best.as_ref().is_none_or(|(len, ..)| place.len() > *len) {
                best = Some((place.len(), pool.clone(), dataset));
            }
        }
    }
    // The path may be in the pool that could not be opened.
    let missing = || match (closed, wanted.exists()) {
        (Some(closed), _) => closed,
        (None, true) => Fail::failed(format!("'{path}': not a ZFS filesystem")),
        (None, false) => cannot(&"No such file or directory"),
    };
    let (_, pool, dataset) = best.ok_or_else(missing)?;
    find(&pool, &dataset).map_err(|e| cannot(&words(&e)))
}

fn name_kind(types: Types) -> NameKind {
    let heads = types.meets(Types::FILESYSTEM.or(Types::VOLUME));
    match (
        heads,
        types.meets(Types::SNAPSHOT),
        types.meets(Types::BOOKMARK),
    ) {
        (_, _, true) => NameKind::Any,
        (true, true, _) => NameKind::DatasetOrSnapshot,
        (false, true, _) => NameKind::Snapshot,
        _ => NameKind::Dataset,
    }
}

/// Whether a dataset of that name exists.
pub(super) fn exists(pool: &Arc<OpenPool>, name: &str) -> Result<bool> {
    match pool.datasets().find(name) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// The head that a snapshot belongs to.
pub(super) fn head_of(target: &Target) -> Result<Target> {
    find(&target.pool, dataset_of(&target.name))
}

/// The datasets that a listing covers.
pub(super) struct Selection {
    /// `-t`
    pub(super) types: Types,
    /// List snapshots only of pools with `listsnapshots=on`.
    pub(super) snapshots_as_pool_says: bool,
    /// `-r`; with a depth, `-d`
    pub(super) recurses: bool,
    pub(super) depth: Option<usize>,
}

impl Selection {
    /// The datasets that `names` and their descendants select; without names, those of all pools. What
    /// cannot be opened is reported immediately; the outcome is then a failure.
    #[doc(alias = "zfs_for_each")]
    pub(super) fn gather(&self, session: &Session, names: &[String]) -> (Vec<Target>, Outcome) {
        let mut found = Vec::new();
        let mut outcome = Ok(());
        let mut failed = |fail: Fail| outcome = Err(fail.say(""));
        let everything;
        let is_everything = names.is_empty();
        let (names, recurses) = if is_everything {
            everything = pool_names(session).unwrap_or_else(|fail| {
                failed(fail);
                Vec::new()
            });
            (&everything[..], true)
        } else {
            (names, self.recurses)
        };
        for name in names {
            if is_everything {
                match session.find_pool(name) {
                    Ok(Some(_)) => {}
                    Ok(None) => continue, // exported meanwhile
                    Err(error) if error.kind() == ErrorKind::Busy => {
                        failed(unopened(&error));
                        continue;
                    }
                    Err(error) => {
                        // As in zfs_iter_root, an unavailable pool does not hide the others.
                        eprintln!("{error}");
                        continue;
                    }
                }
            }
            let opened = if is_path(name) {
                open_path(session, name)
            } else {
                open(session, name, self.argument_types(recurses))
            };
            match opened {
                Ok(target) => {
                    if let Err(error) = self.visit(&target, recurses, 0, &mut found) {
                        failed(Fail::of(format!("cannot iterate '{name}'"), &error));
                    }
                }
                Err(fail) => failed(fail),
            }
        }
        // The user may have named a dataset and one above it.
        let mut seen = BTreeSet::new();
        found.retain(|target| seen.insert(target.name.clone()));
        (found, outcome)
    }

    fn argument_types(&self, recurses: bool) -> Types {
        let mut types = self.types;
        if recurses {
            types = types.or(Types::FILESYSTEM);
            if types.meets(Types::SNAPSHOT.or(Types::BOOKMARK)) {
                types = types.or(Types::VOLUME);
            }
        }
        types
    }

    fn lists_snapshots(&self, target: &Target) -> bool {
        if !self.snapshots_as_pool_says {
            return self.types.meets(Types::SNAPSHOT);
        }
        target.pool.props().get("listsnapshots") == Some(&phys::PropValue::Number(1))
    }

    fn visit(
        &self,
        target: &Target,
        recurses: bool,
        depth: usize,
        found: &mut Vec<Target>,
    ) -> Result<()> {
        if target.types.meets(self.types) {
            found.push(target.clone());
        }
        if !recurses || self.depth.is_some_and(|limit| depth >= limit) {
            return Ok(());
        }
        if self.lists_snapshots(target) {
            found.extend(target.snapshots()?);
        }
        if self.types.meets(Types::BOOKMARK) {
            found.extend(target.bookmarks()?);
        }
        for child in target.children()? {
            self.visit(&child, recurses, depth + 1, found)?;
        }
        Ok(())
    }
}

/// Parses `-t`: comma-separated kinds.
pub(super) fn parse_types(text: &str) -> Outcome<Types> {
    let mut types = Types::NONE;
    for word in text.split(',') {
        types = types.or(match word {
            "filesystem" | "fs" => Types::FILESYSTEM,
            "volume" | "vol" => Types::VOLUME,
            "snapshot" | "snap" => Types::SNAPSHOT,
            "bookmark" => Types::BOOKMARK,
            "all" => Types::DATASET.or(Types::BOOKMARK),
            _ => return Err(Fail::usage(format!("invalid type '{word}'"))),
        });
    }
    Ok(types)
}

/// Reads `-d`.
pub(super) fn parse_depth(text: &str) -> Outcome<usize> {
    let depth = text.parse::<i32>();
    let depth = depth.map_err(|_| Fail::usage(format!("{text} is not an integer")))?;
    usize::try_from(depth).map_err(|_| Fail::usage("Depth can not be negative."))
}
