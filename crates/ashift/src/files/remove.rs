//! `ashift rm` and `rmdir`.

use std::process::ExitCode;

use admin::getopt::OptSpec;
use base::{Error, ErrorKind, ObjectId, Result};
use service::Access;
use zpl::mount::Mount;

use super::change::{Target, each};
use super::show::top;
use super::walk::{Visit, Visitor, walk};
use super::{Paths, Run, Usage, parse};

const RMDIR: Usage = Usage {
    name: "rmdir",
    text: "usage: ashift rmdir POOL/DATASET:/path…\n",
    options: OptSpec {
        short: "",
        long: &[],
    },
};

/// Runs `ashift rmdir`.
pub(crate) fn rmdir(args: &[String]) -> ExitCode {
    each(&RMDIR, args, |_, paths, text| {
        let target = Target::find(paths, text)?;
        let (dir, name) = target.place()?;
        target.mount.rmdir(dir, name)
    })
}

const RM: Usage = Usage {
    name: "rm",
    text: "usage: ashift rm [-rRf] POOL/DATASET:/path…\n\n  -r  directories with what is in them\n  -f  no word about what is not there\n",
    options: OptSpec {
        short: "rRf",
        long: &[],
    },
};

/// Runs `ashift rm`.
pub(crate) fn rm(args: &[String]) -> ExitCode {
    let parsed = match parse(&RM, args, 1) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
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
