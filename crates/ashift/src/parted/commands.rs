//! The commands: those of a command line one after another, or as they are typed at the prompt.

use std::sync::Arc;

use gpart::Scheme;
use gpart::parted::{Topology, Unit};
use machine::World;

use super::flags::State;
use super::prompt::{Prompt, Question};
use super::session::Session;
use super::words::choose;
use super::{HELP, Options, VERSION, fail, help};
use crate::command::{Command, Table, verb};
use crate::failure::{Fail, Outcome};

/// What a command does.
#[derive(Clone, Copy)]
enum Act {
    Does(fn(&mut Session<'_>) -> Outcome),
    /// parted has it, and it is not there here.
    LeftOut,
    /// No further command is run.
    Ends,
}

#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the methods hold for one lifetime of the session"
)]
const COMMANDS: Table<Act> = Table {
    program: "parted",
    commands: &[
        verb("align-check", Act::Does(|session| session.align_check())),
        verb("help", Act::Does(|session| session.help())),
        verb("?", Act::Does(|session| session.help())),
        verb("mklabel", Act::Does(|session| session.mklabel())),
        verb("mktable", Act::Does(|session| session.mklabel())),
        verb("mkpart", Act::Does(|session| session.mkpart())),
        verb("name", Act::Does(|session| session.name())),
        verb("print", Act::Does(|session| session.print())),
        verb("quit", Act::Ends),
        verb("rescue", Act::LeftOut),
        verb("resize", Act::Does(|_| resize())),
        verb("resizepart", Act::Does(|session| session.resizepart())),
        verb("rm", Act::Does(|session| session.rm())),
        verb("select", Act::Does(|session| session.select())),
        verb(
            "disk_set",
            Act::Does(|session| session.disk_set(State::Asked)),
        ),
        verb(
            "disk_toggle",
            Act::Does(|session| session.disk_set(State::Inverted)),
        ),
        verb("set", Act::Does(|session| session.set(State::Asked))),
        verb("toggle", Act::Does(|session| session.set(State::Inverted))),
        verb("unit", Act::Does(|session| session.set_unit())),
        verb("version", Act::Does(|_| version())),
    ],
};

/// Runs the commands of the words; without any, those that are typed.
pub(super) fn run(
    world: &Arc<World>,
    device: &str,
    words: &[String],
    options: &Options,
) -> Outcome {
    let mut prompt = Prompt::new(options.is_script);
    words.iter().for_each(|word| prompt.push(word));
    let mut session = Session::open(world, device, options, prompt)?;
    let outcome = if words.is_empty() && !options.is_script {
        interact(&mut session);
        Ok(())
    } else {
        run_words(&mut session).map_err(|fail| session.prompt.report(fail))
    };
    session.say_goodbye();
    outcome
}

fn run_words(session: &mut Session<'_>) -> Outcome {
    while let Some(word) = session.prompt.next() {
        let Some(command) = find(&word) else {
            // parted itself stops here, and treats that as a success
            print!("{HELP}");
            eprintln!("parted: invalid token: {word}");
            break;
        };
        if !act(session, command)? {
            break;
        }
    }
    Ok(())
}

/// The dialogue: a command that fails ends neither it nor the program.
fn interact(session: &mut Session<'_>) {
    println!("{VERSION}");
    session.introduce();
    println!("Welcome to parted! Type 'help' to view a list of commands.");
    let names = names();
    loop {
        let Some(word) = session.prompt.next() else {
            if !session.prompt.read_commands(&names) {
                println!();
                return;
            }
            continue;
        };
        let Some(command) = find(&word) else {
            help::print_all(names.iter().copied());
            continue;
        };
        match act(session, command) {
            Ok(true) => {}
            Ok(false) => return,
            Err(fail) => {
                session.prompt.report(fail);
                session.prompt.clear();
                session.forget();
            }
        }
    }
}

/// Runs a command; false if it is the last one.
fn act(session: &mut Session<'_>, command: &Command<Act>) -> Outcome<bool> {
    match command.run {
        Act::Does(act) => act(session).map(|()| true),
        Act::LeftOut => fail(format!("Error: {} is not kept up here", command.name)),
        Act::Ends => Ok(false),
    }
}

fn names() -> Vec<&'static str> {
    COMMANDS.commands.iter().map(|c| c.name).collect()
}

/// The command of that name, or the only one whose name begins so.
fn find(word: &str) -> Option<&'static Command<Act>> {
    choose(&names(), word).and_then(|name| COMMANDS.find(name))
}

fn resize() -> Outcome {
    fail("Error: The resize command has been removed in parted 3.0")
}

#[expect(clippy::unnecessary_wraps, reason = "a command")]
fn version() -> Outcome {
    println!("{VERSION}");
    Ok(())
}

impl Session<'_> {
    #[expect(clippy::unnecessary_wraps, reason = "a command")]
    fn help(&mut self) -> Outcome {
        match self.prompt.next() {
            None => help::print_all(names().into_iter()),
            Some(word) => {
                if let Some(command) = find(&word) {
                    help::print_one(command.name);
                }
            }
        }
        Ok(())
    }

    fn select(&mut self) -> Outcome {
        let path = self.at.disk.path.clone();
        let question = Question::new("New device?").or(&path);
        let Some(device) = self.prompt.word(question) else {
            return self.prompt.unanswered("New device?");
        };
        if device != path {
            self.turn_to(&device)?;
        }
        self.introduce();
        Ok(())
    }

    fn rm(&mut self) -> Outcome {
        let one = self.free_partition()?;
        let mut table = self.table()?.clone();
        table.delete(one.index)?;
        self.commit(table)?;
        self.at.marks.remove(&one.index);
        Ok(())
    }

    fn name(&mut self) -> Outcome {
        if self.table()?.scheme() == Scheme::Mbr {
            return fail("Error: msdos disk labels do not support partition name.");
        }
        let one = self.partition()?;
        let label = one.label();
        let question = Question {
            takes_line: true,
            ..Question::new("Partition name?").or(&label)
        };
        let Some(name) = self.prompt.word(question) else {
            return Err(Fail::Said(1));
        };
        let mut table = self.table()?.clone();
        table.modify(one.index, Some(&name), None)?;
        self.commit(table)
    }

    fn set_unit(&mut self) -> Outcome {
        let names = Unit::names();
        let question = Question::new("Unit?").or(self.unit.name()).among(&names);
        let Some(text) = self.prompt.word(question) else {
            return Err(Fail::Said(1));
        };
        let Some(unit) = Unit::parse(&text) else {
            return fail(format!("Error: unit {text} is not kept up here"));
        };
        self.unit = unit;
        Ok(())
    }

    fn align_check(&mut self) -> Outcome {
        let question = Question::new("alignment type(min/opt)").or("optimal");
        let question = question.among(&["optimal", "minimal"]);
        self.table()?;
        let Some(kind) = self.prompt.word(question) else {
            return Err(Fail::Said(1));
        };
        let topology = Topology::of(&self.at.shape);
        let alignment = match kind.as_str() {
            "minimal" => topology.minimal,
            _ => topology.optimal,
        };
        let one = self.partition()?;
        let is_aligned = alignment.holds(one.start_sector);
        if self.options.is_script {
            return Fail::exit((!is_aligned).into());
        }
        let index = one.index;
        if is_aligned {
            println!("{index} aligned");
        } else {
            println!(
                "{index} not aligned: {}",
                alignment.arithmetic(one.start_sector)
            );
        }
        Ok(())
    }
}
