//! `ashift time`: how long a command takes, and how long processors work for it.

use crate::caller::{Stream, caller};
use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use crate::holder;
use crate::stopwatch::{Layout, Stopwatch};
use crate::system::system;
use crate::world;

const USAGE: &str = "usage: ashift time [-p] [--system freebsd|linux] COMMAND [ARGUMENT…]\n";

const MORE: &str = "
Runs a command of this program, and then says on stderr how long it took; ends with its exit code, or with 127 if it
knows none of that name.
  -p         as POSIX has it: `real 1.23`, `user 0.00`, `sys 0.45`
  --system   print as FreeBSD's /usr/bin/time or as bash does; if it is not given, as the machine's host would:
             FreeBSD's if that is one (`ashift machine create --host freebsd-13`), bash's otherwise
In a machine (-m) the times are those of the machine. user is what programs compute themselves: the sums of sha256sum.
sys is everything else that its processor is charged for: calls of the system, copies in memory, and all of ZFS
(checksums, compression, parity, encryption). Commands that run at the same time count, too. Where computing is free, as
in machines without --host, both are 0. On this host they are those of this process; what `ashift serve` does for it is
real time alone.
In `ashift sh` it is a word of the shell, as in bash, before one command.
";

/// Exit code for a command that there is not.
const NOT_FOUND: u8 = 127;

pub(crate) const TIME: Command<Entry> = Command::words(
    "time",
    "say how long a command takes, in a machine by its clock",
    USAGE,
    run,
)
.more(MORE)
.apart();

/// What is asked for.
#[derive(Debug, PartialEq)]
struct Request<'a> {
    is_posix: bool,
    system: Option<&'a str>,
    /// The command with its arguments.
    words: &'a [String],
}

fn run(args: &[String]) -> Outcome {
    let request = parse(args)?;
    // Said before the command runs.
    system(request.system)?;
    if let Some(state) = machine_state(&request.words[0]) {
        let words = [&["time".to_owned()], args].concat();
        let outcome = holder::forward(&state, &words);
        return outcome.unwrap_or_else(|| world::with_world(|| request.run()));
    }
    request.run()
}

/// The state folder of the machine in which a command is still to be started, if there is one.
fn machine_state(command: &str) -> Option<std::path::PathBuf> {
    if world::is_entered() || !crate::runs_in_world(command) {
        return None;
    }
    Some(world::chosen()?.join("state"))
}

fn parse(args: &[String]) -> Outcome<Request<'_>> {
    let (mut is_posix, mut system, mut rest) = (false, None, args);
    while let Some((word, others)) = rest.split_first() {
        rest = others;
        match (word.as_str(), others) {
            ("-h" | "--help", _) => return Err(Fail::Help),
            ("-p", _) => is_posix = true,
            ("--system", [value, others @ ..]) => (system, rest) = (Some(value.as_str()), others),
            ("--", _) => break,
            (word, _) if word.starts_with("--system=") => {
                system = word.split_once('=').map(|(_, value)| value);
            }
            (word, _) if word.starts_with('-') => {
                return Err(Fail::Usage(format!("invalid option '{word}'")));
            }
            _ => {
                rest = &args[args.len() - others.len() - 1..];
                break;
            }
        }
    }
    if let [first, others @ ..] = rest
        && first == "ashift"
    {
        rest = others;
    }
    match rest {
        [] => Err(Fail::Usage("missing command".to_owned())),
        words => Ok(Request {
            is_posix,
            system,
            words,
        }),
    }
}

impl Request<'_> {
    fn run(&self) -> Outcome {
        let layout = match self.is_posix {
            true => Layout::Posix,
            false => Layout::of(system(self.system)?),
        };
        let stopwatch = Stopwatch::start();
        let code = self.run_command();
        caller().flush(Stream::Out);
        eprint!("{}", stopwatch.read().text(layout));
        Fail::exit(code)
    }

    fn run_command(&self) -> u8 {
        let name = &self.words[0];
        if !crate::is_command(name) {
            eprintln!("ashift time: {name}: not found");
            return NOT_FOUND;
        }
        crate::exit_code(crate::run_words(self.words), "ashift: ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_end_at_the_command() {
        let words =
            |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
        let cases = [
            ("cp -p a b", false, None, "cp -p a b"),
            ("-p ls", true, None, "ls"),
            (
                "--system freebsd -p -- ls -l",
                true,
                Some("freebsd"),
                "ls -l",
            ),
            ("--system=linux ashift ls", false, Some("linux"), "ls"),
        ];
        for (line, is_posix, system, command) in cases {
            let (args, command) = (words(line), words(command));
            let expected = Request {
                is_posix,
                system,
                words: &command,
            };
            assert_eq!(parse(&args).unwrap(), expected, "{line}");
        }
        for line in ["", "-p", "-x ls", "--system", "ashift", "--"] {
            assert!(matches!(parse(&words(line)), Err(Fail::Usage(_))), "{line}");
        }
    }
}
