//! `zdb -R`: bytes of a vdev, as they are or as a block.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`zdb_read_block`).

use std::io::Write;

use base::{Error, Result, VdevId};
use phys::{BlkPtrPhys, CompressType};
use zerocopy::FromBytes;
use zio::VdevOps;

use super::pool::Pool;
use super::text::Printer;
use super::usage_error;

/// No block is larger.
const BYTES_MAX: u64 = base::SPA_MAXBLOCKSIZE;
/// `sizeof (zio_gbh_phys_t)`-like tables are tried with these.
const ENCODINGS: [CompressType; 8] = [
    CompressType::Lz4,
    CompressType::Zstd,
    CompressType::Lzjb,
    CompressType::Zle,
    CompressType::Gzip1,
    CompressType::Gzip6,
    CompressType::Gzip9,
    CompressType::Off,
];

struct Place {
    vdev: VdevId,
    offset: u64,
    lsize: u64,
    psize: u64,
    flags: String,
}

/// `vdev:offset:[lsize/]psize[:flags]`; numbers are hexadecimal.
fn parse(text: &str) -> Result<Place> {
    let bad = |what: &str| Error::invalid(format!("Invalid block specifier '{text}': {what}"));
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    let parts: Vec<&str> = text.split(':').collect();
    let [vdev, offset, size, rest @ ..] = &parts[..] else {
        return Err(bad("it must be vdev:offset:[lsize/]psize[:flags]"));
    };
    let vdev = vdev.parse().map_err(|_| bad("no such vdev"))?;
    let offset = hex(offset).ok_or_else(|| bad("offset must be a multiple of sector size"))?;
    let (lsize, psize) = match size.split_once('/') {
        Some((lsize, psize)) => (hex(lsize), hex(psize)),
        None => (hex(size), hex(size)),
    };
    let (Some(lsize), Some(psize)) = (lsize, psize) else {
        return Err(bad("size must be a hexadecimal number"));
    };
    if offset % 512 != 0 || psize % 512 != 0 || lsize % 512 != 0 {
        return Err(bad("offset and sizes must be multiples of sector size"));
    }
    if psize == 0 || psize > BYTES_MAX || lsize > BYTES_MAX || lsize < psize {
        return Err(bad("size must not be 0, nor larger than a block can be"));
    }
    let flags = rest.concat();
    if let Some(flag) = flags.chars().find(|flag| !"bdirv".contains(*flag)) {
        return Err(bad(&format!("flag '{flag}' is not supported yet")));
    }
    Ok(Place {
        vdev: VdevId(vdev),
        offset,
        lsize,
        psize,
        flags,
    })
}

/// `zdb -R POOL BLOCK…`.
pub(super) fn run(out: &mut Printer, pool: &Pool, blocks: &[String]) -> Result<u8> {
    if blocks.is_empty() {
        return Err(usage_error());
    }
    for text in blocks {
        let place = parse(text)?;
        let top = pool.tree().top(place.vdev);
        let top = top.ok_or_else(|| Error::not_found(format!("Invalid vdev: {}", place.vdev)))?;
        let end = place.offset.checked_add(place.psize);
        if end.is_none_or(|end| end > top.config().asize) {
            return Err(Error::invalid(format!(
                "'{text}' reaches beyond the end of the vdev"
            )));
        }
        let mut bytes = vec![0; place.psize as usize];
        pool.tree()
            .read(place.vdev, place.offset, &mut bytes, &|_| true)?;
        if place.flags.contains('d') && place.lsize > place.psize {
            bytes = decompress(&bytes, place.lsize)?;
        }
        show(out, text, &place, &bytes)?;
    }
    Ok(0)
}

fn decompress(bytes: &[u8], lsize: u64) -> Result<Vec<u8>> {
    let mut plain = vec![0; lsize as usize];
    for kind in ENCODINGS {
        if kind != CompressType::Off && compress::decompress(kind, bytes, &mut plain).is_ok() {
            return Ok(plain);
        }
    }
    Err(Error::corrupt("no known compression fits the block"))
}

fn show(out: &mut Printer, text: &str, place: &Place, bytes: &[u8]) -> Result<()> {
    if place.flags.contains('r') {
        out.write_all(bytes)?;
        return Ok(());
    }
    if place.flags.contains(['b', 'i']) {
        for chunk in bytes.chunks_exact(size_of::<BlkPtrPhys>()) {
            if let Ok(bp) = BlkPtrPhys::read_from_bytes(chunk)
                && (!bp.is_hole() || bp.birth().0 != 0)
            {
                writeln!(out, "{bp}")?;
            }
        }
        return Ok(());
    }
    writeln!(
        out,
        "\n{text}\n          0 1 2 3 4 5 6 7   8 9 a b c d e f  0123456789abcdef"
    )?;
    for (i, row) in bytes.chunks(16).enumerate() {
        let word = |half: &[u8]| {
            let mut word = [0; 8];
            word[..half.len()].copy_from_slice(half);
            u64::from_le_bytes(word)
        };
        let (a, b) = row.split_at(row.len().min(8));
        let ascii: String = row
            .iter()
            .map(|byte| {
                if byte.is_ascii_graphic() || *byte == b' ' {
                    *byte as char
                } else {
                    '.'
                }
            })
            .collect();
        writeln!(
            out,
            "{:06x}:  {:016x}  {:016x}  {ascii}",
            i * 16,
            word(a),
            word(b)
        )?;
    }
    Ok(())
}
