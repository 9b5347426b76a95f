//! `ashift cp`: between this host and data sets, in any direction.
//!
//! # What it is
//! A walk over the source with an open directory on each side. Small files of one directory are
//! read ahead in parallel while the ones before them are written; large ones go through in pieces.
//! Holes stay holes. A file with several names is written once and linked.

use std::collections::BTreeMap;
use std::process::ExitCode;

use admin::getopt::{Flag, OptSpec};
use base::{BlockBuf, Error, ErrorKind, Result};
use indicatif::ProgressBar;
use zpl::FileType;

use super::host_tree::HostTree;
use super::pool_tree::PoolTree;
use super::session::may_be_mounted;
use super::tree::{Handle, Meta, Preserve, Tree};
use super::{Location, Run, Session, Usage, parse};
use crate::host::Access;
use crate::progress::{count_ahead, count_ahead_in};
use crate::say;

const USAGE: Usage = Usage {
    name: "cp",
    text: "\
usage: ashift cp [-adfpRrTv] SOURCE… DESTINATION

Copies files between this host and data sets, in any direction. A path in a pool is
POOL/DATASET:/path, in a snapshot (as a source) POOL/DATASET@SNAP:/path.

  -a  everything: -r with owners, modes, times, links, extended attributes, ACLs
  -r  directories with what is in them (-R is the same)
  -p  keep owners, modes and times
  -d  copy symbolic links as links (with -r, too)
  -f  replace a destination that is in the way
  -T  the destination is never a directory to copy into
  -v  say each file
",
    options: OptSpec {
        short: "adfpRrTv",
        long: &[
            ("archive", Flag::Short('a')),
            ("recursive", Flag::Short('r')),
        ],
    },
};

/// Bytes that are read and written at a time.
const PIECE_BYTES: usize = 4 << 20;
/// Files up to this size are read ahead.
const SMALL_BYTES: u64 = 256 << 10;
/// How many files are read ahead.
const AHEAD: usize = 128;

struct Options {
    recursive: bool,
    links_as_links: bool,
    force: bool,
    verbose: bool,
    preserve: Preserve,
}

struct Copy<'a> {
    options: Options,
    run: Run,
    source: &'a dyn Tree,
    target: &'a dyn Tree,
    is_same_tree: bool,
    /// What a file with several names was copied to.
    linked: BTreeMap<(u64, u64), Handle>,
    bar: ProgressBar,
    piece: BlockBuf,
}

/// A small file, read ahead.
type Ahead = Option<Result<Vec<u8>>>;

/// Runs `ashift cp`.
pub(crate) fn cp(args: &[String]) -> ExitCode {
    let parsed = match parse(&USAGE, args, 2) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let last = parsed.operands.last().expect("there are two");
    let writes = may_be_mounted(last) || matches!(Location::parse(last), Location::Pool(..));
    let all = parsed.has('a');
    let keep = all || parsed.has('p');
    let session = Session::new(if writes { Access::Write } else { Access::Read });
    let options = || Options {
        recursive: all || parsed.has('r') || parsed.has('R'),
        links_as_links: all || parsed.has('d') || parsed.has('r') || parsed.has('R'),
        force: parsed.has('f'),
        verbose: parsed.has('v'),
        preserve: Preserve {
            mode: keep,
            owner: keep,
            times: keep,
            xattrs: all,
            links: all,
        },
    };
    let mut run = Run::new("cp");
    let operands = parsed.operands.iter().map(|text| session.locate(text));
    let Some(mut operands) = run.note(last, operands.collect::<Result<Vec<_>>>()) else {
        return run.end(session);
    };
    let target = operands.pop().expect("there are two");
    let outcome = copy_all(
        &session,
        &operands,
        &target,
        &options,
        parsed.has('T'),
        &mut run,
    );
    run.note(&target.to_string(), outcome);
    run.end(session)
}

fn tree(session: &Session, location: &Location) -> Result<Box<dyn Tree>> {
    Ok(match location {
        Location::Host(_) => Box::new(HostTree),
        Location::Pool(name, _) => Box::new(PoolTree(session.mount(name)?)),
    })
}

fn path_of(location: &Location) -> String {
    match location {
        Location::Host(path) => path.to_string_lossy().into_owned(),
        Location::Pool(_, path) => path.clone(),
    }
}

