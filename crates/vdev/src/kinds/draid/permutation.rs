//! The orders in which the children of a dRAID take their turns.
//!
//! # What it is
//! An order of the children is shuffled again and again, by random numbers that depend only on how many
//! children there are. Each of the 256 or 512 orders that this makes is used as often as there are children,
//! with all numbers in it one higher each time.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_draid.c` (`vdev_draid_generate_perms`, `vdev_draid_get_perm`),
//! `module/zfs/vdev_draid_rand.c`.

use super::seeds::{CHILDREN_MIN, SEEDS};

/// `VDEV_DRAID_SEED`: the first half of the state of the random numbers; the second is the seed.
const STATE: u64 = 0xd_7a1d_5eed;
/// From this many children on there are more orders.
const MANY_CHILDREN: usize = 32;

/// All orders of the children.
#[doc(alias = "draid_map_t")]
pub(crate) struct Permutations {
    children: usize,
    orders: Vec<u8>,
}

/// One order of the children.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<'a> {
    children: &'a [u8],
    /// What is added to each number.
    shift: usize,
}

impl Permutations {
    /// The orders of `children` children, of which there are 2 to 255.
    #[doc(alias = "vdev_draid_generate_perms")]
    pub(super) fn new(children: usize) -> Self {
        let (seed, _) = SEEDS[children - CHILDREN_MIN];
        let count = if children < MANY_CHILDREN { 256 } else { 512 };
        let mut random = Random([STATE, seed]);
        let mut order: Vec<u8> = (0..=254).take(children).collect();
        let mut orders = Vec::with_capacity(children * count);
        for _ in 0..count {
            for last in (1..children).rev() {
                let other = random.next() % (last as u64 + 1);
                order.swap(last, other as usize);
            }
            orders.extend_from_slice(&order);
        }
        Permutations { children, orders }
    }

    /// The order with this number; they repeat.
    #[doc(alias = "vdev_draid_get_perm")]
    pub(super) fn get(&self, number: u64) -> Order<'_> {
        let turn = (number % self.orders.len() as u64) as usize;
        let start = turn / self.children * self.children;
        Order {
            children: &self.orders[start..start + self.children],
            shift: turn % self.children,
        }
    }
}

impl Order<'_> {
    /// The child at a position.
    #[doc(alias = "vdev_draid_permute_id")]
    pub(super) fn child(self, position: usize) -> usize {
        (usize::from(self.children[position]) + self.shift) % self.children.len()
    }
}

/// Random numbers that are the same everywhere (xoroshiro128++).
#[doc(alias = "vdev_draid_rand")]
struct Random([u64; 2]);

impl Random {
    fn next(&mut self) -> u64 {
        let [a, b] = self.0;
        let mixed = a ^ b;
        self.0 = [
            a.rotate_left(49) ^ mixed ^ (mixed << 21),
            mixed.rotate_left(28),
        ];
        a.wrapping_add(b).rotate_left(17).wrapping_add(a)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_gives_permutations_of_the_known_checksum() {
        for (children, (_, expected)) in (CHILDREN_MIN..).zip(SEEDS) {
            let all = Permutations::new(children);
            for order in all.orders.chunks(children) {
                let mut sorted = order.to_vec();
                sorted.sort_unstable();
                let is_whole = sorted.iter().copied().eq((0..=254).take(children));
                assert!(is_whole, "{children} children: {order:?}");
            }
            assert_eq!(
                checksum::fletcher4(&all.orders)[0],
                expected,
                "{children} children"
            );
        }
    }
}
