//! What to change in an image, at random.
//!
//! # What it is
//! First the kind of block is chosen, then the block: there are many file blocks but only one config. Most
//! changes replace a nonzero word by one that is likely to hurt: a boundary value, the old value plus or minus
//! one, the number of another object, a pointer from elsewhere.

use std::sync::Arc;

use geom::Provider;
use nvpair::{NvList, NvValue};
use phys::BlkPtrPhys;
use phys::dnode::DNODE_MIN_SIZE;

use super::image::{Block, Edit, Image, Role};
use super::vdev_config;
use crate::Dice;

/// Where choices come from.
pub trait Choices {
    /// A number below `bound`, which is at least 1.
    fn below(&mut self, bound: u64) -> u64;
}

/// Choices from a seeded generator.
impl Choices for Dice {
    fn below(&mut self, bound: u64) -> u64 {
        Dice::below(self, bound)
    }
}

/// Choices from the bytes of a fuzzer; zeros after the last one.
pub struct Choosing<'a>(pub &'a [u8]);

impl Choices for Choosing<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        let mut value = 0u64;
        let mut range = 1u64;
        while range < bound {
            let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
            self.0 = rest;
            value = value << 8 | u64::from(*first);
            if range >= 1 << 56 {
                break;
            }
            range <<= 8;
        }
        value % bound.max(1)
    }
}

/// Makes one to four changes.
pub(crate) fn mutate(image: &Image, choices: &mut dyn Choices) -> Vec<Arc<dyn Provider>> {
    let mut edit = image.edit();
    for _ in 0..=choices.below(6).saturating_sub(2) {
        match choices.below(24) {
            0 => uberblock(&mut edit, choices),
            1 => label(&mut edit, choices),
            2..10 if image.lies_about_vdevs => vdev_config::lie(&mut edit, choices),
            _ => block(&mut edit, choices),
        }
    }
    edit.finish()
}

fn block(edit: &mut Edit<'_>, choices: &mut dyn Choices) {
    let Some(index) = pick_block(edit.image(), choices) else {
        return;
    };
    let image = edit.image();
    let block = &image.blocks[index];
    match block.role {
        Role::Indirect(_) => pointers(edit, index, choices),
        Role::MosDnodes | Role::Dnodes => dnode(edit, index, choices),
        Role::Data(type_) if type_ == phys::ObjectType::PACKED_NVLIST.raw() => {
            packed(edit, index, choices);
        }
        Role::Objset | Role::Data(_) | Role::Log => {
            let content = edit.content(index);
            let at = pick_word(content, 0..content.len(), choices);
            let with = pick_value(content, at, image, choices);
            put(content, at, with, choices);
        }
    }
}

/// A random block of a random kind.
fn pick_block(image: &Image, choices: &mut dyn Choices) -> Option<usize> {
    let mut roles: Vec<Role> = image.blocks.iter().map(|block| block.role).collect();
    roles.sort_unstable();
    roles.dedup();
    // About half of the time a block of dnodes: everything else is found through them.
    let role = match choices.below(5) {
        0 => Role::MosDnodes,
        1 => Role::Dnodes,
        _ => *roles.get(choices.below(roles.len() as u64) as usize)?,
    };
    let of_role = |(index, block): (usize, &Block)| (block.role == role).then_some(index);
    let those: Vec<usize> = image
        .blocks
        .iter()
        .enumerate()
        .filter_map(of_role)
        .collect();
    those
        .get(choices.below(those.len() as u64) as usize)
        .copied()
}

/// Changes a word of an allocated dnode: of its head, its pointers or its bonus.
fn dnode(edit: &mut Edit<'_>, index: usize, choices: &mut dyn Choices) {
    let image = edit.image();
    let original = &image.blocks[index].content;
    let used: Vec<usize> = (0..original.len())
        .step_by(DNODE_MIN_SIZE)
        .filter(|at| original[*at] != 0)
        .collect();
    if used.is_empty() {
        return;
    }
    let start = used[choices.below(used.len() as u64) as usize];
    let end = (start + DNODE_MIN_SIZE).min(original.len());
    let content = edit.content(index);
    match choices.below(8) {
        // One of the first 16 bytes: type, levels, shifts, counts, 16-bit lengths.
        0 => {
            let at = start + choices.below(16) as usize;
            content[at] = [0, 1, 2, 3, 7, 8, 16, 63, 127, 128, 255][choices.below(11) as usize];
        }
        // Another dnode is copied over it.
        1 => {
            let from = used[choices.below(used.len() as u64) as usize];
            content.copy_within(from..from + DNODE_MIN_SIZE, start);
        }
        _ => {
            let at = pick_word(content, start..end, choices);
            let with = pick_value(content, at, image, choices);
            put(content, at, with, choices);
        }
    }
}

/// Changes a word of a pointer, or replaces the whole pointer by another.
fn pointers(edit: &mut Edit<'_>, index: usize, choices: &mut dyn Choices) {
    const BYTES: usize = size_of::<BlkPtrPhys>();
    let image = edit.image();
    let content = edit.content(index);
    let at = pick_word(content, 0..content.len(), choices);
    if choices.below(3) == 0 {
        let other = &image.blocks[choices.below(image.blocks.len() as u64) as usize];
        let start = at / BYTES * BYTES;
        content[start..start + BYTES].copy_from_slice(zerocopy::IntoBytes::as_bytes(&other.bp));
    } else {
        let with = pick_value(content, at, image, choices);
        put(content, at, with, choices);
    }
}

