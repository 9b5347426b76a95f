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
}

const COMMANDS: &[Command] = &[
    Command {
        name: "demo",
        about: "the whole way once, on image files",
        run: demo::run,
    },
    Command {
        name: "zpool",
        about: "create, import, list and change pools",
        run: zpool::run,
    },
    Command {
        name: "zfs",
        about: "create, snapshot, list and change data sets",
        run: zfs::run,
    },
    Command {
        name: "zdb",
        about: "look at labels, objects, blocks; check a pool",
        run: zdb::run,
    },
    Command {
        name: "cp",
        about: "copy files between this host and data sets",
        run: files::cp,
    },
    Command {
        name: "ls",
        about: "list files in a data set",
        run: files::ls,
    },
    Command {
        name: "cat",
        about: "print files of a data set",
        run: files::cat,
    },
    Command {
        name: "find",
        about: "find files in a data set",
        run: files::find,
    },
    Command {
        name: "stat",
        about: "say everything about a file",
        run: files::stat,
    },
    Command {
        name: "du",
        about: "space that files take",
        run: files::du,
    },
    Command {
        name: "df",
        about: "room that datasets have",
        run: files::df,
    },
    Command {
        name: "sha256sum",
        about: "sum files up",
        run: files::sha256sum,
    },
    Command {
        name: "mkdir",
        about: "make directories",
        run: files::mkdir,
    },
    Command {
        name: "rmdir",
        about: "remove empty directories",
        run: files::rmdir,
    },
    Command {
        name: "rm",
        about: "remove files",
        run: files::rm,
    },
    Command {
        name: "mv",
        about: "rename files",
        run: files::mv,
    },
    Command {
        name: "ln",
        about: "make links",
        run: files::ln,
    },
    Command {
        name: "touch",
        about: "make files, or change their times",
        run: files::touch,
    },
    Command {
        name: "truncate",
        about: "change the size of files",
        run: files::truncate,
    },
    Command {
        name: "chmod",
        about: "change permissions",
        run: files::chmod,
    },
    Command {
        name: "chown",
        about: "change owners",
        run: files::chown,
    },
    Command {
        name: "machine",
        about: "machines of emulated drives: create, show, pull, cut the power",
        run: machine::run,
    },
    Command {
        name: "drives",
        about: "drive models: what they say, what they are",
        run: drives::run,
    },
    Command {
        name: "gpart",
        about: "partition tables, as FreeBSD does it",
        run: gpart::run,
    },
    Command {
        name: "gnop",
        about: "a provider that passes on what it gets, with another sector size",
        run: gnop::run,
    },
    Command {
        name: "geli",
        about: "encrypted providers",
        run: geli::run,
    },
    Command {
        name: "parted",
        about: "partition tables, as GNU parted does it",
        run: parted::run,
    },
    Command {
        name: "camcontrol",
        about: "what drives say of themselves",
        run: identify::camcontrol,
    },
    Command {
        name: "diskinfo",
        about: "sizes and sectors of providers",
        run: identify::diskinfo,
    },
    Command {
        name: "dd",
        about: "copy blocks between files, providers and pools",
        run: dd::run,
    },
    Command {
        name: "phybs",
        about: "find the physical sector by writing",
        run: phybs::run,
    },
    Command {
        name: "diskmark",
        about: "sequential and random speed of a drive or folder",
        run: diskmark::run,
    },
    Command {
        name: "lab",
        about: "replay published experiments",
        run: lab::run,
    },
    Command {
        name: "bench",
        about: "measure speeds beside other programs",
        run: bench::run,
    },
    Command {
        name: "links",
        about: "make links named zpool, zfs, gpart and so on",
        run: links::run,
    },
];

/// Commands that ask for no provider, or find their machine themselves.
const WORLDLESS: [&str; 6] = ["demo", "machine", "drives", "lab", "bench", "links"];

/// Whether there is a command of this name.
pub(crate) fn is_command(name: &str) -> bool {
    COMMANDS.iter().any(|command| command.name == name)
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
    if let Some(command) = COMMANDS.iter().find(|c| c.name == own) {
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
        _ => match COMMANDS.iter().find(|c| c.name == name) {
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
    let found = words.split_first().and_then(|(name, rest)| {
        let command = COMMANDS.iter().find(|c| c.name == name)?;
        Some((command, rest))
    });
    match found {
        Some((command, rest)) => run(command, rest),
        None => unrecognized(words.first().map_or("", String::as_str)),
    }
}

/// Runs a command where its names are to be looked for.
fn run(command: &Command, args: &[String]) -> ExitCode {
    if WORLDLESS.contains(&command.name) {
        return (command.run)(args);
    }
    machine::with_world(|_| (command.run)(args))
}
