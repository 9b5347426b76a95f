//! `ashift mkdir`, `mv`, `ln`, `rm`, `rmdir`, `truncate`, `touch`, `chmod`, `chown`: in data sets.

use std::process::ExitCode;
use std::rc::Rc;

use admin::getopt::OptSpec;
use base::{Error, ErrorKind, ObjectId, Result};
use zpl::mount::Mount;
use zpl::{Create, FIRST_ENTRY, FileType, RenameKind, SetAttr, Time};

use super::{Location, Run, Session, Usage, parse};
use crate::host::Access;

/// A path in a data set, taken apart.
struct Target {
    mount: Rc<Mount>,
    path: String,
}

impl Target {
    fn find(session: &Session, text: &str) -> Result<Target> {
        match session.locate(text)? {
            Location::Pool(name, path) => Ok(Target {
                mount: session.mount(&name)?,
                path,
            }),
            Location::Host(_) => {
                let text = "not a path in a pool (POOL/DATASET:/path): use the host's own tools";
                Err(Error::invalid(text))
            }
        }
    }

    fn id(&self) -> Result<ObjectId> {
        self.mount.resolve(&self.path)
    }

    /// The directory it is in, and its name there.
    fn place(&self) -> Result<(ObjectId, &[u8])> {
        self.mount.resolve_parent(self.path.as_bytes())
    }

    fn is_dir(&self) -> bool {
        let attr = self
            .mount
            .resolve_link(&self.path)
            .and_then(|id| self.mount.getattr(id));
        attr.is_ok_and(|attr| attr.is_directory())
    }
}

fn owner() -> (u64, u64) {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    (uid.into(), gid.into())
}

/// Runs `work` on every operand.
fn each(
    usage: &Usage,
    args: &[String],
    work: impl Fn(&admin::getopt::Parsed, &Session, &str) -> Result<()>,
) -> ExitCode {
    let parsed = match parse(usage, args, 1) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let session = Session::new(Access::Write);
    let mut run = Run::new(usage.name);
    for operand in &parsed.operands {
        run.note(operand, work(&parsed, &session, operand));
    }
    run.end(session)
}

fn octal(text: &str) -> Result<u32> {
    let mode = u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| Error::invalid(format!("'{text}' is not an octal mode")))
}

/// Runs `ashift mkdir`.
pub(crate) fn mkdir(args: &[String]) -> ExitCode {
    let usage = Usage {
        name: "mkdir",
        text: "usage: ashift mkdir [-p] [-m MODE] POOL/DATASET:/path…\n\n  -p  parents, too; no error if it exists\n  -m  octal permissions\n",
        options: OptSpec {
            short: "pm:",
            long: &[],
        },
    };
    each(&usage, args, |parsed, session, text| {
        let target = Target::find(session, text)?;
        let mode = parsed.value('m').map_or(Ok(0o755), octal)?;
        let (uid, gid) = owner();
        let create = Create { mode, uid, gid };
        if !parsed.has('p') {
            let (dir, name) = target.place()?;
            return target.mount.mkdir(dir, name, &create).map(|_| ());
        }
        let mut dir = target.mount.root();
        for name in target.path.split('/').filter(|name| !name.is_empty()) {
            dir = match target.mount.lookup(dir, name.as_bytes()) {
                Ok(attr) if attr.is_directory() => attr.id,
                Ok(_) => return Err(Error::new(ErrorKind::NotDirectory, name)),
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    target.mount.mkdir(dir, name.as_bytes(), &create)?.id
                }
                Err(e) => return Err(e),
            };
        }
        Ok(())
    })
}

/// Runs `ashift rmdir`.
pub(crate) fn rmdir(args: &[String]) -> ExitCode {
    let usage = Usage {
        name: "rmdir",
        text: "usage: ashift rmdir POOL/DATASET:/path…\n",
        options: OptSpec {
            short: "",
            long: &[],
        },
    };
    each(&usage, args, |_, session, text| {
        let target = Target::find(session, text)?;
        let (dir, name) = target.place()?;
        target.mount.rmdir(dir, name)
    })
}

