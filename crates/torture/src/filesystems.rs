//! The file systems of a pool checked against models: names, snapshots, clones, and all that is in them.
//!
//! Every operation is done on the pool and in memory; [`Filesystems::compare`] then reads everything back.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{ErrorKind, Result};
use dsl::{DslPool, Encrypted};
use phys::PropValue;
use spa::Spa;
use zpl::Filesystem;
use zpl::mount::{Mount, mount};

use crate::Dice;
use crate::keys;
use crate::memfs::MemFs;
use crate::pair::compare;
use crate::pool;

/// The most file systems, and the most snapshots of each, that are made.
const HEADS_MAX: usize = 6;
const SNAPSHOTS_MAX: usize = 5;
/// The tag of all holds.
const TAG: &str = "storm";

/// A file system, its snapshots, and its origin.
#[derive(Clone)]
pub struct Head {
    /// What it holds now.
    pub fs: MemFs,
    /// Snapshots by name, oldest first.
    pub snapshots: Vec<(String, MemFs)>,
    /// The snapshot that it was cloned from.
    pub origin: Option<String>,
}

/// What a pool should hold.
#[derive(Clone, Default)]
pub struct Filesystems {
    /// Heads by full name.
    pub heads: BTreeMap<String, Head>,
    /// What the checkpoint keeps, if there is one.
    pub(crate) kept: Option<Arc<Filesystems>>,
    /// Makes names unique: none is used twice.
    next: u64,
}

/// An imported pool; file systems are mounted when they are needed.
pub struct Session {
    /// The pool.
    pub spa: Arc<Spa>,
    mounts: BTreeMap<String, Mount>,
}

impl Session {
    /// Nothing is mounted yet.
    #[must_use]
    pub fn new(spa: Spa) -> Session {
        Session {
            spa: Arc::new(spa),
            mounts: BTreeMap::new(),
        }
    }

    /// A file system, mounted if it was not yet.
    ///
    /// # Panics
    /// When it cannot be mounted.
    pub fn mount(&mut self, name: &str) -> &Mount {
        let dsl = self.spa.parts().dsl();
        self.mounts.entry(name.to_owned()).or_insert_with(|| {
            mount_with_key(dsl, name, false).unwrap_or_else(|e| panic!("{name}: {e}"))
        })
    }

    /// A file system, if it is mounted.
    #[must_use]
    pub fn mounted(&self, name: &str) -> Option<&Arc<Filesystem>> {
        self.mounts.get(name).map(|mount| &**mount)
    }

    /// Unmounts everything.
    pub(crate) fn unmount_all(&mut self) {
        self.mounts.clear();
    }
}

impl Filesystems {
    fn fresh(&mut self, spa: &Spa, stem: &str) -> String {
        format!("{}/{}", spa.name(), self.unique(stem))
    }

    fn unique(&mut self, stem: &str) -> String {
        self.next += 1;
        format!("{stem}{}", self.next)
    }

    /// A random head.
    pub fn any(&self, dice: &mut Dice) -> Option<String> {
        let names: Vec<String> = self.heads.keys().cloned().collect();
        dice.pick(&names).cloned()
    }

    /// Makes one with random properties, unless there are `HEADS_MAX` already.
    ///
    /// # Errors
    /// What the pool says.
    pub fn create(&mut self, session: &mut Session, dice: &mut Dice) -> Result<()> {
        if self.heads.len() >= HEADS_MAX {
            return Ok(());
        }
        let name = self.fresh(&session.spa, "fs");
        let new = pool::new_fs(&name, &any_props(dice));
        let dsl = session.spa.parts().dsl();
        match dice.once_in(3) {
            true => dsl.create_encrypted(new, Encrypted::Root(keys::any_root(dice)?))?,
            false => dsl.create_dataset(new)?,
        }
        let root = session.mount(&name).root();
        let head = Head {
            fs: MemFs::new(root),
            snapshots: Vec::new(),
            origin: None,
        };
        self.heads.insert(name, head);
        Ok(())
    }

    /// Sets a few random properties, which apply to what is written from now on.
    ///
    /// # Errors
    /// What the pool says.
    pub fn set_props(&self, session: &Session, name: &str, dice: &mut Dice) -> Result<()> {
        let props = any_props(dice).into_iter().filter(|_| dice.once_in(3));
        for (prop, value) in props.collect::<Vec<_>>() {
            let dsl = session.spa.parts().dsl();
            dsl.set_prop(name, prop, PropValue::Number(value))?;
        }
        Ok(())
    }

