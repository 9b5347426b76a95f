//! Writes blocks on the devices of an image.
//!
//! # What it is
//! Where every top-level vdev is a device or a mirror, a block is written to the first device of its vdev, as it is: a
//! mirror has the older content beside it, as after a lost write. Elsewhere the vdevs of the engine lay out columns
//! and parity.

use std::sync::Arc;

use base::Txg;
use geom::Provider;
use nvpair::NvList;
use phys::DvaPhys;
use phys::label::LABEL_START_SIZE;
use phys::uberblock::UberblockPhys;
use ram::Memory;
use vdev::{Vdev, VdevTree};
use zio::{Io, Priority, VdevOps};

/// What a block without columns is rounded up to, in bytes.
const BLOCK_ALIGN: u64 = 4096;

pub(super) struct Writer<'d> {
    disks: &'d [Arc<Memory>],
    /// `None` if blocks are written as they are.
    tree: Option<Arc<VdevTree>>,
}

impl<'d> Writer<'d> {
    /// For the pool of this config, as it is by this uberblock.
    pub(super) fn new(disks: &'d [Arc<Memory>], config: &NvList, at: &UberblockPhys) -> Self {
        let root = config.get_list("vdev_tree").expect("a config has vdevs");
        let root = Vdev::from_config(root).expect("the config of a good pool");
        let is_plain = |top: &Arc<Vdev>| {
            top.kind().is_device() || top.kind().is_mirror_like() && top.kind().is_concrete()
        };
        if root.children().iter().all(is_plain) {
            return Writer { disks, tree: None };
        }
        let tree = VdevTree::new(root);
        tree.open_devices(&|vdev| {
            let path = vdev.config().path.clone()?;
            let disk = disks.iter().find(|disk| disk.name() == path)?;
            Some(Arc::clone(disk) as Arc<dyn Provider>)
        });
        tree.note_uberblock(at);
        let tree = Some(tree);
        Writer { disks, tree }
    }

    /// What a block takes on the vdev of this DVA.
    pub(super) fn asize(&self, dva: &DvaPhys, content: &[u8], birth: Txg) -> u64 {
        let bytes = content.len() as u64;
        match &self.tree {
            Some(tree) => tree.psize_to_asize(dva.vdev(), bytes, birth),
            None => bytes.next_multiple_of(BLOCK_ALIGN),
        }
    }

    pub(super) fn write(&self, dva: &DvaPhys, birth: Txg, content: &[u8]) {
        match &self.tree {
            Some(tree) => {
                let io = Io::write(birth, Priority::SyncWrite);
                let written = tree.write(&io, dva.vdev(), dva.offset(), &[content]);
                written.expect("RAM disks");
            }
            None => {
                let disk = &self.disks[dva.vdev().0 as usize];
                write(disk, LABEL_START_SIZE + dva.offset(), content);
            }
        }
    }
}

pub(super) fn write(disk: &Memory, offset: u64, bytes: &[u8]) {
    disk.write(offset, bytes).expect("a RAM disk");
}
