//! What drives did in an interval, as rates: of `iostat` and `gstat`.
//!
//! # What it is
//! A drive counts what it has done since it was switched on ([`Activity`]). Two looks at it give an interval; one
//! alone, the time since then. A drive that was switched on in between begins anew.

use drive::Activity;
use geom::Provider;

use crate::failure::{Fail, Outcome};
use crate::world::entered;

/// A drive, and what it has done.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) name: String,
    activity: Activity,
}

/// Looks at the drives that are connected: at all, or at those named.
///
/// # Errors
/// Outside of a machine, and for a name that no drive of it has.
pub(crate) fn look(names: &[String]) -> Outcome<Vec<Look>> {
    let world = entered();
    if !world.is_machine() {
        let text = "shows the drives of a machine: choose one with -m or ASHIFT_MACHINE";
        return Err(Fail::Failed(text.to_owned()));
    }
    let looks = world.drives().into_iter().map(|drive| Look {
        name: drive.name().to_owned(),
        activity: drive.activity(),
    });
    let looks: Vec<Look> = looks.collect();
    if names.is_empty() {
        return Ok(looks);
    }
    let mut chosen = Vec::new();
    for name in names {
        let name = world.canonical(name);
        let found = looks.iter().find(|look| look.name == name);
        let missing = || Fail::Failed(format!("{name}: no such drive is connected"));
        chosen.push(found.cloned().ok_or_else(missing)?);
    }
    Ok(chosen)
}

/// Commands of one kind in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Commands {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    /// From their submission until they were done, summed up.
    pub(crate) ns: u64,
}

/// What a drive did in an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// How long it was.
    pub(crate) secs: f64,
    pub(crate) reads: Commands,
    pub(crate) writes: Commands,
    pub(crate) trims: Commands,
    pub(crate) flushes: Commands,
    /// Time in which there was a command that was not done.
    pub(crate) busy_ns: u64,
    /// Commands that were not done at its end.
    pub(crate) queue_length: u32,
    /// Reads, writes and trims since it was switched on.
    pub(crate) ever: u64,
}

impl Look {
    /// What the drive has done since one of these looks; since it was switched on if none of them is at it.
    pub(crate) fn since(&self, before: &[Look]) -> Rates {
        let now = &self.activity;
        let is_it = |look: &&Look| {
            look.name == self.name && look.activity.on_at_ns == self.activity.on_at_ns
        };
        let before = before.iter().find(is_it).map(|look| &look.activity);
        rates(before, now)
    }
}

fn rates(before: Option<&Activity>, now: &Activity) -> Rates {
    let (new, old) = (&now.statistics, before.map(|before| &before.statistics));
    let none = drive::timing::Statistics::default();
    let old = old.unwrap_or(&none);
    let began_ns = before.map_or(now.on_at_ns, |before| before.now_ns);
    let commands = |of: fn(&drive::timing::Statistics) -> [u64; 3]| {
        let ([count, bytes, ns], was) = (of(new), of(old));
        Commands {
            count: count.saturating_sub(was[0]),
            bytes: bytes.saturating_sub(was[1]),
            ns: ns.saturating_sub(was[2]),
        }
    };
    let was_busy_ns = before.map_or(0, |before| before.statistics.occupied_until(before.now_ns));
    Rates {
        secs: now.now_ns.saturating_sub(began_ns) as f64 / 1e9,
        reads: commands(|s| [s.reads, s.read_bytes, s.read_ns]),
        writes: commands(|s| [s.writes, s.write_bytes, s.write_ns]),
        trims: commands(|s| [s.trims, s.trim_bytes, s.trim_ns]),
        flushes: commands(|s| [s.flushes, 0, s.flush_ns]),
        busy_ns: new.occupied_until(now.now_ns).saturating_sub(was_busy_ns),
        queue_length: new.queue_length,
        ever: new.reads + new.writes + new.trims,
    }
}

impl Rates {
    /// So many in the interval, for each second of it.
    pub(crate) fn per_sec(&self, count: u64) -> f64 {
        match self.secs > 0.0 {
            true => count as f64 / self.secs,
            false => count as f64,
        }
    }

    /// KiB in each second of the interval.
    pub(crate) fn kib_per_sec(&self, commands: Commands) -> f64 {
        self.per_sec(commands.bytes) / 1024.0
    }

    /// All commands together.
    pub(crate) fn all(&self) -> Commands {
        let kinds = [self.reads, self.writes, self.trims, self.flushes];
        Commands {
            count: kinds.iter().map(|kind| kind.count).sum(),
            bytes: kinds.iter().map(|kind| kind.bytes).sum(),
            ns: kinds.iter().map(|kind| kind.ns).sum(),
        }
    }

    /// The part of the interval in which the drive had something to do, in percent.
    pub(crate) fn busy_percent(&self) -> f64 {
        self.per_sec(self.busy_ns) / 1e7
    }
}

impl Commands {
    /// How long each took on average, in ms; 0 if there was none.
    pub(crate) fn ms_each(self) -> f64 {
        self.each(self.ns) / 1e6
    }

    /// How many KiB each was on average.
    pub(crate) fn kib_each(self) -> f64 {
        self.each(self.bytes) / 1024.0
    }

    fn each(self, sum: u64) -> f64 {
        match self.count {
            0 => 0.0,
            count => sum as f64 / count as f64,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two seconds in which a drive did something of each kind.
    pub(crate) fn example() -> Rates {
        let commands = |count, bytes, ns| Commands { count, bytes, ns };
        Rates {
            secs: 2.0,
            reads: commands(300, 300 << 14, 1_260_000_000),
            writes: commands(41, 41 << 17, 500_200_000),
            trims: commands(2, 2 << 20, 3_000_000),
            flushes: commands(4, 0, 50_000_000),
            busy_ns: 1_234_000_000,
            queue_length: 3,
            ever: 1000,
        }
    }

    #[test]
    fn a_drive_that_was_switched_on_meanwhile_begins_anew() {
        let at = |on_at_ns, now_ns, reads| Look {
            name: "ada0".to_owned(),
            activity: Activity {
                on_at_ns,
                now_ns,
                statistics: drive::timing::Statistics {
                    reads,
                    read_bytes: reads * 512,
                    occupied_from_ns: now_ns - 500_000_000,
                    queue_length: 1,
                    ..Default::default()
                },
            },
        };
        let first = at(1_000_000_000, 3_000_000_000, 10);
        let since_on = first.since(&[]);
        assert_eq!((since_on.secs, since_on.reads.count), (2.0, 10));
        assert_eq!(since_on.busy_percent(), 25.0);
        let later = at(1_000_000_000, 4_000_000_000, 12).since(std::slice::from_ref(&first));
        assert_eq!(
            (later.secs, later.reads.count, later.reads.bytes),
            (1.0, 2, 1024)
        );
        let anew = at(5_000_000_000, 9_000_000_000, 2).since(&[first]);
        assert_eq!((anew.secs, anew.reads.count), (4.0, 2));
    }

    #[test]
    fn nothing_in_no_time_is_nothing() {
        let rates = Rates::default();
        assert_eq!(rates.busy_percent(), 0.0);
        assert_eq!(rates.kib_per_sec(rates.all()), 0.0);
        assert_eq!((rates.reads.ms_each(), rates.reads.kib_each()), (0.0, 0.0));
    }
}
