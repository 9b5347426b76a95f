//! RAID-Z: the columns of each block lie on different devices, some of them parity of the others.
//!
//! # What it is
//! A block is written with parity of its own, whatever its size, to sectors that no other block shares:
//! nothing has to be read first, and no part of an old block is changed. [`map`] says where its columns lie;
//! the crate `parity` computes them; [`read`] finds the right bytes if columns are missing or wrong.
//!
//! # Invariants
//! 1. A write succeeds if of each block at most `nparity` columns failed; the children that failed get the txg
//!    into their DTLs.
//! 2. Children are devices or mirrors of devices (also while one is replaced).
//!
//! # Crash argument
//! A block is referred to only after all its columns were flushed, so a stripe that was written in part is
//! free space.
//!
//! # Concurrency
//! Commands to asynchronous devices overlap; others run in the caller's thread, child by child.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_raidz.c`.

mod map;
mod read;

use std::sync::Arc;

use base::{BlockBuf, Error, ErrorKind, Result};
use phys::label::ASHIFT_MAX;
use zio::{Io, Purpose, RunBlock, ScrubReport};

use super::health::no_device;
use super::{KindOps, Node};
use crate::Vdev;
use map::{Geometry, Map};
use read::Stripe;

/// A sector of zeros, of the largest size.
static ZEROS: [u8; 1 << ASHIFT_MAX] = [0; 1 << ASHIFT_MAX];

/// A RAID-Z of one, two or three columns of parity.
#[doc(alias = "vdev_raidz_ops")]
pub(crate) struct Raidz {
    nparity: usize,
}

/// What goes to one child: pieces that follow each other, and where the first one goes.
#[derive(Default)]
struct Strip<'a> {
    start: u64,
    end: u64,
    pieces: Vec<&'a [u8]>,
}

impl<'a> Strip<'a> {
    /// Adds a piece behind the others. What is between them was allocated together with them and holds
    /// nothing: zeros are written there, so that one command writes all.
    fn add(&mut self, offset: u64, bytes: &'a [u8]) {
        if self.pieces.is_empty() {
            (self.start, self.end) = (offset, offset);
        }
        assert!(
            self.end <= offset,
            "a piece at {offset} before {}",
            self.end
        );
        while self.end < offset {
            let len = (offset - self.end).min(ZEROS.len() as u64);
            self.pieces.push(&ZEROS[..len as usize]);
            self.end += len;
        }
        self.pieces.push(bytes);
        self.end += bytes.len() as u64;
    }
}

impl Raidz {
    pub(crate) fn new(nparity: u8) -> Self {
        Raidz {
            nparity: nparity.into(),
        }
    }

    fn geometry(&self, children: usize, ashift: u32) -> Geometry {
        assert!(
            children > self.nparity,
            "a RAID-Z of {children} children, {} for parity",
            self.nparity
        );
        Geometry {
            children,
            nparity: self.nparity,
            ashift,
        }
    }

    fn geometry_of(&self, node: &Node<'_>) -> Geometry {
        self.geometry(node.vdev.children().len(), node.vdev.ashift())
    }

    /// The map of a block at an offset that may come from disk.
    fn map(&self, node: &Node<'_>, offset: u64, bytes: usize) -> Result<Map> {
        let geometry = self.geometry_of(node);
        let mask = (1u64 << geometry.ashift) - 1;
        if bytes == 0 || (offset | bytes as u64) & mask != 0 {
            let what = format!("{bytes} bytes at {offset} are not whole sectors");
            return Err(Error::corrupt(what));
        }
        Ok(geometry.map(offset, bytes))
    }

    /// The parity of each block.
    fn parities(&self, parts: &[&[u8]], maps: &[Map]) -> Vec<Vec<BlockBuf>> {
        let parity = |(part, map): (&&[u8], &Map)| {
            let len = map.column(0).bytes;
            let mut parity: Vec<_> = (0..self.nparity).map(|_| BlockBuf::scratch(len)).collect();
            let mut rest = *part;
            let lens = map.columns().skip(self.nparity).map(|column| column.bytes);
            let data: Vec<&[u8]> = lens
                .map(|len| {
                    let (column, after) = rest.split_at(len);
                    rest = after;
                    column
                })
                .collect();
            let mut slices: Vec<&mut [u8]> = parity.iter_mut().map(|buf| &mut buf[..]).collect();
            parity::generate(&data, &mut slices);
            parity
        };
        parts.iter().zip(maps).map(parity).collect()
    }

    /// Whether so few children failed that every one of these blocks can be read.
    fn is_readable(&self, maps: &[Map], is_failed: &dyn Fn(usize) -> bool) -> bool {
        maps.iter().all(|map| {
            let failed = map.columns().filter(|column| is_failed(column.child));
            failed.count() <= self.nparity
        })
    }
}