    /// Gives it another key and perhaps unloads that, if it has a key of its own; returns whether it has.
    ///
    /// # Errors
    /// What the pool says.
    pub(crate) fn change_key(
        &mut self,
        session: &mut Session,
        name: &str,
        dice: &mut Dice,
    ) -> Result<bool> {
        session.mounts.remove(name);
        self.head_mut(name).fs.forget_holds();
        keys::change(session.spa.parts().dsl(), name, dice)
    }

    /// Takes a snapshot, unless there are `SNAPSHOTS_MAX` already.
    ///
    /// # Errors
    /// What the pool says.
    pub fn snapshot(&mut self, session: &Session, name: &str) -> Result<()> {
        let snap = self.unique("s");
        let head = self.head_mut(name);
        if head.snapshots.len() >= SNAPSHOTS_MAX {
            return Ok(());
        }
        let full = format!("{name}@{snap}");
        session.spa.parts().dsl().snapshot(&[&full], Vec::new())?;
        let mut fs = head.fs.clone();
        fs.forget_holds();
        head.snapshots.push((snap, fs));
        Ok(())
    }

    /// Clones a snapshot, if there is one and there are fewer than `HEADS_MAX` heads.
    ///
    /// # Errors
    /// What the pool says.
    pub fn clone_snapshot(&mut self, session: &Session, name: &str, dice: &mut Dice) -> Result<()> {
        let picked = dice.pick(&self.heads[name].snapshots).cloned();
        let Some((snap, fs)) = picked.filter(|_| self.heads.len() < HEADS_MAX) else {
            return Ok(());
        };
        let (origin, clone) = (format!("{name}@{snap}"), self.fresh(&session.spa, "clone"));
        let dsl = session.spa.parts().dsl();
        dsl.clone_dataset(&clone, &origin, Vec::new())?;
        let head = Head {
            fs,
            snapshots: Vec::new(),
            origin: Some(origin),
        };
        self.heads.insert(clone, head);
        Ok(())
    }

    fn head_mut(&mut self, name: &str) -> &mut Head {
        self.heads.get_mut(name).expect("it was picked from there")
    }

    fn has_clones(&self, snapshot: &str) -> bool {
        let mut origins = self.heads.values().filter_map(|h| h.origin.as_deref());
        origins.any(|origin| origin == snapshot)
    }

    /// Destroys some snapshots of a head: all of them, or none.
    ///
    /// # Errors
    /// What the pool says, unless one of them has a clone.
    ///
    /// # Panics
    /// When the pool destroys one that has a clone.
    pub fn destroy_snapshots(
        &mut self,
        session: &Session,
        name: &str,
        dice: &mut Dice,
    ) -> Result<()> {
        let all = &self.heads[name].snapshots;
        let doomed: Vec<String> = all
            .iter()
            .filter(|_| dice.once_in(2))
            .map(|(snap, _)| format!("{name}@{snap}"))
            .collect();
        let names: Vec<&str> = doomed.iter().map(String::as_str).collect();
        for full in &names {
            release(session, full)?;
        }
        let outcome = session.spa.parts().dsl().destroy_snapshots(&names, false);
        if names.iter().any(|full| self.has_clones(full)) {
            assert!(outcome.is_err(), "one of {names:?} has a clone");
            return Ok(());
        }
        outcome?;
        let is_doomed = |snap: &str| names.contains(&format!("{name}@{snap}").as_str());
        let head = self.head_mut(name);
        head.snapshots.retain(|(snap, _)| !is_doomed(snap));
        Ok(())
    }

    /// Holds a snapshot, if there is one.
    ///
    /// # Errors
    /// What the pool says.
    pub fn hold(&self, session: &Session, name: &str, dice: &mut Dice) -> Result<()> {
        let Some((snap, _)) = dice.pick(&self.heads[name].snapshots) else {
            return Ok(());
        };
        let full = format!("{name}@{snap}");
        let dsl = session.spa.parts().dsl();
        if dsl.holds(&dsl.dataset(&full)?)?.is_empty() {
            dsl.hold(&[&full], TAG)?;
        }
        Ok(())
    }

