//! `zfs`: datasets.
//!
//! # What it is
//! Each command parses its options, opens the pools that it needs (read-only or for writing), acts, adds
//! its command line to the history of the pools it changed, and closes them, which syncs. Names, options
//! and texts are those of OpenZFS; usage errors go to stderr with exit code 2, any other failure gives 1.
//!
//! Nothing is mounted here: `mountpoint`, `canmount` and similar properties are stored for systems that
//! mount. Files are accessed with `ashift ls`, `cp` and so on as `POOL/DATASET:/path`.
//!
//! ```text
//! session  open pools        target  names -> datasets      item   datasets -> properties
//! list get holds             what is printed
//! create snapshot destroy rename rollback set hold          what is changed
//! ```
//!
//! # Source
//! OpenZFS cmd/zfs/zfs_main.c, lib/libzfs/libzfs_dataset.c @be7657e3.

mod bookmark;
mod create;
mod destroy;
mod fail;
mod get;
mod hold;
mod item;
mod list;
mod rename;
mod rollback;
mod set;
mod snapshot;
mod target;
mod userspace;

use std::process::ExitCode;

use admin::getopt::{self, Flag, OptError, OptSpec, Parsed};
use admin::usage::{Tool, usage, usage_of_all};
use service::{Access, Session};

use crate::session::session;
use fail::{Fail, Outcome};

/// A command.
#[derive(Clone, Copy)]
struct Command {
    name: &'static str,
    options: OptSpec,
    /// Whether it may change pools.
    writes: bool,
    run: fn(&Session, &Parsed) -> Outcome,
}

const JSON: &[(&str, Flag)] = &[
    ("json", Flag::Short('j')),
    ("json-int", Flag::Long("json-int")),
];

const fn looks(
    name: &'static str,
    short: &'static str,
    run: fn(&Session, &Parsed) -> Outcome,
) -> Command {
    Command {
        name,
        options: OptSpec { short, long: &[] },
        writes: false,
        run,
    }
}

const fn changes(
    name: &'static str,
    short: &'static str,
    run: fn(&Session, &Parsed) -> Outcome,
) -> Command {
    Command {
        writes: true,
        ..looks(name, short, run)
    }
}

const fn with_json(command: Command) -> Command {
    let options = OptSpec {
        short: command.options.short,
        long: JSON,
    };
    Command { options, ..command }
}

const COMMANDS: &[Command] = &[
    changes("create", ":PV:b:nso:puv", create::create),
    changes("destroy", "vpndfrR", destroy::destroy),
    changes("snapshot", "ro:", snapshot::snapshot),
    changes("rollback", "rRf", rollback::rollback),
    changes("clone", "o:p", create::clone),
    changes("bookmark", "", bookmark::bookmark),
    changes("promote", "", rename::promote),
    changes("rename", "pruf", rename::rename),
    with_json(looks("list", "jHS:d:o:prs:t:", list::list)),
    changes("set", "u", set::set),
    with_json(looks("get", ":d:o:s:jrt:Hp", get::get)),
    changes("inherit", "rS", set::inherit),
    changes("hold", "rt", hold::hold),
    looks("holds", "rHp", hold::holds),
    changes("release", "r", hold::release),
    with_json(looks("version", "j", version)),
];

/// Runs `zfs ARGS`.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let Some((name, rest)) = args.split_first() else {
        eprint!("missing command\n{}", help_of_all());
        return ExitCode::from(2);
    };
    match name.as_str() {
        "-?" | "--help" => return help(&[]),
        "help" => return help(rest),
        "-V" | "--version" => return run(&["version".to_owned()]),
        _ => {}
    }
    let Some(known) = Tool::Zfs.command(name) else {
        if name.contains('=') {
            return run(&[&["set".to_owned()], args].concat());
        }
        eprint!("unrecognized command '{name}'\n{}", help_of_all());
        return ExitCode::from(2);
    };
    if rest.first().is_some_and(|arg| arg == "--help") {
        return help(&[known.name.to_owned()]);
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == known.name) else {
        return refuse(known.name, rest);
    };
    let outcome = match getopt::parse(&command.options, rest) {
        Ok(parsed) => act(command, &parsed, args),
        Err(error) => Err(Fail::Usage(complaint(command, &error))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Fail::Usage(text)) => {
            let text = if text.is_empty() { text } else { text + "\n" };
            eprint!("{text}{}", usage(Tool::Zfs, command.name));
            ExitCode::from(2)
        }
        Err(fail) => match fail.say() {
            Fail::Said(code) => ExitCode::from(code),
            _ => ExitCode::from(1),
        },
    }
}

/// The message for invalid options.
fn complaint(command: &Command, error: &OptError) -> String {
    match error {
        OptError::MissingArgument(_) if command.name == "create" => {
            "missing size argument".to_owned()
        }
        _ => command.options.complaint(error),
    }
}

fn act(command: &Command, parsed: &Parsed, args: &[String]) -> Outcome {
    let access = if command.writes {
        Access::Write
    } else {
        Access::Read
    };
    let session = session(access, format!("zfs {}", args.join(" ")));
    let outcome = (command.run)(&session, parsed);
    // Even after a failure: changes made before it are kept.
    let closed = session.close();
    outcome.and(closed.map_err(Fail::from))
}

fn is_here(name: &str) -> bool {
    COMMANDS.iter().any(|command| command.name == name)
}

fn help_of_all() -> String {
    usage_of_all(Tool::Zfs, &is_here)
}

fn help(topics: &[String]) -> ExitCode {
    match topics
        .first()
        .map(|topic| (topic, Tool::Zfs.command(topic)))
    {
        None => print!("{}", help_of_all()),
        Some((_, Some(command))) => {
            print!("{}", usage(Tool::Zfs, command.name));
            if !is_here(command.name) {
                println!("\nThis program does not have it yet.");
            }
        }
        Some((topic, None)) => {
            eprintln!("no help for '{topic}'");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// Refuses commands that OpenZFS has and this program does not.
fn refuse(name: &str, args: &[String]) -> ExitCode {
    match name {
        "mount" | "unmount" => {
            let last = args.iter().rfind(|arg| !arg.starts_with('-'));
            let dataset = last.map_or("POOL/DATASET", String::as_str);
            eprintln!(
                "cannot {name}: this program mounts nothing; the files are reached with 'ashift \
                 ls {dataset}:/path', 'ashift cp' and so on"
            );
        }
        _ => eprintln!("zfs {name}: not supported yet"),
    }
    ExitCode::from(1)
}

fn version(_: &Session, parsed: &Parsed) -> Outcome {
    if !parsed.operands.is_empty() {
        return Err(Fail::usage("too many arguments"));
    }
    let version = env!("CARGO_PKG_VERSION");
    if parsed.has('j') {
        let body = serde_json::json!({ "userland": format!("ashift-{version}") });
        let mut map = serde_json::Map::new();
        map.insert("zfs_version".to_owned(), body);
        print!("{}", admin::listing::json_document("zfs version", map));
    } else {
        println!("ashift-{version}");
    }
    Ok(())
}
