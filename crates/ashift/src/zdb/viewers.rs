//! The contents of an object, by its type.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`object_viewer`, `dump_dsl_dir`, `dump_dsl_dataset`, `dump_bpobj`,
//! `dump_uint64`).

use std::io::Write as _;
use std::sync::Arc;

use base::Result;
use dmu::Dnode;
use dsl::{DatasetFields, DirFields, Used};
use phys::{BlkPtrPhys, BpobjPhys, HistoryPhys, ObjectType};
use zerocopy::{FromBytes, IntoBytes};

use super::objects::Dumper;
use super::text::{Printer, time};
use super::{zaps, znodes};

const KINDS: [Used; 5] = [
    Used::Head,
    Used::Snap,
    Used::Child,
    Used::ChildRsrv,
    Used::RefRsrv,
];
const BREAKDOWN_NAMES: [&str; 5] = ["HEAD", "SNAP", "CHILD", "CHILD_RSRV", "REFRSRV"];
/// Offset of blk_fill in a block pointer, in bytes.
const FILL_OFFSET: usize = 88;
/// Bytes of an array that are shown.
const ARRAY_BYTES_MAX: u64 = 1 << 20;

/// The type that decides how an object is shown: one for several similar types.
#[doc(alias = "ZDB_OT_TYPE")]
fn shown_as(type_: ObjectType) -> Option<ObjectType> {
    let raw = u8::from(type_);
    if raw & ObjectType::NEWTYPE == 0 {
        return Some(type_);
    }
    match (type_.name(), type_.is_encrypted()) {
        ("zap", false) => Some(ObjectType::ZAP_OTHER),
        ("uint64", false) => Some(ObjectType::UINT64_OTHER),
        _ => None,
    }
}

/// The bonus of an object.
pub(super) fn bonus(out: &mut Printer, dumper: &mut Dumper, dnode: &Arc<Dnode>) -> Result<()> {
    let bytes = dnode.bonus();
    let Some(type_) = shown_as(dnode.bonus_type()) else {
        writeln!(out, "\tUNKNOWN OBJECT TYPE")?;
        return Ok(());
    };
    match type_ {
        ObjectType::DSL_DIR => dsl_dir(out, &DirFields::read(&bytes)?),
        ObjectType::DSL_DATASET => dsl_dataset(out, &DatasetFields::read(&bytes)?),
        ObjectType::BPOBJ_HDR => bpobj(out, dumper, dnode, &bytes),
        ObjectType::SPA_HISTORY_OFFSETS => history(out, &bytes),
        ObjectType::PACKED_NVLIST_SIZE | ObjectType::FUID_SIZE => {
            let list = spa::read_packed(&dumper.objset, dnode.id())?;
            write!(out, "{}", list.dump(8))?;
            Ok(())
        }
        ObjectType::SA | ObjectType::ZNODE => znodes::write(out, dumper, dnode.id()),
        ObjectType::OBJECT_ARRAY | ObjectType::UINT64_OTHER => {
            numbers(out, dumper, &bytes, bytes.len() as u64)
        }
        _ => Ok(()),
    }
}

/// The contents of an object.
pub(super) fn content(out: &mut Printer, dumper: &Dumper, dnode: &Arc<Dnode>) -> Result<()> {
    let Some(type_) = shown_as(dnode.type_()) else {
        writeln!(out, "\tUNKNOWN OBJECT TYPE")?;
        return Ok(());
    };
    match type_ {
        ObjectType::OBJECT_ARRAY | ObjectType::UINT64_OTHER => array(out, dumper, dnode),
        ObjectType::BPOBJ_SUBOBJ => subobjs(out, dnode),
        type_ if type_.is_zap() => zaps::write(out, dnode, type_),
        _ => Ok(()),
    }
}

