//! Visiting the blocks of an objset, from its root pointer and without opening it.
//!
//! # What it is
//! [`traverse`] shows a [`Visitor`] every block that was allocated after a given txg: on entering it,
//! and again when everything below it is done. Blocks below a pointer are never younger than the
//! pointer, so older branches are not entered. The visitor reads the blocks, may ask for a pause, and is
//! told what could not be looked into. `decode` knows what a block leads to, `order` in which order blocks come.
//!
//! # Invariants
//! 1. However often a traversal pauses and goes on from a [`Point`], each block is entered once and left
//!    once, except for the call that asked for the pause. With [`Order::Post`], each is left once even
//!    if errors stop it, too.
//! 2. A block is looked into only if its level and its number of pointers fit its place, and only once
//!    ([`Followed`]): a traversal ends whatever is on the disk, and nothing in it comes out of order.
//! 3. A traversal that stops before it has reached its resume point keeps that point: what comes before
//!    was visited.
//!
//! # Why not simpler
//! Nothing is read ahead yet. It would be in `Traversal::below`, which has all pointers of a block before it
//! descends: `decode` can go through the same bytes twice.
//!
//! # Source
//! OpenZFS module/zfs/dmu_traverse.c, module/zfs/dsl_scan.c (`dsl_scan_visitbp`, `dsl_scan_recurse`) @be7657e3

mod decode;
mod order;
#[cfg(test)]
mod tests;

use base::{Buf, Error, ObjectId, ObjsetId, Result, Txg};
use phys::{BlkPtrPhys, DnodeView, ObjsetPhys};

pub use decode::{Lead, Link, Shape, block_dnodes, objset_dnodes};
pub use order::{Point, Side};

use crate::{Followed, META_DNODE_OBJECT};

/// What a traversal does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It goes on.
    Continue,
    /// It stops, and this block will be shown again when it goes on.
    Pause,
}

/// What is done with the blocks.
pub trait Visitor {
    /// Reads a block that leads to others.
    ///
    /// # Errors
    /// Why it cannot be read, for [`failed`](Visitor::failed).
    fn read(&mut self, link: &Link<'_>) -> Result<Buf>;

    /// Called on entering a block, before all below it. [`Order::Pre`]: may pause at level 0 and at the
    /// block of the objset.
    fn enter(&mut self, link: &Link<'_>) -> Step {
        let _ = link;
        Step::Continue
    }

    /// Called on leaving a block, after all below it. [`Order::Post`]: may pause at level 0.
    fn leave(&mut self, link: &Link<'_>) -> Step {
        let _ = link;
        Step::Continue
    }

    /// A block, or a dnode in it, could not be looked into. With `Ok` the traversal goes on after the
    /// block, for which `leave` is not called.
    ///
    /// # Errors
    /// Ends the traversal.
    fn failed(&mut self, link: &Link<'_>, error: Error) -> Result<()> {
        let _ = link;
        Err(error)
    }
}

/// Where a visitor may pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "TRAVERSE_PRE")]
#[doc(alias = "TRAVERSE_POST")]
pub enum Order {
    /// When it enters a block: nothing at the point or below it was visited.
    Pre,
    /// When it leaves a block: all below the point was visited.
    Post,
}

/// Which blocks are visited.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// The objset that bookmarks name.
    pub objset: ObjsetId,
    /// Blocks allocated in this txg or before are passed over.
    pub min_txg: Txg,
    /// Where the visitor may pause.
    pub order: Order,
    /// Blocks before this point are passed over. `None`: from the beginning.
    pub resume: Option<Point>,
    /// Visits the objects that account space by user, group and project in full in each run, even if the
    /// visitor paused at others.
    pub always_accounts: bool,
}

/// Why a traversal ended before all blocks were visited.
#[derive(Debug)]
pub struct Stop {
    /// Where it can go on. `None`: at the beginning.
    pub at: Option<Point>,
    /// The error after which the visitor did not go on. `None`: it asked for a pause.
    pub error: Option<Error>,
}

type Flow = std::result::Result<(), Stop>;

