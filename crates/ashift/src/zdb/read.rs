//! `zdb -R`: bytes of a vdev, as they are or as a block.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`zdb_read_block`, `zdb_vdev_lookup`, `zdb_decompress_block`).

use std::io::Write;
use std::sync::Arc;

use base::{Result, Txg, VdevId};
use phys::gang::gang_nblkptrs;
use phys::label::{LABEL_END_SIZE, LABEL_START_SIZE};
use phys::{BlkPtrPhys, ChecksumType, CompressType};
use vdev::{Vdev, VdevKind};
use zerocopy::FromBytes;
use zio::{Io, Priority, VdevOps};

use super::pool::Pool;
use super::text::Printer;

/// The largest block, in bytes.
const BYTES_MAX: u64 = base::SPA_MAXBLOCKSIZE;
/// `DEV_BSIZE`
const SECTOR: u64 = 512;
/// Bytes of a block pointer.
const POINTER_BYTES: usize = size_of::<BlkPtrPhys>();
/// The compressions tried on a block of unknown compression, in this order.
const ENCODINGS: [CompressType; 4] = [
    CompressType::Lz4,
    CompressType::Lzjb,
    CompressType::Gzip1,
    CompressType::Zstd,
];

/// `ZDB_FLAG_*`: what to do with the bytes.
#[derive(Default)]
struct Flags {
    pointer: bool,
    checksums: bool,
    decompress: bool,
    swap: bool,
    gang: bool,
    indirect: bool,
    raw: bool,
    verbose: bool,
    /// Offset of the block pointer to show, in bytes.
    pointer_offset: u64,
}

impl Flags {
    fn slot(&mut self, letter: char) -> Option<&mut bool> {
        Some(match letter {
            'b' => &mut self.pointer,
            'c' => &mut self.checksums,
            'd' => &mut self.decompress,
            'e' => &mut self.swap,
            'g' => &mut self.gang,
            'i' => &mut self.indirect,
            'r' => &mut self.raw,
            'v' => &mut self.verbose,
            _ => return None,
        })
    }

    /// Parses the flag letters; `b` may be followed by an offset; errors go to `out`. `None` if they are
    /// invalid.
    fn parse(text: &str, out: &mut Printer) -> Result<Option<Flags>> {
        let mut flags = Flags::default();
        let mut found = false;
        let letters: Vec<char> = text.chars().collect();
        let mut at = 0;
        while let Some(letter) = letters.get(at).copied() {
            at += 1;
            let Some(slot) = flags.slot(letter) else {
                writeln!(out, "***Ignoring flag: {letter}")?;
                continue;
            };
            *slot = true;
            found = true;
            let is_flag = |next: &char| Flags::default().slot(*next).is_some();
            let digits: String = letters[at..].iter().take_while(|n| !is_flag(n)).collect();
            if digits.is_empty() {
                continue;
            }
            if letter == 'b' {
                at += digits.chars().count();
                flags.pointer_offset = hex(&digits);
            } else {
                let next = letters[at];
                writeln!(out, "***Ignoring flag arg: '{next}'")?;
            }
        }
        if !flags.pointer_offset.is_multiple_of(POINTER_BYTES as u64) {
            let offset = flags.pointer_offset;
            writeln!(
                out,
                "Block pointer offset {offset:#x} must be divisible by {POINTER_BYTES:#x}"
            )?;
            return Ok(None);
        }
        if !found && !text.is_empty() {
            writeln!(out, "Invalid flag arg: '{text}'")?;
            return Ok(None);
        }
        Ok(Some(flags))
    }
}

/// The leading hexadecimal number (`strtoull`).
fn hex(text: &str) -> u64 {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let end = digits
        .find(|c: char| !c.is_ascii_hexdigit())
        .unwrap_or(digits.len());
    u64::from_str_radix(&digits[..end], 16).unwrap_or(if end == 0 { 0 } else { u64::MAX })
}

/// `zdb -R POOL BLOCK…`.
pub(super) fn run(out: &mut Printer, pool: &Pool, blocks: &[String]) -> Result<u8> {
    for block in blocks {
        read_block(out, pool, block)?;
    }
    Ok(0)
}

