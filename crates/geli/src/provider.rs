//! The encrypted provider.
//!
//! # What it is
//! Reads decrypt what the provider below holds; writes are encrypted first. Every sector is
//! encrypted independently: its IV or tweak is its offset, and the key changes every 2^20 sectors.
//! With authentication, a sector is spread over several sectors of the provider below, each of
//! which carries a code (HMAC) over its own part (see [`crate::layout`]).
//!
//! # Invariants
//! 1. What is sent to the provider below is encrypted; the caller's bytes are never changed.
//! 2. One command from above is one command below, of the same sectors: what is torn or reordered
//!    below is torn or reordered in whole sectors here.
//! 3. Without authentication a sector that was never written reads as noise, and so does one with
//!    a flipped bit. With it, both are errors.
//!
//! # Crash argument
//! There is no state besides the metadata. A sector's IV and code depend only on its own content
//! and place, so a lost write leaves the old sector readable.
//!
//! # Concurrency
//! The cache of expanded keys is behind a lock held only for a lookup or a store; encryption happens
//! in the calling thread, decryption in whichever thread the provider below completes the read on.
//!
//! # Source
//! FreeBSD `sys/geom/eli/g_eli.c`, `g_eli_privacy.c`, `g_eli_integrity.c`, `g_eli_hmac.c`.

use std::sync::Arc;

use base::{BlockBuf, Error, ErrorKind, Result};
use geom::{Bio, BioCmd, BioData, BioOp, Command, Provider, Shape, check_range};

use crate::aes::Direction;
use crate::layout::Geometry;
use crate::sectors::Sectors;
use crate::{Attached, Flags};

/// An encrypted provider.
pub struct Eli {
    name: String,
    below: Arc<dyn Provider>,
    core: Arc<Core>,
}

/// What a read in flight needs to complete.
struct Core {
    name: String,
    geometry: Geometry,
    sectors: Sectors,
    is_readonly: bool,
    passes_deletes: bool,
}

/// Checks that `attached` fits a provider.
pub(crate) fn check_fit(below: &dyn Provider, attached: &Attached) -> Result<()> {
    Geometry::new(below, attached).map(drop)
}

impl Eli {
    /// Opens the encrypted provider `name` on `below`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the sizes do not fit.
    pub fn open(
        below: Arc<dyn Provider>,
        name: impl Into<String>,
        attached: &Attached,
    ) -> Result<Arc<Eli>> {
        let geometry = Geometry::new(&*below, attached)?;
        let name = name.into();
        let core = Core {
            name: name.clone(),
            sectors: Sectors::new(attached, &geometry),
            geometry,
            is_readonly: attached.flags.contains(Flags::RO),
            passes_deletes: !attached.flags.contains(Flags::NODELETE) && attached.aalgo.is_none(),
        };
        Ok(Arc::new(Eli {
            name,
            below,
            core: Arc::new(core),
        }))
    }

    /// The provider below.
    #[must_use]
    pub fn below(&self) -> &Arc<dyn Provider> {
        &self.below
    }

    /// The number of data keys: one per 2^20 sectors, or a single one before version 5.
    #[must_use]
    pub fn keys_total(&self) -> u64 {
        self.core.sectors.keys_total()
    }

    fn check_writable(&self) -> Result<()> {
        if self.core.is_readonly {
            let text = format!("{}: attached read-only", self.name);
            return Err(Error::new(ErrorKind::ReadOnly, text));
        }
        Ok(())
    }

    fn check_delete(&self) -> Result<()> {
        self.check_writable()?;
        if !self.core.passes_deletes {
            let text = format!("{}: deletes are not passed on", self.name);
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        Ok(())
    }

    /// Checks that a command is allowed.
    fn admit(&self, offset: u64, (cmd, len): (BioCmd, u64)) -> Result<()> {
        check_range(self, offset, len)?;
        match cmd {
            BioCmd::Read | BioCmd::Flush => Ok(()),
            BioCmd::Write => self.check_writable(),
            BioCmd::Delete => self.check_delete(),
        }
    }

    fn read_decrypted(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let core = &self.core;
        let at = core.geometry.offset_below(offset);
        if core.geometry.spread.is_none() {
            self.below.read(at, buf)?;
            core.charge(buf.len());
            core.sectors.crypt(Direction::Decrypt, buf, at);
            return Ok(());
        }
        let mut below = BlockBuf::scratch(core.len_below(buf.len()));
        self.below.read(at, &mut below)?;
        buf.copy_from_slice(&core.decrypt(offset, below)?);
        Ok(())
    }
}

impl Core {
    /// Encrypts adjacent pieces into the bytes for the provider below.
    fn encrypt(&self, offset: u64, pieces: &[&[u8]]) -> BlockBuf {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut plain = BlockBuf::scratch(len);
        let mut rest = &mut plain[..];
        for piece in pieces {
            let (head, tail) = rest.split_at_mut(piece.len());
            head.copy_from_slice(piece);
            rest = tail;
        }
        self.charge(len);
        let at = self.geometry.offset_below(offset);
        match &self.geometry.spread {
            None => {
                self.sectors.crypt(Direction::Encrypt, &mut plain, at);
                plain
            }
            Some(spread) => {
                let mut below = BlockBuf::zeroed(spread.len_below(len));
                spread.scatter(&plain, &mut below);
                self.sectors.seal(spread, &mut below, at);
                below
            }
        }
    }

