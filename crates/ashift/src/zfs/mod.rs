//! `zfs`: datasets.
//!
//! # What it is
//! Each command parses its options, opens the pools that it needs (read-only or for writing), acts, adds
//! its command line to the history of the pools it changed, and closes them, which syncs. Names, options
//! and texts are those of OpenZFS; usage errors go to stderr with exit code 2, any other failure gives 1.
//!
//! Where a process holds the pools, file systems are mounted where `mountpoint` says, and commands move these mounts
//! (`crate::mounting`). Without one nothing is mounted; files are accessed with `ashift ls`, `cp` and so on as
//! `POOL/DATASET:/path`.
//!
//! ```text
//! session  open pools        target  names -> datasets      item   datasets -> properties
//! list get holds userspace   what is printed
//! mount                      what is mounted
//! create snapshot destroy rename rollback set hold          what is changed
//! ```
//!
//! # Source
//! OpenZFS cmd/zfs/zfs_main.c, lib/libzfs/libzfs_dataset.c @be7657e3.

mod bookmark;
mod change_key;
mod create;
mod destroy;
mod fail;
mod get;
mod hold;
mod item;
mod key;
mod list;
mod mount;
mod owned;
mod project;
mod rename;
mod rollback;
mod set;
mod snapshot;
mod target;
mod upgrade;
mod userspace;

use admin::getopt::{Flag, OptError};
use admin::usage::Tool;

use crate::command::{Command, Entry, Table};
use crate::files::{REWRITE, rewrites_in_pool};
use crate::program::{Program, changes, command, version};
use fail::{Fail, Outcome};

const JSON: &[(&str, Flag)] = &[
    ("json", Flag::Short('j')),
    ("json-int", Flag::Long("json-int")),
];

const PROGRAM: Program = Program {
    tool: Tool::Zfs,
    commands: Table {
        program: "zfs",
        commands: &[
            changes("create", ":PV:b:nso:puv", create::create),
            changes("destroy", "vpndfrR", destroy::destroy),
            changes("snapshot", "ro:", snapshot::snapshot),
            changes("rollback", "rRf", rollback::rollback),
            changes("clone", "o:p", create::clone),
            changes("bookmark", "", bookmark::bookmark),
            changes("promote", "", rename::promote),
            changes("rename", "pruf", rename::rename),
            command("list", "jHS:d:o:prs:t:", JSON, list::list),
            changes("set", "u", set::set),
            command("get", ":d:o:s:jrt:Hp", JSON, get::get),
            changes("inherit", "rS", set::inherit),
            changes("upgrade", "rvV:a", upgrade::upgrade),
            command("userspace", "nHpo:s:S:t:i", &[], userspace::userspace),
            command("groupspace", "nHpo:s:S:t:i", &[], userspace::groupspace),
            command("projectspace", "nHpo:s:S:t:i", &[], userspace::projectspace),
            command("project", "0Ccdkp:rs", &[], |_, parsed| {
                project::project(parsed)
            }),
            changes("hold", "rt", hold::hold),
            command("holds", "rHp", &[], hold::holds),
            changes("release", "r", hold::release),
            command("mount", ":ajRlvo:Of", JSON, mount::mount),
            command("unmount", "afu", &[], mount::unmount),
            command("load-key", "anrL:", &[], key::load_key),
            command("unload-key", "ar", &[], key::unload_key),
            changes("change-key", "lio:", change_key::change_key),
            command("version", "j", JSON, |_, args| version(Tool::Zfs, args)),
        ],
    },
    wrong_options,
    refusal,
};

pub(crate) const ZFS: Command<Entry> = Command::words(
    "zfs",
    "create, snapshot, list and change data sets",
    "",
    run,
)
.tool()
.leads_with("");

fn run(args: &[String]) -> Outcome {
    match args.first() {
        Some(word) if word == "rewrite" && rewrites_in_pool(args) => REWRITE.act(&args[1..]),
        Some(word) if word.contains('=') => PROGRAM.run(&[&["set".to_owned()], args].concat()),
        _ => PROGRAM.run(args),
    }
}

fn wrong_options(command: &str, error: &OptError) -> Option<Fail> {
    let is_size = command == "create" && matches!(error, OptError::MissingArgument(_));
    is_size.then(|| Fail::usage("missing size argument"))
}

fn refusal(name: &str, _: &[String]) -> String {
    format!("zfs {name}: not supported yet")
}
