//! Trying combinations: a machine for each.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use base::{Context, Error, ErrorKind, Result};

use super::combination::{Combination, DIMENSIONS, Names};
use super::figures::{Figures, Space, Timed, Tried};
use super::layout::Layout;
use super::request::{PlannedDrive, Request};
use crate::experiment::Count;
use crate::reading;
use crate::run::as_typed;
use crate::shell::{Answer, MachinePlan, Shell};

/// No emulated drive of a plan is smaller.
pub(super) const DRIVE_BYTES_MIN: u64 = 256 << 20;

/// What is tried, with which files.
pub struct Trial<'a> {
    /// What was asked.
    pub request: &'a Request,
    /// The folder that is copied into the pools.
    pub files: PathBuf,
    /// The machines are made below this folder.
    pub machines: PathBuf,
    /// One in how many of the files there are is in the folder.
    pub one_in: u64,
    /// What figures are multiplied by.
    pub scale: f64,
    /// How many machines there are at a time.
    pub jobs: usize,
}

impl Trial<'_> {
    /// Makes a pool for every value of every option, without files in it.
    ///
    /// # Errors
    /// What `zpool create` says of a value that it does not take.
    pub fn check(&self, shell: &dyn Shell) -> Result<()> {
        let mut seen = HashSet::new();
        for (place, combination) in self.request.combinations().iter().enumerate() {
            let values = DIMENSIONS.map(|name| (name, combination.value(name)));
            let new = values
                .into_iter()
                .filter(|value| seen.insert(value.clone()));
            if new.count() == 0 {
                continue;
            }
            let machine = self.machine(shell, place)?;
            let pool = Pool {
                trial: self,
                combination,
                shell,
                machine: &machine,
            };
            let created = pool.create();
            forget(&machine);
            created?;
        }
        Ok(())
    }

    /// Tries these combinations of the request; `done` gets each as it is known.
    ///
    /// # Errors
    /// The first failure that is not a lack of space, with the command and where its machine is kept; what `done`
    /// returns.
    pub fn run(
        &self,
        places: &[usize],
        shell: &dyn Shell,
        done: &(dyn Fn(usize, Tried) -> Result<()> + Sync),
    ) -> Result<()> {
        let combinations = self.request.combinations();
        let next = AtomicUsize::new(0);
        let failed = AtomicBool::new(false);
        let failure: Mutex<Option<Error>> = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.clamp(1, places.len().max(1)) {
                scope.spawn(|| {
                    while !failed.load(Ordering::Relaxed) {
                        let Some(&place) = places.get(next.fetch_add(1, Ordering::Relaxed)) else {
                            break;
                        };
                        let tried = self.one(place, &combinations[place], shell);
                        if let Err(error) = tried.and_then(|tried| done(place, tried)) {
                            failed.store(true, Ordering::Relaxed);
                            failure
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .get_or_insert(error);
                        }
                    }
                });
            }
        });
        let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
        failure.map_or(Ok(()), Err)
    }

    fn one(&self, place: usize, combination: &Combination, shell: &dyn Shell) -> Result<Tried> {
        let machine = self.machine(shell, place)?;
        let pool = Pool {
            trial: self,
            combination,
            shell,
            machine: &machine,
        };
        let tried = pool.try_out().map_err(|error| {
            let text = format!("{error}\nthe machine is kept in {}", machine.display());
            Error::new(ErrorKind::InvalidInput, text)
        })?;
        forget(&machine);
        Ok(tried)
    }

    /// An Nth of a drive.
    fn part(&self, drive: &PlannedDrive) -> String {
        let bytes = match self.one_in {
            1 => drive.bytes,
            one_in => (drive.bytes / one_in).max(DRIVE_BYTES_MIN).min(drive.bytes),
        };
        // Sizes are in the largest sectors there are.
        format!("{},size={}", drive.profile, bytes / 4096 * 4096)
    }

    /// A machine with all drives, and one to replace the first by.
    fn machine(&self, shell: &dyn Shell, place: usize) -> Result<PathBuf> {
        let request = self.request;
        let names = Names::of_machine(request);
        let part = |drive: &PlannedDrive| self.part(drive);
        let spare = ("new0".to_owned(), &request.drives[0]);
        let of = |names: Vec<String>, drives| names.into_iter().zip(drives);
        let all = of(names.drives, &request.drives)
            .chain(of(names.special, &request.special))
            .chain([spare]);
        let plan = MachinePlan {
            drives: all.map(|(name, drive)| (name, part(drive))).collect(),
            seed: request.seed,
            host: request.host.clone(),
            memory: request.memory.clone(),
        };
        let machine = self.machines.join(format!("{:04}", place + 1));
        forget(&machine);
        shell.create(&machine, &plan)?;
        Ok(machine)
    }
}

/// Removes a machine and what lies beside it. What cannot be removed is in a folder that is.
fn forget(machine: &Path) {
    let _ = fs::remove_dir_all(machine);
    for beside in ["seen.json", "last.json"] {
        let _ = fs::remove_file(machine.with_extension(beside));
    }
}

/// A pool of a combination, in its machine.
struct Pool<'a> {
    trial: &'a Trial<'a>,
    combination: &'a Combination,
    shell: &'a dyn Shell,
    machine: &'a Path,
}

impl Pool<'_> {
    fn create(&self) -> Result<()> {
        let names = Names::of_machine(self.trial.request);
        self.run(&self.combination.create(self.trial.request, &names))
            .map(drop)
    }

    fn try_out(&self) -> Result<Tried> {
        self.create()?;
        // A pool's own metadata grows during its first txgs; files are not to be charged for that.
        self.typed("mkdir tank:/first")?;
        self.rest()?;
        let nothing_to_write = self.typed("rmdir tank:/first")?;
        self.rest()?;
        let nothing = self.typed("find tank:/")?;
        let nothing_to_scrub = self.typed("zpool scrub -w tank")?;
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
        let walk = self.typed("find tank:/")?;
        let read = self.typed("sha256sum -rU tank:/")?;
        let scrub = self.typed("zpool scrub -w tank")?;
        let replace = self.replace()?;
        let partial_writes = self.shell.traces(self.machine)?;
        let times = |answer: &Answer| self.scaled(answer, &nothing);
        Ok(Tried::Measured(Figures {
            space: self.used(empty.normal, full.normal),
            special: full
                .special
                .map(|full| self.used(empty.special.unwrap_or_default(), full)),
            copy: self.scaled(&copy, &nothing_to_write),
            walk: times(&walk),
            read: times(&read),
            scrub: self.scaled(&scrub, &nothing_to_scrub),
            replace: replace.map(|answer| self.scaled(&answer, &nothing_to_scrub)),
            partial_writes: reading::counted(Count::PartialWrites, &partial_writes) as u64,
        }))
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
        let answer = self.shell.run(self.machine, words).within(within)?;
        if answer.code == 0 {
            return Ok(answer);
        }
        let complaints = match answer.complaints.trim() {
            "" => answer.output.trim(),
            complaints => complaints,
        };
        Err(Error::invalid(format!("{}: {complaints}", within())))
    }

    /// Time for all of the data. What a command takes with an empty pool is not multiplied.
    fn scaled(&self, answer: &Answer, empty: &Answer) -> Timed {
        let [took, least] = [answer, empty].map(|answer| answer.took_ns as f64 / 1e9);
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
