//! Blocks small enough to live in their block pointer.

use base::{BlockBuf, Buf, Context, Error, ErrorKind, Result, SPA_MAXBLOCKSIZE};
use phys::blkptr::EMBEDDED_TYPE_DATA;
use phys::{BlkPtrPhys, CompressType};

use crate::Bookmark;
use crate::read::to_little_endian;

/// The logical bytes of an embedded block.
///
/// # Errors
/// `Corrupt` for sizes or a payload that cannot be; `Unsupported` for pointers that hold no data.
#[doc(alias = "decode_embedded_bp")]
pub fn read_embedded(bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
    let outer = || format!("embedded block {bookmark}");
    if bp.embedded_type() != EMBEDDED_TYPE_DATA {
        let what = format!("etype {} is not data", bp.embedded_type());
        return Err(Error::new(ErrorKind::Unsupported, what).within(outer()));
    }
    let (lsize, payload) = (bp.lsize(), bp.embedded_payload().within(outer)?);
    if lsize == 0 || lsize > SPA_MAXBLOCKSIZE {
        return Err(Error::corrupt(format!("lsize is {lsize}")).within(outer()));
    }
    let kind = CompressType::try_from(bp.compress()).within(outer)?;
    let mut data = BlockBuf::scratch(lsize as usize);
    if kind == CompressType::Off {
        if payload.len() != data.len() {
            let what = format!(
                "psize {} of an uncompressed block of {lsize}",
                payload.len()
            );
            return Err(Error::corrupt(what).within(outer()));
        }
        data.copy_from_slice(&payload);
    } else {
        compress::decompress(kind, &payload, &mut data).within(outer)?;
    }
    to_little_endian(bp, &mut data);
    Ok(data.share())
}
