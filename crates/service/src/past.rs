//! What is left of the states that a pool was in.
//!
//! # What it is
//! The labels of a pool keep the uberblocks of its last hundred txgs or so, and each of them is a whole pool, as long
//! as nothing that it refers to was overwritten. [`Past::look`] opens such a state, reads all of its metadata, and of
//! its data one block in [`SAMPLED`] or every one, and counts what cannot be read. Nothing of the pool is changed.
//!
//! # On disk
//! Reading may take hours. `rewind/GUID` below the state folder has a line for each state that was looked at: what
//! tells it apart, how it was looked at, and what was found, in JSON. A command that is interrupted has the next one
//! go on there; [`Past::finish`] removes it.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_label.c` (the ring of uberblocks), `module/zfs/spa.c` (`spa_load_verify`).

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use base::{Context, Error, Result, Txg};
use check::{Checksums, Finding, Options, ProgressFn, Severity};
use dmu::Objset;
use geom::Provider;
use machine::Holder;
use phys::UberblockPhys;
use serde_json::{Value, json};
use spa::{ImportOptions, Spa};
use vdev::import::FoundPool;
use zpl::mount::Mount;

use crate::failure::Reason;
use crate::keys;
use crate::pools::Pools;
use crate::rewind::is_obstacle;
use crate::session::{NewName, Session};

/// One block of data in so many is read of a state that is not read in full.
pub const SAMPLED: u32 = 64;

/// A state, by its uberblocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastState {
    /// Its txg.
    pub txg: Txg,
    /// When it was synced, in seconds since 1970.
    pub at_secs: u64,
    /// How many labels have its uberblock.
    pub copies: usize,
    /// What tells it from another state with the same number.
    root: u64,
    /// Its uberblock, if no label has it.
    pub(crate) uberblock: Option<UberblockPhys>,
}

impl PastState {
    /// A state that no label names, found by the root of its MOS.
    pub(crate) fn found(uberblock: UberblockPhys) -> PastState {
        PastState {
            txg: uberblock.txg(),
            at_secs: 0,
            copies: 0,
            root: uberblock.rootbp.cksum_words()[0],
            uberblock: Some(uberblock),
        }
    }

    /// Whether no label names it.
    #[must_use]
    pub fn is_found(&self) -> bool {
        self.uberblock.is_some()
    }

    /// Whether they are the same.
    pub(crate) fn is_same(&self, other: &PastState) -> bool {
        (self.txg, self.root) == (other.txg, other.root)
    }
}

/// How much of a state is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// All metadata, and one block of data in [`SAMPLED`].
    Sampled,
    /// Everything.
    Full,
}

/// What is left of a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// It cannot be opened; why.
    Lost(String),
    /// It can, and was read.
    Read {
        /// Bytes that were read, as stored.
        read_bytes: u64,
        /// Bytes of all its blocks.
        all_bytes: u64,
        /// What is wrong with its metadata: what is below is not reached.
        metadata_errors: u64,
        /// Blocks of data, of those read, that are lost.
        data_errors: u64,
        /// The first of these errors.
        first: Option<String>,
    },
}

impl Condition {
    /// Whether all that was read is right.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        matches!(
            self,
            Condition::Read {
                metadata_errors: 0,
                data_errors: 0,
                ..
            }
        )
    }

    /// Whether its metadata is right, so that the pool can be returned to it.
    #[must_use]
    pub fn can_return(&self) -> bool {
        matches!(
            self,
            Condition::Read {
                metadata_errors: 0,
                ..
            }
        )
    }

    fn to_json(&self) -> Value {
        match self {
            Condition::Lost(why) => json!({ "lost": why }),
            Condition::Read {
                read_bytes,
                all_bytes,
                metadata_errors,
                data_errors,
                first,
            } => json!({
                "read_bytes": read_bytes, "all_bytes": all_bytes, "metadata_errors": metadata_errors,
                "data_errors": data_errors, "first": first,
            }),
        }
    }

    fn parse(value: &Value) -> Option<Condition> {
        if let Some(why) = value["lost"].as_str() {
            return Some(Condition::Lost(why.to_owned()));
        }
        let number = |key: &str| value[key].as_u64();
        Some(Condition::Read {
            read_bytes: number("read_bytes")?,
            all_bytes: number("all_bytes")?,
            metadata_errors: number("metadata_errors")?,
            data_errors: number("data_errors")?,
            first: value["first"].as_str().map(str::to_owned),
        })
    }
}

