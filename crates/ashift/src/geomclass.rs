//! What gnop(8) and geli(8) share as front ends of geom(8): verbs with options, listings, and the users of
//! a provider.

mod options;
mod show;
mod users;

use std::sync::Arc;

use base::{Error, Result};
use machine::World;

use crate::command::{Command, Table, asks_for_help};
use crate::failure::{Fail, Outcome};
use crate::gpart::device::take_consent;

pub(crate) use options::{Opt, Options, flag, number, text};
pub(crate) use show::{Geom, Shape, list, status};
pub(crate) use users::{layers_above, user_of};

/// How a verb is run.
#[derive(Clone, Copy)]
pub(crate) struct Verb {
    options: &'static [Opt],
    act: fn(&mut Call<'_>) -> Result<()>,
}

/// A verb; `synopsis` is its usage after the name.
pub(crate) const fn verb(
    name: &'static str,
    synopsis: &'static str,
    options: &'static [Opt],
    act: fn(&mut Call<'_>) -> Result<()>,
) -> Command<Verb> {
    Command {
        name,
        about: synopsis,
        run: Verb { options, act },
    }
}

/// A class with its verbs.
pub(crate) struct Class {
    pub verbs: Table<Verb>,
    /// The help text of `-h` below the synopsis.
    pub help: &'static str,
}

/// A subcommand that was asked for.
pub(crate) struct Call<'a> {
    pub program: &'static str,
    pub world: &'a Arc<World>,
    pub options: Options,
    /// Whether it may write to a block device of this host.
    pub has_consent: bool,
}

impl Call<'_> {
    /// Reports an error with one of several providers.
    pub(crate) fn complain(&self, error: &Error) {
        eprintln!("{}: {error}", self.program);
    }

    /// The arguments that are not options; at least one.
    pub(crate) fn providers(&self, otherwise: &str) -> Result<&[String]> {
        if self.options.args.is_empty() {
            return Err(Error::invalid(otherwise));
        }
        Ok(&self.options.args)
    }

    /// Exactly `N` arguments.
    pub(crate) fn args<const N: usize>(&self) -> Result<&[String; N]> {
        let args = self.options.args.as_slice().try_into();
        args.map_err(|_| Error::invalid("Invalid number of arguments."))
    }
}

impl Class {
    fn usage(&self) -> String {
        let mut usage = String::new();
        for (n, verb) in self.verbs.commands.iter().enumerate() {
            let lead = if n == 0 { "usage:" } else { "      " };
            let line = format!(
                "{lead} {} {} {}\n",
                self.verbs.program, verb.name, verb.about
            );
            usage.push_str(&line);
        }
        usage
    }

    /// Runs a command line.
    pub(crate) fn run(&self, args: &[String]) -> Outcome {
        let program = self.verbs.program;
        let Some((word, rest)) = args.split_first() else {
            eprint!("{}", self.usage());
            return Fail::exit(1);
        };
        if matches!(word.as_str(), "-h" | "--help" | "help") {
            print!("{}\n{}", self.usage(), self.help);
            return Ok(());
        }
        let unknown = || Fail::Failed(format!("Unknown command: {word}.\n{}", self.usage()));
        let verb = self.verbs.find(word).ok_or_else(unknown)?;
        let usage = format!("usage: {program} {word} {}", verb.about);
        if asks_for_help(rest) {
            print!("{usage}\n\n{}", self.help);
            return Ok(());
        }
        let mut rest = rest.to_vec();
        let has_consent = take_consent(&mut rest);
        let options = Options::parse(&rest, verb.run.options);
        let options = options.map_err(|error| Fail::Failed(format!("{error}\n{usage}")))?;
        let mut call = Call {
            program,
            world: &crate::world::entered(),
            options,
            has_consent,
        };
        (verb.run.act)(&mut call)?;
        if call.options.has('v') {
            println!("Done.");
        }
        Ok(())
    }
}
