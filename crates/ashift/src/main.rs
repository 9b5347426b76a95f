//! The one binary: `ashift zpool …`, `ashift cp …`, or `zpool …` through a link of that name.

#[macro_use]
mod caller;

mod background;
mod bench;
mod bonnie;
mod command;
mod dd;
mod demo;
mod diskmark;
mod doctor;
mod drives;
mod failure;
mod files;
mod geli;
mod geomclass;
mod gnop;
mod gpart;
mod gstat;
mod holder;
mod identify;
mod iostat;
mod keys;
mod lab;
mod links;
mod machine;
mod mount;
mod mounting;
mod name_rules;
mod owner;
mod parted;
mod phybs;
mod plan;
mod program;
mod progress;
mod quota;
mod replay;
mod rewind;
mod say;
mod search;
mod session;
mod sh;
mod sleep;
mod state;
mod stopwatch;
mod strays;
mod system;
mod time;
mod trace;
mod world;
mod zdb;
mod zfs;
mod zone;
mod zpool;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

// Being linked is all it has to be.
use allocator as _;
use command::{Command, Entry, Table};
use failure::{Fail, Outcome};

const ASHIFT: Table<Entry> = Table {
    program: "ashift",
    commands: &[
        demo::DEMO,
        zpool::ZPOOL.held(),
        zfs::ZFS.held(),
        zdb::ZDB.held(),
        files::CP.held(),
        files::RSYNC.held(),
        files::LS.held(),
        files::CAT.held(),
        files::FIND.held(),
        files::STAT.held(),
        files::DU.held(),
        files::DF.held(),
        files::SHA256SUM.held(),
        files::MKDIR.held(),
        files::RMDIR.held(),
        files::RM.held(),
        files::REWRITE.held(),
        files::MV.held(),
        files::LN.held(),
        files::TOUCH.held(),
        files::TRUNCATE.held(),
        files::CHMOD.held(),
        files::CHOWN.held(),
        files::TAR.held(),
        mount::MOUNT,
        mount::UNMOUNT,
        rewind::REWIND.held(),
        files::RESCUE.held(),
        doctor::DOCTOR.held(),
        machine::MACHINE,
        drives::DRIVES,
        gpart::GPART,
        gnop::GNOP,
        geli::GELI,
        parted::PARTED,
        identify::CAMCONTROL,
        identify::DISKINFO,
        iostat::IOSTAT,
        gstat::GSTAT,
        dd::DD.held(),
        phybs::PHYBS,
        diskmark::DISKMARK,
        replay::REPLAY,
        bonnie::BONNIE.held(),
        bonnie::CSV2TXT,
        bonnie::CSV2HTML,
        bonnie::ZCAV,
        lab::LAB,
        plan::PLAN,
        bench::BENCH,
        links::LINKS,
        holder::SERVE,
        sh::SH.held(),
        sleep::SLEEP,
        time::TIME,
    ],
};

/// The commands that replace a tool of the same name.
pub(crate) fn tools() -> impl Iterator<Item = &'static str> {
    let tools = ASHIFT.commands.iter().filter(|command| command.run.is_tool);
    tools.map(|command| command.name)
}

/// Whether there is a command of this name.
pub(crate) fn is_command(name: &str) -> bool {
    ASHIFT.find(name).is_some()
}

/// Whether a command of this name runs in the machine that was chosen, if one was.
pub(crate) fn runs_in_world(name: &str) -> bool {
    ASHIFT
        .find(name)
        .is_some_and(|command| command.run.is_in_world)
}

