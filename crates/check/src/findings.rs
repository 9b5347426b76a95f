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

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// No copy of a block is good. The blocks below it were not visited, and will appear leaked.
    Unreadable {
        /// Which block.
        bookmark: Bookmark,
        /// Its birth txg.
        birth: Txg,
        /// Whether it is metadata, and not the content of a file or volume.
        is_metadata: bool,
        /// `Checksum`, `Io` or `Corrupt`.
        kind: ErrorKind,
        /// The error of the read.
        what: String,
    },
    /// Some copies of a block are bad, another one is good.
    DamagedCopies {
        /// Which block.
        bookmark: Bookmark,
        /// Copies that did not match.
        bad: u32,
        /// How many of them were rewritten.
        repaired: u32,
    },
    /// A block pointer contradicts its parent.
    BadPointer {
        /// Which block.
        bookmark: Bookmark,
        /// In which way.
        what: String,
    },
    /// A block pointer has a wrong count of what is below it (blk_fill).
    Fill {
        /// Which block.
        bookmark: Bookmark,
        /// What the pointer says.
        recorded: u64,
        /// The count of what is below.
        counted: u64,
    },
    /// A block was born after the block that points to it, or after the last synced txg.
    Birth {
        /// Which block.
        bookmark: Bookmark,
        /// Its birth txg according to the pointer.
        birth: Txg,
        /// The latest possible birth txg.
        latest: Txg,
    },
    /// A dnode, objset or dataset is invalid.
    BadObject {
        /// In which objset.
        objset: ObjsetId,
        /// Which object.
        object: ObjectId,
        /// Why.
        what: String,
    },
    /// Space that is allocated but that nothing references.
    Leak {
        /// The vdev.
        vdev: VdevId,
        /// Its offset there.
        offset: u64,
        /// Bytes.
        size: u64,
    },
    /// A block occupies space that is marked free: it may be overwritten.
    NotAllocated {
        /// Which block.
        bookmark: Bookmark,
        /// The segment.
        dva: DvaPhys,
    },
    /// Two blocks occupy the same space.
    AllocatedTwice {
        /// The block found later.
        bookmark: Bookmark,
        /// The segment.
        dva: DvaPhys,
    },
    /// A block points to space that does not exist.
    OutOfRange {
        /// Which block.
        bookmark: Bookmark,
        /// The segment.
        dva: DvaPhys,
    },
    /// A space map cannot be read or contradicts itself. Its metaslab is taken as far as it could
    /// be read.
    BadSpaceMap {
        /// The vdev.
        vdev: VdevId,
        /// The metaslab.
        metaslab: MetaslabId,
        /// Why.
        what: String,
    },
    /// A space map's header has a wrong count of its allocated bytes (smp_alloc).
    SpaceMapSum {
        /// The vdev.
        vdev: VdevId,
        /// The metaslab.
        metaslab: MetaslabId,
        /// What the header says.
        recorded: i64,
        /// What its entries add up to.
        counted: u64,
    },
    /// Of an entry of the mapping of a removed vdev, other bytes are obsolete than the pool records.
    ObsoleteCount {
        /// The vdev.
        vdev: VdevId,
        /// Where the entry begins on it.
        offset: u64,
        /// What is recorded.
        recorded: u64,
        /// The bytes that no block refers to.
        counted: u64,
    },
    /// The sum of all blocks is not the sum of all space maps.
    BlockSum {
        /// Bytes of blocks, shared ones counted once.
        found: u64,
        /// Bytes allocated.
        allocated: u64,
    },
    /// A list of block pointers has a wrong count of its bytes.
    ListSum {
        /// The object in the MOS.
        object: ObjectId,
        /// What its header says.
        recorded: u64,
        /// What its entries add up to.
        counted: u64,
    },
    /// A dataset's recorded referenced bytes are wrong (ds_referenced_bytes).
    Referenced {
        /// Which dataset.
        dataset: ObjsetId,
        /// The recorded bytes.
        recorded: u64,
        /// What it must be: the previous snapshot's, less its deadlist, plus what was born since.
        counted: u64,
    },
    /// Part of the pool was not checked.
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
            | Finding::ObsoleteCount { .. }
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

    /// The block that it concerns, if any.
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

    /// The block and its birth txg (0 if unknown), if its data is lost.
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

    /// Whether it costs no more than a block of a file or volume.
    #[must_use]
    pub fn is_of_data(&self) -> bool {
        matches!(
            self,
            Finding::Unreadable {
                is_metadata: false,
                ..
            }
        )
    }

    /// Sort key of findings, so that the same pool gives the same list.
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
            Finding::ObsoleteCount {
                vdev,
                offset,
                recorded,
                counted,
            } => write!(
                f,
                "mapping of removed vdev {vdev} at {offset:#x} records {recorded} obsolete bytes, {counted} are"
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