/// Runs `ashift rm`.
pub(crate) fn rm(args: &[String]) -> ExitCode {
    let usage = Usage {
        name: "rm",
        text: "usage: ashift rm [-rRf] POOL/DATASET:/path…\n\n  -r  directories with what is in them\n  -f  no word about what is not there\n",
        options: OptSpec {
            short: "rRf",
            long: &[],
        },
    };
    each(&usage, args, |parsed, session, text| {
        let target = Target::find(session, text)?;
        let recursive = parsed.has('r') || parsed.has('R');
        let outcome = target.place().and_then(|(dir, name)| {
            let attr = target.mount.lookup(dir, name)?;
            remove(&target.mount, dir, name, attr.is_directory(), recursive)
        });
        match outcome {
            Err(e) if e.kind() == ErrorKind::NotFound && parsed.has('f') => Ok(()),
            other => other,
        }
    })
}

fn remove(fs: &Mount, dir: ObjectId, name: &[u8], is_dir: bool, recursive: bool) -> Result<()> {
    if !is_dir {
        return fs.unlink(dir, name);
    }
    if !recursive {
        return Err(Error::new(ErrorKind::IsDirectory, "a directory"));
    }
    empty(fs, fs.lookup(dir, name)?.id)?;
    fs.rmdir(dir, name)
}

/// So many names of a directory are in memory at a time.
const NAMES_AT_ONCE: usize = 1000;

/// Removes what is in a directory.
fn empty(fs: &Mount, dir: ObjectId) -> Result<()> {
    let mut offset = FIRST_ENTRY;
    loop {
        let mut entries = Vec::new();
        fs.readdir(dir, offset, |entry| {
            entries.push(entry.clone());
            entries.len() < NAMES_AT_ONCE
        })?;
        let Some(last) = entries.last() else {
            return Ok(());
        };
        offset = last.next_offset;
        for entry in entries {
            let is_dir = entry.file_type == Some(FileType::Directory);
            remove(fs, dir, &entry.name, is_dir, true)?;
        }
    }
}

/// Runs `ashift truncate`.
pub(crate) fn truncate(args: &[String]) -> ExitCode {
    let usage = Usage {
        name: "truncate",
        text: "usage: ashift truncate -s SIZE POOL/DATASET:/path…\n\n  -s  the new size, with K, M, G, T if you like; files that are not there are made\n",
        options: OptSpec {
            short: "s:",
            long: &[],
        },
    };
    each(&usage, args, |parsed, session, text| {
        let size = parsed
            .value('s')
            .ok_or_else(|| Error::invalid("-s SIZE is missing"))?;
        let size = admin::number::parse_number(size)?;
        let target = Target::find(session, text)?;
        let id = make_if_missing(&target)?;
        target.mount.truncate(id, size)
    })
}

fn make_if_missing(target: &Target) -> Result<ObjectId> {
    match target.mount.resolve_link(&target.path) {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let (dir, name) = target.place()?;
            let (uid, gid) = owner();
            Ok(target
                .mount
                .create_file(
                    dir,
                    name,
                    &Create {
                        mode: 0o644,
                        uid,
                        gid,
                    },
                )?
                .id)
        }
        other => other,
    }
}

