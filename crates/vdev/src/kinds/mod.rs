//! What the kinds of vdevs do differently: I/O, space, and how much loss they tolerate.
//!
//! # What it is
//! [`KindOps`] is all that a kind decides. A [`Node`] is a vdev during an I/O, with what applies to the
//! whole tree. A kind whose children are not devices (a RAID-Z with a device that is being replaced)
//! does its I/O through their kinds in turn. The rest, DTLs, states, labels, flushes, is the same for
//! all and asks only [`KindOps::tolerated`].
//!
//! # Invariants
//! 1. `psize_to_asize` grows with its argument, and is a multiple of the sector.
//! 2. What `write` wrote successfully, `read` returns as long as at most `tolerated` children are lost.
//!
//! # Source
//! OpenZFS `include/sys/vdev_impl.h` (`vdev_ops_t`).

mod absent;
mod draid;
mod draid_spare;
mod health;
mod indirect;
mod mirror;
mod raidz;
mod rebuild;
mod striped;

use std::ops::Range;
use std::sync::Arc;

use base::{Result, Txg, align_up};
use phys::uberblock::UberblockPhys;
use zio::{Io, Placement, RunBlock, ScrubReport};

use crate::{Rebuilt, Vdev, VdevConfig, VdevKind, VdevTree};
use absent::Absent;
use draid::Draid;
use indirect::Indirect;
use mirror::Mirror;
use raidz::Raidz;
use striped::Striped;

