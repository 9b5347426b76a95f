//! `ashift tar`: archives of files in pools and on this host, themselves in either.
//!
//! # Source
//! GNU tar 1.34 (options, what they mean, messages); what an archive looks like is crate `tarball`'s.

mod acl;
mod archive;
mod base_dir;
mod create;
mod extract;
mod list;
mod names;
mod options;
mod owners;

use admin::getopt::Parsed;
use base::{Error, ErrorKind, Result};
use service::Access;
use tarball::{Kind, Member, Reader};

use super::cp::{path_of, tree};
use super::paths::may_be_mounted;
use super::show::put;
use super::{Location, Paths, Run, copy};
use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use crate::progress::{count_ahead, count_ahead_in};
use archive::Archive;
use base_dir::BaseDir;
use create::{Creation, Source};
use extract::{Extraction, Target};
use names::{Chosen, Removed, shown};
use options::{LONG, Options, SHORT, Step, Task, old_style};

/// Exit code of everything that went wrong.
const FAILED: u8 = 2;
/// Bytes of a file that `-O` prints at a time.
const PIECE_BYTES: usize = 1 << 20;

pub(crate) const TAR: Command<Entry> = Command::parsed(
    "tar",
    "archives of files, there and here",
    "\
usage: ashift tar -c [-f ARCHIVE] [OPTION…] [-C DIRECTORY] FILE…
       ashift tar -x|-t [-f ARCHIVE] [OPTION…] [-C DIRECTORY] [MEMBER…]

Makes, extracts and lists archives. The archive, files and directories may be on this host or in
a pool (POOL/DATASET:/path, POOL/DATASET@SNAP:/path); - is stdin or stdout. The first word needs
no dash: ashift tar xf ARCHIVE.

  -v            say each name; of -t, and twice, all of a member
  -z            gzip; what is gzipped is known by itself when it is read
  -C DIRECTORY  the names that follow are in it
  -T FILE       names from a file, one a line (--null: ended by NUL)
  -X FILE       --exclude patterns from a file
  --exclude=PATTERN      leave out what matches, and what is below
  --no-recursion         directories without what is in them
  -h            archive what links lead to
  -S            leave out holes
  -p            permissions as in the archive (--no-same-permissions: as the umask lets them)
  --same-owner, -o       owners as in the archive, or the user who extracts
  -m            the times of files are now
  -k            keep files that are there: each is an error
  -O            the contents of files go to stdout
  --strip-components=N   names lose their first components
  --wildcards            members are patterns
  --numeric-owner        numbers of owners, not names
  --xattrs, --acls       extended attributes, POSIX ACLs (--xattrs-include=PATTERN: which)
",
    (SHORT, 0),
    tar,
)
.long(LONG)
.prepared(old_style);

fn tar(parsed: &Parsed) -> Outcome {
    let options = Options::of(parsed)?;
    if options.task == Task::Create && !options.steps.iter().any(is_name) {
        let text = "Cowardly refusing to create an empty archive";
        return Err(Fail::Usage(text.to_owned()));
    }
    let paths = Paths::new(access(&options));
    let mut run = Run::new("tar");
    copy::allow_deep_trees();
    run.show_progress(true);
    let outcome = match options.task {
        Task::Create => create(&paths, &options, &mut run),
        Task::Extract | Task::List => read(&paths, &options, &mut run),
    };
    if let Err(error) = outcome {
        run.complain(&options.archive, &error);
    }
    run.end_with(paths, FAILED)
}

fn is_name(step: &Step) -> bool {
    matches!(step, Step::Name(_))
}

/// What is done to pools: an archive is made in one, or files.
fn access(options: &Options) -> Access {
    let is_in_pool =
        |text: &str| may_be_mounted(text) || matches!(Location::parse(text), Location::Pool(..));
    let writes = match options.task {
        Task::List => false,
        Task::Create => is_in_pool(&options.archive),
        Task::Extract => options.steps.iter().any(|step| match step {
            Step::Enter(dir) => is_in_pool(dir),
            Step::Name(_) => false,
        }),
    };
    if writes { Access::Write } else { Access::Read }
}

/// Says what changes no exit code.
fn warn(run: &Run, text: &str) {
    run.bar.suspend(|| eprintln!("ashift tar: {text}"));
}

fn create(paths: &Paths, options: &Options, run: &mut Run) -> Result<()> {
    let archive = Archive::make(paths, &options.archive)?;
    let identity = archive.identity();
    let mut creation = Creation::new(run, options, archive.writer(options.gzip)?, identity);
    let mut dir = BaseDir::default();
    let mut removed = Removed::default();
    for step in &options.steps {
        let name = match step {
            Step::Enter(text) => {
                dir.enter(paths, text)?;
                continue;
            }
            Step::Name(name) => name,
        };
        let located = dir.files(paths, name);
        let Some(files) = creation.run.note(name, located) else {
            continue;
        };
        for (location, name) in files {
            let (safe, said) = removed.safe(&name, "member names");
            if let Some(said) = said {
                warn(creation.run, &said);
            }
            let safe = if safe.is_empty() { b"." } else { safe };
            add(paths, options, &location, safe, &mut creation)?;
        }
    }
    creation.end()
}

