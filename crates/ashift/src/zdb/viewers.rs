//! What is in an object, by its type.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_zap`, `dump_dsl_dir`, `dump_dsl_dataset`, `dump_bpobj`,
//! `dump_znode`, `dump_sa_attrs`).

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;

use base::{ObjectId, Result};
use dmu::Dnode;
use dsl::{DatasetFields, DirFields, DslDataset, Mos, Used};
use phys::{BpobjPhys, HistoryPhys, ObjectType};
use zap::Zap;
use zerocopy::{FromBytes, IntoBytes};
use zpl::Filesystem;

use super::objects::Dumper;
use super::text::{Printer, time};

/// `DD_FLAG_USED_BREAKDOWN`
const KINDS: [Used; 5] = [
    Used::Head,
    Used::Snap,
    Used::Child,
    Used::ChildRsrv,
    Used::RefRsrv,
];
const BREAKDOWN_NAMES: [&str; 5] = ["HEAD", "SNAP", "CHILD", "CHILD_RSRV", "REFRSRV"];

/// The bonus of an object.
pub(super) fn bonus(out: &mut Printer, dumper: &Dumper, dnode: &Arc<Dnode>) -> Result<()> {
    let bytes = dnode.bonus();
    match dnode.bonus_type() {
        ObjectType::DSL_DIR => dsl_dir(out, &DirFields::read(&bytes)?),
        ObjectType::DSL_DATASET => dsl_dataset(out, &DatasetFields::read(&bytes)?),
        ObjectType::BPOBJ_HDR => bpobj(out, &bytes),
        ObjectType::SPA_HISTORY_OFFSETS => history(out, &bytes),
        ObjectType::SA => match &dumper.fs {
            Some(fs) => znode(out, fs, dnode.id()),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// What an object contains.
pub(super) fn content(out: &mut Printer, dumper: &Dumper, dnode: &Arc<Dnode>) -> Result<()> {
    let type_ = dnode.type_();
    if type_ == ObjectType::PACKED_NVLIST {
        let list = spa::read_packed(&dumper.objset, dnode.id())?;
        write!(out, "{}", list.dump(8))?;
        return Ok(());
    }
    if type_.is_zap() && type_ != ObjectType::DDT_ZAP {
        return zap(out, dnode);
    }
    Ok(())
}

fn dsl_dir(out: &mut Printer, fields: &DirFields) -> Result<()> {
    writeln!(out, "\t\tcreation_time = {}", time(fields.creation_time))?;
    let numbers = [
        ("head_dataset_obj", fields.head_dataset_obj.to_string()),
        ("parent_dir_obj", fields.parent_obj.to_string()),
        ("origin_obj", fields.origin_obj.to_string()),
        ("child_dir_zapobj", fields.child_dir_zapobj.to_string()),
        ("used_bytes", out.nice(fields.used_bytes)),
        ("compressed_bytes", out.nice(fields.compressed_bytes)),
        ("uncompressed_bytes", out.nice(fields.uncompressed_bytes)),
        ("quota", out.nice(fields.quota)),
        ("reserved", out.nice(fields.reserved)),
        ("props_zapobj", fields.props_zapobj.to_string()),
        ("deleg_zapobj", fields.deleg_zapobj.to_string()),
        ("flags", format!("{:x}", fields.flags)),
    ];
    for (name, value) in numbers {
        writeln!(out, "\t\t{name} = {value}")?;
    }
    for (kind, name) in KINDS.into_iter().zip(BREAKDOWN_NAMES) {
        let used = out.nice(fields.used_by(kind));
        writeln!(out, "\t\tused_breakdown[{name}] = {used}")?;
    }
    writeln!(out, "\t\tclones = {}", fields.clones)?;
    Ok(())
}

fn dsl_dataset(out: &mut Printer, fields: &DatasetFields) -> Result<()> {
    let rows = [
        ("dir_obj", fields.dir_obj.to_string()),
        ("prev_snap_obj", fields.prev_snap_obj.to_string()),
        ("prev_snap_txg", fields.prev_snap_txg.to_string()),
        ("next_snap_obj", fields.next_snap_obj.to_string()),
        ("snapnames_zapobj", fields.snapnames_zapobj.to_string()),
        ("num_children", fields.num_children.to_string()),
        ("userrefs_obj", fields.userrefs_obj.to_string()),
        ("creation_time", time(fields.creation_time)),
        ("creation_txg", fields.creation_txg.to_string()),
        ("deadlist_obj", fields.deadlist_obj.to_string()),
        ("used_bytes", out.nice(fields.referenced_bytes)),
        ("compressed_bytes", out.nice(fields.compressed_bytes)),
        ("uncompressed_bytes", out.nice(fields.uncompressed_bytes)),
        ("unique", out.nice(fields.unique_bytes)),
        ("fsid_guid", fields.fsid_guid.to_string()),
        ("guid", fields.guid.to_string()),
        ("flags", format!("{:x}", fields.flags)),
        ("next_clones_obj", fields.next_clones_obj.to_string()),
        ("props_obj", fields.props_obj.to_string()),
        ("bp", fields.bp().to_string()),
    ];
    for (name, value) in rows {
        writeln!(out, "\t\t{name} = {value}")?;
    }
    Ok(())
}

fn bpobj(out: &mut Printer, bytes: &[u8]) -> Result<()> {
    let mut phys = BpobjPhys::default();
    let whole = phys.as_mut_bytes();
    let length = bytes.len().min(whole.len());
    whole[..length].copy_from_slice(&bytes[..length]);
    writeln!(out, "\t\tnum_blkptrs = {}", phys.num_blkptrs.get())?;
    writeln!(out, "\t\tbytes = {}", out_nice(out, phys.bytes.get()))?;
    if bytes.len() >= phys::dsl::BPOBJ_SIZE_V1 {
        writeln!(out, "\t\tcomp = {}", out_nice(out, phys.comp.get()))?;
        writeln!(out, "\t\tuncomp = {}", out_nice(out, phys.uncomp.get()))?;
    }
    if bytes.len() > phys::dsl::BPOBJ_SIZE_V1 {
        writeln!(out, "\t\tsubobjs = {}", phys.subobjs.get())?;
        writeln!(out, "\t\tnum_subobjs = {}", phys.num_subobjs.get())?;
        writeln!(out, "\t\tnum_freed = {}", phys.num_freed.get())?;
    }
    Ok(())
}

fn out_nice(out: &Printer, number: u64) -> String {
    out.nice(number)
}

fn history(out: &mut Printer, bytes: &[u8]) -> Result<()> {
    let Ok((phys, _)) = HistoryPhys::read_from_prefix(bytes) else {
        return Ok(());
    };
    writeln!(out, "\t\tpool_create_len = {}", phys.pool_create_len.get())?;
    writeln!(out, "\t\tphys_max_off = {}", phys.phys_max_off.get())?;
    writeln!(out, "\t\tbof = {}", phys.bof.get())?;
    writeln!(out, "\t\teof = {}", phys.eof.get())?;
    writeln!(out, "\t\trecords_lost = {}", phys.records_lost.get())?;
    Ok(())
}

/// The path of a file, as far as its parents know it.
fn path_of(fs: &Filesystem, id: ObjectId) -> Result<String> {
    let mut parts = Vec::new();
    let mut at = id;
    while at != fs.root() && parts.len() < 1000 {
        let parent = fs.getattr(at)?.parent;
        let zap = Zap::open(fs.objset(), parent)?;
        let name = zap.value_search(at.0, 0xffff_ffff_ffff)?;
        let Some(name) = name else {
            return Ok("???<object not found>".to_owned());
        };
        parts.push(String::from_utf8_lossy(&name).into_owned());
        at = parent;
    }
    parts.reverse();
    Ok(format!("/{}", parts.join("/")))
}

#[doc(alias = "dump_znode")]
fn znode(out: &mut Printer, fs: &Filesystem, id: ObjectId) -> Result<()> {
    let attr = fs.getattr(id)?;
    let path = path_of(fs, id).unwrap_or_else(|e| format!("???<{e}>"));
    writeln!(out, "\tpath\t{path}")?;
    writeln!(out, "\tuid     {}", attr.uid as u32)?;
    writeln!(out, "\tgid     {}", attr.gid as u32)?;
    for (name, at) in [
        ("atime", attr.atime),
        ("mtime", attr.mtime),
        ("ctime", attr.ctime),
        ("crtime", attr.crtime),
    ] {
        writeln!(out, "\t{name}\t{}", time(at.secs.max(0) as u64))?;
    }
    writeln!(out, "\tgen\t{}", attr.generation)?;
    writeln!(out, "\tmode\t{:o}", attr.mode)?;
    writeln!(out, "\tsize\t{}", attr.size)?;
    writeln!(out, "\tparent\t{}", attr.parent)?;
    writeln!(out, "\tlinks\t{}", attr.links)?;
    writeln!(out, "\tpflags\t{:x}", attr.pflags)?;
    if attr.pflags & zpl::pflags::PROJID != 0 {
        writeln!(out, "\tprojid\t{}", attr.projid)?;
    }
    if let Ok(target) = fs.readlink(id) {
        writeln!(out, "\ttarget\t{}", String::from_utf8_lossy(&target))?;
    }
    Ok(())
}

#[doc(alias = "dump_zap")]
fn zap(out: &mut Printer, dnode: &Arc<Dnode>) -> Result<()> {
    let zap = Zap::new(dnode.clone())?;
    let stats = zap.stats()?;
    if stats.is_micro {
        let (bytes, entries) = (stats.block_bytes, stats.entries);
        writeln!(out, "\tmicrozap: {bytes} bytes, {entries} entries\n")?;
    } else {
        writeln!(out, "\tFat ZAP stats:")?;
        writeln!(out, "\t\tPointer table:")?;
        writeln!(out, "\t\t\t{} elements", 1u64 << stats.table_shift)?;
        writeln!(out, "\t\t\tzt_blk: {}", stats.table_blk)?;
        writeln!(out, "\t\t\tzt_numblks: {}", stats.table_blocks)?;
        writeln!(out, "\t\t\tzt_shift: {}", stats.table_shift)?;
        writeln!(out, "\t\t\tzt_blks_copied: {}", stats.table_blks_copied)?;
        writeln!(out, "\t\t\tzt_nextblk: {}", stats.table_nextblk)?;
        writeln!(out, "\t\tZAP entries: {}", stats.entries)?;
        writeln!(out, "\t\tLeaf blocks: {}", stats.leafs)?;
        writeln!(out, "\t\tTotal blocks: {}", stats.blocks)?;
        writeln!(out, "\t\tzap_block_type: {:#x}", phys::zap::ZBT_HEADER)?;
        writeln!(out, "\t\tzap_magic: {:#x}", phys::zap::ZAP_MAGIC)?;
        writeln!(out, "\t\tzap_salt: {:#x}\n", stats.salt)?;
    }
    for entry in &zap {
        writeln!(out, "{}", entry_line(&zap, dnode.type_(), &entry?)?)?;
    }
    Ok(())
}

fn entry_line(zap: &Zap, type_: ObjectType, entry: &zap::Entry) -> Result<String> {
    let name = entry.name_str();
    let mut line = format!("\t\t{name} = ");
    let first = entry.first_integer;
    if type_ == ObjectType::DIRECTORY_CONTENTS {
        let object = first & 0xffff_ffff_ffff;
        let _ = write!(line, "{object} (type: {})", file_type(first >> 60));
        return Ok(line);
    }
    if type_ == ObjectType::SA_ATTR_REGISTRATION {
        let (length, swap, number) = (first >> 24 & 0xffff, first >> 16 & 0xff, first & 0xffff);
        let _ = write!(line, " {first:x} : [{length}:{swap}:{number}]");
        return Ok(line);
    }
    match entry.integer_size {
        _ if entry.num_integers == 0 => {}
        1 => {
            let bytes = zap.lookup::<u8>(&entry.name[..])?.unwrap_or_default();
            push_bytes(&mut line, &bytes, &name);
        }
        2 => {
            let words = zap.lookup::<u16>(&entry.name[..])?.unwrap_or_default();
            let is_layout = type_ == ObjectType::SA_ATTR_LAYOUTS;
            line.push_str(if is_layout { "[" } else { "" });
            for word in words {
                let _ = write!(line, " {word} ");
            }
            line.push_str(if is_layout { "]" } else { "" });
        }
        4 => {
            for word in zap.lookup::<u32>(&entry.name[..])?.unwrap_or_default() {
                let _ = write!(line, "{word} ");
            }
        }
        _ if entry.num_integers == 1 => {
            let _ = write!(line, "{first} ");
        }
        _ => {
            for word in zap.lookup::<u64>(&entry.name[..])?.unwrap_or_default() {
                let _ = write!(line, "{word} ");
            }
        }
    }
    Ok(line)
}

fn push_bytes(line: &mut String, bytes: &[u8], name: &str) {
    let is_key = name.ends_with(":checksum_salt") || name.contains("DSL_CRYPTO");
    match bytes.split_last() {
        Some((0, text)) if !is_key => line.push_str(&String::from_utf8_lossy(text)),
        _ => bytes.iter().for_each(|byte| {
            let _ = write!(line, "{byte:02x}");
        }),
    }
}

fn file_type(raw: u64) -> &'static str {
    match raw {
        1 => "FIFO",
        2 => "Character Device",
        4 => "Directory",
        6 => "Block Device",
        8 => "Regular File",
        10 => "Symbolic Link",
        12 => "Socket",
        13 => "Door",
        14 => "Event Port",
        _ => "not specified",
    }
}

/// The deadlist of a data set: sums, and the list of each key.
pub(super) fn deadlist(out: &mut Printer, mos: &Arc<Mos>, dataset: &Arc<DslDataset>) -> Result<()> {
    let object = ObjectId(dataset.fields().deadlist_obj);
    let mut list = dsl::Deadlist::open(mos, object)?;
    let (space, entries) = (list.space()?, list.entries()?);
    writeln!(
        out,
        "\n    Deadlist: {} ({}/{} comp), {} entries\n",
        out_nice(out, space.used as u64),
        out_nice(out, space.comp as u64),
        out_nice(out, space.uncomp as u64),
        entries.len()
    )?;
    for (key, bpobj) in entries {
        writeln!(out, "mintxg {key} -> obj {bpobj}")?;
    }
    Ok(())
}
