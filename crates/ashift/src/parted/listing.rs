//! `print`: the table, also of all drives of a machine.

use geom::Provider;
use gpart::Partition;
use gpart::parted::{FileSystems, Marks, TableView, print};

use super::fail;
use super::file_systems::Probe;
use super::session::{Opened, Session};
use crate::failure::Outcome;

/// What is known of the partitions: what was done to them in this session, or what is found in them.
#[derive(Debug)]
struct Seen<'a>(&'a Opened);

impl FileSystems for Seen<'_> {
    fn name(&self, one: &Partition) -> &'static str {
        self.0.marks_of(one).system.unwrap_or_default()
    }

    fn flags(&self, one: &Partition) -> Vec<&'static str> {
        self.0.marks_of(one).flags(one)
    }
}

impl Opened {
    /// What parted knows of a partition.
    pub(super) fn marks_of(&self, one: &Partition) -> Marks {
        let found = || {
            let system = Probe(std::sync::Arc::clone(&self.reader)).name(one);
            Marks::of(one, Some(system).filter(|system| !system.is_empty()))
        };
        self.marks.get(&one.index).cloned().unwrap_or_else(found)
    }
}

impl Session<'_> {
    pub(super) fn print(&mut self) -> Outcome {
        let word = self.prompt.peek().unwrap_or_default().to_owned();
        match word.as_str() {
            "devices" => {
                self.prompt.next();
                self.print_devices()
            }
            "list" | "all" => {
                self.prompt.next();
                self.print_all()
            }
            "free" => {
                self.prompt.next();
                self.print_table(true)
            }
            // parted prints nothing about a single partition
            _ if word.starts_with(|c: char| c.is_ascii_digit()) => self.partition().map(drop),
            _ => self.print_table(false),
        }
    }

    fn print_table(&mut self, with_free: bool) -> Outcome {
        // the disk is shown even without a table, after the complaint
        let read = self.table().map(|table| table.clone());
        let read = read.map_err(|fail| self.prompt.report(fail));
        let view = TableView {
            table: read.as_ref().ok(),
            shape: self.at.shape,
            file_system: &Seen(&self.at),
        };
        let format = self.options.format;
        let text = print(&view, &self.at.disk, self.unit, with_free, format);
        print!("{text}");
        match self.options.is_script {
            true => read.map(drop),
            false => Ok(()),
        }
    }

    fn drives(&self) -> Outcome<Vec<String>> {
        if !self.world.is_machine() {
            return fail("Error: only the device that was named is printed here");
        }
        let drives = self.world.drives();
        Ok(drives.iter().map(|drive| drive.name().to_owned()).collect())
    }

    fn print_devices(&mut self) -> Outcome {
        for name in self.drives()? {
            let one = Opened::open(self.world, &name)?;
            let size = self.unit.format(&one.shape, one.reader.mediasize());
            println!("{} ({size})", one.disk.path);
        }
        Ok(())
    }

    fn print_all(&mut self) -> Outcome {
        for name in self.drives()? {
            let one = Opened::open(self.world, &name)?;
            let own = std::mem::replace(&mut self.at, one);
            let printed = self.print_table(false);
            self.at = own;
            println!();
            printed?;
        }
        Ok(())
    }
}
