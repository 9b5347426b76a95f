//! Attributes of copies.

use base::Result;
use zpl::{FileType, Time};

use super::super::attributes::{self, Attributes};
use super::super::tree::{Handle, Meta};
use super::changes::Changes;
use super::transfer::{Item, Transfer};

/// The beginning of the names of ACLs among extended attributes.
const ACL: &[u8] = b"system.posix_acl_";
/// What all other attributes of the system begin with: the host makes them itself.
const SYSTEM: &[u8] = b"system.";

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
        let owner = Some((uid, gid)).filter(|_| (uid, gid) != (now.uid, now.gid));
        // A change of the owner may take bits of the permissions away.
        let is_set = meta.file_type == FileType::Symlink || (mode == now.mode && owner.is_none());
        let wanted = Attributes {
            owner,
            xattrs: self.new_xattrs(item, new)?,
            mode: Some(mode).filter(|_| !is_set),
            times: self.new_times(item, &now),
            sole_acls: false,
        };
        self.set(item, new, &wanted);
        Ok(())
    }

    /// Sets the time of modification.
    pub(super) fn set_time(&mut self, item: &Item, new: &Handle) -> Result<()> {
        let wanted = Attributes {
            owner: None,
            xattrs: None,
            mode: None,
            times: self.new_times(item, &self.target.meta(new)?),
            sole_acls: false,
        };
        self.set(item, new, &wanted);
        Ok(())
    }

    /// The times to set, if they differ and are transferred.
    fn new_times(&self, item: &Item, now: &Meta) -> Option<(Time, Time)> {
        let differs = self.options.times && now.mtime != item.meta.mtime;
        differs.then_some((now.atime, item.meta.mtime))
    }

    fn set(&mut self, item: &Item, new: &Handle, wanted: &Attributes) {
        let losses = &mut self.losses;
        attributes::set((self.target, new), wanted, &item.shown, losses, self.run);
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

    /// Removes the extended attributes that the source has not, and returns those that are to be set.
    fn new_xattrs(&mut self, item: &Item, new: &Handle) -> Result<Option<Pairs>> {
        if !self.options.acls && !self.options.xattrs {
            return Ok(None);
        }
        let (acls, others) = self.chosen(self.source.xattrs(&item.file)?);
        let (old_acls, old_others) = self.chosen(self.target.xattrs(new)?);
        let (mut wanted, old) = ([acls, others].concat(), [old_acls, old_others].concat());
        for (name, _) in &old {
            if wanted.iter().all(|(there, _)| there != name)
                && let Err(error) = self.target.remove_xattr(new, name)
            {
                let called = format!("removal of attribute {}", String::from_utf8_lossy(name));
                (self.losses).note(self.run, &item.shown, &called, &error);
            }
        }
        wanted.retain(|pair| !old.contains(pair));
        Ok(Some(wanted))
    }
}
