//! The tree of block pointers below a dnode: finding a block, and searching by fill counts.
//!
//! # What it is
//! A dnode has up to three pointers to its top level; each indirect block holds `1 << (ibs - 7)`
//! pointers to the level below; level 0 is the data. A [`Tree`] is a snapshot of the root; a [`Walk`]
//! descends it and remembers the last block of each level, so that going through neighbours costs no further reads.
//!
//! # Invariants
//! 1. A hole at an indirect level is equivalent to a block full of holes with the same birth txg.
//! 2. Fill counts are exact: what a search skips holds nothing that it looks for.
//!
//! # Source
//! OpenZFS module/zfs/dnode.c (`dnode_next_offset`), module/zfs/dbuf.c (`dbuf_findbp`,
//! `dbuf_handle_indirect_hole`) @be7657e3.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{BlkId, Buf, Error, ObjectId, ObjsetId, Result};
use phys::ObjectType;
use phys::blkptr::{BlkPtrPhys, SPA_BLKPTRSHIFT};
use rt::Mutex;
use zerocopy::{FromBytes, IntoBytes};
use zio::{BlockStore, Bookmark};

use crate::Followed;

/// Indirect blocks in memory that take precedence over those on disk, by level and block id.
pub(crate) type Pending = BTreeMap<(u8, u64), Buf>;

/// Where the block tree of an object begins.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) objset: ObjsetId,
    pub(crate) object: ObjectId,
    pub(crate) type_: ObjectType,
    pub(crate) nlevels: u8,
    pub(crate) ibs: u8,
    pub(crate) blksz: u64,
    pub(crate) blkptrs: Vec<BlkPtrPhys>,
    pub(crate) pending: Option<Arc<Pending>>,
}

impl Tree {
    /// log2 of the number of pointers in an indirect block.
    pub(crate) fn epbs(&self) -> u32 {
        u32::from(self.ibs) - SPA_BLKPTRSHIFT
    }

    /// The level of the blocks that the dnode itself points at.
    pub(crate) fn top(&self) -> u8 {
        self.nlevels - 1
    }

    /// The block of `level` that level-0 block `blkid` is in or below.
    pub(crate) fn ancestor(&self, blkid: u64, level: u8) -> u64 {
        blkid
            .checked_shr(self.epbs() * u32::from(level))
            .unwrap_or(0)
    }

    /// The level-0 blocks `[first, end)` below a block; `end` saturates.
    pub(crate) fn span(&self, level: u8, blkid: u64) -> (u64, u64) {
        let shift = self.epbs() * u32::from(level);
        let first = shl_saturating(blkid, shift);
        (first, shl_saturating(blkid.saturating_add(1), shift))
    }

    pub(crate) fn bookmark(&self, level: u8, blkid: u64) -> Bookmark {
        Bookmark::new(self.objset, self.object, level, BlkId(blkid))
    }

    /// Bytes of a block of `level`.
    pub(crate) fn lsize(&self, level: u8) -> u64 {
        if level == 0 {
            self.blksz
        } else {
            1 << self.ibs
        }
    }

    /// The hole that an indirect hole at `level` implies for each of its children.
    pub(crate) fn child_hole(&self, level: u8, hole: &BlkPtrPhys) -> BlkPtrPhys {
        assert!(level > 0, "level 0 has no children");
        if hole.birth().0 == 0 {
            return BlkPtrPhys::default();
        }
        let lsize = self.lsize(level - 1);
        BlkPtrPhys::new_hole(self.type_.raw(), level - 1, lsize, hole.birth())
    }
}

pub(crate) fn shl_saturating(value: u64, shift: u32) -> u64 {
    if value == 0 {
        0
    } else if shift > value.leading_zeros() {
        u64::MAX
    } else {
        value << shift
    }
}

