//! ZAPs: how full they are, and their entries.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_zap_stats`, `dump_zap`, `dump_zpldir`, `dump_sa_attrs`,
//! `dump_sa_layouts`).

use std::io::Write;
use std::sync::Arc;

use base::Result;
use dmu::Dnode;
use phys::ObjectType;
use phys::zap::{ZAP_MAGIC, ZBT_HEADER};
use zap::{Entry, Key, Zap};

use super::text::Printer;

/// Entries whose values are bytes, not text.
const SECRETS: [&[u8]; 5] = [
    b"DSL_CRYPTO_MASTER_KEY_1",
    b"DSL_CRYPTO_HMAC_KEY_1",
    b"DSL_CRYPTO_IV",
    b"DSL_CRYPTO_MAC",
    phys::pool_names::CHECKSUM_SALT.as_bytes(),
];
/// `ZFS_DIRENT_TYPE`: names of the types in directory entries.
const FILE_TYPES: [&str; 16] = [
    "not specified",
    "FIFO",
    "Character Device",
    "3 (invalid)",
    "Directory",
    "5 (invalid)",
    "Block Device",
    "7 (invalid)",
    "Regular File",
    "9 (invalid)",
    "Symbolic Link",
    "11 (invalid)",
    "Socket",
    "Door",
    "Event Port",
    "15 (invalid)",
];

/// Writes a ZAP of this type.
pub(super) fn write(out: &mut Printer, dnode: &Arc<Dnode>, type_: ObjectType) -> Result<()> {
    let zap = Zap::new(dnode.clone())?;
    write_stats(out, &zap)?;
    if type_ == ObjectType::DDT_ZAP {
        return Ok(()); // entries of the dedup table are shown elsewhere
    }
    writeln!(out)?;
    for entry in &zap {
        let entry = entry?;
        match type_ {
            ObjectType::DIRECTORY_CONTENTS => write_dirent(out, &entry)?,
            ObjectType::SA_ATTR_REGISTRATION => write_attribute(out, &entry)?,
            ObjectType::SA_ATTR_LAYOUTS => write_layout(out, &zap, &entry)?,
            _ => write_entry(out, &zap, &entry)?,
        }
    }
    Ok(())
}

#[doc(alias = "dump_zap_stats")]
fn write_stats(out: &mut Printer, zap: &Zap) -> Result<()> {
    let stats = zap.stats()?;
    if stats.is_micro {
        let (bytes, entries) = (stats.block_bytes, stats.entries);
        writeln!(out, "\tmicrozap: {bytes} bytes, {entries} entries")?;
        return Ok(());
    }
    let histograms = zap.leaf_histograms()?;
    let table_shift = stats.table_shift.min(63);
    writeln!(out, "\tFat ZAP stats:\n\t\tPointer table:")?;
    writeln!(out, "\t\t\t{} elements", 1u64 << table_shift)?;
    for (name, value) in [
        ("zt_blk", stats.table_blk),
        ("zt_numblks", stats.table_blocks),
        ("zt_shift", stats.table_shift),
        ("zt_blks_copied", stats.table_blks_copied),
        ("zt_nextblk", stats.table_nextblk),
    ] {
        writeln!(out, "\t\t\t{name}: {value}")?;
    }
    writeln!(out, "\t\tZAP entries: {}", stats.entries)?;
    writeln!(out, "\t\tLeaf blocks: {}", stats.leafs)?;
    writeln!(out, "\t\tTotal blocks: {}", stats.blocks)?;
    writeln!(out, "\t\tzap_block_type: {ZBT_HEADER:#x}")?;
    writeln!(out, "\t\tzap_magic: {ZAP_MAGIC:#x}")?;
    writeln!(out, "\t\tzap_salt: {:#x}", stats.salt)?;
    for (name, histogram) in [
        ("Leafs with 2^n pointers", histograms.leafs_with_2n_pointers),
        ("Blocks with n*5 entries", histograms.blocks_with_n5_entries),
        ("Blocks n/10 full", histograms.blocks_n_tenths_full),
        ("Entries with n chunks", histograms.entries_using_n_chunks),
        ("Buckets with n entries", histograms.buckets_with_n_entries),
    ] {
        writeln!(out, "\t\t{name}:")?;
        out.histogram(&histogram, 0)?;
    }
    Ok(())
}

fn write_dirent(out: &mut Printer, entry: &Entry) -> Result<()> {
    let object = entry.first_integer & 0xffff_ffff_ffff;
    let type_ = FILE_TYPES[(entry.first_integer >> 60) as usize];
    write_name(out, entry)?;
    writeln!(out, "{object} (type: {type_})")?;
    Ok(())
}

fn write_name(out: &mut Printer, entry: &Entry) -> Result<()> {
    write!(out, "\t\t")?;
    out.write_all(&entry.name)?;
    write!(out, " = ")?;
    Ok(())
}

fn write_attribute(out: &mut Printer, entry: &Entry) -> Result<()> {
    let word = entry.first_integer;
    let (length, swap, number) = (word >> 24 & 0xffff, word >> 16 & 0xff, word & 0xffff);
    write_name(out, entry)?;
    if entry.num_integers > 0 {
        write!(out, " {word:x} : [{length}:{swap}:{number}]")?;
    }
    writeln!(out)?;
    Ok(())
}

fn write_layout(out: &mut Printer, zap: &Zap, entry: &Entry) -> Result<()> {
    write_name(out, entry)?;
    write!(out, "[")?;
    if entry.num_integers > 0 {
        for word in zap.lookup::<u16>(&entry.name[..])?.unwrap_or_default() {
            write!(out, " {word} ")?;
        }
        write!(out, "]")?;
    }
    writeln!(out)?;
    Ok(())
}

#[doc(alias = "dump_zap")]
fn write_entry(out: &mut Printer, zap: &Zap, entry: &Entry) -> Result<()> {
    let has_words = zap.stats()?.flags.contains(zap::Flags::UINT64_KEY);
    let words = entry.words();
    let key = if has_words {
        // The `x` after the number is OpenZFS's.
        write!(out, "\t\t0x{:010}x = ", words.first().copied().unwrap_or(0))?;
        Key::Words(&words)
    } else {
        write_name(out, entry)?;
        Key::from(&entry.name[..])
    };
    match entry.integer_size {
        _ if entry.num_integers == 0 => {}
        1 if !has_words => {
            let bytes = zap.lookup::<u8>(key)?.unwrap_or_default();
            if SECRETS.contains(&&entry.name[..]) {
                for byte in bytes {
                    write!(out, "{byte:02x}")?;
                }
            } else {
                let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
                out.write_all(&bytes[..end])?;
            }
        }
        1 => write_numbers(out, zap.lookup::<u8>(key)?.unwrap_or_default())?,
        2 => write_numbers(out, zap.lookup::<u16>(key)?.unwrap_or_default())?,
        4 => write_numbers(out, zap.lookup::<u32>(key)?.unwrap_or_default())?,
        _ => {
            let words = zap.lookup::<u64>(key)?.unwrap_or_default();
            write_numbers(out, words.into_iter().map(|word| word as i64))?;
        }
    }
    writeln!(out)?;
    Ok(())
}

fn write_numbers<T: std::fmt::Display>(
    out: &mut Printer,
    numbers: impl IntoIterator<Item = T>,
) -> Result<()> {
    for number in numbers {
        write!(out, "{number} ")?;
    }
    Ok(())
}
