//! `zcav`: the rate of a drive or file at each place.

use std::collections::VecDeque;
use std::fs::File as Opened;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use admin::number::date_time;
use base::{Error, Result};
use bonnie::File;
use bonnie::zcav::{Failure, Line, Options, run as run_on};
use geom::Provider;
use geom::disk::OpenMode;
use machine::{Hold, World};

use super::request::number;
use super::user::{Named, User};
use crate::caller::{self, caller};
use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use crate::gpart::device;
use crate::zone;

/// How long the user has to think of what is lost, in ns.
const WARNING_NS: u64 = 5_000_000_000;

pub(crate) const ZCAV: Command<Entry> = Command::explained(
    "zcav",
    "the rate of a drive at each place",
    "\
usage: zcav [-b BLOCK_MIB[:CHUNK_MIB]] [-c ROUNDS] [-r [START_MIB:]END_MIB] [-w] [-s SKIP]
            [-u USER[:GROUP]] [-g GROUP] [--yes-write-to-device]
            [-l LOG] [-f] FILE [[-l LOG] [-f] FILE]...
",
    run,
)
.more(
    "
Reads (-w: writes) blocks one after the other and prints where each begins, its rate and its time; of SKIP
blocks one. With several rounds the mean of the middle third counts. FILE is a file or device of this host, a
provider of the machine, or `-` for stdin. Several files are read at a time.
",
)
.leads_with("")
.misused_is_1()
.tool();

/// One file, and where its lines go.
struct Target {
    name: String,
    log: String,
}

#[derive(Default)]
struct Request {
    options: Options,
    targets: Vec<Target>,
    user: Option<Named>,
    consents: bool,
}

fn run(args: &[String]) -> Outcome {
    let request = parse(args)?;
    let user = request.user.as_ref().map(User::find).transpose()?;
    let world = crate::world::entered();
    let became = user.filter(|_| !world.is_machine());
    let _became = became.as_ref().map(User::become_it).transpose()?;
    if let Some((uid, gid)) = user.as_ref().map(User::ids) {
        eprintln!("Using uid:{uid}, gid:{gid}.");
    }
    let mut open = Vec::new();
    for target in request.targets {
        let opened = open_target(&world, &target.name, &request.options, request.consents);
        let (file, held) = opened.map_err(|error| cannot_open(&target.name, &error))?;
        let log = match target.log.as_str() {
            "-" => None,
            log => {
                let made = Opened::create(log).map_err(Error::from);
                Some(made.map_err(|error| cannot_open(log, &error))?)
            }
        };
        open.push((target.name, file, log, held));
    }
    if request.options.writes {
        for (name, ..) in &open {
            eprintln!("Warning, writing to {name} in 5 seconds.");
        }
        caller::sleep_ns(WARNING_NS);
    }
    let threads: Vec<_> = open
        .into_iter()
        .map(|(name, file, log, held)| {
            let (caller, options) = (caller(), request.options.clone());
            rt::spawn("zcav", move || {
                let measured = caller::enter(caller, || measure(&name, file, log, &options));
                drop(held);
                measured
            })
        })
        .collect();
    let mut code = 0;
    for thread in threads {
        if let Err(failure) = thread.join() {
            eprintln!("{}", failure.text);
            code = failure.code.max(code);
        }
    }
    Fail::exit(code)
}

fn cannot_open(name: &str, error: &Error) -> Fail {
    Fail::Failed(format!("Can't open {name}: {error}"))
}

fn measure(
    name: &str,
    mut file: Box<dyn File>,
    mut log: Option<Opened>,
    options: &Options,
) -> std::result::Result<(), Failure> {
    run_on(&mut *file, name, options, &mut |line| {
        match (line, &mut log) {
            (Line::Log(text), Some(log)) => {
                return writeln!(log, "{text}").map_err(|error| format!("the log: {error}"));
            }
            (Line::Log(text), None) => println!("{text}"),
            (Line::Finished(round), _) => {
                let now = date_time(rt::wall_clock().secs, zone::local());
                // The time of day in it, whose hour has no 0 in front.
                let time = now.split_whitespace().find(|word| word.contains(':'));
                let time = time.unwrap_or_default();
                let time = time.strip_prefix('0').unwrap_or(time);
                eprintln!("# Finished loop {round}, on device {name} at {time}");
            }
        }
        Ok(())
    })
}

fn usage(text: impl Into<String>) -> Fail {
    Fail::Usage(text.into())
}

