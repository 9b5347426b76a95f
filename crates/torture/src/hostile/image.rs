//! A small pool as a tree of blocks, and edits of it.
//!
//! # What it is
//! Every block that can be reached from the uberblock is kept decompressed, with the position of the pointer
//! that leads to it. An edited block is written uncompressed into spare space (the blocks of a file made for
//! this purpose), and the pointer to it is rewritten, which edits its parent, and so on up to the uberblock.
//! Blocks of intent logs carry their own checksums and stay where they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{BlkId, ObjectId, ObjsetId, Result};
use checksum::embedded;
use geom::Provider;
use nvpair::NvList;
use phys::dnode::{DNODE_CORE_SIZE, DNODE_MIN_SIZE, DnodeView};
use phys::label::{
    LABELS, NVLIST_MAX, NVLIST_OFFSET, NVLIST_SIZE, label_offset, uberblock_count,
    uberblock_offset, uberblock_size,
};
use phys::uberblock::UberblockPhys;
use phys::{BlkPtrPhys, ChecksumType, CompressType, DvaPhys, ObjectType, Phys};
use ram::Memory;
use vdev::Vdev;
use vdev::label::Labels;
use zio::{BlockStore, Bookmark, LogStore};

use super::writer::{Writer, write};
use crate::pool;

/// The first bytes of every spare block, by which it is recognised.
pub(crate) const SPARE_MARK: &[u8; 8] = b"SPARE!!!";
/// Bytes of a spare block.
pub(crate) const SPARE_BYTES: u64 = 128 << 10;
/// Where a dataset's block pointer lies in its bonus.
const DS_BP_OFFSET: usize = 128;
/// Where the pointer to the first log block lies in an objset.
const ZIL_LOG_OFFSET: usize = 512 + 16;
/// Where the pointer to the next log block lies in a log block.
const ZIL_NEXT_OFFSET: usize = 8;
/// Where `dn_maxblkid` lies in a dnode.
const DN_MAXBLKID_OFFSET: usize = 16;
/// Bytes of a block pointer.
const BP_BYTES: usize = size_of::<BlkPtrPhys>();
/// The bytes of a dnode that describe its block tree: shifts and levels, sizes, `dn_maxblkid`, the first
/// pointer.
const TREE_OF_DNODE: [std::ops::Range<usize>; 4] = [1..3, 8..10, 16..24, 64..192];
/// Size of a `zil_chain_t` in bytes: the least that a log block has in use.
const ZIL_CHAIN_BYTES: u64 = 192;
/// Where the dnodes lie in an objset.
const OBJSET_DNODES: [usize; 4] = [0, 1024, 1536, 2048];

/// What a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// `objset_phys_t`
    Objset,
    /// Block pointers of an object of this type.
    Indirect(u8),
    /// Dnodes of the MOS.
    MosDnodes,
    /// Dnodes of a dataset.
    Dnodes,
    /// Content of an object of this type.
    Data(u8),
    /// A block of an intent log.
    Log,
}

/// A block of the pool.
pub struct Block {
    /// The block that contains the pointer to this one, and the offset in it; `None`: the uberblock.
    pub parent: Option<(usize, usize)>,
    /// The pointer.
    pub bp: BlkPtrPhys,
    /// Its content, decompressed.
    pub content: Vec<u8>,
    /// What it is.
    pub role: Role,
    /// Its objset, numbered in crawl order: 0 is the MOS.
    pub objset: u64,
    /// Its object number.
    pub object: u64,
}

/// A pool, taken apart.
pub struct Image {
    disks: Vec<Memory>,
    ashift: u32,
    uberblock: UberblockPhys,
    /// The config of the pool.
    config: NvList,
    /// Parents before children.
    pub blocks: Vec<Block>,
    /// Where spare blocks are.
    spare: Vec<DvaPhys>,
    /// Whether many lies are to be about its vdevs.
    pub(super) lies_about_vdevs: bool,
}

