//! The device that parted works on, and its table: read when it is first needed, written with each change.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::ErrorKind;
use geom::Provider;
use geom::disk::OpenMode;
use gpart::parted::{Disk, Format, Marks, Unit};
use gpart::{Era, Partition, Shape, Table};
use machine::{Holder, World};

use super::prompt::{Prompt, Question};
use super::{Options, fail};
use crate::failure::{Fail, Outcome};
use crate::gpart::device;

/// The device that is worked on.
pub(super) struct Opened {
    pub(super) name: String,
    pub(super) shape: Shape,
    pub(super) disk: Disk,
    table: Option<Table>,
    /// What is known of partitions that were changed since the table was read.
    pub(super) marks: BTreeMap<u32, Marks>,
    /// The device opened for writing, once that was needed.
    pub(super) writer: Option<Arc<dyn Provider>>,
    pub(super) reader: Arc<dyn Provider>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

pub(super) struct Session<'a> {
    pub(super) world: &'a Arc<World>,
    pub(super) options: &'a Options,
    pub(super) prompt: Prompt,
    pub(super) unit: Unit,
    pub(super) at: Opened,
    /// Whether anything was written to a device.
    is_modified: bool,
}

impl Opened {
    pub(super) fn open(world: &World, device: &str) -> Outcome<Opened> {
        let reader = world.open(device, OpenMode::Inspect)?;
        let shape = Shape::of(&*reader);
        if shape.sectors() < 10 {
            return fail(format!(
                "Error: The device {device} is so small that it cannot possibly store a file system \
                 or partition table.  Perhaps you selected the wrong device?"
            ));
        }
        let is_device = world.is_machine() || world.block_device_below(device).is_some();
        let disk = Disk {
            path: path_of(world, device),
            model: if is_device { "Unknown" } else { "" }.to_owned(),
            transport: if is_device { "unknown" } else { "file" }.to_owned(),
            track: if is_device { 63 } else { 32 },
        };
        let mut opened = Opened {
            name: device.to_owned(),
            shape,
            disk,
            table: None,
            marks: BTreeMap::new(),
            writer: None,
            reader,
        };
        opened.describe(world);
        Ok(opened)
    }

    /// Takes the stripe and model from a machine's drive.
    fn describe(&mut self, world: &World) {
        let name = world.canonical(&self.name);
        let drive = world.drives().into_iter().find(|d| d.name() == name);
        let Some(drive) = drive else { return };
        // Unlike FreeBSD, Linux has no list of drives that misreport their sectors.
        let (stripesize, stripeoffset) = drive.identify().stripe(false);
        self.shape.stripesize = stripesize.max(self.shape.sectorsize);
        self.shape.stripeoffset = stripeoffset;
        if let Some(model) = model_of(&drive) {
            self.disk.model = format!("ATA {model}");
            "scsi".clone_into(&mut self.disk.transport);
        }
    }
}

/// Opens a device; one that is not there may be tried again.
fn find(world: &World, device: &str, prompt: &mut Prompt) -> Outcome<Opened> {
    loop {
        let why = match world.open(device, OpenMode::Inspect) {
            Ok(_) => return Opened::open(world, device),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            Err(error) if world.is_machine() => error.to_string(),
            Err(_) => "No such file or directory".to_owned(),
        };
        let text = format!("Error: Could not stat device {device} - {why}.");
        if prompt.throw(&text, &["Retry", "Cancel"]) != Some("Retry") {
            return Err(Fail::Said(1));
        }
    }
}

