//! Tasting: which partitions and labels a provider has.
//!
//! # What it is
//! A partition table makes a provider for each partition, and one more for each that has a label.
//! GEOM tastes when a provider appears; here a table is read when a name asks for it. In a machine,
//! whose providers no other program changes, it is cached until its provider is opened for writing.
//!
//! # Invariants
//! 1. A label that two partitions have does not resolve: the error names both.
//! 2. The label of a partition that is also visible through a layer on its drive resolves to the
//!    partition on the drive itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use geom::Provider;
use geom::disk::OpenMode;
use geom::part::Part;
use gpart::{Extent, Table};
use rt::Mutex;

use crate::world::World;

/// What is known of a provider without opening it for reading or writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderInfo {
    /// `gpt/d1.nop`
    pub name: String,
    /// The class that makes it, as GEOM calls it: `DISK`, `PART`, `LABEL`, `NOP`, `ELI`.
    pub class: &'static str,
    /// The provider that it is on.
    pub below: Option<String>,
    /// The size in bytes.
    pub mediasize: u64,
    /// The sector size in bytes, the unit of all requests.
    pub sectorsize: u32,
    /// The physical sector size in bytes.
    pub stripesize: u32,
    /// The offset of the first physical sector, in bytes.
    pub stripeoffset: u32,
}

/// Cached partition tables, by the name of the provider that they are on.
#[derive(Default)]
pub(crate) struct Tables(Mutex<Known>);

#[derive(Default)]
struct Known {
    places: BTreeMap<String, Arc<[Extent]>>,
    /// Providers opened for writing: their tables may change at any time and are not cached.
    unsteady: BTreeSet<String>,
}

impl Tables {
    /// Notes that a provider may be written to from now on.
    pub(crate) fn forget(&self, name: &str) {
        let mut known = self.0.lock();
        known.places.remove(name);
        known.unsteady.insert(name.to_owned());
    }
}

impl World {
    /// The partitions on a provider; empty if it has no valid table.
    fn places(&self, name: &str, depth: u32) -> Result<Arc<[Extent]>> {
        if let Some(places) = self.tables.0.lock().places.get(name) {
            return Ok(Arc::clone(places));
        }
        let provider = self.resolve(name, OpenMode::Inspect, depth + 1)?;
        let table = match Table::read(&*provider) {
            Ok(table) => table,
            Err(e) if e.kind() == ErrorKind::Corrupt => None,
            Err(e) => return Err(e),
        };
        let places = table.map_or_else(Vec::new, |table| table.places(name));
        let places: Arc<[Extent]> = places.into();
        let mut known = self.tables.0.lock();
        if self.is_machine() && !known.unsteady.contains(name) {
            known.places.insert(name.to_owned(), Arc::clone(&places));
        }
        Ok(places)
    }

    /// The names of the partitions on a provider; none if it has no valid table, or cannot be read.
    #[must_use]
    pub fn partitions(&self, name: &str) -> Vec<String> {
        let places = self.places(&self.canonical(name), 0);
        let places = places.iter().flat_map(|places| places.iter());
        places.map(|place| place.name.clone()).collect()
    }

    /// The partition of that name or label.
    pub(crate) fn find_place(
        &self,
        name: &str,
        mode: OpenMode,
        depth: u32,
    ) -> Result<Option<Arc<dyn Provider>>> {
        let (disk, place) = match self.find_label(name, depth)? {
            Some(found) => found,
            None => match self.find_partition(name, depth)? {
                Some(found) => found,
                None => return Ok(None),
            },
        };
        let whole = self.resolve(&disk, mode, depth + 1)?;
        let part = Part::new(name, whole, place.start, place.len)?;
        Ok(Some(Arc::new(part)))
    }

