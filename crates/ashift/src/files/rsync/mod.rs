//! `ashift rsync`: makes a tree like another one, on this host or in data sets, in the order in which rsync works.
//!
//! # What it is
//! rsync between two places of one computer, where it copies whole files: [`transfer`] goes through the trees,
//! [`changes`] says what differs. What has the size and the time of its source is left alone, so that a second run has
//! nothing to do.
//!
//! # Source
//! The manual of rsync 3.2, and what it does (generator.c `recv_generator`, receiver.c `recv_files`, log.c
//! `log_formatted`).

mod attributes;
mod changes;
mod transfer;

use admin::getopt::{Flag, Parsed};
use base::{Error, Result};
use service::Access;
use zpl::{FileType, Time};

use self::transfer::Transfer;
use super::copy;
use super::cp::{last_name, parent_of, path_of, same_tree, tree};
use super::mode::umask;
use super::paths::may_be_mounted;
use super::tree::{Handle, Meta, Tree};
use super::{Location, Paths, Run, change};
use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use crate::progress::{count_ahead, count_ahead_in};

/// Exit code where some files were not transferred (`RERR_PARTIAL`).
const PARTIAL: u8 = 23;
/// Exit code for a destination that cannot be one (`RERR_FILESELECT`).
const BAD_DESTINATION: u8 = 3;

pub(crate) const RSYNC: Command<Entry> = Command::parsed(
    "rsync",
    "make a tree like another one, in rsync's order of work",
    "\
usage: ashift rsync [-aADgHilnoprStuvWX] [--delete] [--inplace] SOURCE… DESTINATION

Makes files of this host or of data sets like those of another place, as rsync does on one computer: names in
order, files of a directory before the directories in it, each file written under another name first.
SOURCE/ means what is in a directory, SOURCE the directory itself.

  -a  as -rlptgoD                        -r  directories with what is in them
  -l  symbolic links                     -p  permissions          -t  times
  -o  owner       -g  group              -D  devices, pipes and sockets
  -H  names of one file stay that        -A  ACLs, with -p        -X  extended attributes
  -u  leave what is newer there          -n  say what would be done, and do nothing
  -v  say what is transferred            -i  and what of it differs
  -S, -W, --numeric-ids  holes stay holes, files are written whole, and owners are numbers, in any case
  --delete   remove what is not in the source
  --inplace  write to the files themselves

What has the size and time of its source is left as it is. The exit code is 23 if something was not transferred.
",
    ("aADgHilnoprStuvWX", 2),
    rsync,
)
.long(&[
    ("archive", Flag::Short('a')),
    ("acls", Flag::Short('A')),
    ("delete", Flag::Long("delete")),
    ("dry-run", Flag::Short('n')),
    ("group", Flag::Short('g')),
    ("hard-links", Flag::Short('H')),
    ("inplace", Flag::Long("inplace")),
    ("itemize-changes", Flag::Short('i')),
    ("links", Flag::Short('l')),
    ("numeric-ids", Flag::Long("numeric-ids")),
    ("owner", Flag::Short('o')),
    ("perms", Flag::Short('p')),
    ("recursive", Flag::Short('r')),
    ("sparse", Flag::Short('S')),
    ("times", Flag::Short('t')),
    ("update", Flag::Short('u')),
    ("verbose", Flag::Short('v')),
    ("whole-file", Flag::Short('W')),
    ("xattrs", Flag::Short('X')),
])
.misused_is_1();

/// What is transferred, and how.
#[derive(Clone, Copy, Debug)]
struct Options {
    recursive: bool,
    links: bool,
    perms: bool,
    times: bool,
    owner: bool,
    group: bool,
    devices: bool,
    hard_links: bool,
    acls: bool,
    xattrs: bool,
    update: bool,
    dry_run: bool,
    verbose: bool,
    itemize: bool,
    delete: bool,
    inplace: bool,
}

impl Options {
    fn of(parsed: &Parsed) -> Options {
        let all = parsed.has('a');
        let has = |letter| parsed.has(letter);
        Options {
            recursive: all || has('r'),
            links: all || has('l'),
            perms: all || has('p'),
            times: all || has('t'),
            owner: all || has('o'),
            group: all || has('g'),
            devices: all || has('D'),
            hard_links: has('H'),
            acls: has('A'),
            xattrs: has('X'),
            update: has('u'),
            dry_run: has('n'),
            verbose: has('v'),
            itemize: has('i'),
            delete: parsed.has_long("delete"),
            inplace: parsed.has_long("inplace"),
        }
    }
}

