//! What the devices of a pool have done since it was imported: what `zpool iostat` shows.
//!
//! # What it is
//! The kernel counts as long as a pool is imported. Here every session opens the pool anew and counts from
//! zero, so what each has counted is added to what is kept below the state folder when the session closes the
//! pool. While it has the pool open, it writes what it has counted so far into a file of its own once a
//! second ([`Publisher`]). A report is the sum of both: it needs neither the pool nor its lock, so it can be
//! had while a session has the pool for itself, and it does not count itself. What this process keeps open is asked
//! itself, instead of its file.
//!
//! # On disk
//! `iostat/POOL/past.json` and, for each session that has the pool open, `iostat/POOL/N.json` with N drawn at
//! random: `{"at": NS, "devices": {"GUID": {"since": NS, "totals": [...], "waiting": [...], "active":
//! [...]}}, "space": {"GUID": [alloc, space, class]}}`, with times in ns since 1970. The space of the pool itself has
//! the key 0. All are replaced by renaming; the first, and the removal of the others, under `iostat/POOL.lock`.
//!
//! # Invariants
//! 1. A command that ended is in one file at most: the session's own is removed under the lock under which
//!    its counts are added to the past.
//! 2. Files of sessions that died are added to the past by the next one that has the pool for itself.
//!
//! # Source
//! OpenZFS module/zfs/vdev.c (`vdev_get_stats_ex`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use admin::pool::{PoolIo, VdevIo, VdevStatus};
use base::{Error, Result, VdevId};
use machine::{FileLock, LockMode, Patience};
use nvpair::NvList;
use phys::pool_names::L2CACHE;
use rt::{Condvar, JoinHandle, Mutex};
use serde_json::{Map, Value, json};
use spa::Spa;
use vdev::{IoCounts, Vdev};
use zio::AllocClass;

use crate::events::keep_events;
use crate::pools::Pools;
use crate::status::{listed_aux, named, vdev_status};

/// How often a session tells what it has counted, in ns: the shortest interval that users ask for.
const PUBLISH_NS: u64 = 1_000_000_000;
/// A file that is older than this, in ns, is not of a session that still runs.
const STALE_NS: u64 = 3 * PUBLISH_NS;
/// How long to wait for another session that is changing the same file, in ns.
const LOCK_WAIT_NS: u64 = 10_000_000_000;
/// The key of the space of the whole pool.
const WHOLE_POOL: u64 = 0;

/// What was counted of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Device {
    /// When counting began.
    since_ns: u64,
    counts: IoCounts,
}

/// What was counted of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counted {
    at_ns: u64,
    /// By guid.
    devices: BTreeMap<u64, Device>,
    /// By guid of the top-level vdev or cache device.
    space: BTreeMap<u64, Space>,
}

/// The space of a top-level vdev, and what it is for: the cachefile's config does not say the latter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Space {
    alloc: u64,
    space: u64,
    class: AllocClass,
}

impl Counted {
    /// What an open pool has counted.
    fn of(spa: &Spa) -> Counted {
        let mut counted = Counted {
            at_ns: wall_ns(),
            ..Counted::default()
        };
        let mut add = |device: &Vdev| {
            let counts = device.io_counts();
            let since_ns = wall_ns().saturating_sub(device.leaf().age_ns());
            let device_counts = Device { since_ns, counts };
            counted.devices.insert(device.guid().0, device_counts);
        };
        let tree = spa.parts().tree();
        tree.devices().iter().for_each(|device| add(device));
        for (cache, used) in spa.caches() {
            add(&cache);
            let size = phys::label::allocatable_size(cache.leaf().psize());
            let space = Space {
                alloc: used,
                space: size,
                ..Space::default()
            };
            counted.space.insert(cache.guid().0, space);
        }
        for (id, top) in (0..).zip(tree.tops()) {
            if let Ok(space) = spa.vdev_space(VdevId(id)) {
                let space = Space {
                    alloc: space.alloc,
                    space: space.space,
                    class: top.config().class(),
                };
                counted.space.insert(top.guid().0, space);
            }
        }
        let whole = spa.space();
        let whole = Space {
            alloc: whole.alloc,
            space: whole.space,
            ..Space::default()
        };
        counted.space.insert(WHOLE_POOL, whole);
        counted
    }

    /// Adds what another session has counted.
    fn add(&mut self, other: Counted) {
        for (guid, device) in other.devices {
            let own = self.devices.entry(guid).or_insert_with(|| Device {
                since_ns: device.since_ns,
                ..Device::default()
            });
            own.since_ns = own.since_ns.min(device.since_ns);
            own.counts += &device.counts;
        }
        if other.at_ns >= self.at_ns {
            self.space = other.space;
            self.at_ns = other.at_ns;
        }
    }

