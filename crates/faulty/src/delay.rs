//! A provider whose commands each take a random time, determined by a seed.

use std::sync::Arc;

use base::Result;
use geom::{Command, Provider, Shape};
use rt::Mutex;

/// Delays every command of another provider: a crude disk for simulated time, enough to make
/// threads overtake each other.
pub struct Delay {
    inner: Arc<dyn Provider>,
    /// The range of a command's delay, in nanoseconds, half open.
    range_ns: std::ops::Range<u64>,
    state: Mutex<u64>,
}

impl Delay {
    /// Delays the commands of `inner` by times in `range_ns`, chosen by `seed`.
    #[must_use]
    pub fn new(inner: Arc<dyn Provider>, range_ns: std::ops::Range<u64>, seed: u64) -> Self {
        assert!(!range_ns.is_empty(), "an empty range of delays");
        Delay {
            inner,
            range_ns,
            state: Mutex::new(seed | 1),
        }
    }

    fn wait(&self) {
        let random = {
            let mut state = self.state.lock();
            *state = state
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            *state >> 20
        };
        rt::sleep_ns(self.range_ns.start + random % (self.range_ns.end - self.range_ns.start));
    }
}

impl Provider for Delay {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn shape(&self) -> Shape {
        Shape {
            is_queued: false,
            ..self.inner.shape()
        }
    }
    fn execute(&self, offset: u64, command: Command<'_>) -> Result<()> {
        self.wait();
        self.inner.execute(offset, command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ram::Memory;

    #[test]
    fn sim_commands_take_their_time() {
        let run = |seed| {
            rt::simulate(seed, move || {
                let disk = Delay::new(Arc::new(Memory::new("md0", 1 << 20)), 1000..2000, seed);
                for n in 0..10 {
                    disk.write(n * 512, &[1; 512]).unwrap();
                }
                rt::now_ns()
            })
        };
        assert!((10_000..20_000).contains(&run(1)));
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}
