//! `ashift mount` and `ashift unmount`: a data set as a file system of this host.
//!
//! # What it is
//! The process that has the pool open serves the mount. Without a holder that is this command, which stays until it is
//! unmounted, or goes on in the background; with one it is the holder, where the command waits in the same way.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use admin::getopt::{Flag, Parsed};
use base::{Context, Error, ErrorKind, Result};
use fuse::{MountOptions, Mounted, Snapshots};
use service::{Access, OpenPool, Session};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use zpl::mount::Mount;

use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use crate::{background, caller, session};

/// How often a mount that the holder serves is looked at, in ns.
const LOOK_NS: u64 = 50_000_000;

/// `ashift mount`.
pub(crate) const MOUNT: Command<Entry> = Command::parsed(
    "mount",
    "use a data set through a directory of this host",
    "usage: ashift mount [--background] [-o OPTION[,OPTION…]] POOL/DATASET[@SNAPSHOT] DIRECTORY\n",
    ("o:h", 2),
    mount,
)
.long(&[("background", Flag::Short('b'))])
.more(
    "
Shows a data set, or a snapshot, below DIRECTORY to all programs of this user, until `ashift unmount DIRECTORY` or
the host's own `umount`; Ctrl-C ends it, too. Needs /dev/fuse, and root or the program fusermount3.
  --background   return when it can be used
  -o OPTIONS     ro; noexec; suid and dev (for root); noatime; allow_other: for all users; snapdir: list .zfs
",
)
.held();

/// `ashift unmount`.
pub(crate) const UNMOUNT: Command<Entry> = Command::parsed(
    "unmount",
    "end the use of a directory by `ashift mount`",
    "usage: ashift unmount [-f] DIRECTORY\n",
    ("fh", 1),
    unmount,
)
.more("  -f   also while programs use it: they get errors\n")
.apart();

/// The snapshots of a data set that a command has open.
struct OfPool {
    pool: Arc<OpenPool>,
    dataset: String,
}

impl Snapshots for OfPool {
    fn names(&self) -> Result<Vec<String>> {
        let datasets = self.pool.datasets();
        let snapshots = datasets.snapshots(&datasets.find(&self.dataset)?)?;
        Ok(snapshots.into_iter().map(|(name, _)| name).collect())
    }

    fn open(&self, name: &str) -> Result<Arc<Mount>> {
        let name = format!("{}@{name}", self.dataset);
        zpl::mount::mount(self.pool.parts().dsl(), &name, true).map(Arc::new)
    }
}

/// A snapshot has none.
struct NoSnapshots;