/// `vdev:offset:[lsize/]psize[:flags]`; errors in it are printed on stdout.
fn read_block(out: &mut Printer, pool: &Pool, text: &str) -> Result<()> {
    let mut parts = text.split(':').filter(|part| !part.is_empty());
    let vdev = parts.next().unwrap_or("");
    let offset = hex(parts.next().unwrap_or(""));
    let sizes = parts.next().unwrap_or("");
    let flags = parts.next().unwrap_or("");
    let (lsize, psize) = match sizes.split_once('/') {
        Some((lsize, psize)) => (hex(lsize), hex(psize)),
        None => (hex(sizes), hex(sizes)),
    };
    let mut complaint = None;
    if lsize < psize || psize == 0 {
        complaint = Some("invalid size(s)");
    }
    if !psize.is_multiple_of(SECTOR) || !lsize.is_multiple_of(SECTOR) {
        complaint = Some("size must be a multiple of sector size");
    }
    if !offset.is_multiple_of(SECTOR) {
        complaint = Some("offset must be a multiple of sector size");
    }
    if let Some(complaint) = complaint {
        writeln!(out, "Invalid block specifier: {text}  - {complaint}")?;
        return Ok(());
    }
    let Some(flags) = Flags::parse(flags, out)? else {
        return Ok(());
    };
    let root = pool.parts().tree().root();
    let Some((vdev, top)) = lookup(&root, vdev) else {
        writeln!(out, "***Invalid vdev: {vdev}")?;
        return Ok(());
    };
    out.flush()?;
    match &vdev.config().path {
        Some(path) => eprintln!("Found vdev: {path}"),
        None => eprintln!("Found vdev type: {}", vdev.kind().word()),
    }
    match read(pool, &vdev, top, offset, psize) {
        Some(bytes) if lsize <= BYTES_MAX => show(out, pool, text, &flags, lsize, &bytes),
        _ => {
            /// `EIO`
            const ERROR: i32 = 5;
            writeln!(out, "Read of {text} failed, error: {ERROR}")?;
            Ok(())
        }
    }
}

/// A vdev by its path, by the last part of its path, or by its position in the tree; with its id if it is a
/// top-level vdev.
#[doc(alias = "zdb_vdev_lookup")]
fn lookup(root: &Arc<Vdev>, text: &str) -> Option<(Arc<Vdev>, Option<VdevId>)> {
    let is_place = text
        .split('.')
        .all(|part| part.bytes().all(|b| b.is_ascii_digit()));
    let is_place = is_place && text.starts_with(|c: char| c.is_ascii_digit());
    if !is_place {
        let is_it = |vdev: &Arc<Vdev>| {
            let path = vdev.config().path.clone();
            path.is_some_and(|path| path == text || path.rsplit('/').next() == Some(text))
        };
        let found = root.devices().into_iter().find(is_it)?;
        let top = root
            .children()
            .iter()
            .position(|top| Arc::ptr_eq(top, &found));
        return Some((found, top.map(|i| VdevId(i as u64))));
    }
    let mut at = Arc::clone(root);
    let mut top = None;
    for (depth, part) in text.split('.').enumerate() {
        let index: usize = part.parse().ok()?;
        let child = Arc::clone(at.children().get(index)?);
        top = (depth == 0).then_some(VdevId(index as u64));
        at = child;
    }
    Some((at, top))
}

/// Bytes of a top-level vdev, or of a device below it.
fn read(
    pool: &Pool,
    vdev: &Arc<Vdev>,
    top: Option<VdevId>,
    offset: u64,
    psize: u64,
) -> Option<Vec<u8>> {
    if psize > BYTES_MAX {
        return None;
    }
    let mut bytes = vec![0; psize as usize];
    let done = match top {
        Some(id) => {
            let io = Io::speculative(Txg(0));
            pool.parts()
                .tree()
                .read(&io, id, offset, &mut bytes, &|_| true)
        }
        None if vdev.children().is_empty() && vdev.kind() != VdevKind::Hole => {
            let at = offset.checked_add(LABEL_START_SIZE)?;
            let end = at.checked_add(psize)?;
            if end > vdev.leaf().psize().saturating_sub(LABEL_END_SIZE) {
                return None;
            }
            vdev.leaf().read(Priority::SyncRead, at, &mut bytes)
        }
        None => return None,
    };
    done.ok().map(|()| bytes)
}

