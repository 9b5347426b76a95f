//! One object: its line, its dnode, its content, its blocks.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_object`, `dump_indirect`, `visit_indirect`).

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use base::{BlkId, ObjectId, Result};
use dmu::{Dnode, Followed, ObjectWalk, Objset};
use phys::{BlkPtrPhys, ChecksumType, CompressType, DnodePhys, ObjectType, Phys};
use serde_json::{Value, json};
use zio::Bookmark;
use zpl::{Filesystem, OpenOptions};

use super::datasets::Subject;
use super::request::Request;
use super::targets::Range;
use super::text::Printer;
use super::viewers;

/// dn_flags: `DNODE_FLAG_*`
const FLAG_NAMES: [(u8, &str); 4] = [
    (1, "USED_BYTES "),
    (2, "USERUSED_ACCOUNTED "),
    (8, "USEROBJUSED_ACCOUNTED "),
    (4, "SPILL_BLKPTR"),
];
const DNODES_PER_BLOCK: u64 = 32;
/// `DNODE_MIN_SIZE`: bytes of a slot.
const SLOT_BYTES: u64 = 512;
/// Bytes of a Zstandard block's header (`zfs_zstdhdr_t`) that matter here.
const ZSTD_HEADER_BYTES: usize = 8;

/// The state for dumping the objects of one objset.
pub(super) struct Dumper {
    pub(super) objset: Arc<Objset>,
    pub(super) fs: Option<Arc<Filesystem>>,
    /// The level of detail for each object.
    pub(super) verbosity: usize,
    /// How often `-d` was given: the level of detail for the contents of objects.
    pub(super) content_level: usize,
    /// The compression of the objset's blocks, if the dnode does not say.
    compress: String,
    /// Reads blocks as they are on disk, if the headers of compressed ones are requested (`-Z`).
    pipeline: Option<Arc<zio::Pipeline>>,
    /// Number of files without a directory entry.
    pub(super) leaked: usize,
    wants_header: bool,
}

impl Dumper {
    pub(super) fn new(request: &Request, subject: &Subject, verbosity: usize) -> Dumper {
        let objset = &subject.objset;
        let is_fs = objset.type_() == phys::ObjsetType::Zfs && verbosity >= 4;
        let fs = is_fs.then(|| Filesystem::open(objset.clone(), OpenOptions::default()).ok());
        Dumper {
            objset: objset.clone(),
            fs: fs.flatten(),
            verbosity,
            content_level: request.level('d'),
            compress: subject.compress(),
            pipeline: request.has('Z').then(|| subject.pipeline.clone()),
            leaked: 0,
            wants_header: true,
        }
    }
}

/// The numbers of an object's line.
struct Facts {
    dnode: Arc<Dnode>,
    phys: DnodePhys,
    object: ObjectId,
    lsize: u64,
    fill_percent: f64,
    pointers: Vec<BlkPtrPhys>,
}

impl Facts {
    fn of(objset: &Objset, object: ObjectId) -> Result<Facts> {
        let dnode = objset.hold(object)?;
        let phys = dnode.phys();
        let top = phys.nlevels.saturating_sub(1);
        let pointers = (0..u64::from(phys.nblkptr)).map(|i| dnode.block_pointer(top, BlkId(i)));
        let pointers: Vec<BlkPtrPhys> = pointers.collect::<Result<_>>()?;
        let fill: u64 = pointers.iter().map(fill_of).sum();
        let blocks = phys.maxblkid.get().saturating_add(1);
        let lsize = blocks.saturating_mul(phys.datablksz());
        let per_block = if object.0 == 0 { DNODES_PER_BLOCK } else { 1 };
        let fill_percent =
            100.0 * fill as f64 * phys.datablksz() as f64 / per_block as f64 / lsize as f64;
        Ok(Facts {
            dnode,
            phys,
            object,
            lsize,
            fill_percent,
            pointers,
        })
    }

    fn dsize(&self) -> u64 {
        (self.dnode.used_bytes() + 256) >> 9 << 9
    }
}

fn fill_of(bp: &BlkPtrPhys) -> u64 {
    match (bp.is_hole(), bp.is_embedded()) {
        (true, _) => 0,
        (_, true) => 1,
        _ => bp.fill(),
    }
}

