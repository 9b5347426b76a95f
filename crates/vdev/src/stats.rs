//! What went wrong with a vdev: counters that may be read at any time. What it did: `io_counts.rs`.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of one vdev.
        #[derive(Debug, Default)]
        #[doc(alias = "vdev_stat_t")]
        pub struct VdevStats {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        /// The values of [`VdevStats`] at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct StatsSnapshot {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl VdevStats {
            /// The values now.
            #[must_use]
            pub fn snapshot(&self) -> StatsSnapshot {
                StatsSnapshot { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl std::ops::AddAssign for StatsSnapshot {
            fn add_assign(&mut self, other: StatsSnapshot) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// vs_read_errors: reads that failed.
    read_errors,
    /// vs_write_errors: writes that failed.
    write_errors,
    /// vs_checksum_errors: reads whose bytes were wrong.
    checksum_errors,
    /// vs_slow_ios: commands that the device took too long for.
    slow_ios,
    /// vs_self_healed: bytes rewritten after an error.
    self_healed_bytes,
}

impl VdevStats {
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    /// Sets the counters of errors and of slow commands to zero.
    #[doc(alias = "vdev_clear")]
    pub fn clear_errors(&self) {
        let errors = [&self.read_errors, &self.write_errors, &self.checksum_errors];
        for counter in errors.into_iter().chain([&self.slow_ios]) {
            counter.store(0, Ordering::Relaxed);
        }
    }
}
