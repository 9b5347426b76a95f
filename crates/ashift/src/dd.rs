//! `dd`: copies blocks between files, providers and pools.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stderr};
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

use base::{Error, ErrorKind, ObjectId, Result};
use geom::disk::OpenMode;
use machine::World;
use measure::dd::ends::{Device, Null, Random, Zeros};
use measure::dd::host::HostFile;
use measure::dd::{
    Counts, Flags, Flavour, HELP, Input, Observer, Operands, Output, Status, SyncAtEnd, copy,
    progress_line,
};
use zpl::Create;
use zpl::mount::Mount;

use crate::files::{Location, Session};
use crate::host::{Access, Host};
use crate::say::fail;

/// Between two lines of `status=progress`.
const PROGRESS_NS: u64 = 1_000_000_000;

/// `ashift dd`
pub(crate) fn run(args: &[String]) -> ExitCode {
    if args.iter().any(|arg| arg == "-h" || arg == "--help") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let world = match crate::machine::current() {
        Ok(world) => world,
        Err(error) => return fail("dd", 1, &error.to_string()),
    };
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
    let operands = match Operands::parse(&operands, flavour) {
        Ok(operands) => operands,
        Err(error) => return fail("dd", 1, &error.to_string()),
    };
    let session = Session::new(access(&world, &operands));
    let mut places = Places {
        world: &world,
        session: &session,
    };
    let done = places.copy(&operands, consents);
    let closed = session.close();
    if let Err(error) = &closed {
        fail("dd", 1, &error.to_string());
    }
    if done && closed.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
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

/// Where names lead.
struct Places<'a> {
    world: &'a World,
    session: &'a Session,
}

impl Places<'_> {
    /// Does it and says how it went.
    fn copy(&mut self, operands: &Operands, consents: bool) -> bool {
        let complain = |text: &str| {
            fail("dd", 1, text);
            false
        };
        let mut input = match self.input(operands) {
            Ok(input) => input,
            Err(error) => return complain(&operands.open_error(true, &error)),
        };
        if let Some(name) = &operands.output
            && let Err(error) = self.check_may_write(name, consents)
        {
            return complain(&error.to_string());
        }
        let mut output = match self.output(operands) {
            Ok(output) => output,
            Err(error) => return complain(&operands.open_error(false, &error)),
        };
        let mut teller = Teller::new(operands);
        let mut counts = Counts::default();
        let outcome = copy(
            operands,
            &mut *input,
            &mut *output,
            &mut counts,
            &mut teller,
        );
        let elapsed_ns = rt::now_ns() - teller.start_ns;
        teller.end_line();
        if let Err(text) = &outcome {
            complain(text);
        }
        eprint!(
            "{}",
            counts.summary(operands.flavour, operands.status, elapsed_ns)
        );
        outcome.is_ok()
    }

    /// Asks for consent on a host; in a machine, providers that pools are on are not for others.
    fn check_may_write(&self, name: &str, consents: bool) -> Result<()> {
        let is_provider = || matches!(self.find(name), Ok(Place::Provider));
        match Location::parse(name) {
            Location::Host(_) if !self.world.is_machine() || is_provider() => {
                crate::phybs::check_may_write(self.world, name, consents)
            }
            _ => Ok(()),
        }
    }

    fn input(&self, operands: &Operands) -> Result<Box<dyn Input>> {
        let flags = operands.input_flags;
        let Some(name) = operands.input.as_deref() else {
            return Ok(Box::new(HostFile::stdin()?));
        };
        Ok(match self.find(name)? {
            Place::Zeros => Box::new(Zeros),
            Place::Random => Box::new(Random::new()),
            Place::Null => Box::new(Null),
            Place::Provider => {
                let provider = self.world.open(name, OpenMode::ReadOnly)?;
                Box::new(Device::new(provider, flags))
            }
            Place::Host => Box::new(HostFile::input(Path::new(name), flags)?),
            Place::Pool(dataset, path) => {
                let mount = self.session.mount(&dataset)?;
                let id = mount.resolve_link(&path)?;
                Box::new(PoolFile::new(mount, id, flags)?)
            }
        })
    }

    fn output(&self, operands: &Operands) -> Result<Box<dyn Output>> {
        let Some(name) = operands.output.as_deref() else {
            return Ok(Box::new(HostFile::stdout()?));
        };
        Ok(match self.find(name)? {
            Place::Zeros | Place::Random | Place::Null => Box::new(Null),
            Place::Provider => {
                if operands.conversions.excl {
                    return Err(Error::new(ErrorKind::Exists, name));
                }
                let provider = self.world.open(name, OpenMode::ReadWrite)?;
                Box::new(Device::new(provider, operands.output_flags))
            }
            Place::Host => Box::new(HostFile::output(Path::new(name), operands)?),
            Place::Pool(dataset, path) => {
                let mount = self.session.mount(&dataset)?;
                Box::new(PoolFile::create(mount, &path, operands)?)
            }
        })
    }

    /// What a name stands for. In a machine, what is in `/dev` and what has no slash are its
    /// providers, and other paths may lead into its pools.
    fn find(&self, name: &str) -> Result<Place> {
        if let Location::Pool(dataset, path) = Location::parse(name) {
            return Ok(Place::Pool(dataset, path));
        }
        if !self.world.is_machine() {
            let is_provider =
                !Path::new(name).exists() && self.world.open(name, OpenMode::Inspect).is_ok();
            return Ok(if is_provider {
                Place::Provider
            } else {
                Place::Host
            });
        }
        match name {
            "/dev/zero" => return Ok(Place::Zeros),
            "/dev/random" | "/dev/urandom" => return Ok(Place::Random),
            "/dev/null" => return Ok(Place::Null),
            _ => {}
        }
        if name.starts_with("/dev/") || !name.contains('/') {
            return Ok(Place::Provider);
        }
        if !name.starts_with(['/', '.']) && self.world.open(name, OpenMode::Inspect).is_ok() {
            return Ok(Place::Provider);
        }
        Ok(match self.session.locate(name)? {
            Location::Pool(dataset, path) => Place::Pool(dataset, path),
            Location::Host(_) => Place::Host,
        })
    }
}

