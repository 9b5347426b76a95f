//! The provider trait, and how its blocking and its queued side stand in for each other.

use std::fmt;
use std::sync::Arc;

use base::{BlockBuf, Buf, Error, ErrorKind, Result, is_aligned};
use rt::OneShot;

/// What a command does.
pub enum BioOp {
    /// Reads `len` bytes.
    Read {
        /// How many bytes.
        len: usize,
    },
    /// Writes these bytes.
    Write(Buf),
    /// Tells the device that a range is not needed any more.
    Delete {
        /// How many bytes.
        len: u64,
    },
    /// Makes every acknowledged write survive a loss of power.
    Flush,
}

/// The methods by which a provider says that its name, sizes and kind are those of the one that it stands
/// on, in field `$below`.
macro_rules! same_shape_as {
    ($below:ident) => {
        fn name(&self) -> &str {
            self.$below.name()
        }
        fn mediasize(&self) -> u64 {
            self.$below.mediasize()
        }
        fn sectorsize(&self) -> u32 {
            self.$below.sectorsize()
        }
        fn stripesize(&self) -> u32 {
            self.$below.stripesize()
        }
        fn stripeoffset(&self) -> u32 {
            self.$below.stripeoffset()
        }
        fn is_rotational(&self) -> bool {
            self.$below.is_rotational()
        }
        fn writes_at_once(&self) -> usize {
            self.$below.writes_at_once()
        }
        fn keeps_unflushed(&self) -> bool {
            self.$below.keeps_unflushed()
        }
    };
}
pub(crate) use same_shape_as;

/// What a command brings back.
#[derive(Debug)]
pub enum BioData {
    /// Nothing: all but reads.
    None,
    /// The bytes that were read.
    Read(BlockBuf),
}

impl BioData {
    /// The bytes of a read.
    #[must_use]
    pub fn into_read(self) -> BlockBuf {
        match self {
            BioData::Read(bytes) => bytes,
            BioData::None => panic!("a read brought no bytes"),
        }
    }
}

/// Called once, on any thread, perhaps before `submit` returns. Must not wait.
pub type DoneFn = Box<dyn FnOnce(Result<BioData>) + Send>;

/// A command for a provider.
pub struct Bio {
    /// What to do.
    pub op: BioOp,
    /// Where, in bytes; 0 for a flush.
    pub offset: u64,
    /// Is called when it is done.
    pub done: DoneFn,
}

impl fmt::Debug for Bio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (op, len) = match &self.op {
            BioOp::Read { len } => ("read", *len as u64),
            BioOp::Write(bytes) => ("write", bytes.len() as u64),
            BioOp::Delete { len } => ("delete", *len),
            BioOp::Flush => return f.write_str("flush"),
        };
        write!(f, "{op} of {len} bytes at {}", self.offset)
    }
}

/// A disk or something like it.
///
/// An implementation supplies **either** `submit`, **or** `read`, `write`, `flush` and `delete`:
/// the defaults of each side are made of the other.
pub trait Provider: Send + Sync {
    /// What people call it: a path, mostly.
    fn name(&self) -> &str;
    /// The size in bytes.
    fn mediasize(&self) -> u64;
    /// The unit of every offset and length, a power of two.
    fn sectorsize(&self) -> u32 {
        512
    }
    /// The physical sector: smaller writes cost the device a read. A power of two.
    fn stripesize(&self) -> u32 {
        self.sectorsize()
    }
    /// Where the first physical sector begins.
    fn stripeoffset(&self) -> u32 {
        0
    }
    /// Whether a jump to another place costs much more than going on.
    fn is_rotational(&self) -> bool {
        false
    }

    /// Whether [`Provider::submit`] returns before the command is done, so that commands to several
    /// providers run at the same time.
    fn is_queued(&self) -> bool {
        false
    }

    /// How many writes make progress at the same time; further ones only wait for their turn.
    fn writes_at_once(&self) -> usize {
        usize::MAX
    }

    /// Whether acknowledged writes are still there after a flush failed, so that another flush makes
    /// them durable. Not so of an operating system, which forgets them when it has reported the error.
    fn keeps_unflushed(&self) -> bool {
        false
    }

    /// Queues a command. The default runs it in the calling thread.
    fn submit(&self, bio: Bio) {
        let result = match &bio.op {
            BioOp::Read { len } => {
                let mut bytes = BlockBuf::scratch(*len);
                self.read(bio.offset, &mut bytes)
                    .map(|()| BioData::Read(bytes))
            }
            BioOp::Write(bytes) => self.write(bio.offset, bytes).map(|()| BioData::None),
            BioOp::Delete { len } => self.delete(bio.offset, *len).map(|()| BioData::None),
            BioOp::Flush => self.flush().map(|()| BioData::None),
        };
        (bio.done)(result);
    }

    /// Reads and waits.
    ///
    /// # Errors
    /// [`ErrorKind::Io`], and [`ErrorKind::InvalidInput`] for a range off the sectors or the end.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let bytes = submit_and_wait(self, BioOp::Read { len: buf.len() }, offset)?.into_read();
        buf.copy_from_slice(&bytes);
        Ok(())
    }

    /// Writes and waits.
    ///
    /// # Errors
    /// As [`Provider::read`], and [`ErrorKind::NoSpace`] if a sparse file finds its host full,
    /// [`ErrorKind::ReadOnly`] if opened so.
    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        submit_and_wait(self, BioOp::Write(Buf::copy_of(data)), offset).map(drop)
    }

    /// Writes pieces one after another from `offset` on: to a queued provider as one command.
    /// Worth supplying where gathering needs no copy.
    ///
    /// # Errors
    /// As [`Provider::write`]; how much was written is then unknown.
    fn write_vectored(&self, offset: u64, pieces: &[&[u8]]) -> Result<()> {
        if self.is_queued() {
            return self.write(offset, &pieces.concat());
        }
        let mut at = offset;
        for piece in pieces {
            self.write(at, piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Makes every acknowledged write survive a loss of power.
    ///
    /// # Errors
    /// [`ErrorKind::Io`]: then any unflushed write may have been lost, for good.
    fn flush(&self) -> Result<()> {
        submit_and_wait(self, BioOp::Flush, 0).map(drop)
    }

    /// Tells the device that a range is not needed any more.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the device has no such command.
    fn delete(&self, offset: u64, len: u64) -> Result<()> {
        submit_and_wait(self, BioOp::Delete { len }, offset).map(drop)
    }
}

impl fmt::Debug for dyn Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Provider({}, {} bytes)", self.name(), self.mediasize())
    }
}

fn submit_and_wait<P: Provider + ?Sized>(provider: &P, op: BioOp, offset: u64) -> Result<BioData> {
    let answer = Arc::new(OneShot::default());
    let theirs = Arc::clone(&answer);
    let done = Box::new(move |result| theirs.give(result));
    provider.submit(Bio { op, offset, done });
    answer.take()
}

/// Whether a command's range lies on the sectors and inside of the provider.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if not.
pub fn check_range<P: Provider + ?Sized>(provider: &P, offset: u64, len: u64) -> Result<()> {
    let sector = u64::from(provider.sectorsize());
    let end = offset.checked_add(len);
    if end.is_some_and(|end| end <= provider.mediasize())
        && is_aligned(offset, sector)
        && is_aligned(len, sector)
    {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidInput,
        format!(
            "{}: {len} bytes at {offset} are not within {} bytes in sectors of {sector}",
            provider.name(),
            provider.mediasize()
        ),
    ))
}