fn show(
    out: &mut Printer,
    pool: &Pool,
    text: &str,
    flags: &Flags,
    lsize: u64,
    physical: &[u8],
) -> Result<()> {
    let at = flags.pointer_offset as usize;
    let mut bytes = physical.to_vec();
    if flags.decompress {
        let Some(plain) = decompress(out, physical, lsize, flags)? else {
            writeln!(out, "Decompress of {text} failed")?;
            return Ok(());
        };
        bytes = plain;
    } else {
        bytes.resize(lsize as usize, 0);
        let wants_pointers = flags.pointer || flags.indirect;
        if wants_pointers && !is_pointer(pool, &bytes, at) {
            let plain = decompress(out, physical, lsize, flags)?;
            match plain.filter(|plain| is_pointer(pool, plain, at)) {
                Some(plain) => bytes = plain,
                None => {
                    writeln!(out, "invalid block pointer at this DVA")?;
                    return Ok(());
                }
            }
        }
    }
    if flags.pointer {
        let pointer = bytes.get(at..at + POINTER_BYTES).unwrap_or_default();
        write_pointers(out, pointer, 1, flags)?;
    } else if flags.raw {
        if flags.swap {
            swap_words(&mut bytes);
        }
        out.write_all(&bytes)?;
    } else if flags.indirect {
        write_pointers(out, &bytes, lsize as usize / POINTER_BYTES, flags)?;
    } else if flags.gang {
        // Sizes are whole sectors.
        let pointers = gang_nblkptrs(lsize as usize);
        write_pointers(out, &bytes, pointers, flags)?;
    } else {
        write_dump(out, text, &bytes, flags)?;
    }
    if flags.checksums && !flags.raw && !flags.gang {
        write_checksums(out, pool, physical, lsize)?;
    }
    Ok(())
}

/// Whether the bytes contain a plausible block pointer at `at`.
#[doc(alias = "zfs_blkptr_verify")]
fn is_pointer(pool: &Pool, bytes: &[u8], at: usize) -> bool {
    let bytes = bytes.get(at..).and_then(|rest| rest.get(..POINTER_BYTES));
    let bp = bytes.and_then(|bytes| BlkPtrPhys::read_from_bytes(bytes).ok());
    let Some(bp) = bp else {
        return false;
    };
    if phys::ObjectType::try_from(bp.object_type()).is_err()
        || CompressType::try_from(bp.compress()).is_err()
    {
        return false;
    }
    if bp.is_embedded() {
        return bp.embedded_payload().is_ok();
    }
    ChecksumType::try_from(bp.checksum()).is_ok()
        && bp.lsize() <= BYTES_MAX
        && bp.dvas().all(|dva| {
            let end = dva.offset().checked_add(dva.asize());
            let top = pool.parts().tree().top(dva.vdev());
            top.is_some_and(|top| end.is_some_and(|end| end <= top.config().asize))
        })
}

/// Tries every compression with every possible logical size of the block.
#[doc(alias = "zdb_decompress_block")]
fn decompress(
    out: &mut Printer,
    physical: &[u8],
    lsize: u64,
    flags: &Flags,
) -> Result<Option<Vec<u8>>> {
    let psize = physical.len() as u64;
    let (first, last) = if lsize == psize {
        (lsize + SECTOR, BYTES_MAX)
    } else {
        (lsize, lsize)
    };
    let mut size = first;
    while size <= last {
        for kind in ENCODINGS {
            if let Some(plain) = try_decompress(physical, size, kind, flags) {
                return Ok(Some(plain));
            }
        }
        size += SECTOR;
    }
    if crate::caller::var_os("ZDB_NO_ZLE").is_some() {
        return Ok(None);
    }
    let mut size = lsize;
    while size <= last {
        if let Some(plain) = try_decompress(physical, size, CompressType::Zle, flags) {
            writeln!(
                out,
                "\nZLE decompression was selected. If you suspect the results are wrong,\ntry \
                 avoiding ZLE by setting and exporting ZDB_NO_ZLE=\"true\""
            )?;
            return Ok(Some(plain));
        }
        size += SECTOR;
    }
    Ok(None)
}

