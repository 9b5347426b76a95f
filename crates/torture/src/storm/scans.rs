//! Scrubs and resilvers, begun, paused, stopped and waited for.

use super::bench::Bench;
use super::step::{Kind, Step};

pub(super) const KINDS: &[Kind] = &[
    // Begins a scrub, or resumes a paused one.
    Kind::new("scrub", 20, |bench, step| bench.scan(step, Command::Scrub)),
    // Both of these begin one first if none runs.
    Kind::new("pause-scrub", 12, |bench, step| {
        bench.scan(step, Command::Pause)
    }),
    Kind::new("stop-scrub", 6, |bench, step| {
        bench.scan(step, Command::Stop)
    }),
    // Waits until no scan runs.
    Kind::new("finish-scan", 8, |bench, step| {
        bench.scan(step, Command::Finish)
    }),
];

#[derive(Clone, Copy, PartialEq)]
enum Command {
    Scrub,
    Pause,
    Stop,
    Finish,
}

impl Bench {
    fn scan(&mut self, step: &Step, command: Command) -> bool {
        let spa = self.spa().clone();
        let running = spa.scan_running();
        let is_resilver = running == Some(scan::Kind::Resilver) || spa.is_rebuilding();
        if is_resilver && command != Command::Finish {
            return false;
        }
        let is_scrubbing = running.is_some() && !spa.is_scan_paused();
        let begin = || if is_scrubbing { Ok(()) } else { spa.scrub() };
        // The scan may end before it is paused or stopped.
        let done = match command {
            Command::Scrub if is_scrubbing => return false,
            Command::Scrub => spa.scrub(),
            Command::Pause => begin().and_then(|()| spa.pause_scrub().or_else(unless_it_ended)),
            Command::Stop => begin().and_then(|()| spa.stop_scrub().or_else(unless_it_ended)),
            Command::Finish if running.is_none() => return false,
            Command::Finish => {
                self.wait_scan();
                Ok(())
            }
        };
        done.unwrap_or_else(|e| panic!("{}: {}: {e}", self.name, step.act.word()));
        true
    }

    /// Waits until no scan is running, except a paused one.
    ///
    /// # Panics
    /// When it never ends.
    pub(super) fn wait_scan(&mut self) {
        let mut looks = 0;
        let waited = self.spa().wait_scan(&mut |_| {
            looks += 1;
            looks < 100_000
        });
        waited.unwrap_or_else(|e| panic!("{}: a scan: {e}", self.name));
        let scan = self.spa().scan();
        assert!(looks < 100_000, "a scan never ends: {scan:?}");
    }
}

fn unless_it_ended(error: base::Error) -> base::Result<()> {
    match error.kind() {
        base::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}
