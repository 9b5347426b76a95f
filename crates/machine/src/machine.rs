//! A machine: the folder of a computer of emulated drives.
//!
//! # On disk
//! ```text
//! machine.toml     what it is made of: edited by hand, kept under version control
//! .gitignore       everything else
//! drives/          what is on the drives, one sparse file each, with caches and faults
//! state/           clock.toml, geom.toml (layers with keys, transient layers, counters of nops),
//!                  zpool.cache and what else a host remembers
//! ```
//!
//! # Invariants
//! 1. One process at a time: a command, or the one that holds the machine while it is up. It has an exclusive lock on
//!    `state/lock`, from before it reads the description until everything is written back.
//! 2. The clock continues where the last command stopped; it advances only while commands run.
//! 3. All randomness derives from the seed and the number of commands that ran before; while the machine is up, also
//!    from when commands come in.
//!
//! # Crash argument
//! Files are replaced by renaming. When a process is killed, what the drives had not yet written to
//! their files is lost, as in a loss of power, and so is the time that had passed; while the machine is up, at most a
//! second and that of the commands that ran.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Context, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::description::{Description, FILE_NAME, NewDrive};
use crate::kept::{read_toml, write_toml};
use crate::lock::{FileLock, LockMode, Patience};

/// `clock.toml`: the state that changes with every command.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Clock {
    /// The time on the simulated clock.
    pub(crate) clock_ns: u64,
    /// How many commands ran so far.
    pub(crate) commands: u64,
}

/// A machine to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMachine {
    /// Seeds all randomness.
    pub seed: u64,
    /// The computer around the drives, if computing is not free.
    pub host: Option<String>,
    /// Its memory as text, for [`parse_size`](crate::parse_size), if that is a figure of it.
    pub memory: Option<String>,
    /// Its drives.
    pub drives: Vec<NewDrive>,
}

/// A machine that is switched off, locked by this process.
#[derive(Debug)]
pub struct Machine {
    pub(crate) description: Description,
    pub(crate) clock: Clock,
    lock: MachineLock,
}

/// The lock on a machine's folder, for as long as there is a copy of it.
#[derive(Debug, Clone)]
pub struct MachineLock(#[expect(dead_code, reason = "held")] Arc<FileLock>);

impl Machine {
    /// Creates a machine in a folder that does not exist or is empty.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if the folder is not empty; those of [`Description::add_drive`].
    pub fn create(folder: &Path, new: &NewMachine) -> Result<Machine> {
        let path = folder.join(FILE_NAME);
        let text = format!(
            "# A machine of emulated drives. `ashift -m FOLDER COMMAND` runs a command in it.\n\
             seed = {}\n",
            new.seed
        );
        let mut description = Description::parse(path, &text)?;
        if let Some(host) = &new.host {
            description.set_host(host)?;
        }
        if let Some(memory) = &new.memory {
            description.set_memory(memory)?;
        }
        for drive in &new.drives {
            description.add_drive(drive)?;
        }
        let within = |e: std::io::Error| Error::from(e).within(folder.display());
        if folder.exists() && fs::read_dir(folder).map_err(within)?.next().is_some() {
            let text = format!("'{}' exists and is not empty", folder.display());
            return Err(Error::new(ErrorKind::Exists, text));
        }
        fs::create_dir_all(folder).map_err(within)?;
        fs::write(folder.join(".gitignore"), "/drives/\n/state/\n").map_err(within)?;
        description.save()?;
        let patience = Patience {
            wait_ns: 0,
            on_wait: &|_| {},
        };
        Machine::open(folder, &patience)
    }

    /// Locks a machine and reads what it is made of.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the folder is not a machine; [`ErrorKind::Busy`] if another command
    /// uses it for longer than `patience` allows; [`ErrorKind::InvalidInput`] with line and column
    /// for an invalid description.
    pub fn open(folder: &Path, patience: &Patience<'_>) -> Result<Machine> {
        if !folder.join(FILE_NAME).is_file() {
            Description::read(folder)?; // says what is wrong
        }
        let lock = MachineLock(Arc::new(lock(folder, patience)?));
        Machine::open_locked(folder, lock)
    }

    /// Reads anew what a machine is made of, under the lock of one that was open before.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn open_locked(folder: &Path, lock: MachineLock) -> Result<Machine> {
        let description = Description::read(folder)?;
        let clock = read_toml(&state_of(folder).join("clock.toml"))?;
        let clock = clock.unwrap_or(Clock {
            clock_ns: description.clock_ns,
            commands: 0,
        });
        Ok(Machine {
            description,
            clock,
            lock,
        })
    }

    /// Its lock.
    #[must_use]
    pub fn lock(&self) -> MachineLock {
        self.lock.clone()
    }

    /// What it is made of.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The time on its clock.
    #[must_use]
    pub fn clock_ns(&self) -> u64 {
        self.clock.clock_ns
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.description.folder()
    }

    /// The folder of its state between commands.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        state_of(self.folder())
    }

    /// The folder of the contents of its drives.
    #[must_use]
    pub fn drives(&self) -> PathBuf {
        self.folder().join("drives")
    }

    /// The seed of the command that runs now.
    #[must_use]
    pub fn command_seed(&self) -> u64 {
        let mixed = self.description.seed ^ self.clock.commands.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed.rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    /// Saves the clock after a command.
    pub(crate) fn save_clock(&mut self, now_ns: u64) -> Result<()> {
        self.clock.clock_ns = self.clock.clock_ns.max(now_ns);
        self.clock.commands += 1;
        write_toml(&self.state().join("clock.toml"), &self.clock)
    }

    /// Removes everything that belongs to the machine; the folder, too, if nothing else is in it.
    ///
    /// # Errors
    /// What the host says.
    pub fn destroy(self) -> Result<()> {
        let folder = self.folder().to_owned();
        for name in ["drives", "state"] {
            gone(fs::remove_dir_all(folder.join(name))).within(|| folder.display())?;
        }
        for name in [".gitignore", FILE_NAME] {
            gone(fs::remove_file(folder.join(name))).within(|| folder.display())?;
        }
        match fs::remove_dir(&folder) {
            Err(e) if e.kind() == std::io::ErrorKind::DirectoryNotEmpty => Ok(()),
            other => gone(other).within(|| folder.display()),
        }
    }
}

fn gone(outcome: std::io::Result<()>) -> Result<()> {
    match outcome {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        outcome => outcome.map_err(Error::from),
    }
}

fn state_of(folder: &Path) -> PathBuf {
    folder.join("state")
}

fn lock(folder: &Path, patience: &Patience<'_>) -> Result<FileLock> {
    let path = state_of(folder).join("lock");
    let what = format!("machine '{}'", folder.display());
    FileLock::take(&path, LockMode::Exclusive, &what, patience).map_err(|e| match e.kind() {
        ErrorKind::Busy => Error::new(ErrorKind::Busy, format!("{what} is {e}")),
        _ => e,
    })
}
