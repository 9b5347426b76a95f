//! `zpool`: create, import, look at and change pools.
//!
//! # What it is
//! One module per group of commands. Each command is a function from arguments to an [`Outcome`].
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c, lib/libzfs/libzfs_pool.c: texts, columns and exit codes.

mod checkpoint;
mod create;
mod ddtprune;
mod device_state;
mod devices;
mod events;
mod history;
mod import;
mod iostat;
mod lifecycle;
mod list;
mod prefetch;
mod props;
mod remove;
mod rewind;
mod script;
mod scrub;
mod split;
mod status;
mod sweep;
mod tree;
mod upgrade;
mod vdev_props;
mod wait;

pub(crate) use list::name_style;

use admin::getopt::{Flag, OptError, Parsed};
use admin::number::Zone;
use admin::usage::Tool;
use base::Error;

use crate::command::{Command, Entry, Table};
use crate::failure::{self, Fail, Outcome};
use crate::program::{Program, command, version};

const fn long(name: &'static str) -> (&'static str, Flag) {
    (name, Flag::Long(name))
}

const JSON: (&str, Flag) = ("json", Flag::Short('j'));
const JSON_INT: (&str, Flag) = long("json-int");
const JSON_FLAT: (&str, Flag) = long("json-flat-vdevs");
const JSON_GUID: (&str, Flag) = long("json-pool-key-guid");
const CANCEL: (&str, Flag) = ("cancel", Flag::Short('c'));
const SUSPEND: (&str, Flag) = ("suspend", Flag::Short('s'));
const UNINIT: (&str, Flag) = ("uninit", Flag::Short('u'));
const WAIT: (&str, Flag) = ("wait", Flag::Short('w'));
const SECURE: (&str, Flag) = ("secure", Flag::Short('d'));
const RATE: (&str, Flag) = ("rate", Flag::Short('r'));
const POWER: (&str, Flag) = long("power");
const ALLOW_IN_USE: (&str, Flag) = long("allow-in-use");
const ALLOW_REPLICATION: (&str, Flag) = long("allow-replication-mismatch");
const ALLOW_ASHIFT: (&str, Flag) = long("allow-ashift-mismatch");
const DISCARD: (&str, Flag) = ("discard", Flag::Short('d'));
const REWIND: (&str, Flag) = long("rewind-to-checkpoint");

#[rustfmt::skip]
const PROGRAM: Program = Program {
    tool: Tool::Zpool,
    commands: Table {
        program: "zpool",
        commands: &[
            command("create", ":fndR:m:o:O:t:", &[], create::run),
            command("destroy", "f", &[], lifecycle::destroy),
            command("export", "af", &[], lifecycle::export),
            command("labelclear", "f", &[], lifecycle::labelclear),
            command("reguid", "g:", &[], lifecycle::reguid),
            command("reopen", "n", &[], lifecycle::reopen),
            command("sync", "f", &[], lifecycle::sync),
            command("upgrade", ":avV:", &[], upgrade::run),
            command("import", ":aCc:d:DEfFjlmnNo:R:stT:VX", &[JSON, REWIND], import::run),
            command("list", ":gjHLo:pPT:v", &[JSON, JSON_INT, JSON_GUID], list::run),
            command("iostat", "c:gLPT:vyhplqrwnH", &[], iostat::run),
            command("status", "c:jdDegiLpPsT:tvx", &[POWER, JSON, JSON_INT, JSON_FLAT, JSON_GUID], status::run),
            command("get", ":jHo:p", &[JSON, JSON_INT, JSON_GUID], props::get),
            command("set", "", &[], props::set),
            command("history", "li", &[], history::run),
            command("events", "vHfc", &[], events::run),
            command("scrub", "spwetC", &[], scrub::run),
            command("initialize", "csuw", &[CANCEL, SUSPEND, UNINIT, WAIT], sweep::initialize),
            command("trim", "cdr:sw", &[CANCEL, SECURE, RATE, SUSPEND, WAIT], sweep::trim),
            command("prefetch", "t:", &[], prefetch::run),
            command("ddtprune", "d:p:", &[], ddtprune::run),
            command("checkpoint", ":dw", &[DISCARD, WAIT], checkpoint::run),
            command("resilver", "", &[], wait::resilver),
            command("wait", "HpT:t:", &[], wait::run),
            command("online", "e", &[POWER], device_state::online),
            command("offline", "ft", &[POWER], device_state::offline),
            command("clear", "FnX", &[POWER], device_state::clear),
            command("attach", "fo:sw", &[], tree::attach),
            command("detach", "", &[], tree::detach),
            command("remove", "npsw", &[], remove::run),
            command("replace", "fo:sw", &[], tree::replace),
            command("split", ":gLR:lno:P", &[], split::run),
            command("add", "fgLno:P", &[ALLOW_IN_USE, ALLOW_REPLICATION, ALLOW_ASHIFT], tree::add),
            command("version", "j", &[JSON], |_, args| version(Tool::Zpool, args)),
        ],
    },
    wrong_options,
    refusal: |name, _| format!("'zpool {name}' is not supported yet"),
};

pub(crate) const ZPOOL: Command<Entry> =
    Command::words("zpool", "create, import, list and change pools", "", run)
        .tool()
        .leads_with("");

fn run(args: &[String]) -> Outcome {
    match args.first() {
        Some(word) if word == "-h" => PROGRAM.help(None),
        _ => PROGRAM.run(args),
    }
}

fn wrong_options(command: &str, error: &OptError) -> Option<Fail> {
    match (command, error) {
        (name @ ("status" | "iostat"), OptError::MissingArgument('c')) => {
            script::list(name);
            Some(Fail::Said(0))
        }
        // OpenZFS skips the option, after which there are no arguments left.
        ("get", OptError::MissingArgument(_)) => {
            Some(Fail::Usage("missing property argument".into()))
        }
        _ => None,
    }
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