    /// The session's last command has ended.
    fn set_idle(&mut self) {
        for device in self.devices.values_mut() {
            device.counts.waiting = Default::default();
            device.counts.active = Default::default();
        }
    }

    fn read(path: &Path) -> Option<Counted> {
        Some(Counted::parse(&std::fs::read_to_string(path).ok()?))
    }

    fn parse(text: &str) -> Counted {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        let numbers = |value: &Value| -> Vec<u64> {
            let all = value.as_array().into_iter().flatten();
            all.map(|n| n.as_u64().unwrap_or(0)).collect()
        };
        let by_guid = |key: &str| {
            let entries = value[key].as_object().into_iter().flatten();
            entries.filter_map(|(guid, value)| Some((guid.parse::<u64>().ok()?, value)))
        };
        let device = |(guid, value): (u64, &Value)| {
            let mut counts = IoCounts::from_totals(numbers(&value["totals"]));
            let fill = |to: &mut [u64], key: &str| {
                to.iter_mut()
                    .zip(numbers(&value[key]))
                    .for_each(|(to, n)| *to = n);
            };
            fill(&mut counts.waiting, "waiting");
            fill(&mut counts.active, "active");
            let since_ns = value["since"].as_u64().unwrap_or(0);
            (guid, Device { since_ns, counts })
        };
        let space = |(guid, value): (u64, &Value)| {
            let size = |i: usize| value[i].as_u64().unwrap_or(0);
            let class = value[2]
                .as_str()
                .map_or(AllocClass::Normal, AllocClass::from_word);
            let (alloc, space) = (size(0), size(1));
            (
                guid,
                Space {
                    alloc,
                    space,
                    class,
                },
            )
        };
        Counted {
            at_ns: value["at"].as_u64().unwrap_or(0),
            devices: by_guid("devices").map(device).collect(),
            space: by_guid("space").map(space).collect(),
        }
    }

    fn to_json(&self) -> Value {
        let device = |(guid, device): (&u64, &Device)| {
            let counts = &device.counts;
            let value = json!({
                "since": device.since_ns,
                "totals": counts.totals().collect::<Vec<u64>>(),
                "waiting": counts.waiting,
                "active": counts.active,
            });
            (guid.to_string(), value)
        };
        let space = |(guid, of): (&u64, &Space)| {
            (
                guid.to_string(),
                json!([of.alloc, of.space, of.class.word()]),
            )
        };
        let devices: Map<String, Value> = self.devices.iter().map(device).collect();
        let space: Map<String, Value> = self.space.iter().map(space).collect();
        json!({ "at": self.at_ns, "devices": devices, "space": space })
    }

    /// Replaces the file at `path`.
    fn write(&self, path: &Path) -> Result<()> {
        let within = |e: std::io::Error| Error::from(e).within(path.display());
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(within)?;
        }
        let new = path.with_extension("new");
        std::fs::write(&new, self.to_json().to_string()).map_err(within)?;
        std::fs::rename(&new, path).map_err(within)
    }
}

/// Writes what a session has counted, and its events, once a second, until it is closed.
pub(crate) struct Publisher {
    pools: Pools,
    pool: String,
    /// Its file.
    path: PathBuf,
    is_over: Arc<(Mutex<bool>, Condvar)>,
    /// There is none in a simulation: no other process looks at the pool meanwhile.
    thread: Option<JoinHandle<()>>,
}

impl Publisher {
    /// Begins for a pool that was just opened. `is_alone`: no other session has it open.
    pub(crate) fn begin(pools: &Pools, pool: &str, spa: &Arc<Spa>, is_alone: bool) -> Publisher {
        if is_alone {
            // What cannot be kept is told when the session closes the pool.
            let _ = add_dead(pools, pool);
        }
        let path = folder(pools, pool).join(format!("{}.json", rt::random_u64()));
        let is_over = Arc::<(Mutex<bool>, Condvar)>::default();
        let publish = {
            let (spa, path, is_over) = (Arc::clone(spa), path.clone(), Arc::clone(&is_over));
            let pools = pools.clone();
            move || {
                let (lock, woken) = &*is_over;
                let mut over = lock.lock();
                while !*over {
                    woken.wait_timeout_ns(&mut over, PUBLISH_NS);
                    if !*over {
                        // Missing for a moment, as when the disk is full, does no harm.
                        let _ = Counted::of(&spa).write(&path);
                        let _ = keep_events(&pools, &spa);
                    }
                }
            }
        };
        Publisher {
            pools: pools.clone(),
            pool: pool.to_owned(),
            path,
            is_over,
            thread: (!rt::is_simulated()).then(|| rt::spawn("iostat", publish)),
        }
    }

