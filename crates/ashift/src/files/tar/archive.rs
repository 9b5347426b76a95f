//! The archive: a file of the host or of a data set, or a standard stream; gzipped or not.

use std::io::{self, Read, Write};
use std::ops::Range;

use base::{BlockBuf, Error, ErrorKind, Result};
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use indicatif::ProgressBar;
use tarball::Input;
use zpl::FileType;

use super::super::copy::emptied;
use super::super::cp::{parent_of, path_of, tree};
use super::super::host_tree::Stream as Pipe;
use super::super::tree::{Content, Handle, Tree};
use super::super::{Location, Paths};
use crate::caller::{self, Stream, caller};

/// Bytes read and written at a time; a multiple of the largest record.
const PIECE_BYTES: usize = 1 << 20;
/// The operand for stdin and stdout.
pub(super) const STANDARD: &str = "-";
/// What other programs compress with, by the first bytes.
const STRANGERS: [(&[u8], &str); 4] = [
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"\x1f\x9d", "compress"),
];
const GZIP: &[u8] = b"\x1f\x8b";

/// Where an archive is.
pub(super) enum Archive {
    Standard,
    File(Box<dyn Tree>, Handle),
}

impl Archive {
    /// The archive that is to be read.
    pub(super) fn find(paths: &Paths, name: &str) -> Result<Archive> {
        if name == STANDARD {
            return Ok(Archive::Standard);
        }
        let location = paths.locate(name)?;
        let tree = tree(paths, &location)?;
        let file = tree.resolve(&path_of(&location))?;
        if tree.meta(&file)?.file_type == FileType::Directory {
            return Err(Error::new(ErrorKind::IsDirectory, "a directory"));
        }
        Ok(Archive::File(tree, file))
    }

    /// The archive that is to be written: an empty file.
    pub(super) fn make(paths: &Paths, name: &str) -> Result<Archive> {
        if name == STANDARD {
            if caller().is_terminal(Stream::Out) {
                let text = "Refusing to write archive contents to terminal (missing -f option?)";
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
            return Ok(Archive::Standard);
        }
        let location = paths.locate(name)?;
        let tree = tree(paths, &location)?;
        let path = match &location {
            Location::Host(path) if path.exists() => {
                super::super::host_tree::canonical(&path.to_string_lossy())?
            }
            _ => path_of(&location),
        };
        let (dir, name) = parent_of(&*tree, &path)?;
        let file = emptied(&*tree, &dir, name.as_bytes())?;
        Ok(Archive::File(tree, file))
    }

    /// Which file it is, if it is a regular one; where it must not be archived.
    pub(super) fn identity(&self) -> Option<(u64, u64)> {
        match self {
            Archive::Standard => None,
            Archive::File(tree, file) => tree.meta(file).ok().map(|meta| meta.identity),
        }
    }

    /// Begins to read. `bar` is told how far that is.
    pub(super) fn reader(&self, gzip: bool, bar: &ProgressBar) -> Result<Box<dyn Input + '_>> {
        let (content, size): (Box<dyn Content + '_>, _) = match self {
            Archive::Standard => (Box::new(Pipe::standard(caller().input_file()?)), None),
            Archive::File(tree, file) => {
                let meta = tree.meta(file)?;
                let is_regular = meta.file_type == FileType::Regular;
                (tree.open(file, false)?, is_regular.then_some(meta.size))
            }
        };
        if let Some(size) = size {
            bar.set_length(size);
        }
        let mut pieces = Pieces {
            content,
            size,
            at: 0,
            piece: BlockBuf::zeroed(PIECE_BYTES),
            filled: 0..0,
            bar: bar.clone(),
        };
        let begin = pieces.begin()?;
        for (magic, name) in STRANGERS {
            if begin.starts_with(magic) {
                let text = format!(
                    "the archive is compressed with {name}, which is not read here: {name} -dc \
                     ARCHIVE | ashift tar …"
                );
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
        }
        if gzip || begin.starts_with(GZIP) {
            return Ok(Box::new(Unzipped(MultiGzDecoder::new(pieces))));
        }
        Ok(Box::new(pieces))
    }

    /// Begins to write.
    pub(super) fn writer(&self, gzip: bool) -> Result<Writer<'_>> {
        let content: Box<dyn Content + '_> = match self {
            Archive::Standard => {
                let file = caller().output_file(Stream::Out)?;
                Box::new(Pipe::standard(file))
            }
            Archive::File(tree, file) => tree.open(file, true)?,
        };
        let filling = Filling {
            content,
            at: 0,
            piece: BlockBuf::zeroed(PIECE_BYTES),
            filled: 0,
        };
        let to = match gzip {
            true => To::Gzip(Box::new(GzEncoder::new(filling, Compression::default()))),
            false => To::Plain(filling),
        };
        Ok(Writer { to, bytes: 0 })
    }
}

