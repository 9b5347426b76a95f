//! `ashift machine`: makes machines, and does what one does to them by hand.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use base::{Error, Result};
use drive::profile::Bus;
use geom::Provider;
use machine::{
    DriveEntry, FILE_NAME, HostProfile, Machine, Memory, NewDrive, NewMachine, World, host_profiles,
};
use serde_json::json;

use super::up;
use crate::command::{Command, Entry, Table, asks_for_help, verb};
use crate::failure::{Fail, Outcome};
use crate::holder::Restart;
use crate::world::{chosen, in_machine, on, open};

pub(crate) const MACHINE: Command<Entry> = Command::words(
    "machine",
    "machines of emulated drives: create, show, pull, cut the power",
    "\
usage: ashift machine create [--seed N] [--host HOST] [--memory SIZE] DIR NAME=PROFILE[,OPTION=VALUE]... ...
       ashift machine show [-j] [DIR]
       ashift machine add [DIR] NAME=PROFILE[,OPTION=VALUE]... ...
       ashift machine pull [DIR] NAME ...
       ashift machine push [DIR] NAME ...
       ashift machine move [DIR] NAME=BUS ...
       ashift machine up [--background] [DIR]
       ashift machine down [DIR]
       ashift machine reboot [--power-cut [--seed N]] [DIR]
       ashift machine status [-j] [DIR]
       ashift machine power-cut [--seed N] [DIR]
       ashift machine power-cut [--seed N] --after SECONDS [DIR] -- COMMAND ...
       ashift machine fault list|add|remove …
       ashift machine mount [--foreground] [--record FILE] [DIR] FOLDER
       ashift machine destroy DIR

A machine is a folder that describes a computer of emulated drives (machine.toml) and holds what is
on them. Commands run in it with -m DIR or ASHIFT_MACHINE=DIR: `ashift -m DIR zpool status`; then DIR
may be left out here, too. Its clock moves only while a command runs in it. `ashift sh` runs several.

    create      make a machine; `ashift drives` lists the profiles; HOST says what computing takes:
                none (the default: nothing), modern, freebsd-8, freebsd-9, freebsd-13, at another clock
                modern@1.5GHz, with all drives behind one bus modern@160MB/s; with a memory of SIZE
                its caches, its limit on dirty data and the length of its txgs are as the ZFS of
                that host makes them of it, and bonnie++ knows it
    show        its clock, its drives, and everything that has a name in it
    add         add drives, or put pulled ones back (NAME alone)
    pull        take drives out, as a hand would: what only their caches hold is lost
    push        put pulled drives back
    move        connect drives to another bus: sata, or usb, behind a bridge that keeps sectors at the
                end for itself and passes on one command at a time; as after pull, what only their
                caches hold is lost
    up          keep it switched on: pools stay open and caches warm, and commands run in it side by side, until
                `machine down`. Its clock moves while a command runs, also with `ashift -m DIR sleep 30`
    down        end its commands, close its pools, switch its drives off
    reboot      the same, and on again; with --power-cut nothing is closed. The script boot.sh in the machine's
                folder runs whenever it is switched on so, by `ashift sh`
    status      whether it is up, and its clock
    power-cut   lose the power: of what the drives' caches hold, chance decides what is lost;
                layers that were made with --transient, and attached elis, are gone; with
                --after in the midst of a command, so many seconds of the machine after its start;
                one that is up starts again
    fault       sectors that fail or lie, writes that get lost, dead drives: `ashift machine fault -h`
    mount       show everything that has a name as a file in FOLDER, by FUSE, for this host's own
                programs; the machine is in use until `umount FOLDER`; with --record what they read and
                write is noted in FILE, for `ashift replay` or fio
    destroy     remove the machine with all that is on its drives

PROFILE is a name of `ashift drives`, or the model of such a drive: WD20EARS. Options of a drive:
size=SIZE, serial=TEXT, bus=sata|usb|usb:BRIDGE (jms579, the one without a name, hides sectors at
the end; asm1051 shows sectors of 4096 bytes; at2 hides what the drive says about itself),
rmw=batched|sync|unbatched|hidden (what the firmware does with writes to part of a physical sector,
where that is not known). SIZE is a number of bytes, or one with K, M, G, T (1024) or KB, MB, GB, TB
(1000).
Drives are named like ada0. machine.toml can be edited and kept under version control.
",
    run,
)
.apart();

