//! `mkpart` and `resizepart`: where a partition begins and ends.

use gpart::parted::{
    Alignment, Location, Marks, Placed, SYSTEMS, Topology, parse_location, place, resize_end,
    system_named,
};
use gpart::{Era, NewPartition, Scheme, Table, Wish};

use super::prompt::Question;
use super::session::Session;
use super::{Align, fail};
use crate::failure::{Fail, Outcome};

impl Session<'_> {
    fn alignment(&self) -> Option<Alignment> {
        let topology = Topology::of(&self.at.shape);
        match self.options.align {
            Align::None => None,
            Align::Minimal => Some(topology.minimal),
            Align::Optimal => Some(topology.optimal),
        }
    }

    /// The location given by the next word, and that word. `present`: the sector that it is now.
    fn location(&mut self, text: &str, present: Option<u64>) -> Outcome<(Location, String)> {
        let shape = self.at.shape;
        let default = present.map(|sector| self.unit.format_sector(&shape, sector));
        let question = Question {
            default: default.as_deref(),
            ..Question::new(text)
        };
        let Some(word) = self.prompt.word(question) else {
            return self.prompt.unanswered(text);
        };
        if let (Some(sector), true) = (present, default.as_ref() == Some(&word)) {
            // what was printed may be rounded
            let sector = i64::try_from(sector).unwrap_or(i64::MAX);
            return Ok((Location::exactly(sector), String::new()));
        }
        let location =
            parse_location(&word, self.unit, &shape, &self.at.disk.path).or_else(fail)?;
        Ok((location, word))
    }

    /// Asks for the type of a partition in an MBR.
    fn primary(&mut self, table: &Table) -> Outcome {
        let is_full = table.partitions().len() == table.entries() as usize;
        let has_extended = table.partitions().iter().any(|p| p.kind.is_extended());
        let mut choices = Vec::new();
        if !is_full {
            choices.push("primary");
        }
        match has_extended {
            true => choices.push("logical"),
            false if !is_full => choices.push("extended"),
            false => return fail("Error: Can't create any more partitions."),
        }
        let question = Question::new("Partition type?").among(&choices);
        match self.prompt.word(question).as_deref() {
            Some("primary") => Ok(()),
            Some(_) => fail("Error: extended and logical partitions are not kept up here"),
            None => fail("Error: Expecting a partition type."),
        }
    }

    /// Asks for the file system, unless a location is next.
    fn system(&mut self) -> Outcome<Option<&'static str>> {
        let is_location = |word: &str| word.starts_with(|c: char| c.is_ascii_digit() || c == '-');
        if self.prompt.peek().is_some_and(is_location) {
            return Ok(None);
        }
        let question = Question::new("File system type?").or("ext2").among(SYSTEMS);
        match self.prompt.word(question) {
            Some(word) => Ok(system_named(&word)),
            None => fail("Error: Expecting a file system type."),
        }
    }

    pub(super) fn mkpart(&mut self) -> Outcome {
        let mut table = self.table()?.clone();
        let label = match table.scheme() {
            Scheme::Gpt => self.prompt.word(Question::new("Partition name?").or("")),
            Scheme::Mbr => {
                self.primary(&table)?;
                None
            }
        };
        let system = self.system()?;
        let (start, _) = self.location("Start?", None)?;
        let (end, text) = self.location("End?", None)?;
        let end = end.as_end(&text, self.unit, &start);
        let units = (self.unit, self.at.disk.track);
        let placed = place(&table, &start, &end, self.alignment(), units).or_else(fail)?;
        self.accept(&placed)?;
        if table.is_corrupt() {
            table.recover(&self.at.disk.path, Era::Nine)?;
        }
        let new = NewPartition {
            wish: Wish {
                alignment: None,
                start: Some(placed.start),
                size: Some(placed.end - placed.start + 1),
            },
            index: None,
            label,
            era: Era::Current,
        };
        table.allow_from(placed.start);
        let index = table.add("linux-data", &new)?;
        let marks = Marks::made(&mut table, index, system)?;
        self.commit(table)?;
        self.remember(index, marks);
        Ok(())
    }

    /// Asks whether a partition may be where it can be, or be misaligned.
    fn accept(&mut self, placed: &Placed) -> Outcome {
        if let Some(text) = &placed.moved {
            if self.options.is_script {
                return fail(format!("Error: {text}"));
            }
            let text = format!("Warning: {text}\nIs this still acceptable to you?");
            self.prompt.confirm(&text)?;
        }
        let Some(arithmetic) = &placed.misaligned else {
            return Ok(());
        };
        let text = format!(
            "Warning: The resulting partition is not properly aligned for best performance: {arithmetic}"
        );
        match self.prompt.throw(&text, &["Ignore", "Cancel"]) {
            Some("Cancel") => Err(Fail::Said(1)),
            _ => Ok(()),
        }
    }

    pub(super) fn resizepart(&mut self) -> Outcome {
        let one = self.free_partition()?;
        let start = Location::exactly(i64::try_from(one.start_sector).unwrap_or(i64::MAX));
        let (end, text) = self.location("End?", Some(one.last_sector()))?;
        let end = end.as_end(&text, self.unit, &start);
        let mut table = self.table()?.clone();
        let end = resize_end(&table, one.index, &end).or_else(fail)?;
        if end < one.last_sector() {
            self.prompt.confirm(
                "Warning: Shrinking a partition can cause data loss, are you sure you want to continue?",
            )?;
        }
        let wish = Wish {
            size: Some(end - one.start_sector + 1),
            ..Wish::default()
        };
        table.resize(one.index, &wish, Era::Current)?;
        self.commit(table)
    }
}
