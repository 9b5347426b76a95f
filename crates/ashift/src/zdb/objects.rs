//! One object: its line, its dnode, its content, its blocks.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_object`, `dump_indirect`, `visit_indirect`).

use std::io::Write;
use std::sync::Arc;

use base::{BlkId, ObjectId, Result};
use dmu::{Dnode, Objset};
use phys::{BlkPtrPhys, ChecksumType, CompressType, ObjectType};
use serde_json::{Value, json};
use zpl::{Filesystem, OpenOptions};

use super::text::{Printer, compact};
use super::viewers;

/// dn_flags: `DNODE_FLAG_*`
const USED_BYTES: u8 = 1;
const USERUSED_ACCOUNTED: u8 = 2;
const SPILL_BLKPTR: u8 = 4;
const USEROBJUSED_ACCOUNTED: u8 = 8;
const DNODES_PER_BLOCK: u64 = 32;

/// What dumping the objects of one objset needs.
pub(super) struct Dumper {
    pub(super) objset: Arc<Objset>,
    pub(super) verbosity: usize,
    pub(super) fs: Option<Arc<Filesystem>>,
    wants_header: bool,
}

impl Dumper {
    pub(super) fn new(objset: &Arc<Objset>, verbosity: usize) -> Dumper {
        let is_fs = objset.type_() == phys::ObjsetType::Zfs && verbosity >= 4;
        let fs = is_fs.then(|| Filesystem::open(objset.clone(), OpenOptions::default()).ok());
        Dumper {
            objset: objset.clone(),
            verbosity,
            fs: fs.flatten(),
            wants_header: true,
        }
    }
}

