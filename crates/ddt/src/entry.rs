//! One entry: the key by which a block is found, and the places where it is.

use base::{Error, Result, SPA_MINBLOCKSHIFT, Txg};
use compress::Algorithm;
use phys::blkptr::DvaPhys;
use phys::{BlkPtrPhys, ChecksumType, CompressType, ObjectType};

/// `DDT_PHYS_MAX`: places for blocks of one, two and three copies; the first is for the old "ditto" ones.
pub(crate) const PHYS_MAX: usize = 4;
/// `DDT_PHYS_DITTO`
pub(crate) const PHYS_DITTO: usize = 0;
/// Words of a `ddt_key_t`.
pub(crate) const KEY_WORDS: usize = 5;
/// Words of one place of a `ddt_univ_phys_t`.
const PHYS_WORDS: usize = 8;
/// Bytes of a value before compression.
const VALUE_BYTES: usize = PHYS_MAX * PHYS_WORDS * 8;
/// `DDT_ZAP_COMPRESS_BYTEORDER_MASK`: the words are little endian.
const LITTLE_ENDIAN: u8 = 0x80;
/// Bits of each size in `ddk_prop`: the number of sectors, less one.
const SIZE_BITS: u32 = 16;
const COMPRESS_SHIFT: u32 = 32;
const CRYPT_SHIFT: u32 = 39;

/// `ddt_key_t`: what makes two blocks the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DdtKey {
    /// ddk_cksum
    pub cksum: [u64; 4],
    /// ddk_prop: sizes, compression, encryption
    pub prop: u64,
}

impl DdtKey {
    /// The key of a block.
    #[must_use]
    #[doc(alias = "ddt_key_fill")]
    pub fn of(bp: &BlkPtrPhys) -> DdtKey {
        let sectors = |bytes: u64| (bytes >> SPA_MINBLOCKSHIFT).wrapping_sub(1) & 0xffff;
        let prop = sectors(bp.lsize())
            | sectors(bp.psize()) << SIZE_BITS
            | u64::from(bp.compress() & 0x7f) << COMPRESS_SHIFT
            | u64::from(bp.uses_crypt()) << CRYPT_SHIFT;
        DdtKey {
            cksum: bp.cksum_words(),
            prop,
        }
    }

    /// Bytes before compression.
    #[must_use]
    pub fn lsize(&self) -> u64 {
        ((self.prop & 0xffff) + 1) << SPA_MINBLOCKSHIFT
    }

    /// Bytes after compression.
    #[must_use]
    pub fn psize(&self) -> u64 {
        ((self.prop >> SIZE_BITS & 0xffff) + 1) << SPA_MINBLOCKSHIFT
    }

    /// A pointer to a block with this key, without the dedup bit.
    #[doc(alias = "ddt_bp_create")]
    pub(crate) fn block(&self, checksum: ChecksumType, phys: &DdtPhys) -> BlkPtrPhys {
        let mut bp = BlkPtrPhys::default();
        bp.dva = phys.dva;
        bp.set_lsize(self.lsize());
        bp.set_psize(self.psize());
        bp.set_compress((self.prop >> COMPRESS_SHIFT & 0x7f) as u8);
        bp.set_crypt(self.prop >> CRYPT_SHIFT & 1 != 0);
        bp.set_fill(1);
        bp.set_checksum(checksum.raw());
        bp.set_cksum(self.cksum);
        bp.set_type(ObjectType::DEDUP.raw());
        bp.set_little_endian();
        bp.set_birth(phys.birth, phys.birth);
        bp
    }

    pub(crate) fn words(&self) -> [u64; KEY_WORDS] {
        let [a, b, c, d] = self.cksum;
        [a, b, c, d, self.prop]
    }

    pub(crate) fn from_words(words: &[u64]) -> Result<DdtKey> {
        let [a, b, c, d, prop] = *words else {
            let text = format!("key of {} words in a dedup table", words.len());
            return Err(Error::corrupt(text));
        };
        Ok(DdtKey {
            cksum: [a, b, c, d],
            prop,
        })
    }
}

/// `ddp_trad`: where a block is, and how many block pointers refer to it there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DdtPhys {
    /// ddp_dva
    pub dva: [DvaPhys; 3],
    /// ddp_refcnt
    pub refcnt: u64,
    /// ddp_phys_birth: 0 if there is none.
    pub birth: Txg,
}

impl DdtPhys {
    /// The copies that there are.
    pub fn dvas(&self) -> impl Iterator<Item = &DvaPhys> {
        self.dva.iter().filter(|dva| **dva != DvaPhys::default())
    }
}

/// `ddt_entry_t`: a shared block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DdtEntry {
    /// How it is found.
    pub key: DdtKey,
    /// Its places: with one, two and three copies at 1, 2 and 3.
    pub phys: [DdtPhys; PHYS_MAX],
}

impl DdtEntry {
    /// An entry without a block.
    pub(crate) fn new(key: DdtKey) -> DdtEntry {
        let phys = [DdtPhys::default(); PHYS_MAX];
        DdtEntry { key, phys }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.phys.iter().all(|phys| phys.birth == Txg(0))
    }

