//! `ashift mkdir`, `mv`, `ln`, `truncate`, `touch`, `chmod`, `chown`: in datasets.

use std::sync::Arc;

use admin::getopt::Parsed;
use base::{Error, ErrorKind, ObjectId, Result};
use service::Access;
use zpl::mount::Mount;
use zpl::{Attr, Create, FileType, RenameKind, SetAttr, Time};

use super::mode::{Mode, umask};
use super::show::top;
use super::walk::{Visit, Visitor, walk};
use super::{Paths, Run};
use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use crate::owner;

/// A path in a dataset, resolved into its parts.
pub(super) struct Target {
    pub(super) mount: Arc<Mount>,
    path: String,
}

impl Target {
    pub(super) fn find(paths: &Paths, text: &str) -> Result<Target> {
        let (mount, path) = paths.find(text)?;
        Ok(Target { mount, path })
    }

    /// The file, following links.
    pub(super) fn id(&self) -> Result<ObjectId> {
        self.mount.resolve(&self.path)
    }

    /// Its parent directory, and its name there.
    pub(super) fn place(&self) -> Result<(ObjectId, &[u8])> {
        self.mount.resolve_parent(self.path.as_bytes())
    }

    fn is_dir(&self) -> bool {
        let attr = self
            .mount
            .resolve(&self.path)
            .and_then(|id| self.mount.getattr(id));
        attr.is_ok_and(|attr| attr.is_directory())
    }
}

pub(super) fn owner() -> (u64, u64) {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    (uid.into(), gid.into())
}

/// Runs `work` on every operand.
pub(super) fn each(
    name: &'static str,
    parsed: &Parsed,
    work: impl Fn(&Paths, &str) -> Result<()>,
) -> Outcome {
    let paths = Paths::new(Access::Write);
    let mut run = Run::new(name);
    for operand in &parsed.operands {
        run.note(operand, work(&paths, operand));
    }
    run.end(paths)
}

pub(crate) const MKDIR: Command<Entry> = Command::parsed(
    "mkdir",
    "make directories",
    "usage: ashift mkdir [-p] [-m MODE] POOL/DATASET:/path…\n\n  -p  parents, too; no error if it exists\n  -m  permissions, as chmod has them\n",
    ("pm:", 1),
    mkdir,
);

fn mkdir(parsed: &Parsed) -> Outcome {
    each("mkdir", parsed, |paths, text| {
        let target = Target::find(paths, text)?;
        let mode = match parsed.value('m') {
            Some(text) => text.parse::<Mode>()?.apply(0o777 & !umask(), true),
            None => 0o777 & !umask(),
        };
        let (uid, gid) = owner();
        let create = Create { mode, uid, gid };
        // Whatever -m and the umask say, the owner can enter parents and fill them.
        let parent = Create {
            mode: (0o777 & !umask()) | 0o300,
            ..create
        };
        if !parsed.has('p') {
            let (dir, name) = target.place()?;
            return target.mount.mkdir(dir, name, &create).map(|_| ());
        }
        let mut dir = target.mount.root();
        let names = target.path.split('/').filter(|name| !name.is_empty());
        let mut names = names.peekable();
        while let Some(name) = names.next() {
            let create = if names.peek().is_none() {
                &create
            } else {
                &parent
            };
            dir = match target.mount.lookup(dir, name.as_bytes()) {
                Ok(attr) if attr.is_directory() => attr.id,
                Ok(_) => return Err(Error::new(ErrorKind::NotDirectory, name)),
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    target.mount.mkdir(dir, name.as_bytes(), create)?.id
                }
                Err(e) => return Err(e),
            };
        }
        Ok(())
    })
}

pub(crate) const TRUNCATE: Command<Entry> = Command::parsed(
    "truncate",
    "change the size of files",
    "usage: ashift truncate -s SIZE POOL/DATASET:/path…\n\n  -s  the new size, with K, M, G, T if you like; files that are not there are made\n",
    ("s:", 1),
    truncate,
);

fn truncate(parsed: &Parsed) -> Outcome {
    each("truncate", parsed, |paths, text| {
        let size = parsed
            .value('s')
            .ok_or_else(|| Error::invalid("-s SIZE is missing"))?;
        let size = admin::number::parse_number(size)?;
        let target = Target::find(paths, text)?;
        let id = make_if_missing(&target)?;
        target.mount.truncate(id, size)
    })
}

fn make_if_missing(target: &Target) -> Result<ObjectId> {
    match target.id() {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let (dir, name) = target.place()?;
            let (uid, gid) = owner();
            Ok(target
                .mount
                .create_file(
                    dir,
                    name,
                    &Create {
                        mode: 0o666 & !umask(),
                        uid,
                        gid,
                    },
                )?
                .id)
        }
        other => other,
    }
}

pub(crate) const TOUCH: Command<Entry> = Command::parsed(
    "touch",
    "make files, or change their times",
    "usage: ashift touch POOL/DATASET:/path…\n",
    ("", 1),
    touch,
);

fn touch(parsed: &Parsed) -> Outcome {
    each("touch", parsed, |paths, text| {
        let target = Target::find(paths, text)?;
        let id = make_if_missing(&target)?;
        let now = Some(Time::now());
        target.mount.setattr(
            id,
            &SetAttr {
                atime: now,
                mtime: now,
                ..SetAttr::default()
            },
        )?;
        Ok(())
    })
}

pub(crate) const CHMOD: Command<Entry> = Command::parsed(
    "chmod",
    "change permissions",
    "\
usage: ashift chmod [-R] MODE POOL/DATASET:/path…

MODE is octal or symbolic: 755, u+x, go-w,a=rX.   -R  everything below directories, too
",
    ("R", 2),
    chmod,
)
.prepared(mark_mode);

