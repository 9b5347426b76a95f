//! `ashift machine fault`: faults to inject into the drives of a machine, and those that have occurred.

use std::path::PathBuf;
use std::sync::Arc;

use base::{Context, Error, Result};
use drive::Emulated;
use drive::fault::{Fault, Rule};
use geom::Provider;
use machine::{FILE_NAME, World};
use serde_json::{Value, json};

use super::up;
use crate::command::{Command, Entry, Table, verb};
use crate::failure::{Fail, Outcome};
use crate::world::{chosen, on};

/// Part of `ashift machine`, with usage and messages of its own.
pub(super) const FAULT: Command<Entry> = Command::explained(
    "machine fault",
    "",
    "\
usage: ashift machine fault list [-j] [DIR]
       ashift machine fault add [options] [DIR] DRIVE KIND [PLACE]
       ashift machine fault remove [DIR] DRIVE NUMBER ... | all

Faults lie beside the right bytes, which stay: taking a fault away brings them back.

KIND       unreadable        reads of the sectors fail until they are written again
           unwritable        writes to the sectors fail, for good
           flipped           a bit of each sector is wrong until it is written again
           lose-writes       writes that touch the sectors are acknowledged but never arrive
           misdirect-writes  they arrive elsewhere
           dead              the drive does not answer
           slow              each command takes longer
PLACE      LBA or LBA+COUNT, in sectors of the drive, or random:N: N sectors, where it has bytes if
           it has any. Rules about writes are for the whole drive if nothing is said.
--seed N   decides which bits, which writes, which places; 1
--one-in N of so many writes one is hit; 1
--count N  so many writes are hit; 1
--after S  seconds from now until the drive is dead or slow; 0
--for S    seconds until it is well again; for ever if nothing is said
--by S     seconds that each command takes longer; 60
-j         print JSON
",
    run,
);

type Run = fn(&World, &[String], &Options) -> Result<()>;

const VERBS: Table<Run> = Table {
    program: "ashift machine fault",
    commands: &[verb("list", list), verb("add", add), verb("remove", remove)],
};

/// The parsed options.
struct Options {
    seed: u64,
    one_in: u64,
    count: u64,
    after_s: f64,
    for_s: Option<f64>,
    by_s: f64,
    is_json: bool,
    operands: Vec<String>,
}

fn run(args: &[String]) -> Outcome {
    let usage = |text: &str| Fail::Usage(text.to_owned());
    let (word, rest) = args.split_first().ok_or_else(|| usage("missing command"))?;
    let options = parse(rest).map_err(|error| usage(&error.to_string()))?;
    let (folder, operands) = folder_of(&options.operands)
        .ok_or_else(|| usage("which machine? Name its folder, or use -m or ASHIFT_MACHINE"))?;
    let act = |world: &Arc<World>| match VERBS.find(word) {
        Some(command) => (command.run)(world, operands, &options),
        None => Err(misused()),
    };
    let words = [&["fault".to_owned()], args].concat();
    if let Some(outcome) = up::forward("fault", &folder, &words) {
        return outcome;
    }
    Ok(on(&folder, act)??)
}

fn misused() -> Error {
    Error::invalid("see ashift machine fault -h")
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options {
        seed: 1,
        one_in: 1,
        count: 1,
        after_s: 0.0,
        for_s: None,
        by_s: 60.0,
        is_json: false,
        operands: Vec::new(),
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || {
            let text = args.next().map(String::as_str);
            text.ok_or_else(|| Error::invalid(format!("{arg} needs a number")))
        };
        match arg.as_str() {
            "-j" | "--json" => options.is_json = true,
            "--seed" => options.seed = number(arg, value()?)?,
            "--one-in" => options.one_in = number(arg, value()?)?.max(1),
            "--count" => options.count = number(arg, value()?)?,
            "--after" => options.after_s = seconds(arg, value()?)?,
            "--by" => options.by_s = seconds(arg, value()?)?,
            "--for" => options.for_s = Some(seconds(arg, value()?)?),
            option if option.starts_with('-') => {
                return Err(Error::invalid(format!("invalid option '{option}'")));
            }
            operand => options.operands.push(operand.to_owned()),
        }
    }
    Ok(options)
}

fn number(what: &str, text: &str) -> Result<u64> {
    let wrong = || Error::invalid(format!("{what}: '{text}' is not a number"));
    text.parse().map_err(|_| wrong())
}

fn seconds(what: &str, text: &str) -> Result<f64> {
    let value: Option<f64> = text.parse().ok();
    value
        .filter(|seconds| (0.0..1e9).contains(seconds))
        .ok_or_else(|| Error::invalid(format!("{what}: '{text}' is not a time in seconds")))
}

fn folder_of(operands: &[String]) -> Option<(PathBuf, &[String])> {
    match (operands.split_first(), chosen()) {
        (Some((first, rest)), _) if PathBuf::from(first).join(FILE_NAME).exists() => {
            Some((PathBuf::from(first), rest))
        }
        (_, Some(folder)) => Some((folder, operands)),
        (Some((first, rest)), None) => Some((PathBuf::from(first), rest)),
        (None, None) => None,
    }
}