    /// Ends the thread.
    pub(crate) fn stop(&mut self) {
        let (lock, woken) = &*self.is_over;
        *lock.lock() = true;
        woken.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }

    /// Its file.
    fn path(&self) -> &Path {
        &self.path
    }

    /// Adds what the session has counted to the past.
    pub(crate) fn keep(&self, spa: &Spa) -> Result<()> {
        let counted = Counted::of(spa);
        add_to_past(&self.pools, &self.pool, counted, Some(&self.path))
    }
}

/// Begins anew for a pool that was just created or imported, and keeps what that took.
pub(crate) fn begin_past(pools: &Pools, spa: &Spa) -> Result<()> {
    forget_io(pools, &spa.name());
    keep_events(pools, spa)?;
    add_to_past(pools, &spa.name(), Counted::of(spa), None)
}

/// Adds what an open pool has counted, which is then opened again.
pub(crate) fn keep_io(pools: &Pools, spa: &Spa) -> Result<()> {
    add_to_past(pools, &spa.name(), Counted::of(spa), None)
}

/// Discards what is kept of a pool.
pub(crate) fn forget_io(pools: &Pools, pool: &str) {
    let _ = std::fs::remove_dir_all(folder(pools, pool));
}

fn add_to_past(pools: &Pools, pool: &str, mut counted: Counted, own: Option<&Path>) -> Result<()> {
    counted.set_idle();
    let present: Vec<u64> = counted.devices.keys().copied().collect();
    let _lock = lock(pools, pool)?;
    let past = folder(pools, pool).join("past.json");
    let mut all = Counted::read(&past).unwrap_or_default();
    all.add(counted);
    all.devices.retain(|guid, _| present.contains(guid));
    all.write(&past)?;
    if let Some(own) = own {
        let _ = std::fs::remove_file(own);
    }
    Ok(())
}