/// What a verb does.
#[derive(Clone, Copy)]
enum Act {
    /// Makes a machine.
    Create(fn(&Request) -> Outcome),
    /// Something on an existing machine, with the operands behind its folder.
    On(fn(&Path, &[String], &Request) -> Outcome),
    /// It is a command of its own.
    Own(&'static Command<Entry>),
}

const VERBS: Table<Act> = Table {
    program: "ashift machine",
    commands: &[
        verb("create", Act::Create(create)),
        verb("fault", Act::Own(&super::fault::FAULT)),
        verb("show", Act::On(show)),
        verb("add", Act::On(add)),
        verb("pull", Act::On(pull)),
        verb("push", Act::On(push)),
        verb("move", Act::On(move_drives)),
        verb("up", Act::On(up::up)),
        verb("down", Act::On(up::down)),
        verb("reboot", Act::On(up::reboot)),
        verb("status", Act::On(up::status)),
        verb("power-cut", Act::On(power_cut)),
        verb("mount", Act::On(mount)),
        verb("destroy", Act::On(destroy)),
    ],
};

/// The parsed arguments.
#[derive(Default)]
pub(super) struct Request {
    operands: Vec<String>,
    pub(super) seed: Option<u64>,
    host: Option<String>,
    memory: Option<String>,
    /// `--after`, in nanoseconds.
    after_ns: Option<u64>,
    /// What follows `--`.
    command: Vec<String>,
    pub(super) is_json: bool,
    is_foreground: bool,
    /// `--record`
    record: Option<PathBuf>,
    pub(super) is_background: bool,
    /// `--power-cut`
    pub(super) cuts_power: bool,
}

fn run(args: &[String]) -> Outcome {
    let outcome = VERBS
        .pick(args)
        .and_then(|(command, rest)| match command.run {
            Act::Own(own) => own.act(rest),
            _ if asks_for_help(rest) => Err(Fail::Help),
            Act::Create(act) => act(&parse(rest)?),
            Act::On(act) => {
                let request = parse(rest)?;
                let (folder, operands) = folder_of(&request.operands)?;
                let forwarded = up::forward(command.name, &folder, args);
                forwarded.unwrap_or_else(|| act(&folder, operands, &request))
            }
        });
    outcome.map_err(|fail| match fail {
        Fail::Usage(text) => {
            let text = if text.is_empty() {
                "missing command"
            } else {
                &text
            };
            Fail::Exits(
                2,
                format!("{text} (`ashift machine -h` says how it is used)"),
            )
        }
        fail => fail,
    })
}

fn misused<T>(text: impl Into<String>) -> Outcome<T> {
    Err(Fail::Usage(text.into()))
}

fn parse(args: &[String]) -> Outcome<Request> {
    let mut request = Request::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-j" | "--json" => request.is_json = true,
            "--foreground" => request.is_foreground = true,
            "-b" | "--background" => request.is_background = true,
            "--power-cut" => request.cuts_power = true,
            "--seed" => {
                let seed = args.next().and_then(|text| text.parse().ok());
                let bad = || Fail::Usage("--seed needs a number".to_owned());
                request.seed = Some(seed.ok_or_else(bad)?);
            }
            "--record" => {
                let file = args.next().map(PathBuf::from);
                let bad = || Fail::Usage("--record needs a file".to_owned());
                request.record = Some(file.ok_or_else(bad)?);
            }
            "--host" => {
                let host = args.next().cloned();
                request.host = host.or_else(|| Some(String::new()));
            }
            "--memory" => {
                let bad = || Fail::Usage("--memory needs a size".to_owned());
                request.memory = Some(args.next().cloned().ok_or_else(bad)?);
            }
            "--after" => {
                let seconds = args.next().and_then(|text| text.parse::<f64>().ok());
                let seconds = seconds.filter(|s| (0.0..1e9).contains(s));
                let bad = || Fail::Usage("--after needs a number of seconds".to_owned());
                request.after_ns = Some((seconds.ok_or_else(bad)? * 1e9) as u64);
            }
            "--" => request.command = args.by_ref().cloned().collect(),
            option if option.starts_with('-') => {
                return Err(Fail::Usage(format!("invalid option '{option}'")));
            }
            operand => request.operands.push(operand.to_owned()),
        }
    }
    Ok(request)
}

