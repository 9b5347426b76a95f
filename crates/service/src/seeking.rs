//! Searching the disks of a pool for states that no label names.
//!
//! # What it is
//! [`Past::seek`] reads all devices of a pool for roots of objsets ([`spa::Seek`]). Those of the MOS become states like
//! those of uberblocks. Those of file systems and volumes are for a pool whose MOS is lost: [`Past::adrift`] opens the
//! newest of each.
//!
//! # On disk
//! Reading may take hours. A journal, a file that the caller names, says how far each device was read and what was
//! sighted there, a line for each, separated by tabs; the same search goes on there.
//! ```text
//! pool    GUID  VERSION
//! block   VDEV  OFFSET  objset|dnodes|pointers  PSIZE  lz4|lzjb|plain
//! device  GUID  BYTES
//! ```
//!
//! A journal of a version that did not look for everything is begun anew.
//!
//! # Invariants
//! A `device` line is written after those of all blocks before that point.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use base::{Context, Error, Guid, ObjectId, Result, Txg, VdevId};
use dmu::{Dnode, Likeness, Objset, Sketch};
use phys::znode::ZVOL_ZAP_OBJ;
use phys::{CompressType, ObjsetType};
use rt::{Condvar, Mutex};
use spa::{FileIdentity, FoundFile, FoundObjset, Seek, Sighted};
use vdev::survey::Ground;
use zpl::mount::Mount;

use crate::past::{Past, PastState};

/// How often the caller is called while the devices are read, at least, in ns.
const SEE_EVERY_NS: u64 = 200_000_000;
/// Grows when more is looked for than before.
const JOURNAL_VERSION: u32 = 3;
/// Bytes of a device after which the journal says how far it was read, if nothing was sighted.
const NOTE_BYTES: u64 = 256 << 20;

/// What was found on the devices of a pool.
pub(crate) struct Found {
    seek: Seek,
    sighted: BTreeSet<Sighted>,
    objsets: Vec<FoundObjset>,
}

/// How far a search is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Searched {
    /// Bytes of the devices.
    Bytes(u64),
    /// What was sighted is looked at: so many of so many places.
    Places(u64, u64),
}

/// A file system or volume that no data set leads to.
pub struct Adrift {
    /// When it was written.
    pub txg: Txg,
    /// Its objects.
    pub objset: Arc<Objset>,
    /// Its files, of a file system.
    pub mount: Option<Arc<Mount>>,
}

/// What of a file system or volume stays the same in all its states.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lineage {
    /// When its root directory was made: a time, and a txg.
    Root((i64, u32), u64),
    /// The pointer to what has the size of a volume.
    Volume(Vec<[u64; 2]>),
}

impl Lineage {
    /// That of a file system.
    ///
    /// # Errors
    /// Those of reading its root directory.
    pub fn of_mount(mount: &Mount) -> Result<Lineage> {
        let root = mount.getattr(mount.root())?;
        let time = (root.crtime.secs, root.crtime.nanos);
        Ok(Lineage::Root(time, root.generation))
    }

    /// That of a volume.
    ///
    /// # Errors
    /// Those of reading its objects.
    pub fn of_volume(objset: &Arc<Objset>) -> Result<Lineage> {
        let size = objset.hold(ObjectId(ZVOL_ZAP_OBJ))?;
        let bp = size.block_pointer(0, base::BlkId(0))?;
        let dvas = bp.dvas().map(|dva| dva.words());
        Ok(Lineage::Volume(
            dvas.chain([[bp.birth().0, bp.fill()]]).collect(),
        ))
    }
}

impl Past {
    /// How many bytes there are to read in a search.
    ///
    /// # Errors
    /// Those of putting the devices together.
    pub fn bytes_to_seek(&self) -> Result<u64> {
        let seek = Seek::new(&self.options()?.found)?;
        Ok(seek.grounds().iter().map(Ground::bytes).sum())
    }

    /// Searches the devices, and adds the states that are found to the others. `journal` is gone on with.
    ///
    /// # Errors
    /// Those of putting the devices together, and of writing the journal.
    pub fn seek(&mut self, journal: &Path, see: &mut dyn FnMut(Searched)) -> Result<()> {
        let found = self.options()?.found;
        let seek = Seek::new(&found)?;
        let sighted = survey(seek.grounds(), Journal::begin(journal, found.guid)?, see)
            .within(|| journal.display().to_string())?;
        let (all, mut looked) = (sighted.len() as u64, 0);
        let objsets = seek.objsets(&sighted, &mut || {
            looked += 1;
            see(Searched::Places(looked, all));
        });
        let roots = objsets
            .iter()
            .filter(|it| it.type_ == ObjsetType::Meta && it.has_root());
        for state in roots.map(|it| PastState::found(it.uberblock())) {
            if !self.states.iter().any(|have| have.is_same(&state)) {
                self.states.push(state);
            }
        }
        // What a label names comes before what was found of the same txg.
        self.states
            .sort_by_key(|state| (std::cmp::Reverse(state.txg), state.is_found()));
        self.found = Some(Found {
            seek,
            sighted,
            objsets,
        });
        Ok(())
    }

