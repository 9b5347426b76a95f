//! Random operations on whole pools, checked against simple models; shared by the tests of the engine.

pub mod careless;
pub mod crumbs;
pub mod cuts;
pub mod files;
pub mod filesystems;
pub mod golden;
pub mod hostile;
mod keys;
pub mod memfs;
pub mod model;
pub mod pair;
pub mod pool;
pub mod storm;

// Being linked is all it has to be.
use allocator as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A reproducible generator.
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// From a seed.
    #[must_use]
    pub fn new(seed: u64) -> Dice {
        Dice(ChaCha8Rng::seed_from_u64(seed))
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound.max(1)
    }

    /// True with probability 1 in `n`.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of the items; `None` if there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len() as u64) as usize)
    }

    /// One repeated byte, which compresses; two times out of three the first half is random.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![self.below(256) as u8; length];
        if !self.once_in(3) {
            self.0.fill_bytes(&mut bytes[..length / 2]);
        }
        bytes
    }
}

/// The seed of a randomised test: `SEED`, or the given default. Printed, so that a failure can be reproduced.
#[must_use]
pub fn seed(default: u64) -> u64 {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(default);
    eprintln!("SEED={seed}");
    seed
}
