//! Attributes of copies.

use base::{ErrorKind, Result};
use zpl::{FileType, Time};

use super::super::change::owner;
use super::super::mode::umask;
use super::super::tree::{Handle, Meta};
use super::changes::Changes;
use super::transfer::{Item, Transfer};

/// The beginning of the names of ACLs among extended attributes.
const ACL: &[u8] = b"system.posix_acl_";
/// What all other attributes of the system begin with: the host makes them itself.
const SYSTEM: &[u8] = b"system.";

/// The attributes of a directory that the source has none for.
pub(super) fn new_directory() -> Meta {
    let (uid, gid) = owner();
    let now = Time::now();
    Meta {
        file_type: FileType::Directory,
        mode: 0o777 & !umask(),
        uid,
        gid,
        size: 0,
        rdev: 0,
        links: 1,
        identity: (0, 0),
        used_bytes: 0,
        blksz: 0,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: None,
    }
}

/// Names and values.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

impl Transfer<'_> {
    /// The permissions of a copy that is new, or replaces `old`.
    pub(super) fn mode(&self, meta: &Meta, old: Option<&Meta>) -> u32 {
        match old {
            _ if self.options.perms => meta.mode,
            Some(old) => old.mode,
            None => meta.mode & self.allowed,
        }
    }

    /// The same file, as it is made: nobody but its owner has it before its contents and its owner are there.
    pub(super) fn first(&self, meta: &Meta) -> Meta {
        let mode = match meta.file_type {
            FileType::Directory => 0o700,
            FileType::Regular => 0o600,
            _ => meta.mode & 0o700,
        };
        let (uid, gid) = self.owner;
        Meta {
            mode,
            uid: if self.options.owner { meta.uid } else { uid },
            gid: if self.options.group { meta.gid } else { gid },
            ..meta.clone()
        }
    }

    /// Gives a copy the attributes of its source, as far as they are transferred; what it cannot keep is reported.
    pub(super) fn attributes(&mut self, item: &Item, new: &Handle, mode: u32) -> Result<()> {
        let now = self.target.meta(new)?;
        let meta = &item.meta;
        let mut mode = mode;
        let uid = if self.options.owner {
            meta.uid
        } else {
            now.uid
        };
        let gid = if self.options.group {
            meta.gid
        } else {
            now.gid
        };
        if (uid, gid) != (now.uid, now.gid)
            && let Err(error) = self.target.set_owner(new, uid, gid)
        {
            // Without its owner a set-ID bit would make the program run as the wrong user.
            mode &= 0o777;
            match error.kind() {
                ErrorKind::Permission => {
                    self.losses.mention(self.run, &item.shown, "owner", &error);
                }
                _ => self.losses.note(self.run, &item.shown, "owner", &error),
            }
        }
        self.set_xattrs(item, new)?;
        // A change of the owner may have taken bits away.
        let is_set = (mode == now.mode) && (uid, gid) == (now.uid, now.gid);
        if meta.file_type != FileType::Symlink
            && !is_set
            && let Err(error) = self.target.set_mode(new, mode)
        {
            (self.losses).note(self.run, &item.shown, "permissions", &error);
        }
        self.set_time(item, new);
        Ok(())
    }

    /// Sets the time of modification.
    pub(super) fn set_time(&mut self, item: &Item, new: &Handle) {
        if !self.options.times {
            return;
        }
        let set = self
            .target
            .meta(new)
            .and_then(|now| match now.mtime == item.meta.mtime {
                true => Ok(()),
                false => self.target.set_times(new, now.atime, item.meta.mtime),
            });
        if let Err(error) = set {
            self.losses.note(self.run, &item.shown, "times", &error);
        }
    }

    /// Whether ACLs, and whether extended attributes differ.
    pub(super) fn xattr_changes(&self, item: &Item, old: &Handle) -> Result<Changes> {
        let (acls, xattrs) = self.chosen(self.source.xattrs(&item.file)?);
        let (old_acls, old_xattrs) = self.chosen(self.target.xattrs(old)?);
        Ok(Changes {
            acl: acls != old_acls,
            xattrs: xattrs != old_xattrs,
            ..Changes::default()
        })
    }

    /// Those that are transferred, sorted: ACLs, and extended attributes.
    fn chosen(&self, mut all: Pairs) -> (Pairs, Pairs) {
        all.sort();
        let (acls, others): (Pairs, Pairs) =
            (all.into_iter()).partition(|(name, _)| name.starts_with(ACL));
        let mut others = others;
        others.retain(|(name, _)| !name.starts_with(SYSTEM));
        let keep = |wanted: bool, pairs: Pairs| if wanted { pairs } else { Pairs::new() };
        (
            keep(self.options.acls, acls),
            keep(self.options.xattrs, others),
        )
    }

    fn set_xattrs(&mut self, item: &Item, new: &Handle) -> Result<()> {
        if !self.options.acls && !self.options.xattrs {
            return Ok(());
        }
        let (acls, others) = self.chosen(self.source.xattrs(&item.file)?);
        let (old_acls, old_others) = self.chosen(self.target.xattrs(new)?);
        for (wanted, old) in [(acls, old_acls), (others, old_others)] {
            for (name, _) in old.iter().filter(|(name, _)| !has(&wanted, name)) {
                let removed = self.target.remove_xattr(new, name);
                self.kept(item, name, removed);
            }
            for pair in wanted.iter().filter(|pair| !old.contains(pair)) {
                let set = self.target.set_xattr(new, &pair.0, &pair.1);
                self.kept(item, &pair.0, set);
            }
        }
        Ok(())
    }

    /// Reports that an attribute was not kept.
    fn kept(&mut self, item: &Item, name: &[u8], outcome: Result<()>) {
        let Err(error) = outcome else { return };
        let called = match name.strip_prefix(ACL) {
            Some(which) => format!("{} ACL", String::from_utf8_lossy(which)),
            None => format!("extended attribute {}", String::from_utf8_lossy(name)),
        };
        self.losses.note(self.run, &item.shown, &called, &error);
    }
}

fn has(pairs: &Pairs, name: &[u8]) -> bool {
    pairs.iter().any(|(there, _)| there == name)
}
