//! Reproducible choices.

/// A generator.
pub(crate) struct Random(rt::SeededRandom);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(rt::SeededRandom::new(seed))
    }

    /// Seeded by `SEED`, or by the clock; prints the seed, so that failures can be repeated.
    pub(crate) fn from_env() -> Random {
        let given = std::env::var("SEED")
            .ok()
            .and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(rt::random_u64);
        println!("SEED={seed}");
        Random::new(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// Bytes that compress well or not at all.
    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let constant = self.one_in(2);
        let byte = self.next() as u8;
        (0..len)
            .map(|_| if constant { byte } else { self.next() as u8 })
            .collect()
    }
}

/// How many operations a random test does: `OPS`, or `default`.
pub(crate) fn ops(default: usize) -> usize {
    let given = std::env::var("OPS").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(default)
}
