//! Administration of file systems: they are made, snapshotted, cloned, destroyed, and get other properties.

use base::{ErrorKind, Result};
use phys::PropValue;
use phys::owner::{Counted, OwnerCount};
use zpl::OwnerLimit;

use super::bench::Bench;
use super::step::{Kind, Step};
use crate::Dice;
use crate::filesystems::{Filesystems, Session};

/// The longest distance of a quota above what is used, in bytes.
const QUOTA_BYTES_MAX: u64 = 8 << 20;
/// The largest limits of an owner: about what it has.
const OWNER_BYTES_MAX: u64 = 1 << 20;
const OWNER_OBJECTS_MAX: u64 = 40;
/// Owners that files of [`crate::pair`] have, and one that has none.
const OWNERS: [u64; 5] = [0, 100, 1000, 2000, 3];

/// Changes a file system; returns whether there was something to change.
type Change = fn(&mut Filesystems, &mut Session, &str, &mut Dice) -> Result<bool>;

pub(super) const KINDS: &[Kind] = &[
    Kind::new("create", 25, Bench::create),
    Kind::new("snapshot", 40, |bench, step| {
        bench.change(step, |world, session, name, _| {
            let count = world.heads[name].snapshots.len();
            world.snapshot(session, name)?;
            Ok(world.heads[name].snapshots.len() > count)
        })
    }),
    Kind::new("clone", 20, |bench, step| {
        bench.change(step, |world, session, name, dice| {
            let count = world.heads.len();
            world.clone_snapshot(session, name, dice)?;
            Ok(world.heads.len() > count)
        })
    }),
    Kind::new("destroy-snapshots", 25, |bench, step| {
        bench.change(step, |world, session, name, dice| {
            let count = world.heads[name].snapshots.len();
            world.destroy_snapshots(session, name, dice)?;
            Ok(world.heads[name].snapshots.len() < count)
        })
    }),
    // Holds a snapshot: it has to be released before it is destroyed.
    Kind::new("hold", 8, |bench, step| {
        bench.change(step, |world, session, name, dice| {
            world.hold(session, name, dice)?;
            Ok(!world.heads[name].snapshots.is_empty())
        })
    }),
    // Bookmarks a snapshot, or destroys the oldest bookmark when there are many.
    Kind::new("bookmark", 10, |bench, step| {
        bench.change(step, |world, session, name, dice| {
            world.bookmark(session, name, dice)?;
            Ok(!world.heads[name].snapshots.is_empty())
        })
    }),
    Kind::new("rollback", 10, |bench, step| {
        bench.change_unmounted(step, |world, session, name, _| {
            world.rollback(session, name)?;
            Ok(!world.heads[name].snapshots.is_empty())
        })
    }),
    // Promotes a clone: the first one at or after the pick.
    Kind::new("promote", 12, |bench, step| {
        let clone = bench.clone_head(step.pick);
        clone.is_some_and(|name| {
            bench.change_head(&name, step, |world, session, name, _| {
                world.promote(session, name).map(|()| true)
            })
        })
    }),
    Kind::new("rename", 10, |bench, step| {
        bench.change_unmounted(step, |world, session, name, _| {
            world.rename(session, name).map(|()| true)
        })
    }),
    // Destroys a file system, if it has no snapshots.
    Kind::new("destroy", 10, |bench, step| {
        bench.change_unmounted(step, |world, session, name, _| {
            world.destroy(session, name)?;
            Ok(!world.heads.contains_key(name))
        })
    }),
    Kind::new("props", 20, |bench, step| {
        bench.change(step, |world, session, name, dice| {
            world.set_props(session, name, dice).map(|()| true)
        })
    }),
    // The key of an encryption root is changed, and perhaps unloaded.
    Kind::new("key", 14, |bench, step| {
        bench.change_unmounted(step, |world, session, name, dice| {
            world.change_key(session, name, dice)
        })
    }),
    // A limit on, or a claim to space; or none any more.
    Kind::new("quota", 16, |bench, step| {
        bench.change(step, |_, session, name, dice| {
            set_quota(session, name, dice)
        })
    }),
    // A limit of what a user, group or project may have; or no such limit any more.
    Kind::new("limit", 16, Bench::limit),
];