/// The offset of a word in the range; three times out of four of a nonzero word, if there is one.
fn pick_word(content: &[u8], range: std::ops::Range<usize>, choices: &mut dyn Choices) -> usize {
    let words = range.len() / 8;
    if words == 0 {
        return range.start;
    }
    let first = choices.below(words as u64) as usize;
    let any = choices.below(4) == 0;
    let offset = |word: usize| range.start + word % words * 8;
    let is_used = |at: &usize| any || word_at(content, *at) != 0;
    (first..first + words)
        .map(offset)
        .find(is_used)
        .unwrap_or(range.start)
}

fn word_at(content: &[u8], at: usize) -> u64 {
    content[at..]
        .first_chunk::<8>()
        .map_or(0, |word| u64::from_le_bytes(*word))
}

/// A new value for the word at `at`.
fn pick_value(content: &[u8], at: usize, image: &Image, choices: &mut dyn Choices) -> u64 {
    let old = word_at(content, at);
    match choices.below(9) {
        0 => limit(choices),
        1 => old.wrapping_add(1),
        2 => old.wrapping_sub(1),
        3 => old ^ 1 << choices.below(64),
        4 => choices.below(256),
        5 => word_at(content, pick_word(content, 0..content.len(), choices)),
        6 => old << choices.below(16),
        7 => {
            let other = &image.blocks[choices.below(image.blocks.len() as u64) as usize].content;
            word_at(other, pick_word(other, 0..other.len(), choices))
        }
        _ => old ^ choices.below(256) << (8 * choices.below(8)),
    }
}

pub(super) fn limit(choices: &mut dyn Choices) -> u64 {
    let shift = [0, 7, 8, 15, 16, 31, 32, 47, 48, 62, 63, 64][choices.below(12) as usize];
    let power = 1u64.checked_shl(shift).unwrap_or(0);
    power.wrapping_add(choices.below(3)).wrapping_sub(1)
}

/// Overwrites the word at `at`, or an aligned half, quarter or eighth of it.
fn put(content: &mut [u8], at: usize, with: u64, choices: &mut dyn Choices) {
    let (bytes, shift) = match choices.below(6) {
        0 => (1, choices.below(8)),
        1 => (2, choices.below(4) * 2),
        2 => (4, choices.below(2) * 4),
        _ => (8, 0),
    };
    let at = at + shift as usize;
    if let Some(place) = content.get_mut(at..at + bytes) {
        place.copy_from_slice(&with.to_le_bytes()[..bytes]);
    }
}

fn uberblock(edit: &mut Edit<'_>, choices: &mut dyn Choices) {
    let image = edit.image();
    let mut bytes = zerocopy::IntoBytes::as_bytes(&edit.uberblock).to_vec();
    let length = bytes.len();
    let at = pick_word(&bytes, 8..length, choices);
    let with = pick_value(&bytes, at, image, choices);
    put(&mut bytes, at, with, choices);
    zerocopy::IntoBytes::as_mut_bytes(&mut edit.uberblock).copy_from_slice(&bytes);
}

fn label(edit: &mut Edit<'_>, choices: &mut dyn Choices) {
    let change = NvChange::pick(choices);
    edit.config(move |list| change.apply(list));
}

/// Changes or removes a value of a packed nvlist, which stays a valid one.
fn packed(edit: &mut Edit<'_>, index: usize, choices: &mut dyn Choices) {
    let change = NvChange::pick(choices);
    let content = edit.content(index);
    let Ok(mut list) = nvpair::decode(content) else {
        return;
    };
    change.apply(&mut list);
    let packed = nvpair::encode_xdr(&list);
    if packed.len() <= content.len() {
        content[..packed.len()].copy_from_slice(&packed);
    }
}

/// A change of one value in an nvlist.
struct NvChange {
    /// Index of the value, counted over all nested lists.
    nth: u64,
    with: u64,
    /// Whether to remove the value instead.
    removes: bool,
}

impl NvChange {
    fn pick(choices: &mut dyn Choices) -> NvChange {
        let small = choices.below(2) == 0;
        NvChange {
            nth: choices.below(128),
            with: if small {
                choices.below(80)
            } else {
                limit(choices)
            },
            removes: choices.below(6) == 0,
        }
    }

    fn apply(&self, list: &mut NvList) {
        let count = count_values(list);
        if count > 0 {
            let mut nth = self.nth % count;
            self.apply_to(list, &mut nth);
        }
    }

    fn apply_to(&self, list: &mut NvList, nth: &mut u64) -> bool {
        let names: Vec<Vec<u8>> = list
            .iter()
            .map(|(name, _)| name.as_bytes().to_vec())
            .collect();
        for name in names {
            if *nth == 0 && self.removes {
                list.remove(&name);
                return true;
            }
            let Some(value) = list.get_mut(&name) else {
                continue;
            };
            if *nth == 0 {
                self.change(value);
                return true;
            }
            *nth -= 1;
            let inner: &mut [NvList] = match value {
                NvValue::List(list) => std::slice::from_mut(list),
                NvValue::ListArray(lists) => lists,
                _ => continue,
            };
            if inner.iter_mut().any(|list| self.apply_to(list, nth)) {
                return true;
            }
        }
        false
    }

    fn change(&self, value: &mut NvValue) {
        match value {
            NvValue::Uint64(number) => *number = self.with,
            NvValue::ListArray(lists) if self.with & 1 == 0 => {
                lists.extend(lists.clone());
            }
            NvValue::ListArray(lists) => lists.clear(),
            NvValue::List(list) => {
                let copy = list.clone();
                list.add("children", vec![copy.clone(), copy]);
            }
            other => *other = NvValue::Uint64(self.with),
        }
    }
}

fn count_values(list: &NvList) -> u64 {
    let inner = |value: &NvValue| match value {
        NvValue::List(list) => count_values(list),
        NvValue::ListArray(lists) => lists.iter().map(count_values).sum(),
        _ => 0,
    };
    list.iter().map(|(_, value)| 1 + inner(value)).sum()
}
