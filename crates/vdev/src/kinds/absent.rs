//! Vdevs that hold no blocks.

use base::{Error, ErrorKind, Result};
use zio::{Io, Placement, RunBlock, ScrubReport};

use super::{KindOps, Node};
use crate::VdevKind;

/// A vdev whose I/O fails.
pub(crate) struct Absent(pub(crate) VdevKind);

impl Absent {
    fn error(&self) -> Error {
        match self.0 {
            VdevKind::Missing => Error::new(ErrorKind::Io, "vdev is missing"),
            VdevKind::Hole => Error::corrupt("no such vdev: its number is a hole"),
            kind => {
                let context = format!("i/o to a vdev of type {}", kind.word());
                Error::new(ErrorKind::Unsupported, context)
            }
        }
    }
}

impl KindOps for Absent {
    fn read(
        &self,
        _: &Node<'_>,
        _: &Io,
        _: u64,
        _: &mut [u8],
        _: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        Err(self.error())
    }

    fn write(&self, _: &Node<'_>, _: &Io, _: u64, _: &[&[u8]]) -> Result<()> {
        Err(self.error())
    }

    fn scrub(
        &self,
        _: &Node<'_>,
        _: &mut [u8],
        blocks: &[RunBlock],
        _: &dyn Fn(usize, &[u8]) -> bool,
    ) -> Vec<Result<ScrubReport>> {
        blocks.iter().map(|_| Err(self.error())).collect()
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
