//! The one binary: `ashift zpool …`, `ashift cp …`, or `zpool …` through a link of that name.

mod host;
mod links;
mod say;
mod zdb;
mod zfs;
mod zone;
mod zpool;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// A command with what `ashift help` says of it.
struct Command {
    name: &'static str,
    about: &'static str,
    run: fn(&[String]) -> ExitCode,
}

const COMMANDS: &[Command] = &[
    Command { name: "zpool", about: "create, import, list and change pools", run: zpool::run },
    Command { name: "zfs", about: "create, snapshot, list and change data sets", run: zfs::run },
    Command { name: "zdb", about: "look at labels, objects, blocks; check a pool", run: zdb::run },
    Command { name: "links", about: "make links named zpool, zfs and zdb", run: links::run },
];

fn usage() -> String {
    let mut text = String::from(
        "usage: ashift COMMAND [ARGUMENT…]     (ashift COMMAND -h says more of one)\n\n",
    );
    for command in COMMANDS {
        text.push_str(&format!("  {:<10} {}\n", command.name, command.about));
    }
    text.push_str(
        "\nA file in a pool is POOL/DATASET:/path, in a snapshot POOL/DATASET@SNAP:/path.\n\
         Imported pools are remembered below $ASHIFT_STATE (default: ~/.local/state/ashift).\n",
    );
    text
}

fn main() -> ExitCode {
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
    if let Some(command) = COMMANDS.iter().find(|c| c.name == own) {
        return (command.run)(&args);
    }
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
            Some(command) => (command.run)(rest),
            None => {
                eprint!("ashift: unrecognized command '{name}'\n{}", usage());
                ExitCode::from(2)
            }
        },
    }
}
