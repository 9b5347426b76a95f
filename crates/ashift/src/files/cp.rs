//! `ashift cp`: between this host and datasets, in any direction.
//!
//! # Source
//! GNU coreutils 9, `cp` (options and what they mean), with these differences: `-` is stdin or stdout;
//! below the destination symbolic links are replaced, never written through; devices are made with
//! `-a` only.

use admin::getopt::{Flag, Parsed};
use base::{Error, ErrorKind, Result};
use service::Access;
use zpl::FileType;

use super::copy::{self, Copy, Options, Preserve, Reflink};
use super::host_tree::{HostTree, canonical};
use super::paths::may_be_mounted;
use super::pool_tree::PoolTree;
use super::tree::{Handle, Tree};
use super::{Location, Paths, Run};
use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use crate::progress::{count_ahead, count_ahead_in};

fn reflink(parsed: &Parsed) -> Outcome<Reflink> {
    match parsed.optional("reflink") {
        None | Some(Some("never")) => Ok(Reflink::Never),
        Some(None | Some("auto")) => Ok(Reflink::Auto),
        Some(Some("always")) => Ok(Reflink::Always),
        Some(Some(other)) => {
            let text = format!("'{other}' is not when to share blocks: auto, always or never");
            Err(Fail::Failed(text).say("cp: "))
        }
    }
}

/// The operand for stdin as a source, for stdout as a destination.
const STANDARD: &str = "-";

pub(crate) const CP: Command<Entry> = Command::parsed(
    "cp",
    "copy files between this host and data sets",
    "\
usage: ashift cp [-adfnpRrTv] SOURCE… DESTINATION

Copies files between this host and data sets, in any direction. A path in a pool is
POOL/DATASET:/path, in a snapshot (as a source) POOL/DATASET@SNAP:/path; it may have patterns
(*, ?, [a-z]). A source or destination - is stdin or stdout (a file of that name: ./-).

  -a  everything: -r with owners, modes, times, links, extended attributes, ACLs, devices
  -r  directories with what is in them (-R is the same)
  -p  keep owners, modes, ACLs and times
  -d  copy symbolic links as links (with -r, too)
  -f  replace a destination that is in the way
  -n  leave a file that is there already as it is
  -T  the destination is never a directory to copy into
  --reflink[=auto]    share blocks with the source, within a pool and where they can be shared
  --reflink=always    or fail where they cannot
  -v  say each file, and of errors which block of which device they are about

What the destination cannot keep is said, and the copy goes on. Without root, files belong to who
copies them, without the setuid, setgid and sticky bits.
",
    ("adfnpRrTv", 2),
    cp,
)
.long(&[
    ("archive", Flag::Short('a')),
    ("no-clobber", Flag::Short('n')),
    ("reflink", Flag::Optional("reflink")),
    ("recursive", Flag::Short('r')),
]);

fn cp(parsed: &Parsed) -> Outcome {
    let (last, sources) = parsed.operands.split_last().expect("there are two");
    let writes = may_be_mounted(last) || matches!(Location::parse(last), Location::Pool(..));
    let all = parsed.has('a');
    let keep = all || parsed.has('p');
    let recursive = all || parsed.has('r') || parsed.has('R');
    let options = Options {
        recursive,
        links_as_links: recursive || parsed.has('d'),
        force: parsed.has('f'),
        no_clobber: parsed.has('n'),
        verbose: parsed.has('v'),
        devices: all,
        reflink: reflink(parsed)?,
        preserve: Preserve {
            mode: keep,
            owner: keep,
            times: keep,
            xattrs: all,
            links: all,
        },
    };
    let paths = Paths::new(if writes { Access::Write } else { Access::Read });
    let mut run = Run::new("cp");
    run.verbose = options.verbose;
    copy::allow_deep_trees();
    let sources = paths.expand(sources);
    let outcome = match (&sources[..], last.as_str()) {
        ([source], STANDARD) => to_stdout(&paths, source, &mut run),
        (_, STANDARD) => Err(Error::invalid("only one file at a time goes to stdout")),
        ([source], _) if source == STANDARD => from_stdin(&paths, last, parsed.has('T'), &options),
        _ => Destination::find(&paths, last, parsed.has('T'))
            .and_then(|target| copy_all(&paths, &sources, &target, &options, &mut run)),
    };
    run.note(last, outcome);
    run.end(paths)
}

pub(super) fn tree(paths: &Paths, location: &Location) -> Result<Box<dyn Tree>> {
    Ok(match location {
        Location::Host(_) => Box::new(HostTree),
        Location::Pool(name, _) => Box::new(PoolTree(paths.mount(name)?)),
    })
}