struct Crawl<'a> {
    store: &'a zio::Pipeline,
    blocks: Vec<Block>,
    spare: Vec<DvaPhys>,
    seen: BTreeSet<[u64; 2]>,
    /// How many objsets were entered so far; also the number of the next one.
    objsets: u64,
    /// Dnode slots seen in each objset.
    dnodes_seen: BTreeMap<u64, u64>,
}

/// Where in the pool a pointer is.
#[derive(Clone, Copy)]
struct At {
    parent: Option<(usize, usize)>,
    objset: u64,
    object: u64,
}

impl Image {
    /// Takes the pool on these devices apart; the pool must be healthy.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn of(disks: Vec<Memory>) -> Result<Image> {
        let providers: Vec<Arc<dyn Provider>> = disks
            .iter()
            .map(|disk| Arc::new(disk.snapshot()) as Arc<dyn Provider>)
            .collect();
        let spa = pool::open(&providers, true)?;
        let uberblock = spa.uberblock();
        let ashift = spa.parts().tree().tops()[0].config().ashift;
        let mut crawl = Crawl {
            store: spa.parts().pipeline(),
            blocks: Vec::new(),
            spare: Vec::new(),
            seen: BTreeSet::new(),
            objsets: 0,
            dnodes_seen: BTreeMap::new(),
        };
        let root = At {
            parent: None,
            objset: 0,
            object: 0,
        };
        crawl.pointer(&uberblock.rootbp, root)?;
        let Crawl {
            blocks, mut spare, ..
        } = crawl;
        let tree = spa.parts().tree();
        let stays = |top: &Arc<Vdev>| top.kind().is_concrete() && !top.config().removing;
        spare.retain(|dva| tree.top(dva.vdev()).is_some_and(|top| stays(&top)));
        Ok(Image {
            disks,
            ashift,
            uberblock,
            config: spa.config(),
            blocks,
            spare,
            lies_about_vdevs: false,
        })
    }

    /// The config of the pool.
    pub(super) fn config(&self) -> &NvList {
        &self.config
    }

    /// Starts an edit.
    #[must_use]
    pub fn edit(&self) -> Edit<'_> {
        Edit {
            image: self,
            uberblock: self.uberblock,
            changed: BTreeMap::new(),
            repeated: BTreeMap::new(),
            graft: None,
            config: None,
        }
    }

    /// The first block of an object of the MOS.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn mos_block(&self, object: ObjectId) -> usize {
        let is_its = |block: &Block| {
            (block.objset, block.object) == (0, object.0) && matches!(block.role, Role::Data(_))
        };
        let found = self.blocks.iter().position(is_its);
        found.unwrap_or_else(|| panic!("object {object} of the MOS has no block"))
    }

    /// The MOS's block of dnodes that contains this object, and the offset of its dnode.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub(crate) fn mos_dnode(&self, object: ObjectId) -> (usize, usize) {
        let per_block = 32;
        let mut first = 0;
        for (index, block) in self.blocks.iter().enumerate() {
            if block.role == Role::MosDnodes {
                if (first..first + per_block).contains(&object.0) {
                    return (index, (object.0 - first) as usize * DNODE_MIN_SIZE);
                }
                first += per_block;
            }
        }
        panic!("the MOS has no object {object}");
    }
}