    /// Bookmarks a snapshot, if there is one; where there are many bookmarks one is destroyed instead.
    ///
    /// # Errors
    /// What the pool says.
    pub fn bookmark(&mut self, session: &Session, name: &str, dice: &mut Dice) -> Result<()> {
        let dsl = session.spa.parts().dsl();
        let ds = dsl.dataset(name)?;
        let there = dsl.bookmarks(&ds)?;
        if there.len() >= SNAPSHOTS_MAX {
            return dsl.destroy_bookmark(&format!("{name}#{}", there[0].name));
        }
        let picked = dice.pick(&self.heads[name].snapshots).cloned();
        let Some((snap, _)) = picked else {
            return Ok(());
        };
        let bookmark = format!("{name}#{}", self.unique("b"));
        dsl.create_bookmark(&bookmark, &format!("{name}@{snap}"))?;
        let found = dsl.bookmarks(&ds)?;
        assert_eq!(found.len(), there.len() + 1, "{bookmark}");
        Ok(())
    }

    /// Rolls back to the last snapshot, if there is one; as `zfs rollback -r` without later bookmarks.
    ///
    /// # Errors
    /// What the pool says.
    ///
    /// # Panics
    /// When the pool rolls back below a later bookmark.
    pub fn rollback(&mut self, session: &mut Session, name: &str) -> Result<()> {
        let head = self.head_mut(name);
        let Some((snap, fs)) = head.snapshots.last() else {
            return Ok(());
        };
        let fs = fs.clone();
        let later = later_bookmarks(session, name, snap)?;
        if !later.is_empty() {
            let outcome = session.spa.parts().dsl().rollback(name, None, 0);
            assert!(outcome.is_err(), "{name} has bookmarks after {snap}");
        }
        for bookmark in &later {
            session.spa.parts().dsl().destroy_bookmark(bookmark)?;
        }
        head.fs.forget_holds();
        session.mounts.remove(name);
        let dsl = session.spa.parts().dsl();
        keys::load(dsl, name)?;
        match dsl.rollback(name, None, 0) {
            Err(e) if e.kind() == ErrorKind::Quota => {
                let quota = dsl.prop(&dsl.dataset(name)?, "refquota")?;
                let quota = quota.and_then(|quota| quota.value.as_number());
                let snapshot = dsl.dataset(&format!("{name}@{snap}"))?.fields();
                assert!(quota.is_some_and(|quota| snapshot.referenced_bytes > quota));
                return Ok(());
            }
            done => done?,
        }
        head.fs = fs;
        Ok(())
    }

    /// Destroys the head, if it has no snapshots.
    ///
    /// # Errors
    /// What the pool says.
    ///
    /// # Panics
    /// When the pool destroys one that has snapshots.
    pub fn destroy(&mut self, session: &mut Session, name: &str) -> Result<()> {
        session.mounts.remove(name);
        let head = self.head_mut(name);
        head.fs.forget_holds();
        let outcome = session.spa.parts().dsl().destroy_head(name);
        if head.snapshots.is_empty() {
            outcome?;
            self.heads.remove(name);
        } else {
            assert!(outcome.is_err(), "{name} has snapshots");
        }
        Ok(())
    }

    /// Promotes a clone: the snapshots up to its origin move to it.
    ///
    /// # Errors
    /// What the pool says.
    pub fn promote(&mut self, session: &Session, name: &str) -> Result<()> {
        let Some(origin) = self.heads[name].origin.clone() else {
            return Ok(());
        };
        session.spa.parts().dsl().promote(name)?;
        let (parent, snap) = origin.split_once('@').expect("a snapshot");
        let old = self.head_mut(parent);
        let at = old.snapshots.iter().position(|(s, _)| s == snap);
        let later = old.snapshots.split_off(at.expect("it is there") + 1);
        let moved = std::mem::replace(&mut old.snapshots, later);
        let above = old.origin.replace(format!("{name}@{snap}"));
        for head in self.heads.values_mut() {
            let Some((of, snap)) = head.origin.as_ref().and_then(|o| o.split_once('@')) else {
                continue;
            };
            if of == parent && moved.iter().any(|(s, _)| s == snap) {
                head.origin = Some(format!("{name}@{snap}"));
            }
        }
        let head = self.head_mut(name);
        head.origin = above;
        head.snapshots.splice(0..0, moved);
        Ok(())
    }