pub(super) fn path_of(location: &Location) -> String {
    match location {
        Location::Host(path) => path.to_string_lossy().into_owned(),
        Location::Pool(_, path) => path.clone(),
    }
}

/// The last name in a path; empty for a root.
pub(super) fn last_name(path: &str) -> &str {
    let name = path
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default();
    if name == "." || name == ".." {
        ""
    } else {
        name
    }
}

/// Where to copy to.
struct Destination {
    location: Location,
    shown: String,
    tree: Box<dyn Tree>,
    /// The directory in which files are made.
    dir: Handle,
    /// The name in it, if the destination is not the directory itself.
    name: Option<String>,
}

impl Destination {
    fn find(paths: &Paths, text: &str, never_into: bool) -> Result<Destination> {
        let location = paths.locate(text)?;
        let tree = tree(paths, &location)?;
        let mut path = path_of(&location);
        let existing = copy::optional(tree.resolve(&path))?;
        let is_dir = match &existing {
            Some(handle) => tree.meta(handle)?.file_type == FileType::Directory,
            None => false,
        };
        let (dir, name) = match existing {
            Some(dir) if is_dir && !never_into => (dir, None),
            existing => {
                // The user named the link, but means what it leads to.
                if existing.is_some() && matches!(location, Location::Host(_)) {
                    path = canonical(&path)?;
                }
                let (dir, name) = parent_of(&*tree, &path)?;
                (dir, Some(name))
            }
        };
        Ok(Destination {
            dir: tree.enter(&dir)?,
            shown: location.to_string(),
            location,
            tree,
            name,
        })
    }
}

fn copy_all(
    paths: &Paths,
    sources: &[String],
    target: &Destination,
    options: &Options,
    run: &mut Run,
) -> Result<()> {
    if sources.len() > 1 && target.name.is_some() {
        return Err(Error::new(
            ErrorKind::NotDirectory,
            "the destination is not a directory",
        ));
    }
    for source in sources {
        let found = paths.locate(source).and_then(|location| {
            let tree = tree(paths, &location)?;
            Ok((location, tree))
        });
        let Some((location, source_tree)) = run.note(source, found) else {
            continue;
        };
        let path = path_of(&location);
        let name = match &target.name {
            Some(name) => name,
            None => last_name(&path),
        };
        run.show_progress(true);
        match &location {
            Location::Host(path) => count_ahead(&run.bar, path),
            Location::Pool(name, path) => {
                count_ahead_in(&run.bar, &*paths.mount(name)?, path);
            }
        }
        let mut copy = Copy::new(
            options,
            run,
            (&*source_tree, matches!(location, Location::Pool(..))),
            (&*target.tree, same_tree(&location, &target.location)),
            (&target.dir, &target.shown, target.name.is_some()),
        );
        copy.operand(&path, source, name.as_bytes());
    }
    Ok(())
}

pub(super) fn same_tree(a: &Location, b: &Location) -> bool {
    match (a, b) {
        (Location::Host(_), Location::Host(_)) => true,
        (Location::Pool(a, _), Location::Pool(b, _)) => a == b,
        _ => false,
    }
}

/// The directory that a path is in, and its last name.
pub(super) fn parent_of(tree: &dyn Tree, path: &str) -> Result<(Handle, String)> {
    let trimmed = path.trim_end_matches('/');
    let (dir, name) = trimmed.rsplit_once('/').unwrap_or(("", trimmed));
    let dir = match (dir, path.starts_with('/')) {
        ("", true) => "/",
        ("", false) => ".",
        _ => dir,
    };
    Ok((tree.resolve(dir)?, name.to_owned()))
}

fn to_stdout(paths: &Paths, source: &str, run: &mut Run) -> Result<()> {
    let found = paths.locate(source).and_then(|location| {
        let tree = tree(paths, &location)?;
        let file = tree.resolve(&path_of(&location))?;
        copy::to_stdout(&*tree, &file)
    });
    if let Some(Err(error)) = run.note(source, found) {
        error.complain(run, source, "stdout");
    }
    Ok(())
}

fn from_stdin(paths: &Paths, last: &str, never_into: bool, options: &Options) -> Result<()> {
    let target = Destination::find(paths, last, never_into)?;
    let Some(name) = &target.name else {
        return Err(Error::new(ErrorKind::IsDirectory, "a directory"));
    };
    copy::from_stdin(&*target.tree, &target.dir, name.as_bytes(), options)
}
