//! Which disks and pools are looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use base::{Error, ErrorKind};
use doctor::{
    Dataset, Disk, Finding, Partitions, Pool, examine_dataset, examine_disk, examine_pool,
};
use machine::World;
use service::{Access, Session};
use spa::{Spa, device_paths};
use vdev::import::FoundPool;

use super::{disks, pools};
use crate::failure::Fail;
use crate::search;
use crate::session::session;
use crate::world;

/// What was looked at, and found.
pub(super) struct Report {
    /// Each thing that was looked at: `disk` or `pool`, its name, and what is to be said of it.
    pub(super) seen: Vec<(&'static str, String, Vec<Finding>)>,
    /// What could not be looked at, and why.
    pub(super) failures: Vec<String>,
}

impl Report {
    pub(super) fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.seen.iter().flat_map(|(_, _, findings)| findings)
    }
}

pub(super) struct Visit {
    world: Arc<World>,
    session: Session,
    /// How many files of each file system are looked at.
    files: u64,
    disks: BTreeMap<String, Disk>,
    pools: Vec<(Pool, BTreeMap<u64, String>, Vec<Dataset>)>,
    /// Guids of the pools that were looked at.
    seen: BTreeSet<u64>,
    failures: Vec<String>,
}

impl Visit {
    pub(super) fn new(files: u64) -> Visit {
        Visit {
            world: world::entered(),
            session: session(Access::Read, ""),
            files,
            disks: BTreeMap::new(),
            pools: Vec::new(),
            seen: BTreeSet::new(),
            failures: Vec::new(),
        }
    }

    /// Looks at all disks, and at all pools that are imported or on them.
    pub(super) fn everything(&mut self) {
        match disks::all(&self.world) {
            Ok(names) => names.iter().for_each(|name| self.disk(name)),
            Err(error) => self.failures.push(error.to_string()),
        }
        match self.session.pools().names() {
            Ok(names) => names.iter().for_each(|name| self.imported(name)),
            Err(error) => self.failures.push(error.to_string()),
        }
        self.on_devices(&[], None);
    }

    /// Looks at what has that name: an imported pool, a device, an image, a folder of images.
    pub(super) fn named(&mut self, name: &str) {
        if self.session.pools().is_imported(name).unwrap_or(false) {
            self.imported(name);
        } else if let Some(disk) = disks::disk_of(&self.world, name) {
            self.disk(&disk);
            self.imported_on(|below| below == disk);
            let places = disks::places(&self.world, &disk);
            self.on_devices(&places, Some(name));
        } else if !self.world.is_machine() && Path::new(name).is_dir() {
            self.folder(name);
        } else {
            self.failures
                .push(format!("{name}: no such pool, device or folder"));
        }
    }

    fn folder(&mut self, name: &str) {
        let folder = std::fs::canonicalize(name).unwrap_or_else(|_| name.into());
        if folder.join(machine::FILE_NAME).exists() {
            self.failures.push(format!(
                "{name}: a machine of emulated drives ('ashift -m {name} doctor')"
            ));
            return;
        }
        let entries = std::fs::read_dir(&folder);
        let entries = entries.into_iter().flatten().flatten();
        let mut images: Vec<_> = entries
            .map(|entry| entry.path())
            .filter(|path| path.is_file())
            .collect();
        images.sort();
        for image in images {
            let image = image.display().to_string();
            // Most files in a folder are not disks; one with a table, or of a pool, is.
            if let Ok(facts) = disks::facts(&self.world, &image)
                && !matches!(facts.partitions, Partitions::None)
            {
                self.disks.insert(image, facts);
            }
        }
        self.imported_on(|below| Path::new(below).parent() == Some(&*folder));
        self.on_devices(&[name.to_owned()], Some(name));
        if self.disks.is_empty() && self.pools.is_empty() {
            self.failures
                .push(format!("{name}: no image of a disk, and no pool"));
        }
    }

    fn disk(&mut self, name: &str) {
        if self.disks.contains_key(name) {
            return;
        }
        match disks::facts(&self.world, name) {
            Ok(facts) => drop(self.disks.insert(name.to_owned(), facts)),
            Err(error) => self.failures.push(failure(name, &error)),
        }
    }

