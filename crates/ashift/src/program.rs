//! What `zpool` and `zfs` have in common: commands of OpenZFS, which are run, explained or refused.

use admin::getopt::{self, Flag, OptError, OptSpec, Parsed};
use admin::usage::{Tool, usage, usage_of_all};
use service::{Access, Session};

use crate::command::{Command, Table, verb};
use crate::failure::{Fail, Outcome};
use crate::session::session;

/// How a command that is supported is run.
#[derive(Clone, Copy)]
pub(crate) struct Verb {
    options: OptSpec,
    /// How its session opens pools.
    access: Access,
    act: fn(&Session, &Parsed) -> Outcome,
}

/// A command that changes pools only by requests of their own. `short`: as OpenZFS gives its options to
/// getopt(3), with a colon in front where it has words for a missing argument.
pub(crate) const fn command(
    name: &'static str,
    short: &'static str,
    long: &'static [(&'static str, Flag)],
    act: fn(&Session, &Parsed) -> Outcome,
) -> Command<Verb> {
    let run = Verb {
        options: OptSpec { short, long },
        access: Access::Read,
        act,
    };
    verb(name, run)
}

/// A command whose session opens pools for writing.
pub(crate) const fn changes(
    name: &'static str,
    short: &'static str,
    act: fn(&Session, &Parsed) -> Outcome,
) -> Command<Verb> {
    let mut command = command(name, short, &[], act);
    command.run.access = Access::Write;
    command
}

/// `zpool` or `zfs`.
pub(crate) struct Program {
    pub(crate) tool: Tool,
    pub(crate) commands: Table<Verb>,
    /// The failure for invalid options of a command, where it is not what getopt(3) says.
    pub(crate) wrong_options: fn(&str, &OptError) -> Option<Fail>,
    /// Why a command that only OpenZFS has is refused, by its name and arguments.
    pub(crate) refusal: fn(&str, &[String]) -> String,
}

impl Program {
    /// Runs the command that the arguments name.
    pub(crate) fn run(&self, args: &[String]) -> Outcome {
        let Some((word, rest)) = args.split_first() else {
            return self.misused("missing command");
        };
        let word = match word.as_str() {
            "-?" | "--help" => return self.help(None),
            "help" => return self.help(rest.first()),
            "-V" | "--version" => "version",
            word => word,
        };
        let Some(known) = self.tool.command(word) else {
            return self.misused(&format!("unrecognized command '{word}'"));
        };
        let Some(command) = self.commands.find(known.name) else {
            return Err(Fail::Failed((self.refusal)(known.name, rest)));
        };
        if rest.iter().any(|arg| arg == "--help") {
            print!("{}", usage(self.tool, command.name));
            return Ok(());
        }
        let outcome = match getopt::parse(&command.run.options, rest) {
            Ok(parsed) => {
                let line = format!("{} {}", self.tool.name(), args.join(" "));
                act(&command.run, &parsed, line)
            }
            Err(error) => Err((self.wrong_options)(command.name, &error)
                .unwrap_or_else(|| Fail::Usage(command.run.options.complaint(&error)))),
        };
        outcome.map_err(|fail| match fail {
            Fail::Usage(text) => {
                let text = if text.is_empty() { text } else { text + "\n" };
                Fail::Exits(2, text + &usage(self.tool, command.name))
            }
            fail => fail,
        })
    }

    fn usage_of_all(&self) -> String {
        usage_of_all(self.tool, &|name| self.commands.find(name).is_some())
    }

    fn misused(&self, text: &str) -> Outcome {
        Err(Fail::Exits(2, format!("{text}\n{}", self.usage_of_all())))
    }

    /// Explains one command, or lists them all.
    pub(crate) fn help(&self, topic: Option<&String>) -> Outcome {
        match topic.map(|topic| (topic, self.tool.command(topic))) {
            None => print!("{}", self.usage_of_all()),
            Some((_, Some(command))) => {
                print!("{}", usage(self.tool, command.name));
                if self.commands.find(command.name).is_none() {
                    println!("\nThis program does not have it yet.");
                }
            }
            Some((topic, None)) => {
                return Err(Fail::Exits(2, format!("no help for '{topic}'")));
            }
        }
        Ok(())
    }
}

fn act(verb: &Verb, parsed: &Parsed, line: String) -> Outcome {
    let session = session(verb.access, line);
    let outcome = (verb.act)(&session, parsed);
    // Even after a failure: changes made before it are kept.
    let closed = session.close();
    outcome.and(closed.map_err(Fail::from))
}

/// `version` of a program.
pub(crate) fn version(tool: Tool, parsed: &Parsed) -> Outcome {
    if !parsed.operands.is_empty() {
        return Err(Fail::Usage("too many arguments".into()));
    }
    let version = concat!("ashift-", env!("CARGO_PKG_VERSION"));
    if parsed.has('j') {
        let mut body = serde_json::Map::new();
        let userland = serde_json::json!({ "userland": version });
        body.insert("zfs_version".to_owned(), userland);
        let title = format!("{} version", tool.name());
        print!("{}", admin::listing::json_document(&title, body));
    } else {
        println!("{version}");
    }
    Ok(())
}
