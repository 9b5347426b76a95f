//! Names that are alike: upper case and Unicode's normal forms, as OpenZFS makes them.
//!
//! # What it is
//! A directory whose file system ignores case or normalises names hashes each name in this form, so every byte of it is
//! part of the on-disk format: a name that is prepared otherwise is not found again. The tables of OpenZFS are those of
//! Unicode 5.0. Later versions never change the decomposition or the class of a character that was there, so those of
//! today are used, and characters that came later count as unassigned, without case and without decomposition.
//!
//! # How it differs from the standard
//! For names as people write them the result is the standard's: simple upper case, then the normal form. Beyond that
//! this follows the original step by step:
//! - Bytes outside of UTF-8 are kept; a first byte tells how many belong together. They occur only where names are not
//!   normalised: OpenZFS takes some of them for Korean letters, which is left out here.
//! - Only the first character of a sequence becomes upper case, marks after it do not, but for U+0345.
//! - After 29 marks U+034F is put in and a new sequence begins; composition then loses characters.
//! - Once something was composed, marks are no more checked for being blocked.
//!
//! # Source
//! OpenZFS `module/unicode/u8_textprep.c` (`u8_textprep_str`, `collect_a_seq`, `do_composition`), the Unicode
//! standard's annex 15.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use unicode_normalization::char as unicode;

/// `U8_TEXTPREP_TOUPPER`: upper case.
pub(crate) const TO_UPPER: u64 = 0x02;
/// `U8_CANON_DECOMP`: canonical decomposition.
pub(crate) const CANONICAL: u64 = 0x10;
/// `U8_COMPAT_DECOMP`: compatibility decomposition.
pub(crate) const COMPATIBLE: u64 = 0x20;
/// `U8_CANON_COMP`: canonical composition, after a decomposition.
pub(crate) const COMPOSE: u64 = 0x40;

/// `U8_UPPER_LIMIT_IN_A_SEQ`: the most characters of a sequence before U+034F ends it.
const MAX_UNITS: usize = 31;

/// Whether `flags` (`zap_normflags`) are ones that OpenZFS writes.
pub(crate) fn is_known(flags: u64) -> bool {
    let form = flags & !TO_UPPER;
    let forms = [
        CANONICAL,
        COMPATIBLE,
        CANONICAL | COMPOSE,
        COMPATIBLE | COMPOSE,
    ];
    form == 0 || forms.contains(&form)
}

/// `name` in the form that `flags` say.
#[doc(alias = "u8_textprep_str")]
pub(crate) fn prepare(name: &[u8], flags: u64) -> Vec<u8> {
    if name.is_ascii() {
        // As what follows would: such names are most, and those of all snapshots come here.
        return match flags & TO_UPPER {
            0 => name.to_vec(),
            _ => name.to_ascii_uppercase(),
        };
    }
    let mut rest = name;
    let mut out = Vec::with_capacity(name.len());
    while let Some((first, after)) = rest.split_first() {
        let is_plain = first.is_ascii() && after.first().is_none_or(u8::is_ascii);
        if is_plain || flags & !TO_UPPER == 0 {
            let unit = Unit::first_of(rest).upper_if(flags);
            rest = &rest[Unit::first_of(rest).len()..];
            out.extend_from_slice(unit.bytes());
        } else {
            Sequence::collect(&mut rest, flags).finish(&mut rest, flags, &mut out);
        }
    }
    out
}

/// The bytes that a first byte says belong together: a character, or bytes that make none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unit {
    bytes: [u8; 4],
    len: u8,
    /// A first byte that may begin nothing, or bytes that end too early: nothing joins them.
    is_broken: bool,
}

impl Unit {
    fn of(c: char) -> Unit {
        let mut bytes = [0; 4];
        let len = c.encode_utf8(&mut bytes).len() as u8;
        Unit {
            bytes,
            len,
            is_broken: false,
        }
    }

