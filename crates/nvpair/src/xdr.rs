//! The XDR encoding, in 4-byte big-endian units: used in labels, the MOS, send streams.
//!
//! # On disk
//! ```text
//! header 4 | list
//! list:    version 4 (0) | nvflag 4 | pairs ... | 0 4 | 0 4
//! pair:    encoded size 4 | decoded size 4 | name | type 4 | nelem 4 | value
//! name, string: length 4 | bytes | zeros up to a multiple of 4
//! ```
//! The encoded size is that of the whole pair. The decoded size is what the pair takes in the
//! memory of libnvpair, which also refuses to decode a pair if it is wrong. Integers below 32
//! bits take 4 bytes, also in arrays. Arrays of integers repeat their length; byte arrays, string
//! arrays and list arrays do not. An empty array has no value at all, but the encoded size and the
//! size of the buffer still count its absent length, so the buffer ends in zeros.
//!
//! # Why not simpler
//! A general XDR crate would handle neither the sizes nor the empty arrays.
//!
//! # Source
//! OpenZFS module/nvpair/nvpair.c (`nvs_xdr_*`), module/os/linux/spl/spl-xdr.c @be7657e3.

use crate::reader::Reader;
use crate::{
    DEPTH_MAX, ENCODE_XDR, HEADER_SIZE, LITTLE_ENDIAN, NAME_MAX, NvList, NvString, NvType, NvValue,
    pair_size, size_i32, strip_header,
};
use base::{Context, Error, ErrorKind, Result};

/// `nvlist_pack` with `NV_ENCODE_XDR`.
#[must_use]
#[doc(alias = "nvlist_pack")]
pub fn encode_xdr(list: &NvList) -> Vec<u8> {
    let size = encoded_size(list);
    let mut out = Vec::with_capacity(size);
    out.extend_from_slice(&[ENCODE_XDR, LITTLE_ENDIAN, 0, 0]);
    put_list(&mut out, list);
    assert!(out.len() <= size, "nvlist of {} bytes in {size}", out.len());
    out.resize(size, 0);
    out
}

/// `nvlist_size` with `NV_ENCODE_XDR`: the number of bytes that [`encode_xdr`] returns.
#[must_use]
#[doc(alias = "nvlist_size")]
pub fn encoded_size(list: &NvList) -> usize {
    list_size(list).saturating_add(HEADER_SIZE)
}

/// Decodes a list; bytes after it are ignored.
///
/// # Errors
/// `Corrupt` if the bytes are not an nvlist, `Unsupported` for other encodings and versions.
pub fn decode_xdr(bytes: &[u8]) -> Result<NvList> {
    let (_, list) = strip_header(bytes, ENCODE_XDR)?;
    let mut reader = Reader::new(list);
    take_list(&mut reader, 0)
}

fn align4(size: usize) -> usize {
    size.saturating_add(3) & !3
}

fn list_size(list: &NvList) -> usize {
    list.iter().fold(16, |size, (name, value)| {
        size.saturating_add(encoded_pair_size(name, value))
    })
}

fn string_size(text: &NvString) -> usize {
    align4(text.as_bytes().len()).saturating_add(4)
}

fn encoded_pair_size(name: &NvString, value: &NvValue) -> usize {
    string_size(name)
        .saturating_add(16)
        .saturating_add(value_size(value))
}