impl KindOps for Raidz {
    fn read(
        &self,
        node: &Node<'_>,
        io: &Io,
        offset: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        let map = self.map(node, offset, buf.len())?;
        let fates = read::read_data(node, io, &map, self.nparity, buf);
        if fates.is_empty() && verify(buf) {
            return Ok(());
        }
        let mut stripe = Stripe::read(node, io, map, self.nparity, Some((&*buf, fates)));
        stripe.find(buf, verify)?;
        if io.purpose != Purpose::Speculative {
            stripe.settle(buf, false);
        }
        Ok(())
    }

    fn write(&self, node: &Node<'_>, io: &Io, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let geometry = self.geometry_of(node);
        let mut at = offset;
        let map = |part: &&[u8]| {
            let map = self.map(node, at, part.len());
            at += geometry.asize(part.len() as u64);
            map
        };
        let maps = parts.iter().map(map).collect::<Result<Vec<Map>>>()?;
        let parities = self.parities(parts, &maps);
        let mut strips: Vec<Strip<'_>> = Vec::new();
        strips.resize_with(geometry.children, Strip::default);
        for ((part, map), parity) in parts.iter().zip(&maps).zip(&parities) {
            let mut rest = *part;
            for (n, column) in map.columns().enumerate() {
                let bytes = match parity.get(n) {
                    Some(parity) => &parity[..],
                    None => {
                        let (bytes, after) = rest.split_at(column.bytes);
                        rest = after;
                        bytes
                    }
                };
                strips[column.child].add(column.offset, bytes);
            }
        }
        if io.purpose == Purpose::Repair {
            return self.repair(node, io, &maps, &strips);
        }
        let begin = |(n, strip): (usize, &Strip<'_>)| {
            let child = node.child(n);
            let is_used = !strip.pieces.is_empty();
            is_used.then(|| child.begin_write(io.priority, strip.start, &strip.pieces))
        };
        let begun: Vec<_> = strips.iter().enumerate().map(begin).collect();
        let mut failed = Vec::new();
        for (n, begun) in begun.into_iter().enumerate() {
            let Some(begun) = begun else { continue };
            let len = strips[n].end - strips[n].start;
            if let Err(error) = node.child(n).end_write(begun, len) {
                failed.push((n, error));
            }
        }
        if self.is_readable(&maps, &|child| failed.iter().any(|(n, _)| *n == child)) {
            for (n, _) in failed {
                let child: &Arc<Vdev> = &node.vdev.children()[n];
                for device in child.leaves() {
                    device.leaf().dirty_dtl(node.txgs.clone());
                }
            }
            return Ok(());
        }
        let error = failed.into_iter().next().map(|(_, error)| error);
        Err(error.unwrap_or_else(no_device))
    }

    fn scrub(
        &self,
        node: &Node<'_>,
        offset: u64,
        buf: &mut [u8],
        blocks: &[RunBlock],
        verify: &dyn Fn(usize, &[u8]) -> bool,
    ) -> Vec<Result<ScrubReport>> {
        let scrub = |(n, block): (usize, &RunBlock)| {
            let at = offset + block.range.start as u64;
            let buf = &mut buf[block.range.clone()];
            let map = self.map(node, at, buf.len())?;
            let io = Io::scrub(block.birth);
            let mut stripe = Stripe::read(node, &io, map, self.nparity, None);
            stripe.find(buf, &|bytes| verify(n, bytes))?;
            Ok(stripe.settle(buf, true))
        };
        blocks.iter().enumerate().map(scrub).collect()
    }

    fn is_linear(&self) -> bool {
        false
    }

    fn tolerated(&self, _: usize) -> usize {
        self.nparity
    }

    fn asize(&self, children: &[u64]) -> u64 {
        let least = children.iter().min().copied().unwrap_or(0);
        least.saturating_mul(children.len() as u64)
    }

    fn min_child_asize(&self, children: usize, asize: u64) -> u64 {
        asize.div_ceil(children.max(1) as u64)
    }

    fn psize_to_asize(&self, children: usize, ashift: u32, psize: u64) -> u64 {
        self.geometry(children, ashift).asize(psize)
    }

    fn data_disks(&self, children: usize) -> u64 {
        children.saturating_sub(self.nparity).max(1) as u64
    }
}

impl Raidz {
    /// Writes good bytes over blocks that could not be read.
    fn repair(&self, node: &Node<'_>, io: &Io, maps: &[Map], strips: &[Strip<'_>]) -> Result<()> {
        let mut failed = Vec::new();
        for (n, strip) in strips.iter().enumerate() {
            if strip.pieces.is_empty() {
                continue;
            }
            if let Err(error) = node.child(n).write(io, strip.start, &strip.pieces) {
                failed.push((n, error));
            }
        }
        // A child that failed this lacked the bytes before, too: it missed no write of a new txg.
        if self.is_readable(maps, &|child| failed.iter().any(|(n, _)| *n == child)) {
            return Ok(());
        }
        let error = failed.into_iter().next().map(|(_, error)| error);
        Err(error.unwrap_or_else(|| Error::new(ErrorKind::Io, "no column was written")))
    }
}
