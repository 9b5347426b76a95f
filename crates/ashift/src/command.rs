//! Commands: their names, what they say of themselves, and what they run; tables of them.
//!
//! # What it is
//! `ashift`, `zpool`, `machine` and others each have one [`Table`]. Dispatch, lists of commands and
//! suggestions for a misspelt name come from it. The commands of the program itself declare with an [`Entry`]
//! how they are run; their usage and their failures are printed here, nowhere else.

use admin::getopt::{self, Flag, OptSpec, Parsed};

use crate::failure::{Fail, Outcome};

/// A command. `R` is what its table has to know in order to run it.
#[derive(Clone, Copy)]
pub(crate) struct Command<R> {
    pub(crate) name: &'static str,
    /// Its line in a list of commands, or in a usage; empty if neither is made from the table.
    pub(crate) about: &'static str,
    pub(crate) run: R,
}

/// A command that the usage of its program explains.
pub(crate) const fn verb<R: Copy>(name: &'static str, run: R) -> Command<R> {
    Command {
        name,
        about: "",
        run,
    }
}

/// The commands of a program.
pub(crate) struct Table<R: 'static> {
    /// What the program is called in messages.
    pub(crate) program: &'static str,
    pub(crate) commands: &'static [Command<R>],
}

impl<R> Table<R> {
    pub(crate) fn find(&self, name: &str) -> Option<&'static Command<R>> {
        self.commands.iter().find(|command| command.name == name)
    }

    /// The command that the first word names, and the other words.
    ///
    /// # Errors
    /// `Help` for `help` and the like, `Usage` without a word; an unknown one is reported, with a suggestion.
    pub(crate) fn pick<'a>(
        &self,
        args: &'a [String],
    ) -> Outcome<(&'static Command<R>, &'a [String])> {
        let Some((word, rest)) = args.split_first() else {
            return Err(Fail::Usage(String::new()));
        };
        if matches!(word.as_str(), "help" | "-h" | "--help") {
            return Err(Fail::Help);
        }
        let command = self.find(word).ok_or_else(|| self.unrecognized(word))?;
        Ok((command, rest))
    }

    /// Reports that a word names no command.
    fn unrecognized(&self, word: &str) -> Fail {
        let names = self.commands.iter().map(|command| command.name);
        let meant = suggestion(word, names.chain(["help"]));
        let meant = meant.map_or_else(String::new, |name| format!(": did you mean '{name}'?"));
        let help = format!("'{} help' lists them all", self.program);
        let text = format!("unrecognized command '{word}'{meant} ({help})");
        Fail::Exits(2, text).say(&format!("{}: ", self.program))
    }
}

/// How a command of the program is run.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    /// What `-h` prints, and what follows the text of a usage error.
    usage: &'static str,
    /// What `-h` prints besides.
    more: &'static str,
    act: Act,
    /// What its messages begin with instead of its name.
    lead: Option<&'static str>,
    /// The exit code of a usage error.
    misused: u8,
    /// Whether it runs in the machine that was chosen, if any. The others ask for no provider, or find their
    /// machine themselves.
    pub(crate) is_in_world: bool,
    /// Whether it works on pools, and so is run by the process that holds them, if there is one.
    pub(crate) is_held: bool,
    /// Whether it replaces a tool of the same name, also on files and devices of the host. (`cp`, `ls` and so on
    /// do not: a link of that name would hide the host's own.)
    pub(crate) is_tool: bool,
}

#[derive(Clone, Copy)]
enum Act {
    /// Looks at all words itself.
    Words(fn(&[String]) -> Outcome),
    /// Is run unless `-h` or `--help` is among the words.
    Explained(fn(&[String]) -> Outcome),
    /// Gets its options parsed.
    Parsed(Options, fn(&Parsed) -> Outcome),
}

/// Options as for getopt(3), and how many operands there are at least.
#[derive(Clone, Copy)]
struct Options {
    spec: OptSpec,
    operands: usize,
    /// What is done to the words before.
    prepare: fn(&[String]) -> Vec<String>,
}

impl Command<Entry> {
    const fn new(
        name: &'static str,
        about: &'static str,
        usage: &'static str,
        act: Act,
    ) -> Command<Entry> {
        let run = Entry {
            usage,
            more: "",
            act,
            lead: None,
            misused: 2,
            is_in_world: true,
            is_held: false,
            is_tool: false,
        };
        Command { name, about, run }
    }

    /// A command that looks at all words itself, also for `-h`.
    pub(crate) const fn words(
        name: &'static str,
        about: &'static str,
        usage: &'static str,
        run: fn(&[String]) -> Outcome,
    ) -> Command<Entry> {
        Command::new(name, about, usage, Act::Words(run))
    }

    /// A command that is not run where `-h` or `--help` is among the words.
    pub(crate) const fn explained(
        name: &'static str,
        about: &'static str,
        usage: &'static str,
        run: fn(&[String]) -> Outcome,
    ) -> Command<Entry> {
        Command::new(name, about, usage, Act::Explained(run))
    }