/// The states of a pool that nobody has open, and will not as long as this is there.
pub struct Past {
    options: Box<dyn Fn() -> Result<ImportOptions>>,
    pub(crate) states: Vec<PastState>,
    /// What was found on its devices, if they were searched.
    pub(crate) found: Option<crate::seeking::Found>,
    /// What was found before an interruption, by what [`key`] says.
    known: BTreeMap<String, Condition>,
    notes: PathBuf,
    _lock: NewName,
}

impl Session {
    /// The past of a pool that is not imported. Devices that are among `strays` are parts of disks without a name; they
    /// are read although these disks may be in use.
    ///
    /// # Errors
    /// `Busy` if it, or a device of it, is in use.
    pub fn past(&self, found: FoundPool, strays: &[Arc<dyn Provider>]) -> Result<Past> {
        let lock = self.lock_new(&found.name).map_err(in_words)?;
        let (name, host) = (found.name.clone(), self.pools.host()?);
        let settings = self.pools.settings(&name);
        let found = self
            .lock_devices(found, &name, true, strays)
            .map_err(in_words)?;
        let (guid, devices) = (found.guid, found.devices.iter());
        let providers: Vec<_> = devices.map(|d| Arc::clone(&d.provider)).collect();
        let options = move || {
            let mut pools = vdev::import::discover(&providers).pools.into_iter();
            let found = pools.find(|pool| pool.guid == guid);
            Ok(ImportOptions {
                found: found.ok_or_else(|| Error::not_found("its labels changed meanwhile"))?,
                new_name: None,
                readonly: true,
                max_txg: None,
                force: true,
                gives_up_logs: true,
                tolerates_missing: false,
                rewinds: false,
                host: host.clone(),
                settings: settings.clone(),
            })
        };
        self.past_of(Box::new(options), lock)
    }

    /// The past of an imported pool that nothing has open.
    ///
    /// # Errors
    /// As [`past`](Session::past); `NotFound` if it is not imported.
    pub fn past_of_imported(&self, pool: &str) -> Result<Past> {
        let config = self.pools.imported(pool)?;
        let lock = self.lock_new(pool).map_err(in_words)?;
        let (world, holder) = (
            Arc::clone(self.pools.world()),
            Holder::Pool(pool.to_owned()),
        );
        let (host, settings) = (self.pools.host()?, self.pools.settings(pool));
        let options = move || {
            let names = world.names_for(holder.clone());
            let (host, settings) = (host.clone(), settings.clone());
            let options = ImportOptions::from_config_in(&names, &config, true, host, settings)?;
            Ok(ImportOptions {
                gives_up_logs: true,
                tolerates_missing: false,
                force: true,
                ..options
            })
        };
        self.past_of(Box::new(options), lock)
    }

    fn past_of(
        &self,
        options: Box<dyn Fn() -> Result<ImportOptions>>,
        lock: NewName,
    ) -> Result<Past> {
        let found = options()?.found;
        let states = states_of(&found);
        let notes = self
            .pools
            .state()
            .join("rewind")
            .join(found.guid.to_string());
        Ok(Past {
            options,
            states,
            found: None,
            known: read_notes(&notes),
            notes,
            _lock: lock,
        })
    }
}

fn in_words(reason: Reason) -> Error {
    match reason {
        Reason::Error(error) | Reason::InUse(error) => error,
        Reason::NameTaken => Error::new(
            base::ErrorKind::Busy,
            "it is open, or another pool of its name is imported",
        ),
        _ => Error::not_found("its labels changed meanwhile"),
    }
}

impl Past {
    /// What is opened, and how.
    pub(crate) fn options(&self) -> Result<ImportOptions> {
        (self.options)()
    }

    /// The states, newest first; there may be none.
    #[must_use]
    pub fn states(&self) -> &[PastState] {
        &self.states
    }

    /// What a look at a state that was interrupted later has found, if there was one.
    #[must_use]
    pub fn known(&self, state: &PastState, depth: Depth) -> Option<&Condition> {
        self.known.get(&key(state, depth))
    }

