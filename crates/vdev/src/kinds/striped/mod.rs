//! Vdevs that spread each block over their children, with parity: RAID-Z and dRAID.
//!
//! # What it is
//! A block is written with parity of its own to sectors that no other block shares: nothing has to be read
//! first, and no part of an old block is changed. A [`Layout`] says where the columns of a block lie, which is
//! all that the kinds do differently; the crate `parity` computes them; [`read`] finds the right bytes if
//! columns are missing or wrong.
//!
//! # Invariants
//! 1. A write succeeds if in each row of each block at most `nparity` columns failed; the children that failed
//!    get the txg into their DTLs.
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
//! OpenZFS `module/zfs/vdev_raidz.c`, `module/zfs/vdev_draid.c`.

mod ahead;
mod band;
mod mend;
mod read;
mod row;
mod sides;
mod strip;

use std::ops::Range;
use std::sync::Arc;

use base::{BlockBuf, Error, ErrorKind, Result, Txg};
use phys::uberblock::UberblockPhys;
use zio::{Io, Placement, Purpose, RunBlock, ScrubReport};

use super::health::no_device;
use super::rebuild::{PIECE_BYTES, pieces, rebuild_row};
use super::{KindOps, Node};
use crate::{Rebuilt, Vdev};
use ahead::Ahead;
use band::Prior;
use mend::{Mend, mend};
use read::{Stripe, Suspects};
pub(super) use row::{Column, Layout, Order, Row, Rows, Shape};
use strip::{Strip, Strips, cut, data_len, parity_of};

/// A vdev whose blocks are spread over its children by a layout.
pub(crate) struct Striped<L>(pub(crate) L);

impl<L: Layout> Striped<L> {
    fn shape(node: &Node<'_>, birth: Txg) -> Shape {
        Shape {
            children: node.vdev.children().len(),
            ashift: node.vdev.ashift(),
            birth,
        }
    }