fn usage() -> String {
    let mut text = String::from(
        "usage: ashift [-m MACHINE] [-q] COMMAND [ARGUMENT…]     (ashift COMMAND -h says more of one)\n\n",
    );
    for command in ASHIFT.commands {
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
    let own = std::env::args_os().next();
    let own = own.unwrap_or_else(|| OsString::from("ashift"));
    let own = Path::new(&own).file_name().unwrap_or_default();
    let own = own.to_string_lossy();
    let code = exit_code(start(&own), &format!("{own}: "));
    caller::caller().flush(caller::Stream::Out);
    ExitCode::from(code)
}

/// Reports why a command failed, if that has not been done, and returns its exit code.
fn exit_code(outcome: Outcome, lead: &str) -> u8 {
    match outcome.map_err(|fail| fail.say(lead)) {
        Ok(()) => 0,
        Err(Fail::Said(code)) => code,
        Err(_) => 2,
    }
}

/// Runs a command for a client of this process, and returns its exit code. `words`: the name of a command, and its
/// arguments.
fn run_for_client(words: &[String]) -> u8 {
    let settings = check_settings();
    exit_code(settings.and_then(|()| run_words(words)), "ashift: ")
}

/// Refuses an environment that cannot be used.
fn check_settings() -> Outcome {
    let settings = state::wait_ns().and_then(|_| state::arc_bytes());
    settings.map_err(|error| Fail::Exits(2, error.to_string()))?;
    Ok(())
}

/// Runs the program under a name, which may be that of a command.
fn start(own: &str) -> Outcome {
    let args = std::env::args_os().skip(1).map(|arg| {
        let not_utf8 = |arg: OsString| Fail::Exits(2, format!("not UTF-8: {}", arg.display()));
        arg.into_string().map_err(not_utf8)
    });
    let mut args: Vec<String> = args.collect::<Outcome<_>>()?;
    check_settings()?;
    if let Some(command) = ASHIFT.find(own) {
        world::choose(None);
        return run(command, &args);
    }
    let outcome = own_options(&mut args).and_then(|folder| {
        world::choose(folder);
        match args.first().map(String::as_str) {
            Some("version" | "-V" | "--version") => {
                println!("ashift {}", env!("CARGO_PKG_VERSION"));
                Ok(())
            }
            _ => run_words(&args),
        }
    });
    match outcome {
        Err(Fail::Help) => {
            print!("{}", usage());
            Ok(())
        }
        Err(Fail::Usage(_)) => {
            eprint!("{}", usage());
            Fail::exit(2)
        }
        outcome => outcome.map_err(|fail| fail.say("ashift: ")),
    }
}

/// Removes `-m MACHINE` and `-q` from the front; returns the machine's folder.
fn own_options(args: &mut Vec<String>) -> Outcome<Option<PathBuf>> {
    let mut folder = None;
    while let Some(option) = args.first() {
        match option.as_str() {
            "-m" | "--machine" if args.len() > 1 => {
                args.remove(0);
                folder = Some(PathBuf::from(args.remove(0)));
            }
            "-m" | "--machine" => {
                let text = "-m needs the folder of a machine";
                return Err(Fail::Exits(2, text.to_owned()));
            }
            "-q" | "--quiet" | "--no-progress" => {
                args.remove(0);
                caller::caller().be_quiet();
            }
            _ => break,
        }
    }
    Ok(folder)
}

/// Runs the command given by these words, in the world of the caller.
pub(crate) fn run_words(words: &[String]) -> Outcome {
    let (command, rest) = ASHIFT.pick(words)?;
    run(command, rest)
}

/// Runs a command where its names are to be looked for: in the process that holds them, if there is one.
fn run(command: &Command<Entry>, args: &[String]) -> Outcome {
    if let Some(state) = holder_of(command) {
        let words = [&[command.name.to_owned()], args].concat();
        if let Some(outcome) = holder::forward(&state, &words) {
            return outcome;
        }
    }
    match command.run.is_in_world {
        true => world::with_world(|| command.act(args)),
        false => command.act(args),
    }
}

/// The state folder whose holder, if there is one, is to run a command.
fn holder_of(command: &Command<Entry>) -> Option<PathBuf> {
    if caller::caller().as_client().is_some() || world::is_entered() {
        return None;
    }
    match world::chosen() {
        Some(folder) => command.run.is_in_world.then(|| folder.join("state")),
        None => command.run.is_held.then(state::state_folder),
    }
}
