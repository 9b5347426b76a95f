//! Packing: which attributes fit into the bonus, and the bytes of both buffers.
//!
//! # Source
//! OpenZFS `module/zfs/sa.c` (`sa_find_sizes`, `sa_build_layouts`).

use base::{BlockBuf, Buf, Error, ErrorKind, Result, SPA_MINBLOCKSIZE, SPA_OLD_MAXBLOCKSIZE};
use base::{align_up, is_aligned};
use phys::Phys;
use phys::sa::SaHdrPhys;
use zerocopy::little_endian::U16;

use super::buffer::AttrSet;

/// `sizeof (blkptr_t)`: what a spill pointer takes from the bonus.
const BLKPTR_BYTES: usize = 128;
/// The size of a header is stored in 6 bits, in units of 8 bytes.
const HEADER_MAX_BYTES: usize = 63 * 8;

/// How large an attribute is, and whether its length is stored in the header.
#[derive(Clone, Copy, Debug)]
struct Item {
    len: usize,
    is_variable: bool,
}

/// The outcome of measuring attributes against a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    header: usize,
    /// Of all attributes, each but the last padded to 8 bytes.
    total: usize,
    /// The first attribute that goes to the spill block, if anything does.
    spill_from: Option<usize>,
}

fn round8(bytes: usize) -> usize {
    align_up(bytes as u64, 8) as usize
}

/// Measures `items` against a bonus of `space` bytes.
///
/// The spill pointer would cover the last 128 bytes of the bonus. So the first attribute that
/// reaches into those is remembered, and if anything after it does not fit at all, everything from
/// the remembered one on goes to the spill block.
fn measure_bonus(items: &[Item], space: usize) -> Sizes {
    assert!(is_aligned(space as u64, 8), "a bonus of {space} bytes");
    let mut header = SaHdrPhys::SIZE;
    let mut header_if_kept = 0;
    let mut total = 0;
    let mut variable = 0;
    let mut candidate = None;
    let mut is_spilling = false;
    for (index, item) in items.iter().enumerate() {
        total = round8(total) + item.len;
        if is_spilling {
            continue;
        }
        variable += usize::from(item.is_variable);
        let needs_length = item.is_variable && variable > 1;
        let grown = header + if needs_length { 2 } else { 0 };
        let reaches_pointer = candidate.is_none() && total + round8(grown) > space - BLKPTR_BYTES;
        if needs_length {
            if grown + total >= space {
                candidate = candidate.or(Some(index));
                is_spilling = true;
                continue;
            }
            header = grown;
            if candidate.is_some() || reaches_pointer {
                header_if_kept += 2;
            }
        }
        if reaches_pointer {
            candidate = Some(index);
        }
        is_spilling = total + round8(header) > space;
    }
    if is_spilling {
        header -= header_if_kept;
    }
    let spill_from = candidate.filter(|_| is_spilling);
    Sizes {
        header: round8(header),
        total,
        spill_from,
    }
}

/// Measures `items` in a spill block, which has room for everything.
fn measure_spill(items: &[Item]) -> Sizes {
    let total = items.iter().fold(0, |total, item| round8(total) + item.len);
    let variable = items.iter().filter(|item| item.is_variable).count();
    Sizes {
        header: phys::sa::header_size(variable),
        total,
        spill_from: None,
    }
}

/// Attributes as bytes.
pub(crate) struct Packed {
    pub(crate) bonus: Vec<u8>,
    pub(crate) spill: Option<Buf>,
}