/// Writes an object, if the range includes its type; returns how many dnode slots it takes.
#[doc(alias = "dump_object")]
pub(super) fn write_object(
    out: &mut Printer,
    dumper: &mut Dumper,
    object: ObjectId,
    range: Option<&Range>,
) -> Result<u64> {
    if dumper.wants_header {
        writeln!(
            out,
            "\n    Object  lvl   iblk   dblk  dsize  dnsize  lsize   %full  type"
        )?;
        dumper.wants_header = false;
    }
    let facts = Facts::of(&dumper.objset, object)?;
    let dnode = &facts.dnode;
    let slots = u64::from(dnode.slots());
    if range.is_some_and(|range| !range.includes(dnode.type_())) {
        return Ok(slots);
    }
    let nice = |n: u64| out.nice(n);
    let line = format!(
        "{:10}  {:3}  {:>5}  {:>5}  {:>5}  {:>6}  {:>5}  {:6.2}  {}{}",
        object.0 as i64,
        facts.phys.nlevels,
        nice(1u64 << facts.phys.indblkshift.min(63)),
        nice(facts.phys.datablksz()),
        nice(facts.dsize()),
        nice(slots * SLOT_BYTES),
        nice(facts.lsize),
        facts.fill_percent,
        dnode.type_().name(),
        encodings(&facts.phys, dumper)
    );
    writeln!(out, "{line}")?;
    let bonus_type = dnode.bonus_type();
    if bonus_type != ObjectType::NONE && dumper.verbosity > 3 {
        let size = out.nice(dnode.bonus_len() as u64);
        writeln!(out, "{:45}{size:>5}   bonus  {}", "", bonus_type.name())?;
    }
    if dumper.verbosity >= 4 {
        write_details(out, dumper, &facts)?;
        dumper.wants_header = true;
    }
    if dumper.verbosity >= 5 {
        // If the blocks are not a tree, listing the segments would not end.
        if write_blocks(out, dumper, &facts)? {
            write_segments(out, dumper, &facts)?;
        }
    }
    Ok(slots)
}

fn encodings(phys: &DnodePhys, dumper: &Dumper) -> String {
    let mut out = String::new();
    let says_all = dumper.verbosity >= 6;
    if phys.checksum != 0 || says_all {
        let name = ChecksumType::try_from(phys.checksum).map_or("UNKNOWN", ChecksumType::name);
        out += &format!(" (K={name})");
    }
    if phys.compress != 0 {
        let name = CompressType::try_from(phys.compress).map_or("UNKNOWN", CompressType::name);
        out += &format!(" (Z={name})");
    } else if says_all {
        out += &format!(" (Z=inherit={})", dumper.compress);
    }
    out
}

fn write_details(out: &mut Printer, dumper: &mut Dumper, facts: &Facts) -> Result<()> {
    let flags = FLAG_NAMES.iter();
    let flags = flags.filter(|(bit, _)| facts.phys.flags & bit != 0);
    let flags: String = flags.map(|(_, name)| *name).collect();
    writeln!(out, "\tdnode flags: {flags}")?;
    writeln!(out, "\tdnode maxblkid: {}", facts.phys.maxblkid.get())?;
    if facts.object.0 == 0 {
        return Ok(());
    }
    let shown = viewers::bonus(out, dumper, &facts.dnode)
        .and_then(|()| viewers::content(out, dumper, &facts.dnode));
    if let Err(error) = shown {
        writeln!(out, "\t\t({error})")?;
    }
    Ok(())
}

/// Returns whether the blocks are a tree.
#[doc(alias = "dump_indirect")]
fn write_blocks(out: &mut Printer, dumper: &Dumper, facts: &Facts) -> Result<bool> {
    if let Some(spill) = facts.dnode.spill_pointer() {
        writeln!(out, "\nSpill block: {}", out.compact(&spill, false))?;
    }
    writeln!(out, "Indirect blocks:")?;
    let top = facts.phys.nlevels.saturating_sub(1);
    let mut visit = Visit {
        dumper,
        facts,
        followed: Followed::default(),
        is_tree: true,
    };
    for (i, bp) in facts.pointers.iter().enumerate() {
        visit.block(out, bp, top, i as u64)?;
    }
    writeln!(out)?;
    Ok(visit.is_tree)
}

/// A walk through the blocks of an object.
struct Visit<'a> {
    dumper: &'a Dumper,
    facts: &'a Facts,
    followed: Followed,
    /// Whether no block was visited twice.
    is_tree: bool,
}

impl Visit<'_> {
    #[doc(alias = "visit_indirect")]
    fn block(&mut self, out: &mut Printer, bp: &BlkPtrPhys, level: u8, blkid: u64) -> Result<()> {
        let (dumper, facts) = (self.dumper, self.facts);
        if bp.birth().0 == 0 {
            return Ok(());
        }
        let phys = &facts.phys;
        let epb_shift = u32::from(phys.indblkshift).saturating_sub(7).min(20);
        let first = blkid.wrapping_shl(u32::from(level) * epb_shift);
        let offset = first.wrapping_mul(phys.datablksz());
        let mut line = format!("{offset:16x} ");
        for l in (-1..i32::from(phys.nlevels)).rev() {
            if l == i32::from(level) {
                line += &format!("L{level:x}");
            } else {
                line.push(' ');
            }
        }
        line += &out.compact(bp, false);
        if let Some(pipeline) = &dumper.pipeline {
            line += &zstd_header(pipeline, &dumper.objset, facts.object, bp);
        }
        if !bp.is_embedded() && bp.object_type() != phys.type_ {
            line += &format!(
                " (ERROR: Block pointer type ({}) does not match dnode type ({}))",
                bp.object_type(),
                phys.type_
            );
        }
        writeln!(out, "{line}")?;
        if level == 0 || bp.is_hole() {
            return Ok(());
        }
        let bookmark = Bookmark::new(dumper.objset.id(), facts.object, level, BlkId(blkid));
        if let Err(error) = self.followed.follow(bp, &bookmark) {
            writeln!(out, "(ERROR: {error})")?;
            self.is_tree = false;
            return Ok(());
        }
        let block = match dumper.objset.store().read(bp, &bookmark) {
            Ok(block) => block,
            Err(error) => {
                writeln!(out, "(ERROR: {error})")?;
                return Ok(());
            }
        };
        let pointers = BlkPtrPhys::array(&block);
        let first = blkid.wrapping_mul(pointers.len() as u64);
        for (child, i) in pointers.iter().zip(0..) {
            self.block(out, child, level - 1, first.wrapping_add(i))?;
        }
        Ok(())
    }
}