impl Crawl<'_> {
    fn pointer(&mut self, bp: &BlkPtrPhys, at: At) -> Result<()> {
        let is_known = !bp.is_embedded() && !self.seen.insert(bp.identity_words());
        if bp.is_hole() || is_known {
            return Ok(());
        }
        let bookmark = Bookmark::new(ObjsetId(at.objset), ObjectId(at.object), 0, BlkId(0));
        let content = self.store.read(bp, &bookmark)?.to_vec();
        if content.starts_with(SPARE_MARK) {
            self.spare.extend(bp.dvas().next());
            return Ok(());
        }
        let is_dnodes = bp.object_type() == ObjectType::DNODE.raw();
        let mut at = at;
        let role = match (bp.level(), bp.object_type()) {
            (0, type_) if type_ == ObjectType::OBJSET.raw() => {
                at.objset = self.objsets;
                at.object = 0;
                self.objsets += 1;
                Role::Objset
            }
            (0, _) if is_dnodes && at.objset == 0 => Role::MosDnodes,
            (0, _) if is_dnodes => Role::Dnodes,
            (0, type_) => Role::Data(type_),
            (_, type_) => Role::Indirect(type_),
        };
        let index = self.push(bp, content, role, at);
        match role {
            Role::Objset => self.objset(index, at),
            Role::MosDnodes | Role::Dnodes => self.dnodes(index, at),
            Role::Indirect(_) => {
                let count = self.blocks[index].content.len() / size_of::<BlkPtrPhys>();
                (0..count).try_for_each(|i| self.child(index, i * size_of::<BlkPtrPhys>(), at))
            }
            Role::Data(_) | Role::Log => Ok(()),
        }
    }

    fn push(&mut self, bp: &BlkPtrPhys, content: Vec<u8>, role: Role, at: At) -> usize {
        self.blocks.push(Block {
            parent: at.parent,
            bp: *bp,
            content,
            role,
            objset: at.objset,
            object: at.object,
        });
        self.blocks.len() - 1
    }

    fn child(&mut self, index: usize, offset: usize, at: At) -> Result<()> {
        let bp = pointer_at(&self.blocks[index].content, offset);
        let parent = Some((index, offset));
        self.pointer(&bp, At { parent, ..at })
    }

    fn objset(&mut self, index: usize, at: At) -> Result<()> {
        let log = pointer_at(&self.blocks[index].content, ZIL_LOG_OFFSET);
        self.log(&log, (index, ZIL_LOG_OFFSET), at);
        for offset in OBJSET_DNODES {
            self.dnode(index, offset, At { object: 0, ..at })?;
        }
        Ok(())
    }

    fn log(&mut self, bp: &BlkPtrPhys, parent: (usize, usize), at: At) {
        let seq = bp.cksum_words()[3];
        let bookmark = Bookmark::zil(ObjsetId(at.objset), seq);
        if bp.is_hole() {
            return;
        }
        // The chain ends with a block that is not written yet.
        let Ok(content) = self.store.read_log(bp, &bookmark) else {
            return;
        };
        let at = At {
            parent: Some(parent),
            ..at
        };
        let next = pointer_at(&content, ZIL_NEXT_OFFSET);
        let index = self.push(bp, content.to_vec(), Role::Log, at);
        self.log(&next, (index, ZIL_NEXT_OFFSET), at);
    }

    fn dnodes(&mut self, index: usize, at: At) -> Result<()> {
        // The pools are small: there are no holes between their blocks of dnodes.
        let first = self.dnodes_seen.entry(at.objset).or_default();
        let base = *first;
        *first += (self.blocks[index].content.len() / DNODE_MIN_SIZE) as u64;
        let mut slot = 0;
        while slot * DNODE_MIN_SIZE < self.blocks[index].content.len() {
            let object = base + slot as u64;
            slot += self.dnode(index, slot * DNODE_MIN_SIZE, At { object, ..at })?;
        }
        Ok(())
    }

    /// Follows the pointers of a dnode; returns how many slots it takes.
    fn dnode(&mut self, index: usize, offset: usize, at: At) -> Result<usize> {
        let content = &self.blocks[index].content;
        if content.len() <= offset || content[offset] == 0 {
            return Ok(1);
        }
        let view = DnodeView::new(&content[offset..])?;
        let core = view.core();
        let slots = core.slots();
        let bonus_at = core.bonus_offset();
        let mut places: Vec<usize> = (0..usize::from(core.nblkptr))
            .map(|i| 64 + 128 * i)
            .collect();
        if core.bonustype == ObjectType::DSL_DATASET.raw() {
            places.push(bonus_at + DS_BP_OFFSET);
        }
        if core.has_spill() {
            places.push(core.size() - size_of::<BlkPtrPhys>());
        }
        for place in places {
            self.child(index, offset + place, at)?;
        }
        Ok(slots)
    }
}