    /// Pointers, made from one to a block with this key, to the block of so many copies, and to the first that there
    /// is; not to the old ditto ones.
    #[must_use]
    #[doc(alias = "ddt_bp_fill")]
    pub fn blocks(
        &self,
        bp: &BlkPtrPhys,
        copies: usize,
    ) -> (Option<BlkPtrPhys>, Option<BlkPtrPhys>) {
        let fill = |phys: &DdtPhys| {
            let mut bp = *bp;
            bp.dva = phys.dva;
            bp.set_birth(phys.birth, phys.birth);
            (phys.birth != Txg(0)).then_some(bp)
        };
        let wanted = self.phys.get(copies).filter(|_| copies != PHYS_DITTO);
        let any = self.phys[PHYS_DITTO + 1..].iter().find_map(fill);
        (wanted.and_then(fill), any)
    }

    /// Counts a pointer to the block of so many copies.
    pub(crate) fn refer(&mut self, bp: &BlkPtrPhys, copies: usize) {
        let phys = &mut self.phys[copies];
        if phys.birth == Txg(0) {
            phys.dva = bp.dva;
            phys.birth = bp.physical_birth();
        }
        phys.refcnt = phys.refcnt.saturating_add(1);
    }

    /// All references.
    #[must_use]
    pub fn refcnt(&self) -> u64 {
        let counts = self.phys.iter().map(|phys| phys.refcnt);
        counts.fold(0, u64::saturating_add)
    }

    /// The place that a block pointer refers to.
    #[doc(alias = "ddt_phys_select")]
    pub(crate) fn select(&mut self, bp: &BlkPtrPhys) -> Option<&mut DdtPhys> {
        let is_it = |phys: &&mut DdtPhys| {
            phys.birth != Txg(0) && phys.dva[0] == bp.dva[0] && phys.birth == bp.physical_birth()
        };
        self.phys.iter_mut().find(is_it)
    }

    /// As it is stored in a ZAP.
    #[doc(alias = "ddt_zap_compress")]
    pub(crate) fn value(&self) -> Vec<u8> {
        let mut plain = Vec::with_capacity(VALUE_BYTES);
        for phys in &self.phys {
            let dvas = phys.dva.iter().flat_map(DvaPhys::words);
            for word in dvas.chain([phys.refcnt, phys.birth.0]) {
                plain.extend(word.to_le_bytes());
            }
        }
        let mut value = vec![0; 1 + VALUE_BYTES];
        match compress::compress(Algorithm::Zle, &plain, &mut value[1..]) {
            Some(length) if length < VALUE_BYTES => {
                value[0] = CompressType::Zle.raw() | LITTLE_ENDIAN;
                value.truncate(1 + length);
            }
            _ => {
                value[0] = CompressType::Off.raw() | LITTLE_ENDIAN;
                value[1..].copy_from_slice(&plain);
            }
        }
        value
    }

    /// # Errors
    /// `Corrupt`.
    #[doc(alias = "ddt_zap_decompress")]
    pub(crate) fn parse(key: DdtKey, value: &[u8]) -> Result<DdtEntry> {
        let corrupt = || Error::corrupt(format!("entry {:x?} of a dedup table", key.cksum));
        let (version, packed) = value.split_first().ok_or_else(corrupt)?;
        let mut plain = [0; VALUE_BYTES];
        if version & !LITTLE_ENDIAN == CompressType::Zle.raw() {
            compress::decompress(CompressType::Zle, packed, &mut plain)?;
        } else {
            let whole = packed.get(..VALUE_BYTES).ok_or_else(corrupt)?;
            plain.copy_from_slice(whole);
        }
        if version & LITTLE_ENDIAN == 0 {
            return Err(Error::corrupt("a dedup table of a big-endian host"));
        }
        let (words, _) = plain.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let mut phys = [DdtPhys::default(); PHYS_MAX];
        for (phys, words) in phys.iter_mut().zip(words.chunks(PHYS_WORDS)) {
            for (dva, words) in phys.dva.iter_mut().zip(words.chunks(2)) {
                *dva = DvaPhys::from_words([words[0], words[1]]);
            }
            phys.refcnt = words[6];
            phys.birth = Txg(words[7]);
        }
        Ok(DdtEntry { key, phys })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_phys() -> impl Strategy<Value = DdtPhys> {
        (any::<[u64; 6]>(), 0..100u64, 0..1000u64).prop_map(|(words, refcnt, birth)| DdtPhys {
            dva: [0, 2, 4].map(|at| DvaPhys::from_words([words[at], words[at + 1]])),
            refcnt,
            birth: Txg(birth),
        })
    }

    proptest! {
        #[test]
        fn entries_come_back(
            phys in proptest::collection::vec(proptest::option::of(any_phys()), PHYS_MAX),
            cksum in any::<[u64; 4]>(),
            prop in any::<u64>(),
        ) {
            let mut places = [DdtPhys::default(); PHYS_MAX];
            for (place, phys) in places.iter_mut().zip(phys) {
                *place = phys.unwrap_or_default();
            }
            let key = DdtKey { cksum, prop };
            prop_assert_eq!(DdtKey::from_words(&key.words()).unwrap(), key);
            let entry = DdtEntry { key, phys: places };
            prop_assert_eq!(DdtEntry::parse(key, &entry.value()).unwrap(), entry);
        }

        #[test]
        fn no_value_is_too_strange(value in proptest::collection::vec(any::<u8>(), 0..300)) {
            let key = DdtKey { cksum: [0; 4], prop: 0 };
            let _ = DdtEntry::parse(key, &value);
        }
    }
}
