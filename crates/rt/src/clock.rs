//! The clock: monotonic nanoseconds, and the time of day.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::sim;

/// The time of day at which every simulation starts: 2026-01-01 00:00:00 UTC.
pub const SIMULATED_EPOCH_SECS: u64 = 1_767_225_600;

/// A time of day: seconds since 1970 and nanoseconds of the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "timestruc_t")]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00:00 UTC.
    pub secs: u64,
    /// Nanoseconds of the second, below 10⁹.
    pub nanos: u32,
}

fn started() -> Instant {
    static STARTED: OnceLock<Instant> = OnceLock::new();
    *STARTED.get_or_init(Instant::now)
}

/// Nanoseconds since an arbitrary moment; never goes back. A simulation starts at 0, or where
/// [`SimOptions::start_ns`](crate::SimOptions::start_ns) says.
#[must_use]
#[doc(alias = "gethrtime")]
pub fn now_ns() -> u64 {
    if sim::is_simulated() {
        sim::with_current(sim::Context::now_ns).unwrap_or_default()
    } else {
        real_ns()
    }
}

/// [`now_ns`] of this computer, in a simulation, too.
pub(crate) fn real_ns() -> u64 {
    saturating_ns(started().elapsed())
}

/// The time of day; in a simulation [`SIMULATED_EPOCH_SECS`] plus [`now_ns`] plus the steps of
/// [`step_wall_clock`].
#[must_use]
#[doc(alias = "gethrestime")]
pub fn wall_clock() -> Timestamp {
    match sim::current() {
        None => {
            // If the machine's clock is before 1970, this is 1970: times on disk are unsigned.
            let since = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            Timestamp {
                secs: since.as_secs(),
                nanos: since.subsec_nanos(),
            }
        }
        Some(context) => {
            let (now, stepped) = context.wall_clock();
            let since = Duration::from_nanos(now);
            Timestamp {
                secs: (SIMULATED_EPOCH_SECS + since.as_secs()).saturating_add_signed(stepped),
                nanos: since.subsec_nanos(),
            }
        }
    }
}

/// Sets a simulation's time of day forward (or, if negative, back) by `secs` seconds; [`now_ns`] is
/// not affected.
///
/// # Panics
/// Outside of a simulation: the machine's clock is not to be changed.
#[doc(alias = "settimeofday")]
pub fn step_wall_clock(secs: i64) {
    let context = sim::current().expect("only a simulated clock can be set");
    context.step_wall_clock(secs);
}

/// Waits for `ns` nanoseconds.
#[track_caller]
pub fn sleep_ns(ns: u64) {
    match sim::current() {
        None => std::thread::sleep(Duration::from_nanos(ns)),
        Some(context) => context.sleep_ns(ns),
    }
}

fn saturating_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
