//! `ashift rewrite`, also as `zfs rewrite`: the blocks of files are written once more, by what the properties say now.
//!
//! # Source
//! OpenZFS 2.4 cmd/zfs/zfs_main.c (`zfs_do_rewrite`).

use admin::getopt::Parsed;
use admin::number::parse_number;
use base::Result;
use service::Access;
use zpl::FileType;
use zpl::mount::Mount;

use super::change::Target;
use super::show::top;
use super::walk::{Visit, Visitor, walk};
use super::{Location, Paths, Run};
use crate::command::{Command, Entry};
use crate::failure::Outcome;

pub(crate) const REWRITE: Command<Entry> = Command::parsed(
    "rewrite",
    "write files once more, by what the properties say now",
    "usage: ashift rewrite [-Prvx] [-l LENGTH] [-o OFFSET] POOL/DATASET:/path…\n\n  \
     -P  the blocks stay as old as they are for what is incremental (feature physical_rewrite)\n  \
     -r  directories with what is in them\n  \
     -v  names of what was rewritten\n  \
     -x  do not enter other file systems (which is so without it, too)\n  \
     -l  bytes of each file, all of them for 0\n  \
     -o  offset of the first of these\n",
    ("Prvxl:o:", 1),
    rewrite,
);

/// Whether the arguments name a file in a pool. Otherwise `zfs rewrite`, which is of OpenZFS 2.4, is as unknown as to
/// the `zfs` of 2.3 that the others are like.
pub(crate) fn rewrites_in_pool(args: &[String]) -> bool {
    let is_in_pool = |arg: &String| matches!(Location::parse(arg), Location::Pool(..));
    args.iter().any(is_in_pool)
}

/// What is done to each file.
struct Rewrite<'a> {
    fs: &'a Mount,
    offset: u64,
    len: u64,
    keeps_birth: bool,
    is_verbose: bool,
}

fn rewrite(parsed: &Parsed) -> Outcome {
    let number = |letter: char| match parsed.value(letter) {
        Some(text) => parse_number(text),
        None => Ok(0),
    };
    let (offset, len) = (number('o')?, number('l')?);
    let paths = Paths::new(Access::Write);
    let mut run = Run::new("rewrite");
    for operand in paths.expand(&parsed.operands) {
        let outcome = (|| -> Result<()> {
            let target = Target::find(&paths, &operand)?;
            let attr = target.mount.getattr(target.id()?)?;
            let mut rewrite = Rewrite {
                fs: &target.mount,
                offset,
                len,
                keeps_birth: parsed.has('P'),
                is_verbose: parsed.has('v'),
            };
            if attr.is_directory() && !parsed.has('r') {
                return Ok(());
            }
            walk(
                &target.mount,
                attr.id,
                top(&operand),
                &mut run,
                &mut rewrite,
            );
            Ok(())
        })();
        run.note(&operand, outcome);
    }
    run.end(paths)
}

impl Visitor for Rewrite<'_> {
    fn enter(&mut self, visit: &Visit<'_>, run: &mut Run) -> Result<bool> {
        match visit.attr.file_type() {
            Some(FileType::Directory) => return Ok(true),
            Some(FileType::Regular) => {}
            _ => return Ok(false),
        }
        let id = visit.attr.id;
        self.fs
            .rewrite(id, self.offset, self.len, self.keeps_birth)?;
        if self.is_verbose {
            run.line(visit.path);
        }
        Ok(false)
    }
}
