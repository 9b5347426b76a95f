//! The provider trait: a name, a shape, and commands, blocking or queued.

use std::fmt;
use std::sync::Arc;

use base::{BlockBuf, Buf, Error, ErrorKind, Result, is_aligned};
use rt::OneShot;

/// What a command does, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "bio_cmd")]
pub enum BioCmd {
    /// Reads (`BIO_READ`).
    Read,
    /// Writes (`BIO_WRITE`).
    Write,
    /// Tells the device that a range is not needed any more (`BIO_DELETE`).
    Delete,
    /// Makes every acknowledged write survive a loss of power (`BIO_FLUSH`).
    Flush,
}

/// The operation of a queued command: the caller does not wait for it.
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

impl BioOp {
    /// What it does, and to how many bytes.
    #[must_use]
    pub fn cmd(&self) -> (BioCmd, u64) {
        match self {
            BioOp::Read { len } => (BioCmd::Read, *len as u64),
            BioOp::Write(bytes) => (BioCmd::Write, bytes.len() as u64),
            BioOp::Delete { len } => (BioCmd::Delete, *len),
            BioOp::Flush => (BioCmd::Flush, 0),
        }
    }
}

/// A blocking command.
#[derive(Debug)]
pub enum Command<'a> {
    /// Fills these bytes.
    Read(&'a mut [u8]),
    /// Writes these pieces one after another.
    Write(&'a [&'a [u8]]),
    /// Tells the device that a range is not needed any more.
    Delete {
        /// How many bytes.
        len: u64,
    },
    /// Makes every acknowledged write survive a loss of power.
    Flush,
}

impl Command<'_> {
    /// What it does, and to how many bytes.
    #[must_use]
    pub fn cmd(&self) -> (BioCmd, u64) {
        match self {
            Command::Read(buf) => (BioCmd::Read, buf.len() as u64),
            Command::Write(pieces) => (BioCmd::Write, bytes_of(pieces) as u64),
            Command::Delete { len } => (BioCmd::Delete, *len),
            Command::Flush => (BioCmd::Flush, 0),
        }
    }
}

fn bytes_of(pieces: &[&[u8]]) -> usize {
    pieces.iter().map(|piece| piece.len()).sum()
}

/// Writes pieces one by one.
///
/// # Errors
/// The first error of `write`.
pub fn write_each(
    offset: u64,
    pieces: &[&[u8]],
    mut write: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut at = offset;
    for piece in pieces {
        write(at, piece)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// Sizes and properties of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The size in bytes.
    pub mediasize: u64,
    /// The unit of every offset and length, a power of two.
    pub sectorsize: u32,
    /// The physical sector: smaller writes cost the device a read. A power of two.
    pub stripesize: u32,
    /// Where the first physical sector begins.
    pub stripeoffset: u32,
    /// Whether seeking costs much more than continuing sequentially.
    pub is_rotational: bool,
    /// Whether [`Provider::submit`] returns before the command is done, so that commands to several
    /// providers run at the same time.
    pub is_queued: bool,
    /// How many writes make progress at the same time; further ones only queue.
    pub writes_at_once: usize,
    /// Whether acknowledged writes are kept when a flush fails, so that another flush makes them
    /// durable. False for an operating system's page cache, which drops them once it has reported the error.
    pub keeps_unflushed: bool,
    /// Whether it can be told that a range is not needed any more ([`Provider::delete`]).
    pub can_delete: bool,
}

impl Shape {
    /// The shape of a provider of which only the size and the sector size are known.
    #[must_use]
    pub fn new(mediasize: u64, sectorsize: u32) -> Shape {
        Shape {
            mediasize,
            sectorsize,
            stripesize: sectorsize,
            stripeoffset: 0,
            is_rotational: false,
            is_queued: false,
            writes_at_once: usize::MAX,
            keeps_unflushed: false,
            can_delete: false,
        }
    }
}

/// The result of a command.
#[derive(Debug)]
pub enum BioData {
    /// No data: every command but a read.
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
    /// Called when it is done.
    pub done: DoneFn,
}

impl fmt::Debug for Bio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cmd, len) = self.op.cmd();
        write!(f, "{cmd:?} of {len} bytes at {}", self.offset)
    }
}