/// The numbers of an object's line.
struct Facts {
    dnode: Arc<Dnode>,
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
        let lsize = (phys.maxblkid.get() + 1) * phys.datablksz();
        let per_block = if object.0 == 0 { DNODES_PER_BLOCK } else { 1 };
        let fill_percent =
            100.0 * fill as f64 * phys.datablksz() as f64 / per_block as f64 / lsize as f64;
        Ok(Facts {
            dnode,
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

fn type_name(type_: ObjectType) -> &'static str {
    type_.name()
}

/// Writes an object; answers how many dnode slots it takes.
pub(super) fn write_object(
    out: &mut Printer,
    dumper: &mut Dumper,
    object: ObjectId,
) -> Result<u64> {
    let facts = Facts::of(&dumper.objset, object)?;
    let dnode = &facts.dnode;
    let phys = dnode.phys();
    if dumper.wants_header {
        writeln!(
            out,
            "\n    Object  lvl   iblk   dblk  dsize  dnsize  lsize   %full  type"
        )?;
        dumper.wants_header = false;
    }
    let nice = |n: u64| out.nice(n);
    let line = format!(
        "{:10}  {:3}  {:>5}  {:>5}  {:>5}  {:>6}  {:>5}  {:6.2}  {}{}",
        object.0 as i64,
        phys.nlevels,
        nice(1 << phys.indblkshift),
        nice(phys.datablksz()),
        nice(facts.dsize()),
        nice(u64::from(dnode.slots()) * 512),
        nice(facts.lsize),
        facts.fill_percent,
        type_name(dnode.type_()),
        encodings(&phys)
    );
    writeln!(out, "{line}")?;
    let bonus_type = dnode.bonus_type();
    if bonus_type != ObjectType::NONE && dumper.verbosity > 3 {
        let size = out.nice(dnode.bonus_len() as u64);
        writeln!(out, "{:45}{size:>5}   bonus  {}", "", type_name(bonus_type))?;
    }
    if dumper.verbosity >= 4 {
        write_details(out, dumper, &facts)?;
        dumper.wants_header = true;
    }
    if dumper.verbosity >= 5 {
        write_blocks(out, &facts)?;
        write_segments(out, &facts)?;
    }
    Ok(u64::from(dnode.slots()))
}

fn encodings(phys: &phys::DnodePhys) -> String {
    let mut out = String::new();
    if phys.checksum != 0 {
        let name = ChecksumType::try_from(phys.checksum).map_or("?", ChecksumType::name);
        out += &format!(" (K={name})");
    }
    if phys.compress != 0 {
        let name = match CompressType::try_from(phys.compress) {
            Ok(CompressType::Off) => "uncompressed",
            Ok(kind) => kind.name(),
            Err(_) => "?",
        };
        out += &format!(" (Z={name})");
    }
    out
}

fn write_details(out: &mut Printer, dumper: &Dumper, facts: &Facts) -> Result<()> {
    let phys = facts.dnode.phys();
    let mut flags = String::new();
    for (bit, name) in [
        (USED_BYTES, "USED_BYTES "),
        (USERUSED_ACCOUNTED, "USERUSED_ACCOUNTED "),
        (USEROBJUSED_ACCOUNTED, "USEROBJUSED_ACCOUNTED "),
        (SPILL_BLKPTR, "SPILL_BLKPTR"),
    ] {
        if phys.flags & bit != 0 {
            flags += name;
        }
    }
    writeln!(out, "\tdnode flags: {flags}")?;
    writeln!(out, "\tdnode maxblkid: {}", phys.maxblkid.get())?;
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

fn write_blocks(out: &mut Printer, facts: &Facts) -> Result<()> {
    let phys = facts.dnode.phys();
    if facts.dnode.has_spill() {
        writeln!(
            out,
            "\nSpill block: {} bytes",
            facts.dnode.spill()?.map_or(0, |s| s.len())
        )?;
    }
    writeln!(out, "Indirect blocks:")?;
    let top = phys.nlevels.saturating_sub(1);
    for (i, bp) in facts.pointers.iter().enumerate() {
        visit(out, facts, bp, top, i as u64)?;
    }
    writeln!(out)?;
    Ok(())
}

#[doc(alias = "visit_indirect")]
fn visit(out: &mut Printer, facts: &Facts, bp: &BlkPtrPhys, level: u8, blkid: u64) -> Result<()> {
    if bp.birth().0 == 0 {
        return Ok(());
    }
    let phys = facts.dnode.phys();
    let epb_shift = u32::from(phys.indblkshift) - 7;
    let offset = (blkid << (u32::from(level) * epb_shift)) * phys.datablksz();
    let mut line = format!("{offset:16x} ");
    for l in (-1..i32::from(phys.nlevels)).rev() {
        if l == i32::from(level) {
            line += &format!("L{level:x}");
        } else {
            line.push(' ');
        }
    }
    line += &compact(bp);
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
    for i in 0..1u64 << epb_shift {
        let child = (blkid << epb_shift) + i;
        if child << (u32::from(level - 1) * epb_shift) > phys.maxblkid.get() {
            break;
        }
        match facts.dnode.block_pointer(level - 1, BlkId(child)) {
            Ok(bp) => visit(out, facts, &bp, level - 1, child)?,
            Err(error) => {
                writeln!(out, "(ERROR: {error})")?;
                break;
            }
        }
    }
    Ok(())
}

fn write_segments(out: &mut Printer, facts: &Facts) -> Result<()> {
    if facts.object.0 == 0 {
        return Ok(()); // a dnode block is made of dnodes, which the list shows
    }
    let mut at = 0;
    while let Some(start) = facts.dnode.next_data(at)? {
        let end = facts.dnode.next_hole(start)?;
        let size = out.nice(end - start);
        writeln!(out, "\t\tsegment [{start:016x}, {end:016x}) size {size:>5}")?;
        at = end;
    }
    Ok(())
}

/// An object's line as JSON.
pub(super) fn json_of(objset: &Objset, object: ObjectId) -> Result<Value> {
    let facts = Facts::of(objset, object)?;
    let phys = facts.dnode.phys();
    Ok(json!({
        "object": object.0,
        "levels": phys.nlevels,
        "iblk": 1u64 << phys.indblkshift,
        "dblk": phys.datablksz(),
        "dsize": facts.dsize(),
        "dnsize": u64::from(facts.dnode.slots()) * 512,
        "lsize": facts.lsize,
        "full": facts.fill_percent,
        "type": type_name(facts.dnode.type_()),
        "bonus_type": type_name(facts.dnode.bonus_type()),
        "bonus_size": facts.dnode.bonus_len(),
    }))
}
