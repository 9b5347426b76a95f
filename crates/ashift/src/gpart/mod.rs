//! `gpart`: partition tables, as FreeBSD does it.

pub(crate) mod device;
mod json;

use std::sync::Arc;

use admin::getopt::{self, OptSpec, Parsed};
use base::{Error, ErrorKind, Result};
use geom::Provider;
use geom::disk::OpenMode;
use gpart::listing::{self, Show};
use gpart::{Backup, Era, NewPartition, Scheme, Shape, Table, Wish, align};
use machine::{Holder, World};

use crate::caller::caller;
use crate::command::{self, Command, Entry, verb};
use crate::failure::{Fail, Outcome};

pub(crate) const GPART: Command<Entry> = Command::explained(
    "gpart",
    "partition tables, as FreeBSD does it",
    include_str!("usage.txt"),
    run,
)
.more(include_str!("help.txt"))
.tool()
.misused_is_1();

/// A parsed call, with what all verbs share.
struct Call {
    world: Arc<World>,
    verb: &'static str,
    parsed: Parsed,
    /// The era whose default alignment applies.
    era: Era,
    has_consent: bool,
    is_json: bool,
}

/// What a verb takes and does.
#[derive(Clone, Copy)]
struct Verb {
    options: OptSpec,
    geoms: Geoms,
    /// An option that must be given, and its name in GEOM.
    needs: Option<(char, &'static str)>,
    act: fn(&Call) -> Result<()>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Geoms {
    One,
    Some,
    Any,
}

const fn entry(
    name: &'static str,
    short: &'static str,
    geoms: Geoms,
    needs: Option<(char, &'static str)>,
    act: fn(&Call) -> Result<()>,
) -> Command<Verb> {
    let options = OptSpec { short, long: &[] };
    let run = Verb {
        options,
        geoms,
        needs,
        act,
    };
    verb(name, run)
}

#[rustfmt::skip]
const VERBS: command::Table<Verb> = command::Table {
    program: "gpart",
    commands: &[
        entry("add", "t:a:b:s:i:l:f:", Geoms::One, Some(('t', "type")), Call::change),
        entry("backup", "", Geoms::One, None, Call::backup),
        entry("bootcode", "Nb:p:i:f:", Geoms::One, None, Call::bootcode),
        entry("create", "s:n:f:", Geoms::One, Some(('s', "scheme")), Call::create),
        entry("delete", "i:f:", Geoms::One, Some(('i', "index")), Call::change),
        entry("destroy", "Ff:", Geoms::One, None, Call::destroy),
        entry("list", "aj", Geoms::Any, None, Call::list),
        entry("modify", "i:l:t:f:", Geoms::One, Some(('i', "index")), Call::change),
        entry("recover", "f:", Geoms::One, None, Call::recover),
        entry("resize", "i:a:s:f:", Geoms::One, Some(('i', "index")), Call::change),
        entry("restore", "lFf:", Geoms::Some, None, Call::restore),
        entry("set", "a:i:f:", Geoms::One, Some(('a', "attrib")), Call::change),
        entry("show", "lrpj", Geoms::Any, None, Call::show),
        entry("status", "agsj", Geoms::Any, None, Call::status),
        entry("unset", "a:i:f:", Geoms::One, Some(('a', "attrib")), Call::change),
    ],
};

fn run(args: &[String]) -> Outcome {
    let mut args = args.to_vec();
    let has_consent = device::take_consent(&mut args);
    let era = take_era(&mut args)?;
    let misused = |text: String| Err(Fail::Usage(text));
    let Some((word, rest)) = args.split_first() else {
        return misused(String::new());
    };
    if word == "commit" || word == "undo" {
        let text = format!("{word}: every change is written at once here");
        return Err(Fail::Failed(text));
    }
    let Some(command) = VERBS.find(word) else {
        return misused(format!("Unknown command: {word}."));
    };
    let Verb {
        options,
        geoms,
        needs,
        act,
    } = command.run;
    let parsed = getopt::parse(&options, rest).map_err(|e| Fail::Usage(e.to_string()))?;
    let is_right = match geoms {
        Geoms::One => parsed.operands.len() == 1,
        Geoms::Some => !parsed.operands.is_empty(),
        Geoms::Any => true,
    };
    if !is_right {
        return misused("Invalid number of arguments.".to_owned());
    }
    if let Some(flags) = parsed.value('f').filter(|flags| *flags != "C") {
        let text = format!("flags '{flags}': every change is written at once here");
        return Err(Fail::Failed(text));
    }
    if let Some((letter, name)) = needs.filter(|(letter, _)| parsed.value(*letter).is_none()) {
        return misused(format!("Option '{letter}' ({name}) not specified."));
    }
    let world = crate::world::entered();
    let call = Call {
        verb: command.name,
        is_json: parsed.has('j'),
        parsed,
        era: era.unwrap_or_else(|| era_of(&world)),
        world,
        has_consent,
    };
    Ok(act(&call)?)
}

/// The era of the machine's host; on this host, today's.
fn era_of(world: &World) -> Era {
    world.running().map_or_else(Era::default, |m| m.host().era)
}

/// Takes `--era X` or `--era=X` out of the arguments.
fn take_era(args: &mut Vec<String>) -> Result<Option<Era>> {
    let is_era = |arg: &String| arg == "--era" || arg.starts_with("--era=");
    let Some(at) = args.iter().position(is_era) else {
        return Ok(None);
    };
    let arg = args.remove(at);
    if let Some((_, value)) = arg.split_once('=') {
        return Era::parse(value).map(Some);
    }
    if at >= args.len() {
        return Err(Error::invalid("--era needs 9 or current"));
    }
    Era::parse(&args.remove(at)).map(Some)
}

/// A number without the leading blanks that C's strtoimax skips: `'-a 4K'` may be one argument.
fn number(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\u{b}')
}

/// A provider opened for changes, with its table.
struct Open {
    provider: Arc<dyn Provider>,
    name: String,
    table: Table,
}

impl Call {
    fn geom(&self) -> &str {
        &self.parsed.operands[0]
    }

    /// The name as it is printed: without `/dev/` in a machine, as given on a host.
    fn shown(&self, name: &str) -> String {
        if self.world.is_machine() {
            self.world.canonical(name)
        } else {
            name.to_owned()
        }
    }

    fn index(&self) -> Result<Option<u32>> {
        let Some(text) = self.parsed.value('i') else {
            return Ok(None);
        };
        match number(text).parse() {
            Ok(index) if index > 0 => Ok(Some(index)),
            _ => Err(Error::invalid(format!("index '{text}': Invalid argument"))),
        }
    }

    /// The value of an option as a number of sectors.
    fn sectors(&self, letter: char, name: &str, shape: &Shape) -> Result<Option<u64>> {
        let Some(text) = self.parsed.value(letter) else {
            return Ok(None);
        };
        let sectors = align::parse_sectors(number(text), shape.sectorsize);
        let is_right = |n: &u64| *n > 0 || letter != 'a';
        let invalid = || Error::invalid(format!("Invalid {name} param: Invalid argument"));
        sectors.filter(is_right).map(Some).ok_or_else(invalid)
    }

    fn wish(&self, shape: &Shape) -> Result<Wish> {
        let start = match self.verb {
            "add" => self.sectors('b', "start", shape)?,
            _ => None,
        };
        Ok(Wish {
            alignment: self.sectors('a', "alignment", shape)?,
            start,
            size: self.sectors('s', "size", shape)?,
        })
    }

    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn Provider>> {
        if mode == OpenMode::ReadWrite {
            device::check_consent(&self.world, name, self.has_consent)?;
        }
        self.world
            .open_as(name, mode, &Holder::Table)
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound => {
                    let text = format!("arg0 '{name}': Invalid argument ({error})");
                    Error::not_found(text)
                }
                _ => error,
            })
    }

    /// The table of a provider; a GPT beyond recovery counts as none, with a message on stderr.
    fn read(&self, provider: &dyn Provider, name: &str) -> Result<Option<Table>> {
        match Table::read(provider) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                eprintln!("GEOM: {name}: {error}");
                Ok(None)
            }
            table => table,
        }
    }

    /// Opens a provider that must have a table.
    fn open_table(&self, name: &str, mode: OpenMode) -> Result<Open> {
        let provider = self.open(name, mode)?;
        let name = self.shown(name);
        let none = || match self.verb {
            "add" => Error::not_found(format!(
                "No partitioning scheme found on geom {name}. Create one first using 'gpart create'."
            )),
            "show" | "list" | "status" | "backup" => {
                Error::not_found(format!("No such geom: {name}."))
            }
            _ => Error::not_found(format!("arg0 '{name}': Invalid argument (no such geom)")),
        };
        let table = self.read(&*provider, &name)?.ok_or_else(none)?;
        Ok(Open {
            provider,
            name,
            table,
        })
    }

    /// The tables of the providers given, or all of the machine.
    fn tables(&self) -> Result<Vec<(String, Table)>> {
        let mut tables = Vec::new();
        if !self.parsed.operands.is_empty() {
            for name in &self.parsed.operands {
                let open = self.open_table(name, OpenMode::Inspect)?;
                tables.push((open.name, open.table));
            }
        } else if self.world.is_machine() {
            for one in self.world.providers()? {
                if matches!(one.class, "PART" | "LABEL") {
                    continue;
                }
                let provider = self.open(&one.name, OpenMode::Inspect)?;
                if let Some(table) = self.read(&*provider, &one.name)? {
                    tables.push((one.name, table));
                }
            }
        } else {
            return Err(Error::invalid(
                "name the image file or device that is meant, or a machine (ashift -m MACHINE gpart …)",
            ));
        }
        for (name, table) in &tables {
            for note in table.notes() {
                eprintln!("GEOM: {name}: {note}.");
            }
        }
        Ok(tables)
    }

    fn print_json(tables: &[(String, Table)]) {
        println!("{:#}", json::tables(tables));
    }

    fn show(&self) -> Result<()> {
        let what = match (self.parsed.has('l'), self.parsed.has('r')) {
            (true, true) => return Err(Error::invalid("-l and -r are mutually exclusive")),
            (true, false) => Show::Label,
            (false, true) => Show::Raw,
            (false, false) => Show::Type,
        };
        let tables = self.tables()?;
        if self.is_json {
            Self::print_json(&tables);
            return Ok(());
        }
        for (name, table) in &tables {
            print!("{}", listing::show(table, name, what, self.parsed.has('p')));
        }
        Ok(())
    }

    fn list(&self) -> Result<()> {
        let tables = self.tables()?;
        if self.is_json {
            Self::print_json(&tables);
            return Ok(());
        }
        for (name, table) in &tables {
            print!("{}", listing::list(table, name));
        }
        Ok(())
    }

    fn status(&self) -> Result<()> {
        let tables = self.tables()?;
        if self.is_json {
            Self::print_json(&tables);
        } else if tables
            .iter()
            .any(|(_, table)| !table.partitions().is_empty())
        {
            print!("{}", listing::status(&tables));
        }
        Ok(())
    }

    fn backup(&self) -> Result<()> {
        let open = self.open_table(self.geom(), OpenMode::Inspect)?;
        print!("{}", gpart::backup(&open.table));
        Ok(())
    }

    fn create(&self) -> Result<()> {
        let scheme = Scheme::parse(self.parsed.value('s').unwrap_or_default())?;
        let entries = match self.parsed.value('n') {
            None => None,
            Some(text) => Some(number(text).parse().map_err(|_| {
                Error::invalid(format!("Invalid entries param '{text}': Invalid argument"))
            })?),
        };
        let name = self.shown(self.geom());
        let provider = self
            .open(self.geom(), OpenMode::ReadWrite)
            .map_err(|error| match error.kind() {
                ErrorKind::Busy => {
                    let text = error.context();
                    let own = format!("{}: ", self.geom());
                    let text = text.strip_prefix(&own).unwrap_or(text);
                    Error::new(ErrorKind::Busy, format!("geom '{name}': {text}"))
                }
                _ => error,
            })?;
        if self.read(&*provider, &name)?.is_some() {
            let text = format!("geom '{name}': File exists");
            return Err(Error::new(ErrorKind::Exists, text));
        }
        self.check_no_layer(std::slice::from_ref(&name))?;
        let table = Table::create(scheme, Shape::of(&*provider), entries, self.era)?;
        table.write(&*provider)?;
        println!("{name} created");
        Ok(())
    }

    /// Refuses changes to a partition with something on it, whether in use or not.
    fn check_unused(&self, names: &[String]) -> Result<()> {
        for name in names {
            if let Some(holder) = self.world.holders(name)?.first() {
                let text = format!("Device busy ({holder} is on it)");
                return Err(Error::new(ErrorKind::Busy, text));
            }
        }
        self.check_no_layer(names)
    }

    /// Refuses changes that would remove a name a layer is on.
    fn check_no_layer(&self, names: &[String]) -> Result<()> {
        let names: Vec<String> = names.iter().map(|n| self.world.canonical(n)).collect();
        let layers = self.world.layers();
        let on = layers
            .iter()
            .find(|l| names.contains(&self.world.canonical(&l.on)));
        match on {
            None => Ok(()),
            Some(layer) => {
                let text = format!("Device busy ({} is on it)", layer.name);
                Err(Error::new(ErrorKind::Busy, text))
            }
        }
    }

    /// The names of a table's partitions.
    fn names_of(open: &Open, index: Option<u32>) -> Vec<String> {
        let is_it = |i: u32| index.is_none_or(|index| index == i);
        let partitions = open.table.partitions().iter().filter(|p| is_it(p.index));
        let names = partitions.flat_map(|p| {
            let label = p.label();
            let labels = [format!("gpt/{label}"), format!("{}:gpt/{label}", open.name)];
            let own = format!("{}{}", open.name, p.suffix());
            std::iter::once(own).chain(labels.into_iter().filter(move |_| !label.is_empty()))
        });
        names.collect()
    }

    fn destroy(&self) -> Result<()> {
        let open = self.open_table(self.geom(), OpenMode::ReadWrite)?;
        if !open.table.partitions().is_empty() && !self.parsed.has('F') {
            return Err(Error::new(ErrorKind::Busy, "Device busy"));
        }
        self.check_unused(&Self::names_of(&open, None))?;
        open.table.destroy(&*open.provider)?;
        println!("{} destroyed", open.name);
        Ok(())
    }

    fn restore(&self) -> Result<()> {
        let text = std::io::read_to_string(&mut *caller().input())?;
        let backup = Backup::parse(&text)?;
        let mut targets = Vec::new();
        // check all before writing the first one
        for geom in &self.parsed.operands {
            let provider = self.open(geom, OpenMode::ReadWrite)?;
            let name = self.shown(geom);
            let old = self.read(&*provider, &name)?;
            if old.is_some() && !self.parsed.has('F') {
                let text = format!("geom '{name}': File exists");
                return Err(Error::new(ErrorKind::Exists, text));
            }
            let table = backup.table(Shape::of(&*provider), self.parsed.has('l'))?;
            let open = Open {
                provider,
                name,
                table,
            };
            if let Some(old) = &old {
                let was = Open {
                    provider: Arc::clone(&open.provider),
                    name: open.name.clone(),
                    table: old.clone(),
                };
                self.check_unused(&Self::names_of(&was, None))?;
            }
            targets.push((open, old));
        }
        for (open, old) in targets {
            if let Some(old) = old {
                old.destroy(&*open.provider)?;
            }
            open.table.write(&*open.provider)?;
        }
        Ok(())
    }

    fn recover(&self) -> Result<()> {
        let mut open = self.open_table(self.geom(), OpenMode::ReadWrite)?;
        let name = &open.name;
        if open.table.recover(name, self.era)? {
            open.table.write(&*open.provider)?;
            println!("{name} recovered");
        } else {
            println!("{name} recovering is not needed");
        }
        Ok(())
    }

    fn bootcode(&self) -> Result<()> {
        let (boot, code) = (self.parsed.value('b'), self.parsed.value('p'));
        if boot.is_none() && code.is_none() {
            return Err(Error::invalid("-b nor -p not specified"));
        }
        let index = self.index()?;
        if code.is_some() != index.is_some() {
            return Err(Error::invalid("-p and -i must be specified together"));
        }
        let mut open = self.open_table(self.geom(), OpenMode::ReadWrite)?;
        open.table.check_writable(&open.name)?;
        let read = |path: &str| {
            let bytes = std::fs::read(path).map_err(|e| Error::from(e).within(path))?;
            if bytes.is_empty() {
                return Err(Error::invalid(format!("{path}: empty file")));
            }
            Ok(bytes)
        };
        if let (Some(path), Some(index)) = (code, index) {
            let places = open.table.places(&open.name);
            let suffix = open.table.partition(index).map(gpart::Partition::suffix);
            let name = suffix.map(|suffix| format!("{}{suffix}", open.name));
            let place = places.iter().find(|p| Some(&p.name) == name.as_ref());
            let place = place
                .ok_or_else(|| Error::not_found(format!("invalid partition index: {index}")))?;
            let mut bytes = read(path)?;
            let sector = open.provider.sectorsize() as usize;
            bytes.resize(bytes.len().next_multiple_of(sector), 0);
            if bytes.len() as u64 > place.len {
                let text = format!("{}: not enough space", place.name);
                return Err(Error::new(ErrorKind::NoSpace, text));
            }
            let device = match self.world.is_machine() {
                true => format!("/dev/{}", place.name),
                false => place.name.clone(),
            };
            let _held = self.world.hold(&device, &Holder::Program)?;
            open.provider.write(place.start, &bytes)?;
            open.provider.flush()?;
            println!("partcode written to {}", place.name);
        }
        if let Some(path) = boot {
            open.table
                .set_bootcode(&read(path)?, self.parsed.has('N'))?;
            open.table.write(&*open.provider)?;
            println!("bootcode written to {}", open.name);
        }
        Ok(())
    }

    /// `add`, `delete`, `modify`, `resize`, `set`, `unset`.
    fn change(&self) -> Result<()> {
        let index = self.index()?;
        let mut open = self.open_table(self.geom(), OpenMode::ReadWrite)?;
        let disk = open.name.clone();
        if let Err(error) = open.table.check_writable(&disk) {
            for note in open.table.notes() {
                eprintln!("GEOM: {disk}: {note}.");
            }
            return Err(error);
        }
        let said = match self.verb {
            "add" => self.add(&mut open, index)?,
            "delete" => {
                let index = index.unwrap_or_default();
                self.check_unused(&Self::names_of(&open, Some(index)))?;
                let gone = open.table.delete(index)?;
                format!("{disk}{} deleted", gone.suffix())
            }
            "modify" => {
                let index = index.unwrap_or_default();
                let (label, kind) = (self.parsed.value('l'), self.parsed.value('t'));
                let before = Self::names_of(&open, Some(index));
                open.table.modify(index, label, kind)?;
                let after = Self::names_of(&open, Some(index));
                let lost: Vec<_> = before.into_iter().filter(|n| !after.contains(n)).collect();
                self.check_no_layer(&lost)?;
                format!("{} modified", Self::name(&open, index))
            }
            "resize" => self.resize(&mut open, index.unwrap_or_default())?,
            verb => {
                let attribute = self.parsed.value('a').unwrap_or_default();
                open.table.set(attribute, index, verb == "set")?;
                let name = index.map_or_else(|| disk.clone(), |i| Self::name(&open, i));
                format!("{attribute} {verb} on {name}")
            }
        };
        open.table.write(&*open.provider)?;
        println!("{said}");
        Ok(())
    }

    fn name(open: &Open, index: u32) -> String {
        let suffix = open.table.partition(index).map(gpart::Partition::suffix);
        format!("{}{}", open.name, suffix.unwrap_or_default())
    }

    fn add(&self, open: &mut Open, index: Option<u32>) -> Result<String> {
        let new = NewPartition {
            wish: self.wish(&open.table.shape())?,
            index,
            label: self.parsed.value('l').map(str::to_owned),
            era: self.era,
        };
        let kind = self.parsed.value('t').unwrap_or_default();
        let index = open.table.add(kind, &new)?;
        let shape = open.table.shape();
        let one = open.table.partition(index).expect("it was just added");
        let is_off = shape.misalignment(one.start_sector) != 0;
        let (name, stripe) = (Self::name(open, index), shape.stripesize);
        Ok(if is_off {
            format!("{name} added, but partition is not aligned on {stripe} bytes")
        } else {
            format!("{name} added")
        })
    }

    fn resize(&self, open: &mut Open, index: u32) -> Result<String> {
        let before = open.table.partition(index).map_or(0, |p| p.sectors);
        let wish = self.wish(&open.table.shape())?;
        open.table.resize(index, &wish, self.era)?;
        let after = open.table.partition(index).map_or(0, |p| p.sectors);
        if after < before {
            self.check_unused(&Self::names_of(open, Some(index)))?;
        }
        Ok(format!("{} resized", Self::name(open, index)))
    }
}
