//! Columns that are to be written again, once for a whole run of blocks.

use base::{Result, Txg};
use zio::{Io, ScrubReport};

use crate::kinds::Node;

/// A column that was wrong.
pub(super) struct Mend {
    /// The number of its block in the run.
    pub(super) block: usize,
    pub(super) child: usize,
    /// Where it starts on the child, in bytes, without labels.
    pub(super) offset: u64,
    /// What it should be.
    pub(super) bytes: Vec<u8>,
}

impl Mend {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

/// Writes columns, neighbours on a child with one command. What could be written counts as repaired in the report of
/// its block.
pub(super) fn mend(node: &Node<'_>, mut mends: Vec<Mend>, reports: &mut [Result<ScrubReport>]) {
    if !node.is_writable {
        return;
    }
    mends.sort_unstable_by_key(|mend| (mend.child, mend.offset));
    let joins = |a: &Mend, b: &Mend| a.child == b.child && a.end() == b.offset;
    for together in mends.chunk_by(joins) {
        let write = |some: &[Mend]| {
            let parts: Vec<&[u8]> = some.iter().map(|mend| &mend.bytes[..]).collect();
            let child = node.child(some[0].child);
            child
                .write(&Io::repair(Txg(0)), some[0].offset, &parts)
                .is_ok()
        };
        let is_all_written = write(together);
        for mend in together {
            let is_alone = together.len() == 1;
            if !is_all_written && (is_alone || !write(std::slice::from_ref(mend))) {
                continue;
            }
            if let Ok(report) = &mut reports[mend.block] {
                report.repaired += 1;
                report.repaired_bytes += mend.bytes.len() as u64;
            }
        }
    }
}
