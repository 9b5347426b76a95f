//! Carries out one step.

use super::bench::Bench;
use super::step::{Act, Step};
use crate::Dice;

const SECOND_NS: u64 = 1_000_000_000;
const DAY_SECS: i64 = 86_400;

impl Bench {
    /// Carries out a step; returns whether there was something to do.
    pub(super) fn act(&mut self, step: &Step) -> bool {
        let is_done = match step.act {
            Act::Files => self.files(step),
            Act::Create => self.create(step),
            Act::Snapshot
            | Act::Clone
            | Act::DestroySnapshots
            | Act::Hold
            | Act::Bookmark
            | Act::Rollback
            | Act::Rename
            | Act::Destroy
            | Act::Props => self
                .head(step.pick)
                .is_some_and(|head| self.change(&head, step)),
            Act::Promote => self
                .clone_head(step.pick)
                .is_some_and(|head| self.change(&head, step)),
            Act::Sync => {
                self.sync();
                true
            }
            Act::Idle | Act::Clock => pass_time(step),
            Act::Export => {
                self.export();
                self.open();
                true
            }
            Act::Scrub | Act::PauseScrub | Act::StopScrub | Act::FinishScan => self.scan(step.act),
            Act::Offline | Act::Lose | Act::Rot | Act::Unreadable | Act::Unwritable => {
                self.ail(step)
            }
            Act::Cure => self.cure(),
            Act::Suspend | Act::CutSuspended => self.suspend(step),
            Act::Refuse => self.refuse(step),
            Act::Fill => self.fill(step),
            Act::Cut => self.cut(step),
            Act::Check => {
                self.check();
                true
            }
        };
        self.take_stock();
        is_done
    }

    fn create(&mut self, step: &Step) -> bool {
        let count = self.world.heads.len();
        let mut dice = Dice::new(step.seed);
        self.administer("create", |world, session| world.create(session, &mut dice))
            && self.world.heads.len() > count
    }

    /// An operation on a file system as a whole.
    fn change(&mut self, name: &str, step: &Step) -> bool {
        let mut dice = Dice::new(step.seed);
        let head = &self.world.heads[name];
        let snapshots = head.snapshots.len();
        let heads = self.world.heads.len();
        if matches!(step.act, Act::Rollback | Act::Rename | Act::Destroy) {
            self.log(name);
        }
        let what = step.act.word();
        let is_done = self.administer(what, |world, session| match step.act {
            Act::Snapshot => world.snapshot(session, name),
            Act::Clone => world.clone_snapshot(session, name, &mut dice),
            Act::DestroySnapshots => world.destroy_snapshots(session, name, &mut dice),
            Act::Hold => world.hold(session, name, &mut dice),
            Act::Bookmark => world.bookmark(session, name, &mut dice),
            Act::Rollback => world.rollback(session, name),
            Act::Promote => world.promote(session, name),
            Act::Rename => world.rename(session, name),
            Act::Destroy => world.destroy(session, name),
            _ => world.set_props(session, name, &mut dice),
        });
        let left = self.world.heads.get(name);
        let has_fewer = left.is_none_or(|head| head.snapshots.len() < snapshots);
        is_done
            && match step.act {
                Act::Snapshot => left.is_some_and(|head| head.snapshots.len() > snapshots),
                Act::Clone => self.world.heads.len() > heads,
                Act::DestroySnapshots => has_fewer,
                Act::Hold | Act::Bookmark | Act::Rollback => snapshots > 0,
                Act::Destroy => left.is_none(),
                _ => true,
            }
    }

    fn scan(&mut self, act: Act) -> bool {
        let spa = self.spa().clone();
        let running = spa.scan_running();
        if running == Some(scan::Kind::Resilver) && act != Act::FinishScan {
            return false;
        }
        let is_scrubbing = running.is_some() && !spa.is_scan_paused();
        let begin = || if is_scrubbing { Ok(()) } else { spa.scrub() };
        // The scan may end before it is paused or stopped.
        let done = match act {
            Act::Scrub if is_scrubbing => return false,
            Act::Scrub => spa.scrub(),
            Act::PauseScrub => begin().and_then(|()| spa.pause_scrub().or_else(unless_it_ended)),
            Act::StopScrub => begin().and_then(|()| spa.stop_scrub().or_else(unless_it_ended)),
            _ if running.is_none() => return false,
            _ => {
                self.wait_scan();
                Ok(())
            }
        };
        done.unwrap_or_else(|e| panic!("{}: {}: {e}", self.name, act.word()));
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

fn pass_time(step: &Step) -> bool {
    if step.act == Act::Idle {
        rt::sleep_ns(step.amount * (SECOND_NS / 1000));
        return true;
    }
    let secs = step.amount as i64 * DAY_SECS;
    rt::step_wall_clock(if step.seed.is_multiple_of(2) {
        secs
    } else {
        -secs
    });
    true
}