fn find(world: &World, name: &str) -> Result<Arc<Emulated>> {
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    let found = world
        .drives()
        .into_iter()
        .find(|drive| drive.name() == name);
    found.ok_or_else(|| Error::not_found(format!("{name}: there is no such drive")))
}

fn list(world: &World, operands: &[String], options: &Options) -> Result<()> {
    if !operands.is_empty() {
        return Err(misused());
    }
    let mut entries = Vec::new();
    for drive in world.drives() {
        let shift = drive.profile().medium.lba_shift;
        for (number, fault) in drive.faults() {
            let fault = fault.as_host_sees(shift);
            if options.is_json {
                entries.push(as_json(drive.name(), number, &fault));
            } else {
                println!("{}  {number}  {fault}", drive.name());
            }
        }
    }
    if options.is_json {
        println!("{:#}", json!({ "faults": entries }));
    }
    Ok(())
}

fn as_json(drive: &str, number: u64, fault: &Fault) -> Value {
    json!({ "drive": drive, "number": number, "fault": fault, "text": fault.to_string() })
}

fn add(world: &World, operands: &[String], options: &Options) -> Result<()> {
    let (drive, kind, place) = match operands {
        [drive, kind] => (drive, kind.as_str(), None),
        [drive, kind, place] => (drive, kind.as_str(), Some(place.as_str())),
        _ => return Err(misused()),
    };
    let drive = find(world, drive)?;
    if matches!(kind, "dead" | "slow") && place.is_none() {
        return drive.add_fault(of_drive(&drive, kind, options)).map(say);
    }
    let whole = drive.mediasize() / u64::from(drive.sectorsize());
    let shift = drive.profile().medium.lba_shift;
    let make = |lba: u64, sectors: u64, seed: u64| {
        let rule = Rule {
            lba,
            sectors,
            one_in: options.one_in,
            count: options.count,
            seed,
        };
        Ok(match kind {
            "unreadable" => Fault::Unreadable { lba, sectors },
            "unwritable" => Fault::Unwritable { lba, sectors },
            "flipped" => Fault::Flipped { lba, sectors, seed },
            "lose-writes" => Fault::LoseWrites(rule),
            "misdirect-writes" => Fault::MisdirectWrites(rule),
            _ => return Err(Error::invalid(format!("no kind of fault '{kind}'"))),
        })
    };
    let is_rule = kind.ends_with("-writes");
    let Some(place) = place.or(is_rule.then_some("")) else {
        return Err(Error::invalid(format!(
            "{kind}: where? LBA, LBA+COUNT, random:N"
        )));
    };
    if let Some(count) = place.strip_prefix("random:") {
        make(0, 1, 0)?;
        let count = number("random", count)?.min(1_000_000);
        let ids = drive.scatter_faults(count, options.seed, |lba, seed| {
            make(lba, 1, seed).expect("the kind was tried")
        })?;
        ids.into_iter().for_each(say);
        return Ok(());
    }
    let (lba, sectors) = match place.split_once('+') {
        _ if place.is_empty() => (0, whole),
        Some((lba, count)) => (number("LBA", lba)?, number("COUNT", count)?),
        None => (number("LBA", place)?, 1),
    };
    if lba.checked_add(sectors).is_none_or(|end| end > whole) {
        let text = format!("{place}: {} has {whole} sectors", drive.name());
        return Err(Error::invalid(text));
    }
    drive
        .add_fault(make(lba + shift, sectors, options.seed)?)
        .map(say)
}

/// A fault of the whole drive, for some time.
fn of_drive(drive: &Emulated, kind: &str, options: &Options) -> Fault {
    let ns = |seconds: f64| (seconds * 1e9) as u64;
    let at = |seconds: f64| drive.now_ns().saturating_add(ns(seconds));
    let from_ns = at(options.after_s);
    let until_ns = options.for_s.map(|seconds| at(options.after_s + seconds));
    match kind {
        "dead" => Fault::Dead { from_ns, until_ns },
        _ => Fault::Slow {
            from_ns,
            until_ns,
            by_ns: ns(options.by_s),
        },
    }
}

fn say(number: u64) {
    println!("fault {number}");
}

fn remove(world: &World, operands: &[String], _: &Options) -> Result<()> {
    let [name, numbers @ ..] = operands else {
        return Err(misused());
    };
    if numbers.is_empty() {
        return Err(misused());
    }
    let drive = find(world, name)?;
    if numbers == ["all"] {
        return (drive.faults().iter()).try_for_each(|(id, _)| drive.remove_fault(*id).map(drop));
    }
    for text in numbers {
        drive
            .remove_fault(number("NUMBER", text)?)
            .within(|| "fault")?;
    }
    Ok(())
}