/// How many levels an object needs so that block `maxblkid` has a place.
pub(crate) fn levels_for(maxblkid: u64, nblkptr: u8, ibs: u8) -> u8 {
    let epbs = u32::from(ibs) - SPA_BLKPTRSHIFT;
    let mut levels = 1;
    let mut reach = u64::from(nblkptr);
    while reach <= maxblkid {
        reach = shl_saturating(reach, epbs);
        levels += 1;
        if reach == u64::MAX {
            break;
        }
    }
    levels
}

/// The pointers in an indirect block, for changing them.
pub(crate) fn entries_mut(block: &mut [u8]) -> &mut [BlkPtrPhys] {
    <[BlkPtrPhys]>::mut_from_bytes(block).expect("indirect blocks are multiples of 128 bytes")
}

/// An indirect block, or the hole where one could be.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Block(Buf),
    /// The hole that each child is.
    Hole(BlkPtrPhys),
}

impl Node {
    pub(crate) fn entry(&self, index: usize) -> BlkPtrPhys {
        match self {
            Node::Block(buf) => {
                let bytes = &buf[index << SPA_BLKPTRSHIFT..(index + 1) << SPA_BLKPTRSHIFT];
                BlkPtrPhys::read_from_bytes(bytes).expect("128 bytes")
            }
            Node::Hole(child) => *child,
        }
    }

    /// The block's bytes, to be changed.
    pub(crate) fn to_buf(&self, len: usize) -> Buf {
        match self {
            Node::Block(buf) => buf.clone(),
            Node::Hole(child) => {
                let mut buf = Buf::zeroed(len);
                if child.birth().0 != 0 {
                    let bytes = buf.make_mut();
                    bytes
                        .chunks_exact_mut(128)
                        .for_each(|slot| slot.copy_from_slice(child.as_bytes()));
                }
                buf
            }
        }
    }
}

/// By level: the block last looked at.
type Path = Vec<Option<(u64, Node)>>;

/// Where each walk through a frequently walked tree leaves its path for the next one.
#[derive(Default)]
pub(crate) struct PathCache(Mutex<(u64, Path)>);

/// A descent through a [`Tree`].
pub(crate) struct Walk {
    pub(crate) tree: Tree,
    store: Arc<dyn BlockStore>,
    last: Path,
    home: Option<(Arc<PathCache>, u64)>,
}

impl Walk {
    pub(crate) fn new(tree: Tree, store: Arc<dyn BlockStore>) -> Walk {
        let last = vec![None; usize::from(tree.nlevels)];
        Walk {
            tree,
            store,
            last,
            home: None,
        }
    }

    /// The same, starting from the path that the last walk of this `version` of the tree left.
    pub(crate) fn along_path(mut self, home: &Arc<PathCache>, version: u64) -> Walk {
        let left = home.0.lock();
        if left.0 == version && left.1.len() == self.last.len() {
            self.last.clone_from(&left.1);
        }
        drop(left);
        self.home = Some((Arc::clone(home), version));
        self
    }

    /// The pointer at block `blkid` of `level`; a hole where the tree does not reach.
    pub(crate) fn bp(&mut self, level: u8, blkid: u64) -> Result<BlkPtrPhys> {
        if level >= self.tree.top() {
            let root = usize::try_from(blkid)
                .ok()
                .filter(|_| level == self.tree.top());
            let bp = root.and_then(|index| self.tree.blkptrs.get(index));
            return Ok(bp.copied().unwrap_or_default());
        }
        let epbs = self.tree.epbs();
        let index = (blkid & ((1 << epbs) - 1)) as usize;
        Ok(self.node(level + 1, blkid >> epbs)?.entry(index))
    }

    /// The indirect block `blkid` of `level`.
    pub(crate) fn node(&mut self, level: u8, blkid: u64) -> Result<Node> {
        assert!(
            level > 0 && level <= self.tree.top(),
            "level {level} is not indirect"
        );
        let slot = usize::from(level);
        if let Some((id, node)) = &self.last[slot]
            && *id == blkid
        {
            return Ok(node.clone());
        }
        let node = self.load(level, blkid)?;
        self.last[slot] = Some((blkid, node.clone()));
        Ok(node)
    }