/// The last name in a path; empty for a root.
fn last_name(path: &str) -> &str {
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

fn copy_all(
    session: &Session,
    sources: &[Location],
    target: &Location,
    options: &dyn Fn() -> Options,
    never_into: bool,
    run: &mut Run,
) -> Result<()> {
    let target_tree = tree(session, target)?;
    let target_path = path_of(target);
    let existing = optional(target_tree.resolve_link(&target_path))?;
    let is_dir = match &existing {
        Some(handle) => target_tree.meta(handle)?.file_type == FileType::Directory,
        None => false,
    };
    let into = existing.filter(|_| is_dir && !never_into);
    if sources.len() > 1 && into.is_none() {
        return Err(Error::new(
            ErrorKind::NotDirectory,
            "the destination is not a directory",
        ));
    }
    for location in sources {
        let source_tree = match tree(session, location) {
            Ok(tree) => tree,
            Err(e) => {
                run.complain(&location.to_string(), &e);
                continue;
            }
        };
        let bar = say::progress(None, true);
        match location {
            Location::Host(path) => count_ahead(&bar, path),
            Location::Pool(name, path) => {
                let mount = session.mount(name)?;
                count_ahead_in(&bar, &mount, path);
            }
        }
        let mut copy = Copy {
            options: options(),
            run: Run::new("cp"),
            source: &*source_tree,
            target: &*target_tree,
            is_same_tree: same_tree(location, target),
            linked: BTreeMap::new(),
            bar,
            piece: BlockBuf::zeroed(PIECE_BYTES),
        };
        let place = match &into {
            Some(dir) => (dir.clone(), last_name(&path_of(location)).to_owned()),
            None => parent_of(&*target_tree, &target_path)?,
        };
        let outcome = copy.operand(location, &place.0, place.1.as_bytes());
        copy.run.note(&location.to_string(), outcome);
        copy.bar.finish_and_clear();
        run.failed |= copy.run.failed;
    }
    Ok(())
}

fn same_tree(a: &Location, b: &Location) -> bool {
    match (a, b) {
        (Location::Host(_), Location::Host(_)) => true,
        (Location::Pool(a, _), Location::Pool(b, _)) => a == b,
        _ => false,
    }
}

/// The directory that a path is in, and its last name.
fn parent_of(tree: &dyn Tree, path: &str) -> Result<(Handle, String)> {
    let trimmed = path.trim_end_matches('/');
    let (dir, name) = trimmed.rsplit_once('/').unwrap_or(("", trimmed));
    let dir = match (dir, path.starts_with('/')) {
        ("", true) => "/",
        ("", false) => ".",
        _ => dir,
    };
    Ok((tree.resolve_link(dir)?, name.to_owned()))
}

fn optional<T>(outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

impl Copy<'_> {
    fn operand(&mut self, location: &Location, dir: &Handle, name: &[u8]) -> Result<()> {
        let path = path_of(location);
        let file = if self.options.links_as_links {
            self.source.resolve(&path)?
        } else {
            self.source.resolve_link(&path)?
        };
        let meta = self.source.meta(&file)?;
        if meta.file_type == FileType::Directory {
            if !self.options.recursive {
                let text = "-r not specified; omitting directory";
                return Err(Error::invalid(text));
            }
            if name.is_empty() {
                // The root of a data set, or `dir/.`: what is in it goes straight into `dir`.
                return self.entries(&file, dir, &location.to_string());
            }
        }
        self.node(&file, &meta, dir, name, &location.to_string(), None)
    }

    /// Copies one name with everything below it.
    fn node(
        &mut self,
        file: &Handle,
        meta: &Meta,
        dir: &Handle,
        name: &[u8],
        shown: &str,
        ahead: Ahead,
    ) -> Result<()> {
        if self.options.verbose {
            self.bar.suspend(|| println!("{shown}"));
        }
        self.bar.set_message(shown.to_owned());
        if meta.file_type == FileType::Directory {
            return self.directory(file, meta, dir, name, shown);
        }
        let is_linked = self.options.preserve.links && meta.links > 1;
        if is_linked && let Some(first) = self.linked.get(&meta.identity).cloned() {
            self.make_room(file, dir, name)?;
            return self.target.link(&first, dir, name);
        }
        let new = match meta.file_type {
            FileType::Regular => self.regular(file, meta, dir, name, ahead)?,
            FileType::Symlink => {
                self.make_room(file, dir, name)?;
                let target = self.source.readlink(file)?;
                self.target.make(dir, name, meta, &target)?
            }
            FileType::Socket => {
                eprintln!("ashift cp: {shown}: skipping a socket");
                return Ok(());
            }
            _ => {
                self.make_room(file, dir, name)?;
                self.target.make(dir, name, meta, b"")?
            }
        };
        self.attributes(file, &new, meta)?;
        if is_linked {
            self.linked.insert(meta.identity, new);
        }
        Ok(())
    }

    /// Removes what stands where a new file is to be made.
    fn make_room(&self, file: &Handle, dir: &Handle, name: &[u8]) -> Result<()> {
        let Some(old) = optional(self.target.child(dir, name))? else {
            return Ok(());
        };
        self.check_other(file, &old)?;
        let is_dir = self.target.meta(&old)?.file_type == FileType::Directory;
        if is_dir {
            return Err(Error::new(
                ErrorKind::IsDirectory,
                "a directory is in the way",
            ));
        }
        self.target.remove(dir, name, false)
    }

    fn check_other(&self, file: &Handle, old: &Handle) -> Result<()> {
        if self.is_same_tree && file == old {
            return Err(Error::invalid("source and destination are the same file"));
        }
        Ok(())
    }

    fn directory(
        &mut self,
        file: &Handle,
        meta: &Meta,
        dir: &Handle,
        name: &[u8],
        shown: &str,
    ) -> Result<()> {
        if self.is_same_tree && dir == file {
            return Err(Error::invalid("cannot copy a directory into itself"));
        }
        let new = match optional(self.target.child(dir, name))? {
            Some(old) if self.target.meta(&old)?.file_type == FileType::Directory => old,
            Some(_) => return Err(Error::new(ErrorKind::NotDirectory, "no directory")),
            None => {
                let writable = Meta {
                    mode: meta.mode | 0o700,
                    ..meta.clone()
                };
                self.target.make(dir, name, &writable, b"")?
            }
        };
        self.entries(file, &new, shown)?;
        self.attributes(file, &new, meta)
    }

    /// Copies what is in a directory.
    fn entries(&mut self, from: &Handle, to: &Handle, shown: &str) -> Result<()> {
        let names = self.source.list(from)?;
        for names in names.chunks(AHEAD) {
            let mut files = Vec::with_capacity(names.len());
            for name in names {
                let label = format!("{shown}/{}", String::from_utf8_lossy(name));
                let found = self.source.child(from, name).and_then(|file| {
                    let meta = self.source.meta(&file)?;
                    Ok((file, meta))
                });
                if let Some((file, meta)) = self.run.note(&label, found) {
                    files.push((name, label, file, meta));
                }
            }
            let ahead = read_ahead(files.iter().map(|(_, _, file, meta)| (file, meta)));
            for ((name, label, file, meta), ahead) in files.into_iter().zip(ahead) {
                let outcome = self.node(&file, &meta, to, name, &label, ahead);
                let is_fatal = outcome.as_ref().is_err_and(|e| {
                    use ErrorKind::{NoSpace, Quota, ReadOnly, Suspended};
                    matches!(e.kind(), NoSpace | Quota | ReadOnly | Suspended)
                });
                if is_fatal {
                    return outcome;
                }
                self.run.note(&label, outcome);
            }
        }
        Ok(())
    }

    fn regular(
        &mut self,
        file: &Handle,
        meta: &Meta,
        dir: &Handle,
        name: &[u8],
        ahead: Ahead,
    ) -> Result<Handle> {
        let new = match optional(self.target.child(dir, name))? {
            Some(old) => {
                self.check_other(file, &old)?;
                if self.target.meta(&old)?.file_type == FileType::Regular && !self.options.force {
                    self.target.open(&old, true)?.set_size(0)?;
                    old
                } else {
                    self.make_room(file, dir, name)?;
                    self.target.make(dir, name, meta, b"")?
                }
            }
            None => self.target.make(dir, name, meta, b"")?,
        };
        match ahead {
            Some(bytes) => {
                let bytes = bytes?;
                if !bytes.is_empty() {
                    self.target.open(&new, true)?.write_at(0, &bytes)?;
                }
                self.bar.inc(bytes.len() as u64);
            }
            None => self.content(file, &new, meta.size)?,
        }
        Ok(new)
    }

    /// Copies the data of a file piece by piece, and its holes by leaving them out.
    fn content(&mut self, file: &Handle, new: &Handle, size: u64) -> Result<()> {
        let mut from = self.source.open(file, false)?;
        let mut to = self.target.open(new, true)?;
        let mut at = 0;
        while let Some((start, end)) = from.next_data(at, size)? {
            at = start;
            while at < end {
                // Pieces end at multiples of their size, so that whole records are written.
                let length = PIECE_BYTES as u64 - at % PIECE_BYTES as u64;
                let length = length.min(end - at) as usize;
                let read = from.read_at(at, &mut self.piece[..length])?;
                if read == 0 {
                    break; // it became shorter meanwhile
                }
                to.write_at(at, &self.piece[..read])?;
                self.bar.inc(read as u64);
                at += read as u64;
            }
            at = at.max(end);
        }
        to.set_size(size)
    }

    fn attributes(&self, file: &Handle, new: &Handle, meta: &Meta) -> Result<()> {
        let preserve = self.options.preserve;
        if preserve.xattrs {
            for (name, value) in self.source.xattrs(file)? {
                self.target.set_xattr(new, &name, &value)?;
            }
        }
        if preserve.mode || preserve.owner || preserve.times {
            self.target.set_meta(new, meta, preserve)?;
        }
        Ok(())
    }
}

/// Reads the small files of the host in parallel.
fn read_ahead<'a>(files: impl Iterator<Item = (&'a Handle, &'a Meta)>) -> Vec<Ahead> {
    let wanted: Vec<_> = files
        .map(|(file, meta)| match file {
            Handle::Path(path)
                if meta.file_type == FileType::Regular
                    && meta.size <= SMALL_BYTES
                    && meta.used_bytes >= meta.size / 2 =>
            {
                Some(path.clone())
            }
            _ => None,
        })
        .collect();
    rt::parallel_map(wanted, |path| path.map(|path| Ok(std::fs::read(path)?)))
}
