//! Trying combinations: a machine for each.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use base::{Error, ErrorKind, Result};

use super::combination::{Combination, DIMENSIONS, Names};
use super::figures::Tried;
use super::pool::Pool;
use super::request::{PlannedDrive, Request};
use crate::shell::{MachinePlan, Shell};

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
    /// Machines stay where they were made.
    pub keep: bool,
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
            let pool = self.pool(place, combination, shell)?;
            let created = pool.create();
            forget(&pool.machine);
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
        let pool = self.pool(place, combination, shell)?;
        let tried = pool.try_out().map_err(|error| {
            let text = format!("{error}\nthe machine is kept in {}", pool.machine.display());
            Error::new(ErrorKind::InvalidInput, text)
        })?;
        if !self.keep {
            forget(&pool.machine);
        }
        Ok(tried)
    }

    /// A pool to be made, and a new machine for it.
    fn pool<'a>(
        &'a self,
        place: usize,
        combination: &'a Combination,
        shell: &'a dyn Shell,
    ) -> Result<Pool<'a>> {
        Ok(Pool {
            trial: self,
            combination,
            shell,
            machine: self.machine(shell, place)?,
        })
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
