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
