//! Hot spares, also those that are distributed over a dRAID: taken by themselves for devices that are gone, and
//! given back.

use std::sync::Arc;

use base::Error;
use spa::SpareUser;
use vdev::AuxSpec;

use super::bench::Bench;
use super::devices::NOT_NOW;
use super::step::{Kind, Step};

/// The most spares of a pool, but for those of a dRAID.
const SPARES_MAX: usize = 2;

pub(super) const KINDS: &[Kind] = &[
    Kind::new("add-spare", 14, Bench::add_spare),
    Kind::new("remove-spare", 4, Bench::remove_spare),
    // A spare that is in use goes back, or the device that it is used for goes for good.
    Kind::new("detach-spare", 6, Bench::detach_spare),
];

impl Bench {
    /// From now on spares are taken for devices that are gone.
    ///
    /// # Panics
    /// When that fails.
    pub(super) fn watch_spares(&self) {
        let providers = self.disks.providers();
        let open = move |path: &str| {
            let mut all = providers.iter();
            let found = all.find(|provider| provider.name() == path).cloned();
            found.ok_or_else(|| Error::not_found(path.to_owned()))
        };
        let watched = self.spa().watch_spares(Arc::new(open));
        watched.unwrap_or_else(|e| panic!("{}: spares: {e}", self.name));
    }

    fn add_spare(&mut self, _: &Step) -> bool {
        if self.spa().spares().len() >= SPARES_MAX
            || self.ailing.is_some()
            || !self.disks.have_room_for(1)
        {
            return false;
        }
        let aux = AuxSpec {
            spares: vec![self.new_device()],
            caches: Vec::new(),
        };
        let (spa, sectors) = (self.spa().clone(), self.sectors());
        let added = spa.add(&[], &aux, sectors, true);
        let is_added = self.has_worked("add-spare", added, NOT_NOW);
        if is_added {
            self.watch_spares();
        }
        is_added
    }

    fn remove_spare(&mut self, step: &Step) -> bool {
        let spares = self.spa().spares();
        let Some(at) = step.pick.checked_rem(spares.len() as u64) else {
            return false;
        };
        let removed = self.spa().remove_spare(spares[at as usize].0.guid());
        self.has_worked("remove-spare", removed, NOT_NOW)
    }

    fn detach_spare(&mut self, step: &Step) -> bool {
        let mut spares = self.spa().spares();
        spares.retain(|(_, user)| *user == SpareUser::This);
        let Some(at) = step.pick.checked_rem(spares.len() as u64) else {
            return false;
        };
        let detached = self.spa().detach(spares[at as usize].0.guid());
        self.has_worked("detach-spare", detached, NOT_NOW)
    }
}
