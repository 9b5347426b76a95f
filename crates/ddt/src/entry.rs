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
/// Bytes of a value before compression, in a table of version 0.
const VALUE_BYTES: usize = PHYS_MAX * PHYS_WORDS * 8;
/// `DDT_FLAT_PHYS_SIZE`: the same in a table of `fast_dedup`; the last word is ddp_class_start.
pub(crate) const FLAT_BYTES: usize = (PHYS_WORDS + 1) * 8;
/// Which of the places of an entry is that of a flat one.
pub(crate) const FLAT_PLACE: usize = 1;
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
    fn words(&self) -> impl Iterator<Item = u64> + '_ {
        let dvas = self.dva.iter().flat_map(DvaPhys::words);
        dvas.chain([self.refcnt, self.birth.0])
    }

    /// From at least eight words.
    fn from_words(words: &[u64]) -> DdtPhys {
        let dva = |n: usize| DvaPhys::from_words([words[2 * n], words[2 * n + 1]]);
        DdtPhys {
            dva: [dva(0), dva(1), dva(2)],
            refcnt: words[6],
            birth: Txg(words[7]),
        }
    }

    /// The copies that there are.
    pub fn dvas(&self) -> impl Iterator<Item = &DvaPhys> {
        self.dva.iter().filter(|dva| **dva != DvaPhys::default())
    }
}

/// The one place of an entry of `fast_dedup` (`ddp_flat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flat {
    pub(crate) phys: DdtPhys,
    /// ddp_class_start: when the entry was last changed, in seconds since 1970.
    pub(crate) class_start: u64,
}

impl Flat {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let words = self.phys.words().chain([self.class_start]);
        words.flat_map(u64::to_le_bytes).collect()
    }

    pub(crate) fn parse(bytes: &[u8; FLAT_BYTES]) -> Flat {
        let words = words_of(bytes);
        Flat {
            phys: DdtPhys::from_words(&words),
            class_start: words[PHYS_WORDS],
        }
    }
}

/// `ddt_entry_t`: a shared block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DdtEntry {
    /// How it is found.
    pub key: DdtKey,
    /// Its places: with one, two and three copies at 1, 2 and 3. A flat entry has only the place 1, with any number
    /// of copies.
    pub phys: [DdtPhys; PHYS_MAX],
    /// ddp_class_start of a flat entry, those of `fast_dedup`: when it was last changed, in seconds since 1970.
    pub class_start: Option<u64>,
}

/// What an entry has for a block that is to be written.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The first block that there is.
    pub any: Option<BlkPtrPhys>,
    /// The one with enough copies.
    pub wanted: Option<BlkPtrPhys>,
    /// The one with fewer copies that can be given more: that of a flat entry.
    pub partial: Option<BlkPtrPhys>,
    /// Whether another one can be entered.
    pub has_room: bool,
}

impl DdtEntry {
    /// An entry without a block.
    pub(crate) fn new(key: DdtKey, is_flat: bool) -> DdtEntry {
        DdtEntry {
            key,
            phys: [DdtPhys::default(); PHYS_MAX],
            class_start: is_flat.then_some(0),
        }
    }

    pub(crate) fn of_flat(key: DdtKey, flat: &Flat) -> DdtEntry {
        let mut entry = DdtEntry::new(key, true);
        entry.phys[FLAT_PLACE] = flat.phys;
        entry.class_start = Some(flat.class_start);
        entry
    }

