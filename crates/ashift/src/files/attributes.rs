//! What a new file gets besides its contents.

use zpl::Time;

use super::Run;
use super::loss::Losses;
use super::tree::{Handle, Tree};

/// The extended attributes that are ACLs, and their names in messages.
pub(super) const ACLS: [(&[u8], &str); 2] = [
    (b"system.posix_acl_access", "access ACL"),
    (b"system.posix_acl_default", "default ACL"),
];

/// The attributes that a file is to have; `None` for those that are left as they are.
pub(super) struct Attributes {
    pub(super) owner: Option<(u64, u64)>,
    pub(super) xattrs: Option<Vec<(Vec<u8>, Vec<u8>)>>,
    /// Permissions; not for links.
    pub(super) mode: Option<u32>,
    /// When it was accessed and modified
    pub(super) times: Option<(Time, Time)>,
    /// Whether ACLs that are not among `xattrs` are removed: those inherited from its directory.
    pub(super) sole_acls: bool,
}

/// Sets attributes of a file; reports those that its tree cannot keep.
pub(super) fn set(
    (tree, file): (&dyn Tree, &Handle),
    wanted: &Attributes,
    shown: &str,
    losses: &mut Losses,
    run: &mut Run,
) {
    let mut mode = wanted.mode;
    if let Some((uid, gid)) = wanted.owner
        && let Err(error) = tree.set_owner(file, uid, gid)
    {
        // Without its owner kept, a set-ID bit would make the program run as the wrong user.
        mode = mode.map(|mode| mode & 0o777);
        if error.kind() == base::ErrorKind::Permission {
            losses.mention(run, shown, "owner", &error);
        } else {
            losses.note(run, shown, "owner", &error);
        }
    }
    if let Some(xattrs) = &wanted.xattrs {
        set_xattrs((tree, file), xattrs, wanted.sole_acls, shown, losses, run);
    }
    if let Some(mode) = mode
        && let Err(error) = tree.set_mode(file, mode)
    {
        losses.note(run, shown, "permissions", &error);
    }
    if let Some((atime, mtime)) = wanted.times
        && let Err(error) = tree.set_times(file, atime, mtime)
    {
        losses.note(run, shown, "times", &error);
    }
}

fn set_xattrs(
    (tree, file): (&dyn Tree, &Handle),
    xattrs: &[(Vec<u8>, Vec<u8>)],
    sole_acls: bool,
    shown: &str,
    losses: &mut Losses,
    run: &mut Run,
) {
    // ACLs inherited from the directory the file is in could allow more than its own do.
    for (acl, called) in ACLS.iter().filter(|_| sole_acls) {
        if xattrs.iter().all(|(name, _)| name != acl)
            && let Err(error) = tree.remove_xattr(file, acl)
        {
            losses.note(run, shown, called, &error);
        }
    }
    for (name, value) in xattrs {
        let Err(error) = tree.set_xattr(file, name, value) else {
            continue;
        };
        let called = match ACLS.iter().find(|(acl, _)| *acl == name) {
            Some((_, called)) => (*called).to_owned(),
            None => format!("extended attribute {}", String::from_utf8_lossy(name)),
        };
        losses.note(run, shown, &called, &error);
    }
}
