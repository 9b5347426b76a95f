//! Where the data of sparse files is: GNU's old format, and 0.0, 0.1 and 1.0 in pax records.

use base::{Error, Result};
use tar::{GnuExtSparseHeader, GnuSparseHeader, Header};

use crate::BLOCK_BYTES;
use crate::member::Member;
use crate::pax::{Records, number};

/// Offsets and lengths.
pub(crate) type Map = Vec<(u64, u64)>;

/// Extents of a file, at most: what a map of 64 MiB has.
const EXTENTS_MAX: u64 = 4 << 20;

pub(crate) fn malformed() -> Error {
    Error::corrupt("Malformed map of a sparse file")
}

/// What pax records say of a sparse file.
#[derive(Default)]
pub(crate) struct Said {
    name: Option<Vec<u8>>,
    size: Option<u64>,
    major: u64,
    map: Map,
    is_sparse: bool,
}

impl Said {
    /// Reads the records.
    pub(crate) fn of(records: &Records) -> Result<Said> {
        let mut said = Said::default();
        let mut offset = 0;
        for (key, value) in records {
            let Some(key) = key.strip_prefix(b"GNU.sparse.") else {
                continue;
            };
            let value_number = || number::<u64>(value).ok_or_else(malformed);
            said.is_sparse = true;
            match key {
                b"name" => said.name = Some(value.clone()),
                b"size" | b"realsize" => said.size = Some(value_number()?),
                b"major" => said.major = value_number()?,
                b"offset" => offset = value_number()?,
                b"numbytes" => said.map.push((offset, value_number()?)),
                b"map" => said.map = listed(value)?,
                _ => {}
            }
        }
        Ok(said)
    }

    /// Whether the map is before the data.
    pub(crate) fn is_in_data(&self) -> bool {
        self.is_sparse && self.major == 1
    }

    /// Tells the member of it. `stored`: the bytes of data that the archive has.
    pub(crate) fn apply(self, member: &mut Member, stored: u64) -> Result<()> {
        if !self.is_sparse {
            return Ok(());
        }
        if let Some(name) = self.name {
            member.name = name;
        }
        member.size = self.size.ok_or_else(malformed)?;
        member.map = checked(self.map, member.size, stored)?;
        Ok(())
    }

    /// Sets the map that was read before the data.
    pub(crate) fn set_map(&mut self, map: Map) {
        self.map = map;
    }
}

/// `OFFSET,LENGTH,OFFSET,LENGTH`
fn listed(text: &[u8]) -> Result<Map> {
    let numbers: Option<Vec<u64>> = text.split(|byte| *byte == b',').map(number).collect();
    let numbers = numbers.ok_or_else(malformed)?;
    let pairs = numbers.chunks(2);
    let map = pairs.map(|pair| match pair {
        [offset, length] => Ok((*offset, *length)),
        _ => Err(malformed()),
    });
    map.collect()
}

/// A map whose extents are in order, within the size, and add up to what is stored; empty ones are left out.
pub(crate) fn checked(map: Map, size: u64, stored: u64) -> Result<Map> {
    let (mut end, mut sum) = (0, 0u64);
    for (offset, length) in &map {
        if *offset < end {
            return Err(malformed());
        }
        end = offset.checked_add(*length).ok_or_else(malformed)?;
        sum = sum.checked_add(*length).ok_or_else(malformed)?;
    }
    if end > size || sum != stored || i64::try_from(size).is_err() {
        return Err(malformed());
    }
    Ok(map.into_iter().filter(|(_, length)| *length > 0).collect())
}

/// Reads the map that is before the data of version 1.0, and returns it with its length in bytes. `block` reads
/// the next block.
pub(crate) fn in_data(mut block: impl FnMut() -> Result<[u8; 512]>) -> Result<(Map, u64)> {
    let (mut line, mut rest, mut bytes) = (Vec::new(), Vec::new().into_iter(), 0);
    let mut next = || -> Result<u64> {
        line.clear();
        loop {
            match rest.next() {
                Some(b'\n') => return number(&line).ok_or_else(malformed),
                Some(byte) if line.len() < 20 => line.push(byte),
                Some(_) => return Err(malformed()),
                None => {
                    rest = block()?.to_vec().into_iter();
                    bytes += BLOCK_BYTES;
                }
            }
        }
    };
    let count = next()?;
    if count > EXTENTS_MAX {
        return Err(malformed());
    }
    let map = (0..count).map(|_| Ok((next()?, next()?)));
    let map = map.collect::<Result<Map>>()?;
    Ok((map, bytes))
}

/// The text of a map for version 1.0, padded.
pub(crate) fn text(map: &[(u64, u64)], size: u64) -> Vec<u8> {
    let end = map.last().map_or(0, |(offset, length)| offset + length);
    // By an empty extent GNU tar knows the size of a file that ends in a hole.
    let last = (end < size).then_some((size, 0));
    let mut text = format!("{}\n", map.len() + usize::from(last.is_some()));
    for (offset, length) in map.iter().chain(&last) {
        text += &format!("{offset}\n{length}\n");
    }
    let mut bytes = text.into_bytes();
    bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES as usize), 0);
    bytes
}

/// The size and the map of GNU's old format. `block` reads the next block.
pub(crate) fn old(
    header: &Header,
    mut block: impl FnMut() -> Result<[u8; 512]>,
) -> Result<(u64, Map)> {
    let gnu = header.as_gnu().ok_or_else(malformed)?;
    let size = gnu.real_size().map_err(|_| malformed())?;
    let mut map = Vec::new();
    add(&mut map, &gnu.sparse)?;
    let mut is_extended = gnu.is_extended();
    while is_extended {
        let mut more = GnuExtSparseHeader::new();
        more.as_mut_bytes().copy_from_slice(&block()?);
        add(&mut map, more.sparse())?;
        is_extended = more.is_extended();
        if map.len() as u64 > EXTENTS_MAX {
            return Err(malformed());
        }
    }
    Ok((size, map))
}

fn add(map: &mut Map, extents: &[GnuSparseHeader]) -> Result<()> {
    for extent in extents.iter().filter(|extent| !extent.is_empty()) {
        let number = |value: std::io::Result<u64>| value.map_err(|_| malformed());
        map.push((number(extent.offset())?, number(extent.length())?));
    }
    Ok(())
}