/// The header of a block compressed with Zstandard.
#[doc(alias = "snprintf_zstd_header")]
fn zstd_header(
    pipeline: &zio::Pipeline,
    objset: &Objset,
    object: ObjectId,
    bp: &BlkPtrPhys,
) -> String {
    if bp.is_hole() || bp.compress() != CompressType::Zstd.raw() {
        return String::new();
    }
    let (bytes, place) = if bp.is_embedded() {
        (bp.embedded_payload(), "EMBEDDED")
    } else {
        let bookmark = Bookmark::new(objset.id(), object, bp.level(), BlkId(0));
        let raw = pipeline.read_raw(bp, &bookmark);
        (raw.map(|raw| raw.to_vec()), "NORMAL")
    };
    match bytes
        .as_deref()
        .map(<[u8]>::first_chunk::<ZSTD_HEADER_BYTES>)
    {
        Ok(Some([a, b, c, d, level, v0, v1, v2])) => {
            let size = u32::from_be_bytes([*a, *b, *c, *d]);
            let version = u32::from_be_bytes([0, *v0, *v1, *v2]);
            format!(" ZSTD:size={size}:version={version}:level={level}:{place}")
        }
        _ => String::new(),
    }
}

/// The ranges with data; in the meta-dnode, those with dnodes.
fn write_segments(out: &mut Printer, dumper: &Dumper, facts: &Facts) -> Result<()> {
    let mut write = |start: u64, end: u64| {
        let size = out.nice(end.saturating_sub(start));
        writeln!(out, "\t\tsegment [{start:016x}, {end:016x}) size {size:>5}")
    };
    if facts.object.0 == 0 {
        for (start, end) in dnode_runs(&dumper.objset)? {
            write(start * SLOT_BYTES, end * SLOT_BYTES)?;
        }
        return Ok(());
    }
    let mut at = 0;
    while let Some(start) = facts.dnode.next_data(at)? {
        let end = facts.dnode.next_hole(start)?;
        write(start, end)?;
        at = end;
    }
    Ok(())
}

/// Runs of slots with dnodes, as `dnode_next_offset` finds them: it skips blocks by their fill count
/// (dnodes), so a block filled by fewer, large dnodes ends the search.
fn dnode_runs(objset: &Objset) -> Result<Vec<(u64, u64)>> {
    let mut slots: BTreeMap<u64, u64> = BTreeMap::new();
    let mut fills: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut at, mut walk) = (ObjectId(0), ObjectWalk::default());
    while let Some(object) = objset.next_object_of(at, &mut walk)? {
        slots.insert(object.0, u64::from(objset.hold(object)?.slots()));
        *fills.entry(object.0 / DNODES_PER_BLOCK).or_default() += 1;
        at = object;
    }
    // The first free slot of the block at or after `from`, or else the end of the block.
    let hole_in_block = |from: u64| {
        let end = (from / DNODES_PER_BLOCK + 1) * DNODES_PER_BLOCK;
        let mut slot = from;
        while slot < end {
            match slots.get(&slot) {
                Some(count) => slot += (*count).max(1),
                None => return Ok(slot),
            }
        }
        Err(end)
    };
    let mut runs = Vec::new();
    let mut from = 0;
    while let Some((start, _)) = slots.range(from..).next() {
        let mut hole = hole_in_block(*start);
        if let Err(end) = hole {
            let mut block = end / DNODES_PER_BLOCK;
            while fills.get(&block) == Some(&DNODES_PER_BLOCK) {
                block += 1;
            }
            hole = hole_in_block(block * DNODES_PER_BLOCK);
        }
        match hole {
            Ok(end) => {
                runs.push((*start, end));
                from = end;
            }
            Err(end) => {
                runs.push((*start, end));
                break;
            }
        }
    }
    Ok(runs)
}

/// An object's line as JSON.
pub(super) fn json_of(objset: &Objset, object: ObjectId) -> Result<Value> {
    let facts = Facts::of(objset, object)?;
    Ok(json!({
        "object": object.0,
        "levels": facts.phys.nlevels,
        "iblk": 1u64 << facts.phys.indblkshift.min(63),
        "dblk": facts.phys.datablksz(),
        "dsize": facts.dsize(),
        "dnsize": u64::from(facts.dnode.slots()) * SLOT_BYTES,
        "lsize": facts.lsize,
        "full": facts.fill_percent,
        "type": facts.dnode.type_().name(),
        "bonus_type": facts.dnode.bonus_type().name(),
        "bonus_size": facts.dnode.bonus_len(),
    }))
}