    /// `ada0p1`: a suffix on the name of the provider that has the table.
    fn find_partition(&self, name: &str, depth: u32) -> Result<Option<(String, Extent)>> {
        let disk = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let has_number = disk.len() < name.len();
        let Some(disk) = disk.strip_suffix(['p', 's']).filter(|_| has_number) else {
            return Ok(None);
        };
        let places = match self.places(disk, depth) {
            Ok(places) => places,
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => {
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let place = places.iter().find(|place| place.name == name);
        Ok(place.map(|place| (disk.to_owned(), place.clone())))
    }

    /// `gpt/d1` in a machine, `disk.img:gpt/d1` on a host: the disk, and where on it.
    pub(crate) fn find_label(&self, name: &str, depth: u32) -> Result<Option<(String, Extent)>> {
        if !self.is_machine() {
            let Some((disk, label)) = name.split_once(":gpt/") else {
                return Ok(None);
            };
            return one_of(name, &self.labelled(disk, label, depth)?);
        }
        let Some(label) = name.strip_prefix("gpt/") else {
            return Ok(None);
        };
        let mut found = Vec::new();
        let mut unread = None;
        for drive in self.drives() {
            // A drive that does not answer takes its own labels away, and no others.
            match self.labelled(drive.name(), label, depth) {
                Ok(places) => found.extend(places),
                Err(error) => unread = unread.or(Some(error)),
            }
        }
        if found.is_empty() {
            for layer in self.layers().iter().filter(|l| l.on != name) {
                if let Ok(places) = self.labelled(&layer.name, label, depth) {
                    found.extend(places);
                }
            }
            found.truncate(1);
        }
        match unread {
            Some(error) if found.is_empty() => Err(error),
            _ => one_of(name, &found),
        }
    }

    fn labelled(&self, disk: &str, label: &str, depth: u32) -> Result<Vec<(String, Extent)>> {
        let places = self.places(disk, depth)?;
        let same = places.iter().filter(|p| p.label.as_deref() == Some(label));
        Ok(same.map(|p| (disk.to_owned(), p.clone())).collect())
    }

    /// All providers, in the order of tasting: a provider is followed by those on it. On a host
    /// these are the layers and what they are on.
    ///
    /// # Errors
    /// None at present: providers that cannot be opened are left out, as are tables that cannot be read.
    pub fn providers(&self) -> Result<Vec<ProviderInfo>> {
        let mut found = Vec::new();
        for drive in self.drives() {
            self.visit(drive.name(), "DISK", None, &mut found);
        }
        for layer in self.layers() {
            let is_host = !self.is_machine();
            if is_host && self.layer(&layer.on).is_none() {
                self.visit(&layer.on, "DISK", None, &mut found);
            }
        }
        Ok(found)
    }

    fn visit(
        &self,
        name: &str,
        class: &'static str,
        below: Option<&str>,
        found: &mut Vec<ProviderInfo>,
    ) {
        if found.iter().any(|info| info.name == name) {
            return;
        }
        let Ok(provider) = self.resolve(name, OpenMode::Inspect, 0) else {
            return;
        };
        found.push(ProviderInfo {
            name: name.to_owned(),
            class,
            below: below.map(str::to_owned),
            mediasize: provider.mediasize(),
            sectorsize: provider.sectorsize(),
            stripesize: provider.stripesize(),
            stripeoffset: provider.stripeoffset(),
        });
        drop(provider);
        if !matches!(class, "PART" | "LABEL")
            && let Ok(places) = self.places(name, 0)
        {
            for place in places.iter() {
                self.visit(&place.name, "PART", Some(name), found);
                if let Some(label) = &place.label
                    && self.is_machine()
                {
                    self.visit(&format!("gpt/{label}"), "LABEL", Some(&place.name), found);
                }
            }
        }
        for layer in self.layers().iter().filter(|layer| layer.on == name) {
            self.visit(&layer.name, layer.kind.class(), Some(name), found);
        }
    }
}

fn one_of(name: &str, found: &[(String, Extent)]) -> Result<Option<(String, Extent)>> {
    match found {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        [one, other, ..] => {
            let text = format!(
                "{name}: the label is used twice, by {} and {}",
                one.1.name, other.1.name
            );
            Err(Error::new(ErrorKind::Exists, text))
        }
    }
}