/// What a kind of vdev does. Offsets and lengths are those of the vdev, without labels, in whole sectors.
#[doc(alias = "vdev_ops_t")]
pub(crate) trait KindOps: Send + Sync {
    /// As [`zio::VdevOps::read`].
    #[doc(alias = "vdev_op_io_start")]
    fn read(
        &self,
        node: &Node<'_>,
        io: &Io,
        offset: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()>;

    /// As [`zio::VdevOps::write`].
    fn write(&self, node: &Node<'_>, io: &Io, offset: u64, parts: &[&[u8]]) -> Result<()>;

    /// As [`zio::VdevOps::scrub`].
    fn scrub(
        &self,
        node: &Node<'_>,
        buf: &mut [u8],
        blocks: &[RunBlock],
        verify: &dyn Fn(usize, &[u8]) -> bool,
    ) -> Vec<Result<ScrubReport>>;

    /// Makes ranges that are allocated right on the devices below that are rebuilt.
    #[doc(alias = "vdev_op_rebuild_asize")]
    fn rebuild(&self, node: &Node<'_>, ranges: &[Range<u64>]) -> Rebuilt {
        let _ = node;
        let errors = ranges.len() as u64;
        Rebuilt {
            errors,
            ..Rebuilt::default()
        }
    }

    /// Whether the sectors of a block follow each other as its bytes do.
    fn placement(&self) -> Placement;

    /// How many of `children` children may be lost.
    #[doc(alias = "vdev_op_nparity")]
    fn tolerated(&self, children: usize) -> usize;

    /// What can be allocated on children of these sizes, in bytes.
    #[doc(alias = "vdev_op_open")]
    fn asize(&self, children: &[u64]) -> u64;

    /// The least that each of `children` children must offer for `asize`, in bytes.
    #[doc(alias = "vdev_op_min_asize")]
    fn min_child_asize(&self, children: usize, asize: u64) -> u64;

    /// Bytes that a block, born in this txg, takes on `children` children.
    #[doc(alias = "vdev_op_psize_to_asize")]
    fn psize_to_asize(&self, children: usize, ashift: u32, psize: u64, birth: Txg) -> u64 {
        let _ = (children, birth);
        align_up(psize, 1 << ashift)
    }

    /// How many of `children` children hold data, not parity, of one block: this many can be written to
    /// at once.
    #[doc(alias = "vdev_get_ndisks")]
    fn data_disks(&self, children: usize) -> u64 {
        let _ = children;
        1
    }

    /// The smallest allocation, in bytes.
    #[doc(alias = "vdev_op_min_alloc")]
    fn min_alloc(&self, children: usize, ashift: u32) -> u64 {
        let _ = children;
        1 << ashift
    }

    /// The child that has what a distributed spare has at an offset.
    #[doc(alias = "vdev_draid_spare_get_child")]
    fn child_of_spare(&self, spare: u8, offset: u64) -> Option<usize> {
        let _ = (spare, offset);
        None
    }

    /// Calls `show` with what of a range lies on one of `children` children. Both ends of it are whole sectors.
    #[doc(alias = "vdev_op_xlate")]
    fn translate(
        &self,
        children: usize,
        ashift: u32,
        child: usize,
        range: Range<u64>,
        show: &mut dyn FnMut(Range<u64>),
    ) {
        let _ = (children, ashift, child);
        show(range);
    }

    /// Calls `show` with the offsets of which a block may begin at one, if at an offset of one of `children` children
    /// is the first sector of its bytes, or of its parity, which is the same for a block of one sector.
    fn origins(
        &self,
        children: usize,
        ashift: u32,
        child: usize,
        offset: u64,
        show: &mut dyn FnMut(u64),
    ) {
        let _ = (children, ashift, child);
        show(offset);
    }

    /// What the uberblock, by which the pool is read from now on, says of where blocks are.
    fn note_uberblock(&self, uberblock: &UberblockPhys) {
        let _ = uberblock;
    }

    /// It is not known any more where blocks are: I/O fails from now on.
    fn forget_uberblock(&self) {}

    /// Metaslabs start at multiples of this, in bytes.
    #[doc(alias = "vdev_op_metaslab_init")]
    fn metaslab_align(&self, children: usize, ashift: u32) -> u64 {
        let _ = (children, ashift);
        1
    }
}

/// The operations of a kind with so many children.
#[doc(alias = "vdev_getops")]
pub(crate) fn ops_of(kind: VdevKind, children: usize, config: &VdevConfig) -> Arc<dyn KindOps> {
    match kind {
        VdevKind::Mirror
        | VdevKind::Replacing
        | VdevKind::Spare
        | VdevKind::Disk
        | VdevKind::File
        | VdevKind::DraidSpare(_) => Arc::new(Mirror),
        VdevKind::RaidZ { nparity } => Arc::new(Striped(Raidz::new(nparity, config))),
        VdevKind::Draid(shape) => Arc::new(Striped(Draid::new(shape, children))),
        VdevKind::Indirect => Arc::new(Indirect),
        VdevKind::Root | VdevKind::Missing | VdevKind::Hole => Arc::new(Absent(kind)),
    }
}

/// A vdev during an I/O.
#[derive(Clone)]
pub(crate) struct Node<'a> {
    pub(crate) vdev: &'a Arc<Vdev>,
    /// The top-level vdev that it is or belongs to.
    pub(crate) top: &'a Arc<Vdev>,
    /// The tree that it is in.
    pub(crate) tree: &'a VdevTree,
    /// Whether anything may be written, even to repair it.
    pub(crate) is_writable: bool,
    /// The txgs that a write issued now may belong to.
    pub(crate) txgs: Range<u64>,
}

impl Node<'_> {
    /// A vdev below.
    pub(crate) fn child(&self, n: usize) -> Node<'_> {
        Node {
            vdev: &self.vdev.children()[n],
            ..self.clone()
        }
    }

    pub(crate) fn read(
        &self,
        io: &Io,
        offset: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        self.vdev.ops().read(self, io, offset, buf, verify)
    }

    pub(crate) fn write(&self, io: &Io, offset: u64, parts: &[&[u8]]) -> Result<()> {
        self.vdev.ops().write(self, io, offset, parts)
    }

    pub(crate) fn scrub(
        &self,
        buf: &mut [u8],
        blocks: &[RunBlock],
        verify: &dyn Fn(usize, &[u8]) -> bool,
    ) -> Vec<Result<ScrubReport>> {
        self.vdev.ops().scrub(self, buf, blocks, verify)
    }
}
