//! A kind with parity, for this test alone: nothing outside [`KindOps`] has to know it.
//!
//! Rows of one sector on each child: data on all but the last, their exclusive or on the last.

use super::*;
use crate::kinds::{KindOps, Node};
use base::{Error, ErrorKind};
use ram::Memory;

const TOP: VdevId = VdevId(0);
const ASHIFT: u32 = 12;
const SECTOR: usize = 1 << ASHIFT;

/// The kind.
struct Parity;

/// What children have of a block, `None` where it could not be read.
type Columns = Vec<Option<Vec<u8>>>;

fn rows(children: usize, bytes: usize) -> usize {
    bytes.div_ceil(SECTOR).div_ceil(children - 1)
}

/// The columns of a block, parity last.
fn split(children: usize, block: &[u8]) -> Vec<Vec<u8>> {
    let rows = rows(children, block.len());
    let mut columns = vec![vec![0; rows * SECTOR]; children];
    for (n, sector) in block.chunks(SECTOR).enumerate() {
        let (row, column) = (n / (children - 1), n % (children - 1));
        let at = row * SECTOR;
        columns[column][at..at + sector.len()].copy_from_slice(sector);
        for (i, byte) in sector.iter().enumerate() {
            columns[children - 1][at + i] ^= byte;
        }
    }
    columns
}

fn join(columns: &[Vec<u8>], block: &mut [u8]) {
    let data = columns.len() - 1;
    for (n, sector) in block.chunks_mut(SECTOR).enumerate() {
        let at = n / data * SECTOR;
        sector.copy_from_slice(&columns[n % data][at..at + sector.len()]);
    }
}

/// The columns with one computed from the others, which are all there.
fn without(columns: &Columns, lost: usize) -> Vec<Vec<u8>> {
    let is_other = |(n, _): &(usize, &Option<Vec<u8>>)| *n != lost;
    let others = columns.iter().enumerate().filter(is_other);
    let others: Vec<&Vec<u8>> = others.map(|(_, column)| column.as_ref().unwrap()).collect();
    let mut sum = vec![0; others[0].len()];
    for column in &others {
        sum.iter_mut().zip(*column).for_each(|(a, b)| *a ^= b);
    }
    let mut all: Vec<Vec<u8>> = others.into_iter().cloned().collect();
    all.insert(lost, sum);
    all
}

impl Parity {
    fn columns(&self, node: &Node<'_>, io: &Io, offset: u64, bytes: usize) -> Columns {
        let children = node.vdev.children().len();
        let at = offset / children as u64;
        let read = |n: usize| {
            let mut column = vec![0; rows(children, bytes) * SECTOR];
            let child = node.child(n);
            let is_stale = child.vdev.devices()[0].leaf().missed(io.birth);
            let read = child.read(io, at, &mut column, &|_| true);
            read.is_ok().then_some(column).filter(|_| !is_stale)
        };
        (0..children).map(read).collect()
    }

    /// The block, and which child did not have its part.
    fn find(
        &self,
        columns: &Columns,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Vec<usize>> {
        let lost: Vec<usize> = (0..columns.len())
            .filter(|n| columns[*n].is_none())
            .collect();
        let candidates = match &lost[..] {
            [] => {
                let all: Vec<_> = columns.iter().flatten().cloned().collect();
                join(&all, buf);
                if verify(buf) {
                    return Ok(Vec::new());
                }
                (0..columns.len()).collect()
            }
            [one] => vec![*one],
            _ => return Err(Error::new(ErrorKind::Io, "two columns are lost")),
        };
        for lost in candidates {
            join(&without(columns, lost), buf);
            if verify(buf) {
                return Ok(vec![lost]);
            }
        }
        Err(Error::new(ErrorKind::Checksum, "no combination is right"))
    }

    fn repair(&self, node: &Node<'_>, io: &Io, offset: u64, block: &[u8], bad: &[usize]) {
        let children = node.vdev.children().len();
        let columns = split(children, block);
        let io = Io::repair(io.birth);
        for n in bad {
            let at = offset / children as u64;
            let _ = node.child(*n).write(&io, at, &[&columns[*n]]);
        }
    }
}

impl KindOps for Parity {
    fn read(
        &self,
        node: &Node<'_>,
        io: &Io,
        offset: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        let columns = self.columns(node, io, offset, buf.len());
        let bad = self.find(&columns, buf, verify)?;
        if io.purpose != Purpose::Speculative {
            self.repair(node, io, offset, buf, &bad);
        }
        Ok(())
    }

