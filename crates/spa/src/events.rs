//! Events: what happened to an open pool, for `zpool events`.
//!
//! # What it is
//! The one sink of all parts of the pool. Records of the internal history pass through it ([`Core::log`]), devices keep
//! their errors and changes of state until they are asked ([`vdev::Report`]), damaged blocks are those of the pipeline,
//! and the rest is told by [`Core::notify`]. Events wait in memory until [`Spa::take_events`]; who has the pool open
//! keeps them.
//!
//! # On disk
//! Nothing. An event is an nvlist as OpenZFS's kernel module makes it, its keys in the same order, without the number
//! that it gets where it is kept (`eid`). What is known only deep in OpenZFS's pipeline is left out of the reports of
//! errors: `zio_*` but the place of a damaged block, and times of the queue.
//!
//! # Source
//! OpenZFS `module/zfs/zfs_fm.c`, `module/zfs/fm.c`, `module/zfs/spa_history.c` (`spa_history_log_notify`),
//! `include/sys/fm/fs/zfs.h`, `include/sys/sysevent/eventdefs.h`.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dmu::{FailMode, OnSuspend, SuspendEvent, TxgSettings};
use nvpair::NvList;
use phys::PropValue;
use rt::{Mutex, Timestamp};
use vdev::{Report, Vdev, VdevKind};
use zio::Bookmark;

use crate::core::Core;
use crate::history::key;
use crate::spa::{FAILMODE, Spa};

/// `zfs_zevent_len_max`: more events than this do not wait.
const WAITING_MAX: usize = 512;
/// `SPA_LOAD_CREATE`: the pool is being created.
const CONTEXT_CREATE: i32 = 6;
/// What the classes of reports of errors begin with.
const EREPORT: &str = "ereport.fs.zfs.";
/// The state of a pool that is in use.
const POOL_ACTIVE: u64 = 0;
/// Damaged blocks that were told of, at most: beyond that one may be told of twice.
const TOLD_MAX: usize = 1 << 16;

/// The events of a pool that nobody has taken yet.
#[derive(Default)]
pub(crate) struct Events {
    waiting: Mutex<VecDeque<Waiting>>,
    /// Damaged blocks of which nobody has been told.
    met: Mutex<VecDeque<(Timestamp, Bookmark)>>,
    told: Mutex<BTreeSet<Bookmark>>,
    is_creating: AtomicBool,
}

struct Waiting {
    at: Timestamp,
    class: String,
    is_created: bool,
    /// What belongs to this class.
    payload: NvList,
}

impl Events {
    pub(crate) fn set_creating(&self, is_creating: bool) {
        self.is_creating.store(is_creating, Ordering::Relaxed);
    }

    /// Blocks that earlier sessions have told of.
    pub(crate) fn know<'b>(&self, blocks: impl Iterator<Item = &'b Bookmark>) {
        self.told.lock().extend(blocks);
    }

    /// Tells of those damaged blocks that are new.
    pub(crate) fn meet<'b>(&self, blocks: impl Iterator<Item = &'b Bookmark>) {
        for block in blocks {
            let mut told = self.told.lock();
            if told.len() >= TOLD_MAX {
                told.clear();
            }
            if told.insert(*block) {
                let mut met = self.met.lock();
                if met.len() == WAITING_MAX {
                    met.pop_front();
                }
                met.push_back((rt::wall_clock(), *block));
            }
        }
    }

    fn add(&self, class: &str, payload: NvList) {
        let mut waiting = self.waiting.lock();
        if waiting.len() == WAITING_MAX {
            waiting.pop_front();
        }
        waiting.push_back(Waiting {
            at: rt::wall_clock(),
            class: class.to_owned(),
            is_created: self.is_creating.load(Ordering::Relaxed),
            payload,
        });
    }
}

impl Core {
    /// Tells of a change of the pool, or of one of its vdevs: `sysevent.fs.zfs.NAME`.
    #[doc(alias = "spa_event_notify")]
    pub(crate) fn notify(&self, name: &str, vdev: Option<&Vdev>) {
        let payload = vdev.map_or_else(NvList::new, vdev_facts);
        self.events()
            .add(&format!("sysevent.fs.zfs.{name}"), payload);
    }