/// Runs `ashift touch`.
pub(crate) fn touch(args: &[String]) -> ExitCode {
    let usage = Usage {
        name: "touch",
        text: "usage: ashift touch POOL/DATASET:/path…\n",
        options: OptSpec {
            short: "",
            long: &[],
        },
    };
    each(&usage, args, |_, session, text| {
        let target = Target::find(session, text)?;
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

/// Runs `ashift chmod`.
pub(crate) fn chmod(args: &[String]) -> ExitCode {
    let usage = Usage {
        name: "chmod",
        text: "usage: ashift chmod OCTAL-MODE POOL/DATASET:/path…\n",
        options: OptSpec {
            short: "",
            long: &[],
        },
    };
    change_attr(&usage, args, |mode, set| {
        set.mode = Some(octal(mode)?);
        Ok(())
    })
}

/// Runs `ashift chown`.
pub(crate) fn chown(args: &[String]) -> ExitCode {
    let usage = Usage {
        name: "chown",
        text: "usage: ashift chown UID[:GID] POOL/DATASET:/path…\n",
        options: OptSpec {
            short: "",
            long: &[],
        },
    };
    change_attr(&usage, args, |who, set| {
        let (uid, gid) = who.split_once(':').unwrap_or((who, ""));
        let number = |text: &str| -> Result<Option<u64>> {
            if text.is_empty() {
                return Ok(None);
            }
            let id = text.parse::<u32>().map_err(|_| {
                Error::invalid(format!("'{text}' is not a number (names are the host's)"))
            })?;
            Ok(Some(id.into()))
        };
        (set.uid, set.gid) = (number(uid)?, number(gid)?);
        Ok(())
    })
}

fn change_attr(
    usage: &Usage,
    args: &[String],
    what: impl Fn(&str, &mut SetAttr) -> Result<()>,
) -> ExitCode {
    let parsed = match parse(usage, args, 2) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let session = Session::new(Access::Write);
    let mut run = Run::new(usage.name);
    let (first, rest) = parsed.operands.split_first().expect("there are two");
    let mut set = SetAttr::default();
    if run.note(first, what(first, &mut set)).is_some() {
        for text in rest {
            let outcome = Target::find(&session, text)
                .and_then(|target| target.mount.setattr(target.id()?, &set).map(|_| ()));
            run.note(text, outcome);
        }
    }
    run.end(session)
}

/// Runs `ashift mv`.
pub(crate) fn mv(args: &[String]) -> ExitCode {
    let usage = Usage {
        name: "mv",
        text: "usage: ashift mv SOURCE… DESTINATION, all in one data set\n",
        options: OptSpec {
            short: "",
            long: &[],
        },
    };
    let parsed = match parse(&usage, args, 2) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let session = Session::new(Access::Write);
    let mut run = Run::new("mv");
    let (last, sources) = parsed.operands.split_last().expect("there are two");
    for source in sources {
        run.note(source, rename(&session, source, last, sources.len() > 1));
    }
    run.end(session)
}

fn rename(session: &Session, source: &str, target: &str, must_be_dir: bool) -> Result<()> {
    let (source, target) = (
        Target::find(session, source)?,
        Target::find(session, target)?,
    );
    if !Rc::ptr_eq(&source.mount, &target.mount) {
        let text = "another data set: use `ashift cp -a`, then `ashift rm -r`";
        return Err(Error::invalid(text));
    }
    let (from, name) = source.place()?;
    let (to, new_name) = if target.is_dir() {
        (target.mount.resolve_link(&target.path)?, name)
    } else if must_be_dir {
        return Err(Error::new(ErrorKind::NotDirectory, "the destination"));
    } else {
        target.place()?
    };
    source
        .mount
        .rename(from, name, to, new_name, RenameKind::default())
}

/// Runs `ashift ln`.
pub(crate) fn ln(args: &[String]) -> ExitCode {
    let usage = Usage {
        name: "ln",
        text: "usage: ashift ln POOL/DATASET:/file POOL/DATASET:/name\n       ashift ln -s TARGET POOL/DATASET:/name\n",
        options: OptSpec {
            short: "s",
            long: &[],
        },
    };
    let parsed = match parse(&usage, args, 2) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let session = Session::new(Access::Write);
    let mut run = Run::new("ln");
    let [what, name] = &parsed.operands[..] else {
        eprint!("{}", usage.text);
        return ExitCode::from(2);
    };
    let outcome = Target::find(&session, name).and_then(|target| {
        let (mut dir, mut last) = target.place().unwrap_or((target.mount.root(), b""));
        if target.is_dir() {
            dir = target.mount.resolve_link(&target.path)?;
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
        let source = Target::find(&session, what)?;
        if !Rc::ptr_eq(&source.mount, &target.mount) {
            return Err(Error::new(ErrorKind::CrossDevice, "another data set"));
        }
        target.mount.link(source.id()?, dir, last).map(|_| ())
    });
    run.note(name, outcome);
    run.end(session)
}
