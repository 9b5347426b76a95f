//! New devices in the places of those that are gone: the pool property `autoreplace`.
//!
//! # What it is
//! OpenZFS's event daemon is told by udev when a device appears, and replaces the one of a pool with
//! `autoreplace=on` that was at that place. Here whatever opens the pool for writing looks at the path of each
//! device that cannot be opened. A device there is taken if it is blank where a pool's labels would be: any other
//! may be needed, and only `zpool replace` takes it.
//!
//! # Source
//! OpenZFS cmd/zed/agents/zfs_mod.c (`zfs_process_add`).

use std::sync::Arc;

use geom::disk::OpenMode;
use geom::{Namespace, Provider};
use machine::Holder;
use phys::PropValue;
use phys::label::LABEL_SIZE;
use spa::Resilver;
use vdev::{Attach, Vdev, VdevState};

use crate::create::PoolDevice;
use crate::open::OpenPool;

/// The pool property; off unless it was set.
const AUTOREPLACE: &str = "autoreplace";

impl OpenPool {
    /// Takes new devices in the places of those that are gone, if the pool wants that. A device that does not fit
    /// is left alone: `zpool replace` says why.
    pub(crate) fn autoreplace(&self) {
        let is_on = self.props().get(AUTOREPLACE) == Some(&PropValue::Number(1));
        if !is_on || self.is_readonly() {
            return;
        }
        for device in self.parts().tree().devices() {
            let Some(path) = self.new_device_at(&device) else {
                continue;
            };
            let kind = device.kind();
            let new = PoolDevice {
                path: path.clone(),
                kind,
            };
            if self
                .attach(
                    device.guid(),
                    &new,
                    (Attach::Replacement, Resilver::Healing),
                    0,
                )
                .is_ok()
            {
                let pool = self.name();
                let text =
                    format!("pool '{pool}': the new device {path} replaces the one that is gone");
                self.pools().observer().notice(&text);
            }
        }
    }

    /// The path of a device that cannot be opened, if there is a blank one now.
    fn new_device_at(&self, device: &Arc<Vdev>) -> Option<String> {
        let is_gone = device.kind().has_labels()
            && device.leaf().state().0 == VdevState::CantOpen
            && device.leaf().provider().is_none();
        let path = device.config().path.clone().filter(|_| is_gone)?;
        let world = self.pools().world();
        let names = world.names_for(Holder::Pool(self.name()));
        let found = names.open(&path, OpenMode::Inspect).ok()?;
        is_blank(&*found).then_some(path)
    }
}

/// Whether there is nothing where labels would be.
fn is_blank(provider: &dyn Provider) -> bool {
    let size = provider.mediasize();
    let ends = [
        0,
        LABEL_SIZE,
        size.saturating_sub(2 * LABEL_SIZE),
        size.saturating_sub(LABEL_SIZE),
    ];
    size >= 4 * LABEL_SIZE
        && ends.into_iter().all(|offset| {
            let sector = u64::from(provider.sectorsize());
            let mut bytes = vec![0; LABEL_SIZE as usize];
            let offset = base::align_down(offset, sector);
            provider.read(offset, &mut bytes).is_ok() && bytes.iter().all(|byte| *byte == 0)
        })
}
