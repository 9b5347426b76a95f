//! `ashift rescue`: copies what is left of a pool that cannot be imported.
//!
//! # What it is
//! The newest state that opens is read, even if whole top-level vdevs are missing; `--scan` searches the disks for
//! states that no label names ([`seek`]). Every file system is copied as `cp -a` would, but for what is lost:
//! [`super::salvage`]; a volume becomes an image file. Keys of what is encrypted are asked for. Files whose
//! directories are lost are found in the list of objects of their file system, and get names below `lost+found`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use admin::getopt::{Flag, Parsed};
use admin::number::date_time;
use base::{Context, Error, ObjectId, Result, Txg};
use dmu::Objset;
use phys::ObjsetType;
use service::{Access, Past, PastState, Pools, Remains};
use zpl::FileType;
use zpl::mount::Mount;

use super::Run;
use super::copy::{self, Copy, Options, Preserve, Reflink};
use super::deleted::{self, Target};
use super::host_tree::HostTree;
use super::pool_tree::PoolTree;
use super::salvage::{Left, Salvage};
use super::seek;
use super::tree::{Handle, Tree};
use super::volume;
use crate::caller;
use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use crate::rewind;
use crate::session::session;
use crate::zone;

/// The report, and what an interrupted run goes on with.
const JOURNAL: &str = "rescue.tsv";
/// Where files go whose directories are lost, in each file system.
pub(super) const FOUND: &str = "lost+found";
/// Dnodes in a block of them: where one block is lost, the next is tried.
const DNODES_PER_BLOCK: u64 = 32;

const USAGE: &str = "\
usage: ashift rescue [-d FOLDER|DEVICE]… [-T TXG] [-k DATASET=FILE]… [-DSsv] [--scan] POOL|GUID FOLDER
";

const MORE: &str = "
Copies what can be read of a pool that cannot be imported, destroyed pools included, into a folder of this host, each
file system below the folder of its name, with owners, modes, times, links, extended attributes. What cannot be read of
a file is a hole in the copy. A volume becomes an image file. Nothing of the pool is changed.

The keys of encrypted data sets are asked for where their property keylocation says; what is left out without a key
is said.

Each file is in FOLDER/rescue.tsv, with what was saved: whole, partly (and which bytes are lost), or gone; of a
directory whose names cannot all be read: names. Files of lost directories are below lost+found. The same command goes
on where an interrupted one was, and tries again what was gone, but not what is partly there: another state, or one with more
devices, belongs into another folder. `ashift rewind` shows the states of a pool.

  -D, --deleted
            deleted files and earlier versions of files, too, as far as earlier states have them and nothing was written
            over them: in a folder named after the txg of the last state with it
  -d PLACE  look for the devices there; otherwise on all disks, and among the imported pools
  -T TXG    the state of this txg; otherwise the newest that opens
  -k DATASET=FILE, --key DATASET=FILE
            the key of this encryption root is in FILE
  -S        read the devices from beginning to end for labels, where a partition table is lost or another one
  --scan    read the devices from beginning to end for the roots of states, where no label has an uberblock left, or
            all that they have are damaged; how far that got is in FOLDER/rescue.scan, and the next run goes on there.
            File systems and volumes whose names are lost with the state are called unknown-TXG-N; files whose file
            system is lost, or that were deleted, are in unknown-files
  -s        the snapshots, too, each beside its file system
  -v        say each file
";

pub(crate) const RESCUE: Command<Entry> = Command::parsed(
    "rescue",
    "copy what is left of a pool that cannot be imported",
    USAGE,
    ("Dd:k:SsT:v", 2),
    rescue,
)
.long(&[
    ("key", Flag::Short('k')),
    ("deleted", Flag::Short('D')),
    ("scan", Flag::Long("scan")),
])
.more(MORE);