fn pointer_at(content: &[u8], offset: usize) -> BlkPtrPhys {
    BlkPtrPhys::read(&content[offset..]).expect("a pointer is in the block")
}

/// Identifies a stored block by its first DVA.
trait IdentityWords {
    fn identity_words(&self) -> [u64; 2];
}

impl IdentityWords for BlkPtrPhys {
    fn identity_words(&self) -> [u64; 2] {
        self.dvas().next().map_or([0, 0], |dva| dva.words())
    }
}

/// Changes to an image.
pub struct Edit<'a> {
    image: &'a Image,
    /// The uberblock, to be changed.
    pub uberblock: UberblockPhys,
    changed: BTreeMap<usize, Vec<u8>>,
    /// Indirect blocks whose pointers all become copies of the one at this offset.
    repeated: BTreeMap<usize, usize>,
    graft: Option<Graft>,
    config: Option<ConfigEdit>,
}

/// Blocks of dnodes, and the offset of the dnode in each.
struct Graft {
    from: (usize, usize),
    to: (usize, usize),
}

type ConfigEdit = Box<dyn Fn(&mut NvList)>;

impl<'a> Edit<'a> {
    /// The image.
    #[must_use]
    pub fn image(&self) -> &'a Image {
        self.image
    }

    /// The content of a block, to be changed.
    pub fn content(&mut self, block: usize) -> &mut Vec<u8> {
        let original = &self.image.blocks[block].content;
        self.changed
            .entry(block)
            .or_insert_with(|| original.clone())
    }

    /// Makes all pointers of every indirect block above this one copies of the pointer that leads down to it,
    /// so that a few blocks pose as very many, and raises the object's `dn_maxblkid` to match. Returns the
    /// block with the object's dnode, and the dnode's offset in it.
    ///
    /// # Panics
    /// When there is no indirect block above it.
    pub fn bomb(&mut self, block: usize) -> (usize, usize) {
        let parent_of = |block: usize| self.image.blocks[block].parent.expect("a dnode is above");
        let (mut parent, mut at) = parent_of(block);
        let pointers = |block: &Block| (block.content.len() / BP_BYTES) as u64;
        let mut covered = match &self.image.blocks[block] {
            lowest if matches!(lowest.role, Role::Indirect(_)) => pointers(lowest),
            _ => 1,
        };
        while let Role::Indirect(_) = self.image.blocks[parent].role {
            self.content(parent);
            self.repeated.insert(parent, at);
            covered *= pointers(&self.image.blocks[parent]);
            (parent, at) = parent_of(parent);
        }
        assert!(covered > 1, "block {block} has no indirect block above it");
        let dnode = at - DNODE_CORE_SIZE;
        let maxblkid = dnode + DN_MAXBLKID_OFFSET;
        self.content(parent)[maxblkid..maxblkid + 8]
            .copy_from_slice(&(covered - 1).min(1 << 40).to_le_bytes());
        (parent, dnode)
    }

    /// Gives an object of the MOS the block tree of another object, whose dnode is at `from`, as it is after
    /// all edits. The object must have a lower number than the DSL dataset that holds the other one.
    pub fn graft(&mut self, from: (usize, usize), object: ObjectId) {
        let to = self.image.mos_dnode(object);
        self.content(from.0);
        self.content(to.0);
        self.graft = Some(Graft { from, to });
    }

    /// Takes the last changed block (children before parents); the target of a graft has to wait for its
    /// source.
    fn take_last(&mut self) -> Option<(usize, Vec<u8>)> {
        let waits = self.graft.as_ref().map(|graft| graft.to.0);
        let mut indices = self.changed.keys().copied().rev();
        let last = indices.find(|index| Some(*index) != waits).or(waits)?;
        let content = self.changed.remove(&last)?;
        if let Some(Graft { from, to }) = self.graft.take_if(|graft| graft.from.0 == last)
            && let Some(target) = self.changed.get_mut(&to.0)
        {
            let dnode = &content[from.1..from.1 + DNODE_MIN_SIZE];
            for range in TREE_OF_DNODE {
                target[to.1 + range.start..to.1 + range.end].copy_from_slice(&dnode[range]);
            }
        }
        Some((last, content))
    }

    /// Changes the config in all labels.
    pub fn config(&mut self, change: impl Fn(&mut NvList) + 'static) {
        self.config = Some(Box::new(change));
    }

    /// Writes a word into the bonus of an object of the MOS, at this offset.
    ///
    /// # Panics
    /// When there is no such object.
    pub fn set_mos_bonus(&mut self, object: ObjectId, offset: usize, word: u64) {
        let (block, at) = self.image.mos_dnode(object);
        let bonus = DnodeView::new(&self.image.blocks[block].content[at..]);
        let bonus = bonus.expect("an allocated dnode").core().bonus_offset();
        let at = at + bonus + offset;
        self.content(block)[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    /// Makes an object of the MOS one of another type.
    ///
    /// # Panics
    /// When there is no such object.
    pub fn set_mos_type(&mut self, object: ObjectId, type_: ObjectType) {
        let (block, at) = self.image.mos_dnode(object);
        // dn_type is the first byte.
        self.content(block)[at] = type_.raw();
    }

    /// The devices with all changes made and every checksum right.
    #[must_use]
    pub fn finish(mut self) -> Vec<Arc<dyn Provider>> {
        let copies = self.image.disks.iter().map(Memory::snapshot);
        let disks: Vec<Arc<Memory>> = copies.map(Arc::new).collect();
        let writer = Writer::new(&disks, &self.image.config, &self.image.uberblock);
        let mut room = Room::new(&self.image.spare);
        while let Some((index, mut content)) = self.take_last() {
            let block = &self.image.blocks[index];
            let repeated = self.repeated.get(&index);
            let fill = repeated.map(|at| repeat(&mut content, *at));
            if block.role == Role::Log {
                seal_log(&writer, &block.bp, &mut content);
                continue;
            }
            let asize = |dva: &DvaPhys| writer.asize(dva, &content, block.bp.birth());
            let Some(dva) = room.take(asize) else {
                // There is no spare space left: the rest stays as it was.
                continue;
            };
            writer.write(&dva, block.bp.birth(), &content);
            let mut bp = pointer_to(&block.bp, dva, &content);
            fill.into_iter().for_each(|fill| bp.set_fill(fill));
            match block.parent {
                Some((parent, at)) => self.content(parent)[at..at + size_of::<BlkPtrPhys>()]
                    .copy_from_slice(zerocopy::IntoBytes::as_bytes(&bp)),
                None => self.uberblock.rootbp = bp,
            }
        }
        self.write_labels(&disks);
        disks
            .into_iter()
            .map(|disk| disk as Arc<dyn Provider>)
            .collect()
    }

    fn write_labels(&self, disks: &[Arc<Memory>]) {
        let ashift = self.image.ashift;
        for disk in disks {
            let labels = self
                .config
                .as_ref()
                .and_then(|_| Labels::read(&**disk).ok());
            for index in 0..LABELS {
                let start = label_offset(disk.mediasize(), index).expect("a device of a pool");
                let slot = |ub: &UberblockPhys| {
                    start + uberblock_offset(ashift, ub.txg().0 % uberblock_count(ashift))
                };
                let mut block = vec![0; uberblock_size(ashift) as usize];
                write(disk, slot(&self.image.uberblock), &block);
                self.uberblock.write(&mut block);
                seal_label(disk, slot(&self.uberblock), &mut block);
                let label = labels
                    .as_ref()
                    .and_then(|labels| labels.0[index].as_ref().ok());
                if let (Some(change), Some(label)) = (&self.config, label)
                    && let Ok(config) = &label.config
                {
                    let mut config = config.clone();
                    change(&mut config);
                    let mut packed = nvpair::encode_xdr(&config);
                    if packed.len() as u64 <= NVLIST_MAX {
                        packed.resize(NVLIST_SIZE as usize, 0);
                        seal_label(disk, start + NVLIST_OFFSET, &mut packed);
                    }
                }
            }
        }
    }
}

/// Spare space, allocated from the front.
struct Room<'a> {
    chunks: std::slice::Iter<'a, DvaPhys>,
    /// What is left of the chunk in use.
    left: DvaPhys,
}