    /// Gives it a fresh name.
    ///
    /// # Errors
    /// What the pool says.
    pub fn rename(&mut self, session: &mut Session, name: &str) -> Result<()> {
        let new = self.fresh(&session.spa, "renamed");
        session.mounts.remove(name);
        self.head_mut(name).fs.forget_holds();
        session.spa.parts().dsl().rename(name, &new)?;
        let head = self.heads.remove(name).expect("it was picked from there");
        self.heads.insert(new.clone(), head);
        for head in self.heads.values_mut() {
            if let Some((of, snap)) = head.origin.as_ref().and_then(|o| o.split_once('@'))
                && of == name
            {
                head.origin = Some(format!("{new}@{snap}"));
            }
        }
        Ok(())
    }

    /// Returns to an earlier state; names used since then are not used again.
    pub(crate) fn return_to(&mut self, earlier: &Filesystems) {
        self.heads = earlier.heads.clone();
        self.kept = earlier.kept.clone();
    }

    /// Closes all files: those without a name are gone.
    pub fn forget_holds(&mut self) {
        for head in self.heads.values_mut() {
            head.fs.forget_holds();
        }
    }

    /// Reads everything back: file systems, and snapshots through mounts of their own.
    ///
    /// # Panics
    /// When something is not as it should be.
    pub fn compare(&self, session: &mut Session) {
        for (name, head) in &self.heads {
            compare(session.mount(name), &head.fs);
        }
        self.compare_snapshots(session);
    }

    /// Reads the snapshots back.
    ///
    /// # Panics
    /// When something is not as it should be.
    pub(crate) fn compare_snapshots(&self, session: &Session) {
        for (name, head) in &self.heads {
            for (snap, fs) in &head.snapshots {
                let full = format!("{name}@{snap}");
                let there = mount_with_key(session.spa.parts().dsl(), &full, true);
                compare(&there.unwrap_or_else(|e| panic!("{full}: {e}")), fs);
            }
        }
    }

    /// Unmounts everything, runs the checker, and exports the pool.
    ///
    /// # Errors
    /// What the pool says.
    ///
    /// # Panics
    /// With what the checker finds.
    pub fn close(&mut self, mut session: Session) -> Result<()> {
        session.unmount_all();
        self.forget_holds();
        session.spa.sync()?;
        pool::assert_clean(&session.spa);
        session.spa.export()
    }
}

/// Mounts a file system or snapshot; its key is loaded if it needs one.
fn mount_with_key(dsl: &Arc<DslPool>, name: &str, readonly: bool) -> Result<Mount> {
    keys::load(dsl, name)?;
    mount(dsl, name, readonly)
}

/// The bookmarks of snapshots after this one.
fn later_bookmarks(session: &Session, name: &str, snap: &str) -> Result<Vec<String>> {
    let dsl = session.spa.parts().dsl();
    let created = dsl
        .dataset(&format!("{name}@{snap}"))?
        .fields()
        .creation_txg;
    let there = dsl.bookmarks(&*dsl.dataset(name)?)?;
    let later = there
        .iter()
        .filter(|bookmark| bookmark.createtxg.0 > created);
    Ok(later
        .map(|bookmark| format!("{name}#{}", bookmark.name))
        .collect())
}

/// Releases a snapshot that is held, after an attempt to destroy it.
fn release(session: &Session, snapshot: &str) -> Result<()> {
    let dsl = session.spa.parts().dsl();
    if dsl.holds(&dsl.dataset(snapshot)?)?.is_empty() {
        return Ok(());
    }
    let outcome = dsl.destroy_snapshots(&[snapshot], false);
    assert!(outcome.is_err(), "{snapshot} is held");
    dsl.release(&[snapshot], TAG)
}

/// Random properties of a file system, as the numbers used on disk.
fn any_props(dice: &mut Dice) -> Vec<(&'static str, u64)> {
    let mut one_of = |values: &[u64]| *dice.pick(values).expect("there are some");
    vec![
        ("compression", one_of(&[2, 3, 10, 14, 15, 16])),
        ("recordsize", one_of(&[4096, 16 << 10, 128 << 10, 1 << 20])),
        ("checksum", one_of(&[6, 7, 8, 11, 12, 13, 14])),
        ("copies", one_of(&[1, 1, 1, 2, 3])),
        ("dnodesize", one_of(&[0, 1024, 2048])),
        ("xattr", one_of(&[1, 2])),
        ("sync", one_of(&[0, 0, 0, 1])),
        ("refreservation", one_of(&[0, 0, 0, 1 << 20])),
        // off, on, verify, edonr,verify
        ("dedup", one_of(&[2, 2, 1, 1 | 1 << 8, 13 | 1 << 8])),
    ]
}