/// Visits the block of an objset that `root` points at, and all below it.
///
/// # Errors
/// When the visitor stops it.
///
/// # Panics
/// When the visitor pauses where it may not.
#[doc(alias = "traverse_dataset")]
#[doc(alias = "traverse_dataset_destroyed")]
pub fn traverse(
    root: &BlkPtrPhys,
    scope: &Scope,
    visitor: &mut dyn Visitor,
) -> std::result::Result<(), Stop> {
    let mut traversal = Traversal {
        scope,
        visitor,
        resume: scope.resume,
        followed: Followed::default(),
    };
    traversal.block(&Link::root(root, scope.objset))
}

struct Traversal<'a> {
    scope: &'a Scope,
    visitor: &'a mut dyn Visitor,
    /// The point to resume at, until it is reached.
    resume: Option<Point>,
    followed: Followed,
}

impl Traversal<'_> {
    #[doc(alias = "traverse_visitbp")]
    fn block(&mut self, link: &Link<'_>) -> Flow {
        let bp = link.bp;
        if bp.is_hole() || bp.is_redacted() || bp.allocation_birth() <= self.scope.min_txg {
            return Ok(());
        }
        let was_entered = match self.resume.map(|point| point.side_of(&link.at, link.shape)) {
            Some(Side::Before) => return Ok(()),
            Some(Side::Around) => true,
            Some(Side::At) if self.scope.order == Order::Post => {
                self.resume = None;
                return self.leave(link);
            }
            Some(Side::At | Side::Behind) | None => {
                self.resume = None;
                false
            }
        };
        if let Err(error) = link.check_level() {
            return self.failed(link, Point::below(link), error);
        }
        if !was_entered && self.visitor.enter(link) == Step::Pause {
            let may_pause = self.scope.order == Order::Pre && link.at.level <= 0;
            assert!(may_pause, "entering {} does not pause", link.at);
            return Err(self.stop(Point::of(link), None));
        }
        match link.lead() {
            Some(lead) => self.below(link, lead),
            None => self.leave(link),
        }
    }

    fn leave(&mut self, link: &Link<'_>) -> Flow {
        if self.visitor.leave(link) == Step::Continue {
            return Ok(());
        }
        let may_pause = self.scope.order == Order::Post && link.at.level == 0;
        assert!(may_pause, "leaving {} does not pause", link.at);
        Err(self.stop(Point::of(link), None))
    }

    fn below(&mut self, link: &Link<'_>, lead: Lead) -> Flow {
        let block = match self.look_into(link, lead) {
            Ok(block) => block,
            Err(error) => return self.failed(link, Point::below(link), error),
        };
        match lead {
            Lead::Objset => match ObjsetPhys::parse(&block) {
                Ok(objset) => self.dnodes(link, objset_dnodes(&objset)),
                Err(error) => self.failed(link, None, error),
            },
            Lead::Dnodes => self.dnodes(link, block_dnodes(&block, &link.at)),
            Lead::Indirect => {
                for child in Link::of_indirect(&block, &link.at, link.shape) {
                    self.block(&child)?;
                }
                self.leave(link)
            }
        }
    }

    fn look_into(&mut self, link: &Link<'_>, lead: Lead) -> Result<Buf> {
        self.followed.follow(link.bp, &link.at)?;
        let block = self.visitor.read(link)?;
        link.check_size(lead, block.len())?;
        Ok(block)
    }

    #[doc(alias = "traverse_dnode")]
    fn dnodes<'d>(
        &mut self,
        link: &Link<'_>,
        dnodes: impl Iterator<Item = (ObjectId, Result<DnodeView<'d>>)>,
    ) -> Flow {
        let mut result = Ok(());
        for (object, dnode) in dnodes {
            if self.scope.always_accounts && link.is_root() && object != META_DNODE_OBJECT {
                self.resume = None;
            } else if result.is_err() {
                break;
            }
            let visited = match dnode {
                Ok(dnode) => Link::of_dnode(&dnode, self.scope.objset, object)
                    .try_for_each(|child| self.block(&child)),
                Err(error) => {
                    let failed = self.failed(link, Some(Point::first_of(object)), error);
                    return result.and(failed);
                }
            };
            result = result.and(visited);
        }
        result.and_then(|()| self.leave(link))
    }

    fn failed(&mut self, link: &Link<'_>, at: Option<Point>, error: Error) -> Flow {
        let heard = self.visitor.failed(link, error);
        heard.map_err(|error| self.stop(at, Some(error)))
    }

    fn stop(&self, at: Option<Point>, error: Option<Error>) -> Stop {
        Stop {
            at: self.resume.or(at),
            error,
        }
    }
}
