//! `zpool`: create, import, look at and change pools.
//!
//! # What it is
//! One module per group of subcommands. Each is a function from arguments to an exit code or a [`Fail`];
//! this module dispatches on the first word, and prints errors and usage.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c, lib/libzfs/libzfs_pool.c: texts, columns and exit codes.

mod create;
mod device_state;
mod devices;
mod history;
mod import;
mod lifecycle;
mod list;
mod props;
mod scrub;
mod status;
mod tree;
mod wait;

use std::process::ExitCode;

use admin::getopt::{Flag, OptError, OptSpec, Parsed, parse};
use admin::listing::json_document;
use admin::number::Zone;
use admin::usage::{Tool, usage, usage_of_all};
use base::Error;
use service::{Access, Session};

use crate::failure::{self, Fail};
use crate::session::session;

/// An exit code, or a failure.
pub(crate) type Outcome = Result<u8, Fail>;

/// A supported subcommand.
struct Sub {
    name: &'static str,
    /// As OpenZFS gives them to getopt(3): a colon in front where it has words for a missing argument.
    short: &'static str,
    long: &'static [(&'static str, Flag)],
    run: fn(&Session, &Parsed) -> Outcome,
}

const fn long(name: &'static str) -> (&'static str, Flag) {
    (name, Flag::Long(name))
}

const JSON: (&str, Flag) = ("json", Flag::Short('j'));
const JSON_INT: (&str, Flag) = long("json-int");
const JSON_FLAT: (&str, Flag) = long("json-flat-vdevs");
const JSON_GUID: (&str, Flag) = long("json-pool-key-guid");
const POWER: (&str, Flag) = long("power");
const ALLOW_IN_USE: (&str, Flag) = long("allow-in-use");
const ALLOW_REPLICATION: (&str, Flag) = long("allow-replication-mismatch");
const ALLOW_ASHIFT: (&str, Flag) = long("allow-ashift-mismatch");
const REWIND: (&str, Flag) = long("rewind-to-checkpoint");

#[rustfmt::skip]
const SUBS: &[Sub] = &[
    Sub { name: "create", short: ":fndR:m:o:O:t:", long: &[], run: create::run },
    Sub { name: "destroy", short: "f", long: &[], run: lifecycle::destroy },
    Sub { name: "export", short: "af", long: &[], run: lifecycle::export },
    Sub { name: "labelclear", short: "f", long: &[], run: lifecycle::labelclear },
    Sub { name: "sync", short: "f", long: &[], run: lifecycle::sync },
    Sub { name: "import", short: ":aCc:d:DEfFjlmnNo:R:stT:VX", long: &[JSON, REWIND], run: import::run },
    Sub { name: "list", short: ":gjHLo:pPT:v", long: &[JSON, JSON_INT, JSON_GUID], run: list::run },
    Sub { name: "status", short: "c:jdDegiLpPsT:tvx", long: &[POWER, JSON, JSON_INT, JSON_FLAT, JSON_GUID], run: status::run },
    Sub { name: "get", short: ":jHo:p", long: &[JSON, JSON_INT, JSON_GUID], run: props::get },
    Sub { name: "set", short: "", long: &[], run: props::set },
    Sub { name: "history", short: "li", long: &[], run: history::run },
    Sub { name: "scrub", short: "spwetC", long: &[], run: scrub::run },
    Sub { name: "resilver", short: "", long: &[], run: wait::resilver },
    Sub { name: "wait", short: "HpT:t:", long: &[], run: wait::run },
    Sub { name: "online", short: "e", long: &[POWER], run: device_state::online },
    Sub { name: "offline", short: "ft", long: &[POWER], run: device_state::offline },
    Sub { name: "clear", short: "FnX", long: &[POWER], run: device_state::clear },
    Sub { name: "attach", short: "fo:sw", long: &[], run: tree::attach },
    Sub { name: "detach", short: "", long: &[], run: tree::detach },
    Sub { name: "replace", short: "fo:sw", long: &[], run: tree::replace },
    Sub { name: "add", short: "fgLno:P", long: &[ALLOW_IN_USE, ALLOW_REPLICATION, ALLOW_ASHIFT], run: tree::add },
    Sub { name: "version", short: "j", long: &[JSON], run: version },
];

/// Runs `zpool ARGS`.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let is_there = |name: &str| SUBS.iter().any(|sub| sub.name == name);
    let Some((name, rest)) = args.split_first() else {
        eprint!("missing command\n{}", usage_of_all(Tool::Zpool, &is_there));
        return ExitCode::from(2);
    };
    let name = match name.as_str() {
        "help" | "-h" | "-?" | "--help" => {
            return help(rest.first(), &is_there);
        }
        "-V" | "--version" => "version",
        name => name,
    };
    if let Some(sub) = SUBS.iter().find(|sub| sub.name == name) {
        return run_sub(sub, rest, format!("zpool {}", args.join(" ")));
    }
    if Tool::Zpool.command(name).is_some() {
        eprintln!("'zpool {name}' is not supported yet");
        return ExitCode::from(1);
    }
    eprint!(
        "unrecognized command '{name}'\n{}",
        usage_of_all(Tool::Zpool, &is_there)
    );
    ExitCode::from(2)
}

