//! The user who makes the files: `-u` and `-g`.

use rustix::process::{Gid, Uid, getegid, geteuid};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

use crate::failure::{Fail, Outcome};
use crate::owner;

/// A user and a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct User {
    uid: u32,
    gid: u32,
}

/// The user and the group of this process.
pub(super) fn own() -> (u64, u64) {
    (geteuid().as_raw().into(), getegid().as_raw().into())
}

/// What was asked for, not looked up yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    pub(super) user: Option<String>,
    pub(super) group: Option<String>,
}

impl Named {
    /// Adds the value of `-u` or `-g`.
    pub(super) fn add(&mut self, letter: char, value: &str) -> Outcome {
        let (user, group) = match (letter, value.split_once(':')) {
            ('u', Some((user, group))) => (Some(user), Some(group)),
            ('u', None) => (Some(value), None),
            _ => (None, Some(value)),
        };
        for (given, field) in [(user, &mut self.user), (group, &mut self.group)] {
            if let Some(given) = given
                && field.replace(given.to_owned()).is_some()
            {
                return Err(Fail::Usage("one user and one group".to_owned()));
            }
        }
        Ok(())
    }
}

impl User {
    /// Looks up names. A user without a group is in its login group, or else in `nogroup`; a group without a user
    /// is for root, as in the original.
    pub(super) fn find(named: &Named) -> Outcome<User> {
        let (mut uid, mut gid) = (0, getegid().as_raw().into());
        if let Some(user) = &named.user {
            let found = owner::parse(user).ok().and_then(|(uid, _)| uid);
            let missing = || Fail::Failed(format!("Can't find user {user}"));
            uid = found.ok_or_else(missing)?;
            let nogroup = || owner::parse(":nogroup").ok().and_then(|(_, gid)| gid);
            gid = owner::group_of(user).or_else(nogroup).unwrap_or(gid);
        }
        if let Some(group) = &named.group {
            let found = owner::parse(&format!(":{group}"));
            let missing = || Fail::Failed(format!("Can't find group {group}"));
            gid = found.ok().and_then(|(_, gid)| gid).ok_or_else(missing)?;
        }
        let number = |id: u64| u32::try_from(id).expect("such numbers have 32 bits");
        Ok(User {
            uid: number(uid),
            gid: number(gid),
        })
    }

    pub(super) fn ids(&self) -> (u64, u64) {
        (self.uid.into(), self.gid.into())
    }

    /// Makes this thread, and those that it starts, work as this user until the value is dropped.
    pub(super) fn become_it(&self) -> Outcome<Became> {
        let before = (geteuid(), getegid());
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        let became = Became { before };
        set_thread_res_gid(gid, gid, before.1)
            .map_err(|e| Fail::Failed(format!("Can't set gid to {}: {e}", self.gid)))?;
        set_thread_res_uid(uid, uid, before.0)
            .map_err(|e| Fail::Failed(format!("Can't set uid to {}: {e}", self.uid)))?;
        Ok(became)
    }
}

/// The thread works as another user.
pub(super) struct Became {
    before: (Uid, Gid),
}

impl Drop for Became {
    fn drop(&mut self) {
        let (uid, gid) = self.before;
        // It was this one before, and has kept the right to be it again.
        let _ = set_thread_res_uid(uid, uid, uid);
        let _ = set_thread_res_gid(gid, gid, gid);
    }
}
