//! A vdev that was removed: its data is on others.
//!
//! # What it is
//! I/O goes to where the mapping says. A block in one piece is read there as any other one: its checksum picks
//! the copy. Of a split block each piece may have several copies, and the checksum is that of all pieces
//! together: if the first copies do not match, combinations of the different copies are tried.
//!
//! # Invariants
//! 1. Nothing is written to a removed vdev, but good bytes over bad ones.
//! 2. A device lacks a piece if it missed the txg in which the piece was copied, whenever the block was born.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_indirect.c` (`vdev_indirect_io_start`, `vdev_indirect_splits_enumerate_all`,
//! `vdev_indirect_repair`).

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use zio::{Io, Placement, Purpose, RunBlock, ScrubReport};

use super::{KindOps, Node};
use crate::{Piece, Vdev};

/// `zfs_reconstruct_indirect_combinations_max`: combinations of copies of a split block that are tried, at most.
const COMBINATIONS_MAX: usize = 4096;
/// Different copies of one piece that are tried, at most: a RAID-Z has any number of them.
const COPIES_MAX: usize = 16;

/// A removed vdev.
#[doc(alias = "vdev_indirect_ops")]
pub(crate) struct Indirect;

/// A piece of a block, and the vdev that it is on.
struct Part {
    top: Arc<Vdev>,
    piece: Piece,
}

impl Part {
    /// Where it is in the block.
    fn range(&self) -> Range<usize> {
        let start = self.piece.at as usize;
        start..start + self.piece.size as usize
    }

    /// The attributes of I/O to it.
    fn io(&self, io: &Io) -> Io {
        Io {
            birth: self.piece.birth.unwrap_or(io.birth),
            ..*io
        }
    }

    fn read(
        &self,
        node: &Node<'_>,
        io: &Io,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        let there = node.tree.node(&self.top);
        there.read(&self.io(io), self.piece.offset, buf, verify)
    }

    /// Compares each copy with the good bytes, and rewrites those that differ.
    fn repair(&self, node: &Node<'_>, io: &Io, good: &[u8]) -> Result<ScrubReport> {
        let block = RunBlock {
            offset: self.piece.offset,
            range: 0..good.len(),
            birth: self.io(io).birth,
        };
        let mut scratch = vec![0; good.len()];
        let there = node.tree.node(&self.top);
        let is_good = |_: usize, bytes: &[u8]| bytes == good;
        let mut reports = there.scrub(&mut scratch, &[block], &is_good);
        reports.pop().expect("there is one block")
    }

    /// The different copies of it that can be read.
    fn copies(&self, node: &Node<'_>, io: &Io) -> Result<Vec<Vec<u8>>> {
        let copies: RefCell<Vec<Vec<u8>>> = RefCell::default();
        let mut scratch = vec![0; self.piece.size as usize];
        let io = Io {
            purpose: Purpose::Speculative,
            ..*io
        };
        let outcome = self.read(node, &io, &mut scratch, &|bytes| {
            let mut copies = copies.borrow_mut();
            if copies.len() < COPIES_MAX && !copies.iter().any(|copy| copy == bytes) {
                copies.push(bytes.to_vec());
            }
            false
        });
        let copies = copies.into_inner();
        match outcome {
            Err(error) if copies.is_empty() => Err(error),
            _ => Ok(copies),
        }
    }
}

/// The parts of a range of a removed vdev.
fn parts_of(node: &Node<'_>, offset: u64, len: usize) -> Result<Vec<Part>> {
    let no_mapping = || Error::corrupt("the mapping of a removed vdev was not read");
    let mapping = node.vdev.mapping().ok_or_else(no_mapping)?;
    let mut parts = Vec::new();
    for outer in mapping.pieces(offset, len as u64)? {
        for inner in node.tree.pieces(outer.vdev, outer.offset, outer.size)? {
            let piece = Piece {
                at: outer.at + inner.at,
                birth: inner.birth.or(outer.birth),
                ..inner
            };
            let top = node.tree.top_for_io(piece.vdev, piece.offset, piece.size)?;
            parts.push(Part { top, piece });
        }
    }
    Ok(parts)
}

/// Reads a split block.
fn read_split(
    node: &Node<'_>,
    io: &Io,
    parts: &[Part],
    buf: &mut [u8],
    verify: &dyn Fn(&[u8]) -> bool,
) -> Result<()> {
    for part in parts {
        part.read(node, io, &mut buf[part.range()], &|_| true)?;
    }
    if verify(buf) {
        return Ok(());
    }
    reconstruct(node, io, parts, buf, verify)
}