fn value_size(value: &NvValue) -> usize {
    let array = |unit: usize| value.nelem().saturating_mul(unit).saturating_add(4);
    match value {
        NvValue::Boolean => 0,
        NvValue::BooleanValue(_)
        | NvValue::Byte(_)
        | NvValue::Int8(_)
        | NvValue::Uint8(_)
        | NvValue::Int16(_)
        | NvValue::Uint16(_)
        | NvValue::Int32(_)
        | NvValue::Uint32(_) => 4,
        NvValue::Int64(_) | NvValue::Uint64(_) | NvValue::Hrtime(_) | NvValue::Double(_) => 8,
        NvValue::String(text) => string_size(text),
        NvValue::ByteArray(bytes) => align4(bytes.len()),
        NvValue::BooleanArray(_)
        | NvValue::Int8Array(_)
        | NvValue::Uint8Array(_)
        | NvValue::Int16Array(_)
        | NvValue::Uint16Array(_)
        | NvValue::Int32Array(_)
        | NvValue::Uint32Array(_) => array(4),
        NvValue::Int64Array(_) | NvValue::Uint64Array(_) => array(8),
        NvValue::StringArray(texts) => texts.iter().map(string_size).sum(),
        NvValue::List(list) => list_size(list),
        NvValue::ListArray(lists) => lists.iter().map(list_size).sum(),
    }
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_i32(out: &mut Vec<u8>, value: i32) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_opaque(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
}

fn put_string(out: &mut Vec<u8>, text: &NvString) {
    put_i32(out, size_i32(text.as_bytes().len()));
    put_opaque(out, text.as_bytes());
}

fn put_list(out: &mut Vec<u8>, list: &NvList) {
    put_i32(out, 0);
    put_u32(out, list.nvflag());
    for (name, value) in list.iter() {
        put_i32(out, size_i32(encoded_pair_size(name, value)));
        put_i32(out, size_i32(pair_size(name, value)));
        put_string(out, name);
        put_i32(out, value.nv_type().raw());
        put_i32(out, size_i32(value.nelem()));
        if value.nelem() > 0 {
            put_value(out, value);
        }
    }
    put_u64(out, 0);
}

fn put_array<T: Copy>(out: &mut Vec<u8>, values: &[T], put: impl Fn(&mut Vec<u8>, T)) {
    put_i32(out, size_i32(values.len()));
    for &value in values {
        put(out, value);
    }
}

fn put_value(out: &mut Vec<u8>, value: &NvValue) {
    match value {
        NvValue::Boolean => {}
        // The kernel encodes 8 and 16 bits zero-extended and refuses anything else.
        NvValue::Byte(v) | NvValue::Uint8(v) => put_u32(out, u32::from(*v)),
        NvValue::Int8(v) => put_u32(out, u32::from(*v as u8)),
        NvValue::Int16(v) => put_u32(out, u32::from(*v as u16)),
        NvValue::Uint16(v) => put_u32(out, u32::from(*v)),
        NvValue::BooleanValue(v) => put_u32(out, u32::from(*v)),
        NvValue::Int32(v) => put_i32(out, *v),
        NvValue::Uint32(v) => put_u32(out, *v),
        NvValue::Int64(v) | NvValue::Hrtime(v) => put_u64(out, *v as u64),
        NvValue::Uint64(v) => put_u64(out, *v),
        NvValue::Double(v) => put_u64(out, v.to_bits()),
        NvValue::String(v) => put_string(out, v),
        NvValue::ByteArray(v) => put_opaque(out, v),
        NvValue::BooleanArray(v) => put_array(out, v, |out, v| put_u32(out, u32::from(v))),
        NvValue::Int8Array(v) => put_array(out, v, |out, v| put_u32(out, u32::from(v as u8))),
        NvValue::Uint8Array(v) => put_array(out, v, |out, v| put_u32(out, u32::from(v))),
        NvValue::Int16Array(v) => put_array(out, v, |out, v| put_u32(out, u32::from(v as u16))),
        NvValue::Uint16Array(v) => put_array(out, v, |out, v| put_u32(out, u32::from(v))),
        NvValue::Int32Array(v) => put_array(out, v, put_i32),
        NvValue::Uint32Array(v) => put_array(out, v, put_u32),
        NvValue::Int64Array(v) => put_array(out, v, |out, v| put_u64(out, v as u64)),
        NvValue::Uint64Array(v) => put_array(out, v, put_u64),
        NvValue::StringArray(v) => v.iter().for_each(|v| put_string(out, v)),
        NvValue::List(v) => put_list(out, v),
        NvValue::ListArray(v) => v.iter().for_each(|v| put_list(out, v)),
    }
}

fn take_u32(reader: &mut Reader<'_>) -> Result<u32> {
    reader.chunk().map(u32::from_be_bytes)
}

fn take_i32(reader: &mut Reader<'_>) -> Result<i32> {
    reader.chunk().map(i32::from_be_bytes)
}

fn take_u64(reader: &mut Reader<'_>) -> Result<u64> {
    reader.chunk().map(u64::from_be_bytes)
}

/// 8 bits in 32: the kernel zero-extends, libtirpc sign-extends.
fn take_8(reader: &mut Reader<'_>) -> Result<u8> {
    let word = take_u32(reader)?;
    match word {
        0..=0xff | 0xffff_ff80..=0xffff_ffff => Ok(word as u8),
        _ => Err(Error::corrupt(format!("8-bit value {word:#x} of nvlist"))),
    }
}

fn take_16(reader: &mut Reader<'_>) -> Result<u16> {
    let word = take_u32(reader)?;
    match word {
        0..=0xffff | 0xffff_8000..=0xffff_ffff => Ok(word as u16),
        _ => Err(Error::corrupt(format!("16-bit value {word:#x} of nvlist"))),
    }
}

fn take_bool(reader: &mut Reader<'_>) -> Result<bool> {
    match take_u32(reader)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Error::corrupt(format!("boolean value {other} of nvlist"))),
    }
}

fn take_opaque<'a>(reader: &mut Reader<'a>, size: usize) -> Result<&'a [u8]> {
    let padded = reader.bytes(align4(size))?;
    Ok(padded.get(..size).unwrap_or_default())
}

fn take_string(reader: &mut Reader<'_>) -> Result<NvString> {
    let size = take_u32(reader)? as usize;
    NvString::from_bytes(take_opaque(reader, size)?)
}

