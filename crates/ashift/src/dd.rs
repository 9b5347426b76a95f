//! `dd`: copies blocks between files, providers and pools.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result};
use geom::disk::OpenMode;
use machine::{Hold, World};
use measure::dd::ends::{Device, Null, Random, Zeros};
use measure::dd::host::HostFile;
use measure::dd::{
    Counts, Flags, Flavour, HELP, Input, Observer, Operands, Output, Status, SyncAtEnd, copy,
    progress_line,
};
use service::Access;
use zpl::Create;
use zpl::mount::Mount;

use crate::caller::{self, Stream, caller};
use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use crate::files::{Location, Paths};
use crate::gpart::device;

/// Interval of `status=progress`, in ns.
const PROGRESS_NS: u64 = 1_000_000_000;

pub(crate) const DD: Command<Entry> = Command::explained(
    "dd",
    "copy blocks between files, providers and pools",
    HELP,
    run,
)
.tool();

fn run(args: &[String]) -> Outcome {
    let world = crate::world::entered();
    let mut flavour = if world.is_machine() {
        Flavour::FreeBsd
    } else {
        Flavour::Gnu
    };
    let mut consents = false;
    let mut operands = Vec::new();
    for arg in args {
        match arg.as_str() {
            "--freebsd" => flavour = Flavour::FreeBsd,
            "--gnu" => flavour = Flavour::Gnu,
            "--yes-write-to-device" => consents = true,
            _ => operands.push(arg.as_str()),
        }
    }
    let operands = Operands::parse(&operands, flavour);
    let operands = operands.map_err(|error| Fail::Failed(error.to_string()))?;
    let paths = Paths::new(access(&world, &operands));
    let mut places = Places {
        world: &world,
        paths: &paths,
    };
    let done = places.copy(&operands, consents);
    let done = done.map_err(|fail| fail.say("dd: "));
    paths.close()?;
    done
}

/// Pools are opened for writing when the output may be in one.
fn access(world: &World, operands: &Operands) -> Access {
    let Some(output) = &operands.output else {
        return Access::Read;
    };
    let in_machine = world.is_machine() && output.starts_with('/') && !output.starts_with("/dev/");
    match Location::parse(output) {
        Location::Pool(..) => Access::Write,
        Location::Host(_) if in_machine => Access::Write,
        Location::Host(_) => Access::Read,
    }
}

/// Resolves operands.
struct Places<'a> {
    world: &'a World,
    paths: &'a Paths,
}