    /// The one place of a flat entry.
    pub(crate) fn flat(&self) -> Flat {
        Flat {
            phys: self.phys[FLAT_PLACE],
            class_start: self.class_start.expect("only asked of flat entries"),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.phys.iter().all(|phys| phys.birth == Txg(0))
    }

    /// What there is for a block of so many copies: pointers made from one to a block with this key. The old ditto
    /// blocks are left out. A gang block is not given more copies.
    #[must_use]
    #[doc(alias = "ddt_bp_fill")]
    pub fn blocks(&self, bp: &BlkPtrPhys, copies: usize) -> Found {
        let fill = |phys: &DdtPhys| {
            let mut bp = *bp;
            bp.dva = phys.dva;
            bp.set_birth(phys.birth, phys.birth);
            (phys.birth != Txg(0)).then_some(bp)
        };
        let wanted = self.phys.get(self.place(copies));
        let wanted = wanted.filter(|_| copies != PHYS_DITTO);
        let has_room = wanted.is_some_and(|phys| phys.birth == Txg(0));
        let has_enough = |phys: &&DdtPhys| !self.is_flat() || phys.dvas().count() >= copies;
        let partial = wanted.filter(|phys| !has_enough(phys) && !phys.dva[0].is_gang());
        Found {
            any: self.phys[PHYS_DITTO + 1..].iter().find_map(fill),
            wanted: wanted.filter(has_enough).and_then(fill),
            partial: partial.and_then(fill),
            has_room,
        }
    }

    fn is_flat(&self) -> bool {
        self.class_start.is_some()
    }

    /// Where a block of so many copies is entered.
    fn place(&self, copies: usize) -> usize {
        if self.is_flat() { FLAT_PLACE } else { copies }
    }

    /// Counts a pointer to the block of so many copies. Copies that the entry does not have are entered.
    #[doc(alias = "ddt_phys_extend")]
    pub(crate) fn refer(&mut self, bp: &BlkPtrPhys, copies: usize) {
        let phys = &mut self.phys[self.place(copies)];
        if phys.birth == Txg(0) {
            phys.birth = bp.physical_birth();
        }
        debug_assert!(bp.ndvas() >= phys.dvas().count(), "fewer copies: {bp:?}");
        phys.dva = bp.dva;
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
        let plain = match self.class_start {
            Some(_) => self.flat().bytes(),
            None => {
                let words = self.phys.iter().flat_map(DdtPhys::words);
                words.flat_map(u64::to_le_bytes).collect()
            }
        };
        let mut value = vec![0; 1 + plain.len()];
        match compress::compress(Algorithm::Zle, &plain, &mut value[1..]) {
            Some(length) if length < plain.len() => {
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
    pub(crate) fn parse(key: DdtKey, value: &[u8], is_flat: bool) -> Result<DdtEntry> {
        if is_flat {
            let flat = Flat::parse(&unpack(&key, value)?);
            return Ok(DdtEntry::of_flat(key, &flat));
        }
        let words = words_of(&unpack::<VALUE_BYTES>(&key, value)?);
        let mut entry = DdtEntry::new(key, false);
        for (phys, words) in entry.phys.iter_mut().zip(words.chunks(PHYS_WORDS)) {
            *phys = DdtPhys::from_words(words);
        }
        Ok(entry)
    }
}

/// Decompresses a value, of a host of either byte order.
fn unpack<const N: usize>(key: &DdtKey, value: &[u8]) -> Result<[u8; N]> {
    let corrupt = || Error::corrupt(format!("entry {:x?} of a dedup table", key.cksum));
    let (version, packed) = value.split_first().ok_or_else(corrupt)?;
    let mut plain = [0; N];
    if version & !LITTLE_ENDIAN == CompressType::Zle.raw() {
        compress::decompress(CompressType::Zle, packed, &mut plain)?;
    } else {
        plain.copy_from_slice(packed.get(..N).ok_or_else(corrupt)?);
    }
    if version & LITTLE_ENDIAN == 0 {
        phys::byteswap::swap_words(&mut plain);
    }
    Ok(plain)
}

pub(crate) fn words_of(bytes: &[u8]) -> Vec<u64> {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
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
            let entry = DdtEntry { key, phys: places, class_start: None };
            prop_assert_eq!(DdtEntry::parse(key, &entry.value(), false).unwrap(), entry);
        }

        #[test]
        fn flat_entries_come_back(
            phys in any_phys(),
            class_start in any::<u64>(),
            cksum in any::<[u64; 4]>(),
            prop in any::<u64>(),
        ) {
            let key = DdtKey { cksum, prop };
            let entry = DdtEntry::of_flat(key, &Flat { phys, class_start });
            prop_assert_eq!(DdtEntry::parse(key, &entry.value(), true).unwrap(), entry);
        }

        #[test]
        fn no_value_is_too_strange(value in proptest::collection::vec(any::<u8>(), 0..300)) {
            let key = DdtKey { cksum: [0; 4], prop: 0 };
            let _ = DdtEntry::parse(key, &value, false);
            let _ = DdtEntry::parse(key, &value, true);
        }
    }
}