    /// Looks at the imported pools that have a device on such a disk.
    fn imported_on(&mut self, is_meant: impl Fn(&str) -> bool) {
        let configs = self.session.pools().configs().unwrap_or_default();
        for (name, config) in configs {
            let paths = config
                .get_list("vdev_tree")
                .map(device_paths)
                .unwrap_or_default();
            let mut below = paths
                .iter()
                .filter_map(|path| disks::disk_of(&self.world, path));
            if below.any(|disk| is_meant(&disk)) {
                self.imported(&name);
            }
        }
    }

    fn imported(&mut self, name: &str) {
        let opened = self.session.open(name, Access::Read);
        match opened {
            Ok(pool) => match pool.status() {
                Ok(status) => self.pool(pools::facts(status, Ok(&pool)), Some(&pool)),
                Err(error) => self.failures.push(failure(name, &error)),
            },
            Err(error) if error.kind() == ErrorKind::Busy => {
                self.failures.push(failure(name, &error));
            }
            Err(error) => match self.session.status(name) {
                Ok(status) => self.pool(pools::facts(status, Err(error.to_string())), None),
                Err(_) => self.failures.push(failure(name, &error)),
            },
        }
    }

    /// Looks at the pools on these devices, or on all, that are not imported; `place` is what commands are to be told.
    fn on_devices(&mut self, places: &[String], place: Option<&str>) {
        let places: Vec<&str> = places.iter().map(String::as_str).collect();
        let found = search::devices(&self.world, &places)
            .and_then(|providers| Ok(self.session.pools().importable(&providers, false)?));
        match found {
            Ok(found) => found.into_iter().for_each(|found| self.found(found, place)),
            Err(Fail::Failed(text)) => self.failures.push(text),
            Err(_) => {}
        }
    }

    fn found(&mut self, found: FoundPool, place: Option<&str>) {
        let pools = self.session.pools().clone();
        let status = match pools.status_of_found(&found) {
            Ok(status) => status,
            Err(error) => return self.failures.push(failure(&found.name, &error)),
        };
        let opened = pools.inspect_found(found, None);
        let opened = opened.and_then(|spa| Ok((pools.status_of_inspected(&spa)?, spa)));
        let place = place.map(str::to_owned);
        match opened {
            Ok((status, spa)) => {
                let facts = pools::facts(status, Ok(&spa));
                self.pool(
                    Pool {
                        found_in: place,
                        ..facts
                    },
                    Some(&spa),
                );
            }
            Err(error) => {
                let facts = pools::facts(status, Err(error.to_string()));
                self.pool(
                    Pool {
                        found_in: place,
                        ..facts
                    },
                    None,
                );
            }
        }
    }

    fn pool(&mut self, pool: Pool, spa: Option<&Spa>) {
        if !self.seen.insert(pool.status.guid) {
            return;
        }
        let below = pools::disks(&self.world, &pool);
        let names: BTreeSet<String> = below.values().cloned().collect();
        names.iter().for_each(|name| self.disk(name));
        let datasets = spa
            .map(|spa| pools::datasets(spa, self.files))
            .unwrap_or_default();
        self.pools.push((pool, below, datasets));
    }

    /// What was found.
    pub(super) fn end(self) -> Report {
        let mut seen = Vec::new();
        for (name, disk) in &self.disks {
            seen.push(("disk", name.clone(), examine_disk(disk)));
        }
        for (pool, below, datasets) in self.pools {
            let pool = Pool {
                devices: pools::devices(below, &self.disks),
                ..pool
            };
            let mut findings = examine_pool(&pool);
            findings.extend(
                datasets
                    .iter()
                    .flat_map(|dataset| examine_dataset(dataset, &pool)),
            );
            seen.push(("pool", pool.status.name.clone(), findings));
        }
        for (_, _, findings) in &mut seen {
            findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        }
        Report {
            seen,
            failures: self.failures,
        }
    }
}

fn failure(name: &str, error: &Error) -> String {
    let text = error.to_string();
    if text.contains(name) {
        text
    } else {
        format!("{name}: {text}")
    }
}
