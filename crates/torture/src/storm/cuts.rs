//! Power cuts: what is left must be a permitted state, and the pool continues from there.

use std::collections::BTreeMap;

use super::bench::Bench;
use super::past::Past;
use super::step::{Kind, Step};
use super::{between, past};
use crate::Dice;
use crate::filesystems::Filesystems;
use crate::memfs::MemFs;

/// One time in three, a cut is among this many of the last commands.
const LATELY: u64 = 60;

pub(super) const KINDS: &[Kind] = &[Kind::new("cut", 36, Bench::cut)];

/// What was found.
struct Found {
    /// The file systems, with the names of their snapshots.
    heads: BTreeMap<String, (Vec<String>, MemFs)>,
    has_checkpoint: bool,
}

impl Bench {
    /// The power fails after some command since the beginning of the past; the pool is imported, and its intent
    /// logs are replayed.
    ///
    /// # Panics
    /// When the pool is not in a permitted state.
    pub(super) fn cut(&mut self, step: &Step) -> bool {
        let mut dice = Dice::new(step.seed);
        let (base, now) = (self.past.base(), self.disks.commands());
        let n = match dice.below(3) {
            0 => now,
            1 => now - dice.below(LATELY.min(now - base + 1)),
            _ => base + dice.below(now - base + 1),
        };
        self.abandon();
        self.disks.cut(n, step.seed);
        self.open();
        let found = self.look();
        let state = match self.past.find(&found, n) {
            Ok(state) => state,
            Err(complaint) => panic!("{}: cut after command {n}: {complaint}", self.name),
        };
        self.go_on_from(state, found);
        if self.ailing.is_none() {
            self.catch_up();
        }
        true
    }

    fn look(&mut self) -> Found {
        let name = self.name.clone();
        let session = self.session();
        let dsl = session.spa.parts().dsl().clone();
        let names = dsl.descendants(&name);
        let mut names = names.unwrap_or_else(|e| panic!("{name}: {e}"));
        names.retain(|head| *head != name);
        let mut heads = BTreeMap::new();
        for head in names {
            let snapshots = dsl.dataset(&head).and_then(|ds| dsl.snapshots(&ds));
            let snapshots = snapshots.unwrap_or_else(|e| panic!("{head}: {e}"));
            let files = MemFs::read(session.mount(&head));
            let files = files.unwrap_or_else(|e| panic!("{head}: {e}"));
            let snapshots = snapshots.into_iter().map(|(snap, _)| snap).collect();
            heads.insert(head, (snapshots, files));
        }
        // One that is being discarded does not count.
        let checkpoint = session.spa.checkpoint();
        let checkpoint = checkpoint.unwrap_or_else(|e| panic!("{name}: checkpoint: {e}"));
        let has_checkpoint = checkpoint.is_some_and(|it| it.start_secs.is_some());
        Found {
            heads,
            has_checkpoint,
        }
    }

    /// Makes what was found the state of the model from now on.
    fn go_on_from(&mut self, state: usize, found: Found) {
        self.world.return_to(self.past.model(state));
        self.world.forget_holds();
        for (name, (_, files)) in found.heads {
            self.head_mut(&name).fs = files;
        }
        let (world, session) = self.both();
        world.compare(session);
        self.forget();
        self.assert_clean();
    }
}

impl Past {
    /// The first state that explains what a cut after the n-th command left.
    fn find(&self, found: &Found, n: u64) -> Result<usize, String> {
        let candidates = self.candidates(n);
        let mut complaints = Vec::new();
        let state = candidates.clone().find(|state| {
            let explained = self.explains(*state, *candidates.end(), found, n);
            explained.map_err(|e| complaints.push(e)).is_ok()
        });
        let Some(state) = state else {
            complaints.dedup();
            complaints.truncate(5);
            return Err(format!(
                "none of the states {candidates:?} is there: {complaints:#?}"
            ));
        };
        for logged in self.fsyncs(n) {
            self.check_fsync(logged, *candidates.end(), found)?;
        }
        Ok(state)
    }

    fn explains(&self, state: usize, last: usize, found: &Found, n: u64) -> Result<(), String> {
        let model = self.model(state);
        check_names(model, found)?;
        for (name, (_, files)) in &found.heads {
            // The operation after this state may be on disk in part.
            let logged = self.logged_until(name, n).map_or(0, |until| until + 1);
            let until = last.min(logged.max(state + 1));
            let from = self.durable_from(name, n).unwrap_or(0).max(state);
            let window = self.window(name, from..=until.max(from));
            let limits = self.window(name, state..=last.min(state + 1));
            between::check(files, &window)
                .and_then(|()| between::check_limits(files, &limits))
                .map_err(|e| format!("{name}: {e}"))?;
        }
        Ok(())
    }

    /// What the model of a file system held in some states.
    fn window(&self, head: &str, states: std::ops::RangeInclusive<usize>) -> Vec<&MemFs> {
        let heads = states.filter_map(|state| self.model(state).heads.get(head));
        heads.map(|head| &head.fs).collect()
    }

    fn check_fsync(&self, logged: &past::Logged, last: usize, found: &Found) -> Result<(), String> {
        let (head, since) = (&logged.head, logged.state);
        let window = self.window(head, since..=last);
        // The file system may have been destroyed or renamed since.
        let (Some((_, files)), Some(id)) = (found.heads.get(head), logged.file) else {
            return Ok(());
        };
        if window.len() <= last - since {
            return Ok(());
        }
        between::check_one(files, &window, id)
            .map_err(|e| format!("{head}: file {id} was fsync'd at state {since}: {e}"))
    }
}

fn check_names(model: &Filesystems, found: &Found) -> Result<(), String> {
    let expected = model.heads.iter().map(|(name, head)| {
        let snapshots = head.snapshots.iter().map(|(snap, _)| snap.clone());
        (name.clone(), snapshots.collect::<Vec<_>>())
    });
    let expected: BTreeMap<_, _> = expected.collect();
    if model.kept.is_some() != found.has_checkpoint {
        return Err(format!("has a checkpoint: {}", found.has_checkpoint));
    }
    let there = found
        .heads
        .iter()
        .map(|(name, (snaps, _))| (name.clone(), snaps.clone()));
    let there: BTreeMap<_, _> = there.collect();
    if expected == there {
        Ok(())
    } else {
        Err(format!("there are {there:?}, not {expected:?}"))
    }
}
