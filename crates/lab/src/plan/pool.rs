//! What is done with a pool to try a combination, and what is read from it.

use std::path::PathBuf;

use base::{Context, Error, Result};

use super::combination::{Combination, Names};
use super::figures::{Figures, Space, Timed, Tried};
use super::layout::Layout;
use super::run::Trial;
use crate::experiment::Count;
use crate::reading;
use crate::run::as_typed;
use crate::shell::{Answer, Shell};

/// Opens a pool, and looks at nothing but its root directory itself.
const OPENING: &str = "find tank:/ -maxdepth 0";

/// A pool of a combination, in its machine.
pub(super) struct Pool<'a> {
    pub(super) trial: &'a Trial<'a>,
    pub(super) combination: &'a Combination,
    pub(super) shell: &'a dyn Shell,
    pub(super) machine: PathBuf,
}

/// What commands take with an empty pool.
struct Nothing {
    write: Answer,
    opening: Answer,
    scrub: Answer,
    replace: Option<Answer>,
}

impl Pool<'_> {
    /// Makes it.
    pub(super) fn create(&self) -> Result<()> {
        let names = Names::of_machine(self.trial.request);
        self.run(&self.combination.create(self.trial.request, &names))
            .map(drop)
    }

    /// Makes it, and does everything with it that a plan tells of.
    pub(super) fn try_out(&self) -> Result<Tried> {
        let nothing = self.with_nothing()?;
        self.create()?;
        self.settle()?;
        let empty = self.space()?;
        self.rest()?;
        let files = self.trial.files.display().to_string();
        let copy = ["cp", "-a", &files, "tank:/"].map(str::to_owned);
        let copy = match self.run(&copy) {
            Err(error) if error.to_string().contains("No space left") => {
                return Ok(Tried::DoesNotFit);
            }
            answer => answer?,
        };
        let full = self.space()?;
        self.rest()?;
        let opening = self.typed(OPENING)?;
        self.rest()?;
        let walk = self.typed("find tank:/")?;
        let read = self.typed("sha256sum -rU tank:/")?;
        let scrub = self.typed("zpool scrub -w tank")?;
        let replace = self.replace()?;
        let partial_writes = self.shell.traces(&self.machine)?;
        // To open a pool with files in it takes longer than an empty one, and about as long with any number of them.
        let longer = opening.took_ns.saturating_sub(nothing.opening.took_ns);
        let reading = |answer: &Answer| self.scaled(answer, opening.took_ns);
        let upkeep = |answer: &Answer, empty: &Answer| self.scaled(answer, empty.took_ns + longer);
        Ok(Tried::Measured(Figures {
            space: self.used(empty.normal, full.normal),
            special: full
                .special
                .map(|full| self.used(empty.special.unwrap_or_default(), full)),
            copy: self.scaled(&copy, nothing.write.took_ns),
            walk: reading(&walk),
            read: reading(&read),
            scrub: upkeep(&scrub, &nothing.scrub),
            replace: (replace.zip(nothing.replace))
                .map(|(answer, nothing)| upkeep(&answer, &nothing)),
            partial_writes: reading::counted(Count::PartialWrites, &partial_writes) as u64,
        }))
    }

    /// Does everything with an empty pool, which is gone then.
    fn with_nothing(&self) -> Result<Nothing> {
        self.create()?;
        let write = self.settle()?;
        let opening = self.typed(OPENING)?;
        let scrub = self.typed("zpool scrub -w tank")?;
        let replace = self.replace()?;
        self.typed("zpool destroy tank")?;
        if replace.is_some() {
            // It was away, so its label still says that it is in use.
            self.typed("zpool labelclear -f ada0")?;
        }
        Ok(Nothing {
            write,
            opening,
            scrub,
            replace,
        })
    }

    /// A pool's own metadata grows during its first txgs; files are not to be charged for that. Returns what the last
    /// change took.
    fn settle(&self) -> Result<Answer> {
        self.typed("mkdir tank:/first")?;
        self.rest()?;
        let removed = self.typed("rmdir tank:/first")?;
        self.rest()?;
        Ok(removed)
    }

    /// Replaces a drive that is gone.
    fn replace(&self) -> Result<Option<Answer>> {
        if self.combination.layout == Layout::Stripe {
            return Ok(None);
        }
        self.typed("zpool offline tank ada0")?;
        self.rest()?;
        self.typed("zpool replace -w tank ada0 new0").map(Some)
    }

    /// Lets the drives write what is in their caches, and turns all off and on. What a drive keeps in its cache
    /// is as much of a sample as of the whole, and would help the next command there more than it would here.
    fn rest(&self) -> Result<()> {
        self.typed("sleep 60")?;
        self.typed("machine power-cut").map(drop)
    }

    fn typed(&self, line: &str) -> Result<Answer> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        self.run(&words)
    }

    /// Runs a command that has to succeed.
    fn run(&self, words: &[String]) -> Result<Answer> {
        let within = || format!("{}: {}", self.combination, as_typed(words));
        let answer = self.shell.run(&self.machine, words).within(within)?;
        if answer.code == 0 {
            return Ok(answer);
        }
        let complaints = match answer.complaints.trim() {
            "" => answer.output.trim(),
            complaints => complaints,
        };
        Err(Error::invalid(format!("{}: {complaints}", within())))
    }

    /// Time for all of the data. The nanoseconds that it takes with any number of files are not multiplied.
    fn scaled(&self, answer: &Answer, fixed_ns: u64) -> Timed {
        let [took, least] = [answer.took_ns, fixed_ns].map(|nanoseconds| nanoseconds as f64 / 1e9);
        let seconds = match took > least {
            true => least + (took - least) * self.trial.scale,
            false => took,
        };
        Timed {
            seconds,
            processor_percent: answer.processor_percent,
            drive_percent: answer.drive_percent,
        }
    }

    /// Space for all of the data. What an empty pool takes is not multiplied.
    fn used(&self, empty: ClassSpace, full: ClassSpace) -> Space {
        let added = full.allocated.saturating_sub(empty.allocated) as f64;
        let used = empty.allocated as f64 + added * self.trial.scale;
        let there = match self.trial.one_in {
            1 => full.size as f64,
            one_in => full.size as f64 * one_in as f64,
        };
        Space {
            used,
            full_percent: used / there * 100.0,
        }
    }

    fn space(&self) -> Result<PoolSpace> {
        let listed = self.typed("zpool list -Hpv tank")?.output;
        let request = self.trial.request;
        let copies = self.combination.layout.copies(request.drives.len());
        let space = PoolSpace::read(&listed, copies, request.special.len() as u64);
        space.ok_or_else(|| Error::invalid(format!("zpool list -Hpv: not understood: {listed}")))
    }
}

/// Bytes of the vdevs of one class, all drives together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ClassSpace {
    size: u64,
    allocated: u64,
}

/// Bytes of a pool by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PoolSpace {
    normal: ClassSpace,
    special: Option<ClassSpace>,
}

impl PoolSpace {
    /// Reads what `zpool list -Hpv` prints: the pool, its top-level vdevs with their children, then classes with
    /// theirs. `copies` and `special_copies`: drives that hold each byte.
    fn read(listed: &str, copies: u64, special_copies: u64) -> Option<PoolSpace> {
        let mut space = PoolSpace::default();
        for line in listed.lines().skip(1) {
            let mut words = line.split_whitespace();
            let name = words.next()?;
            if name == "special" {
                space.special = Some(ClassSpace::default());
                continue;
            }
            // Children of a top-level vdev have a size and nothing else.
            let (Ok(size), Ok(allocated)) =
                (words.next()?.parse::<u64>(), words.next()?.parse::<u64>())
            else {
                continue;
            };
            let (class, copies) = match &mut space.special {
                Some(special) => (special, special_copies),
                None => (&mut space.normal, copies),
            };
            class.size += size * copies;
            class.allocated += allocated * copies;
        }
        (space.normal.size > 0).then_some(space)
    }
}