fn take_list(reader: &mut Reader<'_>, depth: usize) -> Result<NvList> {
    if depth > DEPTH_MAX {
        return Err(Error::corrupt(format!(
            "nvlists nest deeper than {DEPTH_MAX}"
        )));
    }
    let version = take_i32(reader)?;
    if version != 0 {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("nvlist version {version}"),
        ));
    }
    let mut list = NvList::with_nvflag(take_u32(reader)?);
    loop {
        let _encoded_size = take_i32(reader)?;
        let decoded_size = take_i32(reader)?;
        if decoded_size == 0 {
            return Ok(list);
        }
        let name = take_string(reader).within(|| "nvpair name")?;
        let name_size = name.as_bytes().len();
        if name_size > NAME_MAX {
            return Err(Error::corrupt(format!("nvpair name of {name_size} bytes")));
        }
        let value = take_pair_value(reader, depth).within(|| format!("nvpair '{name}'"))?;
        let expected = pair_size(&name, &value);
        if usize::try_from(decoded_size) != Ok(expected) {
            return Err(Error::corrupt(format!(
                "nvpair '{name}' has decoded size {decoded_size}, expected {expected}"
            )));
        }
        list.push(name, value);
    }
}

fn take_pair_value(reader: &mut Reader<'_>, depth: usize) -> Result<NvValue> {
    let nv_type = NvType::try_from(take_i32(reader)?)?;
    let nelem = nv_type.check_nelem(take_i32(reader)?)?;
    take_value(reader, nv_type, nelem, depth)
}

/// An array of integers: length, then values of `unit` bytes. No length if it is empty.
fn take_array<'a, T>(
    reader: &mut Reader<'a>,
    nelem: usize,
    unit: usize,
    take: impl Fn(&mut Reader<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    if nelem == 0 {
        return Ok(Vec::new());
    }
    let length = take_u32(reader)?;
    if usize::try_from(length) != Ok(nelem) {
        return Err(Error::corrupt(format!(
            "array of {length} in nvpair of {nelem} elements"
        )));
    }
    take_elements(reader, nelem, unit, take)
}

fn take_elements<'a, T>(
    reader: &mut Reader<'a>,
    nelem: usize,
    unit: usize,
    take: impl Fn(&mut Reader<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    reader.check_room(nelem, unit)?;
    (0..nelem).map(|_| take(reader)).collect()
}

fn take_value(r: &mut Reader<'_>, nv_type: NvType, nelem: usize, depth: usize) -> Result<NvValue> {
    let deeper = depth.saturating_add(1);
    Ok(match nv_type {
        NvType::Boolean => NvValue::Boolean,
        NvType::Byte => NvValue::Byte(take_8(r)?),
        NvType::Int8 => NvValue::Int8(take_8(r)? as i8),
        NvType::Uint8 => NvValue::Uint8(take_8(r)?),
        NvType::Int16 => NvValue::Int16(take_16(r)? as i16),
        NvType::Uint16 => NvValue::Uint16(take_16(r)?),
        NvType::BooleanValue => NvValue::BooleanValue(take_bool(r)?),
        NvType::Int32 => NvValue::Int32(take_i32(r)?),
        NvType::Uint32 => NvValue::Uint32(take_u32(r)?),
        NvType::Int64 => NvValue::Int64(take_u64(r)? as i64),
        NvType::Uint64 => NvValue::Uint64(take_u64(r)?),
        NvType::Hrtime => NvValue::Hrtime(take_u64(r)? as i64),
        NvType::Double => NvValue::Double(f64::from_bits(take_u64(r)?)),
        NvType::String => NvValue::String(take_string(r)?),
        NvType::List => NvValue::List(take_list(r, deeper)?),
        NvType::ByteArray => NvValue::ByteArray(take_opaque(r, nelem)?.to_vec()),
        NvType::BooleanArray => NvValue::BooleanArray(take_array(r, nelem, 4, take_bool)?),
        NvType::Int8Array => NvValue::Int8Array(take_array(r, nelem, 4, |r| Ok(take_8(r)? as i8))?),
        NvType::Uint8Array => NvValue::Uint8Array(take_array(r, nelem, 4, take_8)?),
        NvType::Int16Array => {
            NvValue::Int16Array(take_array(r, nelem, 4, |r| Ok(take_16(r)? as i16))?)
        }
        NvType::Uint16Array => NvValue::Uint16Array(take_array(r, nelem, 4, take_16)?),
        NvType::Int32Array => NvValue::Int32Array(take_array(r, nelem, 4, take_i32)?),
        NvType::Uint32Array => NvValue::Uint32Array(take_array(r, nelem, 4, take_u32)?),
        NvType::Int64Array => {
            NvValue::Int64Array(take_array(r, nelem, 8, |r| Ok(take_u64(r)? as i64))?)
        }
        NvType::Uint64Array => NvValue::Uint64Array(take_array(r, nelem, 8, take_u64)?),
        NvType::StringArray => NvValue::StringArray(take_elements(r, nelem, 4, take_string)?),
        NvType::ListArray => {
            NvValue::ListArray(take_elements(r, nelem, 16, |r| take_list(r, deeper))?)
        }
    })
}