    /// The rows of a block at an offset that may come from disk.
    fn rows(&self, shape: Shape, offset: u64, bytes: usize) -> Result<Rows<L::Row<'_>>> {
        let mask = (1u64 << shape.ashift) - 1;
        if bytes == 0 || (offset | bytes as u64) & mask != 0 {
            let what = format!("{bytes} bytes at {offset} are not whole sectors");
            return Err(Error::corrupt(what));
        }
        self.0.rows(shape, offset, bytes)
    }

    /// Where blocks lie that follow each other from an offset on, each row with its part of the bytes.
    fn cut_into_rows<'a, 'b>(
        &'a self,
        shape: Shape,
        offset: u64,
        parts: &[&'b [u8]],
    ) -> Result<Vec<(L::Row<'a>, &'b [u8])>> {
        let mut rows = Vec::with_capacity(parts.len());
        let mut at = offset;
        for part in parts {
            let mut rest = *part;
            for row in self.rows(shape, at, part.len())?.iter() {
                let (bytes, after) = rest.split_at(data_len(row, self.0.nparity()));
                rows.push((row, bytes));
                rest = after;
            }
            at += self.0.psize_to_asize(shape, part.len() as u64);
        }
        Ok(rows)
    }

    /// Whether so few children failed that every one of these rows can be read.
    fn is_readable(&self, rows: &[(L::Row<'_>, &[u8])], is_failed: &dyn Fn(usize) -> bool) -> bool {
        rows.iter().all(|(row, _)| {
            let is_lost = |column: &Column| column.bytes > 0 && is_failed(column.child);
            let lost = row.columns().filter(is_lost).count();
            let shadows = (0..row.count()).filter_map(|n| row.shadow(n));
            lost.max(shadows.filter(is_lost).count()) <= self.0.nparity()
        })
    }

    /// What each child gets.
    fn strips<'a>(
        &self,
        children: usize,
        rows: &[(L::Row<'_>, &'a [u8])],
        parities: &'a [Vec<BlockBuf>],
    ) -> Strips<'a> {
        let mut strips = Strips::new(children, self.0.write_end(), self.0.fills_gaps());
        for ((row, bytes), parity) in rows.iter().zip(parities) {
            let mut rest = *bytes;
            for (n, column) in row.columns().enumerate() {
                let bytes = match parity.get(n) {
                    Some(parity) => &parity[..],
                    None => {
                        let (bytes, after) = rest.split_at(column.bytes);
                        rest = after;
                        bytes
                    }
                };
                strips.add(column, bytes);
                if let Some(shadow) = row.shadow(n).filter(|shadow| shadow.bytes > 0) {
                    strips.add(shadow, bytes);
                }
            }
        }
        strips
    }

    /// Reads a block, in the order of its rows.
    fn read_rows(
        &self,
        node: &Node<'_>,
        io: &Io,
        rows: &Rows<L::Row<'_>>,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        let nparity = self.0.nparity();
        let fates = read::read_data(node, io, rows, nparity, buf);
        if fates.is_empty() && verify(buf) {
            return Ok(());
        }
        let prior = Prior::Data(&*buf, fates.into_iter());
        let mut stripe = Stripe::read(node, io, rows, nparity, prior);
        stripe.find(&self.suspects(node), buf, verify)?;
        if io.purpose != Purpose::Speculative {
            let mut mends = Vec::new();
            let report = stripe.settle(buf, false, 0, &mut mends);
            mend(node, mends, &mut [Ok(report)]);
        }
        Ok(())
    }

    /// Reads and settles all columns of a block of a run.
    fn scrub_block(
        &self,
        node: &Node<'_>,
        (number, block, rows): (usize, &RunBlock, &Rows<L::Row<'_>>),
        buf: &mut [u8],
        (ahead, mends): (&Ahead, &mut Vec<Mend>),
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<ScrubReport> {
        let (shape, io) = (Self::shape(node, block.birth), Io::scrub(block.birth));
        self.in_rows(shape, buf, verify, |buf, verify| {
            let prior = Prior::Ahead(ahead);
            let mut stripe = Stripe::read(node, &io, rows, self.0.nparity(), prior);
            stripe.find(&self.suspects(node), buf, verify)?;
            Ok(stripe.settle(buf, true, number, mends))
        })
    }

    /// Calls `act` with a buffer for the block in the order of its rows, and with what tells whether the block in
    /// there is right; the block ends up in `buf`.
    fn in_rows<T>(
        &self,
        shape: Shape,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
        act: impl FnOnce(&mut [u8], &dyn Fn(&[u8]) -> bool) -> Result<T>,
    ) -> Result<T> {
        let Some(order) = self.0.order(shape, buf.len()) else {
            return act(buf, verify);
        };
        let mut by_row = BlockBuf::scratch(buf.len());
        let is_right = |by_row: &[u8]| {
            let mut block = BlockBuf::scratch(by_row.len());
            order.put_back(by_row, &mut block);
            verify(&block)
        };
        let outcome = act(&mut by_row, &is_right)?;
        order.put_back(&by_row, buf);
        Ok(outcome)
    }

    /// What may be wrong altogether: a child, or what was a child before others were added.
    fn suspects(&self, node: &Node<'_>) -> Suspects {
        let children = node.vdev.children().len();
        Suspects {
            children,
            ashift: node.vdev.ashift(),
            former: self.0.former(children),
        }
    }

    /// Writes good bytes over blocks that could not be read.
    fn repair(
        &self,
        node: &Node<'_>,
        io: &Io,
        rows: &[(L::Row<'_>, &[u8])],
        strips: &Strips<'_>,
    ) -> Result<()> {
        let mut failed = Vec::new();
        for strip in strips.iter() {
            let child = node.child(strip.child);
            if let Err(error) = child.write(io, strip.start, &strip.pieces) {
                failed.push((strip.child, error));
            }
        }
        // A child that failed this lacked the bytes before, too: it missed no write of a new txg.
        if self.is_readable(rows, &|child| failed.iter().any(|(n, _)| *n == child)) {
            return Ok(());
        }
        let error = failed.into_iter().next().map(|(_, error)| error);
        Err(error.unwrap_or_else(|| Error::new(ErrorKind::Io, "no column was written")))
    }
}

impl<L: Layout> KindOps for Striped<L> {
    fn read(
        &self,
        node: &Node<'_>,
        io: &Io,
        offset: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        let shape = Self::shape(node, io.birth);
        let rows = self.rows(shape, offset, buf.len())?;
        self.in_rows(shape, buf, verify, |buf, verify| {
            self.read_rows(node, io, &rows, buf, verify)
        })
    }

    fn write(&self, node: &Node<'_>, io: &Io, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let nparity = self.0.nparity();
        let shape = Self::shape(node, io.birth);
        let by_row = |part: &&[u8]| Some(self.0.order(shape, part.len())?.by_row(part));
        let by_row: Vec<Option<BlockBuf>> = parts.iter().map(by_row).collect();
        let parts = by_row.iter().zip(parts);
        let parts: Vec<&[u8]> = parts
            .map(|(by_row, part)| by_row.as_deref().unwrap_or(part))
            .collect();
        let rows = self.cut_into_rows(shape, offset, &parts)?;
        let parity =
            |(row, bytes): &(L::Row<'_>, &[u8])| parity_of(&cut(*row, nparity, bytes), nparity);
        let parities: Vec<_> = rows.iter().map(parity).collect();
        let strips = self.strips(node.vdev.children().len(), &rows, &parities);
        if io.purpose == Purpose::Repair {
            return self.repair(node, io, &rows, &strips);
        }
        let begin = |strip: &Strip<'_>| {
            let child = node.child(strip.child);
            child.begin_write(io.priority, strip.start, &strip.pieces)
        };
        let begun: Vec<_> = strips.iter().map(begin).collect();
        let mut failed = Vec::new();
        for (strip, begun) in strips.iter().zip(begun) {
            let len = strip.end.wrapping_sub(strip.start);
            if let Err(error) = node.child(strip.child).end_write(begun, len) {
                failed.push((strip.child, error));
            }
        }
        if self.is_readable(&rows, &|child| failed.iter().any(|(n, _)| *n == child)) {
            for (n, _) in failed {
                let child: &Arc<Vdev> = &node.vdev.children()[n];
                for device in child.leaves() {
                    node.note_missed(device);
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
        buf: &mut [u8],
        blocks: &[RunBlock],
        verify: &dyn Fn(usize, &[u8]) -> bool,
    ) -> Vec<Result<ScrubReport>> {
        let rows = |block: &RunBlock| {
            let shape = Self::shape(node, block.birth);
            self.rows(shape, block.offset, block.range.len())
        };
        let rows: Vec<Result<Rows<L::Row<'_>>>> = blocks.iter().map(rows).collect();
        let ahead = match blocks {
            [_] => Ahead::default(),
            _ => {
                let columns = blocks.iter().zip(&rows).flat_map(|(block, rows)| {
                    let rows = rows.iter().flat_map(Rows::iter);
                    rows.flat_map(move |row| {
                        (0..row.count()).map(move |n| (block.birth, row.column(n)))
                    })
                });
                Ahead::read(node, columns)
            }
        };
        let mut mends = Vec::new();
        let mut reports = Vec::with_capacity(blocks.len());
        for (n, (block, rows)) in blocks.iter().zip(rows).enumerate() {
            let buf = &mut buf[block.range.clone()];
            let verify = |bytes: &[u8]| verify(n, bytes);
            let of_run = (&ahead, &mut mends);
            reports.push(
                rows.and_then(|rows| {
                    self.scrub_block(node, (n, block, &rows), buf, of_run, &verify)
                }),
            );
        }
        mend(node, mends, &mut reports);
        reports
    }

    fn rebuild(&self, node: &Node<'_>, ranges: &[Range<u64>]) -> Rebuilt {
        let mut done = Rebuilt::default();
        let shape = Self::shape(node, Txg(0));
        let Some((row_bytes, data_bytes)) = self.0.whole_row(shape.ashift) else {
            done.errors += ranges.len() as u64;
            return done;
        };
        for piece in pieces(ranges, (PIECE_BYTES >> shape.ashift) * row_bytes) {
            let bytes = (piece.end - piece.start) / row_bytes * data_bytes;
            let is_whole = (piece.end - piece.start).is_multiple_of(row_bytes);
            match self.rows(shape, piece.start, bytes as usize) {
                Ok(rows) if is_whole => rows
                    .iter()
                    .for_each(|row| rebuild_row(node, row, self.0.nparity(), &mut done)),
                _ => done.errors += 1,
            }
        }
        done
    }

    fn placement(&self) -> Placement {
        Placement::Striped
    }

    fn tolerated(&self, _: usize) -> usize {
        self.0.nparity()
    }

    fn asize(&self, children: &[u64]) -> u64 {
        self.0.asize(children)
    }

    fn min_child_asize(&self, children: usize, asize: u64) -> u64 {
        self.0.min_child_asize(children, asize)
    }

    fn psize_to_asize(&self, children: usize, ashift: u32, psize: u64, birth: Txg) -> u64 {
        let shape = Shape {
            children,
            ashift,
            birth,
        };
        self.0.psize_to_asize(shape, psize)
    }

    fn translate(
        &self,
        children: usize,
        ashift: u32,
        child: usize,
        range: Range<u64>,
        show: &mut dyn FnMut(Range<u64>),
    ) {
        let shape = Shape {
            children,
            ashift,
            birth: Txg(0),
        };
        self.0.translate(shape, child, range, show);
    }

    fn origins(
        &self,
        children: usize,
        ashift: u32,
        child: usize,
        offset: u64,
        show: &mut dyn FnMut(u64),
    ) {
        let shape = Shape {
            children,
            ashift,
            birth: Txg(0),
        };
        self.0.origins(shape, child, offset, show);
    }

    fn note_uberblock(&self, uberblock: &UberblockPhys) {
        self.0.note_uberblock(uberblock);
    }

    fn forget_uberblock(&self) {
        self.0.forget_uberblock();
    }

    fn data_disks(&self, children: usize) -> u64 {
        self.0.data_disks(children).max(1) as u64
    }

    fn child_of_spare(&self, spare: u8, offset: u64) -> Option<usize> {
        self.0.child_of_spare(spare, offset)
    }

    fn min_alloc(&self, _: usize, ashift: u32) -> u64 {
        self.0.min_alloc(ashift)
    }

    fn metaslab_align(&self, _: usize, ashift: u32) -> u64 {
        self.0.metaslab_align(ashift)
    }
}
