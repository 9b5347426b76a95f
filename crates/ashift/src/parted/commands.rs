//! The commands, one after another, on one device.

use std::sync::Arc;

use gpart::parted::{TableView, Topology, Unit, print};
use gpart::{Partition, Scheme};
use machine::World;

use super::file_systems::Probe;
use super::session::Session;
use super::{HELP, Options, VERSION, fail, say};
use crate::command::{Command, Table, verb};
use crate::failure::{Fail, Outcome};

/// What a command does.
#[derive(Clone, Copy)]
enum Act {
    Does(fn(&mut Session<'_>, &mut Words<'_>) -> Outcome),
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
        verb(
            "align-check",
            Act::Does(|session, words| session.align_check(words)),
        ),
        verb("disk_set", Act::LeftOut),
        verb("disk_toggle", Act::LeftOut),
        verb("help", Act::Does(|_, words| help(words))),
        verb("?", Act::Does(|_, words| help(words))),
        verb(
            "mklabel",
            Act::Does(|session, words| session.mklabel(words)),
        ),
        verb(
            "mktable",
            Act::Does(|session, words| session.mklabel(words)),
        ),
        verb("mkpart", Act::Does(|session, words| session.mkpart(words))),
        verb("name", Act::Does(|session, words| session.name(words))),
        verb("print", Act::Does(|session, words| session.print(words))),
        verb("quit", Act::Ends),
        verb("rescue", Act::LeftOut),
        verb(
            "resizepart",
            Act::Does(|session, words| session.resizepart(words)),
        ),
        verb("rm", Act::Does(|session, words| session.rm(words))),
        verb("select", Act::LeftOut),
        verb("set", Act::LeftOut),
        verb("toggle", Act::LeftOut),
        verb("unit", Act::Does(|session, words| session.set_unit(words))),
        verb("version", Act::Does(|_, _| version())),
    ],
};

/// The words of a command line, taken one by one.
pub(super) struct Words<'a>(std::slice::Iter<'a, String>);

impl<'a> Words<'a> {
    pub(super) fn next(&mut self) -> Option<&'a str> {
        self.0.next().map(String::as_str)
    }

    pub(super) fn peek(&self) -> Option<&'a str> {
        self.0.as_slice().first().map(String::as_str)
    }
}

/// Runs the commands.
pub(super) fn run(
    world: &Arc<World>,
    device: &str,
    words: &[String],
    options: &Options,
) -> Outcome {
    let mut session = Session::open(world, device, options)?;
    if words.is_empty() {
        return fail("Error: there is no interactive mode here: name a command (parted -h)");
    }
    let mut words = Words(words.iter());
    while let Some(word) = words.next() {
        let Some(command) = find(word) else {
            // parted itself stops here, and treats that as a success
            print!("{HELP}");
            eprintln!("parted: invalid token: {word}");
            break;
        };
        match command.run {
            Act::Does(act) => act(&mut session, &mut words)?,
            Act::LeftOut => return fail(format!("Error: {} is not kept up here", command.name)),
            Act::Ends => break,
        }
    }
    Ok(())
}

/// The command of that name, or the only one whose name begins so.
fn find(word: &str) -> Option<&'static Command<Act>> {
    COMMANDS.find(word).or_else(|| {
        let begins = |command: &&Command<Act>| command.name.starts_with(word);
        let mut all = COMMANDS.commands.iter().filter(begins);
        all.next().filter(|_| all.next().is_none())
    })
}

#[expect(clippy::unnecessary_wraps, reason = "a command")]
fn help(words: &mut Words<'_>) -> Outcome {
    words.next();
    print!("{HELP}");
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "a command")]
fn version() -> Outcome {
    println!("{VERSION}");
    Ok(())
}

impl Session<'_> {
    fn print(&mut self, words: &mut Words<'_>) -> Outcome {
        let with_free = match words.peek() {
            Some("free") => words.next().is_some(),
            Some("devices" | "list" | "all") => {
                return fail("Error: only the device that was named is printed here");
            }
            _ => false,
        };
        // the disk is shown even without a table, after the complaint
        let read = self.table().map(|table| table.clone()).map_err(say);
        let probe = Probe(Arc::clone(&self.reader));
        let view = TableView {
            table: read.as_ref().ok(),
            shape: self.shape,
            file_system: &probe,
        };
        print!(
            "{}",
            print(&view, &self.disk, self.unit, with_free, self.options.format)
        );
        read.map(drop)
    }

    fn index(words: &mut Words<'_>) -> Outcome<u32> {
        let Some(text) = words.next() else {
            return fail("Error: Expecting a partition number.");
        };
        text.parse()
            .or_else(|_| fail("Error: Partition doesn't exist."))
    }

    /// The partition given by the next word.
    pub(super) fn partition(&mut self, words: &mut Words<'_>) -> Outcome<Partition> {
        let index = Self::index(words)?;
        let found = self.table()?.partition(index).cloned();
        found.map_or_else(|| fail("Error: Partition doesn't exist."), Ok)
    }

    /// The partition given by the next word, unless it is in use.
    pub(super) fn free_partition(&mut self, words: &mut Words<'_>) -> Outcome<Partition> {
        let one = self.partition(words)?;
        let suffix = one.suffix();
        let name = format!("{}{suffix}", self.world.canonical(&self.device));
        if !self.world.holders(&name)?.is_empty() {
            let path = &self.disk.path;
            return fail(format!(
                "Warning: Partition {path}{suffix} is being used. Are you sure you want to continue?"
            ));
        }
        Ok(one)
    }

    fn rm(&mut self, words: &mut Words<'_>) -> Outcome {
        let one = self.free_partition(words)?;
        let mut table = self.table()?.clone();
        table.delete(one.index)?;
        self.commit(table)
    }

    fn name(&mut self, words: &mut Words<'_>) -> Outcome {
        let scheme = self.table()?.scheme();
        let one = self.partition(words)?;
        if scheme == Scheme::Mbr {
            return fail("Error: msdos disk labels do not support partition name.");
        }
        let Some(name) = words.next() else {
            return Ok(());
        };
        let mut table = self.table()?.clone();
        table.modify(one.index, Some(name), None)?;
        self.commit(table)
    }

    fn set_unit(&mut self, words: &mut Words<'_>) -> Outcome {
        let Some(text) = words.next() else {
            return Ok(());
        };
        if Unit::is_left_out(text) {
            return fail(format!("Error: unit {text} is not kept up here"));
        }
        let Some(unit) = Unit::parse(text) else {
            return fail(format!("parted: invalid token: {text}"));
        };
        self.unit = unit;
        Ok(())
    }

    fn align_check(&mut self, words: &mut Words<'_>) -> Outcome {
        let topology = Topology::of(&self.shape);
        let is_prefix_of = |text: &str, name: &str| !text.is_empty() && name.starts_with(text);
        let alignment = match words.peek() {
            Some(text) if is_prefix_of(text, "minimal") || is_prefix_of(text, "minimum") => {
                words.next();
                topology.minimal
            }
            Some(text) if is_prefix_of(text, "optimal") || is_prefix_of(text, "optimum") => {
                words.next();
                topology.optimal
            }
            Some(text) if text.parse::<u32>().is_err() => {
                return fail(format!("parted: invalid token: {text}"));
            }
            _ => topology.optimal,
        };
        let one = self.partition(words)?;
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
