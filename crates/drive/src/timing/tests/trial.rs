//! A trial: commands in, all output, and the laws that hold for any commands.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::mutant::Mutant;
use super::super::{Access, Command, CommandKind, Event, Timing};
use crate::profile::{Profile, RmwPolicy};

/// A law was broken: which, and how.
pub(super) type Verdict = Result<(), String>;

macro_rules! hold {
    ($law:expr, $($text:tt)*) => {
        let holds: bool = $law;
        if !holds {
            return Err(format!($($text)*));
        }
    };
}
pub(super) use hold;

/// A command and when it was submitted; its tag is its index in the list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Submitted {
    pub(super) at: u64,
    pub(super) command: Command,
}

/// The outcome of a list of commands.
pub(super) struct Outcome {
    pub(super) profile: Arc<Profile>,
    pub(super) commands: Vec<Submitted>,
    pub(super) events: Vec<Event>,
    pub(super) accesses: Vec<Access>,
    pub(super) timing: Timing,
    done: Vec<Option<u64>>,
    destaged: Vec<Vec<usize>>,
}

/// A command without a tag.
pub(super) fn command(kind: CommandKind, lba: u64, sectors: u32) -> Command {
    Command {
        tag: 0,
        kind,
        lba,
        sectors,
        fua: false,
    }
}

/// A new drive with a planted mistake.
pub(super) fn drive(profile: &Arc<Profile>, seed: u64, mutant: Option<Mutant>) -> Timing {
    let mut timing = Timing::new(profile.clone(), seed);
    timing.plant(mutant);
    timing.record_accesses();
    timing
}

/// Submits each command at its delay after the previous one, then, when all are done, a flush, and waits until
/// nothing more happens.
pub(super) fn run(
    profile: &Arc<Profile>,
    seed: u64,
    mutant: Option<Mutant>,
    list: &[(u64, Command)],
) -> Outcome {
    let mut timing = drive(profile, seed, mutant);
    let (mut events, mut commands, mut now) = (Vec::new(), Vec::new(), 0);
    for (n, (gap, command)) in list.iter().enumerate() {
        now += gap;
        let mut command = *command;
        command.tag = n as u64;
        timing.submit(now, command);
        commands.push(Submitted { at: now, command });
    }
    wait(&mut timing, &mut events);
    now = now.max(events.last().map_or(0, Event::at));
    let mut flush = command(CommandKind::Flush, 0, 0);
    flush.tag = commands.len() as u64;
    timing.submit(now, flush);
    commands.push(Submitted {
        at: now,
        command: flush,
    });
    wait(&mut timing, &mut events);
    while let Some(at) = timing.next_event_at() {
        timing.advance(at, &mut events);
    }
    Outcome::new(profile, timing, commands, events)
}

/// Runs until every command is done; panics after a million steps.
fn wait(timing: &mut Timing, events: &mut Vec<Event>) {
    for _ in 0..1_000_000 {
        let Some(at) = timing.next_done_at() else {
            return;
        };
        timing.advance(at, events);
    }
    panic!("the drive never comes to rest");
}

impl Outcome {
    fn new(
        profile: &Arc<Profile>,
        mut timing: Timing,
        commands: Vec<Submitted>,
        events: Vec<Event>,
    ) -> Outcome {
        let mut done = vec![None; commands.len()];
        let mut destaged = vec![Vec::new(); commands.len()];
        for (n, event) in events.iter().enumerate() {
            match *event {
                Event::Done { tag, at } => {
                    assert!(done[tag as usize].is_none(), "{tag} is done twice");
                    done[tag as usize] = Some(at);
                }
                Event::Destaged { tag, .. } => destaged[tag as usize].push(n),
                Event::Rewriting { .. } => {}
            }
        }
        let mut accesses = timing.take_accesses();
        accesses.sort_by_key(|a| (a.from, a.until));
        Outcome {
            profile: profile.clone(),
            commands,
            events,
            accesses,
            timing,
            done,
            destaged,
        }
    }

    /// All laws.
    pub(super) fn check(&self) -> Verdict {
        self.events_are_in_order()?;
        self.the_head_obeys_the_disk()?;
        self.reads_have_passed_the_head()?;
        self.writes_reach_the_medium_once()?;
        self.overlapping_writes_keep_their_order()?;
        self.promises_are_kept()?;
        self.rewriting_is_preceded_by_reading()?;
        self.rewriting_is_told()?;
        self.the_cache_has_a_bottom()
    }

    fn per(&self) -> u64 {
        self.profile.sectors_per_physical()
    }

    /// Sectors as the medium numbers them.
    fn range(&self, tag: usize) -> (u64, u64) {
        let command = &self.commands[tag].command;
        let start = self.profile.medium_lba(command.lba);
        (start, start + u64::from(command.sectors))
    }