fn rsync(parsed: &Parsed) -> Outcome {
    let options = Options::of(parsed);
    if options.delete && !options.recursive {
        let text = "--delete does not work without --recursive (-r)";
        return Err(Fail::Exits(1, text.to_owned()));
    }
    let (last, sources) = parsed.operands.split_last().expect("there are two");
    let writes = may_be_mounted(last) || matches!(Location::parse(last), Location::Pool(..));
    let is_writing = writes && !options.dry_run;
    let paths = Paths::new(if is_writing {
        Access::Write
    } else {
        Access::Read
    });
    let mut run = Run::new("rsync");
    copy::allow_deep_trees();
    let sources = paths.expand(sources);
    let done = Target::find(&paths, last, &sources, options).map(|target| {
        if options.verbose {
            run.line("sending incremental file list");
        }
        if target.is_new && (options.verbose || options.itemize) {
            run.line(&format!("created directory {last}"));
        }
        let mut bytes = 0;
        for source in &sources {
            let outcome = one(&paths, source, &target, options, &mut run);
            bytes += run.note(source, outcome).unwrap_or_default();
        }
        if options.verbose {
            let dry = if options.dry_run { " (DRY RUN)" } else { "" };
            run.line(&format!("\ntotal size is {bytes}{dry}"));
        }
    });
    let code = match run.note(last, done) {
        None => BAD_DESTINATION,
        Some(()) => PARTIAL,
    };
    run.end(paths).map_err(|fail| match fail {
        Fail::Said(_) => Fail::Said(code),
        fail => fail,
    })
}

/// Where to transfer to.
struct Target {
    location: Location,
    tree: Box<dyn Tree>,
    /// The directory; `None` if it is not there, and nothing is to be made.
    dir: Option<Handle>,
    /// Whether it was made, or would be.
    is_new: bool,
    /// What the one file is to be called in it.
    name: Option<String>,
}

impl Target {
    fn find(paths: &Paths, text: &str, sources: &[String], options: Options) -> Result<Target> {
        if options.delete && sources.len() > 1 {
            // Each would remove what those before it have brought.
            return Err(Error::invalid("--delete takes one source at a time"));
        }
        let location = paths.locate(text)?;
        let tree = tree(paths, &location)?;
        let path = path_of(&location);
        let existing = copy::optional(tree.resolve(&path))?;
        let is_dir = match &existing {
            Some(handle) => tree.meta(handle)?.file_type == FileType::Directory,
            None => false,
        };
        let is_new = existing.is_none();
        let (dir, name) = match existing {
            Some(dir) if is_dir => (Some(tree.enter(&dir)?), None),
            _ if !text.ends_with('/') && is_one_file(paths, sources)? => {
                let (dir, name) = parent_of(&*tree, &path)?;
                (Some(tree.enter(&dir)?), Some(name))
            }
            Some(_) => {
                let text = "destination must be a directory when copying more than 1 file";
                return Err(Error::invalid(text));
            }
            None if options.dry_run => (None, None),
            None => {
                let (parent, name) = parent_of(&*tree, &path)?;
                let mode = 0o777 & !umask();
                let new = Meta::new(FileType::Directory, mode, change::owner(), Time::now());
                let dir = tree.make(&tree.enter(&parent)?, name.as_bytes(), &new, b"")?;
                (Some(tree.enter(&dir)?), None)
            }
        };
        Ok(Target {
            location,
            tree,
            dir,
            is_new: is_new && name.is_none(),
            name,
        })
    }
}

/// Whether there is one source, and it is not a directory.
fn is_one_file(paths: &Paths, sources: &[String]) -> Result<bool> {
    let [source] = sources else {
        return Ok(false);
    };
    let location = paths.locate(source)?;
    let tree = tree(paths, &location)?;
    let file = tree.resolve_link(&path_of(&location))?;
    Ok(!source.ends_with('/') && tree.meta(&file)?.file_type != FileType::Directory)
}

/// Transfers a source, and returns the bytes of all its files.
fn one(
    paths: &Paths,
    source: &str,
    target: &Target,
    options: Options,
    run: &mut Run,
) -> Result<u64> {
    let location = paths.locate(source)?;
    let tree = tree(paths, &location)?;
    let path = path_of(&location);
    run.show_progress(true);
    match &location {
        Location::Host(path) => count_ahead(&run.bar, path),
        Location::Pool(name, path) => count_ahead_in(&run.bar, &*paths.mount(name)?, path),
    }
    let name = match &target.name {
        Some(name) => name,
        None if source.ends_with('/') => "",
        None => last_name(&path),
    };
    let is_from_pool = matches!(location, Location::Pool(..));
    let is_same_tree = same_tree(&location, &target.location);
    let mut transfer = Transfer::new(
        options,
        run,
        (&*tree, is_from_pool, is_same_tree),
        (&*target.tree, target.dir.as_ref(), target.is_new),
        source,
    );
    let outcome = transfer.operand(&path, name.as_bytes());
    let bytes = transfer.end();
    outcome.map(|()| bytes)
}
