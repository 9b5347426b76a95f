//! `zdb -E`: the data embedded in a block pointer.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`zdb_embedded_block`).

use std::io::Write;

use base::{Error, Result};
use phys::{BlkPtrPhys, CompressType};
use zerocopy::FromBytes;

use super::FAILED;
use super::text::Printer;

/// Words of a block pointer.
const WORDS: usize = 16;

/// `zdb -E WORD:WORD:…`.
pub(super) fn run(out: &mut Printer, text: &str) -> Result<u8> {
    let Some(bp) = parse(text) else {
        eprintln!("invalid input format");
        return Ok(FAILED);
    };
    match decode(&bp) {
        Ok(bytes) => {
            out.write_all(&bytes)?;
            Ok(0)
        }
        Err(error) => Err(error.within("decode failed")),
    }
}

fn parse(text: &str) -> Option<BlkPtrPhys> {
    let mut bytes = Vec::with_capacity(WORDS * 8);
    for word in text.split(':').take(WORDS) {
        let digits = word.strip_prefix("0x").unwrap_or(word);
        bytes.extend(u64::from_str_radix(digits, 16).ok()?.to_le_bytes());
    }
    BlkPtrPhys::read_from_bytes(&bytes).ok()
}

#[doc(alias = "decode_embedded_bp")]
fn decode(bp: &BlkPtrPhys) -> Result<Vec<u8>> {
    if !bp.is_embedded() {
        return Err(Error::invalid(
            "it is not a block pointer with embedded data",
        ));
    }
    let payload = bp.embedded_payload()?;
    let lsize = bp.embedded_lsize() as usize;
    let kind = CompressType::try_from(bp.compress())?;
    if !kind.is_compressed() {
        let mut bytes = payload;
        bytes.resize(lsize, 0);
        return Ok(bytes);
    }
    let mut bytes = vec![0; lsize];
    compress::decompress(kind, &payload, &mut bytes)?;
    Ok(bytes)
}