    fn tags(&self, kind: CommandKind) -> impl Iterator<Item = usize> + '_ {
        let is = move |n: &usize| {
            let command = &self.commands[*n].command;
            command.kind == kind && (kind == CommandKind::Flush || command.sectors > 0)
        };
        (0..self.commands.len()).filter(is)
    }

    fn writes_over(&self, start: u64, end: u64) -> impl Iterator<Item = usize> + '_ {
        self.tags(CommandKind::Write).filter(move |n| {
            let (from, to) = self.range(*n);
            from < end && start < to
        })
    }

    pub(super) fn done_at(&self, tag: usize) -> Result<u64, String> {
        self.done[tag].ok_or_else(|| format!("command {tag} is never done"))
    }

    fn events_are_in_order(&self) -> Verdict {
        for pair in self.events.windows(2) {
            hold!(pair[0].at() <= pair[1].at(), "{pair:?} are out of order");
        }
        for tag in 0..self.commands.len() {
            let (at, done) = (self.commands[tag].at, self.done_at(tag)?);
            hold!(done >= at, "command {tag} is done before it came");
        }
        Ok(())
    }

    /// Seeks take their time, sectors pass when they come round, and each takes its full time.
    fn the_head_obeys_the_disk(&self) -> Verdict {
        let Some(geometry) = self.timing.geometry() else {
            return Ok(());
        };
        let turn = geometry.turn_ns();
        let mut phase = None;
        let mut before: Option<&Access> = None;
        for access in &self.accesses {
            let place = geometry.locate(access.sector);
            let now = (place.angle + turn - access.from % turn) % turn;
            let phase = *phase.get_or_insert(now);
            hold!(now == phase, "{access:?} begins at the wrong angle");
            let ns = geometry.pass_ns(&place, access.sectors);
            hold!(access.until - access.from == ns, "{access:?} takes {ns} ns");
            if let Some(before) = before {
                let last = geometry.locate(before.sector + before.sectors - 1);
                let seek = geometry.seek_ns(last.track, place.track);
                let earliest = before.until + seek;
                hold!(access.from >= earliest, "{before:?}, {access:?}: {seek} ns");
            }
            before = Some(access);
        }
        Ok(())
    }

    /// When each physical sector had first passed the head.
    fn passed(&self) -> BTreeMap<u64, u64> {
        let mut passed = BTreeMap::new();
        let Some(geometry) = self.timing.geometry() else {
            return passed;
        };
        for access in &self.accesses {
            let place = geometry.locate(access.sector);
            for n in 0..access.sectors {
                let at = access.from + geometry.pass_ns(&place, n + 1);
                passed.entry(access.sector + n).or_insert(at);
            }
        }
        passed
    }

    /// A read is done when all of its sectors have passed the head, or were written before.
    fn reads_have_passed_the_head(&self) -> Verdict {
        if self.timing.geometry().is_none() {
            return Ok(());
        }
        let passed = self.passed();
        for tag in self.tags(CommandKind::Read) {
            let (start, end) = self.range(tag);
            let done = self.done_at(tag)?;
            for sector in start..end {
                let at = passed.get(&(sector / self.per()));
                let cached = || self.writes_over(sector, sector + 1).any(|w| w < tag);
                let there = at.is_some_and(|at| *at <= done) || cached();
                hold!(there, "read {tag} is done at {done}, {sector} at {at:?}");
            }
        }
        Ok(())
    }

    /// Each write is reported on the medium once.
    pub(super) fn writes_are_told_once(&self) -> Verdict {
        for tag in self.tags(CommandKind::Write) {
            let times = self.destaged[tag].len();
            hold!(times == 1, "write {tag} reaches the medium {times} times");
        }
        Ok(())
    }

    /// And by then it is.
    fn writes_reach_the_medium_once(&self) -> Verdict {
        self.writes_are_told_once()?;
        let Some(geometry) = self.timing.geometry() else {
            return Ok(());
        };
        let hidden = self.profile.cache.rmw_policy == RmwPolicy::Hidden;
        for tag in self.tags(CommandKind::Write) {
            let at = self.events[self.destaged[tag][0]].at();
            let (start, end) = self.range(tag);
            let came = self.commands[tag].at;
            let ends = if hidden {
                end / self.per()
            } else {
                end.div_ceil(self.per())
            };
            for sector in start / self.per()..ends {
                let written = self.accesses.iter().any(|a| {
                    let within = a.sector <= sector && sector < a.sector + a.sectors;
                    if !a.write || !within || a.until < came {
                        return false;
                    }
                    let place = geometry.locate(a.sector);
                    let until = a.from + geometry.pass_ns(&place, sector - a.sector + 1);
                    came <= until && until <= at
                });
                hold!(
                    written,
                    "write {tag}: {sector} is not on the medium at {at}"
                );
            }
        }
        Ok(())
    }

    fn overlapping_writes_keep_their_order(&self) -> Verdict {
        for tag in self.tags(CommandKind::Write) {
            let (start, end) = self.range(tag);
            for other in self.writes_over(start, end).filter(|o| *o < tag) {
                let (old, new) = (&self.destaged[other], &self.destaged[tag]);
                hold!(old < new, "write {tag} is on the medium before {other}");
            }
        }
        Ok(())
    }

    /// A write with FUA is done when it is on the medium; a flush, when all writes done before it was submitted are.
    fn promises_are_kept(&self) -> Verdict {
        let on_medium = |tag: usize| self.destaged[tag].first().map(|n| self.events[*n].at());
        let through = self.profile.cache.write_cache_kib == 0;
        for tag in self.tags(CommandKind::Write) {
            let done = self.done_at(tag)?;
            if self.commands[tag].command.fua || through {
                let kept = on_medium(tag).is_some_and(|at| at <= done);
                hold!(kept, "write {tag} with FUA is done at {done}");
            }
        }
        for flush in self.tags(CommandKind::Flush) {
            let (came, done) = (self.commands[flush].at, self.done_at(flush)?);
            for tag in self.tags(CommandKind::Write).filter(|t| *t < flush) {
                let kept = on_medium(tag).is_some_and(|at| at <= done);
                let before = self.done_at(tag)? <= came;
                hold!(kept || !before, "flush {flush} does not wait for {tag}");
            }
        }
        Ok(())
    }

    fn rewritings(&self) -> impl Iterator<Item = (u64, u64, u64, u64)> + '_ {
        self.events.iter().filter_map(|e| match *e {
            Event::Rewriting {
                physical_lba,
                sectors,
                from,
                until,
            } => Some((physical_lba, physical_lba + u64::from(sectors), from, until)),
            _ => None,
        })
    }

    /// What is rewritten has been under the head before; writes of whole sectors never cause reads.
    fn rewriting_is_preceded_by_reading(&self) -> Verdict {
        let passed = self.passed();
        for (first, end, from, _) in self.rewritings() {
            for sector in first..end {
                let read = passed.get(&sector).is_some_and(|at| *at <= from);
                hold!(read, "{sector} is rewritten at {from}, unread");
            }
        }
        let partial = self.tags(CommandKind::Write).any(|tag| {
            let (start, end) = self.range(tag);
            !start.is_multiple_of(self.per()) || !end.is_multiple_of(self.per())
        });
        let read = self.timing.statistics().partial_sectors;
        hold!(partial || read == 0, "aligned writes read {read} sectors");
        Ok(())
    }

    /// A write that alone covers part of a physical sector is reported as rewriting it.
    fn rewriting_is_told(&self) -> Verdict {
        if self.profile.cache.rmw_policy == RmwPolicy::Hidden || self.timing.geometry().is_none() {
            return Ok(());
        }
        let per = self.per();
        for tag in self.tags(CommandKind::Write) {
            let (start, end) = self.range(tag);
            for sector in [start / per, (end - 1) / per] {
                let whole = start <= sector * per && (sector + 1) * per <= end;
                let others = self.writes_over(sector * per, (sector + 1) * per).count();
                if whole || others > 1 {
                    continue;
                }
                let on = self.events[self.destaged[tag][0]].at();
                let told = self.rewritings().any(|(first, last, from, until)| {
                    let within = first <= sector && sector < last;
                    within && from >= self.commands[tag].at && until <= on
                });
                hold!(told, "write {tag} rewrites {sector} silently");
            }
        }
        Ok(())
    }

    /// Writes done, not on the medium, and far apart: at most as many as the cache has segments.
    fn the_cache_has_a_bottom(&self) -> Verdict {
        let far = |n: usize| {
            let (start, end) = self.range(n);
            let near = self.writes_over(start.saturating_sub(self.per()), end + self.per());
            near.count() == 1
        };
        let far: Vec<bool> = (0..self.commands.len())
            .map(|n| self.commands[n].command.kind == CommandKind::Write && far(n))
            .collect();
        let mut waiting = vec![false; self.commands.len()];
        let most = self.profile.cache.write_segments as usize;
        for event in &self.events {
            match *event {
                Event::Done { tag, .. } if far[tag as usize] => {
                    waiting[tag as usize] = !self.commands[tag as usize].command.fua;
                }
                Event::Destaged { tag, .. } => waiting[tag as usize] = false,
                _ => {}
            }
            let count = waiting.iter().filter(|w| **w).count();
            let flash = self.timing.geometry().is_none();
            hold!(count <= most || flash, "{count} writes in {most} segments");
        }
        Ok(())
    }
}
