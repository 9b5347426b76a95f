//! The commands, one after another, on one device.

use std::process::ExitCode;
use std::sync::Arc;

use geom::Provider;
use gpart::parted::{
    Alignment, Location, TableView, Topology, Unit, kind_for, parse_location, place, print,
    resize_end,
};
use gpart::{Era, NewPartition, Partition, Scheme, Table, Wish};
use machine::World;

use super::file_systems::Probe;
use super::session::{Failed, Result, Session, fail};
use super::{Align, HELP, Options};

/// parted would ask.
const NEEDS: &str = "Error: mkpart needs PART-TYPE [FS-TYPE] START END";

/// The words of a command line, taken one by one.
struct Words<'a>(std::slice::Iter<'a, String>);

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        self.0.next().map(String::as_str)
    }

    fn peek(&self) -> Option<&'a str> {
        self.0.as_slice().first().map(String::as_str)
    }
}

/// Runs the commands.
pub(super) fn run(
    world: &Arc<World>,
    device: &str,
    words: &[String],
    options: &Options,
) -> ExitCode {
    let mut session = match Session::open(world, device, options) {
        Ok(session) => session,
        Err(Failed(text)) => return say(&text),
    };
    if words.is_empty() {
        return say("Error: there is no interactive mode here: name a command (parted -h)");
    }
    let mut words = Words(words.iter());
    while let Some(command) = words.next() {
        match session.command(command, &mut words) {
            Ok(true) => {}
            Ok(false) => break,
            Err(Failed(text)) => return say(&text),
        }
    }
    ExitCode::SUCCESS
}

fn say(text: &str) -> ExitCode {
    if !text.is_empty() {
        eprintln!("{text}");
    }
    ExitCode::FAILURE
}