fn rescue(parsed: &Parsed) -> Outcome {
    let [wanted, folder] = &parsed.operands[..] else {
        return Err(Fail::Usage("one pool and one folder".to_owned()));
    };
    let txg = parsed.value('T').map(str::parse::<u64>).transpose();
    let txg = txg.map_err(|_| Fail::Usage("invalid txg".to_owned()))?;
    let key_files = key_files(parsed)?;
    let session = session(Access::Read, "");
    let places: Vec<&str> = parsed.values('d').collect();
    let program = parsed.has('S').then_some("rescue");
    let mut past = rewind::find(&session, wanted, &places, program)?;
    let mut run = Run::new("rescue");
    run.verbose = parsed.has('v');
    let folder = Path::new(folder);
    let scans = parsed.has_long("scan");
    if scans {
        make(folder)?;
        seek::search(&mut past, folder)?;
    }
    let opened = match open(&past, txg.map(Txg)) {
        Ok(opened) => Some(opened),
        Err(why) if scans => {
            eprintln!("ashift rescue: {wanted}: {why}");
            None
        }
        Err(why) => {
            let advice = seek::advice(&past);
            return Err(Fail::Failed(format!("{wanted}: {why}; {advice}")));
        }
    };
    make(folder)?;
    let mut salvage = Salvage::begin(&folder.join(JOURNAL))?;
    copy::allow_deep_trees();
    let mut known = Some(seek::Known::default());
    let has_state = opened.is_some();
    if let Some((state, remains)) = opened {
        say_state(wanted, &state, &remains);
        known = if scans { seek::known(&remains) } else { None };
        let mut locks = Locks {
            pools: session.pools(),
            key_files,
            refused: BTreeMap::new(),
        };
        let is_asked = parsed.has('s');
        save_state(
            &remains,
            &mut locks,
            (folder, is_asked),
            &mut salvage,
            &mut run,
        )?;
        if parsed.has('D') {
            let target = Target {
                folder,
                options: &options(run.verbose),
            };
            let both = (&mut salvage, &mut run);
            deleted::save(&past, (&state, remains), &locks, &target, both)?;
        }
    }
    if let Some(known) = known {
        let found = seek::save_adrift(&past, known, folder, &mut salvage, &mut run)?;
        if found == 0 && !has_state {
            let text =
                format!("{wanted}: neither a state, nor a file system, nor a file was found");
            return Err(Fail::Failed(text));
        }
    }
    sum_up(&mut run, &salvage)
}

fn make(folder: &Path) -> Result<()> {
    let made = std::fs::create_dir_all(folder).map_err(Error::from);
    made.within(|| folder.display().to_string())
}

fn say_state(pool: &str, state: &PastState, remains: &Remains) {
    let when = match state.is_found() {
        true => "found on its disks".to_owned(),
        false => format!("of {}", date_time(state.at_secs, zone::local())),
    };
    eprintln!("ashift rescue: {pool}: txg {}, {when}", state.txg);
    for vdev in remains.missing() {
        eprintln!("ashift rescue: {pool}: {vdev} cannot be read");
    }
}

/// Copies all file systems and volumes of a state, with their snapshots if they are asked for.
fn save_state(
    remains: &Remains,
    locks: &mut Locks<'_>,
    (folder, is_asked): (&Path, bool),
    salvage: &mut Salvage,
    run: &mut Run,
) -> Result<()> {
    let (names, lost) = remains.datasets();
    for (name, error) in lost {
        let text = format!("what is below cannot be listed: {error}");
        salvage.note(&name, &Left::Names(text))?;
    }
    for name in with_snapshots(remains, names, is_asked, salvage)? {
        let saved = match locks.open(remains, &name) {
            Ok(()) => save(remains, &name, folder, salvage, run),
            Err(why) => note(salvage, run, &name, &Left::Gone(why)),
        };
        run.note(&name, saved);
    }
    Ok(())
}

/// The files of `--key`, by encryption root.
fn key_files(parsed: &Parsed) -> Result<BTreeMap<String, String>, Fail> {
    let mut files = BTreeMap::new();
    for text in parsed.values('k') {
        let wrong = || Fail::Usage(format!("'{text}' is not DATASET=FILE"));
        let (root, file) = text.split_once('=').ok_or_else(wrong)?;
        let path = std::path::absolute(file)?;
        files.insert(root.to_owned(), format!("file://{}", path.display()));
    }
    Ok(files)
}

/// The keys of what is encrypted.
pub(super) struct Locks<'a> {
    pools: &'a Pools,
    /// Where keys are, if not where `keylocation` says, by encryption root.
    key_files: BTreeMap<String, String>,
    /// Why those of encryption roots are not loaded: each is asked for once.
    refused: BTreeMap<String, String>,
}

