//! The native encoding: pairs as they are in the writer's memory, with pointers zeroed.
//!
//! # On disk
//! ```text
//! header 4 | version 4 | nvflag 4 | pairs ... | 0 4
//! pair:    size 4 | name size 2 | 0 2 | nelem 4 | type 4 | name, NUL | zeros to 8 | value | zeros to 8
//! list:    version 4 | nvflag 4 | 0 8 | 0 4 | 0 4; after the pair: pairs ... | 0 4
//! lists:   nelem * 0 8 | nelem * the 24 bytes of a list; after the pair: each list's pairs, 0 4
//! strings: nelem * 0 8 | strings, each with NUL
//! ```
//! Alignment is from the start of the pair, not of the buffer. The size of a pair does not count
//! the pairs of lists.
//!
//! # Source
//! OpenZFS module/nvpair/nvpair.c (`nvs_native_*`) @be7657e3.

use crate::reader::Reader;
use crate::{
    BIG_ENDIAN, DEPTH_MAX, ENCODE_NATIVE, LITTLE_ENDIAN, NvList, NvString, NvType, NvValue,
    pair_size, size_i32, strip_header, value_offset,
};
use base::{Context, Error, ErrorKind, Result};

/// `nvlist_pack` with `NV_ENCODE_NATIVE`, as on a little-endian host.
#[must_use]
pub fn encode_native(list: &NvList) -> Vec<u8> {
    let mut out = vec![ENCODE_NATIVE, LITTLE_ENDIAN, 0, 0];
    put_i32(&mut out, 0);
    out.extend_from_slice(&list.nvflag().to_le_bytes());
    put_pairs(&mut out, list);
    out
}

