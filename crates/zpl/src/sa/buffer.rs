//! One file's attributes: where they are in bonus and spill, and as a set to be rewritten.
//!
//! # Source
//! OpenZFS `module/zfs/sa.c` (`sa_attr_iter`, `sa_attr_op`, `sa_modify_attrs`).

use std::borrow::Cow;
use std::ops::Range;

use base::{Error, Result, align_up};
use phys::ObjectType;
use phys::byteswap::{is_big_endian_sa, swap_attribute, swap_sa_header};
use phys::sa::{SaView, header_size};
use smallvec::SmallVec;
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use super::table::Tables;

/// The value of an attribute. Those that every file has fit without memory of their own.
pub(crate) type Value = SmallVec<[u8; 48]>;

/// Attributes by number, and where each is in a buffer. Those that every file has fit without memory of their own.
pub(crate) type Found = SmallVec<[(u16, Range<usize>); 24]>;

/// Attributes in the order of their layouts, bonus before spill.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AttrSet(Vec<(u16, Value)>);

impl AttrSet {
    pub(crate) fn with_capacity(attrs: usize) -> AttrSet {
        AttrSet(Vec::with_capacity(attrs))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &[u8])> {
        self.0.iter().map(|(attr, value)| (*attr, &value[..]))
    }

    pub(crate) fn get(&self, attr: u16) -> Option<&[u8]> {
        self.iter()
            .find(|(have, _)| *have == attr)
            .map(|(_, value)| value)
    }

    /// Replaces the value of `attr` where it is, or adds it at the end.
    pub(crate) fn set(&mut self, attr: u16, value: Value) {
        match self.0.iter_mut().find(|(have, _)| *have == attr) {
            Some((_, old)) => *old = value,
            None => self.0.push((attr, value)),
        }
    }

    /// Replaces the value of `attr` where it is, or adds it behind the attribute `before`.
    pub(crate) fn set_behind(&mut self, before: u16, attr: u16, value: Value) {
        let at = self.0.iter().position(|(have, _)| *have == before);
        match at.filter(|_| self.get(attr).is_none()) {
            Some(at) => self.0.insert(at + 1, (attr, value)),
            None => self.set(attr, value),
        }
    }

    /// Adds all attributes of a buffer.
    pub(crate) fn extend_from(
        &mut self,
        tables: &Tables,
        bytes: &[u8],
        type_: ObjectType,
    ) -> Result<()> {
        let bytes = in_host_order(tables, bytes, type_)?;
        for (attr, range) in parse(tables, &bytes, type_)? {
            if self.get(attr).is_some() {
                return Err(Error::corrupt(format!("attribute {attr} is stored twice")));
            }
            self.0.push((attr, bytes[range].into()));
        }
        Ok(())
    }
}

/// A buffer as this host would have written it, if a big-endian one did: the block that it is in was
/// converted without it.
#[doc(alias = "sa_byteswap")]
pub(crate) fn in_host_order<'a>(
    tables: &Tables,
    bytes: &'a [u8],
    type_: ObjectType,
) -> Result<Cow<'a, [u8]>> {
    if type_ != ObjectType::SA || !is_big_endian_sa(bytes) {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut swapped = bytes.to_vec();
    swap_sa_header(&mut swapped);
    for (attr, range) in parse(tables, &swapped, type_)? {
        if let Some(kind) = tables.kind(attr) {
            swap_attribute(kind, &mut swapped[range]);
        }
    }
    Ok(Cow::Owned(swapped))
}

/// Where the attributes of a buffer are; `type_` is the bonus type of the object.
pub(crate) fn parse(tables: &Tables, bytes: &[u8], type_: ObjectType) -> Result<Found> {
    if type_ == ObjectType::ZNODE {
        return walk(tables, tables.layout(0)?, bytes, 0, |_| None);
    }
    if type_ != ObjectType::SA {
        return Err(Error::corrupt(format!(
            "bonus of type \"{}\" has no attributes",
            type_.name()
        )));
    }
    let magic = U32::read_from_prefix(bytes).map_or(0, |(magic, _)| magic.get());
    if magic == 0 {
        // An object that was allocated and not filled in yet.
        return Ok(Found::new());
    }
    let view = SaView::new(bytes)?;
    let layout = tables.layout(view.layout())?;
    let variable = layout
        .iter()
        .filter(|attr| tables.fixed_len(**attr) == 0)
        .count();
    if header_size(variable) != view.header().size() {
        return Err(Error::corrupt(format!(
            "SA header of {} bytes with {variable} lengths in layout {}",
            view.header().size(),
            view.layout()
        )));
    }
    walk(tables, layout, bytes, view.header().size(), |index| {
        view.length(index)
    })
}

fn walk(
    tables: &Tables,
    layout: &[u16],
    bytes: &[u8],
    start: usize,
    length: impl Fn(usize) -> Option<u16>,
) -> Result<Found> {
    let mut found = Found::with_capacity(layout.len());
    let mut at = start;
    let mut variable = 0;
    for attr in layout {
        let len = match tables.fixed_len(*attr) {
            0 => {
                variable += 1;
                length(variable - 1).map(usize::from)
            }
            len => Some(len),
        };
        let end = len.map(|len| at + len).filter(|end| *end <= bytes.len());
        let Some(end) = end else {
            return Err(Error::corrupt(format!(
                "attribute {attr} at {at} does not fit {} bytes",
                bytes.len()
            )));
        };
        found.push((*attr, at..end));
        at = align_up(end as u64, 8) as usize;
    }
    Ok(found)
}
