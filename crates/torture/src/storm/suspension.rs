//! All devices of a pool die at once: it is suspended.

use base::ErrorKind;
use phys::PropValue;
use zpl::Create;

use super::bench::Bench;
use super::files::{TOLERATED, TOLERATED_WHEN_GIVEN_UP};
use super::step::{Kind, Step};
use crate::Dice;

const SECOND_NS: u64 = 1_000_000_000;
/// A device that is about to die executes fewer than this many more writes and flushes.
const COMMANDS_LEFT_MAX: u64 = 40;
/// The same for a pool in which only one txg is written.
const COMMANDS_LEFT_IDLE_MAX: u64 = 12;
/// Values of the property `failmode`.
const WAIT: u64 = 0;
const CONTINUE: u64 = 1;

pub(super) const KINDS: &[Kind] = &[
    // All devices die while files are written: the pool suspends, and `zpool clear` resumes it.
    Kind::new("suspend", 14, |bench, step| bench.suspend(step, false)),
    // The power fails while the pool is suspended.
    Kind::new("cut-suspended", 12, |bench, step| bench.suspend(step, true)),
    // The pool suspends with `failmode=continue`: writes are refused.
    Kind::new("refuse", 10, Bench::refuse),
];

impl Bench {
    /// The devices die while files are written. Then either they come back and `zpool clear` resumes the pool,
    /// or the power fails.
    fn suspend(&mut self, step: &Step, is_cut: bool) -> bool {
        let Some(head) = self.head(step.pick).filter(|_| self.ailing.is_none()) else {
            return false;
        };
        let mut dice = Dice::new(step.seed);
        let tolerated = match is_cut {
            true => TOLERATED_WHEN_GIVEN_UP,
            false => TOLERATED,
        };
        let work = self.work(&head, step.seed, tolerated);
        let spa = self.spa().clone();
        self.kill(dice.below(COMMANDS_LEFT_MAX));
        let amount = step.amount;
        let thread = rt::spawn("work", move || {
            let done = work.run(amount);
            // Whether it succeeds depends on whether the pool is resumed.
            let _ = spa.sync();
            done
        });
        let was_suspended = self.is_suspended_by(&thread);
        if was_suspended {
            rt::sleep_ns(dice.below(1000) * SECOND_NS);
            assert!(!thread.is_finished(), "{}: it went on", self.name);
        }
        if was_suspended && is_cut {
            self.spa().parts().groups().abandon();
            let done = thread.join();
            self.take(&head, done);
            return self.cut(step);
        }
        self.resume();
        let done = thread.join();
        self.take(&head, done);
        self.catch_up();
        was_suspended && !is_cut
    }

    /// The same with `failmode=continue`: nothing waits, nothing is changed.
    fn refuse(&mut self, step: &Step) -> bool {
        let Some(head) = self.head(step.pick).filter(|_| self.ailing.is_none()) else {
            return false;
        };
        self.set_failmode(CONTINUE);
        self.kill(Dice::new(step.seed).below(COMMANDS_LEFT_IDLE_MAX));
        let spa = self.spa().clone();
        let sync = rt::spawn("sync", move || spa.force_sync());
        let was_suspended = match sync.join() {
            Ok(()) => false,
            Err(e) if e.kind() == ErrorKind::Suspended => true,
            Err(e) => panic!("{}: {e}", self.name),
        };
        if was_suspended {
            self.assert_refuses(&head);
        }
        self.resume();
        self.sync();
        self.set_failmode(WAIT);
        self.catch_up();
        was_suspended
    }

    fn set_failmode(&mut self, number: u64) {
        let set = self.spa().set_prop("failmode", PropValue::Number(number));
        match set {
            Err(e) if e.kind() != ErrorKind::NoSpace => panic!("{}: failmode: {e}", self.name),
            _ => {}
        }
    }

    fn assert_refuses(&mut self, head: &str) {
        // Only if it is mounted already: mounting it now would replay its log.
        let fs = self.session().mounted(head).cloned();
        let Some(fs) = fs else { return };
        let made = fs.create_file(fs.root(), b"refused", &Create::default());
        let kind = made.map_err(|e| e.kind());
        assert!(
            matches!(kind, Err(ErrorKind::Suspended)),
            "{head}: {kind:?}"
        );
    }

    /// Each device dies after this many more writes and flushes.
    fn kill(&mut self, left: u64) {
        for disk in self.disks.all() {
            disk.fault.kill_after(left);
        }
    }

    fn resume(&mut self) {
        self.disks.all().iter().for_each(|disk| disk.fault.revive());
        let resumed = self.spa().resume();
        resumed.unwrap_or_else(|e| panic!("{}: clear: {e}", self.name));
    }

    /// Waits until the pool is suspended or `thread` ends; returns whether the pool is suspended.
    fn is_suspended_by<T>(&self, thread: &rt::JoinHandle<T>) -> bool {
        while !thread.is_finished() {
            if self.spa().suspended().is_some() {
                return true;
            }
            rt::sleep_ns(SECOND_NS / 100);
        }
        false
    }
}