impl Snapshots for NoSnapshots {
    fn names(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn open(&self, name: &str) -> Result<Arc<Mount>> {
        Err(Error::not_found(name))
    }
}

fn options(source: &str, words: &str) -> Outcome<MountOptions> {
    let mut options = MountOptions {
        source: source.to_owned(),
        read_only: source.contains('@'),
        ..MountOptions::default()
    };
    for word in words.split(',').filter(|word| !word.is_empty()) {
        match word {
            "ro" => options.read_only = true,
            "rw" => options.read_only = source.contains('@'),
            "exec" | "noexec" => options.exec = word == "exec",
            "suid" | "nosuid" => options.setuid = word == "suid",
            "dev" | "nodev" => options.devices = word == "dev",
            "noatime" => options.atime = zpl::AtimePolicy::Off,
            "allow_other" => options.allow_other = true,
            "snapdir" => options.shows_snapdir = true,
            _ => return Err(Fail::Usage(format!("there is no option '{word}'"))),
        }
    }
    Ok(options)
}

fn mount(parsed: &Parsed) -> Outcome {
    let [dataset, directory] = &parsed.operands[..] else {
        return Err(Fail::Usage("one data set and one directory".to_owned()));
    };
    let words = parsed.value('o').unwrap_or_default();
    let options = options(dataset, words)?;
    let is_client = caller::caller().as_client().is_some();
    if parsed.has('b') && !is_client && !background::is_background() {
        let directory = std::path::absolute(directory)?;
        let words = ["mount", "--background", "-o", words, dataset];
        let words: Vec<_> = words.iter().map(std::ffi::OsStr::new).collect();
        let words = [&words[..], &[directory.as_os_str()]].concat();
        return Ok(background::start(&words, "ashift mount: ")?);
    }
    if is_client
        && caller::caller()
            .as_client()
            .is_some_and(|client| client.keeper.is_some())
    {
        return in_holder(dataset, Path::new(directory), &options, parsed.has('b'));
    }
    let access = match options.read_only {
        true => Access::Read,
        false => Access::Write,
    };
    let session = session::session(access, "");
    let mounted = show(&session, dataset, Path::new(directory), &options);
    let outcome = match mounted {
        Ok(mounted) => serve(mounted, is_client),
        Err(error) => Err(error),
    };
    session.close()?;
    Ok(outcome?)
}

/// Mounts in the process that holds the pools, which serves it until it ends; unless `--background`, as long as the
/// command runs.
fn in_holder(dataset: &str, directory: &Path, options: &MountOptions, stays: bool) -> Outcome {
    let session = session::session(Access::Read, "");
    let mounted = session.pools().mount_apart(dataset, directory, options)?;
    match stays {
        true => mounted.leave(),
        false => {
            while mounted.is_mounted() {
                caller::sleep_ns(LOOK_NS);
            }
        }
    }
    Ok(session.close()?)
}

/// Mounts a data set, with its snapshots.
fn show(
    session: &Session,
    dataset: &str,
    directory: &Path,
    options: &MountOptions,
) -> Result<Mounted> {
    let files = session.mount(dataset)?;
    let mut options = options.clone();
    options.read_only |= !files.is_writable();
    let snapshots: Arc<dyn Snapshots> = match dataset.contains('@') {
        true => Arc::new(NoSnapshots),
        false => Arc::new(OfPool {
            pool: session.pool(dataset.split('/').next().unwrap_or(dataset))?,
            dataset: dataset.to_owned(),
        }),
    };
    fuse::mount(files, snapshots, directory, &options)
}

/// Stays until it is unmounted.
fn serve(mounted: Mounted, is_client: bool) -> Result<()> {
    if is_client {
        while mounted.is_mounted() {
            caller::sleep_ns(LOOK_NS);
        }
        mounted.wait();
        return Ok(());
    }
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let handle = signals.handle();
    if background::is_background() {
        background::leave_session()?;
        background::ready(None)?;
    } else {
        let directory = mounted.directory().display();
        eprintln!("mounted on {directory}; unmount it, or press Ctrl-C, to end");
    }
    let mounted = Arc::new(mounted);
    let ending = Arc::clone(&mounted);
    let waiting = std::thread::spawn(move || {
        for _signal in signals.forever() {
            // Programs that use it get errors: the process is to end.
            let _ = ending.unmount(false).or_else(|_| ending.unmount(true));
        }
    });
    mounted.wait();
    handle.close();
    // A panic there has ended the program.
    let _ = waiting.join();
    Ok(())
}

fn unmount(parsed: &Parsed) -> Outcome {
    for directory in &parsed.operands {
        let path = absolute(Path::new(directory))?;
        let is_ours = mounts_of_this_program()?.contains(&path);
        let outcome = match is_ours {
            true => fuse::unmount(&path, parsed.has('f')),
            false => Err(Error::new(ErrorKind::InvalidInput, "not mounted by ashift")),
        };
        outcome.within(|| directory.clone())?;
    }
    Ok(())
}

/// Not by asking the directory itself: the one who served it may be gone.
fn absolute(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let parent = path.parent().map(Path::canonicalize).transpose()?;
    Ok(match (parent, path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path,
    })
}

/// Where data sets are mounted, by the kernel's list.
fn mounts_of_this_program() -> Result<Vec<PathBuf>> {
    let list = std::fs::read_to_string("/proc/self/mounts")?;
    let words = list.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let ours = words.filter(|words| words.get(2) == Some(&"fuse.ashift"));
    Ok(ours
        .map(|words| PathBuf::from(unescaped(words[1])))
        .collect())
}

/// A path of the kernel's list, in which a blank is `\040`.
fn unescaped(text: &str) -> String {
    let escapes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    escapes
        .iter()
        .fold(text.to_owned(), |text, (code, letter)| {
            text.replace(code, letter)
        })
}