    /// Reads a state.
    ///
    /// # Errors
    /// What prevents opening any state (`Unsupported`, `Busy`, `Permission`); errors of writing to the state folder.
    pub fn look(
        &mut self,
        state: &PastState,
        depth: Depth,
        progress: Arc<ProgressFn>,
    ) -> Result<Condition> {
        let condition = match self.read(state, depth, progress) {
            Err(error) if is_obstacle(&error) => return Err(error),
            Err(error) => Condition::Lost(error.to_string()),
            Ok(condition) => condition,
        };
        let line = json!([key(state, depth), condition.to_json()]);
        let name = || self.notes.display().to_string();
        let folder = self.notes.parent().expect("it is in a folder");
        std::fs::create_dir_all(folder)
            .map_err(Error::from)
            .within(name)?;
        let mut file = std::fs::File::options();
        let file = file.create(true).append(true).open(&self.notes);
        let written = file.and_then(|mut file| writeln!(file, "{line}"));
        written.map_err(Error::from).within(name)?;
        Ok(condition)
    }

    /// All that was asked for was looked at: nothing is to be kept for the next time.
    pub fn finish(self) {
        // Another run would only look less than it could.
        let _ = std::fs::remove_file(&self.notes);
    }

    /// Opens a state to save what is left of it, although whole top-level vdevs may be missing.
    ///
    /// # Errors
    /// Errors of opening it.
    pub fn open(&self, state: &PastState) -> Result<Remains> {
        let mut options = self.options()?;
        options.found.root = state.uberblock;
        let spa = Spa::open(ImportOptions {
            max_txg: Some(state.txg),
            tolerates_missing: true,
            ..options
        })?;
        let remains = Remains(spa);
        remains.0.parts().dsl().dataset(&remains.0.name())?;
        Ok(remains)
    }

    fn read(
        &self,
        state: &PastState,
        depth: Depth,
        progress: Arc<ProgressFn>,
    ) -> Result<Condition> {
        let spa = Spa::open(ImportOptions {
            max_txg: Some(state.txg),
            ..self.options()?
        })?;
        let report = check::verify(
            &check::Pool::of(&spa),
            &Options {
                checksums: Checksums::All,
                every_copy: false,
                sample: (depth == Depth::Sampled).then_some(SAMPLED),
                progress: Some(progress),
                ..Options::default()
            },
        )?;
        let is_fatal = |finding: &&Finding| finding.severity() == Severity::Fatal;
        let mut fatal = report.findings.iter().filter(is_fatal).peekable();
        let first = fatal.peek().map(ToString::to_string);
        let (data, metadata): (Vec<_>, Vec<_>) = fatal.partition(|finding| finding.is_of_data());
        Ok(Condition::Read {
            read_bytes: report.progress.verified_bytes,
            all_bytes: report.stats.total().psize,
            metadata_errors: metadata.len() as u64,
            data_errors: data.len() as u64,
            first,
        })
    }
}

/// A state that is open to be read, as far as that can be.
pub struct Remains(Spa);

impl Remains {
    /// All file systems and volumes, parents first, and below which ones others cannot be listed.
    #[must_use]
    pub fn datasets(&self) -> (Vec<String>, Vec<(String, Error)>) {
        let dsl = self.0.parts().dsl();
        let (mut waiting, mut lost) = (vec![self.0.name()], Vec::new());
        let mut names = Vec::new();
        while let Some(name) = waiting.pop() {
            match dsl.children(&name) {
                Ok(children) => waiting.extend(children.into_iter().rev()),
                Err(error) => lost.push((name.clone(), error)),
            }
            names.push(name);
        }
        (names, lost)
    }

    /// The snapshots of a file system, oldest first.
    ///
    /// # Errors
    /// Errors of reading their list.
    pub fn snapshots(&self, name: &str) -> Result<Vec<String>> {
        let dsl = self.0.parts().dsl();
        let snapshots = dsl.snapshots(&dsl.dataset(name)?)?.into_iter();
        Ok(snapshots.map(|(of, _)| format!("{name}@{of}")).collect())
    }