impl Locks<'_> {
    /// Whether the contents of a data set can be read, with a key that was given in a file or is loaded.
    pub(super) fn open_without_asking(&self, remains: &Remains, name: &str) -> bool {
        let Ok(root) = remains.locked_root(name) else {
            return false;
        };
        root.is_none_or(|root| {
            let location = self.key_files.get(&root);
            location.is_some_and(|at| remains.unlock(self.pools, &root, Some(at)).is_ok())
        })
    }

    /// Loads the key of a data set, or says why it is not there.
    fn open(&mut self, remains: &Remains, name: &str) -> Result<(), String> {
        let root = match remains.locked_root(name) {
            Ok(None) => return Ok(()),
            Ok(Some(root)) => root,
            Err(error) => return Err(format!("it is not known how it is encrypted: {error}")),
        };
        if let Some(why) = self.refused.get(&root) {
            return Err(why.clone());
        }
        let location = self.key_files.get(&root).map(String::as_str);
        let unlocked = remains.unlock(self.pools, &root, location);
        unlocked.map_err(|error| {
            let why = format!(
                "the key of '{root}' is not loaded ({error}); give it with --key {root}=FILE"
            );
            self.refused.entry(root).or_insert(why).clone()
        })
    }
}

/// The newest state that opens, or why none does.
fn open(past: &Past, txg: Option<Txg>) -> Result<(PastState, Remains), String> {
    let mut first = None;
    let is_wanted = |state: &&PastState| txg.is_none_or(|txg| state.txg == txg);
    for state in past.states().iter().filter(is_wanted) {
        match past.open(state) {
            Ok(remains) => return Ok((state.clone(), remains)),
            Err(error) => {
                first.get_or_insert(error);
            }
        }
    }
    Err(match first {
        Some(error) => format!("no state of it opens: {error}"),
        None if txg.is_some() => "no label has an uberblock of this txg".to_owned(),
        None => "no uberblock is left on any label".to_owned(),
    })
}

/// The file systems, each with its snapshots if they are asked for.
fn with_snapshots(
    remains: &Remains,
    names: Vec<String>,
    is_asked: bool,
    salvage: &mut Salvage,
) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for name in names {
        if is_asked {
            match remains.snapshots(&name) {
                Ok(snapshots) => all.extend(snapshots),
                Err(error) => {
                    let text = format!("its snapshots cannot be listed: {error}");
                    salvage.note(&name, &Left::Names(text))?;
                }
            }
        }
        all.push(name);
    }
    Ok(all)
}

/// Copies one file system or snapshot.
fn save(
    remains: &Remains,
    name: &str,
    folder: &Path,
    salvage: &mut Salvage,
    run: &mut Run,
) -> Result<()> {
    let objset = match remains.objset(name) {
        Ok(objset) => objset,
        Err(error) => return note(salvage, run, name, &Left::Gone(error.to_string())),
    };
    if objset.type_() == ObjsetType::Zvol {
        return save_volume(&objset, name, folder, salvage, run);
    }
    match remains.mount(name) {
        Ok(mount) => save_files(&Arc::new(mount), name, folder, salvage, run),
        Err(error) => note(salvage, run, name, &Left::Gone(error.to_string())),
    }
}

/// Copies a volume.
///
/// # Errors
/// Those of writing.
pub(super) fn save_volume(
    objset: &Arc<Objset>,
    name: &str,
    folder: &Path,
    salvage: &mut Salvage,
    run: &mut Run,
) -> Result<()> {
    if salvage.is_done(name) {
        return Ok(());
    }
    let left = volume::save(objset, &folder.join(name), name, salvage, run)?;
    note(salvage, run, name, &left)
}

/// Copies the files of a file system.
///
/// # Errors
/// Those of writing.
pub(super) fn save_files(
    mount: &Arc<Mount>,
    name: &str,
    folder: &Path,
    salvage: &mut Salvage,
    run: &mut Run,
) -> Result<()> {
    let place = folder.join(name);
    salvage.opened(name)?;
    let shown = place.display().to_string();
    make(&place)?;
    let target = HostTree;
    let directory = target.resolve(&shown)?;
    let directory = target.enter(&directory)?;
    let options = options(run.verbose);
    let source = PoolTree(Arc::clone(mount));
    salvage.reached.clear();
    run.show_progress(true);
    let mut copy = Copy::new(
        &options,
        run,
        (&source, true),
        (&target, false),
        (&directory, &shown, false),
    );
    copy.salvage = Some(salvage);
    copy.operand("/", &format!("{name}:/"), b"");
    save_orphans(&mut copy, mount, &place, name)
}

