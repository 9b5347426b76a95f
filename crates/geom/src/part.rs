//! A range of another provider: a partition.

use std::sync::Arc;

use base::Result;

use crate::{Bio, Provider, check_range};

/// A range of another provider.
pub struct Part {
    name: String,
    whole: Arc<dyn Provider>,
    start: u64,
    len: u64,
}

impl Part {
    /// `len` bytes of `whole` from `start` on.
    ///
    /// # Errors
    /// [`base::ErrorKind::InvalidInput`] if that is not a range of `whole` on its sectors.
    pub fn new(
        name: impl Into<String>,
        whole: Arc<dyn Provider>,
        start: u64,
        len: u64,
    ) -> Result<Self> {
        check_range(&*whole, start, len)?;
        Ok(Part {
            name: name.into(),
            whole,
            start,
            len,
        })
    }
}

impl Provider for Part {
    fn name(&self) -> &str {
        &self.name
    }
    fn mediasize(&self) -> u64 {
        self.len
    }
    fn sectorsize(&self) -> u32 {
        self.whole.sectorsize()
    }
    fn stripesize(&self) -> u32 {
        self.whole.stripesize()
    }
    fn stripeoffset(&self) -> u32 {
        let stripe = u64::from(self.stripesize());
        let first = u64::from(self.whole.stripeoffset()) + stripe - self.start % stripe;
        u32::try_from(first % stripe).expect("below a u32")
    }
    fn is_rotational(&self) -> bool {
        self.whole.is_rotational()
    }
    fn is_queued(&self) -> bool {
        self.whole.is_queued()
    }
    fn writes_at_once(&self) -> usize {
        self.whole.writes_at_once()
    }
    fn keeps_unflushed(&self) -> bool {
        self.whole.keeps_unflushed()
    }
    fn submit(&self, bio: Bio) {
        let len = match &bio.op {
            crate::BioOp::Read { len } => *len as u64,
            crate::BioOp::Write(bytes) => bytes.len() as u64,
            crate::BioOp::Delete { len } => *len,
            crate::BioOp::Flush => 0,
        };
        match check_range(self, bio.offset, len) {
            Ok(()) => self.whole.submit(Bio {
                offset: self.start + bio.offset,
                ..bio
            }),
            Err(error) => (bio.done)(Err(error)),
        }
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_range(self, offset, buf.len() as u64)?;
        self.whole.read(self.start + offset, buf)
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        check_range(self, offset, data.len() as u64)?;
        self.whole.write(self.start + offset, data)
    }
    fn write_vectored(&self, offset: u64, pieces: &[&[u8]]) -> Result<()> {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        check_range(self, offset, len as u64)?;
        self.whole.write_vectored(self.start + offset, pieces)
    }
    fn flush(&self) -> Result<()> {
        self.whole.flush()
    }
    fn delete(&self, offset: u64, len: u64) -> Result<()> {
        check_range(self, offset, len)?;
        self.whole.delete(self.start + offset, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Memory;

    #[test]
    fn keeps_to_its_range() {
        let whole = Arc::new(Memory::with_sectors("md0", 1 << 20, 512, 4096));
        let part = Part::new("md0p1", whole.clone(), 512 * 63, 1 << 19).unwrap();
        assert_eq!(part.stripeoffset(), 512);
        part.write(0, &[5; 512]).unwrap();
        let mut back = [0; 512];
        whole.read(512 * 63, &mut back).unwrap();
        assert_eq!(back, [5; 512]);
        assert!(part.write(1 << 19, &[5; 512]).is_err());
        assert!(Part::new("p", whole, 1 << 19, (1 << 19) + 512).is_err());
    }
}
