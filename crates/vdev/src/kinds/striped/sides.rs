//! The sides of children that are mirrors: devices that are being replaced, and hot spares in use.
//!
//! A child that is a mirror is read from one of its devices, and nothing on the device tells whether that is the one
//! that has the block: each may have missed some writes of the same txg, and either may have rotted. A block that is
//! not found with the bytes read first may be there with those of the others.
//!
//! A write to a mirror succeeds only if one device took all of it, so a side is chosen for all columns of a block that
//! are on the child.
//!
//! # Source
//! OpenZFS has nothing like it: below `module/zfs/vdev_raidz.c`, `module/zfs/vdev_mirror.c` returns what one side has.

use std::mem;
use std::sync::Arc;

use base::BlockBuf;
use zio::Io;

use super::band::{Band, Bytes};
use super::row::Row;
use crate::Vdev;
use crate::kinds::Node;

/// Which of its sides each child is taken from can be chosen in so many ways, at most; what further children have on
/// their other sides is not asked.
const CHOICES_MAX: usize = 64;

/// What one device of a child has in all columns of a block that are on the child.
pub(super) struct Side<'a>(Vec<SideColumn<'a>>);

struct SideColumn<'a> {
    band: usize,
    column: usize,
    bytes: Bytes<'a>,
}

impl<'a> Side<'a> {
    /// Nothing if the device cannot be read there: then it has nothing to choose.
    fn read<R: Row>(
        (node, io): (&Node<'_>, &Io),
        bands: &[Band<'a, R>],
        child: usize,
        device: &Arc<Vdev>,
    ) -> Option<Side<'a>> {
        let node = node.child(child);
        let mut columns = Vec::new();
        for (number, band) in bands.iter().enumerate() {
            let on_child = band.read_columns().filter(|(_, at)| at.child == child);
            for (n, at) in on_child {
                if !node.is_usable_at(device, at.offset) {
                    return None;
                }
                let mut bytes = BlockBuf::scratch(band.columns[n].len());
                let read = node.read_device(device, io, at.offset, &mut bytes);
                read.ok()?;
                columns.push(SideColumn {
                    band: number,
                    column: n,
                    bytes: Bytes::Own(bytes),
                });
            }
        }
        Some(Side(columns))
    }

    fn bytes(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|own| &*own.bytes)
    }

    /// Whether the columns hold what this side has.
    fn is_in<R: Row>(&self, bands: &[Band<'a, R>]) -> bool {
        let is_same = |own: &SideColumn<'_>| bands[own.band].columns[own.column] == own.bytes;
        self.0.iter().all(is_same)
    }

    /// Puts its bytes into the columns, and keeps those that were there.
    pub(super) fn swap<R: Row>(&mut self, bands: &mut [Band<'a, R>]) {
        for own in &mut self.0 {
            mem::swap(&mut bands[own.band].columns[own.column], &mut own.bytes);
        }
    }
}

impl PartialEq for Side<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes().eq(other.bytes())
    }
}

/// For each child that is a mirror with sides that are not alike: those that were not read yet.
pub(super) fn read_others<'a, R: Row>(
    (node, io): (&Node<'_>, &Io),
    bands: &[Band<'a, R>],
    children: &[usize],
) -> Vec<Vec<Side<'a>>> {
    let mut choices = 1;
    let mut found = Vec::new();
    for child in children {
        let devices = node.vdev.children()[*child].leaves();
        if devices.len() == 1 {
            continue;
        }
        let mut others: Vec<Side<'_>> = Vec::new();
        for device in devices {
            let side = Side::read((node, io), bands, *child, device);
            let is_new = |side: &Side<'_>| !side.is_in(bands) && !others.contains(side);
            others.extend(side.filter(is_new));
        }
        if others.is_empty() {
            continue;
        }
        choices *= 1 + others.len();
        if choices > CHOICES_MAX {
            break;
        }
        found.push(others);
    }
    found
}
