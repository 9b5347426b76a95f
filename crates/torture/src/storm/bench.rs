//! One pool of a run: its devices, what it must hold, and which part of that is known to be on disk.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{ErrorKind, Result};
use phys::feature;
use spa::{ScanSettings, Settings, Spa};
use zpl::NewFilesystem;
use zpl::mount::init;

use super::disks::Disks;
use super::past::Past;
use super::script::{Mistake, PoolSpec};
use crate::filesystems::{Filesystems, Session};
use crate::pool;

/// Bytes of the ARC: less than what is read, so that reads reach the devices.
const ARC_BYTES: u64 = 4 << 20;
/// The most blocks that a scan visits in a txg: few, so that it lasts while other things happen.
const SCAN_BLOCKS_MAX: u64 = 60;
/// The most bytes that are moved at once when a RAID-Z is expanded or a device rebuilt, for the same reason.
const MOVED_BYTES_MAX: u64 = 2 << 20;
/// The most segments of a discarded checkpoint that a txg frees.
const DISCARDED_MAX: u64 = 1000;
/// Bounds on what is kept for power cuts: acknowledged commands, and states of the model.
const COMMANDS_MAX: u64 = 6000;
const STATES_MAX: usize = 1500;

/// A pool and its model.
pub(super) struct Bench {
    pub(super) name: String,
    pub(super) spec: PoolSpec,
    pub(super) mistake: Option<Mistake>,
    pub(super) disks: Disks,
    /// `None` only while the pool is closed within a step.
    session: Option<Session>,
    pub(super) world: Filesystems,
    pub(super) past: Past,
    /// The device that is ailing, by its name.
    pub(super) ailing: Option<String>,
}

impl Drop for Bench {
    /// After a failure no thread may wait for devices that will not come back.
    fn drop(&mut self) {
        let Some(session) = &self.session else { return };
        if std::thread::panicking() {
            self.disks.all().iter().for_each(|disk| disk.fault.revive());
            session.spa.parts().groups().abandon();
        }
    }
}

impl Bench {
    /// Makes the pool.
    ///
    /// # Panics
    /// When that fails.
    pub(super) fn new(number: usize, spec: PoolSpec, mistake: Option<Mistake>) -> Bench {
        let name = format!("storm{number}");
        let disks = Disks::new(&name, spec, mistake);
        let root = init(NewFilesystem::default(), true);
        let ashift = spec.ashift as u32;
        let is_there =
            |feature: &&feature::Feature| spec.classic == 0 || feature.guid != feature::FAST_DEDUP;
        let release = match oracle::have_zdb_2_4() {
            true => feature::Release::V2_4,
            false => feature::Release::V2_3,
        };
        let features = feature::kept_of(release).filter(is_there).collect();
        let made = pool::create_of(
            &name,
            spec.layout,
            ashift,
            &disks.providers(),
            root,
            settings(),
            features,
        );
        let spa = made.unwrap_or_else(|e| panic!("{name} cannot be created: {e}"));
        let world = Filesystems::default();
        let past = Past::new(disks.commands(), &world);
        let mut bench = Bench {
            name,
            spec,
            mistake,
            disks,
            session: Some(Session::new(spa)),
            world,
            past,
            ailing: None,
        };
        bench.watch_spares();
        bench.forget();
        bench
    }