fn parse(args: &[String]) -> Outcome<Request> {
    let mut request = Request::default();
    let mut log = "-".to_owned();
    let mut words: VecDeque<&str> = args.iter().map(String::as_str).collect();
    while let Some(word) = words.pop_front() {
        if word == device::CONSENT {
            request.consents = true;
            continue;
        }
        let option = word.strip_prefix('-').and_then(|rest| rest.chars().next());
        let Some(letter) = option else {
            request.add(word, &mut log);
            continue;
        };
        let mut value = || {
            let attached = Some(&word[1 + letter.len_utf8()..]).filter(|rest| !rest.is_empty());
            let value = attached.or_else(|| words.pop_front());
            value.ok_or_else(|| usage(format!("missing argument for '{letter}' option")))
        };
        let options = &mut request.options;
        match letter {
            'w' => options.writes = true,
            'b' => {
                let value = value()?;
                let (block, chunk) = value.split_once(':').unwrap_or((value, "1"));
                options.block_mib = number('b', block)?;
                options.chunk_mib = number('b', chunk)?;
            }
            'c' => options.loops = number('c', value()?)?,
            's' => options.skip_rate = number('s', value()?)?,
            'r' => {
                let value = value()?;
                let (start, end) = value.split_once(':').unwrap_or(("0", value));
                options.start_mib = number('r', start)?;
                options.end_mib = number('r', end)?;
            }
            'l' => value()?.clone_into(&mut log),
            'f' => {
                let name = value()?;
                request.add(name, &mut log);
            }
            'u' | 'g' => {
                let value = value()?;
                request.user.get_or_insert_default().add(letter, value)?;
            }
            _ => return Err(usage(format!("invalid option '{letter}'"))),
        }
    }
    if request.targets.is_empty() || !request.options.make_sense() {
        return Err(usage(""));
    }
    Ok(request)
}

impl Request {
    fn add(&mut self, name: &str, log: &mut String) {
        let log = std::mem::replace(log, "-".to_owned());
        let name = name.to_owned();
        self.targets.push(Target { name, log });
    }
}

/// A file, and what keeps others from writing to it.
type OpenTarget = (Box<dyn File>, Option<Hold>);

fn open_target(world: &World, name: &str, options: &Options, consents: bool) -> Result<OpenTarget> {
    if name == "-" {
        let stdin = Opened::from(caller().input_file()?);
        return Ok((Box::new(HostFile(stdin)), None));
    }
    let held = match options.writes {
        true => Some(device::hold(world, name, consents)?),
        false => None,
    };
    if !world.is_machine() && std::path::Path::new(name).exists() {
        let file = Opened::options()
            .read(!options.writes)
            .write(options.writes)
            .open(name)?;
        return Ok((Box::new(HostFile(file)), held));
    }
    let mode = match options.writes {
        true => OpenMode::ReadWrite,
        false => OpenMode::ReadOnly,
    };
    let provider = world.open(name, mode)?;
    Ok((Box::new(Raw { provider, at: 0 }), held))
}

/// A file or device of this host.
struct HostFile(Opened);

impl File for HostFile {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        Ok(self.0.read(out)?)
    }

    fn write(&mut self, data: &[u8]) -> Result<usize> {
        Ok(self.0.write(data)?)
    }

    fn seek(&mut self, to: SeekFrom) -> Result<()> {
        self.0.seek(to)?;
        Ok(())
    }

    fn fsync(&mut self) -> Result<()> {
        Ok(self.0.sync_all()?)
    }
}

/// A provider.
struct Raw {
    provider: Arc<dyn Provider>,
    at: u64,
}

impl Raw {
    /// How much of so many bytes there is from here on.
    fn there_is(&self, bytes: usize) -> usize {
        let left = self.provider.mediasize().saturating_sub(self.at);
        bytes.min(usize::try_from(left).unwrap_or(usize::MAX))
    }
}

impl File for Raw {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        rt::charge(rt::Work::SystemCall, 1);
        let bytes = self.there_is(out.len());
        if bytes > 0 {
            self.provider.read(self.at, &mut out[..bytes])?;
        }
        self.at += bytes as u64;
        Ok(bytes)
    }

    fn write(&mut self, data: &[u8]) -> Result<usize> {
        rt::charge(rt::Work::SystemCall, 1);
        let bytes = self.there_is(data.len());
        if bytes > 0 {
            self.provider.write(self.at, &data[..bytes])?;
        }
        self.at += bytes as u64;
        Ok(bytes)
    }

    fn seek(&mut self, to: SeekFrom) -> Result<()> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.provider.mediasize().checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| Error::invalid("before its start"))?;
        Ok(())
    }

    fn fsync(&mut self) -> Result<()> {
        self.provider.flush()
    }
}