pub(super) fn check_none(operands: &[String]) -> Outcome {
    match operands.first() {
        Some(word) => misused(format!("'{word}' is too much")),
        None => Ok(()),
    }
}

fn check_some(operands: &[String]) -> Outcome {
    match operands {
        [] => misused("missing drive"),
        _ => Ok(()),
    }
}

fn mount(folder: &Path, operands: &[String], request: &Request) -> Outcome {
    let [on] = operands else {
        return misused("one folder to mount on is needed");
    };
    up::check_down(folder)?;
    Ok(super::mount::run(
        folder,
        Path::new(on),
        request.record.as_deref(),
        request.is_foreground,
    )?)
}

fn destroy(folder: &Path, operands: &[String], request: &Request) -> Outcome {
    if !operands.is_empty() || request.operands.len() != 1 {
        return misused("one folder is to be named");
    }
    up::check_down(folder)?;
    Ok(open(folder)?.destroy()?)
}

/// The machine's folder, which may be omitted if `-m` gives it.
fn folder_of(operands: &[String]) -> Outcome<(PathBuf, &[String])> {
    let is_machine = |text: &String| Path::new(text).join(FILE_NAME).exists();
    match (operands.split_first(), chosen()) {
        (Some((first, rest)), _) if is_machine(first) => Ok((PathBuf::from(first), rest)),
        (_, Some(folder)) => Ok((folder, operands)),
        (Some((first, rest)), None) if !names_drive(first) => Ok((PathBuf::from(first), rest)),
        _ => Err(Fail::Usage(
            "which machine? Name its folder, or use -m or ASHIFT_MACHINE".to_owned(),
        )),
    }
}

/// Whether this names a drive (`ada0`, `ada0=wd20ears`), not a machine's folder.
fn names_drive(text: &str) -> bool {
    let name = text.split('=').next().unwrap_or(text);
    let number = name.trim_start_matches(|c: char| c.is_ascii_lowercase());
    let has_both = !number.is_empty() && number.len() < name.len();
    has_both && number.bytes().all(|b| b.is_ascii_digit()) && !Path::new(text).exists()
}

fn create(request: &Request) -> Outcome {
    let named = chosen().map(|folder| folder.display().to_string());
    let has_folder = request.operands.first().is_some_and(|o| !o.contains('='));
    let (folder, drives) = match (named, request.operands.split_first()) {
        (Some(folder), _) if !has_folder => (folder, request.operands.as_slice()),
        (_, Some((folder, drives))) => (folder.clone(), drives),
        (None, None) => return Err(Fail::Usage("missing folder".to_owned())),
        (Some(folder), None) => (folder, [].as_slice()),
    };
    let drives = drives.iter().map(|text| NewDrive::parse(text));
    let drives = drives
        .collect::<Result<Vec<_>>>()
        .map_err(|e| Fail::Usage(e.to_string()))?;
    let host = request.host.as_deref().unwrap_or("none");
    if HostProfile::find(host).is_none() {
        let known: Vec<&str> = host_profiles().iter().map(|h| h.name).collect();
        let text = format!("no host '{host}'; there are {}", known.join(", "));
        return Err(Fail::Usage(text));
    }
    let new = NewMachine {
        seed: request.seed.unwrap_or(1),
        host: request.host.clone(),
        memory: request.memory.clone(),
        drives,
    };
    Machine::create(Path::new(&folder), &new)?;
    Ok(())
}

