//! What can be wrong with a pool: data, not errors.

use std::fmt;

use base::{ErrorKind, MetaslabId, ObjectId, ObjsetId, Txg, VdevId};
use phys::DvaPhys;
use zio::Bookmark;

/// How bad a [`Finding`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Something could not be checked, or was repaired.
    Warning,
    /// Accounting or space is wrong; what is stored can be read.
    Error,
    /// Something that was stored cannot be read, or can be overwritten.
    Fatal,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// No copy of a block is good. What is below it was not visited, and will look leaked.
    Unreadable {
        /// Which block.
        bookmark: Bookmark,
        /// When it was born.
        birth: Txg,
        /// `Checksum`, `Io` or `Corrupt`.
        kind: ErrorKind,
        /// What the read said.
        what: String,
    },
    /// Some copies of a block are bad, another one is good.
    DamagedCopies {
        /// Which block.
        bookmark: Bookmark,
        /// Copies that did not match.
        bad: u32,
        /// How many of them were written anew.
        repaired: u32,
    },
    /// A block pointer contradicts what it was reached from.
    BadPointer {
        /// Which block.
        bookmark: Bookmark,
        /// How.
        what: String,
    },
    /// A block pointer counts what is below it wrongly (blk_fill).
    Fill {
        /// Which block.
        bookmark: Bookmark,
        /// What the pointer says.
        recorded: u64,
        /// What is below.
        counted: u64,
    },
    /// A block is younger than what points to it, or than the pool.
    Birth {
        /// Which block.
        bookmark: Bookmark,
        /// When it says it was born.
        birth: Txg,
        /// The latest that it can have been.
        latest: Txg,
    },
    /// A dnode, objset or dataset that makes no sense.
    BadObject {
        /// In which objset.
        objset: ObjsetId,
        /// Which object.
        object: ObjectId,
        /// Why not.
        what: String,
    },
    /// Space that is allocated and that nothing refers to.
    Leak {
        /// Where.
        vdev: VdevId,
        /// Where.
        offset: u64,
        /// Bytes.
        size: u64,
    },
    /// A block refers to space that is free: it will be overwritten.
    NotAllocated {
        /// Which block.
        bookmark: Bookmark,
        /// The segment.
        dva: DvaPhys,
    },
    /// Two blocks refer to the same space.
    AllocatedTwice {
        /// The later one found.
        bookmark: Bookmark,
        /// The segment.
        dva: DvaPhys,
    },
    /// A block refers to space that does not exist.
    OutOfRange {
        /// Which block.
        bookmark: Bookmark,
        /// The segment.
        dva: DvaPhys,
    },
    /// A space map cannot be read or contradicts itself. Its metaslab is taken to be empty.
    BadSpaceMap {
        /// Of which vdev.
        vdev: VdevId,
        /// Of which metaslab.
        metaslab: MetaslabId,
        /// Why.
        what: String,
    },
    /// A space map's header counts its allocated bytes wrongly (smp_alloc).
    SpaceMapSum {
        /// Of which vdev.
        vdev: VdevId,
        /// Of which metaslab.
        metaslab: MetaslabId,
        /// What the header says.
        recorded: i64,
        /// What its entries add up to.
        counted: u64,
    },
    /// The sum of all blocks is not the sum of all space maps.
    BlockSum {
        /// Bytes of blocks, shared ones counted once.
        found: u64,
        /// Bytes allocated.
        allocated: u64,
    },
    /// A list of block pointers counts its bytes wrongly.
    ListSum {
        /// The object in the MOS.
        object: ObjectId,
        /// What its header says.
        recorded: u64,
        /// What its entries add up to.
        counted: u64,
    },
    /// A dataset refers to another number of bytes than it says (ds_referenced_bytes).
    Referenced {
        /// Which dataset.
        dataset: ObjsetId,
        /// What it says.
        recorded: u64,
        /// What it must be: the previous snapshot's, less its deadlist, plus what was born since.
        counted: u64,
    },
    /// Part of the pool was not looked at.
    NotChecked {
        /// Which part and why.
        what: String,
    },
}

