//! A range of another provider: a partition.

use std::sync::Arc;

use base::Result;

use crate::{Bio, Command, Provider, Shape, check_range};

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
    /// [`base::ErrorKind::InvalidInput`] if that is not a sector-aligned range of `whole`.
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
    fn shape(&self) -> Shape {
        let whole = self.whole.shape();
        let stripe = u64::from(whole.stripesize);
        let first = u64::from(whole.stripeoffset) + stripe - self.start % stripe;
        Shape {
            mediasize: self.len,
            stripeoffset: u32::try_from(first % stripe).expect("below a u32"),
            ..whole
        }
    }
    fn execute(&self, offset: u64, command: Command<'_>) -> Result<()> {
        check_range(self, offset, command.cmd().1)?;
        self.whole.execute(self.start + offset, command)
    }
    fn submit(&self, bio: Bio) {
        match check_range(self, bio.offset, bio.op.cmd().1) {
            Ok(()) => self.whole.submit(Bio {
                offset: self.start + bio.offset,
                ..bio
            }),
            Err(error) => (bio.done)(Err(error)),
        }
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