impl<'a> Room<'a> {
    fn new(spare: &'a [DvaPhys]) -> Room<'a> {
        Room {
            chunks: spare.iter(),
            left: DvaPhys::default(),
        }
    }

    /// Room for as many bytes as `asize` returns for a chunk; `None` if a chunk is too small for them, or there are no
    /// more chunks.
    fn take(&mut self, asize: impl Fn(&DvaPhys) -> u64) -> Option<DvaPhys> {
        if self.left.asize() < asize(&self.left) || self.left.asize() == 0 {
            self.left = *self.chunks.next()?;
        }
        let (vdev, offset, bytes) = (self.left.vdev(), self.left.offset(), asize(&self.left));
        let left = self.left.asize().checked_sub(bytes)?;
        self.left = DvaPhys::new(vdev, offset + bytes, left, false);
        Some(DvaPhys::new(vdev, offset, bytes, false))
    }
}

/// Makes all pointers in a block copies of the one at `at`; returns the fill count of all of them.
fn repeat(content: &mut [u8], at: usize) -> u64 {
    let bp = pointer_at(content, at);
    let places = content.chunks_exact_mut(BP_BYTES);
    let count = places.len() as u64;
    for place in places {
        place.copy_from_slice(zerocopy::IntoBytes::as_bytes(&bp));
    }
    bp.fill() * count
}

/// A pointer to an uncompressed block, otherwise like `old`.
fn pointer_to(old: &BlkPtrPhys, dva: DvaPhys, content: &[u8]) -> BlkPtrPhys {
    let size = content.len() as u64;
    let kind = ChecksumType::Fletcher4;
    let mut bp = BlkPtrPhys::default();
    bp.set_lsize(size);
    bp.set_psize(size);
    bp.set_type(old.object_type());
    bp.set_level(old.level());
    bp.set_compress(CompressType::Off.raw());
    bp.set_checksum(kind.raw());
    bp.set_birth(old.birth(), old.birth());
    bp.set_fill(if old.is_embedded() { 1 } else { old.fill() });
    bp.set_little_endian();
    bp.set_dva(0, dva);
    bp.set_cksum(checksum::digest(kind, &[0; 32], content));
    bp
}

/// Writes a log block back in place, with its embedded checksum recomputed.
fn seal_log(writer: &Writer<'_>, bp: &BlkPtrPhys, content: &mut [u8]) {
    let kind = ChecksumType::try_from(bp.checksum()).expect("that of a log block");
    // If the count of bytes in use is out of range, the checksum cannot be recomputed: the block stays
    // unreadable.
    let used = u64::from_le_bytes(content[136..144].try_into().expect("eight bytes"));
    if (ZIL_CHAIN_BYTES..=content.len() as u64).contains(&used) {
        embedded::set(kind, &bp.cksum_words(), content);
    }
    for dva in bp.dvas() {
        writer.write(&dva, bp.birth(), content);
    }
}

fn seal_label(disk: &Memory, offset: u64, block: &mut [u8]) {
    let verifier = embedded::label_verifier(offset);
    embedded::set(ChecksumType::Label, &verifier, block);
    write(disk, offset, block);
}
