//! The attributes of a file.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_znode`, `dump_znode_sa_xattr`), module/zfs/zfs_znode.c
//! (`zfs_obj_to_path`).

use std::collections::BTreeSet;
use std::io::Write;

use base::{Error, ErrorKind, ObjectId, Result};
use nvpair::NvValue;
use zap::Zap;
use zpl::{FileType, Filesystem};

use super::objects::Dumper;
use super::text::{Printer, time};

/// Directories nested deeper than this are damaged.
const DEPTH_MAX: usize = 2048;
/// The object number in a directory entry.
const DIRENT_OBJECT: u64 = 0xffff_ffff_ffff;

/// Writes the attributes of a file.
#[doc(alias = "dump_znode")]
pub(super) fn write(out: &mut Printer, dumper: &mut Dumper, id: ObjectId) -> Result<()> {
    let Some(fs) = dumper.fs.clone() else {
        return Ok(());
    };
    let attr = fs.getattr(id)?;
    if dumper.content_level > 4 {
        match path_of(&fs, id) {
            Ok(Some(path)) => {
                write!(out, "\tpath\t")?;
                out.write_all(&path)?;
                writeln!(out)?;
            }
            Ok(None) => writeln!(out, "\tpath\ton delete queue")?,
            Err(_) => {
                dumper.leaked += 1;
                writeln!(out, "\tpath\tpath not found, possibly leaked")?;
            }
        }
    }
    if attr.file_type() == Some(FileType::Symlink)
        && let Ok(target) = fs.readlink(id)
    {
        write!(out, "\ttarget\t")?;
        out.write_all(&target)?;
        writeln!(out)?;
    }
    for (name, owner) in [("uid", attr.uid), ("gid", attr.gid)] {
        match owner >> 32 {
            0 => writeln!(out, "\t{name}     {owner}")?,
            domain => {
                let rid = owner as u32;
                writeln!(out, "\t{name}     {owner:x} [domain {domain}-{rid}]")?;
            }
        }
    }
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
    if let Some(directory) = attr.xattr_dir {
        writeln!(out, "\txattr\t{directory}")?;
    }
    if matches!(
        attr.file_type(),
        Some(FileType::CharDevice | FileType::BlockDevice)
    ) {
        writeln!(out, "\trdev\t{:#018x}", attr.rdev)?;
    }
    write_xattrs(out, &fs, id)
}

/// The extended attributes stored in the system attributes.
#[doc(alias = "dump_znode_sa_xattr")]
fn write_xattrs(out: &mut Printer, fs: &Filesystem, id: ObjectId) -> Result<()> {
    let Some(packed) = fs.packed_xattrs(id)?.filter(|packed| !packed.is_empty()) else {
        return Ok(());
    };
    let list = nvpair::decode_xdr(&packed)?;
    let (bytes, entries) = (packed.len(), list.iter().count());
    writeln!(out, "\tSA xattrs: {bytes} bytes, {entries} entries\n")?;
    for (name, value) in list.iter() {
        let NvValue::ByteArray(value) = value else {
            continue;
        };
        let is_text = value.iter().all(|byte| matches!(byte, b' '..=b'~'));
        write!(out, "\t\t{name} = ")?;
        if is_text && !out.is_exact() {
            out.write_all(value)?;
        } else {
            for byte in value {
                write!(out, "\\{byte:03o}")?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

/// The path of a file, as far as its parents are known; `None` for a file whose last name was removed.
#[doc(alias = "zfs_obj_to_path")]
fn path_of(fs: &Filesystem, id: ObjectId) -> Result<Option<Vec<u8>>> {
    let lost = || Error::not_found(format!("a name of file {id}"));
    let mut path = Vec::new();
    let mut at = id;
    let mut seen = BTreeSet::new();
    while seen.len() < DEPTH_MAX && seen.insert(at) {
        let attr = fs.getattr(at)?;
        if at == fs.root() {
            path = if path.is_empty() { b"/".to_vec() } else { path };
            return Ok(Some(path));
        }
        if attr.links == 0 {
            return Ok(None);
        }
        let is_xattr_dir = attr.is_directory() && attr.pflags & zpl::pflags::XATTR != 0;
        let name = if is_xattr_dir {
            b"<xattrdir>".to_vec()
        } else {
            let directory = Zap::open(fs.objset(), attr.parent)?;
            let name = directory.value_search(at.0, DIRENT_OBJECT)?;
            name.ok_or_else(lost)?
        };
        path = [b"/", &name[..], &path].concat();
        at = attr.parent;
    }
    Err(Error::new(ErrorKind::Corrupt, "directories without an end"))
}