    /// The unit at the beginning of `bytes`, of which there is at least one.
    fn first_of(bytes: &[u8]) -> Unit {
        let says = bytes_after(bytes[0]);
        let len = says.unwrap_or(1).min(bytes.len());
        let mut unit = Unit {
            bytes: [0; 4],
            len: len as u8,
            is_broken: says != Some(len),
        };
        unit.bytes[..len].copy_from_slice(&bytes[..len]);
        unit
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// The character, if it is one of Unicode 5.0.
    fn known(&self) -> Option<char> {
        let c = std::str::from_utf8(self.bytes()).ok()?.chars().next()?;
        is_of_unicode_5(c).then_some(c)
    }

    fn upper_if(self, flags: u64) -> Unit {
        if flags & TO_UPPER == 0 {
            return self;
        }
        self.known().and_then(to_upper).map_or(self, Unit::of)
    }

    /// The canonical combining class; 0 begins a sequence.
    fn class(&self) -> u8 {
        self.known().map_or(0, unicode::canonical_combining_class)
    }

    fn decomposed(self, flags: u64) -> Vec<Unit> {
        let Some(c) = self.known() else {
            return vec![self];
        };
        let mut units = Vec::new();
        let take = |c| units.push(Unit::of(c));
        if flags & CANONICAL != 0 {
            unicode::decompose_canonical(c, take);
        } else {
            unicode::decompose_compatible(c, take);
        }
        units
    }
}

/// How many bytes a unit with this first byte has (`u8_number_of_bytes`).
fn bytes_after(first: u8) -> Option<usize> {
    match first {
        0..0x80 => Some(1),
        0xc2..0xe0 => Some(2),
        0xe0..0xf0 => Some(3),
        0xf0..=0xf4 => Some(4),
        _ => None,
    }
}

/// What a sequence may go on with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// A character that marks follow.
    Base,
    Mark,
    /// Korean letters: a consonant, one with a vowel, and what nothing can be added to.
    Lead,
    LeadVowel,
    OtherJamo,
}

impl State {
    fn after(decomposed: &[Unit], class: u8) -> State {
        let jamo = |unit: &Unit| unit.known().map_or(Jamo::None, Jamo::of);
        let kinds: Vec<Jamo> = decomposed.iter().map(jamo).collect();
        match kinds[..] {
            [Jamo::Lead] => State::Lead,
            [Jamo::Lead, Jamo::Vowel] => State::LeadVowel,
            [Jamo::Vowel | Jamo::Tail] | [Jamo::Lead, Jamo::Vowel, Jamo::Tail] => State::OtherJamo,
            _ if class != 0 => State::Mark,
            _ => State::Base,
        }
    }
}

/// What a Korean letter is in a syllable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Jamo {
    Lead,
    Vowel,
    Tail,
    None,
}

const LEAD_FIRST: u32 = 0x1100;
const VOWEL_FIRST: u32 = 0x1161;
/// One before the first: a syllable without a tail has number 0.
const TAIL_NONE: u32 = 0x11a7;
const SYLLABLE_FIRST: u32 = 0xac00;
const SYLLABLES: std::ops::RangeInclusive<char> = '\u{ac00}'..='\u{d7a3}';

impl Jamo {
    fn of(c: char) -> Jamo {
        match u32::from(c) {
            LEAD_FIRST..=0x1112 => Jamo::Lead,
            VOWEL_FIRST..=0x1175 => Jamo::Vowel,
            0x11a8..=0x11c2 => Jamo::Tail,
            _ => Jamo::None,
        }
    }
}

/// A character and the marks after it, decomposed and in canonical order.
struct Sequence {
    units: Vec<(Unit, u8)>,
    is_broken: bool,
}

impl Sequence {
    /// Takes a sequence from `rest`.
    #[doc(alias = "collect_a_seq")]
    fn collect(rest: &mut &[u8], flags: u64) -> Sequence {
        let first = Unit::first_of(rest);
        *rest = &rest[first.len()..];
        if first.is_broken {
            return Sequence {
                units: vec![(first, 0)],
                is_broken: true,
            };
        }
        let decomposed = first.upper_if(flags).decomposed(flags);
        let mut units: Vec<_> = decomposed
            .iter()
            .map(|unit| (*unit, unit.class()))
            .collect();
        let class = units.last().map_or(0, |(_, class)| *class);
        let mut state = State::after(&decomposed, class);
        let alone = units.len();
        while let Some(unit) = rest.first().map(|_| Unit::first_of(rest)) {
            if unit.is_broken || unit.len() == 1 {
                break;
            }
            let jamo = unit.known().map_or(Jamo::None, Jamo::of);
            let added = match (state, jamo) {
                (State::Lead, Jamo::Vowel) => {
                    state = State::LeadVowel;
                    vec![(unit, 0)]
                }
                (State::LeadVowel, Jamo::Tail) => {
                    state = State::OtherJamo;
                    vec![(unit, 0)]
                }
                (State::Base | State::Mark, _) if unit.class() != 0 => {
                    state = State::Mark;
                    marks(unit, flags)
                }
                _ => break,
            };
            let room = MAX_UNITS - units.len().min(MAX_UNITS);
            if room == 0 || state == State::Mark && added.len() >= room {
                units.push((Unit::of('\u{34f}'), 0));
                break;
            }
            *rest = &rest[unit.len()..];
            units.extend(added);
        }
        if units.len() > alone {
            order(&mut units);
        }
        Sequence {
            units,
            is_broken: false,
        }
    }

