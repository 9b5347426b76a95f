//! `ashift rm` and `rmdir`.

use admin::getopt::Parsed;
use base::{Error, ErrorKind, ObjectId, Result};
use service::Access;
use zpl::mount::Mount;

use super::change::{Target, each};
use super::show::top;
use super::walk::{Visit, Visitor, walk};
use super::{Paths, Run};
use crate::command::{Command, Entry};
use crate::failure::Outcome;

pub(crate) const RMDIR: Command<Entry> = Command::parsed(
    "rmdir",
    "remove empty directories",
    "usage: ashift rmdir POOL/DATASET:/path…\n",
    ("", 1),
    rmdir,
);

fn rmdir(parsed: &Parsed) -> Outcome {
    each("rmdir", parsed, |paths, text| {
        let target = Target::find(paths, text)?;
        let (dir, name) = target.place()?;
        target.mount.rmdir(dir, name)
    })
}

pub(crate) const RM: Command<Entry> = Command::parsed(
    "rm",
    "remove files",
    "usage: ashift rm [-rRf] POOL/DATASET:/path…\n\n  -r  directories with what is in them\n  -f  no word about what is not there\n",
    ("rRf", 1),
    rm,
);

fn rm(parsed: &Parsed) -> Outcome {
    let recursive = parsed.has('r') || parsed.has('R');
    let paths = Paths::new(Access::Write);
    let mut run = Run::new("rm");
    for operand in paths.expand(&parsed.operands) {
        let outcome = remove(&paths, &operand, recursive, &mut run);
        match outcome {
            Err(e) if e.kind() == ErrorKind::NotFound && parsed.has('f') => {}
            other => {
                run.note(&operand, other);
            }
        }
    }
    run.end(paths)
}

fn remove(paths: &Paths, operand: &str, recursive: bool, run: &mut Run) -> Result<()> {
    let target = Target::find(paths, operand)?;
    let (dir, name) = target.place()?;
    if name == b"." || name == b".." {
        return Err(Error::invalid("refusing to remove '.' or '..'"));
    }
    let attr = target.mount.lookup(dir, name)?;
    if !attr.is_directory() {
        return target.mount.unlink(dir, name);
    }
    if !recursive {
        return Err(Error::new(ErrorKind::IsDirectory, "a directory"));
    }
    let mut rm = Remove {
        fs: &target.mount,
        top: (dir, name),
    };
    run.show_progress(false);
    walk(&target.mount, attr.id, top(operand), run, &mut rm);
    Ok(())
}

/// Removes files as they are visited, and directories after their contents.
struct Remove<'a> {
    fs: &'a Mount,
    top: (ObjectId, &'a [u8]),
}

impl Visitor for Remove<'_> {
    const SORTED: bool = false;

    fn enter(&mut self, visit: &Visit<'_>, run: &mut Run) -> Result<bool> {
        run.bar.inc(1);
        if visit.attr.is_directory() {
            return Ok(true);
        }
        let (dir, name) = visit.place.unwrap_or(self.top);
        self.fs.unlink(dir, name).map(|()| false)
    }

    fn leave(&mut self, visit: &Visit<'_>, _run: &mut Run) -> Result<()> {
        let (dir, name) = visit.place.unwrap_or(self.top);
        self.fs.rmdir(dir, name)
    }
}