fn add(folder: &Path, words: &[String], _: &Request) -> Outcome {
    check_some(words)?;
    let mut new = Vec::new();
    for word in words {
        new.push(match word.contains('=') {
            true => Some(NewDrive::parse(word).map_err(|e| Fail::Usage(e.to_string()))?),
            false => None,
        });
    }
    Ok(on(folder, |world| {
        words
            .iter()
            .zip(&new)
            .try_for_each(|(word, new)| match new {
                Some(drive) => running(world)?.add(drive),
                None => running(world)?.push(word),
            })
    })??)
}

fn running(world: &World) -> Result<&machine::Running> {
    world
        .running()
        .ok_or_else(|| Error::invalid("this host has no drives to plug"))
}

fn pull(folder: &Path, names: &[String], _: &Request) -> Outcome {
    on_drives(folder, names, machine::Running::pull)
}

fn push(folder: &Path, names: &[String], _: &Request) -> Outcome {
    on_drives(folder, names, machine::Running::push)
}

fn on_drives(
    folder: &Path,
    names: &[String],
    act: fn(&machine::Running, &str) -> Result<()>,
) -> Outcome {
    check_some(names)?;
    Ok(on(folder, |world| {
        names.iter().try_for_each(|name| act(running(world)?, name))
    })??)
}

fn move_drives(folder: &Path, words: &[String], _: &Request) -> Outcome {
    check_some(words)?;
    let mut moves = Vec::new();
    for word in words {
        let (name, bus) = word.split_once('=').ok_or_else(|| {
            Fail::Usage(format!(
                "'{word}': where to? NAME=sata, NAME=usb or NAME=usb:BRIDGE"
            ))
        })?;
        let bus = Bus::parse(bus).map_err(|e| Fail::Usage(e.to_string()))?;
        moves.push((name, bus));
    }
    Ok(on(folder, |world| {
        let mut moves = moves.into_iter();
        moves.try_for_each(|(name, bus)| running(world)?.move_to(name, bus))
    })??)
}

fn power_cut(folder: &Path, operands: &[String], request: &Request) -> Outcome {
    check_none(operands)?;
    if request.after_ns.is_some() == request.command.is_empty() {
        return misused("--after and -- COMMAND belong together");
    }
    if let Some(name) = request.command.first()
        && !crate::is_command(name)
    {
        return misused(format!("unrecognized command '{name}'"));
    }
    if request.after_ns.is_none()
        && let Some(outcome) = up::restart(folder, Restart::PowerCut(request.seed))
    {
        return outcome;
    }
    up::check_down(folder)?;
    let machine = open(folder)?;
    let seed = request.seed.unwrap_or_else(|| machine.command_seed());
    let Some(after_ns) = request.after_ns else {
        return Ok(in_machine(machine, |world| world.power_cut(seed))??);
    };
    Ok(in_machine(machine, |world| {
        let drives = world.drives();
        rt::at_ns(rt::now_ns() + after_ns, move || {
            for (drive, number) in drives.iter().zip(0..) {
                // `World::power_cut` finds a file that could not be written as well.
                let _ = drive.power_cut(seed.wrapping_add(number));
            }
        });
        // It fails, unless it finished before the power was cut.
        let _ = crate::run_words(&request.command);
        world.power_cut(seed)
    })??)
}

fn show(folder: &Path, operands: &[String], request: &Request) -> Outcome {
    check_none(operands)?;
    let shown = folder.display().to_string();
    let text = on(folder, |world| {
        if request.is_json {
            json_of(world, &shown)
        } else {
            text_of(world, &shown)
        }
    })??;
    print!("{text}");
    Ok(())
}

fn pools(world: &World) -> Result<Vec<String>> {
    let cache = spa::CacheFile::new(running(world)?.state().join("zpool.cache"));
    Ok(cache.pools()?.into_iter().map(|(name, _)| name).collect())
}

/// `1234.567890123 s`
pub(super) fn seconds(ns: u64) -> String {
    format!("{}.{:09} s", ns / 1_000_000_000, ns % 1_000_000_000)
}