/// What a name stands for.
enum Place {
    Zeros,
    Random,
    Null,
    Provider,
    Host,
    Pool(String, String),
}

/// Refuses what an imported pool of the machine is on, in the kernel's words.
pub(crate) fn check_unused(world: &World, name: &str) -> Result<()> {
    let pools = Host::here().pools()?;
    if pools.is_empty() {
        return Ok(());
    }
    let infos = world.providers()?;
    let below: BTreeMap<&str, Option<&str>> = infos
        .iter()
        .map(|info| (info.name.as_str(), info.below.as_deref()))
        .collect();
    let wanted = world.canonical(name);
    for (pool, config) in &pools {
        let mut paths = Vec::new();
        leaf_paths(config, &mut paths);
        for path in paths {
            let mut at = Some(world.canonical(&path));
            while let Some(provider) = at {
                if provider == wanted {
                    let text = format!("{name}: Operation not permitted (pool '{pool}' is on it)");
                    return Err(Error::new(ErrorKind::Busy, text));
                }
                at = below
                    .get(provider.as_str())
                    .copied()
                    .flatten()
                    .map(str::to_owned);
            }
        }
    }
    Ok(())
}

fn leaf_paths(config: &nvpair::NvList, paths: &mut Vec<String>) {
    if let Some(path) = config.get_str("path") {
        paths.push(path.to_owned());
    }
    if let Some(tree) = config.get_list("vdev_tree") {
        leaf_paths(tree, paths);
    }
    for key in ["children", "l2cache", "spares"] {
        for child in config.get_lists(key).unwrap_or_default() {
            leaf_paths(child, paths);
        }
    }
}

/// A file in a data set.
struct PoolFile {
    mount: Rc<Mount>,
    id: ObjectId,
    offset: u64,
    size: u64,
    flags: Flags,
    ends_in_hole: bool,
}

impl PoolFile {
    fn new(mount: Rc<Mount>, id: ObjectId, flags: Flags) -> Result<PoolFile> {
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

    fn create(mount: Rc<Mount>, path: &str, operands: &Operands) -> Result<PoolFile> {
        let conversions = operands.conversions;
        let found = match mount.resolve_link(path) {
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

/// Says on stderr what happens on the way.
struct Teller<'a> {
    operands: &'a Operands,
    start_ns: u64,
    told_ns: u64,
    is_in_line: bool,
}

impl Teller<'_> {
    fn new(operands: &Operands) -> Teller<'_> {
        let start_ns = rt::now_ns();
        Teller {
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

impl Observer for Teller<'_> {
    fn complain(&mut self, text: &str) {
        self.end_line();
        fail("dd", 1, text);
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
        if self.operands.status != Status::Progress {
            return;
        }
        let now = rt::now_ns();
        if now - self.told_ns < PROGRESS_NS {
            return;
        }
        self.told_ns = now;
        let line = progress_line(self.operands.flavour, counts.bytes, now - self.start_ns);
        // The end of a longer line before it is wiped out on a terminal.
        let wipe = if stderr().is_terminal() {
            "\u{1b}[K"
        } else {
            ""
        };
        eprint!("\r{line}{wipe}");
        let _ = stderr().flush();
        self.is_in_line = true;
    }
}