/// Adds the files of sessions that died to the past.
fn add_dead(pools: &Pools, pool: &str) -> Result<()> {
    let dead = sessions(pools, pool);
    if dead.is_empty() {
        return Ok(());
    }
    let _lock = lock(pools, pool)?;
    let past = folder(pools, pool).join("past.json");
    let mut all = Counted::read(&past).unwrap_or_default();
    for path in &dead {
        if let Some(mut counted) = Counted::read(path) {
            counted.set_idle();
            all.add(counted);
        }
    }
    all.write(&past)?;
    for path in dead {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// The files of sessions that have a pool open, or had it when they died.
fn sessions(pools: &Pools, pool: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder(pools, pool)).into_iter().flatten();
    let paths = entries.flatten().map(|entry| entry.path());
    let is_session = |path: &PathBuf| {
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        path.extension().is_some_and(|e| e == "json") && stem != Some("past")
    };
    paths.filter(is_session).collect()
}

fn folder(pools: &Pools, pool: &str) -> PathBuf {
    pools.state().join("iostat").join(pool)
}

fn lock(pools: &Pools, pool: &str) -> Result<FileLock> {
    let path = pools.state().join("iostat").join(format!("{pool}.lock"));
    let patience = Patience {
        wait_ns: LOCK_WAIT_NS,
        on_wait: &|what| pools.observer().waiting(what),
    };
    FileLock::take(&path, LockMode::Exclusive, "the counters", &patience)
}

fn wall_ns() -> u64 {
    let now = rt::wall_clock();
    now.secs
        .saturating_mul(1_000_000_000)
        .saturating_add(now.nanos.into())
}

impl Pools {
    /// What the devices of an imported pool have done since then, as far as it is known now. Does not open
    /// the pool. `None` if it is not imported.
    ///
    /// # Errors
    /// Errors of reading the cachefile; of locking the counters.
    pub fn io(&self, pool: &str) -> Result<Option<PoolIo>> {
        let Some(config) = self.cachefile().find(pool)? else {
            return Ok(None);
        };
        let mut counted = Counted::default();
        let mut newest = 0;
        // It is not closed meanwhile: its counts would be added to the past.
        let kept = self.keeper.as_ref().and_then(|keeper| keeper.share(pool));
        let own = kept.as_ref().map(|(open, _)| open.publisher().path());
        {
            let _lock = lock(self, pool)?;
            counted.add(Counted::read(&folder(self, pool).join("past.json")).unwrap_or_default());
            let others = sessions(self, pool).into_iter();
            let others = others.filter(|path| Some(path.as_path()) != own);
            let others = others.filter_map(|path| Counted::read(&path));
            let own = kept.as_ref().map(|(open, _)| Counted::of(open.spa()));
            for session in others.chain(own) {
                newest = newest.max(session.at_ns);
                counted.add(session);
            }
        }
        let now = wall_ns();
        // Rates are of the time up to when the counters were read, not up to now.
        let is_live = now.saturating_sub(newest) < STALE_NS;
        let at_ns = if is_live { newest.min(now) } else { now };
        pool_io(pool, &config, &counted, at_ns).map(Some)
    }
}

fn pool_io(pool: &str, config: &NvList, counted: &Counted, at_ns: u64) -> Result<PoolIo> {
    let root = Vdev::from_config(config.expect_list("vdev_tree")?)?;
    let mut status = named(pool, config.get_u64("pool_guid").unwrap_or(0), config);
    status.root = vdev_status(&root, 0, AllocClass::Normal);
    status.cache = listed_aux(config, L2CACHE, &|_, _| None);
    let fill = |vdev: &mut VdevStatus, key: u64| {
        if let Some(of) = counted.space.get(&key) {
            (vdev.alloc_bytes, vdev.space_bytes) = (of.alloc, of.space);
            if of.class != AllocClass::Normal {
                vdev.class = of.class;
            }
        }
    };
    fill(&mut status.root, WHOLE_POOL);
    for vdev in status.root.children.iter_mut().chain(&mut status.cache) {
        let guid = vdev.guid;
        fill(vdev, guid);
    }
    let mut vdevs = BTreeMap::new();
    sum(&status.root, counted, at_ns, &mut vdevs);
    for cache in &status.cache {
        sum(cache, counted, at_ns, &mut vdevs);
    }
    Ok(PoolIo {
        status,
        at_ns,
        vdevs,
    })
}

/// Adds up what was counted of a vdev and of those below it, as OpenZFS does.
#[doc(alias = "vdev_get_stats_ex_impl")]
fn sum(
    vdev: &VdevStatus,
    counted: &Counted,
    at_ns: u64,
    all: &mut BTreeMap<u64, VdevIo>,
) -> VdevIo {
    let mut io = VdevIo::default();
    if let Some(device) = counted.devices.get(&vdev.guid) {
        io.age_ns = at_ns.saturating_sub(device.since_ns);
        io.counts = device.counts.clone();
    }
    for child in &vdev.children {
        let below = sum(child, counted, at_ns, all);
        if child.kind != admin::pool::VdevKind::DraidSpare {
            io.counts += &below.counts;
            io.age_ns = io.age_ns.max(below.age_ns);
        }
    }
    all.insert(vdev.guid, io.clone());
    io
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(alloc: u64, space: u64) -> Space {
        let class = AllocClass::Special;
        Space {
            alloc,
            space,
            class,
        }
    }

    fn counted(at_ns: u64, since_ns: u64, n: u64) -> Counted {
        let counts = IoCounts::from_totals((0..1000).map(|i| i * n));
        Counted {
            at_ns,
            devices: BTreeMap::from([(u64::MAX, Device { since_ns, counts })]),
            space: BTreeMap::from([(7, space(n, 100)), (WHOLE_POOL, space(n, u64::MAX))]),
        }
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let mut one = counted(5, 3, 1);
        let device = one.devices.get_mut(&u64::MAX).unwrap();
        (device.counts.waiting, device.counts.active) =
            ([1, 2, 3, 4, 5, 0, 1], [6, 7, 8, 9, 10, 1, 0]);
        assert_eq!(Counted::parse(&one.to_json().to_string()), one);
        for rubbish in [
            "rubbish",
            "[]",
            r#"{"devices": {"x": 1, "1": 2}, "space": {"2": "y"}}"#,
        ] {
            Counted::parse(rubbish);
        }
    }

    #[test]
    fn counts_of_sessions_add_up_and_the_space_is_the_newest() {
        let mut sum = counted(5, 3, 1);
        sum.add(counted(4, 2, 10));
        assert_eq!(sum.devices, counted(0, 2, 11).devices);
        assert_eq!(sum.space[&7].alloc, 1);
        sum.add(counted(6, 4, 2));
        assert_eq!((sum.space[&7].alloc, sum.at_ns), (2, 6));
    }
}