/// Packs `attrs` for a dnode whose bonus, without a spill pointer, has `bonus_space` bytes.
///
/// `fixed_lens` has each attribute's registered length, 0 if it varies; `layout_of` returns the number of a
/// layout, which it may create. `old_spill_len`: bytes of the existing spill block; such blocks only grow.
pub(crate) fn pack(
    attrs: &AttrSet,
    bonus_space: usize,
    old_spill_len: usize,
    fixed_lens: &[usize],
    mut layout_of: impl FnMut(&[u16]) -> Result<u16>,
) -> Result<Packed> {
    let items: Vec<Item> = attrs
        .iter()
        .zip(fixed_lens)
        .map(|((_, value), fixed)| Item {
            len: value.len(),
            is_variable: *fixed == 0,
        })
        .collect();
    for ((attr, value), &fixed) in attrs.iter().zip(fixed_lens) {
        if fixed == 0 && value.len() > usize::from(u16::MAX) {
            let what = format!("attribute {attr} of {} bytes", value.len());
            return Err(Error::new(ErrorKind::TooBig, what));
        }
        if fixed != 0 && fixed != value.len() {
            let len = value.len();
            return Err(Error::corrupt(format!(
                "attribute {attr} is registered with {fixed} bytes, not {len}"
            )));
        }
    }
    let sizes = measure_bonus(&items, bonus_space);
    if sizes.total as u64 > SPA_OLD_MAXBLOCKSIZE || sizes.header > HEADER_MAX_BYTES {
        return Err(Error::new(
            ErrorKind::TooBig,
            format!("{} bytes of attributes", sizes.total),
        ));
    }
    let Some(spill_from) = sizes.spill_from else {
        let mut bonus = vec![0; sizes.header + sizes.total];
        fill(
            &mut bonus,
            sizes.header,
            attrs,
            0..attrs.len(),
            &items,
            &mut layout_of,
        )?;
        return Ok(Packed { bonus, spill: None });
    };
    let mut bonus = vec![0; (bonus_space - BLKPTR_BYTES).min(sizes.header + sizes.total)];
    fill(
        &mut bonus,
        sizes.header,
        attrs,
        0..spill_from,
        &items,
        &mut layout_of,
    )?;
    let spilled = measure_spill(&items[spill_from..]);
    let need = align_up((spilled.header + spilled.total) as u64, SPA_MINBLOCKSIZE);
    if need > SPA_OLD_MAXBLOCKSIZE || spilled.header > HEADER_MAX_BYTES {
        return Err(Error::new(
            ErrorKind::TooBig,
            format!("{need} bytes of spilled attributes"),
        ));
    }
    let mut spill = BlockBuf::zeroed((need as usize).max(old_spill_len));
    let range = spill_from..attrs.len();
    fill(
        &mut spill,
        spilled.header,
        attrs,
        range,
        &items,
        &mut layout_of,
    )?;
    Ok(Packed {
        bonus,
        spill: Some(spill.share()),
    })
}

/// Writes header, lengths and values of the attributes in `range`.
fn fill(
    bytes: &mut [u8],
    header_len: usize,
    attrs: &AttrSet,
    range: std::ops::Range<usize>,
    items: &[Item],
    layout_of: &mut impl FnMut(&[u16]) -> Result<u16>,
) -> Result<()> {
    let numbers: Vec<u16> = attrs.iter().map(|(attr, _)| attr).collect();
    SaHdrPhys::new(layout_of(&numbers[range.clone()])?, header_len).write(bytes);
    let mut length_at = std::mem::offset_of!(SaHdrPhys, first_length);
    let mut at = header_len;
    for ((_, value), item) in attrs.iter().zip(items).skip(range.start).take(range.len()) {
        bytes[at..at + value.len()].copy_from_slice(value);
        at = round8(at + value.len());
        if item.is_variable {
            let length = U16::new(value.len() as u16);
            bytes[length_at..length_at + 2].copy_from_slice(&length.to_bytes());
            length_at += 2;
        }
    }
    assert!(
        length_at <= header_len.max(SaHdrPhys::SIZE),
        "lengths overflow the header"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(len: usize) -> Item {
        Item {
            len,
            is_variable: false,
        }
    }

    fn variable(len: usize) -> Item {
        Item {
            len,
            is_variable: true,
        }
    }

    /// What every file has: 7 words, 4 times, links, project, ACL count, 3 entries of ACL.
    fn plain_file() -> Vec<Item> {
        let mut items = vec![fixed(8); 7];
        items.extend(vec![fixed(16); 4]);
        items.extend([fixed(8), fixed(8), fixed(8), variable(24)]);
        items
    }

    #[test]
    fn a_plain_file_fits_a_small_dnode() {
        let sizes = measure_bonus(&plain_file(), 320);
        assert_eq!(
            (sizes.header, sizes.total, sizes.spill_from),
            (8, 168, None)
        );
    }

    #[test]
    fn a_short_link_stays_and_a_long_one_spills() {
        let with_link = |len| {
            let mut items = plain_file();
            items.push(variable(len));
            measure_bonus(&items, 320)
        };
        // 16 of header, 168 of the rest, and up to 136 of target.
        assert_eq!(with_link(135).spill_from, None);
        assert_eq!(with_link(135).header, 16);
        assert_eq!(with_link(137).spill_from, Some(15));
        // Its length left the header with the attribute.
        assert_eq!(with_link(137).header, 8);
    }

    #[test]
    fn what_reaches_the_spill_pointer_spills_with_the_rest() {
        let mut items = plain_file();
        items.extend([fixed(32), variable(200)]);
        // The 32 bytes end at 8 + 200 = 208, beyond 192: they go, too.
        assert_eq!(measure_bonus(&items, 320).spill_from, Some(15));
    }

    #[test]
    fn spill_blocks_have_all_lengths_in_their_header() {
        let sizes = measure_spill(&[variable(5), variable(9), fixed(8)]);
        assert_eq!((sizes.header, sizes.total), (16, 32));
    }
}