fn help(topic: Option<&String>, is_there: &dyn Fn(&str) -> bool) -> ExitCode {
    match topic {
        Some(topic) if is_there(topic) => print!("{}", usage(Tool::Zpool, topic)),
        Some(topic) if Tool::Zpool.command(topic).is_none() => {
            eprintln!("no help for '{topic}'");
            return ExitCode::from(2);
        }
        _ => print!("{}", usage_of_all(Tool::Zpool, is_there)),
    }
    ExitCode::SUCCESS
}

fn run_sub(sub: &Sub, args: &[String], command_line: String) -> ExitCode {
    if args.iter().any(|arg| arg == "--help") {
        print!("{}", usage(Tool::Zpool, sub.name));
        return ExitCode::SUCCESS;
    }
    let spec = OptSpec {
        short: sub.short,
        long: sub.long,
    };
    let outcome = match parse(&spec, args) {
        Ok(parsed) => (sub.run)(&session(Access::Read, command_line), &parsed),
        Err(error) => Err(wrong_options(sub, &spec, &error)),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(Fail::Failed(text)) => {
            eprintln!("{}", text.trim_end_matches('\n'));
            ExitCode::from(1)
        }
        Err(Fail::Exits(code, text)) => {
            eprintln!("{}", text.trim_end_matches('\n'));
            ExitCode::from(code)
        }
        Err(Fail::Said(code)) => ExitCode::from(code),
        Err(Fail::Usage(text)) => {
            if !text.is_empty() {
                eprintln!("{text}");
            }
            eprint!("{}", usage(Tool::Zpool, sub.name));
            ExitCode::from(2)
        }
    }
}

fn wrong_options(sub: &Sub, spec: &OptSpec, error: &OptError) -> Fail {
    match (sub.name, error) {
        ("status", OptError::MissingArgument('c')) => {
            Fail::Failed("'zpool status -c' is not supported yet".into())
        }
        // OpenZFS skips the option, after which there are no arguments left.
        ("get", OptError::MissingArgument(_)) => Fail::Usage("missing property argument".into()),
        _ => Fail::Usage(spec.complaint(error)),
    }
}

fn version(_: &Session, args: &Parsed) -> Outcome {
    if !args.operands.is_empty() {
        return Err(Fail::Usage("too many arguments".into()));
    }
    let version = format!("ashift-{}", env!("CARGO_PKG_VERSION"));
    if args.has('j') {
        let mut body = serde_json::Map::new();
        let userland = serde_json::json!({ "userland": version });
        body.insert("zfs_version".to_owned(), userland);
        print!("{}", json_document("zpool version", body));
    } else {
        println!("{version}");
    }
    Ok(0)
}

/// The time zone of this machine.
pub(crate) fn zone() -> Zone {
    crate::zone::local()
}

/// Checks options that only affect the form of JSON.
fn check_json_options(args: &Parsed) -> Result<(), Fail> {
    let options = ["json-int", "json-flat-vdevs", "json-pool-key-guid"];
    match options.iter().find(|name| args.has_long(name)) {
        Some(name) if !args.has('j') => {
            // The real tool prints one of the three without its dashes.
            let dashes = if *name == "json-pool-key-guid" {
                ""
            } else {
                "--"
            };
            let text = format!("'{dashes}{name}' only works with '-j' option");
            Err(Fail::Usage(text))
        }
        _ => Ok(()),
    }
}

/// Refuses options that are recognised but not supported.
fn refuse_options(args: &Parsed, command: &str, letters: &str) -> Result<(), Fail> {
    match letters.chars().find(|letter| args.has(*letter)) {
        Some(letter) => Err(Fail::Failed(format!(
            "'zpool {command} -{letter}' is not supported yet"
        ))),
        None => Ok(()),
    }
}

/// Refuses `--power`, which controls disk enclosures.
fn refuse_power(args: &Parsed, command: &str) -> Result<(), Fail> {
    if args.has_long("power") {
        let text = format!("'zpool {command} --power' is not supported yet");
        return Err(Fail::Failed(text));
    }
    Ok(())
}

/// The failure to open a pool.
fn open_error(pool: &str, error: &Error) -> Fail {
    Fail::Failed(failure::opening(pool, error))
}

/// Like [`open_error`] for a pool to be changed: `what` is the operation that a read-only pool refuses.
fn change_error(pool: &str, what: &str, error: &Error) -> Fail {
    let text = error.to_string();
    match text.strip_prefix(&format!("cannot open '{pool}': pool is read-only")) {
        Some(why) => Fail::Failed(format!("{what}: pool is read-only{why}")),
        None => open_error(pool, error),
    }
}