/// Bytes of an object, up to the end of its last possible block.
pub(super) fn length(dnode: &Dnode) -> u64 {
    let phys = dnode.phys();
    let blocks = phys.maxblkid.get().saturating_add(1);
    blocks.saturating_mul(phys.datablksz())
}

fn array(out: &mut Printer, dumper: &Dumper, dnode: &Dnode) -> Result<()> {
    if dumper.content_level < 6 {
        return Ok(());
    }
    let size = length(dnode);
    let mut bytes = vec![0; size.min(ARRAY_BYTES_MAX) as usize];
    dnode.read(0, &mut bytes)?;
    numbers(out, dumper, &bytes, size)
}

/// Words, four per line; `size`: bytes in total.
#[doc(alias = "dump_uint64")]
fn numbers(out: &mut Printer, dumper: &Dumper, bytes: &[u8], size: u64) -> Result<()> {
    if dumper.content_level < 6 {
        return Ok(());
    }
    if size == 0 {
        writeln!(out, "\t\t[]")?;
        return Ok(());
    }
    write!(out, "\t\t[")?;
    for (i, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
        let between = match i {
            0 => "",
            _ if i % 4 != 0 => ", ",
            _ => ",\n\t\t",
        };
        write!(out, "{between}{:x}", u64::from_le_bytes(*word))?;
    }
    let more = if (bytes.len() as u64) < size {
        ", ... "
    } else {
        ""
    };
    writeln!(out, "{more}]")?;
    Ok(())
}

/// The bpobjs within a bpobj, up to the last one that exists.
#[doc(alias = "dump_bpobj_subobjs")]
fn subobjs(out: &mut Printer, dnode: &Dnode) -> Result<()> {
    let mut bytes = vec![0; length(dnode).min(ARRAY_BYTES_MAX) as usize];
    dnode.read(0, &mut bytes)?;
    let words: Vec<u64> = bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|w| u64::from_le_bytes(*w))
        .collect();
    let used = words
        .iter()
        .rposition(|word| *word != 0)
        .map_or(0, |last| last + 1);
    for word in &words[..used] {
        writeln!(out, "\t{word}")?;
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

fn bpobj(out: &mut Printer, dumper: &Dumper, dnode: &Dnode, bytes: &[u8]) -> Result<()> {
    let mut phys = BpobjPhys::default();
    let whole = phys.as_mut_bytes();
    let known = bytes.len().min(whole.len());
    whole[..known].copy_from_slice(&bytes[..known]);
    let count = phys.num_blkptrs.get();
    writeln!(out, "\t\tnum_blkptrs = {count}")?;
    writeln!(out, "\t\tbytes = {}", out.nice(phys.bytes.get()))?;
    // All fields, whatever the length of the bonus: there is always space for them.
    writeln!(out, "\t\tcomp = {}", out.nice(phys.comp.get()))?;
    writeln!(out, "\t\tuncomp = {}", out.nice(phys.uncomp.get()))?;
    writeln!(out, "\t\tsubobjs = {}", phys.subobjs.get())?;
    writeln!(out, "\t\tnum_subobjs = {}", phys.num_subobjs.get())?;
    writeln!(out, "\t\tnum_freed = {}", phys.num_freed.get())?;
    if dumper.content_level < 5 {
        return Ok(());
    }
    let size = size_of::<BlkPtrPhys>();
    // The header may claim more pointers than exist.
    let there = length(dnode) / size as u64;
    let count = count.min(there);
    dnode.check_dense(0, count * size as u64)?;
    for index in 0..count {
        let mut bytes = vec![0; size];
        dnode.read(index.saturating_mul(size as u64), &mut bytes)?;
        let Ok(bp) = BlkPtrPhys::read_from_bytes(&bytes) else {
            break;
        };
        // blk_fill is not a count here: its lowest bit says "freed".
        let is_freed = bp.as_bytes()[FILL_OFFSET] & 1 != 0;
        writeln!(out, "\t{}", out.compact(&bp, is_freed))?;
    }
    Ok(())
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
