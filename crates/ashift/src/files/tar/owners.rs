//! Names and numbers of owners, each looked up once.

use std::collections::BTreeMap;

use tarball::Member;

use crate::owner;

#[derive(Default)]
pub(super) struct Owners {
    users: BTreeMap<u64, String>,
    groups: BTreeMap<u64, String>,
    uids: BTreeMap<Vec<u8>, Option<u64>>,
    gids: BTreeMap<Vec<u8>, Option<u64>>,
}

impl Owners {
    /// Tells a member the names of its owners; empty ones where there are none.
    pub(super) fn name(&mut self, member: &mut Member) {
        let (uid, gid) = (member.uid, member.gid);
        let find = |mut names: BTreeMap<u64, String>, id| names.remove(&id).unwrap_or_default();
        let user = self.users.entry(uid);
        let user = user.or_insert_with(|| find(owner::names_of_users(&[uid].into()), uid));
        let group = self.groups.entry(gid);
        let group = group.or_insert_with(|| find(owner::names_of_groups(&[gid].into()), gid));
        member.user = user.clone().into_bytes();
        member.group = group.clone().into_bytes();
    }

    /// The numbers that the names of a member have here; its own where they have none.
    pub(super) fn numbers(&mut self, member: &Member) -> (u64, u64) {
        let uid = find(&mut self.uids, &member.user, owner::id_of_user);
        let gid = find(&mut self.gids, &member.group, owner::id_of_group);
        (uid.unwrap_or(member.uid), gid.unwrap_or(member.gid))
    }
}

fn find(
    known: &mut BTreeMap<Vec<u8>, Option<u64>>,
    name: &[u8],
    look: fn(&str) -> Option<u64>,
) -> Option<u64> {
    if name.is_empty() {
        return None;
    }
    if let Some(id) = known.get(name) {
        return *id;
    }
    let id = std::str::from_utf8(name).ok().and_then(look);
    known.insert(name.to_vec(), id);
    id
}
