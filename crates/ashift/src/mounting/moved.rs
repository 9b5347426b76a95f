//! What is unmounted before a change of a data set, and mounted again after it.
//!
//! # Source
//! OpenZFS lib/libzfs/libzfs_changelist.c.

use std::sync::Arc;

use base::Result;
use service::{MountSettings, Mountpoint, OpenPool};

use super::{How, find, is_below, mount, unmount};
use crate::failure::Outcome;

/// What is changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// `mountpoint`: those that inherit it move along.
    Mountpoint,
    /// `canmount=off`.
    Canmount,
    /// The name: all that is mounted below moves along.
    Name,
    /// Nothing: all that is mounted below is unmounted.
    Nothing,
}

/// The file systems that a change moves.
#[doc(alias = "prop_changelist")]
pub(crate) struct Moved {
    pool: Arc<OpenPool>,
    change: Change,
    /// It was mounted by mount(8), or not at all, and may now be mounted by itself.
    was_legacy: bool,
    /// In the order in which they are unmounted.
    nodes: Vec<Node>,
}

struct Node {
    name: String,
    /// What `mountpoint` was.
    mountpoint: String,
    /// The directory that may be removed.
    made: Option<String>,
    was_mounted: bool,
    /// Whether it is to be looked at afterwards.
    is_left: bool,
}

impl Moved {
    /// What changing a file system moves: nothing where nothing is mounted.
    #[doc(alias = "changelist_gather")]
    pub(crate) fn of(pool: &Arc<OpenPool>, name: &str, change: Change) -> Result<Moved> {
        let mut moved = Moved {
            pool: Arc::clone(pool),
            change,
            was_legacy: false,
            nodes: Vec::new(),
        };
        if !pool.pools().can_mount() {
            return Ok(moved);
        }
        let Some(settings) = pool.mount_settings(name)? else {
            return Ok(moved);
        };
        match change {
            Change::Mountpoint | Change::Canmount => moved.gather(name)?,
            Change::Name | Change::Nothing => {
                for it in pool.pools().mounted() {
                    if is_below(&it.name, name)
                        && let Some(settings) = pool.mount_settings(&it.name)?
                    {
                        moved.add(&it.name, &settings);
                    }
                }
            }
        }
        moved.add(name, &settings);
        moved.was_legacy = !matches!(settings.mountpoint, Mountpoint::At(_))
            && (settings.is_automatic || settings.is_never);
        // By directory, so that what is mounted in another one goes first.
        let key = |node: &Node| match moved.was_legacy {
            true => node.name.clone(),
            false => node.mountpoint.clone(),
        };
        moved.nodes.sort_by_key(|node| std::cmp::Reverse(key(node)));
        Ok(moved)
    }

    /// The file systems below one that inherit its mountpoint.
    #[doc(alias = "change_one")]
    fn gather(&mut self, name: &str) -> Result<()> {
        for child in self.pool.datasets().children(name)? {
            let settings = self.pool.mount_settings(&child)?;
            let Some(settings) = settings.filter(|settings| !settings.is_own) else {
                continue;
            };
            self.add(&child, &settings);
            self.gather(&child)?;
        }
        Ok(())
    }

    fn add(&mut self, name: &str, settings: &MountSettings) {
        let made = settings.directory().filter(|_| !settings.is_own);
        self.nodes.push(Node {
            name: name.to_owned(),
            mountpoint: settings.text().to_owned(),
            made: made.map(str::to_owned),
            was_mounted: find(&self.pool, name).is_some(),
            is_left: true,
        });
    }

    /// Unmounts them. If one is in use, those that were unmounted are mounted again.
    #[doc(alias = "changelist_prefix")]
    pub(crate) fn take_down(&mut self) -> Outcome {
        let mut outcome = Ok(());
        for node in &mut self.nodes {
            if outcome.is_ok() {
                outcome = unmount(&self.pool, &node.name);
            }
            node.is_left = outcome.is_ok();
        }
        // What is in use is said before what cannot be mounted again.
        let outcome = outcome.map_err(|fail| fail.say(""));
        if outcome.is_err() {
            self.put_back();
        }
        outcome
    }

    /// They have another name now.
    #[doc(alias = "changelist_rename")]
    pub(crate) fn rename(&mut self, old: &str, new: &str) {
        for node in &mut self.nodes {
            remove(node.made.take());
            if let Some(rest) = node.name.strip_prefix(old) {
                node.name = format!("{new}{rest}");
            }
        }
    }

    /// Mounts them where they belong by now; what cannot be mounted is said.
    #[doc(alias = "changelist_postfix")]
    pub(crate) fn put_back(self: &mut Moved) {
        if let Some(uppermost) = self.nodes.last_mut() {
            remove(uppermost.made.take());
        }
        for node in self.nodes.iter_mut().rev().filter(|node| node.is_left) {
            node.is_left = false;
            let settings = self.pool.mount_settings(&node.name).ok().flatten();
            let is_automatic = settings.is_some_and(|settings| settings.is_automatic);
            let may_begin = self.change == Change::Mountpoint || self.was_legacy;
            if find(&self.pool, &node.name).is_none()
                && (node.was_mounted || may_begin && is_automatic)
                && let Err(fail) = mount(&self.pool, &node.name, &How::default())
            {
                let _ = fail.say("");
            }
        }
    }
}

/// Removes a directory that was made for a mount, if it is empty.
fn remove(directory: Option<String>) {
    if let Some(directory) = directory {
        // It may be gone, or have something in it.
        let _ = std::fs::remove_dir(directory);
    }
}