impl Session<'_> {
    fn command(&mut self, command: &str, words: &mut Words<'_>) -> Result<bool> {
        match command {
            "print" | "p" => self.print(words)?,
            "mklabel" | "mktable" => self.mklabel(words)?,
            "mkpart" => self.mkpart(words)?,
            "rm" => self.rm(words)?,
            "name" => self.name(words)?,
            "resizepart" => self.resizepart(words)?,
            "align-check" => self.align_check(words)?,
            "unit" | "u" => self.set_unit(words)?,
            "quit" | "q" => return Ok(false),
            "help" | "h" | "?" => {
                words.next();
                print!("{HELP}");
            }
            "version" => println!("parted (ashift {})", env!("CARGO_PKG_VERSION")),
            "set" | "toggle" | "disk_set" | "disk_toggle" | "rescue" | "select" => {
                return fail(&format!("Error: {command} is not kept up here"));
            }
            // parted itself goes no further, and calls that a success
            _ => {
                print!("{HELP}");
                eprintln!("parted: invalid token: {command}");
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn print(&mut self, words: &mut Words<'_>) -> Result<()> {
        let with_free = match words.peek() {
            Some("free") => words.next().is_some(),
            Some("devices" | "list" | "all") => {
                return fail("Error: only the device that was named is printed here");
            }
            _ => false,
        };
        let read = self.table().map(|table| table.clone());
        let probe = Probe(Arc::clone(&self.reader));
        let view = TableView {
            table: read.as_ref().ok(),
            shape: self.shape,
            file_system: &probe,
        };
        // people see the disk even if there is no table on it, after the complaint
        if let Err(Failed(complaint)) = &read {
            eprintln!("{complaint}");
        }
        print!(
            "{}",
            print(&view, &self.disk, self.unit, with_free, self.options.format)
        );
        match read {
            Ok(_) => Ok(()),
            Err(_) => fail(""),
        }
    }

    fn mklabel(&mut self, words: &mut Words<'_>) -> Result<()> {
        let scheme = match words.next() {
            Some("gpt") => Scheme::Gpt,
            Some("msdos" | "mbr") => Scheme::Mbr,
            Some(
                other @ ("aix" | "amiga" | "atari" | "bsd" | "dvh" | "mac" | "pc98" | "sun"
                | "loop"),
            ) => {
                return fail(&format!("Error: label type {other} is not kept up here"));
            }
            Some(other) => {
                return fail(&format!(
                    "parted: invalid token: {other}\nError: Expecting a disk label type."
                ));
            }
            None => return fail("Error: Expecting a disk label type."),
        };
        let old = Table::read(&*self.reader);
        if !self.world.holders(&self.device)?.is_empty() {
            let path = &self.disk.path;
            let kind = if self.options.is_script {
                "Error"
            } else {
                "Warning"
            };
            return fail(&format!("{kind}: Partition(s) on {path} are being used."));
        }
        if matches!(&old, Ok(Some(_))) {
            let path = &self.disk.path;
            self.confirm(
                &format!(
                    "Warning: The existing disk label on {path} will be destroyed and all data on this \
                     disk will be lost. Do you want to continue?"
                ),
                true,
            )?;
        }
        let table = Table::create(scheme, self.shape, None, Era::Nine).map_err(|_| {
            let name = if scheme == Scheme::Gpt {
                "GPT"
            } else {
                "MSDOS"
            };
            format!("Error: device is too small for {name}")
        })?;
        let writer = self.writer()?;
        match old {
            Ok(Some(old)) => old.destroy(&*writer)?,
            Err(_) => wipe(&*writer)?,
            Ok(None) => {}
        }
        self.commit(table)
    }

    fn index(words: &mut Words<'_>) -> Result<u32> {
        let Some(text) = words.next() else {
            return fail("Error: Expecting a partition number.");
        };
        text.parse()
            .or_else(|_| fail("Error: Partition doesn't exist."))
    }

    /// The partition that a word names.
    fn partition(&mut self, words: &mut Words<'_>) -> Result<Partition> {
        let index = Self::index(words)?;
        let found = self.table()?.partition(index).cloned();
        found.map_or_else(|| fail("Error: Partition doesn't exist."), Ok)
    }

    /// The partition that a word names, unless it is being used.
    fn free_partition(&mut self, words: &mut Words<'_>) -> Result<Partition> {
        let one = self.partition(words)?;
        let suffix = one.suffix();
        let name = format!("{}{suffix}", self.world.canonical(&self.device));
        if !self.world.holders(&name)?.is_empty() {
            let path = &self.disk.path;
            return fail(&format!(
                "Warning: Partition {path}{suffix} is being used. Are you sure you want to continue?"
            ));
        }
        Ok(one)
    }

    fn rm(&mut self, words: &mut Words<'_>) -> Result<()> {
        let one = self.free_partition(words)?;
        let mut table = self.table()?.clone();
        table.delete(one.index)?;
        self.commit(table)
    }

    fn name(&mut self, words: &mut Words<'_>) -> Result<()> {
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

    fn set_unit(&mut self, words: &mut Words<'_>) -> Result<()> {
        let Some(text) = words.next() else {
            return Ok(());
        };
        if Unit::is_left_out(text) {
            return fail(&format!("Error: unit {text} is not kept up here"));
        }
        let unknown = || Failed(format!("parted: invalid token: {text}"));
        self.unit = Unit::parse(text).ok_or_else(unknown)?;
        Ok(())
    }

    fn alignment(&self) -> Option<Alignment> {
        let topology = Topology::of(&self.shape);
        match self.options.align {
            Align::None => None,
            Align::Minimal => Some(topology.minimal),
            Align::Optimal => Some(topology.optimal),
        }
    }

    fn location(&self, text: Option<&str>) -> Result<Location> {
        let Some(text) = text else {
            return fail(NEEDS);
        };
        let location = parse_location(text, self.unit, &self.shape, &self.disk.path)?;
        Ok(location)
    }

    fn mkpart(&mut self, words: &mut Words<'_>) -> Result<()> {
        let table = self.table()?.clone();
        let scheme = table.scheme();
        if scheme == Scheme::Mbr && table.partitions().len() == table.entries() as usize {
            return fail("Error: Can't create any more partitions.");
        }
        let mut label = None;
        match (scheme, words.next()) {
            (_, None) => return fail(NEEDS),
            (Scheme::Gpt, Some(name)) => label = Some(name.to_owned()),
            (Scheme::Mbr, Some("primary")) => {}
            (Scheme::Mbr, Some("extended" | "logical")) => {
                return fail("Error: extended and logical partitions are not kept up here");
            }
            (Scheme::Mbr, Some(other)) => {
                return fail(&format!(
                    "parted: invalid token: {other}\nError: Expecting a partition type."
                ));
            }
        }
        let looks_like_system = words
            .peek()
            .is_some_and(|w| w.starts_with(|c: char| c.is_ascii_alphabetic()));
        let system = if looks_like_system {
            words.next()
        } else {
            None
        };
        let Some(kind) = kind_for(scheme, system) else {
            let system = system.unwrap_or_default();
            return fail(&format!(
                "parted: invalid token: {system}\nError: Expecting a file system type."
            ));
        };
        let start = self.location(words.next())?;
        let end_text = words.next();
        let end = self.location(end_text)?;
        let end = end.as_end(end_text.unwrap_or_default(), &start);
        let alignment = self.alignment();
        let placed = place(
            &table,
            &start,
            &end,
            alignment,
            (self.unit, self.disk.track),
        )?;
        if let Some(arithmetic) = &placed.misaligned {
            let text = format!(
                "Warning: The resulting partition is not properly aligned for best performance: {arithmetic}"
            );
            eprintln!("{text}");
        }
        let mut table = table;
        if table.is_corrupt() {
            table.recover(&self.disk.path, Era::Nine)?;
        }
        let new = NewPartition {
            wish: Wish {
                alignment: None,
                start: Some(placed.start),
                size: Some(placed.end - placed.start + 1),
            },
            index: None,
            label: label.filter(|_| scheme == Scheme::Gpt),
            era: Era::Current,
        };
        table.allow_from(placed.start);
        table.add(kind, &new)?;
        self.commit(table)
    }

    fn resizepart(&mut self, words: &mut Words<'_>) -> Result<()> {
        let one = self.free_partition(words)?;
        let Some(text) = words.next() else {
            return fail("Error: resizepart needs NUMBER END");
        };
        let start = Location::exactly(i64::try_from(one.start_sector).unwrap_or(i64::MAX));
        let end = self.location(Some(text))?.as_end(text, &start);
        let mut table = self.table()?.clone();
        let end = resize_end(&table, one.index, &end)?;
        if end < one.last_sector() {
            self.confirm(
                "Warning: Shrinking a partition can cause data loss, are you sure you want to continue?",
                false,
            )?;
        }
        let wish = Wish {
            size: Some(end - one.start_sector + 1),
            ..Wish::default()
        };
        table.resize(one.index, &wish, Era::Current)?;
        self.commit(table)
    }

    fn align_check(&mut self, words: &mut Words<'_>) -> Result<()> {
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
                return fail(&format!("parted: invalid token: {text}"));
            }
            _ => topology.optimal,
        };
        let one = self.partition(words)?;
        let is_aligned = alignment.holds(one.start_sector);
        if self.options.is_script {
            return if is_aligned { Ok(()) } else { fail("") };
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

/// Wipes headers of which none is good.
fn wipe(provider: &dyn Provider) -> Result<()> {
    let sector = u64::from(provider.sectorsize());
    let zeros = vec![0; provider.sectorsize() as usize];
    let last = provider.mediasize() / sector - 1;
    for lba in [0, 1, last] {
        provider.write(lba * sector, &zeros)?;
    }
    Ok(())
}