    pub(super) fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("the pool is open")
    }

    pub(super) fn spa(&self) -> &Arc<Spa> {
        &self.session.as_ref().expect("the pool is open").spa
    }

    /// The model and the session: both sides of an operation.
    pub(super) fn both(&mut self) -> (&mut Filesystems, &mut Session) {
        let session = self.session.as_mut().expect("the pool is open");
        (&mut self.world, session)
    }

    /// Drops the pool as if its process had been killed.
    pub(super) fn abandon(&mut self) {
        if let Some(session) = self.session.take() {
            session.spa.parts().groups().abandon();
        }
        self.world.forget_holds();
    }

    /// Opens the pool.
    ///
    /// # Panics
    /// When that fails.
    pub(super) fn open(&mut self) {
        assert!(self.session.is_none(), "it is open");
        let opened = pool::open_with(&self.disks.providers(), false, settings());
        self.go_on_with(opened);
    }

    /// Opens the pool as its checkpoint keeps it.
    ///
    /// # Panics
    /// When that fails.
    pub(super) fn open_rewound(&mut self) {
        let opened = pool::rewind_with(&self.disks.providers(), false, settings());
        self.go_on_with(opened);
    }

    fn go_on_with(&mut self, opened: Result<Spa>) {
        let spa = opened.unwrap_or_else(|e| panic!("{} cannot be imported: {e}", self.name));
        self.session = Some(Session::new(spa));
        self.watch_spares();
    }

    /// Unmounts everything and exports the pool.
    ///
    /// # Panics
    /// When that fails.
    pub(super) fn export(&mut self) {
        self.log_all();
        self.world.forget_holds();
        let mut session = self.session.take().expect("the pool is open");
        session.unmount_all();
        let exported = session.spa.export();
        exported.unwrap_or_else(|e| panic!("{} cannot be exported: {e}", self.name));
        self.past.all_is_known(self.disks.commands());
    }

    /// The names of the devices that the pool has.
    pub(super) fn members(&self) -> BTreeSet<String> {
        let spa = self.spa();
        let spares = spa.spares().into_iter().map(|(spare, _)| spare);
        let caches = spa.caches().into_iter().map(|(cache, _)| cache);
        let devices = spa.parts().tree().devices().into_iter();
        let all = devices.chain(spares).chain(caches);
        all.map(|vdev| vdev.name()).collect()
    }

    /// Whether a change of the pool's devices worked; it may fail for one of these reasons.
    ///
    /// # Panics
    /// When it fails for another one.
    pub(super) fn has_worked(
        &self,
        what: &str,
        outcome: Result<()>,
        reasons: &[ErrorKind],
    ) -> bool {
        match outcome {
            Ok(()) => true,
            Err(e) if reasons.contains(&e.kind()) => false,
            Err(e) => panic!("{}: {what}: {:?}: {e}", self.name, e.kind()),
        }
    }

    /// Waits until everything is on disk.
    ///
    /// # Panics
    /// When that fails.
    pub(super) fn sync(&mut self) {
        let synced = self.spa().sync();
        synced.unwrap_or_else(|e| panic!("{} does not sync: {e}", self.name));
        self.past.all_is_known(self.disks.commands());
    }

    /// Records the state after an operation that began when `begun` commands had been acknowledged.
    pub(super) fn note(&mut self, begun: u64) {
        let txg = self.spa().parts().groups().open_txg();
        self.past.push(begun, txg, self.world.clone());
    }

    /// An administrative operation, which is on disk once it returns. Returns whether it was done: there may be
    /// no space for it.
    ///
    /// # Panics
    /// When it fails for another reason.
    pub(super) fn administer(
        &mut self,
        what: &str,
        change: impl FnOnce(&mut Filesystems, &mut Session) -> Result<()>,
    ) -> bool {
        let begun = self.disks.commands();
        let open_before = self.spa().parts().groups().open_txg();
        let (world, session) = self.both();
        let is_done = match change(world, session) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::NoSpace => false,
            Err(error) => panic!("{}: {what}: {error}", self.name),
        };
        self.note(begun);
        // Unless there was nothing to do, it has waited for its txg.
        if self.spa().parts().groups().synced_txg() >= open_before {
            self.past.all_is_known(self.disks.commands());
        }
        is_done
    }

    /// From now on the intent log of this file system may be written, because it is unmounted.
    pub(super) fn log(&mut self, head: &str) {
        let now = self.disks.commands();
        self.past.log((now, now), head, None);
    }

    /// The same for all of them.
    pub(super) fn log_all(&mut self) {
        let heads: Vec<String> = self.world.heads.keys().cloned().collect();
        heads.iter().for_each(|head| self.log(head));
    }

    /// Records which txg is on disk, and forgets the distant past.
    pub(super) fn take_stock(&mut self) {
        let synced = self.spa().parts().groups().synced_txg();
        let commands = self.disks.commands();
        self.past.txg_is_known(commands, synced);
        if commands - self.past.base() > COMMANDS_MAX || self.past.len() > STATES_MAX {
            self.forget();
        }
    }

    /// Syncs; from now on no power cut will be earlier than this moment.
    pub(super) fn forget(&mut self) {
        self.sync();
        self.disks.keep(&self.members());
        self.disks.forget();
        self.past = Past::new(self.disks.commands(), &self.world);
    }

    /// A file system by its number.
    pub(super) fn head(&self, pick: u64) -> Option<String> {
        let count = self.world.heads.len() as u64;
        let at = pick.checked_rem(count)?;
        self.world.heads.keys().nth(at as usize).cloned()
    }

    /// The first clone at or after that number.
    pub(super) fn clone_head(&self, pick: u64) -> Option<String> {
        let heads = &self.world.heads;
        let first = pick.checked_rem(heads.len() as u64)?;
        let turned = heads.iter().cycle().skip(first as usize).take(heads.len());
        let mut clones = turned.filter(|(_, head)| head.origin.is_some());
        clones.next().map(|(name, _)| name.clone())
    }

    /// Runs the checker; an ailing device may have bad copies.
    ///
    /// # Panics
    /// With what it finds.
    pub(super) fn assert_clean(&self) {
        match &self.ailing {
            Some(_) => pool::assert_nothing_lost(self.spa()),
            None => pool::assert_clean(self.spa()),
        }
    }
}

/// How the pools are run.
pub(super) fn settings() -> Settings {
    Settings {
        arc_bytes: ARC_BYTES,
        scan: ScanSettings {
            blocks_max: SCAN_BLOCKS_MAX,
            ..ScanSettings::default()
        },
        discard_entries_max: DISCARDED_MAX,
        reflow_max_bytes: MOVED_BYTES_MAX,
        rebuild_max_bytes: MOVED_BYTES_MAX,
        ..pool::settings()
    }
}
