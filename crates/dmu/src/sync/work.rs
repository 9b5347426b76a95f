//! One dnode in a pass: its tree before, what changes in it, and what it will be.

use std::collections::BTreeMap;
use std::ops::Add;
use std::sync::Arc;

use base::Result;
use phys::blkptr::BlkPtrPhys;
use zio::UnderWay;

use crate::dirty::{Block, Charge, Dirty, charge_of};
use crate::image::Image;
use crate::tree::{Node, Pending, Walk, levels_for};
use crate::{Dnode, Followed, SpillChange};

/// What is to be stored in place of a pointer.
#[derive(Clone, Debug)]
pub(super) struct Patch {
    pub(super) bp: BlkPtrPhys,
    /// A hole that gets its birth txg whatever was there before.
    pub(super) keep_birth: bool,
}

/// Patches of one indirect block, by index.
pub(super) type BlockPatches = BTreeMap<usize, Patch>;

pub(super) struct Work {
    pub(super) dnode: Arc<Dnode>,
    /// Writes of the layer that were begun in open context.
    pub(super) begun: Vec<UnderWay>,
    pub(super) layer: Arc<Dirty>,
    pub(super) old: Arc<Image>,
    /// The dnode as it will be; its pointers when all levels are written.
    pub(super) new: Image,
    /// The tree before this pass (in its new shape once it has grown).
    pub(super) walk: Walk,
    /// By level of the indirect block.
    patches: Vec<BTreeMap<u64, BlockPatches>>,
    /// Patches of the dnode's own pointers.
    root: BlockPatches,
    /// Indirect blocks that are freed with everything below them.
    pub(super) freed: Followed,
    pub(super) new_spill: Option<BlkPtrPhys>,
    /// By how much the used bytes change.
    pub(super) used_bytes: i64,
}

impl Work {
    /// Takes the frozen layer of a dnode.
    pub(super) fn begin(dnode: Arc<Dnode>) -> Work {
        let (layer, begun, old) = {
            let mut state = dnode.state();
            assert!(
                state.writing.is_none(),
                "object {} is written already",
                dnode.id()
            );
            let mut layer = state
                .frozen
                .take()
                .expect("a dnode on the list has a frozen layer");
            let begun = layer.behind.take_under_way();
            let layer: Arc<Dirty> = Arc::from(layer);
            state.writing = Some(Arc::clone(&layer));
            state.changes += 1;
            (layer, begun, Arc::clone(state.image()))
        };
        let new = updated(&old, &layer);
        Work {
            begun,
            ..Self::assemble(dnode, layer, old, new)
        }
    }

    /// For the meta-dnode, whose blocks change only here. `maxblkid`: the last block that changes.
    pub(super) fn begin_meta(dnode: Arc<Dnode>, maxblkid: u64) -> Work {
        let old = Arc::clone(dnode.state().image());
        let mut fields = old.fields();
        fields.maxblkid = fields.maxblkid.max(maxblkid);
        let layer = Arc::new(Dirty::new(fields));
        let new = updated(&old, &layer);
        Self::assemble(dnode, layer, old, new)
    }

    fn assemble(dnode: Arc<Dnode>, layer: Arc<Dirty>, old: Arc<Image>, new: Image) -> Work {
        let tree = old.tree(&dnode, None);
        let walk = Walk::new(tree, Arc::clone(&dnode.context.store));
        Work {
            patches: vec![BTreeMap::new(); usize::from(new.core.nlevels)],
            dnode,
            begun: Vec::new(),
            layer,
            old,
            new,
            walk,
            root: BlockPatches::new(),
            freed: Followed::default(),
            new_spill: None,
            used_bytes: 0,
        }
    }

    /// Tells the parent of a block about its new pointer.
    pub(super) fn patch(&mut self, level: u8, blkid: u64, patch: Patch) {
        let tree = &self.walk.tree;
        if level == tree.top() {
            let index = usize::try_from(blkid)
                .ok()
                .filter(|index| *index < tree.blkptrs.len());
            self.root.insert(index.expect("the tree was grown"), patch);
            return;
        }
        let epbs = tree.epbs();
        let index = (blkid & ((1 << epbs) - 1)) as usize;
        let parent = self.patches[usize::from(level) + 1]
            .entry(blkid >> epbs)
            .or_default();
        parent.insert(index, patch);
    }

    pub(super) fn take_patches(&mut self, level: u8) -> BTreeMap<u64, BlockPatches> {
        self.patches
            .get_mut(usize::from(level))
            .map(std::mem::take)
            .unwrap_or_default()
    }

    pub(super) fn take_root(&mut self) -> BlockPatches {
        std::mem::take(&mut self.root)
    }

