//! Access at any byte offset to a provider that only takes whole sectors.

use base::{BlockBuf, Error, ErrorKind, Result};
use geom::Provider;

/// Reads up to `len` bytes; fewer at the end.
pub(crate) fn read(provider: &dyn Provider, offset: u64, len: u64) -> Result<Vec<u8>> {
    let mediasize = provider.mediasize();
    let len = len.min(mediasize.saturating_sub(offset));
    if len == 0 {
        return Ok(Vec::new());
    }
    let (start, end) = around(provider, offset, len);
    let mut block = vec![0; length(end - start)?];
    provider.read(start, &mut block)?;
    if start < offset {
        block.drain(..length(offset - start)?);
    }
    block.truncate(length(len)?);
    Ok(block)
}

/// Writes the part of `data` that is before the end; returns its length in bytes. Partially written
/// sectors are read first.
pub(crate) fn write(provider: &dyn Provider, offset: u64, data: &[u8]) -> Result<usize> {
    let left = provider.mediasize().saturating_sub(offset);
    let len = usize::try_from(left).unwrap_or(usize::MAX).min(data.len());
    let data = &data[..len];
    if data.is_empty() {
        return Ok(0);
    }
    let (start, end) = around(provider, offset, len as u64);
    if start == offset && end == offset + len as u64 {
        provider.write(offset, data)?;
        return Ok(len);
    }
    let sector = provider.sectorsize() as usize;
    let mut block = BlockBuf::zeroed(length(end - start)?);
    let whole = block.len();
    let head = length(offset - start)?;
    if head > 0 {
        provider.read(start, &mut block[..sector])?;
    }
    let ends_inside = end > offset + len as u64;
    let head_was_all = head > 0 && whole == sector;
    if ends_inside && !head_was_all {
        provider.read(end - sector as u64, &mut block[whole - sector..])?;
    }
    block[head..head + len].copy_from_slice(data);
    provider.write(start, &block)?;
    Ok(len)
}

/// Deletes the whole sectors within a range; a partial sector at either end is kept.
pub(crate) fn delete(provider: &dyn Provider, offset: u64, len: u64) -> Result<()> {
    let sector = u64::from(provider.sectorsize());
    let end = offset.saturating_add(len).min(provider.mediasize());
    let (start, end) = (offset.next_multiple_of(sector), end - end % sector);
    if start >= end {
        return Ok(());
    }
    provider.delete(start, end - start)
}

/// The start and end of the sectors that a range touches. The range ends within the provider.
fn around(provider: &dyn Provider, offset: u64, len: u64) -> (u64, u64) {
    let sector = u64::from(provider.sectorsize());
    let end = (offset + len).next_multiple_of(sector);
    (offset - offset % sector, end.min(provider.mediasize()))
}

fn length(bytes: u64) -> Result<usize> {
    usize::try_from(bytes).map_err(|_| Error::new(ErrorKind::TooBig, "a command that long"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ram::Memory;

    proptest! {
        #[test]
        fn prop_any_range_reads_and_writes_as_of_plain_bytes(
            sector in prop::sample::select(vec![512u32, 4096]),
            steps in prop::collection::vec((0u64..40_000, 0usize..20_000, any::<u8>()), 1..20),
        ) {
            const SIZE: u64 = 32 << 10;
            let disk = Memory::with_sectors("md0", SIZE, sector, 4096);
            let mut model = vec![0u8; SIZE as usize];
            for (offset, len, byte) in steps {
                let written = write(&disk, offset, &vec![byte; len]).unwrap();
                let start = (offset.min(SIZE)) as usize;
                let end = (start + len).min(SIZE as usize);
                prop_assert_eq!(written, end - start);
                model[start..end].fill(byte);
                let back = read(&disk, offset / 2, len as u64 + 100).unwrap();
                let start = (offset / 2) as usize;
                let end = (start + len + 100).min(SIZE as usize);
                prop_assert_eq!(&back[..], &model[start.min(end)..end]);
            }
        }
    }

    #[test]
    fn only_whole_sectors_are_deleted() {
        let disk = Memory::new("md0", 4096);
        disk.write(0, &[7; 4096]).unwrap();
        delete(&disk, 100, 1500).unwrap();
        let back = read(&disk, 0, 4096).unwrap();
        assert_eq!(back.iter().filter(|byte| **byte == 0).count(), 1024);
        delete(&disk, 100, 300).unwrap();
        delete(&disk, 9000, u64::MAX).unwrap();
    }
}