    /// The newest states that can be read of the file systems and volumes that were found, but for those of these
    /// lineages.
    #[must_use]
    pub fn adrift(&self, known: &BTreeSet<Lineage>) -> Vec<Adrift> {
        let mut newest: BTreeMap<Lineage, Adrift> = BTreeMap::new();
        let Some(found) = &self.found else {
            return Vec::new();
        };
        for objset in &found.objsets {
            let Ok((lineage, adrift)) = found.open(objset) else {
                continue;
            };
            if !known.contains(&lineage) {
                newest.entry(lineage).or_insert(adrift);
            }
        }
        let mut all: Vec<Adrift> = newest.into_values().collect();
        all.sort_by_key(|adrift| std::cmp::Reverse(adrift.txg));
        all
    }
}

impl Past {
    /// The files that were found by their dnodes alone, but for these. `see` is called for each place that is looked
    /// at, with their number.
    #[must_use]
    pub fn orphans(
        &self,
        known: &BTreeSet<FileIdentity>,
        see: &mut dyn FnMut(u64),
    ) -> Vec<FoundFile> {
        let Some(found) = &self.found else {
            return Vec::new();
        };
        let all = found.sighted.len() as u64;
        found.seek.files(&found.sighted, known, &mut || see(all))
    }

    /// The contents of such a file.
    ///
    /// # Errors
    /// Those of reading its dnode.
    pub fn open_orphan(&self, file: &FoundFile) -> Result<Arc<Dnode>> {
        let found = self.found.as_ref();
        let found = found.ok_or_else(|| Error::not_found("nothing was searched"))?;
        found.seek.open_file(file)
    }
}

impl Found {
    fn open(&self, found: &FoundObjset) -> Result<(Lineage, Adrift)> {
        let (lineage, objset, mount) = match found.type_ {
            ObjsetType::Zfs => {
                let objset = self.seek.open(found)?;
                let mount = Arc::new(Mount::adrift(Arc::clone(&objset))?);
                (Lineage::of_mount(&mount)?, objset, Some(mount))
            }
            ObjsetType::Zvol => {
                let objset = self.seek.open(found)?;
                (Lineage::of_volume(&objset)?, objset, None)
            }
            _ => return Err(Error::invalid("neither a file system nor a volume")),
        };
        let txg = found.txg;
        Ok((lineage, Adrift { txg, objset, mount }))
    }
}

/// What the threads that read devices and the caller share.
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    journal: Journal,
    bytes: u64,
    running: usize,
    is_over: bool,
    error: Option<Error>,
}

/// Ends the threads when the caller is gone.
struct Stop(Arc<Shared>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.state.lock().is_over = true;
    }
}

/// A thread that reads a device.
struct Running<'a>(&'a Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state.lock().running -= 1;
        self.0.changed.notify_all();
    }
}

/// Reads all devices, each in a thread of its own.
fn survey(
    grounds: Vec<Ground>,
    journal: Journal,
    see: &mut dyn FnMut(Searched),
) -> Result<BTreeSet<Sighted>> {
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            bytes: 0,
            running: grounds.len(),
            is_over: false,
            error: None,
            journal,
        }),
        changed: Condvar::new(),
    });
    let _stop = Stop(Arc::clone(&shared));
    let threads = grounds.into_iter().map(|ground| {
        let shared = Arc::clone(&shared);
        rt::spawn("survey", move || {
            let _running = Running(&shared);
            survey_one(&ground, &shared);
        })
    });
    let threads: Vec<_> = threads.collect();
    loop {
        let mut state = shared.state.lock();
        shared.changed.wait_timeout_ns(&mut state, SEE_EVERY_NS);
        let (bytes, is_done) = (state.bytes, state.running == 0);
        drop(state);
        see(Searched::Bytes(bytes));
        if is_done {
            break;
        }
    }
    threads.into_iter().for_each(|thread| thread.join());
    let mut state = shared.state.lock();
    match state.error.take() {
        Some(error) => Err(error),
        None => Ok(std::mem::take(&mut state.journal.sighted)),
    }
}