    /// Whether the tree has fewer levels than it will have.
    pub(super) fn grows(&self) -> bool {
        self.walk.tree.nlevels < self.new.core.nlevels
    }

    /// Adds levels on top of the tree: the dnode's pointers move to the first block of the first new level.
    #[doc(alias = "dnode_increase_indirection")]
    pub(super) fn grow(&mut self) {
        let mut tree = self.walk.tree.clone();
        let level = tree.nlevels;
        tree.nlevels = self.new.core.nlevels;
        let moved = std::mem::take(&mut tree.blkptrs);
        tree.blkptrs = vec![BlkPtrPhys::default(); moved.len()];
        if moved.iter().any(|bp| *bp != BlkPtrPhys::default()) {
            let lsize = tree.lsize(level) as usize;
            let mut block = Node::Hole(BlkPtrPhys::default()).to_buf(lsize);
            crate::tree::entries_mut(block.make_mut())[..moved.len()].copy_from_slice(&moved);
            tree.pending = Some(Arc::new(Pending::from([((level, 0), block)])));
            self.patches[usize::from(level)].entry(0).or_default();
        }
        self.walk = Walk::new(tree, Arc::clone(&self.dnode.context.store));
    }

    /// Gives readers copies in memory of the indirect blocks that this pass may overwrite, and waits for
    /// earlier readers.
    pub(super) fn show_pending(&mut self) -> Result<()> {
        let leaves: Vec<u64> = self.layer.blocks.keys().copied().collect();
        self.show_pending_of(&leaves)
    }

    pub(super) fn show_pending_of(&mut self, leaves: &[u64]) -> Result<()> {
        let top = self.walk.tree.top();
        let mut touched = std::collections::BTreeSet::new();
        for leaf in leaves {
            touched.extend((1..=top).map(|level| (level, self.walk.tree.ancestor(*leaf, level))));
        }
        let epbs = self.walk.tree.epbs();
        for (level, blocks) in (0u8..).zip(&self.patches) {
            for blkid in blocks.keys() {
                let above = (level..=top).map(|l| (l, blkid >> (epbs * u32::from(l - level))));
                touched.extend(above);
            }
        }
        let mut pending = Pending::new();
        for (level, blkid) in touched {
            if let Node::Block(buf) = self.walk.node(level, blkid)? {
                pending.insert((level, blkid), buf);
            }
        }
        if !pending.is_empty() {
            self.dnode.state().pending = Some(Arc::new(pending));
        }
        self.dnode.drain_readers();
        Ok(())
    }

    /// Prefetches indirect blocks that will be changed.
    pub(super) fn prefetch<'a>(&mut self, level: u8, blkids: impl Iterator<Item = &'a u64>) {
        let bps: Vec<BlkPtrPhys> = blkids
            .filter_map(|id| self.walk.bp(level, *id).ok())
            .collect();
        let bps: Vec<_> = bps
            .into_iter()
            .filter(|bp| !bp.is_hole() && !bp.is_embedded())
            .collect();
        if bps.len() > 1 {
            let context = &self.dnode.context;
            context.store.prefetch(context.id, &bps);
        }
    }

    /// Makes the new tree visible. A freed object keeps its layer, so that it stays freed.
    pub(super) fn install(&self) {
        let mut state = self.dnode.state();
        state.set_image(self.new.clone());
        state.version += 1;
        state.pending = None;
        if !self.layer.freeing {
            state.writing = None;
        }
    }

    /// What the dnode was charged for other than its blocks of level 0.
    pub(super) fn charged_beyond_blocks(&self) -> u64 {
        let spill = match &self.layer.spill {
            SpillChange::Set(buf) => Some(buf),
            _ => None,
        };
        let spill = spill.map_or(0, |buf| charge_of(buf.len()));
        let blocks = self.layer.blocks.values().map(Block::charge);
        let charged = blocks.fold(Charge::waiting(spill), Charge::add);
        self.layer
            .charged_bytes
            .saturating_add_signed(-charged.total())
    }
}

/// The dnode with the layer's fields, before anything is written.
fn updated(old: &Image, layer: &Dirty) -> Image {
    let mut new = old.clone();
    let fields = &layer.fields;
    new.exists = !layer.freeing;
    new.core.type_ = fields.type_.raw();
    new.core.bonustype = fields.bonus_type.raw();
    new.core.bonuslen.set(fields.bonus.len() as u16);
    new.bonus = Arc::clone(&fields.bonus);
    new.core.set_datablksz(fields.blksz);
    new.core.maxblkid.set(fields.maxblkid);
    new.core.checksum = fields.checksum;
    new.core.compress = fields.compress;
    let needed = levels_for(fields.maxblkid, new.core.nblkptr, new.core.indblkshift);
    new.core.nlevels = new.core.nlevels.max(needed);
    new
}
