//! The device that parted works on, and its table: read when it is first needed, written with each change.

use std::sync::Arc;

use base::ErrorKind;
use geom::Provider;
use geom::disk::OpenMode;
use gpart::parted::{Disk, Unit};
use gpart::{Era, Shape, Table};
use machine::{Holder, World};

use super::{Options, fail};
use crate::caller::caller;
use crate::failure::{Fail, Outcome};
use crate::gpart::device;

pub(super) struct Session<'a> {
    pub(super) world: &'a Arc<World>,
    pub(super) options: &'a Options,
    pub(super) device: String,
    pub(super) shape: Shape,
    pub(super) disk: Disk,
    pub(super) unit: Unit,
    pub(super) table: Option<Table>,
    /// The device opened for writing, once that was needed.
    pub(super) writer: Option<Arc<dyn Provider>>,
    pub(super) reader: Arc<dyn Provider>,
}

impl<'a> Session<'a> {
    pub(super) fn open(
        world: &'a Arc<World>,
        device: &str,
        options: &'a Options,
    ) -> Outcome<Session<'a>> {
        let reader = world.open(device, OpenMode::Inspect).map_err(|error| {
            Fail::Failed(match error.kind() {
                ErrorKind::NotFound if world.is_machine() => {
                    format!("Could not stat device {device} - {error}.")
                }
                ErrorKind::NotFound => {
                    format!("Could not stat device {device} - No such file or directory.")
                }
                _ => error.to_string(),
            })
        })?;
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
        let mut session = Session {
            world,
            options,
            device: device.to_owned(),
            shape,
            disk,
            unit: Unit::default(),
            table: None,
            writer: None,
            reader,
        };
        session.describe();
        Ok(session)
    }

    /// Takes the stripe and model from a machine's drive.
    fn describe(&mut self) {
        let name = self.world.canonical(&self.device);
        let drive = self.world.drives().into_iter().find(|d| d.name() == name);
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

    /// The table, read when it is first needed.
    pub(super) fn table(&mut self) -> Outcome<&mut Table> {
        if self.table.is_none() {
            self.table = Some(self.read_table()?);
        }
        Ok(self.table.as_mut().expect("it was just read"))
    }

    fn read_table(&mut self) -> Outcome<Table> {
        let path = &self.disk.path.clone();
        let mut table = match Table::read(&*self.reader) {
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
        let fixes = self.options.is_script && self.options.fixes;
        let note = |text: &str| table.notes().iter().find(|note| note.contains(text));
        if let Some(note) = note("larger disk") {
            let is_file = self.disk.transport == "file";
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
            eprintln!(
                "Error: The primary GPT table is corrupt, but the backup appears OK, so that will be used."
            );
        } else if is_grown && fixes {
            println!("Fixing, due to --fix");
        } else if is_grown {
            eprintln!(
                "Warning: Not all of the space available to {path} appears to be used, you can fix the \
                 GPT to use all of the space (an extra {extra} blocks) or continue with the current \
                 setting? "
            );
        } else if table.is_corrupt() {
            eprintln!("{}", complaint(&table));
        }
        if fixes && (is_grown || table.is_corrupt()) {
            table.use_all(path)?;
            table.write(&*self.writer()?)?;
        }
        Ok(table)
    }

    /// The device, open for writing.
    pub(super) fn writer(&mut self) -> Outcome<Arc<dyn Provider>> {
        if let Some(writer) = &self.writer {
            return Ok(Arc::clone(writer));
        }
        device::check_consent(self.world, &self.device, self.options.has_consent)?;
        let writer = self
            .world
            .open_as(&self.device, OpenMode::ReadWrite, &Holder::Table)?;
        self.writer = Some(Arc::clone(&writer));
        Ok(writer)
    }

    /// Writes the changed table.
    pub(super) fn commit(&mut self, mut table: Table) -> Outcome {
        let writer = self.writer()?;
        if table.is_corrupt() {
            // parted rewrites both copies with any change
            table.recover(&self.disk.path, Era::Nine)?;
        }
        table.write(&*writer)?;
        self.table = Some(table);
        Ok(())
    }

    pub(super) fn is_asking(&self) -> bool {
        !self.options.is_script && caller().reads_terminal()
    }

    /// Asks for confirmation; without a terminal, or with `-s`, the answer is `otherwise`.
    pub(super) fn confirm(&self, question: &str, otherwise: bool) -> Outcome {
        if self.options.is_script {
            return if otherwise { Ok(()) } else { fail(question) };
        }
        eprintln!("{question}");
        if !self.is_asking() {
            return Fail::exit(1);
        }
        eprint!("Yes/No? ");
        let mut answer = String::new();
        let _ = caller().input().read_line(&mut answer);
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Fail::exit(1),
        }
    }
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