fn set_quota(session: &Session, name: &str, dice: &mut Dice) -> Result<bool> {
    let dsl = session.spa.parts().dsl();
    let names = ["quota", "refquota", "reservation", "refreservation"];
    let prop = *dice.pick(&names).expect("there are some");
    let bytes = if dice.once_in(2) {
        0
    } else {
        let used = match prop {
            "quota" | "refquota" => dsl.dataset(name)?.fields().referenced_bytes,
            _ => 0,
        };
        used + 1 + dice.below(QUOTA_BYTES_MAX)
    };
    match dsl.set_prop(name, prop, PropValue::Number(bytes)) {
        Ok(()) => Ok(true),
        // Less than is used with snapshots and what is not on disk yet; more than there is.
        Err(e) if [ErrorKind::NoSpace, ErrorKind::Quota].contains(&e.kind()) => Ok(false),
        Err(e) => Err(e),
    }
}

fn any_limit(dice: &mut Dice) -> OwnerLimit {
    let of = *dice.pick(&OwnerCount::ALL).expect("there are some");
    let most = match of.counted {
        Counted::Bytes => OWNER_BYTES_MAX,
        Counted::Objects => OWNER_OBJECTS_MAX,
    };
    OwnerLimit {
        of,
        id: *dice.pick(&OWNERS).expect("there are some"),
        limit: 1 + dice.below(most),
    }
}

fn no_limit((prefix, id): (&'static str, u64)) -> OwnerLimit {
    let of = OwnerCount::ALL
        .into_iter()
        .find(|of| of.quota_entry() == prefix);
    OwnerLimit {
        of: of.expect("it was set"),
        id,
        limit: 0,
    }
}

impl Bench {
    fn create(&mut self, step: &Step) -> bool {
        let count = self.world.heads.len();
        let mut dice = Dice::new(step.seed);
        self.administer("create", |world, session| world.create(session, &mut dice))
            && self.world.heads.len() > count
    }

    fn limit(&mut self, step: &Step) -> bool {
        let Some(name) = self.head(step.pick) else {
            return false;
        };
        let mut dice = Dice::new(step.seed);
        let limits = self.world.heads[&name].fs.limits().clone();
        let new = match dice.once_in(2) {
            true => vec![any_limit(&mut dice)],
            false => limits.into_keys().map(no_limit).collect(),
        };
        for limit in &new {
            let begun = self.disks.commands();
            let (world, session) = self.both();
            match session.mount(&name).set_owner_limit(limit) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::NoSpace => return false,
                Err(e) => panic!("{name}: {limit:?}: {e}"),
            }
            let head = world.heads.get_mut(&name).expect("it is there");
            head.fs.set_limit(limit);
            self.note(begun);
        }
        !new.is_empty()
    }

    /// Changes the file system that the step picks.
    fn change(&mut self, step: &Step, change: Change) -> bool {
        let head = self.head(step.pick);
        head.is_some_and(|name| self.change_head(&name, step, change))
    }

    /// The same for a change that unmounts it.
    fn change_unmounted(&mut self, step: &Step, change: Change) -> bool {
        let Some(name) = self.head(step.pick) else {
            return false;
        };
        self.log(&name);
        self.change_head(&name, step, change)
    }

    fn change_head(&mut self, name: &str, step: &Step, change: Change) -> bool {
        let mut dice = Dice::new(step.seed);
        let mut has_changed = false;
        self.administer(step.act.word(), |world, session| {
            has_changed = change(world, session, name, &mut dice)?;
            Ok(())
        }) && has_changed
    }
}
