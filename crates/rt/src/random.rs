//! Randomness: the operating system's in real time, the seed's in simulated time.

use crate::sim;

/// 64 random bits.
#[must_use]
pub fn random_u64() -> u64 {
    match sim::current() {
        None => {
            let mut bytes = [0; 8];
            fill_from_os(&mut bytes);
            u64::from_ne_bytes(bytes)
        }
        Some(context) => context.random_u64(),
    }
}

/// A random number in `[0, bound)`; `bound` is not 0.
#[must_use]
pub fn random_below(bound: u64) -> u64 {
    assert!(bound > 0, "a random number below 0 was asked for");
    scale(random_u64(), bound)
}

/// Fills `bytes` with randomness good enough for keys (in real time).
pub fn fill_random(bytes: &mut [u8]) {
    match sim::current() {
        None => fill_from_os(bytes),
        Some(context) => {
            for chunk in bytes.chunks_mut(8) {
                chunk.copy_from_slice(&context.random_u64().to_le_bytes()[..chunk.len()]);
            }
        }
    }
}

fn fill_from_os(mut bytes: &mut [u8]) {
    use rustix::rand::{GetRandomFlags, getrandom};
    while !bytes.is_empty() {
        match getrandom(&mut *bytes, GetRandomFlags::empty()) {
            Ok(filled) => bytes = &mut bytes[filled..],
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => panic!("the operating system has no randomness: {errno}"),
        }
    }
}

/// Maps 64 random bits to `[0, bound)` by multiplication.
fn scale(random: u64, bound: u64) -> u64 {
    let wide = u128::from(random) * u128::from(bound);
    u64::try_from(wide >> 64).expect("the high half of a 128-bit number has 64 bits")
}

/// The next number of the sequence that a seed begins (splitmix64), for callers that keep `state`
/// themselves, say on disk.
pub fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A small seeded generator ([`splitmix64`]): good for schedules and tests, not for keys.
#[derive(Clone, Debug)]
pub struct SeededRandom(u64);

impl SeededRandom {
    /// The sequence that `seed` begins.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        SeededRandom(seed)
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        splitmix64(&mut self.0)
    }

    /// A number in `[0, bound)`; `bound` is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing to choose from");
        scale(self.next_u64(), bound)
    }

    /// An index into something of `len` elements; `len` is not 0.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below a usize")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_randomness_fills_every_length() {
        for len in [0, 1, 7, 8, 9, 300] {
            let mut bytes = vec![0; len];
            fill_random(&mut bytes);
        }
        assert_ne!(random_u64(), random_u64());
        assert!(random_below(1) == 0);
    }

    #[test]
    fn seeded_indexes_cover_their_range() {
        let mut random = SeededRandom::new(7);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[random.index(5)] += 1;
        }
        assert!(seen.iter().all(|n| *n > 100), "{seen:?}");
    }
}
