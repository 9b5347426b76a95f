//! Files whose file system is lost: their dnodes are found in blocks to which no objset leads any more.
//!
//! # What it is
//! A block of dnodes is written anew whenever one of them changes, so most blocks that are found are earlier states of
//! others. What stays the same of a file says which of its states belong together; the newest counts.
//!
//! # Invariants
//! Nothing says that the bytes of such a block are right, other than that there are two of them: metadata has copies.
//! [`FoundFile::is_sure`] says whether there are. What a file's pointers lead to is verified as ever.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{BlkId, ObjectId, Result, Txg};
use dmu::{Dnode, FoundDnodes, Likeness, ObjectWalk, Objset};
use phys::byteswap::{is_big_endian_sa, swap_sa_header, swap_words};
use phys::dnode::DNODES_PER_BLOCK;
use phys::sa::SaView;
use phys::znode::ZnodePhys;
use phys::{BlkPtrPhys, DnodeView, ObjectType, ObjsetType, Phys, SaFilePhys};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;
use zio::{Bookmark, FoundBlock};

use super::{Places, Seek, Sighted, UNNAMED, add_place, of_likeness};

/// `S_IFMT`, and `S_IFREG` in it.
const FILE_TYPE: (u64, u64) = (0o170_000, 0o100_000);

/// What of a file stays the same as long as it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileIdentity {
    slot: usize,
    generation: u64,
    crtime: [u64; 2],
}

/// A file that was found by its dnode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFile {
    /// Its block of dnodes, and the slot in it.
    place: Sighted,
    slot: usize,
    /// How long it is, in bytes.
    pub size: u64,
    /// Whether the block was found twice.
    pub is_sure: bool,
    /// When it was changed, and the newest of its blocks.
    rank: ([u64; 2], Txg),
}

impl FoundFile {
    /// A name that no other one has.
    #[must_use]
    pub fn name(&self) -> String {
        let (vdev, offset) = (self.place.vdev, self.place.offset);
        format!("#{vdev}-{offset:x}-{}", self.slot)
    }
}

/// What is looked at of the attributes of a file.
struct Attributes {
    size: u64,
    ctime: [u64; 2],
    crtime: [u64; 2],
    generation: u64,
}

/// The attributes of a regular file: those of a system of attributes, or of before there was one.
fn attributes(dnode: &DnodeView<'_>) -> Option<Attributes> {
    let core = dnode.core();
    if core.type_ != ObjectType::PLAIN_FILE_CONTENTS.raw() {
        return None;
    }
    let (mode, file) = if core.bonustype == ObjectType::SA.raw() {
        let file = system_attributes(dnode.bonus())?;
        let attributes = Attributes {
            size: file.size.get(),
            ctime: file.ctime.map(U64::get),
            crtime: file.crtime.map(U64::get),
            generation: file.generation.get(),
        };
        (file.mode.get(), attributes)
    } else if core.bonustype == ObjectType::ZNODE.raw() {
        let file = ZnodePhys::view(dnode.bonus()).ok()?;
        let attributes = Attributes {
            size: file.size.get(),
            ctime: file.ctime.map(U64::get),
            crtime: file.crtime.map(U64::get),
            generation: file.gen_.get(),
        };
        (file.mode.get(), attributes)
    } else {
        return None;
    };
    (mode & FILE_TYPE.0 == FILE_TYPE.1).then_some(file)
}

/// The system attributes in a bonus, of either byte order, that all layouts begin with.
fn system_attributes(bonus: &[u8]) -> Option<SaFilePhys> {
    let mut bonus = bonus.to_vec();
    let is_big_endian = is_big_endian_sa(&bonus);
    if is_big_endian {
        swap_sa_header(&mut bonus);
    }
    let mut file = *SaFilePhys::view(SaView::new(&bonus).ok()?.values()).ok()?;
    if is_big_endian {
        swap_words(file.as_mut_bytes());
    }
    Some(file)
}

fn identity_of(slot: usize, file: &Attributes) -> FileIdentity {
    FileIdentity {
        slot,
        generation: file.generation,
        crtime: file.crtime,
    }
}

fn block_of<'a>(sighted: &Sighted, found: &FoundDnodes, stored: &'a [u8]) -> FoundBlock<'a> {
    FoundBlock {
        stored,
        is_little_endian: found.is_little_endian,
        lsize: phys::dnode::DNODE_BLOCK_SIZE as u64,
        compress: sighted.what.compress,
        object_type: ObjectType::DNODE,
        level: 0,
        birth: Txg(1),
    }
}

