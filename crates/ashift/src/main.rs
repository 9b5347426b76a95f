//! The one binary: `ashift zpool …`, `ashift cp …`, or `zpool …` through a link of that name.

mod bench;
mod dd;
mod demo;
mod diskmark;
mod drives;
mod failure;
mod files;
mod geli;
mod geomclass;
mod gnop;
mod gpart;
mod identify;
mod lab;
mod links;
mod machine;
mod parted;
mod phybs;
mod program;
mod progress;
mod say;
mod session;
mod state;
mod trace;
mod zdb;
mod zfs;
mod zone;
mod zpool;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A command, with its line in `ashift help`.
struct Command {
    name: &'static str,
    about: &'static str,
    run: fn(&[String]) -> ExitCode,
    /// Whether it runs in the machine that was chosen, if any. The others ask for no provider, or find their
    /// machine themselves.
    is_in_world: bool,
    /// Whether it replaces a tool of the same name, also on files and devices of the host. (`cp`, `ls` and so on
    /// do not: a link of that name would hide the host's own.)
    is_tool: bool,
}

const fn command(
    name: &'static str,
    about: &'static str,
    run: fn(&[String]) -> ExitCode,
) -> Command {
    Command {
        name,
        about,
        run,
        is_in_world: true,
        is_tool: false,
    }
}

const fn tool(name: &'static str, about: &'static str, run: fn(&[String]) -> ExitCode) -> Command {
    Command {
        is_tool: true,
        ..command(name, about, run)
    }
}

const fn apart(name: &'static str, about: &'static str, run: fn(&[String]) -> ExitCode) -> Command {
    Command {
        is_in_world: false,
        ..command(name, about, run)
    }
}

#[rustfmt::skip]
const COMMANDS: &[Command] = &[
    apart("demo", "the whole way once, on image files", demo::run),
    tool("zpool", "create, import, list and change pools", zpool::run),
    tool("zfs", "create, snapshot, list and change data sets", zfs::run),
    tool("zdb", "look at labels, objects, blocks; check a pool", zdb::run),
    command("cp", "copy files between this host and data sets", files::cp),
    command("ls", "list files in a data set", files::ls),
    command("cat", "print files of a data set", files::cat),
    command("find", "find files in a data set", files::find),
    command("stat", "say everything about a file", files::stat),
    command("du", "space that files take", files::du),
    command("df", "room that datasets have", files::df),
    command("sha256sum", "sum files up", files::sha256sum),
    command("mkdir", "make directories", files::mkdir),
    command("rmdir", "remove empty directories", files::rmdir),
    command("rm", "remove files", files::rm),
    command("mv", "rename files", files::mv),
    command("ln", "make links", files::ln),
    command("touch", "make files, or change their times", files::touch),
    command("truncate", "change the size of files", files::truncate),
    command("chmod", "change permissions", files::chmod),
    command("chown", "change owners", files::chown),
    apart("machine", "machines of emulated drives: create, show, pull, cut the power", machine::run),
    apart("drives", "drive models: what they say, what they are", drives::run),
    tool("gpart", "partition tables, as FreeBSD does it", gpart::run),
    tool("gnop", "a provider that passes on what it gets, with another sector size", gnop::run),
    tool("geli", "encrypted providers", geli::run),
    tool("parted", "partition tables, as GNU parted does it", parted::run),
    tool("camcontrol", "what drives say of themselves", identify::camcontrol),
    tool("diskinfo", "sizes and sectors of providers", identify::diskinfo),
    tool("dd", "copy blocks between files, providers and pools", dd::run),
    tool("phybs", "find the physical sector by writing", phybs::run),
    tool("diskmark", "sequential and random speed of a drive or folder", diskmark::run),
    apart("lab", "replay published experiments", lab::run),
    apart("bench", "measure speeds beside other programs", bench::run),
    apart("links", "make links named zpool, zfs, gpart and so on", links::run),
];

/// The commands that replace a tool of the same name.
pub(crate) fn tools() -> impl Iterator<Item = &'static str> {
    let tools = COMMANDS.iter().filter(|command| command.is_tool);
    tools.map(|command| command.name)
}

fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}

/// Whether there is a command of this name.
pub(crate) fn is_command(name: &str) -> bool {
    find(name).is_some()
}

fn usage() -> String {
    let mut text = String::from(
        "usage: ashift [-m MACHINE] [-q] COMMAND [ARGUMENT…]     (ashift COMMAND -h says more of one)\n\n",
    );
    for command in COMMANDS {
        text.push_str(&format!("  {:<10} {}\n", command.name, command.about));
    }
    text.push_str(
        "\nA file in a pool is POOL/DATASET:/path, in a snapshot POOL/DATASET@SNAP:/path.\n\
         Imported pools are remembered below $ASHIFT_STATE (default: ~/.local/state/ashift).\n\
         A command waits for a pool that another one uses; $ASHIFT_WAIT says how many seconds, 0: not.\n\
         With -q (--quiet, --no-progress) or ASHIFT_PROGRESS=off nothing shows how far a command is.\n\
         With -m or $ASHIFT_MACHINE a command runs in a machine of emulated drives: a folder made\n\
         by `ashift machine create`. Names like ada0 and gpt/d1 are those of its drives.\n",
    );
    text
}

fn main() -> ExitCode {
    say::end_at_a_panic();
    let mut args = std::env::args_os();
    let own = args.next().unwrap_or_else(|| OsString::from("ashift"));
    let own = Path::new(&own)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let mut args: Vec<String> = Vec::new();
    for arg in std::env::args_os().skip(1) {
        match arg.into_string() {
            Ok(arg) => args.push(arg),
            Err(arg) => return say::fail(&own, 2, &format!("not UTF-8: {}", arg.display())),
        }
    }
    if let Err(error) = state::wait_ns().and_then(|_| state::arc_bytes()) {
        return say::fail(&own, 2, &error.to_string());
    }
    if let Some(command) = find(&own) {
        machine::choose(None);
        return run(command, &args);
    }
    let folder = match own_options(&mut args) {
        Ok(folder) => folder,
        Err(text) => return say::fail("ashift", 2, &text),
    };
    machine::choose(folder);
    let Some((name, rest)) = args.split_first() else {
        eprint!("{}", usage());
        return ExitCode::from(2);
    };
    match name.as_str() {
        "help" | "-h" | "--help" => {
            print!("{}", usage());
            ExitCode::SUCCESS
        }
        "version" | "-V" | "--version" => {
            println!("ashift {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        _ => match find(name) {
            Some(command) => run(command, rest),
            None => unrecognized(name),
        },
    }
}

fn unrecognized(name: &str) -> ExitCode {
    let known: Vec<&str> = COMMANDS.iter().map(|command| command.name).collect();
    say::unrecognized("ashift", name, &known, "ashift help")
}

/// Removes `-m MACHINE` and `-q` from the front; returns the machine's folder.
fn own_options(args: &mut Vec<String>) -> Result<Option<PathBuf>, String> {
    let mut folder = None;
    while let Some(option) = args.first() {
        match option.as_str() {
            "-m" | "--machine" if args.len() > 1 => {
                args.remove(0);
                folder = Some(PathBuf::from(args.remove(0)));
            }
            "-m" | "--machine" => return Err("-m needs the folder of a machine".to_owned()),
            "-q" | "--quiet" | "--no-progress" => {
                args.remove(0);
                progress::turn_off();
            }
            _ => break,
        }
    }
    Ok(folder)
}

/// Runs the command given by these words, in the world of the caller.
pub(crate) fn run_words(words: &[String]) -> ExitCode {
    let (name, rest) = words
        .split_first()
        .map_or(("", words), |(name, rest)| (name.as_str(), rest));
    find(name).map_or_else(|| unrecognized(name), |command| run(command, rest))
}

/// Runs a command where its names are to be looked for.
fn run(command: &Command, args: &[String]) -> ExitCode {
    if command.is_in_world {
        machine::with_world(|_| (command.run)(args))
    } else {
        (command.run)(args)
    }
}