fn text_of(world: &World, folder: &str) -> Result<String> {
    let running = running(world)?;
    let mut out = format!(
        "machine {folder} ({}), clock at {}\n\n",
        running.hostname(),
        seconds(rt::now_ns())
    );
    if let Some(memory) = running.memory() {
        let _ = writeln!(out, "{}\n", memory_line(&memory));
    }
    let drives = running.entries();
    let mut rows = vec![["DRIVE", "PROFILE", "SIZE", "ON HOST", "MODEL"].map(str::to_owned)];
    rows.extend(drives.iter().map(|entry| drive_row(world, entry)));
    out.push_str(&columns(&rows));
    let providers = world.providers()?;
    if !providers.is_empty() {
        out.push('\n');
        let mut rows = vec![["PROVIDER", "CLASS", "SIZE", "SECTOR", "STRIPE"].map(str::to_owned)];
        rows.extend(providers.iter().map(|info| {
            let stripe = match info.stripeoffset {
                0 => info.stripesize.to_string(),
                offset => format!("{}+{offset}", info.stripesize),
            };
            let size = info.mediasize.to_string();
            let sector = info.sectorsize.to_string();
            [
                info.name.clone(),
                info.class.to_owned(),
                size,
                sector,
                stripe,
            ]
        }));
        out.push_str(&columns(&rows));
    }
    let pools = pools(world)?;
    if !pools.is_empty() {
        let _ = writeln!(out, "\nimported pools: {}", pools.join(" "));
    }
    Ok(out)
}

/// `memory 8G: 7G of cache, 819M of dirty data, a txg every 5 s`
pub(crate) fn memory_line(memory: &Memory) -> String {
    let size = admin::number::nice_bytes;
    let dirty = match memory.dirty_data_max_bytes() {
        here if here < memory.dirty_data_there_bytes => {
            let there = size(memory.dirty_data_there_bytes);
            format!("{} of dirty data (its ZFS: {there})", size(here))
        }
        same => format!("{} of dirty data", size(same)),
    };
    format!(
        "memory {}: {} of cache for each pool, {dirty}, a txg at least every {} s",
        size(memory.bytes),
        size(memory.arc_bytes),
        memory.txg_timeout_ns / 1_000_000_000
    )
}

fn drive_row(world: &World, entry: &DriveEntry) -> [String; 5] {
    let drive = world.drives().into_iter().find(|d| d.name() == entry.name);
    let size = match &drive {
        Some(drive) => drive.mediasize().to_string(),
        None => "pulled".to_owned(),
    };
    [
        entry.name.clone(),
        entry.profile_name.clone(),
        size,
        drive.map_or_else(String::new, |d| {
            admin::number::nice_bytes(d.stored_bytes().0)
        }),
        entry.profile.identify.model.clone(),
    ]
}

/// Left-aligned columns, as wide as their widest cells.
fn columns(rows: &[[String; 5]]) -> String {
    let width = |i: usize| rows.iter().map(|row| row[i].chars().count()).max();
    let widths: Vec<usize> = (0..5).map(|i| width(i).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

fn json_of(world: &World, folder: &str) -> Result<String> {
    let running = running(world)?;
    let drives = running.entries();
    let drives = drives.iter().map(|entry| {
        let drive = world.drives().into_iter().find(|d| d.name() == entry.name);
        json!({
            "name": entry.name,
            "profile": entry.profile_name,
            "model": entry.profile.identify.model,
            "is_pulled": entry.is_pulled,
            "mediasize": drive.as_ref().map(|d| d.mediasize()),
            "stored_bytes": drive.as_ref().map(|d| d.stored_bytes().0),
            "cached_bytes": drive.as_ref().map(|d| d.stored_bytes().1),
        })
    });
    let providers = world.providers()?;
    let providers = providers.iter().map(|info| {
        json!({
            "name": info.name,
            "class": info.class,
            "below": info.below,
            "mediasize": info.mediasize,
            "sectorsize": info.sectorsize,
            "stripesize": info.stripesize,
            "stripeoffset": info.stripeoffset,
        })
    });
    let value = json!({
        "machine": folder,
        "hostname": running.hostname(),
        "clock_ns": rt::now_ns(),
        "memory_bytes": running.memory().map(|memory| memory.bytes),
        "drives": drives.collect::<Vec<_>>(),
        "providers": providers.collect::<Vec<_>>(),
        "pools": pools(world)?,
    });
    Ok(format!("{value:#}\n"))
}
