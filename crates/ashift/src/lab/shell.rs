//! Commands of an experiment, each a process of this program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use base::{Context, Error, Result};
use lab::{Answer, DriveTrace, MachinePlan, Seen, Shell};

use crate::trace;

/// Runs this program for each command.
pub(crate) struct Children;

/// The file beside the machine with all commands that its drives got so far.
fn seen_path(machine: &Path) -> PathBuf {
    machine.with_extension("seen.json")
}

/// The file beside the machine with the drive commands of the last `ashift` command.
fn last_path(machine: &Path) -> PathBuf {
    machine.with_extension("last.json")
}

fn child(words: &[String], machine: &Path) -> Result<Output> {
    let program = std::env::current_exe()?;
    let (args, is_read) = lab::without_redirection(words);
    let output = Command::new(program)
        .args(args)
        .env("ASHIFT_MACHINE", machine)
        .env(trace::VARIABLE, last_path(machine))
        // How far a command is in this computer's time is nothing that it has measured.
        .env("ASHIFT_PROGRESS", "off")
        .current_dir(machine.parent().unwrap_or(machine))
        .stdin(Stdio::null())
        .stdout(if is_read {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .output()?;
    Ok(output)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Shell for Children {
    fn create(&self, machine: &Path, plan: &MachinePlan) -> Result<()> {
        let drives = plan
            .drives
            .iter()
            .map(|(name, profile)| machine::NewDrive::parse(&format!("{name}={profile}")));
        let new = machine::NewMachine {
            seed: plan.seed,
            host: Some(plan.host.clone()),
            memory: plan.memory.clone(),
            drives: drives.collect::<Result<Vec<_>>>()?,
        };
        machine::Machine::create(machine, &new).map(drop)
    }

    fn run(&self, machine: &Path, words: &[String]) -> Result<Answer> {
        let output = child(words, machine)?;
        let last = read(&last_path(machine))?;
        let mut seen = read(&seen_path(machine))?;
        let took_ns = last.end_ns.saturating_sub(last.start_ns);
        let (processor_percent, drive_percent) = (last.processor_percent(), last.drive_percent());
        seen.absorb(last);
        write(&seen_path(machine), &seen)?;
        match fs::remove_file(last_path(machine)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
            _ => {}
        }
        Ok(Answer {
            output: text(&output.stdout),
            complaints: text(&output.stderr),
            code: output.status.code().unwrap_or(128),
            took_ns,
            processor_percent,
            drive_percent,
        })
    }

    fn traces(&self, machine: &Path) -> Result<Vec<DriveTrace>> {
        Ok(read(&seen_path(machine))?.drives)
    }
}

/// What was recorded; empty if no command has used the machine.
fn read(path: &Path) -> Result<Seen> {
    let within = || path.display().to_string();
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map_err(|e| Error::invalid(e.to_string()))
            .within(within),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Seen::default()),
        Err(e) => Err(Error::from(e).within(within())),
    }
}

fn write(path: &Path, seen: &Seen) -> Result<()> {
    let bytes = serde_json::to_vec(seen).map_err(|e| Error::invalid(e.to_string()))?;
    fs::write(path, bytes)
        .map_err(Error::from)
        .within(|| path.display().to_string())
}