impl Finding {
    /// How bad it is.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self {
            Finding::NotChecked { .. } => Severity::Warning,
            Finding::DamagedCopies { bad, repaired, .. } if bad == repaired => Severity::Warning,
            Finding::DamagedCopies { .. }
            | Finding::Fill { .. }
            | Finding::Leak { .. }
            | Finding::SpaceMapSum { .. }
            | Finding::BlockSum { .. }
            | Finding::ListSum { .. }
            | Finding::Referenced { .. } => Severity::Error,
            Finding::Unreadable { .. }
            | Finding::BadPointer { .. }
            | Finding::Birth { .. }
            | Finding::BadObject { .. }
            | Finding::NotAllocated { .. }
            | Finding::AllocatedTwice { .. }
            | Finding::OutOfRange { .. }
            | Finding::BadSpaceMap { .. } => Severity::Fatal,
        }
    }

    /// The block that it is about, if it is about one.
    #[must_use]
    pub fn bookmark(&self) -> Option<Bookmark> {
        match self {
            Finding::Unreadable { bookmark, .. }
            | Finding::DamagedCopies { bookmark, .. }
            | Finding::BadPointer { bookmark, .. }
            | Finding::Fill { bookmark, .. }
            | Finding::Birth { bookmark, .. }
            | Finding::NotAllocated { bookmark, .. }
            | Finding::AllocatedTwice { bookmark, .. }
            | Finding::OutOfRange { bookmark, .. } => Some(*bookmark),
            _ => None,
        }
    }

    /// The block, and when it was born, if its data is lost; a birth of 0 is not known.
    #[must_use]
    pub fn lost(&self) -> Option<(Bookmark, Txg)> {
        match self {
            Finding::Unreadable {
                bookmark, birth, ..
            } => Some((*bookmark, *birth)),
            Finding::BadPointer { bookmark, .. } => Some((*bookmark, Txg(0))),
            _ => None,
        }
    }

    /// Sorts findings so that the same pool gives the same list.
    pub(crate) fn sort_key(&self) -> (std::cmp::Reverse<Severity>, Option<Bookmark>, String) {
        let severity = std::cmp::Reverse(self.severity());
        (severity, self.bookmark(), self.to_string())
    }
}

impl fmt::Display for Finding {
    #[expect(clippy::too_many_lines, reason = "a table: the text of each finding")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Unreadable { what, .. } => write!(f, "unreadable: {what}"),
            Finding::DamagedCopies {
                bookmark,
                bad,
                repaired,
            } => write!(
                f,
                "block {bookmark} has {bad} bad copies, {repaired} repaired"
            ),
            Finding::BadPointer { bookmark, what } => write!(f, "pointer to {bookmark}: {what}"),
            Finding::Fill {
                bookmark,
                recorded,
                counted,
            } => write!(
                f,
                "blk_fill of {bookmark} is {recorded}, there are {counted} below"
            ),
            Finding::Birth {
                bookmark,
                birth,
                latest,
            } => write!(
                f,
                "block {bookmark} was born in txg {birth}, after txg {latest}"
            ),
            Finding::BadObject {
                objset,
                object,
                what,
            } => write!(f, "object {object} of objset {objset}: {what}"),
            Finding::Leak { vdev, offset, size } => {
                write!(
                    f,
                    "leaked space: vdev {vdev}, offset {offset:#x}, size {size}"
                )
            }
            Finding::NotAllocated { bookmark, dva } => {
                write!(f, "block {bookmark} is in free space at {dva}")
            }
            Finding::AllocatedTwice { bookmark, dva } => {
                write!(f, "block {bookmark} shares {dva} with another block")
            }
            Finding::OutOfRange { bookmark, dva } => {
                write!(f, "block {bookmark} is outside of the pool at {dva}")
            }
            Finding::BadSpaceMap {
                vdev,
                metaslab,
                what,
            } => write!(f, "space map of metaslab {metaslab} of vdev {vdev}: {what}"),
            Finding::SpaceMapSum {
                vdev,
                metaslab,
                recorded,
                counted,
            } => write!(
                f,
                "space map of metaslab {metaslab} of vdev {vdev} records {recorded} bytes, its \
                 entries leave {counted}"
            ),
            Finding::BlockSum { found, allocated } => write!(
                f,
                "block traversal size {found} != alloc {allocated} (leaked {})",
                i128::from(*allocated) - i128::from(*found)
            ),
            Finding::ListSum {
                object,
                recorded,
                counted,
            } => write!(
                f,
                "bpobj {object} records {recorded} bytes, its entries have {counted}"
            ),
            Finding::Referenced {
                dataset,
                recorded,
                counted,
            } => write!(
                f,
                "dataset {dataset} records {recorded} bytes referenced, not {counted}"
            ),
            Finding::NotChecked { what } => write!(f, "not checked: {what}"),
        }
    }
}
