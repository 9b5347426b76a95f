//! Reproducible choices.

/// A generator (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Seeded by `SEED`, or by the clock; says which, for failures to be repeated.
    pub(crate) fn from_env() -> Random {
        let given = std::env::var("SEED")
            .ok()
            .and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(rt::random_u64);
        println!("SEED={seed}");
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
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