    /// The settings of the pool's txgs, with which it is told when the pool is suspended, and its cache how much is
    /// dirty.
    #[doc(alias = "zio_suspend")]
    pub(crate) fn telling(
        self: &Arc<Self>,
        cache: &arc::Cache,
        mut settings: TxgSettings,
    ) -> TxgSettings {
        settings.dirty_bytes = Arc::clone(cache.dirty_bytes());
        let (core, hear) = (Arc::downgrade(self), settings.suspend.on_suspend.take());
        let tell = move |event: &SuspendEvent<'_>| {
            // As in OpenZFS, which stops the host then, there is none in the mode `panic`.
            if let SuspendEvent::Suspended { failmode, .. } = event
                && *failmode != FailMode::Panic
                && let Some(core) = core.upgrade()
            {
                let class = format!("{EREPORT}io_failure");
                core.events().add(&class, NvList::new());
            }
            if let Some(OnSuspend(hear)) = &hear {
                hear(event);
            }
        };
        settings.suspend.on_suspend = Some(OnSuspend(Arc::new(tell)));
        settings
    }

    /// Tells that a resilver begins or ends.
    pub(crate) fn notify_resilver(&self, name: &str) {
        let payload = NvList::new().with("resilver_type", "healing");
        self.events()
            .add(&format!("sysevent.fs.zfs.{name}"), payload);
    }

    /// Tells of a record of the internal history.
    #[doc(alias = "spa_history_log_notify")]
    pub(crate) fn notify_history(&self, record: &NvList) {
        let mut payload = NvList::new();
        let texts = [
            (key::HOST, "history_hostname"),
            (key::DATASET, "history_dsname"),
            (key::INTERNAL_TEXT, "history_internal_str"),
            (key::INTERNAL_NAME, "history_internal_name"),
        ];
        for (from, to) in texts {
            if let Some(text) = record.get_str(from) {
                payload.add(to, text);
            }
        }
        let numbers = [
            (key::DATASET_ID, "history_dsid"),
            (key::TXG, "history_txg"),
            (key::TIME, "history_time"),
        ];
        for (from, to) in numbers {
            if let Some(number) = record.get_u64(from) {
                payload.add(to, number);
            }
        }
        self.events().add("sysevent.fs.zfs.history_event", payload);
    }
}

impl Spa {
    /// Tells of a change that the engine itself does not see: `sysevent.fs.zfs.NAME`.
    pub fn notify(&self, name: &str, vdev: Option<&Vdev>) {
        self.inner.core.notify(name, vdev);
    }

    /// The events since the last call, oldest first.
    #[must_use]
    #[doc(alias = "zfs_zevent_post")]
    pub fn take_events(&self) -> Vec<NvList> {
        let events = self.inner.core.events();
        let mut taken: Vec<(Timestamp, NvList)> = Vec::new();
        let waiting = std::mem::take(&mut *events.waiting.lock());
        for event in waiting {
            let context = if event.is_created { CONTEXT_CREATE } else { 0 };
            if let Some(name) = event.class.strip_prefix(EREPORT) {
                taken.push((event.at, self.error_event(name, None)));
                continue;
            }
            let mut list = NvList::new()
                .with("version", 0u8)
                .with("class", event.class.as_str());
            self.add_pool(&mut list, context);
            list.merge(&event.payload);
            taken.push((event.at, list));
        }
        for device in self.inner.tree.devices() {
            for (at, report) in device.leaf().take_reports() {
                taken.push((at, self.device_event(&device, report)));
            }
        }
        events.meet(self.inner.pipeline.errors().keys());
        let met = std::mem::take(&mut *events.met.lock());
        for (at, block) in met {
            taken.push((at, self.data_event(&block)));
        }
        taken.sort_by_key(|(at, _)| (at.secs, at.nanos));
        let timed = taken.into_iter().map(|(at, list)| {
            let time = [at.secs as i64, i64::from(at.nanos)];
            list.with("time", time.to_vec())
        });
        timed.collect()
    }

    fn add_pool(&self, list: &mut NvList, context: i32) {
        list.add("pool", self.name())
            .add("pool_guid", self.guid().0)
            .add("pool_state", POOL_ACTIVE)
            .add("pool_context", context);
    }

    fn device_event(&self, device: &Arc<Vdev>, report: Report) -> NvList {
        match report {
            Report::State { from, to } => {
                let class = "resource.fs.zfs.statechange";
                let mut list = NvList::new().with("version", 0u8).with("class", class);
                self.add_pool(&mut list, 0);
                list.merge(&vdev_facts(device));
                list.set("vdev_state", to.raw());
                list.with("vdev_laststate", from.raw())
            }
            Report::Checksum => self.error_event("checksum", Some(device)),
            Report::Io { .. } => self.error_event("io", Some(device)),
            Report::Delay(delay) => {
                let mut list = self.error_event("delay", Some(device));
                list.add("zio_err", 0i32)
                    .add("zio_delay", delay.device_ns)
                    .add("zio_timestamp", delay.asked_ns)
                    .add("zio_delta", delay.took_ns)
                    .add("zio_type", delay.kind as u32)
                    .add("zio_offset", delay.offset)
                    .add("zio_size", delay.bytes);
                let (number, secs) = device.leaf().limits().slow;
                for (name, limit) in [("vdev_slow_io_n", number), ("vdev_slow_io_t", secs)] {
                    if let Some(limit) = limit {
                        list.add(name, limit);
                    }
                }
                list
            }
        }
    }

