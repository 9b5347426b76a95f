//! `ashift machine mount`: the providers of a machine as files of this host.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{LineWriter, Write};
use std::path::Path;
use std::time::Instant;

use base::{Context, Error, Result};
use drivefs::{Recorded, Recorder};
use geom::BioCmd;

use crate::{background, world};

/// Runs `ashift machine mount DIR MNT`; unless in the foreground, returns once `folder` can be used. What programs read
/// and write is written to `record` as a trace.
pub(crate) fn run(
    machine: &Path,
    folder: &Path,
    record: Option<&Path>,
    foreground: bool,
) -> Result<()> {
    if foreground || background::is_background() {
        return serve(machine, folder, record);
    }
    let mut words = vec![
        OsStr::new("machine"),
        OsStr::new("mount"),
        machine.as_ref(),
        folder.as_ref(),
    ];
    if let Some(record) = record {
        words.extend([OsStr::new("--record"), record.as_ref()]);
    }
    background::start(&words, "ashift machine: ")
}

/// Mounts in this process, until unmounted.
fn serve(machine: &Path, folder: &Path, record: Option<&Path>) -> Result<()> {
    let recorder = record.map(recorder).transpose()?;
    let is_background = background::is_background();
    if is_background {
        background::leave_session()?;
    }
    let machine = world::open(machine)?;
    let ready = || {
        if is_background {
            // It is mounted; who started it learns otherwise that it is not ready.
            let _ = background::ready(None);
        } else {
            eprintln!(
                "mounted on {}; unmount it, or press Ctrl-C, to end",
                folder.display()
            );
        }
    };
    world::in_machine(machine, |world| {
        drivefs::mount(world, folder, recorder, ready)
    })?
}

/// Writes commands to a file as fio's log (version 3) has them, with the time of this host since the first: that of the
/// machine moves only while a command runs.
fn recorder(path: &Path) -> Result<Recorder> {
    let file = File::create(path)
        .map_err(Error::from)
        .within(|| path.display())?;
    let mut out = LineWriter::new(file);
    writeln!(out, "fio version 3 iolog")
        .map_err(Error::from)
        .within(|| path.display())?;
    let (mut start, mut names, mut has_failed) = (None, BTreeSet::new(), false);
    let shown = path.display().to_string();
    Ok(Box::new(move |command: &Recorded<'_>| {
        let at_us = start.get_or_insert_with(Instant::now).elapsed().as_micros();
        let name = command.name.replace(char::is_whitespace, "_");
        let (offset, len) = (command.offset, command.len);
        let mut text = String::new();
        if names.insert(name.clone()) {
            text += &format!("{at_us} {name} add\n{at_us} {name} open\n");
        }
        text += &match command.cmd {
            BioCmd::Read => format!("{at_us} {name} read {offset} {len}\n"),
            BioCmd::Write => format!("{at_us} {name} write {offset} {len}\n"),
            BioCmd::Delete => format!("{at_us} {name} trim {offset} {len}\n"),
            BioCmd::Flush => format!("{at_us} {name} sync 0 0\n"),
        };
        if !has_failed && let Err(error) = out.write_all(text.as_bytes()) {
            has_failed = true;
            eprintln!("ashift machine: {shown}: {error}: the trace ends here");
        }
    }))
}