    /// Appends the sequence to `out`; starters that compose with it are taken from `rest`, too.
    fn finish(self, rest: &mut &[u8], flags: u64, out: &mut Vec<u8>) {
        if flags & COMPOSE == 0 || self.is_broken {
            self.units
                .iter()
                .for_each(|(unit, _)| out.extend_from_slice(unit.bytes()));
            return;
        }
        let mut composed = self.composed();
        let (last, class) = self.units.last().expect("a sequence has a first unit");
        if *class == 0 {
            join_starters(&mut composed, last.len(), rest);
        }
        out.extend_from_slice(&composed);
    }

    #[doc(alias = "do_composition")]
    fn composed(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut at = 0;
        while at < self.units.len() {
            at = self.compose_at(at, &mut out) + 1;
        }
        out
    }

    /// Appends what the unit at `at` composes to; returns the last unit that was used.
    fn compose_at(&self, at: usize, out: &mut Vec<u8>) -> usize {
        let last = self.units.len() - 1;
        let (unit, class) = self.units[at];
        if at == last || class != 0 {
            out.extend_from_slice(unit.bytes());
            return at;
        }
        if let Some(used) = self.compose_jamo(at, out) {
            return used;
        }
        let Some(mut base) = unit.known().filter(|c| begins_pair(*c)) else {
            out.extend_from_slice(unit.bytes());
            return at;
        };
        let (from, mut i, mut is_composed) = (out.len(), at, false);
        let mut left = Vec::new();
        loop {
            i += 1;
            let (next, next_class) = self.units[i];
            if let Some(c) = next.known().and_then(|next| pair(base, next)) {
                out.truncate(from);
                out.extend_from_slice(Unit::of(c).bytes());
                (base, is_composed) = (c, true);
            } else if next_class == 0 {
                // What was collected on the way here is lost, as in the original.
                out.extend_from_slice(self.units[i - 1].0.bytes());
                return i - 1;
            } else {
                left.push(i);
            }
            if !is_composed {
                while i < last && self.is_blocked(i + 1) {
                    i += 1;
                    left.push(i);
                }
            }
            if i >= last || is_composed && !begins_pair(base) {
                break;
            }
        }
        if !is_composed {
            out.extend_from_slice(unit.bytes());
        }
        for i in left {
            out.extend_from_slice(self.units[i].0.bytes());
        }
        i
    }

    /// The same for Korean letters, if there are two that make a syllable.
    fn compose_jamo(&self, at: usize, out: &mut Vec<u8>) -> Option<usize> {
        let letter = |i: usize, kind| {
            let c = self.units.get(i)?.0.known()?;
            (Jamo::of(c) == kind).then_some(u32::from(c))
        };
        let (lead, vowel) = (letter(at, Jamo::Lead)?, letter(at + 1, Jamo::Vowel)?);
        let tail = letter(at + 2, Jamo::Tail);
        let number = ((lead - LEAD_FIRST) * 21 + vowel - VOWEL_FIRST) * 28;
        let number = number + tail.map_or(0, |tail| tail - TAIL_NONE);
        let syllable = char::from_u32(SYLLABLE_FIRST + number)?;
        out.extend_from_slice(Unit::of(syllable).bytes());
        Some(at + 1 + usize::from(tail.is_some()))
    }

    /// Whether a unit before this one, the first left out, keeps it from the first.
    #[doc(alias = "blocked")]
    fn is_blocked(&self, at: usize) -> bool {
        let own = self.units[at].1;
        let mut between = self.units[..at].iter().skip(1);
        between.any(|(_, class)| *class >= own || *class == 0)
    }
}