    fn data_event(&self, block: &Bookmark) -> NvList {
        let list = self.error_event("data", None);
        list.with("zio_objset", block.objset.0)
            .with("zio_object", block.object.0)
            .with("zio_level", block.level)
            .with("zio_blkid", block.blkid.0)
    }

    /// `ereport.fs.zfs.NAME`
    #[doc(alias = "zfs_ereport_start")]
    fn error_event(&self, name: &str, device: Option<&Arc<Vdev>>) -> NvList {
        let detector = NvList::new()
            .with("version", 0u8)
            .with("scheme", "zfs")
            .with("pool", self.guid().0)
            .with("vdev", device.map_or(0, |device| device.guid().0));
        let class = format!("{EREPORT}{name}");
        let mut list = NvList::new()
            .with("class", class)
            .with("ena", rt::random_u64())
            .with("detector", detector);
        self.add_pool(&mut list, 0);
        let failmode = match self.inner.props.get(FAILMODE) {
            Some(PropValue::Number(number)) => FailMode::from_raw(number),
            _ => None,
        };
        list.add(
            "pool_failmode",
            match failmode.unwrap_or_default() {
                FailMode::Wait => "wait",
                FailMode::Continue => "continue",
                FailMode::Panic => "panic",
            },
        );
        if let Some(device) = device {
            self.add_device(&mut list, device);
        }
        list
    }

    fn add_device(&self, list: &mut NvList, device: &Arc<Vdev>) {
        let root = self.inner.tree.root();
        let facts = vdev_facts(device);
        list.add("vdev_guid", device.guid().0)
            .add("vdev_type", device.kind().word());
        for name in ["vdev_path", "vdev_devid", "vdev_fru", "vdev_enc_sysfs_path"] {
            if let Some(text) = facts.get_str(name) {
                list.add(name, text);
            }
        }
        if let Ok((_, top)) = self.inner.tree.find_device(device.guid()) {
            list.add("vdev_ashift", u64::from(top.config().ashift));
        }
        let stats = device.stats().snapshot();
        list.add("vdev_read_errors", stats.read_errors)
            .add("vdev_write_errors", stats.write_errors)
            .add("vdev_cksum_errors", stats.checksum_errors)
            .add("vdev_delays", stats.slow_ios)
            .add("dio_verify_errors", 0u64);
        if let Some(parent) = parent_of(&root, device) {
            list.add("parent_guid", parent.guid().0)
                .add("parent_type", parent.kind().word());
        }
        let spares = self.inner.state.lock().spares.devices().to_vec();
        let paths: Vec<String> = spares.iter().map(|spare| spare.name()).collect();
        let guids: Vec<u64> = spares.iter().map(|spare| spare.guid().0).collect();
        list.add("vdev_spare_paths", paths)
            .add("vdev_spare_guids", guids);
    }
}

fn parent_of(vdev: &Arc<Vdev>, device: &Arc<Vdev>) -> Option<Arc<Vdev>> {
    let mut children = vdev.children().iter();
    if children.any(|child| Arc::ptr_eq(child, device)) {
        return Some(Arc::clone(vdev));
    }
    let mut children = vdev.children().iter();
    children.find_map(|child| parent_of(child, device))
}

/// What an event says of a vdev.
#[doc(alias = "zfs_event_create")]
fn vdev_facts(vdev: &Vdev) -> NvList {
    let config = vdev.config();
    let mut list = NvList::new()
        .with("vdev_guid", vdev.guid().0)
        .with("vdev_state", vdev.state().0.raw());
    let texts = [
        ("vdev_path", &config.path),
        ("vdev_devid", &config.devid),
        ("vdev_fru", &config.fru),
        ("vdev_enc_sysfs_path", &config.enc_sysfs_path),
    ];
    let is_device = vdev.kind() != VdevKind::Root;
    for (name, text) in texts {
        if let Some(text) = text.as_deref().filter(|_| is_device) {
            list.add(name, text);
        }
    }
    list
}
