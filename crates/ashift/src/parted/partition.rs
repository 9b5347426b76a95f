//! `mkpart` and `resizepart`: where a partition begins and ends.

use gpart::parted::{Alignment, Location, Topology, kind_for, parse_location, place, resize_end};
use gpart::{Era, NewPartition, Scheme, Wish};

use super::commands::Words;
use super::session::Session;
use super::{Align, fail};
use crate::failure::Outcome;

/// Where parted would ask.
const NEEDS: &str = "Error: mkpart needs PART-TYPE [FS-TYPE] START END";

impl Session<'_> {
    fn alignment(&self) -> Option<Alignment> {
        let topology = Topology::of(&self.shape);
        match self.options.align {
            Align::None => None,
            Align::Minimal => Some(topology.minimal),
            Align::Optimal => Some(topology.optimal),
        }
    }

    fn location(&self, text: Option<&str>) -> Outcome<Location> {
        let Some(text) = text else {
            return fail(NEEDS);
        };
        parse_location(text, self.unit, &self.shape, &self.disk.path).or_else(fail)
    }

    pub(super) fn mkpart(&mut self, words: &mut Words<'_>) -> Outcome {
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
                return fail(format!(
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
            return fail(format!(
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
        )
        .or_else(fail)?;
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

    pub(super) fn resizepart(&mut self, words: &mut Words<'_>) -> Outcome {
        let one = self.free_partition(words)?;
        let Some(text) = words.next() else {
            return fail("Error: resizepart needs NUMBER END");
        };
        let start = Location::exactly(i64::try_from(one.start_sector).unwrap_or(i64::MAX));
        let end = self.location(Some(text))?.as_end(text, &start);
        let mut table = self.table()?.clone();
        let end = resize_end(&table, one.index, &end).or_else(fail)?;
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
}