    fn write(&self, node: &Node<'_>, io: &Io, mut offset: u64, parts: &[&[u8]]) -> Result<()> {
        let children = node.vdev.children().len();
        for part in parts {
            let columns = split(children, part);
            let at = offset / children as u64;
            let write = |n: usize| node.child(n).write(io, at, &[&columns[n]]);
            let results: Vec<_> = (0..children).map(write).collect();
            let failed = results.iter().filter(|r| r.is_err()).count();
            if failed > self.tolerated(children) {
                return Err(Error::new(ErrorKind::Io, "too many columns failed"));
            }
            for (n, result) in results.iter().enumerate() {
                if result.is_err() {
                    let device = &node.vdev.children()[n];
                    device.leaf().dirty_dtl(node.txgs.clone());
                }
            }
            offset += self.psize_to_asize(children, ASHIFT, part.len() as u64, io.birth);
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
            let io = Io::scrub(block.birth);
            let at = block.offset;
            let buf = &mut buf[block.range.clone()];
            let columns = self.columns(node, &io, at, buf.len());
            self.find(&columns, buf, &|bytes| verify(n, bytes))?;
            let good = split(node.vdev.children().len(), buf);
            let is_bad = |n: &usize| columns[*n].as_ref() != Some(&good[*n]);
            let bad: Vec<usize> = (0..columns.len()).filter(is_bad).collect();
            self.repair(node, &io, at, buf, &bad);
            let count = bad.len() as u32;
            Ok(ScrubReport {
                bad: count,
                repaired: count,
                repaired_bytes: bad.iter().map(|n| good[*n].len() as u64).sum(),
            })
        };
        blocks.iter().enumerate().map(scrub).collect()
    }

    fn placement(&self) -> Placement {
        Placement::Elsewhere
    }

    fn tolerated(&self, _: usize) -> usize {
        1
    }

    fn asize(&self, children: &[u64]) -> u64 {
        children.iter().min().unwrap() * children.len() as u64
    }

    fn min_child_asize(&self, children: usize, asize: u64) -> u64 {
        asize.div_ceil(children as u64)
    }

    fn data_disks(&self, children: usize) -> u64 {
        children as u64 - 1
    }

    fn min_alloc(&self, children: usize, ashift: u32) -> u64 {
        self.psize_to_asize(children, ashift, 1, Txg(0))
    }