impl Seek {
    /// The files in all blocks of dnodes, each in its newest state, but for these. `see` is called for each block.
    #[must_use]
    pub fn files(
        &self,
        sighted: &BTreeSet<Sighted>,
        known: &BTreeSet<FileIdentity>,
        see: &mut dyn FnMut(),
    ) -> Vec<FoundFile> {
        let mut copies: BTreeMap<[u64; 4], Places> = BTreeMap::new();
        let mut files: BTreeMap<FileIdentity, (FoundFile, [u64; 4])> = BTreeMap::new();
        for place in of_likeness(sighted, Likeness::Dnodes) {
            see();
            let Some((block, bp)) = self.read_dnodes(place) else {
                continue;
            };
            let sum = bp.cksum_words();
            add_place(copies.entry(sum).or_default(), place);
            for (slot, dnode) in block.dnodes() {
                let Some(file) = attributes(&dnode) else {
                    continue;
                };
                let identity = identity_of(slot, &file);
                let births = dnode.blkptrs().iter().filter(|bp| !bp.is_hole());
                let Some(birth) = births.map(BlkPtrPhys::birth).max() else {
                    continue;
                };
                if known.contains(&identity) {
                    continue;
                }
                let found = FoundFile {
                    place: *place,
                    slot,
                    size: file.size,
                    is_sure: false,
                    rank: (file.ctime, birth),
                };
                let newest = files.entry(identity).or_insert((found.clone(), sum));
                if newest.0.rank < found.rank {
                    *newest = (found, sum);
                }
            }
        }
        let sure = |(file, sum): (FoundFile, [u64; 4])| FoundFile {
            is_sure: copies.get(&sum).is_some_and(|places| places.len() > 1),
            ..file
        };
        let mut files: Vec<FoundFile> = files.into_values().map(sure).collect();
        files.sort_by_key(|file| std::cmp::Reverse(file.rank));
        files
    }

    fn read_dnodes(&self, place: &Sighted) -> Option<(FoundDnodes, BlkPtrPhys)> {
        let (block, stored) = self.read(place, &|sketch, stored| {
            let block = sketch.dnodes(stored)?;
            let psize = block.psize;
            Ok((block, psize))
        })?;
        let at = [(place.vdev, place.offset)];
        let bp = block_of(place, &block, &stored).pointer(&*self.tree, &at);
        Some((block, bp))
    }

    /// Opens a file that was found, to read its contents.
    ///
    /// # Errors
    /// Those of reading its dnode.
    pub fn open_file(&self, file: &FoundFile) -> Result<Arc<Dnode>> {
        let (_, bp) = self
            .read_dnodes(&file.place)
            .ok_or_else(|| base::Error::corrupt("its dnode is not there any more"))?;
        let accounting = Arc::new(dmu::FreeAtOnce(self.store.clone()));
        let block = (ObjsetType::Zfs, &bp, 1);
        let objset = Objset::adrift(self.store.clone(), UNNAMED, block, accounting);
        objset.hold(ObjectId(DNODES_PER_BLOCK + file.slot as u64))
    }

    /// The files of an objset, as far as its dnodes can be read.
    pub fn identities(objset: &Objset, known: &mut BTreeSet<FileIdentity>) {
        let (mut blkid, mut failed, mut walk) = (0, 0, ObjectWalk::default());
        while failed < FAILURES_MAX {
            match objset.used_dnode_block(blkid, &mut walk) {
                Ok(None) => return,
                Ok(Some((found, bp))) => {
                    (blkid, failed) = (found + 1, 0);
                    let bookmark = Bookmark::new(objset.id(), ObjectId(0), 0, BlkId(found));
                    let Ok(block) = objset.store().read_keyless(&bp, &bookmark) else {
                        continue;
                    };
                    for (slot, dnode) in FoundDnodes::of_block(block.to_vec()).dnodes() {
                        known.extend(attributes(&dnode).map(|file| identity_of(slot, &file)));
                    }
                }
                Err(_) => (blkid, failed) = (blkid + 1, failed + 1),
            }
        }
    }
}

/// Blocks of dnodes in a row that cannot be read, after which no more are expected.
const FAILURES_MAX: u32 = 10_000;