/// A mode may begin with a minus, and is not an option then.
fn mark_mode(args: &[String]) -> Vec<String> {
    let is_mode = |arg: &String| arg.starts_with('-') && arg.parse::<Mode>().is_ok();
    let at = args.iter().position(|arg| is_mode(arg) && arg != "-R");
    let mut args = args.to_vec();
    if let Some(at) = at {
        args.insert(at, "--".to_owned());
    }
    args
}

fn chmod(parsed: &Parsed) -> Outcome {
    change_attr("chmod", parsed, |text| {
        let mode: Mode = text.parse()?;
        Ok(move |attr: &Attr| SetAttr {
            mode: Some(mode.apply(attr.mode & 0o7777, attr.is_directory())),
            ..SetAttr::default()
        })
    })
}

pub(crate) const CHOWN: Command<Entry> = Command::parsed(
    "chown",
    "change owners",
    "\
usage: ashift chown [-R] OWNER[:[GROUP]]|:GROUP POOL/DATASET:/path…

Names are the host's.   -R  everything below directories, too
",
    ("R", 2),
    chown,
);

fn chown(parsed: &Parsed) -> Outcome {
    change_attr("chown", parsed, |text| {
        let (uid, gid) = owner::parse(text)?;
        Ok(move |_: &Attr| SetAttr {
            uid,
            gid,
            ..SetAttr::default()
        })
    })
}

/// Runs `chmod` or `chown`: `read` turns the first operand into the change to make to each file.
fn change_attr<F: Fn(&Attr) -> SetAttr>(
    name: &'static str,
    parsed: &Parsed,
    read: impl Fn(&str) -> Result<F>,
) -> Outcome {
    let paths = Paths::new(Access::Write);
    let mut run = Run::new(name);
    let (first, rest) = parsed.operands.split_first().expect("there are two");
    let Some(change) = run.note(first, read(first)) else {
        return run.end(paths);
    };
    for operand in paths.expand(rest) {
        let found = paths.find_file(&operand, true);
        let Some((mount, id)) = run.note(&operand, found) else {
            continue;
        };
        let mut visitor = Change {
            fs: &mount,
            change: &change,
            below: parsed.has('R'),
        };
        run.show_progress(false);
        walk(&mount, id, top(&operand), &mut run, &mut visitor);
    }
    run.end(paths)
}

struct Change<'a, F> {
    fs: &'a Mount,
    change: &'a F,
    below: bool,
}

impl<F: Fn(&Attr) -> SetAttr> Visitor for Change<'_, F> {
    fn enter(&mut self, visit: &Visit<'_>, run: &mut Run) -> Result<bool> {
        run.bar.inc(1);
        // Below the top, links are neither followed nor changed.
        if visit.depth == 0 || visit.attr.file_type() != Some(FileType::Symlink) {
            self.fs.setattr(visit.attr.id, &(self.change)(visit.attr))?;
        }
        Ok(self.below)
    }
}

pub(crate) const MV: Command<Entry> = Command::parsed(
    "mv",
    "rename files",
    "usage: ashift mv SOURCE… DESTINATION, all in one data set\n",
    ("", 2),
    mv,
);

fn mv(parsed: &Parsed) -> Outcome {
    let paths = Paths::new(Access::Write);
    let mut run = Run::new("mv");
    let (last, sources) = parsed.operands.split_last().expect("there are two");
    let sources = paths.expand(sources);
    for source in &sources {
        run.note(source, rename(&paths, source, last, sources.len() > 1));
    }
    run.end(paths)
}

fn rename(paths: &Paths, source: &str, target: &str, must_be_dir: bool) -> Result<()> {
    let (source, target) = (Target::find(paths, source)?, Target::find(paths, target)?);
    if !Arc::ptr_eq(&source.mount, &target.mount) {
        let text = "another data set: use `ashift cp -a`, then `ashift rm -r`";
        return Err(Error::invalid(text));
    }
    let (from, name) = source.place()?;
    let (to, new_name) = if target.is_dir() {
        (target.id()?, name)
    } else if must_be_dir {
        return Err(Error::new(ErrorKind::NotDirectory, "the destination"));
    } else {
        target.place()?
    };
    source
        .mount
        .rename(from, name, to, new_name, RenameKind::default())
}

pub(crate) const LN: Command<Entry> = Command::parsed(
    "ln",
    "make links",
    "usage: ashift ln POOL/DATASET:/file POOL/DATASET:/name\n       ashift ln -s TARGET POOL/DATASET:/name\n",
    ("s", 2),
    ln,
);

fn ln(parsed: &Parsed) -> Outcome {
    let paths = Paths::new(Access::Write);
    let mut run = Run::new("ln");
    let [what, name] = &parsed.operands[..] else {
        return Err(Fail::Usage(String::new()));
    };
    let outcome = Target::find(&paths, name).and_then(|target| {
        let (mut dir, mut last) = target.place().unwrap_or((target.mount.root(), b""));
        if target.is_dir() {
            dir = target.id()?;
            last = what.rsplit('/').next().unwrap_or(what).as_bytes();
        }
        if parsed.has('s') {
            let (uid, gid) = owner();
            let create = Create {
                mode: 0o777,
                uid,
                gid,
            };
            return target
                .mount
                .symlink(dir, last, what.as_bytes(), &create)
                .map(|_| ());
        }
        let source = Target::find(&paths, what)?;
        if !Arc::ptr_eq(&source.mount, &target.mount) {
            return Err(Error::new(ErrorKind::CrossDevice, "another data set"));
        }
        target.mount.link(source.id()?, dir, last).map(|_| ())
    });
    run.note(name, outcome);
    run.end(paths)
}