/// Archives an operand.
fn add(
    paths: &Paths,
    options: &Options,
    location: &Location,
    name: &[u8],
    creation: &mut Creation<'_>,
) -> Result<()> {
    let label = location.to_string();
    let path = path_of(location);
    let found = tree(paths, location).and_then(|tree| {
        let file = match options.follow {
            true => tree.resolve(&path)?,
            false => tree.resolve_link(&path)?,
        };
        Ok((tree, file))
    });
    let Some((tree, file)) = creation.run.note(&label, found) else {
        return Ok(());
    };
    if options.steps.iter().filter(|step| is_name(step)).count() == 1 {
        match location {
            Location::Host(path) => count_ahead(&creation.run.bar, path),
            Location::Pool(name, path) => {
                count_ahead_in(&creation.run.bar, &*paths.mount(name)?, path);
            }
        }
    }
    let source = Source {
        tree: &*tree,
        file,
        path,
        name: name.to_vec(),
        shown: label,
    };
    creation.add(&source, 0)
}

/// Lists or extracts.
fn read(paths: &Paths, options: &Options, run: &mut Run) -> Result<()> {
    let archive = Archive::find(paths, &options.archive)?;
    let mut reader = Reader::new(archive.reader(options.gzip, &run.bar)?);
    let mut names = Vec::new();
    // For each name the directory that it is extracted into; without names, the last one.
    let mut into = Vec::new();
    let mut dir = BaseDir::default();
    let mut targets = Vec::new();
    for step in &options.steps {
        match step {
            Step::Enter(text) => {
                dir.enter(paths, text)?;
            }
            Step::Name(name) => {
                if into.is_empty() || targets.last() != Some(&dir) {
                    targets.push(dir.clone());
                }
                names.push(name.clone());
                into.push(targets.len() - 1);
            }
        }
    }
    if targets.is_empty() {
        targets.push(dir);
    }
    let mut chosen = Chosen::new(names, options.wildcards);
    let outcome = match options.task {
        Task::Extract if !options.to_stdout => {
            let targets = targets.iter().map(|dir| {
                let location = dir.location();
                let tree = tree(paths, &location)?;
                let root = tree.resolve(&path_of(&location));
                let root = root.and_then(|root| tree.enter(&root));
                let root = root.map_err(|e| e.within(&location))?;
                Ok(Target::new(tree, root))
            });
            let mut targets = targets.collect::<Result<Vec<_>>>()?;
            let mut extraction = Extraction::new(run, options);
            let outcome = each(options, &mut chosen, &mut reader, |member, at, reader| {
                extraction.say(member);
                let target = at.map_or(0, |at| into[at]);
                extraction.member(&mut targets[target], member, reader)
            });
            targets.iter_mut().for_each(|target| extraction.end(target));
            extraction.sum_up();
            outcome
        }
        Task::Extract => each(options, &mut chosen, &mut reader, |member, _, reader| {
            print_contents(member, reader)
        }),
        Task::List | Task::Create => {
            let mut width = 0;
            each(options, &mut chosen, &mut reader, |member, _, _| {
                let line = match options.verbose {
                    0 => shown(&member.name),
                    _ => list::long(member, options.numeric, &mut width),
                };
                run.line(&line);
                Ok(())
            })
        }
    };
    if outcome.is_ok() {
        for name in chosen.missing() {
            run.say(&format!("{name}: Not found in archive"));
        }
    }
    outcome
}

/// Passes the chosen members to `act`, with the number of the operand that asked for it.
fn each<'r>(
    options: &Options,
    chosen: &mut Chosen,
    reader: &mut Reader<Box<dyn tarball::Input + 'r>>,
    mut act: impl FnMut(&Member, Option<usize>, &mut Reader<Box<dyn tarball::Input + 'r>>) -> Result<()>,
) -> Result<()> {
    while let Some(member) = reader.next()? {
        let asked = chosen.asks_for(&member.name);
        if chosen.is_limited() && asked.is_none() || options.excluded.has(&member.name) {
            continue;
        }
        act(&member, asked, reader)?;
    }
    // A program that writes into a pipe is not to be ended before it has written all.
    reader.drain()
}

/// `-O`
fn print_contents(
    member: &Member,
    reader: &mut Reader<Box<dyn tarball::Input + '_>>,
) -> Result<()> {
    if member.kind != Kind::File {
        return Ok(());
    }
    if member.is_sparse() && member.size > member.stored_bytes() + (1 << 40) {
        return Err(Error::new(ErrorKind::TooBig, "holes of more than 1 TiB"));
    }
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    let hole = (member.size, 0);
    for (offset, length) in member.map.iter().chain(std::iter::once(&hole)) {
        while at < *offset {
            let length = (offset - at).min(PIECE_BYTES as u64);
            piece[..length as usize].fill(0);
            put(&piece[..length as usize]);
            at += length;
        }
        while at < offset + length {
            let wanted = (offset + length - at).min(PIECE_BYTES as u64);
            let read = reader.data(&mut piece[..wanted as usize])?;
            put(&piece[..read]);
            at += read as u64;
        }
    }
    Ok(())
}