/// Decodes a list written by a host of either byte order; bytes after it are ignored. Zeros, as on an empty disk, would
/// be an empty list of a big-endian host, and are none.
///
/// # Errors
/// `Corrupt` if the bytes are not an nvlist, `Unsupported` for other encodings, byte orders, versions.
pub fn decode_native(bytes: &[u8]) -> Result<NvList> {
    let (order, list) = strip_header(bytes, ENCODE_NATIVE)?;
    let mut reader = match order {
        LITTLE_ENDIAN => Reader::new(list),
        BIG_ENDIAN => Reader::reversed(list),
        _ => {
            let text = format!("native nvlist of byte order {order}");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
    };
    let version = i32::from_le_bytes(reader.chunk()?);
    let nvflag = u32::from_le_bytes(reader.chunk()?);
    let list = take_pairs(&mut reader, Embedded { version, nvflag }, 0)?;
    if order == BIG_ENDIAN && nvflag == 0 && list.is_empty() {
        return Err(Error::corrupt("zeros, not an nvlist"));
    }
    Ok(list)
}

fn put_i32(out: &mut Vec<u8>, value: i32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_pairs(out: &mut Vec<u8>, list: &NvList) {
    for (name, value) in list.iter() {
        put_pair(out, name, value);
        match value {
            NvValue::List(inner) => put_pairs(out, inner),
            NvValue::ListArray(inner) => inner.iter().for_each(|inner| put_pairs(out, inner)),
            _ => {}
        }
    }
    put_i32(out, 0);
}

fn put_pair(out: &mut Vec<u8>, name: &NvString, value: &NvValue) {
    let start = out.len();
    let size = pair_size(name, value);
    put_i32(out, size_i32(size));
    let name_size = name.as_bytes().len().saturating_add(1);
    let name_size = i16::try_from(name_size).unwrap_or_else(|_| panic!("nvpair name {name}"));
    out.extend_from_slice(&name_size.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    put_i32(out, size_i32(value.nelem()));
    put_i32(out, value.nv_type().raw());
    out.extend_from_slice(name.as_bytes());
    out.resize(start.saturating_add(value_offset(name)), 0);
    put_value(out, value);
    out.resize(start.saturating_add(size), 0);
}

fn put_array<T: Copy, const N: usize>(out: &mut Vec<u8>, values: &[T], to: impl Fn(T) -> [u8; N]) {
    for &value in values {
        out.extend_from_slice(&to(value));
    }
}

fn put_string(out: &mut Vec<u8>, text: &NvString) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

fn put_zeros(out: &mut Vec<u8>, count: usize) {
    out.resize(out.len().saturating_add(count), 0);
}

fn put_embedded(out: &mut Vec<u8>, list: &NvList) {
    put_i32(out, 0);
    out.extend_from_slice(&list.nvflag().to_le_bytes());
    put_zeros(out, 16);
}

fn put_value(out: &mut Vec<u8>, value: &NvValue) {
    match value {
        NvValue::Boolean => {}
        NvValue::Byte(v) | NvValue::Uint8(v) => out.push(*v),
        NvValue::Int8(v) => out.push(*v as u8),
        NvValue::Int16(v) => put_array(out, &[*v], i16::to_le_bytes),
        NvValue::Uint16(v) => put_array(out, &[*v], u16::to_le_bytes),
        NvValue::BooleanValue(v) => put_i32(out, i32::from(*v)),
        NvValue::Int32(v) => put_i32(out, *v),
        NvValue::Uint32(v) => put_array(out, &[*v], u32::to_le_bytes),
        NvValue::Int64(v) | NvValue::Hrtime(v) => put_array(out, &[*v], i64::to_le_bytes),
        NvValue::Uint64(v) => put_array(out, &[*v], u64::to_le_bytes),
        NvValue::Double(v) => put_array(out, &[*v], f64::to_le_bytes),
        NvValue::String(v) => put_string(out, v),
        NvValue::ByteArray(v) | NvValue::Uint8Array(v) => out.extend_from_slice(v),
        NvValue::BooleanArray(v) => put_array(out, v, |v| i32::from(v).to_le_bytes()),
        NvValue::Int8Array(v) => put_array(out, v, i8::to_le_bytes),
        NvValue::Int16Array(v) => put_array(out, v, i16::to_le_bytes),
        NvValue::Uint16Array(v) => put_array(out, v, u16::to_le_bytes),
        NvValue::Int32Array(v) => put_array(out, v, i32::to_le_bytes),
        NvValue::Uint32Array(v) => put_array(out, v, u32::to_le_bytes),
        NvValue::Int64Array(v) => put_array(out, v, i64::to_le_bytes),
        NvValue::Uint64Array(v) => put_array(out, v, u64::to_le_bytes),
        NvValue::StringArray(v) => {
            put_zeros(out, v.len().saturating_mul(8));
            v.iter().for_each(|v| put_string(out, v));
        }
        NvValue::List(v) => put_embedded(out, v),
        NvValue::ListArray(v) => {
            put_zeros(out, v.len().saturating_mul(8));
            v.iter().for_each(|v| put_embedded(out, v));
        }
    }
}

/// The header of a list embedded in a pair; the list's pairs come after that pair.
#[derive(Clone, Copy)]
struct Embedded {
    version: i32,
    nvflag: u32,
}

fn take_pairs(reader: &mut Reader<'_>, embedded: Embedded, depth: usize) -> Result<NvList> {
    if depth > DEPTH_MAX {
        return Err(Error::corrupt(format!(
            "nvlists nest deeper than {DEPTH_MAX}"
        )));
    }
    if embedded.version != 0 {
        let text = format!("nvlist version {}", embedded.version);
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let mut list = NvList::with_nvflag(embedded.nvflag);
    loop {
        let mut ahead = *reader;
        let size = i32::from_le_bytes(ahead.chunk()?);
        if size == 0 {
            *reader = ahead;
            return Ok(list);
        }
        let size =
            usize::try_from(size).map_err(|_| Error::corrupt(format!("nvpair of size {size}")))?;
        let bytes = reader.bytes(size)?;
        let mut pair = reader.part(bytes);
        let (name, nv_type, nelem) = take_pair_head(&mut pair)?;
        let value = take_value(&mut pair, reader, nv_type, nelem, depth);
        let value = value.within(|| format!("nvpair '{name}'"))?;
        let expected = pair_size(&name, &value);
        if size != expected {
            let text = format!("nvpair '{name}' has size {size}, expected {expected}");
            return Err(Error::corrupt(text));
        }
        list.push(name, value);
    }
}

fn take_pair_head(pair: &mut Reader<'_>) -> Result<(NvString, NvType, usize)> {
    let _size: [u8; 4] = pair.chunk()?;
    let name_size = i16::from_le_bytes(pair.chunk()?);
    let _reserve: [u8; 2] = pair.chunk()?;
    let nelem = i32::from_le_bytes(pair.chunk()?);
    let nv_type = i32::from_le_bytes(pair.chunk()?);
    let bad_name = || Error::corrupt(format!("nvpair name of {name_size} bytes"));
    let name = pair.bytes(usize::try_from(name_size).map_err(|_| bad_name())?)?;
    let Some((0, name)) = name.split_last() else {
        return Err(bad_name());
    };
    let name = NvString::from_bytes(name).within(|| "nvpair name")?;
    let used = name.as_bytes().len().saturating_add(16 + 1);
    pair.bytes(value_offset(&name).saturating_sub(used))?;
    let nv_type = NvType::try_from(nv_type).within(|| format!("nvpair '{name}'"))?;
    let nelem = nv_type
        .check_nelem(nelem)
        .within(|| format!("nvpair '{name}'"))?;
    Ok((name, nv_type, nelem))
}

fn take_bool(reader: &mut Reader<'_>) -> Result<bool> {
    match i32::from_le_bytes(reader.chunk()?) {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Error::corrupt(format!("boolean value {other} of nvlist"))),
    }
}

fn take_string(reader: &mut Reader<'_>) -> Result<NvString> {
    let end = reader.rest().iter().position(|&byte| byte == 0);
    let end = end.ok_or_else(|| Error::corrupt("nvlist string without NUL"))?;
    let text = NvString::from_bytes(reader.bytes(end)?)?;
    reader.bytes(1)?;
    Ok(text)
}

fn take_embedded(reader: &mut Reader<'_>) -> Result<Embedded> {
    let version = i32::from_le_bytes(reader.chunk()?);
    let nvflag = u32::from_le_bytes(reader.chunk()?);
    reader.bytes(16)?;
    Ok(Embedded { version, nvflag })
}

fn take_array<T, const N: usize>(
    reader: &mut Reader<'_>,
    nelem: usize,
    from: impl Fn([u8; N]) -> T,
) -> Result<Vec<T>> {
    reader.check_room(nelem, N)?;
    (0..nelem).map(|_| reader.chunk().map(&from)).collect()
}

fn take_strings(pair: &mut Reader<'_>, nelem: usize) -> Result<Vec<NvString>> {
    pair.check_room(nelem, 8 + 1)?;
    pair.bytes(nelem.saturating_mul(8))?;
    (0..nelem).map(|_| take_string(pair)).collect()
}

fn take_lists(
    pair: &mut Reader<'_>,
    after: &mut Reader<'_>,
    nelem: usize,
    depth: usize,
) -> Result<Vec<NvList>> {
    pair.check_room(nelem, 8 + 24)?;
    pair.bytes(nelem.saturating_mul(8))?;
    (0..nelem)
        .map(|_| take_pairs(after, take_embedded(pair)?, depth))
        .collect()
}

/// The value in `pair`; the pairs of lists are taken from `after`, the bytes after the pair.
fn take_value(
    pair: &mut Reader<'_>,
    after: &mut Reader<'_>,
    nv_type: NvType,
    nelem: usize,
    depth: usize,
) -> Result<NvValue> {
    let deeper = depth.saturating_add(1);
    Ok(match nv_type {
        NvType::Boolean => NvValue::Boolean,
        NvType::Byte => NvValue::Byte(u8::from_le_bytes(pair.chunk()?)),
        NvType::Int8 => NvValue::Int8(i8::from_le_bytes(pair.chunk()?)),
        NvType::Uint8 => NvValue::Uint8(u8::from_le_bytes(pair.chunk()?)),
        NvType::Int16 => NvValue::Int16(i16::from_le_bytes(pair.chunk()?)),
        NvType::Uint16 => NvValue::Uint16(u16::from_le_bytes(pair.chunk()?)),
        NvType::BooleanValue => NvValue::BooleanValue(take_bool(pair)?),
        NvType::Int32 => NvValue::Int32(i32::from_le_bytes(pair.chunk()?)),
        NvType::Uint32 => NvValue::Uint32(u32::from_le_bytes(pair.chunk()?)),
        NvType::Int64 => NvValue::Int64(i64::from_le_bytes(pair.chunk()?)),
        NvType::Uint64 => NvValue::Uint64(u64::from_le_bytes(pair.chunk()?)),
        NvType::Hrtime => NvValue::Hrtime(i64::from_le_bytes(pair.chunk()?)),
        NvType::Double => NvValue::Double(f64::from_le_bytes(pair.chunk()?)),
        NvType::String => NvValue::String(take_string(pair)?),
        NvType::ByteArray => NvValue::ByteArray(pair.bytes(nelem)?.to_vec()),
        NvType::Uint8Array => NvValue::Uint8Array(pair.bytes(nelem)?.to_vec()),
        NvType::BooleanArray => {
            pair.check_room(nelem, 4)?;
            let values: Result<Vec<bool>> = (0..nelem).map(|_| take_bool(pair)).collect();
            NvValue::BooleanArray(values?)
        }
        NvType::Int8Array => NvValue::Int8Array(take_array(pair, nelem, i8::from_le_bytes)?),
        NvType::Int16Array => NvValue::Int16Array(take_array(pair, nelem, i16::from_le_bytes)?),
        NvType::Uint16Array => NvValue::Uint16Array(take_array(pair, nelem, u16::from_le_bytes)?),
        NvType::Int32Array => NvValue::Int32Array(take_array(pair, nelem, i32::from_le_bytes)?),
        NvType::Uint32Array => NvValue::Uint32Array(take_array(pair, nelem, u32::from_le_bytes)?),
        NvType::Int64Array => NvValue::Int64Array(take_array(pair, nelem, i64::from_le_bytes)?),
        NvType::Uint64Array => NvValue::Uint64Array(take_array(pair, nelem, u64::from_le_bytes)?),
        NvType::StringArray => NvValue::StringArray(take_strings(pair, nelem)?),
        NvType::List => NvValue::List(take_pairs(after, take_embedded(pair)?, deeper)?),
        NvType::ListArray => NvValue::ListArray(take_lists(pair, after, nelem, deeper)?),
    })
}