impl Places<'_> {
    /// Copies, and reports the outcome.
    fn copy(&mut self, operands: &Operands, consents: bool) -> Outcome {
        let find = |name: &Option<String>| name.as_deref().map(|n| self.find(n)).transpose();
        // A pool that cannot be opened is not the same as a missing file: report it in full.
        let (from, to) = (find(&operands.input)?, find(&operands.output)?);
        let input = self.input(operands, from);
        let mut input = input.map_err(|error| operands.open_error(true, &error))?;
        let _held = self.hold(operands, &to, consents)?;
        let output = self.output(operands, to);
        let mut output = output.map_err(|error| operands.open_error(false, &error))?;
        let mut progress = Progress::new(operands);
        let mut counts = Counts::default();
        let outcome = copy(
            operands,
            &mut *input,
            &mut *output,
            &mut counts,
            &mut progress,
        );
        let elapsed_ns = rt::now_ns() - progress.start_ns;
        progress.end_line();
        let outcome = outcome.map_err(|text| Fail::Failed(text).say("dd: "));
        eprint!(
            "{}",
            counts.summary(operands.flavour, operands.status, elapsed_ns)
        );
        outcome
    }

    /// Holds the output if it is a provider, or may be one (a file or device of this host).
    fn hold(
        &self,
        operands: &Operands,
        to: &Option<Target>,
        consents: bool,
    ) -> Result<Option<Hold>> {
        let Some(name) = operands.output.as_deref() else {
            return Ok(None);
        };
        let is_device = match to {
            Some(Target::Provider) => true,
            Some(Target::Host) => !self.world.is_machine() && Path::new(name).exists(),
            _ => false,
        };
        is_device
            .then(|| device::hold(self.world, name, consents))
            .transpose()
    }

    fn input(&self, operands: &Operands, from: Option<Target>) -> Result<Box<dyn Input>> {
        let flags = operands.input_flags;
        let (Some(name), Some(from)) = (operands.input.as_deref(), from) else {
            return Ok(Box::new(Stdin::new()?));
        };
        Ok(match from {
            Target::Zeros => Box::new(Zeros),
            Target::Random => Box::new(Random::new()),
            Target::Null => Box::new(Null),
            Target::Provider => {
                let provider = self.world.open(name, OpenMode::ReadOnly)?;
                Box::new(Device::new(provider, flags))
            }
            Target::Host => Box::new(HostFile::input(Path::new(name), flags)?),
            Target::Pool(dataset, path) => {
                let mount = self.paths.mount(&dataset)?;
                let id = mount.resolve(&path)?;
                Box::new(PoolFile::new(mount, id, flags)?)
            }
        })
    }

    fn output(&self, operands: &Operands, to: Option<Target>) -> Result<Box<dyn Output>> {
        let (Some(name), Some(to)) = (operands.output.as_deref(), to) else {
            return Ok(Box::new(HostFile::standard(
                caller().output_file(Stream::Out)?,
            )?));
        };
        Ok(match to {
            Target::Zeros | Target::Random | Target::Null => Box::new(Null),
            Target::Provider => {
                if operands.conversions.excl {
                    return Err(Error::new(ErrorKind::Exists, name));
                }
                let provider = self.world.open(name, OpenMode::ReadWrite)?;
                Box::new(Device::new(provider, operands.output_flags))
            }
            Target::Host => Box::new(HostFile::output(Path::new(name), operands)?),
            Target::Pool(dataset, path) => {
                let mount = self.paths.mount(&dataset)?;
                Box::new(PoolFile::create(mount, &path, operands)?)
            }
        })
    }

    /// Whether a name looks like one of this machine's drives or a part of one (`ada9p1`). If none of that
    /// name exists, it was mistyped, and must not create a file on the host.
    fn is_drive_name(&self, name: &str) -> bool {
        let is_unit = |c: char| c.is_ascii_digit();
        let entries = self.world.running().map(machine::Running::entries);
        entries.unwrap_or_default().iter().any(|entry| {
            let letters = entry.name.trim_end_matches(is_unit);
            let rest = name.strip_prefix(letters).unwrap_or_default();
            rest.starts_with(is_unit)
        })
    }

    /// What an operand names. In a machine, names below `/dev` and names that look like drives are its
    /// providers, whether they exist or not; so is the name of any existing provider; other paths may lead
    /// into its pools.
    fn find(&self, name: &str) -> Result<Target> {
        if let Location::Pool(dataset, path) = Location::parse(name) {
            return Ok(Target::Pool(dataset, path));
        }
        if !self.world.is_machine() {
            let is_provider =
                !Path::new(name).exists() && self.world.open(name, OpenMode::Inspect).is_ok();
            return Ok(if is_provider {
                Target::Provider
            } else {
                Target::Host
            });
        }
        match name {
            "/dev/zero" => return Ok(Target::Zeros),
            "/dev/random" | "/dev/urandom" => return Ok(Target::Random),
            "/dev/null" => return Ok(Target::Null),
            _ => {}
        }
        let is_relative = !name.starts_with(['/', '.']);
        if name.starts_with("/dev/") || self.is_drive_name(name) {
            return Ok(Target::Provider);
        }
        if is_relative && self.world.open(name, OpenMode::Inspect).is_ok() {
            return Ok(Target::Provider);
        }
        Ok(match self.paths.locate(name)? {
            Location::Pool(dataset, path) => Target::Pool(dataset, path),
            Location::Host(_) => Target::Host,
        })
    }
}

/// What an operand names.
enum Target {
    Zeros,
    Random,
    Null,
    Provider,
    Host,
    Pool(String, String),
}

/// A file in a dataset.
struct PoolFile {
    mount: Arc<Mount>,
    id: ObjectId,
    offset: u64,
    size: u64,
    flags: Flags,
    ends_in_hole: bool,
}

impl PoolFile {
    fn new(mount: Arc<Mount>, id: ObjectId, flags: Flags) -> Result<PoolFile> {
        let attr = mount.getattr(id)?;
        if attr.is_directory() {
            return Err(Error::new(ErrorKind::IsDirectory, "a directory"));
        }
        Ok(PoolFile {
            mount,
            id,
            offset: 0,
            size: attr.size,
            flags,
            ends_in_hole: false,
        })
    }