/// The bytes of a file, read in pieces.
struct Pieces<'a> {
    content: Box<dyn Content + 'a>,
    /// `None`: it is a stream.
    size: Option<u64>,
    /// Where what is read next is.
    at: u64,
    piece: BlockBuf,
    /// What of `piece` was not taken yet.
    filled: Range<usize>,
    bar: ProgressBar,
}

impl Pieces<'_> {
    fn fill(&mut self) -> Result<()> {
        caller::check();
        let most = PIECE_BYTES - (self.at % PIECE_BYTES as u64) as usize;
        let read = self.content.read_at(self.at, &mut self.piece[..most])?;
        self.filled = 0..read;
        self.at += read as u64;
        self.bar.set_position(self.at);
        Ok(())
    }

    /// The first bytes.
    fn begin(&mut self) -> Result<&[u8]> {
        self.fill()?;
        Ok(&self.piece[self.filled.clone()])
    }
}

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.filled.is_empty() {
            self.fill().map_err(io::Error::other)?;
        }
        let length = out.len().min(self.filled.len());
        let from = self.filled.start;
        out[..length].copy_from_slice(&self.piece[from..from + length]);
        self.filled.start += length;
        Ok(length)
    }
}

impl Input for Pieces<'_> {
    fn skip(&mut self, bytes: u64) -> io::Result<u64> {
        let near = bytes.min(self.filled.len() as u64);
        self.filled.start += near as usize;
        let Some(size) = self.size else {
            let rest = io::copy(&mut self.take(bytes - near), &mut io::sink())?;
            return Ok(near + rest);
        };
        let far = (bytes - near).min(size.saturating_sub(self.at));
        self.at += far;
        Ok(near + far)
    }
}

/// What was gzipped.
struct Unzipped<'a>(MultiGzDecoder<Pieces<'a>>);

impl Read for Unzipped<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

impl Input for Unzipped<'_> {}

/// A file that is written in pieces.
struct Filling<'a> {
    content: Box<dyn Content + 'a>,
    at: u64,
    piece: BlockBuf,
    filled: usize,
}

impl Filling<'_> {
    fn empty(&mut self) -> Result<()> {
        caller::check();
        self.content.write_at(self.at, &self.piece[..self.filled])?;
        self.at += self.filled as u64;
        self.filled = 0;
        Ok(())
    }
}

impl Write for Filling<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.filled == PIECE_BYTES {
            self.empty().map_err(io::Error::other)?;
        }
        let length = bytes.len().min(PIECE_BYTES - self.filled);
        self.piece[self.filled..self.filled + length].copy_from_slice(&bytes[..length]);
        self.filled += length;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum To<'a> {
    Plain(Filling<'a>),
    Gzip(Box<GzEncoder<Filling<'a>>>),
}

/// An archive that is being written.
pub(super) struct Writer<'a> {
    to: To<'a>,
    bytes: u64,
}

impl Writer<'_> {
    /// Appends bytes.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let put = match &mut self.to {
            To::Plain(file) => file.write_all(bytes),
            To::Gzip(file) => file.write_all(bytes),
        };
        put.map_err(reason)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Appends zeros.
    pub(super) fn put_zeros(&mut self, mut bytes: u64) -> Result<()> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        while bytes > 0 {
            let length = bytes.min(ZEROS.len() as u64);
            self.put(&ZEROS[..length as usize])?;
            bytes -= length;
        }
        Ok(())
    }

    /// Writes the end of the archive.
    pub(super) fn end(mut self) -> Result<()> {
        self.put_zeros(tarball::end(self.bytes) as u64)?;
        let mut file = match self.to {
            To::Plain(file) => file,
            To::Gzip(file) => file.finish().map_err(reason)?,
        };
        file.empty()
    }
}

/// What [`Filling`] said.
fn reason(error: io::Error) -> Error {
    error.downcast().unwrap_or_else(Error::from)
}
