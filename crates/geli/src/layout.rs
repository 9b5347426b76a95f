//! Where the sectors of an encrypted provider lie on the provider below.
//!
//! # On disk
//! Without authentication a sector is where it would be without encryption. With it, a sector
//! of the encrypted provider is spread over as many sectors below as it takes when each reserves
//! room for a code. For sectors of 4096 bytes on sectors of 512 with HMAC/SHA256:
//! ```text
//! above:  │ 480 │ 480 │ 480 │ 480 │ 480 │ 480 │ 480 │ 480 │ 256 │            4096 bytes
//! below:  │c 480│c 480│c 480│c 480│c 480│c 480│c 480│c 480│c 256 0│          9 x 512 bytes
//! ```
//! A code and what it covers are written together or not at all, because they share a sector.

use base::{Error, Result};
use geom::Provider;

use crate::{Attached, AuthAlgorithm};

/// The length of a full part is a multiple of this, in bytes: whole blocks of the cipher.
const PART_ALIGN: usize = 16;

/// Sizes of an encrypted provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) mediasize: u64,
    pub(crate) sectorsize: u32,
    /// How a sector is spread, if sectors are authenticated.
    pub(crate) spread: Option<Spread>,
}

/// How a sector is spread over sectors below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spread {
    pub(crate) auth: AuthAlgorithm,
    /// The sector size of the encrypted provider.
    above: usize,
    /// The sector size of the provider below.
    pub(crate) below: usize,
    /// Bytes of the encrypted provider's sector in each sector below.
    part: usize,
    /// Sectors below per sector of the encrypted provider.
    parts: usize,
}

impl Spread {
    fn new(auth: AuthAlgorithm, above: u32, below: u32) -> Option<Spread> {
        let (above, below) = (above as usize, below as usize);
        let room = below.checked_sub(auth.code_bytes())?;
        let part = room - room % PART_ALIGN;
        if part == 0 {
            return None;
        }
        Some(Spread {
            auth,
            above,
            below,
            part,
            parts: above.div_ceil(part),
        })
    }

    pub(crate) fn len_below(&self, len: usize) -> usize {
        len / self.above * self.parts * self.below
    }

    pub(crate) fn len_above(&self, len: usize) -> usize {
        len / self.below / self.parts * self.above
    }

    /// The length of each part in bytes, repeating for every sector.
    pub(crate) fn part_lengths(&self) -> impl Iterator<Item = usize> + '_ {
        let last = self.above - (self.parts - 1) * self.part;
        let of_sector = move |n| {
            if n + 1 == self.parts { last } else { self.part }
        };
        (0..self.parts).map(of_sector).cycle()
    }

    /// Copies the parts of sectors to their places below, after room for the codes. The unused end of
    /// the last sector below stays as it is.
    pub(crate) fn scatter(&self, above: &[u8], below: &mut [u8]) {
        let code = self.auth.code_bytes();
        let mut rest = above;
        for (sector, len) in below.chunks_exact_mut(self.below).zip(self.part_lengths()) {
            let (part, tail) = rest.split_at(len);
            sector[code..code + len].copy_from_slice(part);
            rest = tail;
        }
    }

    /// Reassembles the parts.
    pub(crate) fn gather(&self, below: &[u8], above: &mut [u8]) {
        let code = self.auth.code_bytes();
        let mut rest = above;
        for (sector, len) in below.chunks_exact(self.below).zip(self.part_lengths()) {
            let (part, tail) = rest.split_at_mut(len);
            part.copy_from_slice(&sector[code..code + len]);
            rest = tail;
        }
    }
}

impl Geometry {
    #[doc(alias = "eli_metadata_softc")]
    pub(crate) fn new(below: &dyn Provider, attached: &Attached) -> Result<Geometry> {
        let invalid = |text: &str| Error::invalid(format!("{}: {text}", below.name()));
        let (parent, sectorsize) = (below.sectorsize(), attached.sectorsize);
        if !sectorsize.is_power_of_two() || !sectorsize.is_multiple_of(parent) {
            return Err(invalid("Invalid sector size."));
        }
        // A provider that grew keeps its size until it is resized.
        let provsize = attached.provsize;
        if provsize > below.mediasize() {
            return Err(invalid("Provider size mismatch."));
        }
        let reserved = if attached.is_onetime() {
            0
        } else {
            u64::from(parent)
        };
        let room = provsize.saturating_sub(reserved);
        let spread = match attached.aalgo {
            None => None,
            Some(auth) => Some(
                Spread::new(auth, sectorsize, parent)
                    .ok_or_else(|| invalid("sectors are too small for codes"))?,
            ),
        };
        let per_sector = match &spread {
            None => u64::from(sectorsize),
            Some(spread) => spread.len_below(sectorsize as usize) as u64,
        };
        let mediasize = room / per_sector * u64::from(sectorsize);
        if mediasize == 0 {
            return Err(invalid("too small for an encrypted provider."));
        }
        Ok(Geometry {
            mediasize,
            sectorsize,
            spread,
        })
    }

    /// The offset on the provider below of the sector at `offset`.
    pub(crate) fn offset_below(&self, offset: u64) -> u64 {
        match &self.spread {
            None => offset,
            Some(spread) => {
                let sector = u64::from(self.sectorsize);
                offset / sector * spread.len_below(self.sectorsize as usize) as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_nine_sectors_for_eight() {
        let spread = Spread::new(AuthAlgorithm::HmacSha256, 4096, 512).unwrap();
        assert_eq!((spread.part, spread.parts), (480, 9));
        assert_eq!(spread.len_below(8192), 18 * 512);
        assert_eq!(spread.len_above(18 * 512), 8192);
        let lengths: Vec<_> = spread.part_lengths().take(10).collect();
        assert_eq!(lengths[7..], [480, 256, 480]);
        // A code of 20 bytes leaves 492, of which whole blocks are 480.
        let sha1 = Spread::new(AuthAlgorithm::HmacSha1, 512, 512).unwrap();
        assert_eq!((sha1.part, sha1.parts), (480, 2));
    }

    #[test]
    fn scatters_and_gathers() {
        let spread = Spread::new(AuthAlgorithm::HmacSha512, 1024, 512).unwrap();
        let above: Vec<u8> = (0..2048u32).map(|n| (n % 251) as u8).collect();
        let mut below = vec![0; spread.len_below(above.len())];
        spread.scatter(&above, &mut below);
        assert_eq!(below[64..64 + 448], above[..448]);
        let mut back = vec![0; above.len()];
        spread.gather(&below, &mut back);
        assert_eq!(back, above);
    }
}
