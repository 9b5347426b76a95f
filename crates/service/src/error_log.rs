//! The names of damaged files.
//!
//! # Source
//! OpenZFS lib/libzfs/libzfs_pool.c (`zpool_get_errlog`, `zpool_obj_to_path_impl`).

use std::collections::BTreeSet;

use base::{ObjectId, ObjsetId};
use spa::Spa;
use zio::Bookmark;
use zpl::mount::{Mount, mount};

/// Where file systems are mounted: path and name of each.
pub(crate) type Mounted<'m> = dyn Fn() -> Vec<(String, String)> + 'm;

/// The damaged objects as `zpool status -v` names them: by path if they have one.
#[doc(alias = "zpool_obj_to_path")]
pub(crate) fn names_of(
    pool: &Spa,
    objects: &BTreeSet<(ObjsetId, ObjectId)>,
    mounted: &Mounted<'_>,
) -> Vec<String> {
    let mut names = Vec::new();
    let mut open: Option<(ObjsetId, Option<Damaged>)> = None;
    for &(objset, object) in objects {
        if objset.0 == 0 {
            names.push(format!("<metadata>:<{:#x}>", object.0));
            continue;
        }
        if open.as_ref().is_none_or(|(id, _)| *id != objset) {
            open = Some((objset, Damaged::open(pool, objset, mounted)));
        }
        let dataset = open.as_ref().and_then(|(_, dataset)| dataset.as_ref());
        names.push(dataset.map_or_else(
            || format!("<{:#x}>:<{:#x}>", objset.0, object.0),
            |dataset| dataset.name_of(object),
        ));
    }
    names
}

/// The objects that damaged blocks belong to.
pub(crate) fn objects_of(damaged: &BTreeSet<Bookmark>) -> BTreeSet<(ObjsetId, ObjectId)> {
    damaged.iter().map(|at| (at.objset, at.object)).collect()
}

/// A dataset with damaged objects.
struct Damaged {
    name: String,
    /// Where it is mounted, in a machine.
    mountpoint: Option<String>,
    /// Its files; `None` if they cannot be read at all.
    files: Option<Mount>,
}

impl Damaged {
    fn open(pool: &Spa, objset: ObjsetId, mounted: &Mounted<'_>) -> Option<Damaged> {
        let dsl = pool.parts().dsl();
        let dataset = dsl.dataset_of(ObjectId(objset.0)).ok()?;
        let name = dsl.name_of(&dataset).ok()?;
        let place = mounted().into_iter().find(|(_, dataset)| *dataset == name);
        Some(Damaged {
            mountpoint: place.map(|(path, _)| path),
            files: mount(dsl, &name, true).ok(),
            name,
        })
    }

    fn name_of(&self, object: ObjectId) -> String {
        let path = self.files.as_ref().and_then(|fs| fs.path_of(object).ok());
        let path = path.map(|path| String::from_utf8_lossy(&path).into_owned());
        match (path, &self.mountpoint) {
            (Some(path), Some(place)) => format!("{}{path}", place.trim_end_matches('/')),
            (Some(path), None) => format!("{}:{path}", self.name),
            (None, _) => format!("{}:<{:#x}>", self.name, object.0),
        }
    }
}