fn survey_one(ground: &Ground, shared: &Shared) {
    let guid = ground.device().guid();
    let from = {
        let mut state = shared.state.lock();
        let from = state.journal.read.get(&guid).copied().unwrap_or(0);
        state.bytes += from;
        from
    };
    if from >= ground.bytes() {
        return;
    }
    let (mut before, mut noted) = (from, from);
    ground.survey(from, &dmu::sketch, &mut |bytes, sighted| {
        let mut state = shared.state.lock();
        state.bytes += bytes - before;
        before = bytes;
        let is_due = bytes - noted >= NOTE_BYTES || bytes == ground.bytes();
        if !sighted.is_empty() || is_due {
            noted = bytes;
            if let Err(error) = state.journal.note(guid, bytes, sighted) {
                state.error.get_or_insert(error);
                state.is_over = true;
            }
        }
        match state.is_over {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
}

/// What was read so far, and sighted.
struct Journal {
    file: File,
    read: BTreeMap<Guid, u64>,
    sighted: BTreeSet<Sighted>,
}

impl Journal {
    /// Goes on with a journal, unless it is of another pool, or begins one.
    fn begin(path: &Path, pool: Guid) -> Result<Journal> {
        let name = || path.display().to_string();
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            other => other,
        };
        let text = text.map_err(Error::from).within(name)?;
        let title = format!("pool\t{pool}\t{JOURNAL_VERSION}\n");
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let kept = if text.starts_with(&title) { whole } else { 0 };
        let file = File::options().create(true).append(true).open(path);
        let file = file.map_err(Error::from).within(name)?;
        file.set_len(kept as u64)
            .map_err(Error::from)
            .within(name)?;
        let mut journal = Journal {
            file,
            read: BTreeMap::new(),
            sighted: BTreeSet::new(),
        };
        if kept == 0 {
            let written = journal.file.write_all(title.as_bytes());
            written.map_err(Error::from).within(name)?;
        }
        // What does not make sense is not what was written here: its device is read again.
        let lines = text[..kept].lines();
        lines.for_each(|line| journal.take(line).unwrap_or_default());
        Ok(journal)
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields[..] {
            ["device", guid, bytes] => {
                self.read
                    .insert(Guid(guid.parse().ok()?), bytes.parse().ok()?);
            }
            ["block", vdev, offset, likeness, psize, compress] => {
                let likeness = match likeness {
                    "objset" => Likeness::Objset,
                    "dnodes" => Likeness::Dnodes,
                    "pointers" => Likeness::Pointers,
                    _ => return None,
                };
                let compress = match compress {
                    "lz4" => CompressType::Lz4,
                    "lzjb" => CompressType::Lzjb,
                    "plain" => CompressType::Off,
                    _ => return None,
                };
                let what = Sketch::new(likeness, psize.parse().ok()?, compress)?;
                self.sighted.insert(Sighted {
                    vdev: VdevId(vdev.parse().ok()?),
                    offset: offset.parse().ok()?,
                    what,
                });
            }
            _ => {}
        }
        Some(())
    }

    fn note(&mut self, device: Guid, bytes: u64, sighted: Vec<Sighted>) -> Result<()> {
        let mut text = String::new();
        for it in sighted {
            if self.sighted.insert(it) {
                text.push_str(&line_of(&it));
            }
        }
        text.push_str(&format!("device\t{device}\t{bytes}\n"));
        Ok(self.file.write_all(text.as_bytes())?)
    }
}

fn line_of(sighted: &Sighted) -> String {
    let Sighted { vdev, offset, what } = sighted;
    let likeness = match what.likeness {
        Likeness::Objset => "objset",
        Likeness::Dnodes => "dnodes",
        Likeness::Pointers => "pointers",
    };
    let compress = match what.compress {
        CompressType::Lz4 => "lz4",
        CompressType::Lzjb => "lzjb",
        _ => "plain",
    };
    format!(
        "block\t{vdev}\t{offset}\t{likeness}\t{}\t{compress}\n",
        what.psize
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_of_a_search_is_gone_on_with() {
        let path = std::env::temp_dir().join(format!("ashift-seek-{}", std::process::id()));
        let sighted = |offset, likeness, compress| Sighted {
            vdev: VdevId(2),
            offset,
            what: Sketch::new(likeness, 1536, compress).unwrap(),
        };
        let both = vec![
            sighted(4096, Likeness::Objset, CompressType::Off),
            sighted(1 << 30, Likeness::Pointers, CompressType::Lzjb),
            sighted(1 << 40, Likeness::Dnodes, CompressType::Lz4),
        ];
        let mut journal = Journal::begin(&path, Guid(7)).unwrap();
        journal.note(Guid(u64::MAX), 123, both.clone()).unwrap();
        journal.note(Guid(u64::MAX), 456, both.clone()).unwrap();
        drop(journal);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}device\t9\t1")).unwrap();
        let journal = Journal::begin(&path, Guid(7)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        assert_eq!(journal.read, BTreeMap::from([(Guid(u64::MAX), 456)]));
        assert_eq!(journal.sighted.into_iter().collect::<Vec<_>>(), both);
        let other = Journal::begin(&path, Guid(8)).unwrap();
        assert!(other.read.is_empty() && other.sighted.is_empty());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "pool\t8\t3\n");
        std::fs::remove_file(&path).unwrap();
    }
}