/// A disk or something like it.
///
/// An implementation supplies **either** [`submit`](Provider::submit) **or** [`execute`](Provider::execute), or
/// both: each has a default built on the other. All other methods build on these two and on the shape.
pub trait Provider: Send + Sync {
    /// The user-visible name, usually a path.
    fn name(&self) -> &str;

    /// Current sizes and properties.
    fn shape(&self) -> Shape;

    /// Runs a command and waits for it.
    ///
    /// # Errors
    /// [`ErrorKind::Io`]; [`ErrorKind::InvalidInput`] for a range that is unaligned or past the end;
    /// [`ErrorKind::ReadOnly`] if opened so; [`ErrorKind::NoSpace`] if the file system under a sparse file is full;
    /// [`ErrorKind::Unsupported`] for a delete if the device has no such command. After a failed write it is
    /// unknown how much of it was done; after a failed flush any unflushed write may be lost for good.
    fn execute(&self, offset: u64, command: Command<'_>) -> Result<()> {
        let op = match &command {
            Command::Read(buf) => BioOp::Read { len: buf.len() },
            Command::Write(pieces) => BioOp::Write(Buf::copy_of(&pieces.concat())),
            Command::Delete { len } => BioOp::Delete { len: *len },
            Command::Flush => BioOp::Flush,
        };
        let answer = Arc::new(OneShot::default());
        let theirs = Arc::clone(&answer);
        let done = Box::new(move |result| theirs.give(result));
        self.submit(Bio { op, offset, done });
        let data: BioData = answer.take()?;
        if let Command::Read(buf) = command {
            buf.copy_from_slice(&data.into_read());
        }
        Ok(())
    }

    /// Queues a command. The default runs it in the calling thread.
    fn submit(&self, bio: Bio) {
        let Bio { op, offset, done } = bio;
        let execute = |command| self.execute(offset, command).map(|()| BioData::None);
        done(match op {
            BioOp::Read { len } => {
                let mut bytes = BlockBuf::scratch(len);
                execute(Command::Read(&mut bytes)).map(|_| BioData::Read(bytes))
            }
            BioOp::Write(bytes) => execute(Command::Write(&[&bytes])),
            BioOp::Delete { len } => execute(Command::Delete { len }),
            BioOp::Flush => execute(Command::Flush),
        });
    }

    /// The size in bytes.
    fn mediasize(&self) -> u64 {
        self.shape().mediasize
    }
    /// [`Shape::sectorsize`]
    fn sectorsize(&self) -> u32 {
        self.shape().sectorsize
    }
    /// [`Shape::stripesize`]
    fn stripesize(&self) -> u32 {
        self.shape().stripesize
    }
    /// [`Shape::stripeoffset`]
    fn stripeoffset(&self) -> u32 {
        self.shape().stripeoffset
    }

    /// Reads and waits.
    ///
    /// # Errors
    /// As [`Provider::execute`].
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.execute(offset, Command::Read(buf))
    }

    /// Writes and waits.
    ///
    /// # Errors
    /// As [`Provider::execute`].
    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.execute(offset, Command::Write(&[data]))
    }

    /// Makes every acknowledged write survive a loss of power.
    ///
    /// # Errors
    /// As [`Provider::execute`].
    fn flush(&self) -> Result<()> {
        self.execute(0, Command::Flush)
    }

    /// Tells the device that a range is not needed any more.
    ///
    /// # Errors
    /// As [`Provider::execute`].
    fn delete(&self, offset: u64, len: u64) -> Result<()> {
        self.execute(offset, Command::Delete { len })
    }
}

impl fmt::Debug for dyn Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Provider({}, {} bytes)", self.name(), self.mediasize())
    }
}

/// Checks that a command's range is sector-aligned and within the provider.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if not.
pub fn check_range<P: Provider + ?Sized>(provider: &P, offset: u64, len: u64) -> Result<()> {
    let shape = provider.shape();
    let sector = u64::from(shape.sectorsize);
    let end = offset.checked_add(len);
    if end.is_some_and(|end| end <= shape.mediasize)
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
            shape.mediasize
        ),
    ))
}