    fn psize_to_asize(&self, children: usize, ashift: u32, psize: u64, _: Txg) -> u64 {
        (rows(children, psize as usize) as u64 * children as u64) << ashift
    }
}

fn disk(n: u64) -> Arc<Memory> {
    Arc::new(Memory::new(format!("/p{n}"), DISK_BYTES))
}

fn parity_tree(children: u64) -> (Vec<Arc<Memory>>, Arc<VdevTree>) {
    let disks: Vec<_> = (0..children).map(disk).collect();
    let leaves = (101..).zip(&disks).map(|(n, disk)| leaf(n, disk.clone()));
    let kind = VdevKind::RaidZ { nparity: 1 };
    let config = VdevConfig {
        ashift: ASHIFT,
        ms_array: 256,
        ms_shift: 24,
        ..VdevConfig::default()
    };
    let top = Vdev::with_ops(kind, Arc::new(Parity), Guid(100), config, leaves.collect());
    let asize = VdevTree::max_asize(&top).unwrap();
    top.update(|config| config.asize = asize);
    (disks, tree(vec![top]))
}

fn block(n: u8, sectors: usize) -> Vec<u8> {
    (0..sectors * SECTOR)
        .map(|i| n.wrapping_add((i / 100) as u8))
        .collect()
}

#[test]
fn a_kind_with_parity_needs_nothing_else_to_change() {
    for children in 3..6u64 {
        let (disks, tree) = parity_tree(children);
        let top = tree.top(TOP).unwrap();
        let each = allocatable_size(DISK_BYTES);
        assert_eq!(top.config().asize, each * children);
        assert_eq!(tree.placement(TOP), Placement::Elsewhere);
        let blocks: Vec<Vec<u8>> = (1..6).map(|n| block(n, n.into())).collect();
        let parts: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
        tree.write(&IO, TOP, 0, &parts).unwrap();
        tree.flush(&[TOP]).unwrap();
        let check = |what: &str| {
            let mut at = 0;
            for block in &blocks {
                let mut buf = vec![0; block.len()];
                let verify = |bytes: &[u8]| bytes == block;
                let read = tree.read_block(TOP, at, &mut buf, &verify);
                read.unwrap_or_else(|e| panic!("{what}: {e}"));
                assert!(&buf == block, "{what}");
                at += tree.psize_to_asize(TOP, block.len() as u64, Txg(0));
            }
            at
        };
        let end = check("as written");
        // One child is wrong, then scrubbed.
        let start = phys::label::LABEL_START_SIZE;
        for disk in &disks {
            disk.write(start, &vec![0xee; 4 * SECTOR]).unwrap();
            let mut at = 0;
            let mut bad = 0;
            for block in &blocks {
                let mut buf = vec![0; block.len()];
                let verify = |bytes: &[u8]| bytes == block;
                let report = tree.scrub_block(TOP, at, &mut buf, &verify).unwrap();
                assert_eq!(report.bad, report.repaired);
                bad += report.bad;
                at += tree.psize_to_asize(TOP, block.len() as u64, Txg(0));
            }
            assert!(bad > 0);
            check("scrubbed");
        }
        // One is absent: all data is readable, the pool is degraded, no second one may be lost.
        let first = tree.devices()[0].guid();
        tree.offline(first, true).unwrap();
        assert_eq!(top.state().0, VdevState::Degraded);
        check("degraded");
        let error = tree.offline(tree.devices()[1].guid(), true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        // What it misses is known, and is not read from it when it is back.
        let new = block(77, 7);
        tree.write_block(TOP, end, &new).unwrap();
        assert!(!gaps(&tree.devices()[0]).is_empty());
        tree.online(first, disks[0].clone()).unwrap();
        let mut buf = vec![0; new.len()];
        tree.read_block(TOP, end, &mut buf, &|bytes| bytes == new)
            .unwrap();
        check("back");
        sync(&tree, 10).unwrap();
    }
}

#[test]
fn a_device_of_a_kind_with_parity_is_replaced() {
    let (_, tree) = parity_tree(3);
    let written = block(3, 5);
    tree.write_block(TOP, 0, &written).unwrap();
    let new = leaf(201, disk(9));
    tree.attach(Guid(101), &new, Attach::Replacement, Txg(10))
        .unwrap();
    let top = tree.top(TOP).unwrap();
    assert_eq!(top.children()[0].kind(), VdevKind::Replacing);
    let is_written = |bytes: &[u8]| bytes == written;
    let mut buf = vec![0; written.len()];
    tree.read_block(TOP, 0, &mut buf, &is_written).unwrap();
    // New blocks go to both.
    let later = block(9, 4);
    let at = tree.psize_to_asize(TOP, 1 << 20, Txg(0));
    tree.write_block(TOP, at, &later).unwrap();
    new.leaf().clear_dtl(&(0..20));
    tree.detach(Guid(101)).unwrap();
    let mut buf = vec![0; later.len()];
    tree.read_block(TOP, at, &mut buf, &|bytes| bytes == later)
        .unwrap();
}