    /// Decrypts what the provider below returned; in place unless authenticated.
    fn decrypt(&self, offset: u64, mut below: BlockBuf) -> Result<BlockBuf> {
        self.charge(below.len());
        let at = self.geometry.offset_below(offset);
        match &self.geometry.spread {
            None => {
                self.sectors.crypt(Direction::Decrypt, &mut below, at);
                Ok(below)
            }
            Some(spread) => {
                self.sectors
                    .unseal(spread, &mut below, at)
                    .map_err(|bad| self.code_error(offset, bad))?;
                let mut plain = BlockBuf::scratch(spread.len_above(below.len()));
                spread.gather(&below, &mut plain);
                Ok(plain)
            }
        }
    }

    /// Charges the simulated processor for encrypting or decrypting `bytes`.
    fn charge(&self, bytes: usize) {
        let sectors = bytes as u64 / u64::from(self.geometry.sectorsize);
        rt::charge(rt::Work::CipherSector, sectors);
        rt::charge(rt::Work::Cipher, bytes as u64);
    }

    fn code_error(&self, offset: u64, bad: usize) -> Error {
        let text = format!(
            "{}: Failed to authenticate {bad} sectors of the data at offset {offset}.",
            self.name
        );
        Error::new(ErrorKind::Checksum, text)
    }

    fn len_below(&self, len: usize) -> usize {
        let spread = self.geometry.spread.as_ref();
        spread.map_or(len, |spread| spread.len_below(len))
    }
}

impl Provider for Eli {
    fn name(&self) -> &str {
        &self.name
    }
    fn shape(&self) -> Shape {
        let geometry = &self.core.geometry;
        let below = self.below.shape();
        Shape {
            is_rotational: below.is_rotational,
            is_queued: below.is_queued,
            writes_at_once: below.writes_at_once,
            keeps_unflushed: below.keeps_unflushed,
            can_delete: below.can_delete && self.core.passes_deletes,
            ..Shape::new(geometry.mediasize, geometry.sectorsize)
        }
    }

    fn submit(&self, bio: Bio) {
        if let Err(error) = self.admit(bio.offset, bio.op.cmd()) {
            return (bio.done)(Err(error));
        }
        let Bio { op, offset, done } = bio;
        let at = self.core.geometry.offset_below(offset);
        let bio = match op {
            BioOp::Read { len } => {
                let core = Arc::clone(&self.core);
                let finish = move |result: Result<BioData>| {
                    let decrypted = result
                        .and_then(|data| core.decrypt(offset, data.into_read()))
                        .map(BioData::Read);
                    done(decrypted);
                };
                Bio {
                    op: BioOp::Read {
                        len: self.core.len_below(len),
                    },
                    offset: at,
                    done: Box::new(finish),
                }
            }
            BioOp::Write(bytes) => Bio {
                op: BioOp::Write(self.core.encrypt(offset, &[&bytes]).share()),
                offset: at,
                done,
            },
            op @ (BioOp::Delete { .. } | BioOp::Flush) => Bio {
                op,
                offset: at,
                done,
            },
        };
        self.below.submit(bio);
    }

    fn execute(&self, offset: u64, command: Command<'_>) -> Result<()> {
        self.admit(offset, command.cmd())?;
        let at = self.core.geometry.offset_below(offset);
        match command {
            Command::Read(buf) => self.read_decrypted(offset, buf),
            Command::Write(pieces) => self.below.write(at, &self.core.encrypt(offset, pieces)),
            Command::Flush => self.below.flush(),
            Command::Delete { len } => self.below.delete(at, len),
        }
    }
}

#[cfg(test)]
mod tests;