    /// Opens a file system or snapshot; what its intent log has is not in it.
    ///
    /// # Errors
    /// As [`zpl::mount::mount`].
    pub fn mount(&self, name: &str) -> Result<Mount> {
        zpl::mount::mount(self.0.parts().dsl(), name, true)
    }

    /// The objects of a data set or snapshot.
    ///
    /// # Errors
    /// `NoKey`; errors of reading it.
    pub fn objset(&self, name: &str) -> Result<Arc<Objset>> {
        let dsl = self.0.parts().dsl();
        let dataset = dsl.dataset(name)?;
        dsl.check_key(&dataset)?;
        dataset.objset()
    }

    /// The encryption root whose key has to be loaded before the contents of a data set can be read.
    ///
    /// # Errors
    /// Errors of reading how it is encrypted.
    pub fn locked_root(&self, name: &str) -> Result<Option<String>> {
        let dsl = self.0.parts().dsl();
        let encryption = dsl.encryption(&dsl.dataset(name)?.dir())?;
        let locked = encryption.filter(|it| !it.is_available);
        locked.map(|it| dsl.encryption_root(&it)).transpose()
    }

    /// Loads the key of an encryption root, from where `keylocation` says if not from `location`.
    ///
    /// # Errors
    /// Those of the source; `Permission` when it is another key.
    pub fn unlock(&self, pools: &Pools, root: &str, location: Option<&str>) -> Result<()> {
        let dsl = self.0.parts().dsl();
        let encryption = dsl.encryption(&dsl.dir(root)?)?;
        let encryption = encryption.ok_or_else(|| Error::invalid("it is not encrypted"))?;
        let set = match location {
            Some(location) => location.to_owned(),
            None => keys::location_of(dsl, root)?,
        };
        let key = keys::ask(pools.key_source(), root, &encryption, &set)?;
        dsl.load_key(root, key, false)
    }

    /// The top-level vdevs that cannot be read.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let tops = self.0.parts().tree().tops();
        let is_gone = |top: &&Arc<vdev::Vdev>| !top.state().0.is_usable();
        tops.iter().filter(is_gone).map(|top| top.name()).collect()
    }
}

/// Tells a state, and how it was looked at, from all others of the pool.
fn key(state: &PastState, depth: Depth) -> String {
    let PastState {
        txg, at_secs, root, ..
    } = state;
    format!("{txg}-{at_secs}-{root:x}-{depth:?}")
}

fn read_notes(path: &std::path::Path) -> BTreeMap<String, Condition> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // A line that was cut off is looked at again.
    let parse = |line: &str| {
        let value: Value = serde_json::from_str(line).ok()?;
        Some((value[0].as_str()?.to_owned(), Condition::parse(&value[1])?))
    };
    text.lines().filter_map(parse).collect()
}

/// The states whose uberblocks are on the devices, newest first.
pub(crate) fn states_of(found: &FoundPool) -> Vec<PastState> {
    let mut states: BTreeMap<Txg, PastState> = BTreeMap::new();
    for uberblock in found.devices.iter().flat_map(|d| d.labels.uberblocks()) {
        let (txg, at_secs) = (uberblock.txg(), uberblock.timestamp.get());
        let state = states.entry(txg).or_insert(PastState {
            txg,
            at_secs,
            copies: 0,
            root: 0,
            uberblock: None,
        });
        state.copies += 1;
        if at_secs >= state.at_secs {
            state.at_secs = at_secs;
            state.root = uberblock.rootbp.cksum_words()[0];
        }
    }
    states.into_values().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_look_is_remembered() {
        let folder = std::env::temp_dir().join(format!("ashift-past-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let found = [
            Condition::Lost("checksum".to_owned()),
            Condition::Read {
                read_bytes: 1,
                all_bytes: 2,
                metadata_errors: 3,
                data_errors: 4,
                first: Some("unreadable".to_owned()),
            },
        ];
        let lines = found.iter().enumerate();
        let mut text: String = lines
            .map(|(i, found)| format!("{}\n", json!([i.to_string(), found.to_json()])))
            .collect();
        text.push_str("[\"2\",{\"lo");
        std::fs::write(folder.join("notes"), text).unwrap();
        let known = read_notes(&folder.join("notes"));
        assert_eq!(known.into_values().collect::<Vec<_>>(), found);
        assert!(read_notes(&folder.join("none")).is_empty());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
