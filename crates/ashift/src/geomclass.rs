//! What gnop(8) and geli(8) share as front ends of geom(8): verbs with options, listings, and the users of
//! a provider.

mod options;
mod show;
mod users;

use std::process::ExitCode;
use std::sync::Arc;

use base::{Error, Result};
use machine::World;

use crate::gpart::device::take_consent;

pub(crate) use options::{Opt, Options, flag, number, text};
pub(crate) use show::{Geom, Shape, list, status};
pub(crate) use users::{layers_above, user_of};

/// A subcommand.
pub(crate) struct Verb {
    pub name: &'static str,
    /// The usage text after the name.
    pub synopsis: &'static str,
    pub options: &'static [Opt],
    pub run: fn(&mut Call<'_>) -> Result<()>,
}

/// A class with its subcommands.
pub(crate) struct Class {
    /// `gnop`
    pub program: &'static str,
    pub verbs: &'static [Verb],
    /// The help text of `-h` below the synopsis.
    pub help: &'static str,
}

/// A subcommand that was asked for.
pub(crate) struct Call<'a> {
    pub program: &'static str,
    pub verb: &'static Verb,
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
        for (n, verb) in self.verbs.iter().enumerate() {
            let lead = if n == 0 { "usage:" } else { "      " };
            usage.push_str(&format!(
                "{lead} {} {} {}\n",
                self.program, verb.name, verb.synopsis
            ));
        }
        usage
    }

    /// Runs a command line.
    pub(crate) fn main(&'static self, args: &[String]) -> ExitCode {
        let Some((word, rest)) = args.split_first() else {
            eprint!("{}", self.usage());
            return ExitCode::FAILURE;
        };
        if matches!(word.as_str(), "-h" | "--help" | "help") {
            print!("{}\n{}", self.usage(), self.help);
            return ExitCode::SUCCESS;
        }
        let Some(verb) = self.verbs.iter().find(|verb| verb.name == word) else {
            eprintln!("{}: Unknown command: {word}.", self.program);
            eprint!("{}", self.usage());
            return ExitCode::FAILURE;
        };
        if rest.iter().any(|arg| arg == "-h" || arg == "--help") {
            let usage = format!("usage: {} {word} {}", self.program, verb.synopsis);
            print!("{usage}\n\n{}", self.help);
            return ExitCode::SUCCESS;
        }
        let mut rest = rest.to_vec();
        let has_consent = take_consent(&mut rest);
        let options = match Options::parse(&rest, verb.options) {
            Ok(options) => options,
            Err(error) => {
                eprintln!("{}: {error}", self.program);
                eprintln!("usage: {} {word} {}", self.program, verb.synopsis);
                return ExitCode::FAILURE;
            }
        };
        crate::machine::with_world(|world| {
            let mut call = Call {
                program: self.program,
                verb,
                world,
                options,
                has_consent,
            };
            match (call.verb.run)(&mut call) {
                Ok(()) => {
                    if call.options.has('v') {
                        println!("Done.");
                    }
                    ExitCode::SUCCESS
                }
                Err(error) => {
                    call.complain(&error);
                    ExitCode::FAILURE
                }
            }
        })
    }
}
