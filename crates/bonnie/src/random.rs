//! The random numbers of the original: glibc's `rand`, or those of a file.

use base::{Error, Result};

/// How many earlier numbers the next one depends on.
const DEGREE: usize = 31;
/// The distance of the second summand.
const SEPARATION: usize = 3;
/// Numbers thrown away at first.
const WARM_UP: usize = 10 * DEGREE;

/// A source of numbers from 0 to 2³¹ - 1.
#[derive(Clone, Debug)]
pub struct Random {
    seed: String,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    /// An additive generator with feedback, as srand(3) sets it up.
    Seeded {
        seed: u32,
        last: [u32; DEGREE],
        at: usize,
    },
    /// Numbers that are taken in turn, and again from the first.
    Given { numbers: Vec<u32>, at: usize },
}

impl Random {
    /// The generator of a seed.
    #[must_use]
    pub fn seeded(seed: u32) -> Random {
        let source = Source::seeded(seed);
        let seed = seed.to_string();
        Random { seed, source }
    }

    /// Numbers of a file: four bytes each, the most significant first.
    ///
    /// # Errors
    /// `InvalidInput` if there is none.
    pub fn given(name: &str, bytes: &[u8]) -> Result<Random> {
        let number = |four: &[u8; 4]| i32::from_be_bytes(*four).unsigned_abs() & 0x7fff_ffff;
        let numbers: Vec<u32> = bytes.as_chunks().0.iter().map(number).collect();
        if numbers.is_empty() {
            return Err(Error::invalid("no random data"));
        }
        let source = Source::Given { numbers, at: 0 };
        let seed = name.to_owned();
        Ok(Random { seed, source })
    }

    /// What the report calls it: the seed, or the name of the file.
    #[must_use]
    pub fn seed(&self) -> &str {
        &self.seed
    }

    /// Begins again.
    pub(crate) fn reset(&mut self) {
        match &mut self.source {
            Source::Seeded { seed, .. } => self.source = Source::seeded(*seed),
            Source::Given { at, .. } => *at = 0,
        }
    }

    pub(crate) fn next(&mut self) -> u32 {
        match &mut self.source {
            Source::Seeded { last, at, .. } => step(last, at),
            Source::Given { numbers, at } => {
                let number = numbers[*at];
                *at = (*at + 1) % numbers.len();
                number
            }
        }
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.next() % bound
    }
}

impl Source {
    fn seeded(seed: u32) -> Source {
        // The multiplier and modulus of the minimal standard generator fill the table.
        let mut word = i64::from(seed.max(1).cast_signed());
        let last = std::array::from_fn(|n| {
            if n > 0 {
                word = (word * 16_807) % 0x7fff_ffff;
                if word < 0 {
                    word += 0x7fff_ffff;
                }
            }
            word as u32
        });
        let (mut last, mut at): ([u32; DEGREE], usize) = (last, SEPARATION);
        for _ in 0..WARM_UP {
            step(&mut last, &mut at);
        }
        Source::Seeded { seed, last, at }
    }
}

fn step(last: &mut [u32; DEGREE], at: &mut usize) -> u32 {
    let sum = last[*at].wrapping_add(last[(*at + DEGREE - SEPARATION) % DEGREE]);
    last[*at] = sum;
    *at = (*at + 1) % DEGREE;
    sum >> 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_glibc() {
        // What a program in C prints after srand(SEED).
        let cases = [
            (1, [1_804_289_383, 846_930_886, 1_681_692_777]),
            (0, [1_804_289_383, 846_930_886, 1_681_692_777]),
            (42, [71_876_166, 708_592_740, 1_483_128_881]),
            (4_000_000_000, [1_111_130_805, 1_380_198_982, 1_306_113_867]),
            (2_147_483_647, [1_065_668_062, 2_142_264_300, 1_066_566_375]),
        ];
        for (seed, expected) in cases {
            let mut random = Random::seeded(seed);
            assert_eq!([(); 3].map(|()| random.next()), expected, "{seed}");
            random.reset();
            assert_eq!(random.next(), expected[0], "{seed}");
        }
    }

    #[test]
    fn numbers_of_a_file_come_again() {
        let mut random = Random::given("f", &[0, 0, 1, 2, 255, 255, 255, 254, 9]).unwrap();
        assert_eq!([(); 3].map(|()| random.next()), [258, 2, 258]);
        assert!(Random::given("f", &[1, 2, 3]).is_err());
    }
}
