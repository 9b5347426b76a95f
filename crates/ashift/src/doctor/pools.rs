//! Facts of pools and their file systems.

use std::collections::BTreeMap;

use admin::pool::{PoolStatus, VdevStatus};
use base::{ObjectId, Result};
use compress::Algorithm;
use dmu::ObjectWalk;
use doctor::{Dataset, Device, Disk, Files, Pool};
use machine::World;
use spa::{FeatureState, Spa};
use zpl::FileType;

use super::disks::disk_of;
use crate::caller;
use crate::zpool::name_style;

/// A pool as crate `doctor` wants to know it.
pub(super) fn facts(status: PoolStatus, open: Result<&Spa, String>) -> Pool {
    let (active_features, unavailable) = match open {
        Ok(spa) => {
            let features = spa.features().into_iter();
            let active = features.filter(|(_, state)| *state == FeatureState::Active);
            (active.map(|(guid, _)| guid).collect(), None)
        }
        Err(why) => (Vec::new(), Some(why)),
    };
    Pool {
        status,
        unavailable,
        active_features,
        devices: BTreeMap::new(),
        style: name_style(),
        found_in: None,
    }
}

/// The disk below each device of a pool, by the device's guid.
pub(super) fn disks(world: &World, pool: &Pool) -> BTreeMap<u64, String> {
    fn add(world: &World, vdev: &VdevStatus, found: &mut BTreeMap<u64, String>) {
        let disk = vdev.path.as_ref().and_then(|path| disk_of(world, path));
        found.extend(disk.map(|disk| (vdev.guid, disk)));
        vdev.children
            .iter()
            .for_each(|child| add(world, child, found));
    }
    let mut found = BTreeMap::new();
    add(world, &pool.status.root, &mut found);
    found
}

/// The same with what is known of these disks.
pub(super) fn devices(
    below: BTreeMap<u64, String>,
    disks: &BTreeMap<String, Disk>,
) -> BTreeMap<u64, Device> {
    let device = |disk: String| Device {
        sector: disks.get(&disk).and_then(Disk::sector),
        disk,
    };
    below
        .into_iter()
        .map(|(guid, disk)| (guid, device(disk)))
        .collect()
}

/// The file systems of a pool, with the sizes of so many of their files. One that cannot be read, as for want of a key,
/// is left out.
pub(super) fn datasets(spa: &Spa, most: u64) -> Vec<Dataset> {
    let dsl = spa.parts().dsl();
    let mut found = Vec::new();
    let mut names = vec![dsl.name()];
    while let Some(name) = names.pop() {
        names.extend(dsl.children(&name).unwrap_or_default());
        found.extend(dataset(spa, &name, most).ok());
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

fn dataset(spa: &Spa, name: &str, most: u64) -> Result<Dataset> {
    let mount = zpl::mount::mount(spa.parts().dsl(), name, true)?;
    let objset = mount.objset();
    let props = objset.props();
    let (mut files, mut walk) = (Files::default(), ObjectWalk::default());
    let mut at = ObjectId(0);
    while let Some(id) = objset.next_object_of(at, &mut walk)? {
        at = id;
        if files.count >= most {
            files.is_sample = true;
            break;
        }
        let Ok(attr) = mount.getattr(id) else {
            continue;
        };
        if attr.file_type() == Some(FileType::Regular) {
            files.add(attr.size, attr.blksz, props.recordsize);
            caller::check();
        }
    }
    Ok(Dataset {
        name: name.to_owned(),
        record_bytes: props.recordsize,
        small_bytes: props.special_small_blocks,
        is_compressed: props.compress != Algorithm::Off,
        files,
    })
}