    fn create(mount: Arc<Mount>, path: &str, operands: &Operands) -> Result<PoolFile> {
        let conversions = operands.conversions;
        let found = match mount.resolve(path) {
            Ok(_) if conversions.excl => return Err(Error::new(ErrorKind::Exists, path)),
            Err(e) if e.kind() == ErrorKind::NotFound && !conversions.nocreat => {
                let (dir, name) = mount.resolve_parent(path.as_bytes())?;
                let create = Create {
                    mode: 0o644,
                    uid: rustix::process::geteuid().as_raw().into(),
                    gid: rustix::process::getegid().as_raw().into(),
                };
                mount.create_file(dir, name, &create)?.id
            }
            other => other?,
        };
        let file = PoolFile::new(mount, found, operands.output_flags)?;
        if operands.truncates() && (file.size > 0 || operands.seek_bytes() > 0) {
            file.mount.truncate(file.id, operands.seek_bytes())?;
        }
        Ok(file)
    }
}

impl Input for PoolFile {
    fn read(&mut self, block: &mut [u8]) -> Result<usize> {
        let read = self.mount.read(self.id, self.offset, block)?;
        self.offset += read as u64;
        Ok(read)
    }

    fn skip(&mut self, bytes: u64) -> Result<u64> {
        let skipped = bytes.min(self.size.saturating_sub(self.offset));
        self.offset += skipped;
        Ok(skipped)
    }
}

impl Output for PoolFile {
    fn write(&mut self, block: &[u8]) -> Result<usize> {
        let syncs = self.flags.sync || self.flags.dsync;
        if self.flags.append {
            self.offset = self.mount.append(self.id, block)?;
            if syncs {
                self.mount.fsync(self.id)?;
            }
        } else if syncs {
            self.mount.write_sync(self.id, self.offset, block)?;
        } else {
            self.mount.write(self.id, self.offset, block)?;
        }
        self.offset += block.len() as u64;
        self.ends_in_hole = false;
        Ok(block.len())
    }

    fn seek(&mut self, bytes: u64) -> Result<()> {
        self.offset = self.offset.saturating_add(bytes);
        Ok(())
    }

    fn leave_hole(&mut self, bytes: u64) -> Result<()> {
        self.ends_in_hole = true;
        self.seek(bytes)
    }

    fn finish(&mut self, sync: SyncAtEnd) -> Result<()> {
        if self.ends_in_hole && self.mount.getattr(self.id)?.size < self.offset {
            self.mount.truncate(self.id, self.offset)?;
        }
        if sync == SyncAtEnd::No {
            Ok(())
        } else {
            self.mount.fsync(self.id)
        }
    }
}

/// Reports progress on stderr.
struct Progress<'a> {
    operands: &'a Operands,
    start_ns: u64,
    told_ns: u64,
    is_in_line: bool,
}

impl Progress<'_> {
    fn new(operands: &Operands) -> Progress<'_> {
        let start_ns = rt::now_ns();
        Progress {
            operands,
            start_ns,
            told_ns: start_ns,
            is_in_line: false,
        }
    }

    /// Ends the line of `status=progress`.
    fn end_line(&mut self) {
        if std::mem::take(&mut self.is_in_line) {
            eprintln!();
        }
    }
}

impl Observer for Progress<'_> {
    fn complain(&mut self, text: &str) {
        self.end_line();
        eprintln!("dd: {text}");
    }

    fn passed_over(&mut self, counts: &Counts) {
        let elapsed_ns = rt::now_ns() - self.start_ns;
        let operands = self.operands;
        eprint!(
            "{}",
            counts.summary(operands.flavour, operands.status, elapsed_ns)
        );
    }

    fn block_done(&mut self, counts: &Counts) {
        caller::check();
        if self.operands.status != Status::Progress {
            return;
        }
        let now = rt::now_ns();
        if now - self.told_ns < PROGRESS_NS {
            return;
        }
        self.told_ns = now;
        let line = progress_line(self.operands.flavour, counts.bytes, now - self.start_ns);
        // On a terminal, erase the rest of a longer previous line.
        let wipe = if caller().is_terminal(Stream::Err) {
            "\u{1b}[K"
        } else {
            ""
        };
        eprint!("\r{line}{wipe}");
        self.is_in_line = true;
    }
}

/// The caller's stdin.
struct Stdin {
    file: HostFile,
    /// For waiting.
    fd: OwnedFd,
}

impl Stdin {
    fn new() -> Result<Stdin> {
        let fd = caller().input_file()?;
        Ok(Stdin {
            file: HostFile::standard(fd.try_clone()?)?,
            fd,
        })
    }
}

impl Input for Stdin {
    fn read(&mut self, block: &mut [u8]) -> Result<usize> {
        caller::wait_for(&self.fd);
        self.file.read(block)
    }

    fn skip(&mut self, bytes: u64) -> Result<u64> {
        caller::wait_for(&self.fd);
        self.file.skip(bytes)
    }
}