impl<'a> Session<'a> {
    pub(super) fn open(
        world: &'a Arc<World>,
        device: &str,
        options: &'a Options,
        mut prompt: Prompt,
    ) -> Outcome<Session<'a>> {
        let at = find(world, device, &mut prompt).map_err(|fail| prompt.report(fail))?;
        Ok(Session {
            world,
            options,
            prompt,
            unit: Unit::default(),
            at,
            is_modified: false,
        })
    }

    /// Works on another device from now on.
    pub(super) fn turn_to(&mut self, device: &str) -> Outcome {
        self.at = find(self.world, device, &mut self.prompt)?;
        Ok(())
    }

    /// Says which device is worked on.
    pub(super) fn introduce(&self) {
        println!("Using {}", self.at.disk.path);
    }

    /// What parted says at its end.
    pub(super) fn say_goodbye(&self) {
        let is_human = self.options.format == Format::Human;
        if self.is_modified && is_human && !self.options.is_script {
            self.prompt
                .say("Information: You may need to update /etc/fstab.\n\n");
        }
    }

    /// Drops what was read: it is read again when it is next needed.
    pub(super) fn forget(&mut self) {
        self.at.table = None;
        self.at.marks.clear();
    }

    /// What parted knows of a partition.
    pub(super) fn marks(&self, one: &Partition) -> Marks {
        self.at.marks_of(one)
    }

    pub(super) fn remember(&mut self, index: u32, marks: Marks) {
        self.at.marks.insert(index, marks);
    }

    /// The partition given by the next word.
    pub(super) fn partition(&mut self) -> Outcome<Partition> {
        self.table()?;
        let word = self.prompt.word(Question::new("Partition number?"));
        let number = word.as_deref().map(number);
        let Some(number) = number.filter(|number| *number >= 0) else {
            return fail("Error: Expecting a partition number.");
        };
        let index = u32::try_from(number).unwrap_or(u32::MAX);
        let found = self.table()?.partition(index).cloned();
        found.map_or_else(|| fail("Error: Partition doesn't exist."), Ok)
    }

    /// The same, unless it is in use and is to be left alone.
    pub(super) fn free_partition(&mut self) -> Outcome<Partition> {
        let one = self.partition()?;
        let suffix = one.suffix();
        let name = format!("{}{suffix}", self.world.canonical(&self.at.name));
        if !self.world.holders(&name)?.is_empty() {
            let path = &self.at.disk.path;
            self.prompt.confirm(&format!(
                "Warning: Partition {path}{suffix} is being used. Are you sure you want to continue?"
            ))?;
        }
        Ok(one)
    }

    /// The table, read when it is first needed.
    pub(super) fn table(&mut self) -> Outcome<&mut Table> {
        if self.at.table.is_none() {
            self.at.table = Some(self.read_table()?);
        }
        Ok(self.at.table.as_mut().expect("it was just read"))
    }

    fn read_table(&mut self) -> Outcome<Table> {
        let path = &self.at.disk.path.clone();
        let mut table = match Table::read(&*self.at.reader) {
            Ok(Some(table)) => table,
            Ok(None) => return fail(format!("Error: {path}: unrecognised disk label")),
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                return fail(
                    "Error: Both the primary and backup GPT tables are corrupt.  Try making a fresh \
                     table, and using Parted's rescue feature to recover partitions.",
                );
            }
            Err(error) => return Err(error.into()),
        };
        let mut fixes = self.options.is_script && self.options.fixes;
        let note = |text: &str| table.notes().iter().find(|note| note.contains(text));
        if let Some(note) = note("larger disk") {
            let is_file = self.at.disk.transport == "file";
            let what = if is_file {
                format!("end of file while reading {path}")
            } else {
                format!("Invalid argument during seek for read on {path}")
            };
            return fail(format!("Error: {what} ({note})"));
        }
        let extra = table.unused_sectors();
        let is_grown = note("secondary GPT table").is_none() && extra > 0;
        if note("primary GPT table").is_some() {
            self.go_on(
                "Error: The primary GPT table is corrupt, but the backup appears OK, so that will be used.",
            )?;
        } else if is_grown && fixes {
            println!("Fixing, due to --fix");
        } else if is_grown {
            let text = format!(
                "Warning: Not all of the space available to {path} appears to be used, you can fix the \
                 GPT to use all of the space (an extra {extra} blocks) or continue with the current \
                 setting? "
            );
            fixes = self.prompt.throw(&text, &["Fix", "Ignore"]) == Some("Fix");
        } else if table.is_corrupt() {
            self.go_on(&complaint(&table))?;
        }
        if fixes && (is_grown || table.is_corrupt()) {
            table.use_all(path)?;
            table.write(&*self.writer()?)?;
        }
        Ok(table)
    }

    /// Says what is wrong with the table, and goes on unless that is declined.
    fn go_on(&mut self, text: &str) -> Outcome {
        match self.prompt.throw(text, &["OK", "Cancel"]) {
            Some("Cancel") => Err(Fail::Said(1)),
            _ => Ok(()),
        }
    }

    /// The device, open for writing.
    pub(super) fn writer(&mut self) -> Outcome<Arc<dyn Provider>> {
        if let Some(writer) = &self.at.writer {
            return Ok(Arc::clone(writer));
        }
        device::check_consent(self.world, &self.at.name, self.options.has_consent)?;
        let writer = self
            .world
            .open_as(&self.at.name, OpenMode::ReadWrite, &Holder::Table)?;
        self.at.writer = Some(Arc::clone(&writer));
        Ok(writer)
    }

    /// Writes the changed table.
    pub(super) fn commit(&mut self, mut table: Table) -> Outcome {
        let writer = self.writer()?;
        if table.is_corrupt() {
            // parted rewrites both copies with any change
            table.recover(&self.at.disk.path, Era::Nine)?;
        }
        table.write(&*writer)?;
        self.at.table = Some(table);
        self.is_modified |= self.at.disk.transport != "file";
        Ok(())
    }
}

/// The number that a word begins with, as strtol(3) reads it.
fn number(word: &str) -> i64 {
    let word = word.trim();
    let digits = word.trim_start_matches(['-', '+']);
    let end = digits.find(|c: char| !c.is_ascii_digit());
    let value = digits[..end.unwrap_or(digits.len())].parse().unwrap_or(0);
    if word.starts_with('-') { -value } else { value }
}

/// The model, cut to the 16 characters of the SCSI INQUIRY data into which the kernel translates it.
fn model_of(drive: &drive::Emulated) -> Option<String> {
    let model: String = drive.identify().model().chars().take(16).collect();
    let model = model.trim_end().to_owned();
    Some(model).filter(|model| !model.is_empty())
}

/// The path as parted prints it: absolute on a host, below `/dev` in a machine.
fn path_of(world: &World, device: &str) -> String {
    let name = world.canonical(device);
    if world.is_machine() {
        return format!("/dev/{name}");
    }
    std::path::absolute(&name).map_or(name, |path| path.display().to_string())
}

/// The message of parted for a GPT whose secondary copy is damaged.
fn complaint(table: &Table) -> String {
    let notes = table.notes();
    if notes
        .iter()
        .any(|note| note.contains("secondary GPT table"))
    {
        "Error: The backup GPT table is corrupt, but the primary appears OK, so that will be used."
            .to_owned()
    } else {
        format!("Error: {}", notes.join("; "))
    }
}