    /// A command with options as for getopt(3), and at least so many operands.
    pub(crate) const fn parsed(
        name: &'static str,
        about: &'static str,
        usage: &'static str,
        (short, operands): (&'static str, usize),
        run: fn(&Parsed) -> Outcome,
    ) -> Command<Entry> {
        let options = Options {
            spec: OptSpec { short, long: &[] },
            operands,
            prepare: <[String]>::to_vec,
        };
        Command::new(name, about, usage, Act::Parsed(options, run))
    }

    /// The same with long options, too.
    pub(crate) const fn long(mut self, long: &'static [(&'static str, Flag)]) -> Command<Entry> {
        if let Act::Parsed(options, _) = &mut self.run.act {
            options.spec.long = long;
        }
        self
    }

    /// The same with words that are changed before they are parsed.
    pub(crate) const fn prepared(
        mut self,
        prepare: fn(&[String]) -> Vec<String>,
    ) -> Command<Entry> {
        if let Act::Parsed(options, _) = &mut self.run.act {
            options.prepare = prepare;
        }
        self
    }

    /// It replaces a tool of the same name.
    pub(crate) const fn tool(mut self) -> Command<Entry> {
        self.run.is_tool = true;
        self
    }

    /// The process that holds the pools runs it, if there is one.
    pub(crate) const fn held(mut self) -> Command<Entry> {
        self.run.is_held = true;
        self
    }

    /// It does not run in the machine that was chosen.
    pub(crate) const fn apart(mut self) -> Command<Entry> {
        self.run.is_in_world = false;
        self
    }

    /// Its usage errors end with 1, not 2.
    pub(crate) const fn misused_is_1(mut self) -> Command<Entry> {
        self.run.misused = 1;
        self
    }

    /// What `-h` prints besides the usage.
    pub(crate) const fn more(mut self, more: &'static str) -> Command<Entry> {
        self.run.more = more;
        self
    }

    /// What its messages begin with, instead of its name and a colon.
    pub(crate) const fn leads_with(mut self, lead: &'static str) -> Command<Entry> {
        self.run.lead = Some(lead);
        self
    }

    /// Runs it, and reports why it failed, if it did.
    pub(crate) fn act(&self, args: &[String]) -> Outcome {
        let outcome = match &self.run.act {
            Act::Explained(_) if asks_for_help(args) => Err(Fail::Help),
            Act::Words(run) | Act::Explained(run) => run(args),
            Act::Parsed(options, run) => options.parse(args).and_then(|parsed| run(&parsed)),
        };
        outcome.or_else(|fail| self.report(fail))
    }

    fn report(&self, fail: Fail) -> Outcome {
        let Entry {
            usage,
            more,
            lead,
            misused,
            is_tool,
            ..
        } = self.run;
        let lead = match lead {
            Some(lead) => lead.to_owned(),
            None if is_tool => format!("{}: ", self.name),
            None => format!("ashift {}: ", self.name),
        };
        match fail {
            Fail::Help => {
                print!("{usage}{more}");
                Ok(())
            }
            Fail::Usage(text) => {
                if !text.is_empty() {
                    eprintln!("{lead}{text}");
                }
                eprint!("{usage}");
                Fail::exit(misused)
            }
            fail => Err(fail.say(&lead)),
        }
    }
}

impl Options {
    fn parse(&self, args: &[String]) -> Outcome<Parsed> {
        let args = (self.prepare)(args);
        // Among other arguments `-h` may mean something else to the command.
        let means_help = args.len() == 1 || !self.spec.short.contains('h');
        if (args.iter()).any(|arg| arg == "--help" || (arg == "-h" && means_help)) {
            return Err(Fail::Help);
        }
        let parsed = getopt::parse(&self.spec, &args).map_err(|e| Fail::Usage(e.to_string()))?;
        if parsed.operands.len() < self.operands {
            return Err(Fail::Usage("missing operand".to_owned()));
        }
        Ok(parsed)
    }
}

/// Whether `-h` or `--help` is among the words.
pub(crate) fn asks_for_help(args: &[String]) -> bool {
    args.iter().any(|arg| arg == "-h" || arg == "--help")
}

/// The known name closest to a word, if one is close enough.
fn suggestion<'n>(word: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let distances = known.map(|name| (edits(word, name), name));
    let (distance, name) = distances.min_by_key(|(distance, _)| *distance)?;
    // Up to a third of the word may be wrong, and always one letter.
    let most = (word.chars().count().max(name.len()) / 3).max(1);
    (distance <= most && distance < word.chars().count()).then_some(name)
}

/// The number of letters to insert, delete, replace, or swap with their neighbours to turn one word into
/// the other (optimal string alignment).
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_nearly_right_are_known() {
        let known = ["zpool", "zfs", "zdb", "cp", "ls", "machine", "sha256sum"];
        let cases = [
            ("zpol", Some("zpool")),
            ("zpoool", Some("zpool")),
            ("zsf", Some("zfs")),
            ("zbd", Some("zdb")),
            ("machnie", Some("machine")),
            ("sha256", Some("sha256sum")),
            ("sl", Some("ls")),
            ("x", None),
            ("frobnicate", None),
            ("", None),
        ];
        for (word, expected) in cases {
            assert_eq!(suggestion(word, known.into_iter()), expected, "{word}");
        }
    }
}
