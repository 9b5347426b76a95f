//! What `zpool` and `zfs` have in common: a table of commands, which are run, explained or refused.

use std::process::ExitCode;

use admin::getopt::{self, Flag, OptError, OptSpec, Parsed};
use admin::usage::{Tool, usage, usage_of_all};
use service::{Access, Session};

use crate::failure::{Fail, Outcome};
use crate::session::session;

/// A command that is supported.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    options: OptSpec,
    /// How its session opens pools.
    access: Access,
    run: fn(&Session, &Parsed) -> Outcome,
}

/// A command that changes pools only by requests of their own. `short`: as OpenZFS gives its options to
/// getopt(3), with a colon in front where it has words for a missing argument.
pub(crate) const fn command(
    name: &'static str,
    short: &'static str,
    long: &'static [(&'static str, Flag)],
    run: fn(&Session, &Parsed) -> Outcome,
) -> Command {
    Command {
        name,
        options: OptSpec { short, long },
        access: Access::Read,
        run,
    }
}

/// A command whose session opens pools for writing.
pub(crate) const fn changes(
    name: &'static str,
    short: &'static str,
    run: fn(&Session, &Parsed) -> Outcome,
) -> Command {
    Command {
        access: Access::Write,
        ..command(name, short, &[], run)
    }
}

/// `zpool` or `zfs`.
pub(crate) struct Program {
    pub(crate) tool: Tool,
    pub(crate) commands: &'static [Command],
    /// The failure for invalid options, where it is not what getopt(3) says.
    pub(crate) wrong_options: fn(&Command, &OptError) -> Option<Fail>,
    /// Why a command that only OpenZFS has is refused, by its name and arguments.
    pub(crate) refusal: fn(&str, &[String]) -> String,
}

impl Program {
    /// Runs the command that the arguments name.
    pub(crate) fn run(&self, args: &[String]) -> ExitCode {
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
        let Some(command) = self.find(known.name) else {
            eprintln!("{}", (self.refusal)(known.name, rest));
            return ExitCode::from(1);
        };
        if rest.iter().any(|arg| arg == "--help") {
            print!("{}", usage(self.tool, command.name));
            return ExitCode::SUCCESS;
        }
        let outcome = match getopt::parse(&command.options, rest) {
            Ok(parsed) => {
                let line = format!("{} {}", self.tool.name(), args.join(" "));
                act(command, &parsed, line)
            }
            Err(error) => Err((self.wrong_options)(command, &error)
                .unwrap_or_else(|| Fail::Usage(command.options.complaint(&error)))),
        };
        match outcome.map_err(Fail::say) {
            Ok(()) => ExitCode::SUCCESS,
            Err(Fail::Usage(text)) => {
                let text = if text.is_empty() { text } else { text + "\n" };
                eprint!("{text}{}", usage(self.tool, command.name));
                ExitCode::from(2)
            }
            Err(Fail::Said(code)) => ExitCode::from(code),
            Err(_) => ExitCode::from(1),
        }
    }

    fn find(&self, name: &str) -> Option<&Command> {
        self.commands.iter().find(|command| command.name == name)
    }

    fn usage_of_all(&self) -> String {
        usage_of_all(self.tool, &|name| self.find(name).is_some())
    }

    fn misused(&self, text: &str) -> ExitCode {
        eprint!("{text}\n{}", self.usage_of_all());
        ExitCode::from(2)
    }

    /// Explains one command, or lists them all.
    pub(crate) fn help(&self, topic: Option<&String>) -> ExitCode {
        match topic.map(|topic| (topic, self.tool.command(topic))) {
            None => print!("{}", self.usage_of_all()),
            Some((_, Some(command))) => {
                print!("{}", usage(self.tool, command.name));
                if self.find(command.name).is_none() {
                    println!("\nThis program does not have it yet.");
                }
            }
            Some((topic, None)) => {
                eprintln!("no help for '{topic}'");
                return ExitCode::from(2);
            }
        }
        ExitCode::SUCCESS
    }
}

fn act(command: &Command, parsed: &Parsed, line: String) -> Outcome {
    let session = session(command.access, line);
    let outcome = (command.run)(&session, parsed);
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