    fn load(&mut self, level: u8, blkid: u64) -> Result<Node> {
        let pending = self.tree.pending.as_ref();
        if let Some(buf) = pending.and_then(|p| p.get(&(level, blkid))) {
            return Ok(Node::Block(buf.clone()));
        }
        let bp = self.bp(level, blkid)?;
        if bp.is_hole() {
            return Ok(Node::Hole(self.tree.child_hole(level, &bp)));
        }
        let bookmark = self.tree.bookmark(level, blkid);
        check_shape(&bp, level, self.tree.lsize(level), &bookmark)?;
        if bp.is_embedded() {
            let what = format!("indirect block {bookmark} is embedded");
            return Err(Error::corrupt(what));
        }
        let buf = self.store.read(&bp, &bookmark)?;
        check_len(&buf, self.tree.lsize(level), &bookmark)?;
        Ok(Node::Block(buf))
    }

    /// The first block of `level` at or after `from` that `wanted` accepts, descending only below
    /// pointers that it accepts too; it is passed the level of the block that a pointer leads to. No
    /// indirect block is searched twice: fill counts may lie.
    pub(crate) fn search(
        &mut self,
        level: u8,
        from: u64,
        wanted: &dyn Fn(u8, &BlkPtrPhys) -> bool,
    ) -> Result<Option<u64>> {
        let top = self.tree.top();
        if level > top {
            return Ok(None);
        }
        let shift = self.tree.epbs() * u32::from(top - level);
        let first = from.checked_shr(shift).unwrap_or(0);
        let mut search = Search {
            level,
            from,
            wanted,
            followed: Followed::default(),
        };
        for index in first..self.tree.blkptrs.len() as u64 {
            let bp = self.tree.blkptrs[index as usize];
            if let Some(found) = self.search_below(&mut search, (top, index), &bp)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn search_below(
        &mut self,
        search: &mut Search<'_>,
        (at, blkid): (u8, u64),
        bp: &BlkPtrPhys,
    ) -> Result<Option<u64>> {
        if !(search.wanted)(at, bp) {
            return Ok(None);
        }
        if at == search.level {
            return Ok(Some(blkid));
        }
        if !bp.is_hole() {
            search.followed.follow(bp, &self.tree.bookmark(at, blkid))?;
        }
        let node = self.node(at, blkid)?;
        let epbs = self.tree.epbs();
        let below = self.tree.epbs() * u32::from(at - 1 - search.level);
        let first = (blkid << epbs).max(search.from.checked_shr(below).unwrap_or(0));
        for child in first..(blkid + 1) << epbs {
            let bp = node.entry((child & ((1 << epbs) - 1)) as usize);
            let found = self.search_below(search, (at - 1, child), &bp)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

/// What a walk looks for.
struct Search<'a> {
    /// The level of the block.
    level: u8,
    /// The lowest block id.
    from: u64,
    /// Accepts the block's pointer and those above it.
    wanted: &'a dyn Fn(u8, &BlkPtrPhys) -> bool,
    followed: Followed,
}

impl Drop for Walk {
    fn drop(&mut self) {
        let Some((home, version)) = self.home.take() else {
            return;
        };
        let mut left = home.0.lock();
        if left.0 <= version {
            *left = (version, std::mem::take(&mut self.last));
        }
    }
}

/// Refuses a pointer that cannot lead to a block of this level and size.
pub(crate) fn check_shape(bp: &BlkPtrPhys, level: u8, lsize: u64, at: &Bookmark) -> Result<()> {
    if bp.level() != level {
        return Err(Error::corrupt(format!(
            "block pointer {at}: level is {}",
            bp.level()
        )));
    }
    if bp.lsize() != lsize {
        let what = format!("block pointer {at}: lsize is {}, not {lsize}", bp.lsize());
        return Err(Error::corrupt(what));
    }
    Ok(())
}

pub(crate) fn check_len(buf: &Buf, lsize: u64, at: &Bookmark) -> Result<()> {
    if buf.len() as u64 == lsize {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "block {at}: {} bytes, not {lsize}",
        buf.len()
    )))
}
