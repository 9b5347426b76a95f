//! `ashift sh`: a script of commands, in one session.
//!
//! # What it is
//! A small POSIX shell whose commands are those of this program. They run in its process, each with a
//! [`Caller`](crate::caller::Caller) of its own that has the script's streams or those of a redirection; one with `&`
//! is a thread. On this host these are threads like others. In a machine they are threads of one simulation, so the
//! same script and seed give the same times and bytes, and pools stay open between commands, as in a machine that is
//! up.
//!
//! The text is parsed by `conch-parser`. [`script`] keeps of it what can be run, and refuses the rest before anything
//! runs; [`shell`] runs it.
//!
//! # Concurrency
//! A script has ended when all its jobs have, also those that nothing waited for.

mod boot;
mod builtin;
mod jobs;
mod script;
mod shell;

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use base::{Context, Error, Result};
use service::Keeper;

use crate::caller::{self, Stream, caller};
use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use crate::session;
use crate::world::entered;
use jobs::Jobs;
use shell::Shell;

pub(crate) use boot::boot;

const USAGE: &str = "usage: ashift sh FILE|- [ARGUMENT…]\n";

const MORE: &str = "
Runs a script whose commands are those of this program. In a machine (-m) all of it is one simulation: with the same
script and seed the same things happen at the same times.
  NAME=value  $NAME  ${NAME}  $?  $!  $#  $1 …  'text'  \"text\"  \\c
  > >> < 2>&1 <<END   files of this host; names with * and ? are left to the commands
  &  wait [$!]  ;  &&  ||  !  { }  ( )  if  while  until  for  time [-p] COMMAND
  : true false echo test [ exit export unset set -e
There are no pipes, functions, case, arithmetic, break, nor the output of a command in a word: that is said before
anything runs, and the exit code is 2. It is 127 for a command that there is not.
";

/// `ashift sh`.
pub(crate) const SH: Command<Entry> = Command::words(
    "sh",
    "run a script of commands, in a machine as one simulation",
    USAGE,
    run,
)
.more(MORE);

fn run(args: &[String]) -> Outcome {
    let (name, arguments) = match args.split_first() {
        None => return Err(Fail::Usage("missing file".to_owned())),
        Some((word, _)) if matches!(word.as_str(), "-h" | "--help") => return Err(Fail::Help),
        Some((word, _)) if word != "-" && word.starts_with('-') => {
            return Err(Fail::Usage(format!("invalid option '{word}'")));
        }
        Some((name, arguments)) => (name, arguments),
    };
    let text = read(name)?;
    let script = script::parse(&text).map_err(|e| Fail::Exits(2, format!("{name}: {e}")))?;
    let caller = caller();
    let streams = [
        caller.input_file()?,
        caller.output_file(Stream::Out)?,
        caller.output_file(Stream::Err)?,
    ];
    let (keeper, is_own) = keeper();
    let jobs = Arc::new(Jobs::default());
    let arguments = [std::slice::from_ref(name), arguments].concat();
    let mut shell = Shell::new(arguments, keeper.clone(), Arc::clone(&jobs));
    let streams = streams.map(Arc::new);
    let act = || shell.run(&script, &streams);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
    jobs.wait_for_all();
    let closed = match keeper {
        Some(keeper) if is_own => keeper.close(),
        _ => Ok(()),
    };
    let code = outcome.unwrap_or_else(|payload| std::panic::resume_unwind(payload));
    closed?;
    Fail::exit(code)
}

/// What keeps the pools of a machine open from one command to the next, and whether this script made it.
fn keeper() -> (Option<Arc<Keeper>>, bool) {
    let caller = caller();
    let given = caller.as_client().and_then(|client| client.keeper.clone());
    if given.is_some() {
        return (given, false);
    }
    let pools = session::pools_of_machine(&entered());
    (pools.map(Keeper::new), true)
}

fn read(name: &str) -> Result<String> {
    let mut bytes = Vec::new();
    if name == "-" {
        let mut input = File::from(caller().input_file()?);
        let mut piece = [0; 4096];
        loop {
            caller::wait_for(&input);
            match input.read(&mut piece)? {
                0 => break,
                len => bytes.extend_from_slice(&piece[..len]),
            }
        }
    } else {
        let read = File::open(name).and_then(|mut file| file.read_to_end(&mut bytes));
        read.map_err(Error::from).within(|| name.to_owned())?;
    }
    String::from_utf8(bytes).map_err(|_| Error::invalid(format!("{name}: not UTF-8")))
}