/// A mark, decomposed.
fn marks(unit: Unit, flags: u64) -> Vec<(Unit, u8)> {
    let mut marks: Vec<_> = unit
        .decomposed(flags)
        .into_iter()
        .map(|unit| (unit, unit.class()))
        .collect();
    if let Some((mark, _)) = marks.last_mut()
        && flags & TO_UPPER != 0
        && *mark == Unit::of('\u{345}')
    {
        // It keeps its class.
        *mark = Unit::of('\u{399}');
    }
    marks
}

/// Puts marks into canonical order.
fn order(units: &mut [(Unit, u8)]) {
    for i in 0..units.len() - 1 {
        for j in (i + 1..units.len()).rev() {
            if units[j].1 != 0 && units[j - 1].1 > units[j].1 {
                units.swap(j - 1, j);
            }
        }
    }
}

/// Composes what `out` ends with, a starter of `last_bytes`, with starters at the beginning of `rest`.
fn join_starters(out: &mut Vec<u8>, last_bytes: usize, rest: &mut &[u8]) {
    let from = out.len().saturating_sub(last_bytes);
    while !rest.is_empty() {
        let next = Unit::first_of(rest);
        if next.len() == 1 || next.is_broken {
            break;
        }
        let base = std::str::from_utf8(&out[from..]).ok();
        let base = base.and_then(|text| {
            let mut chars = text.chars();
            chars.next().filter(|_| chars.next().is_none())
        });
        let (Some(base), Some(c)) = (base, next.known()) else {
            break;
        };
        let Some(c) = pair(base, c) else {
            break;
        };
        out.truncate(from);
        out.extend_from_slice(Unit::of(c).bytes());
        *rest = &rest[next.len()..];
    }
}

/// The simple upper case of a character, where it has one.
fn to_upper(c: char) -> Option<char> {
    // Those with an iota below have more than one character by the full mapping.
    let with_iota = match u32::from(c) {
        n @ (0x1f80..=0x1f87 | 0x1f90..=0x1f97 | 0x1fa0..=0x1fa7) => Some(n + 8),
        n @ (0x1fb3 | 0x1fc3 | 0x1ff3) => Some(n + 9),
        _ => None,
    };
    if let Some(upper) = with_iota {
        return char::from_u32(upper);
    }
    let mut full = c.to_uppercase();
    let first = full.next()?;
    (full.next().is_none() && first != c && is_of_unicode_5(first)).then_some(first)
}

/// Whether a character was assigned by Unicode 5.0.
fn is_of_unicode_5(c: char) -> bool {
    static RANGES: LazyLock<Vec<(char, char)>> = LazyLock::new(|| {
        let class = regex_syntax::parse(r"\p{age=5.0}").expect("a property of Unicode");
        let regex_syntax::hir::HirKind::Class(regex_syntax::hir::Class::Unicode(class)) =
            class.into_kind()
        else {
            unreachable!("a property of characters is a class of characters");
        };
        class
            .iter()
            .map(|range| (range.start(), range.end()))
            .collect()
    });
    if c.is_ascii() {
        return true;
    }
    let at = RANGES.partition_point(|(start, _)| *start <= c);
    at > 0 && c <= RANGES[at - 1].1
}

/// The characters that compose, but for Korean letters.
fn pairs() -> &'static BTreeMap<(char, char), char> {
    static PAIRS: LazyLock<BTreeMap<(char, char), char>> = LazyLock::new(|| {
        let all =
            ('\u{a0}'..='\u{1ffff}').filter(|c| !SYLLABLES.contains(c) && is_of_unicode_5(*c));
        let halves = all.filter_map(|c| {
            let mut parts = Vec::new();
            unicode::decompose_canonical(c, |part| parts.push(part));
            let second = parts.pop()?;
            let first = parts
                .into_iter()
                .reduce(|a, b| unicode::compose(a, b).unwrap_or(a))?;
            (unicode::compose(first, second) == Some(c)).then_some(((first, second), c))
        });
        halves.collect()
    });
    &PAIRS
}

fn pair(first: char, second: char) -> Option<char> {
    pairs().get(&(first, second)).copied()
}

/// Whether some character composes with this one before it.
fn begins_pair(c: char) -> bool {
    pairs().range((c, '\0')..=(c, char::MAX)).next().is_some()
}

#[cfg(test)]
mod tests;