/// Tries the combinations of all copies of the parts of a split block; rewrites the bad copies if one is good.
#[doc(alias = "vdev_indirect_reconstruct_io_done")]
fn reconstruct(
    node: &Node<'_>,
    io: &Io,
    parts: &[Part],
    buf: &mut [u8],
    verify: &dyn Fn(&[u8]) -> bool,
) -> Result<()> {
    let copies = parts.iter().map(|part| part.copies(node, io));
    let copies: Vec<Vec<Vec<u8>>> = copies.collect::<Result<_>>()?;
    let mut chosen = vec![0; parts.len()];
    let counts = io.purpose != Purpose::Speculative;
    for _ in 0..COMBINATIONS_MAX {
        for ((part, copies), at) in parts.iter().zip(&copies).zip(&chosen) {
            buf[part.range()].copy_from_slice(&copies[*at]);
        }
        if verify(buf) {
            if counts {
                for part in parts {
                    // Bad copies that cannot be rewritten are counted; the block is good.
                    let _ = part.repair(node, io, &buf[part.range()]);
                }
            }
            return Ok(());
        }
        if !advance(&mut chosen, &copies) {
            break;
        }
    }
    if counts {
        for part in parts {
            // Counts the error on each device: which of them is wrong is unknown.
            let _ = part.read(node, io, &mut buf[part.range()], &|_| false);
        }
    }
    let what = "no combination of copies of a split block has the right checksum";
    Err(Error::new(ErrorKind::Checksum, what))
}

/// The next combination; false after the last one.
fn advance(chosen: &mut [usize], copies: &[Vec<Vec<u8>>]) -> bool {
    for (at, copies) in chosen.iter_mut().zip(copies) {
        *at += 1;
        if *at < copies.len() {
            return true;
        }
        *at = 0;
    }
    false
}

impl KindOps for Indirect {
    fn read(
        &self,
        node: &Node<'_>,
        io: &Io,
        offset: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        let parts = parts_of(node, offset, buf.len())?;
        match &parts[..] {
            [part] => part.read(node, io, buf, verify),
            parts => read_split(node, io, parts, buf, verify),
        }
    }

    fn write(&self, node: &Node<'_>, io: &Io, offset: u64, parts: &[&[u8]]) -> Result<()> {
        if io.purpose != Purpose::Repair {
            return Err(Error::corrupt("a new block on a vdev that was removed"));
        }
        let bytes = parts.concat();
        for part in parts_of(node, offset, bytes.len())? {
            let there = node.tree.node(&part.top);
            there.write(&part.io(io), part.piece.offset, &[&bytes[part.range()]])?;
        }
        Ok(())
    }

    fn scrub(
        &self,
        node: &Node<'_>,
        buf: &mut [u8],
        blocks: &[RunBlock],
        verify: &dyn Fn(usize, &[u8]) -> bool,
    ) -> Vec<Result<ScrubReport>> {
        let scrub = |(n, block): (usize, &RunBlock)| {
            let buf = &mut buf[block.range.clone()];
            let verify = |bytes: &[u8]| verify(n, bytes);
            scrub_one(node, block.offset, buf, block.birth, &verify)
        };
        blocks.iter().enumerate().map(scrub).collect()
    }

    fn placement(&self) -> Placement {
        Placement::Elsewhere
    }

    fn tolerated(&self, _: usize) -> usize {
        0
    }

    fn asize(&self, _: &[u64]) -> u64 {
        0
    }

    fn min_child_asize(&self, _: usize, _: u64) -> u64 {
        0
    }
}

/// Reads every copy of each piece of a block.
fn scrub_one(
    node: &Node<'_>,
    offset: u64,
    buf: &mut [u8],
    birth: base::Txg,
    verify: &dyn Fn(&[u8]) -> bool,
) -> Result<ScrubReport> {
    let io = Io::scrub(birth);
    let parts = parts_of(node, offset, buf.len())?;
    if let [part] = &parts[..] {
        let block = RunBlock {
            offset: part.piece.offset,
            range: 0..buf.len(),
            birth: part.io(&io).birth,
        };
        let there = node.tree.node(&part.top);
        let mut reports = there.scrub(buf, &[block], &|_, bytes| verify(bytes));
        return reports.pop().expect("there is one block");
    }
    let quiet = Io {
        purpose: Purpose::Speculative,
        ..io
    };
    if read_split(node, &quiet, &parts, buf, verify).is_err() {
        // Again, for the errors to be counted.
        read_split(node, &io, &parts, buf, verify)?;
    }
    let mut sum = ScrubReport::default();
    for part in &parts {
        sum += part.repair(node, &io, &buf[part.range()])?;
    }
    Ok(sum)
}