/// Copies what no name leads to into a folder of its own. Some of that may be directories whose names are lost, too:
/// what was in them comes next.
fn save_orphans(copy: &mut Copy<'_>, mount: &Mount, place: &Path, name: &str) -> Result<()> {
    let mut tried = BTreeSet::new();
    loop {
        let salvage = copy.salvage.as_ref();
        let reached = salvage.map_or_else(BTreeSet::new, |salvage| salvage.reached.clone());
        let mut orphans = orphans(mount, &reached);
        orphans.retain(|id| tried.insert(*id));
        if orphans.is_empty() {
            return Ok(());
        }
        let (target, found) = (HostTree, place.join(FOUND));
        make(&found)?;
        let found = target.resolve(&found.display().to_string())?;
        let found = target.enter(&found)?;
        for id in orphans {
            copy.single(
                &Handle::Object(id),
                &found,
                &format!("{name}:/{FOUND}"),
                id.to_string().as_bytes(),
            );
        }
    }
}

pub(super) fn note(salvage: &mut Salvage, run: &mut Run, name: &str, left: &Left) -> Result<()> {
    salvage.note(name, left)?;
    for line in salvage.take_said() {
        run.line(&line);
    }
    Ok(())
}

/// As `cp -a`.
fn options(verbose: bool) -> Options {
    Options {
        recursive: true,
        links_as_links: true,
        force: true,
        no_clobber: false,
        verbose,
        devices: true,
        reflink: Reflink::Never,
        preserve: Preserve {
            mode: true,
            owner: true,
            times: true,
            xattrs: true,
            links: true,
        },
    }
}

/// The files and directories that have a name, but none that is left: directories first, and not what is in them.
fn orphans(mount: &Mount, reached: &BTreeSet<u64>) -> Vec<ObjectId> {
    let mut lost = Vec::new();
    let (mut at, mut failed) = (ObjectId(0), 0);
    // Past the last block of dnodes nothing is lost: reading on says that there is no more.
    while failed < FAILURES_MAX {
        match mount.objset().next_object(at) {
            Ok(None) => break,
            Ok(Some(id)) => {
                (at, failed) = (id, 0);
                if reached.contains(&id.0) || id == mount.root() {
                    continue;
                }
                lost.extend(mount.getattr(id).ok().filter(|attr| attr.links > 0));
            }
            Err(_) => {
                at = ObjectId(((at.0 + 1) / DNODES_PER_BLOCK + 1) * DNODES_PER_BLOCK - 1);
                failed += 1;
            }
        }
        caller::check();
    }
    let directories: BTreeSet<ObjectId> = lost
        .iter()
        .filter(|attr| attr.file_type() == Some(FileType::Directory))
        .map(|attr| attr.id)
        .collect();
    // What is in a directory that is left is found below it, unless its name there is lost.
    let is_top = |attr: &&zpl::Attr| !directories.contains(&attr.parent) || attr.parent == attr.id;
    let tops: Vec<ObjectId> = lost.iter().filter(is_top).map(|attr| attr.id).collect();
    match tops.is_empty() {
        // Directories in a circle.
        true => lost.iter().map(|attr| attr.id).collect(),
        false => tops,
    }
}

/// Blocks of dnodes in a row that cannot be read, after which no more are expected.
pub(super) const FAILURES_MAX: u32 = 10_000;

fn sum_up(run: &mut Run, salvage: &Salvage) -> Outcome {
    let counts = salvage.counts(false);
    let count = |word| counts.get(word).copied().unwrap_or(0);
    let (whole, partly, gone, names) = (
        count("whole"),
        count("partly"),
        count("gone"),
        count("names"),
    );
    run.bar.finish_and_clear();
    run.line(&format!(
        "{whole} whole, {partly} partly, {gone} gone, {names} directories with lost names"
    ));
    let before = salvage.counts(true);
    if !before.is_empty() {
        let count = |word| before.get(word).copied().unwrap_or(0);
        let (whole, partly, gone) = (count("whole"), count("partly"), count("gone"));
        run.line(&format!(
            "of earlier states: {whole} whole, {partly} partly, {gone} gone"
        ));
    }
    run.lines.flush();
    let is_all = !run.failed && partly + gone + names == 0;
    Fail::exit(u8::from(!is_all))
}