fn try_decompress(
    physical: &[u8],
    size: u64,
    kind: CompressType,
    flags: &Flags,
) -> Option<Vec<u8>> {
    if flags.verbose {
        let psize = physical.len();
        eprintln!("Trying {psize:05x} -> {size:05x} ({})", kind.name());
    }
    // Two different initial fills reveal bytes that were not written.
    let [mut a, mut b] = [0, 0xff].map(|fill| vec![fill; size as usize]);
    compress::decompress(kind, physical, &mut a).ok()?;
    compress::decompress(kind, physical, &mut b).ok()?;
    (a == b).then_some(a)
}

fn swap_words(bytes: &mut [u8]) {
    for word in bytes.as_chunks_mut::<8>().0 {
        word.reverse();
    }
}

fn write_pointers(out: &mut Printer, bytes: &[u8], count: usize, flags: &Flags) -> Result<()> {
    for chunk in bytes.chunks_exact(POINTER_BYTES).take(count) {
        let mut chunk = chunk.to_vec();
        if flags.swap {
            swap_words(&mut chunk);
        }
        if let Ok(bp) = BlkPtrPhys::read_from_bytes(&chunk) {
            writeln!(out, "{bp}")?;
        }
    }
    Ok(())
}

/// Bytes in their order on disk or, with `flags.swap`, reversed in words of 8 bytes.
#[doc(alias = "zdb_dump_block")]
fn write_dump(out: &mut Printer, text: &str, bytes: &[u8], flags: &Flags) -> Result<()> {
    let heading = if flags.swap {
        " 7 6 5 4 3 2 1 0   f e d c b a 9 8"
    } else {
        " 0 1 2 3 4 5 6 7   8 9 a b c d e f"
    };
    writeln!(out, "\n{text}\n         {heading}  0123456789abcdef")?;
    for (i, row) in bytes.chunks(16).enumerate() {
        let mut words = row.as_chunks::<8>().0.iter().map(|word| {
            if flags.swap {
                u64::from_le_bytes(*word)
            } else {
                u64::from_be_bytes(*word)
            }
        });
        let (a, b) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
        let is_print = |byte: &u8| matches!(byte, b' '..=b'~');
        let ascii: String = row
            .iter()
            .map(|byte| if is_print(byte) { *byte as char } else { '.' })
            .collect();
        writeln!(out, "{:06x}:  {a:016x}  {b:016x}  {ascii}", i * 16)?;
    }
    Ok(())
}

/// Prints the bytes' checksum for each checksum algorithm.
fn write_checksums(out: &mut Printer, pool: &Pool, physical: &[u8], lsize: u64) -> Result<()> {
    let mut bytes = physical.to_vec();
    bytes.resize(lsize as usize, 0);
    let salt = spa_salt(pool)?;
    writeln!(out)?;
    for raw in ChecksumType::Label.raw()..=ChecksumType::Blake3.raw() {
        let Ok(kind) = ChecksumType::try_from(raw) else {
            continue;
        };
        if kind.is_embedded() || kind == ChecksumType::NoParity {
            continue;
        }
        let [a, b, c, d] = checksum::digest(kind, &salt, &bytes);
        let name = kind.name();
        writeln!(out, "{name:>12}\tcksum={a:016x}:{b:016x}:{c:016x}:{d:016x}")?;
    }
    Ok(())
}

/// The pool's salt, for the checksums that need one.
fn spa_salt(pool: &Pool) -> Result<[u8; 32]> {
    let found = zap::lookup::<u8>(
        pool.parts().mos(),
        zap::directory::OBJECT,
        phys::pool_names::CHECKSUM_SALT,
    )?;
    let mut salt = [0; 32];
    if let Some(found) = found {
        let length = found.len().min(salt.len());
        salt[..length].copy_from_slice(&found[..length]);
    }
    Ok(salt)
}
