//! Files that are made without a name (`O_TMPFILE`), and may get one later.
//!
//! # What it is
//! Such a file is in the delete queue from the beginning: if it gets no name it goes with its last reference, or after
//! a crash. Nothing of it is in the intent log, so the txg that has it is synced when it gets a name.
//!
//! # Source
//! OpenZFS `module/os/linux/zfs/zfs_vnops_os.c` (`zfs_tmpfile`, `zfs_link`).

use base::{ObjectId, Result};
use dmu::Tx;
use phys::sa::ZplAttr;
use zap::Key;

use crate::Filesystem;
use crate::attrs::{Attr, Change, FileType};
use crate::dir::{CREATE_BYTES, NAMES_DIRTY_BYTES};
use crate::fs::{Held, Node};
use crate::make::{Create, NewNode};

impl Filesystem {
    /// Makes a regular file without a name, as in directory `parent`, with one reference to it. As long as there are
    /// references, [`link`](Filesystem::link) can give it a name.
    ///
    /// # Errors
    /// As [`create_file`](Filesystem::create_file).
    #[doc(alias = "zfs_tmpfile")]
    pub fn create_tmpfile(&self, parent: ObjectId, create: &Create) -> Result<Attr> {
        let tx = self.begin_adding(NAMES_DIRTY_BYTES, CREATE_BYTES)?;
        let _namespace = self.namespace.read();
        let directory = self.directory(parent)?;
        let _names = directory.locks.names.lock();
        let parent_attr = self.live_directory(&directory)?;
        let new = NewNode::new(FileType::Regular, *create);
        self.check_new_owner(&tx, &new.owner(&parent_attr))?;
        let node = self.make_node(&tx, &parent_attr, &new)?;
        let held = Held::one(&node);
        self.holds.lock().insert(node.id(), held);
        {
            let mut attrs = node.locks.attrs.lock();
            attrs.may_be_linked = true;
            let links = [Change::Word(ZplAttr::Links, 0)];
            self.write_attrs(&tx, &node.dnode, &mut attrs, &links)?;
        }
        self.unlinked_set()?
            .add_u64(&tx, Key::Int(node.id().0), node.id().0)?;
        self.inherit_posix_acl(&tx, &directory, &node)?;
        self.attr_of(&node)
    }

    /// Takes a file that is about to get its first name out of the delete queue.
    pub(crate) fn leave_unlinked_set(&self, tx: &Tx, node: &Node) -> Result<()> {
        let id = node.id().0;
        self.unlinked_set()?
            .remove_if_present(tx, Key::Int(id))
            .map(drop)
    }
}
